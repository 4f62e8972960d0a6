"""CUDA C for neighbours along the innermost loop: moved 16 bytes at a time, computed one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ....graph import Node
from ....region.analysis import Fold, Output
from ....region.parts import indexed
from ...numpy.codegen.region_code import FLOAT64
from ...numpy.codegen.scalar import (
    combine_expression,
    identity_expression,
    load,
    storage_type,
    store,
)
from ...numpy.codegen.text import indent
from ...numpy.functions.scalar import computing_type
from .element import ElementCode

__all__ = ["Kept", "VectorCode"]

FLOAT32 = np.dtype(np.float32)
REGISTERS = 80  # words a thread that may hold what several passes read


class Kept:
    """What a thread reads or computes once and keeps in registers for the passes that follow.

    Attributes
    ----------
    declared
        The declaration of each value that is kept.
    saved
        Those among them that an earlier pass computed.

    Parameters
    ----------
    part
        The C expression of a vector's place among a thread's.
    count
        How many each thread has.
    width
        How many neighbours a vector has.
    computed
        What earlier passes will keep of what they compute: there is room for that.
    """

    def __init__(self, part: str, count: int, width: int, computed: Iterable[Node]) -> None:
        self.part, self.count, self.width = part, count, width
        self.declared: dict[Node, str] = {}
        self.saved: set[Node] = set()
        self.words = sum(self._words(max(4, node.dtype.itemsize)) for node in computed)

    def _words(self, size: int) -> int:
        return max(1, size * self.width // 4) * self.count

    @property
    def fits(self) -> bool:
        """Whether there is room for all that was taken."""
        return self.words <= REGISTERS

    def takes(self, node: Node, kind: str, name: str) -> bool:
        """Return whether there is room for what is read for a node."""
        words = self._words(node.dtype.itemsize)
        if self.words + words > REGISTERS:
            return False
        self.words += words
        self.declare(node, kind, name)
        return True

    def declare(self, node: Node, kind: str, name: str) -> None:
        """Keep a node's values."""
        self.declared[node] = f"mg_vector<{kind}, {self.width}> {name}[{self.count}];"


