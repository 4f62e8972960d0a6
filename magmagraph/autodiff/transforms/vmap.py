"""`mg.vmap`: a function of one example, mapped over an axis of many, without a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import DTypeError, GraphError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.nesting import leaves, like
from ...ir.op import describe
from ...ir.types import Extent
from ...ops.control.mapped import batch, in_front
from ...ops.convert import as_node, cast
from ...ops.leaf import input
from ...ops.random.drawing import drawing
from ...ops.shape.arrange import moveaxis

__all__ = ["vmap"]


@documented
def vmap(
    target: Any, in_axes: Any = 0, out_axes: Any = 0, *, size: Extent | str | None = None
) -> Any:
    """Map a function of nodes, or a graph, over an axis.

    The function is written for one example. It is called once, with inputs that lack the mapped
    axis, and each operation of what it returns is rewritten to work on all examples at once.

    target (callable, Node, or a nested list, tuple or dict of nodes): A function of nodes that
        returns a node or a nested form of them; or such nodes themselves.
    in_axes (int, None, or a list, tuple or dict of these): With a function: the axis of each
        argument to map over; None for one that all examples share. One value stands for all
        arguments, and within an argument for all its members. Arguments given by name are mapped
        over their first axis. With nodes: a dict ``{node: stacked}`` from what varies, any node
        that they are computed from, to what takes its place, which has the mapped axis in front of
        the node's own axes.
    out_axes (int, None, or a nested form of these): Where the mapped axis stands in each result.
        None for a result that is the same for all examples: it has no such axis.
    size (int, str or Dim, optional): Extent of the mapped axis, where no argument has it (a
        function that only draws random numbers, say).
    returns (callable, Node, or the nested form of `target`): With a function: one of the same
        arguments, which returns the same form. The axis may be a named dimension, and stays one.
    raises ShapeError: Where nothing is mapped, extents of the mapped axis differ, an axis is out of
        range, or a result varies that `out_axes` says is the same for all.
    raises DTypeError, GraphError: Where what stands in a node's place has another dtype, or the
        target holds no nodes.

    Notes
    -----
    Nodes that the function takes from outside of its arguments are shared by all examples. Random
    nodes that are made inside draw anew for each example (with nodes as the target: all of them);
    the first example draws what the function alone would; those drawn with a key draw the same for
    all. Gradients may be taken inside (one per example) and outside of it, and it may be nested.
    Each operation's record says how it is mapped; one that says nothing is computed example by
    example, which is right but slow.

    See Also
    --------
    jacobian, hessian

    Examples
    --------
    Gradients of each example's own loss:

    >>> import magmagraph as mg
    >>> w = mg.var("w", init=[1.0, 2.0])
    >>> def gradient(x, y):
    ...     return mg.grad((mg.sum(w * x) - y) ** 2, w)
    >>> xs, ys = mg.input("xs", ("batch", 2)), mg.input("ys", ("batch",))
    >>> gradients = mg.vmap(gradient)(xs, ys)
    >>> gradients.shape
    (batch, 2)
    >>> gradients.eval({xs: [[1.0, 0.0], [0.0, 1.0]], ys: [0.0, 0.0]})
    array([[2., 0.],
           [0., 4.]], dtype=float32)

    A graph, over stacked values of one of its nodes:

    >>> x = mg.input("x", (2,))
    >>> mg.vmap(mg.sum(x * x), {x: mg.constant([[1.0, 2.0], [3.0, 4.0]])}).eval()
    array([ 5., 25.], dtype=float32)
    """
    if callable(target):
        return _function(target, in_axes, out_axes, size)
    return _nodes(target, in_axes, out_axes, size)


def _function(
    function: Callable[..., Any], in_axes: Any, out_axes: Any, size: Any
) -> Callable[..., Any]:
    def mapped(*arguments: Any, **named: Any) -> Any:
        tree = [list(arguments), named]
        labelled = leaves(arguments, "arguments") + [
            (f"{name}{label}", member)
            for name, value in named.items()
            for label, member in leaves(value, "")
        ]
        axes = [
            *_spread("in_axes", in_axes, arguments, "arguments"),
            *(0 for value in named.values() for _ in leaves(value, "")),
        ]
        stacked: dict[Node, Node] = {}
        members: list[Any] = []
        extents: list[tuple[str, Extent]] = []
        for (label, member), axis in zip(labelled, axes, strict=True):
            if axis is None:
                members.append(member)
                continue
            node = as_node(member)
            front = moveaxis(node, _axis_of(label, node, axis, node.ndim), 0)
            extents.append((label, front.shape[0]))
            leaf = input(node.name or label, front.shape[1:], node.dtype)
            stacked[leaf] = front
            members.append(leaf)
        extent = _extent(extents, size)
        positional, by_name = like(tree, members)
        with drawing() as drawn:
            result = function(*positional, **by_name)
        return _results(result, stacked, extent, out_axes, drawn)

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(function, name):
            setattr(mapped, name, getattr(function, name))
    vars(mapped)["__wrapped__"] = function
    return mapped


def _nodes(target: Any, mapping: Any, out_axes: Any, size: Any) -> Any:
    if not isinstance(mapping, Mapping):
        raise GraphError(
            message(
                f"vmap: the target is {type(target).__name__}, and in_axes is {mapping!r}",
                need="a function; or nodes, with a dict of what varies",
                hint="mg.vmap(outputs, {x: stacked})",
            )
        )
    stacked: dict[Node, Node] = {}
    extents: list[tuple[str, Extent]] = []
    for old, value in mapping.items():
        if not isinstance(old, Node):
            raise GraphError(message(f"vmap: a key of in_axes is {type(old).__name__}, not a node"))
        node = as_node(value, old.dtype)
        label = f"what stands for {describe(old)}"
        if node.dtype != old.dtype:
            if isinstance(value, Node):
                raise DTypeError(
                    message(
                        f"vmap: {label} is {node.type}",
                        need=f"its dtype, {old.dtype.name}",
                        hint=f"mg.cast(stacked, {old.dtype.name!r})",
                    )
                )
            node = cast(node, old.dtype)
        if not node.ndim or node.shape[1:] != old.shape:
            raise ShapeError(
                message(
                    f"vmap: {label} has shape {node.shape}",
                    need=f"the mapped axis in front of {old.shape}",
                    hint="mg.moveaxis(stacked, axis, 0)",
                )
            )
        extents.append((label, node.shape[0]))
        stacked[old] = node
    return _results(target, stacked, _extent(extents, size), out_axes, None)


def _spread(who: str, axes: Any, tree: Any, label: str) -> list[int | None]:
    """Return an axis for each member of a nested form, of which `axes` is a prefix."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes for _ in leaves(tree, "")]
    if isinstance(axes, Mapping) and isinstance(tree, Mapping) and axes.keys() == tree.keys():
        pairs = [(f"{label}[{key!r}]", axes[key], member) for key, member in tree.items()]
    elif (
        isinstance(axes, (list, tuple))
        and isinstance(tree, (list, tuple))
        and len(axes) == len(tree)
    ):
        pairs = [
            (f"{label}[{i}]", axis, member)
            for i, (axis, member) in enumerate(zip(axes, tree, strict=True))
        ]
    else:
        form = (
            f"{len(tree)} members"
            if isinstance(tree, (list, tuple))
            else f"the keys {', '.join(map(repr, tree))}"
            if isinstance(tree, Mapping)
            else "one member"
        )
        raise ShapeError(
            message(
                f"vmap: {who}={axes!r} does not fit {label}, which has {form}",
                need="an int, None, or an entry for each member",
            )
        )
    return [axis for where, own, member in pairs for axis in _spread(who, own, member, where)]


