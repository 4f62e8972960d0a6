"""Quantiles: interpolation in the sorted elements, with and without NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_complex, is_float
from ...errors import ShapeError
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent, Operand
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, subtract
from ..elementwise.bits import logical_and, logical_not, logical_or
from ..elementwise.comparison import equal, less, maximum, minimum, where
from ..elementwise.family import floating, publish
from ..elementwise.rounding import isfinite, isnan
from ..indexing.gathering import size_of, take, take_along_axis
from ..indexing.iota import INT64
from ..indexing.sorting import argsort, sort
from ..leaf import real_array
from ..shape.arrange import expand_dims, moveaxis, reshape
from ..shape.axes import axes_of
from ..shape.slicing import cut
from .cumulative import cumsum
from .folding import CUBE, Axis, extent_product, keeps
from .primitives import sum
from .quantile_positions import METHODS, between, neighbours, position
from .weighting import weights_like

__all__ = [
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

_FLOAT64 = np.dtype(np.float64)



def _lines(record: Composite, node: Node, axis: Axis) -> tuple[Node, tuple[int, ...]]:
    """Return an operand with the axes that are folded as its last one, and these axes."""
    call = Call(record, (node,))
    axes = tuple(range(node.ndim)) if axis is None else tuple(axes_of(call, axis, node.ndim))
    other_axes = [a for a in range(node.ndim) if a not in axes]
    count = extent_product(node.shape, axes)
    folded_last = moveaxis(node, axes, range(node.ndim - len(axes), node.ndim))
    if isinstance(count, int) and not count:
        raise call.shape_error("no elements, and so no quantile", need="at least one element")
    return reshape(folded_last, (*[node.shape[a] for a in other_axes], count)), tuple(sorted(axes))


def _weighted(
    record: Composite, node: Node, q: Node, axis: Axis, weights: Any, skip: bool
) -> tuple[Node, tuple[int, ...]]:
    """Find quantiles by the weights: the first element up to which their part is at least `q`."""
    _check_weights(record, node, weights)
    worth = as_node(weights)
    if is_complex(worth.dtype):
        raise Call(record, (node, worth)).dtype_error("complex weights", need="real ones")
    lines, axes = _lines(record, node, axis)
    worth, _ = _lines(record, weights_like(record, node, cast(worth, _FLOAT64), axis), axis)
    order = argsort(lines)
    ordered = take_along_axis(lines, order, axis=-1)
    worth = take_along_axis(worth, order, axis=-1)
    hole = isnan(ordered)
    if skip:
        worth = where(hole, 0.0, worth)
    share = cumsum(worth, axis=-1)
    total = share[..., -1:]
    # Elements of no weight in front are not the first ones.
    behind = logical_or(less(divide(share, total), expand_dims(_with_line_axes(q, lines), -1)),
                        equal(share, 0))  # fmt: skip
    place = minimum(sum(cast(behind, INT64), axis=-1), as_node(size_of(lines.shape[-1])) - 1)
    result = _picked(ordered, place, q.ndim)
    bad = logical_not(logical_and(less(0, total), isfinite(total)))
    if not skip:
        bad = logical_or(bad, hole[..., -1:])
    return where(bad[..., 0], np.nan, result), axes


def _with_line_axes(q: Node, lines: Node) -> Node:
    """Append axes of extent 1 to quantiles, one for each axis of the lines."""
    return reshape(q, (*q.shape, *[1] * (lines.ndim - 1)))


def _check_weights(record: Composite, node: Node, weights: Any) -> None:
    values = weights.attrs.get("value") if isinstance(weights, Node) else weights
    if values is None or np.iscomplexobj(values):  # refused where they are promoted
        return
    if not (real_array("weights", values) >= 0).all():
        raise Call(record, (node,)).shape_error(
            "a weight is negative, or NaN", need="weights of at least 0"
        )


def _order(
    record: Composite, x: Any, q: Any, axis: Axis, method: str, skip: bool, weights: Any = None
) -> Any:
    node = floating(x)
    if method not in METHODS:
        raise Call(record, (node,)).shape_error(
            f"method={method!r}", need=f"one of {', '.join(METHODS)}"
        )
    which = q if isinstance(q, Node) else as_node(np.asarray(q, np.float64))
    if not is_float(which.dtype):
        which = cast(which, _FLOAT64)
    if weights is not None:
        if method != "inverted_cdf":
            raise Call(record, (node,)).shape_error(
                f"weights= with method={method!r}",
                need="a method that takes elements as they are",
                hint="method='inverted_cdf'",
            )
        return _weighted(record, node, cast(which, _FLOAT64), axis, weights, skip)
    lines, axes = _lines(record, node, axis)
    ordered = sort(lines)
    extent = ordered.shape[-1]
    ndim = lines.ndim - 1
    exact = cast(which, _FLOAT64)
    if skip:
        count = cast(sum(logical_not(isnan(lines)), axis=-1), _FLOAT64)
        count = maximum(count, 1.0)  # of a line of NaN the first, NaN, is taken
        place = position(_with_line_axes(exact, lines), count, method)
        low, high = neighbours(place, subtract(count, 1.0))
        first, second = (_picked(ordered, each, which.ndim) for each in (low, high))
        share = cast(subtract(place, low), lines.dtype)
        return between(first, second, share), axes
    total = float(extent) if isinstance(extent, int) else cast(size_of(extent), _FLOAT64)
    place = position(exact, total, method)
    low, high = neighbours(place, subtract(total, 1.0))
    first, second = (
        moveaxis(
            take(ordered, cast(each, INT64), axis=-1),
            range(ndim, ndim + which.ndim),
            range(which.ndim),
        )
        for each in (low, high)
    )
    share = cast(subtract(place, low), lines.dtype)
    result = between(first, second, reshape(share, (*which.shape, *[1] * ndim)))
    # NaN sorts last: a single one makes the last element NaN, and so the result.
    worst = reshape(cut(ordered, ndim, extent - 1, 1), ordered.shape[:-1])
    return where(isnan(worst), worst, result), axes


def _picked(ordered: Node, places: Node, rank: int) -> Node:
    """Return, for each line, the elements at positions of its own, which have `rank` axes more."""
    order = list(range(rank, places.ndim))
    lead = cast(moveaxis(places, order, range(len(order))), INT64) if rank else cast(places, INT64)
    flat = reshape(lead, (*ordered.shape[:-1], _size(places.shape[:rank])))
    elements = take_along_axis(ordered, flat, axis=-1)
    elements = reshape(elements, (*ordered.shape[:-1], *places.shape[:rank]))
    return moveaxis(elements, range(len(order), elements.ndim), range(rank)) if rank else elements


def _size(shape: tuple[Extent, ...]) -> Extent:
    total: Extent = 1
    for extent in shape:
        total = total * extent
    return total


def _restored(name: str, value: Node, axes: tuple[int, ...], rank: int, keepdims: Any) -> Node:
    return expand_dims(value, [rank + a for a in axes]) if keeps(name, keepdims) and axes else value


def _rank(q: Any) -> int:
    return q.ndim if isinstance(q, Node) else np.ndim(q)


def _checked(record: Composite, x: Any, q: Any, highest: float) -> None:
    if isinstance(q, Node):
        return
    values = real_array("q", q)
    if values.size and not ((values >= 0) & (values <= highest)).all():
        raise Call(record, (as_node(x),)).shape_error(
            f"q={q!r} lies outside", need=f"numbers from 0 to {highest:g}"
        )


_METHOD_TEXT = """How to choose between two neighbours in the sorted order, as in NumPy: "linear",
    "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "median_unbiased",
    "normal_unbiased", "interpolated_inverted_cdf", "inverted_cdf", "averaged_inverted_cdf" or
    "closest_observation"."""

_WEIGHTS_TEXT = """With the method "inverted_cdf" how much each element counts, at least 0: of
    the shape of `x`, or of the extents of `axis`. Lines whose weights add up to 0 give NaN. No
    gradient flows to them."""

_NAN_RULE = {
    False: "NaN where any element is NaN.",
    True: "NaN elements are left out; NaN where all are.",
}
_ALSO = """, a constant `q` lies outside, the method is unknown or takes no weights, or the weights
    do not fit or are negative"""


def _document(function: Any, name: str, what: str, skip: bool, q: str, example: str) -> None:
    shape = "The axes of `q`, then those" if q else "Those axes"
    fields = [
        "x: Node or array; ints become floats.",
        "axis: An axis, several, or None for all.",
        f"returns: {shape} of `x` without the reduced ones (unless `keepdims`), of the float",
        f"    dtype. {_NAN_RULE[skip]} The gradient goes to the two",
        "    elements that are interpolated between, by their weights, where they are equal, too.",
    ]
    if q:
        fields[:0] = [f"q: {q}", f"method: {_METHOD_TEXT}", f"weights: {_WEIGHTS_TEXT}"]
    fields += [f"raises ShapeError: If there are no elements{_ALSO if q else ''}."]
    publish(function, name, __name__, what, "\n".join(fields), example)


def _quantile(name: str, skip: bool, scale: float) -> Any:
    def function(
        x: Any,
        q: Operand,
        axis: Axis = None,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: Any = None,
    ) -> Node:
        record = RECORD[name]
        _checked(record, x, q, scale)
        part = q
        if scale != 1.0:
            part = q / scale if isinstance(q, Node) else np.asarray(q, np.float64) / scale
        result, axes = _order(record, x, part, axis, method, skip, weights)
        return _restored(name, result, axes, _rank(q), keepdims)

    what = "quantile" if scale == 1.0 else "percentile"
    without = ", leaving NaN out" if skip else ""
    hole = ', float("nan")' if skip else ""
    _document(
        function,
        name,
        f"Find the {what}s of the elements along axes{without}.",
        skip,
        f"The part of the elements that lie below, 0 to {scale:g}: a number, an array or a node.",
        f""">>> mg.{name}([3.0, 1.0, 2.0{hole}], {0.25 * scale:g}).eval()
