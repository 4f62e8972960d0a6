"""Regions of elementwise operations and reductions: one generated kernel each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.region.analysis import Region, analyze, analyze_for_gpu
from ...codegen.steps import bodies_of
from ...ir.graph import Graph, Node
from ...ir.plan import KernelFamily, Role, Step
from ...ops.control.fused import FUSED, FUSED_MANY

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (FUSED, FUSED_MANY)


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    operand = result = 0
    for body in node.attrs.get("bodies") or (node.attrs["body"],):
        pairs.update((operand + i, result + o) for i, o in _body_pairs(body, device))
        operand += len(body.inputs)
        result += len(body.outputs)
    return frozenset(pairs)


def _body_pairs(body: Graph, device: str) -> frozenset[tuple[int, int]]:
    """Return the safe pairs of a body: the region knows when it reads and writes."""
    region = analyze(body) if device == "cpu" else analyze_for_gpu(body)
    if not isinstance(region, Region):
        return frozenset()
    return region.in_place if device == "cpu" else region.in_place_recomputed


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs | None:
    if number not in cells.compiled or cells.kernels is None:
        return None
    function, tail = cells.kernels.bind(bodies_of(step), cells.sizes, cells.plan.threads)
    values = [*step.inputs, *step.outputs]
    words = [cells.address[v.slot] for v in values]
    words.append(0 if step.workspace is None else cells.address[step.workspace])
    words.extend(tail)
    return function, words, cells.dynamic({i: v.slot for i, v in enumerate(values)})


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.fused.call(step))


def _main(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.fused.main(step))


def _end(launches: StepLaunches, step: Step) -> list[Unit] | None:
    on_tiles = step.parts[0].role is Role.PRODUCT
    launcher = launches.merged if on_tiles else launches.fused
    return launches.alone(step, launcher.end(step))


def _never(node: Node) -> bool:
    return False


FUSED_FAMILY = KernelFamily(
    "fused", role=Role.REGION, takes=_takes, in_place=_in_place, cpu=_cpu, cuda=_cuda
)
# The launches of a region on a CUDA device that has its sums ended by launches of their own.
FUSED_MAIN = KernelFamily("fused_main", role=Role.OPENING, takes=_never, cuda=_main)
FUSED_END = KernelFamily("fused_end", role=Role.ENDING, takes=_never, cuda=_end)
