"""The IDX format: a magic number that gives dtype and rank, the extents, then the values."""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..files.arrays import checked_size
from ..files.reading import gunzipped, read_file, reading
from ..ir.docstrings import documented
from ..ir.types import FilePath

# The third byte of a file names the dtype of its values, which are big-endian.
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_LONGEST = 4 + 4 * 255  # bytes of a header


@documented
def read_idx(path: FilePath) -> NDArray[Any]:
    """Read the array in a file of the IDX format, gzipped or plain.

    path (path-like): The file. Whether it is gzipped is seen from its first bytes, not from its
        name.
    returns (numpy.ndarray): The array, with the extents and the dtype that the file states, in
        native byte order.
    raises DataError: If the file cannot be read, is no IDX file, or holds fewer or more values than
        it states.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "labels-idx1-ubyte"
    ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(file)
    array([7, 2, 1], dtype=uint8)
    """
    content = read_file(path)
    with reading(path, "is truncated or corrupted", hint="copy or download the file again"):
        if content[:2] == b"\x1f\x8b":
            content = gunzipped(content, lambda first: _Header(path, first).length, _LONGEST)
        header = _Header(path, content)
        if len(content) != header.length:
            wrong = "is truncated" if len(content) < header.length else "has bytes after its end"
            raise DataError(
                message(
                    f"{path} {wrong}: it holds {len(content) - header.start} bytes of values",
                    need=f"{header.length - header.start} bytes, for shape {header.shape} of "
                    f"{header.dtype.name}",
                    hint="copy or download the file again",
                )
            )
        values = np.frombuffer(content, header.dtype, offset=header.start).reshape(header.shape)
        return values.astype(header.dtype.newbyteorder("="))


class _Header:
    """What a file states of itself: dtype, extents, where its values start and end."""

    def __init__(self, path: str | os.PathLike[str], content: bytes) -> None:
        if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
            raise DataError(
                message(
                    f"{path} is not an IDX file: it begins with "
                    f"{content[:4].hex(' ') or 'nothing'}",
                    need="two zero bytes, a dtype code (08 09 0b 0c 0d 0e), the number of axes",
                )
            )
        self.dtype, axes = np.dtype(_DTYPES[content[2]]), content[3]
        self.start = 4 + 4 * axes
        if len(content) < self.start:
            raise DataError(
                message(
                    f"{path} is truncated: its header ends after {len(content)} bytes",
                    need=f"{self.start} bytes for the extents of {axes} axes",
                    hint="copy or download the file again",
                )
            )
        self.shape = struct.unpack(f">{axes}I", content[4 : self.start])
        self.length = self.start + checked_size(self.shape, self.dtype.itemsize)
