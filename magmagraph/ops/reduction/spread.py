"""Weighted averages, covariances and correlations; how far elements lie apart."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_complex, real_dtype
from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Composite, Kind, Sample
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, multiply, subtract
from ..elementwise.comparison import clip, maximum
from ..elementwise.complex_numbers import complex, conj, imag, real
from ..elementwise.family import inexact, inexact_operands, inexact_pair
from ..elementwise.math import sqrt
from ..indexing.gathering import size_of
from ..products.contraction import matmul
from ..rules.namesakes import namesake
from ..shape.arrange import expand_dims, reshape, swapaxes
from ..shape.diagonal import diagonal
from ..shape.joining import broadcast_to, concatenate
from .folding import CUBE, Axis, extent_product, keeps, normalized_axes, restored
from .primitives import SUM, max, min, sum
from .statistics import averaged, mean
from .weighting import weights_like

__all__ = ["average", "corrcoef", "cov", "ptp"]


@documented
def ptp(a: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Take the difference between the largest and the smallest element along axes.

    a: Node or array.
    axis: An axis, several, or None for all.
    returns: Of the dtype of `a`. Elements that tie share the gradient equally.
    raises ShapeError: If there are no elements.

    >>> mg.ptp([[1.0, 5.0], [3.0, 4.0]], axis=1).eval()
    array([4., 1.], dtype=float32)
    """
    node = as_node(a)
    return subtract(max(node, axis, keepdims), min(node, axis, keepdims))


@documented
def average(
    a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Average the elements along axes, each with its weight.

    a: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    weights: Of the shape of `a`, or of the extents of `axis`; 1 unless said.
    returned: Return the sum of the weights, too.
    returns (Node, or a pair of Node): Of the promoted float or complex dtype. Weights that sum up
        to 0 give NaN or infinities.
    raises ShapeError: If the weights do not fit.

    >>> mg.average([1.0, 2.0, 5.0], weights=[3.0, 2.0, 1.0]).eval()
    array(2., dtype=float32)
    """
    node = inexact(a)
    axes = normalized_axes(SUM, node, axis)
    if weights is None:
        result = mean(node, axis, keepdims)
        if not returned:
            return result
        count = cast(size_of(extent_product(node.shape, axes)), node.dtype)
        return result, broadcast_to(count, result.shape)
    node, worth = inexact_pair(a, weights)
    worth = weights_like(AVERAGE, node, worth, axis)
    dtype = node.dtype
    if dtype.itemsize < 4:  # sums of 16-bit floats leave their range and their precision early
        node, worth = cast(node, np.float32), cast(worth, np.float32)
    scale = SUM(worth, axes=axes)
    result = cast(divide(SUM(multiply(node, worth), axes=axes), scale), dtype)
    scale = cast(scale, dtype)
    if keeps("average", keepdims):
        result, scale = restored(result, axes), restored(scale, axes)
    return (result, scale) if returned else result


def _observations(record: Composite, m: Any, y: Any, rowvar: bool, dtype: Any) -> Node:
    parts = [part for part in (m, y) if part is not None]
    if dtype is None:
        parts = list(inexact_operands(*parts))
    nodes = [averaged(record.name, part, dtype) for part in parts]
    call = Call(record, tuple(nodes))
    lines = []
    for node in nodes:
        if node.ndim > 2:
            raise call.shape_error(f"an operand of {node.ndim} axes", need="at most two")
        if node.ndim < 2:
            lines.append(reshape(node, (1, node.size)))
        else:
            lines.append(node if rowvar else swapaxes(node, 0, 1))
    return concatenate(lines, 0)


def _covariance(rows: Node, ddof: Any, fweights: Any, aweights: Any) -> Node:
    """Return the matrix of covariances of rows."""
    wide = cast(rows, np.float32) if rows.dtype.itemsize < 4 else rows
    plain = real_dtype(wide.dtype)
    weights = None
    if fweights is not None:
        weights = cast(fweights, plain)
    if aweights is not None:
        share = cast(aweights, plain)
        weights = share if weights is None else multiply(weights, share)
    if weights is None:
        total = cast(size_of(wide.shape[1]), plain)
        degrees = subtract(total, ddof)
        centered = subtract(wide, mean(wide, 1, keepdims=True))
        product = matmul(centered, conj(swapaxes(centered, 0, 1)))
    else:
        total = sum(weights)
        middle = divide(sum(multiply(wide, weights), 1, keepdims=True), total)
        centered = subtract(wide, middle)
        product = matmul(multiply(centered, weights), conj(swapaxes(centered, 0, 1)))
        degrees = subtract(total, ddof)
        if aweights is not None:
            extra = divide(sum(multiply(weights, cast(aweights, plain))), total)
            degrees = subtract(total, multiply(extra, ddof))
    return cast(divide(product, maximum(degrees, 0)), rows.dtype)


@documented
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Node:
    """Estimate the covariances of variables.

    m: Node or array of observations: a row for each variable, or one variable.
    y: More variables.
    rowvar: Whether rows are variables; else columns are.
    bias: Divide by the number of observations rather than by one less.
    ddof: Delta degrees of freedom, in the place of `bias`.
    fweights, aweights: How often each observation was made; how much each counts.
    dtype: Of the result, a float one; the promoted one unless said.
    returns: Of the promoted float or complex dtype: a matrix, or a scalar for one variable. Of
        complex variables it is Hermitian: the second factor is conjugated.
    raises ShapeError: If an operand has more than two axes, or the numbers of observations differ.

    >>> mg.cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).eval()
    array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    rows = _observations(COV, m, y, rowvar, dtype)
    degrees = ddof if ddof is not None else (0 if bias else 1)
    result = _covariance(rows, degrees, fweights, aweights)
    single = isinstance(rows.shape[0], int) and rows.shape[0] == 1
    return reshape(result, ()) if single else result


