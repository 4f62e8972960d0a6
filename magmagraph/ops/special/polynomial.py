"""Orthogonal polynomials of whole degree, by their recurrences in the degree.

With p0 = 1 and p1 given, each next one is ``(slope x + shift) p - back p_before`` with numbers that
depend on the degree (NIST Handbook of Mathematical Functions, table 18.9.1). The graph has some
operations for each degree; fusion makes one kernel of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import finfo
from ...errors import DTypeError, ShapeError, message
from ...ir.graph import Node
from ...ir.op import BadSample, Composite, Kind, Op, Sample, Tests
from ...ir.types import MOST_TERMS
from ..convert import cast
from ..elementwise.comparison import greater, where
from ..elementwise.family import REAL, publish, scipy_named
from ..elementwise.rounding import isinf
from ..elementwise.signs import absolute
from .family import SpecialFunction, floats, widened


def _degree(name: str, n: Any) -> int:
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise DTypeError(
            message(f"{name}: the degree {n!r} is not an int", need="a whole degree, not a node")
        )
    if n < 0:
        raise ShapeError(message(f"{name}: the degree {n} is negative", need="0, 1, 2, ..."))
    if n > MOST_TERMS:
        raise ShapeError(message(f"{name}: the degree {n}", need=f"at most {MOST_TERMS}"))
    return int(n)


def _evaluated(
    degree: int, x: Node, far: Node, step: Callable[[int, Node, Node], Node], first: Node
) -> Node:
    """Return p of a degree, where ``step(k, p_k, p_before)`` is p of degree k + 1.

    Where `far` is true, p_before is below the rounding of the other term, and is left out: where
    both overflow, the difference of two infinities would be NaN.
    """
    before, current = where(isinf(x), 0.0, x) * 0.0 + 1.0, first
    if degree == 0:
        return before
    for k in range(1, degree):
        before, current = current, step(k, current, where(far, 0.0, before))
    return current


def _is_far(x: Node, scale: Node | float) -> Node:
    """Return where x is so large that terms of x**(n - 2) do not count beside that of x**n."""
    return greater(absolute(x), 32.0 / math.sqrt(float(finfo(x.dtype).eps)) * scale)


_FIELDS = """
n: The degree, an int from 0 to 10,000.
{more}x: Node or array; ints become floats.
returns: Of the shape{broadcast} and the float dtype of `x`.
raises DTypeError, ShapeError: Where `n` is not an int from 0 to 10,000: each degree is a step of
    the graph.
"""
_EXAMPLE = """
>>> mg.special.{name}({arguments}, [0.5, 1.0]).eval().round(4)
array({result}, dtype=float32)
"""


def _family(
    name: str,
    what: str,
    arguments: str,
    result: str,
    first: Callable[..., Node],
    step: Callable[..., Node],
    *shapes: float,
) -> tuple[SpecialFunction, Composite]:
    """Make a polynomial's function; `shapes` are sample values of its further parameters."""

    def plain(n: Any, x: Any) -> Node:
        (operands,) = floats(name, x)
        node = widened(operands)
        value = _evaluated(
            _degree(name, n),
            node,
            _is_far(node, 1.0),
            lambda *args: step(node, *args),
            first(node),
        )
        return cast(value, operands.dtype)

    def shaped(n: Any, alpha: Any, x: Any) -> Node:
        operands = floats(name, alpha, x)
        shape, node = map(widened, operands)
        value = _evaluated(
            _degree(name, n),
            node + shape * 0.0,
            _is_far(node, 1.0 + shape * shape),
            lambda *args: step(node, shape, *args),
            first(node, shape),
        )
        return cast(value, operands[0].dtype)

    function = shaped if shapes else plain
    more = "alpha: Node, array or number that broadcasts with `x`.\n" if shapes else ""
    broadcast = ", broadcast with `alpha`," if shapes else ""
    fields = _FIELDS.format(more=more, broadcast=broadcast)
    example = _EXAMPLE.format(name=name, arguments=arguments, result=result)
    publish(function, name, __name__, f"Evaluate {what} of degree n.", fields, example)
    values = (shapes[0],) if shapes else ()
    record = Composite(
        name=name,
        kind=Kind.ELEMENTWISE,
        namespace="special",
        function=function,
        tests=Tests(
            samples=lambda: [Sample((n, *values, REAL)) for n in (0, 1, 2, 6)],
            bad_samples=lambda: [
                BadSample((-1, *values, REAL), ShapeError, f"{name}: the degree -1 is negative"),
                BadSample(
                    (1.5, *values, REAL), DTypeError, f"{name}: the degree 1.5 is not an int"
                ),
            ],
            reference=scipy_named(name),
        ),
        numerics="reassoc",
    )
    return function, record


eval_legendre, LEGENDRE = _family(
    "eval_legendre",
    "Legendre's polynomial",
    "2",
    "[-0.125,  1.   ]",
    lambda x: x,
    lambda x, k, p, before: ((2.0 * k + 1.0) / (k + 1)) * (x * p) - (k / (k + 1)) * before,
)
eval_chebyt, CHEBYT = _family(
    "eval_chebyt",
    "Chebyshev's polynomial of the first kind",
    "2",
    "[-0.5,  1. ]",
    lambda x: x,
    lambda x, k, p, before: 2.0 * (x * p) - before,
)
eval_chebyu, CHEBYU = _family(
    "eval_chebyu",
    "Chebyshev's polynomial of the second kind",
    "2",
    "[0., 3.]",
    lambda x: 2.0 * x,
    lambda x, k, p, before: 2.0 * (x * p) - before,
)
eval_hermite, HERMITE = _family(
    "eval_hermite",
    "the physicists' Hermite polynomial",
    "2",
    "[-1.,  2.]",
    lambda x: 2.0 * x,
    lambda x, k, p, before: 2.0 * (x * p) - (2.0 * k) * before,
)
eval_hermitenorm, HERMITENORM = _family(
    "eval_hermitenorm",
    "the probabilists' Hermite polynomial",
    "2",
    "[-0.75,  0.  ]",
    lambda x: x,
    lambda x, k, p, before: x * p - float(k) * before,
)
eval_laguerre, LAGUERRE = _family(
    "eval_laguerre",
    "Laguerre's polynomial",
    "2",
    "[ 0.125, -0.5  ]",
    lambda x: 1.0 - x,
    lambda x, k, p, before: (2.0 * k + 1.0 - x) / (k + 1) * p - (k / (k + 1)) * before,
)
eval_genlaguerre, GENLAGUERRE = _family(
    "eval_genlaguerre",
    "the generalized Laguerre polynomial",
    "2, 0.5",
    "[ 0.75 , -0.125]",
    lambda x, alpha: 1.0 + alpha - x,
    lambda x, alpha, k, p, before: (
        (2.0 * k + 1.0 + alpha - x) / (k + 1) * p - (k + alpha) / (k + 1) * before
    ),
    0.5,
)
eval_gegenbauer, GEGENBAUER = _family(
    "eval_gegenbauer",
    "Gegenbauer's polynomial",
    "2, 1.5",
    "[0.375, 6.   ]",
    lambda x, alpha: 2.0 * alpha * x,
    lambda x, alpha, k, p, before: (
        (2.0 * ((k + alpha) * (x * p)) - (k - 1.0 + 2.0 * alpha) * before) * (1.0 / (k + 1))
    ),
    1.5,
)

RECORDS: tuple[Op | Composite, ...] = (
    LEGENDRE,
    CHEBYT,
    CHEBYU,
    HERMITE,
    HERMITENORM,
    LAGUERRE,
    GENLAGUERRE,
    GEGENBAUER,
)
