"""Workflow files: what stands in them, and what is refused before anything starts."""

from __future__ import annotations

import contextlib
import graphlib
import importlib
import os
import re
import shutil
import string
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..errors import ConfigError, message

__all__ = ["Module", "Workflow", "parse", "read"]

PLACES = ("module", "copy", "copies", "iteration", "rank", "processes", "threads", "python")
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Module:
    """A module of a workflow, as its table says.

    Attributes
    ----------
    name
        Of the table.
    function
        ``"package.module:function"``, or empty for a program.
    command
        The words of a program, with placeholders; empty for a function.
    after
        The modules that have to be done before.
    processes
        Ranks of a copy.
    ranks
        The ranks of all copies, or of each; empty for any.
    threads
        Of a rank; 0 for what the process has.
    copies, iterations
        How many run at once, and how often each of them does.
    timeout
        Seconds that a program may take.
    arguments
        For the function: ``context.arguments``.
    environment
        Variables of a program.
    """

    name: str
    function: str = ""
    command: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    processes: int = 1
    ranks: tuple[int, ...] = ()
    threads: int = 0
    copies: int = 1
    iterations: int = 1
    timeout: float = 3600.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def fixed(self, copy: int) -> tuple[int, ...]:
        """Return the ranks that a copy has to have, or none."""
        if len(self.ranks) == self.processes:
            return self.ranks
        return self.ranks[copy * self.processes : (copy + 1) * self.processes]

    def resolve(self) -> Callable[[Any], Any]:
        """Return the function, imported."""
        place, _, name = self.function.partition(":")
        found: Any = importlib.import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
        return cast(Callable[[Any], Any], found)


