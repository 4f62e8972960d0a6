"""What NumPy makes of joining and splitting: hstack and its kind, block, append, insert, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Kind, Sample
from ...ir.types import Extent, Operands
from ..convert import as_node, converted, promoted
from ..elementwise.family import publish
from ..rules.namesakes import namesake
from .arrange import expand_dims, reshape
from .axes import CUBE, MATRIX
from .joining import broadcast_to, concatenate
from .pieces import split
from .slicing import cut

__all__ = [
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block",
    "broadcast_arrays",
    "column_stack",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "unstack",
    "vsplit",
    "vstack",
]


# At least so many axes.


def _at_least(name: str, ndim: int, where: str) -> Any:
    def function(*arys: Any) -> Any:
        results = tuple(_raised(as_node(x), ndim) for x in arys)
        return results[0] if len(results) == 1 else results

    return publish(
        function,
        name,
        __name__,
        f"Give arrays at least {ndim} {'axes' if ndim > 1 else 'axis'}.",
        f"""
        *arys: Nodes or arrays; those with as many axes stay as they are.
        returns (Node, or a tuple of Node for several arguments): New axes of extent 1 stand
            {where}.
        """,
        f"""
        >>> mg.{name}(mg.constant([1, 2])).shape
        {(2,) if ndim == 1 else (1, 2) if ndim == 2 else (1, 2, 1)}
        """,
    )


def _raised(node: Node, ndim: int) -> Node:
    missing = ndim - node.ndim
    if missing <= 0:
        return node
    if ndim == 3 and node.ndim == 2:
        return expand_dims(node, 2)
    if ndim == 3 and node.ndim == 1:
        return expand_dims(node, (0, 2))
    return reshape(node, (*[1] * missing, *node.shape))


atleast_1d = _at_least("atleast_1d", 1, "in front")
atleast_2d = _at_least("atleast_2d", 2, "in front")
atleast_3d = _at_least("atleast_3d", 3, "on both sides of a line, and behind a matrix")


# Stacks.


def _arrays(name: str, arrays: Any) -> list[Any]:
    if isinstance(arrays, Node):
        return list(arrays)
    members = list(arrays)
    if not members:
        raise ShapeError(message(f"{name}: no operands", need="at least one"))
    return members


def _stack(
    name: str, what: str, join: Callable[[list[Node]], Node], example: str, *, casts: bool = False
) -> Any:
    def function(tup: Operands) -> Node:
        return join(list(promoted(*_arrays(name, tup))))

    def casting_function(tup: Operands, *, dtype: Any = None, casting: str = "same_kind") -> Node:
        members = _arrays(name, tup)
        operands = promoted(*members) if dtype is None else members
        return join(list(converted(name, operands, dtype, casting)))

    return publish(
        casting_function if casts else function,
        name,
        __name__,
        f"Join arrays {what}.",
        "tup: List of nodes or arrays; their dtypes are promoted.\n"
        + ("dtype, casting: See `concatenate`.\n" if casts else "")
        + "returns:\n"
        "raises ShapeError: If the shapes do not fit, or there are no arrays.",
        example,
    )


def _hstack(nodes: list[Node]) -> Node:
    nodes = [_raised(node, 1) for node in nodes]
    return concatenate(nodes, 0 if nodes[0].ndim == 1 else 1)


def _column_stack(nodes: list[Node]) -> Node:
    columns = [expand_dims(_raised(x, 1), 1) if x.ndim < 2 else x for x in nodes]
    return concatenate(columns, 1)


hstack = _stack(
    "hstack",
    "along the second axis, or the only one",
    _hstack,
    """>>> mg.hstack([mg.constant([1, 2]), mg.constant([3])]).eval()
array([1, 2, 3], dtype=int32)""",
    casts=True,
)
vstack = _stack(
    "vstack",
    "along the first axis; lines are rows",
    lambda nodes: concatenate([_raised(node, 2) for node in nodes], 0),
    """>>> mg.vstack([mg.constant([1, 2]), mg.constant([3, 4])]).eval()
array([[1, 2],
       [3, 4]], dtype=int32)""",
    casts=True,
)
dstack = _stack(
    "dstack",
    "along the third axis",
    lambda nodes: concatenate([_raised(node, 3) for node in nodes], 2),
    """>>> mg.dstack([mg.constant([1, 2]), mg.constant([3, 4])]).shape
(1, 2, 2)""",
)
column_stack = _stack(
    "column_stack",
    "along the second axis; lines are columns",
    _column_stack,
    """>>> mg.column_stack([mg.constant([1, 2]), mg.constant([3, 4])]).eval()
