"""`mg.Tensor`: values in the host's memory, a device's, or both, whichever is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import init as initializers
from ..config import config
from ..dtypes import can_hold, canonical
from ..errors import ArgumentError, ConfigError, DTypeError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.html import Displayed, preformatted, table_html
from ..ir.values.dlpack import host_array
from ..ir.values.storage import DeviceStorage, HostStorage, Storage, UnifiedStorage, VariableStorage
from ..ops.leaf import Variable, constant
from . import device_arrays

__all__ = ["Tensor"]

MEMORY = ("managed", "host", "device", "cuda_managed")


class TensorIndexError(ShapeError, IndexError):
    """An index of a tensor is out of range, or is none."""


def _parts(index: Any) -> tuple[Any, ...]:
    """Return the entries of an index; lists and tensors become arrays."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Node) for part in parts):
        raise TensorIndexError(
            message("a tensor is indexed with a node", need="ints, slices or arrays",
                    hint="node.eval() for the value")
        )  # fmt: skip
    return tuple(np.asarray(p) if isinstance(p, (Tensor, list)) else p for p in parts)


def _check_ints(name: str, values: Any) -> None:
    """Raise `ArgumentError` unless all values are ints that an array's axis may have."""
    if not isinstance(values, (tuple, list, np.ndarray)) or not all(
        isinstance(value, (int, np.integer)) and abs(int(value)) < 2**31 for value in values
    ):
        raise ArgumentError(message(f"{name}({values!r}) of a tensor", need="ints"))



