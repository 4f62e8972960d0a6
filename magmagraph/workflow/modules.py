"""Modules and workflows: what they need, which ranks do, whether their functions are there."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import ConfigError, message

__all__ = ["Module", "Workflow"]


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
        Ranks of a copy: so many workers.
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
    grid
        Lists of values, by name: a copy for each point.
    """

    name: str
    function: str = ""
    command: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    processes: int = 1
    threads: int = 0
    copies: int = 1
    iterations: int = 1
    timeout: float = 3600.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.grid:
            object.__setattr__(self, "copies", math.prod(map(len, self.grid.values())))

    def point(self, copy: int) -> dict[str, Any]:
        """Return the values of a copy's point of the grid, the last name changing fastest."""
        if not self.grid:
            return {}
        at = np.unravel_index(copy, [len(values) for values in self.grid.values()])
        return {name: self.grid[name][i] for name, i in zip(self.grid, at, strict=True)}

    def title(self, copy: int, turn: int) -> str:
        """Return the name of a copy for people, without what goes without saying."""
        name = f"module {self.name}" + (f", copy {copy}" if self.copies > 1 else "")
        return name + (f", turn {turn}" if turn else "")

    def resolve(self) -> Callable[[Any], Any]:
        """Return the function, imported."""
        place, _, name = self.function.partition(":")
        value: Any = importlib.import_module(place)
        for part in name.split("."):
            value = getattr(value, part)
        return cast(Callable[[Any], Any], value)


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
        Over how many servers large values are cut; with 0 the metadata server holds all values.
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
    servers: int
    source: str
    iterations: int = 1

    @property
    def least_workers(self) -> int:
        """The fewest workers that can run it."""
        return max(self.servers, *(module.processes for module in self.modules.values()))

    def check_workers(self, workers: int, hint: str | None = None) -> None:
        """Raise unless so many workers can run it.

        Raises
        ------
        ConfigError
            There are too few.
        """
        least = self.least_workers
        if workers >= least:
            return
        large = [m for m in self.modules.values() if m.processes == least]
        raise ConfigError(
            message(
                (
                    f"{self.table(large[0])} processes = {least}"
                    if large
                    else f"{self.source}: [store] servers = {self.servers}"
                )
                + f": too few workers, there {'is 1' if workers == 1 else f'are {workers}'}",
                need=f"{least} workers at least",
                hint=hint or f'executor="process", workers={least}',
            )
        )

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
                    function = module.resolve()
                except Exception as error:  # the function's file may raise anything
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" cannot be imported: '
                            f"{type(error).__name__}: {error}",
                            need=_needed(module, error),
                        )
                    ) from error
                if not callable(function):
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" is '
                            f"{type(function).__name__}, which cannot be called",
                            need="a function of one argument, the context",
                        )
                    )
                if not _takes_context(function):
                    raise ConfigError(
                        message(
                            f'{where} function = "{module.function}" is called with the context, '
                            f"and takes ({', '.join(inspect.signature(function).parameters)})",
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
            **module.point(copy),
        }
        return [word.format_map(values) for word in module.command]

    def printed(self, module: Module, copy: int, turn: int, iteration: int) -> Path:
        """Return the file of what a program prints."""
        parts = [module.name, copy, *([turn] if self.iterations > 1 else []), iteration]
        return self.output / f"{'-'.join(map(str, parts))}.txt"

    def program(self, name: str) -> str | None:
        """Return the path of a program, or None."""
        beside = self.folder / name
        if os.sep in name:
            return str(beside) if os.access(beside, os.X_OK) and beside.is_file() else None
        return shutil.which(name)

    def table(self, module: Module) -> str:
        """Return a module's place in the file, for messages."""
        return f"{self.source}: [modules.{module.name}]"


def _needed(module: Module, error: Exception) -> str:
    """Return the `expected:` text for a function that cannot be imported."""
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
