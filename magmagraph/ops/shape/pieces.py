"""What is made of slices and placements: flip, split, pad."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dims
from ...dims import Dim
from ...errors import ShapeError, message
from ...graph import Node
from ...op import INEXACT, BadSample, Call, Composite, Kind, Sample
from ...types import Extent
from ..convert import as_node
from .arrange import reshape
from .axes import CUBE, MATRIX, axes_of
from .joining import broadcast_to, concatenate
from .slicing import PLACE, cut


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Node:
    """Reverse the order of the elements along axes.

    Parameters
    ----------
    x
        Node or array.
    axis
        The axis or axes; all unless said.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.flip(mg.constant([1, 2, 3])).eval()
    array([3, 2, 1], dtype=int32)
    """
    node = as_node(x)
    chosen = range(node.ndim) if axis is None else axes_of(Call(FLIP, (node,)), axis, node.ndim)
    for each in chosen:
        extent = node.shape[each]
        node = cut(node, each, extent - 1, extent, -1)
    return node


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Node]:
    """Cut an array into pieces along an axis.

    Parameters
    ----------
    x
        Node or array.
    indices_or_sections
        An int: that many equal pieces. A sequence of positions (ints or Dims): pieces that end
        and begin there. Those of a symbolic extent must be in order and within it, which the call
        checks.
    axis
        The axis.

    Returns
    -------
    list of Node

    Raises
    ------
    ShapeError
        If the extent does not divide into equal pieces; where it is symbolic the call checks it.

    Examples
    --------
    >>> import magmagraph as mg
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
                mend="positions instead: split(x, [2, 5])",
            )
        # Where only the call can tell that it divides, this reshape is what makes it check.
        even = reshape(node, [*node.shape[:axis], sections * each, *node.shape[axis + 1 :]])
        return [cut(even, axis, part * each, each) for part in range(sections)]
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


_MODES = ("constant", "edge", "reflect")


def _widths(call: Call, pad_width: Any, ndim: int) -> list[tuple[Extent, Extent]]:
    def is_extent(value: Any) -> bool:
        return isinstance(value, (int, np.integer, Dim)) and not isinstance(value, bool)

    if is_extent(pad_width):
        pairs = [(pad_width, pad_width)] * ndim
    else:
        given = [tuple(p) if not is_extent(p) else p for p in pad_width]
        if all(map(is_extent, given)) and len(given) == 2:
            pairs = [(given[0], given[1])] * ndim
        elif all(map(is_extent, given)) and len(given) == 1:
            pairs = [(given[0], given[0])] * ndim
        else:
            pairs = [p if not is_extent(p) else (p, p) for p in given]
            pairs = pairs * ndim if len(pairs) == 1 else pairs
    if len(pairs) != ndim or any(len(pair) != 2 for pair in pairs):
        raise call.shape_error(
            f"pad_width={pad_width!r} for {ndim} axes",
            need="one int, one pair (before, after), or a pair per axis",
        )
    for pair in pairs:
        for width in pair:
            if not dims.require(width, ">=", 0, []):
                raise call.shape_error(
                    f"pad_width={pad_width!r} has the negative width {width}",
                    mend="slice to take elements away",
                )
    return pairs


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Node:
    """Surround an array with more elements.

    Parameters
    ----------
    x
        Node or array.
    pad_width
        Elements to add: one int for every side, one pair (before, after) for every axis, or a
        pair for each axis. Dims may stand for ints.
    mode
        "constant"; "edge" repeats the outermost elements; "reflect" mirrors at them, without
        repeating them.
    constant_values
        The number that mode "constant" adds.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        If widths are negative or not one pair an axis, or an axis is too short to reflect.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.pad(mg.constant([1, 2, 3]), (1, 2)).eval()
    array([0, 1, 2, 3, 0, 0], dtype=int32)
    >>> mg.pad(mg.constant([1, 2, 3]), 2, mode="reflect").eval()
    array([3, 2, 1, 2, 3, 2, 1], dtype=int32)
    """
    node = as_node(x)
    call = Call(PAD, (node,))
    if mode not in _MODES:
        raise ShapeError(message(f"pad: mode={mode!r}", need=f"one of {', '.join(_MODES)}"))
    pairs = _widths(call, pad_width, node.ndim)
    if mode == "constant":
        return _constant_pad(call, node, pairs, constant_values)
    for axis, (before, after) in enumerate(pairs):
        extent = node.shape[axis]
        if mode == "edge":
            parts = [
                _repeated(cut(node, axis, 0, 1), axis, before),
                node,
                _repeated(cut(node, axis, extent - 1, 1), axis, after),
            ]
        else:
            for width in (before, after):
                if not dims.require(extent, ">=", width + 1, []):
                    raise call.shape_error(
                        f"axis {axis} of extent {extent} is too short to reflect {width} elements",
                        need="an extent above the width",
                    )
            parts = [
                cut(node, axis, before, before, -1),
                node,
                cut(node, axis, extent - 2, after, -1),
            ]
        kept = [p for p in parts if not (isinstance(p.shape[axis], int) and p.shape[axis] == 0)]
        node = concatenate(kept, axis) if kept else node
    return node


def _constant_pad(call: Call, node: Node, pairs: list[tuple[Extent, Extent]], value: Any) -> Node:
    if isinstance(value, Node) or np.ndim(value):
        raise call.dtype_error(
            f"constant_values is {type(value).__name__}",
            need="one number",
            mend="mg.where, or mg.concatenate with what is to stand at the border",
        )
    number = np.asarray(value).astype(node.dtype)
    starts = tuple(before for before, _ in pairs)
    shape = tuple(
        before + extent + after for extent, (before, after) in zip(node.shape, pairs, strict=True)
    )
    if shape == node.shape:
        return node
    return PLACE(node, starts=starts, steps=(1,) * node.ndim, shape=shape, value=number[()])


def _repeated(edge: Node, axis: int, count: Extent) -> Node:
    shape = list(edge.shape)
    shape[axis] = count
    return broadcast_to(edge, shape)


FLIP = Composite(
    name="flip",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=flip,
    doc="The elements in reverse order along axes.",
    samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axis": (0, -1)})],
    bad_samples=lambda: [
        BadSample((MATRIX,), ShapeError, "flip: axis=2 is out of range for 2 axes", {"axis": 2})
    ],
    reference=lambda x, axis=None: np.flip(x, axis),
    numerics="exact",
)
SPLIT = Composite(
    name="split",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=split,
    doc="The pieces of an array along an axis.",
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
    numerics="exact",
)
PAD = Composite(
    name="pad",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=pad,
    doc="More elements around an array.",
    samples=lambda: [
        Sample((MATRIX,), {"pad_width": ((1, 0), (2, 1)), "constant_values": 0.5}),
        Sample((MATRIX,), {"pad_width": 1, "mode": "edge"}),
        Sample((MATRIX,), {"pad_width": ((0, 1), (1, 2)), "mode": "reflect"}),
    ],
    bad_samples=lambda: [
        BadSample(
            (MATRIX,),
            ShapeError,
            "pad: axis 0 of extent 2 is too short to reflect 2 elements",
            {"pad_width": 2, "mode": "reflect"},
        ),
        BadSample(
            (MATRIX,), ShapeError, "pad: pad_width=-1 has the negative width -1", {"pad_width": -1}
        ),
    ],
    reference=lambda x, pad_width, mode="constant", **values: np.pad(x, pad_width, mode, **values),
    numerics="exact",
)

RECORDS = (FLIP, SPLIT, PAD)
