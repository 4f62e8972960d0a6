"""The servers of the tuple space: values by key, messages by receiver, parts of large values.

A server is a process that runs this file: a manager of `multiprocessing`, whose clients prove that
they know the key of the job. The file imports the standard library only, so that a server starts
in a tenth of a second. In one process the same classes are used without a server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from typing import Any, cast

__all__ = ["Board", "Pieces", "Server", "connect"]

Address = tuple[str, int, int, int]  # module, copy, rank of the copy, turn of the workflow
Server = str | tuple[str, int]  # a socket of this host, or a host and a port


class Pieces:
    """Pieces of large values, each under a name that is used once; they come and go in parts."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, bytes]] = {}

    def put(self, name: str, at: int, part: bytes) -> None:
        """Hold the part of a piece that begins at some byte of the value."""
        self._held.setdefault(name, {})[at] = part

    def get(self, name: str, at: int) -> bytes | None:
        """Return a part, or None where a later value has replaced it."""
        return self._held.get(name, {}).get(at)

    def drop(self, name: str) -> None:
        """Release a piece."""
        self._held.pop(name, None)

    def size(self, name: str) -> int:
        """Return the number of bytes that are held here under a name."""
        return sum(map(len, self._held.get(name, {}).values()))

    def end(self) -> None:
        """End the process of this server."""
        _over.set()


@dataclass
class _Wait:
    ticket: int
    what: str
    timed: bool
    ready: Callable[[], bool]
    dead: str = ""


class Board:
    """The metadata server: where values are, small values, messages, and who waits for what.

    What modules call returns a state and a value: "done", or "late", "dead" or "stopped" and the
    reason. Each rank of a run begins with a ticket; where a run is started again on another
    worker, the tickets of the first attempt are void.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._values: dict[str, tuple[Any, ...]] = {}
        self._letters: dict[Address, list[tuple[str, int, Any]]] = {}
        self._meetings: dict[str, dict[int, Any]] = {}
        self._waits: list[_Wait] = []
        self._who: dict[int, tuple[int, int, str]] = {}  # run, rank of the run and title, by ticket
        self._valid: dict[tuple[int, int], int] = {}  # tickets, by run and rank
        self._running: dict[int, int] = {}  # number of ranks, by run
        self._pending: list[str] = []
        self._stopped: dict[int, str] = {}
        self._notes: dict[int, dict[tuple[int, int], tuple[Any, ...]]] = {}
        self._attempts: dict[int, int] = {}  # by run
        self._last = False

    # ---- For the driver

    def notes(self, run: int) -> tuple[int, dict[tuple[int, int], tuple[Any, ...]]]:
        """Return how often a run has begun, and its iterations by iteration and rank of the run."""
        return self._attempts.get(run, 0), dict(self._notes.get(run, {}))

    def running(self, ranks: dict[int, int], pending: list[str]) -> None:
        """Note which runs are with workers, on how many ranks, and what has not started."""
        with self._changed:
            self._running, self._pending = dict(ranks), list(pending)
            self._end_dead_waits()

    def stop(self, runs: list[int], cause: str) -> None:
        """Let the next calls of some runs, and those that wait, end with "stopped"."""
        with self._changed:
            self._stopped.update(dict.fromkeys(runs, cause))
            self._changed.notify_all()

    def forget(self, turn: int) -> None:
        """Drop the messages of a turn that has ended."""
        with self._changed:
            for address in [a for a in self._letters if a[3] <= turn]:
                del self._letters[address]

    def is_last(self) -> bool:
        """Return whether a module has called `last`."""
        return self._last

    # ---- For modules

    def begin(self, run: int, rank: int, title: str) -> int:
        """Return the ticket of one rank of a run."""
        with self._changed:
            ticket = len(self._who)
            self._who[ticket] = (run, rank, title)
            self._valid[run, rank] = ticket
            self._attempts[run] = self._attempts.get(run, 0) + (rank == 0)
            self._changed.notify_all()
            return ticket

    def look(self, ticket: int) -> str:
        """Return why a run has to end, or an empty text."""
        run, rank, _ = self._who[ticket]
        if self._valid[run, rank] != ticket:
            return "it was started again on another worker"
        return self._stopped.get(run, "")

    def note(self, run: int, iteration: int, rank: int, *note: Any) -> None:
        """Hold what became of an iteration."""
        self._notes.setdefault(run, {})[iteration, rank] = note

    def last(self) -> None:
        """Let no turn of the workflow come after this one."""
        self._last = True

    def put(self, ticket: int, key: str, *value: Any) -> tuple[str, Any]:
        """Store a value's description and its places or bytes; return the old ones."""
        with self._changed:
            if cause := self.look(ticket):
                return "stopped", cause
            before = self._values.get(key, ())
            self._values[key] = value
            self._changed.notify_all()
            return "done", before

    def find(self, key: str) -> tuple[Any, ...]:
        """Return what was put under a key, without waiting; nothing if nothing was."""
        return self._values.get(key, ())

    def get(self, ticket: int, key: str, timeout: float | None) -> tuple[str, Any]:
        """Return what was put under a key, once it is there."""
        return self._until(
            ticket, f"the key {key!r}", timeout, lambda: key in self._values, lambda: self.find(key)
        )

    def send(
        self, ticket: int, receiver: Address, module: str, copy: int, *value: Any
    ) -> tuple[str, Any]:
        """Hold a message for a receiver."""
        with self._changed:
            if cause := self.look(ticket):
                return "stopped", cause
            self._letters.setdefault(receiver, []).append((module, copy, value))
            self._changed.notify_all()
            return "done", None

    def receive(
        self, ticket: int, receiver: Address, module: str, copy: int | None, timeout: float | None
    ) -> tuple[str, Any]:
        """Return the first message of a module, or of one of its copies, and drop it."""
        letters = self._letters.setdefault(receiver, [])

        def number() -> int | None:
            fitting = (
                i for i, (m, c, _) in enumerate(letters) if m == module and copy in (None, c)
            )
            return next(fitting, None)

        what = f"a message of module {module!r}" + ("" if copy is None else f", copy {copy}")
        return self._until(
            ticket,
            what,
            timeout,
            lambda: number() is not None,
            lambda: letters.pop(cast(int, number()))[2],
        )

    def meet(self, name: str, count: int, place: int, value: Any) -> list[Any]:
        """Return what as many callers have brought, in the order of their places."""
        with self._changed:
            values_by_place = self._meetings.setdefault(name, {})
            values_by_place[place] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(values_by_place) == count)
            return [values_by_place[i] for i in range(count)]

    def _until(
        self,
        ticket: int,
        what: str,
        timeout: float | None,
        ready: Callable[[], bool],
        take: Callable[[], Any],
    ) -> tuple[str, Any]:
        end = None if timeout is None else time.monotonic() + timeout
        wait = _Wait(ticket, what, timeout is not None, ready)
        with self._changed:
            self._waits.append(wait)
            self._end_dead_waits()
            try:
                while True:
                    left = None if end is None else end - time.monotonic()
                    if cause := self.look(ticket):
                        return "stopped", cause
                    if ready():
                        return "done", take()
                    if wait.dead:
                        return "dead", wait.dead
                    if left is not None and left <= 0:
                        return "late", f"{what} has not come within {timeout:g} s"
                    self._changed.wait(left)
            finally:
                self._waits.remove(wait)

    def _end_dead_waits(self) -> None:
        """End all waits with an error if nobody is left who could end one of them."""
        waits = [
            wait
            for wait in self._waits
            if self._who[wait.ticket][0] in self._running and not self.look(wait.ticket)
        ]
        if len(waits) < sum(self._running.values()) or any(w.timed or w.ready() for w in waits):
            return
        for wait in waits:
            others = [f"{self._who[w.ticket][2]}, waits for {w.what}" for w in waits if w != wait]
            wait.dead = f"{wait.what} can come from nobody any more" + (
                ":\n" + "\n".join(others + self._pending)
                if others + self._pending
                else ": all other modules have ended"
            )
        self._changed.notify_all()


