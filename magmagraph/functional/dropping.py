"""Dropout: elements, whole channels, or elements of self-normalizing networks, at random."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ir.types import Extent
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import where
from ..ops.elementwise.family import floating
from ..ops.elementwise.math import rsqrt
from ..ops.random.basic import bernoulli
from ..ops.shape.axes import CUBE, MATRIX

__all__ = ["alpha_dropout", "dropout", "spatial_dropout"]


def _check_rate(name: str, rate: float | Node) -> None:
    if not isinstance(rate, Node) and not 0 <= rate < 1:
        raise ShapeError(message(f"{name}: rate={rate}", need="0 <= rate < 1"))


def _idle(rate: float | Node, training: bool) -> bool:
    """Return whether nothing is dropped."""
    return not training or (isinstance(rate, (int, float)) and rate == 0)


def _masked(x: Node, rate: Any, shape: tuple[Extent, ...]) -> Node:
    """Return x with what a mask of some shape leaves out at zero, and the rest scaled up."""
    keep = subtract(1.0, rate) if isinstance(rate, Node) else 1.0 - rate
    kept = bernoulli(shape, keep)
    factor = divide(1.0, keep) if isinstance(keep, Node) else 1.0 / keep
    return where(kept, multiply(x, factor), 0.0)


@grouped
@documented
def dropout(x: Any, rate: float | Node, training: bool = True) -> Node:
    """Set elements to zero at random and scale the others up, so that the mean stays.

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
    JMLR 15, 2014; scaled while training.

    x: Node or array; ints become floats.
    rate: Probability of an element to become zero: a number in [0, 1), or a scalar node.
    training: False returns `x` itself.
    returns: Of the shape and dtype of `x`; other elements at every call. The gradient is zero at
        the same elements.
    raises ShapeError: If the rate is a number outside of [0, 1).

    >>> mg.random.seed(0)
    >>> sorted(set(mg.dropout(mg.constant([1.0] * 50), 0.5).eval().tolist()))
    [0.0, 2.0]
    """
    node = floating(x)
    _check_rate("dropout", rate)
    return node if _idle(rate, training) else _masked(node, rate, node.shape)


@grouped
@documented
def spatial_dropout(x: Any, rate: float | Node, training: bool = True, axis: int = 1) -> Node:
    """Set whole channels to zero at random and scale the others up.

    J. Tompson et al., "Efficient object localization using convolutional networks", CVPR 2015,
    section 3.2.

    x: Node or array of shape ``(N, C, ...)``; ints become floats.
    rate: Probability of a channel of one sample to become zero: a number in [0, 1), or a node.
    training: False returns `x` itself.
    axis: The axis of the channels. The first axis is that of the samples.
    returns: Of the shape and dtype of `x`.
    raises ShapeError: If the rate is a number outside of [0, 1), or the axis is out of range.

    >>> mg.random.seed(0)
    >>> found = mg.spatial_dropout(mg.constant([[[1.0] * 3] * 20]), 0.5).eval()
    >>> sorted(set(map(tuple, found[0].tolist())))
    [(0.0, 0.0, 0.0), (2.0, 2.0, 2.0)]
    """
    node = floating(x)
    _check_rate("spatial_dropout", rate)
    axis = Call(SPATIAL_DROPOUT, (node,)).axis(axis, node.ndim)
    if _idle(rate, training):
        return node
    shape = tuple(e if i in (0, axis) else 1 for i, e in enumerate(node.shape))
    return _masked(node, rate, shape)


# What selu tends to for large negative values: -scale * alpha.
_SATURATED = -1.0507009873554805 * 1.6732632423543772


@grouped
@documented
def alpha_dropout(x: Any, rate: float | Node, training: bool = True) -> Node:
    """Drop elements so that mean 0 and variance 1 stay, for networks with `selu`.

    Dropped elements become the value that selu saturates at, and an affine map puts mean and
    variance right; G. Klambauer et al., "Self-normalizing neural networks", 2017, section 3.

    x: Node or array; ints become floats.
    rate: Probability of an element to be dropped: a number in [0, 1), or a scalar node.
    training: False returns `x` itself.
    returns: Of the shape and dtype of `x`.
    raises ShapeError: If the rate is a number outside of [0, 1).

    >>> mg.random.seed(0)
    >>> len(set(mg.alpha_dropout(mg.constant([1.0] * 50), 0.5).eval().tolist()))
    2
    """
    node = floating(x)
    _check_rate("alpha_dropout", rate)
    if _idle(rate, training):
        return node
    lost = _SATURATED
    if isinstance(rate, Node):
        keep: Any = subtract(1.0, rate)
        scale: Any = rsqrt(multiply(keep, add(1.0, multiply(rate, lost * lost))))
    else:
        keep = 1.0 - rate
        scale = 1.0 / math.sqrt(keep * (1.0 + rate * lost * lost))
    shift = multiply(scale, rate) if isinstance(rate, Node) else scale * rate
    kept = bernoulli(node.shape, keep)
    return subtract(multiply(where(kept, node, lost), scale), multiply(shift, lost))


# Records.

DROPOUT = Composite(
    kind=Kind.RANDOM,
    function=dropout,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,), {"rate": 0.5, "training": False})],
        bad_samples=lambda: [BadSample((MATRIX,), ShapeError, "dropout: rate=1.0", {"rate": 1.0})],
        reference=lambda x, rate, training: x,
    ),
    numerics="exact",
)
SPATIAL_DROPOUT = Composite(
    kind=Kind.RANDOM,
    function=spatial_dropout,
    tests=Tests(
        samples=lambda: [Sample((CUBE,), {"rate": 0.5, "training": False})],
        bad_samples=lambda: [
            BadSample((CUBE,), ShapeError, "spatial_dropout: rate=1.0", {"rate": 1.0}),
            BadSample(
                (MATRIX[0],),
                ShapeError,
                "spatial_dropout: axis=1 is out of range for 1 axes",
                {"rate": 0.5},
            ),
        ],
        reference=lambda x, rate, training: x,
    ),
    numerics="exact",
)
ALPHA_DROPOUT = Composite(
    kind=Kind.RANDOM,
    function=alpha_dropout,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,), {"rate": 0.5, "training": False})],
        bad_samples=lambda: [
            BadSample((MATRIX,), ShapeError, "alpha_dropout: rate=-0.5", {"rate": -0.5})
        ],
        reference=lambda x, rate, training: x,
    ),
    numerics="exact",
)

RECORDS = (DROPOUT, SPATIAL_DROPOUT, ALPHA_DROPOUT)
