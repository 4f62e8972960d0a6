"""Tensor parallelism: every rank has some columns or rows of the large matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..autodiff.transforms.rebuild import rebuild
from ..errors import ConfigError, PlanError, message
from ..ir.communicator import Communicator, Group
from ..ir.docstrings import documented
from ..ir.graph import Node, topological
from ..ir.ranks import current
from ..ops.leaf import Variable
from ..ops.random.redrawing import redrawing
from .strategies import Strategy, drawn_as_first, scaled_together
from .tensor_walk import Pair, spread

__all__ = ["TensorParallel"]


@documented
class TensorParallel(Strategy):
    """Cut large matrices over the ranks; each computes with its part of them.

    Where a whole value is multiplied by a large matrix, each rank takes some of its columns, and
    has these columns of the result. What is added to them or multiplied with them element by
    element is cut likewise: biases, and what optimizers remember. The next matrix is cut by rows,
    and the results are summed: two layers cost one all-reduce forward and one backward
    (M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
    parallelism", 2019). Where an operation needs more than a rank has, the parts are gathered.

    axes (mapping, optional): Variables, or their names -> the axis that is cut, or None to keep one
        whole. The others are cut where that is of use.
    group (str or sequence of str, optional): Axes of the mesh whose ranks share the matrices: the
        axis ``tensor`` where the mesh has one, all ranks otherwise.
    least (int): Elements from which on a matrix is cut by columns. One whose extent the number of
        ranks does not divide stays whole.
    raises ConfigError: Where an option is not one of these; or, when a function is made, a name is
        of no variable of it, or an axis cannot be cut.

    Notes
    -----
    All ranks are fed the same values, and return the same. Variables start as rank 0's. Who reads
    the value of one that is cut gathers it, so that all ranks read together; a step, a checkpoint
    and `NeuralNetwork.evaluate`, which all ranks call, do.

    >>> import numpy as np
    >>> def job():
    ...     x = mg.input("x", shape=("batch", 4))
    ...     w = mg.var("w", init=np.ones((4, 6), np.float32))
    ...     strategy = mg.distributed.TensorParallel(least=1)
    ...     f = mg.function([x], mg.sum(x @ w), distribute=strategy)
    ...     return float(f(np.ones((2, 4), np.float32)))
    >>> mg.distributed.threads(2, job)
    [48.0, 48.0]
    """

    _own_axis = "tensor"

    def __init__(
        self,
        *,
        axes: Mapping[Any, int | None] | None = None,
        group: Group | None = None,
        least: int = 2**14,
    ) -> None:
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            raise ConfigError(message(f"least={least!r}", need="a number of elements"))
        self.axes = dict(axes or {})
        for key, axis in self.axes.items():
            if not isinstance(key, (str, Variable)) or not (axis is None or type(axis) is int):
                raise ConfigError(
                    message(
                        f"axes={{{key!r}: {axis!r}}}",
                        need="variables or their names, each with an axis or None",
                    )
                )
        self.group = group
        self.least = least

    def options(self) -> dict[str, Any]:
        """Return what it was made with, as plain values by the names of its arguments."""
        for key in self.axes:
            if not isinstance(key, str):
                raise PlanError(
                    message(
                        f"axes= of TensorParallel has the variable {key.name!r} itself as a key, "
                        "which no file can hold",
                        need="names of variables",
                        hint=f"axes={{{key.name!r}: {self.axes[key]!r}}}",
                    )
                )
        return {"axes": self.axes, "group": self.group, "least": self.least}

    def prepared(
        self, outputs: list[Node], updates: list[Pair]
    ) -> tuple[list[Node], list[Pair]]:
        """Return what the rank computes."""
        mesh = current().mesh
        group = self.group
        if group is None:
            group = "tensor" if "tensor" in mesh.axes else ()
        names = mesh.group(group)
        ranks = current().group(names)
        variables = variables_of(outputs, updates)
        chosen = self._chosen(variables, ranks)
        if ranks.size == 1:
            return outputs, updates
        begin_alike(variables, ranks)
        outputs, updates = _drawn_alike(outputs, updates, ranks)
        new_outputs, renewed, cut = spread(outputs, updates, ranks, names, chosen, self.least)
        return new_outputs, scaled_together(renewed, names, ranks.size) if cut else renewed

    def _chosen(
        self, variables: list[Variable], ranks: Communicator
    ) -> dict[Variable, int | None]:
        axis_of: dict[Variable, int | None] = {}
        for key, axis in self.axes.items():
            named = [v for v in variables if v is key or (isinstance(key, str) and v.name == key)]
            if not named:
                names = ", ".join(sorted({str(v.name) for v in variables}))
                raise ConfigError(
                    message(f"axes names {key!r}, which is no variable here", need=f"of {names}")
                )
            for variable in named:
                axis_of[variable] = None if axis is None else _axis(variable, axis, ranks.size)
        return axis_of

    def __repr__(self) -> str:
        return f"TensorParallel(least={self.least})"


def _axis(variable: Variable, axis: int, size: int) -> int:
    extents = variable.shape
    if not -len(extents) <= axis < len(extents) or int(extents[axis]) % size:
        raise ConfigError(
            message(
                f"variable {variable.name!r} of shape {extents} cannot be cut along axis {axis}",
                need=f"an axis whose extent {size} ranks divide",
                hint=f"axes={{{variable.name!r}: None}} keeps it whole",
            )
        )
    return axis % len(extents)


def variables_of(outputs: list[Node], updates: list[Pair]) -> list[Variable]:
    """Return the variables of a program, those that are only written among them, in its order."""
    roots = [*outputs, *(value for _, value in updates)]
    variables = [node for node in topological(roots) if isinstance(node, Variable)]
    variables += [target for target, _ in updates if isinstance(target, Variable)]
    return list(dict.fromkeys(variables))


def _drawn_alike(
    outputs: list[Node], updates: list[Pair], ranks: Communicator
) -> tuple[list[Node], list[Pair]]:
    """Return a program with random numbers of the group's first rank; all its ranks call it."""
    roots = [*outputs, *(value for _, value in updates)]
    streams = drawn_as_first(topological(roots), ranks)
    if not streams:
        return outputs, updates
    rebuilt = rebuild(roots, {}, redrawing(streams))
    count = len(outputs)
    return rebuilt[:count], [
        (variable, new) for (variable, _), new in zip(updates, rebuilt[count:], strict=True)
    ]


def begin_alike(variables: list[Variable], ranks: Communicator) -> None:
    """Set variables to what the group's first rank holds; all its ranks call it."""
    for variable in variables:
        variable.state.write(ranks.broadcast(variable.state.data, 0))
