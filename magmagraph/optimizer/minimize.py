"""Repeated steps on one loss, watched for convergence and for divergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autodiff.autodiff import check_loss
from ..errors import ConfigError, DivergedError, UpdateError, message
from ..function import function
from ..function.defaults import default_updates
from ..function.feeds import named_feeds
from ..ir.graph import Node
from ..ir.html import Displayed, sparkline, table_html
from ..ir.records import record
from ..ops.leaf import Variable

__all__ = ["MinimizeResult", "minimize"]


@record(frozen=True)
class MinimizeResult(Displayed):
    """What a minimization found.

    Attributes
    ----------
    value
        The loss at the point that the variables hold.
    steps
        How many steps were taken.
    converged
        Whether the loss changed by less than the tolerance; False where none was given.
    history
        The losses: at the beginning, and after every step (``steps + 1`` of them).
    """

    value: float
    steps: int
    converged: bool
    history: tuple[float, ...]

    def _html(self) -> str:
        rows = [("loss", "steps", "converged", "loss at the beginning")]
        first = self.history[0] if self.history else self.value
        rows.append((f"{self.value:.9g}", str(self.steps), str(self.converged), f"{first:.9g}"))
        return table_html(rows) + sparkline(self.history, "loss")

    def __repr__(self) -> str:
        how = "converged" if self.converged else "stopped"
        return f"<minimization {how} after {self.steps} steps at {self.value:.9g}>"


def minimize(
    optimizer: str,
    updates_of: Callable[[Node, Any], dict[Variable, Node]],
    loss: Node,
    wrt: Any,
    feeds: Mapping[Node | str, Any] | None,
    steps: int,
    tol: float | None,
    callback: Callable[[int, float], Any] | None,
) -> MinimizeResult:
    """Run the optimizer with this name and these updates of a loss; see `Optimizer.minimize`."""
    if not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ConfigError(message(f"minimize: steps={steps!r}", need="an int, steps >= 0"))
    if tol is not None and not (isinstance(tol, (int, float, np.number)) and tol >= 0):
        raise ConfigError(message(f"minimize: tol={tol!r}", need="a number, tol >= 0"))
    check_loss("minimize", loss)
    given = named_feeds("minimize", loss, feeds)
    values = tuple(given.values())
    updates = updates_of(loss, wrt)
    if not updates:
        raise no_variable("minimize")
    updates.update(default_updates([loss, *updates.values()], updates))
    advance = function(list(given), loss, updates=updates, name="minimize")
    variables = list(updates)
    # A call returns the loss of the point that it leaves, so that a bad point is known one call
    # late: the point of the last finite loss is kept aside.
    good: Sequence[np.ndarray] | None = None
    history: list[float] = []
    converged = False
    for step in range(steps):
        here = [held.value for held in variables]
        value = float(advance(*values))
        _check_finite(optimizer, value, step, variables, here if good is None else good)
        good = here
        history.append(value)
        if tol is not None and step and abs(history[-1] - history[-2]) < tol:
            converged = True
            break
        if callback is not None and callback(step, value):
            break
    end = function(list(given), loss, name="minimize: the final loss", default_updates=False)
    final = float(end(*values))
    here = [held.value for held in variables]
    _check_finite(optimizer, final, len(history), variables, here if good is None else good)
    if tol is not None and history and abs(final - history[-1]) < tol:
        converged = True
    return MinimizeResult(final, len(history), converged, (*history, final))


def no_variable(who: str) -> UpdateError:
    """Return the error of a call that has nothing to optimize."""
    return UpdateError(
        message(
            f"{who}: wrt names no variable",
            need="at least one: what is optimized",
            hint=f"{who}(loss, [W, b], ...); mg.function for the value alone",
        )
    )


def _check_finite(
    optimizer: str,
    value: float,
    step: int,
    variables: Sequence[Variable],
    good: Sequence[np.ndarray],
) -> None:
    if math.isfinite(value):
        return
    for held, array in zip(variables, good, strict=True):
        held.assign(array)
    raise DivergedError(
        message(
            f"{optimizer}: the loss is {value} at "
            + (f"step {step}; the variables hold the point of the last finite loss"
               if step else "the point where it begins"),
            need="finite losses",
            hint="a smaller learning rate, or clip_norm=" if step
            else "another start, or a loss that is finite there: mg.debug.blame(f, feeds) "
            "names what is not",
        ),
        step,
    )
