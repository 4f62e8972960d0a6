"""Rules of layout: moves that undo each other, copies that nothing needs."""

from __future__ import annotations

import numpy as np

from ...codegen.cuda.ordering_code import selects
from ...dtypes import is_complex
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.op import Kind
from ...ir.types import Extent, Shape
from ...ops.convert import as_node, cast
from ...ops.elementwise.arithmetic import MULTIPLY, subtract
from ...ops.indexing.gathering import permuted, size_of
from ...ops.indexing.iota import INT64
from ...ops.indexing.sorting import ARGSORT, FIRST_ORDERED, SORT
from ...ops.leaf import CONSTANT, constant, extent
from ...ops.reduction.primitives import SUM
from ...ops.shape.arrange import RESHAPE, TRANSPOSE, reshape, transpose
from ...ops.shape.joining import BROADCAST_TO, CONCATENATE
from ...ops.shape.pieces import flip
from ...ops.shape.slicing import PLACE, SLICE
from ..rewriting.build import spread
from ..rewriting.rewrite import Match, Rule
from .constants import constant_of


def moved(node: Node) -> Node | None:
    """Return a simpler node for one layout operation, or None; used by other rules too."""
    op = node.op
    source = node.inputs[0]
    if op is not CONCATENATE and source.type == node.type and _keeps_order(node):
        return source
    if op is RESHAPE:
        if source.op is BROADCAST_TO and all(is_one(e) for e in source.inputs[0].shape):
            return spread(reshape(source.inputs[0], ()), node.shape)
        if source.op is BROADCAST_TO:
            return _reshaped_repeats(node, source)
        return reshape(source.inputs[0], node.shape) if source.op is RESHAPE else None
    if op is TRANSPOSE:
        return _transposed(node, source)
    if op is BROADCAST_TO:
        return _broadcast(node, source)
    if op is SLICE and source.op is SLICE:
        return _sliced_twice(node, source)
    if op is SLICE and source.op is BROADCAST_TO:
        return _sliced_repeats(node, source)
    if op is PLACE and source.shape == node.shape and set(node.attrs["steps"]) <= {1, -1}:
        # Nothing is left around the piece: its axes are reversed, or not.
        starts, steps = node.attrs["starts"], node.attrs["steps"]
        return SLICE(source, starts=starts, steps=steps, shape=node.shape)
    if op is SLICE and source.op is PLACE:
        same = all(node.attrs[k] == source.attrs[k] for k in ("starts", "steps"))
        return source.inputs[0] if same and source.inputs[0].shape == node.shape else None
    if op is CONCATENATE:
        return source if len(node.inputs) == 1 else _joined_pieces(node)
    return None


def _keeps_order(node: Node) -> bool:
    """Return whether a layout operation that keeps the type keeps every element's place."""
    if node.op is TRANSPOSE:
        axes: tuple[int, ...] = node.attrs["axes"]
        return axes == tuple(sorted(axes))
    if node.op in (SLICE, PLACE):
        return all(_is_zero(s) for s in node.attrs["starts"]) and set(
            node.attrs["steps"]
        ) <= {1}
    return node.op in (RESHAPE, BROADCAST_TO)


def is_one(extent_: Extent) -> bool:
    """Return whether an extent is the literal 1."""
    return type(extent_) is int and extent_ == 1


def _transposed(node: Node, source: Node) -> Node | None:
    axes: tuple[int, ...] = node.attrs["axes"]
    if source.op is TRANSPOSE:
        inner = source.attrs["axes"]
        return transpose(source.inputs[0], tuple(inner[a] for a in axes))
    if source.op is BROADCAST_TO:
        inner = source.inputs[0]
        lead = source.ndim - inner.ndim
        full = reshape(inner, (*(1 for _ in range(lead)), *inner.shape))
        return spread(transpose(full, axes), node.shape)
    # Where only axes of extent 1 change places, no element does.
    moving = [a for a in axes if not is_one(source.shape[a])]
    if moving == sorted(moving):
        return reshape(source, node.shape)
    return None


