"""Pooling: the largest element or the average of windows that slide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_node
from ..convolution.functions import per_axis, reference_slide, values
from ..convolution.shapes import (
    channels_last,
    numbers,
    paddings,
    slide,
    spatial_axes,
    split,
)
from ..elementwise.arithmetic import divide
from ..elementwise.family import floating
from ..shape.joining import broadcast_to
from .family import ALONG, publish_spatial
from .pooling_records import MAX_POOL, SUM_POOL

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


def _windows(
    record: Composite,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str | None,
    count: int,
) -> tuple[Node, dict[str, Any]]:
    """Return the operand, and the attributes of the records that pool it."""
    node = floating(x)
    call = Call(record, (node,))
    spatial_axes(call, node.ndim, count)
    last = channels_last(call, layout, count)
    extents = numbers(call, window, count, "window", 1)
    dilations = numbers(call, dilation, count, "dilation", 1)
    pairs = paddings(call, padding, count)
    if not isinstance(pairs, str):
        for axis, (pair, k, d) in enumerate(zip(pairs, extents, dilations, strict=True)):
            if max(pair) > d * (k - 1):
                raise call.shape_error(
                    f"padding={padding!r} for a window that reaches over {d * (k - 1) + 1} "
                    f"elements along spatial axis {axis}",
                    need="less padding than that: a window would lie outside of the input",
                )
    _, _, spatial = split(node.shape, last)
    sliding = slide(
        call, spatial, extents, extents if stride is None else stride, padding, dilation
    )
    attrs = {
        "window": extents,
        "strides": sliding.strides,
        "dilation": sliding.dilation,
        "low": sliding.low,
        "extents": sliding.extents,
        "channels_last": last,
    }
    return node, attrs


def _average(node: Node, attrs: dict[str, Any], count_include_pad: bool) -> Node:
    """Return sums over windows, divided by how many elements each has."""
    total = SUM_POOL(node, **attrs)
    if count_include_pad:
        return divide(total, as_node(float(math.prod(attrs["window"])), node.dtype))
    last = attrs["channels_last"]
    _, _, spatial = split(node.shape, last)
    shape = (1, *spatial, 1) if last else (1, 1, *spatial)
    counts = SUM_POOL(broadcast_to(as_node(1.0, node.dtype), shape), **attrs)
    return divide(total, broadcast_to(counts, total.shape))


@documented
def max_pool2d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
) -> Node:
    """Find the largest element of every window over two spatial axes.

    NaN where any element is NaN. What padding adds is never the largest. The derivative goes to
    the first of the elements that are largest, in row-major order, and to the first NaN.

    x: Node or array of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with
        layout ``"NHWC"``; ints become floats. Every extent may be named.
    window: Extents of the window: an int, or one per spatial axis.
    stride: Elements from one window to the next: an int, or one per spatial axis; the window unless
        given, so that windows do not overlap.
    padding: As for `conv`; less than a window along every axis.
    dilation: Elements from one element of the window to the next.
    layout: As for `conv`.
    returns: Of the float dtype and layout of `x`, with an element for each window. A spread window
        none of whose elements lies inside gives minus infinity.
    raises ShapeError: If axes or layout do not fit, a window is larger than the padded input,
        padding is negative or a window or more, stride or dilation are below 1.
    raises DTypeError: For a window, stride, padding or dilation that is not made of ints.

    >>> x = mg.constant([[[[1.0, 2.0, 5.0], [4.0, 3.0, 0.0]]]])
    >>> mg.max_pool2d(x, 2, stride=1).eval()
    array([[[[4., 5.]]]], dtype=float32)
    >>> mg.max_pool2d(mg.input("x", ("batch", 6, "h", 28)), 2).shape
    (batch, 6, h//2, 14)
    """
    node, attrs = _windows(_MAX_POOLS[2], x, window, stride, padding, dilation, layout, 2)
    return MAX_POOL(node, **attrs)


@documented
def avg_pool2d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
    count_include_pad: bool = True,
) -> Node:
    """Average every window over two spatial axes.

    x: Of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with layout ``"NHWC"``;
        ints become floats.
    window, stride, padding, dilation, layout: As for `max_pool2d`.
    count_include_pad: Divide by the extent of the window, elements of padding counting as zeros;
        else by the number of elements inside of `x`.
    returns: Of the float dtype and layout of `x`, with an element for each window. Without
        `count_include_pad`, a spread window none of whose elements lies inside gives NaN.
    raises ShapeError, DTypeError: As for `max_pool2d`.

    >>> x = mg.constant([[[[1.0, 3.0], [5.0, 7.0]]]])
    >>> mg.avg_pool2d(x, 2).eval()
    array([[[[4.]]]], dtype=float32)
    >>> mg.avg_pool2d(x, 2, stride=1, padding=((1, 0), 0)).eval()
    array([[[[1.],
             [4.]]]], dtype=float32)
    """
    node, attrs = _windows(_AVG_POOLS[2], x, window, stride, padding, dilation, layout, 2)
    return _average(node, attrs, count_include_pad)


def _max_pool(count: int) -> Callable[..., Node]:
    def pool(
        x: Any,
        window: Any,
        stride: Any = None,
        padding: Any = "valid",
        dilation: Any = 1,
        layout: str | None = None,
    ) -> Node:
        record = _MAX_POOLS[count]
        node, attrs = _windows(record, x, window, stride, padding, dilation, layout, count)
        return MAX_POOL(node, **attrs)

    return pool


def _avg_pool(count: int) -> Callable[..., Node]:
    def pool(
        x: Any,
        window: Any,
        stride: Any = None,
        padding: Any = "valid",
        dilation: Any = 1,
        layout: str | None = None,
        count_include_pad: bool = True,
    ) -> Node:
        record = _AVG_POOLS[count]
        node, attrs = _windows(record, x, window, stride, padding, dilation, layout, count)
        return _average(node, attrs, count_include_pad)

    return pool


max_pool1d = publish_spatial(
    _max_pool(1),
    "max_pool1d",
    1,
    f"Find the largest element of every window {ALONG[1]}.",
    """
    >>> mg.max_pool1d(mg.constant([[[1.0, 5.0, 2.0, 3.0]]]), 2).eval()
    array([[[5., 3.]]], dtype=float32)
    """,
    like=max_pool2d,
)
max_pool3d = publish_spatial(
    _max_pool(3),
    "max_pool3d",
    3,
    f"Find the largest element of every window {ALONG[3]}.",
    """
    >>> mg.max_pool3d(mg.zeros((2, 3, 4, 6, 8)), 2).shape
    (2, 3, 2, 3, 4)
    """,
    like=max_pool2d,
)
avg_pool1d = publish_spatial(
    _avg_pool(1),
    "avg_pool1d",
    1,
    f"Average every window {ALONG[1]}.",
    """
    >>> x = mg.constant([[[2.0, 4.0, 6.0]]])
    >>> mg.avg_pool1d(x, 2, padding=((0, 1),), count_include_pad=False).eval()
    array([[[3., 6.]]], dtype=float32)
    """,
    like=avg_pool2d,
    raises="max_pool2d",
)
avg_pool3d = publish_spatial(
    _avg_pool(3),
    "avg_pool3d",
    3,
    f"Average every window {ALONG[3]}.",
    """
    >>> mg.avg_pool3d(mg.zeros((2, 3, 4, 6, 8)), (1, 2, 2)).shape
    (2, 3, 4, 3, 4)
    """,
    like=avg_pool2d,
    raises="max_pool2d",
)


# References, window by window.


def _pooled(
    fold: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
) -> np.ndarray:
    """Return `fold` of every window, given as (batch, channels, elements); NaN is padding."""
    count = x.ndim - 2
    last = layout is not None and layout.endswith("C")
    if last:
        x = np.moveaxis(x, -1, 1)
    extents = per_axis(window, count)
    strides = extents if stride is None else per_axis(stride, count)
    dilations = per_axis(dilation, count)
    geometry = [
        reference_slide(*entry)
        for entry in zip(
            x.shape[2:], extents, strides, per_axis(padding, count)
            if not isinstance(padding, str) else [padding] * count, dilations, strict=True,
        )
    ]  # fmt: skip
    around = [(0, 0), (0, 0), *[(before, behind) for before, behind, _ in geometry]]
    padded = np.pad(x, around)
    absent = np.pad(np.zeros(x.shape, bool), around, constant_values=True)
    result = np.zeros((*x.shape[:2], *[windows for *_, windows in geometry]), x.dtype)
    for place in itertools.product(*[range(windows) for *_, windows in geometry]):
        at: Any = (
            slice(None), slice(None),
            *[slice(p * s, p * s + d * (k - 1) + 1, d)
              for p, s, d, k in zip(place, strides, dilations, extents, strict=True)],
        )  # fmt: skip
        elements = np.ma.masked_array(padded[at], absent[at])
        together = elements.reshape(*x.shape[:2], math.prod(extents))
        target: Any = (slice(None), slice(None), *place)
        result[target] = fold(together)
    return np.moveaxis(result, 1, -1) if last else result


def _reference_max(x: Any, *args: Any, **options: Any) -> np.ndarray:
    def fold(elements: Any) -> np.ndarray:
        return np.asarray(np.max(elements.filled(-np.inf), axis=-1))

    return _pooled(fold, x, *args, **options)


def _reference_avg(
    x: Any, *args: Any, count_include_pad: bool = True, **options: Any
) -> np.ndarray:
    def fold(elements: Any) -> np.ndarray:
        counted = elements.shape[-1] if count_include_pad else np.sum(~elements.mask, axis=-1)
        return np.asarray(np.sum(elements.filled(0.0), axis=-1) / counted)

    return _pooled(fold, x, *args, **options)


_LINES = values(2, 3, 7)
_IMAGES = values(2, 3, 5, 6)
_VOLUMES = values(1, 2, 3, 4, 5)
_NHWC = np.ascontiguousarray(np.moveaxis(_IMAGES, 1, -1))


def pooling_record(
    function: Callable[..., Node],
    doc: str,
    samples: Callable[[], list[Sample]],
    reference: Callable[..., Any],
    bad: Callable[[], list[BadSample]],
    numerics: str,
) -> Composite:
    """Return the record of a public function of pooling."""
    return Composite(
        name=function.__name__,
        kind=Kind.CONVOLUTION,
        function=function,
        doc=doc,
        tests=Tests(samples=samples, bad_samples=bad, reference=reference),
        numerics=numerics,
    )


def _bad_geometry(name: str) -> list[BadSample]:
    def bad(text: str, **attrs: Any) -> BadSample:
        return BadSample((_IMAGES,), ShapeError, f"{name}: {text}", attrs)

    return [
        bad("window=(2, 2, 2) for 2 spatial axes", window=(2, 2, 2)),
        bad("window=0", window=0),
        bad("stride=(1, 0)", window=2, stride=(1, 0)),
        bad("padding=-1 is negative", window=2, padding=-1),
        bad(
            "padding=(0, 2) for a window that reaches over 2 elements along spatial axis 1",
            window=2,
            padding=(0, 2),
        ),
        bad(
            "a window that reaches over 7 elements along spatial axis 0, and 5 with padding",
            window=4,
            dilation=2,
        ),
        bad("layout='CHW' for 2 spatial axes", window=2, layout="CHW"),
    ]


def _bad_axes(name: str) -> list[BadSample]:
    return [
        BadSample(
            (np.ones((2, 3)),), ShapeError, f"{name}: an operand of 2 axes", {"window": 2}
        )
    ]




def _records(
    doc: str,
    functions: dict[int, Callable[..., Node]],
    samples: dict[int, list[Sample]],
    reference: Callable[..., Any],
    numerics: str,
) -> dict[int, Composite]:
    """Return the records of the functions for each number of spatial axes."""

    def record(count: int, function: Callable[..., Node]) -> Composite:
        bad = _bad_geometry if count == 2 else _bad_axes
        return pooling_record(
            function,
            f"{doc} {ALONG[count]}.",
            lambda: samples[count],
            reference,
            lambda: bad(function.__name__),
            numerics,
        )

    return {count: record(count, function) for count, function in functions.items()}


_MAX_POOLS = _records(
    "The largest element of every window",
    {1: max_pool1d, 2: max_pool2d, 3: max_pool3d},
    {
        1: [
            Sample((_LINES,), {"window": 3, "stride": 2, "padding": 1}),
            Sample((_LINES,), {"window": 2, "dilation": 3}),
        ],
        2: [
            Sample((_IMAGES,), {"window": 2}),
            Sample((_IMAGES,), {"window": (3, 2), "stride": 1, "padding": "same"}),
            Sample((_NHWC,), {"window": 3, "stride": 2, "padding": (1, (0, 2)), "layout": "NHWC"}),
            Sample((np.zeros((0, 3, 4, 4)),), {"window": 2}),
        ],
        3: [Sample((_VOLUMES,), {"window": (2, 3, 2), "stride": 1, "padding": (1, 0, 1)})],
    },
    _reference_max,
    "exact",
)
_AVG_POOLS = _records(
    "The average of every window",
    {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d},
    {
        1: [
            Sample((_LINES,), {"window": 3, "stride": 2, "padding": 1}),
            Sample(
                (_LINES,),
                {"window": 3, "stride": 2, "padding": "same", "count_include_pad": False},
            ),
        ],
        2: [
            Sample((_IMAGES,), {"window": 2}),
            Sample(
                (_NHWC,),
                {"window": (3, 2), "stride": (1, 3), "padding": (2, (1, 0)), "layout": "NHWC",
                 "count_include_pad": False},
            ),
        ],
        3: [Sample((_VOLUMES,), {"window": (2, 3, 2), "padding": (1, 0, 1)})],
    },
    _reference_avg,
    "reassoc",
)  # fmt: skip

RECORDS = (*_MAX_POOLS.values(), *_AVG_POOLS.values())
