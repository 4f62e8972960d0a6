"""Compute products that share a factor, and sums of products, by one product.

Before, on a CUDA device under `precision="bfloat16"`::

    %0 = input() : bfloat16[16384, 768]  # x
    %1 = input() : float32[768, 768]  # U
    %2 = input() : float32[768, 768]  # V
    %3 = cast(%1, dtype=bfloat16) : bfloat16[768, 768]
    %4 = cast(%2, dtype=bfloat16) : bfloat16[768, 768]
    %5 = gemm(%0, %3, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[16384, 768]
    %6 = gemm(%0, %4, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[16384, 768]
    %7 = multiply(%5, %6) : bfloat16[16384, 768]
    return %7

After::

    %0 = input() : bfloat16[16384, 768]  # x
    %1 = input() : float32[768, 768]  # U
    %2 = input() : float32[768, 768]  # V
    %3 = concatenate(%1, %2, axis=1) : float32[768, 1536]
    %4 = cast(%3, dtype=bfloat16) : bfloat16[768, 1536]
    %5 = gemm(%0, %4, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[16384, 1536]
    %6 = slice(%5, starts=(0, 0), steps=(1, 1), shape=(16384, 768)) : bfloat16[16384, 768]
    %7 = slice(%5, starts=(0, 768), steps=(1, 1), shape=(16384, 768)) : bfloat16[16384, 768]
    %8 = multiply(%6, %7) : bfloat16[16384, 768]
    return %8

These are the queries, keys and values of attention, the gates of recurrent cells, and in the
backward pass the gradients of their weights, ``x.T @ [dq, dk, dv]``. The gradient of ``x``,
``dq @ Wq.T + dk @ Wk.T + dv @ Wv.T``, is one product along a longer axis, which adds up its terms
before it rounds them.

The pass compares bytes. One product reads the shared factor once, or writes one sum instead of
terms, and saves launches. It needs the other factors in one array. That costs nothing where a
region only puts them in order (casts of weights to 16 bits, heads of attention); else it is a copy
in each call, because weights are variables of their own. Regions read the slices of the result
where they are, and pieces of the factors; other readers need copies. Small products are generated,
and compute what reads them on their tiles, which saves more. All this is an estimate: it was not
measured on a device.

On a CPU products stay apart. Measured on two cores, joined ones with their copies took 0.8 to 0.9
of the time in steps of thousands of rows and at most 64 columns, and 0.93 to 2.4 elsewhere.

Numerics: `reassoc`. Sums of products are added up in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..ir.graph import Graph, Node, Trace
from ..ir.identity import same_nodes
from ..ir.op import Kind
from ..ir.records import record
from ..ir.types import Extent
from ..ops.convert import CAST, cast
from ..ops.elementwise.arithmetic import ADD
from ..ops.products.lowered import GEMM
from ..ops.shape.arrange import RESHAPE
from ..ops.shape.joining import CONCATENATE
from ..ops.shape.layout import TRANSPOSE
from ..ops.shape.slicing import SLICE
from .lowering.buffers import hinted, hinted_bytes
from .pipeline import Options
from .simplify.linear import combination, read_counts

SHARED = "products that share a factor"
SUMMED = "sum of products"
LAUNCH = 4 << 20  # bytes that a device moves in the time of a launch, about 2 us
COPY = LAUNCH  # what a copy costs besides its bytes
SMALL = 1 << 17  # elements of a result up to which products are generated
MOVES = (CAST, RESHAPE, TRANSPOSE)  # what puts factors in order
ON_CPU = "on a CPU a call for each is as fast, and needs no copies of the factors (measured)"

Operand: TypeAlias = tuple[tuple[Node, ...], int]
"""Factors that are joined, and the axis."""
Pieces: TypeAlias = list[tuple[Node, Node]]
"""What is read of a factor, and the piece of the joined array that it is."""


@record(frozen=True)
class Group:
    """Products that can be one.

    Attributes
    ----------
    rule
        `SHARED` or `SUMMED`.
    members
        The products.
    root
        Of a sum: the sum that they are terms of.
    terms
        Of a sum: all its terms, and the products that they are, or None.
    """

    rule: str
    members: tuple[Node, ...]
    root: Node | None = None
    terms: tuple[tuple[Node, Node | None], ...] = ()

    @property
    def operands(self) -> list[Operand]:
        """The factors that are joined, each with the axis."""
        flags = self.members[0].attrs
        right = tuple(m.inputs[1] for m in self.members)
        if self.rule == SHARED:
            return [(right, 0 if flags["transpose_b"] else 1)]
        left = tuple(m.inputs[0] for m in self.members)
        return [(left, 0 if flags["transpose_a"] else 1), (right, 1 if flags["transpose_b"] else 0)]


def shared_factors(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with the products that gain from it joined."""
    reads = read_counts(graph)
    groups = _groups(graph, reads)
    if options.target.device == "cpu":
        for group in groups:
            _refuse(group, ON_CPU, options)
        return graph
    groups = _paying(graph, groups, reads, options)
    groups = _without_circles(graph, groups, options)
    joined = {member for group in groups for member in group.members}
    mapping: dict[Node, Node] = {}
    rules: dict[Node, str] = {}
    for group in groups:
        options.record.hit(group.rule)
        for node, made in _replaced(graph, group, joined):
            mapping[node], rules[node] = made, group.rule
    return _rebuilt(graph, mapping, rules, trace)


