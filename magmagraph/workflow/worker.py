"""A rank that runs modules, as it is told."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from ..function.devices import replace_threads
from ..ir.communicator import Communicator
from ..ir.ranks import using
from ..runtime.watch import of_user
from .client import Client, WorkflowStopped
from .context import Context
from .line import JOB, REQUEST, Address, Letter, Line, Pause
from .modules import Module, Workflow
from .program import ProgramError, run_program
from .result import ModuleRun
from .schedule import titled

__all__ = ["Worker"]

Outcome = tuple[str, str]  # a state, and the cause where it is not "done"


class Worker:
    """Runs the modules that the metadata rank sends, until the workflow is over.

    Parameters
    ----------
    line
        To the other ranks.
    workflow
        What is run.
    client
        This rank's messages and values.
    clock
        Seconds since the start.
    """

    def __init__(
        self, line: Line, workflow: Workflow, client: Client, clock: Callable[[], float]
    ) -> None:
        self.line, self.workflow, self.client, self._clock = line, workflow, client, clock
        self._groups: dict[tuple[int, ...], Communicator] = {}

    def serve(self) -> tuple[Any, ...]:
        """Run modules; return what is told at the end."""
        pause = Pause()
        while True:
            got = self.line.poll(JOB)
            if got is None:
                if not self.client.idle():
                    pause.rest()
                continue
            word, *told = got[1]
            if word == "over":
                return tuple(told)
            self._run(*told)
            pause.reset()

    def _run(
        self, address: Address, index: int, ranks: tuple[int, ...], letters: list[Letter]
    ) -> None:
        """Run all iterations of a copy, and say how that ended."""
        name, copy, place, _ = address
        module = self.workflow.modules[name]
        self.client.begin(address, index, letters)
        outcome: Outcome = ("done", "")
        if module.command:
            # The other ranks lend the program their cores.
            if place == 0:
                outcome = self._iterate(module, copy, index, ranks, None)
        else:
            if ranks not in self._groups:
                self._groups[ranks] = self.line.communicator.subset(ranks)
            outcome = self._iterate(module, copy, index, ranks, self._groups[ranks])
            if outcome[0] != "done":
                del self._groups[ranks]  # a collective may be half done in it
        self._tell("ended", index, *outcome, self.client.counts)

    def _iterate(
        self,
        module: Module,
        copy: int,
        index: int,
        ranks: tuple[int, ...],
        group: Communicator | None,
    ) -> Outcome:
        outcome: Outcome = ("done", "")
        for iteration in range(module.iterations):
            start, output = self._clock(), ""
            if group is None:
                parts = [module.name, copy, iteration]
                if self.workflow.iterations > 1:
                    parts.insert(2, self.client.turn)
                output = f"{'-'.join(map(str, parts))}.txt"
                outcome = self._attempt(
                    self._program, (module, copy, iteration, output), module, copy, iteration
                )
            else:
                context = Context(self.client, module, copy, iteration, group, ranks)
                outcome = self._attempt(self._function, (module, context), module, copy, iteration)
                if group.size > 1:
                    outcome = self._together(outcome, index, group)
            if ranks[0] == self.line.rank:
                end, (state, cause) = self._clock(), outcome
                path = str(self.workflow.output / output) if output else ""
                self._tell(
                    "record",
                    ModuleRun(
                        module.name, copy, iteration, ranks, state, start, end, cause, path,
                        self.client.turn,
                    ),
                )
            if outcome[0] != "done":
                break
        return outcome

    def _together(self, outcome: Outcome, index: int, group: Communicator) -> Outcome:
        """Return what became of the ranks of a group: the first failure, if there is one."""
        if outcome[0] != "done":
            self._tell("failing", index, outcome[1])  # the others may wait in a collective for ever
        told: list[Outcome] = group.exchange(outcome, "the end of a module")
        failed = [other for other in told if other[0] == "failed"]
        stopped = [other for other in told if other[0] == "stopped"]
        return [*failed, *stopped, outcome][0]

    def _attempt(
        self,
        function: Callable[..., None],
        arguments: tuple[Any, ...],
        module: Module,
        copy: int,
        iteration: int,
    ) -> Outcome:
        try:
            function(*arguments)
            self.client.settle()
        except WorkflowStopped as stop:
            return "stopped", str(stop)
        except (Exception, SystemExit) as error:  # whatever modules raise
            title = titled(module, copy, self.client.turn)
            if module.iterations > 1:
                title += f", iteration {iteration}"
            return "failed", f"{title}, on rank {self.line.rank}: {_told(error)}"
        return "done", ""

    def _function(self, module: Module, context: Context) -> None:
        with using(context.communicator), _threads(module.threads, context.communicator.kind):
            module.resolve()(context)

    def _program(self, module: Module, copy: int, iteration: int, output: str) -> None:
        words = self.workflow.words(
            module, copy, self.client.turn, iteration, self.line.rank
        )
        os.makedirs(self.workflow.output, exist_ok=True)
        run_program(
            [self.workflow.program(words[0]) or words[0], *words[1:]],
            folder=self.workflow.folder,
            output=self.workflow.output / output,
            environment=module.environment,
            threads=module.threads,
            timeout=module.timeout,
            look=self._look,
        )

    def _look(self) -> None:
        self.client.look()
        self.client.idle()

    def _tell(self, *told: Any) -> None:
        self.line.post(self.client.metadata, REQUEST, *told)


@contextlib.contextmanager
def _threads(count: int, kind: str) -> Iterator[None]:
    """Use so many threads meanwhile; ranks that share a process leave them as they are."""
    if not count or kind == "threads":
        yield
        return
    before = replace_threads(count)
    try:
        yield
    finally:
        replace_threads(before)


def _told(error: BaseException) -> str:
    """Return an error with the user's lines that led to it."""
    if isinstance(error, ProgramError):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if of_user(f.filename)]
    lines = [f"{type(error).__name__}: {error}", *traceback.format_list(frames)]
    return "\n".join(line.rstrip() for line in lines)
