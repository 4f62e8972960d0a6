"""A module's side of the tuple space: values that are cut over servers, and put together."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import CommunicationError, GraphError, MagmagraphError, message
from .space import Board, Pieces, Server, connect

__all__ = ["Piece", "Space", "Store", "WorkflowStopped", "WorkflowTimeout"]

CUT = 1 << 20  # bytes from which a value is cut over the servers
PART = 1 << 20  # bytes that a call of a server carries: larger ones are ten times slower
T = TypeVar("T")
# The name of a piece, its server, start and stop: servers import no class of this package.
Place = tuple[str, int, int, int]


class WorkflowStopped(MagmagraphError, RuntimeError):
    """The workflow has failed elsewhere: raised by calls of the context, to end the module."""


class WorkflowTimeout(MagmagraphError, TimeoutError):
    """A key or a message has not come within the time that was given."""


class Piece(NamedTuple):
    """A part of a value: the number of its server, and its bytes of the value."""

    server: int
    start: int
    stop: int


class Space:
    """The servers of a workflow, as one process uses them.

    Parameters
    ----------
    board
        The address of the metadata server; None for one that is an object of this process.
    servers
        The addresses of those that hold parts of large values; their number in one process.
    key
        What clients and servers prove to each other that they know.
    """

    def __init__(self, board: Server | None, servers: Sequence[Server] | int, key: bytes) -> None:
        self._address, self._key = board, key
        self.board: Board
        self.pieces: list[Pieces]
        if board is None:
            assert isinstance(servers, int)
            self.board, self.pieces = Board(), [Pieces() for _ in range(servers or 1)]
        else:
            assert not isinstance(servers, int)
            self._servers = tuple(servers)
            self.board, own = self.ask(connect, board, key)
            own_pieces = [self.ask(connect, s, key, server=i)[1] for i, s in enumerate(servers)]
            self.pieces = own_pieces or [own]

    def __reduce__(self) -> tuple[Any, ...]:
        return _space_of, (self._address, self._servers, self._key)

    @property
    def local(self) -> bool:
        """Whether the servers are objects of this process."""
        return self._address is None

    def ask(self, call: Callable[..., T], *arguments: Any, server: int | None = None) -> T:
        """Call a method of a server; a server that does not answer is an error that says so."""
        try:
            return call(*arguments)
        except (EOFError, ConnectionError, FileNotFoundError) as error:
            name = "the metadata server" if server is None else f"server {server}"
            raise CommunicationError(
                message(
                    f"{name} of the workflow does not answer ({type(error).__name__})",
                    need="a server process that lives as long as the workflow",
                )
            ) from error

    def wait(self, call: Callable[..., tuple[str, Any]], *arguments: Any) -> Any:
        """Call a method of the board, and raise its errors."""
        state, value = self.ask(call, *arguments)
        kinds = {"stopped": WorkflowStopped, "late": WorkflowTimeout, "dead": CommunicationError}
        if state != "done":
            raise kinds[state](value)
        return value

    def put(self, ticket: int, key: str, value: Any) -> None:
        """Cut a large value over the servers, and give its description to the board."""
        kind, content = encode(value)
        places: tuple[Place, ...] = ()
        if content.nbytes >= CUT:
            ends = np.linspace(0, content.nbytes, len(self.pieces) + 1).astype(int).tolist()
            name = f"{key} {uuid.uuid4().hex}"
            places = tuple((name, i, ends[i], ends[i + 1]) for i in range(len(self.pieces)))

            def send(pieces: Pieces, name: str, piece: Piece) -> None:
                for at in range(piece.start, piece.stop, PART):
                    pieces.put(name, at, bytes(content[at : min(at + PART, piece.stop)]))

            self._each(places, send)
        small = b"" if places else bytes(content)
        before = self.wait(self.board.put, ticket, key, kind, places, content.nbytes, small)
        if before:
            self._each(before[1], lambda pieces, name, piece: pieces.drop(name))

    def get(self, ticket: int, key: str, timeout: float | None) -> Any:
        """Wait for a key, and put its value together."""
        while True:
            kind, places, size, small = self.wait(self.board.get, ticket, key, timeout)
            if not places:
                return decode(kind, small)
            whole = bytearray(size)

            def take(pieces: Pieces, name: str, piece: Piece, whole: bytearray = whole) -> bool:
                for at in range(piece.start, piece.stop, PART):
                    part = pieces.get(name, at)
                    if part is None:
                        return False
                    whole[at : at + len(part)] = part
                return True

            if all(self._each(places, take)):
                return decode(kind, whole)
            # A later value has replaced this one meanwhile: get that.

    def where(self, key: str) -> list[tuple[Piece, int]]:
        """Return the parts of a value, and the number of bytes that each server holds of them."""
        location = self.ask(self.board.find, key)
        places = location[1] if location else ()
        sizes = self._each(places, lambda pieces, name, piece: pieces.size(name))
        return [(Piece(*place[1:]), size) for place, size in zip(places, sizes, strict=True)]

    def _each(
        self,
        places: Sequence[Place],
        call: Callable[[Pieces, str, Piece], T],
    ) -> list[T]:
        """Call something for each part, for all servers at the same time."""

        def one(place: Place) -> T:
            name, piece = place[0], Piece(*place[1:])
            return self.ask(call, self.pieces[piece.server], name, piece, server=piece.server)

        if self.local or not places:
            return [one(place) for place in places]
        with ThreadPoolExecutor(len(places)) as pool:
            return list(pool.map(one, places))

    def end(self) -> None:
        """End the processes of all servers."""
        for server in () if self.local else (self._address, *self._servers):
            with suppress(EOFError, OSError):  # it may have ended with its worker
                connect(server, self._key)[1].end()  # type: ignore[arg-type]


@lru_cache(4)
def _space_of(board: Server, servers: tuple[Server, ...], key: bytes) -> Space:
    """Return the space of a workflow: one for all modules that a process runs."""
    return Space(board, servers, key)


class Store:
    """Values by key, which all modules share: ``context.store``."""

    def __init__(self, space: Space, ticket: int) -> None:
        self._space, self._ticket = space, ticket

    def put(self, key: str, value: Any) -> None:
        """Give a key a value, in place of an earlier one; all modules see it from now on.

        A value of 1 MiB or more is cut into as many pieces as the workflow has servers. The bytes
        of an array are sent as they are, other values are pickled.

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
        CommunicationError
            A server does not answer.
        """
        self._space.put(self._ticket, _key(key), value)

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
            All modules that run wait, so that nobody can put it; or a server does not answer.
        WorkflowStopped
            The workflow has failed.
        """
        return self._space.get(self._ticket, _key(key), limit(timeout))

    def where(self, key: str) -> list[tuple[Piece, int]]:
        """Return the parts of a value and the number of bytes that their servers hold.

        An empty list is a value of less than 1 MiB, which the metadata server holds, or none.
        """
        return self._space.where(_key(key))


