"""Compute a product too large to keep, and what reads it, by blocks of its rows.

Before::

    %0 = input() : float32[4096, 16]  # x
    %1 = input() : float32[16, 65536]  # w
    %2 = gemm(%0, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : float32[4096, 65536]
    %3 = sum(%2, axes=(1,)) : float32[4096]
    return %3

After::

    %0 = input() : float32[4096, 16]  # x
    %1 = input() : float32[16, 65536]  # w
    %2 = slice(%0, starts=(0, 0), steps=(1, 1), shape=(2048, 16)) : float32[2048, 16]
    %3 = gemm(%2, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : float32[2048, 65536]
    %4 = sum(%3, axes=(1,)) : float32[2048]
    %5 = slice(%0, starts=(2048, 0), steps=(1, 1), shape=(2048, 16)) : float32[2048, 16]
    %6 = gemm(%5, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : float32[2048, 65536]
    %7 = sum(%6, axes=(1,)) : float32[2048]
    %8 = concatenate(%4, %7, axis=0) : float32[4096]
    return %8

It is made for the logits of a large vocabulary, which their loss and its gradient read and nothing
else: neither all logits nor all their gradients are in memory at a time. But the pass knows nothing
of losses. It takes the nodes of about the size of the product that depend on it row by row
(elementwise operations, reductions of rows, products of rows with a matrix), and what ends them:
results of rows, which are joined, and sums over rows, to which each block adds its part (the
gradient of the matrix). No step is computed twice. It is refused where something of that size is
read whole, or where a row waits for a sum over others, as gradients of a loss that is squared do.

The blocks save memory if the schedule can compute one after the other. It cannot where the kernel
that ends the loss also makes a number that the gradient waits for (the sum of weights of
`ignore_index`): then the values of rows are there together, as without the pass.

Numerics: `reassoc`. Sums over rows are sums of the blocks' sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..dtypes import is_complex
from ..ir.graph import Graph, Node, Trace
from ..ir.op import Kind
from ..ir.records import record
from ..ir.types import Extent
from ..ops.control.identities import MARKER
from ..ops.elementwise.arithmetic import ADD
from ..ops.leaf import constant
from ..ops.products.lowered import GEMM, gemm
from ..ops.reduction.primitives import SUM
from ..ops.shape.arrange import RESHAPE
from ..ops.shape.joining import BROADCAST_TO, CONCATENATE
from ..ops.shape.slicing import SLICE
from .lowering.buffers import hinted, hinted_bytes
from .lowering.timeline import readable
from .pipeline import Options
from .report import label
from .simplify.linear import substituted

RULE = "rows in blocks"
LARGEST = 512 << 20  # bytes of a product, or of a block of it, that are kept whole
LEAST_ROWS = 256  # of a block: fewer make slow products
MOST_BLOCKS = 64
SIMILAR = 3  # values of a third of the product's bytes are not kept whole either
SMALL = 64
MOST_NODES = 128


@record(frozen=True)
class _Island:
    """What is computed by blocks.

    Attributes
    ----------
    members
        In program order, each a value of rows.
    totals
        Sums over rows that end it.
    results
        Members that are read outside, too.
    unit
        Of rows, of which every member has a multiple.
    blocks
        How many there are. A named unit need not be a multiple: some blocks are one longer then.
    """

    members: tuple[Node, ...]
    totals: tuple[Node, ...]
    results: tuple[Node, ...]
    unit: Extent
    blocks: int

    def cut(self, rows: Extent, block: int) -> tuple[Extent, Extent]:
        """Return where the rows of a block begin among so many, and how many these are."""
        times = rows // self.unit
        start, end = (self.unit * place // self.blocks for place in (block, block + 1))
        return times * start, times * (end - start)


def row_blocks(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph whose largest products are computed by blocks of their rows."""
    return _in_blocks(graph, trace, options, set(graph.nodes))


def _in_blocks(graph: Graph, trace: Trace, options: Options, whole: set[Node]) -> Graph:
    """Cut products among the nodes that are whole: no block is cut once more."""
    for node in graph.nodes:
        if node.op is not GEMM or node.ndim != 2 or node.attrs["transpose_a"]:
            continue
        if node not in whole:
            continue
        size = hinted_bytes(node.type, options.hints)
        if size <= LARGEST or node.attrs["accumulate"]:
            continue
        found = _island(graph, node, options.hints)
        if isinstance(found, str):
            options.record.refuse(RULE, node, found)
            continue
        options.record.hit(RULE)
        largest = max(_bytes(member, options.hints) for member in found.members)
        options.record.note(
            f"{label(node)}: {found.blocks} blocks of {readable(size // found.blocks)}, "
            f"{len(found.members)} values of rows; {readable(largest)} are not held"
        )
        mapping = dict(_mapping(found))
        members = graph.interner.intern_all(list(mapping.values()))
        settled = dict(zip(mapping, members, strict=True))
        for old, new in settled.items():
            trace.replace(old, new, "row_blocks", RULE)

        def rebuilt(old: Node, new: Node) -> None:
            trace.replace(old, new, "row_blocks", "operands")
            if old in whole:
                whole.add(new)

        return _in_blocks(substituted(graph, settled, rebuilt), trace, options, whole)
    return graph


