"""Normalization over a batch, and the statistics that take its place outside of training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ops.control.identities import MARKER, OWN_STATISTICS
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, multiply, subtract
from ..ops.elementwise.bits import logical_and
from ..ops.elementwise.comparison import equal, where
from ..ops.elementwise.rounding import isnan
from ..ops.reduction.deviations import variance
from ..ops.shape.arrange import reshape
from ..ops.shape.axes import CUBE, MATRIX
from .normalization import normalized, scaled, statistics
from .operands import along, like, wide

__all__ = ["batch_norm", "batch_statistics", "running_statistics"]


def _other_axes(call: Call, axis: int, ndim: int) -> tuple[int, list[int]]:
    axis = call.axis(axis, ndim)
    others = [i for i in range(ndim) if i != axis]
    if not others:
        raise call.shape_error(
            "an operand of one axis has no batch", need="at least one axis beside the channels"
        )
    return axis, others


def _marked(x: Node) -> Node:
    """Mark what statistics of a batch are made of, and they themselves.

    Where ranks share a batch, they may each take those of their own rows.
    """
    return MARKER(x, role=OWN_STATISTICS)


def _of_batch(x: Node, axes: list[int]) -> tuple[Node, Node, Node]:
    average, var, centered = statistics(_marked(x), axes)
    return _marked(average), _marked(var), centered  # which becomes rows again, and is marked then


@grouped
@documented
def batch_statistics(x: Any, axis: int = 1) -> tuple[Node, Node]:
    """Return mean and variance of each channel, over all other axes.

    x: Node or array; ints become floats.
    axis: The axis of the channels.
    returns (pair of Node): The mean and the variance, of one axis, the channels'; the variance is
        divided by the number of elements.

    >>> mean, var = mg.batch_statistics([[1.0, 5.0], [3.0, 5.0]])
    >>> mean.eval(), var.eval()
    (array([2., 5.], dtype=float32), array([1., 0.], dtype=float32))
    """
    node = wide(x)
    axis, others = _other_axes(Call(BATCH_STATISTICS, (node,)), axis, node.ndim)
    average, var, _ = _of_batch(node, others)
    extent = (node.shape[axis],)
    return like(reshape(average, extent), x), like(reshape(var, extent), x)


@grouped
@documented
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

    x: Node or array of shape ``(N, C, ...)``; ints become floats.
    scale, offset: Of shape ``(C,)``; left out unless said.
    running_mean, running_var: Of shape ``(C,)``: used in the place of the batch's own where
        `training` is False. See `running_statistics` for how to keep them.
    training: Whether the statistics are the batch's.
    eps: Added to the variance.
    axis: The axis of the channels.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If a parameter is not of shape ``(C,)``, or running statistics are needed and
        missing.

    >>> mg.batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0).eval()
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """
    node = wide(x)
    call = Call(BATCH_NORM, (node,))
    axis, others = _other_axes(call, axis, node.ndim)
    if training:
        _, var, centered = _of_batch(node, others)
    else:
        if running_mean is None or running_var is None:
            raise call.shape_error(
                "training=False without running statistics",
                need="running_mean= and running_var=",
                hint="variables that running_statistics renews while training",
            )
        centered = subtract(node, along(call, "running_mean", running_mean, node, [axis]))
        var = along(call, "running_var", running_var, node, [axis])
    unit = normalized(call, node, centered, var, None, None, [axis], eps)
    result = _marked(unit) if training else unit
    return like(scaled(call, node, result, scale, offset, [axis]), x)


@grouped
@documented
def running_statistics(
    x: Any, running_mean: Any, running_var: Any, *, momentum: float = 0.1, axis: int = 1
) -> tuple[Node, Node]:
    """Return what running statistics become after a batch that `batch_norm` normalizes.

    x: What is normalized.
    running_mean, running_var: The statistics so far, of shape ``(C,)``: variables, as a rule.
    momentum: Weight of this batch: ``new = (1 - momentum) * old + momentum * batch``.
    axis: The axis of the channels.
    returns (pair of Node): The new mean and the new variance, for ``updates=``. The batch's
        variance enters unbiased; a batch of one element a channel has none, and leaves the
        variance as it is.
    raises ShapeError: If the statistics have another shape than the channels.

    >>> mean, var = mg.var("mean", init=[0.0]), mg.var("var", init=[1.0])
    >>> new_mean, new_var = mg.running_statistics([[1.0], [3.0]], mean, var)
    >>> mg.function([], [], updates={mean: new_mean, var: new_var})()
    []
    >>> mean.value, var.value
    (array([0.2], dtype=float32), array([1.1], dtype=float32))
    """
    node = wide(as_node(x, as_node(running_mean).dtype))
    call = Call(RUNNING_STATISTICS, (node,))
    axis, others = _other_axes(call, axis, node.ndim)
    batch_mean, batch_var = batch_statistics(node, axis)
    unbiased = _marked(variance(_marked(node), others, ddof=1))
    new_var = _blended(call, "running_var", running_var, unbiased, momentum)
    if all(isinstance(node.shape[other], int) for other in others):
        single = math.prod(node.shape[other] for other in others) == 1
        new_var = as_node(running_var) if single else new_var
    else:  # of one element it is 0 / 0; of NaN and infinity, both are NaN
        alone = logical_and(equal(batch_var, 0.0), isnan(unbiased))
        new_var = where(alone, as_node(running_var, new_var.dtype), new_var)
    return _blended(call, "running_mean", running_mean, batch_mean, momentum), new_var


def _blended(call: Call, name: str, held: Any, batch: Node, momentum: float) -> Node:
    old = as_node(held, batch.dtype)
    if old.ndim != 1:
        raise call.shape_error(f"{name} has shape {old.shape}", need=f"shape {batch.shape}")
    call.unify(old.shape[0], batch.shape[0], f"extents of {name} and of the channels")
    return cast(add(multiply(old, 1.0 - momentum), multiply(batch, momentum)), old.dtype)


# Records.


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

BATCH_STATISTICS = Composite(
    kind=Kind.REDUCTION,
    function=batch_statistics,
    tests=Tests(
        samples=lambda: [Sample((CUBE,))],
        reference=lambda x, axis=1: (x.mean((0, 2)), x.var((0, 2))),
    ),
    numerics="reassoc",
)


BATCH_NORM = Composite(
    kind=Kind.REDUCTION,
    function=batch_norm,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,)),
            Sample((CUBE, _CHANNELS, _CHANNELS - 0.5)),
            Sample(
                (CUBE, _CHANNELS, 0.5 - _CHANNELS, _CHANNELS, 1.0 + _CHANNELS**2),
                {"training": False},
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
    ),
    numerics="reassoc",
)


RUNNING_STATISTICS = Composite(
    kind=Kind.REDUCTION,
    function=running_statistics,
    tests=Tests(
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
    ),
    numerics="reassoc",
)

RECORDS = (BATCH_STATISTICS, BATCH_NORM, RUNNING_STATISTICS)
