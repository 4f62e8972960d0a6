"""Systems of equations solved in mixed precision: factored in low, refined to high.

`refinement` has the iterations. Each function returns, beside the solution, what it is worth: the
backward error, the steps that were taken, and whether the tolerance was met.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...dtypes import finfo
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Kind, Op, Sample, Tests
from ...ir.types import Extent, Shape, Type
from ..control.identities import ITEM
from ..convert import cast
from ..elementwise.arithmetic import add, multiply, negative
from ..elementwise.comparison import where
from ..elementwise.complex_numbers import conj
from ..elementwise.family import pair
from ..products.contraction import matmul
from ..shape.arrange import expand_dims, reshape, swapaxes
from .parts import (
    COLUMNS,
    DEFINITES,
    INDEFINITE,
    POSITIVE_DEFINITE,
    SINGULAR,
    SQUARE,
    SQUARES,
    TALL,
    VECTOR,
    adjoint,
    failed,
    is_diagonal,
    lower_part,
    matrices,
    shared_batch,
    squares,
)
from .refinement import solve_refined

__all__ = ["RefinedSolution", "refined_solve"]

DOUBLE = ("float64", "complex128")  # what has a lower precision that LAPACK computes in
_FLOAT64, _INT32, _BOOL = np.dtype(np.float64), np.dtype(np.int32), np.dtype(bool)
_ASSUMED = ("general", "positive")


class RefinedSolution(NamedTuple):
    """A solution found in mixed precision, and what is known of it.

    Attributes
    ----------
    x
        The solution.
    error
        The backward error of `x`, the largest of its columns: the least relative change of the
        data after which `x` would be exact. float64, of the shape of the batch.
    iterations
        Steps of refinement, int32. Negative, ``-1 - steps``, where these did not lead to the
        tolerance and the factorization was done again in full precision.
    converged
        Whether `error` is within the tolerance, whichever way `x` was found; bool.
    """

    x: Node
    error: Node
    iterations: Node
    converged: Node


# What the functions share.


def double(*nodes: Node) -> tuple[Node, ...]:
    """Return integer operands as float64; others as they are."""
    return tuple(
        cast(node, _FLOAT64) if node.dtype.kind in "iub" else node for node in nodes
    )


def report_types(batch: Shape) -> tuple[Type, Type, Type]:
    """Return the types of the error, the iterations and the convergence."""
    return Type(_FLOAT64, batch), Type(_INT32, batch), Type(_BOOL, batch)


def check_control(name: str, tolerance: Any, max_iterations: Any) -> tuple[float | None, int]:
    """Return the two arguments that end an iteration, or raise."""
    if tolerance is not None:
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float, np.floating)):
            raise DTypeError(
                message(f"{name}: tolerance={tolerance!r}", need="a number, or None")
            )
        if not tolerance >= 0.0:
            raise ShapeError(message(f"{name}: tolerance={tolerance!r}", need="0 or more"))
        tolerance = float(tolerance)
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, (int, np.integer)):
        raise DTypeError(message(f"{name}: max_iterations={max_iterations!r}", need="an int"))
    if max_iterations < 0:
        raise ShapeError(message(f"{name}: max_iterations={max_iterations}", need="0 or more"))
    return tolerance, int(max_iterations)


def allowed(tolerance: float | None, order: int, dtype: np.dtype[Any]) -> float:
    """Return the tolerance: the rounding of `order` terms unless it is given."""
    return float(order**0.5 * finfo(dtype).eps) if tolerance is None else tolerance


def over_batch(shape: tuple[int, ...], *operands: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Give each place of a batch with the matrices there; leading axes broadcast."""
    matrices = [np.broadcast_to(x, (*shape, *x.shape[-2:])) for x in operands]
    for place in np.ndindex(shape):
        yield place, [x[place] for x in matrices]


def batch_of(*operands: Any) -> tuple[int, ...]:
    """Return the shape of the batch of some arrays of matrices."""
    return np.broadcast_shapes(*(x.shape[:-2] for x in operands))


def items(node: Node, *positions: int) -> tuple[Node, ...]:
    """Return some results of a node."""
    return tuple(ITEM(node, index=i) for i in positions)


def of_lower(cotangent: Node) -> Node:
    """Return the cotangent of a matrix of which `hermitian` reads the lower triangle."""
    both = add(cotangent, adjoint(cotangent))
    diagonal = is_diagonal(both.shape[-1], both.shape[-1])
    return where(diagonal, multiply(both, 0.5), lower_part(both))


def hermitian(matrix: Any) -> Any:
    """Return the Hermitian matrix that has a matrix's lower triangle."""
    whole = np.tril(matrix)
    whole = whole + np.tril(matrix, -1).conj().T
    if whole.dtype.kind == "c":
        np.einsum("ii->i", whole).imag[:] = 0.0
    return whole


