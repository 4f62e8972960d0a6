"""What `distribute` does with each sort of operation, by word, kind and batching of its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_inexact
from ...ir import dims
from ...ir.graph import Node
from ...ir.op import Effect, Kind
from ...ir.types import Extent
from ...ops.collective.rows import ALLGATHER, REDUCE_SCATTER
from ...ops.collective.timed import ALLGATHER_WHEN, REDUCE_SCATTER_WHEN
from ...ops.leaf import input
from ...ops.rules.sharding import SUM as SUMMED
from ...ops.rules.sharding import NotSharded
from .bodies import BODIES
from .layouts import MICRO, SUM, WHOLE, Layout, Way, parts
from .places import PLACES
from .reductions import REDUCTIONS, reduced
from .walk import Rule, Walk, again, as_sum, is_zero

__all__ = ["WORDS", "rule_of"]

INT64 = np.dtype(np.int64)
Made = tuple[Any, Any]


def rule_of(node: Node) -> Rule:
    """Return what makes a node again on parts."""
    word = node.op.sharding
    if node.op.kind is Kind.COLLECTIVE and callable(word):
        return _among_others
    if callable(word):
        return _by_record
    if word:
        return {**WORDS, **PLACES, **BODIES}[word]
    if node.op.effect is Effect.ORDERED:
        return _observed
    if node.op.kind is Kind.CONTROL and node.op.layout.alias:
        return _identity
    if node.op.effect is Effect.RANDOM and node.op.kind is Kind.RANDOM:
        return PLACES["drawn"]
    rule = _BY_KIND.get(node.op.kind)
    if rule is not None:
        return rule
    return {"axes": _along_axes, "leading": _leading}.get(str(node.op.batching), _refused)


def _refused(walk: Walk, node: Node) -> Made:
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    raise NotSharded(
        "it works on all rows together"
        if any(layout.way is Way.PARTS for layout in walk.layouts(node))
        else "a rank does not know its extent"
    )


# ---- Sums over ranks that are not taken yet


def _stays_apart(walk: Walk, node: Node, layouts: Sequence[Layout]) -> bool:
    """Return whether the sum over ranks may be taken after a node instead of before it."""
    sums = [i for i, layout in enumerate(layouts) if layout.way is Way.SUM]
    if not sums or isinstance(node.type, tuple):
        return False
    for i in sums:
        operand = node.inputs[i]
        read_once = walk.readers.get(operand, 0) < 2 or walk.kept_apart(operand)
        holds = _holds(node.dtype, operand.dtype) or walk.kept_apart(operand)
        if not read_once or operand.size != node.size or not holds:
            return False
    others = [i for i in range(len(layouts)) if i not in sums]
    word = node.op.sharding
    if word == "linear":
        return all(is_zero(node.inputs[i]) for i in others)
    if word == "product":
        return len(sums) == 1 and all(layouts[i].way is Way.WHOLE for i in others)
    if word == "quotient":
        return sums == [0] and layouts[1].way is Way.WHOLE
    if word == "select":
        return layouts[0].way is Way.WHOLE and all(
            i == 0 or is_zero(node.inputs[i]) for i in others
        )
    return False


def _holds(result: np.dtype, operand: np.dtype) -> bool:
    """Return whether a conversion loses nothing that a sum would need."""
    if is_inexact(result) != is_inexact(operand):
        return is_inexact(result)
    return result.itemsize >= operand.itemsize


def _left_apart(walk: Walk, node: Node) -> Made:
    return again(node, tuple(walk.value[operand] for operand in node.inputs)), SUM


def operands_of(walk: Walk, node: Node) -> tuple[Node, ...]:
    """Return the operands with all sums over ranks taken."""
    return tuple(map(walk.complete, node.inputs))


# ---- Element by element


def _elementwise(walk: Walk, node: Node) -> Made:
    layouts = walk.layouts(node)
    if _stays_apart(walk, node, layouts):
        return _left_apart(walk, node)
    if node in walk.apart and {layout.way for layout in layouts} == {Way.SUM, Way.WHOLE}:
        # A penalty's gradient, say, beside that of rows: one rank adds it to its own.
        return again(node, tuple(as_sum(walk, operand) for operand in node.inputs)), SUM
    return again(node, operands_of(walk, node)), met(walk, node, layouts)


def met(walk: Walk, node: Node, layouts: Sequence[Layout]) -> Layout:
    """Return the layout of operands that are broadcast against each other."""
    cut = [
        (node.ndim - operand.ndim + layout.axis, layout.outer)
        for operand, layout in zip(node.inputs, layouts, strict=True)
        if layout.way is Way.PARTS
    ]
    if not cut:
        if walk.sharded.axes(node.type):
            raise NotSharded("a rank does not know which rows are its own")
        return WHOLE
    axes = {axis for axis, _ in cut}
    if len(axes) > 1 or walk.sharded.axes(node.type) != (cut[0][0],):
        raise NotSharded(
            "it meets the dimension along two axes: rows of other ranks would be needed"
        )
    (axis,) = axes
    same, outer = walk.sharded.joined(way for _, way in cut)
    if not same:
        raise NotSharded("rows of its operands stand in different orders")
    for operand, layout in zip(node.inputs, layouts, strict=True):
        place = axis - (node.ndim - operand.ndim)
        if layout.way is not Way.PARTS and place >= 0 and operand.shape[place] != 1:
            raise NotSharded(
                f"an operand has {operand.shape[place]} rows on every rank, beside a rank's own",
                "an input of the dimension, or an extent of 1",
            )
    return _known(walk, node, parts(axis, outer))


def _known(walk: Walk, node: Node, layout: Layout) -> Layout:
    """Return a layout with the order of rows, where there is one order only."""
    if layout.outer is None and node.shape[layout.axis] == walk.sharded.dim:
        return parts(layout.axis)
    return layout


def _identity(walk: Walk, node: Node) -> Made:
    first = node.inputs[0]
    value = (walk.value[first], *(walk.complete(other) for other in node.inputs[1:]))
    return again(node, value), walk.layouts(node)[0]


def _observed(walk: Walk, node: Node) -> Made:
    return again(node, operands_of(walk, node)), walk.layouts(node)[0]


# ---- By the record


def _by_record(walk: Walk, node: Node) -> Made:
    """Follow the record's own rule."""
    layouts = walk.layouts(node)
    copy = again(node, operands_of(walk, node))
    cut = [layout for layout in layouts if layout.way is Way.PARTS]
    if not cut:
        if walk.sharded.axes(node.type):
            raise NotSharded("a rank does not know which rows are its own")
        return copy, WHOLE
    same, outer = walk.sharded.joined(layout.outer for layout in cut)
    if not same:
        raise NotSharded("rows of its operands stand in different orders")
    assert callable(node.op.sharding)
    result = node.op.sharding(
        node, [layout.axis if layout.way is Way.PARTS else None for layout in layouts]
    )
    if result == SUMMED:
        return copy, SUM
    assert isinstance(result, int)
    if walk.sharded.axes(node.type) != (result,):
        raise NotSharded("rows of other ranks would be needed")
    return copy, parts(result, outer)


