"""Recurrent layers: RNN, GRU and LSTM as scans over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autodiff.transforms.scanning import scan
from ...ir.graph import Node
from ...ops.convert import cast
from ...ops.elementwise.comparison import clip, less, where
from ...ops.elementwise.math import tanh
from ...ops.leaf import constant
from ...ops.networks.activation import relu, sigmoid, softplus
from ...ops.networks.exponential_units import elu, softsign
from ...ops.networks.slopes import leaky_relu
from ...ops.products.contraction import matmul
from ...ops.shape.arrange import expand_dims, transpose
from ...ops.shape.creation import zeros
from ...ops.shape.joining import stack
from .elementwise import hard_sigmoid
from .operator import Operator, Rule
from .shapes import iota

__all__ = ["RECURRENT"]

Activation = Callable[[Node], Node]
# Activation -> the function of a value, alpha and beta; and the defaults of these.
_ACTIVATIONS: dict[str, tuple[Callable[[Node, float, float], Node], float, float]] = {
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "elu": (lambda x, a, b: elu(x, a), 1.0, 0.0),
    "hardsigmoid": (hard_sigmoid, 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: leaky_relu(x, a), 0.01, 0.0),
    "relu": (lambda x, a, b: relu(x), 0.0, 0.0),
    "scaledtanh": (lambda x, a, b: tanh(x * b) * a, 1.0, 1.0),
    "sigmoid": (lambda x, a, b: sigmoid(x), 0.0, 0.0),
    "softplus": (lambda x, a, b: softplus(x), 0.0, 0.0),
    "softsign": (lambda x, a, b: softsign(x), 0.0, 0.0),
    "tanh": (lambda x, a, b: tanh(x), 0.0, 0.0),
    "thresholdedrelu": (lambda x, a, b: where(less(a, x), x, 0.0), 1.0, 0.0),
}


def _activations(op: Operator, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """Return the activations of each direction."""
    words = op.get("activations") or list(defaults) * directions
    if len(words) != len(defaults) * directions:
        raise op.refuse(f"activations={words} for {directions} directions")
    alphas, betas = list(op.get("activation_alpha") or []), list(op.get("activation_beta") or [])
    functions = []
    for word in words:
        if word.lower() not in _ACTIVATIONS:
            raise op.refuse(f"the activation {word!r}", f"one of {', '.join(_ACTIVATIONS)}")
        function, alpha, beta = _ACTIVATIONS[word.lower()]
        a = alphas.pop(0) if alphas and word.lower() in _WITH_ALPHA else alpha
        b = betas.pop(0) if betas and word.lower() in _WITH_BETA else beta
        functions.append(_bound(op, function, a, b))
    count = len(defaults)
    return [functions[i * count : (i + 1) * count] for i in range(directions)]


_WITH_ALPHA = ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
_WITH_BETA = ("affine", "hardsigmoid", "scaledtanh")


def _bound(op: Operator, function: Any, alpha: float, beta: float) -> Activation:
    limit = op.get("clip")

    def activation(x: Node) -> Node:
        value: Node = function(x if limit is None else clip(x, -limit, limit), alpha, beta)
        return value

    return activation


def _parts(x: Node, count: int) -> list[Node]:
    """Return equal parts along the last axis."""
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


# Steps: from what the input and the state give to the new state.


def _rnn_step(op: Operator, weights: Any, active: list[Activation]) -> Any:
    r, bias, _ = weights

    def step(x: Node, state: tuple[Node, ...]) -> tuple[Node, ...]:
        return (active[0](x + matmul(state[0], r) + bias[0] + bias[1]),)

    return step


def _gru_step(op: Operator, weights: Any, active: list[Activation]) -> Any:
    r, bias, _ = weights
    linear = bool(op.get("linear_before_reset", 0))
    size = r.shape[0]
    by_gates, by_hidden = r[:, : 2 * size], r[:, 2 * size :]
    wb, rb = bias

    def step(x: Node, state: tuple[Node, ...]) -> tuple[Node, ...]:
        h = state[0]
        gates = x[..., : 2 * size] + matmul(h, by_gates) + wb[: 2 * size] + rb[: 2 * size]
        z, reset = (active[0](part) for part in _parts(gates, 2))
        own, candidate = rb[2 * size :], x[..., 2 * size :] + wb[2 * size :]
        if linear:
            inner = candidate + reset * (matmul(h, by_hidden) + own)
        else:
            inner = candidate + matmul(reset * h, by_hidden) + own
        return ((1.0 - z) * active[1](inner) + z * h,)

    return step


def _lstm_step(op: Operator, weights: Any, active: list[Activation]) -> Any:
    r, bias, peepholes = weights
    coupled = bool(op.get("input_forget", 0))
    holes = _parts(peepholes, 3) if peepholes is not None else [constant(0.0, dtype=r.dtype)] * 3

    def step(x: Node, state: tuple[Node, ...]) -> tuple[Node, ...]:
        h, c = state
        i, o, f, g = _parts(x + matmul(h, r) + bias[0] + bias[1], 4)
        i = active[0](i + holes[0] * c)
        f = 1.0 - i if coupled else active[0](f + holes[2] * c)
        cell = f * c + i * active[1](g)
        o = active[0](o + holes[1] * cell)
        return o * active[2](cell), cell

    return step


def recurrent(gates: int, states: int, defaults: Sequence[str], step_of: Any) -> Rule:
    """Return the rule of a recurrent layer with so many gates and states."""

    def rule(op: Operator) -> tuple[Node, ...]:
        x, w, r = op.node(0), op.node(1), op.node(2)
        first = bool(op.get("layout", 0))  # batch axes are in front
        if first:
            x = transpose(x, (1, 0, 2))
        directions = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
        word = op.get("direction", "forward")
        if word not in directions:
            raise op.refuse(f"direction={word!r}")
        backward = directions[word]
        count = len(backward)
        length, batch = x.shape[:2]
        size = r.shape[-1]
        lengths = op.optional(4)
        active = _activations(op, defaults, count)
        ys, lasts = [], [[] for _ in range(states)]  # type: list[Node], list[list[Node]]
        for d, back in enumerate(backward):
            bias = op.node(3)[d] if op.has(3) else zeros((2 * gates * size,), dtype=x.dtype)
            halves = (bias[: gates * size], bias[gates * size :])
            peepholes = op.optional(7)
            weights = (transpose(r[d]), halves, None if peepholes is None else peepholes[d])
            starts = tuple(_start(op, 5 + s, d, first, (batch, size), x) for s in range(states))
            rows = matmul(x, transpose(w[d]))  # of all times at once
            y, last = _over_time(
                rows, starts, step_of(op, weights, active[d]), lengths, bool(back), length
            )
            ys.append(y)
            for values, value in zip(lasts, last, strict=True):
                values.append(value)
        y = stack(ys, axis=1)  # (time, direction, batch, size)
        ends = [stack(values) for values in lasts]
        if first:
            y = transpose(y, (2, 0, 1, 3))
            ends = [transpose(end, (1, 0, 2)) for end in ends]
        return (y, *ends)

    return rule


def _start(op: Operator, index: int, d: int, first: bool, shape: Any, x: Node) -> Node:
    if not op.has(index):
        start: Node = zeros(shape, dtype=x.dtype)
        return start
    initial = op.node(index)
    return initial[:, d] if first else initial[d]


def _over_time(
    rows: Node, starts: tuple[Node, ...], step: Any, lengths: Node | None, back: bool, length: Any
) -> tuple[Node, tuple[Node, ...]]:
    """Return the states of all times, and the last ones."""
    if lengths is None:
        def plain(state: tuple[Node, ...], row: Node) -> tuple[Any, Node]:
            after = step(row, state)
            return after, after[0]

        last, y = scan(plain, starts, rows, reverse=back)
        return y, last
    times = iota(length, 0, 2)
    inside = less(times, expand_dims(cast(lengths, "int64"), 0))  # (time, batch)

    def masked(state: tuple[Node, ...], row: tuple[Node, Node]) -> tuple[Any, Node]:
        x, alive = row
        alive = expand_dims(alive, 1)
        after = step(x, state)
        kept = tuple(where(alive, new, old) for new, old in zip(after, state, strict=True))
        return kept, where(alive, after[0], 0.0)

    last, y = scan(masked, starts, (rows, inside), reverse=back)
    return y, last


RECURRENT: dict[str, Rule] = {
    "GRU": recurrent(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": recurrent(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    "RNN": recurrent(1, 1, ("Tanh",), _rnn_step),
}
