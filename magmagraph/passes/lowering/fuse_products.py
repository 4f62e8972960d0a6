"""Launch matrix products together with the steps that read their results.

On a CUDA device a generated product computes the one region that reads its result on its tiles, so
that the result never goes to memory; a library's product computes a bias, relu or gelu. A product
behind a loss of few classes is computed in the kernel of that loss (`chained_gemm`). Two poolings
that gather the largest elements and their places from one array are one launch.

A schedule that keeps little memory alive puts the gradient of a weight between the product that
makes a layer's gradient and the region that reads it. Here the region is moved directly after its
product; what it writes gets memory of its own where the steps that it passes still read what was
there. Where it writes variables, its product and the steps between run after the commit point, too.

Before::

    step  kernel  computes
       0  gemm    s3 = x @ W
       1  fused   result 0 = tanh of s3

After::

    step  kernel      computes
       0  gemm_fused  result 0 = x @ W, then tanh

Numerics: `exact`; a library rounds its result once where two launches round it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...codegen.cuda.generated import kernels_of, refusal_of
from ...codegen.cuda.kernels import RegionKernels
from ...codegen.cuda.products.chained_gemm import gains_from_chaining
from ...codegen.cuda.products.cuts import cut_for, cut_of_rows
from ...codegen.cuda.products.library_epilogue import library_epilogue
from ...codegen.cuda.products.merged import Merge, merge_of, tile_read
from ...codegen.cuda.products.shapes import (
    ProductShape,
    cut_of,
    extents_of,
    product_shape,
    stands_alone,
)
from ...codegen.region.parts import Region, Walk
from ...codegen.steps import bodies_of
from ...dtypes import canonical
from ...ir.graph import Graph, Node, freeze
from ...ir.plan import KernelFamily, Place, Plan, Role, Step, Value
from ...ir.ranges import PlanRanges, overlap
from ...ir.records import record
from ...ir.target import Target
from ...ir.types import Type
from ...ops.control.fused import FUSED
from ...ops.convert import cast
from ...ops.leaf import parameter
from ...ops.spatial.pooling_records import RECORDS as POOLED
from ...ops.spatial.pooling_records import gathered
from ..report import Record
from .bodies import Slots, late_outputs, only, with_lifetimes

__all__ = ["fuse_products", "pairs", "reader_of", "reading"]

ON_TILES = "compute a region on a product's tiles"
BY_LIBRARY = "compute a step in a library's product"
CHAINED = "compute a product in the kernel of a loss"
PAIRED = "pool twice in one launch"

NEVER_FAIL = (Role.PRODUCT, Role.REGION)  # kernels that have nothing to refuse when they run
_TOGETHER = {"largest", "place"}  # what one kernel gathers of an array


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


def fuse_products(plan: Plan, target: Target, notes: Record) -> Plan:
    """Return a plan with sizes in which products are launched with the steps that read them.

    Parameters
    ----------
    plan
        Its arena is not laid out yet.
    target
        What it is for; plans for the CPU stay as they are.
    notes
        Where hits and refusals are noted.
    """
    if target.device == "cpu" or not any(_joins(step) for step in plan.steps):
        return plan
    return _Fusion(plan, target, notes).result()


def _joins(step: Step) -> bool:
    return step.role is Role.PRODUCT or step.node.op in POOLED


# ---------------------------------------------------------------------- readers


def reading(plan: Plan, steps: Sequence[Step], i: int) -> Reading | str:
    """Return what alone reads the result of a plain product; else the reason why nothing does."""
    step = steps[i]
    out = step.outputs[0]
    attrs = step.node.attrs
    if attrs["scaled"] or attrs["accumulate"]:
        return "it is scaled, or added to another array"
    if len(out.type.shape) != 2:
        return "it is a batch of products"
    if plan.slots[out.slot].place is not Place.ARENA:
        return "its result is an output, or a variable"
    reader: int | None = None
    for j in range(i + 1, len(steps)):
        if any(value.slot == out.slot for value in steps[j].inputs):
            if reader is not None:
                return "more than one step reads its result"
            reader = j
        if any(value.slot == out.slot for value in steps[j].outputs):
            break
    if reader is None:
        return "no step reads its result"
    if steps[reader].role is not Role.REGION:
        return f"{steps[reader].kernel} reads its result, which is no fused step"
    places = [k for k, value in enumerate(steps[reader].inputs) if value.slot == out.slot]
    if len(places) != 1:
        return "more than one body reads its result"
    number, parameter = 0, places[0]
    bodies = bodies_of(steps[reader])
    while parameter >= len(bodies[number].inputs):
        parameter -= len(bodies[number].inputs)
        number += 1
    return Reading(reader, number, parameter, bodies[number], len(bodies) == 1)


def reader_of(plan: Plan, steps: Sequence[Step], i: int) -> Reader | str:
    """Return the region that reads a product's result and can work on its tiles, or why none."""
    reader = reading(plan, steps, i)
    if isinstance(reader, str):
        return reader
    for value in (*steps[i].outputs, *steps[i].inputs[:2]):
        if value.type.dtype != np.float32:
            return f"generated products are of float32, not {value.type.dtype.name}"
    kernels = kernels_of(reader.graph)
    if kernels is None:
        return f"the region that reads it has no kernel: {refusal_of(reader.graph)}"
    if not kernels.region.row and kernels.cross and not kernels.joined:
        return "the sums of the region that reads it end in several launches"
    node = tile_read(kernels.region, reader.parameter)
    if node is None:
        return "the region that reads it does not go through it element by element"
    return Reader(reader.place, reader.body, kernels, node)


