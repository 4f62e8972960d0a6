"""Arrays made of nothing but a shape and numbers: one value everywhere, or along a diagonal."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...config import config
from ...errors import ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Kind, Sample
from ...ir.types import Extent, Shape
from ..convert import as_node, cast
from ..elementwise.comparison import equal, greater_equal
from ..elementwise.family import publish
from ..indexing.gathering import size_of
from ..indexing.iota import INT64, IOTA
from ..leaf import ShapeLike, constant
from ..rules.namesakes import namesake
from .axes import LINE
from .joining import broadcast_to

__all__ = [
    "eye",
    "full",
    "full_like",
    "identity",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]


def shape_of(shape: Any) -> Shape:
    if shape is None:
        raise ShapeError(message("None is not a shape", need="ints, names and Dims"))
    return dims.parse_shape(shape)


@documented
def full(shape: ShapeLike, fill_value: Any, dtype: Any = None) -> Node:
    """Make an array of one value.

    shape: An extent or a sequence of extents: ints, names, Dims.
    fill_value: A number, an array or a node that broadcasts to the shape.
    dtype: Of the result; that of the value unless said.
    returns (Node):
    raises ShapeError: If the value does not broadcast to the shape.

    >>> mg.full((2, 3), 7).eval()
    array([[7, 7, 7],
           [7, 7, 7]], dtype=int32)
    >>> mg.full("batch", 0.5).shape
    (batch,)
    """
    value = as_node(fill_value) if dtype is None else cast(fill_value, dtype)
    return broadcast_to(value, shape_of(shape))


@documented
def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: ShapeLike = None) -> Node:
    """Make an array of one value, of the shape and dtype of another.

    x: Node or array whose values do not matter.
    fill_value: A number, an array or a node that broadcasts to the shape.
    dtype, shape: Of the result; those of `x` unless said.
    returns (Node):

    >>> mg.full_like(mg.constant([1.5, 2.5]), 4).eval()
    array([4., 4.], dtype=float32)
    """
    node = as_node(x)
    value = cast(fill_value, node.dtype if dtype is None else dtype)
    return broadcast_to(value, node.shape if shape is None else shape_of(shape))


def _constant(name: str, number: int, word: str) -> tuple[Any, Any]:
    def make(shape: ShapeLike, dtype: Any = None) -> Node:
        return full(shape, constant(number, config.float_dtype if dtype is None else dtype))

    def make_like(x: Any, dtype: Any = None, shape: ShapeLike = None) -> Node:
        return full_like(x, number, dtype, shape)

    publish(
        make,
        name,
        __name__,
        f"Make an array of {word}.",
        """
        shape: An extent or a sequence of extents: ints, names, Dims.
        dtype: `mg.config.float_dtype` unless said.
        returns:
        """,
        f"""
        >>> mg.{name}(3).eval()
        array([{number}., {number}., {number}.], dtype=float32)
        """,
    )
    publish(
        make_like,
        f"{name}_like",
        __name__,
        f"Make an array of {word}, of the shape and dtype of another.",
        """
        x: Node or array whose values do not matter.
        dtype, shape: Of the result; those of `x` unless said.
        returns:
        """,
        f"""
        >>> mg.{name}_like(mg.constant([5, 6])).eval()
        array([{number}, {number}], dtype=int32)
        """,
    )
    return make, make_like


zeros, zeros_like = _constant("zeros", 0, "zeros")

ones, ones_like = _constant("ones", 1, "ones")


# Matrices of zeros and ones.


def grid(rows: Extent, columns: Extent) -> tuple[Node, Node]:
    """Return the row and the column of each element of a matrix, to be broadcast."""
    return (
        IOTA(shape=(rows, 1), axis=0, dtype=INT64),
        IOTA(shape=(1, columns), axis=1, dtype=INT64),
    )


def _extents(n: Any, m: Any) -> tuple[Extent, Extent]:
    rows = dims.parse_shape((n,))[0]
    return rows, rows if m is None else dims.parse_shape((m,))[0]


@documented
def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Node:
    """Make a matrix that is 1 on a diagonal and 0 elsewhere.

    N, M: Rows and columns (as many as rows unless said): ints, names, Dims.
    k: The diagonal: above the main one where positive.
    dtype: `mg.config.float_dtype` unless said.
    returns (Node):

    >>> mg.eye(2, 3, k=1).eval()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    row, column = grid(*_extents(N, M))
    return cast(equal(row + size_of(k), column), config.float_dtype if dtype is None else dtype)


@documented
def identity(n: Any, dtype: Any = None) -> Node:
    """Make the identity matrix.

    n: Rows and columns: an int, a name or a Dim.
    dtype: `mg.config.float_dtype` unless said.
    returns (Node):

    >>> mg.identity(2).eval()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@documented
def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Node:
    """Make a matrix that is 1 on and below a diagonal and 0 above it.

    N, M: Rows and columns (as many as rows unless said): ints, names, Dims.
    k: The diagonal: above the main one where positive.
    dtype: `mg.config.float_dtype` unless said.
    returns (Node):

    >>> mg.tri(2, 3).eval()
    array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    row, column = grid(*_extents(N, M))
    below = greater_equal(row + size_of(k), column)
    return cast(below, config.float_dtype if dtype is None else dtype)


# Records.

_record = partial(namesake, Kind.INDEX)

_NO_VALUES = "the values do not depend on the operand"

RECORDS = (
    _record(
        full,
        "An array of one value.",
        [
            Sample((), {"shape": (2, 3), "fill_value": 1.5}),
            Sample((), {"shape": 4, "fill_value": 7, "dtype": "float64"}),
            Sample((), {"shape": (0, 2), "fill_value": True}),
        ],
        [
            (
                (),
                ShapeError,
                "broadcast_to: shape (2,) does not broadcast to (3,)",
                {"shape": 3, "fill_value": [1, 2]},
            )
        ],
        reference=lambda shape, fill_value, dtype=None: np.full(shape, fill_value, dtype),
    ),
    _record(
        full_like,
        "An array of one value, of the shape and dtype of another.",
        [Sample((np.array([[1, 2]]),), {"fill_value": 7}), Sample((LINE,), {"fill_value": 0.5})],
        no_gradient=_NO_VALUES,
    ),
    *[
        _record(
            function,
            f"An array of {function.__name__}.",
            [Sample((), {"shape": (2, 3)}), Sample((), {"shape": ()})],
        )
        for function in (zeros, ones)
    ],
    *[
        _record(
            function,
            f"An array of {name}, of the shape and dtype of another.",
            [Sample((LINE,)), Sample((np.array([[1, 2]]),))],
            no_gradient=_NO_VALUES,
        )
        for function, name in ((zeros_like, "zeros"), (ones_like, "ones"))
    ],
    _record(
        eye,
        "A matrix that is 1 on a diagonal and 0 elsewhere.",
        [
            Sample((), {"N": 3}),
            Sample((), {"N": 3, "M": 4, "k": -1, "dtype": "float64"}),
            Sample((), {"N": 2, "M": 0}),
        ],
    ),
    _record(identity, "The identity matrix.", [Sample((), {"n": 3}), Sample((), {"n": 0})]),
    _record(
        tri,
        "A matrix that is 1 on and below a diagonal and 0 above it.",
        [Sample((), {"N": 3}), Sample((), {"N": 2, "M": 4, "k": 1, "dtype": "float64"})],
    ),
)
