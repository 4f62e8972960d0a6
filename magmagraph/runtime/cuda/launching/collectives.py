"""Launches of collectives: by NCCL, on a stream of their own in a captured graph.

Where NCCL is not there, or two ranks share a device, graphs are cut by these steps: MPI is called
with the addresses of their operands, if it takes them, else operands go through the host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....codegen.steps import shape_of
from ....config import word
from ....ir.fallback import Refused
from ....ir.interpret import bind_attributes
from ....ir.plan import Step, Value
from ....ir.ranks import current, using
from ....ops.collective.arrays import Axis, summed
from ....ops.collective.timed import ALLREDUCE_MANY_WHEN, ALLREDUCE_WHEN
from ....ops.collective.whole import ALLREDUCE_MANY
from ..memory import PlanMemory
from .call_counters import is_timed
from .calls import CollectiveCall, LibraryCall, TimedCall
from .carriers import VARIABLE, carriers_of
from .packing import copied, packs

if TYPE_CHECKING:
    from ...comm.cuda_aware_mpi import AwareRank

__all__ = ["CollectiveCall", "by_addresses", "collective", "unsent"]


def collective(memory: PlanMemory, step: Step) -> CollectiveCall:
    """Return what launches a collective.

    All ranks call it, in the same order: NCCL's ranks meet at the first call for a device.

    Raises
    ------
    Refused
        NCCL does not carry it.
    """
    node = step.node
    if not node.op.kernel.capturable or node.op.kernel.into is None:
        raise Refused("NCCL has no such operation")
    carriers = carriers_of(memory.device, current())
    if carriers is None:
        raise Refused("a group of one rank sends nothing", expected=True)
    ranks = carriers.nccl
    if ranks is None:
        asked = word(VARIABLE) in ("mpi", "host")
        reason = "; ".join(carriers.reasons) or f"{VARIABLE}={word(VARIABLE)}"
        raise Refused(reason, expected=asked)
    reduction = node.attrs.get("op")
    timed = is_timed(step)
    operands = step.inputs[:-1] if timed else step.inputs
    for value in operands:
        if reduction is not None and not ranks.reduces(value.type.dtype, reduction):
            raise Refused(f"NCCL does not support {reduction} of {value.type.dtype.name}")
    flag = memory.counts.flag(step) if timed else None
    if timed and flag is None:
        raise Refused("it is sent in some calls only, which are unknown when the plan is bound")
    # Its ranks meet now, not while a stream is captured.
    for group in (node.attrs["group"], *(axes for axes, _ in node.attrs.get("axes", ()))):
        ranks.group(group)
    into: Callable[..., object] = node.op.kernel.into
    several = isinstance(node.type, tuple)
    attrs = bind_attributes(node.attrs, dict(memory.sizes))
    taken = len(operands)
    cupy = memory.device.cupy
    own = node.attrs.get("algorithm", "allreduce") != "allreduce"
    joined = node.op in (ALLREDUCE_MANY, ALLREDUCE_MANY_WHEN) and not own
    packed = packs(memory, operands) if joined else []
    sends = (True,) if timed else ()
    if own:
        into, sends, attrs = _by_rooms(memory, several), (), {
            name: attrs[name] for name in ("algorithm", "axes")
        }
    inside = {member for pack in packed for member in pack.members}
    apart = [number for number in range(taken) if number not in inside]

    def run(stream: Any, *addresses: int) -> None:
        values = (*operands, *step.outputs)
        read, written = addresses[:taken], addresses[taken:]

        def view(number: int) -> Any:
            return _view(cupy, values[number], addresses[number])

        together = [pack.array() for pack in packed]
        sources = [*map(view, apart), *together]
        for pack in packed:
            pack.pack(stream, read)
        with using(ranks), stream:
            if several:
                targets = [*(view(taken + number) for number in apart), *together]
                into(cupy, tuple(targets), *sources, *sends, **attrs)
            else:
                into(cupy, view(taken), *sources, *sends, **attrs)
        for pack in packed:
            pack.unpack(stream, written)

    addresses = [memory.at(value) for value in (*operands, *step.outputs)]
    if flag is None:
        return CollectiveCall(run, addresses)
    return TimedCall(run, addresses, flag, unsent(memory, step))


def unsent(memory: PlanMemory, step: Step) -> LibraryCall:
    """Return the launch that replaces a collective in a call that does not send.

    What ranks add up stays what each of them has; all else has no meaning then, and is zero.
    """
    device, operands = memory.device, step.inputs[:-1]
    counts = [int(value.type.bytes) for value in step.outputs]
    alike = step.node.op in (ALLREDUCE_WHEN, ALLREDUCE_MANY_WHEN)

    def run(stream: Any, *addresses: int) -> None:
        targets = addresses[len(operands) :]
        if alike:
            sources = addresses[: len(operands)]
            copied(device, list(zip(sources, targets, counts, strict=True)), stream)
            return
        for target, count in zip(targets, counts, strict=True):
            if count:
                device.cupy.cuda.runtime.memsetAsync(target, 0, count, stream.ptr)

    return LibraryCall(run, [memory.at(value) for value in (*operands, *step.outputs)])


def _by_rooms(memory: PlanMemory, several: bool) -> Callable[..., None]:
    """Return what takes a sum by a way of our own, in rooms that stay where they are.

    The first run makes them; later ones, of which some are captured, ask for them in one order.
    """
    rooms: list[int] = []

    def into(cupy: Any, target: Any, *arrays: Any, algorithm: str, axes: Sequence[Axis]) -> None:
        asked = itertools.count()

        def room(shape: tuple[int, ...], dtype: Any) -> Any:
            count = math.prod(shape) * dtype.itemsize
            number = next(asked)
            if number == len(rooms):
                rooms.append(memory.more(max(1, count)))
            return _array(cupy, shape, dtype, rooms[number])

        summed(arrays, target if several else [target], algorithm, axes, room)

    return into


def _view(cupy: Any, value: Value, address: int) -> Any:
    """Return the array of a value at an address."""
    return _array(cupy, shape_of(value.type), value.type.dtype, address)


def _array(cupy: Any, shape: tuple[int, ...], dtype: Any, address: int) -> Any:
    """Return the array at an address."""
    count = math.prod(shape) * dtype.itemsize
    if not count:
        return cupy.empty(shape, dtype)
    memory = cupy.cuda.UnownedMemory(address, count, None)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def by_addresses(memory: PlanMemory, step: Step, ranks: AwareRank) -> Callable[[], None]:
    """Return what runs a collective that no graph has, by MPI with addresses of the device.

    Parameters
    ----------
    memory
        Of the plan.
    step
        A collective, or one end of a message.
    ranks
        MPI's ranks with devices.
    """
    op = step.node.op
    attrs = bind_attributes(step.node.attrs, dict(memory.sizes))
    cupy = memory.device.cupy

    def run() -> None:
        sources = [memory.view(value) for value in step.inputs]
        targets = [memory.view(value) for value in step.outputs]
        with using(ranks), memory.device.stream:
            if op.kernel.into is None:
                targets[0][...] = op.evaluate(cupy, *sources, **attrs)
                return
            own = [memory.at(value) for value in step.outputs]
            # An operand in whose place the result goes is the same array, so that this is seen.
            for number, value in enumerate(step.inputs):
                if memory.at(value) in own and value.type.bytes:
                    same = targets[own.index(memory.at(value))]
                    alike = same.shape == sources[number].shape
                    sources[number] = same if alike else sources[number].copy()
            target = tuple(targets) if isinstance(step.node.type, tuple) else targets[0]
            op.kernel.into(cupy, target, *sources, **attrs)

    return run
