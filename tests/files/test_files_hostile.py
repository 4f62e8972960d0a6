"""Files that are made to do harm, one of each kind; `test_files_fuzz.py` has those made at random.

Each is read in a process with little memory: what would take gigabytes there fails otherwise than
it has to.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import magmagraph as mg
from magmagraph.errors import ConfigError, DataError, PlanError, StorageError
from magmagraph.files.reading import Damaged, gunzipped, parse_json
from magmagraph.model import files
from magmagraph.text.writing import dump

GIB = 1 << 30


def in_little_memory(tmp_path: Path, program: str, *arguments: object) -> str:
    """Run a program in which 400 MiB can be had beside the imports, and return what it prints."""
    begin = """
        import os, resource, sys, time
        import numpy as np
        import magmagraph as mg
        import magmagraph.data
        from magmagraph.errors import MagmagraphError
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + (400 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))

        def refused(read, *given, **named):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                read(*given, **named)
            except MagmagraphError as error:
                took = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                assert took < 300 << 10, f"it took {took} KiB"
                assert "memory than there is" not in str(error), error
                print(type(error).__name__, str(error).replace(os.getcwd(), "").replace("\\n", "|"))
            else:
                print("read")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(begin) + textwrap.dedent(program),
         *map(str, arguments)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def bomb(path: Path, name: str, head: bytes = b"", stated: int | None = None) -> None:
    """Write a zip archive of 3 MB whose member unpacks to 3 GiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    body += block * (3 * GIB >> 24) + packer.flush()
    size = len(head) + 3 * GIB if stated is None else stated
    about = struct.pack("<HHHHHIII", 20, 0, 8, 0, 33, 0, len(body), size)
    text = name.encode()
    local = b"PK\3\4" + about + struct.pack("<HH", len(text), 0) + text
    entry = b"PK\1\2" + struct.pack("<H", 20) + about
    entry += struct.pack("<HHHHHII", len(text), 0, 0, 0, 0, 0, 0) + text
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(body), 0)
    path.write_bytes(local + body + entry + end)


def npy_head(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize("stated", [None, 200, 2**32 - 1])
def test_a_small_archive_does_not_unpack_to_gigabytes(stated, tmp_path):
    head = npy_head((3 * GIB // 8,))
    bomb(tmp_path / "bomb.npz", "a.npy", head, stated)
    bomb(tmp_path / "bomb.magma", "manifest.json", stated=stated)
    assert (tmp_path / "bomb.npz").stat().st_size < 4 << 20
    said = in_little_memory(
        tmp_path,
        """
        refused(mg.data.read_npz, "bomb.npz")
        refused(mg.data.read_npz, "bomb.npz", mapped=True)
        refused(mg.load, "bomb.magma")
        """,
    ).splitlines()
    assert [line.split()[0] for line in said] == ["DataError", "DataError", "PlanError"]
    assert all("Error bomb." in line for line in said)
    if stated is None:
        limit = "expected: at most 268435456|  try: MAGMAGRAPH_UNPACKED_SIZE="
        assert limit in said[0] and limit in said[2]


def test_the_limit_of_what_unpacks_can_be_raised(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(1 << 22))
    assert mg.data.read_npz(path)["a"].shape == (1 << 22,)
    monkeypatch.setattr(mg.config, "unpacked_size", 1 << 20)
    with pytest.raises(DataError, match="MAGMAGRAPH_UNPACKED_SIZE=33554560"):
        mg.data.read_npz(path)
    np.savez(path, a=np.zeros(1 << 22))  # as large as the file is no danger
    assert mg.data.read_npz(path)["a"].shape == (1 << 22,)


def test_gzipped_idx_files_unpack_to_what_they_state(tmp_path):
    stated = bytes([0, 0, 8, 1]) + (3 * GIB).to_bytes(4, "big")
    with gzip.open(tmp_path / "large", "wb") as file:
        file.write(stated)
    with gzip.open(tmp_path / "longer", "wb", compresslevel=1) as file:
        file.write(bytes([0, 0, 8, 1, 0, 0, 0, 5]))
        for _ in range(64):
            file.write(bytes(1 << 24))
    said = in_little_memory(
        tmp_path, 'refused(mg.data.read_idx, "large"); refused(mg.data.read_idx, "longer")'
    ).splitlines()
    assert said[0].startswith("DataError large: its content, unpacked, has 3221225480 bytes|")
    assert said[1].startswith("DataError longer has bytes after its end: ")
    assert gunzipped(gzip.compress(b"abcdef"), lambda first: 4, 2) == b"abcde"


HEADS = {
    "no such extents": npy_head((10**12,)),
    "a product of extents above 2**63": npy_head((2**40, 2**40)),
    "extents beside one of 0": npy_head((0, 2**62, 2**62)),
    "an extent that is none": npy_head((-5,)),
    "an extent of text": npy_head(("a",)),  # type: ignore[arg-type]
    "too many axes": npy_head((1,) * 65),
    "elements of no bytes": npy_head((2**62,), "|V0"),
    "Python objects": npy_head((1,), "|O"),
    "a code of no dtype": npy_head((1,), "<q9"),
    "large elements": npy_head((3,), "|V2147483647"),
    "a header of 4 GiB": b"\x93NUMPY\2\0" + b"\xff" * 4 + b"{",
    "a version to come": b"\x93NUMPY\4\0" + npy_head((1,))[8:],
}  # fmt: skip


def test_headers_of_arrays_do_not_allocate(tmp_path):
    for kind, head in HEADS.items():
        (tmp_path / f"{kind}.npy").write_bytes(head + bytes(64))
        with zipfile.ZipFile(tmp_path / f"{kind}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", head + bytes(64))
    said = in_little_memory(
        tmp_path,
        """
        for kind in sys.argv[1:]:
            for mapped in (False, True):
                refused(mg.data.read_npy, f"{kind}.npy", mapped=mapped)
                refused(mg.data.read_npz, f"{kind}.npz", mapped=mapped)
        """,
        *HEADS,
    )
    kinds = [kind for kind in HEADS for _ in range(4)]
    for kind, line in zip(kinds, said.splitlines(), strict=True):
        assert line.startswith(f"DataError {kind}.np"), line


@pytest.mark.parametrize(
    "header",
    ["(" * 9000, "[" * 9000, "-" * 9000 + "1", "not " * 2000 + "1", "1" * 5000 + "x",
     "{'descr': '<f8', 'fortran_order': 0, 'shape': ()}", "{'a': 1}", "{}", "", "'" * 9000,
     "{'descr': [('a', '<f8'), ('a', '<f8')], 'fortran_order': False, 'shape': (1,)}",
     "{'descr': __import__('os'), 'fortran_order': False, 'shape': ()}"],
    ids=range(12),
)  # fmt: skip
def test_literals_in_headers_are_plain(header, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(DataError, match="a.npy is truncated, corrupted, or not a file of NumPy's"):
        mg.data.read_npy(path)


def test_headers_of_other_writers_are_read(tmp_path):
    shape = "(3L, 2L)"  # Python 2
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(24)
    (tmp_path / "a.npy").write_bytes(content + b"another array")
    assert mg.data.read_npy(tmp_path / "a.npy").shape == (3, 2)
    for array in (
        np.zeros((2, 3), [("é", "<f8"), ("b", "i2", (2,))]), np.array("text"), np.zeros((0, 5)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3).astype(">i2"),
        np.array(["2020-01-01"], "M8[D]"),
    ):  # fmt: skip
        np.save(tmp_path / "b.npy", array)
        found = mg.data.read_npy(tmp_path / "b.npy")
        assert found.dtype == array.dtype and np.array_equal(found, array)


# ------------------------------------------------------------------------------------ pickles


def with_state(state: tuple) -> bytes:
    """Return the pickle of an array of 8 bytes whose dtype is given a state."""
    from numpy._core.multiarray import _reconstruct

    class Dtype:
        def __reduce__(self):
            return np.dtype, ("u1", False, True), state

    class Array:
        def __reduce__(self):
            value = (1, (1, 3072), Dtype(), False, bytes(3072))
            return _reconstruct, (np.ndarray, (0,), b"b"), value

    return pickle.dumps({b"data": Array(), b"labels": [1]}, 2)


def test_a_dtype_s_state_is_not_taken_from_a_pickle(tmp_path):
    """By such a state NumPy takes 8 bytes of the file for the address of a Python object."""
    program = 'refused(mg.data.read_cifar10, "batch")'
    states = [
        (3, "|", None, None, None, -1, -1, 0),
        (3, "|", None, None, None, 8, 8, 63),
        (3, "|", (np.dtype("O"), (1,)), ("a",), {"a": (np.dtype("u1"), 0)}, 8, 8, 63),
    ]
    for state in states:
        try:
            (tmp_path / "batch").write_bytes(with_state(state))
        except (TypeError, ValueError):
            continue
        said = in_little_memory(tmp_path, program)  # a crash is no status of 0
        assert said.startswith(("read", "DataError")), said
    x, y = mg.data.read_cifar10(_written(tmp_path / "good", with_state(states[0])))
    assert x.shape == (1, 32, 32, 3) and x.dtype == np.uint8 and y.tolist() == [1]


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


LAUGHS = b"\x80\x02(t" + b"2\x86" * 60  # a tuple of two of the tuple before, sixty times
PICKLES = {
    "a place in memory far away": b"\x80\x02}r\xff\xff\xff\x7f.",
    "bytes that are not there": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0fab.",
    "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent object": b"\x80\x02X\1\0\0\0aQ.",
    "an object of a class": b"\x80\x02cos\nsystem\n)\x81.",
    "a state for a name": b"\x80\x02cnumpy\nndarray\n}X\1\0\0\0aK\1sb.",
    "a call of a value": b"\x80\x02K\1)R.",
    "no end": b"\x80\x02K\1",
    "nothing on the stack": b"\x80\x02a.",
    "a dtype of objects": b"\x80\x02cnumpy\ndtype\nX\2\0\0\0O8\x85R.",
    "a dtype by nested tuples": b"\x80\x02cnumpy\ndtype\n)" + b"q\0h\0\x86" * 60 + b"\x85R.",
    "a name of nested tuples": b"\x80\x04)" + b"q\0h\0\x86" * 60 + b"q\1h\1\x93.",
    "a key of nested tuples": b"\x80\x02})" + b"q\0h\0\x86" * 60 + b"K\1s.",
    "an extent of nested tuples":
        b"\x80\x02cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R"
        b"(K\1(" + b")" + b"q\0h\0\x86" * 60 + b"\x85tcnumpy\ndtype\nX\2\0\0\0u1\x85R\x89C\0tb.",
    "millions of values": b"\x80\x02" + b"N" * 3_000_000 + b".",
    "laughs": LAUGHS + b".",
}  # fmt: skip


def test_pickles_build_values_and_nothing_else(tmp_path):
    for kind, content in PICKLES.items():
        (tmp_path / kind).write_bytes(content)
    program = "for kind in sys.argv[1:]: refused(mg.data.read_cifar10, kind)"
    said = in_little_memory(tmp_path, program, *PICKLES)
    for kind, line in zip(PICKLES, said.splitlines(), strict=True):
        assert line.startswith(f"DataError {kind} is "), line


def test_a_pickle_of_other_protocols_is_read(tmp_path):
    rows = np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072)
    for protocol in (0, 2, 3, 4):
        for labels in ([1, 2], np.array([1, 2], np.uint8)):
            content = pickle.dumps({b"data": rows, "labels": labels}, protocol)
            x, y = mg.data.read_cifar10(_written(tmp_path / "batch", content))
            assert x[1, 0, 0, 0] == rows[1, 0] and y.tolist() == [1, 2]
    with pytest.raises(DataError, match="label 300 of example 1 is out of range"):
        mg.data.read_cifar10(
            _written(tmp_path / "batch", pickle.dumps({b"data": rows, b"labels": [1, 300]}, 2))
        )


# ------------------------------------------------------------------------------ what is no file


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    readers = [mg.data.read_idx, mg.data.read_npy, mg.data.read_npz, mg.data.read_csv,
               mg.data.read_cifar10, mg.load, mg.Model.load, mg.workflow.read,
               mg.tune.read]  # fmt: skip
    for path in (tmp_path / "pipe", "/dev/zero"):
        for read in readers:
            with pytest.raises((DataError, PlanError, ConfigError), match="a pipe or a device"):
                read(path)


# -------------------------------------------------------------------- archives, models, journals


def archived(tmp_path: Path) -> Path:
    x = mg.var("x", shape=("batch", 2))
    path = tmp_path / "f.magma"
    mg.function([x], x @ mg.var("W", init=np.ones((2, 2), "f4"))).save(path)
    return path


def resealed(path: Path, changes: dict[str, bytes]) -> None:
    """Write members of an archive anew, with checksums that fit."""
    import hashlib

    from magmagraph.function.archive import seal

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | changes
    manifest = json.loads(members.pop("manifest.json"))
    manifest["members"] = {n: hashlib.sha256(c).hexdigest() for n, c in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            archive.writestr(name, content)
        archive.comment = b"0" * 64
    seal(path)


DEEP = b"[" * 100_000
ARCHIVES = {
    "settings.json is nested deeper than 100 levels": {"settings.json": DEEP},
    "settings.json is no JSON": {"settings.json": b"{"},
    "settings.json lacks 'name'": {"settings.json": b"{}"},
    "a table has a key twice": {"settings.json": b'{"name": "a", "name": "b"}'},
    "it lacks 'settings.json'": {"settings.json": None},
    "float32[1000000000000] takes 4000000000000": {
        "variables/0.npy": npy_head((10**12,), "<f4") + bytes(16)
    },
    "is float64[2, 2], and settings.json states float32[2, 2]": {
        "variables/0.npy": npy_head((2, 2), "<f8") + bytes(32)
    },
    "can't decode byte 0xff": {"source.txt": b"\xff"},
}


@pytest.mark.parametrize("text", ARCHIVES)
def test_resealed_archives_are_refused(text, tmp_path):
    path = archived(tmp_path)
    changes = {name: content for name, content in ARCHIVES[text].items() if content is not None}
    resealed(path, changes)
    if None in ARCHIVES[text].values():
        import shutil

        other = tmp_path / "other"
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w") as cut:
            manifest = json.loads(archive.read("manifest.json"))
            del manifest["members"]["settings.json"], manifest["sealed"]
            cut.writestr("manifest.json", json.dumps(manifest))
            for name in manifest["members"]:
                cut.writestr(name, archive.read(name))
        shutil.move(other, path)
    with pytest.raises(PlanError) as raised:
        mg.load(path)
    assert str(raised.value).startswith("f.magma ") and text in str(raised.value)


SETTINGS = {
    "settings.json.device is": ("device", "cuda; rm -rf /"),
    "settings.json.outputs": ("outputs", {"list": [0, {"dict": [[[1], 0]]}]}),
    "output 7 is asked for": ("outputs", 7),
    "settings.json.random is 9": ("random", 9),
    "settings.json.variables[0][2][0] is -1": ("variables", [["W", "float32", [-1, 2]]]),
    "has 1 variables, and settings.json 0": ("variables", []),
    "precision='half'": ("settings.precision", "half"),
    "'none', which is not a pass": ("settings.skip", ["none"]),
    "there is no option 'x'": ("settings.options", {"x": 1}),
    "settings.json.distribute.of": ("distribute", {"kind": "Hybrid", "of": [3]}),
    "'os'": ("distribute", {"kind": "os", "options": {}}),
}


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_of_archives_have_a_schema(text, tmp_path):
    path = archived(tmp_path)
    with zipfile.ZipFile(path) as archive:
        saved = json.loads(archive.read("settings.json"))
    name, value = SETTINGS[text]
    *outer, last = name.split(".")
    (saved[outer[0]] if outer else saved)[last] = value
    resealed(path, {"settings.json": json.dumps(saved).encode()})
    with pytest.raises(PlanError) as raised:
        mg.load(path)
    if text not in str(raised.value):
        assert "variable 'W' has no value" in str(raised.value), raised.value


def model_file(tmp_path: Path, change) -> Path:
    path = tmp_path / "net.safetensors"
    net = mg.NeuralNetwork(
        [mg.nn.Input((2,)), mg.nn.Dense(3, name="d")], loss="mse",
        optimizer=mg.optimizer.Adam(mg.schedule.cosine(0.1, 20)),
    )  # fmt: skip
    net.save(path)
    tensors, about = files.read(path)
    change(about)
    about = {key: value for key, value in about.items() if key != "said"}
    header = {"magmagraph": json.dumps({**about, "said": files._seal(about)})}
    path.write_bytes(save(tensors, header))
    return path


def units(value):
    return lambda about: about["architecture"]["layers"][1]["arguments"].update(units=value)


def rate(value):
    return lambda about: about["architecture"]["optimizer"].update(learning_rate=value)


def nested(about):
    inside = {"layer": "Dense", "arguments": {"units": 3}}
    for _ in range(200):
        inside = {"layer": "Residual", "arguments": {"layers": [inside]}}
    about["architecture"]["layers"][1] = inside


MODELS = {
    "weights of 36 bytes together, as the file has": units(10**9),
    "is float32[2, 10000000000000000000000]": units(10**22),
    "units=None": units(None),
    "architecture.layers[1].arguments.units lacks": units({"x": 1}),
    "is nested deeper than 100 levels": nested,
    "a layer of class os": lambda about: about["architecture"]["layers"][1].update(layer="os"),
    "the file names a schedule 'os'": rate({"schedule": "os", "values": {}}),
    "unexpected keyword argument 'x'": rate(
        {"schedule": "Cosine", "values": {"rate": 1, "steps": 2, "x": 3}}
    ),
    "steps=0": rate({"schedule": "Cosine", "values": {"rate": 1.0, "steps": 0}}),
    "magmagraph.checksum is 'x'": lambda about: about.update(checksum="x"),
    "magmagraph lacks 'version'": lambda about: about.pop("version"),
    "'d/bias' is no tensor of 16 bits": lambda about: about.update(bfloat16=["d/bias"]),
    "there is no loss 'no such'": lambda about: about["architecture"].update(loss="no such"),
}


def test_resealed_models_are_refused(tmp_path):
    for number, change in enumerate(MODELS.values()):
        model_file(tmp_path, change).rename(tmp_path / f"{number}.net")
    program = "for i in range(int(sys.argv[1])): refused(mg.NeuralNetwork.load, f'{i}.net')"
    said = in_little_memory(tmp_path, program, len(MODELS)).splitlines()
    for number, (text, line) in enumerate(zip(MODELS, said, strict=True)):
        assert line.startswith(f"DataError '{number}.net' "), line
        assert text in line


def _model_of_graph(path: Path, change) -> Path:
    """Write a model whose file holds a graph, with changes of its description, resealed."""
    x = mg.input("x", ("batch", 4))
    hidden = mg.nn.Dense(3, name="a")(mg.exp(x))
    state, *_ = mg.nn.LSTM(2, name="b", return_state=True)(mg.reshape(hidden, (-1, 3, 1)))
    mg.Model(x, [hidden * 2.0, state]).save(path)
    tensors, about = files.read(path)
    change(about["architecture"])
    about = {key: value for key, value in about.items() if key != "said"}
    header = {"magmagraph": json.dumps({**about, "said": files._seal(about)})}
    path.write_bytes(save(tensors, header))
    return path


def _plan_text() -> str:
    x = mg.input("x", ("batch", 4))
    return dump(mg.function([x], mg.exp(x)).plan)


GRAPHS = {
    r"architecture\.graph: line 1: the text is that of a plan, and not of a graph": (
        lambda part: part.update(graph=_plan_text())
    ),
    r"architecture\.graph: line 1: 'planet'": lambda part: part.update(graph="planet"),
    "has the key 'graph' and lacks 'inputs'": lambda part: part.pop("inputs"),
    "has the key 'graph' and lacks 'calls'": lambda part: part.pop("calls"),
    r"graph has \d inputs, and not the 3 of the model and one for each of \d calls": (
        lambda part: part.update(inputs=3)
    ),
    r"calls have \d+ operands, and architecture\.graph has \d outputs": (
        lambda part: part["calls"][0].update(operands=99)
    ),
    r"calls\[0\]\.layer is 7, and there are 2": lambda part: part["calls"][0].update(layer=7),
    r"calls\[0\]\.position is 0, and the results of the call are one": (
        lambda part: part["calls"][0].update(position=0)
    ),
    r"calls\[1\]\.position is 5, and the results of the call are 3": (
        lambda part: part["calls"][1].update(position=5)
    ),
}


@pytest.mark.parametrize("text", GRAPHS)
def test_graphs_of_resealed_models_are_refused(text, tmp_path):
    path = _model_of_graph(tmp_path / "m.net", lambda part: None)
    assert len(mg.Model.load(path).outputs) == 2
    path = _model_of_graph(tmp_path / "m.net", GRAPHS[text])
    with pytest.raises(DataError, match=text) as raised:
        mg.Model.load(path)
    assert str(raised.value).startswith(f"{str(path)!r} does not hold a model: ")


def test_the_source_of_an_archive_is_a_graph(tmp_path):
    path = archived(tmp_path)
    resealed(path, {"source.txt": _plan_text().encode()})
    match = "f.magma does not hold a function: source.txt: line 1: the text is that of a plan"
    with pytest.raises(PlanError, match=match):
        mg.load(path)


def test_what_the_caller_gives_stays_his_own_error(tmp_path):
    path = model_file(tmp_path, lambda about: None)
    with pytest.raises(ConfigError, match="no such"):
        mg.NeuralNetwork.load(path, loss="no such")


def test_a_header_has_a_limit(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes((33 << 20).to_bytes(8, "little") + b"[" * (33 << 20))
    said = in_little_memory(tmp_path, 'refused(mg.Model.load, "w.safetensors")')
    assert said.startswith("DataError 'w.safetensors': the header has 34603008 bytes|"), said


def test_a_resume_that_fails_changes_nothing(tmp_path, monkeypatch, rng):
    """A damaged checkpoint is refused before anything is changed; a late failure is undone."""
    x, y = rng.normal(size=(20, 4)).astype("f4"), rng.normal(size=(20, 1)).astype("f4")
    path = tmp_path / "c"

    def net(seed):
        layers = [mg.nn.Input((4,)), mg.nn.Dense(3), mg.nn.Dense(1)]
        return mg.NeuralNetwork(layers, loss="mse", optimizer=mg.optimizer.Adam(), seed=seed)

    class Own(mg.callbacks.Callback):
        def __init__(self):
            self.count = 0

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]
            if self.count < 0:
                raise RuntimeError("no such count")

    def run(one, own, **options):
        made = [mg.callbacks.EarlyStopping("loss"), own, mg.callbacks.Checkpoint(path)]
        return one.fit(x, y, epochs=2, callbacks=made, **options)

    first = net(0)
    run(first, Own())
    tensors, about = files.read(path)

    def damaged(tensors, **changes):
        said = {**{k: v for k, v in about.items() if k not in ("version", "checksum")}, **changes}
        files.write(path, tensors, said)

    def refused(text):
        other, own = net(0), Own()
        other.fit(x, y, epochs=1)
        before = {**other.tensors(), **other.optimizer.state_dict()}
        with pytest.raises(DataError, match=text):
            run(other, own, resume=path)
        after = {**other.tensors(), **other.optimizer.state_dict()}
        assert all(np.array_equal(before[name], after[name]) for name in before)
        assert own.count == 0

    callbacks = [dict(c) for c in about["callbacks"]]
    callbacks[1]["state"] = {"count": -1}
    damaged(tensors, callbacks=callbacks)
    refused("no such count")
    for name in ("optimizer/dense/kernel/m", "total/0", "weight/dense/bias"):
        damaged({k: v for k, v in tensors.items() if k != name})
        refused("lacks")
        damaged({**tensors, name: np.zeros((7, 7), "f4")})
        refused("7, 7|no number")
    damaged({**tensors, "optimizer/unknown": np.zeros(1)})
    refused("has the unknown tensors of the optimizer: unknown")
    damaged(tensors, epoch=7)
    refused("it has epoch 7, and 2 records")
    damaged(tensors, history=[3, 4])
    refused(r"history\[0\] is 3")


def test_optimizers_take_all_of_a_state_or_nothing():
    w = mg.var("w", init=np.ones(3))
    v = mg.var("v", init=np.ones(2))
    rule = mg.optimizer.Adam(0.1)
    rule.step(mg.sum(w * w) + mg.sum(v * v), [w, v])()
    before = rule.state_dict()
    saved = {name: value + 1 for name, value in before.items()}
    saved["v/v"] = np.zeros(5)
    with pytest.raises(mg.ShapeError):
        rule.load_state_dict(saved)
    assert all(np.array_equal(before[name], value) for name, value in rule.state_dict().items())


def test_parts_of_json_have_limits():
    assert parse_json('{"a": [1, 2.5, null]}', "it") == {"a": [1, 2.5, None]}
    for text in ("[" * 101 + "]" * 101, "[" * 10**6, '{"a":' * 101 + "1" + "}" * 101):
        with pytest.raises(Damaged, match="nested deeper than 100 levels"):
            parse_json(text, "it")
    assert parse_json("[" * 100 + "]" * 100, "it")
    with pytest.raises(Damaged, match="is no JSON"):
        parse_json("9" * 5000, "it")


# ------------------------------------------------------------------------------- HDF5, images


def test_hdf5_files_read_themselves_alone(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed (magmagraph[data])")
    (tmp_path / "secret").write_bytes(b"another file's bytes, 32 of them")
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["d"] = np.arange(4)
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("x", (4,), "u8", external=[(str(tmp_path / "secret"), 0, 32)])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "d", (4,))
        file.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "source.h5"), "d")
        file["own"] = np.arange(2)
    for name in ("external", "virtual"):
        for wanted in (None, "x"):
            with pytest.raises(DataError, match="'x' is read from other files"):
                mg.data.read_hdf5(tmp_path / f"{name}.h5", wanted)
    with pytest.raises(DataError, match="has no data set 'x'"):
        mg.data.read_hdf5(tmp_path / "link.h5", "x")
    assert list(mg.data.read_hdf5(tmp_path / "link.h5")) == ["own"]
    with h5py.File(tmp_path / "large.h5", "w") as file:
        file.create_dataset("x", (10**6, 10**6), "f8", chunks=(100, 100), compression="gzip")
    with pytest.raises(DataError, match="'x', unpacked, has 8000000000000 bytes"):
        mg.data.read_hdf5(tmp_path / "large.h5")


def test_reading_hdf5_comes_to_an_end(tmp_path, monkeypatch):
    """Damaged files make the HDF5 library run for ever: the process that reads is ended."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed (magmagraph[data])")
    from magmagraph.data import hdf5

    path = tmp_path / "a.h5"
    values = {"x": np.arange(12.0).reshape(3, 4), "y": np.array(2.5), "z": np.zeros((0, 3))}
    with h5py.File(path, "w") as file:
        for name, value in values.items():
            file[name] = value
        file["big"] = np.arange(3).astype(">i4")
    found = mg.data.read_hdf5(path)
    assert all(np.array_equal(found[name], value) for name, value in values.items())
    assert found["big"].tolist() == [0, 1, 2] and found["x"].flags.writeable
    monkeypatch.setattr(hdf5, "PATIENCE", 0.001)
    with pytest.raises(DataError, match="a.h5 is .*: reading it makes no progress for 0.001 s"):
        mg.data.read_hdf5(path)


def test_images_have_limits(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    folder = tmp_path / "class"
    folder.mkdir()
    image.new("1", (9000, 9000)).save(folder / "large.png")
    assert (folder / "large.png").stat().st_size < 100_000
    with pytest.raises(DataError, match="has 9000 x 9000 pixels, and the limit is 67108864"):
        mg.data.read_images(tmp_path)
    (folder / "large.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )  # pillow would start Ghostscript
    with pytest.raises(DataError, match="is truncated, corrupted, or no image"):
        mg.data.read_images(tmp_path)


def test_an_error_of_storage_is_an_error_of_files():
    assert issubclass(StorageError, OSError) and issubclass(Damaged, ValueError)
