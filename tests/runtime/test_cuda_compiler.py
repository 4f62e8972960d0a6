"""What is known of the CUDA compiler without loading it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magmagraph.runtime.cuda import compiler


class Compiler:
    """In NVRTC's place: it counts how often it is asked for."""

    NVRTCError = RuntimeError

    def __init__(self) -> None:
        self.asked = 0
        self.compiled: list[str] = []

    def __call__(self) -> Compiler:
        self.asked += 1
        return self

    def getVersion(self) -> tuple[int, int]:
        return 13, 0

    def createProgram(self, source: str, *_: Any) -> str:
        return source

    def compileProgram(self, program: str, options: Any) -> None:
        if "wrong" in program:
            raise RuntimeError
        self.compiled.append(program)

    def getCUBIN(self, program: str) -> bytes:
        return f"cubin of {program}".encode()

    def getProgramLog(self, program: str) -> str:
        return "it is wrong"

    def destroyProgram(self, program: str) -> None:
        pass


@pytest.fixture
def library(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """Have a library that is loaded, CuPy, and an empty cache; return the library's file."""
    file = tmp_path / "libnvrtc.so.13.0.88"
    file.write_bytes(b"a library")
    maps = tmp_path / "maps"
    lines = [
        "7f00-7f10 r-xp 00000000 08:01 1  /usr/lib/libnvrtc-builtins.so.13.0",
        f"7f20-7f30 r--p 00000000 08:01 2                          {file}",
        f"7f30-7f40 r-xp 00000000 08:01 2                          {file}",
    ]
    maps.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(compiler, "_MAPS", str(maps))
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    cupy = SimpleNamespace(__version__="14", __file__="cupy/__init__.py")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    yield file
    compiler._version.cache_clear()


def _process(monkeypatch: Any) -> Compiler:
    """Begin as a new process does, which has loaded nothing."""
    made = Compiler()
    monkeypatch.setattr(compiler, "_nvrtc", made)
    compiler._version.cache_clear()
    return made


def test_kept_kernels_need_no_compiler(library: Path, monkeypatch: Any) -> None:
    first = _process(monkeypatch)
    made = compiler.compile_sources(["one", "two", "one"], "90")
    assert made == [b"cubin of one", b"cubin of two", b"cubin of one"]
    assert sorted(first.compiled) == ["one", "two"]
    second = _process(monkeypatch)
    assert compiler.compile_sources(["one", "two", "one"], "90") == made
    assert compiler.compile_source("two", "90") == made[1]
    assert second.asked == 0
    assert compiler.compile_sources(["one", "three"], "90")[1] == b"cubin of three"
    assert second.compiled == ["three"]


@pytest.mark.parametrize("change", ["file", "gone", "cupy", "path"])
def test_another_library_is_asked_for_its_version(
    change: str, library: Path, monkeypatch: Any
) -> None:
    _process(monkeypatch)
    compiler.compile_source("one", "90")
    assert compiler._library() == (str(library), 9, os.stat(library).st_mtime_ns, "13.0")
    if change == "file":
        library.write_bytes(b"another library")
    elif change == "gone":
        library.unlink()
    elif change == "cupy":
        monkeypatch.setattr(sys.modules["cupy"], "__version__", "15")
    else:
        monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    assert compiler._library() is None
    second = _process(monkeypatch)
    compiler.compile_source("one", "90")
    assert second.asked > 0
    assert second.compiled == []  # it says that it is of the same version


def test_two_loaded_libraries_are_none_that_is_known(library: Path, monkeypatch: Any) -> None:
    with open(compiler._MAPS, "a") as maps:
        maps.write("7f40-7f50 r-xp 00000000 08:01 3  /usr/lib/libnvrtc.so.12\n")
    _process(monkeypatch)
    compiler.compile_source("one", "90")
    assert compiler._library() is None


def test_an_error_of_one_source_comes_to_who_waits(library: Path, monkeypatch: Any) -> None:
    _process(monkeypatch)
    wait = compiler.begin_sources(["right", "wrong"], "90")
    with pytest.raises(RuntimeError, match="it is wrong"):
        wait()


def test_what_is_known_is_loaded_beside(library: Path, monkeypatch: Any) -> None:
    opened: list[str] = []
    monkeypatch.setattr(compiler, "_open", opened.append)
    loaded: list[bool] = []
    monkeypatch.setattr(compiler, "_load", lambda: loaded.append(True))
    monkeypatch.setattr(compiler.threading, "Thread", _Now)
    _process(monkeypatch)
    compiler.load_beside()
    assert (opened, loaded) == ([], [True])
    compiler.compile_source("one", "90")
    compiler.load_beside()
    assert (opened, loaded) == ([str(library)], [True])


class _Now:
    """A thread that runs at once."""

    def __init__(self, target: Any, args: tuple[Any, ...] = ()) -> None:
        self.start = lambda: target(*args)
