"""Maps in maps, derivatives of maps and maps of derivatives, over random programs.

What they must be is computed example by example. Each argument is mapped by both maps, by one of
them or by none, over axes anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from random_checks import interpreted
from random_domains import SIZES, Case
from random_ways import WAYS, Made, cut, floats_of, program_at

import magmagraph as mg
from magmagraph.ir.graph import Node
from magmagraph.ir.identity import index_of

OUTER, INNER = 2, 3
MOST = 40  # elements of what a Jacobian is taken of, and of what it is taken in


class Spread:
    """The arguments of a program, of which each has some mapped axes.

    Attributes
    ----------
    given
        Inputs with the mapped axes, and the arrays to feed.
    outer, inner
        Where the axes of the two maps stand: of all axes, and of those that the outer map leaves.
    """

    def __init__(self, case: Case, rng: np.random.Generator, inner_too: bool = True) -> None:
        self.case = case
        self.given: list[Node] = []
        self.feeds: list[np.ndarray] = []
        self.outer: list[int | None] = []
        self.inner: list[int | None] = []
        self.parts: list[np.ndarray] = []  # of each input, [outer, inner] in front
        count = len(case.inputs)
        outer = rng.uniform(size=count) < 0.7
        inner = rng.uniform(size=count) < (0.7 if inner_too else 0.0)
        outer[rng.integers(count)] = True
        if inner_too:
            inner[rng.integers(count)] = True
        for node, feed, out, into in zip(case.inputs, case.feeds, outer, inner, strict=True):
            shape = (OUTER if out else 1, INNER if into else 1)
            factor = rng.uniform(0.7, 1.0, (*shape, *(1,) * feed.ndim))
            scaled = np.asarray(feed * factor if feed.dtype.kind in "fc" else feed + 0 * factor)
            parts = scaled.astype(feed.dtype)
            self.parts.append(np.broadcast_to(parts, (OUTER, INNER, *feed.shape)))
            array, extents = (parts if into else parts[:, 0]), list(node.shape)
            at = int(rng.integers(feed.ndim + 1)) if into else None
            if at is not None:
                array = np.moveaxis(array, 1, 1 + at)
                extents.insert(at, INNER)
            above = int(rng.integers(array.ndim)) if out else None
            array = array[0] if above is None else np.moveaxis(array, 0, above)
            if above is not None:
                extents.insert(above, OUTER)
            self.inner.append(at)
            self.outer.append(above)
            self.given.append(mg.input(f"{node.name}_more", tuple(extents), node.dtype))
            self.feeds.append(np.ascontiguousarray(array))

    def mapped(self, function: Callable[..., Any]) -> Any:
        """Return what two maps make of a function."""
        return mg.vmap(mg.vmap(function, self.inner), self.outer)(*self.given)

    def mapped_once(self, function: Callable[..., Any]) -> Any:
        """Return what the outer map alone makes of it."""
        return mg.vmap(function, self.outer)(*self.given)

    def singles(self, target: Sequence[Node], inner: int = INNER) -> list[np.ndarray]:
        """Return the values of all examples, stacked twice."""
        results = [
            [
                interpreted(self.case.inputs, target, [part[i, j] for part in self.parts])
                for j in range(inner)
            ]
            for i in range(OUTER)
        ]
        return [
            np.stack([np.stack([one[place] for one in row]) for row in results])
            for place in range(len(target))
        ]


def _spread(case: Case, rng: np.random.Generator, inner_too: bool = True) -> Spread | None:
    short = cut(case)
    return None if short is None else Spread(short, rng, inner_too)


def maps_in_maps(case: Case, rng: np.random.Generator) -> Made | None:
    """Map outputs, and the gradients of each example, twice."""
    spread_case = _spread(case, rng)
    if spread_case is None:
        return None
    short, own = spread_case.case, floats_of(spread_case.case)
    target = [*short.outputs, short.loss]
    graded = bool(own) and rng.uniform() < 0.6

    def each(*xs: Node) -> list[Node]:
        results = list(program_at(short, target, xs))
        if graded:
            places = [index_of(short.inputs, n) for n in own]
            results += mg.grad(results[len(target) - 1], [xs[p] for p in places], unused="zeros")
        return results

    if graded:
        target += mg.grad(short.loss, own, unused="zeros")
        expected = spread_case.singles(target)
        target = target[: -len(own)]
    else:
        expected = spread_case.singles(target)
    return Made(spread_case.given, spread_case.mapped(each), spread_case.feeds, expected)


def gradients_of_maps(case: Case, rng: np.random.Generator) -> Made | None:
    """Differentiate a weighted sum of all losses: examples' gradients, summed where shared."""
    spread_case = _spread(case, rng)
    if spread_case is None:
        return None
    short, own = spread_case.case, floats_of(spread_case.case)
    if not own:
        return None
    weights = rng.uniform(-1.0, 1.0, (OUTER, INNER))
    losses = spread_case.mapped(lambda *xs: program_at(short, short.loss, xs))
    total = mg.sum(losses * weights.astype(losses.dtype))
    places = [index_of(short.inputs, n) for n in own]
    outputs = mg.grad(total, [spread_case.given[p] for p in places], unused="zeros")
    each = spread_case.singles(mg.grad(short.loss, own, unused="zeros"))
    expected = []
    for place, gradient in zip(places, each, strict=True):
        by_example = gradient * weights.reshape(OUTER, INNER, *(1,) * (gradient.ndim - 2))
        at, above = spread_case.inner[place], spread_case.outer[place]
        by_example = by_example.sum(1) if at is None else np.moveaxis(by_example, 1, 1 + at)
        expected.append(by_example.sum(0) if above is None else np.moveaxis(by_example, 0, above))
    return Made(spread_case.given, outputs, spread_case.feeds, expected)


