"""What generated sources take from a graph: numbers and words, and nothing else.

A graph may come from a file that is not trusted. All that C and CUDA sources hold of its
attributes, constants and names goes through these functions, which raise `PlanError` for a value of
another type; none of them lets a string pass that is not a word.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import numpy as np

from ..dtypes import SUPPORTED
from ..errors import PlanError, message

__all__ = ["checked", "literal", "shown", "word"]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]{,39}")
_NO_WORD = re.compile(r"[^A-Za-z0-9_.]")
_Record = TypeVar("_Record", bound=tuple[Any, ...])


def literal(value: Any, dtype: np.dtype) -> str:
    """Return a scalar constant as C that has exactly its value.

    Examples
    --------
    >>> literal(np.float32(0.1), np.dtype("float32")), literal(np.int64(-3), np.dtype("int64"))
    ('0.1f', 'INT64_C(-3)')
    """
    value = _number(value)
    if dtype.kind == "b":
        return str(int(value))
    if dtype.kind in "iu":
        whole = int(value)
        bits = 8 * dtype.itemsize
        if dtype.kind == "i" and whole == -(2 ** (bits - 1)):
            return f"INT{bits}_MIN"
        return f"{'U' if dtype.kind == 'u' else ''}INT{bits}_C({whole})"
    if dtype.kind == "c":
        part = np.dtype("f8" if dtype.itemsize == 16 else "f4")
        value = np.asarray(value, dtype)[()]
        return f"mg_c{8 * dtype.itemsize}({literal(value.real, part)}, {literal(value.imag, part)})"
    wide = dtype.itemsize == 8
    number: np.floating = np.float64(value) if wide else np.float32(value)
    if np.isnan(number):
        return "(double)NAN" if wide else "NAN"
    if np.isinf(number):
        return ("-" if number < 0 else "") + ("(double)INFINITY" if wide else "INFINITY")
    text = str(number)
    if "." not in text and "e" not in text:
        text += ".0"
    text = text if wide else text + "f"
    return f"({text})" if text[0] == "-" else text


def shown(value: Any) -> str:
    """Return a scalar constant as a comment shows it."""
    return str(_number(value))


def word(name: str) -> str:
    """Return a name of an operation as comments and identifiers may hold it.

    Examples
    --------
    >>> word("exp"), word("module.Cube"), word("*/ system(")
    ('exp', 'module.Cube', '___system_')
    """
    return _NO_WORD.sub("_", name)


def checked(kernel: _Record) -> _Record:
    """Return the description of a kernel, all of whose parts are numbers and words.

    Raises
    ------
    PlanError
        A part is of another type, or a string that is no word.
    """
    for part in kernel:
        if isinstance(part, tuple):
            checked(part)
        elif type(part) is str:
            if part and _WORD.fullmatch(part) is None:
                raise _refused(part)
        elif type(part) not in (int, bool, float):
            raise _refused(part)
    return kernel


def _number(value: Any) -> Any:
    """Return a number, or the one of an array without axes."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.ndim == 0 and value.dtype in SUPPORTED:
            return np.asarray(value)[()]
    elif type(value) in (int, bool, float):
        return value
    raise _refused(value)


def _refused(value: Any) -> PlanError:
    return PlanError(
        message(
            f"a generated source would hold a {type(value).__name__}: {str(value)[:40]!r}",
            need="a number, or a word of this package",
        )
    )
