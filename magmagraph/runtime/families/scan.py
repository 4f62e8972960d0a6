"""Running sums, products, extremes and recurrences along an axis; with regions around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...dtypes import is_complex
from ...ir.graph import Node
from ...ir.op import Op
from ...ir.plan import KernelFamily, Role, Step
from ...ops.reduction.cumulative import CUMLOGSUMEXP, CUMMAX, CUMMIN, CUMPROD, CUMSUM
from ...ops.reduction.recurrence import LINEAR_RECURRENCE

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches

_HOW: dict[Op, str] = {CUMSUM: "add", CUMPROD: "multiply", CUMMAX: "max", CUMMIN: "min"}
_SCANS = frozenset({*_HOW, CUMLOGSUMEXP, LINEAR_RECURRENCE})


def _takes(node: Node) -> bool:
    return node.op in _SCANS


def _refusal(node: Node, device: str) -> str | None:
    if device == "cpu":
        if node.op not in _HOW:
            return f"NumPy computes {node.op.name} on the CPU"
        from ..cpu.combining import refusal

        return refusal(node.dtype, _HOW[node.op])
    if is_complex(node.dtype) and node.op is not CUMSUM:
        return f"kernels scan real numbers, and sums of complex ones, not {node.dtype.name}"
    return None


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset(((0, 0),) if device == "cpu" and node.op in _HOW else ())


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.scans import scan_step

    (x,), (out,) = step.inputs, step.outputs
    attrs = step.node.attrs
    call = scan_step(
        out.type.dtype, _HOW[step.node.op], cells.at(out), cells.at(x), shape_of(out.type),
        attrs["axis"], reverse=attrs["reverse"],
    )  # fmt: skip
    return (*call, cells.dynamic({0: out.slot, 1: x.slot}))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    from ..cuda.kernels.scanning import scanning

    return launches.units([scanning(launches.memory, step)])


def _never(node: Node) -> bool:
    return False  # the pass `fuse_scans` makes such steps


def _fused(launches: StepLaunches, step: Step) -> list[Unit]:
    from ..cuda.kernels.scanning import fused_scanning

    return launches.units([fused_scanning(launches.memory, step)])


SCAN = KernelFamily(
    "scan", role=Role.SCAN, takes=_takes, refusal=_refusal, in_place=_in_place, cpu=_cpu,
    cuda=_cuda,
)
SCAN_FUSED = KernelFamily("scan_fused", role=Role.FUSED_SCAN, takes=_never, cuda=_fused)
