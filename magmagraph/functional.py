"""Functions of networks, made of operations: softmax, dropout, normalization.

None has a record of its own: what they compile to is one kernel each way, found by fusion. They
are written so that the graphs of their gradients stay small: a maximum that only guards against
overflow is taken as a constant, and normalized values are products with a reciprocal root.
Losses are in `losses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import losses
from .errors import ShapeError, message
from .graph import Node
from .losses import binary_cross_entropy, cross_entropy, mse, shifted
from .op import BadSample, Call, Composite, Kind, Sample
from .ops.arrange import reshape
from .ops.axes import CUBE, MATRIX, axes_of
from .ops.comparison import where
from .ops.convert import as_node, cast
from .ops.elementwise import add, divide, multiply, subtract
from .ops.family import floating
from .ops.math import exp, log, rsqrt
from .ops.random import bernoulli
from .ops.reduction import sum
from .ops.statistics import mean, variance
from .types import Extent

__all__ = [
    "batch_norm",
    "batch_statistics",
    "binary_cross_entropy",
    "cross_entropy",
    "dropout",
    "layer_norm",
    "log_softmax",
    "mse",
    "running_statistics",
    "softmax",
]

Axes = int | Sequence[int]


def wide(x: Any) -> Node:
    """Return a float operand; 16-bit floats as float32, in which sums keep range and precision."""
    node = floating(x)
    return cast(node, np.float32) if node.dtype.itemsize < 4 else node


def _like(result: Node, x: Any) -> Node:
    return cast(result, floating(x).dtype)


def softmax(x: Any, axis: Axes = -1) -> Node:
    """Turn scores into probabilities: ``exp(x) / sum(exp(x))`` along axes, without overflow.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    axis
        The axis, or axes, that the probabilities add up to 1 along.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Raises
    ------
    ShapeError
        If an axis is out of range.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.softmax([1000.0, 1000.0, 0.0]).eval()
    array([0.5, 0.5, 0. ], dtype=float32)
    """
    score = wide(x)
    axes = axes_of(Call(SOFTMAX, (score,)), axis, score.ndim)
    power = exp(shifted(score, axes))
    return _like(divide(power, sum(power, axes, keepdims=True)), x)


def log_softmax(x: Any, axis: Axes = -1) -> Node:
    """Return the logarithm of `softmax`, exact also where a probability underflows.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    axis
        The axis, or axes, that the probabilities add up to 1 along.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Raises
    ------
    ShapeError
        If an axis is out of range.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.log_softmax([0.0, -10000.0]).eval()
    array([     0., -10000.], dtype=float32)
    """
    score = wide(x)
    axes = axes_of(Call(LOG_SOFTMAX, (score,)), axis, score.ndim)
    shift = shifted(score, axes)
    return _like(subtract(shift, log(sum(exp(shift), axes, keepdims=True))), x)


def dropout(x: Any, rate: Any, training: bool = True) -> Node:
    """Set elements to zero at random and scale the others up, so that the mean stays.

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
    JMLR 15, 2014; scaled while training.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    rate
        Probability of an element to become zero: a number in [0, 1), or a scalar node.
    training
        False returns `x` itself.

    Returns
    -------
    Node
        Of the shape and dtype of `x`; other elements at every call. The gradient is zero at the
        same elements.

    Raises
    ------
    ShapeError
        If the rate is a number outside of [0, 1).

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(0)
    >>> sorted(set(mg.dropout(mg.constant([1.0] * 50), 0.5).eval().tolist()))
    [0.0, 2.0]
    """
    node = floating(x)
    if not isinstance(rate, Node) and not 0 <= rate < 1:
        raise ShapeError(message(f"dropout: rate={rate}", need="0 <= rate < 1"))
    if not training or (isinstance(rate, (int, float)) and rate == 0):
        return node
    keep = subtract(1.0, rate) if isinstance(rate, Node) else 1.0 - rate
    kept = bernoulli(node.shape, keep)
    factor = divide(1.0, keep) if isinstance(keep, Node) else 1.0 / keep
    return where(kept, multiply(node, factor), 0.0)


def _along(call: Call, name: str, value: Any, x: Node, axes: Sequence[int]) -> Node:
    """Return a parameter with one axis for each of `axes`, shaped so that it broadcasts to x."""
    node = as_node(value, x.dtype)
    if node.ndim == 0:
        return cast(node, x.dtype)
    if node.ndim != len(axes):
        raise call.shape_error(
            f"{name} has shape {node.shape} for {len(axes)} axes",
            need=f"shape {tuple(x.shape[axis] for axis in axes)}",
        )
    shape: list[Extent] = [1] * x.ndim
    for axis, extent in zip(axes, node.shape, strict=True):
        call.unify(extent, x.shape[axis], f"extents of {name} and of axis {axis}")
        shape[axis] = extent
    return cast(reshape(node, shape), x.dtype)


def _normalized(
    call: Call,
    x: Node,
    centered: Node,
    var: Node,
    scale: Any,
    offset: Any,
    axes: Sequence[int],
    eps: float,
) -> Node:
    result = multiply(centered, rsqrt(add(var, eps)))
    if scale is not None:
        result = multiply(result, _along(call, "scale", scale, x, axes))
    if offset is not None:
        result = add(result, _along(call, "offset", offset, x, axes))
    return result


def layer_norm(
    x: Any, scale: Any = None, offset: Any = None, axis: Axes = -1, eps: float = 1e-5
) -> Node:
    """Bring each row to mean 0 and variance 1, then scale and shift it.

    ``(x - mean) / sqrt(variance + eps) * scale + offset``; J. Ba, J. Kiros, G. Hinton, "Layer
    normalization", 2016.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    scale, offset
        Of the extents of the normalized axes (or scalars); left out unless said.
    axis
        The axis, or axes, that mean and variance are taken along.
    eps
        Added to the variance.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Raises
    ------
    ShapeError
        If `scale` or `offset` have other extents than the normalized axes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.layer_norm([[1.0, 3.0], [10.0, 30.0]], eps=0.0).eval()
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    node = wide(x)
    call = Call(LAYER_NORM, (node,))
    axes = axes_of(call, axis, node.ndim)
    centered = subtract(node, mean(node, axes, keepdims=True))
    var = mean(multiply(centered, centered), axes, keepdims=True)
    return _like(_normalized(call, node, centered, var, scale, offset, axes, eps), x)


