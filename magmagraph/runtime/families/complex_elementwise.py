"""Elementwise operations on complex arrays: arithmetic, parts, conjugates and absolute values.

Products are computed by the formula, and quotients by Smith's algorithm, as NumPy has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...dtypes import is_complex, real_dtype
from ...ir.graph import Node
from ...ir.op import Op
from ...ir.plan import KernelFamily, Step
from ...ir.types import Type
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.elementwise.complex_numbers import CONJ, IMAGINARY_PART, MAKE_COMPLEX, REAL_PART
from ...ops.elementwise.signs import ABSOLUTE

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs

_QUOTIENT = """
    const int first = FABS(c) >= FABS(d), none = (c == 0) & (d == 0);
    const REAL large = first ? c : d, small = first ? d : c, ratio = small / large;
    const REAL scale = 1 / (large + small * ratio);
    x = ((first ? a : b) + (first ? b : a) * ratio) * scale;
    y = first ? (b - a * ratio) * scale : (b * ratio - a) * scale;
    x = none ? a / FABS(c) : x;
    y = none ? b / FABS(c) : y;
"""
# The larger part times a root that cannot overflow; of an infinite part the size is infinite.
_SIZE = """
    const REAL u = FABS(a), v = FABS(b), large = u > v ? u : v, small = u > v ? v : u;
    const REAL ratio = small / large, size = large * SQRT(1 + ratio * ratio);
    x = (u == INFINITE) | (v == INFINITE) ? INFINITE : large == 0 ? small : size;
"""
_RESULTS: dict[Op, str] = {
    ADD: "x = a + c; y = b + d;",
    SUBTRACT: "x = a - c; y = b - d;",
    MULTIPLY: "x = a * c - b * d; y = a * d + b * c;",
    DIVIDE: _QUOTIENT,
    NEGATIVE: "x = -a; y = -b;",
    CONJ: "x = a; y = -b;",
    REAL_PART: "x = a;",
    IMAGINARY_PART: "x = b;",
    MAKE_COMPLEX: "x = a; y = c;",
    ABSOLUTE: _SIZE,
    CAST: "x = a; y = b;",
}


def _takes(node: Node) -> bool:
    if node.op not in _RESULTS or not isinstance(node.type, Type):
        return False
    types = [operand.type for operand in node.inputs]
    return any(isinstance(t, Type) and is_complex(t.dtype) for t in (*types, node.type))


def _refusal(node: Node, device: str) -> str | None:
    if device != "cpu":
        return f"CuPy computes {node.op.name} of complex numbers"
    from ..cpu.complex_elementwise import MOST_AXES

    dtypes = [operand.dtype for operand in node.inputs]
    parts = {real_dtype(dtype) if is_complex(dtype) else dtype for dtype in (*dtypes, node.dtype)}
    if len(parts) > 1 or (node.op is CAST and not is_complex(node.dtype)):
        return "NumPy computes complex numbers of several dtypes"
    if node.ndim > MOST_AXES:
        return f"the kernel takes at most {MOST_AXES} axes"
    return None


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    same = (i for i, operand in enumerate(node.inputs) if operand.type == node.type)
    return frozenset((i, 0) for i in same if device == "cpu")


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.complex_elementwise import complex_step

    (out,), operands = step.outputs, step.inputs
    types = [Type(value.type.dtype, shape_of(value.type)) for value in operands]
    function, words = complex_step(
        _RESULTS[step.node.op], cells.at(out), [cells.at(value) for value in operands], types,
        Type(out.type.dtype, shape_of(out.type)),
    )  # fmt: skip
    slots = {0: out.slot, 1: operands[0].slot, 2: operands[-1].slot}
    return function, words, cells.dynamic(slots)


COMPLEX_ELEMENTWISE = KernelFamily(
    "complex", takes=_takes, refusal=_refusal, in_place=_in_place, cpu=_cpu
)
