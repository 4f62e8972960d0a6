"""Compositions of reductions: the variance and its root."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import canonical, real_dtype
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Composite, Kind, Sample, Tests
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide
from ..elementwise.comparison import equal, maximum, where
from ..elementwise.complex_numbers import conj, real
from ..elementwise.math import sqrt
from ..leaf import array_of, extent
from ..shape.axes import shape_text
from .folding import CUBE, Axis, extent_product, normalized_axes, restore_axes, restored
from .masked import filled, mask_of
from .primitives import SUM, counted
from .statistics import average_of, averaged, statistic_samples, widened

__all__ = ["std", "variance"]


def degrees_of(name: str, ddof: Any, correction: Any) -> Any:
    """Return the degrees of freedom to subtract: a number or a scalar node.

    raises ShapeError: If it is no scalar.
    raises DTypeError: If it is no number.
    """
    less = ddof if correction is None else correction
    if isinstance(less, (int, float)):  # the usual
        return less
    if isinstance(less, (list, tuple)):
        less = array_of(less, f"{name}: ddof")
    if isinstance(less, Node) or np.asarray(less).dtype.kind in "biuf":
        if np.ndim(less) if not isinstance(less, Node) else less.ndim:
            raise ShapeError(message(f"{name}: ddof is an array", need="a scalar"))
        return less if isinstance(less, Node) else np.asarray(less).item()
    try:
        hint = f"dtype='{canonical(less).name}', by its name"
    except DTypeError:
        hint = None
    raise DTypeError(message(f"{name}: ddof={less!r}", need="a number", hint=hint))


def _degrees_left(x: Node, axes: tuple[int, ...], less: Any) -> Any:
    """Return how many elements are folded, less some degrees of freedom: exact for named axes.

    It is never below 0, so that too few elements give an infinite variance, or NaN.
    """
    count = extent_product(x.shape, axes)
    if type(count) is int and not isinstance(less, Node):
        return float(max(count - less, 0))
    number = cast(extent(count), x.dtype)
    return maximum(number - less, 0) if isinstance(less, Node) or less else number


def _squared_deviations(
    x: Node, axes: tuple[int, ...], ddof: Any, mask: Node | None = None, mean: Any = None
) -> Node:
    x = filled(x, mask, 0)
    center = restored(average_of(x, axes, mask), axes) if mean is None else mean
    centered = filled(x - center, mask, 0)
    squares = real(centered * conj(centered))
    if mask is None:
        degrees = _degrees_left(squares, axes, ddof)
    else:
        degrees = maximum(counted(mask, axes, squares.dtype) - ddof, 0)
    return divide(SUM(squares, axes=axes), degrees)


def _deviations(
    name: str,
    x: Any,
    axis: Axis,
    degrees: Any,
    where: Any,
    dtype: Any,
    mean: Any,
) -> tuple[Node, tuple[int, ...], np.dtype]:
    """Return the variance without the reduced axes, those, and the dtype of the result."""
    node, result = widened(averaged(name, x, dtype))
    axes = normalized_axes(SUM, node, axis)
    mask = mask_of(name, node, where)
    if mean is not None:
        mean = center_of(name, mean, node, axes)
    return _squared_deviations(node, axes, degrees, mask, mean), axes, real_dtype(result)


def center_of(name: str, mean: Any, node: Node, axes: tuple[int, ...]) -> Node:
    """Return the user's mean in the dtype and shape to subtract.

    raises ShapeError: If it is not of the shape of a mean with `keepdims=True`.
    """
    center = as_node(mean, node.dtype)
    shape = tuple(1 if a in axes else size for a, size in enumerate(node.shape))
    if center.ndim != node.ndim or any(
        size != own_size and size != 1 for size, own_size in zip(center.shape, shape, strict=True)
    ):
        raise ShapeError(
            message(
                f"{name}: mean of shape {shape_text(center.shape)} "
                f"for elements of {shape_text(node.shape)}",
                need=f"shape {shape_text(shape)}",
                hint="mg.mean(x, axis=axis, keepdims=True)",
            )
        )
    return cast(center, node.dtype)


@documented
def variance(
    x: Any,
    axis: Axis = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
    where: Any = True,
    dtype: Any = None,
    mean: Any = None,
) -> Node:
    """Average the squared deviations from the mean along axes.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    ddof: Delta degrees of freedom: the divisor is the number of elements less `ddof`.
    correction: The array API standard's name of `ddof`; it counts where both are given.
    dtype: Of the result, a float one; that of `x` unless said.
    mean: The mean with `keepdims=True`, where it is known; it is computed unless given.
    returns: Of the float dtype, without the reduced axes (unless `keepdims`). No more elements than
        `ddof` give infinity, and NaN where all of them are equal. Of complex numbers the squares
        are those of the absolute deviations, so that the result is real.

    >>> mg.variance([1.0, 2.0, 3.0, 6.0]).eval()
    array(3.5, dtype=float32)
    """
    degrees = degrees_of("variance", ddof, correction)
    squares, axes, result = _deviations("variance", x, axis, degrees, where, dtype, mean)
    return cast(restore_axes("variance", squares, axes, keepdims), result)


def safe_sqrt(x: Node) -> Node:
    """Return the square root, with gradient 0 (not infinity) where it is 0."""
    zero = equal(x, 0)
    return where(zero, 0, sqrt(where(zero, 1, x)))


@documented
def std(
    x: Any,
    axis: Axis = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
    where: Any = True,
    dtype: Any = None,
    mean: Any = None,
) -> Node:
    """Take the standard deviation along axes: the square root of `variance`.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    ddof: Delta degrees of freedom: the divisor is the number of elements less `ddof`.
    correction: The array API standard's name of `ddof`; it counts where both are given.
    dtype, mean: See `variance`.
    returns: Of the float dtype, without the reduced axes (unless `keepdims`). Where it is 0 so is
        its gradient.

    >>> mg.std([1.0, 1.0, 3.0, 3.0]).eval()
    array(1., dtype=float32)
    """
    degrees = degrees_of("std", ddof, correction)
    squares, axes, result = _deviations("std", x, axis, degrees, where, dtype, mean)
    return cast(restore_axes("std", safe_sqrt(squares), axes, keepdims), result)


def _variance_reference(x: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    return np.var(x, axis=axis, ddof=ddof, keepdims=keepdims)


def _std_reference(x: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    return np.std(x, axis=axis, ddof=ddof, keepdims=keepdims)


RECORDS = (
    Composite(
        dtypes=INEXACT,
        kind=Kind.REDUCTION,
        function=variance,
        tests=Tests(
            samples=lambda: [*statistic_samples(), Sample((CUBE,), {"axis": 2, "ddof": 1})],
            reference=_variance_reference,
        ),
        numerics="reassoc",
    ),
    Composite(
        dtypes=INEXACT,
        kind=Kind.REDUCTION,
        function=std,
        tests=Tests(
            samples=lambda: [*statistic_samples(), Sample((CUBE,), {"axis": 2, "ddof": 1})],
            reference=_std_reference,
        ),
        numerics="reassoc",
    ),
)
