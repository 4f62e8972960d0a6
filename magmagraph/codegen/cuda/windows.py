"""CUDA C for regions whose rows do not lie on vectors: stencils of slices, odd rows.

Lanes take neighbours one by one, so that it does not matter where rows begin. A thread has some
elements below each other: it knows its place in the array once for all of them, all its reads are
under way together, and slices that differ by whole rows (`u[:-2]`, `u[1:-1]`, `u[2:]`) are one
column of elements in its registers. What lies beside it, its neighbours have brought to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Node
from ..c.text import indent
from ..functions.scalar import computing_type
from ..region.access import Access
from ..region.views import view_places
from .cuda_code import CudaCode

__all__ = ["Windows", "windows_of"]

WIDEST = 8  # neighbours that are moved at a time, at most
ROWS = 4  # elements of a thread
MOST_WORDS = 64  # registers of a thread for what it reads
MOST_APART = 4  # rows between slices that share registers


@dataclass
class Column:
    """Elements below each other that a thread reads.

    Attributes
    ----------
    first
        The operand whose rows come first.
    shifts
        The operands that they hold, each with the number of rows that it begins below the first.
    """

    first: Node
    shifts: dict[Node, int] = field(default_factory=dict)

    @property
    def span(self) -> int:
        """How many rows the last operand begins below the first."""
        return max(self.shifts.values())


class Windows:
    """The kernel of a region in which each thread has some elements below each other.

    Attributes
    ----------
    down
        The loop along which they are.
    rows
        How many.
    joined
        Whether something is read in parts, which end anywhere.
    """

    def __init__(self, code: CudaCode) -> None:
        self.code = code
        self.down = max(0, code.inner - 1)
        self.joined = code.region.joins
        self.columns = self._columns()
        self.rows = ROWS
        while self.rows > 1 and self._words() > MOST_WORDS:
            self.rows //= 2

    def _words(self) -> int:
        return sum(
            (self.rows + column.span) * max(1, column.first.dtype.itemsize // 4)
            for column in self.columns
        )

    def _columns(self) -> list[Column]:
        """Return what is read of each row; slices that differ by a few rows share their elements.

        The first row of each has all positions along the other loops that any of them has.
        """
        code, groups = self.code, dict[object, list[tuple[int, Node]]]()
        for node in code.walk.passes[0]:
            if node not in code.region.accesses or self.down not in code.region.values[node].loops:
                continue
            key, start = self._place(node)
            groups.setdefault(key, []).append((start, node))
        columns: list[Column] = []
        for group in groups.values():
            group.sort(key=lambda one: one[0])
            begin = 0
            for place, (start, node) in enumerate(group):
                if not place or start - begin > MOST_APART:
                    begin = start
                    columns.append(Column(node))
                columns[-1].shifts[node] = start - begin
        return columns

    def _place(self, node: Node) -> tuple[object, int]:
        """Return what slices that differ by rows alone have in common, and the first row."""
        access = self.code.region.accesses[node]
        axis = access.axes[self.down]
        if axis is None or self.code.region.depth < 2:
            return node, 0
        if access.joined is not None:
            return self._place_of_part(node, access, axis)
        found = view_places(access.views, node)
        if found is None:
            return node, 0
        shape, places = found
        row = places[axis]
        if row.step != 1 or not isinstance(row.start, int):
            return node, 0
        places[axis] = row._replace(start=0)
        # The axes of an access are those of its view; its loops say which one is which.
        return (access.parameter, shape, access.axes, node.shape, tuple(places)), row.start

    def _place_of_part(self, node: Node, access: Access, axis: int) -> tuple[object, int]:
        """Return the same of an operand among constants."""
        assert access.joined is not None
        part, value = access.joined.parts[0], access.joined.value
        start = part.starts[axis]
        alone = len(access.joined.parts) == 1 and value is not None and isinstance(start, int)
        if not alone or not part.reaches_all(axis, node.shape[axis]):
            return node, 0
        assert isinstance(start, int)
        box = [
            (start, low, high)
            for place, (start, low, high) in enumerate(
                zip(part.starts, part.low, part.high, strict=True)
            )
            if place != axis
        ]
        bits = np.asarray(value, node.dtype).tobytes()
        return (part.node, part.axes, access.axes, node.shape, tuple(box), bits), -start

    def main(self) -> list[str]:
        """Return the kernel."""
        code, rows, down, inner = self.code, self.rows, self.down, self.code.inner
        nodes = code.walk.passes[0]
        top = code.top()
        outer_scope = dict(code.scope)
        bands = code.number("bands", "window_bands", rows)
        n, m = code.extent(inner), code.extent(down)
        if down == inner:
            lines = [f"const idx first = tile * {rows} * blockDim.x + threadIdx.x;"]
            step, count, active = "turn * blockDim.x", bands, ""
        else:
            strips = code.number("strips", "window_strips")
            outer = [loop for loop in range(code.region.depth) if loop not in (inner, down)]
            lines = [
                "idx rest = tile;",
                f"const idx column = rest % {strips} * blockDim.x + threadIdx.x;",
                f"rest /= {strips};",
                f"const idx first = (rest % {bands} * blockDim.y + threadIdx.y) * {rows};",
                f"rest /= {bands};",
                *code.decode("rest", outer),
                f"const bool active = column < {n};",
                f"const idx i{inner} = active ? column : {n} - 1;",
            ]
            step, active = "turn", "active && "
            count = code.number("tiles", "window_count", rows)
        lines += code.define(nodes, frozenset(range(code.region.depth)) - {down})
        for column in self.columns:
            lines += self._read(column, step, m)
        work = code.define(nodes)
        writes = [code.write(output) for output in code.region.outputs]
        lines += [
            "#pragma unroll",
            f"for (int turn = 0; turn < {rows}; turn++) {{",
            f"    const idx i{down} = first + {step};",
            f"    if ({active}i{down} < {m}) {{",
            *indent(indent([*work, *writes])),
            "    }",
            "}",
        ]
        code.scope = outer_scope
        turns = f"for (idx tile = blockIdx.x; tile < {count}; tile += gridDim.x) {{"
        return [*top, turns, *indent(lines), "}"]

    def _read(self, column: Column, step: str, extent: str) -> list[str]:
        """Return the lines that read a column; rows behind the last one are that one again."""
        code, node, span = self.code, column.first, column.span
        name, kind = f"{code.names[node]}_rows", computing_type(node.dtype)
        axis = code.region.accesses[node].axes[self.down]
        beyond = axis if span and axis is not None else -1
        last = f"{extent} + {span - 1}" if span > 1 else extent if span else f"{extent} - 1"
        for held, shift in column.shifts.items():
            code.scope[held] = f"{name}[turn + {shift}]" if shift else f"{name}[turn]"
        return [
            f"{kind} {name}[{self.rows + span}];",
            "#pragma unroll",
            f"for (int turn = 0; turn < {self.rows + span}; turn++) {{",
            f"    const idx i{self.down} = min((idx)(first + {step}), (idx)({last}));",
            f"    {name}[turn] = {code.fetch(node, beyond)};",
            "}",
        ]


def windows_of(code: CudaCode) -> Windows | None:
    """Return the windows of a region without folds, None where its rows lie on vectors."""
    region, inner = code.region, code.inner
    if region.depth < 1 or region.folds:
        return None
    cut = any(not access.whole for access in region.accesses.values())
    extent = region.loops[inner].extent
    odd = region.depth > 1 and not (isinstance(extent, int) and extent % WIDEST == 0)
    return Windows(code) if cut or odd else None
