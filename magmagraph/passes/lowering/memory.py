"""Give every buffer a slot: lifetimes, reuse in place, results and variables written directly.

Before: a scheduled graph. After: the same graph with `Graph.placement` set.

A result is written by its last kernel into the caller's buffer. An update is written straight
into the variable by a step that cannot fail and that comes after every other reader of the old
value; where that does not hold it is made in the arena and copied after all steps that can fail,
and the reason is noted. Values do not change: `exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import PlanError, message
from ...ir import dims
from ...ir.graph import Graph, Node, Trace
from ...ir.html import Displayed
from ...ir.op import Effect
from ...ir.plan import Place, Slot
from ...ir.records import record
from ...ir.target import Target
from ...ir.types import Extent
from ..pipeline import Options
from .buffers import Buffer, buffer_of, is_leaf, is_step, types_of
from .overlap import landings
from .timeline import Timeline

IN_PLACE = "update a variable in place"


@record(frozen=True)
class Copy:
    """A copy from one buffer's slot to a slot, `after` the steps numbered below it."""

    source: int
    target: int
    node: Node


@dataclass
class Placement:
    """The placement of every buffer.

    Attributes
    ----------
    steps
        The nodes that take a kernel, in order.
    slots
        Every slot, lifetimes counted in `steps` (``early`` copies count as step -1).
    slot_of
        Buffer -> slot.
    early
        Copies before the first step (inputs and variables that are returned).
    late
        Copies after the last step (updates that could not be written in place), in order.
    fetches
        For each output, its RESULT slot.
    commit
        Number of steps before the commit point.
    copied
        (variable, why its update could not be written in place).
    landings
        For each collective that runs beside others, the step before which it must have ended.
    """

    steps: tuple[Node, ...]
    slots: list[Slot] = field(default_factory=list)
    slot_of: dict[Buffer, int] = field(default_factory=dict)
    early: list[Copy] = field(default_factory=list)
    late: list[Copy] = field(default_factory=list)
    fetches: list[int] = field(default_factory=list)
    commit: int = 0
    copied: list[tuple[Node, str]] = field(default_factory=list)
    landings: dict[int, int] = field(default_factory=dict)


