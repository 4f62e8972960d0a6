"""What may be made of a random program, and what its values must then be.

A way turns a program into another one whose outputs are known from the first: mapped over an axis,
in a loop, in a branch, recomputed, differentiated forwards or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from random_checks import gradients, interpreted
from random_domains import SIZES, Case

import magmagraph as mg
from magmagraph.ir.graph import Node, topological
from magmagraph.ir.identity import is_among


class Made(NamedTuple):
    """A program with feeds, and the values that its outputs must have."""

    inputs: list[Node]
    outputs: list[Node]
    feeds: list[np.ndarray]
    wanted: list[np.ndarray]


Way = Callable[[Case, np.random.Generator], Made | None]


def floats_of(case: Case) -> list[Node]:
    differentiable = set(gradients(case))
    return [n for n in case.inputs if n in differentiable]


def _stacked(case: Case, rng: np.random.Generator, count: int) -> list[list[np.ndarray]]:
    """Return lists of feeds that differ."""
    return [
        [
            np.asarray(
                feed * rng.uniform(0.7, 1.0) if feed.dtype.kind in "fc" else feed, feed.dtype
            )
            for feed in case.feeds
        ]
        for _ in range(count)
    ]


def program_at(case: Case, target: Any, nodes: Sequence[Node]) -> Any:
    """Return a target of the case, computed from other nodes than its inputs."""
    return mg.substitute(target, dict(zip(case.inputs, nodes, strict=True)))


def _reached(case: Case, target: Sequence[Node]) -> list[Node]:
    """Return the inputs that a target depends on: only these may be replaced."""
    inside = set(topological(list(target)))
    return [node for node in case.inputs if node in inside]


def cut(case: Case) -> Case | None:
    """Return the case with the inputs that its outputs and loss read, if any."""
    target = [*case.outputs, *([case.loss] if case.loss is not None else [])]
    read_inputs = _reached(case, target)
    loss = case.loss
    if not read_inputs or loss is None or not set(read_inputs) <= set(_reached(case, [loss])):
        return None
    feeds = [f for n, f in zip(case.inputs, case.feeds, strict=True) if is_among(n, read_inputs)]
    return Case(read_inputs, case.outputs, feeds, loss)


def _fresh(case: Case, *ahead: int) -> list[Node]:
    return [
        mg.input(f"{node.name}_more", (*ahead, *node.shape), node.dtype) for node in case.inputs
    ]


def mapped(case: Case, rng: np.random.Generator) -> Made | None:
    """Map outputs, and the gradients of each example, over an axis of all inputs."""
    short = cut(case)
    if short is None:
        return None
    target = [*short.outputs, short.loss]
    wrt = floats_of(short)
    if wrt and rng.uniform() < 0.6:
        target += mg.grad(short.loss, wrt, unused="zeros")
    stacks = _stacked(short, rng, 3)
    varied = [n for n in short.inputs if rng.uniform() < 0.8] or short.inputs[:1]
    for feeds in stacks:  # the others are shared: those of the first
        for place, node in enumerate(short.inputs):
            if not is_among(node, varied):
                feeds[place] = stacks[0][place]
    target = [t for t in target if not set(varied).isdisjoint(_reached(short, [t]))]
    more = {n: mg.input(f"{n.name}_more", (3, *n.shape), n.dtype) for n in varied}
    outputs = mg.vmap(target, more)
    singles = [interpreted(short.inputs, target, feeds) for feeds in stacks]
    expected = [np.stack([single[i] for single in singles]) for i in range(len(target))]
    inputs = [more.get(n, n) for n in short.inputs]
    feeds = [
        np.stack([s[i] for s in stacks]) if n in more else stacks[0][i]
        for i, n in enumerate(short.inputs)
    ]
    return Made(inputs, outputs, feeds, expected)


def looped(case: Case, rng: np.random.Generator) -> Made | None:
    """Sum the loss over a scan of the inputs, with its gradients."""
    short = cut(case)
    if short is None:
        return None
    stacks = _stacked(short, rng, 3)
    more = _fresh(short, 3)
    checkpoint = [False, True, 2, "sqrt"][rng.integers(3)]

    def step(carry: Node, xs: Any) -> tuple[Node, Any]:
        results = program_at(short, [short.loss, *short.outputs[-2:]], xs)
        return carry + results[0], (results[1:])

    total, rows = mg.scan(
        step, mg.constant(0.0, short.loss.dtype), more, reverse=bool(rng.integers(2)),
        checkpoint=checkpoint,
    )  # fmt: skip
    wrt = [m for m, n in zip(more, short.inputs, strict=True) if is_among(n, floats_of(short))]
    outputs = [total, *rows, *mg.grad(total, wrt, unused="zeros")]
    own = [n for n in short.inputs if is_among(n, floats_of(short))]
    inner = mg.grad(short.loss, own, unused="zeros")
    each = [interpreted(short.inputs, [short.loss, *short.outputs[-2:], *inner], f) for f in stacks]
    expected = [np.stack([e[i] for e in each]) for i in range(len(each[0]))]
    expected[0] = expected[0].sum(0)
    feeds = [np.stack([s[i] for s in stacks]) for i in range(len(short.inputs))]
    return Made(more, outputs, feeds, expected)


def branched(case: Case, rng: np.random.Generator) -> Made | None:
    """Compute outputs, loss and gradients inside one of several branches."""
    short = cut(case)
    if short is None:
        return None
    which = mg.input("which", (), "int32")
    more = _fresh(short)
    own = [n for n in short.inputs if is_among(n, floats_of(short))]
    target = [short.loss, *short.outputs]

    def chosen(*xs: Node) -> Any:
        return program_at(short, target, xs)

    def other(*xs: Node) -> Any:
        return [t * 0 if t.dtype != np.bool_ else t for t in program_at(short, target, xs)]

    chosen_place = int(rng.integers(2))
    branches = [other, other]
    branches[chosen_place] = chosen
    results = mg.switch(which, branches, *more)
    wrt = [m for m, n in zip(more, short.inputs, strict=True) if is_among(n, own)]
    outputs = [*results, *mg.grad(results[0], wrt, unused="zeros")]
    expected = interpreted(
        short.inputs, [*target, *mg.grad(short.loss, own, unused="zeros")], short.feeds
    )
    return Made([which, *more], outputs, [np.int32(chosen_place), *short.feeds], expected)


def recomputed(case: Case, rng: np.random.Generator) -> Made | None:
    """Recompute in the backward pass, or give the program as one operation."""
    short = cut(case)
    if short is None:
        return None
    own = floats_of(short)
    outputs = [o for o in short.outputs if _reached(short, [o])]  # else nothing is recomputed
    target = [short.loss, *outputs]
    if rng.uniform() < 0.5:
        inputs = short.inputs
        policy = ("nothing", "contractions")[rng.integers(2)]
        results = mg.checkpoint(lambda *xs: program_at(short, target, xs), policy=policy)(*inputs)
    else:
        inputs = _fresh(short)
        results = mg.op_from_graph(short.inputs, target, name="whole")(*inputs)
    wrt = [m for m, n in zip(inputs, short.inputs, strict=True) if is_among(n, own)]
    loss = mg.tanh(results[0]) + results[0]
    plain = mg.tanh(short.loss) + short.loss
    plain_all = [plain, *outputs, *mg.grad(plain, own, unused="zeros")]
    all_outputs = [loss, *results[1:], *mg.grad(loss, wrt, unused="zeros")]
    return Made(inputs, all_outputs, short.feeds, interpreted(short.inputs, plain_all, short.feeds))


def forwards(case: Case, rng: np.random.Generator) -> Made | None:
    """Differentiate forwards: a loss's differential is that of its gradient."""
    short = cut(case)
    if short is None:
        return None
    own = floats_of(short)
    if not own:
        return None
    ways = [_direction(rng, n) for n in own]
    along_nodes = [mg.input(f"{n.name}_way", n.shape, n.dtype) for n in own]
    outputs = [mg.jvp(short.loss, own, along_nodes, unused="zeros")]
    slopes = interpreted(short.inputs, mg.grad(short.loss, own, unused="zeros"), short.feeds)
    along = sum(float(np.sum(np.real(np.conj(g) * w))) for g, w in zip(slopes, ways, strict=True))
    return Made(
        [*short.inputs, *along_nodes],
        [o[1] if isinstance(o, tuple) else o for o in outputs],
        [*short.feeds, *ways],
        [np.asarray(along, short.loss.dtype)],
    )