def _bytes(node: Node, hints: Mapping[str, int]) -> int:
    return 0 if isinstance(node.type, tuple) else hinted_bytes(node.type, hints)


# What is computed by blocks.


def _island(graph: Graph, seed: Node, hints: Mapping[str, int]) -> _Island | str:
    size = _bytes(seed, hints)
    later = _depending(graph, seed)
    rows: set[Node] = {seed}
    totals: dict[Node, None] = {}
    for node in graph.nodes:
        if node in later and node is not seed and any(i in rows for i in node.inputs):
            if _is_row_by_row(node, rows):
                rows.add(node)
            elif _is_total(node, rows):
                totals[node] = None
    large = {n for n in rows if _bytes(n, hints) * SIMILAR >= size}
    members = _needed(graph, rows, large)
    if len(members) > MOST_NODES:
        return f"more than {MOST_NODES} values depend on it row by row"
    totals = {n: None for n in totals if any(i in large for i in n.inputs)}
    members |= _beside(graph, members, totals, size, hints)
    order = tuple(n for n in graph.nodes if n in members)
    roots = set(graph.roots)
    results = []
    for node in order:
        readers = [u for u in graph.users[node] if u not in members and u not in totals]
        if not readers and node not in roots:
            continue
        if node in large or _bytes(node, hints) * SIMILAR >= size:
            reader = label(readers[0]) if readers else "the program"
            return f"{label(node)} is read whole, by {reader}"
        if node in later:  # of the others, readers outside have the whole
            results.append(node)
    inside = members | set(totals)
    for node in (*order, *totals):
        if any(i in later and i not in members for i in node.inputs):
            return f"{label(node)} waits for a value of all rows"
        if any(i in totals for i in node.inputs):
            return f"{label(node)} waits for a sum over all rows"
    if not totals and len(order) == 1:
        return "nothing is computed of its rows alone"
    leads = [n.shape[0] for n in order if n.shape] + [
        i.shape[0] for n in totals for i in n.inputs[:2] if i.shape and i not in inside
    ]
    unit = _unit(leads)
    blocks = None if unit is None else _count(unit, size, seed.shape[0], hints)
    if unit is None or blocks is None:
        return f"no number of blocks divides its {seed.shape[0]} rows, as all read them"
    return _Island(order, tuple(totals), tuple(results), unit, blocks)


