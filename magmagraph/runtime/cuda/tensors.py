"""Arrays of a CUDA device for `mg.Tensor`: made, copied, and moved ahead of their use."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .device import Device
from .launching.calls import driver, prefetching

__all__ = ["CudaArrays"]

_HOST = -1  # the number by which the driver knows the host


class CudaArrays:
    """What `Tensor` needs of a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name = f"cuda:{device.number}"

    def empty(self, count: int, dtype: np.dtype, unified: bool = False) -> Any:
        """Return a new array; `unified` memory is the host's, too."""
        with self._device as device:
            if not unified:
                return device.cupy.empty(count, dtype)
            memory = device.cupy.cuda.malloc_managed(max(1, count * dtype.itemsize))
            return device.cupy.ndarray(count, dtype, memptr=memory)

    def upload(self, target: Any, source: np.ndarray) -> None:
        """Copy from the host."""
        with self._device as device:
            target.set(np.ascontiguousarray(source), stream=device.stream)
            device.stream.synchronize()

    def download(self, target: np.ndarray, source: Any) -> None:
        """Copy to the host, and wait until it is there."""
        with self._device as device:
            device.cupy.cuda.runtime.deviceSynchronize()  # whoever wrote it, on any stream
            target[...] = source.get()

    def host_view(self, array: Any) -> np.ndarray:
        """Return unified memory as an array of the host, once the device is done with it."""
        with self._device as device:
            device.cupy.cuda.runtime.deviceSynchronize()
        return np.asarray(_Bytes(array)).view(array.dtype)

    def prefetch(self, array: Any, to_device: bool) -> None:
        """Move pages of unified memory ahead of their use."""
        # The driver's own call: that of CUDA 13's runtime takes no number for the host in CuPy.
        move = prefetching()
        if move is None:
            return  # pages move when they are used
        with self._device as device:
            where = device.number if to_device else _HOST
            address, count = ctypes.c_void_p(array.data.ptr), ctypes.c_size_t(array.nbytes)
            driver().check_status(move(address, count, where, ctypes.c_void_p(device.stream.ptr)))


class _Bytes:
    """Unified memory in NumPy's array interface; arrays on it keep the memory alive."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__array_interface__ = {
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "data": (array.data.ptr, False),
            "version": 3,
        }
