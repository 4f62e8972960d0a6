"""Looking at values: taps and asserts in a graph, values of any node, who made the first NaN.

`print`, `tap`, `assert_` and `finite` return their value unchanged, and are written around it:
``h = mg.debug.print(h, "hidden")``. They survive every optimization and hinder none; gradients pass
through them. What a function does not depend on, it does not print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GraphError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import caller_line
from ..ops.control.observing import ASSERT, TAP, Callback, fresh
from ..ops.convert import as_node
from ..ops.elementwise.rounding import isfinite

if TYPE_CHECKING:
    from ..function import Function
    from ..inspect.checking.blame import NonFinite

__all__ = ["assert_", "blame", "finite", "print", "tap", "values"]


def __dir__() -> list[str]:
    return sorted(__all__)


@documented
def print(x: Any, label: str | None = None) -> Node:
    """Return a value, and print it whenever a function that needs it computes it.

    A line with the label, the type and the range of the values, then the array as NumPy prints
    it (shortened above 1000 elements), to the standard output.

    x: Node or array of any shape and dtype.
    label: What stands before it; the name or operation, and the line, unless given.
    returns: The value itself: use it in the place of `x`.

    Notes
    -----
    Prints run in the order in which they were written, before any variable is renewed. Under
    `vmap` all examples are printed at once; in the body of a loop each iteration prints. On a GPU
    the value comes to the host, and the captured graph is cut there.

    See Also
    --------
    tap : hands the value to a function.

    >>> x = mg.input("x", shape=(3,))
    >>> h = mg.debug.print(mg.sqrt(x), "root")
    >>> mg.function([x], mg.sum(h))([1.0, 4.0, 9.0])
    root: float32[3] in [1, 3]
    [1. 2. 3.]
    array(6., dtype=float32)
    """
    node = as_node(x)
    return _tap(node, _label(node, label), None)


@documented
def tap(x: Any, callback: Callable[[np.ndarray], object], label: str | None = None) -> Node:
    """Return a value, and hand it to a function whenever it is computed.

    x: Node or array of any shape and dtype.
    callback: ``callback(array)``: called with a NumPy array of its own. What it raises ends the
        call, and no variable is changed. What it returns is not used. A function that `mg.load`
        reads from a file prints in its place: files hold no code.
    label: A name, for reports.
    returns: The value itself: use it in the place of `x`.
    raises GraphError: The callback cannot be called.

    >>> seen = []
    >>> x = mg.input("x", shape=(2,))
    >>> mg.function([x], mg.debug.tap(x * 2.0, seen.append) + 1.0)([1.0, 2.0])
    array([3., 5.], dtype=float32)
    >>> seen
    [array([2., 4.], dtype=float32)]
    """
    if not callable(callback):
        raise GraphError(
            message(
                f"tap: the callback is {type(callback).__name__}",
                need="a function of an array",
                hint="mg.debug.print(x, label) prints",
            )
        )
    node = as_node(x)
    return _tap(node, _label(node, label), Callback(callback))


def _tap(node: Node, label: str, callback: Callback | None) -> Node:
    if isinstance(node.type, tuple):
        raise GraphError(
            message("an operation with several results is tapped", need="one of its results")
        )
    return TAP(node, label=label, callback=callback, passes=True, uid=fresh())


@documented
def assert_(condition: Any, x: Any, text: str | None = None) -> Node:
    """Return a value; a call that computes it fails unless a condition is true everywhere.

    condition: Bool node of any shape.
    x: Node or array of any shape and dtype.
    text: What the error says; the name or operation, and the line, unless given.
    returns: The value itself: use it in the place of `x`.
    raises DTypeError: The condition is not bool.
    raises CheckError: By a call: the condition does not hold. The text counts the elements, names
        the first of them, the node and its line; no variable was changed.

    See Also
    --------
    finite : asserts that all values are finite.

    >>> x = mg.input("x", shape=(3,))
    >>> f = mg.function([x], mg.log(mg.debug.assert_(x > 0.0, x, "x is positive")))
    >>> f([1.0, 1.0, 1.0])
    array([0., 0., 0.], dtype=float32)
    >>> f([1.0, -2.0, 0.0])
    Traceback (most recent call last):
    ...
    magmagraph.errors.CheckError: x is positive: 2 of 3 elements do not hold, first at (1,); ...
    """
    node = as_node(x)
    return ASSERT(
        node, as_node(condition), label=_label(node, text), passes=True, uid=fresh()
    )


@documented
def finite(x: Any, text: str | None = None) -> Node:
    """Return a value; a call that computes it fails where it is NaN or infinite.

    x, text: As for `assert_`; `x` is float or complex.
    returns: The value itself: use it in the place of `x`.

    >>> x = mg.input("x")
    >>> f = mg.function([x], mg.debug.finite(1.0 / x, "reciprocal"))
    >>> f(0.0)
    Traceback (most recent call last):
    ...
    magmagraph.errors.CheckError: reciprocal is finite: the condition does not hold; ...
    """
    node = as_node(x)
    label = _label(node, text)
    return ASSERT(node, isfinite(node), label=f"{label} is finite", passes=True, uid=fresh())


def _label(node: Node, label: str | None) -> str:
    if label is not None:
        return str(label)
    line = caller_line()
    where = f" at {Path(line.file).name}:{line.number}" if line else ""
    return f"{node.name or node.op.name}{where}"


def values(function: Function, nodes: Any, *feeds: Any, **named: Any) -> Any:
    """Return what nodes of a function's program are worth for given feeds.

    Parameters
    ----------
    function : Function
        Compiled, if it is not yet.
    nodes : Node, or a list or tuple of nodes
        Any nodes that its outputs or updates were built from.
    feeds, named
        As for a call. Variables keep what they hold.

    Returns
    -------
    ndarray, or a list of them
        For each node its value (a tuple, of an operation with several results). It is that of the
        last graph of the compile in which something stands for the node, after as many passes as
        left it there, by the reference interpreter: no kernel is compiled for it.

    Raises
    ------
    GraphError
        The function does not compute one of the nodes.
    FeedError
        As a call would.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(2,))
    >>> inside = mg.exp(x)
    >>> f = mg.function([x], mg.sum(inside * 2.0))
    >>> mg.debug.values(f, inside, [0.0, 1.0]).round(3)
    array([1.   , 2.718], dtype=float32)
    """
    from ..inspect.values import values as found

    several = isinstance(nodes, Sequence) and not isinstance(nodes, Node)
    result = found(function, list(nodes) if several else [nodes], *feeds, **named)
    return result if several else result[0]


def blame(function: Function, *feeds: Any, **named: Any) -> NonFinite | None:
    """Return who made the first NaN or infinity that reaches a result or a variable.

    Parameters
    ----------
    function : Function
        Compiled, if it is not yet.
    feeds, named
        As for a call. Variables keep what they hold.

    Returns
    -------
    NonFinite or None
        None where all results and new values are finite. It prints as a few lines: the node, the
        user's line, the operands with their ranges, and what it spoils.

    Notes
    -----
    From the results that are not finite the search goes back through values that are not
    finite, in the source graph: outputs, gradients and new values of variables alike. Of what
    it meets, the first that makes a NaN of none, or an infinity of finite operands, is to blame.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(2,))
    >>> f = mg.function([x], mg.sum(mg.log(x)))
    >>> mg.debug.blame(f, [1.0, 2.0]) is None
    True
    >>> mg.debug.blame(f, [1.0, -2.0]).node.op.name
    'log'
    """
    from ..inspect.checking.blame import blame as found

    return found(function, *feeds, **named)
