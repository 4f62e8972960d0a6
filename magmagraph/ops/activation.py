"""The nonlinear functions of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Node
from ..op import Composite, Kind, Op, Sample
from .comparison import greater, greater_equal, less, where
from .convert import as_node
from .family import REAL, floating, like_number, unary
from .math import expm1, tanh
from .special import erfc

_EXTREME = np.array([-1000.0, -50.0, 50.0, 1000.0])
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772


def _sigmoid(xp: Any, x: Any) -> Any:
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


sigmoid, SIGMOID = unary(
    "sigmoid",
    "Evaluate the logistic function 1 / (1 + exp(-x)).",
    """
    >>> mg.sigmoid([-1000.0, 0.0, 1.0]).eval().round(4)
    array([0.    , 0.5   , 0.7311], dtype=float32)
    """,
    module=__name__,
    evaluate=_sigmoid,
    scalar="(T)1 / ((T)1 + $exp(-a))",  # where exp overflows the quotient is the right 0
    gradient=lambda node, cotangent: (cotangent * (node * (1.0 - node)),),
    samples=lambda: [
        Sample((REAL,)),
        Sample((_EXTREME,), gradient=(), reason="differences of constants"),
    ],
    reference=lambda x: 0.5 * (1.0 + np.tanh(0.5 * x)),
)


def _softplus(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


softplus, SOFTPLUS = unary(
    "softplus",
    "Evaluate log(1 + exp(x)) without overflow.",
    """
    >>> mg.softplus([-1000.0, 0.0, 1000.0]).eval().round(4)
    array([0.000e+00, 6.931e-01, 1.000e+03], dtype=float32)
    """,
    module=__name__,
    evaluate=_softplus,
    scalar="(a > 0 ? a : (T)0) + $log1p($exp(-$fabs(a)))",
    gradient=lambda node, cotangent: (cotangent * sigmoid(node.inputs[0]),),
    samples=lambda: [
        Sample((REAL,)),
        Sample((_EXTREME,), gradient=(), reason="differences of large numbers"),
    ],
    reference=lambda x: np.logaddexp(x, 0.0),
)

relu, RELU = unary(
    "relu",
    "Replace negative values by 0.",
    """
    >>> mg.relu([-2.0, 0.0, 3.0]).eval()
    array([0., 0., 3.], dtype=float32)
    """,
    module=__name__,
    notes="The gradient at 0 is 0. NaN stays NaN.",
    evaluate=lambda xp, x: xp.maximum(x, x.dtype.type(0)),
    scalar="a <= 0 ? (T)0 : a",
    gradient=lambda node, cotangent: (where(greater(node.inputs[0], 0), cotangent, 0),),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((np.array([-3, 0, 4], dtype=np.int32),))],
    numerics="exact",
)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Node:
    """Multiply negative values by a small slope.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    negative_slope
        Number, array or node, broadcast against `x`.

    Returns
    -------
    Node
        Of the broadcast shape and the float dtype. The gradient at 0 is 1.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.leaky_relu([-2.0, 3.0], 0.1).eval()
    array([-0.2,  3. ], dtype=float32)
    """
    node = floating(x)
    return where(greater_equal(node, 0), node, node * negative_slope)


def elu(x: Any, alpha: Any = 1.0) -> Node:
    """Evaluate x where it is positive, else alpha * (exp(x) - 1).

    Parameters
    ----------
    x
        Node or array; ints become floats.
    alpha
        Number, array or node, broadcast against `x`.

    Returns
    -------
    Node
        Of the broadcast shape and the float dtype. The gradient at 0 is alpha.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.elu([-1.0, 2.0]).eval().round(4)
    array([-0.6321,  2.    ], dtype=float32)
    """
    node = floating(x)
    positive = greater(node, 0)
    # The branch that is not taken must stay finite, since its derivative is multiplied by 0.
    return where(positive, node, expm1(where(positive, 0, node)) * alpha)


def selu(x: Any) -> Node:
    """Evaluate the scaled exponential linear unit, 1.0507 elu(x, 1.6733).

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Notes
    -----
    Klambauer et al., "Self-normalizing neural networks", 2017, equation 2.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.selu([-1.0, 2.0]).eval().round(4)
    array([-1.1113,  2.1014], dtype=float32)
    """
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


def gelu(x: Any, approximate: bool = False) -> Node:
    """Multiply by the probability that a standard normal variable is smaller.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    approximate
        False: ``x/2 * erfc(-x/sqrt(2))``. True: the form with tanh.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian error linear units", 2016, section 2.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.gelu([-1.0, 2.0]).eval().round(4)
    array([-0.1587,  1.9545], dtype=float32)
    >>> mg.gelu([-1.0, 2.0], approximate=True).eval().round(4)
    array([-0.1588,  1.9546], dtype=float32)
    """
    node = floating(x)
    half = node * 0.5
    if not approximate:
        return half * erfc(node * -math.sqrt(0.5))
    cubic = node + node * node * node * 0.044715
    return half * (1.0 + tanh(cubic * math.sqrt(2.0 / math.pi)))


def silu(x: Any) -> Node:
    """Multiply each element by its sigmoid.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.silu([-1.0, 2.0]).eval().round(4)
    array([-0.2689,  1.7616], dtype=float32)
    """
    node = floating(x)
    return node * sigmoid(node)


def mish(x: Any) -> Node:
    """Multiply each element by the hyperbolic tangent of its softplus.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Notes
    -----
    Misra, "Mish: a self regularized non-monotonic activation function", 2019.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.mish([-1.0, 2.0]).eval().round(4)
    array([-0.3034,  1.944 ], dtype=float32)
    """
    node = floating(x)
    return node * tanh(softplus(node))


def hardtanh(x: Any, low: float = -1.0, high: float = 1.0) -> Node:
    """Limit values to an interval; at its ends the gradient is still 1.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    low, high
        The ends of the interval.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.hardtanh([-2.0, 0.5, 3.0]).eval()
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    node = floating(x)
    return where(greater(node, high), high, where(less(node, low), low, node))


