"""CIFAR-10: its batches as bytes, as pickles and as archives of arrays.

Pickles are read by `pickled`, which does not run them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..files.reading import read_file, reading
from ..ir.docstrings import documented
from ..ir.types import FilePath
from .arrays import read_npz
from .datasets import Dataset, given_folders, scaled_rows
from .pickled import unpickled

__all__ = ["cifar10", "read_cifar10"]

CLASSES = 10
_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
_RECORD = 1 + _PIXELS
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST = "test_batch"

Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def read_cifar10(path: FilePath) -> Images:
    """Read one file of CIFAR-10: a binary batch, or a batch of the Python version.

    Parameters
    ----------
    path : path-like
        The file. What it is is seen from its first bytes: records of 3,073 bytes, or a pickled
        dictionary with ``data`` and ``labels``.

    Returns
    -------
    images : numpy.ndarray, shape (examples, 32, 32, 3), uint8
        Red, green and blue, the channels last.
    labels : numpy.ndarray, shape (examples,), uint8
        From 0 to 9.

    Raises
    ------
    DataError
        If the file cannot be read, is truncated, holds a label above 9, or asks, being unpickled,
        for anything but arrays.

    See Also
    --------
    cifar10 : the whole set.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "test_batch.bin"
    ...     _ = file.write_bytes(bytes([7]) + bytes(3072) + bytes([2]) + bytes(3072))
    ...     images, labels = read_cifar10(file)
    >>> images.shape, labels.tolist()
    ((2, 32, 32, 3), [7, 2])
    """
    path = Path(path)
    content = read_file(path)
    if not content:
        raise DataError(message(f"{path} is empty", need="a batch of CIFAR-10"))
    if content[0] >= CLASSES and content[:1] in (b"\x80", b"("):
        return _of_pickle(path, content)
    return _of_records(path, content)


@documented
def cifar10(path: FilePath | None = None) -> Dataset:
    """Return CIFAR-10: 60,000 color images of ten kinds of things.

    path (path-like, optional): A folder of the binary version (``data_batch_1.bin``, ...) or of the
        Python version (``data_batch_1``, ...), or an archive (``.npz``) of ``x_train, y_train,
        x_test, y_test``. Default: the one in the folder that ``MAGMAGRAPH_DATA`` names, or in its
        folders ``cifar-10-batches-bin`` or ``cifar-10-batches-py``, or an archive ``cifar10*.npz``
        there.
    returns (Dataset): The images as rows of 3,072 values from 0 to 1 (32 rows of 32 pixels of red,
        green, blue), with the labels 0 to 9.
    raises DataError: If there is no such set, or a file of it is damaged.

    Notes
    -----
    A. Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    places = [Path(path)] if path is not None else _known_places()
    for place in places:
        if place.is_dir() and (found := _batches_of(place)) is not None:
            return _dataset(*found, f"CIFAR-10 from {place}")
        if place.is_file():
            return _dataset(*_archive(place), f"CIFAR-10 from {place}")
    looked = ", ".join(map(str, places)) or "no folder: MAGMAGRAPH_DATA is not set"
    raise DataError(
        message(
            f"CIFAR-10 was not found; looked at {looked}",
            need="its batches, binary or pickled, or an archive of arrays",
            hint="path=, or MAGMAGRAPH_DATA with the folder",
        )
    )


def _known_places() -> list[Path]:
    places: list[Path] = []
    for base in given_folders():
        places += [base / "cifar-10-batches-bin", base / "cifar-10-batches-py", base]
        places += sorted(base.glob("cifar10*.npz"))
    return places


def _batches_of(folder: Path) -> tuple[Images, Images] | None:
    """Return the batches in a folder, or None where it has none."""
    for suffix in (".bin", ""):
        test = folder / (_TEST + suffix)
        if not test.is_file():
            continue
        present = [file for name in _TRAIN if (file := folder / (name + suffix)).is_file()]
        if not present:
            raise DataError(
                message(f"{folder} has {test.name}, and no batch to learn from",
                        need=f"{_TRAIN[0]}{suffix} and on")
            )
        parts = [read_cifar10(file) for file in present]
        images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        return (images, labels), read_cifar10(test)
    return None


def _of_records(path: Path, content: bytes) -> Images:
    if len(content) % _RECORD:
        raise DataError(
            message(
                f"{path} is truncated, or not of CIFAR-10: {len(content)} bytes",
                need=f"records of {_RECORD} bytes: a label and {_PIXELS} values",
                hint="copy or download the file again",
            )
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return _images(path, records[:, 1:], records[:, 0])


def _of_pickle(path: Path, content: bytes) -> Images:
    with reading(
        path,
        "is truncated or corrupted",
        need="a whole batch of CIFAR-10",
        hint="copy or download the file again",
    ):
        held = unpickled(content)
        data = labels = None
        if isinstance(held, dict):
            data, labels = (held.get(name.encode(), held.get(name)) for name in ("data", "labels"))
        if isinstance(labels, list) and all(type(label) is int for label in labels):
            labels = np.array(labels, np.int64)
    if isinstance(data, np.ndarray) and isinstance(labels, np.ndarray):
        return _images(path, data, labels)
    raise DataError(
        message(f"{path} is no batch of CIFAR-10", need="a dictionary with data and labels")
    )


def _images(path: Path, values: NDArray[Any], labels: NDArray[Any]) -> Images:
    """Return images with the channels last, and labels that are known to be in range."""
    if values.ndim != 2 or values.shape[1] != _PIXELS or labels.shape != values.shape[:1]:
        raise DataError(
            message(
                f"{path} holds values of shape {values.shape} and labels of shape {labels.shape}",
                need=f"{_PIXELS} values for each label",
            )
        )
    check_labels(labels, CLASSES, str(path))
    planes = values.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.uint8)


def check_labels(labels: NDArray[Any], classes: int, where: str) -> None:
    """Raise unless all labels are from 0 to `classes` - 1; the first other one is named."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise DataError(
            message(
                f"{where}: label {labels[wrong[0]]} of example {wrong[0]} is out of range",
                need=f"labels from 0 to {classes - 1}",
            )
        )


def _archive(path: Path) -> tuple[Images, Images]:
    held = read_npz(path)
    parts = []
    for part in ("train", "test"):
        missing = [name for name in (f"x_{part}", f"y_{part}") if name not in held]
        if missing:
            raise DataError(
                message(
                    f"{path} has no {' and no '.join(missing)}; it has {', '.join(held)}",
                    need="x_train, y_train, x_test, y_test",
                )
            )
        x, y = held[f"x_{part}"], held[f"y_{part}"].reshape(-1)
        if x.shape[1:] == (_CHANNELS, _SIDE, _SIDE):
            x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        if x.shape != (len(y), _SIDE, _SIDE, _CHANNELS) or x.dtype != np.uint8:
            raise DataError(
                message(
                    f"{path}: x_{part} is {x.dtype.name} {x.shape}, with {len(y)} labels",
                    need=f"uint8 (examples, {_SIDE}, {_SIDE}, {_CHANNELS}), and as many labels",
                )
            )
        check_labels(y, CLASSES, f"{path}, y_{part}")
        parts.append((x, y))
    return parts[0], parts[1]


def _dataset(train: Images, test: Images, source: str) -> Dataset:
    (x_train, y_train), (x_test, y_test) = train, test
    return Dataset(
        scaled_rows(x_train, 255),
        y_train.astype(np.int32),
        scaled_rows(x_test, 255),
        y_test.astype(np.int32),
        CLASSES,
        (_SIDE, _SIDE, _CHANNELS),
        source,
    )

