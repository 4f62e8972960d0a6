"""Collectives of which each rank has a part: gathers, sums that are dealt out, exchanges of rows.

The primitive operations have one row for each rank along the first axis; the public functions move
and join axes around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_bool
from ...errors import ShapeError
from ...ir.communicator import REDUCTIONS
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Kernel, Kind, Op, Sample, Tests
from ...ir.ranks import current
from ...ir.types import Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, multiply
from ..elementwise.comparison import equal
from ..rules.batching import to_front
from ..rules.sharding import shard_gathered
from ..shape.arrange import moveaxis, reshape
from .arrays import GROUP, REDUCED
from .whole import ALLREDUCE, Group, grouped

__all__ = ["allgather", "alltoall", "reduce_scatter"]

_ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
_COUNTS = np.array([[3, -1], [0, 7]])


def _check_rows(call: Call, x: Type, size: int) -> None:
    if not x.ndim:
        raise call.shape_error("a scalar has no rows for the ranks", need="an axis to cut")
    first = x.shape[0]
    if first != size:
        raise call.shape_error(f"{first} rows for {size} ranks", need=f"{size} rows")


def _cut(op: Op, x: Node, axis: int, size: int) -> Node:
    """Return a value with an axis cut into as many parts as there are ranks, the parts in front."""
    call = Call(op, (x,))
    if not x.ndim:
        raise call.shape_error("a scalar has no rows for the ranks", need="an axis to cut")
    axis = call.axis(axis, x.ndim)
    extent = x.shape[axis]
    if isinstance(extent, int) and extent % size:
        raise call.shape_error(
            f"axis {axis} of extent {extent} is cut into {size} parts",
            need=f"a multiple of {size}",
            hint="mg.pad(x, ...) fills it up",
        )
    first = moveaxis(x, axis, 0)
    rows = extent // size if isinstance(extent, (int, Dim)) else -1
    return reshape(first, (size, rows, *first.shape[1:]))


def _join(x: Node, axis: int) -> Node:
    """Merge the first axis into another one, as its outer part."""
    front = moveaxis(x, 0, axis)
    shape = front.shape
    return reshape(front, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


# ---- All ranks' values


def _allgather_type(call: Call, x: Type, *, group: tuple[str, ...], size: int) -> Type:
    return Type(x.dtype, (size, *x.shape))


def _allgather_into(xp: Any, target: Any, x: Any, *, group: tuple[str, ...], size: int) -> None:
    current().group(group).allgather(x, target)


def _allgather_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (REDUCE_SCATTER(cotangent, op="sum", **node.attrs),)


def _map_allgather(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    return to_front(node.op(*operands, **node.attrs), 1)


@documented
def allgather(x: Any, axis: int = 0, group: Group = ()) -> Node:
    """Join the values of all ranks along an axis, in the order of the ranks.

    x: Node or array of the same shape and dtype on every rank.
    axis: The axis that they are joined along.
    returns: Of the dtype of `x`, with as many times the extent as there are ranks; of scalars a
        vector. The gradient is `reduce_scatter`.
    raises ShapeError, GraphError: If `x` has no such axis, or the mesh has none.

    >>> def job():
    ...     x = mg.input("x", shape=(2,), dtype="int32")
    ...     mine = [0, mg.distributed.rank()]
    ...     return mg.function([x], mg.distributed.allgather(x))(mine)
    >>> mg.distributed.threads(3, job)[1]
    array([0, 0, 0, 1, 0, 2], dtype=int32)
    """
    node = as_node(x)
    axes, size = grouped(group)
    if not node.ndim:
        return ALLGATHER(node, group=axes, size=size)
    axis = Call(ALLGATHER, (node,)).axis(axis, node.ndim)
    return _join(ALLGATHER(node, group=axes, size=size), axis)


ALLGATHER = Op(
    name="allgather",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_allgather_type,
    attributes=GROUP,
    evaluate=lambda xp, x, *, group, size: current().group(group).allgather(x),
    kernel=Kernel(into=_allgather_into),
    gradient=_allgather_gradient,
    batching=_map_allgather,
    sharding=shard_gathered,
    dtypes=INEXACT,
    function=allgather,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS,)),
            Sample((_ROWS,), {"axis": -1}),
            Sample((_COUNTS,), {"axis": 1}),
            Sample((np.float64(2.0),)),
        ],
        bad_samples=lambda: [
            BadSample(
                (_ROWS,), ShapeError, "allgather: axis=2 is out of range for 2 axes", {"axis": 2}
            )
        ],
        reference=lambda x, axis=0, group=(): np.atleast_1d(x),
    ),
    numerics="exact",
)


# ---- Sums that are dealt out


def _scatter_type(
    call: Call, x: Type, *, op: str, group: tuple[str, ...], size: int
) -> Type:
    _check_rows(call, x, size)
    if op not in REDUCTIONS:
        raise call.shape_error(f"op={op!r}", need="'sum', 'max' or 'min'")
    if is_bool(x.dtype):
        raise call.dtype_error(f"a {op} of bool", need="numbers", hint="mg.cast(x, 'int32')")
    if op != "sum" and x.dtype.kind == "c":
        raise call.dtype_error(
            f"a {op} of {x.dtype.name}", need="real numbers", hint="mg.absolute(x)"
        )
    return Type(x.dtype, x.shape[1:])


def _scatter_into(
    xp: Any, target: Any, x: Any, *, op: str, group: tuple[str, ...], size: int
) -> None:
    current().group(group).reduce_scatter(x, op, target)


def _scatter_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    group = {"group": node.attrs["group"], "size": node.attrs["size"]}
    rows = ALLGATHER(cotangent, **group)
    if node.attrs["op"] == "sum":
        return (rows,)
    ties = cast(equal(node.inputs[0], ALLGATHER(node, **group)), node.dtype)
    shared = ALLREDUCE(ties, op="sum", **group)  # how many ranks tie
    return (divide(multiply(ties, rows), shared),)


def _map_scatter(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    return node.op(moveaxis(operands[0], 0, 1), **node.attrs)


@documented
def reduce_scatter(x: Any, axis: int = 0, op: str = "sum", group: Group = ()) -> Node:
    """Reduce the values of all ranks; each rank gets its part of the result along an axis.

    x: Node or array of the same shape and dtype on every rank.
    axis: The axis that is cut into equal parts, one for each rank, in order.
    op ({"sum", "max", "min"}): How values are joined. Sums of 16-bit floats are made in float32.
    returns: Of the dtype of `x`, the extent of the axis divided by the number of ranks. The
        gradient is `allgather`.
    raises ShapeError, DTypeError, GraphError: If the extent is not a multiple of the number of
        ranks, there is no such reduction, or the mesh has no such axis.

    >>> def job():
    ...     x = mg.input("x", shape=(4,), dtype="int32")
    ...     return mg.function([x], mg.distributed.reduce_scatter(x))([1, 2, 3, 4])
    >>> mg.distributed.threads(2, job)
    [array([2, 4], dtype=int32), array([6, 8], dtype=int32)]
    """
    node = as_node(x)
    axes, size = grouped(group)
    axis_at = axis % node.ndim if node.ndim and -node.ndim <= axis < node.ndim else axis
    part = REDUCE_SCATTER(_cut(REDUCE_SCATTER, node, axis, size), op=op, group=axes, size=size)
    return moveaxis(part, 0, axis_at)


REDUCE_SCATTER = Op(
    name="reduce_scatter",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_scatter_type,
    attributes=REDUCED,
    evaluate=lambda xp, x, *, op, group, size: current().group(group).reduce_scatter(x, op),
    kernel=Kernel(into=_scatter_into),
    gradient=_scatter_gradient,
    batching=_map_scatter,
    dtypes=INEXACT,
    function=reduce_scatter,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS,)),
            Sample((_ROWS,), {"axis": 1}),
            Sample((_COUNTS,), {"axis": -1, "op": "min"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_ROWS,),
                ShapeError,
                "reduce_scatter: axis=2 is out of range for 2 axes",
                {"axis": 2},
            ),
            BadSample((_ROWS,), ShapeError, "reduce_scatter: op='mean'", {"op": "mean"}),
            BadSample(
                (np.float64(1.0),), ShapeError, "reduce_scatter: a scalar has no rows for the ranks"
            ),
        ],
        reference=lambda x, axis=0, op="sum", group=(): np.asarray(x),
    ),
    numerics="reassoc",
)


# ---- Rows for each other


def _alltoall_type(call: Call, x: Type, *, group: tuple[str, ...], size: int) -> Type:
    _check_rows(call, x, size)
    return x


def _alltoall_into(xp: Any, target: Any, x: Any, *, group: tuple[str, ...], size: int) -> None:
    current().group(group).alltoall(x, target)


def _alltoall_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (ALLTOALL(cotangent, **node.attrs),)


def _map_alltoall(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    return to_front(node.op(moveaxis(operands[0], 0, 1), **node.attrs), 1)


@documented
def alltoall(x: Any, split: int = 0, join: int = 0, group: Group = ()) -> Node:
    """Send each rank its part of a value, and join the parts that come from all ranks.

    x: Node or array of the same shape and dtype on every rank.
    split: The axis that is cut into equal parts, one for each rank.
    join: The axis that the received parts are joined along, in the order of the ranks.
    returns: Of the dtype of `x`: ``split`` divided by the number of ranks, ``join`` multiplied by
        it. Where both are one axis, the shape is that of `x`. The gradient is the exchange back.
    raises ShapeError, GraphError: If the extent is not a multiple of the number of ranks, or the
        mesh has no such axis.

    >>> def job():
    ...     x = mg.input("x", shape=(2,), dtype="int32")
    ...     mine = [10 * mg.distributed.rank(), 10 * mg.distributed.rank() + 1]
    ...     return mg.function([x], mg.distributed.alltoall(x))(mine)
    >>> mg.distributed.threads(2, job)
    [array([ 0, 10], dtype=int32), array([ 1, 11], dtype=int32)]
    """
    node = as_node(x)
    axes, size = grouped(group)
    rows = _cut(ALLTOALL, node, split, size)
    call = Call(ALLTOALL, (node,))
    split, join = call.axis(split, node.ndim), call.axis(join, node.ndim, "join")
    swapped = ALLTOALL(rows, group=axes, size=size)
    return _join(moveaxis(swapped, 1, 1 + split), join)


ALLTOALL = Op(
    name="alltoall",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_alltoall_type,
    attributes=GROUP,
    evaluate=lambda xp, x, *, group, size: current().group(group).alltoall(x),
    kernel=Kernel(into=_alltoall_into),
    gradient=_alltoall_gradient,
    batching=_map_alltoall,
    dtypes=INEXACT,
    function=alltoall,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS,)),
            Sample((_ROWS,), {"split": 1, "join": 0}),
            Sample((_COUNTS,), {"split": -1, "join": -1}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_ROWS,), ShapeError, "alltoall: join=2 is out of range for 2 axes", {"join": 2}
            )
        ],
        reference=lambda x, split=0, join=0, group=(): np.asarray(x),
    ),
    numerics="exact",
)

# ---- A rank's own row: what rings cut and join. All are local; `group` tells the rank's number.


def _row_type(
    call: Call, x: Type, *, shift: int, group: tuple[str, ...], size: int
) -> Type:
    _check_rows(call, x, size)
    return Type(x.dtype, x.shape[1:])


def _row(x: Any, shift: int, group: tuple[str, ...], size: int) -> Any:
    return x[(current().group(group).rank + shift) % size]


def _row_into(
    xp: Any, target: Any, x: Any, *, shift: int, group: tuple[str, ...], size: int
) -> None:
    target[...] = _row(x, shift, group, size)


RANK_ROW = Op(
    name="rank_row",
    kind=Kind.COLLECTIVE,
    doc="The row of a rank so many places behind this one, of one row for each rank.",
    rule=_row_type,
    attributes=GROUP,
    evaluate=lambda xp, x, *, shift, group, size: _row(x, shift, group, size),
    kernel=Kernel(into=_row_into),
    no_gradient="it is made behind gradients, by the pass that distributes",
    dtypes=INEXACT,
    numerics="exact",
)


def _rows_type(
    call: Call, *rows: Type, shift: int, group: tuple[str, ...], size: int
) -> Type:
    if len(rows) != size or any(row != rows[0] for row in rows):
        raise call.shape_error(f"{len(rows)} rows for {size} ranks", need=f"{size} of one type")
    return Type(rows[0].dtype, (size, *rows[0].shape))


def _rows_into(
    xp: Any, target: Any, *rows: Any, shift: int, group: tuple[str, ...], size: int
) -> None:
    first = current().group(group).rank + shift
    for place, row in enumerate(rows):
        target[(first - place) % size] = row


def _rows(xp: Any, *rows: Any, shift: int, group: tuple[str, ...], size: int) -> Any:
    target = xp.empty((size, *rows[0].shape), rows[0].dtype)
    _rows_into(xp, target, *rows, shift=shift, group=group, size=size)
    return target


RANK_ROWS = Op(
    name="rank_rows",
    kind=Kind.COLLECTIVE,
    doc="Rows in the order of the ranks: the first is that of the rank `shift` places behind "
    "this one, each further one is of the rank before.",
    rule=_rows_type,
    attributes=GROUP,
    evaluate=_rows,
    kernel=Kernel(into=_rows_into),
    no_gradient="it is made behind gradients, by the pass that distributes",
    dtypes=INEXACT,
    numerics="exact",
)

RECORDS = (ALLGATHER, REDUCE_SCATTER, ALLTOALL, RANK_ROW, RANK_ROWS)
