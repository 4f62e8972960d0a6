"""The search: what is asked for is checked, put together, and run."""

from __future__ import annotations

import difflib
import functools
import math
import numbers
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import CommunicationError, ConfigError, message
from ..executors import executor_of, workers_of
from ..ir.cores import allowed_cores
from ..ir.launchers import is_started
from ..ir.ranks import current
from .engine import Engine, Limits, pickled, run_trials, unpickled
from .goal import Goal, goals_of
from .points import GridPoints, Points, Population, RandomPoints
from .result import SearchResult
from .space import Space
from .stopping import as_pruner, described, whole
from .trial import Objective, TrialResult, Work, short

__all__ = ["search"]

_METHODS = ("grid", "random", "tpe", "cmaes", "gp", "nsga2", "pbt")
_AHEAD = 4
_MEMBERS = 8


def search(
    objective: Objective,
    space: Mapping[str, Any],
    method: str = "random",
    executor: Any = "serial",
    *,
    minimize: Any = None,
    maximize: Any = None,
    trials: int | None = None,
    seconds: float | None = None,
    until: float | None = None,
    seed: int = 0,
    stop: Any = None,
    ahead: int | str | None = "auto",
    population: int | None = None,
    checkpoints: Any = None,
    journal: Any = None,
    failures: str = "record",
    retries: int = 1,
    workers: int | None = None,
    threads: int | None = None,
    timeout: float | None = None,
    progress: bool | None = None,
) -> SearchResult:
    """Try points of a space of hyperparameters, and find the best one.

    Parameters
    ----------
    objective : callable
        Called with a `Trial`, a mapping of the parameters. It returns a number, or a dict of
        numbers such as accuracy and loss; without a result, the last report stands for it. What it
        raises, and a goal that is not finite, is a failed trial.
    space : dict
        For each parameter `grid`, `choice`, `uniform`, `log_uniform` or `integers`; a list is a
        choice. `when` makes a parameter that exists only under some values of others.
    method : str
        "grid" tries all points. "random" draws them; those of a finite space come once each.
        Samplers of optuna learn which are promising: "tpe" (J. Bergstra et al., NIPS 2011),
        "cmaes" (needs cmaes), "gp" (needs torch) and "nsga2" (K. Deb et al., 2002). "pbt" is
        population based training (M. Jaderberg et al., 2017): `checkpoints` is where each trial
        writes ``trial.checkpoint``, and goes on from ``trial.resume``.
    executor : str, concurrent.futures.Executor or distributed.Client
        Who runs trials: "serial"; "process", processes of this machine; "mpi", the ranks of
        ``mpiexec``, of which rank 0 hands out; "dask", a cluster of this machine; the address of a
        scheduler of Dask or its client; or any executor. Points and results are the same.
    minimize, maximize : str, dict, callable, or list of these
        The goal: one of the numbers that the objective returns, weights for several, or a function
        of the dict of all. Unless said, the number that is returned, or "loss" of a dict, is
        minimized. "time", in seconds, is there unless the objective returns it. Several goals, in
        lists or by both arguments, are for the Pareto front: `SearchResult.front`.
    trials : int, optional
        So many points, failed ones included; needed where neither the space nor anything else
        ends the search.
    seconds : float, optional
        No trial starts later than this after the call; those that run come to their end.
    until : float, optional
        No trial starts once a goal is as good as this. The first trial that is, by number, is the
        last of the result.
    seed : int
        The same seed gives the same points.
    stop : str or object, optional
        What stops trials that do poorly: "median" (`Median`), "halving" (`Halving`), "hyperband",
        "percentile" (the worse three quarters), or a pruner of optuna. It needs an objective that
        calls `Trial.report` and `Trial.should_stop`, as the callback `Report` does for networks.
    ahead : int or None
        So many trials may run at once in a search that learns (by "tpe" or `stop`): trial i
        starts when all up to i - ahead have ended, and knows those alone, which makes searches
        repeatable. 4 unless said. None takes what is known at the moment, and waits for none.
    population : int, optional
        Members of a population: 8 of "pbt", 50 of "nsga2" unless said.
    checkpoints : path, optional
        With "pbt": the folder of the trials' checkpoints, which all workers see.
    journal : path, optional
        A file to which each start and end is written before it counts, as a study of optuna (a
        ``JournalStorage``). The same call goes on where it ends: no trial is lost, and those that
        were running are run again.
    failures : str
        "record" goes on; "raise" ends the search; "repeat" goes on, and first runs the failed
        trials of the journal again.
    retries : int
        How often a trial is tried again whose process died.
    workers : int, optional
        Trials at once; as many as the executor has workers unless said.
    threads : int, optional
        With "process": threads of each; its share of the cores unless said.
    timeout : float, optional
        With "process": seconds after which the process of a trial is ended, which has failed.
    progress : bool, optional
        Whether a line is printed for each trial; on a terminal unless said.

    Returns
    -------
    SearchResult
        On all ranks alike.

    Raises
    ------
    ConfigError
        If an argument makes no sense, the journal is that of another search, a goal is nothing
        that the objective returns, or the objective cannot be sent to other processes.
    TrialError
        If a trial fails, and ``failures="raise"``.
    DataError
        If the journal is damaged elsewhere than at its end.

    Examples
    --------
    >>> import magmagraph as mg
    >>> def objective(trial):
    ...     return {"loss": (trial["x"] - 0.3) ** 2 + trial["penalty"], "cost": trial["x"]}
    >>> space = {"x": mg.tune.grid(0, 1, step=0.1), "penalty": [0.0, 0.5]}
    >>> found = mg.tune.search(objective, space, method="grid")
    >>> found.best.params, len(found)
    ({'x': 0.3, 'penalty': 0.0}, 22)
    >>> found = mg.tune.search(objective, space, method="grid",
    ...                        minimize={"loss": 1.0, "cost": 0.5})
    >>> found.best.params
    {'x': 0.0, 'penalty': 0.0}
    >>> found = mg.tune.search(objective, space, method="grid", minimize=["loss", "cost"])
    >>> [trial.params["x"] for trial in found.front]
    [0.0, 0.1, 0.2, 0.3]
    """
    if not callable(objective):
        raise ConfigError(message(f"the objective {objective!r}", need="a function of a trial"))
    _one_of("method", method, _METHODS)
    _one_of("failures", failures, ("record", "raise", "repeat"))
    counts = {"trials": trials, "workers": workers, "threads": threads}
    whole(**{name: count for name, count in counts.items() if count is not None})
    whole("", 0, seed=seed, retries=retries)
    _positive(seconds=seconds, timeout=timeout)
    if ahead not in ("auto", None):
        whole(ahead=ahead)
    if until is not None and not (isinstance(until, numbers.Real) and math.isfinite(until)):
        raise ConfigError(message(f"until={until!r}", need="a finite number"))
    own = {"threads": threads, "timeout": timeout}
    options: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    is_processes = executor in ("process", "processes") if isinstance(executor, str) else False
    if not is_processes and options:
        name, value = next(iter(options.items()))
        raise ConfigError(
            message(f"{name}={value!r} with executor={executor!r}", need='executor="process"')
        )
    ranks = isinstance(executor, str) and executor == "mpi" and is_started()
    if isinstance(executor, str) and executor == "mpi" and not ranks and current().size > 1:
        raise ConfigError(message('executor="mpi" in ranks that are threads', hint='"serial"'))
    for name, path in (("journal", journal), ("checkpoints", checkpoints)):
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise ConfigError(message(f"{name}={path!r}", need="a path"))
    goals = goals_of(minimize, maximize)
    if len(goals) > 1:
        from . import optuna_parts  # noqa: F401  # optional: it finds the front, so it must be here

        for name, option in (("until", until), ("stop", stop)):
            if option is not None:
                raise ConfigError(
                    message(f"{name}={option!r} with {len(goals)} goals", need="a single goal")
                )
    parameters = Space(space)
    pruner = as_pruner(stop)
    most = _AHEAD if ahead == "auto" else ahead
    assert most is None or isinstance(most, int)
    points = _points(method, parameters, goals, seed, population, most, checkpoints, pruner)
    if points.total is None and trials is None and seconds is None and until is None:
        raise ConfigError(
            message(
                f"method={method!r} on this space never comes to an end",
                need="trials, seconds or until",
                hint="trials=50",
            )
        )
    learning = points.needs(0) != -1 or pruner is not None
    limits = Limits(
        trials, seconds, until, most if pruner is not None else 0, retries, failures == "raise"
    )
    work = Work(objective, parameters, seed, goals[0].maximize, goals[0].alone)
    task: Any = work
    if is_processes or executor == "mpi" or isinstance(executor, ProcessPoolExecutor):
        task = pickled(work)
        if is_processes:
            options["prepare"] = functools.partial(unpickled, task)
    header = {
        "objective": _qualname(objective),
        "method": method,
        "space": parameters.describe(),
        "goal": [goal.describe() for goal in goals],
        "seed": seed,
        "stop": described(pruner),
        "ahead": most if learning else None,
        "population": population,
    }
    watch = functools.partial(_print, goals) if _shows_progress(progress) else None
    at_once = population or _MEMBERS if method == "pbt" else most if learning else None

    def run(pool: Executor, count: int) -> tuple[list[TrialResult], list[int]]:
        book = None
        if journal is not None:
            from .journal import Journal  # needs optuna, which is optional

            book = Journal(journal, header, parameters)
        try:
            engine = Engine(
                parameters, points, pruner, goals, limits, book, watch, failures == "repeat"
            )
            if watch and engine.interrupted:
                print(f"cut off, and run again: trials {', '.join(map(str, engine.interrupted))}")
            run_trials(engine, task, pool, count)
        finally:
            if book is not None:
                book.close()
        return engine.found, engine.interrupted

    if workers is None and is_processes:
        workers = min(allowed_cores(), at_once or allowed_cores())
    with executor_of(executor, workers, **options) as pool:
        outcome: Any = None
        try:
            if pool is not None:
                count = workers_of(pool) if workers is None else workers
                if learning and method != "pbt":
                    _check_workers(count, most)
                outcome = run(pool, count)
        except Exception as error:
            if not ranks:
                raise
            outcome = error
    if ranks:
        outcome = _from_first(outcome, parameters)
    if isinstance(outcome, Exception):
        raise outcome
    return SearchResult(outcome[0], parameters, goals, outcome[1])


