"""C for groups of lanes that are values of their own: rows of plain arithmetic and exponentials.

What a group computes stands there once, in operators between vectors (`functions.groups`): the
compiler vectorizes nothing, takes less time, and has no more to do at a higher level. Groups are
added up, folded to the largest or smallest element, kept for a later pass, or written. Where a
product is added up, sum and product are one instruction with one rounding. In the rest of a row,
which comes first, this is the same as a rounded product: it is added to nothing.

A root that divides what is only added up is approximated and corrected (`functions.groups`), which
is faster than the unit for roots and quotients. Nothing compares such a value, or keeps it: another
kernel may compute it by that unit, and their last bits differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ....graph import Node
from ....op import Kind
from ....ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY
from ....ops.elementwise.math import SQRT
from ....region.access import is_unit
from ....region.analysis import Fold, Output, Region
from ..functions.scalar import resolve
from .folds import Lanes, joins, lane_count
from .scalar import identity_expression, is_floating
from .text import indent

if TYPE_CHECKING:
    from .nest import Nest

__all__ = ["Roots", "Vectors", "groups_of"]

_FLOAT32 = np.dtype(np.float32)
# Expressions that say the same of groups: of operands, numbers of their type, and operators.
_PLAIN = re.compile(r"(?:[abcd]|\(float\)|sqrtf|[-+*/() ]|\d+\.\d+)+")
# Functions of numbers, and of groups.
_FUNCTIONS = {
    "sqrtf": "mg_group_sqrt_f32",
    "expf": "mg_group_exp_f32",
    "mg_expf_below": "mg_group_exp_below_f32",
    "mg_expf_within": "mg_group_exp_within_f32",
}
_CALL = re.compile(r"\b(\w+)\(")
_DOLLAR = re.compile(r"\$(\w+)")


def groups_of(
    nest: Nest, nodes: Sequence[Node], folds: Sequence[Fold], outputs: Sequence[Output]
) -> Lanes | None:
    """Return the groups that a nest's innermost loop is taken in, where lanes fold."""
    region = nest.region
    inside = [node for node in nodes if nest.along(node)]
    inside += [fold.operand for fold in folds]
    sizes = {node.dtype.itemsize for node in inside}
    rows = region.batched and not nest.code.finishing  # short ones: the rest counts
    if nest.inner < 0 or nest.stage or not (folds or rows) or len(sizes) != 1:
        return None
    for fold in folds:
        reduction = fold.node.op.reduction
        assert reduction is not None
        if nest.inner not in fold.reduced or not joins(reduction, fold.operand.dtype):
            return None
    if any(not is_floating(node.dtype) or node.op.kind is Kind.RANDOM for node in inside):
        return None
    if not sizes <= {4, 8}:  # wider in the register than in memory
        return None
    count = lane_count(sizes.pop())
    saved = nest.code.walk.saved
    known = {node for node in nodes if saved.get(node, nest.number) < nest.number}
    if not _vectorizes(region, nest.inner, nodes, known, folds, outputs):
        return Lanes(count)
    roots = Roots(region, nodes, folds)
    return Vectors(count, roots=roots, along=nest.along, value=nest.value)


