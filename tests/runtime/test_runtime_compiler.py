"""The C compiler: found or not, cached, shared between processes, and never trusted blindly."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from magmagraph.errors import CacheWarning, CompilerUnavailable
from magmagraph.runtime.cpu import compiler, compilers, toolchain
from magmagraph.runtime.cpu.compiler import compile_libraries, compile_library, start_libraries
from magmagraph.runtime.cpu.compilers import find_compiler

SOURCE = "int answer(void) { return 6 * 7; }\n"


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Give an empty cache and forget what this process has found and loaded."""
    try:
        find_compiler()
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    _forget(monkeypatch)
    monkeypatch.setattr(compiler, "_started", {})  # what other tests wait for goes on
    yield tmp_path / "cache"
    compiler._abandon()
    compilers._find.cache_clear()


def _forget(monkeypatch):
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr("magmagraph.runtime.cache._opened", {})
    compilers._find.cache_clear()


def _libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))


def test_a_library_is_compiled_once(fresh):
    library = compile_library(SOURCE)
    assert library.answer() == 42
    assert compile_library(SOURCE) is library
    assert len(_libraries(fresh)) == 1


def test_a_warm_start_runs_no_process(fresh, monkeypatch):
    compile_library(SOURCE)
    _forget(monkeypatch)

    def refuse(*arguments, **options):
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(compiler.subprocess, "Popen", refuse)
    monkeypatch.setattr(compiler.subprocess, "run", refuse)
    assert compile_library(SOURCE).answer() == 42


def test_source_and_level_tell_libraries_apart(fresh):
    compile_library(SOURCE, "1")
    compile_library(SOURCE, "3")
    compile_library(SOURCE.replace("7", "8"), "1")
    assert len(list((fresh / "keys").rglob("*/*"))) == 3


def test_several_sources_come_back_in_order(fresh):
    sources = [f"int number(void) {{ return {i}; }}" for i in range(7)]
    libraries = compile_libraries([*sources, sources[2]])
    assert [library.number() for library in libraries] == [0, 1, 2, 3, 4, 5, 6, 2]


def test_what_was_begun_is_waited_for_and_not_compiled_again(fresh, monkeypatch):
    start_libraries([SOURCE], ["1"])
    start_libraries([SOURCE], ["1"])  # the same once more: nothing new
    (begun,) = compiler._started.values()
    assert not _libraries(fresh)
    monkeypatch.setattr(compiler, "_build", None)
    assert compile_library(SOURCE, "1").answer() == 42
    assert not compiler._started
    assert not Path(begun.folder).exists()
    assert begun.process.returncode == 0
    start_libraries([SOURCE], ["1"])
    assert not compiler._started  # it is there


def test_runs_begin_before_the_compiler_has_said_what_it_is(fresh, monkeypatch):
    original = compilers._answer
    monkeypatch.setattr(compilers, "_answer", None)
    start_libraries([SOURCE])
    (begun,) = compiler._started.values()
    monkeypatch.setattr(compilers, "_answer", original)
    monkeypatch.setattr(compiler, "_build", None)
    assert compile_library(SOURCE).answer() == 42
    assert not compilers._asked
    assert begun.process.returncode == 0


def test_a_compiler_that_is_ended_leaves_nothing(fresh, monkeypatch, tmp_path):
    places = []
    original = compiler.subprocess.Popen

    def watch(arguments, **options):
        places.append(options["env"].get("TMPDIR"))
        return original(arguments, **options)

    find_compiler()
    monkeypatch.setattr(compiler.subprocess, "Popen", watch)
    start_libraries([SOURCE])
    (begun,) = compiler._started.values()
    assert places == [begun.folder]
    compiler._abandon()


def test_what_was_begun_in_vain_is_compiled_by_who_needs_it(fresh):
    start_libraries([SOURCE])
    (begun,) = compiler._started.values()
    begun.end()
    assert compile_library(SOURCE).answer() == 42
    start_libraries(["this is no C"])
    with pytest.raises(CompilerUnavailable, match="ends with code 1"):
        compile_library("this is no C")


