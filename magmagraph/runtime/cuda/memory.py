"""Memory of plans on a CUDA device: an arena, copies of variables, feeds and results."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...state import State

__all__ = ["VariableCopy", "copy_of", "upload"]

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3


class VariableCopy:
    """A variable's buffer on a device, at one address for as long as the variable lives.

    Attributes
    ----------
    buffer
        The bytes, as a CuPy array.
    version
        That of the variable's value which it holds.
    """

    def __init__(self, device: Any, state: State) -> None:
        self.device = device
        with device:
            self.buffer = device.empty(max(1, state.held.nbytes))
        self.version = -1

    @property
    def address(self) -> int:
        """The device address."""
        return int(self.buffer.data.ptr)

    def fetch(self, target: np.ndarray) -> None:
        """Write the value into an array of the host, when all that computes it is done."""
        runtime = self.device.cupy.cuda.runtime
        with self.device:
            stream = self.device.stream
            stream.synchronize()
            runtime.memcpy(target.ctypes.data, self.address, target.nbytes, DEVICE_TO_HOST)


def copy_of(device: Any, state: State) -> VariableCopy:
    """Return a variable's copy on a device, made where there is none yet."""
    name = f"cuda:{device.number}"
    known = state.copies.get(name)
    if known is None:
        known = state.copies[name] = VariableCopy(device, state)
    assert isinstance(known, VariableCopy)
    return known


def upload(device: Any, state: State, copy: VariableCopy) -> None:
    """Bring a stale copy up to date; the variable may have been written anywhere."""
    if copy.version == state.version:
        return
    data = state.data
    if data.nbytes:
        stream = device.stream
        # From memory that is not pinned this returns when the bytes have been taken.
        device.cupy.cuda.runtime.memcpyAsync(
            copy.address, data.ctypes.data, data.nbytes, HOST_TO_DEVICE, stream.ptr
        )
    copy.version = state.version
