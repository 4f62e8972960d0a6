"""Copies from slot to slot, which `lower` adds; no operation is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...codegen.steps import bytes_of
from ...ir.plan import KernelFamily, Role, Step

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.products import copy_step

    source, target = step.inputs[0], step.outputs[0]
    call = copy_step(cells.at(target), cells.at(source), bytes_of(source.type))
    return (*call, cells.dynamic({0: target.slot, 1: source.slot}))


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.copy(step))


COPY = KernelFamily("copy", role=Role.COPY, takes=lambda node: False, cpu=_cpu, cuda=_cuda)
