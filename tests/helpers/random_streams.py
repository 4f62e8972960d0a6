"""Random programs that draw: in expressions, loops, branches, maps and recomputed parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from random_domains import Case, Pairs

import magmagraph as mg
from magmagraph.ir.graph import Node


def _like(build: Pairs) -> tuple[Node, tuple[Any, ...]]:
    node = build.pick("f")[0]
    return node, node.shape


def drawn(build: Pairs) -> Node:
    """Return a draw of a random distribution, its parameters values made before."""
    x, shape = _like(build)
    positive = mg.square(x) + 0.3
    inside = mg.sigmoid(x)
    key = mg.random.key(int(build.rng.integers(9))) if build.rng.uniform() < 0.15 else None
    kind: dict[str, Any] = {"dtype": build.dtype, "key": key}
    whole: dict[str, Any] = {"dtype": "int32", "key": key}
    random = mg.random
    functions: tuple[Callable[[], Node], ...] = (
        lambda: random.uniform(shape, **kind) + x,
        lambda: random.uniform(shape, -1.0, x * 0.1 + 1.5, **kind),
        lambda: random.normal(shape, x, positive, **kind),
        lambda: random.normal(shape, **kind) * x,
        lambda: mg.where(random.bernoulli(shape, 0.3, key=key), x, x * 0.5),
        lambda: mg.cast(random.bernoulli(shape, inside, key=key), build.dtype) - x,
        lambda: mg.cast(random.randint(shape, -3, 9, **whole), build.dtype) * 0.1,
        lambda: random.permutation(x, axis=int(build.rng.integers(x.ndim)), key=key),
        lambda: random.gamma(shape, positive, **kind),
        lambda: random.beta(shape, positive, 1.5, **kind),
        lambda: random.exponential(shape, positive, **kind),
        lambda: random.truncated_normal(shape, -1.0, 1.5, **kind) + x,
        lambda: random.laplace(shape, x, positive, **kind),
        lambda: random.student_t(shape, positive + 2.0, **kind),
        lambda: random.gumbel(shape, **kind) - x,
        lambda: mg.cast(random.poisson(shape, positive, **whole), build.dtype),
        lambda: mg.cast(random.binomial(shape, 6, inside, **whole), build.dtype),
        lambda: random.dirichlet(positive, **kind),
        lambda: mg.cast(random.categorical(x, **whole), build.dtype),
        lambda: random.choice(x, (3,), key=key),
        lambda: random.choice(x, (1,), replace=False, key=key),
        lambda: random.rademacher(shape, **kind) * x,
        lambda: mg.dropout(x, 0.4),
        lambda: mg.dropout(x, mg.mean(inside)),
        lambda: mg.gumbel_softmax(x, 0.7),
        lambda: random.vonmises(shape, x, positive, **kind),
        lambda: random.weibull(shape, 1.5, positive, **kind),
        lambda: random.sphere(3, shape[:1], **kind),
        lambda: random.cauchy(shape, x, **kind),
        lambda: mg.spatial_dropout(mg.expand_dims(x, (0, -1)), 0.3)[0, ..., 0],
    )
    return build.some(functions)()


def _drawn(build: Pairs) -> None:
    build.add(drawn(build))


def _computed(build: Pairs) -> None:
    x, shape = _like(build)
    fitting = [node for node, _ in build.made if node.shape == shape]
    y = build.some(fitting)
    functions: tuple[Callable[[], Node], ...] = (
        lambda: x * y,
        lambda: mg.tanh(x) + y,
        lambda: x - mg.mean(x, axis=-1, keepdims=True),
        lambda: mg.sort(x, axis=-1),
        lambda: mg.concatenate([x, y], axis=0),
        lambda: x[..., ::-1],
        lambda: mg.sum(x, axis=0) if x.ndim > 1 else x,
        lambda: mg.stop_gradient(x) * y,
    )
    build.add(build.some(functions)())


def _looped(build: Pairs) -> None:
    x = build.pick("f", ndim=2)[0]
    scale = float(build.rng.uniform(0.2, 0.9))
    kind = build.some(("uniform", "normal"))
    row = x.shape[1:]

    def step(carry: Node, xs: Node) -> tuple[Node, Node]:
        noise = getattr(mg.random, kind)(row, dtype=build.dtype)
        new = mg.tanh(carry * scale + xs + noise)
        return new, mg.dropout(new, 0.3)

    checkpoint = build.some((False, True, 2))
    start = mg.zeros(row, build.dtype)
    last, rows = mg.scan(step, start, x, reverse=bool(build.rng.integers(2)), checkpoint=checkpoint)
    build.add(last if build.rng.uniform() < 0.3 else rows)


def _repeated(build: Pairs) -> None:
    x, shape = _like(build)

    def go(state: tuple[Node, Node]) -> tuple[Node, Node]:
        count, value = state
        return count + 1, value * 0.5 + mg.random.uniform(shape, dtype=build.dtype)

    build.add(mg.while_loop(lambda s: s[0] < 3, go, (mg.constant(0), mg.stop_gradient(x)))[1])


def _branched(build: Pairs) -> None:
    x, shape = _like(build)
    build.add(
        mg.cond(
            mg.random.bernoulli((), 0.5),
            lambda a: a + mg.random.uniform(shape, dtype=build.dtype),
            lambda a: mg.dropout(a, 0.5) * 2.0,
            x,
        )
    )


def _mapped(build: Pairs) -> None:
    x = build.pick("f", ndim=2)[0]

    def each(row: Node) -> Node:
        noise = mg.random.normal(row.shape, dtype=build.dtype)
        return row * noise + mg.random.permutation(row) + mg.random.uniform(dtype=build.dtype)

    build.add(mg.vmap(each)(x))


def _recomputed(build: Pairs) -> None:
    x, shape = _like(build)

    def block(a: Node) -> Node:
        return mg.dropout(mg.tanh(a * mg.random.uniform(shape, dtype=build.dtype)), 0.4)

    build.add(mg.checkpoint(block)(x) if build.rng.uniform() < 0.5 else mg.op_from_graph(block)(x))


MAKERS = (
    *(_drawn, _drawn, _drawn, _drawn, _computed, _computed, _computed),
    *(_looped, _repeated, _branched, _mapped, _recomputed),
)


def drawing(seed: int, dtype: str = "float32", operations: int = 9) -> Case:
    """Return a random program that draws; a failure should print its seed."""
    mg.random.seed(seed)
    build = Pairs(seed, dtype)
    n, m = (int(e) for e in build.rng.choice((1, 2, 3, 5, 8, 17), 2))
    build.leaf((n, m))
    build.leaf((n, m))
    build.leaf((m,))
    build.leaf(("batch", m))
    leaves = len(build.made)
    build.grow(MAKERS, operations)
    outputs = [node for node, _ in build.made[leaves:]]
    loss = sum((mg.mean(o) * (0.5 + 0.1 * i) for i, o in enumerate(outputs)), mg.constant(0.0))
    return Case(build.inputs, outputs, build.feeds, mg.cast(loss, dtype))
