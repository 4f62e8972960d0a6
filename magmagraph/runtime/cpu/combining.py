"""The C types in which kernels combine elements of a dtype: updates at positions, and scans."""

from __future__ import annotations

import numpy as np

from ...dtypes import is_bool, is_complex, is_float

__all__ = ["combining_words", "refusal"]

_REAL = {4: "float", 8: "double"}


def combining_words(dtype: np.dtype, how: str) -> tuple[str, int] | None:
    """Return the C type to combine elements of a dtype in, and how many of it an element is."""
    if how == "set":
        return f"uint{8 * min(dtype.itemsize, 8)}_t", max(1, dtype.itemsize // 8)
    if is_bool(dtype):
        return None
    if is_complex(dtype):
        return (_REAL[dtype.itemsize // 2], 2) if how == "add" else None
    if is_float(dtype):
        return (_REAL[dtype.itemsize], 1) if dtype.itemsize >= 4 else None
    return f"{'u' if dtype.kind == 'u' else ''}int{8 * dtype.itemsize}_t", 1


def refusal(dtype: np.dtype, how: str) -> str | None:
    """Return why no kernel combines elements of a dtype, or None."""
    if combining_words(dtype, how) is None:
        return f"kernels have no {how} of {dtype.name}"
    return None