# Square systems.


def _solve_type(call: Call, A: Type, b: Type, **attrs: Any) -> tuple[Type, ...]:
    batch, order = squares(call, A)
    others, rows, columns = matrices(call, b)
    call.unify(order, rows, "the order of the matrices and the rows of the right side")
    batch = shared_batch(call, batch, others)
    return Type(A.dtype, (*batch, order, columns)), *report_types(batch)


def _solve(
    xp: Any, A: Any, b: Any, *, assume: str, tolerance: float | None, max_iterations: int
) -> tuple[Any, ...]:
    batch = batch_of(A, b)
    x = np.empty((*batch, *b.shape[-2:]), A.dtype)
    error, iterations, converged = (np.empty(batch, t.dtype) for t in report_types(()))
    least = allowed(tolerance, A.shape[-1], A.dtype)
    positive = assume == "positive"
    for place, (matrix, right) in over_batch(batch, A, b):
        try:
            solution = solve_refined(matrix, right, positive, least, max_iterations)
        except np.linalg.LinAlgError:
            problem = INDEFINITE if positive else SINGULAR
            every = np.broadcast_to(A, (*batch, *A.shape[-2:]))
            raise failed("refined_solve", *problem, every, place) from None
        x[place], error[place], iterations[place], converged[place] = solution
    return x, error, iterations, converged


def _solve_gradient(
    node: Node, cotangents: tuple[Node | None, ...]
) -> tuple[Node | None, Node | None]:
    # b' = A^-T x', A' = -b' x^T: one more system with the same properties (Giles 2008).
    cotangent = cotangents[0]
    if cotangent is None:
        return None, None
    A = node.inputs[0]
    (x,) = items(node, 0)
    positive = node.attrs["assume"] == "positive"
    transpose = conj(A) if positive else swapaxes(A, -1, -2)
    (right,) = items(REFINED_SOLVE(transpose, cotangent, **node.attrs), 0)
    matrix = negative(matmul(right, swapaxes(x, -1, -2)))
    return of_lower(matrix) if positive else matrix, right


def _solve_flops(A: Type, b: Type, *, assume: str, **attrs: Any) -> Extent:
    batch = dims.size(dims.broadcast([A.shape[:-2], b.shape[:-2]], []))
    order: Extent = A.shape[-1]
    factor = dims.floor_div((2 if assume == "general" else 1) * order * order * order, 3)
    return batch * (factor + 4 * order * order * b.shape[-1])


@documented
def refined_solve(
    A: Any,
    b: Any,
    *,
    assume: str = "general",
    tolerance: float | None = None,
    max_iterations: int = 30,
) -> RefinedSolution:
    """Solve A x = b in mixed precision: factor in low, refine to high.

    The matrix is factored in float32 (complex64), where that takes half the time; residuals are
    computed in float64 (complex128), and each of them is solved for a correction with the factor
    at hand. Up to condition numbers of some 1e7 the solution is as good as that of a factorization
    in full precision. Where the error is not halved by a step, or `max_iterations` are used up,
    the matrix is factored in full precision, and the result says so.

    A: Node or array of shape ``(..., n, n)``, float64 or complex128.
    b: Of shape ``(..., n, k)``, or a vector ``(n,)``. Leading axes broadcast.
    assume: ``"general"``: LU with pivots. ``"positive"``: A is Hermitian and positive definite, and
        is factored by Cholesky, in half the time. Only its lower triangle is read then, so that the
        gradient lies in that triangle.
    tolerance: The backward error to reach; ``sqrt(n) * eps`` unless given.
    max_iterations: Steps of refinement before full precision takes over.
    returns (RefinedSolution): ``x`` of the shape of `b` (its leading axes broadcast), ``error``,
        ``iterations`` and ``converged``, one for each matrix of the batch. The error is ``|b - A x|
        / (|A| |x| + |b|)`` in the norm of largest row sums, the largest of the columns. NaN in a
        matrix gives NaN, not converged.
    raises ShapeError: If the matrices are not square or shapes do not fit, or an option is unknown
        or negative.
    raises DTypeError: For float32 and other dtypes of less than 64 bits a part: there is no lower
        precision that LAPACK computes in, and `solve` is what remains.
    raises LinAlgError: At run time, if a matrix is singular, or not positive definite where that is
        assumed, in full precision too; the message says which of the batch.

    See Also
    --------
    refined_lstsq, refined_eigh

    Notes
    -----
    The methods are LAPACK's dsgesv and dsposv (Langou et al. 2006), which MAGMA has for GPUs; the
    error is Rigal and Gaches' (1967). The gradient flows through ``x`` only, by the implicit
    formula, with one more system solved in the same way.

    On a CPU it is worth its steps for general matrices from order 500 on that are far from
    singular (condition 1e3: 0.6 of the time of `solve` at order 2048), and takes longer elsewhere.

    >>> import numpy as np
    >>> A = np.array([[4.0, 1.0], [2.0, 3.0]])
    >>> x, error, iterations, converged = mg.linalg.refined_solve(A, np.array([1.0, 2.0]))
    >>> x.eval()
    array([0.1, 0.6])
    >>> bool(error.eval() < 1e-15), bool(iterations.eval() >= 0), bool(converged.eval())
    (True, True, True)
    """
    if assume not in _ASSUMED:
        raise ShapeError(
            message(f"refined_solve: assume={assume!r}", need=f"one of {', '.join(_ASSUMED)}")
        )
    tolerance, most = check_control("refined_solve", tolerance, max_iterations)
    matrix, right = double(*pair(A, b))
    vector = right.ndim == 1
    node = REFINED_SOLVE(
        matrix,
        expand_dims(right, 1) if vector else right,
        assume=assume,
        tolerance=tolerance,
        max_iterations=most,
    )
    x, *report = items(node, 0, 1, 2, 3)
    return RefinedSolution(reshape(x, x.shape[:-1]) if vector else x, *report)


