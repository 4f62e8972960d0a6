"""Files for users: replaced whole, flushed, with their permissions, and nothing is left over."""

from __future__ import annotations

import ast
import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import PathError, StorageError
from magmagraph.files import folders
from magmagraph.files.writing import replace_file, write_file

PACKAGE = Path(mg.__file__).parent


@pytest.fixture
def umask():
    """Let a test set the umask, and put the old one back."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_and_then_the_folder_are_flushed_around_the_rename(tmp_path, monkeypatch):
    happened = []

    def fsync(handle):
        happened.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    rename = os.replace

    def replace(old, new):
        happened.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_file(tmp_path / "a", b"content")
    assert happened == ["file", "rename", "folder"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002, 0o277])
def test_a_new_file_has_the_permissions_of_the_umask(mask, tmp_path, umask):
    umask(mask)
    write_file(tmp_path / "a", "new")
    assert mode(tmp_path / "a") == 0o666 & ~mask


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664, 0o444, 0o755])
def test_an_existing_file_keeps_its_permissions(kept, tmp_path, umask):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(kept)
    umask(0o077)
    with replace_file(path) as partial:
        assert mode(partial) & 0o077 == 0  # nobody reads what is not whole
        partial.write_text("new")
    assert path.read_text() == "new" and mode(path) == kept


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, second = tmp_path / "there" / "a", tmp_path / "link", tmp_path / "second"
    target.write_text("old")
    link.symlink_to(Path("there") / "a")
    second.symlink_to(link)
    write_file(second, "new")
    assert link.is_symlink() and second.is_symlink() and target.read_text() == "new"
    target.unlink()
    write_file(second, "made")
    assert target.read_text() == "made" and not target.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "second", "there"]


def test_what_is_no_place_for_a_file_is_refused(tmp_path):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    for path, text in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "a", "there is no folder"),
        (tmp_path / "pipe", "a pipe or a device"),
        (tmp_path / "circle", "a link"),
        (Path("/dev/null"), "a pipe or a device"),
        (Path("/dev/stdout"), "what this process has open"),
        (Path("/proc/self/fd/1"), "what this process has open"),
    ):
        with pytest.raises(PathError, match=text):
            write_file(path, b"")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["circle", "pipe"]


def test_long_and_strange_names_are_written(tmp_path):
    for name in ("a" * 255, "é" * 120, "*?[a].txt", " b", "-"):
        write_file(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"
    assert len(list(tmp_path.iterdir())) == 5


KILLED = """
import os, signal, sys
from magmagraph.files.writing import replace_file
with replace_file(sys.argv[1]) as partial:
    partial.write_text("half")
    print("ready", flush=True)
    signal.pause()
