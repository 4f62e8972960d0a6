"""Surrounding an array with more elements: `pad`, with all modes of NumPy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtypes import is_complex, is_float, is_integer
from ...errors import ConfigError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests, describe
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.rounding import floor, rint
from ..indexing.gathering import take
from ..indexing.iota import arange
from ..leaf import constant, extent
from ..reduction import primitives as reduction
from ..reduction.quantiles import median
from ..reduction.statistics import mean
from .arrange import reshape
from .axes import MATRIX
from .joining import broadcast_to, concatenate
from .slicing import PLACE, cut

__all__ = ["pad"]

_STATISTICS = ("maximum", "mean", "median", "minimum")
_MIRRORS = ("reflect", "symmetric")
_MODES = ("constant", "edge", "linear_ramp", *_STATISTICS, *_MIRRORS, "wrap", "empty")
_OPTIONS = {  # of each that is given to some modes alone: those
    "constant_values": ("constant",),
    "end_values": ("linear_ramp",),
    "reflect_type": _MIRRORS,
    "stat_length": _STATISTICS,
}
_FLOAT64 = np.dtype(np.float64)

Pairs = list[tuple[Extent, Extent]]


@documented
def pad(
    x: Any,
    pad_width: Any,
    mode: str = "constant",
    constant_values: Any = None,
    *,
    end_values: Any = None,
    reflect_type: str | None = None,
    stat_length: Any = None,
) -> Node:
    """Surround an array with more elements, one axis after the other.

    x: Node or array.
    pad_width: Elements to add: one int for every side, one pair (before, after) for every axis, a
        pair for each axis, or a dict from axes to those. Dims may stand for ints.
    mode: "constant"; "edge" repeats the outermost elements; "reflect" mirrors at them, without
        repeating them, and "symmetric" with; "wrap" continues at the other end; "linear_ramp" leads
        from the outermost elements to `end_values`; "maximum", "mean", "median" and "minimum" are
        those of the elements along the axis; "empty" leaves the values open (they are 0).
    constant_values: The number that mode "constant" adds, 0 unless said; or numbers, as the pairs
        of `pad_width`.
    end_values: The numbers that mode "linear_ramp" ends with, 0 unless said; as `constant_values`.
    reflect_type: "even" (unless said), or "odd": modes "reflect" and "symmetric" then subtract what
        they mirror from twice the outermost elements.
    stat_length: How many elements at the side count for a maximum, mean, median or minimum; all
        unless said. An int, or ints as the pairs of `pad_width`.
    returns: Of the dtype of `x`: means and medians of integers are rounded, ramps rounded down.
    raises ShapeError: If widths are negative or not one pair an axis, or an axis is empty and not
        padded with constants. A symbolic axis must be as long as what is mirrored or continued,
        which the call checks.
    raises DTypeError: If integers are padded with a number that their dtype does not hold.

    >>> mg.pad(mg.constant([1, 2, 3]), (1, 2)).eval()
    array([0, 1, 2, 3, 0, 0], dtype=int32)
    >>> mg.pad(mg.constant([1, 2, 3]), 2, mode="reflect").eval()
    array([3, 2, 1, 2, 3, 2, 1], dtype=int32)
    >>> mg.pad(mg.constant([4.0, 8.0]), 2, mode="linear_ramp").eval()
    array([0., 2., 4., 8., 4., 0.], dtype=float32)
    """
    node = as_node(x)
    call = Call(PAD, (node,))
    options = {
        "constant_values": constant_values,
        "end_values": end_values,
        "reflect_type": reflect_type,
        "stat_length": stat_length,
    }
    _check_options(mode, options)
    pairs = _widths(call, pad_width, node.ndim)
    if mode in ("constant", "empty"):
        values = _values(call, "constant_values", constant_values, node)
        return _constant_pad(node, pairs, values)
    ends = _values(call, "end_values", end_values, node)
    lengths = _lengths(call, stat_length, node.ndim)
    for axis, widths in enumerate(pairs):
        if all(isinstance(width, int) and width == 0 for width in widths):
            continue
        if isinstance(node.shape[axis], int) and node.shape[axis] == 0:
            raise call.shape_error(
                f"axis {axis} is empty, and mode={mode!r} makes elements of its elements",
                need="an extent of at least 1",
                hint="mode='constant'",
            )
        if mode == "edge":
            parts = [_at_end(node, axis, last) for last in (False, True)]
            parts = [_repeated(e, axis, width) for e, width in zip(parts, widths, strict=True)]
        elif mode == "linear_ramp":
            parts = [_ramp(node, axis, widths[side], ends[axis][side], side) for side in (0, 1)]
        elif mode in _STATISTICS:
            parts = [
                _repeated(_statistic(node, axis, mode, lengths[axis][side], side), axis, width)
                for side, width in enumerate(widths)
            ]
        else:
            parts = _continued(call, node, axis, widths, mode, reflect_type == "odd")
        nonempty = [p for p in (parts[0], node, parts[1]) if not _is_empty(p, axis)]
        node = concatenate(nonempty, axis)
    return node


# What the user gave.


def _check_options(mode: Any, options: Mapping[str, Any]) -> None:
    if not isinstance(mode, str) or mode not in _MODES:
        hint = "mg.concatenate with what is to stand at the border" if callable(mode) else None
        raise ShapeError(message(f"pad: mode={mode!r}", f"one of {', '.join(_MODES)}", hint))
    for name, value in options.items():
        if value is not None and mode not in _OPTIONS[name]:
            raise ConfigError(
                message(
                    f"pad: {name} has no meaning for mode={mode!r}",
                    need=f"mode {' or '.join(map(repr, _OPTIONS[name]))}",
                )
            )
    if options["reflect_type"] not in (None, "even", "odd"):
        raise ConfigError(
            message(f"pad: reflect_type={options['reflect_type']!r}", need="'even' or 'odd'")
        )


def _is_extent(value: Any) -> bool:
    return isinstance(value, (int, np.integer, Dim)) and not isinstance(value, bool)


def _is_empty(part: Node, axis: int) -> bool:
    size = part.shape[axis]
    return isinstance(size, int) and size == 0


def _pairs(call: Call, name: str, argument: Any, ndim: int) -> Pairs:
    """Return a pair (before, after) of extents for each axis."""

    def plain(value: Any) -> Extent:
        return value if isinstance(value, Dim) else int(value)

    def refused() -> ShapeError:
        return call.shape_error(
            f"{name}={argument!r} for {ndim} axes",
            need="one int, one pair (before, after), or a pair per axis",
        )

    if _is_extent(argument):
        return [(plain(argument), plain(argument))] * ndim
    if isinstance(argument, (np.ndarray, Node)):
        argument = argument.tolist() if isinstance(argument, np.ndarray) else None
    if _is_extent(argument):
        return [(plain(argument), plain(argument))] * ndim
    if not isinstance(argument, (list, tuple)):
        raise refused()
    entries: list[Any] = [(each, each) if _is_extent(each) else each for each in argument]
    if all(map(_is_extent, argument)) and len(argument) in (1, 2):
        entries = [(argument[0], argument[-1])] * ndim
    elif len(entries) == 1:
        entries = entries * ndim
    result: Pairs = []
    for entry in entries:
        if not isinstance(entry, (list, tuple)) or not all(map(_is_extent, entry)):
            raise refused()
        if len(entry) not in (1, 2):
            raise refused()
        result.append((plain(entry[0]), plain(entry[-1])))
    if len(result) != ndim:
        raise refused()
    return result


def _widths(call: Call, pad_width: Any, ndim: int) -> Pairs:
    if isinstance(pad_width, Mapping):
        pairs: Pairs = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            pairs[call.axis(axis, ndim)] = _pairs(call, "pad_width", width, 1)[0]
    else:
        pairs = _pairs(call, "pad_width", pad_width, ndim)
    for pair in pairs:
        for width in pair:
            if not dims.require(width, ">=", 0, []):
                raise call.shape_error(
                    f"pad_width={pad_width!r} has the negative width {width}",
                    hint="slice to take elements away",
                )
    return pairs


def _lengths(call: Call, value: Any, ndim: int) -> list[tuple[Extent | None, Extent | None]]:
    if value is None:
        return [(None, None)] * ndim
    pairs = _pairs(call, "stat_length", value, ndim)
    for pair in pairs:
        for length in pair:
            if not dims.require(length, ">=", 1, []):
                raise call.shape_error(
                    f"stat_length={value!r} has the length {length}", need="at least 1"
                )
    return [*pairs]


def _values(call: Call, name: str, value: Any, node: Node) -> list[tuple[Any, Any]]:
    """Return a pair (before, after) of numbers of the operand's dtype for each axis."""
    dtype, ndim = node.dtype, node.ndim
    if value is None:
        value = 0
    if isinstance(value, Node):
        raise call.dtype_error(
            f"{name} is {describe(value)}",
            need="numbers, known when the graph is built",
            hint="mg.where, or mg.concatenate with what is to stand at the border",
        )
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise call.dtype_error(f"{name}={value!r}", need="numbers")
    try:
        pairs = np.broadcast_to(array, (ndim, 2))
    except ValueError:
        raise call.shape_error(
            f"{name}={value!r} for {ndim} axes",
            need="one number, one pair (before, after), or a pair per axis",
        ) from None
    is_lossy = pairs.dtype.kind == "c" and not is_complex(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        result = (pairs.real if is_lossy else pairs).astype(dtype)
        if is_lossy or not (is_float(dtype) or is_complex(dtype)):
            is_lossy = is_lossy or bool(np.any(result != pairs))
    if is_lossy:
        raise call.dtype_error(
            f"{name}={value!r} for elements of {dtype.name}",
            need="values that the dtype holds",
            hint=f"mg.cast(x, '{array.dtype.name}')",
        )
    return [(row[0], row[1]) for row in result]


# The padding parts.


def _constant_pad(node: Node, pairs: Pairs, values: list[tuple[Any, Any]]) -> Node:
    """Put constants around: at once where they are one number."""

    def placed(x: Node, around: Pairs, value: Any) -> Node:
        shape = tuple(
            before + size + after for size, (before, after) in zip(x.shape, around, strict=True)
        )
        if shape == x.shape:
            return x
        starts = tuple(before for before, _ in around)
        return PLACE(x, starts=starts, steps=(1,) * x.ndim, shape=shape, value=value)

    flat = [value for pair in values for value in pair]
    if all(value.tobytes() == flat[0].tobytes() for value in flat):
        return placed(node, pairs, flat[0]) if flat else node
    nothing: Pairs = [(0, 0)] * node.ndim
    for axis, ((before, after), pair) in enumerate(zip(pairs, values, strict=True)):
        for around, value in (((before, 0), pair[0]), ((0, after), pair[1])):
            node = placed(node, [*nothing[:axis], around, *nothing[axis + 1 :]], value)
    return node


def _at_end(node: Node, axis: int, last: bool) -> Node:
    """Return the first (or last) element along an axis, which stays with extent 1."""
    return cut(node, axis, node.shape[axis] - 1 if last else 0, 1)


def _repeated(edge: Node, axis: int, count: Extent) -> Node:
    shape = list(edge.shape)
    shape[axis] = count
    return broadcast_to(edge, shape)


def _along(line: Node, axis: int, ndim: int) -> Node:
    """Return a vector as values along one of several axes."""
    return reshape(line, [1] * axis + [line.shape[0]] + [1] * (ndim - 1 - axis))


def _ramp(node: Node, axis: int, width: Extent, end: Any, after: int) -> Node:
    """Return equal steps from a value to the element at a side, which is not among them."""
    dtype = node.dtype
    inexact = is_float(dtype) or is_complex(dtype)
    edge = cast(_at_end(node, axis, bool(after)), dtype if inexact else _FLOAT64)
    start = constant(end, edge.dtype)
    if isinstance(width, int):
        places = np.arange(width)[::-1] if after else np.arange(width)
        count, line = constant(max(width, 1), edge.dtype), constant(places, edge.dtype)
    else:
        line = cast(arange(width), edge.dtype)
        count = cast(extent(width), edge.dtype)
        line = subtract(subtract(count, 1), line) if after else line
    step = divide(subtract(edge, start), count)
    ramp = add(multiply(step, _along(line, axis, node.ndim)), start)
    return ramp if inexact else cast(floor(ramp), dtype)


def _statistic(node: Node, axis: int, mode: str, length: Extent | None, after: int) -> Node:
    """Return a maximum, mean, median or minimum of the elements at a side."""
    size = node.shape[axis]
    part = node
    if length is not None:
        if isinstance(length, int) and isinstance(size, int):
            length = length if length < size else size
        part = cut(node, axis, size - length if after else 0, length)
    if mode in ("maximum", "minimum"):
        return (reduction.max if mode == "maximum" else reduction.min)(part, axis, True)
    averaged = median if mode == "median" else mean
    if is_integer(node.dtype):
        return cast(rint(averaged(cast(part, _FLOAT64), axis, True)), node.dtype)
    return cast(averaged(part, axis, True), node.dtype)


def _continued(
    call: Call, node: Node, axis: int, widths: tuple[Extent, Extent], mode: str, odd: bool
) -> list[Node]:
    """Return the parts before and after a mirrored or periodic axis."""
    size = node.shape[axis]
    spared = 1 if mode == "reflect" else 0
    before, after = widths
    if isinstance(size, int) and isinstance(before, int) and isinstance(after, int):
        if max(before, after) > size - spared:
            return _mirrored_often(node, axis, (before, after), mode, odd)
    else:
        for width in widths:
            if not dims.require(size, ">=", width + spared, []):
                raise call.shape_error(
                    f"axis {axis} of extent {size} is too short for {width} elements of "
                    f"mode={mode!r}",
                    need="an extent above the width" if spared else "an extent of the width",
                )
    if mode == "wrap":
        return [cut(node, axis, size - before, before), cut(node, axis, 0, after)]
    parts = [
        cut(node, axis, before - 1 + spared, before, -1),
        cut(node, axis, size - 1 - spared, after, -1),
    ]
    if not odd:
        return parts
    edges = [_at_end(node, axis, last) for last in (False, True)]
    return [subtract(add(e, e), part) for e, part in zip(edges, parts, strict=True)]


def _mirrored_often(
    node: Node, axis: int, widths: tuple[int, int], mode: str, odd: bool
) -> list[Node]:
    """Return the parts before and after an axis that is used more than once."""
    size: Any = node.shape[axis]
    places = np.pad(np.arange(size), widths, mode=mode)  # type: ignore[call-overload]
    sides = [slice(0, widths[0]), slice(widths[0] + size, None)]
    parts = [take(node, constant(places[side].astype(np.int32)), axis) for side in sides]
    if not odd or mode == "wrap":
        return parts
    # The value at -k is twice the first less that at k, and so on, outwards from each end.
    counts = np.arange(-widths[0], size + widths[1])
    period = 2 * size if mode == "symmetric" else 2 * max(size - 1, 1)
    turns, within = np.divmod(counts, period)
    mirrored = within >= size
    first, last = (_at_end(node, axis, at) for at in (False, True))
    wide = np.dtype(np.int64) if is_integer(node.dtype) else node.dtype
    first, last = cast(first, wide), cast(last, wide)

    def weighed(x: Node, weights: np.ndarray) -> Node:
        return multiply(x, _along(constant(weights, wide), axis, node.ndim))

    result = []
    for part, side in zip(parts, sides, strict=True):
        is_mirrored = mirrored[side]
        value = weighed(cast(part, wide), np.where(is_mirrored, -1, 1))
        value = add(value, weighed(last, 2 * turns[side] + 2 * is_mirrored))
        value = subtract(value, weighed(first, 2 * turns[side]))
        result.append(cast(value, node.dtype))
    return result


def _reference(x: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    return np.pad(x, pad_width, mode, **options)  # type: ignore[call-overload]


PAD = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=pad,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,), {"pad_width": ((1, 0), (2, 1)), "constant_values": 0.5}),
            Sample((MATRIX,), {"pad_width": 1, "constant_values": ((1.5, -2.0), (0.25, 3.0))}),
            Sample((MATRIX,), {"pad_width": 1, "mode": "edge"}),
            Sample((MATRIX,), {"pad_width": ((0, 1), (1, 2)), "mode": "reflect"}),
            Sample((MATRIX,), {"pad_width": (2, 1), "mode": "symmetric"}),
            Sample((MATRIX,), {"pad_width": (1, 2), "mode": "wrap"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (np.ones((0, 2)),),
                ShapeError,
                "pad: axis 0 is empty, and mode='reflect' makes elements of its elements",
                {"pad_width": 2, "mode": "reflect"},
            ),
            BadSample(
                (MATRIX,),
                ShapeError,
                "pad: pad_width=-1 has the negative width -1",
                {"pad_width": -1},
            ),
            BadSample(
                (MATRIX,), ShapeError, "pad: mode='around'", {"pad_width": 1, "mode": "around"}
            ),
        ],
        reference=_reference,
    ),
    numerics="exact",
)

RECORDS = (PAD,)
