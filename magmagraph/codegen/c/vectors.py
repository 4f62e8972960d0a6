"""C for groups of lanes that are values of their own: rows of plain arithmetic and exponentials.

What a group computes stands there once, in operators between vectors (`functions.groups`): the
compiler vectorizes nothing, takes less time, and has no more to do at a higher level. Groups are
added up, folded to the largest or smallest element, kept for a later pass, or written. Where a
product is added up, sum and product are one instruction with one rounding. In the rest of a row,
which comes first, this is the same as a rounded product: it is added to nothing.

What nothing keeps may be computed in another way than its operations say (`unkept`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Node
from ...ops.elementwise.arithmetic import ADD, MULTIPLY
from ..region.access import is_unit
from ..region.analysis import Fold, Output, Region
from .folds import Lanes
from .reduced_only import ReducedOnly, calls, joined, plain
from .scalar import identity_expression
from .staged import staged
from .text import indent

__all__ = ["Vectors", "vectorizes"]

_FLOAT32 = np.dtype(np.float32)
# Functions of numbers, and of groups.
_FUNCTIONS = {
    "sqrtf": "mg_group_sqrt_f32",
    "expf": "mg_group_exp_f32",
    "mg_expf_below": "mg_group_exp_below_f32",
    "mg_expf_within": "mg_group_exp_within_f32",
}
# Of what is added up and nothing else.
_SUMMED = {
    name: function.replace("_f32", "_summed_f32") if "exp" in function else function
    for name, function in _FUNCTIONS.items()
}
_CALL = re.compile(r"\b(\w+)\(")


def vectorizes(
    region: Region,
    inner: int,
    nodes: Sequence[Node],
    known: Collection[Node],
    folds: Sequence[Fold],
    outputs: Sequence[Output],
) -> bool:
    """Return whether all that a loop over rows' elements does can be written in vectors."""

    def along(node: Node) -> bool:
        return inner in region.values[node].loops

    if not all(along(fold.operand) for fold in folds) or region.strip or region.columns:
        return False
    if not all(is_unit(o.node, (), o.axes[inner]) and along(o.node) for o in outputs):
        return False
    for node in filter(along, nodes):
        if node.dtype != _FLOAT32:
            return False
        access = region.accesses.get(node)
        if access is not None:
            if not is_unit(node, access.views, access.axes[inner]):
                return False
        elif node not in known and not _in_groups(node, along):
            return False
    return True


def _in_groups(node: Node, along: Callable[[Node], bool]) -> bool:
    """Return whether a node can be computed in vector groups; exp has only that form."""
    return plain(node, "exp") and ("exp" not in calls(node) or all(map(along, node.inputs)))


def unsigned_zero(node: Node) -> bool:
    """Return whether a value is never -0: a square, and a sum with one or with a constant."""
    if node.op is MULTIPLY:
        return node.inputs[0] is node.inputs[1]
    if node.op is not ADD:
        return False
    constants = (o.attrs["value"] for o in node.inputs if "value" in o.attrs and not o.ndim)
    if any(not (value == 0 and np.signbit(value)) for value in constants):
        return True
    return any(map(unsigned_zero, node.inputs))


