"""Random programs for the tests of passes, plans and runtimes: the same for the same seed.

Values stay of moderate size, so that results may be compared in other precisions; shapes use named
dimensions and literal ones; some programs contain gradients and updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, Trace, freeze

SIZES = {"n": 3, "m": 4}

Maker = Callable[["Builder"], Node | None]


@dataclass
class Program:
    """A user's graph with feeds that fit it.

    Attributes
    ----------
    inputs, outputs, updates
        As `mg.function` takes them.
    feeds
        An array for each input.
    """

    inputs: list[Node]
    outputs: list[Node]
    updates: dict[Node, Node]
    feeds: list[np.ndarray]

    def freeze(self) -> tuple[Graph, Trace]:
        """Return the frozen graph and its trace."""
        trace = Trace()
        graph = freeze(self.inputs, self.outputs, list(self.updates.items()), trace=trace)
        return graph, trace


class Builder:
    """Grows a program by one random operation at a time."""

    def __init__(self, seed: int, dtype: str = "float64") -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.inputs: list[Node] = []
        self.variables: list[Node] = []
        self.feeds: list[np.ndarray] = []
        self.nodes: list[Node] = []
        for name, shape in (("x", ("n", 3)), ("y", ("n", 3)), ("z", ("n", "m")), ("v", (3,))):
            self._input(name, shape)
        for name, shape in (("W", (3, 3)), ("b", (3,)), ("U", (3, 4))):
            value = self.rng.uniform(-1.0, 1.0, shape).astype(dtype)
            self.variables.append(mg.variable(name, init=value))
        self.nodes += [*self.inputs, *self.variables]

    def _input(self, name: str, shape: tuple[int | str, ...]) -> None:
        self.inputs.append(mg.input(name, shape, dtype=self.dtype))
        extents = tuple(SIZES.get(e, e) if isinstance(e, str) else e for e in shape)
        self.feeds.append(self.rng.uniform(-1.5, 1.5, extents).astype(self.dtype))

    def pick(self, ndim: int | None = None) -> Node:
        """Return a node made so far (of some number of axes), late ones more often."""
        fitting = [node for node in self.nodes if ndim is None or node.ndim == ndim]
        if not fitting:
            fitting = self.inputs[:1]
        position = int(len(fitting) * np.sqrt(self.rng.uniform()))
        return fitting[min(position, len(fitting) - 1)]

    def like(self, node: Node) -> Node:
        """Return another node of the same shape, or a constant."""
        fitting = [other for other in self.nodes if other.shape == node.shape]
        if not fitting or self.rng.uniform() < 0.2:
            return mg.constant(float(self.rng.choice([0.0, 1.0, -1.0, 2.0, 0.5, 0.3])), self.dtype)
        return fitting[self.rng.integers(len(fitting))]

    def axis(self, node: Node) -> int:
        """Return one of the node's axes."""
        return int(self.rng.integers(node.ndim))

    def grow(self, count: int) -> None:
        """Apply `count` random operations."""
        while count:
            maker = _MAKERS[self.rng.integers(len(_MAKERS))]
            node = maker(self)
            if node is not None and node.ndim <= 3:
                self.nodes.append(node)
                count -= 1


def _bounded(node: Node) -> Node:
    return mg.tanh(node)


def unary(build: Builder) -> Node:
    """Return an operation of one value."""
    x = build.pick()
    functions: list[Callable[[Node], Node]] = [
        mg.tanh,
        mg.sigmoid,
        mg.sin,
        mg.negative,
        mg.relu,
        lambda a: mg.exp(_bounded(a)),
        lambda a: mg.log(mg.exp(_bounded(a)) + 1.0),
        lambda a: mg.sqrt(mg.square(a) + 1.0),
        lambda a: mg.log(mg.sigmoid(a)),
        lambda a: _bounded(a) ** 2,
        lambda a: 1.0 / (1.0 + mg.exp(-_bounded(a))),
        lambda a: mg.stop_gradient(a) * 1.0 + 0.0,
        lambda a: mg.absolute(-a),
    ]
    return functions[build.rng.integers(len(functions))](x)


