"""Images in folders: one folder for each class."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, message
from ..files.reading import Damaged, read_file, reading, too_large, unpacked_limit
from ..ir.docstrings import documented
from ..ir.types import FilePath

__all__ = ["LabelledImages", "read_images"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Pillow goes by the content: others of its formats start programs, such as Ghostscript for EPS.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "TGA")
MOST_PIXELS = 1 << 26  # of one image


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images of some classes.

    Attributes
    ----------
    images : numpy.ndarray, shape (examples, rows, columns, channels), uint8
        The channels last.
    labels : numpy.ndarray, shape (examples,), int32
        The number of the class of each.
    classes : tuple of str
        The names of the classes, sorted: those of the folders.
    files : tuple of Path
        Where each image is from.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    classes: tuple[str, ...]
    files: tuple[Path, ...]


@documented
def read_images(
    folder: FilePath,
    *,
    size: tuple[int, int] | None = None,
    channels: int = 3,
    suffixes: Sequence[str] = SUFFIXES,
) -> LabelledImages:
    """Read the images in the folders of a folder, each of which is a class.

    folder (path-like): It holds a folder for each class, and these the images. Files are taken in
        the order of their names; those with other suffixes are passed over.
    size ((int, int), optional): Rows and columns that images are scaled to. Without it all must be
        of one size.
    channels ({1, 3, 4}): Gray, colors, or colors and opacity.
    suffixes (sequence of str): Of the files that are images.
    returns (LabelledImages):
    raises DataError: If there is no image, one cannot be read or has another size, or pillow is not
        installed.

    Notes
    -----
    It takes the library pillow: ``pip install magmagraph[data]``.
    """
    library = _library()
    if channels not in _MODES:
        raise DataError(message(f"channels={channels!r}", need="1, 3 or 4"))
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(message(f"{folder} is no folder", need="a folder of folders of images"))
    known = tuple(suffix.lower() for suffix in suffixes)
    found = {
        inner.name: [f for f in sorted(inner.iterdir()) if f.suffix.lower() in known]
        for inner in sorted(folder.iterdir())
        if inner.is_dir() and not inner.name.startswith(".")
    }
    classes = tuple(found)
    files = [file for members in found.values() for file in members]
    if not files:
        raise DataError(
            message(
                f"{folder} has {len(classes)} folders, and no image in them",
                need="a folder for each class, with files of " + ", ".join(known),
            )
        )
    pixels: list[NDArray[np.uint8]] = []
    unpacked = length = 0
    for file in files:
        array = _read(library, file, size, channels)
        unpacked, length = unpacked + array.nbytes, length + file.stat().st_size
        if unpacked > unpacked_limit(length):
            with reading(folder, "holds too much"):
                limit = unpacked_limit(length)
                raise too_large(f"all images up to {file.name}", unpacked, limit)
        if pixels and array.shape != pixels[0].shape:
            raise DataError(
                message(
                    f"{file} has {array.shape[0]} x {array.shape[1]} pixels, and {files[0]} "
                    f"{pixels[0].shape[0]} x {pixels[0].shape[1]}",
                    need="images of one size",
                    hint="size=(rows, columns), to which all are scaled",
                )
            )
        pixels.append(array)
    labels = [number for number, members in enumerate(found.values()) for _ in members]
    return LabelledImages(np.stack(pixels), np.asarray(labels, np.int32), classes, tuple(files))


def _read(
    library: Any, file: Path, size: tuple[int, int] | None, channels: int
) -> NDArray[np.uint8]:
    content = io.BytesIO(read_file(file))  # of which no more can be read than there is
    with (
        reading(file, "is truncated, corrupted, or no image", need="a whole image"),
        library.open(content, formats=_FORMATS) as image,
    ):
        if math.prod(image.size) > MOST_PIXELS:
            raise Damaged(
                f"it has {image.size[1]} x {image.size[0]} pixels, and the limit is {MOST_PIXELS}"
            )
        plain = image.convert(_MODES[channels])
        if size is not None and plain.size != (size[1], size[0]):
            plain = plain.resize((size[1], size[0]), library.Resampling.BILINEAR)
        array = np.array(plain, dtype=np.uint8)
    return array.reshape(*array.shape[:2], channels)


def _library() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            message("images are read by pillow, which is not installed",
                    hint="pip install magmagraph[data]")
        ) from error
    return Image
