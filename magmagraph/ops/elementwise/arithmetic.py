"""Arithmetic, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import config
from ...dtypes import is_complex, is_float, is_inexact, is_integer, is_unsigned, real_dtype
from ...errors import DTypeError, message
from ...graph import Node
from ...op import INEXACT, BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...types import Type
from ..convert import as_node, cast
from ..leaf import CONSTANT
from ..rules import onnx_forms, onnx_pairs
from .family import (
    BOOL,
    FLAGS,
    OTHER,
    OTHER_FLAGS,
    OTHER_WHOLE,
    POSITIVE,
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
    "absolute",
    "add",
    "divide",
    "floor_divide",
    "multiply",
    "negative",
    "power",
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


def _power(xp: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return xp.power(x, y)
    # NumPy refuses negative integer exponents; here they round the true power toward zero.
    result = xp.power(x, xp.maximum(y, y.dtype.type(0)))
    if x.dtype.kind == "u":
        return result
    unit = xp.where(y % 2 == 0, x * x, x)  # the power of 1 and -1
    return xp.where(y < 0, xp.where(abs(x) == 1, unit, 0), result)


def _static_exponent(node: Node) -> float | None:
    """Return the exponent where it is one number that is known now."""
    exponent = node.inputs[1]
    if exponent.op is CONSTANT and exponent.ndim == 0:
        value = exponent.attrs["value"]
        return float(value.real) if value.imag == 0 else None
    return None


def _power_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    from .comparison import equal, less, not_equal, where
    from .math import log

    x, y = node.inputs
    exponent = _static_exponent(node)
    if exponent is None:
        # Near y = 0, x**(y - 1) may overflow where y times it does not; x**y is then near 1.
        flat = less(absolute(y), 1e-3) & less(absolute(x), 1) & not_equal(x, 0)
        near = y / where(flat, x, 1) * node
        lower = where(flat | equal(y, 0), 1, y - 1)
        by_x = cotangent * where(equal(y, 0), 0, where(flat, near, y * power(x, lower)))
    elif exponent == 0.0:
        by_x = cotangent * 0.0
    elif exponent == 1.0:
        by_x = cotangent
    elif exponent == 2.0:
        by_x = cotangent * (x * 2.0)
    else:
        by_x = cotangent * (power(x, exponent - 1.0) * exponent)
    return by_x, cotangent * (node * log(where(equal(x, 0), 1, x)))


power, POWER = binary(
    "power",
    "Raise to a power, element by element.",
    """
    >>> mg.power([1.0, 2.0, 3.0], 2).eval()
    array([1., 4., 9.], dtype=float32)
    """,
    module=__name__,
    notes="""
    The gradient with respect to `x` is ``y * x**(y - 1)`` and 0 where y is 0; that with respect to
    `y` is 0 where x is 0. Where x is negative and ``y - 1`` rounds to y (from ``|y| > 2 / eps``),
    the sign of that with respect to `x` may be wrong. Integers to a negative integer power round
    toward zero; a negative Python int as the exponent of an integer is refused.
    """,
    evaluate=_power,
    scalar="$power(a, b)",
    gradient=_power_gradient,
    rule=broadcast_numbers,
    operands=lambda x, y: _power_operands(x, y),
    samples=lambda: [
        Sample((POSITIVE, OTHER)),
        Sample((POSITIVE, ROW)),
        Sample((REAL, 2.0)),
        Sample((REAL, 3.0)),
        Sample((REAL, -1.0)),
        Sample((np.array([0.0, -1.5, 2.0]), 2.0), gradient=(0,), reason="log(x) at x <= 0"),
        Sample((np.array([0.0, -1.5, 2.0]), 1.0), gradient=(0,), reason="log(x) at x <= 0"),
        Sample((WHOLE, np.array([3, 0, 2], dtype=np.int32))),
    ],
    bad_samples=lambda: [
        *misfits("power")(),
        BadSample((WHOLE, -2), DTypeError, "power: an integer to the power -2"),
    ],
    reference=lambda x, y: np.power(x, y),
    dtypes=INEXACT,
    onnx="Pow",
)


def _power_operands(x: Any, y: Any) -> tuple[Node, ...]:
    nodes = number_pair(x, y)
    if type(y) is int and y < 0 and not is_inexact(nodes[0].dtype):
        raise DTypeError(
            message(
                f"power: an integer to the power {y}",
                need="a float, since the result is a fraction",
                hint=f"x.astype('{config.float_dtype.name}') ** {y}",
            )
        )
    return nodes


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


def _absolute_scalar(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "$fabs(a)"
    return "a < 0 ? -a : a" if is_integer(dtype) and not is_unsigned(dtype) else "a"


def _absolute_type(call: Call, x: Type) -> Type:
    return Type(real_dtype(x.dtype), x.shape) if is_complex(x.dtype) else x


def _absolute_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x = node.inputs[0]
    if is_complex(x.dtype):
        from .complex_numbers import direction

        return (cast(cotangent, x.dtype) * direction(x, node),)
    from .comparison import equal, where
    from .signs import sign

    return (cotangent * where(equal(x, 0), 1, sign(x)),)


absolute, ABSOLUTE = unary(
    "absolute",
    "Take the absolute value, element by element.",
    """
    >>> mg.absolute([-1.5, 2.0]).eval()
    array([1.5, 2. ], dtype=float32)
    """,
    module=__name__,
    notes="Of a complex number it is the real distance from 0, with the gradient 0 at 0. Of a real "
    "number the gradient at 0 is 1, as JAX has it.",
    evaluate=numpy_named("absolute"),
    scalar=_absolute_scalar,
    gradient=_absolute_gradient,
    rule=_absolute_type,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((WHOLE,)), Sample((FLAGS,))],
    numerics="exact",
    dtypes=INEXACT,
    onnx=onnx_pairs.Pairs(onnx_forms.magnitude, onnx_pairs.absolute),
)


def square(x: Any) -> Node:
    """Multiply by itself, element by element.

    Parameters
    ----------
    x
        Node or array.

    Returns
    -------
    Node
        Of the shape and dtype of `x`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.square([1.0, -3.0]).eval()
    array([1., 9.], dtype=float32)
    """
    node = as_node(x)
    if node.dtype == BOOL:
        node = cast(node, np.int8)
    return MULTIPLY(node, node)


def reciprocal(x: Any) -> Node:
    """Divide 1 by each element.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.reciprocal([2.0, -4.0]).eval()
    array([ 0.5 , -0.25], dtype=float32)
    """
    return divide(1.0, inexact(x))


SQUARE = Composite(
    name="square",
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    function=square,
    doc="Multiply by itself, element by element.",
    tests=Tests(samples=lambda: [Sample((REAL,)), Sample((WHOLE,))], reference=np.square),
)

RECIPROCAL = Composite(
    name="reciprocal",
    dtypes=INEXACT,
    kind=Kind.ELEMENTWISE,
    function=reciprocal,
    doc="Divide 1 by each element.",
    tests=Tests(samples=lambda: [Sample((REAL,))], reference=lambda x: 1.0 / x),
)

RECORDS: tuple[Op | Composite, ...] = (
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    FLOOR_DIVIDE,
    REMAINDER,
    POWER,
    NEGATIVE,
    ABSOLUTE,
    SQUARE,
    RECIPROCAL,
)
