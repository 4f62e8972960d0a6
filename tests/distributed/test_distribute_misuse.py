"""Wrong uses of strategies: each is refused with what is wrong and the mend, and no rank hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed import (
    DataParallel,
    Hybrid,
    Mesh,
    PipelineParallel,
    TensorParallel,
    rank,
    threads,
)
from magmagraph.distributed.consistency import check_equal_on_ranks
from magmagraph.errors import CommunicationError, ConfigError, FeedError, ShardingError
from magmagraph.ir.ranks import current

SOON = 5.0  # seconds, of jobs whose ranks would wait for thirty


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DataParallel(staleness=2), "staleness=2 with algorithm='allreduce'\n.*\n.*async"),
        (lambda: DataParallel(algorithm="ring", staleness=0), "staleness=0 with algorithm='ring'"),
        (lambda: DataParallel(algorithm="async", bucket_bytes=9), "bucket_bytes=9 with .*'async'"),
        (
            lambda: DataParallel(algorithm="async", compression="float16"),
            "compression='float16' with algorithm='async'",
        ),
        (lambda: DataParallel(accumulate=0), "accumulate=0\n  expected: a number of micro-batches"),
        (lambda: DataParallel(accumulate=True), "accumulate=True"),
        (lambda: DataParallel(accumulate=2.0), "accumulate=2.0"),
        (
            lambda: Hybrid(DataParallel(algorithm="async"), TensorParallel()),
            r"Hybrid is given DataParallel\(algorithm='async'\)",
        ),
        (
            lambda: Hybrid(DataParallel(shard_optimizer=True), TensorParallel()),
            r"Hybrid is given DataParallel\(shard_optimizer=True\)",
        ),
        (
            lambda: Hybrid(DataParallel(accumulate=2), PipelineParallel(3)),
            r"accumulate=2 and micro_batches=3\n.*\n.*PipelineParallel\(6\)",
        ),
        (
            lambda: Hybrid(DataParallel("rows"), PipelineParallel(3)),
            "dim='rows' and dim='batch'",
        ),
    ],
)
def test_options_that_do_not_go_together(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make()
    assert "\n  expected: " in str(caught.value)


def _step(strategy: Any) -> Any:
    """Return the result of a step of two layers."""
    x, y = mg.input("x", ("batch", 4)), mg.input("y", ("batch", 2))
    held = [mg.var("v", init=np.ones((4, 6))), mg.var("w", init=np.ones((6, 2)))]
    loss = mg.mean((mg.tanh(x @ held[0]) @ held[1] - y) ** 2)
    step = mg.optimizer.SGD(0.1).step(
        loss, held, inputs=[x, y], outputs=loss, device="cpu", distribute=strategy
    )
    return step(np.ones((4, 4), np.float32), np.ones((4, 2), np.float32))


def _kept_whole() -> Any:
    x, w = mg.input("x", ("batch",)), mg.var("w", init=1.0)
    loss = mg.mean(x * w)
    updates = mg.optimizer.Adam(0.1).updates(loss, [w])
    strategy = DataParallel(shard_optimizer=True)
    return mg.function([x], loss, updates=updates, device="cpu", distribute=strategy)([1.0])


def _once_more() -> None:
    x = mg.input("x", ("batch",))
    f = mg.function([x], mg.sum(x), device="cpu", distribute=DataParallel())
    for _ in range(3 - rank()):
        f([1.0])


JOBS: dict[str, tuple[Callable[[], Any], str]] = {
    "one rank only": (
        lambda: _step(DataParallel() if rank() == 0 else None),
        "rank 0 waits in making the plan of a function for rank 1; rank 1 has ended without it"
        "\n.*\n  try: the same calls and distribute= on every rank",
    ),
    "one step more": (
        _once_more, r"rank 0 waits in the begin of a call of .* for rank 1; rank 1 has ended"
    ),
    "other micro-batches": (
        lambda: _step(DataParallel(accumulate=1 + rank())), "accumulate: 1 on rank 0, 2 on rank 1"
    ),
    "other algorithms": (
        lambda: _step(DataParallel(algorithm=("ring", "allreduce")[rank()])),
        "algorithm: ring on rank 0, allreduce on rank 1\n  expected: the same strategy on all "
        "ranks",
    ),
    "one axis for two": (
        lambda: _step(Hybrid(DataParallel(), TensorParallel(least=1))),
        r"both spread over the axis 'data' of Mesh\(data=2\)\n.*\n  try: .*Mesh\(data=2, tensor=2",
    ),
    "states that stay whole": (
        _kept_whole, "no optimizer of the function has its state in parts\n.*\n  try: optimizer.st"
    ),
    "other calls": (
        lambda: current().exchange(1, ("the start of x", "the end of x")[rank()]),
        "rank [01] is in the (start|end) of x, rank [01] in the (start|end) of x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_ranks_that_differ_are_told_at_once(name: str) -> None:
    job, text = JOBS[name]
    began = time.monotonic()
    with pytest.raises(mg.MagmagraphError, match=text):
        threads(2, job, timeout=30.0)
    assert time.monotonic() - began < SOON


def _fed(make: Callable[[Any], Any], shapes: tuple[tuple[int, ...], ...]) -> str:
    """Feed each rank its shape; return what is raised there."""
    x = mg.input("x", ("batch", "n"))
    f = mg.function([x], make(x), device="cpu", distribute=DataParallel(), name="f")
    with pytest.raises((FeedError, ShardingError)) as caught:
        f(np.ones(shapes[rank()], np.float32))
    return f"{caught.type.__name__}: {caught.value}"


def test_what_cannot_be_spread_is_said_on_a_rank_without_rows() -> None:
    """The first row of a sort needs a row: not having one is not what is wrong."""
    first = lambda x: mg.sum(mg.sort(x, axis=0)[0])  # noqa: E731
    one, other = threads(2, lambda: _fed(first, ((4, 3), (0, 3))))
    assert one == other
    assert one.startswith("ShardingError: the dimension 'batch' is sharded over ranks")


def test_a_feed_of_one_rank_is_refused_on_all() -> None:
    third = lambda x: mg.sum(x[:, 2])  # noqa: E731
    one, other = threads(2, lambda: _fed(third, ((4, 3), (4, 1))))
    assert one == other
    assert one.startswith("FeedError: rank 1 of 2: slice needs n - 1 >= 2, but batch is 4, n is 1")
    assert one.endswith("try: feed every rank as many rows as its operations need")


def test_names_of_functions_may_differ() -> None:
    def job() -> list[int]:
        held = mg.distributed.communicator()
        return held.exchange(rank(), f"making the plan of {'server' if rank() else 'worker'}")

    assert threads(2, job) == [[0, 1], [0, 1]]


def test_strategies_of_different_axes_go_together() -> None:
    strategy = lambda: Hybrid(DataParallel(), TensorParallel(least=1))  # noqa: E731
    wanted = float(_step(None))
    for found in threads(4, lambda: _step(strategy()), mesh=Mesh(data=2, tensor=2)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    # An axis of one rank is nobody's.
    for found in threads(1, lambda: _step(strategy())):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows": 9}, "examples: 10 on rank 0, 9 on rank 1"),
        ({"batch_size": 5}, "batch_size: 4 on rank 0, 5 on rank 1"),
        ({"epochs": 2}, "epochs: 1 on rank 0, 2 on rank 1"),
        ({"shuffle": False}, "shuffle: True on rank 0, False on rank 1"),
        ({"seed": 1}, "the model's seed: 0 on rank 0, 1 on rank 1"),
        ({"begin": 1}, "a checksum of some examples: [0-9]+ on rank 0, [0-9]+ on rank 1"),
    ],
)
def test_ranks_that_fit_something_else_are_refused(options: dict[str, Any], text: str) -> None:
    def job() -> None:
        given: dict[str, Any] = {"batch_size": 4, "epochs": 1, "shuffle": True}
        given |= {"rows": 10, "seed": 0, "begin": 0}
        if rank() == 1:
            given |= options
        rows, seed, begin = given.pop("rows"), given.pop("seed"), given.pop("begin")
        net = mg.NeuralNetwork(
            [mg.nn.Input((4,)), mg.nn.Dense(3)], loss="cross_entropy",
            optimizer=mg.optimizer.SGD(0.1), seed=seed, device="cpu",
        )  # fmt: skip
        x = np.arange(begin, begin + 4 * rows, dtype=np.float32).reshape(rows, 4)
        net.fit(
            x, np.zeros(rows, np.int64), progress=False,
            distribute=DataParallel(), **given,
        )  # fmt: skip

    with pytest.raises(ConfigError, match=f"{text}\n  expected: the whole of the data"):
        threads(2, job)


def test_ranks_that_fit_alike_go_on() -> None:
    assert threads(3, lambda: check_equal_on_ranks({"epochs": 2, "rows": None})) == [None] * 3
    with pytest.raises(CommunicationError, match="rank 0 waits in the start of training"):
        threads(2, lambda: check_equal_on_ranks({"epochs": 2}) if rank() == 0 else None)


@pytest.mark.parametrize(
    ("option", "values"), [("precision", ("float32", "bfloat16")), ("nan", ("allow", "raise"))]
)
def test_settings_that_differ_are_told(option: str, values: tuple[str, str]) -> None:
    def job() -> None:
        x = mg.input("x", ("batch", 4))
        options: dict[str, Any] = {option: values[rank()]}
        f = mg.function([x], mg.sum(x), device="cpu", distribute=DataParallel(), **options)
        f(np.ones((2, 4), np.float32))

    text = f"{option}: {values[0]} on rank 0, {values[1]} on rank 1"
    with pytest.raises(ConfigError, match=text):
        threads(2, job)
