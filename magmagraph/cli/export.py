"""Export a compiled function as C sources that need neither Python nor this package."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..function import Function
from . import target
from .target import CommandError


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    target.declare(parser, "the function to export")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="where to write the sources"
    )
    parser.add_argument("--name", help="what names in C begin with (the folder's name)")
    target.declare_sizes(parser, "the size of a named dimension")
    parser.add_argument(
        "--blas", action="store_true", help="call a CBLAS where products run by BLAS here"
    )
    parser.add_argument(
        "--with",
        dest="others",
        metavar="NAME",
        action="append",
        default=[],
        help="another function of the file, which shares variables with the first",
    )


def run(options: argparse.Namespace) -> None:
    """Write the sources, and say what was written."""
    function_or_nodes, space, name = target.load(options.target)
    others = {other: space.get(other) for other in options.others}
    for label, function in ((name, function_or_nodes), *others.items()):
        if not isinstance(function, Function):
            what = "not there" if function is None else type(function).__name__
            raise CommandError(f"{label} is {what}, not a compiled function")
    folder = Path(options.output)
    sizes = dict(options.size) or None
    function_or_nodes.export(
        folder, "c", name=options.name, sizes=sizes, blas=options.blas, others=others or None
    )
    files = sorted(folder.iterdir())
    total = sum(file.stat().st_size for file in files)
    print(f"{folder}: {len(files)} files, {total / 1e3:.1f} kB; README.md says how to compile them")
