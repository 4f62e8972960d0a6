"""Identities with a meaning: projections of several results, gradient stops, markers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Kind, Layout, Op, Sample, Tests
from ...ir.types import Type
from ..convert import as_node
from ..rules import onnx_forms


def _item_type(call: Call, x: tuple[Type, ...], *, index: int) -> Type:
    return x[index]


def _identity_type(call: Call, x: Type, **attrs: Any) -> Type:
    return x


def _identity(xp: Any, x: Any, **attrs: Any) -> Any:
    return x


ITEM = Op(
    name="item",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="One of the results of an operation that has several.",
    rule=_item_type,
    attributes={"index": "Count"},
    evaluate=lambda xp, x, *, index: x[index],
    gradient=lambda node, cotangent: (cotangent,),  # the sweep puts it among its siblings,
    onnx=onnx_forms.item,
)


@documented
def stop_gradient(x: Any) -> Node:
    """Return `x`, taken as a constant by gradients.

    x: Node or array.
    returns: Of the shape and dtype of `x`, with gradient 0.

    >>> s = mg.var("s", init=3.0)
    >>> mg.grad(s * mg.stop_gradient(s), s).eval()
    array(3., dtype=float32)
    """
    return STOP_GRADIENT(as_node(x))


STOP_GRADIENT = Op(
    name="stop_gradient",
    dtypes=INEXACT,
    kind=Kind.CONTROL,
    rule=_identity_type,
    evaluate=_identity,
    layout=Layout(alias=True),
    no_gradient="taken as a constant by definition",
    batching="identity",
    function=stop_gradient,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([1.0, 2.0]),), gradient=(), reason="a constant by definition")
        ],
        reference=lambda x: x,
    ),
    onnx=onnx_forms.first,
)

# Roles of markers: what a gradient is taken of, the gradient of a target, and what a batch's
# statistics are made of, whose cotangents are marked likewise. Of sums over ranks: one that is read
# in parts, one that is taken here, and a variable that holds each rank's part (and what renews it).
SEED, GRADIENT, OWN_STATISTICS = "seed", "gradient", "own statistics"
# Or one that is summed and scattered. With ``scaled=True`` what is held apart is held without the
# loss's scale, and meets gradients that have it.
APART, SENT, HELD, SCATTERED = "apart", "sent", "held apart", "scattered"


def _marker_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    if node.attrs["role"] == OWN_STATISTICS:
        return (MARKER(cotangent, role=OWN_STATISTICS),)
    return (cotangent,)


MARKER = Op(
    name="marker",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="An identity that gradients leave: role 'seed' at the loss, 'gradient' at a target.",
    rule=_identity_type,
    attributes={
        "role": "str",
        "depth": "NotRequired[Count]",
        "scaled": "NotRequired[bool]",
        "apart": "NotRequired[bool]",
        "ranks": "NotRequired[tuple[tuple[tuple[str, ...], Positive], ...]]",
    },
    evaluate=_identity,
    layout=Layout(alias=True),
    gradient=_marker_gradient,
    batching="identity",
    onnx=onnx_forms.first,
)


def _sent_type(call: Call, x: Type, flag: Type) -> Type:
    if flag.dtype != np.dtype(bool) or flag.shape:
        raise call.dtype_error(f"a flag that is {flag}", need="a bool for the whole call")
    return x


SENT_WHEN = Op(
    name="sent_when",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="The operand; where it is a sum over ranks, that is taken here, at calls with a flag.",
    rule=_sent_type,
    evaluate=lambda xp, x, flag: x,
    layout=Layout(alias=True),
    no_gradient="it stands behind gradients",
)

# Roles of markers around updates: the state of loss scaling, which the precision pass renews, and
# updates that land at every call. ``ranks`` of the state: groups of ranks that have gradients of
# their own, and land their updates together. ``depth``: that of the gradients that are scaled, 0 of
# none, where that was settled before the graph was cut into stages.
SCALE, STEPS, SKIPPED = STATE = ("loss scale", "finite steps", "skipped steps")
ALWAYS = "always"


def is_scaling_state(value: Node) -> bool:
    """Return whether an update's value is state of loss scaling."""
    return value.op is MARKER and value.attrs["role"] in STATE


def results_of(node: Node) -> list[Node]:
    """Return the results of a node: itself, or an item for each of several."""
    if not isinstance(node.type, tuple):
        return [node]
    return [ITEM(node, index=i) for i in range(len(node.type))]


RECORDS = (ITEM, STOP_GRADIENT, MARKER, SENT_WHEN)
