"""Values that an equation defines: fixed points and roots, with gradients through the equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..dtypes import finfo, is_inexact
from ..errors import DTypeError, GraphError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.nesting import leaves, like
from ..ir.op import describe
from ..ops.control.iteration import iterate
from ..ops.convert import as_node
from ..ops.leaf import input
from ..ops.linalg.solve import solve
from ..ops.shape.layout import reshape
from .derivatives import jacobian

__all__ = ["FixedPoint", "fixed_point", "root"]

_UNCONVERGED = ("raise", "return")


class FixedPoint(NamedTuple):
    """What an iteration came to.

    Attributes
    ----------
    value
        The point, in the form of `x0`.
    steps
        How many times the map was applied, an int64 scalar.
    """

    value: Any
    steps: Node


@documented
def fixed_point(
    function: Callable[[Any], Any],
    x0: Any,
    *,
    tolerance: float | None = None,
    max_steps: int = 1000,
    unconverged: str = "raise",
) -> FixedPoint:
    """Iterate ``x = f(x)`` until it no longer changes; differentiate the equation.

    function (callable): Takes the point, in the form of `x0`, and returns the next one, of the same
        form, shapes and dtypes. It is called once, to build its graph; nodes that it takes from
        outside (variables, inputs) are kept as they are during the iteration, and get gradients.
    x0 (Node or array, or a nested list, tuple or dict of these): Where to start: float or complex.
        No gradient flows to it: the fixed point does not depend on it.
    tolerance (float, optional): The iteration ends when no element changes by more than this, times
        the largest absolute value where that is above 1. Default: the dtype's epsilon to the power
        3/4 (6e-6 for float32, 2e-12 for float64).
    max_steps (int, optional): The most steps.
    unconverged ({"raise", "return"}, optional): What a call does that has not converged after
        `max_steps`, or came to values that are not finite: raise, or return the last point (`steps`
        tells, where it is `max_steps`).
    returns (FixedPoint): A named tuple ``(value, steps)`` of nodes.
    raises GraphError: Where the function does not return the form of `x0`, or an option is out of
        range.
    raises ShapeError, DTypeError: Where it returns another shape or dtype, or `x0` is not float or
        complex.
    raises DivergedError: By a call: see `unconverged`. The error names the node and its line, and
        has ``step``.

    Notes
    -----
    The whole iteration is one operation, which runs until convergence with no return to the
    caller, in the memory of two points. Its gradient does not go back through the steps. With
    ``x = f(x, p)`` the cotangent ``u`` of ``x`` gives that of ``p`` as ``w df/dp``, where
    ``w = u + w df/dx`` is a fixed point again, found by the same iteration with the same options;
    it converges where the first does. (The implicit function theorem; A. Griewank,
    A. Walther, Evaluating Derivatives, 2nd ed. 2008, ch. 15.) Both are operations, so that
    derivatives of any order exist. Random nodes in the function are drawn once.

    See Also
    --------
    root

    Examples
    --------
    A square root by Heron's method, and its derivative:

    >>> import magmagraph as mg
    >>> a = mg.var("a", init=4.0)
    >>> found = mg.fixed_point(lambda x: (x + a / x) / 2.0, 1.0)
    >>> found.value.eval().round(4), found.steps.eval()
    (np.float32(2.0), array(5))
    >>> mg.grad(found.value, a).eval().round(4)
    np.float32(0.25)
    """
    starts = _starts("fixed_point", x0)
    points = [input(start.name or "x", start.shape, start.dtype) for start in starts]
    result = function(like(x0, points))
    returned = leaves(result, "result")
    if [label for label, _ in returned] != [label for label, _ in leaves(x0, "result")]:
        raise GraphError(
            message(
                f"fixed_point: the function returned {', '.join(name for name, _ in returned)}",
                need="the form of x0: " + ", ".join(name for name, _ in leaves(x0, "result")),
            )
        )
    outputs = [
        _same("fixed_point", label, member, start)
        for (label, member), start in zip(returned, starts, strict=True)
    ]
    options = _options("fixed_point", starts, tolerance, max_steps, unconverged)
    *values, steps = iterate(outputs, dict(zip(points, starts, strict=True)), **options)
    return FixedPoint(like(x0, values), steps)


@documented
def root(
    function: Callable[[Node], Any],
    x0: Any,
    *,
    tolerance: float | None = None,
    max_steps: int = 50,
    unconverged: str = "raise",
) -> FixedPoint:
    """Find where a function is zero by Newton's method; differentiate the equation.

    function (callable): Takes a node of the shape of `x0` and returns one of as many elements: the
        residual. It is called once, to build its graph; nodes that it takes from outside get
        gradients.
    x0 (Node or array): Where to start: float64 or float32. No gradient flows to it.
    tolerance (float, optional): Of the last step, as for `fixed_point`.
    max_steps (int, optional): The most steps.
    unconverged ({"raise", "return"}, optional): As for `fixed_point`.
    returns (FixedPoint): A named tuple ``(value, steps)`` of nodes.
    raises ShapeError, DTypeError: Where the residual has another number of elements, or another
        dtype, than `x0`.
    raises GraphError: Where an option is out of range.
    raises DivergedError, LinAlgError: By a call: it has not converged, or the Jacobian is singular
        on the way.

    Notes
    -----
    It is the fixed point of ``x - J(x)^-1 f(x)``, with the Jacobian ``J`` in full: for up to some
    hundred unknowns. Near a simple root the number of right digits doubles with each step. The
    map's own Jacobian vanishes at the root, so that the gradient of the fixed point is
    ``-J^-1 df/dp``, that of the implicit function theorem.

    See Also
    --------
    fixed_point

    >>> p = mg.var("p", init=2.0)
    >>> found = mg.root(lambda x: x**3 - p, 1.0)
    >>> found.value.eval().round(4)
    np.float32(1.2599)
    >>> mg.grad(found.value, p).eval().round(4)  # p**(-2/3) / 3
    np.float32(0.21)
    """
    starts = _starts("root", [x0])
    if len(starts) != 1:
        raise ShapeError(message(f"root: x0 is {len(starts)} values", need="one"))
    (start,) = starts
    point = input(start.name or "x", start.shape, start.dtype)
    residual = as_node(function(point), start.dtype)
    if residual.size != start.size:
        raise ShapeError(
            message(
                f"root: the function returned {describe(residual)}",
                need=f"as many elements as x0 has, {start.size}",
            )
        )
    if residual.dtype != start.dtype:
        raise DTypeError(
            message(
                f"root: the function returned {describe(residual)}",
                need=f"the dtype of x0, {start.dtype.name}",
            )
        )
    count = start.size
    if isinstance(count, int) and count == 1:
        slope = reshape(jacobian(residual, point, unused="zeros"), start.shape)
        step = reshape(residual, start.shape) / slope
    else:
        matrix = reshape(jacobian(residual, point, unused="zeros"), (count, count))
        step = reshape(solve(matrix, reshape(residual, (count, 1))), start.shape)
    options = _options("root", [start], tolerance, max_steps, unconverged)
    value, steps = iterate([point - step], {point: start}, **options)
    return FixedPoint(value, steps)


def _starts(who: str, x0: Any) -> list[Node]:
    members = leaves(x0, "x0")
    if not members:
        raise GraphError(message(f"{who}: x0 is empty", need="a node or array, or a form of them"))
    starts = []
    for label, member in members:
        node = as_node(member)
        if not is_inexact(node.dtype):
            raise DTypeError(
                message(
                    f"{who}: {label} is {describe(node)}",
                    need="a float or complex dtype",
                    hint="1.0 in place of 1, or mg.cast(x0, 'float32')",
                )
            )
        starts.append(node)
    return starts


def _same(who: str, label: str, member: Any, start: Node) -> Node:
    """Return what the function returned for a part of the point, which has that part's type."""
    node = as_node(member, start.dtype)
    if node.shape != start.shape:
        raise ShapeError(
            message(
                f"{who}: {label} of the function has shape {node.shape}, x0 has {start.shape}",
                need="a map of points to points of the same shape",
                hint="mg.broadcast_to(x0, ...) where the function broadcasts",
            )
        )
    if node.dtype != start.dtype:
        raise DTypeError(
            message(
                f"{who}: {label} of the function is {node.dtype.name}, x0 is {start.dtype.name}",
                need="one dtype",
                hint=f"mg.cast(x0, {node.dtype.name!r})",
            )
        )
    return node


def _options(
    who: str, starts: list[Node], tolerance: float | None, max_steps: int, unconverged: str
) -> dict[str, Any]:
    if unconverged not in _UNCONVERGED:
        raise GraphError(
            message(f"{who}: unconverged={unconverged!r}", need="'raise' or 'return'")
        )
    if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
        raise GraphError(message(f"{who}: max_steps={max_steps!r}", need="an int of at least 1"))
    if tolerance is None:
        tolerance = max(float(finfo(start.dtype).eps) ** 0.75 for start in starts)
    if not tolerance >= 0:
        raise GraphError(message(f"{who}: tolerance={tolerance!r}", need="a number, not negative"))
    return {
        "tolerance": float(tolerance), "max_steps": max_steps, "unconverged": unconverged,
    }
