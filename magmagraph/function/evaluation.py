"""Define `node.eval()`: compile a function of a node, and keep the most recent ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ..errors import FeedError, message
from ..ir import dims
from ..ir.graph import Node, topological
from ..ir.identity import is_among
from ..ir.locking import shared_lock
from ..ir.op import Kind
from ..ops.leaf import EXTENT
from . import Function

_EVALUATORS = 64
# The most recent ones, by what is evaluated and the inputs that are fed as nodes.
_evaluators: OrderedDict[tuple[Node, frozenset[Node]], Function] = OrderedDict()
_evaluators_lock = shared_lock()


def eval(self: Node, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
    """Return the node's value, compiled at the first call.

    Parameters
    ----------
    feeds, named
        Values of the inputs it needs, ``{x: array}`` or by name.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=(2,))
    >>> (x + 1.0).eval({x: [1.0, 2.0]})
    array([2., 3.], dtype=float32)
    """
    return _evaluate(self, feeds, named)


def _evaluate(node: Node, feeds: Mapping[Any, Any] | None, named: Mapping[str, Any]) -> Any:
    if feeds is not None and not isinstance(feeds, Mapping):
        raise FeedError(
            message(
                f"eval is given {type(feeds).__name__}",
                need="a dict from inputs to arrays",
                hint="node.eval({x: array}), or by name, node.eval(x=array)",
            )
        )
    others = [n for n in feeds or () if isinstance(n, Node) and "key" in n.attrs]
    place = (node, frozenset(others))
    with _evaluators_lock:
        compiled = _evaluators.pop(place, None)  # a handler of this thread may evaluate nodes, too
        if compiled is not None:
            _evaluators[place] = compiled
    if compiled is None:
        order = topological([node])
        inputs = [n for n in order if n.op.kind is Kind.LEAF and "key" in n.attrs]
        sized = _for_sizes(order, inputs, others)
        plain = (node, frozenset[Node]())
        with _evaluators_lock:
            compiled = None if sized else _evaluators.get(plain)
        if compiled is None:
            compiled = Function([*inputs, *sized], node, default_updates=False)  # it only looks
        with _evaluators_lock:
            _evaluators[place] = compiled
            if not sized:
                _evaluators[plain] = compiled  # the same by name
            while len(_evaluators) > _EVALUATORS:
                _evaluators.popitem(last=False)
    if feeds is None:
        return compiled(**named)
    return compiled(dict(feeds), **named)


def _for_sizes(order: list[Node], inputs: list[Node], others: list[Node]) -> list[Node]:
    """Return the inputs that are fed for their shapes alone.

    A gradient, say, often has the shape of an input that it does not read.
    """
    needed: set[str] = set()
    for node in order:
        types = node.type if isinstance(node.type, tuple) else (node.type,)
        extents = [e for type_ in types for e in type_.shape]
        extents += [node.attrs["dim"]] if node.op is EXTENT else []
        needed.update(*map(dims.names, extents))
    needed.difference_update(*(dims.names(e) for node in inputs for e in node.shape))
    return [
        node
        for node in others
        if not is_among(node, inputs) and any(dims.names(e) & needed for e in node.shape)
    ]


eval.__qualname__ = "Node.eval"
Node.eval = eval  # type: ignore[method-assign]  # which Node declares
