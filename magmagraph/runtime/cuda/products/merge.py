"""Products that are launched together with the region that reads their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....codegen.cuda.kernels import RegionKernels
from ....codegen.region.parts import Region, Walk
from ....codegen.steps import bodies_of, shape_of
from ....ir.graph import Node
from ....ir.plan import Place, Plan, Role, Step
from ....ir.records import record
from ..arrange import reader_of
from ..launching.streams import Range
from ..memory import PlanMemory
from .chained_gemm import gains_from_chaining
from .cuts import SMALL, Configuration
from .products import ProductShape, cut_of

__all__ = ["Merge", "merges", "product_shape", "read_first", "stands_alone"]


@record(frozen=True, eq=False)
class Merge:
    """A product that is launched together with the region that reads it.

    Attributes
    ----------
    product, reader
        The two steps.
    body
        Which body of the reader.
    kernels, node
        Its kernels, and what of it the product's tile stands for.
    configuration, shape
        How the product is cut, and what it is.
    behind
        A product of the reader's rows that the same kernel computes, with what reads it.
    kept
        Which of the reader's outputs that is a product of.
    inside
        Whether it is what another has behind it.
    """

    product: Step
    reader: Step
    body: int
    kernels: RegionKernels
    node: Node
    configuration: Configuration
    shape: ProductShape
    behind: Merge | None = None
    kept: int = -1
    inside: bool = False

    @property
    def paired(self) -> bool:
        """Whether it shares a kernel with another merge.

        Partial results of both are alive at the same time then, where by the plan those of the
        second, and what it writes, may lie where those of the first were.
        """
        return self.inside or self.behind is not None


def product_shape(step: Step) -> ProductShape | None:
    """Return the shape of a step that is one product of float32 matrices, or None."""
    types = [value.type for value in (*step.inputs[:2], *step.outputs)]
    if step.role is not Role.PRODUCT:
        return None
    if any(len(t.shape) != 2 or t.dtype != np.float32 for t in types):
        return None
    attrs = step.node.attrs
    m, n = shape_of(types[-1])
    k = shape_of(types[0])[-2 if attrs["transpose_a"] else -1]
    if not (m and n and k):
        return None
    terms = 1 if attrs.get("compute") == "tf32" else 3
    return ProductShape(m, n, k, attrs["transpose_a"], attrs["transpose_b"], terms)


def read_first(plan: Plan, step: Step) -> int:
    """Return which factor of a product is read first, 0 or 1: the one that was written longer ago.

    Feeds are there before a step begins; weights were renewed at the end of the last one, and
    gradients are what the launch before this made.
    """
    fed = plan.slots[step.inputs[0].slot].place is Place.FEED
    return 0 if fed or step.node.attrs["transpose_a"] else 1


def stands_alone(plan: Plan) -> bool:
    """Return whether a plan has one product of many elements, such as a gradient of weights."""
    shapes = (shape for step in plan.steps if (shape := product_shape(step)) is not None)
    many = (shape for shape in shapes if shape.m * shape.n > SMALL)
    return next(many, None) is not None and next(many, None) is None


def merges(memory: PlanMemory, steps: Sequence[Step]) -> dict[int, Merge]:
    """Return the products that are launched with the one region that reads their result."""
    found: dict[int, Merge] = {}
    shapes = [product_shape(step) for step in steps]
    alone = stands_alone(memory.plan)
    for i, shape in enumerate(shapes):
        merge = None if shape is None else _merge(memory, steps, i, shape, alone)
        if merge is not None and id(merge.reader) not in found:
            found[id(steps[i])] = found[id(merge.reader)] = merge
    for merge in list(dict.fromkeys(found.values())):
        kept = -1
        for other in dict.fromkeys(found.values()):
            kept = _kept(memory, steps, merge, other)
            if kept >= 0:
                break
        if kept < 0:
            continue
        other = replace(other, inside=True)
        for one in (replace(merge, behind=other, kept=kept), other):
            found[id(one.product)] = found[id(one.reader)] = one
    return found


def _kept(memory: PlanMemory, steps: Sequence[Step], merge: Merge, other: Merge) -> int:
    """Return which output of a region with rows another product has as its first factor, or -1.

    All of it must be known without memory, and what blocks compute again must stay as it was until
    the last block has: the kernel writes nothing that it reads.
    """
    region, shape = merge.kernels.region, other.shape
    if not region.row or other.kernels.region.row or other is merge:
        return -1
    if shape.transpose_a or (shape.m, shape.k) != (merge.shape.m, merge.shape.n):
        return -1
    if len(bodies_of(merge.reader)) > 1 or len(bodies_of(other.reader)) > 1:
        return -1
    if not gains_from_chaining(merge.configuration, shape):
        return -1
    if other.kernels.cross and -(-shape.m // merge.configuration.rows) > memory.plan.threads:
        return -1
    factor = other.product.inputs[0]
    slots = [value.slot for value in merge.reader.outputs]
    if factor.slot not in slots:
        return -1
    kept = slots.index(factor.slot)
    (row,) = region.row
    output = next(o for o in region.outputs if o.position == kept)
    whole = output.element and output.axes[row] == 1 and output.axes[1 - row] == 0
    if not whole or output.node.dtype != np.float32:
        return -1
    return kept if _stays(memory, steps, merge, other) else -1


def _stays(memory: PlanMemory, steps: Sequence[Step], merge: Merge, other: Merge) -> bool:
    """Return whether a second product can be computed where the first is, by several blocks."""
    places = {id(step): number for number, step in enumerate(steps)}
    first, last = places[id(merge.reader)], places[id(other.reader)]
    if places[id(other.product)] < first:
        return False
    one, two = merge.product.outputs[0].slot, other.product.outputs[0].slot
    rows = memory.ranges([v for v in merge.reader.inputs if v.slot != one])
    rows = (*rows, *memory.ranges((*merge.product.inputs, other.product.inputs[1])))
    behind = memory.ranges([v for v in other.reader.inputs if v.slot != two])
    early_read = [other.reader.inputs[i] for i in _read_on_tiles(other.kernels.region)]
    needed = memory.ranges([other.product.inputs[1], *(v for v in early_read if v.slot != two)])
    written = memory.ranges(merge.reader.outputs)  # partial results of both lie elsewhere
    made = memory.ranges(other.reader.outputs)
    early = [o.position for o in other.kernels.region.outputs if not o.epilogue]
    made_early = memory.ranges([other.reader.outputs[i] for i in early])
    ended = [o.position for o in merge.kernels.region.outputs if not o.epilogue]
    written_early = memory.ranges([merge.reader.outputs[i] for i in ended])
    if _overlap(written_early, (*rows, *behind)) or _overlap(made_early, (*rows, *written)):
        return False
    if _overlap(written, needed):  # also what is there only when the sums of the rows have ended
        return False
    for step in steps[first + 1 : last]:
        if step is other.product:
            continue
        touched = memory.touched(step)
        if _overlap(touched.written, (*behind, *made, *rows)) or _overlap(touched.read, made):
            return False
    return True


def _read_on_tiles(region: Region) -> list[int]:
    """Return the parameters that a region reads before its sums have ended."""
    nodes = [node for nodes in Walk(region).passes for node in nodes]
    return [region.accesses[node].parameter for node in nodes if node in region.accesses]


def _merge(
    memory: PlanMemory, steps: Sequence[Step], i: int, shape: ProductShape, alone: bool
) -> Merge | None:
    reader = reader_of(memory.plan, steps, i)
    if reader is None:
        return None
    step = steps[i]
    factors = memory.ranges(step.inputs)
    for other in steps[i + 1 : reader.place + 1]:
        if _overlap(memory.touched(other).written, factors):
            return None  # the factors would be gone when the reader runs
    configuration = cut_of(memory.device, shape, bool(reader.kernels.region.row), alone)
    if configuration is None:
        return None
    lines = -(-shape.m // configuration.rows)  # of partial results, one for each row of tiles
    if reader.kernels.cross and lines > memory.plan.threads:
        return None
    return Merge(
        step, steps[reader.place], reader.body, reader.kernels, reader.node, configuration, shape
    )


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(start < stop and begin < end for start, end in some for begin, stop in others)