# Seven digits, refined once, are fourteen: samples that ask for eleven take one step.
ELEVEN_DIGITS = 1e-11


def refined_once(A: Any, *others: Any) -> tuple[Any, Any, Any]:
    """Return error, iterations and convergence for the samples' references."""
    batch = batch_of(A, *others)
    steps = 1 if all(x.size for x in (A, *others)) else 0
    return np.zeros(batch), np.full(batch, steps, np.int32), np.ones(batch, bool)


def _reference(A: Any, b: Any, assume: str = "general", **options: Any) -> tuple[Any, ...]:
    right = b[:, None] if b.ndim == 1 else b
    if assume == "positive":
        A = A.copy()
        for place in np.ndindex(A.shape[:-2]):
            A[place] = hermitian(A[place])
    x = np.linalg.solve(A, right)
    return x[..., 0] if b.ndim == 1 else x, *refined_once(A, right)


def _samples() -> list[Sample]:
    digits: dict[str, Any] = {"tolerance": ELEVEN_DIGITS}
    positive = {"assume": "positive", **digits}
    return [
        Sample((SQUARE, COLUMNS), digits),
        Sample((SQUARE, VECTOR), digits),
        Sample((SQUARES, VECTOR), digits),
        Sample((SQUARES[:, None], np.stack([COLUMNS, 1.0 - COLUMNS])), digits),
        Sample((SQUARE, np.stack([COLUMNS, 1.0 - COLUMNS])), digits),
        Sample((POSITIVE_DEFINITE, COLUMNS), positive),
        Sample((DEFINITES[::-1, ::-1, ::-1], VECTOR[::-1]), positive),
        Sample((SQUARE, COLUMNS[:, :0]), digits),
        Sample((np.zeros((0, 0)), np.zeros((0, 2))), digits),
        Sample((SQUARES[:0], COLUMNS), digits),
    ]


REFINED_SOLVE = Op(
    name="refined_solve",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=DOUBLE,
    rule=_solve_type,
    attributes={
        "assume": "Literal['general', 'positive']",
        "tolerance": "float | None",
        "max_iterations": "Count",
    },
    evaluate=_solve,
    gradient=_solve_gradient,
    function=refined_solve,
    tests=Tests(
        samples=_samples,
        bad_samples=lambda: [
            BadSample(
                (SQUARE, VECTOR[:2]),
                ShapeError,
                "refined_solve: the order of the matrices and "
                "the rows of the right side differ: 3 and 2",
            ),
            BadSample(
                (TALL, VECTOR), ShapeError, "refined_solve: matrices of 4 rows and 3 columns"
            ),
            BadSample(
                (SQUARE, VECTOR),
                ShapeError,
                "refined_solve: assume='symmetric'",
                {"assume": "symmetric"},
            ),
            BadSample(
                (SQUARE, VECTOR), ShapeError, "refined_solve: tolerance=-1.0", {"tolerance": -1.0}
            ),
            BadSample(
                (SQUARE, VECTOR),
                DTypeError,
                "refined_solve: max_iterations=1.5",
                {"max_iterations": 1.5},
            ),
        ],
        reference=_reference,
    ),
    numerics="reassoc",
    flops=_solve_flops,
    batching="leading",
)

RECORDS = (REFINED_SOLVE,)
