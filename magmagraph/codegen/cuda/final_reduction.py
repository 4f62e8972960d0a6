"""CUDA C for the end of a region: lines of partial results are added up, and what follows them.

Either the block of the main kernel that is done last does it, or launches of their own do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.fallback import Refused
from ..c.text import indent
from ..functions.scalar import computing_type
from ..region.analysis import Fold, Output
from ..region.parts import indexed, late_groups
from .cuda_code import CudaCode
from .limits import LANES, THREADS

__all__ = ["FinalReduction"]

LINES_UNDER_WAY = 16  # partial results that a thread asks for before it adds the first
_FIRST = "threadIdx.y == 0"  # the threads that go on with what a block folded


class FinalReduction:
    """The kernels, or the part of the main kernel, that end a region's sums across rows.

    Parameters
    ----------
    code
        Of the region.
    """

    def __init__(self, code: CudaCode) -> None:
        self.code = code

    def can_be_joined(self) -> bool:
        """Return whether one kernel can add up the lines and use the sums."""
        region = self.code.region
        groups = late_groups(region)
        loops = {frozenset(region.values[g[0].node].shape_loops) for g in groups}
        kept = {frozenset(fold.kept) for fold in self.code.cross}
        return len(kept) == 1 and loops == kept

    def tail(self) -> list[str]:
        """Return the lines with which the last block finishes the sums, where requested."""
        code, region = self.code, self.code.region
        counter = code.number("counter_place", "counter_address")
        lines = [
            "const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x "
            "+ threadIdx.x;",
            "const int threads = blockDim.x * blockDim.y * blockDim.z;",
            "__shared__ bool mg_last;",
            "__threadfence();",
            "__syncthreads();",
            "if (thread == 0) {",
            "    const unsigned blocks = gridDim.x * gridDim.y;",
            f"    mg_last = atomicAdd((unsigned *){counter}, 1u) == blocks - 1;",
            f"    if (mg_last) *(unsigned *){counter} = 0;",
            "}",
            "__syncthreads();",
            "if (!mg_last) return;",
            "__threadfence();",
        ]
        for fold in code.cross:
            position = code.position_of(fold)
            name = code.fold_name(fold)
            kind = computing_type(code.accumulator(fold))
            count = code.number(f"lines{position}", "line_count", position)
            length = code.line_length(fold) if fold.kept else "1"
            inside = [f"const {kind} other = {code.line(fold)}[line * {length} + p];"]
            if indexed(fold.node.op):
                inside.append(
                    f"const int64_t other_at = {code.line(fold, 1)}[line * {length} + p];"
                )
            inside += code.join(fold, name, f"{name}_at", "other", "other_at")
            if not fold.kept:
                lines += [
                    "{",
                    *indent([
                        "const idx p = 0;",
                        *code.begin(fold),
                        "#pragma unroll 8",
                        f"for (idx line = thread; line < {count}; line += threads) {{",
                        *indent(inside),
                        "}",
                        *code.across_warp(fold),
                        *code.across_parts(
                            fold, "(thread >> 5)", "(threads >> 5)", "0", 1,
                            writes="(thread & 31) == 0",
                        ),
                        *code.store_partial(fold, "0", "0", "thread == 0"),
                    ]),
                    "}",
                ]
                continue
            each = [
                *code.begin(fold),
                f"for (idx line = thread & 31; line < {count}; line += 32) {{",
                *indent(inside),
                "}",
                *code.across_warp(fold),
                *code.store_partial(fold, "0", "p", "(thread & 31) == 0"),
            ]
            lines += [
                f"for (idx p = thread >> 5; p < {length}; p += threads >> 5) {{",
                *indent(each),
                "}",
            ]
        lines.append("__syncthreads();")
        for outputs in late_groups(region):
            late, count = self._late_lines(outputs)
            lines += [
                f"for (idx p = thread; p < {count}; p += threads) {{", *indent(late), "}"
            ]
        tail = code.number("tail", "ends_itself")
        return [f"if ({tail}) {{", *indent(lines), "}"]

    def joined(self) -> list[str]:
        """Return one kernel that adds up the lines of all folds and computes the rest."""
        code, region = self.code, self.code.region
        code.scope = {}
        lines: list[str] = []
        for fold in code.cross:
            lines += [line for line in self.join(fold, store=False) if line not in lines[:1]]
            # Threads beside the first hold sums as well, or nothing: only the first writes.
            code.scope[fold.node] = code.result(fold, code.fold_name(fold))
        outputs = [output for group in late_groups(region) for output in group]
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in code.cross]
        )
        fold = code.cross[0]
        loops = sorted(fold.kept)
        late = ["idx rest = p;", *code.decode("rest", loops), *code.define(nodes)]
        late += [code.write(output) for output in outputs]
        once = "threadIdx.x + threadIdx.y == 0"
        if fold.kept:
            once = f"p < {code.line_length(fold)} && threadIdx.y == 0"
        return [*lines, f"if ({once}) {{", *indent(late), "}"]

    def join(self, fold: Fold, store: bool = True) -> list[str]:
        """Return the kernel that adds up the lines of one fold."""
        code = self.code
        if store:
            code.scope = {}
        position = code.position_of(fold)
        name = code.fold_name(fold)
        lines_ = code.number(f"lines{position}", "line_count", position)
        length = code.line_length(fold) if fold.kept else "1"
        kind = computing_type(code.accumulator(fold))
        inside = [f"const {kind} other = {code.line(fold)}[line * {length} + p];"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = {code.line(fold, 1)}[line * {length} + p];")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        begin = code.begin(fold)
        if not fold.kept:
            return [
                "const idx p = 0;",
                *begin,
                "#pragma unroll 8",
                f"for (idx line = threadIdx.y * 32 + threadIdx.x; line < {lines_}; "
                "line += 32 * blockDim.y) {",
                *indent(inside),
                "}",
                *code.across_warp(fold),
                *code.across_parts(
                    fold, "threadIdx.y", "blockDim.y", "0", 1, writes="threadIdx.x == 0",
                    reads=_FIRST,
                ),
                *(
                    code.store_partial(fold, "0", "0", "threadIdx.x + threadIdx.y == 0")
                    if store
                    else []
                ),
            ]
        return [
            f"const idx p = (idx)blockIdx.x * {LANES} + threadIdx.x;",
            *begin,
            f"if (p < {length}) {{",
            *indent([
                f"#pragma unroll {LINES_UNDER_WAY}",
                f"for (idx line = threadIdx.y; line < {lines_}; line += blockDim.y) {{",
                *indent(inside),
                "}",
            ]),
            "}",
            *code.across_parts(
                fold, "threadIdx.y * 32 + threadIdx.x", "blockDim.y", "threadIdx.x", LANES,
                reads=_FIRST,
            ),
            *(
                code.store_partial(fold, "0", "p", f"p < {length} && threadIdx.y == 0")
                if store
                else []
            ),
        ]

    def late(self, outputs: Sequence[Output]) -> list[str]:
        """Return the kernel that computes outputs of the end."""
        lines, count = self._late_lines(outputs)
        return [
            f"for (idx p = (idx)blockIdx.x * {THREADS} + threadIdx.x; p < {count};",
            f"     p += (idx)gridDim.x * {THREADS}) {{",
            *indent(lines),
            "}",
        ]

    def _late_lines(self, outputs: Sequence[Output]) -> tuple[list[str], str]:
        """Return what computes outputs of the end for one ``p``, and how many there are."""
        code, region = self.code, self.code.region
        code.scope = {}
        loops = sorted(region.values[outputs[0].node].shape_loops)
        folds = [fold for fold in region.folds if not fold.row]
        lines = []
        for fold in folds:
            at = f"[{code.line_position(fold)}]"
            name = code.fold_name(fold)
            if set(fold.kept) <= set(loops):
                kind = computing_type(code.accumulator(fold))
                lines.append(f"const {kind} {name} = {code.line(fold)}{at};")
                if indexed(fold.node.op):
                    lines.append(f"const int64_t {name}_at = {code.line(fold, 1)}{at};")
                code.scope[fold.node] = code.result(fold, name)
        nodes = code.walk.reach(
            [code.walk.source(o.node) for o in outputs], [fold.node for fold in folds]
        )
        missing = [n for n in nodes if n in {f.node for f in folds} and n not in code.scope]
        if missing:
            raise Refused("an output at the end runs along fewer axes than what it reads")
        lines += code.define(nodes)
        lines += [code.write(output) for output in outputs]
        count = code.number(f"late_{'_'.join(map(str, loops)) or 'one'}", "product", *loops)
        return ["idx rest = p;", *code.decode("rest", loops), *lines], count
