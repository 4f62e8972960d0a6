"""Arrays made of nothing but a shape and numbers: constants, spaced numbers, grids of positions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ... import dims
from ...config import config
from ...dims import Dim
from ...dtypes import canonical, is_float, is_inexact
from ...errors import ShapeError, message
from ...graph import Node
from ...op import BadSample, Call, Composite, Kind, Sample
from ...types import Extent, Shape
from ..convert import as_node, cast, promoted
from ..elementwise.arithmetic import add, divide, multiply, power, subtract
from ..elementwise.comparison import equal, greater_equal, where
from ..elementwise.family import floating, publish
from ..elementwise.math import exp, log
from ..elementwise.rounding import floor
from ..indexing.gathering import size_of
from ..indexing.iota import INT64, IOTA
from ..leaf import constant
from ..rules.namesakes import namesake
from .arrange import moveaxis, reshape
from .joining import broadcast_to, stack

__all__ = [
    "eye",
    "full",
    "full_like",
    "geomspace",
    "identity",
    "indices",
    "linspace",
    "logspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]


def _shape_of(shape: Any) -> Shape:
    single = isinstance(shape, (int, np.integer, str, Dim))
    return dims.parse_shape((shape,) if single else tuple(shape))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """Make an array of one value.

    Parameters
    ----------
    shape
        An extent or a sequence of extents: ints, names, Dims.
    fill_value
        A number, an array or a node that broadcasts to the shape.
    dtype
        Of the result; that of the value unless said.

    Returns
    -------
    Node

    Raises
    ------
    ShapeError
        If the value does not broadcast to the shape.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.full((2, 3), 7).eval()
    array([[7, 7, 7],
           [7, 7, 7]], dtype=int32)
    >>> mg.full("batch", 0.5).shape
    (batch,)
    """
    value = as_node(fill_value)
    return broadcast_to(value if dtype is None else cast(value, dtype), _shape_of(shape))


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Node:
    """Make an array of one value, of the shape and dtype of another.

    Parameters
    ----------
    x
        Node or array whose values do not matter.
    fill_value
        A number, an array or a node that broadcasts to the shape.
    dtype, shape
        Of the result; those of `x` unless said.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.full_like(mg.constant([1.5, 2.5]), 4).eval()
    array([4., 4.], dtype=float32)
    """
    node = as_node(x)
    value = cast(as_node(fill_value), node.dtype if dtype is None else dtype)
    return broadcast_to(value, node.shape if shape is None else _shape_of(shape))


def _constant(name: str, number: int, word: str) -> tuple[Any, Any]:
    def make(shape: Any, dtype: Any = None) -> Node:
        return full(shape, constant(number, config.float_dtype if dtype is None else dtype))

    def make_like(x: Any, dtype: Any = None, shape: Any = None) -> Node:
        return full_like(x, number, dtype, shape)

    publish(
        make,
        name,
        __name__,
        f"""Make an array of {word}.

        Parameters
        ----------
        shape
            An extent or a sequence of extents: ints, names, Dims.
        dtype
            `mg.config.float_dtype` unless said.

        Returns
        -------
        Node

        Examples
        --------
        >>> import magmagraph as mg
        >>> mg.{name}(3).eval()
        array([{number}., {number}., {number}.], dtype=float32)
        """,
    )
    publish(
        make_like,
        f"{name}_like",
        __name__,
        f"""Make an array of {word}, of the shape and dtype of another.

        Parameters
        ----------
        x
            Node or array whose values do not matter.
        dtype, shape
            Of the result; those of `x` unless said.

        Returns
        -------
        Node

        Examples
        --------
        >>> import magmagraph as mg
        >>> mg.{name}_like(mg.constant([5, 6])).eval()
        array([{number}, {number}], dtype=int32)
        """,
    )
    return make, make_like


zeros, zeros_like = _constant("zeros", 0, "zeros")
ones, ones_like = _constant("ones", 1, "ones")


# Matrices of zeros and ones.


def _positions(rows: Extent, columns: Extent) -> tuple[Node, Node]:
    """Return the row and the column of each element of a matrix, to be broadcast."""
    return (
        IOTA(shape=(rows, 1), axis=0, dtype=INT64),
        IOTA(shape=(1, columns), axis=1, dtype=INT64),
    )


def _extents(n: Any, m: Any) -> tuple[Extent, Extent]:
    rows = dims.parse_shape((n,))[0]
    return rows, rows if m is None else dims.parse_shape((m,))[0]


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Node:
    """Make a matrix that is 1 on a diagonal and 0 elsewhere.

    Parameters
    ----------
    N, M
        Rows and columns (as many as rows unless said): ints, names, Dims.
    k
        The diagonal: above the main one where positive.
    dtype
        `mg.config.float_dtype` unless said.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.eye(2, 3, k=1).eval()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    row, column = _positions(*_extents(N, M))
    return cast(equal(row + size_of(k), column), config.float_dtype if dtype is None else dtype)


