"""Weight gradients of convolutions whose image has few channels: where the generated kernel runs.

It is timed beside the library's plan on the arrays of the step itself, once for a device and a
geometry; the faster one is kept on disk. Where there is no library it runs in any case.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....codegen.cuda.few_channels_code import ENDING, LANES, WARPS, WORDS, FewChannels, source
from ....codegen.cuda.prelude import complete
from ....codegen.steps import shape_of
from ....config import config
from ....ir import dims
from ....ir.plan import Step
from ....ops.convolution.primitives import direction_of, puts_outs_first
from ...cache import content_key, default_choices
from ..compiler import compile_source
from ..launching.calls import KernelCall, Together
from ..launching.measure import burst
from ..library.cudnn import LibraryGraph
from ..memory import PlanMemory

__all__ = ["gradient_of", "is_faster", "launched"]

MOST_CHANNELS = 4
MOST_TAPS = 49  # sums that a thread has registers for
BLOCKS_EACH = 2  # of a multiprocessor
_ROUNDS = 5

_loaded: dict[tuple[int, str], tuple[Any, int, int]] = {}  # modules live as long as the process


def gradient_of(memory: PlanMemory, step: Step) -> FewChannels | None:
    """Return the gradient that a step is, where the image has few channels; else None."""
    node = step.node
    attrs = node.attrs
    if direction_of(node) != "weight" or attrs["algorithm"] != "auto" or attrs["groups"] != 1:
        return None
    last = bool(attrs["channels_last"])
    if len(attrs["strides"]) != 2 or set(attrs["dilation"]) != {1}:
        return None
    if last and not puts_outs_first(attrs):
        return None
    dtype = step.inputs[0].type.dtype.name
    if dtype not in ("float32", "float16", "bfloat16"):
        return None
    if {value.type.dtype.name for value in (*step.inputs, *step.outputs)} != {dtype}:
        return None
    image, above, weight_shape = (
        shape_of(value.type) for value in (*step.inputs, step.outputs[0])
    )
    if len(image) != 4 or 0 in (*image, *above, *weight_shape):
        return None
    spatial = slice(1, 3) if last else slice(2, 4)
    channel = -1 if last else 1
    kernel = FewChannels(
        dtype, last, image[channel], above[channel], _pair(image[spatial]),
        _pair(above[spatial]), _pair(weight_shape[spatial]), _pair(attrs["strides"]),
        _pair([dims.evaluate(v, memory.sizes) for v in attrs["low"]]),
    )
    if kernel.channels > MOST_CHANNELS or kernel.taps > MOST_TAPS or min(kernel.low) < 0:
        return None
    return kernel if kernel.fits else None


def _pair(numbers: Any) -> tuple[int, int]:
    first, second = numbers
    return int(first), int(second)


def is_faster(memory: PlanMemory, step: Step, graph: LibraryGraph | None) -> bool:
    """Return whether a generated gradient is faster than the library's plan for the step."""
    kernel = gradient_of(memory, step)
    if kernel is None or graph is None:
        return kernel is not None
    batch = int(step.inputs[0].type.shape[0])
    key = content_key("few channels", memory.device.name, repr(kernel), str(batch))
    choices = default_choices()
    taken = choices.get(key)
    if not isinstance(taken, float):
        if not (config.tuning and graph.microseconds):
            return False
        taken = _microseconds(memory, step)
        choices.set(key, taken)
    return taken < graph.microseconds


def launched(memory: PlanMemory, step: Step) -> Together:
    """Return what launches a gradient: the sums of blocks, and their sum."""
    kernel = gradient_of(memory, step)
    assert kernel is not None
    partial = memory.more(kernel.partial(_blocks(memory, step)))
    return _launches(memory, step, kernel, partial, memory.at(step.outputs[0]))


def _blocks(memory: PlanMemory, step: Step) -> int:
    """Return how many blocks share the images."""
    batch = int(step.inputs[0].type.shape[0])
    return min(batch, BLOCKS_EACH * int(memory.device.multiprocessors))


def _launches(
    memory: PlanMemory, step: Step, kernel: FewChannels, partial: int, target: int
) -> Together:
    """Return both launches, with partial sums and the result at some addresses."""
    _, main, end = _functions(memory.device, kernel)
    batch, blocks = int(step.inputs[0].type.shape[0]), _blocks(memory, step)
    pointers = [*(memory.at(value) for value in step.inputs), partial, target]
    where = range(len(pointers))
    return Together(
        [
            KernelCall(
                main, (blocks, kernel.layers, 1), (LANES * WARPS, 1, 1),
                np.array([*pointers, batch], np.int64), where, overlaps=True,
            ),
            KernelCall(
                end, (kernel.layers * kernel.taps, 1, 1), (LANES * ENDING, 1, 1),
                np.array([*pointers, blocks], np.int64), where, overlaps=True,
            ),
        ]
    )


def _functions(device: Any, kernel: FewChannels) -> tuple[Any, int, int]:
    """Return a module and the addresses of its kernels, compiled and loaded once a process."""
    place = (device.number, kernel.name)
    if place not in _loaded:
        module = device.cupy.cuda.function.Module()
        module.load(compile_source(complete(source(kernel), WORDS), device.architecture))
        functions = (module.get_function(kernel.name + end) for end in ("", "_end"))
        main, end = (int(function.ptr) for function in functions)
        _loaded[place] = module, main, end
    return _loaded[place]


def _microseconds(memory: PlanMemory, step: Step) -> float:
    """Return the least that the launches take; a trial writes no variable."""
    device, kernel = memory.device, gradient_of(memory, step)
    assert kernel is not None
    partial_sums = device.empty(kernel.partial(_blocks(memory, step)))
    result = device.empty(int(step.outputs[0].type.bytes))
    launch = _launches(memory, step, kernel, int(partial_sums.data.ptr), int(result.data.ptr))
    stream = device.stream
    return min(burst(device, partial(launch, stream), stream) for _ in range(_ROUNDS))