def _among_others(walk: Walk, node: Node) -> Made:
    """Make a collective again that ranks of another group call, each on its rows."""
    group, own = node.attrs["group"], walk.facts.group
    if own == MICRO:
        return _by_record(walk, node)
    if not group or not own or set(group) & set(own):
        raise NotSharded("it speaks to ranks that have other rows")
    return _by_record(walk, node)


# ---- Along other axes


def _all_cut(walk: Walk, node: Node) -> tuple[int, Extent | None]:
    """Return the one axis that all operands are cut along, and the order of rows."""
    layouts = walk.layouts(node)
    axes = {layout.axis for layout in layouts if layout.way is Way.PARTS}
    for operand, layout in zip(node.inputs, layouts, strict=True):
        if layout.way is not Way.PARTS and operand.ndim:
            raise NotSharded("some of its operands have all rows on every rank")
    if len(axes) != 1:
        raise NotSharded("its operands are cut along different axes")
    same, outer = walk.sharded.joined(layout.outer for layout in layouts if layout.axis >= 0)
    if not same:
        raise NotSharded("rows of its operands stand in different orders")
    return axes.pop(), outer


def _along_axes(walk: Walk, node: Node) -> Made:
    """Make again what works along axes that its attributes name, on rows for themselves."""
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    axis, outer = _all_cut(walk, node)
    rank = max(operand.ndim for operand in node.inputs)
    for name in ("axis", "axes"):
        named = node.attrs.get(name, ())
        if axis in [a % rank for a in ((named,) if isinstance(named, int) else named)]:
            raise NotSharded(
                f"it works along axis {axis}, whose rows are spread over the ranks",
                "do it in NumPy, before the rows are fed, or in a function without distribute=",
            )
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    if any(walk.sharded.axes(t) != (axis,) for t in types):
        raise NotSharded("rows of other ranks would be needed")
    copy = again(node, operands_of(walk, node))
    layout = parts(axis, outer)
    return copy, (layout,) * len(types) if isinstance(node.type, tuple) else layout


def _leading(walk: Walk, node: Node) -> Made:
    """Make again what treats its leading axes as a batch: the axis can be left out then."""
    if walk.reads_no_rows(node):
        return walk.of_sums(node)
    axis, outer = _all_cut(walk, node)
    leaves = [
        input("part", _without(operand.shape, axis), operand.dtype) for operand in node.inputs
    ]
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    try:
        inferred, _ = node.op.infer(tuple(leaves), node.attrs)
    except ValueError:
        inferred = ()
    listed = inferred if isinstance(inferred, tuple) else (inferred,)
    expected = [(t.dtype, _without(t.shape, axis)) for t in types]
    if [(t.dtype, t.shape) for t in listed] != expected:
        raise NotSharded(f"axis {axis} is none of its batch")
    copy = again(node, operands_of(walk, node))
    layout = parts(axis, outer)
    return copy, (layout,) * len(types) if isinstance(node.type, tuple) else layout


