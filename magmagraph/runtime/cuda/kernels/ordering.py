"""Sorts along an axis as generated kernels: their numbers, and their launches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....codegen.cuda.ordering_code import (
    ITEMS,
    LARGEST,
    SEARCH_WORDS,
    SELECT_WORDS,
    SELECTING,
    WORDS,
    Ordering,
    Searching,
    Selecting,
    Sorting,
    order_source,
    record_bytes,
    search_source,
    select_source,
    selects,
    sorting_source,
)
from ....codegen.functions.scalar import computing_type
from ....codegen.steps import shape_of
from ....ir.fallback import Refused
from ....ir.plan import Step, Value
from ....ir.ranges import Range, Touched
from ....ops.indexing.sorting import SORT
from ..launching.calls import KernelCall, Together
from ..memory import PlanMemory
from .gathering import blocks_for, function_of, layout_of

__all__ = ["ordering", "ordering_of", "searching", "sorted_positions"]

THREADS = 128  # of a block, at least; lines that are longer have more
FEW = 1 << 16  # positions
MOST = 1 << 32  # elements of a line: their positions have 32 bits
PART = 1 << 14  # elements of a part of a line, at least
_PARTS = {"bool": "uint8"}  # what kernels move


def _block(count: int, most: int) -> tuple[int, int, bool]:
    """Return threads of a block, of a line, and whether lines are longer than `most` hold."""
    lanes = min(most, 1 << max(0, -(-count // ITEMS) - 1).bit_length())
    return max(THREADS, lanes), lanes, count > most * ITEMS


def ordering_of(
    dtype: str, positions: bool, count: int, largest: bool = False, backward: bool = False
) -> Ordering:
    """Return the kernels that sort lines of so many elements.

    Examples
    --------
    >>> ordering_of("float32", False, 300)[2:5], ordering_of("float64", True, 5000)[2:5]
    ((128, 64, False), (256, 256, True))
    """
    block = _block(count, LARGEST[record_bytes(dtype, positions)])
    return Ordering(dtype, positions, *block, largest, backward)


def _launches(
    memory: PlanMemory, kernel: Ordering | Sorting, text: str, size: int, addresses: Sequence[int],
    layout: tuple[int, int, int], extent: int = 0, kept: int | None = None,
) -> tuple[list[KernelCall], tuple[Range, ...]]:  # fmt: skip
    """Return what launches a sort, and the memory that it takes in addition.

    Parameters
    ----------
    memory
        Of the plan.
    kernel, text
        The kernels, and their source.
    size
        Bytes of a record.
    addresses
        Of what is sorted, and of the result.
    layout
        How many lines there are, how long they are, and how many stand side by side.
    extent
        Of the axis that sorted positions are of.
    kept
        How many of a line the result has; None: all of them.
    """
    lines, count, _ = layout
    kept = count if kept is None else kept
    tile_items = kernel.threads * ITEMS
    tiles = -(-count // tile_items) if kernel.tiled else 1

    def call(part: str, source: int, target: int, blocks: int, more: int) -> KernelCall:
        words = np.array([source, target, *layout, tiles, more, kept], np.int64)
        function = function_of(memory.device, f"{kernel.name}_{part}", text, WORDS)
        threads = (kernel.threads, 1, 1)
        return KernelCall(function, (blocks, 1, 1), threads, words, range(2), overlaps=True)

    source, target = addresses
    if not kernel.tiled:
        blocks = -(-lines // (kernel.threads // kernel.lanes))
        return [call("whole", source, target, blocks, extent)], ()
    bytes_ = lines * count * size
    buffers = [memory.more(bytes_) for _ in range(2 if tiles > 2 else 1)]
    calls = [call("tile", source, buffers[0], lines * tiles, extent)]
    run, turn = tile_items, 0
    while 2 * run < count:
        calls.append(call("merge", buffers[turn], buffers[1 - turn], lines * tiles, run))
        run, turn = 2 * run, 1 - turn
    calls.append(call("last", buffers[turn], target, lines * tiles, run))
    return calls, tuple((at, at + bytes_) for at in buffers)


def ordering(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches a sort, or finds its first positions, and the memory that it touches.

    Raises
    ------
    Refused
        An axis is so long that positions take more than 32 bits.
    """
    x, out = step.inputs[0], step.outputs[0]
    shape, axis = shape_of(x.type), step.node.attrs["axis"]
    outer, _, count, inner = layout_of(shape, axis, shape[axis])
    touched, kept = memory.touched(step), shape_of(out.type)[axis]
    if not outer * kept * inner:
        return Together(()), touched
    if count >= MOST:
        raise Refused(f"an axis of {count} elements; the kernels take less than {MOST}")
    name = _PARTS.get(x.type.dtype.name, x.type.dtype.name)
    addresses = memory.at(x), memory.at(out)
    largest, backward = (bool(step.node.attrs.get(key)) for key in ("largest", "backward"))
    kernel = ordering_of(name, step.node.op is not SORT, count, largest, backward)
    if kernel.positions and inner == 1 and selects(name, count, kept):
        calls, places = _selections(memory, kernel, addresses, (outer, count, kept))
    else:
        calls, places = _launches(
            memory, kernel, order_source(kernel), record_bytes(name, kernel.positions),
            addresses, (outer * inner, count, inner), kept=kept,
        )  # fmt: skip
    return Together(calls), Touched(touched.read, (*touched.written, *places))


