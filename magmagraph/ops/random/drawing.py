"""Which random streams are handed out while something runs: a function that is traced, say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...ir.docstrings import documented
from ...ir.graph import Node


class Drawn:
    """The streams that were handed out, and so the random nodes that were made."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: set[tuple[int, int]] = set()

    def add(self, seed: int, stream: int) -> None:
        """Note a stream."""
        self._streams.add((seed, stream))

    def __contains__(self, node: Node) -> bool:
        return (node.attrs.get("seed"), node.attrs.get("stream")) in self._streams


_watching: ContextVar[tuple[Drawn, ...]] = ContextVar("watching", default=())


@contextmanager
@documented
def drawing() -> Iterator[Drawn]:
    """Note the streams that this thread is handed out.

    >>> before = mg.random.uniform((2,))
    >>> with drawing() as drawn:
    ...     inside = mg.random.uniform((2,))
    >>> bits = {n: n for n in mg.ir.graph.topological([before, inside]) if n in drawn}
    >>> len(bits)
    1
    """
    streams = Drawn()
    token = _watching.set((*_watching.get(), streams))
    try:
        yield streams
    finally:
        _watching.reset(token)


def note(seed: int, stream: int) -> None:
    """Tell all who watch that a stream was handed out."""
    for streams in _watching.get():
        streams.add(seed, stream)
