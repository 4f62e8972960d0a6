"""Reductions, order and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_bool
from ...functional import log_softmax, softmax
from ...ir.graph import Node
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import multiply, subtract
from ...ops.elementwise.math import log, sqrt
from ...ops.elementwise.signs import absolute
from ...ops.indexing.gathering import take_along_axis
from ...ops.indexing.iota import one_hot
from ...ops.indexing.sorting import argsort, top_k
from ...ops.reduction.cumulative import cumprod, cumsum
from ...ops.reduction.primitives import argmax, argmin, max, min, prod, sum
from ...ops.reduction.statistics import logsumexp, mean
from ...ops.shape.padding import pad
from ...ops.shape.pieces import flip
from .operator import Operator, Rule

__all__ = ["REDUCTIONS"]

Reduce = Callable[..., Node]


def reduction(reduce: Reduce, before: Callable[[Node], Node] | None = None,
              after: Callable[[Node], Node] | None = None) -> Rule:
    """Return the rule of a reduction, with a function before and after it."""

    def rule(op: Operator) -> Node:
        x = op.node()
        axes = op.get("axes")
        if axes is None and op.has(1):
            axes = op.ints(1, "which axes are reduced")
        if not axes:
            if op.get("noop_with_empty_axes", 0):
                return op.like(_unreduced(x, before, after, op))
            axes = list(range(x.ndim))
        axes = tuple(op.counted(axis, x.ndim) for axis in axes)
        value = x if before is None else before(x)
        value = reduce(value, axis=axes, keepdims=bool(op.get("keepdims", 1)))
        return op.like(value if after is None else after(value))

    return rule


def _unreduced(x: Node, before: Any, after: Any, op: Operator) -> Node:
    """Return what a reduction over no axes gives: of each element alone."""
    value = x if before is None else before(x)
    if op.type == "ReduceLogSumExp":
        return value
    return value if after is None else after(value)


def _extreme(reduce: Reduce, largest: bool) -> Reduce:
    """Return a reduction that has a value where there is no element, too."""

    def reduced(x: Node, **options: Any) -> Node:
        if is_bool(x.dtype):
            return cast(_extreme(reduce, largest)(cast(x, "uint8"), **options), x.dtype)
        if any(extent == 0 for extent in x.shape):
            return reduce(x, initial=_end(x.dtype, not largest), **options)
        return reduce(x, **options)

    return reduced


def _end(dtype: np.dtype, largest: bool) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    return np.inf if largest else -np.inf


def _square(x: Node) -> Node:
    return multiply(x, x)


def _log_sum(x: Node, **options: Any) -> Node:
    if any(extent == 0 for extent in x.shape):
        return log(sum(x, **options))
    total: Node = logsumexp(x, **options)
    return total


def _position(find: Callable[..., Node]) -> Rule:
    def rule(op: Operator) -> Node:
        x = op.node()
        axis, keep = op.axis(x.ndim), bool(op.get("keepdims", 1))
        if not op.get("select_last_index", 0):
            return cast(find(x, axis=axis, keepdims=keep), "int64")
        position = cast(find(flip(x, axis), axis=axis, keepdims=keep), "int64")
        return subtract(subtract(op.shape(x.shape[axis])[0], 1), position)

    return rule


def _hardmax(op: Operator) -> Node:
    x = op.node()
    axis = op.axis(x.ndim, -1)
    return one_hot(argmax(x, axis=axis), x.shape[axis], axis=axis, dtype=x.dtype)


def _top(op: Operator) -> tuple[Node, Node]:
    x = op.node()
    axis = op.axis(x.ndim, -1)
    count = op.ints(1, "the number of elements")[0]
    if op.get("largest", 1):
        top = top_k(x, count, axis)
        return top[0], cast(top[1], "int64")
    order = argsort(x, axis)
    key = (slice(None),) * axis + (slice(0, count),)
    order = order[key]
    return take_along_axis(x, order, axis), cast(order, "int64")


def _running(scan: Callable[..., Node], start: int) -> Rule:
    def rule(op: Operator) -> Node:
        x = op.node()
        axis = op.counted(op.number(1, "the axis"), x.ndim)
        reverse = bool(op.get("reverse", 0))
        if op.get("exclusive", 0):
            width = [(0, 0)] * x.ndim
            width[axis] = (0, 1) if reverse else (1, 0)
            kept: list[Any] = [slice(None)] * x.ndim
            kept[axis] = slice(1, None) if reverse else slice(None, -1)
            x = pad(x, width, constant_values=start)[tuple(kept)]
        return op.like(scan(x, axis=axis, reverse=reverse))

    return rule


def _products(x: Node, axis: int, reverse: bool) -> Node:
    if reverse:
        return flip(cumprod(flip(x, axis), axis=axis), axis)
    return cumprod(x, axis=axis)


def _softmax(function: Callable[..., Node]) -> Rule:
    def rule(op: Operator) -> Node:
        x = op.node()
        return op.like(function(x, axis=op.axis(x.ndim, -1)))

    return rule


REDUCTIONS: dict[str, Rule] = {
    "ArgMax": _position(argmax),
    "ArgMin": _position(argmin),
    "CumProd": _running(_products, 1),
    "CumSum": _running(cumsum, 0),
    "Hardmax": _hardmax,
    "LogSoftmax": _softmax(log_softmax),
    "ReduceL1": reduction(sum, absolute),
    "ReduceL2": reduction(sum, _square, sqrt),
    "ReduceLogSum": reduction(sum, None, log),
    "ReduceLogSumExp": reduction(_log_sum),
    "ReduceMax": reduction(_extreme(max, True)),
    "ReduceMean": reduction(mean),
    "ReduceMin": reduction(_extreme(min, False)),
    "ReduceProd": reduction(prod),
    "ReduceSum": reduction(sum),
    "ReduceSumSquare": reduction(sum, _square),
    "Softmax": _softmax(softmax),
    "TopK": _top,
}