array([[1, 3],
       [2, 4]], dtype=int32)""",
)


@documented
def block(arrays: Any) -> Node:
    """Join nested lists of arrays: the innermost along the last axis, the next along that before.

    arrays: A node or array, or nested lists of them, all nested equally deep.
    returns (Node):
    raises ShapeError: If lists are empty or of different depths, or shapes do not fit.

    >>> A = mg.constant([[1, 2], [3, 4]])
    >>> mg.block([[A, mg.zeros((2, 1), "int32")], [mg.ones((1, 3), "int32")]]).eval()
    array([[1, 2, 0],
           [3, 4, 0],
           [1, 1, 1]], dtype=int32)
    """
    depth = _depth(arrays)
    members: list[Any] = []
    _collect(arrays, members)
    nodes = iter(promoted(*members))
    ranks = [as_node(member).ndim for member in members]
    rank = max(depth, *ranks)

    def joined(part: Any, level: int) -> Node:
        if not isinstance(part, list):
            return _raised(next(nodes), rank) if rank < 3 else _leading(next(nodes), rank)
        return concatenate([joined(each, level + 1) for each in part], rank - depth + level)

    return joined(arrays, 0)


def _leading(node: Node, ndim: int) -> Node:
    return reshape(node, (*[1] * (ndim - node.ndim), *node.shape))


def _depth(part: Any) -> int:
    if not isinstance(part, list):
        return 0
    if not part:
        raise ShapeError(message("block: an empty list", need="at least one array in each"))
    depths = {_depth(each) for each in part}
    if len(depths) > 1:
        raise ShapeError(
            message(f"block: lists {min(depths)} and {max(depths)} deep", need="one depth")
        )
    return 1 + depths.pop()


def _collect(part: Any, members: list[Any]) -> None:
    if isinstance(part, list):
        for each in part:
            _collect(each, members)
    else:
        members.append(part)


# Pieces.


@documented
def array_split(ary: Any, indices_or_sections: int | Sequence[Any], axis: int = 0) -> list[Node]:
    """Cut an array into pieces along an axis, the first ones longer by one where that is needed.

    ary: Node or array.
    indices_or_sections: How many pieces; or positions, as of `split`.
    axis: The axis.
    returns (list of Node):
    raises ShapeError: If the number is not positive.

    >>> [part.shape for part in mg.array_split(mg.arange(5), 3)]
    [(2,), (2,), (1,)]
    """
    node = as_node(ary)
    call = Call(ARRAY_SPLIT, (node,))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    if not isinstance(indices_or_sections, (int, np.integer)):
        return split(node, indices_or_sections, axis)
    sections = int(indices_or_sections)
    if sections <= 0:
        raise call.shape_error(f"{sections} parts", need="at least one")
    parts = []
    start: Extent = 0
    for part in range(sections):
        count = dims.floor_div(extent + (sections - 1 - part), sections)
        parts.append(cut(node, axis, start, count))
        start = start + count
    return parts


def _split(name: str, axis: Callable[[Node], int], least: int, what: str, example: str) -> Any:
    def function(ary: Any, indices_or_sections: int | Sequence[Any]) -> Any:
        node = as_node(ary)
        if node.ndim < least:
            raise ShapeError(
                message(f"{name}: an operand of {node.ndim} axes", need=f"at least {least}")
            )
        return split(node, indices_or_sections, axis(node))

    return publish(
        function,
        name,
        __name__,
        f"Cut an array into pieces along {what}.",
        f"""
        ary: Node or array of at least {least} axes.
        indices_or_sections: See `split`.
        returns (list of Node):
        raises ShapeError: If there are too few axes, or the extent does not divide.
        """,
        example,
    )


hsplit = _split(
    "hsplit",
    lambda node: 0 if node.ndim == 1 else 1,
    1,
    "the second axis, or the only one",
    ">>> [part.shape for part in mg.hsplit(mg.ones((2, 4)), 2)]\n[(2, 2), (2, 2)]",
)
vsplit = _split(
    "vsplit",
    lambda node: 0,
    2,
    "the first axis",
    ">>> [part.shape for part in mg.vsplit(mg.ones((2, 4)), 2)]\n[(1, 4), (1, 4)]",
)
dsplit = _split(
    "dsplit",
    lambda node: 2,
    3,
    "the third axis",
    ">>> [part.shape for part in mg.dsplit(mg.ones((2, 3, 4)), [1])]\n[(2, 3, 1), (2, 3, 3)]",
)


@documented
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Node, ...]:
    """Take an array apart along an axis.

    x: Node or array with an axis of int extent.
    axis: The axis, which the parts do not have.
    returns (tuple of Node):
    raises ShapeError: If the extent is symbolic.

    >>> [part.eval() for part in mg.unstack(mg.constant([[1, 2], [3, 4]]), axis=1)]
    [array([1, 3], dtype=int32), array([2, 4], dtype=int32)]
    """
    node = as_node(x)
    call = Call(UNSTACK, (node,))
    axis = call.axis(axis, node.ndim)
    extent = node.shape[axis]
    if not isinstance(extent, int):
        raise call.shape_error(
            f"axis {axis} has extent {extent}, known only at the call", need="an int extent"
        )
    rest = (*node.shape[:axis], *node.shape[axis + 1 :])
    return tuple(reshape(cut(node, axis, i, 1), rest) for i in range(extent))


@documented
def broadcast_arrays(*args: Any) -> tuple[Node, ...]:
    """Repeat arrays to their common shape.

    *args: Nodes, arrays or numbers.
    returns (tuple of Node): Each of its own dtype.
    raises ShapeError: If they do not broadcast.

    >>> [x.shape for x in mg.broadcast_arrays(mg.ones((2, 1)), mg.ones(3))]
    [(2, 3), (2, 3)]
    """
    nodes = [as_node(arg) for arg in args]
    if not nodes:
        return ()
    shape = Call(BROADCAST_ARRAYS, tuple(nodes)).broadcast(*[node.shape for node in nodes])
    return tuple(broadcast_to(node, shape) for node in nodes)


# Records.

_LINES = [MATRIX[0], 2.0 * MATRIX[1]]


_record = partial(namesake, Kind.LAYOUT)

_NONE: tuple[Any, ...] = ([],)
_PARTS = Sample((CUBE,), {"indices_or_sections": [1, 2]})

ARRAY_SPLIT = _record(
    array_split,
    "The pieces of an array along an axis, of nearly equal extents.",
    [
        Sample((CUBE,), {"indices_or_sections": 3, "axis": 2}),
        Sample((MATRIX,), {"indices_or_sections": [1], "axis": 1}),
        Sample((MATRIX,), {"indices_or_sections": 3, "axis": 0}),
    ],
    [((MATRIX,), ShapeError, "array_split: 0 parts", {"indices_or_sections": 0})],
)
UNSTACK = _record(
    unstack,
    "The parts of an array along an axis.",
    [Sample((MATRIX,), {"axis": -1}), Sample((CUBE,))],
)
BROADCAST_ARRAYS = _record(
    broadcast_arrays,
    "Arrays repeated to their common shape.",
    [Sample((MATRIX, MATRIX[:, :1], np.float64(2.0)))],
    [
        (
            (MATRIX, np.ones(4)),
            ShapeError,
            "broadcast_arrays: extents 3 and 4 do not broadcast (axis -1)",
        )
    ],
)

RECORDS = (
    ARRAY_SPLIT,
    UNSTACK,
    BROADCAST_ARRAYS,
    *[
        _record(
            function,
            f"Arrays of at least {n} {'axes' if n > 1 else 'axis'}.",
            [Sample((np.float64(2.0), MATRIX[0], MATRIX, CUBE)), Sample((MATRIX[0],))],
        )
        for n, function in enumerate((atleast_1d, atleast_2d, atleast_3d), 1)
    ],
    _record(
        hstack,
        "Arrays joined along the second axis, or the only one.",
        [Sample((_LINES,)), Sample(([MATRIX, MATRIX[:, :1]],))],
        [(_NONE, ShapeError, "hstack: no operands")],
    ),
    _record(
        vstack,
        "Arrays joined along the first axis.",
        [Sample((_LINES,)), Sample(([MATRIX, MATRIX[:1]],))],
        [(_NONE, ShapeError, "vstack: no operands")],
    ),
    _record(
        dstack,
        "Arrays joined along the third axis.",
        [Sample((_LINES,)), Sample(([CUBE, CUBE],))],
    ),
    _record(
        column_stack,
        "Arrays joined along the second axis, lines as columns.",
        [Sample((_LINES,)), Sample(([MATRIX, MATRIX[:, 0]],))],
    ),
    _record(
        block,
        "Arrays of nested lists joined.",
        [Sample(([MATRIX, MATRIX[:, :1]],)), Sample((MATRIX,))],
        [(_NONE, ShapeError, "block: an empty list")],
    ),
    _record(
        hsplit,
        "The pieces of an array along its second axis.",
        [_PARTS],
        [
            (
                (np.float64(1.0),),
                ShapeError,
                "hsplit: an operand of 0 axes",
                {"indices_or_sections": 1},
            )
        ],
    ),
    _record(vsplit, "The pieces of an array along its first axis.", [_PARTS]),
    _record(dsplit, "The pieces of an array along its third axis.", [_PARTS]),
)
