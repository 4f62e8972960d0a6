"""The IDX format: a magic number that gives dtype and rank, the extents, then the values."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..types import FilePath
from .files import unreadable

# The third byte of a file names the dtype of its values, which are big-endian.
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: FilePath) -> NDArray[Any]:
    """Read the array in a file of the IDX format, gzipped or plain.

    Parameters
    ----------
    path : path-like
        The file. Whether it is gzipped is seen from its first bytes, not from its name.

    Returns
    -------
    numpy.ndarray
        The array, with the extents and the dtype that the file states, in native byte order.

    Raises
    ------
    DataError
        If the file cannot be read, is no IDX file, or holds fewer or more values than it states.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "labels-idx1-ubyte"
    ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(file)
    array([7, 2, 1], dtype=uint8)
    """
    path = Path(path)
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise DataError(
            message(
                f"{path} is not an IDX file: it begins with {content[:4].hex(' ') or 'nothing'}",
                need="two zero bytes, a dtype code (08 09 0b 0c 0d 0e), the number of axes",
            )
        )
    dtype, rank = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise DataError(
            message(
                f"{path} is truncated: its header ends after {len(content)} bytes",
                need=f"{start} bytes for the extents of {rank} axes",
                mend="copy or download the file again",
            )
        )
    shape = struct.unpack(f">{rank}I", content[4:start])
    stated = math.prod(shape) * dtype.itemsize
    held = len(content) - start
    if held != stated:
        wrong = "is truncated" if held < stated else "has bytes after its end"
        raise DataError(
            message(
                f"{path} {wrong}: it holds {held} bytes of values",
                need=f"{stated} bytes, for shape {shape} of {dtype.name}",
                mend="copy or download the file again",
            )
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def _content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzipped."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            message(
                f"{path} is truncated or corrupted: {error}",
                need="a whole gzip file",
                mend="copy or download the file again",
            )
        ) from error
