"""Whether an operator's operands and attributes are ones that ONNX allows.

A rule of this package that raises an error of Python has met what it does not foresee. The model
is at fault where onnx's own checks say so, and this package where they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["fault_of", "fault_of_model"]

_MOST_VALUES = 1 << 12  # of an operand that is given to the checks


def fault_of(
    onnx: Any,
    node: Any,
    schema: Any,
    opsets: Mapping[str, int],
    types: Sequence[bytes],
    known: Sequence[np.ndarray | None],
) -> str | None:
    """Return what onnx's checks say against an operator; None where they say nothing.

    Parameters
    ----------
    onnx
        The package.
    node
        A ``NodeProto``, all attributes of which have values.
    schema
        Of its operator.
    opsets
        Versions by domain.
    types
        Of each operand, a serialized ``TypeProto``, empty where nothing is known.
    known
        The values of operands that are known ahead.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = dict(opsets)
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        return _line(error)
    held: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for name, content, array in zip(node.input, types, known, strict=False):
        held[name] = onnx.TypeProto.FromString(content)
        if array is not None and array.dtype != object and array.size <= _MOST_VALUES:
            data[name] = onnx.numpy_helper.from_array(np.asarray(array), name)
    wrong = _wrong_type(onnx, node, schema, held)
    if wrong is not None:
        return wrong
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        onnx.shape_inference.infer_node_outputs(
            schema, node, {k: v for k, v in held.items() if k and v.WhichOneof("value")}, data,
            opset_imports=imports, ir_version=onnx.IR_VERSION,
        )  # fmt: skip
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        return _line(error)
    return None


def _wrong_type(onnx: Any, node: Any, schema: Any, held: Mapping[str, Any]) -> str | None:
    """Return which operand has an element type that the operator does not take."""
    formals = list(schema.inputs)
    bound: dict[str, int] = {}
    for place, name in enumerate(node.input):
        formal = formals[min(place, len(formals) - 1)] if formals else None
        element = held[name].tensor_type.elem_type if name in held else 0
        if formal is None or not element:
            continue
        label = onnx.TensorProto.DataType.Name(element).lower()
        spelled = f"tensor({'double' if label == 'double' else label})"
        if formal.types and spelled not in formal.types:
            return f"operand {place} is {label}"
        if bound.setdefault(formal.type_str, element) != element and formal.is_homogeneous:
            other = onnx.TensorProto.DataType.Name(bound[formal.type_str]).lower()
            return f"operand {place} is {label}, and another one {other}"
    return None


def fault_of_model(onnx: Any, model: Any) -> str | None:
    """Return what onnx's checks say against a model; None where they say nothing."""
    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError, ValueError
    ) as error:  # fmt: skip
        return _line(error)
    return None


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
