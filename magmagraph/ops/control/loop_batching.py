"""Loops mapped over an axis: one loop for all examples, or the examples one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph import Graph, Node
from ...transforms.rebuild import rebuild
from ..leaf import input
from ..rules.batching import mapped_extent, repeated
from .mapped import results_of


def loop_batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Return the results of a loop for all examples, with their axis in front."""
    from ...transforms.mapped import batch, in_front
    from ..shape.arrange import moveaxis
    from .loop import LOOP_STEP, extent_of, loop

    attrs = node.attrs
    body: Graph = attrs["body"]
    carries, stacks, flag = attrs["carries"], attrs["stacks"], attrs["flag"]
    extent = mapped_extent(operands, batched)
    edge = carries + stacks
    points = [input(f"operand {i}", p.shape, p.dtype) for i, p in enumerate(body.inputs)]
    made = rebuild(body.outputs, dict(zip(body.inputs, points, strict=True)))
    varies = list(batched)
    if flag == "stack" and varies[carries]:
        return example_by_example(node, operands, batched)

    def anew(drawn: Node) -> bool:
        return bool(drawn.inputs) and drawn.inputs[0].op is LOOP_STEP

    while True:
        mapped: dict[Node, Node] = {}
        plain: dict[Node, Node] = {}
        leaves = []
        for point, along in zip(points, varies, strict=True):
            leaf = input("operand", (extent, *point.shape) if along else point.shape, point.dtype)
            leaves.append(leaf)
            (mapped if along else plain)[point] = leaf
        found = batch(made, mapped, extent, plain, anew)
        spread = [i for i in range(carries) if found[i][1] and not varies[i]]
        if not spread:
            break
        for i in spread:  # a carry that varies after an iteration does so before the next
            varies[i] = True
    if flag == "carry" and varies[0]:
        return example_by_example(node, operands, batched)
    full = []
    for i, (operand, given) in enumerate(zip(operands, batched, strict=True)):
        if varies[i] and not given:
            full.append(repeated(operand, extent))
        elif carries <= i < edge and given:
            full.append(moveaxis(operand, 0, 1))
        else:
            full.append(operand)
    carried = [
        in_front(part, extent) if along else part[0]
        for part, along in zip(found[:carries], varies, strict=False)
    ]
    reads = dict(zip(leaves[edge:], full[edge:], strict=True))
    rows = [part for part, _ in found[carries:]]
    again = rebuild([*carried, *rows], reads)
    finals, stacks_made = loop(
        again[:carries],
        again[carries:],
        dict(zip(leaves[:carries], full[:carries], strict=True)),
        dict(zip(leaves[carries:edge], full[carries:edge], strict=True)),
        length=None if stacks else extent_of(node),
        reverse=attrs["reverse"],
        flag=flag,
        save="nothing",  # the rows that the mapped loop saves are among its rows
    )
    results = [
        final if along else repeated(final, extent)
        for final, along in zip(finals, varies, strict=False)
    ]
    for made_row, (_, along) in zip(stacks_made, found[carries:], strict=True):
        results.append(moveaxis(made_row, 1, 0) if along else repeated(made_row, extent))
    return results[0] if len(results) == 1 else tuple(results)


def example_by_example(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Return the results of any node for all examples, computed by a loop over these."""
    from .loop import loop

    leaves = [
        input("operand", operand.type.shape, operand.dtype) if along else given
        for operand, given, along in zip(node.inputs, operands, batched, strict=True)
    ]
    again = type(node)(
        node.op, tuple(leaves), node.attrs, node.type, None, None, node.constraints
    )
    stacked = {
        leaf: operand
        for leaf, operand, along in zip(leaves, operands, batched, strict=True)
        if along
    }
    _, rows = loop([], results_of(again), {}, stacked)
    return rows[0] if len(rows) == 1 else tuple(rows)


