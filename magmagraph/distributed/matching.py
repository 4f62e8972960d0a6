"""The check before a first run: what one rank says, another one hears, in one order.

Ranks compare the sequences of the collectives in their plans. Where these are equal on all ranks
and nobody sends or receives, nothing can be missed. Else the sequences are played through: sends do
not wait, receives wait for theirs, what a group does together waits for all of the group. What does
not come to its end would hang in a run, so that it is an error, on every rank, with the lines.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import CommunicationError, GraphError, message
from ..ir import dims
from ..ir.communicator import Communicator
from ..ir.graph import Graph, Node
from ..ir.op import Kind
from ..ir.plan import Plan, Role

__all__ = [
    "Entry", "agree", "check", "entries", "is_communal", "linked", "play", "with_open_shapes",
]


class Entry(NamedTuple):
    """One collective of a rank's plan.

    members: The ranks that take part, by their numbers among all; of a message the sender and the
        receiver.
    sends, receives: Whether it is one end of a message.
    what: Operation, types and attributes: equal on all members.
    tag: Of a message.
    line: The user's line.
    """

    members: tuple[int, ...]
    sends: bool
    receives: bool
    what: str
    tag: int
    line: str

    def __str__(self) -> str:
        where = f", at {self.line}" if self.line else ""
        return f"{self.what}{where}"


def is_communal(graph: Graph) -> bool:
    """Return whether a graph, or a body in it, speaks to other ranks or asks for its own rank."""
    return graph.analysis(_is_communal)


def _is_communal(graph: Graph) -> bool:
    return any(
        node.op.kind is Kind.COLLECTIVE
        or "group" in node.attrs
        or any(map(is_communal, _bodies(node)))
        for node in graph.nodes
    )


def _bodies(node: Node) -> Iterator[Graph]:
    for value in node.attrs.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, Graph))


_OWN = ("op", "root", "shift", "algorithm")  # attributes that all members have alike


def entries(plan: Plan, world: Communicator) -> list[Entry]:
    """Return the collectives of a plan in the order of its steps.

    raises GraphError: A collective is in a branch, or in a loop whose length the data decides:
        ranks could go different ways. Or the plan was made for another number of ranks.
    """
    nodes = (step.node for step in plan.steps if step.role is not Role.WAIT)
    return list(_entries(nodes, world, ""))


def _entries(nodes: Iterable[Node], world: Communicator, prefix: str) -> Iterator[Entry]:
    for node in nodes:
        if node.op.kind is Kind.COLLECTIVE:
            yield _entry(node, world, prefix)
            continue
        for body in _bodies(node):
            if not is_communal(body):
                continue
            if "bodies" in node.attrs or node.attrs.get("flag") or not _counted(node):
                inside = next(n for n in body.nodes if n.op.kind is Kind.COLLECTIVE)
                raise GraphError(
                    message(
                        f"{inside.op.name} is in a branch, or in a loop whose length the data "
                        "decides: ranks could go different ways",
                        need="collectives that every rank meets equally often",
                        hint="reduce the condition over the ranks first, outside of the graph",
                        where=str(node.line) if node.line else None,
                    )
                )
            times = node.attrs.get("length")
            yield from _entries(body.nodes, world, f"{prefix}{times or ''} times ")


def _counted(node: Node) -> bool:
    """Return whether a loop's length is known before it runs."""
    return bool(node.attrs.get("stacks", 1)) or node.attrs.get("length") is not None


def _entry(node: Node, world: Communicator, prefix: str) -> Entry:
    attrs = node.attrs
    mesh = world.mesh
    members = mesh.members(world.rank, attrs["group"])
    if len(members) != attrs["size"]:
        raise GraphError(
            message(
                f"{node.op.name} was made for {attrs['size']} ranks, and {len(members)} run it",
                need="as many ranks as when the graph was made",
                where=str(node.line) if node.line else None,
            )
        )
    types = ", ".join(str(operand.type) for operand in node.inputs)
    own = "".join(f", {name}={attrs[name]}" for name in _OWN if name in attrs)
    line = str(node.line) if node.line else ""
    if "to" in attrs or "source" in attrs:
        sends = "to" in attrs
        other = members[attrs["to"] if sends else attrs["source"]]
        pair = (world.rank, other) if sends else (other, world.rank)
        what = f"{prefix}a message of {types}, tag {attrs['tag']}, from rank {pair[0]} to {pair[1]}"
        return Entry(pair, sends, not sends, what, attrs["tag"], line)
    group = f", group={attrs['group']}" if attrs["group"] else ""
    return Entry(members, False, False, f"{prefix}{node.op.name}({types}{own}{group})", 0, line)


