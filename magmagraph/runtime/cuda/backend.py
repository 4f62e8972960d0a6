"""Plans on a CUDA device: kernels compiled and loaded once, plans bound to sizes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...codegen.cuda.generated import kernels_of
from ...codegen.cuda.kernels import RegionKernels
from ...codegen.steps import bodies_of
from ...ir.fallback import Fallbacks
from ...ir.op import Effect, Kind, Op
from ...ir.plan import Plan, Role
from ...ir.ranks import current
from .bound import CudaBound, Prepared
from .device import device_of
from .kernels.fused import Modules
from .launching.message_nodes import is_message, speaks
from .launching.unrolled_loops import is_counted
from .step_source import source_of_step
from .target import target_of_device

if TYPE_CHECKING:
    from .launching.carriers import Carriers
    from .launching.messages import Lines

__all__ = ["CudaPrepared"]


@functools.cache
def _modules(number: int) -> Modules:
    return Modules(device_of(f"cuda:{number}"))


class CudaPrepared:
    """A symbolic plan with its kernels built for a device."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.device = device_of(name)
        spoken = any(step.role is not Role.WAIT and speaks(step.node) for step in plan.steps)
        self.carriers: Carriers | None = None
        self.lines: Lines = {}
        if spoken:
            from .launching.carriers import carriers_of

            self.carriers = carriers_of(self.device, current())
        if current().size > 1:
            from .launching.messages import lines_of

            self.lines = lines_of(plan, self.device)
        self._steps = [i for i, step in enumerate(plan.steps) if step.role is Role.REGION]
        self.generated = 0
        self.fallbacks = Fallbacks()
        generated: list[RegionKernels] = []
        on_host: set[Op] = {
            step.node.op
            for step in plan.steps
            if step.node.op.effect is Effect.ORDERED or step.node.op.kind is Kind.COLLECTIVE
        }
        for i in self._steps:
            kernels = [kernels_of(body) for body in bodies_of(plan.steps[i])]
            if all(k is not None for k in kernels):
                generated += [k for k in kernels if k is not None]
                self.generated += 1
        modules = _modules(self.device.number)
        self.prepared = Prepared(
            self.device, modules, target_of_device(self.device), generated, self.carriers,
            self.lines, on_host, self.fallbacks,
        )

    def describe(self) -> str:
        """Return one line: how many kernels were built, and how."""
        cuts: dict[str, None] = {}
        outside = self.carriers is not None and not self.carriers.captured
        for step in self.plan.steps:
            node = step.node
            if is_message(node) and self.lines:
                continue
            if is_counted(node):
                continue  # its launches are those of the body
            alone = step.role is Role.EXPRESSION or node.op.effect is Effect.ORDERED
            if alone or (outside and node.op.kind is Kind.COLLECTIVE):
                label = f" '{node.attrs['label']}'" if "label" in node.attrs else ""
                cuts[f"{node.op.name}{label}"] = None
        shown = ", ".join(cuts)
        return (
            f"{self.generated} of {len(self._steps)} fused steps as CUDA kernels"
            + (f"; the captured graph is cut by {shown}" if cuts else "")
            + (f"; between ranks by {self.carriers}" if self.carriers is not None else "")
        )

    def source(self, step: int, plan: Plan | None = None) -> str:
        """Return the CUDA C of a fused step of this plan, or of one bound to sizes."""
        return source_of_step(plan or self.plan, step, self.device.multiprocessors)

    def bind(self, plan: Plan) -> CudaBound:
        """Bind a specialized plan: addresses and launches are made once."""
        return CudaBound(self.prepared, plan)
