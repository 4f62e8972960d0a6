"""The interface of a backend: the only access to an array library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..ir.communicator import Communicator
from ..ir.fallback import Fallbacks
from ..ir.plan import Plan


class Bound(Protocol):
    """A plan bound to sizes: every address known but those of feeds and results.

    Attributes
    ----------
    ranks
        Those that run it together, each of which may fail alone; None for one by itself.
    meet
        Called before its first message: all ranks go on, or it raises; None where they do not meet.
    """

    plan: Plan
    ranks: Communicator | None
    meet: Callable[[], object] | None

    def run(self, feeds: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """Run every step once and return the results, which the caller owns."""

    def run_timed(self, feeds: Sequence[Any]) -> list[int]:
        """Run on copies of the variables; return the nanoseconds of each step."""

    def wait(self) -> None:
        """Return when all that was run is done."""


class Prepared(Protocol):
    """A symbolic plan with its kernels built.

    Attributes
    ----------
    fallbacks
        The steps that do not run as the kernels of a family; binding and running add to them.
    """

    plan: Plan
    fallbacks: Fallbacks

    def bind(self, plan: Plan) -> Bound:
        """Bind a specialized plan."""

    def describe(self) -> str:
        """Return one line: how many kernels were built, and how."""

    def source(self, step: int, plan: Plan | None = None) -> str:
        """Return the C of a fused step of this plan, or of one bound to sizes."""
