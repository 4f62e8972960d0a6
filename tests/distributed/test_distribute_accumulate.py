"""Micro-batches of data-parallel ranks: the whole batch's numbers, and one message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharded import HALVES, UNEQUAL, Program, alone, assert_same, run, several
from test_distribute import CLOSE, OPTIMIZERS, ROWS, SGD, _labels, _layers

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel, Hybrid, Mesh, TensorParallel


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "float_dtype", "float64")
    monkeypatch.setattr(mg.config, "compile_budget", 0.0)  # what is computed counts, not by whom


def _notes(function: Any) -> list[str]:
    return next(record.notes for record in function.report if record.name == "distribute")


def _perceptron(rng: np.random.Generator, optimizer: Any = SGD) -> tuple[Any, list[np.ndarray]]:
    build = _layers(lambda: [nn.Dense(6, "tanh"), nn.Dense(3)], (4,), optimizer)
    return build, [rng.normal(size=(ROWS, 4)), _labels(rng)]


@pytest.mark.parametrize(
    ("cuts", "options"),
    [
        (((0, ROWS),), {"accumulate": 3}),  # of one rank
        (HALVES, {"accumulate": 3}),  # of 3 and 7 rows
        (UNEQUAL, {"accumulate": 2}),  # of 1, 4, no and 5 rows
        (HALVES, {"accumulate": 2, "algorithm": "ring"}),
        (HALVES, {"accumulate": 2, "algorithm": "parameter_server", "bucket_bytes": 0}),
    ],
)
def test_micro_batches_compute_what_the_whole_batch_does(rng, cuts, options):
    build, feeds = _perceptron(rng, OPTIMIZERS["adam"])
    one = alone(build, feeds)
    assert_same(one, several(build, feeds, cuts, lambda: DataParallel(**options)), cuts, CLOSE)


def test_statistics_and_random_numbers_are_those_of_the_batch(rng):
    build = _layers(lambda: [nn.Dense(6), nn.BatchNorm(), nn.Dropout(0.3), nn.Dense(3)], (4,), SGD)
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    one = alone(build, feeds, steps=2)
    ranks = several(build, feeds, HALVES, lambda: DataParallel(accumulate=2), steps=2)
    assert_same(one, ranks, HALVES, CLOSE)


def test_gradients_of_all_micro_batches_are_one_message(rng):
    build, feeds = _perceptron(rng)
    for many in (1, 2, 5):
        ranks = several(build, feeds, HALVES, lambda: DataParallel(accumulate=many), steps=1)  # noqa: B023
        rows, bucket = _notes(ranks[0].function)
        assert "sum of int64[]" in rows
        assert "sum of 5 arrays (416 bytes of float64)" in bucket  # loss, weights, biases


def test_a_rank_holds_the_activations_of_one_micro_batch():
    sizes = {}
    for many in (1, 4):
        x = mg.input("x", ("batch", 8), dtype="float32")
        weights = [mg.var(f"w{i}", init=np.ones(s, np.float32)) for i, s in
                   enumerate([(8, 64), (64, 64), (64, 64), (64, 1)])]  # fmt: skip
        value = x
        for weight in weights:
            value = mg.tanh(value @ weight)
        step = mg.optimizer.SGD(0.1).step(
            mg.mean(value**2), weights, inputs=[x], device="cpu",
            distribute=DataParallel(accumulate=many),
        )  # fmt: skip
        step(np.ones((4096, 8), np.float32))
        sizes[many] = step.memory.arena
    assert sizes[4] < 0.5 * sizes[1]


def test_loops_over_time(rng):
    build = _layers(lambda: [nn.LSTM(4), nn.Dense(3)], (3, 4), SGD)
    feeds = [rng.normal(size=(ROWS, 3, 4)), _labels(rng)]
    ranks = several(build, feeds, HALVES, lambda: DataParallel(accumulate=2), steps=2)
    assert_same(alone(build, feeds, steps=2), ranks, HALVES, CLOSE)
    assert len(_notes(ranks[0].function)) == 2  # none in the loop's turns


@pytest.mark.parametrize("checkpoint", [2, "sqrt"])
def test_loops_that_are_computed_again_in_pieces(rng, checkpoint):
    """Their gradients are loops in loops, with rows inside that nobody reads."""
    start = rng.normal(size=(3, 5)), 0.3 * rng.normal(size=(5, 5))

    def build() -> Program:
        x = mg.input("x", ("batch", 4, 3))
        u, v = (mg.var(f"w{i}", init=value) for i, value in enumerate(start))
        turn = lambda state, row: (mg.tanh(row @ u + state @ v), mg.sum(state, axis=1))  # noqa: E731
        zeros = mg.zeros((x.shape[0], 5))
        rows = mg.transpose(x, (1, 0, 2))
        last, sums = mg.scan(turn, zeros, rows, checkpoint=checkpoint)
        loss = mg.mean(last**2) + mg.mean(mg.sin(sums))
        return Program([x], [loss], SGD().updates(loss, [u, v]), [u, v])

    feeds = [rng.normal(size=(ROWS, 4, 3))]
    one = alone(build, feeds)
    for cuts in (((0, ROWS),), HALVES):
        ranks = several(build, feeds, cuts, lambda: DataParallel(accumulate=2))
        assert_same(one, ranks, cuts, CLOSE)


BY_POSITION = {
    "best": lambda h: mg.top_k(h, 2).values,
    "sorted": lambda h: mg.sort(h, axis=1) * np.arange(4.0),
    "positions": lambda h: mg.take_along_axis(h, mg.argsort(h, axis=1)[:, 1:3], axis=1),
    "first rows": lambda h: h * mg.cast(mg.argmax(h, axis=0) + mg.argmin(h, axis=0), "float64"),
    "products": lambda h: mg.prod(1.0 + 0.1 * h, axis=0) * mg.prod(h, axis=1, keepdims=True),
    "a row of zeros": lambda h: mg.prod(h - mg.max(h, axis=0), axis=0) + mg.prod(h),
}


@pytest.mark.parametrize("name", BY_POSITION)
@pytest.mark.parametrize("many", [1, 2, 3])
def test_positions_are_found_where_rows_are_cut_twice(rng, name, many):
    """Into ranks' rows, and these into micro-batches."""
    start = rng.normal(size=(4, 4))

    def build() -> Program:
        x, w = mg.input("x", ("batch", 4)), mg.var("w", init=start)
        loss = mg.mean(BY_POSITION[name](mg.tanh(x @ w)) ** 2)
        return Program([x], [loss], SGD().updates(loss, [w]), [w])

    feeds = [rng.normal(size=(ROWS, 4))]
    ranks = several(build, feeds, HALVES, lambda: DataParallel(accumulate=many))
    assert_same(alone(build, feeds), ranks, HALVES, CLOSE)


