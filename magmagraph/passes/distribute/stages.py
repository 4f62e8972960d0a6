"""Which stage of a pipeline each node belongs to, and when micro-batches come to it.

In the forward program, what the outputs are computed from, a node's stage is the largest of its
operands', and that of a weight the layer that it is first used in. In the backward program, what
has rows belongs where the activations lie that it reads, gradients where their weight is, and what
optimizers do with them where the largest operand is.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...dtypes import is_inexact
from ...errors import ShardingError, message
from ...ir.graph import Graph, Node
from ...ir.op import Kind
from ...ir.types import Type
from ...ops.control.identities import GRADIENT, ITEM
from .layouts import Sharded

__all__ = ["Pipeline", "Stages", "assigned", "clock", "tasks"]

GPIPE = "gpipe"  # else each backward pass as soon as it can be ("1f1b")


class Pipeline(Protocol):
    """What a strategy says, see `distributed.pipeline.Pipe`."""

    group: tuple[str, ...]
    stages: int
    stage: int
    micro_batches: int
    schedule: str
    first: tuple[str, ...]

    def own(self, held: Node) -> Node:
        """Return the variable that holds another one's value on this rank."""

    def lives_on(self, held: Node, stage: int) -> None:
        """Note which stage has a variable's value."""


@dataclass
class Stages:
    """The stage of each node; None for what every rank that needs it computes itself.

    Attributes
    ----------
    of
        Node -> stage.
    turned
        Nodes of the backward program.
    homes
        Variable -> the stage that renews it.
    """

    of: dict[Node, int | None] = field(default_factory=dict)
    turned: set[Node] = field(default_factory=set)
    homes: dict[Node, int] = field(default_factory=dict)

    def place(self, node: Node) -> int | None:
        """Return the stage that a result is best taken from; None where any rank has it."""
        stage = self.of[node]
        while stage is None and _is_view(node):
            (node,) = node.inputs
            stage = self.of[node]
        return stage


def assigned(graph: Graph, pipeline: Pipeline, sharded: Sharded) -> Stages:
    """Return the stages of a graph.

    Raises
    ------
    ShardingError
        There are fewer layers with weights than stages, or no output to tell forward from backward.
    """
    if pipeline.stages == 1:  # one micro-batch after the other, forward and backward
        return Stages(of=dict.fromkeys(graph.nodes, 0))
    forward = _forward(graph)
    homes = _homes(graph, forward, pipeline)
    gradients = _gradients(graph, homes)
    while True:
        stages = _walked(graph, forward, homes, gradients, pipeline.stages - 1, sharded)
        # What optimizers remember lives where it is renewed, which a first round finds.
        fresh = {
            variable: stage
            for variable, value in graph.updates
            if variable not in homes and (stage := stages.place(value)) is not None
        }
        if not fresh:
            return stages
        homes.update(fresh)


def _gradients(graph: Graph, homes: Mapping[Node, int]) -> dict[Node, int]:
    """Return the stage of each gradient's variable, which it is sent to where it is not there."""
    stage_of: dict[Node, int] = {}
    for variable, value in graph.updates:
        if variable not in homes:
            continue
        seen: set[Node] = set()
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if node in seen or node.type != variable.type:
                continue
            seen.add(node)
            if _is_gradient(node):
                stage_of[node] = homes[variable]
            else:
                waiting += node.inputs
    return stage_of


def _is_gradient(node: Node) -> bool:
    return node.attrs.get("role") == GRADIENT


def _forward(graph: Graph) -> set[Node]:
    """Return the nodes that the outputs are computed from, without gradients."""
    after: set[Node] = set()
    for node in graph.nodes:
        if _is_gradient(node) or any(operand in after for operand in node.inputs):
            after.add(node)
    forward: set[Node] = set()
    waiting = [node for node in graph.outputs if node not in after]
    while waiting:
        node = waiting.pop()
        if node not in forward:
            forward.add(node)
            waiting += node.inputs
    if not any(node.inputs for node in forward):
        raise ShardingError(
            message(
                "a pipeline's function has no output that all stages are needed for",
                need="the loss among the outputs, so that forward and backward can be told apart",
                hint="outputs=[loss]",
            )
        )
    return forward


def _homes(graph: Graph, forward: set[Node], pipeline: Pipeline) -> dict[Node, int]:
    """Return the stages of weights: whole layers, in the order of use, as even as possible."""
    used: dict[Node, None] = {}
    for node in graph.nodes:
        if node in forward:
            for operand in node.inputs:
                if "state" in operand.attrs and operand.ndim and is_inexact(operand.dtype):
                    used.setdefault(operand)
    layers: list[list[Node]] = []
    for variable in used:
        if variable.ndim > 1 or not layers:
            layers.append([])
        layers[-1].append(variable)
    count = pipeline.stages
    if pipeline.first:
        starts = _named(layers, pipeline)
    elif len(layers) < count:
        raise ShardingError(
            message(
                f"{len(layers)} layers with weights cannot be {count} stages of a pipeline",
                need=f"at least {count} layers",
                hint="fewer ranks along the pipeline's axis of the mesh",
            )
        )
    else:
        starts = _even([sum(_size(variable) for variable in layer) for layer in layers], count)
    homes = {}
    for stage, (begin, end) in enumerate(itertools.pairwise([*starts, len(layers)])):
        for variable in itertools.chain.from_iterable(layers[begin:end]):
            homes[variable] = stage
    return homes


