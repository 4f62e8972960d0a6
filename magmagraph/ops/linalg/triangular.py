"""Systems with a triangular matrix: what all factorizations are used through."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_complex
from ...errors import LinAlgError, ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Composite, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..elementwise.arithmetic import negative
from ..elementwise.complex_numbers import conj
from ..elementwise.family import inexact_pair, one_dtype
from ..products.contraction import matmul
from ..rules.batching import map_systems
from ..rules.sharding import shard_systems
from ..shape.arrange import expand_dims, reshape
from .parts import (
    COLUMNS,
    EMPTY,
    ONE,
    SQUARE,
    SQUARES,
    STRIDED,
    TALL,
    VECTOR,
    adjoint,
    failed,
    lapack,
    lower_part,
    shared_batch,
    squares,
    transposed,
    upper_part,
)

__all__ = ["triangular_solve"]

_CODES = {"N": "N", "T": "T", "C": "C", 0: "N", 1: "T", 2: "C"}


def system_type(call: Call, a: Type, b: Type, **attrs: Any) -> Type:
    """Return the type of the solution of square systems with several right-hand sides."""
    dtype = one_dtype(call, a, b)
    batch, order = squares(call, a)
    if b.ndim < 2:
        raise call.shape_error(
            f"right-hand sides of {b.ndim} axes", need="columns: at least 2 axes"
        )
    rows = call.unify(order, b.shape[-2], "the order of the matrices and the rows of b")
    return Type(dtype, (*shared_batch(call, batch, b.shape[:-2]), rows, b.shape[-1]))


def system_flops(a: Type, b: Type, **attrs: Any) -> Extent:
    """Return the work of a triangular solve."""
    batch = dims.broadcast([a.shape[:-2], b.shape[:-2]], [])
    return dims.size(batch) * a.shape[-1] * a.shape[-1] * b.shape[-1]


def as_system(op: Op | Composite, a: Any, b: Any) -> tuple[Node, Node, bool]:
    """Return matrices, right-hand sides as columns, and whether those were one vector.

    The rule of NumPy 2: `b` is a vector only where it has a single axis.
    """
    left, right = inexact_pair(a, b)
    call = Call(op, (left, right))
    squares(call, left.type)
    if not right.ndim:
        raise call.shape_error("a right-hand side of 0 axes", need="a vector or columns")
    vector = right.ndim == 1
    if vector:
        right = expand_dims(right, 1)
    system_type(call, left.type, right.type)
    return left, right, vector


def without_column(x: Node, vector: bool) -> Node:
    """Return a solution without the axis that was added to a vector."""
    return reshape(x, x.shape[:-1]) if vector else x


# Up to so many rows, and from so many triangles for each row on, a batch is solved row by row: a
# call of LAPACK for each triangle costs microseconds, more than the solution of a small one.
_MOST_ROWS = 32
_FEWEST_PER_ROW = 4


def _singular(a: Any, index: tuple[int, ...], row: int) -> LinAlgError:
    return failed(
        "triangular_solve",
        f"is singular: its diagonal is zero at {row}",
        "a diagonal without zeros",
        "mg.linalg.lstsq; or add a multiple of the identity",
        a,
        index,
    )


def _substitute(a: Any, x: Any, lower: bool, trans: str, unit_diagonal: bool) -> None:
    """Replace right-hand sides by solutions, each row of all systems at once."""
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    zeros = diagonal == 0
    if not unit_diagonal and zeros.any():
        *index, row = (int(i) for i in np.unravel_index(np.argmax(zeros), zeros.shape))
        raise _singular(a, tuple(index), row)
    if trans != "N":
        a, lower = np.swapaxes(a, -1, -2), not lower
    if trans == "C":
        a, diagonal = a.conj(), diagonal.conj()
    order = x.shape[-2]
    with np.errstate(all="ignore"):
        for row in range(order) if lower else reversed(range(order)):
            solved_rows = slice(0, row) if lower else slice(row + 1, order)
            x[..., row : row + 1, :] -= a[..., row : row + 1, solved_rows] @ x[..., solved_rows, :]
            if not unit_diagonal:
                x[..., row, :] /= diagonal[..., row, None]


def _solve_elsewhere(xp: Any, a: Any, b: Any, **attrs: Any) -> Any:
    """Solve with arrays of another library, whose systems have batches of their own."""
    zeros = xp.diagonal(a, axis1=-2, axis2=-1) == 0
    if not attrs["unit_diagonal"] and bool(zeros.any()):
        *index, row = (int(i) for i in np.unravel_index(int(zeros.argmax()), zeros.shape))
        raise _singular(a, tuple(index), row)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = b.shape[-2:]
    if 0 in (*batch, rows, columns):
        return xp.empty((*batch, rows, columns), a.dtype)
    if all(extent == 1 for extent in a.shape[:-2]):
        # One triangle for all of the batch: all right-hand sides are columns of one system.
        side = xp.moveaxis(b.reshape(-1, rows, columns), 1, 0).reshape(rows, -1)
        solution = xp.linalg.solve_triangular(a.reshape(rows, rows), side, **attrs)
        return xp.moveaxis(solution.reshape(rows, -1, columns), 0, 1).reshape(*batch, rows, columns)
    triangles = xp.ascontiguousarray(xp.broadcast_to(a, (*batch, rows, rows)))
    sides = xp.ascontiguousarray(xp.broadcast_to(b, (*batch, rows, columns)))
    return xp.linalg.solve_triangular(triangles, sides, **attrs)


def _solve(
    xp: Any, a: Any, b: Any, *, lower: bool, trans: str, unit_diagonal: bool
) -> Any:
    if xp is not np:
        return _solve_elsewhere(xp, a, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal)
    routine = lapack("trtrs", a.dtype)

    def one(matrix: Any, columns: Any, index: tuple[int, ...]) -> Any:
        if matrix.flags.f_contiguous:
            solution, info = routine(
                matrix, columns, lower=lower, trans="NTC".index(trans), unitdiag=unit_diagonal
            )
        elif trans == "C" and matrix.dtype.kind == "c":
            solution, info = routine(
                matrix.T, columns.conj(), lower=not lower, trans=0, unitdiag=unit_diagonal
            )
            solution = solution.conj()
        else:
            # LAPACK wants columns one after the other: the transpose is that without a copy.
            solution, info = routine(
                matrix.T, columns, lower=not lower, trans=int(trans == "N"), unitdiag=unit_diagonal
            )
        if info > 0:
            raise _singular(a, index, info - 1)
        return solution

    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = b.shape[-2:]
    result = np.empty((*batch, rows, columns), a.dtype)
    if not result.size:
        return result
    if all(extent == 1 for extent in a.shape[:-2]):
        # One triangle for all of the batch: all right-hand sides are columns of one system.
        side = np.moveaxis(b.reshape(-1, rows, columns), 1, 0).reshape(rows, -1)
        solution = one(a.reshape(rows, rows), side, (0,) * (a.ndim - 2))
        result.reshape(-1, rows, columns)[...] = np.moveaxis(
            solution.reshape(rows, -1, columns), 0, 1
        )
        return result
    if rows <= _MOST_ROWS and result.size >= _FEWEST_PER_ROW * rows * rows * columns:
        result[...] = b
        _substitute(a, result, lower, trans, unit_diagonal)
        return result
    triangles = np.broadcast_to(a, (*batch, rows, rows))
    sides = np.broadcast_to(b, result.shape)
    for index in np.ndindex(*batch):
        own = tuple(
            0 if extent == 1 else i
            for extent, i in zip(a.shape[:-2], index[len(batch) - a.ndim + 2 :], strict=True)
        )
        result[index] = one(triangles[index], sides[index], own)
    return result


def triangular(
    a: Node, b: Node, *, lower: bool, trans: str = "N", unit_diagonal: bool = False
) -> Node:
    """Solve with columns `b`; the code "C" of a real matrix is that of its transpose."""
    if trans == "C" and not is_complex(a.dtype):
        trans = "T"
    return TRIANGULAR_SOLVE(a, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def _gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    a = node.inputs[0]
    trans = node.attrs["trans"]
    lower, unit = node.attrs["lower"], node.attrs["unit_diagonal"]
    matrix = conj(a) if trans == "C" else a
    back = "T" if trans == "N" else "N"
    by_b = triangular(matrix, cotangent, lower=lower, trans=back, unit_diagonal=unit)
    by_a = negative(matmul(by_b, transposed(node)))
    if trans != "N":
        by_a = transposed(by_a) if trans == "T" else adjoint(by_a)
    part = lower_part(by_a, -int(unit)) if lower else upper_part(by_a, int(unit))
    return part, by_b


@documented
def triangular_solve(
    a: Any, b: Any, trans: str | int = "N", lower: bool = False, unit_diagonal: bool = False
) -> Node:
    """Solve systems of equations with triangular matrices.

    Also under SciPy's name, ``mg.linalg.solve_triangular``.

    a: Node or array of shape ``(..., n, n)``, float or complex. Only one triangle is read.
    b: Right-hand sides: one vector ``(n,)``, or columns ``(..., n, k)``. The batch axes of both
        operands broadcast.
    trans: "N" (or 0) solves ``A x = b``, "T" (1) ``A^T x = b``, "C" (2) ``A^H x = b``.
    lower: The triangle of `a` that is read.
    unit_diagonal: Take the diagonal as ones, without reading it.
    returns: The solutions, of the shape of `b` with the broadcast batch.
    raises ShapeError: If the matrices are not square, or the extents do not fit.
    raises LinAlgError: At run time, if a diagonal has a zero; the message says which.

    >>> mg.linalg.triangular_solve([[2.0, 0.0], [1.0, 4.0]], [2.0, 9.0], lower=True).eval()
    array([1., 2.], dtype=float32)
    """
    left, right, vector = as_system(TRIANGULAR_SOLVE, a, b)
    if trans not in _CODES:
        raise Call(TRIANGULAR_SOLVE, (left, right)).shape_error(
            f"trans={trans!r}", need="one of 'N', 'T', 'C'"
        )
    solution = triangular(
        left, right, lower=bool(lower), trans=_CODES[trans], unit_diagonal=bool(unit_diagonal)
    )
    return without_column(solution, vector)


def bad_systems(name: str) -> list[BadSample]:
    """Return the bad samples of a function that solves square systems."""
    return [
        BadSample((VECTOR, VECTOR), ShapeError, f"{name}: an operand of 1 axis"),
        BadSample((TALL, VECTOR), ShapeError, f"{name}: matrices of 4 rows and 3 columns"),
        BadSample(
            (SQUARE, TALL),
            ShapeError,
            f"{name}: the order of the matrices and the rows of b differ: 3 and 4",
        ),
        BadSample(
            (SQUARES, np.stack([COLUMNS] * 2)),
            ShapeError,
            f"{name}: batch extents 3 and 2 do not broadcast (axis -3)",
        ),
        BadSample(
            (SQUARE, np.float64(1.0)), ShapeError, f"{name}: a right-hand side of 0 axes"
        ),
    ]


def _reference(
    a: Any, b: Any, trans: Any = "N", lower: bool = False, unit_diagonal: bool = False
) -> Any:
    part = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1])
        part = part * (1 - eye) + eye
    if trans in ("C", 2):
        part = part.conj()
    return np.linalg.solve(part if trans in ("N", 0) else np.swapaxes(part, -1, -2), b)


TRIANGULAR_SOLVE = Op(
    name="triangular_solve",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=system_type,
    attributes={
        "lower": "bool",
        "trans": "Literal['N', 'T', 'C']",
        "unit_diagonal": "bool",
    },
    evaluate=_solve,
    gradient=_gradient,
    batching=map_systems,
    sharding=shard_systems,
    function=triangular_solve,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE, VECTOR)),
            Sample((SQUARE, COLUMNS), {"lower": True}),
            Sample((SQUARE, COLUMNS), {"lower": True, "trans": "T"}),
            Sample((SQUARE, COLUMNS), {"trans": "C", "unit_diagonal": True}),
            Sample((SQUARES, COLUMNS), {"lower": True, "unit_diagonal": True}),
            Sample((SQUARE, np.stack([COLUMNS, COLUMNS[::-1]])), {"trans": 1}),
            Sample((SQUARES[:, None], np.stack([COLUMNS, COLUMNS[::-1]])), {"lower": True}),
            Sample((SQUARE[None], np.stack([COLUMNS, COLUMNS[::-1]])), {"lower": True}),
            Sample((STRIDED, VECTOR)),
            Sample((ONE, ONE)),
            Sample((EMPTY, np.zeros((0, 2)))),
            Sample((SQUARES[:0], COLUMNS)),
        ],
        bad_samples=lambda: [
            *bad_systems("triangular_solve"),
            BadSample((SQUARE, VECTOR), ShapeError, "triangular_solve: trans='H'", {"trans": "H"}),
        ],
        reference=_reference,
    ),
    numerics="reassoc",
    flops=system_flops,
    precision=Precision("keep"),
)

RECORDS = (TRIANGULAR_SOLVE,)
