"""Searching, binning and counting with a sharded dimension: equal to one process, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sharded import HALVES, UNEQUAL, Program, alone, assert_same, several

import magmagraph as mg
from magmagraph.distributed import DataParallel
from magmagraph.dtypes import tolerance
from magmagraph.errors import ShardingError

CLOSE = tolerance(np.dtype(np.float64), "reassoc")
EDGES = np.array([-1.5, -0.5, 0.25, 0.25, 1.5])
VALUES = np.array([2.0, -1.0, 0.5, 3.0, 1.0])
ROWS = 12

Build = Callable[[mg.Node], Any]
OF_OWN_ROWS: dict[str, Build] = {
    "searchsorted": lambda x: [mg.searchsorted(EDGES, x, side=s) for s in ("left", "right")],
    "sorted by positions": lambda x: mg.searchsorted(
        VALUES, x, sorter=mg.variable("sorter", init=np.argsort(VALUES))
    ),
    "digitize": lambda x: [mg.digitize(x, EDGES), mg.digitize(x, EDGES[::-1].copy(), right=True)],
    "isin": lambda x: [mg.isin(mg.round(x), [1.0, -2.0], invert=i) for i in (False, True)],
    "interp": lambda x: [
        mg.interp(x, EDGES, VALUES, left=0.0), mg.interp(x[:, 1], EDGES, VALUES, period=1.75)
    ],
    "slopes of interp": lambda x: mg.grad(mg.sum(mg.interp(x, EDGES, VALUES) ** 2), x),
}  # fmt: skip
OVER_ALL_ROWS: dict[str, Build] = {
    "histogram": lambda x: [*mg.histogram(x, 4), *mg.histogram(x[:, 0], EDGES)],
    "histogram in a range": lambda x: list(mg.histogram(x, 5, range=(-1.0, 1.0), density=True)),
    "histogram of weights": lambda x: list(mg.histogram(x, 3, weights=x**2)),
    "histogram2d": lambda x: list(mg.histogram2d(x[:, 0], x[:, 1], bins=(2, 3))),
    "edges of bins": lambda x: mg.histogram_bin_edges(x, 3),
    "bincount": lambda x: mg.bincount(mg.digitize(x, EDGES), length=7),
    "weights of bincount": lambda x: mg.grad(
        mg.sum(mg.bincount(mg.digitize(x, EDGES), weights=x, length=7) ** 2), x
    ),
    "values of interp": lambda x: mg.grad(
        mg.sum(mg.interp(x, EDGES, at := mg.variable("at", init=VALUES)) ** 2), [at]
    )[0],
    "a sharded line": lambda x: [
        mg.searchsorted(x[:, 2], EDGES, side="left"),
        mg.searchsorted(x[:, 2], [[0.0, 1.0], [np.nan, 2.0]], side="right"),
    ],
}


def _built(build: Build) -> Callable[[], Program]:
    def made() -> Program:
        x = mg.input("x", ("batch", 3), dtype="float64")
        found = build(x)
        return Program([x], found if isinstance(found, list) else [found], {}, [])

    return made


def _rows(rng: np.random.Generator) -> np.ndarray:
    rows = rng.normal(size=(ROWS, 3)).round(1)  # some on an edge
    rows[:, 2] = np.sort(rng.integers(0, 3, ROWS))  # a line with equal elements, of several ranks
    return rows


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "float_dtype", "float64")


@pytest.mark.parametrize("name", [*OF_OWN_ROWS, *OVER_ALL_ROWS])
def test_searches_and_counts_are_those_of_one_process(
    name: str, rng: np.random.Generator
) -> None:
    build, feeds = _built({**OF_OWN_ROWS, **OVER_ALL_ROWS}[name]), [_rows(rng)[:10]]
    one = alone(build, feeds, steps=1)
    for cuts in (HALVES, UNEQUAL):
        assert_same(one, several(build, feeds, cuts, steps=1), cuts, CLOSE)


@pytest.mark.parametrize("name", OF_OWN_ROWS)
def test_searches_of_own_rows_send_nothing(name: str, rng: np.random.Generator) -> None:
    (first, _) = several(_built(OF_OWN_ROWS[name]), [_rows(rng)[:10]], HALVES, steps=1)
    assert "allreduce" not in str(first.function.plan)


def test_micro_batches_are_counted_together(rng: np.random.Generator) -> None:
    feeds = [_rows(rng)]
    build = _built(lambda x: mg.histogram(x, EDGES).hist)
    one, cuts = alone(build, feeds, steps=1), ((0, 4), (4, 12))
    ranks = several(build, feeds, cuts, lambda: DataParallel(accumulate=2), steps=1)
    assert_same(one, ranks, cuts, CLOSE)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x: mg.searchsorted(x[:, 2], x[:, 0]), "searchsorted.* among the rows of all ranks"),
        (lambda x: mg.isin(VALUES, x), "sort.*\n.*\n.*.*try: .*before the rows are fed"),
        (lambda x: mg.unique(x, size=4), "sort.*\n.*\n.*.*try: .*before the rows are fed"),
    ],
)
def test_what_needs_other_ranks_rows_is_refused(
    build: Build, reason: str, rng: np.random.Generator
) -> None:
    with pytest.raises(ShardingError, match=f"(?s){reason}"):
        several(_built(build), [_rows(rng)[:10]], HALVES, steps=1)
