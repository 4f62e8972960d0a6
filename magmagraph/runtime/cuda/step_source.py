"""The CUDA C of the fused steps of a plan."""

from __future__ import annotations

import numpy as np

from ...codegen.cuda.generated import kernels_of
from ...codegen.cuda.prelude import complete
from ...codegen.cuda.scan_parts import FusedScan
from ...codegen.steps import bodies_of
from ...errors import PlanError, message
from ...ir.plan import GENERATED, Plan, Role
from .kernels.fused import source_of

__all__ = ["source_of_step"]


def source_of_step(plan: Plan, step: int, multiprocessors: int) -> str:
    """Return the CUDA C of a fused step, on a device of so many multiprocessors.

    Raises
    ------
    PlanError
        There is no such step, or its kernel is not generated.
    """
    steps = plan.steps
    if not isinstance(step, (int, np.integer)) or not -len(steps) <= step < len(steps):
        raise PlanError(
            message(
                f"there is no step {step!r}",
                need=f"a number from 0 to {len(steps) - 1}" if steps else "a plan with steps",
                hint="print(f.plan) lists the steps",
            )
        )
    chosen = steps[step]
    if chosen.role is Role.FUSED_SCAN:
        fused = FusedScan(chosen, dict(plan.sizes or {}), multiprocessors)
        return complete(fused.source, fused.words)
    regions = [part for part in chosen.parts or (chosen,) if part.role is Role.REGION]
    kernels = [kernels_of(body) for part in regions for body in bodies_of(part)]
    generated = {k.key: k for k in kernels if k is not None}
    if chosen.role not in GENERATED or not generated or None in kernels:
        raise PlanError(
            message(
                f"step {step} is of the family {chosen.kernel}, for which no CUDA is generated",
                need="a fused step",
                hint="print(f.plan) lists the steps",
            )
        )
    return source_of(list(generated.values()))
