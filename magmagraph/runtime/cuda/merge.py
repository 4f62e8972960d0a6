"""Products that are launched together with the region that reads their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Node
from ...plan import Place, Step
from ..numpy.cells import bodies_of, shape_of
from . import gemm
from .epilogue import product_read
from .fused import kernels_of
from .kernels import RegionKernels
from .memory import PlanMemory
from .products import trial
from .small_gemm import Configuration
from .streams import Range

__all__ = ["Merge", "merges"]

SAVED = 2.0  # microseconds that a launch and a pass over a small result take, about


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
    configuration, sizes
        How the product is cut; rows, columns and contracted extent.
    """

    product: Step
    reader: Step
    body: int
    kernels: RegionKernels
    node: Node
    configuration: Configuration
    sizes: tuple[int, int, int]


def merges(memory: PlanMemory, steps: Sequence[Step]) -> dict[int, Merge]:
    """Return the products that are launched with the one region that reads their result."""
    found: dict[int, Merge] = {}
    if not gemm.available():
        return found
    for i, step in enumerate(steps):
        merge = _merge(memory, steps, i) if step.kernel == "gemm" else None
        if merge is not None and id(merge.reader) not in found:
            found[id(step)] = found[id(merge.reader)] = merge
    return found


def _merge(memory: PlanMemory, steps: Sequence[Step], i: int) -> Merge | None:
    step = steps[i]
    out = step.outputs[0]
    attrs = step.node.attrs
    if attrs["scaled"] or attrs["accumulate"] or len(out.type.shape) != 2:
        return None
    if out.type.dtype != np.float32 or memory.plan.slots[out.slot].place is not Place.ARENA:
        return None
    factors = memory.ranges(step.inputs)
    reader: Step | None = None
    for other in steps[i + 1 :]:
        if any(value.slot == out.slot for value in other.inputs):
            if reader is not None:
                return None
            reader = other
        if any(value.slot == out.slot for value in other.outputs):
            break
        if reader in (None, other) and _overlap(memory.touched(other).written, factors):
            return None  # the factors would be gone when the reader runs
    if reader is None or reader.kernel != "fused":
        return None
    places = [k for k, value in enumerate(reader.inputs) if value.slot == out.slot]
    if len(places) != 1:
        return None
    number, parameter = 0, places[0]
    bodies = bodies_of(reader)
    while parameter >= len(bodies[number].inputs):
        parameter -= len(bodies[number].inputs)
        number += 1
    kernels = kernels_of(bodies[number])
    if kernels is None or (kernels.cross and not kernels.joined):
        return None
    node = product_read(kernels.region, parameter)
    if node is None:
        return None
    m, n = shape_of(out.type)
    k = shape_of(step.inputs[0].type)[-2 if attrs["transpose_a"] else -1]
    measured = trial(memory.device, m, n, k, attrs["transpose_a"], attrs["transpose_b"])
    if measured.configuration is None or measured.generated > measured.library + SAVED:
        return None
    return Merge(step, reader, number, kernels, node, measured.configuration, (m, n, k))


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(start < stop and begin < end for start, end in some for begin, stop in others)
