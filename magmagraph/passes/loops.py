"""Loops: remove results that are never read, and compute products of all iterations at once.

A loop is built with rows for its gradient, whether or not there is one; `prune` takes away the
results, carries, stacks and reads that nothing needs. `hoist` moves matrix products out of the
body. One of a row of a stack, by a matrix that is the same for all iterations, runs for all rows
before the loop (``x[t] @ W``). One that only leaves the loop, as a row or added up in a carry
(``dW += x[t].T @ d[t]``), runs once after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..ir.graph import Graph, Node, Trace, topological
from ..ir.identity import is_among
from ..ir.op import Effect, Kind
from ..ir.records import record
from ..ir.types import Extent, Type
from ..ops.control.identities import ITEM
from ..ops.control.loop import LOOP, extent_of
from ..ops.control.loop_parts import Parts, for_all_rows
from ..ops.elementwise.arithmetic import ADD
from ..ops.reduction.primitives import SUM
from ..ops.shape.layout import TRANSPOSE
from .lowering.buffers import hinted
from .pipeline import Options

PRUNE = "remove loop results that are never read"
BEFORE = "move a product before the loop"
AFTER = "move a product after the loop"

# How much larger than the product the factors may be that a loop leaves for one product after it.
_ROOM = 4


# Pruning.


def prune(graph: Graph, trace: Trace, options: Options, name: str) -> Graph:
    """Remove loop results that are never read."""

    def change(node: Node, graph: Graph) -> dict[Node, Node]:
        return _pruned(node, graph, options) if node.op is LOOP else {}

    while True:
        slim = _one_by_one(graph, change, trace, name, PRUNE)
        if slim is graph:
            return graph
        graph = slim


def prune_within(graph: Graph, trace: Trace, options: Options, name: str) -> Graph:
    """Return the graph pruned, and the bodies of its loops and branches before it."""

    def change(node: Node, graph: Graph) -> dict[Node, Node]:
        bodies = {key: value for key, value in node.attrs.items() if holds_bodies(value)}
        if not bodies:
            return {}
        new = {
            key: each_body(value, lambda body: prune_within(body, Trace(), options, name))
            for key, value in bodies.items()
        }
        if all(new[key] is bodies[key] for key in bodies):
            return {}
        return {node: node.op(*node.inputs, name=node.name, **{**node.attrs, **new})}

    graph = _one_by_one(graph, change, trace, name, PRUNE)
    return prune(graph, trace, options, name)


def _one_by_one(
    graph: Graph,
    change: Callable[[Node, Graph], Mapping[Node, Node]],
    trace: Trace,
    name: str,
    rule: str,
) -> Graph:
    """Apply a function that returns replacements to each node, the last node first.

    What takes the place of a node reads the others as they are. Were all replaced at once, a
    backward loop would go on reading the forward one that it was built for, beside the one that
    took its place: both would run.
    """
    for node in reversed(graph.nodes):
        # What stands before a replaced node is the same as before, or nobody reads it any more.
        if node.op.kind is not Kind.CONTROL or node not in graph.users:
            continue
        mapping = change(node, graph)
        if mapping:
            graph = _put(graph, mapping, trace, name, rule)
    return graph


def holds_bodies(value: Any) -> bool:
    """Return whether an attribute is a graph, or several."""
    several = isinstance(value, tuple) and bool(value)
    return isinstance(value, Graph) or (several and all(isinstance(v, Graph) for v in value))


def each_body(value: Any, change: Callable[[Graph], Graph]) -> Any:
    """Return an attribute that holds graphs with each changed; the same one where none is."""
    if isinstance(value, Graph):
        return change(value)
    bodies = tuple(map(change, value))
    return value if all(a is b for a, b in zip(bodies, value, strict=True)) else bodies


def _put(
    graph: Graph, mapping: Mapping[Node, Node], trace: Trace, name: str, rule: str
) -> Graph:
    intern = graph.interner.intern
    members = {old: intern(new) for old, new in mapping.items()}
    for old, new in members.items():
        trace.replace(old, new, name, rule)
    return graph.substitute(members, lambda old, new: trace.replace(old, new, name, rule))


def _pruned(node: Node, graph: Graph, options: Options) -> dict[Node, Node]:
    """Return what takes the places of the results that are read; nothing where all is needed."""
    readers = [user for user in graph.users[node] if user.op is ITEM]
    if not isinstance(node.type, tuple):
        return {}
    loop = Parts.of(node)
    count = len(loop.carries)
    outputs = [*loop.carried, *loop.rows]
    every = node.attrs["flag"] == ""
    stack_of = dict(loop.stacks) if every else {}
    used = {reader.attrs["index"] for reader in readers}
    # A row that is one of a stack is there already.
    stacks_read = {i: stack_of[outputs[i]] for i in used if i >= count and outputs[i] in stack_of}
    used -= stacks_read.keys()
    needed, reached = _needed(loop, used)
    stacks = tuple(pair for pair in loop.stacks if pair[0] in reached)
    if node.attrs["flag"] == "stack" and not is_among(loop.stacks[0], stacks):
        stacks = (loop.stacks[0], *stacks)
    if not stacks:
        stacks = loop.stacks[:1]  # it tells the length
    reads = tuple(pair for pair in loop.reads if pair[0] in reached)
    same = (
        len(needed) == len(outputs)
        and len(stacks) == len(loop.stacks)
        and len(reads) == len(loop.reads)
    )
    if same and not stacks_read:
        return {}
    kept = sorted(needed)
    slim = replace(
        loop,
        carries=tuple(loop.carries[i] for i in kept if i < count),
        stacks=stacks,
        reads=reads,
        carried=tuple(outputs[i] for i in kept if i < count),
        rows=tuple(outputs[i] for i in kept if i >= count),
    )
    options.record.hit(PRUNE)
    results = dict(zip(kept, slim.made(), strict=True)) if kept else {}
    results.update(stacks_read)
    return {reader: results[reader.attrs["index"]] for reader in readers}


def _needed(loop: Parts, used: set[int]) -> tuple[set[int], set[Node]]:
    """Return the outputs of the body that are needed, and all nodes that they depend on."""
    outputs = [*loop.carried, *loop.rows]
    places = {leaf: i for i, (leaf, _) in enumerate(loop.carries)}
    needed = set(used)
    if loop.node.attrs["flag"] == "carry":
        needed.add(0)
    while True:
        reached = set(topological([outputs[i] for i in sorted(needed)]))
        more = {place for leaf, place in places.items() if leaf in reached} - needed
        if not more:
            return needed, reached
        needed |= more


# Products of all iterations.

_Moved = Callable[[Parts, Options], list[Node] | None]


def hoist(graph: Graph, trace: Trace, options: Options, name: str) -> Graph:
    """Return the graph whose loops multiply before and after all iterations where that will do."""
    for rule, moved in ((BEFORE, _before), (AFTER, _after)):

        def change(
            node: Node, graph: Graph, rule: str = rule, moved: _Moved = moved
        ) -> dict[Node, Node]:
            if node.op is not LOOP or node.attrs["flag"] != "" or not node.attrs["stacks"]:
                return {}
            results = moved(Parts.of(node), options)
            if results is None:
                return {}
            options.record.hit(rule)
            if not isinstance(node.type, tuple):
                return {node: results[0]}
            return {reader: results[reader.attrs["index"]] for reader in graph.users[node]}

        after = _one_by_one(graph, change, trace, name, rule)
        if after is not graph:
            graph = prune(after, trace, options, name)
    return graph


def _before(loop: Parts, options: Options) -> list[Node] | None:
    """Return the results of the loop whose products of rows run before it, or None."""
    varying = loop.depending([leaf for leaf, _ in loop.carries])
    of_rows = loop.depending([leaf for leaf, _ in loop.stacks]) - varying
    order = [n for n in topological([*loop.carried, *loop.rows]) if n in of_rows]
    products = [n for n in order if _shares_a_factor(n, of_rows)]
    impure = {n for n in order if n.op.effect is not Effect.PURE}
    products = [n for n in products if not impure.intersection(topological([n]))]
    # Those that another one is made of come with it.
    inner = {n for p in products for o in p.inputs for n in topological([o])}
    roots = [p for p in products if p not in inner]
    if not roots:
        return None
    stacks = dict(loop.stacks)
    extent = extent_of(loop.node)
    assert extent is not None
    rows = for_all_rows(roots, stacks, dict(loop.reads), extent)
    return loop.with_rows(dict(zip(roots, rows, strict=True))).made()


def _shares_a_factor(node: Node, of_rows: set[Node]) -> bool:
    """Return whether a product has a factor that is the same for all rows."""
    if node.op.kind is not Kind.CONTRACTION or isinstance(node.type, tuple):
        return False
    return any(operand not in of_rows and operand.ndim > 1 for operand in node.inputs)


@record(frozen=True)
class _Leaving:
    """A product that only leaves the loop: as a row, or added to a carry."""

    place: int  # among the outputs of the body
    product: Node
    sources: tuple[Node, ...]  # what its factors are made of by transposes alone


def _after(loop: Parts, options: Options) -> list[Node] | None:
    """Return the results of the loop whose last products run once after it, or None."""
    leaving = _leaving(loop, options)
    if not leaving:
        return None
    count = len(loop.carries)
    stacks, reads = dict(loop.stacks), dict(loop.reads)
    gone = {each.place for each in leaving}
    rows = [row for i, row in enumerate(loop.rows, count) if i not in gone]
    places = {row: i for i, row in enumerate(rows)}
    for each in leaving:
        for source in each.sources:
            if source not in stacks and source not in reads and source not in places:
                places[source] = len(rows)
                rows.append(source)
    carries = [i for i in range(count) if i not in gone]
    slim = replace(
        loop,
        carries=tuple(loop.carries[i] for i in carries),
        carried=tuple(loop.carried[i] for i in carries),
        rows=tuple(rows),
    )
    all_results = slim.made()
    left = all_results[len(carries) :]
    extent: Extent | None = extent_of(loop.node)
    assert extent is not None
    results: dict[int, Node] = dict(zip(carries, all_results, strict=False))
    kept = [i for i in range(count, count + len(loop.rows)) if i not in gone]
    results.update(zip(kept, left, strict=False))
    for each in leaving:
        mapped = {s: stacks[s] if s in stacks else left[places[s]]
                  for s in each.sources if s not in reads}
        (whole,) = for_all_rows([each.product], mapped, reads, extent)
        if each.place < count:
            start = loop.carries[each.place][1]
            total = SUM(whole, axes=(0,))
            whole = total if _is_zero(start) else ADD(start, total)
        results[each.place] = whole
    return [results[i] for i in range(count + len(loop.rows))]


def _leaving(loop: Parts, options: Options) -> list[_Leaving]:
    outputs = [*loop.carried, *loop.rows]
    order = topological(outputs)
    readers: dict[Node, int] = {}
    for node in [*(o for n in order for o in n.inputs), *outputs]:
        readers[node] = readers.get(node, 0) + 1
    reads = {leaf for leaf, _ in loop.reads}
    varying = loop.depending([leaf for leaf, _ in (*loop.carries, *loop.stacks)])
    count = len(loop.carries)
    leaving = []
    for place, output in enumerate(outputs):
        product = output
        if place < count:
            leaf = loop.carries[place][0]
            if output.op is not ADD or not is_among(leaf, output.inputs) or readers[leaf] != 1:
                continue
            product = output.inputs[1] if output.inputs[0] is leaf else output.inputs[0]
            if readers[output] != 1:
                continue
        if product.op.kind is not Kind.CONTRACTION or readers[product] != 1:
            continue
        sources = tuple(dict.fromkeys(_source(operand) for operand in product.inputs))
        shared = [s for s in sources if s not in varying]
        if any(s not in reads for s in shared):
            continue  # a constant factor: rare, and it stays where it is
        new = [s for s in sources if s in varying and s not in dict(loop.stacks)]
        if place >= count and not shared:
            continue
        if not _small(new, product, options):
            options.record.refuse(
                AFTER, loop.node, "its factors are much larger than the product"
            )
            continue
        leaving.append(_Leaving(place, product, sources))
    return leaving


def _is_zero(node: Node) -> bool:
    """Return whether a node is a zero, or zeros of any shape."""
    while node.op.kind is Kind.LAYOUT and len(node.inputs) == 1:
        node = node.inputs[0]
    return "value" in node.attrs and not node.attrs["value"].any()


def _source(operand: Node) -> Node:
    while operand.op is TRANSPOSE:
        operand = operand.inputs[0]
    return operand


def _small(rows: Sequence[Node], product: Node, options: Options) -> bool:
    hints: Any = options.hints

    def elements(type_: Type) -> int:
        return hinted(type_.size, hints)

    return sum(elements(row.type) for row in rows) <= _ROOM * elements(product.type)
