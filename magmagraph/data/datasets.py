"""Data sets by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingFileError, message
from ..files.trust import make_missing
from ..ir.docstrings import documented
from ..ir.types import FilePath
from .download import RemoteFile, download
from .files import user_cache
from .idx import read_idx

MNIST_FILES = (
    RemoteFile(
        "train-images-idx3-ubyte.gz",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    RemoteFile(
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    RemoteFile(
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)

MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://raw.githubusercontent.com/fgnt/mnist/master/",
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples with labels, in a part to learn from and a part to test on.

    It unpacks as two pairs: ``(x_train, y_train), (x_test, y_test) = dataset``.

    Attributes
    ----------
    x_train, x_test : numpy.ndarray, shape (examples, features), float32
        The examples, a row each, scaled to values from 0 to 1.
    y_train, y_test : numpy.ndarray, shape (examples,), int32
        The labels, from 0 to `classes` - 1.
    classes : int
        The number of classes.
    image_shape : tuple of int
        The shape in which a row is an image.
    source : str
        What the data are and where they came from.
    """

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int32]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int32]
    classes: int
    image_shape: tuple[int, ...]
    source: str

    def __repr__(self) -> str:
        return (
            f"Dataset({self.source}: {len(self.x_train)} examples and {len(self.x_test)} for "
            f"tests, {self.x_train.shape[1]} features, {self.classes} classes)"
        )

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        yield self.x_train, self.y_train
        yield self.x_test, self.y_test


@documented
def mnist(
    path: FilePath | None = None, *, timeout: float = 5.0, substitute: bool = True
) -> Dataset:
    """Return the MNIST handwritten digits: 60,000 images of 28 x 28 and 10,000 for tests.

    Unless a folder is given, they are looked for in the one that ``MAGMAGRAPH_DATA`` names (or its
    folder ``mnist``), then in the user's cache, then at public mirrors, from which they are put
    into the cache. Where none of these has them, the 1,797 digits of 8 x 8 that scikit-learn
    carries stand in.

    path (path, optional): The folder with the four files, gzipped or not, or one whose folder
        ``mnist`` has them. With it nothing is looked for elsewhere, downloaded, or stands in.
    timeout (float): Seconds after which a download is given up; 0 downloads nothing.
    substitute (bool): Whether the small digits may stand in.
    returns (Dataset): The images as rows of 784 values (64 for the small digits) from 0 to 1, with
        the labels 0 to 9; `source` says which digits they are.
    raises DataError: If a file in ``MAGMAGRAPH_DATA`` is truncated or is not what its name says, or
        if the digits cannot be had and nothing may or can stand in. `MissingFileError`, if a given
        folder lacks one of the files.

    Notes
    -----
    The images are those of Y. LeCun, C. Cortes and C. J. C. Burges.
    """
    if path is not None:
        place = Path(path).expanduser()
        folder = _with_mnist(place)
        if folder is None:
            lacking = [file.name for file in MNIST_FILES if _existing(place, file.name) is None]
            raise MissingFileError(
                message(
                    f"MNIST is not whole in {str(place)!r}: there is no {', no '.join(lacking)}",
                    need="the folder of its four files, gzipped or not",
                )
            )
        return _read_mnist(folder, f"MNIST from {folder}")
    folder = _given_folder()
    if folder is not None:
        return _read_mnist(folder, f"MNIST from {folder}")
    try:
        folder = user_cache() / "data" / "mnist"
        wanted = [file for file in MNIST_FILES if not _is_whole(folder, file)]
        if wanted and timeout > 0:
            make_missing(folder)  # compiled kernels are kept beside it: for this user alone
            download(wanted, MNIST_MIRRORS, folder, timeout=timeout)
        elif wanted:
            raise DataError(message(f"MNIST is not in {folder}, and no download is allowed"))
    except (DataError, OSError) as error:
        if not substitute:
            raise
        # Without what each mirror said, which is no news where the stand-in is good enough.
        return _small_digits(str(error).partition("\n")[0].partition(": ")[0])
    return _read_mnist(folder, f"MNIST from {folder}")


def given_folders() -> list[Path]:
    """Return the folder of data that the environment names, where it names one."""
    given = os.environ.get("MAGMAGRAPH_DATA")
    return [Path(given).expanduser()] if given else []


def _given_folder() -> Path | None:
    """Return the folder of MNIST that the environment names, if it holds all four files."""
    found = (_with_mnist(base) for base in given_folders())
    return next((folder for folder in found if folder is not None), None)


def _with_mnist(base: Path) -> Path | None:
    """Return the folder that holds all four files: this, or the one named mnist in it."""
    for folder in (base / "mnist", base):
        if all(_existing(folder, file.name) is not None for file in MNIST_FILES):
            return folder
    return None


def _existing(folder: Path, name: str) -> Path | None:
    """Return the path of a gzipped file or of the same one unpacked, whichever is there."""
    for path in (folder / name, folder / name.removesuffix(".gz")):
        if path.is_file():
            return path
    return None


def _is_whole(folder: Path, file: RemoteFile) -> bool:
    """Return whether a file is in the cache with the content that it must have."""
    try:
        with (folder / file.name).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _read_mnist(folder: Path, source: str) -> Dataset:
    """Return the digits in the four files of a folder."""
    x_train, y_train, x_test, y_test = (
        read_idx(_existing(folder, file.name) or folder / file.name) for file in MNIST_FILES
    )
    for images, labels, part in ((x_train, y_train, "train"), (x_test, y_test, "t10k")):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(
                message(
                    f"the {part} files in {folder} do not fit each other: images of shape "
                    f"{images.shape}, labels of shape {labels.shape}",
                    need="images (examples, rows, columns) and as many labels",
                )
            )
    return _dataset(x_train, y_train, x_test, y_test, 255, x_train.shape[1:], source)


def _small_digits(reason: str) -> Dataset:
    """Return the digits that scikit-learn carries; `reason` says why they stand in."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            message(
                reason,
                need="MNIST's four files, or scikit-learn, whose small digits can stand in",
                hint="pip install scikit-learn, or set MAGMAGRAPH_DATA to a folder with MNIST",
            )
        ) from error
    digits = load_digits()
    # The digits come in the order of their writers: a fixed shuffle puts all into both parts.
    order = np.random.default_rng(0).permutation(len(digits.target))
    test, train = order[:360], order[360:]
    images, labels = digits.images, digits.target
    source = f"scikit-learn's 8 x 8 digits in place of MNIST ({reason})"
    return _dataset(
        images[train], labels[train], images[test], labels[test], 16, (8, 8), source
    )


def _dataset(
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    x_test: NDArray[Any],
    y_test: NDArray[Any],
    largest: int,
    image_shape: tuple[int, ...],
    source: str,
) -> Dataset:
    """Make rows of numbers from 0 to 1 of images with values from 0 to `largest`."""
    return Dataset(
        scaled_rows(x_train, largest),
        y_train.astype(np.int32),
        scaled_rows(x_test, largest),
        y_test.astype(np.int32),
        10,
        tuple(image_shape),
        source,
    )


def scaled_rows(images: NDArray[Any], largest: int) -> NDArray[np.float32]:
    """Return images as rows, with values from 0 to `largest` scaled to those from 0 to 1."""
    flat = images.reshape(len(images), -1).astype(np.float32)
    flat /= np.float32(largest)
    return flat
