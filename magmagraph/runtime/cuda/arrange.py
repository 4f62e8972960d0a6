"""Reorder plans so that products can be launched together with their readers.

A schedule that keeps little memory alive puts the gradient of a weight between the product that
makes a layer's gradient and the region that reads it, and lets that region write where the other's
factor lies. Here the region is moved behind its product, and writes elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...codegen.cuda.kernels import RegionKernels
from ...codegen.steps import bodies_of
from ...ir import dims
from ...ir.graph import Graph, Node
from ...ir.plan import Place, Plan, Role, Step, Value
from ...ir.records import record
from .kernels.fused import kernels_of
from .products.cuts import cut_for, cut_of_rows
from .products.epilogue import product_read
from .products.library_epilogue import library_epilogue
from .products.row_epilogue import row_read

__all__ = ["Reader", "arranged", "reader_of"]

Room = tuple[int, int, int]  # which block of memory, and half-open offsets in it

ARENA = -1
ALIGNMENT = 256  # bytes: libraries want it of products
NEVER_FAIL = (Role.PRODUCT, Role.REGION)  # kernels that have nothing to refuse when they run


@record(frozen=True)
class Reader:
    """The only region that reads a product's result, which can work on its tiles.

    Attributes
    ----------
    place
        Of the step in the list.
    body
        Which body of the step.
    kernels, node
        Its kernels, and what of it the tile stands for.
    """

    place: int
    body: int
    kernels: RegionKernels
    node: Node


@record(frozen=True)
class Reading:
    """The one body of a fused step that reads a product's result, by one parameter.

    Attributes
    ----------
    place
        Of the step in the list.
    body, parameter
        Which body of the step, and which of its parameters.
    graph
        The body.
    alone
        Whether the step has no other body.
    """

    place: int
    body: int
    parameter: int
    graph: Graph
    alone: bool


def reading(plan: Plan, steps: Sequence[Step], i: int) -> Reading | None:
    """Return what alone reads the result of a plain product, where that is a fused step."""
    step = steps[i]
    out = step.outputs[0]
    attrs = step.node.attrs
    if step.role is not Role.PRODUCT or attrs["scaled"] or attrs["accumulate"]:
        return None
    if len(out.type.shape) != 2:
        return None
    if plan.slots[out.slot].place is not Place.ARENA:
        return None
    found: int | None = None
    for j in range(i + 1, len(steps)):
        if any(value.slot == out.slot for value in steps[j].inputs):
            if found is not None:
                return None
            found = j
        if any(value.slot == out.slot for value in steps[j].outputs):
            break
    if found is None or steps[found].role is not Role.REGION:
        return None
    places = [k for k, value in enumerate(steps[found].inputs) if value.slot == out.slot]
    if len(places) != 1:
        return None
    number, parameter = 0, places[0]
    bodies = bodies_of(steps[found])
    while parameter >= len(bodies[number].inputs):
        parameter -= len(bodies[number].inputs)
        number += 1
    return Reading(found, number, parameter, bodies[number], len(bodies) == 1)


def reader_of(plan: Plan, steps: Sequence[Step], i: int) -> Reader | None:
    """Return the region that reads a product's result and can work on its tiles."""
    found = reading(plan, steps, i)
    values = (*steps[i].outputs, *steps[i].inputs[:2])
    if found is None or any(value.type.dtype != np.float32 for value in values):
        return None
    kernels = kernels_of(found.graph)
    if kernels is None:
        return None
    if kernels.region.row:
        node = row_read(kernels.region, found.parameter)
    elif kernels.cross and not kernels.joined:
        return None
    else:
        node = product_read(kernels.region, found.parameter)
    return None if node is None else Reader(found.place, found.body, kernels, node)


def arranged(plan: Plan) -> Plan:
    """Return a specialized plan with the readers of products directly after them.

    Where a reader would write over what the steps that it is moved past still read, its result
    and its workspace get memory of their own; the arena grows by that. Where it renews variables,
    its product and what lies between run when nothing can fail any more, too.
    """
    arrangement = _Arrangement(plan)
    for i in range(len(plan.steps)):
        place = _behind(plan, arrangement.steps, i)
        if place is None:
            continue
        commit = arrangement.commit
        if i < commit <= place:
            between = arrangement.steps[i:place]
            if plan.guard or any(step.role not in NEVER_FAIL for step in between):
                continue
            if arrangement.move(i, place):
                arrangement.commit = i
        else:
            arrangement.move(i, place)
    return arrangement.result()


def _behind(plan: Plan, steps: Sequence[Step], i: int) -> int | None:
    """Return the place of the step that is best launched together with a product, or None."""
    step = steps[i]
    if step.role is not Role.PRODUCT:
        return None
    if len(step.outputs[0].type.shape) == 2:
        sizes = _sizes(plan, step)
        reader = reader_of(plan, steps, i) if cut_for(*sizes) is not None else None
        if reader is not None:
            rows = bool(reader.kernels.region.row)
            return reader.place if not rows or cut_of_rows(*sizes) is not None else None
    found = reading(plan, steps, i)
    if found is None or not found.alone:
        return None
    return None if library_epilogue(found.graph, found.parameter) is None else found.place


