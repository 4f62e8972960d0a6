"""Grow clusters greedily in program order, as long as each stays one region without a cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...codegen.region.analysis import MAX_NODES, MAX_OPERANDS, WIDE_ROW, Region, analyze
from ...codegen.region.parts import MAX_STRIP, PARTIAL_BYTES, costly
from ...ir.graph import Node
from ...ir.op import Kind
from ..lowering.buffers import hinted
from ..pipeline import Options
from .clusters import Cluster, Clusters
from .forms import Form, Forms

__all__ = ["PATH_BUDGET", "Joins"]

PATH_BUDGET = 4000  # nodes looked at to prove that a merge makes no cycle; above, it is refused
ANALYSES_A_SECOND = 10_000  # nodes analysed per second of the compile budget; above, only plain
# merges are tried. Counted, not timed: equal graphs give equal plans.
WARP = 32  # threads of a device that run side by side
LONG_ROW = 64  # elements that a thread of a device may take one after the other
ANOTHER_STEP = "another step must run between them"
# Bytes that are read again in strips of columns, at most: of a strip, and of all.
TALLEST, LARGEST = 1 << 20, 8 << 20
SMALL_PARTIALS = 64 << 20  # bytes of partial sums that are taken in any case
CHEAP_CHAIN = 6  # operations that a reader computes again rather than reads


class Joins:
    """Joins the clusters of a graph.

    Attributes
    ----------
    clusters, forms, facts
        The clusters, what kernels of them would compute, and what is known of the graph.
    options, hints, record
        Of the pass.
    """

    def __init__(self, clusters: Clusters, forms: Forms, options: Options) -> None:
        self.clusters, self.forms, self.facts = clusters, forms, clusters.facts
        self.options = options
        self.hints = options.hints
        self.record = options.record
        self.analysed = 0
        self.analyses = ANALYSES_A_SECOND * options.compile_budget
        self._verdicts: dict[object, str | None] = {}  # by form
        self._pairs: dict[object, str | None] = {}  # by two clusters and how large they were

    def join_producers(self) -> None:
        """Join every operation with the clusters that make its operands."""
        for node in self.facts.graph.nodes:
            if node not in self.facts.core or self.facts.makes_itself(node):
                continue
            bases = [self.facts.base(operand) for operand in node.inputs]
            externals = {b for b in bases if not self.facts.makes_itself(b)}
            plain = node.op.kind is Kind.ELEMENTWISE and not node.op.reduction
            own = Cluster(node, self.facts.position[node], plain, externals)
            self.clusters.of[node] = own
            producers = dict.fromkeys(self.clusters.of[b] for b in bases if b in self.clusters.of)
            for other in sorted(producers, key=lambda c: -c.last):
                mine = self.clusters.of[node]
                if other is not mine:
                    self._try(other, mine, node)

    def _try(self, left: Cluster, right: Cluster, at: Node) -> bool:
        """Join two clusters if that is right; note the reason where it is not."""
        reason = self._refusal(left, right)
        if reason is not None:
            if reason:
                other = left if self.clusters.of[at] is right else right
                between = None
                if reason is ANOTHER_STEP:
                    between = self._between(left, right)
                self.record.refuse(
                    "join", at, reason, other=self._nearest(other, at), obstacle=between
                )
            return False
        small, large = sorted((left, right), key=lambda c: len(c.nodes))
        large.plain = left.plain and right.plain and _one_shape(left, right)
        large.take(small)
        for node in small.nodes:
            self.clusters.of[node] = large
        large.externals = {
            e for e in left.externals | right.externals if self.clusters.of.get(e) is not large
        }
        self.record.hit("join")
        return True

    def _nearest(self, cluster: Cluster, at: Node) -> Node:
        """Return the operand of a node that a cluster makes, or the first node of the cluster."""
        bases = map(self.facts.base, at.inputs)
        inside = (base for base in bases if self.clusters.of.get(base) is cluster)
        return next(inside, cluster.nodes[0])

    def _refusal(self, left: Cluster, right: Cluster) -> str | None:
        """Return why two clusters cannot be joined; empty where it is not worth a word."""
        count = len(left.nodes) + len(right.nodes)
        if count > MAX_NODES:
            return f"the region would have more than {MAX_NODES} operations"
        if len(left.externals | right.externals) > MAX_OPERANDS:
            return f"the region would read more than {MAX_OPERANDS} arrays"
        plain = left.plain and right.plain and _one_shape(left, right)
        plain = plain and not (self._picks(left, right) or self._picks(right, left))
        wasted = "" if plain else self._recomputed(left, right)
        if wasted:
            return wasted
        if self._between(left, right) is not None:
            return ANOTHER_STEP
        if plain:
            return None
        if self.analysed > self.analyses:
            return "the limit on analyses is reached"
        pair = frozenset(((left, len(left.nodes)), (right, len(right.nodes))))
        if pair not in self._pairs:  # two may meet at each array that both read
            self.analysed += count
            self._pairs[pair] = self.made([*left.nodes, *right.nodes])[1]
        return self._pairs[pair]

    def made(
        self, nodes: Iterable[Node], cluster: Cluster | None = None
    ) -> tuple[Form, str | None]:
        """Return the form of the kernel of some nodes, or why it is no region.

        One array that is read along two ways (``x[:, None] - x[None, :]``) is two operands where
        one is refused: an axis of it is two axes of the region.
        """
        nodes = list(nodes)
        form = self.forms.form(nodes, cluster)
        reason = self.no_region(form)
        if reason is not None and form.moves:
            split = self.forms.form(nodes, cluster, split=True)
            if len(split.taken) > len(form.taken) and self.no_region(split) is None:
                return split, None
        return form, reason

    def no_region(self, form: Form) -> str | None:
        """Return why it is no region; equal forms are analyzed once."""
        key = form.key
        if key not in self._verdicts:
            sketch = form.sketch()
            verdict = analyze(sketch, self.hints, vectors=self.options.target.device == "cpu")
            if not isinstance(verdict, Region):
                self._verdicts[key] = verdict.reason
                return verdict.reason
            self.forms.keep(form, sketch)
            if len(verdict.loops) > verdict.depth:
                # One thread computes an epilogue, which is for as few numbers as are kept.
                self._verdicts[key] = (
                    "the result of a reduction over all rows is broadcast over other axes"
                )
            else:
                self._verdicts[key] = (
                    self._uneven(verdict)
                    or self._too_many_partials(verdict)
                    or self._too_few_rows(verdict)
                    or self._too_tall(verdict)
                )
        return self._verdicts[key]

    def _uneven(self, region: Region) -> str | None:
        """Return why a device has no kernel for sums across rows, or None where it has one."""
        if self.options.target.device == "cpu":
            return None
        across = [fold for fold in region.folds if not fold.row]
        if region.row:
            shares = [frozenset(fold.kept) & region.row for fold in across if fold.element]
            if any(share and share != region.row for share in shares):
                return "a sum across rows keeps some of a row's axes"
        elif len({frozenset(fold.kept) for fold in across} - {frozenset()}) > 1:
            return "sums across rows keep different axes"
        return None

    def _too_many_partials(self, region: Region) -> str | None:
        """Return why partial sums of all workers are more than what a kernel reads, or None.

        Each worker has a line for a sum across rows. Where a line is long (a sum over the batch
        that keeps all positions of a sequence), sums of their own read the rows again for less.
        """
        threads = self.options.target.threads
        if self.options.target.device == "cpu" or not region.row or region.strip:
            return None
        lines = [region.extent(frozenset(f.kept)) for f in region.folds if not f.row and f.kept]
        size = sum(hinted(line, self.hints) for line in lines) * PARTIAL_BYTES * threads
        if size <= SMALL_PARTIALS or size <= 2 * hinted(region.bytes, self.hints):
            return None
        return f"partial sums of {threads} workers would take {size >> 20} MiB"

    def _too_few_rows(self, region: Region) -> str | None:
        """Return why a device has too few rows side by side to be busy, or None where it has not.

        Its threads take a row each, so that few long rows leave most of it idle. The sums are
        shared out to all of it where they are a kernel of their own.
        """
        if self.options.target.device == "cpu" or not region.strip or not region.row:
            return None
        length = hinted(region.extent(region.row), self.hints)
        kept = frozenset(range(region.depth)) - region.row
        rows = hinted(region.extent(kept), self.hints)
        beside, down = region.extent(kept), region.extent(region.row)
        tall = isinstance(down, int) and isinstance(beside, int) and down >= beside
        if isinstance(beside, int) and beside >= WIDE_ROW and not tall:
            return None  # sums of their own would be rows side by side, too
        if length <= LONG_ROW or rows >= WARP * self.options.target.threads:
            return None
        return f"{rows} parallel rows of {length} elements leave the device idle"

    def _too_tall(self, region: Region) -> str | None:
        """Return why a processor should not take strips of columns several times, or None.

        A strip of many rows is read in short pieces, each of a page of its own, and has left the
        near caches when it is read again. Passes of their own read whole rows. Where all columns
        together are few, the caches hold them.
        """
        if self.options.target.device != "cpu" or not region.strip or region.passes < 2:
            return None
        rows = hinted(region.extent(region.row), self.hints)
        columns = hinted(region.loops[region.depth - 1].extent, self.hints)
        read = sum(
            node.dtype.itemsize for node in region.accesses
            if region.values[node].loops & region.row
        )  # fmt: skip
        size = rows * min(columns, MAX_STRIP) * read
        if size <= TALLEST or rows * columns * read <= LARGEST:
            return None
        times = f"and is passed over {region.passes} times"
        return f"a strip of {rows} rows takes {size} bytes, {times}"

    def _recomputed(self, left: Cluster, right: Cluster) -> str:
        """Return a reason where joining would compute a small value for every large element."""
        for small, large in ((left, right), (right, left)):
            shared = [node for node in small.nodes if node in large.externals]
            if not shared or any(node.op.reduction is not None for node in small.nodes):
                continue
            if all(self._only_reads(node) for node in small.nodes):
                continue
            for node in shared:
                own = [e for e in node.shape if e != 1]
                if not own:
                    continue
                for reader in large.nodes:
                    if not self._reads(reader, node):
                        continue
                    wide = [e for e in reader.shape if e != 1]
                    if len(small.externals) == 1 and Counter(own) == Counter(wide):
                        continue  # each element of one array is read once, in another order
                    if reader.op.reduction is None and own != wide[: len(own)]:
                        return "a smaller value would be recomputed for every row"
        return ""

    def _picks(self, reader: Cluster, maker: Cluster) -> bool:
        """Return whether a cluster reads elements of another's values in another place."""
        shared = reader.externals.intersection(maker.nodes)
        return bool(shared) and any(
            self._moved(operand) and self.facts.base(operand) in shared
            for node in reader.nodes
            for operand in node.inputs
        )

    def _moved(self, node: Node) -> bool:
        """Return whether a value is read through a view that does more than insert ones."""
        while node not in self.facts.core and self.facts.is_move(node):
            if not node.op.layout.alias:
                return True
            node = node.inputs[0]
        return False

    def _only_reads(self, node: Node) -> bool:
        """Return whether a device computes nothing where it reads what the node reads."""
        cast = self.facts.joins and node.op.scalar.expression == "a"
        return cast or self.facts.is_joined(node)

    def _reads(self, reader: Node, node: Node) -> bool:
        return any(self.facts.base(operand) is node for operand in reader.inputs)

    def _between(self, left: Cluster, right: Cluster) -> Node | None:
        """Return what must be computed after one of two clusters and before the other, or None."""
        path = self._path(left, right)
        return self._path(right, left) if path is None else path

    def _path(self, source: Cluster, target: Cluster) -> Node | None:
        """Return what `target` reads that is computed of `source` outside of both, or None."""
        at = self.facts.position.__getitem__  # the order of sets differs from run to run
        seen: set[int] = {id(target)}
        stack: list[tuple[Node, Node]] = [
            (e, e)
            for e in sorted(target.externals, key=at)
            if self.clusters.of.get(e) not in (source, target)
        ]
        looked = 0
        while stack:
            node, read = stack.pop()
            unit = self.clusters.unit(node)
            if id(unit) in seen:
                continue
            seen.add(id(unit))
            if unit is source:
                return read
            looked += 1
            if looked > PATH_BUDGET:
                return read
            if isinstance(unit, Cluster):
                if unit.last >= source.first:
                    stack.extend((external, read) for external in sorted(unit.externals, key=at))
            else:
                bases = [self.facts.base(i) for i in node.inputs]
                if self.facts.position[node] <= source.first:
                    # It comes before, but may read a cluster that reaches beyond.
                    makers = [(b, self.clusters.of.get(b)) for b in bases]
                    bases = [b for b, c in makers if c is not None and c.last >= source.first]
                stack.extend((base, read) for base in bases)
        return None

    def join_siblings(self) -> None:
        """Join clusters that read the same array and do not depend on each other."""
        readers: dict[Node, dict[Cluster, None]] = {}
        for node in self.facts.graph.nodes:
            cluster = self.clusters.of.get(node)
            if cluster is not None:
                for external in sorted(cluster.externals, key=self.facts.position.__getitem__):
                    readers.setdefault(external, {})[cluster] = None
        for shared, several in readers.items():
            if len(several) < 2 or len(several) > 64 or not shared.shape:
                continue
            alive: list[Cluster] = []
            for cluster in several:
                now = self.clusters.of[cluster.nodes[0]]
                if now in alive:
                    continue
                for other in alive:
                    if self._alike(other, now) and self._try(other, now, now.nodes[0]):
                        alive[alive.index(other)] = self.clusters.of[now.nodes[0]]
                        break
                else:
                    alive.append(now)

    def recompute_cheap(self) -> None:
        """Let readers recompute cheap values from operands that are already in memory.

        A derivative such as ``s * (1 - s)`` belongs where it is used: its producer would write it
        beside ``s``, and its reader would read it in place of ``s``.
        """
        cluster_of = self.clusters.of
        clusters = dict.fromkeys(cluster_of[n] for n in self.facts.core if n in cluster_of)
        self.clusters.computes_again = True
        for cluster in clusters:
            for external in sorted(cluster.externals, key=self.facts.position.__getitem__):
                maker = self.clusters.of.get(external)
                if maker is None or maker is cluster or external in self.facts.roots:
                    continue
                chain = self._cheap_chain(external, maker, cluster)
                if chain is None:
                    continue
                nodes, base = chain
                if len(cluster.nodes) + len(cluster.again) + len(nodes) > MAX_NODES // 2:
                    continue
                before = set(cluster.again), set(cluster.externals)
                cluster.again |= nodes
                cluster.externals.discard(external)
                cluster.externals.add(base)
                if self.made([*cluster.nodes, *cluster.again], cluster)[1] is None:
                    cluster.plain = False
                    self.record.hit("recompute")
                else:
                    cluster.again, cluster.externals = before

    def _cheap_chain(
        self, value: Node, maker: Cluster, reader: Cluster
    ) -> tuple[set[Node], Node] | None:
        """Return the cheap operations that make `value` of one array in memory, and that array."""
        nodes: set[Node] = set()
        bases: set[Node] = set()
        stack = [value]
        while stack:
            node = stack.pop()
            if node in nodes or self.facts.makes_itself(node):
                continue
            if node is not value and (
                node in reader.externals or (node in self.clusters.of and self._in_memory(node))
            ):
                bases.add(node)
                continue
            if (
                self.clusters.of.get(node) is not maker
                or node.op.kind is not Kind.ELEMENTWISE
                or costly(node)
                or node.shape != value.shape
                or len(nodes) >= CHEAP_CHAIN
            ):
                return None
            nodes.add(node)
            stack.extend(node.inputs)
        return (nodes, bases.pop()) if len(bases) == 1 else None

    def _in_memory(self, node: Node) -> bool:
        """Return whether a step that is no region, or the caller, needs the value in memory."""
        facts = self.facts
        return node in facts.roots or any(
            user not in facts.core and user not in facts.free for user in facts.users(node)
        )

    def _alike(self, left: Cluster, right: Cluster) -> bool:
        """Return whether two clusters run over the same iteration space."""
        return left.widest == right.widest


def _one_shape(left: Cluster, right: Cluster) -> bool:
    return bool(left.nodes[0].shape == right.nodes[0].shape)
