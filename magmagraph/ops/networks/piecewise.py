"""The nonlinear functions of networks that are made of straight and parabolic pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Composite, Kind, Sample, Tests
from ..elementwise.arithmetic import add, multiply, square, subtract
from ..elementwise.comparison import (
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    where,
)
from ..elementwise.family import REAL, floating
from ..elementwise.signs import absolute
from .activation import activation, relu

__all__ = [
    "hard_sigmoid",
    "hard_silu",
    "hardshrink",
    "relu6",
    "softshrink",
    "sparse_plus",
    "sparse_sigmoid",
    "threshold",
]

_FAR = np.array([-7.0, -3.5, -2.0, 0.5, 2.5, 4.5, 7.5])


@grouped
@documented
def relu6(x: Any) -> Node:
    """Limit values to [0, 6].

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. At 0 and 6 the gradient is 0, as JAX has it.

    Notes
    -----
    Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010.

    >>> mg.relu6([-2.0, 3.0, 8.0]).eval()
    array([0., 3., 6.], dtype=float32)
    """
    node = relu(floating(x))
    return where(greater_equal(node, 6.0), 6.0, node)


@grouped
@documented
def hard_sigmoid(x: Any) -> Node:
    """Evaluate relu6(x + 3) / 6: a sigmoid of straight pieces.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. At -3 and 3 the gradient is 0, as JAX has it.

    >>> mg.hard_sigmoid([-4.0, 0.0, 1.5]).eval()
    array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return multiply(relu6(add(floating(x), 3.0)), 1.0 / 6.0)


@grouped
@documented
def hard_silu(x: Any) -> Node:
    """Multiply each element by its hard_sigmoid; also named `hard_swish`.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. The gradient is 0 at -3 and 1 at 3, as JAX has it.

    Notes
    -----
    Howard et al., "Searching for MobileNetV3", 2019, section 5.2.

    >>> mg.hard_silu([-4.0, 1.5, 4.0]).eval()
    array([-0.   ,  1.125,  4.   ], dtype=float32)
    """
    node = floating(x)
    return multiply(node, hard_sigmoid(node))


@grouped
@documented
def sparse_plus(x: Any) -> Node:
    """Evaluate 0 up to -1, x from 1 on, and (x + 1)**2 / 4 between.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.sparse_plus([-2.0, 0.0, 3.0]).eval()
    array([0.  , 0.25, 3.  ], dtype=float32)
    """
    node = floating(x)
    between = minimum(maximum(node, -1.0), 1.0)  # no infinity in the branch not selected
    bowl = multiply(square(add(between, 1.0)), 0.25)
    return where(less_equal(node, -1.0), 0.0, where(greater_equal(node, 1.0), node, bowl))


@grouped
@documented
def sparse_sigmoid(x: Any) -> Node:
    """Limit (x + 1) / 2 to [0, 1]: the derivative of sparse_plus.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. At -1 and 1 the gradient is 1/4.

    >>> mg.sparse_sigmoid([-2.0, 0.5, 3.0]).eval()
    array([0.  , 0.75, 1.  ], dtype=float32)
    """
    return minimum(maximum(multiply(add(floating(x), 1.0), 0.5), 0.0), 1.0)


@documented
def threshold(x: Any, threshold: Any, value: Any) -> Node:
    """Keep values above a threshold and replace all others.

    x: Node or array; ints become floats.
    threshold, value: Numbers, arrays or nodes, broadcast against `x`.
    returns: Of the broadcast shape and the float dtype of `x`; `value` stands where `x` is at most
        the threshold.

    >>> mg.threshold([0.5, 1.0, 2.0], 1.0, -1.0).eval()
    array([-1., -1.,  2.], dtype=float32)
    """
    node = floating(x)
    return where(greater(node, threshold), node, value)


def _check_width(name: str, width: float) -> None:
    if not width >= 0:
        raise ShapeError(message(f"{name}: width={width}", need="width >= 0"))