class _Arrangement:
    """The steps and slots of a plan while readers are moved."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.steps = list(plan.steps)
        self.slots = list(plan.slots)
        self.arena = _even(plan.arena or 0)
        self.commit = plan.commit

    def result(self) -> Plan:
        """Return the plan with the lifetimes of its slots recomputed."""
        plan = self.plan
        if all(a is b for a, b in zip(self.steps, plan.steps, strict=True)):
            return plan if self.commit == plan.commit else replace(plan, commit=self.commit)
        alive: dict[int, list[int]] = {}
        for number, step in enumerate(self.steps):
            for slot in _slots(step):
                alive.setdefault(slot, []).append(number)
        slots = tuple(
            replace(slot, first=alive[slot.index][0], last=alive[slot.index][-1])
            if slot.place is Place.ARENA and slot.index in alive
            else slot
            for slot in self.slots
        )
        return replace(
            plan, steps=tuple(self.steps), slots=slots, arena=self.arena, commit=self.commit
        )

    def move(self, i: int, j: int) -> bool:
        """Move the reader ``j`` directly after the product ``i``, where that changes no value.

        Returns
        -------
        bool
            Whether it is there.
        """
        steps = self.steps
        product, reader, between = steps[i], steps[j], steps[i + 1 : j]
        out = product.outputs[0]
        factors = self._rooms(product.inputs)
        written = [room for step in between for room in self._written(step)]
        busy = [*factors, *written, *(r for s in between for r in self._rooms(s.inputs))]
        others = [value for value in reader.inputs if value.slot != out.slot]
        if _meet(self._rooms(others), written):
            return False
        fetched = {value.slot for value in self.plan.fetches}
        taken = [v for v in reader.outputs if _meet(self._rooms([v]), busy)]
        if any(self.slots[v.slot].place is not Place.ARENA or v.slot in fetched for v in taken):
            return False
        after = steps[j + 1 :]
        for value in taken:
            fresh = self._fresh(_size(self.plan, value), value.slot)
            reader = replace(reader, outputs=_named(reader.outputs, value.slot, fresh))
            after = _read_from(after, value.slot, fresh)
        if reader.workspace is not None and _meet(self._written(reader)[-1:], busy):
            size = dims.evaluate(self.slots[reader.workspace].size, self.plan.sizes or {})
            reader = replace(reader, workspace=self._fresh(size, reader.workspace))
        self.steps = [*steps[: i + 1], reader, *between, *after]
        return True

    def _fresh(self, size: int, like: int) -> int:
        """Return a new slot at the end of the arena."""
        number = len(self.slots)
        self.slots.append(
            replace(self.slots[like], index=number, size=size, offset=self.arena)
        )
        self.arena += _even(size)
        return number

    def _rooms(self, values: Sequence[Value]) -> list[Room]:
        """Return the memory of values."""
        return [self._room(value.slot, _size(self.plan, value)) for value in values]

    def _room(self, number: int, size: int) -> Room:
        slot = self.slots[number]
        arena = slot.place is Place.ARENA
        start = slot.offset or 0 if arena else 0
        return (ARENA if arena else number, start, start + size)

    def _written(self, step: Step) -> list[Room]:
        """Return the memory that a step writes, its workspace last."""
        rooms = self._rooms(step.outputs)
        if step.workspace is not None:
            size = dims.evaluate(self.slots[step.workspace].size, self.plan.sizes or {})
            rooms.append(self._room(step.workspace, size))
        return rooms


def _even(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


def _slots(step: Step) -> list[int]:
    found = [value.slot for value in (*step.inputs, *step.outputs)]
    return found if step.workspace is None else [*found, step.workspace]


def _sizes(plan: Plan, step: Step) -> tuple[int, int, int]:
    """Return the rows, columns and contracted extent of a product."""
    m, n = step.outputs[0].type.concrete(dict(plan.sizes or {}))
    inner = step.inputs[0].type.concrete(dict(plan.sizes or {}))
    return m, n, inner[-2 if step.node.attrs["transpose_a"] else -1]


def _named(values: Sequence[Value], old: int, new: int) -> tuple[Value, ...]:
    return tuple(Value(new, v.type) if v.slot == old else v for v in values)


def _read_from(after: Sequence[Step], old: int, new: int) -> list[Step]:
    """Return later steps which read a value from another slot, until the old one is updated."""
    result = list(after)
    for k, step in enumerate(after):
        if any(value.slot == old for value in step.inputs):
            result[k] = replace(step, inputs=_named(step.inputs, old, new))
        if any(value.slot == old for value in step.outputs):
            break
    return result


def _size(plan: Plan, value: Value) -> int:
    return dims.evaluate(value.type.bytes, plan.sizes or {})


def _meet(some: Sequence[Room], others: Sequence[Room]) -> bool:
    return any(
        a == b and start < stop and begin < end
        for a, start, end in some
        for b, begin, stop in others
    )