array(1.5, dtype=float32)""",
    )
    return function


def _median(name: str, skip: bool) -> Any:
    def function(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
        result, axes = _order(RECORD[name], x, 0.5, axis, "linear", skip)
        return _restored(name, result, axes, 0, keepdims)

    _document(
        function,
        name,
        f"Find the median of the elements along axes{', leaving NaN out' if skip else ''}.",
        skip,
        "",
        f""">>> mg.{name}([3.0, 1.0, 2.0, 7.0{', float("nan")' if skip else ""}]).eval()
array(2.5, dtype=float32)""",
    )
    return function


RECORD: dict[str, Composite] = {}

quantile = _quantile("quantile", False, 1.0)
percentile = _quantile("percentile", False, 100.0)
nanquantile = _quantile("nanquantile", True, 1.0)
nanpercentile = _quantile("nanpercentile", True, 100.0)
median = _median("median", False)
nanmedian = _median("nanmedian", True)

_HOLES = np.where(np.abs(CUBE) < 0.5, np.nan, CUBE)
_ALL_NAN = np.array([[np.nan, np.nan, np.nan], [np.inf, 1.0, -np.inf]])
_NAN = "NaN elements"
_INVERTED = {"method": "inverted_cdf"}
_WEIGHTS = np.array([[0, 2, 1, 3], [1, 0, 4, 1], [2, 2, 0, 1]])


def _median_samples() -> list[Sample]:
    return [
        Sample((CUBE,)),
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE,), {"axis": (0, -1), "keepdims": True}),
        Sample((_HOLES,), {"axis": 2}, gradient=(), reason=_NAN),
        Sample((_ALL_NAN,), {"axis": 1}, gradient=(), reason=_NAN),
        Sample((np.array([3, 1, 2, 9]),)),
    ]


def _quantile_samples(scale: float) -> Callable[[], list[Sample]]:
    part = np.array([0.1, 0.0, 1.0, 0.63]) * scale
    return lambda: [
        *[Sample((CUBE,), {"q": 0.3 * scale, "axis": 1, "method": method}) for method in METHODS],
        Sample((CUBE,), {"q": part, "axis": (0, 2), "keepdims": True}),
        Sample((CUBE,), {"q": part.reshape(2, 2), "axis": 1}),
        Sample((CUBE, np.array([0.33, 0.72]) * scale), {"axis": 2}),
        Sample((_HOLES,), {"q": 0.4 * scale, "axis": 2}, gradient=(), reason=_NAN),
        Sample((_HOLES,), {"q": part, "axis": 0}, gradient=(), reason=_NAN),
        Sample((CUBE,), {"q": part, "axis": 2, **_INVERTED, "weights": [1, 0, 2, 5]}),
        Sample((CUBE,), {"q": 0.4 * scale, "axis": (2, 1), **_INVERTED, "weights": _WEIGHTS.T}),
        Sample((CUBE,), {"q": part, **_INVERTED, "weights": [_WEIGHTS, _WEIGHTS[::-1]]}),
        Sample(
            (_HOLES,),
            {"q": part, "axis": 2, **_INVERTED, "weights": [1, 2, 2, 5]},
            gradient=(),
            reason=_NAN,
        ),
    ]


def _whole_weights(x: np.ndarray, weights: Any, axis: Any) -> np.ndarray:
    """Return weights in the shape of `x`: NumPy takes no others where it leaves NaN out."""
    worth = np.asarray(weights)
    if worth.ndim != x.ndim:
        axes = (axis,) if isinstance(axis, int) else axis
        worth = worth.transpose(np.argsort(axes))
        worth = np.expand_dims(worth, [a for a in range(x.ndim) if a not in axes])
    return np.broadcast_to(worth, x.shape)


def _record(name: str, function: Any, doc: str, samples: Any, bad: Any) -> Composite:
    def reference(x: Any, *positional: Any, **options: Any) -> Any:
        if "weights" in options:
            options["weights"] = _whole_weights(x, options["weights"], options.get("axis"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of lines of NaN
            result = getattr(np, name)(x, *positional, **options)
        return np.asarray(result, np.float64)

    RECORD[name] = Composite(
        name=name,
        kind=Kind.REDUCTION,
        function=function,
        doc=doc,
        tests=Tests(
            samples=samples,
            bad_samples=lambda: [
                BadSample(
                    (np.ones((2, 0)),),
                    ShapeError,
                    f"{name}: no elements, and so no quantile",
                    bad[0],
                ),
                *[
                    BadSample((CUBE,), ShapeError, f"{name}: {text}", attrs)
                    for text, attrs in bad[1:]
                ],
            ],
            reference=reference,
        ),
        numerics="reassoc",
    )
    return RECORD[name]


def _bad_quantile() -> list[Any]:
    return [
        {"q": 0.5, "axis": 1},
        ("q=-0.5 lies outside", {"q": -0.5}),
        ("method='middle'", {"q": 0.5, "method": "middle"}),
        ("weights= with method='linear'", {"q": 0.5, "weights": [1, 2, 1, 1], "axis": 2}),
        (
            "a weight is negative, or NaN",
            {"q": 0.5, "weights": [1, -2, 1, 1], "axis": 2, **_INVERTED},
        ),
        ("weights of 1 axes for 3 axes", {"q": 0.5, "weights": [1, 2, 1, 1], **_INVERTED}),
    ]


RECORDS = tuple(
    _record(name, function, doc, samples, bad)
    for name, function, doc, samples, bad in (
        ("median", median, "The median along axes.", _median_samples, [{"axis": 1}]),
        (
            "nanmedian",
            nanmedian,
            "The median along axes, leaving NaN out.",
            _median_samples,
            [{"axis": 1}],
        ),
        *[
            (
                f"{prefix}{word}",
                globals()[f"{prefix}{word}"],
                f"The {word}s along axes{', leaving NaN out' if prefix else ''}.",
                _quantile_samples(scale),
                _bad_quantile(),
            )
            for prefix in ("", "nan")
            for word, scale in (("quantile", 1.0), ("percentile", 100.0))
        ],
    )
)
