"""Modules and workflows: what they need, which ranks do, whether their functions are there."""

from __future__ import annotations

import contextlib
import graphlib
import importlib
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..errors import ConfigError, message

__all__ = ["Module", "Workflow", "order"]


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
    iterations
        How often all modules run, one turn after the other.
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
    iterations: int = 1

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
                        hint=f"mpiexec -n {least} magmagraph workflow run {self.source}",
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
                            need=_needed(module, error),
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
                if not _takes_context(found):
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" is called with the context, '
                            f"and takes ({', '.join(inspect.signature(found).parameters)})",
                            need="a function of one argument, the context",
                        )
                    )
            elif (name := self.words(module, 0, 0, 0, 0)[0]) and not self.program(name):
                raise ConfigError(
                    message(
                        f'{where} command = ["{name}", ...]: there is no such program',
                        need=f"a program on the path, or a file in {self.folder}",
                    )
                )

    def words(self, module: Module, copy: int, turn: int, iteration: int, rank: int) -> list[str]:
        """Return the words of a program, with placeholders filled in."""
        values = {
            "module": module.name,
            "copy": copy,
            "copies": module.copies,
            "turn": turn,
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


def _needed(module: Module, error: Exception) -> str:
    """Return what a function would need to be imported."""
    place = module.function.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and error.name in _prefixes(place):
        return '"package.module:function", on the path or beside the file'
    loaded = sys.modules.get(place)
    if isinstance(error, AttributeError) and loaded is not None:
        own = [n for n, value in vars(loaded).items() if inspect.isfunction(value)]
        return f"a function of {place}: {', '.join(own) or 'it has none'}"
    return f"a module that can be imported: python -c 'import {place}' says where it fails"


def _prefixes(place: str) -> set[str]:
    words = place.split(".")
    return {".".join(words[: i + 1]) for i in range(len(words))}


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called with one argument; True where nobody knows."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # of functions that are not written in Python
        return True
    return True


def order(modules: Mapping[str, Module]) -> Iterator[str]:
    """Return the names of modules, each behind those that it comes after."""
    return iter(
        graphlib.TopologicalSorter(
            {name: module.after for name, module in modules.items()}
        ).static_order()
    )
