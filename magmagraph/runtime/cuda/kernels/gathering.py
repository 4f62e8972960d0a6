"""Reading at computed positions, as a generated kernel: its numbers, and its launch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....codegen.cuda.gathering_code import WIDEST, Gathering, gathering_source, widest
from ....codegen.cuda.launch_config import cost_of_grid
from ....codegen.cuda.prelude import complete
from ....codegen.functions.scalar import computing_type
from ....codegen.steps import shape_of
from ....ir.fallback import Refused
from ....ir.plan import WHOLE, Step
from ..compiler import compile_source
from ..launching.calls import KernelCall, Together
from ..memory import PlanMemory

__all__ = ["Layout", "blocks_for", "cost", "function_of", "gathering", "layout_of", "widest"]

THREADS = 256
WORDS = 7
NARROW = 1 << 30  # units up to which their numbers have 32 bits
BLOCKS_EACH = 16  # of a multiprocessor: more take turns

_loaded: dict[tuple[int, str], Any] = {}  # modules live as long as the process


class Layout(NamedTuple):
    """What positions along one axis mean for memory.

    Attributes
    ----------
    before
        Elements of the axes before it.
    extent
        Its own.
    taken
        How many positions there are.
    inside
        Elements of the axes behind it.
    """

    before: int
    extent: int
    taken: int
    inside: int


def layout_of(shape: tuple[int, ...], axis: int, taken: int) -> Layout:
    """Return the layout of an array with the axis.

    Examples
    --------
    >>> layout_of((2, 5, 3, 4), 1, 7)
    Layout(before=2, extent=5, taken=7, inside=12)
    """
    return Layout(math.prod(shape[:axis]), shape[axis], taken, math.prod(shape[axis + 1 :]))


def blocks_for(threads: int, each: int, multiprocessors: int) -> int:
    """Return how many blocks of `each` threads share what so many threads do."""
    return max(1, min(-(-threads // each), BLOCKS_EACH * multiprocessors))


def gathering(memory: PlanMemory, step: Step) -> KernelCall | Together:
    """Return what launches a reading at positions.

    Raises
    ------
    Refused
        Its array expression has to run, as where an axis without elements is an error.
    """
    x, positions = step.inputs
    result = step.outputs[0]
    attrs = step.node.attrs
    shape, count = shape_of(x.type), math.prod(shape_of(positions.type))
    layout = layout_of(shape, attrs["axis"], count)
    itemsize = x.type.dtype.itemsize
    total = layout.before * count * layout.inside
    if count and not layout.extent:
        raise Refused("there are indices, but no elements to read", expected=True)
    if not total:
        return Together(())
    width = widest(layout.inside, itemsize)
    addresses = [memory.at(value) for value in (x, positions, result)]
    if itemsize > WIDEST:
        raise Refused(f"there is no kernel of it for {x.type.dtype.name}")
    if any(address % (width * itemsize) for address in addresses[::2]):
        raise Refused("an operand is not aligned to whole vectors")
    read = math.prod(shape) // width
    kernel = Gathering(
        width * itemsize, computing_type(positions.type.dtype), attrs["mode"] == "wrap",
        max(total // width, read) > NARROW,
    )
    device = memory.device
    function = function_of(device, kernel.name, gathering_source(kernel), WORDS)
    words = [*addresses, total // width, count, layout.extent, layout.inside // width]
    blocks = blocks_for(total // width, THREADS, device.multiprocessors)
    return KernelCall(
        function, (blocks, 1, 1), (THREADS, 1, 1), np.array(words, np.int64), range(3),
        overlaps=True,
    )


def cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    """Return about how long a launch that reads at positions takes."""
    x, positions = step.inputs
    count = math.prod(shape_of(positions.type))
    layout = layout_of(shape_of(x.type), step.node.attrs["axis"], count)
    total = layout.before * count * layout.inside
    if not total or x.type.dtype.itemsize > WIDEST:
        return WHOLE
    width = widest(layout.inside, x.type.dtype.itemsize)
    blocks = blocks_for(total // width, THREADS, multiprocessors)
    return cost_of_grid((blocks, 1, 1), (THREADS, 1, 1), multiprocessors)


def function_of(device: Any, name: str, text: str, words: int) -> int:
    """Return the address of a kernel, compiled and loaded once a process.

    Parameters
    ----------
    device
        Where it runs.
    name, text
        The kernel's, and its source without the prelude.
    words
        How many arguments it has.
    """
    place = (device.number, name)
    if place not in _loaded:
        module = device.cupy.cuda.function.Module()
        module.load(compile_source(complete(text, words), device.architecture))
        _loaded[place] = (module, module.get_function(name))
    return int(_loaded[place][1].ptr)