def _points(
    method: str, space: Space, goals: Sequence[Goal], seed: int, population: int | None,
    ahead: int | None, checkpoints: Any, pruner: Any,
) -> Points:  # fmt: skip
    if population is not None:
        whole("", 2, population=population)
    if population is not None and method not in ("pbt", "nsga2"):
        raise ConfigError(
            message(f"population={population} with method={method!r}", need='"nsga2" or "pbt"')
        )
    if method == "pbt":
        if checkpoints is None:
            raise ConfigError(
                message(
                    "method='pbt' without checkpoints=",
                    need="the folder in which trials write their checkpoints",
                    hint='checkpoints="population"',
                )
            )
        if len(goals) > 1 or pruner is not None:
            raise ConfigError(
                message("method='pbt' with several goals or stop=", need="one goal, and no stop=")
            )
        folder = Path(checkpoints).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                message(
                    f"checkpoints={str(checkpoints)!r}: {error.strerror}",
                    need="a folder that can be written to",
                )
            ) from None
        return Population(space, goals[0], seed, population or _MEMBERS, folder)
    if checkpoints is not None:
        raise ConfigError(
            message(f"checkpoints={str(checkpoints)!r} with method={method!r}", need='"pbt"')
        )
    if method == "grid":
        return GridPoints(space)
    if method == "random":
        return RandomPoints(space, seed)
    from .optuna_parts import LearnedPoints  # optional

    return LearnedPoints(method, space, goals, seed, population, ahead)