def _other_axes(call: Call, axis: int, ndim: int) -> tuple[int, list[int]]:
    axis = call.axis(axis, ndim)
    others = [i for i in range(ndim) if i != axis]
    if not others:
        raise call.shape_error(
            "an operand of one axis has no batch", need="at least one axis beside the channels"
        )
    return axis, others


def batch_statistics(x: Any, axis: int = 1) -> tuple[Node, Node]:
    """Return mean and variance of each channel, over all other axes.

    Parameters
    ----------
    x
        Node or array; ints become floats.
    axis
        The axis of the channels.

    Returns
    -------
    mean, variance : Node
        Of one axis, the channels'; the variance is divided by the number of elements.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mean, var = mg.batch_statistics([[1.0, 5.0], [3.0, 5.0]])
    >>> mean.eval(), var.eval()
    (array([2., 5.], dtype=float32), array([1., 0.], dtype=float32))
    """
    node = wide(x)
    axis, others = _other_axes(Call(BATCH_STATISTICS, (node,)), axis, node.ndim)
    average, var, _ = _statistics(node, others)
    extent = (node.shape[axis],)
    return _like(reshape(average, extent), x), _like(reshape(var, extent), x)


def _statistics(x: Node, axes: Sequence[int]) -> tuple[Node, Node, Node]:
    average = mean(x, axes, keepdims=True)
    centered = subtract(x, average)
    return average, mean(multiply(centered, centered), axes, keepdims=True), centered


