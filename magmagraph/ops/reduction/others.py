"""The product of all other elements along axes: what the gradient of a product is made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Kind, Op, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node
from ..elementwise.family import broadcast
from .folding import CUBE, Axis, bad_axes, dropped, normalized_axes

# With directions c, d, ... beside x, the operation gives derivatives of the product of others:
#
#     P(x; c, d, ...)_k = sum of c_i d_j ... times the product of x over all elements left,
#
# over all choices of different i, j, ..., none of them k. Its derivatives are of the same kind.
# Contracted with a cotangent t, that for x is P(x; c, d, ..., t), and that for c is P(x; t, d, ...)
# by the symmetry between k and i. So nothing is ever divided, and every order is right at zeros.


def _type(call: Call, x: Type, *directions: Type, axes: tuple[int, ...]) -> Type:
    dropped(call, x.shape, axes)
    return broadcast(call, x, *directions)


def _joined(left: list[Any], right: list[Any]) -> list[Any]:
    """Multiply two sums of products: entry s holds what has used the directions in the set s."""
    return [
        sum(left[t] * right[s ^ t] for t in range(s + 1) if t & s == t) for s in range(len(left))
    ]


def _before(xp: Any, parts: list[Any]) -> list[Any]:
    """Return for each element what those before it give: a scan in log2(count) steps."""
    count = parts[0].shape[-1]
    step = 1
    while step < count:
        pairs = _joined([p[..., :-step] for p in parts], [p[..., step:] for p in parts])
        parts = [
            xp.concatenate([p[..., :step], j], axis=-1) for p, j in zip(parts, pairs, strict=True)
        ]
        step *= 2
    start = [(xp.zeros_like if s else xp.ones_like)(p[..., :1]) for s, p in enumerate(parts)]
    return [
        xp.concatenate([first, p[..., :-1]], axis=-1) for first, p in zip(start, parts, strict=True)
    ]


def _evaluate(xp: Any, x: Any, *directions: Any, axes: tuple[int, ...]) -> Any:
    other_axes = [a for a in range(x.ndim) if a not in axes]
    order = (*other_axes, *axes)
    shape = tuple(x.shape[a] for a in order)
    rows = (*shape[: len(other_axes)], math.prod(shape[len(other_axes) :]))
    if 0 in rows:
        return x
    wide = np.float32 if x.dtype.itemsize < 4 else x.dtype
    flat = [
        xp.transpose(xp.broadcast_to(v, x.shape), order).reshape(rows).astype(wide)
        for v in (x, *directions)
    ]
    # An element has used no direction, or one: never two, since the choices are different.
    parts = [xp.zeros_like(flat[0])] * 2 ** len(directions)
    parts[0] = flat[0]
    for i, direction in enumerate(flat[1:]):
        parts[1 << i] = direction
    before = _before(xp, parts)
    after = [p[..., ::-1] for p in _before(xp, [p[..., ::-1] for p in parts])]
    result = _joined(before, after)[-1].reshape(shape)
    # (A scalar that is made contiguous gets an axis.)
    return xp.ascontiguousarray(xp.transpose(result, np.argsort(order))).reshape(x.shape)


@documented
def product_of_others(x: Any, axis: Axis = None) -> Node:
    """Multiply, for each element, all other elements along axes.

    It is the gradient of `prod`. Derivatives of any order are right where elements are zero, too.

    x: Node or array.
    axis: An axis, several, or None for all.
    returns: Of the shape and dtype of `x`.

    >>> mg.product_of_others([2.0, 0.0, 5.0]).eval()
    array([ 0., 10.,  0.], dtype=float32)
    """
    node = as_node(x)
    return PRODUCT_OF_OTHERS(node, axes=normalized_axes(PRODUCT_OF_OTHERS, node, axis))


def _gradient(node: Node, cotangent: Node) -> tuple[Node, ...]:
    x, *directions = node.inputs
    axes = node.attrs["axes"]
    by_x = PRODUCT_OF_OTHERS(x, *directions, cotangent, axes=axes)
    by_directions = [
        PRODUCT_OF_OTHERS(x, *directions[:i], cotangent, *directions[i + 1 :], axes=axes)
        for i in range(len(directions))
    ]
    return (by_x, *by_directions)


def _reference(x: np.ndarray, axis: Any = None) -> np.ndarray:
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    result = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        line = tuple(slice(None) if a in axes else index[a] for a in range(x.ndim))
        rest = x.copy()
        rest[index] = 1
        result[index] = rest[line].prod()
    return result


def _work(x: Type, *directions: Type, **attrs: Any) -> Extent:
    return int(3 ** (1 + len(directions))) * x.size


PRODUCT_OF_OTHERS = Op(
    name="product_of_others",
    dtypes=INEXACT,
    # Neither elementwise nor a reduction: a scan, which keeps the shape and looks along axes.
    kind=Kind.INDEX,
    rule=_type,
    evaluate=_evaluate,
    gradient=_gradient,
    batching="axes",
    sharding="others",
    function=product_of_others,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,), {"axis": 1}),
            Sample((CUBE[0],)),
            Sample((CUBE,), {"axis": (0, 2)}),
            Sample((np.array([[2.0, 0.0, -1.5, 0.5], [0.0, 3.0, 0.0, 2.0]]),), {"axis": 1}),
            Sample((np.array([[2.0, 4.0, 1.5, 3.0]]),), {"axis": 0}),
            Sample((np.array(2.5),)),
        ],
        bad_samples=lambda: bad_axes("product_of_others"),
        reference=_reference,
    ),
    numerics="reassoc",
    flops=_work,
)

RECORDS: tuple[Op, ...] = (PRODUCT_OF_OTHERS,)
