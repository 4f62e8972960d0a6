"""What the compiled kernels of convolutions need: an algorithm for the geometry, and scratch.

Scratch is planned like all memory, before sizes are known: its bytes are a formula in the named
dimensions. The kernels are told how much they got, and cut their work accordingly.
"""

from __future__ import annotations

import math

from ... import dims
from ...cores import wide_vectors
from ...dims import Dim
from ...graph import Node
from ...types import Extent, Shape
from .filters import TILES
from .primitives import CONVOLUTION, CONVOLUTION_INPUT, puts_outs_first, split_weight
from .shapes import split
from .winograd import TAPS, applies

MANY_CHANNELS = 32  # of a group on either side, from which products over channels pay
# Of the narrower side, below which direct sums were the fastest in all but few geometries that were
# measured: with vectors of 64 bytes, of which registers hold twice the sums; with others.
DIRECT_WIDE, DIRECT_NARROW = 96, 32
FEWEST_CHANNELS = 4  # of a group on either side, for a product to be worth its call
PATCH_ELEMENTS = 1 << 17  # of the patches that a thread holds at a time
FEWEST_COLUMNS = 128  # results of a product of patches, where there are as many
MOST_COLUMNS = 4096
ROUND_ELEMENTS = 1 << 21  # of the images that are packed at a time, where they are small
TILE_ELEMENTS = 1 << 18  # of the transformed tiles that a thread holds at a time
TABLE_BYTES = 8192  # of alignment and slack beside tables, weights and images
LANES = 16  # the most elements of a vector


class Extents:
    """The extents of a convolution or of one of its transposes, whichever record it is."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        last = attrs["channels_last"]
        left, right = (operand.shape for operand in node.inputs)
        self.strides: tuple[int, ...] = attrs["strides"]
        self.dilation: tuple[int, ...] = attrs["dilation"]
        self.low: Shape = attrs["low"]
        self.groups: int = attrs["groups"]
        self.batch: Extent = left[0]
        outs: Extent
        ins: Extent
        if node.op is CONVOLUTION:
            _, _, self.inputs = split(left, last)
            outs, ins, self.window = split_weight(right, last, puts_outs_first(attrs))
            self.windows: Shape = attrs["extents"]
        elif node.op is CONVOLUTION_INPUT:
            _, _, self.windows = split(left, last)
            outs, ins, self.window = split_weight(right, last, puts_outs_first(attrs))
            self.inputs = attrs["extents"]
        else:
            _, channels, self.inputs = split(left, last)
            _, outs, self.windows = split(right, last)
            ins = dims.floor_div(channels, self.groups)
            self.window = attrs["extents"]
        self.ins = ins  # channels of a group
        self.outs = dims.floor_div(outs, self.groups)  # results of a group

    @property
    def taps(self) -> Extent:
        """Elements of the window."""
        return dims.size(self.window)


def default_algorithm(node: Node) -> str:
    """Return the algorithm that is taken where none was asked for and nothing is measured.

    Winograd's tiles pay where both sides have many channels, and so does a library's product, whose
    blocks are large. With fewer channels patches cost more than what is done with them: direct sums
    read the input as it lies. A window of one element needs no patches.
    """
    e = Extents(node)
    if any(isinstance(extent, Dim) for extent in (e.ins, e.outs, *e.window)):
        return "im2col"
    axes = list(zip(e.window, e.strides, e.dilation, strict=True))
    if _plain(e, node) and _narrower(e) < DIRECT_WIDE:
        return "direct"
    many = min(_number(e.ins), _number(e.outs)) >= MANY_CHANNELS
    if many and applies(axes):
        return "winograd-2x2"
    return "im2col" if many or _pointwise(e) else "direct"


def algorithm_of(node: Node) -> str:
    """Return the algorithm that a node runs by."""
    asked: str = node.attrs["algorithm"]
    return default_algorithm(node) if asked == "auto" else asked


def algorithms(node: Node) -> tuple[str, ...]:
    """Return the algorithms among which ``"auto"`` chooses for a node, the default one first.

    Winograd's larger tiles are not among them: their errors are an order of magnitude larger, so
    that a user asks for them. Neither are Fourier transforms, which no kernel computes. Groups of
    very few channels, as of depthwise convolutions, make products of next to nothing. What is
    hardly ever the fastest is left out: each has a library, which a first call waits for.
    """
    e = Extents(node)
    first = default_algorithm(node)
    few = e.groups > 1 and _narrower(e) < FEWEST_CHANNELS
    if few or any(isinstance(k, Dim) for k in e.window):
        return (first,)
    found = ["direct", "im2col"]
    if applies(list(zip(e.window, e.strides, e.dilation, strict=True))):
        found.append("winograd-2x2")
    if _plain(e, node) and _narrower(e) < (DIRECT_WIDE if wide_vectors() else DIRECT_NARROW):
        # With next to no results direct sums have nothing to share what they read with.
        lonely = direction_of(node) == "input" and _fewest(e.ins) < FEWEST_CHANNELS
        found = ["direct", "im2col"] if lonely else ["direct"]
    return (first, *[name for name in found if name != first])


def direction_of(node: Node) -> str:
    """Return which of the three sums a node is: "forward", "input" or "weight"."""
    if node.op is CONVOLUTION:
        return "forward"
    return "input" if node.op is CONVOLUTION_INPUT else "weight"


def scratch(node: Node, threads: int) -> Extent:
    """Return the bytes of scratch that a node's kernel needs for at most so many threads."""
    e = Extents(node)
    item = int(node.dtype.itemsize)
    algorithm = algorithm_of(node)
    if algorithm == "im2col":
        return _patches(e, threads) * item
    if algorithm in TILES:
        return _tiles(e, node, threads, TILES[algorithm]) * item
    return _planes(e, node, threads) * item + _tables(e)


