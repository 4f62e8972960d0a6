"""Images resized and sampled at positions: Resize, GridSample, DeformConv, RoiAlign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import divide, multiply, remainder
from ...ops.elementwise.bits import logical_and
from ...ops.elementwise.comparison import clip, greater_equal, less, less_equal, maximum, where
from ...ops.elementwise.rounding import floor, rint
from ...ops.elementwise.signs import absolute
from ...ops.indexing.gathering import take
from ...ops.leaf import constant
from ...ops.products.contraction import matmul
from ...ops.products.einsum import einsum
from ...ops.reduction import primitives
from ...ops.shape.arrange import expand_dims, moveaxis, reshape, swapaxes
from ...ops.shape.joining import broadcast_to, concatenate
from ...ops.spatial.resize import resize
from .operator import Operator, Rule
from .shapes import iota

__all__ = ["SAMPLING"]


# Resize: along each axis a matrix of weights.


def _places(op: Operator, old: int, new: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Return where each element of a result lies among those of its source."""
    at = np.arange(new, dtype=np.float64)
    word = op.get("coordinate_transformation_mode", "half_pixel")
    if word == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if word == "half_pixel_symmetric":
        whole = new / (scale * old)
        return old / 2 * (1 - whole) + (at + 0.5) / scale - 0.5
    if word == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if new > 1 else at * 0.0
    if word == "align_corners":
        # Of scales, the width before it is rounded down.
        return at * (old - 1) / (scale * old - 1) if new > 1 else at * 0.0
    if word == "asymmetric":
        return at / scale
    if word == "tf_crop_and_resize":
        if new == 1:
            return np.full(1, 0.5 * (roi[0] + roi[1]) * (old - 1))
        return roi[0] * (old - 1) + at * (roi[1] - roi[0]) * (old - 1) / (new - 1)
    raise op.refuse(f"coordinate_transformation_mode={word!r}")


def _nearest(op: Operator, places: np.ndarray, old: int) -> np.ndarray:
    word = op.get("nearest_mode", "round_prefer_floor")
    rounds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if word not in rounds:
        raise op.refuse(f"nearest_mode={word!r}")
    return np.asarray(np.clip(rounds[word](places), 0, old - 1), np.int64)


def _kernel(op: Operator, distance: np.ndarray) -> np.ndarray:
    """Return the weight at a distance: of the linear or the cubic kernel (R. Keys, 1981)."""
    d = np.abs(distance)
    if op.get("mode") == "linear":
        return np.asarray(np.maximum(1 - d, 0))
    a = op.get("cubic_coeff_a", -0.75)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


def _weights(op: Operator, places: np.ndarray, old: int, scale: float) -> np.ndarray:
    """Return the matrix that takes elements along an axis to those of the result."""
    stretch = min(scale, 1.0) if op.get("antialias", 0) else 1.0
    reach = math.ceil((1 if op.get("mode") == "linear" else 2) / stretch) + 1
    low = np.floor(places).astype(np.int64)
    matrix = np.zeros((len(places), old))
    rows = np.arange(len(places))
    total = np.zeros(len(places))
    for shift in range(-reach, reach + 1):
        at = low + shift
        weight = _kernel(op, (at - places) * stretch)
        if op.get("exclude_outside", 0):
            weight = np.where((at < 0) | (at >= old), 0.0, weight)
        np.add.at(matrix, (rows, np.clip(at, 0, old - 1)), weight)
        total += weight
    return np.asarray(matrix / total[:, None])


