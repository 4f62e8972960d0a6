"""Plans for a device that is not here: to be looked at, not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import DeviceError, message
from ..ir.communicator import Communicator
from ..ir.fallback import Fallbacks
from ..ir.plan import Plan
from ..ir.target import Target
from ..passes.lowering.stream import stream
from ..passes.report import Record

__all__ = ["AbsentPrepared"]


class AbsentPrepared:
    """A symbolic plan for a device that is not here.

    Parameters
    ----------
    plan, target
        The plan, and what it is for.
    """

    def __init__(self, plan: Plan, target: Target) -> None:
        self.plan, self.target = plan, target
        self.fallbacks = Fallbacks()

    def bind(self, plan: Plan) -> AbsentBound:
        """Return a plan with sizes, its steps placed on streams."""
        return AbsentBound(plan, self.target)

    def describe(self) -> str:
        """Return one line: that nothing was built."""
        return f"nothing is compiled: {self.target.label} is not here"

    def source(self, step: int, plan: Plan | None = None) -> str:
        """Return the CUDA C of a fused step."""
        from .cuda.step_source import source_of_step

        return source_of_step(plan or self.plan, step, self.target.multiprocessors)


class AbsentBound:
    """A plan with sizes for a device that is not here."""

    ranks: Communicator | None = None
    meet: Callable[..., object] | None = None

    def __init__(self, plan: Plan, target: Target) -> None:
        self.target = target
        self.placing = Record("stream", of_steps=True)
        self.placing.before = self.placing.after = len(plan.steps)
        self.plan = stream(plan, target, self.placing)

    def run(self, feeds: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """Raise: the device is not here."""
        self._refuse()

    def run_timed(self, feeds: Sequence[Any]) -> list[int]:
        """Raise: the device is not here."""
        self._refuse()

    def wait(self) -> None:
        """Return: nothing was run."""

    def _refuse(self) -> NoReturn:
        raise DeviceError(
            message(
                f"the function is planned for {self.target.label}, a made-up target: its plan can "
                "be looked at, and not run",
                need="a function for a device that is here",
                hint="mg.function without target=",
            )
        )