def _without(shape: Sequence[Extent], axis: int) -> tuple[Extent, ...]:
    return tuple(e for i, e in enumerate(shape) if i != axis)


# ---- Other shapes


def _transpose(walk: Walk, node: Node) -> Made:
    (layout,) = walk.layouts(node)
    if layout.way is Way.SUM:
        return _left_apart(walk, node)
    copy = again(node, operands_of(walk, node))
    return copy, parts(node.attrs["axes"].index(layout.axis), layout.outer)


def _broadcast(walk: Walk, node: Node) -> Made:
    (operand,) = node.inputs
    layouts = walk.layouts(node)
    copy = again(node, operands_of(walk, node))
    axes = walk.sharded.axes(node.type)
    if layouts[0].way is not Way.PARTS and axes:
        place = axes[0] - (node.ndim - operand.ndim)
        if len(axes) > 1 or (place >= 0 and operand.shape[place] != 1):
            raise NotSharded("rows of other ranks would be needed")
        if walk.sharded.times(node.shape[axes[0]]) is None:
            raise NotSharded(f"no rank has a part of {node.shape[axes[0]]} rows")
        return copy, _known(walk, node, parts(axes[0], None))
    return copy, met(walk, node, layouts)


def _reshape(walk: Walk, node: Node) -> Made:
    (layout,) = walk.layouts(node)
    if layout.way is Way.SUM:
        return _left_apart(walk, node)
    copy = again(node, operands_of(walk, node))
    if layout.way is not Way.PARTS:
        raise NotSharded("a rank does not know which rows are its own")
    return copy, reshaped(walk, node.inputs[0].shape, node.shape, layout)


def reshaped(
    walk: Walk, before: Sequence[Extent], after: Sequence[Extent], layout: Layout
) -> Layout:
    """Return where the dimension is once an array has another shape.

    In row-major order the dimension is one factor of the elements; what stands before it and behind
    it stays as many.
    """
    candidates = [i for i, extent in enumerate(after) if walk.sharded.in_extent(extent)]
    if len(candidates) != 1:
        raise NotSharded("it splits the dimension over several axes")
    (axis,) = candidates
    if layout.outer is None:
        return parts(axis, None)
    major = dims.size(tuple(before[: layout.axis])) * layout.outer
    outer = dims.exact_divide(major, dims.size(tuple(after[:axis])), [])
    times = walk.sharded.times(after[axis])
    if outer is None or times is None or dims.exact_divide(times, outer, []) is None:
        raise NotSharded(
            "a rank's rows do not stay together",
            "a reshape that keeps the dimension as an axis, or joins it with others whole",
        )
    return parts(axis, outer)


def _window(walk: Walk, node: Node) -> Made:
    (layout,) = walk.layouts(node)
    source, attrs = node.inputs[0], node.attrs
    if layout.way is Way.SUM and not attrs.get("value", 0) and walk.readers.get(source, 0) < 2:
        small = source.size if "value" in attrs else node.size
        if isinstance(small, int):
            return _left_apart(walk, node)
    copy = again(node, operands_of(walk, node))
    if layout.way is not Way.PARTS:
        if walk.sharded.axes(node.type) or walk.sharded.mentioned(tuple(attrs.values())):
            raise NotSharded("a rank does not know which rows are its own")
        return copy, WHOLE
    axis = layout.axis
    whole = attrs["starts"][axis] == 0 and attrs["steps"][axis] == 1
    if not whole or source.shape[axis] != node.shape[axis]:
        raise NotSharded(
            f"it takes some rows of axis {axis}, which are spread over the ranks",
            "choose rows before they are fed, or sum over them with weights",
        )
    return copy, layout


def _collective(walk: Walk, node: Node) -> Made:
    """Make a collective again that the program itself has."""
    if any(layout.way is Way.PARTS for layout in walk.layouts(node)):
        raise NotSharded("it is a message of rows, of which ranks may have different numbers")
    first, *others = node.inputs
    scatters = node.op in (REDUCE_SCATTER, REDUCE_SCATTER_WHEN) and walk.facts.group != MICRO
    apart = scatters and walk.layouts(node)[0].way is Way.SUM
    value = walk.value[first] if apart else walk.complete(first)
    copy = again(node, (value, *map(walk.complete, others)))
    always = {REDUCE_SCATTER_WHEN: REDUCE_SCATTER, ALLGATHER_WHEN: ALLGATHER}.get(node.op)
    if always is not None and not walk.conditional:
        copy = always(value, **node.attrs)
        copy.line = node.line
    return copy, WHOLE


_BY_KIND: dict[Kind, Rule] = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.REDUCTION: reduced,
    Kind.LINALG: _leading,
    Kind.COLLECTIVE: _collective,
}

WORDS: dict[str, Rule] = {
    "linear": _elementwise,
    "product": _elementwise,
    "quotient": _elementwise,
    "select": _elementwise,
    **REDUCTIONS,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "window": _window,
}