def _vectorizes(
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
    """Return whether there is a group for what a node computes: exp is one of groups alone."""
    return _plain(node, "exp") and ("exp" not in _calls(node) or all(map(along, node.inputs)))


def _rule(node: Node) -> str:
    rule = node.op.scalar
    if node.op.kind is not Kind.ELEMENTWISE or rule is None:
        return ""
    return rule if isinstance(rule, str) else rule(_FLOAT32)


def _calls(node: Node) -> set[str]:
    return set(_DOLLAR.findall(_rule(node)))


def _plain(node: Node, *functions: str) -> bool:
    """Return whether a value is arithmetic of float32, or a root or one of these functions."""
    if any(operand.dtype != _FLOAT32 for operand in node.inputs):
        return False
    text = _rule(node)
    if not {"sqrt", *functions}.issuperset(_DOLLAR.findall(text)):
        return False
    for name in functions:
        text = text.replace(f"${name}(", "(")
    return _PLAIN.fullmatch(resolve(text, _FLOAT32)) is not None


class Roots:
    """The quotients of a loop that need neither root nor division, and what need not be computed.

    Attributes
    ----------
    quotients
        Node -> the function of groups, the numerator and what the root is taken of.
    absorbed
        Nodes of which nothing is used but by these, or by sums of products.
    """

    def __init__(self, region: Region, nodes: Sequence[Node], folds: Sequence[Fold]) -> None:
        self.region = region
        self.users = _users(region)
        self.quotients: dict[Node, tuple[str, Node, Node]] = {}
        self.absorbed: set[Node] = set()
        self._here = {n for n in nodes if n not in region.accesses}
        self._added: dict[Node, bool] = {}
        sums = [fold for fold in folds if _joined(fold) == "sum"]
        self._sums = {fold.node for fold in sums}
        for node in nodes:
            if node in self._here and node.op is DIVIDE and self._only_added_up(node):
                self._take(node)
        for fold in sums:
            if self.factors(fold) and self._sums.issuperset(self.users[fold.operand]):
                self.absorbed.add(fold.operand)

    def factors(self, fold: Fold) -> tuple[Node, ...]:
        """Return the factors of what is added up; empty where it is no product that is one here."""
        product = fold.operand
        return product.inputs if product.op is MULTIPLY and product in self._here else ()

    def _take(self, node: Node) -> None:
        above, below = node.inputs
        if self._alone(below) and below.op is SQRT:
            self.quotients[node] = "mg_group_over_root_f32", above, below.inputs[0]
            self.absorbed.add(below)
        elif self._alone(below) and below.op is MULTIPLY:
            for root, other in (below.inputs, below.inputs[::-1]):
                if root.op is SQRT and self._alone(root) and root.inputs[0] is other:
                    self.quotients[node] = "mg_group_over_root3_f32", above, other
                    self.absorbed.update((below, root))

    def _alone(self, node: Node) -> bool:
        return node in self._here and len(self.users[node]) == 1

    def _only_added_up(self, node: Node) -> bool:
        """Return whether all that comes of a value are sums of the loop, by plain arithmetic."""
        if node not in self._added:
            self._added[node] = False  # of a result, which takes itself
            self._added[node] = all(
                user in self._sums
                or (user in self._here and _plain(user) and self._only_added_up(user))
                for user in self.users[node]
            )
        return self._added[node]


def _joined(fold: Fold) -> str:
    reduction = fold.node.op.reduction
    assert reduction is not None
    return joins(reduction, fold.operand.dtype)


def _users(region: Region) -> dict[Node, list[Node]]:
    """Return what takes each value, views among them, and itself where it is a result."""
    users: dict[Node, list[Node]] = {node: [] for node in region.values}
    for node in region.values:
        if node in region.accesses:
            continue
        for operand in dict.fromkeys(node.inputs):
            users[operand].append(node)
    for output in region.outputs:
        users[output.node].append(output.node)
    return users


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
    roots
        What is computed in another way than its operations say.
    along
        Whether a node has an element of its own in each lane.
    value
        The C of a node's value.
    """

    roots: Roots = field(kw_only=True)
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
        if node in self.roots.quotients:
            function, above, below = self.roots.quotients[node]
            operand = self.value(below)
            if function.endswith("3_f32") and not unsigned_zero(below):
                operand += " + 0.0f"  # of -0 the root has a sign, and its cube
            return f"{kind}{function}({self.group(above)}, {operand});"
        called = _CALL.sub(lambda call: f"{_FUNCTIONS[call[1]]}(", expression)
        return f"{kind}{called};"

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
        how = _joined(fold)
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
            self.before.append(f"double {part}_whole[{self.count}];")
            self.flushes.append(  # a call: in the loop, its doubles would take the sums' registers
                f"mg_lanes_flush_f32({part}_whole, (float *)&{part}, block == 0);"
            )
        factors = self.roots.factors(fold)
        if factors:
            a, b = map(self.group, factors)
            whole, element = f"mg_group_fma_f32({a}, {b}, {part})", f"{a} * {b}"
        else:
            element = self.group(fold.operand)
            whole = f"{part} + {element}"
        first = f"{part} = mg_group_rest_f32({element}, rest);"
        self._folds.append(([f"{part} = {whole};"], [first]))
        return f"mg_group_sum_f32({part})"

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
