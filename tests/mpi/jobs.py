"""Jobs of MPI for the tests: bounded in time, ended by the ids of their processes.

A `Pool` keeps a job of some ranks alive, to which tests send functions: a call costs milliseconds
instead of a start. `run` starts a job for itself alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MARK = "MAGMAGRAPH_TEST_JOB"
LEAVING = 10.0  # seconds at most until ended processes are gone, on a machine busy elsewhere
STACK = b"(most recent call first)"  # faulthandler's words
AFTER_ERROR = 3.0  # seconds that the other ranks get when one has failed


class RankError(AssertionError):
    """A function failed on a rank, or did not come back."""


def mpiexec() -> str:
    """Return the program beside this Python, which fits its mpi4py, else the system's."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else "mpiexec"


def environment(mark: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a rank: one thread, and this tree first on the path."""
    path = [str(ROOT), str(ROOT / "tests" / "helpers"), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **dict.fromkeys(
            ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
            "1",
        ),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        MARK: mark,
        **(extra or {}),
    }


def marked(mark: str) -> list[int]:
    """Return the ids of all living processes that a job has started, in its environment's words."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(int(folder.name))
    return found


def end(process: subprocess.Popen[Any], mark: str, patience: float = 2.0) -> None:
    """End a job and all that it has started."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    for _ in range(3):  # what one of them starts in between is found the next time
        left = [process.pid] if process.poll() is None else []
        left += [number for number in marked(mark) if number not in left]
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.02)
    process.wait()


@dataclass
class Done:
    """A job that has ended: its exit status, what it printed, and how long it took."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    left: list[int]  # processes that lived on, and were ended

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def run(
    command: Sequence[str],
    *,
    timeout: float = 30.0,
    extra: Mapping[str, str] | None = None,
    folder: Path | None = None,
    during: Callable[[subprocess.Popen[str]], None] | None = None,
) -> Done:
    """Run a command that starts ranks, and leave nothing of it behind.

    `during` is called while it runs. What the job leaves alive is ended, and told in ``left``.

    Raises
    ------
    RankError
        It takes longer than `timeout` seconds; with what it has printed.
    """
    mark = secrets.token_hex(8)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(mark, extra),
            cwd=folder,
            text=True,
        )
        late = False
        try:
            if during is not None:
                during(process)
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            seconds = time.monotonic() - began
            left, until = marked(mark), time.monotonic() + LEAVING
            while left and process.poll() is not None and time.monotonic() < until:
                time.sleep(0.02)
                left = marked(mark)
            end(process, mark)
        out.seek(0)
        err.seek(0)
        done = Done(process.returncode, out.read(), err.read(), seconds, left)
    if late:
        raise RankError(f"no end within {timeout} s: {' '.join(command)}\n{done.output}")
    return done


class Pool:
    """A job of some ranks that call what they are sent, until it is closed or fails."""

    def __init__(self, ranks: int, start: float = 30.0) -> None:
        self.ranks = ranks
        self._mark = secrets.token_hex(8)
        self._folder = tempfile.TemporaryDirectory(prefix="magmagraph-ranks-")
        key = secrets.token_bytes(16)
        self._listener = connection.Listener(("127.0.0.1", 0), backlog=ranks, authkey=key)
        host, port = self._listener.address
        extra = {
            "MAGMAGRAPH_TEST_ADDRESS": f"{host}:{port}",
            "MAGMAGRAPH_TEST_KEY": key.hex(),
            "MAGMAGRAPH_TEST_FOLDER": self._folder.name,
            "PYTHONWARNINGS": "error,ignore:training without distribute",
        }
        with open(Path(self._folder.name) / "mpiexec", "wb") as log:
            self._process = subprocess.Popen(
                [mpiexec(), "-n", str(ranks), sys.executable, str(HERE / "rank_main.py")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self._mark, extra),
            )
        self.alive = True
        self._lines: list[Any] = [None] * ranks
        self._ids: list[int] = [0] * ranks
        self._listener._listener._socket.settimeout(start)  # type: ignore[attr-defined]
        try:
            for _ in range(ranks):
                line = self._listener.accept()
                rank, number = line.recv()
                self._lines[rank], self._ids[rank] = line, number
        except (OSError, EOFError) as error:
            said = self._said()
            self.close(patience=0.0)
            raise RankError(f"{ranks} ranks did not start: {error}\n{said}") from None
        finally:
            self._listener.close()

    def call(
        self, function: Callable[..., Any], arguments: Sequence[Any], timeout: float
    ) -> list[Any]:
        """Return what a function of a test file gives on each rank, in their order.

        Raises
        ------
        RankError
            With the traceback of the first rank that fails, or the stacks of all ranks where they
            take longer than `timeout` seconds. The job has ended then.
        """
        place = (function.__module__, function.__qualname__)
        self._begin_output()
        for line in self._lines:
            line.send((place, tuple(arguments)))
        waiting = dict(zip(self._lines, range(self.ranks), strict=True))
        results: list[Any] = [None] * self.ranks
        failures: list[str] = []
        until = time.monotonic() + timeout
        while waiting:
            rest = until - time.monotonic()
            ready = connection.wait(list(waiting), max(rest, 0.0))
            if not ready:
                break
            for line in ready:
                rank = waiting.pop(line)
                try:
                    failed, answer = line.recv()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    failed, answer = True, "the process has ended"
                if failed:
                    failures.append(f"rank {rank}: {answer}")
                    until = min(until, time.monotonic() + AFTER_ERROR)
                else:
                    results[rank] = answer
        if failures or waiting:
            if waiting and not failures:
                failures = [f"ranks {sorted(waiting.values())} have not ended in {timeout} s"]
            for rank in waiting.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._ids[rank], signal.SIGUSR1)  # each writes where it is
            self._wait_for_stacks(waiting.values())
            said = self._said()
            # A job whose ranks have failed together is in order, and goes on.
            if waiting or any("the process has ended" in text for text in failures):
                self.close(patience=0.0)
            raise RankError("\n".join([*failures, said]))
        return results

    def _wait_for_stacks(self, ranks: Iterable[int], most: float = 5.0) -> None:
        """Wait until ranks have written where they are, or have ended."""
        until = time.monotonic() + most
        for rank in ranks:
            path = Path(self._folder.name) / f"rank{rank}"
            while STACK not in path.read_bytes() and time.monotonic() < until:
                if not Path(f"/proc/{self._ids[rank]}").exists():
                    break
                time.sleep(0.01)

    def _begin_output(self) -> None:
        for path in Path(self._folder.name).iterdir():
            os.truncate(path, 0)

    def _said(self) -> str:
        parts = []
        for path in sorted(Path(self._folder.name).iterdir()):
            text = path.read_text(errors="replace").replace("\0", "").strip()
            if text:
                parts.append(f"---- {path.name}\n{text[-6000:]}")
        return "\n".join(parts)

    def close(self, patience: float = 3.0) -> None:
        """End the job: kindly for some seconds, then by the ids of its processes."""
        if not self.alive:
            return
        self.alive = False
        for line in self._lines:
            with contextlib.suppress(OSError, AttributeError):
                line.send(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        end(self._process, self._mark)
        for line in self._lines:
            if line is not None:
                line.close()
        self._folder.cleanup()