def _broadcast(node: Node, source: Node) -> Node | None:
    if source.op is BROADCAST_TO:
        return spread(source.inputs[0], node.shape)
    if source.op is RESHAPE:
        # Leading extents of 1 are added by broadcasting itself.
        inner = source.inputs[0]
        lead = source.ndim - inner.ndim
        if lead > 0 and source.shape[lead:] == inner.shape and all(
            is_one(e) for e in source.shape[:lead]
        ):
            return spread(inner, node.shape)
    return None


def _reshaped_repeats(node: Node, source: Node) -> Node | None:
    """Equal elements are equal however the axes along which they repeat are arranged."""
    inner = source.inputs[0]
    full = (*(1 for _ in range(source.ndim - inner.ndim)), *inner.shape)
    kept = 0
    for before, after in zip(source.shape, node.shape, strict=False):
        if before != after:
            break
        kept += 1
    if not all(is_one(e) for e in full[kept:]):
        return None
    ones = (1 for _ in range(node.ndim - kept))
    return spread(reshape(inner, (*full[:kept], *ones)), node.shape)


def _sliced_repeats(node: Node, source: Node) -> Node | None:
    """A piece of equal elements is fewer of them."""
    inner = source.inputs[0]
    lead = source.ndim - inner.ndim
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    for axis, extent_ in enumerate(inner.shape):
        whole = steps[lead + axis] == 1 and node.shape[lead + axis] == source.shape[lead + axis]
        if not is_one(extent_) and not (whole and _is_zero(starts[lead + axis])):
            return None
    return spread(inner, node.shape)


def _is_zero(extent_: Extent) -> bool:
    return type(extent_) is int and extent_ == 0


def _joined_pieces(node: Node) -> Node | None:
    """Pieces of one array that follow each other are one piece, or the array."""
    axis: int = node.attrs["axis"]
    first = node.inputs[0]
    if first.op is not SLICE:
        return None
    source = first.inputs[0]
    at = first.attrs["starts"][axis]
    for piece in node.inputs:
        if piece.op is not SLICE or piece.inputs[0] is not source:
            return None
        starts, steps = piece.attrs["starts"], piece.attrs["steps"]
        if starts[axis] != at or steps[axis] != 1 or steps != first.attrs["steps"]:
            return None
        if any(a != b for i, (a, b) in enumerate(zip(starts, first.attrs["starts"], strict=True))
               if i != axis):
            return None
        at = at + piece.shape[axis]
    whole = SLICE(
        source, starts=first.attrs["starts"], steps=first.attrs["steps"], shape=node.shape
    )
    simpler = moved(whole)
    return whole if simpler is None else simpler


def _sliced_twice(node: Node, source: Node) -> Node:
    starts: list[Extent] = []
    steps: list[int] = []
    for s0, d0, s1, d1 in zip(
        source.attrs["starts"],
        source.attrs["steps"],
        node.attrs["starts"],
        node.attrs["steps"],
        strict=True,
    ):
        starts.append(s0 + d0 * s1)
        steps.append(d0 * d1)
    return SLICE(source.inputs[0], starts=tuple(starts), steps=tuple(steps), shape=node.shape)


def _move(match: Match) -> Node | None:
    return moved(match.root)


def _narrow(match: Match) -> Node | None:
    """Remove broadcasts before elementwise operations, which broadcast their operands."""
    node = match.root
    if node.op.kind is not Kind.ELEMENTWISE:
        return None
    for operand in node.inputs:
        if operand.op is BROADCAST_TO or (
            operand.op is CONSTANT and operand.ndim and _is_uniform(operand)
        ):
            break
    else:
        return None
    inputs = [_narrowed(operand) for operand in node.inputs]
    result = node.op(*inputs, **node.attrs)
    if result.type == node.type:
        return result
    return spread(result, node.shape)


def _is_uniform(node: Node) -> bool:
    value = node.attrs["value"]
    if value.size < 2:
        return False
    first = value.reshape(-1)[0]
    if not bool((value == first).all()):
        return False
    return bool(first != 0) or all(
        bool((np.signbit(part) == np.signbit(one)).all())
        for part, one in ((value.real, first.real), (value.imag, first.imag))
    )


def _narrowed(node: Node) -> Node:
    if node.op is BROADCAST_TO:
        return node.inputs[0]
    if node.op is CONSTANT and node.ndim and _is_uniform(node):
        return constant_of(node.attrs["value"].reshape(-1)[0])
    return node


