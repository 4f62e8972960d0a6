"""CUDA C for the elements of a region: addresses, values, what is folded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....graph import Node
from ....op import Kind
from ....ops.random.philox import stream_key
from ....region.analysis import Fold, Output, Region
from ....region.parts import Walk, indexed
from ...literals import literal
from ...numpy.codegen.region_code import RegionCode, of_one_element
from ...numpy.codegen.scalar import (
    apply_scalar,
    combine_expression,
    identity_expression,
    is_floating,
    load,
    storage_type,
    store,
)
from ...numpy.codegen.text import mentions, replace_if_better, times
from ...numpy.functions import philox
from ...numpy.functions.scalar import computing_type
from .arithmetic import elementwise

__all__ = ["ElementCode", "Unsupported"]

FEWEST_COUNTED = 32  # from which a whole number among constants is taken for a count


class Unsupported(Exception):
    """A region that no kernel shape here computes; its array expressions run instead."""


class ElementCode(RegionCode):
    """Lines of CUDA C for values of a region; the kernels are put together of them.

    Attributes
    ----------
    parts
        Folds whose elements are added up some at a time, and the dtype of that.
    """

    def __init__(self, region: Region) -> None:
        super().__init__(region)
        self.walk = Walk(region, keep=False)
        self.inner = region.depth - 1
        self.parts: dict[Fold, np.dtype] = {}
        self._folded = {fold.node for fold in region.folds}

    def header(self, text: str, offset: int) -> list[str]:
        """Return the lines that take operands and numbers out of the arguments ``v``."""
        body = self.region.body
        taken, made = len(body.inputs), len(body.outputs)
        lines = []
        for i, leaf in enumerate(body.inputs):
            if mentions(text, f"in{i}"):
                kind = storage_type(leaf.dtype)
                lines.append(f"const {kind} *in{i} = (const {kind} *)v[{offset + i}];")
        for i, node in enumerate(body.outputs):
            if mentions(text, f"out{i}"):
                kind = storage_type(node.dtype)
                lines.append(f"{kind} *out{i} = ({kind} *)v[{offset + taken + i}];")
        tail = offset + taken + made
        if mentions(text, "workspace"):
            lines.append(f"char *workspace = (char *)v[{tail}];")
        for name, position in self.places.items():
            if mentions(text, name):
                wide = "int64_t" if "_place" in name else "idx"
                lines.append(f"const {wide} {name} = ({wide})v[{tail + 1 + position}];")
        return lines

    # ---- Values

    def operand(self, node: Node) -> str:
        """Return the expression of a value that is known here."""
        return self.scope[self.walk.source(node)]

    def define(self, nodes: Iterable[Node], along: frozenset[int] | None = None) -> list[str]:
        """Return the lines that compute values which are not known yet.

        Parameters
        ----------
        nodes
            In an order in which they can be computed.
        along
            Only those that differ along no other loops.
        """
        lines: list[str] = []
        for node in nodes:
            if node in self.scope or node in self._folded:
                continue  # a fold's result is known when the fold is over
            value = self.region.values[node]
            if along is not None and not value.loops <= along:
                continue
            if any(
                self.walk.source(o) not in self.scope
                for o in (() if node in self.region.accesses else node.inputs)
            ) and node.inputs and node.op.kind is not Kind.RANDOM:
                continue  # it waits for a fold, or for a value that does
            lines += self._value(node)
        return lines

    def _value(self, node: Node) -> list[str]:
        region = self.region
        name = self.names[node]
        lines: list[str] = []
        if not node.inputs and node not in region.accesses and not region.counts(node):
            self.scope[node] = self._scalar(node)
            return []
        if node in region.accesses:
            expression = load(self.read(node), node.dtype)
        elif node.op.reduction is not None:
            expression = of_one_element(node, self.operand(node.inputs[0]))
        elif region.counts(node):
            expression = self._counted(node)
        else:
            operands = [self.operand(o) for o in node.inputs]
            lines, expression = elementwise(node, operands, name, self._shared, self._below)
        self.scope[node] = name
        return [*lines, f"const {computing_type(node.dtype)} {name} = {expression};"]

    def _shared(self, node: Node) -> bool:
        """Return whether neighbours along the innermost loop have the same of a value."""
        return self.inner not in self.region.values[self.walk.source(node)].loops

    def _below(self, node: Node) -> bool:
        """Return whether a value is what elements of a row are below the row's highest."""
        node = self.walk.source(node)
        if node in self.region.accesses or node.op.scalar != "a - b":
            return False
        element, highest = (self.walk.source(o) for o in node.inputs)
        if highest.op.scalar == "a ? b : c":  # it may stand for a highest that is not finite
            condition, highest, _ = (self.walk.source(o) for o in highest.inputs)
            if condition.op.scalar != "a - a == 0" or self.walk.source(
                condition.inputs[0]
            ) is not highest:
                return False
        reduction = highest.op.reduction
        return any(
            fold.row and fold.node is highest and self.walk.source(fold.operand) is element
            for fold in self.region.folds
        ) and reduction is not None and reduction.combine == "$maximum(a, b)"

    def _scalar(self, node: Node) -> str:
        if "value" in node.attrs:
            value = node.attrs["value"].reshape(-1)[0]
            if node in self.region.values and _is_count(value, node.dtype):
                # What depends on extents is told at run time: one kernel serves them all.
                position = list(self.region.values).index(node)
                name = self.number(f"{self.names[node]}_count", "count", position)
                return f"(({computing_type(node.dtype)}){name})"
            return literal(value, node.dtype)
        position = list(self.region.values).index(node)
        return self.number(self.names[node], "scalar", position)

    def _counted(self, node: Node) -> str:
        loops = sorted(self.region.values[node].loops)
        if node.op.kind is not Kind.RANDOM:
            return apply_scalar(node, [self.index(loop) for loop in loops] or ["0"])
        place, name = list(self.region.values).index(node), self.names[node]
        terms = []
        for loop in loops:
            step = self.number(f"{name}_step{loop}", "counter_step", place, loop)
            terms.append(f"(uint64_t){self.index(loop)} * (uint64_t){step}")
        if len(node.inputs) > 1:
            terms.append(f"(uint64_t){self.operand(node.inputs[1])}")
        attrs = node.attrs
        keys = stream_key(attrs["seed"], attrs["stream"], attrs["part"])
        return philox.element(
            node.dtype,
            (f"{keys[0]}u", f"{keys[1]}u"),
            self.operand(node.inputs[0]),
            " + ".join(terms) or "0",
        )

    # ---- Addresses

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        return f"(i{loop} + k)" if loop == self.vector_loop else f"i{loop}"

    vector_loop: int = -1  # the loop whose neighbours are ``k`` apart, where one has such

    def unit_read(self, node: Node, loop: int) -> bool:
        """Return whether neighbours along a loop are neighbours in what is read."""
        if node not in self.region.accesses:
            return False
        return self.steps_of(node)[1].get(loop) == ""

    def read(self, node: Node) -> str:
        """Return the place of an element that is read."""
        offset, steps = self.steps_of(node)
        terms = [offset] if offset else []
        terms += [times(self.index(loop), step) for loop, step in steps.items()]
        return f"in{self.region.accesses[node].parameter}[{' + '.join(terms) or '0'}]"

    def write(self, output: Output) -> str:
        """Return the line that writes one element of a result."""
        terms = [times(self.index(loop), s) for loop, s in self.write_steps(output).items()]
        value = store(self.operand(output.node), output.node.dtype)
        return f"out{output.position}[{' + '.join(terms) or '0'}] = {value};"

    # ---- Folds

    def begin(self, fold: Fold, count: str = "") -> list[str]:
        """Return the declaration of a fold's accumulator; of some, with ``count``."""
        dtype = self.accumulator(fold)
        name, begin = self.fold_name(fold), identity_expression(fold.node, dtype)
        kind = computing_type(dtype)
        also = indexed(fold.node.op)
        if not count:
            lines = [f"{kind} {name} = {begin};"]
            return [*lines, f"int64_t {name}_at = 0;"] if also else lines
        lines = [f"{kind} {name}[{count}];"]
        if also:
            lines.append(f"int64_t {name}_at[{count}];")
        places = f" {name}_at[k] = 0;" if also else ""
        lines.append(f"for (int k = 0; k < {count}; k++) {{ {name}[k] = {begin};{places} }}")
        return lines

    def take(self, fold: Fold, target: str, at: str, condition: str = "") -> list[str]:
        """Return the lines that fold the element here into an accumulator, or a part of one."""
        dtype = self.parts.get(fold, self.accumulator(fold))
        kind = computing_type(dtype)
        element = f"({kind}){self.operand(fold.operand)}"
        if condition:
            element = f"({condition} ? {element} : {identity_expression(fold.node, dtype)})"
        if not indexed(fold.node.op):
            return [f"{target} = {combine_expression(fold.node, dtype, target, element)};"]
        return replace_if_better(fold.node, dtype, target, at, element, self._number_of(fold))

    def _number_of(self, fold: Fold) -> str:
        """Return the number of the element here among those that are folded."""
        number = self.number_among(fold, fold.reduced, "count", "index_step", "(int64_t)")
        return f"({number})"

    def join(self, fold: Fold, target: str, at: str, other: str, other_at: str) -> list[str]:
        """Return the lines that fold one accumulator into another."""
        dtype = self.accumulator(fold)
        if not indexed(fold.node.op):
            return [f"{target} = {combine_expression(fold.node, dtype, target, other)};"]
        return replace_if_better(fold.node, dtype, target, at, other, other_at)

    def result(self, fold: Fold, name: str) -> str:
        """Return the value of a fold that is over, from its accumulator's name."""
        if indexed(fold.node.op):
            wanted = computing_type(fold.node.dtype)
            return f"({wanted}){name}_at"
        have, wanted = computing_type(self.accumulator(fold)), computing_type(fold.node.dtype)
        return name if have == wanted else f"({wanted}){name}"

    def line_position(self, fold: Fold) -> str:
        """Return the place of the element here in a line of the fold's partial results."""
        return self.number_among(fold, fold.kept, "kept", "kept_step")


def _is_count(value: np.generic, dtype: np.dtype) -> bool:
    """Return whether a constant looks like a number of elements."""
    if not is_floating(dtype) or dtype.itemsize < 4:
        return False
    return FEWEST_COUNTED <= float(value) < 2**31 and float(value).is_integer()
