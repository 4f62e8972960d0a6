"""Tests of single values, and rounding to whole numbers and decimals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_float
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Sample, Tests
from ..convert import as_node
from ..rules import onnx_forms
from .comparison import where
from .family import REAL, WHOLE, Unary, like_operand, numpy_named, to_bool, unary

# Tests of single values. x - x is 0 for finite numbers and NaN for all others.


def _test(
    name: str, what: str, result: str, scalar: str, onnx: Any, complex_scalar: str = ""
) -> tuple[Unary, Op]:
    return unary(
        name,
        f"Tell where a value is {what}.",
        f"""
        >>> mg.{name}([1.0, float("inf"), float("nan")]).eval()
        array({result})
        """,
        module=__name__,
        evaluate=numpy_named(name),
        scalar=scalar,
        complex_scalar=complex_scalar,
        no_gradient="boolean valued",
        rule=to_bool,
        operand=as_node,
        samples=lambda: [
            Sample((np.array([1.0, np.inf, -np.inf, np.nan, 0.0]),)),
            Sample((WHOLE,)),
        ],
        numerics="exact",
        dtypes=INEXACT,
        onnx=onnx,
    )


isnan, ISNAN = _test(
    "isnan", "NaN", "[False, False,  True]", "a != a", onnx_forms.test_of_floats("IsNaN")
)
isinf, ISINF = _test(
    "isinf",
    "infinite",
    "[False,  True, False]",
    "a == a && a - a != 0",
    onnx_forms.test_of_floats("IsInf"),
    complex_scalar="$isinf(a)",
)
isfinite, ISFINITE = _test(
    "isfinite", "neither infinite nor NaN", "[ True, False, False]", "a - a == 0",
    onnx=onnx_forms.is_finite,
)


# Rounding. Integers are whole already and pass through.


def _rounding(name: str, what: str, result: str, scalar: str, onnx: Any) -> tuple[Unary, Op]:
    return unary(
        name,
        f"Round {what}; integers stay as they are.",
        f"""
        >>> mg.{name}([-1.5, 0.5, 2.7]).eval()
        array({result}, dtype=float32)
        """,
        module=__name__,
        evaluate=lambda xp, x: getattr(xp, name)(x) if x.dtype.kind not in "iub" else x,
        scalar=lambda dtype: scalar if is_float(dtype) else "a",
        no_gradient="piecewise constant, so zero wherever it exists",
        rule=like_operand,
        operand=as_node,
        samples=lambda: [
            Sample((REAL,)),
            Sample((np.array([-2.5, -0.5, 0.5, 1.5, 2.5]),)),
            Sample((WHOLE,)),
        ],
        numerics="exact",
        onnx=onnx,
    )


floor, FLOOR = _rounding(
    "floor", "down", "[-2.,  0.,  2.]", "$floor(a)", onnx=onnx_forms.of_floats("Floor")
)
ceil, CEIL = _rounding(
    "ceil", "up", "[-1.,  1.,  3.]", "$ceil(a)", onnx=onnx_forms.of_floats("Ceil")
)
trunc, TRUNC = _rounding(
    "trunc", "toward zero", "[-1.,  0.,  2.]", "$trunc(a)", onnx=onnx_forms.truncated
)
rint, RINT = _rounding(
    "rint", "to the nearest whole number, halves to the even one", "[-2.,  0.,  3.]", "$rint(a)",
    onnx=onnx_forms.of_floats("Round"),
)


_MOST_DECIMALS = 308  # 10**308 is the largest power of ten in float64


@documented
def round(x: Any, decimals: int = 0) -> Node:
    """Round to a number of decimals, halves to the even neighbour.

    x: Node or array.
    decimals: Digits kept after the point; negative ones round to tens, hundreds, ...
    returns: Of the shape and dtype of `x`. No gradient: piecewise constant.
    raises DTypeError: Where integers are rounded to tens.

    >>> mg.round([0.5, 1.5, -2.7]).eval()
    array([ 0.,  2., -3.], dtype=float32)
    >>> mg.round([1.2345], decimals=2).eval()
    array([1.23], dtype=float32)
    """
    node = as_node(x)
    Call(ROUND, (node,)).check_dtypes()
    if not is_float(node.dtype):
        if decimals < 0:
            raise DTypeError(
                message(
                    f"round: dtype {node.dtype.name} with decimals={decimals}",
                    need="a float dtype",
                    hint="mg.round(x.astype('float64'), decimals)",
                )
            )
        return node
    if decimals == 0:
        return rint(node)
    if abs(decimals) > _MOST_DECIMALS:
        raise ShapeError(
            message(f"round: decimals={decimals}", need=f"at most {_MOST_DECIMALS} in magnitude")
        )
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        scaled = node * scale
        # A number whose multiple overflows has no digits after the point.
        return where(isfinite(scaled), rint(scaled) / scale, node)
    return rint(node / scale) * scale


ROUND = Composite(
    kind=Kind.ELEMENTWISE,
    function=round,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([-2.5, -0.5, 0.5, 1.5, 2.5]),)),
            Sample((REAL * 1.2345,), {"decimals": 2}),
            Sample((REAL * 123.0,), {"decimals": -1}),
            Sample((WHOLE,)),
        ],
        bad_samples=lambda: [
            BadSample((WHOLE,), DTypeError, "round: dtype int32 with decimals=-1", {"decimals": -1})
        ],
        reference=lambda x, decimals=0: np.round(x, decimals),
    ),
    no_gradient="piecewise constant, so zero wherever it exists",
)

RECORDS: tuple[Op | Composite, ...] = (ISNAN, ISINF, ISFINITE, FLOOR, CEIL, TRUNC, RINT, ROUND)
