"""The parts of a region's C that all devices share: names, run-time numbers, addresses."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ...ir.graph import Node
from ...ir.identity import index_of
from ..region.access import is_unit
from ..region.analysis import Fold, Output, Region
from ..region.parts import indexed
from .scalar import combine_expression, identity_expression, is_floating
from .text import times

__all__ = ["FLOAT64", "Number", "RegionCode", "of_one_element"]

Number = tuple[str, tuple[int, ...]]
FLOAT64 = np.dtype(np.float64)


class RegionCode:
    """Names and numbers of a region's C.

    Sizes, steps and positions come as numbers at run time, so that one text serves all sizes.

    Attributes
    ----------
    numbers
        What the text is told, in order: a method of the device's `Binding`, and where.
    places
        The place of each number among them, by its C name.
    names
        The C name of each node.
    scope
        The C expression of each value that is known where lines are written now.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.numbers: list[Number] = []
        self.places: dict[str, int] = {}
        self.names = _names(region)
        self.scope: dict[Node, str] = {}

    def number(self, name: str, what: str, *where: int) -> str:
        """Return the C name of a number that binding tells: a method of `Binding` and where."""
        if name not in self.places:
            self.places[name] = len(self.numbers)
            self.numbers.append((what, where))
        return name

    def extent(self, loop: int) -> str:
        """Return the number of iterations of a loop."""
        return self.number(f"n{loop}", "extent", loop)

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        return f"i{loop}"

    # ---- Addresses

    def steps_of(self, node: Node) -> tuple[str, dict[int, str]]:
        """Return a read's offset, and the step of each loop along which it moves; "" is one."""
        access = self.region.accesses[node]
        position = index_of(self.region.accesses, node)
        key = f"x{position}"
        steps: dict[int, str] = {}
        for loop, axis in enumerate(access.axes):
            if axis is None:
                continue
            if is_unit(node, access.views, axis):
                steps[loop] = ""
            else:
                steps[loop] = self.number(f"{key}_step{loop}", "read_step", position, loop)
        offset = ""
        if access.views and not all(view.op.layout.alias for view in access.views):
            offset = self.number(f"{key}_offset", "read_place", position)
        return offset, steps

    def write_steps(self, output: Output) -> dict[int, str]:
        """Return the step of each loop along which a result moves; "" is one."""
        steps: dict[int, str] = {}
        for loop, axis in enumerate(output.axes):
            if axis is None:
                continue
            if is_unit(output.node, (), axis):
                steps[loop] = ""
            else:
                name = f"out{output.position}_step{loop}"
                steps[loop] = self.number(name, "write_step", output.position, loop)
        return steps

    # ---- Folds

    def fold_name(self, fold: Fold) -> str:
        """Return the name of a fold's accumulator."""
        return f"{self.names[fold.node]}_all"

    def position_of(self, fold: Fold) -> int:
        """Return the place of a fold among the region's."""
        return next(i for i, other in enumerate(self.region.folds) if other is fold)

    def accumulator(self, fold: Fold) -> np.dtype:
        """Return the dtype that a fold's elements are added up in."""
        reduction = fold.node.op.reduction
        assert reduction is not None
        dtype = fold.operand.dtype
        return FLOAT64 if reduction.blocked and is_floating(dtype) else dtype

    def number_among(
        self, fold: Fold, loops: Sequence[int], label: str, what: str, cast: str = ""
    ) -> str:
        """Return the number of the element here among all of some loops, the last one fastest.

        Parameters
        ----------
        fold
            Whose elements or results are counted.
        loops
            Outermost first.
        label, what
            How the names of the loops' steps end, and the method of `Binding` that tells them.
        cast
            Of each position, where it is narrower than the number.
        """
        position = self.position_of(fold)
        terms = []
        for loop in loops:
            name = f"{self.names[fold.node]}_{label}{loop}"
            step = "" if loop == loops[-1] else self.number(name, what, position, loop)
            terms.append(times(f"{cast}{self.index(loop)}", step))
        return " + ".join(terms) or "0"


def of_one_element(node: Node, operand: str) -> str:
    """Return the reduction of one element."""
    if indexed(node.op):
        return "0"
    dtype = node.inputs[0].dtype
    return combine_expression(node, dtype, identity_expression(node, dtype), operand)


def _names(region: Region) -> dict[Node, str]:
    """Return a C name for each node, from its operation and its position."""
    names: dict[Node, str] = {}
    for node in region.values:
        access = region.accesses.get(node)
        label = f"x{access.parameter}" if access is not None else node.op.name
        names[node] = re.sub(r"\W", "_", f"{label}_{len(names)}")
    return names
