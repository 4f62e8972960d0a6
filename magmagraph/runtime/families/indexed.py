"""Elements read, or combined, at computed positions along an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...dtypes import is_bool
from ...ir.fallback import Refused
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.indexing.gathering import SCATTER_ADD, TAKE
from ...ops.indexing.updates import UPDATE
from .dtypes import POSITIONS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (TAKE, SCATTER_ADD, UPDATE)


def _refusal(node: Node, device: str) -> str | None:
    how = node.attrs["how"] if node.op is UPDATE else "add"
    if node.op is not TAKE and is_bool(node.dtype) and how != "set":
        return "kernels combine numbers, not bools"
    if device != "cpu":
        return None
    if node.inputs[1].dtype not in POSITIONS:
        return f"positions are int32 or int64, not {node.inputs[1].dtype.name}"
    if node.op is TAKE:
        return None
    from ..cpu.combining import refusal

    return refusal(node.dtype, how)


def _can_fail(node: Node) -> bool:
    """Return whether there may be positions but no elements: others are moved inside."""
    extent = node.attrs.get("extent")
    return node.op is not SCATTER_ADD or not isinstance(extent, int) or extent == 0


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset(((0, 0),)) if node.op is UPDATE and device == "cpu" else frozenset()


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.products import take_step
    from ..cpu.updates import update_step

    *before, values, positions = step.inputs
    if step.node.op is UPDATE:
        *before, positions, values = step.inputs
    (out,) = step.outputs
    axis = step.node.attrs.get("axis", 0)
    taken = step.node.op is TAKE
    shape = shape_of((values if taken else out).type)
    parts, rows, width = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = math.prod(shape_of(positions.type))
    if count and not rows:
        # Its array expression says what is wrong.
        raise Refused("there are indices, but no elements to read", expected=True)
    sizes = (parts, rows, count)
    how = {
        "wrap": step.node.attrs["mode"] == "wrap",
        "wide": positions.type.dtype.itemsize == 8,
    }
    at = (cells.at(out), cells.at(values), cells.at(positions))
    dtype = out.type.dtype
    if taken:
        call = take_step(*at, *sizes, width * dtype.itemsize, **how)
        return (*call, cells.dynamic({0: out.slot, 1: values.slot, 2: positions.slot}))
    base = before[0] if before else None
    call = update_step(
        dtype, step.node.attrs.get("how", "add"), *at, *sizes, width, base=cells.at(base),
        copies=0 if step.workspace is None else cells.address[step.workspace], **how,
    )  # fmt: skip
    operands = (out, base, values, positions)
    slots = {i: value.slot for i, value in enumerate(operands) if value is not None}
    return (*call, cells.dynamic(slots))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    if step.node.op is not TAKE:
        return launches.scattered(step)
    from ..cuda.kernels.gathering import gathering

    return launches.alone(step, gathering(launches.memory, step))


def _cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    from ..cuda.kernels import gathering, scattering

    if step.node.op is TAKE:
        return gathering.cost(step, sizes, multiprocessors)
    return scattering.cost(step, multiprocessors)


INDEXED = KernelFamily(
    "indexed",
    takes=_takes,
    refusal=_refusal,
    can_fail=_can_fail,
    in_place=_in_place,
    cpu=_cpu,
    cuda=_cuda,
    cost=_cost,
)
