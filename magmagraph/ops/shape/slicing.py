"""Cutting pieces out of arrays and putting them into larger ones.

Two records, each the other's gradient: `slice` takes every so-manieth element along each axis,
`place` puts its operand at such positions into an array that is constant elsewhere. Subscripts,
`flip`, `split` and `pad` are made of them.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ...ir import dims
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Kernel, Kind, Layout, Op, Pieces, ViewAxis
from ...ir.types import Extent, Shape, Type
from ..rules import onnx_forms, onnx_pairs


def _check_positions(
    call: Call, starts: Shape, steps: tuple[int, ...], inner: Shape, outer: Shape
) -> None:
    """Check that ``start + step * (0 .. inner - 1)`` lies within ``outer`` along every axis."""
    if not len(starts) == len(steps) == len(inner) == len(outer):
        raise call.shape_error(f"{len(starts)} starts for {len(outer)} axes")
    for axis, (start, step, count, extent) in enumerate(
        zip(starts, steps, inner, outer, strict=True)
    ):
        if not step:
            raise call.shape_error(f"step 0 along axis {axis}", need="another number")
        last = start + step * (count - 1)
        low, high = (start, last) if step > 0 else (last, start)
        # An empty slice may start one step outside: low is then above high.
        demands = ((count, 0), (low, 0), (extent - 1, high))
        for left, right in demands:
            empty = isinstance(count, int) and count == 0 and left is not count
            if not empty and not dims.require(left, ">=", right, call.constraints):
                raise call.shape_error(
                    f"positions {start} to {last} of axis {axis} lie outside its extent {extent}"
                )


def _windows(
    starts: Sequence[int], steps: Sequence[int], counts: Sequence[int]
) -> tuple[builtins.slice, ...]:
    """Return Python slices that select the positions, along every axis."""
    result = []
    for start, step, count in zip(starts, steps, counts, strict=True):
        stop = start + step * count
        if not count:
            result.append(builtins.slice(0, 0))
        else:
            result.append(builtins.slice(start, None if stop < 0 else stop, step))
    return tuple(result)


def _slice_type(
    call: Call, x: Type, *, starts: Shape, steps: tuple[int, ...], shape: Shape
) -> Type:
    _check_positions(call, starts, steps, shape, x.shape)
    return Type(x.dtype, shape)


def _slice_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    source = node.inputs[0]
    return (
        PLACE(
            cotangent,
            starts=node.attrs["starts"],
            steps=node.attrs["steps"],
            shape=source.shape,
            value=0,
        ),
    )


def _map_positions(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Take every position of the mapped axis."""
    (x,) = operands
    attrs = dict(node.attrs)
    attrs["starts"] = (0, *attrs["starts"])
    attrs["steps"] = (1, *attrs["steps"])
    attrs["shape"] = (x.shape[0], *attrs["shape"])
    return node.op(x, **attrs)


SLICE = Op(
    name="slice",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    doc="Elements start, start + step, ... along every axis, as many as the result's shape says.",
    rule=_slice_type,
    evaluate=lambda xp, x, *, starts, steps, shape: x[_windows(starts, steps, shape)],
    layout=Layout(
        view=lambda node: [
            ViewAxis(axis, start, step)
            for axis, (start, step) in enumerate(
                zip(node.attrs["starts"], node.attrs["steps"], strict=True)
            )
        ],
    ),
    gradient=_slice_gradient,
    batching=_map_positions,
    sharding="window",
    numerics="exact",
    onnx=onnx_pairs.Pairs(onnx_forms.sliced, onnx_forms.sliced),
)


def _place_type(
    call: Call, x: Type, *, starts: Shape, steps: tuple[int, ...], shape: Shape, value: Any
) -> Type:
    _check_positions(call, starts, steps, x.shape, shape)
    return Type(x.dtype, shape)


def _place(xp: Any, x: Any, *, shape: tuple[int, ...], **attrs: Any) -> Any:
    result = xp.empty(shape, dtype=x.dtype)
    _place_into(xp, result, x, shape=shape, **attrs)
    return result


def _place_into(
    xp: Any, target: Any, x: Any, *, starts: Any, steps: Any, shape: tuple[int, ...], value: Any
) -> None:
    target[...] = value
    target[_windows(starts, steps, x.shape)] = x


def _place_pieces(node: Node) -> Pieces | None:
    if set(node.attrs["steps"]) - {1}:
        return None
    return Pieces((node.attrs["starts"],), node.attrs["value"])


def _place_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    attrs = node.attrs
    shape = node.inputs[0].shape
    return (SLICE(cotangent, starts=attrs["starts"], steps=attrs["steps"], shape=shape),)


PLACE = Op(
    name="place",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    doc="The operand at positions start, start + step, ... of an array that is constant elsewhere.",
    rule=_place_type,
    attributes={"value": "Number"},
    evaluate=_place,
    kernel=Kernel(into=_place_into),
    layout=Layout(pieces=_place_pieces),
    gradient=_place_gradient,
    batching=_map_positions,
    sharding="window",
    numerics="exact",
    onnx=onnx_forms.placed,
)


def cut(x: Node, axis: int, start: Extent, extent: Extent, step: int = 1) -> Node:
    """Return `extent` elements along one axis from `start` on, all of the other axes."""
    shape = list(x.shape)
    whole = isinstance(start, int) and start == 0 and step == 1 and shape[axis] == extent
    if whole:
        return x
    shape[axis] = extent
    starts: list[Extent] = [0] * x.ndim
    steps = [1] * x.ndim
    starts[axis], steps[axis] = start, step
    return SLICE(x, starts=tuple(starts), steps=tuple(steps), shape=tuple(shape))


# Subscripts.


RECORDS = (SLICE, PLACE)
