"""Run a workflow: submit each module to an executor when what it comes after is done."""

from __future__ import annotations

import graphlib
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, cast

from ..errors import CommunicationError, ConfigError, MagmagraphError, message
from ..executors import Processes, Serial, executor_of, workers_of
from ..ir.ranks import current
from ..ir.types import FilePath
from .file import parse, text_of
from .modules import Module, Workflow
from .result import ModuleRun, Result, WorkflowError
from .space import Server, start
from .store import Space
from .worker import Job, Outcome, run_copy

__all__ = ["run"]

_STATES = ("done", "stopped", "failed")
_LOOK = 0.25  # seconds between two looks at iterations, where somebody watches


def run(
    path: FilePath,
    output: str | os.PathLike[str] | None = None,
    *,
    executor: Any = None,
    workers: int | None = None,
    watch: Callable[[ModuleRun], object] | None = None,
) -> Result:
    r"""Run the workflow of a file.

    Parameters
    ----------
    path
        Of the TOML file.
    output
        The folder of what modules write, in the place of the file's.
    executor
        What runs modules: "serial", "process", "mpi", "dask", the address of a scheduler of Dask,
        a client of Dask, or an executor of `concurrent.futures`. By default "mpi" under
        ``mpiexec``, where all ranks call this, and "serial" elsewhere.
    workers
        How many modules run at once: each copy occupies as many workers as it has processes.
    watch
        Called, on the process that submits, with the record of each run that is "waiting",
        "running", or has ended; of several iterations, with each. It may be called from another
        thread, and should be quick.

    Returns
    -------
    Result
        Under MPI the same on all ranks.

    Raises
    ------
    ConfigError
        The file is wrong, or there are too few workers; nothing has started.
    WorkflowError
        A module failed, with its name, copy, iteration, rank and cause; `WorkflowError.result`
        holds what ran. With ``on_failure = "continue"`` it is in the result instead.

    Notes
    -----
    With "mpi", rank 0 starts modules on the other ranks: start one more.

    Examples
    --------
    >>> import magmagraph as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flow.toml")
    >>> _ = path.write_text('[modules.greet]\ncommand = ["{python}", "-c", "print(1)"]\n')
    >>> found = mg.workflow.run(path)
    >>> [(run.module, run.status) for run in found.runs]
    [('greet', 'done')]
    >>> pathlib.Path(found.runs[0].output).read_text()
    '1\n'
    """
    ranks = current()
    mpi = ranks.size > 1 and executor in (None, "mpi")
    if mpi and ranks.kind == "threads":
        raise ConfigError(
            message(
                f"workflow.run is called on {ranks.size} ranks that are threads",
                need="ranks of MPI, or one call with an executor",
                hint="executor=concurrent.futures.ThreadPoolExecutor(4)",
            )
        )
    spec = executor or ("mpi" if mpi else "serial")
    workflow = _checked(path, output, ranks.size - 1 if mpi else None) if ranks.rank == 0 else None
    if mpi:
        workflow = _raised(ranks.from_first(workflow, "the workflow file"))
    outcome: Result | MagmagraphError = Result("", (), 0)
    with executor_of(spec, workers) as pool:
        if pool is not None:  # on rank 0
            engine = "ranks" if mpi else _engine_of(pool)
            outcome = _Driver(_raised(workflow), pool, engine, workers, watch).outcome()
    if mpi:
        outcome = ranks.from_first(outcome, "the end of a workflow")
    return cast(Result, _raised(outcome))


def _engine_of(pool: Executor) -> str:
    """Return the engine of an executor."""
    if isinstance(pool, Serial):
        return "serial"
    threads = isinstance(pool, ThreadPoolExecutor) and not isinstance(pool, Processes)
    return "threads" if threads else "processes"


def _start_server(space: Space, number: int, count: int, key: bytes, host: str) -> Server:
    """Start a server on this worker, and return when all others have started theirs."""
    address = start(key, host)
    space.ask(space.board.meet, "servers", count, number, None)
    return address


def _raised(value: Any) -> Any:
    if isinstance(value, MagmagraphError):
        raise value
    return value


