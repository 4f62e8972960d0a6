"""A workflow that the page has started: a process, whose records come through a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from ...distributed.launching import tied
from ..file import parse, text_of
from .progress import Progress, record_of

__all__ = ["Job"]

_LAST = 4000  # bytes of its output
_PATIENCE = 30.0  # seconds to stop in


class Job:
    """Runs ``magmagraph workflow run FILE``.

    Parameters
    ----------
    path
        The file.
    executor, workers
        As the command takes them.

    Raises
    ------
    ConfigError
        The file is wrong.
    """

    def __init__(self, path: Path, executor: str, workers: int | None) -> None:
        self.progress = Progress(parse(text_of(path), path))
        self.command = [
            sys.executable, "-P", "-m", "magmagraph", "workflow", "run", str(path),
            "--executor", executor, *(["--workers", str(workers)] if workers else []),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None  # its output, while it runs
        self._last = ""
        self._stopping = False
        # The kernel ends the process with the thread that has started it: with this one.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    @property
    def printed(self) -> str:
        """The end of what it has printed."""
        file = self._file
        with suppress(ValueError):  # it is closed meanwhile
            if file is not None:
                size = os.fstat(file.fileno()).st_size
                last = os.pread(file.fileno(), _LAST, max(0, size - _LAST))
                return last.decode(errors="replace")
        return self._last

    def stop(self) -> None:
        """Interrupt it."""
        self._stopping = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """End it, and wait for that."""
        self.stop()
        self._thread.join(_PATIENCE)
        if self._process is not None and self.running:
            self._process.kill()
            self._thread.join()

    def _run(self) -> None:
        with tempfile.TemporaryFile() as self._file:
            status = self._status(self._file)
            self._last = self.printed
            self._file = None
        line = self._last.rstrip().rpartition("\n")[2]
        text = "stopped" if self._stopping else "done" if not status else f"failed: {line}"
        self.progress.end(status == 0, text)

    def _status(self, printed: IO[bytes]) -> int:
        """Start the process, take its records over, and return its status."""
        reading, writing = os.pipe()
        words = [*self.command, "--records", f"/dev/fd/{writing}"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-S", tied.__file__, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            start_new_session=True,  # an interrupt at the terminal is this process's own
        )
        os.close(writing)
        if self._stopping:
            self.stop()
        with open(reading, encoding="utf-8") as lines:
            for line in lines:
                self.progress(record_of(line))
        return self._process.wait()
