"""The state of dynamic loss scaling: three variables of a function in float16.

The `precision` pass scales gradients and renews these; here they are made, and found again in a
function that was loaded or copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from ..ir.graph import Node, topological
from ..ops.control.identities import MARKER, SCALE, SKIPPED, STATE, STEPS, is_scaling_state
from ..ops.leaf import Variable, variable

__all__ = ["LossScale", "counters", "found_in"]

INITIAL = 2.0**15
FETCHED = 2.0**10  # where gradients are results: nothing is skipped that a smaller scale would mend


class LossScale(NamedTuple):
    """The state of dynamic loss scaling, `Function.loss_scale`.

    scale (Variable): float32: by how much gradients are computed larger. A power of two, or what is
        set.
    steps (Variable): int32: finite steps since the scale changed.
    skipped (Variable): int32: steps whose updates did not land, as a gradient was not finite.
        Gradients that are results of such a call are not finite either.

    Examples
    --------
    >>> import magmagraph as mg
    >>> W = mg.var("W", init=mg.init.ones(), shape=(4, 4))
    >>> x = mg.input("x", shape=("n", 4))
    >>> f = mg.optimizer.SGD(0.1).step(mg.mean(x @ W), [W], [x], precision="float16")
    >>> f.loss_scale.scale.value
    array(32768., dtype=float32)
    >>> f.loss_scale.scale.value = 1024.0
    """

    scale: Variable
    steps: Variable
    skipped: Variable


def counters(outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]]) -> list[
    tuple[Node, Node]
]:
    """Return updates of new state for loss scaling where a graph has a gradient, else none."""
    roots = [*outputs, *(value for _, value in updates)]
    if not any(node.op is MARKER and node.attrs["role"] == "seed" for node in topological(roots)):
        return []
    variables = (
        variable("loss_scale", init=np.float32(INITIAL if updates else FETCHED)),
        variable("loss_scale_steps", init=np.int32(0)),
        variable("loss_scale_skipped", init=np.int32(0)),
    )
    return [(v, MARKER(v, role=role)) for v, role in zip(variables, STATE, strict=True)]


def found_in(updates: Iterable[tuple[Node, Node]]) -> LossScale | None:
    """Return the state that a function's updates hold, or None."""
    by_role = {
        value.attrs["role"]: variable for variable, value in updates if is_scaling_state(value)
    }
    if len(by_role) < len(STATE):
        return None
    return LossScale(*(cast(Variable, by_role[role]) for role in (SCALE, STEPS, SKIPPED)))
