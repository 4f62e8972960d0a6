"""Measure a function: each step under its roofs, and the time of each line and each group."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..errors import GraphError
from . import tables, target
from .target import CommandError, positive

LINES = 15  # of the source that are shown
GROUPS = 40


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    target.declare(parser, "the function")
    target.declare_feeds(parser)
    parser.add_argument("--runs", type=positive, default=5, help="the shortest of so many (5)")
    parser.add_argument(
        "--check", action="store_true", help="compare each pass with float64, too"
    )
    parser.add_argument(
        "--ablate", action="store_true", help="measure without each optional pass, too"
    )
    parser.add_argument(
        "-o", "--output", metavar="TRACE.json", help="write a trace for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> None:
    """Measure, print, and write the trace."""
    if options.output is not None and Path(options.output).suffix.lower() != ".json":
        raise CommandError(f"{options.output}: a trace is written to .json")
    function_or_nodes, space, name = target.load(options.target)
    function = target.function_of(function_or_nodes, name)
    feeds, text = target.feeds_of(function, space, options)
    if options.json:
        from ..inspect.evidence import evidence

        measured = evidence(function, *feeds, check=options.check, ablate=options.ablate)
        print(json.dumps({"feeds": text, **measured}, indent=2))
        if options.output is not None:
            _save(function.profile(*feeds, runs=options.runs), options.output)
        return
    print(text)
    profile = function.profile(*feeds, runs=options.runs)
    if profile.peaks is not None:
        print(f"roofs: {profile.peaks} ({profile.peaks.machine})")
    head, *rows = profile.rows()
    text_columns = (head.index("kernel"), head.index("operations"), head.index("lines"))
    left = (*text_columns, *(head.index(name) for name in ("bound", "level") if name in head))
    tables.show([head, *rows], left, "\nsteps", total=True)
    lines = profile.by_line()
    line_rows = [("us", "share", "line")]
    line_rows += [(f"{x.nanoseconds / 1e3:.1f}", f"{x.share:.0%}", x.line) for x in lines[:LINES]]
    more = f"{len(lines) - LINES} more lines" if len(lines) > LINES else ""
    tables.show([*line_rows, ("", "", more)] if more else line_rows, (2,), "\nlines")
    groups = profile.by_group()
    if groups:
        names = [("us", "share", "group")]
        names += [
            (
                f"{x.nanoseconds / 1e3:.1f}",
                f"{x.share:.0%}",
                "  " * x.group.count("/") + x.group.rpartition("/")[2],
            )
            for x in groups[:GROUPS]
        ]
        if len(groups) > GROUPS:
            names.append(("", "", f"{len(groups) - GROUPS} more groups"))
        tables.show(names, (2,), "\ngroups")
    if options.check:
        print(f"\naccuracy\n{function.check(*feeds)}")
    if options.ablate:
        tables.show(function.ablate(*feeds).table(), (0, 7), "\npasses")
    if options.output is not None:
        _save(profile, options.output)
        print(f"\n{options.output}: open it at https://ui.perfetto.dev or chrome://tracing")


def _save(profile: object, path: str) -> None:
    try:
        profile.save(path)  # type: ignore[attr-defined]
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from None
    except GraphError as error:
        raise CommandError(str(error).splitlines()[0]) from None