def _plain(e: Extents, node: Node) -> bool:
    """Return whether a node is of the kind that was measured: one group, lines that lie in order.

    And of the kind that needs patches at all: a window of more than one element.
    """
    alone = e.groups == 1 and not node.attrs["channels_last"]
    return alone and not any(isinstance(k, Dim) for k in e.window) and _number(e.taps) > 1


def _narrower(e: Extents) -> int:
    """Return the channels of a group on the side that has fewer."""
    return min(_fewest(e.ins), _fewest(e.outs))


def _fewest(extent: Extent) -> int:
    """Return an extent that is known, else a large one."""
    return DIRECT_WIDE if isinstance(extent, Dim) else extent


def _number(extent: Extent) -> int:
    assert not isinstance(extent, Dim)
    return extent


def _patches(e: Extents, threads: int) -> Extent:
    if _pointwise(e):
        return 0
    rows = e.ins * e.taps
    wanted = FEWEST_COLUMNS
    if isinstance(rows, int):
        wanted = min(max(PATCH_ELEMENTS // max(1, rows), FEWEST_COLUMNS), MOST_COLUMNS)
    columns = dims.minimum(e.batch * dims.size(e.windows), wanted)
    return threads * columns * (rows + e.outs) + LANES


def _pointwise(e: Extents) -> bool:
    """Return whether the input itself is the matrix of patches."""
    numbers = zip(e.window, e.strides, e.low, e.inputs, e.windows, strict=True)
    return all(k == 1 and s == 1 and low == 0 and n == o for k, s, low, n, o in numbers)


def _planes(e: Extents, node: Node, threads: int) -> Extent:
    """Return the elements of packed weights and of a round of packed images."""
    to_input = direction_of(node) == "input"
    plane: Extent = 1
    line: Extent = 1
    for n, k, o, s, d in zip(
        e.inputs, e.window, e.windows, e.strides, e.dilation, strict=True
    ):
        assert isinstance(k, int)
        reach = (k - 1) * d // s
        if to_input:
            plane = plane * (dims.floor_div(n, s) + 2 + reach)
        else:
            remainders = len({j * d % s for j in range(k)})
            plane = plane * (o + reach) * remainders
            line = line * (o + reach)
    weights = e.groups * e.ins * e.outs * e.taps
    image = e.groups * (e.outs if to_input else e.ins) * plane
    if direction_of(node) == "weight":
        weights = 0
        image = image + e.groups * e.outs * (line + LANES * dims.size(e.windows[:-1]))
    images = threads
    if isinstance(image, int):
        images = max(threads, ROUND_ELEMENTS // max(1, image))
    return weights + image * dims.minimum(e.batch, images) + 32 * LANES


def _tables(e: Extents) -> Extent:
    """Return the bytes of the tables of taps and of remainders."""
    total: Extent = TABLE_BYTES + 40 * math.prod(e.strides)
    total = total + 16 * e.taps
    for k in e.window:
        total = total + 8 * k
    return total


def _tiles(e: Extents, node: Node, threads: int, tile: int) -> Extent:
    elements = (tile + TAPS - 1) ** 2
    groups = 1 if direction_of(node) == "weight" else e.groups
    weights = groups * elements * e.ins * e.outs
    both = e.ins + e.outs
    wanted = LANES
    if isinstance(both, int):
        wanted = max(LANES, TILE_ELEMENTS // max(1, both * elements) // LANES * LANES)
    extents = e.inputs if direction_of(node) == "input" else e.windows
    count = e.batch
    for extent in extents:
        count = count * dims.ceil_div(extent, tile)
    chunk = dims.ceil_div(dims.minimum(count, wanted), LANES) * LANES
    return weights + threads * (both * elements * chunk + LANES) + 2 * LANES
