"""Running sums, products, extremes and recurrences along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import is_complex
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.reduction.cumulative import CUMLOGSUMEXP, CUMMAX, CUMMIN, CUMPROD, CUMSUM
from ...ops.reduction.recurrence import LINEAR_RECURRENCE

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches

_SCANS = frozenset({CUMSUM, CUMPROD, CUMMAX, CUMMIN, CUMLOGSUMEXP, LINEAR_RECURRENCE})


def _takes(node: Node) -> bool:
    return node.op in _SCANS


def _refusal(node: Node, device: str) -> str | None:
    if device == "cpu":
        return "NumPy scans on the CPU"
    if is_complex(node.dtype) and node.op is not CUMSUM:
        return f"kernels scan real numbers, and sums of complex ones, not {node.dtype.name}"
    return None


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    from ..cuda.kernels.scanning import scanning

    return launches.units([scanning(launches.memory, step)])


SCAN = KernelFamily("scan", takes=_takes, refusal=_refusal, cuda=_cuda)
