"""Which copies of modules run where: dependencies and free ranks, no messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .modules import Module, Workflow, order

__all__ = ["Run", "Schedule"]


@dataclass
class Run:
    """A copy of a module: all its iterations, on the same ranks.

    Attributes
    ----------
    index
        Its number in the workflow.
    module, copy, turn
        What it is, in which turn of the workflow.
    state
        "pending", "running", "done", "failed", "stopped" or "skipped".
    ranks
        Where it runs or ran.
    busy
        Those of them that have not yet said that they have ended.
    cause
        Why it was skipped.
    """

    index: int
    module: Module
    copy: int
    turn: int = 0
    state: str = "pending"
    ranks: tuple[int, ...] = ()
    busy: set[int] = field(default_factory=set)
    cause: str = ""

    @property
    def over(self) -> bool:
        """Whether it runs no more, and never will."""
        return self.state not in ("pending", "running")

    @property
    def title(self) -> str:
        """The module, the copy and the turn, for people."""
        return titled(self.module, self.copy, self.turn)


def titled(module: Module, copy: int, turn: int) -> str:
    """Return the name of a copy for people; the first turn of a workflow goes without saying."""
    told = f"module {module.name}" + (f", copy {copy}" if module.copies > 1 else "")
    return told + (f", turn {turn}" if turn else "")


class Schedule:
    """The runs of a workflow, and who may start.

    Parameters
    ----------
    workflow
        The modules.
    workers
        Ranks that run them.
    """

    def __init__(self, workflow: Workflow, workers: Sequence[int]) -> None:
        self.free = list(workers)
        self.runs: list[Run] = []  # of all turns that have begun
        self.turn = -1
        self._modules = workflow.modules
        self._turns = workflow.iterations
        self._of: dict[str, list[Run]] = {}  # of this turn
        self._order = list(order(workflow.modules))
        self._begin()

    def _begin(self) -> None:
        """Begin the next turn."""
        self.turn += 1
        for module in self._modules.values():
            copies = [Run(len(self.runs) + i, module, i, self.turn) for i in range(module.copies)]
            self._of[module.name] = copies
            self.runs += copies

    @property
    def over(self) -> bool:
        """Whether nothing runs, and nothing will."""
        return self.turn + 1 >= self._turns and self._all_over

    @property
    def _all_over(self) -> bool:
        return all(run.over for run in self._current())

    def _current(self) -> Iterator[Run]:
        """Yield the runs of this turn: all others are over."""
        return itertools.chain.from_iterable(self._of.values())

    def last(self) -> None:
        """Let no turn come after this one."""
        self._turns = self.turn + 1

    def state_of(self, module: str, copy: int, turn: int) -> tuple[str, tuple[int, ...]]:
        """Return the state of a copy and its ranks; what no turn will bring is "skipped"."""
        if turn > self.turn:
            return ("pending" if turn < self._turns else "skipped"), ()
        if turn < self.turn:
            return "done", ()
        run = self._of[module][copy]
        return run.state, run.ranks

    def running(self) -> list[Run]:
        """Return what runs."""
        return [run for run in self._current() if run.state == "running"]

    def pending(self) -> list[Run]:
        """Return what has not started, and may."""
        return [run for run in self._current() if run.state == "pending"]

    def next(self) -> Run | None:
        """Start a run that may: give it its ranks, and return it."""
        if self._all_over and not self.over:
            self._begin()
        for run in self._current():
            if run.state == "pending" and self._ready(run) and (ranks := self._ranks(run)):
                self.free = [rank for rank in self.free if rank not in ranks]
                run.state, run.ranks, run.busy = "running", ranks, set(ranks)
                return run
        return None

    def ended(self, run: Run, state: str) -> list[Run]:
        """Note that a run has ended, and return those that are skipped because of that."""
        run.state = state
        self.free = sorted({*self.free, *run.ranks})
        return [] if state == "done" else self._skip()

    def drop(self, cause: str) -> list[Run]:
        """Skip all that has not started."""
        self.last()
        dropped = self.pending()
        for run in dropped:
            run.state, run.cause = "skipped", cause
        return dropped

    def _ready(self, run: Run) -> bool:
        return all(r.state == "done" for name in run.module.after for r in self._of[name])

    def _ranks(self, run: Run) -> tuple[int, ...]:
        fixed = run.module.fixed(run.copy)
        if fixed:
            return fixed if set(fixed) <= set(self.free) else ()
        # Ranks that others must have are taken last.
        wanted = {rank for other in self.pending() for rank in other.module.fixed(other.copy)}
        chosen = sorted(self.free, key=lambda rank: (rank in wanted, rank))[: run.module.processes]
        return tuple(sorted(chosen)) if len(chosen) == run.module.processes else ()

    def _skip(self) -> list[Run]:
        skipped = []
        for name in self._order:
            for run in self._of[name]:
                before = [r for other in run.module.after for r in self._of[other]]
                bad = next((r for r in before if r.over and r.state != "done"), None)
                if run.state == "pending" and bad is not None:
                    run.state = "skipped"
                    run.cause = f"it comes after {bad.title}, which was {bad.state}"
                    if bad.state == "failed":
                        run.cause = f"it comes after {bad.title}, which failed"
                    skipped.append(run)
        return skipped
