"""Join operations into regions that one kernel computes, without memory between them.

Elementwise operations, reductions, and what only moves axes are joined with what they read, as
long as the region stays one loop nest over one iteration space (`magmagraph.region` decides, and
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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..graph import Graph, Interner, Node, Trace, structure
from ..op import Kind
from ..ops.control import ITEM
from ..ops.fused import FUSED, FUSED_MANY
from ..ops.leaf import parameter
from ..region import MAX_NODES, MAX_OPERANDS, Region, analyze
from ..region_axes import moved_axes
from ..region_walk import costly
from .pipeline import Options

PATH_BUDGET = 4000  # nodes looked at to prove that a merge makes no cycle; above, it is refused
ANALYSES_A_SECOND = 10_000  # nodes analysed per second of the compile budget; above, only plain
# merges are tried. Counted, not timed: equal graphs give equal plans.
CHEAP_CHAIN = 6  # operations that a reader computes again rather than reads
SCALAR_CHAIN = 32  # operations of a scalar that every region may compute again


def fuse(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its fusible operations joined into ``fused`` nodes."""
    plan = _Fuser(graph, options)
    if not plan.clusters_wanted():
        return graph
    plan.join_producers()
    plan.join_siblings()
    plan.recompute_cheap()
    return plan.rebuild(trace)


class _Cluster:
    """Operations that will be one kernel."""

    __slots__ = ("again", "externals", "first", "last", "nodes", "plain")

    def __init__(self, node: Node, position: int, plain: bool, externals: set[Node]) -> None:
        self.nodes = [node]
        self.again: set[Node] = set()  # nodes of other clusters that this one computes again
        self.first = self.last = position
        self.plain = plain  # elementwise operations of one shape, which always make a region
        self.externals = externals