def _refuse(group: Group, reason: str, options: Options) -> None:
    first, second = group.members[:2]
    options.record.refuse(group.rule, first, reason, other=second)


# Finding groups.


def _groups(graph: Graph, reads: Mapping[Node, int]) -> list[Group]:
    """Return the products that may be one; each is in the largest group that it fits into.

    Factors are joined in the graph's order, and those of the gradients of weights in the order of
    the sums that read them, too: then each is joined once.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    groups: list[Group] = []
    for group in sorted([*_sharing(graph), *_sums(graph, reads)], key=lambda g: -len(g.members)):
        members = [member for member in group.members if member not in taken]
        if len(members) > 1:
            taken.update(members)
            members.sort(key=lambda p: (position[p.inputs[1]], position[p]))
            groups.append(replace(group, members=tuple(members)))
    sums = [group for group in groups if group.rule == SUMMED]
    read = (product.inputs[0] for group in sums for product in group.members)
    order = {factor: i for i, factor in enumerate(read)}
    for group in groups:
        if group.rule == SHARED:
            members = sorted(group.members, key=lambda p: order.get(p.inputs[1], 0))
            sums.append(replace(group, members=tuple(members)))
    return sums


def _is_plain(node: Node) -> bool:
    """Return whether a node is a product of two matrices and nothing else."""
    return node.op is GEMM and node.ndim == 2 and len(node.inputs) == 2


def _sharing(graph: Graph) -> Iterator[Group]:
    """Yield the products that have a left factor in common."""
    kinds: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if _is_plain(node):
            key = (node.inputs[0], frozenset(node.attrs.items()))
            kinds.setdefault(key, []).append(node)
    for products in kinds.values():
        if len(products) > 1:
            yield Group(SHARED, tuple(products))


def _sums(graph: Graph, reads: Mapping[Node, int]) -> Iterator[Group]:
    """Yield the sums of products."""
    inside: set[Node] = set()
    for root in reversed(graph.nodes):
        if root.op is not ADD or root in inside:
            continue
        terms = [(term, _seen_through(term, reads)) for term in _terms(root, reads, inside)]
        kinds: dict[object, list[Node]] = {}
        for _, product in terms:
            if product is not None:
                key = (frozenset(product.attrs.items()), product.type)
                kinds.setdefault(key, []).append(product)
        most = max(kinds.values(), key=len, default=[])
        if len(most) > 1:
            yield Group(SUMMED, tuple(most), root, tuple(terms))


def _terms(root: Node, reads: Mapping[Node, int], inside: set[Node]) -> list[Node]:
    """Return the terms of a sum of arrays of one size, also where it is reshaped between."""
    terms: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        below = node
        while below.op is RESHAPE and reads[below] == 1:
            below = below.inputs[0]
        whole = below.op is ADD and all(i.type == below.type for i in below.inputs)
        if whole and (node is root or reads[below] == 1) and below.dtype == root.dtype:
            inside.add(below)
            stack += reversed(below.inputs)
        else:
            terms.append(node)
    return terms


def _seen_through(term: Node, reads: Mapping[Node, int]) -> Node | None:
    """Return the product that a term is, cast to more bits or reshaped; nothing else reads it."""
    while reads[term] == 1:
        if _is_plain(term):
            return term
        wider = term.op is CAST and term.dtype.itemsize > term.inputs[0].dtype.itemsize
        if not wider and term.op is not RESHAPE:
            return None
        term = term.inputs[0]
    return None


# What pays.


def _paying(
    graph: Graph, groups: list[Group], reads: Mapping[Node, int], options: Options
) -> list[Group]:
    """Return the groups that save more bytes than they cost, together with the other ones."""
    in_place = _added_in_place(graph, reads)
    while True:
        joined = {member for group in groups for member in group.members}
        uses: dict[object, int] = {}
        for group in groups:
            for operand in group.operands:
                uses[operand] = uses.get(operand, 0) + 1
        kept, notes = [], []
        for group in groups:
            pays, reason = _pays(graph, group, joined, uses, in_place, options)
            if pays:
                kept.append(group)
                notes.append(f"{len(group.members)} products as one: {reason}")
            else:
                _refuse(group, reason, options)
        if len(kept) == len(groups):
            for note in notes:
                options.record.note(note)
            return kept
        groups = kept


def _pays(
    graph: Graph,
    group: Group,
    joined: set[Node],
    uses: Mapping[object, int],
    in_place: set[Node],
    options: Options,
) -> tuple[bool, str]:
    """Return whether one product moves fewer bytes than several, and what it moves."""
    hints = options.hints
    members = group.members
    smallest = min(math.prod(hinted(e, hints) for e in m.shape) for m in members)
    if smallest <= SMALL:
        return False, (
            f"a product of {smallest} elements is generated, with what reads it on its tiles"
        )
    more = len(members) - 1
    cost = 0
    for operand in group.operands:
        rereads = _rereads(graph, operand, joined)
        copies = sum(
            2 * hinted_bytes(part.type, hints)
            for part, pieces in zip(operand[0], rereads, strict=True)
            if not _is_written_anyway(part, pieces)
        )
        cost += (copies + COPY * (copies > 0)) // uses[operand]
    if group.rule == SUMMED:
        terms = sum(2 * hinted_bytes(m.type, hints) for m in members)
        made = _attributes(group).get("result", members[0].dtype)
        total = terms // len(members) * made.itemsize // members[0].dtype.itemsize
        saved = terms - total + more * LAUNCH
    else:
        saved = more * (hinted_bytes(members[0].inputs[0].type, hints) + LAUNCH)
        for member in members:
            if member in in_place or not _is_read_in_place(graph, member):
                cost += 2 * hinted_bytes(member.type, hints)
    megabytes = f"{saved / 1e6:.1f} MB are saved and {cost / 1e6:.1f} MB copied (estimated)"
    return saved > cost, megabytes


def _is_written_anyway(part: Node, rereads: Pieces | None) -> bool:
    """Return whether a region does nothing but put a factor in order, for joined readers alone.

    Such a region can write all factors into one array. One that computes several of them together
    writes an array for each.
    """
    node, writes = part, False
    while node.op in MOVES:
        writes |= node.op is not RESHAPE
        node = node.inputs[0]
    return rereads is not None and writes and not _is_computed(node)


def _rereads(graph: Graph, operand: Operand, joined: set[Node]) -> list[Pieces | None]:
    """Return what else is read of each factor; None where that needs an array of its own."""
    parts, axis = operand
    whole = _joined(parts, axis)
    read = _read_by(graph, whole)
    found: list[Pieces | None] = []
    start: Extent = 0
    for part in parts:
        pieces: Pieces = []
        elsewhere = list(_read_elsewhere(graph, part, joined))
        for node in elsewhere:
            piece = None
            if node is part:
                piece = _slice(whole, axis, start, part.shape)
            elif axis == 1 and part.op is node.op is RESHAPE:
                if same_nodes(part.inputs, node.inputs):
                    piece = _reshaped_slice(whole, start, part, node.shape)
            if piece is None or node in read or not _is_read_by_regions(graph, node, joined):
                break
            pieces.append((node, piece))
        found.append(pieces if len(pieces) == len(elsewhere) else None)
        start = start + part.shape[axis]
    return found


def _pieces_read(
    graph: Graph, operand: Operand, joined: set[Node]
) -> Iterator[tuple[Node, Node]]:
    """Yield what else is read of factors that are written only into the joined array."""
    rereads = _rereads(graph, operand, joined)
    for part, pieces in zip(operand[0], rereads, strict=True):
        if pieces is not None and _is_written_anyway(part, pieces):
            yield from pieces


def _read_by(graph: Graph, whole: Node) -> set[Node]:
    """Return the graph's nodes that a replacement reads."""
    read: set[Node] = set()
    stack = [whole]
    while stack:
        for operand in stack.pop().inputs:
            if operand in graph.users:
                read.add(operand)
            else:
                stack.append(operand)
    return read


