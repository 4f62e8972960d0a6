"""What a rank's steps take: its plan is made here, and measured in one process."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, message
from ...function import Function
from ...inspect.checking.running import bind, kept_variables
from ...ir.plan import Step
from ...ir.ranks import current, using
from ..data_parallel import DataParallel
from .costs import Compute, Machine, Timeline, timeline
from .sharing import Sharing, slowed

__all__ = ["Rank", "spread"]

_MEASURED = 6  # numbers of rows that are measured at most; others lie between


class Rank:
    """A function as one of the current ranks runs it, and what its steps take by its rows."""

    def __init__(
        self,
        function: Any,
        arrays: Sequence[np.ndarray],
        axes: Sequence[int | None],
        machine: Machine | None,
        repeats: int,
    ) -> None:
        self.function, self.arrays, self.axes = function, arrays, axes
        self.machine, self.repeats = machine, repeats
        self._ranks = current()
        self._taken: dict[int, np.ndarray] = {}
        self._around: dict[int, float] = {}

    def measure(self, shares: Sequence[int]) -> None:
        """Measure the least, the most, and some numbers of rows between."""
        distinct = sorted(set(shares))
        if self.machine is None:
            picked = np.linspace(0, len(distinct) - 1, min(_MEASURED, len(distinct))).round()
            for rows in {distinct[int(place)] for place in picked}:
                self._measured(rows)

    def timeline(self, rows: int, beside: Sharing | float) -> Timeline:
        """Return what the rank does with so many rows.

        rows: Of the rank.
        beside: What it loses to the others on its machine; or how many times as slow as alone it
            is.
        """
        bound = bind(self.function, self._part(rows), {}).bound.plan
        taken = None if self.machine is not None else self._between(rows)
        bandwidth = beside.bandwidth if isinstance(beside, Sharing) else math.inf

        def compute(number: int, step: Step) -> Compute:
            if taken is None:
                assert self.machine is not None
                return Compute(self.machine.seconds(step))
            seconds = float(taken[number])
            return Compute(seconds, min(seconds, int(step.bytes) / bandwidth))

        events = timeline(bound, compute)
        if taken is not None:
            measured_rows = sorted(self._around)
            around = float(
                np.interp(rows, measured_rows, [self._around[at] for at in measured_rows])
            )
            events = Timeline((Compute(around), *events.events))
        if not isinstance(beside, Sharing):
            beside = Sharing(1, product=beside, memory=beside)
        return slowed(events, beside)

    def _part(self, rows: int) -> list[np.ndarray]:
        """Return feeds of so many rows."""
        parts = []
        for array, axis in zip(self.arrays, self.axes, strict=True):
            if axis is not None:
                array = array[(slice(None),) * axis + (slice(0, rows),)]
            parts.append(np.ascontiguousarray(array))
        return parts

    def _measured(self, rows: int) -> np.ndarray:
        """Return the median seconds of each step of the plan with so many rows."""
        if rows not in self._taken:
            feeds = bind(self.function, self._part(rows), {})
            steps, whole = [], []
            with using(self._ranks), kept_variables(self.function):
                feeds.bound.run(feeds.arrays)
                for _ in range(self.repeats):  # in turn, so that both see the same machine
                    steps.append(feeds.bound.run_timed(feeds.arrays))
                    began = time.perf_counter()
                    feeds.bound.run(feeds.arrays)
                    whole.append(time.perf_counter() - began)
            taken, total = np.median(steps, axis=0) / 1e9, float(np.median(whole))
            # Reading the clock costs something in each step, which a run does not pay; beside its
            # steps it has feeds, results and the commit point.
            self._taken[rows] = taken * min(1.0, total / max(1e-12, float(taken.sum())))
            self._around[rows] = max(0.0, total - float(taken.sum()))
        return self._taken[rows]

    def _between(self, rows: int) -> np.ndarray:
        """Return the seconds of each step, linear between the rows that were measured."""
        if rows in self._taken or not self._taken:
            return self._measured(rows)
        measured_rows = sorted(self._taken)
        columns = np.array([self._taken[at] for at in measured_rows])
        return np.array([np.interp(rows, measured_rows, column) for column in columns.T])


def spread(function: Any, dim: str) -> Any:
    """Return a function spread over the ranks of the current communicator."""
    settings = {key: value for key, value in function._settings.items() if key != "distribute"}
    if function._settings.get("distribute") is not None:
        raise ConfigError(
            message(
                "the function is distributed already",
                need="the function of one process",
                hint="leave distribute= out of it",
            )
        )
    pairs = [pair for pair in function._user_updates if pair[0] is not function._random]
    return Function(
        function._inputs,
        function._user_outputs,
        pairs,
        device=function.device,
        name=function.name,
        default_updates=False,
        strict_feeds=function.strict_feeds,
        distribute=DataParallel(dim),
        **settings,
    )
