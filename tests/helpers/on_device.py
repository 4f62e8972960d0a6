"""A stand-in for a device's array, where there is no device."""

from __future__ import annotations

import numpy as np


class OnDevice:
    """An array that lies on a device: NumPy cannot take it, `get` copies it."""

    __cuda_array_interface__ = None

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def get(self) -> np.ndarray:
        return self._array

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, *args: object, **options: object) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")
