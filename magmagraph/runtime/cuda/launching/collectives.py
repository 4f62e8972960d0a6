"""Launches of collectives: by NCCL, on a stream of their own in a captured graph.

Where NCCL is not there, or two ranks share a device, graphs are cut by these steps: MPI is called
with the addresses of their operands, if it takes them, else operands go through the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....communicator import Communicator, current, using
from ....interpret import bind_attributes
from ....ops.collective.whole import ALLREDUCE_MANY
from ....plan import Step, Value
from ...comm.nccl import NcclRank
from ...steps import shape_of
from ..memory import PlanMemory
from .calls import CollectiveCall
from .carriers import carriers_of
from .packing import packs

if TYPE_CHECKING:
    from ...comm.aware import AwareRank

__all__ = ["CollectiveCall", "by_addresses", "collective"]


def collective(memory: PlanMemory, step: Step) -> CollectiveCall | None:
    """Return what launches a collective, or None where its array expression has to run.

    All ranks call it, in the same order: NCCL's ranks meet at the first call for a device.
    """
    node = step.node
    if not node.op.capturable or node.op.into is None:
        return None
    ranks = _ranks_of(memory.device, current())
    reduction = node.attrs.get("op")
    if ranks is None or not all(
        reduction is None or ranks.reduces(value.type.dtype, reduction) for value in step.inputs
    ):
        return None
    ranks.group(node.attrs["group"])  # its ranks meet now, not while a stream is captured
    into, several = node.op.into, isinstance(node.type, tuple)
    attrs = bind_attributes(node.attrs, dict(memory.sizes))
    taken = len(step.inputs)
    cupy = memory.device.cupy
    packed = packs(memory, step) if node.op is ALLREDUCE_MANY else []
    inside = {member for pack in packed for member in pack.members}
    apart = [number for number in range(taken) if number not in inside]

    def run(stream: Any, *addresses: int) -> None:
        values = (*step.inputs, *step.outputs)
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
                into(cupy, tuple(targets), *sources, **attrs)
            else:
                into(cupy, view(taken), *sources, **attrs)
        for pack in packed:
            pack.unpack(stream, written)

    return CollectiveCall(run, [memory.at(value) for value in (*step.inputs, *step.outputs)])


def _view(cupy: Any, value: Value, address: int) -> Any:
    """Return the array at an address."""
    shape, dtype = shape_of(value.type), value.type.dtype
    count = int(value.type.bytes)
    if not count:
        return cupy.empty(shape, dtype)
    memory = cupy.cuda.UnownedMemory(address, count, None)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def _ranks_of(device: Any, ranks: Communicator) -> NcclRank | None:
    """Return NCCL's ranks, where it carries what the ranks say; all of them ask together."""
    found = carriers_of(device, ranks)
    return None if found is None else found.nccl


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
            if op.into is None:
                targets[0][...] = op.evaluate(cupy, *sources, **attrs)
                return
            own = [memory.at(value) for value in step.outputs]
            # An operand in whose place the result goes is the same array, so that this is seen.
            for number, value in enumerate(step.inputs):
                if memory.at(value) in own and value.type.bytes:
                    same = targets[own.index(memory.at(value))]
                    alike = same.shape == sources[number].shape
                    sources[number] = same if alike else sources[number].copy()
            op.into(cupy, tuple(targets) if isinstance(step.node.type, tuple) else targets[0],
                    *sources, **attrs)  # fmt: skip

    return run