def test_sums_in_bodies_within_bodies_are_refused():
    turn = lambda state, _: (mg.tanh(state) - mg.mean(state, axis=0), None)  # noqa: E731
    bodies = {
        "loop": lambda x: mg.scan(lambda s, _: (mg.scan(turn, s, length=2)[0], None), x, length=2),
        "branch": lambda x: [mg.cond(mg.sum(x) > 0, lambda v: turn(v, 0)[0], mg.tanh, x)],
    }
    for build in bodies.values():
        x = mg.input("x", ("batch", 4))
        function = mg.function(
            [x], mg.mean(build(x)[0] ** 2), device="cpu", distribute=DataParallel(accumulate=2)
        )
        with pytest.raises(mg.ShardingError, match="sums over the rows of each micro-batch"):
            function(np.ones((4, 4)))


def test_own_statistics_are_those_of_a_rank(rng):
    """Unsynchronized batch norm looks at all micro-batches of a rank."""
    build = _layers(lambda: [nn.Dense(6), nn.BatchNorm(), nn.Dense(3)], (4,), SGD)
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    plain, cut = (
        several(build, feeds, HALVES,
                lambda: DataParallel(sync_batch_norm=False, accumulate=many))  # noqa: B023
        for many in (1, 3)
    )  # fmt: skip
    for one, other in zip(plain, cut, strict=True):
        for value, wanted in zip(other.values, one.values, strict=True):
            np.testing.assert_allclose(value, wanted, *CLOSE)


def test_what_rounding_leaves_over_is_kept_once(rng):
    """Compression rounds the sum over micro-batches, and adds what is left over once."""
    build, feeds = _perceptron(rng)
    one, exact = alone(build, feeds, steps=6), []
    for many in (1, 2):
        ranks = several(
            build, feeds, HALVES,
            lambda: DataParallel(compression="bfloat16", accumulate=many), steps=6,  # noqa: B023
        )  # fmt: skip
        exact.append(ranks[0].values)
        for value, wanted in zip(ranks[0].values, one.values, strict=True):
            # Errors do not add up: 2^-9 of a gradient, not six times that.
            assert np.abs(value - wanted).max() < 2.0**-8 * 0.1
    assert any((a != b).any() for a, b in zip(exact[0], one.values, strict=True))