@documented
class Tensor(Displayed):
    """An array that knows where its values are.

    shape (int or sequence of int): Extents.
    init (callable, number, array or Tensor, optional): An initializer of `mg.init`, or values that
        broadcast to the shape; zeros unless said.
    dtype (optional): That of the values, or `mg.config.float_dtype`, unless said.
    memory (str): "managed": the host's memory with a mirror on the device, each brought up to date
        when it is read and only then; works without CUDA. "host": the host's alone. "device": the
        device's alone. "cuda_managed": memory of both, whose pages the driver moves.
    device (int): The number of the CUDA device.
    raises DeviceError: For "device" and "cuda_managed" where CUDA cannot be used.
    raises ShapeError, DTypeError: If values and shape do not fit.

    Notes
    -----
    Slices, `reshape`, `squeeze`, `unsqueeze` and `T` are views of the same memory: writing to one
    writes to all. Arrays as indices give copies.

    NumPy takes a tensor as an array (``np.asarray(t)``), read-only; CuPy, PyTorch and JAX take it
    by DLPack, ``torch.from_dlpack(t)``; CuPy also by ``cupy.asarray(t)``; whatever reads buffers
    takes ``t.buffer()``, or from Python 3.12 on the tensor itself. Functions take it as a feed.

    >>> t = mg.Tensor((2, 3), init=mg.init.ones())
    >>> t[-1, 1:] = 5.0
    >>> t
    Tensor([[1., 1., 1.],
            [1., 5., 5.]], dtype=float32, memory='managed')
    >>> t.reshape(-1)[-2].item(), t[:, None].squeeze(1).shape
    (5.0, (2, 3))
    """

    __slots__ = ("_device", "_memory", "_offset", "_shape", "_storage", "_strides")

    __array_priority__ = 900

    def __init__(
        self,
        shape: int | Sequence[int],
        init: Any = None,
        dtype: Any = None,
        memory: str = "managed",
        device: int = 0,
    ) -> None:
        if memory not in MEMORY:
            raise ConfigError(
                message(f"memory={memory!r}", need=f"one of {', '.join(map(repr, MEMORY))}")
            )
        extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if not all(isinstance(extent, (int, np.integer)) and extent >= 0 for extent in extents):
            nested = any(isinstance(extent, (list, tuple, np.ndarray)) for extent in extents)
            raise ShapeError(
                message(
                    f"a tensor of shape {shape!r}",
                    need="ints of at least 0",
                    hint="mg.Tensor(np.shape(values), init=values)" if nested else None,
                )
            )
        values = _values(tuple(map(int, extents)), init, dtype)
        arrays = partial(device_arrays, int(device))
        storage: Storage
        if memory == "device":
            storage = DeviceStorage(values, arrays)
        elif memory == "cuda_managed":
            storage = UnifiedStorage(values, arrays)
        else:
            storage = HostStorage(values, arrays)
        self._set(storage, values.shape, _strides(values.shape), 0, memory, int(device))

    def _set(
        self,
        storage: Storage,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        memory: str,
        device: int,
    ) -> None:
        self._storage, self._shape, self._strides = storage, shape, strides
        self._offset, self._memory, self._device = offset, memory, device

    @classmethod
    @documented
    def of(cls, values: Any, memory: str = "managed", device: int = 0) -> Tensor:
        """Return a tensor with a copy of values; of a variable, a view of its value.

        values (array, Tensor or Variable): NumPy's, CuPy's, or any that DLPack hands over. A
            variable's tensor shares its memory: it reads what functions wrote, and what is written
            to it, functions read.
        memory, device: As of `Tensor`; of a variable it is "managed".

        >>> w = mg.var("w", init=[1.0, 2.0])
        >>> held = mg.Tensor.of(w)
        >>> held[0] = 7.0
        >>> w.value
        array([7., 2.], dtype=float32)
        """
        if isinstance(values, Variable):
            tensor = cls.__new__(cls)
            storage = VariableStorage(values.state, partial(device_arrays, int(device)))
            shape = values.state.held.shape
            tensor._set(storage, shape, _strides(shape), 0, "managed", int(device))
            return tensor
        array = host_values(values)
        return cls(array.shape, array, array.dtype, memory, device)

    # What it is.

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self._storage.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def memory(self) -> str:
        """The kind of memory."""
        return self._memory

    @property
    def device(self) -> int:
        """The number of the CUDA device."""
        return self._device

    def __len__(self) -> int:
        if not self._shape:
            raise ArgumentError("a tensor without axes has no length")
        return self._shape[0]

    # The two sides.

    def _on_host(self, write: bool) -> np.ndarray:
        return self._seen(self._storage.host(write))

    def _seen(self, flat: np.ndarray) -> np.ndarray:
        size = self.dtype.itemsize
        strides = tuple(stride * size for stride in self._strides)
        start = flat[self._offset :] if flat.size else flat
        return np.lib.stride_tricks.as_strided(start, self._shape, strides)

    def numpy(self) -> np.ndarray:
        """Return the values as a read-only array of the host, without a copy where it has them."""
        array = self._on_host(write=False)
        array.flags.writeable = False
        return array

    def cupy(self, write: bool = False) -> Any:
        """Return the values as a CuPy array on the device, without a copy where it has them.

        Parameters
        ----------
        write
            Whether it will be written to: the host's mirror is stale from now on.
        """
        flat = self._storage.device(write)
        size = self.dtype.itemsize
        return type(flat)(
            self._shape,
            self.dtype,
            memptr=flat.data + self._offset * size,
            strides=tuple(stride * size for stride in self._strides),
        )

    @documented
    def prefetch(self, where: str = "device") -> None:
        """Bring the values to one side ahead of their use.

        where: "device" or "host".
        raises DeviceError: If there is no such device.
        """
        if where not in ("device", "host"):
            raise ConfigError(message(f"prefetch({where!r})", need="'device' or 'host'"))
        if self._memory == "host" and where == "device":
            raise ConfigError(
                message("a tensor in host memory has no side on the device",
                        hint="memory='managed'")
            )
        self._storage.prefetch(where == "device")

    # Reading and writing.

    def __getitem__(self, index: Any) -> Tensor:
        """Return the part at an index: a view, or a copy for arrays as indices."""
        parts = _parts(index)
        if any(isinstance(part, np.ndarray) for part in parts):
            return Tensor.of(self._indexed(self.numpy(), parts), self._memory, self._device)
        if not any(part is Ellipsis for part in parts):
            parts = (*parts, Ellipsis)  # an array also where all axes are indexed
        return self._view(self._indexed(self._shadow(), parts))

    def _indexed(self, array: np.ndarray, parts: tuple[Any, ...]) -> np.ndarray:
        """Return the part of an array of this shape, or raise `TensorIndexError`."""
        try:
            part: np.ndarray = array[parts]
        except (IndexError, ValueError, TypeError, OverflowError) as error:
            raise TensorIndexError(
                message(f"a tensor of shape {self._shape} cannot be indexed: {error}")
            ) from error
        return part

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write values that broadcast to the part at an index."""
        values = host_values(value)
        if values.dtype != self.dtype and not can_hold(value, values, self.dtype):
            raise DTypeError(
                message(
                    f"a tensor of {self.dtype.name} is given {values.dtype.name}",
                    need="values of its kind that fit",
                    hint=f"value.astype('{self.dtype.name}')",
                )
            )
        parts = _parts(index)
        part_shape = self._shadow_shape(parts)
        try:
            fitted = np.broadcast_to(values, part_shape)
        except ValueError:
            raise ShapeError(
                message(f"values of shape {values.shape} for a part of shape {part_shape}")
            ) from None
        flat = self._storage.host(write=True)
        self._seen(flat)[parts] = fitted
        if isinstance(self._storage, DeviceStorage):
            self._storage.take(flat)

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self.size != 1:
            raise ShapeError(
                message(f"item() of a tensor of {self.size} elements", need="a tensor of one")
            )
        return self.numpy().item()

    def get(self, *index: int) -> Any:
        """Return an element as a Python number; negative positions count from the end."""
        return self[index].item()

    def set(self, value: Any, *index: int) -> None:
        """Write an element."""
        self[index] = value

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def copy_from(self, other: Any) -> Tensor:
        """Take all values from a tensor of any memory, an array, or what DLPack hands over.

        Returns
        -------
        Tensor
            Itself.

        Raises
        ------
        ShapeError, DTypeError
            If shape or kind of dtype differ; nothing is changed then.
        """
        shape = getattr(other, "shape", None)
        shape = shape if isinstance(shape, tuple) else host_values(other).shape
        if shape != self._shape:
            raise ShapeError(
                message(f"copy_from: values of shape {shape}", need=f"shape {self._shape}")
            )
        both = isinstance(other, Tensor) and "device" in (self._memory, other._memory)
        if both and other.dtype == self.dtype and self._memory != "host" != other._memory:
            self.cupy(write=True)[...] = other.cupy()  # on the device, past the host
        else:
            self[...] = other
        return self

    def copy(self, memory: str | None = None, device: int | None = None) -> Tensor:
        """Return a tensor of its own with the same values, in the same memory unless said."""
        return Tensor.of(
            self, memory or self._memory, self._device if device is None else device
        )

    # Views.

    def _shadow(self) -> np.ndarray:
        """Return an array of these strides that is never read: what indexing makes of it."""
        size = self.dtype.itemsize
        strides = tuple(stride * size for stride in self._strides)
        return np.lib.stride_tricks.as_strided(
            np.empty(1, self.dtype), self._shape, strides, writeable=False
        )

    def _shadow_shape(self, parts: tuple[Any, ...]) -> tuple[int, ...]:
        if any(isinstance(part, np.ndarray) for part in parts):
            return self._indexed(np.broadcast_to(np.int8(0), self._shape), parts).shape
        whole = parts if any(part is Ellipsis for part in parts) else (*parts, Ellipsis)
        return self._indexed(self._shadow(), whole).shape

    def _view(self, view: np.ndarray) -> Tensor:
        """Return the tensor of this memory that a view of a fresh shadow describes."""
        base = view
        while isinstance(base.base, np.ndarray):
            base = base.base
        first = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        size = self.dtype.itemsize
        tensor = Tensor.__new__(type(self))
        tensor._set(
            self._storage,
            view.shape,
            tuple(stride // size for stride in view.strides),
            self._offset + first // size,
            self._memory,
            self._device,
        )
        return tensor

    def reshape(self, *shape: Any) -> Tensor:
        """Return it in another shape: a view, or a copy where strides allow none.

        Parameters
        ----------
        *shape
            Ints, or one tuple of them; one may be -1.
        """
        extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        _check_ints("reshape", extents)
        shadow = self._shadow()
        try:
            view = np.reshape(shadow, tuple(extents), copy=False)
        except ValueError:
            try:
                new_shape = np.broadcast_to(np.int8(0), self.size).reshape(tuple(extents)).shape
            except ValueError:
                raise ShapeError(
                    message(f"a tensor of shape {self._shape} as {tuple(extents)}",
                            need=f"{self.size} elements")
                ) from None
            return Tensor.of(self.numpy().reshape(new_shape), self._memory, self._device)
        return self._view(view)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """Return it without axes of extent 1: all, or those that are given."""
        _check_ints("squeeze", () if axis is None else np.atleast_1d(np.asarray(axis)))
        try:
            view = self._shadow().squeeze(axis if axis is None else tuple(np.atleast_1d(axis)))
        except ValueError as error:
            raise ShapeError(
                message(f"squeeze(axis={axis}) of shape {self._shape}: {error}")
            ) from None
        return self._view(view)

    def unsqueeze(self, axis: int) -> Tensor:
        """Return it with an axis of extent 1 at a position."""
        _check_ints("unsqueeze", (axis,))
        try:
            return self._view(np.expand_dims(self._shadow(), axis))
        except ValueError as error:
            raise ShapeError(
                message(f"unsqueeze({axis}) of shape {self._shape}: {error}")
            ) from None

    @property
    def T(self) -> Tensor:
        """The view with its axes in the opposite order."""
        return self._view(self._shadow().T)

    # Protocols.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values for NumPy."""
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError("values of another dtype are a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        """Return a capsule for DLPack: of the device for memory that is there."""
        if self._memory in ("device", "cuda_managed"):
            return self.cupy(write=True).__dlpack__(**options)
        if (options.get("max_version") or (0, 0)) >= (1, 0):  # which can say that it is read-only
            return self.numpy().__dlpack__(**options)
        # Whoever takes the capsule may write through it.
        return self._on_host(write=True).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where a capsule's memory is."""
        if self._memory in ("device", "cuda_managed"):
            device: tuple[int, int] = self.cupy().__dlpack_device__()
            return device
        return (1, 0)

    @property
    def __cuda_array_interface__(self) -> Any:
        """What CuPy and Numba read; only for memory that the device has."""
        if self._memory not in ("device", "cuda_managed"):
            raise AttributeError("a tensor whose memory is the host's; tensor.cupy() copies it")
        return self.cupy().__cuda_array_interface__

    def buffer(self) -> memoryview:
        """Return the values as a read-only buffer of the host."""
        return self.numpy().data

    def __buffer__(self, flags: int) -> memoryview:
        """Return the buffer; Python calls it from 3.12 on."""
        return self.buffer()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values and the kind of memory."""
        return (Tensor.of, (np.array(self.numpy()), self._memory, self._device))

    def _html(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "scalar"
        rows = [("shape", "dtype", "memory", "device", "bytes")]
        rows.append(
            (shape, self.dtype.name, self._memory, str(self._device), str(self.numpy().nbytes))
        )
        return table_html(rows, left=range(4)) + preformatted(str(self.numpy()))

    def __repr__(self) -> str:
        text = repr(self.numpy()).replace("array(", "Tensor(").replace("\n", "\n ")
        head = text.rpartition(", dtype=")[0] if ", dtype=" in text else text.rpartition(")")[0]
        return f"{head}, dtype={self.dtype.name}, memory={self._memory!r})"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of contiguous rows, in elements."""
    strides: list[int] = []
    count = 1
    for extent in reversed(shape):
        strides.append(count)
        count *= extent
    return tuple(reversed(strides))


def host_values(values: Any) -> np.ndarray:
    """Return values of any library as an array of the host."""
    return values.numpy() if isinstance(values, Tensor) else host_array(values)


def _values(shape: tuple[int, ...], init: Any, dtype: Any) -> np.ndarray:
    element = None if dtype is None else canonical(dtype)
    if init is None:
        return np.zeros(shape, element or config.float_dtype)
    if callable(init) and not isinstance(init, Tensor):
        target_dtype = element or config.float_dtype
        return np.asarray(init(shape, target_dtype), target_dtype)
    if isinstance(init, str):
        raise ConfigError(
            message(
                f"init={init!r}",
                need="an initializer of mg.init, or values",
                hint=f"mg.init.{init}(...)" if init in initializers.__all__ else None,
            )
        )
    array = host_values(init)
    if element is None:
        element = canonical(array.dtype) if hasattr(init, "dtype") else constant(init).dtype
    try:
        return np.array(np.broadcast_to(array, shape), element)
    except ValueError:
        raise ShapeError(
            message(f"a tensor of shape {shape} is given values of shape {array.shape}",
                    need="values that broadcast to the shape")
        ) from None
