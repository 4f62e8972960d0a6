"""Sorts along an axis, the positions that sort, and places in a sorted line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.indexing.sorting import ARGSORT, SEARCHSORTED, SORT

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (SORT, ARGSORT, SEARCHSORTED)


def _refusal(node: Node, device: str) -> str | None:
    return "NumPy sorts and searches on the CPU" if device == "cpu" else None


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.kernels.ordering import ordering, searching

    if step.node.op is SEARCHSORTED:
        return launches.alone(step, searching(launches.memory, step))
    return launches.units([ordering(launches.memory, step)])


ORDER = KernelFamily("order", takes=_takes, refusal=_refusal, can_fail=True, cuda=_cuda)
