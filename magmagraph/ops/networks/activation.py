"""The nonlinear functions of networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...graph import Node
from ...op import BadSample, Call, Composite, Kind, Op, Sample
from ...types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import absolute
from ..elementwise.comparison import greater, greater_equal, less, where
from ..elementwise.family import POSITIVE, REAL, floating, like_float, like_number, unary
from ..elementwise.math import exp, expm1, hypot, log, log1p, tanh
from ..rules import onnx_forms
from ..shape.arrange import reshape
from ..shape.pieces import split
from ..special.primitives import erfc

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
    onnx="Sigmoid",
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
    onnx="Softplus",
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
    # Of its own value, which later operations need anyway: the operand need not be kept.
    gradient=lambda node, cotangent: (where(greater(node, 0), cotangent, 0),),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((np.array([-3, 0, 4], dtype=np.int32),))],
    numerics="exact",
    epilogue="relu",
    onnx="Relu",
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
    if approximate:
        return GELU_TANH(node)
    return node * 0.5 * erfc(node * -math.sqrt(0.5))


_CUBIC, _STEEP = 0.044715, math.sqrt(2.0 / math.pi)


def _gelu_tanh(xp: Any, x: Any) -> Any:
    bent = xp.tanh((x + x * x * x * x.dtype.type(_CUBIC)) * x.dtype.type(_STEEP))
    return x * x.dtype.type(0.5) * (x.dtype.type(1) + bent)


def _gelu_tanh_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x = node.inputs[0]
    square = x * x
    bent = tanh((x + square * x * _CUBIC) * _STEEP)
    slope = (1.0 - bent * bent) * (1.0 + square * (3.0 * _CUBIC)) * _STEEP
    return (cotangent * (0.5 * (1.0 + bent) + x * 0.5 * slope),)


GELU_TANH = Op(
    name="gelu_tanh",
    kind=Kind.ELEMENTWISE,
    doc="The Gaussian error linear unit in the form with tanh.",
    rule=like_float,
    evaluate=_gelu_tanh,
    scalar=f"a * (T)0.5 * (1 + $tanh((a + a * a * a * (T){_CUBIC}) * (T){_STEEP!r}))",
    gradient=_gelu_tanh_gradient,
    epilogue="gelu",
    onnx=onnx_forms.with_attributes("Gelu", approximate="tanh"),
)


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


def celu(x: Any, alpha: Any = 1.0) -> Node:
    """Evaluate x where it is positive, else alpha * (exp(x / alpha) - 1).

    Parameters
    ----------
    x
        Node or array; ints become floats.
    alpha
        Number, array or node, broadcast against `x`.

    Returns
    -------
    Node
        Of the broadcast shape and the float dtype. The gradient at 0 is 1, whatever alpha is.

    Notes
    -----
    Barron, "Continuously differentiable exponential linear units", 2017, equation 2.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.celu([-1.0, 2.0], 2.0).eval().round(4)
    array([-0.7869,  2.    ], dtype=float32)
    """
    node = floating(x)
    positive = greater(node, 0)
    return where(positive, node, expm1(where(positive, 0, node) / alpha) * alpha)


def glu(x: Any, axis: int = -1) -> Node:
    """Multiply the first half of an axis by the sigmoid of the second.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    axis
        The axis, of even extent.

    Returns
    -------
    Node
        Of the float dtype; the axis has half its extent.

    Raises
    ------
    ShapeError
        If the extent is odd, or the axis out of range.

    Notes
    -----
    Dauphin et al., "Language modeling with gated convolutional networks", 2017, equation 1.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.glu([[1.0, 2.0, 0.0, 0.0]]).eval()
    array([[0.5, 1. ]], dtype=float32)
    """
    node = floating(x)
    axis = Call(GLU, (node,)).axis(axis, node.ndim)
    value, gate = split(node, 2, axis)
    return value * sigmoid(gate)


def log_sigmoid(x: Any) -> Node:
    """Evaluate the logarithm of the sigmoid, exact also where that underflows.

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
    >>> mg.log_sigmoid([-1000.0, 0.0]).eval().round(4)
    array([-1.000e+03, -6.931e-01], dtype=float32)
    """
    return -softplus(-floating(x))


def log1mexp(x: Any) -> Node:
    """Evaluate log(1 - exp(-x)) for positive x, exact at both ends.

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`; -inf at 0, NaN below.

    Notes
    -----
    Mächler, "Accurately computing log(1 - exp(-|a|))", 2012: the two forms change places at
    log(2).

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.log1mexp([1e-6, 1.0]).eval().round(4)
    array([-13.8155,  -0.4587], dtype=float32)
    """
    node = floating(x)
    small = less(node, math.log(2.0))
    # Each form is given a harmless value where the other one is taken.
    near = log(-expm1(-where(small, node, 0.5)))
    return where(small, near, log1p(-exp(-where(small, 1.0, node))))


def softsign(x: Any) -> Node:
    """Evaluate x / (1 + abs(x)).

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
    >>> mg.softsign([-1.0, 0.0, 3.0]).eval()
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    node = floating(x)
    return node / (absolute(node) + 1.0)


def squareplus(x: Any, b: float = 4.0) -> Node:
    """Evaluate (x + sqrt(x**2 + b)) / 2, without cancellation for negative x.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    b
        How round the corner at 0 is: a positive number.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Raises
    ------
    ShapeError
        If `b` is not positive.

    Notes
    -----
    Barron, "Squareplus: a softplus-like algebraic rectifier", 2021, equation 1.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.squareplus([-1e6, 0.0, 3.0]).eval().round(7)
    array([1.0000000e-06, 1.0000000e+00, 3.3027756e+00], dtype=float32)
    """
    if not b > 0:
        raise ShapeError(message(f"squareplus: b={b}", need="b > 0"))
    node = floating(x)
    positive = greater(node, 0)
    # Not `absolute`, whose derivative at 0 is 0: either side's own is right here.
    size = where(positive, node, -node)
    total = size + hypot(node, math.sqrt(b))
    return where(positive, total * 0.5, (0.5 * b) / total)


def tanhshrink(x: Any) -> Node:
    """Evaluate x - tanh(x).

    Parameters
    ----------
    x
        Node or array; ints become floats.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`. Near 0 the difference has the rounding error of x.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.tanhshrink([0.0, 2.0]).eval().round(4)
    array([0.   , 1.036], dtype=float32)
    """
    node = floating(x)
    return node - tanh(node)


def prelu(x: Any, slope: Any, axis: int = 1) -> Node:
    """Multiply negative values by a slope of their channel.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    slope
        Of shape ``(C,)``: the slopes of the channels, or a scalar for all.
    axis
        The axis of the channels.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`. The gradient at 0 is 1.

    Raises
    ------
    ShapeError
        If `slope` has more than one axis or another extent than the channels.

    Notes
    -----
    He et al., "Delving deep into rectifiers", 2015, equation 1.

    Examples
    --------
    >>> import magmagraph as mg
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


def _glu_reference(x: Any, axis: int = -1) -> Any:
    value, gate = np.split(x, 2, axis)
    return value / (1.0 + np.exp(-gate))


def _squareplus_reference(x: Any, b: float = 4.0) -> Any:
    wide = np.asarray(x, np.longdouble)
    return ((wide + np.sqrt(wide * wide + b)) / 2).astype(np.float64)


def activation(
    function: Callable[..., Node],
    doc: str,
    reference: Callable[..., Any],
    *options: dict[str, Any],
    more: np.ndarray | None = None,
    numerics: str = "stable",
) -> Composite:
    """Return the record of a function of one operand and options, with `more` values to try."""
    return Composite(
        name=function.__name__,
        kind=Kind.ELEMENTWISE,
        function=function,
        doc=doc,
        samples=lambda: [
            Sample((REAL,)),
            *(Sample((REAL,), option) for option in options),
            *([] if more is None else [Sample((more,))]),
        ],
        reference=reference,
        numerics=numerics,
    )


_GATED = np.array([[0.3, -1.2, 0.8, 1.1], [2.0, 0.1, -0.5, -0.9]])

GLU = Composite(
    name="glu",
    kind=Kind.LAYOUT,
    function=glu,
    doc="Multiply the first half of an axis by the sigmoid of the second.",
    samples=lambda: [Sample((_GATED,)), Sample((_GATED,), {"axis": 0})],
    bad_samples=lambda: [
        BadSample((_GATED,), ShapeError, "glu: axis=2 is out of range for 2 axes", {"axis": 2})
    ],
    reference=_glu_reference,
)
PRELU = Composite(
    name="prelu",
    kind=Kind.ELEMENTWISE,
    function=prelu,
    doc="Multiply negative values by a slope of their channel.",
    samples=lambda: [
        Sample((REAL, np.array([0.1, 0.2, -0.3]))),
        Sample((REAL, np.array([0.1, 0.2])), {"axis": 0}),
        Sample((REAL, np.array(0.25))),
    ],
    bad_samples=lambda: [
        BadSample(
            (REAL, np.ones(2)), ShapeError, "prelu: extents of slope and of axis 1 differ: 2 and 3"
        ),
        BadSample((REAL, np.ones((1, 3))), ShapeError, "prelu: slope has shape (1, 3)"),
    ],
    reference=lambda x, slope, axis=1: np.where(
        x >= 0, x, x * (slope if np.ndim(slope) == 0 else slope.reshape(-1, *[1] * (1 - axis)))
    ),
)
SQUAREPLUS = Composite(
    name="squareplus",
    kind=Kind.ELEMENTWISE,
    function=squareplus,
    doc="Evaluate (x + sqrt(x**2 + b)) / 2.",
    samples=lambda: [
        Sample((REAL,)),
        Sample((np.array([0.0, 0.7]),), {"b": 0.5}),
        Sample((np.array([-1e4, 1e4]),), gradient=(), reason="differences of large numbers"),
    ],
    bad_samples=lambda: [BadSample((REAL,), ShapeError, "squareplus: b=0.0", {"b": 0.0})],
    reference=_squareplus_reference,
)

RECORDS: tuple[Op | Composite, ...] = (
    SIGMOID,
    GELU_TANH,
    GLU,
    PRELU,
    SQUAREPLUS,
    SOFTPLUS,
    RELU,
    activation(
        leaky_relu,
        "Multiply negative values by a small slope.",
        lambda x, negative_slope=0.01: np.where(x >= 0, x, negative_slope * x),
        {"negative_slope": 0.2},
    ),
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
        gelu,
        "Multiply by the probability that a standard normal variable is smaller.",
        _gelu_reference,
        {"approximate": True},
    ),
    activation(
        celu,
        "Evaluate x where it is positive, else alpha * (exp(x / alpha) - 1).",
        lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
        {"alpha": 0.7},
    ),
    activation(
        log_sigmoid,
        "Evaluate the logarithm of the sigmoid.",
        lambda x: -np.logaddexp(0.0, -x),
        more=np.array([-500.0, 20.0]),
    ),
    Composite(
        name="log1mexp",
        kind=Kind.ELEMENTWISE,
        function=log1mexp,
        doc="Evaluate log(1 - exp(-x)) for positive x.",
        samples=lambda: [
            Sample((POSITIVE,)),
            Sample((np.array([0.0, 30.0, -1.0]),), gradient=(), reason="a pole"),
        ],
        reference=lambda x: np.log(-np.expm1(-x)),
    ),
    activation(
        softsign, "Evaluate x / (1 + abs(x)).", lambda x: x / (1.0 + np.abs(x)), more=_EXTREME
    ),
    activation(tanhshrink, "Evaluate x - tanh(x).", lambda x: x - np.tanh(x)),
    activation(silu, "Multiply each element by its sigmoid.", lambda x: x / (1.0 + np.exp(-x))),
    activation(
        mish,
        "Multiply each element by the hyperbolic tangent of its softplus.",
        lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ),
    activation(
        hardtanh,
        "Limit values to an interval; at its ends the gradient is still 1.",
        lambda x, low=-1.0, high=1.0: np.clip(x, low, high),
        {"low": -0.5, "high": 2.0},
        numerics="exact",
    ),
)
