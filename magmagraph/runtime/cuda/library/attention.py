"""Attention by rows, and its gradient, through cuDNN: scores stay on the chip.

For 16-bit operands without a mask. Queries come scaled, with an axis of the heads that share keys,
which is one with the heads of keys in memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ....codegen.steps import shape_of
from ....ir.fallback import NO_ELEMENTS, Refused
from ....ir.plan import Step
from ..memory import PlanMemory
from . import cudnn

__all__ = ["chosen"]

MOST_WORKSPACE = 1 << 32
WIDTHS = 8

Layout = tuple[tuple[int, ...], tuple[int, ...]]


class Attention(NamedTuple):
    """The key of the library's plans.

    Attributes
    ----------
    gradient
        Whether it is the gradient.
    queries, keys, values, result, sums
        Extents ``(batch, heads, rows, width)`` and strides.
    causal
        Whether query i sees keys 0 to i only.
    dtype
        Of all but the sums, which are float32.
    deterministic
        Whether the gradient is the same in each run: sums over blocks of queries wait for each
        other, then.
    """

    gradient: bool
    queries: Layout
    keys: Layout
    values: Layout
    result: Layout
    sums: Layout
    causal: bool
    dtype: str
    deterministic: bool


def chosen(memory: PlanMemory, step: Step) -> cudnn.LibraryGraph:
    """Return the library's graph of attention with the plan that is chosen for it.

    Raises
    ------
    Refused
        The library does not compute it.
    """
    values = (*step.inputs, *step.outputs)
    shapes = [shape_of(value.type) for value in values]
    cudnn.check_available()
    if not all(math.prod(shape) for shape in shapes):
        raise Refused(NO_ELEMENTS, expected=True)
    q, k, v = shapes[:3]
    if q[-1] % WIDTHS or v[-1] % WIDTHS:
        raise Refused(f"cuDNN takes rows of queries and values of a multiple of {WIDTHS} numbers")
    batch = math.prod(q[:-4])
    if step.node.attrs.get("rows_first"):
        rows, heads, columns, shared, layout = q[-4], q[-3] * q[-2], k[-3], k[-2], _rows_first
    else:
        rows, heads, columns, shared, layout = q[-2], q[-4] * q[-3], k[-2], k[-3], _heads_first
    attributes = Attention(
        len(step.inputs) == 6,
        layout(batch, heads, rows, q[-1]),
        layout(batch, shared, columns, k[-1]),
        layout(batch, shared, columns, v[-1]),
        layout(batch, heads, rows, v[-1]),
        _packed(batch, heads, rows, 1),
        bool(step.node.attrs["causal"]),
        step.inputs[0].type.dtype.name,
        memory.plan.deterministic,
    )
    return cudnn.graph_of(
        memory.device, attributes, lambda g: _built(g, attributes), attributes.dtype,
        [memory.at(value) for value in values], least_limit=MOST_WORKSPACE,
        deterministic=attributes.deterministic,
    )  # fmt: skip


def _packed(*extents: int) -> Layout:
    strides = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    return extents, tuple(strides)


def _heads_first(batch: int, heads: int, rows: int, width: int) -> Layout:
    return _packed(batch, heads, rows, width)


def _rows_first(batch: int, heads: int, rows: int, width: int) -> Layout:
    """Return the layout of operands whose rows have all heads side by side."""
    return (batch, heads, rows, width), (heads * rows * width, width, heads * width, 1)


def _built(graph: Any, what: Attention) -> tuple[list[Any], list[Any]]:
    """Add the operation to a graph; operands and results are in the order of the record's."""
    kind, wide = cudnn.data_type(what.dtype), cudnn.data_type("float32")

    def tensor(layout: Layout, dtype: Any = kind) -> Any:
        return graph.tensor(list(layout[0]), list(layout[1]), data_type=dtype)

    def made(result: Any, layout: Layout, dtype: Any = kind) -> Any:
        result.set_output(True).set_dim(list(layout[0])).set_stride(list(layout[1]))
        return result.set_data_type(dtype)

    read = [tensor(what.queries), tensor(what.keys), tensor(what.values)]
    if not what.gradient:
        out, sums = graph.sdpa(
            q=read[0], k=read[1], v=read[2], is_inference=False, attn_scale=1.0,
            use_causal_mask=what.causal,
        )
        return read, [made(out, what.result), made(sums, what.sums, wide)]
    read += [tensor(what.sums, wide), tensor(what.result), tensor(what.result)]
    q, k, v, sums, out, above = read
    parts = graph.sdpa_backward(
        q=q, k=k, v=v, o=out, dO=above, stats=sums, attn_scale=1.0,
        use_causal_mask=what.causal, use_deterministic_algorithm=what.deterministic,
    )
    layouts = (what.queries, what.keys, what.values)
    return read, [made(part, layout) for part, layout in zip(parts, layouts, strict=True)]
