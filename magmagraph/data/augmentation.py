"""Augmentation of images as nodes: part of the graph, new for each call and each example.

Images are (batch, channels, rows, columns), as `mg.nn.Conv2D` takes them; with ``layout="NHWC"``
they are (batch, rows, columns, channels). The numbers come from `mg.random`: the same seed gives
the same crops and flips on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..dtypes import is_float
from ..errors import DataError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.op import describe
from ..ir.types import Operand
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, divide, subtract
from ..ops.elementwise.comparison import where
from ..ops.indexing.gathering import take_along_axis
from ..ops.indexing.iota import IOTA
from ..ops.leaf import constant, real_array
from ..ops.random.basic import bernoulli, randint
from ..ops.random.bits import Key, keys_for
from ..ops.shape.arrange import reshape
from ..ops.shape.joining import broadcast_to
from ..ops.shape.padding import pad
from ..ops.shape.pieces import flip

__all__ = ["normalize", "random_crop", "random_flip"]

_INT = np.dtype(np.int32)


@documented
def random_crop(
    images: Any,
    size: int | Sequence[int],
    *,
    padding: int = 0,
    key: Key | None = None,
    training: bool = True,
    layout: str | None = None,
) -> Node:
    """Cut a window out of each image, each at a place of its own.

    images (Node or array, shape (batch, channels, rows, columns)): Any dtype; (batch, rows,
        columns, channels) with ``layout="NHWC"``.
    size (int or (int, int)): Rows and columns of the window.
    padding (int): Zeros put around each image before.
    key (Key, optional): As for `mg.random.uniform`.
    training (bool): False cuts the middle out, without padding.
    layout ({"NCHW", "NHWC"}, optional): The order of the axes. Without it, it is "NCHW", as for
        `mg.nn.Conv2D`, and images whose sizes are plainly those of "NHWC" are refused: a last axis
        of 1 or 3, and another second axis.
    returns (Node, shape (batch, channels, size[0], size[1])): In the layout of the images.
        Gradients flow to the images.
    raises ShapeError: If the images have not four axes, or rows and columns that are numbers; if
        they plainly have their channels last, and no layout is given; or if the window is larger
        than the padded image.
    raises DataError: If the size, the padding or the layout is none.

    >>> x = mg.var("x", shape=("batch", 3, 32, 32))
    >>> mg.data.random_crop(x, 28, padding=4).shape
    (batch, 3, 28, 28)
    """
    x, axes = _images("random_crop", images, layout)
    window = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(window) != 2 or padding < 0:
        raise DataError(
            message(
                f"random_crop: size={size!r}, padding={padding!r}",
                need="rows and columns, and a padding that is not negative",
            )
        )
    extents = [x.shape[axis] for axis in axes]
    if not all(isinstance(extent, int) for extent in extents):
        raise ShapeError(
            message(f"random_crop: {describe(x)}", need="rows and columns that are numbers")
        )
    grown = padding if training else 0
    rooms = []
    for name, extent, wanted in zip(("rows", "columns"), extents, window, strict=True):
        room = int(extent) + 2 * grown - int(wanted)
        if wanted < 1 or room < 0:
            raise ShapeError(
                message(
                    f"random_crop: a window of {wanted} {name} of {extent}, padded by {grown}",
                    need="a window that fits",
                    hint="a larger padding=",
                )
            )
        rooms.append(room)
    if not training:
        top, left = rooms[0] // 2, rooms[1] // 2
        places = [slice(None)] * 4
        places[axes[0]] = slice(top, top + int(window[0]))
        places[axes[1]] = slice(left, left + int(window[1]))
        return x[tuple(places)]
    if grown:
        x = pad(x, tuple((grown, grown) if axis in axes else (0, 0) for axis in range(4)))
    for axis, room, wanted, own in zip(axes, rooms, window, keys_for(key, 2), strict=True):
        if room:
            starts = randint((x.shape[0],), 0, room + 1, key=own)
            x = _windows(x, axis, starts, int(wanted))
        elif wanted != x.shape[axis]:
            raise AssertionError("a window with room has another extent")
    return x


def _windows(x: Node, axis: int, starts: Node, extent: int) -> Node:
    """Return `extent` elements along an axis, for each image from a start of its own."""
    shape = [1] * x.ndim
    shape[axis] = extent
    steps = IOTA(shape=tuple(shape), axis=axis, dtype=_INT)
    first = reshape(cast(starts, _INT), (x.shape[0], *(1,) * (x.ndim - 1)))
    whole = [*x.shape]
    whole[axis] = extent
    return take_along_axis(x, broadcast_to(add(first, steps), tuple(whole)), axis)


@documented
def random_flip(
    images: Any,
    axis: str = "horizontal",
    *,
    rate: float = 0.5,
    key: Key | None = None,
    training: bool = True,
    layout: str | None = None,
) -> Node:
    """Mirror images at random, each or not.

    images (Node or array, shape (batch, channels, rows, columns)): Any dtype; (batch, rows,
        columns, channels) with ``layout="NHWC"``.
    axis ({"horizontal", "vertical"}): Left for right, or top for bottom.
    rate (float): The probability of an image to be mirrored.
    key (Key, optional): As for `mg.random.uniform`.
    training (bool): False leaves the images as they are.
    layout ({"NCHW", "NHWC"}, optional): As of `random_crop`.
    returns: Of the shape of the images; gradients flow to these.
    raises ShapeError, DataError: If the images have not four axes, or plainly have their channels
        last, and no layout is given; or if the axis or the rate is none.

    >>> x = mg.var("x", shape=("batch", 3, 32, 32))
    >>> mg.data.random_flip(x).shape
    (batch, 3, 32, 32)
    """
    x, axes = _images("random_flip", images, layout)
    if axis not in ("horizontal", "vertical") or not 0.0 <= rate <= 1.0:
        raise DataError(
            message(
                f"random_flip: axis={axis!r}, rate={rate!r}",
                need="'horizontal' or 'vertical', and a rate in [0, 1]",
            )
        )
    if not training:
        return x
    chosen = bernoulli((x.shape[0], 1, 1, 1), rate, key=key)
    mirrored = flip(x, axes[1] if axis == "horizontal" else axes[0])
    return where(cast(chosen, np.bool_), mirrored, x)


@documented
def normalize(x: Operand, mean: ArrayLike, std: ArrayLike, *, layout: str | None = None) -> Node:
    """Subtract a mean, and divide by a standard deviation.

    x (Node or array): Ints become floats.
    mean, std (array-like): As found in the training data. Where `x` has four axes, one-dimensional
        arrays have a number for each channel; all else broadcasts to `x`.
    layout ({"NCHW", "NHWC"}, optional): The order of the four axes of images; "NCHW", as for
        `mg.nn.Conv2D`, unless given.
    returns: ``(x - mean) / std``.
    raises DataError: If a deviation is not positive, or there is no such layout.
    raises ShapeError: If there is another number of channels than of means or deviations.

    >>> mg.data.normalize(mg.constant([[1.0, 4.0]]), [0.0, 2.0], [1.0, 2.0]).eval()
    array([[1., 1.]], dtype=float32)
    """
    node = as_node(x)
    if layout not in (None, "NCHW", "NHWC"):
        raise DataError(message(f"normalize: layout={layout!r}", need="'NCHW' or 'NHWC'"))
    if not is_float(node.dtype):
        node = cast(node, "float32")
    shift, deviation = real_array("normalize: mean", mean), real_array("normalize: std", std)
    if not (deviation > 0).all():
        raise DataError(
            message(
                f"normalize: std={std!r}",
                need="positive numbers",
                hint="1 in the place of the deviation of what never changes",
            )
        )
    of_mean, of_deviation = (
        constant(_by_channel(values, node, layout or "NCHW"), dtype=node.dtype)
        for values in (shift, deviation)
    )
    return divide(subtract(node, of_mean), of_deviation)


def _by_channel(values: np.ndarray, images: Node, layout: str) -> np.ndarray:
    """Return numbers in a shape that broadcasts along the channels of images."""
    if images.ndim != 4 or values.ndim != 1 or values.size == 1:
        return values
    channels = images.shape[1 if layout == "NCHW" else 3]
    if isinstance(channels, int) and channels != values.size:
        other, last = ("NHWC", 3) if layout == "NCHW" else ("NCHW", 1)
        raise ShapeError(
            message(
                f"normalize: {describe(images)}, and {values.size} numbers for its channels",
                need=f"{channels} numbers, with layout={layout!r}",
                hint=f"layout={other!r}" if images.shape[last] == values.size else None,
            )
        )
    return values.reshape(-1, 1, 1) if layout == "NCHW" else values


def _images(who: str, images: Any, layout: str | None) -> tuple[Node, tuple[int, int]]:
    """Return images as a node, and the axes of their rows and columns."""
    if layout not in (None, "NCHW", "NHWC"):
        raise DataError(message(f"{who}: layout={layout!r}", need="'NCHW' or 'NHWC'"))
    node, last = as_node(images), layout == "NHWC"
    if node.ndim != 4:
        order = "rows, columns, channels" if last else "channels, rows, columns"
        sizes = "32, 32, 3" if last else "3, 32, 32"
        raise ShapeError(
            message(
                f"{who}: {describe(node)}",
                need=f"four axes: (batch, {order})",
                hint=f"mg.reshape(x, (-1, {sizes}))",
            )
        )
    second, final = node.shape[1], node.shape[3]
    if layout is None and final in (1, 3) and isinstance(second, int) and second not in (1, 3):
        raise ShapeError(
            message(
                f"{who}: {describe(node)} has {second} channels and {final} columns, if its axes "
                "are (batch, channels, rows, columns)",
                need='images with the channels first, or layout="NHWC" for channels last',
                hint='layout="NHWC", or np.moveaxis(x, -1, 1), as mg.nn.Conv2D takes them; '
                'layout="NCHW" if the sizes are meant so',
            )
        )
    return node, (1, 2) if last else (2, 3)
