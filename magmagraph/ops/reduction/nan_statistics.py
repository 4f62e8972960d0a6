"""Reductions and scans that leave NaN out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_float, is_inexact, real_dtype
from ...ir.docstrings import COMMON
from ...ir.graph import Node
from ...ir.op import INEXACT, REAL, Composite, Kind, Sample, Tests
from ..convert import as_node, as_operand, cast
from ..elementwise.arithmetic import divide, multiply, subtract
from ..elementwise.bits import logical_and, logical_not
from ..elementwise.comparison import where
from ..elementwise.complex_numbers import conj, real
from ..elementwise.family import publish
from ..elementwise.rounding import isnan
from .cumulative import cumprod, cumsum
from .deviations import center_of, degrees_of, safe_sqrt
from .folding import CUBE, Axis, accumulated, normalized_axes, restore_axes, restored
from .masked import INITIAL, filled, mask_of, no_start, start_of
from .primitives import SUM, all, argmax, argmin, max, min, prod, sum
from .statistics import averaged, widened

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _filled(node: Node, value: float) -> Node:
    """Replace NaN by a number."""
    return where(isnan(node), value, node) if is_inexact(node.dtype) else node


def _or_nan(result: Node, node: Node, axis: Axis, keepdims: bool) -> Node:
    """Return a reduction's result, or NaN where all of its elements are."""
    if not is_float(node.dtype):
        return result
    return where(all(isnan(node), axis, keepdims), np.nan, result)


def _published(
    function: Any, name: str, summary: str, returns: str, example: str, *, more: str = ""
) -> Any:
    more = f"\n{more.strip()}" if more else ""
    fields = f"""
x: Node or array.
axis: An axis, several, or None for all.{more}
returns: {returns}"""
    return publish(function, name, __name__, summary, fields, example)


_DTYPE = "dtype: See `sum`.\ninitial, where: See `sum`."
_AVERAGED = "dtype: Of the result, a float one; that of `x` unless said."
_EXTREMUM = (
    INITIAL.format(use="takes part")
    + f"\nwhere: {COMMON['where']} A mask needs `initial`."
)


def _begun(
    name: str, x: Any, neutral: int, dtype: Any, initial: Any, where: Any
) -> tuple[Node, Node | None]:
    """Return the elements to fold, without NaN and masked ones, and the initial value."""
    node = accumulated(_filled(as_operand(x, dtype), float(neutral)), dtype)
    node = filled(node, mask_of(name, node, where), neutral)
    return node, None if initial is None else start_of(name, initial, node.dtype)


def _nansum(
    x: Any,
    axis: Axis = None,
    keepdims: bool = False,
    dtype: Any = None,
    *,
    initial: Any = None,
    where: Any = True,
) -> Node:
    node, start = _begun("nansum", x, 0, dtype, initial, where)
    return sum(node, axis, keepdims, dtype, initial=start)


def _nanprod(
    x: Any,
    axis: Axis = None,
    keepdims: bool = False,
    dtype: Any = None,
    *,
    initial: Any = None,
    where: Any = True,
) -> Node:
    node, start = _begun("nanprod", x, 1, dtype, initial, where)
    return prod(node, axis, keepdims, dtype, initial=start)


def _extremum(name: str, x: Any, axis: Axis, keepdims: bool, initial: Any, mask: Any) -> Node:
    """Find an extremum without NaN: of no others it is the initial value, or else NaN."""
    fold = max if name == "nanmax" else min
    bound = -np.inf if name == "nanmax" else np.inf
    node = as_node(x)
    there = mask_of(name, node, mask)
    if no_start(name, initial, there):
        return _or_nan(fold(_filled(node, bound), axis, keepdims), node, axis, keepdims)
    start = start_of(name, initial, node.dtype)
    extremum = fold(
        _filled(node, bound),
        axis,
        keepdims,
        initial=_filled(start, bound),
        where=True if there is None else there,
    )
    if not is_float(node.dtype):
        return extremum
    none = all(isnan(node), axis, keepdims, where=True if there is None else there)
    return where(logical_and(isnan(start), none), np.nan, extremum)


def _nanmax(
    x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
) -> Node:
    return _extremum("nanmax", x, axis, keepdims, initial, where)


def _nanmin(
    x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
) -> Node:
    return _extremum("nanmin", x, axis, keepdims, initial, where)


def _nanargmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    return argmax(_filled(as_node(x), -np.inf), axis, keepdims)


def _nanargmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    return argmin(_filled(as_node(x), np.inf), axis, keepdims)


def _nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Node:
    return cumsum(_filled(as_operand(x, dtype), 0.0), axis, dtype)


def _nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Node:
    return cumprod(_filled(as_operand(x, dtype), 1.0), axis, dtype)


