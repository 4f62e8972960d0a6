"""What is made of slices: flip, split."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node
from .arrange import reshape
from .axes import CUBE, MATRIX, axes_of
from .slicing import cut


@documented
def flip(x: Any, axis: int | Sequence[int] | None = None) -> Node:
    """Reverse the order of the elements along axes.

    x: Node or array.
    axis: The axis or axes; all unless said.
    returns (Node):

    >>> mg.flip(mg.constant([1, 2, 3])).eval()
    array([3, 2, 1], dtype=int32)
    """
    node = as_node(x)
    axes = range(node.ndim) if axis is None else axes_of(Call(FLIP, (node,)), axis, node.ndim)
    for each in axes:
        extent = node.shape[each]
        node = cut(node, each, extent - 1, extent, -1)
    return node


@documented
def split(x: Any, indices_or_sections: int | Sequence[Any], axis: int = 0) -> list[Node]:
    """Cut an array into pieces along an axis.

    x: Node or array.
    indices_or_sections: An int: that many equal pieces. A sequence of positions (ints or Dims):
        pieces that end and begin there. Those of a symbolic extent must be in order and within it,
        which the call checks.
    axis: The axis.
    returns (list of Node):
    raises ShapeError: If the extent does not divide into equal pieces; where it is symbolic the
        call checks it.

    >>> [part.shape for part in mg.split(mg.input("x", ("n", 6)), [1, 4], axis=1)]
    [(n, 1), (n, 3), (n, 2)]
    """
    node = as_node(x)
    call = Call(SPLIT, (node,))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        sections = int(indices_or_sections)
        each = dims.exact_divide(extent, sections, []) if sections > 0 else None
        if each is None:
            raise call.shape_error(
                f"extent {extent} of axis {axis} does not divide into {sections} equal parts",
                need="a number of parts that divides it",
                hint="positions instead: split(x, [2, 5])",
            )
        # Where only the call can tell that it divides, this reshape is what makes it check.
        even = reshape(node, [*node.shape[:axis], sections * each, *node.shape[axis + 1 :]])
        return [cut(even, axis, part * each, each) for part in range(sections)]
    if isinstance(indices_or_sections, Dim):
        raise call.dtype_error(
            f"{indices_or_sections} parts", need="an int: each part is a node"
        )
    edges = [0, *(_edge(call, extent, each) for each in indices_or_sections), extent]
    return [
        cut(node, axis, start, _count(start, stop)) for start, stop in itertools.pairwise(edges)
    ]


def _count(start: Extent, stop: Extent) -> Extent:
    length = stop - start
    return max(length, 0) if isinstance(length, int) else length


def _edge(call: Call, extent: Extent, at: Any) -> Extent:
    """Return a position to cut at, from the front; as in a slice, an int one is clamped."""
    if not isinstance(at, (int, np.integer, Dim)):
        raise call.dtype_error(f"a position is {type(at).__name__}", need="ints and Dims")
    place: Extent = at if isinstance(at, Dim) else int(at)
    position = extent + place if dims.upper(place) < 0 else place
    if isinstance(position, Dim) or isinstance(extent, Dim):
        return position
    return min(max(position, 0), extent)


FLIP = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=flip,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": (0, -1)})],
        bad_samples=lambda: [
            BadSample((MATRIX,), ShapeError, "flip: axis=2 is out of range for 2 axes", {"axis": 2})
        ],
        reference=lambda x, axis=None: np.flip(x, axis),
    ),
    numerics="exact",
)
SPLIT = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=split,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,), {"indices_or_sections": 2, "axis": 2}),
            Sample((CUBE,), {"indices_or_sections": [1, 3], "axis": -1}),
        ],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "split: extent 3 of axis 1 does not divide into 2 equal parts",
                {"indices_or_sections": 2, "axis": 1},
            )
        ],
        reference=lambda x, indices_or_sections, axis=0: np.split(x, indices_or_sections, axis),
    ),
    numerics="exact",
)
RECORDS = (FLIP, SPLIT)