@grouped
@documented
def hardshrink(x: Any, width: float = 0.5) -> Node:
    """Set values in ``[-width, width]`` to 0.

    x: Node or array; ints become floats.
    width: A number, at least 0.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `width` is negative.

    >>> mg.hardshrink([-2.0, 0.25, 1.0]).eval()
    array([-2.,  0.,  1.], dtype=float32)
    """
    _check_width("hardshrink", width)
    node = floating(x)
    # Written so that NaN, which no comparison holds for, stays NaN.
    return where(less_equal(absolute(node), width), 0.0, node)


@grouped
@documented
def softshrink(x: Any, width: float = 0.5) -> Node:
    """Move values towards 0 by a width, and no further than 0.

    x: Node or array; ints become floats.
    width: A number, at least 0.
    returns: Of the shape and float dtype of `x`. The gradient is 0 at both ends of the interval
        that becomes 0.
    raises ShapeError: If `width` is negative.

    >>> mg.softshrink([-2.0, 0.25, 1.0]).eval()
    array([-1.5,  0. ,  0.5], dtype=float32)
    """
    _check_width("softshrink", width)
    node, width = floating(x), float(width)
    above = where(greater(node, width), subtract(node, width), multiply(node, 0.0))
    return where(less(node, -width), add(node, width), above)


def _relu6_reference(x: Any) -> Any:
    return np.clip(x, 0.0, 6.0)


def _shrunk(name: str, function: Any, doc: str, reference: Any) -> Composite:
    return Composite(
        name=name,
        kind=Kind.ELEMENTWISE,
        function=function,
        doc=doc,
        tests=Tests(
            samples=lambda: [
                Sample((REAL,)),
                Sample((REAL,), {"width": 1.0}),
                Sample(
                    (np.array([np.nan, np.inf, -np.inf, 0.5, -0.5]),), gradient=(), reason="kinks"
                ),
            ],
            bad_samples=lambda: [
                BadSample((REAL,), ShapeError, f"{name}: width=-1.0", {"width": -1.0})
            ],
            reference=reference,
        ),
    )


RECORDS = (
    activation(relu6, "Limit values to [0, 6].", _relu6_reference, more=_FAR, numerics="exact"),
    activation(
        hard_sigmoid,
        "Evaluate relu6(x + 3) / 6: a sigmoid of straight pieces.",
        lambda x: _relu6_reference(x + 3.0) / 6.0,
        more=_FAR,
    ),
    activation(
        hard_silu,
        "Multiply each element by its hard_sigmoid.",
        lambda x: x * _relu6_reference(x + 3.0) / 6.0,
        more=_FAR,
    ),
    activation(
        sparse_plus,
        "Evaluate 0 up to -1, x from 1 on, and (x + 1)**2 / 4 between.",
        lambda x: np.select([x <= -1, x >= 1], [np.zeros_like(x), x], (x + 1) ** 2 / 4),
    ),
    activation(
        sparse_sigmoid,
        "Limit (x + 1) / 2 to [0, 1].",
        lambda x: np.clip((x + 1) / 2, 0.0, 1.0),
    ),
    Composite(
        kind=Kind.ELEMENTWISE,
        function=threshold,
        tests=Tests(
            samples=lambda: [
                Sample((REAL,), {"threshold": 0.5, "value": -3.0}),
                Sample(
                    (np.array([0.5, np.nan, np.inf]),),
                    {"threshold": 0.5, "value": 2.0},
                    gradient=(),
                    reason="a jump",
                ),
            ],
            reference=lambda x, threshold, value: np.where(x > threshold, x, value),
        ),
        numerics="exact",
    ),
    _shrunk(
        "hardshrink",
        hardshrink,
        "Set values near 0 to 0.",
        lambda x, width=0.5: np.where(np.abs(x) <= width, 0.0, x),
    ),
    _shrunk(
        "softshrink",
        softshrink,
        "Move values towards 0 by a width.",
        lambda x, width=0.5: np.where(
            np.isnan(x), x, np.sign(x) * np.maximum(np.abs(x) - width, 0.0)
        ),
    ),
)
