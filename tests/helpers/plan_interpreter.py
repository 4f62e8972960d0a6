"""Run the plan of a device on the host, step by step: its memory, its order, its streams.

Each step computes the array expressions of its parts, on bytes that lie where the plan says. Memory
begins as nonsense, partial results are marked, and steps may run in any order that streams and
waits allow: a plan that frees memory too early, or waits too little, gives other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from magmagraph.codegen.steps import shape_of
from magmagraph.ir.interpret import apply, bind_attributes
from magmagraph.ir.plan import Place, Plan, Role, Step, Value

__all__ = ["Interpreter", "random_order"]

ENDLESS = 0xAA  # what memory holds that nothing was written to


class Interpreter:
    """The memory of a plan, with the results of one run.

    Parameters
    ----------
    plan
        With sizes, and its arena laid out.
    feeds
        Arrays, in the order of the inputs.
    """

    def __init__(self, plan: Plan, feeds: Sequence[np.ndarray]) -> None:
        self.plan, self.sizes = plan, dict(plan.sizes or {})
        self.arena = np.full(plan.arena or 0, ENDLESS, np.uint8)
        self.held: dict[int, np.ndarray] = {}
        self.marks: dict[int, np.ndarray] = {}
        self.late: dict[Any, dict[int, np.ndarray]] = {}
        feed = iter(feeds)
        for slot in plan.slots:
            if slot.place is Place.FEED:
                self.held[slot.index] = _bytes(next(feed))
            elif slot.place is Place.STATE:
                self.held[slot.index] = _bytes(slot.owner.data)
            elif slot.place is Place.CONSTANT:
                attrs = slot.owner.attrs
                value = attrs.get("value")
                if value is None:
                    value = slot.owner.op.evaluate(np, **bind_attributes(attrs, self.sizes))
                self.held[slot.index] = _bytes(np.asarray(value))
            elif slot.place is Place.RESULT:
                self.held[slot.index] = np.full(int(slot.size), ENDLESS, np.uint8)

    def run(self, order: Sequence[int] | None = None) -> list[np.ndarray]:
        """Run every step once, in the plan's order or another one; return the results."""
        for number in range(len(self.plan.steps)) if order is None else order:
            self._step(number)
        return [self._read(value, {}) for value in self.plan.fetches]

    def variables(self) -> dict[str, np.ndarray]:
        """Return the values of variables, by their names."""
        return {
            slot.owner.name: self.held[slot.index].view(slot.owner.data.dtype).reshape(
                slot.owner.data.shape
            )
            for slot in self.plan.slots
            if slot.place is Place.STATE
        }

    def _step(self, number: int) -> None:
        step = self.plan.steps[number]
        if step.role is Role.ENDING:
            self._end(number, step)
            return
        inside: dict[int, np.ndarray] = {}
        for part in step.parts or (step,):
            operands = [self._read(value, inside) for value in part.inputs]
            for value, array in zip(part.outputs, self._computed(part, operands), strict=True):
                inside[value.slot] = array
        ends = {value.slot for value in step.outputs}
        for value in step.outputs:
            self._write(value, inside[value.slot])
        if step.role in (Role.OPENING, Role.EPILOGUE):
            key = step.parts[0].node
            self.late[key] = {slot: a for slot, a in inside.items() if slot not in ends}
            for slot in step.scratch:
                self._mark(slot, number)

    def _computed(self, part: Step, operands: list[np.ndarray]) -> list[np.ndarray]:
        if part.role is Role.COPY:
            return [operands[0].copy()]
        result = apply(part.node, operands, self.sizes)
        several = result if isinstance(result, tuple) else (result,)
        return [
            np.ascontiguousarray(array, value.type.dtype).reshape(shape_of(value.type))
            for array, value in zip(several, part.outputs, strict=True)
        ]

    def _end(self, number: int, step: Step) -> None:
        """Write what waits for sums, when the last of the launches that end them runs."""
        for slot in step.scratch:
            marked = self.marks[slot]
            assert (self._place(slot, marked.size) == marked).all(), f"partial sums of {number}"
        same = [
            other for other in self.plan.steps
            if other.role is Role.ENDING and other.parts[0].node is step.parts[0].node
            and other.outputs == step.outputs
        ]  # fmt: skip
        last = step.piece == max(other.piece for other in same)
        for value in step.outputs:
            sums = self.late[step.parts[0].node][value.slot]
            self._write(value, sums if last else np.full_like(sums, 77))

    def _mark(self, slot: int, number: int) -> None:
        size = int(self.plan.slots[slot].size)
        self.marks[slot] = np.full(size, number % 251, np.uint8)
        self._place(slot, size)[...] = self.marks[slot]

    def _place(self, slot: int, count: int) -> np.ndarray:
        entry = self.plan.slots[slot]
        assert entry.place is not Place.INSIDE, f"s{slot} has no memory"
        if entry.place is not Place.ARENA:
            return self.held[slot][:count]
        start = entry.offset or 0
        assert start + count <= self.arena.size
        return self.arena[start : start + count]

    def _read(self, value: Value, inside: dict[int, np.ndarray]) -> np.ndarray:
        if value.slot in inside:
            return inside[value.slot].reshape(shape_of(value.type))
        raw = self._place(value.slot, int(value.type.bytes))
        return raw.copy().view(value.type.dtype).reshape(shape_of(value.type))

    def _write(self, value: Value, array: np.ndarray) -> None:
        self._place(value.slot, int(value.type.bytes))[...] = _bytes(array)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()


def random_order(plan: Plan, rng: np.random.Generator) -> list[int]:
    """Return an order in which streams may run the steps of a plan: each its own in turn.

    Steps without a stream run when all before them have, and before all behind them.
    """
    order: list[int] = []
    done: set[int] = set()
    begun = 0
    while begun < len(plan.steps):
        if plan.steps[begun].stream is None:
            order.append(begun)
            done.add(begun)
            begun += 1
            continue
        end = begun
        while end < len(plan.steps) and plan.steps[end].stream is not None:
            end += 1
        queues: dict[int, list[int]] = {}
        for number in range(begun, end):
            queues.setdefault(plan.steps[number].stream or 0, []).append(number)
        while queues:
            ready = [
                place for place, queue in queues.items()
                if all(other in done for other in plan.steps[queue[0]].waits)
            ]  # fmt: skip
            assert ready, "steps wait for each other"
            place = ready[int(rng.integers(len(ready)))]
            number = queues[place].pop(0)
            order.append(number)
            done.add(number)
            if not queues[place]:
                del queues[place]
        begun = end
    return order
