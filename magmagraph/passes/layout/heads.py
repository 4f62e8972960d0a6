"""Give attention its heads behind its rows where a graph splits them off there.

Layers split a row of numbers into heads and swap the axes of heads and rows, and swap them back
behind. The library takes either order: with rows first nothing is copied. It is done for attention
of 16-bit floats without a mask, which the library computes, where all three operands come from
such a swap; cotangents and what reads the results are swapped only if nothing else helps.
"""

from __future__ import annotations

from ...ir.graph import Graph, Node, Trace
from ...ir.identity import same_nodes
from ...ir.op import Kind
from ...ir.types import Extent
from ...ops.control.identities import ITEM
from ...ops.networks.attention import ROWS, ROWS_GRADIENT
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ..pipeline import Options
from ..simplify.linear import substituted

RULE = "heads behind rows"


def heads_behind(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph whose attention reads and writes rows of all heads."""
    if not any(node.op is ROWS for node in graph.nodes):
        return graph
    turning = _Turning(graph)
    for node in graph.nodes:
        if node.op is ROWS and turning.attention(node):
            options.record.hit(RULE)
        elif node.op is ROWS_GRADIENT:
            turning.gradient(node)
        elif node.op is TRANSPOSE:
            turning.swap(node)
    mapping = turning.result
    if not mapping:
        return graph
    interned = graph.interner.intern_all(list(mapping.values()))
    settled = dict(zip(mapping, interned, strict=True))
    for old, new in settled.items():
        trace.replace(old, new, "layout", RULE)
    return substituted(
        graph, settled, lambda old, new: trace.replace(old, new, "layout", "operands")
    )


class _Turning:
    """What is computed with rows first.

    Attributes
    ----------
    result
        What stands for a node of the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.result: dict[Node, Node] = {}
        self._graph = graph
        self._turned: dict[tuple[Node, int], Node | None] = {}
        self._made: dict[Node, Node] = {}  # attention with rows first

    def attention(self, node: Node) -> bool:
        """Compute attention with rows first, if that needs no copy of an operand."""
        if len(node.inputs) != 3 or node.inputs[0].dtype.itemsize != 2:
            return False
        lead = node.inputs[0].ndim - 4
        turned = (self._rows_first(x, lead) for x in node.inputs)
        operands = [operand for operand in turned if operand is not None]
        if len(operands) < len(node.inputs):
            return False
        made = self._made[node] = ROWS(*operands, **node.attrs, rows_first=True)
        self._results(node, made, lead, 1)
        for item in self._graph.users[node]:
            if item.attrs["index"] == 1:  # the logarithms have no rows of their own
                self.result[item] = ITEM(made, index=1)
        return True

    def gradient(self, node: Node) -> None:
        """Compute the gradient of such attention so, too."""
        sums, out = node.inputs[3:5]
        if not (sums.op is ITEM and out.op is ITEM and same_nodes(sums.inputs, out.inputs)):
            return
        forward = sums.inputs[0]
        made = self._made.get(forward)
        if made is None or not same_nodes(forward.inputs, node.inputs[:3]):
            return
        lead = node.inputs[0].ndim - 4
        above = node.inputs[5]
        cotangent = self._rows_first(above, lead)
        if cotangent is None:
            cotangent = _swapped(above, lead)
        gradient = ROWS_GRADIENT(
            *made.inputs, ITEM(made, index=1), ITEM(made, index=0), cotangent, **made.attrs
        )
        self._results(node, gradient, lead, 3)

    def _results(self, node: Node, made: Node, lead: int, count: int) -> None:
        for item in self._graph.users[node]:
            index = item.attrs["index"]
            if index < count:
                turned = ITEM(made, index=index)
                self._turned[item, lead] = turned
                self.result[item] = _swapped_back(turned, lead)

    def swap(self, node: Node) -> None:
        """Take what a swap of heads and rows makes from where it has been computed already."""
        lead = node.ndim - 3
        if lead >= 0 and node.attrs["axes"] == _axes(lead, 1):
            turned = self._rows_first(node.inputs[0], lead)
            if turned is not None:
                self.result[node] = turned

    def _rows_first(self, node: Node, lead: int) -> Node | None:
        """Return a value with rows before heads, None where only a copy has these.

        Its axes are so many leading ones, one or two of heads, rows, and what a row has.
        """
        key = node, lead
        if key not in self._turned:
            self._turned[key] = None if isinstance(node.type, tuple) else self._turn(node, lead)
        return self._turned[key]

    def _turn(self, node: Node, lead: int) -> Node | None:
        heads = node.ndim - lead - 2
        op = node.op
        if heads < 1:
            return None
        if all(extent == 1 for extent in node.shape[lead : lead + heads]):
            return RESHAPE(node, shape=_shape(node, lead))
        if op is TRANSPOSE:
            back = tuple(node.attrs["axes"][axis] for axis in _axes(lead, heads))
            return node.inputs[0] if back == tuple(range(node.ndim)) else None
        if op is RESHAPE:
            source = node.inputs[0]
            if source.shape[:lead] != node.shape[:lead] or source.shape[-2:] != node.shape[-2:]:
                return None
            turned = self._rows_first(source, lead)
            if turned is None:
                return None
            return RESHAPE(turned, shape=_shape(node, lead))
        if op.kind is not Kind.ELEMENTWISE or not node.inputs:
            return None
        operands: list[Node] = []
        some = False
        for operand in node.inputs:
            if isinstance(operand.type, tuple):
                return None
            if operand.ndim == node.ndim and operand.shape == node.shape:
                turned = self._rows_first(operand, lead)
                if turned is None:
                    return None
                operands.append(turned)
                some = True
            elif operand.shape == ():
                operands.append(operand)
            else:
                return None
        return op(*operands, **node.attrs) if some else None


def _axes(lead: int, heads: int) -> tuple[int, ...]:
    """Return the axes that put rows before the heads."""
    return (*range(lead), lead + heads, *range(lead, lead + heads), lead + heads + 1)


def _shape(node: Node, lead: int) -> tuple[Extent, ...]:
    return tuple(node.shape[axis] for axis in _axes(lead, node.ndim - lead - 2))


def _swapped(node: Node, lead: int) -> Node:
    return TRANSPOSE(node, axes=_axes(lead, node.ndim - lead - 2))


def _swapped_back(node: Node, lead: int) -> Node:
    heads = node.ndim - lead - 2
    axes = (*range(lead), *range(lead + 1, lead + 1 + heads), lead, lead + heads + 1)
    if all(extent == 1 for extent in node.shape[lead + 1 : lead + 1 + heads]):
        return RESHAPE(node, shape=tuple(node.shape[axis] for axis in axes))
    return TRANSPOSE(node, axes=axes)
