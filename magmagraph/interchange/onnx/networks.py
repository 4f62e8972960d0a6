"""Products, normalizations, dropout, random numbers, transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...fft import fft, ifft, irfft, rfft
from ...functional import dropout, layer_norm
from ...ir.graph import Node
from ...ir.types import Extent
from ...linalg import det
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import divide, multiply, subtract
from ...ops.elementwise.comparison import clip, equal, where
from ...ops.elementwise.complex_numbers import complex as complex_numbers
from ...ops.elementwise.complex_numbers import imag, real
from ...ops.elementwise.math import cos, power, sqrt
from ...ops.elementwise.rounding import rint
from ...ops.elementwise.signs import absolute
from ...ops.indexing.iota import arange
from ...ops.leaf import constant
from ...ops.products.contraction import matmul
from ...ops.products.einsum import einsum
from ...ops.reduction.primitives import sum
from ...ops.reduction.statistics import mean
from ...ops.shape.arrange import reshape, transpose
from ...ops.shape.joining import broadcast_to, stack
from ...ops.shape.padding import pad
from ...ops.shape.tiling import repeat
from ...random import bernoulli, normal, uniform
from .files import dtype_of
from .narrow import bounds, narrow_name, narrowed
from .operator import Operator, Rule
from .shapes import iota
from .windows import convolved

__all__ = ["NETWORKS"]


# Products.


def _gemm(op: Operator) -> Node:
    a, b = op.node(0), op.node(1)
    a = transpose(a) if op.get("transA", 0) else a
    b = transpose(b) if op.get("transB", 0) else b
    product = matmul(a, b)
    alpha, beta = op.get("alpha", 1.0), op.get("beta", 1.0)
    if alpha != 1.0:
        product = op.like(multiply(product, alpha))
    if not op.has(2):
        return product
    c = op.node(2)
    return product + (c if beta == 1.0 else op.like(multiply(c, beta)))


def _einsum(op: Operator) -> Node:
    return einsum(op.get("equation", "").replace(" ", ""), *op.nodes)


# Normalizations.


def _along(op: Operator, weights: Node, ndim: int, axis: int = 1) -> Node:
    """Return a vector along an axis, of extent 1 along all others."""
    shape: list[Extent] = [1] * ndim
    shape[axis] = weights.shape[0]
    return reshape(weights, tuple(shape))


def _batch_norm(op: Operator) -> Any:
    x, scale, offset, average, spread = op.nodes
    eps = op.get("epsilon", 1e-5)
    if not op.get("training_mode", 0):
        # One factor and one offset for each channel.
        factor = divide(scale, sqrt(spread + eps))
        shift = offset - average * factor
        return op.like(x * _along(op, factor, x.ndim) + _along(op, shift, x.ndim))
    axes = tuple(a for a in range(x.ndim) if a != 1)
    momentum = op.get("momentum", 0.9)
    now = mean(x, axis=axes)
    deviation = x - _along(op, now, x.ndim)
    variance = mean(deviation * deviation, axis=axes)
    scaled = deviation * _along(op, divide(scale, sqrt(variance + eps)), x.ndim)
    result = op.like(scaled + _along(op, offset, x.ndim))
    return (
        result,
        average * momentum + now * (1 - momentum),
        spread * momentum + variance * (1 - momentum),
    )


def _instance_norm(op: Operator) -> Node:
    x, scale, offset = op.nodes
    normal_form = layer_norm(x, axis=tuple(range(2, x.ndim)), eps=op.get("epsilon", 1e-5))
    return op.like(normal_form * _along(op, scale, x.ndim) + _along(op, offset, x.ndim))


def _layer_norm(op: Operator) -> Any:
    x, scale = op.node(0), op.node(1)
    axes = tuple(range(op.axis(x.ndim, -1), x.ndim))
    eps = op.get("epsilon", 1e-5)
    wide = cast(x, "float32") if x.dtype.itemsize < 4 and op.get("stash_type", 1) == 1 else x
    result = op.like(layer_norm(wide, axis=axes, eps=eps)) * scale
    if op.has(2):
        result = result + op.node(2)
    if op.outputs < 2:
        return result
    average = mean(wide, axis=axes, keepdims=True)
    deviation = wide - average
    variance = mean(deviation * deviation, axis=axes, keepdims=True)
    return result, average, divide(1.0, sqrt(variance + eps))


def _rms_norm(op: Operator) -> Node:
    x, scale = op.node(0), op.node(1)
    axes = tuple(range(op.axis(x.ndim, -1), x.ndim))
    wide = cast(x, "float32") if x.dtype.itemsize < 4 and op.get("stash_type", 1) == 1 else x
    square = mean(wide * wide, axis=axes, keepdims=True)
    return op.like(divide(wide, sqrt(square + op.get("epsilon", 1e-5)))) * scale


def _group_norm(op: Operator) -> Node:
    x, scale, offset = op.nodes
    groups = int(op.get("num_groups", 1))
    n, channels, *spatial = x.shape
    parts = reshape(x, (n, groups, channels // groups, *spatial))
    normal_form = layer_norm(parts, axis=tuple(range(2, parts.ndim)), eps=op.get("epsilon", 1e-5))
    if op.since < 21:  # a scale for each group
        by_group = op.like(normal_form) * _along(op, scale, parts.ndim)
        return reshape(by_group + _along(op, offset, parts.ndim), x.shape)
    flat = op.like(reshape(normal_form, x.shape))
    return flat * _along(op, scale, x.ndim) + _along(op, offset, x.ndim)


def _lp_norm(op: Operator) -> Node:
    x = op.node()
    axis, p = op.axis(x.ndim, -1), op.get("p", 2)
    size = sum(absolute(x) if p == 1 else x * x, axis=axis, keepdims=True)
    size = size if p == 1 else sqrt(size)
    zero = equal(size, 0.0)
    return op.like(where(zero, 0.0, divide(x, where(zero, 1.0, size))))


def _variance_norm(op: Operator) -> Node:
    x = op.node()
    axes = tuple(op.get("axes", [0, 2, 3]))
    average = mean(x, axis=axes, keepdims=True)
    variance = mean(x * x, axis=axes, keepdims=True) - average * average
    return divide(subtract(x, average), sqrt(variance) + 1e-9)


def _response_norm(op: Operator) -> Node:
    x = op.node()
    size = int(op.get("size", 1))
    alpha, beta, bias = op.get("alpha", 1e-4), op.get("beta", 0.75), op.get("bias", 1.0)
    low, high = (size - 1) // 2, size // 2
    width = [(0, 0)] * x.ndim
    width[1] = (low, high)
    squares = pad(x * x, width)
    total = squares[:, 0 : x.shape[1]]
    for shift in range(1, size):
        total = total + squares[:, shift : x.shape[1] + shift]
    return divide(x, power(total * (alpha / size) + bias, beta))


# Random numbers.


def _dropout(op: Operator) -> Any:
    x = op.node()
    training = bool(op.number(2, "whether it is for training")) if op.has(2) else False
    rate = float(op.number(1, "the rate")) if op.has(1) else 0.5
    if not training or rate == 0.0:
        return x if op.outputs < 2 else (x, cast(_ones(x), "bool"))
    kept = dropout(x, rate)
    if op.outputs < 2:
        return kept
    mask = cast(dropout(_ones(x), rate), "bool")
    return where(mask, divide(x, 1.0 - rate), 0.0), mask


def _ones(x: Node) -> Node:
    return broadcast_to(constant(1, dtype=x.dtype), x.shape)


def _drawn(op: Operator, shape: Any, dtype: np.dtype) -> Node:
    wide = "float64" if dtype.name == "float64" else "float32"
    if op.type.startswith("RandomUniform"):
        random = uniform(shape, op.get("low", 0.0), op.get("high", 1.0), dtype=wide)
    else:
        random = normal(shape, op.get("mean", 0.0), op.get("scale", 1.0), dtype=wide)
    return random if random.dtype == dtype else cast(random, dtype)


def _random(op: Operator) -> Node:
    return _drawn(op, tuple(op.get("shape", [])), op.dtype(op.get("dtype", 1)))


def _random_like(op: Operator) -> Node:
    x = op.node()
    number = op.get("dtype")
    return _drawn(op, x.shape, x.dtype if number is None else op.dtype(number))


def _bernoulli(op: Operator) -> Node:
    x = op.node()
    number = op.get("dtype")
    return cast(bernoulli(x.shape, x), x.dtype if number is None else op.dtype(number))


# Windows and transforms.


def _window(*weights: float) -> Rule:
    """Return the rule of a sum of cosines."""

    def rule(op: Operator) -> Node:
        size = op.extents(0)[0]
        count = op.shape(size)[0] - (0 if op.get("periodic", 1) else 1)
        turn = divide(cast(arange(size), "float32") * (2 * math.pi), cast(count, "float32"))
        total: Any = weights[0]
        for k, weight in enumerate(weights[1:], 1):
            total = total + cos(turn * float(k)) * (weight * (-1) ** k)
        return cast(total, op.dtype(op.get("output_datatype", 1)))

    return rule


def _mel(op: Operator) -> Node:
    what = "the matrix"
    bins, length, rate, low, high = (op.number(i, what) for i in range(5))
    count = length // 2 + 1
    ends = [2595 * math.log10(1 + f / 700) for f in (low, high)]
    places = np.arange(bins + 2, dtype=np.float64) * (ends[1] - ends[0]) / (bins + 2) + ends[0]
    edges = ((700 * (10 ** (places / 2595) - 1) * (length + 1)) // rate).astype(np.int64)
    matrix = np.zeros((count, bins), np.float64)
    for i in range(bins):
        first, middle, last = edges[i : i + 3]
        if middle == first:
            matrix[middle, i] = 1
        else:
            at = np.arange(first, middle + 1)
            matrix[at, i] = (at - first) / (middle - first)
        if last > middle:
            at = np.arange(middle, last)
            matrix[at, i] = (last - at) / (last - middle)
    number = op.get("output_datatype", 1)
    return op.build.known.add(matrix.astype(op.dtype(number)))


def _as_complex(x: Node) -> Node:
    if x.shape[-1] == 1:
        return x[..., 0]
    return complex_numbers(x[..., 0], x[..., 1])


def _pairs(x: Node) -> Node:
    return stack([real(x), imag(x)], axis=-1)


def _fourier(op: Operator) -> Node:
    x = op.node()
    if op.since >= 20:
        axis = int(op.number(2, "the axis")) if op.has(2) else -2
    else:
        axis = op.get("axis", 1)
    axis = op.counted(axis, x.ndim)
    values = _as_complex(x)
    count = int(op.number(1, "the length")) if op.has(1) else None
    inverse, half = bool(op.get("inverse", 0)), bool(op.get("onesided", 0))
    if half and not inverse:
        return op.like(_pairs(rfft(values, count, axis)))
    if half:
        length = count if count is not None else 2 * (values.shape[axis] - 1)
        return op.like(irfft(values, length, axis)[..., None])
    result = ifft(values, count, axis) if inverse else fft(values, count, axis)
    return op.like(_pairs(result))


def _short_fourier(op: Operator) -> Node:
    x = op.node()
    step = int(op.number(1, "the number of frames"))
    window = op.optional(2)
    if op.has(3):
        length: Any = int(op.number(3, "the length of a frame"))
    elif window is not None:
        length = window.shape[0]
    else:
        raise op.refuse("it has neither a window nor a length of frames")
    values = _as_complex(x)
    count = (values.shape[1] - length) // step + 1
    at = iota(count, 0, 2) * step + iota(length, 1, 2)
    frames = values[:, at]
    if window is not None:
        frames = frames * window
    half = bool(op.get("onesided", 1))
    return op.like(_pairs(rfft(frames) if half else fft(frames)))


# Quantized numbers.


def _shaped(op: Operator, weights: Node, x: Node) -> Node:
    """Return a scale or a zero point as it meets the elements of an array."""
    if weights.ndim == 0 or (weights.ndim == 1 and weights.shape[0] == 1):
        return reshape(weights, ())
    axis = op.axis(x.ndim, 1)
    block = op.get("block_size", 0)
    if block:
        key: list[Any] = [slice(None)] * x.ndim
        key[axis] = slice(0, x.shape[axis])
        return repeat(weights, block, axis)[tuple(key)]
    if weights.ndim == 1:
        return _along(op, weights, x.ndim, axis)
    return weights


def quantized(op: Operator, x: Node, scale: Node, zero: Node | None, element: int) -> Node:
    """Return numbers in units of a scale, as an element type of few bits."""
    wide = cast(x, "float32") if x.dtype.itemsize < 4 or x.dtype.kind in "iu" else x
    ratio = divide(wide, cast(scale, wide.dtype))
    dtype = dtype_of(element)
    if dtype is None and narrow_name(element) == "float32":
        return op.build.carry(
            narrowed(ratio, element, bool(op.get("saturate", 1))), element
        )
    ends = bounds(element)
    if ends is None:
        assert dtype is not None
        ends = np.iinfo(dtype).min, np.iinfo(dtype).max
    carrier = narrow_name(element) if dtype is None else dtype
    number = rint(ratio)
    if zero is not None:
        number = number + cast(zero, wide.dtype)
    result = cast(clip(number, float(ends[0]), float(ends[1])), carrier)
    return op.build.carry(result, element) if dtype is None else result


def _quantize(op: Operator) -> Node:
    x, zero = op.node(0), op.optional(2)
    element = op.get("output_dtype", 0)
    if zero is not None:
        element = op.build.element(zero)
    scale = _shaped(op, op.node(1), x)
    return quantized(
        op, x, scale, None if zero is None else _shaped(op, zero, x), element or 2
    )


def _dequantize(op: Operator) -> Node:
    x, scale, zero = op.node(0), op.node(1), op.optional(2)
    number = op.get("output_dtype", 0)
    dtype = op.dtype(number) if number else scale.dtype
    value = cast(x, "float32")
    if zero is not None:
        value = value - _shaped(op, cast(zero, "float32"), x)
    return cast(value * _shaped(op, cast(scale, "float32"), x), dtype)


def _without_zero(x: Node, zero: Node | None, ndim: int, axis: int) -> Node:
    """Return ints less their zero point, in int32."""
    wide = cast(x, "int32")
    if zero is None:
        return wide
    point = cast(zero, "int32")
    if point.ndim == 1 and point.shape[0] != 1:
        shape: list[Extent] = [1] * ndim
        shape[axis] = point.shape[0]
        point = reshape(point, tuple(shape))
    elif point.ndim <= 1:
        point = reshape(point, ())
    return wide - point


def _matmul_integer(op: Operator) -> Node:
    a, b = op.node(0), op.node(1)
    left = _without_zero(a, op.optional(2), a.ndim, a.ndim - 2)
    right = _without_zero(b, op.optional(3), b.ndim, b.ndim - 1)
    return matmul(left, right)


def _whole_product(op: Operator, x: Node, w: Node, bias: Node | None) -> Node:
    """Return a convolution of ints, computed in float64, where sums below 2**53 are exact."""
    result = convolved(op, cast(x, "float64"), cast(w, "float64"), None)
    whole = cast(result, "int32")
    return whole if bias is None else whole + _along(op, bias, whole.ndim)


def _conv_integer(op: Operator) -> Node:
    x, w = op.node(0), op.node(1)
    left = _without_zero(x, op.optional(2), x.ndim, 0)
    right = _without_zero(w, op.optional(3), w.ndim, 0)
    return _whole_product(op, left, right, None)


def _qlinear_conv(op: Operator) -> Node:
    x, w = op.node(0), op.node(3)
    left = _without_zero(x, op.node(2), x.ndim, 0)
    right = _without_zero(w, op.node(5), w.ndim, 0)
    total = _whole_product(op, left, right, op.optional(8))
    scale = op.node(1) * op.node(4)
    if scale.ndim == 1 and scale.shape[0] != 1:
        scale = _along(op, scale, x.ndim)
    elif scale.ndim:
        scale = reshape(scale, ())
    number = cast(total, "float32") * scale
    zero = op.node(7)
    return quantized(op, number, reshape(op.node(6), ()), reshape(zero, ()), op.build.element(zero))


def _qlinear_matmul(op: Operator) -> Node:
    a, b, zero = op.node(0), op.node(3), op.node(7)
    left = _without_zero(a, op.node(2), a.ndim, a.ndim - 2)
    right = _without_zero(b, op.node(5), b.ndim, b.ndim - 1)
    scale_a, scale_b, scale_y = op.node(1), op.node(4), op.node(6)
    scale = cast(scale_a, "float32") * cast(scale_b, "float32")
    number = cast(matmul(left, right), "float32") * scale
    return quantized(op, number, scale_y, zero, op.build.element(zero))


def _determinant(op: Operator) -> Node:
    return det(op.node())


NETWORKS: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "Bernoulli": _bernoulli,
    "BlackmanWindow": _window(0.42, 0.5, 0.08),
    "ConvInteger": _conv_integer,
    "DFT": _fourier,
    "DequantizeLinear": _dequantize,
    "Det": _determinant,
    "Dropout": _dropout,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "HammingWindow": _window(25 / 46, 21 / 46),
    "HannWindow": _window(0.5, 0.5),
    "InstanceNormalization": _instance_norm,
    "LRN": _response_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MatMul": lambda op: matmul(op.node(0), op.node(1)),
    "MatMulInteger": _matmul_integer,
    "MeanVarianceNormalization": _variance_norm,
    "MelWeightMatrix": _mel,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
    "RMSNormalization": _rms_norm,
    "RandomNormal": _random,
    "RandomNormalLike": _random_like,
    "RandomUniform": _random,
    "RandomUniformLike": _random_like,
    "STFT": _short_fourier,
}
