"""Files of NumPy's own formats, read without ever running what they may hold (no pickle)."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message

# What NumPy and the zip reader raise for content that is cut short, damaged or pickled.
_DAMAGE = (ValueError, EOFError, OSError, KeyError, NotImplementedError,
           zipfile.BadZipFile, zlib.error)


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the array in a file that `numpy.save` wrote.

    Parameters
    ----------
    path : path-like
        The file. Arrays of Python objects are refused, for they would have to be unpickled.

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
    with _opened(Path(path)) as array:
        if not isinstance(array, np.ndarray):
            raise DataError(message(f"{path} is an archive of arrays", mend="use read_npz"))
        return array


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays in an archive that `numpy.savez` wrote.

    Parameters
    ----------
    path : path-like
        The file. Arrays of Python objects are refused, for they would have to be unpickled.

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
        return {name: archive[name] for name in archive.files}


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
        return DataError(message(f"{path} cannot be read: {error.strerror}"))
    return DataError(
        message(
            f"{path} is truncated, corrupted, or not a file of NumPy's: {error}",
            need="a whole file written by numpy.save or numpy.savez, without Python objects",
        )
    )
