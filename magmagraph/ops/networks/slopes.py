"""Nonlinear functions of networks that are lines between kinks, or gate one half by the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.comparison import greater, greater_equal, less, where
from ..elementwise.family import REAL, floating
from ..shape.arrange import reshape
from ..shape.pieces import split
from .activation import activation, sigmoid


@grouped
@documented
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Node:
    """Multiply negative values by a small slope.

    x: Node or array; ints become floats.
    negative_slope: Number, array or node, broadcast against `x`.
    returns: Of the broadcast shape and the float dtype. The gradient at 0 is 1.

    >>> mg.leaky_relu([-2.0, 3.0], 0.1).eval()
    array([-0.2,  3. ], dtype=float32)
    """
    node = floating(x)
    return where(greater_equal(node, 0), node, node * negative_slope)


@grouped
@documented
def glu(x: Any, axis: int = -1) -> Node:
    """Multiply the first half of an axis by the sigmoid of the second.

    x: Node or array; ints become floats.
    axis: The axis, of even extent.
    returns: Of the float dtype; the axis has half its extent.
    raises ShapeError: If the extent is odd, or the axis out of range.

    Notes
    -----
    Dauphin et al., "Language modeling with gated convolutional networks", 2017, equation 1.

    >>> mg.glu([[1.0, 2.0, 0.0, 0.0]]).eval()
    array([[0.5, 1. ]], dtype=float32)
    """
    node = floating(x)
    axis = Call(GLU, (node,)).axis(axis, node.ndim)
    value, gate = split(node, 2, axis)
    return value * sigmoid(gate)


@grouped
@documented
def prelu(x: Any, slope: Any, axis: int = 1) -> Node:
    """Multiply negative values by a slope of their channel.

    x: Node or array; ints become floats.
    slope: Of shape ``(C,)``: the slopes of the channels, or a scalar for all.
    axis: The axis of the channels.
    returns: Of the shape and float dtype of `x`. The gradient at 0 is 1.
    raises ShapeError: If `slope` has more than one axis or another extent than the channels.

    Notes
    -----
    He et al., "Delving deep into rectifiers", 2015, equation 1.

    >>> mg.prelu([[-2.0, -2.0]], [0.5, 0.25]).eval()
    array([[-1. , -0.5]], dtype=float32)
    """
    node = floating(x)
    factor = as_node(slope, node.dtype)
    if factor.ndim:
        call = Call(PRELU, (node, factor))
        axis = call.axis(axis, node.ndim)
        if factor.ndim > 1:
            raise call.shape_error(
                f"slope has shape {factor.shape}", need=f"shape ({node.shape[axis]},)"
            )
        call.unify(factor.shape[0], node.shape[axis], f"extents of slope and of axis {axis}")
        line: list[Extent] = [1] * node.ndim
        line[axis] = factor.shape[0]
        factor = reshape(factor, line)
    return leaky_relu(node, cast(factor, node.dtype))


@grouped
@documented
def hardtanh(x: Any, low: float = -1.0, high: float = 1.0) -> Node:
    """Limit values to an interval; at its ends the gradient is still 1.

    x: Node or array; ints become floats.
    low, high: The ends of the interval.
    returns: Of the shape and float dtype of `x`.

    >>> mg.hardtanh([-2.0, 0.5, 3.0]).eval()
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    node = floating(x)
    return where(greater(node, high), high, where(less(node, low), low, node))


def _glu_reference(x: Any, axis: int = -1) -> Any:
    value, gate = np.split(x, 2, axis)
    return value / (1.0 + np.exp(-gate))


_GATED = np.array([[0.3, -1.2, 0.8, 1.1], [2.0, 0.1, -0.5, -0.9]])

GLU = Composite(
    kind=Kind.LAYOUT,
    function=glu,
    tests=Tests(
        samples=lambda: [Sample((_GATED,)), Sample((_GATED,), {"axis": 0})],
        bad_samples=lambda: [
            BadSample((_GATED,), ShapeError, "glu: axis=2 is out of range for 2 axes", {"axis": 2})
        ],
        reference=_glu_reference,
    ),
)

PRELU = Composite(
    kind=Kind.ELEMENTWISE,
    function=prelu,
    tests=Tests(
        samples=lambda: [
            Sample((REAL, np.array([0.1, 0.2, -0.3]))),
            Sample((REAL, np.array([0.1, 0.2])), {"axis": 0}),
            Sample((REAL, np.array(0.25))),
        ],
        bad_samples=lambda: [
            BadSample(
                (REAL, np.ones(2)),
                ShapeError,
                "prelu: extents of slope and of axis 1 differ: 2 and 3",
            ),
            BadSample((REAL, np.ones((1, 3))), ShapeError, "prelu: slope has shape (1, 3)"),
        ],
        reference=lambda x, slope, axis=1: np.where(
            x >= 0, x, x * (slope if np.ndim(slope) == 0 else slope.reshape(-1, *[1] * (1 - axis)))
        ),
    ),
)

RECORDS: tuple[Op | Composite, ...] = (
    GLU,
    PRELU,
    activation(
        leaky_relu,
        "Multiply negative values by a small slope.",
        lambda x, negative_slope=0.01: np.where(x >= 0, x, negative_slope * x),
        {"negative_slope": 0.2},
    ),
    activation(
        hardtanh,
        "Limit values to an interval; at its ends the gradient is still 1.",
        lambda x, low=-1.0, high=1.0: np.clip(x, low, high),
        {"low": -0.5, "high": 2.0},
        numerics="exact",
    ),
)
