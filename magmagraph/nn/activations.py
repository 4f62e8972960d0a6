"""Activation functions, by name or as functions of nodes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from .. import functional
from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.op import Kind
from ..ops import TABLE
from ..ops.elementwise import (
    arithmetic,
    bits,
    comparison,
    complex_numbers,
    exponents,
    math,
    not_finite,
    numbers,
    rounding,
    signs,
)
from ..ops.elementwise.arithmetic import multiply, negative
from ..ops.elementwise.math import exp
from ..ops.networks import activation as common
from ..ops.networks import exponential_units, gelu, piecewise, slopes
from ..ops.special import primitives as special

__all__ = ["activation", "activation_name", "linear", "rbf"]

Function = Callable[[Node], Node]


@documented
def linear(x: Node) -> Node:
    """Return the value itself: the activation of a layer without one.

    x (Node): Of any shape and dtype.
    returns: The same node.

    >>> x = mg.var("x", shape=("n",))
    >>> mg.nn.linear(x) is x
    True
    """
    return x


@documented
def rbf(x: Node) -> Node:
    """Return ``exp(-x**2)``, the Gaussian radial basis function of a distance.

    x: Node or array of distances; ints become floats.
    returns: Of the shape and float dtype of `x`.

    >>> mg.nn.rbf(mg.constant([0.0, 1.0])).eval().round(4)
    array([1.    , 0.3679], dtype=float32)
    """
    return exp(negative(multiply(x, x)))


def gelu_tanh(x: Any) -> Node:
    """Return `mg.gelu` in its form with tanh, as GPT-2 has it."""
    return gelu.gelu(x, approximate=True)


_OWN: dict[str, Function] = {"gelu_tanh": gelu_tanh, "linear": linear, "rbf": rbf}
_FAMILIES = (
    arithmetic, bits, comparison, complex_numbers, exponents, math, not_finite, numbers, rounding,
    signs, common, exponential_units, gelu, piecewise, slopes, special, functional,
)  # fmt: skip


def activation(given: Any) -> Function:
    """Return an activation function.

    given: A function of a node; its name: that of any function of magmagraph which takes one
        operand and keeps its shape ("relu", "gelu", "softmax", "tanh", ...), "gelu_tanh", "rbf", or
        "linear"; None is "linear".
    raises ConfigError: If there is no such function.
    """
    if given is None:
        return linear
    if callable(given):
        own_function: Function = given
        return own_function
    own = _OWN.get(given) if isinstance(given, str) else None
    if own is not None:
        return own
    function = _public(given) if isinstance(given, str) else None
    if function is None:
        number = isinstance(given, (int, tuple)) and not isinstance(given, bool)
        raise ConfigError(
            message(
                f"there is no activation {given!r}",
                need="the name of a function of magmagraph, as 'relu' or 'softmax', or a function",
                hint="leave the first number out: features and channels of the input are found "
                "when the layer is called"
                if number
                else _nearest(given),
            )
        )
    return function


def _nearest(text: Any) -> str | None:
    """Return the known name that is most like one that is not known."""
    if not isinstance(text, str):
        return None
    names = [*_OWN, *(name for name in TABLE if _public(name) is not None)]
    matches = difflib.get_close_matches(text.lower(), names, 1)
    return repr(matches[0]) if matches else None


def activation_name(given: Any) -> str | None:
    """Return the name under which a function can be found again, or None."""
    if given is None or isinstance(given, str):
        return given or "linear"
    name = getattr(given, "__name__", "")
    names = (_OWN.get(name), _public(name))
    return name if _bare(given) in map(_bare, names) else None


def _bare(function: Any) -> Any:
    """Return a function without what explains its arguments and groups its nodes."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _public(name: str) -> Function | None:
    record = TABLE.get(name)
    if record is None or record.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION):
        return None
    functions = (getattr(family, name, None) for family in _FAMILIES)
    return next((function for function in functions if function is not None), None)
