"""Gradients added up over calls: they travel at the call that applies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharded import HALVES, UNEQUAL
from test_distribute import CLOSE, ROWS, _labels

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel
from magmagraph.passes.distribute.walk import Walk
from magmagraph.runtime.comm.threads import ThreadRank

CALLS = 7  # two whole steps of three, and one call more
WEIGHTS = 4 * 6 + 6 + 6 * 3 + 3


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "float_dtype", "float64")
    monkeypatch.setattr(mg.config, "compile_budget", 0.0)  # what is computed counts, not by whom


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """Return the numbers of floats of each message that is summed, by rank."""
    found: dict[int, list[int]] = {}
    one, many = ThreadRank.allreduce, ThreadRank.allreduce_many

    def allreduce(self: Any, array: Any, op: str, out: Any = None) -> Any:
        if array.dtype.kind == "f":
            found.setdefault(self.rank, []).append(array.size)
        return one(self, array, op, out)

    def allreduce_many(self: Any, arrays: Any, op: str, outs: Any) -> None:
        many(self, arrays, op, outs)  # which calls the other

    monkeypatch.setattr(ThreadRank, "allreduce", allreduce)
    monkeypatch.setattr(ThreadRank, "allreduce_many", allreduce_many)
    return found


OPTIMIZERS = {
    "sgd": lambda calls: mg.optimizer.SGD(0.1, momentum=0.9, clip_norm=0.5, accumulate=calls),
    "adam": lambda calls: mg.optimizer.Adam(
        lambda step: 0.05 / (1 + step), accumulate=calls
    ),
}


def _step(optimizer: Any, strategy: Any, layers: Any = ()) -> tuple[Any, list[Any]]:
    with mg.ops.random.bits.streams_from(0):
        net = mg.NeuralNetwork(
            [nn.Input((4,)), nn.Dense(6, "tanh"), *layers, nn.Dense(3)],
            loss="cross_entropy", device="cpu", seed=2,
        )  # fmt: skip
        (x,) = net.inputs
        labels = mg.input("labels", ("batch",), dtype="int32")
        (logits,) = net._form(training=True)
    step = optimizer.step(
        mg.cross_entropy(logits, labels) + 0.01 * mg.sum(mg.square(net.trainable[0])),
        net.trainable, [x, labels],
        [mg.cross_entropy(logits, labels)], device="cpu", distribute=strategy,
    )  # fmt: skip
    return step, net.trainable


def _run(
    optimizer: Any, feeds: list[Any], cuts: Any, strategy: Any, layers: Any = (), calls: int = CALLS
) -> tuple[list[float], list[np.ndarray], Any]:
    step, weights = _step(optimizer, strategy, [make() for make in layers])
    begin, end = cuts[mg.distributed.rank()]
    own = [feed[begin:end] for feed in feeds]
    losses = [float(step(*own)[0]) for _ in range(calls)]
    return losses, [held.value for held in weights], step


def _close(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, *CLOSE)


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
@pytest.mark.parametrize(
    ("cuts", "options"),
    [
        (HALVES, {}),
        (UNEQUAL, {}),
        (HALVES, {"accumulate": 2}),  # micro-batches of each call
        (HALVES, {"bucket_bytes": 0}),
        (HALVES, {"algorithm": "ring"}),
        (HALVES, {"algorithm": "parameter_server"}),
        (UNEQUAL, {"algorithm": "ring", "accumulate": 2}),
        (UNEQUAL, {"algorithm": "torus", "group": ("rows", "columns")}),
        (HALVES, {"shard_optimizer": True}),
        (UNEQUAL, {"shard_optimizer": True, "accumulate": 2}),
    ],
)
def test_calls_add_up_to_what_one_process_makes(rng, kind, cuts, options):
    if options.get("shard_optimizer") and kind == "sgd":
        options = {**options, "bucket_bytes": 100}
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    losses, weights, _ = _run(OPTIMIZERS[kind](3), feeds, ((0, ROWS),), None)
    mesh = mg.distributed.Mesh(rows=2, columns=2) if "group" in options else None
    ranks = mg.distributed.threads(
        len(cuts),
        lambda: _run(OPTIMIZERS[kind](3), feeds, cuts, DataParallel(**options))[:2],
        mesh=mesh,
    )
    for found, values in ranks:
        _close(found, losses)
        _close(values, weights)


def test_own_statistics_and_random_numbers(rng):
    """Behind a batch norm of each rank's own rows, calls add up as steps of one call do."""
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    layers = (lambda: nn.BatchNorm(), lambda: nn.Dropout(0.3))
    strategy = lambda: DataParallel(sync_batch_norm=False)  # noqa: E731
    plain = mg.distributed.threads(
        2, lambda: _run(mg.optimizer.SGD(0.1), feeds, HALVES, strategy(), layers[:1], 1)[1]
    )
    # The same rows at each of three calls, whose mean gradient is that of one.
    added = mg.distributed.threads(
        2, lambda: _run(
            mg.optimizer.SGD(0.1, accumulate=3), feeds, HALVES, strategy(), layers[:1], 3
        )[1],
    )  # fmt: skip
    for one, other in zip(plain, added, strict=True):
        _close(other, one)
    losses, weights, _ = _run(OPTIMIZERS["sgd"](2), feeds, ((0, ROWS),), None, layers)
    for found, values, _ in mg.distributed.threads(
        2, lambda: _run(OPTIMIZERS["sgd"](2), feeds, HALVES, DataParallel(), layers)
    ):
        _close(found, losses)
        _close(values, weights)


