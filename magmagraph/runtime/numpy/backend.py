"""Plans on the CPU: compiled kernels and BLAS as one call, or NumPy where they cannot be."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...config import config
from ...errors import CompilerUnavailable, FallbackWarning, PlanError, message
from ...plan import Plan, Role
from ..steps import bodies_of
from . import fused
from .bound import NumpyBound
from .codegen.step import step_code
from .threads import apply as apply_threads

if TYPE_CHECKING:
    from .products.choice import Sizes, Way

SECONDS_A_NODE = 0.0015  # what writing and compiling its C takes, about; for the compile budget

_warned = threading.Event()


def _fall_back(reason: str) -> None:
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            message(
                f"kernels are not compiled: {reason}",
                need="a C compiler (cc, gcc or clang); the NumPy fallback runs, more slowly",
                hint="install one, or set MAGMAGRAPH_COMPILER=off to choose the fallback",
            ),
            FallbackWarning,
            stacklevel=4,
        )


class NumpyPrepared:
    """A symbolic plan with its kernels built for this machine."""

    def __init__(self, plan: Plan, budget: float) -> None:
        self.plan = plan
        self.kernels: fused.Kernels | None = None
        self.compiled: frozenset[int] = frozenset()
        # By the number of a step, how its products run at the sizes that it was bound to.
        self.ways: dict[int, dict[Sizes, Way]] = {}
        steps = [i for i, step in enumerate(plan.steps) if step.role is Role.REGION]
        if config.compiler == "off":
            apply_threads()
            return
        try:
            chosen = _affordable(plan, steps, budget)
            kernels = fused.Kernels()
            kernels.build([bodies_of(plan.steps[i]) for i in chosen])
            self.kernels = kernels
            self.compiled = frozenset(chosen)
        except CompilerUnavailable as error:
            if config.compiler == "force":
                raise
            _fall_back(str(error).splitlines()[0])
            apply_threads()  # nobody else tells BLAS

    def describe(self) -> str:
        """Return one line: how many kernels were built, and how."""
        total = sum(step.role is Role.REGION for step in self.plan.steps)
        if self.kernels is None:
            return f"{total} fused steps in NumPy tiles"
        return f"{len(self.compiled)} of {total} fused steps as compiled kernels"

    def source(self, step: int) -> str:
        """Return the C of a fused step, whether or not it was compiled."""
        steps = self.plan.steps
        if not isinstance(step, (int, np.integer)) or not -len(steps) <= step < len(steps):
            raise PlanError(
                message(
                    f"there is no step {step!r}",
                    need=f"a number from 0 to {len(steps) - 1}" if steps else "a plan with steps",
                    hint="print(f.plan) lists the steps",
                )
            )
        chosen = steps[step]
        if chosen.role is not Role.REGION:
            raise PlanError(
                message(
                    f"step {step} is of the family {chosen.kernel}, for which no C is generated",
                    need="a fused step",
                    hint="print(f.plan) lists the steps",
                )
            )
        return step_code(bodies_of(chosen)).text()

    def bind(self, plan: Plan) -> NumpyBound:
        """Bind a specialized plan: addresses, cells and views are made once."""
        return NumpyBound(self, plan)


def _affordable(plan: Plan, steps: Sequence[int], budget: float) -> list[int]:
    """Return the fused steps, from the first on, whose kernels can be built within the budget."""
    chosen: list[int] = []
    spent = 0.0
    for i in steps:
        spent += SECONDS_A_NODE * sum(len(body) for body in bodies_of(plan.steps[i]))
        if spent > budget:
            break
        chosen.append(i)
    return chosen
