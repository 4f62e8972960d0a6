"""The check before a plan is made: whether all ranks make it of the same graph.

A strategy cuts one program over ranks. What one rank broadcasts, measures or sums while the plan is
made, its others take as an answer to the same question, so that graphs which differ have to be
found first, as they were written. Ranks with roles, which have no strategy, may differ: they then
choose for themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..errors import CommunicationError, message
from ..ir.communicator import Communicator, Group
from ..ir.graph import Graph
from ..text.writing import Writer, dump

__all__ = ["are_equal"]


def are_equal(
    graph: Graph, group: Group | None, world: Communicator, name: str | None = None
) -> bool:
    """Return whether all ranks write the same graph, to the last attribute; all ranks call it.

    graph: This rank's, as it was written.
    group: Axes of the mesh over which a strategy cuts the graph; None without a strategy.
    world: All ranks.
    name: The function's, for the error.
    raises CommunicationError: Graphs of a strategy's group differ in their operations or types. The
        text, the same on every rank, names the first difference, with ranks and lines.
    """
    about = f"the comparison of the graphs of {_function(name)}"
    outline, lines = _outline(graph)
    answers = world.exchange((_digest([dump(graph, data=False)]), _digest(outline)), about)
    if len({whole for whole, _ in answers}) == 1:
        return True
    if group is None:
        return False
    for rank in range(world.size):
        for other in world.mesh.members(rank, group):
            if answers[rank][1] != answers[other][1]:
                pair = world.exchange((outline, lines), about)
                raise CommunicationError(
                    message(
                        f"the ranks' graphs of {_function(name)} differ, and `distribute=` cuts "
                        f"one graph; nothing has run\n{_difference(rank, other, pair)}",
                        need="the same operations, dtypes and shapes on all ranks",
                        hint="leave the rank's number out of the graph; feed what differs",
                    )
                )
    return False


def _outline(graph: Graph) -> tuple[list[str], list[str]]:
    """Return operations and types of a graph, and the user's line of each."""
    writer = Writer()
    number = {node: i for i, node in enumerate(graph.nodes)}
    outline, lines = [], []
    for node in graph.nodes:
        operands = f"({', '.join(f'%{number[operand]}' for operand in node.inputs)})"
        outline.append(
            f"{node.op.name}{operands if node.inputs else ''}: {writer.types(node.type)}"
        )
        lines.append(f", at {node.line}" if node.line else "")
    returned = ", ".join(f"%{number[node]}" for node in graph.roots)
    return [*outline, f"outputs and updates: {returned}"], [*lines, ""]


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _difference(
    rank: int, other: int, answers: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> str:
    """Return the first lines in which two outlines differ; the last line is of another kind."""
    (first, _), (second, _) = answers[rank], answers[other]
    pairs = enumerate(zip(first, second, strict=False))
    place = next(i for i, (one, two) in pairs if one != two)
    return "\n".join(
        f"rank {who}, node {place}: {answers[who][0][place]}{answers[who][1][place]}"
        for who in (rank, other)
    )


def _function(name: str | None) -> str:
    return f"the function '{name}'" if name else "a function"
