"""How complex numbers are written in ONNX: pairs of real ones along a last axis of extent 2.

That is what the operator DFT takes and gives. ONNX's own complex dtypes have no operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_complex, real_dtype
from ...ir.graph import Node
from ...ir.types import Extent
from .onnx_forms import Names, Rule, Target

__all__ = [
    "Pairs",
    "absolute",
    "cast",
    "conjugate",
    "divided",
    "has_complex",
    "multiplied",
    "of_real",
    "pairs_where",
    "part",
    "same",
    "shaped",
    "spectrum",
    "spectrum_of_real",
    "transposed",
    "values_of_half",
]  # fmt: skip

_LAST = -1


def has_complex(node: Node) -> bool:
    """Tell whether an operand or a result is complex."""
    types = [each.type for each in (node, *node.inputs)]
    return any(
        is_complex(one.dtype) for each in types
        for one in (each if isinstance(each, tuple) else (each,))
    )  # fmt: skip


class Pairs:
    """The form of an operation that takes complex numbers too.

    real: Its form for real numbers: an operator, a rule, or nothing.
    pairs: Its rule where an operand or the result is complex.
    """

    def __init__(self, real: str | Rule, pairs: Rule) -> None:
        self.real = real
        self.pairs = pairs

    def __call__(self, to: Target, node: Node, *inputs: str) -> Names:
        """Write it."""
        if has_complex(node):
            return self.pairs(to, node, *inputs)
        if callable(self.real):
            return self.real(to, node, *inputs)
        return to.add(self.real, *inputs)


def _axis(to: Target) -> str:
    return to.constant(np.array([_LAST], np.int64))


def _part(to: Target, x: str, index: int) -> str:
    return to.add("Gather", x, to.constant(np.int64(index)), axis=_LAST)


def _pair(to: Target, first: str, second: str) -> str:
    parts = [to.add("Unsqueeze", each, _axis(to)) for each in (first, second)]
    return to.add("Concat", *parts, axis=_LAST)


def _number(to: Target, node: Node, value: Any) -> str:
    return to.constant(np.asarray(value, real_dtype(node.dtype)))


def part(index: int) -> Rule:
    """Return the rule of the real (0) or the imaginary (1) part."""

    def rule(to: Target, node: Node, x: str) -> str:
        return _part(to, x, index)

    return rule


def conjugate(to: Target, node: Node, x: str) -> str:
    """Change the sign of the imaginary part."""
    return to.add("Mul", x, _number(to, node, [1, -1]))


def of_real(to: Target, node: Node, first: str, second: str) -> str:
    """Make complex numbers of two parts."""
    shape = to.extents(node.shape)
    return _pair(to, to.add("Expand", first, shape), to.add("Expand", second, shape))


def same(operator: str) -> Rule:
    """Return the rule of an operation that does the same with both parts."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        return to.add(operator, *inputs)

    return rule


def multiplied(to: Target, node: Node, x: str, y: str) -> str:
    """Multiply."""
    a, b, c, d = _part(to, x, 0), _part(to, x, 1), _part(to, y, 0), _part(to, y, 1)
    real = to.add("Sub", to.add("Mul", a, c), to.add("Mul", b, d))
    return _pair(to, real, to.add("Add", to.add("Mul", a, d), to.add("Mul", b, c)))


def divided(to: Target, node: Node, x: str, y: str) -> str:
    """Multiply by the conjugate, and divide by the square of the absolute value."""
    c, d = _part(to, y, 0), _part(to, y, 1)
    square = to.add("Add", to.add("Mul", c, c), to.add("Mul", d, d))
    product = multiplied(to, node, x, conjugate(to, node, y))
    return to.add("Div", product, to.add("Unsqueeze", square, _axis(to)))


def absolute(to: Target, node: Node, x: str) -> str:
    """Take the root of the sum of squares."""
    return to.add("ReduceL2", x, _axis(to), keepdims=0)


def cast(to: Target, node: Node, x: str) -> str:
    """Convert real numbers to complex ones, or complex ones to another precision."""
    dtype = real_dtype(node.dtype) if is_complex(node.dtype) else node.dtype
    if not is_complex(node.dtype):
        raise to.refuse(node, "complex numbers as bools")
    converted = to.cast(x, dtype)
    if is_complex(node.inputs[0].dtype):
        return converted
    return _pair(to, converted, to.add("Mul", converted, _number(to, node, 0)))


def pairs_where(to: Target, node: Node, condition: str, *inputs: str) -> str:
    """Choose pairs by a condition."""
    return to.add("Where", to.add("Unsqueeze", condition, _axis(to)), *inputs)


def shaped(operator: str, **attributes: int) -> Rule:
    """Return the rule of an operation that is given the shape of its result."""

    def rule(to: Target, node: Node, x: str) -> str:
        return to.add(operator, x, to.extents((*node.shape, 2)), **attributes)

    return rule


def transposed(to: Target, node: Node, x: str) -> str:
    """Permute the axes; the pairs stay together."""
    return to.add("Transpose", x, perm=[*node.attrs["axes"], node.ndim])


# Fourier's transforms.


def _scaled(to: Target, node: Node, x: str, count: Extent, inverse: bool) -> str:
    """Divide by the factor of the norm."""
    norm = node.attrs["norm"]
    if norm == ("forward" if inverse else "backward"):
        return x
    dtype = real_dtype(node.dtype) if is_complex(node.dtype) else node.dtype
    factor = to.cast(to.extent(count), dtype)
    if norm == "ortho":
        factor = to.add("Sqrt", factor)
    return to.add("Div", x, factor)


def _transformed(to: Target, x: str, axis: int, **attributes: int) -> str:
    return to.add("DFT", x, "", to.constant(np.int64(axis)), **attributes)


def spectrum(to: Target, node: Node, x: str) -> str:
    """Transform complex values along axes."""
    inverse = node.attrs["inverse"]
    # The inverse is the conjugate of what conjugates give: DFT's own divides in float32.
    x = conjugate(to, node, x) if inverse else x
    for axis in node.attrs["axes"]:
        x = _scaled(to, node, _transformed(to, x, axis), node.shape[axis], inverse)
    return conjugate(to, node, x) if inverse else x


def spectrum_of_real(to: Target, node: Node, x: str) -> str:
    """Transform real values along an axis; half of the spectrum is kept."""
    axis, count = node.attrs["axis"], node.inputs[0].shape[node.attrs["axis"]]
    half = _transformed(to, to.add("Unsqueeze", x, _axis(to)), axis, onesided=1)
    return _scaled(to, node, half, count, False)


def values_of_half(to: Target, node: Node, x: str) -> str:
    """Transform half of a spectrum back: with its other half, the conjugate in reverse."""
    axis, count = node.attrs["axis"], node.attrs["n"]
    source = node.inputs[0]
    one, place = (to.constant(np.array([each], np.int64)) for each in (1, axis))
    end = to.extents((count - source.shape[axis] + 1,))
    middle = to.add("Slice", x, one, end, place, one)
    other = conjugate(to, source, to.reversed(middle, axis))
    whole = to.add("Concat", x, other, axis=axis)
    # The first element, and the middle one of an even number, have no imaginary part.
    values = _part(to, _transformed(to, conjugate(to, source, whole), axis), 0)
    return _scaled(to, node, values, count, True)

