"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir.graph import Node
from ...ir.op import Op
from ...ir.plan import KernelFamily, Step
from ...ops.reduction.cumulative import CUMMAX, CUMMIN, CUMPROD, CUMSUM

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs

_HOW: dict[Op, str] = {CUMSUM: "add", CUMPROD: "multiply", CUMMAX: "max", CUMMIN: "min"}


def _takes(node: Node) -> bool:
    return node.op in _HOW


def _refusal(node: Node, device: str) -> str | None:
    if device != "cpu":
        return "a processor's kernels: a GPU scans by other ones"
    from ..cpu.combining import refusal

    return refusal(node.dtype, _HOW[node.op])


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset(((0, 0),))


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.scans import scan_step

    (x,), (out,) = step.inputs, step.outputs
    attrs = step.node.attrs
    call = scan_step(
        out.type.dtype, _HOW[step.node.op], cells.at(out), cells.at(x), shape_of(out.type),
        attrs["axis"], reverse=attrs["reverse"],
    )  # fmt: skip
    return (*call, cells.dynamic({0: out.slot, 1: x.slot}))


RUNNING = KernelFamily("running", takes=_takes, refusal=_refusal, in_place=_in_place, cpu=_cpu)
