"""HDF5: arrays of a file, read whole or where they lie."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError, MissingFileError, message
from ..files.arrays import checked_size
from ..files.reading import open_file, reading, too_large, unpacked_limit
from ..types import FilePath

__all__ = ["read_hdf5"]

# By their numbers: deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and lzf of h5py.
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}


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
        reads its values from other files (external or virtual), unpacks to more than
        `mg.config.unpacked_size`; or h5py is not installed.

    Notes
    -----
    It takes the library h5py: ``pip install magmagraph[data]``.
    """
    h5py = _library()
    if not os.path.isfile(path):
        raise MissingFileError(message(f"{path} cannot be read: there is no such file"))
    with (
        open_file(path) as (_, length),
        reading(
            path,
            "is truncated, corrupted, or not an HDF5 file",
            need="a whole file of this format",
        ),
        h5py.File(path, "r") as file,
    ):
        present: list[str] = []
        # Links, to other files as well, are not followed.
        file.visititems(
            lambda name, item: present.append(name) if isinstance(item, h5py.Dataset) else None
        )
        wanted = present if names is None else [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name.strip("/") not in present:
                raise DataError(
                    message(
                        f"{path} has no data set {name!r}",
                        need=f"one of {', '.join(present) or 'none: the file is empty'}",
                    )
                )
        _check(path, {name: file[name] for name in wanted}, length)
        found = {name: np.asarray(file[name][()]) for name in wanted}
    return found[names] if isinstance(names, str) else found


def _check(path: str | os.PathLike[str], sets: Mapping[str, Any], length: int) -> None:
    """Raise unless data sets hold numbers of this file, and are within the limit together."""
    total, limit = 0, unpacked_limit(length)
    for name, data in sets.items():
        what = f"{path}: the data set {name!r}"
        if data.dtype.kind not in "biufc" or data.shape is None:
            raise DataError(message(f"{what} is of dtype {data.dtype}", need="numbers"))
        if data.is_virtual or data.external:
            raise DataError(
                message(
                    f"{what} is read from other files",
                    need="values in this file: another one may be any file of this machine",
                    mend="write the values into one file",
                )
            )
        filters = {
            data.id.get_create_plist().get_filter(index)[0]
            for index in range(data.id.get_create_plist().get_nfilters())
        }
        if not filters <= _FILTERS:
            raise DataError(
                message(
                    f"{what} is packed by the filters {sorted(filters - _FILTERS)}",
                    need="the filters of HDF5 itself, or lzf; others are loaded as libraries",
                )
            )
        total += checked_size(map(int, data.shape), data.dtype.itemsize, f"the data set {name!r}")
        if total > limit:
            raise too_large(f"the data set {name!r}", total, limit)


def _library() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            message("HDF5 files are read by h5py, which is not installed",
                    mend="pip install magmagraph[data]")
        ) from error
    return h5py
