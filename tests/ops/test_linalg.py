"""mg.linalg beside NumPy and SciPy: names, values, named dimensions, chains, dtypes."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
import scipy.linalg
from interpreted import assert_close, value, values
from matrices import Rng, adjoint, hermitian, real_sum

import magmagraph as mg
from magmagraph.errors import DTypeError, LinAlgError, ShapeError
from magmagraph.ir.graph import topological
from magmagraph.ops.products.contraction import MATMUL

# Names and namespaces.

# Functions of numpy.linalg that are missing, with the reason.
MISSING = {
    "LinAlgError": "mg.LinAlgError",
    "test": "not a function of arrays",
    "linalg": "a module",
}


def test_the_names_of_numpy_are_there() -> None:
    names = {name for name in np.linalg.__all__ if name not in MISSING}
    assert names <= set(mg.linalg.__all__)
    assert mg.linalg.solve_triangular is mg.linalg.triangular_solve
    assert mg.linalg.matmul is mg.matmul
    assert mg.linalg.vecdot is mg.vecdot


def test_all_lists_what_is_there() -> None:
    for name in mg.linalg.__all__:
        assert getattr(mg.linalg, name) is not None
    assert mg.linalg.__all__ == sorted(mg.linalg.__all__)
    assert (inspect.getdoc(mg.linalg) or "").endswith(".")


# Against NumPy and SciPy.


def random_shape(rng: Rng) -> tuple[int, ...]:
    return tuple(int(e) for e in rng.integers(0, 4, size=rng.integers(0, 3)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_random_configurations(dtype: str, rng: Rng) -> None:
    """Broadcast batches, zero sizes, transposed and reversed memory, through compiled functions."""
    for _ in range(12):
        n, k = int(rng.integers(0, 6)), int(rng.integers(0, 4))
        batch, other = random_shape(rng), ()
        if rng.random() < 0.5:
            other = tuple(1 if rng.random() < 0.5 else e for e in batch)

        def draw(*shape: int) -> np.ndarray:
            a = rng.normal(size=shape)
            return a + 1j * rng.normal(size=shape) if dtype.startswith("complex") else a

        a = (draw(*batch, n, n) + 3 * np.eye(n)).astype(dtype)
        b = draw(*other, n, k).astype(dtype)
        if rng.random() < 0.5:
            a = np.asarray(np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2))
        if rng.random() < 0.5:
            b = b[..., ::-1, :]
        x, y = mg.input("x", a.shape, dtype), mg.input("y", b.shape, dtype)
        lower = bool(rng.random() < 0.5)
        triangle = np.tril(a) if lower else np.triu(a)
        outputs = [
            mg.linalg.solve(x, y),
            mg.linalg.triangular_solve(x, y, lower=lower),
            mg.linalg.lu_solve(mg.linalg.lu_factor(x), y),
            mg.linalg.inv(x),
            mg.linalg.det(x),
            mg.linalg.svdvals(x),
            mg.linalg.lstsq(x, y).x,
        ]
        kept_a, kept_b = a.copy(), b.copy()
        results = mg.function([x, y], outputs)(a, b)
        assert np.array_equal(a, kept_a)
        assert np.array_equal(b, kept_b)
        wide = a.astype("complex128" if "complex" in dtype else "float64")
        triangle = triangle.astype(wide.dtype)
        expected = [
            np.linalg.solve(wide, b),
            np.linalg.solve(triangle, b),
            np.linalg.solve(wide, b),
            np.linalg.inv(wide),
            np.linalg.det(wide),
            np.linalg.svdvals(wide),
            np.linalg.solve(wide, b),
        ]
        condition = max(
            [1.0, *np.ravel(np.linalg.cond(wide)), *np.ravel(np.linalg.cond(triangle))]
            if a.size
            else [1.0]
        )
        for node, actual, expected_value in zip(outputs, results, expected, strict=True):
            assert actual.dtype == node.dtype
            scale = condition * max(1.0, float(np.max(np.abs(expected_value), initial=0.0)))
            assert_close(actual, expected_value, actual.dtype.name, scale)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3), (3, 0), (2, 0, 0)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...], dtype: str, rng: Rng) -> None:
    a = rng.normal(size=shape)
    a = (a + 1j * rng.normal(size=shape) if dtype == "complex64" else a).astype(dtype)
    x = mg.input("x", shape, dtype)
    P, L, U = mg.linalg.lu(x)
    u, s, vh = mg.linalg.svd(x, full_matrices=False)
    products = [P @ L @ U, (u * mg.expand_dims(s, -2)) @ vh]
    factors = [P, L, U, u, s, vh]
    for mode in ("reduced", "complete"):
        Q, R = mg.linalg.qr(x, mode)
        products.append(Q @ R)
        factors += [Q, R]
        assert_close(
            value(adjoint(Q) @ Q, {x: a}),
            np.broadcast_to(np.eye(int(Q.shape[-1])), (*shape[:-2], *[int(Q.shape[-1])] * 2)),
            dtype,
        )
    for product in products:
        assert_close(value(product, {x: a}), a, dtype, 10.0)
    for factor, value_of_factor in zip(factors, values(factors, {x: a}), strict=True):
        assert factor.shape == value_of_factor.shape
    assert not np.tril(value(U, {x: a}), -1).any()
    assert not np.triu(value(L, {x: a}), 1).any()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("n", "count"), [(1, 9), (4, 30), (9, 50)])
def test_many_small_triangles_are_solved_as_each_alone(
    rng: Rng, n: int, count: int, dtype: str
) -> None:
    a = rng.normal(size=(count, n, n)) + 3.0 * np.eye(n)
    b = rng.normal(size=(2, count, n, 3))
    if dtype == "complex128":
        a, b = a + 1j * rng.normal(size=a.shape), b + 1j * rng.normal(size=b.shape)
    for trans, lower, unit in itertools.product("NTC", (False, True), (False, True)):
        options = {"trans": trans, "lower": lower, "unit_diagonal": unit}
        result = value(mg.linalg.solve_triangular(a, b, **options))
        for i, j in itertools.product(range(2), range(count)):
            alone = scipy.linalg.solve_triangular(a[j], b[i, j], **options)
            assert_close(result[i, j], alone)


def test_a_singular_one_of_many_small_triangles_is_named(rng: Rng) -> None:
    a = rng.normal(size=(40, 3, 3)) + 3.0 * np.eye(3)
    a[17, 1, 1] = 0.0
    b = rng.normal(size=(5, 40, 3, 1))
    with pytest.raises(LinAlgError, match=r"matrix \[17\] of the batch \(40,\) is sing"):
        value(mg.linalg.solve_triangular(a, b))
    assert np.isfinite(value(mg.linalg.solve_triangular(a, b, unit_diagonal=True))).all()
    a[17, 1, 1] = np.nan
    result = value(mg.linalg.solve_triangular(a, b))
    assert np.isnan(result[:, 17]).any()
    assert np.isfinite(np.delete(result, 17, axis=1)).all()


def test_cholesky_reads_one_triangle(rng: Rng) -> None:
    a = hermitian(rng, [0.5, 1.0, 2.0])
    garbage = np.triu(rng.normal(size=(3, 3)), 1)
    lower, upper = np.tril(a) + garbage, np.triu(a) + garbage.T
    factor = np.linalg.cholesky(a)
    assert_close(value(mg.linalg.cholesky(lower)), factor)
    assert_close(value(mg.linalg.cholesky(upper, upper=True)), factor.T)
    side = rng.normal(size=(3, 2))
    for triangle, is_upper in ((factor, False), (factor.T, True)):
        result = value(mg.linalg.cho_solve(triangle, side, upper=is_upper))
        assert_close(result, np.linalg.solve(a, side), scale=10.0)
        as_scipy = mg.linalg.cho_solve((mg.constant(triangle), not is_upper), side)
        assert_close(value(as_scipy), np.linalg.solve(a, side), scale=10.0)


def test_lu_solve_gradient_reaches_the_factors(rng: Rng) -> None:
    """Through the packed factors the gradient is that of the solution itself."""
    a, b = rng.normal(size=(2, 3, 3)) + 2 * np.eye(3), rng.normal(size=(3, 2))
    for trans in ("N", "T"):

        def solved(x: mg.Node, y: mg.Node, trans: str = trans) -> mg.Node:
            return mg.linalg.lu_solve(mg.linalg.lu_factor(x), y, trans)

        mg.check_gradients(solved, (a, b))


def test_solve_takes_a_vector_only_of_one_axis() -> None:
    a = np.stack([np.eye(3), 2 * np.eye(3)])
    assert mg.linalg.solve(a, np.ones(3)).shape == (2, 3)
    assert np.linalg.solve(a, np.ones(3)).shape == (2, 3)
    with pytest.raises(ShapeError, match="the rows of b differ: 3 and 2"):
        mg.linalg.solve(a, np.ones((2, 3)))
    assert mg.linalg.solve(np.stack([np.eye(2)] * 2), np.ones((2, 3))).shape == (2, 2, 3)


def test_norm_orders_against_numpy(rng: Rng) -> None:
    a = rng.normal(size=(2, 3, 4))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for axis in ((0, 1), (2, 1), (-1, 0)):
            for keepdims in (False, True):
                norms = value(mg.linalg.norm(a, order, axis, keepdims))
                assert_close(norms, np.linalg.norm(a, order, axis, keepdims), scale=10.0)
    for order in (None, 0, 1, -1, 2, 3.5, -2, np.inf, -np.inf):
        norms = value(mg.linalg.norm(a, order, 1, True))
        assert_close(norms, np.linalg.norm(a, order, 1, True), scale=10.0)


def test_cond_of_singular_matrices_is_infinite() -> None:
    a = np.stack([np.eye(2), np.zeros((2, 2)), np.array([[1.0, 2.0], [2.0, 4.0]])])
    for p in (1, -1, "fro", np.inf):
        assert_close(value(mg.linalg.cond(a, p)), np.linalg.cond(a, p))
    assert value(mg.linalg.cond(a))[1] == np.inf
    assert value(mg.linalg.cond(a, -2))[1] == 0.0


# Names of dimensions.


def test_named_batches_and_orders(rng: Rng) -> None:
    """The marginal likelihood of a Gaussian process, its gradient, with every extent a name."""
    x = mg.input("x", ("batch", "n", "n"), "float64")
    y = mg.input("y", ("batch", "n", 1), "float64")
    factor = mg.linalg.cholesky(x)
    weights = mg.linalg.cho_solve(factor, y)
    loss = 0.5 * mg.sum(y * weights) + mg.sum(mg.log(mg.linalg.diagonal(factor)))
    compiled = mg.function([x, y], [loss, *mg.grad(loss, [x, y])])
    for batch, n in ((2, 4), (3, 1), (1, 6)):
        root = rng.normal(size=(batch, n, n))
        K = root @ np.swapaxes(root, -1, -2) + np.eye(n)
        b = rng.normal(size=(batch, n, 1))
        value_, by_x, by_y = compiled(K, b)
        inverse = np.linalg.inv(K)
        alpha = inverse @ b
        expected = 0.5 * np.sum(b * alpha) + 0.5 * np.sum(np.linalg.slogdet(K)[1])
        gradient = 0.5 * (inverse - alpha @ np.swapaxes(alpha, -1, -2))
        folded = np.tril(2 * gradient, -1) + np.tril(np.triu(gradient))
        size = float(np.max(np.abs(alpha))) ** 2
        assert_close(value_, expected, scale=10.0 * size)
        assert_close(by_x, folded, scale=10.0 * size)
        assert_close(by_y, alpha, scale=10.0 * size)


def test_names_give_exact_shapes() -> None:
    x = mg.input("x", ("batch", "m", "n"))
    m, n = mg.Dim("m"), mg.Dim("n")
    assert mg.linalg.svd(x).U.shape == (mg.Dim("batch"), m, m)
    assert mg.linalg.pinv(x).shape == (mg.Dim("batch"), n, m)
    assert mg.linalg.svdvals(mg.input("x", ("n", "n"))).shape == (n,)
    assert mg.linalg.qr(mg.input("x", (mg.Dim("n") + 2, "n"))).Q.shape == (n + 2, n)
    assert mg.kron(mg.input("x", ("m", 2)), mg.input("y", ("n", 3))).shape == (m * n, 6)
    square = mg.linalg.inv(mg.input("x", ("m", 3)))
    assert square.constraints, "that the matrix is square is checked at the call"


@pytest.mark.parametrize("rows", [3, 5])
def test_gradient_of_named_tall_qr_and_lu(rows: int, rng: Rng) -> None:
    x = mg.input("x", (mg.Dim("n") + rows - 3, "n"), "float64")
    a = rng.normal(size=(rows, 3))
    Q, R = mg.linalg.qr(x)
    mg.check_gradients(mg.sum(Q**3) + mg.sum(R**2), {x: a})
    mg.check_gradients(mg.sum(mg.linalg.lu_factor(x).lu ** 2), {x: a})


def test_a_subset_is_checked_at_the_call() -> None:
    x = mg.input("x", ("n", "n"), "float64")
    compiled = mg.function([x], list(mg.linalg.eigh(x, subset_by_index=(1, 2))))
    w, _ = compiled(np.diag([3.0, 1.0, 2.0]))
    assert_close(w, [2.0, 3.0])
    with pytest.raises(mg.MagmagraphError, match="n"):
        compiled(np.eye(2))


# Chains.


def multiplications(node: mg.Node) -> int:
    """Count what the products of a chain multiply."""
    return sum(
        int(each.inputs[0].shape[0]) * int(each.inputs[0].shape[1]) * int(each.shape[-1])
        for each in topological([node])
        if each.op is MATMUL
    )


def cheapest(sizes: tuple[int, ...]) -> int:
    """Return the least number of multiplications of a chain, by trying all."""
    if len(sizes) < 3:
        return 0
    return min(
        cheapest(sizes[: k + 1]) + cheapest(sizes[k:]) + sizes[0] * sizes[k] * sizes[-1]
        for k in range(1, len(sizes) - 1)
    )


def test_multi_dot_takes_the_cheapest_order(rng: Rng) -> None:
    for _ in range(30):
        sizes = tuple(int(e) for e in rng.integers(1, 30, size=rng.integers(3, 8)))
        nodes = [
            mg.input(f"x{i}", (m, n)) for i, (m, n) in enumerate(itertools.pairwise(sizes))
        ]
        assert multiplications(mg.linalg.multi_dot(nodes)) == cheapest(sizes)


def test_multi_dot_of_names_is_told_their_sizes() -> None:
    A, B, C = mg.input("A", ("n", 10)), mg.input("B", (10, "n")), mg.input("C", ("n", 10))
    left = mg.linalg.multi_dot([A, B, C], sizes={"n": 2})
    right = mg.linalg.multi_dot([A, B, C], sizes={"n": 1000})
    assert left.inputs[1] is C
    assert right.inputs[0] is A


# Dtypes.


def test_halves_are_refused_with_a_mend() -> None:
    x = mg.input("x", (2, 2), "float16")
    for function in (mg.linalg.inv, mg.linalg.cholesky, mg.linalg.eigh, mg.linalg.expm):
        with pytest.raises(DTypeError, match=r"try: mg.cast\(x, 'float32'\)"):
            function(x)


def test_integers_become_floats() -> None:
    assert mg.linalg.inv(np.array([[2, 0], [0, 4]])).dtype == mg.config.float_dtype
    assert mg.linalg.matrix_power(np.array([[1, 1], [1, 0]]), 3).dtype.kind == "i"


def test_expm_against_scipy(rng: Rng) -> None:
    for scale in (1e-6, 0.1, 1.0, 20.0):
        a = scale * rng.normal(size=(2, 5, 5))
        expected = scipy.linalg.expm(a)
        size = float(np.max(np.abs(expected)))
        assert_close(value(mg.linalg.expm(a)), expected, scale=size)


def test_eig_of_complex_spectra(rng: Rng) -> None:
    """A function of a matrix made of its eigenvectors, whose phases it does not depend on."""
    a = np.array([[0.5, -2.0, 0.3], [1.5, 0.2, -0.4], [0.2, 0.1, 3.0]])
    weights = rng.normal(size=(3, 3))

    def function(x: mg.Node) -> mg.Node:
        w, V = mg.linalg.eig(x)
        return real_sum((V * mg.exp(w)) @ mg.linalg.inv(V), weights)

    def lengths(x: mg.Node) -> mg.Node:
        V = mg.linalg.eig(x).eigenvectors
        return mg.sum(mg.abs(V) ** 2 * weights)

    for point in (a, a + 1j * rng.normal(size=(3, 3))):
        mg.check_gradients(function, (point,))
        mg.check_gradients(lengths, (point,))
        expected = value(real_sum(mg.linalg.expm(point), weights))
        assert_close(value(function(point)), expected, scale=100.0)
