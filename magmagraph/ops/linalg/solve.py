"""Systems of linear equations, and inverses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Composite, Kind, Linalg, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node
from ..elementwise.arithmetic import negative
from ..products.contraction import matmul
from ..rules.batching import map_systems
from ..rules.matrix_facts import Facts
from ..rules.sharding import shard_systems
from ..shape.joining import broadcast_to
from .factor import PERMUTATION
from .lowered import factored_inv, factored_solve
from .parts import (
    COLUMNS,
    DEFINITES,
    EMPTY,
    ONE,
    POSITIVE_DEFINITE,
    SINGULAR,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    VECTOR,
    bad_squares,
    checked,
    numbers,
    rows_at,
    square_type,
    transposed,
)
from .triangular import (
    _CODES,
    as_system,
    bad_systems,
    system_type,
    triangular,
    without_column,
)

__all__ = ["cho_solve", "inv", "lu_solve", "solve"]


# Solve.


def _solve(xp: Any, a: Any, b: Any) -> Any:
    if xp is not np:  # other libraries want batches of one shape
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (xp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return checked("solve", *SINGULAR, xp.linalg.solve, a, b)


def _solve_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    by_b = SOLVE(transposed(node.inputs[0]), cotangent)
    return negative(matmul(by_b, transposed(node))), by_b


def _solve_flops(a: Type, b: Type) -> Extent:
    order, columns = a.shape[-1], b.shape[-1]
    batch = dims.size(dims.broadcast([a.shape[:-2], b.shape[:-2]], []))
    return batch * (dims.floor_div(2 * order * order * order, 3) + 2 * order * order * columns)


@documented
def solve(a: Any, b: Any) -> Node:
    """Solve systems of linear equations ``A x = b``.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    b: Right-hand sides: one vector ``(n,)``, or columns ``(..., n, k)``; a vector only where it has
        a single axis. The batch axes of both operands broadcast.
    returns: The solutions, of the shape of `b` with the broadcast batch, and the promoted dtype.
    raises ShapeError: If the matrices are not square, or the extents do not fit.
    raises LinAlgError: At run time, if a matrix is singular; the message says which of the batch.

    See Also
    --------
    triangular_solve, cho_solve, lu_solve, lstsq

    >>> mg.linalg.solve([[3.0, 1.0], [1.0, 2.0]], [9.0, 8.0]).eval()
    array([2., 3.], dtype=float32)
    """
    left, right, vector = as_system(SOLVE, a, b)
    return without_column(SOLVE(left, right), vector)


SOLVE = Op(
    name="solve",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=system_type,
    linalg=Linalg(factored=factored_solve),
    evaluate=_solve,
    gradient=_solve_gradient,
    batching=map_systems,
    sharding=shard_systems,
    function=solve,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE, VECTOR)),
            Sample((SQUARE, COLUMNS)),
            Sample((SQUARES, VECTOR)),
            Sample((SQUARES[:, None], np.stack([COLUMNS, COLUMNS[::-1]]))),
            Sample((STRIDED, COLUMNS[:, ::-1])),
            Sample((ONE, ONE)),
            Sample((EMPTY, np.zeros((0, 2)))),
            Sample((SQUARES[:0], COLUMNS)),
        ],
        bad_samples=lambda: bad_systems("solve"),
        reference=np.linalg.solve,
    ),
    numerics="reassoc",
    flops=_solve_flops,
    precision=Precision("keep"),
)


# Inverse.


def _inv_facts(node: Node, facts_of: Callable[[Node], Facts]) -> Facts:
    shared = Facts.DIAGONAL | Facts.HERMITIAN | Facts.POSITIVE | Facts.ORTHOGONAL
    return facts_of(node.inputs[0]) & shared | Facts.REGULAR


def _inv_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    inverse = transposed(node)
    return (negative(matmul(matmul(inverse, cotangent), inverse)),)


@documented
def inv(a: Any) -> Node:
    """Invert square matrices.

    a: Node or array of shape ``(..., n, n)``, float or complex.
    returns: Of the shape and dtype of `a`.
    raises ShapeError: If the matrices are not square.
    raises LinAlgError: At run time, if a matrix is singular; the message says which of the batch.

    See Also
    --------
    solve : better where the inverse would be multiplied.
    pinv

    >>> mg.linalg.inv([[2.0, 0.0], [0.0, 4.0]]).eval()
    array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    return INV(numbers(a))


INV = Op(
    name="inv",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=square_type,
    linalg=Linalg(factored=factored_inv, facts=_inv_facts),
    evaluate=lambda xp, a: checked("inv", *SINGULAR, xp.linalg.inv, a),
    gradient=_inv_gradient,
    function=inv,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,)),
            Sample((SQUARES,)),
            Sample((STRIDED,)),
            Sample((ONE,)),
            Sample((EMPTY,)),
            Sample((SQUARES[:0],)),
        ],
        bad_samples=bad_squares("inv"),
        reference=np.linalg.inv,
    ),
    numerics="reassoc",
    flops=lambda a: 2 * a.size * a.shape[-1],
    precision=Precision("keep"),
)


# With factors that are there already.


