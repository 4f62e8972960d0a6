"""`mg.substitute`: nodes, functions and graphs with some of their nodes replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..autodiff.transforms.rebuild import rebuild
from ..errors import DTypeError, GraphError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, topological
from ..ir.identity import is_among
from ..ir.nesting import leaves, like
from ..ir.op import Kind, describe
from ..ops.convert import as_node, cast
from ..ops.shape.joining import broadcast_to
from . import Function
from .arguments import check_leaves

__all__ = ["substitute"]


@documented
def substitute(target: Any, replacements: Mapping[Node, Any]) -> Any:
    """Return nodes, a function or a graph with some nodes replaced.

    target (Node, nested list, tuple or dict of nodes, Function or Graph): What is copied. Nodes
        that depend on nothing that is replaced are kept, not copied.
    replacements (dict): Node -> what takes its place: a node of the same dtype and shape, or an
        array or number that is made one. Any node can be replaced, a variable or input as well as
        one in the middle. All are replaced at once: a replacement may be made of what it replaces.
    returns (Node, the nested form of `target`, Function or Graph): Of a function: one of the same
        settings. An input that is replaced by an input gives its place to that one, by anything
        else it is dropped; inputs that are new come last.
    raises ShapeError, DTypeError: Where a replacement has another shape or dtype.
    raises GraphError: Where a key is not a node, or not one of the target's, or the target holds no
        nodes.

    >>> x, y = mg.input("x"), mg.input("y")
    >>> loss = (x - 1.0) ** 2
    >>> mg.substitute(loss, {x: y * 2.0}).eval({y: 3.0})
    array(25., dtype=float32)

    A function with one of its inputs held fixed:

    >>> f = mg.function([x, y], x * y)
    >>> mg.substitute(f, {y: 10.0})(3.0)
    array(30., dtype=float32)
    """
    if not isinstance(replacements, Mapping):
        raise GraphError(
            message(
                f"substitute: the replacements are {type(replacements).__name__}",
                need="a dict {node: what takes its place}",
            )
        )
    if isinstance(target, Function):
        return _in_function(target, replacements)
    if isinstance(target, Graph):
        checked = _checked(replacements, target.nodes)
        intern = target.interner.intern
        return target.substitute({old: intern(new) for old, new in checked.items()})
    roots = [member for _, member in leaves(target, "target")]
    for root in roots:
        if not isinstance(root, Node):
            raise GraphError(
                message(
                    f"substitute: the target holds {type(root).__name__}",
                    need="nodes, a Function or a Graph",
                )
            )
    return like(target, rebuild(roots, _checked(replacements, topological(roots))))


def _checked(replacements: Mapping[Node, Any], present: Any) -> dict[Node, Node]:
    """Return the replacements as nodes with the types of the replaced nodes."""
    present_ids = {id(node) for node in present}
    checked: dict[Node, Node] = {}
    for old, value in replacements.items():
        if not isinstance(old, Node):
            raise GraphError(
                message(f"substitute: a key is {type(old).__name__}, not a node")
            )
        if id(old) not in present_ids:
            raise GraphError(
                message(
                    f"substitute: the target does not contain {describe(old)}",
                    need="nodes that it is made of",
                )
            )
        checked[old] = _fitted(old, value)
    return checked


def _fitted(old: Node, value: Any) -> Node:
    new = as_node(value, old.dtype)
    if not isinstance(value, Node):
        new = cast(new, old.dtype)
        if new.shape == ():
            new = broadcast_to(new, old.shape)
    if new.type != old.type:
        what = ShapeError if new.shape != old.shape else DTypeError
        raise what(
            message(
                f"substitute: {describe(new)} takes the place of {describe(old)}",
                need=f"its type, {old.type}",
                hint=f"mg.cast(node, {old.dtype.name!r})"
                if what is DTypeError
                else "reshape or broadcast it first",
            )
        )
    return new


def _in_function(function: Function, replacements: Mapping[Node, Any]) -> Function:
    state = function.__getstate__()
    outputs_tree = state["outputs"]
    nodes, pairs = state["program"]  # what a strategy has made of it is built again below
    roots = [*nodes, *(value for _, value in pairs), *state["effects"]]
    checked = _checked(replacements, [*topological(roots), *state["inputs"]])
    rebuilt = rebuild(roots, checked)
    count = len(nodes)
    variables = [variable for variable, _ in pairs]
    updated = count + len(pairs)
    new_pairs = list(zip(variables, rebuilt[count:updated], strict=True))
    inputs: list[Node] = []
    for node in state["inputs"]:
        new = checked.get(node, node)
        if new.op.kind is Kind.LEAF and "key" in new.attrs and not is_among(new, inputs):
            inputs.append(new)
    inputs += [
        node
        for node in topological(rebuilt)
        if node.op.kind is Kind.LEAF and "key" in node.attrs and not is_among(node, inputs)
    ]
    state["program"] = outputs, updates = rebuilt[:count], new_pairs
    strategy = state["settings"]["distribute"]
    if strategy is not None:
        outputs, updates = strategy.prepared(outputs, updates)
    check_leaves(tuple(inputs), outputs, updates)
    state["inputs"] = tuple(inputs)
    state["outputs"] = None if outputs_tree is None else like(outputs_tree, outputs)
    state["updates"] = updates
    state["effects"] = tuple(rebuilt[updated:])
    result = Function.__new__(Function)
    result.__setstate__(state)
    return result
