"""Scans as generated kernels: their launches, alone and with the regions computed in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....codegen.cuda.gathering_code import WIDEST
from ....codegen.cuda.scan_cuts import ScanCut, cut_of_scan
from ....codegen.cuda.scan_parts import FusedScan
from ....codegen.cuda.scanning_code import WORDS, scan_source
from ....ir.plan import Step
from ....ir.ranges import Touched
from ..launching.calls import KernelCall, Together
from ..memory import PlanMemory
from .gathering import function_of

__all__ = ["fused_scanning", "scanning"]


def scanning(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches a scan, and the memory that it touches."""
    out, attrs = step.outputs[0], step.node.attrs
    device = memory.device
    cut = cut_of_scan(
        step.node.op, out.type, attrs["axis"], attrs["reverse"], device.multiprocessors
    )
    operands = [memory.at(value) for value in (step.inputs[0], step.inputs[-1], out)]
    while any(address % (cut.scan.width * cut.itemsize) for address in operands):
        cut = cut.moving(cut.scan.width // 2)
    text = scan_source(cut.scan) if cut.blocks else ""
    return _launched(memory, step, cut, (cut.scan.name, text, WORDS), operands, [], range(4))


def fused_scanning(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches a scan with the regions around it, and the memory that it touches."""
    most = WIDEST
    while True:
        fused = FusedScan(step, memory.sizes, memory.device.multiprocessors, most)
        width = fused.cut.scan.width
        if width == 1 or all(_aligned(memory, part, width) for part in step.parts):
            break
        most = width // 2
    scan, cut = fused.parts.scan, fused.cut
    operands = [memory.at(value) for value in (scan.inputs[0], scan.inputs[-1], scan.outputs[0])]
    more: list[int] = []
    pointers = [*range(4)]
    for region in fused.regions:
        values = (*region.step.inputs, *region.step.outputs)
        pointers += range(WORDS + len(more), WORDS + len(more) + len(values))
        more += [*(memory.at(value) for value in values), 0, *region.numbers()]
    kernel = fused.name, fused.source, fused.words
    return _launched(memory, step, cut, kernel, operands, more, pointers)


def _aligned(memory: PlanMemory, part: Step, width: int) -> bool:
    """Return whether so many elements of each operand and result can be moved at once."""
    return not any(
        memory.at(value) % (width * value.type.dtype.itemsize)
        for value in (*part.inputs, *part.outputs)
        if int(value.type.size) > 1
    )


def _launched(
    memory: PlanMemory, step: Step, cut: ScanCut, kernel: tuple[str, str, int],
    operands: list[int], more: list[int], pointers: Any,
) -> tuple[Together, Touched]:
    """Return the launches of a scan's kernels, and the memory that they touch.

    Parameters
    ----------
    memory, step
        Where the step's operands are.
    cut
        Of the scan.
    kernel
        How its kernels' names begin, their source, and how many arguments they have.
    operands
        Addresses of the scan's two operands and its result.
    more
        The arguments of regions.
    pointers
        Which arguments are addresses.
    """
    touched = memory.touched(step)
    if not cut.blocks:
        return Together(()), touched
    words, names = [*operands, 0, *cut.numbers, *more], ["apply"]
    if cut.shares > 1:
        words[3] = memory.more(cut.scratch)
        names.insert(0, "totals")
        touched = Touched(touched.read, (*touched.written, (words[3], words[3] + cut.scratch)))
    name, text, count = kernel
    argument_words = np.array(words, np.int64)
    calls: list[Any] = [
        KernelCall(
            function_of(memory.device, f"{name}_{part}", text, count),
            (cut.blocks * cut.shares, 1, 1), (cut.scan.threads, 1, 1), argument_words, pointers,
            overlaps=True,
        )
        for part in names
    ]  # fmt: skip
    return Together(calls), touched
