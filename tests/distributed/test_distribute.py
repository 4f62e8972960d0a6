"""A named dimension sharded over ranks: step for step what one process makes of all rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planned import options_of
from sharded import HALVES, UNEQUAL, Program, alone, assert_same, several

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel
from magmagraph.distributed.cost.dry import DryRank
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError, ShardingError
from magmagraph.ir.op import Op
from magmagraph.ir.ranks import using
from magmagraph.ops import TABLE
from magmagraph.passes import pipeline

FLOAT64 = np.dtype(np.float64)
CLOSE = tolerance(FLOAT64, "reassoc")
ROWS = 10


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "float_dtype", "float64")


def _same(build: Callable[[], Program], feeds: list[np.ndarray], cuts: Any = HALVES) -> None:
    """Compare ranks with one process."""
    one = alone(build, feeds, steps=2)
    assert_same(one, several(build, feeds, cuts, steps=2), cuts, CLOSE)


def _layers(
    layers: Callable[[], list[Any]], shape: tuple[int, ...], optimizer: Any, dtype: Any = None
) -> Callable[[], Program]:
    """Return what builds a training step of layers for three classes."""

    def build() -> Program:
        given = {} if dtype is None else {"dtype": dtype}
        net = mg.NeuralNetwork(
            [nn.Input(shape, **given), *layers()], loss="cross_entropy", device="cpu"
        )
        (x,) = net.inputs
        labels = mg.input("labels", (x.shape[0],), dtype="int32")
        (logits,) = net._form(training=True)
        loss = mg.cross_entropy(logits, labels)
        weights = net.trainable
        updates = optimizer().updates(loss, weights)
        return Program([x, labels], [loss, logits], updates, weights)

    return build


def _labels(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 3, size=ROWS).astype(np.int32)


def test_linear_regression(rng: np.random.Generator) -> None:
    start = rng.normal(size=4)

    def build() -> Program:
        x, y = mg.input("x", ("batch", 4)), mg.input("y", ("batch",))
        w, b = mg.var("w", init=start), mg.var("b", init=0.5)
        loss = mg.mean((x @ w + b - y) ** 2)
        slopes = mg.grad(loss, [w, b])
        return Program(
            [x, y], [loss, x @ w], {w: w - 0.1 * slopes[0], b: b - 0.1 * slopes[1]}, [w, b]
        )

    _same(build, [rng.normal(size=(ROWS, 4)), rng.normal(size=ROWS)], UNEQUAL)


OPTIMIZERS = {
    "weight decay": lambda: mg.optimizer.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "clipped": lambda: mg.optimizer.SGD(0.1, clip_norm=0.05),
    "adam": lambda: mg.optimizer.Adam(0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_a_perceptron(name: str, rng: np.random.Generator) -> None:
    build = _layers(lambda: [nn.Dense(6, "tanh"), nn.Dense(3)], (4,), OPTIMIZERS[name])
    _same(build, [rng.normal(size=(ROWS, 4)), _labels(rng)])


SGD = lambda: mg.optimizer.SGD(0.1)  # noqa: E731
NETWORKS: dict[str, tuple[Callable[[], list[Any]], tuple[int, ...], Any]] = {
    "convolutions with batch norm": (
        lambda: [
            nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2),
            nn.Flatten(), nn.Dense(3),
        ],
        (3, 6, 6), None,
    ),
    "strides, mean pools, dropout": (
        lambda: [
            nn.Conv2D(4, 3, stride=2), nn.Activation("gelu"), nn.AvgPool2D(2), nn.Flatten(),
            nn.Dropout(0.3), nn.Dense(3),
        ],
        (3, 8, 8), None,
    ),
    "lstm": (lambda: [nn.LSTM(6), nn.Dense(3)], (5, 4), None),
    "attention": (
        lambda: [nn.MultiHeadAttention(2), nn.LayerNorm(), nn.Flatten(), nn.Dense(3)],
        (5, 4), None,
    ),
    "embedding": (
        lambda: [
            nn.Embedding(7, 6), nn.MultiHeadAttention(2, causal=True), nn.Flatten(), nn.Dense(3),
        ],
        (5,), "int32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, rng: np.random.Generator) -> None:
    layers, shape, dtype = NETWORKS[name]
    examples = (
        rng.normal(size=(ROWS, *shape))
        if dtype is None
        else rng.integers(0, 7, size=(ROWS, *shape)).astype(dtype)
    )
    _same(_layers(layers, shape, SGD, dtype), [examples, _labels(rng)])


def _of_rows(function: Callable[[Any], list[Any]], shape: tuple[Any, ...] = ("batch", 5, 4)) -> Any:
    """Return what builds a program of outputs alone."""

    def build() -> Program:
        x = mg.input("x", shape)
        return Program([x], function(x), {}, [])

    return build


def _reductions(x: Any) -> list[Any]:
    return [
        mg.max(x, 0), mg.min(x), mg.argmax(x, 0), mg.argmin(x, 1), mg.var(x, 0), mg.std(x),
        mg.prod(x, 0), mg.any(x > 1.5, 0), mg.all(x > -1.0, (0, 1)), mg.softmax(x, 0),
        mg.logsumexp(x, 0), mg.linalg.norm(x), mg.average(x, axis=0), mg.nanmean(x, axis=0),
        mg.sum(x, 0) / mg.extent("batch"), mg.sum(x, 0) / (mg.Dim("batch") // 2 + 1),
    ]  # fmt: skip


def _positions(x: Any) -> list[Any]:
    rows = mg.argsort(x, axis=1)
    return [
        mg.arange("batch"), mg.take_along_axis(x, rows, axis=1),
        mg.sum(mg.reshape(mg.arange("batch", dtype="float64"), (-1, 1, 1)) * x),
        mg.cumsum(x, axis=1), mg.sort(x, axis=2), mg.median(x, axis=1),
        mg.one_hot(mg.argmax(x, 1), 5),
    ]  # fmt: skip


def _shapes(x: Any) -> list[Any]:
    rows = mg.reshape(x, (-1, 4))
    turned = mg.reshape(mg.transpose(x, (1, 0, 2)), (-1, 4))
    return [
        mg.einsum("btk,btl->kl", x, x), mg.mean(mg.layer_norm(rows) ** 2, axis=0),
        mg.sum(turned @ mg.ones((4, 2)), axis=0),
        mg.einsum("tbk->k", mg.reshape(turned, (5, -1, 4))),
        mg.cov(mg.transpose(rows)), mg.sum(x[:, 0]), mg.mean(x[:, 1:3, ::2]),
        mg.concatenate([x, x], axis=1), mg.stack([x[:, 0], x[:, 1]]),
        mg.pad(x, ((0, 0), (1, 1), (0, 0))), mg.real(mg.fft.ifft(mg.fft.fft(x, axis=1), axis=1)),
    ]  # fmt: skip


@pytest.mark.parametrize("outputs", [_reductions, _positions, _shapes])
def test_outputs(outputs: Any, rng: np.random.Generator) -> None:
    build, feeds = _of_rows(outputs), [rng.normal(size=(ROWS, 5, 4))]
    one = alone(build, feeds, steps=1)
    assert_same(one, several(build, feeds, HALVES, steps=1), HALVES, CLOSE)


def _several_names(x: Any) -> list[Any]:
    return [
        mg.mean(x), mg.mean(mg.reshape(x, (-1,))), mg.mean(x, 0), mg.var(x),
        mg.mean(x[:, 1:] * 2.0),
        mg.sum(x) / (x.shape[0] * x.shape[1] + 1), mg.mean(mg.concatenate([x, x * 2.0], axis=1)),
        mg.grad(mg.mean(mg.tanh(x)), x),
    ]  # fmt: skip


def test_means_over_several_named_dimensions(rng: np.random.Generator) -> None:
    """A first name that is sharded, among others that are not, whichever comes first."""
    for names in (("batch", "time"), ("batch", "a")):
        _same(_of_rows(_several_names, names), [rng.normal(size=(ROWS, 4))])


def test_scan_branch_vmap_and_hessian(rng: np.random.Generator) -> None:
    start = 0.3 * rng.normal(size=(4, 4))

    def build() -> Program:
        x = mg.input("x", ("batch", 5, 4))
        w, u = mg.var("w", init=start), mg.var("u", init=np.ones(4))

        def step(h: Any, row: Any) -> Any:
            h = mg.tanh(h @ w + row * u)
            return h, h

        last, states = mg.scan(
            step, mg.zeros((x.shape[0], 4)), mg.transpose(x, (1, 0, 2))
        )
        mean = mg.mean(last)
        chosen = mg.cond(mean > 0.0, lambda: mg.mean(last**2), lambda: mg.mean(mg.exp(last)))
        solved = mg.vmap(lambda r: mg.sum(mg.linalg.solve(w + 4.0 * mg.eye(4), r) ** 2))(x[:, 0])
        loss = chosen + mg.mean(states) + mg.mean(solved)
        bent = mg.hessian(mg.mean(mg.tanh(x[:, 0] @ u)), u)
        slopes = mg.grad(loss, [w, u])
        return Program(
            [x], [loss, last, bent], {w: w - 0.1 * slopes[0], u: u - 0.1 * slopes[1]}, [w, u]
        )

    _same(build, [rng.normal(size=(ROWS, 5, 4))])


def test_random_numbers_are_those_of_the_rows(rng: np.random.Generator) -> None:
    """Bits by global element; distributions that draw for themselves differ between ranks."""

    def build() -> Program:
        x = mg.input("x", ("batch", 3))
        drawn = mg.random.uniform(x.shape) + mg.random.normal(x.shape)
        return Program([x], [drawn, mg.sum(mg.dropout(x, 0.5)), mg.random.normal((2,))], {}, [])

    _same(build, [rng.normal(size=(ROWS, 3))])
    counts = several(
        _of_rows(lambda x: [mg.random.poisson(x.shape, 50.0)], ("batch", 30)),
        [np.zeros((4, 30))], ((0, 2), (2, 4)), steps=1,
    )  # fmt: skip
    first, second = (found.results[0][0] for found in counts)
    assert (first != second).any()


ADAM = lambda: mg.optimizer.Adam(0.01)  # noqa: E731
OWN_ROWS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "sgd": (SGD, {}, "float64"),
    "adam": (ADAM, {}, "float64"),
    "a ring": (ADAM, {"algorithm": "ring"}, "float64"),
    "compressed": (SGD, {"compression": "bfloat16"}, "bfloat16"),
    "optimizer in parts": (ADAM, {"shard_optimizer": True}, "float64"),
}


@pytest.mark.parametrize("name", OWN_ROWS)
def test_batch_norm_of_own_rows(name: str, rng: np.random.Generator) -> None:
    """Unsynchronized, a rank's statistics are those of its rows, and gradients go through them.

    Weights stand before, between and behind two norms: each gradient is one sum over the ranks.
    """
    optimizer, options, dtype = OWN_ROWS[name]
    x, labels = rng.normal(size=(ROWS, 4)), _labels(rng)
    starts = [rng.normal(size=shape) for shape in ((4, 6), (6, 6), (6, 3), (6,), (6,))]

    def variables() -> list[Any]:
        weights = [mg.var(f"w{i}", init=start) for i, start in enumerate(starts)]
        return [*weights, mg.var("mean", init=np.zeros(6)), mg.var("var", init=np.ones(6))]

    def net(rows: Any, held: list[Any]) -> tuple[Any, Any]:
        first = mg.tanh(rows @ held[0])
        second = mg.tanh(mg.batch_norm(first, held[3]) @ held[1])
        found = mg.running_statistics(first, held[5], held[6])
        return mg.batch_norm(second, held[4]) @ held[2], found

    def trained(inputs: Any, logits: Any, y: Any, held: Any, found: Any, strategy: Any) -> Any:
        loss = mg.cross_entropy(logits, y) + 0.01 * sum(mg.sum(w * w) for w in held[:3])
        return optimizer().step(
            loss, held[:5], inputs, [loss], updates=dict(zip(held[5:], found, strict=True)),
            device="cpu", distribute=strategy,
        )  # fmt: skip

    def single() -> Any:
        parts = [mg.input(f"x{a}", (b - a, 4)) for a, b in HALVES]
        y, held = mg.input("y", (ROWS,), dtype="int32"), variables()
        made = [net(part, held) for part in parts]
        logits = mg.concatenate([logits for logits, _ in made])
        means = [(a + b) / 2 for a, b in zip(*(found for _, found in made), strict=True)]
        step = trained([*parts, y], logits, y, held, means, None)
        losses = [float(step(*(x[a:b] for a, b in HALVES), labels)[0]) for _ in range(4)]
        return losses, [v.value for v in held], step

    def job() -> Any:
        rows, y = mg.input("x", ("batch", 4)), mg.input("y", ("batch",), dtype="int32")
        held = variables()
        logits, found = net(rows, held)
        strategy = DataParallel(sync_batch_norm=False, **options)
        step = trained([rows, y], logits, y, held, found, strategy)
        own = slice(*HALVES[mg.distributed.rank()])
        losses = [float(step(x[own], labels[own])[0]) for _ in range(4)]
        return losses, [v.value for v in held], step

    rtol, atol = tolerance(mg.dtypes.canonical(dtype), "reassoc")
    losses, values, _ = single()
    ranks = mg.distributed.threads(2, job)
    for found, theirs, _ in ranks:
        np.testing.assert_allclose(found, losses, rtol=rtol, atol=atol)
        for value, wanted in zip(theirs, values, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol)
    if name == "adam":
        (notes,) = (r.notes for r in ranks[0][2].report if r.name == "distribute")
        assert len(notes) == 2  # the number of rows, and one bucket: nothing forward
        sizes = sum(start.nbytes for start in starts) + 2 * 6 * 8 + 8
        assert f"({sizes:,} bytes" in notes[1]  # gradients, running statistics, a loss: once each


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "row": (lambda x: x[0], "it takes some rows of axis 0"),
    "flip": (lambda x: mg.flip(x, 0), "it takes some rows of axis 0"),
    "cumulative": (lambda x: mg.cumsum(x, axis=0), "it works along axis 0"),
    "sorted": (lambda x: mg.sort(x, axis=0), "it works along axis 0"),
    "gram": (lambda x: x @ mg.transpose(x), "it multiplies each row with each other row"),
    "split": (lambda x: mg.reshape(x, (4, -1)), "a rank's rows do not stay together"),
    "taken": (lambda x: mg.take(x, mg.constant([0, 1]), axis=0), "it takes rows by number"),
    "joined": (lambda x: mg.concatenate([x, x]), "it works along axis 0"),
    "pairs": (lambda x: x[:, :1] - mg.transpose(x[:, :1]), "along two axes"),
    "looped": (
        lambda x: mg.scan(lambda h, r: (h + r, h), mg.zeros(4), x)[0], "it loops over the rows"
    ),
    "orders": (
        lambda x: mg.reshape(mg.reshape(x, (-1, 2, 2)), (-1,))
        + mg.reshape(mg.transpose(x), (-1,)),
        "stand in different orders",
    ),
    "iterated": (
        lambda x: mg.while_loop(lambda h: mg.sum(h) < 9.0, lambda h: h + 1.0, x), "collectives"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_other_rows_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(mg.MagmagraphError, match=reason) as caught:
        build = _of_rows(lambda x: [function(x)], ("batch", 4))
        several(build, [np.ones((4, 4))], ((0, 2), (2, 4)))
    if reason != "collectives":
        assert "test_distribute.py:" in str(caught.value)


def test_a_dimension_that_no_input_has_is_refused() -> None:
    with pytest.raises(ShardingError, match="no input has the dimension 'rows'"):
        several(
            _of_rows(lambda x: [mg.sum(x)], ("batch", 4)), [np.ones((4, 4))], HALVES,
            lambda: DataParallel("rows"),
        )  # fmt: skip


def test_wrong_options_are_refused() -> None:
    for given, text in (
        ({"dim": 3}, "dim=3"),
        ({"algorithm": "tree"}, "algorithm='tree'"),
        ({"bucket_bytes": -1}, "bucket_bytes=-1"),
    ):
        with pytest.raises(ConfigError, match=text):
            DataParallel(**given)
    x = mg.input("x", ("batch",))
    with pytest.raises(ConfigError, match="an object of the class"):
        mg.function([x], mg.sum(x), distribute=DataParallel)


def test_variables_begin_as_those_of_rank_0() -> None:
    def job() -> Any:
        x = mg.input("x", ("batch",))
        w = mg.var("w", init=float(mg.distributed.rank() + 1))
        f = mg.function([x], mg.sum(x) * w, device="cpu", distribute=DataParallel())
        return float(f([1.0])), float(w.value)

    assert mg.distributed.threads(3, job) == [(3.0, 1.0)] * 3


def test_little_is_left_for_the_end_and_little_rides_along() -> None:
    """Weights of 8 KiB: biases ride along, the first layer's are the last."""

    def notes(limit: int) -> list[str]:
        build = _layers(lambda: [nn.Dense(32, "tanh") for _ in range(6)], (32,), SGD)
        with using(DryRank(2)):
            program = build()
            f = mg.function(
                program.inputs, program.outputs, program.updates, device="cpu",
                distribute=DataParallel(bucket_bytes=limit),
            )  # fmt: skip
            options = options_of(distribute=f._facts())
            _, report = pipeline.run(
                f.source_graph, f.trace, passes=pipeline.DEFAULT[:1], options=options
            )
        (found,) = (record.notes for record in report if record.name == "distribute")
        return [re.search(r": sum of (.*) \(", note).group(1) for note in found[1:]]

    # A loss, six layers from the last to the first, whose gradients are the last to be made.
    assert notes(24 << 10) == ["5 arrays", "4 arrays", "4 arrays"]
    # The second layer's are less than a quarter of a bucket: they go with those before.
    assert notes(33 << 10) == ["11 arrays", "2 arrays"]
    assert notes(1 << 20) == ["13 arrays"]  # all of it is one message: nothing is cut off


