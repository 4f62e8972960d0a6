"""Winograd's minimal filtering: its matrices, the growth of its errors, its array expressions.

F(m, 3) gives m results of a filter of three elements from m + 2 inputs with m + 2 products::

    y = A^T ((G w) * (B^T d))

The nested form in two dimensions takes (m + 2)^2 products where the direct sum takes 9 m^2: 16
for 36 with m = 2, 36 for 144 with m = 4. The matrices follow from interpolation at the points 0,
1, -1 (2, -2) and infinity (A. Lavin and S. Gray, "Fast algorithms for convolutional neural
networks", 2016, equations 5-12).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...ir.types import Extent
from . import filters
from .shapes import Axis

TAPS = 3


class Matrices(NamedTuple):
    """The matrices of F(m, 3): of the input, of the filter, and of the result."""

    input: np.ndarray  # B^T
    weight: np.ndarray  # G
    output: np.ndarray  # A^T

    @property
    def tile(self) -> int:
        """Results of a tile along an axis."""
        return len(self.output)


@cache
def matrices(tile: int) -> Matrices:
    """Return the matrices of F(tile, 3) in float64, for tiles of 2 and 4.

    Examples
    --------
    >>> transforms = matrices(2)
    >>> d, w = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 10.0, 100.0])
    >>> transforms.output @ ((transforms.weight @ w) * (transforms.input @ d))
    array([321., 432.])
    """
    return Matrices(*(np.array(matrix) for matrix in filters.MATRICES[tile]))


@cache
def growth(tile: int) -> float:
    """Return how far intermediate terms of the nested F(tile x tile, 3 x 3) can exceed the sum's.

    Where no input exceeds X and no weight W in magnitude, the nine terms of the direct sum have
    magnitudes of at most 9 X W together. Those that Winograd's form adds and cancels have at most
    ``(g X W)`` with, by the norms of the matrices' rows,::

        g = max_i (sum_j |A^T|_ij (sum_k |G|_jk) (sum_l |B^T|_jl)) ^ 2

    Rounding errors scale with what is added, so that this over 9 is the growth of the error bound.

    Examples
    --------
    >>> round(growth(2), 1), growth(4)
    (7.1, 256.0)
    """
    return _magnitude(tile) ** 2 / TAPS**2


def _magnitude(tile: int) -> float:
    b, g, a = (np.abs(matrix) for matrix in matrices(tile))
    return float(np.max(a @ (g.sum(1) * b.sum(1))))


def error_bound(tile: int, channels: int, inputs: float, weights: float, eps: float) -> float:
    """Return a bound of the error of one result, in the manner of a running error analysis.

    tile: 2 or 4; 0 for a direct sum of nine terms a channel.
    channels: Input channels that are summed over.
    inputs, weights: The largest magnitudes of inputs and of weights.
    eps: The dtype's distance from 1 to the next number.

    Notes
    -----
    A term that passes through s roundings has an error of at most ``s u`` of its magnitude, u
    being half of `eps`, to first order. Every term is rounded in the two nested transforms of
    input, weight and result (with two additions and a product per row entry, of at most tile + 2
    entries), in the product, and in the sum over channels, whatever its order.
    """
    unit = eps / 2
    if not tile:
        terms = TAPS**2 * channels
        return (terms + 1) * unit * terms * inputs * weights
    width = tile + TAPS - 1
    roundings = 2 * (2 * width + TAPS + 1) + channels + 1
    return roundings * unit * channels * _magnitude(tile) ** 2 * inputs * weights


def applies(axes: Sequence[tuple[Extent, int, int]]) -> bool:
    """Return whether (window, stride, dilation) of every axis are those of two 3-tap filters."""
    return len(axes) == 2 and all(axis == (TAPS, 1, 1) for axis in axes)


def _tiles(xp: Any, x: Any, axes: Sequence[Axis], tile: int) -> Any:
    """Return the overlapping tiles of the padded input: (..., tiles, tiles, width, width)."""
    width = tile + TAPS - 1
    counts = [-(-axis.windows // tile) for axis in axes]
    sizes = [count * tile + TAPS - 1 for count in counts]
    padded = xp.zeros((*x.shape[:2], *sizes), x.dtype)
    inside = []
    source = []
    for axis, size in zip(axes, sizes, strict=True):
        first = max(0, -axis.low)
        stop = max(first, min(axis.n, size - axis.low))
        inside.append(slice(first + axis.low, stop + axis.low))
        source.append(slice(first, stop))
    padded[(slice(None), slice(None), *inside)] = x[(slice(None), slice(None), *source)]
    n, c, down, right = padded.strides
    return xp.lib.stride_tricks.as_strided(
        padded,
        (*x.shape[:2], *counts, width, width),
        (n, c, down * tile, right * tile, down, right),
    )


def _cast(xp: Any, transforms: Matrices, dtype: Any) -> tuple[Any, Any, Any]:
    b, g, a = (xp.asarray(matrix.astype(dtype)) for matrix in transforms)
    return b, g, a


def _elements_first(xp: Any, tiles: Any, groups: int) -> Any:
    """Return (batch, channels, tiles, tiles, w, w) as (w * w, groups, channels, batch * tiles)."""
    n, c, down, right, width, _ = tiles.shape
    grouped = tiles.reshape(n, groups, c // groups, down * right, width * width)
    return grouped.transpose(4, 1, 2, 0, 3).reshape(
        width * width, groups, c // groups, n * down * right
    )


def forward(xp: Any, x: Any, w: Any, axes: Sequence[Axis], groups: int, tile: int) -> Any:
    """Return the convolution; x is (batch, channels, h, w), w is (out, in / groups, 3, 3)."""
    b, g, a = _cast(xp, matrices(tile), x.dtype)
    width = tile + TAPS - 1
    tiles = b @ _tiles(xp, x, axes, tile) @ b.T
    n, _, down, right = tiles.shape[:4]
    outs, ins = w.shape[:2]
    inputs = _elements_first(xp, tiles, groups)
    weights = (g @ w @ g.T).reshape(groups, outs // groups, ins, width * width)
    products = weights.transpose(3, 0, 1, 2) @ inputs
    products = products.reshape(width, width, outs, n, down, right).transpose(3, 2, 4, 5, 0, 1)
    by_tile = a @ products @ a.T  # (batch, outs, down, right, tile, tile)
    whole = by_tile.transpose(0, 1, 2, 4, 3, 5).reshape(n, outs, down * tile, right * tile)
    return whole[:, :, : axes[0].windows, : axes[1].windows]


def weight(xp: Any, x: Any, g: Any, axes: Sequence[Axis], groups: int, tile: int) -> Any:
    """Return the transpose with respect to the weights, by the same tiles and matrices."""
    b, filters, a = _cast(xp, matrices(tile), x.dtype)
    width = tile + TAPS - 1
    tiles = b @ _tiles(xp, x, axes, tile) @ b.T
    n, ins, down, right = tiles.shape[:4]
    outs = g.shape[1]
    whole = xp.zeros((n, outs, down * tile, right * tile), g.dtype)
    whole[:, :, : axes[0].windows, : axes[1].windows] = g
    cut = whole.reshape(n, outs, down, tile, right, tile).transpose(0, 1, 2, 4, 3, 5)
    cotangents = _elements_first(xp, a.T @ cut @ a, groups)
    inputs = _elements_first(xp, tiles, groups)
    products = cotangents @ inputs.swapaxes(-1, -2)  # (w * w, groups, outs, ins)
    square = products.transpose(1, 2, 3, 0).reshape(outs, ins // groups, width, width)
    return filters.T @ square @ filters