def check_stopped(space: Space, ticket: int) -> None:
    """Raise if the run of a ticket has to end."""
    if cause := space.ask(space.board.look, ticket):
        raise WorkflowStopped(cause)


def encode(value: Any) -> tuple[Any, memoryview]:
    """Return a description of a value and its bytes: those of an array, or a pickle.

    Examples
    --------
    >>> kind, held = encode(np.ones((2, 3), np.float32))
    >>> kind, held.nbytes
    (('<f4', (2, 3)), 24)
    """
    if type(value) is np.ndarray and np.dtype(value.dtype.str) == value.dtype != object:
        return (value.dtype.str, value.shape), _flat(np.ascontiguousarray(value).reshape(-1))
    return None, memoryview(pickle.dumps(value, protocol=5))


def decode(kind: Any, content: Any) -> Any:
    """Decode the output of `encode`.

    Examples
    --------
    >>> decode(*encode({"rate": 0.5}))
    {'rate': 0.5}
    """
    if kind is None:
        return pickle.loads(content)
    own = content if isinstance(content, bytearray) else bytearray(content)  # arrays can be written
    return np.frombuffer(own, kind[0]).reshape(kind[1])


def _flat(array: Any) -> memoryview:
    return memoryview(array.view(np.uint8))


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise GraphError(message(f"the key {key!r}", need="a text", hint=f"{str(key)!r}"))
    return key


def limit(timeout: float | None) -> float | None:
    """Return a time limit that is right."""
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
    ):
        raise GraphError(message(f"timeout={timeout!r}", need="seconds above 0, or None"))
    return timeout
