"""Masks of attention: which keys come no later than a query, which lie within a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_integer
from ...errors import DTypeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node
from ..elementwise.arithmetic import add
from ..elementwise.comparison import less_equal
from ..indexing.iota import IOTA
from ..shape.arrange import reshape

__all__ = ["causal_mask", "padding_mask", "seen"]

INT32 = np.dtype(np.int32)


def seen(length: Extent, other: Extent) -> Node:
    """Return where a query may see a key under the causal mask: bool, made without memory."""
    at = IOTA(shape=(length, 1), axis=0, dtype=INT32)
    return less_equal(IOTA(shape=(1, other), axis=1, dtype=INT32), at)


@grouped
@documented
def causal_mask(length: Extent | str, other: Extent | str | None = None) -> Node:
    """Return where a query may see a key that does not come after it.

    length: Number of queries: an int or a dimension.
    other: Number of keys; as many unless said.
    returns: Bool, of shape ``(length, other)``: true where the key's position is at most the
        query's.

    >>> mg.causal_mask(3).eval().astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    rows, columns = dims.parse_shape((length, length if other is None else other))
    return seen(rows, columns)


@grouped
@documented
def padding_mask(lengths: Any, length: Extent | str) -> Node:
    """Return which positions lie within sequences of given lengths.

    lengths: Node or array of integers: how many positions of each sequence count.
    length: The extent of the new last axis: an int or a dimension.
    returns: Bool, of the shape of `lengths` and an axis of `length`. For attention over keys, give
        it axes for heads and queries: ``mask[:, None, None, :]``.
    raises DTypeError: If the lengths are not integers.

    >>> mg.padding_mask(mg.constant([1, 3]), 3).eval().astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    node = as_node(lengths)
    if not is_integer(node.dtype):
        raise Call(PADDING_MASK, (node,)).dtype_error(
            f"lengths of dtype {node.dtype.name}",
            need="an integer dtype",
            hint="mg.cast(lengths, 'int32')",
        )
    (count,) = dims.parse_shape((length,))
    shape: tuple[Extent, ...] = (*[1] * node.ndim, count)
    at = IOTA(shape=shape, axis=node.ndim, dtype=INT32)
    return less_equal(add(at, 1), reshape(node, (*node.shape, 1)))


# Records.

CAUSAL_MASK = Composite(
    kind=Kind.INDEX,
    function=causal_mask,
    tests=Tests(
        samples=lambda: [Sample((), {"length": 4}), Sample((), {"length": 2, "other": 5})],
        reference=lambda length, other=None: np.tril(
            np.ones((length, length if other is None else other), bool)
        ),
    ),
    numerics="exact",
    no_gradient="boolean valued",
)


PADDING_MASK = Composite(
    kind=Kind.INDEX,
    function=padding_mask,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([2, 0, 7]),), {"length": 4}),
            Sample((np.array([[1], [3]], dtype=np.int32),), {"length": 3}),
        ],
        bad_samples=lambda: [
            BadSample(
                (np.array([2.0]),),
                DTypeError,
                "padding_mask: lengths of dtype float64",
                {"length": 4},
            )
        ],
        reference=lambda lengths, length: np.arange(length) < lengths[..., None],
    ),
    numerics="exact",
    no_gradient="boolean valued",
)

RECORDS = (CAUSAL_MASK, PADDING_MASK)
