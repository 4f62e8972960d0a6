"""Patterns: expressions of ordinary operations over wildcards, matched against graph nodes.

``P.log(1 + P.exp(x))`` is a pattern: `P` gives every operation by its name, Python's operators
stand for arithmetic, `x` is a wildcard (`wildcards("x")`), a number matches a constant whose
elements all equal it. A wildcard that occurs twice must match the same node both times. The
operands of a commutative operation match in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Op
from ...ops import TABLE
from ...ops.leaf import CONSTANT

Bindings = dict[str, Any]


class Pattern:
    """What a node may look like; arithmetic between patterns makes larger ones."""

    name: str | None = None

    def match(self, node: Node, bound: Bindings) -> Iterator[Bindings]:
        """Give every way in which `node` matches, as extended bindings."""
        raise NotImplementedError

    def possible(self, node: Node) -> bool:
        """Return False where a look at the node's own operation rules a match out."""
        return True

    def bind(self, name: str) -> Pattern:
        """Return the pattern under a name by which checks and replacements get the node."""
        self.name = name
        return self

    def __add__(self, other: Any) -> Pattern:
        return P.add(self, other)

    def __radd__(self, other: Any) -> Pattern:
        return P.add(other, self)

    def __sub__(self, other: Any) -> Pattern:
        return P.subtract(self, other)

    def __rsub__(self, other: Any) -> Pattern:
        return P.subtract(other, self)

    def __mul__(self, other: Any) -> Pattern:
        return P.multiply(self, other)

    def __rmul__(self, other: Any) -> Pattern:
        return P.multiply(other, self)

    def __truediv__(self, other: Any) -> Pattern:
        return P.divide(self, other)

    def __rtruediv__(self, other: Any) -> Pattern:
        return P.divide(other, self)

    def __neg__(self) -> Pattern:
        return P.negative(self)


class Wildcard(Pattern):
    """Any node; the same node wherever the name occurs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def match(self, node: Node, bound: Bindings) -> Iterator[Bindings]:
        """Bind the node, or compare it with what the name is bound to."""
        assert self.name is not None
        bound_node = bound.get(self.name)
        if bound_node is None:
            yield {**bound, self.name: node}
        elif bound_node is node:
            yield bound


class AnyConstant(Pattern):
    """Any constant."""

    def __init__(self, name: str) -> None:
        self.name = name

    def possible(self, node: Node) -> bool:
        """Return whether the node is a constant."""
        return node.op is CONSTANT

    def match(self, node: Node, bound: Bindings) -> Iterator[Bindings]:
        """Bind the node where it is a constant."""
        assert self.name is not None
        if node.op is CONSTANT and bound.get(self.name, node) is node:
            yield {**bound, self.name: node}


class Number(Pattern):
    """A constant whose elements all equal one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def possible(self, node: Node) -> bool:
        """Return whether the node is this number."""
        return node.op is CONSTANT and uniform(node) == self.value

    def match(self, node: Node, bound: Bindings) -> Iterator[Bindings]:
        """Compare the constant's elements with the number."""
        if uniform(node) == self.value:
            yield bound if self.name is None else {**bound, self.name: node}


class Attribute:
    """A placeholder for an attribute, bound under a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Application(Pattern):
    """An operation applied to patterns; attributes that are not mentioned may be anything."""

    def __init__(self, op: Op, operands: tuple[Pattern, ...], attrs: dict[str, Any]) -> None:
        self.op = op
        self.operands = operands
        self.attrs = attrs

    @property
    def operand_operations(self) -> tuple[Op, ...]:
        """The operations that the operands must have, where the pattern says."""
        operations = [p.op for p in self.operands if isinstance(p, Application)]
        if any(isinstance(p, (Number, AnyConstant)) for p in self.operands):
            operations.append(CONSTANT)
        return tuple(operations)

    def possible(self, node: Node) -> bool:
        """Return whether the operations of the node and of its operands fit."""
        if node.op is not self.op or len(node.inputs) != len(self.operands):
            return False
        inputs = node.inputs
        if self.op.scalar.commutative and len(inputs) == 2:
            a, b = self.operands
            return (a.possible(inputs[0]) and b.possible(inputs[1])) or (
                a.possible(inputs[1]) and b.possible(inputs[0])
            )
        return all(p.possible(i) for p, i in zip(self.operands, inputs, strict=True))

    def match(self, node: Node, bound: Bindings) -> Iterator[Bindings]:
        """Match attributes, then operands; both orders of commutative ones."""
        if node.op is not self.op or len(node.inputs) != len(self.operands):
            return
        for key, expected in self.attrs.items():
            value = node.attrs.get(key)
            if isinstance(expected, Attribute):
                if expected.name in bound and bound[expected.name] != value:
                    return
                bound = {**bound, expected.name: value}
            elif value != expected:
                return
        if self.name is not None:
            if bound.get(self.name, node) is not node:
                return
            bound = {**bound, self.name: node}
        yield from _operands(self.operands, node.inputs, bound)
        if (
            self.op.scalar.commutative
            and len(node.inputs) == 2
            and node.inputs[0] is not node.inputs[1]
        ):
            yield from _operands(self.operands, node.inputs[::-1], bound)


def _operands(
    patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], bound: Bindings
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for extended in patterns[0].match(nodes[0], bound):
        yield from _operands(patterns[1:], nodes[1:], extended)


class _Operations:
    """Gives every operation of the table by its name: applied to patterns, it is a pattern."""

    def __getattr__(self, name: str) -> Callable[..., Pattern]:
        record = TABLE.get(name)
        if not isinstance(record, Op):
            raise AttributeError(f"there is no operation {name!r} to make a pattern of")
        op = record

        def apply(*operands: Any, **attrs: Any) -> Pattern:
            return Application(op, tuple(_pattern(x) for x in operands), attrs)

        return apply


def _pattern(value: Any) -> Pattern:
    return value if isinstance(value, Pattern) else Number(value)


P = _Operations()


def wildcards(names: str) -> tuple[Wildcard, ...]:
    """Return a wildcard for each of the names.

    Examples
    --------
    >>> x, y = wildcards("x y")
    >>> x.name
    'x'
    """
    return tuple(Wildcard(name) for name in names.split())


def constants(names: str) -> tuple[AnyConstant, ...]:
    """Return a pattern of a constant for each of the names."""
    return tuple(AnyConstant(name) for name in names.split())


def attribute(name: str) -> Attribute:
    """Return a placeholder for an attribute."""
    return Attribute(name)


def uniform(node: Node) -> float | None:
    """Return the number that all elements of a constant equal, or None.

    Of a complex constant it is the real part, where the imaginary one is 0.
    """
    if node.op is not CONSTANT:
        return None
    value: np.ndarray = node.attrs["value"]
    if value.size == 0 or value.dtype == bool:
        return None
    if value.ndim:
        first, last = value.flat[0], value.flat[-1]
        # Most arrays that are not uniform differ in their ends already.
        if first != last or not bool((value == first).all()):
            return None
        number = first.item()
    else:
        number = value.item()
    if isinstance(number, complex):
        if number.imag != 0.0:
            return None
        number = number.real
    return number if isinstance(number, int) else float(number)
