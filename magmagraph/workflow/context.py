"""What a module is given: where it runs, messages to other modules, the shared store."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..communicator import Communicator
from ..errors import CommunicationError, GraphError, MagmagraphError, message
from .line import ANSWER, MAIL, REQUEST, Address, Counts, Letter, Line, Pause
from .modules import Module, Workflow

__all__ = ["Client", "Context", "Store", "WorkflowStopped", "WorkflowTimeout"]

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
    address: Address = ("", 0, 0)
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


class Store:
    """Values by key, which all modules share: ``context.store``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, key: str, value: Any) -> None:
        """Give a key a value, in place of an earlier one; this never waits.

        Who is sent a message afterwards, or comes after this module, gets this value.

        Parameters
        ----------
        key
            A text.
        value
            Anything that can be pickled.

        Raises
        ------
        GraphError
            The key is no text.
        WorkflowStopped
            The workflow has failed.
        """
        self._client.put(_key(key), value)

    def get(self, key: str, timeout: float | None = None) -> Any:
        """Return the value of a key; wait until there is one.

        Parameters
        ----------
        key
            A text.
        timeout
            Seconds; None for as long as somebody can still put it.

        Raises
        ------
        GraphError
            The key is no text, or the time no number above 0.
        WorkflowTimeout
            It was not put in time.
        CommunicationError
            All modules that run wait, so that nobody can put it.
        WorkflowStopped
            The workflow has failed.
        """
        return self._client.get(_key(key), _limit(timeout))


class Context:
    """What the function of a module is called with.

    Attributes
    ----------
    module : str
        The module's name.
    copy, copies : int
        Which copy this is, from 0, of how many.
    iteration, iterations : int
        The same for iterations.
    communicator : Communicator
        The ranks of this copy, which is also what `mg.distributed` uses.
    rank, size : int
        This rank of it, and how many there are.
    ranks : tuple of int
        Their numbers in the job.
    threads : int
        Of a rank, as the file says; 0 where it does not.
    arguments : Mapping
        The module's table ``arguments``.
    output : Path
        The folder for files.
    store : Store
        Values that all modules share.
    """

    def __init__(
        self,
        client: Client,
        module: Module,
        copy: int,
        iteration: int,
        communicator: Communicator,
        ranks: tuple[int, ...],
    ) -> None:
        self._client = client
        self.module, self.arguments = module.name, module.arguments
        self.copy, self.copies = copy, module.copies
        self.iteration, self.iterations = iteration, module.iterations
        self.communicator, self.ranks = communicator, ranks
        self.rank, self.size = communicator.rank, communicator.size
        self.threads = module.threads
        self.store = Store(client)

    @property
    def output(self) -> Path:
        """The folder for files, which is made when it is asked for."""
        folder = self._client.workflow.output
        os.makedirs(folder, exist_ok=True)
        return folder

    def send(self, module: str, value: Any, copy: int = 0, rank: int = 0) -> None:
        """Send an object to a module; this does not wait for it to be read.

        Messages to a module that has not started are kept for it, those to one that has ended are
        dropped.

        Parameters
        ----------
        module
            The module's name.
        value
            Anything that can be pickled.
        copy, rank
            Which copy, and which of its ranks.

        Raises
        ------
        GraphError
            There is no such module, copy or rank, or it is a program.
        WorkflowStopped
            The workflow has failed.
        """
        found = self._function(module)
        for name, given, count in (("copy", copy, found.copies), ("rank", rank, found.processes)):
            if given not in range(count):
                raise GraphError(
                    message(
                        f"a message to module {module!r}, {name}={given!r}",
                        need=f"{name} from 0 to {count - 1}",
                    )
                )
        self._client.send((module, copy, rank), value)

    def receive(self, module: str, timeout: float | None = None, copy: int | None = None) -> Any:
        """Return the next object that a module has sent to this copy and rank; wait for it.

        Parameters
        ----------
        module
            Who sends; copies keep their own orders.
        timeout
            Seconds; None for as long as somebody can still send.
        copy
            Of the sender; any unless given.

        Raises
        ------
        GraphError
            There is no such module or copy, it is a program, or the time is no number above 0.
        WorkflowTimeout
            Nothing came in time.
        CommunicationError
            All modules that run wait, so that nobody can send it.
        WorkflowStopped
            The workflow has failed.
        """
        found = self._function(module)
        if copy is not None and copy not in range(found.copies):
            raise GraphError(
                message(
                    f"a message of module {module!r}, copy={copy!r}",
                    need=f"copy from 0 to {found.copies - 1}",
                )
            )
        return self._client.receive(module, copy, _limit(timeout))

    def _function(self, name: str) -> Module:
        modules = self._client.workflow.modules
        if name not in modules or modules[name].command:
            raise GraphError(
                message(
                    f"{name!r} is " + ("a program" if name in modules else "no module"),
                    need="one of " + ", ".join(n for n, m in modules.items() if m.function),
                )
            )
        return modules[name]

    def __repr__(self) -> str:
        place = f"copy {self.copy}, iteration {self.iteration}, rank {self.rank} of {self.size}"
        return f"<context of module {self.module}, {place}>"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise GraphError(message(f"the key {key!r}", need="a text", mend=f"{str(key)!r}"))
    return key


def _limit(timeout: float | None) -> float | None:
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
    ):
        raise GraphError(message(f"timeout={timeout!r}", need="seconds above 0, or None"))
    return timeout