def _gelu_reference(x: Any, approximate: bool = False) -> Any:
    if approximate:
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    from scipy.special import ndtr

    return x * ndtr(x)


def _elu_reference(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _activation(
    function: Callable[..., Node],
    doc: str,
    reference: Callable[..., Any],
    *options: dict[str, Any],
    numerics: str = "stable",
) -> Composite:
    return Composite(
        name=function.__name__,
        kind=Kind.ELEMENTWISE,
        function=function,
        doc=doc,
        samples=lambda: [Sample((REAL,)), *(Sample((REAL,), option) for option in options)],
        reference=reference,
        numerics=numerics,
    )


RECORDS: tuple[Op | Composite, ...] = (
    SIGMOID,
    SOFTPLUS,
    RELU,
    _activation(
        leaky_relu,
        "Multiply negative values by a small slope.",
        lambda x, negative_slope=0.01: np.where(x >= 0, x, negative_slope * x),
        {"negative_slope": 0.2},
    ),
    _activation(
        elu,
        "Evaluate x where it is positive, else alpha * (exp(x) - 1).",
        _elu_reference,
        {"alpha": 0.7},
    ),
    _activation(
        selu,
        "Evaluate the scaled exponential linear unit.",
        lambda x: _SELU_SCALE * _elu_reference(x, _SELU_ALPHA),
    ),
    _activation(
        gelu,
        "Multiply by the probability that a standard normal variable is smaller.",
        _gelu_reference,
        {"approximate": True},
    ),
    _activation(silu, "Multiply each element by its sigmoid.", lambda x: x / (1.0 + np.exp(-x))),
    _activation(
        mish,
        "Multiply each element by the hyperbolic tangent of its softplus.",
        lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ),
    _activation(
        hardtanh,
        "Limit values to an interval; at its ends the gradient is still 1.",
        lambda x, low=-1.0, high=1.0: np.clip(x, low, high),
        {"low": -0.5, "high": 2.0},
        numerics="exact",
    ),
)