def binary(build: Builder) -> Node:
    """Return an operation of two values of one shape."""
    x = build.pick()
    y = build.like(x)
    functions: list[Callable[[Node, Node], Node]] = [
        mg.add,
        mg.subtract,
        lambda a, b: _bounded(a) * _bounded(b),
        mg.maximum,
        lambda a, b: a / (mg.square(b) + 1.0),
        lambda a, b: mg.where(mg.greater(a, b), a, b * 0.5),
        lambda a, b: a + (-b),
    ]
    first, second = (x, y) if build.rng.uniform() < 0.7 else (y, x)
    return functions[build.rng.integers(len(functions))](first, second)


def reduced(build: Builder) -> Node | None:
    """Return a reduction along an axis, or all."""
    x = build.pick()
    if not x.ndim:
        return None
    function = [mg.sum, mg.mean, mg.max, mg.logsumexp][build.rng.integers(4)]
    axis = build.axis(x) if build.rng.uniform() < 0.7 else None
    return _bounded(function(x, axis=axis, keepdims=bool(build.rng.integers(2))))


def normalized(build: Builder) -> Node | None:
    """Return a normalization along an axis."""
    x = build.pick()
    if not x.ndim:
        return None
    axis = build.axis(x)
    if build.rng.uniform() < 0.5:
        return mg.softmax(x, axis=axis)
    power = mg.exp(_bounded(x))
    return mg.log(power / mg.sum(power, axis=axis, keepdims=True))


def moved(build: Builder) -> Node | None:
    """Return a value whose elements stand elsewhere."""
    x = build.pick()
    if x.ndim < 1:
        return mg.reshape(x, (1,))
    functions: list[Callable[[Node], Node]] = [
        mg.transpose,
        lambda a: mg.reshape(a, (-1,)),
        lambda a: mg.expand_dims(a, build.axis(a)),
        lambda a: mg.flip(a, build.axis(a)),
        lambda a: mg.concatenate([a, a], axis=build.axis(a)),
        lambda a: a[..., ::-1],
        lambda a: mg.transpose(mg.transpose(a)),
    ]
    return functions[build.rng.integers(len(functions))](x)


def cut(build: Builder) -> Node | None:
    """Return a part of a value's last axis."""
    x = build.pick()
    if not x.ndim or not isinstance(x.shape[-1], int) or x.shape[-1] < 2:
        return None
    return x[..., 1:] if build.rng.uniform() < 0.5 else x[..., ::2]


def _product(build: Builder) -> Node:
    x = build.pick(2)
    if x.shape[1] == 3:
        weight = build.variables[0] if build.rng.uniform() < 0.5 else build.variables[2]
        return _bounded(x @ weight)
    return _bounded(mg.transpose(x) @ x)


_MAKERS: tuple[Maker, ...] = (
    *(unary, unary, unary, binary, binary, binary),
    *(reduced, normalized, moved, cut, _product),
)


def random_program(
    seed: int, operations: int = 20, *, gradients: bool = True, dtype: str = "float64"
) -> Program:
    """Return a random program; a failure should print its seed.

    Parameters
    ----------
    seed
        Of the program and of its feeds.
    operations
        How many random operations it is made of.
    gradients
        Add gradients of a loss, and updates of variables by them.
    """
    build = Builder(seed, dtype)
    build.grow(operations)
    results = build.nodes[-3:]
    outputs = list(results)
    updates: dict[Node, Node] = {}
    if gradients:
        loss = mg.mean(_bounded(results[0]))
        for node in results[1:]:
            loss = loss + mg.sum(_bounded(node))
        targets = [*build.variables, build.inputs[0]]
        gradients_of = mg.grad(loss, targets, unused="zeros")
        outputs.append(loss)
        if build.rng.uniform() < 0.5:
            outputs.append(gradients_of[-1])
        for variable, gradient in zip(build.variables, gradients_of, strict=False):
            updates[variable] = variable * (1.0 - 0.01) - 0.1 * gradient
    return Program(build.inputs, outputs, updates, build.feeds)
