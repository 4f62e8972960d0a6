"""Pooling as generated kernels: their numbers, and their launch.

The largest elements of windows and their places are read of one array, by two records: where the
steps of both can run at once, one kernel writes both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....codegen.cuda.launch_config import ALONE
from ....codegen.cuda.pooling_code import WORDS, Pooling, axes_of, kernel_for, source
from ....codegen.cuda.prelude import complete
from ....codegen.steps import shape_of
from ....ir import dims
from ....ir.plan import Step
from ....ops.spatial.pooling_records import RECORDS, gathered, reads_windows
from ..compiler import compile_source
from ..launching.calls import KernelCall
from ..launching.streams import Range, Touched
from ..memory import PlanMemory

__all__ = ["Pair", "pairs", "pooling"]

THREADS = 256
NARROW = 1 << 30  # elements up to which positions have 32 bits
_TOGETHER = {"largest", "place"}  # what one kernel gathers of an array

_loaded: dict[tuple[int, str], Any] = {}  # modules live as long as the process


@dataclass(frozen=True, eq=False)
class Pair:
    """Two steps that pool the same array, computed at the first one's position.

    Attributes
    ----------
    first, second
        The steps.
    """

    first: Step
    second: Step

    def touched(self, memory: PlanMemory) -> Touched:
        """Return the memory of both."""
        one, other = memory.touched(self.first), memory.touched(self.second)
        return Touched(one.read, (*one.written, *other.written))


def pairs(memory: PlanMemory, steps: Sequence[Step]) -> dict[int, Pair]:
    """Return the steps that are pooled together, by the ids of both."""
    found: dict[int, Pair] = {}
    for i, step in enumerate(steps):
        if step.node.op not in RECORDS or id(step) in found:
            continue
        for j in range(i + 1, len(steps)):
            other = steps[j]
            if other.node.op in RECORDS and _alike(step, other):
                if not _in_between(memory, steps[i:j], other):
                    found[id(step)] = found[id(other)] = Pair(step, other)
                break
    return found


def _alike(step: Step, other: Step) -> bool:
    """Return whether two steps gather the largest elements and their places of one array."""
    gathers = {gathered(step.node), gathered(other.node)}
    if gathers != _TOGETHER or step.inputs != other.inputs:
        return False
    return bool(step.node.attrs == other.node.attrs)


def _in_between(memory: PlanMemory, steps: Sequence[Step], moved: Step) -> bool:
    """Return whether a step cannot move before others: it writes memory that they use."""
    read, written = memory.ranges(moved.inputs), memory.ranges(moved.outputs)
    return any(
        _meet(written, (*memory.touched(step).read, *memory.touched(step).written))
        or _meet(read, memory.touched(step).written)
        for step in steps
    )


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(start < stop and begin < end for start, end in some for begin, stop in others)


def pooling(memory: PlanMemory, step: Step, beside: Step | None = None) -> KernelCall | None:
    """Return what launches pooling, or None where nothing is to be computed.

    Parameters
    ----------
    memory, step
        The plan's memory, and its step.
    beside
        Another step that the kernel computes, too.
    """
    node, sizes = step.node, memory.sizes
    attrs = node.attrs
    last, count = attrs["channels_last"], len(attrs["window"])
    shape, made = shape_of(step.inputs[0].type), shape_of(step.outputs[0].type)
    if not (math.prod(shape) and math.prod(made)):
        return None
    spreads = reads_windows(node)  # the operand has an element for every window
    inputs, windows = (made, shape) if spreads else (shape, made)
    channels = shape[-1] if last else 1
    spatial = slice(-count - 1, -1) if last else slice(len(shape) - count, None)
    low = tuple(dims.evaluate(v, sizes) for v in attrs["low"])
    batch = math.prod(shape) // (channels * math.prod(shape[spatial]))
    dtype = next(v.type.dtype for v in (*step.inputs, *step.outputs) if v.type.dtype.kind != "i")
    kernel = kernel_for(
        "both" if beside is not None else gathered(node), dtype, spreads, batch, channels,
        axes_of(inputs[spatial], windows[spatial], {**attrs, "low": low}), NARROW,
    )
    read = [memory.at(value) for value in step.inputs]
    written = [memory.at(step.outputs[0])]
    if beside is not None:
        written.append(memory.at(beside.outputs[0]))
        if gathered(node) == "place":
            written.reverse()
    addresses = [*read, *[0] * (2 - len(read)), *written, *[0] * (2 - len(written))]
    most = ALONE * memory.device.multiprocessors
    blocks = min(-(-kernel.threads(batch) // THREADS), most)
    return KernelCall(
        _function(memory.device, kernel), (blocks, 1, 1), (THREADS, 1, 1),
        np.array([*addresses, batch], np.int64), range(len(addresses)), overlaps=True,
    )


def _function(device: Any, kernel: Pooling) -> int:
    """Return the address of a kernel, compiled and loaded once a process."""
    place = (device.number, kernel.name)
    if place not in _loaded:
        module = device.cupy.cuda.function.Module()
        module.load(compile_source(complete(source(kernel), WORDS), device.architecture))
        _loaded[place] = (module, module.get_function(kernel.name))
    return int(_loaded[place][1].ptr)
