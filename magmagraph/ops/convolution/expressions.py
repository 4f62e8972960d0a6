"""The array expressions of convolutions and their transposes, one for each algorithm.

They are what the interpreter evaluates and what runs without a C compiler. All take operands with
channels first: x (batch, channels, ...), w (results, channels / groups, ...), g (batch, results,
...), and the spatial axes as `Axis`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import winograd
from .filters import TILES
from .shapes import Axis, taps

PATCH_BYTES = 1 << 24  # of the patches that im2col holds at a time


# One product per element of the window.


def direct_forward(xp: Any, x: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Add up one product per element of the window."""
    n, outs, ins = x.shape[0], w.shape[0] // groups, w.shape[1]
    grouped = x.reshape(n, groups, ins, *x.shape[2:])
    weights = w.reshape(groups, outs, ins, *w.shape[2:])
    result = xp.zeros((n, groups, outs, *[axis.windows for axis in axes]), x.dtype)
    for tap, inside, region in taps(axes):
        part = grouped[(..., *region)]
        product = weights[(..., *tap)] @ part.reshape(n, groups, ins, -1)
        result[(..., *inside)] += product.reshape(n, groups, outs, *part.shape[3:])
    return result.reshape(n, groups * outs, *result.shape[3:])


def direct_input(xp: Any, g: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Spread one product per element of the window."""
    n, outs, ins = g.shape[0], w.shape[0] // groups, w.shape[1]
    grouped = g.reshape(n, groups, outs, *g.shape[2:])
    weights = w.reshape(groups, outs, ins, *w.shape[2:])
    result = xp.zeros((n, groups, ins, *[axis.n for axis in axes]), g.dtype)
    for tap, inside, region in taps(axes):
        part = grouped[(..., *inside)]
        product = weights[(..., *tap)].swapaxes(-1, -2) @ part.reshape(n, groups, outs, -1)
        result[(..., *region)] += product.reshape(n, groups, ins, *part.shape[3:])
    return result.reshape(n, groups * ins, *result.shape[3:])


def direct_weight(xp: Any, x: Any, g: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Take one product per element of the window."""
    n, ins, outs = x.shape[0], x.shape[1] // groups, g.shape[1] // groups
    grouped = x.reshape(n, groups, ins, *x.shape[2:])
    cotangent = g.reshape(n, groups, outs, *g.shape[2:])
    result = xp.zeros((groups, outs, ins, *[axis.window for axis in axes]), x.dtype)
    for tap, inside, region in taps(axes):
        left = cotangent[(..., *inside)].reshape(n, groups, outs, -1)
        right = grouped[(..., *region)].reshape(n, groups, ins, -1)
        rows = left.transpose(1, 2, 0, 3).reshape(groups, outs, -1)
        columns = right.transpose(1, 0, 3, 2).reshape(groups, -1, ins)
        result[(..., *tap)] = rows @ columns
    return result.reshape(groups * outs, *result.shape[2:])


# One product over patches.


def _blocks(batch: int, row_bytes: int) -> list[slice]:
    """Return parts of the batch whose patches stay within `PATCH_BYTES`."""
    step = max(1, PATCH_BYTES // max(1, row_bytes))
    return [slice(i, min(i + step, batch)) for i in range(0, batch, step)]


def _patches(xp: Any, x: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Return what every window meets: (batch, groups, channels * window, results)."""
    n, ins = x.shape[0], x.shape[1] // groups
    grouped = x.reshape(n, groups, ins, *x.shape[2:])
    window = [axis.window for axis in axes]
    windows = [axis.windows for axis in axes]
    result = xp.zeros((n, groups, ins, *window, *windows), x.dtype)
    for tap, inside, region in taps(axes):
        result[(slice(None), slice(None), slice(None), *tap, *inside)] = grouped[(..., *region)]
    return result.reshape(n, groups, ins * math.prod(window), math.prod(windows))


def _patch_bytes(x: Any, channels: int, axes: Sequence[Axis]) -> int:
    size = channels * math.prod(axis.window * axis.windows for axis in axes)
    return size * int(x.dtype.itemsize)


def im2col_forward(xp: Any, x: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply the weights, as a matrix, with the patches of some images at a time."""
    n, outs = x.shape[0], w.shape[0] // groups
    weights = w.reshape(groups, outs, -1)
    windows = [axis.windows for axis in axes]
    result = xp.empty((n, groups, outs, math.prod(windows)), x.dtype)
    for part in _blocks(n, _patch_bytes(x, x.shape[1], axes)):
        result[part] = weights @ _patches(xp, x[part], axes, groups)
    return result.reshape(n, groups * outs, *windows)


def im2col_input(xp: Any, g: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply the transposed weights with the cotangent, and add the patches in place."""
    n, outs, ins = g.shape[0], w.shape[0] // groups, w.shape[1]
    weights = w.reshape(groups, outs, -1).swapaxes(-1, -2)
    window = [axis.window for axis in axes]
    windows = [axis.windows for axis in axes]
    result = xp.zeros((n, groups, ins, *[axis.n for axis in axes]), g.dtype)
    for part in _blocks(n, _patch_bytes(g, groups * ins, axes)):
        rows = g[part].reshape(-1, groups, outs, math.prod(windows))
        patches = (weights @ rows).reshape(-1, groups, ins, *window, *windows)
        target = result[part]
        for tap, inside, region in taps(axes):
            at = (slice(None), slice(None), slice(None), *tap, *inside)
            target[(..., *region)] += patches[at]
    return result.reshape(n, groups * ins, *result.shape[3:])


def im2col_weight(xp: Any, x: Any, g: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply the cotangent with the transposed patches of some images at a time."""
    n, ins, outs = x.shape[0], x.shape[1] // groups, g.shape[1] // groups
    window = [axis.window for axis in axes]
    result = xp.zeros((groups, outs, ins * math.prod(window)), x.dtype)
    for part in _blocks(n, _patch_bytes(x, x.shape[1], axes)):
        rows = g[part].reshape(-1, groups, outs, math.prod(axis.windows for axis in axes))
        patches = _patches(xp, x[part], axes, groups)
        result += (rows @ patches.swapaxes(-1, -2)).sum(axis=0)
    return result.reshape(groups * outs, ins, *window)


# Products of spectra.


def _length(elements: int) -> int:
    """Return the next product of powers of 2, 3 and 5: a length that transforms are fast for."""
    least = max(elements, 1)
    while True:
        left = least
        for factor in (2, 3, 5):
            while left % factor == 0:
                left //= factor
        if left == 1:
            return least
        least += 1


def _window_reach(axis: Axis) -> int:
    return (axis.window - 1) * axis.dilation


def _stride_reach(axis: Axis) -> int:
    return (axis.windows - 1) * axis.stride


def _dilate(xp: Any, x: Any, steps: Sequence[int]) -> Any:
    """Return an array with zeros between its elements along the last axes."""
    if all(step == 1 for step in steps):
        return x
    lead = x.ndim - len(steps)
    sizes = [(n - 1) * s + 1 if n else 0 for n, s in zip(x.shape[lead:], steps, strict=True)]
    result = xp.zeros((*x.shape[:lead], *sizes), x.dtype)
    result[(..., *[slice(None, None, step) for step in steps])] = x
    return result


def _spectrum(xp: Any, x: Any, lengths: Sequence[int]) -> Any:
    """Return the transform of a real array over its last axes, zero-padded."""
    return xp.fft.rfftn(x, s=tuple(lengths), axes=tuple(range(-len(lengths), 0)))


def _take_modulo(xp: Any, x: Any, axis: int, positions: Any, limits: tuple[int, int]) -> Any:
    """Return the elements at positions modulo the extent; zeros for those beyond the limits."""
    length = x.shape[axis]
    part = xp.take(x, positions % length, axis=axis)
    valid = (positions >= limits[0]) & (positions <= limits[1])
    if bool(valid.all()):
        return part
    shape = [1] * x.ndim
    shape[axis] = len(positions)
    return part * valid.reshape(shape)


def _products(xp: Any, left: Any, right: Any, spatial: int) -> Any:
    """Multiply (groups, m, k, ...) by (groups, k, n, ...) at every frequency."""
    order = (*range(3, 3 + spatial), 0, 1, 2)
    back = (spatial, spatial + 1, spatial + 2, *range(spatial))
    return (left.transpose(order) @ right.transpose(order)).transpose(back)


def fft_forward(xp: Any, x: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply spectra; strides take their results from all positions."""
    count = len(axes)
    lengths = [_length(axis.n + _window_reach(axis)) for axis in axes]
    n, outs, ins = x.shape[0], w.shape[0] // groups, w.shape[1]
    inputs = _spectrum(xp, x, lengths).reshape(n, groups, ins, *_half(lengths))
    dilated = _dilate(xp, w, [axis.dilation for axis in axes])
    weights = _spectrum(xp, dilated, lengths).conj()
    weights = weights.reshape(groups, outs, ins, *_half(lengths))
    product = _products(xp, weights, inputs.transpose(1, 2, 0, *range(3, 3 + count)), count)
    result = xp.fft.irfftn(product, s=tuple(lengths), axes=tuple(range(-count, 0)))
    for i, axis in enumerate(axes):
        positions = xp.arange(axis.windows) * axis.stride - axis.low
        result = _take_modulo(xp, result, 3 + i, positions, (-_window_reach(axis), axis.n - 1))
    result = result.transpose(2, 0, 1, *range(3, 3 + count))
    return result.reshape(n, groups * outs, *result.shape[3:])


def fft_input(xp: Any, g: Any, w: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply spectra of the spread cotangent and window."""
    count = len(axes)
    lengths = [_length(_stride_reach(axis) + _window_reach(axis) + 1) for axis in axes]
    n, outs, ins = g.shape[0], w.shape[0] // groups, w.shape[1]
    dilated = _dilate(xp, g, [axis.stride for axis in axes])
    cotangent = _spectrum(xp, dilated, lengths).reshape(n, groups, outs, *_half(lengths))
    dilated = _dilate(xp, w, [axis.dilation for axis in axes])
    weights = _spectrum(xp, dilated, lengths)
    weights = weights.reshape(groups, outs, ins, *_half(lengths))
    rest = tuple(range(3, 3 + count))
    product = _products(
        xp, weights.transpose(0, 2, 1, *rest), cotangent.transpose(1, 2, 0, *rest), count
    )
    result = xp.fft.irfftn(product, s=tuple(lengths), axes=tuple(range(-count, 0)))
    for i, axis in enumerate(axes):
        reach = _stride_reach(axis) + _window_reach(axis)
        positions = xp.arange(axis.n) + axis.low
        result = _take_modulo(xp, result, 3 + i, positions, (0, reach))
    result = result.transpose(2, 0, 1, *rest)
    return result.reshape(n, groups * ins, *result.shape[3:])


def fft_weight(xp: Any, x: Any, g: Any, axes: Sequence[Axis], groups: int) -> Any:
    """Multiply spectra of the input and the spread cotangent, summed over the batch."""
    count = len(axes)
    lengths = [_length(axis.n + _stride_reach(axis)) for axis in axes]
    n, ins, outs = x.shape[0], x.shape[1] // groups, g.shape[1] // groups
    inputs = _spectrum(xp, x, lengths).reshape(n, groups, ins, *_half(lengths))
    dilated = _dilate(xp, g, [axis.stride for axis in axes])
    cotangent = _spectrum(xp, dilated, lengths).conj()
    cotangent = cotangent.reshape(n, groups, outs, *_half(lengths))
    rest = tuple(range(3, 3 + count))
    product = _products(
        xp, cotangent.transpose(1, 2, 0, *rest), inputs.transpose(1, 0, 2, *rest), count
    )
    result = xp.fft.irfftn(product, s=tuple(lengths), axes=tuple(range(-count, 0)))
    for i, axis in enumerate(axes):
        positions = xp.arange(axis.window) * axis.dilation - axis.low
        result = _take_modulo(xp, result, 3 + i, positions, (-_stride_reach(axis), axis.n - 1))
    return result.reshape(groups * outs, ins, *result.shape[3:])


def _half(lengths: Sequence[int]) -> tuple[int, ...]:
    return (*lengths[:-1], lengths[-1] // 2 + 1)


# Winograd: the transpose of stride 1 is a convolution with the window turned around.


def exchange_and_flip(w: Any, groups: int) -> Any:
    """Return weights with input and result exchanged and the window turned around."""
    outs, ins = w.shape[0] // groups, w.shape[1]
    grouped = w.reshape(groups, outs, ins, *w.shape[2:]).swapaxes(1, 2)
    flipped = grouped[(..., *[slice(None, None, -1)] * (w.ndim - 2))]
    return flipped.reshape(groups * ins, outs, *w.shape[2:])


def reverse(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the axes of the transpose of a convolution of stride 1, as those of another one."""
    return tuple(
        Axis(a.windows, a.window, a.n, 1, a.dilation, a.dilation * (a.window - 1) - a.low)
        for a in axes
    )


def _algorithm(xp: Any, algorithm: str) -> str:
    """Return the algorithm of an array expression where the choice was left open."""
    return "im2col" if algorithm == "auto" and xp is not np else algorithm


def forward(
    xp: Any, x: Any, w: Any, axes: Sequence[Axis], groups: int, algorithm: str
) -> Any:
    """Return the convolution by an algorithm."""
    if not x.size or not w.size:
        return xp.zeros((x.shape[0], w.shape[0], *[axis.windows for axis in axes]), x.dtype)
    if algorithm in TILES:
        return winograd.forward(xp, x, w, axes, groups, TILES[algorithm])
    algorithm = _algorithm(xp, algorithm)
    function = {"im2col": im2col_forward, "fft": fft_forward}.get(algorithm, direct_forward)
    return function(xp, x, w, axes, groups)


def to_input(
    xp: Any, g: Any, w: Any, axes: Sequence[Axis], groups: int, algorithm: str
) -> Any:
    """Return the transpose with respect to the input by an algorithm."""
    if not g.size or not w.size:
        return xp.zeros((g.shape[0], groups * w.shape[1], *[axis.n for axis in axes]), g.dtype)
    if algorithm in TILES:
        turned_axes = reverse(axes)
        return winograd.forward(
            xp, g, exchange_and_flip(w, groups), turned_axes, groups, TILES[algorithm]
        )
    algorithm = _algorithm(xp, algorithm)
    function = {"im2col": im2col_input, "fft": fft_input}.get(algorithm, direct_input)
    return function(xp, g, w, axes, groups)


def to_weight(
    xp: Any, x: Any, g: Any, axes: Sequence[Axis], groups: int, algorithm: str
) -> Any:
    """Return the transpose with respect to the weights by an algorithm."""
    if not x.size or not g.size:
        window = [axis.window for axis in axes]
        return xp.zeros((g.shape[1], x.shape[1] // groups, *window), x.dtype)
    if algorithm in TILES:
        return winograd.weight(xp, x, g, axes, groups, TILES[algorithm])
    algorithm = _algorithm(xp, algorithm)
    function = {"im2col": im2col_weight, "fft": fft_weight}.get(algorithm, direct_weight)
    return function(xp, x, g, axes, groups)
