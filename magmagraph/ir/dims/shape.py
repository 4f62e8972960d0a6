"""Shapes: tuples of extents, read from a user's notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import ShapeError, message
from .algebra import Dim, Extent, anonymous

Shape: TypeAlias = tuple[Extent, ...]


def parse_shape(shape: Any) -> Shape:
    """Read a shape as a user writes it.

    shape (int, str, None, Dim, or a sequence of these): A str names a dimension; None makes an
        anonymous one, different from every other. A sole entry stands for a shape of one axis;
        ``()`` is a scalar's shape.
    returns (tuple of int or Dim):
    raises ShapeError: If an entry is negative, is no such thing, or is not an identifier.

    Examples
    --------
    >>> parse_shape(("batch", 28, 2 * Dim("n"))), parse_shape(5), parse_shape([])
    ((batch, 28, 2*n), (5,), ())
    """
    if shape is None or isinstance(shape, (int, str, Dim, np.integer)):
        shape = (shape,)
    try:
        entries = tuple(shape)
    except TypeError:
        raise ShapeError(
            message(
                f"{shape!r} is not a shape",
                need="a tuple of ints, names and None, such as ('batch', 784)",
            )
        ) from None
    return tuple(_entry(value, entries) for value in entries)


def _entry(value: Any, shape: tuple[Any, ...]) -> Extent:
    if isinstance(value, Dim):
        return value
    if isinstance(value, str):
        if not value.isidentifier():
            raise ShapeError(
                message(
                    f"{value!r} in shape {shape} is not a name for a dimension",
                    need="a Python identifier",
                    hint="an expression is built by arithmetic: mg.Dim('batch') * 2",
                )
            )
        return Dim(value)
    if value is None:
        return anonymous()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ShapeError(
            message(
                f"{value!r} in shape {shape} is not an extent", need="an int, a name, a Dim or None"
            )
        )
    if value < 0:
        raise ShapeError(
            message(
                f"{value} in shape {shape} is negative",
                need="extents of at least 0",
                hint="None stands for an extent that is not known",
            )
        )
    return int(value)


def size(shape: Sequence[Extent]) -> Extent:
    """Count the elements of a shape.

    Examples
    --------
    >>> size((Dim("batch"), 784)), size(())
    (784*batch, 1)
    """
    total: Extent = 1
    for extent in shape:
        total = total * extent
    return total