def _selections(
    memory: PlanMemory, order: Ordering, addresses: tuple[int, int],
    layout: tuple[int, int, int],
) -> tuple[list[KernelCall], tuple[Range, ...]]:  # fmt: skip
    """Return what launches a selection, and the memory that it takes in addition.

    Parameters
    ----------
    memory
        Of the plan.
    order
        What would sort the lines.
    addresses
        Of the elements, and of the positions.
    layout
        How many lines there are, how long they are, and how many positions each has.
    """
    lines, count, kept = layout
    source, target = addresses
    size, parts = record_bytes(order.dtype, True), 1
    threads = LARGEST[size]
    if lines < memory.device.multiprocessors:  # as many blocks as run at once, not more
        wanted = SELECTING // threads * memory.device.multiprocessors // lines
        parts = max(1, min(wanted, count // max(PART, 8 * kept)))
    each = -(-count // parts)
    parts = -(-count // each)
    kernel = Selecting(order.dtype, order.largest, order.backward, threads, parts > 1)
    text = select_source(kernel)

    def call(part: str, source: int, target: int, count: int, parts: int, each: int) -> KernelCall:
        words = np.array([source, target, count, parts, each, kept, layout[1]], np.int64)
        function = function_of(memory.device, f"{kernel.name}_{part}", text, SELECT_WORDS)
        grid, threads = (lines * parts, 1, 1), (kernel.threads, 1, 1)
        return KernelCall(function, grid, threads, words, range(2), overlaps=True)

    if parts == 1:
        return [call("whole", source, target, count, 1, count)], ()
    bytes_, firsts = lines * parts * kept * size, parts * kept
    buffer = memory.more(bytes_)
    calls = [
        call("part", source, buffer, count, parts, each),
        call("last", buffer, target, firsts, 1, firsts),
    ]
    return calls, ((buffer, buffer + bytes_),)


def sorted_positions(
    memory: PlanMemory, positions: Value, extent: int, wraps: bool
) -> tuple[int, tuple[Range, ...], list[KernelCall]]:
    """Return where positions are sorted, each with its number; the memory, and the launches.

    Parameters
    ----------
    memory
        Of the plan.
    positions
        Of any shape; they are one line.
    extent
        Of their axis.
    wraps
        Whether those outside are taken modulo the extent.
    """
    count = math.prod(shape_of(positions.type))
    # Of few positions each block takes less, so that there are more blocks.
    block = _block(count, LARGEST[8] if count > FEW else THREADS)
    kernel = Sorting(computing_type(positions.type.dtype), wraps, *block)
    target = memory.more(8 * count)
    calls, places = _launches(
        memory, kernel, sorting_source(kernel), 8, (memory.at(positions), target), (1, count, 1),
        extent,
    )  # fmt: skip
    return target, (*places, (target, target + 8 * count)), calls


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
