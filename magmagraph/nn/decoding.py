"""What layers keep of earlier positions while a model generates one position after the other.

`mg.generate` calls a model's layers twice more: for the prompt, whose keys and values go into
caches, and for one position, which reads them. Layers that mix positions ask `current` whether
that is so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import GraphError, message
from ..ir.graph import Node
from ..ops.elementwise.comparison import less_equal
from ..ops.indexing.iota import arange
from ..ops.indexing.updates import index_update
from ..ops.leaf import Variable, variable
from ..ops.shape.arrange import reshape

if TYPE_CHECKING:
    from .layer import Layer

__all__ = ["Decoding", "current", "decoding", "not_causal"]


class Decoding:
    """Caches of keys and values, and at which positions a graph writes them.

    Parameters
    ----------
    rows, capacity
        Sequences, and the most positions of one.
    caches
        By layer and number of its call: two variables each, filled by the prompt's graph.
    positions
        Of the tokens of a step, int ``(rows, 1)``; None in the graph of the prompt, whose
        positions are 0, 1, 2, ...
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        caches: dict[tuple[int, int], tuple[Variable, Variable]],
        positions: Node | None = None,
    ) -> None:
        self.rows, self.capacity = rows, capacity
        self.caches, self.positions = caches, positions
        self.updates: dict[Variable, Node] = {}
        self._calls: dict[int, int] = {}

    def attend(self, layer: Layer, key: Node, value: Node) -> tuple[Node, Node, Node | None]:
        """Write keys and values, ``(rows, heads, length, dim)``; return what queries look at.

        Returns
        -------
        keys, values, mask
            In a step those of all positions up to its own, and which they are.
        """
        number = self._calls[id(layer)] = self._calls.get(id(layer), -1) + 1
        place = (id(layer), number)
        if place not in self.caches:
            self.caches[place] = (
                self._cache("keys", layer, key), self._cache("values", layer, value)
            )
        held = []
        for cache, new in zip(self.caches[place], (key, value), strict=True):
            if self.positions is None:
                where = (slice(None), slice(None), slice(0, new.shape[2]))
                self.updates[cache] = index_update(cache, where, new)
            else:
                heads = cache.shape[1]
                at = (
                    reshape(arange(self.rows), (self.rows, 1)),
                    reshape(arange(heads), (1, heads)),
                    self.positions,
                )
                self.updates[cache] = index_update(
                    cache, at, reshape(new, (self.rows, heads, new.shape[3]))
                )
            held.append(self.updates[cache])
        if self.positions is None:
            return key, value, None
        seen = less_equal(
            reshape(arange(self.capacity), (1, 1, 1, self.capacity)),
            reshape(self.positions, (self.rows, 1, 1, 1)),
        )
        return held[0], held[1], seen

    def _cache(self, what: str, layer: Layer, like: Node) -> Variable:
        shape = (self.rows, like.shape[1], self.capacity, like.shape[3])
        return variable(f"{layer.name}/{what}", shape, dtype=like.dtype)


_current: ContextVar[Decoding | None] = ContextVar("decoding", default=None)


def current() -> Decoding | None:
    """Return the caches of the graph that is being built, or None where it is no such graph."""
    return _current.get()


@contextmanager
def decoding(state: Decoding) -> Iterator[Decoding]:
    """Have layers that are called inside write to caches, and read them."""
    token = _current.set(state)
    try:
        yield state
    finally:
        _current.reset(token)


def not_causal(layer: Layer, why: str) -> GraphError:
    """Return the error of a layer that cannot give one position after the other."""
    return GraphError(
        message(
            f"generate: layer '{layer.name}' {why}",
            need="positions that depend on earlier ones alone",
            hint="causal=True; or cache=False, which computes all positions at every step",
        )
    )