def test_buckets_bound_messages_and_the_report_lists_them(rng: np.random.Generator) -> None:
    build = _layers(lambda: [nn.Dense(6, "tanh"), nn.Dense(3)], (4,), SGD)
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    one = alone(build, feeds)
    counts = {}
    for limit in (0, 200):
        ranks = several(build, feeds, HALVES, lambda: DataParallel(bucket_bytes=limit))  # noqa: B023
        assert_same(one, ranks, HALVES, CLOSE)
        notes = next(r.notes for r in ranks[0].function.report if r.name == "distribute")
        counts[limit] = len(notes)
        assert all(note.startswith(f"message {i}: sum of") for i, note in enumerate(notes, 1))
        assert "over 2 ranks by all-reduce, the first made at" in notes[-1]
    # Beside the number of rows: loss, 24, 144, 48 and 192 bytes of gradients, from the last layer.
    assert counts == {0: 6, 200: 4}


def test_one_rank_is_one_process(rng: np.random.Generator) -> None:
    build = _layers(lambda: [nn.Dense(3)], (4,), SGD)
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    cuts = ((0, ROWS),)
    assert_same(alone(build, feeds), several(build, feeds, cuts), cuts, CLOSE)


def test_every_word_of_a_record_has_its_rule() -> None:
    """A word that no rule knows would be found by the first program that uses the operation."""
    from magmagraph.passes.distribute.bodies import BODIES
    from magmagraph.passes.distribute.places import PLACES
    from magmagraph.passes.distribute.rules import WORDS

    known = {*WORDS, *PLACES, *BODIES}
    records = [record for record in TABLE.values() if isinstance(record, Op)]
    assert {r.sharding for r in records if isinstance(r.sharding, str)} - {""} <= known


