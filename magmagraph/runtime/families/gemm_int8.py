"""Products of int8 with sums in int32: by the processor's own instructions where it has them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.products.integer import INT8_GEMM

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs


def _takes(node: Node) -> bool:
    return node.op is INT8_GEMM


def _refusal(node: Node, device: str) -> str | None:
    return None if device == "cpu" else "kernels of int8 products run on the CPU"


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.int8 import int8_gemm_step

    a, b = step.inputs
    out = step.outputs[0]
    *rows, k = shape_of(a.type)
    call = int8_gemm_step(
        cells.at(out), cells.at(a), cells.at(b), math.prod(rows), shape_of(b.type)[0], k
    )
    return (*call, cells.dynamic({0: out.slot, 1: a.slot, 2: b.slot}))


GEMM_INT8 = KernelFamily("gemm_int8", takes=_takes, refusal=_refusal, cpu=_cpu)
