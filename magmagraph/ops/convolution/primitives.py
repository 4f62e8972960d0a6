"""Convolutions over one to three spatial axes, and their transposes.

Three records, each linear in both operands and each the transpose of another: `convolution`
(input, weights -> result), `convolution_input` (result, weights -> input) and
`convolution_weight` (input, result -> weights). So the derivatives of each are the other two, of
any order, and run by the same algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...ir import dims
from ...ir.cores import wide_vectors
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.op import Call, Kernel, Kind, Op, Precision
from ...ir.types import Extent, Shape, Type
from ..elementwise.family import like_float, one_dtype
from ..products.rounded import operand
from ..rules import onnx_windows
from ..rules.batching_convolution import VALUES, WEIGHTS, map_convolution
from ..rules.sharding import shard_convolution
from . import expressions
from .filters import TILES
from .shapes import (
    axes_between,
    check_extents,
    check_sliding,
    join,
    spatial_axes,
    split,
)
from .winograd import TAPS, applies

_ATTRIBUTES = {
    "strides": "tuple[Step, ...]",
    "dilation": "tuple[Step, ...]",
    "low": "tuple[Offset, ...]",
    "extents": "Shape",
    "groups": "Positive",
    "channels_last": "bool",
    "algorithm": "Literal['auto', 'direct', 'im2col', 'winograd-2x2', 'winograd-4x4', 'fft']",
    "compute": "NotRequired[Literal['', 'tf32']]",
    "outs_first": "NotRequired[bool]",
}

# Weights.


def split_weight(
    shape: Shape, last: bool, outs_first: bool = False
) -> tuple[Extent, Extent, Shape]:
    """Return results, channels of a group and window of the weights' shape.

    With channels last, weights are ``(*window, channels, results)``, or, where a pass has put
    results first, ``(results, *window, channels)``.
    """
    if not last:
        return shape[0], shape[1], shape[2:]
    if outs_first:
        return shape[0], shape[-1], shape[1:-1]
    return shape[-1], shape[-2], shape[:-2]


def _join_weight(
    outs: Extent, ins: Extent, window: Shape, last: bool, outs_first: bool = False
) -> Shape:
    if not last:
        return (outs, ins, *window)
    return (outs, *window, ins) if outs_first else (*window, ins, outs)


def puts_outs_first(attrs: Mapping[str, Any]) -> bool:
    """Return whether weights of channels last have their results first."""
    return bool(attrs.get("outs_first", False))


def groups_of(call: Call, channels: Extent, groups: int, what: str) -> Extent:
    """Return the channels of one group."""
    share = dims.exact_divide(channels, groups, call.constraints)
    if share is None:
        raise call.shape_error(
            f"groups={groups} does not divide the {channels} {what}",
            need="as many channels in every group",
        )
    return share


# Shape rules. `extents` are those of the result's spatial axes.


def check_algorithm(
    call: Call, algorithm: str, window: Shape, strides: tuple[int, ...], dilation: tuple[int, ...]
) -> None:
    """Raise where an algorithm cannot do a geometry; say which can."""
    if algorithm in TILES and not applies(list(zip(window, strides, dilation, strict=True))):
        shape = "x".join(map(str, window))
        raise call.shape_error(
            f"algorithm={algorithm!r} for a {shape} window of stride {strides} and "
            f"dilation {dilation}",
            need=f"two spatial axes, a {TAPS}x{TAPS} window, stride 1 and dilation 1",
            hint="'direct', 'im2col' and 'fft' do every geometry, and 'auto' chooses",
        )


def _check_window(call: Call, window: Shape, attrs: dict[str, Any]) -> None:
    check_algorithm(call, attrs["algorithm"], window, attrs["strides"], attrs["dilation"])


def _check(call: Call, operands: tuple[Type, ...], attrs: dict[str, Any]) -> None:
    dtype = one_dtype(call, *operands)
    like_float(call, Type(dtype, ()))
    count = spatial_axes(call, operands[0].ndim)
    if operands[1].ndim != operands[0].ndim:
        raise call.shape_error(
            f"operands of {operands[0].ndim} and {operands[1].ndim} axes", need="as many each"
        )
    names = ("strides", "dilation", "low", "extents")
    check_sliding(call.op.name, count, *(attrs[name] for name in names))
    check_extents(call, attrs["extents"])


def _forward_type(call: Call, x: Type, w: Type, **attrs: Any) -> Type:
    _check(call, (x, w), attrs)
    last, groups = attrs["channels_last"], attrs["groups"]
    batch, channels, _ = split(x.shape, last)
    outs, ins, window = split_weight(w.shape, last, puts_outs_first(attrs))
    _check_window(call, window, attrs)
    groups_of(call, outs, groups, "results")
    share = groups_of(call, channels, groups, "channels")
    call.unify(share, ins, "channels of a group and of the weights")
    return Type(x.dtype, join(batch, outs, attrs["extents"], last))


def _input_type(call: Call, g: Type, w: Type, **attrs: Any) -> Type:
    _check(call, (g, w), attrs)
    last, groups = attrs["channels_last"], attrs["groups"]
    batch, channels, _ = split(g.shape, last)
    outs, ins, window = split_weight(w.shape, last, puts_outs_first(attrs))
    _check_window(call, window, attrs)
    groups_of(call, outs, groups, "results")
    call.unify(channels, outs, "results and those of the weights")
    return Type(g.dtype, join(batch, ins * groups, attrs["extents"], last))


def _weight_type(call: Call, x: Type, g: Type, **attrs: Any) -> Type:
    _check(call, (x, g), attrs)
    _check_window(call, attrs["extents"], attrs)
    last, groups = attrs["channels_last"], attrs["groups"]
    batch, channels, _ = split(x.shape, last)
    others, outs, _ = split(g.shape, last)
    call.unify(batch, others, "batches")
    groups_of(call, outs, groups, "results")
    share = groups_of(call, channels, groups, "channels")
    return Type(x.dtype, _join_weight(outs, share, attrs["extents"], last, puts_outs_first(attrs)))


# Array expressions: with channels first, whatever the layout.


def _first(xp: Any, x: Any, last: bool) -> Any:
    return xp.moveaxis(x, -1, 1) if last else x


def _weight_first(xp: Any, w: Any, attrs: dict[str, Any]) -> Any:
    if not attrs["channels_last"]:
        return w
    if puts_outs_first(attrs):
        return xp.moveaxis(w, -1, 1)
    return w.transpose(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))


def _axes(inputs: Any, window: Any, windows: Any, attrs: dict[str, Any]) -> Any:
    return axes_between(
        inputs, window, windows, attrs["strides"], attrs["dilation"], attrs["low"]
    )


def _forward(xp: Any, x: Any, w: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    x, w = _first(xp, x, last), _weight_first(xp, w, attrs)
    axes = _axes(x.shape[2:], w.shape[2:], attrs["extents"], attrs)
    result = expressions.forward(xp, x, w, axes, attrs["groups"], attrs["algorithm"])
    return xp.moveaxis(result, 1, -1) if last else result


def _input(xp: Any, g: Any, w: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    g, w = _first(xp, g, last), _weight_first(xp, w, attrs)
    axes = _axes(attrs["extents"], w.shape[2:], g.shape[2:], attrs)
    result = expressions.to_input(xp, g, w, axes, attrs["groups"], attrs["algorithm"])
    return xp.moveaxis(result, 1, -1) if last else result


def _weight(xp: Any, x: Any, g: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    x, g = _first(xp, x, last), _first(xp, g, last)
    axes = _axes(x.shape[2:], attrs["extents"], g.shape[2:], attrs)
    result = expressions.to_weight(xp, x, g, axes, attrs["groups"], attrs["algorithm"])
    if not last:
        return result
    if puts_outs_first(attrs):
        return xp.moveaxis(result, 1, -1)
    return result.transpose(*range(2, result.ndim), 1, 0)


def _rounded(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return an array expression of two factors that rounds them as ``compute`` asks."""

    def rounded(xp: Any, left: Any, right: Any, compute: str = "", **attrs: Any) -> Any:
        left, right = operand(xp, left, compute), operand(xp, right, compute)
        return evaluate(xp, left, right, **attrs)

    return rounded


