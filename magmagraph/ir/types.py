"""The type of a value in a graph: dtype and shape."""

from __future__ import annotations

import os
from typing import Any, Final, TypeAlias

import numpy as np

from .dims import Dim, evaluate, size

Extent = int | Dim
MOST_TERMS = 10_000  # the most parts of a graph that one number asks for, such as a degree
Operand: TypeAlias = Any
"""A node, a number or an array: what `ops.convert.as_node` takes."""
Operands: TypeAlias = Any
"""A sequence of operands, or a node of which each row is one."""
FilePath: TypeAlias = str | os.PathLike[str]
"""The name of a file or folder."""
Shape = tuple[Extent, ...]


class Type:
    """A dtype and a shape whose extents are ints or `Dim`; immutable and hashable.

    Examples
    --------
    >>> import numpy as np
    >>> Type(np.dtype("float32"), (2, 3))
    float32[2, 3]
    """

    __slots__ = ("_bytes", "_hash", "_size", "dtype", "shape")

    dtype: Final[np.dtype]
    shape: Final[Shape]

    def __init__(self, dtype: np.dtype, shape: Shape) -> None:
        self.dtype = dtype
        self.shape = shape
        self._hash = hash((dtype, shape))
        self._size: Extent | None = None  # passes ask for it again and again
        self._bytes: Extent | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Extent:
        """Number of elements."""
        if self._size is None:
            self._size = size(self.shape)
        return self._size

    @property
    def bytes(self) -> Extent:
        """Bytes that a contiguous buffer of this type takes."""
        if self._bytes is None:
            self._bytes = self.size * self.dtype.itemsize
        return self._bytes

    def concrete(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """Return the shape with every named dimension replaced by its size."""
        return tuple(e if type(e) is int else evaluate(e, sizes) for e in self.shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self._hash == other._hash
            and self.dtype == other.dtype
            and self.shape == other.shape
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[type[Type], tuple[np.dtype, Shape]]:
        return (Type, (self.dtype, self.shape))


TypeLike = Type | tuple[Type, ...]
