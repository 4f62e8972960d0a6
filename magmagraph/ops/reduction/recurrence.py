"""The linear recurrence along an axis, and what scans share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Kernel, Kind, Op, Sample, Tests
from ...ir.types import Type
from ..elementwise.arithmetic import multiply
from ..elementwise.family import inexact_pair, one_dtype
from ..indexing.gathering import wide
from ..leaf import constant
from ..rules import onnx_control
from ..shape.axes import CUBE
from ..shape.joining import broadcast_to, concatenate
from ..shape.slicing import cut

__all__ = ["linear_recurrence"]

_FEW = 16  # lines: fewer are run through element by element, more at once


def scan_type(call: Call, x: Type, *operands: Type, axis: int, reverse: bool) -> Type:
    call.check_axis(axis, x.ndim)
    for operand in operands:
        one_dtype(call, x, operand)
        for left, right in zip(x.shape, operand.shape, strict=True):
            call.unify(left, right, "extents")
    return x


def scan_order(x: Any, axis: int, reverse: bool) -> Any:
    """Return the view of an array that a scan runs through."""
    if not reverse:
        return x
    return x[(*[slice(None)] * axis, slice(None, None, -1))]


def by_doubling(function: Callable[..., Any], x: Any, axis: int, reverse: bool) -> Any:
    """Scan by turns that each reach twice as far: other libraries scan sums and products only."""
    scanned, reach = scan_order(x, axis, reverse), 1
    before, behind = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    while reach < x.shape[axis]:
        before[axis], behind[axis] = slice(None, -reach), slice(reach, None)
        scanned[tuple(behind)] = function(scanned[tuple(before)], scanned[tuple(behind)])
        reach *= 2
    return x


def shifted(x: Node, axis: int, reverse: bool, first: Any) -> Node:
    """Shift elements by one place; `first` fills the start."""
    edge = broadcast_to(constant(first, dtype=x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    # Joined before it is cut: `x` without one element is no array where its extent turns out 0.
    whole = concatenate([x, edge] if reverse else [edge, x], axis)
    return cut(whole, axis, int(reverse), x.shape[axis])


def _recurrence(xp: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    result = xp.empty(b.shape, wide(b.dtype))
    _recurrence_into(xp, result, a, b, axis=axis, reverse=reverse)
    return result


def _recurrence_into(xp: Any, target: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> None:
    if wide(b.dtype) != b.dtype and target.dtype == b.dtype:
        target[...] = _recurrence(xp, a, b, axis=axis, reverse=reverse)
        return
    factors, terms, out = (
        xp.moveaxis(scan_order(each, axis, reverse), axis, 0) for each in (a, b, target)
    )
    count = len(terms)
    if not count:
        return
    if xp is np and terms[0].size < _FEW:
        for place in np.ndindex(terms.shape[1:]):
            line = (slice(None), *place)
            pairs = zip(factors[line].tolist(), terms[line].tolist(), strict=True)
            _, start = next(pairs)
            steps = itertools.accumulate(pairs, lambda h, ab: ab[0] * h + ab[1], initial=start)
            widest = np.complex128 if out.dtype.kind == "c" else np.float64
            out[line] = np.fromiter(steps, widest, count)
        return
    out[0] = terms[0]
    for i in range(1, count):
        xp.multiply(factors[i], out[i - 1], out=out[i], dtype=out.dtype)
        out[i] += terms[i]


def _recurrence_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    a = node.inputs[0]
    axis, reverse = node.attrs["axis"], node.attrs["reverse"]
    # h[i] enters h[i + 1] with the factor a[i + 1]: the same recurrence, run backward.
    ahead = shifted(a, axis, not reverse, 0)
    by_b = LINEAR_RECURRENCE(ahead, cotangent, axis=axis, reverse=not reverse)
    return multiply(by_b, shifted(node, axis, reverse, 0)), by_b


@documented
def linear_recurrence(a: Any, b: Any, axis: int = -1, reverse: bool = False) -> Node:
    """Run ``h[i] = a[i] * h[i - 1] + b[i]`` along an axis, from ``h[-1] = 0``.

    a, b: Nodes or arrays, broadcast against each other and promoted to a float or complex dtype.
    axis: The axis to run along.
    reverse: Run from the last element to the first.
    returns: All ``h[i]``, of the broadcast shape. 16-bit floats are computed in float32.
    raises ShapeError: If the shapes do not broadcast, or have no such axis.

    >>> mg.linear_recurrence(0.5, [8.0, 0.0, 0.0, 1.0]).eval()
    array([8., 4., 2., 2.], dtype=float32)
    """
    factors, terms = inexact_pair(a, b)
    call = Call(LINEAR_RECURRENCE, (factors, terms))
    shape = call.broadcast(factors.shape, terms.shape)
    axis = call.axis(axis, len(shape))
    return LINEAR_RECURRENCE(
        broadcast_to(factors, shape), broadcast_to(terms, shape), axis=axis, reverse=bool(reverse)
    )


def _recurrence_reference(a: Any, b: Any, axis: int = -1, reverse: bool = False) -> np.ndarray:
    a, b = np.broadcast_arrays(a, b)
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    result = np.zeros_like(b)
    last = np.zeros_like(b[0]) if len(b) else None
    for i in range(len(b))[:: -1 if reverse else 1]:
        last = a[i] * last + b[i]
        result[i] = last
    return np.moveaxis(result, 0, axis)


_LONG = np.cos(np.arange(42.0)).reshape(2, 21)

LINEAR_RECURRENCE = Op(
    name="linear_recurrence",
    dtypes=INEXACT,
    kind=Kind.INDEX,
    rule=scan_type,
    batching="axes",
    evaluate=_recurrence,
    onnx=onnx_control.scanned_with(lambda h, a, b: a * h + b, lambda dtype: 0),
    kernel=Kernel(into=_recurrence_into),
    gradient=_recurrence_gradient,
    function=linear_recurrence,
    tests=Tests(
        samples=lambda: [
            Sample((_LONG, np.sin(_LONG) + 1.2)),
            Sample((_LONG, np.sin(_LONG) + 1.2), {"axis": 0, "reverse": True}),
            Sample((np.float64(0.7), CUBE), {"axis": 1, "reverse": True}),
            Sample((np.zeros((0, 2)), np.zeros((0, 2))), {"axis": 0}),
        ],
        bad_samples=lambda: [
            BadSample(
                (np.ones(2), np.ones(3)),
                ShapeError,
                "linear_recurrence: extents 2 and 3 do not broadcast (axis -1)",
            )
        ],
        reference=_recurrence_reference,
    ),
    numerics="reassoc",
    flops=lambda a, b, **attrs: 2 * b.size,
)

RECORDS: tuple[Op, ...] = (LINEAR_RECURRENCE,)
