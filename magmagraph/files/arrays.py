"""Arrays in files: extents and dtypes that headers state, compared with the bytes that there are.

The header of NumPy's format is a Python literal. It is read by a grammar that has no more than such
headers need, and no array is allocated before its size is known to fit.
"""

from __future__ import annotations

import ast
import math
import re
import reprlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .reading import Damaged, TooLarge

__all__ = ["checked_size", "npy_header", "read_npy"]

MOST_AXES = 64
LONGEST_HEADER = 10_000  # bytes, as in NumPy
_DEEPEST = 32  # brackets within each other
_LARGEST = (1 << 63) - 1
_MAGIC = b"\x93NUMPY"
_STRING = re.compile(r"'[^'\\\n]*'|\"[^\"\\\n]*\"")
# Each character fits in one way only: the time is proportional to the length.
_LITERAL = re.compile(r"(?:[\s(){}\[\],:0-9]|True|False|None)*")
_CHUNK = 1 << 24


def checked_size(shape: Iterable[Any], itemsize: int, what: str = "it") -> int:
    """Return the bytes of an array that a header states.

    raises Damaged: If the extents are no whole numbers of at least 0, are more than 64, or the
        elements more than an array can have.
    """
    extents = tuple(shape)
    if len(extents) > MOST_AXES:
        raise Damaged(f"{what} has {len(extents)} axes, and the limit is {MOST_AXES}")
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            raise Damaged(
                f"{what} has the extent {reprlib.repr(extent)}, and not a whole number of at "
                "least 0"
            )
    if math.prod(extent for extent in extents if extent) * max(1, itemsize) > _LARGEST:
        raise Damaged(f"{what} has the shape {extents}, more than an array can have")
    size: int = math.prod(extents) * itemsize
    return size


def npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether the order is Fortran's, and dtype of an array in NumPy's format."""
    start = file.read(8)
    if len(start) < 8 or start[:6] != _MAGIC:
        raise Damaged(f"it begins with {start[:6]!r}, and not with {_MAGIC!r}")
    if start[6] not in (1, 2, 3):
        raise Damaged(f"its format has the version {start[6]}.{start[7]}, and not 1.0 to 3.0")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > LONGEST_HEADER:
        raise TooLarge("its header", length, LONGEST_HEADER)
    header = file.read(length)
    if len(header) != length:
        raise Damaged(f"its header ends after {len(header)} bytes of {length}")
    stated = _literal(header.decode("utf-8" if start[6] == 3 else "latin1"))
    if not isinstance(stated, dict) or set(stated) != {"descr", "fortran_order", "shape"}:
        raise Damaged("its header does not state descr, fortran_order and shape")
    shape, order = stated["shape"], stated["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(order, bool):
        raise Damaged("its header states no tuple as shape, or no bool as fortran_order")
    dtype = np.lib.format.descr_to_dtype(stated["descr"])
    if dtype.hasobject:
        raise Damaged("it holds Python objects, which would have to be unpickled")
    if dtype.itemsize == 0:
        raise Damaged(f"its dtype {dtype} has elements of no bytes")
    checked_size(shape, dtype.itemsize)
    return shape, order, dtype


def _literal(header: str) -> Any:
    """Return the value of a header, which is made of names, numbers, tuples, lists and tables."""
    rest = _STRING.sub(" ", header)
    if _LITERAL.fullmatch(re.sub(r"(?<=\d)L", "", rest)) is None:
        raise Damaged("its header is no literal of names, numbers, tuples, lists and tables")
    depth = 0
    for letter in rest:
        depth += (letter in "([{") - (letter in ")]}")
        if depth > _DEEPEST:
            raise Damaged(f"its header is nested deeper than {_DEEPEST} levels")
    # Python 2 wrote extents such as 3L.
    plain = re.sub(r"(?<=\d)L(?=[,)])", "", header) if "L" in rest else header
    return ast.literal_eval(plain.strip())


def read_npy(file: BinaryIO, length: int, *, whole: bool = False) -> NDArray[Any]:
    """Return the array in NumPy's format that a file begins with.

    file (file object): Of bytes.
    length (int): The bytes that it has.
    whole (bool): Whether nothing may follow the array.
    raises Damaged: If the header is none, or states another size than the file has.
    """
    shape, fortran, dtype = npy_header(file)
    size = checked_size(shape, dtype.itemsize)
    left = length - file.tell()
    if size > left or (whole and size != left):
        raise Damaged(f"it has {left} bytes of elements, and {dtype}{list(shape)} takes {size}")
    flat = np.empty(size, np.uint8)
    view = flat.data
    done = 0
    while done < size:
        part = file.read(min(_CHUNK, size - done))
        if not part:
            raise Damaged(f"its elements end after {done} bytes of {size}")
        view[done : done + len(part)] = part
        done += len(part)
    return flat.view(dtype).reshape(shape, order="F" if fortran else "C")
