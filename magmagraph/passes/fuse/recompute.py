"""Values that readers compute again from what is in memory anyway.

A kernel that is bounded by memory has arithmetic to spare: where a value is a short chain of cheap
operations on an array that lies in memory (a cast of it, or a cast, centered and scaled), its
readers compute the chain again, and the value is neither written nor read. What is small beside the
value, such as one number for each channel, counts as in memory.

On a CPU a chain is taken where it is of one array and of one shape. Devices have more arithmetic
for each byte: there any chain is taken that makes its reader read fewer bytes, and one of the mask
of an activation whose rest a product library computes with the product before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...graph import Node
from ...op import Kind
from ...ops.convert import CAST
from ...region.analysis import MAX_NODES, MAX_OPERANDS
from ...region.parts import costly
from ..lowering.buffers import hinted, hinted_bytes
from .clusters import Clusters
from .forms import Cluster

LONGEST = 24  # operations that a reader on a device computes again rather than reads
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


def recompute(clusters: Clusters) -> None:
    """Let every cluster compute again what makes it read less."""
    clusters.computes_again = True
    every = dict.fromkeys(clusters.cluster_of[n] for n in clusters.core if n in clusters.cluster_of)
    for cluster in every:
        widest = max(_size(clusters, n) for node in cluster.nodes for n in (node, *node.inputs))
        for external in _largest_first(clusters, cluster):
            if _size(clusters, external) * SMALL <= widest:
                continue  # reading it is cheaper than any arithmetic for every element
            maker = clusters.cluster_of.get(external)
            if maker is None or maker is cluster or external not in cluster.externals:
                continue
            least = 0 if _may_vanish(clusters, external) else 1  # or it is written in any case
            product = _left_to_a_library(clusters, external, maker)
            if product is not None:  # it goes through memory no more
                least -= 2 * hinted_bytes(product.type, clusters.hints)
            found = [_chain(clusters, external, cluster, begin) for begin in (_is_kept, _never)]
            if not any(chain is not None and chain.saved >= least for chain in found):
                found = [_chain(clusters, external, cluster, _narrower(external))]
            chains = [chain for chain in found if chain is not None and chain.saved >= least]
            chains = [chain for chain in chains if product not in chain.bases]
            for chain in sorted(chains, key=lambda chain: -chain.saved):
                if _take(clusters, cluster, external, chain):
                    break
    _leave_out(clusters)


def _largest_first(clusters: Clusters, cluster: Cluster) -> list[Node]:
    return sorted(
        cluster.externals,
        key=lambda node: (-hinted_bytes(node.type, clusters.hints), clusters.position[node]),
    )


def _size(clusters: Clusters, node: Node) -> int:
    return hinted(node.type.size, clusters.hints)


Begin = Callable[[Clusters, Node], bool]


def _chain(clusters: Clusters, value: Node, reader: Cluster, begin: Begin) -> Chain | None:
    """Return what computes a value again from memory, or None where nothing does.

    The chain goes back to what no cluster makes, to what the reader reads in any case, or to what
    it may `begin` with.
    """
    nodes: set[Node] = set()
    bases: set[Node] = set()
    size = _size(clusters, value)
    stack = [value]
    while stack:
        node = stack.pop()
        if node in nodes or node in bases or node in clusters.free or clusters._is_generator(node):
            continue
        if node is not value and (
            node in reader.externals
            or node not in clusters.cluster_of
            or _size(clusters, node) * SMALL <= size
            or (begin(clusters, node) and not _widens(node))
        ):
            bases.add(node)
            continue
        if node.op.kind is not Kind.ELEMENTWISE or costly(node) or len(nodes) >= LONGEST:
            if node is value or not _is_kept(clusters, node):
                return None
            bases.add(node)
            continue
        nodes.add(node)
        stack.extend(clusters._base(operand) for operand in node.inputs)
    large = [base for base in bases if _size(clusters, base) * SMALL > size]
    fresh = [base.type for base in large if base not in reader.externals]
    saved = hinted_bytes(value.type, clusters.hints)
    saved -= sum(hinted_bytes(type_, clusters.hints) for type_ in fresh)
    return Chain(nodes, bases, saved)


def _widens(node: Node) -> bool:
    """Return whether a value is a narrower one, cast: that one is better to have in memory."""
    return node.op is CAST and 2 * node.inputs[0].dtype.itemsize <= node.dtype.itemsize


def _is_kept(clusters: Clusters, node: Node) -> bool:
    """Return whether a value is in memory in any case."""
    return clusters._is_output(node, set(clusters.cluster_of[node].nodes))


def _may_vanish(clusters: Clusters, node: Node) -> bool:
    """Return whether a value is written for other clusters only, which may compute it again."""
    if node in clusters.roots or node in clusters.kept:
        return False
    return all(clusters.cluster_of.get(user) is not None for user in clusters._users(node))


def _left_to_a_library(clusters: Clusters, value: Node, maker: Cluster) -> Node | None:
    """Return the product of which a library computes all of a cluster but one value, or None.

    Without its mask, ``relu(x @ w + b)`` is such a rest.
    """
    if not _may_vanish(clusters, value):
        return None
    products = [node for node in maker.externals if node.op.kind is Kind.LOWERED]
    rest = [node for node in maker.nodes if node is not value and node.op is not CAST]
    if len(products) != 1 or not rest or not all(node.op.epilogue for node in rest):
        return None
    (product,) = products
    if product.op.policy != "allow" or product in clusters.roots or product.shape != value.shape:
        return None
    if any(clusters.cluster_of.get(user) is not maker for user in clusters._users(product)):
        return None
    return product


def _never(clusters: Clusters, node: Node) -> bool:
    return False


def _narrower(value: Node) -> Begin:
    """Return a test for values of half the width: writing them in its place is a gain, too."""
    return lambda clusters, node: 2 * node.dtype.itemsize <= value.dtype.itemsize


def _take(clusters: Clusters, cluster: Cluster, value: Node, chain: Chain) -> bool:
    """Let a cluster compute a value again, where it stays a region; return whether it does."""
    again = cluster.again | chain.nodes
    externals = (cluster.externals - {value}) | chain.bases
    if len(cluster.nodes) + len(again) > MAX_NODES or len(externals) > MAX_OPERANDS:
        return False
    before = cluster.again, cluster.externals
    cluster.again, cluster.externals = again, externals
    if clusters._no_region(clusters._form([*cluster.nodes, *again], cluster)) is not None:
        cluster.again, cluster.externals = before
        return False
    cluster.plain = False
    clusters.kept.update(chain.bases)
    clusters.record.hit("compute again")
    return True


def _leave_out(clusters: Clusters) -> None:
    """Note the clusters of which nothing is read: all their readers compute it again."""
    waiting = list(dict.fromkeys(clusters.cluster_of.values()))
    while waiting:
        cluster = waiting.pop()
        if clusters.unread.issuperset(cluster.nodes):
            continue
        inside = set(cluster.nodes)
        if not any(clusters._is_output(node, inside) for node in inside):
            clusters.unread |= inside
            makers = (clusters.cluster_of.get(node) for node in cluster.externals)
            waiting += dict.fromkeys(maker for maker in makers if maker is not None)
