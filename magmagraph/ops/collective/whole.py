"""Collectives that all ranks of a group call: sums over ranks, gathers, exchanges, their numbers.

They carry the names of the mesh's axes and the number of ranks, never rank numbers, so that the
graphs of all ranks are equal. All are pure: equal ones are one node, on every rank alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_bool
from ...errors import DTypeError, GraphError, ShapeError, message
from ...ir.communicator import REDUCTIONS
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Kernel, Kind, Op, Sample, Tests
from ...ir.ranks import current
from ...ir.types import Type
from ..control.identities import ITEM
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, multiply
from ..elementwise.comparison import equal, where
from ..rules.sharding import shard_alike
from ..shape.creation import zeros_like
from .arrays import GROUP, REDUCED

__all__ = ["allreduce", "broadcast", "permute"]

Group = str | Sequence[str]

_ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
_COUNTS = np.array([[3, -1], [0, 7]])


def grouped(group: Group) -> tuple[tuple[str, ...], int]:
    """Return the axes of a group in the mesh's order, and how many ranks differ in them."""
    mesh = current().mesh
    return mesh.group(group), mesh.extent(group)


def _same(call: Call, x: Type, **attrs: Any) -> Type:
    return x


def _again(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """A collective that looks at no axis takes one more as it comes."""
    return node.op(*operands, **node.attrs)


# ---- Sums over ranks


def _allreduce_type(call: Call, x: Type, *, op: str, group: tuple[str, ...], size: int) -> Type:
    if op not in REDUCTIONS:
        raise call.shape_error(f"op={op!r}", need="'sum', 'mean', 'max' or 'min'")
    if is_bool(x.dtype):
        raise call.dtype_error(
            f"a {op} of bool", need="numbers", hint="mg.cast(x, 'int32')"
        )
    if op != "sum" and x.dtype.kind == "c":
        raise call.dtype_error(
            f"a {op} of {x.dtype.name}", need="real numbers", hint="mg.absolute(x)"
        )
    return x


def _allreduce_into(
    xp: Any, target: Any, x: Any, *, op: str, group: tuple[str, ...], size: int
) -> None:
    current().group(group).allreduce(x, op, target)


def _reduction_gradient(x: Node, y: Node, cotangent: Node, attrs: Any) -> Node:
    """Return the cotangent of one rank's part `x` of a reduction `y`."""
    op = attrs["op"]
    attrs = {**attrs, "op": "sum"}
    total = ALLREDUCE(cotangent, **attrs)
    if op == "sum":
        return total
    ties = cast(equal(x, y), y.dtype)  # ranks that tie share the cotangent
    return divide(multiply(ties, total), ALLREDUCE(ties, **attrs))


def _allreduce_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (_reduction_gradient(node.inputs[0], node, cotangent, node.attrs),)


@documented
def allreduce(x: Any, op: str = "sum", group: Group = ()) -> Node:
    """Reduce the values of all ranks, element by element; every rank gets the result.

    x: Node or array of the same shape and dtype on every rank.
    op ({"sum", "mean", "max", "min"}): How values are joined. Sums and means of 16-bit floats are
        made in float32.
    returns: Of the shape and dtype of `x` (a mean of integers is a float). All ranks get the same
        bits.
    raises ShapeError, DTypeError, GraphError: If there is no such reduction, values have no such
        order, or the mesh has no such axis.

    Notes
    -----
    Gradients are those of the sum of all ranks' losses: of a sum the sum of the cotangents; of a
    maximum too, shared by the ranks that have it.

    >>> def job():
    ...     x = mg.input("x", shape=(2,))
    ...     mine = [1.0, 10.0 * mg.distributed.rank()]
    ...     return mg.function([x], mg.distributed.allreduce(x))(mine)
    >>> mg.distributed.threads(3, job)[0]
    array([ 3., 30.], dtype=float32)
    """
    node = as_node(x)
    axes, size = grouped(group)
    if op == "mean":
        return divide(ALLREDUCE(node, op="sum", group=axes, size=size), size)
    return ALLREDUCE(node, op=op, group=axes, size=size)


ALLREDUCE = Op(
    name="allreduce",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_allreduce_type,
    attributes=REDUCED,
    evaluate=lambda xp, x, *, op, group, size: current().group(group).allreduce(x, op),
    kernel=Kernel(into=_allreduce_into),
    gradient=_allreduce_gradient,
    batching=_again,
    sharding=shard_alike,
    dtypes=INEXACT,
    function=allreduce,
    tests=Tests(
        samples=lambda: [
            Sample((_ROWS,)),
            Sample((_ROWS,), {"op": "mean"}),
            Sample((_COUNTS,), {"op": "min"}),
            Sample((np.float64(2.0),)),
        ],
        bad_samples=lambda: [
            BadSample((_ROWS,), ShapeError, "allreduce: op='product'", {"op": "product"}),
            BadSample((np.array([True]),), DTypeError, "allreduce: a sum of bool"),
            BadSample(
                (_ROWS,), GraphError, "group='nowhere' names 'nowhere'", {"group": "nowhere"}
            ),
        ],
        reference=lambda x, op="sum", group=(): (
            np.asarray(x) / 1 if op == "mean" else np.asarray(x)
        ),
    ),
    numerics="reassoc",
)


def _many_type(
    call: Call, *arrays: Type, op: str, group: tuple[str, ...], size: int
) -> tuple[Type, ...]:
    for array in arrays:
        _allreduce_type(call, array, op=op, group=group, size=size)
        if array.dtype != arrays[0].dtype:
            raise call.dtype_error("operands of several dtypes", need="one dtype")
    return arrays


def _many(
    xp: Any, *arrays: Any, op: str, group: tuple[str, ...], size: int
) -> tuple[Any, ...]:
    outs = tuple(xp.empty(array.shape, array.dtype) for array in arrays)
    current().group(group).allreduce_many(arrays, op, outs)
    return outs


def _many_into(
    xp: Any, targets: Any, *arrays: Any, op: str, group: tuple[str, ...], size: int
) -> None:
    current().group(group).allreduce_many(arrays, op, targets)


def _many_gradient(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    return [
        None
        if cotangent is None
        else _reduction_gradient(operand, ITEM(node, index=i), cotangent, node.attrs)
        for i, (operand, cotangent) in enumerate(zip(node.inputs, cotangents, strict=True))
    ]


ALLREDUCE_MANY = Op(
    name="allreduce_many",
    kind=Kind.COLLECTIVE,
    doc="The sums, maxima or minima of all ranks' values, of several arrays in one message.",
    rule=_many_type,
    attributes=REDUCED,
    evaluate=_many,
    kernel=Kernel(into=_many_into),
    gradient=_many_gradient,
    dtypes=INEXACT,
    numerics="reassoc",
)


# ---- One rank's value, and the neighbour's


def _broadcast_type(
    call: Call, x: Type, *, root: int, group: tuple[str, ...], size: int, uid: int = 0
) -> Type:
    if not 0 <= root < size:
        raise call.shape_error(f"root={root} of {size} ranks", need=f"a rank from 0 to {size - 1}")
    return x


def _broadcast_into(
    xp: Any, target: Any, x: Any, *, root: int, group: tuple[str, ...], size: int, uid: int = 0
) -> None:
    current().group(group).broadcast(x, root, target)


def _broadcast_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    attrs = node.attrs
    group = {"group": attrs["group"], "size": attrs["size"]}
    total = ALLREDUCE(cotangent, op="sum", **group)
    return (where(equal(INDEX(**group), attrs["root"]), total, zeros_like(total)),)


@documented
def broadcast(x: Any, root: int = 0, group: Group = ()) -> Node:
    """Give one rank's value to all ranks.

    x: Node or array of the same shape and dtype on every rank.
    root: The rank, counted within the group, whose value it is.
    returns: Of the shape and dtype of `x`. The gradient is the sum of all cotangents on the root,
        and zero elsewhere.
    raises ShapeError, GraphError: If there is no such rank, or the mesh has no such axis.

    >>> def job():
    ...     x = mg.input("x")
    ...     return mg.function([x], mg.distributed.broadcast(x))(5.0 + mg.distributed.rank())
    >>> mg.distributed.threads(2, job)
    [array(5., dtype=float32), array(5., dtype=float32)]
    """
    axes, size = grouped(group)
    return BROADCAST(as_node(x), root=whole("root", root), group=axes, size=size)


def whole(name: str, value: Any) -> int:
    """Return an argument as an int, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise DTypeError(message(f"{name}={value!r} is not an int", need="a number of ranks"))
    return int(value)


BROADCAST = Op(
    name="broadcast",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_broadcast_type,
    attributes={**GROUP, "root": "Count"},
    evaluate=lambda xp, x, *, root, group, size, uid=0: current().group(group).broadcast(x, root),
    kernel=Kernel(into=_broadcast_into),
    gradient=_broadcast_gradient,
    batching=_again,
    dtypes=INEXACT,
    function=broadcast,
    tests=Tests(
        samples=lambda: [Sample((_ROWS,)), Sample((_COUNTS,)), Sample((np.array([True, False]),))],
        bad_samples=lambda: [
            BadSample((_ROWS,), ShapeError, "broadcast: root=3 of 1 ranks", {"root": 3}),
            BadSample((_ROWS,), DTypeError, "root=0.5 is not an int", {"root": 0.5}),
        ],
        reference=lambda x, root=0, group=(): np.asarray(x),
    ),
    numerics="exact",
)

REDUCE = Op(
    name="reduce",
    kind=Kind.COLLECTIVE,
    doc="The sum of all ranks' values on one of them; what the others get has no meaning.",
    rule=_broadcast_type,
    attributes={**GROUP, "root": "Count"},
    evaluate=lambda xp, x, *, root, group, size: current().group(group).reduce(x, root),
    kernel=Kernel(
        into=lambda xp, target, x, *, root, group, size: (
            current().group(group).reduce(x, root, target)
        ),
    ),
    gradient=lambda node, cotangent: (BROADCAST(cotangent, **node.attrs),),
    batching=_again,
    dtypes=INEXACT,
    numerics="reassoc",
)


def _permute_into(
    xp: Any, target: Any, x: Any, *, shift: int, group: tuple[str, ...], size: int
) -> None:
    current().group(group).permute(x, shift, target)


def _permute_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    attrs = node.attrs
    return (PERMUTE(cotangent, **{**attrs, "shift": -attrs["shift"] % attrs["size"]}),)


@documented
def permute(x: Any, shift: int = 1, group: Group = ()) -> Node:
    """Hand values on around the ring of ranks: one send and one receive together.

    x: Node or array of the same shape and dtype on every rank.
    shift: How many places: rank r gets the value of rank ``r - shift``, modulo the number of ranks.
    returns: Of the shape and dtype of `x`. The gradient goes around the other way.
    raises DTypeError, GraphError: If the shift is not an int, or the mesh has no such axis.

    >>> def job():
    ...     x = mg.input("x", dtype="int32")
    ...     return int(mg.function([x], mg.distributed.permute(x))(mg.distributed.rank()))
    >>> mg.distributed.threads(3, job)
    [2, 0, 1]
    """
    axes, size = grouped(group)
    return PERMUTE(as_node(x), shift=whole("shift", shift) % size, group=axes, size=size)


PERMUTE = Op(
    name="permute",
    namespace="distributed",
    kind=Kind.COLLECTIVE,
    rule=_same,
    attributes={**GROUP, "shift": "int"},
    evaluate=lambda xp, x, *, shift, group, size: current().group(group).permute(x, shift),
    kernel=Kernel(into=_permute_into),
    gradient=_permute_gradient,
    batching=_again,
    dtypes=INEXACT,
    function=permute,
    tests=Tests(
        samples=lambda: [Sample((_ROWS,)), Sample((_COUNTS,), {"shift": 2})],
        bad_samples=lambda: [
            BadSample((_ROWS,), DTypeError, "shift=0.5 is not an int", {"shift": 0.5})
        ],
        reference=lambda x, shift=1, group=(): np.asarray(x),
    ),
    numerics="exact",
)

# ---- A rank's own place


@documented
def index(group: Group = ()) -> Node:
    """Return this rank's number, among all or in a group of the mesh, as a value of the graph.

    The graphs of all ranks stay equal: the number is filled in when a plan is bound.

    returns: An int64 scalar, from 0 to ``mg.distributed.size(group) - 1``.
    raises GraphError: If the mesh has no such axis.

    >>> def job():
    ...     return int(mg.function([], mg.distributed.index() * 10)())
    >>> mg.distributed.threads(3, job)
    [0, 10, 20]
    """
    axes, size = grouped(group)
    return INDEX(group=axes, size=size)


INDEX = Op(
    name="distributed_index",
    namespace="distributed",
    kind=Kind.LEAF,
    rule=lambda call, *, group, size: Type(np.dtype(np.int64), ()),
    attributes=GROUP,
    evaluate=lambda xp, *, group, size: xp.asarray(current().group(group).rank, dtype=np.int64),
    no_gradient="integer valued",
    function=index,
    tests=Tests(
        samples=lambda: [Sample(())], bad_samples=lambda: [], reference=lambda group=(): np.int64(0)
    ),
    numerics="exact",
)


RECORDS = (INDEX, ALLREDUCE, ALLREDUCE_MANY, BROADCAST, REDUCE, PERMUTE)
