"""Pooling: the largest element or the average of windows that slide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..graph import Node
from ..op import BadSample, Call, Composite, Kind, Sample
from .convert import as_node
from .convolution_functions import per_axis, reference_slide, values
from .convolution_shapes import (
    channels_last,
    numbers,
    paddings,
    slide,
    spatial_axes,
    split,
)
from .elementwise import divide
from .family import floating
from .joining import broadcast_to
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
    spread = numbers(call, dilation, count, "dilation", 1)
    pairs = paddings(call, padding, count)
    if not isinstance(pairs, str):
        for axis, (pair, k, d) in enumerate(zip(pairs, extents, spread, strict=True)):
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


def max_pool1d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
) -> Node:
    """Find the largest element of every window along one spatial axis.

    Parameters
    ----------
    x
        Of shape ``(batch, channels, w)``, or ``(batch, w, channels)`` with layout ``"NWC"``.
    window, stride, padding, dilation, layout
        As for `max_pool2d`.

    Returns
    -------
    Node
        As `max_pool2d` gives it.

    Raises
    ------
    ShapeError, DTypeError
        As for `max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.max_pool1d(mg.constant([[[1.0, 5.0, 2.0, 3.0]]]), 2).eval()
    array([[[5., 3.]]], dtype=float32)
    """
    node, attrs = _windows(MAX_POOL1D, x, window, stride, padding, dilation, layout, 1)
    return MAX_POOL(node, **attrs)


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

    Parameters
    ----------
    x
        Node or array of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with
        layout ``"NHWC"``; ints become floats. Every extent may be named.
    window
        Extents of the window: an int, or one per spatial axis.
    stride
        Elements from one window to the next: an int, or one per spatial axis; the window unless
        given, so that windows do not overlap.
    padding
        As for `conv`; less than a window along every axis.
    dilation
        Elements from one element of the window to the next.
    layout
        As for `conv`.

    Returns
    -------
    Node
        Of the float dtype and layout of `x`, with an element for each window. A spread window
        none of whose elements lies inside gives minus infinity.

    Raises
    ------
    ShapeError
        If axes or layout do not fit, a window is larger than the padded input, padding is
        negative or a window or more, stride or dilation are below 1.
    DTypeError
        For a window, stride, padding or dilation that is not made of ints.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[[[1.0, 2.0, 5.0], [4.0, 3.0, 0.0]]]])
    >>> mg.max_pool2d(x, 2, stride=1).eval()
    array([[[[4., 5.]]]], dtype=float32)
    >>> mg.max_pool2d(mg.input("x", ("batch", 6, "h", 28)), 2).shape
    (batch, 6, h//2, 14)
    """
    node, attrs = _windows(MAX_POOL2D, x, window, stride, padding, dilation, layout, 2)
    return MAX_POOL(node, **attrs)


def max_pool3d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
) -> Node:
    """Find the largest element of every window over three spatial axes.

    Parameters
    ----------
    x
        Of shape ``(batch, channels, d, h, w)``, or ``(batch, d, h, w, channels)`` with layout
        ``"NDHWC"``.
    window, stride, padding, dilation, layout
        As for `max_pool2d`.

    Returns
    -------
    Node
        As `max_pool2d` gives it.

    Raises
    ------
    ShapeError, DTypeError
        As for `max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.max_pool3d(mg.zeros((2, 3, 4, 6, 8)), 2).shape
    (2, 3, 2, 3, 4)
    """
    node, attrs = _windows(MAX_POOL3D, x, window, stride, padding, dilation, layout, 3)
    return MAX_POOL(node, **attrs)


def avg_pool1d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
    count_include_pad: bool = True,
) -> Node:
    """Average every window along one spatial axis.

    Parameters
    ----------
    x
        Of shape ``(batch, channels, w)``, or ``(batch, w, channels)`` with layout ``"NWC"``.
    window, stride, padding, dilation, layout, count_include_pad
        As for `avg_pool2d`.

    Returns
    -------
    Node
        As `avg_pool2d` gives it.

    Raises
    ------
    ShapeError, DTypeError
        As for `max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[[2.0, 4.0, 6.0]]])
    >>> mg.avg_pool1d(x, 2, padding=((0, 1),), count_include_pad=False).eval()
    array([[[3., 6.]]], dtype=float32)
    """
    node, attrs = _windows(AVG_POOL1D, x, window, stride, padding, dilation, layout, 1)
    return _average(node, attrs, count_include_pad)


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

    Parameters
    ----------
    x
        Of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with layout
        ``"NHWC"``; ints become floats.
    window, stride, padding, dilation, layout
        As for `max_pool2d`.
    count_include_pad
        Divide by the extent of the window, elements of padding counting as zeros; else by the
        number of elements inside of `x`.

    Returns
    -------
    Node
        Of the float dtype and layout of `x`, with an element for each window. Without
        `count_include_pad`, a spread window none of whose elements lies inside gives NaN.

    Raises
    ------
    ShapeError, DTypeError
        As for `max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.constant([[[[1.0, 3.0], [5.0, 7.0]]]])
    >>> mg.avg_pool2d(x, 2).eval()
    array([[[[4.]]]], dtype=float32)
    >>> mg.avg_pool2d(x, 2, stride=1, padding=((1, 0), 0)).eval()
    array([[[[1.],
             [4.]]]], dtype=float32)
    """
    node, attrs = _windows(AVG_POOL2D, x, window, stride, padding, dilation, layout, 2)
    return _average(node, attrs, count_include_pad)


def avg_pool3d(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
    count_include_pad: bool = True,
) -> Node:
    """Average every window over three spatial axes.

    Parameters
    ----------
    x
        Of shape ``(batch, channels, d, h, w)``, or ``(batch, d, h, w, channels)`` with layout
        ``"NDHWC"``.
    window, stride, padding, dilation, layout, count_include_pad
        As for `avg_pool2d`.

    Returns
    -------
    Node
        As `avg_pool2d` gives it.

    Raises
    ------
    ShapeError, DTypeError
        As for `max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.avg_pool3d(mg.zeros((2, 3, 4, 6, 8)), (1, 2, 2)).shape
    (2, 3, 4, 3, 4)
    """
    node, attrs = _windows(AVG_POOL3D, x, window, stride, padding, dilation, layout, 3)
    return _average(node, attrs, count_include_pad)


# References, window by window.


def _pooled(
    fold: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str | None,
) -> np.ndarray:
    """Return `fold` of every window, given as (batch, channels, elements); NaN is padding."""
    count = x.ndim - 2
    last = layout is not None and layout.endswith("C")
    if last:
        x = np.moveaxis(x, -1, 1)
    extents = per_axis(window, count)
    strides = extents if stride is None else per_axis(stride, count)
    spread = per_axis(dilation, count)
    geometry = [
        reference_slide(*entry)
        for entry in zip(
            x.shape[2:], extents, strides, per_axis(padding, count)
            if not isinstance(padding, str) else [padding] * count, spread, strict=True,
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
              for p, s, d, k in zip(place, strides, spread, extents, strict=True)],
        )  # fmt: skip
        elements = np.ma.masked_array(padded[at], absent[at])
        together = elements.reshape(*x.shape[:2], math.prod(extents))
        target: Any = (slice(None), slice(None), *place)
        result[target] = fold(together)
    return np.moveaxis(result, 1, -1) if last else result


def _reference_max(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
) -> np.ndarray:
    def fold(elements: Any) -> np.ndarray:
        return np.asarray(np.max(elements.filled(-np.inf), axis=-1))

    return _pooled(fold, x, window, stride, padding, dilation, layout)


def _reference_avg(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    layout: str | None = None,
    count_include_pad: bool = True,
) -> np.ndarray:
    def fold(elements: Any) -> np.ndarray:
        counted = elements.shape[-1] if count_include_pad else np.sum(~elements.mask, axis=-1)
        return np.asarray(np.sum(elements.filled(0.0), axis=-1) / counted)

    return _pooled(fold, x, window, stride, padding, dilation, layout)


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
        samples=samples,
        bad_samples=bad,
        reference=reference,
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


MAX_POOL1D = pooling_record(
    max_pool1d,
    "The largest element of every window along one spatial axis.",
    lambda: [
        Sample((_LINES,), {"window": 3, "stride": 2, "padding": 1}),
        Sample((_LINES,), {"window": 2, "dilation": 3}),
    ],
    _reference_max,
    lambda: _bad_axes("max_pool1d"),
    "exact",
)
MAX_POOL2D = pooling_record(
    max_pool2d,
    "The largest element of every window over two spatial axes.",
    lambda: [
        Sample((_IMAGES,), {"window": 2}),
        Sample((_IMAGES,), {"window": (3, 2), "stride": 1, "padding": "same"}),
        Sample((_NHWC,), {"window": 3, "stride": 2, "padding": (1, (0, 2)), "layout": "NHWC"}),
        Sample((np.zeros((0, 3, 4, 4)),), {"window": 2}),
    ],
    _reference_max,
    lambda: _bad_geometry("max_pool2d"),
    "exact",
)
MAX_POOL3D = pooling_record(
    max_pool3d,
    "The largest element of every window over three spatial axes.",
    lambda: [Sample((_VOLUMES,), {"window": (2, 3, 2), "stride": 1, "padding": (1, 0, 1)})],
    _reference_max,
    lambda: _bad_axes("max_pool3d"),
    "exact",
)
AVG_POOL1D = pooling_record(
    avg_pool1d,
    "The average of every window along one spatial axis.",
    lambda: [
        Sample((_LINES,), {"window": 3, "stride": 2, "padding": 1}),
        Sample(
            (_LINES,), {"window": 3, "stride": 2, "padding": "same", "count_include_pad": False}
        ),
    ],
    _reference_avg,
    lambda: _bad_axes("avg_pool1d"),
    "reassoc",
)
AVG_POOL2D = pooling_record(
    avg_pool2d,
    "The average of every window over two spatial axes.",
    lambda: [
        Sample((_IMAGES,), {"window": 2}),
        Sample(
            (_NHWC,),
            {"window": (3, 2), "stride": (1, 3), "padding": (2, (1, 0)), "layout": "NHWC",
             "count_include_pad": False},
        ),
    ],
    _reference_avg,
    lambda: _bad_geometry("avg_pool2d"),
    "reassoc",
)  # fmt: skip
AVG_POOL3D = pooling_record(
    avg_pool3d,
    "The average of every window over three spatial axes.",
    lambda: [Sample((_VOLUMES,), {"window": (2, 3, 2), "padding": (1, 0, 1)})],
    _reference_avg,
    lambda: _bad_axes("avg_pool3d"),
    "reassoc",
)
RECORDS = (MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, AVG_POOL1D, AVG_POOL2D, AVG_POOL3D)
