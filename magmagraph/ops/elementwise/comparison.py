"""Comparisons of values, and choices between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import finfo
from ...errors import ConfigError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Sample, Scalar, Tests
from ...ir.op import REAL as FLOATS
from ...ir.types import Type
from ..convert import as_node
from ..rules import onnx_forms, onnx_pairs
from .family import (
    BOOL,
    FLAGS,
    OTHER,
    OTHER_FLAGS,
    OTHER_WHOLE,
    REAL,
    ROW,
    WHOLE,
    Binary,
    Gradient,
    binary,
    numpy_named,
    one_dtype,
    pair,
    to_bool,
    truth,
)

_BOOLEAN = "boolean valued"
_TIES = (np.array([[1.0, 2.0, np.nan], [0.0, 3.0, -1.0]]), np.array([1.0, 2.5, np.inf]))


# Comparisons.


def _comparison(
    name: str, summary: str, result: str, symbol: str, onnx: Any
) -> tuple[Binary, Op]:
    return binary(
        name,
        summary,
        f"""
        >>> mg.{name}([1.0, 2.0, 3.0], 2.0).eval()
        array({result})
        """,
        module=__name__,
        evaluate=numpy_named(name),
        scalar=f"a {symbol} b",
        no_gradient=_BOOLEAN,
        rule=to_bool,
        samples=lambda: [
            Sample((REAL, OTHER)),
            Sample(_TIES),
            Sample((WHOLE, WHOLE[::-1])),
            Sample((FLAGS, OTHER_FLAGS)),
        ],
        commutative=symbol in ("==", "!="),
        numerics="exact",
        dtypes=INEXACT if symbol in ("==", "!=") else FLOATS,  # complex numbers have no order
        onnx=onnx,
    )


equal, EQUAL = _comparison(
    "equal", "Tell where two values are equal.", "[False,  True, False]", "==",
    onnx="Equal",
)
not_equal, NOT_EQUAL = _comparison(
    "not_equal", "Tell where two values differ.", "[ True, False,  True]", "!=",
    onnx=onnx_forms.negation_of("Equal"),
)
less, LESS = _comparison(
    "less", "Tell where the first value is smaller.", "[ True, False, False]", "<",
    onnx=onnx_forms.ordering("Less"),
)
less_equal, LESS_EQUAL = _comparison(
    "less_equal",
    "Tell where the first value is at most the second.",
    "[ True,  True, False]",
    "<=",
    onnx=onnx_forms.ordering("LessOrEqual"),
)
greater, GREATER = _comparison(
    "greater", "Tell where the first value is larger.", "[False, False,  True]", ">",
    onnx=onnx_forms.ordering("Greater"),
)
greater_equal, GREATER_EQUAL = _comparison(
    "greater_equal",
    "Tell where the first value is at least the second.",
    "[False,  True,  True]",
    ">=",
    onnx=onnx_forms.ordering("GreaterOrEqual"),
)


# Choices.


def _extremum_gradient(wins: Binary) -> Gradient:
    def gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
        x, y = node.inputs
        half = where(equal(x, y), 0.5, 0.0)
        return (
            cotangent * where(wins(x, y), 1.0, half),
            cotangent * where(wins(y, x), 1.0, half),
        )

    return gradient


_EXTREMUM_NOTES = "NaN if either is NaN. Where both are equal each has half of the gradient."

maximum, MAXIMUM = binary(
    "maximum",
    "Take the larger of two values, element by element.",
    """
    >>> mg.maximum([1.0, 5.0], 2.0).eval()
    array([2., 5.], dtype=float32)
    """,
    module=__name__,
    notes=_EXTREMUM_NOTES,
    evaluate=numpy_named("maximum"),
    scalar="$maximum(a, b)",
    gradient=_extremum_gradient(greater),
    samples=lambda: [
        Sample((REAL, OTHER)),
        Sample((REAL, ROW)),
        Sample(_TIES, gradient=(), reason="ties and NaN"),
        Sample((WHOLE, OTHER_WHOLE)),
    ],
    commutative=True,
    numerics="exact",
    onnx="Max",
)

minimum, MINIMUM = binary(
    "minimum",
    "Take the smaller of two values, element by element.",
    """
    >>> mg.minimum([1.0, 5.0], 2.0).eval()
    array([1., 2.], dtype=float32)
    """,
    module=__name__,
    notes=_EXTREMUM_NOTES,
    evaluate=numpy_named("minimum"),
    scalar="$minimum(a, b)",
    gradient=_extremum_gradient(less),
    samples=lambda: [
        Sample((REAL, OTHER)),
        Sample((REAL, ROW)),
        Sample(_TIES, gradient=(), reason="ties and NaN"),
        Sample((WHOLE, OTHER_WHOLE)),
    ],
    commutative=True,
    numerics="exact",
    onnx="Min",
)


def finite(x: Node) -> Node:
    """Limit floats to the finite ones, so that 0 times what was infinite is 0."""
    most = float(finfo(x.dtype).max)
    return minimum(maximum(x, -most), most)


@documented
def clip(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Node:
    """Limit values to an interval: ``minimum(maximum(x, min), max)``.

    x: Node or array.
    min, max: The ends, broadcast against `x`; None leaves that side open. An end that is met
        exactly takes half of the gradient.
    a_min, a_max: NumPy's other names of the same.
    returns: Of the broadcast shape and the promoted dtype.
    raises ConfigError: If the ends are given under names of both kinds.

    >>> mg.clip([-2.0, 0.5, 3.0], 0.0, 1.0).eval()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    if a_min is not None or a_max is not None:
        if min is not None or max is not None:
            raise ConfigError(
                message(
                    "clip: the ends are given as min or max and as a_min or a_max",
                    need="one of both spellings",
                    hint="mg.clip(x, min=low, max=high)",
                )
            )
        min, max = a_min, a_max
    node = as_node(x)
    if min is not None:
        node = maximum(node, min)
    if max is not None:
        node = minimum(node, max)
    return node


