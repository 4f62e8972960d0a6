"""Least squares in mixed precision: one augmented system, factored in low and refined to high."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Extent, Type
from ..elementwise.arithmetic import add, negative
from ..elementwise.complex_numbers import conj
from ..elementwise.family import pair
from ..leaf import constant
from ..products.contraction import matmul
from ..shape.arrange import expand_dims, reshape
from ..shape.joining import broadcast_to
from .parts import COLUMNS, TALL, adjoint, failed, matrices, shared_batch
from .refined import (
    DOUBLE,
    ELEVEN_DIGITS,
    RefinedSolution,
    allowed,
    batch_of,
    check_control,
    double,
    items,
    over_batch,
    refined_once,
    report_types,
)
from .refinement import augmented_refined

__all__ = ["refined_lstsq"]

_DEPENDENT = (
    "has not full rank",
    "linearly independent columns, or rows where these are fewer",
    "mg.linalg.lstsq, which takes the shortest of all solutions",
)


# The augmented system: r + A x = b, A^H r = c.


def _augmented_type(call: Call, A: Type, b: Type, c: Type, **attrs: Any) -> tuple[Type, ...]:
    batch, rows, columns = matrices(call, A)
    first, upper, count = matrices(call, b)
    second, lower, other = matrices(call, c)
    call.unify(rows, upper, "the rows of the matrices and of the right side")
    call.unify(columns, lower, "the columns of the matrices and the rows of the lower right side")
    count = call.unify(count, other, "the columns of the two right sides")
    batch = shared_batch(call, shared_batch(call, batch, first), second)
    return (
        Type(A.dtype, (*batch, rows, count)),
        Type(A.dtype, (*batch, columns, count)),
        *report_types(batch),
    )


def _augmented(
    xp: Any, A: Any, b: Any, c: Any, *, tolerance: float | None, max_iterations: int
) -> tuple[Any, ...]:
    rows, columns = A.shape[-2:]
    if rows < columns:
        raise ShapeError(
            message(
                f"refined_lstsq: a matrix of {rows} rows and {columns} columns, which were not "
                "known when the graph was built",
                need="at least as many rows as columns, or extents that are ints",
                hint="mg.linalg.lstsq; or inputs of the given shape instead of named dimensions",
            )
        )
    batch = batch_of(A, b, c)
    r = np.empty((*batch, *b.shape[-2:]), A.dtype)
    x = np.empty((*batch, *c.shape[-2:]), A.dtype)
    error, iterations, converged = (np.empty(batch, t.dtype) for t in report_types(()))
    least = allowed(tolerance, rows + columns, A.dtype)
    for place, (matrix, upper, lower) in over_batch(batch, A, b, c):
        try:
            solution = augmented_refined(matrix, upper, lower, least, max_iterations)
        except np.linalg.LinAlgError:
            every = np.broadcast_to(A, (*batch, rows, columns))
            raise failed("refined_lstsq", *_DEPENDENT, every, place) from None
        value, error[place], iterations[place], converged[place] = solution
        r[place], x[place] = value[:rows], value[rows:]
    return r, x, error, iterations, converged


def _augmented_gradient(
    node: Node, cotangents: tuple[Node | None, ...]
) -> tuple[Node | None, Node | None, Node | None]:
    # The transpose of the system is its conjugate: the same once more, the cotangents on its right.
    if cotangents[0] is None and cotangents[1] is None:
        return None, None, None
    r, x = items(node, 0, 1)
    upper, lower = (
        broadcast_to(constant(0, dtype=value.dtype), value.shape)
        if cotangent is None
        else conj(cotangent)
        for value, cotangent in ((r, cotangents[0]), (x, cotangents[1]))
    )
    p, q = items(AUGMENTED(node.inputs[0], upper, lower, **node.attrs), 0, 1)
    matrix = add(matmul(p, adjoint(x)), matmul(r, adjoint(q)))
    return negative(conj(matrix)), conj(p), conj(q)


def _augmented_flops(A: Type, b: Type, c: Type, **attrs: Any) -> Extent:
    rows, columns = A.shape[-2:]
    factor = 2 * rows * columns * columns
    return dims.size(A.shape[:-2]) * (factor + 16 * rows * columns * b.shape[-1])


AUGMENTED = Op(
    name="refined_augmented",
    kind=Kind.LINALG,
    dtypes=DOUBLE,
    doc="r and x with r + A x = b and A^H r = c, factored in low precision and refined to high.",
    rule=_augmented_type,
    attributes={"tolerance": "float | None", "max_iterations": "Count"},
    evaluate=_augmented,
    gradient=_augmented_gradient,
    numerics="reassoc",
    flops=_augmented_flops,
    batching="leading",
)


@documented
def refined_lstsq(
    A: Any, b: Any, *, tolerance: float | None = None, max_iterations: int = 30
) -> RefinedSolution:
    """Minimize ``|b - A x|`` in mixed precision: factor in low, refine to high.

    For a matrix of at least as many rows as columns x is the least squares solution, for one of
    more columns the shortest solution of A x = b. Either is a part of the solution of the augmented
    system ``r + A x = b, A^H r = c``, whose QR factor is formed in float32 (complex64) and whose
    residuals are computed in float64 (complex128). Where that does not converge, which condition
    numbers above some 1e6 make likely, QR is done again in full precision.

    A: Node or array of shape ``(..., m, n)``, float64 or complex128, of full rank. Where named
        dimensions leave open whether there are more rows or more columns, at least as many rows are
        needed at the call.
    b: Of shape ``(..., m, k)``, or a vector ``(m,)``. Leading axes broadcast.
    tolerance: The backward error to reach; ``sqrt(m + n) * eps`` unless given.
    max_iterations: Steps of refinement before full precision takes over.
    returns (RefinedSolution): ``x`` of shape ``(..., n, k)`` or ``(..., n)``, ``error``,
        ``iterations`` and ``converged``, one for each matrix of the batch. The error is the larger
        of ``|b - r - A x| / (|b| + |r| + |A| |x|)`` and ``|A^H r - c| / (|A| |r| + |c|)`` in the
        Euclidean and Frobenius' norm, which bounds the backward error of x up to a small factor
        (Higham 2002, lemma 20.6), or ``|b - A x| / (|b| + |A| |x|)`` where that is less.
    raises ShapeError: If shapes do not fit, or an option is negative.
    raises DTypeError: For float32 and other dtypes of less than 64 bits a part.
    raises LinAlgError: At run time, if a matrix is not of full rank, to the precision of float64.

    See Also
    --------
    refined_solve, refined_eigh

    Notes
    -----
    The augmented system is Björck's (1967); in mixed precision, Carson, Higham and Pranesh (2020,
    Three-precision GMRES-based iterative refinement for least squares problems). The gradient
    flows through ``x`` only, by the implicit formula, with one more such system.

    >>> import numpy as np
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> x, error, iterations, converged = mg.linalg.refined_lstsq(A, np.array([1.0, 2.0, 3.0]))
    >>> x.eval().round(12)
    array([1., 1.])
    >>> bool(converged.eval())
    True
    """
    tolerance, most = check_control("refined_lstsq", tolerance, max_iterations)
    matrix, right = double(*pair(A, b))
    vector = right.ndim == 1
    columns = expand_dims(right, 1) if vector else right
    call = Call(REFINED_LSTSQ, (matrix, right))
    _, rows, order = matrices(call, matrix.type)
    batch, height, count = matrices(call, columns.type)
    call.unify(rows, height, "the rows of the matrices and of the right side")
    wide = type(rows) is int and type(order) is int and rows < order
    other = broadcast_to(constant(0, dtype=matrix.dtype), (*batch, order, count))
    operands = (adjoint(matrix), other, columns) if wide else (matrix, columns, other)
    node = AUGMENTED(*operands, tolerance=tolerance, max_iterations=most)
    x, *report = items(node, 0 if wide else 1, 2, 3, 4)
    return RefinedSolution(reshape(x, x.shape[:-1]) if vector else x, *report)


def _reference(A: Any, b: Any, **options: Any) -> tuple[Any, ...]:
    right = b[:, None] if b.ndim == 1 else b
    x = np.linalg.pinv(A) @ right
    return x[..., 0] if b.ndim == 1 else x, *refined_once(A, right)


_TALLS = np.stack([TALL, TALL + np.eye(4, 3)])
_RIGHT = np.concatenate([COLUMNS, [[0.3, -0.6]]])


def _samples() -> list[Sample]:
    digits: dict[str, Any] = {"tolerance": ELEVEN_DIGITS}
    return [
        Sample((TALL, _RIGHT), digits),
        Sample((TALL, _RIGHT[:, 0]), digits),
        Sample((_TALLS[:, None], np.stack([_RIGHT, -_RIGHT])), digits),
        Sample((TALL[:3], COLUMNS), digits),
        Sample((TALL[:, :0], _RIGHT), digits),
        Sample((TALL, _RIGHT[:, :0]), digits),
    ]


REFINED_LSTSQ = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=DOUBLE,
    function=refined_lstsq,
    tests=Tests(
        samples=_samples,
        bad_samples=lambda: [
            BadSample(
                (TALL, COLUMNS),
                ShapeError,
                "refined_lstsq: the rows of the matrices and of the right side differ: 4 and 3",
            ),
            BadSample((_RIGHT[0], COLUMNS), ShapeError, "refined_lstsq: an operand of 1 axis"),
            BadSample(
                (TALL, _RIGHT),
                ShapeError,
                "refined_lstsq: max_iterations=-1",
                {"max_iterations": -1},
            ),
        ],
        reference=_reference,
    ),
    numerics="reassoc",
)

RECORDS = (AUGMENTED, REFINED_LSTSQ)
