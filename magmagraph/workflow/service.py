"""The servers: values by key; on the metadata rank also who runs, who waits, and for what."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .line import ANSWER, JOB, MAIL, REQUEST, Address, Counts, Letter, Line
from .modules import Workflow
from .result import ModuleRun
from .schedule import Run, Schedule

__all__ = ["Failure", "Metadata", "Server"]


class Server:
    """A rank that holds the values of some keys."""

    def __init__(self, line: Line, metadata: int) -> None:
        self.line = line
        self._metadata = metadata
        self._values: dict[str, bytes] = {}

    def step(self) -> bool:
        """Answer one request, if there is one."""
        got = self.line.poll(REQUEST)
        if got is None:
            return False
        source, (word, *rest) = got
        getattr(self, f"_on_{word}")(source, *rest)
        return True

    def _on_put(self, source: int, key: str, held: bytes) -> None:
        self._values[key] = held
        self.line.post(self._metadata, REQUEST, "located", key, source)
        self.line.post(source, ANSWER, "stored")

    def _on_take(self, source: int, key: str, ticket: int) -> None:
        self.line.post(source, ANSWER, "value", ticket, self._values[key])


@dataclass(frozen=True)
class Failure:
    """What ended a workflow."""

    text: str


@dataclass
class _Wait:
    """A rank that waits, as the metadata rank knows it."""

    ticket: int
    key: str
    what: str
    timed: bool
    counts: Counts


@dataclass
class _Late:
    """A run of which ranks have to come to their end by some time."""

    until: float
    cause: str


@dataclass
class _Board:
    """What is known of all ranks' messages and values."""

    places: dict[str, int] = field(default_factory=dict)  # of keys
    waits: dict[int, _Wait] = field(default_factory=dict)  # by rank
    counts: dict[int, Counts] = field(default_factory=dict)  # by rank, as last told
    located: dict[int, int] = field(default_factory=dict)  # values that arrived, by who put them
    sent: dict[int, int] = field(default_factory=dict)  # letters passed on from here, by rank
    held: dict[Address, list[Letter]] = field(default_factory=dict)  # for those not yet started

    def asleep(self, busy: set[int]) -> bool:
        """Return whether all of some ranks wait, without limit, and nothing is on its way."""
        waits = [self.waits.get(rank) for rank in busy]
        if not waits or any(wait is None or wait.timed for wait in waits):
            return False
        if any(self.located.get(r, 0) < counts.puts for r, counts in self.counts.items()):
            return False
        senders = [self.sent, *(counts.sent for counts in self.counts.values())]
        return all(
            sum(sent.get(rank, 0) for sent in senders) == self.counts[rank].taken for rank in busy
        )