"""


def test_what_killed_writers_leave_is_removed_by_later_ones(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    command = [sys.executable, "-c", KILLED, str(path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        assert len(list(tmp_path.iterdir())) == 4
        for writer in writers[:2]:
            writer.kill()
            writer.wait()
        assert path.read_text() == "old"
        (tmp_path / ".a.part").write_text("another program's")
        write_file(tmp_path / "b", "another file")
        assert len(list(tmp_path.iterdir())) == 6
        write_file(path, "new")
        # The third one is alive: its file stays, and takes its place when it goes on.
        left = [p.name for p in tmp_path.iterdir() if p.name.startswith(".a.")]
        assert len(left) == 2 and ".a.part" in left
        assert path.read_text() == "new"
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()


def test_a_writer_in_the_same_process_is_left_alone(tmp_path):
    path = tmp_path / "a"
    with replace_file(path) as first:
        first.write_text("first")
        with replace_file(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def network() -> mg.NeuralNetwork:
    return mg.NeuralNetwork([mg.nn.Input((2,)), mg.nn.Dense(1)], loss="mse")


def trained(callback) -> None:
    network().fit(np.ones((4, 2), "f4"), np.ones((4, 1), "f4"), callbacks=[callback])


def searched() -> mg.tune.SearchResult:
    return mg.tune.search(lambda trial: trial["x"], {"x": [1, 2]})


def compiled() -> mg.Function:
    x = mg.var("x", shape=(3,))
    return mg.function([x], x * 2.0)


WRITERS = {
    "archive.magma": lambda path: compiled().save(path),
    "model.safetensors": lambda path: network().save(path),
    "weights.safetensors": lambda path: network().save_weights(path),
    "checkpoint": lambda path: trained(mg.callbacks.Checkpoint(path)),
    "log.csv": lambda path: trained(mg.callbacks.CSVLog(path)),
    "table.csv": lambda path: mg.data.write_csv(path, [[1.0, 2.0]]),
    "graph.svg": lambda path: mg.show(compiled()).save(path),
    "graph.html": lambda path: mg.show(compiled()).save(path),
    "trace.json": lambda path: compiled().profile(np.ones(3, "f4")).save(path),
    "search.csv": lambda path: searched().to_csv(path),
    "search.html": lambda path: searched().report(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_of_ours_and_loses_nothing(name, tmp_path, monkeypatch):
    path = tmp_path / name
    WRITERS[name](path)
    before = path.read_bytes()
    path.chmod(0o640)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device") as raised:
        WRITERS[name](path)
    assert raised.value.errno == errno.ENOSPC and name in str(raised.value)
    monkeypatch.undo()
    assert path.read_bytes() == before and mode(path) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == [name]
    WRITERS[name](path)
    assert mode(path) == 0o640


# Places that write otherwise, and why.
APART = {
    "files/writing.py": "the one that all others use",
    "files/folders.py": "gives a lock its name",
    "data/download.py": "pooch's temporary file, which it renames if the checksum is right",
    "tune/journal.py": "lines are appended to it",
    "cli/workflow.py": "records are appended to a file of lines",
    "workflow/program.py": "what a program prints, as it prints it",
    "cli/__init__.py": "the null device",
    "runtime/cache.py": "the cache has folders and rules of its own",
    "files/trust.py": "writes files of the cache",
    "runtime/cpu/compiler.py": "sources for the compiler, in a temporary folder",
    "runtime/cpu/installing.py": "files of an installation, which pip replaces",
}
WRITES = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "savez", "tofile"}


def writes(path: Path) -> list[int]:
    """Return the lines that write a file otherwise than into a new one of `replace_file`."""
    text = path.read_text(encoding="utf-8")
    if not any(word in text for word in (*WRITES, "open", "os.replace")):
        return []
    tree = ast.parse(text)
    given = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "replace_file(" in ast.unparse(item)
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if last not in WRITES | {"open", "replace"}:
            continue
        name = ast.unparse(called)
        owner, _, method = name.rpartition(".")
        words = [a.value for a in [*node.args, *(k.value for k in node.keywords)]
                 if isinstance(a, ast.Constant) and isinstance(a.value, str)]  # fmt: skip
        opened = method == "open" and any(set(w) <= set("wax+bt") and w for w in words)
        if owner not in given and (opened or method in WRITES or name == "os.replace"):
            found.append(node.lineno)
    return found


def test_all_files_for_users_are_written_by_one_function():
    there = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := writes(path))
    }
    assert {path: lines for path, lines in there.items() if path not in APART} == {}


OWNER = """
import signal, sys, tempfile
from magmagraph.files.folders import claim_folder
folder = tempfile.mkdtemp(prefix="magmagraph-", dir=sys.argv[1])
claim_folder(folder)
print(folder, flush=True)
signal.pause()
"""


def test_folders_of_killed_processes_are_removed_by_later_ones(tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    (tmp_path / "magmagraph-old").mkdir()  # without an owner's file: nobody can say whose it is
    owners = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        made = [Path(owner.stdout.readline().strip()) for owner in owners]
        assert all((folder / ".owner").is_file() for folder in made)
        owners[0].kill()
        owners[0].wait()
        own = tmp_path / "magmagraph-own"
        own.mkdir()
        folders._remove_abandoned.cache_clear()
        folders.claim_folder(own)
        folders.release_folder(own)
        assert not made[0].exists() and made[1].exists()
        assert (tmp_path / "magmagraph-old").exists()
    finally:
        for owner in owners:
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            owner.stdout.close()


def test_a_full_disk_ends_the_search_for_a_place_of_the_cache(tmp_path):
    """Where neither the cache nor the temporary folder has room, it is said once."""
    program = textwrap.dedent("""
        import os, resource, sys, tempfile, warnings
        warnings.simplefilter("ignore")
        from magmagraph.errors import StorageError
        from magmagraph.runtime.cache import DiskCache, content_key
        cache = DiskCache(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        for _ in range(3):
            try:
                cache.put(content_key("a"), bytes(1000))
            except StorageError as error:
                print(len(os.listdir(tempfile.gettempdir())), "can be kept nowhere" in str(error))
    """)
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "cache")],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["1 True"] * 3
    assert list((tmp_path / "temporary").iterdir()) == []


SAVES = """
import sys
import numpy as np
import magmagraph as mg
net = mg.NeuralNetwork([mg.nn.Input((64,)), mg.nn.Dense(256)], loss="mse")
x = mg.var("x", shape=(64,))
w = mg.var("w", init=np.zeros((256, 64), "f4"))
function = mg.function([x], w @ x)
function(np.zeros(64, "f4"))
print("ready", flush=True)
number = 0
while True:
    number += 1
    net.set_tensors({k: np.full_like(v, number) for k, v in net.tensors().items()})
    net.save(sys.argv[1])
    w.value = np.full((256, 64), number, "f4")
    function.save(sys.argv[2])
    mg.data.write_csv(sys.argv[3], np.full((500, 8), number))
"""


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_a_kill_at_any_time_leaves_whole_files(kills, tmp_path, rng):
    """Each file is the one before or the one after; nothing is left after the next write."""
    paths = [tmp_path / name for name in ("net.safetensors", "f.magma", "t.csv")]
    found = 0
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVES, *map(str, paths)], stdout=subprocess.PIPE
        )
        assert writer.stdout.readline() == b"ready\n"
        try:
            writer.wait(float(rng.uniform(0.0, 0.25)))
        except subprocess.TimeoutExpired:
            writer.kill()
        writer.wait()
        writer.stdout.close()
        for path, values in (
            (paths[0], lambda path: mg.Model.load(path).tensors()["dense/kernel"]),
            (paths[1], lambda path: mg.load(path).source_graph.variables[0].value),
            (paths[2], lambda path: mg.data.read_csv(path).values),
        ):
            if path.exists():
                assert len(np.unique(values(path))) == 1
        found += sum(p.name.endswith(".part") for p in tmp_path.iterdir())
    for path in paths:
        write_file(path, b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in paths)
    print(f"{kills} kills left {found} files, which later writers removed")
