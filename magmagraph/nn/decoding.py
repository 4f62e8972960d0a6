"""What layers keep of earlier positions while a model generates one position after the other.

`mg.generate` calls a model's layers twice more: for the prompt, whose keys and values go into
caches, and for one position, which reads them. Layers that mix positions ask `current` whether
that is so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import GraphError, message
from ..ir.graph import Node
from ..ops.convert import as_node
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import less, maximum, where
from ..ops.elementwise.math import exp
from ..ops.indexing.gathering import SCATTER_ADD, take
from ..ops.indexing.iota import arange
from ..ops.indexing.updates import index_update
from ..ops.leaf import Variable, variable
from ..ops.products.contraction import matmul
from ..ops.reduction.primitives import max, sum
from ..ops.shape.arrange import reshape, swapaxes
from ..ops.shape.creation import zeros

if TYPE_CHECKING:
    from .layer import Layer

__all__ = ["Decoding", "current", "decoding", "not_causal"]


class Decoding:
    """Caches of keys and values, and at which positions a graph writes them.

    A cache has a row for each position of each head of each sequence, and is zero where nothing was
    written. So a step adds its rows to it, which is done in place; what it looks at are the rows
    from before, and its own apart.

    rows, capacity: Sequences, and the most positions of one.
    caches: By layer and number of its call: two variables each, filled by the prompt's graph.
    lengths: In the graph of the prompt: how many positions each sequence has, int ``(rows,)``.
    positions: In the graph of a step: those of its tokens, int ``(rows, 1)``.
    parents: The sequences whose caches those of a step go on with, int ``(rows,)``; their own
        unless said.
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        caches: dict[tuple[int, int], tuple[Variable, Variable]],
        *,
        lengths: Node | None = None,
        positions: Node | None = None,
        parents: Node | None = None,
    ) -> None:
        self.rows, self.capacity, self.caches = rows, capacity, caches
        self.lengths, self.positions, self.parents = lengths, positions, parents
        self.updates: dict[Variable, Node] = {}
        self._calls: dict[int, int] = {}

    def attend(self, layer: Layer, query: Node, key: Node, value: Node) -> Node | None:
        """Write keys and values, and return what queries find; None of a prompt, which has all.

        All have the shape ``(rows, heads, length, dim)``; a head of keys and values serves a group
        of neighbouring heads of queries.
        """
        number = self._calls[id(layer)] = self._calls.get(id(layer), -1) + 1
        place = (id(layer), number)
        if self.positions is None:
            filled = [self._filled(name, layer, new) for name, new in _keys_and_values(key, value)]
            self.caches[place] = (filled[0], filled[1])
            return None
        keys, values = (
            self._renewed(cache, new)
            for cache, new in zip(self.caches[place], (key, value), strict=True)
        )
        heads = key.shape[1]
        groups = query.shape[1] // heads
        share = 1.0 / math.sqrt(query.shape[-1])
        q = multiply(reshape(query, (self.rows, heads, groups, query.shape[-1])), share)
        seen = less(
            reshape(arange(self.capacity), (1, 1, 1, self.capacity)),
            reshape(self.positions, (self.rows, 1, 1, 1)),
        )
        scores = where(seen, matmul(q, swapaxes(keys, 2, 3)), as_node(-math.inf, q.dtype))
        own = sum(multiply(q, key), -1, keepdims=True)
        most = maximum(max(scores, -1, keepdims=True), own)
        weights, own_weight = exp(subtract(scores, most)), exp(subtract(own, most))
        total = add(sum(weights, -1, keepdims=True), own_weight)
        weighted_sum = add(matmul(weights, values), multiply(own_weight, value))
        return reshape(divide(weighted_sum, total), (self.rows, heads * groups, 1, value.shape[-1]))

    def _filled(self, name: str, layer: Layer, new: Node) -> Variable:
        """Return a new cache, which the graph of the prompt fills."""
        assert self.lengths is not None
        _, heads, length, width = new.shape
        size = (self.rows * heads * self.capacity, width)
        cache = variable(f"{layer.name}/{name}", size, 0, new.dtype)
        there = less(
            reshape(arange(length), (1, 1, length, 1)), reshape(self.lengths, (self.rows, 1, 1, 1))
        )
        begin = zeros((self.rows, heads, self.capacity, width), new.dtype)
        where_ = (slice(None), slice(None), slice(0, length))
        written = where(there, new, as_node(0.0, new.dtype))
        self.updates[cache] = reshape(index_update(begin, where_, written), size)
        return cache

    def _renewed(self, cache: Variable, new: Node) -> Node:
        """Return a cache from before a step, and have the step write its rows."""
        heads, width = new.shape[1], new.shape[3]
        before: Node = cache
        shape = (self.rows, heads, self.capacity, width)
        if self.parents is not None:
            before = reshape(take(reshape(cache, shape), self.parents, axis=0), cache.shape)
        first = multiply(reshape(arange(self.rows * heads), (self.rows, heads)), self.capacity)
        at = reshape(add(first, self.positions), (self.rows * heads,))
        rows = reshape(new, (self.rows * heads, width))
        self.updates[cache] = add(
            before, SCATTER_ADD(rows, at, axis=0, extent=cache.shape[0], mode="clip")
        )
        return reshape(before, shape)


def _keys_and_values(key: Node, value: Node) -> tuple[tuple[str, Node], ...]:
    return (("keys", key), ("values", value))


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
