"""Products by generated tiles: values at every edge, threads, and who chooses them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import CompilerUnavailable, ConfigError
from magmagraph.runtime.cpu import threads
from magmagraph.runtime.cpu.products import choice as product_choice
from magmagraph.runtime.cpu.products import products
from magmagraph.runtime.cpu.products.choice import BLAS, TILES, Sizes, way_of
from magmagraph.runtime.cpu.products.products import batched_gemm_step, gemm_step
from magmagraph.runtime.cpu.support import Program, address_of, support

DTYPES = [np.float32, np.float64]
# Below, at and above the height of a tile, the width of a strip with vectors of any size, the
# depth that is packed at once, and the rows of a block.
ROWS, COLUMNS = (1, 5, 6, 7, 12, 13, 19, 35), (1, 3, 4, 8, 15, 16, 17, 33, 64)
DEPTHS = (1, 7, 8, 9, 35)
LARGE = [(13, 17, 319), (7, 33, 320), (5, 40, 321), (12, 20, 645), (191, 40, 20), (193, 31, 9),
         (400, 64, 18), (13, 33, 545), (337, 33, 9), (0, 3, 2), (3, 0, 2), (3, 2, 0)]  # fmt: skip


@pytest.fixture(autouse=True)
def _compiled() -> None:
    try:
        support()
    except CompilerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def two_threads():
    before = threads.replace_threads(2)
    yield
    threads.replace_threads(before)


def _whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Return small whole numbers: products of them are exact in any order."""
    return rng.integers(-5, 6, shape).astype(dtype)


def _laid_out(matrix: np.ndarray, transposed: bool) -> np.ndarray:
    return np.ascontiguousarray(matrix.swapaxes(-1, -2)) if transposed else matrix