def _small_pair(case: Case) -> tuple[Node, Node] | None:
    """Return an output and an input for a Jacobian."""
    for output in reversed(case.outputs):
        if np.dtype(output.dtype).kind != "f":
            continue
        if np.prod(output.type.concrete(SIZES)) > MOST:
            continue
        for node in floats_of(case):
            fits = np.dtype(node.dtype).kind == "f"
            if fits and np.prod(node.type.concrete(SIZES)) <= MOST and _reads(output, node):
                return output, node
    return None


def _reads(output: Node, node: Node) -> bool:
    seen, stack = {output}, [output]
    while stack:
        one = stack.pop()
        if one is node:
            return True
        stack += [i for i in one.inputs if i not in seen]
        seen.update(one.inputs)
    return False


def jacobians_of_maps(case: Case, rng: np.random.Generator) -> Made | None:
    """Take the Jacobian of a map (a block for each example), and map a Jacobian."""
    spread_case = _spread(case, rng, inner_too=False)
    pair = None if spread_case is None else _small_pair(spread_case.case)
    if spread_case is None or pair is None:
        return None
    short, (output, node) = spread_case.case, pair
    place = index_of(short.inputs, node)
    mode = ("reverse", "forward", "auto")[rng.integers(3)]
    jacobian = mg.jacobian(output, node, mode="reverse", unused="zeros")
    blocks = spread_case.singles([jacobian], inner=1)[0][:, 0]

    def alone(*xs: Node) -> Node:
        results: list[Node] = program_at(short, [output, short.loss], xs)  # which reads all inputs
        return results[0]

    def each(*xs: Node) -> Node:
        return mg.jacobian(alone(*xs), xs[place], mode=mode, unused="zeros")

    inside = spread_case.mapped_once(each)
    many = spread_case.mapped_once(alone)
    outside = mg.jacobian(many, spread_case.given[place], mode=mode, unused="zeros")
    above = spread_case.outer[place]
    whole = blocks
    if above is not None:
        at = 1 + output.ndim
        apart = np.zeros((*blocks.shape[:at], OUTER, *blocks.shape[at:]), blocks.dtype)
        for i in range(OUTER):
            apart[(i, *(slice(None),) * output.ndim, i)] = blocks[i]
        whole = np.moveaxis(apart, at, at + above)
    return Made(spread_case.given, [inside, outside], spread_case.feeds, [blocks, whole])


NESTED = {
    "maps in maps": maps_in_maps,
    "gradients of maps": gradients_of_maps,
    "jacobians of maps": jacobians_of_maps,
}
WAYS.update(NESTED)
