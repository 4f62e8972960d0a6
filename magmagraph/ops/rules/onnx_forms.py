"""How operations are written in ONNX: what records' field `onnx` is made of.

A record names an ONNX operator of the same operands and meaning, or has a rule: ``rule(to, node,
*inputs)`` writes operators through a `Target` and returns the name of its result (a tuple, where
the operation has several). A rule may also write other operations of this library: `Target.nodes`.

Operators are those of opset 21, as https://onnx.ai/onnx/operators/ describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...dtypes import is_bool, is_inexact, is_integer, is_unsigned
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent, Shape, Type

Names = str | tuple[str, ...]
Rule = Callable[..., Names]

_LAST = np.iinfo(np.int64).min + 1  # the end of a slice backwards, up to the first element


class Target(Protocol):
    """What rules write to."""

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator of one result, and return that one's name."""

    def several(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Write an operator of several results."""

    def constant(self, value: Any) -> str:
        """Return the name of an array."""

    def extent(self, extent: Extent) -> str:
        """Return the name of an extent as an int64 scalar."""

    def extents(self, shape: Sequence[Extent]) -> str:
        """Return the name of a shape as an int64 vector."""

    def cast(self, name: str, dtype: np.dtype) -> str:
        """Return the name of a value in another dtype."""

    def node(self, node: Node) -> str:
        """Return the name of another node's value, which is written if it is not yet."""

    def write(
        self, parameters: Sequence[Node], outputs: Sequence[Node], operands: Sequence[str]
    ) -> list[str]:
        """Write a body whose parameters are operands; return the names of its outputs."""

    def graph(
        self, label: str, parameters: Sequence[Type], fill: Callable[[list[str]], Sequence[str]]
    ) -> Any:
        """Return a graph that an operator runs; it sees all names that are written before it."""

    def run(
        self, operator: str, types: Sequence[Type], *inputs: str, **attributes: Any
    ) -> tuple[str, ...]:
        """Write an operator that runs graphs; its results are of these types."""

    def reversed(self, x: str, axis: int) -> str:
        """Return the name of a value turned around along an axis."""

    def refuse(self, node: Node, reason: str) -> Exception:
        """Make (not raise) the error for a node that cannot be written."""


def first(to: Target, node: Node, *inputs: str) -> str:
    """Return the first operand: identities have no operator."""
    return inputs[0]


def item(to: Target, node: Node, *inputs: Any) -> str:
    """Return one of the results of an operation that has several."""
    index = node.attrs["index"]
    if index >= len(inputs[0]):
        raise to.refuse(node, f"result {index} of {node.inputs[0].op.name} is not written")
    result = inputs[0][index]
    assert isinstance(result, str)
    return result


def rewritten(write: Callable[[Node], Node | Sequence[Node]]) -> Rule:
    """Return the rule of an operation that is written with others of this library."""

    def rule(to: Target, node: Node, *inputs: str) -> Names:
        result = write(node)
        parts = [result] if isinstance(result, Node) else result
        names = tuple(map(to.node, parts))
        return names if isinstance(node.type, tuple) else names[0]

    return rule


def with_attributes(operator: str, **attributes: Any) -> Rule:
    """Return the rule of an operator with attributes."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        return to.add(operator, *inputs, **attributes)

    return rule


def negation_of(operator: str) -> Rule:
    """Return the rule of an operation that is true where an operator is not."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        return to.add("Not", to.add(operator, *inputs))

    return rule


def by_dtype(of_bools: str, of_ints: str) -> Rule:
    """Return the rule of an operation on bits, which has another operator for bools."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        return to.add(of_bools if is_bool(node.inputs[0].dtype) else of_ints, *inputs)

    return rule


def ordering(operator: str) -> Rule:
    """Return the rule of a comparison: false is below true."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        if is_bool(node.inputs[0].dtype):
            inputs = tuple(to.cast(name, np.dtype(np.uint8)) for name in inputs)
        return to.add(operator, *inputs)

    return rule


def test_of_floats(operator: str) -> Rule:
    """Return the rule of a property that only floats can have."""

    def rule(to: Target, node: Node, x: str) -> str:
        if is_inexact(node.inputs[0].dtype):
            return to.add(operator, x)
        return to.add("Not", to.add("Equal", x, x))

    return rule


def of_floats(operator: str) -> Rule:
    """Return the rule of an operation that leaves ints as they are."""

    def rule(to: Target, node: Node, *inputs: str) -> str:
        return to.add(operator, *inputs) if is_inexact(node.dtype) else inputs[0]

    return rule


def magnitude(to: Target, node: Node, x: str) -> str:
    """Take the absolute value; bools and unsigned ints have no sign."""
    return x if node.dtype.kind in "bu" else to.add("Abs", x)


def is_finite(to: Target, node: Node, x: str) -> str:
    """Neither NaN nor infinite."""
    if not is_inexact(node.inputs[0].dtype):
        return to.add("Equal", x, x)
    return to.add("Not", to.add("Or", to.add("IsNaN", x), to.add("IsInf", x)))


def truncated(to: Target, node: Node, x: str) -> str:
    """Round toward zero: the magnitude down."""
    if not is_inexact(node.dtype):
        return x
    return to.add("Mul", to.add("Sign", x), to.add("Floor", to.add("Abs", x)))


def floor_divided(to: Target, node: Node, x: str, y: str) -> str:
    """Divide, and round down; ONNX divides ints toward zero."""
    if is_inexact(node.dtype):
        return to.add("Floor", to.add("Div", x, y))
    divisor, none = _not_zero(to, node, y)
    quotient = to.add("Div", to.add("Sub", x, to.add("Mod", x, divisor)), divisor)
    return _zero_where(to, node, none, quotient)


def _not_zero(to: Target, node: Node, y: str) -> tuple[str, str]:
    """Return an integer divisor with ones for zeros, and where these are; "" where none can be."""
    value = node.inputs[1].attrs.get("value")
    if value is not None and np.all(value):
        return y, ""
    none = to.add("Equal", y, to.constant(np.zeros((), node.dtype)))
    return to.add("Where", none, to.constant(np.ones((), node.dtype)), y), none


def _zero_where(to: Target, node: Node, none: str, result: str) -> str:
    """Return a result with zeros where an integer was divided by zero, as NumPy has them."""
    if not none:
        return result
    return to.add("Where", none, to.constant(np.zeros((), node.dtype)), result)


def modulo(to: Target, node: Node, x: str, y: str) -> str:
    """Take the remainder, which has the sign of the divisor."""
    if is_integer(node.dtype):
        divisor, none = _not_zero(to, node, y)
        return _zero_where(to, node, none, to.add("Mod", x, divisor))
    return to.add("Sub", x, to.add("Mul", to.add("Floor", to.add("Div", x, y)), y))


def modulo_of_c(to: Target, node: Node, x: str, y: str) -> str:
    """Take the remainder, which has the sign of the dividend."""
    if not is_integer(node.dtype):
        return to.add("Mod", x, y, fmod=1)
    divisor, none = _not_zero(to, node, y)
    return _zero_where(to, node, none, to.add("Mod", x, divisor, fmod=1))


def shifted(direction: str) -> Rule:
    """Return the rule of a shift of bits.

    ONNX shifts unsigned integers, by less than their width. Signed ones are cast to unsigned ones
    of the same bits; a negative count becomes one that is larger than the width.
    """

    def rule(to: Target, node: Node, x: str, count: str) -> str:
        unsigned = unsigned_dtype(node.dtype)
        width = unsigned.itemsize * 8
        signs = ""
        if direction == "RIGHT" and not is_unsigned(node.dtype):
            # Of a negative number the complement is shifted, so that ones move in.
            signs = _all_bits_where(to, to.add("Less", x, to.constant(np.zeros((), node.dtype))),
                                    unsigned)
        bits, turns = (to.cast(name, unsigned) for name in (x, count))
        bits = to.add("BitwiseXor", bits, signs) if signs else bits
        # In two shifts: by at most width - 1, and by one more where the count is larger.
        most, one = (to.constant(np.asarray(value, unsigned)) for value in (width - 1, 1))
        first = to.add("Min", turns, most)
        second = to.add("Min", to.add("Sub", turns, first), one)
        bits = to.add("BitShift", bits, first, direction=direction)
        bits = to.add("BitShift", bits, second, direction=direction)
        bits = to.add("BitwiseXor", bits, signs) if signs else bits
        return to.cast(bits, node.dtype)

    return rule


def unsigned_dtype(dtype: np.dtype) -> np.dtype:
    """Return the unsigned dtype of the same width."""
    return np.dtype(f"u{dtype.itemsize}")


def _all_bits_where(to: Target, condition: str, unsigned: np.dtype) -> str:
    """Return an unsigned number of ones where a condition holds, and 0 elsewhere."""
    flags = to.cast(condition, unsigned)
    return to.add("Mul", flags, to.constant(np.asarray(np.iinfo(unsigned).max, unsigned)))


def cast(to: Target, node: Node, x: str) -> str:
    """Convert to the node's dtype."""
    return to.cast(x, node.dtype)


# Axes and shapes.


def over_axes(operator: str) -> Rule:
    """Return the rule of a reduction."""

    def rule(to: Target, node: Node, x: str) -> str:
        axes = node.attrs["axes"]
        if not axes:
            return x
        return to.add(operator, x, to.constant(np.asarray(axes, np.int64)), keepdims=0)

    return rule


def truth_over_axes(operator: str) -> Rule:
    """Return the rule of a reduction of bools, by the extremum of zeros and ones."""
    reduce = over_axes(operator)

    def rule(to: Target, node: Node, x: str) -> Names:
        ones = to.cast(x, np.dtype(np.int32))
        result = reduce(to, node, ones)
        assert isinstance(result, str)
        return to.cast(result, node.dtype)

    return rule


def position_over_axes(operator: str) -> Rule:
    """Return the rule of the position of an extremum, counted through several axes."""

    def rule(to: Target, node: Node, x: str) -> str:
        axes = node.attrs["axes"]
        operand = node.inputs[0]
        if len(axes) == 1:
            return to.add(operator, x, axis=axes[0], keepdims=0)
        other_axes = [a for a in range(operand.ndim) if a not in axes]
        rows = to.add("Transpose", x, perm=[*other_axes, *axes])
        shape = to.extents([operand.shape[a] for a in other_axes])
        whole = to.add("Concat", shape, to.constant(np.array([-1], np.int64)), axis=0)
        return to.add(operator, to.add("Reshape", rows, whole), axis=-1, keepdims=0)

    return rule


def reshaped(to: Target, node: Node, x: str) -> str:
    """Give another shape."""
    return to.add("Reshape", x, to.extents(node.shape), allowzero=1)


def transposed(to: Target, node: Node, x: str) -> str:
    """Permute the axes."""
    return to.add("Transpose", x, perm=list(node.attrs["axes"]))


def broadcast(to: Target, node: Node, x: str) -> str:
    """Repeat along axes."""
    return to.add("Expand", x, to.extents(node.shape))


def joined(to: Target, node: Node, *inputs: str) -> str:
    """Join along an axis."""
    return to.add("Concat", *inputs, axis=int(node.attrs["axis"]))


def sliced(to: Target, node: Node, x: str) -> str:
    """Take every step-th element from a start on, as many as the shape says."""
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    ends: list[Extent] = []
    for start, step, extent in zip(starts, steps, node.shape, strict=True):
        end = start + step * extent
        if step < 0 and not isinstance(end, Dim) and end < 0:
            end = _LAST
        elif step < 0 and isinstance(end, Dim):
            raise to.refuse(node, "a slice backwards to an end that the sizes decide")
        ends.append(end)
    axes = to.constant(np.arange(len(starts), dtype=np.int64))
    return to.add("Slice", x, to.extents(starts), to.extents(ends), axes, to.extents(steps))


def placed(to: Target, node: Node, x: str) -> str:
    """Put the operand into an array that is constant elsewhere."""
    attrs = node.attrs
    value = to.constant(np.asarray(attrs["value"], node.dtype))
    extents = list(node.inputs[0].shape)
    starts: list[Extent] = list(attrs["starts"])
    for axis, step in enumerate(attrs["steps"]):
        if step < 0:  # the same places, counted from the other end
            starts[axis] = starts[axis] + (extents[axis] - 1) * step
            x = to.reversed(x, axis)
        if abs(step) > 1:
            x = _apart(to, x, extents, axis, abs(step), value)
            extents[axis] = extents[axis] * abs(step)
    # Below zero where elements are taken away: what stands behind the last one that is placed.
    ends = [w - s - e for w, s, e in zip(node.shape, starts, extents, strict=True)]
    return to.add("Pad", x, to.extents([*starts, *ends]), value)


def _apart(
    to: Target, x: str, extents: Sequence[Extent], axis: int, step: int, value: str
) -> str:
    """Insert constants between the elements along an axis, and after the last."""
    before, count, after = extents[:axis], extents[axis], extents[axis + 1 :]
    column = to.add("Reshape", x, to.extents([*before, count, 1, *after]), allowzero=1)
    pads = np.zeros(2 * (len(extents) + 1), np.int64)
    pads[len(extents) + 1 + axis + 1] = step - 1
    wide = to.add("Pad", column, to.constant(pads), value)
    return to.add("Reshape", wide, to.extents([*before, count * step, *after]), allowzero=1)


# Positions.


def gathered(to: Target, node: Node, x: str, positions: str) -> str:
    """Take elements at positions along an axis; positions out of range are clipped or wrap."""
    axis = node.attrs["axis"]
    index_node = node.inputs[1]
    if "value" not in index_node.attrs or node.attrs["mode"] == "wrap":
        positions = _settled(to, node, positions, node.inputs[0].shape[axis])
    elif index_node.dtype.kind == "u" or index_node.dtype.itemsize < 4:
        positions = to.cast(positions, np.dtype(np.int64))
    return to.add("Gather", x, positions, axis=axis)


def _settled(to: Target, node: Node, positions: str, extent: Extent) -> str:
    wide = to.cast(positions, np.dtype(np.int64))
    count, zero = to.extent(extent), to.constant(np.int64(0))
    if node.attrs["mode"] == "wrap":
        return to.add("Mod", wide, count)
    counted = to.add("Where", to.add("Less", wide, zero), to.add("Add", wide, count), wide)
    last = to.add("Sub", count, to.constant(np.int64(1)))
    return to.add("Min", to.add("Max", counted, zero), last)


_REDUCTIONS = {"add": "add", "multiply": "mul", "min": "min", "max": "max"}


def updated(to: Target, node: Node, x: str, positions: str, values: str) -> str:
    """Set, add, multiply or compare rows at positions along the first axis."""
    array, index_node, _ = node.inputs
    if index_node.size == 0:
        return x
    if is_bool(array.dtype) and node.attrs["how"] != "set":
        raise to.refuse(node, f"{node.attrs['how']} of bools")
    settled = _settled(to, node, positions, array.shape[0])
    places = to.add("Reshape", settled, to.constant(np.array([-1, 1], np.int64)))
    rest = array.shape[1:]
    one = to.constant(np.array([-1], np.int64))
    lines = to.add("Concat", one, to.extents(rest), axis=0)
    rows = to.add("Reshape", values, lines)
    how = node.attrs["how"]
    if how != "set":
        return to.add("ScatterND", x, places, rows, reduction=_REDUCTIONS[how])
    # Of equal positions the last one stays: ScatterND says nothing of these, so that the last is
    # found first, by a maximum.
    count = to.extent(index_node.size)
    zero, step = to.constant(np.int64(0)), to.constant(np.int64(1))
    none = to.add("Expand", to.constant(np.int64(-1)), to.extents(array.shape[:1]))
    turns = to.add("Range", zero, count, step)
    last = to.add("ScatterND", none, places, turns, reduction="max")
    row = to.add("Gather", rows, to.add("Max", last, zero), axis=0)
    line = to.extents((array.shape[0], *[1] * len(rest)))
    written = to.add("Reshape", to.add("GreaterOrEqual", last, zero), line)
    return to.add("Where", written, row, x)


def nonzero_positions(to: Target, node: Node, mask: str) -> str:
    """Find the first positions of true elements, filled with the number of all elements.

    The least of positions and that number are taken: no extent depends on the data, as it would
    with NonZero.
    """
    count = to.extent(node.inputs[0].shape[0])
    size = to.extents((node.attrs["size"],))
    zero, one = to.constant(np.int64(0)), to.constant(np.int64(1))
    places = to.add("Where", mask, to.add("Range", zero, count, one), count)
    both = to.add("Concat", places, to.add("Expand", count, size), axis=0)
    return to.several("TopK", 2, both, size, axis=0, largest=0, sorted=1)[0]


def counted_below(to: Target, node: Node, line: str, values: str) -> str:
    """Count the elements of a sorted line before each value."""
    dtype = node.inputs[0].dtype
    less = "Less" if node.attrs["side"] == "left" else "LessOrEqual"
    if is_bool(dtype):
        line, values = (to.cast(name, np.dtype(np.int32)) for name in (line, values))
    apart = to.add("Unsqueeze", values, to.constant(np.array([-1], np.int64)))
    before = to.add(less, line, apart)
    if is_inexact(dtype):  # NaN sorts after all numbers
        nan = to.add("IsNaN", apart)
        if node.attrs["side"] == "left":
            nan = to.add("And", nan, to.add("Not", to.add("IsNaN", line)))
        before = to.add("Or", before, nan)
    ones = to.cast(before, np.dtype(np.int64))
    return to.add("ReduceSum", ones, to.constant(np.array([-1], np.int64)), keepdims=0)


def scattered(to: Target, node: Node, values: str, positions: str) -> str:
    """Add values into zeros at positions along an axis."""
    axis, index_node = node.attrs["axis"], node.inputs[1]
    rows = node.inputs[0]
    inner, outer = rows.shape[axis + index_node.ndim :], rows.shape[:axis]
    order = [
        *range(axis, axis + index_node.ndim),
        *range(axis),
        *range(axis + index_node.ndim, rows.ndim),
    ]
    if axis:
        values = to.add("Transpose", values, perm=order)
    settled = _settled(to, node, positions, node.attrs["extent"])
    places = to.add("Reshape", settled, to.constant(np.array([-1, 1], np.int64)))
    lines = to.add("Concat", to.constant(np.array([-1], np.int64)), to.extents((*outer, *inner)),
                   axis=0)
    flat = to.add("Reshape", values, lines)
    shape = to.extents((node.attrs["extent"], *outer, *inner))
    zeros = to.add("Expand", to.constant(np.zeros((), node.dtype)), shape)
    added = to.add("ScatterND", zeros, places, flat, reduction="add")
    if not axis:
        return added
    back = [*range(1, axis + 1), 0, *range(axis + 1, node.ndim)]
    return to.add("Transpose", added, perm=back)


def positions(to: Target, node: Node) -> str:
    """Each element's position along an axis."""
    axis, shape = node.attrs["axis"], node.shape
    zero, one = to.constant(np.int64(0)), to.constant(np.int64(1))
    line = to.cast(to.add("Range", zero, to.extent(shape[axis]), one), node.dtype)
    beside: Shape = tuple(-1 if a == axis else 1 for a in range(len(shape)))
    return to.add("Expand", to.add("Reshape", line, to.extents(beside)), to.extents(shape))


def scanned(operator: str) -> Rule:
    """Return the rule of partial sums along an axis."""

    def rule(to: Target, node: Node, x: str) -> str:
        axis = to.constant(np.int64(node.attrs["axis"]))
        return to.add(operator, x, axis, reverse=int(node.attrs["reverse"]))

    return rule


def ordered(which: int) -> Rule:
    """Return the rule of sorting: the elements (0) or their positions (1)."""

    def rule(to: Target, node: Node, x: str) -> str:
        axis = node.attrs["axis"]
        operand = node.inputs[0]
        wide = x
        if is_bool(operand.dtype):
            wide = to.cast(x, np.dtype(np.int32))
        count = to.extents((operand.shape[axis],))
        result = to.several("TopK", 2, wide, count, axis=axis, largest=0, sorted=1)[which]
        return to.cast(result, node.dtype) if is_bool(node.dtype) else result

    return rule


def first_ordered(to: Target, node: Node, x: str) -> str:
    """The first positions of an order."""
    if is_bool(node.inputs[0].dtype):
        x = to.cast(x, np.dtype(np.int32))
    axis, largest = node.attrs["axis"], int(node.attrs["largest"])
    count = to.extents((node.attrs["count"],))
    return to.several("TopK", 2, x, count, axis=axis, largest=largest, sorted=1)[1]


def extent(to: Target, node: Node) -> str:
    """The size of a dimension."""
    return to.extent(node.attrs["dim"])
