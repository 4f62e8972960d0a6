"""How reductions are made: axes, shape rules, functions and records from a few words.

The operations drop the axes that they reduce; `keepdims` is an `expand_dims` behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...dtypes import canonical, is_inexact, is_unsigned
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import COMMON
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Kind, Op, Sample, describe
from ...ir.types import Extent, Shape, Type
from ..convert import as_node, cast
from ..elementwise.family import BOOL, publish
from ..shape.arrange import expand_dims
from ..shape.axes import axes_of
from ..shape.joining import broadcast_to
from .masked import (
    INITIAL,
    filled,
    mask_of,
    no_start,
    start_of,
    without_elements,
    worst,
)

Axis = int | Sequence[int] | None

_INT64 = np.dtype(np.int64)
CUBE = np.array(
    [
        [[0.7, -1.2, 1.9, 0.4], [1.1, 2.3, -0.6, -1.4], [0.2, -2.1, 1.5, 0.9]],
        [[-0.8, 1.3, 0.5, -1.7], [2.6, -0.3, 1.8, 0.1], [-1.6, 1.0, -0.9, 2.2]],
    ]
)
WHOLE_CUBE = np.array([[3, -1, 4], [1, -5, 9]], dtype=np.int8)


# Axes and rules.


def normalized_axes(op: Op, x: Node, axis: Any) -> tuple[int, ...]:
    """Return the axes as sorted non-negative ints; None means all."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(sorted(axes_of(Call(op, (x,)), axis, x.ndim)))


