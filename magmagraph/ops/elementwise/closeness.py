"""Whether arrays are equal, or close."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Kind, Sample
from ..convert import cast, promoted
from ..leaf import constant
from ..reduction.primitives import all
from ..rules.namesakes import namesake
from ..shape.axes import MATRIX
from .arithmetic import add, multiply, subtract
from .bits import logical_and, logical_or
from .comparison import equal, less_equal
from .family import floating_pair
from .rounding import isfinite, isnan
from .signs import absolute

__all__ = ["allclose", "array_equal", "array_equiv", "isclose"]


@documented
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Node:
    """Tell where ``abs(a - b) <= atol + rtol * abs(b)``, or where infinities are equal.

    a, b: Nodes or arrays, broadcast against each other.
    rtol, atol: The relative and the absolute tolerance.
    equal_nan: Whether NaN is close to NaN.
    returns: bool, of the broadcast shape. No gradient: boolean valued.

    >>> mg.isclose([1.0, 2.0], [1.000001, 2.1]).eval()
    array([ True, False])
    """
    x, y = floating_pair(a, b)
    if x.dtype.itemsize < 4:  # tolerances are finer than 16-bit floats
        x, y = cast(x, np.float32), cast(y, np.float32)
    near = less_equal(absolute(subtract(x, y)), add(atol, multiply(rtol, absolute(y))))
    result = logical_or(logical_and(near, isfinite(y)), equal(x, y))
    return logical_or(result, logical_and(isnan(x), isnan(y))) if equal_nan else result


@documented
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Node:
    """Tell whether all elements are close; see `isclose`.

    a, b: Nodes or arrays, broadcast against each other.
    rtol, atol: The relative and the absolute tolerance.
    equal_nan: Whether NaN is close to NaN.
    returns: A bool. No gradient: boolean valued.

    >>> mg.allclose([1.0, 2.0], [1.000001, 2.0]).eval()
    array(True)
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


def _one_shape(x: Node, y: Node) -> bool:
    if x.ndim != y.ndim:
        return False
    return not any(
        dims.unify(left, right, []) is None for left, right in zip(x.shape, y.shape, strict=True)
    )


@documented
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Node:
    """Tell whether two arrays have one shape and equal elements.

    a1, a2: Nodes or arrays.
    equal_nan: Whether NaN equals NaN.
    returns: A bool; False where the shapes cannot be one. No gradient: boolean valued.

    >>> mg.array_equal([1.0, 2.0], [1.0, 2.0]).eval()
    array(True)
    """
    x, y = promoted(a1, a2)
    if not _one_shape(x, y):
        return constant(False)
    same = equal(x, y)
    if equal_nan and is_float(x.dtype):
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    return all(same)


@documented
def array_equiv(a1: Any, a2: Any) -> Node:
    """Tell whether two arrays broadcast to one shape with equal elements.

    a1, a2: Nodes or arrays.
    returns: A bool; False where the shapes do not broadcast. No gradient: boolean valued.

    >>> mg.array_equiv([[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0]).eval()
    array(True)
    """
    x, y = promoted(a1, a2)
    try:
        dims.broadcast([x.shape, y.shape], [])
    except dims.BroadcastFailure:
        return constant(False)
    return all(equal(x, y))


_CLOSE = np.array([[1.0, 2.0, np.nan], [np.inf, -np.inf, 3.0]])
_NEARLY = np.array([[1.0 + 1e-3, 2.5, np.nan], [np.inf, np.inf, 3.0]])
_BOOLEAN = "boolean valued"

_record = partial(namesake, Kind.INDEX)

_COMPARED = [
    Sample((_CLOSE, _NEARLY), {"rtol": 0.01}),
    Sample((_CLOSE, _NEARLY), {"atol": 0.6, "rtol": 0.01, "equal_nan": True}),
    Sample((MATRIX, MATRIX[0])),
]
ISCLOSE = _record(isclose, "Where elements are close.", _COMPARED, no_gradient=_BOOLEAN)
ALLCLOSE = _record(
    allclose,
    "Whether all elements are close.",
    [*_COMPARED, Sample((MATRIX, MATRIX))],
    no_gradient=_BOOLEAN,
    reference=lambda *operands, **options: np.asarray(np.allclose(*operands, **options)),
)
ARRAY_EQUAL = _record(
    array_equal,
    "Whether two arrays have one shape and equal elements.",
    [
        Sample((MATRIX, MATRIX)),
        Sample((_CLOSE, _CLOSE)),
        Sample((_CLOSE, _CLOSE), {"equal_nan": True}),
        Sample((MATRIX, MATRIX[0])),
    ],
    no_gradient=_BOOLEAN,
    reference=lambda *operands, **options: np.asarray(np.array_equal(*operands, **options)),
)
ARRAY_EQUIV = _record(
    array_equiv,
    "Whether two arrays broadcast to one shape with equal elements.",
    [
        Sample((MATRIX, MATRIX[0])),
        Sample((np.ones((2, 2)), np.ones(2))),
    ],
    no_gradient=_BOOLEAN,
    reference=lambda *operands: np.asarray(np.array_equiv(*operands)),
)

RECORDS = (ISCLOSE, ALLCLOSE, ARRAY_EQUAL, ARRAY_EQUIV)
