"""The disk cache: what it keeps, and what it does when the disk does not."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from magmagraph.errors import CacheWarning, ConfigError
from magmagraph.runtime.cache import (
    Choices,
    DiskCache,
    cache_directory,
    cache_limit,
    content_key,
)


def _values(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "values").rglob("*") if path.is_file())


def test_the_place_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MAGMAGRAPH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / "home" / ".cache" / "magmagraph"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert cache_directory() == tmp_path / "shared" / "magmagraph"
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_the_size_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("MAGMAGRAPH_CACHE_SIZE", raising=False)
    assert cache_limit() == 1 << 30
    monkeypatch.setenv("MAGMAGRAPH_CACHE_SIZE", "5000")
    assert cache_limit() == 5000
    for wrong in ("1GB", "-1", ""):
        monkeypatch.setenv("MAGMAGRAPH_CACHE_SIZE", wrong)
        with pytest.raises(ConfigError, match="whole number of bytes"):
            cache_limit()


def test_what_is_put_is_got_by_another_process(tmp_path):
    key, other = content_key("a"), content_key("b")
    cache = DiskCache(tmp_path)
    assert cache.get(key) is None
    cache.put(key, b"first")
    cache.put(other, b"other")
    cache.put(key, b"second")
    again = DiskCache(tmp_path)
    assert (again.get(key), again.get(other)) == (b"second", b"other")


def test_a_file_has_its_suffix_and_its_checksum_as_name(tmp_path):
    import hashlib

    cache = DiskCache(tmp_path)
    path = cache.put_file(content_key("a"), b"content", ".so")
    assert path.name == hashlib.sha256(b"content").hexdigest() + ".so"
    assert cache.get_file(content_key("a")) == path


@pytest.mark.parametrize("damage", [b"", b"conten", b"CONTENT", b"content and more"])
def test_a_damaged_value_gives_one_warning_and_can_be_replaced(tmp_path, damage):
    key = content_key("a")
    DiskCache(tmp_path).put(key, b"content")
    (path,) = _values(tmp_path)
    path.write_bytes(damage)
    cache = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged") as told:
        assert cache.get(key) is None
        assert cache.get(key) is None
    assert len(told) == 1
    cache.put(key, b"content")
    assert DiskCache(tmp_path).get(key) == b"content"


@pytest.mark.parametrize("damage", [b"", b"\xff" * 64, b"0" * 63, b"0" * 64 + b"/../../x"])
def test_a_damaged_key_gives_one_warning_and_can_be_replaced(tmp_path, damage):
    key = content_key("a")
    DiskCache(tmp_path).put(key, b"content")
    (tmp_path / "keys" / key[:2] / key).write_bytes(damage)
    cache = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.get(key) is None
    cache.put(key, b"content")
    assert cache.get(key) == b"content"


def test_a_value_that_was_evicted_is_missing_without_a_warning(tmp_path):
    key = content_key("a")
    cache = DiskCache(tmp_path)
    cache.put_file(key, b"content").unlink()
    assert cache.get(key) is None


def test_a_folder_that_cannot_be_written_gives_one_warning_and_a_private_one(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache")
    assert cache.get(content_key("a")) is None
    with pytest.warns(CacheWarning, match="MAGMAGRAPH_CACHE_DIR") as told:
        cache.put(content_key("a"), b"content")
        cache.put(content_key("b"), b"more")
    assert len(told) == 1
    assert cache.get(content_key("a")) == b"content"
    assert cache.get(content_key("b")) == b"more"


def test_the_values_used_longest_ago_are_removed(tmp_path):
    limit = 10_000
    cache = DiskCache(tmp_path, limit)
    keys = [content_key(str(i)) for i in range(30)]
    for age, key in enumerate(keys):
        path = cache.put_file(key, bytes([age]) * 1000)
        os.utime(path, (1000.0 + age, 1000.0 + age))
    assert sum(path.stat().st_size for path in _values(tmp_path)) <= limit
    kept = [cache.get(key) is not None for key in keys]
    assert kept == sorted(kept), "only the oldest may go"
    assert 5 <= sum(kept) <= 10


def test_use_keeps_a_value_young(tmp_path):
    cache = DiskCache(tmp_path, 10_000)
    keys = [content_key(str(i)) for i in range(9)]
    for age, key in enumerate(keys):
        path = cache.put_file(key, bytes([age]) * 1000)
        os.utime(path, (1000.0 + age, 1000.0 + age))
    assert cache.get(keys[0]) is not None
    for extra in range(3):
        cache.put(content_key("extra", str(extra)), bytes([100 + extra]) * 1000)
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None


def test_a_value_above_the_limit_is_still_there_for_its_caller(tmp_path):
    path = DiskCache(tmp_path, 10).put_file(content_key("a"), b"x" * 1000)
    assert path.read_bytes() == b"x" * 1000


def test_files_of_writers_that_were_killed_are_removed(tmp_path):
    folder = tmp_path / "values" / "ab"
    folder.mkdir(parents=True)
    old, new = folder / ".x.1.2.3.tmp", folder / ".y.1.2.3.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1000.0, 1000.0))
    DiskCache(tmp_path).put(content_key("a"), b"content")
    assert not old.exists()
    assert new.exists()


def test_choices_survive_and_those_of_two_writers_do_not_meet(tmp_path):
    first, second = Choices(tmp_path), Choices(tmp_path)
    first.set("a", "gemv")
    second.set("b", {"tile": [16, 4]})
    first.set("c", 3)
    again = Choices(tmp_path)
    assert [again.get(key) for key in "abcd"] == ["gemv", {"tile": [16, 4]}, 3, None]
    assert Choices(tmp_path).items() == {"a": "gemv", "b": {"tile": [16, 4]}, "c": 3}


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"key": "a"}', b"\xff\xfe"])
def test_a_damaged_choice_gives_a_warning_and_is_made_anew(tmp_path, damage):
    Choices(tmp_path).set("a", 1)
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(damage)
    choices = Choices(tmp_path)
    with pytest.warns(CacheWarning, match="damaged"):
        assert choices.get("a") is None
    choices.set("a", 2)
    assert Choices(tmp_path).get("a") == 2


def test_choices_that_cannot_be_written_are_known_in_this_process(tmp_path):
    (tmp_path / "file").write_text("in the way")
    choices = Choices(tmp_path / "file" / "choices")
    with pytest.warns(CacheWarning, match="cannot be used") as told:
        choices.set("a", 1)
        choices.set("b", 2)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choices.items() == {"a": 1, "b": 2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_private_folder_is_its_makers_to_remove():
    """A forked child that ends as a program does leaves what its parent still uses."""
    code = (
        "import os, sys\n"
        "from magmagraph.runtime.cache import private_directory\n"
        "made = private_directory()\n"
        "child = os.fork()\n"
        "if not child: sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(made, made.is_dir())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder, _, there = done.stdout.strip().rpartition(" ")
    assert there == "True"
    assert not Path(folder).exists()  # and its maker has ended
