"""Messages between two ranks, and the meeting of all.

`send` and `barrier` act on the world in the order in which they were written, as taps do: they pass
their operand on. What is received is told apart by who sent it and its tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import GraphError, message
from ...ir.communicator import RING_TAG
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Effect, Kernel, Kind, Op
from ...ir.ranks import current
from ...ir.types import Type
from ..control.observing import fresh
from ..convert import as_node
from ..elementwise.arithmetic import add
from ..elementwise.comparison import where
from ..leaf import constant
from ..rules.batching import all_batched
from ..shape.creation import zeros_like
from .arrays import GROUP
from .whole import Group, grouped, whole

__all__ = ["barrier", "recv", "send"]

BACKWARD = RING_TAG // 2  # added to the tag of a message, for that of its cotangent


def _passing(call: Call, x: Type, *, passes: bool, **attrs: Any) -> Type:
    return x if passes else Type(np.dtype(np.uint8), (0,))


def _passed(xp: Any, x: Any, passes: bool) -> Any:
    return x if passes else xp.empty(0, np.uint8)


def _peer(name: str, rank: Any, size: int) -> int:
    number = whole(name, rank)
    if not 0 <= number < size:
        raise GraphError(
            message(f"{name}={number} of {size} ranks", need=f"a rank from 0 to {size - 1}")
        )
    return number


def _tag(tag: Any) -> int:
    number = whole("tag", tag)
    if not 0 <= number < BACKWARD:
        raise GraphError(message(f"tag={number}", need=f"a number from 0 to {BACKWARD - 1}"))
    return number


# ---- Sending


def _send(
    xp: Any, x: Any, *, to: int, tag: int, group: tuple[str, ...], size: int, passes: bool, uid: int
) -> Any:
    current().group(group).send(np.asarray(x, order="C") if xp is np else x, to, tag)
    return _passed(xp, x, passes)


def _send_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    attrs = node.attrs
    received = RECV(
        node.inputs[0],  # the answer is not waited for before this is there to be sent
        source=attrs["to"],
        tag=attrs["tag"] + BACKWARD,
        group=attrs["group"],
        size=attrs["size"],
    )
    return (add(cotangent, received),)


@documented
def send(x: Any, to: int, tag: int = 0, group: Group = ()) -> Node:
    """Return a value, and send it to a rank whenever a function computes it.

    Graphs of ranks that send and receive differ: the ranks have roles. Before a first run each
    message is paired with its receiver.

    x: Node or array of any shape and dtype.
    to: The rank, counted within the group, that receives it.
    tag: A number that tells messages between two ranks apart.
    returns: The value itself: use it in the place of `x`. What a function does not depend on, it
        does not send. The gradient is the cotangent, and what the receiver's `recv` sends back.
    raises GraphError, DTypeError: If there is no such rank or tag, or the mesh has no such axis.

    See Also
    --------
    recv : the other side.

    >>> def job():
    ...     x = mg.input("x", shape=(2,))
    ...     if mg.distributed.rank() == 0:
    ...         y = mg.distributed.send(x * 2.0, to=1)
    ...     else:
    ...         y = mg.distributed.recv(x, source=0)
    ...     return mg.function([x], y)([1.0, 2.0])
    >>> mg.distributed.threads(2, job)
    [array([2., 4.], dtype=float32), array([2., 4.], dtype=float32)]
    """
    axes, size = grouped(group)
    to, tag = _peer("to", to, size), _tag(tag)
    return SEND(as_node(x), to=to, tag=tag, group=axes, size=size, passes=True, uid=fresh())


SEND = Op(
    name="send",
    kind=Kind.COLLECTIVE,
    effect=Effect.ORDERED,
    doc="The operand, which is sent to another rank when it is computed.",
    rule=_passing,
    attributes={**GROUP, "to": "Count", "tag": "int", "uid": "int"},
    evaluate=_send,
    gradient=_send_gradient,
    batching=lambda node, operands, batched: node.op(*operands, **node.attrs),
    dtypes=INEXACT,
)


# ---- Receiving


def _recv(
    xp: Any, x: Any, *, source: int, tag: int, group: tuple[str, ...], size: int
) -> Any:
    return current().group(group).recv(xp.empty_like(x), source, tag)


def _recv_into(
    xp: Any, target: Any, x: Any, *, source: int, tag: int, group: tuple[str, ...], size: int
) -> None:
    current().group(group).recv(target, source, tag)


def _recv_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    attrs = node.attrs
    sent = SEND(
        cotangent,
        to=attrs["source"],
        tag=attrs["tag"] + BACKWARD,
        group=attrs["group"],
        size=attrs["size"],
        passes=True,
        uid=fresh(),
    )
    # Zero, and yet the cotangent is sent by whoever computes it.
    return (where(constant(False), sent, zeros_like(cotangent)),)


@documented
def recv(x: Any, source: int, tag: int = 0, group: Group = ()) -> Node:
    """Return the value that a rank sends.

    x: Node or array whose shape and dtype the message has. Its values are not read, but the message
        is not waited for before they are there: for the answer to something that this rank sends,
        that is what to give.
    source: The rank, counted within the group, that sends it.
    tag: As it was sent with. Two with equal arguments are one node, and one message.
    returns: Of the shape and dtype of `x`. The gradient by `x` is zero, and whoever computes it
        sends the cotangent back to the sender.
    raises GraphError, DTypeError: If there is no such rank or tag, or the mesh has no such axis.

    See Also
    --------
    send : the other side, with an example.

    >>> mg.distributed.recv(mg.input("x", shape=(2,)), source=0)
    <recv float32[2]>
    """
    axes, size = grouped(group)
    source, tag = _peer("source", source, size), _tag(tag)
    return RECV(as_node(x), source=source, tag=tag, group=axes, size=size)


RECV = Op(
    name="recv",
    kind=Kind.COLLECTIVE,
    doc="The value that another rank sends.",
    rule=lambda call, x, **attrs: x,
    attributes={**GROUP, "source": "Count", "tag": "int"},
    evaluate=_recv,
    kernel=Kernel(into=_recv_into, capturable=False),
    gradient=_recv_gradient,
    batching=lambda node, operands, batched: node.op(*operands, **node.attrs),
    dtypes=INEXACT,
)


# ---- Meeting


def _barrier(
    xp: Any, x: Any, *, group: tuple[str, ...], size: int, passes: bool, uid: int
) -> Any:
    current().group(group).barrier()
    return _passed(xp, x, passes)


@documented
def barrier(x: Any, group: Group = ()) -> Node:
    """Return a value; a call that computes it waits until all ranks have come as far.

    x: Node or array of any shape and dtype.
    returns: The value itself: use it in the place of `x`.
    raises GraphError: If the mesh has no such axis.

    >>> x = mg.input("x")
    >>> mg.function([x], mg.distributed.barrier(x) + 1.0)(2.0)
    array(3., dtype=float32)
    """
    axes, size = grouped(group)
    return BARRIER(as_node(x), group=axes, size=size, passes=True, uid=fresh())


def _map_barrier(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    return node.op(*all_batched(operands, batched), **node.attrs)


BARRIER = Op(
    name="barrier",
    kind=Kind.COLLECTIVE,
    effect=Effect.ORDERED,
    doc="The operand; all ranks wait for each other when it is computed.",
    rule=_passing,
    attributes={**GROUP, "uid": "int"},
    evaluate=_barrier,
    gradient=lambda node, cotangent: (cotangent,),
    batching=_map_barrier,
    dtypes=INEXACT,
)


RECORDS = (SEND, RECV, BARRIER)