def _run(
    a: np.ndarray, b: np.ndarray, *, ta: bool = False, tb: bool = False,
    c: np.ndarray | None = None, alpha: float | None = None, beta: float | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the product of two matrices by tiles; `ta` and `tb` say how they are to lie."""
    (m, k), n, dtype = a.shape, b.shape[1], a.dtype
    left, right = _laid_out(a, ta), _laid_out(b, tb)
    result = np.full((m, n), np.nan, dtype) if out is None else out
    scalars = [None if value is None else np.array(value, dtype) for value in (alpha, beta)]
    places = [0 if value is None else address_of(value) for value in scalars]
    step = gemm_step(
        dtype, address_of(result), address_of(left), address_of(right), m, n, k,
        c=0 if c is None else address_of(c), alpha=places[0], beta=places[1], transpose_a=ta,
        transpose_b=tb, tiles=True,
    )  # fmt: skip
    Program([step], keep=(left, right, scalars)).run()
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_every_edge_of_a_tile(two_threads, rng, dtype, ta, tb):
    for m, n, k in [*itertools.product(ROWS, COLUMNS, DEPTHS), *LARGE]:
        a, b = _whole(rng, (m, k), dtype), _whole(rng, (k, n), dtype)
        np.testing.assert_array_equal(_run(a, b, ta=ta, tb=tb), a @ b, err_msg=f"{m}x{n}x{k}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("in_place", [False, True])
def test_scalars_and_c(two_threads, rng, dtype, in_place):
    scalars = [(2.0, -0.5), (1.0, 1.0), (0.0, 2.0), (-0.25, 0.0), (None, None), (None, 0.5)]
    sizes = [(6, 16, 5), (7, 19, 8), (30, 48, 650), *LARGE[-3:]]
    for (m, n, k), (alpha, beta) in itertools.product(sizes, scalars):
        a, b, c = (_whole(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        first, second = (1.0 if value is None else value for value in (alpha, beta))
        right, before = first * (a @ b) + second * c, c.copy()
        out = c.copy() if in_place else None
        made = _run(a, b, c=c if out is None else out, alpha=alpha, beta=beta, out=out)
        np.testing.assert_array_equal(made, right)
        np.testing.assert_array_equal(c, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 19, 5), (12, 32, 330)])
def test_a_beta_of_zero_does_not_read_c(dtype, shape):
    m, n, k = shape
    nothing = np.full((m, n), np.nan, dtype)
    made = _run(np.ones((m, k), dtype), np.ones((k, n), dtype), c=nothing, beta=0.0)
    assert (made == k).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row_and_column(dtype, value):
    """Strips and tiles are filled up with zeros; times infinity they would be NaN."""
    for m, n, k in [(7, 19, 9), (6, 16, 8), (5, 33, 321)]:
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        right = np.full((m, n), k, dtype)
        a[m - 1, k - 1] = right[m - 1] = value
        np.testing.assert_array_equal(_run(a, b), right)
        a[...], right[...] = 1, k
        b[k - 1, n - 1] = right[:, n - 1] = value
        for tb in (False, True):
            np.testing.assert_array_equal(_run(a, b, tb=tb), right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_larger_arrays(rng, dtype):
    """Elements between the rows are neither read (they are NaN) nor written."""
    m, n, k = 20, 23, 37
    for ta, tb in itertools.product((False, True), (False, True)):
        a, b, c = (_whole(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        parts = []
        for matrix, flag, more in ((a, ta, 5), (b, tb, 3), (c, False, 9)):
            rows = _laid_out(matrix, flag)
            held = np.full((rows.shape[0], rows.shape[1] + more), np.nan, dtype)
            held[:, : rows.shape[1]] = rows
            parts.append(held)
        out = np.full((m, n + 2), -1, dtype)
        lda, ldb, ldc = (held.shape[1] for held in parts)
        step = gemm_step(
            dtype, address_of(out), *map(address_of, parts[:2]), m, n, k, c=address_of(parts[2]),
            transpose_a=ta, transpose_b=tb, lda=lda, ldb=ldb, ldc=ldc, ld_out=n + 2, tiles=True,
        )  # fmt: skip
        Program([step], keep=parts).run()
        np.testing.assert_array_equal(out[:, :n], a @ b + c)
        assert (out[:, n:] == -1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(3, 4, 5), (1, 6, 2), (70, 80, 90), (2, 3, 0), (0, 3, 2)])
def test_batches(two_threads, rng, dtype, size):
    m, n, k = size
    count, half = 17, np.array(0.5, dtype)
    for ta, tb, shared in itertools.product((False, True), (False, True), (False, True)):
        a = _whole(rng, (count, m, k), dtype)
        b = _whole(rng, (1 if shared else count, k, n), dtype)
        c = 2 * _whole(rng, (1 if shared else count, m, n), dtype)
        left, right = _laid_out(a, ta), _laid_out(b, tb)
        out = np.full((count, m, n), np.nan, dtype)
        step = batched_gemm_step(
            dtype, address_of(out), address_of(left), address_of(right), m, n, k, count,
            stride_out=m * n, stride_a=m * k, stride_b=0 if shared else k * n,
            stride_c=0 if shared else m * n, c=address_of(c), beta=address_of(half),
            transpose_a=ta, transpose_b=tb, tiles=True,
        )  # fmt: skip
        Program([step], keep=(left, right, c)).run()
        np.testing.assert_array_equal(out, a @ b + 0.5 * c)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_threads_do_not_change_a_bit(rng, dtype, ta, tb):
    """Each sum is one thread's, in one order; and it is as exact as sums in another order are."""
    a = rng.standard_normal((210, 700)).astype(dtype)
    b = rng.standard_normal((700, 130)).astype(dtype)
    made = []
    before = threads.replace_threads(None)
    try:
        for count in (1, 2, 2):
            threads.set_threads(count)
            made.append(_run(a, b, ta=ta, tb=tb))
    finally:
        threads.replace_threads(before)
    assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
    exact = a.astype(np.float64) @ b
    assert tolerance(np.dtype(dtype), "reassoc").close(made[0], exact, scale=4.0 * 700**0.5)


# ---- Who chooses


def _sizes(m: int = 100, n: int = 64, k: int = 300, **others: object) -> Sizes:
    given: dict = {
        "count": 1, "transpose_a": False, "transpose_b": False, "accumulate": False,
        "shared_b": False, "threads": 1, **others,
    }  # fmt: skip
    return Sizes(np.dtype(np.float32), m, n, k, **given)


@pytest.fixture
def restored(monkeypatch):
    """Put settings back, and forget the trials of the test."""
    for name in ("products", "tuning"):
        monkeypatch.setattr(mg.config, name, getattr(mg.config, name))
    product_choice._kept_trial.cache_clear()
    yield monkeypatch
    product_choice._kept_trial.cache_clear()


def test_the_rule_holds_without_trials(restored):
    mg.config.products, mg.config.tuning = "auto", False
    assert way_of(_sizes()).name == TILES
    assert way_of(_sizes(n=10)).name == BLAS
    assert way_of(_sizes(m=1)).reason == "one row or column"
    assert way_of(_sizes(m=4, n=16, k=4)).name == BLAS
    assert way_of(_sizes(m=4000, n=4000)) == product_choice.Way(BLAS, "large")
    restored.setattr(product_choice, "find_blas", lambda: None)
    assert way_of(_sizes(m=4000, n=4000)).name == TILES


def test_what_is_asked_for_holds(restored):
    mg.config.tuning = True
    for asked, name in (("tiles", TILES), ("blas", BLAS)):
        mg.config.products = asked
        for sizes in (_sizes(), _sizes(m=1), _sizes(n=3)):
            assert way_of(sizes).name == name
    with pytest.raises(ConfigError, match="'auto', 'tiles' or 'blas'"):
        mg.config.products = "mkl"


def test_a_trial_is_made_once_and_kept(restored):
    mg.config.products, mg.config.tuning = "auto", True
    made = []

    def trial(sizes: Sizes) -> str:
        made.append(sizes)
        return BLAS

    restored.setattr(product_choice, "_trial", trial)
    odd = [_sizes(m=101, threads=97), _sizes(m=102, threads=97)]  # one class, and nobody else's
    for sizes in odd:
        assert way_of(sizes) == product_choice.Way(BLAS, "measured")
        product_choice._kept_trial.cache_clear()  # the second finds what the first left on disk
    assert made == odd[:1]
    assert way_of(_sizes(threads=97), deterministic=True).reason == "of middle size"
    assert way_of(_sizes(m=1 << 16, n=1 << 14)).reason == "large"  # no operands of gigabytes
    assert made == odd[:1]


def test_new_sizes_run_as_those_before_and_cost_no_trial(restored):
    mg.config.products, mg.config.tuning = "auto", True
    made = []

    def trial(sizes: Sizes) -> str:
        made.append(sizes.m)
        return BLAS

    restored.setattr(product_choice, "_trial", trial)
    x, w = mg.var("x", shape=("batch", 96)), mg.var("w", init=np.ones((96, 80), np.float32))
    function = mg.function([x], x @ w, device="cpu")
    said = {}
    for rows in (83, 50, 150, 4, 4000, 1, 83):
        function(np.ones((rows, 96), np.float32))
        (way,) = function._last.ways.values()
        said[rows] = (way.name, way.reason)
    assert len(made) < 2  # none, where an earlier run has left it on disk
    as_before = (BLAS, "as measured for 83 x 96 x 80")
    assert said == {
        83: (BLAS, "measured"), 50: as_before, 150: as_before,
        4: (TILES, "of middle size"), 4000: (TILES, "of middle size"),
        1: (BLAS, "one row or column"),
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_trial_runs_both(restored, count, accumulate):
    assert product_choice._trial(_sizes(count=count, accumulate=accumulate)) in (TILES, BLAS)


def test_a_function_says_how_its_products_run(restored):
    mg.config.tuning = False
    x = mg.input("x", shape=("batch", 300))
    product = x @ mg.var("w", init=np.ones((300, 64), np.float32))
    f = mg.function([x], product)
    assert "by tiles" not in str(f.explain(product))  # no sizes are known before a call
    for rows, made in ((1, "by BLAS (one row or column) for batch=1"),
                       (100, "by tiles (of middle size) for batch=100")):  # fmt: skip
        np.testing.assert_array_equal(f(np.ones((rows, 300), np.float32)), np.full((rows, 64), 300))
        assert made in str(f.explain(product))


@pytest.mark.parametrize("asked", ["tiles", "blas"])
def test_a_training_step_by_either(restored, rng, asked):
    """Forward, backward and the weights' update, which a product adds to in place."""
    mg.config.products = asked
    values = rng.standard_normal((40, 24)).astype(np.float32)
    data = rng.standard_normal((30, 40)).astype(np.float32)
    x, w = mg.input("x", shape=(30, 40)), mg.var("w", init=values)
    loss = mg.sum((x @ w) ** 2)
    step = mg.optimizer.SGD(0.001).step(loss, [w], inputs=[x], outputs=[loss])
    step(data)
    wide, images = values.astype(np.float64), data.astype(np.float64)
    expected = wide - 0.001 * 2 * images.T @ (images @ wide)
    assert tolerance(np.dtype(np.float32), "reassoc").close(w.value, expected, scale=40.0)


def test_products_without_a_compiler(restored):
    """The choice is one of compiled products: NumPy's serve where there are none."""
    restored.setattr(mg.config, "compiler", "off")
    mg.config.products = "tiles"
    x = mg.input("x", shape=(7, 19))
    f = mg.function([x], x @ mg.transpose(x))
    data = np.arange(133, dtype=np.float32).reshape(7, 19) % 7
    np.testing.assert_array_equal(f(data), data @ data.T)


def test_the_source_has_both_element_types():
    for dtype, name in ((np.float32, "float"), (np.float64, "double")):
        for source in (products.product_source(dtype), products.tiled_source(dtype)):
            assert f"#define REAL {name}\n" in source
        assert "mg_gemm_batch_tiles" in source
