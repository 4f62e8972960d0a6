"""Functions as files: what comes back, and what is refused."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import FallbackWarning, PlanError
from magmagraph.function.archive import seal
from magmagraph.runtime.families import FAMILIES
from magmagraph.text.reading import load as load_text
from magmagraph.text.writing import dump


def training_step(seed: int = 0) -> tuple[mg.Function, tuple[Any, ...]]:
    """Return a function with all that an archive holds, and feeds."""
    rng = np.random.default_rng(seed)
    mg.random.seed(seed)
    x = mg.var("x", shape=("batch", 6))
    labels = mg.var("labels", shape=("batch",), dtype="int64")
    w = mg.var("W", init=rng.normal(size=(6, 4)).astype(np.float32))
    half = mg.var("half", init=np.arange(4.0), dtype="bfloat16")
    table = mg.constant(rng.normal(size=(6, 4)).astype(np.float32))
    logits = x @ (w + table) + mg.cast(half, "float32")
    loss = mg.cross_entropy(logits, labels)
    noise = mg.random.uniform((3,))
    outputs = {"loss": loss, "rest": [noise, (mg.argmax(logits, axis=1), {1: logits})]}
    updates = {w: w - 0.1 * mg.grad(loss, w), half: half * 0.5}
    function = mg.function([x, labels], outputs, updates, name="step", skip=("contract",))
    feeds = (rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 4, 5))
    return function, feeds


@pytest.fixture
def saved(tmp_path: Path) -> tuple[mg.Function, tuple[Any, ...], Path]:
    """Return a function that was called and saved, feeds for it, and the file."""
    function, feeds = training_step()
    function(*feeds)
    path = tmp_path / "step.magma"
    function.save(path)
    return function, feeds, path


def same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        left, right = list(left.values()), list(right.values())
    if isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(left, right)


def test_a_loaded_function_goes_on_as_the_saved_one(saved: Any) -> None:
    function, feeds, path = saved
    loaded = mg.load(path)
    assert loaded.name == "step"
    assert [node.name for node in loaded.inputs] == ["x", "labels"]
    assert repr(loaded.inputs[0].shape) == "(batch, 6)"
    for _ in range(3):
        same(function(*feeds), loaded(x=feeds[0], labels=feeds[1]))
    old, new = function.source_graph.variables, loaded.source_graph.variables
    assert [node.name for node in old] == [node.name for node in new]
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a.attrs["state"].data, b.attrs["state"].data)
        assert a.attrs["state"] is not b.attrs["state"]
    assert [entry.name for entry in loaded.report if entry.skipped] == ["contract"]
    assert dump(loaded.graph) == dump(function.graph)
    assert dump(loaded.plan) == dump(function.plan)


def test_saving_keeps_the_function_as_it_is(saved: Any) -> None:
    function, feeds, path = saved
    twin, _ = training_step()
    same(twin(*feeds), training_step()[0](*feeds))
    assert function.source_graph.variables[0].attrs["state"].version == 1
    again = path.with_name("again.magma")
    function.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_an_archive_is_text_and_plain_arrays(saved: Any) -> None:
    function, _, path = saved
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members["plan.txt"].decode()
    plan = load_text(text, data=_data(members), families=FAMILIES)
    assert dump(plan) == dump(function.plan)
    assert json.loads(members["settings.json"])["name"] == "step"
    arrays = [name for name in members if name.endswith(".npy")]
    assert len(arrays) == 4  # W, half, the step of random numbers, the table
    for name in arrays:
        path.with_name("one.npy").write_bytes(members[name])
        np.load(path.with_name("one.npy"), allow_pickle=False)


def _data(members: dict[str, bytes]) -> dict[str, np.ndarray]:
    from io import BytesIO

    return {
        "@" + Path(name).stem: np.load(BytesIO(content))
        for name, content in members.items()
        if name.startswith("constants/")
    }


def test_no_outputs_and_single_outputs_come_back(tmp_path: Path) -> None:
    s = mg.var("s", init=1.0)
    for outputs, expected in ((None, None), ([], []), (s * 2.0, np.float32(4.0))):
        function = mg.function([], outputs, {s: s + 1.0})
        function.save(tmp_path / "f")
        loaded = mg.load(tmp_path / "f")
        s.value = 2.0
        loaded.source_graph.variables[0].value = 2.0
        result = loaded()
        assert result == expected
        assert loaded.source_graph.variables[0].value == 3.0


def test_a_region_of_several_results_and_no_operands_comes_back(tmp_path: Path) -> None:
    places = mg.arange(5)
    made = mg.function([], [mg.sqrt(places + 1.0), mg.exp(-places * 0.5)])
    assert any(isinstance(node.type, tuple) and not node.inputs for node in made.graph.nodes)
    made.save(tmp_path / "places.magma")
    same(mg.load(tmp_path / "places.magma")(), made())


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    function, _ = training_step()
    path = tmp_path / "f.magma"
    path.write_bytes(b"old")

    def fail(*args: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(sys.modules["magmagraph.function.archive"], "_write", fail)
    with pytest.raises(OSError, match="disk full"):
        function.save(path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["f.magma"]


# ---------------------------------------------------------------------- refusals


def test_truncated_files_are_refused_at_every_length(saved: Any) -> None:
    _, _, path = saved
    whole = path.read_bytes()
    for length in [0, 1, 10, *range(50, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(PlanError, match=r"^step\.magma is not a whole archive of magmagraph: "):
            mg.load(path)


def test_any_changed_byte_is_noticed(saved: Any, rng: np.random.Generator) -> None:
    """Also those that hold nothing, such as the zip's time stamps."""
    _, _, path = saved
    whole = path.read_bytes()
    stamps = [zipfile.ZipFile(path).infolist()[1].header_offset + at for at in range(10, 14)]
    for at in [0, *stamps, *rng.integers(0, len(whole), 60), len(whole) - 1]:
        changed = bytearray(whole)
        changed[at] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        with pytest.raises(PlanError, match=r"^step\.magma is not a whole archive of magmagraph: "):
            mg.load(path)