def _read_elsewhere(graph: Graph, part: Node, joined: set[Node]) -> Iterator[Node]:
    """Yield a factor that others than joined products read, and what they read on the way to it."""
    node, below = part, part
    while node.op in MOVES:
        others = [
            user for user in graph.users[node]
            if user is not below and not _is_for_joined(graph, user, joined)
        ]
        if node is part:
            if others or _is_root(graph, node):
                yield node
        elif _is_root(graph, node):
            yield node
        else:
            yield from others
        node, below = node.inputs[0], node


def _is_for_joined(graph: Graph, node: Node, joined: set[Node]) -> bool:
    """Return whether joined products alone read a value, moved or not."""
    if node in joined:
        return True
    return (
        node.op in MOVES
        and not _is_root(graph, node)
        and all(_is_for_joined(graph, user, joined) for user in graph.users[node])
    )


def _is_read_by_regions(graph: Graph, node: Node, joined: set[Node]) -> bool:
    """Return whether a value is no result, and regions alone read it besides joined products."""
    return not _is_root(graph, node) and all(
        user.op is TRANSPOSE or _is_computed(user) or _is_for_joined(graph, user, joined)
        for user in graph.users[node]
    )


def _is_root(graph: Graph, node: Node) -> bool:
    return node in graph.analysis(_roots)


