"""Random programs over random shapes: what `random_graphs` has, and gathers, scans, loops, copies.

Extents lie around the widths of vectors, 0 and 1 among them; some are named, so that one function
is called with several sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from random_graphs import Builder, Maker, binary, cut, moved, normalized, reduced, unary

import magmagraph as mg
from magmagraph.errors import ShapeError
from magmagraph.ir.graph import Node
from magmagraph.ir.identity import is_among

EXTENTS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 65)
NAMES = ("n", "m")
MOST = 3000  # elements of a value, for any of the sizes


@dataclass
class Sized:
    """A user's graph, with feeds for several sizes of its dimensions.

    Attributes
    ----------
    inputs, outputs, updates
        As `mg.function` takes them.
    feeds
        Lists of an array for each input.
    """

    inputs: list[Node]
    outputs: list[Node]
    updates: dict[Node, Node]
    feeds: list[list[np.ndarray]]


class ShapedBuilder(Builder):
    """Grows a program whose leaves have random shapes."""

    def __init__(self, seed: int, dtype: str, calls: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.inputs, self.variables, self.nodes = [], [], []
        self.sizes = [
            {name: int(self.rng.choice((0, *EXTENTS) if i else EXTENTS)) for name in NAMES}
            for i in range(calls)
        ]
        self.dims: list[int | str] = [*NAMES, *map(int, self.rng.choice(EXTENTS, 2))]
        for i in range(3):
            shape = tuple(self.dims[d] for d in sorted(self.rng.choice(4, 2, replace=False)))
            self.inputs.append(mg.input(f"x{i}", shape, dtype))
        self.inputs.append(mg.input("row", (self.dims[self.rng.integers(4)],), dtype))
        for i in range(2):
            value = self.rng.uniform(-1.0, 1.0, self.dims[2:]).astype(dtype)
            self.variables.append(mg.variable(f"v{i}", init=value))
        self.positions = [mg.input(f"at{i}", (self.dims[i],), "int32") for i in (0, 2)]
        self.nodes += [*self.inputs, *self.variables]
        self.inputs += self.positions

    def fits(self, node: Node) -> bool:
        """Return whether a value has few axes, few elements, and may have all of the sizes."""
        seen: set[Node] = set()
        stack = [node]
        while stack:
            here = stack.pop()
            if here in seen or is_among(here, self.nodes):
                continue
            seen.add(here)
            if not all(c.check(sizes) for c in here.constraints for sizes in self.sizes):
                return False
            stack += here.inputs
        counts = [node.type.concrete(sizes) for sizes in self.sizes]
        return node.ndim <= 3 and all(np.prod(count) <= MOST for count in counts)

    def grow(self, count: int) -> None:
        """Apply `count` random operations; what does not fit is left out."""
        while count:
            count -= 1
            maker = MAKERS[self.rng.integers(len(MAKERS))]
            try:
                node = maker(self)
            except ShapeError:
                continue
            if node is not None and self.fits(node):
                self.nodes.append(node)

    def fed(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """Return an array for each input."""
        feeds = []
        for node in self.inputs:
            shape = node.type.concrete(dict(sizes))
            if is_among(node, self.positions):
                feeds.append(self.rng.integers(-9, 9, shape).astype(node.dtype))
            else:
                feeds.append(self.rng.uniform(-1.5, 1.5, shape).astype(node.dtype))
        return feeds


def _copied(build: ShapedBuilder) -> Node:
    return mg.positive(build.pick())


def _gathered(build: ShapedBuilder) -> Node | None:
    x = build.pick()
    if not x.ndim or x.shape[0] in (0, *NAMES):  # nothing can be read where there may be nothing
        return None
    at = build.positions[build.rng.integers(2)]
    return x[at] if build.rng.uniform() < 0.5 else mg.take(x, at, axis=0, mode="wrap")


def _scattered(build: ShapedBuilder) -> Node | None:
    x = build.pick()
    if not x.ndim or x.shape[0] in (0, *NAMES):
        return None
    how = ("add", "max", "min")[build.rng.integers(3)]
    value = build.pick(0) if build.rng.uniform() < 0.5 else 0.25
    return getattr(x.at[build.positions[build.rng.integers(2)]], how)(mg.tanh(value))


def _accumulated(build: ShapedBuilder) -> Node | None:
    x = build.pick()
    if not x.ndim:
        return None
    function = (mg.cumsum, mg.cummax, mg.cumlogsumexp)[build.rng.integers(3)]
    return mg.tanh(function(x, axis=build.axis(x)))


def _scanned(build: ShapedBuilder) -> Node | None:
    xs = build.pick()
    carries = [node for node in build.nodes if node.shape == xs.shape[1:]]
    if not xs.ndim or not carries:
        return None
    scale, returned = build.rng.choice([0.5, 1.0]), build.rng.integers(2)

    def step(carry: Node, x: Node) -> tuple[Node, Node]:
        new = mg.tanh(carry * float(scale) + x)
        return new, new * 2.0

    start = carries[build.rng.integers(len(carries))]
    carry_and_rows: tuple[Node, Node] = mg.scan(
        step, start, xs, reverse=bool(build.rng.integers(2))
    )
    return carry_and_rows[returned]


def _branched(build: ShapedBuilder) -> Node:
    x = build.pick()
    return mg.cond(
        mg.greater(mg.sum(build.pick()), 0.1),
        lambda a: mg.sum(mg.tanh(a)) + a,
        lambda a: mg.exp(mg.tanh(a)) - a,
        x,
    )


def _multiplied(build: ShapedBuilder) -> Node:
    x = build.pick(2)
    fitting = [node for node in build.nodes if node.ndim == 2 and node.shape[0] == x.shape[1]]
    if not fitting or build.rng.uniform() < 0.3:
        return mg.tanh(x @ mg.transpose(x))
    return mg.tanh(x @ fitting[build.rng.integers(len(fitting))])


MAKERS: tuple[Maker, ...] = (
    *(unary, unary, unary, binary, binary, binary, reduced, reduced, normalized, moved, cut),
    *(_copied, _gathered, _scattered, _accumulated, _scanned, _branched, _multiplied),
)


def shaped_program(
    seed: int, operations: int = 18, *, dtype: str = "float64", calls: int = 3
) -> Sized:
    """Return a random program; a failure should print its seed.

    Parameters
    ----------
    seed
        Of the program and of its feeds.
    operations
        How many random operations are tried.
    dtype
        Of its floats.
    calls
        For how many sizes there are feeds.
    """
    build = ShapedBuilder(seed, dtype, calls)
    build.grow(operations)
    results = build.nodes[-4:]
    loss = sum((mg.mean(mg.tanh(node)) for node in results[1:]), mg.sum(mg.tanh(results[0])))
    gradients = mg.grad(loss, build.variables, unused="zeros")
    first, second = build.variables
    updates = {first: second - 0.1 * gradients[0], second: first + 0.5 * gradients[1]}
    outputs = [*results, *build.nodes[-8:-4:2], first]
    return Sized(build.inputs, outputs, updates, [build.fed(sizes) for sizes in build.sizes])