def test_what_nobody_waits_for_ends_with_the_process(fresh):
    start_libraries([SOURCE])
    (begun,) = compiler._started.values()
    compiler._abandon()
    assert not compiler._started
    assert not Path(begun.folder).exists()
    assert begun.process.returncode is not None


def test_a_forked_child_does_not_wait_for_its_parents_runs(fresh):
    start_libraries([SOURCE])
    child = os.fork()
    if not child:
        os._exit(0 if not compiler._started and compile_library(SOURCE).answer() == 42 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert compile_library(SOURCE).answer() == 42


def test_a_compiler_that_is_not_there(fresh, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_CC", "/nonexistent/cc")
    with pytest.raises(CompilerUnavailable) as caught:
        compile_library(SOURCE)
    assert str(caught.value) == (
        "MAGMAGRAPH_CC names '/nonexistent/cc', which is no program here\n"
        "  expected: a C compiler that builds shared libraries (gcc or clang)\n"
        "  try: install one (Debian: apt install gcc; conda: conda install gcc), or name it in "
        "MAGMAGRAPH_CC"
    )


def test_a_command_that_cannot_be_read(fresh, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_CC", "gcc -DNAME='a")
    with pytest.raises(CompilerUnavailable) as caught:
        compile_library(SOURCE)
    assert str(caught.value).startswith(
        """MAGMAGRAPH_CC is "gcc -DNAME='a": No closing quotation\n  expected: a C compiler"""
    )


def test_no_compiler_on_the_path(fresh, monkeypatch, tmp_path):
    monkeypatch.delenv("MAGMAGRAPH_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerUnavailable, match="none of cc, gcc and clang is on the PATH"):
        compile_library(SOURCE)


def test_a_program_that_is_no_compiler(fresh, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_CC", sys.executable)
    with pytest.raises(CompilerUnavailable, match="is no C compiler that can be used"):
        compile_library(SOURCE)


def test_arguments_may_stand_beside_the_compiler(fresh, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_CC", find_compiler().command[0] + " -DVALUE=17")
    assert compile_library("int value(void) { return VALUE; }").value() == 17


def test_clang_serves_as_well(fresh, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_CC", "clang")
    try:
        found = find_compiler()
    except CompilerUnavailable:
        pytest.skip("clang is not installed")
    assert found.version.startswith("clang")
    assert compile_library(SOURCE).answer() == 42


def test_a_refused_source_says_why(fresh):
    with pytest.raises(CompilerUnavailable, match="unknown_function_of_nobody|expected"):
        compile_library("int f(void) { return unknown_function_of_nobody(; }")
    assert _libraries(fresh) == []


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty"])
def test_a_damaged_library_is_never_loaded(fresh, monkeypatch, damage):
    compile_library(SOURCE)
    (path,) = _libraries(fresh)
    good = path.read_bytes()
    middle = len(good) // 2
    bad = {
        "truncated": good[:middle],
        "changed": good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :],
        "empty": b"",
    }[damage]
    # Put in its place, not written into it: this process has the old file mapped.
    (fresh / "bad").write_bytes(bad)
    os.replace(fresh / "bad", path)
    _forget(monkeypatch)
    opened = []
    original = compiler.Library

    def watch(name, *arguments, **options):
        content = Path(name).read_bytes()
        opened.append(hashlib.sha256(content).hexdigest() == Path(name).stem)
        return original(name, *arguments, **options)

    monkeypatch.setattr(compiler, "Library", watch)
    with pytest.warns(CacheWarning, match="damaged") as told:
        assert compile_library(SOURCE).answer() == 42
    assert len(told) == 1
    assert opened == [True]
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_written(fresh, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning, match="file/cache.* cannot be used") as told:
        assert compile_library(SOURCE).answer() == 42
        assert compile_library(SOURCE.replace("7", "9")).answer() == 54
    assert len(told) == 1


def test_a_folder_that_allows_no_code(fresh, monkeypatch):
    original = compiler.Library

    def no_code(name, *arguments, **options):
        if str(name).startswith(str(fresh)):
            raise OSError(f"{name}: failed to map segment from shared object")
        return original(name, *arguments, **options)

    monkeypatch.setattr(compiler, "Library", no_code)
    with pytest.warns(CacheWarning, match="failed to map segment"):
        assert compile_library(SOURCE).answer() == 42


def test_many_processes_share_an_empty_cache(fresh):
    program = (
        "import warnings; warnings.simplefilter('error')\n"
        "from magmagraph.runtime.cpu.compiler import compile_library\n"
        f"print(compile_library({SOURCE!r}).answer())\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for process in running:
        output, errors = process.communicate(timeout=120)
        assert (output.strip(), errors, process.returncode) == ("42", "", 0)
    assert len(_libraries(fresh)) == 1
    assert list(fresh.rglob("*.tmp")) == []


def test_arithmetic_stays_that_of_ieee(fresh):
    library = compile_library(
        """
        float two_roundings(float a, float b, float c) { return a * b + c; }
        int is_nan(float a) { return a != a; }
        float half(float a) { return a * 0.5f; }
        int wraps(int a) { return a + 1 < a; }
        """
    )
    single = ctypes.c_float
    for name, count in (("two_roundings", 3), ("half", 1), ("is_nan", 1)):
        getattr(library, name).argtypes = [single] * count
    library.two_roundings.restype = library.half.restype = single
    a = np.float32(1 + 2.0**-12)
    assert library.two_roundings(a, a, -(a * a)) == 0.0
    assert library.is_nan(float("nan")) == 1
    assert library.wraps(2**31 - 1) == 1
    # Subnormal numbers are numbers, here and in NumPy after the library was loaded.
    tiny = np.finfo(np.float32).smallest_normal
    assert library.half(tiny) == float(tiny) / 2
    assert np.float32(tiny) * np.float32(0.5) > 0


def test_a_compiler_that_hangs_is_ended_with_what_it_runs(fresh, monkeypatch, tmp_path):
    real = find_compiler().command[0]
    script = tmp_path / "slow-cc"
    # As gcc does, it leaves the work to another program, which goes on writing next to the source.
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-shared*.c*) ;; *) exec {real} "$@";; esac\n'
        f"sh -c 'echo $$ > {tmp_path}/worker; while :; do sleep 0.05; done' &\n"
        "wait\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("MAGMAGRAPH_CC", str(script))
    monkeypatch.setattr(compiler, "TIMEOUT", 1.0)
    with pytest.raises(CompilerUnavailable, match=r"built no library: .* timed out after 1"):
        compile_libraries([SOURCE, SOURCE + "int other;\n"])
    worker = int((tmp_path / "worker").read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(200):
            os.kill(worker, 0)  # raises once the system has taken it away
            time.sleep(0.01)


def test_kernels_are_linked_without_start_files() -> None:
    """By gcc on Linux; who hears of forks needs the C library's own part of them."""
    flags = compilers.find_compiler().flags
    lean = toolchain.Compiler(("gcc",), "gcc 12", (*flags, "-fno-use-linker-plugin"))
    assert toolchain.linked(lean, "int x;") == ("-nostdlib", "-lm", "-lgcc")
    assert toolchain.linked(lean, "pthread_atfork(a, b, c);") == ("-lm",)
    clang = toolchain.Compiler(("clang",), "clang 18", ("-fPIC",))
    assert toolchain.linked(clang, "int x;") == ("-lm",)


def test_a_library_without_start_files_calls_the_c_library() -> None:
    source = (
        "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "double norm(const double* x, int n)\n{\n"
        "    double* y = malloc(n * sizeof(double)); double sum = 0;\n"
        "    memcpy(y, x, n * sizeof(double));\n"
        "    for (int i = 0; i < n; i++) sum = hypot(sum, y[i]);\n"
        "    free(y); return sum;\n}\n"
        "unsigned long long half(unsigned long long a, unsigned long long b)\n"
        "{ return (unsigned long long)((((unsigned __int128)a << 64) / (b | 1)) >> 1); }\n"
    )
    library = compile_library(source)
    library.norm.restype = ctypes.c_double
    assert library.norm((ctypes.c_double * 2)(3.0, 4.0), 2) == pytest.approx(5.0)
    library.half.restype = ctypes.c_ulonglong
    library.half.argtypes = [ctypes.c_ulonglong] * 2
    assert library.half(1, 4) == (2**64 // 5) // 2
