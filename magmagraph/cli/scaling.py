"""Run a training script on several numbers of ranks, and compare their throughput.

The script trains with fit(..., distribute=...). It may be given options of its own after "--" (or
anywhere after the script, if -n is before it). The first epoch of each fit, in which functions are
compiled, does not count if there are others.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..errors import ConfigError
from ..files.writing import write_file
from ..model.epoch_log import VARIABLE
from . import tables
from .scaling_chart import chart
from .target import CommandError

__all__ = ["Measured", "declare", "kind_of", "measured", "run"]

_ALIKE = 0.01  # by which rows of an epoch may differ, of shards that are not quite even


@dataclass(frozen=True)
class Measured:
    """The epochs of a script on some ranks.

    Attributes
    ----------
    ranks : int
        Processes.
    epochs : int
        How many epochs count.
    rows, steps : int
        In all of them, on all ranks.
    seconds : float
        Of all of them.
    compiled : bool
        Whether the time has that of compiling in it: the script trains for one epoch only.
    """

    ranks: int
    epochs: int
    rows: int
    steps: int
    seconds: float
    compiled: bool

    @property
    def throughput(self) -> float:
        """Rows in a second, on all ranks."""
        return self.rows / self.seconds

    def plain(self, first: Measured) -> dict[str, Any]:
        """Return the numbers as JSON values, with speed-up and efficiency over another run."""
        faster = self.throughput / first.throughput
        return {
            "ranks": self.ranks,
            "epochs": self.epochs,
            "rows_per_epoch": self.rows / self.epochs,
            "seconds_per_epoch": self.seconds / self.epochs,
            "seconds_per_step": self.seconds / self.steps,
            "samples_per_second": self.throughput,
            "speed_up": faster,
            "efficiency": faster * first.ranks / self.ranks,
            "with_compiling": self.compiled,
        }


def _options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--ranks", metavar="N,N,...", help="numbers of ranks, such as 1,2,4 (required)")
    add("-o", "--output", metavar="NAME", default="scaling",
        help="write NAME.json and NAME.svg (scaling)")  # fmt: skip
    add("-t", "--timeout", type=float, default=300.0, metavar="S",
        help="seconds that a rank may wait for others in one call (300)")  # fmt: skip
    add("--threads", type=int, metavar="T", help="threads of a rank (its share of the cores)")


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    _options(parser)
    parser.add_argument("script", help="a Python script that trains with fit(..., distribute=...)")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments, after --")


def run(options: argparse.Namespace) -> None:
    """Run the script on each number of ranks; print the table, and write the files."""
    options, arguments = _sorted_out(options)
    counts = _numbers(options.ranks)
    measurements: list[Measured] = []
    try:
        for ranks in counts:
            print(f"== {options.script} on {_ranks(ranks)}", flush=True)
            measurements.append(_one(options, arguments, ranks))
    finally:  # what was measured before a failure is kept
        if measurements:
            _show(measurements, options, arguments)


def _sorted_out(options: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, also those after the script, and the arguments of the script."""
    words = list(options.arguments)
    if options.ranks is not None:
        return options, words[1:] if words[:1] == ["--"] else words
    ends = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="magmagraph scaling SCRIPT", add_help=False, allow_abbrev=False
    )
    _options(parser)
    later, rest = parser.parse_known_args(words[:ends])
    if later.ranks is None:
        raise ConfigError("no number of ranks is given; try: magmagraph scaling SCRIPT -n 1,2,4")
    for name, value in vars(later).items():
        if value != parser.get_default(name):
            setattr(options, name, value)
    return options, [*rest, *words[ends + 1 :]]


def _numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"-n {text} is no list of numbers of ranks; try: -n 1,2,4")
    return sorted({int(word) for word in words})


def _one(options: argparse.Namespace, arguments: Sequence[str], ranks: int) -> Measured:
    from ..distributed.launching.launcher import JobError, launch

    with tempfile.TemporaryDirectory(prefix="magmagraph-scaling-") as folder:
        path = Path(folder, "epochs")
        try:
            launch(
                options.script,
                *arguments,
                ranks=ranks,
                timeout=options.timeout,
                threads=options.threads,
                environment={VARIABLE: str(path)},
            )
        except JobError as error:
            raise CommandError(f"on {_ranks(ranks)}, {error}") from None
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return measured([json.loads(line) for line in lines], ranks, options.script)


def measured(lines: Sequence[dict[str, Any]], ranks: int, script: str) -> Measured:
    """Return what the lines of a run's epochs add up to.

    Raises
    ------
    CommandError
        If there are none, or they are not of a training by all ranks together.
    """
    if not lines:
        raise CommandError(
            f"{script} ended on {_ranks(ranks)} without an epoch of training; "
            "expected: a script that calls net.fit(...)"
        )
    other = next((line["ranks"] for line in lines if line["ranks"] != ranks), None)
    if other is not None:
        raise CommandError(
            f"{script} trained a model on {other} of {ranks} ranks; "
            "expected: one model that all ranks train; "
            "try: net.fit(..., distribute=mg.distributed.DataParallel())"
        )
    later = [line for line in lines if not line["first"]]
    used = later or lines
    return Measured(
        ranks,
        len(used),
        sum(line["rows"] for line in used),
        sum(line["steps"] for line in used),
        sum(line["seconds"] for line in used),
        not later,
    )


def kind_of(measurements: Sequence[Measured]) -> str:
    """Return "strong" if all epochs have the same rows, "weak" if each rank has, else "other"."""
    first = measurements[0]
    rows = [one.rows / one.epochs for one in measurements]
    if all(abs(count / rows[0] - 1) <= _ALIKE for count in rows):
        return "strong"
    each = [count / one.ranks for count, one in zip(rows, measurements, strict=True)]
    return "weak" if all(abs(n / (rows[0] / first.ranks) - 1) <= _ALIKE for n in each) else "other"


_KINDS = {
    "strong": "strong scaling: every run has the same rows in an epoch",
    "weak": "weak scaling: every rank has the same rows in an epoch",
    "other": "the rows of an epoch are neither the same in all runs nor on all ranks",
}


def _show(
    measurements: Sequence[Measured], options: argparse.Namespace, arguments: Sequence[str]
) -> None:
    runs = [one.plain(measurements[0]) for one in measurements]
    kind = kind_of(measurements)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    notes = [_KINDS[kind]] if len(measurements) > 1 else []
    if any(one.compiled for one in measurements):
        notes.append("times include compiling, as the script trains for one epoch only")
    if measurements[-1].ranks > (cores or 1):
        notes.append(f"{measurements[-1].ranks} ranks share {cores} cores of this machine")
    about = {
        "script": str(options.script),
        "arguments": list(arguments),
        "kind": kind if len(measurements) > 1 else None,
        "notes": notes,
        "cores": cores,
        "magmagraph": __version__,
        "runs": runs,
    }
    rows = [("ranks", "samples/s", "s an epoch", "ms a step", "speed-up", "efficiency")]
    rows += [
        (
            f"{one['ranks']}",
            f"{one['samples_per_second']:,.0f}",
            f"{one['seconds_per_epoch']:.3f}",
            f"{one['seconds_per_step'] * 1e3:.2f}",
            f"{one['speed_up']:.2f}",
            f"{one['efficiency']:.0%}",
        )
        for one in runs
    ]
    tables.show(rows, ())
    for note in notes:
        print(note)
    write_file(f"{options.output}.json", json.dumps(about, indent=1) + "\n")
    write_file(f"{options.output}.svg", chart(runs, Path(options.script).name))
    print(f"wrote {options.output}.json and {options.output}.svg", flush=True)


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count > 1)}"
