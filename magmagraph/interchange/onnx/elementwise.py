"""Elementwise operators, activations and conversions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_bool, is_complex, is_integer
from ...ir.graph import Node
from ...ops.convert import cast
from ...ops.elementwise import math as functions
from ...ops.elementwise import rounding, signs
from ...ops.elementwise.arithmetic import add, divide, floor_divide, multiply, remainder, subtract
from ...ops.elementwise.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    left_shift,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    right_shift,
)
from ...ops.elementwise.comparison import (
    clip,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    where,
)
from ...ops.elementwise.numbers import fmod
from ...ops.networks.activation import relu, sigmoid, softplus
from ...ops.networks.exponential_units import celu, elu, softsign
from ...ops.networks.gelu import gelu, mish
from ...ops.networks.slopes import leaky_relu
from ...ops.special.primitives import erf
from .files import dtype_of
from .narrow import narrow_name, narrowed
from .operator import Operator, Rule, Value

__all__ = ["ELEMENTWISE"]


def one(function: Callable[[Any], Node]) -> Rule:
    """Return the rule of a function of one operand, whose result has its dtype."""

    def rule(op: Operator) -> Node:
        return op.like(function(op.node()))

    return rule


def two(function: Callable[[Any, Any], Node]) -> Rule:
    """Return the rule of a function of two operands."""

    def rule(op: Operator) -> Node:
        return function(op.node(0), op.node(1))

    return rule


def several(function: Callable[[Any, Any], Node]) -> Rule:
    """Return the rule of a function that takes operands two by two."""

    def rule(op: Operator) -> Node:
        return functools.reduce(function, op.nodes)

    return rule


def _symbols(op: Operator) -> tuple[np.ndarray, np.ndarray] | None:
    """Return two operands that are whole numbers of which the call brings some."""
    values = [op.known(0), op.known(1)]
    if any(v is None for v in values) or all(v.dtype != object for v in values if v is not None):
        return None
    return tuple(values)  # type: ignore[return-value]


def _divide(op: Operator) -> Node:
    """Divide; ints toward zero."""
    x, y = op.node(0), op.node(1)
    if not is_integer(x.dtype):
        return divide(x, y)
    symbols = _symbols(op)
    if symbols is not None:  # extents: they are not negative
        return op.build.known.add(np.asarray(symbols[0] // symbols[1], object))
    quotient = floor_divide(x, y)
    if x.dtype.kind == "u":
        return quotient
    inexact = logical_and(logical_xor(less(x, 0), less(y, 0)), remainder(x, y) != 0)
    return op.like(where(inexact, add(quotient, 1), quotient))


def _modulo(op: Operator) -> Node:
    """Take the remainder, with the sign of the divisor, or of the dividend."""
    symbols = _symbols(op)
    if symbols is not None:
        return op.build.known.add(np.asarray(symbols[0] % symbols[1], object))
    x, y = op.node(0), op.node(1)
    return fmod(x, y) if op.get("fmod", 0) else remainder(x, y)


def _power(op: Operator) -> Node:
    x, y = op.node(0), op.node(1)
    if is_integer(y.dtype) and y.dtype != x.dtype:
        y = cast(y, x.dtype)
    return op.like(functions.power(x, y))


def _shift(op: Operator) -> Node:
    direction = op.get("direction")
    shifts = {"LEFT": left_shift, "RIGHT": right_shift}
    if direction not in shifts:
        raise op.refuse(f"direction={direction!r}")
    return op.like(shifts[direction](op.node(0), op.node(1)))


def _clip(op: Operator) -> Node:
    x = op.node()
    low, high = op.optional(1), op.optional(2)
    if low is not None and high is None:
        return op.like(maximum(x, low))
    if high is not None:
        return op.like(minimum(x if low is None else maximum(x, low), high))
    return x


def _is_infinite(op: Operator) -> Node:
    x = op.node()
    infinite = rounding.isinf(x)
    if not op.get("detect_negative", 1):
        infinite = logical_and(infinite, greater(x, 0.0))
    if not op.get("detect_positive", 1):
        infinite = logical_and(infinite, less(x, 0.0))
    return infinite


def _where(op: Operator) -> Node:
    return where(op.node(0), op.node(1), op.node(2))


def _cast(op: Operator) -> Value:
    return converted(op, op.node(), int(op.get("to", 0)))


def _cast_like(op: Operator) -> Value:
    like = op.node(1)
    element = op.build.carried(like)
    return cast(op.node(), like.dtype) if element is None else converted(op, op.node(), element)


def converted(op: Operator, x: Node, element: int) -> Node:
    """Convert to an element type."""
    dtype = dtype_of(element)
    if dtype is not None:
        if is_complex(x.dtype) and not is_complex(dtype):
            raise op.refuse(f"{x.dtype.name} to {dtype.name}")
        constant = op.known(0) if x is op.inputs[0] else None
        if constant is not None and constant.dtype == object and is_integer(dtype):
            result = cast(x, dtype)
            op.build.known.state(result, constant)
            return result
        return cast(x, dtype)
    if narrow_name(element) is None:
        op.dtype(element)  # it raises
    if op.build.carried(x) == element:
        return x
    saturate, mode = bool(op.get("saturate", 1)), "nearest"
    if narrow_name(element) == "float32" and element == 24:  # FLOAT8E8M0: powers of two
        mode = op.get("round_mode", "up")
    return op.build.carry(narrowed(x, element, saturate, mode), element)


def _not(op: Operator) -> Node:
    return logical_not(op.node())


# Activations.


def _gelu(op: Operator) -> Node:
    return gelu(op.node(), op.get("approximate", "none") == "tanh")


def _leaky(op: Operator) -> Node:
    return leaky_relu(op.node(), op.get("alpha", 0.01))


def _elu(op: Operator) -> Node:
    return elu(op.node(), op.get("alpha", 1.0))


def _celu(op: Operator) -> Node:
    return celu(op.node(), op.get("alpha", 1.0))


def _selu(op: Operator) -> Node:
    alpha = op.get("alpha", 1.67326319217681884765625)
    return multiply(elu(op.node(), alpha), op.get("gamma", 1.05070102214813232421875))


def _hard_sigmoid(op: Operator) -> Node:
    return hard_sigmoid(op.node(), op.get("alpha", 0.2), op.get("beta", 0.5))


def hard_sigmoid(x: Node, alpha: float, beta: float) -> Node:
    """Return a line that is cut at 0 and 1."""
    return clip(add(multiply(x, alpha), beta), 0.0, 1.0)


def _hard_swish(op: Operator) -> Node:
    return multiply(op.node(), hard_sigmoid(op.node(), 1.0 / 6.0, 0.5))


def _swish(op: Operator) -> Node:
    x = op.node()
    return multiply(x, sigmoid(multiply(x, op.get("alpha", 1.0))))


def _prelu(op: Operator) -> Node:
    x, slope = op.node(0), op.node(1)
    return op.like(where(less(x, 0), multiply(x, slope), x))


def _thresholded(op: Operator) -> Node:
    x = op.node()
    return op.like(where(greater(x, op.get("alpha", 1.0)), x, 0))


def _shrink(op: Operator) -> Node:
    x, bias, bound = op.node(), op.get("bias", 0.0), op.get("lambd", 0.5)
    low = where(less(x, -bound), op.like(add(x, bias)), op.like(multiply(x, 0)))
    return op.like(where(greater(x, bound), op.like(subtract(x, bias)), low))


def _mean(op: Operator) -> Node:
    return op.like(divide(functools.reduce(add, op.nodes), float(len(op.nodes))))


def _identity(op: Operator) -> Value:
    return op.inputs[0]


def _bits(op: Operator) -> Node:
    """Read bits as another dtype: between ints, whose low bits a conversion keeps."""
    x, dtype = op.node(), op.dtype(int(op.get("to", 0)))
    if x.dtype == dtype:
        return x
    ints = (is_integer(x.dtype) or is_bool(x.dtype)) and is_integer(dtype)
    if not ints or x.dtype.itemsize != dtype.itemsize:
        raise op.refuse(f"the bits of {x.dtype.name} as {dtype.name}", "ints of the same width")
    return cast(x, dtype)


ELEMENTWISE: dict[str, Rule] = {
    "Abs": one(signs.absolute),
    "Acos": one(functions.arccos),
    "Acosh": one(functions.arccosh),
    "Add": two(add),
    "And": two(logical_and),
    "Asin": one(functions.arcsin),
    "Asinh": one(functions.arcsinh),
    "Atan": one(functions.arctan),
    "Atanh": one(functions.arctanh),
    "BitCast": _bits,
    "BitShift": _shift,
    "BitwiseAnd": two(bitwise_and),
    "BitwiseNot": one(bitwise_not),
    "BitwiseOr": two(bitwise_or),
    "BitwiseXor": two(bitwise_xor),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": one(rounding.ceil),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": one(functions.cos),
    "Cosh": one(functions.cosh),
    "Div": _divide,
    "Elu": _elu,
    "Equal": two(equal),
    "Erf": one(erf),
    "Exp": one(functions.exp),
    "Floor": one(rounding.floor),
    "Gelu": _gelu,
    "Greater": two(greater),
    "GreaterOrEqual": two(greater_equal),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "IsInf": _is_infinite,
    "IsNaN": lambda op: rounding.isnan(op.node()),
    "LeakyRelu": _leaky,
    "Less": two(less),
    "LessOrEqual": two(less_equal),
    "Log": one(functions.log),
    "Max": several(maximum),
    "Mean": _mean,
    "Min": several(minimum),
    "Mish": one(mish),
    "Mod": _modulo,
    "Mul": two(multiply),
    "Neg": lambda op: op.like(-op.node()),
    "Not": _not,
    "Or": two(logical_or),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": lambda op: op.like(divide(1.0, op.node())),
    "Relu": one(relu),
    "Round": one(rounding.rint),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": one(sigmoid),
    "Sign": one(signs.sign),
    "Sin": one(functions.sin),
    "Sinh": one(functions.sinh),
    "Softplus": one(softplus),
    "Softsign": one(softsign),
    "Sqrt": one(functions.sqrt),
    "Sub": two(subtract),
    "Sum": several(add),
    "Swish": _swish,
    "Tan": one(functions.tan),
    "Tanh": one(functions.tanh),
    "ThresholdedRelu": _thresholded,
    "Where": _where,
    "Xor": two(logical_xor),
}