@documented
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Node:
    """Estimate the correlations of variables.

    x: Node or array of observations: a row for each variable, or one variable.
    y: More variables.
    rowvar: Whether rows are variables; else columns are.
    dtype: Of the result, a float one; the promoted one unless said.
    returns: Of the promoted float or complex dtype: a matrix with entries from -1 to 1 (real and
        imaginary parts), or a scalar for one variable. A variable that does not vary gives NaN.
    raises ShapeError: If an operand has more than two axes, or the numbers of observations differ.

    >>> mg.corrcoef([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).eval().round(3)
    array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    rows = _observations(CORRCOEF, x, y, rowvar, dtype)
    matrix = _covariance(rows, 1, None, None)
    deviation = sqrt(real(diagonal(matrix)))
    result = divide(divide(matrix, expand_dims(deviation, 1)), deviation)
    if is_complex(result.dtype):
        result = complex(*(clip(part(result), -1.0, 1.0) for part in (real, imag)))
    else:
        result = clip(result, -1.0, 1.0)
    single = isinstance(rows.shape[0], int) and rows.shape[0] == 1
    return reshape(result, ()) if single else result


_ROWS = CUBE[0]
_MORE = CUBE[1, :2]


_record = partial(namesake, Kind.REDUCTION, numerics="reassoc")

PTP = _record(
    ptp,
    "The difference between the largest and the smallest element.",
    [
        Sample((CUBE,)),
        Sample((CUBE,), {"axis": (0, 2), "keepdims": True}),
        Sample((np.array([[3, 9], [4, 1]]),), {"axis": 0}),
    ],
    [
        (
            (np.ones((2, 0)),),
            ShapeError,
            "max: axis 1 is empty, and there is no value without elements",
            {"axis": 1},
        )
    ],
)
AVERAGE = _record(
    average,
    "The weighted mean along axes.",
    [
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE,), {"axis": 2, "weights": [0.5, 2.0, 1.0, 1.5], "returned": True}),
        Sample((_ROWS,), {"weights": [[1, 2, 3, 4], [0, 1, 1, 0], [2, 2, 2, 1]]}),
        Sample((CUBE,), {"axis": (0, 2), "keepdims": True}),
        Sample((CUBE,), {"axis": (2, 0), "weights": [[1, 2], [3, 4], [1, 1], [2, 3]]}),
    ],
    [
        (
            (CUBE,),
            ShapeError,
            "average: weights of 1 axes for 3 axes",
            {"weights": [1.0, 2.0]},
        )
    ],
    dtypes=INEXACT,
)
COV = _record(
    cov,
    "Covariances of variables.",
    [
        Sample((_ROWS,)),
        Sample((_ROWS, _MORE), {"bias": True}),
        Sample((_ROWS,), {"rowvar": False, "ddof": 0}),
        Sample((_ROWS[0],)),
        Sample((_ROWS,), {"aweights": [0.5, 2.0, 1.0, 1.5], "fweights": [1, 2, 1, 3]}),
    ],
    [((CUBE,), ShapeError, "cov: an operand of 3 axes")],
    dtypes=INEXACT,
)
CORRCOEF = _record(
    corrcoef,
    "Correlations of variables.",
    [
        Sample((_ROWS,), gradient=(), reason="the diagonal lies at the limit of 1"),
        Sample((_ROWS, _MORE), gradient=(), reason="the diagonal lies at the limit of 1"),
    ],
    [((CUBE,), ShapeError, "corrcoef: an operand of 3 axes")],
    dtypes=INEXACT,
)

RECORDS = (PTP, AVERAGE, COV, CORRCOEF)
