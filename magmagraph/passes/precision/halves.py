"""Products of 16-bit operands: place casts, and choose the values that are stored in 16 bits.

The work of the `precision` pass for ``"float16"`` and ``"bfloat16"``.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import finfo, is_inexact
from ...ir.graph import Graph, Node, Trace
from ...ir.identity import is_among
from ...ir.op import Kind
from ...ops.convert import CAST, cast
from ...ops.leaf import CONSTANT, constant
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..report import label

FLOAT32 = np.dtype(np.float32)
SMALL = 64  # what has so many times fewer elements than a value counts for nothing beside it


def float32(node: Node) -> bool:
    """Return whether a node has one result, of float32."""
    return not isinstance(node.type, tuple) and node.dtype == FLOAT32


def factors_of(node: Node) -> list[Node]:
    """Return the operands of a product that are multiplied."""
    if node.op.precision.factors is not None:
        return [node.inputs[i] for i in node.op.precision.factors]
    return [x for x in node.inputs if isinstance(x.type, tuple) or is_inexact(x.dtype)]


class Halves:
    """A graph on its way to 16-bit products.

    Parameters
    ----------
    graph
        As the pass received it.
    dtype
        The 16-bit dtype.
    products
        The nodes to change.
    """

    def __init__(
        self, graph: Graph, dtype: np.dtype, products: list[Node], trace: Trace, options: Options
    ) -> None:
        self.graph, self.dtype, self.trace, self.options = graph, dtype, trace, options
        self.record, self.interner = options.record, graph.interner
        self.products = set(products)
        self.goes_on = self._goes_on()
        self.lower: dict[Node, frozenset[Node]] = {}  # see `_sources`
        self.made: dict[Node, Node] = {}  # of the graph -> of the new graph
        self.casts: dict[Node, Node] = {}  # float32 value of the new graph -> its cast
        self.backs: set[Node] = set()  # casts back to float32 of what was rounded here
        self.error = float(finfo(dtype).eps) / 2

    def run(self) -> Graph:
        """Return the new graph."""
        if not self.products:
            return self.graph
        for node in self.graph.nodes:
            self._note_sources(node)
            self.made[node] = self._made(node)
            if self._is_shared_sum(node):
                self.made[node] = self._rounded(node)
        graph = self.graph.replace(
            outputs=[self.made[n] for n in self.graph.outputs],
            updates=[(variable, self.made[value]) for variable, value in self.graph.updates],
            effects=[self.made[n] for n in self.graph.effects],
        )
        return self._stored_once(graph)

    # ---- What is made of 16-bit values

    def _note_sources(self, node: Node) -> None:
        """Record the 16-bit values (two at most) from which alone a float32 value is computed.

        Whatever is small beside it (a number for each channel) counts for nothing. A value that
        is stored in 16 bits is made of itself.
        """
        if node in self.products:
            if node in self.goes_on and float32(node):
                self.lower[node] = frozenset((node,))
            return
        if node.op.policy != "follow" or not float32(node):
            return
        size = self._elements(node)
        reached: set[Node] = set()
        for operand in node.inputs:
            if isinstance(operand.type, tuple) or not is_inexact(operand.dtype):
                continue  # masks and positions say which numbers, and are none
            sources = self.lower.get(operand)
            if sources is not None:
                reached |= sources
            elif self._elements(operand) * SMALL > size:
                return
        if reached:
            moved = node.op.kind is Kind.CONVOLUTION
            self.lower[node] = frozenset((node,) if moved else list(reached)[:2])

    def _is_shared_sum(self, node: Node) -> bool:
        """Return whether a value of several 16-bit ones has several readers: it will be stored.

        Such are the gradients where a branch begins. Of a single 16-bit value readers compute it
        again.
        """
        if len(self.lower.get(node, ())) < 2 or node.op.kind is not Kind.ELEMENTWISE:
            return False
        if node not in self.goes_on or is_among(node, self.graph.roots):
            return False
        return len(self.graph.users[node]) > 1

    def _rounded(self, node: Node) -> Node:
        """Return the 16-bit form of a value, as float32: what all its readers get."""
        self.lower[node] = frozenset((node,))
        wide = self._back(self._narrowed(self.made[node]))
        self.record.hit("sum of 16-bit values")
        self.trace.replace(node, wide, "precision", "sum of 16-bit values")
        return wide

    # ---- Products

    def _goes_on(self) -> set[Node]:
        """Return the nodes whose values reach a product through operations that follow."""
        factors: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node in self.products:
                factors.update(factors_of(node))
            elif node in factors and node.op.policy == "follow":
                factors.update(x for x in node.inputs if float32(x))
        return factors

    def _made(self, node: Node) -> Node:
        """Return the replacement of a node in the new graph."""
        inputs = tuple(self.made[operand] for operand in node.inputs)
        if node in self.products:
            return self._product(node, inputs)
        moved = self._moved(node, inputs)
        if moved is not None:
            return moved
        remade = self.interner.make(node, inputs)
        if float32(node) and remade.dtype == self.dtype:  # one of several results of a product
            remade = self._back(remade)
        self.trace.replace(node, remade, "precision", "operands")
        return remade

    def _product(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        rule = f"product in {self.dtype.name}"
        stored = node in self.goes_on or "result" not in node.op.precision.mixed
        places = node.op.precision.factors
        lowered = set(range(len(inputs)) if places is None else places)
        if stored and node.attrs.get("accumulate"):
            lowered.add(len(inputs) - 2)  # the addend is of the result's dtype
        operands = [
            self._narrowed(x) if i in lowered and float32(x) else x for i, x in enumerate(inputs)
        ]
        attrs = dict(node.attrs) if stored else {**node.attrs, "result": FLOAT32}
        product = self.interner.intern(node.op(*operands, **attrs))
        self.trace.replace(node, product, "precision", rule)
        self.record.hit(rule)
        kept = f"stored as {self.dtype.name}" if stored else "stored as float32, as it was summed"
        self.record.note(
            f"{label(node)}: {self.dtype.name} operands, {kept}; an element errs by up to "
            f"{2 * self.error:.1e} of the sum of its terms' magnitudes"
        )
        if not stored or isinstance(product.type, tuple):
            return product
        wide = self._back(product)
        self.trace.replace(node, wide, "precision", rule)
        return wide

    def _back(self, narrow: Node) -> Node:
        """Return a 16-bit value of the new graph as float32."""
        wide = self.interner.intern(cast(narrow, FLOAT32))
        self.backs.add(wide)
        return wide

    # ---- Casts

    def _narrowed(self, node: Node) -> Node:
        """Return a float32 value of the new graph in 16 bits."""
        if node.op is CAST and node.inputs[0].dtype == self.dtype:
            return node.inputs[0]
        cached = self.casts.get(node)
        if cached is not None:
            return cached
        if node.op is CONSTANT:
            value = node.attrs["value"].astype(self.dtype)
            narrow = self.interner.intern(constant(value, name=node.name))
            self.record.hit("cast a constant at compile time")
        elif self._looks_through(node):
            narrow = self.interner.apply(node.op, self._narrowed(node.inputs[0]), **node.attrs)
            self.record.hit("cast before layout")
        else:
            narrow = self.interner.intern(cast(node, self.dtype))
            self._note_cast(node)
        self.trace.made_by.setdefault(narrow, ("precision", "cast", node))
        self.casts[node] = narrow
        return narrow

    def _looks_through(self, node: Node) -> bool:
        """Return whether a cast may move before a layout operation: it casts no more elements."""
        if node.op.kind is not Kind.LAYOUT or len(node.inputs) != 1 or not float32(node.inputs[0]):
            return False
        return self._elements(node.inputs[0]) <= self._elements(node)

    def _elements(self, node: Node) -> int:
        size = 1
        for extent in node.shape:
            size *= hinted(extent, self.options.hints)
        return size

    def _note_cast(self, node: Node) -> None:
        self.record.hit(f"cast to {self.dtype.name}")
        count = self._elements(node)
        self.record.note(
            f"cast of {label(node)} to {self.dtype.name}, once a call: {count} elements, "
            f"{count * 6} bytes unless fused; an element errs by up to {self.error:.1e} of itself"
        )

    def _moved(self, node: Node, inputs: tuple[Node, ...]) -> Node | None:
        """Return a layout operation of 16-bit elements, cast after it instead of before it."""
        op = node.op
        if op.policy != "follow" or op.kind in (Kind.ELEMENTWISE, Kind.CONTROL):
            return None
        if isinstance(node.type, tuple) or self.dtype.name not in op.dtypes:
            return None
        if op.kind is Kind.CONVOLUTION and all(
            x in self.lower and x in self.goes_on for x in node.inputs if float32(x)
        ):  # windows: what they read is stored, whoever else reads it
            inputs = tuple(self._pooled(x) if float32(x) else x for x in inputs)
        elif not float32(node):
            return None
        wide = [x for x in inputs if float32(x)]
        if not wide or any(x.op is not CAST or x.inputs[0].dtype != self.dtype for x in wide):
            return None
        if op.numerics != "exact" and any(x not in self.backs for x in wide):
            return None  # a cast of the user's: no result of it is rounded
        sources = [x.inputs[0] if float32(x) else x for x in inputs]
        moved = op(*sources, **node.attrs)
        if moved.type.dtype != (self.dtype if float32(node) else node.dtype):
            return None
        result = self.interner.intern(moved)
        if float32(node):
            result = self._back(result)
        self.record.hit(f"stored as {self.dtype.name}")
        self.trace.replace(node, result, "precision", f"stored as {self.dtype.name}")
        return result

    def _pooled(self, node: Node) -> Node:
        """Return a float32 value of the new graph, rounded to 16 bits and cast back."""
        return node if node in self.backs else self._back(self._narrowed(node))

    # ---- Values that are stored once

    def _stored_once(self, graph: Graph) -> Graph:
        """Let operations that follow, and sums, read the 16-bit form that products read."""
        roots = set(graph.roots)
        present = set(graph.nodes)
        again = {
            value: self.interner.intern(cast(narrow, FLOAT32))
            for value, narrow in self.casts.items()
            if narrow.op is CAST
            and narrow in present
            and value not in roots
            and value.op.kind is Kind.ELEMENTWISE
            and value.op.policy == "follow"
            and value.op is not CAST
            and value.shape
        }
        if not again:
            return graph
        rule = "share one cast between readers"
        result: dict[Node, Node] = {}
        for node in graph.nodes:
            # A sum adds in float32 whatever it reads; others that keep float32 read float32.
            reads = node.op.policy == "follow" or node.op.kind is Kind.REDUCTION
            reads = reads and node.op is not CAST
            inputs = []
            for operand in node.inputs:
                new = result[operand]
                if reads and operand in again:
                    new = self._again(again[operand], result)
                    self.record.hit(rule)
                inputs.append(new)
            result[node] = self.interner.make(node, tuple(inputs))
            self.trace.replace(node, result[node], "precision", rule)
        return graph.replace(
            outputs=[result[n] for n in graph.outputs],
            updates=[(variable, result[value]) for variable, value in graph.updates],
            effects=[result[n] for n in graph.effects],
        )

    def _again(self, wide: Node, result: dict[Node, Node]) -> Node:
        """Return the cast back of a 16-bit value, built from rebuilt nodes."""
        (narrow,) = wide.inputs
        (value,) = narrow.inputs
        narrowed = self.interner.make(narrow, (result[value],))
        return self.interner.make(wide, (narrowed,))
