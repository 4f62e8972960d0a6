"""Running sums, products and extremes along an axis, and the linear recurrence behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kernel, Kind, Op, Sample, Tests
from ..convert import as_node
from ..elementwise.arithmetic import multiply
from ..elementwise.bits import logical_and, logical_not, logical_or
from ..elementwise.comparison import maximum, minimum, not_equal, where
from ..elementwise.exponents import logaddexp
from ..elementwise.family import floating, publish
from ..elementwise.math import exp
from ..elementwise.rounding import isfinite, isnan
from ..indexing.gathering import SCATTER_ADD, flat_along, size_of, wide
from ..indexing.iota import INT64, IOTA
from ..leaf import constant
from ..rules import onnx_control, onnx_forms
from ..shape.arrange import ravel, reshape
from ..shape.axes import CUBE
from ..shape.joining import broadcast_to, concatenate
from .folding import accumulated
from .recurrence import LINEAR_RECURRENCE, by_doubling, scan_order, scan_type, shifted

__all__ = [
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
]


def _accumulation(name: str) -> dict[str, Any]:
    """Return the array expressions of a scan by one of NumPy's functions of two operands."""

    def into(xp: Any, target: Any, x: Any, *, axis: int, reverse: bool) -> None:
        if wide(x.dtype) != x.dtype:
            target[...] = evaluate(xp, x, axis=axis, reverse=reverse)
            return
        scan = getattr(xp, name).accumulate
        scan(scan_order(x, axis, reverse), axis=axis, out=scan_order(target, axis, reverse))

    def evaluate(xp: Any, x: Any, *, axis: int, reverse: bool) -> Any:
        if xp is not np and name not in ("add", "multiply"):
            return by_doubling(getattr(xp, name), x.astype(wide(x.dtype)), axis, reverse)
        result = xp.empty(x.shape, wide(x.dtype))
        into(xp, result, x.astype(result.dtype, copy=False), axis=axis, reverse=reverse)
        return result

    return {"evaluate": evaluate, "kernel": Kernel(into=into)}


# Scans of one operand.

_FIELDS = """
x: Node or array.
axis: The axis; None ravels `x` first.
{dtype}reverse: Run from the last element to the first.
returns: {returns}
raises ShapeError: If `x` has no such axis.
"""


def _scanned(op: Op, x: Node, axis: int | None, reverse: bool) -> Node:
    if axis is None:
        x, axis = ravel(x), 0
    return op(x, axis=Call(op, (x,)).axis(axis, x.ndim), reverse=bool(reverse))


def _samples(*more: Sample) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE[0],)),
        Sample((CUBE,), {"axis": -1, "reverse": True}),
        Sample((np.zeros((2, 0)),), {"axis": 1}),
        *more,
    ]


def _tests(
    name: str, samples: Callable[[], Sequence[Sample]], scan: Callable[..., Any]
) -> Tests:
    """Return what the tests of a scan call; `scan` is NumPy's, without a direction."""
    text = f"{name}: axis=3 is out of range for 3 axes"
    return Tests(
        samples=samples,
        bad_samples=lambda: [BadSample((CUBE,), ShapeError, text, {"axis": 3})],
        reference=_reference(scan),
    )


def _record(name: str, accumulated: str, doc: str, **fields: Any) -> Op:
    """Return the record of a scan; `accumulated` names the function that it goes on by."""
    return Op(
        name=name,
        kind=Kind.INDEX,
        doc=doc,
        rule=scan_type,
        batching="axes",
        **_accumulation(accumulated),
        **fields,
    )


def _reference(scan: Callable[..., Any]) -> Callable[..., Any]:
    def reference(
        x: np.ndarray, axis: int | None = None, dtype: Any = None, reverse: bool = False
    ) -> Any:
        if axis is None:
            x, axis = x.reshape(-1), 0
        options = {} if dtype is None else {"dtype": dtype}
        ordered = np.flip(x, axis) if reverse else x
        result = scan(ordered, axis=axis, **options)
        return np.flip(result, axis) if reverse else result

    return reference


@documented
def cumsum(x: Any, axis: int | None = None, dtype: Any = None, reverse: bool = False) -> Node:
    """Add up the elements along an axis, keeping every partial sum.

    x: Node or array.
    axis: The axis; None ravels `x` first.
    dtype: Of the result; narrow ints and bools become int64 (unsigned ones uint32) unless said.
    reverse: Add from the last element to the first.
    returns: Of the shape of `x`. 16-bit floats are added in float32.
    raises ShapeError: If `x` has no such axis.

    >>> mg.cumsum([1.0, 2.0, 4.0]).eval()
    array([1., 3., 7.], dtype=float32)
    """
    return _scanned(CUMSUM, accumulated(x, dtype), axis, reverse)


