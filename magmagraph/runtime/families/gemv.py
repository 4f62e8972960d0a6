"""Sums over the rows or columns of a matrix, as a product with a vector of ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import scaling_of, shape_of
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.products.lowered import GEMV_SUM
from .gemm import accumulated, dtype_refusal

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op is GEMV_SUM


def _refusal(node: Node, device: str) -> str | None:
    return dtype_refusal(node)


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.products import gemv_step

    x = step.inputs[0]
    alpha, y, beta = scaling_of(step, 1)
    out = step.outputs[0]
    m, n = shape_of(x.type)
    columns = step.node.attrs["axis"] == 0
    call = gemv_step(
        out.type.dtype,
        cells.at(out),
        cells.at(x),
        cells.ones(m if columns else n, out.type.dtype),
        m,
        n,
        y=cells.at(y),
        alpha=cells.at(alpha),
        beta=cells.at(beta),
        transpose=columns,
    )
    slots = {0: out.slot, 1: x.slot}
    for cell, value in ((3, y), (4, alpha), (5, beta)):
        if value is not None:
            slots[cell] = value.slot
    return (*call, cells.dynamic(slots))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.gemv(step))


GEMV_FAMILY = KernelFamily(
    "gemv", takes=_takes, refusal=_refusal, in_place=accumulated, cpu=_cpu, cuda=_cuda
)
