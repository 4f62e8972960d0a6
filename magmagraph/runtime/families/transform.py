"""Fourier transforms: cuFFT's on a GPU; on the CPU SciPy's library computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.signal.fourier_primitives import RECORDS

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in RECORDS


def _refusal(node: Node, device: str) -> str | None:
    return "SciPy's library computes transforms on the CPU" if device == "cpu" else None


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.library.fourier import transform

    return launches.alone(step, transform(launches.memory, step))


TRANSFORM = KernelFamily("transform", takes=_takes, refusal=_refusal, cuda=_cuda)