def _looks(node: Node) -> bool:
    for operand in node.inputs:
        if operand.op is BROADCAST_TO or (operand.op is CONSTANT and operand.ndim):
            return node.op.kind is Kind.ELEMENTWISE
    return False


NARROW = Rule("no broadcast before elementwise operations", (), _narrow, looks=_looks, complex=True)


# Sums over axes.


def _count(shape: Shape, axes: tuple[int, ...], node: Node) -> Node:
    """Return how many elements a sum folds into one, as a scalar of the node's dtype."""
    total: Extent = 1
    for a in axes:
        total = total * shape[a]
    if isinstance(total, Dim):
        return cast(extent(total), node.dtype)
    return constant(total, dtype=node.dtype)


def _sum(match: Match) -> Node | None:
    node = match.root
    source = node.inputs[0]
    axes: tuple[int, ...] = node.attrs["axes"]
    if not axes:
        return source
    ones = tuple(a for a in axes if is_one(source.shape[a]))
    if ones:
        left = tuple(e for a, e in enumerate(source.shape) if a not in ones)
        rest = tuple(
            position
            for position, a in enumerate(a for a in range(source.ndim) if a not in ones)
            if a in axes
        )
        return SUM(reshape(source, left), axes=rest) if rest else reshape(source, left)
    if source.op is SUM and match.reads(source) == 1:
        return SUM(source.inputs[0], axes=_joined(source, axes))
    if source.op is BROADCAST_TO:
        if is_complex(source.dtype):
            return None  # a complex product is NaN where one part alone is infinite
        return _sum_of_repeated(node, source, axes)
    if source.op is TRANSPOSE:
        return _sum_of_transposed(node, source, axes)
    if source.op is RESHAPE and len(axes) == source.ndim:
        # The sum of all elements does not see their shape; extents of 1 are left out of it.
        inner = source.inputs[0]
        shape = tuple(e for e in inner.shape if not is_one(e))
        if shape != source.shape:
            return SUM(reshape(inner, shape), axes=tuple(range(len(shape))))
    if source.op is RESHAPE:
        return _sum_of_reshaped(source, axes)
    if source.op is SLICE:
        return _sum_of_reversed(source, axes)
    return None


def _sum_of_reshaped(source: Node, axes: tuple[int, ...]) -> Node | None:
    """Ignore a reshape of the trailing axes in a sum over all of them."""
    inner = source.inputs[0]
    kept = source.ndim - len(axes)
    if axes != tuple(range(kept, source.ndim)) or not 0 < kept < inner.ndim:
        return None
    if inner.shape[:kept] != source.shape[:kept]:
        return None
    if tuple(e for e in inner.shape[kept:] if not is_one(e)) == source.shape[kept:]:
        return None  # leaving extents of 1 out of a sum makes such a reshape
    return SUM(inner, axes=tuple(range(kept, inner.ndim)))


def _sum_of_reversed(source: Node, axes: tuple[int, ...]) -> Node | None:
    """A sum does not see that its axes are reversed."""
    inner = source.inputs[0]
    starts, steps = list(source.attrs["starts"]), list(source.attrs["steps"])
    turned = [a for a in axes if steps[a] == -1 and inner.shape[a] == source.shape[a]]
    if not turned:
        return None
    for a in turned:
        starts[a], steps[a] = 0, 1
    straight = SLICE(inner, starts=tuple(starts), steps=tuple(steps), shape=source.shape)
    simpler = moved(straight)
    return SUM(straight if simpler is None else simpler, axes=axes)


