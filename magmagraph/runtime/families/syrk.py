"""Symmetric products of matrices on the CPU: what is below the diagonal, by BLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.products.lowered import SYRK
from .gemm import dtype_refusal

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs

TALL = 4  # terms for each row of a result: below, BLAS's own symmetric product is as fast


def _takes(node: Node) -> bool:
    return node.op is SYRK


def _refusal(node: Node, device: str) -> str | None:
    if device != "cpu":
        return "devices compute symmetric products by array expressions"
    if node.ndim != 2:
        return "batches of symmetric products are array expressions"
    order, terms = node.shape[0], node.inputs[0].shape[node.attrs["transposed"]]
    plain, known = len(node.inputs) == 1, isinstance(order, int) and isinstance(terms, int)
    if plain and known and terms < TALL * order:
        return f"NumPy's product is as fast where {terms} terms make a matrix of order {order}"
    return dtype_refusal(node)


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.products import symmetric_step

    a, *rest = step.inputs
    b, out = rest[0] if rest else a, step.outputs[0]
    transposed = step.node.attrs["transposed"]
    rows, columns = shape_of(a.type)
    n, k = (rows, columns) if transposed else (columns, rows)
    addresses = (cells.at(out), cells.at(a), cells.at(b))
    call = symmetric_step(out.type.dtype, *addresses, n, k, transposed=transposed)
    return (*call, cells.dynamic({0: out.slot, 1: a.slot, 2: b.slot}))


SYRK_FAMILY = KernelFamily("syrk", takes=_takes, refusal=_refusal, cpu=_cpu)
