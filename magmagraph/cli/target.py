"""Load the target of a command, ``FILE.py:NAME``, and its feeds."""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MagmagraphError
from ..function import Function
from ..ir import dims
from ..ir.graph import Graph, Node

SIZE = 32  # of a named dimension that nothing says the size of


class CommandError(MagmagraphError):
    """What was asked for cannot be done; the text is one line."""


def declare(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument that names the target."""
    parser.add_argument(
        "target",
        metavar="FILE.py:NAME",
        help=f"{what}: a Python file, and a name in it (dots reach attributes); a Python function "
        "of no arguments is called. The file is run, but not as __main__",
    )


def declare_feeds(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the feeds of a function."""
    parser.add_argument(
        "--feeds",
        metavar="NAME",
        default="feeds",
        help="the name, in the file, of the feeds or of a function that returns them (feeds); "
        "random numbers where there is none",
    )
    declare_sizes(parser, f"the size of a named dimension of random feeds ({SIZE})")
    parser.add_argument("--seed", type=seed, default=0, help="of random feeds (0)")


def declare_sizes(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument that says sizes of named dimensions."""
    parser.add_argument(
        "--size", metavar="NAME=N", action="append", default=[], type=_size, help=what
    )


def seed(text: str) -> int:
    """Parse a seed, or raise the error that the parser prints."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """Parse a positive number, or raise the error that the parser prints."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _size(text: str) -> tuple[str, int]:
    name, mark, number = text.partition("=")
    if not mark or not name or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form batch=100")
    return name, int(number)


def load(target: str) -> tuple[Any, Mapping[str, Any], str]:
    """Return what a target names, everything else in its file, and the name.

    Raises
    ------
    CommandError
        There is no such file or name, or running the file fails; one line says which.
    """
    file, mark, name = target.rpartition(":")
    if not mark or not file or not name:
        raise CommandError(f"{target!r} is not of the form FILE.py:NAME")
    space = _run(Path(file))
    value: Any = None
    for i, part in enumerate(name.split(".")):
        where = file if i == 0 else ".".join(name.split(".")[:i])
        try:
            value = space[part] if i == 0 else getattr(value, part)
        except (KeyError, AttributeError):
            raise CommandError(f"{where} has no {part!r}{_suggestions(space, value, i)}") from None
    if inspect.isfunction(value):
        value = _called(value, name)
    return value, space, name


def _run(path: Path) -> Mapping[str, Any]:
    """Return the names of a file that is run as a module, from where its imports are found."""
    if not path.is_file():
        kind = "is not a file" if path.exists() else "does not exist"
        raise CommandError(f"{path} {kind}")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=f"<{path.stem}>")
    except SystemExit as stop:
        raise CommandError(f"{path} ended with the status {stop.code}") from None
    except Exception as error:
        raise CommandError(f"{path} raised {_error_line(error, str(path))}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _error_line(error: BaseException, file: str) -> str:
    """Return an error as one line, with the last line of a file that led to it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == Path(file).name
    ]
    text = str(error)
    if isinstance(error, SyntaxError):
        lines, text = [error.lineno] if error.lineno else [], error.msg
    where = f" (line {lines[-1]})" if lines else ""
    first = (text.splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}{where}" if first else type(error).__name__ + where


def _suggestions(space: Mapping[str, Any], owner: Any, depth: int) -> str:
    """Return, for a name that is not there, which ones could have been meant."""
    if depth:
        return ""
    kinds = (Function, Node, Graph)
    names = [name for name, value in space.items() if isinstance(value, kinds)]
    return f"; it has {', '.join(names[:10])}" if names else "; it holds no functions and no nodes"


def _called(function: Any, name: str) -> Any:
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise CommandError(
            f"{name} is a Python function with arguments, not a compiled function or a node"
        )
    try:
        return function()
    except Exception as error:
        raise CommandError(
            f"{name}() raised {_error_line(error, function.__code__.co_filename)}"
        ) from error


def output(text: str, forms: Sequence[str]) -> Path:
    """Return the path of an output, or raise before anything takes time."""
    path = Path(text)
    if path.suffix.lower() not in forms:
        raise CommandError(f"{text}: the suffix says no form; there are {', '.join(forms)}"
                           if len(forms) > 1 else f"{text}: what is written is {forms[0]}")
    if path.is_dir():
        raise CommandError(f"{text} is a folder")
    if not path.resolve().parent.is_dir():
        raise CommandError(f"{text} cannot be written: there is no folder {path.parent}")
    return path


def written(path: Path, save: Callable[[Path], None]) -> str:
    """Write a file, and return a line that says so."""
    try:
        save(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from None
    return f"{path}: {path.stat().st_size / 1e3:.1f} kB"


def function_of(value: Any, name: str) -> Function:
    """Return what was found as a compiled function: itself, or nodes made one.

    Raises
    ------
    CommandError
        It is neither.
    """
    if isinstance(value, Function):
        return value
    members = list(value.values()) if isinstance(value, Mapping) else value
    nodes = [members] if isinstance(members, Node) else members
    if isinstance(nodes, (list, tuple)) and nodes and all(isinstance(n, Node) for n in nodes):
        from ..ir.graph import topological

        inputs = [node for node in topological(nodes) if "key" in node.attrs]
        return Function(inputs, value)
    raise CommandError(
        f"{name} is {type(value).__name__}, not a compiled function, a node or nodes"
    )


def feeds_of(
    function: Function, space: Mapping[str, Any], options: argparse.Namespace
) -> tuple[tuple[Any, ...], str]:
    """Return feeds for a function, and where they come from, in words.

    Raises
    ------
    CommandError
        The feeds of the file cannot be had.
    """
    if options.feeds in space:
        feeds = space[options.feeds]
        if callable(feeds):
            try:
                feeds = feeds()
            except Exception as error:
                name = f"{options.feeds}()"
                raise CommandError(f"{name} raised {_error_line(error, '')}") from error
        feed_tuple = tuple(feeds) if isinstance(feeds, (tuple, list)) else (feeds,)
        return feed_tuple, f"feeds: {options.feeds} of the file"
    if options.feeds != "feeds":
        raise CommandError(f"the file has no {options.feeds!r}, which --feeds names")
    return random_feeds(function, dict(options.size), options.seed)


def random_feeds(
    function: Function, given: Mapping[str, int], seed: int
) -> tuple[tuple[Any, ...], str]:
    """Return random feeds of the types of a function's inputs, and a text that says so.

    Floats are standard normal, ints 0 or 1, bools even; dimensions without a size are `SIZE`.
    """
    names = dict.fromkeys(
        name for node in function.inputs for extent in node.shape for name in dims.names(extent)
    )
    unknown = [name for name in given if name not in names]
    if unknown:
        names_text = ", ".join(map(str, names)) or "none"
        raise CommandError(f"no input has the dimension {unknown[0]!r}; there are {names_text}")
    sizes = {name: given.get(name, SIZE) for name in names}
    rng = np.random.default_rng(seed)
    feeds = []
    for node in function.inputs:
        shape = node.type.concrete(sizes)
        kind = node.dtype.kind
        if kind in "iu":
            value = rng.integers(0, 2, shape)
        elif kind == "b":
            value = rng.integers(0, 2, shape).astype(bool)
        elif kind == "c":
            value = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        else:
            value = rng.normal(size=shape)
        feeds.append(np.asarray(value).astype(node.dtype))
    if not feeds:
        return (), "feeds: none needed"
    named_sizes = [f"{name}={size}" for name, size in sizes.items() if "?" not in str(name)]
    text = "feeds: random numbers by type (the file has no feeds)"
    return tuple(feeds), ", ".join([text, *named_sizes])
