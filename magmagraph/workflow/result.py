"""What became of a workflow: a record of each module's run, tables and a picture."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from math import inf
from pathlib import Path
from typing import Any

from ..errors import GraphError, MagmagraphError, message
from ..files.writing import replace_file, write_file
from ..inspect.pictures.chart import Frame, Scale, cut
from ..inspect.pictures.palette import COLOURS, DARK, LIGHT, Theme, mixed
from ..inspect.pictures.svg import FONT
from ..ir.html import Displayed, preformatted, table_html
from ..ir.tables import table
from ..ir.types import FilePath

__all__ = ["ModuleRun", "Result", "WorkflowError"]

_COLUMNS = ("module", "copy", "turn", "iteration", "ranks", "status", "start", "end", "cause")
_WIDE = 60  # characters of a cause in a table
_COLOURS = [
    COLOURS[name] for name in ("input", "contraction", "linalg", "reduction", "elementwise")
]
_PICTURE, _ROW = 880.0, 26.0
_LETTER = 7.0  # width of a letter in a bar


@dataclass(frozen=True)
class ModuleRun:
    """One iteration of one copy of a module.

    Attributes
    ----------
    module, copy, iteration
        What ran.
    ranks
        Where; empty if it did not start.
    status
        "done", "failed", "stopped" (since another one failed), or "skipped".
    start, end
        Seconds since the start of the workflow.
    cause
        Why it was not done.
    output
        The file of what a program printed.
    turn
        Of the whole workflow.
    point
        Of the module's grid: the values by name.
    value
        What the function has returned there: a number, or a dict of numbers.
    attempt
        How often it has begun: more than once where Dask started it again, as a worker died.
    """

    module: str
    copy: int
    iteration: int
    ranks: tuple[int, ...]
    status: str
    start: float
    end: float
    cause: str = ""
    output: str = ""
    turn: int = 0
    point: Mapping[str, Any] = field(default_factory=dict, hash=False)
    value: Any = field(default=None, hash=False)
    attempt: int = 1

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Result(Displayed):
    """The records of a workflow, by their start.

    Attributes
    ----------
    name : str
        Of the workflow.
    runs : list of ModuleRun
        All iterations that ran, and copies that were skipped.
    ranks : int
        Of the job.
    """

    def __init__(self, name: str, runs: Sequence[ModuleRun], ranks: int) -> None:
        self.name, self.ranks = name, ranks
        self.runs = sorted(runs, key=lambda run: (run.start, run.ranks, run.module, run.copy))

    @property
    def ok(self) -> bool:
        """Whether all was done."""
        return all(run.status == "done" for run in self.runs)

    @property
    def seconds(self) -> float:
        """When the last module ended."""
        return max((run.end for run in self.runs), default=0.0)

    def best(
        self, module: str, minimize: str | None = None, maximize: str | None = None
    ) -> ModuleRun:
        """Return the run of a module's grid with the least value, or the largest.

        Parameters
        ----------
        module
            The module's name.
        minimize, maximize
            One of the numbers, where the function returns a dict.

        Raises
        ------
        GraphError
            No run of the module is done and has this number.

        Examples
        --------
        >>> runs = [ModuleRun("fit", i, 0, (0,), "done", 0, 1, value=i - 0.5) for i in range(3)]
        >>> Result("study", runs, 1).best("fit").copy
        0
        """
        goal = maximize or minimize
        sign = -1.0 if maximize else 1.0

        def number(run: ModuleRun) -> float:
            value = run.value.get(goal) if isinstance(run.value, Mapping) else run.value
            return inf if value is None or value != value else sign * value

        runs = [r for r in self.runs if r.module == module and r.status == "done"]
        if not runs or number(best := min(runs, key=number)) == inf:
            raise GraphError(
                message(
                    f"no run of module {module!r} has "
                    + (f"a value {goal!r}" if goal else "a value"),
                    need="a module with a grid, whose function returns a number or a dict of them",
                )
            )
        return best

    def summary(self) -> str:
        """Return what happened, in a line."""
        counts = Counter(run.status for run in self.runs)
        counts_text = ", ".join(f"{count} {status}" for status, count in counts.items())
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{self.name}: {counts_text}, {self.seconds:.2f} s on {ranks}"

    def rows(self) -> list[tuple[str, ...]]:
        """Return a head, and a row for each run."""
        grid = any(run.point for run in self.runs)
        rows: list[tuple[str, ...]] = [(*_COLUMNS, "point", "value") if grid else _COLUMNS]
        for run in self.runs:
            cause = run.cause.partition("\n")[0]
            rows.append(
                (
                    run.module,
                    str(run.copy),
                    str(run.turn),
                    str(run.iteration),
                    " ".join(map(str, run.ranks)),
                    run.status,
                    f"{run.start:.3f}",
                    f"{run.end:.3f}",
                    cause if len(cause) <= _WIDE else cause[: _WIDE - 1] + "…",
                    *(map(_pairs, (run.point, run.value)) if grid else ()),
                )
            )
        return rows

    def table(self) -> str:
        """Return the runs as text."""
        return table(self.rows(), left=(0, 4, 5, 8, 9, 10))

    def to_csv(self, path: FilePath) -> None:
        """Write the runs as comma-separated values; `path` is whole or not there."""
        with (
            replace_file(Path(path)) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*_COLUMNS, "output", "point", "value"])
            for run in self.runs:
                row = {**asdict(run), "ranks": " ".join(map(str, run.ranks))}
                own = [row[name] for name in (*_COLUMNS, "output")]
                writer.writerow([*own, _pairs(run.point), _pairs(run.value)])

    def to_json(self, path: FilePath) -> None:
        """Write the runs as JSON; `path` is whole or not there."""
        document = {
            "name": self.name,
            "ranks": self.ranks,
            "seconds": self.seconds,
            "runs": [asdict(run) for run in self.runs],
        }
        write_file(path, json.dumps(document, indent=1) + "\n")

    def timeline(self, path: FilePath) -> None:
        """Draw which rank ran what when, as SVG; `path` is whole or not there."""
        write_file(path, _draw(self))

    def _html(self) -> str:
        return preformatted(self.summary()) + table_html(self.rows(), left=(0, 4, 5, 8, 9, 10))

    def __str__(self) -> str:
        return f"{self.summary()}\n{self.table()}"

    def __repr__(self) -> str:
        return f"<result of workflow {self.name}, {len(self.runs)} runs>"


def _pairs(value: Any) -> str:
    """Return a point, or its result, as text."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_pairs(item)}" for name, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


