"""Refusals of kernel builders, and the fallbacks that follow: rows of the report, warnings.

A builder of a kernel that cannot compute a step raises `Refused` with its reason. Its caller takes
the next way to compute the step, and notes a `Fallback`. Every other exception of a builder is an
error, and is raised.

A fallback is *expected* where every machine takes it: the operation has no kernel family, or its
family has no kernel of the dtype. It is a row of the report. The other fallbacks cost time that
another machine, library or layout would save: they are rows, and a `FallbackWarning` each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ..errors import FallbackWarning, message
from .graph import Node
from .lines import warn_user
from .plan import Step
from .records import record

__all__ = [
    "BY_CUPY", "BY_MPI", "BY_NUMPY", "IN_TILES", "NO_ELEMENTS", "NO_FAMILY", "ON_HOST", "Fallback",
    "Fallbacks", "Refused",
]  # fmt: skip

BY_NUMPY = "array expression (NumPy)"
BY_CUPY = "array expression (CuPy)"
ON_HOST = "array expression on the host (NumPy)"
BY_MPI = "MPI with addresses of the device"
IN_TILES = "array expressions of tiles (NumPy)"
NO_FAMILY = "no kernel family"
NO_ELEMENTS = "an operand or a result has no elements"
_REASON = 300  # characters of a library's own words that a reason has at most


class Refused(Exception):
    """A builder has no kernel for a step: another way to compute it is taken.

    reason: Why, in words without sizes: equal reasons are one warning.
    expected: Whether every machine refuses the step: there is no warning then.
    """

    def __init__(self, reason: object, *, expected: bool = False) -> None:
        self.reason = " ".join(str(reason).split())[:_REASON]
        self.expected = expected
        super().__init__(self.reason)


@record(frozen=True)
class Fallback:
    """A step that does not run as a kernel of the family that is for its operation.

    step: Its number in the plan.
    node: What it computes; not part of comparisons.
    wanted: The kernel family that is for the operation; empty where there is none.
    taken: What runs instead.
    reason: Why the family refused.
    expected: Whether every machine takes this way: there is no warning then.
    """

    step: int
    node: Node = field(compare=False)
    wanted: str
    taken: str
    reason: str
    expected: bool = False

    @property
    def way(self) -> str:
        """What runs, and instead of which family."""
        return f"{self.taken} instead of {self.wanted}" if self.wanted else self.taken

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


_warned: set[tuple[str, str, str]] = set()  # in this process: operation, way and reason


class Fallbacks:
    """The fallbacks of a plan, in the order in which they were noted; each once.

    The runtime notes them, and the report of the function shows them. Some are found only when the
    plan runs: a library then has no such function for arrays of the device.
    """

    def __init__(self) -> None:
        self._rows: dict[Fallback, None] = {}

    def __iter__(self) -> Iterator[Fallback]:
        return iter([*self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, number: int, step: Step, taken: str, refused: Refused) -> None:
        """Add what runs a step instead of the family that is for its operation, and why."""
        row = Fallback(
            number, step.node, step.wanted, taken, refused.reason, refused.expected
        )
        self._rows.setdefault(row)

    def warn(self) -> None:
        """Issue a warning for each fallback that is not expected, at the line that made its node.

        There is one for each operation and reason of a process.
        """
        for row in self:
            key = row.node.op.name, row.way, row.reason
            if row.expected or key in _warned:
                continue
            _warned.add(key)
            name = f" '{row.node.name}'" if row.node.name else ""
            text = message(
                f"{row.node.op.name}{name} runs as {row}",
                hint="print(f.report) lists every step without a kernel, with the reason",
            )
            warn_user(text, FallbackWarning, row.node.line)
