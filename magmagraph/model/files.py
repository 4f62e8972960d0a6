"""Files of weights: safetensors, written whole or not at all, with a header in JSON.

The header's metadata has the key "magmagraph": what the file is, a checksum of the tensors, and one
of what is said there.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dtypes import canonical
from ..errors import DataError, MissingFileError, message
from ..files.reading import Damaged, parse_json, read_file, reading
from ..files.writing import write_file
from ..ir.types import FilePath
from . import schema
from .tensors import packed, unpacked

__all__ = ["content_of", "read", "read_weights", "write"]

_KEY = "magmagraph"
_SEAL = "said"
_VERSION = 1


def _checksum(tensors: Mapping[str, np.ndarray]) -> int:
    total = 0
    for name in sorted(tensors):
        array = tensors[name]
        total = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return total


def _seal(about: Mapping[str, Any]) -> int:
    """Return the checksum of what is said of the tensors."""
    return zlib.crc32(json.dumps(about).encode())


def write(path: FilePath, tensors: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Write tensors and what is to be known about them; a file that was there stays until then.

    See `magmagraph.files.writing`.

    Raises
    ------
    PathError
        If there is no such folder, or the path is that of a folder.
    StorageError
        If the disk is full or refuses; what was there is as it was.
    """
    held = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    # Other readers of NumPy's arrays know these of other frameworks only.
    narrow = [name for name, array in held.items() if array.dtype.name == "bfloat16"]
    held.update((name, held[name].view(np.uint16)) for name in narrow)
    header = {**about, "bfloat16": narrow, "version": _VERSION, "checksum": _checksum(held)}
    content = packed(held, {_KEY: json.dumps({**header, _SEAL: _seal(header)})})
    write_file(path, content)


def content_of(path: FilePath) -> bytes | None:
    """Return the bytes of a file, None where there is none; DataError where it cannot be read."""
    if not os.path.exists(path):
        return None
    return read_file(path)


def read(
    path: FilePath, kind: str | None = None, content: bytes | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors of a file, and what is known about them.

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
    shown = f"{str(path)!r}"
    need = "a file that save or a checkpoint wrote"
    if content is None:
        content = content_of(path)
    if content is None:
        raise MissingFileError(message(f"there is no file {shown}", need=need))
    with reading(shown, "is truncated, damaged, or no file of weights", need=need):
        tensors, header = unpacked(content)
    if _KEY not in header:
        raise DataError(
            message(f"{shown} holds tensors, and not what magmagraph says of them", need=need)
        )
    with reading(shown, "is damaged"):
        about = parse_json(header[_KEY], _KEY)
        if not isinstance(about, dict):
            raise Damaged(f"{_KEY} is no table")
        seal = about.pop(_SEAL, None)  # older files have none
        if seal is not None and seal != _seal(about):
            raise Damaged("its checksum does not fit")
        version = about.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise DataError(message(f"{shown} is of version {version}", hint="a newer magmagraph"))
        schema.about(about, _KEY)
        if _checksum(tensors) != about["checksum"]:
            raise Damaged("its checksum does not fit")
        for name in about["bfloat16"]:
            if name not in tensors or tensors[name].dtype != np.uint16:
                raise Damaged(f"{name!r} is no tensor of 16 bits")
            tensors[name] = tensors[name].view(canonical("bfloat16"))
    if kind is not None and about["kind"] != kind:
        raise DataError(
            message(
                f"{shown} is a {about['kind']}",
                need=f"a {kind}",
                hint={
                    "model": "load(path) and load_weights(path) take what save wrote",
                }.get(about["kind"]),
            )
        )
    return tensors, about


def read_weights(path: FilePath) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights in a file of a model or of a checkpoint, and what is known about them.

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