@dataclass
class Vectors(Lanes):
    """The groups of one vector loop, each of them a value.

    Attributes
    ----------
    unkept
        What is computed in another way than its operations say.
    along
        Whether a node has an element of its own in each lane.
    value
        The C of a node's value.
    """

    unkept: ReducedOnly = field(kw_only=True)
    along: Callable[[Node], bool] = field(kw_only=True)
    value: Callable[[Node], str] = field(kw_only=True)

    def group(self, node: Node) -> str:
        """Return a value as a group: a number is that of every lane."""
        text = self.value(node)
        return text if self.along(node) else f"mg_group_all_f32({text})"

    def line(self, node: Node, name: str, expression: str) -> str:
        """Return the line that computes or reads the group of a node."""
        kind = f"const mg_group_f32 {name} = "
        if expression.endswith("]"):
            line = f"{kind}mg_group_load_f32(&{expression});"
            last = f"{kind}mg_group_load_rest_f32(&{expression}, rest);"
            self.reads[line] = (name, "", last)
            return line
        if node in self.unkept.quotients:
            function, above, below = self.unkept.quotients[node]
            operand = self.value(below)
            if function.endswith("3_f32") and not unsigned_zero(below):
                operand += " + 0.0f"  # of -0 the root has a sign, and its cube
            return f"{kind}{function}({self.group(above)}, {operand});"
        if node in self.unkept.squares:
            return f"{kind}{self._added_up(*self.unkept.squares[node])};"
        functions = _SUMMED if self.unkept.only_added_up(node) else _FUNCTIONS
        called = _CALL.sub(lambda call: f"{functions[call[1]]}(", expression)
        return f"{kind}{called};"

    def _added_up(self, constants: Sequence[Node], roots: Sequence[Node]) -> str:
        """Return constants and squares that are added up, each square in one rounding."""
        total = " + ".join(map(self.group, constants))
        for x in map(self.group, roots):
            total = f"mg_group_fma_f32({x}, {x}, {total})" if total else f"{x} * {x}"
        return total

    def store(self, place: str, value: str) -> str:
        """Return the line that writes a group."""
        line = f"mg_group_store_f32(&{place}, {value});"
        self.reads[line] = ("", "", f"mg_group_store_rest_f32(&{place}, {value}, rest);")
        return line

    def keep(self, place: str, value: str) -> str:
        """Return the line that writes a whole group, also in the rest."""
        return f"mg_group_store_f32(&{place}, {value});"

    def fold_up(self, fold: Fold, part: str, *, blocked: bool) -> str:
        """Add a fold, in blocks or not; return the C of its result."""
        how = joined(fold)
        return self._add_up(fold, part, blocked=blocked) if how == "sum" else (
            self._extreme(fold, part, how)
        )

    def _extreme(self, fold: Fold, part: str, how: str) -> str:
        """Add a largest or smallest element, and whether there is NaN (`folds`)."""
        begin = identity_expression(fold.node, fold.operand.dtype)
        self.before.append(f"mg_group_f32 {part} = mg_group_all_f32({begin});")
        self.before.append(f"mg_group_i32 {part}_seen = {{0}};")
        better = f"mg_group_{'larger' if how == 'maximum' else 'smaller'}_f32"
        element = self.group(fold.operand)
        new, seen = f"{part}_new", f"{part}_seen = mg_group_seen_f32({part}_seen, {part}_new);"
        self._folds.append((
            [
                f"const mg_group_f32 {new} = {element};",
                seen,
                f"{part} = {better}({new}, {part});",
            ],
            [
                f"const mg_group_f32 {new} = mg_group_rest_or_f32({element}, rest, {part});",
                seen,
                f"{part} = {new};",
            ],
        ))
        return f"mg_group_{how}_f32({part}, {part}_seen)"

    def _add_up(self, fold: Fold, part: str, *, blocked: bool) -> str:
        """Add a sum, in blocks or not; return the C of its result."""
        self.before.append(f"mg_group_f32 {part} = {{0}};")
        if blocked:
            self.before.append(f"mg_group_f64 {part}_whole[2] = {{{{0}}}};")
            self.flushes.append(f"mg_group_flush_f32({part}_whole, &{part});")
        factors = self.unkept.factors(fold)
        if factors:
            a, b = map(self.group, factors)
            whole, element = f"mg_group_fma_f32({a}, {b}, {part})", f"{a} * {b}"
        else:
            element = self.group(fold.operand)
            whole = f"{part} + {element}"
        first = f"{part} = mg_group_rest_f32({element}, rest);"
        self._folds.append(([f"{part} = {whole};"], [first]))
        return self._scaled(fold, f"mg_group_sum_f32({part})")

    def total(self, fold: Fold, part: str) -> str:
        """Return the C of the blocks' sum."""
        return self._scaled(fold, f"mg_group_total_f32({part}_whole)")

    def _scaled(self, fold: Fold, sum_: str) -> str:
        factor = self.unkept.scales.get(fold.node)
        return f"{factor} * {sum_}" if factor else sum_

    def _loops(self, index: str, body: list[str]) -> tuple[list[str], list[str]]:
        last = [self.reads[line][2] if line in self.reads else line for line in body]
        last += [line for _, lines in self._folds for line in lines]
        whole = [*body, *(line for lines, _ in self._folds for line in lines)]
        return (
            [f"const int64_t {index} = full;", *last],
            [f"const int64_t {index} = j;", *whole],
        )

    def lines(self, count: str, index: str, inside: Iterable[str]) -> list[str]:
        """Return the rest of `count` elements, and then their groups."""
        last, groups = self._loops(index, list(inside))
        return [
            f"const int rest = (int)({count} % {self.count});",
            f"const int64_t full = {count} - rest;",
            "if (rest) {",
            *indent(last),
            "}",
            *(self._blocks(groups) if self.flushes else self._groups(groups, "0", "full")),
        ]

    def _groups(self, group: list[str], begin: str, end: str) -> list[str]:
        folds = [line for lines, _ in self._folds for line in lines]
        position, *body = group[: len(group) - len(folds)]
        index = position.split()[2]
        loop = [] if self.ahead else staged(body, folds, index, begin, end, self.count)
        if not loop:
            return super()._groups(group, begin, end)
        return [loop[0], *super()._groups(group, begin, "alone"), *loop[1:]]
