"""Files of NumPy's own formats, read without ever running what they may hold (no pickle)."""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..types import FilePath
from .files import unreadable

# What NumPy and the zip reader raise for content that is cut short, damaged or pickled.
_DAMAGE = (ValueError, EOFError, OSError, KeyError, NotImplementedError,
           zipfile.BadZipFile, zlib.error)


def read_npy(path: FilePath, *, mapped: bool = False) -> NDArray[Any]:
    """Read the array in a file that `numpy.save` wrote.

    Parameters
    ----------
    path : path-like
        The file. Arrays of Python objects are refused, for they would have to be unpickled.
    mapped : bool
        True leaves the array in the file: the system reads what is looked at, as it is looked at.
        It is read-only.

    Returns
    -------
    numpy.ndarray
        The array, with the shape and dtype of the file.

    Raises
    ------
    DataError
        If the file cannot be read, is truncated, or is not of this format.

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
    if mapped:
        return _mapped_file(Path(path))
    with _opened(Path(path)) as array:
        if not isinstance(array, np.ndarray):
            raise DataError(message(f"{path} is an archive of arrays", mend="use read_npz"))
        return array


def read_npz(
    path: FilePath, *, mapped: bool = False
) -> dict[str, NDArray[Any]]:
    """Read all arrays in an archive that `numpy.savez` wrote.

    Parameters
    ----------
    path : path-like
        The file. Arrays of Python objects are refused, for they would have to be unpickled.
    mapped : bool
        True leaves arrays in the file, as `read_npy` does; those that `numpy.savez_compressed`
        wrote are read.

    Returns
    -------
    dict of str to numpy.ndarray
        The arrays by their names, in the order of the archive.

    Raises
    ------
    DataError
        If the file cannot be read, is truncated, or is not of this format.

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
    with _opened(Path(path)) as archive:
        if isinstance(archive, np.ndarray):
            raise DataError(message(f"{path} holds one array, not many", mend="use read_npy"))
        if mapped:
            return {name: _member(Path(path), archive, name) for name in archive.files}
        return {name: archive[name] for name in archive.files}


def _mapped_file(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            return _mapped(path, file, 0)
    except DataError:
        raise
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    """Return an array of an archive where it lies, or read it where it is compressed."""
    key = name if name in archive.zip.namelist() else f"{name}.npy"
    entry = archive.zip.getinfo(key)
    if entry.compress_type != zipfile.ZIP_STORED:
        found: NDArray[Any] = archive[name]
        return found
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(30)
        # The lengths of the name and of what follows it, in this entry's own header.
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return _mapped(path, file, entry.header_offset + 30 + lengths)


def _mapped(path: Path, file: Any, start: int) -> NDArray[Any]:
    """Return the array whose header begins at a place of a file, read-only, where it lies."""
    file.seek(start)
    if file.read(2) == b"PK":
        raise DataError(message(f"{path} is an archive of arrays", mend="use read_npz"))
    file.seek(start)
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = read[version[0]](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    found: NDArray[Any] = np.memmap(
        path, dtype, "r", file.tell(), shape, "F" if fortran else "C"
    )
    return found


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Give the array in a file, or its archive, and say what is wrong with the file if it is."""
    try:
        # NumPy would leave a file that it opens itself open where the content is damaged.
        with path.open("rb") as file:
            yield np.load(file, allow_pickle=False)
    except DataError:
        raise
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: BaseException) -> DataError:
    """Say which file could not be read, and what the reader found."""
    if isinstance(error, OSError) and error.strerror is not None:
        return unreadable(path, error)
    return DataError(
        message(
            f"{path} is truncated, corrupted, or not a file of NumPy's: {error}",
            need="a whole file written by numpy.save or numpy.savez, without Python objects",
        )
    )
