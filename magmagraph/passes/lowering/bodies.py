"""Steps that compute some bodies of a fused step, and slots that are added to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...codegen.cuda.generated import kernels_of
from ...codegen.cuda.kernels import RegionKernels
from ...codegen.steps import bodies_of
from ...ir import dims
from ...ir.graph import Node
from ...ir.plan import Place, Plan, Slot, Step, Value
from ...ir.types import Extent
from ...ops.control.fused import FUSED, FUSED_MANY

__all__ = ["Slots", "late_outputs", "only", "with_lifetimes"]


class Slots:
    """The slots of a plan with sizes, to which a pass adds.

    Parameters
    ----------
    plan
        Not laid out yet.
    """

    def __init__(self, plan: Plan) -> None:
        self.sizes = plan.sizes or {}
        self.all = list(plan.slots)

    def fresh(self, size: int) -> int:
        """Return the number of a new slot of the arena."""
        number = len(self.all)
        self.all.append(Slot(number, Place.ARENA, size))
        return number

    def number(self, extent: Extent) -> int:
        """Return an extent under the plan's sizes."""
        return extent if isinstance(extent, int) else dims.evaluate(extent, self.sizes)


def only(step: Step, numbers: Sequence[int], slots: Slots, threads: int) -> Step:
    """Return the step that computes some bodies of a fused step, with scratch memory of its own.

    Parameters
    ----------
    step
        Of a region.
    numbers
        Which of its bodies.
    slots
        Of the plan.
    threads
        For how many workers there is a workspace.
    """
    bodies = bodies_of(step)
    if len(bodies) == len(numbers):
        return step
    inputs: list[Value] = []
    outputs: list[Value] = []
    operands: list[Node] = []
    results: list[int] = []
    moved = flops = scratch = at = to = 0
    for number, body in enumerate(bodies):
        taken, written = len(body.inputs), len(body.outputs)
        if number in numbers:
            inputs += step.inputs[at : at + taken]
            operands += step.node.inputs[at : at + taken]
            outputs += step.outputs[to : to + written]
            results += range(to, to + written)
            kernels = kernels_of(body)
            assert kernels is not None
            moved += slots.number(kernels.region.bytes)
            scratch += slots.number(kernels.region.workspace(threads))
            for inner in body.nodes:
                if inner.inputs and not inner.op.layout.alias:
                    flops += slots.number(
                        inner.inputs[0].type.size if inner.op.reduction is not None
                        else inner.type.size
                    )
        at, to = at + taken, to + written
    chosen = tuple(bodies[number] for number in numbers)
    if len(chosen) == 1:
        node = FUSED(*operands, body=chosen[0])
    else:
        node = FUSED_MANY(*operands, bodies=chosen)
    node.line = step.node.line
    return replace(
        step, node=node, inputs=tuple(inputs), outputs=tuple(outputs), bytes=moved, flops=flops,
        workspace=slots.fresh(scratch) if scratch else None, origin=step.computed[0],
        results=tuple(results) if not step.results else tuple(step.results[i] for i in results),
    )


def late_outputs(kernels: RegionKernels) -> set[int]:
    """Return the outputs of a region that are written when its sums have ended."""
    return {output.position for output in kernels.region.outputs if output.epilogue}


def with_lifetimes(
    plan: Plan, steps: Sequence[Step], slots: Sequence[Slot], places: Sequence[int], commit: int
) -> Plan:
    """Return a plan of other steps, with the lifetimes of its slots, and those dropped of no use.

    Parameters
    ----------
    plan
        As it was.
    steps, slots, commit
        As they are.
    places
        For each step of the plan, the step that it became, or the last of several; a slot that was
        kept for longer than it is touched is kept until that.
    """
    alive: dict[int, list[int]] = {}
    inside: set[int] = set()
    for number, step in enumerate(steps):
        for one in _touched(step):
            alive.setdefault(one, []).append(number)
        for part in step.parts:
            inside.update(_touched(part))
    end = len(places)
    kept: list[Slot] = []
    names: dict[int, int] = {}
    for slot in slots:
        if slot.place in (Place.ARENA, Place.INSIDE):
            touched = alive.get(slot.index)
            if touched is None and slot.index not in inside:
                continue
            if touched is None:
                slot = replace(slot, place=Place.INSIDE, first=0, last=0)
            else:
                last = touched[-1]
                if slot.index < len(plan.slots):
                    old = plan.slots[slot.index].last
                    last = max(last, places[old] if old < end else len(steps))
                slot = replace(slot, place=Place.ARENA, first=touched[0], last=last)
        names[slot.index] = len(kept)
        kept.append(replace(slot, index=len(kept)) if slot.index != len(kept) else slot)
    if len(kept) < len(slots):
        steps = [_renamed(step, names) for step in steps]
    fetches = tuple(replace(value, slot=names[value.slot]) for value in plan.fetches)
    return replace(
        plan, steps=tuple(steps), slots=tuple(kept), fetches=fetches, commit=commit
    )


def _touched(step: Step) -> list[int]:
    return [*(value.slot for value in (*step.inputs, *step.outputs)), *step.scratch]


def _renamed(step: Step, names: dict[int, int]) -> Step:
    """Return a step with other numbers of slots."""
    return replace(
        step,
        inputs=tuple(replace(value, slot=names[value.slot]) for value in step.inputs),
        outputs=tuple(replace(value, slot=names[value.slot]) for value in step.outputs),
        workspace=None if step.workspace is None else names[step.workspace],
        parts=tuple(_renamed(part, names) for part in step.parts),
    )
