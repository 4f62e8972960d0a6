"""A region with rows that follows a product whose columns are few: a loss of some classes.

Each row of the product's tile is a warp's, or that of half or a quarter of one where rows are so
short, an element a lane. So a pass over a row is a few instructions and a fold is shuffles; what
passes compute stays in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.graph import Node
from ...c.scalar import load, store
from ...c.text import indent
from ...functions.scalar import computing_type
from ...region.analysis import Fold, Region
from ...region.parts import indexed
from ..cuda_code import HALF_WARP
from ..kernels import RegionKernels
from ..limits import LANES
from .cuts import Configuration
from .epilogue import TileEpilogue
from .small_gemm import Epilogue

__all__ = ["RowEpilogue", "row_read"]


def row_read(region: Region, parameter: int) -> Node | None:
    """Return a row region's read of a parameter that a product's tile can replace.

    It must read the whole parameter once, element by element, and the parameter's rows must be the
    region's, of no more elements than a warp has lanes.
    """
    reads = [n for n, access in region.accesses.items() if parameter in access.parameters]
    if len(reads) != 1 or region.depth != 2 or len(region.row) != 1 or region.joins:
        return None
    (node,), (row,) = reads, region.row
    access = region.accesses[node]
    source = region.body.inputs[parameter]
    if source.ndim != 2 or not all(view.op.layout.alias for view in access.views):
        return None
    if node.shape != source.shape or source.dtype.name != "float32":
        return None
    length = source.shape[1]
    if not isinstance(length, int) or length > LANES:
        return None
    if access.axes[row] != 1 or access.axes[1 - row] != 0:
        return None
    if any(not fold.row and fold.kept not in ((), (row,)) for fold in region.folds):
        return None
    return node


class RowEpilogue(TileEpilogue):
    """The lines of a product's epilogue that compute a region with rows.

    Parameters
    ----------
    kernels
        Of the region; those that end its sums are launched behind the product.
    node
        What `row_read` gave.
    configuration
        How the product is cut: a tile has whole rows.
    kept
        Which output stands in ``shared``, where the sums were, when `Epilogue.end` is done; then
        several blocks compute the same rows, and only the last of them writes. -1 for none.
    """

    def __init__(
        self, kernels: RegionKernels, node: Node, configuration: Configuration, kept: int = -1
    ) -> None:
        super().__init__(kernels, configuration)
        self.kept = kept
        self.writes = "" if kept < 0 else " && blockIdx.x == gridDim.x - 1"
        code, region = self.code, kernels.region
        (self.row,) = region.row
        self.warps = configuration.threads // LANES
        self.lanes = next((w for w in (8, 16) if configuration.columns <= w), LANES)
        self.slots = configuration.threads // self.lanes  # rows at a time
        self.turns = -(-configuration.rows // self.slots)
        code.half = str(self.lanes // 2)
        top = code.top()
        begin = [line for fold in code.cross for line in code.begin(fold)]
        outer_scope = dict(code.scope)
        declared, ahead = self._ahead(node)
        code.scope[node] = "sum"
        work = [f"const float sum = shared[line * {configuration.columns + 4} + column];"]
        for index in range(max(region.passes, len(code.walk.stages))):
            if index < len(code.walk.stages):
                work += self._stage(index)
            if index < region.passes:
                work += self._pass(index)
        code.scope, code.half = outer_scope, HALF_WARP
        end = [
            *begin,
            *self._each_row(work),
            *(line for fold in code.cross for line in self._partial(fold)),
        ]
        head = self._head([*top, *begin, *ahead, *work, *end], code.cross)
        self.epilogue = Epilogue(
            (*head, *declared), tuple(top), (), (), (), (), tuple(end), tuple(ahead), tile=True,
            words=self.words,
        )

    def _each_row(self, lines: Sequence[str], reading: bool = False) -> list[str]:
        """Return the loop over a thread's rows of the tile; lanes beyond a row repeat its last.

        Lanes whose row is outside of the result, beside one that is not, have a high number.

        Parameters
        ----------
        lines
            For one row, with the number `turn` among the warp's.
        reading
            Whether rows beyond the result repeat its last, rather than being left out.
        """
        c = self.configuration
        place = f"thread % {self.lanes}"
        body = [
            f"const int line = min(slot, {c.rows - 1});",
            f"const int lane = {place if reading else f'inside ? {place} : {LANES}'};",
            "const int row = min(a_first + line, m - 1);",
            "const int column = min(lane, n - 1);",
            f"const idx i{self.row} = column, i{1 - self.row} = row;",
            *lines,
        ]
        guarded = [
            f"const bool inside = slot < {c.rows} && a_first + slot < m;",
            "if (__any_sync(0xffffffffu, inside)) {",
            *indent(body),
            "}",
        ]
        return [
            "#pragma unroll",
            f"for (int turn = 0; turn < {self.turns}; turn++) {{",
            *indent([
                f"const int slot = thread / {self.lanes} + turn * {self.slots};",
                *(body if reading else guarded),
            ]),
            "}",
        ]

    def _ahead(self, product: Node) -> tuple[list[str], list[str]]:
        """Return arrays by turns for what rows read, and the lines that read it early."""
        code = self.code
        arrays: list[str] = []
        lines: list[str] = []
        nodes = [n for nodes in (*code.walk.stages, *code.walk.passes) for n in nodes]
        for node in dict.fromkeys(nodes):
            value = code.region.values[node]
            read = node in code.region.accesses and not value.epilogue
            if not read or node is product or node in code.scope:
                continue
            array = f"{code.names[node]}_early"
            arrays.append(f"{computing_type(node.dtype)} {array}[{self.turns}];")
            lines.append(f"{array}[turn] = {load(code.read(node), node.dtype)};")
            code.scope[node] = f"{array}[turn]"
        return arrays, self._each_row(lines, reading=True) if lines else []

    def _stage(self, index: int) -> list[str]:
        """Return the statements of each lane for values of one number per row, before a pass."""
        code, walk = self.code, self.code.walk
        lines = code.define(walk.stages[index])
        for fold in walk.folds(index, element=False):
            name = code.fold_name(fold)
            lines += code.take(fold, name, f"{name}_at", condition="lane == 0")
        writes = [code.write(output) for output in walk.outputs(index, element=False)]
        guarded = [f"if (lane == 0{self.writes}) {{", *indent(writes), "}"]
        return [*lines, *guarded] if writes else lines

    def _pass(self, index: int) -> list[str]:
        """Return a pass over the elements of a row, one a lane."""
        code, walk = self.code, self.code.walk
        lines = code.define(walk.passes[index])
        for fold in walk.folds(index, element=True):
            name = code.fold_name(fold)
            lines += code.begin(fold) if fold.row else []
            lines += code.take(fold, name, f"{name}_at", condition="lane < n")
            if fold.row:
                lines += code.across_warp(fold)
                code.scope[fold.node] = code.result(fold, name)
        outputs = walk.outputs(index, element=True)
        for output in outputs:
            if output.position == self.kept:
                place = f"shared[line * {self.configuration.columns + 4} + column]"
                value = store(code.operand(output.node), output.node.dtype)
                # Lanes beyond the row have read the sum of its last element there.
                lines += ["__syncwarp();", f"if (lane < n) {place} = {value};"]
        writes = [code.write(output) for output in outputs]
        guarded = [f"if (lane < n{self.writes}) {{", *indent(writes), "}"]
        return [*lines, *guarded] if writes else lines

    def _partial(self, fold: Fold) -> list[str]:
        """Return the lines that combine the warps' reductions across rows, and store them."""
        code = self.code
        name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        place = f"lane + part * {LANES}"
        put = [f"(({kind} *)mg_buffer)[thread] = {name};"]
        inside = [f"const {kind} other = ((const {kind} *)mg_buffer)[{place}];"]
        if indexed(fold.node.op):
            put.append(f"mg_places[thread] = {name}_at;")
            inside.append(f"const int64_t other_at = mg_places[{place}];")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        index, condition = ("lane", "lane < n") if fold.kept else ("0", "lane == 0")
        lines = [
            *code.across_warp(fold, least=self.lanes if fold.kept else 1),
            "__syncthreads();",
            *put,
            "__syncthreads();",
            "if (warp == 0) {",
            *indent([
                f"for (int part = 1; part < {self.warps}; part++) {{",
                *indent(inside),
                "}",
                *code.store_partial(fold, "blockIdx.y", index, condition),
            ]),
            "}",
        ]
        if self.kept < 0:
            return lines
        return ["if (blockIdx.x == gridDim.x - 1) {", *indent(lines), "}"]
