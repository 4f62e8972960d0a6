"""Find the line of the user's source that is running, and the scope that is open there."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar

from .records import record

__all__ = ["SCOPE", "Line", "caller_line", "operator_line", "warn_user"]


@record(frozen=True)
class Line:
    """A line of the user's source, and the scope that was open there (see `scope`)."""

    file: str
    number: int
    scope: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


_PACKAGE = __name__.partition(".")[0]
_PREFIX = _PACKAGE + "."
_lines: dict[tuple[str, int, str], Line] = {}  # each line once, however many nodes it makes
_own: dict[str, bool] = {}  # whether a module is one of this package
SCOPE: ContextVar[str] = ContextVar("scope", default="")


def caller_line() -> Line | None:
    """Return the innermost line outside of this package that is now running; callers are in it."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        own = _own.get(module)
        if own is None:
            own = _own[module] = module == _PACKAGE or module.startswith(_PREFIX)
        if not own:
            place = (frame.f_code.co_filename, frame.f_lineno, SCOPE.get())
            known = _lines.get(place)
            return known if known is not None else _lines.setdefault(place, Line(*place))
        frame = frame.f_back  # type: ignore[assignment]
    return None


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
