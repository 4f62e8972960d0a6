"""Convolutions, pooling and what else slides over spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import cast
from ...ops.convolution.functions import conv
from ...ops.convolution.transpose import conv_transpose
from ...ops.elementwise.arithmetic import divide, remainder
from ...ops.elementwise.math import power
from ...ops.elementwise.signs import absolute
from ...ops.indexing.updates import index_update
from ...ops.leaf import constant
from ...ops.reduction import primitives
from ...ops.reduction.statistics import mean
from ...ops.shape.arrange import reshape
from ...ops.shape.creation import full
from ...ops.shape.joining import broadcast_to
from ...ops.shape.padding import pad
from ...ops.spatial.pooling_records import MAX_POOL, MAX_POOL_TAPS, SUM_POOL
from .operator import Operator, Rule
from .shapes import iota

__all__ = ["WINDOWS", "convolved"]

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
Pairs = list[tuple[int, int]]


def _paddings(
    op: Operator, extents: Sequence[Extent], window: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> Pairs:  # fmt: skip
    """Return the padding before and behind each spatial axis."""
    count = len(window)
    auto = op.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = op.get("pads", [0] * 2 * count)
        if len(pads) != 2 * count:
            raise op.refuse(f"pads={pads} for {count} spatial axes")
        return [(int(pads[i]), int(pads[i + count])) for i in range(count)]
    if auto == "VALID":
        return [(0, 0)] * count
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise op.refuse(f"auto_pad={auto!r}")
    pairs = []
    for extent, k, s, d in zip(extents, window, strides, dilations, strict=True):
        reach = d * (k - 1) + 1
        if isinstance(extent, Dim):
            if s != 1:
                raise op.refuse(f"auto_pad={auto!r} of an extent {extent} that a call brings")
            total = reach - 1
        else:
            out = -(-extent // s)
            total = max((out - 1) * s + reach - extent, 0)
        small = total // 2
        pairs.append((small, total - small) if auto == "SAME_UPPER" else (total - small, small))
    return pairs


def _layout(op: Operator, x: Node) -> str:
    count = x.ndim - 2
    if count not in LAYOUTS:
        raise op.refuse(f"{count} spatial axes", "1, 2 or 3")
    return LAYOUTS[count]


def convolved(op: Operator, x: Node, w: Node, bias: Node | None) -> Node:
    """Return a convolution by the attributes of an operator."""
    count = x.ndim - 2
    window = [e for e in w.shape[2:] if isinstance(e, int)]
    strides = op.get("strides", [1] * count)
    dilations = op.get("dilations", [1] * count)
    pairs = _paddings(op, x.shape[2:], window, strides, dilations)
    return conv(
        x, w, strides, pairs, dilations, op.get("group", 1), _layout(op, x), bias=bias
    )


def _conv(op: Operator) -> Node:
    return convolved(op, op.node(0), op.node(1), op.optional(2))


def _conv_transpose(op: Operator) -> Node:
    x, w, bias = op.node(0), op.node(1), op.optional(2)
    count = x.ndim - 2
    window = [int(e) for e in w.shape[2:] if isinstance(e, int)]
    strides = op.get("strides", [1] * count)
    dilations = op.get("dilations", [1] * count)
    extra = list(op.get("output_padding", [0] * count))
    auto = op.get("auto_pad", "NOTSET")
    shape = op.get("output_shape")
    if shape is None and auto in ("NOTSET", "VALID", ""):
        pads = op.get("pads", [0] * 2 * count)
        pairs = [(int(pads[i]), int(pads[i + count])) for i in range(count)]
    else:
        pairs = []
        for i in range(count):
            extent = x.shape[2 + i]
            size: Extent = extent * strides[i] if shape is None else shape[len(shape) - count + i]
            total = (extent - 1) * strides[i] + extra[i] + dilations[i] * (window[i] - 1) + 1
            total = total - size
            if not isinstance(total, int):
                raise op.refuse(f"its padding {total} depends on what a call brings")
            small = total // 2
            pairs.append((small, total - small) if auto == "SAME_UPPER" else (total - small, small))
    if any(min(pair) < 0 for pair in pairs):
        extra = [e - min(sum(p), 0) for e, p in zip(extra, pairs, strict=True)]
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    # More behind than a stride, and padding beyond the result, are added and taken away.
    beyond = [e if e >= max(s, d) else 0
              for e, s, d in zip(extra, strides, dilations, strict=True)]
    extra = [e - b for e, b in zip(extra, beyond, strict=True)]
    result = conv_transpose(
        x, w, strides, pairs, extra, dilations, op.get("group", 1), _layout(op, x), bias=None
    )
    if any(beyond):
        result = pad(result, [(0, 0), (0, 0), *((0, b) for b in beyond)])
    if bias is None:
        return result
    return result + reshape(bias, (-1, *[1] * count))


def _sliding(op: Operator, x: Node) -> tuple[dict[str, Any], Pairs]:
    """Return the attributes of the records that pool, and the padding."""
    count = x.ndim - 2
    window = op.get("kernel_shape")
    if window is None or len(window) != count:
        raise op.refuse(f"kernel_shape={window} for {count} spatial axes")
    strides = op.get("strides", [1] * count)
    dilations = op.get("dilations", [1] * count)
    pairs = _paddings(op, x.shape[2:], window, strides, dilations)
    extents: list[Extent] = []
    up = op.get("ceil_mode", 0)
    for extent, k, s, d, pair in zip(x.shape[2:], window, strides, dilations, pairs, strict=True):
        room = extent + pair[0] + pair[1] - (d * (k - 1) + 1)
        out = -(-room // s) + 1 if up else room // s + 1
        # A window begins in the array or in the padding before it.
        if up and isinstance(out, int) and isinstance(extent, int):
            if (out - 1) * s >= extent + pair[0]:
                out -= 1
        extents.append(out)
    attrs = {
        "window": tuple(window),
        "strides": tuple(strides),
        "dilation": tuple(dilations),
        "low": tuple(pair[0] for pair in pairs),
        "extents": tuple(extents),
        "channels_last": False,
    }
    return attrs, pairs


def _narrow_or_float(x: Node) -> Node:
    return x if x.dtype.kind not in "iu" else cast(x, "float32")


def _max_pool(op: Operator) -> Any:
    x = op.node()
    attrs, _ = _sliding(op, x)
    values = _narrow_or_float(x)
    largest = op.like(MAX_POOL(values, **attrs))
    if op.outputs < 2:
        return largest
    taps = cast(MAX_POOL_TAPS(values, **attrs), "int64")
    return largest, _places(op, x, taps, attrs)


def _places(op: Operator, x: Node, taps: Node, attrs: dict[str, Any]) -> Node:
    """Return the positions in the flat operand of what is largest in each window."""
    count = x.ndim - 2
    spatial = list(range(2, x.ndim))
    if op.get("storage_order", 0):
        spatial.reverse()
    inside = []
    rest = taps
    for k in reversed(attrs["window"]):
        inside.append(remainder(rest, k))
        rest = rest // k
    inside.reverse()
    total: Node = iota(x.shape[0], 0, x.ndim) * op.shape(x.shape[1])[0] + iota(
        x.shape[1], 1, x.ndim
    )
    for axis in spatial:
        i = axis - 2
        at = iota(attrs["extents"][i], axis, x.ndim) * attrs["strides"][i] - attrs["low"][i]
        place = at + inside[i] * attrs["dilation"][i]
        total = total * op.shape(x.shape[axis])[0] + place
    assert count
    return total


def _average_pool(op: Operator) -> Node:
    x = op.node()
    attrs, pairs = _sliding(op, x)
    total = SUM_POOL(_narrow_or_float(x), **attrs)
    spatial = x.shape[2:]
    low = attrs["low"]
    if op.get("count_include_pad", 0):
        spatial = tuple(e + a + b for e, (a, b) in zip(spatial, pairs, strict=True))
        low = (0,) * len(low)
    elif all(pair == (0, 0) for pair in pairs) and not op.get("ceil_mode", 0):
        return op.like(divide(total, float(math.prod(attrs["window"]))))
    ones = broadcast_to(constant(1.0, dtype=total.dtype), (1, 1, *spatial))
    counts = SUM_POOL(ones, **{**attrs, "low": low})
    return op.like(divide(total, broadcast_to(counts, total.shape)))


def _lp_pool(op: Operator) -> Node:
    x = op.node()
    attrs, _ = _sliding(op, x)
    p = float(op.get("p", 2))
    return op.like(power(SUM_POOL(power(absolute(x), p), **attrs), 1.0 / p))


def _global(reduce: Any) -> Rule:
    def rule(op: Operator) -> Node:
        x = op.node()
        return op.like(reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True))

    return rule


def _global_lp(op: Operator) -> Node:
    x = op.node()
    p = float(op.get("p", 2))
    total = primitives.sum(power(absolute(x), p), axis=tuple(range(2, x.ndim)), keepdims=True)
    return power(total, 1.0 / p)


def _max_unpool(op: Operator) -> Node:
    x, at = op.node(0), op.node(1)
    count = x.ndim - 2
    window = op.get("kernel_shape", [])
    strides = op.get("strides", [1] * count)
    pads = op.get("pads", [0] * 2 * count)
    own = [
        (e - 1) * s - pads[i] - pads[i + count] + k
        for i, (e, s, k) in enumerate(zip(x.shape[2:], strides, window, strict=True))
    ]
    shape: list[Extent] = [*x.shape[:2], *own]
    if op.has(2):
        extents = op.extents(2)
        # Positions count through the array that the windows were taken from.
        source = shape
        places = []
        rest = at
        for extent in reversed(source):
            places.append(remainder(rest, op.shape(extent)[0]))
            rest = rest // op.shape(extent)[0]
        total: Node = constant(0, dtype=np.int64)
        for place, extent in zip(reversed(places), extents, strict=True):
            total = total * op.shape(extent)[0] + place
        at, shape = total, extents
    flat = full((math.prod(shape),), 0, dtype=x.dtype)
    return reshape(index_update(flat, (reshape(at, (-1,)),), reshape(x, (-1,))), tuple(shape))


def _fold(op: Operator) -> Node:
    x = op.node()
    extents, window = op.ints(1), op.ints(2)
    count = len(extents)
    strides = op.get("strides", [1] * count)
    dilations = op.get("dilations", [1] * count)
    pads = op.get("pads", [0] * 2 * count)
    pairs = [(int(pads[i]), int(pads[i + count])) for i in range(count)]
    starts = [
        (e + a + b - (d * (k - 1) + 1)) // s + 1
        for e, (a, b), d, k, s in zip(extents, pairs, dilations, window, strides, strict=True)
    ]
    channels = x.shape[1] // math.prod(window)
    patches = reshape(x, (x.shape[0], channels, *window, *starts))
    wide = [e + a + b for e, (a, b) in zip(extents, pairs, strict=True)]
    # Each element is added at its place in the padded image.
    axes = 2 + 2 * count
    at: Node = constant(0, dtype=np.int64)
    for i in range(count):
        place = iota(window[i], 2 + i, axes) * dilations[i]
        place = place + iota(starts[i], 2 + count + i, axes) * strides[i]
        at = at * wide[i] + place
    rows = iota(x.shape[0], 0, axes) * op.shape(channels)[0] + iota(channels, 1, axes)
    at = at + rows * math.prod(wide)
    flat = full((x.shape[0] * channels * math.prod(wide),), 0, dtype=x.dtype)
    places = reshape(broadcast_to(at, patches.shape), (-1,))
    image = index_update(flat, (places,), reshape(patches, (-1,)), how="add")
    image = reshape(image, (x.shape[0], channels, *wide))
    key = (slice(None), slice(None), *(slice(a, a + e) for e, (a, _) in zip(extents, pairs,
                                                                          strict=True)))
    return image[key]


WINDOWS: dict[str, Rule] = {
    "AveragePool": _average_pool,
    "Col2Im": _fold,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global(mean),
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global(primitives.max),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
