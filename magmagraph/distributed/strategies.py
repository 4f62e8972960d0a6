"""How a function is spread over ranks: what every strategy says, and what ranks agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, message
from ..ir.communicator import Communicator, Group, Mesh
from ..ir.graph import Graph, Node
from ..ir.ranks import current
from ..ir.records import record
from ..ops.control.identities import HELD, MARKER, is_scaling_state
from ..ops.random.redrawing import streams_in
from .consistency import check_equal_on_ranks
from .parts import Parts
from .sums import Sums

__all__ = [
    "BUCKET_BYTES",
    "Facts",
    "MicroBatches",
    "Strategy",
    "alike",
    "checked",
    "drawn_as_first",
    "held_apart",
    "joined",
    "scaled_together",
    "settle",
]

BUCKET_BYTES = 25 * 2**20


@record(frozen=True)
class Facts:
    """What the pass `distribute` is told: plain values, equal on all ranks.

    dim: Name of the sharded dimension.
    group, size: Axes of the mesh whose ranks share it, and how many ranks these are.
    synchronized: Whether a batch's statistics are those of all ranks' rows.
    bucket_bytes: All-reduces are joined up to so many bytes.
    algorithm: How a bucket travels.
    axes: The groups that it travels along, each with its number of ranks: `group`; for a torus its
        two axes.
    pipeline: The stages of a pipeline, see `pipeline.Pipe`, or `MicroBatches`; None without either.
    streams: What random nodes draw from in place of the rank's own, where its first rank's differ.
    """

    dim: str
    group: tuple[str, ...]
    size: int
    synchronized: bool = True
    bucket_bytes: int = BUCKET_BYTES
    algorithm: str = "allreduce"
    axes: tuple[tuple[tuple[str, ...], int], ...] = ()
    pipeline: Any = None
    streams: Mapping[tuple[int, int], tuple[int, int]] | None = None


@record(frozen=True)
class MicroBatches:
    """A pipeline of one stage: a rank's rows in so many parts, one after the other."""

    micro_batches: int
    group: tuple[str, ...] = ()
    stages: int = 1
    stage: int = 0
    schedule: str = "1f1b"
    first: tuple[str, ...] = ()

    def own(self, held: Node) -> Node:
        """Return the variable that holds another one's value on this rank: itself."""
        return held

    def lives_on(self, held: Node, stage: int) -> None:
        """Note which stage has a variable's value: there is one."""


class Strategy:
    """How a function is spread over ranks; see `mg.distributed.DataParallel`.

    asynchronous: Whether ranks take steps of their own and exchange what these change.
    """

    asynchronous = False

    last = False  # whether it stands behind others that are used with it, see `Hybrid`

    _own_axis = ""  # the axis of the mesh that it takes, unless `group` names others
    group: Group | None = None

    def axes_of(self, mesh: Mesh) -> tuple[str, ...]:
        """Return the axes of a mesh over which it is spread."""
        group = self.group
        if group is None:
            group = self._own_axis if self._own_axis in mesh.axes else ()
        return mesh.group(group) or tuple(mesh.axes)

    def options(self) -> dict[str, Any]:
        """Return what it was made with, as plain values by the names of its arguments."""
        raise NotImplementedError

    def facts(self) -> Facts | None:
        """Return what the pass is told, for the ranks that there are; None if no rows are cut."""
        return None

    def prepared(
        self, outputs: list[Node], updates: list[tuple[Node, Node]]
    ) -> tuple[list[Node], list[tuple[Node, Node]]]:
        """Return a function's outputs and updates as the strategy has them, before any pass."""
        return outputs, updates

    def optimizer_parts(self) -> Parts | None:
        """Return how ranks share what an optimizer remembers; None where each has all of it."""
        return None

    def optimizer_sums(self) -> Sums | None:
        """Return who adds up gradients over calls apart; None where all ranks have the sums."""
        return None

    def own_variables(self) -> set[Node]:
        """Return the variables that hold other values on each rank."""
        return set()

    def finish(self) -> None:
        """Wait for what asynchronous ranks have sent; others have nothing to wait for."""

    def shard(self) -> tuple[int, int]:
        """Return which part of each batch this rank takes, and of how many."""
        facts = self.facts()
        if facts is None:
            return 0, 1
        members = current().mesh.members(current().rank, facts.group)
        return members.index(current().rank), len(members)


