"""A thread that runs collectives in order, while steps that do not read them run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

from ...ir.communicator import Pending

__all__ = ["Started", "Worker"]


class Started(Pending):
    """A task that a worker runs while its caller continues.

    Attributes
    ----------
    began, ended
        When it was taken up and done, by `time.perf_counter_ns`; 0 before.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._context = copy_context()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self.began = self.ended = 0

    def execute(self) -> None:
        """Do it; the worker's part."""
        self.began = time.perf_counter_ns()
        try:
            self._context.run(self._run)
        except BaseException as error:  # it is raised where it is waited for
            self._error = error
        self.ended = time.perf_counter_ns()
        self._done.set()

    def wait(self) -> None:
        """Wait until it is done; raise its error, if any."""
        self._done.wait()
        if self._error is not None:
            raise self._error


class Worker:
    """A thread that runs its tasks one after the other."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Started | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._name = name

    def start(self, run: Callable[[], object]) -> Started:
        """Give it something to do."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        started = Started(run)
        self._queue.put(started)
        return started

    def _work(self) -> None:
        while (started := self._queue.get()) is not None:
            started.execute()

    def end(self) -> None:
        """Let the thread end when all is done."""
        if self._thread is not None:
            self._queue.put(None)
