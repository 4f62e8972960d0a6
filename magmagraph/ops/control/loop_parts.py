"""Loops taken apart, changed, and put together again: what passes use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...autodiff.transforms.rebuild import rebuild
from ...ir.graph import Graph, Node, freeze, topological
from ...ir.records import record
from ...ir.types import Extent
from ..leaf import input, parameter
from .identities import results_of
from .loop import LOOP, extent_of
from .mapped import batch, in_front

__all__ = ["Parts", "for_all_rows"]


@record(frozen=True)
class Parts:
    """A loop taken apart: parameters with their operands, and what the body makes."""

    node: Node
    carries: tuple[tuple[Node, Node], ...]
    stacks: tuple[tuple[Node, Node], ...]
    reads: tuple[tuple[Node, Node], ...]
    carried: tuple[Node, ...]
    rows: tuple[Node, ...]

    @classmethod
    def of(cls, node: Node) -> Parts:
        """Take a loop apart."""
        attrs = node.attrs
        body: Graph = attrs["body"]
        pairs = list(zip(body.inputs, node.inputs, strict=True))
        count = attrs["carries"]
        edge = count + attrs["stacks"]
        return cls(
            node,
            tuple(pairs[:count]),
            tuple(pairs[count:edge]),
            tuple(pairs[edge:]),
            body.outputs[:count],
            body.outputs[count:],
        )

    def made(self) -> list[Node]:
        """Rebuild the loop and return its results."""
        pairs = [*self.carries, *self.stacks, *self.reads]
        leaves = [parameter(i, leaf.type) for i, (leaf, _) in enumerate(pairs)]
        replaced = dict(zip([leaf for leaf, _ in pairs], leaves, strict=True))
        body = freeze(leaves, rebuild([*self.carried, *self.rows], replaced))
        loop = LOOP(
            *[operand for _, operand in pairs],
            name=self.node.name,
            body=body,
            carries=len(self.carries),
            stacks=len(self.stacks),
            length=None if self.stacks else extent_of(self.node),
            reverse=self.node.attrs["reverse"],
            flag=self.node.attrs["flag"],
        )
        return results_of(loop)

    def depending(self, leaves: Sequence[Node]) -> set[Node]:
        """Return the nodes of the body that depend on some of its leaves."""
        nodes = set(leaves)
        for node in topological([*self.carried, *self.rows]):
            if any(operand in nodes for operand in node.inputs):
                nodes.add(node)
        return nodes

    def with_rows(self, before: Mapping[Node, Node]) -> Parts:
        """Return the loop that reads rows of stacks in the places of nodes of its body."""
        leaves = {node: input("row", node.shape, node.dtype) for node in before}
        outputs = rebuild([*self.carried, *self.rows], leaves)
        count = len(self.carries)
        added = tuple((leaves[node], stack) for node, stack in before.items())
        return replace(
            self,
            stacks=(*self.stacks, *added),
            carried=tuple(outputs[:count]),
            rows=tuple(outputs[count:]),
        )


def for_all_rows(
    roots: Sequence[Node], stacks: Mapping[Node, Node], reads: Mapping[Node, Node], extent: Extent
) -> list[Node]:
    """Return nodes of a body for all iterations at once, stacked along a new first axis."""
    return [in_front(part, extent) for part in batch(roots, stacks, extent, reads)]
