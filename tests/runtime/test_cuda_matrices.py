"""The CUDA kernels of small matrices, run on the CPU, against SciPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from cuda_emulator import available, emulated

import magmagraph as mg
from magmagraph.codegen.cuda.matrices_code import (
    BAD_PIVOT,
    NOT_FINITE,
    PERMUTATION,
    PERMUTATION_SOURCE,
    WORDS,
    Matrices,
    matrices_source,
)
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.runtime.families.batches import KINDS
from magmagraph.runtime.target import made_up

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")

ORDERS = (1, 3, 4, 6, 16, 33)
COUNT = 5
REALS = {"float32": ("float", 3e-4), "float64": ("double", 1e-10)}


def launch(
    function: str, dtype: str, a: np.ndarray, *, b: np.ndarray | None = None,
    pivots: np.ndarray | None = None, columns: int = 0, kind: str = "matrix", lower: bool = False,
    transposed: bool = False, unit: bool = False, second: Any = None,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Return what a kernel writes, and its word of failures; both orders of threads agree."""
    count, n, _ = a.shape
    order = max(4, 1 << (n - 1).bit_length())
    kernel = Matrices(function, REALS[dtype][0], order)
    shape = {"systems": (count, n, columns), "determinants": (count,)}.get(function, (count, n, n))
    results = []
    for descending in (False, True):
        out, failed = np.full(shape, 777, dtype), np.full(1, -1, np.int64)
        words = np.zeros(WORDS, np.int64)
        arrays = (failed, a, b, pivots, out, second)
        words[:6] = [0 if array is None else array.ctypes.data for array in arrays]
        words[6:13] = [count, n, columns, KINDS[kind], lower, transposed, unit]
        words[13:16] = [n * n, n * columns, n]
        source = complete(matrices_source(kernel), WORDS)
        emulated(source).launch(
            kernel.name, 2, kernel.threads, [(words,)], descending=descending
        )
        results.append((out, int(failed[0])))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    return results[0]


def matrices(n: int, dtype: str, *, positive: bool = True) -> np.ndarray:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((COUNT, n, n))
    return (x @ x.swapaxes(1, 2) + n * np.eye(n) if positive else x).astype(dtype)


@pytest.mark.parametrize("n", ORDERS)
@pytest.mark.parametrize("dtype", REALS)
def test_factors(dtype: str, n: int) -> None:
    tolerance = REALS[dtype][1]
    a = matrices(n, dtype, positive=False)
    pivots = np.zeros((COUNT, n), np.int32)
    packed, word = launch("lu", dtype, a, second=pivots)
    for matrix, factors, rows in zip(a.astype(float), packed, pivots, strict=True):
        wanted = scipy.linalg.lu_factor(matrix)
        np.testing.assert_array_equal(rows, wanted[1])
        np.testing.assert_allclose(factors, wanted[0], tolerance * n, tolerance * n)
    a = matrices(n, dtype)
    factor, other = launch("cholesky", dtype, a)
    np.testing.assert_allclose(factor, np.linalg.cholesky(a.astype(float)), tolerance, tolerance)
    assert word == other == -1


@pytest.mark.parametrize("columns", [1, 3, 20])
@pytest.mark.parametrize("n", ORDERS)
@pytest.mark.parametrize("dtype", REALS)
def test_solutions(dtype: str, n: int, columns: int) -> None:
    tolerance = REALS[dtype][1]
    a = matrices(n, dtype)
    b = np.random.default_rng(1).standard_normal((COUNT, n, columns)).astype(dtype)
    wide = a.astype(float)
    found, word = launch("systems", dtype, a, b=b, columns=columns)
    np.testing.assert_allclose(found, np.linalg.solve(wide, b), tolerance, tolerance)
    assert word == -1
    for lower in (False, True):
        for transposed in (False, True):
            found, _ = launch("systems", dtype, a, b=b, columns=columns, kind="triangle",
                              lower=lower, transposed=transposed)  # fmt: skip
            wanted = [
                scipy.linalg.solve_triangular(m, x, lower=lower, trans=int(transposed))
                for m, x in zip(wide, b, strict=True)
            ]
            np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize("transposed", [False, True])
def test_solutions_with_factors(transposed: bool) -> None:
    a = matrices(6, "float64", positive=False)
    factors = [scipy.linalg.lu_factor(matrix) for matrix in a]
    packed = np.ascontiguousarray([one for one, _ in factors])
    pivots = np.stack([rows for _, rows in factors]).astype(np.int32)
    b = np.random.default_rng(2).standard_normal((COUNT, 6, 2))
    how: Any = {"kind": "factors", "transposed": transposed, "pivots": pivots}
    found, _ = launch("systems", "float64", packed, b=b, columns=2, **how)
    np.testing.assert_allclose((a.swapaxes(1, 2) if transposed else a) @ found, b, 1e-7, 1e-7)
    inverse, _ = launch("systems", "float64", packed, columns=6, kind="factors", pivots=pivots)
    np.testing.assert_allclose(inverse, np.linalg.inv(a), 1e-9, 1e-9)
    pivots[3, 2] = 6
    _, word = launch("systems", "float64", packed, b=b, columns=2, **how)
    assert (word >> 16, word >> 2 & 0x3FFF, word & 3) == (3, 2, BAD_PIVOT)


@pytest.mark.parametrize("n", ORDERS)
def test_determinants(n: int) -> None:
    a = matrices(n, "float64", positive=False)
    sizes = np.zeros(COUNT)
    signs, _ = launch("determinants", "float64", a, second=sizes)
    wanted = np.linalg.slogdet(a)
    np.testing.assert_array_equal(signs, wanted[0])
    np.testing.assert_allclose(sizes, wanted[1], 1e-11, 1e-11)
    found, _ = launch("determinants", "float64", a)
    np.testing.assert_allclose(found, np.linalg.det(a), 1e-10)


def test_the_first_matrix_that_fails_is_named() -> None:
    a = matrices(3, "float64")
    a[2, 1] = a[2, 0]
    a[4, 0, 0] = np.nan
    b = np.ones((COUNT, 3, 1))
    _, word = launch("systems", "float64", a, b=b, columns=1)
    assert (word >> 16, word & 3) == (2, 0)
    a[2] = np.eye(3)
    _, word = launch("cholesky", "float64", a)
    assert (word >> 16, word & 3) == (4, NOT_FINITE)


def test_row_exchanges_become_an_order() -> None:
    exchanges = np.array([[2, 2, 2], [0, 1, 2], [1, 2, 2]], np.int32)
    found, failed = np.zeros((3, 4), np.int32), np.full(1, -1, np.int64)
    words = np.array([failed.ctypes.data, found.ctypes.data, exchanges.ctypes.data, 3, 3, 4])
    emulated(complete(PERMUTATION_SOURCE, 6)).launch(PERMUTATION, 1, 128, [(words,)])
    assert found.tolist() == [[2, 0, 1, 3], [0, 1, 2, 3], [1, 2, 0, 3]]
    assert failed[0] == -1


def family_of(node: mg.Node) -> Any:
    return made_up("cuda").family(node)


def test_a_gpu_has_kernels_up_to_order_64() -> None:
    for order, name in ((64, "linalg"), ("n", "linalg"), (65, "array")):
        x = mg.input("x", (10, order, order))
        assert family_of(mg.linalg.inv(x)).name == name
        assert family_of(mg.linalg.cholesky(x)).name == name
    x = mg.input("x", (10, 4, 4))
    assert family_of(mg.linalg.eigvalsh(x)).name == "array"
