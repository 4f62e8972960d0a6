"""`mg.cond` and `mg.switch`: one of several graphs is run, by a value of the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_bool, is_integer
from ...errors import DTypeError, GraphError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.nesting import leaves, like
from ...ir.op import describe, nodes_made
from ...ops.control.branch import branch
from ...ops.convert import as_node, cast
from ...ops.leaf import input
from ...ops.shape.joining import in_shape

__all__ = ["cond", "switch"]


@documented
def cond(
    predicate: Any,
    true_function: Callable[..., Any],
    false_function: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Run one of two functions, by a value of the call; the other one is not run.

    predicate (Node, array or bool): A bool scalar.
    true_function, false_function (callable): Take the operands and return a node or a nested list,
        tuple or dict of nodes; both the same form, shapes and dtypes. Each is called once, to build
        its graph; nodes that it takes from outside are operands too.
    *operands (Node or array, or nested forms of these): What the functions are given.
    returns (Node, or the nested form that the functions return):
    raises ShapeError, DTypeError: If the predicate is not a scalar, or not a bool; or the functions
        return parts of different shapes or dtypes.
    raises GraphError: If they return different forms, or nothing.

    See Also
    --------
    switch : more than two.
    where : chooses element by element, and computes both sides.

    Notes
    -----
    The gradient is that of the function which ran: what the other would have given, NaN say, plays
    no part. Under `vmap` with a predicate that differs between examples these run one by one.

    >>> x = mg.var("x")
    >>> y = mg.cond(x > 0.0, mg.log, lambda v: v * 2.0, x)
    >>> y.eval({x: -3.0}), mg.grad(y, x).eval({x: 0.0})
    (array(-6., dtype=float32), array(2., dtype=float32))
    """
    node = as_node(predicate)
    if node.shape != ():
        raise ShapeError(
            message(
                f"cond: the predicate is {describe(node)}",
                need="a scalar",
                hint="mg.all(p) or mg.any(p); mg.where(p, a, b) chooses element by element",
            )
        )
    if not is_bool(node.dtype):
        raise DTypeError(
            message(
                f"cond: the predicate is {describe(node)}",
                need="a bool",
                hint="mg.not_equal(p, 0)",
            )
        )
    chosen = [false_function, true_function]
    labels = ["false_function", "true_function"]
    return _switch("cond", cast(node, "int32"), chosen, labels, operands)


@documented
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Run one of several functions, by its number; the others are not run.

    index (Node, array or int): An integer scalar. Below 0 it counts as 0, above the last as the
        last.
    branches (sequence of callable): As the functions of `cond`.
    *operands (Node or array, or nested forms of these): What the functions are given.
    returns (Node, or the nested form that the functions return):
    raises ShapeError, DTypeError, GraphError: As `cond`; and where there is no function.

    >>> k = mg.var("k", dtype="int32")
    >>> y = mg.switch(k, [mg.sin, mg.cos, mg.exp], 0.0)
    >>> y.eval({k: 0}), y.eval({k: 1}), y.eval({k: 7})
    (array(0., dtype=float32), array(1., dtype=float32), array(1., dtype=float32))
    """
    node = as_node(index)
    if node.shape != ():
        raise ShapeError(message(f"switch: the index is {describe(node)}", need="a scalar"))
    if not is_integer(node.dtype):
        raise DTypeError(
            message(
                f"switch: the index is {describe(node)}",
                need="an integer",
                hint="mg.cast(index, 'int32')",
            )
        )
    chosen = list(branches)
    if not chosen:
        raise GraphError(message("switch: there are no branches", need="at least one"))
    labels = [f"branches[{i}]" for i in range(len(chosen))]
    return _switch("switch", node, chosen, labels, operands)


def _switch(
    who: str,
    index: Node,
    functions: Sequence[Callable[..., Any]],
    labels: Sequence[str],
    operands: Sequence[Any],
) -> Any:
    for function, label in zip(functions, labels, strict=True):
        if not callable(function):
            raise GraphError(
                message(
                    f"{who}: {label} is {function!r}",
                    need="a function of the operands",
                    hint="lambda: value; mg.where(p, a, b) takes values that are computed anyway",
                )
            )
    operand_nodes = [as_node(member) for _, member in leaves(operands, "operands")]
    points = [input(f"operand {i}", node.shape, node.dtype) for i, node in enumerate(operand_nodes)]
    with nodes_made() as new_nodes:
        results = [function(*like(tuple(operands), points)) for function in functions]
        members = [
            [(label, as_node(member)) for label, member in leaves(result, "result")]
            for result in results
        ]
        for other in members[1:]:
            for i, ((label, node), (_, first)) in enumerate(zip(other, members[0], strict=False)):
                other[i] = label, in_shape(node, first.shape)
    if not members[0]:
        raise GraphError(message(f"{who}: {labels[0]} returned nothing", need="nodes"))
    for label, other in zip(labels[1:], members[1:], strict=True):
        _check_alike(who, labels[0], members[0], label, other)
    choices = [[node for _, node in members_of] for members_of in members]
    starts = dict(zip(points, operand_nodes, strict=True))
    return like(results[0], branch(index, choices, starts, new_nodes))


def _check_alike(
    who: str,
    first: str,
    expected: Sequence[tuple[str, Node]],
    other: str,
    members: Sequence[tuple[str, Node]],
) -> None:
    """Raise unless two branches return the same form, shapes and dtypes."""
    if [label for label, _ in expected] != [label for label, _ in members]:
        raise GraphError(
            message(
                f"{who}: {first} returned {', '.join(label for label, _ in expected)}, and {other} "
                + (", ".join(label for label, _ in members) or "nothing"),
                need="one form",
            )
        )
    for (label, left), (_, right) in zip(expected, members, strict=True):
        if left.dtype != right.dtype:
            raise DTypeError(
                message(
                    f"{who}: {label} is {left.type} of {first}, and {right.type} of {other}",
                    need="one dtype",
                    hint=f"mg.cast(x, {np.promote_types(left.dtype, right.dtype).name!r})"
                    if left.dtype.kind == right.dtype.kind == "f"
                    else f"mg.cast(x, {left.dtype.name!r})",
                )
            )
        if left.shape != right.shape:
            raise ShapeError(
                message(
                    f"{who}: {label} is {left.type} of {first}, and {right.type} of {other}",
                    need="one shape",
                    hint=f"mg.broadcast_to(x, {max(left.shape, right.shape, key=len)})",
                )
            )
