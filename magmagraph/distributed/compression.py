"""Gradients sent in 16 bits, with what rounding leaves over added to the next ones.

Each rank keeps the difference between its part of a gradient and what it sent, and adds it to its
next part (F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-bit stochastic gradient descent and its
application to data-parallel distributed training of speech DNNs", Interspeech 2014). So nothing is
lost: what has been sent so far differs from the sum of the gradients by the last rounding alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autodiff.transforms.rebuild import rebuild
from ..ir.graph import Node, topological
from ..ops.control.identities import APART, GRADIENT, HELD, MARKER, SENT, SENT_WHEN
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, subtract
from ..ops.elementwise.comparison import where
from ..ops.leaf import variable

__all__ = ["compressed", "gradients_of"]

Pair = tuple[Node, Node]


def gradients_of(roots: Sequence[Node]) -> list[Node]:
    """Return the gradients that a program computes; of nested ones the outermost."""
    gradients = [
        node
        for node in topological(roots)
        if node.op is MARKER and node.attrs["role"] == GRADIENT
    ]
    deepest = max((node.attrs.get("depth", 0) for node in gradients), default=0)
    return [node for node in gradients if node.attrs.get("depth", 0) == deepest]


def sent_by(roots: Sequence[Node]) -> list[Node]:
    """Return what of a program is summed over ranks: gradients, or their sums over calls."""
    sums = [node for node in topological(roots) if node.op is SENT_WHEN]
    return sums + [node for node in gradients_of(roots) if not node.attrs.get("apart")]


def compressed(
    outputs: Sequence[Node], updates: Sequence[Pair], dtype: np.dtype
) -> tuple[list[Node], list[Pair]]:
    """Return outputs and updates whose gradients travel in a narrow dtype.

    outputs, updates: Of a function. Gradients of float32 and float64 with shapes of ints are
        compressed.
    dtype: float16 or bfloat16.
    """
    roots = [*outputs, *(value for _, value in updates)]
    replaced: dict[Node, Node] = {}
    kept: list[Pair] = []
    for node in sent_by(roots):
        wide, flag = node.dtype, node.inputs[1] if node.op is SENT_WHEN else None
        if wide.kind != "f" or wide.itemsize < 4 or not all(type(e) is int for e in node.shape):
            continue
        label = f"{node.name or 'gradient'} left over"
        over = variable(label, init=np.zeros(node.shape, wide))
        # Over calls, unscaled means are added up; a call's own gradients have the loss's scale.
        scaled: dict[str, Any] = {"scaled": True} if flag is None else {}
        before = MARKER(over, role=HELD, **scaled)
        part = MARKER(add(node.inputs[0], before), role=APART)
        narrow = cast(part, dtype)
        sent = cast(MARKER(narrow, role=APART), wide)
        rest = MARKER(subtract(part, sent), role=APART)
        if flag is None:
            total = cast(MARKER(narrow, role=SENT), wide)
            replaced[node] = MARKER(total, name=node.name, **node.attrs)
        else:
            replaced[node] = cast(SENT_WHEN(narrow, flag), wide)
            rest = where(flag, rest, before)  # at other calls nothing is rounded
        kept.append((over, MARKER(rest, role=HELD, **scaled)))
    rebuilt = rebuild(roots, replaced)
    count = len(outputs)
    renewed = [(target, new) for (target, _), new in zip(updates, rebuilt[count:], strict=True)]
    return rebuilt[:count], [*renewed, *kept]
