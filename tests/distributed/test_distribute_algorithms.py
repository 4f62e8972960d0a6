"""How sums over ranks travel: rings, a torus, a server, 16 bits; and ranks that do not wait."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sharded import HALVES, UNEQUAL, Program, alone, assert_same, several

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel, Mesh
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError

FLOAT64 = np.dtype(np.float64)
ROWS = 10


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "float_dtype", "float64")


def _perceptron() -> Program:
    net = mg.NeuralNetwork(
        [nn.Input((4,)), nn.Dense(5, "tanh"), nn.Dense(3)], loss="cross_entropy", device="cpu"
    )
    (x,) = net.inputs
    labels = mg.input("labels", (x.shape[0],), dtype="int32")
    (logits,) = net._form(training=True)
    loss = mg.cross_entropy(logits, labels)
    updates = mg.optimizer.SGD(0.1, momentum=0.9).updates(loss, net.trainable)
    return Program([x, labels], [loss], updates, net.trainable)


def _feeds(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(size=(ROWS, 4)), rng.integers(0, 3, size=ROWS).astype(np.int32)]


@pytest.mark.parametrize(
    ("algorithm", "cuts", "mesh"),
    [
        ("ring", HALVES, None),
        ("ring", ((0, 1), (1, 4), (4, ROWS)), None),
        ("parameter_server", UNEQUAL, None),
        ("torus", UNEQUAL, Mesh(rows=2, columns=2)),
        ("torus", ((0, 3), (3, ROWS)), Mesh(rows=2, columns=1)),
    ],
)
def test_sums_of_our_own(algorithm: str, cuts: Any, mesh: Any, rng: np.random.Generator) -> None:
    feeds = _feeds(rng)
    # Buckets of 100 bytes: chunks that do not come out even, and several messages.
    ranks = several(
        _perceptron, feeds, cuts, lambda: DataParallel(algorithm=algorithm, bucket_bytes=100),
        steps=2, mesh=mesh,
    )  # fmt: skip
    one = alone(_perceptron, feeds, steps=2)
    assert_same(one, ranks, cuts, tolerance(FLOAT64, "reassoc"))
    notes = next(r.notes for r in ranks[0].function.report if r.name == "distribute")
    assert sum(f"by {algorithm}" in note for note in notes) == len(notes) - 1


def test_a_torus_wants_two_axes() -> None:
    with pytest.raises(ConfigError, match="a torus over data of Mesh"):
        several(_perceptron, _feeds(np.random.default_rng(0)), HALVES,
                lambda: DataParallel(algorithm="torus"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("algorithm", ["allreduce", "ring"])
def test_compressed_training_keeps_near(
    dtype: str, algorithm: str, rng: np.random.Generator
) -> None:
    """Weights differ by the rate times roundings of the last gradients, not of all."""
    feeds, steps = _feeds(rng), 12
    one = alone(_perceptron, feeds, steps)
    ranks = several(
        _perceptron, feeds, HALVES,
        lambda: DataParallel(compression=dtype, algorithm=algorithm), steps,
    )  # fmt: skip
    narrow = mg.dtypes.canonical(dtype)
    rtol, atol = tolerance(narrow, "stable")
    assert_same(one, ranks, HALVES, (rtol, atol))
    notes = next(r.notes for r in ranks[0].function.report if r.name == "distribute")
    assert any(f"of {dtype})" in note for note in notes)


def test_what_rounding_leaves_over_is_sent_later() -> None:
    """bfloat16 holds 1 but not 1 + 2**-10: without the rest, 64 steps would lose 2**-4 a rank."""

    def job() -> np.ndarray:
        x, w = mg.input("x", ("batch",), "float32"), mg.var("w", init=np.zeros(3, np.float32))
        step = mg.optimizer.SGD(1.0).step(
            mg.sum(x) * mg.sum(w), [w], [x], device="cpu",
            distribute=DataParallel(compression="bfloat16"),
        )  # fmt: skip
        for _ in range(64):
            step(np.array([1.0 + 2.0**-10], np.float32))
        return w.value

    for value in mg.distributed.threads(2, job):
        np.testing.assert_array_equal(value, np.full(3, -128.0 * (1.0 + 2.0**-10)))


# ---- Ranks that do not wait


def _line(strategy: Any, rows: slice, x: np.ndarray, y: np.ndarray, steps: int) -> Any:
    inputs, outputs = mg.input("x", ("batch", x.shape[1])), mg.input("y", ("batch",))
    w = mg.var("w", init=np.zeros(x.shape[1]))
    loss = mg.mean((inputs @ w - outputs) ** 2)
    step = mg.optimizer.SGD(0.05, momentum=0.5).step(
        loss, [w], [inputs, outputs], [loss], device="cpu", distribute=strategy
    )
    own = x[rows], y[rows]
    for _ in range(steps):
        step(*own)
    if strategy is not None:
        strategy.finish()
    return w.value


def test_asynchronous_training_of_a_number() -> None:
    def job() -> np.ndarray:
        x, w = mg.input("x", ("batch",)), mg.var("w", init=0.5)
        strategy = DataParallel(algorithm="async")
        step = mg.optimizer.SGD(0.1).step(
            mg.mean(x * w), [w], [x], device="cpu", distribute=strategy
        )
        step(np.ones(2))
        strategy.finish()
        return w.value

    for value in mg.distributed.threads(2, job):
        assert value.shape == () and np.isclose(value, 0.4)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_asynchronous_training_reaches_the_same_weights(
    ranks: int, rng: np.random.Generator
) -> None:
    x, steps, bound = rng.normal(size=(80, 5)), 150, 3
    y = x @ rng.normal(size=5)  # all ranks' rows have the same best weights

    def job() -> tuple[np.ndarray, dict[int, int], int]:
        rank = mg.distributed.rank()
        strategy = DataParallel(algorithm="async", staleness=bound)
        rows = slice(rank * 80 // ranks, (rank + 1) * 80 // ranks)
        made = steps + 5 * rank  # ranks need not take as many steps
        return _line(strategy, rows, x, y, made), strategy.staleness, made

    found = mg.distributed.threads(ranks, job)
    wanted = _line(None, slice(None), x, y, 4 * steps)
    for weights, staleness, _ in found:
        np.testing.assert_array_equal(weights, found[0][0])
        np.testing.assert_allclose(weights, wanted, atol=1e3 * tolerance(FLOAT64, "half")[1])
        assert staleness == found[0][1]
        assert sum(staleness.values()) == sum(made for _, _, made in found)
        most = (ranks - 2) * (4 * bound + 1) + 3 * bound + 1 if ranks > 1 else 0
        assert 0 <= min(staleness) <= max(staleness) <= most


def test_a_network_is_fitted_asynchronously(rng: np.random.Generator) -> None:
    x = rng.normal(size=(60, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)

    def job() -> tuple[list[float], np.ndarray, dict[int, int]]:
        net = mg.NeuralNetwork(
            [nn.Input((5,)), nn.Dense(6, "tanh"), nn.Dense(2)], loss="cross_entropy",
            optimizer=mg.optimizer.SGD(0.2), device="cpu",
        )  # fmt: skip
        strategy = DataParallel(algorithm="async", staleness=2)
        history = net.fit(x, y, batch_size=8, epochs=4, distribute=strategy)
        weights = np.concatenate([value.ravel() for value in net.tensors().values()])
        return list(history["loss"]), weights, strategy.staleness

    losses, weights, staleness = mg.distributed.threads(3, job)[0]
    assert losses[-1] < losses[0]
    assert sum(staleness.values()) == 4 * 3 * 8  # epochs, ranks, batches of which each has rows
    for other, held, counted in mg.distributed.threads(3, job):
        assert other[-1] < other[0]
        assert held.shape == weights.shape
        assert sum(counted.values()) == sum(staleness.values())


def test_strategies_are_checked_and_pickle() -> None:
    for given, text in (
        ({"compression": "int8"}, "compression='int8'"),
        ({"staleness": -1}, "staleness=-1"),
        ({"shard_optimizer": "yes"}, "shard_optimizer='yes'"),
        ({"sync_batch_norm": 0}, "sync_batch_norm=0"),
        ({"algorithm": "async", "compression": "float16"}, "with algorithm='async'"),
    ):
        with pytest.raises(ConfigError, match=text):
            DataParallel(**given)
    made = pickle.loads(pickle.dumps(DataParallel(algorithm="ring", bucket_bytes=7)))
    assert (made.algorithm, made.bucket_bytes) == ("ring", 7)


# ---- Optimizers whose state is in parts

RULES = {
    "adam": lambda: mg.optimizer.Adam(0.01),
    "momentum": lambda: mg.optimizer.SGD(0.1, momentum=0.9, weight_decay=0.1),
    "clipped": lambda: mg.optimizer.AdamW(0.01, clip_norm=0.1),
}


def _optimized(rule: Any, strategy: Any, rows: slice, feeds: Any, saved: Any = None) -> Any:
    program, optimizer = _perceptron(), rule()
    if saved is not None:
        optimizer.load_state_dict(saved)
    (loss,) = program.outputs
    step = optimizer.step(
        loss, program.watched, program.inputs, [loss], device="cpu", distribute=strategy
    )
    for _ in range(3):
        step(*(feed[rows] for feed in feeds))
    held = {name: variable.shape for name, variable in optimizer.state.items()}
    return [w.value for w in program.watched], optimizer.state_dict(), held


@pytest.mark.parametrize("name", RULES)
def test_state_in_parts_is_that_of_one_process(name: str, rng: np.random.Generator) -> None:
    feeds, (rtol, atol) = _feeds(rng), tolerance(FLOAT64, "reassoc")
    cuts = ((0, 3), (3, 5), (5, ROWS))

    def job(saved: Any = None) -> Any:
        rows = slice(*cuts[mg.distributed.rank()])
        return _optimized(RULES[name], DataParallel(shard_optimizer=True), rows, feeds, saved)

    weights, state, _ = _optimized(RULES[name], None, slice(None), feeds)
    found = mg.distributed.threads(3, job)
    for values, saved, held in found:
        for value, wanted in zip(values, weights, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol)
        for key, wanted in state.items():
            np.testing.assert_allclose(saved[key], wanted, rtol=rtol, atol=atol)
            size = np.prod(wanted.shape, dtype=int)
            assert held[key] == ((-(-size // 3),) if wanted.shape else ())  # a third of it
    # What one process has saved, ranks go on from, each with its part.
    weights, _, _ = _optimized(RULES[name], None, slice(None), feeds, state)
    for values, _, _ in mg.distributed.threads(3, lambda: job(state)):
        for value, wanted in zip(values, weights, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol)


def test_parts_travel_in_buckets(rng: np.random.Generator) -> None:
    feeds = _feeds(rng)

    def job(limit: int) -> tuple[Counter[str], list[np.ndarray]]:
        program = _perceptron()
        (loss,) = program.outputs
        step = mg.optimizer.Adam(0.01).step(
            loss, program.watched, program.inputs, [loss], device="cpu",
            distribute=DataParallel(shard_optimizer=True, bucket_bytes=limit),
        )  # fmt: skip
        rows = slice(5 * mg.distributed.rank(), 5 * mg.distributed.rank() + 5)
        for _ in range(2):
            step(*(feed[rows] for feed in feeds))
        kinds = Counter(planned.node.op.name for planned in step.plan.steps)
        return kinds, [w.value for w in program.watched]

    (many, apart), (one, joined) = (
        mg.distributed.threads(2, lambda: job(limit))[0]  # noqa: B023
        for limit in (0, 1 << 20)
    )
    assert (many["reduce_scatter"], many["allgather"]) == (4, 4)  # two layers' weights and biases
    assert (one["reduce_scatter"], one["allgather"]) == (1, 1)
    for wanted, value in zip(apart, joined, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_state_in_parts_wants_rules_of_single_elements(rng: np.random.Generator) -> None:
    feeds = _feeds(rng)
    strategy = lambda: DataParallel(shard_optimizer=True)  # noqa: E731
    with pytest.raises(ConfigError, match="the rule reads all of a variable"):
        mg.distributed.threads(
            2, lambda: _optimized(lambda: mg.optimizer.LAMB(0.1), strategy(), slice(5), feeds)
        )
    with pytest.raises(ConfigError, match="shard_optimizer=True with algorithm='ring'"):
        DataParallel(algorithm="ring", shard_optimizer=True)

    def late() -> None:
        program, optimizer = _perceptron(), mg.optimizer.Adam(0.1)
        (loss,) = program.outputs
        optimizer.step(loss, program.watched, program.inputs)
        optimizer.step(loss, program.watched, program.inputs, distribute=strategy())

    with pytest.raises(ConfigError, match="has taken steps without"):
        mg.distributed.threads(2, late)
