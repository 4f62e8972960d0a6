"""CUDA C for regions that read or write in another order than they compute in: square tiles.

Lanes that take neighbours along the innermost loop read an operand in another order one element a
cache line. Here a block takes a tile of two loops, the innermost one and the one along which such
operands are contiguous. It reads them along the second, all lanes of a line together, puts them
into shared memory, and takes them out along the first; results in another order go the other way.
"""

from __future__ import annotations

from ...ir.graph import Node
from ..c.scalar import load, storage_type
from ..c.text import indent
from ..region.analysis import Output
from .cuda_code import CudaCode
from .limits import TILE_THREADS

__all__ = ["Tiles", "tiles_of"]

SIDES = (64, 32)  # elements of a tile's side, the first that fits
ROOM = 34 << 10  # bytes of shared memory of a block with large tiles: six of them fit
MOST_ROOM = 46 << 10  # of any block
LINE = 8  # threads that read a line, where each takes 16 bytes of it
AHEAD = 48  # registers of a thread that hold what it reads in the region's own order


class Tiles:
    """The kernels of a region on square tiles.

    Attributes
    ----------
    along
        The loop along which the operands in another order are contiguous.
    reads, writes
        What goes through shared memory.
    width
        How many neighbours fill 16 bytes of the widest operand.
    side
        Elements of a tile's side.
    """

    def __init__(self, code: CudaCode, along: int, reads: list[Node], writes: list[Output]) -> None:
        self.code, self.along, self.reads, self.writes = code, along, reads, writes
        region = code.region
        moved = [n for n in region.accesses if code.moves(n)]
        sizes = [n.dtype.itemsize for n in (*moved, *reads)]
        sizes += [output.node.dtype.itemsize for output in region.outputs]
        self.width = max(1, min(8, 16 // max(sizes)))
        self.side = next((side for side in SIDES if self._room(side) <= ROOM), SIDES[-1])
        while self._room(self.side) > MOST_ROOM:  # what is left is read, or written, as it comes
            (self.writes or self.reads).pop()
        self.width = min(self.width, self.side // LINE)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many neighbours are moved at a time."""
        return tuple(sorted({1, self.width}))

    def _room(self, side: int) -> int:
        staged = (*self.reads, *(output.node for output in self.writes))
        return sum(side * self._pitch(node, side) * node.dtype.itemsize for node in staged)

    def _pitch(self, node: Node, side: int) -> int:
        """Return the elements from one line of a tile to the next: lanes meet in no bank."""
        return side + max(1, 4 // node.dtype.itemsize)

    def main(self, width: int) -> list[str]:
        """Return the kernel in which a thread takes so many neighbours at a time."""
        code, side = self.code, self.side
        inner, along = code.inner, self.along
        nodes = code.walk.passes[0]
        across = code.number(f"tiles{inner}", "tiles_along", inner, side)
        down = code.number(f"tiles{along}", "tiles_along", along, side)
        count = code.number("tiles", "tile_count", along, side)
        top = code.top()
        outer_scope = dict(code.scope)
        outer = [loop for loop in range(code.region.depth) if loop not in (inner, along)]
        head = [
            "idx rest = tile;",
            f"const idx first = rest % {across} * {side};", f"rest /= {across};",
            f"const idx second = rest % {down} * {side};", f"rest /= {down};",
            *code.decode("rest", outer),
        ]  # fmt: skip
        shared: list[str] = []
        brought: list[str] = []
        put: list[str] = []
        for node in self.reads:
            name, kind = f"{code.names[node]}_tile", storage_type(node.dtype)
            pitch = self._pitch(node, side)
            shared.append(f"__shared__ {kind} {name}[{side * pitch}];")
            base, _, index = code.read(node).partition("[")
            vector = f"mg_vector<{kind}, {width}>"
            brought += [
                f"{vector} {name}_ahead[{self._turns(width)}];",
                *self._over(width, [
                    *self._across(width),
                    f"{name}_ahead[turn] = *(const {vector} *)({base} + {index[:-1]});",
                ]),
            ]  # fmt: skip
            put += self._over(width, [
                "#pragma unroll",
                f"for (int k = 0; k < {width}; k++) {{",
                f"    {name}[line * {pitch} + place + k] = {name}_ahead[turn].x[k];",
                "}",
            ])  # fmt: skip
            code.scope[node] = load(f"{name}[(place + k) * {pitch} + line]", node.dtype)
        outputs = [output for output in code.region.outputs if output not in self.writes]
        staged: dict[Output, str] = {}
        late: list[str] = []
        for output in self.writes:
            name, kind = f"out{output.position}_tile", storage_type(output.node.dtype)
            pitch = self._pitch(output.node, side)
            shared.append(f"__shared__ {kind} {name}[{side * pitch}];")
            staged[output] = f"{name}[(place + k) * {pitch} + line]"
            late += self._write(output, name, pitch, width)
        work = code.elements(nodes, [], outputs, width, {}, mine="here", staged=staged)
        ahead, work = self._ahead(work, width)
        code.scope = outer_scope
        waits = ["__syncthreads();"] if self.writes else []
        inside = [
            *head, *brought, *ahead, "__syncthreads();", *put, "__syncthreads();",
            *self._over(width, [*self._down(width), *work]), *waits, *late,
        ]  # fmt: skip
        turns = f"for (idx tile = blockIdx.x; tile < {count}; tile += gridDim.x) {{"
        return [*shared, *top, turns, *indent(inside), "}"]

    # ---- The elements of a thread

    def lanes(self, width: int) -> int:
        """Return how many threads lie along a line of a tile."""
        return LINE if width > 1 else 32

    def _turns(self, width: int) -> int:
        return self.side * self.side // (TILE_THREADS * width)

    def _over(self, width: int, inside: list[str]) -> list[str]:
        """Return the loop of a thread over its vectors of a tile.

        They are `place` elements along the lanes' loop and `line` along the other.
        """
        lanes = self.lanes(width)
        lines, wide = TILE_THREADS // lanes, lanes * width
        parts = self.side // wide
        part = f" + turn % {parts} * {wide}" if parts > 1 else ""
        turn = f"turn / {parts}" if parts > 1 else "turn"
        return [
            "#pragma unroll",
            f"for (int turn = 0; turn < {self._turns(width)}; turn++) {{",
            f"    const int place = threadIdx.x * {width}{part};",
            f"    const int line = threadIdx.y + {turn} * {lines};",
            *indent(inside),
            "}",
        ]

    def _positions(self, lane: int, other: int, width: int) -> list[str]:
        """Return the lines that say which elements a vector has; some at the end are read twice."""
        code = self.code
        origins = {code.inner: "first", self.along: "second"}
        n, m = code.extent(lane), code.extent(other)
        back = f"{n} - {width}"
        return [
            f"const bool here = {origins[lane]} + place < {n} && {origins[other]} + line < {m};",
            f"const idx i{lane} = min((idx)({origins[lane]} + place), (idx)({back}));",
            f"const idx i{other} = min((idx)({origins[other]} + line), (idx)({m} - 1));",
        ]

    def _across(self, width: int) -> list[str]:
        return self._positions(self.along, self.code.inner, width)

    def _down(self, width: int) -> list[str]:
        return self._positions(self.code.inner, self.along, width)

    def _ahead(self, work: list[str], width: int) -> tuple[list[str], list[str]]:
        """Return the lines that read operands in the region's order early, and the other ones."""
        code = self.code
        room = AHEAD
        early: list[str] = []
        rest: list[str] = []
        for line in work:
            node = self._read_by(line)
            words = 0 if node is None else max(1, node.dtype.itemsize * width // 4)
            words *= self._turns(width)
            if node is None or words > room:
                rest.append(line)
                continue
            room -= words
            kind = f"mg_vector<{storage_type(node.dtype)}, {width}>"
            name = f"{code.names[node]}_near"
            value = line.partition(f"{name} = ")[2]
            early += [
                f"{kind} {name}_ahead[{self._turns(width)}];",
                *self._over(width, [*self._down(width), f"{name}_ahead[turn] = {value}"]),
            ]
            rest.append(f"const {kind} {name} = {name}_ahead[turn];")
        return early, rest

    def _read_by(self, line: str) -> Node | None:
        """Return the operand that a line reads a vector of, if each tile has others of it."""
        code = self.code
        for node in code.region.accesses:
            if f" {code.names[node]}_near = *" in line:
                loops = code.region.values[node].loops
                return node if {code.inner, self.along} <= loops else None
        return None

    def _write(self, output: Output, name: str, pitch: int, width: int) -> list[str]:
        """Return the lines that write a result's tile along the loop where it is contiguous."""
        code = self.code
        kind = f"mg_vector<{storage_type(output.node.dtype)}, {width}>"
        terms = code.write_index(output)
        return self._over(width, [
            *self._across(width),
            f"{kind} near;",
            "#pragma unroll",
            f"for (int k = 0; k < {width}; k++) near.x[k] = {name}[line * {pitch} + place + k];",
            f"if (here) *({kind} *)(out{output.position} + {terms}) = near;",
        ])  # fmt: skip


def tiles_of(code: CudaCode) -> Tiles | None:
    """Return the tiles of a region without folds, None where all of it is in one order."""
    region, inner = code.region, code.inner
    if region.depth < 2 or region.folds:
        return None
    read: dict[int, list[Node]] = {}
    written: dict[int, list[Output]] = {}
    for node, access in region.accesses.items():
        if access.joined is not None:
            continue
        loop = _unit_loop(code.steps_of(node)[1], inner)
        if loop is not None:
            read.setdefault(loop, []).append(node)
    for output in region.outputs:
        loop = _unit_loop(code.write_steps(output), inner)
        if loop is not None:
            written.setdefault(loop, []).append(output)

    def size(loop: int) -> int:
        staged = (*read.get(loop, ()), *(output.node for output in written.get(loop, ())))
        return sum(node.dtype.itemsize for node in staged)

    loops = sorted(loop for loop in {*read, *written} if loop < region.depth)
    if not loops:
        return None
    along = max(loops, key=size)
    return Tiles(code, along, read.get(along, []), written.get(along, []))


def _unit_loop(steps: dict[int, str], inner: int) -> int | None:
    """Return the loop along which an operand is contiguous, if the innermost one steps over it."""
    if inner not in steps or not steps[inner]:
        return None
    return next((loop for loop, step in steps.items() if not step), None)
