"""What another user writes is not run: folders, files, links, pipes, and damage of every bit."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magmagraph.errors import CacheWarning, CompilerUnavailable, ConfigError, StorageError
from magmagraph.files import trust
from magmagraph.files.trust import Untrusted
from magmagraph.runtime import cache as disk
from magmagraph.runtime.cache import Choices, DiskCache, content_key
from magmagraph.runtime.cpu import compilers, installed
from magmagraph.runtime.locks import Lock

STRANGER = 65534  # a user who is neither this one nor root
KEY = content_key("a kernel")

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make files that belong to another user"
)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test warnings of its own, and checks of its own."""
    monkeypatch.setattr(disk, "_unusable", set())
    trust._resolved.cache_clear()
    yield
    trust._resolved.cache_clear()


def give_away(folder: Path, mode: int) -> None:
    """Let another user own a folder with all that is in it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    folder.chmod(mode)


# Who owns a folder, and its mode.
def other_0755(folder: Path) -> None:
    give_away(folder, 0o755)


def other_0777(folder: Path) -> None:
    give_away(folder, 0o777)


def shared_1777(folder: Path) -> None:
    folder.chmod(0o1777)


def own_0777(folder: Path) -> None:
    folder.chmod(0o777)


def own_0770(folder: Path) -> None:
    folder.chmod(0o770)


def above_0777(folder: Path) -> None:
    folder.parent.chmod(0o777)


def above_other(folder: Path) -> None:
    os.chown(folder.parent, STRANGER, STRANGER)


def link_of_other(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    os.chown(folder, STRANGER, STRANGER, follow_symlinks=False)


def below_0777(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o777)


def below_other(folder: Path) -> None:
    for path in folder.iterdir():
        os.chown(path, STRANGER, STRANGER)


ROOTS = [other_0755, other_0777, above_other, link_of_other]
OWN = [shared_1777, own_0777, own_0770, above_0777]
SETUPS = [pytest.param(setup, marks=as_root) for setup in ROOTS] + OWN
BELOW = [pytest.param(below_other, marks=as_root), below_0777]


@pytest.mark.parametrize("setup", SETUPS + BELOW)
def test_a_folder_that_others_can_change_gives_one_warning_and_a_private_one(
    tmp_path: Path, setup: Callable[[Path], None]
) -> None:
    folder = tmp_path / "above" / "cache"
    DiskCache(folder).put(KEY, b"what the stranger wrote")
    before = sorted(path for path in folder.rglob("*"))
    setup(folder)
    trust._resolved.cache_clear()
    cache = DiskCache(folder)
    with pytest.warns(CacheWarning, match="cannot be used") as warned:
        assert cache.get(KEY) is None
        cache.put(KEY, b"own")
    assert len(warned) == 1
    assert "this user or root owns" in str(warned[0].message)
    assert cache.get(KEY) == b"own"
    assert sorted(path for path in folder.rglob("*")) == before
    assert b"own" not in [path.read_bytes() for path in before if path.is_file()]


@pytest.mark.parametrize("setup", SETUPS)
def test_choices_in_a_folder_that_others_can_change_are_not_taken(
    tmp_path: Path, setup: Callable[[Path], None]
) -> None:
    folder = tmp_path / "above" / "cache"
    Choices(folder).set("compiler", "another one")
    setup(folder)
    trust._resolved.cache_clear()
    choices = Choices(folder)
    with pytest.warns(CacheWarning, match="cannot be used") as warned:
        assert choices.get("compiler") is None
        assert choices.items() == {}
        choices.set("compiler", "own")
    assert len(warned) == 1
    assert choices.get("compiler") == "own"


def test_what_is_made_is_for_this_user_alone_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "new" / "cache"))
    for umask in (0o000, 0o002, 0o777):
        before = os.umask(umask)
        try:
            cache, lock = DiskCache(), Lock(tmp_path / "new" / "cache" / "locks" / "one")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if umask != 0o777:  # which takes the right to read from this user, too
                    cache.put(KEY, b"content")
                    assert cache.get(KEY) == b"content"
                    Choices().set("a", umask)
                    assert lock.take()
        finally:
            os.umask(before)
        made = list((tmp_path / "new").rglob("*"))
        assert len(made) >= 8
        for path in (tmp_path / "new", *made):
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path
        lock.release()


def in_key(folder: Path) -> Path:
    return folder / "keys" / KEY[:2] / KEY


def in_value(folder: Path) -> Path:
    (path,) = (path for path in (folder / "values").rglob("*") if path.is_file())
    return path


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def as_writable(path: Path) -> None:
    path.chmod(0o602)


def as_of_other(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


FILES = [as_link, as_pipe, as_writable, pytest.param(as_of_other, marks=as_root)]


@pytest.mark.parametrize("place", [in_key, in_value])
@pytest.mark.parametrize("change", FILES)
def test_a_file_that_is_not_of_this_user_is_damage(
    tmp_path: Path, change: Callable[[Path], None], place: Callable[[Path], Path]
) -> None:
    """In a process of its own, which a pipe may not stop."""
    DiskCache(tmp_path).put(KEY, b"content")
    change(place(tmp_path))
    program = (
        "import sys, warnings\n"
        "from magmagraph.runtime.cache import DiskCache\n"
        "cache = DiskCache(sys.argv[1])\n"
        "with warnings.catch_warnings(record=True) as warned:\n"
        "    warnings.simplefilter('always')\n"
        "    print(cache.get(sys.argv[2]), cache.get(sys.argv[2]))\n"
        "    cache.put(sys.argv[2], b'content')\n"
        "    print(cache.get(sys.argv[2]))\n"
        "    print(len(warned), ' is damaged: ' in str(warned[0].message))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), KEY],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "None None\nb'content'\n1 True\n", done.stderr


@pytest.mark.parametrize("change", FILES)
def test_a_choice_that_is_not_of_this_user_is_damage(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    Choices(tmp_path).set("a", 1)
    (path,) = tmp_path.glob("*.json")
    change(path)
    choices = Choices(tmp_path)
    with pytest.warns(CacheWarning, match="is damaged: ") as warned:
        assert choices.get("a") is None
        assert choices.items() == {}
    assert len(warned) == 1
    choices.set("a", 2)
    assert Choices(tmp_path).get("a") == 2


@pytest.mark.parametrize("tail", [b"\0", b"\n", b".so\0", b".so/../x", b".SO", b"so", b"\xc3\xa9"])
def test_a_key_with_more_than_a_name_is_damaged(tmp_path: Path, tail: bytes) -> None:
    DiskCache(tmp_path).put(KEY, b"content")
    path = in_key(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    cache = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged: it names no value"):
        assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"


def test_every_flipped_bit_of_a_choice_is_noticed(tmp_path: Path) -> None:
    """Each gives no choice and a warning, or the choice: never another one, and never an error."""
    choice = {"version": "gcc 12.2.0", "flags": ["-fPIC", "-shared"]}
    Choices(tmp_path).set("compiler", choice)
    (path,) = tmp_path.glob("*.json")
    text = path.read_bytes()
    for bit in range(8 * len(text)):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        choices = Choices(tmp_path)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            taken = choices.get("compiler")
            assert taken in (None, choice), changed
            assert (taken is None) == (len(warned) == 1), changed
            assert choices.items() in ({}, {"compiler": choice}), changed


def test_a_choice_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    Choices(tmp_path).set("a", 1)
    (first,) = tmp_path.glob("*.json")
    Choices(tmp_path).set("b", 2)
    (second,) = (path for path in tmp_path.glob("*.json") if path != first)
    first.write_bytes(second.read_bytes())
    with pytest.warns(CacheWarning, match="checksum"):
        assert Choices(tmp_path).get("a") is None


def test_a_choice_comes_back_as_json_has_it(tmp_path: Path) -> None:
    """The digest is of what is read: JSON has no tuples, and no numbers as keys."""
    Choices(tmp_path).set("a", {2: (1, 2.5), 10: None})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Choices(tmp_path).get("a") == {"2": [1, 2.5], "10": None}


@pytest.mark.parametrize(
    "kept", [{"version": "gcc"}, {"version": 1, "flags": []}, {"version": "gcc", "flags": 3},
             {"version": "gcc", "flags": [1]}, {"version": "gcc", "flags": "-O2"}, [], "gcc"],
)  # fmt: skip
def test_a_compiler_of_another_form_is_asked_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: object
) -> None:
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(installed, "compiler", lambda key: None)
    disk.default_choices().set("the key", kept)
    assert compilers._kept(("cc",), "the key") is None


# ---- Locks


def test_a_link_or_a_pipe_in_place_of_a_lock_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir(0o700)
    (tmp_path / "locks" / "link").symlink_to(tmp_path / "made by the link")
    os.mkfifo(tmp_path / "locks" / "pipe", 0o600)
    for name in ("link", "pipe"):
        lock = Lock(tmp_path / "locks" / name)
        assert lock.take()  # nobody is kept from the work
        lock.release()
    assert not (tmp_path / "made by the link").exists()


def test_a_folder_of_locks_that_is_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(0o700)
    (tmp_path / "open").mkdir(0o700)
    (tmp_path / "open" / "locks").symlink_to(tmp_path / "target")
    (tmp_path / "open").chmod(0o777)
    lock = Lock(tmp_path / "open" / "locks" / "one")
    assert lock.take()
    assert not list((tmp_path / "target").iterdir())
    lock.release()


# ---- Whole programs


LIBRARY = "int number(void) {{ return {number}; }}\n"
PROGRAM = """
from magmagraph.runtime.cpu.compiler import compile_library
print(compile_library("int number(void) { return 1; }\\n").number())
"""


@as_root
@pytest.mark.parametrize("setup", [other_0755, other_0777, shared_1777, own_0777])
def test_a_library_of_another_user_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setup: Callable[[Path], None]
) -> None:
    try:
        compilers.find_compiler()
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    folder = tmp_path / "cache"
    environment = {**os.environ, "MAGMAGRAPH_CACHE_DIR": str(folder)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "always", "-c", PROGRAM],
            capture_output=True, text=True, timeout=120, check=False, env=environment,
        )  # fmt: skip

    assert run().stdout == "1\n"
    (pointer,) = (path for path in (folder / "keys").rglob("*") if path.is_file())
    source = tmp_path / "evil.c"
    source.write_text(LIBRARY.format(number=666))
    compiler = compilers.find_compiler()
    subprocess.run(
        [*compiler.command, "-shared", "-fPIC", "-o", str(tmp_path / "evil.so"), str(source)],
        check=True,
    )
    DiskCache(folder).put_file(pointer.name, (tmp_path / "evil.so").read_bytes(), ".so")
    assert run().stdout == "666\n"  # the attack works where the folder is trusted
    setup(folder)
    done = run()
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert done.stderr.count("CacheWarning: the cache folder") == 1


def test_a_user_without_a_home_folder_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", "XDG_CACHE_HOME", "MAGMAGRAPH_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    disk._folder_without_home.cache_clear()
    with pytest.warns(CacheWarning, match="has no home folder") as warned:
        folder = disk.cache_directory()
        assert disk.cache_directory() == folder
        DiskCache().put(KEY, b"content")
        assert DiskCache().get(KEY) == b"content"
    assert len(warned) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    disk._folder_without_home.cache_clear()
    for home in ("", "/", "no/absolute/path"):
        monkeypatch.setenv("HOME", home)
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for other users than root
        assert trust.home_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # to be ignored, says the standard
    assert trust.home_cache() is None
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", "~no-such-user-here/cache")
    with pytest.raises(ConfigError, match="cache folder is set to '~no-such-user-here/cache'"):
        disk.cache_directory()


def test_temporary_files_are_made_where_others_cannot_replace_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(open_to_all))
    assert trust.temporary_place() == str(open_to_all)
    open_to_all.chmod(0o1777)
    trust._resolved.cache_clear()
    assert trust.temporary_place() == str(open_to_all)
    open_to_all.chmod(0o777)  # no sticky bit: whoever comes can rename what is in it
    trust._resolved.cache_clear()
    assert trust.temporary_place() != str(open_to_all)


def test_without_any_safe_folder_reading_gives_nothing_and_writing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere() -> str:
        raise Untrusted("/tmp", "can be changed by other users")

    monkeypatch.setattr(trust, "temporary_place", nowhere)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    cache = DiskCache(tmp_path / "cache")
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert cache.get(KEY) is None
    with pytest.raises(StorageError, match="/tmp can be changed by other users"):
        cache.put(KEY, b"content")


@as_root
@pytest.mark.parametrize("name", ["index.json", "a.so"])
@pytest.mark.parametrize("change", [as_writable, as_of_other, as_pipe])
def test_an_installed_file_that_another_user_can_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    import hashlib

    (tmp_path / "a.so").write_bytes(b"content")
    entry = {"file": "a.so", "sha256": hashlib.sha256(b"content").hexdigest()}
    index = {
        "probe": "p", "compiler": {"command": ["cc"], "version": "1", "flags": []},
        "machine": "m", "libraries": {"k": entry},
    }  # fmt: skip
    (tmp_path / "index.json").write_text(json.dumps(index))
    monkeypatch.setattr(installed, "_folders", lambda: [tmp_path])
    monkeypatch.setenv("MAGMAGRAPH_INSTALLED", "1")
    installed._found.cache_clear()
    installed._tell_damaged.cache_clear()
    try:
        assert installed.library("k") == tmp_path / "a.so"
        installed._found.cache_clear()
        change(tmp_path / name)
        with pytest.warns(CacheWarning, match="cannot be used: "):
            assert installed.library("k") is None
    finally:
        installed._found.cache_clear()
        installed._tell_damaged.cache_clear()


# ---- What may be used


def test_a_private_folder_in_a_shared_one_and_links_of_ones_own_are_fine(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "mine").mkdir(0o700)
    (tmp_path / "link").symlink_to("tmp/../tmp/mine")
    trust.check_folder(tmp_path / "link")
    (shared / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="[Ll]evels of symbolic links"):
        trust.check_folder(shared / "loop")
    with pytest.raises(FileNotFoundError):
        trust.check_folder(shared / "nothing")
    with pytest.raises(Untrusted, match="can be written by other users"):
        trust.check_folder(shared)


def test_a_group_of_this_user_alone_may_write_above(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Systems with a group for each user make folders that this group can write."""
    above = tmp_path / "above"
    (above / "cache").mkdir(parents=True, mode=0o700)
    above.chmod(0o775)
    (above / "cache").chmod(0o700)
    monkeypatch.setattr(trust, "_is_private_group", lambda number: True)
    trust.check_folder(above / "cache")
    trust._resolved.cache_clear()
    monkeypatch.setattr(trust, "_is_private_group", lambda number: False)
    with pytest.raises(Untrusted, match="can be changed by other users"):
        trust.check_folder(above / "cache")
