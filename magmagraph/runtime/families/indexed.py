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
from .scatter import rows_refusal

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in (TAKE, SCATTER_ADD, UPDATE)


def _refusal(node: Node, device: str) -> str | None:
    how = node.attrs["how"] if node.op is UPDATE else "add"
    if node.op is UPDATE and device == "cpu":
        return "NumPy updates arrays at positions on the CPU"
    if node.op is not TAKE and is_bool(node.dtype) and how != "set":
        return "kernels combine numbers, not bools"
    if device != "cpu":
        return None
    if node.op is SCATTER_ADD:
        return rows_refusal(node)
    if node.inputs[1].dtype not in POSITIONS:
        return f"positions are int32 or int64, not {node.inputs[1].dtype.name}"
    return None


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.products import scatter_add_step, take_step

    values, positions = step.inputs
    (out,) = step.outputs
    axis = step.node.attrs["axis"]
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
    else:
        call = scatter_add_step(dtype, *at, *sizes, width, **how)
    return (*call, cells.dynamic({i: v.slot for i, v in enumerate((out, values, positions))}))


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
    "indexed", takes=_takes, refusal=_refusal, can_fail=True, cpu=_cpu, cuda=_cuda, cost=_cost
)
