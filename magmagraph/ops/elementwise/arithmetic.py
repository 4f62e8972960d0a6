"""Arithmetic, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DTypeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Composite, Kind, Op, Sample, Tests
from ..convert import as_node, cast
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
    binary,
    broadcast_floats,
    broadcast_numbers,
    floating_pair,
    inexact,
    like_number,
    misfits,
    number_pair,
    numpy_named,
    unary,
)

__all__ = [
    "add",
    "divide",
    "floor_divide",
    "multiply",
    "negative",
    "reciprocal",
    "remainder",
    "square",
    "subtract",
]

_INTEGER_PAIRS = (WHOLE, OTHER_WHOLE)
_NO_BOOL = "{}: operand of dtype bool"


def _infix(symbol: str, on_bool: str | None = None) -> Any:
    """Return the C expression of an infix operator, with another one for bools."""

    def scalar(dtype: np.dtype) -> str:
        return f"a {on_bool if on_bool and dtype == BOOL else symbol} b"

    return scalar


add, ADD = binary(
    "add",
    "Add, element by element; of bools, the logical or.",
    """
    >>> mg.add([1.0, 2.0], 0.5).eval()
    array([1.5, 2.5], dtype=float32)
    """,
    module=__name__,
    evaluate=numpy_named("add"),
    scalar=_infix("+", "|"),
    gradient=lambda node, cotangent: (cotangent, cotangent),
    samples=lambda: [
        Sample((REAL, OTHER)),
        Sample((REAL, ROW)),
        Sample(_INTEGER_PAIRS),
        Sample((FLAGS, OTHER_FLAGS)),
    ],
    commutative=True,
    dtypes=INEXACT,
    epilogue="bias",
    sharding="linear",
    onnx=onnx_pairs.Pairs(onnx_forms.by_dtype("Or", "Add"), onnx_pairs.same("Add")),
)

subtract, SUBTRACT = binary(
    "subtract",
    "Subtract, element by element.",
    """
    >>> mg.subtract([1.0, 2.0], 0.5).eval()
    array([0.5, 1.5], dtype=float32)
    """,
    module=__name__,
    evaluate=numpy_named("subtract"),
    scalar="a - b",
    gradient=lambda node, cotangent: (cotangent, -cotangent),
    rule=broadcast_numbers,
    samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, ROW)), Sample(_INTEGER_PAIRS)],
    bad_samples=lambda: [
        *misfits("subtract")(),
        BadSample((FLAGS, OTHER_FLAGS), DTypeError, _NO_BOOL.format("subtract")),
    ],
    dtypes=INEXACT,
    sharding="linear",
    onnx=onnx_pairs.Pairs("Sub", onnx_pairs.same("Sub")),
)

multiply, MULTIPLY = binary(
    "multiply",
    "Multiply, element by element; of bools, the logical and.",
    """
    >>> mg.multiply([1.0, 2.0], [3.0, 4.0]).eval()
    array([3., 8.], dtype=float32)
    """,
    module=__name__,
    evaluate=numpy_named("multiply"),
    scalar=_infix("*", "&"),
    gradient=lambda node, cotangent: (cotangent * node.inputs[1], cotangent * node.inputs[0]),
    samples=lambda: [
        Sample((REAL, OTHER)),
        Sample((REAL, ROW)),
        Sample(_INTEGER_PAIRS),
        Sample((FLAGS, OTHER_FLAGS)),
    ],
    commutative=True,
    dtypes=INEXACT,
    sharding="product",
    onnx=onnx_pairs.Pairs(onnx_forms.by_dtype("And", "Mul"), onnx_pairs.multiplied),
)


def _divide_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    share = cotangent / node.inputs[1]
    return share, -(share * node)


divide, DIVIDE = binary(
    "divide",
    "Divide, element by element; integers give floats.",
    """
    >>> mg.divide([1, 2], 4).eval()
    array([0.25, 0.5 ], dtype=float32)
    """,
    module=__name__,
    evaluate=numpy_named("divide"),
    scalar="a / b",
    gradient=_divide_gradient,
    rule=broadcast_floats,
    operands=floating_pair,
    samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, ROW)), Sample(_INTEGER_PAIRS)],
    dtypes=INEXACT,
    sharding="quotient",
    onnx=onnx_pairs.Pairs("Div", onnx_pairs.divided),
)

floor_divide, FLOOR_DIVIDE = binary(
    "floor_divide",
    "Divide and round down, element by element.",
    """
    >>> mg.floor_divide([7, -7], 2).eval()
    array([ 3, -4], dtype=int32)
    """,
    module=__name__,
    notes="""An integer divided by zero is 0, and the lowest one divided by -1 is itself, as in
    NumPy; a float is infinite or NaN.""",
    evaluate=numpy_named("floor_divide"),
    scalar="$floor_divide(a, b)",
    no_gradient="piecewise constant, so zero wherever it exists",
    rule=broadcast_numbers,
    operands=number_pair,
    samples=lambda: [
        Sample((REAL, OTHER)),
        Sample((REAL, ROW)),
        Sample(_INTEGER_PAIRS),
        Sample((WHOLE, np.array([0, -1, 3], dtype=np.int32))),
    ],
    numerics="exact",
    onnx=onnx_forms.floor_divided,
)

remainder, REMAINDER = binary(
    "remainder",
    "Take what a division that rounds down leaves; it has the divisor's sign.",
    """
    >>> mg.remainder([7, -7], 3).eval()
    array([1, 2], dtype=int32)
    """,
    module=__name__,
    notes="An integer modulo zero is 0, as in NumPy; a float is NaN.",
    evaluate=numpy_named("remainder"),
    scalar="$remainder(a, b)",
    gradient=lambda node, cotangent: (
        cotangent,
        -(cotangent * floor_divide(node.inputs[0], node.inputs[1])),
    ),
    rule=broadcast_numbers,
    operands=number_pair,
    samples=lambda: [
        Sample((REAL, OTHER + 0.05)),
        Sample((REAL, ROW)),
        Sample(_INTEGER_PAIRS),
        Sample((WHOLE, np.array([0, -1, 3], dtype=np.int32))),
    ],
    numerics="exact",
    onnx=onnx_forms.modulo,
)


negative, NEGATIVE = unary(
    "negative",
    "Negate, element by element; unsigned integers wrap around.",
    """
    >>> mg.negative([1.0, -2.0]).eval()
    array([-1.,  2.], dtype=float32)
    """,
    module=__name__,
    evaluate=numpy_named("negative"),
    scalar="-a",
    gradient=lambda node, cotangent: (-cotangent,),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((WHOLE,))],
    numerics="exact",
    dtypes=INEXACT,
    sharding="linear",
    onnx=onnx_pairs.Pairs("Neg", onnx_pairs.same("Neg")),
)


@documented
def square(x: Any) -> Node:
    """Multiply by itself, element by element.

    x: Node or array.
    returns: Of the shape and dtype of `x`.

    >>> mg.square([1.0, -3.0]).eval()
    array([1., 9.], dtype=float32)
    """
    node = as_node(x)
    if node.dtype == BOOL:
        node = cast(node, np.int8)
    return MULTIPLY(node, node)


@documented
def reciprocal(x: Any) -> Node:
    """Divide 1 by each element.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.reciprocal([2.0, -4.0]).eval()
    array([ 0.5 , -0.25], dtype=float32)
    """
    return divide(1.0, inexact(x))


SQUARE = Composite(
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    function=square,
    tests=Tests(samples=lambda: [Sample((REAL,)), Sample((WHOLE,))], reference=np.square),
)

RECIPROCAL = Composite(
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    function=reciprocal,
    tests=Tests(samples=lambda: [Sample((REAL,))], reference=lambda x: 1.0 / x),
)

RECORDS: tuple[Op | Composite, ...] = (
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    FLOOR_DIVIDE,
    REMAINDER,
    NEGATIVE,
    SQUARE,
    RECIPROCAL,
)
