"""Attention block by block: what it computes of arrays, forward and backward.

No array of queries times keys is ever made. Rows of scores are taken in blocks, and for each block
of rows the keys in blocks: the largest score so far, the sum of exponentials relative to it and the
weighted sum of values are kept up while the blocks pass (M. Milakov, N. Gimelshein, "Online
normalizer calculation for softmax", 2018; M. Rabe, C. Staats, "Self-attention does not need O(n^2)
memory", 2021). What is kept for the gradient is one number a row, the logarithm of the sum of the
exponentials, from which each block of probabilities is computed again (T. Dao et al.,
"FlashAttention", 2022, algorithm 4).

Queries are of shape ``(..., heads, groups, length, dim)``, keys ``(..., heads, other, dim)``,
values ``(..., heads, other, width)``; a mask broadcasts to ``(..., heads, groups, length, other)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...ir import dims
from ...ir.types import Extent, Type

ALIGNED = 64
LINES = 96  # bytes of vectors that a block has, for each of its rows and columns


def _bytes(q: Type, rows: Extent, columns: Extent, numbers: Extent) -> Extent:
    """Return the bytes of so many numbers, of a flag for each score, and of vectors."""
    flags = rows * columns
    return numbers * q.dtype.itemsize + flags + (rows + columns) * LINES + 8 * ALIGNED


def forward_bytes(
    q: Type, k: Type, v: Type, *mask: Type, causal: bool, block: int, **fill: float
) -> Extent:
    """Return the scratch of the forward half: a block of scores and one of weighted values."""
    rows, columns = dims.minimum(block, q.shape[-2]), dims.minimum(block, k.shape[-2])
    return _bytes(q, rows, columns, rows * columns + rows * v.shape[-1])


def backward_bytes(
    q: Type, k: Type, v: Type, lse: Type, out: Type, cotangent: Type, *mask: Type,
    causal: bool, block: int, **fill: float,
) -> Extent:  # fmt: skip
    """Return the scratch of the backward half: two blocks, and one of each operand's gradient."""
    rows, columns = dims.minimum(block, q.shape[-2]), dims.minimum(block, k.shape[-2])
    longer = dims.maximum(rows, columns)
    return _bytes(q, rows, columns, 2 * rows * columns + longer * (k.shape[-1] + v.shape[-1]))


class _Scratch:
    """Allocate arrays from one block of bytes."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._at = 0

    def take(self, count: int, dtype: np.dtype) -> Any:
        """Return an array of `count` elements, next to the one before."""
        end = self._at + count * dtype.itemsize
        part = self._buffer[self._at : end].view(dtype)
        self._at = -(-end // ALIGNED) * ALIGNED
        return part


def _blocks(extent: int, block: int) -> Iterator[slice]:
    for start in range(0, extent, block):
        yield slice(start, min(start + block, extent))


class _Scores:
    """Makes blocks of masked scores of one operand set."""

    def __init__(
        self, xp: Any, q: Any, k: Any, mask: Sequence[Any], causal: bool, block: int, fill: float,
        scratch: Any,
    ) -> None:  # fmt: skip
        self.xp, self.q, self.k, self.causal, self.block = xp, q, k, causal, block
        self.fill = fill
        self.length, self.other = q.shape[-2], k.shape[-2]
        shape = (*q.shape[:-1], self.other)
        self.mask = xp.broadcast_to(mask[0], shape) if mask else None
        self.rows, self.columns = min(block, self.length), min(block, self.other)
        self._scores = scratch.take(self.rows * self.columns, q.dtype)
        self._flags = scratch.take(self.rows * self.columns, np.dtype(bool))

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yield the leading index of each matrix of queries."""
        return iter(np.ndindex(*self.q.shape[:-2]))

    def row_blocks(self) -> Iterator[slice]:
        """Yield the blocks of queries."""
        return _blocks(self.length, self.block)

    def column_blocks(self, rows: slice) -> Iterator[slice]:
        """Yield the blocks of keys that some query of a block may see."""
        for columns in _blocks(self.other, self.block):
            if self.causal and columns.start >= rows.stop:
                return
            yield columns

    def at(self, place: tuple[int, ...], rows: slice, columns: slice) -> Any:
        """Return a block of scores, which the next one overwrites."""
        xp = self.xp
        queries, keys = self.q[place][rows], self.k[place[:-1]][columns]
        shape = (len(queries), len(keys))
        scores = self._scores[: shape[0] * shape[1]].reshape(shape)
        xp.matmul(queries, keys.T, out=scores)
        flags = self._flags[: scores.size].reshape(shape)
        if self.mask is not None:
            block = self.mask[place][rows, columns]
            if block.dtype == bool:
                scores[xp.logical_not(block, out=flags)] = self.fill
            else:
                xp.add(scores, block, out=scores)
        if self.causal and columns.stop > rows.start + 1:
            after = xp.arange(columns.start, columns.stop)
            xp.greater(after, xp.arange(rows.start, rows.stop)[:, None], out=flags)
            scores[flags] = -np.inf
        return scores

    def hide(self, place: tuple[int, ...], rows: slice, columns: slice, slope: Any) -> None:
        """Put zeros into a block of the scores' gradient where another score was put in."""
        if self.mask is not None and self.mask.dtype == bool and self.fill != -np.inf:
            slope[self.xp.logical_not(self.mask[place][rows, columns])] = 0


