"""Gradients that ranks add up over calls, each its own: together they are the sum of all ranks.

What travels between ranks is then the sum over calls, at the call that applies it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.graph import Node
from ..ir.ranks import current
from ..ops.control.identities import APART, GRADIENT, HELD, MARKER, SENT_WHEN
from ..ops.elementwise.arithmetic import add
from ..ops.elementwise.comparison import where
from ..ops.leaf import Variable, constant

__all__ = ["Sums"]


class Sums:
    """Variables of an optimizer that hold each rank's term of a sum.

    group: Axes of the mesh along which the ranks differ.
    """

    def __init__(self, group: tuple[str, ...]) -> None:
        self.group = group

    def added(self, total: Variable, gradient: Node, ready: Node) -> tuple[Node, Node]:
        """Return the sum of all calls and ranks, and what a variable holds after the call.

        total: This rank's sum of the calls before.
        gradient: Of this call.
        ready: Whether this call applies the sum. At others its first result is of no meaning.
        """
        if gradient.op is MARKER and gradient.attrs["role"] == GRADIENT:
            gradient = MARKER(
                gradient.inputs[0], name=gradient.name, **{**gradient.attrs, "apart": True}
            )
        term = MARKER(add(MARKER(total, role=HELD), gradient), role=APART)
        zero = constant(0, dtype=total.dtype)
        return SENT_WHEN(term, ready), MARKER(where(ready, zero, term), role=HELD)

    def gathered(self, value: np.ndarray) -> np.ndarray:
        """Return the sum of what the ranks hold; all of them call it."""
        whole = current().group(self.group).allreduce(np.ascontiguousarray(value), "sum")
        return np.asarray(whole).reshape(np.shape(value))

    def cut(self, value: Any) -> Any:
        """Return this rank's term of a sum: all of it on the first rank."""
        first = current().group(self.group).rank == 0
        return value if first else np.zeros_like(np.asarray(value))
