"""Executors of one machine: this process, and processes that it starts."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any

from ..errors import ConfigError, message
from ..ir.cores import allowed_cores
from .engine import Engine, Work
from .trial import Outcome

__all__ = ["check_workers", "run_processes", "run_serial"]

_THREADS = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SAFE_PATH = "PYTHONSAFEPATH"  # what -P sets: no folder of the program is put first
_READY, _BROKEN, _ENDED = "ready", "broken", "ended"  # what a worker sends
_LOOK = 1.0  # seconds between two looks at processes whose end nothing tells
_PATIENCE = 5.0  # seconds that a worker is given to end by itself


def run_serial(engine: Engine, work: Work) -> None:
    """Run all trials here, one after the other."""
    while (assignment := engine.next()) is not None:
        engine.ended(work.run(assignment))


def run_processes(
    engine: Engine, work: Work, workers: int | None, threads: int | None, timeout: float | None
) -> None:
    """Run trials in processes that are started for it, and ended with it.

    A process that dies is replaced. Trials that run when something is raised here are cut off, as
    if this process had been killed: the journal knows them as started.
    """
    pool = _Pool(engine, work, workers, threads, timeout)
    try:
        pool.run()
    finally:
        pool.end()


class _Pool:
    """The workers of a search."""

    def __init__(
        self,
        engine: Engine,
        work: Work,
        workers: int | None,
        threads: int | None,
        timeout: float | None,
    ) -> None:
        cores = allowed_cores()
        most = engine.most_at_once
        self.count = min(cores, most or cores) if workers is None else workers
        check_workers(self.count, most)
        self.threads = threads or max(1, cores // self.count)
        self.engine, self.timeout = engine, timeout
        self.payload = _pickled(work)
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker] = []

    def run(self) -> None:
        """Hand out and take back until the search is over."""
        while not self.engine.over:
            self._hand_out()
            busy = [worker for worker in self.workers if worker.number is not None]
            if not busy:
                continue
            waited = [w.pipe for w in busy] + [w.process.sentinel for w in busy]
            connection.wait(waited, self._left(busy))
            for worker in busy:
                self._listen(worker)

    def end(self) -> None:
        """End all workers: those that run a trial at once, the others by their own."""
        for worker in self.workers:
            if worker.number is not None:
                worker.process.kill()
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()

    def _hand_out(self) -> None:
        idle = [worker for worker in self.workers if worker.number is None]
        while len(idle) or len(self.workers) < self.count:
            assignment = self.engine.next()
            if assignment is None:
                return
            if idle:
                worker = idle.pop()
            else:
                worker = _Worker(self.context, self.payload, self.threads)
                self.workers.append(worker)
            worker.number = assignment.number
            worker.late = self._end() if worker.ready else None
            # One that died while it was idle is found by its sentinel.
            with suppress(OSError):
                worker.pipe.send(assignment)

    def _end(self) -> float | None:
        """Return when a trial that starts now is late."""
        return None if self.timeout is None else time.monotonic() + self.timeout

    def _left(self, busy: list[_Worker]) -> float:
        ends = [worker.late - time.monotonic() for worker in busy if worker.late is not None]
        return max(0.0, min([_LOOK, *ends]))

    def _listen(self, worker: _Worker) -> None:
        for kind, told in worker.messages():
            if kind == _BROKEN:
                raise ConfigError(
                    message(
                        f"the objective cannot be used in another process:\n{told}",
                        need="a function at the top level of a file, which the process imports",
                        hint='a file of its own for it, or executor="serial"',
                    )
                )
            if not worker.ready:
                worker.ready, worker.late = True, self._end()
            if kind == _ENDED:
                worker.number = None
                self.engine.ended(told)
        if worker.number is None:
            return
        if worker.gone():
            number = worker.number
            cause = self._take_out(worker)
            self.engine.died(number, f"the process that ran it ended: {cause}")
        elif worker.late is not None and time.monotonic() >= worker.late:
            number = worker.number
            worker.process.kill()
            self._take_out(worker, meant=True)
            text = f"it was ended after timeout={self.timeout:g} s"
            self.engine.ended(Outcome(number, "failed", {}, [], float(self.timeout or 0), text))

    def _take_out(self, worker: _Worker, meant: bool = False) -> str:
        """Take out a worker that has ended, and return how; the next trial starts another one."""
        worker.process.join()
        self.workers.remove(worker)
        cause = _told(worker.process.exitcode)
        worker.pipe.close()
        worker.process.close()
        if not (worker.ready or meant):
            raise ConfigError(
                message(
                    f"a process of the search ended before it could begin ({cause})",
                    need="a program whose file can be imported without starting the search again",
                    hint='if __name__ == "__main__": in front of what the program does',
                )
            )
        return cause


class _Worker:
    """A process, the pipe to it, and the trial that it runs."""

    def __init__(self, context: Any, payload: bytes, threads: int) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve,
            args=(theirs, payload, os.environ.get(_SAFE_PATH)),
            name="magmagraph search",
        )
        # Numerical libraries read their threads when they are loaded, before any code of ours. And
        # Python starts without the modules of the current folder; those of this process follow.
        with _environment({**dict.fromkeys(_THREADS, str(threads)), _SAFE_PATH: "1"}):
            self.process.start()
        theirs.close()
        self.number: int | None = None
        self.late: float | None = None
        self.ready = self.closed = False

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield what it has sent since the last time."""
        try:
            while not self.closed and self.pipe.poll():
                yield self.pipe.recv()
        except (EOFError, OSError):
            self.closed = True

    def gone(self) -> bool:
        """Return whether it has ended; all that it had sent was read."""
        return self.closed or not (self.process.is_alive() or self.pipe.poll())


def _serve(pipe: Any, payload: bytes, safe_path: str | None) -> None:
    """Run trials as they come; the whole life of a worker.

    `safe_path` is the variable that a trial's own programs are to find, None where it is not set.
    """
    os.environ.pop(_SAFE_PATH, None)
    if safe_path is not None:
        os.environ[_SAFE_PATH] = safe_path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        work: Work = pickle.loads(payload)
    except Exception:
        pipe.send((_BROKEN, traceback.format_exc()))
        return
    pipe.send((_READY, None))
    while True:
        try:
            assignment = pipe.recv()
        except EOFError:
            return
        pipe.send((_ENDED, work.run(assignment)))


def _follow_parent() -> None:
    """End with the parent, however that ends: nobody would take the result of this trial."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def check_workers(count: int, most: int | None) -> None:
    """Refuse workers that would never get a trial."""
    if most is not None and count > most:
        raise ConfigError(
            message(
                f"{count} workers, and ahead={most}: {count - most} of them would never work",
                need="trials that may run at once for all workers",
                hint=f"ahead={count}; points and stops then know that many trials less",
            )
        )


def _pickled(work: Work) -> bytes:
    try:
        return pickle.dumps(work)
    except Exception as error:  # what pickle raises depends on what it meets
        raise ConfigError(
            message(
                f"the objective {work.objective!r} or an option of the space cannot be sent to "
                f"another process: {error}",
                need="a function at the top level of a file; it may be functools.partial of one",
                hint='executor="serial" runs any function',
            )
        ) from error


def _told(status: int | None) -> str:
    """Return what an exit status says."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    more = ", as a system without memory sends" if name == "SIGKILL" else ""
    return f"signal {name}{more}"


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
