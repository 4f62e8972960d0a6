"""Steps by an estimate of the inverse Hessian, along a line that is searched in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autodiff.autodiff import check_loss, grad
from ..autodiff.transforms.rebuild import rebuild
from ..autodiff.transforms.scanning import scan, while_loop
from ..dtypes import promote
from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, divide, multiply, negative, subtract
from ..ops.elementwise.bits import logical_and, logical_not, logical_or
from ..ops.elementwise.comparison import greater, less, less_equal, maximum, minimum, where
from ..ops.elementwise.not_finite import isposinf
from ..ops.elementwise.signs import absolute
from ..ops.indexing.keys import index
from ..ops.leaf import Variable
from ..ops.reduction.primitives import sum
from ..ops.shape.arrange import expand_dims, reshape
from ..ops.shape.joining import concatenate
from .base import Optimizer
from .rate import RateLike

__all__ = ["LBFGS"]


@documented
class LBFGS(Optimizer):
    """Take quasi-Newton steps with a short memory (Liu and Nocedal 1989).

    The direction is that of the two-loop recursion (Nocedal and Wright, "Numerical optimization",
    2006, algorithm 7.4). Along it a step is searched by bisection that fulfils the weak Wolfe
    conditions (Lewis and Overton, "Nonsmooth optimization via quasi-Newton methods", 2013,
    algorithm 4.6); all evaluations of the loss are a loop in the graph. No step makes the loss
    larger.

    learning_rate (float, optional): The step that is tried first.
    memory (int, optional): How many differences of points and gradients are kept.
    decrease, curvature (float, optional): ``c1`` and ``c2`` of the conditions, ``0 < c1 < c2 < 1``.
    evaluations (int, optional): Of the loss, in a step, at most.

    Notes
    -----
    For losses that are the same function at each step: of all data, without dropout. All variables
    have one memory, and their dtypes' widest one; groups have no settings of their own.

    >>> x = mg.var("x", init=[-1.2, 1.0])
    >>> rosenbrock = 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2
    >>> mg.optimizer.LBFGS().minimize(rosenbrock, [x], steps=60).value < 1e-10
    True
    """

    def __init__(
        self,
        learning_rate: RateLike = 1.0,
        memory: int = 10,
        decrease: float = 1e-4,
        curvature: float = 0.9,
        evaluations: int = 25,
    ) -> None:
        for name, value in (("memory", memory), ("evaluations", evaluations)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ConfigError(message(f"LBFGS: {name}={value!r}", need="an int of at least 1"))
        if not 0.0 < decrease < curvature < 1.0:
            raise ConfigError(
                message(
                    f"LBFGS: decrease={decrease!r}, curvature={curvature!r}",
                    need="0 < decrease < curvature < 1",
                )
            )
        super().__init__(
            learning_rate,
            memory=int(memory),
            decrease=decrease,
            curvature=curvature,
            evaluations=int(evaluations),
        )

    def updates(self, loss: Node, wrt: Any) -> dict[Variable, Node]:
        """Build one step as a graph, see `Optimizer.updates`.

        Raises
        ------
        ConfigError
            Where a group has settings of its own.
        """
        check_loss("LBFGS", loss)
        groups = self._groups(wrt)
        if any(group.options != self.settings or group.rate is not self._rate for group in groups):
            raise ConfigError(
                message("LBFGS: a parameter group has settings", need="one memory for all")
            )
        variables = [target for group in groups for target in group.variables]
        if not variables:
            return {}
        self._make_rates(groups)
        dtype = promote(*[target.dtype for target in variables])
        point = _flat(variables, dtype)
        slope = _flat(self.gradients(loss, variables), dtype)
        new, direction, first = self._direction(point, slope, dtype)
        length = self._search(loss, variables, point, direction, slope, first)
        moved = add(point, multiply(length, direction))
        new.update(zip(variables, _pieces(moved, variables), strict=True))
        for rate in {group.rate for group in groups}:
            following = rate.following(lambda: add(self._memory.counter(), 1))
            if following is not None:
                new[rate.held()] = following
        if "step" in self._memory.variables:
            new[self._memory.variables["step"]] = add(self._memory.variables["step"], 1)
        return new

    def _direction(
        self, point: Node, slope: Node, dtype: np.dtype
    ) -> tuple[dict[Variable, Node], Node, Node]:
        """Return what is remembered anew, the direction, and the step to try first."""
        keep, size = self.settings["memory"], int(point.size)
        names = {"moves": (keep, size), "changes": (keep, size), "inverses": (keep,)}
        moves, changes, inverses = (
            self._memory.remember(name, np.zeros(shape, dtype)) for name, shape in names.items()
        )
        last = self._memory.remember("point", np.zeros(size, dtype))
        last_slope = self._memory.remember("slope", np.zeros(size, dtype))
        begun = self._memory.remember("begun", np.zeros((), np.bool_))

        move, change = subtract(point, last), subtract(slope, last_slope)
        product = _dot(move, change)
        unit = float(np.finfo(np.float64 if dtype.itemsize == 8 else np.float32).eps)
        fits = logical_and(begun, greater(product, multiply(_dot(change, change), unit)))
        inverse = divide(1.0, where(fits, product, as_node(1.0, dtype)))

        def pushed(held: Variable, row: Node) -> Node:
            return where(fits, concatenate([index(held, slice(1, None)), row]), held)

        rows = [
            pushed(moves, expand_dims(move, 0)),
            pushed(changes, expand_dims(change, 0)),
            pushed(inverses, expand_dims(inverse, 0)),
        ]

        def back(q: Node, row: Any) -> tuple[Node, Node]:
            s, y, r = row  # r is 0 where nothing is remembered yet
            share = multiply(r, _dot(s, q))
            return subtract(q, multiply(share, y)), share

        def forth(q: Node, row: Any) -> tuple[Node, Node]:
            (s, y, r), share = row
            other = multiply(r, _dot(y, q))
            return add(q, multiply(subtract(share, other), s)), other

        q, shares = scan(back, slope, tuple(rows), reverse=True)
        newest, known = index(rows[1], -1), index(rows[2], -1)
        any_known = greater(known, 0.0)
        scale = divide(1.0, where(any_known, multiply(known, _dot(newest, newest)), 1.0))
        found, _ = scan(forth, multiply(q, scale), (tuple(rows), shares))
        downhill = greater(_dot(found, slope), 0.0)
        direction = negative(where(downhill, found, slope))
        # Without a memory the direction has no scale: the first step has a length of 1 at most.
        short = minimum(divide(1.0, maximum(sum(absolute(slope)), 1e-30)), 1.0)
        unit_step = where(any_known, as_node(1.0, dtype), short)
        first = multiply(cast(self._rate.node(), dtype), unit_step)
        held = dict(zip((moves, changes, inverses), rows, strict=True))
        after = {last: point, last_slope: slope, begun: logical_or(begun, True)}
        return {**held, **after}, direction, first

    def _search(
        self,
        loss: Node,
        variables: list[Variable],
        point: Node,
        direction: Node,
        slope: Node,
        first: Node,
    ) -> Node:
        """Return the length of the step along a direction, 0 where none is found."""
        fall = _dot(direction, slope)
        dtype, options = point.dtype, self.settings
        start = cast(loss, dtype)

        def body(carry: Any) -> Any:
            length, low, high, _, count = carry
            moved = _pieces(add(point, multiply(length, direction)), variables)
            (there,) = rebuild([loss], dict(zip(variables, moved, strict=True)))
            steepness = cast(grad(there, length), dtype)
            limit = add(start, multiply(multiply(length, fall), options["decrease"]))
            falls = less_equal(cast(there, dtype), limit)  # False of NaN
            steep = less(steepness, multiply(fall, options["curvature"]))
            done = logical_and(falls, logical_not(steep))
            low, high = where(falls, length, low), where(falls, high, length)
            middle = multiply(add(low, high), 0.5)
            longer = where(isposinf(high), multiply(length, 2.0), middle)
            return where(done, length, longer), low, high, done, add(count, 1)

        def searching(carry: Any) -> Node:
            return logical_and(logical_not(carry[3]), less(carry[4], options["evaluations"]))

        init = (first, as_node(0.0, dtype), as_node(np.inf, dtype), as_node(False), as_node(0))
        return while_loop(searching, body, init)[1]  # type: ignore[no-any-return]


def _flat(values: Any, dtype: np.dtype) -> Node:
    return concatenate([cast(reshape(value, (-1,)), dtype) for value in values])


def _pieces(flat: Node, variables: list[Variable]) -> list[Node]:
    """Return the parts of a vector in the shapes and dtypes of variables."""
    pieces, at = [], 0
    for variable in variables:
        size = int(variable.size)
        part = reshape(index(flat, slice(at, at + size)), variable.shape)
        pieces.append(cast(part, variable.dtype))
        at += size
    return pieces


def _dot(a: Node, b: Node) -> Node:
    return sum(multiply(a, b))
