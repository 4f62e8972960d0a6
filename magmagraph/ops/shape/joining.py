"""Repeating and joining: broadcast_to, concatenate, stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import (
    INEXACT,
    BadSample,
    Call,
    Composite,
    Kernel,
    Kind,
    Layout,
    Op,
    Pieces,
    Sample,
    Tests,
    ViewAxis,
)
from ...ir.types import Extent, Shape, Type
from ..convert import as_node, converted, promoted
from ..elementwise.family import one_dtype
from ..rules import onnx_forms, onnx_pairs
from .arrange import expand_dims, lifted, ravel
from .axes import MATRIX, shape_text
from .slicing import cut

# Broadcast.


def _broadcast_type(call: Call, x: Type, *, shape: Shape) -> Type:
    lead = len(shape) - x.ndim
    for axis, extent in enumerate(x.shape):
        if isinstance(extent, int) and extent == 1 and lead >= 0:
            continue
        if lead < 0 or dims.unify(extent, shape[lead + axis], call.constraints) is None:
            raise call.shape_error(
                f"shape {shape_text(x.shape)} does not broadcast to {shape_text(shape)}",
                need="trailing extents that are equal, or a literal 1",
            )
    return Type(x.dtype, shape)


def _broadcast_view(node: Node) -> list[ViewAxis]:
    (x,) = node.inputs
    lead = node.ndim - x.ndim
    return [
        ViewAxis(None if axis < lead or x.shape[axis - lead] == 1 else axis - lead)
        for axis in range(node.ndim)
    ]


def in_shape(node: Node, shape: Shape) -> Node:
    """Return a node in a shape that its own equals for the sizes of the call, which is checked.

    So ``max(n, 1)``, the extent of a cut that was padded back, meets ``n``. The node itself is
    returned where the shapes cannot be the same.
    """
    if node.shape == shape or len(node.shape) != len(shape):
        return node
    for own, other in zip(node.shape, shape, strict=True):
        is_literal = isinstance(own, int) or isinstance(other, int)
        if own != other and (is_literal or dims.unify(own, other, []) is None):
            return node
    return broadcast_to(node, shape)


def _map_broadcast(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    x = lifted(operands[0], node.ndim)
    return broadcast_to(x, (x.shape[0], *node.shape))


@documented
def broadcast_to(x: Any, shape: Any) -> Node:
    """Repeat `x` along new leading axes and along axes of literal extent 1.

    x: Node or array.
    shape: The shape of the result: ints, names, Dims. A named extent never stretches.
    returns (Node):
    raises ShapeError: If `x` does not broadcast to `shape`.

    >>> mg.broadcast_to(mg.constant([1, 2]), (2, 2)).eval()
    array([[1, 2],
           [1, 2]], dtype=int32)
    """
    node = as_node(x)
    target_shape = dims.parse_shape(shape)
    return node if node.shape == target_shape else BROADCAST_TO(node, shape=target_shape)


BROADCAST_TO = Op(
    name="broadcast_to",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    rule=_broadcast_type,
    evaluate=lambda xp, x, *, shape: xp.broadcast_to(x, shape),
    layout=Layout(view=_broadcast_view),
    # The backward sweep sums a cotangent over the axes that its operand was broadcast along.
    gradient=lambda node, cotangent: (cotangent,),
    batching=_map_broadcast,
    sharding="broadcast",
    function=broadcast_to,
    tests=Tests(
        samples=lambda: [
            Sample((MATRIX,), {"shape": (4, 2, 3)}),
            Sample((MATRIX[:, :1],), {"shape": (2, 5)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "broadcast_to: shape (2, 3) does not broadcast to (2, 4)",
                {"shape": (2, 4)},
            )
        ],
        reference=lambda x, shape: np.broadcast_to(x, shape),
    ),
    numerics="exact",
    onnx=onnx_pairs.Pairs(onnx_forms.broadcast, onnx_pairs.shaped("Expand")),
)


# Concatenate.


def _concatenate_type(call: Call, *operands: Type, axis: int) -> Type:
    dtype = one_dtype(call, *operands)
    first = operands[0]
    call.check_axis(axis, first.ndim)
    shape = list(first.shape)
    for operand in operands[1:]:
        if operand.ndim != first.ndim:
            raise call.shape_error(
                f"operands of {first.ndim} and {operand.ndim} axes",
                need="as many axes in each",
                hint="expand_dims, or stack for a new axis",
            )
        for i, extent in enumerate(operand.shape):
            if i == axis:
                shape[i] = shape[i] + extent
            else:
                shape[i] = call.unify(shape[i], extent, f"extents of axis {i}")
    return Type(dtype, tuple(shape))


def _concatenate_pieces(node: Node) -> Pieces:
    axis = node.attrs["axis"]
    start: Extent = 0
    starts = []
    for operand in node.inputs:
        starts.append(tuple(start if i == axis else 0 for i in range(node.ndim)))
        start = start + operand.shape[axis]
    return Pieces(tuple(starts))


def _concatenate_gradient(node: Node, cotangent: Node) -> tuple[Node, ...]:
    axis = node.attrs["axis"]
    parts = []
    start: Extent = 0
    for operand in node.inputs:
        extent = operand.shape[axis]
        parts.append(cut(cotangent, axis, start, extent))
        start = start + extent
    return tuple(parts)


def _members(name: str, arrays: Any, dtype: Any = None) -> tuple[Any, ...]:
    if isinstance(arrays, Node) or not isinstance(arrays, Iterable):
        raise DTypeError(
            message(
                f"{name}: the operands are one {type(arrays).__name__}",
                need="a list or tuple of nodes or arrays",
            )
        )
    if isinstance(arrays, np.ndarray) and not arrays.ndim:
        raise ShapeError(
            message(f"{name}: the operands are one number", need="a list or tuple of arrays")
        )
    members = list(arrays)
    if not members:
        raise ShapeError(message(f"{name}: no operands", need="at least one"))
    return promoted(*members) if dtype is None else tuple(members)


@documented
def concatenate(
    arrays: Any, axis: int | None = 0, *, dtype: Any = None, casting: str = "same_kind"
) -> Node:
    """Join arrays along an axis that they have.

    arrays: List of nodes or arrays with equal extents but along `axis`; their dtypes are promoted.
    axis: The axis; with None each is raveled first.
    dtype: Of the result; the promoted one unless said.
    casting: Which casts to `dtype` are allowed: "no" (nor "equiv"), "safe", "same_kind" (floats of
        any width to floats, also ints to floats), "unsafe".
    returns: Its extent along `axis` is the sum, exact also for symbolic extents.
    raises ShapeError: If the other extents differ, or there are no operands.

    >>> x = mg.input("x", ("n", 3))
    >>> mg.concatenate([x, x]).shape
    (2*n, 3)
    """
    nodes = converted("concatenate", _members("concatenate", arrays, dtype), dtype, casting)
    if axis is None:
        nodes = tuple(ravel(node) for node in nodes)
        axis = 0
    call = Call(CONCATENATE, nodes)
    if not nodes[0].ndim:
        raise call.shape_error(
            "operands without axes", need="at least one axis", hint="stack makes a new axis"
        )
    axis = call.axis(axis, nodes[0].ndim)
    return nodes[0] if len(nodes) == 1 else CONCATENATE(*nodes, axis=axis)


CONCATENATE = Op(
    name="concatenate",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    rule=_concatenate_type,
    evaluate=lambda xp, *operands, axis: xp.concatenate(operands, axis=axis),
    kernel=Kernel(
        into=lambda xp, target, *operands, axis: xp.concatenate(operands, axis=axis, out=target),
    ),
    layout=Layout(pieces=_concatenate_pieces),
    gradient=_concatenate_gradient,
    batching="axes",
    function=concatenate,
    tests=Tests(
        samples=lambda: [
            Sample(([MATRIX, MATRIX[:1]],)),
            Sample(([MATRIX, 2.0 * MATRIX, MATRIX[:, :1]],), {"axis": 1}),
        ],
        bad_samples=lambda: [
            BadSample(
                ([MATRIX, MATRIX[:, :2]],),
                ShapeError,
                "concatenate: extents of axis 1 differ: 3 and 2",
            ),
            BadSample(([MATRIX, MATRIX[0]],), ShapeError, "concatenate: operands of 2 and 1 axes"),
        ],
        reference=lambda arrays, axis=0: np.concatenate(arrays, axis),
    ),
    numerics="exact",
    onnx=onnx_pairs.Pairs(onnx_forms.joined, onnx_forms.joined),
)


@documented
def stack(
    arrays: Any, axis: int = 0, *, dtype: Any = None, casting: str = "same_kind"
) -> Node:
    """Join arrays of one shape along a new axis.

    arrays: List of nodes or arrays of one shape; their dtypes are promoted.
    axis: Where the new axis stands in the result.
    dtype, casting: See `concatenate`.
    returns (Node):
    raises ShapeError: If the shapes differ, or there are no operands.

    >>> mg.stack([mg.constant([1, 2]), mg.constant([3, 4])], axis=1).eval()
    array([[1, 3],
           [2, 4]], dtype=int32)
    """
    nodes = converted("stack", _members("stack", arrays, dtype), dtype, casting)
    call = Call(STACK, nodes)
    for node in nodes[1:]:
        if node.ndim != nodes[0].ndim:
            raise call.shape_error(
                f"operands of {nodes[0].ndim} and {node.ndim} axes", need="one shape"
            )
    axis = call.axis(axis, nodes[0].ndim + 1)
    return concatenate([expand_dims(node, axis) for node in nodes], axis)


STACK = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=stack,
    tests=Tests(
        samples=lambda: [Sample(([MATRIX, 2.0 * MATRIX],), {"axis": 1})],
        bad_samples=lambda: [
            BadSample(
                ([MATRIX, MATRIX[:1]],),
                ShapeError,
                "concatenate: extents of axis 1 differ: 2 and 1",
            )
        ],
        reference=lambda arrays, axis=0: np.stack(arrays, axis),
    ),
    numerics="exact",
)

RECORDS = (BROADCAST_TO, CONCATENATE, STACK)
