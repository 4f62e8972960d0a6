"""The product of all other elements along axes: what the gradient of a product is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Node
from ..op import Call, Kind, Op, Sample
from ..types import Extent, Type
from .comparison import equal, where
from .convert import as_node, cast
from .folding import CUBE, Axis, bad_axes, normalized_axes, restored
from .reduction import SUM


def _type(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    for a in axes:
        call.axis(a, x.ndim)
    return x


def _evaluate(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
    """Multiply what stands before each element with what stands after it; nothing is divided."""
    kept = [a for a in range(x.ndim) if a not in axes]
    order = (*kept, *axes)
    moved = xp.transpose(x, order)
    count = 1
    for a in axes:
        count *= x.shape[a]
    rows = moved.reshape(*[x.shape[a] for a in kept], count)
    wide = rows.astype(np.float32) if rows.dtype.itemsize < 4 else rows
    one = xp.ones_like(wide[..., :1])
    before = xp.cumprod(xp.concatenate([one, wide[..., :-1]], axis=-1), axis=-1)
    after = xp.cumprod(xp.concatenate([one, wide[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    result = (before * after)[..., :count].reshape(moved.shape)
    return xp.ascontiguousarray(xp.transpose(result, np.argsort(order)))


def product_of_others(x: Any, axis: Axis = None) -> Node:
    """Multiply, for each element, all other elements along axes.

    It is the gradient of `prod`, right also where elements are zero.

    Parameters
    ----------
    x
        Node or array.
    axis
        An axis, several, or None for all.

    Returns
    -------
    Node
        Of the shape and dtype of `x`. Its own gradient is right where elements are zero, too;
        the gradient's gradient only where none is.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.product_of_others([2.0, 0.0, 5.0]).eval()
    array([ 0., 10.,  0.], dtype=float32)
    """
    node = as_node(x)
    return PRODUCT_OF_OTHERS(node, axes=normalized_axes(PRODUCT_OF_OTHERS, node, axis))


def _gradient(node: Node, cotangent: Node) -> tuple[Node]:
    # The derivative at element k is the sum, over i other than k, of c_i times the product of all
    # elements but i and k. With z zeros among the elements other than k, that is
    #   z = 0: P_k * sum of c_i / x_i,   z = 1: P_k * c_i of the zero,   z > 1: 0
    # where P_k is the product of the elements other than k that are not zero.
    x, axes = node.inputs[0], node.attrs["axes"]
    zero = equal(x, 0)
    one_if_zero = cast(zero, x.dtype)
    filled = where(zero, 1, x)
    others = product_of_others(filled, axes)
    zeros = restored(SUM(one_if_zero, axes=axes), axes) - one_if_zero
    ratio = where(zero, 0, cotangent / filled)
    ratios = restored(SUM(ratio, axes=axes), axes) - ratio
    at_zero = cotangent * one_if_zero
    at_zeros = restored(SUM(at_zero, axes=axes), axes) - at_zero
    return (others * where(equal(zeros, 0), ratios, where(equal(zeros, 1), at_zeros, 0)),)


def _reference(x: np.ndarray, axis: Any = None) -> np.ndarray:
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    result = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        line = tuple(slice(None) if a in axes else index[a] for a in range(x.ndim))
        rest = x.copy()
        rest[index] = 1
        result[index] = rest[line].prod()
    return result


def _work(x: Type, **attrs: Any) -> Extent:
    return 3 * x.size


PRODUCT_OF_OTHERS = Op(
    name="product_of_others",
    # Neither elementwise nor a reduction: a scan, which keeps the shape and looks along axes.
    kind=Kind.INDEX,
    doc="Multiply, for each element, all other elements along axes.",
    rule=_type,
    evaluate=_evaluate,
    gradient=_gradient,
    function=product_of_others,
    samples=lambda: [
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE[0],)),
        Sample((CUBE,), {"axis": (0, 2)}),
        Sample(
            (np.array([[2.0, 0.0, -1.5], [0.0, 3.0, 0.0]]),),
            {"axis": 1},
            gradient=(),
            reason="right to the first order at zeros, which the second order of prod tests",
        ),
        Sample((np.array([[2.0, 4.0, 1.5, 3.0]]),), {"axis": 0}),
    ],
    bad_samples=lambda: bad_axes("product_of_others"),
    reference=_reference,
    numerics="reassoc",
    flops=_work,
)

RECORDS: tuple[Op, ...] = (PRODUCT_OF_OTHERS,)
