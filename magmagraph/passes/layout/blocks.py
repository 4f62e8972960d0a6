"""Blocks of 2x2 pixels as channels, for convolutions of images with few channels.

Tensor cores multiply rows of channels, eight at least; of an image's three, libraries make eight by
filling them up. A convolution that steps over two pixels at a time is also one of step 1 over
blocks of 2x2 pixels with four times the channels, whose window has half the extents: an image of
``(224, 224, 3)`` and a window of 7x7 become ``(112, 112, 16)`` and 4x4. With ``low`` pixels of
padding, ``a = ceil(low / 2)`` and ``e = 2 a - low``::

    y[o] = sum(x[2 o + r - low] w[r] for r) = sum(x'[o + q - a, b] w'[q, b] for q, b)

    x'[i, b] = x[2 i + b],   w'[q, b] = w[2 q + b - e]

where `w'` is 0 outside of the window. It holds for each spatial axis, and for the gradient of the
weights. Both read one array of blocks.

Before, with channels last::

    %0 = input() : bfloat16[256, 224, 224, 3]  # x
    %1 = input() : bfloat16[7, 7, 3, 64]  # w
    %2 = convolution(%0, %1, strides=(2, 2), low=(3, 3), ...) : bfloat16[256, 112, 112, 64]

After, with `%3` the blocks of `x` and `%4` those of `w`::

    %3 = reshape(...) : bfloat16[256, 112, 112, 16]
    %4 = reshape(...) : bfloat16[64, 4, 4, 16]
    %5 = convolution(%3, %4, strides=(1, 1), low=(2, 2), ...) : bfloat16[256, 112, 112, 64]

The products are the same and some zeros; sums take them in another order. What a zero of `w'`
multiplies counts: an infinity in an image makes NaN of results whose windows end beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...ir.graph import Node
from ...ir.types import Extent, Shape
from ...ops.convert import CAST, cast
from ...ops.convolution.primitives import CONVOLUTION, CONVOLUTION_INPUT, split_weight
from ...ops.convolution.shapes import split
from ...ops.elementwise.comparison import equal, where
from ...ops.indexing.iota import IOTA
from ...ops.leaf import constant
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ...ops.shape.slicing import PLACE, SLICE

SIDE = 2  # pixels of a block along each axis: the stride
MOST = 4  # channels of a pixel
EVEN = 8  # 16-bit numbers that tensor cores take at a time


class Blocks(NamedTuple):
    """How a convolution reads blocks.

    Attributes
    ----------
    window
        Extents of the window, in pixels.
    before
        Zeros in front of it, `e` above.
    low
        Blocks of padding, `a` above.
    last
        Whether the user's arrays have channels last.
    """

    window: tuple[int, ...]
    before: tuple[int, ...]
    low: tuple[int, ...]
    last: bool

    @property
    def taps(self) -> tuple[int, ...]:
        """Extents of the window in blocks."""
        return tuple(-(-(r + e) // SIDE) for r, e in zip(self.window, self.before, strict=True))


def blocks_of(node: Node) -> Blocks | None:
    """Return how a convolution, or the gradient of its weights, reads blocks of pixels, or None."""
    attrs = node.attrs
    last: bool = attrs["channels_last"]
    strides = attrs["strides"]
    if node.op is CONVOLUTION_INPUT or attrs["groups"] != 1 or len(strides) != SIDE:
        return None
    if any(stride != SIDE for stride in strides) or any(d != 1 for d in attrs["dilation"]):
        return None
    _, channels, pixels = split(node.inputs[0].shape, last)
    window: tuple[Any, ...] = attrs["extents"]
    if node.op is CONVOLUTION:
        _, _, window = split_weight(node.inputs[1].shape, last)
    low: tuple[Any, ...] = attrs["low"]
    numbers = (channels, *pixels, *window, *low)
    if not all(isinstance(number, int) for number in numbers):
        return None
    if channels > MOST or min(low) < 0 or min(window) < SIDE:
        return None
    ceiling = tuple(-(-before // SIDE) for before in low)
    before = tuple(SIDE * a - b for a, b in zip(ceiling, low, strict=True))
    return Blocks(window, before, ceiling, last)


def in_blocks(node: Node, blocks: Blocks) -> Node:
    """Return what computes a convolution from blocks.

    Of the forward one it is the result with channels last; of the gradient of the weights it is
    that gradient, in the user's order of axes.
    """
    forward = node.op is CONVOLUTION
    attrs = {
        **node.attrs, "channels_last": True, "outs_first": True, "strides": (1, 1),
        "low": blocks.low,
    }
    image = _image(node.inputs[0], blocks.last)
    if forward:
        return node.op(image, _weights(node.inputs[1], blocks), name=node.name, **attrs)
    above = node.inputs[1] if blocks.last else TRANSPOSE(node.inputs[1], axes=(0, 2, 3, 1))
    attrs["extents"] = blocks.taps
    product = node.op(image, above, **attrs)
    channels = node.inputs[0].shape[-1 if blocks.last else 1]
    assert isinstance(channels, int)
    return _pixels(product, blocks, channels)


def _image(x: Node, last: bool) -> Node:
    """Return an image's blocks: a batch, rows and columns of them, and their channels."""
    batch, channels, (rows, columns) = split(x.shape, last)
    assert isinstance(channels, int)
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    dtype = x.dtype
    if x.op is CAST and not rows % SIDE and not columns % SIDE:
        (x,) = x.inputs  # what is in memory is read in blocks, and cast then
    space = 1 if last else 2
    for axis, extent in ((space, rows), (space + 1, columns)):
        x = _filled(x, axis, 0, extent + extent % SIDE)
    tall, wide = -(-rows // SIDE), -(-columns // SIDE)
    if last:
        parts = RESHAPE(x, shape=(batch, tall, SIDE, wide, SIDE, channels))
        parts = TRANSPOSE(parts, axes=(0, 1, 3, 2, 4, 5))
    else:
        parts = RESHAPE(x, shape=(batch, channels, tall, SIDE, wide, SIDE))
        parts = TRANSPOSE(parts, axes=(0, 2, 4, 3, 5, 1))
    return _joined(parts, dtype)


def _joined(parts: Node, dtype: np.dtype) -> Node:
    """Return an array whose last three axes are one, filled up with zeros, in a dtype.

    Where zeros are needed each channel is chosen from what stands for it: choices fuse, copies of
    a few bytes side by side are slow.
    """
    *space, _, _, channels = parts.shape
    assert isinstance(channels, int)
    shape = (*space, _most(channels))
    if shape[-1] == SIDE * SIDE * channels:
        return RESHAPE(cast(parts, dtype), shape=shape)
    position = IOTA(shape=shape, axis=len(shape) - 1, dtype=np.dtype(np.int32))
    joined: Node = constant(0, dtype=dtype)
    places = [(i, j, c) for i in range(SIDE) for j in range(SIDE) for c in range(channels)]
    for number, place in enumerate(places):
        one = SLICE(
            parts, starts=(*(0,) * len(space), *place), steps=(1,) * parts.ndim,
            shape=(*space, 1, 1, 1),
        )
        one = cast(RESHAPE(one, shape=(*space, 1)), dtype)
        joined = where(equal(position, constant(number, dtype=np.int32)), one, joined)
    return joined


def _most(channels: int) -> int:
    """Return the channels of a block, as many as tensor cores take at a time."""
    return -(-SIDE * SIDE * channels // EVEN) * EVEN


def _weights(w: Node, blocks: Blocks) -> Node:
    """Return weights by results, rows and columns of blocks, and channels of blocks."""
    last = blocks.last
    outs, channels, _ = split_weight(w.shape, last)
    assert isinstance(channels, int)
    for axis, (before, taps) in enumerate(zip(blocks.before, blocks.taps, strict=True)):
        w = _filled(w, axis if last else axis + 2, before, SIDE * taps)
    tall, wide = blocks.taps
    if last:
        w = RESHAPE(w, shape=(tall, SIDE, wide, SIDE, channels, outs))
        w = TRANSPOSE(w, axes=(5, 0, 2, 1, 3, 4))
    else:
        w = RESHAPE(w, shape=(outs, channels, tall, SIDE, wide, SIDE))
        w = TRANSPOSE(w, axes=(0, 2, 4, 3, 5, 1))
    w = RESHAPE(w, shape=(outs, tall, wide, SIDE * SIDE * channels))
    return _filled(w, 3, 0, _most(channels))


def _pixels(image: Node, blocks: Blocks, channels: int) -> Node:
    """Return the gradient of weights of blocks as that of the user's weights."""
    outs = image.shape[0]
    tall, wide = blocks.taps
    image = _cut(image, (0, 0, 0, 0), (outs, tall, wide, SIDE * SIDE * channels))
    image = RESHAPE(image, shape=(outs, tall, wide, SIDE, SIDE, channels))
    if blocks.last:
        image = TRANSPOSE(image, axes=(1, 3, 2, 4, 5, 0))
        image = RESHAPE(image, shape=(SIDE * tall, SIDE * wide, channels, outs))
        return _cut(image, (*blocks.before, 0, 0), (*blocks.window, channels, outs))
    image = TRANSPOSE(image, axes=(0, 5, 1, 3, 2, 4))
    image = RESHAPE(image, shape=(outs, channels, SIDE * tall, SIDE * wide))
    return _cut(image, (0, 0, *blocks.before), (outs, channels, *blocks.window))


def _cut(x: Node, starts: Sequence[int], shape: Shape) -> Node:
    """Return a window of an array."""
    if x.shape == shape:
        return x
    return SLICE(x, starts=tuple(starts), steps=(1,) * x.ndim, shape=shape)


def _filled(x: Node, axis: int, before: int, whole: Extent) -> Node:
    """Return an array with zeros around it along one axis."""
    if x.shape[axis] == whole:
        return x
    shape = (*x.shape[:axis], whole, *x.shape[axis + 1 :])
    starts = tuple(before if i == axis else 0 for i in range(x.ndim))
    value = np.zeros((), x.dtype)[()]
    return PLACE(x, starts=starts, steps=(1,) * x.ndim, shape=shape, value=value)
