"""A stand-in for a device's array, where there is no device."""

from __future__ import annotations

import numpy as np


class OnDevice:
    """An array that lies on a device: NumPy cannot take it, `get` copies it."""

    __cuda_array_interface__ = None

    def __init__(self, held: np.ndarray) -> None:
        self._held = held
        self.shape, self.ndim, self.dtype = held.shape, held.ndim, held.dtype

    def get(self) -> np.ndarray:
        return self._held

    def __len__(self) -> int:
        return len(self._held)

    def __array__(self, *given: object, **options: object) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed")
