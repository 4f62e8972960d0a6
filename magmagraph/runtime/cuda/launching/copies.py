"""Arrays that are copied side by side, or cut out of one another: as copies, which are captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....codegen.steps import join_layout, shape_of
from ....ir import dims
from ....ir.op import Kind
from ....ir.plan import Step
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .calls import LibraryCall

__all__ = ["joined", "window"]


def joined(memory: PlanMemory, step: Step) -> LibraryCall:
    """Return what puts arrays side by side along one axis, or one among zeros."""
    runtime = memory.device.cupy.cuda.runtime
    rows, width, parts = join_layout(step, memory.sizes)
    zeros = sum(count for _, count, *_ in parts) < width

    def run(stream: Any, out: int, *sources: int) -> None:
        if zeros and rows * width:
            runtime.memsetAsync(out, 0, rows * width, stream.ptr)
        for source, (at, count, first, row) in zip(sources, parts, strict=True):
            if rows * count:
                runtime.memcpy2DAsync(
                    out + at, width, source + first, row, count, rows, DEVICE_TO_DEVICE, stream.ptr
                )

    return LibraryCall(run, [memory.at(value) for value in (*step.outputs, *step.inputs)])


def window(memory: PlanMemory, step: Step) -> LibraryCall | None:
    """Return what cuts a window out along one axis, or None where a step is something else."""
    attrs = step.node.attrs
    if step.node.op.kind is not Kind.LAYOUT or "starts" not in attrs or "value" in attrs:
        return None
    whole, part = shape_of(step.inputs[0].type), shape_of(step.outputs[0].type)
    cut = [axis for axis, extent in enumerate(whole) if extent != part[axis]]
    if set(attrs["steps"]) - {1} or len(cut) > 1:
        return None
    axis = cut[0] if cut else 0
    starts: Sequence[Any] = attrs["starts"]
    unit, rows = step.outputs[0].type.dtype.itemsize, 1
    for extent in whole[axis + 1 :]:
        unit *= extent
    for extent in whole[:axis]:
        rows *= extent
    first = dims.evaluate(starts[axis], memory.sizes) * unit if starts else 0
    runtime = memory.device.cupy.cuda.runtime
    width, count = (whole[axis] * unit, part[axis] * unit) if whole else (unit, unit)

    def run(stream: Any, out: int, source: int) -> None:
        if rows * count:
            runtime.memcpy2DAsync(
                out, count, source + first, width, count, rows, DEVICE_TO_DEVICE, stream.ptr
            )

    return LibraryCall(run, [memory.at(value) for value in (*step.outputs, *step.inputs)])
