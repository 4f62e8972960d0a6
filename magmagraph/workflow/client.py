"""A worker's side of a workflow: messages, values of the store, and waiting for them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import CommunicationError, MagmagraphError, message
from .line import ANSWER, MAIL, REQUEST, Address, Counts, Letter, Line, Pause
from .modules import Workflow

__all__ = ["Client", "WorkflowStopped", "WorkflowTimeout"]

_NOTHING = object()


class WorkflowStopped(MagmagraphError, RuntimeError):
    """The workflow has failed elsewhere: raised by calls of the context, to end the module."""


class WorkflowTimeout(MagmagraphError, TimeoutError):
    """A key or a message has not come within the time that was given."""


@dataclass
class _Wait:
    """What a rank waits for just now."""

    ticket: int
    key: str = ""
    dead: str = ""
    value: Any = _NOTHING


@dataclass
class Client:
    """A worker's side of messages and the store.

    Parameters
    ----------
    line
        To the other ranks.
    workflow
        What modules there are.
    servers
        Ranks that hold values.
    metadata
        The rank that knows where they are.
    idle
        Called while waiting; returns whether it did something. In one process, the service's work.
    """

    line: Line
    workflow: Workflow
    servers: tuple[int, ...]
    metadata: int
    idle: Callable[[], bool] = bool
    address: Address = ("", 0, 0, 0)
    sent: dict[int, int] = field(default_factory=dict)  # by rank, since the start
    taken: int = 0
    puts: int = 0
    stored: int = 0
    stopped: str = ""
    run: int = -1  # the index of what runs
    _numbers: dict[Address, int] = field(default_factory=dict)
    _routes: dict[Address, int] = field(default_factory=dict)
    _inbox: list[Letter] = field(default_factory=list)
    _heard: dict[Address, int] = field(default_factory=dict)  # letters that were in their turn
    _early: dict[tuple[Address, int], Letter] = field(default_factory=dict)
    _ticket: int = 0
    _wait: _Wait | None = None

    @property
    def counts(self) -> Counts:
        """What was sent, taken and put so far."""
        return Counts(dict(self.sent), self.taken, self.puts)

    @property
    def turn(self) -> int:
        """The turn of the workflow that this rank's run belongs to."""
        return self.address[3]

    def begin(self, address: Address, run: int, letters: list[Letter]) -> None:
        """Be a rank of a run, for which letters have come before it started."""
        self.address, self.run, self.stopped = address, run, ""
        self._numbers, self._routes, self._heard, self._early = {}, {}, {}, {}
        self._inbox = []
        for letter in letters:
            self._deliver(letter)

    # ---- What modules ask for

    def send(self, receiver: Address, value: Any) -> None:
        """Send an object to a copy of a module, straight where its rank is known."""
        self.look()
        self.settle()
        number = self._numbers.get(receiver, 0)
        letter = Letter(self.address, receiver, number, pickle.dumps(value))
        self._numbers[receiver] = number + 1
        rank = self._routes.get(receiver)
        if rank is None:
            self.line.post(self.metadata, REQUEST, "mail", letter)
        else:
            self.sent[rank] = self.sent.get(rank, 0) + 1
            self.line.post(rank, MAIL, letter)

    def receive(self, module: str, copy: int | None, timeout: float | None) -> Any:
        """Return the first object that a module has sent and that was not taken yet."""
        who = f"module {module!r}" + ("" if copy is None else f", copy {copy}")

        def found() -> Any:
            for place, letter in enumerate(self._inbox):
                if letter.sender[0] == module and copy in (None, letter.sender[1]):
                    del self._inbox[place]
                    return letter.content
            return _NOTHING

        return pickle.loads(self._until(found, f"a message of {who}", "", timeout))

    def put(self, key: str, value: Any) -> None:
        """Send a value to the server of its key."""
        self.look()
        held = pickle.dumps(value)
        self.puts += 1
        self.line.post(server_of(key, self.servers), REQUEST, "put", key, held)

    def get(self, key: str, timeout: float | None) -> Any:
        """Return the value of a key, when it is there."""

        def found() -> Any:
            return _NOTHING if self._wait is None else self._wait.value

        return pickle.loads(self._until(found, f"the key {key!r}", key, timeout))

    def last(self) -> None:
        """Let no turn of the workflow come after this one."""
        self.look()
        self._tell("last")

    # ---- Waiting

    def settle(self) -> None:
        """Wait until all values that were put have arrived."""
        pause = Pause()
        while self.stored < self.puts:
            if not self._pump() and not self.idle():
                pause.rest()

    def look(self) -> None:
        """Take what has come; raise if the workflow has failed."""
        while self._pump():
            pass
        if self.stopped:
            raise WorkflowStopped(self.stopped)

    def _until(self, found: Callable[[], Any], what: str, key: str, timeout: float | None) -> Any:
        """Wait for something, and let the metadata rank know for what."""
        self.look()
        self.settle()
        self._ticket += 1
        wait = self._wait = _Wait(self._ticket, key)
        end = None if timeout is None else time.monotonic() + timeout
        pause, told = Pause(), -1
        try:
            while (value := found()) is _NOTHING:
                if self.stopped:
                    self.look()
                if wait.dead:
                    raise CommunicationError(wait.dead)
                if told != self.taken:
                    told = self.taken
                    self._tell("wait", wait.ticket, key, what, end is not None, self.counts)
                if self._pump():
                    continue
                if end is not None and time.monotonic() > end:
                    raise WorkflowTimeout(message(f"{what} has not come within {timeout:g} s"))
                if not self.idle():
                    pause.rest()
            return value
        finally:
            self._wait = None
            if told >= 0:
                self._tell("awake", wait.ticket)

    def _tell(self, *told: Any) -> None:
        self.line.post(self.metadata, REQUEST, *told)

    def _pump(self) -> bool:
        """Take one message, if there is one."""
        if (got := self.line.poll(ANSWER)) is not None:
            source, (word, *rest) = got
            getattr(self, f"_on_{word}")(source, *rest)
            return True
        if (got := self.line.poll(MAIL)) is not None:
            self.taken += 1
            self._deliver(got[1][0])
            return True
        return False

    def _deliver(self, letter: Letter) -> None:
        """Put a letter into the inbox, behind those that its sender has sent before."""
        if letter.receiver != self.address:
            return  # to a module that has ended here: nobody reads it any more
        self._early[letter.sender, letter.number] = letter
        while (
            turn := self._early.pop((letter.sender, self._heard.get(letter.sender, 0)), None)
        ) is not None:
            self._heard[letter.sender] = turn.number + 1
            self._inbox.append(turn)

    # ---- Answers

    def _on_stored(self, source: int) -> None:
        self.stored += 1

    def _on_route(self, source: int, receiver: Address, sender: Address, rank: int) -> None:
        if sender == self.address:
            self._routes[receiver] = rank

    def _on_at(self, source: int, ticket: int, server: int) -> None:
        if self._wait is not None and self._wait.ticket == ticket:
            self.line.post(server, REQUEST, "take", self._wait.key, ticket)

    def _on_value(self, source: int, ticket: int, held: bytes) -> None:
        if self._wait is not None and self._wait.ticket == ticket:
            self._wait.value = held

    def _on_dead(self, source: int, ticket: int, text: str) -> None:
        if self._wait is not None and self._wait.ticket == ticket:
            self._wait.dead = text

    def _on_stop(self, source: int, run: int, text: str) -> None:
        if run == self.run:
            self.stopped = text


def server_of(key: str, servers: tuple[int, ...]) -> int:
    """Return the rank that holds the value of a key: the same on all ranks.

    Examples
    --------
    >>> [server_of(key, (4, 5)) for key in ("weights", "loss", "step")]
    [4, 5, 4]
    """
    from zlib import crc32  # `hash` of a text differs between processes

    return servers[crc32(key.encode()) % len(servers)]