def _roots(graph: Graph) -> frozenset[Node]:
    return frozenset(graph.roots)


def _is_computed(node: Node) -> bool:
    """Return whether a region computes a value."""
    return node.op.kind in (Kind.ELEMENTWISE, Kind.REDUCTION)


def _is_read_in_place(graph: Graph, product: Node) -> bool:
    """Return whether regions alone read a product, and none that a library can compute with it."""
    if _is_root(graph, product):
        return False
    readers = [product]
    for node in readers:
        for user in graph.users[node]:
            moves = user.op is TRANSPOSE or user.op.kind in (Kind.ELEMENTWISE, Kind.REDUCTION)
            if user.op is RESHAPE and _divides(user, product):
                readers.append(user)
            elif not moves or (len(graph.users[node]) == 1 and _is_bias(graph, user)):
                return False
    return True


def _divides(node: Node, product: Node) -> bool:
    """Return whether a reshape keeps the rows of a product, so that slices can take its place."""
    place = _split(node.shape, product.shape[0])
    return place is not None and place < node.ndim


def _is_bias(graph: Graph, node: Node) -> bool:
    """Return whether an addition of a vector is one that a library's product can compute."""
    if node.op is not ADD:
        return False
    vector = any(i.ndim == 1 or i.shape[:-1] == (1,) * (i.ndim - 1) for i in node.inputs)
    moved = all(user.op in (RESHAPE, TRANSPOSE) for user in graph.users[node])
    return vector and not moved


