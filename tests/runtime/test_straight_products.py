"""Products that Python hands to BLAS, against NumPy."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu.products import direct_blas
from magmagraph.runtime.cpu.products.blas import CBLAS_32, CBLAS_64, find_blas


def blas_is_reached() -> bool:
    blas = find_blas()
    return blas is not None and blas.interface in (CBLAS_64, CBLAS_32)


pytestmark = pytest.mark.skipif(not blas_is_reached(), reason="NumPy's BLAS is not reached")


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    before = mg.config.compiler
    mg.config.compiler = "off"
    yield
    mg.config.compiler = before


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what collects whether BLAS was to be asked for the products that are bound."""
    found: list[object] = []
    made = direct_blas.straight_product

    def watched(*given: object) -> object:
        found.append(made(*given))
        return found[-1]

    monkeypatch.setattr(direct_blas, "straight_product", watched)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [*itertools.product([False, True], repeat=2)])
@pytest.mark.parametrize("scales", [(None, None), (0.5, None), (0.5, 0.25), (1.0, 0.0)])
def test_products_agree_with_numpy(
    dtype: str,
    turned: tuple[bool, bool],
    scales: tuple[float | None, float | None],
    asked: list[object],
    rng: np.random.Generator,
) -> None:
    alpha, beta = scales
    shapes = [(7, 5), (5, 9)]
    left, right = (
        rng.standard_normal(s[::-1] if t else s).astype(dtype)
        for s, t in zip(shapes, turned, strict=True)
    )
    addend = rng.standard_normal((7, 9)).astype(dtype)
    a, b = (mg.input(n, v.shape, dtype) for n, v in (("a", left), ("b", right)))
    c = mg.var("c", init=addend)
    product = (a.T if turned[0] else a) @ (b.T if turned[1] else b)
    wanted = (left.T if turned[0] else left) @ (right.T if turned[1] else right)
    if alpha is not None:
        product, wanted = alpha * product, alpha * wanted
    if beta is not None:
        product, wanted = product + beta * c, wanted + beta * addend
    limits = tolerance(np.dtype(dtype), "reassoc")
    f = mg.function([a, b], [product])
    for _ in range(2):
        (got,) = f(left, right)
        assert limits.close(got, wanted)
    np.testing.assert_array_equal(c.value, addend)
    step = mg.function([a, b], [], updates={c: product})  # where the addend lies
    step(left, right)
    assert limits.close(c.value, wanted)
    assert asked and all(asked)


def test_new_weights_need_no_pass_of_their_own(asked: list[object]) -> None:
    w = mg.var("w", init=np.ones((6, 4), np.float32))
    x = mg.input("x", (5, 6))
    d = mg.input("d", (5, 4))
    step = mg.function([x, d], [], updates={w: w * 0.5 - 0.1 * (x.T @ d)})
    assert [s.kernel for s in step.plan.steps].count("gemm") == 1
    x_value, d_value = np.ones((5, 6), np.float32), np.full((5, 4), 2, np.float32)
    step(x_value, d_value)
    wanted = np.full((6, 4), 0.5 - 0.1 * 10)
    assert tolerance(np.dtype(np.float32), "reassoc").close(w.value, wanted)
    assert len(asked) == 1 and asked[0]


@pytest.mark.parametrize("shapes", [((1, 5), (5, 4)), ((3, 5), (5, 1)), ((2, 3, 4), (2, 4, 5))])
def test_vectors_and_stacks_are_numpys(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], asked: list[object], rng: np.random.Generator
) -> None:
    left, right = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    a, b = mg.input("a", left.shape), mg.input("b", right.shape)
    (got,) = mg.function([a, b], [a @ b])(left, right)
    limits = tolerance(np.dtype(np.float32), "reassoc")
    assert limits.close(got, left @ right)
    assert not any(asked)


def test_what_python_computes_is_copied_to_variables_at_once() -> None:
    """No step in Python writes a variable: new values wait in the arena."""
    x = mg.input("x", ("batch", 6))
    y = mg.input("y", ("batch",), "int32")
    w = mg.var("w", init=np.ones((6, 4), np.float32))
    b = mg.var("b", init=np.zeros(4, np.float32))
    loss = mg.cross_entropy(mg.sigmoid(x @ w + b), y)
    step = mg.optimizer.SGD(0.1, weight_decay=0.01).step(loss, [w, b], inputs=[x, y])
    step(np.ones((3, 6), np.float32), np.zeros(3, np.int32))
    bound = step.bound_to({"batch": 3})
    assert bound._landing is not None and not bound._after


def test_products_of_infinities_warn_of_nothing() -> None:
    """Warnings are errors here; a stack of products is NumPy's."""
    left = np.full((2, 3, 4), np.inf, np.float32)
    a = mg.input("a", left.shape)
    (got,) = mg.function([a], [a @ mg.constant(np.zeros((2, 4, 5), np.float32))])(left)
    assert np.isnan(got).all()


def test_blas_is_told_how_many_threads_there_are() -> None:
    """Nobody loads the pool, which tells BLAS where kernels are compiled."""
    program = (
        "import numpy as np, magmagraph as mg\n"
        "from magmagraph.runtime.cpu.products.blas import find_blas\n"
        "mg.config.compiler, mg.config.threads = 'off', 1\n"
        "find_blas().set_threads(2)\n"
        "x = mg.input('x', (64, 64))\n"
        "mg.function([x], [x @ x])(np.ones((64, 64), np.float32))\n"
        "print(find_blas().threads())\n"
    )
    blas = find_blas()
    if blas is None or blas.threads() is None:
        pytest.skip("this BLAS does not say how many threads it has")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
