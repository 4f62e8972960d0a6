"""The table of PyTorch's core operators (ATen): a row for each, which gives its function.

A function is given an operator's arguments in the order of its schema, tensors as nodes, symbolic
sizes as extents. Its result is cast to the dtype that torch says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...functional import layer_norm, log_softmax, softmax
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import as_node, cast
from ...ops.convolution.functions import conv
from ...ops.convolution.transpose import conv_transpose
from ...ops.elementwise import arithmetic, bits, comparison, rounding, signs
from ...ops.elementwise import math as functions
from ...ops.elementwise.numbers import fmod
from ...ops.indexing.gathering import take, take_along_axis
from ...ops.indexing.iota import INT64, IOTA, arange
from ...ops.indexing.sorting import argsort, top_k
from ...ops.indexing.updates import index_update
from ...ops.leaf import constant
from ...ops.networks.activation import log_sigmoid, relu, sigmoid, softplus
from ...ops.networks.attention import scaled_dot_product_attention
from ...ops.networks.exponential_units import elu
from ...ops.networks.gelu import gelu, mish, silu
from ...ops.networks.piecewise import hard_sigmoid, hard_silu
from ...ops.networks.slopes import leaky_relu
from ...ops.products.contraction import matmul
from ...ops.products.einsum import einsum
from ...ops.reduction import primitives
from ...ops.reduction.cumulative import cumsum
from ...ops.reduction.statistics import logsumexp, mean
from ...ops.shape.arrange import expand_dims, reshape, squeeze, swapaxes, transpose
from ...ops.shape.creation import full
from ...ops.shape.diagonal import tril, triu
from ...ops.shape.joining import broadcast_to, concatenate, stack
from ...ops.shape.padding import pad
from ...ops.shape.pieces import flip
from ...ops.shape.tiling import repeat, roll
from ...ops.spatial.pooling_grid import adaptive_avg_pool
from ...ops.spatial.pooling_records import MAX_POOL, MAX_POOL_TAPS, SUM_POOL
from ...ops.spatial.resize import resize
from ...ops.special.primitives import erf

__all__ = ["OPERATORS"]

Row = Callable[..., Any]
_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _scaled(function: Callable[[Any, Any], Node]) -> Row:
    """Return a sum or difference whose second operand is multiplied by `alpha`."""

    def row(x: Any, y: Any, alpha: Any = 1) -> Node:
        return function(x, y if alpha == 1 else arithmetic.multiply(y, alpha))

    return row


def _divide(x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode == "floor":
        return arithmetic.floor_divide(x, y)
    quotient = arithmetic.divide(x, y)
    return rounding.trunc(quotient) if rounding_mode == "trunc" else quotient


def _axes(x: Node, dim: Any) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(x.ndim))
    return tuple(dim) if isinstance(dim, Sequence) else (dim,)


def _reduced(function: Callable[..., Node]) -> Row:
    def row(x: Node, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Node:
        return function(x, axis=_axes(x, dim), keepdims=keepdim)

    return row


def _variance(x: Node, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Node:
    axes = _axes(x, dim)
    center = x - mean(x, axis=axes, keepdims=True)
    total = primitives.sum(center * center, axis=axes, keepdims=keepdim)
    count: Extent = math.prod(x.shape[a] for a in axes)
    return arithmetic.divide(total, as_node(count - (1 if correction is None else correction),
                                            x.dtype))  # fmt: skip


def _extreme(find: Callable[..., Node], reduce: Callable[..., Node]) -> Row:
    """Return the largest or smallest element along an axis with its position; or of all."""

    def row(x: Node, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return reduce(x)
        return reduce(x, axis=dim, keepdims=keepdim), find(x, axis=dim, keepdims=keepdim)

    return row


def _position(find: Callable[..., Node]) -> Row:
    def row(x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
        if dim is None:
            return find(reshape(x, (-1,)), axis=0)
        return find(x, axis=dim, keepdims=keepdim)

    return row


# Shapes.


def _expand(x: Node, size: Sequence[Any], implicit: bool = False) -> Node:
    kept = len(size) - x.ndim
    shape = [
        x.shape[i - kept] if isinstance(e, int) and e == -1 else e for i, e in enumerate(size)
    ]
    return broadcast_to(x, tuple(shape))


def _slice(x: Node, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Node:
    if isinstance(end, int) and end >= 1 << 31:
        end = None
    if isinstance(end, Dim) and str(end) == str(x.shape[dim]):
        end = None
    key: list[Any] = [slice(None)] * x.ndim
    key[dim] = slice(start, end, step)
    return x[tuple(key)]


def _select(x: Node, dim: int, index: Any) -> Node:
    key: list[Any] = [slice(None)] * x.ndim
    key[dim] = index
    return x[tuple(key)]


def _pieces(x: Node, sizes: Sequence[Any], dim: int = 0) -> tuple[Node, ...]:
    start: Any = 0
    parts = []
    for size in sizes:
        parts.append(_slice(x, dim, start, start + size))
        start = start + size
    return tuple(parts)


def _split(x: Node, size: Any, dim: int = 0) -> tuple[Node, ...]:
    if isinstance(size, Sequence):
        return _pieces(x, size, dim)
    extent = x.shape[dim]
    assert isinstance(extent, int)
    return _pieces(x, [min(size, extent - s) for s in range(0, extent, size)], dim)


def _index(x: Node, indices: Sequence[Any]) -> Node:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Node, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Node:
    key = tuple(slice(None) if i is None else i for i in indices)
    return index_update(x, key, values, how="add" if accumulate else "set")


def _pad(x: Node, widths: Sequence[int], value: Any = 0) -> Node:
    pairs = [(0, 0)] * x.ndim
    for i in range(len(widths) // 2):
        pairs[x.ndim - 1 - i] = (widths[2 * i], widths[2 * i + 1])
    key = tuple(slice(-a if a < 0 else None, b if b < 0 else None) for a, b in pairs)
    x = x[key] if any(min(pair) < 0 for pair in pairs) else x
    return pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


def _padded(mode: str) -> Row:
    def row(x: Node, widths: Sequence[int]) -> Node:
        pairs = [(0, 0)] * x.ndim
        for i in range(len(widths) // 2):
            pairs[x.ndim - 1 - i] = (widths[2 * i], widths[2 * i + 1])
        return pad(x, pairs, mode)

    return row


def _range(start: Any, end: Any = None, step: Any = 1, **_: Any) -> Node:
    if end is None:
        start, end = 0, start
    if any(isinstance(v, Dim) for v in (start, end, step)):
        return arange(start, end, step, dtype="int64")
    return constant(np.arange(start, end, step))


def _embedding(weight: Node, indices: Node, *_: Any) -> Node:
    return take(weight, indices, axis=0)


def _repeat(x: Node, repeats: Sequence[Any]) -> Node:
    for _ in range(len(repeats) - x.ndim):
        x = expand_dims(x, 0)
    for axis, count in enumerate(repeats):
        if not (isinstance(count, int) and count == 1):
            if not isinstance(x.shape[axis], int) or x.shape[axis] != 1:
                x = concatenate([x] * count, axis)
            else:
                x = broadcast_to(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return x


def _scatter(x: Node, dim: int, index: Node, values: Any, how: str = "set") -> Node:
    key = []
    for axis in range(x.ndim):
        shape: list[Extent] = [1] * x.ndim
        shape[axis] = index.shape[axis]
        key.append(index if axis == dim % x.ndim else IOTA(shape=tuple(shape), axis=axis,
                                                           dtype=INT64))  # fmt: skip
    if isinstance(values, Node) and values.ndim == x.ndim:
        values = values[tuple(slice(0, e) for e in index.shape)]
    return index_update(x, tuple(key), cast(as_node(values), x.dtype), how=how)


# Products and layers.


def _addmm(x: Node, a: Node, b: Node, beta: Any = 1, alpha: Any = 1) -> Node:
    product = matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return product + (x if beta == 1 else x * beta)


def _convolution(
    x: Node, w: Node, bias: Node | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Node:  # fmt: skip
    count = x.ndim - 2
    wide = [
        list(v) * count if len(v) == 1 else list(v)
        for v in (stride, padding, dilation, output_padding)
    ]
    layout = _LAYOUTS[count]
    if transposed:
        return conv_transpose(
            x, w, wide[0], wide[1], wide[3], wide[2], groups, layout, bias=bias
        )
    return conv(x, w, wide[0], wide[1], wide[2], groups, layout, bias=bias)


def _along(weights: Node, ndim: int) -> Node:
    return reshape(weights, (1, -1, *[1] * (ndim - 2)))


def _batch_norm(
    x: Node, scale: Node | None, offset: Node | None, average: Node, spread: Node,
    momentum: float, eps: float,
) -> tuple[Any, ...]:  # fmt: skip
    factor = functions.rsqrt(spread + eps)
    factor = factor if scale is None else factor * scale
    shift = -average * factor
    shift = shift if offset is None else shift + offset
    return x * _along(factor, x.ndim) + _along(shift, x.ndim), None, None


def _layer_norm(
    x: Node, shape: Sequence[Any], scale: Node | None, offset: Node | None, eps: float
) -> tuple[Any, ...]:
    result = layer_norm(x, axis=tuple(range(-len(shape), 0)), eps=eps)
    result = result if scale is None else result * scale
    return result if offset is None else result + offset, None, None


def _group_norm(
    x: Node, scale: Node | None, offset: Node | None, n: Any, channels: Any, size: Any,
    groups: int, eps: float,
) -> tuple[Any, ...]:  # fmt: skip
    parts = reshape(x, (x.shape[0], groups, -1))
    result = reshape(layer_norm(parts, axis=-1, eps=eps), x.shape)
    result = result if scale is None else result * _along(scale, x.ndim)
    return result if offset is None else result + _along(offset, x.ndim), None, None


def _attention(
    query: Node, key: Node, value: Node, mask: Node | None = None, dropout: float = 0.0,
    causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Node:  # fmt: skip
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = repeat(key, times, -3), repeat(value, times, -3)
    return scaled_dot_product_attention(query, key, value, mask, causal=causal, scale=scale)


def _flash_attention(
    query: Node, key: Node, value: Node, dropout: float = 0.0, causal: bool = False,
    attn_mask: Node | None = None, scale: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    return _attention(query, key, value, attn_mask, dropout, causal, scale), None


def _pooling(
    x: Node, window: Sequence[int], stride: Sequence[int], padding: Any, dilation: Any, up: bool,
) -> dict[str, Any]:  # fmt: skip
    count = len(window)
    wide = [
        list(v) * count if len(v) == 1 else list(v)
        for v in (stride or window, padding or [0], dilation or [1])
    ]
    extents: list[Extent] = []
    for e, k, s, p, d in zip(x.shape[-count:], window, *wide, strict=True):
        room = e + 2 * p - (d * (k - 1) + 1)
        out = -(-room // s) + 1 if up else room // s + 1
        if up and isinstance(out, int) and isinstance(e, int) and (out - 1) * s >= e + p:
            out -= 1
        extents.append(out)
    return {"window": tuple(window), "strides": tuple(wide[0]), "dilation": tuple(wide[2]),
            "low": tuple(wide[1]), "extents": tuple(extents), "channels_last": False}  # fmt: skip


def _max_pool(
    x: Node, window: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
    ceil_mode: bool = False,
) -> tuple[Node, Node]:  # fmt: skip
    attrs = _pooling(x, window, stride, padding, dilation, ceil_mode)
    return MAX_POOL(x, **attrs), MAX_POOL_TAPS(x, **attrs)


def _average_pool(
    x: Node, window: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Node:  # fmt: skip
    attrs = _pooling(x, window, stride, padding, (1,), ceil_mode)
    total = SUM_POOL(x, **attrs)
    if divisor_override is not None:
        return arithmetic.divide(total, float(divisor_override))
    count, spatial, low = len(window), x.shape[-len(window) :], attrs["low"]
    if count_include_pad:
        spatial = tuple(e + 2 * p for e, p in zip(spatial, low, strict=True))
        low = (0,) * count
    ones = broadcast_to(constant(1.0, dtype=x.dtype), (*[1] * (x.ndim - count), *spatial))
    counts = SUM_POOL(ones, **{**attrs, "low": low})
    return arithmetic.divide(total, broadcast_to(counts, total.shape))


def _upsampled(method: str) -> Row:
    def row(x: Node, size: Any, *rest: Any, scale_factors: Any = None, **_: Any) -> Node:
        align = bool(rest[0]) if method != "nearest" and rest else False
        if size is None:  # the overload with factors
            factors = scale_factors if scale_factors is not None else rest[-1]
            size = [
                math.floor(e * f) if isinstance(e, int) else e * int(f)
                for e, f in zip(x.shape[2:], factors, strict=True)
            ]
        return resize(x, tuple(size), method=method, align_corners=align)

    return row


def _whole(x: Node, value: Any, **_: Any) -> Node:
    return full(x.shape, value, dtype=x.dtype)


def _filled(value: Any) -> Row:
    return lambda size, **_: full(tuple(size), value)


def _made(size: Any, value: Any, **_: Any) -> Node:
    return full(tuple(size), value)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _clamp(x: Node, low: Any = None, high: Any = None) -> Node:
    x = x if low is None else comparison.maximum(x, low)
    return x if high is None else comparison.minimum(x, high)


def _where(condition: Node, x: Any = None, y: Any = None) -> Node:
    return comparison.where(condition, x, y)


def _scalar_tensor(value: Any, **_: Any) -> Node:
    return as_node(value)


def _cat(tensors: Sequence[Node], dim: int = 0) -> Node:
    filled = [t for t in tensors if not (t.ndim == 1 and t.shape[0] == 0)]
    return concatenate(filled or list(tensors), dim)


def _unbind(x: Node, dim: int = 0) -> tuple[Node, ...]:
    extent = x.shape[dim]
    assert isinstance(extent, int)
    return tuple(_select(x, dim, i) for i in range(extent))


def _sorted(x: Node, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Node, Node]:
    order = argsort(x, dim, descending=descending)
    return take_along_axis(x, order, dim), order


def _top(x: Node, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if largest:
        top = top_k(x, k, dim)
        return top[0], top[1]
    order = _slice(argsort(x, dim), dim, 0, k)
    return take_along_axis(x, order, dim), order


def _squeezed(x: Node, dim: Any = None) -> Node:
    axes = range(x.ndim) if dim is None else ([dim] if isinstance(dim, int) else dim)
    ones = tuple(a for a in axes if isinstance(x.shape[a], int) and x.shape[a] == 1)
    return squeeze(x, ones) if ones else x


def _power(x: Any, y: Any) -> Node:
    return functions.power(x, y)


def _norm(x: Node, p: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Node:
    axes = _axes(x, dim)
    if p is None or p == 2:
        return functions.sqrt(primitives.sum(x * x, axis=axes, keepdims=keepdim))
    total = primitives.sum(functions.power(signs.absolute(x), p), axis=axes, keepdims=keepdim)
    return functions.power(total, 1.0 / p)


def _elu(x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    value = elu(x if input_scale == 1 else x * input_scale, alpha)
    return value if scale == 1 else value * scale


def _softplus(x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    return softplus(x) if beta == 1 else softplus(x * beta) / beta


# Operator -> its function. Overloads of an operator share a row.
OPERATORS: Mapping[str, Row] = {
    "_adaptive_avg_pool2d": lambda x, size: adaptive_avg_pool(x, tuple(size), "NCHW"),
    "_log_softmax": lambda x, dim, half: log_softmax(x, axis=dim),
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "_softmax": lambda x, dim, half: softmax(x, axis=dim),
    "_to_copy": _same,
    "_unsafe_view": lambda x, size: reshape(x, tuple(size)),
    "_assert_tensor_metadata": lambda *_, **__: None,
    "abs": signs.absolute,
    "acos": functions.arccos,
    "acosh": functions.arccosh,
    "adaptive_avg_pool1d": lambda x, size: adaptive_avg_pool(x, tuple(size), "NCW"),
    "add": _scaled(arithmetic.add),
    "addmm": _addmm,
    "alias": _same,
    "all": _reduced(primitives.all),
    "amax": _reduced(primitives.max),
    "amin": _reduced(primitives.min),
    "any": _reduced(primitives.any),
    "arange": _range,
    "argmax": _position(primitives.argmax),
    "argmin": _position(primitives.argmin),
    "asin": functions.arcsin,
    "asinh": functions.arcsinh,
    "atan": functions.arctan,
    "atan2": functions.arctan2,
    "atanh": functions.arctanh,
    "avg_pool1d": _average_pool,
    "avg_pool2d": _average_pool,
    "avg_pool3d": _average_pool,
    "baddbmm": _addmm,
    "bitwise_and": bits.bitwise_and,
    "bitwise_not": bits.bitwise_not,
    "bitwise_or": bits.bitwise_or,
    "bitwise_xor": bits.bitwise_xor,
    "bmm": matmul,
    "cat": _cat,
    "ceil": rounding.ceil,
    "clamp": _clamp,
    "clone": _same,
    "constant_pad_nd": _pad,
    "contiguous": _same,
    "convolution": _convolution,
    "copy": lambda x, y, *_: broadcast_to(y, x.shape),
    "cos": functions.cos,
    "cosh": functions.cosh,
    "cumsum": lambda x, dim, **_: cumsum(x, axis=dim),
    "detach": _same,
    "div": _divide,
    "dropout": _same,
    "einsum": lambda equation, tensors, **_: einsum(equation, *tensors),
    "elu": _elu,
    "embedding": _embedding,
    "empty": lambda size, **_: full(tuple(size), 0),
    "eq": comparison.equal,
    "erf": erf,
    "exp": functions.exp,
    "expand": _expand,
    "expm1": functions.expm1,
    "fill": lambda x, value: _whole(x, value),
    "flip": flip,
    "floor": rounding.floor,
    "floor_divide": arithmetic.floor_divide,
    "fmod": fmod,
    "full": _made,
    "full_like": _whole,
    "gather": lambda x, dim, index, *_: take_along_axis(
        x[tuple(slice(None) if a == dim % x.ndim else slice(0, e)
                for a, e in enumerate(index.shape))], index, dim),
    "ge": comparison.greater_equal,
    "gelu": lambda x, approximate="none": gelu(x, approximate == "tanh"),
    "glu": lambda x, dim=-1: functools.reduce(
        lambda a, b: a * sigmoid(b), _split(x, x.shape[dim] // 2, dim)),
    "gt": comparison.greater,
    "hardsigmoid": hard_sigmoid,
    "hardswish": hard_silu,
    "hardtanh": lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    "index": _index,
    "index_put": _index_put,
    "index_select": lambda x, dim, index: take(x, index, axis=dim),
    "isinf": rounding.isinf,
    "isnan": rounding.isnan,
    "le": comparison.less_equal,
    "leaky_relu": lambda x, slope=0.01: leaky_relu(x, slope),
    "lift_fresh_copy": _same,
    "linalg_vector_norm": _norm,
    "linear": lambda x, w, b=None: matmul(x, swapaxes(w, 0, 1)) + (0.0 if b is None else b),
    "log": functions.log,
    "log10": functions.log10,
    "log1p": functions.log1p,
    "log2": functions.log2,
    "log_sigmoid_forward": lambda x: (log_sigmoid(x), None),
    "logical_and": bits.logical_and,
    "logical_not": bits.logical_not,
    "logical_or": bits.logical_or,
    "logical_xor": bits.logical_xor,
    "logsumexp": _reduced(logsumexp),
    "lt": comparison.less,
    "masked_fill": lambda x, mask, value: comparison.where(mask, value, x),
    "matmul": matmul,
    "max": _extreme(primitives.argmax, primitives.max),
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "maximum": comparison.maximum,
    "mean": _reduced(mean),
    "min": _extreme(primitives.argmin, primitives.min),
    "minimum": comparison.minimum,
    "mish": mish,
    "mm": matmul,
    "mul": arithmetic.multiply,
    "native_dropout": lambda x, rate, train: (x, None),
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "ne": comparison.not_equal,
    "neg": arithmetic.negative,
    "permute": lambda x, dims: transpose(x, tuple(dims)),
    "pixel_shuffle": lambda x, factor: reshape(
        transpose(reshape(x, (x.shape[0], x.shape[1] // factor**2, factor, factor, *x.shape[2:])),
                  (0, 1, 4, 2, 5, 3)),
        (x.shape[0], x.shape[1] // factor**2, x.shape[2] * factor, x.shape[3] * factor)),
    "pow": _power,
    "prod": _reduced(primitives.prod),
    "reciprocal": lambda x: arithmetic.divide(1.0, x),
    "reflection_pad1d": _padded("reflect"),
    "reflection_pad2d": _padded("reflect"),
    "relu": relu,
    "remainder": arithmetic.remainder,
    "repeat": _repeat,
    "replication_pad2d": _padded("edge"),
    "reshape": lambda x, size: reshape(x, tuple(size)),
    "roll": lambda x, shifts, dims=(): roll(x, tuple(shifts), tuple(dims) or None),
    "round": rounding.rint,
    "rsqrt": functions.rsqrt,
    "scalar_tensor": _scalar_tensor,
    "scaled_dot_product_attention": _attention,
    "scatter": _scatter,
    "scatter_add": lambda x, dim, index, values: _scatter(x, dim, index, values, "add"),
    "select": _select,
    "select_scatter": lambda x, y, dim, index: index_update(
        x, (*[slice(None)] * (dim % x.ndim), index), y),
    "sigmoid": sigmoid,
    "sign": signs.sign,
    "silu": silu,
    "sin": functions.sin,
    "sinh": functions.sinh,
    "slice": _slice,
    "slice_scatter": lambda x, y, dim=0, start=None, end=None, step=1: index_update(
        x, (*[slice(None)] * (dim % x.ndim),
            slice(start, None if isinstance(end, int) and end >= 1 << 31 else end, step)), y),
    "softplus": _softplus,
    "sort": _sorted,
    "split": _split,
    "split_with_sizes": _pieces,
    "sqrt": functions.sqrt,
    "squeeze": _squeezed,
    "stack": lambda tensors, dim=0: stack(list(tensors), dim),
    "sub": _scaled(arithmetic.subtract),
    "sum": _reduced(primitives.sum),
    "sym_size": lambda x, dim: x.shape[dim],
    "t": transpose,
    "tan": functions.tan,
    "tanh": functions.tanh,
    "topk": _top,
    "transpose": swapaxes,
    "tril": tril,
    "triu": triu,
    "trunc": rounding.trunc,
    "unbind": _unbind,
    "unsqueeze": expand_dims,
    "upsample_bicubic2d": _upsampled("cubic"),
    "upsample_bilinear2d": _upsampled("linear"),
    "upsample_nearest2d": _upsampled("nearest"),
    "var": _variance,
    "view": lambda x, size: reshape(x, tuple(size)),
    "where": _where,
    "zeros_like": lambda x, **_: _whole(x, 0),
    "ones_like": lambda x, **_: _whole(x, 1),
    "zeros": _filled(0),
    "ones": _filled(1),
}  # fmt: skip