def batch_norm(
    x: Any,
    scale: Any = None,
    offset: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    *,
    training: bool = True,
    eps: float = 1e-5,
    axis: int = 1,
) -> Node:
    """Bring each channel to mean 0 and variance 1 over the batch, then scale and shift it.

    S. Ioffe, C. Szegedy, "Batch normalization: accelerating deep network training by reducing
    internal covariate shift", ICML 2015.

    Parameters
    ----------
    x
        Node or array of shape ``(N, C, ...)``; ints become floats.
    scale, offset
        Of shape ``(C,)``; left out unless said.
    running_mean, running_var
        Of shape ``(C,)``: used in the place of the batch's own where `training` is False. See
        `running_statistics` for how to keep them.
    training
        Whether the statistics are the batch's.
    eps
        Added to the variance.
    axis
        The axis of the channels.

    Returns
    -------
    Node
        Of the shape and float dtype of `x`.

    Raises
    ------
    ShapeError
        If a parameter is not of shape ``(C,)``, or running statistics are needed and missing.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0).eval()
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    node = wide(x)
    call = Call(BATCH_NORM, (node,))
    axis, others = _other_axes(call, axis, node.ndim)
    if training:
        _, var, centered = _statistics(node, others)
    else:
        if running_mean is None or running_var is None:
            raise call.shape_error(
                "training=False without running statistics",
                need="running_mean= and running_var=",
                mend="variables that running_statistics renews while training",
            )
        centered = subtract(node, _along(call, "running_mean", running_mean, node, [axis]))
        var = _along(call, "running_var", running_var, node, [axis])
    return _like(_normalized(call, node, centered, var, scale, offset, [axis], eps), x)


def running_statistics(
    x: Any, running_mean: Any, running_var: Any, *, momentum: float = 0.1, axis: int = 1
) -> tuple[Node, Node]:
    """Return what running statistics become after a batch that `batch_norm` normalizes.

    Parameters
    ----------
    x
        What is normalized.
    running_mean, running_var
        The statistics so far, of shape ``(C,)``: variables, as a rule.
    momentum
        Weight of this batch: ``new = (1 - momentum) * old + momentum * batch``.
    axis
        The axis of the channels.

    Returns
    -------
    mean, variance : Node
        The new values, for ``updates=``. The batch's variance enters unbiased.

    Raises
    ------
    ShapeError
        If the statistics have another shape than the channels.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mean, var = mg.var("mean", init=[0.0]), mg.var("var", init=[1.0])
    >>> new_mean, new_var = mg.running_statistics([[1.0], [3.0]], mean, var)
    >>> mg.function([], [], updates={mean: new_mean, var: new_var})()
    []
    >>> mean.value, var.value
    (array([0.2], dtype=float32), array([1.1], dtype=float32))
    """
    node = wide(x)
    call = Call(RUNNING_STATISTICS, (node,))
    axis, others = _other_axes(call, axis, node.ndim)
    batch_mean, _ = batch_statistics(node, axis)
    unbiased = variance(node, others, ddof=1)
    return (
        _blended(call, "running_mean", running_mean, batch_mean, momentum),
        _blended(call, "running_var", running_var, unbiased, momentum),
    )


def _blended(call: Call, name: str, held: Any, batch: Node, momentum: float) -> Node:
    old = as_node(held)
    if old.ndim != 1:
        raise call.shape_error(f"{name} has shape {old.shape}", need=f"shape {batch.shape}")
    call.unify(old.shape[0], batch.shape[0], f"extents of {name} and of the channels")
    return cast(add(multiply(old, 1.0 - momentum), multiply(batch, momentum)), old.dtype)


# Records.


def _softmax_reference(x: np.ndarray, axis: Any = -1) -> np.ndarray:
    axis = tuple(axis) if isinstance(axis, (tuple, list)) else axis
    power = np.exp(x - np.max(x, axis=axis, keepdims=True))
    result: np.ndarray = power / power.sum(axis=axis, keepdims=True)
    return result


def _layer_norm_reference(
    x: np.ndarray, scale: Any = None, offset: Any = None, axis: Any = -1, eps: float = 1e-5
) -> Any:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    result = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    result = result if scale is None else result * scale
    return result if offset is None else result + offset


def _batch_norm_reference(
    x: np.ndarray,
    scale: Any = None,
    offset: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    eps: float = 1e-5,
    axis: int = 1,
) -> Any:
    rows = np.moveaxis(x, axis, -1)
    axes = tuple(range(rows.ndim - 1))
    average = rows.mean(axes) if training else running_mean
    var = rows.var(axes) if training else running_var
    result = (rows - average) / np.sqrt(var + eps)
    result = result if scale is None else result * scale
    return np.moveaxis(result if offset is None else result + offset, -1, axis)


_CHANNELS = np.array([1.2, -0.4, 0.7])

SOFTMAX = Composite(
    name="softmax",
    kind=Kind.REDUCTION,
    function=softmax,
    doc="exp(x) / sum(exp(x)) along axes.",
    samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": (0, 2)})],
    bad_samples=lambda: [
        BadSample((MATRIX,), ShapeError, "softmax: axis=2 is out of range for 2 axes", {"axis": 2})
    ],
    reference=_softmax_reference,
    numerics="reassoc",
)
LOG_SOFTMAX = Composite(
    name="log_softmax",
    kind=Kind.REDUCTION,
    function=log_softmax,
    doc="The logarithm of softmax.",
    samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": 1})],
    bad_samples=lambda: [
        BadSample(
            (MATRIX,), ShapeError, "log_softmax: axis=2 is out of range for 2 axes", {"axis": 2}
        )
    ],
    reference=lambda x, axis=-1: np.log(_softmax_reference(x, axis)),
    numerics="reassoc",
)
DROPOUT = Composite(
    name="dropout",
    kind=Kind.RANDOM,
    function=dropout,
    doc="Elements set to zero at random.",
    samples=lambda: [Sample((MATRIX,), {"rate": 0.5, "training": False})],
    bad_samples=lambda: [BadSample((MATRIX,), ShapeError, "dropout: rate=1.0", {"rate": 1.0})],
    reference=lambda x, rate, training: x,
    numerics="exact",
)
LAYER_NORM = Composite(
    name="layer_norm",
    kind=Kind.REDUCTION,
    function=layer_norm,
    doc="Rows of mean 0 and variance 1, scaled and shifted.",
    samples=lambda: [
        Sample((MATRIX,)),
        Sample((CUBE, np.array([1.0, -0.5, 2.0, 0.3]), np.array([0.1, 0.2, -0.3, 0.0]))),
        Sample((CUBE, 1.0 + CUBE[0], CUBE[1]), {"axis": (1, 2)}),
    ],
    bad_samples=lambda: [
        BadSample(
            (MATRIX, np.ones(2)),
            ShapeError,
            "layer_norm: extents of scale and of axis 1 differ: 2 and 3",
        )
    ],
    reference=_layer_norm_reference,
    numerics="reassoc",
)
BATCH_STATISTICS = Composite(
    name="batch_statistics",
    kind=Kind.REDUCTION,
    function=batch_statistics,
    doc="Mean and variance of each channel.",
    samples=lambda: [Sample((CUBE,))],
    reference=lambda x, axis=1: (x.mean((0, 2)), x.var((0, 2))),
    numerics="reassoc",
)
BATCH_NORM = Composite(
    name="batch_norm",
    kind=Kind.REDUCTION,
    function=batch_norm,
    doc="Channels of mean 0 and variance 1 over the batch, scaled and shifted.",
    samples=lambda: [
        Sample((CUBE,)),
        Sample((CUBE, _CHANNELS, _CHANNELS - 0.5)),
        Sample(
            (CUBE, _CHANNELS, 0.5 - _CHANNELS, _CHANNELS, 1.0 + _CHANNELS**2), {"training": False}
        ),
    ],
    bad_samples=lambda: [
        BadSample(
            (MATRIX,),
            ShapeError,
            "batch_norm: training=False without running statistics",
            {"training": False},
        ),
        BadSample((MATRIX[0],), ShapeError, "batch_norm: axis=1 is out of range for 1 axes"),
    ],
    reference=_batch_norm_reference,
    numerics="reassoc",
)
RUNNING_STATISTICS = Composite(
    name="running_statistics",
    kind=Kind.REDUCTION,
    function=running_statistics,
    doc="Running mean and variance after a batch.",
    samples=lambda: [Sample((CUBE, _CHANNELS, 1.0 + _CHANNELS**2), {"momentum": 0.3})],
    bad_samples=lambda: [
        BadSample(
            (CUBE, _CHANNELS[:2], _CHANNELS),
            ShapeError,
            "running_statistics: extents of running_mean and of the channels differ: 2 and 3",
        )
    ],
    reference=lambda x, mean, var, momentum: (
        (1 - momentum) * mean + momentum * x.mean((0, 2)),
        (1 - momentum) * var + momentum * x.var((0, 2), ddof=1),
    ),
    numerics="reassoc",
)

RECORDS = (
    RUNNING_STATISTICS,
    SOFTMAX,
    LOG_SOFTMAX,
    DROPOUT,
    LAYER_NORM,
    BATCH_STATISTICS,
    BATCH_NORM,
    *losses.RECORDS,
)
