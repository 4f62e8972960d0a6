"""Sorts along an axis as generated kernels: their numbers, and their launches."""

from __future__ import annotations

import math

import numpy as np

from ....codegen.cuda.ordering_code import (
    ITEMS,
    SEARCH_WORDS,
    WORDS,
    Ordering,
    Searching,
    order_source,
    record_bytes,
    search_source,
)
from ....codegen.steps import shape_of
from ....ir.fallback import Refused
from ....ir.plan import Step
from ....ops.indexing.sorting import ARGSORT
from ..launching.calls import KernelCall, Together
from ..launching.streams import Touched
from ..memory import PlanMemory
from .gathering import blocks_for, function_of, layout_of

__all__ = ["ordering", "ordering_of", "searching"]

THREADS = 128  # of a block, at least; lines that are longer have more
MOST = 1 << 32  # elements of a line: their positions have 32 bits
_PARTS = {"bool": "uint8"}  # what kernels move
_LARGEST = {4: 512, 8: 512, 16: 256}  # threads whose records shared memory holds, by their bytes


def ordering_of(dtype: str, positions: bool, count: int) -> Ordering:
    """Return the kernels that sort lines of so many elements.

    Examples
    --------
    >>> ordering_of("float32", False, 300)[2:], ordering_of("float64", True, 5000)[2:]
    ((128, 64, False), (256, 256, True))
    """
    most = _LARGEST[record_bytes(dtype, positions)]
    lanes = min(most, 1 << max(0, -(-count // ITEMS) - 1).bit_length())
    return Ordering(dtype, positions, max(THREADS, lanes), lanes, count > most * ITEMS)


def ordering(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches a sort, and the memory that it touches.

    Raises
    ------
    Refused
        An axis is so long that positions take more than 32 bits.
    """
    x, out = step.inputs[0], step.outputs[0]
    shape, axis = shape_of(x.type), step.node.attrs["axis"]
    outer, _, count, inner = layout_of(shape, axis, shape[axis])
    touched = memory.touched(step)
    lines = outer * inner
    if not lines * count:
        return Together(()), touched
    if count >= MOST:
        raise Refused(f"an axis of {count} elements; the kernels take less than {MOST}")
    device, name = memory.device, _PARTS.get(x.type.dtype.name, x.type.dtype.name)
    kernel = ordering_of(name, step.node.op is ARGSORT, count)
    text = order_source(kernel)
    held = kernel.threads * ITEMS

    def call(part: str, source: int, target: int, blocks: int, run: int = 0) -> KernelCall:
        words = np.array([source, target, lines, count, inner, tiles, run], np.int64)
        function = function_of(device, f"{kernel.name}_{part}", text, WORDS)
        threads = (kernel.threads, 1, 1)
        return KernelCall(function, (blocks, 1, 1), threads, words, range(2), overlaps=True)

    source, target = memory.at(x), memory.at(out)
    tiles = 1
    if not kernel.tiled:
        blocks = -(-lines // (kernel.threads // kernel.lanes))
        return Together([call("whole", source, target, blocks)]), touched
    tiles = -(-count // held)
    size = lines * count * record_bytes(name, kernel.positions)
    buffers = [memory.more(size) for _ in range(2 if tiles > 2 else 1)]
    calls = [call("tile", source, buffers[0], lines * tiles)]
    run, turn = held, 0
    while 2 * run < count:
        calls.append(call("merge", buffers[turn], buffers[1 - turn], lines * tiles, run))
        run, turn = 2 * run, 1 - turn
    calls.append(call("last", buffers[turn], target, lines * tiles, run))
    places = tuple((at, at + size) for at in buffers)
    return Together(calls), Touched(touched.read, (*touched.written, *places))


def searching(memory: PlanMemory, step: Step) -> KernelCall | Together:
    """Return what launches a search for values in a sorted line."""
    line, values = step.inputs
    total, dtype = math.prod(shape_of(values.type)), values.type.dtype.name
    if not total:
        return Together(())
    kernel = Searching(_PARTS.get(dtype, dtype), step.node.attrs["side"] == "right")
    device = memory.device
    addresses = [memory.at(value) for value in (line, values, step.outputs[0])]
    words = np.array([*addresses, shape_of(line.type)[0], total], np.int64)
    function = function_of(device, kernel.name, search_source(kernel), SEARCH_WORDS)
    blocks = blocks_for(total, 256, device.multiprocessors)
    return KernelCall(function, (blocks, 1, 1), (256, 1, 1), words, range(3), overlaps=True)
