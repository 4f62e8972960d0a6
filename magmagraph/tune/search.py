"""The search: what is asked for is checked, put together, and run."""

from __future__ import annotations

import functools
import math
import numbers
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, message
from ..ir.ranks import current
from .engine import Engine, Limits, Work
from .goal import Goal
from .journal import Journal
from .points import GridPoints, Points, RandomPoints
from .processes import run_processes, run_serial
from .ranks import check_group, run_ranks
from .result import SearchResult
from .space import Space
from .stopping import Halving, Median, Never, Rule
from .trial import Objective, TrialResult

__all__ = ["search"]

_METHODS = ("grid", "random", "tpe")
_EXECUTORS = ("serial", "process", "mpi")
_AHEAD = 4


def search(
    objective: Objective,
    space: Mapping[str, Any],
    method: str = "random",
    executor: str = "serial",
    *,
    minimize: Any = None,
    maximize: Any = None,
    trials: int | None = None,
    seconds: float | None = None,
    until: float | None = None,
    seed: int = 0,
    stop: Any = None,
    ahead: int | str | None = "auto",
    journal: Any = None,
    failures: str = "record",
    retries: int = 1,
    workers: int | None = None,
    threads: int | None = None,
    timeout: float | None = None,
    group: int = 1,
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
        choice.
    method : str
        "grid" tries all points. "random" draws them; those of a finite space come once each.
        "tpe" learns which are promising (J. Bergstra et al., NIPS 2011; needs optuna).
    executor : str
        "serial"; "process", processes of this machine; or "mpi", the ranks of ``mpiexec``, of
        which rank 0 hands out. Points and results are the same.
    minimize, maximize : str, dict or callable
        The goal: one of the numbers that the objective returns, weights for several, or a function
        of the dict of all. Unless said, the number that is returned, or "loss" of a dict, is
        minimized. "time", in seconds, is there unless the objective returns it.
    trials : int, optional
        So many points, failed ones included; needed where neither the space nor anything else
        ends the search.
    seconds : float, optional
        No trial starts later than this after the call; those that run come to their end.
    until : float, optional
        No trial starts once a goal is as good as this.
    seed : int
        The same seed gives the same points.
    stop : str or object, optional
        What stops trials that do poorly: "median" (`Median`), "halving" (`Halving`), or a pruner
        of optuna. It needs an objective that calls `Trial.report` and `Trial.should_stop`, as the
        callback `Report` does for networks.
    ahead : int or None
        So many trials may run at once in a search that learns (by "tpe" or `stop`): trial i
        starts when all up to i - ahead have ended, and knows those alone, which makes searches
        repeatable. 4 unless said. None takes what is known at the moment, and waits for none.
    journal : path, optional
        A file to which each start and end is written before it counts. The same call goes on where
        it ends: no trial is lost, and those that were running are run again.
    failures : str
        "record" goes on; "raise" ends the search; "repeat" goes on, and first runs the failed
        trials of the journal again.
    retries : int
        How often a trial is tried again whose process died.
    workers : int, optional
        Processes; as many as there are cores (and `ahead`) unless said.
    threads : int, optional
        Threads of each process; its share of the cores unless said.
    timeout : float, optional
        Seconds after which the process of a trial is ended, and the trial has failed.
    group : int
        With "mpi": so many ranks run each trial together. ``trial.communicator`` is theirs, and
        the current one while the objective runs.
    progress : bool, optional
        Whether a line is printed for each trial; on a terminal unless said.

    Returns
    -------
    SearchResult
        On all ranks alike.

    Raises
    ------
    ConfigError
        If an argument makes no sense, the journal is that of another search, the goal is nothing
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
    """
    if not callable(objective):
        raise ConfigError(message(f"the objective {objective!r}", need="a function of a trial"))
    _one_of("method", method, _METHODS)
    _one_of("executor", executor, _EXECUTORS)
    _one_of("failures", failures, ("record", "raise", "repeat"))
    _whole(trials=trials, workers=workers, threads=threads, group=group)
    _whole(least=0, seed=seed, retries=retries)
    _positive(seconds=seconds, timeout=timeout)
    if ahead not in ("auto", None):
        _whole(ahead=ahead)
    if until is not None and not (isinstance(until, numbers.Real) and math.isfinite(until)):
        raise ConfigError(message(f"until={until!r}", need="a finite number"))
    if executor != "process" and not (workers is threads is timeout is None):
        given = {"workers": workers, "threads": threads, "timeout": timeout}
        name = next(name for name, value in given.items() if value is not None)
        raise ConfigError(
            message(f"{name}={given[name]!r} with executor={executor!r}", need='executor="process"')
        )
    if executor != "mpi" and group != 1:
        raise ConfigError(message(f"group={group} with executor={executor!r}", hint='"mpi"'))
    goal = Goal.of_arguments(minimize, maximize)
    parameters = Space(space)
    rule = _as_rule(stop)
    points = _points(method, parameters, seed, goal)
    if points.total is None and trials is None and seconds is None and until is None:
        raise ConfigError(
            message(
                f"method={method!r} on this space never comes to an end",
                need="trials, seconds or until",
                hint="trials=50",
            )
        )
    learning = points.learns or not isinstance(rule, Never)
    limits = Limits(
        trials,
        seconds,
        until,
        _AHEAD if ahead == "auto" else ahead,  # type: ignore[arg-type]
        retries,
        failures == "raise",
    )
    work = Work(objective, parameters, seed, goal.maximize, goal.alone)
    header = _header(objective, method, parameters, goal, seed, rule)
    header["ahead"] = limits.ahead if learning else None
    shown = sys.stdout.isatty() if progress is None else progress

    def engine() -> Engine:
        book = None if journal is None else Journal(journal, header)
        try:
            made = Engine(
                parameters,
                points,
                rule,
                goal,
                limits,
                book,
                functools.partial(_print, goal) if shown else None,
                failures == "repeat",
            )
            if book is not None:
                about = {"executor": executor, "host": socket.gethostname(), "process": os.getpid()}
                book.session(**about, again=made.interrupted)
        except BaseException:
            if book is not None:
                book.close()
            raise
        if shown and made.interrupted:
            print(f"cut off, and run again: trials {', '.join(map(str, made.interrupted))}")
        return made

    communicator = current() if executor == "mpi" else None
    if communicator is not None and communicator.size > 1:
        check_group(communicator, group)
        found, interrupted = run_ranks(engine, work, communicator, group)
        return SearchResult(found, parameters, goal, interrupted)
    if communicator is not None and group != 1:
        check_group(communicator, group)
    here = engine()
    try:
        if executor == "process":
            run_processes(here, work, workers, threads, timeout)
        else:
            run_serial(here, work)
    finally:
        here.close()
    results = [here.results[number] for number in sorted(here.results)]
    return SearchResult(results, parameters, goal, here.interrupted)


def _points(method: str, space: Space, seed: int, goal: Goal) -> Points:
    if method == "grid":
        return GridPoints(space)
    if method == "random":
        return RandomPoints(space, seed)
    from .optuna_search import TpePoints

    return TpePoints(space, seed, goal)


def _header(
    objective: Any, method: str, space: Space, goal: Goal, seed: int, rule: Rule
) -> dict[str, Any]:
    """Return what makes a search the same search."""
    while isinstance(objective, functools.partial):
        objective = objective.func
    return {
        "objective": getattr(objective, "__qualname__", type(objective).__qualname__),
        "method": method,
        "space": space.describe(),
        "goal": goal.describe(),
        "seed": seed,
        "stop": rule.describe(),
    }


def _print(goal: Goal, found: TrialResult) -> None:
    point = ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in found.labels.items()
    )
    told = found.state if found.goal is None else f"{goal.name} {found.goal:.6g}"
    if found.state == "failed":
        told = f"failed: {found.cause}"
    elif found.state == "stopped":
        told += " (stopped)"
    print(f"trial {found.number}: {point}: {told}, {found.seconds:.2f} s", flush=True)


def _one_of(name: str, given: Any, options: tuple[str, ...]) -> None:
    if given not in options:
        raise ConfigError(
            message(f"{name}={given!r}", need=f"one of {', '.join(map(repr, options))}")
        )


def _whole(least: int = 1, **given: Any) -> None:
    for name, number in given.items():
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ConfigError(message(f"{name}={number!r}", need=f"an int of at least {least}"))


def _positive(**given: Any) -> None:
    for name, number in given.items():
        if number is None:
            continue
        if not isinstance(number, numbers.Real) or not 0 < float(number) < math.inf:
            raise ConfigError(message(f"{name}={number!r}", need="a positive number of seconds"))


def _as_rule(given: Any) -> Rule:
    """Return the rule of the argument `stop`.

    Raises
    ------
    ConfigError
        If it is none.
    """
    if given is None:
        return Never()
    if isinstance(given, str) and given in ("median", "halving"):
        return Median() if given == "median" else Halving()
    if isinstance(given, (Median, Halving)):
        return given
    if type(given).__module__.partition(".")[0] == "optuna":
        from .optuna_search import Pruner  # optuna is optional

        return Pruner(given)
    raise ConfigError(
        message(
            f"stop={given!r}",
            need="'median', 'halving', mg.tune.Median, mg.tune.Halving or a pruner of optuna",
        )
    )