def identity(n: Any, dtype: Any = None) -> Node:
    """Make the identity matrix.

    Parameters
    ----------
    n
        Rows and columns: an int, a name or a Dim.
    dtype
        `mg.config.float_dtype` unless said.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.identity(2).eval()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Node:
    """Make a matrix that is 1 on and below a diagonal and 0 above it.

    Parameters
    ----------
    N, M
        Rows and columns (as many as rows unless said): ints, names, Dims.
    k
        The diagonal: above the main one where positive.
    dtype
        `mg.config.float_dtype` unless said.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.tri(2, 3).eval()
    array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    row, column = _positions(*_extents(N, M))
    below = greater_equal(row + size_of(k), column)
    return cast(below, config.float_dtype if dtype is None else dtype)


# Spaced numbers.


def _spacing(start: Any, stop: Any, num: Any, dtype: Any) -> tuple[Any, ...]:
    """Return both ends as floats of one dtype, the extent, and the dtype of the result."""
    low, high = promoted(floating(start), floating(stop))
    extent = dims.parse_shape((num,))[0]
    wanted = low.dtype if dtype is None else canonical(dtype)
    if dtype is not None and is_float(wanted):
        low, high = cast(low, wanted), cast(high, wanted)
    return low, high, extent, wanted


def _steps(low: Node, high: Node, extent: Extent, endpoint: bool) -> tuple[Node, Node, Any]:
    """Return the positions of spaced numbers as floats, both ends beside them, and the divisor."""
    rank = low.ndim if low.ndim > high.ndim else high.ndim
    line = (extent, *[1] * rank)
    if isinstance(extent, int):
        parts: Any = (extent - 1 if extent > 1 else 1) if endpoint else extent
    else:
        parts = cast(size_of(dims.maximum(extent - 1, 1) if endpoint else extent), low.dtype)
    return IOTA(shape=line, axis=0, dtype=low.dtype), IOTA(shape=line, axis=0, dtype=INT64), parts


def _settled(values: Node, dtype: np.dtype, axis: int) -> Node:
    if values.dtype != dtype:
        values = cast(values if is_inexact(dtype) else floor(values), dtype)
    return moveaxis(values, 0, axis) if values.ndim > 1 else values


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return evenly spaced numbers over an interval.

    Parameters
    ----------
    start, stop
        The ends: numbers, arrays or nodes, broadcast against each other.
    num
        How many: an int, a name or a Dim.
    endpoint
        Whether `stop` is the last of them.
    retstep
        Return the distance, too.
    dtype
        Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis
        Where the new axis stands.

    Returns
    -------
    Node, or a pair of Node
        The last number is `stop` exactly. The gradient flows to both ends.

    Raises
    ------
    ShapeError
        If `num` is negative.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.linspace(0.0, 1.0, 5).eval()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    low, high, extent, wanted = _spacing(start, stop, num, dtype)
    steps, places, parts = _steps(low, high, extent, endpoint)
    step = divide(subtract(high, low), parts)
    values = add(multiply(steps, step), low)
    if endpoint:
        values = where(
            equal(places, size_of(extent - 1)), where(equal(places, 0), low, high), values
        )
    result = _settled(values, wanted, axis)
    return (result, step) if retstep else result


