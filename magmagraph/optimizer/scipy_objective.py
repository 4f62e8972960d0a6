"""A graph as the objective that `scipy.optimize` calls: flat vectors in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from ..autodiff.autodiff import grad
from ..autodiff.derivatives import hvp
from ..errors import GradientError, message
from ..function import Function, function
from ..function.feeds import named_feeds
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.nesting import leaves, like
from ..ir.op import describe
from ..ops.leaf import Variable, input

__all__ = ["ScipyObjective", "scipy_objective"]


class ScipyObjective:
    """A function from a flat vector to a loss and its flat gradient.

    Attributes
    ----------
    x0
        The point at which the variables are now, float64, all variables one after another.
    """

    def __init__(self, loss: Node, wrt: Any, feeds: Mapping[Node | str, Any] | None = None) -> None:
        members = leaves(wrt, "wrt")
        for label, member in members:
            if not isinstance(member, Variable):
                what = describe(member) if isinstance(member, Node) else type(member).__name__
                raise GradientError(
                    message(
                        f"scipy_objective: {label} is {what}",
                        need="variables, which hold the point",
                        hint="mg.variable(name, init=...)",
                    )
                )
        self._wrt = wrt
        self._variables = [cast(Variable, member) for _, member in members]
        gradients = grad(loss, list(self._variables))
        given = named_feeds("scipy_objective", loss, feeds)
        self._loss, self._inputs = loss, list(given)
        self._feeds = tuple(given.values())
        self._call = function(self._inputs, [loss, *gradients])
        self._second: Function | None = None  # made where it is asked for

    @property
    def x0(self) -> np.ndarray:
        """The present point: a float64 vector with the variables' values one after another."""
        return self._flat([variable.value for variable in self._variables])

    @staticmethod
    def _flat(arrays: list[Any]) -> np.ndarray:
        held = [array.get() if hasattr(array, "get") else array for array in arrays]  # of a GPU
        parts = [np.ravel(np.asarray(array)).astype(np.float64) for array in held]
        return np.concatenate(parts) if parts else np.zeros(0)

    def unflatten(self, flat: Any) -> Any:
        """Return a flat vector as arrays in the form, shapes and dtypes of the variables.

        Parameters
        ----------
        flat : array of shape (n,)
        """
        vector = np.asarray(flat)
        total = sum(variable.state.data.size for variable in self._variables)
        if vector.shape != (total,):
            raise GradientError(
                message(f"scipy_objective: the vector has shape {vector.shape}", need=f"({total},)")
            )
        parts, start = [], 0
        for variable in self._variables:
            held = variable.state.data
            part = vector[start : start + held.size]
            parts.append(part.reshape(held.shape).astype(held.dtype))
            start += held.size
        return like(self._wrt, parts)

    def assign(self, flat: Any) -> None:
        """Write a flat vector into the variables."""
        for variable, array in zip(self._variables, self._parts(flat), strict=True):
            variable.assign(array)

    def _parts(self, flat: Any) -> list[Any]:
        return [array for _, array in leaves(self.unflatten(flat), "flat")]

    @documented
    def hessp(self, flat: Any, vector: Any) -> np.ndarray:
        """Move the variables to `flat`; return the second derivatives times a vector.

        The matrix is not made: it costs a few times what the gradient does. It is what
        ``scipy.optimize.minimize(..., hessp=objective.hessp)`` takes, for ``"Newton-CG"`` and the
        methods of trust regions.

        flat, vector (array of shape (n,)):
        returns (numpy.ndarray, shape (n,), float64):
        """
        if self._second is None:
            directions = [
                input(f"direction {i}", held.shape, held.dtype)
                for i, held in enumerate(self._variables)
            ]
            products = hvp(self._loss, list(self._variables), directions)
            self._second = function([*self._inputs, *directions], products)
        parts = self._parts(vector)
        self.assign(flat)
        return self._flat(self._second(*self._feeds, *parts))

    def __call__(self, flat: Any) -> tuple[float, np.ndarray]:
        """Move the variables to `flat`; return the loss and its gradient, a float64 vector."""
        self.assign(flat)
        value, *gradients = self._call(*self._feeds)
        return float(value), self._flat(gradients)

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self.x0))


@documented
def scipy_objective(
    loss: Node, wrt: Any, feeds: Mapping[Node | str, Any] | None = None
) -> ScipyObjective:
    """Make the flat value-and-gradient function that `scipy.optimize` wants.

    loss (Node): A float scalar.
    wrt (Variable, or a nested list, tuple or dict of variables): What is optimized.
    feeds (dict, optional): Values of the loss's inputs, by node or by name, fixed for all calls.
    returns (ScipyObjective): Called with a vector it returns ``(value, gradient)``; ``.x0`` is the
        present point, ``.unflatten(vector)`` the vector as arrays, ``.assign(vector)`` writes it
        into the variables, ``.hessp(at, vector)`` gives second derivatives times a vector. It
        unpacks as ``fun, x0``.
    raises GradientError: Where a target is not a variable, or as `grad`.
    raises FeedError: An input that the loss reads has no value, or a name is that of no input.

    Notes
    -----
    Every call moves the variables, and the last call of an optimizer need not be at its best
    point: assign the result. Optimizers with tight tolerances want float64 variables.

    >>> import scipy.optimize
    >>> x = mg.var("x", init=np.array([3.0, -1.0]))
    >>> fun, x0 = mg.scipy_objective(mg.sum((x - 1.0) ** 2), [x])
    >>> result = scipy.optimize.minimize(fun, x0, jac=True)
    >>> fun.assign(result.x)
    >>> np.round(x.value, 6)
    array([1., 1.])
    >>> fun.hessp(fun.x0, [1.0, 0.0])
    array([2., 0.])
    """
    return ScipyObjective(loss, wrt, feeds)
