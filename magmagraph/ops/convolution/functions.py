"""Convolutions as users call them: arguments read, geometry checked, a bias added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_node
from ..elementwise.arithmetic import add
from ..elementwise.family import floating_pair
from ..shape.arrange import reshape
from ..spatial.family import publish_spatial
from .primitives import CONVOLUTION, check_algorithm, groups_of, split_weight
from .shapes import (
    Sliding,
    channels_last,
    numbers,
    slide,
    spatial_axes,
    split,
    window_extents,
)

__all__ = ["conv", "conv1d", "conv2d", "conv3d"]

ALGORITHMS = ("auto", "direct", "im2col", "winograd-2x2", "winograd-4x4", "fft")


def chosen_algorithm(
    call: Call, algorithm: str, window: tuple[int, ...], sliding: Sliding
) -> str:
    """Check that an algorithm can do a geometry, or say why not, and which can."""
    if algorithm not in ALGORITHMS:
        raise call.shape_error(
            f"algorithm={algorithm!r}", need=f"one of {', '.join(map(repr, ALGORITHMS))}"
        )
    check_algorithm(call, algorithm, window, sliding.strides, sliding.dilation)
    return algorithm


_FORMS = ("(results, channels / groups, *window)", "(*window, channels / groups, results)")


def operands(
    record: Composite,
    x: Any,
    w: Any,
    layout: str | None,
    spatial_count: int | None,
    forms: tuple[str, str],
) -> tuple[Call, bool]:
    """Return the call on operands whose axes fit, and whether channels are last.

    `forms` are the shapes of weights for both layouts, channels first and last.
    """
    left, right = floating_pair(x, w)
    call = Call(record, (left, right))
    count = spatial_axes(call, left.ndim, spatial_count)
    last = channels_last(call, layout, count)
    if right.ndim != count + 2:
        raise call.shape_error(f"weights of {right.ndim} axes", need=f"{count + 2}: {forms[last]}")
    return call, last


def convolve(
    record: Composite,
    x: Any,
    w: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: str | None,
    algorithm: str,
    bias: Any,
    spatial_count: int | None,
) -> Node:
    """Return the node of a convolution; errors speak for `record`."""
    call, last = operands(record, x, w, layout, spatial_count, _FORMS)
    left, right = call.inputs
    outs, ins, window_shape = split_weight(right.shape, last)
    _, channels, spatial = split(left.shape, last)
    (parts,) = numbers(call, groups, 1, "groups", 1)
    share = groups_of(call, channels, parts, "channels")
    groups_of(call, outs, parts, "results")
    if dims.unify(share, ins, call.constraints) is None:
        raise call.shape_error(
            f"{channels} channels in groups={parts} for weights of {ins} channels",
            need=f"{share} channels: the input's, over the groups",
        )
    window = window_extents(call, window_shape, "the window")
    sliding = slide(call, spatial, window, stride, padding, dilation)
    node = CONVOLUTION(
        left,
        right,
        strides=sliding.strides,
        dilation=sliding.dilation,
        low=sliding.low,
        extents=sliding.extents,
        groups=parts,
        channels_last=last,
        algorithm=chosen_algorithm(call, algorithm, window, sliding),
    )
    return node if bias is None else with_bias(call, node, bias, last)


def with_bias(call: Call, node: Node, bias: Any, last: bool) -> Node:
    """Add one number for each channel of a result."""
    bias_node = as_node(bias)
    channels = split(node.shape, last)[1]
    if bias_node.ndim != 1:
        raise call.shape_error(f"a bias of {bias_node.ndim} axes", need="one: a number per result")
    if dims.unify(bias_node.shape[0], channels, call.constraints) is None:
        raise call.shape_error(
            f"a bias of {bias_node.shape[0]} numbers for {channels} results", need="one per result"
        )
    count = node.ndim - 2
    shape = bias_node.shape if last else (bias_node.shape[0], *(1,) * count)
    return add(*floating_pair(node, reshape(bias_node, shape)))


@documented
def conv(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
    algorithm: str = "auto",
    bias: Any = None,
) -> Node:
    """Convolve over one to three spatial axes, as networks do: the window is not turned around.

    ``y[n, o, p] = bias[o] + sum over c, k of w[o, c, k] x[n, c, p * stride + k * dilation - low]``,
    elements outside of `x` counting as zero.

    x: Node or array of shape ``(batch, channels, *spatial)``; with channels last, ``(batch,
        *spatial, channels)``. Batch, channels and spatial extents may be named.
    w: Weights of shape ``(results, channels / groups, *window)``; with channels last, ``(*window,
        channels / groups, results)``. The dtypes of both are promoted; ints become floats.
    stride: Elements from one window to the next: an int, or one per spatial axis.
    padding: ``"valid"``; ``"same"``, which gives ``ceil(n / stride)`` windows, an odd element of
        padding standing behind; an int; or an int or a pair (before, behind) per spatial axis.
    dilation: Elements from one element of the window to the next: an int, or one per spatial axis.
    groups: Parts of the channels that are convolved each by itself; `channels` is depthwise.
    layout: ``"NCW"``, ``"NCHW"`` or ``"NCDHW"`` (None), or ``"NWC"``, ``"NHWC"`` or ``"NDHWC"``.
    algorithm: ``"direct"``, ``"im2col"`` and ``"fft"`` do every geometry; ``"winograd-2x2"`` and
        ``"winograd-4x4"`` two spatial axes with a 3x3 window of stride and dilation 1. ``"auto"``
        takes the fastest of the direct ones and of Winograd's smaller form. Derivatives run by the
        same algorithm.
    bias: One number per result, or None.
    returns: Of shape ``(batch, results, *extents)`` in the layout of `x`, each extent being ``(n +
        padding - dilation * (k - 1) - 1) // stride + 1``.
    raises ShapeError: If axes, channels, groups or layout do not fit, the window is larger than the
        padded input, padding is negative, stride or dilation below 1, or the algorithm cannot do
        it.
    raises DTypeError: For a stride, padding or dilation that is not made of ints.

    >>> mg.conv(mg.constant([[[1.0, 2.0, 4.0]]]), mg.constant([[[10.0, 1.0]]])).eval()
    array([[[12., 24.]]], dtype=float32)
    >>> x = mg.input("x", ("batch", 3, "height", 32))
    >>> mg.conv(x, mg.zeros((8, 3, 3, 3)), stride=2, padding="same").shape
    (batch, 8, (height + 1)//2, 16)
    """
    return convolve(
        CONV, x, w, stride, padding, dilation, groups, layout, algorithm, bias, None
    )


def _over(count: int) -> Callable[..., Node]:
    """Return `conv` for one number of spatial axes."""

    def convolution(
        x: Any,
        w: Any,
        stride: Any = 1,
        padding: Any = "valid",
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        algorithm: str = "auto",
        bias: Any = None,
    ) -> Node:
        return convolve(
            _RECORD[count], x, w, stride, padding, dilation, groups, layout, algorithm, bias, count
        )

    return convolution


conv1d = publish_spatial(
    _over(1),
    "conv1d",
    1,
    "Convolve over one spatial axis.",
    """
    >>> x = mg.constant([[[1.0, 2.0, 4.0, 8.0]]])
    >>> mg.conv1d(x, mg.constant([[[1.0, 1.0]]]), stride=2).eval()
    array([[[ 3., 12.]]], dtype=float32)
    """,
    like=conv,
)
conv2d = publish_spatial(
    _over(2),
    "conv2d",
    2,
    "Convolve over two spatial axes.",
    """
    >>> x = mg.input("x", ("batch", 1, 28, 28))
    >>> mg.conv2d(x, mg.zeros((6, 1, 5, 5)), padding=2).shape
    (batch, 6, 28, 28)
    """,
    like=conv,
)
conv3d = publish_spatial(
    _over(3),
    "conv3d",
    3,
    "Convolve over three spatial axes.",
    """
    >>> mg.conv3d(mg.zeros((1, 2, 4, 5, 6)), mg.zeros((3, 2, 2, 2, 2))).shape
    (1, 3, 3, 4, 5)
    """,
    like=conv,
)


# Samples and a reference that is written otherwise than the expressions.


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Return sample values of some variety."""
    angles: np.ndarray = 1.0 + seed + 1.7 * np.arange(math.prod(shape))
    return np.asarray(np.sin(angles)).reshape(shape)


def reference_slide(
    n: int, k: int, stride: int, padding: Any, dilation: int
) -> tuple[int, int, int]:
    """Return the padding before and after one axis, and its number of windows."""
    reach = dilation * (k - 1) + 1
    if padding == "same":
        windows = -(-n // stride)
        total = max((windows - 1) * stride + reach - n, 0)
        return total // 2, total - total // 2, windows
    before, behind = (0, 0) if padding == "valid" else np.broadcast_to(padding, 2)
    return int(before), int(behind), (n + int(before) + int(behind) - reach) // stride + 1


def per_axis(argument: Any, count: int) -> list[Any]:
    """Return an argument as one entry per spatial axis."""
    return list(argument) if isinstance(argument, (tuple, list)) else [argument] * count


def reference(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
    algorithm: str = "auto",
    bias: Any = None,
) -> np.ndarray:
    """Return a convolution window by window, in NumPy."""
    count = x.ndim - 2
    last = layout is not None and layout.endswith("C")
    if last:
        x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
    window = w.shape[2:]
    geometry = [
        reference_slide(*entry)
        for entry in zip(
            x.shape[2:], window, per_axis(stride, count), per_axis(padding, count),
            per_axis(dilation, count), strict=True,
        )
    ]  # fmt: skip
    padded = np.pad(x, [(0, 0), (0, 0), *[(before, behind) for before, behind, _ in geometry]])
    result = np.zeros((x.shape[0], w.shape[0], *[windows for *_, windows in geometry]), x.dtype)
    ins, outs = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*[range(windows) for *_, windows in geometry]):
        cut = tuple(
            slice(p * s, p * s + d * (k - 1) + 1, d)
            for p, s, d, k in zip(
                place, per_axis(stride, count), per_axis(dilation, count), window, strict=True
            )
        )
        for g in range(groups):
            part = padded[(slice(None), slice(g * ins, (g + 1) * ins), *cut)]
            axes = tuple(range(1, x.ndim))
            value = np.tensordot(part, w[g * outs : (g + 1) * outs], (axes, axes))
            target: Any = (slice(None), slice(g * outs, (g + 1) * outs), *place)
            result[target] = value
    if bias is not None:
        result = result + np.reshape(bias, (-1, *(1,) * count))
    return np.moveaxis(result, 1, -1) if last else result


_IMAGES = values(2, 4, 5, 6)
_FILTERS = values(6, 2, 3, 2, seed=3)
_SQUARES = values(3, 2, 3, 3, seed=5)
_NHWC = np.ascontiguousarray(np.moveaxis(values(2, 2, 6, 5), 1, -1))
_HWIO = np.ascontiguousarray(np.moveaxis(_SQUARES, (0, 1), (-1, -2)))
_LINES = values(2, 3, 7)
_NO_IMAGES = np.zeros((0, 4, 5, 6))

_record = partial(Composite, kind=Kind.CONVOLUTION, numerics="reassoc")
_tests = partial(Tests, reference=reference)

CONV = _record(
    name="conv",
    function=conv,
    doc="Convolutions over one to three spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample((_LINES, values(4, 3, 2))),
            Sample((_NO_IMAGES, values(3, 4, 2, 2)), {"padding": 1}),
        ],
        bad_samples=lambda: [
            BadSample((np.ones((2, 3)), np.ones((2, 3))), ShapeError, "conv: an operand of 2 axes"),
            BadSample(
                (_LINES, values(4, 3, 2)),
                ShapeError,
                "conv: layout='NHWC' for 1 spatial axes",
                {"layout": "NHWC"},
            ),
        ],
    ),
)
CONV1D = _record(
    name="conv1d",
    function=conv1d,
    doc="Convolutions over one spatial axis.",
    tests=_tests(
        samples=lambda: [
            Sample((_LINES, values(2, 3, 3)), {"stride": 2, "padding": "same"}),
            Sample((_LINES, values(6, 1, 2)), {"groups": 3, "dilation": 3, "padding": ((2, 0),)}),
            Sample(
                (np.ascontiguousarray(_LINES.swapaxes(1, 2)), values(2, 3, 4)),
                {"layout": "NWC", "algorithm": "fft"},
            ),
        ],
        bad_samples=lambda: [
            BadSample(
                (_LINES, values(4, 3, 9)),
                ShapeError,
                "conv1d: a window that reaches over 9 elements along spatial axis 0, and 7 with "
                "padding",
            ),
            BadSample((_IMAGES, _FILTERS), ShapeError, "conv1d: an operand of 4 axes"),
        ],
    ),
)
CONV2D = _record(
    name="conv2d",
    function=conv2d,
    doc="Convolutions over two spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample(
                (_IMAGES, _FILTERS),
                {"groups": 2, "stride": (2, 1), "padding": (1, (0, 2)), "dilation": (1, 2)},
            ),
            Sample((values(2, 2, 6, 5), _SQUARES), {"padding": 1, "algorithm": "im2col"}),
            Sample((values(2, 2, 6, 5), _SQUARES), {"padding": 1, "algorithm": "winograd-2x2"}),
            Sample((_NHWC, _HWIO), {"layout": "NHWC", "algorithm": "winograd-4x4"}),
            Sample((_NHWC, _HWIO), {"layout": "NHWC", "stride": 2, "padding": "same"}),
            Sample((values(2, 2, 6, 5), _SQUARES), {"stride": 2, "algorithm": "fft"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: 4 channels in groups=1 for weights of 2 channels",
            ),
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: groups=3 does not divide the 4 channels",
                {"groups": 3},
            ),
            BadSample(
                (_IMAGES, values(5, 2, 1, 1)),
                ShapeError,
                "conv2d: groups=2 does not divide the 5 results",
                {"groups": 2},
            ),
            BadSample(
                (_IMAGES, _FILTERS), ShapeError, "conv2d: stride=0", {"groups": 2, "stride": 0}
            ),
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: padding=(1, -1) is negative",
                {"groups": 2, "padding": (1, -1)},
            ),
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: layout='HWC' for 2 spatial axes",
                {"layout": "HWC"},
            ),
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: algorithm='fastest'",
                {"groups": 2, "algorithm": "fastest"},
            ),
            BadSample(
                (_IMAGES, _FILTERS),
                ShapeError,
                "conv2d: algorithm='winograd-2x2' for a 3x2 window of stride (1, 1) and dilation "
                "(1, 1)",
                {"groups": 2, "algorithm": "winograd-2x2"},
            ),
            BadSample((_IMAGES[0], _FILTERS), ShapeError, "conv2d: an operand of 3 axes"),
        ],
    ),
)
CONV3D = _record(
    name="conv3d",
    function=conv3d,
    doc="Convolutions over three spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample(
                (values(1, 2, 3, 4, 3), values(2, 2, 2, 3, 1)),
                {"padding": (1, 0, 0), "stride": (1, 2, 1)},
            ),
            Sample(
                (values(1, 3, 2, 3, 2), values(2, 1, 2, 1, 4)),
                {"layout": "NDHWC", "groups": 2, "algorithm": "im2col"},
            ),
        ],
        bad_samples=lambda: [
            BadSample((_IMAGES, _FILTERS), ShapeError, "conv3d: an operand of 4 axes")
        ],
    ),
)

_RECORD = {1: CONV1D, 2: CONV2D, 3: CONV3D}

RECORDS = (CONV, CONV1D, CONV2D, CONV3D)