# Derivatives.


def _changed(node: Node, extents: Shape) -> dict[str, Any]:
    return {**node.attrs, "extents": extents}


def _spatial(node: Node, last: bool) -> Shape:
    return split(node.shape, last)[2]


def _window(node: Node, attrs: Mapping[str, Any]) -> Shape:
    return split_weight(node.shape, attrs["channels_last"], puts_outs_first(attrs))[2]


def _forward_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    x, w = node.inputs
    last = node.attrs["channels_last"]
    return (
        CONVOLUTION_INPUT(cotangent, w, **_changed(node, _spatial(x, last))),
        CONVOLUTION_WEIGHT(x, cotangent, **_changed(node, _window(w, node.attrs))),
    )


def _input_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    g, w = node.inputs
    last = node.attrs["channels_last"]
    return (
        CONVOLUTION(cotangent, w, **_changed(node, _spatial(g, last))),
        CONVOLUTION_WEIGHT(cotangent, g, **_changed(node, _window(w, node.attrs))),
    )


def _weight_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    x, g = node.inputs
    last = node.attrs["channels_last"]
    return (
        CONVOLUTION_INPUT(g, cotangent, **_changed(node, _spatial(x, last))),
        CONVOLUTION(x, cotangent, **_changed(node, _spatial(g, last))),
    )


