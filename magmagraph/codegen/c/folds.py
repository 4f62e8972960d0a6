"""C for a vector loop that folds, in groups of as many elements as a vector has lanes.

`reduction` clauses leave the last elements of a row to scalar code, and join the lanes one after
the other by code with branches: a row of a hundred elements takes twice the time of its vectors.
Here each lane has an accumulator of its own, which the compiler keeps in one register, and the
rest of a row is one more vector: elements beyond the end are neither read nor written, and fold
as the identity. It is taken first: its chain is the longest, and what follows does not wait for it.
Lanes are joined without a branch (`lanes_sum` and its kin among the helpers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Node
from ...ir.op import Reduction
from ..functions.scalar import computing_type, suffix
from ..region.analysis import Fold
from .prefetch import ahead_of
from .scalar import identity_expression, is_floating, storage_type
from .text import indent

__all__ = ["SUMMED_LANES", "Lanes", "joins", "lane_count"]

SUMMED_LANES = "2 * mg_lanes_summed"  # elements of a block: 64 additions of floats in each lane

# The combination of a reduction, and what joins its lanes.
_JOINS = {"a + b": "sum", "$maximum(a, b)": "maximum", "$minimum(a, b)": "minimum"}


def joins(reduction: Reduction, dtype: np.dtype) -> str:
    """Return what joins the lanes of a reduction: the end of a helper's name, or nothing."""
    plain = is_floating(dtype) and storage_type(dtype) == computing_type(dtype)
    return _JOINS.get(reduction.combine, "") if plain else ""


def lane_count(itemsize: int) -> str:
    """Return the C of how many elements of 4 or 8 bytes a group has: the compiler's header says."""
    return f"mg_lanes_f{8 * itemsize}"


@dataclass
class Lanes:
    """The groups of one vector loop.

    Attributes
    ----------
    count
        The C of the elements of a group.
    reads
        Lines that read an element: the name of its value, its C type and its place.
    stores
        Lines that write an element.
    before
        Lines in front of the groups.
    flushes
        Lines behind a block that is not the last, where a row is folded in blocks: its sums, lane
        by lane, go into those of all in double, and begin anew.
    ahead
        Rows that are asked for before they are read: the pointer to one, and how far (`ahead`).
    """

    count: str
    reads: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    stores: set[str] = field(default_factory=set)
    before: list[str] = field(default_factory=list)
    flushes: list[str] = field(default_factory=list)
    ahead: dict[str, str] = field(default_factory=dict)
    _folds: list[tuple[list[str], list[str]]] = field(default_factory=list)

    def fold(self, node: Node, part: str, element: str, *, blocked: bool) -> str:
        """Add a fold of an element, in blocks or not; return the C of its result."""
        reduction = node.op.reduction
        assert reduction is not None
        dtype = node.inputs[0].dtype
        how = joins(reduction, dtype)
        begin = identity_expression(node, dtype)
        self.before.append(f"{computing_type(dtype)} {part}[{self.count}];")
        start = f"{part}[l] = {begin};"
        joined = f"mg_lanes_{how}_{suffix(dtype)}({part}"
        if blocked:
            self.before.append(f"double {part}_whole[{self.count}];")
            flush = f"mg_lanes_flush_{suffix(dtype)}"
            self.flushes.append(f"{flush}({part}_whole, {part}, block == 0);")
        safe = f"(l < rest ? {element} : {begin})"
        if how == "sum":
            self._folds.append((
                [f"{part}[l] = {part}[l] + {element};"], [f"{part}[l] = {part}[l] + {safe};"]
            ))
        else:
            sign = ">" if how == "maximum" else "<"
            self.before.append(f"int{8 * dtype.itemsize}_t {part}_seen[{self.count}];")
            start += f" {part}_seen[l] = 0;"
            joined += f", {part}_seen"
            # One instruction, which loses NaN: it is remembered beside.
            kept = f"{part}[l] = {part}_new {sign} {part}[l] ? {part}_new : {part}[l];"
            seen = f"mg_lanes_seen_{suffix(dtype)}({part}_seen[l], {part}_new)"
            seen = f"{part}_seen[l] = {seen};"
            first, last = (
                [f"const {computing_type(dtype)} {part}_new = {new};", seen, kept]
                for new in (element, safe)
            )
            self._folds.append((first, last))
        self.before += self._loop([start])
        return joined + ")"

    def total(self, fold: Fold, part: str) -> str:
        """Return the C of the blocks' sum."""
        return f"mg_lanes_total_{suffix(fold.operand.dtype)}({part}_whole)"

    def lines(self, count: str, index: str, inside: Iterable[str]) -> list[str]:
        """Return the rest of `count` elements, and then their groups.

        `inside` computes the element at `index`.
        """
        body = list(inside)
        position = f"const int64_t {index} = full + l;"
        head = f"for (int l = 0; l < {self.count}; l++)"
        loads, last = [], [position]
        for line in body:
            name, kind, place = self.reads.get(line, ("", "", ""))
            if line in self.stores:
                last.append(f"if (l < rest) {line}")
            elif name:
                loads += [
                    f"{kind} {name}_last[{self.count}];",
                    "#pragma omp simd",
                    f"{head} {{",
                    f"    {position}",
                    f"    {name}_last[l] = l < rest ? {place} : 0;",
                    "}",
                ]
                last.append(f"const {kind} {name} = {name}_last[l];")
            else:
                last.append(line)
        whole = [line for lines, _ in self._folds for line in lines]
        last += [line for _, lines in self._folds for line in lines]
        position = f"const int64_t {index} = j + l;"
        groups = self._loop([position, *body, *whole])
        return [
            f"const int rest = (int)({count} % {self.count});",
            f"const int64_t full = {count} - rest;",
            "if (rest) {",
            *indent([*loads, *self._loop(last)]),
            "}",
            *(self._blocks(groups) if self.flushes else self._groups(groups, "0", "full")),
        ]

    def _groups(self, group: list[str], begin: str, end: str) -> list[str]:
        head = f"for (int64_t j = {begin}; j < {end}; j += {self.count}) {{"
        return ahead_of(self.ahead, [head, *indent(group), "}"])

    def _blocks(self, group: list[str]) -> list[str]:
        size = SUMMED_LANES
        return [
            f"for (int64_t block = 0;; block += {size}) {{",
            *indent([
                f"const int64_t end = full - block > {size} ? block + {size} : full;",
                *self._groups(group, "block", "end"),
                "if (__builtin_expect(end == full, 1)) break;",  # most rows are one block
                *self.flushes,
            ]),
            "}",
        ]

    def _loop(self, inside: list[str]) -> list[str]:
        head = f"for (int l = 0; l < {self.count}; l++) {{"
        return ["#pragma omp simd", head, *indent(inside), "}"]
