"""List the public names of every namespace, with the page and the source line of each."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import magmagraph

PACKAGE = Path(magmagraph.__file__).resolve().parent
# Namespaces that are imported by name, as a program that does not use them needs neither.
IMPORTED = ("estimators", "losses")


@dataclass(frozen=True)
class PublicName:
    """One public name: `namespace` is "mg" or "mg.nn", `name` what follows it."""

    namespace: str
    name: str
    value: Any
    same_as: str | None  # the full name that has the page, if the value has several names

    @property
    def full_name(self) -> str:
        """Return the name as users write it."""
        return f"{self.namespace}.{self.name}"

    @property
    def path(self) -> str:
        """Return the name with the package's own, as it is imported."""
        return "magmagraph" + self.full_name.removeprefix("mg")

    @property
    def summary(self) -> str:
        """Return the first paragraph of the docstring, in one line."""
        if isinstance(self.value, np.dtype):
            return f"The element type {self.name}."
        if self.same_as is not None:
            return f"Another name of `{self.same_as}`."
        if not (documented(self.value) or is_own(self.value)):
            return f"The constant `{self.value!r}`."
        return " ".join(docstring(self.value).partition("\n\n")[0].split())


def docstring(value: Any) -> str:
    """Return the docstring of a public value, without its indentation."""
    return inspect.getdoc(value) or ""


@functools.cache
def namespaces() -> dict[str, ModuleType]:
    """Return the modules that hold public names, by the name that users write."""
    modules = {"mg": magmagraph}
    for name in magmagraph.__all__:
        if isinstance(value := getattr(magmagraph, name), ModuleType):
            modules[f"mg.{name}"] = value
    for name in IMPORTED:
        modules[f"mg.{name}"] = importlib.import_module(f"magmagraph.{name}")
    return dict(sorted(modules.items()))


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """Return every public name of every namespace; a value has its page under one of its names."""
    values = [
        (namespace, name, getattr(module, name))
        for namespace, module in namespaces().items()
        for name in sorted(module.__all__)
        if not isinstance(getattr(module, name), ModuleType)
    ]
    pages: dict[int, str] = {}
    for own in (True, False):  # the name of the definition first
        for namespace, name, value in values:
            if documented(value) and (not own or getattr(value, "__name__", None) == name):
                pages.setdefault(id(inspect.unwrap(value)), f"{namespace}.{name}")
    names = []
    for namespace, name, value in values:
        full_name = f"{namespace}.{name}"
        page = pages.get(id(inspect.unwrap(value)), full_name)
        names.append(PublicName(namespace, name, value, None if page == full_name else page))
    return tuple(names)


def documented(value: Any) -> bool:
    """Return whether a value is a function or a class, which has a docstring of its own."""
    return inspect.isroutine(value) or inspect.isclass(value) or hasattr(value, "__wrapped__")


def is_own(value: Any) -> bool:
    """Return whether a value is an instance of a class of the package."""
    return type(value).__module__.startswith("magmagraph")


def source_position(value: Any, name: str) -> tuple[Path, int] | None:
    """Return the file of the package and the line where a function or class is defined."""
    value = inspect.unwrap(value)
    if isinstance(value, property):
        value = value.fget
    module = inspect.getmodule(value)
    if getattr(module, "__file__", None) is None:
        return None
    path = Path(module.__file__).resolve()
    if PACKAGE not in path.parents:
        return None
    # Functions that a table makes are defined where their name is assigned.
    lines = definition_lines(path)
    line = lines.get(getattr(value, "__qualname__", name), lines.get(name))
    if line is None:
        try:
            source, line = inspect.getsourcefile(value), inspect.getsourcelines(value)[1]
        except (OSError, TypeError):
            return path, 1
        return (Path(source).resolve(), line) if source else (path, 1)
    return path, line


@functools.cache
def definition_lines(path: Path) -> dict[str, int]:
    """Return the line of each definition of a file, by its qualified name."""
    lines: dict[str, int] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines.setdefault(prefix + node.name, node.lineno)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for item in ast.walk(target):
                        if isinstance(item, ast.Name):
                            lines.setdefault(prefix + item.id, node.lineno)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return lines
