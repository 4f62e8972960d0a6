"""Sums of float16 whose elements are scaled into range: the scale stays inside of the sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import magmagraph as mg

COUNT = 1000
LARGE = 1000.0  # COUNT of these are beyond 65504

SCALED: dict[str, Callable[[mg.Node, mg.Node], mg.Node]] = {
    "by a constant": lambda x, s: mg.sum(x * 0.01),
    "by a value": lambda x, s: mg.sum(x * s),
    "over a constant": lambda x, s: mg.sum(x / 100.0),
    "over a value": lambda x, s: mg.sum(x / (1.0 / s)),
    "rows": lambda x, s: mg.sum(mg.reshape(x, (10, -1)) * s, axis=1)[0] * 10.0,
}


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_that_keeps_elements_in_range_stays_inside(name: str) -> None:
    x, s = mg.input("x", (COUNT,), dtype="float16"), mg.input("s", (), dtype="float16")
    f = mg.function([x, s], SCALED[name](x, s), device="cpu")
    found = f(np.full(COUNT, LARGE, np.float16), np.float16(0.01))
    np.testing.assert_allclose(float(found), COUNT * LARGE * 0.01, rtol=2.0**-8)


def test_what_leaves_no_range_stands_outside() -> None:
    x = mg.input("x", (COUNT,), dtype="float16")
    for total, name in (
        (mg.sum(x * 3.0), "move a scalar factor out of a sum"),
        (mg.sum(x / 0.1), "move a divisor out of a sum"),
    ):
        report = mg.function([x], total, device="cpu").compile().report
        hits = next(record for record in report if record.name == "simplify").hits
        assert hits.get(name), hits
