"""HDF5: arrays of a file.

A damaged file can make the HDF5 library run for ever, crash, or take all memory. It runs in a
process of its own, which is ended when no more bytes come.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingFileError, message
from ..files.arrays import checked_size
from ..files.reading import Damaged, open_file, reading, too_large, unpacked_limit
from ..ir.docstrings import documented
from ..ir.types import FilePath

__all__ = ["read_hdf5"]

# By their numbers: deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and lzf of h5py.
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
PATIENCE = 60.0  # seconds in which some bytes have to come
_PIECE = 1 << 26  # bytes that are read at once
_SPARE = 1 << 30  # bytes of memory beside those of the values
_LINUX = sys.platform == "linux"


@documented
def read_hdf5(
    path: FilePath, names: str | Sequence[str] | None = None
) -> Any:
    """Read arrays of a file of the HDF5 format.

    path (path-like): The file.
    names (str or sequence of str, optional): The data sets, by their paths within the file
        (``"train/images"``). Default: all.
    returns (numpy.ndarray, or dict of str to numpy.ndarray): The array where one name is given,
        else the arrays by their names.
    raises DataError: If the file cannot be read, is not of this format, has no such data set or
        none of numbers; reads its values from other files (external or virtual), unpacks to more
        than `mg.config.unpacked_size`; or h5py is not installed.

    Notes
    -----
    It takes the library h5py: ``pip install magmagraph[data]``.
    """
    _library()
    if not os.path.isfile(path):
        raise MissingFileError(message(f"{path} cannot be read: there is no such file"))
    with open_file(path) as (_, length):
        pass
    chosen = None if names is None else [names] if isinstance(names, str) else list(names)
    need = "a whole file of this format"
    with reading(path, "is truncated, corrupted, or not an HDF5 file", need=need):
        arrays = _from_process(path, chosen, unpacked_limit(length) + _SPARE)
    return arrays[names] if isinstance(names, str) else arrays


def _from_process(
    path: str | os.PathLike[str], names: list[str] | None, memory: int
) -> dict[str, NDArray[Any]]:
    """Return the data sets that a process of its own reads."""
    order = json.dumps([os.fspath(path), names, memory])
    places = os.pathsep.join(place for place in sys.path if place)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", "from magmagraph.data.hdf5 import serve; serve()", order],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        # No libraries are loaded for filters.
        env={**os.environ, "PYTHONPATH": places, "HDF5_PLUGIN_PRELOAD": "::"},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            stream = _Stream(process.stdout.fileno())
            answer = json.loads(stream.line())
            if isinstance(answer, str):
                raise Damaged(answer) if str(path) not in answer else DataError(answer)
            arrays = {name: np.empty(shape, dtype) for name, dtype, shape in answer}
            for array in arrays.values():
                stream.fill(array)
            return arrays
        finally:
            process.kill()


class _Stream:
    """The bytes that a process sends, which has to go on sending."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def _read(self, most: int) -> bytes:
        if not select.select([self.handle], [], [], PATIENCE)[0]:
            raise Damaged(f"reading it makes no progress for {PATIENCE:g} s")
        part = os.read(self.handle, most)
        if not part:
            raise Damaged("the HDF5 library fails while it reads it")
        return part

    def line(self) -> bytes:
        """Return what is sent up to the end of a line."""
        content = b""
        while not content.endswith(b"\n"):
            content += self._read(1)
        return content

    def fill(self, array: NDArray[Any]) -> None:
        """Fill an array with what is sent."""
        view = array.reshape(-1).view(np.uint8).data
        while view:
            part = self._read(min(len(view), _PIECE))
            view[: len(part)] = part
            view = view[len(part) :]


def serve() -> None:
    """Read data sets, and send them: in a process of its own, which `read_hdf5` starts."""
    import resource

    path, names, memory = json.loads(sys.argv[1])
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if _LINUX else 0
    limit = pages * resource.getpagesize() + memory
    if _LINUX:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = sys.stdout.buffer
    begun = False
    try:
        with _library().File(path, "r") as file:
            sets = _chosen(path, file, names)
            about = [(name, data.dtype.newbyteorder("=").str, data.shape)
                     for name, data in sets.items()]  # fmt: skip
            output.write(json.dumps(about).encode() + b"\n")
            begun = True
            for data in sets.values():
                for part in _parts(data):
                    output.write(np.ascontiguousarray(part, part.dtype.newbyteorder("=")).data)
                    output.flush()
    except Exception as error:  # the other process raises it
        if begun:  # values are expected, and their end says that there are no more
            sys.exit(1)
        output.write(json.dumps(str(error) or type(error).__name__).encode() + b"\n")
    output.flush()


def _parts(data: Any) -> Iterator[NDArray[Any]]:
    """Yield the values of a data set, some rows at a time."""
    if data.ndim == 0 or data.size == 0:
        yield np.asarray(data[()])
        return
    rows = max(1, _PIECE * len(data) // max(1, data.size * data.dtype.itemsize))
    for start in range(0, len(data), rows):
        yield np.asarray(data[start : start + rows])


def _chosen(path: str, file: Any, names: list[str] | None) -> dict[str, Any]:
    """Return data sets by name, checked; all that there are without names."""
    dataset = _library().Dataset
    present: list[str] = []
    # Links, to other files as well, are not followed.
    file.visititems(
        lambda name, item: present.append(name) if isinstance(item, dataset) else None
    )
    for name in names or ():
        if name.strip("/") not in present:
            raise DataError(
                message(
                    f"{path} has no data set {name!r}",
                    need=f"one of {', '.join(present) or 'none: the file is empty'}",
                )
            )
    sets = {name: file[name] for name in (present if names is None else names)}
    _check(path, sets, os.path.getsize(path))
    return sets


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
                    hint="write the values into one file",
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
            wrong, most, allowed = too_large(f"the data set {name!r}", total, limit).parts
            raise DataError(message(f"{path}: {wrong}", need=most, hint=allowed))


def _library() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            message("HDF5 files are read by h5py, which is not installed",
                    hint="pip install magmagraph[data]")
        ) from error
    return h5py
