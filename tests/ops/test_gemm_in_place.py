"""A product that NumPy computes where its result lies, which may be where an operand is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from magmagraph.ops.products.lowered import GEMM

FLAGS = list(itertools.product([False, True], repeat=4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("place", ["apart", "first", "addend"])
def test_equals_the_expression(dtype: type, place: str, rng: np.random.Generator) -> None:
    for transpose_a, transpose_b, scaled, accumulate in FLAGS:
        for beta in (1.0, 0.5):
            a, b, c = (rng.standard_normal((5, 5)).astype(dtype) for _ in range(3))
            rest = [np.asarray(0.3, dtype)] if scaled else []
            rest += [c, np.asarray(beta, dtype)] if accumulate else []
            flags = {
                "transpose_a": transpose_a,
                "transpose_b": transpose_b,
                "scaled": scaled,
                "accumulate": accumulate,
            }
            expected = np.asarray(GEMM.evaluate(np, a, b, *rest, **flags)).astype(dtype)
            target = {"apart": np.full((5, 5), np.nan, dtype), "first": a, "addend": c}[place]
            assert GEMM.kernel.into is not None
            GEMM.kernel.into(np, target, a, b, *rest, **flags)
            np.testing.assert_array_equal(target, expected)


def test_a_row_is_added_to_all() -> None:
    a, b, row = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32), np.float32([1, 2])
    target = np.empty((3, 2), np.float32)
    assert GEMM.kernel.into is not None
    GEMM.kernel.into(np, target, a, b, row, np.float32(1.0), accumulate=True)
    np.testing.assert_array_equal(target, [[2, 3]] * 3)
