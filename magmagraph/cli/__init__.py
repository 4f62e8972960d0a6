"""The command line: ``magmagraph info``, ``show``, ``explain``, ``profile`` and others.

Each command is a module of this package with two functions: `declare`, which adds its arguments
to a parser, and `run`, which does the work and raises where it cannot; what it returns is the exit
status, None for 0.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
from collections.abc import Iterator, Sequence

from .._version import __version__
from ..distributed.launching.rank import number_of_rank
from ..errors import ConfigError, MagmagraphError
from . import (
    autotune,
    bench,
    demo,
    explain,
    export,
    info,
    profile,
    run,
    scaling,
    search,
    show,
    tune,
    verify,
    workflow,
)

_COMMANDS = {
    "info": info,
    "demo": demo,
    "show": show,
    "explain": explain,
    "profile": profile,
    "autotune": autotune,
    "export": export,
    "verify": verify,
    "tune": tune,
    "search": search,
    "run": run,
    "scaling": scaling,
    "workflow": workflow,
    "bench": bench,
}

_EXAMPLE = """\
example:
  magmagraph info                               what is installed and missing
  magmagraph demo --offline                     train a network
  magmagraph show program.py:step -o step.html  draw the function `step`

magmagraph COMMAND --help describes a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; those of the process unless given.

    Returns
    -------
    int
        The exit status: 0 on success, 1 on an error, 2 on a misuse, 130 on an interrupt.
    """
    parser = _parser()
    try:
        with _first_alone():
            options = parser.parse_args(arguments)
    except SystemExit as stop:
        if number_of_rank():
            return 0  # an exit status here could end rank 0 before it has printed
        return stop.code if isinstance(stop.code, int) else 2
    if options.command is None:
        with _first_alone():
            parser.print_help()
        return 0
    try:
        status: int | None = _COMMANDS[options.command].run(options)
        sys.stdout.flush()
    except ConfigError as error:  # such as an environment variable: the error fits a line
        print(f"magmagraph {options.command}: {_in_a_line(error)}", file=sys.stderr)
        return 1
    except MagmagraphError as error:
        print(f"magmagraph {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"magmagraph {options.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe (`magmagraph info | head`): print no more.
        _let_go()
        return 1
    except OSError as error:  # a full disk, a file that may not be read
        print(f"magmagraph {options.command}: {error}", file=sys.stderr)
        _let_go()
        return 1
    return status or 0


@contextlib.contextmanager
def _first_alone() -> Iterator[None]:
    """Let the first process of a job alone print: all were given the same words."""
    if number_of_rank() == 0:
        yield
        return
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        contextlib.redirect_stdout(nowhere),
    ):
        yield


def _in_a_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines())


def _let_go() -> None:
    """Keep the interpreter from trying once more to write what could not be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="magmagraph",
        description="Symbolic tensor graphs, compiled by visible passes.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"magmagraph {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in _COMMANDS.items():
        text = inspect.cleandoc(module.__doc__ or "")
        command = commands.add_parser(
            name, help=text.partition("\n")[0].rstrip("."), description=text
        )
        module.declare(command)
    return parser
