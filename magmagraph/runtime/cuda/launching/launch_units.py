"""Units of launching: kernels in sequence, and the memory that they use."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.ranges import Touched
from ....ir.records import record
from .calls import Together
from .segments import Launcher

__all__ = ["Unit", "together"]


@record(frozen=True)
class Unit:
    """Kernels that are launched together, and the memory that they touch."""

    launch: Launcher
    touched: Touched


def together(launches: Sequence[Launcher]) -> Launcher:
    """Return what launches some kernels one after the other."""
    return launches[0] if len(launches) == 1 else Together(launches)