@dataclass(frozen=True)
class Workflow:
    """A workflow, as its file says.

    Attributes
    ----------
    name
        For people.
    modules
        By name, in the order of the file.
    on_failure
        "stop" or "continue".
    grace
        Seconds that functions have to end after a failure.
    folder
        Of the file: programs run there, functions are found there.
    output
        The folder of what programs print.
    servers
        Ranks that hold values; negative ones count from the last.
    metadata
        The rank that knows where values are; None for the last server.
    source
        The file's name.
    """

    name: str
    modules: Mapping[str, Module]
    on_failure: str
    grace: float
    folder: Path
    output: Path
    servers: tuple[int, ...]
    metadata: int | None
    source: str

    def place(self, size: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return the workers, the servers and the metadata rank among so many ranks.

        Raises
        ------
        ConfigError
            There are too few ranks, or a table names one that is not there or is no worker.
        """
        workers: tuple[int, ...] = (0,)
        servers: tuple[int, ...] = (0,)
        metadata = 0  # in one process all of them are one
        if size > 1:
            servers = tuple(self._rank(rank, size, "servers") for rank in self.servers)
            last = self.servers[-1] if self.metadata is None else self.metadata
            metadata = self._rank(last, size, "metadata")
            workers = tuple(r for r in range(size) if r not in servers and r != metadata)
        for module in self.modules.values():
            where = self.table(module)
            if module.processes > len(workers):
                least = module.processes + (size - len(workers) if size > 1 else 1)
                raise ConfigError(
                    message(
                        f"{where} processes = {module.processes}: too few ranks, "
                        f"{len(workers)} of {size} can run modules",
                        need=f"{least} ranks at least",
                        mend=f"mpiexec -n {least} magmagraph workflow run {self.source}",
                    )
                )
            wrong = sorted(set(module.ranks) - set(workers))
            if wrong:
                raise ConfigError(
                    message(
                        f"{where} ranks = {list(module.ranks)}: rank {wrong[0]} "
                        + ("does not exist" if wrong[0] >= size else "is a server of [store]"),
                        need=f"ranks among {list(workers)}, which run modules",
                    )
                )
        return workers, servers, metadata

    def least_ranks(self) -> int:
        """Return the fewest ranks that can run it."""
        most = max(module.processes for module in self.modules.values())
        named = [abs(rank) for m in self.modules.values() for rank in m.ranks]
        named += [abs(rank) for rank in (*self.servers, self.metadata or 0)]
        enough = most + max(named) + len(self.servers) + 2
        for size in range(1, enough):
            with contextlib.suppress(ConfigError):
                self.place(size)
                return size
        self.place(enough)  # a rank is a module's and a server's in every size: this says which
        return enough

    def _rank(self, rank: int, size: int, key: str) -> int:
        if not -size <= rank < size:
            raise ConfigError(
                message(
                    f"{self.source}: [store] {key} names rank {rank}, and there are {size} ranks",
                    need=f"ranks from 0 to {size - 1}, or from -1, the last, to {-size}",
                )
            )
        return rank % size

    def check(self) -> None:
        """Look for the functions and programs.

        Raises
        ------
        ConfigError
            One cannot be imported or found.
        """
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))  # as for a script; functions may import later
        for module in self.modules.values():
            where = self.table(module)
            if module.function:
                try:
                    found = module.resolve()
                except Exception as error:  # whatever the file of the function raises
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" cannot be imported: '
                            f"{type(error).__name__}: {error}",
                            need='"package.module:function", on the path or beside the file',
                        )
                    ) from error
                if not callable(found):
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" is '
                            f"{type(found).__name__}, which cannot be called",
                            need="a function of one argument, the context",
                        )
                    )
            elif (name := self.words(module, 0, 0, 0)[0]) and not self.program(name):
                raise ConfigError(
                    message(
                        f'{where} command = ["{name}", ...]: there is no such program',
                        need=f"a program on the path, or a file in {self.folder}",
                    )
                )

    def words(self, module: Module, copy: int, iteration: int, rank: int) -> list[str]:
        """Return the words of a program, with placeholders filled in."""
        values = {
            "module": module.name,
            "copy": copy,
            "copies": module.copies,
            "iteration": iteration,
            "rank": rank,
            "processes": module.processes,
            "threads": module.threads or 1,
            "python": sys.executable,
        }
        return [word.format_map(values) for word in module.command]

    def program(self, name: str) -> str | None:
        """Return where a program lies, or None."""
        beside = self.folder / name
        if os.sep in name:
            return str(beside) if os.access(beside, os.X_OK) and beside.is_file() else None
        return shutil.which(name)

    def table(self, module: Module) -> str:
        """Return where a module stands, for people."""
        return f"{self.source}: [modules.{module.name}]"


# ------------------------------------------------------------------- values


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return _whole(value) and value >= 1


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _wholes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value)) and len(set(value)) == len(value)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (_text, "a text"),
    "whole": (_whole, "a rank, a whole number"),
    "count": (_count, "a whole number of at least 1"),
    "seconds": (_seconds, "seconds, a number above 0"),
    "texts": (_texts, "a list of texts"),
    "wholes": (_wholes, "a list of different ranks, whole numbers"),
    "table": (lambda value: isinstance(value, dict), "a table"),
    "variables": (
        lambda value: isinstance(value, dict) and all(isinstance(v, str) for v in value.values()),
        "a table of texts",
    ),
    "failure": (lambda value: value in ("stop", "continue"), '"stop" or "continue"'),
}
_FILE = {"workflow": "table", "store": "table", "modules": "table"}
_WORKFLOW = {"name": "text", "on_failure": "failure", "grace": "seconds", "output": "text"}
_STORE = {"servers": "wholes", "metadata": "whole"}
_MODULE = {
    "function": "text",
    "command": "texts",
    "after": "texts",
    "processes": "count",
    "ranks": "wholes",
    "threads": "count",
    "copies": "count",
    "iterations": "count",
    "timeout": "seconds",
    "arguments": "table",
    "environment": "variables",
}


def _checked(where: str, table: Any, known: Mapping[str, str]) -> dict[str, Any]:
    """Return a table whose keys and types are right."""
    if not isinstance(table, dict):
        raise ConfigError(message(f"{where} = {table!r}", need="a table"))
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                message(f"{where} has the unknown key {key!r}", need=f"one of {', '.join(known)}")
            )
        fits, need = _KINDS[known[key]]
        if not fits(value):
            raise ConfigError(message(f"{where} {key} = {value!r}", need=need))
    return table


# ------------------------------------------------------------------- the file


def read(path: str | os.PathLike[str]) -> Workflow:
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
    >>> _ = path.write_text('[modules.greet]\\ncommand = ["{python}", "-c", "print(1)"]\n')
    >>> mg.workflow.read(path).modules["greet"].copies
    1
    """
    found = parse(text_of(path), path)
    found.check()
    return found


def text_of(path: str | os.PathLike[str]) -> str:
    """Return the text of a workflow file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(message(f"{path} cannot be read: {error}", need="a TOML file")) from None


def parse(text: str, path: str | os.PathLike[str]) -> Workflow:
    """Return the workflow that a text describes; functions and programs are not looked for."""
    path = Path(path)
    source = path.name
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(message(f"{source} is no TOML: {error}")) from None
    for name in tables:
        if name not in _FILE:
            raise ConfigError(
                message(f"{source}: unknown table [{name}]", need=f"one of {', '.join(_FILE)}")
            )
    top = _checked(f"{source}: [workflow]", tables.get("workflow", {}), _WORKFLOW)
    store = _checked(f"{source}: [store]", tables.get("store", {}), _STORE)
    given = tables.get("modules", {})
    if not isinstance(given, dict) or not given:
        raise ConfigError(
            message(f"{source} has no modules", mend='[modules.first]\nfunction = "study:first"')
        )
    modules = {name: _module(source, name, table) for name, table in given.items()}
    _check_order(source, modules)
    servers = tuple(store.get("servers", (-1,)))
    if not servers:
        raise ConfigError(message(f"{source}: [store] servers = []", need="one rank at least"))
    folder = path.resolve().parent
    return Workflow(
        top.get("name", path.stem),
        modules,
        top.get("on_failure", "stop"),
        float(top.get("grace", 20.0)),
        folder,
        folder / top.get("output", f"{path.stem}-output"),
        servers,
        store.get("metadata"),
        source,
    )


def _module(source: str, name: str, table: Any) -> Module:
    where = f"{source}: [modules.{name}]"
    if not _NAME.fullmatch(name):
        raise ConfigError(message(where, need="a name of letters, digits, _ and -"))
    found = _checked(where, table, _MODULE)
    lists = {key: tuple(value) for key, value in found.items() if isinstance(value, list)}
    module = Module(name, **{**found, **lists})
    if bool(module.function) == bool(module.command):
        raise ConfigError(
            message(
                f"{where} has {'both' if module.function else 'neither'} function and command",
                need="one of the two",
            )
        )
    if module.function and not re.fullmatch(r"[\w.]+:[\w.]+", module.function):
        raise ConfigError(
            message(f'{where} function = "{module.function}"', need='"package.module:function"')
        )
    only = ("timeout", "environment") if module.function else ("arguments",)
    for key in set(only) & set(found):
        raise ConfigError(
            message(
                f"{where} {key} is for {'programs' if module.function else 'functions'} only",
                need=f"no {key} beside {'function' if module.function else 'command'}",
            )
        )
    for word in module.command:
        _check_places(where, word)
    wanted = {0, module.processes, module.processes * module.copies}
    if len(module.ranks) not in wanted or min(module.ranks, default=0) < 0:
        raise ConfigError(
            message(
                f"{where} ranks = {list(module.ranks)}",
                need=f"{module.processes} ranks, from 0, for the processes of a copy"
                + (f", or {max(wanted)} for all copies" if module.copies > 1 else ""),
            )
        )
    return module


def _check_places(where: str, word: str) -> None:
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(word) if name is not None}
    except ValueError as error:
        raise ConfigError(
            message(f"{where} command has {word!r}: {error}", mend="{{ and }} are braces")
        ) from None
    if names - set(PLACES):
        raise ConfigError(
            message(
                f"{where} command has {word!r} with the unknown {sorted(names - set(PLACES))[0]!r}",
                need=", ".join(f"{{{name}}}" for name in PLACES),
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
        list(order(modules))
    except graphlib.CycleError as error:
        around = " -> ".join(reversed(error.args[1]))
        raise ConfigError(
            message(
                f"{source}: [modules.{error.args[1][0]}] after: a cycle, {around}",
                need="modules that do not wait for themselves",
            )
        ) from None


def order(modules: Mapping[str, Module]) -> Iterator[str]:
    """Return the names of modules, each behind those that it comes after."""
    return iter(
        graphlib.TopologicalSorter(
            {name: module.after for name, module in modules.items()}
        ).static_order()
    )
