"""Embeddings: rows of a table, looked up by integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_integer
from ...errors import DTypeError, ShapeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..control.identities import stop_gradient
from ..convert import as_node
from ..elementwise.comparison import equal, where
from ..elementwise.family import floating
from ..indexing.gathering import take
from ..shape.arrange import reshape

__all__ = ["embedding"]


@grouped
@documented
def embedding(ids: Any, table: Any, *, padding_index: int | None = None) -> Node:
    """Look up rows of a table.

    ids: Integers of any shape: positions of rows. Those outside of the table mean the nearest row,
        since a kernel cannot raise; constant ones are checked at once.
    table: Node or array of shape ``(rows, ...)``: a variable, as a rule.
    padding_index: Ids that equal it get that row too, but no gradient flows from them: the row
        stays as it is in training.
    returns: Of shape ``ids.shape + table.shape[1:]`` and the table's float dtype.
    raises DTypeError: If the ids are not integers.
    raises ShapeError: If a constant id is out of range, or `padding_index` is.

    Notes
    -----
    The gradient of the table is dense as a value: the looked-up rows' gradients, added into zeros.
    It need not be dense in memory. Where it does nothing but renew the table by
    ``table - rate * gradient``, as plain gradient descent does, the pass ``accumulate`` writes the
    update as one step that adds to the looked-up rows in place, and no array of the table's size is
    made. What needs the whole gradient (momentum, Adam, weight decay, a norm that clips) makes it.

    >>> table = mg.var("table", init=[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> rows = mg.embedding(mg.constant([2, 0, 2]), table)
    >>> rows.eval()
    array([[4., 5.],
           [0., 1.],
           [4., 5.]], dtype=float32)
    >>> mg.grad(mg.sum(rows), table).eval()
    array([[1., 1.],
           [0., 0.],
           [2., 2.]], dtype=float32)
    """
    positions, weights = as_node(ids), floating(table)
    call = Call(EMBEDDING, (positions, weights))
    if not is_integer(positions.dtype):
        raise call.dtype_error(
            f"ids of dtype {positions.dtype.name}",
            need="an integer dtype",
            hint="mg.cast(ids, 'int32')",
        )
    if not weights.ndim:
        raise call.shape_error("a table without axes", need="shape (rows, ...)")
    rows = take(weights, positions, 0)
    if padding_index is None:
        return rows
    count = weights.shape[0]
    if not isinstance(padding_index, (int, np.integer)) or isinstance(padding_index, bool):
        raise call.dtype_error(f"padding_index={padding_index!r} is not an int")
    if isinstance(count, int) and not 0 <= padding_index < count:
        raise call.shape_error(
            f"padding_index={padding_index} for a table of {count} rows",
            need=f"a row in [0, {count})",
        )
    line: tuple[Extent, ...] = (*positions.shape, *[1] * (weights.ndim - 1))
    padding = reshape(equal(positions, int(padding_index)), line)
    return where(padding, stop_gradient(rows), rows)


_TABLE = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
_IDS = np.array([[3, 0], [1, 3]])

EMBEDDING = Composite(
    kind=Kind.INDEX,
    function=embedding,
    tests=Tests(
        samples=lambda: [
            Sample((_IDS, _TABLE)),
            Sample((_IDS[0], _TABLE)),
            Sample((np.array(2), _TABLE)),
            Sample((np.zeros((0, 2), np.int32), _TABLE)),
            Sample(
                (_IDS, _TABLE),
                {"padding_index": 3},
                gradient=(),
                reason="the padding row's gradient is 0 by definition",
            ),
        ],
        bad_samples=lambda: [
            BadSample((_TABLE, _TABLE), DTypeError, "embedding: ids of dtype float64"),
            BadSample(
                (_IDS, _TABLE),
                ShapeError,
                "embedding: padding_index=4 for a table of 4 rows",
                {"padding_index": 4},
            ),
            BadSample((_IDS, np.array(1.0)), ShapeError, "embedding: a table without axes"),
        ],
        reference=lambda ids, table, padding_index=None: table[ids],
    ),
    numerics="exact",
)

RECORDS = (EMBEDDING,)
