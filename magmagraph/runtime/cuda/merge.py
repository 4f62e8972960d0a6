"""Products that are launched together with the region that reads their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Node
from ...plan import Place, Plan, Step
from ..numpy.cells import shape_of
from .arrange import reader_of
from .cuts import Configuration
from .kernels import RegionKernels
from .memory import PlanMemory
from .products import ProductShape, cut_of
from .streams import Range

__all__ = ["Merge", "merges", "product_shape", "read_first"]

@dataclass(frozen=True, eq=False)
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
    """

    product: Step
    reader: Step
    body: int
    kernels: RegionKernels
    node: Node
    configuration: Configuration
    shape: ProductShape


def product_shape(step: Step) -> ProductShape | None:
    """Return the shape of a step that is one product of float32 matrices, or None."""
    types = [value.type for value in (*step.inputs[:2], *step.outputs)]
    if step.kernel != "gemm" or any(len(t.shape) != 2 or t.dtype != np.float32 for t in types):
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


def merges(memory: PlanMemory, steps: Sequence[Step]) -> dict[int, Merge]:
    """Return the products that are launched with the one region that reads their result."""
    found: dict[int, Merge] = {}
    shapes = [product_shape(step) for step in steps]
    for i, shape in enumerate(shapes):
        merge = None if shape is None else _merge(memory, steps, i, shape)
        if merge is not None and id(merge.reader) not in found:
            found[id(steps[i])] = found[id(merge.reader)] = merge
    return found


def _merge(
    memory: PlanMemory, steps: Sequence[Step], i: int, shape: ProductShape
) -> Merge | None:
    reader = reader_of(memory.plan, steps, i)
    if reader is None:
        return None
    step = steps[i]
    factors = memory.ranges(step.inputs)
    for other in steps[i + 1 : reader.place + 1]:
        if _overlap(memory.touched(other).written, factors):
            return None  # the factors would be gone when the reader runs
    configuration = cut_of(memory.device, shape, bool(reader.kernels.region.row))
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
