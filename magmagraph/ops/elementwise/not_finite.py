"""Infinities and NaN: test, replace and ignore them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import finfo, is_complex, is_float
from ...errors import DTypeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Composite, Kind, Op, Sample
from ..convert import as_dtype, as_node
from ..rules import onnx_forms
from ..rules.namesakes import namesake
from .bits import logical_and, logical_or
from .comparison import greater, less, maximum, minimum, where
from .complex_numbers import complex as complex_of
from .complex_numbers import imag, real
from .family import (
    OTHER,
    OTHER_WHOLE,
    REAL,
    ROW,
    WHOLE,
    binary,
    numpy_named,
)
from .rounding import isinf, isnan

__all__ = [
    "fmax",
    "fmin",
    "isneginf",
    "isposinf",
    "nan_to_num",
]

_HOLES = (np.array([[1.0, np.nan, np.nan], [0.5, -2.0, 3.0]]), np.array([2.0, 1.5, np.nan]))


# The larger and the smaller one, without NaN.


def _written(name: str, x: Node, y: Node) -> Node:
    choice = maximum if name == "fmax" else minimum
    return where(isnan(x), y, where(isnan(y), x, choice(x, y)))


def _extremum(name: str, word: str, symbol: str, result: str) -> Any:
    def scalar(dtype: np.dtype) -> str:
        choice = f"a {symbol} b ? a : b"
        return f"a != a ? b : b != b ? a : ({choice})" if is_float(dtype) else choice

    wins = greater if symbol == ">" else less

    def gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
        x, y = node.inputs
        first = logical_or(wins(x, y), isnan(y))
        return cotangent * where(first, 1.0, 0.0), cotangent * where(first, 0.0, 1.0)

    return binary(
        name,
        f"Take the {word} of two values, element by element; a number rather than NaN.",
        f"""
        >>> mg.{name}([1.0, float("nan")], [3.0, 2.0]).eval()
        array({result}, dtype=float32)
        """,
        module=__name__,
        notes="NaN where both are. Where both are equal the second has the gradient, as in JAX.",
        evaluate=numpy_named(name),
        onnx=onnx_forms.rewritten(lambda node: _written(name, *node.inputs)),
        scalar=scalar,
        gradient=gradient,
        samples=lambda: [
            Sample((REAL, OTHER)),
            Sample((REAL, ROW)),
            Sample(_HOLES, gradient=(), reason="ties and NaN"),
            Sample((WHOLE, OTHER_WHOLE)),
        ],
        commutative=True,
        numerics="exact",
    )


fmax, FMAX = _extremum("fmax", "larger", ">", "[3., 2.]")

fmin, FMIN = _extremum("fmin", "smaller", "<", "[1., 2.]")


@documented
def isposinf(x: Any) -> Node:
    """Tell where a value is infinite and positive.

    x: Node or array.
    returns: bool, of the shape of `x`. No gradient: boolean valued.

    >>> mg.isposinf([1.0, float("inf"), -float("inf")]).eval()
    array([False,  True, False])
    """
    node = as_node(x)
    return logical_and(isinf(node), greater(node, 0))


@documented
def isneginf(x: Any) -> Node:
    """Tell where a value is infinite and negative.

    x: Node or array.
    returns: bool, of the shape of `x`. No gradient: boolean valued.

    >>> mg.isneginf([1.0, float("inf"), -float("inf")]).eval()
    array([False, False,  True])
    """
    node = as_node(x)
    return logical_and(isinf(node), less(node, 0))


@documented
def nan_to_num(
    x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None, *, copy: bool = True
) -> Node:
    """Put numbers in the places of NaN and infinities.

    x: Node or array.
    nan: For NaN.
    posinf, neginf: For infinities; the largest and the lowest finite number of the dtype unless
        said.
    copy: Taken for NumPy's sake: nodes are never written.
    returns: Of the shape and dtype of `x`. No gradient flows where a number was put.
    raises DTypeError: If `nan` is a bool, which is NumPy's `copy` given by its place.

    >>> mg.nan_to_num([1.0, float("nan"), float("inf")], posinf=9.0).eval()
    array([1., 0., 9.], dtype=float32)
    """
    node = as_node(x)
    if isinstance(nan, (bool, np.bool_)):
        raise DTypeError(
            message(
                f"nan_to_num: nan={nan}",
                need="a number",
                hint="each by its name, as nan=0.0: NumPy's second argument, copy, has no effect",
            )
        )
    if is_complex(node.dtype):
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (real(node), imag(node)))
        return complex_of(*parts)
    if not is_float(node.dtype):
        return node
    limits = finfo(node.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    result = where(isnan(node), as_dtype(nan, node.dtype), node)
    result = where(isposinf(node), as_dtype(high, node.dtype), result)
    return where(isneginf(node), as_dtype(low, node.dtype), result)


# Records.

NOT_FINITE = np.array([1.5, np.nan, np.inf, -np.inf, -0.5])

_composite = partial(namesake, Kind.ELEMENTWISE)

RECORDS: tuple[Op | Composite, ...] = (
    FMAX,
    FMIN,
    _composite(
        isposinf,
        "Where a value is infinite and positive.",
        [Sample((NOT_FINITE,)), Sample((WHOLE,))],
        no_gradient="boolean valued",
        reference=lambda x: np.asarray(x) == np.inf,
    ),
    _composite(
        isneginf,
        "Where a value is infinite and negative.",
        [Sample((NOT_FINITE,)), Sample((WHOLE,))],
        no_gradient="boolean valued",
        reference=lambda x: np.asarray(x) == -np.inf,
    ),
    _composite(
        nan_to_num,
        "Numbers in the places of NaN and infinities.",
        [
            Sample((REAL,)),
            Sample(
                (NOT_FINITE,),
                {"nan": 7.0, "posinf": 8.0, "neginf": -8.0},
                gradient=(),
                reason="not finite",
            ),
            Sample((WHOLE,)),
        ],
        reference=lambda x, **options: np.nan_to_num(x, **options),
        dtypes=INEXACT,
    ),
)
