"""Read ONNX models: from files, bytes or `onnx.ModelProto`, with limits and one kind of error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import canonical
from ...errors import MissingFileError, MissingLibraryError, OnnxError, message
from ...files.reading import Damaged, open_file, read_file, reading
from ...ir.types import FilePath

__all__ = [
    "DEEPEST", "array_of", "attribute_of", "converted", "dtype_of", "element_of", "library",
    "read_model",
]  # fmt: skip

_SCAN_CHANGED = 9  # the opset
DEEPEST = 50  # graphs and functions inside of each other
_LARGEST_EXTENT = (1 << 63) - 1
_INLINE = (
    "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data",
    "raw_data",
)  # fmt: skip
_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}  # the others have the dtypes' names


def library() -> Any:
    """Return the package onnx."""
    try:
        import onnx
    except ImportError as error:
        raise MissingLibraryError(
            message("the package onnx is not installed", hint="pip install 'magmagraph[onnx]'")
        ) from error
    return onnx


def read_model(given: FilePath | bytes | Any) -> tuple[Any, str]:
    """Return a model whose tensors are all in memory, and the name for errors.

    given (path, bytes or onnx.ModelProto): The model. Only that of a path may have tensors in files
        beside it.
    raises OnnxError: If it is damaged, or names a file outside of its folder.
    """
    onnx = library()
    if isinstance(given, onnx.ModelProto):
        model, label, folder = given, "the model", None
    elif isinstance(given, (bytes, bytearray, memoryview)):
        model, label, folder = _parsed(onnx, bytes(given), "the model"), "the model", None
    elif isinstance(given, (str, os.PathLike)):
        label = f"{os.fspath(given)!r}"
        model = _parsed(onnx, read_file(given, OnnxError), label)
        folder = Path(given).resolve().parent
    else:
        raise OnnxError(
            message(
                f"from_onnx is given a {type(given).__name__}",
                need="a path, the bytes of a file, or an onnx.ModelProto",
            )
        )
    if not model.HasField("graph"):
        raise OnnxError(message(f"{label} holds no graph", need="an ONNX model"))
    tensors = [t for t in _tensors(model, label) if t.data_location == t.EXTERNAL]
    if tensors:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        model = copy
        for tensor in _tensors(model, label):
            if tensor.data_location == tensor.EXTERNAL:
                with reading(label, "is damaged", OnnxError, passing=MissingFileError):
                    _bring(tensor, folder, label)
    return model, label


def converted(model: Any, opset: int) -> Any:
    """Return a model of another opset by onnx's own converter; itself where that cannot be had.

    The converter is C++ and sees only what onnx's checks accept. It does not change `Scan` of
    opset 8, which had an axis of batches.
    """
    onnx = library()
    version = next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), opset)
    if version < _SCAN_CHANGED and any(node.op_type == "Scan" for node in _nodes(model)):
        return model
    try:
        onnx.checker.check_model(model, full_check=True)
        made = onnx.version_converter.convert_version(model, opset)
    except Exception:  # of several kinds; who reads the model names what is not supported
        return model
    return made


def _nodes(model: Any) -> Iterator[Any]:
    """Yield the operators of a model, those of graphs inside of operators too."""
    places = [model.graph, *model.functions]
    while places:
        for node in places.pop().node:
            yield node
            for attribute in node.attribute:
                places += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _parsed(onnx: Any, content: bytes, label: str) -> Any:
    model = onnx.ModelProto()
    with reading(label, "is truncated, damaged, or no ONNX model", OnnxError):
        model.ParseFromString(content)
    _check_names(model, label)
    return model


def _check_names(model: Any, label: str) -> None:
    """Raise where a text is no UTF-8: protobuf gives it as bytes, which no rule expects."""
    places = [model]
    while places:
        for field, value in places.pop().ListFields():
            if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
                continue
            single = isinstance(value, (str, bytes)) or hasattr(value, "ListFields")
            values = [value] if single else value
            if field.type == field.TYPE_MESSAGE:
                places.extend(values)
            elif not all(isinstance(text, str) for text in values):
                raise OnnxError(message(f"{label} is damaged: {field.full_name} is no UTF-8 text"))


def _tensors(model: Any, label: str) -> Iterator[Any]:
    """Yield all tensors of a model, those of graphs inside of operators too."""
    places = [(model.graph, 0)] + [(function, 0) for function in model.functions]
    while places:
        place, depth = places.pop()
        if depth > DEEPEST:
            raise OnnxError(message(f"{label}: graphs are nested deeper than {DEEPEST} levels"))
        yield from getattr(place, "initializer", ())
        for node in place.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                graphs = [attribute.g] if attribute.HasField("g") else []
                places += [(graph, depth + 1) for graph in (*graphs, *attribute.graphs)]


def _bring(tensor: Any, folder: Path | None, label: str) -> None:
    """Read what a tensor's file holds into the tensor."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(
            message(
                f"{label}: the tensor {tensor.name!r} is in the file {location!r}",
                need="a model whose tensors are in it, where no folder is known",
                hint="mg.from_onnx(path)",
            )
        )
    path = folder / location
    inside = location and path.resolve().is_relative_to(folder)
    if not inside or "\\" in location or os.path.isabs(location):
        raise OnnxError(
            message(
                f"{label}: the tensor {tensor.name!r} names the file {location!r}",
                need="a file in the model's folder",
            )
        )
    size = _size(tensor)
    offset = _whole(entries.get("offset", "0"), "offset")
    with open_file(path.resolve(), OnnxError) as (file, length):
        count = _whole(entries.get("length", str(length - offset)), "length")
        if offset > length or count > length - offset or count != size:
            raise Damaged(
                f"the tensor {tensor.name!r} of {size} bytes is said to be {count} bytes from "
                f"{offset} of {str(path)!r}, which has {length}"
            )
        file.seek(offset)
        tensor.raw_data = file.read(count)
    del tensor.external_data[:]
    tensor.data_location = tensor.DEFAULT


