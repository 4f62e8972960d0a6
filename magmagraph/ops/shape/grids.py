"""Positions and coordinates along the axes of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...dtypes import canonical
from ...errors import ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_node
from ..indexing.iota import INT64, IOTA
from ..rules.namesakes import namesake
from .arrange import reshape
from .axes import LINE
from .creation import shape_of, zeros
from .joining import broadcast_to, stack

__all__ = [
    "indices",
    "meshgrid",
]


@documented
def indices(dimensions: Sequence[Any], dtype: Any = None, sparse: bool = False) -> Any:
    """Return the positions along each axis of an array of a shape.

    dimensions: The shape: ints, names, Dims.
    dtype: int64 unless said.
    sparse: Return a tuple with one array an axis, of extent 1 along the others.
    returns (Node, or a tuple of Node): Of shape ``(len(dimensions), *dimensions)``.

    >>> mg.indices((2, 2)).eval()
    array([[[0, 0],
            [1, 1]],
    <BLANKLINE>
           [[0, 1],
            [0, 1]]])
    """
    shape = shape_of(dimensions)
    target = INT64 if dtype is None else canonical(dtype)
    lines = []
    for axis, extent in enumerate(shape):
        line = tuple(extent if axis == other else 1 for other in range(len(shape)))
        lines.append(IOTA(shape=line, axis=axis, dtype=target))
    if sparse:
        return tuple(lines)
    if not lines:
        return zeros((0,), target)
    return stack([broadcast_to(line, shape) for line in lines])


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Node]:
    """Repeat coordinates along the axes of a grid.

    Parameters
    ----------
    *xi
        The coordinates of each axis: nodes or arrays of at most one axis.
    indexing
        "xy": the first two axes change places, as for pictures; "ij": axes in order.
    sparse
        Leave the extents along the other axes at 1.
    copy
        Taken for NumPy's sake: nodes share nothing that could be written.

    Returns
    -------
    list of Node
        For each argument its coordinate at every point of the grid.

    Raises
    ------
    ShapeError
        For another `indexing`, or coordinates of several axes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> across, down = mg.meshgrid([1, 2, 3], [10, 20])
    >>> across.eval(), down.eval()
    (array([[1, 2, 3],
           [1, 2, 3]], dtype=int32), array([[10, 10, 10],
           [20, 20, 20]], dtype=int32))
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(message(f"meshgrid: indexing={indexing!r}", need="xy or ij"))
    nodes = [as_node(x) for x in xi]
    call = Call(MESHGRID, tuple(nodes))
    for node in nodes:
        if node.ndim > 1:
            raise call.shape_error(
                f"coordinates of {node.ndim} axes", need="one axis", hint="mg.ravel(x)"
            )
    extents = [node.size for node in nodes]
    count = len(nodes)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[0], order[1] = 1, 0
    result = []
    for number, node in enumerate(nodes):
        axis = order.index(number)
        line = tuple(extents[number] if axis == other else 1 for other in range(count))
        result.append(reshape(node, line))
    if sparse:
        return result
    shape = tuple(extents[number] for number in order)
    return [broadcast_to(node, shape) for node in result]


MESHGRID = Composite(
    kind=Kind.LAYOUT,
    function=meshgrid,
    tests=Tests(
        samples=lambda: [
            Sample((LINE, LINE[:2])),
            Sample((LINE, LINE[:2], LINE[:1]), {"indexing": "ij"}),
            Sample((LINE, LINE[:2]), {"sparse": True}),
        ],
        bad_samples=lambda: [
            BadSample((LINE,), ShapeError, "meshgrid: indexing='ab'", {"indexing": "ab"}),
            BadSample((np.ones((2, 2)),), ShapeError, "meshgrid: coordinates of 2 axes"),
        ],
        reference=np.meshgrid,
    ),
    numerics="exact",
)

_record = partial(namesake, Kind.INDEX)

RECORDS = (
    _record(
        indices,
        "The positions along each axis of an array of a shape.",
        [
            Sample((), {"dimensions": (2, 3)}),
            Sample((), {"dimensions": (2, 3), "sparse": True, "dtype": "float64"}),
        ],
        reference=lambda dimensions, dtype=np.int64, sparse=False: np.indices(
            dimensions, dtype, sparse
        ),
    ),
    MESHGRID,
)
