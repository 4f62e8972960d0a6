"""Launches of collectives: by NCCL, on a stream of their own in a captured graph.

Where NCCL is not there, or two ranks share a device, steps run as array expressions, whose operands
go through the host.
"""

from __future__ import annotations

import platform
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ....communicator import Communicator, current, using
from ....interpret import bind_attributes
from ....ops.collective.whole import ALLREDUCE_MANY
from ....plan import Step, Value
from ...comm.nccl import NcclRank
from ...numpy.cells import shape_of
from ..memory import PlanMemory
from .calls import LibraryCall
from .packing import packs

__all__ = ["CollectiveCall", "collective", "library"]


class CollectiveCall(LibraryCall):
    """A call of NCCL, beside what is computed.

    Attributes
    ----------
    lane
        All calls of a lane go in one order, on one stream: what all ranks of a group call has lane
        0, the messages of each direction have one of their own.
    """

    def __init__(
        self, run: Callable[..., None], addresses: Sequence[int], lane: int = 0
    ) -> None:
        super().__init__(run, addresses)
        self.lane = lane

    def moved(self, shift: Any) -> CollectiveCall:
        """Return the same call with its operands at other addresses."""
        return CollectiveCall(self.run, [shift(address) for address in self.addresses], self.lane)


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


# For each communicator of the host: by the number of the device, NCCL's ranks or None.
_known: weakref.WeakKeyDictionary[Communicator, dict[int, NcclRank | None]] = (
    weakref.WeakKeyDictionary()
)


def _ranks_of(device: Any, host: Communicator) -> NcclRank | None:
    """Return NCCL's ranks, where every rank of the host has a device of its own and the library."""
    if host.size == 1:
        return None
    held = _known.setdefault(host, {})
    if device.number not in held:
        nccl = library()
        place = device.cupy.cuda.runtime.deviceGetPCIBusId(device.number)
        able = host.exchange(None if nccl is None else (platform.node(), place), "NCCL's start")
        usable = None not in able and len(set(able)) == host.size
        with device:
            held[device.number] = NcclRank(host, device.cupy, nccl) if usable else None
    return held[device.number]


def library() -> Any:
    """Return CuPy's binding of NCCL, or None where the library is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where the library is missing
        from cupy.cuda import nccl
    return nccl if nccl.available else None
