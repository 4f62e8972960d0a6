"""Files of weights: what the library safetensors reads of them, and what is refused."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import magmagraph as mg
from magmagraph.model import files

ABOUT = {"kind": "model", "architecture": None}
DTYPES = ["f4", "f8", "i1", "f2", "?", "u2", "i8", "c8", "u1", "i4", ml_dtypes.bfloat16]


@pytest.fixture
def tensors(rng):
    shapes = [(3, 4), (), (0, 3), (5,), (2, 2, 2), (7,), (3,), (4,), (2,), (9,), (3, 5)]
    return {
        f"{i} {np.dtype(dtype).name}": np.asarray(rng.integers(0, 2, shape)).astype(dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, DTYPES, strict=True))
    }


def assert_same(found, tensors):
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_what_is_written_is_read_by_us_and_by_others(tensors, tmp_path):
    path = tmp_path / "t.safetensors"
    files.write(path, tensors, ABOUT)
    found, about = files.read(path, "model")
    assert_same(found, tensors)
    assert about.items() >= ABOUT.items()
    assert all(array.flags.writeable and array.flags.aligned for array in found.values())
    with safe_open(path, "numpy") as file:
        assert_same(file.get_tensors(), tensors)
        assert json.loads(file.metadata()["magmagraph"]).items() >= ABOUT.items()


def test_strange_layouts_are_written_as_they_read(tmp_path, rng):
    array = rng.standard_normal((4, 6))
    given = {"t": array.T, "s": array[::2, 1::2], "b": array.astype(">f4"), "f": np.float32(2)}
    files.write(tmp_path / "w", given, ABOUT)
    found, _ = files.read(tmp_path / "w")
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype.isnative


def test_files_that_hold_bfloat16_as_integers_are_read(tmp_path):
    half = np.arange(3.0).astype(ml_dtypes.bfloat16)
    held = {"half": half.view(np.uint16)}
    about = {**ABOUT, "bfloat16": ["half"], "version": 1, "checksum": files._checksum(held)}
    text = json.dumps({**about, "said": files._seal(about)})
    (tmp_path / "w").write_bytes(save(held, {"magmagraph": text}))
    assert_same(files.read(tmp_path / "w")[0], {"half": half})


def test_a_file_that_is_cut_anywhere_is_none(tensors, tmp_path):
    path = tmp_path / "w"
    files.write(path, tensors, ABOUT)
    content = path.read_bytes()
    for length in (*range(300), *range(300, len(content), 7)):
        with pytest.raises(mg.DataError, match="is truncated, damaged, or no file of weights"):
            files.read(path, content=content[:length])
    with pytest.raises(mg.DataError, match="is truncated, damaged"):
        files.read(path, content=content + b"\0")


def entry(dtype="F32", shape=(2,), data_offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


WRONG = {
    "no table": [1],
    "metadata that are no texts": {"__metadata__": {"a": 1}},
    "an entry without parts": {"w": {}},
    "no such dtype": {"w": entry(dtype="F31")},
    "a dtype that NumPy has not": {"w": entry(dtype="F8_E5M2", shape=(8,))},
    "no shape": {"w": entry(shape=3)},
    "three offsets": {"w": entry(data_offsets=(0, 4, 8))},
    "an infinite offset": {"w": entry(data_offsets=(0, float("inf")))},
    "another shape": {"w": entry(shape=(3,))},
    "offsets before the start": {"w": entry(data_offsets=(-8, 0))},
    "negative extents": {"w": entry(shape=(-1, -2))},
    "more axes than an array has": {"w": entry(shape=(1,) * 65 + (2,))},
    "extents beside one of 0": {"w": entry(shape=(0, 2**62, 2**62), data_offsets=(0, 0))},
    "extents above 64 bits": {"w": entry(shape=(2**40, 2**40))},
    "bytes after the end": {"w": entry(data_offsets=(4, 12))},
    "overlapping tensors": {"w": entry(shape=(1,), data_offsets=(4, 8)), "v": entry()},
    "a hole": {"w": entry(shape=(1,), data_offsets=(4, 8))},
}


@pytest.mark.parametrize("case", WRONG)
def test_headers_that_do_not_fit_are_refused(case):
    header = json.dumps(WRONG[case]).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    with pytest.raises(mg.DataError, match=r"^'w' is truncated, damaged, or no file of weights: ."):
        files.read("w", content=content)
