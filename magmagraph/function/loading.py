"""`mg.load`: read a function from the archive that `Function.save` wrote."""

from __future__ import annotations

from typing import Any

from ..ir.docstrings import documented
from ..ir.types import FilePath
from . import Function, archive, check_settings

__all__ = ["load"]


@documented
def load(path: FilePath) -> Function:
    """Return the function of an archive, with variables of its own.

    It takes the same inputs by name and order, gives outputs of the same form, and renews its
    variables likewise. They are found in ``f.source_graph.variables``.

    path: What `Function.save` wrote.
    returns (Function):
    raises PlanError: The file is no archive, is truncated or damaged, or is of a later format.
    raises MissingFileError: There is no such file; it is a FileNotFoundError, too.
    """
    function: Function = archive.load(path, check_settings, _function_of)
    return function


def _function_of(state: dict[str, Any]) -> Function:
    function = Function.__new__(Function)
    function.__setstate__(state)
    return function
