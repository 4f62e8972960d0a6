"""CUDA C for what is reduced across the innermost loop.

Lanes of a warp take neighbouring columns; the parts of a block, and several blocks, share the rows.
"""

from __future__ import annotations

from ...region import Fold
from ...region_parts import indexed
from ...region_walk import late_groups
from ..numpy.codegen_text import indent
from ..numpy.scalar import computing_type
from .binding import LANES
from .folding import FoldingCode

__all__ = ["Columns"]


class Columns:
    """The kernels of a region whose sums keep the innermost loop.

    Parameters
    ----------
    code
        Of the region.
    kept, gone
        The loops that the sums keep, and those that they run over.
    """

    def __init__(self, code: FoldingCode, kept: list[int], gone: list[int]) -> None:
        self.code, self.kept, self.gone = code, kept, gone

    def can_be_whole(self) -> bool:
        """Return whether what is left of the rows is used column by column."""
        region = self.code.region
        groups = late_groups(region)
        loops = {frozenset(region.values[g[0].node].shape_loops) for g in groups}
        return loops == {frozenset(self.kept)} and all(
            list(fold.kept) == self.kept for fold in self.code.cross
        )

    def main(self, width: int, whole: bool = False) -> list[str]:
        """Return the kernel for `width` neighbours a thread.

        With `whole`, a block has columns from end to end and computes what depends on their sums;
        otherwise it writes lines of partial results.
        """
        code, region = self.code, self.code.region
        nodes = code.walk.passes[0] if code.walk.passes else []
        folds = [fold for fold in region.folds if fold.element]
        outputs = [output for output in region.outputs if not output.epilogue]
        top = code.top()
        kept, gone = self.kept, self.gone
        begin: list[str] = []
        update: dict[Fold, tuple[str, str]] = {}
        for fold in folds:
            name = code.fold_name(fold)
            if fold.kept:
                begin += code.begin(fold, str(width))
                update[fold] = (f"{name}[k]", f"{name}_at[k]")
            else:
                begin += code.begin(fold)
                update[fold] = (name, f"{name}_at")
        n = code.extent(code.inner)
        strips = code.number(f"strips{width}", "strips_of", width)
        rows = code.number("rows", "product", *gone)
        work = code.elements(nodes, folds, outputs, width, update)
        lines = [
            *top,
            "idx column = blockIdx.x;",
            f"const idx i{code.inner} = (column % {strips} * {LANES} + threadIdx.x) * {width};",
            *([f"column /= {strips};"] if len(kept) > 1 else []),
            *code.decode("column", kept[:-1]),
            f"const bool active = i{code.inner} < {n};",
            *begin,
            f"const idx low = (idx)((int64_t){rows} * blockIdx.y / gridDim.y);",
            f"const idx high = (idx)((int64_t){rows} * (blockIdx.y + 1) / gridDim.y);",
            "if (active) {",
            *indent([
                "for (idx row = low + threadIdx.y; row < high; row += blockDim.y) {",
                *indent(["idx rest = row;", *code.decode("rest", gone), *work]),
                "}",
            ]),
            "}",
        ]
        if whole:
            return [*lines, *self._end_columns(width)]
        for fold in folds:
            lines += self._end_column(fold, width)
        return lines

    def _end_columns(self, width: int) -> list[str]:
        """Return the lines that add up folds over a block and compute what depends on them."""
        code = self.code
        inside: list[str] = []
        folds = [fold for fold in code.region.folds if fold.element]
        for fold in folds:
            name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
            inside.append(f"{kind} {name}_k = {name}[k];")
            if indexed(fold.node.op):
                inside.append(f"int64_t {name}_k_at = {name}_at[k];")
            inside += code.across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES,
                name=f"{name}_k",
            )
            code.scope[fold.node] = code.result(fold, f"{name}_k")
        code.vector_loop = code.inner
        outputs = [output for group in late_groups(code.region) for output in group]
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in folds]
        )
        late = code.define(nodes)
        late += [code.write(output) for output in outputs]
        code.vector_loop = -1
        inside += ["if (active && threadIdx.y == 0) {", *indent(late), "}"]
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inside), "}"]

    def _end_column(self, fold: Fold, width: int) -> list[str]:
        """Return the lines that add up a fold over a block and write its partial result."""
        code = self.code
        name = code.fold_name(fold)
        kind = computing_type(code.accumulator(fold))
        slot = "threadIdx.y * 32 + threadIdx.x"
        if not fold.kept:
            return [
                *code.across_warp(fold),
                *code.across_parts(
                    fold, "threadIdx.y", "blockDim.y", "0", 1, writes="threadIdx.x == 0"
                ),
                *code.store_partial(
                    fold,
                    "blockIdx.y * gridDim.x + blockIdx.x",
                    "0",
                    "threadIdx.x + threadIdx.y == 0",
                ),
            ]
        at = indexed(fold.node.op)
        code.vector_loop = code.inner
        place = code.line_position(fold)
        code.vector_loop = -1
        inner = [f"{kind} {name}_k = {name}[k];"]
        if at:
            inner.append(f"int64_t {name}_k_at = {name}_at[k];")
        inner += code.across_parts(
            fold, slot, "blockDim.y", "threadIdx.x", LANES, name=f"{name}_k"
        )
        inner += code.store_partial(
            fold, "blockIdx.y", f"({place})", "active && threadIdx.y == 0", name=f"{name}_k"
        )
        return ["#pragma unroll", f"for (int k = 0; k < {width}; k++) {{", *indent(inner), "}"]
