"""Arrays that are copied side by side, or cut out of one another: by a kernel, or as copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....codegen.cuda.joining_code import AHEAD, THREADS, Joining, joining_source
from ....codegen.steps import join_layout, shape_of
from ....ir import dims
from ....ir.op import Kind
from ....ir.plan import Step
from ..kernels.gathering import BLOCKS_EACH, function_of
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .calls import KernelCall, LibraryCall

__all__ = ["joined", "window"]


MOST_PARTS = 16  # arrays of one kernel; a library call each where there are more
MOST_UNITS = 1 << 31  # of a result, whose numbers fit into 32 bits with those of the last threads
UNITS = (16, 8, 4, 2, 1)  # bytes that a thread copies at a time

Piece = tuple[int, int, int, int]
"""Where a piece begins in a row of the result, its bytes there, where it begins in a row of its
array, and the bytes of such a row."""


def joined(memory: PlanMemory, step: Step) -> KernelCall | LibraryCall:
    """Return what puts arrays side by side along one axis, or one among zeros."""
    rows, width, parts = join_layout(step, memory.sizes)
    places = [memory.at(value) for value in (*step.outputs, *step.inputs)]
    return _copying(memory, places, rows, width, parts)


def _copying(
    memory: PlanMemory, places: list[int], rows: int, width: int, parts: Sequence[Piece]
) -> KernelCall | LibraryCall:
    """Return what copies pieces to their places in rows; between and behind them are zeros."""
    gaps, end = [], 0
    for at, count, *_ in parts:
        gaps.append((end, at - end, 0, 0))
        end = at + count
    gaps.append((end, width - end, 0, 0))
    zeros = [gap for gap in gaps if gap[1]]
    if 1 < rows and len(parts) + len(zeros) <= MOST_PARTS:
        return _kernel(memory, places, rows, width, [*parts, *zeros])
    runtime = memory.device.cupy.cuda.runtime

    def run(stream: Any, out: int, *sources: int) -> None:
        if zeros and rows * width:
            runtime.memsetAsync(out, 0, rows * width, stream.ptr)
        for source, (at, count, first, row) in zip(sources, parts, strict=True):
            if rows * count:
                runtime.memcpy2DAsync(
                    out + at, width, source + first, row, count, rows, DEVICE_TO_DEVICE, stream.ptr
                )

    return LibraryCall(run, places)


def _kernel(
    memory: PlanMemory, places: list[int], rows: int, width: int, parts: Sequence[Piece]
) -> KernelCall:
    """Return the kernel that copies pieces of rows; those without an address are zeros."""
    numbers = math.gcd(width, *places, *(number for part in parts for number in part))
    unit = next(unit for unit in UNITS if not numbers % unit)
    longest = rows * max(width, *(row for *_, row in parts))
    joining = Joining(len(parts), unit, longest // unit >= MOST_UNITS)
    sources = [*places[1:], *[0] * (len(parts) - len(places) + 1)]
    words = [places[0], *sources, width // unit, rows]
    words += [number // unit for part in parts for number in part]
    most = max(rows * count // unit for _, count, *_ in parts)
    blocks = -(-most // (THREADS * AHEAD))
    blocks = max(1, min(blocks, BLOCKS_EACH * memory.device.multiprocessors))
    function = function_of(memory.device, joining.name, joining_source(joining), joining.words)
    return KernelCall(
        function, (blocks, len(parts), 1), (THREADS, 1, 1), np.array(words, np.int64),
        range(len(places)), overlaps=True,
    )  # fmt: skip


def window(memory: PlanMemory, step: Step) -> KernelCall | LibraryCall | None:
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
    width, count = (whole[axis] * unit, part[axis] * unit) if whole else (unit, unit)
    places = [memory.at(value) for value in (*step.outputs, *step.inputs)]
    return _copying(memory, places, rows, count, [(0, count, first, width)])