def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Node:
    """Return numbers whose logarithms are evenly spaced.

    Parameters
    ----------
    start, stop
        The powers at the ends: numbers, arrays or nodes.
    num
        How many: an int, a name or a Dim.
    endpoint
        Whether ``base**stop`` is the last of them.
    base
        Of the logarithms.
    dtype
        Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis
        Where the new axis stands.

    Returns
    -------
    Node

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.logspace(0.0, 3.0, 4).eval()
    array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    powers = linspace(start, stop, num, endpoint)
    wanted = powers.dtype if dtype is None else canonical(dtype)
    if dtype is not None and is_float(wanted):
        powers = cast(powers, wanted)
    return _settled(power(cast(as_node(base, powers.dtype), powers.dtype), powers), wanted, axis)


def geomspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Node:
    """Return numbers whose ratios are equal.

    Parameters
    ----------
    start, stop
        The ends, of one sign and not 0: numbers, arrays or nodes.
    num
        How many: an int, a name or a Dim.
    endpoint
        Whether `stop` is the last of them.
    dtype
        Of the result; the float dtype of the ends unless said. Integers are rounded down.
    axis
        Where the new axis stands.

    Returns
    -------
    Node
        The first number, and the last one with `endpoint`, are the ends exactly.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.geomspace(1.0, 8.0, 4).eval().round(5)
    array([1., 2., 4., 8.], dtype=float32)
    """
    low, high, extent, wanted = _spacing(start, stop, num, dtype)
    steps, places, parts = _steps(low, high, extent, endpoint)
    values = multiply(low, exp(multiply(steps, divide(log(divide(high, low)), parts))))
    if endpoint:
        values = where(
            equal(places, size_of(extent - 1)), where(equal(places, 0), low, high), values
        )
    return _settled(values, wanted, axis)


# Grids.


def indices(dimensions: Sequence[Any], dtype: Any = None, sparse: bool = False) -> Any:
    """Return the positions along each axis of an array of a shape.

    Parameters
    ----------
    dimensions
        The shape: ints, names, Dims.
    dtype
        int64 unless said.
    sparse
        Return a tuple with one array an axis, of extent 1 along the others.

    Returns
    -------
    Node, or a tuple of Node
        Of shape ``(len(dimensions), *dimensions)``.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.indices((2, 2)).eval()
    array([[[0, 0],
            [1, 1]],
    <BLANKLINE>
           [[0, 1],
            [0, 1]]])
    """
    shape = _shape_of(dimensions)
    wanted = INT64 if dtype is None else canonical(dtype)
    lines = []
    for axis, extent in enumerate(shape):
        line = tuple(extent if axis == other else 1 for other in range(len(shape)))
        lines.append(IOTA(shape=line, axis=axis, dtype=wanted))
    if sparse:
        return tuple(lines)
    if not lines:
        return zeros((0,), wanted)
    return stack([broadcast_to(line, shape) for line in lines])


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False) -> list[Node]:
    """Repeat coordinates along the axes of a grid.

    Parameters
    ----------
    *xi
        The coordinates of each axis: nodes or arrays of at most one axis.
    indexing
        "xy": the first two axes change places, as for pictures; "ij": axes in order.
    sparse
        Leave the extents along the other axes at 1.

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
                f"coordinates of {node.ndim} axes", need="one axis", mend="mg.ravel(x)"
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


# Records.

_LINE = np.array([0.5, -1.0, 2.0])


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
        [Sample((np.array([[1, 2]]),), {"fill_value": 7}), Sample((_LINE,), {"fill_value": 0.5})],
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
            [Sample((_LINE,)), Sample((np.array([[1, 2]]),))],
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
    _record(
        linspace,
        "Evenly spaced numbers over an interval.",
        [
            Sample((np.float64(-1.0), np.float64(2.5)), {"num": 8}),
            Sample((_LINE, np.array([[1.5], [3.0]])), {"num": 3, "axis": 1, "endpoint": False}),
            Sample((_LINE, np.float64(3.0)), {"num": 1}, gradient=(0,), reason="only the start"),
            Sample((), {"start": 0.0, "stop": 4.9, "num": 4, "dtype": "int32"}),
            Sample((), {"start": 0.0, "stop": 1.0, "num": 0}),
        ],
        numerics="reassoc",
        reference=lambda start, stop, num=50, **options: np.linspace(start, stop, num, **options),
    ),
    _record(
        logspace,
        "Numbers whose logarithms are evenly spaced.",
        [
            Sample((np.float64(-1.0), np.float64(0.5)), {"num": 5}),
            Sample((_LINE / 4, np.float64(1.0)), {"num": 4, "base": 2.0, "endpoint": False}),
        ],
        numerics="reassoc",
    ),
    _record(
        geomspace,
        "Numbers whose ratios are equal.",
        [
            Sample((np.float64(1.5), np.float64(6.0)), {"num": 5}),
            Sample((np.array([-1.0, 2.0]), np.array([-4.0, 0.5])), {"num": 3, "axis": -1}),
        ],
        numerics="reassoc",
    ),
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
)

MESHGRID = Composite(
    name="meshgrid",
    kind=Kind.LAYOUT,
    function=meshgrid,
    doc="Coordinates repeated along the axes of a grid.",
    samples=lambda: [
        Sample((_LINE, _LINE[:2])),
        Sample((_LINE, _LINE[:2], _LINE[:1]), {"indexing": "ij"}),
        Sample((_LINE, _LINE[:2]), {"sparse": True}),
    ],
    bad_samples=lambda: [
        BadSample((_LINE,), ShapeError, "meshgrid: indexing='ab'", {"indexing": "ab"}),
        BadSample((np.ones((2, 2)),), ShapeError, "meshgrid: coordinates of 2 axes"),
    ],
    reference=np.meshgrid,
    numerics="exact",
)
RECORDS = (*RECORDS, MESHGRID)
