"""``fit(data="sharded")``: each rank brings its own rows, and one process has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn
from magmagraph.distributed import DataParallel, Hybrid, Mesh, TensorParallel, rank, threads
from magmagraph.distributed.shards import apportion
from magmagraph.dtypes import tolerance
from magmagraph.errors import CommunicationError, ConfigError, DataError

CLOSE = tolerance(np.dtype(np.float32), "reassoc")


def _net(norm: bool = False) -> Any:
    return mg.NeuralNetwork(
        [nn.Input((6,)), nn.Dense(8, "relu"), *[nn.BatchNorm()] * norm, nn.Dense(3)],
        loss="cross_entropy", optimizer=mg.optimizer.SGD(0.1, momentum=0.9), device="cpu", seed=3,
    )  # fmt: skip


def _trained(
    x: Any, y: Any = None, norm: bool = False, **options: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    net = _net(norm)
    options = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0} | options
    return net.fit(x, y, **options), net.tensors()


def _sharded(*given: Any, **options: Any) -> tuple[Any, dict[str, np.ndarray]]:
    options = {"distribute": DataParallel(), "data": "sharded"} | options
    return _trained(*given, **options)


def _merged(lengths: list[int]) -> list[tuple[int, int]]:
    """Return the rows (shard, place) of all shards in the order that is promised, by its words."""
    rows = [(Fraction(2 * i + 1, 2 * n), r, i) for r, n in enumerate(lengths) for i in range(n)]
    return [(shard, place) for _, shard, place in sorted(rows)]


def _assert_same_run(found: list[Any], one: tuple[Any, Any]) -> None:
    rtol, atol = CLOSE
    names = [name for name in one[0] if name != "seconds"]
    for history, tensors in found:
        assert history.records == found[0][0].records  # the same on all ranks, also the seconds
        for name in names:
            np.testing.assert_allclose(history[name], one[0][name], rtol=20 * rtol, atol=atol)
        for name, value in one[1].items():
            np.testing.assert_array_equal(tensors[name], found[0][1][name])
            np.testing.assert_allclose(tensors[name], value, rtol=20 * rtol, atol=20 * atol)


@pytest.fixture(name="rows")
def _rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(43, 6)).astype(np.float32), rng.integers(0, 3, size=43)


@pytest.mark.parametrize("lengths", [(7,), (5, 5, 4), (1, 9), (12, 1, 1, 6), (3, 3, 3)])
def test_rows_are_apportioned_in_the_promised_order(lengths: tuple[int, ...]) -> None:
    taken = [0] * len(lengths)
    assert apportion(0, lengths) == taken
    for count, (shard, _) in enumerate(_merged(list(lengths)), 1):
        taken[shard] += 1
        assert apportion(count, lengths) == taken


def test_strided_shards_are_the_rows_in_order() -> None:
    for rows in (3, 10, 43):
        for count in (1, 2, 3):
            every = [len(range(shard, rows, count)) for shard in range(count)]
            assert _merged(every) == [(i % count, i // count) for i in range(rows)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_strided_shards_train_as_the_whole(
    rows: tuple[np.ndarray, np.ndarray], ranks: int, rng: np.random.Generator
) -> None:
    """43 rows: shards and batches are uneven, and the last batch has fewer rows than ranks."""
    x, y = rows
    weights = rng.uniform(0.5, 2, size=43).astype(np.float32)
    later = (x[:11] + 1, y[:11])
    norm = ranks == 3
    one = _trained(
        x, y, norm, sample_weight=weights, class_weight="balanced", validation_data=later,
        batch_size=7,
    )  # fmt: skip

    def job() -> Any:
        own = slice(rank(), None, ranks)
        return _sharded(
            x[own], y[own], norm, sample_weight=weights[own], class_weight="balanced", batch_size=7,
            validation_data=(later[0][own], later[1][own]),
        )  # fmt: skip

    _assert_same_run(threads(ranks, job), one)


@pytest.mark.parametrize("kind", ["arrays", "examples"])
def test_shards_of_any_lengths_train_as_their_rows_in_one_order(
    rows: tuple[np.ndarray, np.ndarray], kind: str
) -> None:
    x, y = rows
    ends = [0, 25, 27, 43]
    order = [ends[shard] + place for shard, place in _merged([25, 2, 16])]
    one = _trained(x[order], y[order], batch_size=8)

    def job() -> Any:
        own = slice(ends[rank()], ends[rank() + 1])
        if kind == "arrays":
            return _sharded(x[own], y[own], batch_size=8)
        return _sharded(list_of(x[own], y[own]), batch_size=8)

    _assert_same_run(threads(3, job), one)


class list_of:  # noqa: N801 (a set of examples, as torch's)
    """A map-style data set."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        return self.x[place], int(self.y[place])


