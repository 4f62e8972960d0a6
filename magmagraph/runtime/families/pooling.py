"""Pooling windows and their gradients, by compiled or generated kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.spatial.pooling_records import RECORDS
from .dtypes import BLAS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in RECORDS


def _refusal(node: Node, device: str) -> str | None:
    if device == "cpu" and node.inputs[0].dtype not in BLAS:
        return f"compiled pooling takes float32 and float64, not {node.inputs[0].dtype.name}"
    return None


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.convolution.pooling import pooling_step

    out = step.outputs[0]
    call = pooling_step(
        step.node,
        cells.sizes,
        [cells.at(value) for value in step.inputs],
        cells.at(out),
        [shape_of(step.inputs[0].type), shape_of(out.type)],
    )
    slots = {i: value.slot for i, value in enumerate(step.inputs)}
    return (*call, cells.dynamic({**slots, 2: out.slot}))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.kernels.pooling import pooling

    first, beside = step.parts or (step, None)  # two steps of one array may be one launch
    return launches.alone(step, pooling(launches.memory, first, beside))


def _cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    from ..cuda.kernels.pooling import cost

    return cost(step, sizes, multiprocessors)


POOLING = KernelFamily(
    "pooling", takes=_takes, refusal=_refusal, cpu=_cpu, cuda=_cuda, cost=_cost
)