def _size(node: Node) -> int:
    return node.size if isinstance(node.size, int) else 1


def _named(layers: Sequence[Sequence[Node]], pipeline: Pipeline) -> list[int]:
    starts = [0]
    for name in pipeline.first:
        places = [i for i, layer in enumerate(layers) if any(h.name == name for h in layer)]
        if not places or places[0] <= starts[-1]:
            names = ", ".join(str(layer[0].name) for layer in layers)
            raise ShardingError(
                message(f"a stage is to begin with {name!r}", need=f"in this order, of {names}")
            )
        starts.append(places[0])
    return starts


def _even(sizes: Sequence[int], count: int) -> list[int]:
    """Return where groups of neighbours begin whose largest sum is as small as can be.

    Examples
    --------
    >>> _even([4, 4, 1, 1, 6], 3)
    [0, 1, 4]
    """
    total = list(itertools.accumulate(sizes, initial=0))
    best: dict[tuple[int, int], tuple[int, list[int]]] = {(0, 0): (0, [])}
    for groups in range(1, count + 1):
        for end in range(groups, len(sizes) + 1):
            best[groups, end] = min(
                (max(best[groups - 1, begin][0], total[end] - total[begin]),
                 [*best[groups - 1, begin][1], begin])
                for begin in range(groups - 1, end)
                if (groups - 1, begin) in best
            )  # fmt: skip
    return best[count, len(sizes)][1]


def _walked(
    graph: Graph,
    forward: set[Node],
    homes: dict[Node, int],
    gradients: Mapping[Node, int],
    last: int,
    sharded: Sharded,
) -> Stages:
    stages = Stages(homes=homes)
    of, turned = stages.of, stages.turned
    updating: set[Node] = set()  # what optimizers compute from gradients
    for node in graph.nodes:
        if not node.inputs:
            of[node] = homes.get(node)
            continue
        if _is_view(node) and node not in forward and node.inputs[0] not in turned:
            of[node] = None  # who needs it has the value itself, or is sent that
            continue
        placed = [(o, s) for o in node.inputs if (s := stages.place(o)) is not None]
        if node not in forward and any(o in turned or s == last for o, s in placed):
            turned.add(node)
        if any(operand in updating for operand in node.inputs):
            updating.add(node)
        if _is_gradient(node):
            updating.add(node)
        if not placed:
            of[node] = None
        elif node.op is ITEM or _is_gradient(node):
            of[node] = gradients.get(node, stages.place(node.inputs[0]))
        elif node in updating:
            largest = max(_size(operand) for operand, _ in placed)
            of[node] = max(stage for operand, stage in placed if _size(operand) == largest)
        elif node in turned and _has_rows(node, sharded):
            read = [stage for operand, stage in placed if operand not in turned]
            of[node] = max(read) if read else min(stage for _, stage in placed)
        else:
            of[node] = max(stage for _, stage in placed)
    return stages


def _is_view(node: Node) -> bool:
    return node.op.kind is Kind.LAYOUT and len(node.inputs) == 1


def _has_rows(node: Node, sharded: Sharded) -> bool:
    types: tuple[Type, ...] = node.type if isinstance(node.type, tuple) else (node.type,)
    return any(map(sharded.axes, types))


# ---- When


def tasks(schedule: str, stage: int, stages: int, count: int) -> list[tuple[str, int]]:
    """Return what a stage does in turn: micro-batches forward ("F") and backward ("B").

    Examples
    --------
    >>> " ".join(f"{way}{m}" for way, m in tasks("1f1b", 0, 2, 3))
    'F0 F1 B0 F2 B1 B2'
    >>> " ".join(f"{way}{m}" for way, m in tasks("gpipe", 0, 2, 3))
    'F0 F1 F2 B0 B1 B2'
    """
    ahead = count if schedule == GPIPE else min(stages - 1 - stage, count)
    order = [("F", m) for m in range(ahead)]
    for m in range(ahead, count):
        order += [("F", m), ("B", m - ahead)]
    return order + [("B", m) for m in range(count - ahead, count)]


def clock(schedule: str, stages: int, count: int) -> Mapping[tuple[int, str, int], int]:
    """Return when each stage begins each task, a step backward taking as long as two forward.

    Examples
    --------
    >>> times = clock("1f1b", 2, 2)
    >>> times[1, "F", 0], times[1, "B", 0], times[0, "B", 0]
    (1, 2, 4)
    """
    begun: dict[tuple[int, str, int], int] = {}
    ended: dict[tuple[int, str, int], int] = {}
    free = [0] * stages
    left = [tasks(schedule, stage, stages, count) for stage in range(stages)]
    while any(left):
        for stage, mine in enumerate(left):
            if not mine:
                continue
            way, m = mine[0]
            if way == "F":
                needed = (stage - 1, "F", m) if stage else None
            else:
                needed = (stage + 1, "B", m) if stage < stages - 1 else (stage, "F", m)
            if needed is not None and needed not in ended:
                continue
            begin = max(free[stage], ended.get(needed, 0) if needed else 0)
            begun[stage, way, m] = begin
            ended[stage, way, m] = free[stage] = begin + (1 if way == "F" else 2)
            del mine[0]
    return begun