CUMSUM: Op = _record(
    "cumsum",
    "add",
    "The running sums along an axis.",
    dtypes=INEXACT,
    gradient=lambda node, cotangent: (
        CUMSUM(cotangent, axis=node.attrs["axis"], reverse=not node.attrs["reverse"]),
    ),
    function=cumsum,
    tests=_tests(
        "cumsum",
        _samples(
            Sample((np.array([True, False, True]),)),
            Sample((np.array([3, -1, 2], np.int32),), {"dtype": "float64"}),
        ),
        np.cumsum,
    ),
    numerics="reassoc",
    onnx=onnx_forms.scanned("CumSum"),
)


def _cumprod_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x = node.inputs[0]
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    # Later products hold x[i] times the product before it times the factors behind it, whose
    # weighted sum is a recurrence. Nothing is divided, so zeros do no harm.
    behind = LINEAR_RECURRENCE(
        shifted(x, axis, not reverse, 0), cotangent, axis=axis, reverse=not reverse
    )
    return (multiply(shifted(node, axis, reverse, 1), behind),)


@documented
def cumprod(x: Any, axis: int | None = None, dtype: Any = None, reverse: bool = False) -> Node:
    """Multiply the elements along an axis, keeping every partial product.

    x: Node or array.
    axis: The axis; None ravels `x` first.
    dtype: Of the result; narrow ints and bools become int64 (unsigned ones uint32) unless said.
    reverse: Multiply from the last element to the first.
    returns: Of the shape of `x`. 16-bit floats are multiplied in float32. Derivatives of every
        order are right where elements are zero, too.
    raises ShapeError: If `x` has no such axis.

    >>> mg.cumprod([2.0, 3.0, 4.0]).eval()
    array([ 2.,  6., 24.], dtype=float32)
    """
    return _scanned(CUMPROD, accumulated(x, dtype), axis, reverse)


CUMPROD = _record(
    "cumprod",
    "multiply",
    "The running products along an axis.",
    dtypes=INEXACT,
    gradient=_cumprod_gradient,
    onnx=onnx_control.scanned_with(lambda h, x: h * x, lambda dtype: 1),
    function=cumprod,
    tests=_tests(
        "cumprod",
        _samples(
            Sample((np.array([2.0, 0.0, -1.5, 0.0, 3.0]),)),
            Sample((np.array([3, 2, -1], dtype=np.int8),)),
        ),
        np.cumprod,
    ),
    numerics="reassoc",
)


def _extremum_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    extent = node.shape[axis]
    line: list[Any] = [1] * node.ndim
    line[axis] = extent
    place = broadcast_to(IOTA(shape=tuple(line), axis=axis, dtype=INT64), node.shape)
    before = shifted(node, axis, reverse, 0)
    edge = shifted(broadcast_to(constant(False), node.shape), axis, reverse, True)
    new = logical_and(not_equal(node, before), logical_not(logical_and(isnan(node), isnan(before))))
    # Where the extreme changed last is where it stands: of equal elements the earliest.
    if reverse:
        marks = where(logical_or(new, edge), place, size_of(extent))
        winner = CUMMIN(marks, axis=axis, reverse=True)
    else:
        winner = CUMMAX(where(logical_or(new, edge), place, 0), axis=axis, reverse=False)
    flat = flat_along(Call(node.op, node.inputs), node.shape, winner, axis, "clip")
    whole = SCATTER_ADD(ravel(cotangent), ravel(flat), axis=0, extent=node.size, mode="clip")
    return (reshape(whole, node.shape),)


def _running_extremum(name: str, function: str, word: str, result: str) -> Any:
    def scan(x: Any, axis: int | None = None, reverse: bool = False) -> Node:
        return _scanned(op, as_node(x), axis, reverse)

    publish(
        scan,
        name,
        __name__,
        f"Find the {word} element so far, along an axis.",
        _FIELDS.format(
            dtype="",
            returns="Of the shape and dtype of `x`; NaN from the first NaN on. The earliest of "
            "equal\n    elements has the gradient.",
        ),
        f">>> mg.{name}([2.0, 1.0, 3.0]).eval()\narray({result}, dtype=float32)",
    )
    op = _record(
        name,
        function,
        f"The {word} element so far, along an axis.",
        gradient=_extremum_gradient,
        onnx=onnx_control.scanned_with(
            *(
                (maximum, onnx_control.lowest)
                if function == "maximum"
                else (minimum, onnx_control.highest)
            )
        ),
        function=scan,
        tests=_tests(
            name,
            _samples(
                Sample((np.array([3, 1, 4, 1, 5]),)),
                Sample(
                    (np.array([[1.0, 1.0, np.nan, 2.0]]),),
                    {"axis": 1},
                    gradient=(),
                    reason="ties and NaN",
                ),
            ),
            getattr(np, function).accumulate,
        ),
        numerics="exact",
    )
    return scan, op


cummax, CUMMAX = _running_extremum("cummax", "maximum", "largest", "[2., 2., 3.]")
cummin, CUMMIN = _running_extremum("cummin", "minimum", "smallest", "[2., 1., 1.]")


