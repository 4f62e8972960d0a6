"""Find values of a vector loop that only feed sums of that loop.

Nothing compares such a value or stores it, so that it may have other last bits than where another
kernel computes it again. It is computed in fewer instructions, and mostly fewer roundings:

- A root that divides is approximated and corrected (`functions.groups`), which is faster than the
  unit for roots and quotients. Where only products lie between ``y / (x sqrt(x))`` and its sums, a
  constant factor of the correction is left to the sums.
- Squares and positive constants are added up beginning with the constants: each square is one
  instruction and one rounding. No order of these loses digits. Other products are not taken
  together with the sum that they go into: where that is near zero, it would differ from NumPy's.
- exp has a form of its own where vectors have 64 bytes (`functions.rationals`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.graph import Node
from ...ir.op import Kind
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY
from ...ops.elementwise.math import SQRT
from ..functions.scalar import resolve
from ..region.analysis import Fold, Region
from .folds import joins

__all__ = ["ReducedOnly", "calls", "joined", "plain"]

_FLOAT32 = np.dtype(np.float32)
# Expressions that say the same of groups: of operands, numbers of their type, and operators.
_PLAIN = re.compile(r"(?:[abcd]|\(float\)|sqrtf|[-+*/() ]|\d+\.\d+)+")
_DOLLAR = re.compile(r"\$(\w+)")
_ROOT3 = "mg_group_over_root3_f32"


def _rule(node: Node) -> str:
    rule = node.op.scalar.expression
    if node.op.kind is not Kind.ELEMENTWISE or rule is None:
        return ""
    return rule if isinstance(rule, str) else rule(_FLOAT32)


def calls(node: Node) -> set[str]:
    """Return the functions that a value is computed by."""
    return set(_DOLLAR.findall(_rule(node)))


def plain(node: Node, *functions: str) -> bool:
    """Return whether a value is arithmetic of float32, or a root or one of these functions."""
    if any(operand.dtype != _FLOAT32 for operand in node.inputs):
        return False
    text = _rule(node)
    if not {"sqrt", *functions}.issuperset(_DOLLAR.findall(text)):
        return False
    for name in functions:
        text = text.replace(f"${name}(", "(")
    return _PLAIN.fullmatch(resolve(text, _FLOAT32)) is not None


def joined(fold: Fold) -> str:
    """Return what joins the lanes of a fold."""
    reduction = fold.node.op.reduction
    assert reduction is not None
    return joins(reduction, fold.operand.dtype)


class ReducedOnly:
    """The values of a loop that are computed in a cheaper way, and those that are not computed.

    Attributes
    ----------
    quotients
        Node -> the function of groups, the numerator and what the root is taken of.
    scales
        Node of a sum -> the C of a factor that is left to it.
    squares
        Node of a sum of these -> positive constants, and what is squared.
    absorbed
        Nodes of which nothing is used but by these, or by sums of products.
    """

    def __init__(
        self,
        region: Region,
        nodes: Sequence[Node],
        folds: Sequence[Fold],
        along: Callable[[Node], bool],
    ) -> None:
        self.region = region
        self.users = _users(region)
        self.quotients: dict[Node, tuple[str, Node, Node]] = {}
        self.scales: dict[Node, str] = {}
        self.squares: dict[Node, tuple[list[Node], list[Node]]] = {}
        self.absorbed: set[Node] = set()
        self._along = along
        self._here = {n for n in nodes if n not in region.accesses}
        self._added: dict[Node, bool] = {}
        sums = [fold for fold in folds if joined(fold) == "sum"]
        self._folds = {fold.node for fold in sums}
        unkept = [n for n in nodes if n in self._here and along(n) and self.only_added_up(n)]
        for node in unkept:
            if node.op is DIVIDE:
                self._take_quotient(node)
        self._leave_factors()
        for node in reversed(unkept):  # a sum before those that it adds up
            if node not in self.absorbed and node.op is ADD:
                self._take_squares(node)
        for fold in sums:
            if self.factors(fold) and self._folds.issuperset(self.users[fold.operand]):
                self.absorbed.add(fold.operand)

    def factors(self, fold: Fold) -> tuple[Node, ...]:
        """Return the factors of a summed product; empty where the summed value is no product."""
        product = fold.operand
        return product.inputs if product.op is MULTIPLY and product in self._here else ()

    def replaces(self, node: Node) -> bool:
        """Return whether a value is computed in another way than its operation says."""
        return node in self.quotients or node in self.squares

    def only_added_up(self, node: Node) -> bool:
        """Return whether a value is used only in sums of the loop, through arithmetic and exp."""
        if node not in self._added:
            self._added[node] = False  # of a result, which takes itself
            self._added[node] = all(
                user in self._folds
                or (user in self._here and plain(user, "exp") and self.only_added_up(user))
                for user in self.users[node]
            )
        return self._added[node]

    def _alone(self, node: Node) -> bool:
        return node in self._here and len(self.users[node]) == 1

    # ---- Roots

    def _take_quotient(self, node: Node) -> None:
        above, below = node.inputs
        if not (self._alone(below) and self._along(below)):
            return
        if below.op is SQRT:
            self.quotients[node] = "mg_group_over_root_f32", above, below.inputs[0]
            self.absorbed.add(below)
        elif below.op is MULTIPLY:
            for root, other in (below.inputs, below.inputs[::-1]):
                if root.op is SQRT and self._alone(root) and root.inputs[0] is other:
                    self.quotients[node] = _ROOT3, above, other
                    self.absorbed.update((below, root))

    def _leave_factors(self) -> None:
        """Leave a factor of quotients to the sums, where all between are products with others."""
        reached_by = {
            node: self._reached(node)
            for node, (function, _, _) in self.quotients.items()
            if function == _ROOT3
        }
        for node, reached in reached_by.items():
            others = set().union(
                *(nodes for other, nodes in reached_by.items() if other is not node)
            )
            between = reached - {node}
            if reached.isdisjoint(others) and all(
                n.op is MULTIPLY and sum(o in reached for o in n.inputs) == 1 for n in between
            ):
                self.quotients[node] = "mg_group_part_root3_f32", *self.quotients[node][1:]
                ends = {user for n in reached for user in self.users[n]} - reached
                self.scales.update(dict.fromkeys(ends, "mg_left_root3_f32()"))

    def _reached(self, node: Node) -> set[Node]:
        """Return a value and all values computed from it, except the sums."""
        reached, todo = {node}, [node]
        while todo:
            users = set(self.users[todo.pop()]) - self._folds - reached
            reached |= users
            todo += users
        return reached

    # ---- Squares

    def _take_squares(self, node: Node) -> None:
        """Take a sum of squares and positive constants, if it is one."""
        terms, between, todo = [], [], list(reversed(node.inputs))
        while todo:
            term = todo.pop()
            if term.op is ADD and self._alone(term) and self._along(term):
                between.append(term)
                todo += reversed(term.inputs)
            else:
                terms.append(term)
        constants = [term for term in terms if _is_constant(term) and term.attrs["value"] > 0]
        squares = [term for term in terms if self._is_square(term)]
        if len(constants) + len(squares) == len(terms):
            self.squares[node] = constants, [square.inputs[0] for square in squares]
            self.absorbed.update(squares, between)

    def _is_square(self, node: Node) -> bool:
        if node.op is not MULTIPLY or node.inputs[0] is not node.inputs[1]:
            return False
        return self._alone(node) and self._along(node)


def _is_constant(node: Node) -> bool:
    return "value" in node.attrs and not node.ndim


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
