"""Matrix products and copies as steps, against NumPy, through every interface of BLAS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from magmagraph.dtypes import tolerance
from magmagraph.errors import CompilerUnavailable, DTypeError, PlanError
from magmagraph.runtime.cpu import threads
from magmagraph.runtime.cpu.products import blas as blas_module
from magmagraph.runtime.cpu.products import products
from magmagraph.runtime.cpu.products.products import (
    batched_gemm_step,
    copy_step,
    gemm_step,
    gemv_step,
    symmetric_step,
    zero_step,
)
from magmagraph.runtime.cpu.support import Program, address_of, support

DTYPES = [np.float32, np.float64]
SIZES = [(5, 7, 3), (1, 9, 4), (9, 1, 4), (1, 1, 1), (6, 5, 1), (130, 70, 90),
         (0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)]  # fmt: skip


def _lp64() -> blas_module.Blas | None:
    """Return SciPy's OpenBLAS through cblas with 32-bit integers, where it can be had."""
    import ctypes

    scipy = blas_module.scipy_blas()
    if scipy is None:
        return None
    functions = {
        name: getattr(scipy.library, "scipy_cblas_" + name, None) for name in blas_module.FUNCTIONS
    }
    if None in functions.values():
        return None
    addresses = {
        name: ctypes.cast(function, ctypes.c_void_p).value for name, function in functions.items()
    }
    return blas_module.Blas("scipy", blas_module.CBLAS_32, addresses, scipy.library)


INTERFACES = {
    "found": blas_module.find_blas,
    "none": lambda: None,
    "fortran": blas_module.scipy_blas,
    "cblas 32": _lp64,
}


@pytest.fixture(params=INTERFACES)
def interface(request, monkeypatch):
    """Run a test through each way to reach BLAS, and without one."""
    try:
        support()
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    found = INTERFACES[request.param]()
    if found is None and request.param != "none":
        pytest.skip("there is no such BLAS here")
    monkeypatch.setattr(products, "find_blas", lambda: found)
    products.product_library.cache_clear()
    yield request.param
    monkeypatch.undo()
    products.product_library.cache_clear()
    for dtype in DTYPES:
        products.product_library(np.dtype(dtype))  # joined to the right one again