def _messages(optimizer: Any, strategy: Any, sent: dict[int, list[int]], feeds: Any) -> Any:
    """Return the messages of each call from the second on, of more than one float."""
    step, _ = _step(optimizer, strategy)
    begin, end = HALVES[mg.distributed.rank()]
    own = [feed[begin:end] for feed in feeds]
    step(*own)  # compiled, and run
    found = []
    for _ in range(CALLS - 1):
        kept = sent.setdefault(mg.distributed.rank(), [])
        kept.clear()
        step(*own)
        found.append([size for size in kept if size > 1])
    return found


@pytest.mark.parametrize(("bucket", "messages"), [(1 << 20, 1), (0, 4)])
def test_gradients_travel_at_the_call_that_applies_them(rng, sent, bucket, messages):
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    strategy = lambda: DataParallel(bucket_bytes=bucket)  # noqa: E731
    for found in mg.distributed.threads(
        2, lambda: _messages(OPTIMIZERS["adam"](3), strategy(), sent, feeds)
    ):
        # Calls 2 to 7: the third and the sixth apply.
        assert [sum(sizes) for sizes in found] == [0, WEIGHTS, 0, 0, WEIGHTS, 0]
        assert [len(sizes) for sizes in found] == [0, messages, 0, 0, messages, 0]


@pytest.mark.parametrize(
    ("method", "options", "kind", "messages"),
    [
        ("sendrecv", {"algorithm": "ring"}, "sgd", 2),  # on two ranks half of all, twice
        ("broadcast", {"algorithm": "parameter_server"}, "adam", 1),
        ("allreduce", {"compression": "bfloat16"}, "sgd", 1),
        ("reduce_scatter", {"shard_optimizer": True}, "adam", 1),
        ("allgather", {"shard_optimizer": True}, "adam", 1),
        ("allgather", {"shard_optimizer": True}, "sgd", 1),
    ],
)
def test_whatever_travels_does_at_that_call(
    rng, sent, monkeypatch, method, options, kind, messages
):
    """By every way of adding up; a norm that clips needs all of a gradient on each rank."""
    plain = getattr(ThreadRank, method)

    def counted(self: Any, array: Any, *given: Any) -> Any:
        if array.dtype.kind in "fV":  # bfloat16 among them
            sent.setdefault(self.rank, []).append(array.size)
        return plain(self, array, *given)

    monkeypatch.setattr(ThreadRank, "allreduce", ThreadRank.allreduce)
    monkeypatch.setattr(ThreadRank, method, counted)
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    for found in mg.distributed.threads(
        2, lambda: _messages(OPTIMIZERS[kind](3), DataParallel(**options), sent, feeds)
    ):
        clipped = kind == "sgd" and "shard_optimizer" in options
        count = messages + clipped
        assert [len(sizes) for sizes in found] == [0, count, 0, 0, count, 0]