def _finite_top(xp: Any, top: Any) -> Any:
    return xp.where(xp.isfinite(top), top, top.dtype.type(0))


def _widely(
    function: Any, xp: Any, target: Sequence[Any], operands: Sequence[Any], **options: Any
) -> None:
    """Compute 16-bit floats in float32, and round the results."""
    wide = [x if x.dtype == bool else x.astype(np.float32) for x in operands]
    with np.errstate(all="ignore"):
        for place, result in zip(target, function(xp, *wide, **options), strict=True):
            place[...] = result


def forward_into(
    xp: Any, target: Any, q: Any, k: Any, v: Any, *mask: Any, causal: bool, block: int,
    workspace: Any, fill: float = -np.inf,
) -> None:  # fmt: skip
    """Write the attention and the logarithms of the sums of exponentials."""
    if q.dtype.itemsize < 4:
        _widely(forward, xp, target, (q, k, v, *mask), causal=causal, block=block, fill=fill)
        return
    out, lse = target
    scratch = _Scratch(workspace)
    with np.errstate(all="ignore"):
        scores_of = _Scores(xp, q, k, mask, causal, block, fill, scratch)
        width = v.shape[-1]
        products = scratch.take(scores_of.rows * width, q.dtype)
        for place in scores_of.places():
            values = v[place[:-1]]
            for rows in scores_of.row_blocks():
                total = out[place][rows]
                total[...] = 0
                count = len(total)
                top = xp.full(count, -np.inf, q.dtype)
                weight = xp.zeros(count, q.dtype)
                for columns in scores_of.column_blocks(rows):
                    scores = scores_of.at(place, rows, columns)
                    higher = xp.maximum(top, scores.max(axis=1))
                    base = _finite_top(xp, higher)
                    xp.subtract(scores, base[:, None], out=scores)
                    xp.exp(scores, out=scores)
                    rescale = xp.exp(top - base)
                    weight = weight * rescale + scores.sum(axis=1)
                    total *= rescale[:, None]
                    part = products[: count * width].reshape(count, width)
                    total += xp.matmul(scores, values[columns], out=part)
                    top = higher
                total /= xp.where(weight == 0, weight.dtype.type(1), weight)[:, None]
                lse[place][rows] = _finite_top(xp, top) + xp.log(weight)


def forward(
    xp: Any, q: Any, k: Any, v: Any, *mask: Any, causal: bool, block: int, fill: float = -np.inf
) -> tuple[Any, Any]:
    """Return the attention and the logarithms of the sums of exponentials."""
    out = xp.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    lse = xp.empty(q.shape[:-1], q.dtype)
    types = [Type(x.dtype, x.shape) for x in (q, k, v)]
    size = forward_bytes(*types, causal=causal, block=block)
    workspace = xp.empty(size, np.uint8)
    forward_into(
        xp, (out, lse), q, k, v, *mask, causal=causal, block=block, workspace=workspace, fill=fill
    )
    return out, lse