def _whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Return small whole numbers: products of them are exact in any order."""
    return rng.integers(-5, 6, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_with_all_transposes(interface, rng, dtype):
    for (m, n, k), ta, tb in itertools.product(SIZES, (False, True), (False, True)):
        a = _whole(rng, (k, m) if ta else (m, k), dtype)
        b = _whole(rng, (n, k) if tb else (k, n), dtype)
        out = np.full((m, n), np.nan, dtype)
        step = gemm_step(
            dtype, address_of(out), address_of(a), address_of(b), m, n, k,
            transpose_a=ta, transpose_b=tb,
        )  # fmt: skip
        Program([step]).run()
        np.testing.assert_array_equal(out, (a.T if ta else a) @ (b.T if tb else b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_symmetric_products(interface, rng, dtype, count):
    sizes = [(1, 1), (5, 0), (31, 7), (33, 257), (100, 300), (130, 1024), (300, 40)]
    before = threads.get_threads()
    threads.set_threads(count)
    try:
        for (n, k), transposed in itertools.product(sizes, (False, True)):
            x = _whole(rng, (n, k) if transposed else (k, n), dtype)
            y = x * _whole(rng, (k,) if transposed else (k, 1), dtype)
            for other in (x, y):
                out = np.full((n, n), np.nan, dtype)
                step = symmetric_step(
                    dtype, address_of(out), address_of(x), address_of(other), n, k,
                    transposed=transposed,
                )  # fmt: skip
                Program([step]).run()
                np.testing.assert_array_equal(out, x @ other.T if transposed else x.T @ other)
    finally:
        threads.set_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("in_place", [False, True])
def test_gemm_with_scalars_and_c(interface, rng, dtype, in_place):
    scalars = [(2.0, -0.5), (1.0, 1.0), (0.0, 2.0), (-0.25, 0.0), (None, None), (None, 0.5)]
    for (m, n, k), (alpha, beta) in itertools.product(SIZES, scalars):
        a, b, c = (_whole(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        out = c.copy() if in_place else np.full((m, n), np.nan, dtype)
        first = 1.0 if alpha is None else alpha
        second = 1.0 if beta is None else beta
        right = first * (a @ b) + second * c
        held = [None if scalar is None else np.array(scalar, dtype) for scalar in (alpha, beta)]
        places = [0 if scalar is None else address_of(scalar) for scalar in held]
        step = gemm_step(
            dtype, address_of(out), address_of(a), address_of(b), m, n, k,
            c=address_of(out if in_place else c), alpha=places[0], beta=places[1],
        )  # fmt: skip
        before = c.copy()
        Program([step]).run()
        np.testing.assert_array_equal(out, right)
        np.testing.assert_array_equal(c, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scalar_may_come_from_an_earlier_step(interface, rng, dtype):
    a, b = _whole(rng, (3, 4), dtype), _whole(rng, (4, 2), dtype)
    rate, alpha, out = np.array(3.0, dtype), np.zeros((), dtype), np.empty((3, 2), dtype)
    program = Program(
        [
            copy_step(address_of(alpha), address_of(rate), rate.nbytes),
            gemm_step(dtype, address_of(out), address_of(a), address_of(b), 3, 2, 4,
                      alpha=address_of(alpha)),
        ]
    )  # fmt: skip
    program.run()
    np.testing.assert_array_equal(out, 3 * (a @ b))
    rate[...] = -1.0
    program.run()
    np.testing.assert_array_equal(out, -(a @ b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_beta_of_zero_does_not_read_c(interface, dtype):
    a, out = np.ones((2, 2), dtype), np.empty((2, 2), dtype)
    c, zero = np.full((2, 2), np.nan, dtype), np.zeros((), dtype)
    step = gemm_step(dtype, address_of(out), address_of(a), address_of(a), 2, 2, 2,
                     c=address_of(c), beta=address_of(zero))  # fmt: skip
    Program([step]).run()
    assert (out == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_on_parts_of_larger_arrays(interface, rng, dtype):
    whole_a, whole_b = _whole(rng, (9, 11), dtype), _whole(rng, (11, 13), dtype)
    whole_c, whole_out = _whole(rng, (8, 20), dtype), np.zeros((8, 17), dtype)
    a, b, c = whole_a[1:6, 2:9], whole_b[3:10, 1:7], whole_c[2:7, 3:9]
    out = whole_out[1:6, 4:10]
    step = gemm_step(
        dtype, address_of(out), address_of(a), address_of(b), 5, 6, 7, c=address_of(c),
        lda=11, ldb=13, ldc=20, ld_out=17,
    )  # fmt: skip
    Program([step]).run()
    right = np.zeros((8, 17), dtype)
    right[1:6, 4:10] = a @ b + c
    np.testing.assert_array_equal(whole_out, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(3, 4, 5), (1, 6, 2), (70, 80, 90), (2, 3, 0), (0, 3, 2)])
def test_batches(interface, rng, dtype, size):
    m, n, k = size
    count = 17
    half = np.array(0.5, dtype)
    for ta, tb, shared in itertools.product((False, True), (False, True), (False, True)):
        a = _whole(rng, (count, *((k, m) if ta else (m, k))), dtype)
        b = _whole(rng, (1 if shared else count, *((n, k) if tb else (k, n))), dtype)
        c = 2 * _whole(rng, (1 if shared else count, m, n), dtype)
        out = np.full((count, m, n), np.nan, dtype)
        step = batched_gemm_step(
            dtype, address_of(out), address_of(a), address_of(b), m, n, k, count,
            stride_out=m * n, stride_a=m * k, stride_b=0 if shared else k * n,
            stride_c=0 if shared else m * n, c=address_of(c), beta=address_of(half),
            transpose_a=ta, transpose_b=tb,
        )  # fmt: skip
        Program([step]).run()
        op_a = a.transpose(0, 2, 1) if ta else a
        op_b = b.transpose(0, 2, 1) if tb else b
        np.testing.assert_array_equal(out, op_a @ op_b + 0.5 * c)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(5, 7), (1, 4), (4, 1), (300, 400), (3, 0), (0, 3)])
def test_gemv(interface, rng, dtype, size):
    m, n = size
    alpha = np.array(-2.0, dtype)
    for transpose, beta in itertools.product((False, True), (None, 0.0, 0.5)):
        rows, columns = (n, m) if transpose else (m, n)
        a, x = _whole(rng, (m, n), dtype), _whole(rng, (columns,), dtype)
        y = 2 * _whole(rng, (rows,), dtype)
        out = np.full(rows, np.nan, dtype)
        scale = None if beta is None else np.array(beta, dtype)
        step = gemv_step(
            dtype, address_of(out), address_of(a), address_of(x), m, n, transpose=transpose,
            alpha=address_of(alpha), y=0 if scale is None else address_of(y),
            beta=0 if scale is None else address_of(scale),
        )  # fmt: skip
        Program([step]).run()
        right = -2 * ((a.T if transpose else a) @ x) + (0 if beta is None else beta) * y
        np.testing.assert_array_equal(out, right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemv_in_place_and_on_columns(interface, rng, dtype):
    a = _whole(rng, (4, 6), dtype)
    vectors = _whole(rng, (6, 3), dtype)
    results = _whole(rng, (4, 5), dtype)
    right = results.copy()
    right[:, 2] += a[:, :5] @ vectors[1:, 1]
    x, out = vectors[1:, 1], results[:, 2]
    step = gemv_step(
        dtype, address_of(out), address_of(a), address_of(x), 4, 5, lda=6, y=address_of(out),
        stride_out=5, stride_x=3, stride_y=5,
    )  # fmt: skip
    Program([step]).run()
    np.testing.assert_array_equal(results, right)


@pytest.mark.parametrize("size", [0, 1, 63, 4096, 5_000_001])
def test_copies_and_zeros(interface, rng, size):
    source = rng.integers(0, 256, size + 2, dtype=np.uint8)
    out = np.full(size + 2, 99, np.uint8)
    Program([copy_step(address_of(out) + 1, address_of(source) + 1, size)]).run()
    np.testing.assert_array_equal(out[1:-1], source[1:-1])
    assert out[0] == out[-1] == 99
    Program([zero_step(address_of(out) + 1, size)]).run()
    assert not out[1:-1].any()
    assert out[0] == out[-1] == 99


def test_products_that_cannot_be(interface):
    for wrong in (np.float16, np.int32, np.complex64):
        with pytest.raises(DTypeError, match="float32 or float64"):
            gemm_step(wrong, 0, 0, 0, 1, 1, 1)
    with pytest.raises(PlanError, match="rows of 4 elements, 3 elements apart"):
        gemm_step("float32", 0, 0, 0, 2, 3, 4, lda=3)
    with pytest.raises(PlanError, match="m=2, n=-3, k=4"):
        gemm_step("float32", 0, 0, 0, 2, -3, 4)
    with pytest.raises(PlanError, match="do not overlap"):
        batched_gemm_step("float32", 0, 0, 0, 2, 3, 4, 5, stride_out=2, stride_a=0, stride_b=0)
    with pytest.raises(PlanError, match="at least 1"):
        gemv_step("float32", 0, 0, 0, 2, 3, stride_x=0)


@pytest.mark.parametrize("shape", [(100, 528, 784), (784, 528, 100), (37, 701, 299), (701, 9, 310)])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_a_large_product_is_shared_out_as_panels(shape, transpose_a, transpose_b):
    """Each thread multiplies a panel alone; BLAS has its own threads again afterwards."""
    m, n, k = shape
    rng = np.random.default_rng(m + n)
    a = rng.standard_normal((k, m) if transpose_a else (m, k)).astype(np.float32)
    b = rng.standard_normal((n, k) if transpose_b else (k, n)).astype(np.float32)
    c = rng.standard_normal((m, n)).astype(np.float32)
    alpha, beta = np.float32([-0.5]), np.float32([0.25])
    blas = blas_module.find_blas()
    before = threads.get_threads()
    threads.set_threads(2)
    try:
        inner = None if blas is None else blas.threads()
        step = gemm_step(
            "float32", address_of(c), address_of(a), address_of(b), m, n, k, c=address_of(c),
            alpha=address_of(alpha), beta=address_of(beta), transpose_a=transpose_a,
            transpose_b=transpose_b,
        )  # fmt: skip
        left, right = (a.T if transpose_a else a), (b.T if transpose_b else b)
        expected = -0.5 * (left.astype(np.float64) @ right) + 0.25 * c
        Program([step], keep=(a, b, c, alpha, beta)).run()
        assert tolerance(np.dtype("float32"), "reassoc").close(c, expected, scale=4.0 * k**0.5)
        assert inner == (None if blas is None else blas.threads())
    finally:
        threads.set_threads(before)
