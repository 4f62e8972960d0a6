"""``python -m magmagraph.run -n 4 train.py``: a script on many ranks, which ends when one fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .errors import ConfigError, MagmagraphError

__all__ = ["declare", "execute", "main"]


_OPTIONS = {
    "ranks": "-n",
    "timeout": "--timeout",
    "stopped": "--stopped",
    "restarts": "--restarts",
    "least": "--elastic",
    "threads": "--threads",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    add("-n", "--ranks", type=int, required=True, metavar="N", help="processes")
    add("-m", "--module", action="store_true", help="run a module by its name, as python -m does")
    add("-t", "--timeout", type=float, default=300.0, metavar="S",
        help="seconds that a rank may wait for others in one call (300)")  # fmt: skip
    add("--stopped", type=float, default=10.0, metavar="S",
        help="seconds that a rank may be stopped (10)")  # fmt: skip
    add("--restarts", type=int, default=0, metavar="K",
        help="start again after a failure, so often at most (0)")  # fmt: skip
    add("--elastic", type=int, metavar="LEAST",
        help="restart without the ranks that failed, with so many at least")  # fmt: skip
    add("--threads", type=int, metavar="T", help="threads of a rank (its share of the cores)")
    add("-l", "--label", action="store_true", help="begin each line of output with its rank")
    add("--hosts", default="", metavar="A,B", help="machines to start on (this one)")
    add("--mpiexec", metavar="PATH", help="what starts the ranks (beside Python, or on the path)")
    add("script", help="a Python script, or a module with -m")
    add("arguments", nargs=argparse.REMAINDER, help="its arguments")


def execute(chosen: argparse.Namespace) -> int:
    """Run the job, and return its exit status: 0, or that of the rank that failed."""
    from .distributed.launching.launcher import JobError, launch

    try:
        launch(
            chosen.script,
            *chosen.arguments,
            ranks=chosen.ranks,
            module=chosen.module,
            timeout=chosen.timeout,
            stopped=chosen.stopped,
            restarts=chosen.restarts,
            least=chosen.elastic,
            threads=chosen.threads,
            label=chosen.label,
            hosts=[host for host in chosen.hosts.split(",") if host],
            mpiexec=chosen.mpiexec,
        )
    except ConfigError as error:
        raise ConfigError(_in_options(str(error))) from None
    except JobError as error:
        print(f"magmagraph: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("magmagraph: interrupted; all ranks have ended", file=sys.stderr)
        return 130
    return 0


def _in_options(text: str) -> str:
    """Return what is wrong with settings in the words of the command."""
    name, equals, rest = text.partition("=")
    if equals and name in _OPTIONS:
        return f"{_OPTIONS[name]} {rest}"
    return text.replace("module=True", "-m")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script on many ranks; see ``python -m magmagraph.run --help``."""
    parser = argparse.ArgumentParser(
        prog="python -m magmagraph.run",
        description="Run a script on many ranks, and end all of them when one fails.",
    )
    declare(parser)
    try:
        return execute(parser.parse_args(arguments))
    except MagmagraphError as error:
        print(f"magmagraph: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