def _axis_of(label: str, node: Node, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(
            message(
                f"vmap: axis {axis} of {label} is out of range: {describe(node)}",
                need=f"an axis in [{-rank}, {rank})" if rank else "an argument with axes",
                hint="in_axes: None for an argument that all examples share",
            )
        )
    return axis % rank


def _extent(extents: Sequence[tuple[str, Extent]], size: Any) -> Extent:
    """Return the extent of the mapped axis, on which everything mapped agrees."""
    by_size = [] if size is None else [("size", dims.parse_shape((size,))[0])]
    every = [*by_size, *extents]
    if not every:
        raise ShapeError(
            message(
                "vmap: nothing is mapped", need="an axis of at least one argument, or size="
            )
        )
    first, common = every[0]
    for label, extent in every[1:]:
        met = dims.unify(common, extent, [])
        if met is None:
            raise ShapeError(
                message(
                    f"vmap: the mapped axis has extent {common} in {first} and {extent} in {label}",
                    need="one extent",
                    hint="None in in_axes for an argument that all examples share",
                )
            )
        common = met
    return common


def _results(
    tree: Any, stacked: Mapping[Node, Node], extent: Extent, out_axes: Any, drawn: Any
) -> Any:
    members = leaves(tree, "result")
    if not members:
        raise GraphError(message("vmap: there is no result", need="a node, or a form of nodes"))
    for label, member in members:
        if isinstance(member, Node) and isinstance(member.type, tuple):
            raise GraphError(message(f"vmap: {label} is an operation with several results"))
    axes = _spread("out_axes", out_axes, tree, "result")
    nodes = [as_node(member) for _, member in members]
    anew = (lambda node: True) if drawn is None else drawn.__contains__
    batched = batch(nodes, stacked, extent, anew=anew)
    results = []
    for (label, _), part, axis in zip(members, batched, axes, strict=True):
        node, along = part
        if axis is None:
            if along:
                raise ShapeError(
                    message(
                        f"vmap: {label} varies along the mapped axis: {describe(node)}",
                        need="an axis for it in out_axes; None is for what all examples share",
                    )
                )
            results.append(node)
        else:
            full = in_front(part, extent)
            results.append(moveaxis(full, 0, _axis_of(label, full, axis, full.ndim)))
    return like(tree, results)
