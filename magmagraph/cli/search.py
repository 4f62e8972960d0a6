"""Show a hyperparameter search from its journal: the best trials, a page with plots, a table.

The search may be running, or may have been killed: trials without an end are counted. What makes
one is `mg.tune.search(..., journal=PATH)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import tables
from .target import CommandError


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("journal", metavar="JOURNAL", help="the file that the search writes")
    parser.add_argument("-o", "--output", metavar="PATH.html", help="write a page with plots")
    parser.add_argument("--csv", metavar="PATH", help="write all trials as a table")
    parser.add_argument(
        "-n", "--top", type=int, default=10, metavar="N", help="trials that are printed (10)"
    )


def run(chosen: argparse.Namespace) -> None:
    """Print the trials, and write what was asked for."""
    from ..tune import read

    if chosen.output is not None and Path(chosen.output).suffix.lower() not in (".html", ".htm"):
        raise CommandError(f"{chosen.output}: a page with plots is written to .html")
    found, running = read(chosen.journal)
    print(found.summary())
    if running:
        print(f"{len(running)} without an end, running or cut off: {_listed(running)}")
    first = found.ranked()[: max(0, chosen.top)]
    if first:
        names = [i for i, name in enumerate(("", *found.space)) if i and _texts(found, name)]
        tables.show(found.rows(first), names)
    for path, write in ((chosen.output, found.report), (chosen.csv, found.to_csv)):
        if path is not None:
            _write(Path(path), write)


def _texts(found: Any, name: str) -> bool:
    """Return whether a parameter's values are words."""
    return any(isinstance(trial.labels[name], str) for trial in found.trials)


def _listed(numbers: list[int], most: int = 10) -> str:
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as error:
        told = f"{path} cannot be written: {error.strerror}" if error.strerror else str(error)
        raise CommandError(told) from None
    print(f"{path}: {path.stat().st_size / 1e3:.1f} kB")