# ---------------------------------------------------------------------- the pass


@record(frozen=True)
class _Library:
    """A product whose library call also computes the step that reads it."""

    product: Step
    reader: Step
    epilogue: str
    bias: Value | None


class _Fusion:
    """The steps and slots of a plan while steps are moved and put together."""

    def __init__(self, plan: Plan, target: Target, notes: Record) -> None:
        self.plan, self.target, self.notes = plan, target, notes
        self.extended = plan
        self.steps = list(plan.steps)
        self.became = list(range(len(plan.steps)))  # the step of the plan at each place
        self.slots = Slots(plan)
        self.commit = plan.commit
        self.ranges = PlanRanges(plan)
        self.alone = stands_alone(plan)

    def result(self) -> Plan:
        for i in range(len(self.steps)):
            self._bring_reader(i)
        self.ranges = PlanRanges(replace(self.plan, slots=tuple(self.slots.all)))
        halves = [self.steps[: self.commit], self.steps[self.commit :]]
        new_steps: list[Step] = []
        places = [0] * len(self.steps)
        commit = at = 0
        for half in halves:
            for step, computed in self._together(half):
                if step is not None:
                    new_steps.append(step)
                for _ in range(computed):
                    places[self.became[at]] = max(0, len(new_steps) - 1)
                    at += 1
            if half is halves[0]:
                commit = len(new_steps)
        if len(new_steps) == len(self.steps) and all(
            a is b for a, b in zip(new_steps, self.plan.steps, strict=True)
        ):
            return self.plan
        return with_lifetimes(self.plan, new_steps, self.slots.all, places, commit)

    # ---- Moving readers

    def _bring_reader(self, i: int) -> None:
        """Move the step that is best launched with a product directly after it, where it may."""
        place = self._behind(i)
        if place is None:
            return
        if i < self.commit <= place:
            between = self.steps[i:place]
            if self.plan.guard:
                reason = "nan='raise' checks new values before any is written"
            elif any(step.role not in NEVER_FAIL for step in between):
                reason = "a step that can fail is between it and what reads it"
            else:
                if self._move(i, place):
                    self.commit = i
                return
            self.notes.refuse(ON_TILES, self.steps[i].node, reason)
        else:
            self._move(i, place)

    def _behind(self, i: int) -> int | None:
        """Return the place of the step that is best launched together with a product, or None."""
        step = self.steps[i]
        if step.role is not Role.PRODUCT:
            return None
        plan = self._now()
        if len(step.outputs[0].type.shape) == 2:
            sizes = extents_of(step)
            reader = reader_of(plan, self.steps, i)
            if not isinstance(reader, str) and cut_for(*sizes) is not None:
                rows = bool(reader.kernels.region.row)
                return reader.place if not rows or cut_of_rows(*sizes) is not None else None
        first_reader = reading(plan, self.steps, i)
        if isinstance(first_reader, str) or not first_reader.alone:
            return None
        return (
            None
            if library_epilogue(first_reader.graph, first_reader.parameter) is None
            else first_reader.place
        )

    def _now(self) -> Plan:
        """Return the plan with the slots that were added."""
        if len(self.slots.all) > len(self.extended.slots):
            self.extended = replace(self.plan, slots=tuple(self.slots.all))
        return self.extended

    def _move(self, i: int, j: int) -> bool:
        """Move the reader ``j`` directly after the product ``i``, where that changes no value.

        Returns
        -------
        bool
            Whether it is there.
        """
        steps = self.steps
        product, reader, between = steps[i], steps[j], steps[i + 1 : j]
        out = product.outputs[0]
        written = {slot for step in between for slot in _written(step)}
        busy = {value.slot for value in product.inputs} | written
        busy |= {value.slot for step in between for value in step.inputs}
        if any(v.slot in written for v in reader.inputs if v.slot != out.slot):
            self.notes.refuse(
                ON_TILES, product.node, "a step between makes what the region that reads it needs"
            )
            return False
        fetched = {value.slot for value in self.plan.fetches}
        taken = [v for v in reader.outputs if v.slot in busy]
        if any(
            self.slots.all[v.slot].place is not Place.ARENA or v.slot in fetched for v in taken
        ):
            self.notes.refuse(
                ON_TILES, product.node, "the region that reads it writes what a step between reads"
            )
            return False
        after = steps[j + 1 :]
        for value in taken:
            fresh = self.slots.fresh(int(value.type.bytes))
            reader = replace(reader, outputs=_named(reader.outputs, value.slot, fresh))
            after = _read_from(after, value.slot, fresh)
        if reader.workspace is not None and reader.workspace in busy:
            size = self.slots.number(self.slots.all[reader.workspace].size)
            reader = replace(reader, workspace=self.slots.fresh(size))
        self.steps = [*steps[: i + 1], reader, *between, *after]
        self.became.insert(i + 1, self.became.pop(j))
        return True

    # ---- One launch of several steps

    def _together(self, steps: list[Step]) -> list[tuple[Step | None, int]]:
        """Return the launches of some steps in order, each with how many steps end before it.

        A step that is launched with another one counts, without a launch, where it was.
        """
        plan = self._now()
        merges = self._merges(plan, steps)
        first_of = {id(steps[m.behind.place]): m for m in merges if m.behind is not None}
        readers = {id(steps[m.place]): m for m in merges}
        gone = {id(m.product) for m in merges}
        free = {id(step) for step in steps} - readers.keys() - gone
        library = self._library_merges(plan, steps, free)
        by_reader = {id(one.reader): one for one in library}
        gone |= {id(one.product) for one in library}
        pooled = pairs(self.ranges, steps, self.notes)
        new_steps: list[tuple[Step | None, int]] = []
        for step in steps:
            if id(step) in gone:
                new_steps.append((None, 1))
            elif id(step) in readers:
                merge = readers[id(step)]
                if id(step) in first_of:
                    new_steps.append((self._end(first_of[id(step)]), 1))
                    continue
                new_steps.append((self._launch(merge), 0))
                others = [n for n in range(len(bodies_of(step))) if n != merge.body]
                rest = only(step, others, self.slots, plan.threads) if others else None
                new_steps.append((rest, 1))
            elif id(step) in by_reader:
                new_steps += self._library_launches(by_reader[id(step)])
            elif id(step) in pooled:
                first, second = pooled[id(step)]
                new_steps.append((_pooled(first, second) if step is first else None, 1))
            else:
                new_steps.append((step, 1))
        return new_steps

    # ---- Generated products

    def _merges(self, plan: Plan, steps: list[Step]) -> list[_Found]:
        """Return the products that are launched with the one region that reads their result."""
        merges: list[_Found] = []
        readers: set[int] = set()
        for i, step in enumerate(steps):
            shape = product_shape(step)
            if shape is None:
                continue
            merge = self._merge(plan, steps, i, shape)
            if isinstance(merge, str):
                self.notes.refuse(ON_TILES, step.node, merge)
            elif merge.place not in readers:
                readers.add(merge.place)
                merges.append(merge)
        taken: set[int] = set()
        for number, merge in enumerate(merges):
            for other in merges:
                if id(other) not in taken and self._chains(steps, merge, other):
                    merges[number] = replace(merge, behind=other)
                    taken.add(id(other))
                    break
        return merges

    def _merge(
        self, plan: Plan, steps: list[Step], i: int, shape: ProductShape
    ) -> _Found | str:
        reader = reader_of(plan, steps, i)
        if isinstance(reader, str):
            return reader
        step, rows = steps[i], bool(reader.kernels.region.row)
        factors = {value.slot for value in step.inputs}
        for other in steps[i + 1 : reader.place + 1]:
            if factors.intersection(_written(other)):
                return "its factors are overwritten before the region that reads it runs"
        if cut_of(self.target.architecture, shape, rows, self.alone) is None:
            return "a library multiplies matrices of this size faster"
        restricted = only(steps[reader.place], [reader.body], self.slots, plan.threads)
        merge = merge_of((step, restricted), self.target.architecture, self.alone)
        lines = -(-shape.m // merge.configuration.rows)  # partial results: one a row of tiles
        if reader.kernels.cross and lines > plan.threads:
            return "its tiles have more rows than there is room for partial sums"
        return _Found(merge, reader.place, reader.body, len(bodies_of(steps[reader.place])) == 1)

    def _chains(self, steps: list[Step], first_merge: _Found, behind: _Found) -> bool:
        """Return whether a second product can be computed in the kernel of the first.

        All that it reads must be known without memory, and what blocks compute again must stay as
        it was until the last block has: the kernel writes nothing that it reads.
        """
        merge, other = first_merge.merge, behind.merge
        if not merge.rows or other.rows or first_merge is behind or behind.behind is not None:
            return False
        shape = other.shape
        written = [value.slot for value in merge.reader.outputs]
        factor = other.product.inputs[0].slot
        if shape.transpose_a or factor not in written:
            return False
        if (shape.m, shape.k) != (merge.shape.m, merge.shape.n):
            return False
        reason = ""
        if not (first_merge.alone and behind.alone):
            reason = "a step has other bodies"
        elif not gains_from_chaining(merge.configuration, shape):
            reason = "more blocks than the device has multiprocessors would compute the rows again"
        elif other.kernels.cross and -(-shape.m // merge.configuration.rows) > self.plan.threads:
            reason = "its tiles have more rows than there is room for partial sums"
        elif not _is_whole(merge, written.index(factor)):
            reason = "the rows are not written element by element"
        elif not self._stays(steps, first_merge, behind):
            reason = "the kernel would write what it reads"
        if reason:
            self.notes.refuse(CHAINED, other.product.node, reason)
        return not reason

    def _stays(self, steps: list[Step], first_merge: _Found, behind: _Found) -> bool:
        """Return whether a second product can be computed where the first is, by several blocks."""
        merge, other = first_merge.merge, behind.merge
        first, last = first_merge.place, behind.place
        product = next(n for n, step in enumerate(steps) if step is other.product)
        if product < first:
            return False
        one, two = merge.product.outputs[0].slot, other.product.outputs[0].slot
        rows = {v.slot for v in merge.reader.inputs if v.slot != one}
        rows |= {v.slot for v in (*merge.product.inputs, other.product.inputs[1])}
        after = {v.slot for v in other.reader.inputs if v.slot != two}
        early_read = [other.reader.inputs[i] for i in _read_on_tiles(other.kernels.region)]
        needed = {v.slot for v in (other.product.inputs[1], *early_read) if v.slot != two}
        written = {v.slot for v in merge.reader.outputs}
        written_slots = {v.slot for v in other.reader.outputs}
        made_early = {
            other.reader.outputs[o.position].slot
            for o in other.kernels.region.outputs
            if not o.epilogue
        }
        written_early = {
            merge.reader.outputs[o.position].slot
            for o in merge.kernels.region.outputs
            if not o.epilogue
        }
        if written_early & (rows | after) or made_early & (rows | written):
            return False
        if written & needed:  # also what is there only when the sums of the rows have ended
            return False
        for step in steps[first + 1 : last]:
            if step is other.product:
                continue
            read = {value.slot for value in step.inputs}
            if (after | written_slots | rows).intersection(_written(step)) or read & written_slots:
                return False
        return True

    def _launch(self, candidate: _Found) -> Step:
        """Return the launch of a product and what is computed on its tiles."""
        merge = candidate.merge
        parts = [merge.product, merge.reader]
        self.notes.hit(ON_TILES)
        if candidate.behind is not None:
            self.notes.hit(CHAINED)
            parts += [candidate.behind.merge.product, candidate.behind.merge.reader]
        launch = _joined(parts, self.target.with_role(Role.EPILOGUE), self.slots)
        late = {value.slot for value in self._late(candidate.behind)}
        return replace(launch, outputs=tuple(v for v in launch.outputs if v.slot not in late))

    def _end(self, candidate: _Found) -> Step | None:
        """Return what ends the sums of the region behind, where it was, in one step for now."""
        behind = candidate.behind
        late = self._late(behind)
        if behind is None or not late:
            return None
        reader = behind.merge.reader
        parts = (candidate.merge.product, candidate.merge.reader, behind.merge.product, reader)
        two = behind.merge.product.outputs[0].slot
        return Step(
            self.target.with_role(Role.ENDING), reader.node,
            tuple(value for value in reader.inputs if value.slot != two), late,
            bytes=sum(int(value.type.bytes) for value in late), workspace=reader.workspace,
            parts=parts,
        )

    def _late(self, behind: _Found | None) -> tuple[Value, ...]:
        """Return what the region behind writes when its sums have ended."""
        if behind is None:
            return ()
        late = late_outputs(behind.merge.kernels)
        return tuple(v for i, v in enumerate(behind.merge.reader.outputs) if i in late)

    # ---- Libraries' products

    def _library_merges(
        self, plan: Plan, steps: list[Step], free: set[int]
    ) -> list[_Library]:
        """Return the products that a library launches with the one step that reads their result."""
        merges: list[_Library] = []
        readers: set[int] = set()
        for i, step in enumerate(steps):
            if step.role is not Role.PRODUCT or id(step) not in free:
                continue
            merge = self._library_merge(plan, steps, i)
            if isinstance(merge, str):
                if merge:
                    self.notes.refuse(BY_LIBRARY, step.node, merge)
            elif id(merge.reader) in free and id(merge.reader) not in readers:
                readers.add(id(merge.reader))
                merges.append(merge)
        return merges

    def _library_merge(self, plan: Plan, steps: list[Step], i: int) -> _Library | str:
        step = steps[i]
        read = reading(plan, steps, i)
        if isinstance(read, str):
            return read
        if not read.alone:
            return "the step that reads it computes other regions, too"
        epilogue = library_epilogue(read.graph, read.parameter)
        if epilogue is None:
            return "the region that reads it is no bias, relu or gelu"
        if step.inputs[0].type.dtype == np.float32 and cut_for(*extents_of(step)) is not None:
            return ""  # a generated product is faster, which has given its own reason
        if not all(extents_of(step)):
            return "it has no elements"
        reader = steps[read.place]
        factors = {value.slot for value in step.inputs}
        written = {slot for s in steps[i + 1 : read.place] for slot in _written(s)}
        if factors & (written | {value.slot for value in reader.outputs}):
            return "its factors are overwritten before the step that reads it has ended"
        bias = None if epilogue.bias is None else reader.inputs[epilogue.bias]
        merge = _Library(step, reader, epilogue.name, bias)
        parts = (step, reader)
        together = _joined(parts, self.target.with_role(Role.LIBRARY_EPILOGUE), self.slots)
        chosen = self.target.chosen(BY_LIBRARY, {"together": (together,), "apart": parts})
        return merge if chosen == "together" else "a launch of its own is as fast"

    def _library_launches(self, merge: _Library) -> list[tuple[Step | None, int]]:
        """Return the launch of a library's product, and that of its bias where it is converted."""
        self.notes.hit(BY_LIBRARY)
        new_steps: list[tuple[Step | None, int]] = []
        reader = merge.reader
        dtype = reader.outputs[0].type.dtype
        if merge.bias is not None and merge.bias.type.dtype != dtype:
            count = int(merge.bias.type.bytes) // merge.bias.type.dtype.itemsize
            slot = self.slots.fresh(count * dtype.itemsize)
            converted = Value(slot, Type(dtype, (count,)))
            new_steps.append((self._conversion(merge.bias, converted, count, reader), 0))
            place = next(i for i, v in enumerate(reader.inputs) if v.slot == merge.bias.slot)
            inputs = list(reader.inputs)
            inputs[place] = converted
            reader = replace(reader, inputs=tuple(inputs))
        family = self.target.with_role(Role.LIBRARY_EPILOGUE)
        new_steps.append((_joined((merge.product, reader), family, self.slots), 1))
        return new_steps

    def _conversion(self, source: Value, target: Value, count: int, reader: Step) -> Step:
        """Return the step that converts a bias to the dtype of a result."""
        x = parameter(0, Type(canonical(source.type.dtype.name), (count,)))
        body = freeze([x], [cast(x, target.type.dtype.name)])
        node = FUSED(x, body=body)
        node.line = reader.node.line
        return Step(
            self.target.with_role(Role.REGION), node, (source,), (target,),
            bytes=int(source.type.bytes) + int(target.type.bytes), flops=count,
            origin=reader.computed[0],
        )


@record(frozen=True, eq=False)
class _Found:
    """A product that is launched with its reader.

    Attributes
    ----------
    merge
        What `merge_of` gives of both.
    place, body
        The reader's place in the list, and which of its bodies reads the result.
    alone
        Whether it has no other body.
    behind
        Another one that is computed in the same kernel.
    """

    merge: Merge
    place: int
    body: int
    alone: bool
    behind: _Found | None = None

    @property
    def product(self) -> Step:
        """The product."""
        return self.merge.product


def _joined(parts: Sequence[Step], family: KernelFamily, slots: Slots) -> Step:
    """Return the step that is one launch of several: what one makes and another reads is inside."""
    inside = {value.slot for part in parts for value in part.outputs if part.role is Role.PRODUCT}
    inputs: dict[int, Value] = {}
    own: set[int] = set()
    for part in parts:
        for value in part.inputs:
            if value.slot not in inside and value.slot not in own:
                inputs.setdefault(value.slot, value)
        own |= {value.slot for value in part.outputs} - inputs.keys()
    outputs = tuple(v for part in parts if part.role is not Role.PRODUCT for v in part.outputs)
    inner = sum(int(v.type.bytes) for p in parts if p.role is Role.PRODUCT for v in p.outputs)
    moved = sum(slots.number(part.bytes) for part in parts)
    first = parts[1]
    return replace(
        first, family=family, inputs=tuple(inputs.values()), outputs=outputs,
        bytes=max(0, moved - 2 * inner), flops=sum(slots.number(part.flops) for part in parts),
        workspace=None, parts=tuple(parts), origin=None,
    )


def pairs(
    ranges: PlanRanges, steps: Sequence[Step], notes: Record
) -> dict[int, tuple[Step, Step]]:
    """Return the steps that are pooled together, by the ids of both.

    Parameters
    ----------
    ranges
        Of the plan.
    steps
        Of a part of it.
    notes
        Where hits and refusals are noted.
    """
    by_step: dict[int, tuple[Step, Step]] = {}
    for i, step in enumerate(steps):
        if step.node.op not in POOLED or id(step) in by_step:
            continue
        for j in range(i + 1, len(steps)):
            other = steps[j]
            if other.node.op in POOLED and _alike(step, other):
                if _in_between(ranges, steps[i:j], other):
                    notes.refuse(PAIRED, other.node, "a step between uses its memory")
                else:
                    by_step[id(step)] = by_step[id(other)] = step, other
                    notes.hit(PAIRED)
                break
    return by_step


def _in_between(ranges: PlanRanges, steps: Sequence[Step], moved: Step) -> bool:
    """Return whether a step cannot move before others: it writes memory that they use."""
    read, written = ranges.ranges(moved.inputs), ranges.ranges(moved.outputs)
    touched = [ranges.touched(step) for step in steps]
    return any(
        overlap(written, (*one.read, *one.written)) or overlap(read, one.written)
        for one in touched
    )


def _pooled(first: Step, second: Step) -> Step:
    """Return the launch of two steps that pool the same array."""
    moved = int(first.bytes) + int(second.bytes) - sum(int(v.type.bytes) for v in first.inputs)
    return replace(
        first, outputs=(*first.outputs, *second.outputs), bytes=moved,
        flops=int(first.flops) + int(second.flops), parts=(first, second),
    )


def _alike(step: Step, other: Step) -> bool:
    """Return whether two steps gather the largest elements and their places of one array."""
    gathers = {gathered(step.node), gathered(other.node)}
    if gathers != _TOGETHER or step.inputs != other.inputs:
        return False
    return bool(step.node.attrs == other.node.attrs)


def _is_whole(merge: Merge, kept: int) -> bool:
    """Return whether an output of rows is written element by element, as float32."""
    region = merge.kernels.region
    (row,) = region.row
    output = next(o for o in region.outputs if o.position == kept)
    whole = output.element and output.axes[row] == 1 and output.axes[1 - row] == 0
    return bool(whole) and output.node.dtype == np.float32


def _read_on_tiles(region: Region) -> list[int]:
    """Return the parameters that a region reads before its sums have ended."""
    nodes = [node for nodes in Walk(region).passes for node in nodes]
    return [region.accesses[node].parameter for node in nodes if node in region.accesses]


def _written(step: Step) -> list[int]:
    """Return the slots that a step writes."""
    return [*(value.slot for value in step.outputs), *step.scratch]


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
