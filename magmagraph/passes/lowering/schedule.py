"""Choose an order of the steps that keeps little memory alive.

Before: any order, operands first. After: the same graph with `Graph.order` set.

Small graphs get an optimal order (a best-first search over sets of finished steps); larger ones
the best of several near-linear heuristics. Where a step can update a variable in place, the other
readers of the old value are put before it if that makes no cycle. Collectives that run beside other
steps are started as soon as they can be, and what reads them comes as late as others can fill the
time (`overlap`). Values do not change: `exact`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...errors import GraphError, message
from ...ir.graph import Graph, Node, Trace
from ...ir.op import describe
from ...ops.control.differentiation import RECOMPUTE
from .buffers import (
    Buffer,
    buffer_of,
    hinted_bytes,
    is_alias,
    is_leaf,
    is_step,
    operands,
    root_buffers,
    types_of,
)
from .overlap import Problem, is_received, is_started, overlapped

OPTIMAL_STEPS = 24  # above, the search is not begun
OPTIMAL_STATES = 6000  # sets of finished steps looked at before the search gives up


def problem(graph: Graph, hints: Mapping[str, int]) -> Problem:
    """Return the scheduling problem of a graph under hinted sizes."""
    steps = tuple(node for node in graph.nodes if is_step(node))
    number = {node: i for i, node in enumerate(steps)}
    buffers: dict[Buffer, int] = {}
    sizes: list[int] = []
    maker: list[int] = []
    makes: list[int] = []
    for node in steps:
        total = 0
        for index, type_ in enumerate(types_of(node)):
            size = hinted_bytes(type_, hints)
            buffers[node, index] = len(sizes)
            sizes.append(size)
            maker.append(number[node])
            total += size
        makes.append(total)
    reads: list[tuple[int, ...]] = []
    before: list[tuple[int, ...]] = []
    for node in steps:
        read = [buffers[b] for b in operands(node) if b in buffers]
        reads.append(tuple(read))
        before.append(tuple(dict.fromkeys(maker[b] for b in read)))
    for earlier, later in effect_order(graph, number):
        if earlier not in before[later]:
            before[later] = (*before[later], earlier)
    for update, reader in anti_dependences(graph, number):
        if reader not in before[update]:
            before[update] = (*before[update], reader)
    kept = frozenset(buffers[b] for b in root_buffers(graph) if b in buffers)
    return Problem(
        steps, tuple(before), tuple(makes), tuple(reads), tuple(sizes), tuple(maker), kept
    )


def effect_order(graph: Graph, number: Mapping[Node, int]) -> list[tuple[int, int]]:
    """Return pairs of steps that act on the world, each with the next one in their order."""
    acting = [number[node] for node in graph.effects if node in number]
    return list(itertools.pairwise(acting))


def anti_dependences(graph: Graph, number: Mapping[Node, int]) -> list[tuple[int, int]]:
    """Return pairs (step that updates a variable, other reader of the old value) to be ordered.

    A pair that would make a cycle is left out; the memory pass then copies and says so.
    """
    readers: dict[Node, list[int]] = {}
    for node in number:
        for buffer, _ in operands(node):
            if is_leaf(buffer):
                readers.setdefault(buffer, []).append(number[node])
    after: dict[int, list[int]] = {}
    for node in number:
        for buffer, _ in operands(node):
            if buffer in number:
                after.setdefault(number[buffer], []).append(number[node])
    for earlier, later in effect_order(graph, number):
        after.setdefault(earlier, []).append(later)
    edges: list[tuple[int, int]] = []
    for variable, value in graph.updates:
        maker = buffer_of(value)[0]
        if maker not in number:
            continue
        update = number[maker]
        others = [r for r in readers.get(variable, ()) if r != update]
        if not others or _reaches(update, set(others), after):
            continue
        for reader in others:
            after.setdefault(reader, []).append(update)
            edges.append((update, reader))
    return edges


def _reaches(start: int, targets: set[int], after: Mapping[int, Sequence[int]]) -> bool:
    seen = {start}
    stack = [start]
    while stack:
        for step in after.get(stack.pop(), ()):
            if step in targets:
                return True
            if step not in seen:
                seen.add(step)
                stack.append(step)
    return False


def live_profile(case: Problem, order: Sequence[int]) -> list[int]:
    """Return the bytes alive in each step: operands, results, and values that later steps read."""
    last = dict.fromkeys(range(len(case.sizes)), -1)
    for at, step in enumerate(order):
        for buffer in case.reads[step]:
            last[buffer] = at
    for buffer in case.kept:
        last[buffer] = len(order)
    ends: dict[int, int] = {}
    position = {step: at for at, step in enumerate(order)}
    for buffer, at in last.items():
        end = max(at, position[case.maker[buffer]])
        ends[end] = ends.get(end, 0) + case.sizes[buffer]
    profile: list[int] = []
    alive = 0
    for at, step in enumerate(order):
        alive += case.makes[step]
        profile.append(alive)
        alive -= ends.get(at, 0)
    return profile


def largest_live(case: Problem, order: Sequence[int]) -> int:
    """Return the bytes of the largest live set of an order."""
    return max(live_profile(case, order), default=0)


def _depth_first(case: Problem, largest_first: bool) -> list[int]:
    """Return a postorder; operands with much memory below them first, or in program order."""
    if not largest_first:
        return _postorder(case, range(len(case.steps)), None)
    weight = list(case.makes)
    for step in _program(case):
        weight[step] = max([case.makes[step], *(weight[b] for b in case.before[step])])
    return _postorder(case, range(len(case.steps)), weight)


def _longest_first(case: Problem) -> list[int]:
    """Return a postorder; results with short chains first, their operands with long ones first.

    A backward pass in its natural order: gradients as soon as they can be, and what a checkpoint
    computes again only when the cotangent is there that it meets.
    """
    length = [1] * len(case.steps)
    for step in _program(case):
        length[step] = 1 + max((length[b] for b in case.before[step]), default=0)
    return _postorder(case, sorted(range(len(case.steps)), key=length.__getitem__), length)


def _postorder(case: Problem, roots: Iterable[int], weight: Sequence[int] | None) -> list[int]:
    """Return the steps below each root in turn; operands of most weight first, or as they are."""
    users = [0] * len(case.steps)
    for before in case.before:
        for b in before:
            users[b] += 1
    done = [False] * len(case.steps)
    result: list[int] = []
    for root in roots:
        if users[root] or done[root]:
            continue
        stack = [(root, False)]
        while stack:
            step, ready = stack.pop()
            if done[step]:
                continue
            if ready:
                done[step] = True
                result.append(step)
                continue
            stack.append((step, True))
            below = [b for b in case.before[step] if not done[b]]
            if weight is None:
                below.reverse()
            else:
                below.sort(key=weight.__getitem__)
            stack.extend((b, False) for b in below)
    return result


def _program(case: Problem) -> list[int]:
    """Return program order, repaired where an anti-dependence points forward."""
    count = len(case.steps)
    waiting = [len(b) for b in case.before]
    after: list[list[int]] = [[] for _ in range(count)]
    for step in range(count):
        for b in case.before[step]:
            after[b].append(step)
    heap = [step for step in range(count) if not waiting[step]]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        step = heapq.heappop(heap)
        order.append(step)
        for follower in after[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(heap, follower)
    return order


def _greedy(case: Problem) -> list[int]:
    """Return the order that takes, among the ready steps, the one that grows memory least."""
    count = len(case.steps)
    waiting = [len(b) for b in case.before]
    after: list[list[int]] = [[] for _ in range(count)]
    uses = [0] * len(case.sizes)
    readers: list[list[int]] = [[] for _ in case.sizes]
    for step in range(count):
        for b in case.before[step]:
            after[b].append(step)
        for buffer in case.reads[step]:
            uses[buffer] += 1
            readers[buffer].append(step)

    def growth(step: int) -> int:
        freed = sum(
            case.sizes[b] for b in case.reads[step] if uses[b] == 1 and b not in case.kept
        )
        return case.makes[step] - freed

    done = [False] * count
    heap = [(growth(s), s) for s in range(count) if not waiting[s]]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        cost, step = heapq.heappop(heap)
        if done[step]:
            continue
        now = growth(step)
        if now < cost:  # reading became cheaper: it was pushed again, or is now
            heapq.heappush(heap, (now, step))
            continue
        done[step] = True
        order.append(step)
        for buffer in case.reads[step]:
            uses[buffer] -= 1
            if uses[buffer] == 1:
                for reader in readers[buffer]:
                    if not done[reader] and not waiting[reader]:
                        heapq.heappush(heap, (growth(reader), reader))
        for follower in after[step]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(heap, (growth(follower), follower))
    return order


def optimal(case: Problem, bound: int) -> list[int] | None:
    """Return an order with the smallest possible largest live set, below `bound`, or None.

    Best-first search (minimax) over sets of finished steps; gives up at `OPTIMAL_STATES`.
    """
    count = len(case.steps)
    need = [sum(1 << b for b in set(before)) for before in case.before]
    readers = [0] * len(case.sizes)
    for step in range(count):
        for buffer in case.reads[step]:
            readers[buffer] |= 1 << step
    everything = (1 << count) - 1

    def alive_after(done: int) -> int:
        return sum(
            size
            for b, size in enumerate(case.sizes)
            if done >> case.maker[b] & 1 and (b in case.kept or readers[b] & ~done)
        )

    best: dict[int, int] = {0: 0}
    came: dict[int, tuple[int, int]] = {}
    heap: list[tuple[int, int, int]] = [(0, -0, 0)]
    settled: set[int] = set()
    while heap:
        peak, _, done = heapq.heappop(heap)
        if done in settled:
            continue
        settled.add(done)
        if done == everything:
            order: list[int] = []
            while done:
                done, step = came[done]
                order.append(step)
            return order[::-1]
        if len(settled) > OPTIMAL_STATES:
            return None
        alive = alive_after(done)
        for step in range(count):
            if done >> step & 1 or need[step] & ~done:
                continue
            reached = max(peak, alive + case.makes[step])
            following = done | 1 << step
            if reached < bound and reached < best.get(following, bound):
                best[following] = reached
                came[following] = (done, step)
                heapq.heappush(heap, (reached, -following.bit_count(), following))
    return None


def copies(case: Problem) -> frozenset[int]:
    """Return the steps that only `recompute` identities and other such steps feed.

    They are run again, so that their results need not be kept until they are read.
    """
    number = {node: i for i, node in enumerate(case.steps)}
    copied: set[int] = set()
    for step, node in enumerate(case.steps):
        again = False
        for operand in node.inputs:
            maker = buffer_of(operand)[0]
            if _behind_barrier(operand) or number.get(maker) in copied:
                again = True
            elif not is_leaf(maker):
                break
        else:
            if again:
                copied.add(step)
    return frozenset(copied)


def _behind_barrier(node: Node) -> bool:
    while is_alias(node):
        if node.op is RECOMPUTE:
            return True
        node = node.inputs[0]
    return False


def _on_demand(case: Problem, order: Sequence[int], late: Collection[int]) -> list[int]:
    """Return an order in which some steps come just before the first step that needs them."""
    done = [False] * len(case.steps)
    result: list[int] = []
    for first in (*(step for step in order if step not in late), *order):
        pending = [first]
        while pending:
            step = pending[-1]
            missing = [b for b in case.before[step] if not done[b]]
            if missing and not done[step]:
                pending += missing
                continue
            pending.pop()
            if not done[step]:
                done[step] = True
                result.append(step)
    return result


def best_order(case: Problem, late: Collection[int] = ()) -> list[int]:
    """Return the best order found; optimal for small graphs.

    Parameters
    ----------
    case
        The problem.
    late
        Steps that are better made just before they are read; see `copies`.
    """
    program = _program(case)
    if len(program) < len(case.steps):
        left = sorted(set(range(len(case.steps))).difference(program))
        raise GraphError(
            message(
                f"{len(left)} steps wait for each other",
                need="an order in which each comes after what it reads, and effects in theirs",
            )
            + "".join(f"\n  {describe(case.steps[step])}" for step in left[:8])
        )
    candidates = [
        program,
        _depth_first(case, largest_first=True),
        _depth_first(case, largest_first=False),
        _longest_first(case),
        _greedy(case),
    ]
    if late:
        candidates += [_on_demand(case, order, late) for order in candidates]
    order = min(candidates, key=lambda o: largest_live(case, o))
    if 1 < len(case.steps) <= OPTIMAL_STEPS:
        floor = max((m for m in case.makes), default=0)
        peak = largest_live(case, order)
        if peak > floor:
            order = optimal(case, peak) or order
    return order


def schedule(graph: Graph, trace: Trace, options: object = None) -> Graph:
    """Return the graph with an order that lowers the largest live set."""
    if graph.order is not None:
        return graph
    hints: Mapping[str, int] = getattr(options, "hints", None) or {}
    case = problem(graph, hints)
    order = best_order(case, copies(case))
    overlap = getattr(options, "overlap", False)
    if any(is_received(node) or (overlap and is_started(node)) for node in case.steps):
        order = overlapped(case, order)
    chosen = [case.steps[i] for i in order]
    return graph.replace(order=_with_names(graph, chosen))


def _with_names(graph: Graph, steps: Sequence[Node]) -> list[Node]:
    """Return the steps with leaves and aliases put in, each just before its first reader."""
    order: dict[Node, None] = dict.fromkeys(n for n in graph.nodes if is_leaf(n))
    pending: list[Node] = []
    for target in (*steps, *graph.roots):
        pending.append(target)
        while pending:
            node = pending[-1]
            missing = [i for i in node.inputs if i not in order]
            if node in order or not missing:
                order.setdefault(node)
                pending.pop()
            else:
                pending.extend(missing)
    order.update(dict.fromkeys(graph.nodes))
    return list(order)
