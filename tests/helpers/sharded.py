"""What tests of distribution share: a program run by one rank and by several, on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import magmagraph as mg
from magmagraph.distributed import DataParallel

Cuts = Sequence[tuple[int, int]]
HALVES: Cuts = ((0, 3), (3, 10))
UNEQUAL: Cuts = ((0, 1), (1, 5), (5, 5), (5, 10))  # one rank has no rows


class Program(NamedTuple):
    """What `build` gives: inputs, outputs, updates, and the variables to compare."""

    inputs: list[Any]
    outputs: list[Any]
    updates: dict[Any, Any]
    watched: list[Any]


class Run(NamedTuple):
    """The results of each step, the variables at the end, and the function."""

    results: list[list[np.ndarray]]
    values: list[np.ndarray]
    function: Any


Build = Callable[[], Program]


def run(program: Program, feeds: Sequence[np.ndarray], steps: int, strategy: Any) -> Run:
    """Build a program and call it some times."""
    inputs, outputs, updates, watched = program
    function = mg.function(inputs, outputs, updates=updates, device="cpu", distribute=strategy)
    results = [[np.asarray(part) for part in function(*feeds)] for _ in range(steps)]
    return Run(results, [variable.value for variable in watched], function)


def several(
    build: Build,
    feeds: Sequence[np.ndarray],
    cuts: Cuts,
    strategy: Callable[[], Any] = DataParallel,
    steps: int = 3,
    **options: Any,
) -> list[Run]:
    """Run a program on ranks that have the rows between the cuts."""

    def job() -> Run:
        begin, end = cuts[mg.distributed.rank()]
        own = [feed[begin:end] if feed.ndim else feed for feed in feeds]
        return run(build(), own, steps, strategy())

    return mg.distributed.threads(len(cuts), job, **options)


def alone(build: Build, feeds: Sequence[np.ndarray], steps: int = 3) -> Run:
    """Run a program in one process that has all rows."""
    (lone_run,) = mg.distributed.threads(1, lambda: run(build(), feeds, steps, None))
    return lone_run


def assert_same(
    one: Run, ranks: Sequence[Run], cuts: Cuts, tolerance: tuple[float, float]
) -> None:
    """Compare each step's results and the variables of all ranks with those of one process."""
    rtol, atol = tolerance
    for (begin, end), rank_run in zip(cuts, ranks, strict=True):
        for wholes, parts in zip(one.results, rank_run.results, strict=True):
            for whole, part in zip(wholes, parts, strict=True):
                if whole.shape != part.shape:
                    pairs = zip(whole.shape, part.shape, strict=True)
                    axis = next(i for i, (a, b) in enumerate(pairs) if a != b)
                    whole = np.take(whole, range(begin, end), axis=axis)
                np.testing.assert_allclose(part, whole, rtol=rtol, atol=atol)
        for wanted_value, value in zip(one.values, rank_run.values, strict=True):
            np.testing.assert_allclose(value, wanted_value, rtol=rtol, atol=atol)
    for rank_run in ranks[1:]:  # all ranks hold the same bits
        for first, other in zip(ranks[0].values, rank_run.values, strict=True):
            np.testing.assert_array_equal(first, other)
