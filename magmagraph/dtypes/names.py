"""Turn the names of element types into dtypes."""

from __future__ import annotations

from typing import Any

from ..config import config
from ..ir.element_types import FLOATS, OF_PYTHON, DType, dtype_of


def canonical(dtype: Any, float_dtype: DType | None = None) -> DType:
    """Turn whatever names an element type into the NumPy dtype.

    Parameters
    ----------
    dtype : str, numpy.dtype, NumPy scalar type, or the Python type complex, float, int or bool
        A Python type stands for what its numbers become, also by its name ("float").
    float_dtype : numpy.dtype, optional
        What float stands for, and complex for the complex numbers of it; `config.float_dtype`
        unless said. int stands for int32.

    Returns
    -------
    numpy.dtype
        In the machine's byte order.

    Raises
    ------
    DTypeError
        If there is no such type here; the message lists those that exist.

    Examples
    --------
    >>> import numpy as np
    >>> canonical("bfloat16").name, canonical(np.int8).name, canonical(float).name
    ('bfloat16', 'int8', 'float32')
    >>> canonical("complex256")
    Traceback (most recent call last):
    magmagraph.errors.DTypeError: 'complex256' is not a dtype that exists here
      expected: one of complex128, complex64, float64, float32, float16, bfloat16, int8, int16, \
int32, int64, uint8, uint16, uint32, uint64, bool
    """
    if float_dtype is not None:
        return dtype_of(dtype, float_dtype)
    named = OF_PYTHON.get(dtype) if isinstance(dtype, str) else dtype
    return dtype_of(dtype, config.float_dtype if named is float or named is complex else FLOATS[0])