def test_sixteen_bits_lose_nothing_over_calls(rng):
    """What rounding leaves over waits for the next call that sends, and is added to its sum."""
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    exact = lambda calls: mg.optimizer.SGD(0.05, accumulate=calls)  # noqa: E731
    calls = 24
    losses, weights, _ = _run(exact(3), feeds, ((0, ROWS),), None, calls=calls)
    strategy = lambda: DataParallel(compression="bfloat16")  # noqa: E731
    runs = mg.distributed.threads(
        2, lambda: _run(exact(3), feeds, HALVES, strategy(), calls=calls)[:2]
    )
    unit = 2.0**-8  # of bfloat16
    for found, values in runs:
        _close(found[:3], losses[:3])  # before anything was sent
        assert not np.array_equal(found[3:], losses[3:])
        for value, wanted in zip(values, weights, strict=True):
            # Each rank's rounding of its last term, of at most 1 here, times the rate.
            np.testing.assert_allclose(value, wanted, rtol=0, atol=2 * 0.05 * unit)
    for one, other in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "ring"}, {"shard_optimizer": True}, {"compression": "bfloat16"}]
)
def test_where_a_step_cannot_choose_sums_are_taken_at_each_call(rng, monkeypatch, options):
    """A captured graph of a card does the same at every launch: the numbers are the same, too."""

    class Captured(Walk):
        conditional = property(lambda self: False, lambda self, value: None)

    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]

    def ranks() -> Any:
        return mg.distributed.threads(
            2, lambda: _run(OPTIMIZERS["adam"](3), feeds, HALVES, DataParallel(**options))[:2]
        )

    chosen = ranks()
    monkeypatch.setattr("magmagraph.passes.distribute.distribute.Walk", Captured)
    for (losses, weights), (found, values) in zip(chosen, ranks(), strict=True):
        _close(found, losses)
        _close(values, weights)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("cuts", [HALVES, ((0, 2), (2, 7), (7, 10)), ((0, ROWS),)])
def test_what_is_added_up_goes_on_with_other_ranks(rng, cuts, parts):
    """What is saved within a step is the sum of all ranks', whatever their number."""
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]
    losses, weights, _ = _run(OPTIMIZERS["adam"](3), feeds, ((0, ROWS),), None)

    def begun() -> Any:
        optimizer = OPTIMIZERS["adam"](3)
        strategy = DataParallel(shard_optimizer=parts)
        _, values, _ = _run(optimizer, feeds, HALVES, strategy, calls=5)
        return values, optimizer.state_dict()

    (values, saved), (_, other) = mg.distributed.threads(2, begun)
    assert saved.keys() == other.keys()
    for name, value in saved.items():
        np.testing.assert_array_equal(value, other[name])
    assert any(name.endswith("/accumulated") and value.any() for name, value in saved.items())

    def ended() -> Any:
        optimizer = OPTIMIZERS["adam"](3)
        optimizer.load_state_dict(saved)
        strategy = DataParallel(shard_optimizer=parts) if len(cuts) > 1 else None
        step, held = _step(optimizer, strategy)
        for variable, value in zip(held, values, strict=True):
            variable.value = value
        begin, end = cuts[mg.distributed.rank()]
        found = [float(step(feeds[0][begin:end], feeds[1][begin:end])[0]) for _ in range(2)]
        return found, [variable.value for variable in held]

    for found, at_end in mg.distributed.threads(len(cuts), ended):
        _close(found, losses[5:])
        _close(at_end, weights)


def test_an_optimizer_goes_on_without_its_ranks(rng):
    """A function of one process after a distributed one has the whole of what was added up."""
    feeds = [rng.normal(size=(ROWS, 4)), _labels(rng)]

    def job() -> dict[str, np.ndarray]:
        optimizer = OPTIMIZERS["sgd"](3)
        step, held = _step(optimizer, DataParallel())
        begin, end = HALVES[mg.distributed.rank()]
        step(feeds[0][begin:end], feeds[1][begin:end])
        before = optimizer.state_dict()
        optimizer.step(mg.sum(mg.square(held[0])), [held[0]])
        for name, value in before.items():
            np.testing.assert_array_equal(optimizer.state[name].value, value)
        return before

    one, other = mg.distributed.threads(2, job)
    assert one.keys() == other.keys()
