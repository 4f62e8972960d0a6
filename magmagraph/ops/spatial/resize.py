"""Images made larger or smaller: nearest, linear and cubic interpolation, and pixel shuffles.

All is separable: along each axis a result is a weighted sum of one, two or four elements, which are
gathered. Positions and weights are computed from the extents, in float64, by ordinary operations,
so that named extents work; where extents are known they are constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, divide, floor_divide, multiply, subtract
from ..elementwise.comparison import clip, maximum
from ..elementwise.family import floating
from ..elementwise.rounding import floor
from ..indexing.gathering import TAKE
from ..indexing.iota import INT64, IOTA
from ..leaf import constant, extent
from ..shape.arrange import reshape, transpose

__all__ = ["pixel_shuffle", "pixel_unshuffle", "resize"]

_METHODS = ("nearest", "linear", "cubic")
_SHARPNESS = -0.75  # of the cubic kernel: the slope at distance 1
DOUBLE = np.dtype(np.float64)


def _number(value: Extent) -> Node:
    """Return an extent as a float64 node."""
    if isinstance(value, int):
        return constant(value, dtype=DOUBLE)
    return cast(extent(value), DOUBLE)


def _place(old: Extent, new: Extent, align_corners: bool) -> Node:
    """Return the source position of each element of a result."""
    at = IOTA(shape=(new,), axis=0, dtype=DOUBLE)
    if align_corners:
        # A single element lies on the first one.
        ratio = divide(subtract(_number(old), 1.0), maximum(subtract(_number(new), 1.0), 1.0))
        return multiply(at, ratio)
    ratio = divide(_number(old), _number(new))
    return subtract(multiply(add(at, 0.5), ratio), 0.5)


def _gathered(x: Node, at: Node, axis: int) -> Node:
    return TAKE(x, cast(at, INT64), axis=axis, mode="clip")


def _along(weights: Node, x: Node, axis: int) -> Node:
    shape: list[Extent] = [1] * x.ndim
    shape[axis] = weights.shape[0]
    return reshape(cast(weights, x.dtype), shape)


def _cubic(distance: Node, far: bool) -> Node:
    """Return the kernel's weight at a distance below 1, or between 1 and 2.

    R. Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4.
    """
    a, d = _SHARPNESS, distance
    if far:
        return a * (((d - 5.0) * d + 8.0) * d - 4.0)
    return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0


def _resized(x: Node, axis: int, new: Extent, method: str, align_corners: bool) -> Node:
    old = x.shape[axis]
    if method == "nearest":
        count = extent(old) if not isinstance(old, int) else old
        whole = extent(new) if not isinstance(new, int) else max(new, 1)
        at = floor_divide(multiply(IOTA(shape=(new,), axis=0, dtype=INT64), count), whole)
        return _gathered(x, at, axis)
    place = _place(old, new, align_corners)
    last = subtract(_number(old), 1.0)
    if method == "linear":
        place = clip(place, 0.0, last)
        low = floor(place)
        part = _along(subtract(place, low), x, axis)
        # Past the last element the gathering takes the last one, with the weight 0.
        first, second = _gathered(x, low, axis), _gathered(x, add(low, 1.0), axis)
        return add(multiply(first, subtract(1.0, part)), multiply(second, part))
    low = floor(place)
    part = subtract(place, low)
    total: Node | None = None
    for step, distance in ((-1, part + 1.0), (0, part), (1, 1.0 - part), (2, 2.0 - part)):
        weight = _along(_cubic(distance, far=step in (-1, 2)), x, axis)
        at = clip(add(low, float(step)), 0.0, last)
        term = multiply(_gathered(x, at, axis), weight)
        total = term if total is None else add(total, term)
    assert total is not None
    return total


@documented
def resize(
    x: Any,
    size: Any = None,
    *,
    scale: Any = None,
    method: str = "nearest",
    align_corners: bool = False,
    channels_last: bool = False,
) -> Node:
    """Resample images, or lines or volumes, to another size; also named `interpolate`.

    x: Node or array of shape ``(N, C, ...)`` with one to three axes of space; ints become floats.
    size: The new extents of the axes of space: ints or dimensions (one for all where it is not a
        sequence).
    scale: In the place of `size`: factors of the extents, one for all or a sequence. An int keeps a
        named extent exact; with another number the extent is rounded down and must be known.
    method: "nearest": the element at ``floor(i * old / new)``. "linear" and "cubic": weighted sums
        of the two, or four, nearest along each axis (bilinear, bicubic for images).
    align_corners: For "linear" and "cubic". True: the first and the last elements of source and
        result lie upon each other. False: their outer edges do, ``(i + 1/2) * old / new - 1/2``.
    channels_last: The shape is ``(N, ..., C)``.
    returns: Of the float dtype of `x`.
    raises ShapeError: If neither or both of `size` and `scale` are given, they do not fit the axes,
        or an option is none of those above.

    Notes
    -----
    Positions and weights are PyTorch's: elements beyond an edge are that of the edge, and the cubic
    kernel has the parameter -3/4. Nothing is smoothed where an image gets smaller; average it
    first.

    >>> mg.resize([[[1.0, 3.0]]], scale=2).eval()
    array([[[1., 1., 3., 3.]]], dtype=float32)
    >>> mg.resize([[[1.0, 3.0]]], 4, method="linear").eval()
    array([[[1. , 1.5, 2.5, 3. ]]], dtype=float32)
    >>> mg.resize(mg.input("x", ("n", 3, "h", "w")), scale=2).shape
    (n, 3, 2*h, 2*w)
    """
    node = floating(x)
    call = Call(RESIZE, (node,))
    if method not in _METHODS:
        raise call.shape_error(f"method={method!r}", need=f"one of {', '.join(_METHODS)}")
    space = node.ndim - 2
    if not 1 <= space <= 3:
        raise call.shape_error(f"{space} axes of space", need="1 to 3: (N, C, ...)")
    if align_corners and method == "nearest":
        raise call.shape_error(
            "align_corners=True with method='nearest'", need="method='linear' or 'cubic'"
        )
    first = 1 if channels_last else 2
    old = node.shape[first : first + space]
    new = _new_extents(call, old, size, scale)
    for extent_, old_extent in zip(new, old, strict=True):
        if (
            isinstance(old_extent, int)
            and not old_extent
            and not (isinstance(extent_, int) and not extent_)
        ):
            raise call.shape_error("an axis without elements", need="at least one to sample")
    result = cast(node, np.float32) if node.dtype.itemsize < 4 else node
    for axis, (before, after) in enumerate(zip(old, new, strict=True), first):
        if before != after:
            result = _resized(result, axis, after, method, align_corners)
    return cast(result, node.dtype)


def _new_extents(call: Call, old: Sequence[Extent], size: Any, scale: Any) -> list[Extent]:
    if (size is None) == (scale is None):
        raise call.shape_error(
            "size and scale are both given" if scale is not None else "neither size nor scale",
            need="one of the two",
        )
    argument = scale if size is None else size
    values = list(argument) if isinstance(argument, (tuple, list)) else [argument] * len(old)
    if len(values) != len(old):
        raise call.shape_error(f"{len(values)} numbers for {len(old)} axes of space")
    if size is not None:
        return list(dims.parse_shape(tuple(values)))
    result: list[Extent] = []
    for extent_, factor in zip(old, values, strict=True):
        if isinstance(factor, (int, np.integer)) and not isinstance(factor, bool) and factor > 0:
            result.append(extent_ * int(factor))
        elif isinstance(factor, float) and factor > 0 and isinstance(extent_, int):
            result.append(math.floor(extent_ * factor))
        else:
            raise call.shape_error(
                f"scale={factor!r} for an extent {extent_}",
                need="a positive int, or for a known extent any positive number",
            )
    return result


def _factor(call: Call, factor: Any) -> int:
    if not isinstance(factor, (int, np.integer)) or isinstance(factor, bool) or factor < 1:
        raise call.shape_error(f"factor={factor!r}", need="a positive int")
    return int(factor)


@documented
def pixel_shuffle(x: Any, factor: int) -> Node:
    """Make an image larger by laying channels out as pixels.

    W. Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel
    convolutional neural network", CVPR 2016, equation 4.

    x: Node or array of shape ``(..., C * factor**2, H, W)``.
    factor: A positive int.
    returns: Of shape ``(..., C, H * factor, W * factor)``.
    raises ShapeError: If the channels are not a multiple of ``factor**2``.

    >>> mg.pixel_shuffle([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], 2).eval()
    array([[[1., 2.],
            [3., 4.]]], dtype=float32)
    """
    node = as_node(x)
    call = Call(PIXEL_SHUFFLE, (node,))
    r = _factor(call, factor)
    if node.ndim < 3:
        raise call.shape_error(f"an operand of {node.ndim} axes", need="(..., C, H, W)")
    *lead, channels, height, width = node.shape
    if isinstance(channels, int) and channels % (r * r):
        raise call.shape_error(f"{channels} channels for factor={r}", need=f"a multiple of {r * r}")
    channel_count = channels // (r * r)
    n = len(lead)
    parts = reshape(node, (*lead, channel_count, r, r, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(transpose(parts, order), (*lead, channel_count, height * r, width * r))


@documented
def pixel_unshuffle(x: Any, factor: int) -> Node:
    """Make an image smaller by laying pixels out as channels: the inverse of `pixel_shuffle`.

    x: Node or array of shape ``(..., C, H * factor, W * factor)``.
    factor: A positive int.
    returns: Of shape ``(..., C * factor**2, H, W)``.
    raises ShapeError: If height or width is not a multiple of `factor`.

    >>> mg.pixel_unshuffle([[[1.0, 2.0], [3.0, 4.0]]], 2).eval().ravel()
    array([1., 2., 3., 4.], dtype=float32)
    """
    node = as_node(x)
    call = Call(PIXEL_UNSHUFFLE, (node,))
    r = _factor(call, factor)
    if node.ndim < 3:
        raise call.shape_error(f"an operand of {node.ndim} axes", need="(..., C, H, W)")
    *lead, channels, height, width = node.shape
    for each, what in ((height, "height"), (width, "width")):
        if isinstance(each, int) and each % r:
            raise call.shape_error(f"{what} {each} for factor={r}", need=f"a multiple of {r}")
    n = len(lead)
    parts = reshape(node, (*lead, channels, height // r, r, width // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshape(
        transpose(parts, order), (*lead, channels * (r * r), height // r, width // r)
    )


# Records.


def _kernel(distance: float) -> float:
    d, a = abs(distance), _SHARPNESS
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _matrix(old: int, new: int, method: str, align_corners: bool) -> np.ndarray:
    """Return the weights of all elements in each result, by the definition."""
    weights = np.zeros((new, old))
    for i in range(new):
        if method == "nearest":
            weights[i, i * old // new] = 1.0
            continue
        if align_corners:
            at = i * (old - 1) / (new - 1) if new > 1 else 0.0
        else:
            at = (i + 0.5) * old / new - 0.5
        if method == "linear":
            at = min(max(at, 0.0), old - 1.0)
        for j in range(math.floor(at) - 1, math.floor(at) + 3):
            weight = max(0.0, 1 - abs(at - j)) if method == "linear" else _kernel(at - j)
            weights[i, min(max(j, 0), old - 1)] += weight
    return weights


def _resize_reference(
    x: np.ndarray,
    size: Any = None,
    scale: Any = None,
    method: str = "nearest",
    align_corners: bool = False,
    channels_last: bool = False,
) -> np.ndarray:
    first, space = 1 if channels_last else 2, x.ndim - 2
    argument = size if scale is None else scale
    values = argument if isinstance(argument, (tuple, list)) else [argument] * space
    for axis, value in enumerate(values, first):
        old = x.shape[axis]
        new = value if scale is None else math.floor(old * value)
        weights = _matrix(old, new, method, align_corners)
        x = np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)
    return x


_LINES = np.cos(np.arange(10.0)).reshape(1, 2, 5)
_IMAGES = np.sin(1.3 * np.arange(24.0)).reshape(1, 2, 3, 4)
_VOLUME = np.sin(0.7 * np.arange(24.0)).reshape(1, 1, 2, 3, 4)


def _shuffled(x: np.ndarray, factor: int) -> np.ndarray:
    *lead, channels, height, width = x.shape
    image = np.empty((*lead, channels // factor**2, height * factor, width * factor))
    for c, i, j in np.ndindex(image.shape[-3:]):
        source = c * factor**2 + (i % factor) * factor + j % factor
        image[..., c, i, j] = x[..., source, i // factor, j // factor]
    return image


RESIZE = Composite(
    kind=Kind.LAYOUT,
    function=resize,
    tests=Tests(
        samples=lambda: [
            Sample((_LINES,), {"size": 8}),
            Sample((_LINES,), {"scale": 0.5}),
            Sample((_LINES,), {"size": 8, "method": "linear"}),
            Sample((_LINES,), {"size": 3, "method": "linear", "align_corners": True}),
            Sample((_LINES,), {"size": 1, "method": "cubic", "align_corners": True}),
            Sample((_IMAGES,), {"scale": 2, "method": "linear"}),
            Sample((_IMAGES,), {"scale": (2, 1.5), "method": "cubic"}),
            Sample((_IMAGES,), {"size": (5, 7), "method": "cubic", "align_corners": True}),
            Sample((_IMAGES,), {"size": (5, 2), "method": "linear", "channels_last": True}),
            Sample((_VOLUME,), {"scale": 2}),
            Sample((_VOLUME,), {"size": (3, 3, 3), "method": "linear"}),
        ],
        bad_samples=lambda: [
            BadSample((_IMAGES,), ShapeError, "resize: neither size nor scale"),
            BadSample(
                (_IMAGES,), ShapeError, "resize: method='area'", {"size": 2, "method": "area"}
            ),
            BadSample(
                (_IMAGES,), ShapeError, "resize: 3 numbers for 2 axes of space", {"size": (1, 2, 3)}
            ),
            BadSample((_IMAGES[0, 0],), ShapeError, "resize: 0 axes of space", {"size": 2}),
            BadSample((_IMAGES,), ShapeError, "resize: scale=0 for an extent 3", {"scale": 0}),
            BadSample(
                (_IMAGES,),
                ShapeError,
                "resize: align_corners=True with method='nearest'",
                {"size": 2, "align_corners": True},
            ),
        ],
        reference=_resize_reference,
    ),
    numerics="reassoc",
)
PIXEL_SHUFFLE = Composite(
    kind=Kind.LAYOUT,
    function=pixel_shuffle,
    tests=Tests(
        samples=lambda: [
            Sample((_VOLUME.reshape(4, 3, 2),), {"factor": 2}),
            Sample((np.arange(36.0).reshape(1, 9, 2, 2),), {"factor": 3}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_IMAGES,), ShapeError, "pixel_shuffle: 2 channels for factor=2", {"factor": 2}
            ),
            BadSample((_IMAGES,), ShapeError, "pixel_shuffle: factor=0", {"factor": 0}),
        ],
        reference=_shuffled,
    ),
    numerics="exact",
)
PIXEL_UNSHUFFLE = Composite(
    kind=Kind.LAYOUT,
    function=pixel_unshuffle,
    tests=Tests(
        samples=lambda: [Sample((np.arange(48.0).reshape(1, 2, 4, 6),), {"factor": 2})],
        bad_samples=lambda: [
            BadSample(
                (_IMAGES,), ShapeError, "pixel_unshuffle: height 3 for factor=2", {"factor": 2}
            )
        ],
        reference=lambda x, factor: np.stack(
            [
                x[:, c, i::factor, j::factor]
                for c in range(x.shape[1])
                for i in range(factor)
                for j in range(factor)
            ],
            axis=1,
        ),
    ),
    numerics="exact",
)

RECORDS = (RESIZE, PIXEL_SHUFFLE, PIXEL_UNSHUFFLE)
