"""Write and read files of weights in the safetensors format, whole or not at all.

The library safetensors writes the bytes and checks them when they are read. The metadata of the
header has the key "magmagraph": the kind of the file, a checksum of the tensors, and a checksum of
that text.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dtypes import canonical
from ..errors import DataError, DTypeError, MissingFileError, message
from ..files.reading import LARGEST_JSON, Damaged, check_length, parse_json, read_file, reading
from ..files.writing import write_file
from ..ir.types import FilePath
from . import schema

__all__ = ["content_of", "packed", "read", "read_weights", "unpacked", "write"]

_KEY = "magmagraph"
_SEAL = "said"
_VERSION = 1
_LENGTH = 8  # bytes of the header's length
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}


def _checksum(tensors: Mapping[str, np.ndarray]) -> int:
    total = 0
    for name in sorted(tensors):
        array = tensors[name]
        total = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return total


def _seal(about: Mapping[str, Any]) -> int:
    """Return the checksum of the header."""
    return zlib.crc32(json.dumps(about).encode())


def write(path: FilePath, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write tensors and a header; an old file stays until the new one is complete.

    See `magmagraph.files.writing`.

    Raises
    ------
    DTypeError
        If the format has no such dtype.
    PathError
        If there is no such folder, or the path is that of a folder.
    StorageError
        If the disk is full or refuses; what was there is as it was.
    """
    from safetensors.numpy import save  # not with `import magmagraph`

    arrays = {}
    for name, array in tensors.items():
        arrays[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        if array.dtype.name not in _DTYPES.values():
            raise DTypeError(
                message(
                    f"{name!r} is {array.dtype.name}, which files of weights do not hold",
                    need=f"one of {', '.join(_DTYPES.values())}",
                )
            )
    header = {**about, "version": _VERSION, "checksum": _checksum(arrays)}
    # Not the library's save_file: that replaces the path by its own rename, and does not flush it.
    write_file(path, save(arrays, {_KEY: json.dumps({**header, _SEAL: _seal(header)})}))


def _unpacked(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a file, writable, and the metadata of its header.

    Raises
    ------
    Damaged, SafetensorError
        If the bytes are no file of this format, or not whole.
    """
    from safetensors import deserialize

    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    if end <= len(content):
        check_length("the header", end - _LENGTH, LARGEST_JSON)
    parts = deserialize(content)  # type: ignore[no-untyped-call]
    # The library does not return the metadata of bytes.
    header = parse_json(content[_LENGTH:end], "the header")
    tensors = {}
    for name, part in parts:
        if part["dtype"] not in _DTYPES:
            raise Damaged(f"{name!r} has the dtype {part['dtype']}")
        dtype = canonical(_DTYPES[part["dtype"]]).newbyteorder("<")
        array = np.frombuffer(part["data"], dtype).reshape(part["shape"])
        tensors[name] = array.astype(dtype.newbyteorder("="), copy=False)
    return tensors, header.get("__metadata__", {})


def unpacked(content: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file that anybody wrote.

    Raises
    ------
    Damaged, SafetensorError
        If the bytes are no file of this format, or not whole.
    """
    return _unpacked(content)[0]


def packed(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return tensors as the bytes of a safetensors file, in the form that torch's loaders read."""
    from safetensors.numpy import save  # not with `import magmagraph`

    return save(dict(tensors), {"format": "pt"})


def content_of(path: FilePath) -> bytes | None:
    """Return the bytes of a file, None where there is none; DataError where it cannot be read."""
    if not os.path.exists(path):
        return None
    return read_file(path)


def read(
    path: FilePath, kind: str | None = None, content: bytes | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors of a file, and its header.

    Parameters
    ----------
    path
        Of the file.
    kind
        What ``about["kind"]`` has to be.
    content
        The bytes of the file, where it was read before.

    Raises
    ------
    DataError
        If the file is missing (`MissingFileError`), of another kind, truncated, or damaged.
    """
    quoted = f"{str(path)!r}"
    need = "a file that save or a checkpoint wrote"
    if content is None:
        content = content_of(path)
    if content is None:
        raise MissingFileError(message(f"there is no file {quoted}", need=need))
    with reading(quoted, "is truncated, damaged, or no file of weights", need=need):
        tensors, header = _unpacked(content)
    if _KEY not in header:
        raise DataError(
            message(f"{quoted} holds tensors, and not what magmagraph says of them", need=need)
        )
    with reading(quoted, "is damaged"):
        about = parse_json(header[_KEY], _KEY)
        if not isinstance(about, dict):
            raise Damaged(f"{_KEY} is no table")
        seal = about.pop(_SEAL, None)  # older files have none
        if seal is not None and seal != _seal(about):
            raise Damaged("its checksum does not fit")
        version = about.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise DataError(message(f"{quoted} is of version {version}", hint="a newer magmagraph"))
        schema.about(about, _KEY)
        if _checksum(tensors) != about["checksum"]:
            raise Damaged("its checksum does not fit")
        for name in about.pop("bfloat16", ()):  # older files hold these as 16 bits of integers
            if name not in tensors or tensors[name].dtype != np.uint16:
                raise Damaged(f"{name!r} is no tensor of 16 bits")
            tensors[name] = tensors[name].view(canonical("bfloat16"))
    if kind is not None and about["kind"] != kind:
        raise DataError(
            message(
                f"{quoted} is a {about['kind']}",
                need=f"a {kind}",
                hint={
                    "model": "load(path) and load_weights(path) take what save wrote",
                }.get(about["kind"]),
            )
        )
    return tensors, about


def read_weights(path: FilePath) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights in a file of a model or a checkpoint, and its header.

    Raises
    ------
    DataError
        As `read`.
    """
    tensors, about = read(path)
    if about["kind"] == "checkpoint":
        prefix = "weight/"  # beside the state of the optimizer and of callbacks
        tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    return tensors, about
