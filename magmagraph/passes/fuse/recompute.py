"""Recompute values in their readers from operands that are already in memory.

A kernel that is bounded by memory has arithmetic to spare: where a value is a short chain of cheap
operations on an array that lies in memory (a cast of it, or a cast, centered and scaled), its
readers compute the chain again, and the value is neither written nor read. What is small beside the
value, such as one number for each channel, counts as in memory.

On a CPU a chain is taken where it is of one array and of one shape. Devices have more arithmetic
for each byte: there any chain is taken that makes its reader read fewer bytes, and one of the mask
of an activation whose rest a product library computes with the product before it. Exponentials are
computed again where that saves half of the bytes: the slope of a GELU, in float32, from a product
in 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...codegen.region.analysis import MAX_NODES, MAX_OPERANDS
from ...codegen.region.parts import costly
from ...ir.graph import Node
from ...ir.op import Kind
from ...ops.convert import CAST
from ..lowering.buffers import hinted, hinted_bytes
from .clusters import Cluster
from .joins import Joins

LONGEST = 24  # operations that a reader on a device computes again rather than reads
LONGEST_COSTLY = 48  # with exponentials among them, where at least half of the bytes are saved
SMALL = 64  # a value of so many times fewer elements counts as in memory


class Chain(NamedTuple):
    """What computes a value again.

    Attributes
    ----------
    nodes
        The operations.
    bases
        What they read.
    saved
        Bytes that the reader no longer reads, less what it reads instead.
    """

    nodes: set[Node]
    bases: set[Node]
    saved: int


def recompute(joins: Joins) -> None:
    """Let every cluster compute again what makes it read less."""
    joins.clusters.computes_again = True
    every = dict.fromkeys(joins.clusters.of[n] for n in joins.facts.core if n in joins.clusters.of)
    for cluster in every:
        widest = max(_size(joins, n) for node in cluster.nodes for n in (node, *node.inputs))
        for external in _largest_first(joins, cluster):
            if _size(joins, external) * SMALL <= widest:
                continue  # reading it is cheaper than any arithmetic for every element
            maker = joins.clusters.of.get(external)
            if maker is None or maker is cluster or external not in cluster.externals:
                continue
            least = 0 if _may_vanish(joins, external) else 1  # or it is written in any case
            product = _left_to_a_library(joins, external, maker)
            if product is not None:  # it goes through memory no more
                least -= 2 * hinted_bytes(product.type, joins.hints)
            kept_chains = [_chain(joins, external, cluster, begin) for begin in (_is_kept, _never)]
            if not any(chain is not None and chain.saved >= least for chain in kept_chains):
                kept_chains = [_chain(joins, external, cluster, _narrower(external))]
            if not least and not any(
                chain is not None and chain.saved >= 0 for chain in kept_chains
            ):
                least = hinted_bytes(external.type, joins.hints) // 2
                kept_chains = [_chain(joins, external, cluster, _never, costs=True)]
            chains = [chain for chain in kept_chains if chain is not None and chain.saved >= least]
            chains = [chain for chain in chains if product not in chain.bases]
            for chain in sorted(chains, key=lambda chain: -chain.saved):
                if _take(joins, cluster, external, chain):
                    break
    _leave_out(joins)


def _largest_first(joins: Joins, cluster: Cluster) -> list[Node]:
    return sorted(
        cluster.externals,
        key=lambda node: (-hinted_bytes(node.type, joins.hints), joins.facts.position[node]),
    )


def _size(joins: Joins, node: Node) -> int:
    return hinted(node.type.size, joins.hints)


Begin = Callable[[Joins, Node], bool]


def _chain(
    joins: Joins, value: Node, reader: Cluster, begin: Begin, *, costs: bool = False
) -> Chain | None:
    """Return what computes a value again from memory, or None where nothing does.

    The chain goes back to what no cluster makes, to what the reader reads in any case, or to what
    it may `begin` with. Where it `costs`, exponentials and the like are computed again, too.
    """
    longest = LONGEST_COSTLY if costs else LONGEST
    nodes: set[Node] = set()
    bases: set[Node] = set()
    size = _size(joins, value)
    stack = [value]
    while stack:
        node = stack.pop()
        if node in nodes or node in bases or joins.facts.makes_itself(node):
            continue
        if node is not value and (
            node in reader.externals
            or node not in joins.clusters.of
            or _size(joins, node) * SMALL <= size
            or (begin(joins, node) and not _widens(node))
        ):
            bases.add(node)
            continue
        cheap = joins.facts.is_joined(node) or (
            node.op.kind is Kind.ELEMENTWISE and (costs or not costly(node))
        )
        if not cheap or len(nodes) >= longest:
            if node is value or not _is_kept(joins, node):
                return None
            bases.add(node)
            continue
        nodes.add(node)
        stack.extend(joins.facts.base(operand) for operand in node.inputs)
    large = [base for base in bases if _size(joins, base) * SMALL > size]
    fresh = [base.type for base in large if base not in reader.externals]
    saved = hinted_bytes(value.type, joins.hints)
    saved -= sum(hinted_bytes(type_, joins.hints) for type_ in fresh)
    return Chain(nodes, bases, saved)


def _widens(node: Node) -> bool:
    """Return whether a value is a narrower one, cast: that one is better to have in memory."""
    return node.op is CAST and 2 * node.inputs[0].dtype.itemsize <= node.dtype.itemsize


def _is_kept(joins: Joins, node: Node) -> bool:
    """Return whether a value is in memory in any case."""
    return joins.clusters.is_output(node, set(joins.clusters.of[node].nodes))


def _may_vanish(joins: Joins, node: Node) -> bool:
    """Return whether a value is written for other clusters only, which may compute it again."""
    if node in joins.facts.roots or node in joins.clusters.kept:
        return False
    return all(joins.clusters.of.get(user) is not None for user in joins.facts.users(node))


def _left_to_a_library(joins: Joins, value: Node, maker: Cluster) -> Node | None:
    """Return the product of which a library computes all of a cluster but one value, or None.

    Without its mask, ``relu(x @ w + b)`` is such a rest.
    """
    if not _may_vanish(joins, value):
        return None
    products = [node for node in maker.externals if node.op.kind is Kind.LOWERED]
    rest = [node for node in maker.nodes if node is not value and node.op is not CAST]
    if len(products) != 1 or not rest or not all(node.op.scalar.epilogue for node in rest):
        return None
    (product,) = products
    if product.op.policy != "allow" or product in joins.facts.roots or product.shape != value.shape:
        return None
    if any(joins.clusters.of.get(user) is not maker for user in joins.facts.users(product)):
        return None
    return product


def _never(joins: Joins, node: Node) -> bool:
    return False


def _narrower(value: Node) -> Begin:
    """Return a test for values of half the width: writing them in its place is a gain, too."""
    return lambda joins, node: 2 * node.dtype.itemsize <= value.dtype.itemsize


def _take(joins: Joins, cluster: Cluster, value: Node, chain: Chain) -> bool:
    """Let a cluster compute a value again, where it stays a region; return whether it does."""
    again = cluster.again | chain.nodes
    externals = (cluster.externals - {value}) | chain.bases
    if len(cluster.nodes) + len(again) > MAX_NODES or len(externals) > MAX_OPERANDS:
        return False
    before = cluster.again, cluster.externals
    cluster.again, cluster.externals = again, externals
    if joins.no_region(joins.forms.form([*cluster.nodes, *again], cluster)) is not None:
        cluster.again, cluster.externals = before
        return False
    cluster.plain = False
    joins.clusters.kept.update(chain.bases)
    joins.record.hit("recompute")
    return True


def _leave_out(joins: Joins) -> None:
    """Note the clusters of which nothing is read: all their readers compute it again."""
    waiting = list(dict.fromkeys(joins.clusters.of.values()))
    while waiting:
        cluster = waiting.pop()
        if joins.clusters.unread.issuperset(cluster.nodes):
            continue
        inside = set(cluster.nodes)
        if not any(joins.clusters.is_output(node, inside) for node in inside):
            joins.clusters.unread |= inside
            makers = (joins.clusters.of.get(node) for node in cluster.externals)
            waiting += dict.fromkeys(maker for maker in makers if maker is not None)