def joined(strategy: Strategy | None, totals: list[Any], rows: int) -> tuple[list[Any], int]:
    """Return what an epoch's sums are on all ranks together, at its end.

    Synchronous ranks have them already; asynchronous ones wait for each other here.
    """
    if strategy is None or not strategy.asynchronous:
        return totals, rows
    strategy.finish()
    facts = strategy.facts()
    assert facts is not None  # rows are cut
    ranks = current().group(facts.group)
    found = ranks.exchange((totals, rows), "the end of an epoch")
    columns = zip(*(given for given, _ in found), strict=True)
    return [sum(column[1:], column[0]) for column in columns], sum(count for _, count in found)


def checked(strategy: Any) -> Strategy | None:
    """Return a strategy, or raise."""
    if strategy is None or isinstance(strategy, Strategy):
        return strategy
    hint = "mg.distributed.DataParallel()"
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        hint = f"mg.distributed.{strategy.__name__}(), an object of the class"
    raise ConfigError(
        message(f"distribute={strategy!r}", need="a strategy of mg.distributed", hint=hint)
    )


def scaled_together(
    updates: Sequence[tuple[Node, Node]], group: tuple[str, ...], size: int
) -> list[tuple[Node, Node]]:
    """Return updates whose loss scaling looks at the gradients of all ranks of a group."""
    return [
        (variable, _with_ranks(value, (group, size)) if is_scaling_state(value) else value)
        for variable, value in updates
    ]


def _with_ranks(state: Node, ranks: tuple[tuple[str, ...], int]) -> Node:
    asked = (*state.attrs.get("ranks", ()), ranks)
    return MARKER(state.inputs[0], **{**state.attrs, "ranks": asked})


def held_apart(graph: Graph) -> set[Any]:
    """Return the states of variables that hold on each rank its part of a sum."""
    marked = [node.inputs[0] for node in graph.nodes if node.attrs.get("role") == HELD]
    return {node.attrs["state"] for node in marked if "state" in node.attrs}


def settle(
    graph: Graph, facts: Facts, own: set[Node], settings: Mapping[str, Any] | None = None
) -> None:
    """Set variables to what they hold on rank 0 of a strategy's group; all its ranks call it.

    They compare the strategy, and those settings of the function that are given.
    """
    if facts.size == 1:
        return
    group = current().group(facts.group)
    check_equal_on_ranks(
        {
            "dim": facts.dim,
            "algorithm": facts.algorithm,
            "sync_batch_norm": facts.synchronized,
            "bucket_bytes": facts.bucket_bytes,
            "accumulate": 1 if facts.pipeline is None else facts.pipeline.micro_batches,
            **(settings or {}),
        },
        "the comparison of strategies",
        need="the same strategy on all ranks, and the same settings",
        ranks=group,
    )
    kept = held_apart(graph) | {node.attrs["state"] for node in own}
    for variable in graph.variables:
        state = variable.attrs.get("state")
        if state is None or state in kept:
            continue
        first = group.broadcast(state.data, 0)
        state.write(first)


def drawn_as_first(
    nodes: Iterable[Node], ranks: Communicator
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return what a rank draws from in place of its own streams: those of the group's first rank.

    All its ranks call it. It is empty where they are the same, or programs differ.
    """
    if ranks.size == 1:
        return {}
    own = list(streams_in(nodes))
    first = ranks.exchange(own, "the comparison of seeds")[0]
    return dict(zip(own, first, strict=True)) if own != first and len(own) == len(first) else {}


def alike(facts: Facts | None, world: Communicator | None) -> Communicator | None:
    """Return the ranks whose plans are equal: all, or those of one stage; None for one alone."""
    if facts is None or facts.pipeline is None or facts.pipeline.stages == 1 or world is None:
        return world
    staged = facts.pipeline.group or tuple(world.mesh.axes)
    others = tuple(name for name in world.mesh.axes if name not in staged)
    return world.group(others) if others else None
