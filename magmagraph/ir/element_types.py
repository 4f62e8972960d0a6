"""Name the element types that exist, and tell their kinds; the settings are not known here."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from ..errors import DTypeError, message

DType: TypeAlias = "np.dtype[Any]"
Kind: TypeAlias = Literal["bool", "integer", "float", "complex"]

FLOATS: Final[tuple[DType, ...]] = tuple(
    np.dtype(kind) for kind in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
)
COMPLEXES: Final[tuple[DType, ...]] = tuple(
    np.dtype(kind) for kind in (np.complex128, np.complex64)
)
SIGNED: Final[tuple[DType, ...]] = tuple(
    np.dtype(kind) for kind in (np.int8, np.int16, np.int32, np.int64)
)
UNSIGNED: Final[tuple[DType, ...]] = tuple(
    np.dtype(kind) for kind in (np.uint8, np.uint16, np.uint32, np.uint64)
)
BOOL: Final[DType] = np.dtype(np.bool_)
SUPPORTED: Final[tuple[DType, ...]] = (*COMPLEXES, *FLOATS, *SIGNED, *UNSIGNED, BOOL)

FLOAT32: Final = FLOATS[1]
INT32: Final = SIGNED[2]
INT64: Final = SIGNED[3]

KINDS: Final[dict[DType, Kind]] = {
    **dict.fromkeys(COMPLEXES, "complex"),
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys((*SIGNED, *UNSIGNED), "integer"),
    BOOL: "bool",
}
BY_NAME: Final[dict[str, DType]] = {dtype.name: dtype for dtype in SUPPORTED}
OF_PYTHON: Final[dict[str, type]] = {kind.__name__: kind for kind in (float, complex, int)}
_UNSIGNED_SET: Final = frozenset(UNSIGNED)
_PARTS: Final[dict[DType, DType]] = dict(zip(COMPLEXES, FLOATS[:2], strict=True))


def dtype_of(dtype: Any, float_dtype: DType) -> DType:
    """Return the NumPy dtype that names an element type; see `magmagraph.dtypes.canonical`.

    dtype (numpy.dtype, NumPy scalar type, name, or the Python type complex, float, int or bool):
    float_dtype (numpy.dtype): What float becomes, and complex becomes the complex numbers of it.
    """
    if isinstance(dtype, str):
        dtype = OF_PYTHON.get(dtype, dtype)
    if isinstance(dtype, np.dtype):
        if dtype in KINDS:
            return dtype if dtype.isnative else dtype.newbyteorder("=")
        element = BY_NAME.get(dtype.name)
        if element is not None:
            return element
    elif isinstance(dtype, str) and dtype in BY_NAME:
        return BY_NAME[dtype]
    elif dtype is float:
        return float_dtype
    elif dtype is complex:
        return complex_dtype(float_dtype)
    elif dtype is int:
        return INT32
    elif dtype is bool:
        return BOOL
    elif dtype is not None:  # which NumPy would take for float64
        try:
            converted = np.dtype(dtype)
        except (TypeError, ValueError, SyntaxError):  # no dtype, or a text of one that is damaged
            pass
        else:
            if converted.name in BY_NAME:
                return BY_NAME[converted.name]
    shown = repr(dtype.name if isinstance(dtype, np.dtype) else dtype)
    raise DTypeError(
        message(
            f"{shown} is not a dtype that exists here",
            need=f"one of {', '.join(BY_NAME)}",
            hint="the extents of a shape as one tuple" if isinstance(dtype, int) else None,
        )
    )


def kind(dtype: DType) -> Kind:
    """Name the kind of a dtype: complex, float, integer (signed or not) or bool.

    raises DTypeError: If there is no such dtype here.
    """
    found = KINDS.get(dtype)
    return KINDS[dtype_of(dtype, FLOAT32)] if found is None else found


def is_float(dtype: DType) -> bool:
    """Tell whether a dtype is one of the floats, bfloat16 among them."""
    return KINDS.get(dtype) == "float"


def is_complex(dtype: DType) -> bool:
    """Tell whether a dtype is one of the complex numbers."""
    return KINDS.get(dtype) == "complex"


def is_inexact(dtype: DType) -> bool:
    """Tell whether a dtype is a float or complex: what varies continuously, and rounds."""
    return KINDS.get(dtype) in ("float", "complex")


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the real and the imaginary part; of a real dtype, itself.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> real_dtype(canonical("complex64")).name, real_dtype(canonical("float16")).name
    ('float32', 'float16')
    """
    return _PARTS.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """Return the complex dtype that holds a float or complex dtype's numbers.

    Examples
    --------
    >>> from magmagraph.dtypes import canonical
    >>> [complex_dtype(canonical(name)).name for name in ("float64", "float32", "bfloat16")]
    ['complex128', 'complex64', 'complex64']
    """
    return COMPLEXES[0] if real_dtype(dtype) == FLOATS[0] else COMPLEXES[1]


def is_integer(dtype: DType) -> bool:
    """Tell whether a dtype is an integer, signed or not; bool is none."""
    return KINDS.get(dtype) == "integer"


def is_unsigned(dtype: DType) -> bool:
    """Tell whether a dtype is an unsigned integer."""
    return dtype in _UNSIGNED_SET


def is_bool(dtype: DType) -> bool:
    """Tell whether a dtype is bool."""
    return dtype == BOOL
