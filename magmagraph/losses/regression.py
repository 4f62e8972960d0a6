"""Losses of predictions that are numbers: squared, absolute and robust errors, likelihoods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import Sample
from ..ops.convert import as_node
from ..ops.elementwise.arithmetic import add, divide, multiply, square, subtract
from ..ops.elementwise.comparison import less, less_equal, maximum, where
from ..ops.elementwise.family import floating_pair
from ..ops.elementwise.math import exp, log, log1p, sinh
from ..ops.elementwise.signs import absolute
from ..ops.networks.activation import softplus
from ..ops.special.primitives import lgamma
from .common import check_last_axis, loss_record, reduced, settled, weighted, wide_node

__all__ = ["gaussian_nll", "huber", "log_cosh", "mae", "mse", "poisson_nll", "smooth_l1"]


def _residual(name: str, prediction: Any, target: Any) -> tuple[Node, np.dtype]:
    left, right = floating_pair(prediction, target)
    check_last_axis(name, left, right)
    return subtract(wide_node(left), wide_node(right)), left.dtype


def _check_positive(name: str, what: str, value: Any, zero: bool = False) -> None:
    if isinstance(value, Node):
        return
    if not (value > 0 or (zero and value == 0)):
        need = f"{what} >= 0" if zero else f"{what} > 0"
        raise ShapeError(message(f"{name}: {what}={value}", need=need))


@grouped
@documented
def mse(prediction: Any, target: Any, *, weights: Any = None, reduction: str = "mean") -> Node:
    """Compute the mean squared error.

    prediction, target: Nodes or arrays, broadcast against each other.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.mse([1.0, 2.0], [1.0, 4.0]).eval()
    array(2., dtype=float32)
    """
    residual, dtype = _residual("mse", prediction, target)
    return reduced("mse", weighted(square(residual), weights), reduction, dtype)


@grouped
@documented
def mae(prediction: Any, target: Any, *, weights: Any = None, reduction: str = "mean") -> Node:
    """Compute the mean absolute error; also named `l1_loss`.

    prediction, target: Nodes or arrays, broadcast against each other.
    returns: A scalar, or of the broadcast shape with "none". Where both are equal the gradient is
        that of `absolute` at 0: 1 by the prediction, -1 by the target.
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.mae([1.0, 2.0], [1.0, 4.0]).eval()
    array(1., dtype=float32)
    """
    residual, dtype = _residual("mae", prediction, target)
    return reduced("mae", weighted(absolute(residual), weights), reduction, dtype)


@grouped
@documented
def huber(
    prediction: Any,
    target: Any,
    *,
    delta: float | Node = 1.0,
    weights: Any = None,
    reduction: str = "mean",
) -> Node:
    """Compute a squared error that goes on as a straight line beyond `delta`.

    With ``r = prediction - target``: ``r**2 / 2`` where ``abs(r) <= delta``, else
    ``delta * (abs(r) - delta / 2)``; P. Huber, "Robust estimation of a location parameter",
    Annals of Mathematical Statistics 35, 1964.

    prediction, target: Nodes or arrays, broadcast against each other.
    delta: Where the line begins: a positive number, or a node.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast, or `delta` is a number that is not positive.

    >>> mg.huber([0.5, 4.0], [0.0, 0.0], reduction="none").eval()
    array([0.125, 3.5  ], dtype=float32)
    """
    _check_positive("huber", "delta", delta)
    residual, dtype = _residual("huber", prediction, target)
    delta = as_node(delta, residual.dtype)
    size = absolute(residual)
    line = multiply(delta, subtract(size, multiply(delta, 0.5)))
    loss = where(less_equal(size, delta), multiply(square(residual), 0.5), line)
    return reduced("huber", weighted(loss, weights), reduction, dtype)


@grouped
@documented
def smooth_l1(
    prediction: Any,
    target: Any,
    *,
    beta: float = 1.0,
    weights: Any = None,
    reduction: str = "mean",
) -> Node:
    """Compute an absolute error whose tip is rounded off: `huber` divided by its `delta`.

    With ``r = prediction - target``: ``r**2 / (2 beta)`` where ``abs(r) < beta``, else
    ``abs(r) - beta / 2``; R. Girshick, "Fast R-CNN", ICCV 2015, equation 3.

    prediction, target: Nodes or arrays, broadcast against each other.
    beta: Where the line begins: a number; 0 gives `mae`.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast, or `beta` is negative.

    >>> mg.smooth_l1([0.5, 4.0], [0.0, 0.0], beta=2.0, reduction="none").eval()
    array([0.0625, 3.    ], dtype=float32)
    """
    _check_positive("smooth_l1", "beta", beta, zero=True)
    residual, dtype = _residual("smooth_l1", prediction, target)
    loss = size = absolute(residual)
    if beta:
        bowl = multiply(square(residual), 0.5 / beta)
        loss = where(less(size, beta), bowl, subtract(size, 0.5 * beta))
    return reduced("smooth_l1", weighted(loss, weights), reduction, dtype)


@grouped
@documented
def log_cosh(prediction: Any, target: Any, *, weights: Any = None, reduction: str = "mean") -> Node:
    """Compute the logarithm of the hyperbolic cosine of the error.

    About ``r**2 / 2`` for small errors and ``abs(r) - log(2)`` for large ones; smooth everywhere.
    It neither overflows nor cancels: ``log1p(2 sinh(r / 2)**2)`` near 0, elsewhere
    ``softplus(2 r) - r - log(2)``.

    prediction, target: Nodes or arrays, broadcast against each other.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.log_cosh([0.01, 1000.0], [0.0, 0.0], reduction="none").eval().round(5)
    array([5.000000e-05, 9.993068e+02], dtype=float32)
    """
    residual, dtype = _residual("log_cosh", prediction, target)
    small = less(absolute(residual), 1.0)
    # The branch that is not taken must stay finite: its derivative is multiplied by 0.
    near = log1p(multiply(square(sinh(multiply(where(small, residual, 0.0), 0.5))), 2.0))
    far = subtract(subtract(softplus(multiply(residual, 2.0)), residual), math.log(2.0))
    return reduced("log_cosh", weighted(where(small, near, far), weights), reduction, dtype)


@grouped
@documented
def poisson_nll(
    prediction: Any,
    target: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    weights: Any = None,
    reduction: str = "mean",
) -> Node:
    """Compute the negative log-likelihood of counts under Poisson distributions.

    From logarithms of rates z: ``exp(z) - t z``. From rates p: ``p - t log(p + epsilon)``.

    prediction: Node or array: the logarithms of the rates, or the rates.
    target: The counts; broadcast against the prediction.
    log_input: Whether `prediction` holds logarithms.
    full: Add the term ``log(t!)``, which does not depend on the prediction, by `lgamma`, so that
        the loss is minus the logarithm of a probability. PyTorch and Optax add Stirling's
        approximation ``t log(t) - t + log(2 pi t) / 2`` for counts above 1: it is less by up to ``1
        / (12 t)``.
    epsilon: Added to rates, so that log(0) is out of reach.
    returns: A scalar, or of the broadcast shape with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> round(float(mg.poisson_nll([0.0], [3.0], full=True).eval()), 4)
    2.7918
    """
    left, right = floating_pair(prediction, target)
    check_last_axis("poisson_nll", left, right)
    rate, count = wide_node(left), wide_node(right)
    if log_input:
        loss = subtract(exp(rate), multiply(count, rate))
    else:
        loss = subtract(rate, multiply(count, log(add(rate, epsilon))))
    if full:
        loss = add(loss, lgamma(add(count, 1.0)))
    return reduced("poisson_nll", weighted(loss, weights), reduction, left.dtype)


@grouped
@documented
def gaussian_nll(
    prediction: Any,
    target: Any,
    variance: Any,
    *,
    full: bool = False,
    epsilon: float = 1e-6,
    weights: Any = None,
    reduction: str = "mean",
) -> Node:
    """Compute the negative log-likelihood of numbers under normal distributions.

    ``(log(v) + (prediction - target)**2 / v) / 2`` with ``v = max(variance, epsilon)``.

    prediction, target: Nodes or arrays, broadcast against each other: the means, and what was seen.
    variance: Broadcast against them; positive.
    full: Add the constant ``log(2 pi) / 2``.
    epsilon: The smallest variance.
    returns: A scalar, or of the broadcast shape with "none". No gradient flows to a variance below
        `epsilon`.
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.gaussian_nll([1.0], [3.0], [1.0]).eval()
    array(2., dtype=float32)
    """
    residual, dtype = _residual("gaussian_nll", prediction, target)
    _, spread = floating_pair(prediction, variance)
    check_last_axis("gaussian_nll", residual, spread)
    least = maximum(wide_node(spread), epsilon)
    loss = multiply(add(log(least), divide(square(residual), least)), 0.5)
    if full:
        loss = add(loss, 0.5 * math.log(2.0 * math.pi))
    return reduced("gaussian_nll", weighted(loss, weights), reduction, dtype)


# Records. Errors lie away from the places where a loss changes its formula.

_GUESS = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -3.5]])
_TRUTH = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
_COUNTS = np.array([[0.0, 2.0, 1.0], [3.0, 1.0, 5.0]])
_SPREADS = np.array([[0.5, 1.2, 2.0], [0.1, 0.7, 3.0]])
_WEIGHTS = np.array([1.0, 0.5, 2.0])


def _reference(formula: Any) -> Any:
    """Return the reference of a loss from that of its elements."""

    def reference(
        prediction: Any,
        target: Any,
        *more: Any,
        weights: Any = None,
        reduction: str = "mean",
        **options: Any,
    ) -> Any:
        loss = formula(prediction, target, *more, **options)
        return settled(loss if weights is None else loss * weights, reduction)

    return reference


def _huber_reference(x: Any, t: Any, delta: float = 1.0) -> Any:
    r = np.abs(x - t)
    return np.where(r > delta, delta * r - delta**2 / 2, r**2 / 2)


def _smooth_reference(x: Any, t: Any, beta: float = 1.0) -> Any:
    r = np.abs(x - t)
    return np.where(r >= beta, r - beta / 2, r**2 / (2 * beta if beta else 1.0))


def _poisson_reference(
    z: Any, t: Any, log_input: bool = True, full: bool = False, epsilon: float = 1e-8
) -> Any:
    from scipy.special import gammaln

    loss = np.exp(z) - t * z if log_input else z - t * np.log(z + epsilon)
    return loss + gammaln(t + 1) if full else loss


def _gaussian_reference(
    x: Any, t: Any, variance: Any, full: bool = False, epsilon: float = 1e-6
) -> Any:
    v = np.maximum(variance, epsilon)
    loss = (np.log(v) + (x - t) ** 2 / v) / 2
    return loss + np.log(2 * np.pi) / 2 if full else loss


def _samples(*more: Sample) -> Any:
    return lambda: [
        Sample((_GUESS, _TRUTH)),
        Sample((_GUESS, _TRUTH[0]), {"reduction": "sum", "weights": _WEIGHTS}),
        Sample((_GUESS, _TRUTH), {"reduction": "none"}),
        *more,
    ]


RECORDS = (
    loss_record(
        mse, "The mean squared error.", _reference(lambda x, t: (x - t) ** 2), _samples()
    ),
    loss_record(
        mae, "The mean absolute error.", _reference(lambda x, t: np.abs(x - t)), _samples()
    ),
    loss_record(
        huber,
        "A squared error that goes on as a straight line.",
        _reference(_huber_reference),
        _samples(Sample((_GUESS, _TRUTH), {"delta": 1.5, "reduction": "sum"})),
    ),
    loss_record(
        smooth_l1,
        "An absolute error whose tip is rounded off.",
        _reference(_smooth_reference),
        _samples(
            Sample((_GUESS, _TRUTH), {"beta": 0.4}), Sample((_GUESS, _TRUTH), {"beta": 0.0})
        ),
    ),
    loss_record(
        log_cosh,
        "The logarithm of the hyperbolic cosine of the error.",
        _reference(lambda x, t: np.logaddexp(x - t, t - x) - np.log(2.0)),
        _samples(
            Sample(
                (np.array([200.0, -2000.0]), np.array([0.0, 0.5])),
                gradient=(),
                reason="differences of large numbers",
            )
        ),
    ),
    loss_record(
        poisson_nll,
        "The negative log-likelihood of counts.",
        _reference(_poisson_reference),
        lambda: [
            Sample((_GUESS, _COUNTS), {"full": True}),
            Sample((_SPREADS, _COUNTS), {"log_input": False, "reduction": "none"}),
        ],
    ),
    loss_record(
        gaussian_nll,
        "The negative log-likelihood of numbers with a mean and a variance.",
        _reference(_gaussian_reference),
        lambda: [
            Sample((_GUESS, _TRUTH, _SPREADS)),
            Sample((_GUESS, _TRUTH, _SPREADS[0]), {"full": True, "reduction": "none"}),
        ],
    ),
)
