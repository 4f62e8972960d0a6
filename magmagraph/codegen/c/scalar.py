"""C for one value at a time: types, literals, conversions, the expressions of op records."""

from __future__ import annotations

import re

import numpy as np

from ...ir.graph import Node
from ..functions.scalar import computing_type, resolve, suffix

__all__ = [
    "HALF_HELPERS",
    "apply_scalar",
    "combine_expression",
    "convert",
    "has_function",
    "identity_expression",
    "is_floating",
    "load",
    "round_trip",
    "storage_type",
    "store",
    "widened",
]

# Conversions of 16-bit floats, without branches so that loops around them vectorize. A float16
# is scaled by 2**112 into float32, which takes care of its subnormal numbers; what is above the
# range becomes infinite before the bits are cut, and ties round to even.
_HALF = """
static inline float mg_half_to_float(uint16_t h)
{
    union { uint32_t bits; float value; } x, special;
    x.bits = (uint32_t)(h & 0x7fff) << 13;
    x.value *= 0x1p112f;
    special.bits = x.bits | 0x7f800000u;
    x.bits = (h & 0x7c00) == 0x7c00 ? special.bits : x.bits;
    x.bits |= (uint32_t)(h & 0x8000) << 16;
    return x.value;
}

static inline uint16_t mg_float_to_half(float value)
{
    union { float value; uint32_t bits; } x, small, large;
    x.value = value;
    const uint32_t sign = (x.bits >> 16) & 0x8000;
    const uint32_t size = x.bits & 0x7fffffff;
    /* Below 2**-14 the digits are fewer: adding 0.5 rounds them off at the right place. */
    small.bits = size;
    small.value += 0.5f;
    const uint32_t subnormal = small.bits - 0x3f000000u;
    const uint32_t normal = (size + 0xfff + ((size >> 13) & 1) - 0x38000000u) >> 13;
    const uint32_t finite = size < 0x38800000u ? subnormal : normal;
    large.bits = size > 0x7f800000u ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (size >= 0x477ff000u ? large.bits : finite));
}
"""
_BRAIN = """
static inline float mg_brain_to_float(uint16_t h)
{
    union { uint32_t bits; float value; } x;
    x.bits = (uint32_t)h << 16;
    return x.value;
}

static inline uint16_t mg_float_to_brain(float value)
{
    union { float value; uint32_t bits; } x;
    x.value = value;
    const uint32_t rounded = (x.bits + 0x7fff + ((x.bits >> 16) & 1)) >> 16;
    return (uint16_t)(value != value ? (x.bits >> 16) | 0x40 : rounded);
}
"""
HALF_HELPERS = {"mg_half": _HALF, "_half(": _HALF, "mg_brain": _BRAIN, "_brain(": _BRAIN}
"""Definitions of conversions, by a text that occurs in sources that need them."""

_OPERAND = re.compile(r"\b[abcd]\b")


def storage_type(dtype: np.dtype) -> str:
    """Return the C type of elements in memory."""
    if dtype.kind not in "iub" and dtype.itemsize == 2:
        return "uint16_t"
    return computing_type(dtype)


def is_floating(dtype: np.dtype) -> bool:
    """Return whether elements are floats of any width."""
    return dtype.kind not in "iub"


def widened(wide: np.dtype, dtype: np.dtype) -> str:
    """Return the cast of an element to the dtype that it is accumulated in, if one is needed."""
    return "" if computing_type(wide) == computing_type(dtype) else f"({computing_type(wide)})"


def _narrow(dtype: np.dtype) -> str:
    """Return "half" or "brain" for the 16-bit floats, else nothing."""
    if dtype.kind in "iub" or dtype.itemsize != 2:
        return ""
    return "half" if dtype.kind == "f" else "brain"


def load(expression: str, dtype: np.dtype) -> str:
    """Return the computing value of an element in memory."""
    narrow = _narrow(dtype)
    return f"mg_{narrow}_to_float({expression})" if narrow else expression


def store(expression: str, dtype: np.dtype) -> str:
    """Return the expression that is stored for a computed value."""
    narrow = _narrow(dtype)
    return f"mg_float_to_{narrow}({expression})" if narrow else expression


def round_trip(expression: str, dtype: np.dtype) -> str:
    """Return a computing value rounded to what memory of the dtype would hold."""
    return load(store(expression, dtype), dtype) if _narrow(dtype) else expression


def convert(expression: str, source: np.dtype, target: np.dtype) -> str:
    """Return a computing value converted from one dtype to another, as `mg.cast` says."""
    if source == target:
        return expression
    if target.kind == "b":
        return f"({expression}) != 0"
    target_type = computing_type(target)
    if target.kind in "iu" and source.kind not in "iub":
        return f"mg_to_{suffix(target)}_{suffix(source)}({expression})"
    if computing_type(source) != target_type:
        expression = f"({target_type})({expression})"
    return round_trip(expression, target)


def apply_scalar(node: Node, operands: list[str]) -> str:
    """Return the C expression of an elementwise node over its operands' expressions."""
    rule = node.op.scalar.expression
    assert rule is not None
    types = [each.dtype for each in node.inputs] or [node.dtype]
    dtype = ([each for each in types if is_floating(each)] or types)[-1]
    if dtype.kind == "c" and node.op.scalar.complex:
        rule = node.op.scalar.complex
    text = resolve(rule if isinstance(rule, str) else rule(dtype), dtype)
    letters = dict(zip("abcd", operands, strict=False))
    result = _OPERAND.sub(lambda match: letters[match.group(0)], text)
    return convert(result, dtype, node.dtype)


def has_function(node: Node) -> bool:
    """Return whether there is C for an elementwise node of its operands' dtypes."""
    if node.op.scalar.expression is None:
        return False
    try:
        apply_scalar(node, ["a"] * len(node.inputs))
    except KeyError:
        return False
    return True


def combine_expression(node: Node, dtype: np.dtype, kept: str, element: str) -> str:
    """Return a reduction's combination of an accumulator and an element."""
    assert node.op.reduction is not None
    text = resolve(node.op.reduction.combine, dtype)
    letters = {"a": kept, "b": element}
    return re.sub(r"\b[ab]\b", lambda match: letters[match.group(0)], text)


def identity_expression(node: Node, dtype: np.dtype) -> str:
    """Return the accumulator that a reduction begins with."""
    assert node.op.reduction is not None
    return resolve(node.op.reduction.identity, dtype)
