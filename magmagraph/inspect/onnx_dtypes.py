"""Which dtypes ONNX's operators take, and in which wider one an operand is given to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["accepted", "allowed", "type_parameters"]

# Wider element types of a kind, in which results are the same once they are cast back.
_WIDER: Mapping[str, Sequence[str]] = {
    "INT8": ("INT16", "INT32", "INT64"), "INT16": ("INT32", "INT64"), "INT32": ("INT64",),
    "UINT8": ("UINT16", "INT16", "UINT32", "INT32", "INT64"),
    "UINT16": ("UINT32", "INT32", "INT64"), "UINT32": ("INT64",),
    "BOOL": ("UINT8", "INT32", "INT64"),
    "FLOAT16": ("FLOAT", "DOUBLE"), "BFLOAT16": ("FLOAT", "DOUBLE"), "FLOAT": ("DOUBLE",),
}  # fmt: skip
_INTS = ("INT8", "INT16", "UINT8", "UINT16", "UINT32")
_SHORT = ("INT16", "UINT16", "UINT32")
# What the standard's operators take and onnxruntime has no kernels for, where wider ones serve.
_LACKING: Mapping[str, Sequence[str]] = {
    "ArgMax": _SHORT, "ArgMin": _SHORT, "CumSum": (*_INTS, "UINT64"), "Max": _INTS[:4],
    "Min": _INTS[:4],
    "Pow": _INTS, "ReduceMax": _SHORT, "ReduceMin": _SHORT, "ReduceProd": (*_INTS, "UINT64"),
    "ReduceSum": (*_INTS, "UINT64"), "Relu": (*_SHORT, "UINT8"),
    "ScatterND": ("FLOAT16", "BFLOAT16"),
    "TopK": _INTS, "Where": ("INT8", *_SHORT),
}  # fmt: skip
# Sums and products are the same modulo 2**64, whatever the sign.
_MODULAR = [(name, "UINT64") for name in ("CumSum", "ReduceProd", "ReduceSum")]


def type_parameters(formals: Sequence[Any], count: int) -> list[str]:
    """Return the type parameters of operands or results; the last one may repeat."""
    return [formals[min(place, len(formals) - 1)].type_str for place in range(count)]


def allowed(onnx: Any, schema: Any, letter: str) -> set[int]:
    """Return the element types that a type parameter of an operator may be."""
    texts = [letter]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == letter:
            texts = list(constraint.allowed_type_strs)
    names = [text[7:-1].upper() for text in texts if text.startswith("tensor(")]
    return {int(getattr(onnx.TensorProto, name)) for name in names}


def accepted(onnx: Any, schema: Any, letter: str, element: int) -> int | None:
    """Return the element type itself, or the narrowest wider one; None where there is none.

    onnx: The package.
    schema: What an operator takes: `onnx.defs.OpSchema`.
    letter: A type parameter of it.
    element: The element type of the operands that it stands for.
    """
    proto = onnx.TensorProto
    name = proto.DataType.Name(element)
    taken = allowed(onnx, schema, letter)
    if letter in ("T", "T1"):
        taken -= {getattr(proto, kind) for kind in _LACKING.get(schema.name, ())}
    if element in taken or not taken:
        return element
    for wider in ("INT64",) if (schema.name, name) in _MODULAR else _WIDER.get(name, ()):
        if getattr(proto, wider) in taken:
            return int(getattr(proto, wider))
    return None
