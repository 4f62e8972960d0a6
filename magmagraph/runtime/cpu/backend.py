"""Plans on the CPU: compiled kernels and BLAS as one call, or NumPy where they cannot be."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

import numpy as np

from ...codegen.c.step import step_code
from ...codegen.steps import bodies_of
from ...config import config
from ...errors import CompilerUnavailable, FallbackWarning, GraphError, PlanError, message
from ...ir.fallback import NO_FAMILY, Fallbacks, Refused
from ...ir.plan import Plan, Role
from . import fused
from .bound import NumpyBound
from .compilers import SourceRefused, find_compiler
from .kernel_args import Prepared
from .support import support
from .threads import apply as apply_threads

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


def _refuse_own(plan: Plan, steps: Sequence[int], error: SourceRefused) -> None:
    """Raise where the C that the compiler does not take may be the user's own."""
    # Here, as it is asked for this error alone: it imports `inspect`.
    from ...functional.custom import OWN

    own = {
        node.op.name: node.op.scalar.expression
        for i in steps
        for body in bodies_of(plan.steps[i])
        for node in body.nodes
        if OWN.get(node.op.name) is node.op and node.op.scalar is not None
    }
    if not own:
        return
    listed = ", ".join(f"'{kernel}' of {name}" for name, kernel in own.items())
    raise GraphError(
        message(
            f"the C compiler does not take the kernel {listed}\n{error.first}",
            need="a C expression of the operands a, b, c and d",
        )
    ) from None


class NumpyPrepared:
    """A symbolic plan with its kernels built for this machine."""

    def __init__(self, plan: Plan, budget: float) -> None:
        self.plan = plan
        self.prepared = Prepared()
        self._build(budget)
        self.fallbacks: Fallbacks = self.prepared.fallbacks
        self._note_fallbacks()

    def _build(self, budget: float) -> None:
        """Compile the kernels, or keep the reason why there are none."""
        plan = self.plan
        self._why = Refused("the compile budget is spent", expected=True)  # it was asked for
        steps = [i for i, step in enumerate(plan.steps) if step.role is Role.REGION]
        if config.compiler == "off":
            self._why = Refused("MAGMAGRAPH_COMPILER=off", expected=True)
            apply_threads()
            return
        kernels = fused.Kernels()
        try:
            chosen = _affordable(plan, steps, budget)
            kernels.build([bodies_of(plan.steps[i]) for i in chosen])
            support()  # a plan without fused steps meets a missing compiler here
            self.prepared = Prepared(kernels, frozenset(chosen))
        except CompilerUnavailable as error:
            if isinstance(error, SourceRefused):
                _refuse_own(plan, chosen, error)
            if config.compiler == "force":
                raise
            reason = error.first if isinstance(error, SourceRefused) else str(error).split("\n")[0]
            self._why = Refused(f"kernels are not compiled: {reason}", expected=True)
            _fall_back(reason)  # one warning for all steps
            self._use_what_is_there(kernels, chosen)

    def _use_what_is_there(self, kernels: fused.Kernels, steps: Sequence[int]) -> None:
        """Run without a compiler what has kernels all the same: those that came with a wheel."""
        try:
            support()
        except CompilerUnavailable:
            apply_threads()  # nobody else tells BLAS
        else:
            there = (i for i in steps if kernels.has(bodies_of(self.plan.steps[i])))
            self.prepared = Prepared(kernels, frozenset(there))

    def _note_fallbacks(self) -> None:
        """Note the steps that run in NumPy, whatever sizes the plan is bound to."""
        for number, step in enumerate(self.plan.steps):
            if step.role is Role.EXPRESSION:
                self.prepared.note(number, step, Refused(step.refused or NO_FAMILY, expected=True))
            elif step.family.cpu is None:
                continue
            elif self.prepared.kernels is None or (
                step.role is Role.REGION and number not in self.prepared.compiled
            ):
                self.prepared.note(number, step, self._why)

    def describe(self) -> str:
        """Return one line: how many kernels were built, and how."""
        total = sum(step.role is Role.REGION for step in self.plan.steps)
        if self.prepared.kernels is None:
            return f"{total} fused steps in NumPy tiles"
        return f"{len(self.prepared.compiled)} of {total} fused steps as compiled kernels"

    def source(self, step: int, plan: Plan | None = None) -> str:
        """Return the C of a fused step, whether or not it was compiled."""
        steps = (plan or self.plan).steps
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
        try:
            return NumpyBound(self.prepared, plan)
        except CompilerUnavailable as error:
            if self.prepared.kernels is None or _has_compiler():
                raise
            # A kernel that did not come with the wheel, and no compiler: all runs in NumPy.
            reason = str(error).split("\n")[0]
            _fall_back(reason)
            self._why = Refused(f"kernels are not compiled: {reason}", expected=True)
            self.prepared = Prepared(fallbacks=self.fallbacks)
            self._note_fallbacks()
            return NumpyBound(self.prepared, plan)


def _has_compiler() -> bool:
    try:
        find_compiler()
    except CompilerUnavailable:
        return False
    return True


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
