"""Steps that are the library's: their plans are chosen before launches are made.

A plan of the library may need more workspace than the scratch memory that every stream has. Steps
whose plans do share one block of memory, held as long as the plan that they belong to: they count
as writing to it, so that one waits for the other, which costs little, as each of them fills the
device. How large it may be is a share of what is free when plans are chosen; where it cannot be
had after all, plans are chosen that need less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....errors import DeviceError
from ....ir.fallback import Refused
from ....ir.plan import Step
from ....ir.ranges import Range
from ....ops.convolution.primitives import RECORDS
from ..device import SCRATCH
from ..kernels import few_channels
from ..launching.calls import LibraryCall, Together
from ..memory import PlanMemory
from . import convolution as cudnn_convolution
from .cudnn import LibraryGraph

__all__ = ["ChosenGraph", "library", "settle"]

# Gives the library's graph of a step, or raises `Refused`.
ChosenGraph = Callable[[PlanMemory, Step], LibraryGraph]


def settle(memory: PlanMemory, steps: Sequence[tuple[Step, ChosenGraph]]) -> list[Step]:
    """Choose and cache the library's plan for every step that it may run.

    Returns
    -------
    list of Step
        Those whose plans work in the memory that they share.
    """
    needed = _needed(memory, steps)
    if needed <= SCRATCH:
        return []
    try:
        memory.share_workspace(needed)
    except DeviceError:
        memory.workspace_limit = 0
        memory.share_workspace(_needed(memory, steps))
    graphs = ((step, _graph(memory, step, chosen)) for step, chosen in steps)
    return [
        step
        for step, graph in graphs
        if graph is not None and graph.workspace > SCRATCH and not _generated(memory, step)
    ]


def _needed(memory: PlanMemory, steps: Sequence[tuple[Step, ChosenGraph]]) -> int:
    """Return the most bytes that a step's plan works in, of the plans chosen now."""
    needed = 0
    for step, chosen in steps:
        graph = _graph(memory, step, chosen)
        if graph is not None and graph.workspace > needed and not _generated(memory, step):
            needed = graph.workspace
    return needed


def _graph(memory: PlanMemory, step: Step, chosen: ChosenGraph) -> LibraryGraph | None:
    """Return the library's graph of a step, or None where it refuses; `library` says why."""
    try:
        return chosen(memory, step)
    except Refused:
        return None


def _generated(memory: PlanMemory, step: Step) -> bool:
    """Return whether a generated kernel runs in place of the library's plan."""
    if step.node.op not in RECORDS or few_channels.gradient_of(memory, step) is None:
        return False
    return few_channels.is_faster(memory, step, _graph(memory, step, cudnn_convolution.chosen))


def library(
    memory: PlanMemory, step: Step, chosen: ChosenGraph
) -> tuple[LibraryCall | Together, tuple[Range, ...]]:
    """Return what launches a step of the library, and the shared memory that it works in.

    Where a generated kernel is faster, it is launched instead.

    Raises
    ------
    Refused
        The library does not compute it: its array expression has to run.
    """
    if _generated(memory, step):
        return few_channels.launched(memory, step), ()
    graph = chosen(memory, step)
    addresses = [memory.at(value) for value in (*step.inputs, *step.outputs)]
    if graph.workspace > max(SCRATCH, memory.workspace[1] - memory.workspace[0]):
        memory.share_workspace(graph.workspace)
    start, end = memory.workspace
    shared = start if graph.workspace > SCRATCH else 0

    def run(stream: Any, *addresses: int) -> None:
        graph.launch(addresses, graph.place(stream, shared), stream)

    return LibraryCall(run, addresses), ((start, end),) if shared else ()
