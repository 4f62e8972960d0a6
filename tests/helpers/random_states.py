"""Random programs that keep something from call to call: updates, counters, optimizers, aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import magmagraph as mg
from magmagraph.ir.graph import Node
from magmagraph.ir.identity import is_among


class RegisterValues(NamedTuple):
    """A program with states, and feeds for some calls.

    Attributes
    ----------
    inputs, outputs, updates
        As `mg.function` takes them.
    feeds
        A list of arrays for each call.
    held
        All variables whose values are compared.
    """

    inputs: list[Node]
    outputs: list[Node]
    updates: dict[Node, Node]
    feeds: list[list[np.ndarray]]
    held: list[Any]


OPTIMIZERS: tuple[Callable[[], Any], ...] = (
    lambda: mg.optimizer.SGD(0.1, momentum=0.9),
    lambda: mg.optimizer.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda: mg.optimizer.SGD(mg.schedule.exponential(0.1, 0.9)),
    lambda: mg.optimizer.Adam(0.02),
    lambda: mg.optimizer.AdamW(0.02, clip_norm=0.5),
    lambda: mg.optimizer.Adam(0.02, accumulate=2),
    lambda: mg.optimizer.SGD(0.1, accumulate=3, clip_value=0.1),
    lambda: mg.optimizer.RMSProp(0.02),
    lambda: mg.optimizer.AdaGrad(0.05),
    lambda: mg.optimizer.LAMB(0.02),
    lambda: mg.optimizer.LARS(0.02),
)


def keeping(seed: int, dtype: str = "float64", calls: int = 4) -> RegisterValues:
    """Return a random program with states; a failure should print its seed."""
    rng = np.random.default_rng(seed)
    mg.random.seed(seed)
    n, m = (int(e) for e in rng.choice((1, 2, 3, 5, 8), 2))
    x = mg.input("x", (n, m), dtype)
    y = mg.input("y", ("rows", m), dtype)

    def held(name: str, *shape: int) -> Any:
        return mg.variable(name, init=rng.uniform(-1.0, 1.0, shape).astype(dtype))

    a, b, c, d = held("a", n, m), held("b", n, m), held("c", m, m), held("d", m)
    count = mg.variable("count", init=np.int32(0))
    values: list[Node] = [x, a, b, mg.stateful(x * 0.5, {count: count + 1}), x @ c, a + d]

    def one() -> Node:
        return values[rng.integers(len(values))]

    places = rng.integers(0, n, 3)
    makers: tuple[Callable[[], Node], ...] = (
        lambda: mg.tanh(one() + one()),
        lambda: one() * 0.9 + one() * 0.1,
        lambda: mg.positive(one()),
        lambda: mg.tanh(one() @ c),
        lambda: mg.flip(one(), 0),
        lambda: mg.roll(one(), 1, axis=1),
        lambda: one() - mg.mean(one(), axis=0),
        lambda: one().at[mg.constant(places)].add(0.1),
        lambda: one().at[0].set(d),
        lambda: mg.softmax(one(), axis=-1),
        lambda: mg.batch_norm(one(), axis=-1, eps=0.1),
        lambda: mg.dropout(one(), 0.3),
        lambda: mg.where(one() > 0.1, one(), one()),
        lambda: mg.sort(one(), axis=0),
        lambda: one() + mg.sum(y, axis=0),
        lambda: mg.stop_gradient(one()) * one(),
        lambda: mg.clip(one(), -0.5, 0.5),
        lambda: mg.reshape(mg.transpose(mg.reshape(one(), (m, n))), (n, m)),
    )
    for _ in range(int(rng.integers(3, 9))):
        values.append(makers[rng.integers(len(makers))]())
    loss = mg.mean(values[-1] ** 2) + mg.mean(mg.tanh(values[-2])) + mg.mean(mg.square(y @ c - d))
    loss = loss + 0.1 * mg.mean(a * a) + 0.1 * mg.mean(b * mg.sigmoid(b))  # each has a gradient
    parameters = [v for v in (a, b, c, d) if rng.uniform() < 0.6] or [c]
    updates: dict[Node, Node] = {}
    if rng.uniform() < 0.7:
        updates.update(OPTIMIZERS[rng.integers(len(OPTIMIZERS))]().updates(loss, parameters))
    rest = [v for v in (a, b) if v not in updates]
    if len(rest) == 2 and rng.uniform() < 0.5:  # they change places
        updates[a], updates[b] = b, a
    elif rest and rng.uniform() < 0.7:
        updates[rest[0]] = (values[-1], x, mg.positive(a), values[-3])[rng.integers(4)]
    state = [v for v in updates if not is_among(v, (a, b, c, d))]
    outputs = [loss, *(values[rng.integers(len(values))] for _ in range(3)), a, x]
    if rng.uniform() < 0.3:
        outputs.append(outputs[1])  # the same twice
    if updates and rng.uniform() < 0.4:
        outputs.append(next(iter(updates.values())))  # a new value is also a result
    feeds = [
        [
            rng.uniform(-1.5, 1.5, (n, m)).astype(dtype),
            rng.uniform(-1.5, 1.5, (int(rng.integers(1, 5)), m)).astype(dtype),
        ]
        for _ in range(calls)
    ]
    return RegisterValues([x, y], outputs, updates, feeds, [a, b, c, d, count, *state])
