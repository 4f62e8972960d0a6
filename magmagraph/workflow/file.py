"""Workflow files: what stands in them, and what is refused before anything starts."""

from __future__ import annotations

import graphlib
import json
import math
import re
import shlex
import string
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, MissingFileError, message
from ..files.reading import check_depth, read_file
from ..ir.types import FilePath
from .modules import Module, Workflow

__all__ = [
    "KEYS", "NEEDS", "bytes_of", "parse", "read", "tables_of", "text_of", "workflow_of",
]  # fmt: skip

PLACES = (
    "module", "copy", "copies", "turn", "iteration", "rank", "processes", "threads", "python",
)  # fmt: skip
LARGEST_FILE = 1 << 20  # bytes
MOST = 1_000_000  # of copies, iterations, processes and threads
_WIDE = re.compile(r"[0-9]{4}|[{}]")  # in the format of a place: its width could be any
_NAME = re.compile(r"[A-Za-z0-9_-]+")


# ------------------------------------------------------------------- values


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (_text, "a text"),
    "count": (_count, f"a whole number of at least 1, and at most {MOST}"),
    "seconds": (_seconds, "seconds, a number above 0"),
    "texts": (_texts, "a list of texts"),
    "table": (lambda value: isinstance(value, dict), "a table"),
    "variables": (
        lambda value: isinstance(value, dict) and all(isinstance(v, str) for v in value.values()),
        "a table of texts",
    ),
    "lists": (
        lambda value: (
            isinstance(value, dict)
            and bool(value)
            and all(isinstance(v, list) and v for v in value.values())
        ),
        "a table of lists of values, such as {rate = [0.1, 0.01], depth = [1, 2]}",
    ),
    "failure": (lambda value: value in ("stop", "continue"), '"stop" or "continue"'),
}
_FILE = {"workflow": "table", "store": "table", "modules": "table"}
_WORKFLOW = {
    "name": "text", "on_failure": "failure", "grace": "seconds", "output": "text",
    "iterations": "count",
}  # fmt: skip
_STORE = {"servers": "count"}
_MODULE = {
    "function": "text",
    "command": "texts",
    "after": "texts",
    "processes": "count",
    "threads": "count",
    "copies": "count",
    "iterations": "count",
    "timeout": "seconds",
    "arguments": "table",
    "environment": "variables",
    "grid": "lists",
}
KEYS = {"workflow": _WORKFLOW, "store": _STORE, "modules": _MODULE}
"""The keys of each table, with the kind of their values."""
NEEDS = {kind: need for kind, (_, need) in _KINDS.items()}
"""What values of a kind are, for people."""


