"""Pooling of whole images, and of a grid of their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Sample
from ...ir.types import MOST_TERMS
from ..convolution.functions import per_axis, values
from ..convolution.shapes import channels_last, numbers, spatial_axes
from ..elementwise.family import floating
from ..reduction.primitives import max as maximum_along
from ..reduction.statistics import mean
from ..shape.joining import concatenate
from ..shape.slicing import cut
from .pooling import pooling_record

__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "global_avg_pool", "global_max_pool"]


def _spatial_axes(record: Composite, x: Any, layout: str | None) -> tuple[Node, tuple[int, ...]]:
    node = floating(x)
    call = Call(record, (node,))
    count = spatial_axes(call, node.ndim)
    first = 1 if channels_last(call, layout, count) else 2
    return node, tuple(range(first, first + count))


@documented
def global_avg_pool(x: Any, layout: str | None = None, keepdims: bool = False) -> Node:
    """Average each channel over all of its spatial extents.

    x: Node or array with a batch, channels and one to three spatial axes; ints become floats.
    layout: As for `conv`.
    keepdims: Keep the spatial axes, with extent 1.
    returns: Of shape ``(batch, channels)``, or with the axes kept. No elements give NaN.
    raises ShapeError: If axes or layout do not fit.

    >>> mg.global_avg_pool(mg.constant([[[1.0, 3.0], [10.0, 20.0]]])).eval()
    array([[ 2., 15.]], dtype=float32)
    """
    node, axes = _spatial_axes(GLOBAL_AVG_POOL, x, layout)
    return mean(node, axes, keepdims=keepdims)


@documented
def global_max_pool(x: Any, layout: str | None = None, keepdims: bool = False) -> Node:
    """Find the largest element of each channel over all of its spatial extents.

    Elements that tie share the derivative equally, as for `max`.

    x: Node or array with a batch, channels and one to three spatial axes; ints become floats.
    layout: As for `conv`.
    keepdims: Keep the spatial axes, with extent 1.
    returns: Of shape ``(batch, channels)``, or with the axes kept.
    raises ShapeError: If axes or layout do not fit, or a spatial extent is 0.

    >>> mg.global_max_pool(mg.constant([[[1.0, 3.0], [10.0, 20.0]]])).eval()
    array([[ 3., 20.]], dtype=float32)
    """
    node, axes = _spatial_axes(GLOBAL_MAX_POOL, x, layout)
    return maximum_along(node, axes, keepdims=keepdims)


def _adaptive(
    record: Composite, x: Any, extents: Any, layout: str | None, fold: Callable[..., Node]
) -> Node:
    node, axes = _spatial_axes(record, x, layout)
    call = Call(record, (node,))
    part_counts = numbers(call, extents, len(axes), "extents", 1)
    for axis, parts in zip(axes, part_counts, strict=True):
        n = node.shape[axis]
        if parts == 1:
            node = fold(node, axis, keepdims=True)
            continue
        if isinstance(n, Dim):
            raise call.shape_error(
                f"{parts} parts of the symbolic extent {n}",
                need="an int: parts of a named extent have no extents of their own",
                hint="one part, or mg.avg_pool2d or mg.max_pool2d with a window",
            )
        if n < 1:
            raise call.shape_error(f"{parts} parts of an axis without elements", need="elements")
        if parts > MOST_TERMS:
            raise call.shape_error(f"{parts} parts of an axis", need=f"at most {MOST_TERMS}")
        cells = [(i * n // parts, -(-(i + 1) * n // parts)) for i in range(parts)]
        node = concatenate(
            [fold(cut(node, axis, a, b - a), axis, keepdims=True) for a, b in cells], axis
        )
    return node


@documented
def adaptive_avg_pool(x: Any, extents: Any, layout: str | None = None) -> Node:
    """Average the parts of a grid over the spatial axes.

    Part i of m of n elements is that from ``floor(i n / m)`` up to ``ceil((i + 1) n / m)``: parts
    overlap by an element where m does not divide n.

    x: Node or array with a batch, channels and one to three spatial axes; ints become floats.
    extents: Parts along every spatial axis: an int, or one per axis.
    layout: As for `conv`.
    returns: Of the layout of `x`, with `extents` in the place of its spatial ones.
    raises ShapeError: If axes or layout do not fit, or a named axis is to have more than one part.
    raises DTypeError: For extents that are not ints.

    >>> mg.adaptive_avg_pool(mg.constant([[[1.0, 2.0, 6.0]]]), 2).eval()
    array([[[1.5, 4. ]]], dtype=float32)
    """
    return _adaptive(ADAPTIVE_AVG_POOL, x, extents, layout, mean)


@documented
def adaptive_max_pool(x: Any, extents: Any, layout: str | None = None) -> Node:
    """Find the largest elements of the parts of a grid over the spatial axes.

    Elements that tie within a row of a part share its derivative equally.

    x, extents, layout: As for `adaptive_avg_pool`, which says what the parts are.
    returns: Of the layout of `x`, with `extents` in the place of its spatial ones.
    raises ShapeError, DTypeError: As for `adaptive_avg_pool`.

    >>> mg.adaptive_max_pool(mg.constant([[[1.0, 2.0, 6.0]]]), 2).eval()
    array([[[2., 6.]]], dtype=float32)
    """
    return _adaptive(ADAPTIVE_MAX_POOL, x, extents, layout, maximum_along)


# References.


def _reference_grid(fold: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def reference(x: Any, extents: Any, layout: str | None = None) -> np.ndarray:
        count = x.ndim - 2
        last = layout is not None and layout.endswith("C")
        if last:
            x = np.moveaxis(x, -1, 1)
        part_counts = per_axis(extents, count)
        result = np.zeros((*x.shape[:2], *part_counts), x.dtype)
        for place in np.ndindex(*part_counts):
            part = tuple(
                slice(math.floor(i * n / m), math.ceil((i + 1) * n / m))
                for i, n, m in zip(place, x.shape[2:], part_counts, strict=True)
            )
            axes = tuple(range(2, x.ndim))
            result[(..., *place)] = fold(x[(slice(None), slice(None), *part)], axis=axes)
        return np.moveaxis(result, 1, -1) if last else result

    return reference


def _reference_global(fold: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def reference(x: Any, layout: str | None = None, keepdims: bool = False) -> np.ndarray:
        first = 1 if layout is not None and layout.endswith("C") else 2
        axes = tuple(range(first, first + x.ndim - 2))
        return np.asarray(fold(x, axis=axes, keepdims=keepdims))

    return reference


_IMAGES = values(2, 3, 5, 6)
_NHWC = np.ascontiguousarray(np.moveaxis(_IMAGES, 1, -1))


def _global_record(
    function: Callable[..., Node], doc: str, fold: Callable[..., Any], numerics: str
) -> Composite:
    text = f"{function.__name__}: an operand of 2 axes"
    return pooling_record(
        function,
        doc,
        lambda: [Sample((_IMAGES,)), Sample((_NHWC,), {"layout": "NHWC", "keepdims": True})],
        _reference_global(fold),
        lambda: [BadSample((np.ones((2, 3)),), ShapeError, text)],
        numerics,
    )


def _adaptive_record(
    function: Callable[..., Node], doc: str, fold: Callable[..., Any], numerics: str
) -> Composite:
    text = f"{function.__name__}: extents=0"
    return pooling_record(
        function,
        doc,
        lambda: [
            Sample((_IMAGES,), {"extents": (3, 2)}),
            Sample((_NHWC,), {"extents": (1, 4), "layout": "NHWC"}),
        ],
        _reference_grid(fold),
        lambda: [BadSample((_IMAGES,), ShapeError, text, {"extents": 0})],
        numerics,
    )


GLOBAL_AVG_POOL = _global_record(
    global_avg_pool, "The average of each channel.", np.mean, "reassoc"
)
GLOBAL_MAX_POOL = _global_record(
    global_max_pool, "The largest element of each channel.", np.max, "exact"
)
ADAPTIVE_AVG_POOL = _adaptive_record(
    adaptive_avg_pool, "The average of each part of a grid.", np.mean, "reassoc"
)
ADAPTIVE_MAX_POOL = _adaptive_record(
    adaptive_max_pool, "The largest element of each part of a grid.", np.max, "exact"
)

RECORDS = (GLOBAL_AVG_POOL, GLOBAL_MAX_POOL, ADAPTIVE_AVG_POOL, ADAPTIVE_MAX_POOL)
