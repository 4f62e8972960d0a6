"""What is known of matrices, the rules that use it, and the values that they leave as they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.linalg.parts import diagonal_matrix, diagonal_of, lower_part, upper_part
from magmagraph.ops.rules.matrix_facts import Facts
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT
from magmagraph.passes.simplify.structure import band_of, facts

SIMPLIFY = [record for record in DEFAULT if record.name == "simplify"]

inv, solve, det, slogdet = mg.linalg.inv, mg.linalg.solve, mg.linalg.det, mg.linalg.slogdet
cholesky = mg.linalg.cholesky
N = 7
A, B = (mg.input(name, (N, N), "float64") for name in "AB")
b, v = mg.input("b", (N, 2), "float64"), mg.input("v", (N,), "float64")
C, D = mg.input("C", (2, 3), "float64"), mg.input("D", (4, 5), "float64")
E = mg.input("E", (15, 6), "float64")
LEAVES = [A, B, b, v, C, D, E]
S = A @ A.T + mg.eye(N, dtype="float64")
L = cholesky(S)


@pytest.fixture
def feeds(rng: np.random.Generator) -> dict[Node, np.ndarray]:
    """Give every leaf well conditioned values."""
    values = {leaf: rng.normal(size=leaf.shape) for leaf in LEAVES}
    return {**values, A: values[A] + 5.0 * np.eye(N), B: values[B] + 5.0 * np.eye(N)}


def passed(
    nodes: Sequence[Node], *names: str, leaves: Sequence[Node] = LEAVES, **options: Any
) -> tuple[Graph, Any]:
    """Return the graph of some nodes after passes, and the report."""
    records = [record for record in DEFAULT if record.name in names]
    return pipeline.run(
        freeze(list(leaves), list(nodes)), Trace(), passes=records, options=options_of(**options)
    )


def plainly(nodes: Sequence[Node], feeds: dict[Node, np.ndarray]) -> list[Any]:
    """Return values of the graph as it was written."""
    graph = freeze(LEAVES, list(nodes))
    values = evaluate(graph, dict(zip(graph.inputs, feeds.values(), strict=True)))
    return [values[root] for root in graph.outputs]


def assert_close(found: Any, plain: Any) -> None:
    size = float(np.abs(plain).max())
    assert tolerance(canonical("float64"), "reassoc").close(found, plain, size)


def steps(node: Node) -> list[str]:
    """Return the operations of linear algebra that the plan of a node runs."""
    plan = mg.function(LEAVES, node).plan
    linear = ("linalg", "lowered", "contraction")
    return [s.node.op.name for s in plan.steps if s.node.op.kind in linear and s.kernel != "fused"]


# What is known.


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (A, Facts.NONE),
        (lower_part(A), Facts.LOWER),
        (lower_part(A, -2), Facts.LOWER),
        (lower_part(A, 1), Facts.NONE),
        (upper_part(A, 1), Facts.UPPER),
        (upper_part(A).T, Facts.LOWER),
        (2.0 * lower_part(A) - lower_part(B), Facts.LOWER),
        (lower_part(A) @ lower_part(B), Facts.LOWER),
        (lower_part(A) @ upper_part(B), Facts.NONE),
        (lower_part(upper_part(A)), Facts.DIAGONAL | Facts.HERMITIAN),
        (A * lower_part(B), Facts.NONE),  # an infinity of A makes NaN of the zeros of B
        (A.T @ A, Facts.HERMITIAN),
        (A + A.T, Facts.HERMITIAN),
        (A - A.T, Facts.NONE),
        (A.T @ A + mg.eye(N, dtype="float64"), Facts.HERMITIAN),  # definite, but for rounding
        (L, Facts.LOWER | Facts.REGULAR),
        (L.T, Facts.UPPER | Facts.REGULAR),
        (inv(L), Facts.LOWER | Facts.REGULAR),
        (L @ L.T, Facts.HERMITIAN | Facts.POSITIVE | Facts.REGULAR),
        (mg.linalg.qr(A).R, Facts.UPPER),
        (mg.linalg.qr(A).Q, Facts.ORTHOGONAL),
        (mg.linalg.qr(mg.concatenate([A, B])).Q, Facts.NONE),
        (mg.linalg.eigh(A).eigenvectors, Facts.ORTHOGONAL),
        (mg.constant(np.triu(np.ones((3, 3)))), Facts.UPPER),
        (mg.constant(np.ones((3, 3))), Facts.HERMITIAN),
    ],
)  # fmt: skip
def test_what_is_known(node: Node, wanted: Facts) -> None:
    assert facts(node) == wanted


def test_the_identity_has_all_properties() -> None:
    for node in (mg.eye(5), mg.constant(np.eye(3)), mg.eye("n")):
        assert Facts.DIAGONAL | Facts.POSITIVE | Facts.ORTHOGONAL | Facts.HERMITIAN in facts(node)
    assert Facts.DIAGONAL not in facts(mg.eye(5, k=1))


@pytest.mark.parametrize("offset", [-2, 0, 3])
def test_bands_of_masks(offset: int) -> None:
    """Every comparison of rows and columns, either way around, against its own values."""
    row = mg.arange(5)[:, None]
    column = mg.arange(6)[None, :]
    where = np.arange(6)[None, :] - np.arange(5)[:, None]
    functions: list[Callable[[Any, Any], Node]] = [
        mg.less, mg.less_equal, mg.greater, mg.greater_equal, mg.equal,
    ]  # fmt: skip
    for function in functions:
        for mask in (
            function(row + offset, column),
            function(row, column - offset),
            function(column, row + offset),
            function(column - offset, row),
            mg.logical_not(function(row + offset, column)),
        ):
            after, _ = pipeline.run(freeze([], [mask]), Trace(), passes=SIMPLIFY)
            band = band_of(after.outputs[0])
            value = mask.eval()
            if band is None:
                assert function is mg.equal, "only what is not a diagonal is no band"
                continue
            np.testing.assert_array_equal(value, (band[0] <= where) & (where <= band[1]))


# Rules: plans and values.

BLOCKS = mg.reshape(mg.expand_dims(C, (1, 3)) * mg.expand_dims(D, (0, 2)), (8, 15))
REWRITTEN: dict[str, tuple[Node, list[str]]] = {
    "inverse times columns": (inv(A) @ b, ["solve"]),
    "inverse times a vector": (inv(A) @ v, ["solve"]),
    "rows times inverse": (b.T @ inv(A), ["solve"]),
    "transposed inverse": (inv(A).T @ b, ["solve"]),
    "rows times transposed inverse": (b.T @ inv(A).T, ["solve"]),
    "inverse of inverse": (inv(inv(A)) @ b, ["gemm"]),
    "solution with inverse": (solve(inv(A), b), ["gemm"]),
    "inverse of solution": (inv(solve(A, B)), ["solve"]),
    "thin solution": (inv(A) @ b @ b.T, ["solve", "gemm"]),
    "thin product": (solve(A, B) @ b, ["gemm", "solve"]),
    "lower triangle": (solve(lower_part(A), b), ["triangular_solve"]),
    "solve with a transposed triangular matrix": (solve(upper_part(A).T, b), ["triangular_solve"]),
    "two triangles": (
        solve(lower_part(A) @ upper_part(B), b), ["triangular_solve", "triangular_solve"],
    ),
    "inverse of a triangular matrix": (inv(upper_part(A)), ["triangular_solve"]),
    "inverse of a triangle times": (inv(upper_part(A)) @ b, ["triangular_solve"]),
    "determinant of a triangular matrix": (det(lower_part(A)), []),
    "determinant of triangles": (det(lower_part(A) @ upper_part(B)), []),
    "sign of a triangle's": (slogdet(-lower_part(A)).sign, []),
    "logarithm of a triangle's": (slogdet(upper_part(A)).logabsdet, []),
    "log of a determinant to log-determinant": (mg.log(mg.absolute(det(A))), ["slogdet"]),
    "scaled rows": (diagonal_matrix(v) @ A, []),
    "scaled columns": (A @ diagonal_matrix(v), []),
    "identity": (mg.eye(N, dtype="float64") @ A + 0.5, []),
    "diagonal of a product": (diagonal_of(A @ B), []),
    "trace of a product": (mg.sum(diagonal_of(A @ B)), []),
    "diagonal, taken out": (mg.diagonal(A @ B), []),
    "trace": (mg.trace(A @ B), []),
    "trace of linalg": (mg.linalg.trace(A @ B), []),
    "tril and triu": (solve(mg.tril(A), solve(mg.triu(B), b)), ["triangular_solve"] * 2),
    "diag": (mg.diag(v) @ A, []),
    "kron": (mg.kron(C, D) @ E, ["gemm", "gemm"]),
    "Q R": (mg.linalg.qr(A).Q @ mg.linalg.qr(A).R + 0.5, []),
    "Kronecker": (BLOCKS @ E, ["gemm", "gemm"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REWRITTEN)
def test_plans_and_values(case: str, feeds: dict[Node, np.ndarray]) -> None:
    node, wanted = REWRITTEN[case]
    assert sorted(steps(node)) == sorted(wanted)
    (plain,) = plainly([node], feeds)
    assert_close(mg.function(LEAVES, node)(*feeds.values()), plain)


def test_traces_over_a_named_dimension(rng: np.random.Generator) -> None:
    x, y = mg.input("x", ("n", "n"), "float64"), mg.input("y", ("n", "n"), "float64")
    f = mg.function([x, y], [mg.trace(x @ y), mg.linalg.trace(x @ y), mg.diagonal(x @ y)])
    one, other = rng.normal(size=(2, 6, 6))
    first, second, third = f(one, other)
    assert not [step for step in f.plan.steps if step.node.op.kind == "lowered" and
                step.kernel != "fused"]
    for value, wanted in (
        (first, np.trace(one @ other)), (second, np.trace(one @ other)),
        (third, np.diagonal(one @ other)),
    ):  # fmt: skip
        assert_close(value, wanted)


def test_a_factor_s_product_is_the_matrix(feeds: dict[Node, np.ndarray]) -> None:
    """Only the lower triangle of the matrix is in it, as only that was read."""
    node = cholesky(A @ A.T + B) @ cholesky(A @ A.T + B).T
    assert "cholesky" not in steps(node)
    given = {**feeds, B: 0.1 * feeds[B]}
    (plain,) = plainly([node], given)
    assert_close(mg.function(LEAVES, node)(*given.values()), plain)


def test_determinants_beyond_the_range_of_floats() -> None:
    x = mg.input("x", (400, 400), "float64")
    big = 10.0 * np.eye(400)
    f = mg.function([x], [mg.log(det(x)), mg.log(mg.absolute(det(x)))])
    np.testing.assert_allclose(f(big), 400 * np.log(10.0))
    assert np.isnan(f(-np.eye(400)[[1, 0, *range(2, 400)]])[0])
    assert f(0.0 * big)[0] == -np.inf


# Refusals.

REFUSED: dict[str, tuple[Node, str, str]] = {
    "inverse is fetched": (
        mg.concatenate([inv(A), inv(A) @ b], axis=1), "product with an inverse",
        "the inverse itself is used, by 'concatenate'",
    ),
    "inverse of a product": (
        inv(A @ B), "inverse of a product",
        "two inverses and a product are more work than one inverse",
    ),
    "nothing known": (
        solve(A, b), "solve with a triangular matrix", "the structure of the matrix is unknown",
    ),
    "not provably positive": (
        solve(A.T @ A + mg.eye(N, dtype="float64"), b), "solve with a triangular matrix",
        "the matrix is symmetric, but not known to be positive definite",
    ),
    "no triangle": (
        det(A), "determinant of a triangular matrix", "the matrix is not known to be triangular",
    ),
    "factors are read": (
        solve(L @ L.T, b), "product of the factors of a matrix", "'solve' uses the factors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    node, rule, reason = REFUSED[case]
    _, report = passed([node], "simplify")
    assert (rule, reason) in [(r.rule, r.reason) for r in report["simplify"].refusals]
    assert rule not in report["simplify"].hits


# One factorization.


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_one_factorization_for_all(feeds: dict[Node, np.ndarray]) -> None:
    nodes = [solve(A, b), solve(A.T, b), inv(A), inv(A.T), det(A), *slogdet(A)]
    after, _ = passed(nodes, "simplify", "contract")
    made = names(after)
    assert made.count("lu_factor") == 1
    assert not {"solve", "inv", "det", "slogdet"} & set(made)
    again, _ = pipeline.run(
        after, Trace(), passes=[record for record in DEFAULT if record.name == "contract"]
    )
    assert again is after
    found = mg.function(LEAVES, nodes)(*feeds.values())
    for value, plain in zip(found, plainly(nodes, feeds), strict=True):
        assert_close(value, plain)


def test_a_gradient_uses_the_factors_of_its_loss(feeds: dict[Node, np.ndarray]) -> None:
    loss = mg.sum(solve(A, b) ** 2) + slogdet(A).logabsdet
    nodes = [loss, *mg.grad(loss, [A, b])]
    after, _ = passed(nodes, "simplify", "contract")
    assert names(after).count("lu_factor") == 1
    found = mg.function(LEAVES, nodes)(*feeds.values())
    for value, plain in zip(found, plainly(nodes, feeds), strict=True):
        assert_close(value, plain)


def test_batches_share_from_some_order_on(rng: np.random.Generator) -> None:
    for order, shared in ((5, False), (80, True)):
        x = mg.input("x", ("batch", order, order), "float64")
        nodes = [det(x), inv(x), solve(x, np.ones(order))]
        f = mg.function([x], nodes)
        value = rng.normal(size=(3, order, order)) / order**0.5
        found = f(value)
        made = [step.node.op.name for step in f.plan.steps]
        assert ("lu_factor" in made) == shared
        wanted = [
            np.linalg.det(value), np.linalg.inv(value), np.linalg.solve(value, np.ones((order, 1))),
        ]  # fmt: skip
        for one, other in zip(found, wanted, strict=True):
            condition = np.linalg.cond(value).max()
            close = tolerance(canonical("float64"), "stable").relative * condition
            assert np.abs(one - other.reshape(one.shape)).max() <= close * np.abs(other).max()


def test_complex_matrices(rng: np.random.Generator) -> None:
    """Rules that hold for complex numbers apply, others refuse; no transpose is an adjoint."""
    x, y = mg.input("x", (N, N), "complex128"), mg.input("y", (N, 2), "complex128")
    lower = mg.linalg.cholesky(x @ mg.conj(x).T + mg.eye(N, dtype="complex128"))
    nodes = [
        inv(x) @ y, y.T @ inv(x), inv(inv(x)), inv(x).T @ y, solve(x.T, y), det(x), *slogdet(x),
        solve(mg.tril(x), y), det(mg.tril(x)), lower @ mg.conj(lower).T, lower @ lower.T,
    ]  # fmt: skip
    graph = freeze([x, y], nodes)
    given = [rng.normal(size=n.shape) + 1j * rng.normal(size=n.shape) for n in (x, y)]
    values = evaluate(graph, dict(zip(graph.inputs, given, strict=True)))
    found = mg.function([x, y], nodes)(*given)
    for value, root in zip(found, graph.outputs, strict=True):
        size = float(np.abs(values[root]).max())
        close = tolerance(canonical("complex128"), "reassoc")
        assert np.abs(value - values[root]).max() <= 20.0 * close.absolute * max(size, 1.0)
    made = names(passed([inv(x) @ y, det(x)], "simplify", "contract", leaves=[x, y])[0])
    assert "lu_factor" in made and "inv" not in made


def test_a_singular_matrix_is_named_where_factors_are_shared() -> None:
    f = mg.function([A, b], [solve(A, b), det(A)])
    with pytest.raises(mg.LinAlgError, match="solve: the matrix is singular") as caught:
        f(np.zeros((N, N)), np.ones((N, 2)))
    assert "test_structure.py" in str(caught.value)
    assert mg.function([A], [det(A), slogdet(A).logabsdet])(np.zeros((N, N))) == [0.0, -np.inf]


# Products.


def test_products_with_the_own_transpose(rng: np.random.Generator) -> None:
    x = mg.input("x", ("rows", 130), "float32")
    f = mg.function([x], [x.T @ x, x @ x.T])
    value = rng.normal(size=(200, 130)).astype(np.float32)
    found = f(value)
    assert [step.kernel for step in f.plan.steps] == ["syrk", "syrk"]
    wide = value.astype(np.float64)
    for one, other in zip(found, (wide.T @ wide, wide @ wide.T), strict=True):
        assert tolerance(canonical("float32"), "reassoc").close(one, other, np.abs(other).max())
        np.testing.assert_array_equal(one, one.T)


def _weighted_products(x: Any, y: Any, w: Any, v: Any) -> list[Any]:
    """Return products of two matrices with themselves and weights, in several spellings."""
    scaled = x * w[:, None]
    return [
        x.T @ (w[:, None] * x), scaled.T @ x, (x / v[:, None]).T @ (w[:, None] * x),
        (w[:, None] * x * v[:, None]).T @ x, scaled.T @ scaled,
        y @ (y * w).T, (y / v * w) @ y.T, x.T @ (0.5 * x),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", [64, 131, 200, 517])
def test_products_with_weights_compute_one_triangle(
    order: int, dtype: str, rng: np.random.Generator
) -> None:
    arrays = [rng.normal(size=s) for s in ((520, order), (order, 520), (520,))]  # of any sign
    arrays = [a.astype(dtype) for a in (*arrays, rng.uniform(0.5, 2.0, 520))]
    nodes = [mg.input(f"x{i}", a.shape, dtype) for i, a in enumerate(arrays)]
    f = mg.function(nodes, _weighted_products(*nodes))
    assert "gemm" not in {step.kernel for step in f.plan.steps}
    exact = _weighted_products(*[a.astype(np.float64) for a in arrays])
    for found, expected in zip(f(*arrays), exact, strict=True):
        assert tolerance(canonical(dtype), "reassoc").close(
            found, expected, np.abs(expected).max()
        )
        np.testing.assert_array_equal(found, found.T)


def test_products_with_weights_that_are_not_symmetric_stay(rng: np.random.Generator) -> None:
    x, z = (mg.input(name, (160, 160), "float64") for name in "xz")
    w = mg.input("w", (160,), "float64")
    others = [
        x.T @ (w * x), x @ (w[:, None] * x).T, x.T @ (w[:, None] * z), x.T @ (x * z),
        x @ (w[:, None] * x), x.T @ mg.broadcast_to(w[:, None], x.shape),
    ]  # fmt: skip
    f = mg.function([x, z, w], others)
    assert not {"syrk"} & {step.node.op.name for step in f.plan.steps}
    a, b, c = (rng.normal(size=s) for s in ((160, 160), (160, 160), (160,)))
    for found, expected in zip(
        f(a, b, c),
        [
            a.T @ (c * a), a @ (c[:, None] * a).T, a.T @ (c[:, None] * b), a.T @ (a * b),
            a @ (c[:, None] * a), a.T @ np.broadcast_to(c[:, None], a.shape),
        ],
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_products_with_weights_in_programs(rng: np.random.Generator) -> None:
    x, w = mg.input("x", ("m", 140), "float64"), mg.input("w", ("m",), "float64")
    y = mg.input("y", ("m",), "float64")
    t = mg.exp(w)[:, None] * x
    fit = mg.linalg.solve(x.T @ t + 0.1 * mg.eye(140, dtype="float64"), t.T @ y)
    f = mg.function([x, w, y], [fit, mg.grad(mg.sum(fit**2), w)])
    assert "syrk" in {step.kernel for step in f.plan.steps}
    plain = mg.function([x, w, y], [fit, mg.grad(mg.sum(fit**2), w)], skip=["contract"])
    for rows in (900, 333):
        a, b, c = (rng.normal(size=s) for s in ((rows, 140), (rows,), (rows,)))
        expected = plain(a, b, c)
        for one, other in zip(f(a, b, c), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_small_products_with_the_own_transpose_are_plain() -> None:
    _, report = passed([b.T @ b], "simplify", "contract")
    (refusal,) = [r for r in report["contract"].refusals if "transpose" in r.rule]
    assert "are too few to gain" in refusal.reason


def test_six_matrices_with_named_dimensions() -> None:
    """The textbook's chain (Cormen et al., 15.2), its sizes known from the first feeds only."""
    sizes = dict(zip("abcdefg", (30, 35, 15, 5, 10, 20, 25), strict=True))
    pairs = list(zip("abcdef", "bcdefg", strict=True))
    chain = [mg.input(f"M{i}", pair) for i, pair in enumerate(pairs)]
    product = chain[0]
    for factor in chain[1:]:
        product = product @ factor
    records = [record for record in DEFAULT if record.name in ("simplify", "contract")]
    after, _ = pipeline.run(
        freeze(chain, [product]), Trace(), passes=records, options=options_of(hints=sizes)
    )
    work = 0
    for node in after.nodes:
        if node.op.name == "gemm":
            left, right = (operand.shape for operand in node.inputs)
            work += sizes[str(left[0])] * sizes[str(left[1])] * sizes[str(right[1])]
    assert work == 15_125


def test_rewriting_ends_and_is_idempotent() -> None:
    nodes = [node for node, _ in REWRITTEN.values()] + [node for node, *_ in REFUSED.values()]
    after, _ = passed(nodes, "simplify")
    again, report = pipeline.run(after, Trace(), passes=SIMPLIFY)
    assert again is after
    assert not report["simplify"].hits
