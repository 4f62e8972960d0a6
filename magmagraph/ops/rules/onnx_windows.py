"""How convolutions and pooling are written in ONNX, whose operators have channels first."""

from __future__ import annotations

import numpy as np

from ...dtypes import real_dtype
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Shape
from .onnx_forms import Rule, Target

__all__ = ["convolved", "convolved_back", "folded", "folded_pairs", "pooled"]


def _last_to_first(to: Target, node: Node, count: int, x: str) -> str:
    if not node.attrs["channels_last"]:
        return x
    return to.add("Transpose", x, perm=[0, count + 1, *range(1, count + 1)])


def _first_to_last(to: Target, node: Node, count: int, x: str) -> str:
    if not node.attrs["channels_last"]:
        return x
    return to.add("Transpose", x, perm=[0, *range(2, count + 2), 1])


def _weight_first(to: Target, node: Node, count: int, w: str) -> str:
    if not node.attrs["channels_last"]:
        return w
    if node.attrs.get("outs_first"):
        return to.add("Transpose", w, perm=[0, count + 1, *range(1, count + 1)])
    return to.add("Transpose", w, perm=[count + 1, count, *range(count)])


def _spatial(node: Node, shape: Shape, count: int) -> Shape:
    return shape[-count - 1 : -1] if node.attrs["channels_last"] else shape[-count:]


def _pads(
    to: Target, node: Node, outer: Shape, window: Shape, inner: Shape
) -> tuple[list[int], list[int]]:
    """Return the padding before and after; negative at the end where elements are dropped.

    `outer` is what the window slides over, `inner` has an element for each window.
    """
    attrs = node.attrs
    before, behind = [], []
    for size, width, count, stride, apart, low in zip(
        outer, window, inner, attrs["strides"], attrs["dilation"], attrs["low"], strict=True
    ):
        high = (count - 1) * stride + (width - 1) * apart + 1 - size - low
        if isinstance(low, Dim) or isinstance(high, Dim):
            raise to.refuse(node, "padding that the sizes decide")
        before.append(int(low))
        behind.append(int(high))
    return before, behind


def convolved(to: Target, node: Node, x: str, w: str) -> str:
    """Slide weights over the input."""
    attrs = node.attrs
    count = len(attrs["strides"])
    kernel = _kernel(node, count)
    before, behind = _pads(
        to, node, _spatial(node, node.inputs[0].shape, count), kernel,
        _spatial(node, node.shape, count),
    )
    result = to.add(
        "Conv",
        _last_to_first(to, node, count, x),
        _weight_first(to, node, count, w),
        kernel_shape=list(kernel),
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        pads=[*before, *(max(0, high) for high in behind)],
        group=attrs["groups"],
    )
    return _first_to_last(to, node, count, result)


def _kernel(node: Node, count: int) -> Shape:
    """Return the extents of the window of a convolution's weights."""
    shape = node.inputs[1].shape
    if not node.attrs["channels_last"]:
        return shape[2:]
    return shape[1:-1] if node.attrs.get("outs_first") else shape[:count]


def convolved_back(to: Target, node: Node, g: str, w: str) -> str:
    """Spread each element by the weights: the transpose of a convolution."""
    attrs = node.attrs
    count = len(attrs["strides"])
    kernel = _kernel(node, count)
    before, behind = _pads(
        to, node, _spatial(node, node.shape, count), kernel,
        _spatial(node, node.inputs[0].shape, count),
    )
    result = to.add(
        "ConvTranspose",
        _last_to_first(to, node, count, g),
        _weight_first(to, node, count, w),
        kernel_shape=list(kernel),
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        pads=[*before, *(max(0, high) for high in behind)],
        output_padding=[max(0, -high) for high in behind],
        group=attrs["groups"],
    )
    return _first_to_last(to, node, count, result)


def _ends(to: Target, node: Node, x: str, w: str) -> tuple[str, str]:
    """Return a signal with the zeros that `mode` asks for, and the other one turned around.

    An infinity of the other one times such a zero is NaN.
    """
    widths = node.inputs[1].shape
    if node.attrs["mode"] == "full":
        axes = to.constant(np.arange(len(widths)))
        zeros = to.extents([width - 1 for width in widths] * 2)
        x = to.add("Pad", x, zeros, "", axes)
    for axis in range(len(widths)):
        w = to.reversed(w, axis)
    return x, w


def folded(to: Target, node: Node, x: str, w: str) -> str:
    """Convolve two signals: as an image of one channel, with one filter."""
    both = to.constant(np.array([0, 1], np.int64))
    image, weights = (to.add("Unsqueeze", part, both) for part in _ends(to, node, x, w))
    return to.add("Squeeze", to.add("Conv", image, weights), both)


def folded_pairs(to: Target, node: Node, x: str, w: str) -> str:
    """Convolve two complex signals: the real and the imaginary parts are two channels."""
    count = node.ndim
    first = to.constant(np.array([0], np.int64))

    def channels(part: str) -> str:
        return to.add("Unsqueeze", to.add("Transpose", part, perm=[count, *range(count)]), first)

    x, w = _ends(to, node, x, w)
    of_real = to.add("Mul", w, to.constant(np.array([1, -1], real_dtype(node.dtype))))
    of_imaginary = to.reversed(w, count)
    weights = to.add("Concat", channels(of_real), channels(of_imaginary), axis=0)
    parts = to.add("Squeeze", to.add("Conv", channels(x), weights), first)
    return to.add("Transpose", parts, perm=[*range(1, count + 1), 0])


def pooled(operator: str) -> Rule:
    """Return the rule of the largest element, or of the sum, of each window."""

    def rule(to: Target, node: Node, x: str) -> str:
        attrs = node.attrs
        window: tuple[int, ...] = attrs["window"]
        count = len(window)
        if node.ndim != count + 2:
            raise to.refuse(node, f"windows of {node.ndim - count - 1} batch axes")
        before, behind = _pads(
            to, node, _spatial(node, node.inputs[0].shape, count), window,
            _spatial(node, node.shape, count),
        )
        averages = operator == "AveragePool"
        result = to.add(
            operator,
            _last_to_first(to, node, count, x),
            kernel_shape=list(window),
            strides=list(attrs["strides"]),
            dilations=list(attrs["dilation"]),
            pads=[*before, *(max(0, high) for high in behind)],
            **({"count_include_pad": 1} if averages else {}),
        )
        if averages:
            result = to.add("Mul", result, to.constant(np.asarray(np.prod(window), node.dtype)))
        return _first_to_last(to, node, count, result)

    return rule
