"""Fill the tuning cache: measure what this machine does best, ahead of the first run.

The machine's peaks, which profiles compare with, are measured once. Functions that are named are
compiled, so that every choice that their passes leave to a measurement is made and kept.
"""

from __future__ import annotations

import argparse

from ..config import config
from ..function import Function
from ..ops.convert import cast
from ..ops.leaf import input
from . import tables, target
from .target import CommandError


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="FILE.py:NAME",
        help="functions whose choices are measured; a size that is measured for is that of feeds",
    )
    target.declare_feeds(parser)
    parser.add_argument("--device", default="auto", help="whose peaks are measured (auto)")


def run(options: argparse.Namespace) -> None:
    """Measure, and print the settings that are stored now."""
    from ..runtime.cache import default_choices

    if not config.tuning:
        raise CommandError("tuning is switched off (MAGMAGRAPH_TUNING=0): nothing may be measured")
    choices = default_choices()
    settings = choices.items()
    loaded = [target.load(name) for name in options.targets]  # before anything takes time
    x = input("x", (8, 8), "float32")
    probe = Function([x], cast(x, "float64"), device=options.device)
    peaks = probe._peaks({"float32": 0.0, "float64": 0.0})
    print(f"{peaks.machine}: {peaks}")
    for function_or_nodes, space, name in loaded:
        function = target.function_of(function_or_nodes, name)
        feeds, text = target.feeds_of(function, space, options)
        function.profile(*feeds, runs=1)
        print(f"{name}: {len(function.plan.steps)} steps, {text}")
    now = choices.items()
    fresh = {key: value for key, value in now.items() if settings.get(key) != value}
    rows = [("choice", "value"), *((key, str(value)) for key, value in sorted(fresh.items()))]
    if fresh:
        tables.show(rows, (0, 1), "\nmeasured now")
    print(f"{len(fresh)} measured now, {len(now)} kept in {choices.directory}")
