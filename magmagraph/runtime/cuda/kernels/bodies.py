"""One body of a fused step: its kernels, the first words of their arguments, its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....codegen.cuda.kernels import ALONE_NAME, RegionKernels
from ....codegen.cuda.launch_config import WIDE, Launch, LaunchConfig
from ....ir.records import record
from ..launching.streams import Range

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
    early, late
        What its main kernel writes, and what is written when sums have ended.
    workspace
        Where partial results are.
    lines
        Of partial results that it has room for.
    """

    kernels: RegionKernels | None
    words: list[int]
    read: tuple[Range, ...]
    early: tuple[Range, ...]
    late: tuple[Range, ...]
    workspace: tuple[Range, ...]
    lines: int

    @property
    def written(self) -> tuple[Range, ...]:
        """All that its launches write."""
        return (*self.early, *self.late, *self.workspace)

    def key(self, bound: Sequence[tuple[int, Launch]], sizes: Mapping[str, int]) -> str | None:
        """Return what bodies share that one launch can compute, None for one that has its own.

        Parameters
        ----------
        bound
            Its launches.
        sizes
            The size of every dimension.
        """
        kernels = self.kernels
        if kernels is None or kernels.way != "flat" or kernels.region.folds or len(bound) != 1:
            return None
        name = bound[0][1].kernel.removesuffix(ALONE_NAME)
        in_turn = name.partition("_")[2].startswith("v")  # its blocks are numbered by x alone
        if not in_turn or LaunchConfig(kernels, sizes, self.lines).elements > WIDE:
            return None
        return name
