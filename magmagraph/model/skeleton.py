"""A functional model as JSON: its layers, and the graph between them with their calls cut out.

In the graph each result of a call is an input, and each operand of a call an output; it is written
as text, which names operations and holds no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autodiff.transforms.rebuild import rebuild
from ..errors import ConfigError, GraphError, message
from ..files.reading import Damaged
from ..ir.graph import Node, freeze
from ..nn.layer import Call, Layer
from ..ops.leaf import input
from ..text.reading import load, load_graph
from ..text.writing import dump
from .architecture import Custom, build_layer, describe_layer

__all__ = ["build_graph", "describe_graph"]

_PLACE = "architecture"  # of the description, in the header of a file


def describe_graph(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    calls: Sequence[tuple[Call, Node]],
    layers: Sequence[Layer],
) -> dict[str, Any]:
    """Return layers, their calls and the graph between as JSON values.

    Raises
    ------
    ConfigError
        If a layer has an argument, or a call an option, that a file cannot hold, or the graph
        between layers has an operation that is not of magmagraph.
    """
    place = {id(layer): i for i, layer in enumerate(layers)}
    cut = {
        node: input(f"result {i}", node.shape, node.dtype) for i, (_, node) in enumerate(calls)
    }
    call_operands = [operand for call, _ in calls for operand in call.inputs]
    leaves = [*inputs, *cut.values()]
    graph = freeze(leaves, rebuild([*call_operands, *outputs], cut))
    text = dump(graph)
    try:
        load(text)
    except GraphError as error:
        raise ConfigError(
            message(
                f"the graph between layers cannot be read back from a file: {error}",
                need="operations of magmagraph between layers",
                hint="a class derived from mg.nn.Layer for the others; or save_weights(path)",
            )
        ) from None
    call_entries = []
    groups: dict[tuple[int, int], int] = {}
    for i, (call, _) in enumerate(calls):
        options = dict(call.options)
        if not all(isinstance(v, (bool, int, float, str, type(None))) for v in options.values()):
            raise ConfigError(
                message(
                    f"{type(call.layer).__name__} is called with {options}",
                    need="options that are numbers, texts or None",
                    hint="save_weights(path)",
                )
            )
        call_entries.append(
            {
                "layer": place[id(call.layer)],
                "operands": len(call.inputs),
                "options": options,
                "position": call.position,
                # The results of one call share the tuple of its operands.
                "group": groups.setdefault((id(call.layer), id(call.inputs)), i),
            }
        )
    return {
        "layers": [describe_layer(layer) for layer in layers],
        "calls": call_entries,
        "inputs": len(inputs),
        "graph": text,
    }


def build_graph(
    described: dict[str, Any], custom: Custom
) -> tuple[tuple[Node, ...], list[Node]]:
    """Return inputs and outputs of the model that `describe_graph` described, with new weights.

    Raises
    ------
    Damaged
        If its parts do not fit each other; the message names the part.
    DataError
        If it names a layer that is neither in `mg.nn` nor in `custom`.
    """
    for key in ("inputs", "calls"):
        if key not in described:
            raise Damaged(f"{_PLACE} has the key 'graph' and lacks {key!r}")
    layers = [build_layer(layer, custom) for layer in described["layers"]]
    graph = load_graph(described["graph"], f"{_PLACE}.graph")
    count, calls = described["inputs"], described["calls"]
    if len(graph.inputs) != count + len(calls):
        raise Damaged(
            f"{_PLACE}.graph has {len(graph.inputs)} inputs, and not the {count} of the model and "
            f"one for each of {len(calls)} calls"
        )
    operand_count = sum(call["operands"] for call in calls)
    if operand_count > len(graph.outputs):
        raise Damaged(
            f"{_PLACE}.calls have {operand_count} operands, and {_PLACE}.graph has "
            f"{len(graph.outputs)} outputs"
        )
    roots = iter(graph.outputs)
    results: dict[Node, Node] = {}
    called: dict[int, Any] = {}
    for i, (call, leaf) in enumerate(zip(calls, graph.inputs[count:], strict=True)):
        operands = rebuild([next(roots) for _ in range(call["operands"])], results)
        layer, position = call["layer"], call["position"]
        if layer >= len(layers):
            raise Damaged(f"{_PLACE}.calls[{i}].layer is {layer}, and there are {len(layers)}")
        if call["group"] not in called:
            called[call["group"]] = layers[layer](*operands, **call["options"])
        value = called[call["group"]]
        if (position is None) is not isinstance(value, Node) or (
            position is not None and position >= len(value)
        ):
            results_of_call = "one" if isinstance(value, Node) else len(value)
            raise Damaged(
                f"{_PLACE}.calls[{i}].position is {position}, and the results of the call are "
                f"{results_of_call}"
            )
        results[leaf] = value if position is None else value[position]
    return graph.inputs[:count], rebuild(list(roots), results)
