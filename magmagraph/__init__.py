"""magmagraph: a lazy compute-graph compiler that shows its work."""

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util

from ._version import __version__ as __version__
from .config import config as config
from .dims import Dim as Dim
from .errors import *  # noqa: F403
from .graph import Graph as Graph
from .graph import Node as Node
from .op import Composite as _Composite
from .op import Op as _Op
from .ops import TABLE as _TABLE
from .ops import register as _register
from .ops.leaf import Variable as Variable
from .ops.leaf import constant as constant
from .ops.leaf import extent as extent
from .ops.leaf import input as input
from .ops.leaf import variable as variable

for _module in ("functional",):
    if _util.find_spec(f"{__name__}.{_module}") is not None:
        _register(_importlib.import_module(f"{__name__}.{_module}").RECORDS)
from .functional import batch_norm_updates as batch_norm_updates

for _record in _TABLE.values():
    if _record.function is not None:
        globals()[_record.name] = _record.function
for _module in ("ops.operators", "random", "init", "schedule", "optimizer", "data", "function"):
    if _util.find_spec(f"{__name__}.{_module}") is not None:
        globals()[_module.rpartition(".")[2]] = _importlib.import_module(f"{__name__}.{_module}")
if _util.find_spec(f"{__name__}.autodiff") is not None:
    from .autodiff import *  # noqa: F403
    from .derivatives import *  # noqa: F403
    from .gradient_check import *  # noqa: F403
    from .ops.differentiation import checkpoint as checkpoint
    from .ops.differentiation import custom_gradient as custom_gradient
    from .scipy_objective import *  # noqa: F403
if _util.find_spec(f"{__name__}.function") is not None:
    from .function import function as function


def var(name, *args, **kwargs):
    """Make an input or a variable (with a name), or take NumPy's variance (of a node)."""
    if isinstance(name, str):
        return (variable if "init" in kwargs else input)(name, *args, **kwargs)
    return globals()["variance"](name, *args, **kwargs)
