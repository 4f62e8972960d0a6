"""Arrays of other libraries whose elements NumPy's own reader of DLPack does not know: bfloat16."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...dtypes import canonical
from ...errors import ArgumentError, DTypeError, message
from .given import plain_array

__all__ = ["as_array", "host_array"]

_NAME = b"dltensor"
_BFLOAT = 4  # the code of the type in DLPack's header


class _Tensor(ctypes.Structure):
    """``DLTensor`` of DLPack's header, the first field of a capsule's struct."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def tensor_in(capsule: Any) -> _Tensor:
    """Return the array of a capsule; it lives as long as the capsule."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Tensor.from_address(pointer(capsule, _NAME))


def as_array(value: Any) -> np.ndarray:
    """Return an array in the host's memory, which gives itself by DLPack, as NumPy's.

    It shares memory where NumPy reads it; bfloat16 is copied.

    Raises
    ------
    BufferError, RuntimeError, ValueError
        It is of another element type that NumPy has not, or cannot be given.
    """
    if not hasattr(value, "__dlpack__"):
        raise ArgumentError(
            message(f"from_dlpack of an object of type {type(value).__name__}",
                    need="one with the method __dlpack__", hint="mg.constant(array)")
        )  # fmt: skip
    try:
        array: np.ndarray = np.from_dlpack(value)
    except (BufferError, RuntimeError, ValueError):
        copied = _copied(value)
        if copied is None:
            raise
        return copied
    return array


def host_array(value: Any) -> np.ndarray:
    """Return values of any library, also on a device, as an array of the host in its byte order.

    raises BufferError, RuntimeError, TypeError, ValueError: They cannot be read as an array, or
        have masked elements; the text may be the other library's.
    """
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):
        array = value.get()
    elif hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic)):
        array = as_array(value if value.__dlpack_device__()[0] in (1, 3) else value.cpu())
    else:
        try:
            array = plain_array(value)
        except ValueError as error:
            if "inhomogeneous" not in str(error):
                raise
            raise DTypeError(message(f"no array: {error}", need="numbers")) from None
    native: np.ndarray = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native


def _copied(value: Any) -> np.ndarray | None:
    """Return a copy of an array of bfloat16, None of any other."""
    try:
        capsule = value.__dlpack__()
    except Exception:
        return None  # NumPy has said why
    tensor = tensor_in(capsule)
    if (tensor.code, tensor.bits, tensor.lanes) != (_BFLOAT, 16, 1):
        return None
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    bits = np.empty(shape, np.uint16)
    if bits.size:
        steps = None  # in C order
        if tensor.strides:
            steps = [2 * tensor.strides[axis] for axis in range(tensor.ndim)]
        if steps and min(steps) < 0:
            return None
        reach = 2 + sum(
            step * (extent - 1) for step, extent in zip(steps or bits.strides, shape, strict=True)
        )
        memory = (ctypes.c_char * reach).from_address(tensor.data + tensor.byte_offset)
        bits[...] = np.ndarray(shape, np.uint16, memory, strides=steps)
    return bits.view(canonical("bfloat16"))
