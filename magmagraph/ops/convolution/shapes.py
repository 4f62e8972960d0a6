"""What convolutions and pooling share: layouts, windows, padding, and the extents that follow.

A window that slides over an axis ties three positions together: that of the result `o`, that
inside of the window `k`, and that in the input::

    i = o * stride + k * dilation - low

`low` is the padding before the first element. What stands outside of the input counts as absent,
so that the padding behind the last element needs no number of its own: the extent of the result
says how far windows go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.op import Call
from ...ir.types import Extent, Shape

LAYOUTS = {
    1: ("NCW", "NWC"),
    2: ("NCHW", "NHWC"),
    3: ("NCDHW", "NDHWC"),
}
"""Spatial axes -> the names of both layouts: channels first, channels last."""


class Sliding(NamedTuple):
    """How a window slides over every spatial axis.

    strides, dilation: Elements from a window to the next, and from an element of the window to the
        next.
    low: Padding before the first element.
    extents: Of the result.
    """

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    low: Shape
    extents: Shape


def spatial_axes(call: Call, ndim: int, spatial_count: int | None = None) -> int:
    """Return the number of spatial axes of an operand with batch and channels."""
    count = ndim - 2
    if spatial_count is not None and count != spatial_count:
        hint = "mg.expand_dims(x, 0) adds a batch of one" if count == spatial_count - 1 else None
        raise call.shape_error(
            f"an operand of {ndim} axes",
            need=f"{spatial_count + 2}: batch, channels and {spatial_count} spatial",
            hint=hint,
        )
    if count not in LAYOUTS:
        raise call.shape_error(
            f"an operand of {ndim} axes", need="3 to 5: batch, channels and 1 to 3 spatial"
        )
    return count


def channels_last(call: Call, layout: str | None, count: int) -> bool:
    """Return whether a layout has its channels last; None is channels first."""
    if layout is None:
        return False
    if layout not in LAYOUTS[count]:
        first, last = LAYOUTS[count]
        raise call.shape_error(
            f"layout={layout!r} for {count} spatial axes", need=f"{first!r} or {last!r}"
        )
    return layout == LAYOUTS[count][1]


def numbers(call: Call, argument: Any, count: int, name: str, least: int) -> tuple[int, ...]:
    """Return one int per spatial axis from an int or a sequence of them."""
    values = (argument,) * count if isinstance(argument, (int, np.integer)) else argument
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str)
        or not all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in values)
    ):
        raise call.dtype_error(f"{name}={argument!r}", need=f"an int, or {count} of them")
    if len(values) != count:
        raise call.shape_error(
            f"{name}={argument!r} for {count} spatial axes", need=f"an int, or {count} of them"
        )
    if any(v < least for v in values):
        raise call.shape_error(f"{name}={argument!r}", need=f"at least {least} along every axis")
    return tuple(int(v) for v in values)


def window_extents(call: Call, extents: Sequence[Extent], what: str) -> tuple[int, ...]:
    """Return the extents of a window, which are ints of at least 1."""
    sizes: list[int] = []
    for extent in extents:
        if isinstance(extent, Dim):
            raise call.shape_error(
                f"{what} has the symbolic extent {extent}",
                need="ints: the window decides how the work is laid out",
            )
        if extent < 1:
            raise call.shape_error(f"{what} has the extents {tuple(extents)}", need="at least 1")
        sizes.append(extent)
    return tuple(sizes)


def paddings(
    call: Call, padding: Any, count: int
) -> tuple[tuple[int, int], ...] | str:
    """Return the padding before and behind each axis, or the word that stands for it."""
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise call.shape_error(
                f"padding={padding!r}", need="'valid', 'same', an int, or a pair for each axis"
            )
        return padding if padding == "same" else ((0, 0),) * count
    entries = (padding,) * count if isinstance(padding, (int, np.integer)) else padding
    if not isinstance(entries, Sequence) or len(entries) != count:
        raise call.shape_error(
            f"padding={padding!r} for {count} spatial axes",
            need=f"'valid', 'same', an int, {count} ints or {count} pairs of them",
        )
    pairs: list[tuple[int, int]] = []
    for entry in entries:
        pair = tuple(entry) if isinstance(entry, Sequence) else (entry, entry)
        if len(pair) != 2 or not all(isinstance(v, (int, np.integer)) for v in pair):
            raise call.dtype_error(
                f"padding={padding!r}", need=f"an int, {count} ints or {count} pairs of them"
            )
        if min(pair) < 0:
            raise call.shape_error(
                f"padding={padding!r} is negative",
                need="at least 0",
                hint="x[..., 1:-1] takes elements away",
            )
        pairs.append((int(pair[0]), int(pair[1])))
    return tuple(pairs)


def slide(
    call: Call,
    extents: Shape,
    window: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
) -> Sliding:
    """Read stride, padding and dilation, and work out the extents of the result.

    ``"same"`` gives ``ceil(n / stride)`` windows, with one element more of padding behind than
    before where their number is odd.
    """
    count = len(window)
    strides = numbers(call, stride, count, "stride", 1)
    dilations = numbers(call, dilation, count, "dilation", 1)
    pairs = paddings(call, padding, count)
    low: list[Extent] = []
    results: list[Extent] = []
    for axis, (n, k, s, d) in enumerate(zip(extents, window, strides, dilations, strict=True)):
        reach = d * (k - 1) + 1
        if isinstance(pairs, str):
            windows = dims.ceil_div(n, s)
            total = dims.maximum((windows - 1) * s + reach - n, 0)
            low.append(dims.floor_div(total, 2))
            results.append(windows)
            continue
        before, behind = pairs[axis]
        padded = n + before + behind
        if not dims.require(padded, ">=", reach, call.constraints):
            raise call.shape_error(
                f"a window that reaches over {reach} elements along spatial axis {axis}, "
                f"and {padded} with padding",
                need="a window no larger than the padded input",
                hint="padding='same'",
            )
        low.append(before)
        results.append(dims.floor_div(padded - reach, s) + 1)
    return Sliding(strides, dilations, tuple(low), tuple(results))


def split(shape: Shape, last: bool) -> tuple[Extent, Extent, Shape]:
    """Return batch, channels and spatial extents of a shape."""
    if last:
        return shape[0], shape[-1], shape[1:-1]
    return shape[0], shape[1], shape[2:]


def join(batch: Extent, channels: Extent, spatial: Sequence[Extent], last: bool) -> Shape:
    """Return the shape of batch, channels and spatial extents."""
    return (batch, *spatial, channels) if last else (batch, channels, *spatial)


def check_sliding(
    what: str,
    count: int,
    strides: Sequence[int],
    dilation: Sequence[int],
    low: Sequence[Extent],
    extents: Sequence[Extent],
) -> None:
    """Raise where a record's attributes are not one number per spatial axis."""
    if not len(strides) == len(dilation) == len(low) == len(extents) == count:
        raise ShapeError(
            message(
                f"{what}: strides {tuple(strides)}, dilation {tuple(dilation)}, low {tuple(low)} "
                f"and extents {tuple(extents)} for {count} spatial axes",
                need="one number each per axis",
            )
        )


