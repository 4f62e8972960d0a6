"""What operations know of the matrices that they make; `Linalg.facts` says it, passes read it."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ...ir.graph import Node


class Facts(enum.Flag):
    """What holds of matrices in the last two axes, whatever the values that they are made of.

    LOWER, UPPER: Zero above, or below, the main diagonal.
    DIAGONAL: Both.
    HERMITIAN: Square, and equal to the conjugate transpose, in exact arithmetic.
    POSITIVE: Hermitian with positive eigenvalues, in exact arithmetic.
    REGULAR: Square and invertible: where it is not, what made it has raised.
    ORTHOGONAL: Square, and the conjugate transpose is the inverse, but for rounding.
    """

    NONE = 0
    LOWER = enum.auto()
    UPPER = enum.auto()
    HERMITIAN = enum.auto()
    POSITIVE = enum.auto()
    REGULAR = enum.auto()
    ORTHOGONAL = enum.auto()
    DIAGONAL = LOWER | UPPER

# ``rule(node, known)``: the facts of a node's result, or of each of several, from what
# ``known(operand)`` says of its operands.
FactsRule = Callable[["Node", Callable[["Node"], Facts]], "Facts | tuple[Facts, ...]"]


def always(*facts: Facts) -> FactsRule:
    """Return the rule of an operation whose results are always of these facts.

    Examples
    --------
    >>> always(Facts.LOWER)(None, None)
    <Facts.LOWER: 1>
    """
    return lambda node, known: facts[0] if len(facts) == 1 else facts
