"""What a search found: the best trial, all of them, tables and files."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, message
from ..files.reading import Damaged, reading
from ..files.writing import replace_file, write_file
from ..inspect.pictures.svg import FONT
from ..ir.frames import data_frame
from ..ir.html import Displayed, preformatted, table_html
from ..ir.tables import table
from ..ir.types import FilePath
from .goal import Goal
from .space import Space
from .trial import TrialResult, short

__all__ = ["SearchResult", "read"]

_SHOWN = 10  # trials in the text of a result
_MOST_ROWS = 500
_PICTURES = {
    "optimization_history": "Progress",
    "parallel_coordinate": "All parameters",
    "slice": "Each parameter",
}


class SearchResult(Displayed):
    """The trials of a search, by number.

    Attributes
    ----------
    trials : list of TrialResult
        All that have ended.
    interrupted : list of int
        Trials that an earlier process had left running, and that were run again.
    space : Space
        The parameters, by name.
    goals : tuple of Goal
        What was minimized or maximized.

    Examples
    --------
    >>> import magmagraph as mg
    >>> found = mg.tune.search(lambda trial: trial["x"] ** 2, {"x": mg.tune.grid(-1, 2)},
    ...                        method="grid")
    >>> found.best.params, found.best.goal
    ({'x': 0}, 0.0)
    >>> len(found.trials), [trial.goal for trial in found.ranked()]
    (4, [0.0, 1.0, 1.0, 4.0])
    """

    def __init__(
        self,
        trials: Sequence[TrialResult],
        space: Space,
        goals: Sequence[Goal],
        interrupted: Sequence[int] = (),
    ) -> None:
        self.trials = list(trials)
        self.space, self.goals = space, tuple(goals)
        self.interrupted = list(interrupted)

    @property
    def best(self) -> TrialResult:
        """The best trial that came to its end; the first of equals.

        Raises
        ------
        DataError
            If there is none, or the search has several goals.
        """
        if len(self.goals) > 1:
            raise DataError(
                message(
                    f"a search of {len(self.goals)} goals has no best trial",
                    hint="found.front, the trials that no other is better than in all goals",
                )
            )
        ranked = self.ranked()
        if not ranked:
            failed = next((trial for trial in self.trials if trial.error), None)
            last = "" if failed is None else f"; trial {failed.number}:\n{failed.error.rstrip()}"
            raise DataError(
                message(
                    f"none of {len(self.trials)} trials came to its end{last}",
                    hint='failures="raise" shows the first failure at once',
                )
            )
        return ranked[0]

    @property
    def front(self) -> list[TrialResult]:
        """The Pareto front by number: no trial is as good in all goals and better in one.

        It is that of optuna's study (``Study.best_trials``).

        Examples
        --------
        >>> import magmagraph as mg
        >>> def objective(trial):
        ...     return {"error": 1 / trial["size"], "time": float(trial["size"] // 4)}
        >>> found = mg.tune.search(objective, {"size": mg.tune.grid(1, 9)}, "grid",
        ...                        minimize=["error", "time"])
        >>> [trial.params["size"] for trial in found.front]
        [3, 7, 9]
        """
        if not any(trial.state == "done" for trial in self.trials):
            return []
        by_number = {trial.number: trial for trial in self.trials}
        best = self.to_optuna().best_trials
        return [by_number[number] for number in sorted(t.user_attrs["trial"] for t in best)]

    def ranked(self) -> list[TrialResult]:
        """Return the trials that came to their end, the best first; of several goals, the front."""
        done = [trial for trial in self.trials if trial.state == "done"]
        if len(self.goals) > 1:
            front = self.front
            return [*front, *(trial for trial in done if trial not in front)]
        sign = -1.0 if self.goals[0].maximize else 1.0
        return sorted(done, key=lambda trial: (sign * (trial.goal or 0.0), trial.number))

    def count(self, state: str) -> int:
        """Return how many trials are "done", "stopped" or "failed"."""
        return sum(trial.state == state for trial in self.trials)

    def columns(self) -> list[str]:
        """Return the names of all values that trials returned."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.values))

    def rows(self, trials: Sequence[TrialResult]) -> list[tuple[str, ...]]:
        """Return a table: a head, and a row for each trial."""
        goals = [goal.name for goal in self.goals]
        values = [name for name in self.columns() if name not in ("time", *goals)]
        rows = [("trial", *self.space, *goals, *values, "seconds", "state")]
        for trial in trials:
            numbers = [
                *_padded(trial.goals, len(goals), None),
                *(trial.values.get(name) for name in values),
            ]
            rows.append(
                (
                    str(trial.number),
                    *(short(trial.labels.get(name)) for name in self.space),
                    *(short(number) for number in numbers),
                    f"{trial.seconds:.2f}",
                    trial.state,
                )
            )
        return rows

    def summary(self) -> str:
        """Return what happened, in a line or two."""
        parts = [f"{self.count('done')} done"]
        parts += [f"{n} {state}" for state in ("stopped", "failed") if (n := self.count(state))]
        aims = [f"the {'largest' if g.maximize else 'least'} {g.name}" for g in self.goals]
        end = f"{aims[0]} is best" if len(aims) == 1 else (
            f"{', '.join(aims)}: {len(self.front)} on the Pareto front")  # fmt: skip
        lines = [f"{len(self.trials)} trials ({', '.join(parts)}), {end}"]
        failed = next((trial for trial in self.trials if trial.error), None)
        if failed is not None:
            lines.append(f"trial {failed.number} failed: {failed.cause}")
        if self.interrupted:
            again = ", ".join(map(str, self.interrupted))
            lines.append(f"left running by an earlier process, and run again: {again}")
        return "\n".join(lines)

    def to_csv(self, path: FilePath) -> None:
        """Write all trials to a file of comma-separated values, by number.

        The columns are the trial's number, its state, the parameters, the goals, all values that
        were returned, the seconds, how often it was started, and the cause of a failure.

        Parameters
        ----------
        path
            Of the file, which is whole or not there.
        """
        values, single = self.columns(), len(self.goals) == 1
        names = ["goal"] if single else [f"goal {goal.name}" for goal in self.goals]
        with (
            replace_file(Path(path)) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                ["trial", "state", *self.space, *names, *values, "seconds", "attempts", "error"]
            )
            for trial in self.trials:
                writer.writerow(
                    [
                        trial.number,
                        trial.state,
                        *(trial.labels.get(name, "") for name in self.space),
                        *_padded(trial.goals, len(names), ""),
                        *(trial.values.get(name, "") for name in values),
                        trial.seconds,
                        trial.attempts,
                        trial.cause,
                    ]
                )

    def report(self, path: FilePath, title: str = "Hyperparameter search") -> None:
        """Write a page that shows the search: one HTML file, which needs nothing else.

        Parameters
        ----------
        path
            Of the file, which is whole or not there.
        title
            What stands above it.
        """
        write_file(path, _page(self, title))

    def to_optuna(self) -> Any:
        """Return the trials as an ``optuna.Study``, which ``optuna.visualization`` draws.

        Examples
        --------
        >>> import magmagraph as mg
        >>> found = mg.tune.search(lambda trial: trial["x"] ** 2, {"x": mg.tune.grid(-1, 2)})
        >>> found.to_optuna().best_params
        {'x': 0}
        """
        from .optuna_parts import optuna, quiet, shown_as, state_of, study_of  # optional

        with quiet():
            study = study_of(self.goals)
            for trial in self.trials:
                done = trial.state == "done"
                study.add_trial(
                    optuna.trial.create_trial(
                        state=state_of(trial.state),
                        values=trial.goals if done else None,
                        params=trial.labels,
                        distributions=shown_as(self.space, trial.labels),
                        intermediate_values=dict(trial.reports),
                        user_attrs={
                            "trial": trial.number, "seconds": trial.seconds, **trial.values
                        },
                    )
                )  # fmt: skip
        return study

    def __len__(self) -> int:
        return len(self.trials)

    def to_frame(self) -> Any:
        """Return the trials as a ``pandas.DataFrame``: a row for each, by number.

        The columns are the state, the parameters, the goals, the values that were returned, and
        the seconds.

        Raises
        ------
        MissingLibraryError
            pandas is not installed.
        """
        goals = [goal.name for goal in self.goals]
        values = [name for name in self.columns() if name not in goals]
        return data_frame(
            {
                "trial": trial.number,
                "state": trial.state,
                **{name: trial.labels.get(name) for name in self.space},
                **dict(zip(goals, _padded(trial.goals, len(goals), None), strict=True)),
                **{name: trial.values.get(name) for name in values},
                "seconds": trial.seconds,
            }
            for trial in self.trials
        ).set_index("trial")

    def _html(self) -> str:
        first = self.ranked()[:_SHOWN]
        rows = table_html(self.rows(first), left=()) if first else ""
        return preformatted(self.summary()) + rows

    def __str__(self) -> str:
        first = self.ranked()[:_SHOWN]
        text = self.summary()
        return f"{text}\n{table(self.rows(first), left=())}" if first else text

    def __repr__(self) -> str:
        ranked = self.ranked()
        if len(self.goals) > 1:
            best = f", {len(self.front)} on the Pareto front"
        else:
            best = f", best {ranked[0].goal:.6g} at {ranked[0].labels}" if ranked else ""
        return f"<search of {len(self.trials)} trials{best}>"


def _padded(goals: list[float] | None, count: int, empty: Any) -> list[Any]:
    """Return the goals of a trial, or as many empty cells."""
    return [empty] * count if goals is None else list(goals)


def read(path: FilePath) -> tuple[SearchResult, list[int]]:
    """Read a journal: what has ended, and which trials run, or ran when the search was cut.

    Parameters
    ----------
    path
        Of the journal; the search may still be writing it.

    Returns
    -------
    tuple
        A `SearchResult`, whose trials have labels in the place of parameters, and the numbers of
        trials without an end.

    Raises
    ------
    DataError
        If it is no journal of a search, or is damaged elsewhere than at its end.

    Examples
    --------
    >>> import magmagraph as mg, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "search.jsonl")
    >>> found = mg.tune.search(lambda trial: trial["x"], {"x": [3, 1, 2]}, journal=path)
    >>> mg.tune.read(path)[0].best.labels
    {'x': 1}
    """
    from .journal import read_journal  # needs optuna, which is optional

    header, events = read_journal(path)
    with reading(path, "is not the journal of a search"):
        space = Space.described(header["space"])
        trials = [
            event.result(number, event.params)
            for number, event in sorted(events.items())
            if event.end is not None
        ]
        if any(set(space.labels_of(trial.codes)) != set(trial.params) for trial in trials):
            raise Damaged("a trial has other parameters than the search")
        goals = [Goal(goal["form"], goal["better"] == "more") for goal in header["goal"]]
        if any(trial.goals is not None and len(trial.goals) != len(goals) for trial in trials):
            raise Damaged("a trial has other goals than the search")
    running = sorted(number for number, event in events.items() if event.end is None)
    return SearchResult(trials, space, goals), running


def _page(result: SearchResult, title: str) -> str:
    """Return the page of a search; with pictures where optuna and matplotlib are installed."""
    ranked = result.ranked()
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(result.summary())}</p>"]
    if ranked:
        best = ranked[0]
        if best.goals is not None and len(best.goals) == 1:
            point = ", ".join(f"{name} = {short(value)}" for name, value in best.labels.items())
            parts.append(
                f"<p><b>Best: {escape(result.goals[0].name)} {best.goals[0]:.6g}</b> at "
                f"{escape(point)} (trial {best.number}, {best.seconds:.2f} s)</p>"
            )
        parts += _pictures(result)
    parts += ["<h2>Trials</h2>", _table(result)]
    failed = [trial for trial in result.trials if trial.error]
    if failed:
        parts.append("<h2>Failures</h2>")
        parts += [
            f"<details><summary>trial {trial.number}: "
            f"{escape(trial.cause)}</summary>"
            f"<pre>{escape(trial.error)}</pre></details>"
            for trial in failed[:_MOST_ROWS]
        ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _pictures(result: SearchResult) -> list[str]:
    """Return the pictures of `optuna.visualization.matplotlib` as SVG, each under a title."""
    try:
        import matplotlib.pyplot as plt  # optional, as is optuna
        from optuna.visualization import matplotlib as drawings

        from .optuna_parts import quiet
    except ImportError:
        return ['<p class="key">Pictures: pip install "magmagraph[tune]"</p>']
    study, parts = result.to_optuna(), []
    names = [goal.name for goal in result.goals]
    drawn_as: list[tuple[str, str, dict[str, Any]]] = [
        (name, title, {"target_name": names[0]}) for name, title in _PICTURES.items()
    ]
    if len(names) > 1:  # pictures of one goal are of the first, and the front where it can be seen
        for _, _, words in drawn_as:
            words["target"] = lambda trial: trial.values[0]
        if len(names) < 4:
            drawn_as.insert(0, ("pareto_front", "Pareto front", {"target_names": names}))
    for name, title, words in drawn_as:
        file = StringIO()
        settings: Any = {"backend": "agg", "svg.fonttype": "none", "svg.hashsalt": "magmagraph"}
        with quiet(), plt.rc_context(settings), plt.ioff():
            warnings.simplefilter("ignore")  # of sizes and axes of a search with few points
            axes = getattr(drawings, f"plot_{name}")(study, **words)
            figure = axes.flat[0].figure if isinstance(axes, np.ndarray) else axes.figure
            figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
        picture = file.getvalue()
        parts.append(f'<h2>{title}</h2><div class="wide">{picture[picture.index("<svg") :]}</div>')
    return parts


def _table(result: SearchResult) -> str:
    """Return the trials, best first, then the unfinished ones."""
    ranked = result.ranked()
    done = {trial.number for trial in ranked}
    trials = [*ranked, *(trial for trial in result.trials if trial.number not in done)]
    more = len(trials) - _MOST_ROWS
    note = f'<p class="key">and {more} more: see to_csv</p>' if more > 0 else ""
    return table_html(result.rows(trials[:_MOST_ROWS]), left=()) + note


def _style() -> str:
    return (
        "body{margin:0;font:15px/1.5 system-ui,sans-serif;background:#fff;color:#1a1a1a}"
        "main{max-width:900px;margin:0 auto;padding:20px}"
        "h1{font-size:24px;margin:0 0 8px}h2{font-size:17px;margin:28px 0 6px}"
        "p{margin:4px 0;white-space:pre-line}svg{display:block}"
        ".key{font-size:13px}.wide{overflow-x:auto}"
        "table{font:13px system-ui;font-variant-numeric:tabular-nums;white-space:nowrap}"
        f"pre,summary{{font-family:{FONT};font-size:12px}}pre{{overflow-x:auto}}"
    )
