"""Other shapes and other orders of axes for the same elements: reshape and its kind, transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Layout, Op, Sample, Tests, ViewAxis
from ...ir.types import Extent, Shape, Type
from ..convert import as_node
from ..leaf import ShapeLike
from ..rules import onnx_forms, onnx_pairs
from .axes import CUBE, MATRIX, axes_of, shape_text

# Reshape.


def _reshape_type(call: Call, x: Type, *, shape: Shape) -> Type:
    if x.shape == shape:
        return x
    before, after = x.size, dims.size(shape)
    if not dims.require(before, "==", after, call.constraints):
        raise call.shape_error(
            f"{before} elements do not fill shape {shape_text(shape)}",
            need=f"a shape of {before} elements",
            hint="one extent of -1 is found from the others",
        )
    return Type(x.dtype, shape)


def _map_reshape(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    (x,) = operands
    return reshape(x, (x.shape[0], *node.shape))


def _open_shape(call: Call, shape: Any, total: Extent) -> Shape:
    """Read a shape in which one extent may be -1, and find that extent."""
    single = isinstance(shape, (int, str, Dim, np.integer))
    if not single and (isinstance(shape, Node) or not hasattr(type(shape), "__iter__")):
        raise call.shape_error(f"{type(shape).__name__} is no shape", need="ints, names and Dims")
    entries = [shape] if single else list(shape)
    for entry in entries:
        if entry is not None and not isinstance(entry, (int, str, Dim, np.integer)):
            raise call.shape_error(
                f"the extent {entry!r} of a shape", need="ints, names and Dims"
            )
        if entry is None:
            raise call.shape_error(
                f"shape {shape_text(entries)} has the extent None",
                need="ints, names and Dims",
                hint="-1 for the one extent that follows from the others",
            )
    open_ = [i for i, e in enumerate(entries) if not isinstance(e, (str, Dim)) and e == -1]
    if not open_:
        return dims.parse_shape(entries)
    if len(open_) > 1:
        raise call.shape_error(
            f"shape {shape_text(entries)} has {len(open_)} extents of -1", need="at most one"
        )
    at = open_[0]
    rest = dims.parse_shape([e for i, e in enumerate(entries) if i != at])
    missing = dims.exact_divide(total, dims.size(rest), [])
    if missing is None:
        raise call.shape_error(
            f"{total} elements do not divide into shape {shape_text(entries)}",
            need=f"a multiple of {dims.size(rest)} elements",
        )
    return (*rest[:at], missing, *rest[at:])


def by_columns(name: str, order: Any) -> bool:
    """Tell whether elements are counted along the first axis first, by NumPy's letter for it.

    raises ConfigError: If it is none of those.
    """
    if order in ("C", "A", "K", None):  # nodes have no memory: what lies there is in rows
        return False
    if order != "F":
        hint = None
        if isinstance(order, int):
            hint = "the extents as one tuple"
            if name == "ravel":  # PyTorch's x.flatten(1)
                hint = "mg.reshape(x, (x.shape[0], -1)), which keeps the first axis"
        raise ConfigError(
            message(
                f"{name}: order={order!r}",
                need="'C', along the last axis first, or 'F', along the first one first",
                hint=hint,
            )
        )
    return True


@documented
def reshape(x: Any, shape: ShapeLike, order: str = "C", *, copy: bool | None = None) -> Node:
    """Give `x` another shape with the same elements in the same (row-major) order.

    x: Node or array of any dtype.
    shape: An extent or a sequence of extents: ints, names, Dims. One may be -1 and is found from
        the others: exactly, also where they are symbolic. Where only the call can tell that the
        sizes agree, the call checks it.
    order: "F" takes and lays the elements along the first axis first, as columns; "C" (and "A", as
        nodes have no memory) along the last one first.
    copy: Taken for the array API standard's sake: nodes share nothing that could be written.
    returns (Node):
    raises ShapeError: If the number of elements differs.

    >>> mg.reshape(mg.constant([[1, 2, 3], [4, 5, 6]]), (3, -1)).eval()
    array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    >>> mg.reshape(mg.input("x", ("batch", 784)), (-1, 28, 28)).shape
    (batch, 28, 28)
    """
    node = as_node(x)
    new_shape = _open_shape(Call(RESHAPE, (node,)), shape, node.size)
    if node.shape == new_shape and order in ("C", "F"):
        return node
    if by_columns("reshape", order):
        return transpose(reshape(transpose(node), new_shape[::-1]))
    return node if node.shape == new_shape else RESHAPE(node, shape=new_shape)


RESHAPE = Op(
    name="reshape",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    rule=_reshape_type,
    evaluate=lambda xp, x, *, shape: xp.reshape(x, shape),
    gradient=lambda node, cotangent: (reshape(cotangent, node.inputs[0].shape),),
    batching=_map_reshape,
    sharding="reshape",
    function=reshape,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,), {"shape": (3, 2)}), Sample((CUBE,), {"shape": (-1, 4)})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "reshape: 6 elements do not fill shape (4, 2)",
                {"shape": (4, 2)},
            ),
            BadSample(
                (MATRIX,),
                ShapeError,
                "reshape: 6 elements do not divide into shape (-1, 4)",
                {"shape": (-1, 4)},
            ),
            BadSample(
                (MATRIX,),
                ShapeError,
                "reshape: shape (-1, -1) has 2 extents of -1",
                {"shape": (-1, -1)},
            ),
        ],
        reference=lambda x, shape, order="C": np.reshape(x, shape, order=order),
    ),
    numerics="exact",
    layout=Layout(alias=True),
    onnx=onnx_pairs.Pairs(onnx_forms.reshaped, onnx_pairs.shaped("Reshape", allowzero=1)),
)


@documented
def ravel(x: Any, order: str = "C") -> Node:
    """Return the elements of `x` in row-major order along one axis.

    x: Node or array.
    order: "F" takes them along the first axis first; see `reshape`.
    returns: Of one axis.

    >>> mg.ravel(mg.constant([[1, 2], [3, 4]])).eval()
    array([1, 2, 3, 4], dtype=int32)
    """
    node = as_node(x)
    return reshape(transpose(node) if by_columns("ravel", order) else node, (-1,))


@documented
def expand_dims(x: Any, axis: int | Sequence[int]) -> Node:
    """Insert axes of extent 1.

    x: Node or array.
    axis: Where the new axis stands (or the new axes stand) in the result.
    returns (Node):
    raises ShapeError: If an axis is out of range of the result's, or named twice.

    >>> mg.expand_dims(mg.input("x", ("n", 3)), axis=(0, -1)).shape
    (1, n, 3, 1)
    """
    node = as_node(x)
    call = Call(EXPAND_DIMS, (node,))
    count = 1 if isinstance(axis, (int, np.integer)) else len(axis)
    new = set(axes_of(call, axis, node.ndim + count))
    old = iter(node.shape)
    shape = tuple(1 if i in new else next(old) for i in range(node.ndim + count))
    return reshape(node, shape)


@documented
def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Node:
    """Remove axes of extent 1.

    x: Node or array.
    axis: The axis or axes to remove; all whose extent is the literal 1 unless said. An axis of
        symbolic extent is removed only when named, and the call checks that it is 1.
    returns (Node):
    raises ShapeError: If a named axis has another extent.

    >>> mg.squeeze(mg.input("x", (1, "n", 1))).shape
    (n,)
    """
    node = as_node(x)
    if axis is None:
        removed_axes = {
            i for i, extent in enumerate(node.shape) if isinstance(extent, int) and extent == 1
        }
    else:
        call = Call(SQUEEZE, (node,))
        removed_axes = set(axes_of(call, axis, node.ndim))
        for i in sorted(removed_axes):
            if dims.unify(node.shape[i], 1, []) is None:
                raise call.shape_error(
                    f"axis {i} has extent {node.shape[i]}",
                    need="extent 1",
                    hint="index the axis, or reduce over it",
                )
    return reshape(node, [e for i, e in enumerate(node.shape) if i not in removed_axes])


RAVEL = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=ravel,
    tests=Tests(samples=lambda: [Sample((MATRIX,))], reference=np.ravel),
    numerics="exact",
)
EXPAND_DIMS = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=expand_dims,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,), {"axis": 1}), Sample((MATRIX,), {"axis": (0, -1)})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,), ShapeError, "expand_dims: axis=3 is out of range for 3 axes", {"axis": 3}
            )
        ],
        reference=np.expand_dims,
    ),
    numerics="exact",
)
SQUEEZE = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=squeeze,
    tests=Tests(
        samples=lambda: [Sample((MATRIX[:, :1],)), Sample((CUBE[:1, :, :1],), {"axis": 0})],
        bad_samples=lambda: [
            BadSample((MATRIX,), ShapeError, "squeeze: axis 1 has extent 3", {"axis": 1})
        ],
        reference=np.squeeze,
    ),
    numerics="exact",
)


# Transpose.


def _transpose_type(call: Call, x: Type, *, axes: tuple[int, ...]) -> Type:
    if sorted(axes) != list(range(x.ndim)):
        raise call.shape_error(
            f"axes={axes} is not a permutation of {x.ndim} axes",
            need=f"each of {shape_text(range(x.ndim))} once",
        )
    return Type(x.dtype, tuple(x.shape[axis] for axis in axes))


def _transpose_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    axes = node.attrs["axes"]
    return (transpose(cotangent, sorted(range(len(axes)), key=axes.__getitem__)),)


def _map_transpose(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    return transpose(operands[0], (0, *(axis + 1 for axis in node.attrs["axes"])))


@documented
def transpose(x: Any, axes: Sequence[int] | None = None) -> Node:
    """Permute the axes of `x`.

    x: Node or array.
    axes: For each axis of the result, the axis of `x` that it is; reversed unless said.
    returns (Node):
    raises ShapeError: If `axes` does not name each axis once.

    >>> mg.transpose(mg.input("x", ("n", 2, 3)), (1, 2, 0)).shape
    (2, 3, n)
    """
    node = as_node(x)
    if axes is None:
        order = list(reversed(range(node.ndim)))
    else:
        call = Call(TRANSPOSE, (node,))
        order = [call.axis(axis, node.ndim, "axes entry") for axis in axes]
    if order == list(range(node.ndim)):
        return node
    return TRANSPOSE(node, axes=tuple(order))


TRANSPOSE = Op(
    name="transpose",
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    rule=_transpose_type,
    evaluate=lambda xp, x, *, axes: xp.transpose(x, axes),
    layout=Layout(view=lambda node: [ViewAxis(axis) for axis in node.attrs["axes"]]),
    gradient=_transpose_gradient,
    batching=_map_transpose,
    sharding="transpose",
    function=transpose,
    tests=Tests(
        samples=lambda: [Sample((MATRIX,)), Sample((CUBE,), {"axes": (1, 2, 0)})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "transpose: axes=(0, 0) is not a permutation of 2 axes",
                {"axes": (0, 0)},
            )
        ],
        reference=lambda x, axes=None: np.transpose(x, axes),
    ),
    numerics="exact",
    onnx=onnx_pairs.Pairs(onnx_forms.transposed, onnx_pairs.transposed),
)


@documented
def swapaxes(x: Any, axis1: int, axis2: int) -> Node:
    """Exchange two axes.

    x: Node or array.
    axis1, axis2: The axes; negative ones count from the end.
    returns (Node):

    >>> mg.swapaxes(mg.input("x", ("n", 2, 3)), 0, -1).shape
    (3, 2, n)
    """
    node = as_node(x)
    call = Call(SWAPAXES, (node,))
    first = call.axis(axis1, node.ndim, "axis1")
    second = call.axis(axis2, node.ndim, "axis2")
    order = list(range(node.ndim))
    order[first], order[second] = second, first
    return transpose(node, order)


@documented
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Node:
    """Move axes to other positions; the others keep their order.

    x: Node or array.
    source: The axis, or axes, to move.
    destination: Where each stands in the result.
    returns (Node):
    raises ShapeError: If there are not as many destinations as sources, or an axis is named twice.

    >>> mg.moveaxis(mg.input("x", ("n", 2, 3)), 0, -1).shape
    (2, 3, n)
    """
    node = as_node(x)
    call = Call(MOVEAXIS, (node,))
    sources = axes_of(call, source, node.ndim, "source")
    targets = axes_of(call, destination, node.ndim, "destination")
    if len(sources) != len(targets):
        raise call.shape_error(
            f"{len(sources)} source axes and {len(targets)} destinations", need="as many of each"
        )
    order = [axis for axis in range(node.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(node, order)


SWAPAXES = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=swapaxes,
    tests=Tests(
        samples=lambda: [Sample((CUBE,), {"axis1": 0, "axis2": -1})],
        bad_samples=lambda: [
            BadSample(
                (MATRIX,),
                ShapeError,
                "swapaxes: axis2=2 is out of range for 2 axes",
                {"axis1": 0, "axis2": 2},
            )
        ],
        reference=np.swapaxes,
    ),
    numerics="exact",
)
MOVEAXIS = Composite(
    dtypes=INEXACT,
    kind=Kind.LAYOUT,
    function=moveaxis,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE,), {"source": 0, "destination": -1}),
            Sample((CUBE,), {"source": (0, 1), "destination": (-1, 0)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (CUBE,),
                ShapeError,
                "moveaxis: 2 source axes and 1 destinations",
                {"source": (0, 1), "destination": 0},
            )
        ],
        reference=np.moveaxis,
    ),
    numerics="exact",
)

def lifted(operand: Node, rank: int) -> Node:
    """Insert axes of extent 1 after the batch axis, so that there are 1 + rank."""
    missing = 1 + rank - operand.ndim
    if missing <= 0:
        return operand
    return reshape(operand, (operand.shape[0], *(1,) * missing, *operand.shape[1:]))


RECORDS = (RESHAPE, RAVEL, EXPAND_DIMS, SQUEEZE, TRANSPOSE, SWAPAXES, MOVEAXIS)
