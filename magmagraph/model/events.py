"""Event files of scalars, in the form that TensorBoard reads.

A record is its length (uint64), a masked CRC-32C of that, the bytes, and a masked CRC-32C of
these; the bytes are an ``Event`` message of protocol buffers: wall time (field 1), step (2), and a
summary (5) of values with tag (1) and simple value (2). The first holds the version (3).
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from pathlib import Path
from typing import Any

from ..files.reading import Damaged, read_file, reading
from ..files.writing import storage_errors

__all__ = ["EventFile", "crc32c", "read_scalars"]

_number = itertools.count()


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the Castagnoli cyclic redundancy check of some bytes (RFC 3720, appendix B.4).

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


class EventFile:
    """A file that scalars are added to.

    Parameters
    ----------
    folder
        Made where it is missing; the file has a name that no other run has.
    """

    def __init__(self, folder: Any) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}.{next(_number)}"
        self.path = Path(folder) / name
        with storage_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "wb")  # noqa: SIM115 - closed by `close`
        self._record(_bytes(3, b"brain.Event:2"))

    def _record(self, rest: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + rest
        length = struct.pack("<Q", len(event))
        with storage_errors(self.path):
            self._file.write(length + _masked(length) + event + _masked(event))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add a number under a name, at a step."""
        held = _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        self._record(b"\x10" + _varint(step) + _bytes(5, _bytes(1, held)))

    def flush(self) -> None:
        """Let readers see what was added."""
        with storage_errors(self.path):
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with storage_errors(self.path):
            self._file.close()


def read_scalars(path: Any) -> list[tuple[str, int, float]]:
    """Return (tag, step, value) of the scalars in an event file that `EventFile` wrote.

    Raises
    ------
    DataError
        If a checksum does not fit, or a record is none.
    """
    content = read_file(path)
    found, at = [], 0
    with reading(path, "is no whole event file"):
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = content[at + 12 : at + 12 + length]
            if (
                _masked(content[at : at + 8]) != content[at + 8 : at + 12]
                or _masked(event) != content[at + 12 + length : at + 16 + length]
            ):
                raise Damaged(f"the record at byte {at} is damaged")
            at += 16 + length
            fields = _fields(event)
            if 5 in fields:
                value = _fields(_fields(fields[5])[1])
                (number,) = struct.unpack("<f", value[2])
                found.append((value[1].decode(), fields.get(2, 0), number))
    return found


def _fields(data: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            if shift > 63:
                raise Damaged("a number has more than ten bytes")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            found[key >> 3] = varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        found[key >> 3] = data[at : at + size]
        at += size
    return found
