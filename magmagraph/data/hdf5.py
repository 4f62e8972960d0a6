"""HDF5: arrays of a file, read whole or where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingFileError, message
from ..types import FilePath

__all__ = ["read_hdf5"]


def read_hdf5(
    path: FilePath, names: str | Sequence[str] | None = None
) -> Any:
    """Read arrays of a file of the HDF5 format.

    Parameters
    ----------
    path : path-like
        The file.
    names : str or sequence of str, optional
        The data sets, by their paths within the file (``"train/images"``). Default: all.

    Returns
    -------
    numpy.ndarray, or dict of str to numpy.ndarray
        The array where one name is given, else the arrays by their names.

    Raises
    ------
    DataError
        If the file cannot be read, is not of this format, has no such data set or none of numbers;
        or h5py is not installed.

    Notes
    -----
    It takes the library h5py: ``pip install magmagraph[data]``.
    """
    h5py = _library()
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(message(f"{path} cannot be read: there is no such file"))
    try:
        with h5py.File(path, "r") as file:
            present: list[str] = []
            file.visititems(
                lambda name, item: present.append(name) if isinstance(item, h5py.Dataset) else None
            )
            wanted = present if names is None else [names] if isinstance(names, str) else names
            for name in wanted:
                if name.strip("/") not in present:
                    raise DataError(
                        message(
                            f"{path} has no data set {name!r}",
                            need=f"one of {', '.join(present) or 'none: the file is empty'}",
                        )
                    )
            found = {name: _numbers(path, name, file[name]) for name in wanted}
    except OSError as error:
        raise DataError(
            message(
                f"{path} is truncated, corrupted, or not an HDF5 file: {error}",
                need="a whole file of this format",
            )
        ) from error
    return found[names] if isinstance(names, str) else found


def _numbers(path: Path, name: str, data: Any) -> NDArray[Any]:
    array = np.asarray(data[()])
    if array.dtype.kind not in "biufc":
        raise DataError(
            message(f"{path}: the data set {name!r} is of dtype {array.dtype}", need="numbers")
        )
    return array


def _library() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            message("HDF5 files are read by h5py, which is not installed",
                    mend="pip install magmagraph[data]")
        ) from error
    return h5py
