"""Pooling as generated kernels: their numbers, and their launch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dims
from ...ops.spatial.pooling_records import gathered, reads_windows
from ...plan import Step
from ..numpy.cells import shape_of
from .calls import driver
from .compiler import compile_source
from .memory import PlanMemory
from .pooling_code import FIRST, Pooling, numbers, source, widest
from .prelude import complete

__all__ = ["pooling"]

THREADS = 256
WORDS = FIRST + 18
NARROW = 1 << 30  # elements up to which positions have 32 bits
BLOCKS_EACH = 16  # of a multiprocessor: more take turns

_loaded: dict[tuple[int, str], Any] = {}  # modules live as long as the process


def pooling(memory: PlanMemory, step: Step) -> Callable[[Any], None] | None:
    """Return what launches pooling, or None where nothing is to be computed."""
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
    kernel = Pooling(
        gathered(node), dtype.name, widest(dtype, channels), spreads,
        max(math.prod(shape), math.prod(made)) > NARROW,
    )
    addresses = [memory.at(value) for value in step.inputs]
    words = np.array(
        [
            *addresses, *[0] * (2 - len(addresses)), memory.at(step.outputs[0]), batch, channels,
            *numbers(inputs[spatial], windows[spatial], {**attrs, "low": low}),
        ],
        np.int64,
    )
    pointer = (ctypes.c_void_p * 1)(words.ctypes.data)
    memory.keep += [words, pointer]
    function = _function(memory.device, kernel)
    blocks = -(-math.prod(made) // (kernel.width * THREADS))
    blocks = min(blocks, BLOCKS_EACH * memory.device.multiprocessors)
    launch, address = driver().launchKernel, ctypes.addressof(pointer)

    def run(stream: Any) -> None:
        launch(function, blocks, 1, 1, THREADS, 1, 1, 0, stream.ptr, address, 0)

    return run


def _function(device: Any, kernel: Pooling) -> int:
    """Return the address of a kernel, compiled and loaded once a process."""
    place = (device.number, kernel.name)
    if place not in _loaded:
        module = device.cupy.cuda.function.Module()
        module.load(compile_source(complete(source(kernel), WORDS), device.architecture))
        _loaded[place] = (module, module.get_function(kernel.name))
    return int(_loaded[place][1].ptr)