def _direction(rng: np.random.Generator, node: Node) -> np.ndarray:
    shape = node.type.concrete(SIZES)
    way = rng.standard_normal(shape)
    if np.dtype(node.dtype).kind == "c":
        way = way + 1j * rng.standard_normal(shape)
    return np.asarray(way, node.dtype)


def twice(case: Case, rng: np.random.Generator) -> Made | None:
    """Multiply the Hessian with a vector: the gradient of the gradient along it."""
    short = cut(case)
    if short is None or short.loss.dtype != np.float64:
        return None
    own = [n for n in floats_of(short) if np.dtype(n.dtype).kind == "f"]
    if not own:
        return None
    ways = [_direction(rng, n) for n in own]
    along = [mg.input(f"{n.name}_way", n.shape, n.dtype) for n in own]
    outputs = mg.hvp(short.loss, own, along, unused="zeros")
    gradient = mg.grad(short.loss, own, unused="zeros")

    def at(h: float) -> list[np.ndarray]:
        feeds = dict(zip(short.inputs, short.feeds, strict=True))
        feeds.update({n: feeds[n] + h * w for n, w in zip(own, ways, strict=True)})
        return interpreted(short.inputs, gradient, list(feeds.values()))

    def differences(h: float) -> list[np.ndarray]:
        return [
            (8.0 * (b - a) - (d - c)) / (12.0 * h)
            for a, b, c, d in zip(at(-h), at(h), at(-2.0 * h), at(2.0 * h), strict=True)
        ]

    expected, again = differences(1e-3), differences(4e-4)
    for a, b in zip(expected, again, strict=True):
        if not np.allclose(a, b, rtol=1e-5, atol=1e-5):
            return None  # a kink between
    return Made([*short.inputs, *along], outputs, [*short.feeds, *ways], again)


WAYS: dict[str, Way] = {
    "mapped": mapped,
    "looped": looped,
    "branched": branched,
    "recomputed": recomputed,
    "forwards": forwards,
    "twice": twice,
}
