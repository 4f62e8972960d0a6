"""Convolutions: by generated C, or by cuDNN and generated kernels on CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.convolution.primitives import RECORDS
from .dtypes import BLAS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches
    from ..cuda.library.cudnn import LibraryGraph
    from ..cuda.memory import PlanMemory


def _takes(node: Node) -> bool:
    return node.op in RECORDS


def _refusal(node: Node, device: str) -> str | None:
    if node.attrs["algorithm"] == "fft":
        return "Fourier transforms are array expressions"
    if device != "cpu":
        return None
    if node.inputs[0].dtype not in BLAS:
        return f"compiled convolutions take float32 and float64, not {node.inputs[0].dtype.name}"
    if node.attrs.get("compute"):
        return f"there is no compiled convolution in {node.attrs['compute']}"
    return None


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.convolution.convolution import convolution_step

    left, right = step.inputs
    out = step.outputs[0]
    scratch = step.workspace
    call = convolution_step(
        step.node,
        cells.sizes,
        cells.at(left),
        cells.at(right),
        cells.at(out),
        0 if scratch is None else cells.address[scratch],
        0 if scratch is None else int(cells.plan.slots[scratch].size),
        cells.plan.threads,
    )
    return (*call, cells.dynamic({0: left.slot, 1: right.slot, 2: out.slot}))


def _library(memory: PlanMemory, step: Step) -> LibraryGraph:
    from ..cuda.library.convolution import chosen

    return chosen(memory, step)


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    return launches.library(step, _library)


CONVOLUTION = KernelFamily(
    "convolution", takes=_takes, refusal=_refusal, cpu=_cpu, cuda=_cuda, library=_library
)