def test_states_in_parts(rng):
    x, y = rng.normal(size=(ROWS, 4)), _labels(rng)

    def job(strategy: Any) -> list[np.ndarray]:
        given = mg.input("x", ("batch", 4)), mg.input("y", ("batch",), dtype="int32")
        held = [mg.var(f"w{i}", init=s) for i, s in enumerate(starts)]
        loss = mg.cross_entropy(mg.tanh(given[0] @ held[0]) @ held[1], given[1])
        made = None if strategy is None else strategy()
        step = mg.optimizer.Adam(0.05).step(
            loss, held, inputs=given, device="cpu", distribute=made
        )
        rank, size = mg.distributed.rank(), mg.distributed.size()
        for _ in range(3):
            step(x[rank::size], y[rank::size])
        return [variable.value for variable in held]

    starts = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    (wanted,) = mg.distributed.threads(1, lambda: job(None))
    strategy = lambda: DataParallel(shard_optimizer=True, accumulate=2)  # noqa: E731
    for found in mg.distributed.threads(2, lambda: job(strategy)):
        for value, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(value, want, *CLOSE)


def test_rows_and_columns_are_cut_together(rng):
    build, feeds = _perceptron(rng)
    one = alone(build, feeds)
    cuts = ((0, 3), (0, 3), (3, 10), (3, 10))
    ranks = several(
        build, feeds, cuts,
        lambda: Hybrid(DataParallel(accumulate=2), TensorParallel(least=1)),
        mesh=Mesh(data=2, tensor=2),
    )  # fmt: skip
    assert_same(one, ranks, cuts, CLOSE)


@pytest.mark.parametrize("parts", [2, 4, 5, 8])
def test_kernels_of_micro_batches_read_all_their_operands(parts, rng, monkeypatch):
    """Masks of relu that gradients compute again are in no kernel, nor is what they would read."""
    monkeypatch.setattr(mg.config, "compile_budget", 60.0)
    start = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))

    def build() -> Program:
        x, y = mg.input("x", ("batch", 4)), mg.input("y", ("batch",), dtype="int32")
        w, v = (mg.var(f"w{i}", init=value) for i, value in enumerate(start))
        b = mg.var("b", init=np.ones(6))
        loss = mg.cross_entropy(mg.relu(x @ w + b) @ v, y)
        slopes = mg.grad(loss, [w, b, v])
        return Program([x, y], [loss, *slopes], {}, [])

    inputs, outputs, _, _ = build()
    strategy = DataParallel(accumulate=parts)
    function = mg.function(inputs, outputs, device="cpu", distribute=strategy)
    function.compile({"batch": 40})
    for step in function.plan.steps:
        body = step.node.attrs.get("body")
        if step.node.op.name == "fused" and body is not None:
            assert len(body.inputs) == len(step.node.inputs)
            assert set(body.inputs) <= {*body.roots, *(i for n in body.nodes for i in n.inputs)}
    feeds = [rng.normal(size=(40, 4)), rng.integers(0, 3, 40).astype(np.int32)]
    one = alone(build, feeds, steps=1)
    for wanted, found in zip(one.results[0], function(*feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=CLOSE[0], atol=CLOSE[1])


def test_asynchronous_ranks_cut_their_rows(rng):
    """One rank is not asynchronous to anybody: its steps are those of one process."""
    build, feeds = _perceptron(rng)
    one = alone(build, feeds)

    def job() -> Any:
        strategy = DataParallel(algorithm="async", accumulate=2)
        found = run(build(), feeds, 3, strategy)
        strategy.finish()
        return found

    (found,) = mg.distributed.threads(1, job)
    assert_same(one, [found], ((0, ROWS),), CLOSE)
    assert len(found.function.plan.steps) > len(one.function.plan.steps)


def test_networks_are_fitted_in_micro_batches(rng):
    x, y = rng.normal(size=(21, 4)), rng.integers(0, 3, 21)

    def job(strategy: Any) -> list[float]:
        net = mg.NeuralNetwork(
            [nn.Input((4,)), nn.Dense(5, "tanh"), nn.Dense(3)], loss="cross_entropy",
            optimizer=mg.optimizer.Adam(0.02), seed=0, device="cpu",
        )  # fmt: skip
        made = None if strategy is None else strategy()
        history = net.fit(x, y, batch_size=8, epochs=2, progress=False, distribute=made)
        return list(history["loss"])

    (wanted,) = mg.distributed.threads(1, lambda: job(None))
    # The last batch has 5 rows: 3 and 2 of them in 3 micro-batches each.
    for found in mg.distributed.threads(2, lambda: job(lambda: DataParallel(accumulate=3))):
        np.testing.assert_allclose(found, wanted, *CLOSE)
