"""Transposed convolutions: the linear maps that are adjoint to those of `conv`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..spatial.family import publish_spatial
from .functions import chosen_algorithm, operands, per_axis, values, with_bias
from .primitives import CONVOLUTION_INPUT, groups_of, split_weight
from .shapes import (
    Sliding,
    numbers,
    paddings,
    split,
    window_extents,
)

__all__ = ["conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "conv_transpose"]


_FORMS = ("(channels, results / groups, *window)", "(*window, results / groups, channels)")


def _convolve(
    record: Composite,
    x: Any,
    w: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: Any,
    layout: str | None,
    algorithm: str,
    bias: Any,
    spatial_count: int | None,
) -> Node:
    call, last = operands(record, x, w, layout, spatial_count, _FORMS)
    left, right = call.inputs
    count = left.ndim - 2
    # What is the input here is the result of the convolution that this is the transpose of.
    outer, _, window_shape = split_weight(right.shape, last)
    _, channels, spatial = split(left.shape, last)
    (parts,) = numbers(call, groups, 1, "groups", 1)
    groups_of(call, channels, parts, "channels")
    if dims.unify(channels, outer, call.constraints) is None:
        raise call.shape_error(
            f"{channels} channels for weights of {outer}", need="equal numbers of channels"
        )
    window = window_extents(call, window_shape, "the window")
    strides = numbers(call, stride, count, "stride", 1)
    dilations = numbers(call, dilation, count, "dilation", 1)
    extra = numbers(call, output_padding, count, "output_padding", 0)
    pairs = paddings(call, padding, count)
    low: list[Extent] = []
    extents: list[Extent] = []
    for axis, (n, k, s, d, more) in enumerate(
        zip(spatial, window, strides, dilations, extra, strict=True)
    ):
        reach = d * (k - 1) + 1
        if more >= max(s, d):
            raise call.shape_error(
                f"output_padding={output_padding!r} for stride {s} and dilation {d} along spatial "
                f"axis {axis}",
                need="less than the stride or the dilation: whole windows lie beyond else",
            )
        if isinstance(pairs, str):
            total = max(reach - s, 0)
            low.append(total // 2)
            extents.append(n * s + more)
            continue
        before, behind = pairs[axis]
        extent = (n - 1) * s + reach - before - behind + more
        if not dims.require(extent, ">=", 0, call.constraints):
            raise call.shape_error(
                f"padding={padding!r} takes more than the {extent + before + behind} elements "
                f"that there are along spatial axis {axis}",
                need="less padding",
            )
        low.append(before)
        extents.append(extent)
    sliding = Sliding(strides, dilations, tuple(low), tuple(extents))
    node = CONVOLUTION_INPUT(
        left,
        right,
        strides=strides,
        dilation=dilations,
        low=sliding.low,
        extents=sliding.extents,
        groups=parts,
        channels_last=last,
        algorithm=chosen_algorithm(call, algorithm, window, sliding),
    )
    return node if bias is None else with_bias(call, node, bias, last)


@documented
def conv_transpose(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = "valid",
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
    algorithm: str = "auto",
    bias: Any = None,
) -> Node:
    """Spread each element over a window: the transpose of `conv` with respect to its input.

    With equal arguments, ``sum(conv(a, w) * b) == sum(a * conv_transpose(b, w))``.

    x: Node or array of shape ``(batch, channels, *spatial)``; with channels last, ``(batch,
        *spatial, channels)``.
    w: Weights of shape ``(channels, results / groups, *window)``; with channels last, ``(*window,
        results / groups, channels)``: those of the convolution that it transposes.
    stride: Elements of the result from one window to the next: an int, or one per spatial axis.
    padding: Taken off the result: ``"valid"`` (none), an int, or an int or a pair per spatial axis.
        ``"same"`` gives ``n * stride`` elements.
    output_padding: Elements more behind the result, which a convolution of this stride may have
        left over.
    dilation, groups, layout, algorithm, bias: As for `conv`.
    returns: Of shape ``(batch, results, *extents)`` in the layout of `x`, each extent being ``(n -
        1) * stride + dilation * (k - 1) + 1 - padding + output_padding``.
    raises ShapeError, DTypeError: As for `conv`; also for more padding than elements, and for an
        output padding of a stride or more.

    >>> x, w = mg.constant([[[1.0, 2.0]]]), mg.constant([[[1.0, 10.0]]])
    >>> mg.conv_transpose(x, w).eval()
    array([[[ 1., 12., 20.]]], dtype=float32)
    >>> mg.conv_transpose(x, w, stride=3, output_padding=1).eval()
    array([[[ 1., 10.,  0.,  2., 20.,  0.]]], dtype=float32)
    """
    return _convolve(
        CONV_TRANSPOSE, x, w, stride, padding, output_padding, dilation, groups, layout,
        algorithm, bias, None,
    )  # fmt: skip


def _over(count: int) -> Callable[..., Node]:
    """Return `conv_transpose` for one number of spatial axes."""

    def convolution(
        x: Any,
        w: Any,
        stride: Any = 1,
        padding: Any = "valid",
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str | None = None,
        algorithm: str = "auto",
        bias: Any = None,
    ) -> Node:
        return _convolve(
            _RECORD[count], x, w, stride, padding, output_padding, dilation, groups, layout,
            algorithm, bias, count,
        )  # fmt: skip

    return convolution


conv1d_transpose = publish_spatial(
    _over(1),
    "conv1d_transpose",
    1,
    "Transpose a convolution over one spatial axis.",
    """
    >>> x, w = mg.constant([[[1.0, 2.0]]]), mg.constant([[[1.0, 10.0]]])
    >>> mg.conv1d_transpose(x, w, stride=2).eval()
    array([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """,
    like=conv_transpose,
)
conv2d_transpose = publish_spatial(
    _over(2),
    "conv2d_transpose",
    2,
    "Transpose a convolution over two spatial axes.",
    """
    >>> x = mg.input("x", ("batch", 16, 7, 7))
    >>> mg.conv2d_transpose(x, mg.zeros((16, 8, 3, 3)), stride=2, padding="same").shape
    (batch, 8, 14, 14)
    """,
    like=conv_transpose,
)
conv3d_transpose = publish_spatial(
    _over(3),
    "conv3d_transpose",
    3,
    "Transpose a convolution over three spatial axes.",
    """
    >>> mg.conv3d_transpose(mg.zeros((1, 3, 2, 3, 4)), mg.zeros((3, 2, 2, 2, 2))).shape
    (1, 2, 3, 4, 5)
    """,
    like=conv_transpose,
)


def reference(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = "valid",
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str | None = None,
    algorithm: str = "auto",
    bias: Any = None,
) -> np.ndarray:
    """Return a transposed convolution by spreading one element of the input after another."""
    count = x.ndim - 2
    last = layout is not None and layout.endswith("C")
    if last:
        x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
    strides, dilations = per_axis(stride, count), per_axis(dilation, count)
    reaches = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    ins, outs = x.shape[1] // groups, w.shape[1]
    sizes = [max(n - 1, 0) * s + r for n, s, r in zip(x.shape[2:], strides, reaches, strict=True)]
    more = per_axis(output_padding, count)
    room = [size + 2 * s + e for size, s, e in zip(sizes, strides, more, strict=True)]
    whole = np.zeros((x.shape[0], groups * outs, *room), x.dtype)
    for place in itertools.product(*map(range, x.shape[2:])):
        cut = tuple(
            slice(p * s, p * s + r, d)
            for p, s, r, d in zip(place, strides, reaches, dilations, strict=True)
        )
        for g in range(groups):
            element = x[(slice(None), slice(g * ins, (g + 1) * ins), *place)]
            part = np.tensordot(element, w[g * ins : (g + 1) * ins], 1)
            whole[(slice(None), slice(g * outs, (g + 1) * outs), *cut)] += part
    kept_slices = []
    for size, n, s, r, e, pad in zip(
        sizes, x.shape[2:], strides, reaches, more, per_axis(padding, count)
        if not isinstance(padding, str) else [padding] * count, strict=True,
    ):
        if pad == "same":
            before = max(r - s, 0) // 2
            kept_slices.append(slice(before, before + n * s + e))
        else:
            before, behind = (0, 0) if pad == "valid" else np.broadcast_to(pad, 2)
            kept_slices.append(slice(int(before), size - int(behind) + e))
    result = whole[(slice(None), slice(None), *kept_slices)]
    if bias is not None:
        result = result + np.reshape(bias, (-1, *(1,) * count))
    return np.moveaxis(result, 1, -1) if last else result  # fmt: skip


_LINES = values(2, 3, 4)
_IMAGES = values(2, 4, 3, 4)
_FILTERS = values(4, 2, 3, 2, seed=3)
_SQUARES = values(4, 2, 3, 3, seed=5)
_NHWC = np.ascontiguousarray(np.moveaxis(_IMAGES, 1, -1))
_HWIO = np.ascontiguousarray(np.moveaxis(_SQUARES, (0, 1), (-1, -2)))

_record = partial(Composite, kind=Kind.CONVOLUTION, numerics="reassoc")
_tests = partial(Tests, reference=reference)

CONV_TRANSPOSE = _record(
    name="conv_transpose",
    function=conv_transpose,
    doc="Transposed convolutions over one to three spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample((_LINES, values(3, 2, 2)), {"stride": 3, "output_padding": 2}),
            Sample((_LINES, values(3, 2, 5)), {"padding": ((3, 1),)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_LINES, values(2, 2, 3)), ShapeError, "conv_transpose: 3 channels for weights of 2"
            ),
            BadSample(
                (_LINES, values(3, 2, 3)),
                ShapeError,
                "conv_transpose: padding=4 takes more than the 6 elements that there are along "
                "spatial axis 0",
                {"padding": 4},
            ),
        ],
    ),
)
CONV1D_TRANSPOSE = _record(
    name="conv1d_transpose",
    function=conv1d_transpose,
    doc="Transposed convolutions over one spatial axis.",
    tests=_tests(
        samples=lambda: [Sample((_LINES, values(3, 2, 3)), {"stride": 2, "padding": "same"})],
        bad_samples=lambda: [
            BadSample(
                (_LINES, values(3, 2, 3)),
                ShapeError,
                "conv1d_transpose: output_padding=2 for stride 2 and dilation 1 along spatial "
                "axis 0",
                {"stride": 2, "output_padding": 2},
            )
        ],
    ),
)
CONV2D_TRANSPOSE = _record(
    name="conv2d_transpose",
    function=conv2d_transpose,
    doc="Transposed convolutions over two spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample(
                (_IMAGES, _FILTERS),
                {
                    "stride": (2, 1),
                    "padding": (1, 0),
                    "dilation": (1, 2),
                    "groups": 2,
                    "output_padding": (1, 0),
                },
            ),
            Sample((_IMAGES, _SQUARES), {"padding": 1, "algorithm": "winograd-2x2"}),
            Sample((_NHWC, _HWIO), {"layout": "NHWC", "algorithm": "im2col", "stride": 2}),
            Sample((_NHWC, _HWIO), {"layout": "NHWC", "algorithm": "fft", "padding": 1}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_IMAGES, _SQUARES),
                ShapeError,
                "conv2d_transpose: algorithm='winograd-4x4' for a 3x3 window of stride (2, 2) and "
                "dilation (1, 1)",
                {"stride": 2, "algorithm": "winograd-4x4"},
            )
        ],
    ),
)
CONV3D_TRANSPOSE = _record(
    name="conv3d_transpose",
    function=conv3d_transpose,
    doc="Transposed convolutions over three spatial axes.",
    tests=_tests(
        samples=lambda: [
            Sample((values(1, 2, 2, 3, 2), values(2, 3, 2, 1, 2)), {"stride": (2, 1, 1)})
        ],
        bad_samples=lambda: [
            BadSample((_IMAGES, _SQUARES), ShapeError, "conv3d_transpose: an operand of 4 axes")
        ],
    ),
)

_RECORD = {1: CONV1D_TRANSPOSE, 2: CONV2D_TRANSPOSE, 3: CONV3D_TRANSPOSE}

RECORDS = (CONV_TRANSPOSE, CONV1D_TRANSPOSE, CONV2D_TRANSPOSE, CONV3D_TRANSPOSE)
