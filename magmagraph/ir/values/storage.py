"""The memory under a `Tensor`: the host's, a device's, or both with flags that say which is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .state import State, aligned_copy

__all__ = ["DeviceArrays", "DeviceStorage", "HostStorage", "Storage", "UnifiedStorage",
           "VariableStorage"]  # fmt: skip


class DeviceArrays(Protocol):
    """One-dimensional arrays of a device, and how they are copied."""

    name: str

    def empty(self, count: int, dtype: np.dtype, unified: bool = False) -> Any:
        """Return a new array; `unified` memory is the host's, too."""

    def upload(self, target: Any, source: np.ndarray) -> None:
        """Copy from the host."""

    def download(self, target: np.ndarray, source: Any) -> None:
        """Copy to the host, and wait until it is there."""

    def host_view(self, array: Any) -> np.ndarray:
        """Return unified memory as an array of the host, once the device is done with it."""

    def prefetch(self, array: Any, to_device: bool) -> None:
        """Move pages of unified memory ahead of their use."""


class Storage(Protocol):
    """Elements in a row."""

    dtype: np.dtype
    count: int

    def host(self, write: bool) -> np.ndarray:
        """Return the host's array, up to date; with `write` others become stale."""

    def device(self, write: bool) -> Any:
        """Return the device's array, up to date; with `write` others become stale."""

    def prefetch(self, to_device: bool) -> None:
        """Bring the values to one side ahead of their use."""


MakeArrays = Callable[[], DeviceArrays]


class HostStorage:
    """The host's memory, with a mirror on a device where one is asked for.

    Nothing is copied until one side is read that is not up to date: ``host_valid`` and
    ``device_valid`` say which are.
    """

    def __init__(self, values: np.ndarray, arrays: MakeArrays) -> None:
        self.dtype, self.count = values.dtype, values.size
        self._host = aligned_copy(values.reshape(-1))
        self._arrays = arrays
        self._device: Any = None
        self.host_valid, self.device_valid = True, False

    def host(self, write: bool) -> np.ndarray:
        """Return the host's array."""
        if not self.host_valid:
            self._arrays().download(self._host, self._device)
            self.host_valid = True
        if write:
            self.device_valid = False
        return self._host

    def device(self, write: bool) -> Any:
        """Return the device's array."""
        if self._device is None:
            self._device = self._arrays().empty(self.count, self.dtype)
        if not self.device_valid:
            self._arrays().upload(self._device, self._host)
            self.device_valid = True
        if write:
            self.host_valid = False
        return self._device

    def prefetch(self, to_device: bool) -> None:
        """Synchronize one side now."""
        self.device(write=False) if to_device else self.host(write=False)


class DeviceStorage:
    """A device's memory; the host sees copies."""

    def __init__(self, values: np.ndarray, arrays: MakeArrays) -> None:
        self.dtype, self.count = values.dtype, values.size
        self._arrays = arrays()
        self._device = self._arrays.empty(self.count, self.dtype)
        self._arrays.upload(self._device, np.ascontiguousarray(values).reshape(-1))

    def host(self, write: bool) -> np.ndarray:
        """Return a copy of the values; `Tensor` takes it back after it wrote."""
        copy = np.empty(self.count, self.dtype)
        self._arrays.download(copy, self._device)
        return copy

    def take(self, values: np.ndarray) -> None:
        """Take values that the host wrote."""
        self._arrays.upload(self._device, values)

    def device(self, write: bool) -> Any:
        """Return the array."""
        return self._device

    def prefetch(self, to_device: bool) -> None:
        """Do nothing: the values are where they are."""


class UnifiedStorage:
    """Memory that host and device both address; the driver moves its pages."""

    def __init__(self, values: np.ndarray, arrays: MakeArrays) -> None:
        self.dtype, self.count = values.dtype, values.size
        self._arrays = arrays()
        self._array = self._arrays.empty(self.count, self.dtype, unified=True)
        self.host(write=True)[...] = values.reshape(-1)

    def host(self, write: bool) -> np.ndarray:
        """Return the host's view, once the device is done with it."""
        return self._arrays.host_view(self._array)

    def device(self, write: bool) -> Any:
        """Return the array."""
        return self._array

    def prefetch(self, to_device: bool) -> None:
        """Move the pages."""
        self._arrays.prefetch(self._array, to_device)


class VariableStorage:
    """A variable's own buffer, which functions on all devices update."""

    def __init__(self, state: State, arrays: MakeArrays) -> None:
        self.state = state
        self.dtype, self.count = state.held.dtype, state.held.size
        self._arrays = arrays
        self._device: Any = None
        self._version = -1

    def host(self, write: bool) -> np.ndarray:
        """Return the buffer, fetched from where the newest value is."""
        data = self.state.data
        if write:
            self.state.version += 1
        return data.reshape(-1)

    def device(self, write: bool) -> Any:
        """Return a copy of the value on the device, made where the last one is old."""
        if write:
            raise BufferError("a variable is written by its value, or by updates of a function")
        if self._device is None:
            self._device = self._arrays().empty(self.count, self.dtype)
        if self._version != self.state.version:
            self._arrays().upload(self._device, self.host(write=False))
            self._version = self.state.version
        return self._device

    def prefetch(self, to_device: bool) -> None:
        """Synchronize one side now."""
        self.device(write=False) if to_device else self.host(write=False)
