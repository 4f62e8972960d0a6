"""Loops and branches, whose bodies are plans of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Role, Step
from ...ops.control.branch import BRANCH
from ...ops.control.loop import LOOP

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs


def _refusal(node: Node, device: str) -> str | None:
    return None if device == "cpu" else f"a GPU runs no {node.op.name} as one kernel"


def _loop(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.nested import loop_step

    return cells.nested(step, loop_step(step, cells.sizes, cells.keep))


def _branch(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.nested import branch_step

    return cells.nested(step, branch_step(step, cells.sizes, cells.keep))


LOOP_FAMILY = KernelFamily(
    "loop",
    role=Role.NESTED,
    takes=lambda node: node.op is LOOP,
    refusal=_refusal,
    can_fail=True,
    cpu=_loop,
)

BRANCH_FAMILY = KernelFamily(
    "branch",
    role=Role.NESTED,
    takes=lambda node: node.op is BRANCH,
    refusal=_refusal,
    can_fail=True,
    cpu=_branch,
)
