"""What reads a sum over ranks that is not taken yet, along other axes than the sharded one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sharded import UNEQUAL, Program, alone, assert_same, several

import magmagraph as mg
from magmagraph.dtypes import tolerance

CLOSE = tolerance(np.dtype(np.float64), "reassoc")
PLACES = np.array([0, 2, 2])


def _places() -> mg.Node:
    return mg.variable("places", init=PLACES)


READERS: dict[str, Callable[[mg.Node], mg.Node]] = {
    "taken along the last axis, then added": lambda s: mg.sum(mg.take(s, _places(), axis=1), 0),
    "taken and multiplied": lambda s: mg.take(s[0], _places()) ** 2,
    "gradient of rows taken": lambda s: mg.grad(mg.sum(mg.take(s, _places(), axis=0) ** 3), s),
    "written by position": lambda s: mg.zeros((4,), dtype="float64").at[_places()].add(s[0]),
    "sorted": lambda s: mg.sort(s, axis=1),
    "cumulative": lambda s: mg.sum(mg.cumsum(s, axis=0), axis=1),
    "cholesky": lambda s: mg.linalg.cholesky(s + 3 * mg.eye(3, dtype="float64")),
    "determinant": lambda s: mg.linalg.det(s),
    "eigenvalues": lambda s: mg.linalg.eigvalsh(s),
    "spectrum": lambda s: mg.real(mg.fft.fft(s, axis=0)),
    "mapped loop": lambda s: mg.vmap(
        lambda row: mg.while_loop(lambda c: mg.sum(c) < 50.0, lambda c: c + row * row + 1.0, row)
    )(s),
    "drawn": lambda s: mg.sum(mg.random.normal((3,), mean=s[0], std=1e-3, dtype="float64"), 0),
}


@pytest.mark.parametrize("name", READERS)
def test_readers_of_sums_over_ranks(name: str, rng: np.random.Generator) -> None:
    def build() -> Program:
        mg.random.seed(1)
        x = mg.input("x", ("batch", 3), dtype="float64")
        return Program([x], [READERS[name](x.T @ x)], {}, [])

    feeds = [rng.normal(size=(10, 3))]
    one = alone(build, feeds, steps=1)
    assert_same(one, several(build, feeds, UNEQUAL, steps=1), UNEQUAL, CLOSE)
