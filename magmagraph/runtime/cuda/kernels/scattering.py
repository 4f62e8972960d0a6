"""Rows combined at computed positions, as generated kernels: their numbers, and their launches."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....codegen.cuda.group_sums_code import GroupSums
from ....codegen.cuda.launch_config import cost_of_grid
from ....codegen.cuda.ordering_code import ITEMS
from ....codegen.cuda.scattering_code import (
    THREADS,
    Scattering,
    scattering_source,
    types_of,
)
from ....codegen.functions.scalar import computing_type
from ....codegen.steps import shape_of
from ....ir.fallback import Refused
from ....ir.plan import WHOLE, Step, Value
from ....ir.ranges import Touched
from ....ops.indexing.updates import UPDATE
from ....ops.products.lowered import SCATTER_ROWS
from ..launching.calls import KernelCall, LibraryCall, Together
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .counting import counting
from .gathering import Layout, function_of, layout_of, widest
from .group_sums import columns_of, group_length, group_sums
from .ordering import sorted_positions

__all__ = ["cost", "piece_of", "scattering"]

MOST = 1 << 31  # positions, and extents, up to which a pair of them has 64 bits
SUM_WORDS = 11
PIECE = 32  # rows that a thread adds up, at least
_PARTS = {"complex64": "float32", "complex128": "float64", "bool": "uint8"}  # what kernels move
_C_SIZES = {"double": 8, "float": 4}


class _Operands(NamedTuple):
    """The operands of a scatter: `base` and `factor` are optional."""

    values: Value
    positions: Value
    base: Value | None
    factor: Value | None
    layout: Layout


def _operands(step: Step) -> _Operands:
    attrs, shape = step.node.attrs, shape_of(step.outputs[0].type)
    base = factor = None
    if step.node.op is UPDATE:
        base, positions, values = step.inputs
    elif step.node.op is SCATTER_ROWS:
        values, positions, *rest = step.inputs
        base = rest[-1]
        factor = rest[0] if len(rest) == 2 else None
    else:
        values, positions = step.inputs
    count = math.prod(shape_of(positions.type))
    return _Operands(values, positions, base, factor, layout_of(shape, attrs.get("axis", 0), count))


def piece_of(count: int) -> int:
    """Return how many positions a thread takes: more of long lists, so that runs end soon.

    Examples
    --------
    >>> piece_of(100), piece_of(1 << 14), piece_of(1 << 20)
    (32, 32, 256)
    """
    size = PIECE
    while (4 * size) ** 2 < count:
        size *= 2
    return size


def scattering(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches rows combined at positions, and the memory that it touches.

    Raises
    ------
    Refused
        Its array expression has to run, as where an axis without elements is an error.
    """
    operands = _operands(step)
    values, positions, base, factor, layout = operands
    if layout.taken and not layout.extent:
        raise Refused("there are indices, but no elements to add to", expected=True)
    if max(layout.extent, layout.taken) >= MOST:
        raise Refused(f"an axis, or the positions, are as long as {MOST}, or longer")
    dtype = step.outputs[0].type.dtype
    how = step.node.attrs["how"] if step.node.op is UPDATE else "add"
    touched = memory.touched(step)
    if how == "add" and factor is None and dtype.kind in "iu" and dtype.itemsize >= 4:
        begun = _begun(memory, step, base)
        addresses = [memory.at(value) for value in (values, positions, step.outputs[0])]
        wraps = step.node.attrs["mode"] == "wrap"
        counted = counting(memory.device, addresses, dtype, positions.type.dtype, layout, wraps)
        return Together([call for call in (begun, counted) if call is not None]), touched
    name = _PARTS.get(dtype.name, dtype.name)
    parts_each = 2 if dtype.kind == "c" else 1
    inside = layout.inside * parts_each
    _, real = types_of(name)
    itemsize = dtype.itemsize // parts_each
    width = widest(inside, max(itemsize, _C_SIZES.get(real, itemsize)))
    source, target = memory.at(values), memory.at(step.outputs[0])
    if any(at % (width * itemsize) for at in (source, target, memory.at(base))):
        raise Refused("an operand is not aligned to whole vectors")
    if parts_each == 2 and (factor is not None or how == "multiply"):
        raise Refused("a complex factor mixes the two parts")
    length = group_length(layout, memory.device.multiprocessors)
    if length and how == "add" and "float" in name:
        sums = GroupSums(
            name, computing_type(positions.type.dtype), step.node.attrs["mode"] == "wrap", length,
            columns_of(inside // width), width, base is not None, factor is not None,
        )  # fmt: skip
        operands_at = [source, memory.at(positions), target, memory.at(factor), memory.at(base)]
        sizes = (layout.taken, layout.extent, inside // width)
        added, places = group_sums(memory, sums, operands_at, sizes, width * _C_SIZES[real])
        return added, Touched(touched.read, (*touched.written, *places))
    begun = _begun(memory, step, base)
    calls: list[Any] = [] if begun is None else [begun]
    columns = layout.before * (inside // width)
    if layout.taken and columns:
        wraps = step.node.attrs["mode"] == "wrap"
        sorted_at, places, sorts = sorted_positions(memory, positions, layout.extent, wraps)
        adds = base is not None and how != "set"
        kernel = Scattering(name, width, adds, factor is not None, how)
        size = piece_of(layout.taken)
        pieces = -(-layout.taken // size)
        count = 2 * pieces * columns * width * _C_SIZES.get(real, itemsize)
        parts = memory.more(count)
        words = np.array(
            [
                sorted_at, source, target, parts, memory.at(factor), layout.taken, size, pieces,
                layout.extent, inside // width, columns,
            ],
            np.int64,
        )
        grid = (-(-pieces * columns // THREADS), 1, 1)
        text = scattering_source(kernel)
        calls += sorts
        for part in ("pieces", "ends") if pieces > 1 else ("pieces",):
            function = function_of(memory.device, f"{kernel.name}_{part}", text, SUM_WORDS)
            calls.append(
                KernelCall(function, grid, (THREADS, 1, 1), words, range(5), overlaps=True)
            )
        places = (*places, (parts, parts + count))
        touched = Touched(touched.read, (*touched.written, *places))
    return Together(calls), touched


def cost(step: Step, multiprocessors: int) -> float:
    """Return about how long the launches of a step take that combines rows at positions."""
    _, _, base, _, layout = _operands(step)
    dtype, count = step.outputs[0].type.dtype, layout.taken
    parts_each = 2 if dtype.kind == "c" else 1
    if base is None or base.slot != step.outputs[0].slot or not count or not layout.before:
        return WHOLE  # the result is filled first, by a call of a library
    _, real = types_of(_PARTS.get(dtype.name, dtype.name))
    itemsize = dtype.itemsize // parts_each
    inside = layout.inside * parts_each
    width = widest(inside, max(itemsize, _C_SIZES.get(real, itemsize)))
    pieces = -(-count // piece_of(count))
    grids = [-(-count // THREADS)]  # of the sort, then of each merge
    length = THREADS * ITEMS
    while length < count:
        grids.append(-(-count // THREADS))
        length *= 2
    adding = -(-pieces * layout.before * (inside // width) // THREADS)
    grids += [adding] * (2 if pieces > 1 else 1)
    block = (THREADS, 1, 1)
    work = sum(cost_of_grid((blocks, 1, 1), block, multiprocessors) - 1 for blocks in grids)
    return min(1 + work, WHOLE)


def _begun(memory: PlanMemory, step: Step, base: Value | None) -> LibraryCall | None:
    """Return the launch that fills the result with zeros, or with the base, if any."""
    runtime = memory.device.cupy.cuda.runtime
    result = step.outputs[0]
    count, place = int(result.type.bytes), memory.at(result)
    if not count or (base is not None and memory.at(base) == place):
        return None
    if base is None:

        def clear(stream: Any, out: int) -> None:
            runtime.memsetAsync(out, 0, count, stream.ptr)

        return LibraryCall(clear, [place])

    def copy(stream: Any, out: int, start: int) -> None:
        runtime.memcpyAsync(out, start, count, DEVICE_TO_DEVICE, stream.ptr)

    return LibraryCall(copy, [place, memory.at(base)])
