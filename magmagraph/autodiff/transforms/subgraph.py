"""`mg.op_from_graph`: a graph under a name of its own, used like an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import DTypeError, GraphError, message
from ...ir.docstrings import documented
from ...ir.graph import Node, topological
from ...ir.nesting import leaves, like
from ...ir.op import describe
from ...ops.control.differentiation import custom_gradient
from ...ops.control.subgraph import subgraph
from ...ops.convert import as_node, cast
from ...ops.leaf import input
from .rebuild import rebuild

__all__ = ["op_from_graph"]


@documented
def op_from_graph(
    inputs: Sequence[Node] | None = None,
    outputs: Any = None,
    *,
    name: str | None = None,
    gradient: Callable[..., Any] | None = None,
) -> Any:
    """Make one operation of a graph, or of a function that builds one.

    It stands as one node, under its name, in prints, pictures and texts. Compilation writes it
    out first of all, so that nothing is lost in speed; gradients go through it, and so does
    `vmap`.

    inputs (sequence of Node, or callable): The nodes in whose places the operands of a call come;
        any nodes that `outputs` are computed from. Or a function of nodes: this is then a
        decorator, and each call builds its own graph.
    outputs (Node, or a nested list, tuple or dict of nodes): What a call gives.
    name (str, optional): Its name. Default: that of the function, or "subgraph".
    gradient (callable, optional): ``gradient(*operands, cotangent)`` gives a gradient for each
        operand (None where there is none), in place of what the graph's own would be. For one
        output.
    returns (callable): A function of as many nodes or arrays as there are inputs, which returns the
        form of `outputs`. Other nodes that these are computed from (variables, say) are operands
        too, and get their gradients, unless `gradient` says otherwise.
    raises GraphError: Where an input is no node or does not occur in the outputs, there are no
        outputs, or a call gives another number of operands.
    raises DTypeError: Where an operand has another dtype than the input. Other shapes are fine, if
        the operations inside take them.

    >>> a, b = mg.input("a"), mg.input("b")
    >>> distance = mg.op_from_graph([a, b], mg.sqrt(a * a + b * b), name="distance")
    >>> distance(mg.constant(3.0), mg.constant(4.0))
    <subgraph 'distance' float32[]>
    >>> distance(3.0, 4.0).eval()
    array(5., dtype=float32)

    As a decorator:

    >>> @mg.op_from_graph(name="block")
    ... def block(h, scale):
    ...     return mg.tanh(h) * scale
    >>> block(mg.input("h", ("n", 3)), 2.0)
    <subgraph 'block' float32[n, 3]>
    """
    if inputs is None and outputs is None:

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            return _of_function(function, name, gradient)

        return decorate
    if callable(inputs) and outputs is None:
        return _of_function(inputs, name, gradient)
    return _of_nodes(inputs, outputs, name or "subgraph", gradient)


def _of_function(
    function: Callable[..., Any], name: str | None, gradient: Callable[..., Any] | None
) -> Callable[..., Any]:
    label = name or str(getattr(function, "__name__", "subgraph"))

    def operation(*arguments: Any, **named: Any) -> Any:
        operands = [as_node(member) for _, member in leaves(list(arguments), "arguments")]
        points = [input(f"operand {i}", x.shape, x.dtype) for i, x in enumerate(operands)]
        results = function(*like(list(arguments), points), **named)
        return _applied(label, results, points, operands, gradient)

    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(function, attribute):
            setattr(operation, attribute, getattr(function, attribute))
    vars(operation)["__wrapped__"] = function
    return operation


def _of_nodes(
    inputs: Any, outputs: Any, label: str, gradient: Callable[..., Any] | None
) -> Callable[..., Any]:
    parameters = [inputs] if isinstance(inputs, Node) else list(inputs or ())
    roots = [as_node(member) for _, member in leaves(outputs, "outputs")]
    present = {id(node) for node in topological(roots)}
    for parameter in parameters:
        if not isinstance(parameter, Node):
            raise GraphError(
                message(f"op_from_graph: an input of {label} is {type(parameter).__name__}",
                        need="nodes")
            )
        if id(parameter) not in present:
            raise GraphError(
                message(
                    f"op_from_graph: the outputs of {label} do not depend on {describe(parameter)}",
                    need="inputs that they are computed from",
                )
            )

    def operation(*operands: Any) -> Any:
        if len(operands) != len(parameters):
            raise GraphError(
                message(
                    f"{label}: {len(operands)} operands",
                    need=f"{len(parameters)}: "
                    + ", ".join(p.name or p.op.name for p in parameters),
                )
            )
        operand_nodes = [_operand(label, p, x) for p, x in zip(parameters, operands, strict=True)]
        points = [input(p.name or "operand", x.shape, x.dtype)
                  for p, x in zip(parameters, operand_nodes, strict=True)]
        results = rebuild(roots, dict(zip(parameters, points, strict=True)))
        return _applied(label, like(outputs, results), points, operand_nodes, gradient)

    operation.__name__ = operation.__qualname__ = label
    return operation


def _operand(label: str, parameter: Node, value: Any) -> Node:
    node = as_node(value, parameter.dtype)
    if node.dtype == parameter.dtype:
        return node
    if not isinstance(value, Node):
        return cast(node, parameter.dtype)
    raise DTypeError(
        message(
            f"{label}: the operand for {describe(parameter)} is {describe(node)}",
            need=f"the dtype {parameter.dtype.name}",
            hint=f"mg.cast(x, {parameter.dtype.name!r})",
        )
    )


def _applied(
    label: str,
    results: Any,
    points: Sequence[Node],
    operands: Sequence[Node],
    gradient: Callable[..., Any] | None,
) -> Any:
    members = [as_node(member) for _, member in leaves(results, "outputs")]
    if not members:
        raise GraphError(message(f"op_from_graph: {label} has no outputs", need="at least one"))
    if gradient is not None:
        if len(members) != 1:
            raise GraphError(
                message(
                    f"op_from_graph: {label} has {len(members)} outputs and a gradient of its own",
                    need="one output",
                    hint="one operation for each output, or mg.stack them",
                )
            )
        members = [_overridden(label, members[0], points, gradient)]
    starts = dict(zip(points, operands, strict=True))
    return like(results, subgraph(members, starts, label))


def _overridden(
    label: str, output: Node, points: Sequence[Node], gradient: Callable[..., Any]
) -> Node:
    def value_and_rule(*operands: Node) -> tuple[Node, Callable[[Node], Any]]:
        (value,) = rebuild([output], dict(zip(points, operands, strict=True)))
        return value, lambda cotangent: gradient(*operands, cotangent)

    value_and_rule.__name__ = label
    return custom_gradient(value_and_rule)(*points)