def _unit(leads: Sequence[Extent]) -> Extent | None:
    """Return a number of rows of which all these are multiples, None where none is known.

    Of numbers it is the largest one; named rows are multiples of one among them.
    """
    known = [lead for lead in leads if isinstance(lead, int)]
    if len(known) == len(leads):
        return math.gcd(*known)
    for unit in leads:
        if all(lead % unit == 0 and isinstance(lead // unit, int) for lead in leads):
            return unit
    return None


def _count(unit: Extent, size: int, rows: Extent, hints: Mapping[str, int]) -> int | None:
    """Return the least number of blocks that are small enough, else the largest; None: one."""
    units = hinted(unit, hints)
    most = min(MOST_BLOCKS, hinted(rows, hints) // LEAST_ROWS, units)
    able = [
        blocks for blocks in range(2, most + 1)
        if not isinstance(unit, int) or unit % blocks == 0
    ]  # fmt: skip
    small = [blocks for blocks in able if size * -(-units // blocks) // units <= LARGEST]
    return min(small) if small else max(able, default=None)


def _depending(graph: Graph, seed: Node) -> set[Node]:
    found = {seed}
    for node in graph.nodes:
        if any(i in found for i in node.inputs):
            found.add(node)
    return found


def _needed(graph: Graph, rows: set[Node], large: set[Node]) -> set[Node]:
    """Return the large values, what is computed between them, and what reads them."""
    wanted = set(large)
    for node in reversed(graph.nodes):
        if node in wanted:
            wanted.update(i for i in node.inputs if i in rows)
    return wanted | {n for n in rows if any(i in large for i in n.inputs)}


def _beside(
    graph: Graph, members: set[Node], totals: dict[Node, None], size: int,
    hints: Mapping[str, int],
) -> set[Node]:
    """Return large operands that are no leaves: they are made by blocks, too."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in members and node not in found and node not in totals:
            continue
        for operand in node.inputs:
            if (
                operand not in members
                and operand.inputs
                and _bytes(operand, hints) * SMALL >= size
                and _follows(operand, node)
                and operand.op.kind is Kind.ELEMENTWISE
                and all(_follows(i, operand) or _is_whole(i, operand) for i in operand.inputs)
            ):
                found.add(operand)
    return found


def _is_plain(node: Node) -> bool:
    return not isinstance(node.type, tuple) and bool(node.shape) and not is_complex(node.dtype)


def _follows(operand: Node, node: Node) -> bool:
    """Return whether rows of an operand belong to those of an elementwise operation."""
    return (
        _is_plain(operand) and operand.ndim == node.ndim and operand.shape[0] == node.shape[0]
    )


def _is_whole(operand: Node, node: Node) -> bool:
    """Return whether all rows of an elementwise operation read the same of an operand."""
    return operand.ndim < node.ndim or operand.shape[0] == 1


def _is_row_by_row(node: Node, rows: set[Node]) -> bool:
    """Return whether a value's rows depend on the same rows of its operands."""
    if not _is_plain(node):
        return False
    op, operands = node.op, node.inputs
    if op is GEMM:
        first = operands[0] in rows and not any(i in rows for i in operands[1:])
        plain = node.ndim == 2 and not node.attrs["accumulate"]
        return first and plain and not node.attrs["transpose_a"]
    if op.kind is Kind.ELEMENTWISE:
        return all(_follows(i, node) if i in rows else _is_operand(i, node) for i in operands)
    if op in (RESHAPE, MARKER):
        return bool(operands[0].shape)
    if op is BROADCAST_TO:
        return _follows(operands[0], node)
    return op.reduction is not None and 0 not in node.attrs.get("axes", (0,))


def _is_operand(operand: Node, node: Node) -> bool:
    if isinstance(operand.type, tuple):
        return False
    return _is_whole(operand, node) or _follows(operand, node)


def _is_total(node: Node, rows: set[Node]) -> bool:
    """Return whether a value is a sum over rows, in at least 32 bits."""
    if isinstance(node.type, tuple) or node.dtype.itemsize < 4:
        return False
    if node.op is SUM:
        return 0 in node.attrs["axes"]
    return (
        node.op is GEMM
        and node.ndim == 2
        and node.attrs["transpose_a"]
        and not node.attrs["transpose_b"]
        and not any(i in rows for i in node.inputs[2:])
    )


# Writing the blocks.


def _mapping(island: _Island) -> Iterator[tuple[Node, Node]]:
    """Yield what is read outside of the blocks, and what is computed in its place."""
    pieces: dict[Node, list[Node]] = {node: [] for node in island.results}
    sums: dict[Node, Node] = {}
    for block in range(island.blocks):
        made: dict[Node, Node] = {}
        for node in island.members:
            made[node] = _piece(node, made, island, block)
        for node in island.results:
            pieces[node].append(made[node])
        for node in island.totals:
            sums[node] = _added(node, made, sums.get(node), island, block)
    for node, parts in pieces.items():
        yield node, CONCATENATE(*parts, axis=0)
    yield from sums.items()


def _piece(node: Node, made: dict[Node, Node], island: _Island, block: int) -> Node:
    """Return a block of a value of rows."""
    operands = []
    for place, operand in enumerate(node.inputs):
        if operand in made:
            operands.append(made[operand])
        elif node.op is GEMM:
            operands.append(operand if place else _rows(operand, island, block))
        elif _is_whole(operand, node):
            operands.append(operand)
        else:
            operands.append(_rows(operand, island, block))
    attrs = dict(node.attrs)
    if node.op in (RESHAPE, BROADCAST_TO):
        first, *rest = attrs["shape"]
        attrs["shape"] = (island.cut(first, block)[1], *rest)
    return node.op(*operands, **attrs)


def _rows(node: Node, island: _Island, block: int) -> Node:
    first, *rest = node.shape
    start, height = island.cut(first, block)
    return SLICE(
        node, starts=(start, *[0] * len(rest)), steps=(1,) * node.ndim, shape=(height, *rest)
    )


def _added(
    node: Node, made: dict[Node, Node], before: Node | None, island: _Island, block: int
) -> Node:
    """Return a sum over rows up to a block."""
    if node.op is SUM:
        operand = node.inputs[0]
        part = SUM(made[operand], **node.attrs)
        return part if before is None else ADD(before, part)
    factors = [
        made[i] if i in made else _rows(i, island, block) for i in node.inputs[:2]
    ]
    if before is None:
        return GEMM(*factors, *node.inputs[2:], **node.attrs)
    attrs = {k: v for k, v in node.attrs.items() if k not in ("scaled", "accumulate")}
    alpha = node.inputs[2] if node.attrs["scaled"] else None
    return gemm(*factors, alpha=alpha, addend=before, beta=constant(1, dtype=node.dtype), **attrs)