def _from_first(outcome: Any, space: Space) -> Any:
    """Return what rank 0 found, or raised, on all ranks."""
    ranks = current()
    bare = outcome
    if ranks.rank == 0:
        if isinstance(outcome, Exception):
            bare = _portable(outcome)
        else:  # options may be functions without a name: they travel as codes
            bare = [replace(trial, params={}) for trial in outcome[0]], outcome[1]
    bare = ranks.from_first(bare, "the result of a search")
    if ranks.rank == 0 or isinstance(bare, Exception):
        return outcome if ranks.rank == 0 else bare
    return [replace(t, params=space.values_of(t.codes)) for t in bare[0]], bare[1]


def _portable(error: Exception) -> Exception:
    """Return an error as it can travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickle raises many exception types
        return CommunicationError(f"rank 0: {type(error).__name__}: {error}")
    return error


def _check_workers(count: int, most: int | None) -> None:
    """Refuse workers that would never get a trial."""
    if most is not None and count > most:
        raise ConfigError(
            message(
                f"{count} workers, and ahead={most}: {count - most} of them would never work",
                need="trials that may run at once for all workers",
                hint=f"ahead={count}; points and stops then know that many trials less",
            )
        )


def _shows_progress(progress: bool | None) -> bool:
    return sys.stdout.isatty() if progress is None else progress


def _qualname(objective: Any) -> str:
    while isinstance(objective, functools.partial):
        objective = objective.func
    return str(getattr(objective, "__qualname__", type(objective).__qualname__))


def _print(goals: Sequence[Goal], result: TrialResult) -> None:
    point = ", ".join(f"{name}={short(value)}" for name, value in result.labels.items())
    numbers = zip(goals, result.goals or (), strict=False)
    outcome = ", ".join(f"{goal.name} {number:.6g}" for goal, number in numbers) or result.state
    if result.state == "failed":
        outcome = f"failed: {result.cause}"
    elif result.state == "stopped":
        outcome += " (stopped)"
    print(f"trial {result.number}: {point}: {outcome}, {result.seconds:.2f} s", flush=True)


def _one_of(name: str, value: Any, options: tuple[str, ...]) -> None:
    if value not in options:
        near = difflib.get_close_matches(str(value).lower(), options, 1, 0.65)
        raise ConfigError(
            message(
                f"{name}={value!r}",
                need=f"one of {', '.join(map(repr, options))}",
                hint=f"{name}={near[0]!r}" if near else None,
            )
        )


def _positive(**arguments: Any) -> None:
    for name, number in arguments.items():
        if number is None:
            continue
        if not isinstance(number, numbers.Real) or not 0 < float(number) < math.inf:
            raise ConfigError(message(f"{name}={number!r}", need="a positive number of seconds"))