def _added_in_place(graph: Graph, reads: Mapping[Node, int]) -> set[Node]:
    """Return the products that `accumulate` writes into variables."""
    found: set[Node] = set()
    for variable, value in graph.updates:
        terms = combination(value, reads, lambda node: node.op is GEMM) or []
        products = [term.node for term in terms if term.node.op is GEMM]
        rest = [term.node for term in terms if term.node.op is not GEMM]
        if len(products) == 1 and reads[products[0]] == 1 and same_nodes(rest, [variable]):
            found.add(products[0])
    return found


def _without_circles(graph: Graph, groups: list[Group], options: Options) -> list[Group]:
    """Return the groups without those whose products would wait for each other."""
    while True:
        joined = {member for group in groups for member in group.members}
        owner = {member: group for group in groups for member in group.members}
        waits: dict[Node, list[Node]] = {}  # what is read of a joined array -> what that is made of
        for group in groups:
            for operand in group.operands:
                sources = [source for part in operand[0] for source in part.inputs]
                for node, _ in _pieces_read(graph, operand, joined):
                    waits.setdefault(node, []).extend(sources)
        left = {group: len(group.members) for group in groups}
        done: set[Node] = set()
        waiting = list(graph.nodes)
        while True:
            rest: list[Node] = []
            ready: list[Node] = []
            for node in waiting:
                if all(i in done for i in (*node.inputs, *waits.get(node, ()))):
                    if node not in owner:
                        done.add(node)
                        continue
                    ready.append(node)
                rest.append(node)
            full = {
                group for group in left
                if sum(owner[node] is group for node in ready) == left[group]
            }
            if not full:
                break
            for group in full:
                done.update(group.members)
                del left[group]
            waiting = [node for node in rest if node not in done]
        if not left:
            return groups
        last = next(reversed(left))
        _refuse(last, "one of the factors depends on another of the products", options)
        groups = [group for group in groups if group is not last]


# Writing.


def _replaced(graph: Graph, group: Group, joined: set[Node]) -> Iterator[tuple[Node, Node]]:
    """Yield what is read of the products and their factors, and what takes its place."""
    first = group.members[0]
    attrs = _attributes(group)
    for operand in group.operands:
        yield from _pieces_read(graph, operand, joined)
    factors = [_joined(parts, axis) for parts, axis in group.operands]
    if group.rule == SUMMED:
        assert group.root is not None
        product = GEMM(*factors, **attrs)
        members = set(group.members)
        rest = [term for term, of in group.terms if of not in members]
        # What is reshaped is cast after that, by what reads it.
        reshaped = [user for user in graph.users[group.root] if user.op is RESHAPE and not rest]
        for root in (group.root, *reshaped):
            made = cast(_in_shape(product, root.shape), root.dtype)
            for term in rest:
                made = ADD(_in_shape(term, root.shape), made)
            yield root, made
        return
    product = GEMM(first.inputs[0], *factors, **attrs)
    start: Extent = 0
    for member in group.members:
        yield member, _slice(product, 1, start, member.shape)
        for user in graph.users[member]:
            if user.op is RESHAPE:
                piece = _reshaped_slice(product, start, member, user.shape)
                if piece is not None:
                    yield user, piece
        start = start + member.shape[1]


def _attributes(group: Group) -> dict[str, Any]:
    """Return the attributes of the one product; sums may be out of range where terms are not."""
    first, root = group.members[0], group.root
    if root is not None and first.dtype == np.float16 and root.dtype == np.float32:
        return {**first.attrs, "result": root.dtype}
    return dict(first.attrs)


