"""Files of weights: safetensors, written whole or not at all, with a header in JSON.

The header's metadata has the key "magmagraph": what the file is, a checksum of the tensors, and one
of what is said there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..dtypes import canonical
from ..errors import ConfigError, DataError, MissingFileError, StorageError, message
from ..types import FilePath
from .tensors import packed, unpacked

__all__ = ["content_of", "read", "write"]

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

    The bytes go into a file beside it, reach the disk, and take its name in one step: whoever reads
    finds the old file or the new one, whenever the writer is killed.

    Raises
    ------
    StorageError
        If the disk is full or refuses; what was there is whole.
    """
    held = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    # Other readers of NumPy's arrays know these of other frameworks only.
    narrow = [name for name, array in held.items() if array.dtype.name == "bfloat16"]
    held.update((name, held[name].view(np.uint16)) for name in narrow)
    header = {**about, "bfloat16": narrow, "version": _VERSION, "checksum": _checksum(held)}
    content = packed(held, {_KEY: json.dumps({**header, _SEAL: _seal(header)})})
    place = Path(path)
    if place.is_dir():
        raise ConfigError(message(f"{str(place)!r} is a folder", need="the path of a file"))
    if not place.parent.is_dir():
        raise ConfigError(
            message(
                f"{str(place)!r} cannot be written: there is no folder {str(place.parent)!r}",
                mend=f"os.makedirs({str(place.parent)!r})",
            )
        )
    try:
        _replace(place, content)
    except OSError as error:
        raise _not_written(place, len(content), error) from error


def _replace(place: Path, content: bytes) -> None:
    handle, beside = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _not_written(place: Path, size: int, error: OSError) -> StorageError:
    free = ""
    with contextlib.suppress(OSError):
        free = f", where {shutil.disk_usage(place.parent).free} are free"
    made = StorageError(
        message(
            f"{str(place)!r} cannot be written: {error.strerror or error}",
            need=f"{size} bytes in {str(place.parent)!r}{free}",
            mend="make room there, or write elsewhere"
            + ("; the file that was there is whole" if place.exists() else ""),
        )
    )
    made.errno = error.errno
    return made


def content_of(path: FilePath) -> bytes | None:
    """Return the bytes of a file, None where there is none; DataError where it cannot be read."""
    place = Path(path)
    try:
        return place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(message(f"{str(place)!r} cannot be read: {error}")) from None


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
    place = Path(path)
    if content is None:
        content = content_of(place)
    if content is None:
        raise MissingFileError(
            message(
                f"there is no file {str(place)!r}",
                need="a file that save or a checkpoint wrote",
            )
        )
    try:
        tensors, header = unpacked(content)
    except ValueError as error:
        raise DataError(
            message(
                f"{str(place)!r} is truncated, damaged, or no file of weights: {error}",
                need="a file that save or a checkpoint wrote",
            )
        ) from None
    if _KEY not in header:
        raise DataError(
            message(
                f"{str(place)!r} holds tensors, and not what magmagraph says of them",
                need="a file that save or a checkpoint wrote",
            )
        )
    damaged = f"{str(place)!r} is damaged: its checksum does not fit"
    try:
        about: dict[str, Any] = json.loads(header[_KEY])
        seal = about.pop(_SEAL, None)  # older files have none
    except (AttributeError, TypeError, ValueError):  # no table, or no JSON
        raise DataError(message(damaged)) from None
    if seal is not None and seal != _seal(about):
        raise DataError(message(damaged))
    if about["version"] > _VERSION:
        raise DataError(
            message(f"{str(place)!r} is of version {about['version']}", mend="a newer magmagraph")
        )
    if _checksum(tensors) != about["checksum"]:
        raise DataError(message(damaged))
    for name in about["bfloat16"]:
        tensors[name] = tensors[name].view(canonical("bfloat16"))
    if kind is not None and about["kind"] != kind:
        raise DataError(
            message(
                f"{str(place)!r} is a {about['kind']}",
                need=f"a {kind}",
                mend={
                    "checkpoint": "fit(..., resume=path) takes checkpoints",
                    "model": "load(path) and load_weights(path) take what save wrote",
                }.get(about["kind"]),
            )
        )
    return tensors, about
