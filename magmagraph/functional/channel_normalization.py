"""Normalization of channels: in groups, one by one, and by their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ir.types import MOST_TERMS
from ..ops.elementwise.arithmetic import add, multiply
from ..ops.elementwise.math import power, rsqrt
from ..ops.shape.arrange import reshape
from ..ops.shape.axes import CUBE, MATRIX
from ..ops.shape.padding import pad
from ..ops.shape.slicing import cut
from .normalization import normalized, statistics
from .operands import along, like, wide

__all__ = [
    "group_norm",
    "instance_norm",
    "local_response_norm",
]


@grouped
@documented
def group_norm(
    x: Any,
    groups: int,
    scale: Any = None,
    offset: Any = None,
    *,
    eps: float = 1e-5,
    axis: int = 1,
) -> Node:
    """Bring groups of channels of each sample to mean 0 and variance 1, then scale and shift.

    Y. Wu, K. He, "Group normalization", ECCV 2018.

    x: Node or array of shape ``(N, C, ...)``; ints become floats.
    groups: The number of groups, which divides the number of channels.
    scale, offset: Of shape ``(C,)`` (or scalars); left out unless said.
    eps: Added to the variance.
    axis: The axis of the channels. The first axis is that of the samples.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `groups` does not divide the number of channels, or a parameter has
        another extent.

    >>> mg.group_norm([[1.0, 3.0, 10.0, 30.0]], 2, eps=0.0).eval()
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    node = wide(x)
    call = Call(GROUP_NORM, (node,))
    axis = call.axis(axis, node.ndim)
    if axis == 0:
        raise call.shape_error(
            "axis=0 is that of the samples", need="channels on another axis than the first"
        )
    channels = node.shape[axis]
    if not isinstance(groups, int) or groups < 1:
        raise call.shape_error(f"groups={groups!r}", need="a positive int")
    if not isinstance(channels, int) or channels % groups:
        raise call.shape_error(
            f"{groups} groups of {channels} channels",
            need="a number of channels, known here, that the number of groups divides",
        )
    parts = (*node.shape[:axis], groups, channels // groups, *node.shape[axis + 1 :])
    split = reshape(node, parts)
    axes = [i for i in range(1, split.ndim) if i != axis]
    _, var, centered = statistics(split, axes)
    result = multiply(centered, rsqrt(add(var, eps)))
    # Parameters are split as the channels are, so that no reshape stands within the kernel.
    line = (*[1] * axis, groups, channels // groups, *[1] * (node.ndim - axis - 1))
    if scale is not None:
        factor = along(call, "scale", scale, node, [axis])
        result = multiply(result, reshape(factor, line) if factor.ndim else factor)
    if offset is not None:
        shift = along(call, "offset", offset, node, [axis])
        result = add(result, reshape(shift, line) if shift.ndim else shift)
    return like(reshape(result, node.shape), x)


@grouped
@documented
def instance_norm(
    x: Any, scale: Any = None, offset: Any = None, *, eps: float = 1e-5, axis: int = 1
) -> Node:
    """Bring each channel of each sample to mean 0 and variance 1, then scale and shift it.

    D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance normalization: the missing ingredient for fast
    stylization", 2016.

    x: Node or array of shape ``(N, C, ...)`` with at least three axes; ints become floats.
    scale, offset: Of shape ``(C,)`` (or scalars); left out unless said.
    eps: Added to the variance.
    axis: The axis of the channels. The first axis is that of the samples.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If there are no axes beside those of samples and channels, or a parameter has
        another extent than the channels.

    >>> mg.instance_norm([[[1.0, 3.0], [10.0, 30.0]]], eps=0.0).eval()
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """
    node = wide(x)
    call = Call(INSTANCE_NORM, (node,))
    axis = call.axis(axis, node.ndim)
    others = [i for i in range(1, node.ndim) if i != axis]
    if axis == 0 or not others:
        raise call.shape_error(
            f"channels on axis {axis} of {node.ndim}",
            need="axes beside the first, of the samples, and that of the channels",
        )
    _, var, centered = statistics(node, others)
    return like(normalized(call, node, centered, var, scale, offset, [axis], eps), x)


@grouped
@documented
def local_response_norm(
    x: Any,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    axis: int = 1,
) -> Node:
    """Divide each channel by a power of the mean square of those near to it.

    ``x / (k + alpha * mean(x**2 over size channels))**beta``, with zeros beyond the first and the
    last channel; A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet classification with deep
    convolutional neural networks", NIPS 2012, section 3.3 (with a mean in the place of the sum).

    x: Node or array of shape ``(N, C, ...)``; ints become floats.
    size: How many channels: ``size // 2`` before and the rest from it on.
    alpha, beta, k: As in the formula.
    axis: The axis of the channels.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `size` is not a positive int, or the axis is out of range.

    >>> mg.local_response_norm([[1.0, 2.0]], 2, alpha=1.0, beta=1.0, k=0.0).eval().round(4)
    array([[2. , 0.8]], dtype=float32)
    """
    node = wide(x)
    call = Call(LOCAL_RESPONSE_NORM, (node,))
    axis = call.axis(axis, node.ndim)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise call.shape_error(f"size={size!r}", need="a positive int")
    if size > MOST_TERMS:
        raise call.shape_error(f"size={size}", need=f"at most {MOST_TERMS}")
    squares = multiply(node, node)
    widths = [(0, 0)] * node.ndim
    widths[axis] = (size // 2, (size - 1) // 2)
    padded = pad(squares, widths)
    total = cut(padded, axis, 0, node.shape[axis])
    for start in range(1, size):
        total = add(total, cut(padded, axis, start, node.shape[axis]))
    return like(multiply(node, power(add(multiply(total, alpha / size), k), -beta)), x)


def _group_reference(
    x: np.ndarray,
    groups: int,
    scale: Any = None,
    offset: Any = None,
    eps: float = 1e-5,
    axis: int = 1,
) -> Any:
    rows = np.moveaxis(x, axis, 1)
    result = np.empty_like(rows)
    width = rows.shape[1] // groups
    for sample, out in zip(rows, result, strict=True):
        for at in range(0, rows.shape[1], width):
            part = sample[at : at + width]
            out[at : at + width] = (part - part.mean()) / np.sqrt(part.var() + eps)
    line = (-1, *[1] * (rows.ndim - 2))
    result = result if scale is None else result * np.reshape(scale, line)
    result = result if offset is None else result + np.reshape(offset, line)
    return np.moveaxis(result, 1, axis)


def _response_reference(
    x: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, axis: int = 1
) -> Any:
    rows = np.moveaxis(x, axis, 0)
    result = np.empty_like(rows)
    for i in range(len(rows)):
        low, high = max(0, i - size // 2), min(len(rows), i + (size - 1) // 2 + 1)
        near = np.sum(rows[low:high] ** 2, axis=0) / size
        result[i] = rows[i] / (k + alpha * near) ** beta
    return np.moveaxis(result, 0, axis)


_CHANNELS = np.array([1.2, -0.4, 0.7])

_SIX = np.cos(np.arange(36.0)).reshape(2, 6, 3)

GROUP_NORM = Composite(
    kind=Kind.LAYOUT,
    function=group_norm,
    tests=Tests(
        samples=lambda: [
            Sample((_SIX, 3)),
            Sample((_SIX, 2, np.linspace(0.5, 1.5, 6), np.linspace(-1.0, 1.0, 6)), {"eps": 0.1}),
            Sample((_SIX, 1), {"axis": -1}),
        ],
        bad_samples=lambda: [
            BadSample((_SIX, 4), ShapeError, "group_norm: 4 groups of 6 channels"),
            BadSample(
                (_SIX, 2), ShapeError, "group_norm: axis=0 is that of the samples", {"axis": 0}
            ),
            BadSample((_SIX, 0), ShapeError, "group_norm: groups=0"),
        ],
        reference=_group_reference,
    ),
    numerics="reassoc",
)

INSTANCE_NORM = Composite(
    kind=Kind.REDUCTION,
    function=instance_norm,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,)),
            Sample((CUBE, _CHANNELS, _CHANNELS - 0.5), {"eps": 0.01}),
            Sample((CUBE, np.array([1.0, -0.5, 2.0, 0.3])), {"axis": -1}),
        ],
        bad_samples=lambda: [
            BadSample((MATRIX,), ShapeError, "instance_norm: channels on axis 1 of 2"),
            BadSample(
                (CUBE, np.ones(2)),
                ShapeError,
                "instance_norm: extents of scale and of axis 1 differ: 2 and 3",
            ),
        ],
        reference=lambda x, scale=None, offset=None, eps=1e-5, axis=1: _group_reference(
            x, x.shape[axis], scale, offset, eps, axis
        ),
    ),
    numerics="reassoc",
)

LOCAL_RESPONSE_NORM = Composite(
    kind=Kind.LAYOUT,
    function=local_response_norm,
    tests=Tests(
        samples=lambda: [
            Sample((_SIX,), {"size": 3, "alpha": 0.5}),
            Sample((_SIX,), {"size": 4, "alpha": 2.0, "beta": 0.5, "k": 2.0, "axis": -1}),
        ],
        bad_samples=lambda: [
            BadSample((_SIX,), ShapeError, "local_response_norm: size=0", {"size": 0})
        ],
        reference=_response_reference,
    ),
)

RECORDS = (
    GROUP_NORM,
    INSTANCE_NORM,
    LOCAL_RESPONSE_NORM,
)
