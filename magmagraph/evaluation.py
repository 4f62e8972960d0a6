"""`node.eval()`: a function compiled behind the scenes, kept for the most recent nodes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .errors import FeedError, message
from .function import Function
from .graph import Node, topological
from .op import Kind

_EVALUATORS = 64
_evaluators: OrderedDict[Node, Function] = OrderedDict()  # the most recently evaluated nodes
_evaluators_lock = threading.Lock()


def evaluate_node(node: Any, feeds: Mapping[Any, Any] | None, named: Mapping[str, Any]) -> Any:
    """Return the value of a node: what its method `eval` does."""
    with _evaluators_lock:
        compiled = _evaluators.get(node)
        if compiled is not None:
            _evaluators.move_to_end(node)
    if compiled is None:
        inputs = [n for n in topological([node]) if n.op.kind is Kind.LEAF and "key" in n.attrs]
        compiled = Function(inputs, node)
        with _evaluators_lock:
            _evaluators[node] = compiled
            while len(_evaluators) > _EVALUATORS:
                _evaluators.popitem(last=False)
    if feeds is None:
        return compiled(**named)
    if not isinstance(feeds, Mapping):
        raise FeedError(
            message(f"eval is given {type(feeds).__name__}", need="a dict from inputs to arrays")
        )
    return compiled(dict(feeds), **named)
