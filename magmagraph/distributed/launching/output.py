"""What ranks print: whole lines, with the rank before each if wanted, and the last ones kept."""

from __future__ import annotations

import os
import selectors
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import BinaryIO

from ...files.folders import claim_folder, release_folder
from ...files.trust import temporary_place

__all__ = ["Output"]

_STREAMS = ("out", "err")
_CHUNK = 1 << 16
_KEPT = 40  # lines of a rank's errors
_IDLE = 0.1  # seconds after which half a line is shown


class _Stream:
    """One pipe of a rank, and the half line that it ends with."""

    def __init__(self, descriptor: int, target: BinaryIO | None, label: bytes) -> None:
        self.descriptor, self.target, self.label = descriptor, target, label
        self.rest = b""
        self.open_line = False  # whether half a line was shown
        self.last: deque[bytes] = deque(maxlen=_KEPT)

    def take(self) -> bool:
        """Show the whole lines that have come; return whether anything has."""
        try:
            content = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not content:
            return False
        *lines, self.rest = (self.rest + content).split(b"\n")
        for line in lines:
            self._show(line + b"\n")
            self.last.append(line)
        return True

    def flush(self) -> None:
        """Show half a line: a question, or progress."""
        if self.rest:
            self._show(self.rest)
            self.last.append(self.rest)
            self.rest = b""
        if self.target is not None:
            self._write(b"", flush=True)

    def _show(self, text: bytes) -> None:
        self._write(text if self.open_line else self.label + text)
        self.open_line = not text.endswith(b"\n")

    def _write(self, text: bytes, flush: bool = False) -> None:
        if self.target is None:
            return
        try:
            self.target.write(text)
            if flush:
                self.target.flush()
        except (OSError, ValueError):
            self.target = None  # the reader has gone; the ranks are not to be held up


class Output:
    """Pipes for the output of some ranks, and a thread that passes it on.

    ranks (int): How many write here.
    label (bool): Whether each line begins with its rank.
    local (bool): Whether the ranks can reach this machine's pipes. Elsewhere all comes through
        `mpiexec`, which is shown then.
    folder (str): Where the pipes lie, empty if they are of no use.
    """

    def __init__(self, ranks: int, label: bool, local: bool) -> None:
        self._held = tempfile.TemporaryDirectory(
            prefix="magmagraph-job-", dir=temporary_place()
        )
        claim_folder(self._held.name)
        self.folder = self._held.name if local else ""
        self._selector = selectors.DefaultSelector()
        self._ranks: dict[tuple[int, str], _Stream] = {}
        targets = {name: _binary(getattr(sys, f"std{name}")) for name in _STREAMS}
        if local:
            for rank in range(ranks):
                for name in _STREAMS:
                    path = os.path.join(self.folder, f"{rank}.{name}")
                    os.mkfifo(path, 0o600)
                    # For writing, too: it then has no end while ranks come and go.
                    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                    self._add((rank, name), descriptor, targets[name], label)
        self.starter: dict[str, int] = {}  # descriptors that mpiexec writes to
        for name in _STREAMS:
            read, self.starter[name] = os.pipe()
            os.set_blocking(read, False)
            self._add((-1, name), read, None if local else targets[name], False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, name="magmagraph-output", daemon=True)

    def _add(
        self, key: tuple[int, str], descriptor: int, target: BinaryIO | None, label: bool
    ) -> None:
        stream = _Stream(descriptor, target, f"[{key[0]}] ".encode() if label else b"")
        self._ranks[key] = stream
        self._selector.register(descriptor, selectors.EVENT_READ, stream)

    def start(self) -> None:
        """Begin to pass on; `mpiexec` has been started."""
        for descriptor in self.starter.values():
            os.close(descriptor)
        self.starter.clear()
        self._thread.start()

    def _pass_on(self) -> None:
        while not self._stopping.is_set():
            ready = self._selector.select(_IDLE)
            came = [key.data.take() for key, _ in ready]
            if not any(came):
                for stream in self._ranks.values():
                    stream.flush()
                if ready:  # a pipe that has ended is ready for ever
                    self._stopping.wait(_IDLE)
        for stream in self._ranks.values():
            while stream.take():
                pass
            stream.flush()

    def last(self, rank: int) -> str:
        """Return the last lines that a rank has written as errors; of `mpiexec` for -1."""
        names = _STREAMS if rank < 0 else ("err",)
        lines = [line for name in names if (rank, name) in self._ranks
                 for line in self._ranks[rank, name].last]  # fmt: skip
        return b"\n".join(lines).decode(errors="replace").strip()

    def close(self) -> None:
        """Pass on what is left, and remove the pipes."""
        for descriptor in self.starter.values():
            os.close(descriptor)
        self.starter.clear()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for stream in self._ranks.values():
            os.close(stream.descriptor)
        self._selector.close()
        release_folder(self._held.name)
        self._held.cleanup()

    @property
    def path(self) -> Path:
        """The job's folder."""
        return Path(self._held.name)


def _binary(stream: object) -> BinaryIO | None:
    """Return the bytes' side of a text stream; notebooks and tests may have none."""
    buffer = getattr(stream, "buffer", None)
    if buffer is not None:
        return buffer  # type: ignore[no-any-return]
    return None if stream is None else _Text(stream)  # type: ignore[return-value]


class _Text:
    """A stream of text that takes bytes."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def write(self, content: bytes) -> None:
        self._stream.write(content.decode(errors="replace"))  # type: ignore[attr-defined]

    def flush(self) -> None:
        self._stream.flush()  # type: ignore[attr-defined]
