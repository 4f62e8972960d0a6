"""Join operations into regions that one kernel computes, without memory between them.

Elementwise operations, reductions, and what only moves axes are joined with what they read, as
long as the region stays one loop nest over one iteration space (`codegen.region` decides, and
gives the reason where it does not), the graph stays acyclic, and nothing large is computed again.
Scalars that depend on leaves only are cheap: every region computes its own. Regions that only
renew variables become one kernel that runs through all of them.

Sums inside a region are taken in another order than one by one: `reassoc`.

Before::

    %0 = input() : float32[batch, 784]  # x
    %1 = exp(%0) : float32[batch, 784]
    %2 = multiply(%1, %0) : float32[batch, 784]

After: one ``fused`` node whose body holds the last two.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...codegen.region.analysis import Region, analyze
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ops.control.fused import FUSED, FUSED_MANY
from ...ops.control.identities import ITEM
from ...ops.leaf import VARIABLE
from ..lowering.buffers import hinted_bytes
from ..pipeline import Options
from ..simplify.moments import shifted
from .clusters import Cluster, Clusters
from .complex_sums import parted
from .forms import Forms, Made
from .fusible import Fusible
from .joins import ANOTHER_STEP, PATH_BUDGET, Joins
from .pairs import paired
from .recompute import recompute
from .scaled_transforms import scaled_apart
from .small_products import written_out
from .taken import taken_last

Parts = Sequence[Made]
PREPARED = 256 << 20  # bytes that one kernel makes of many variables
ONE_PREPARED = 16 << 20  # bytes made of one; more takes much longer than a launch


def fuse(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its fusible operations joined into ``fused`` nodes."""
    cpu = (taken_last, paired, written_out)
    gpu = (scaled_apart, parted, shifted, paired, written_out)
    for rule in cpu if options.target.device == "cpu" else gpu:
        graph = rule(graph, trace, options)
    facts = Fusible(graph, on_gpu=options.target.device != "cpu")
    if not facts.core:
        return graph
    clusters = Clusters(facts)
    forms = Forms(clusters)
    joins = Joins(clusters, forms, options)
    joins.join_producers()
    joins.join_siblings()
    if options.target.device == "cpu":
        joins.recompute_cheap()
    else:
        recompute(joins)
    return _Kernels(joins).rebuild(trace)


