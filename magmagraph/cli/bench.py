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
_LEFT_OUT = 77  # the exit status of a benchmark whose requirements are missing


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="which; the list unless given")
    parser.add_argument("--all", action="store_true", help="all of them, one after the other")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the benchmark"
    )


def run(options: argparse.Namespace) -> None:
    """Run the benchmarks that are named, or list those that there are."""
    folder = find(Path.cwd())
    names = benchmarks(folder)
    if options.all:
        for name in names:
            print(f"== {name}", flush=True)
            _run(names[name][0], [], may_need=True)
    elif options.name is None:
        rows = [("name", "what it measures"), *((n, text) for n, (_, text) in names.items())]
        tables.show(rows, (0, 1), str(folder))
    elif options.name not in names:
        raise CommandError(f"{folder} has no benchmark {options.name!r}; there are "
                           + ", ".join(names))
    else:
        _run(names[options.name][0], options.arguments)


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
    """Return the benchmarks of a folder: the files that can be run, with what they say first.

    Folders of other projects have none: in one of ours some file speaks of magmagraph. A file named
    ``*_program.py`` is run by the benchmark of that name.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    if not any("magmagraph" in text for text in texts.values()):
        return {}
    return {
        path.stem: (path, _first_sentence(ast.get_docstring(ast.parse(text)) or ""))
        for path, text in texts.items()
        if '__name__ == "__main__"' in text and not path.stem.endswith("_program")
    }


def _first_sentence(text: str) -> str:
    line = " ".join(text.partition("\n\n")[0].split())
    sentence, full_stop, _ = line.partition(". ")
    return sentence + full_stop.strip()


def _run(path: Path, arguments: list[str], *, may_need: bool = False) -> None:
    """Run a benchmark in a new process; a nonzero exit status is an error."""
    done = subprocess.run([sys.executable, str(path), *arguments], check=False)
    if done.returncode and not (may_need and done.returncode == _LEFT_OUT):
        raise CommandError(f"{path.name} ended with the status {done.returncode}")
