"""Steps that are the library's: their plans are chosen before launches are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...plan import Step
from . import cudnn_attention, cudnn_convolution
from .calls import LibraryCall
from .cudnn import LibraryGraph
from .memory import PlanMemory

__all__ = ["library", "settle"]

# By the family of steps: what gives the library's graph of one, or None where it has none.
_CHOSEN: dict[str, Callable[[PlanMemory, Step], LibraryGraph | None]] = {
    "convolution": cudnn_convolution.chosen,
    "attention": cudnn_attention.chosen,
}


def settle(memory: PlanMemory) -> None:
    """Choose the library's plan for every step that it may run; what is chosen is kept."""
    for step in memory.plan.steps:
        if step.kernel in _CHOSEN:
            _CHOSEN[step.kernel](memory, step)


def library(memory: PlanMemory, step: Step) -> LibraryCall | None:
    """Return what launches a step of the library, or None where its array expression has to run."""
    found = _CHOSEN[step.kernel](memory, step)
    if found is None:
        return None
    graph = found
    addresses = [memory.at(value) for value in (*step.inputs, *step.outputs)]
    own = graph.own_workspace()
    memory.keep.append(own)

    def run(stream: Any, *addresses: int) -> None:
        graph.launch(addresses, graph.place(stream, own), stream)

    return LibraryCall(run, addresses)
