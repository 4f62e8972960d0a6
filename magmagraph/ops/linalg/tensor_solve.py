"""Linear systems and inverses of tensors that are read as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_node
from ..elementwise.family import pair
from ..shape.arrange import moveaxis, reshape
from ..shape.axes import axes_of
from .parts import (
    VECTOR,
)
from .solve import inv, solve

__all__ = [
    "tensorinv",
    "tensorsolve",
]


@documented
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Node:
    """Solve ``tensordot(a, x, x.ndim) = b`` for a tensor x.

    a: Node or array of shape ``b.shape + x.shape``, the product of whose extents is that of `b`
        squared.
    b: Node or array.
    axes: Axes of `a` that are moved to the end first.
    returns: Of the shape of the last axes of `a`.
    raises ShapeError: If `a` does not have as many elements for x as for `b`.
    raises LinAlgError: At run time, if `a` is singular.

    >>> a, b = mg.input("a", (6, 2, 3)), mg.input("b", (6,))
    >>> mg.linalg.tensorsolve(a, b).shape
    (2, 3)
    """
    left, right = pair(a, b)
    if axes is not None:
        last_axes = axes_of(Call(TENSORSOLVE, (left, right)), axes, left.ndim, "axes")
        left = moveaxis(left, last_axes, range(left.ndim - len(last_axes), left.ndim))
    shape = left.shape[right.ndim :]
    order = dims.size(shape)
    total = right.size
    if dims.unify(order, total, []) is None:
        raise Call(TENSORSOLVE, (left, right)).shape_error(
            f"{total} equations for {order} unknowns", need="as many of both"
        )
    solution = solve(reshape(left, (total, order)), reshape(right, (total,)))
    return reshape(solution, shape)


@documented
def tensorinv(a: Any, ind: int = 2) -> Node:
    """Invert a tensor as the linear map that `tensordot` makes of it.

    a: Node or array, its first `ind` axes with as many elements as the others.
    ind: How many axes of `a` belong to the result of the map.
    returns: Of shape ``a.shape[ind:] + a.shape[:ind]``.
    raises ShapeError: If both parts do not have as many elements, or `ind` is not positive.
    raises LinAlgError: At run time, if `a` is singular.

    >>> mg.linalg.tensorinv(mg.input("a", (4, 6, 8, 3))).shape
    (8, 3, 4, 6)
    """
    node = as_node(a)
    call = Call(TENSORINV, (node,))
    if not isinstance(ind, (int, np.integer)) or ind <= 0:
        raise call.shape_error(f"ind={ind!r}", need="a positive int")
    first, second = node.shape[:ind], node.shape[ind:]
    rows, columns = dims.size(first), dims.size(second)
    if dims.unify(rows, columns, []) is None:
        raise call.shape_error(
            f"{rows} elements in the first {ind} axes and {columns} in the others",
            need="as many in both",
        )
    return reshape(inv(reshape(node, (rows, columns))), (*second, *first))


_TENSOR = np.eye(6).reshape(6, 2, 3) + 0.1 * np.cos(np.arange(36.0)).reshape(6, 2, 3)

TENSORSOLVE = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=tensorsolve,
    tests=Tests(
        samples=lambda: [
            Sample((_TENSOR, np.linspace(-1.0, 1.5, 6))),
            Sample((np.moveaxis(_TENSOR, 1, 0), np.linspace(-1.0, 1.5, 6)), {"axes": (0, 2)}),
        ],
        bad_samples=lambda: [
            BadSample((_TENSOR, VECTOR), ShapeError, "tensorsolve: 3 equations for 6 unknowns")
        ],
        reference=np.linalg.tensorsolve,
    ),
    numerics="reassoc",
)

TENSORINV = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    function=tensorinv,
    tests=Tests(
        samples=lambda: [Sample((_TENSOR,), {"ind": 1})],
        bad_samples=lambda: [
            BadSample(
                (_TENSOR,),
                ShapeError,
                "tensorinv: 12 elements in the first 2 axes and 3 in the others",
            ),
            BadSample((_TENSOR,), ShapeError, "tensorinv: ind=0", {"ind": 0}),
        ],
        reference=np.linalg.tensorinv,
    ),
    numerics="reassoc",
)

RECORDS = (
    TENSORSOLVE,
    TENSORINV,
)
