"""Products that the library launches together with the step that reads their result."""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from ....codegen.steps import shape_of
from ....config import config
from ....dtypes import canonical
from ....ir.fallback import Refused
from ....ir.graph import Graph, freeze
from ....ir.plan import Role, Step, Value
from ....ir.records import record
from ....ir.types import Type
from ....ops.convert import cast
from ....ops.leaf import parameter
from ..arrange import reading
from ..kernels.fused import kernels_of
from ..launching.calls import LibraryCall
from ..launching.fused_launches import kernel_call
from ..launching.launch_units import Unit
from ..launching.launches import StepLaunches
from ..launching.streams import Range, Touched
from ..memory import PlanMemory
from .cuts import cut_for
from .library_epilogue import library_epilogue

__all__ = ["LibraryMerge", "library_merges", "with_epilogue"]

_LAUNCH = 1.5  # microseconds of a kernel of its own, about
_BANDWIDTH = 3.5e6  # bytes a microsecond that such a kernel moves, about


@record(frozen=True, eq=False)
class LibraryMerge:
    """A product whose library call also computes the step that reads it.

    Attributes
    ----------
    product, reader
        The two steps.
    epilogue
        Its name.
    bias
        What is added to each row, or None.
    """

    product: Step
    reader: Step
    epilogue: str
    bias: Value | None


def library_merges(
    memory: PlanMemory, steps: Sequence[Step], free: Set[int]
) -> dict[int, LibraryMerge]:
    """Return the products that the library launches with the one step that reads their result.

    Of steps whose ids are among the free ones; found by the ids of both steps.
    """
    found: dict[int, LibraryMerge] = {}
    for i, step in enumerate(steps):
        merge = _merge(memory, steps, i) if step.role is Role.PRODUCT else None
        if merge is None or not {id(step), id(merge.reader)} <= free:
            continue
        from . import gemm

        if not gemm.available():  # asked last: the library takes long to load
            return found
        if id(merge.reader) not in found:
            found[id(step)] = found[id(merge.reader)] = merge
    return found


def _merge(memory: PlanMemory, steps: Sequence[Step], i: int) -> LibraryMerge | None:
    step = steps[i]
    read = reading(memory.plan, steps, i)
    if read is None or not read.alone:
        return None
    epilogue = library_epilogue(read.graph, read.parameter)
    if epilogue is None:
        return None
    if step.inputs[0].type.dtype == np.float32 and cut_for(*_sizes(step)) is not None:
        return None
    reader = steps[read.place]
    factors = memory.ranges(step.inputs)
    written = [place for s in steps[i + 1 : read.place] for place in memory.touched(s).written]
    if _overlap([*written, *memory.ranges(reader.outputs)], factors):
        return None
    bias = None if epilogue.bias is None else reader.inputs[epilogue.bias]
    return LibraryMerge(step, reader, epilogue.name, bias)


def _sizes(step: Step) -> tuple[int, int, int]:
    """Return the rows, columns and contracted extent of a product."""
    m, n = shape_of(step.outputs[0].type)
    k = shape_of(step.inputs[0].type)[-2 if step.node.attrs["transpose_a"] else -1]
    return m, n, k


def with_epilogue(make: StepLaunches, merge: LibraryMerge) -> list[Unit] | None:
    """Return what launches both steps, or None where two launches are as fast."""
    from . import gemm

    memory, device, step = make.memory, make.device, merge.product
    m, n, k = _sizes(step)
    if not (m and n and k):
        return None
    attrs, out = step.node.attrs, merge.reader.outputs[0]
    dtype, stored = step.inputs[0].type.dtype.name, out.type.dtype.name
    shape = gemm.Shape(
        m, n, k, dtype, attrs["transpose_a"], attrs["transpose_b"], False, False,
        compute=attrs.get("compute") or "float32", result="" if stored == dtype else stored,
        epilogue=merge.epilogue,
    )  # fmt: skip
    workspace = device.scratch(make.stream)
    try:
        product = gemm.plan_product(device, shape, workspace, config.tuning)
    except Refused:  # two launches: the library has none of this dtype with this epilogue
        return None
    # What both take in turn: two trials are of two clocks.
    apart = product.beside + _LAUNCH + int(merge.reader.bytes) / _BANDWIDTH
    if product.beside and product.microseconds > apart:
        return None
    units: list[Unit] = []
    read = memory.ranges(step.inputs[:2])
    bias = 0
    if merge.bias is not None:
        bias, rows, narrowing = _bias(make, merge.bias, stored)
        units += narrowing
        read = (*read, rows)
    a, b = (memory.at(value) for value in step.inputs[:2])
    target = memory.at(out)

    def run(stream: Any, a: int, b: int, target: int, bias: int) -> None:
        product.launch(a, b, 0, target, 0, 0, device.scratch(stream), stream.ptr, bias)

    call = LibraryCall(run, (a, b, target, bias))
    return [*units, Unit(call, Touched(read, memory.ranges(merge.reader.outputs)))]


def _bias(make: StepLaunches, value: Value, dtype: str) -> tuple[int, Range, list[Unit]]:
    """Return the address and memory of a bias of a dtype, and what launches its conversion."""
    memory = make.memory
    given = memory.ranges([value])[0]
    if value.type.dtype.name == dtype:
        return given[0], given, []
    count = int(value.type.bytes) // value.type.dtype.itemsize
    kernels = kernels_of(_conversion(count, value.type.dtype.name, dtype))
    assert kernels is not None
    make.modules.build([kernels])
    held = memory.device.empty(count * 4)
    memory.keep.append(held)
    address = int(held.data.ptr)
    bound = make.modules.bind(kernels, {}, memory.plan.threads, memory.counter())
    launches = [
        kernel_call(function, launch, [given[0], address, 0, *launch.numbers])
        for function, launch in bound
    ]
    rows = (address, address + count * 4)
    return address, rows, [Unit(run, Touched((given,), (rows,))) for run in launches]


@functools.lru_cache(maxsize=64)
def _conversion(count: int, source: str, target: str) -> Graph:
    """Return the body that converts a vector."""
    x = parameter(0, Type(canonical(source), (count,)))
    return freeze([x], [cast(x, target)])


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(start < stop and begin < end for start, end in some for begin, stop in others)
