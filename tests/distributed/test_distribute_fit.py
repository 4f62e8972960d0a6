"""Networks trained by several ranks: the history, weights and files of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError, DataError

CLOSE = tolerance(np.dtype(np.float32), "reassoc")


def _net() -> Any:
    return mg.NeuralNetwork(
        [nn.Input((6,)), nn.Dense(8, "relu"), nn.Dropout(0.2), nn.BatchNorm(), nn.Dense(3)],
        loss="cross_entropy", optimizer=mg.optimizer.SGD(0.1, momentum=0.9), device="cpu", seed=3,
    )  # fmt: skip


def _trained(x: Any, y: Any, strategy: Any, **options: Any) -> tuple[Any, Any]:
    net = _net()
    history = net.fit(x, y, batch_size=10, distribute=strategy, **options)
    return history, net.tensors()


def _assert_same_run(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    rtol, atol = CLOSE
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(other[0][name], one[0][name], rtol=10 * rtol, atol=atol)
    for name, value in one[1].items():
        np.testing.assert_allclose(other[1][name], value, rtol=10 * rtol, atol=10 * atol)


@pytest.fixture(name="data")
def _data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    # 43 rows: the last batch has 3, of which one of four ranks gets none.
    return rng.normal(size=(43, 6)).astype(np.float32), rng.integers(0, 3, size=43)


def test_fit_is_that_of_one_process(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    options = {"epochs": 2, "validation_data": (x[:9], y[:9])}
    one = _trained(x, y, None, **options)
    found = mg.distributed.threads(4, lambda: _trained(x, y, DataParallel(), **options))
    for other in found:
        _assert_same_run(one, other)
        assert list(other[0]["val_loss"]) == list(found[0][0]["val_loss"])


def test_fit_of_given_batches_is_that_of_one_process(
    data: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = data
    given = mg.batches(x, y.astype(np.int32), size=10, seed=5)
    one = _trained(given, None, None, epochs=1)

    def job() -> tuple[Any, Any]:
        mine = mg.batches(x, y.astype(np.int32), size=10, seed=5)
        return _trained(mine, None, DataParallel(), epochs=1)

    for other in mg.distributed.threads(2, job):
        _assert_same_run(one, other)


def test_a_checkpoint_resumes_with_another_number_of_ranks(
    data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x, y = data
    file = tmp_path / "run.mg"
    one = _trained(x, y, None, epochs=3)

    def cut() -> None:
        _trained(x, y, DataParallel(), epochs=1, callbacks=[mg.callbacks.Checkpoint(file)])

    def resumed() -> tuple[Any, Any]:
        return _trained(
            x, y, DataParallel(), epochs=3, callbacks=[mg.callbacks.Checkpoint(file)], resume=file
        )

    mg.distributed.threads(2, cut)
    for other in mg.distributed.threads(4, resumed):
        _assert_same_run(one, other)


def test_what_is_written_is_written_by_rank_0(
    data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x, y = data

    def job() -> None:
        log = mg.callbacks.CSVLog(tmp_path / f"rank{mg.distributed.rank()}.csv")
        _trained(x, y, DataParallel(), epochs=1, callbacks=[log])

    mg.distributed.threads(2, job)
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.csv"]


def test_batches_in_parts(rng: np.random.Generator) -> None:
    x = np.arange(23)
    whole = mg.batches(x, size=5, seed=2)
    parts = [mg.batches(x, size=5, seed=2, shard=(i, 3)) for i in range(3)]
    for epoch in range(2):
        for (full,), *pieces in zip(whole, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate([part for (part,) in pieces]), full)
        assert whole.epoch == epoch + 1
    in_order = mg.batches(x, size=5, shuffle=False, shard=(1, 2))
    assert [part.tolist() for (part,) in in_order][-1] == [21, 22]
    with pytest.raises(DataError, match=r"shard=\(2, 2\)"):
        mg.batches(x, shard=(2, 2))


def test_batches_in_other_orders_are_refused(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data

    def job() -> None:
        given = mg.batches(x, y, size=10, shuffle=True, seed=mg.distributed.rank())
        _net().fit(given, distribute=DataParallel())

    with pytest.raises(ConfigError, match="a checksum of some examples: "):
        mg.distributed.threads(2, job)


class _Stopped(mg.callbacks.Callback):
    """Ends the run by what one rank alone sees: a clock, say."""

    def __init__(self, rank: int, epoch: int | None = None, step: int | None = None) -> None:
        self.rank, self.epoch, self.step = rank, epoch, step
        self.steps = 0

    def epoch_end(self, training: Any) -> None:
        if mg.distributed.rank() == self.rank and training.epoch == self.epoch:
            training.stopping = True

    def step_end(self, training: Any) -> None:
        self.steps += 1
        if mg.distributed.rank() == self.rank and training.step == self.step:
            training.stopping = True


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("kind", [DataParallel, lambda: DataParallel(algorithm="async")])
def test_a_rank_that_stops_stops_all(
    data: tuple[np.ndarray, np.ndarray], rank: int, kind: Any
) -> None:
    x, y = data

    def job() -> int:
        stopped = _Stopped(rank, epoch=2)
        history, _ = _trained(x, y, kind(), epochs=5, callbacks=[stopped])
        return len(history.records)

    assert mg.distributed.threads(3, job) == [2, 2, 2]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stops_within_an_epoch_stops_all(
    data: tuple[np.ndarray, np.ndarray], rank: int
) -> None:
    x, y = data

    def job() -> tuple[int, list[np.ndarray]]:
        stopped = _Stopped(rank, step=3)
        _, held = _trained(x, y, DataParallel(), epochs=2, callbacks=[stopped])
        return stopped.steps, list(held.values())

    (count, first), (other, second) = mg.distributed.threads(2, job)
    assert count == other == 3
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_alone_may_have_callbacks(
    data: tuple[np.ndarray, np.ndarray], rank: int
) -> None:
    """The other one would go through its epoch at once, and meet nobody after each step."""
    x, y = data

    def job() -> tuple[int, int]:
        own = [_Stopped(rank, step=3)] if mg.distributed.rank() == rank else []
        history, _ = _trained(x, y, DataParallel(), epochs=2, callbacks=own)
        return len(history.records), sum(stopped.steps for stopped in own)

    found = mg.distributed.threads(2, job)
    assert [records for records, _ in found] == [0, 0]
    assert found[rank][1] == 3


def test_steps_are_told_to_the_first_rank_alone(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data

    def job() -> int:
        shown = _Stopped(0)
        shown.first_rank_only = True
        _trained(x, y, DataParallel(), epochs=1, callbacks=[shown])
        return shown.steps

    assert mg.distributed.threads(3, job) == [5, 0, 0]


def test_a_later_run_begins_with_the_first_ranks_weights(
    data: tuple[np.ndarray, np.ndarray]
) -> None:
    """A rank has loaded others in between, say."""
    x, y = data

    def twice(strategy: Any) -> list[np.ndarray]:
        net = _net()
        net.fit(x, y, batch_size=10, distribute=strategy)
        if mg.distributed.rank() != 0:
            for held in net.trainable:
                held.assign(np.zeros(held.shape, np.float32))
        net.fit(x, y, batch_size=10, distribute=strategy)
        return list(net.tensors().values())

    wanted = twice(None)
    found = mg.distributed.threads(2, lambda: twice(DataParallel()))
    rtol, atol = CLOSE
    for one, two, value in zip(*found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, value, rtol=10 * rtol, atol=10 * atol)