SHOWN = """
%7 = sum(%6, axes=(0,)) : float64[]
%8 = extent(dim=batch) : int64[]
%9 = allreduce(%8, op='sum', group=(), size=2) : int64[]
%10 = cast(%9, dtype=float64) : float64[]
%11 = divide(%7, %10) : float64[]
"""
JOINED = """
%23 = allreduce_many(%11, %22, op='sum', group=(), size=2) : (float64[], float64[3])
%24 = item(%23, index=0) : float64[]
%25 = item(%23, index=1) : float64[3]
%26 = marker(%25, role='gradient') : float64[3]  # gradient(w)
"""


def test_the_graph_shows_what_travels() -> None:
    """A mean divides its own sum by all rows; loss and gradient are one message."""

    def job() -> str:
        x, w = mg.input("x", ("batch", 3)), mg.var("w", init=np.ones(3))
        loss = mg.mean((x @ w) ** 2)
        f = mg.function(
            [x], loss, updates={w: w - mg.grad(loss, w)}, device="cpu", distribute=DataParallel()
        )
        record = next(r for r in f.compile({"batch": 4}).report if r.name == "distribute")
        return mg.text.dump(record.graphs[1], data=False)

    first, second = mg.distributed.threads(2, job)
    assert first == second  # the same graph on all ranks
    assert SHOWN in first
    assert JOINED in first
    assert first.count("allreduce") == 2
