"""Rows of few elements on a CUDA device, whose length the graph knows or only the call does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg

pytestmark = pytest.mark.gpu

N = mg.Dim("N")
COLUMNS = (1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 24, 31, 32, 33, 48, 64, 100, 128)
MADE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: mg.sum(v, axis=1),
    "max": lambda v: mg.max(v, axis=1),
    "argmax": lambda v: mg.argmax(v, axis=1),
    "softmax": mg.softmax,
    "logsumexp": lambda v: mg.logsumexp(v, axis=1),
    "layer_norm": lambda v: mg.layer_norm(v, eps=0.1),
}


def exact(name: str, wide: np.ndarray) -> np.ndarray:
    """Return the value in float64."""
    if name in ("sum", "max", "argmax"):
        return np.asarray(getattr(wide, name)(1))
    if name == "layer_norm":
        centred = wide - wide.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 0.1)
    top = wide.max(1, keepdims=True)
    part = np.exp(wide - top)
    if name == "softmax":
        return part / part.sum(1, keepdims=True)
    return top[:, 0] + np.log(part.sum(1))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_rows_of_every_length(dtype: str, columns: int, rng: np.random.Generator) -> None:
    for rows in (100, 70_001):
        given = rng.standard_normal((rows, columns)).astype(dtype)
        given[rows // 2] = given[rows // 2, ::-1].max()  # equal elements: the first is found
        if columns > 1:  # the softmax of one element is 1, whatever that is
            given[-1, columns // 2] = np.nan
        wide = given.astype("f8")
        for name, make in MADE.items():
            x = mg.var("x", shape=(rows, columns), dtype=dtype)
            f = mg.function([x], make(x), device="cuda", options={"reduce_to_gemv": "never"})
            for _ in range(2):  # the second is captured
                found = f(given).get()
            wanted = exact(name, wide).astype(found.dtype)
            assert_agrees(found, wanted, "reassoc", columns**0.5)


@pytest.mark.parametrize("rows", [100, 70_001])
def test_rows_over_several_axes_and_views(rows: int, rng: np.random.Generator) -> None:
    given = rng.standard_normal((rows, 3, 4)).astype("f4")
    x = mg.var("x", shape=(rows, 3, 4))
    # Steps of rows that vectors do not divide, and an axis in between that is kept.
    made = [
        mg.softmax(mg.reshape(x, (rows, 12))[:, 1:9]), mg.sum(x, axis=(1, 2)), mg.max(x, axis=1),
        mg.sum(x * x, axis=(0, 2)), x - mg.mean(x, axis=(1, 2), keepdims=True),
    ]  # fmt: skip
    wide = given.astype("f8")
    wanted = [
        exact("softmax", wide.reshape(rows, 12)[:, 1:9]), wide.sum((1, 2)), wide.max(1),
        (wide**2).sum((0, 2)), wide - wide.mean((1, 2), keepdims=True),
    ]  # fmt: skip
    for one, value in zip(made, wanted, strict=True):
        f = mg.function([x], one, device="cuda", options={"reduce_to_gemv": "never"})
        for _ in range(2):
            found = f(given).get()
        assert_agrees(found, value.astype("f4"), "reassoc", rows**0.5)


def test_a_length_that_only_the_call_knows(rng: np.random.Generator) -> None:
    for name, make in MADE.items():
        x = mg.var("x", shape=(70_001, N))
        f = mg.function([x], make(x), device="cuda", options={"reduce_to_gemv": "never"})
        for columns in (2, 10, 16, 31, 32, 64):
            given = rng.standard_normal((70_001, columns)).astype("f4")
            for _ in range(2):
                found = f(given).get()
            wanted = exact(name, given.astype("f8")).astype(found.dtype)
            assert_agrees(found, wanted, "reassoc", columns**0.5)


def test_rows_that_are_written_where_they_were_read(rng: np.random.Generator) -> None:
    given = rng.standard_normal((70_001, 10)).astype("f4")
    w = mg.var("w", init=given)
    step = mg.function([], mg.sum(w), updates={w: mg.softmax(w)}, device="cuda")
    wide = given.astype("f8")
    for _ in range(3):
        step()
        wide = exact("softmax", wide)
    assert_agrees(w.value, wide.astype("f4"), "reassoc", 4)


@pytest.mark.parametrize("classes", [3, 10, 31])
def test_rows_that_a_product_makes(classes: int, rng: np.random.Generator) -> None:
    w = rng.standard_normal((300, classes)).astype("f4") / 16
    x = mg.var("x", shape=("rows", 300))
    logits = x @ mg.var("w", init=w)
    outputs = [make(logits) for make in (MADE["softmax"], MADE["argmax"], MADE["logsumexp"])]
    f = mg.function([x], outputs, device="cuda")
    for rows in (50, 5_001):
        given = rng.standard_normal((rows, 300)).astype("f4")
        wide = given.astype("f8") @ w.astype("f8")
        for _ in range(3):
            found = [part.get() for part in f(given)]
        assert_agrees(found[0], exact("softmax", wide).astype("f4"), "reassoc", 300**0.5)
        assert np.mean(found[1] == wide.argmax(1)) > 0.999  # two may be as large as that
        assert_agrees(found[2], exact("logsumexp", wide).astype("f4"), "reassoc", 300**0.5)
