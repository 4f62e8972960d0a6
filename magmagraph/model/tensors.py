"""The safetensors format: named arrays in one piece of bytes, behind a header in JSON.

Eight bytes hold the length of the header, little-endian. The header gives each name a dtype, a
shape, and where its bytes lie behind the header; the key "__metadata__" holds texts by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DTypeError, message
from ..files.arrays import checked_size
from ..files.reading import Damaged, parse_json
from ..files.schema import LARGEST, items, mapping, one_of, row, table, text, whole

__all__ = ["packed", "unpacked"]

_DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}
_CODES = {np.dtype(form): code for code, form in _DTYPES.items()}
_METADATA = "__metadata__"
_WHOLE = whole(-LARGEST)  # those that are too small do not fill their place
_TEXTS = mapping(text())
_ENTRY = table(
    {
        "dtype": one_of(*_DTYPES),
        "shape": items(_WHOLE, 64),
        "data_offsets": row(_WHOLE, _WHOLE),
    }
)
_LENGTH = 8  # bytes of the header's length, and what the header is filled up to a multiple of


def packed(tensors: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    DTypeError
        If the format has no such dtype.

    Examples
    --------
    >>> content = packed({"w": np.arange(3.0)}, {"made by": "hand"})
    >>> unpacked(content)
    ({'w': array([0., 1., 2.])}, {'made by': 'hand'})
    """
    header: dict[str, Any] = {_METADATA: dict(texts)}
    parts = []
    place = 0
    # Large items first: all lie on multiples of their size then.
    for name in sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name)):
        array = tensors[name]
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _CODES:
            raise DTypeError(
                message(
                    f"{name!r} is {array.dtype.name}, which files of weights do not hold",
                    need=f"one of {', '.join(known.name for known in _CODES)}",
                )
            )
        content = array.astype(dtype, copy=False).tobytes()
        header[name] = {
            "dtype": _CODES[dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + len(content)],
        }
        place += len(content)
        parts.append(content)
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % _LENGTH)
    return b"".join([len(said).to_bytes(_LENGTH, "little"), said, *parts])


def unpacked(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of a file, and its texts.

    Raises
    ------
    Damaged
        If it is no file of this format, or not whole; it is a ValueError.
    """
    stated = int.from_bytes(content[:_LENGTH], "little")
    start = _LENGTH + stated
    if len(content) < _LENGTH or start > len(content):
        raise Damaged("the header is not whole")
    header = parse_json(content[_LENGTH:start], "the header")
    if not isinstance(header, dict):
        raise Damaged("the header is no table")
    texts = header.pop(_METADATA, {})
    try:
        _TEXTS(texts, _METADATA)
    except Damaged as error:
        raise Damaged(f"the header's metadata are no texts: {error}") from None
    tensors = {}
    spans = []
    for name, entry in header.items():
        try:
            _ENTRY(entry, name)
        except Damaged as error:
            raise Damaged(f"the header's entry of {name!r} is wrong: {error}") from None
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
        first, last = entry["data_offsets"]
        try:
            fits = last - first == checked_size(shape, dtype.itemsize, repr(name))
        except Damaged as error:
            raise Damaged(f"{name!r} does not fill its place: {error}") from None
        if not fits or not 0 <= first <= last <= len(content) - start:
            raise Damaged(f"{name!r} does not fill its place")
        spans.append((first, last))
        held = np.frombuffer(content, dtype, math.prod(shape), start + first).reshape(shape)
        tensors[name] = held.astype(dtype.newbyteorder("="))  # a copy, aligned, and writable
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise Damaged("there are holes between the tensors, or they overlap")
        end = last
    if end != len(content) - start:
        raise Damaged(f"{end} bytes of tensors are told, and there are {len(content) - start}")
    return tensors, texts
