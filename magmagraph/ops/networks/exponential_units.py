"""Nonlinear functions of networks that bend smoothly: by exponentials, roots, ratios."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Composite, Kind, Op, Sample, Tests
from ..elementwise.comparison import greater, where
from ..elementwise.family import REAL, floating
from ..elementwise.math import expm1, hypot, tanh
from ..elementwise.signs import absolute
from .activation import EXTREME, activation

_SELU_SCALE = 1.0507009873554805

_SELU_ALPHA = 1.6732632423543772


@grouped
@documented
def elu(x: Any, alpha: Any = 1.0) -> Node:
    """Evaluate x where it is positive, else alpha * (exp(x) - 1).

    x: Node or array; ints become floats.
    alpha: Number, array or node, broadcast against `x`.
    returns: Of the broadcast shape and the float dtype. The gradient at 0 is alpha.

    >>> mg.elu([-1.0, 2.0]).eval().round(4)
    array([-0.6321,  2.    ], dtype=float32)
    """
    node = floating(x)
    positive = greater(node, 0)
    # The branch that is not taken must stay finite, since its derivative is multiplied by 0.
    return where(positive, node, expm1(where(positive, 0, node)) * alpha)


@grouped
@documented
def selu(x: Any) -> Node:
    """Evaluate the scaled exponential linear unit, 1.0507 elu(x, 1.6733).

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    Notes
    -----
    Klambauer et al., "Self-normalizing neural networks", 2017, equation 2.

    >>> mg.selu([-1.0, 2.0]).eval().round(4)
    array([-1.1113,  2.1014], dtype=float32)
    """
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


@grouped
@documented
def celu(x: Any, alpha: Any = 1.0) -> Node:
    """Evaluate x where it is positive, else alpha * (exp(x / alpha) - 1).

    x: Node or array; ints become floats.
    alpha: Number, array or node, broadcast against `x`.
    returns: Of the broadcast shape and the float dtype. The gradient at 0 is 1, whatever alpha is.

    Notes
    -----
    Barron, "Continuously differentiable exponential linear units", 2017, equation 2.

    >>> mg.celu([-1.0, 2.0], 2.0).eval().round(4)
    array([-0.7869,  2.    ], dtype=float32)
    """
    node = floating(x)
    positive = greater(node, 0)
    return where(positive, node, expm1(where(positive, 0, node) / alpha) * alpha)


@grouped
@documented
def softsign(x: Any) -> Node:
    """Evaluate x / (1 + abs(x)).

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.softsign([-1.0, 0.0, 3.0]).eval()
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    node = floating(x)
    return node / (absolute(node) + 1.0)


@grouped
@documented
def squareplus(x: Any, b: float = 4.0) -> Node:
    """Evaluate (x + sqrt(x**2 + b)) / 2, without cancellation for negative x.

    x: Node or array; ints become floats.
    b: How round the corner at 0 is: a positive number.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `b` is not positive.

    Notes
    -----
    Barron, "Squareplus: a softplus-like algebraic rectifier", 2021, equation 1.

    >>> mg.squareplus([-1e6, 0.0, 3.0]).eval().round(7)
    array([1.0000000e-06, 1.0000000e+00, 3.3027756e+00], dtype=float32)
    """
    if not b > 0:
        raise ShapeError(message(f"squareplus: b={b}", need="b > 0"))
    node = floating(x)
    positive = greater(node, 0)
    # Not `absolute`, whose derivative at 0 is 0: either side's own is right here.
    size = where(positive, node, -node)
    total = size * 0.5 + hypot(node, math.sqrt(b)) * 0.5  # which does not overflow
    return where(positive, total, (0.25 * b) / total)


@grouped
@documented
def tanhshrink(x: Any) -> Node:
    """Evaluate x - tanh(x).

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. It is a difference: its error is up to 16
        roundings of x, and so it has no digits where x**2 is below a rounding of 1.

    >>> mg.tanhshrink([0.0, 2.0]).eval().round(4)
    array([0.   , 1.036], dtype=float32)
    """
    node = floating(x)
    return node - tanh(node)


def _elu_reference(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _squareplus_reference(x: Any, b: float = 4.0) -> Any:
    wide = np.asarray(x, np.longdouble)
    return ((wide + np.sqrt(wide * wide + b)) / 2).astype(np.float64)


SQUAREPLUS = Composite(
    kind=Kind.ELEMENTWISE,
    function=squareplus,
    tests=Tests(
        samples=lambda: [
            Sample((REAL,)),
            Sample((np.array([0.0, 0.7]),), {"b": 0.5}),
            Sample((np.array([-1e4, 1e4]),), gradient=(), reason="differences of large numbers"),
        ],
        bad_samples=lambda: [BadSample((REAL,), ShapeError, "squareplus: b=0.0", {"b": 0.0})],
        reference=_squareplus_reference,
    ),
)

RECORDS: tuple[Op | Composite, ...] = (
    SQUAREPLUS,
    activation(
        elu,
        "Evaluate x where it is positive, else alpha * (exp(x) - 1).",
        _elu_reference,
        {"alpha": 0.7},
    ),
    activation(
        selu,
        "Evaluate the scaled exponential linear unit.",
        lambda x: _SELU_SCALE * _elu_reference(x, _SELU_ALPHA),
    ),
    activation(
        celu,
        "Evaluate x where it is positive, else alpha * (exp(x / alpha) - 1).",
        lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
        {"alpha": 0.7},
    ),
    activation(
        softsign, "Evaluate x / (1 + abs(x)).", lambda x: x / (1.0 + np.abs(x)), more=EXTREME
    ),
    activation(tanhshrink, "Evaluate x - tanh(x).", lambda x: x - np.tanh(x), loses="difference"),
)
