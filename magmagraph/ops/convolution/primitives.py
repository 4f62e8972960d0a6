"""Convolutions over one to three spatial axes, and their transposes.

Three records, each linear in both operands and each the transpose of another: `convolution`
(input, weights -> result), `convolution_input` (result, weights -> input) and
`convolution_weight` (input, result -> weights). So the derivatives of each are the other two, of
any order, and run by the same algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ... import dims
from ...graph import Node
from ...op import Call, Kernel, Kind, Op, Precision
from ...types import Extent, Shape, Type
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
    made = expressions.forward(xp, x, w, axes, attrs["groups"], attrs["algorithm"])
    return xp.moveaxis(made, 1, -1) if last else made


def _input(xp: Any, g: Any, w: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    g, w = _first(xp, g, last), _weight_first(xp, w, attrs)
    axes = _axes(attrs["extents"], w.shape[2:], g.shape[2:], attrs)
    made = expressions.to_input(xp, g, w, axes, attrs["groups"], attrs["algorithm"])
    return xp.moveaxis(made, 1, -1) if last else made


def _weight(xp: Any, x: Any, g: Any, **attrs: Any) -> Any:
    last = attrs["channels_last"]
    x, g = _first(xp, x, last), _first(xp, g, last)
    axes = _axes(x.shape[2:], attrs["extents"], g.shape[2:], attrs)
    made = expressions.to_weight(xp, x, g, axes, attrs["groups"], attrs["algorithm"])
    if not last:
        return made
    if puts_outs_first(attrs):
        return xp.moveaxis(made, 1, -1)
    return made.transpose(*range(2, made.ndim), 1, 0)


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


def _scratch(node: Node, threads: int) -> Extent:
    from .costs import scratch  # which knows the records of this module

    return scratch(node, threads)


def _algorithms(node: Node) -> tuple[str, ...]:
    from .costs import algorithms

    return algorithms(node) if node.attrs["algorithm"] == "auto" else ()


_record = partial(
    Op,
    kind=Kind.CONVOLUTION,
    numerics="reassoc",
    precision=Precision("allow", mixed=("compute",), factors=(0, 1)),
    kernel=Kernel(scratch=_scratch, algorithms=_algorithms),
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

RECORDS = (CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT)
