"""One of many processes compiles what all of them want; none waits for one that is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime import locks
from magmagraph.runtime.cpu import compiler, compilers
from magmagraph.runtime.cpu.compiler import compile_libraries, compile_library, start_libraries
from magmagraph.runtime.cpu.compilers import find_compiler
from magmagraph.runtime.locks import Lock

SOURCES = [f"int number(void) {{ return {i}; }}\n" for i in range(5)]
WANTED = (
    "from magmagraph.runtime.cpu.compiler import compile_libraries\n"
    f"print([library.number() for library in compile_libraries({SOURCES!r})])\n"
)


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Give an empty cache, and a compiler that writes a line for each library that it builds."""
    try:
        real = find_compiler().command[0]
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    script = tmp_path / "counting-cc"
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-shared*.c*)\n'
        f'echo $$ >> {tmp_path}/runs; [ -z "$SLOW" ] || exec sleep 60;;\n'
        "esac\n"
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("MAGMAGRAPH_CC", str(script))
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr(compiler, "_started", {})
    monkeypatch.setattr("magmagraph.runtime.cache._opened", {})
    compilers._find.cache_clear()
    yield lambda: len((tmp_path / "runs").read_text().split())
    compiler._abandon()
    compilers._find.cache_clear()


def _processes(count: int, **environment: str) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", WANTED],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for _ in range(count)
    ]


def _lock_of(source: str) -> Lock:
    return compiler._lock_of(compiler._run_key(find_compiler(), "-O2", source))


def test_many_processes_compile_a_library_once(counted):
    for process in _processes(6):
        output, errors = process.communicate(timeout=120)
        assert (output.strip(), errors, process.returncode) == ("[0, 1, 2, 3, 4]", "", 0)
    assert counted() == len(SOURCES)


def test_threads_compile_a_library_once(counted):
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(compile_library(SOURCES[3]).number()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 4
    assert counted() == 1


def test_what_is_begun_and_never_asked_for_serves_others(counted):
    start_libraries(SOURCES[:1])
    (begun,) = compiler._started.values()
    begun.keeper.join()
    assert not compiler._started
    (process,) = _processes(1)
    assert process.communicate(timeout=120)[0].strip() == "[0, 1, 2, 3, 4]"
    assert counted() == len(SOURCES)


def test_what_another_process_compiles_is_not_begun(counted):
    lock = _lock_of(SOURCES[0])
    assert lock.take()
    start_libraries(SOURCES[:2])
    assert [begun.source for begun in compiler._started.values()] == SOURCES[1:2]
    lock.release()
    assert compile_library(SOURCES[0]).number() == 0


def test_a_killed_process_leaves_its_lock(counted, tmp_path):
    (process,) = _processes(1, SLOW="yes")
    while not (tmp_path / "runs").exists():
        assert process.poll() is None
    process.kill()
    process.communicate()
    for run in (tmp_path / "runs").read_text().split():
        os.kill(int(run), signal.SIGKILL)  # what it ran goes on, and has no part in this
    assert list((tmp_path / "cache" / "locks").iterdir())
    assert [library.number() for library in compile_libraries(SOURCES)] == [0, 1, 2, 3, 4]
    assert not list((tmp_path / "cache" / "locks").iterdir())


def test_a_process_that_does_not_go_on_is_not_waited_for_long(counted, monkeypatch):
    held = _lock_of(SOURCES[0])
    assert held.take()
    monkeypatch.setattr(compiler, "_PATIENCE", 0.05)
    assert compile_library(SOURCES[0]).number() == 0
    assert held.path.exists()  # it is still the other one's
    held.release()


def test_locks_are_given_back_where_the_compiler_fails(counted, tmp_path):
    with pytest.raises(CompilerUnavailable, match="ends with code 1"):
        compile_libraries(["this is no C", *SOURCES])
    assert not list((tmp_path / "cache" / "locks").iterdir())
    assert not locks._held


def test_a_lock_excludes_others_until_its_holder_ends(tmp_path):
    first, second = Lock(tmp_path / "in" / "lock"), Lock(tmp_path / "in" / "lock")
    assert first.take()
    assert not second.take()
    second.release()  # not its own: without effect
    assert not second.take()
    child = os.fork()
    if not child:
        os._exit(0 if not Lock(first.path).take() and not locks._held else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not second.take()  # the child's end has not let go of it
    first.release()
    assert second.take()
    second.release()
    assert not first.path.exists()


def test_a_forked_child_does_not_keep_a_killed_parents_lock(tmp_path):
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from magmagraph.runtime.locks import Lock\n"
        "lock = Lock(Path(sys.argv[1]))\n"
        "assert lock.take()\n"
        "if os.fork():\n"
        "    os.kill(os.getpid(), 9)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert parent.wait(timeout=60) == -signal.SIGKILL
        lock = Lock(tmp_path / "lock")
        assert lock.take()
        lock.release()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_a_folder_without_locks_lets_everyone_go_on(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    nowhere = Lock(Path(tmp_path / "file" / "lock"))
    assert nowhere.take()
    nowhere.release()

    def refuse(file, how):
        raise OSError("no locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert second.take()


@pytest.mark.skipif(locks.fcntl is None, reason="this system has no locks on files")
def test_a_file_that_was_let_go_of_meanwhile_is_no_lock(monkeypatch, tmp_path):
    """Else two would hold locks on one path: one on the file of the past, one on a new one."""
    first, second, third = (Lock(tmp_path / "lock") for _ in range(3))
    assert first.take()
    real = locks.fcntl.flock

    def late(file: int, flags: int) -> None:
        monkeypatch.setattr(locks.fcntl, "flock", real)
        first.release()
        real(file, flags)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    assert not second.take()
    assert third.take()
    assert not second.take()
    third.release()
    assert second.take()
    second.release()
