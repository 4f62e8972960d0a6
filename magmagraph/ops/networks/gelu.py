"""Nonlinear functions of networks that multiply a value by a smooth gate of itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ConfigError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import Composite, Kind, Op, Scalar
from ..elementwise.comparison import greater_equal, maximum, minimum, where
from ..elementwise.family import floating, like_float
from ..elementwise.math import exp, tanh
from ..elementwise.signs import absolute
from ..rules import onnx_forms
from ..special.primitives import erfc
from .activation import activation, sigmoid, softplus


@grouped
@documented
def gelu(x: Any, approximate: bool | str = False) -> Node:
    """Multiply by the probability that a standard normal variable is smaller.

    x: Node or array; ints become floats.
    approximate: False (PyTorch's "none"): ``x/2 * erfc(-x/sqrt(2))``. True ("tanh"): the form with
        tanh.
    returns: Of the shape and float dtype of `x`. The gradient at infinities is NaN, 0 times
        infinity, but with `approximate`.
    raises ConfigError: If `approximate` is another word.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian error linear units", 2016, section 2.

    >>> mg.gelu([-1.0, 2.0]).eval().round(4)
    array([-0.1587,  1.9545], dtype=float32)
    >>> mg.gelu([-1.0, 2.0], approximate=True).eval().round(4)
    array([-0.1588,  1.9546], dtype=float32)
    """
    node = floating(x)
    if isinstance(approximate, str) and approximate not in ("none", "tanh"):
        raise ConfigError(
            message(f"gelu: approximate={approximate!r}", need="False or True, 'none' or 'tanh'")
        )
    if approximate and approximate != "none":
        return GELU_TANH(node)
    return node * 0.5 * erfc(node * -math.sqrt(0.5))


# (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which does not cancel where u is negative.
_CUBIC, _STEEP = 0.044715, 2.0 * math.sqrt(2.0 / math.pi)
_FLAT = 30.0  # from here on the slope is 0 or 1 in every dtype


def _gelu_tanh(xp: Any, x: Any) -> Any:
    exponent = (x + x * x * x * x.dtype.type(_CUBIC)) * x.dtype.type(-_STEEP)
    return x / (x.dtype.type(1) + xp.exp(exponent))


def _gelu_tanh_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # Of x s(v), with v = 2 u and s its sigmoid: s(v) + x v' s(v) s(-v). The limits keep x v' finite
    # where the product of the sigmoids is 0.
    x = minimum(maximum(node.inputs[0], -_FLAT), _FLAT)
    square = x * x
    exponent = (x + square * x * _CUBIC) * _STEEP
    power = exp(-absolute(exponent))
    share = 1.0 / (1.0 + power)
    gate = where(greater_equal(exponent, 0), share, share * power)
    steep = x * (1.0 + square * (3.0 * _CUBIC)) * _STEEP
    return (cotangent * (gate + steep * (share * share * power)),)


_gelu_operator = onnx_forms.with_attributes("Gelu", approximate="tanh")
_gelu_written = onnx_forms.rewritten(lambda node: _gelu_by_tanh(node.inputs[0]))


def _gelu_by_tanh(x: Node) -> Node:
    return x * 0.5 * (tanh((x + x * x * x * _CUBIC) * (0.5 * _STEEP)) + 1.0)


def _gelu_tanh_onnx(to: onnx_forms.Target, node: Node, x: str) -> onnx_forms.Names:
    """Write the operator, but for float64: runtimes compute it in float32."""
    form = _gelu_written if node.dtype.itemsize == 8 else _gelu_operator
    return form(to, node, x)


GELU_TANH = Op(
    name="gelu_tanh",
    kind=Kind.ELEMENTWISE,
    doc="The Gaussian error linear unit in the form with tanh.",
    rule=like_float,
    evaluate=_gelu_tanh,
    scalar=Scalar(
        f"a / (1 + $exp((a + a * a * a * (T){_CUBIC}) * (T){-_STEEP!r}))", epilogue="gelu"
    ),
    gradient=_gelu_tanh_gradient,
    onnx=_gelu_tanh_onnx,
)


@grouped
@documented
def silu(x: Any) -> Node:
    """Multiply each element by its sigmoid.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. The gradient at infinities is NaN, 0 times
        infinity.

    >>> mg.silu([-1.0, 2.0]).eval().round(4)
    array([-0.2689,  1.7616], dtype=float32)
    """
    node = floating(x)
    return node * sigmoid(node)


@grouped
@documented
def mish(x: Any) -> Node:
    """Multiply each element by the hyperbolic tangent of its softplus.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`. The gradient at infinities is NaN, 0 times
        infinity.

    Notes
    -----
    Misra, "Mish: a self regularized non-monotonic activation function", 2019.

    >>> mg.mish([-1.0, 2.0]).eval().round(4)
    array([-0.3034,  1.944 ], dtype=float32)
    """
    node = floating(x)
    return node * tanh(softplus(node))


def _gelu_reference(x: Any, approximate: bool = False) -> Any:
    if approximate:
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    from scipy.special import ndtr

    return x * ndtr(x)

RECORDS: tuple[Op | Composite, ...] = (
    GELU_TANH,
    activation(
        gelu,
        "Multiply by the probability that a standard normal variable is smaller.",
        _gelu_reference,
        {"approximate": True},
    ),
    activation(silu, "Multiply each element by its sigmoid.", lambda x: x / (1.0 + np.exp(-x))),
    activation(
        mish,
        "Multiply each element by the hyperbolic tangent of its softplus.",
        lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ),
)
