"""Files of NumPy's own formats, read without ever running what they may hold (no pickle)."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..files.arrays import checked_size, npy_header
from ..files.arrays import read_npy as read_array
from ..files.reading import Archive, Damaged, TooLarge, open_file, reading
from ..ir.docstrings import documented
from ..ir.types import FilePath

_ZIP = b"PK"


@documented
def read_npy(path: FilePath, *, mapped: bool = False) -> NDArray[Any]:
    """Read the array in a file that `numpy.save` wrote.

    path (path-like): The file. Arrays of Python objects are refused, for they would have to be
        unpickled.
    mapped (bool): True leaves the array in the file: the system reads what is looked at, as it is
        looked at. It is read-only.
    returns (numpy.ndarray): The array, with the shape and dtype of the file.
    raises DataError: If the file cannot be read, is truncated, or is not of this format.

    See Also
    --------
    read_npz : Read an archive of several arrays.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "ramp.npy"
    ...     np.save(file, np.arange(3))
    ...     read_npy(file)
    array([0, 1, 2])
    """
    with _opened(path) as (file, length):
        if _is_archive(file):
            raise DataError(message(f"{path} is an archive of arrays", hint="use read_npz"))
        return _mapped(path, file, 0, length) if mapped else read_array(file, length)


@documented
def read_npz(
    path: FilePath, *, mapped: bool = False
) -> dict[str, NDArray[Any]]:
    """Read all arrays in an archive that `numpy.savez` wrote.

    path (path-like): The file. Arrays of Python objects are refused, for they would have to be
        unpickled.
    mapped (bool): True leaves arrays in the file, as `read_npy` does; those that
        `numpy.savez_compressed` wrote are read.
    returns (dict of str to numpy.ndarray): The arrays by their names, in the order of the archive.
    raises DataError: If the file cannot be read, is truncated, or is not of this format.

    See Also
    --------
    read_npy : Read a file of one array.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "pair.npz"
    ...     np.savez(file, x=np.arange(3), y=np.zeros(2))
    ...     sorted(read_npz(file))
    ['x', 'y']
    """
    with _opened(path) as (file, length):
        if not _is_archive(file):
            npy_header(file)  # raises where it is no array either
            raise DataError(message(f"{path} holds one array, not many", hint="use read_npy"))
        archive = Archive(file, length)
        return {
            name.removesuffix(".npy"): _member(path, file, archive, name, mapped)
            for name in archive.members
        }


def _is_archive(file: BinaryIO) -> bool:
    start = file.read(len(_ZIP))
    file.seek(0)
    return start == _ZIP


def _member(
    path: str | os.PathLike[str], file: BinaryIO, archive: Archive, name: str, mapped: bool
) -> NDArray[Any]:
    """Return an array of an archive; mapped, where it is in the file, unless it is compressed."""
    entry = archive.members[name]
    try:
        if not mapped or entry.compress_type != zipfile.ZIP_STORED:
            with archive.open(name) as (member, size):
                return read_array(member, size, whole=True)
        file.seek(entry.header_offset)
        header = file.read(30)
        # The lengths of the name and of what follows it, in this entry's own header.
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = entry.header_offset + 30 + lengths
        return _mapped(path, file, start, start + entry.file_size)
    except TooLarge:
        raise
    except Damaged as error:
        raise Damaged(f"array {name!r}: {error}") from error


def _mapped(
    path: str | os.PathLike[str], file: BinaryIO, start: int, end: int
) -> NDArray[Any]:
    """Return the array whose header begins at a place of a file, read-only, where it is."""
    file.seek(start)
    shape, fortran, dtype = npy_header(file)
    size = checked_size(shape, dtype.itemsize)
    left = min(end, os.fstat(file.fileno()).st_size) - file.tell()
    if size > left:
        raise Damaged(f"it has {left} bytes of elements, and {dtype}{list(shape)} takes {size}")
    if size == 0:
        return np.empty(shape, dtype)
    found: NDArray[Any] = np.memmap(
        file, dtype, "r", file.tell(), shape, "F" if fortran else "C"
    )
    return found


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file, and say which one it is where its content is damaged."""
    with (
        open_file(path) as opened,
        reading(
            path,
            "is truncated, corrupted, or not a file of NumPy's",
            need="a whole file written by numpy.save or numpy.savez, without Python objects",
        ),
    ):
        yield opened
