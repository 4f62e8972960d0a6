"""Gradients sent in 16 bits, with what rounding leaves over added to the next ones.

Each rank keeps the difference between its part of a gradient and what it sent, and adds it to its
next part (F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-bit stochastic gradient descent and its
application to data-parallel distributed training of speech DNNs", Interspeech 2014). So nothing is
lost: what has been sent so far differs from the sum of the gradients by the last rounding alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Node, topological
from ..ops.control.identities import APART, GRADIENT, HELD, MARKER, SENT
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, subtract
from ..ops.leaf import variable
from ..transforms.rebuild import rebuild

__all__ = ["compressed", "gradients_of"]

Pair = tuple[Node, Node]


def gradients_of(roots: Sequence[Node]) -> list[Node]:
    """Return the gradients that a program computes; of nested ones the outermost."""
    found = [
        node
        for node in topological(roots)
        if node.op is MARKER and node.attrs["role"] == GRADIENT
    ]
    deepest = max((node.attrs.get("depth", 0) for node in found), default=0)
    return [node for node in found if node.attrs.get("depth", 0) == deepest]


def compressed(
    outputs: Sequence[Node], updates: Sequence[Pair], dtype: np.dtype
) -> tuple[list[Node], list[Pair]]:
    """Return outputs and updates whose gradients travel in a narrow dtype.

    Parameters
    ----------
    outputs, updates
        Of a function. Gradients of float32 and float64 with shapes of ints are compressed.
    dtype
        float16 or bfloat16.
    """
    roots = [*outputs, *(value for _, value in updates)]
    replaced: dict[Node, Node] = {}
    kept: list[Pair] = []
    for marker in gradients_of(roots):
        wide = marker.dtype
        if wide.kind != "f" or wide.itemsize < 4 or not all(type(e) is int for e in marker.shape):
            continue
        label = f"{marker.name or 'gradient'} left over"
        over = variable(label, init=np.zeros(marker.shape, wide))
        part = MARKER(add(marker.inputs[0], MARKER(over, role=HELD)), role=APART)
        narrow = cast(part, dtype)
        total = cast(MARKER(narrow, role=SENT), wide)
        replaced[marker] = MARKER(total, name=marker.name, **marker.attrs)
        sent = cast(MARKER(narrow, role=APART), wide)
        kept.append((over, MARKER(subtract(part, sent), role=HELD)))
    made = rebuild(roots, replaced)
    count = len(outputs)
    renewed = [(held, new) for (held, _), new in zip(updates, made[count:], strict=True)]
    return made[:count], [*renewed, *kept]
