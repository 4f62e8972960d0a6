"""Workflows: modules of one job, by a file: `mg.workflow`.

===========  =====================================================================
`run`        run the workflow of a file on the ranks of the job
`read`       read a file and check it
===========  =====================================================================

Functions that are modules are called with a `Context`; `run` returns a `Result` of `ModuleRun`.
"""

from ..help.argument_errors import tell, tell_classes
from .client import WorkflowStopped, WorkflowTimeout
from .context import Context, Store
from .engine import run
from .file import read
from .modules import Module, Workflow
from .program import ProgramError
from .result import ModuleRun, Result, WorkflowError

__all__ = [
    "Context",
    "Module",
    "ModuleRun",
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
