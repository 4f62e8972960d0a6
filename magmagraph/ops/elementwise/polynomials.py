"""Polynomials: their values, and matrices of powers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_unsigned
from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Kind, Sample
from ..convert import as_node, cast, promoted
from ..indexing.iota import INT64, IOTA
from ..reduction.cumulative import cumprod
from ..reduction.folding import accumulated
from ..rules.namesakes import namesake
from ..shape.arrange import expand_dims
from ..shape.axes import MATRIX
from ..shape.pieces import flip
from .arithmetic import add, multiply
from .comparison import equal, where

__all__ = ["polyval", "vander"]


@documented
def polyval(p: Any, x: Any) -> Node:
    """Evaluate a polynomial by Horner's rule.

    p: The coefficients, of one axis of int extent: that of the highest power first.
    x: Where: node or array of any shape.
    returns: Of the shape of `x` and the promoted dtype; 0 without coefficients.
    raises ShapeError: If the coefficients do not have one axis of int extent.

    >>> mg.polyval([2.0, 0.0, 1.0], [0.0, 1.0, 3.0]).eval()
    array([ 1.,  3., 19.], dtype=float32)
    """
    coefficients, node = promoted(p, x)
    call = Call(POLYVAL, (coefficients, node))
    if coefficients.ndim != 1 or not isinstance(coefficients.shape[0], int):
        raise call.shape_error(
            f"coefficients of shape {coefficients.shape}", need="one axis of int extent"
        )
    result = multiply(node, 0)
    for i in range(coefficients.shape[0]):
        result = add(multiply(result, node), coefficients[i])
    return result


@documented
def vander(x: Any, N: Any = None, increasing: bool = False) -> Node:
    """Make the matrix of powers of values, a row for each value.

    x: Node or array of one axis.
    N: How many powers, from 0 on; as many as values unless said.
    increasing: Whether the power rises from left to right.
    returns: Of the dtype of `x`; integers of fewer bits (and bools) become int64, as in NumPy.
    raises ShapeError: If `x` does not have one axis.

    >>> mg.vander([2.0, 3.0], 3).eval()
    array([[4., 2., 1.],
           [9., 3., 1.]], dtype=float32)
    """
    node = accumulated(x, None)
    if is_unsigned(node.dtype) and as_node(x).dtype.itemsize < 8:
        node = cast(node, INT64)
    call = Call(VANDER, (node,))
    if node.ndim != 1:
        raise call.shape_error(f"values of {node.ndim} axes", need="one axis")
    count = node.shape[0] if N is None else dims.parse_shape((N,))[0]
    place = IOTA(shape=(1, count), axis=1, dtype=INT64)
    # The running product of 1, x, x, ...: exact for integers, and right at 0.
    factors = where(equal(place, 0), 1, expand_dims(node, 1))
    powers = cast(cumprod(factors, axis=1), node.dtype)
    return powers if increasing else flip(powers, 1)


_POINTS = np.array([0.5, -1.0, 2.0, 0.0])

_record = partial(namesake, Kind.INDEX)

POLYVAL = _record(
    polyval,
    "The value of a polynomial.",
    [
        Sample((np.array([0.5, -1.0, 2.0]), MATRIX)),
        Sample((np.zeros(0), MATRIX), gradient=(), reason="it is 0 everywhere"),
        Sample((np.array([2, 0, 1]), np.array([3, -1]))),
    ],
    [((MATRIX, MATRIX), ShapeError, "polyval: coefficients of shape (2, 3)")],
    numerics="reassoc",
)
VANDER = _record(
    vander,
    "The matrix of powers of values.",
    [
        Sample((_POINTS,)),
        Sample((_POINTS,), {"N": 3, "increasing": True}),
        Sample((np.array([2, -3]),), {"N": 3}),
    ],
    [((MATRIX,), ShapeError, "vander: values of 2 axes")],
    numerics="reassoc",
)

RECORDS = (POLYVAL, VANDER)
