"""Run the benchmarks of a checkout, or list them.

Benchmarks are files that come with the sources, not with the installed package: the folder
`benchmarks` is looked for here, in the folders above, and beside the package.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

from . import tables
from .target import CommandError

_PACKAGE = Path(__file__).resolve().parent.parent


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which; the list unless given")
    parser.add_argument("--all", action="store_true", help="all of them, one after the other")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the benchmark"
    )


def run(chosen: argparse.Namespace) -> None:
    """Run the benchmarks that are named, or list those that there are."""
    folder = find(Path.cwd())
    known = benchmarks(folder)
    if chosen.all:
        for name in known:
            print(f"== {name}", flush=True)
            _run(known[name][0], [])
    elif chosen.name is None:
        rows = [("name", "what it measures"), *((n, text) for n, (_, text) in known.items())]
        tables.show(rows, (0, 1), str(folder))
    elif chosen.name not in known:
        raise CommandError(f"{folder} has no benchmark {chosen.name!r}; there are "
                           + ", ".join(known))
    else:
        _run(known[chosen.name][0], chosen.arguments)


def find(start: Path) -> Path:
    """Return the folder of the benchmarks, or raise `CommandError` that says where they are."""
    for place in (start, *start.parents, _PACKAGE.parent):
        folder = place / "benchmarks"
        if benchmarks(folder):
            return folder
    raise CommandError(
        "no benchmarks here: they come with the sources of magmagraph, in the folder benchmarks; "
        "run this in a checkout"
    )


def benchmarks(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return the benchmarks of a folder: the files that can be run, with what they say first."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "magmagraph" in text and '__name__ == "__main__"' in text:
            said = ast.get_docstring(ast.parse(text)) or ""
            found[path.stem] = (path, said.partition("\n")[0])
    return found


def _run(path: Path, arguments: list[str]) -> None:
    """Run a benchmark as a program of its own; its status, where not 0, is an error."""
    done = subprocess.run([sys.executable, str(path), *arguments], check=False)
    if done.returncode:
        raise CommandError(f"{path.name} ended with the status {done.returncode}")