def dropped(call: Call, shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return a shape without some of its axes, each of which is given once."""
    for a in axes:
        call.check_axis(a, len(shape))
    if len(set(axes)) != len(axes):
        raise call.shape_error(f"axes={axes}", need="each axis once")
    return tuple(extent for a, extent in enumerate(shape) if a not in axes)


def _not_empty(call: Call, shape: Shape, axes: tuple[int, ...]) -> None:
    for a in axes:
        if type(shape[a]) is int and shape[a] == 0:
            raise call.shape_error(
                f"axis {a} is empty, and there is no value without elements",
                need="an extent of at least 1",
            )


def same_dtype(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    """Return the operand's dtype, without the reduced axes."""
    return Type(x.dtype, dropped(call, x.shape, axes))


def extremum_type(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    """Return the operand's dtype; the reduced axes must not be empty."""
    _not_empty(call, x.shape, axes)
    return Type(x.dtype, dropped(call, x.shape, axes))


def position_type(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    """Return int64; the reduced axes must not be empty."""
    _not_empty(call, x.shape, axes)
    return Type(_INT64, dropped(call, x.shape, axes))


def truth_type(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    """Return bool, which the operand must be too."""
    if x.dtype != BOOL:
        raise call.dtype_error(f"operand of dtype {x.dtype.name}", need="bool")
    return Type(BOOL, dropped(call, x.shape, axes))


def restored(x: Any, axes: tuple[int, ...]) -> Node:
    """Return a reduced value with the reduced axes back, as extents 1."""
    return expand_dims(x, axes) if axes else x


def restore_axes(name: str, x: Node, axes: tuple[int, ...], keepdims: Any) -> Node:
    """Return a reduced value, with the reduced axes back where the user keeps them.

    raises DTypeError: If `keepdims` says neither: NumPy has another argument in its place.
    """
    return restored(x, axes) if keeps(name, keepdims) else x


def keeps(name: str, keepdims: Any) -> bool:
    """Tell whether reduced axes are kept; raise `DTypeError` where `keepdims` is no bool."""
    if keepdims is None or (isinstance(keepdims, (int, np.bool_)) and keepdims in (0, 1)):
        return bool(keepdims)
    try:
        hint = f"dtype='{canonical(keepdims).name}', by its name"
    except DTypeError:
        hint = "options by their names, as keepdims=True"
    text = describe(keepdims) if isinstance(keepdims, Node) else repr(keepdims)
    raise DTypeError(message(f"{name}: keepdims is {text}", need="True or False", hint=hint))


def repeat_over(x: Node, like: Node, axes: tuple[int, ...]) -> Node:
    """Return a reduced value repeated over the reduced axes of `like`."""
    return broadcast_to(restored(x, axes), like.shape)


def extent_product(shape: Shape, axes: tuple[int, ...]) -> Extent:
    """Return how many elements a reduction over the axes folds into one."""
    count: Extent = 1
    for a in axes:
        count = count * shape[a]
    return count


# Functions and records.


class Fold(Protocol):
    """A reduction as users call it."""

    def __call__(self, x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
        """Reduce `x` along axes."""


class TypedFold(Protocol):
    """A reduction whose elements may be converted first, with a value to begin with and a mask."""

    def __call__(
        self,
        x: Any,
        axis: Axis = None,
        keepdims: bool = False,
        dtype: Any = None,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        """Reduce `x` along axes."""


class ExtremumFold(Protocol):
    """A reduction with a value to begin with and a mask."""

    def __call__(
        self,
        x: Any,
        axis: Axis = None,
        keepdims: bool = False,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        """Reduce `x` along axes."""


class TruthFold(Protocol):
    """A reduction of truths with a mask."""

    def __call__(
        self, x: Any, axis: Axis = None, keepdims: bool = False, *, where: Any = True
    ) -> Node:
        """Reduce `x` along axes."""


_FIELDS = """
x: Node or array{kind}.
axis: An axis, several, or None for all{order}.{options}
returns: {returns}"""
_DTYPE = """
dtype: Of the elements before they are folded, and of the result. By default integers narrower than
    64 bits (and bools) become int64, unsigned ones uint32, as the array API standard has it
    where the default integer is int32; uint64 stays."""
_HOLD = """
where: Bools that broadcast to the shape of `x`: only elements where they hold count."""


def accumulated(x: Any, dtype: Any) -> Node:
    """Return the elements in the dtype in which they are added: `dtype`, or a wide integer's.

    Narrow unsigned integers become uint32, the unsigned kin of the default int32.
    """
    if dtype is not None:
        return cast(x, canonical(dtype))
    node = as_node(x)
    if is_inexact(node.dtype) or node.dtype.itemsize == 8:
        return node
    return cast(node, np.uint32 if is_unsigned(node.dtype) else np.int64)


def _apply(op: Op, node: Node, axis: Axis, keepdims: bool) -> Node:
    axes = normalized_axes(op, node, axis)
    return restore_axes(op.name, op(node, axes=axes), axes, keepdims)


def _record(name: str, function: Callable[..., Node], summary: str, **fields: Any) -> Op:
    return Op(
        name=name,
        kind=Kind.REDUCTION,
        doc=summary,
        function=function,
        flops=lambda x, **attrs: x.size,
        **fields,
    )


def _document(
    function: Callable[..., Node],
    name: str,
    summary: str,
    example: str,
    notes: str = "",
    **parts: str,
) -> None:
    fields = _FIELDS.format(**{"kind": "", "order": "", "options": "", **parts})
    home = f"{__name__.rpartition('.')[0]}.primitives"  # who defines it
    publish(function, name, home, summary, notes, fields, example)


def typed_fold(
    name: str,
    summary: str,
    words: dict[str, str],
    neutral: int,
    join: Callable[[Any, Any], Node],
    **fields: Any,
) -> tuple[TypedFold, Op]:
    """Make a reduction with a `dtype` option, and its record; `words` fill the docstring.

    `neutral` stands for elements that do not count, and `join` takes an initial value in.
    ``of_none(node, axes, bound)`` gives the result where there are no elements.
    """

    def function(
        x: Any,
        axis: Axis = None,
        keepdims: bool = False,
        dtype: Any = None,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        node = accumulated(x, dtype)
        node = filled(node, mask_of(name, node, where), neutral)
        result = _apply(op, node, axis, keepdims)
        return result if initial is None else join(result, start_of(name, initial, node.dtype))

    use = "the result begins with; not at all unless said"
    options = f"{_DTYPE}\n{INITIAL.format(use=use)}"
    _document(function, name, summary, options=options, **words)
    op = _record(name, function, summary, **fields)
    return function, op


def extremum_fold(
    name: str,
    summary: str,
    words: dict[str, str],
    of_none: Callable[[Node, tuple[int, ...], Any], Node],
    join: Callable[[Any, Any], Node],
    **fields: Any,
) -> tuple[ExtremumFold, Op]:
    """Make a search for the largest or smallest value, and its record.

    `words` fill the docstring, and `join` takes an initial value in.
    ``of_none(node, axes, bound)`` gives the result where there are no elements.
    """
    largest = name == "max"

    def function(
        x: Any,
        axis: Axis = None,
        keepdims: bool = False,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        node = as_node(x)
        mask = mask_of(name, node, where)
        if no_start(name, initial, mask):
            return _apply(op, node, axis, keepdims)
        start = start_of(name, initial, node.dtype)
        axes = normalized_axes(op, node, axis)
        bound = worst(node.dtype, largest)
        if without_elements(node, axes):
            extremum = of_none(node, axes, bound)
        else:
            extremum = op(filled(node, mask, bound), axes=axes)
        return join(restore_axes(name, extremum, axes, keepdims), start)

    use = "takes part, also where there are no elements;\n    it shares the gradient of a tie"
    options = f"\n{INITIAL.format(use=use)}\nwhere: {COMMON['where']} A mask needs `initial`."
    _document(function, name, summary, options=options, **words)
    op = _record(name, function, summary, **fields)
    return function, op


def truth_fold(
    name: str, summary: str, words: dict[str, str], neutral: bool, **fields: Any
) -> tuple[TruthFold, Op]:
    """Make a reduction of truths, and its record; `words` fill the docstring.

    `neutral` stands for elements that do not count.
    """

    def function(x: Any, axis: Axis = None, keepdims: bool = False, *, where: Any = True) -> Node:
        node = cast(x, BOOL)
        return _apply(op, filled(node, mask_of(name, node, where), neutral), axis, keepdims)

    _document(function, name, summary, options=_HOLD, **words)
    op = _record(name, function, summary, **fields)
    return function, op


def fold(name: str, summary: str, words: dict[str, str], **fields: Any) -> tuple[Fold, Op]:
    """Make a reduction and its record; `words` fill the docstring."""

    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
        return _apply(op, as_node(x), axis, keepdims)

    _document(function, name, summary, **words)
    op = _record(name, function, summary, **fields)
    return function, op


# Samples and references.


def bad_axes(name: str) -> list[BadSample]:
    """Return the bad samples of every reduction: axes that do not exist."""
    return [
        BadSample((CUBE,), ShapeError, f"{name}: axis=3 is out of range for 3 axes", {"axis": 3}),
        BadSample(
            (CUBE,), ShapeError, f"{name}: axis=(1, -2) names axis 1 twice", {"axis": (1, -2)}
        ),
        BadSample((CUBE,), DTypeError, f"{name}: axis=1.0 is not an int", {"axis": 1.0}),
    ]


def bad_extremum(name: str) -> list[BadSample]:
    """Return the bad samples of reductions that need an element."""
    text = f"{name}: axis 1 is empty, and there is no value without elements"
    return [*bad_axes(name), BadSample((np.ones((2, 0)),), ShapeError, text, {"axis": 1})]


def fold_samples(*more: Sample) -> Callable[[], list[Sample]]:
    """Return samples over no, one, several and all axes, and `more`."""
    return lambda: [
        Sample((CUBE,)),
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE,), {"axis": -1, "keepdims": True}),
        Sample((CUBE,), {"axis": (0, 2)}),
        *more,
    ]


_TIES = np.array([[1.0, 3.0, 3.0], [np.nan, 2.0, np.nan], [-np.inf, -np.inf, -np.inf]])
NOT_SMOOTH = Sample((_TIES,), {"axis": 1}, gradient=(), reason="ties and NaN")
NO_AXES = Sample((CUBE,), {"axis": ()})


def fold_reference(name: str) -> Callable[..., Any]:
    """Return NumPy's function of that name."""
    function = getattr(np, name)

    def reference(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        return function(x, axis=axis, keepdims=keepdims, **options)

    return reference


def position_reference(name: str) -> Callable[..., Any]:
    """Return NumPy's argmax or argmin, extended to the samples' two axes."""

    def reference(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if not isinstance(axis, tuple):
            return getattr(np, name)(x, axis=axis, keepdims=keepdims)
        assert axis == (0, 2), "the one case of several axes among the samples"
        rows = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
        return getattr(np, name)(rows, axis=1)

    return reference