# ------------------------------------------------------------------- processes

_board, _pieces = Board(), Pieces()
_over = threading.Event()
_started: list[subprocess.Popen[bytes]] = []  # their input stays open as long as this process is


class _Manager(BaseManager):
    """Gives clients the board and the pieces of this process."""


_Manager.register("board", lambda: _board)
_Manager.register("pieces", lambda: _pieces)


def start(key: bytes, host: str) -> Server:
    """Start a server, which ends with this process, and return its address.

    Parameters
    ----------
    key
        What clients and the server prove to each other that they know.
    host
        The name of this host for other hosts; an empty text for a socket in a private folder.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([key.hex(), host]).encode() + b"\n")
    process.stdin.flush()
    address = json.loads(process.stdout.readline())
    _started.append(process)
    return address if isinstance(address, str) else (host, address[1])


def connect(address: Server, key: bytes) -> tuple[Board, Pieces]:
    """Return the board and the pieces of a server, whose methods are called there."""
    manager = _Manager(address, authkey=key)
    manager.connect()
    return manager.board(), manager.pieces()  # type: ignore[attr-defined]


def _end_with_input() -> None:
    sys.stdin.read()
    _over.set()


def _serve() -> None:
    """Serve until `end` is called, or the process that has started this one ends."""
    key, host = json.loads(sys.stdin.readline())
    server = _Manager(("", 0) if host else None, authkey=bytes.fromhex(key)).get_server()
    print(json.dumps(server.address), flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _over.wait()


if __name__ == "__main__":
    _serve()
