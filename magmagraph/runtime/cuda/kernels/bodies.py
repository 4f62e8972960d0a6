"""One body of a fused step: its kernels, and the first words of their arguments."""

from __future__ import annotations

from ....codegen.cuda.kernels import RegionKernels
from ....ir.ranges import Range
from ....ir.records import record

__all__ = ["Body"]


@record(frozen=True)
class Body:
    """One body of a fused step.

    Attributes
    ----------
    kernels
        Of its region, or None where array expressions have to run.
    words
        The first arguments of each of its kernels: addresses.
    read
        What it reads.
    lines
        Of partial results that it has room for.
    """

    kernels: RegionKernels | None
    words: list[int]
    read: tuple[Range, ...]
    lines: int
