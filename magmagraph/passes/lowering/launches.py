"""Make each step of a plan one launch: bodies of a fused step, and the ends of sums, are apart.

A fused step may have several bodies. Those of one structure, such as the updates of an optimizer,
are one launch; each other one has a launch of its own. Where a region's sums are ended by a second
launch, that is a step too: what the first one writes already can be read before. Steps that have
nothing to compute are dropped.

Before::

    step  kernel  computes
       0  fused   result 0, result 1 = exp of x; sum of x

After::

    step  kernel      computes
       0  fused_main  result 0 = exp, sum of x
       1  fused_end   result 1 = the end of the sums

Numerics: `exact`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...codegen.cuda.generated import kernels_of
from ...codegen.cuda.kernels import ALONE_NAME, RegionKernels
from ...codegen.cuda.launch_config import (
    WIDE,
    Launch,
    LaunchConfig,
    cost_of_grid,
    launches_of,
    lines_for,
)
from ...codegen.cuda.prelude import MAX_ARGUMENTS
from ...codegen.cuda.products.merged import Merge, ends_of, grid_of, merge_of
from ...codegen.cuda.products.shapes import cut_of, product_shape, stands_alone
from ...codegen.steps import bodies_of
from ...ir.fallback import Refused
from ...ir.graph import Node
from ...ir.plan import WHOLE, Plan, Role, Step
from ...ir.ranges import PlanRanges, Touched, dependencies
from ...ir.target import Target
from ..report import Record
from .bodies import Slots, late_outputs, only, with_lifetimes

__all__ = ["groups_of", "launches"]

SPLIT = "give a launch a step of its own"


def launches(plan: Plan, target: Target, notes: Record) -> Plan:
    """Return a plan with sizes whose steps are single launches.

    Parameters
    ----------
    plan
        Its arena is not laid out yet.
    target
        What it is for; plans for the CPU stay as they are.
    notes
        Where hits and refusals are noted.
    """
    if target.device == "cpu":
        return plan
    return _Launches(plan, target, notes).result()


class _Bound(NamedTuple):
    """A body of a step, with its launches.

    Attributes
    ----------
    kernels
        Of the body.
    lines
        Of partial results.
    launches
        Its launches: the main one, and those that end sums.
    """

    kernels: RegionKernels
    lines: int
    launches: list[Launch]


class _Launches:
    """The steps and slots of a plan while steps are split."""

    def __init__(self, plan: Plan, target: Target, notes: Record) -> None:
        self.plan, self.target, self.notes = plan, target, notes
        self.slots = Slots(plan)
        self.alone = stands_alone(plan)
        self.parts: dict[Node, tuple[Step, ...]] = {}  # of launches, with room for sums

    def result(self) -> Plan:
        new_steps: list[Step] = []
        places: list[int] = []
        commit = 0
        for number, step in enumerate(self.plan.steps):
            if number == self.plan.commit:
                commit = len(new_steps)
            new_steps += self._of(step)
            places.append(max(0, len(new_steps) - 1))
        if self.plan.commit >= len(self.plan.steps):
            commit = len(new_steps)
        return with_lifetimes(self.plan, new_steps, self.slots.all, places, commit)

    def _of(self, step: Step) -> list[Step]:
        """Return the launches of a step, each as a step."""
        if step.role is Role.REGION:
            return self._region(step)
        if step.role is Role.EPILOGUE:
            return self._merged(step)
        if step.role is Role.ENDING:
            return self._ends_behind(step)
        if step.role is Role.COPY and not int(step.outputs[0].type.bytes):
            return []
        return [replace(step, cost=self._cost(step))]

    def _cost(self, step: Step) -> float:
        count = self.target.multiprocessors
        if step.role is Role.PRODUCT:
            shape = product_shape(step)
            cut = shape and cut_of(self.target.architecture, shape, alone=self.alone)
            if not (shape and cut):
                return WHOLE
            blocks = -(-shape.n // cut.columns), -(-shape.m // cut.rows), 1
            return cost_of_grid(blocks, (cut.threads, 1, 1), count)
        cost = step.family.cost
        return WHOLE if cost is None else cost(step, self.slots.sizes, count)

    # ---- Regions

    def _region(self, step: Step) -> list[Step]:
        bodies = bodies_of(step)
        alone = len(bodies) == 1 and not step.results  # and was so in the symbolic plan
        kernels_bound: list[_Bound] = []
        for body in bodies:
            kernels = kernels_of(body)
            if kernels is None:
                return [step]  # the whole step runs as its array expression, which says why
            try:
                kernels_bound.append(self._bound(kernels, apart=alone))
            except Refused as refused:
                self.notes.refuse(SPLIT, step.node, refused.reason)
                return [step]
        new_steps: list[Step] = []
        for group in self._groups(step, kernels_bound):
            part = only(step, group, self.slots, self.plan.threads)
            first = kernels_bound[group[0]]
            part = self._with_room(part, first)
            if len(first.launches) == 1:
                blocks = sum(math.prod(kernels_bound[number].launches[0].grid) for number in group)
                block, count = first.launches[0].block, self.target.multiprocessors
                new_steps.append(replace(part, cost=cost_of_grid((blocks, 1, 1), block, count)))
            else:
                new_steps += self._apart(part, first, alone)
        if len(bodies) > 1:
            new_steps = [replace(one, follows=i > 0) for i, one in enumerate(new_steps)]
        if len(new_steps) > 1:
            self.notes.hit(SPLIT, len(new_steps) - 1)
        return new_steps

    def _bound(self, kernels: RegionKernels, apart: bool) -> _Bound:
        """Return the launches of a body; `apart` where no other body is with it in its step."""
        sizes, count = self.slots.sizes, self.target.multiprocessors
        lines = lines_for(kernels, sizes, self.plan.threads, count)
        late = late_outputs(kernels)
        # Where outputs are there before the sums have ended, not all that reads waits for these.
        tail = not (apart and late and len(late) < len(kernels.region.outputs))
        bound, _ = launches_of(kernels, sizes, lines, 0, tail, count)
        return _Bound(kernels, lines, bound)

    def _groups(self, step: Step, kernels: Sequence[_Bound]) -> list[list[int]]:
        """Return which bodies are launched together, without those that have nothing to compute."""
        if len(kernels) == 1:
            return [[0]] if kernels[0].launches else []
        ranges = PlanRanges(replace(self.plan, slots=tuple(self.slots.all)))
        touched, keys, words = [], [], []
        at = to = 0
        for body, bound in zip(bodies_of(step), kernels, strict=True):
            taken, written = len(body.inputs), len(body.outputs)
            touched.append(Touched(
                ranges.ranges(step.inputs[at : at + taken]),
                ranges.ranges(step.outputs[to : to + written]),
            ))
            at, to = at + taken, to + written
            keys.append(self._key(bound))
            numbers = max((len(launch.numbers) for launch in bound.launches), default=0)
            words.append(taken + written + 1 + numbers)
        groups = groups_of(touched, keys, words)
        return [group for group in groups if kernels[group[0]].launches]

    def _key(self, bound: _Bound) -> str | None:
        """Return what bodies share that one launch can compute, None for one that has its own."""
        kernels = bound.kernels
        if kernels.way != "flat" or kernels.region.folds or len(bound.launches) != 1:
            return None
        name = bound.launches[0].kernel.removesuffix(ALONE_NAME)
        in_turn = name.partition("_")[2].startswith("v")  # its blocks are numbered by x alone
        if not in_turn or LaunchConfig(kernels, self.slots.sizes, bound.lines).elements > WIDE:
            return None
        return name

    def _with_room(self, step: Step, bound: _Bound) -> Step:
        """Return a step with a workspace of as many lines as its launch has."""
        size = self.slots.number(bound.kernels.region.workspace(bound.lines))
        workspace = step.workspace
        if not bound.kernels.cross or not size:
            return step if workspace is None else replace(step, workspace=None)
        if workspace is not None and self.slots.number(self.slots.all[workspace].size) == size:
            return step
        return replace(step, workspace=self.slots.fresh(size))

    def _apart(self, step: Step, bound: _Bound, alone: bool) -> list[Step]:
        """Return the main launch of a region, and those that end its sums."""
        late = late_outputs(bound.kernels)
        main, *ends = bound.launches
        early = tuple(v for i, v in enumerate(step.outputs) if i not in late)
        opening = replace(
            step, family=self.target.with_role(Role.OPENING), parts=(step,), origin=None,
            outputs=early, cost=min(1 + self._work(main), WHOLE),
        )
        new_steps = [opening, *self._ends(step, late, opening.parts, ends)]
        if not (alone and early and late):  # nothing is there before the sums have ended
            new_steps = [replace(one, follows=i > 0) for i, one in enumerate(new_steps)]
        return new_steps

    def _ends(
        self,
        whole: Step,
        late: set[int],
        parts: tuple[Step, ...],
        ends: Sequence[Launch],
        first: int = 0,
    ) -> list[Step]:
        """Return the launches that end the sums of a region.

        Parameters
        ----------
        whole, late
            The region's step, and which of its outputs are written then.
        parts
            Of the launch that computes it up to its sums.
        ends, first
            The launches, and how many others that launch has before these.
        """
        early = [value for i, value in enumerate(whole.outputs) if i not in late]
        values = tuple(value for i, value in enumerate(whole.outputs) if i in late)
        inside = {v.slot for part in parts if part.role is Role.PRODUCT for v in part.outputs}
        inside -= {value.slot for value in whole.outputs}
        read = {v.slot: v for v in (*whole.inputs, *early) if v.slot not in inside}
        return [
            Step(
                self.target.with_role(Role.ENDING), whole.node, tuple(read.values()), values,
                bytes=sum(int(value.type.bytes) for value in values), workspace=whole.workspace,
                parts=parts, piece=first + number, cost=min(1 + self._work(launch), WHOLE),
                follows=number > 0,
            )
            for number, launch in enumerate(ends)
        ]

    def _work(self, launch: Launch) -> float:
        return cost_of_grid(launch.grid, launch.block, self.target.multiprocessors) - 1

    # ---- Products with regions

    def _merged(self, step: Step) -> list[Step]:
        """Return a product with the regions on its tiles, and what ends the first one's sums."""
        parts = self.parts[step.parts[0].node] = tuple(
            part if part.role is Role.PRODUCT else self._with_room_for_sums(part)
            for part in step.parts
        )
        merge = merge_of(parts, self.target.architecture, self.alone)
        late = late_outputs(merge.kernels)
        slots = {merge.reader.outputs[i].slot for i in late}
        main = replace(
            step, parts=parts, outputs=tuple(v for v in step.outputs if v.slot not in slots),
            cost=cost_of_grid(*grid_of(merge), self.target.multiprocessors),
        )
        return [main, *self._ends(merge.reader, late, parts, self._ending(merge, merge))]

    def _ends_behind(self, step: Step) -> list[Step]:
        """Return what ends the sums of the region that reads a second product."""
        parts = self.parts[step.parts[0].node]
        merge = merge_of(parts, self.target.architecture, self.alone)
        behind = merge.behind
        assert behind is not None
        first = len(self._ending(merge, merge))
        ends = self._ending(behind, merge)
        return self._ends(behind.reader, late_outputs(behind.kernels), parts, ends, first)

    def _ending(self, merge: Merge, within: Merge) -> list[Launch]:
        """Return the launches that end the sums of a region on a product's tiles."""
        _, ends = ends_of(
            merge, within, self.slots.sizes, self.plan.threads, self.target.multiprocessors
        )
        return [Launch(name, grid, block, ()) for name, grid, block in ends]

    def _with_room_for_sums(self, step: Step) -> Step:
        """Return a region on tiles with a workspace of its own."""
        (body,) = bodies_of(step)
        kernels = kernels_of(body)
        assert kernels is not None
        return self._with_room(step, _Bound(kernels, self.plan.threads, []))


def groups_of(
    touched: Sequence[Touched], keys: Sequence[Any], words: Sequence[int]
) -> list[list[int]]:
    """Return which bodies are launched together, each group at its first body's position.

    Parameters
    ----------
    touched
        The memory of each body, in an order in which they can run one by one.
    keys
        Bodies with the same can be launched together; those with None with no other.
    words
        How many arguments each has.

    Examples
    --------
    >>> a, b, c = (Touched((), ((i, i + 1),)) for i in range(3))
    >>> groups_of([a, b, c], ["x", None, "x"], [3, 3, 3])
    [[0, 2], [1]]
    """
    waits = dependencies(touched)
    groups: list[list[int]] = []
    for number, key in enumerate(keys):
        mine = None
        for group in groups if key is not None else ():
            fits = 2 + (len(group) + 1) * (1 + words[number]) <= MAX_ARGUMENTS
            if keys[group[0]] == key and fits and max(waits[number], default=-1) < group[0]:
                mine = group
                break
        if mine is None:
            groups.append([number])
        else:
            mine.append(number)
    return groups
