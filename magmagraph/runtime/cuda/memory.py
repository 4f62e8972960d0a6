"""Memory of plans on a CUDA device: an arena, copies of variables, feeds and results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...codegen.steps import shape_of
from ...ir import dims
from ...ir.interpret import bind_attributes
from ...ir.plan import Place, Plan, Slot, Step, Value
from ...ir.ranges import Range, Touched
from ...ir.values.state import State
from .launching.call_counters import Counts

__all__ = ["PlanMemory", "VariableCopy", "copy_of", "upload"]

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
SHARE = 64  # of the memory that is free, one part may be what libraries work in


class VariableCopy:
    """A variable's buffer on a device, at one address for as long as the variable lives.

    Attributes
    ----------
    buffer
        The bytes, as a CuPy array.
    version
        That of the variable's value which it holds.
    known
        The value of a counter that the host follows, behind the version which has it; or None.
    """

    def __init__(self, device: Any, state: State) -> None:
        self.device = device
        with device:
            self.buffer = device.empty(max(1, state.held.nbytes), f"variable '{state.name}'")
        self.version = -1
        self.known: tuple[int, int] | None = None

    @property
    def address(self) -> int:
        """The device address."""
        return int(self.buffer.data.ptr)

    def fetch(self, target: np.ndarray) -> None:
        """Write the value into an array of the host, when all that computes it is done."""
        runtime = self.device.cupy.cuda.runtime
        with self.device:
            stream = self.device.stream
            stream.synchronize()
            runtime.memcpy(target.ctypes.data, self.address, target.nbytes, DEVICE_TO_HOST)


def copy_of(device: Any, state: State) -> VariableCopy:
    """Return a variable's copy on a device, made where there is none yet."""
    name = f"cuda:{device.number}"
    copied = state.copies.get(name)
    if copied is None:
        copied = state.copies[name] = VariableCopy(device, state)
    assert isinstance(copied, VariableCopy)
    return copied


def upload(device: Any, state: State, copy: VariableCopy) -> None:
    """Bring a stale copy up to date; the variable may have been written anywhere."""
    if copy.version == state.version:
        return
    data = state.data
    if data.nbytes:
        stream = device.stream
        # From memory that is not pinned this returns when the bytes have been taken.
        device.cupy.cuda.runtime.memcpyAsync(
            copy.address, data.ctypes.data, data.nbytes, HOST_TO_DEVICE, stream.ptr
        )
    copy.version = state.version


class PlanMemory:
    """The memory of a plan bound to sizes: an address for every slot, for as long as it lives.

    Attributes
    ----------
    address
        Of each slot.
    states
        The variables that the plan reads or writes, with their copies here.
    keep
        What launches point to.
    failing
        Blocks of words into which steps write what failed, each with the steps in their order.
    workspace
        The block that steps of libraries work in by turns; (0, 0) where none needs it.
    workspace_limit
        The most bytes that it may have.
    counts
        The variables that say which calls send.
    """

    def __init__(self, device: Any, plan: Plan) -> None:
        self.device, self.plan = device, plan
        self.counts = Counts(plan, partial(copy_of, device))
        self.workspace: Range = (0, 0)
        self.sizes = plan.sizes or {}
        self.keep: list[Any] = []
        self.failing: list[tuple[Any, list[Step]]] = []
        self.address = [0] * len(plan.slots)
        self.states: list[tuple[State, VariableCopy]] = []
        self._blocks: dict[int, Any] = {}
        steps = f"what {len(plan.steps)} steps keep for each other"
        self._arena = device.empty(max(1, plan.arena or 0), steps)
        types = self._types()
        for slot in plan.slots:
            self._place(slot, types)
        self.workspace_limit = device.free() // SHARE

    def _types(self) -> dict[int, Any]:
        types: dict[int, Any] = {}
        for step in self.plan.steps:
            for value in (*step.inputs, *step.outputs):
                types.setdefault(value.slot, value.type)
        for value in self.plan.fetches:
            types.setdefault(value.slot, value.type)
        return types

    def _place(self, slot: Slot, types: dict[int, Any]) -> None:
        """Give a slot its address."""
        if slot.place is Place.ARENA:
            self.address[slot.index] = self._arena.data.ptr + slot.offset
        elif slot.place is Place.STATE:
            copy = copy_of(self.device, slot.owner)
            self.states.append((slot.owner, copy))
            self.address[slot.index] = copy.address
            self._blocks[slot.index] = copy.buffer
        elif slot.place is Place.CONSTANT:
            attrs = slot.owner.attrs
            value = attrs.get("value")
            if value is None:  # an extent, or a rank's number
                leaf = slot.owner.op
                value = leaf.evaluate(np, **bind_attributes(attrs, self.sizes))
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            buffer = self.device.empty(max(1, raw.size))
            if raw.size:
                buffer.set(raw)
            self._blocks[slot.index] = buffer
            self.address[slot.index] = buffer.data.ptr
        elif slot.index in types and slot.place is not Place.INSIDE:  # others have no memory
            what = f"output {slot.owner}" if slot.place is Place.RESULT else "an input"
            buffer = self.device.empty(max(1, int(types[slot.index].bytes)), what)
            self._blocks[slot.index] = buffer
            self.address[slot.index] = buffer.data.ptr

    def at(self, value: Value | None) -> int:
        """Return a value's address, 0 for none."""
        return 0 if value is None else self.address[value.slot]

    def view(self, value: Value) -> Any:
        """Return a value as a CuPy array."""
        cupy = self.device.cupy
        slot = self.plan.slots[value.slot]
        block = self._arena if slot.place is Place.ARENA else self._blocks[value.slot]
        start = slot.offset or 0 if slot.place is Place.ARENA else 0
        count = int(value.type.bytes)
        raw = block[start : start + count]
        if not count:
            return cupy.empty(shape_of(value.type), value.type.dtype)
        return raw.view(value.type.dtype).reshape(shape_of(value.type))

    def ranges(self, values: Sequence[Value]) -> tuple[Range, ...]:
        """Return the addresses of values that have any."""
        ranges = []
        for value in values:
            start, count = self.address[value.slot], int(value.type.bytes)
            if count and self.plan.slots[value.slot].place is not Place.INSIDE:
                ranges.append((start, start + count))
        return tuple(ranges)

    def touched(self, step: Step) -> Touched:
        """Return the memory that a step reads and writes."""
        scratch = [
            (self.address[slot], self.address[slot] + dims.evaluate(size, self.sizes))
            for slot in step.scratch
            if (size := self.plan.slots[slot].size)
        ]
        return Touched(self.ranges(step.inputs), (*self.ranges(step.outputs), *scratch))

    def counter(self) -> int:
        """Return the address of a zero that one launch alone counts with."""
        counter = self.device.cupy.zeros(1, np.uint32)
        self.keep.append(counter)
        return int(counter.data.ptr)

    def failure_word(self, step: Step) -> int:
        """Return the address of 8 bytes of ones, into which a step's kernels write failures."""
        if not self.failing:
            words = self.device.cupy.full(len(self.plan.steps), -1, np.int64)
            self.failing.append((words, []))
        words, steps = self.failing[0]
        steps.append(step)
        return int(words.data.ptr) + 8 * (len(steps) - 1)

    def share_workspace(self, count: int) -> None:
        """Make the block that steps of libraries work in, for as long as the plan lives."""
        start = self.more(count)
        self.workspace = (start, start + count)

    def more(self, count: int) -> int:
        """Return the address of as many bytes, for as long as the plan lives."""
        buffer = self.device.empty(count, "partial results")
        self.keep.append(buffer)
        return int(buffer.data.ptr)
