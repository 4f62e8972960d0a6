"""Optimizers: from gradients to updates, which are nodes of the same graph.

An optimizer turns a loss and variables into ``{variable: new value}``, so that one graph holds a
whole training step. Everything that it remembers between steps (moments, the step, the rate) is a
variable, too.

==========================  ===================================================================
`GradientDescent`           plain, with momentum, with Nesterov's momentum; `SGD` is the same class
`AdaGrad`                   each element's rate falls with the sum of its squared gradients
`RMSProp`                   likewise, with a moving mean of squares
`Adam`, `AdamW`             moving means of gradients and squares; decay in the gradient, or apart
`NAdam`, `RAdam`            Adam with Nesterov's momentum; with a start that is rectified
`Lion`                      signs of a moving mean
`Adafactor`                 second moments by rows and columns alone
`Muon`                      the nearest matrix with orthogonal rows
`LARS`, `LAMB`              a rate per variable, from the ratio of norms, for very large batches
`LBFGS`                     quasi-Newton steps, with a search along the line in the graph
`EMA`, `SWA`                another optimizer, and averages of the weights
`SAM`                       another optimizer, with the gradient at the worst point nearby
`Optimizer`                 the base: subclass it with one method, ``update``
==========================  ===================================================================
"""

from typing import NoReturn

from ..help.argument_errors import tell, tell_classes
from .adaptive import AdaGrad, Adam, AdamW, RMSProp
from .base import Optimizer
from .clip import clip_by_norm, clip_by_value, global_norm
from .descent import SGD, GradientDescent
from .large_batch import LAMB, LARS
from .matrices import Adafactor, Muon
from .minimize import MinimizeResult
from .moments import Lion, NAdam, RAdam
from .quasi_newton import LBFGS
from .state import VariableState
from .wrapped import EMA, SAM, SWA

__all__ = [
    "EMA",
    "LAMB",
    "LARS",
    "LBFGS",
    "SAM",
    "SGD",
    "SWA",
    "AdaGrad",
    "Adafactor",
    "Adam",
    "AdamW",
    "GradientDescent",
    "Lion",
    "MinimizeResult",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSProp",
    "VariableState",
    "clip_by_norm",
    "clip_by_value",
    "global_norm",
]

tell(globals(), __all__)
tell_classes(globals(), __all__, "apply_gradients", "minimize", "step", "updates")


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from ..help.spellings import missing

    raise missing(__name__, name)
