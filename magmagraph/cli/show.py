"""Show a function or an expression: the viewer, a picture, or text.

Without -o the text goes to the standard output.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..errors import GraphError
from ..function import Function
from . import target
from .target import CommandError

_SIZED = (".html", ".json")  # what shows memory, which needs sizes
FORMS = (".html", ".svg", ".dot", ".txt", ".json")


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    target.declare(parser, "what to show")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help=f"where to write it; the suffix names the form: {', '.join(FORMS)}",
    )
    parser.add_argument(
        "--no-source", action="store_true", help="leave the lines of your source out"
    )
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="measure times and errors first, for the overlays of the viewer",
    )
    target.declare_feeds(parser)


def _bound(function: Function, space: Mapping[str, Any], options: argparse.Namespace) -> str:
    """Bind the sizes of a function's feeds, without a run, and return what they are."""
    from ..inspect.checking.running import bind

    function.compile()
    feeds, text = target.feeds_of(function, space, options)
    bind(function, feeds, {})
    return f"sizes: those of {text}"


def run(options: argparse.Namespace) -> None:
    """Write or print what was asked for."""
    from ..inspect.show import show

    path = None if options.output is None else target.output(options.output, FORMS)
    drawable, space, name = target.load(options.target)
    measured = None
    if options.evidence:
        from ..inspect.evidence import evidence

        function = target.function_of(drawable, name)
        feeds, text = target.feeds_of(function, space, options)
        print(text)
        measured = evidence(function, *feeds)
        drawable = function
    elif path is not None and path.suffix.lower() in _SIZED and isinstance(drawable, Function):
        print(_bound(drawable, space, options))
    try:
        picture = show(drawable, source=not options.no_source, evidence=measured)
    except GraphError:
        kind = type(drawable).__name__
        raise CommandError(
            f"{name} is {kind}, not a compiled function, a graph, a node or nodes"
        ) from None
    if path is None:
        print(picture.text())
        return
    print(target.written(path, picture.save))