class _Fuser:
    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph = graph
        self.hints: Mapping[str, int] = options.hints
        self.record = options.record
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.roots = set(graph.roots)
        self.cluster_of: dict[Node, _Cluster] = {}
        self.analysed = 0
        self.analyses = ANALYSES_A_SECOND * options.compile_budget
        self.verdicts: dict[object, str | None] = {}
        self.bodies: dict[_Cluster, tuple[Graph, list[Node], list[Node]]] = {}
        self._moves: dict[Node, bool] = {}
        self.free = self._free_scalars()
        self.core = {node: True for node in graph.nodes if self._is_core(node)}
        for node in graph.nodes:
            if self._is_move(node) and not node.op.alias and self._must_be_made(node):
                self.core[node] = True

    # ------------------------------------------------------------------ what may be joined

    def _is_core(self, node: Node) -> bool:
        op = node.op
        if isinstance(node.type, tuple):
            return False
        if op.kind is Kind.ELEMENTWISE or op.kind is Kind.RANDOM:
            return op.scalar is not None
        if op.kind is Kind.REDUCTION:
            return op.reduction is not None
        return op.kind is Kind.INDEX and op.scalar is not None

    def _is_generator(self, node: Node) -> bool:
        """Return whether a region can make the value itself, at no cost."""
        if node.inputs:
            return False
        if "value" in node.attrs:
            return bool(node.attrs["value"].size == 1)
        return (node.op.scalar is not None and node.op.kind in (Kind.INDEX, Kind.LEAF)) or (
            "dim" in node.attrs
        )

    def _is_move(self, node: Node) -> bool:
        """Return whether the node only moves axes, so that a region can read through it."""
        known = self._moves.get(node)
        if known is None:
            known = False
            if len(node.inputs) == 1 and node.op.kind in (Kind.LAYOUT, Kind.CONTROL):
                operand = node.inputs[0]
                if isinstance(operand.type, tuple) or isinstance(node.type, tuple):
                    known = False
                elif node.op.alias:
                    known = _without_ones(node) == _without_ones(operand)
                elif node.op.kind is Kind.LAYOUT:
                    known = moved_axes(node) is not None
            self._moves[node] = known
        return known

    def _must_be_made(self, node: Node) -> bool:
        """Return whether somebody needs the moved value in memory of its own."""
        if node in self.roots:
            return True
        return any(
            not (self._is_core(user) or self._is_move(user)) for user in self.graph.users[node]
        )

    def _free_scalars(self) -> dict[Node, int]:
        """Return the scalars that depend on leaves only, with the length of their expressions."""
        free: dict[Node, int] = {}
        for node in self.graph.nodes:
            if node.op.kind is not Kind.ELEMENTWISE or node.op.scalar is None or node.shape:
                continue
            length = 1
            for operand in node.inputs:
                if operand in free:
                    length += free[operand]
                elif operand.op.kind is not Kind.LEAF or operand.shape:
                    length = SCALAR_CHAIN + 1
            if length <= SCALAR_CHAIN:
                free[node] = length
        return free

    def clusters_wanted(self) -> bool:
        """Return whether anything is left to be joined."""
        return any(node in self.core for node in self.graph.nodes)

    # ------------------------------------------------------------------ joining

    def _base(self, node: Node) -> Node:
        """Look through what only moves axes, down to the value that is read."""
        while node not in self.core and self._is_move(node):
            node = node.inputs[0]
        return node

    def join_producers(self) -> None:
        """Join every operation with the clusters that make its operands."""
        for node in self.graph.nodes:
            if node not in self.core or node in self.free or self._is_generator(node):
                continue
            bases = [self._base(operand) for operand in node.inputs]
            externals = {b for b in bases if b not in self.free and not self._is_generator(b)}
            plain = node.op.kind is Kind.ELEMENTWISE and not node.op.reduction
            own = _Cluster(node, self.position[node], plain, externals)
            self.cluster_of[node] = own
            found = dict.fromkeys(self.cluster_of[b] for b in bases if b in self.cluster_of)
            for other in sorted(found, key=lambda c: -c.last):
                mine = self.cluster_of[node]
                if other is not mine:
                    self._try(other, mine, node, bases)

    def _try(
        self, left: _Cluster, right: _Cluster, at: Node, bases: Sequence[Node] = ()
    ) -> bool:
        """Join two clusters if that is right; note the reason where it is not."""
        reason = self._refusal(left, right, bases)
        if reason is not None:
            if reason:
                self.record.refuse("join", at, reason)
            return False
        small, large = sorted((left, right), key=lambda c: len(c.nodes))
        large.nodes += small.nodes
        large.plain = left.plain and right.plain and _one_shape(left, right)
        large.first = min(left.first, right.first)
        large.last = max(left.last, right.last)
        for node in small.nodes:
            self.cluster_of[node] = large
        large.externals = {
            e for e in left.externals | right.externals if self.cluster_of.get(e) is not large
        }
        self.record.hit("join")
        return True

    def _refusal(
        self, left: _Cluster, right: _Cluster, bases: Sequence[Node] = ()
    ) -> str | None:
        """Return why two clusters cannot be joined; empty where it is not worth a word."""
        count = len(left.nodes) + len(right.nodes)
        if count > MAX_NODES:
            return f"the region would have more than {MAX_NODES} operations"
        if len(left.externals | right.externals) > MAX_OPERANDS:
            return f"the region would read more than {MAX_OPERANDS} arrays"
        plain = left.plain and right.plain and _one_shape(left, right)
        wasted = "" if plain else self._recomputed(left, right)
        if wasted:
            return wasted
        if self._path(left, right) or self._path(right, left):
            return "another step lies between the two"
        if plain:
            return None
        if self.analysed > self.analyses:
            return "the budget of analyses is used up"
        self.analysed += count
        body, _, _ = self._body([*left.nodes, *right.nodes])
        return self._no_region(body)

    def _no_region(self, body: Graph) -> str | None:
        """Return why a body is no region; equal structures are analyzed once."""
        key = structure(body)
        if key not in self.verdicts:
            verdict = analyze(body, self.hints)
            self.verdicts[key] = None if isinstance(verdict, Region) else verdict.reason
        return self.verdicts[key]

    def _recomputed(self, left: _Cluster, right: _Cluster) -> str:
        """Return a reason where joining would compute a small value for every large element."""
        for small, large in ((left, right), (right, left)):
            if any(node.op.reduction is not None for node in small.nodes):
                continue
            made = [n for n in small.nodes if any(self._reads(m, n) for m in large.nodes)]
            for node in made:
                own = [e for e in node.shape if e != 1]
                if not own:
                    continue
                for reader in large.nodes:
                    if not self._reads(reader, node):
                        continue
                    wide = [e for e in reader.shape if e != 1]
                    if reader.op.reduction is None and own != wide[: len(own)]:
                        return "a smaller value would be computed again for every row"
        return ""

    def _reads(self, reader: Node, node: Node) -> bool:
        return any(self._base(operand) is node for operand in reader.inputs)

    def _unit(self, node: Node) -> _Cluster | Node:
        return self.cluster_of.get(node, node)

    def _path(self, source: _Cluster, target: _Cluster) -> bool:
        """Return whether a path leads from `source` to `target` through something else."""
        seen: set[int] = {id(target)}
        stack: list[Node] = [
            e for e in target.externals if self.cluster_of.get(e) not in (source, target)
        ]
        looked = 0
        while stack:
            node = stack.pop()
            unit = self._unit(node)
            if id(unit) in seen:
                continue
            seen.add(id(unit))
            if unit is source:
                return True
            looked += 1
            if looked > PATH_BUDGET:
                return True
            if isinstance(unit, _Cluster):
                if unit.last >= source.first:
                    stack.extend(unit.externals)
            elif self.position[node] > source.first:
                stack.extend(self._base(i) for i in node.inputs)
        return False

    def join_siblings(self) -> None:
        """Join clusters that read the same array and do not depend on each other."""
        readers: dict[Node, dict[_Cluster, None]] = {}
        for node in self.graph.nodes:
            cluster = self.cluster_of.get(node)
            if cluster is not None:
                for external in cluster.externals:
                    readers.setdefault(external, {})[cluster] = None
        for shared, several in readers.items():
            if len(several) < 2 or len(several) > 64 or not shared.shape:
                continue
            alive: list[_Cluster] = []
            for cluster in several:
                now = self.cluster_of[cluster.nodes[0]]
                if now in alive:
                    continue
                for other in alive:
                    if self._alike(other, now) and self._try(other, now, now.nodes[0]):
                        alive[alive.index(other)] = self.cluster_of[now.nodes[0]]
                        break
                else:
                    alive.append(now)

    def recompute_cheap(self) -> None:
        """Let readers compute cheap values again from what is in memory anyway.

        A derivative such as ``s * (1 - s)`` belongs where it is used: its producer would write it
        beside ``s``, and its reader would read it in place of ``s``.
        """
        clusters = dict.fromkeys(self.cluster_of[n] for n in self.core if n in self.cluster_of)
        for cluster in clusters:
            for external in sorted(cluster.externals, key=self.position.__getitem__):
                maker = self.cluster_of.get(external)
                if maker is None or maker is cluster or external in self.roots:
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
                body, _, _ = self._body([*cluster.nodes, *cluster.again], cluster)
                if self._no_region(body) is None:
                    cluster.plain = False
                    self.record.hit("compute again")
                else:
                    cluster.again, cluster.externals = before

    def _cheap_chain(
        self, value: Node, maker: _Cluster, reader: _Cluster
    ) -> tuple[set[Node], Node] | None:
        """Return the cheap operations that make `value` of one array in memory, and that array."""
        nodes: set[Node] = set()
        bases: set[Node] = set()
        stack = [value]
        while stack:
            node = stack.pop()
            if node in nodes or node in self.free or self._is_generator(node):
                continue
            if node is not value and (
                node in reader.externals or (node in self.cluster_of and self._in_memory(node))
            ):
                bases.add(node)
                continue
            if (
                self.cluster_of.get(node) is not maker
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
        return node in self.roots or any(
            user not in self.core and user not in self.free for user in self._users(node)
        )

    def _alike(self, left: _Cluster, right: _Cluster) -> bool:
        """Return whether two clusters run over the same iteration space."""
        return _widest(left) == _widest(right)

    # ------------------------------------------------------------------ bodies

    def _users(self, node: Node) -> Iterator[Node]:
        """Give the readers of a value, seen through what only moves axes."""
        stack = [node]
        while stack:
            for user in self.graph.users[stack.pop()]:
                if user not in self.core and self._is_move(user):
                    if user in self.roots:
                        yield user
                    stack.append(user)
                else:
                    yield user

    def _is_output(self, node: Node, members: set[Node]) -> bool:
        if node in self.roots:
            return True
        for user in self._users(node):
            reader = self.cluster_of.get(user)
            if user not in members and (reader is None or node not in reader.again):
                return True
        return False

    def _body(
        self,
        nodes: Iterable[Node],
        cluster: _Cluster | None = None,
        *,
        outputs: Sequence[Node] | None = None,
    ) -> tuple[Graph, list[Node], list[Node]]:
        """Return the body graph of some nodes, the operands that it takes, and its outputs."""
        members = sorted(nodes, key=self.position.__getitem__)
        inside = set(members)
        interner = Interner()
        made: dict[Node, Node] = {}
        taken: list[Node] = []

        def resolve(root: Node) -> Node:
            stack = [root]
            while stack:
                node = stack[-1]
                if node in made:
                    stack.pop()
                    continue
                through = (
                    node in inside
                    or node in self.free
                    or self._is_generator(node)
                    or (node not in self.core and self._is_move(node))
                )
                if not through:
                    leaf = parameter(len(taken), node.type)
                    made[node] = interner.make(leaf, ())
                    taken.append(node)
                    stack.pop()
                    continue
                missing = [i for i in node.inputs if i not in made]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                made[node] = interner.make(node, tuple(made[i] for i in node.inputs))
                stack.pop()
            return made[root]

        for node in members:
            resolve(node)
        if outputs is None:
            again = cluster.again if cluster is not None else ()
            outputs = [n for n in members if n not in again and self._is_output(n, inside)]
        results = tuple(made[n] for n in outputs)
        parameters = tuple(made[n] for n in taken)
        return Graph(parameters, results, (), interner), taken, list(outputs)

    # ------------------------------------------------------------------ the new graph

    def _scalar_cluster(self) -> _Cluster | None:
        """Return the cluster of free scalars that a product, an output or an update needs."""
        needed = [
            node
            for node in self.free
            if node in self.roots
            or any(
                user not in self.free and self.cluster_of.get(user) is None
                for user in self._users(node)
            )
        ]
        if not needed:
            return None
        cluster = _Cluster(needed[0], self.position[needed[0]], True, set())
        cluster.nodes = needed
        cluster.last = self.position[needed[-1]]
        return cluster

    def _groups(self) -> list[list[_Cluster]]:
        """Return the kernels to be: clusters, those that only renew variables as one."""
        whole = dict.fromkeys(self.cluster_of[n] for n in self.core if n in self.cluster_of)
        clusters = [part for cluster in whole for part in self._legal(cluster)]
        scalars = self._scalar_cluster()
        sinks: list[_Cluster] = []
        groups: list[list[_Cluster]] = []
        for cluster in clusters:
            if cluster.plain and all(self._is_sink(n, cluster) for n in cluster.nodes):
                sinks.append(cluster)
            else:
                groups.append([cluster])
        if scalars is not None:
            if all(node in self.roots and self._unread(node) for node in scalars.nodes):
                sinks.append(scalars)
            else:
                host = self._host(groups, scalars)
                if host is None:
                    groups.append([scalars])
                else:
                    host.append(scalars)
        if sinks:
            groups.append(sinks)
            if len(sinks) > 1:
                self.record.hit("many tensors, one kernel", len(sinks))
        self.scalars = set() if scalars is None else set(scalars.nodes)
        return groups

    def _legal(self, cluster: _Cluster) -> list[_Cluster]:
        """Return the cluster, or the parts of it (by program order) that are regions.

        Plain clusters were joined without an analysis, so one may read or return too much. A
        part that is no region even alone keeps its array expression.
        """
        made = self._body([*cluster.nodes, *cluster.again], cluster)
        self.bodies[cluster] = made
        verdict = analyze(made[0])
        if isinstance(verdict, Region):
            return [cluster]
        del self.bodies[cluster]
        if len(cluster.nodes) == 1:
            self.record.refuse("kernel", cluster.nodes[0], verdict.reason)
            del self.cluster_of[cluster.nodes[0]]
            return []
        order = sorted(cluster.nodes, key=self.position.__getitem__)
        half = len(order) // 2
        parts: list[_Cluster] = []
        for nodes in (order[:half], order[half:]):
            part = _Cluster(nodes[0], self.position[nodes[0]], cluster.plain, set())
            part.nodes = nodes
            part.last = self.position[nodes[-1]]
            for node in nodes:
                self.cluster_of[node] = part
            parts.append(part)
        for part in parts:
            inside = set(part.nodes)
            bases = (self._base(i) for n in part.nodes for i in n.inputs)
            part.externals = {
                b
                for b in bases
                if b not in inside and b not in self.free and not self._is_generator(b)
            }
        return [small for part in parts for small in self._legal(part)]

    def _unread(self, node: Node) -> bool:
        return all(u in self.free or self.cluster_of.get(u) for u in self._users(node))

    def _is_sink(self, node: Node, cluster: _Cluster) -> bool:
        return all(self.cluster_of.get(u) is cluster for u in self._users(node))

    def _host(self, groups: Sequence[list[_Cluster]], scalars: _Cluster) -> list[_Cluster] | None:
        """Return a kernel that does not wait for the scalars, so that it can compute them too."""
        readers = {
            user
            for node in scalars.nodes
            for user in self._users(node)
            if self.cluster_of.get(user) is None and user not in self.free
        }
        for group in groups:
            if group[0].plain and not self._waits_for(group[0], readers):
                return group
        return None

    def _waits_for(self, cluster: _Cluster, steps: set[Node]) -> bool:
        seen: set[int] = set()
        stack = list(cluster.externals)
        while stack:
            node = stack.pop()
            unit = self._unit(node)
            if id(unit) in seen:
                continue
            seen.add(id(unit))
            if node in steps or len(seen) > PATH_BUDGET:
                return True
            if isinstance(unit, _Cluster):
                stack.extend(unit.externals)
            else:
                stack.extend(self._base(i) for i in node.inputs)
        return False

    def rebuild(self, trace: Trace) -> Graph:
        """Return the graph with a fused node for every group."""
        groups = self._groups()
        group_of = {node: i for i, g in enumerate(groups) for c in g for node in c.nodes}
        bodies = [self._bodies(group) for group in groups]
        intern = self.graph.interner
        result: dict[Node, Node] = {}
        built: set[int] = set()

        def needs(node: Node) -> list[Node]:
            """Return what must exist before the node: the operands of its kernel, or its own."""
            if node in group_of:
                return [operand for _, taken, _ in bodies[group_of[node]] for operand in taken]
            return list(node.inputs)

        stack = list(reversed((*self.graph.inputs, *self.graph.roots)))
        stack += [variable for variable, _ in self.graph.updates]
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
        return self.graph.replace(
            outputs=[result[n] for n in self.graph.outputs],
            updates=[(variable, result[value]) for variable, value in self.graph.updates],
            effects=[result[n] for n in self.graph.effects],
        )

    def _bodies(self, group: Sequence[_Cluster]) -> list[tuple[Graph, list[Node], list[Node]]]:
        return [
            self.bodies.get(cluster) or self._body(cluster.nodes, outputs=cluster.nodes)
            for cluster in group
        ]

    def _emit(
        self,
        parts: Sequence[tuple[Graph, list[Node], list[Node]]],
        result: dict[Node, Node],
        trace: Trace,
    ) -> None:
        intern = self.graph.interner
        operands = [result[n] for _, taken, _ in parts for n in taken]
        outputs = [n for _, _, made in parts for n in made]
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
        for _, _, made in parts:
            inner.update(made)
        for cluster_nodes in ([n for n in self._members(made)] for _, _, made in parts):
            for old in cluster_nodes:
                if old not in inner:
                    trace.replace(old, node, "fuse", "inside")
        self.record.hit("kernel")

    def _members(self, made: Sequence[Node]) -> list[Node]:
        cluster: Any = self.cluster_of.get(made[0]) if made else None
        return cluster.nodes if cluster is not None else []


def _without_ones(node: Node) -> list[Any]:
    return [e for e in node.shape if not (isinstance(e, int) and e == 1)]


def _one_shape(left: _Cluster, right: _Cluster) -> bool:
    return bool(left.nodes[0].shape == right.nodes[0].shape)


def _widest(cluster: _Cluster) -> list[Any]:
    """Return the extents of the largest value that a cluster touches."""
    best: list[Any] = []
    for node in cluster.nodes:
        for value in (node, *node.inputs):
            extents = _without_ones(value)
            if len(extents) > len(best):
                best = extents
    return best
