"""Sorts, and the positions that sort, along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.indexing.sorting import ARGSORT, SORT

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (SORT, ARGSORT)


def _refusal(node: Node, device: str) -> str | None:
    return "NumPy sorts on the CPU" if device == "cpu" else None


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    from ..cuda.kernels.ordering import ordering

    return launches.units([ordering(launches.memory, step)])


ORDER = KernelFamily("order", takes=_takes, refusal=_refusal, can_fail=True, cuda=_cuda)
