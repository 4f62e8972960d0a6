"""Find the line of the user's source that is running, and the group that is open there.

A group is a named part of a program: a block of `mg.scope`, a call of a layer, or a call of a
function that is made of several operations, such as `softmax`. Each node knows its line, and a line
knows its group, so that pictures, reports and profiles can name the parts that a user wrote.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeVar

from .records import record

__all__ = [
    "Group",
    "Line",
    "attribute",
    "attributed",
    "caller_line",
    "current_group",
    "group_of",
    "grouped",
    "named_group",
    "open_group",
    "operator_line",
    "warn_user",
]


class Group:
    """A named part of a program, inside of others.

    Two calls of one function are two groups of one name. Groups are equal to themselves alone.

    name: The name of a scope, a layer or a function; "gradient" of what `mg.grad` made.
    parent: The group around it, or None.
    kind: ``"scope"``, ``"layer"``, ``"function"`` or ``"gradient"``.
    """

    __slots__ = ("kind", "lines", "name", "named", "parent")

    def __init__(self, name: str, parent: Group | None = None, kind: str = "scope") -> None:
        self.name = name
        self.parent = parent
        self.kind = kind
        self.lines: dict[tuple[str, int], Line] = {}  # those of its nodes, each once
        self.named: dict[str, Group] = {}  # scopes within, which may be opened again

    @property
    def path(self) -> str:
        """The names from the outermost group to this one, joined by slashes."""
        return "/".join(group.name for group in reversed(list(self.around())))

    @property
    def in_gradient(self) -> bool:
        """Whether a gradient is among the groups around it."""
        return any(group.kind == "gradient" for group in self.around())

    def around(self) -> Iterator[Group]:
        """Give this group and those around it, innermost first."""
        group: Group | None = self
        while group is not None:
            yield group
            group = group.parent

    def line(self, file: str, number: int) -> Line:
        """Return the line of a file in this group."""
        line = self.lines.get((file, number))
        if line is None:
            line = self.lines.setdefault((file, number), Line(file, number, self))
        return line

    def __reduce__(self) -> tuple[Any, ...]:
        return Group, (self.name, self.parent, self.kind)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path}>"


@record(frozen=True)
class Line:
    """A line of the user's source, and the group that was open there."""

    file: str
    number: int
    group: Group | None = None

    @property
    def scope(self) -> str:
        """The path of the group; empty where there is none."""
        return self.group.path if self.group is not None else ""

    @property
    def made(self) -> str:
        """The line in words: ``made at step.py:3``.

        A node of a gradient has the line and the group of the node whose gradient it is.
        """
        if self.group is not None and self.group.in_gradient:
            return f"made for the gradient of {self}"
        return f"made at {self}"

    @property
    def place(self) -> str:
        """The line and the group in words: ``made at step.py:3, in dense/gelu``."""
        return f"{self.made}, in {self.scope}" if self.group is not None else self.made

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


_PACKAGE = __name__.partition(".")[0]
_PREFIX = _PACKAGE + "."
_lines: dict[tuple[str, int], Line] = {}  # each line once, however many nodes it makes
_scopes: dict[str, Group] = {}  # the outermost scopes, by name
_own: dict[str, bool] = {}  # whether a module is one of this package
_OPEN: ContextVar[Group | None] = ContextVar("group", default=None)
_ATTRIBUTED: ContextVar[Line | None] = ContextVar("attributed", default=None)

Function = TypeVar("Function", bound=Callable[..., Any])


def caller_line() -> Line | None:
    """Return the innermost line outside of this package that is now running; callers are in it.

    In a block of `attributed`, the line that was given there.
    """
    attributed = _ATTRIBUTED.get()
    if attributed is not None:
        return attributed
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        own = _own.get(module)
        if own is None:
            own = _own[module] = module == _PACKAGE or module.startswith(_PREFIX)
        if not own:
            group = _OPEN.get()
            file, number = frame.f_code.co_filename, frame.f_lineno
            if group is not None:
                return group.line(file, number)
            attributed = _lines.get((file, number))
            return attributed if attributed is not None else _lines.setdefault(
                (file, number), Line(file, number)
            )
        frame = frame.f_back  # type: ignore[assignment]
    return None


# ----------------------------------------------------------------------- groups


def current_group() -> Group | None:
    """Return the group that nodes made now belong to."""
    line = _ATTRIBUTED.get()
    return _OPEN.get() if line is None else line.group


def named_group(name: str) -> Group:
    """Return the scope of a name inside of the open group: the same one each time."""
    outer = _OPEN.get()
    groups = _scopes if outer is None else outer.named
    group = groups.get(name)
    return group if group is not None else groups.setdefault(name, Group(name, outer))


@contextmanager
def open_group(group: Group) -> Iterator[None]:
    """Let the nodes that are made in a block belong to a group."""
    token = _OPEN.set(group)
    try:
        yield
    finally:
        _OPEN.reset(token)


@contextmanager
def attributed(line: Line | None) -> Iterator[None]:
    """Let the nodes that are made in a block have a line, whatever line is running."""
    token = _ATTRIBUTED.set(line)
    try:
        yield
    finally:
        _ATTRIBUTED.reset(token)


def attribute(line: Line | None) -> None:
    """Change the line of the innermost open block of `attributed`."""
    _ATTRIBUTED.set(line)


def group_of(name: str, kind: str) -> Group:
    """Return a new group inside of the open one."""
    return Group(name, _OPEN.get(), kind)


def grouped(function: Function) -> Function:
    """Make the nodes of each call of a function a group of the function's name.

    For functions that are made of several operations.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.gelu(mg.input("x", shape=(3,))).line.scope
    'gelu'
    """
    opened, group_class, name = _OPEN, Group, function.__name__

    def call(*args: Any, **named: Any) -> Any:
        token = opened.set(group_class(name, opened.get(), "function"))
        try:
            return function(*args, **named)
        finally:
            opened.reset(token)

    # With the globals of the function's module, in which doctest and the line of the user look.
    wrapper = FunctionType(
        call.__code__, function.__globals__, name, None, call.__closure__
    )
    functools.update_wrapper(wrapper, function)
    wrapper.__dict__["__group__"] = True
    return wrapper  # type: ignore[return-value]


# ---------------------------------------------------------------------- callers

_CALLING = tuple(_PREFIX + name for name in ("ir.op", "ops.operators", "ops.elementwise", "help."))


def operator_line() -> Line | None:
    """Return the user's line if it calls the running elementwise operation itself, else None.

    None is for operations that functions and passes of this package call.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_CALLING):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "")
    if module == _PACKAGE or module.startswith(_PREFIX):
        return None
    return caller_line()


def warn_user(text: str, category: type[Warning], line: Line | None) -> None:
    """Issue a warning at a line of the user's source, where one is known."""
    if line is None:
        warnings.warn(text, category, stacklevel=3)
    else:
        warnings.warn_explicit(text, category, line.file, line.number)