def _batches(x: np.ndarray, y: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


class Endless:
    """Batches whose number nobody knows before they end."""

    def __init__(self, given: list[Any], wrong: int | None = None) -> None:
        self.given, self.wrong = given, wrong

    def __iter__(self) -> Iterator[Any]:
        for place, (x, y) in enumerate(self.given):
            yield (x * np.nan, y) if place == self.wrong else (x, y)


@pytest.mark.parametrize("form", [list, Endless])
def test_given_batches_are_joined_until_those_of_all_ranks_have_ended(
    rows: tuple[np.ndarray, np.ndarray], form: Callable[..., Any]
) -> None:
    x, y = rows
    shards = [_batches(x[:20], y[:20], 4), _batches(x[20:], y[20:], 9)]  # 5 batches, and 3
    joined = [
        tuple(np.concatenate(columns) for columns in zip(*pair, strict=True))
        for pair in zip(*shards, strict=False)
    ]
    one = _trained([*joined, *shards[0][3:]])
    _assert_same_run(threads(2, lambda: _sharded(form(shards[rank()]))), one)


def test_steps_of_an_epoch_go_on_over_passes(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    one = _trained(x, y, steps_per_epoch=7, epochs=3)
    found = threads(
        2, lambda: _sharded(x[rank() :: 2], y[rank() :: 2], steps_per_epoch=7, epochs=3)
    )
    _assert_same_run(found, one)


def test_shuffled_shards_have_all_rows_in_each_epoch(
    rows: tuple[np.ndarray, np.ndarray]
) -> None:
    """One step an epoch is the whole of the rows: their order does not count."""
    x, y = rows
    one = _trained(x, y, batch_size=43)
    job = lambda: _sharded(x[rank() :: 3], y[rank() :: 3], batch_size=43, shuffle=True)  # noqa: E731
    _assert_same_run(threads(3, job), one)
    first, second = (
        threads(2, lambda s=s: _sharded(x[rank() :: 2], y[rank() :: 2], shuffle=s))[0][0]["loss"]
        for s in (True, False)
    )
    assert list(first) != list(second)


def test_rows_kept_aside_are_those_of_each_shard(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows[0][:40], rows[1][:40]
    one = _trained(x, y, validation_split=0.2, class_weight="balanced")
    found = threads(
        2,
        lambda: _sharded(
            x[rank() :: 2], y[rank() :: 2], validation_split=0.2, class_weight="balanced"
        ),
    )
    _assert_same_run(found, one)


def test_one_rank_has_one_shard(rows: tuple[np.ndarray, np.ndarray]) -> None:
    _assert_same_run([_sharded(*rows)], _trained(*rows))


def test_ranks_of_one_part_have_the_same_shard(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    later = (x[:11], y[:11])
    mesh = Mesh(data=2, tensor=2)

    def job(part: int) -> Any:
        return _sharded(
            x[part::2], y[part::2], distribute=Hybrid(TensorParallel(least=1), DataParallel()),
            validation_data=(later[0][part::9], later[1][part::9]), epochs=1,
        )  # fmt: skip

    one = _trained(x, y, epochs=1, validation_data=tuple(
        np.concatenate([v[0::9], v[1::9]]) for v in later
    ))  # fmt: skip
    _assert_same_run(threads(4, lambda: job(rank() // 2), mesh=mesh), one)
    with pytest.raises(ConfigError, match="ranks 0 and 1 have other data: "):
        threads(4, lambda: job(rank() % 2), mesh=mesh)


def test_asynchronous_ranks_take_steps_of_their_own_rows(
    rows: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = rows
    strategy = lambda: DataParallel(algorithm="async")  # noqa: E731
    found = threads(
        2,
        lambda: _sharded(x[rank() :: 2], y[rank() :: 2], distribute=strategy(), epochs=4),
    )
    (one, held), (other, theirs) = found
    assert one.records == other.records
    assert np.isfinite(one["loss"]).all()
    for name, value in held.items():
        if "kernel" in name:
            np.testing.assert_array_equal(value, theirs[name])


def _refused(of_rank: Callable[[int], Any], **options: Any) -> str:
    """Return what both ranks raise, of data that one of them has."""

    def job() -> str:
        with pytest.raises((ConfigError, DataError)) as caught:
            given = of_rank(rank())
            _sharded(*(given if isinstance(given, tuple) else (given,)), **options)
        return str(caught.value)

    one, other = threads(2, job)
    assert one == other
    return one


X, Y = np.ones((8, 6), np.float32), np.zeros(8, np.int64)


@pytest.mark.parametrize(
    ("of_rank", "text"),
    [
        (lambda r: (X[: 8 - 8 * r], Y[: 8 - 8 * r]), "on rank 1 of 2, there are no examples"),
        (lambda r: (X, None) if r else (X, Y), "on rank 1 of 2, "),
        (lambda r: (X[:, : 6 - r], Y), "on rank 1 of 2, the examples have shape (8, 5)"),
        (lambda r: (X * (np.nan if r == 0 else 1), Y), "on rank 0 of 2, the example in row 0"),
        (lambda r: (X, np.eye(3)[Y] if r else Y), "the labels: int32[batch] on rank 0, float32"),
        (lambda r: list_of(X, Y) if r else (X, Y), "the data: Arrays on rank 0, Examples on r"),
        (lambda r: (X, Y), None),
    ],
)
def test_shards_that_do_not_fit_are_errors_of_all_ranks(of_rank: Any, text: str | None) -> None:
    if text is not None:
        assert text in _refused(of_rank)
        return
    assert threads(2, lambda: len(_sharded(X, Y)[0].records)) == [2, 2]


def test_weights_and_validation_are_those_of_all_ranks_or_none() -> None:
    def job(**of_first: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            _sharded(X, Y, **(of_first if rank() == 0 else {}))
        return str(caught.value)

    assert "weights of rows: True on rank 0, False on rank 1" in threads(
        2, lambda: job(sample_weight=np.ones(8))
    )[1]
    assert "data for validation: Arrays on rank 0, None on rank 1" in threads(
        2, lambda: job(validation_data=(X, Y))
    )[1]
    assert "data: sharded on rank 0, whole on rank 1" in threads(
        2, lambda: _refused_whole()
    )[1]


def _refused_whole() -> str:
    with pytest.raises(ConfigError) as caught:
        _sharded(X, Y, data="sharded" if rank() == 0 else "whole")
    return str(caught.value)


def test_a_batch_that_is_wrong_on_one_rank_leaves_all_where_the_epoch_began(
    rows: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = rows

    def job() -> tuple[str, bool]:
        net = _net()
        given = Endless(_batches(x, y, 9), wrong=2 if rank() == 1 else None)
        before = net.tensors()
        with pytest.raises(DataError) as caught:
            net.fit(given, distribute=DataParallel(), data="sharded", verbose=0)
        same = all(np.array_equal(v, before[name]) for name, v in net.tensors().items())
        return str(caught.value), same

    (one, first), (other, second) = threads(2, job)
    assert one == other
    assert one.startswith("on rank 1 of 2, in batch 2 of epoch 0, the example in row 0 holds nan")
    assert first
    assert second


def test_an_error_of_the_users_own_is_told_to_the_other_ranks() -> None:
    class Broken(list_of):
        def __getitem__(self, place: int) -> Any:
            if rank() == 1 and place == 5:
                raise KeyError("no such file")
            return super().__getitem__(place)

    def job() -> str:
        try:
            _sharded(Broken(X, Y))
        except (KeyError, CommunicationError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    one, other = threads(2, job)
    assert other == "KeyError: 'no such file'"
    assert one.startswith("CommunicationError: rank 1 of 2 has failed, and no rank takes step 1")


def test_rows_of_other_shapes_in_one_step_are_refused() -> None:
    def job() -> None:
        x = mg.input("x", ("batch", "time", 4))
        model = mg.Model(x, nn.Dense(3)(mg.mean(x, axis=1)), loss="cross_entropy", device="cpu")
        given = [(np.ones((4, length, 4)), np.zeros(4, int)) for length in (5, 6 + rank())]
        model.fit(given, distribute=DataParallel(), data="sharded", verbose=0)

    with pytest.raises(DataError, match=r"in batch 1 of epoch 0, the rows of shard 0 have the "):
        threads(2, job)


def test_shards_want_ranks() -> None:
    with pytest.raises(ConfigError, match="data='sharded' without distribute="):
        _trained(X, Y, data="sharded")
    with pytest.raises(ConfigError, match="data='shards'\n  expected: 'whole' or 'sharded'"):
        _trained(X, Y, data="shards")


def test_a_run_resumes_with_the_same_shards(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Any
) -> None:
    x, y = rows
    file = tmp_path / "run.mg"
    one = _trained(x, y, epochs=3)

    def job(ranks: int, epochs: int) -> Any:
        own = slice(rank(), None, ranks)
        saved = [mg.callbacks.Checkpoint(file)]
        return _sharded(x[own], y[own], epochs=epochs, callbacks=saved, resume=file)

    threads(2, lambda: job(2, 1))
    with pytest.raises(DataError, match="a run with other data"):
        threads(3, lambda: job(3, 3))
    _assert_same_run(threads(2, lambda: job(2, 3)), one)
