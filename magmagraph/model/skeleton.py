"""A functional model as JSON: its layers, and the graph between them with their calls cut out.

In the graph each result of a call is an input, and each operand of a call an output; it is written
as text, which names operations and holds no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, GraphError, message
from ..graph import Graph, Node, freeze
from ..nn.layer import Call, Layer
from ..ops.leaf import input
from ..text.reading import load
from ..text.writing import dump
from ..transforms.rebuild import rebuild
from .architecture import Custom, build_layer, describe_layer

__all__ = ["build_graph", "describe_graph"]


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
    wanted = [operand for call, _ in calls for operand in call.inputs]
    leaves = [*inputs, *cut.values()]
    graph = freeze(leaves, rebuild([*wanted, *outputs], cut))
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
    made = []
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
        made.append(
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
        "calls": made,
        "inputs": len(inputs),
        "graph": text,
    }


def build_graph(
    described: dict[str, Any], custom: Custom
) -> tuple[tuple[Node, ...], list[Node]]:
    """Return inputs and outputs of the model that `describe_graph` described, weights made anew.

    Raises
    ------
    DataError
        If it names a layer that is neither in `mg.nn` nor in `custom`.
    """
    layers = [build_layer(layer, custom) for layer in described["layers"]]
    graph: Graph = load(described["graph"])
    count = described["inputs"]
    inputs, cut = graph.inputs[:count], graph.inputs[count:]
    roots = iter(graph.outputs)
    results: dict[Node, Node] = {}
    called: dict[int, Any] = {}
    for call, leaf in zip(described["calls"], cut, strict=True):
        operands = rebuild([next(roots) for _ in range(call["operands"])], results)
        if call["group"] not in called:
            called[call["group"]] = layers[call["layer"]](*operands, **call["options"])
        value = called[call["group"]]
        results[leaf] = value if call["position"] is None else value[call["position"]]
    return inputs, rebuild(list(roots), results)
