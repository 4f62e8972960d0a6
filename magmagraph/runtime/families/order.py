"""Sorts along an axis, the positions that sort, or the first of them; places in a sorted line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...ir import dims
from ...ir.fallback import Refused
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.indexing.sorting import ARGSORT, FIRST_ORDERED, SEARCHSORTED, SORT, order_room

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches

_LONGEST = 1 << 32  # elements of a line: a key of 32 bits and a position make 64


def _takes(node: Node) -> bool:
    return node.op in (SORT, ARGSORT, FIRST_ORDERED, SEARCHSORTED)


def _refusal(node: Node, device: str) -> str | None:
    if device != "cpu":
        return None
    if node.attrs.get("backward"):
        return "the CPU's kernel has the first of equal elements first"
    return "NumPy sorts on the CPU" if node.op is SORT else None


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.order import order_step, places_step

    if max(shape_of(step.inputs[0].type), default=0) > _LONGEST:
        raise Refused(f"kernels number the elements of a line up to {_LONGEST}", expected=True)
    room = 0 if step.workspace is None else cells.address[step.workspace]
    (out,) = step.outputs
    if step.node.op is SEARCHSORTED:
        line, values = step.inputs
        (extent,), count = shape_of(line.type), math.prod(shape_of(values.type))
        call = places_step(
            line.type.dtype, cells.at(out), cells.at(line), cells.at(values), extent, count,
            right=step.node.attrs["side"] == "right", room=room,
        )  # fmt: skip
        return (*call, cells.dynamic({0: out.slot, 1: line.slot, 2: values.slot}))
    (x,) = step.inputs
    shape, axis = shape_of(x.type), step.node.attrs["axis"]
    after = math.prod(shape[axis + 1 :])
    lines = math.prod(shape[:axis]) * after
    each = dims.evaluate(order_room(step.node), cells.sizes)
    call = order_step(
        x.type.dtype, cells.at(out), cells.at(x), lines, shape[axis], after,
        shape_of(out.type)[axis], largest=bool(step.node.attrs.get("largest")),
        room=room, each=each, threads=max(1, cells.plan.threads),
    )  # fmt: skip
    return (*call, cells.dynamic({0: out.slot, 1: x.slot}))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.kernels.ordering import ordering, searching

    if step.node.op is SEARCHSORTED:
        return launches.alone(step, searching(launches.memory, step))
    return launches.units([ordering(launches.memory, step)])


ORDER = KernelFamily(
    "order", takes=_takes, refusal=_refusal, can_fail=True, cpu=_cpu, cuda=_cuda
)