def _logsumexp_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x = node.inputs[0]
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    # The sum over k >= i of t[k] exp(x[i] - y[k]), with exponents that are never positive: the
    # recurrence s[i] = t[i] + exp(y[i] - y[i + 1]) s[i + 1], times exp(x[i] - y[i]).
    ahead = shifted(node, axis, not reverse, np.inf)
    step = where(isfinite(node), exp(where(isfinite(node), node - ahead, 0)), 0)
    behind = LINEAR_RECURRENCE(step, cotangent, axis=axis, reverse=not reverse)
    share = where(isfinite(node), exp(where(isfinite(node), x - node, 0)), 0)
    return (multiply(share, behind),)


@documented
def cumlogsumexp(x: Any, axis: int | None = None, reverse: bool = False) -> Node:
    """Compute the logarithm of the running sum of exponentials along an axis, without overflow.

    x: Node or array; ints become floats.
    axis: The axis; None ravels `x` first.
    reverse: Run from the last element to the first.
    returns: Of the shape and float dtype of `x`. Where it is infinite no gradient flows.
    raises ShapeError: If `x` has no such axis.

    >>> mg.cumlogsumexp([1000.0, 1000.0]).eval().round(1)
    array([1000. , 1000.7], dtype=float32)
    """
    return _scanned(CUMLOGSUMEXP, floating(x), axis, reverse)


CUMLOGSUMEXP = _record(
    "cumlogsumexp",
    "logaddexp",
    "The logarithm of the running sum of exponentials along an axis.",
    onnx=onnx_control.scanned_with(logaddexp, onnx_control.lowest),
    gradient=_logsumexp_gradient,
    function=cumlogsumexp,
    tests=_tests(
        "cumlogsumexp",
        _samples(
            Sample((np.array([-1000.0, 3.0, 1000.0, 2.0]),)),
            Sample((np.array([-np.inf, 1.0, np.inf]),), gradient=(), reason="infinite values"),
        ),
        np.logaddexp.accumulate,
    ),
    numerics="reassoc",
)


# The standard's names.


def _with_initial(record: Any, scan: Any, x: Any, axis: Any, dtype: Any, first: int | None) -> Node:
    node = as_node(x)
    if axis is None:
        if node.ndim != 1:
            raise Call(record, (node,)).shape_error(
                f"no axis for {node.ndim} axes", need="axis=, for other than one axis"
            )
        axis = 0
    result: Node = scan(x, axis, dtype)
    if first is None:
        return result
    axis = Call(record, (node,)).axis(axis, node.ndim)
    line = (*result.shape[:axis], 1, *result.shape[axis + 1 :])
    edge = broadcast_to(constant(first, dtype=result.dtype), line)
    return concatenate([edge, result], axis)


@documented
def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Node:
    """Add up the elements along an axis, as `cumsum`; with the empty sum in front if wanted.

    x: Node or array.
    axis: The axis; may be left out where there is one.
    dtype: Of the result; see `cumsum`.
    include_initial: Put 0 in front of the sums.
    returns (Node):
    raises ShapeError: If there are several axes and none is named.

    >>> mg.cumulative_sum([1.0, 2.0, 4.0], include_initial=True).eval()
    array([0., 1., 3., 7.], dtype=float32)
    """
    first = 0 if include_initial else None
    return _with_initial(CUMULATIVE_SUM, cumsum, x, axis, dtype, first)


@documented
def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Node:
    """Multiply the elements along an axis, as `cumprod`; with the empty product in front if wanted.

    x: Node or array.
    axis: The axis; may be left out where there is one.
    dtype: Of the result; see `cumprod`.
    include_initial: Put 1 in front of the products.
    returns (Node):
    raises ShapeError: If there are several axes and none is named.

    >>> mg.cumulative_prod([2.0, 3.0], include_initial=True).eval()
    array([1., 2., 6.], dtype=float32)
    """
    first = 1 if include_initial else None
    return _with_initial(CUMULATIVE_PROD, cumprod, x, axis, dtype, first)


def _standard(name: str, function: Callable[..., Any], doc: str) -> Composite:
    return Composite(
        name=name,
        kind=Kind.INDEX,
        dtypes=INEXACT,
        function=function,
        doc=doc,
        tests=Tests(
            samples=lambda: [
                Sample((CUBE,), {"axis": 1, "include_initial": True}),
                Sample((CUBE[0, 0],)),
            ],
            bad_samples=lambda: [BadSample((CUBE,), ShapeError, f"{name}: no axis for 3 axes")],
            reference=getattr(np, name),
        ),
        numerics="reassoc",
    )


CUMULATIVE_SUM = _standard(
    "cumulative_sum", cumulative_sum, "The running sums along an axis, with 0 in front if wanted."
)
CUMULATIVE_PROD = _standard(
    "cumulative_prod",
    cumulative_prod,
    "The running products along an axis, with 1 in front if wanted.",
)

RECORDS: tuple[Op | Composite, ...] = (
    CUMSUM,
    CUMPROD,
    CUMMAX,
    CUMMIN,
    CUMLOGSUMEXP,
    CUMULATIVE_SUM,
    CUMULATIVE_PROD,
)
