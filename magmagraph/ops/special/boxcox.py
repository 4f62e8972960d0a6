"""Box and Cox's transforms of powers, exact near the logarithm, and their inverses."""

from __future__ import annotations

import math

import numpy as np

from ...ir.graph import Node
from ...ir.op import Sample
from ..elementwise.comparison import equal, less, where
from ..elementwise.family import OTHER, POSITIVE, UNIT, scipy_named
from ..elementwise.math import exp, expm1, log, log1p
from ..elementwise.signs import absolute
from .entropy import exprel
from .family import composite

_PARTNER = np.array([[0.9, 2.3, 0.4], [1.6, 0.7, 3.2]])
_ROW = np.array([0.6, 1.5, 2.8])


def _boxcox(x: Node, lmbda: Node) -> Node:
    return _by_logarithm(log(x), lmbda)


def _by_logarithm(logarithm: Node, lmbda: Node) -> Node:
    """Return (exp(lmbda logarithm) - 1) / lmbda, which is the logarithm at lmbda = 0."""
    inside = less(absolute(logarithm), math.inf)
    small = inside & less(absolute(lmbda * where(inside, logarithm, 0)), 0.5)
    near, far = where(small, logarithm, 0), where(small, 0, logarithm)
    zero = equal(lmbda, 0)
    safe = where(small | zero, 1, lmbda)
    # The branch not selected is finite, so that no derivative is 0 times infinity.
    end = where(zero, far, expm1(safe * where(zero, 0, far)) / safe)
    return where(small, near * exprel(where(small, lmbda, 0) * near), end)


boxcox, BOXCOX = composite(
    "boxcox",
    "x lmbda",
    "Evaluate the Box-Cox transform (x**lmbda - 1) / lmbda, which is log(x) at lmbda = 0.",
    """
    >>> mg.special.boxcox([1.0, 4.0], [0.5, 0.0]).eval().round(4)
    array([0.    , 1.3863], dtype=float32)
    """,
    _boxcox,
    module=__name__,
    notes="Exact near lmbda = 0, and so are its derivatives.",
    samples=lambda: [
        Sample((POSITIVE, OTHER)),
        Sample((POSITIVE, np.array([0.0, 1e-9, -0.5]))),
        Sample(
            (
                np.array([0.0, 0.0, 0.0, np.inf, np.inf, np.inf, -1.0, np.nan]),
                np.array([0.5, 0.0, -2.0, 0.5, 0.0, -2.0, 0.5, 0.0]),
            ),
            gradient=(),
            reason="the ends of the domain",
        ),
    ],
    reference=scipy_named("boxcox"),
)


def _boxcox1p(x: Node, lmbda: Node) -> Node:
    return _by_logarithm(log1p(x), lmbda)


boxcox1p, BOXCOX1P = composite(
    "boxcox1p",
    "x lmbda",
    "Evaluate the Box-Cox transform of 1 + x.",
    """
    >>> mg.special.boxcox1p([0.0, 3.0], [0.5, 0.0]).eval().round(4)
    array([0.    , 1.3863], dtype=float32)
    """,
    _boxcox1p,
    module=__name__,
    samples=lambda: [
        Sample((POSITIVE, OTHER)),
        Sample((POSITIVE - 0.9, _ROW)),
        Sample(
            (
                np.array([-1.0, -1.0, -1.0, np.inf, np.inf, np.inf]),
                np.array([0.5, 0.0, -2.0, 0.5, 0.0, -2.0]),
            ),
            gradient=(),
            reason="the ends of the domain",
        ),
    ],
    reference=scipy_named("boxcox1p"),
)


def _log_of_inverse(y: Node, lmbda: Node) -> Node:
    """Return log(1 + lmbda y) / lmbda, which is y at lmbda = 0."""
    inside = less(absolute(y), math.inf)
    finite = where(inside, y, 0)
    product = lmbda * finite
    small = less(absolute(product), 0.1)
    near = where(small, product, 0)
    ratio: Node | float = 0.0  # log(1 + near) / near, by its series
    for k in range(18, 0, -1):
        ratio = ratio * -near + 1.0 / k
    # The branch not selected is finite, so that no derivative is 0 times infinity.
    large = equal(product, math.inf)  # beyond the range: the logarithms are added
    logs = log(absolute(where(large, finite, 1))) + log(absolute(where(large, lmbda, 1)))
    logarithm = where(large, logs, log1p(where(small | large, 1, product)))
    value = where(small, finite * ratio, logarithm / where(small, 1, lmbda))
    zero = equal(lmbda, 0)
    far, safe = where(inside, 1, y), where(inside | zero, 1, lmbda)
    return where(inside, value, where(zero, far, log1p(safe * far) / safe))


inv_boxcox, INV_BOXCOX = composite(
    "inv_boxcox",
    "y lmbda",
    "Invert the Box-Cox transform: (1 + lmbda y)**(1 / lmbda), which is exp(y) at lmbda = 0.",
    """
    >>> mg.special.inv_boxcox([0.0, 2.0], [0.0, 0.5]).eval().round(4)
    array([1., 4.], dtype=float32)
    """,
    lambda y, lmbda: exp(_log_of_inverse(y, lmbda)),
    module=__name__,
    samples=lambda: [
        Sample((POSITIVE, _PARTNER)),
        Sample((UNIT, np.zeros(3)), gradient=(0,), reason="the limit has its slope only"),
        Sample(
            (np.array([np.inf, -np.inf, np.inf]), np.array([0.0, 0.0, 0.5])),
            gradient=(),
            reason="the ends of the domain",
        ),
    ],
    reference=scipy_named("inv_boxcox"),
)

inv_boxcox1p, INV_BOXCOX1P = composite(
    "inv_boxcox1p",
    "y lmbda",
    "Invert the Box-Cox transform of 1 + x.",
    """
    >>> mg.special.inv_boxcox1p([0.0, 2.0], [0.5, 0.5]).eval().round(4)
    array([0., 3.], dtype=float32)
    """,
    lambda y, lmbda: expm1(_log_of_inverse(y, lmbda)),
    module=__name__,
    samples=lambda: [Sample((POSITIVE, _PARTNER))],
    reference=scipy_named("inv_boxcox1p"),
)

RECORDS = (BOXCOX, BOXCOX1P, INV_BOXCOX, INV_BOXCOX1P)