def _moments(
    name: str, x: Any, axis: Axis, mask: Any, dtype: Any
) -> tuple[Node, np.dtype, Node, Node, tuple[int, ...]]:
    """Return the operand, widened; its dtype; which elements count, and how many; the axes."""
    wide, target = widened(averaged(name, x, dtype))
    axes = normalized_axes(SUM, wide, axis)
    there = logical_not(isnan(wide))
    mask_node = mask_of(name, wide, mask)
    if mask_node is not None:
        there = logical_and(there, mask_node)
    return wide, target, there, SUM(cast(there, real_dtype(wide.dtype)), axes=axes), axes


def _nanmean(
    x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None, *, where: Any = True
) -> Node:
    node, target, there, count, axes = _moments("nanmean", x, axis, where, dtype)
    average = cast(divide(SUM(filled(node, there, 0), axes=axes), count), target)
    return restore_axes("nanmean", average, axes, keepdims)


def _nan_variance(
    name: str, x: Any, axis: Axis, less: Any, mask: Any, dtype: Any, mean: Any
) -> tuple[Node, tuple[int, ...], np.dtype]:
    node, target, there, count, axes = _moments(name, x, axis, mask, dtype)
    values = where(there, node, 0)
    if mean is None:
        average = restored(divide(SUM(values, axes=axes), count), axes)
    else:
        average = center_of(name, mean, node, axes)
    centered = where(there, subtract(values, average), 0)
    squares = SUM(real(multiply(centered, conj(centered))), axes=axes)
    degrees = subtract(count, less)
    enough = degrees > 0
    result = where(enough, divide(squares, where(enough, degrees, 1)), np.nan)
    return result, axes, real_dtype(target)


def _nanvar(
    x: Any,
    axis: Axis = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    correction: Any = None,
    dtype: Any = None,
    mean: Any = None,
) -> Node:
    less = degrees_of("nanvar", ddof, correction)
    result, axes, target = _nan_variance("nanvar", x, axis, less, where, dtype, mean)
    return cast(restore_axes("nanvar", result, axes, keepdims), target)


def _nanstd(
    x: Any,
    axis: Axis = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    correction: Any = None,
    dtype: Any = None,
    mean: Any = None,
) -> Node:
    less = degrees_of("nanstd", ddof, correction)
    result, axes, target = _nan_variance("nanstd", x, axis, less, where, dtype, mean)
    return cast(restore_axes("nanstd", safe_sqrt(result), axes, keepdims), target)


_ROW = '[1.0, float("nan"), 4.0]'
_MORE = """
ddof: Delta degrees of freedom: the divisor is the number of elements less `ddof`.
correction: The array API standard's name of `ddof`; it counts where both are given.
dtype: Of the result, a float one; that of `x` unless said.
mean: The mean with `keepdims=True`, where it is known; it is computed unless given."""
_SCAN = "dtype: Of the result; see `cumsum`."

nansum = _published(
    _nansum,
    "nansum",
    "Add the elements along axes, leaving NaN out.",
    "Of the dtype that `sum` gives; 0 where all elements are NaN.",
    f">>> mg.nansum({_ROW}).eval()\narray(5., dtype=float32)",
    more=_DTYPE,
)
nanprod = _published(
    _nanprod,
    "nanprod",
    "Multiply the elements along axes, leaving NaN out.",
    "Of the dtype that `prod` gives; 1 where all elements are NaN.",
    f">>> mg.nanprod({_ROW}).eval()\narray(4., dtype=float32)",
    more=_DTYPE,
)
nanmax = _published(
    _nanmax,
    "nanmax",
    "Find the largest element along axes, leaving NaN out.",
    "Of the dtype of `x`; NaN where all elements are. Elements that tie share the gradient.",
    f">>> mg.nanmax({_ROW}).eval()\narray(4., dtype=float32)",
    more=_EXTREMUM,
)
nanmin = _published(
    _nanmin,
    "nanmin",
    "Find the smallest element along axes, leaving NaN out.",
    "Of the dtype of `x`; NaN where all elements are. Elements that tie share the gradient.",
    f">>> mg.nanmin({_ROW}).eval()\narray(1., dtype=float32)",
    more=_EXTREMUM,
)
nanargmax = _published(
    _nanargmax,
    "nanargmax",
    "Find the position of the largest element along axes, leaving NaN out.",
    "int64; 0 where all elements are NaN (NumPy raises there). No gradient: integer valued.",
    f">>> mg.nanargmax({_ROW}).eval()\narray(2)",
)
nanargmin = _published(
    _nanargmin,
    "nanargmin",
    "Find the position of the smallest element along axes, leaving NaN out.",
    "int64; 0 where all elements are NaN (NumPy raises there). No gradient: integer valued.",
    f">>> mg.nanargmin({_ROW}).eval()\narray(0)",
)
nanmean = _published(
    _nanmean,
    "nanmean",
    "Average the elements along axes, leaving NaN out.",
    "Of the float dtype; NaN where all elements are. 16-bit floats are added in float32.",
    f">>> mg.nanmean({_ROW}).eval()\narray(2.5, dtype=float32)",
    more=_AVERAGED,
)
nanvar = _published(
    _nanvar,
    "nanvar",
    "Average the squared deviations from the mean along axes, leaving NaN out.",
    "Of the float dtype; NaN where there are not more than `ddof` elements.",
    f">>> mg.nanvar({_ROW}).eval()\narray(2.25, dtype=float32)",
    more=_MORE,
)
nanstd = _published(
    _nanstd,
    "nanstd",
    "Take the standard deviation along axes, leaving NaN out.",
    "Of the float dtype; NaN where there are not more than `ddof` elements. Where it is 0 so is\n"
    "    its gradient.",
    f">>> mg.nanstd({_ROW}).eval()\narray(1.5, dtype=float32)",
    more=_MORE,
)
nancumsum = _published(
    _nancumsum,
    "nancumsum",
    "Add up the elements along an axis, taking NaN as 0.",
    "Of the shape of `x`.",
    f">>> mg.nancumsum({_ROW}).eval()\narray([1., 1., 5.], dtype=float32)",
    more=_SCAN,
)
nancumprod = _published(
    _nancumprod,
    "nancumprod",
    "Multiply the elements along an axis, taking NaN as 1.",
    "Of the shape of `x`.",
    f">>> mg.nancumprod({_ROW}).eval()\narray([1., 1., 4.], dtype=float32)",
    more=_SCAN,
)