def _checked(
    path: FilePath, output: str | os.PathLike[str] | None, workers: int | None
) -> Workflow | ConfigError:
    """Return the workflow of a file whose functions and programs are there, or what is wrong."""
    try:
        workflow = parse(text_of(path), path)
        if output is not None:
            workflow = replace(workflow, output=Path(output).resolve())
        if workers is not None:
            least = workflow.least_workers + 1
            workflow.check_workers(
                workers, f"mpiexec -n {least} magmagraph workflow run {workflow.source}"
            )
        workflow.check()
    except ConfigError as error:
        return error
    return workflow


@dataclass
class _Run:
    """A copy of a module in one turn: waiting, or with workers."""

    index: int
    module: Module
    copy: int
    turn: int
    ranks: tuple[int, ...] = ()
    start: float = 0.0
    futures: list[Future[Outcome]] = field(default_factory=list)
    cause: str = ""  # why it has to end
    late: float = inf  # when it has to have ended

    @property
    def title(self) -> str:
        return self.module.title(self.copy, self.turn)

    @property
    def needs(self) -> str:
        """Why it has not started, for people."""
        count = self.module.processes
        workers = "a free worker" if count == 1 else f"{count} free workers"
        after = f"{', '.join(self.module.after)} to end, and " if self.module.after else ""
        return f"{self.title} has not started, and needs {after}{workers}"