def _forward_flops(x: Type, w: Type, **attrs: Any) -> Extent:
    batch = x.shape[0]
    return 2 * batch * dims.size(attrs["extents"]) * w.size


def _input_flops(g: Type, w: Type, **attrs: Any) -> Extent:
    spatial = split(g.shape, attrs["channels_last"])[2]
    return 2 * g.shape[0] * dims.size(spatial) * w.size


def _weight_flops(x: Type, g: Type, **attrs: Any) -> Extent:
    _, channels, _ = split(x.shape, attrs["channels_last"])
    share = dims.floor_div(channels, attrs["groups"])
    return 2 * g.size * share * dims.size(attrs["extents"])


def _algorithms(node: Node) -> tuple[str, ...]:
    return algorithms(node) if node.attrs["algorithm"] == "auto" else ()


_record = partial(
    Op,
    kind=Kind.CONVOLUTION,
    numerics="reassoc",
    precision=Precision("allow", mixed=("compute",), factors=(0, 1)),
    kernel=Kernel(
        scratch=lambda node, threads: scratch(node, threads), algorithms=_algorithms
    ),
)

CONVOLUTION = _record(
    name="convolution",
    doc="Windows of the input times weights, summed.",
    rule=_forward_type,
    attributes=_ATTRIBUTES,
    evaluate=_rounded(_forward),
    gradient=_forward_gradient,
    batching=partial(map_convolution, (VALUES, WEIGHTS, VALUES)),
    sharding=partial(shard_convolution, (True, False, True)),
    flops=_forward_flops,
    onnx=onnx_windows.convolved,
)
CONVOLUTION_INPUT = _record(
    name="convolution_input",
    doc="The transpose of a convolution with respect to its input.",
    rule=_input_type,
    attributes=_ATTRIBUTES,
    evaluate=_rounded(_input),
    gradient=_input_gradient,
    batching=partial(map_convolution, (VALUES, WEIGHTS, VALUES)),
    sharding=partial(shard_convolution, (True, False, True)),
    flops=_input_flops,
    onnx=onnx_windows.convolved_back,
)
CONVOLUTION_WEIGHT = _record(
    name="convolution_weight",
    doc="The transpose of a convolution with respect to its weights.",
    rule=_weight_type,
    attributes=_ATTRIBUTES,
    evaluate=_rounded(_weight),
    gradient=_weight_gradient,
    batching=partial(map_convolution, (VALUES, VALUES, WEIGHTS)),
    sharding=partial(shard_convolution, (True, True, False)),
    flops=_weight_flops,
)

# Costs: an algorithm for the geometry, and the scratch that the compiled kernels need.
# Scratch is planned like all memory, before sizes are known: its bytes are a formula in the named
# dimensions. The kernels are given what there is, and cut their work accordingly.

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
TABLE_BYTES = 8192  # of alignment and slack, besides tables, weights and images
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
    algorithm: str = node.attrs["algorithm"]
    return default_algorithm(node) if algorithm == "auto" else algorithm


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
    names = ["direct", "im2col"]
    if applies(list(zip(e.window, e.strides, e.dilation, strict=True))):
        names.append("winograd-2x2")
    if _plain(e, node) and _narrower(e) < (DIRECT_WIDE if wide_vectors() else DIRECT_NARROW):
        # With next to no results direct sums have nothing to share what they read with.
        lonely = direction_of(node) == "input" and _fewest(e.ins) < FEWEST_CHANNELS
        names = ["direct", "im2col"] if lonely else ["direct"]
    return (first, *[name for name in names if name != first])


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
    """Return whether measurements cover a node: one group, contiguous lines.

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
    most_columns = FEWEST_COLUMNS
    if isinstance(rows, int):
        most_columns = min(max(PATCH_ELEMENTS // max(1, rows), FEWEST_COLUMNS), MOST_COLUMNS)
    columns = dims.minimum(e.batch * dims.size(e.windows), most_columns)
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
    tile_count = LANES
    if isinstance(both, int):
        tile_count = max(LANES, TILE_ELEMENTS // max(1, both * elements) // LANES * LANES)
    extents = e.inputs if direction_of(node) == "input" else e.windows
    count = e.batch
    for extent in extents:
        count = count * dims.ceil_div(extent, tile)
    chunk = dims.ceil_div(dims.minimum(count, tile_count), LANES) * LANES
    return weights + threads * (both * elements * chunk + LANES) + 2 * LANES


RECORDS = (CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT)