def _resize(op: Operator) -> Node:
    x = op.node()
    axes = [op.counted(a, x.ndim) for a in op.get("axes", list(range(x.ndim)))]
    mode = op.get("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise op.refuse(f"mode={mode!r}")
    extents = [x.shape[a] for a in axes]
    scales, sizes = _targets(op, extents)
    roi = [(0.0, 1.0)] * len(axes)
    crops = op.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crops and op.has(1):
        ends = np.asarray(op.array(1, "the region"), np.float64)
        roi = [(float(ends[i]), float(ends[i + len(axes)])) for i in range(len(axes))]
    changed = [
        i for i, (old, new, s) in enumerate(zip(extents, sizes, scales, strict=True))
        if crops or not (_same(old, new) and s == 1.0)
    ]
    if any(isinstance(extents[i], Dim) for i in changed):
        return _resized_by_names(op, x, [axes[i] for i in changed], [sizes[i] for i in changed])
    outside = None
    value = x if mode == "nearest" or x.dtype.kind == "f" else cast(x, "float32")
    for i in changed:
        old, new, axis = extents[i], sizes[i], axes[i]
        assert isinstance(old, int)
        assert isinstance(new, int)
        places = _places(op, old, new, scales[i], roi[i])
        if crops:
            beyond = (places < 0) | (places > old - 1)
            shape = [1] * x.ndim
            shape[axis] = new
            flags = constant(beyond.reshape(shape))
            outside = flags if outside is None else outside | flags
        if mode == "nearest":
            value = take(value, constant(_nearest(op, places, old)), axis=axis)
        else:
            matrix = constant(_weights(op, places, old, scales[i]).astype(value.dtype))
            last = swapaxes(value, axis, -1)
            value = swapaxes(matmul(last, swapaxes(matrix, 0, 1)), axis, -1)
    if outside is not None:
        value = where(outside, value.dtype.type(op.get("extrapolation_value", 0.0)), value)
    return op.like(value)


def _same(a: Extent, b: Extent) -> bool:
    return str(a) == str(b)


def _targets(op: Operator, extents: Sequence[Extent]) -> tuple[list[float], list[Extent]]:
    """Return the scale and the size of each axis that is resized."""
    if op.has(3) and op.node(3).size != 0:
        sizes = op.extents(3)
        policy = op.get("keep_aspect_ratio_policy", "stretch")
        scales = [
            1.0 if _same(old, new) else
            (new / old if isinstance(new, int) and isinstance(old, int) and old else 0.0)
            for old, new in zip(extents, sizes, strict=True)
        ]
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(scales)
            sizes = [math.floor(old * scale + 0.5) for old in extents]  # type: ignore[operator]
            scales = [scale] * len(extents)
        return scales, sizes
    if not op.has(2):
        raise op.refuse("it has neither scales nor sizes")
    scales = [float(s) for s in np.asarray(op.array(2, "the size of the result"), np.float64)]
    if len(scales) != len(extents) or any(not 0 < s < 1e6 for s in scales):
        raise op.refuse(f"scales {scales} for {len(extents)} axes")
    sizes = []
    for old, s in zip(extents, scales, strict=True):
        if isinstance(old, int):
            sizes.append(math.floor(old * s))
        elif s.is_integer():
            sizes.append(old * int(s))
        else:
            raise op.refuse(f"an extent {old} that a call brings is scaled by {s}")
    return scales, sizes


def _resized_by_names(op: Operator, x: Node, axes: list[int], sizes: list[Extent]) -> Node:
    """Resize axes whose extents a call brings, where the library's own function means the same."""
    mode, word = op.get("mode", "nearest"), op.get("coordinate_transformation_mode", "half_pixel")
    plain = not (op.get("antialias", 0) or op.get("exclude_outside", 0))
    nearest = mode == "nearest" and word == "asymmetric" and op.get("nearest_mode") == "floor"
    smooth = mode in ("linear", "cubic") and word in (
        "half_pixel", "pytorch_half_pixel", "align_corners",
    )
    if not plain or not (nearest or smooth) or not all(axis >= 2 for axis in axes):
        raise op.refuse(
            f"mode={mode!r} and coordinate_transformation_mode={word!r} of extents that a call "
            f"brings", "mg.from_onnx(..., shapes=) with whole numbers",
        )
    size = list(x.shape[2:])
    for axis, extent in zip(axes, sizes, strict=True):
        size[axis - 2] = extent
    return resize(x, tuple(size), method=mode, align_corners=word == "align_corners")


# Samples at positions.


def _reflected(at: Node, low: Any, high: Any) -> Node:
    """Return positions reflected at two ends until they are between them."""
    width = high - low
    if isinstance(width, (int, float)) and width == 0:
        return cast(at * 0.0 + low, at.dtype)
    turned = remainder(at - low, 2.0 * width)
    return cast(where(less_equal(turned, width), turned, 2.0 * width - turned) + low, at.dtype)


def _sampled(
    image: Node, at: Sequence[Node], mode: str, padding: str, align: bool, sharpness: float = -0.75
) -> Node:
    """Return samples of ``(N, *spatial, C)`` at positions ``(N, *places)`` along each axis."""
    count = len(at)
    sizes = [image.shape[1 + axis] for axis in range(count)]
    places = list(at)

    def bounded(place: Node, size: Any) -> Node:
        if padding == "border":
            return clip(place, 0.0, float(size - 1))
        if padding == "reflection":
            low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
            return _reflected(place, low, high)
        return place

    if mode != "cubic":
        places = [bounded(p, s) for p, s in zip(places, sizes, strict=True)]
    options: list[list[tuple[Node, Node | None]]] = []
    for place, size in zip(places, sizes, strict=True):
        if mode == "nearest":
            options.append([(rint(place), None)])
            continue
        low = floor(place)
        part = place - low
        if mode == "linear":
            options.append([(low, 1.0 - part), (low + 1.0, part)])
            continue
        near = [(shift, absolute(part - float(shift))) for shift in (-1, 0, 1, 2)]
        options.append(
            [
                (bounded(low + float(shift), size), _cubic(d, sharpness, shift in (-1, 2)))
                for shift, d in near
            ]
        )
    total: Node | None = None
    rows = image.shape[0]
    batch = iota(rows, 0, at[0].ndim)
    for corner in itertools.product(*options):
        index, inside, weight = [], None, None
        for (place, share), size in zip(corner, sizes, strict=True):
            held = clip(place, 0.0, float(size - 1))
            index.append(cast(held, "int64"))
            if padding == "zeros":
                fits = logical_and(greater_equal(place, 0.0), less_equal(place, float(size - 1)))
                inside = fits if inside is None else logical_and(inside, fits)
            if share is not None:
                weight = share if weight is None else multiply(weight, share)
        value = image[(batch, *index)]
        if inside is not None:
            value = where(expand_dims(inside, -1), value, 0.0)
        if weight is not None:
            value = value * expand_dims(weight, -1)
        total = value if total is None else total + value
    assert total is not None
    return total


def _cubic(d: Node, a: float, far: bool) -> Node:
    if far:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return ((a + 2) * d - (a + 3)) * d * d + 1.0


def _static(op: Operator, x: Node) -> None:
    if any(isinstance(e, Dim) for e in x.shape[2:]):
        raise op.refuse(f"an image of shape {x.shape}, whose extents a call brings")


def _grid_sample(op: Operator) -> Node:
    x, grid = op.node(0), op.node(1)
    _static(op, x)
    align = bool(op.get("align_corners", 0))
    mode = op.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    count = x.ndim - 2
    at = []
    for axis in range(count):  # the last coordinate is that along the last axis
        size = x.shape[2 + axis]
        g = grid[..., count - 1 - axis]
        at.append(
            (g + 1.0) * ((size - 1) / 2.0) if align else ((g + 1.0) * float(size) - 1.0) / 2.0
        )
    sampled = _sampled(moveaxis(x, 1, -1), at, mode, op.get("padding_mode", "zeros"), align)
    return op.like(moveaxis(sampled, -1, 1))


def _deform_conv(op: Operator) -> Node:
    x, w, offset = op.node(0), op.node(1), op.node(2)
    bias, mask = op.optional(3), op.optional(4)
    if x.ndim != 4:
        raise op.refuse(f"{x.ndim - 2} spatial axes", "2 spatial axes")
    _static(op, x)
    n, channels = x.shape[:2]
    kh, kw = w.shape[2:]
    groups, parts = op.get("group", 1), op.get("offset_group", 1)
    strides, dilations = op.get("strides", [1, 1]), op.get("dilations", [1, 1])
    pads = op.get("pads", [0] * 4)
    oh, ow = offset.shape[2:]
    shifts = reshape(offset, (n, parts, kh, kw, 2, oh, ow))
    values = []
    for g in range(parts):
        at = []
        for axis, (k, s, d) in enumerate(zip((kh, kw), strides, dilations, strict=True)):
            grid = iota(k, 1 + axis, 5) * d + iota((oh, ow)[axis], 3 + axis, 5) * s - pads[axis]
            at.append(cast(grid, x.dtype) + shifts[:, g, :, :, axis])
        size = channels // parts
        image = moveaxis(x[:, g * size : (g + 1) * size], 1, -1)
        value = _sampled(image, at, "linear", "zeros", True)  # (n, kh, kw, oh, ow, size)
        if mask is not None:
            weights = reshape(mask, (n, parts, kh, kw, oh, ow))[:, g]
            value = value * expand_dims(weights, -1)
        values.append(value)
    columns = concatenate(values, -1)
    out = w.shape[0]
    made = []
    for g in range(groups):
        size, wide = channels // groups, out // groups
        made.append(
            einsum(
                "nabhwc,ocab->nohw",
                columns[..., g * size : (g + 1) * size],
                w[g * wide : (g + 1) * wide],
            )
        )
    result = concatenate(made, 1)
    return result if bias is None else result + reshape(bias, (-1, 1, 1))


def _roi_align(op: Operator) -> Node:
    x, rois, batch = op.node(0), op.node(1), op.node(2)
    _static(op, x)
    half = op.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    height, width = op.get("output_height", 1), op.get("output_width", 1)
    ratio, scale = op.get("sampling_ratio", 0), op.get("spatial_scale", 1.0)
    if ratio <= 0:
        raise op.refuse(
            "sampling_ratio=0: how many samples are taken depends on what is fed",
            "a model with a sampling_ratio",
        )
    shift = 0.5 if half else 0.0
    ends = rois * scale - shift  # x1, y1, x2, y2
    at = []
    for start, stop, count in ((1, 3, height), (0, 2, width)):
        first, size = ends[:, start], ends[:, stop] - ends[:, start]
        if not half:
            size = maximum(size, 1.0)
        step = size / float(count * ratio)
        places = (np.arange(count * ratio) + 0.5).astype(x.dtype)
        at.append(expand_dims(first, 1) + expand_dims(step, 1) * places)
    h, w = x.shape[2:]
    y, z = expand_dims(at[0], 2), expand_dims(at[1], 1)  # (rois, H, 1), (rois, 1, W)
    shape = (rois.shape[0], height * ratio, width * ratio)
    y, z = broadcast_to(y, shape), broadcast_to(z, shape)
    outside = (less(y, -1.0) | less(float(h), y)) | (less(z, -1.0) | less(float(w), z))
    image = take(moveaxis(x, 1, -1), batch, axis=0)
    best = op.get("mode", "avg") == "max"
    samples = _sampled_parts(image, [y, z]) if best else None
    pooled_shape = (rois.shape[0], height, ratio, width, ratio, x.shape[1])
    if samples is not None:
        value = where(expand_dims(outside, -1), 0.0, samples)
        return moveaxis(primitives.max(reshape(value, pooled_shape), axis=(2, 4)), -1, 1)
    value = _sampled(image, [y, z], "linear", "border", True)
    value = where(expand_dims(outside, -1), 0.0, value)
    total = primitives.sum(reshape(value, pooled_shape), axis=(2, 4))
    return moveaxis(divide(total, float(ratio * ratio)), -1, 1)


def _sampled_parts(image: Node, at: Sequence[Node]) -> Node:
    """Return the largest of the four weighted neighbours, which ONNX calls the maximum."""
    sizes = [image.shape[1 + axis] for axis in range(2)]
    batch = iota(image.shape[0], 0, 3)
    largest: Node | None = None
    for up, right in itertools.product((0, 1), (0, 1)):
        weight, index = None, []
        for place, size, far in zip(at, sizes, (up, right), strict=True):
            inside = clip(place, 0.0, float(size - 1))
            low = floor(inside)
            part = inside - low
            share = part if far else 1.0 - part
            weight = share if weight is None else weight * share
            index.append(cast(clip(low + float(far), 0.0, float(size - 1)), "int64"))
        assert weight is not None
        value = image[(batch, *index)] * expand_dims(weight, -1)
        largest = value if largest is None else maximum(largest, value)
    assert largest is not None
    return largest


SAMPLING: dict[str, Rule] = {
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "RoiAlign": _roi_align,
}