CLIP = Composite(
    kind=Kind.ELEMENTWISE,
    function=clip,
    tests=Tests(
        samples=lambda: [
            Sample((REAL,), {"min": -1.0, "max": 1.0}),
            Sample((REAL,), {"max": 0.5}),
            Sample((WHOLE,), {"min": -2}),
        ],
        bad_samples=lambda: [
            BadSample(
                (REAL,),
                ConfigError,
                "clip: the ends are given as min or max and as a_min or a_max",
                {"min": 0.0, "a_max": 1.0},
            )
        ],
        reference=lambda x, min=None, max=None: np.clip(x, min, max),
    ),
    numerics="exact",
)


def _where_type(call: Call, condition: Type, x: Type, y: Type) -> Type:
    if condition.dtype != BOOL:
        raise call.dtype_error(
            f"a condition of dtype {condition.dtype.name}",
            need="bool",
            hint="mg.not_equal(condition, 0)",
        )
    dtype = one_dtype(call, x, y)
    return Type(dtype, call.broadcast(condition.shape, x.shape, y.shape))


@documented
def where(condition: Any, x: Any = None, y: Any = None) -> Node:
    """Choose from `x` where the condition holds, else from `y`.

    condition: Node or array; numbers hold where they are not zero.
    x, y: Nodes, arrays or numbers, broadcast against the condition and each other.
    returns: Of the broadcast shape and the promoted dtype of `x` and `y`. The gradient goes to the
        chosen operand; the other has exactly 0 there, whatever its value.
    raises ShapeError: Without `x` and `y`: the number of positions found would be known only after
        the call.

    >>> mg.where([True, False], 1.0, [5.0, 7.0]).eval()
    array([1., 7.], dtype=float32)
    """
    if x is None or y is None:
        raise ShapeError(
            message(
                "where: x and y are missing, and how many positions hold is known only at the call",
                need="where(condition, x, y)",
                hint="mg.where(condition, x, 0), which keeps every position",
            )
        )
    first, second = pair(x, y)
    return WHERE(truth(condition), first, second)


WHERE = Op(
    name="where",
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    rule=_where_type,
    evaluate=lambda xp, condition, x, y: xp.where(condition, x, y),
    scalar=Scalar("a ? b : c"),
    gradient=lambda node, cotangent: (
        None,
        where(node.inputs[0], cotangent, 0),
        where(node.inputs[0], 0, cotangent),
    ),
    sharding="select",
    function=where,
    tests=Tests(
        samples=lambda: [
            Sample((FLAGS, REAL, OTHER)),
            Sample((FLAGS, REAL, ROW)),
            Sample((FLAGS[0], REAL[0, 0], OTHER)),
            Sample((FLAGS, WHOLE, OTHER_WHOLE)),
        ],
        bad_samples=lambda: [
            BadSample(
                (FLAGS, np.ones((2, 4)), np.ones(4)),
                ShapeError,
                "where: extents 3 and 4 do not broadcast (axis -1)",
            ),
            BadSample(
                (FLAGS,),
                ShapeError,
                "where: x and y are missing, and how many positions hold is known only at the call",
            ),
        ],
        reference=np.where,
    ),
    numerics="exact",
    onnx=onnx_pairs.Pairs("Where", onnx_pairs.pairs_where),
)

RECORDS: tuple[Op | Composite, ...] = (
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    MAXIMUM,
    MINIMUM,
    CLIP,
    WHERE,
)