_HOLES = np.where(np.abs(CUBE) < 0.5, np.nan, CUBE)
_LINES = np.array([[np.nan, np.nan, np.nan], [np.inf, 1.0, np.nan], [np.nan, -2.0, 3.0]])
_WHOLE = np.array([[3, 1], [2, 5]])


def _samples(*more: Sample) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((CUBE,), {"axis": 1}),
        Sample((_HOLES,), {"axis": 2}, gradient=(), reason="NaN elements"),
        Sample((_HOLES,), {}, gradient=(), reason="NaN elements"),
        *more,
    ]


_KEPT = (
    Sample((_HOLES,), {"axis": (0, 2), "keepdims": True}, gradient=(), reason="NaN elements"),
    Sample((_WHOLE,), {"axis": 0}),
)
_EMPTY_LINES = Sample((_LINES,), {"axis": 1}, gradient=(), reason="NaN elements")
_DEGREES = Sample((CUBE,), {"axis": 2, "ddof": 1})


def _reference(name: str) -> Callable[..., Any]:
    def reference(x: np.ndarray, **options: Any) -> Any:
        axis = options.get("axis")
        if "arg" in name and isinstance(axis, tuple):
            rows_last = np.moveaxis(x, axis, range(-len(axis), 0))
            options["axis"] = -1
            rows = rows_last.reshape(*rows_last.shape[: -len(axis)], -1)
            by_row = getattr(np, name)(rows, axis=-1)
            return np.expand_dims(by_row, axis) if options.get("keepdims") else by_row
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of lines of NaN
            result = getattr(np, name)(x, **options)
        result_dtype = np.float64 if np.asarray(result).dtype.kind == "f" else None
        return np.asarray(result, result_dtype)

    return reference


_OF_COMPLEX = ("nansum", "nanprod", "nanmean", "nanvar", "nanstd")


def _record(name: str, doc: str, *more: Sample, numerics: str = "reassoc") -> Composite:
    scan = "cum" in name
    return Composite(
        name=name,
        kind=Kind.INDEX if scan else Kind.REDUCTION,
        function=globals()[name],
        doc=doc,
        dtypes=INEXACT if name in _OF_COMPLEX else REAL,
        tests=Tests(samples=_samples(*([] if scan else _KEPT), *more), reference=_reference(name)),
        no_gradient="integer valued" if "arg" in name else "",
        numerics=numerics,
    )


RECORDS = (
    _record("nansum", "The sum along axes, without NaN.", _EMPTY_LINES),
    _record("nanprod", "The product along axes, without NaN.", _EMPTY_LINES),
    _record("nanmax", "The largest element, without NaN.", _EMPTY_LINES, numerics="exact"),
    _record("nanmin", "The smallest element, without NaN.", _EMPTY_LINES, numerics="exact"),
    _record("nanargmax", "The position of the largest element, without NaN.", numerics="exact"),
    _record("nanargmin", "The position of the smallest element, without NaN.", numerics="exact"),
    _record("nanmean", "The mean along axes, without NaN."),
    _record("nanvar", "The variance along axes, without NaN.", _DEGREES),
    _record("nanstd", "The standard deviation along axes, without NaN.", _DEGREES),
    _record("nancumsum", "The running sums along an axis, NaN as 0."),
    _record("nancumprod", "The running products along an axis, NaN as 1."),
)
