"""Products that are launched together with the region that reads their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...graph import Node
from ...plan import Step
from ..numpy.cells import shape_of
from . import gemm
from .arrange import reader_of
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
        merge = _merge(memory, steps, i)
        if merge is not None and id(merge.reader) not in found:
            found[id(step)] = found[id(merge.reader)] = merge
    return found


def _merge(memory: PlanMemory, steps: Sequence[Step], i: int) -> Merge | None:
    reader = reader_of(memory.plan, steps, i)
    if reader is None:
        return None
    step, attrs = steps[i], steps[i].node.attrs
    factors = memory.ranges(step.inputs)
    for other in steps[i + 1 : reader.place + 1]:
        if _overlap(memory.touched(other).written, factors):
            return None  # the factors would be gone when the reader runs
    m, n = shape_of(step.outputs[0].type)
    k = shape_of(step.inputs[0].type)[-2 if attrs["transpose_a"] else -1]
    measured = trial(memory.device, m, n, k, attrs["transpose_a"], attrs["transpose_b"])
    if measured.configuration is None or measured.generated > measured.library + SAVED:
        return None
    return Merge(
        step, steps[reader.place], reader.body, reader.kernels, reader.node,
        measured.configuration, (m, n, k),
    )


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(start < stop and begin < end for start, end in some for begin, stop in others)
