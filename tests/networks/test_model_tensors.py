"""The safetensors format: what the library of that name reads and writes, and what is no file."""

import json

import numpy as np
import pytest

from magmagraph.model.tensors import packed, unpacked

TEXTS = {"of": "a test", "ü": "ß"}


@pytest.fixture
def tensors(rng):
    shapes = [(3, 4), (), (0, 3), (5,), (2, 2, 2), (7,), (3,), (4,), (2,), (9,)]
    dtypes = ["f4", "f8", "f4", "i1", "f2", "?", "u2", "i8", "c8", "u1"]
    return {
        f"{i} {dtype}": np.asarray(rng.integers(0, 100, shape), dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    }


def assert_same(found, tensors):
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_what_is_packed_is_unpacked(tensors):
    found, texts = unpacked(packed(tensors, TEXTS))
    assert_same(found, tensors)
    assert texts == TEXTS
    for array in found.values():
        assert array.flags.writeable and array.flags.aligned and array.flags.owndata


def test_the_library_reads_and_writes_the_same(tensors, tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "t.safetensors"
    path.write_bytes(packed(tensors, TEXTS))
    assert_same(library.load_file(path), tensors)
    with pytest.importorskip("safetensors").safe_open(path, "numpy") as file:
        assert file.metadata() == TEXTS
    found, texts = unpacked(library.save(tensors, TEXTS))
    assert_same(found, tensors)
    assert texts == TEXTS


def test_strange_layouts_are_written_as_they_read(rng):
    array = rng.standard_normal((4, 6))
    given = {"t": array.T, "s": array[::2, 1::2], "b": array.astype(">f4"), "f": np.float32(2)}
    found, _ = unpacked(packed({name: np.asarray(a) for name, a in given.items()}, {}))
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype.isnative


def test_a_file_that_is_cut_anywhere_is_none(tensors):
    content = packed(tensors, TEXTS)
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"whole|column|fill|bytes|place"):
            unpacked(content[:length])
    with pytest.raises(ValueError, match="bytes of tensors"):
        unpacked(content + b"\0")


def entry(dtype="F32", shape=(2,), data_offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


WRONG = {
    "no table": [1],
    "no texts": {"__metadata__": {"a": 1}},
    "entry of 'w' is wrong": {"w": {}},
    "of 'w' is wrong": {"w": entry(dtype="F31")},
    "'w' is wrong": {"w": entry(shape=3)},
    "is wrong": {"w": entry(data_offsets=(0, 4, 8))},
    "wrong": {"w": entry(data_offsets=(0, float("inf")))},
    "fill its place": {"w": entry(shape=(3,))},
    "its place": {"w": entry(data_offsets=(-8, 0))},
    "place": {"w": entry(shape=(-1, -2))},
    "does not fill": {"w": entry(data_offsets=(4, 12))},
    "overlap": {"w": entry(shape=(1,), data_offsets=(4, 8)), "v": entry()},
    "holes": {"w": entry(shape=(1,), data_offsets=(4, 8))},
}


@pytest.mark.parametrize("text", WRONG)
def test_headers_that_do_not_fit_are_refused(text):
    header = json.dumps(WRONG[text]).encode()
    with pytest.raises(ValueError, match=text):
        unpacked(len(header).to_bytes(8, "little") + header + bytes(8))
