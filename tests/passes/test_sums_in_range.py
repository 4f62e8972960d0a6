"""Scales that keep sums and products in range: they stay inside, whatever would be shorter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg

COUNT = 64
Made = Callable[..., mg.Node]


def _hits(inputs: Sequence[mg.Node], result: mg.Node, name: str) -> dict[str, int]:
    report = mg.function(inputs, result, device="cpu").compile().report
    return dict(next(record for record in report if record.name == name).hits)


def _largest(dtype: str) -> float:
    """Return a number of which COUNT are out of range."""
    return float(np.finfo(dtype).max) / 16.0


SCALED: dict[str, Made] = {
    "by a constant": lambda x, s, r: mg.sum(x * 0.001),
    "by a value": lambda x, s, r: mg.sum(x * s),
    "over a constant": lambda x, s, r: mg.sum(x / 1024.0),
    "over an odd constant": lambda x, s, r: mg.sum(x / 77.0, axis=0),
    "over a value": lambda x, s, r: mg.sum(x / (1.0 / s), axis=1),
    "over an extent": lambda x, s, r: mg.sum(x / x.shape[0], axis=0),
    "by rows": lambda x, s, r: mg.sum(x * r, axis=0),
    "over rows": lambda x, s, r: mg.sum(x / (1.0 / r), axis=0),
    "mean": lambda x, s, r: mg.mean(x * s, axis=1),
    "over the largest": lambda x, s, r: mg.sum(x / mg.max(x)),
    "over the largest of rows": lambda x, s, r: mg.sum(x / mg.max(x, 1, keepdims=True), axis=1),
    "by the largest's reciprocal": lambda x, s, r: mg.sum(x * (1.0 / mg.max(x)), axis=1),
    "product": lambda x, s, r: (x * s) @ mg.ones((COUNT, 3), x.dtype),
    "product of a small constant": lambda x, s, r: (x * 1e-5) @ mg.ones((COUNT, 3), x.dtype),
    "second factor": lambda x, s, r: mg.ones((3, COUNT), x.dtype) @ (x * s),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SCALED)
def test_what_is_finite_stays_so(name: str, dtype: str) -> None:
    x = mg.input("x", ("n", COUNT), dtype)
    s, r = mg.input("s", (), dtype), mg.input("r", (1, COUNT), dtype)
    result = SCALED[name](x, s, r)
    leaves = [x, s, r]
    large = np.linspace(0.5, 1.0, COUNT * COUNT).reshape(COUNT, COUNT) * _largest(dtype)
    small = np.asarray(1e-5, dtype)
    feeds = [large.astype(dtype), small, np.full((1, COUNT), small, dtype)]
    plain = value(result, dict(zip(leaves, feeds, strict=True)))
    found = mg.function(leaves, result, device="cpu")(*feeds)
    assert np.isfinite(plain).all()
    np.testing.assert_allclose(found, plain, rtol=1e-4)


def test_unnormalized_weights() -> None:
    """exp(85) is within float32; the sum of 64 of them is not, the largest taken out of it."""
    scores = mg.input("scores", (3, COUNT))
    weights = mg.exp(scores)
    counts = [
        mg.sum(weights / mg.max(weights)),
        mg.sum(weights / mg.max(weights, axis=1, keepdims=True), axis=1),
    ]
    total, rows = mg.function([scores], counts)(np.full((3, COUNT), 85, np.float32))
    np.testing.assert_allclose(total, 3 * COUNT, rtol=1e-5)
    np.testing.assert_allclose(rows, [COUNT] * 3, rtol=1e-5)


def test_scales_that_are_not_small_leave_sums() -> None:
    x = mg.input("x", ("n", 7))
    for result, rule in (
        (mg.sum(x * 3.0), "move a scalar factor out of a sum"),
        (mg.sum(x * -1.5, axis=1), "move a scalar factor out of a sum"),
        (mg.sum(x / 0.3), "move a divisor out of a sum"),
        (mg.sum(x * mg.cast(x.shape[0], "float32"), axis=1), "move a scalar factor out of a sum"),
    ):
        assert _hits([x], result, "simplify").get(rule), rule


def test_variables_and_roots_leave_sums_over_rows() -> None:
    """As in the gradients of normalizations; what is fed or computed in another way stays."""
    x, fed = mg.input("x", (5, 7)), mg.input("fed", (7,))
    held = mg.variable("held", init=np.ones(7, np.float32))
    rule = "move factors out of a sum"
    for factor, leaves in (
        (held, True),
        (held * 0.5, True),
        (held / mg.sqrt(fed), True),
        (held / mg.sqrt(mg.var(x, axis=0) + 1e-3), True),
        (fed, False),
        (1.0 / mg.max(x, axis=0), False),
        (mg.constant(np.linspace(1e-30, 1.0, 7).astype(np.float32)), False),
    ):
        hits = _hits([x, fed], mg.sum(x * factor, axis=0) + fed, "simplify")
        assert bool(hits.get(rule)) is leaves, factor


def test_scales_of_products() -> None:
    x, s = mg.input("x", ("n", 7)), mg.input("s", ())
    w = mg.variable("w", init=np.ones((7, 3), np.float32))
    gain = mg.variable("gain", init=np.float32(2.0))
    for scale, leaves in ((0.125, True), (gain, True), (s, False), (1e-9, False)):
        hits = _hits([x, s], (x * scale) @ w + s, "contract")
        assert bool(hits.get("scale to gemm alpha")) is leaves, scale
