"""Arrays put together of several, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Operands
from ..convert import as_node, promoted
from ..elementwise.arithmetic import remainder
from ..elementwise.comparison import equal, less, where
from ..shape.axes import MATRIX
from ..shape.joining import broadcast_to
from .selecting import MASK

__all__ = [
    "choose",
    "select",
]


@documented
def select(condlist: Operands, choicelist: Operands, default: Any = 0) -> Node:
    """Choose from the first array whose condition holds.

    condlist: List of conditions.
    choicelist: List of as many nodes, arrays or numbers, broadcast against them.
    default: What stands where no condition holds.
    returns: Of the broadcast shape and the promoted dtype.
    raises ShapeError: If there are not as many choices as conditions, or none.

    >>> x = mg.constant([-2.0, 0.5, 3.0])
    >>> mg.select([x < 0, x > 1], [-1.0, 1.0], x).eval()
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices) or not conditions:
        raise ShapeError(
            message(
                f"select: {len(conditions)} conditions and {len(choices)} choices",
                need="as many of each, and at least one",
            )
        )
    *nodes, result = promoted(*choices, default)
    for condition, node in zip(reversed(conditions), reversed(nodes), strict=True):
        result = where(condition, node, result)
    return result


@documented
def choose(a: Any, choices: Operands, mode: str = "clip") -> Node:
    """Choose, element by element, from the array whose number stands there.

    a: Integers: which of the choices.
    choices: List of nodes or arrays, broadcast against each other and `a`.
    mode: What a number outside means: "clip" (the first or the last choice) or "wrap" (modulo).
    returns: Of the broadcast shape and the promoted dtype of the choices.
    raises DTypeError: If `a` is not of integers.
    raises ShapeError: Without choices, or for another mode.

    >>> mg.choose(mg.constant([1, 0, 1]), [[1, 2, 3], [10, 20, 30]]).eval()
    array([10,  2, 30], dtype=int32)
    """
    which = as_node(a)
    members = promoted(*choices) if len(choices) else ()
    call = Call(CHOOSE, (which, *members))
    if which.dtype.kind not in "iu":
        raise call.dtype_error(f"numbers of dtype {which.dtype.name}", need="an integer dtype")
    if not members:
        raise call.shape_error("no choices", need="at least one")
    if mode not in ("clip", "wrap"):
        raise call.shape_error(f"mode={mode!r}", need="clip or wrap")
    if mode == "wrap":
        which = remainder(which, len(members))
    result = members[-1]
    for number in range(len(members) - 2, -1, -1):
        is_choice = equal(which, number) if number else less(which, 1)
        result = where(is_choice, members[number], result)
    shape = call.broadcast(which.shape, *[member.shape for member in members])
    return broadcast_to(result, shape)


SELECT = Composite(
    kind=Kind.ELEMENTWISE,
    function=select,
    tests=Tests(
        samples=lambda: [
            Sample(([MASK, ~MASK[0]], [MATRIX, 2.0 * MATRIX + 1.0]), {"default": 0.5}),
            Sample(([MASK], [MATRIX[0]])),
        ],
        bad_samples=lambda: [
            BadSample(([MASK], [MATRIX, MATRIX]), ShapeError, "select: 1 conditions and 2 choices")
        ],
        reference=lambda conditions, choices, default=0: np.select(conditions, choices, default),
    ),
    numerics="exact",
)

CHOOSE = Composite(
    kind=Kind.ELEMENTWISE,
    function=choose,
    tests=Tests(
        samples=lambda: [
            Sample((np.array([[0, 1, 2], [2, -3, 9]]), [MATRIX, MATRIX[0], 3.0 * MATRIX])),
            Sample((np.array([5, -1, 0]), [MATRIX, 3.0 * MATRIX]), {"mode": "wrap"}),
        ],
        bad_samples=lambda: [
            BadSample((MATRIX, [MATRIX]), DTypeError, "choose: numbers of dtype float64"),
            BadSample((np.array([0]), []), ShapeError, "choose: no choices"),
        ],
        reference=lambda a, choices, mode="clip": np.choose(a, choices, mode=mode),
    ),
    numerics="exact",
)

RECORDS: tuple[Op | Composite, ...] = (
    SELECT,
    CHOOSE,
)
