"""Messages between two ranks on their devices: by NCCL, on a stream for each direction.

NCCL's send waits for its receiver; `send` must not. So it sends a copy, on a stream where nothing
waits for it but what goes to the same rank later. Messages of one direction meet in the order of
the plans: where the receiver takes them in another, all of that direction go through the host, as
they do where NCCL is not there or two ranks share a device; or by MPI with the addresses of their
operands, if it takes them.
"""

from __future__ import annotations

import platform
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....ir.communicator import Communicator
from ....ir.fallback import Refused
from ....ir.graph import Node
from ....ir.plan import Plan, Role, Step
from ....ir.ranges import Touched
from ....ir.ranks import current
from ...comm.nccl import NcclLine
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .calls import CollectiveCall, LibraryCall
from .carriers import library
from .message_nodes import bodies_within, holds, is_message, speaks

__all__ = ["End", "Line", "Lines", "is_message", "lines_of", "message", "messages_of", "speaks"]


class End(NamedTuple):
    """One end of a message, that of this rank.

    Attributes
    ----------
    other
        The rank at the other end, by its number among all.
    sends
        Whether this one sends.
    tag
        Of the message.
    """

    other: int
    sends: bool
    tag: int


class Line(NamedTuple):
    """The connection for messages of one direction.

    Attributes
    ----------
    line
        NCCL's communicator.
    lane
        The number of their stream among those of collectives.
    """

    line: NcclLine
    lane: int


Lines = Mapping[tuple[int, bool], Line]  # by the other rank, and whether this one sends


def end_of(node: Node, world: Communicator) -> End:
    """Return this rank's end of a message."""
    attrs = node.attrs
    members = world.mesh.members(world.rank, attrs["group"])
    sends = "to" in attrs
    return End(members[attrs["to" if sends else "source"]], sends, attrs["tag"])


def messages_of(plan: Plan, world: Communicator) -> tuple[list[End], bool]:
    """Return the messages of a plan in their order, and whether bodies of its steps have others.

    Parameters
    ----------
    plan
        This rank's.
    world
        All ranks.
    """
    ends: list[End] = []
    inside = False
    for step in plan.steps:
        if step.role is Role.COLLECTIVE and is_message(step.node):
            ends.append(end_of(step.node, world))
        inside = inside or any(holds(body, is_message) for body in bodies_within(step.node))
    return ends, inside


def lines_of(plan: Plan, device: Any) -> Lines:
    """Return the connections of a plan's messages; other directions use the host.

    The two ranks of a pair call it together, when they make a function's plan.
    """
    world = current()
    if world.size == 1:
        return {}
    ends, inside = messages_of(plan, world)
    line_of: dict[tuple[int, bool], Line] = {}
    # In an order in which no two ranks wait for each other: that of the pairs' numbers.
    for number, other in enumerate(sorted({end.other for end in ends} - {world.rank})):
        sent, received = (
            [end.tag for end in ends if end.other == other and end.sends is sends]
            for sends in (True, False)
        )
        pair = _pair(world, other, device)
        theirs = pair.ranks.exchange((sent, received, inside), "the order of messages")
        other_side = theirs[1 - pair.ranks.rank]
        if pair.lines is None or inside or other_side[2]:
            continue
        for sends, own, opposite in ((True, sent, other_side[1]), (False, received, other_side[0])):
            if own and own == opposite:
                line_of[other, sends] = Line(pair.lines[sends], 1 + 2 * number + sends)
    return line_of


class _Pair(NamedTuple):
    """Two ranks, and a line for each direction; None where they cannot have any."""

    ranks: Communicator
    lines: dict[bool, NcclLine] | None


_known: weakref.WeakKeyDictionary[Communicator, dict[tuple[int, int], _Pair]] = (
    weakref.WeakKeyDictionary()
)


def _pair(world: Communicator, other: int, device: Any) -> _Pair:
    """Return this rank and another one; both call it, the first time together."""
    pairs = _known.setdefault(world, {})
    key = device.number, other
    if key not in pairs:
        ranks = world.subset(sorted((world.rank, other)))
        nccl = library()
        place = device.cupy.cuda.runtime.deviceGetPCIBusId(device.number)
        able = ranks.exchange(None if nccl is None else (platform.node(), place), "NCCL's start")
        lines = None
        if None not in able and len(set(able)) == 2:
            with device:  # first what goes to the rank with the larger number
                lines = {
                    sends: NcclLine(ranks, sends, device.cupy, nccl)
                    for sends in (ranks.rank == 0, ranks.rank == 1)
                }
        pairs[key] = _Pair(ranks, lines)
    return pairs[key]


def message(
    memory: PlanMemory, step: Step, lines: Lines
) -> list[tuple[Any, Touched]]:
    """Return what launches one end of a message, with the memory that each launch touches.

    Raises
    ------
    Refused
        The step has to go through the host.
    """
    end = end_of(step.node, current())
    connection = lines.get((end.other, end.sends))
    if connection is None:
        raise Refused("NCCL has no connection between the two ranks", expected=current().size == 1)
    line, lane = connection
    operand = step.inputs[0]
    count = int(operand.type.bytes)

    def pass_on(stream: Any, address: int) -> None:
        line.pass_on(address, count, stream)

    if not end.sends:
        return [(CollectiveCall(pass_on, [memory.at(step.outputs[0])], lane), memory.touched(step))]
    runtime = memory.device.cupy.cuda.runtime
    passes = step.node.attrs["passes"]
    source, target = memory.at(operand), memory.at(step.outputs[0]) if passes else 0
    copy = memory.more(max(1, count))

    def keep(stream: Any, start: int, to: int) -> None:
        if not count:
            return
        runtime.memcpyAsync(copy, start, count, DEVICE_TO_DEVICE, stream.ptr)
        if passes and to != start:
            runtime.memcpyAsync(to, start, count, DEVICE_TO_DEVICE, stream.ptr)

    kept = (copy, copy + count)
    touched = memory.touched(step)
    return [
        (LibraryCall(keep, [source, target]), Touched(touched.read, (*touched.written, kept))),
        (CollectiveCall(pass_on, [copy], lane), Touched((kept,), ())),
    ]
