"""The array expression of an operation's record: what runs where no kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.plan import KernelFamily, Role, Step
from ...ops.control.loop import LOOP

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    if step.node.op is LOOP:  # the body's launches, where its length and its steps allow that
        from ..cuda.launching.unrolled_loops import turns

        return turns(launches.memory, step)
    from ..cuda.launching.copies import window

    return launches.alone(step, window(launches.memory, step))


EXPRESSION = KernelFamily(
    "array", role=Role.EXPRESSION, takes=lambda node: True, can_fail=True, cuda=_cuda
)