class _Kernels:
    """The kernels that clusters become, and the graph with them."""

    def __init__(self, joins: Joins) -> None:
        self.joins, self.clusters, self.forms = joins, joins.clusters, joins.forms
        self.facts, self.options = joins.facts, joins.options
        self.bodies: dict[Cluster, Made] = {}
        acting = self.facts.graph.effects
        self.follows = {late: (early,) for early, late in itertools.pairwise(acting)}

    def _scalar_cluster(self) -> Cluster | None:
        """Return the cluster of free scalars that a product, an output or an update needs."""
        needed = [
            node
            for node in self.facts.free
            if node in self.facts.roots
            or any(
                user not in self.facts.free and self.clusters.of.get(user) is None
                for user in self.facts.users(node)
            )
        ]
        if not needed:
            return None
        cluster = Cluster(needed[0], self.facts.position[needed[0]], True, set())
        cluster.nodes = needed
        cluster.last = self.facts.position[needed[-1]]
        return cluster

    def _groups(self) -> list[list[Cluster]]:
        """Return the groups that become kernels: clusters that only update variables are one."""
        self._break_cycles()
        cluster_of, unread = self.clusters.of, self.clusters.unread
        computed = [n for n in self.facts.core if n in cluster_of and n not in unread]
        whole = dict.fromkeys(cluster_of[n] for n in computed)
        again = [cluster for cluster in whole if cluster.again]
        clusters = [part for cluster in whole for part in self._legal(cluster)]
        if any(self.clusters.of.get(cluster.nodes[0]) is not cluster for cluster in again):
            # What it computed again, its parts read from now on: another has to return that.
            for cluster in clusters:
                form, _ = self.joins.made([*cluster.nodes, *cluster.again], cluster)
                self.bodies[cluster] = self.forms.body(form)
        scalars = self._scalar_cluster()
        sinks: list[Cluster] = []
        groups = self._prepared(clusters)
        prepared = {id(cluster) for group in groups for cluster in group}
        for cluster in clusters:
            if id(cluster) in prepared:
                continue
            if cluster.plain and all(self._is_sink(n, cluster) for n in cluster.nodes):
                sinks.append(cluster)
            else:
                groups.append([cluster])
        if scalars is not None:
            if all(node in self.facts.roots and self._unread(node) for node in scalars.nodes):
                sinks.append(scalars)
            else:
                host = self._host(groups, scalars)
                if host is None:
                    groups.append([scalars])
                else:
                    host.append(scalars)
        by_message: dict[int, list[Cluster]] = {}
        for cluster in sinks:
            by_message.setdefault(self._message(cluster), []).append(cluster)
        for _, together in sorted(by_message.items()):
            groups.append(together)
            if len(together) > 1:
                self.options.record.hit("one kernel for many tensors", len(together))
        self.scalars = set() if scalars is None else set(scalars.nodes)
        return groups

    def _prepared(self, clusters: Sequence[Cluster]) -> list[list[Cluster]]:
        """Return kernels that cast and turn variables for others, many of them as one.

        On a device each by itself takes a launch, for which the first products wait. All wait for
        no other step, and most of what they make is read until the end of a training step.
        """
        groups: list[list[Cluster]] = [[]]
        room = PREPARED
        for cluster in clusters if self.options.target.device != "cpu" else ():
            size = sum(hinted_bytes(node.type, self.options.hints) for node in cluster.nodes)
            if size > ONE_PREPARED or not self._prepares(cluster):
                continue
            if size > room:
                groups.append([])
                room = PREPARED
            groups[-1].append(cluster)
            room -= size
        several = [group for group in groups if len(group) > 1]
        for group in several:
            self.options.record.hit("one kernel for many variables", len(group))
        return several

    def _prepares(self, cluster: Cluster) -> bool:
        """Return whether a cluster moves and converts a variable, and nothing else."""
        return (
            len(cluster.externals) == 1
            and next(iter(cluster.externals)).op is VARIABLE
            and all(
                n.op.scalar.expression == "a" or n.op.kind is Kind.LAYOUT for n in cluster.nodes
            )
            and not any(n in self.facts.roots for n in cluster.nodes)
        )

    def _message(self, cluster: Cluster) -> int:
        """Return the place of the last collective that a cluster waits for; -1 without one.

        Beside collectives that are under way, what the first ones bring renews its variables.
        """
        if not self.options.overlap:
            return -1
        read = (node.inputs[0] if node.op is ITEM else node for node in cluster.externals)
        position = self.facts.position
        return max(
            (position[node] for node in read if node.op.kind is Kind.COLLECTIVE), default=-1
        )

    def _legal(self, cluster: Cluster) -> list[Cluster]:
        """Return the cluster, or the parts of it (by program order) that are regions.

        Plain clusters were joined without an analysis, so one may read or return too much. A
        part that is no region even alone keeps its array expression.
        """
        if self._only_copies(cluster):
            del self.clusters.of[cluster.nodes[0]]
            return []
        form, reason = self.joins.made([*cluster.nodes, *cluster.again], cluster)
        body = self.forms.body(form)
        if reason is None or isinstance(analyze(body[0]), Region):
            self.bodies[cluster] = body  # what a join would cost is no reason against a kernel
            return [cluster]
        if len(cluster.nodes) == 1:
            self.options.record.refuse("kernel", cluster.nodes[0], reason)
            del self.clusters.of[cluster.nodes[0]]
            return []
        return [small for part in self._halves(cluster) for small in self._legal(part)]

    def _only_copies(self, cluster: Cluster) -> bool:
        """Return whether a cluster puts whole arrays one behind the other, and nothing else."""
        node = cluster.nodes[0]
        return (
            len(cluster.nodes) == 1
            and not cluster.again
            and len(node.inputs) > 1
            and self.facts.is_joined(node)
            and not any(self.facts.is_move(operand) for operand in node.inputs)
        )

    def _halves(self, cluster: Cluster) -> list[Cluster]:
        """Return a cluster of several operations as two, by program order."""
        order = sorted(cluster.nodes, key=self.facts.position.__getitem__)
        half = len(order) // 2
        parts: list[Cluster] = []
        for nodes in (order[:half], order[half:]):
            part = Cluster(nodes[0], self.facts.position[nodes[0]], cluster.plain, set())
            part.nodes = nodes
            part.last = self.facts.position[nodes[-1]]
            for node in nodes:
                self.clusters.of[node] = part
            parts.append(part)
        for part in parts:
            inside = set(part.nodes)
            bases = (self.facts.base(i) for n in part.nodes for i in n.inputs)
            part.externals = {
                b
                for b in bases
                if b not in inside and not self.facts.makes_itself(b)
            }
        return parts

    def _break_cycles(self) -> None:
        """Split clusters in halves until none depends, through others, on its own results.

        The search for a path that allows a join looks at few steps of a large graph, and so may
        miss one that leads through clusters reaching far ahead in the program.
        """
        while cycle := self._cycle():
            widest = max(
                (unit for unit in cycle if isinstance(unit, Cluster) and len(unit.nodes) > 1),
                key=lambda cluster: cluster.last - cluster.first,
            )
            self.options.record.refuse("join", widest.nodes[0], ANOTHER_STEP)
            self._halves(widest)

    def _cycle(self) -> list[Cluster | Node]:
        """Return clusters and steps that wait for each other in a circle, or nothing."""
        done: set[int] = set()
        for root in self.facts.graph.nodes:
            path: dict[int, Cluster | Node] = {}  # the units under way, in order
            stack: list[tuple[Cluster | Node, bool]] = [(self.clusters.unit(root), False)]
            while stack:
                unit, ready = stack.pop()
                if ready:
                    done.add(id(unit))
                    del path[id(unit)]
                elif id(unit) in path:
                    return list(path.values())[list(path).index(id(unit)) :]
                elif id(unit) not in done:
                    path[id(unit)] = unit
                    stack.append((unit, True))
                    stack += [(other, False) for other in self._awaited(unit)]
        return []

    def _awaited(self, unit: Cluster | Node) -> list[Cluster | Node]:
        """Return the clusters and steps that one reads, or follows in the order of effects."""
        if not isinstance(unit, Cluster):
            before = self.follows.get(unit, ())
            return [self.clusters.unit(node) for node in (*unit.inputs, *before)]
        inside = {*unit.nodes, *unit.again}
        bases = dict.fromkeys(self.facts.base(i) for node in inside for i in node.inputs)
        return [
            self.clusters.unit(base)
            for base in bases
            if base not in inside and not self.facts.makes_itself(base)
        ]

    def _unread(self, node: Node) -> bool:
        return all(u in self.facts.free or self.clusters.of.get(u) for u in self.facts.users(node))

    def _is_sink(self, node: Node, cluster: Cluster) -> bool:
        return all(self.clusters.of.get(u) is cluster for u in self.facts.users(node))

    def _host(self, groups: Sequence[list[Cluster]], scalars: Cluster) -> list[Cluster] | None:
        """Return a kernel that does not wait for the scalars, so that it can compute them too."""
        readers = {
            user
            for node in scalars.nodes
            for user in self.facts.users(node)
            if self.clusters.of.get(user) is None and user not in self.facts.free
        }
        for group in groups:
            if group[0].plain and not self._waits_for(group[0], readers):
                return group
        return None

    def _waits_for(self, cluster: Cluster, steps: set[Node]) -> bool:
        seen: set[int] = set()
        stack = list(cluster.externals)
        while stack:
            node = stack.pop()
            unit = self.clusters.unit(node)
            if id(unit) in seen:
                continue
            seen.add(id(unit))
            if node in steps or len(seen) > PATH_BUDGET:
                return True
            if isinstance(unit, Cluster):
                stack.extend(unit.externals)
            else:
                before = self.follows.get(unit, ())
                stack.extend(self.facts.base(i) for i in (*unit.inputs, *before))
        return False

    def rebuild(self, trace: Trace) -> Graph:
        """Return the graph with a fused node for every group."""
        groups = self._groups()
        group_of = {node: i for i, g in enumerate(groups) for c in g for node in c.nodes}
        bodies = [self._bodies(group) for group in groups]
        intern = self.facts.graph.interner
        result: dict[Node, Node] = {}
        built: set[int] = set()

        def needs(node: Node) -> list[Node]:
            """Return the values that a node depends on: the operands of its kernel, or its own."""
            if node in group_of:
                return [operand for _, taken, _ in bodies[group_of[node]] for operand in taken]
            return list(node.inputs)

        stack = list(reversed((*self.facts.graph.inputs, *self.facts.graph.roots)))
        stack += [variable for variable, _ in self.facts.graph.updates]
        while stack:
            node = stack[-1]
            if node in result:
                stack.pop()
                continue
            missing = [i for i in needs(node) if i not in result]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node in group_of:
                index = group_of[node]
                if index not in built:
                    built.add(index)
                    self._emit(bodies[index], result, trace)
            else:
                result[node] = intern.make(node, tuple(result[i] for i in node.inputs))
                trace.replace(node, result[node], "fuse", "operands")
        return self.facts.graph.replace(
            outputs=[result[n] for n in self.facts.graph.outputs],
            updates=[(variable, result[value]) for variable, value in self.facts.graph.updates],
            effects=[result[n] for n in self.facts.graph.effects],
        )

    def _bodies(self, group: Sequence[Cluster]) -> list[Made]:
        return [
            self.bodies.get(cluster)
            or self.forms.body(self.forms.form(cluster.nodes, outputs=cluster.nodes))
            for cluster in group
        ]

    def _emit(
        self,
        parts: Parts,
        result: dict[Node, Node],
        trace: Trace,
    ) -> None:
        intern = self.facts.graph.interner
        operands = [result[n] for _, taken, _ in parts for n in taken]
        outputs = [n for _, _, results in parts for n in results]
        if len(parts) == 1:
            node = intern.apply(FUSED, *operands, body=parts[0][0])
        else:
            node = intern.apply(FUSED_MANY, *operands, bodies=tuple(p[0] for p in parts))
        for i, old in enumerate(outputs):
            new = node
            if isinstance(node.type, tuple):
                new = intern.apply(ITEM, node, index=i)
            result[old] = new
            trace.replace(old, new, "fuse", "join")
        inner: set[Node] = set()
        for _, _, results in parts:
            inner.update(results)
        for _, _, results in parts:
            for old in self._members(results):
                if old not in inner:
                    trace.replace(old, node, "fuse", "inside")
        self.options.record.hit("kernel")

    def _members(self, results: Sequence[Node]) -> list[Node]:
        cluster = self.clusters.of.get(results[0]) if results else None
        return cluster.nodes if cluster is not None else []
