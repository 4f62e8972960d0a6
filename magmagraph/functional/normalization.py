"""Normalizations: values brought to mean 0 and variance 1, or to length 1, over some axes.

Each is one kernel and so is its gradient: normalized values are products with a reciprocal root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import maximum
from ..ops.elementwise.math import rsqrt
from ..ops.reduction.statistics import mean, norm
from ..ops.shape.axes import CUBE, MATRIX, axes_of
from .operands import Axes, along, like, wide

__all__ = [
    "layer_norm",
    "normalize",
    "rms_norm",
    "standardize",
]


def normalized(
    call: Call,
    x: Node,
    centered: Node,
    var: Node,
    scale: Any,
    offset: Any,
    axes: Sequence[int],
    eps: float,
) -> Node:
    return scaled(call, x, multiply(centered, rsqrt(add(var, eps))), scale, offset, axes)


def scaled(
    call: Call, x: Node, result: Node, scale: Any, offset: Any, axes: Sequence[int]
) -> Node:
    if scale is not None:
        result = multiply(result, along(call, "scale", scale, x, axes))
    if offset is not None:
        result = add(result, along(call, "offset", offset, x, axes))
    return result


@grouped
@documented
def layer_norm(
    x: Any, scale: Any = None, offset: Any = None, axis: Axes = -1, eps: float = 1e-5
) -> Node:
    """Bring each row to mean 0 and variance 1, then scale and shift it.

    ``(x - mean) / sqrt(variance + eps) * scale + offset``; J. Ba, J. Kiros, G. Hinton, "Layer
    normalization", 2016.

    x: Node or array; ints become floats.
    scale, offset: Of the extents of the normalized axes (or scalars); left out unless said.
    axis: The axis, or axes, that mean and variance are taken along.
    eps: Added to the variance.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `scale` or `offset` have other extents than the normalized axes.

    >>> mg.layer_norm([[1.0, 3.0], [10.0, 30.0]], eps=0.0).eval()
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    node = wide(x)
    call = Call(LAYER_NORM, (node,))
    axes = axes_of(call, axis, node.ndim)
    centered = subtract(node, mean(node, axes, keepdims=True))
    var = mean(multiply(centered, centered), axes, keepdims=True)
    return like(normalized(call, node, centered, var, scale, offset, axes, eps), x)


@grouped
@documented
def rms_norm(
    x: Any, scale: Any = None, axis: Axes = -1, eps: float | None = None
) -> Node:
    """Divide each row by the root of its mean square, then scale it.

    ``x / sqrt(mean(x**2) + eps) * scale``; B. Zhang, R. Sennrich, "Root mean square layer
    normalization", NeurIPS 2019, equation 4.

    x: Node or array; ints become floats.
    scale: Of the extents of the normalized axes (or a scalar); left out unless said.
    axis: The axis, or axes, that the mean square is taken along.
    eps: Added to the mean square: the rounding unit of the dtype that is computed in, unless said.
        Squares are not scaled: rows of float32 beyond some 1e19 become zeros, and with ``eps=0``
        those below some 1e-19 lose digits. Rows of 16 bits are squared in float32.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If `scale` has other extents than the normalized axes.

    >>> mg.rms_norm([[1.0, 7.0], [30.0, 40.0]], eps=0.0).eval().round(4)
    array([[0.2   , 1.4   ],
           [0.8485, 1.1314]], dtype=float32)
    """
    node = wide(x)
    call = Call(RMS_NORM, (node,))
    axes = axes_of(call, axis, node.ndim)
    least = float(np.finfo(node.dtype).eps) if eps is None else eps
    square_mean = mean(multiply(node, node), axes, keepdims=True)
    return like(normalized(call, node, node, square_mean, scale, None, axes, least), x)


@grouped
@documented
def standardize(x: Any, axis: Axes = -1, eps: float = 1e-5) -> Node:
    """Bring each row to mean 0 and variance 1: `layer_norm` without parameters.

    x: Node or array; ints become floats.
    axis: The axis, or axes, that mean and variance are taken along.
    eps: Added to the variance.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If an axis is out of range.

    >>> mg.standardize([1.0, 3.0], eps=0.0).eval()
    array([-1.,  1.], dtype=float32)
    """
    node = wide(x)
    axes = axes_of(Call(STANDARDIZE, (node,)), axis, node.ndim)
    return like(layer_norm(node, axis=axes, eps=eps), x)


@grouped
@documented
def normalize(x: Any, ord: Any = 2, axis: Axes = -1, eps: float = 1e-12) -> Node:
    """Divide vectors by their length.

    ``x / max(norm(x, ord), eps)`` along axes.

    x: Node or array; ints become floats.
    ord: Which length: as for `norm`.
    axis: The axis, or axes, of the vectors' elements.
    eps: The smallest length that is divided by: vectors of zeros stay so.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If an axis is out of range.

    >>> mg.normalize([[3.0, 4.0], [0.0, 0.0]]).eval()
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    node = wide(x)
    axes = axes_of(Call(NORMALIZE, (node,)), axis, node.ndim)
    return like(divide(node, maximum(norm(node, ord, tuple(axes), keepdims=True), eps)), x)


def statistics(x: Node, axes: Sequence[int]) -> tuple[Node, Node, Node]:
    average = mean(x, axes, keepdims=True)
    centered = subtract(x, average)
    return average, mean(multiply(centered, centered), axes, keepdims=True), centered


# Records.


def _layer_norm_reference(
    x: np.ndarray, scale: Any = None, offset: Any = None, axis: Any = -1, eps: float = 1e-5
) -> Any:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    result = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    result = result if scale is None else result * scale
    return result if offset is None else result + offset


def _rms_reference(x: np.ndarray, scale: Any = None, axis: Any = -1, eps: Any = None) -> Any:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    result = x / np.sqrt(np.mean(x * x, axes, keepdims=True) + (0.0 if eps is None else eps))
    return result if scale is None else result * scale


RMS_NORM = Composite(
    kind=Kind.REDUCTION,
    function=rms_norm,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,)),
            Sample((CUBE, np.array([1.0, -0.5, 2.0, 0.3])), {"eps": 0.1}),
            Sample((CUBE, 1.0 + CUBE[0]), {"axis": (1, 2)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX, np.ones(2)),
                ShapeError,
                "rms_norm: extents of scale and of axis 1 differ: 2 and 3",
            )
        ],
        reference=_rms_reference,
    ),
    numerics="reassoc",
)

STANDARDIZE = Composite(
    kind=Kind.REDUCTION,
    function=standardize,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": (0, 2), "eps": 0.01})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "standardize: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=lambda x, axis=-1, eps=1e-5: _layer_norm_reference(x, axis=axis, eps=eps),
    ),
    numerics="reassoc",
)

NORMALIZE = Composite(
    kind=Kind.REDUCTION,
    function=normalize,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,)),
            Sample((CUBE,), {"axis": (0, 2), "ord": 1}),
            Sample((np.zeros((2, 3)),), gradient=(), reason="zeros have no direction"),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "normalize: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=lambda x, ord=2, axis=-1, eps=1e-12: (
            x / np.maximum(np.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=True), eps)
        ),
    ),
    numerics="reassoc",
)

LAYER_NORM = Composite(
    kind=Kind.REDUCTION,
    function=layer_norm,
    tests=Tests(
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
    ),
    numerics="reassoc",
)

RECORDS = (
    LAYER_NORM,
    RMS_NORM,
    STANDARDIZE,
    NORMALIZE,
)
