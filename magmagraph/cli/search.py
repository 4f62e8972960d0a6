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


def run(options: argparse.Namespace) -> None:
    """Print the trials, and write what was asked for."""
    from ..tune import read

    if options.output is not None and Path(options.output).suffix.lower() not in (".html", ".htm"):
        raise CommandError(f"{options.output}: a page with plots is written to .html")
    result, running = read(options.journal)
    print(result.summary())
    if running:
        print(f"{len(running)} without an end, running or cut off: {_listed(running)}")
    first = result.ranked()[: max(0, options.top)]
    if first:
        names = [i for i, name in enumerate(("", *result.space)) if i and _texts(result, name)]
        tables.show(result.rows(first), names)
    for path, write in ((options.output, result.report), (options.csv, result.to_csv)):
        if path is not None:
            _write(Path(path), write)


def _texts(result: Any, name: str) -> bool:
    """Return whether a parameter's values are words."""
    return any(isinstance(trial.labels[name], str) for trial in result.trials)


def _listed(numbers: list[int], most: int = 10) -> str:
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as error:
        reason = f"{path} cannot be written: {error.strerror}" if error.strerror else str(error)
        raise CommandError(reason) from None
    print(f"{path}: {path.stat().st_size / 1e3:.1f} kB")
