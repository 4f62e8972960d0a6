"""Scans as generated kernels: their numbers, and their launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....codegen.cuda.scanning_code import LINE_THREADS, WORDS, Scan, scan_source, state_bytes
from ....codegen.steps import shape_of
from ....ir.op import Op
from ....ir.plan import Step
from ....ir.ranges import Touched
from ....ops.reduction.cumulative import CUMLOGSUMEXP, CUMMAX, CUMMIN, CUMPROD, CUMSUM
from ....ops.reduction.recurrence import LINEAR_RECURRENCE
from ..launching.calls import KernelCall, Together
from ..memory import PlanMemory
from .gathering import function_of, layout_of, widest

__all__ = ["HOW", "scan_of", "scanning", "shares_of"]

HOW: dict[Op, str] = {
    CUMSUM: "add",
    CUMPROD: "multiply",
    CUMMAX: "max",
    CUMMIN: "min",
    CUMLOGSUMEXP: "logsumexp",
    LINEAR_RECURRENCE: "recurrence",
}
FEW = 32  # columns up to which a tile of all of them goes through shared memory
LEAST = 2  # tiles of a line's part, at least
EACH = 4  # parts of lines for each multiprocessor
_PARTS = {"complex64": "float32", "complex128": "float64", "bool": "uint8"}  # what kernels move


def _power(count: int) -> int:
    """Return the least power of two of at least `count`."""
    return 1 << max(0, count - 1).bit_length()


def scan_of(
    dtype: str, how: str, reverse: bool, layout: tuple[int, int, int], itemsize: int,
    multiprocessors: int,
) -> Scan:  # fmt: skip
    """Return the kernels that scan the middle axis of a layout.

    Parameters
    ----------
    dtype, how, reverse
        See `Scan`.
    layout
        Extents of the axes before the scanned one (as one), of itself, and of those behind it.
    itemsize
        Bytes of an element.
    multiprocessors
        Of the device.

    Examples
    --------
    >>> scan_of("float32", "add", False, (1000, 300, 1), 4, 132)[3:]
    (False, 256, 32, 16, 4)
    >>> scan_of("float32", "add", False, (1, 4096, 4096), 4, 132)[3:]
    (True, 1024, 32, 8, 1)
    """
    outer, count, inner = layout
    wide = itemsize == 8 or how in ("logsumexp", "recurrence")
    if inner <= FEW:
        items = 8 if wide else 16
        # The largest power of two that leaves threads for all columns.
        most = 1 << (LINE_THREADS // inner).bit_length() - 1
        segments = min(_power(-(-count // items)), most)
        width = widest(count * inner, itemsize)
        return Scan(dtype, how, reverse, False, LINE_THREADS, segments, items, width)
    items = 4 if wide else 8
    segments = min(8, _power(-(-count // items)))
    threads = LINE_THREADS
    if segments == 8 and outer * -(-inner // 32) < 2 * multiprocessors:
        segments = min(32, _power(-(-count // items)))
        threads = 32 * segments
    return Scan(dtype, how, reverse, True, threads, segments, items, 1)


def shares_of(blocks: int, tiles: int, multiprocessors: int) -> int:
    """Return into how many parts a line is cut, where so many blocks take whole lines.

    Parts are read twice, so lines are whole where their blocks fill the device.

    Examples
    --------
    >>> shares_of(1, 4096, 132), shares_of(1, 3, 132), shares_of(128, 32, 132)
    (528, 1, 1)
    """
    if 4 * blocks >= 3 * multiprocessors:
        return 1
    return max(1, min(tiles // LEAST, EACH * multiprocessors // blocks))


def scanning(memory: PlanMemory, step: Step) -> tuple[Together, Touched]:
    """Return what launches a scan, and the memory that it touches."""
    out, attrs = step.outputs[0], step.node.attrs
    shape, axis = shape_of(out.type), attrs["axis"]
    outer, _, count, inner = layout_of(shape, axis, shape[axis])
    dtype, parts = out.type.dtype, 2 if out.type.dtype.kind == "c" else 1
    inner *= parts  # the sums of both parts of a complex number are sums of their own
    itemsize = dtype.itemsize // parts
    touched = memory.touched(step)
    if not outer * count * inner:
        return Together(()), touched
    device = memory.device
    layout = (outer, count, inner)
    name = _PARTS.get(dtype.name, dtype.name)
    scan = scan_of(
        name, HOW[step.node.op], attrs["reverse"], layout, itemsize, device.multiprocessors
    )
    operands = [memory.at(value) for value in (step.inputs[0], step.inputs[-1], out)]
    while any(address % (scan.width * itemsize) for address in operands):
        scan = scan._replace(width=scan.width // 2)
    rows = scan.segments * scan.items
    tiles = -(-count // rows)
    slabs = 1
    if scan.columns:
        columns = scan.threads // scan.segments
        blocks = outer * -(-inner // columns)
    else:
        if tiles == 1:
            slabs = scan.threads // (scan.segments * inner)
        blocks = -(-outer // slabs)
    share = -(-tiles // shares_of(blocks, tiles, device.multiprocessors))
    shares = -(-tiles // share)
    words: list[int] = [*operands, 0, *layout, shares, share * rows, slabs]
    names = ["apply"]
    if shares > 1:
        size = outer * shares * inner * state_bytes(scan)
        words[3] = memory.more(size)
        names.insert(0, "totals")
        touched = Touched(touched.read, (*touched.written, (words[3], words[3] + size)))
    text = scan_source(scan)
    argument_words = np.array(words, np.int64)
    calls: list[Any] = [
        KernelCall(
            function_of(device, f"{scan.name}_{part}", text, WORDS), (blocks * shares, 1, 1),
            (scan.threads, 1, 1), argument_words, range(4), overlaps=True,
        )
        for part in names
    ]  # fmt: skip
    return Together(calls), touched
