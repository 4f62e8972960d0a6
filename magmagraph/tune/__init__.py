"""Hyperparameter search: `mg.tune`.

======================================================  ============================
`search`                                                try points, find the best
`grid`, `choice`, `uniform`, `log_uniform`, `integers`  what a parameter may be
`when`                                                  under which options it exists
`Median`, `Halving`                                     stop poor trials
`Report`                                                the callback for `Model.fit`
`read`                                                  a journal, running or ended
======================================================  ============================

The objective is given a `Trial`; a `SearchResult` holds a `TrialResult` for each.
"""

from ..help.argument_errors import tell, tell_classes
from .engine import TrialError
from .goal import Goal
from .result import SearchResult, read
from .search import search
from .space import choice, grid, integers, log_uniform, uniform, when
from .stopping import Halving, Median
from .trial import Report, Trial, TrialResult

__all__ = [
    "Goal",
    "Halving",
    "Median",
    "Report",
    "SearchResult",
    "Trial",
    "TrialError",
    "TrialResult",
    "choice",
    "grid",
    "integers",
    "log_uniform",
    "read",
    "search",
    "uniform",
    "when",
]

tell(globals(), __all__)
tell_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