def check_extents(call: Call, extents: Shape) -> None:
    """Demand an element along every axis; of named extents, at the call."""
    for axis, extent in enumerate(extents):
        least = 1 if isinstance(extent, Dim) else 0
        if not dims.require(extent, ">=", least, call.constraints):
            raise call.shape_error(
                f"{extent} elements along spatial axis {axis}",
                need="a larger input or more padding",
            )


class Axis(NamedTuple):
    """One axis of a window that slides: concrete extents of input, window and result."""

    n: int
    window: int
    windows: int
    stride: int
    dilation: int
    low: int

    def inside(self, k: int) -> tuple[slice, slice]:
        """Return the results that element `k` of the window is inside of the input for.

        The second slice are the positions in the input that it meets there.
        """
        shift = k * self.dilation - self.low
        first = max(0, -(shift // self.stride))
        stop = min(self.windows, (self.n - 1 - shift) // self.stride + 1)
        if stop <= first:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + shift
        end = (stop - 1) * self.stride + shift + 1
        return slice(first, stop), slice(start, end, self.stride)


def axes_between(
    inputs: Sequence[int],
    window: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    low: Sequence[int],
) -> tuple[Axis, ...]:
    """Return every spatial axis."""
    return tuple(
        Axis(*entry)
        for entry in zip(inputs, window, windows, strides, dilation, low, strict=True)
    )


Slices = tuple[slice, ...]


def taps(axes: Sequence[Axis]) -> list[tuple[tuple[int, ...], Slices, Slices]]:
    """Return each window element, the results that use it, and the input region it reads."""
    entries: list[tuple[tuple[int, ...], Slices, Slices]] = []
    for tap in np.ndindex(*[axis.window for axis in axes]):
        pairs = [axis.inside(k) for axis, k in zip(axes, tap, strict=True)]
        results = tuple(pair[0] for pair in pairs)
        if all(part.stop > part.start for part in results):
            entries.append((tap, results, tuple(pair[1] for pair in pairs)))
    return entries
