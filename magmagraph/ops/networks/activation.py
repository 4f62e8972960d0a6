"""The nonlinear functions of networks that others are made of, and what their records share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import INEXACT, Composite, Kind, Op, Sample, Tests
from ..convert import as_node
from ..elementwise.comparison import greater, less, where
from ..elementwise.family import POSITIVE, REAL, floating, like_number, unary
from ..elementwise.math import exp, expm1, log, log1p

EXTREME = np.array([-1000.0, -50.0, 50.0, 1000.0])


def _sigmoid(xp: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return 1 / (1 + xp.exp(-x))  # where exp overflows the quotient is the right 0
    right = x.real >= 0  # a complex quotient of infinities would be NaN
    small = xp.exp(xp.where(right, -x, x))
    return xp.where(right, 1, small) / (1 + small)


sigmoid, SIGMOID = unary(
    "sigmoid",
    "Evaluate the logistic function 1 / (1 + exp(-x)).",
    """
    >>> mg.sigmoid([-1000.0, 0.0, 1.0]).eval().round(4)
    array([0.    , 0.5   , 0.7311], dtype=float32)
    """,
    module=__name__,
    evaluate=_sigmoid,
    scalar="(T)1 / ((T)1 + $exp(-a))",
    complex_scalar="$sigmoid(a)",
    gradient=lambda node, cotangent: (cotangent * (node * (1.0 - node)),),
    samples=lambda: [
        Sample((REAL,)),
        Sample((EXTREME,), gradient=(), reason="differences of constants"),
    ],
    reference=lambda x: 0.5 * (1.0 + np.tanh(0.5 * x)),
    dtypes=INEXACT,
    onnx="Sigmoid",
)


def _softplus(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


softplus, SOFTPLUS = unary(
    "softplus",
    "Evaluate log(1 + exp(x)) without overflow.",
    """
    >>> mg.softplus([-1000.0, 0.0, 1000.0]).eval().round(4)
    array([0.000e+00, 6.931e-01, 1.000e+03], dtype=float32)
    """,
    module=__name__,
    evaluate=_softplus,
    scalar="(a > 0 ? a : (T)0) + $log1p($exp(-$fabs(a)))",
    gradient=lambda node, cotangent: (cotangent * sigmoid(node.inputs[0]),),
    samples=lambda: [
        Sample((REAL,)),
        Sample((EXTREME,), gradient=(), reason="differences of large numbers"),
    ],
    reference=lambda x: np.logaddexp(x, 0.0),
    onnx="Softplus",
)

relu, RELU = unary(
    "relu",
    "Replace negative values by 0.",
    """
    >>> mg.relu([-2.0, 0.0, 3.0]).eval()
    array([0., 0., 3.], dtype=float32)
    """,
    module=__name__,
    notes="The gradient at 0 is 0. NaN stays NaN.",
    evaluate=lambda xp, x: xp.maximum(x, x.dtype.type(0)),
    scalar="a <= 0 ? (T)0 : a",
    # Of its own value, which later operations need anyway: the operand need not be kept.
    gradient=lambda node, cotangent: (where(greater(node, 0), cotangent, 0),),
    rule=like_number,
    operand=as_node,
    samples=lambda: [Sample((REAL,)), Sample((np.array([-3, 0, 4], dtype=np.int32),))],
    numerics="exact",
    epilogue="relu",
    onnx="Relu",
)


@grouped
@documented
def log_sigmoid(x: Any) -> Node:
    """Evaluate the logarithm of the sigmoid, exact also where that underflows.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.log_sigmoid([-1000.0, 0.0]).eval().round(4)
    array([-1.000e+03, -6.931e-01], dtype=float32)
    """
    return -softplus(-floating(x))


@documented
def log1mexp(x: Any) -> Node:
    """Evaluate log(1 - exp(-x)) for positive x, exact at both ends.

    x: Node or array; ints become floats.
    returns: Of the shape and float dtype of `x`; -inf at 0, NaN below.

    Notes
    -----
    Mächler, "Accurately computing ``log(1 - exp(-|a|))``", 2012: the two forms change places at
    log(2).

    >>> mg.log1mexp([1e-6, 1.0]).eval().round(4)
    array([-13.8155,  -0.4587], dtype=float32)
    """
    node = floating(x)
    small = less(node, math.log(2.0))
    # Each form is given a harmless value where the other one is taken.
    near = log(-expm1(-where(small, node, 0.5)))
    return where(small, near, log1p(-exp(-where(small, 1.0, node))))


def activation(
    function: Callable[..., Node],
    doc: str,
    reference: Callable[..., Any],
    *options: dict[str, Any],
    more: np.ndarray | None = None,
    numerics: str = "stable",
    loses: str = "",
) -> Composite:
    """Return the record of a function of one operand and options, with `more` values to try."""
    return Composite(
        name=function.__name__,
        kind=Kind.ELEMENTWISE,
        function=function,
        doc=doc,
        tests=Tests(
            samples=lambda: [
                Sample((REAL,)),
                *(Sample((REAL,), option) for option in options),
                *([] if more is None else [Sample((more,))]),
            ],
            reference=reference,
            loses=loses,
        ),
        numerics=numerics,
    )


RECORDS: tuple[Op | Composite, ...] = (
    SIGMOID,
    SOFTPLUS,
    RELU,
    activation(
        log_sigmoid,
        "Evaluate the logarithm of the sigmoid.",
        lambda x: -np.logaddexp(0.0, -x),
        more=np.array([-500.0, 20.0]),
    ),
    Composite(
        kind=Kind.ELEMENTWISE,
        function=log1mexp,
        tests=Tests(
            samples=lambda: [
                Sample((POSITIVE,)),
                Sample((np.array([0.0, 30.0, -1.0]),), gradient=(), reason="a pole"),
            ],
            reference=lambda x: np.log(-np.expm1(-x)),
        ),
    ),
)
