"""Why a run diverged: the epoch is repeated up to the step that makes the first NaN or infinity."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

import numpy as np

from ..errors import DivergedError
from ..function import Function
from .data import on_host

__all__ = ["explain"]

_SECONDS = 30.0  # at most, for the steps that are repeated


def explain(
    error: DivergedError,
    step: Function,
    batches: Iterable[tuple[int, tuple[np.ndarray, ...]]],
    finite: Callable[[], bool],
) -> bool:
    """Add to an error which layer, operation and line made the first value that is not finite.

    The weights change: the caller has those of the beginning of the epoch, and sets them again.

    Parameters
    ----------
    error
        Its text is extended.
    step
        The training step, whose variables hold what they held at the beginning of the epoch.
    batches
        Those of the epoch, in order, with the number of rows before each.
    finite
        Tells whether all weights are.

    Returns
    -------
    bool
        Whether it was found: in time, and by a graph that is quick to interpret.
    """
    end = time.monotonic() + _SECONDS
    for _, batch in batches:
        if time.monotonic() > end:
            return False
        before = [(variable, variable.value) for variable in step.updated]
        loss = float(on_host(step(*batch))[0])
        if math.isfinite(loss) and finite():
            continue
        for variable, value in before:
            variable.assign(value)
        # Here, as most runs need it never: it imports what inspects graphs.
        from ..inspect.checking.blame import append_blame

        text = str(error)
        append_blame(step, batch, error)
        return str(error) != text
    return False