def check(
    plan: Plan, world: Communicator, name: str | None = None
) -> tuple[tuple[int, ...], bool]:
    """Return the ranks that this one speaks to in a plan, and whether one may fail alone.

    Raise, on every rank, unless the collectives of all ranks' plans fit each other.

    All ranks call it, for the same function.

    Parameters
    ----------
    plan
        This rank's.
    world
        All ranks.
    name
        The function's, for the error.

    Returns
    -------
    members : tuple of int
        This one, and those that it speaks to, be it through others, in order: they run the plan
        together.
    alone : bool
        Whether a step of one of all ranks' plans can raise where others' do not.

    Raises
    ------
    CommunicationError
        They do not fit. The text names the first difference, with ranks and lines.
    """
    failure = ""
    mine: list[Entry] = []
    try:
        mine = entries(plan, world)
    except GraphError as error:
        failure = str(error)
    whole = all(len(e.members) == world.size for e in mine)
    plain = whole and not any(e.sends or e.receives for e in mine)
    digest = hashlib.sha256(repr([e.what for e in mine]).encode()).hexdigest()
    about = f"the comparison of the collectives of {_function(name)}"
    answers = world.exchange((digest, plain, failure, fails_alone(plan)), about)
    alone = any(fails for *_, fails in answers)
    for rank, (_, _, reason, _) in enumerate(answers):
        if reason:
            raise CommunicationError(message(f"{_function(name)}, on rank {rank}: {reason}"))
    if len({(theirs, alike) for theirs, alike, *_ in answers}) == 1 and plain:
        return (tuple(range(world.size)) if mine else (world.rank,)), alone
    sequences = dict(enumerate(world.exchange(mine, about)))
    wrong = play(sequences)
    if wrong:
        raise CommunicationError(
            message(
                f"the ranks' collectives in {_function(name)} do not fit each other; no step has "
                f"run\n{wrong}",
                need="the same collectives in the same order on all ranks of a group, and a "
                "receiver for each message",
            )
        )
    return linked(sequences, world.rank), alone


def fails_alone(plan: Plan) -> bool:
    """Return whether a step that is no message, or a look at results, can raise."""
    return plan.guard or any(
        step.can_fail
        and step.role is not Role.WAIT
        and step.node.op.kind is not Kind.COLLECTIVE
        and not any(map(is_communal, _bodies(step.node)))
        for step in plan.steps
    )


def linked(sequences: Mapping[int, Sequence[Entry]], rank: int) -> tuple[int, ...]:
    """Return the ranks that one speaks to, directly or through others, itself among them.

    Examples
    --------
    >>> def pair(*members):
    ...     return Entry(members, False, False, "allreduce(float32[3])", 0, "")
    >>> linked({0: [pair(0, 1)], 1: [pair(0, 1), pair(1, 2)], 2: [pair(1, 2)], 3: []}, 2)
    (0, 1, 2)
    """
    met: dict[int, set[int]] = {own: {own} for own in sequences}
    for own, entries_ in sequences.items():
        for entry in entries_:
            for member in entry.members:
                met[own].add(member)
                met[member].add(own)
    reached, pending = {rank}, [rank]
    while pending:
        new = met[pending.pop()] - reached
        reached |= new
        pending.extend(new)
    return tuple(sorted(reached))


def with_open_shapes(plan: Plan) -> tuple[Node, ...]:
    """Return the collectives of a plan whose operands' extents are known at a call only."""
    return tuple(
        step.node
        for step in plan.steps
        if step.role is not Role.WAIT
        and step.node.op.kind is Kind.COLLECTIVE
        and any(not isinstance(e, int) for operand in step.node.inputs for e in operand.shape)
    )