class _Driver:
    """Submits what can start, and waits for what runs."""

    def __init__(
        self,
        workflow: Workflow,
        pool: Executor,
        engine: str,
        workers: int | None,
        watch: Callable[[ModuleRun], object] | None,
    ) -> None:
        self.workflow, self.pool = workflow, pool
        self.engine = engine
        most = current().size - 1 if engine == "ranks" else workers_of(pool)
        self.workers = most if engine in ("serial", "ranks") else workers or most
        workflow.check_workers(self.workers)
        self.zero = time.time()
        self.records: list[ModuleRun] = []
        self.failure = ""
        self.failures = 0
        self.count = 0
        self.free = list(range(self.workers))
        self.running: list[_Run] = []
        self.pending: list[_Run] = []
        self.bad: dict[str, str] = {}  # why what comes after a module of this turn is skipped
        self.watch, self.told = watch, set[tuple[Any, ...]]()
        self.telling = threading.RLock()
        self.space = self._space()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.time() - self.zero

    def outcome(self) -> Result | WorkflowError:
        """Run all turns."""
        over = threading.Event()
        follower = threading.Thread(target=self._follow, args=(over,), daemon=True)
        if self.watch is not None:
            follower.start()
        try:
            for turn in range(self.workflow.iterations):
                self._turn(turn)
                self.space.ask(self.space.board.forget, turn)
                if self.failure or self.space.ask(self.space.board.is_last):
                    break
        except BaseException:
            self._stop([run.index for run in self.running], "the workflow was interrupted")
            raise
        finally:
            over.set()
            if self.watch is not None:
                follower.join()
            self.space.end()
        result = self._result()
        return WorkflowError(self.failure, result) if self.failure else result

    def _result(self) -> Result:
        count = current().size if self.engine == "ranks" else self.workers
        return Result(self.workflow.name, self.records, count)

    def _space(self) -> Space:
        """Start the servers: the metadata server here, the others on different workers."""
        if self.engine in ("serial", "threads"):
            return Space(None, self.workflow.servers, b"")
        key = secrets.token_bytes(32)
        one_host = isinstance(self.pool, (ProcessPoolExecutor, Processes))
        host = "" if one_host else platform.node()
        board, count = start(key, host), self.workflow.servers
        space = Space(board, (), key)
        futures = [
            self.pool.submit(_start_server, space, i, count, key, host) for i in range(count)
        ]
        return Space(board, tuple(future.result() for future in futures), key) if count else space

    def _turn(self, turn: int) -> None:
        """Run all modules once."""
        modules = self.workflow.modules
        order = graphlib.TopologicalSorter({name: m.after for name, m in modules.items()})
        order.prepare()
        copies = [(module, copy) for module in modules.values() for copy in range(module.copies)]
        self.pending = [_Run(self.count + i, *of, turn) for i, of in enumerate(copies)]
        self.count += len(copies)
        self.bad = {}
        for run in self.pending:
            self._tell(self._of(run, 0, (), "waiting", "", self.now, self.now))
        left = {name: module.copies for name, module in modules.items()}
        ready: set[str] = set()
        while self.pending or self.running:
            ready.update(order.get_ready())
            closed = self._skipped(ready)
            if not closed:
                self._start(ready)
                closed = self._ended()
            for name in (run.module.name for run in closed):
                left[name] -= 1
                if not left[name] and name in ready:
                    order.done(name)

    def _skipped(self, ready: set[str]) -> list[_Run]:
        """Skip everything after a failure that stops the workflow, or what comes after one."""
        skipped = []
        for run in self.pending:
            after = (f"it comes after {self.bad[n]}" for n in run.module.after if n in self.bad)
            cause = self.failure or (next(after, "") if run.module.name in ready else "")
            if cause:
                skipped.append(run)
                self.bad.setdefault(run.module.name, f"{run.title}, which was skipped")
                first, now = cause.partition("\n")[0], self.now
                self._record(self._of(run, 0, (), "skipped", first, now, now))
        self.pending = [run for run in self.pending if run not in skipped]
        return skipped

    def _start(self, ready: set[str]) -> None:
        """Submit what there are workers for, in the order of the file."""
        starting = []
        for run in self.pending:
            count = run.module.processes
            if run.module.name in ready and count <= len(self.free):
                run.ranks, self.free = tuple(self.free[:count]), self.free[count:]
                starting.append(run)
        self.pending = [run for run in self.pending if run not in starting]
        self.running += starting
        # A worker that waits is to find all others that run here already.
        ranks = {r.index: 1 if r.module.command else r.module.processes for r in self.running}
        self.space.ask(self.space.board.running, ranks, [run.needs for run in self.pending])
        for run in starting:
            run.start = self.now
            self._tell(self._of(run, 0, run.ranks, "running", "", run.start, run.start))
            several = self.engine == "ranks" and not run.module.command
            for place in range(run.module.processes if several else 1):
                job = Job(
                    self.workflow, run.module, run.copy, run.turn, run.index, run.ranks, place,
                    self.engine, self.failures, self.space, self.zero,
                )  # fmt: skip
                run.futures.append(self._submit(job))

    def _submit(self, job: Job) -> Future[Outcome]:
        try:
            return self.pool.submit(run_copy, job)
        except (BrokenExecutor, RuntimeError) as error:  # a pool whose workers have died
            failed: Future[Outcome] = Future()
            failed.set_exception(error)
            return failed

    def _ended(self) -> list[_Run]:
        """Wait until a run has ended; return those that have."""
        late = min(run.late for run in self.running)
        open_futures = [f for run in self.running for f in run.futures if not f.done()]
        if all(any(not f.done() for f in run.futures) for run in self.running):
            wait(open_futures, None if late == inf else max(0, late - self.now), FIRST_COMPLETED)
        for run in self.running:
            failed = [cause for state, cause in self._outcomes(run) if state == "failed"]
            if failed and not self.failure and self.workflow.on_failure == "stop":
                self.failure = failed[0]
                for other in self.running:
                    self._hurry(other, failed[0])
            elif failed:
                self._hurry(run, failed[0])
        ended = [run for run in self.running if all(f.done() for f in run.futures)]
        self.running = [run for run in self.running if run not in ended]
        for run in ended:
            self._close(run)
        for run in self.running:
            if self.now > run.late:
                self._give_up(run)
        return ended

    def _outcomes(self, run: _Run) -> list[Outcome]:
        """Return what became of the ranks of a run that have ended."""
        outcomes: list[Outcome] = []
        for future in run.futures:
            if future.done():
                try:
                    outcomes.append(future.result())
                except Exception as error:  # of the executor: a worker that died, above all
                    outcomes.append(("failed", f"{run.title}: {type(error).__name__}: {error}"))
        return outcomes

    def _close(self, run: _Run) -> None:
        """Record the iterations of a run that has ended, and free its workers."""
        self.free = sorted({*self.free, *run.ranks})
        outcomes = self._outcomes(run)
        state, cause = max(outcomes, key=lambda outcome: _STATES.index(outcome[0]))
        attempt, ended = self._iterations(run)
        for record in ended:
            self._record(record)
        if state != "done":
            self.failures += 1
            self.bad.setdefault(
                run.module.name,
                f"{run.title}, which " + ("failed" if state == "failed" else f"was {state}"),
            )
            if all(record.status == "done" for record in ended):
                last = self._of(run, len(ended), run.ranks, state, cause, run.start, self.now)
                self._record(replace(last, attempt=max(1, attempt)))

    def _iterations(self, run: _Run, ranks: int = 1) -> tuple[int, list[ModuleRun]]:
        """Return how often a run has begun, and its iterations that as many ranks have ended."""
        attempt, notes = self.space.ask(self.space.board.notes, run.index)
        records = []
        for iteration in sorted({iteration for iteration, _ in notes}):
            own = [note for (i, _), note in sorted(notes.items()) if i == iteration]
            if len(own) >= ranks:
                worst = max(own, key=lambda note: _STATES.index(note[1]))
                records.append(replace(self._of(run, iteration, *worst), attempt=attempt))
        return attempt, records

    def _of(
        self,
        run: _Run,
        iteration: int,
        ranks: Sequence[int],
        status: str,
        cause: str,
        start: float,
        end: float,
        output: str = "",
        value: Any = None,
    ) -> ModuleRun:
        """Return the record of an iteration of a run."""
        return ModuleRun(
            run.module.name, run.copy, iteration, tuple(ranks), status, start, end, cause, output,
            run.turn, run.module.point(run.copy), value,
        )  # fmt: skip

    def _record(self, record: ModuleRun) -> None:
        self.records.append(record)
        self._tell(record)

    def _tell(self, record: ModuleRun) -> None:
        """Call who watches, once for each iteration, status and attempt."""
        key = record.module, record.copy, record.turn, record.iteration, record.status
        with self.telling:
            if self.watch is not None and (*key, record.attempt) not in self.told:
                self.told.add((*key, record.attempt))
                self.watch(record)

    def _follow(self, over: threading.Event) -> None:
        """Tell of iterations that end while their run goes on, and of runs that begin again."""
        while not over.wait(_LOOK):
            for run in list(self.running):
                count = 1 if run.module.command else run.module.processes
                try:
                    attempt, ended = self._iterations(run, count)
                except CommunicationError:  # the driver meets it, too
                    return
                if attempt and len(ended) < run.module.iterations:
                    ranks, start = run.ranks, run.start
                    if ended:  # with the ranks that an executor has chosen
                        ranks, start = ended[-1].ranks, ended[-1].end
                    again = self._of(run, len(ended), ranks, "running", "", start, start)
                    ended.append(replace(again, attempt=attempt))
                with self.telling:  # so that no record follows the end of a run
                    for record in ended if run in self.running else ():
                        self._tell(record)

    def _hurry(self, run: _Run, cause: str) -> None:
        """Let a run end within the grace."""
        if run.late == inf:
            run.late, run.cause = self.now + self.workflow.grace, cause
            self._stop([run.index], cause.partition("\n")[0])

    def _give_up(self, run: _Run) -> None:
        """End the workers of a run that has not ended within the grace."""
        text = (
            f"{run.cause}\n  {run.title} has not ended within {self.workflow.grace:g} s after "
            f"that, on ranks {list(run.ranks)}"
        )
        if self.engine == "ranks":
            current().abort(text)
        for future in (f for other in self.running for f in other.futures):
            future.cancel()
        if isinstance(self.pool, Processes):
            self.pool.kill()
        for process in list(getattr(self.pool, "_processes", {}).values()):
            process.kill()
        for other in self.running:
            self._record(self._of(other, 0, other.ranks, "stopped", text, other.start, self.now))
        raise WorkflowError(text, self._result())

    def _stop(self, runs: list[int], cause: str) -> None:
        self.space.ask(self.space.board.stop, runs, cause)