@documented
def lu_solve(factors: tuple[Any, Any], b: Any, trans: str | int = "N") -> Node:
    """Solve systems of linear equations whose matrices are factored by `lu_factor`.

    factors: What `lu_factor` returned: ``(lu, pivots)`` of square matrices.
    b: Right-hand sides: one vector ``(n,)``, or columns ``(..., n, k)``.
    trans: "N" (or 0) solves ``A x = b``, "T" (1) ``A^T x = b``, "C" (2) ``A^H x = b``.
    returns: The solutions, of the shape of `b` with the broadcast batch.
    raises ShapeError: If the matrices are not square, or the extents do not fit.
    raises LinAlgError: At run time, if a matrix is singular.

    >>> factors = mg.linalg.lu_factor([[3.0, 1.0], [1.0, 2.0]])
    >>> mg.linalg.lu_solve(factors, [9.0, 8.0]).eval().round(4)
    array([2., 3.], dtype=float32)
    """
    packed_factors, pivots = factors
    packed, side, vector = as_system(LU_SOLVE, packed_factors, b)
    code = _code(Call(LU_SOLVE, (packed, side)), trans)
    order = PERMUTATION(as_node(pivots), rows=packed.shape[-1], inverse=code != "N")
    batch = dims.broadcast([packed.shape[:-2], side.shape[:-2]], [])
    order = broadcast_to(order, (*batch, packed.shape[-1]))
    side = broadcast_to(side, (*batch, *side.shape[-2:]))
    if code == "N":
        first = triangular(packed, rows_at(side, order), lower=True, unit_diagonal=True)
        return without_column(triangular(packed, first, lower=False), vector)
    first = triangular(packed, side, lower=False, trans=code)
    second = triangular(packed, first, lower=True, trans=code, unit_diagonal=True)
    return without_column(rows_at(second, order), vector)


def _code(call: Call, trans: str | int) -> str:
    if trans not in _CODES:
        raise call.shape_error(f"trans={trans!r}", need="one of 'N', 'T', 'C'")
    return _CODES[trans]


@documented
def cho_solve(c: Any, b: Any, *, upper: bool = False) -> Node:
    """Solve systems of linear equations whose matrices are factored by `cholesky`.

    c: What `cholesky` returned, of shape ``(..., n, n)``; or SciPy's pair ``(c, lower)``.
    b: Right-hand sides: one vector ``(n,)``, or columns ``(..., n, k)``.
    upper: Whether `c` is the upper factor.
    returns: The solutions, of the shape of `b` with the broadcast batch.
    raises ShapeError: If the matrices are not square, or the extents do not fit.

    >>> factor = mg.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]])
    >>> mg.linalg.cho_solve(factor, [8.0, 12.0]).eval()
    array([1., 2.], dtype=float32)
    """
    if isinstance(c, tuple) and len(c) == 2 and isinstance(c[1], (bool, np.bool_)):
        c, upper = c[0], not c[1]
    factor, side, vector = as_system(CHO_SOLVE, c, b)
    first = triangular(factor, side, lower=not upper, trans="C" if upper else "N")
    second = triangular(factor, first, lower=not upper, trans="N" if upper else "C")
    return without_column(second, vector)


def _lu_solve_sampled(a: Any, b: Any, trans: str | int = "N") -> Any:
    matrix = {"N": a, "T": np.swapaxes(a, -1, -2), "C": np.swapaxes(np.conj(a), -1, -2)}
    return np.linalg.solve(matrix[_CODES[trans]], b)


def _packed(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg import lu_factor as factor

    parts = [factor(one) for one in a.reshape(-1, *a.shape[-2:])]
    packed = np.stack([p for p, _ in parts]).reshape(a.shape)
    return packed, np.stack([q for _, q in parts]).reshape(a.shape[:-1])


def _lu_solve_reference(factors: Any, b: Any, trans: str | int = "N") -> Any:
    packed, pivots = factors
    order = packed.shape[-1]
    lower = np.tril(packed, -1) + np.eye(order)
    product = lower @ np.triu(packed)
    for index in np.ndindex(*pivots.shape[:-1]):
        rows = product[index]
        for i in reversed(range(order)):
            rows[[i, pivots[index][i]]] = rows[[pivots[index][i], i]]
    return _lu_solve_sampled(product, b, trans)


LU_SOLVE = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=lu_solve,
    tests=Tests(
        samples=lambda: [
            Sample(
                (list(_packed(matrix)), side), attrs, gradient=(1,), reason="pivots are integers"
            )
            for matrix, side, attrs in (
                (SQUARES[2], VECTOR, {}),
                (SQUARES, COLUMNS, {}),
                (SQUARES, COLUMNS, {"trans": "T"}),
                (SQUARES[1], np.stack([COLUMNS] * 2), {"trans": 2}),
            )
        ],
        bad_samples=lambda: [
            BadSample(
                (list(_packed(SQUARE)), TALL),
                ShapeError,
                "lu_solve: the order of the matrices and the rows of b differ: 3 and 4",
            ),
            BadSample(
                (list(_packed(SQUARE)), VECTOR), ShapeError, "lu_solve: trans='H'", {"trans": "H"}
            ),
        ],
        reference=_lu_solve_reference,
    ),
    numerics="reassoc",
)
CHO_SOLVE = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=cho_solve,
    tests=Tests(
        samples=lambda: [
            Sample((np.linalg.cholesky(POSITIVE_DEFINITE), VECTOR)),
            Sample((np.linalg.cholesky(DEFINITES), COLUMNS)),
            Sample((np.linalg.cholesky(DEFINITES, upper=True), COLUMNS), {"upper": True}),
            Sample((EMPTY, np.zeros((0, 2)))),
        ],
        bad_samples=lambda: bad_systems("cho_solve"),
        reference=lambda c, b, upper=False: np.linalg.solve(
            np.swapaxes(np.triu(c).conj(), -1, -2) @ np.triu(c)
            if upper
            else np.tril(c) @ np.swapaxes(np.tril(c).conj(), -1, -2),
            b,
        ),
    ),
    numerics="reassoc",
)

RECORDS = (SOLVE, INV, LU_SOLVE, CHO_SOLVE)
