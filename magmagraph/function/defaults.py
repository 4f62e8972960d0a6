"""Default updates of variables at every call, which nodes carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ArgumentError, UpdateError, message
from ..ir.docstrings import documented
from ..ir.graph import Node, topological
from ..ops.control.stateful import STATEFUL
from ..ops.convert import as_node
from ..ops.leaf import Variable
from .arguments import check_updates

__all__ = ["default_updates", "stateful"]


@documented
def stateful(value: Any, updates: Mapping[Variable, Any]) -> Node:
    """Return a value that carries default updates of variables.

    A function that computes the value, or anything made of it, also renews the variables, as if
    the pairs stood in its ``updates``: running statistics, counters, states between calls.

    value: Node or array.
    updates: ``{variable: new value}``; all see the values from before the call.
    returns: The value itself. Gradients flow through it, and none to the new values.
    raises UpdateError: If a target is no variable, or a new value has another shape or dtype.

    See Also
    --------
    function : collects them, unless ``updates`` names the variable or ``default_updates=False``.
    default_updates : those that some nodes carry.

    >>> x, calls = mg.var("x"), mg.var("calls", init=0)
    >>> f = mg.function([x], mg.stateful(x * 2.0, {calls: calls + 1}) + 1.0)
    >>> f(1.0), f(2.0), calls.value
    (array(3., dtype=float32), array(5., dtype=float32), array(2, dtype=int32))
    """
    pairs = check_updates(updates)
    return STATEFUL(as_node(value), *(node for pair in pairs for node in pair))


@documented
def default_updates(
    nodes: Node | Iterable[Node], known: Iterable[Node] = ()
) -> dict[Variable, Node]:
    """Return the default updates that some nodes, and all that they need, carry.

    nodes: A node, or several.
    known: Variables that are left out, because something else renews them.
    returns (dict): ``{variable: new value}``.
    raises UpdateError: If two nodes carry different updates of one variable.

    >>> calls = mg.var("calls", init=0)
    >>> y = mg.exp(mg.stateful(1.0, {calls: calls + 1}))
    >>> mg.default_updates(y)
    {<variable 'calls' int32[]>: <add int32[]>}
    """
    roots = [nodes] if isinstance(nodes, Node) else list(nodes)
    for root in roots:
        if not isinstance(root, Node):
            raise ArgumentError(message(f"default_updates of {root!r}", need="nodes"))
    others = {node.attrs.get("state", node) for node in known}
    by_state: dict[Any, tuple[Variable, Node]] = {}  # by what the variables hold
    for node in topological(roots):
        if node.op is not STATEFUL:
            continue
        for target, new in zip(node.inputs[1::2], node.inputs[2::2], strict=True):
            # A variable that something was substituted for is no longer there to be renewed.
            if not isinstance(target, Variable) or target.state in others:
                continue
            if by_state.setdefault(target.state, (target, new))[1] is not new:
                raise UpdateError(
                    message(
                        f"two nodes carry default updates of variable '{target.name}'",
                        need="one new value",
                        hint="updates={variable: value}, or default_updates=False",
                    )
                )
    return dict(by_state.values())