class Metadata(Server):
    """The rank that starts modules, knows where keys lie, and who waits.

    Parameters
    ----------
    line
        To the other ranks.
    workflow
        What is run.
    workers
        Ranks that run modules.
    clock
        Seconds since the start.
    """

    def __init__(
        self,
        line: Line,
        workflow: Workflow,
        workers: tuple[int, ...],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(line, line.rank)
        self.workflow, self.schedule = workflow, Schedule(workflow, workers)
        self.records: list[ModuleRun] = []
        self.failure: Failure | None = None
        self._board = _Board()
        self._late: dict[int, _Late] = {}
        self._states: dict[int, str] = {}  # of runs, some of whose ranks have ended
        self._clock = clock

    @property
    def over(self) -> bool:
        """Whether the workflow has ended."""
        return self.schedule.over

    def step(self) -> bool:
        """Start what can start, or answer one request; return whether there was one."""
        while self.failure is None and (run := self.schedule.next()) is not None:
            self._start(run)
        if super().step():
            return True
        self._check_late()
        self._check_asleep()
        return False

    def _start(self, run: Run) -> None:
        for place, rank in enumerate(run.ranks):
            address = run.module.name, run.copy, place, run.turn
            letters = self._board.held.pop(address, [])
            self.line.post(rank, JOB, "run", address, run.index, run.ranks, letters)

    # ---- Values and messages

    def _on_located(self, source: int, key: str, giver: int) -> None:
        board = self._board
        board.places[key] = source
        board.located[giver] = board.located.get(giver, 0) + 1
        for rank, wait in list(board.waits.items()):
            if wait.key == key:
                del board.waits[rank]
                self.line.post(rank, ANSWER, "at", wait.ticket, source)

    def _on_wait(
        self, source: int, ticket: int, key: str, what: str, timed: bool, counts: Counts
    ) -> None:
        board = self._board
        board.counts[source] = counts
        if key in board.places and key:
            self.line.post(source, ANSWER, "at", ticket, board.places[key])
        else:
            board.waits[source] = _Wait(ticket, key, what, timed, counts)

    def _on_awake(self, source: int, ticket: int) -> None:
        self._board.waits.pop(source, None)

    def _on_mail(self, source: int, letter: Letter) -> None:
        module, copy, place, turn = letter.receiver
        state, ranks = self.schedule.state_of(module, copy, turn)
        if state == "pending":
            self._board.held.setdefault(letter.receiver, []).append(letter)
        elif state == "running":
            rank = ranks[place]
            self._board.sent[rank] = self._board.sent.get(rank, 0) + 1
            self.line.post(rank, MAIL, letter)
            self.line.post(source, ANSWER, "route", letter.receiver, letter.sender, rank)

    # ---- How modules end

    def _on_last(self, source: int) -> None:
        """A module has found that no further turn is needed."""
        self.schedule.last()

    def _on_record(self, source: int, record: ModuleRun) -> None:
        self.records.append(record)

    def _on_failing(self, source: int, index: int, cause: str) -> None:
        """A rank of a group has failed; the others have to come to their end."""
        if self._stops and self.failure is None:
            self._stop(cause)
        else:
            self._hurry(self.schedule.runs[index], cause)

    def _on_ended(self, source: int, index: int, state: str, cause: str, counts: Counts) -> None:
        run = self.schedule.runs[index]
        self._board.counts[source] = counts
        self._board.waits.pop(source, None)
        run.busy.discard(source)
        if state != "done":
            self._states[index] = state
            if state == "failed" and self.failure is None and self._stops:
                self._stop(cause)
        if not run.busy:
            self._late.pop(index, None)
            self._note(self.schedule.ended(run, self._states.get(index, "done")))

    @property
    def _stops(self) -> bool:
        return self.workflow.on_failure == "stop"

    def _stop(self, cause: str) -> None:
        """End the workflow: nothing starts any more, what runs is told."""
        self.failure = Failure(cause)
        first = cause.partition("\n")[0]
        self._note(self.schedule.drop(first))
        for run in self.schedule.running():
            self._hurry(run, cause)

    def _hurry(self, run: Run, cause: str) -> None:
        """Tell a run to end, within the grace."""
        if run.index not in self._late:
            until = time.monotonic() + self.workflow.grace
            self._late[run.index] = _Late(until, cause)
            for rank in run.busy:
                self.line.post(rank, ANSWER, "stop", run.index, cause.partition("\n")[0])

    def _note(self, skipped: list[Run]) -> None:
        now = self._clock()
        self.records += [
            ModuleRun(r.module.name, r.copy, 0, (), "skipped", now, now, r.cause, turn=r.turn)
            for r in skipped
        ]

    def _check_late(self) -> None:
        """Abort the job where ranks do not come to their end after a failure."""
        now = time.monotonic()
        for index, late in self._late.items():
            if now > late.until:
                run = self.schedule.runs[index]
                self.line.communicator.abort(
                    f"{late.cause}\n  {run.title} has not ended within "
                    f"{self.workflow.grace:g} s after that, on ranks {sorted(run.busy)}"
                )

    # ---- Dead waiting

    def _check_asleep(self) -> None:
        """Wake up ranks that wait for what nobody can send any more, with an error."""
        busy = {rank for run in self.schedule.running() for rank in run.busy}
        if not self._board.asleep(busy):
            return
        lines = []
        for run in self.schedule.running():
            for rank in sorted(run.busy):
                lines.append(
                    f"{run.title}, on rank {rank}, waits for {self._board.waits[rank].what}"
                )
        lines += [
            f"{run.title} has not started, and needs {_needs(run)}"
            for run in self.schedule.pending()
        ]
        for rank in sorted(busy):
            wait = self._board.waits.pop(rank)
            others = [line for line in lines if f"on rank {rank}," not in line]
            text = f"{wait.what} can come from nobody any more"
            if others:
                text += ":\n" + "\n".join(others)
            else:
                text += ": all other modules have ended"
            self.line.post(rank, ANSWER, "dead", wait.ticket, text)


def _needs(run: Run) -> str:
    if run.module.after:
        return f"{', '.join(run.module.after)} to end, and {_ranks(run)}"
    return _ranks(run)


def _ranks(run: Run) -> str:
    fixed = run.module.fixed(run.copy)
    if fixed:
        return f"the ranks {list(fixed)}"
    count = run.module.processes
    return "a free rank" if count == 1 else f"{count} free ranks"
