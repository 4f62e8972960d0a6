"""Pooling as generated kernels: their numbers, and their launch.

The largest elements of windows and their places are read of one array, by two records: where the
steps of both can run at once, one kernel writes both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....codegen.cuda.launch_config import ALONE, cost_of_grid
from ....codegen.cuda.pooling_code import WORDS, Pooling, axes_of, kernel_for, source
from ....codegen.cuda.prelude import complete
from ....codegen.steps import shape_of
from ....ir import dims
from ....ir.plan import WHOLE, Step
from ....ops.spatial.pooling_records import gathered, reads_windows
from ..compiler import compile_source
from ..launching.calls import KernelCall
from ..memory import PlanMemory

__all__ = ["cost", "pooling"]

THREADS = 256
NARROW = 1 << 30  # elements up to which positions have 32 bits

_loaded: dict[tuple[int, str], Any] = {}  # modules live as long as the process


def pooling(memory: PlanMemory, step: Step, beside: Step | None = None) -> KernelCall | None:
    """Return what launches pooling, or None where nothing is to be computed.

    Parameters
    ----------
    memory, step
        The plan's memory, and its step.
    beside
        Another step that the kernel computes, too.
    """
    kernel, batch = _kernel(step, memory.sizes, beside is not None)
    if kernel is None:
        return None
    node = step.node
    read = [memory.at(value) for value in step.inputs]
    written = [memory.at(step.outputs[0])]
    if beside is not None:
        written.append(memory.at(beside.outputs[0]))
        if gathered(node) == "place":
            written.reverse()
    addresses = [*read, *[0] * (2 - len(read)), *written, *[0] * (2 - len(written))]
    blocks = _blocks(kernel, batch, memory.device.multiprocessors)
    return KernelCall(
        _function(memory.device, kernel), (blocks, 1, 1), (THREADS, 1, 1),
        np.array([*addresses, batch], np.int64), range(len(addresses)), overlaps=True,
    )


def cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    """Return about how long a launch that pools takes."""
    kernel, batch = _kernel(step, sizes, len(step.parts) > 1)
    if kernel is None:
        return WHOLE
    blocks = _blocks(kernel, batch, multiprocessors)
    return cost_of_grid((blocks, 1, 1), (THREADS, 1, 1), multiprocessors)


def _blocks(kernel: Pooling, batch: int, multiprocessors: int) -> int:
    return min(-(-kernel.threads(batch) // THREADS), ALONE * multiprocessors)


def _kernel(
    step: Step, sizes: Mapping[str, int], paired: bool
) -> tuple[Pooling | None, int]:
    """Return the kernel of a step, and its batch; None where nothing is to be computed."""
    node = step.node
    attrs = node.attrs
    last, count = attrs["channels_last"], len(attrs["window"])
    shape, result_shape = shape_of(step.inputs[0].type), shape_of(step.outputs[0].type)
    if not (math.prod(shape) and math.prod(result_shape)):
        return None, 0
    spreads = reads_windows(node)  # the operand has an element for every window
    inputs, windows = (result_shape, shape) if spreads else (shape, result_shape)
    channels = shape[-1] if last else 1
    spatial = slice(-count - 1, -1) if last else slice(len(shape) - count, None)
    low = tuple(dims.evaluate(v, sizes) for v in attrs["low"])
    batch = math.prod(shape) // (channels * math.prod(shape[spatial]))
    dtype = next(v.type.dtype for v in (*step.inputs, *step.outputs) if v.type.dtype.kind != "i")
    kernel = kernel_for(
        "both" if paired else gathered(node), dtype, spreads, batch, channels,
        axes_of(inputs[spatial], windows[spatial], {**attrs, "low": low}), NARROW,
    )
    return kernel, batch


def _function(device: Any, kernel: Pooling) -> int:
    """Return the address of a kernel, compiled and loaded once a process."""
    place = (device.number, kernel.name)
    if place not in _loaded:
        module = device.cupy.cuda.function.Module()
        module.load(compile_source(complete(source(kernel), WORDS), device.architecture))
        _loaded[place] = (module, module.get_function(kernel.name))
    return int(_loaded[place][1].ptr)
