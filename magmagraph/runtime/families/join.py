"""Arrays, or pieces, copied one after the other along an axis, or one array among zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import join_layout
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.shape.joining import CONCATENATE
from ...ops.shape.lowered import JOIN_PIECES
from ...ops.shape.slicing import PLACE

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (CONCATENATE, PLACE, JOIN_PIECES)


def _refusal(node: Node, device: str) -> str | None:
    if node.op is not PLACE:
        return None
    attrs = node.attrs
    pairs = zip(node.inputs[0].shape, node.shape, strict=True)
    if sum(extent != whole for extent, whole in pairs) != 1:
        return "blocks are copied where zeros surround the operand along one axis"
    if set(attrs["steps"]) != {1} or attrs["value"] != 0:
        return "blocks are copied among zeros, without gaps"
    return None


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.support import support

    out = step.outputs[0]
    rows, width, parts = join_layout(step, cells.sizes)
    words = [cells.at(out), len(parts), rows, width]
    slots = {0: out.slot}
    for value, layout in zip(step.inputs, parts, strict=True):
        slots[len(words)] = value.slot
        words += [cells.at(value), *layout]
    return support().address("mg_join"), words, cells.dynamic(slots)


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.launching.copies import joined

    return launches.alone(step, joined(launches.memory, step))


JOIN = KernelFamily("join", takes=_takes, refusal=_refusal, cpu=_cpu, cuda=_cuda)