def _checked(where: str, table: Any, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return a table whose keys and types are right."""
    if not isinstance(table, dict):
        raise ConfigError(message(f"{where} = {table!r}", need="a table"))
    for key, value in table.items():
        if key not in kinds:
            raise ConfigError(
                message(f"{where} has the unknown key {key!r}", need=f"one of {', '.join(kinds)}")
            )
        fits, need = _KINDS[kinds[key]]
        if not fits(value):
            raise ConfigError(
                message(f"{where} {key} = {value!r}", need=need, hint=_listed(kinds[key], value))
            )
    return table


def _listed(kind: str, value: Any) -> str | None:
    """Suggest a list for a single value."""
    if kind == "texts" and isinstance(value, str):
        try:
            return json.dumps(shlex.split(value), ensure_ascii=False)
        except ValueError:
            return None
    return None


# ------------------------------------------------------------------- the file


def read(path: FilePath) -> Workflow:
    r"""Read a workflow file, and check what can be checked without ranks.

    Parameters
    ----------
    path
        Of the TOML file.

    Returns
    -------
    Workflow

    Raises
    ------
    ConfigError
        The file is not there, is no TOML, or a table or key is wrong: unknown, of another type, a
        module that waits for itself, a function or program that cannot be found.

    Examples
    --------
    >>> import magmagraph as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flow.toml")
    >>> _ = path.write_text('[modules.greet]\ncommand = ["{python}", "-c", "print(1)"]\n')
    >>> mg.workflow.read(path).modules["greet"].copies
    1
    """
    workflow = parse(text_of(path), path)
    workflow.check()
    return workflow


def bytes_of(path: FilePath) -> bytes:
    """Return the content of a workflow file."""
    try:
        return read_file(path, ConfigError, LARGEST_FILE)
    except MissingFileError as error:
        raise ConfigError(message(str(error), need="a TOML file")) from None


def text_of(path: FilePath, content: bytes | None = None) -> str:
    """Return the text of a workflow file, whose content may be known."""
    try:
        return (bytes_of(path) if content is None else content).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(message(f"{path} cannot be read: {error}", need="a TOML file")) from None


def parse(text: str, path: FilePath) -> Workflow:
    """Return the workflow that a text describes; functions and programs are not looked for."""
    return workflow_of(tables_of(text, path), Path(path))


def tables_of(text: str, path: FilePath) -> dict[str, Any]:
    """Parse a text as TOML."""
    source = Path(path).name
    try:
        tables = tomllib.loads(text)
        check_depth(tables, "it")
    except RecursionError:
        raise ConfigError(message(f"{source} is no TOML: it is nested too deeply")) from None
    except ValueError as error:  # of which the errors of TOML are a kind
        raise ConfigError(message(f"{source} is no TOML: {error}")) from None
    return tables


def workflow_of(tables: Mapping[str, Any], path: Path) -> Workflow:
    """Return the workflow that the tables of a file describe."""
    source = path.name
    for name, content in tables.items():
        if name in _FILE:
            continue
        if not isinstance(content, dict):
            table_names = ", ".join(f"[{table}]" for table in _FILE)
            raise ConfigError(
                message(
                    f"{source}: {name!r} stands in no table",
                    need=f"tables: {table_names}",
                    hint="[workflow] in the line before it" if name in _WORKFLOW else None,
                )
            )
        raise ConfigError(
            message(f"{source}: unknown table [{name}]", need=f"one of {', '.join(_FILE)}")
        )
    top = _checked(f"{source}: [workflow]", tables.get("workflow", {}), _WORKFLOW)
    store = _checked(f"{source}: [store]", tables.get("store", {}), _STORE)
    tables_of_modules = tables.get("modules", {})
    if not isinstance(tables_of_modules, dict) or not tables_of_modules:
        raise ConfigError(
            message(f"{source} has no modules", hint='[modules.first]\nfunction = "study:first"')
        )
    modules = {name: _module(source, name, table) for name, table in tables_of_modules.items()}
    _check_order(source, modules)
    folder = path.resolve().parent
    return Workflow(
        top.get("name", path.stem),
        modules,
        top.get("on_failure", "stop"),
        float(top.get("grace", 20.0)),
        folder,
        folder / top.get("output", f"{path.stem}-output"),
        store.get("servers", 0),
        source,
        top.get("iterations", 1),
    )


def _module(source: str, name: str, table: Any) -> Module:
    where = f"{source}: [modules.{name}]"
    if not _NAME.fullmatch(name):
        raise ConfigError(message(where, need="a name of letters, digits, _ and -"))
    values = _checked(where, table, _MODULE)
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    module = Module(name, **{**values, **lists})
    if bool(module.function) == bool(module.command):
        raise ConfigError(
            message(
                f"{where} has "
                + ("both function and" if module.function else "neither function nor")
                + " command",
                need="one of the two",
            )
        )
    if module.function and not re.fullmatch(r"[\w.]+:[\w.]+", module.function):
        raise ConfigError(
            message(f'{where} function = "{module.function}"', need='"package.module:function"')
        )
    only = ("timeout", "environment") if module.function else ("arguments",)
    for key in set(only) & set(values):
        raise ConfigError(
            message(
                f"{where} {key} is for {'programs' if module.function else 'functions'} only",
                need=f"no {key} beside {'function' if module.function else 'command'}",
            )
        )
    if module.grid:
        _check_grid(where, module, "copies" in values)
    for word in module.command:
        _check_places(where, word, module.point(0))
    return module


def _check_grid(where: str, module: Module, copies: bool) -> None:
    points = math.prod(map(len, module.grid.values()))
    wrong = next((n for n in module.grid if not n.isidentifier() or n in PLACES), None)
    if wrong is not None or copies or points > MOST:
        raise ConfigError(
            message(
                f"{where} grid "
                + (f"has the name {wrong!r}" if wrong else f"of {points} points")
                + (" with copies" if copies else ""),
                need=f"names of variables that are none of {', '.join(PLACES)}"
                if wrong
                else f"at most {MOST} points, which are the copies",
            )
        )


def _check_places(where: str, word: str, point: Mapping[str, Any]) -> None:
    sample = {name: "" if name in ("module", "python") else 0 for name in PLACES} | dict(point)
    try:
        parts = list(string.Formatter().parse(word))
        names = {name for _, name, _, _ in parts if name is not None}
        for _, _, form, _ in parts:
            if form and _WIDE.search(form):
                raise ValueError(f"the format {form!r} has a width above 999")
        if names <= set(sample):
            word.format_map(sample)
    except (TypeError, ValueError) as error:  # a dict has no format .2f
        raise ConfigError(
            message(f"{where} command has {word!r}: {error}", hint="{{ and }} are braces")
        ) from None
    if names - set(sample):
        raise ConfigError(
            message(
                f"{where} command has {word!r} with the unknown {sorted(names - set(sample))[0]!r}",
                need=", ".join(f"{{{name}}}" for name in sample),
            )
        )


def _check_order(source: str, modules: Mapping[str, Module]) -> None:
    for name, module in modules.items():
        for before in module.after:
            if before not in modules:
                raise ConfigError(
                    message(
                        f"{source}: [modules.{name}] after names {before!r}, which is no module",
                        need=f"one of {', '.join(modules)}",
                    )
                )
    try:
        graphlib.TopologicalSorter({name: m.after for name, m in modules.items()}).prepare()
    except graphlib.CycleError as error:
        around = " -> ".join(reversed(error.args[1]))
        raise ConfigError(
            message(
                f"{source}: [modules.{error.args[1][0]}] after: a cycle, {around}",
                need="modules that do not wait for themselves",
            )
        ) from None
