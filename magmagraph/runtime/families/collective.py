"""Operations that ranks do together, and waiting for those that were started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.op import Kind
from ...ir.plan import KernelFamily, Role, Step

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op.kind is Kind.COLLECTIVE


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.launching.message_nodes import is_message

    if is_message(step.node):
        from ..cuda.launching.messages import message

        return launches.units(message(launches.memory, step, launches.lines))
    from ..cuda.launching.collectives import collective

    return launches.alone(step, collective(launches.memory, step))


COLLECTIVE = KernelFamily(
    "collective", role=Role.COLLECTIVE, takes=_takes, can_fail=True, cuda=_cuda
)

WAIT = KernelFamily("wait", role=Role.WAIT, takes=lambda node: False, can_fail=True)
"""Waits for a collective that was started before; `lower` adds such steps."""