def _joined(inner: Node, outer: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that two sums, one of the other, reduce together."""
    first: tuple[int, ...] = inner.attrs["axes"]
    left = [a for a in range(inner.inputs[0].ndim) if a not in first]
    return tuple(sorted((*first, *(left[a] for a in outer))))


def _sum_of_repeated(node: Node, source: Node, axes: tuple[int, ...]) -> Node | None:
    """The sum of n equal elements is n times the element."""
    inner = source.inputs[0]
    lead = source.ndim - inner.ndim
    repeated = tuple(
        a
        for a in axes
        if a < lead or (is_one(inner.shape[a - lead]) and not is_one(source.shape[a]))
    )
    if not repeated:
        return None
    # The repeated axes that are summed go; others may still be repeated.
    shape = tuple(e for a, e in enumerate(source.shape) if a not in repeated)
    squeezed = tuple(e for a, e in enumerate(inner.shape) if a + lead not in repeated)
    value = spread(reshape(inner, squeezed), shape)
    rest = tuple(
        position
        for position, a in enumerate(a for a in range(source.ndim) if a not in repeated)
        if a in axes
    )
    if rest:
        value = SUM(value, axes=rest)
    return MULTIPLY(value, _count(source.shape, repeated, node))


def _sum_of_transposed(node: Node, source: Node, axes: tuple[int, ...]) -> Node | None:
    order: tuple[int, ...] = source.attrs["axes"]
    inner = source.inputs[0]
    reduced = tuple(sorted(order[a] for a in axes))
    result = SUM(inner, axes=reduced)
    left = [a for a in range(inner.ndim) if a not in reduced]
    order_after = [order[a] for a in range(source.ndim) if a not in axes]
    return transpose(result, tuple(left.index(a) for a in order_after))


# The ends of an order.


def _first_of_order(match: Match) -> Node | None:
    """The first or last positions that sort need no order of the others."""
    node = match.root
    order = node.inputs[0]
    if order.op not in (ARGSORT, FIRST_ORDERED, SORT) or match.reads(order) > 1:
        return None
    axis: int = order.attrs["axis"]
    starts, steps = list(node.attrs["starts"]), list(node.attrs["steps"])
    extent_, count = order.shape[axis], node.shape[axis]
    start, step = starts.pop(axis), steps.pop(axis)
    whole = (*order.shape[:axis], count, *order.shape[axis + 1 :])
    if node.shape != whole or not all(map(_is_zero, starts)) or set(steps) - {1}:
        return None
    (x,) = order.inputs
    if _is_zero(start) and step == 1 and order.op is not SORT:
        largest, backward = (bool(order.attrs.get(key)) for key in ("largest", "backward"))
        return FIRST_ORDERED(x, axis=axis, count=count, largest=largest, backward=backward)
    if match.options.target.device == "cpu" or order.op is FIRST_ORDERED:
        return None
    if not isinstance(extent_, int) or not isinstance(count, int):
        return None
    at_end = start == extent_ - (count if step == 1 else 1)
    at_front = start == (0 if step == 1 else count - 1)
    if step not in (1, -1) or not (at_front or at_end):
        return None
    if order.op is SORT and not (axis == x.ndim - 1 and selects(x.dtype.name, extent_, count)):
        return None  # positions take twice the memory, and the elements are read once more
    found = FIRST_ORDERED(x, axis=axis, count=count, largest=at_end, backward=at_end)
    if order.op is SORT:
        found = permuted(x, found, axis)
    return flip(found, axis) if at_end == (step == 1) else found


def _first_of_reversed(match: Match) -> Node | None:
    """Positions in reversed lines are those in the lines, from the end: no reversed copy."""
    node = match.root
    (x,), axis = node.inputs, node.attrs["axis"]
    if match.options.target.device == "cpu" or x.op is not SLICE or x.shape != x.inputs[0].shape:
        return None
    if any(step != (-1 if a == axis else 1) for a, step in enumerate(x.attrs["steps"])):
        return None
    attrs = {**node.attrs, "backward": not node.attrs["backward"]}
    places = FIRST_ORDERED(x.inputs[0], **attrs)
    return subtract(as_node(size_of(x.shape[axis] - 1), INT64), places)


RULES: tuple[Rule, ...] = (
    Rule("find the first of an order alone", (SLICE,), _first_of_order),
    Rule("find the first of reversed lines in the lines", (FIRST_ORDERED,), _first_of_reversed),
    Rule(
        "cancel or join layout operations",
        (RESHAPE, TRANSPOSE, BROADCAST_TO, SLICE, PLACE, CONCATENATE),
        _move,
        complex=True,
    ),
    Rule("simplify a sum", (SUM,), _sum, complex=True),
)

__all__ = ["NARROW", "RULES", "is_one", "moved"]