class VectorCode(ElementCode):
    """Lines of CUDA C for some neighbours along the innermost loop."""

    def moves(self, node: Node) -> bool:
        """Return whether neighbours of a value that is read lie side by side."""
        return self.unit_read(node, self.inner)

    def decode(self, rest: str, loops: Sequence[int]) -> list[str]:
        """Return the lines that take a count of iterations apart, the last loop fastest."""
        lines = []
        for position, loop in enumerate(reversed(loops)):
            if position == len(loops) - 1:
                lines.append(f"const idx i{loop} = {rest};")
            else:
                n = self.extent(loop)
                lines += [f"const idx i{loop} = {rest} % {n};", f"{rest} /= {n};"]
        return lines

    def top(self) -> list[str]:
        """Return the lines that compute what is the same for all elements."""
        region = self.region
        nodes = [n for nodes in (*self.walk.passes, *self.walk.stages) for n in nodes]
        early = [
            n for n in nodes if not region.values[n].phase and not region.values[n].epilogue
            and n.op.reduction is None
        ]
        return self.define(early, frozenset())

    def elements(
        self,
        nodes: Sequence[Node],
        folds: Sequence[Fold],
        outputs: Sequence[Output],
        width: int,
        update: Mapping[Fold, tuple[str, str]],
        kept: Kept | None = None,
        here: str = "",
        mine: str = "",
    ) -> list[str]:
        """Return what is done for `width` neighbours along the innermost loop.

        Parameters
        ----------
        nodes
            The values to compute, in order.
        folds
            What takes the elements in.
        outputs
            What is written.
        width
            How many neighbours.
        update
            The accumulator of each fold, and the place beside it.
        kept
            Where vectors stay for other passes.
        here
            The condition under which the vector counts; under others it is computed all the same.
        mine
            The condition under which it is written.
        """
        inner = self.inner
        known = dict(self.scope)
        lines = self.define(nodes, frozenset(range(self.region.depth)) - {inner})
        stores: list[str] = []
        inside: list[str] = []
        self.vector_loop = inner
        near = [n for n in nodes if n not in self.scope and self.moves(n)]
        for node in near:
            place = self._bring(node, width, kept, lines)
            name, kind = self.names[node], computing_type(node.dtype)
            inside.append(f"const {kind} {name} = {load(f'{place}.x[k]', node.dtype)};")
        self.scope |= {node: self.names[node] for node in near}
        inside += self._define_kept(nodes, kept)
        for fold in folds:
            target, at = update[fold]
            if (width > 1 or kept is not None) and self.in_groups(fold, target):
                dtype, part = self.near(fold), f"{target}_near"
                lines.append(f"{computing_type(dtype)} {part}[{width}];")
                inside.append(f"{part}[k] = {self.operand(fold.operand)};")
                stores += self.in_pairs(fold, part, width)
                value = f"{part}[0]"
                if kept is not None:
                    begin = identity_expression(fold.node, dtype)
                    value = f"{here} ? {value} : {begin}" if here else value
                    stores.append(f"{target}_part[{kept.part}] = {value};")
                else:
                    wide = self.accumulator(fold)
                    value = f"({computing_type(wide)}){value}"
                    joined = combine_expression(fold.node, wide, target, value)
                    stores.append(f"{target} = {joined};")
            elif here:
                inside += [f"if ({here}) {{", *indent(self.take(fold, target, at)), "}"]
            else:
                inside += self.take(fold, target, at)
        written = " && ".join(filter(None, (mine, here)))
        written = f"if ({written}) " if written else ""
        for output in outputs:
            if self.write_steps(output).get(inner) != "":
                inside.append(f"{written}{self.write(output)}")
                continue
            kind = f"mg_vector<{storage_type(output.node.dtype)}, {width}>"
            name = f"out{output.position}_near"
            lines.append(f"{kind} {name};")
            value = store(self.operand(output.node), output.node.dtype)
            inside.append(f"{name}.x[k] = {value};")
            place = self._first(self.write(output).partition(" = ")[0])
            stores.append(f"{written}*({kind} *)({place}) = {name};")
        self.vector_loop = -1
        self.scope = known
        return [
            *lines,
            "#pragma unroll",
            f"for (int k = 0; k < {width}; k++) {{",
            *indent(inside),
            "}",
            *stores,
        ]

    def in_groups(self, fold: Fold, target: str) -> bool:
        """Return whether a vector is folded by itself before the accumulator takes it."""
        return not indexed(fold.node.op) and "[" not in target

    def in_pairs(self, fold: Fold, name: str, count: int) -> list[str]:
        """Return the lines that fold an array into its first place, by pairs, pairs of pairs, ...

        Sums of equal numbers are exact so, and others are off by less.
        """
        lines = []
        while count > 1:
            half = (count + 1) // 2
            for k in range(count - half):
                left, right = f"{name}[{k}]", f"{name}[{k + half}]"
                joined = combine_expression(fold.node, self.near(fold), left, right)
                lines.append(f"{left} = {joined};")
            count = half
        return lines

    def near(self, fold: Fold) -> np.dtype:
        """Return the dtype that the elements of a few vectors are folded in.

        Conversions to float64 take as long as sixteen additions.
        """
        wide, dtype = self.accumulator(fold), fold.operand.dtype
        return FLOAT32 if wide == FLOAT64 and dtype.itemsize <= FLOAT32.itemsize else wide

    def _define_kept(self, nodes: Sequence[Node], kept: Kept | None) -> list[str]:
        """Return the lines that compute values, some of which other passes kept or will read."""
        if kept is None:
            return self.define(nodes)
        places = {
            node: f"{self.names[node]}_kept[{kept.part}].x[k]"
            for node in self.walk.saved
            if node in nodes
        }
        self.scope |= {node: place for node, place in places.items() if node in kept.saved}
        lines = self.define(nodes)
        for node, place in places.items():
            if node in kept.saved or node not in self.scope:
                continue
            kept.declare(node, computing_type(node.dtype), f"{self.names[node]}_kept")
            kept.saved.add(node)
            lines.append(f"{place} = {self.scope[node]};")
        return lines

    def _bring(self, node: Node, width: int, kept: Kept | None, lines: list[str]) -> str:
        """Return the name of a vector that is read, and add the lines that read it."""
        kind = f"mg_vector<{storage_type(node.dtype)}, {width}>"
        name = f"{self.names[node]}_near"
        value = f"*(const {kind} *)({self._first(self.read(node))})"
        if kept is not None:
            place = f"{name}[{kept.part}]"
            if node in kept.declared:
                return place
            if kept.takes(node, storage_type(node.dtype), name):
                lines.append(f"{place} = {value};")
                return place
        lines.append(f"const {kind} {name} = {value};")
        return name

    def _first(self, place: str) -> str:
        """Return the address of the first of the neighbours at a place."""
        base, _, index = place.partition("[")
        return f"{base} + {index[:-1].replace(f'(i{self.inner} + k)', f'i{self.inner}')}"
