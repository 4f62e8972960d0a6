"""The record of a value that carries default updates: see `mg.stateful`."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError, message
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Kind, Layout, Op
from ...ir.types import Type
from ..rules import onnx_forms

__all__ = ["STATEFUL"]


def _value_type(call: Call, value: Type, *others: Type) -> Type:
    """Return the first operand's type; pairs of a variable and its new value follow it."""
    for variable, new in zip(others[::2], others[1::2], strict=True):
        if variable != new:
            raise call.shape_error(f"a new value {new} for a variable {variable}", need="one type")
    return value


def _batched(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    if any(batched[1:]):
        raise GraphError(
            message(
                "a value with default updates is mapped by vmap, and its variables would be given "
                "one new value for each position",
                need="new values that do not depend on what is mapped",
                hint="mg.vmap over what lies outside of the stateful layer, or training=False",
            )
        )
    return STATEFUL(*operands)


STATEFUL = Op(
    name="stateful",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="The first operand, with variables and what becomes of them at a call.",
    rule=_value_type,
    evaluate=lambda xp, value, *others: value,
    layout=Layout(alias=True, fades=True),
    gradient=lambda node, cotangent: (cotangent, *(None for _ in node.inputs[1:])),
    batching=_batched,
    onnx=onnx_forms.first,
)

RECORDS = (STATEFUL,)