def test_an_archive_of_before_checksums_of_files_is_read(saved: Any) -> None:
    function, feeds, path = saved
    rewritten(path, _manifest("sealed", False), sealed=False)
    same(function(*feeds), mg.load(path)(*feeds))


def rewritten(
    path: Path, change: Callable[[dict[str, bytes]], None], *, sealed: bool = True
) -> None:
    """Write an archive again with its members changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = b"0" * 64 if sealed else b""
    if sealed:
        seal(path)


def _manifest(key: str, value: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        manifest[key] = value
        members["manifest.json"] = json.dumps(manifest).encode()

    return change


REFUSED: list[tuple[Callable[[dict[str, bytes]], None], str]] = [
    (
        _manifest("format", 99),
        f"step.magma has the format 99 of magmagraph {mg.__version__}\n"
        f"  expected: format 1, which magmagraph {mg.__version__} reads\n"
        "  try: load it with the version that saved it",
    ),
    (
        lambda members: members.update({"source.txt": b"return"}),
        "step.magma is damaged: the checksum of 'source.txt' is wrong\n"
        "  try: save the function again",
    ),
    (
        lambda members: (members.pop("settings.json"), None)[1],
        "step.magma lacks member 'settings.json'\n  try: save it again",
    ),
    (
        lambda members: members.update({"more": b""}),
        "step.magma has an unknown member 'more'\n  try: save it again",
    ),
    (
        lambda members: (members.pop("manifest.json"), None)[1],
        "step.magma is not a whole archive of magmagraph: it lacks 'manifest.json'\n"
        "  expected: a file that f.save(path) wrote\n"
        "  try: save the function again; the file is truncated or damaged",
    ),
]


@pytest.mark.parametrize(("change", "expected"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_no_archive_is_refused(saved: Any, change: Any, expected: str) -> None:
    path = saved[2]
    rewritten(path, change)
    with pytest.raises(PlanError) as raised:
        mg.load(path)
    assert str(raised.value) == expected


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(PlanError) as raised:
        mg.load(path)
    assert str(raised.value) == (
        "notes.txt is not a whole archive of magmagraph: File is not a zip file\n"
        "  expected: a file that f.save(path) wrote\n"
        "  try: save the function again; the file is truncated or damaged"
    )
    net = mg.NeuralNetwork([mg.nn.Input((2,)), mg.nn.Dense(1)], loss="mse")
    net.save(tmp_path / "net.safetensors")
    with pytest.raises(PlanError, match=r"try: mg\.NeuralNetwork\.load\(path\)"):
        mg.load(tmp_path / "net.safetensors")


def test_a_file_that_is_not_there_or_no_file_is_told(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(FileNotFoundError) as raised:
        mg.load(absent)
    assert isinstance(raised.value, mg.DataError)  # as of the files of networks
    assert str(raised.value) == (
        f"there is no file {str(absent)!r}\n  expected: a file that f.save(path) wrote"
    )
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        mg.load(tmp_path)


def test_a_file_of_another_version_says_so_in_one_line(saved: Any) -> None:
    function, feeds, path = saved
    rewritten(path, _manifest("version", "0.0.1"))
    with pytest.warns(FallbackWarning) as caught:
        loaded = mg.load(path)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.startswith("step.magma was saved by magmagraph 0.0.1 on ")
    assert text.endswith(": it is compiled again for this machine")
    assert "\n" not in text
    same(function(*feeds), loaded(*feeds))


def test_a_file_of_another_chip_says_so_in_one_line(saved: Any) -> None:
    function, feeds, path = saved
    rewritten(path, _manifest("chip", "A chip of old"))
    with pytest.warns(FallbackWarning) as caught:
        loaded = mg.load(path)
    (text,) = (str(warning.message) for warning in caught)
    assert text.startswith("step.magma was saved on A chip of old: it is compiled again for ")
    assert text.endswith(function._chip()) and "\n" not in text
    same(function(*feeds), loaded(*feeds))


def test_passes_of_one_s_own_cannot_be_saved(tmp_path: Path) -> None:
    x = mg.var("x", shape=(3,))
    function = mg.function([x], x * 2.0, passes=mg.passes.default())
    with pytest.raises(PlanError) as raised:
        function.save(tmp_path / "f")
    assert str(raised.value) == (
        "a function with passes= of its own cannot be saved: they are code\n"
        "  try: save one that is made with skip= or without, or save dump(f.graph)"
    )
    assert list(tmp_path.iterdir()) == []