def _whole(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Damaged(f"the {what} {text[:30]!r} of a tensor in a file is no whole number")
    return int(text)


def _size(tensor: Any) -> int:
    """Return how many bytes a tensor's elements are."""
    bits = np.dtype(library().helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize * 8
    name = library().TensorProto.DataType.Name(tensor.data_type)
    bits = {"4": 4, "2": 2}.get(name[-1], bits) if name.startswith(("INT", "UINT")) else bits
    bits = 4 if name == "FLOAT4E2M1" else bits
    return (_count(tensor) * bits + 7) // 8


def _count(tensor: Any) -> int:
    count = 1
    for extent in tensor.dims:
        if extent < 0:
            raise Damaged(f"the tensor {tensor.name!r} has the extent {extent}")
        count *= extent
        if count > _LARGEST_EXTENT:
            raise Damaged(f"the tensor {tensor.name!r} has more than 2**63 elements")
    return count


def element_of(number: int) -> str:
    """Return the name of an element type of ONNX."""
    proto = library().TensorProto.DataType
    return str(proto.Name(number)) if number in proto.values() else f"number {number}"


def dtype_of(number: int) -> np.dtype | None:
    """Return the dtype of an element type of ONNX; None where there is none here."""
    name = element_of(number)
    try:
        return canonical(_DTYPES.get(name, name.lower()))
    except (TypeError, ValueError):
        return None


def array_of(tensor: Any) -> np.ndarray:
    """Return a tensor's elements, in ONNX's own dtypes; strings as objects.

    raises Damaged: If it has not as many elements as it says.
    """
    _count(tensor)
    if len(tensor.dims) > 64:
        raise Damaged(f"the tensor {tensor.name!r} has {len(tensor.dims)} axes, at most 64 can be")
    if tensor.HasField("segment"):
        raise Damaged(f"the tensor {tensor.name!r} is in segments")
    array = library().numpy_helper.to_array(tensor)
    return np.asarray(array, array.dtype.newbyteorder("="))


def attribute_of(attribute: Any) -> Any:
    """Return the value of an attribute: numbers, texts, arrays, graphs, or lists of these."""
    value = library().helper.get_attribute_value(attribute)
    if attribute.type == attribute.TENSOR:
        return array_of(value)
    if attribute.type == attribute.STRING:
        return value.decode("utf-8", "replace")
    if attribute.type == attribute.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    if attribute.type in (attribute.INTS, attribute.FLOATS, attribute.GRAPHS, attribute.TENSORS):
        return list(value)
    return value
