"""The records of pooling: windows that slide, and their largest element or their sum.

Sums are one record and its transpose. The largest element has its position within the window as a
record of its own, by which `pool_pick` takes elements out of windows and `pool_spread`, its
transpose, puts them back: the derivative of the maximum, and that derivative's own.

Axes before the channels are all batch axes, so that these records take any number of them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Call, Kind, Op, Precision
from ...ir.types import Extent, Shape, Type
from ..convolution.shapes import Axis, axes_between, check_extents, check_sliding, taps
from ..elementwise.family import like_float
from ..rules import onnx_windows

INT32 = np.dtype(np.int32)
_ATTRIBUTES = {
    "window": "tuple[Step, ...]",
    "strides": "tuple[Step, ...]",
    "dilation": "tuple[Step, ...]",
    "low": "tuple[Offset, ...]",
    "extents": "Shape",
    "channels_last": "bool",
}


def spatial_of(shape: Any, count: int, last: bool) -> Any:
    """Return the spatial extents of a shape."""
    return shape[len(shape) - count - 1 : -1] if last else shape[len(shape) - count :]


def _changed(shape: Shape, spatial: tuple[Extent, ...], last: bool) -> Shape:
    """Return a shape with other spatial extents."""
    count = len(spatial)
    if last:
        return (*shape[: len(shape) - count - 1], *spatial, shape[-1])
    return (*shape[: len(shape) - count], *spatial)


def _check(call: Call, x: Type, attrs: dict[str, Any]) -> int:
    count = len(attrs["window"])
    names = ("strides", "dilation", "low", "extents")
    check_sliding(call.op.name, count, *(attrs[name] for name in names))
    check_extents(call, attrs["extents"])
    if x.ndim < count + 1:
        raise call.shape_error(f"an operand of {x.ndim} axes for {count} spatial ones")
    return count


def _pooled_type(call: Call, x: Type, **attrs: Any) -> Type:
    _check(call, x, attrs)
    like_float(call, x)
    return Type(x.dtype, _changed(x.shape, attrs["extents"], attrs["channels_last"]))


def _taps_type(call: Call, x: Type, **attrs: Any) -> Type:
    return Type(INT32, _pooled_type(call, x, **attrs).shape)


def _at_positions(call: Call, windows: Type, positions: Type) -> Shape:
    """Return the shape of windows that have a position each, as `max_pool_taps` gives them."""
    if positions.dtype != INT32:
        raise call.dtype_error(f"positions of dtype {positions.dtype.name}", need="int32")
    if windows.ndim != positions.ndim:
        raise call.shape_error(f"{windows.ndim} axes for positions of {positions.ndim}")
    return tuple(
        call.unify(a, b, "extents of windows and positions")
        for a, b in zip(windows.shape, positions.shape, strict=True)
    )


def _pick_type(call: Call, x: Type, positions: Type, **attrs: Any) -> Type:
    pooled_type = _pooled_type(call, x, **attrs)
    return Type(x.dtype, _at_positions(call, pooled_type, positions))


def _spread_type(call: Call, g: Type, positions: Type, **attrs: Any) -> Type:
    _at_positions(call, g, positions)
    return _pooled_type(call, g, **attrs)


# Array expressions: one pass per element of the window.


def _axes(x: Any, extents: tuple[int, ...], attrs: dict[str, Any]) -> tuple[Axis, ...]:
    """Return the axes between an input and `extents` windows."""
    inputs = spatial_of(x.shape, len(extents), attrs["channels_last"])
    return axes_between(
        inputs, attrs["window"], extents, attrs["strides"], attrs["dilation"], attrs["low"]
    )


def _axes_to(g: Any, extents: tuple[int, ...], attrs: dict[str, Any]) -> tuple[Axis, ...]:
    """Return the axes between an input of `extents` elements and the windows of a cotangent."""
    windows = spatial_of(g.shape, len(extents), attrs["channels_last"])
    return axes_between(
        extents, attrs["window"], windows, attrs["strides"], attrs["dilation"], attrs["low"]
    )


def _at(parts: tuple[slice, ...], last: bool) -> tuple[Any, ...]:
    return (..., *parts, slice(None)) if last else (..., *parts)


def _max_pool(xp: Any, x: Any, **attrs: Any) -> Any:
    last, extents = attrs["channels_last"], attrs["extents"]
    result = xp.full(_changed(x.shape, extents, last), -np.inf, x.dtype)
    for _, inside, region in taps(_axes(x, extents, attrs)):
        part = result[_at(inside, last)]
        xp.maximum(part, x[_at(region, last)], out=part)
    return result


def _max_taps(xp: Any, x: Any, **attrs: Any) -> Any:
    last, extents = attrs["channels_last"], attrs["extents"]
    shape = _changed(x.shape, extents, last)
    best = xp.full(shape, -np.inf, x.dtype)
    first_taps = xp.full(shape, -1, INT32)
    for tap, inside, region in taps(_axes(x, extents, attrs)):
        at = _at(inside, last)
        part, others = x[_at(region, last)], best[at]
        # Minus infinity is found where nothing was before; a NaN once, before all numbers.
        better = (part > others) | (first_taps[at] < 0) | (xp.isnan(part) & ~xp.isnan(others))
        best[at] = xp.where(better, part, others)
        first_taps[at] = xp.where(better, _number(tap, attrs["window"]), first_taps[at])
    return first_taps


def _number(tap: tuple[int, ...], window: tuple[int, ...]) -> int:
    """Return the position of an element of the window, counted in row-major order."""
    return int(np.ravel_multi_index(tap, window))


def _pick(xp: Any, x: Any, positions: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    result = xp.zeros(positions.shape, x.dtype)
    for tap, inside, region in taps(_axes(x, attrs["extents"], attrs)):
        at = _at(inside, last)
        here = positions[at] == _number(tap, attrs["window"])
        result[at] = xp.where(here, x[_at(region, last)], result[at])
    return result


def _unpool(xp: Any, g: Any, positions: Any, **attrs: Any) -> Any:
    last, extents = attrs["channels_last"], attrs["extents"]
    result = xp.zeros(_changed(g.shape, extents, last), g.dtype)
    for tap, inside, region in taps(_axes_to(g, extents, attrs)):
        at = _at(inside, last)
        here = positions[at] == _number(tap, attrs["window"])
        part = result[_at(region, last)]
        xp.add(part, xp.where(here, g[at], 0), out=part)
    return result


def _sum_pool(xp: Any, x: Any, **attrs: Any) -> Any:
    last, extents = attrs["channels_last"], attrs["extents"]
    result = xp.zeros(_changed(x.shape, extents, last), x.dtype)
    for _, inside, region in taps(_axes(x, extents, attrs)):
        part = result[_at(inside, last)]
        xp.add(part, x[_at(region, last)], out=part)
    return result


def _sum_pool_input(xp: Any, g: Any, **attrs: Any) -> Any:
    last, extents = attrs["channels_last"], attrs["extents"]
    result = xp.zeros(_changed(g.shape, extents, last), g.dtype)
    for _, inside, region in taps(_axes_to(g, extents, attrs)):
        part = result[_at(region, last)]
        xp.add(part, g[_at(inside, last)], out=part)
    return result


# Derivatives. What changes from a record to its transpose are the extents of the result.


def _with_extents(node: Node, of: Node) -> dict[str, Any]:
    attrs = node.attrs
    extents = spatial_of(of.shape, len(attrs["window"]), attrs["channels_last"])
    return {**attrs, "extents": extents}


def _max_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    (x,) = node.inputs
    return (POOL_SPREAD(cotangent, MAX_POOL_TAPS(x, **node.attrs), **_with_extents(node, x)),)


def _pick_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    x, positions = node.inputs
    return POOL_SPREAD(cotangent, positions, **_with_extents(node, x)), None


def _spread_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    g, positions = node.inputs
    return POOL_PICK(cotangent, positions, **_with_extents(node, g)), None


def _sum_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (SUM_POOL_INPUT(cotangent, **_with_extents(node, node.inputs[0])),)


def _sum_input_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (SUM_POOL(cotangent, **_with_extents(node, node.inputs[0])),)


def _windows_flops(x: Type, *rest: Type, window: tuple[int, ...], **attrs: Any) -> Extent:
    """Count one operation per element of a window, for every window of an input like `x`."""
    shape = _changed(x.shape, attrs["extents"], attrs["channels_last"])
    return Type(x.dtype, shape).size * math.prod(window)


def _spread_flops(g: Type, *rest: Type, window: tuple[int, ...], **attrs: Any) -> Extent:
    return g.size * math.prod(window)


_record = partial(
    Op,
    kind=Kind.CONVOLUTION,
    batching="leading",
    precision=Precision("follow"),
)

MAX_POOL = _record(
    name="max_pool",
    doc="The largest element of every window.",
    rule=_pooled_type,
    attributes=_ATTRIBUTES,
    evaluate=_max_pool,
    gradient=_max_gradient,
    numerics="exact",
    flops=_windows_flops,
    onnx=onnx_windows.pooled("MaxPool"),
)
MAX_POOL_TAPS = _record(
    name="max_pool_taps",
    doc="Where in its window the first largest element stands.",
    rule=_taps_type,
    attributes=_ATTRIBUTES,
    evaluate=_max_taps,
    no_gradient="integer valued",
    numerics="exact",
    flops=_windows_flops,
)
POOL_PICK = _record(
    name="pool_pick",
    doc="One element of every window, at given positions.",
    rule=_pick_type,
    attributes=_ATTRIBUTES,
    evaluate=_pick,
    gradient=_pick_gradient,
    numerics="exact",
    flops=_windows_flops,
)
POOL_SPREAD = _record(
    name="pool_spread",
    doc="One number for every window, added at given positions of it.",
    rule=_spread_type,
    attributes=_ATTRIBUTES,
    evaluate=_unpool,
    gradient=_spread_gradient,
    numerics="reassoc",
    flops=_spread_flops,
)
SUM_POOL = _record(
    name="sum_pool",
    doc="The sum of every window.",
    rule=_pooled_type,
    attributes=_ATTRIBUTES,
    evaluate=_sum_pool,
    gradient=_sum_gradient,
    numerics="reassoc",
    flops=_windows_flops,
    onnx=onnx_windows.pooled("AveragePool"),
)
SUM_POOL_INPUT = _record(
    name="sum_pool_input",
    doc="One number for every window, added to all of its elements.",
    rule=_pooled_type,
    attributes=_ATTRIBUTES,
    evaluate=_sum_pool_input,
    gradient=_sum_input_gradient,
    numerics="reassoc",
    flops=_spread_flops,
)


def kernel_name(node: Node) -> str:
    """Return the compiled function of a record of this module."""
    return f"mg_{node.op.name}"


def gathered(node: Node) -> str:
    """Return what a record gathers of windows: "largest", "place", "chosen" or "total"."""
    if node.op in (POOL_PICK, POOL_SPREAD):
        return "chosen"
    return {MAX_POOL: "largest", MAX_POOL_TAPS: "place"}.get(node.op, "total")


def reads_windows(node: Node) -> bool:
    """Return whether the first operand has an element for every window (else the result has)."""
    return node.op in (POOL_SPREAD, SUM_POOL_INPUT)


RECORDS = (MAX_POOL, MAX_POOL_TAPS, POOL_PICK, POOL_SPREAD, SUM_POOL, SUM_POOL_INPUT)