def _add_to_mask(
    gradient: Any, place: tuple[int, ...], rows: slice, columns: slice, part: Any
) -> None:
    """Add a block of the scores' gradient to that of a mask, over the axes that it broadcast."""
    *lead, length, other = gradient.shape
    block = gradient[tuple(p if e > 1 else 0 for p, e in zip(place, lead, strict=True))]
    if length == 1:
        part, rows = part.sum(axis=0, keepdims=True), slice(0, 1)
    if other == 1:
        part, columns = part.sum(axis=1, keepdims=True), slice(0, 1)
    block[rows, columns] += part


def backward_into(
    xp: Any, target: Any, q: Any, k: Any, v: Any, lse: Any, out: Any, cotangent: Any, *mask: Any,
    causal: bool, block: int, workspace: Any, fill: float = -np.inf,
) -> None:  # fmt: skip
    """Write the gradients of queries, keys, values, and of a mask that is added."""
    if q.dtype.itemsize < 4:
        operands = (q, k, v, lse, out, cotangent, *mask)
        _widely(backward, xp, target, operands, causal=causal, block=block, fill=fill)
        return
    to_q, to_k, to_v, *to_mask = target
    for each in target:
        each[...] = 0
    scratch = _Scratch(workspace)
    with np.errstate(all="ignore"):
        scores_of = _Scores(xp, q, k, mask, causal, block, fill, scratch)
        longer = max(scores_of.rows, scores_of.columns)
        slopes = scratch.take(scores_of.rows * scores_of.columns, q.dtype)
        by_key = scratch.take(longer * k.shape[-1], q.dtype)
        by_value = scratch.take(longer * v.shape[-1], q.dtype)

        def product(buffer: Any, left: Any, right: Any) -> Any:
            shape = (left.shape[0], right.shape[1])
            return xp.matmul(left, right, out=buffer[: shape[0] * shape[1]].reshape(shape))

        for place in scores_of.places():
            keys, values = k[place[:-1]], v[place[:-1]]
            key_part, value_part = to_k[place[:-1]], to_v[place[:-1]]
            for rows in scores_of.row_blocks():
                above = cotangent[place][rows]
                mean = (above * out[place][rows]).sum(axis=1, keepdims=True)
                queries = q[place][rows]
                # Rows that see nothing have the logarithm of 0: their probabilities are 0.
                line = lse[place][rows]
                line = xp.where(line == -np.inf, np.inf, line).astype(q.dtype, copy=False)
                for columns in scores_of.column_blocks(rows):
                    chances = scores_of.at(place, rows, columns)
                    xp.subtract(chances, line[:, None], out=chances)
                    xp.exp(chances, out=chances)
                    value_part[columns] += product(by_value, chances.T, above)
                    slope = product(slopes, above, values[columns].T)
                    slope -= mean
                    slope *= chances
                    scores_of.hide(place, rows, columns, slope)
                    if to_mask:
                        _add_to_mask(to_mask[0], place, rows, columns, slope)
                    to_q[place][rows] += product(by_key, slope, keys[columns])
                    key_part[columns] += product(by_key, slope.T, queries)


def backward(
    xp: Any, q: Any, k: Any, v: Any, lse: Any, out: Any, cotangent: Any, *mask: Any,
    causal: bool, block: int, fill: float = -np.inf,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of queries, keys, values, and of a mask that is added."""
    operands = (q, k, v, *(m for m in mask if m.dtype != bool))
    target = tuple(xp.empty(x.shape, x.dtype) for x in operands)
    types = [Type(x.dtype, x.shape) for x in (q, k, v, lse, out, cotangent)]
    workspace = xp.empty(backward_bytes(*types, causal=causal, block=block), np.uint8)
    backward_into(
        xp, target, q, k, v, lse, out, cotangent, *mask, causal=causal, block=block,
        workspace=workspace, fill=fill,
    )  # fmt: skip
    return target
