"""The options `where` and `initial` of reductions: which elements count, and what is folded in.

Both are compositions around the reductions: elements that do not count are replaced, before
anything is computed from them, by what changes nothing, so that their gradient is 0 whatever their
value; the initial value is joined to what was found.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dtypes import holds, iinfo, is_bool, is_float, is_inexact, is_integer, kind
from ...errors import ConfigError, DTypeError, ShapeError, message
from ...ir.graph import Node
from ...ir.op import describe
from ..convert import as_node, cast
from ..elementwise.comparison import where as select
from ..elementwise.family import BOOL
from ..leaf import constant
from ..shape.axes import shape_text
from ..shape.joining import broadcast_to

_INT64 = np.dtype(np.int64)

INITIAL = "initial: A number, or a scalar node, that {use}."


def mask_of(name: str, node: Node, where: Any) -> Node | None:
    """Return which elements of an operand count, in its shape; None where all do.

    name: The function, for the errors.
    node: The operand.
    where: What the user gave: bools that broadcast to the operand's shape.
    raises DTypeError: If they are no bools.
    raises ShapeError: If they do not broadcast to the operand's shape.
    """
    if isinstance(where, (bool, np.bool_)) and where:
        return None
    mask = as_node(where)
    if mask.dtype != BOOL:
        raise DTypeError(
            message(
                f"{name}: where is {describe(mask)}",
                need="bools",
                hint="mg.not_equal(where, 0)",
            )
        )
    try:
        return broadcast_to(mask, node.shape)
    except ShapeError:
        raise ShapeError(
            message(
                f"{name}: where of shape {shape_text(mask.shape)} does not broadcast to "
                f"the operand's shape {shape_text(node.shape)}",
                need="equal extents, or a literal 1 in where",
            )
        ) from None


def filled(node: Node, mask: Node | None, value: Any) -> Node:
    """Replace the elements that do not count by a value."""
    return node if mask is None else select(mask, node, constant(value, node.dtype))


def worst(dtype: np.dtype, largest: bool) -> Any:
    """Return the value that no element is worse than, where the largest (or smallest) is sought."""
    if is_bool(dtype):
        return not largest
    if is_float(dtype):
        return -np.inf if largest else np.inf
    return iinfo(dtype).min if largest else iinfo(dtype).max


def without_elements(node: Node, axes: Iterable[int]) -> bool:
    """Return whether one of the axes is known to be empty, so that there is no largest element."""
    return any(type(node.shape[a]) is int and node.shape[a] == 0 for a in axes)


def start_of(name: str, initial: Any, dtype: np.dtype) -> Node:
    """Return an initial value as a scalar of the elements' dtype.

    name: The function, for the errors.
    initial: What the user gave: a number, or a scalar node.
    dtype: The elements' dtype.
    raises ShapeError: If it is no scalar.
    raises DTypeError: If it is of a higher kind than the elements, or does not fit into their
        dtype.
    """
    start = as_node(initial, dtype if is_inexact(dtype) else None)
    if start.ndim:
        raise ShapeError(
            message(f"{name}: initial of shape {shape_text(start.shape)}", need="a scalar")
        )
    if _rank(start.dtype) > _rank(dtype):
        raise DTypeError(
            message(
                f"{name}: initial is {describe(start)}, the elements are {dtype.name}",
                need="a value of the elements' kind",
                hint=f"mg.cast(x, '{start.dtype.name}')",
            )
        )
    value = start.attrs.get("value")
    if value is not None and is_integer(dtype) and not holds(dtype, int(value)):
        raise DTypeError(
            message(
                f"{name}: initial={int(value)} does not fit into {dtype.name}",
                need=f"a value in [{iinfo(dtype).min}, {iinfo(dtype).max}]",
            )
        )
    if not isinstance(initial, Node):
        return constant(initial, dtype)  # in one step: a float64 element keeps all digits
    return cast(start, dtype)


def _rank(dtype: np.dtype) -> int:
    return ("bool", "integer", "float", "complex").index(kind(dtype))


def no_start(name: str, initial: Any, mask: Node | None) -> bool:
    """Tell whether there is no initial value, which a mask needs where nothing else is worst.

    raises ConfigError: If there is a mask and no initial value.
    """
    if initial is None and mask is not None:
        raise ConfigError(
            message(
                f"{name}: where= without initial=, and there is no value where nothing counts",
                need=f"initial=, the value that {name} begins with",
            )
        )
    return initial is None
