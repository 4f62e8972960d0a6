"""A model's graph in the form that trains: the calls of its layers, repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autodiff.transforms.rebuild import again
from ..ir.graph import Node
from ..nn.layer import Call, Layer, call_of
from ..ops.leaf import Variable

__all__ = ["applied", "calls", "loose_variables", "training_form"]


def _order(outputs: Sequence[Node], inputs: Sequence[Node]) -> list[Node]:
    """Return nodes from inputs to outputs, operands first; calls of layers are not entered."""
    known_nodes = set(inputs)
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(outputs)]
    while stack:
        node, entered = stack.pop()
        if node in done:
            continue
        if entered or node in known_nodes:
            done.add(node)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend((operand, False) for operand in reversed(_operands(node)))
    return order


def _operands(node: Node) -> tuple[Node, ...]:
    call = call_of(node)
    return node.inputs if call is None else call.inputs


def calls(outputs: Sequence[Node], inputs: Sequence[Node]) -> list[tuple[Call, Node]]:
    """Return the calls of layers that lead to the outputs, with their results, in order."""
    known_nodes = set(inputs)
    applied_calls = []
    for node in _order(outputs, inputs):
        call = None if node in known_nodes else call_of(node)
        if call is not None:
            applied_calls.append((call, node))
    return applied_calls


def loose_variables(outputs: Sequence[Node], inputs: Sequence[Node]) -> list[Variable]:
    """Return the graph's variables that belong to no layer."""
    return [node for node in _order(outputs, inputs) if isinstance(node, Variable)]


def training_form(outputs: Sequence[Node], inputs: Sequence[Node]) -> list[Node]:
    """Return the outputs with every layer called again for training.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=("batch", 3))
    >>> y = mg.nn.BatchNorm()(x) * 2.0
    >>> len(mg.default_updates(y)), len(mg.default_updates(training_form([y], [x])))
    (0, 2)
    """
    return applied(outputs, inputs, inputs, training=True)


def applied(
    outputs: Sequence[Node], inputs: Sequence[Node], operands: Sequence[Node], *, training: bool
) -> list[Node]:
    """Return the outputs for other inputs, with every layer called again."""
    new_nodes: dict[Node, Node] = dict(zip(inputs, operands, strict=True))
    results: dict[tuple[int, int], Any] = {}  # of layers with several results: one call for all
    for node in _order(outputs, inputs):
        if node in new_nodes:
            continue
        call = call_of(node)
        if call is None:
            new_nodes[node] = again(node, tuple(new_nodes[operand] for operand in node.inputs))
        else:
            new_nodes[node] = _repeated(call, new_nodes, results, training)
    return [new_nodes[node] for node in outputs]


def _repeated(
    call: Call, new_nodes: dict[Node, Node], results: dict[tuple[int, int], Any], training: bool
) -> Node:
    layer: Layer = call.layer
    place = (id(layer), id(call.inputs))
    if call.position is None or place not in results:
        results[place] = layer(
            *(new_nodes[operand] for operand in call.inputs), training=training, **call.options
        )
    result = results[place]
    output: Node = result if call.position is None else result[call.position]
    return output
