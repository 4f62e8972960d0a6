"""Penalties on weights, as terms of a loss: `mg.regularize`.

A penalty is a number for each weight, ``λ Ω(w)``, that is added to the loss. Unlike an optimizer's
weight decay it is part of what is minimized, and of the loss that is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import ConfigError, message
from .help.argument_errors import tell, tell_classes
from .ir.docstrings import documented
from .ir.graph import Node
from .ops.convert import as_node
from .ops.elementwise.arithmetic import add, multiply
from .ops.elementwise.signs import absolute
from .ops.reduction.primitives import sum

__all__ = ["Penalty", "l1", "l2"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class Penalty:
    """``l1 * sum(|w|) + l2 * sum(w**2)``, made by `l1` and `l2`; penalties can be added.

    Examples
    --------
    >>> import magmagraph as mg
    >>> w = mg.var("w", init=[3.0, -4.0])
    >>> elastic = mg.regularize.l1(1.0) + mg.regularize.l2(0.1)
    >>> elastic(w).eval()
    array(9.5, dtype=float32)
    """

    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("l1", self.l1), ("l2", self.l2)):
            if not value >= 0:
                raise ConfigError(message(f"regularize.{name}: {value}", need="a number >= 0"))

    def __add__(self, other: Penalty) -> Penalty:
        if not isinstance(other, Penalty):
            return NotImplemented
        return Penalty(self.l1 + other.l1, self.l2 + other.l2)

    def __call__(self, weights: Node | Iterable[Any]) -> Node:
        """Return the penalty of a weight, or the sum over several."""
        nodes = [weights] if isinstance(weights, Node) else [as_node(w) for w in weights]
        terms = [self._one(node) for node in nodes]
        if not terms:
            return as_node(0.0)
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        return total

    def _one(self, weight: Node) -> Node:
        terms = []
        if self.l1:
            terms.append(multiply(sum(absolute(weight)), self.l1))
        if self.l2:
            terms.append(multiply(sum(multiply(weight, weight)), self.l2))
        if not terms:
            return multiply(sum(weight), 0.0)
        return terms[0] if len(terms) == 1 else add(*terms)


@documented
def l1(factor: float = 0.01) -> Penalty:
    """Return the penalty ``factor * sum(|w|)``, under which small weights become zero.

    factor: λ, at least 0.
    returns (Penalty): A function of a weight, or of several, that gives a scalar node.
    raises ConfigError: If the factor is negative.

    >>> w, b = mg.var("w", init=[3.0, -4.0]), mg.var("b", init=2.0)
    >>> mg.regularize.l1(0.5)([w, b]).eval()
    array(4.5, dtype=float32)
    """
    return Penalty(l1=factor)


@documented
def l2(factor: float = 0.01) -> Penalty:
    """Return the penalty ``factor * sum(w**2)``, which keeps weights small.

    Its gradient is ``2 * factor * w``: for plain gradient descent a weight decay of twice the
    factor.

    factor: λ, at least 0.
    returns (Penalty): A function of a weight, or of several, that gives a scalar node.
    raises ConfigError: If the factor is negative.

    >>> loss = mg.regularize.l2(0.1)(mg.var("w", init=[3.0, -4.0]))
    >>> loss.eval()
    array(2.5, dtype=float32)
    """
    return Penalty(l2=factor)


tell(globals(), __all__)
tell_classes(globals(), __all__, "__call__")