def agree(nodes: Sequence[Node], sizes: Mapping[str, int], world: Communicator) -> None:
    """Raise, on every rank, unless all ranks bind the operands of collectives to equal extents.

    nodes: The same on all ranks.
    sizes: Of the named dimensions on this rank.
    raises CommunicationError: The extents differ, which MPI and NCCL would not notice.
    """
    mine = [
        [tuple(dims.evaluate(e, sizes) for e in operand.shape) for operand in node.inputs]
        for node in nodes
    ]
    answers = world.exchange(mine, "the comparison of the extents that are sent")
    for place, node in enumerate(nodes):
        for rank in range(world.size):
            for other in world.mesh.members(rank, node.attrs["group"]):
                if answers[rank][place] == answers[other][place]:
                    continue
                first, second = (", ".join(map(str, answers[r][place])) for r in (rank, other))
                raise CommunicationError(
                    message(
                        f"{node.op.name} is given extents {first} on rank {rank} and {second} on "
                        f"rank {other}; nothing has run",
                        need="equal extents on all ranks of the group",
                        where=str(node.line) if node.line else None,
                    )
                )


def _function(name: str | None) -> str:
    return f"the function '{name}'" if name else "a function"


def play(sequences: Mapping[int, Sequence[Entry]]) -> str:
    """Play the ranks' sequences through; return what goes wrong in words, empty where all fits.

    Examples
    --------
    >>> both = Entry((0, 1), False, False, "allreduce(float32[3])", 0, "train.py:7")
    >>> other = Entry((0, 1), False, False, "allreduce(float32[4])", 0, "train.py:7")
    >>> play({0: [both], 1: [both]})
    ''
    >>> print(play({0: [both], 1: [other]}))
    rank 0, collective 0: allreduce(float32[3]), at train.py:7
    rank 1, collective 0: allreduce(float32[4]), at train.py:7
    """
    at = dict.fromkeys(sequences, 0)
    sent: dict[tuple[int, ...], deque[tuple[int, Entry]]] = {}
    ready = deque(sequences)

    def here(rank: int) -> Entry | None:
        own = sequences[rank]
        return own[at[rank]] if at[rank] < len(own) else None

    while ready:
        rank = ready.popleft()
        entry = here(rank)
        if entry is None:
            continue
        if entry.sends:
            channel = (*entry.members, entry.tag)  # sender, receiver, tag
            sent.setdefault(channel, deque()).append((at[rank], entry))
            at[rank] += 1
            ready.extend((rank, entry.members[1]))
        elif entry.receives:
            waiting = sent.get((*entry.members, entry.tag))
            if not waiting:
                continue
            number, other = waiting.popleft()
            if other.what != entry.what:
                return _lines([(entry.members[0], number, other), (rank, at[rank], entry)])
            at[rank] += 1
            ready.append(rank)
        elif all(_meets(entry, here(member)) for member in entry.members):
            for member in entry.members:
                at[member] += 1
            ready.extend(entry.members)
    return _stuck(sequences, at, sent)


def _meets(entry: Entry, other: Entry | None) -> bool:
    """Return whether two members are in the same collective; lines may differ."""
    return other is not None and (entry.members, entry.what) == (other.members, other.what)


def _stuck(
    sequences: Mapping[int, Sequence[Entry]],
    at: Mapping[int, int],
    sent: Mapping[tuple[int, ...], Sequence[tuple[int, Entry]]],
) -> str:
    """Return where ranks stand that have not come to their end, and messages that nobody takes."""
    left = {rank: own[at[rank]] for rank, own in sequences.items() if at[rank] < len(own)}
    if not left:
        kept = [(key[0], *waiting[0]) for key, waiting in sent.items() if waiting]
        return _lines(kept[:1], " (and no rank receives it)")
    first = min(left)
    ranks = [first, *(rank for rank in left[first].members if rank != first)]
    return _lines(
        [(rank, at[rank], left.get(rank)) for rank in ranks]
        + [(rank, at[rank], left[rank]) for rank in left if rank not in ranks][:2]
    )


def _lines(entries: Sequence[tuple[int, int, Any]], behind: str = "") -> str:
    return "\n".join(
        f"rank {rank}, collective {number}: {entry or 'none: it is done'}{behind}"
        for rank, number, entry in entries
    )