class WorkflowError(MagmagraphError, RuntimeError):
    """A module failed, and the workflow ended with it.

    Attributes
    ----------
    result : Result
        What ran until then.
    """

    def __init__(self, text: str, result: Result | None = None) -> None:
        super().__init__(text)
        self.result = result


def _draw(result: Result) -> str:
    """Return a row for each rank of the job, with a bar for each run, as SVG."""
    rows = max(1, result.ranks)
    frame = Frame(_PICTURE, _ROW * rows + 58.0)
    across = Scale(0.0, result.seconds * 1.02 or 1.0)
    up = [(1.0 - (rank + 0.5) / rows, str(rank)) for rank in range(rows)]
    modules = list(dict.fromkeys(run.module for run in result.runs))
    parts = [_style(len(modules)), '<rect class="paper" width="100%" height="100%"/>']
    parts.append(frame.axes(across.ticks(), up, "seconds", "rank"))
    for run in result.runs:
        for rank in run.ranks:
            parts.append(_bar(frame, across, run, rank, rows, modules.index(run.module)))
    return frame.svg(parts, f"ranks of {result.name} over time")


def _bar(frame: Frame, across: Scale, run: ModuleRun, rank: int, rows: int, number: int) -> str:
    left, middle = frame.place(across.at(run.start), 1.0 - (rank + 0.5) / rows)
    right, _ = frame.place(across.at(run.end), 0.0)
    wide = max(1.0, right - left)
    description = (
        f"{run.module}, copy {run.copy}, turn {run.turn}, iteration {run.iteration}, "
        f"rank {rank}: {run.status}, "
        f"{run.start:.3f} to {run.end:.3f} s"
    )
    letters = int((wide - 6.0) / _LETTER)
    text = ""
    if letters >= 3:
        text = (
            f'<text class="in" x="{left + 4:.1f}" y="{middle + 4:.1f}">'
            f"{escape(cut(run.module, letters))}</text>"
        )
    return (
        f'<g><title>{escape(description)}</title><rect class="bar m{number} {run.status}" '
        f'x="{left:.1f}" y="{middle - _ROW * 0.4:.1f}" width="{wide:.1f}" '
        f'height="{_ROW * 0.8:.1f}" rx="2"/>{text}</g>'
    )


def _style(count: int) -> str:
    fills = "".join(f".m{i}{{fill:{_COLOURS[i % len(_COLOURS)]}}}" for i in range(count))
    return (
        f"<style>text{{font-family:{FONT};font-size:11px}}.name{{font-size:12px}}"
        f".axis,.grid{{fill:none}}.bar{{fill-opacity:.75}}.failed{{stroke:{COLOURS['variable']};"
        f"stroke-width:2.5px}}.stopped{{fill-opacity:.3}}{fills}{_colours(LIGHT)}"
        f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}}}</style>"
    )


def _colours(theme: Theme) -> str:
    return (
        f".paper{{fill:{theme.paper}}}.tick{{fill:{theme.muted}}}.name,.in{{fill:{theme.ink}}}"
        f".axis{{stroke:{theme.edge}}}.grid{{stroke:{mixed(theme.edge, theme.paper, 0.25)}}}"
    )
