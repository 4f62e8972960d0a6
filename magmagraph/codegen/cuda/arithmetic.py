"""Device functions that are faster than the C library's functions and IEEE division.

Each is as exact as the row of the tolerance table that its operation is tested by. What a value
is to be, so that one of them may stand for it, is decided here, from expressions of op records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.graph import Node
from ..c.scalar import apply_scalar

__all__ = ["DEFINITIONS", "HALVES", "elementwise"]

FLOAT32 = np.dtype(np.float32)

# A quotient by what many elements share: its inverse is taken once, and each quotient corrected by
# what it leaves over (Markstein 1990), which rounds as division does but for the last bit of a
# subnormal. Divisors are scaled so that neither they nor their inverse leave the range; where what
# is left over is no number, the quotient itself is right; the sign of a zero is the quotient's.
_QUOTIENT = """
struct mg_divisor { float scale, value, inverse; };
static __device__ __forceinline__ float mg_inverse(float a)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
static __device__ __forceinline__ mg_divisor mg_divide_by(float b)
{
    const float size = fabsf(b);
    mg_divisor d;
    d.scale = size > 0x1p125f ? 0x1p-32f : size < 0x1p-100f ? 0x1p64f : 1.0f;
    d.value = b * d.scale;
    d.inverse = mg_inverse(d.value);
    return d;
}
static __device__ __forceinline__ float mg_quotient(float a, const mg_divisor &d)
{
    const float scaled = a * d.scale, near = scaled * d.inverse;
    const float exact = fmaf(fmaf(-d.value, near, scaled), d.inverse, near);
    return fabsf(exact) < INFINITY ? copysignf(exact, near) : near;
}
"""

# exp(a) by the device's power of 2, off by up to 2 + 1.2 |a| units in the last place. Where no
# element is above 0 that is less than an element of 1 is off by, and no more than a moves by
# when it is rounded itself.
_EXP_BELOW = """
static __device__ __forceinline__ float mg_exp_below(float a)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a * 1.44269504f));
    return r;
}
"""

# What results of 16 bits are computed from: a quotient off by up to 2 units in the last place of 24
# bits, and the exponential above, by at most 105 (2**-17, where half a unit of 16 bits is 2**-12).
_ROUGH = """
static __device__ __forceinline__ float mg_rough_quotient(float a, float b)
{
    float r;
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
"""

DEFINITIONS = {
    r"mg_(?<!\wmg_)(inverse|divide_by|quotient)\b": _QUOTIENT,
    r"mg_exp_below(?<!\wmg_exp_below)\b": _EXP_BELOW,
    r"mg_rough_quotient(?<!\wmg_rough_quotient)\b": _ROUGH,
}
"""What a source that matches has to begin with."""

HALVES = {
    "half": """
static __device__ __forceinline__ float mg_half_to_float(uint16_t h)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}
static __device__ __forceinline__ uint16_t mg_float_to_half(float value)
{
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(value));
    return r;
}
""",
    "brain": """
static __device__ __forceinline__ float mg_brain_to_float(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}
static __device__ __forceinline__ uint16_t mg_float_to_brain(float value)
{
#if __CUDA_ARCH__ >= 900
    uint16_t r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(value));
    return r;
#else
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)(value != value ? (bits >> 16) | 0x40 : rounded);
#endif
}
""",
}
"""Conversions of 16-bit floats, one instruction each."""

_QUOTIENT_OF = re.compile(r"^(\w+) / (\w+|\(.*\))$")
_EXP = re.compile(r"\bexpf\(")
_INVERSE = re.compile(r"^\(float\)1 / \((\(float\)1 \+ expf\(.*\))\)$")


def elementwise(
    node: Node,
    operands: Sequence[str],
    name: str,
    shared: Callable[[Node], bool],
    highest: Callable[[Node], bool],
    rough: Callable[[Node], bool],
) -> tuple[list[str], str]:
    """Return the expression of an elementwise value, and lines that have to come before it.

    Parameters
    ----------
    node
        The value.
    operands
        The expressions of its operands.
    name
        What it is called.
    shared
        Whether neighbours along the innermost loop have the same of a node.
    highest
        Whether a node is the difference of elements and the highest of their row.
    rough
        Whether a node is rounded to 16 bits before anybody sees what became of it.
    """
    rule = node.op.scalar.expression
    plain = apply_scalar(node, list(operands))
    if not isinstance(rule, str) or any(n.dtype != FLOAT32 for n in (node, *node.inputs)):
        return [], plain
    if rule == "a / b" and shared(node.inputs[1]) and not shared(node.inputs[0]):
        by = f"{name}_by"
        return [f"const mg_divisor {by} = mg_divide_by({operands[1]});"], (
            f"mg_quotient({operands[0]}, {by})"
        )
    sum_of_one = _INVERSE.match(plain)
    if sum_of_one:
        plain = f"mg_inverse({sum_of_one[1]})"
    if (rule == "$exp(a)" and highest(node.inputs[0])) or rough(node):
        plain = _EXP.sub("mg_exp_below(", plain)
    quotient = _QUOTIENT_OF.match(plain) if rough(node) else None
    if quotient and _is_one(quotient[2]):
        plain = f"mg_rough_quotient({quotient[1]}, {quotient[2]})"
    return [], plain


def _is_one(expression: str) -> bool:
    """Return whether a name, or what stands between two parentheses, is all of an expression."""
    depth = 0
    for place, letter in enumerate(expression, 1):
        depth += (letter == "(") - (letter == ")")
        if not depth and letter == ")":
            return place == len(expression)
    return True
