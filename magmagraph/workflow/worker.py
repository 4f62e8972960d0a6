"""A copy of a module, as a worker of an executor runs it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..distributed.launching.launcher import launch
from ..distributed.launching.report import JobError
from ..errors import GraphError, message
from ..function.devices import replace_threads
from ..ir.communicator import Communicator
from ..ir.ranks import current, using
from ..runtime.comm.solo import Solo
from ..runtime.comm.threads import run_threads
from ..runtime.watch import of_user
from .context import Context
from .modules import Module, Workflow
from .program import ProgramError, run_program
from .store import Space, WorkflowStopped, check_stopped

__all__ = ["Job", "run_copy"]

Outcome = tuple[str, str]  # "done", "failed" or "stopped", and the cause


class RankFailed(RuntimeError):
    """A rank of a copy has failed: raised to end the others."""


@dataclass(frozen=True)
class Job:
    """All iterations of a copy, or of one of its ranks.

    Attributes
    ----------
    workflow, module, copy, turn
        What it is.
    run
        Its number in the workflow.
    ranks
        The workers that it occupies.
    place
        The rank that calls, where workers are ranks of MPI and the module has several.
    engine
        "serial", "threads" that share this process, "processes", or "ranks" of MPI.
    failures
        How many runs have failed before: their communicators are not used again.
    space
        The servers of values and messages.
    zero
        The time at which the workflow began.
    """

    workflow: Workflow
    module: Module
    copy: int
    turn: int
    run: int
    ranks: tuple[int, ...]
    place: int
    engine: str
    failures: int
    space: Space
    zero: float

    @property
    def title(self) -> str:
        """The module, the copy and the turn, for people."""
        return self.module.title(self.copy, self.turn)


def run_copy(job: Job) -> Outcome:
    """Run a copy on this worker, or be one of its ranks, or start them."""
    add_folder(job.workflow.folder)
    module = job.module
    several = module.processes > 1 and not module.command
    if job.engine == "ranks":
        job = replace(job, ranks=(current().rank,))
        if several:
            name, own = f"run {job.run}", current().rank
            places = job.space.ask(job.space.board.meet, name, module.processes, job.place, own)
            job = replace(job, ranks=tuple(sorted(places)))
            return _run_rank(job, _group(job.ranks, job.failures))
    elif several:
        try:
            if job.engine == "threads":
                outcomes = run_threads(module.processes, lambda: _run_launched(job))
            else:
                outcomes = launch(_run_launched, job, ranks=module.processes)
        except RankFailed as error:
            return "failed", str(error)
        except JobError as error:
            _, name, cause = error.failure.text.partition(f"{RankFailed.__name__}: ")
            return "failed", cause if name else f"{job.title}: {error}"
        return next((outcome for outcome in outcomes if outcome[0] != "done"), ("done", ""))
    return _run_rank(job, Solo())


def add_folder(folder: Path) -> None:
    """Find modules of Python in the folder of the workflow file, as for a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@lru_cache(16)
def _group(ranks: tuple[int, ...], failures: int) -> Communicator:
    return current().subset(ranks)


def _run_launched(job: Job) -> Outcome:
    """Be a rank that was started for a copy: all ranks end if this one raises."""
    add_folder(job.workflow.folder)
    outcome = _run_rank(job, current())
    if outcome[0] == "failed":
        raise RankFailed(outcome[1])
    return outcome


def _run_rank(job: Job, group: Communicator) -> Outcome:
    module, board = job.module, job.space.board
    rank = job.ranks[min(group.rank, len(job.ranks) - 1)]
    ticket = job.space.ask(board.begin, job.run, group.rank, f"{job.title}, on rank {rank}")
    outcome: Outcome = ("done", "")
    for iteration in range(module.iterations):
        start, output, value = time.time() - job.zero, "", None
        try:
            if module.command:
                output = _run_program(job, iteration, rank, ticket)
            else:
                context = Context(
                    job.workflow, module, job.copy, job.turn, iteration, group, job.ranks,
                    job.space, ticket,
                )  # fmt: skip
                count = 0 if job.engine == "threads" else module.threads
                with using(group), _threads(count):
                    returned = module.resolve()(context)
                value = check_value(returned) if module.grid else None
        except WorkflowStopped as stop:
            outcome = ("stopped", str(stop))
        except (Exception, SystemExit) as error:  # modules may raise anything
            title = job.title + (f", iteration {iteration}" if module.iterations > 1 else "")
            outcome = ("failed", f"{title}, on rank {rank}: {_described(error)}")
        times = (start, time.time() - job.zero)
        job.space.ask(
            board.note, job.run, iteration, group.rank, job.ranks, *outcome, *times, output, value
        )
        if outcome[0] != "done":
            break
    return outcome


def _run_program(job: Job, iteration: int, rank: int, ticket: int) -> str:
    """Run a program, and return the file of what it has printed."""
    workflow, module = job.workflow, job.module
    words = workflow.words(module, job.copy, job.turn, iteration, rank)
    os.makedirs(workflow.output, exist_ok=True)
    output = workflow.printed(module, job.copy, job.turn, iteration)
    run_program(
        [workflow.program(words[0]) or words[0], *words[1:]],
        folder=workflow.folder,
        output=output,
        environment=module.environment,
        threads=module.threads,
        timeout=module.timeout,
        look=lambda: check_stopped(job.space, ticket),
    )
    return str(output)


def check_value(value: Any) -> Any:
    """Return the values of a point of a grid as Python numbers.

    Raises
    ------
    GraphError
        It is neither a number, nor a dict of numbers, nor None.

    Examples
    --------
    >>> import numpy as np
    >>> check_value({"loss": np.float32(0.5)})
    {'loss': 0.5}
    """
    try:
        if isinstance(value, Mapping):
            return {str(name): float(number) for name, number in value.items()}
        return None if value is None else float(value)
    except (TypeError, ValueError):
        raise GraphError(
            message(
                f"a point of a grid has returned {type(value).__name__}",
                need="a number, a dict of numbers, or None",
            )
        ) from None


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Use so many threads of kernels and BLAS; 0 leaves them as they are."""
    if not count:
        yield
        return
    before = replace_threads(count)
    try:
        yield
    finally:
        replace_threads(before)


def _described(error: BaseException) -> str:
    """Return an error with the user's lines that led to it."""
    if isinstance(error, ProgramError):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if of_user(f.filename)]
    lines = [f"{type(error).__name__}: {error}", *traceback.format_list(frames)]
    return "\n".join(line.rstrip() for line in lines)
