"""Workflows: modules of one job, by a file: `mg.workflow`.

===========  =====================================================================
`run`        run the workflow of a file on the ranks of the job
`read`       read a file and check it
===========  =====================================================================

Functions that are modules are called with a `Context`; `run` returns a `Result` of `ModuleRun`.
"""

from ..help.argument_errors import tell, tell_classes
from .context import Context
from .engine import run
from .file import read
from .modules import Module, Workflow
from .program import ProgramError
from .result import ModuleRun, Result, WorkflowError
from .store import Piece, Store, WorkflowStopped, WorkflowTimeout

__all__ = [
    "Context",
    "Module",
    "ModuleRun",
    "Piece",
    "ProgramError",
    "Result",
    "Store",
    "Workflow",
    "WorkflowError",
    "WorkflowStopped",
    "WorkflowTimeout",
    "read",
    "run",
]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
