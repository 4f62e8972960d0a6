"""Rows added to a matrix at computed positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.products.lowered import SCATTER_ROWS
from .dtypes import BLAS, POSITIONS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op is SCATTER_ROWS


def _refusal(node: Node, device: str) -> str | None:
    if node.type.dtype not in BLAS:
        return f"kernels add up float32 and float64, not {node.type.dtype.name}"
    if node.inputs[1].dtype not in POSITIONS:
        return f"positions are int32 or int64, not {node.inputs[1].dtype.name}"
    return None


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset(((len(node.inputs) - 1, 0),))


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.updates import update_step

    values, positions, *scale, base = step.inputs
    alpha = scale[0] if scale else None
    out = step.outputs[0]
    rows, *others = shape_of(out.type)
    count = math.prod(shape_of(positions.type))
    call = update_step(
        out.type.dtype,
        "add",
        cells.at(out),
        cells.at(values),
        cells.at(positions),
        1,
        rows,
        count,
        math.prod(others),
        base=cells.at(base),
        scale=cells.at(alpha),
        wrap=step.node.attrs["mode"] == "wrap",
        wide=positions.type.dtype.itemsize == 8,
    )
    operands = (out, base, values, positions, alpha)
    slots = {i: v.slot for i, v in enumerate(operands) if v is not None}
    return (*call, cells.dynamic(slots))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    return launches.scattered(step)


def _cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    from ..cuda.kernels.scattering import cost

    return cost(step, multiprocessors)


SCATTER = KernelFamily(
    "scatter", takes=_takes, refusal=_refusal, in_place=_in_place, cpu=_cpu, cuda=_cuda,
    cost=_cost,
)