def _joined(parts: Sequence[Node], axis: int) -> Node:
    """Return factors in one array; what makes them of others is done once, to all."""
    first = parts[0]
    sources = [part.inputs[0] for part in parts if part.op is first.op and part.inputs]
    if len(sources) == len(parts):
        alike = all(s.dtype == sources[0].dtype and not _is_computed(s) for s in sources)
        if first.op is CAST and alike:
            return CAST(_joined(sources, axis), **first.attrs)
        if first.op is RESHAPE and first.ndim == 2:
            place = _place_of(sources, parts, axis)
            if place is not None:
                joined = _joined(sources, place)
                total = sum((part.shape[axis] for part in parts[1:]), first.shape[axis])
                shape = (total, first.shape[1]) if axis == 0 else (first.shape[0], total)
                return RESHAPE(joined, shape=shape)
    return CONCATENATE(*parts, axis=axis)


def _place_of(sources: Sequence[Node], parts: Sequence[Node], axis: int) -> int | None:
    """Return the axis of reshaped arrays along which they can be joined, or None."""
    place = 0
    if axis == 1:
        found = _split(sources[0].shape, parts[0].shape[0])
        if found is None or found == sources[0].ndim:
            return None
        place = found
    rest = (*sources[0].shape[:place], *sources[0].shape[place + 1 :])
    for source in sources:
        if source.ndim != len(rest) + 1 or rest != (
            *source.shape[:place], *source.shape[place + 1 :]
        ):
            return None
    return place if sources[0].ndim > 1 else None


def _split(shape: Sequence[Extent], rows: Extent) -> int | None:
    """Return how many of the leading extents make up a number of rows."""
    count: Extent = 1
    for place in range(len(shape) + 1):
        if count == rows:
            return place
        if place < len(shape):
            count = count * shape[place]
    return None


def _slice(node: Node, axis: int, start: Extent, shape: Sequence[Extent]) -> Node:
    starts = tuple(start if i == axis else 0 for i in range(node.ndim))
    return SLICE(node, starts=starts, steps=(1,) * node.ndim, shape=tuple(shape))


def _reshaped_slice(
    product: Node, start: Extent, member: Node, shape: Sequence[Extent]
) -> Node | None:
    """Return columns of a product whose axis is divided as a reshape divides them, or None."""
    rows, total = product.shape
    place = _split(shape, rows)
    if place is None or place == len(shape):
        return None
    unit = 1
    for extent in shape[place + 1 :]:
        if not isinstance(extent, int):
            return None
        unit *= extent
    if not isinstance(start, int) or not isinstance(total, int) or not unit:
        return None
    if start % unit or total % unit:
        return None
    whole = (*shape[:place], total // unit, *shape[place + 1 :])
    return _slice(RESHAPE(product, shape=whole), place, start // unit, shape)


def _in_shape(node: Node, shape: Sequence[Extent]) -> Node:
    return node if node.shape == tuple(shape) else RESHAPE(node, shape=tuple(shape))


def _rebuilt(
    graph: Graph, mapping: Mapping[Node, Node], rules: Mapping[Node, str], trace: Trace
) -> Graph:
    """Return the graph with nodes replaced, also in what replacements read.

    A replacement may read nodes that come later in the old order: results are made by need.
    """
    if not mapping:
        return graph
    make = graph.interner.make
    result: dict[Node, Node] = {}
    written: dict[Node, Node] = {}  # parts of replacements
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(graph.roots)]
    while stack:
        node, is_part = stack.pop()
        table = written if is_part else result
        if node in table:
            continue
        target = node if is_part else mapping.get(node, node)
        missing = []
        for operand in target.inputs:
            new = operand not in graph.users
            if operand not in (written if new else result):
                missing.append((operand, new))
        if missing:
            stack += [(node, is_part), *missing]
            continue
        operands = tuple(written[i] if i in written else result[i] for i in target.inputs)
        made = table[node] = make(target, operands)
        if not is_part:
            trace.replace(node, made, "shared_factors", rules.get(node, "operands"))
    return graph.replace(
        outputs=[result[n] for n in graph.outputs],
        updates=[(variable, result[value]) for variable, value in graph.updates],
        effects=[result[n] for n in graph.effects],
    )
