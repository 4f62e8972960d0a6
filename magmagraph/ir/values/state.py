"""The value that a variable holds."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import can_hold
from ...errors import DTypeError, ShapeError, message
from ..element_types import KINDS
from .dlpack import host_array
from .given import hint_of_width, narrowed, unlike_numbers

_serial = itertools.count()


class State:
    """One fixed-address host buffer and its version.

    version: Counts the writes, so that a copy on another device knows when it is stale.
    newest: The copy on another device that holds the value where the host's is stale; its method
        ``fetch(array)`` writes the value into an array. None where the host has it.
    copies: The copies on other devices, by the device's name.
    invalid: Why the value is lost (a device failed after the commit point), or None.
    node: The variable that holds it (weakly), so that unpickling finds one that is alive.
    """

    __slots__ = (
        "__weakref__",
        "copies",
        "held",
        "invalid",
        "name",
        "newest",
        "node",
        "serial",
        "version",
    )

    def __init__(self, value: np.ndarray, name: str) -> None:
        self._hold(aligned_copy(value), name)

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: np.dtype, name: str) -> State:
        """Make a buffer of zeros, whose memory is taken when it is written."""
        state = cls.__new__(cls)
        state._hold(aligned(np.zeros, shape, dtype), name)
        return state

    def _hold(self, buffer: np.ndarray, name: str) -> None:
        self.held = buffer
        self.newest: Any = None
        self.copies: dict[str, Any] = {}
        self.name = name
        self.version = 0
        self.invalid: str | None = None
        self.serial = next(_serial)
        self.node: weakref.ref[Any] | None = None

    @property
    def data(self) -> np.ndarray:
        """The host's buffer, up to date: C-contiguous, 64-byte aligned, never replaced."""
        if self.newest is not None:
            self.newest.fetch(self.held)
            self.newest = None
        return self.held

    def read(self) -> np.ndarray:
        """Return a copy of the value."""
        if self.invalid is not None:
            raise RuntimeError(
                message(f"variable '{self.name}' has no value: {self.invalid}", hint="assign one")
            )
        return self.data.copy()

    def fitted(self, value: Any) -> np.ndarray:
        """Return a value as an array of the held shape and dtype, converted within its kind.

        raises ShapeError, DTypeError: If it has another shape, or is of another kind.
        """
        try:
            array = host_array(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DTypeError(
                message(f"variable '{self.name}' is given what is no array: {error}")
            ) from None
        current = self.held
        if array.dtype not in KINDS:
            what, hint = unlike_numbers(value, array)
            raise DTypeError(
                message(
                    f"variable '{self.name}' is given {what}",
                    need=f"numbers of dtype {current.dtype.name}",
                    hint=hint,
                )
            )
        if array.shape != current.shape:
            raise ShapeError(
                message(
                    f"variable '{self.name}' has shape {current.shape}, "
                    f"the new value {array.shape}",
                    need="the same shape",
                )
            )
        if array.dtype != current.dtype and not can_hold(value, array, current.dtype):
            same = KINDS.get(array.dtype) == KINDS[current.dtype]
            raise DTypeError(
                message(
                    f"variable '{self.name}' is {current.dtype.name}, the new value "
                    + (f"{array.dtype.name} that it does not hold" if same else array.dtype.name),
                    need="values that fit" if same else "a dtype of the same kind",
                    hint=hint_of_width(array, current.dtype)
                    or f"value.astype('{current.dtype.name}')",
                )
            )
        if array.dtype != current.dtype:
            array = narrowed(array, current.dtype, lambda: f"variable '{self.name}'")
        return array

    def write(self, value: Any) -> None:
        """Write a value of the same shape, converted within its kind; nothing else changes."""
        self.held[...] = self.fitted(value)
        self.newest = None
        self.version += 1
        self.invalid = None

    def __getstate__(self) -> tuple[np.ndarray, str]:
        return (self.read(), self.name)

    def __setstate__(self, state: tuple[np.ndarray, str]) -> None:
        value, name = state
        State.__init__(self, value, name)


def aligned_copy(value: np.ndarray, alignment: int = 64) -> np.ndarray:
    """Return a C-contiguous copy that is aligned to `alignment` bytes.

    A zero that is broadcast takes memory when it is written: optimizers keep as many of these as
    a network has weights.
    """
    if value.size > 1 and not any(value.strides) and not any(value[(0,) * value.ndim].tobytes()):
        return aligned(np.zeros, value.shape, value.dtype, alignment)
    result = aligned(np.empty, value.shape, value.dtype, alignment)
    result[...] = value
    return result


def aligned(
    make: Callable[..., np.ndarray], shape: tuple[int, ...], dtype: np.dtype, alignment: int = 64
) -> np.ndarray:
    """Return an array of `make` that is aligned to `alignment` bytes."""
    size = math.prod(shape) * dtype.itemsize
    raw = make(size + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    result: np.ndarray = raw[start : start + size].view(dtype).reshape(shape)
    return result