def memory(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its placement."""
    if graph.placement is not None:
        return graph
    guard = options.nan == "raise"
    spread = options.target.spread
    apart = bool(spread) and _expected(graph, options.hints) <= spread
    placement = _Planner(graph, guard, apart, options.target, options.overlap).place()
    record = options.record
    renewed = sum(buffer_of(value)[0] is not variable for variable, value in graph.updates)
    if renewed > len(placement.copied):
        record.hit(IN_PLACE, renewed - len(placement.copied))
    for variable, reason in placement.copied:
        record.refuse(IN_PLACE, variable, reason)
    return graph.replace(order=graph.nodes, placement=placement)


def _expected(graph: Graph, hints: Mapping[str, int]) -> float:
    """Return the bytes of all that steps make, for the expected sizes; infinity if not known."""
    total = 0
    for node in graph.nodes:
        if is_step(node):
            for type_ in types_of(node):
                if not dims.names(type_.bytes) <= hints.keys():
                    return float("inf")
                total += dims.evaluate(type_.bytes, hints)
    return total


class _Planner:
    """One placement in the making.

    With `apart`, no value is written over another: steps that do not depend on each other can then
    run side by side.
    """

    def __init__(
        self,
        graph: Graph,
        guard: bool,
        apart: bool,
        target: Target,
        overlap: bool,
    ) -> None:
        self.graph = graph
        self.guard = guard
        self.apart = apart
        self.target = target
        self.inputs = set(graph.inputs)
        self.steps = tuple(node for node in graph.nodes if is_step(node))
        self.position = {node: i for i, node in enumerate(self.steps)}
        self.result = Placement(self.steps)
        self.readers: dict[Buffer, list[int]] = {}
        # For each step, where among its operands a buffer stands. One kernel may take thousands:
        # what is asked of it for every result is looked at once.
        self.read: list[dict[Buffer, list[int]]] = []
        for i, node in enumerate(self.steps):
            places: dict[Buffer, list[int]] = {}
            for k, operand in enumerate(node.inputs):
                places.setdefault(buffer_of(operand), []).append(k)
            self.read.append(places)
            for buffer in places:
                self.readers.setdefault(buffer, []).append(i)
        self._pairs: dict[int, dict[int, set[int]]] = {}
        if overlap:
            self._keep_operands()
        ended = self.result.landings
        failing = [
            ended.get(i, i + 1) - 1
            for i, node in enumerate(self.steps)
            if target.family(node).may_raise(node)
        ]
        self.last_failing = max(failing, default=-1)
        if guard:
            self.last_failing = len(self.steps)

    def _keep_operands(self) -> None:
        """Keep the operands of an overlapped collective alive until it has ended."""
        readers: dict[Node, list[int]] = {}
        for (node, _), places in self.readers.items():
            readers.setdefault(node, []).extend(places)
        self.result.landings = landings(self.steps, readers)
        for at, landing in self.result.landings.items():
            for buffer in self.read[at]:
                self.readers[buffer].append(landing - 1)

    def _overwritten(self, at: int, result: int) -> set[int]:
        """Return the operands of a step that one of its results may overwrite."""
        pairs = self._pairs.get(at)
        if pairs is None:
            pairs = self._pairs[at] = {}
            step = self.steps[at]
            family = self.target.family(step)
            for operand, index in family.in_place(step, self.target.device):
                pairs.setdefault(index, set()).add(operand)
        return pairs.get(result, set())

    # ------------------------------------------------------------------ slots

    def _slot(self, place: Place, size: Extent, owner: Any, first: int, last: int) -> int:
        index = len(self.result.slots)
        self.result.slots.append(Slot(index, place, size, owner, first, last))
        return index

    def _extend(self, slot: int, last: int) -> None:
        old = self.result.slots[slot]
        if last > old.last:
            self.result.slots[slot] = Slot(
                slot, old.place, old.size, old.owner, old.first, last
            )

    def _leaf_slot(self, node: Node) -> int:
        slot = self.result.slot_of.get((node, 0))
        if slot is None:
            if node.op.effect is Effect.STATE:
                place, owner = Place.STATE, node.attrs["state"]
            elif node in self.inputs:
                place, owner = Place.FEED, node.attrs.get("key", node)
            else:
                place, owner = Place.CONSTANT, node
            slot = self._slot(place, node.type.bytes, owner, -1, len(self.steps))
            self.result.slot_of[node, 0] = slot
        return slot

    # ------------------------------------------------------------------ the plan

    def place(self) -> Placement:
        for node in self.graph.inputs:
            self._leaf_slot(node)
        in_state = self._updates_in_place()
        self._results()
        ends = self._ends()
        commit = len(self.steps)
        for i, node in enumerate(self.steps):
            for leaf in node.inputs:
                maker = buffer_of(leaf)[0]
                if is_leaf(maker):
                    self._leaf_slot(maker)
            for index, type_ in enumerate(types_of(node)):
                buffer = (node, index)
                variable = in_state.get(buffer)
                if variable is not None:
                    self.result.slot_of[buffer] = self._leaf_slot(variable)
                    commit = min(commit, i)
                    continue
                end = ends.get(buffer, i)
                slot = self.result.slot_of.get(buffer)
                if slot is not None:  # a result slot, made before
                    continue
                reused = self._reusable(node, index, i, ends)
                if reused is not None:
                    self.result.slot_of[buffer] = reused
                    self._extend(reused, end)
                else:
                    self.result.slot_of[buffer] = self._slot(
                        Place.ARENA, type_.bytes, None, i, end
                    )
        self._late_updates(in_state)
        self.result.commit = commit
        return self.result

    def _ends(self) -> dict[Buffer, int]:
        """Return the last step that needs each buffer; late copies count as one step more."""
        ends = {buffer: max(at) for buffer, at in self.readers.items()}
        for root in self.graph.roots:
            ends[buffer_of(root)] = len(self.steps)
        return ends

    def _updates_in_place(self) -> dict[Buffer, Node]:
        """Return the buffers that may be written directly into the variable they update."""
        outputs = {buffer_of(node) for node in self.graph.outputs}
        chosen: dict[Buffer, Node] = {}
        for variable, value in self.graph.updates:
            reason = self._refusal(variable, value, outputs, chosen)
            if reason is None:
                chosen[buffer_of(value)] = variable
            elif reason:
                self.result.copied.append((variable, reason))
        return chosen

    def _refusal(
        self,
        variable: Node,
        value: Node,
        outputs: set[Buffer],
        chosen: Mapping[Buffer, Node],
    ) -> str | None:
        buffer = buffer_of(value)
        maker = buffer[0]
        if maker is variable:
            return ""
        if is_leaf(maker):
            return "its new value is an input, a constant or another variable"
        if buffer in outputs:
            return "its new value is also returned"
        if buffer in chosen:
            return "its new value also updates another variable"
        at = self.position[maker]
        if self.guard:
            return "nan='raise' checks the new values before any is written"
        if at <= self.last_failing:
            return "a step that can fail comes after it"
        late = [i for i in self.readers.get((variable, 0), ()) if i > at]
        if late:
            return f"{self.steps[late[0]].op.name} reads the old value after it"
        read = self.read[at].get((variable, 0))
        if read and not self._overwritten(at, buffer[1]).issuperset(read):
            return "its kernel reads the old value at other positions than it writes"
        return None

    def _results(self) -> None:
        """Give each output a slot of the caller's; leaves and repeats are copied."""
        taken: set[Buffer] = set()
        for i, node in enumerate(self.graph.outputs):
            buffer = buffer_of(node)
            maker = buffer[0]
            size = node.type.bytes
            slot = self._slot(Place.RESULT, size, i, -1, len(self.steps))
            self.result.fetches.append(slot)
            if is_leaf(maker):
                self.result.early.append(Copy(self._leaf_slot(maker), slot, node))
            elif buffer in taken:
                self.result.late.append(Copy(self.result.slot_of[buffer], slot, node))
            else:
                taken.add(buffer)
                self.result.slot_of[buffer] = slot

    def _reusable(
        self, node: Node, index: int, at: int, ends: Mapping[Buffer, int]
    ) -> int | None:
        """Return the slot of an operand that dies here and may be overwritten."""
        places = self._overwritten(at, index)
        if not places or self.apart:
            return None
        size = types_of(node)[index].bytes
        taken = {self.result.slot_of.get((node, k)) for k in range(index)}
        for k in sorted(places):
            buffer = buffer_of(node.inputs[k])
            if is_leaf(buffer[0]):
                continue
            slot = self.result.slot_of[buffer]
            if slot in taken or self.result.slots[slot].place is not Place.ARENA:
                continue
            if self.result.slots[slot].last != at or ends.get(buffer) != at:
                continue
            if self.result.slots[slot].size == size and places.issuperset(self.read[at][buffer]):
                return slot
        return None

    def _late_updates(self, in_state: Mapping[Buffer, Node]) -> None:
        """Copy the updates that are not in place; values that are variables go by the arena."""
        end = len(self.steps)
        waiting: list[Copy] = []
        renewed = {variable for variable, _ in self.graph.updates}
        for variable, value in self.graph.updates:
            buffer = buffer_of(value)
            if buffer in in_state and in_state[buffer] is variable:
                continue
            if buffer[0] is variable:
                continue
            target = self._leaf_slot(variable)
            source = self._leaf_slot(buffer[0]) if is_leaf(buffer[0]) else None
            if source is None:
                source = self.result.slot_of[buffer]
            elif buffer[0] in renewed:
                kept = self._slot(Place.ARENA, value.type.bytes, None, -1, end)
                self.result.early.append(Copy(source, kept, value))
                source = kept
            waiting.append(Copy(source, target, value))
        self.result.late.extend(waiting)


def account(plan: Any, parameters: Collection[Any] = ()) -> Memory:
    """Return where a plan's bytes are; formulas where its sizes are not bound yet.

    Parameters
    ----------
    plan
        The plan.
    parameters
        The states of the variables that count as parameters.
    """
    sums: dict[str, Extent] = dict.fromkeys(("feeds", "results", "variables", "constants"), 0)
    names = {
        Place.FEED: "feeds",
        Place.RESULT: "results",
        Place.STATE: "variables",
        Place.CONSTANT: "constants",
    }
    workspaces = {step.workspace for step in plan.steps if step.workspace is not None}
    arena: Extent = 0
    scratch: Extent = 0
    trained: Extent = 0
    for slot in plan.slots:
        if slot.place is Place.STATE and slot.owner in parameters:
            trained = trained + slot.size
        if slot.place is Place.ARENA:
            if slot.index in workspaces:
                scratch = scratch + slot.size
            else:
                arena = arena + slot.size
        else:
            sums[names[slot.place]] = sums[names[slot.place]] + slot.size
    return Memory(
        arena=plan.arena if plan.arena is not None else arena + scratch,
        workspaces=scratch,
        feeds=sums["feeds"],
        results=sums["results"],
        variables=sums["variables"],
        constants=sums["constants"],
        largest_live=plan.largest_live,
        parameters=trained,
    )


@record(frozen=True)
class Memory(Displayed):
    """Bytes that a plan takes.

    Attributes
    ----------
    arena
        The plan's own block; workspaces lie in it.
    workspaces
        Scratch of kernels, all of it (parts of the arena that may share addresses).
    feeds, results, variables, constants
        What callers hand over and get, what variables and constants hold.
    largest_live
        The largest set of arena slots alive in one step: the least that this order needs.
    bodies
        What the bodies of loops and branches have for themselves: their arenas, and two places for
        each carry.
    parameters
        Of the variables, those that results depend on; the others are an optimizer's, say.
    """

    arena: Extent
    workspaces: Extent
    feeds: Extent
    results: Extent
    variables: Extent
    constants: Extent
    largest_live: int | None = None
    bodies: Extent = 0
    parameters: Extent = 0
    _timeline: Callable[[], Timeline] | None = field(default=None, compare=False, repr=False)

    @property
    def optimizer(self) -> Extent:
        """Bytes of the variables that are no parameters: an optimizer's state, rates, counters."""
        return self.variables - self.parameters

    def timeline(self) -> Timeline:
        """Return the bytes that are alive in each step, and what holds them at the peak.

        Raises
        ------
        PlanError
            The sizes of dimensions are not known yet.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.var("x", shape=(1000,))
        >>> f = mg.function([x], mg.sum(mg.sort(x)))
        >>> found = f.memory.timeline()
        >>> [moment.activations for moment in found.moments]
        [4032, 4032]
        >>> found.moments[found.peak].live == f.plan.largest_live
        True
        >>> found.holders[0].bytes, found.total == f.memory.total
        (4032, True)
        """
        if self._timeline is None:
            raise PlanError(
                message(
                    "a timeline of a plan whose sizes are not known",
                    need="sizes of its dimensions",
                    hint="f.specialize(shape, ...) gives them without running",
                )
            )
        return self._timeline()

    def categories(self) -> dict[str, Extent]:
        """Return the bytes by category; they add up to the total.

        Workspaces are those of the step in which most is alive.
        """
        scratch = self.workspaces if self._timeline is None else self._timeline().workspaces
        bytes_of = self.held()
        return {
            "parameters": bytes_of.pop("parameters"),
            "optimizer": bytes_of.pop("optimizer"),
            "activations": self.arena - scratch,
            "workspaces": scratch,
            **bytes_of,
        }

    def held(self) -> dict[str, Extent]:
        """Return the bytes beside the arena, by category."""
        return {
            "parameters": self.parameters,
            "optimizer": self.optimizer,
            "feeds": self.feeds,
            "results": self.results,
            "constants": self.constants,
            "bodies": self.bodies,
        }

    @property
    def total(self) -> Extent:
        """All bytes: arena, feeds, results, variables, constants, bodies."""
        own = self.arena + self.feeds + self.results + self.variables + self.constants
        return own + self.bodies

    def __str__(self) -> str:
        rows: Sequence[tuple[str, Extent]] = (
            ("arena", self.arena),  # workspaces lie in it
            ("feeds", self.feeds),
            ("results", self.results),
            ("variables", self.variables),
            ("constants", self.constants),
            *((("bodies", self.bodies),) if self.bodies else ()),
            ("total", self.total),
        )
        width = max(len(str(size)) for _, size in rows)
        return "\n".join(f"{name:<9}  {size!s:>{width}} bytes" for name, size in rows)

