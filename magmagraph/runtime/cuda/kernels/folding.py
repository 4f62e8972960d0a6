"""CUDA C that folds across threads: of a warp, of a block, and lines of what blocks folded."""

from __future__ import annotations

from collections.abc import Sequence

from ....region.analysis import Fold
from ....region.parts import indexed
from ...numpy.codegen.scalar import identity_expression
from ...numpy.codegen.text import indent
from ...numpy.functions.scalar import computing_type
from .binding import LANES
from .vectors import VectorCode

__all__ = ["UNROLLED", "FoldingCode"]

# Of what a loop reads from shared memory, so much is under way before the first is added up.
UNROLLED = "#pragma unroll 8"


class FoldingCode(VectorCode):
    """Lines of CUDA C that join what several threads folded, in a fixed order."""

    half = "16"  # how far apart the threads of a row are at first that join what they folded
    fewer = False  # whether a launch may have rows of fewer threads, as many as a block is wide

    @property
    def cross(self) -> list[Fold]:
        """The folds across rows."""
        return [fold for fold in self.region.folds if not fold.row]

    def across_warp(
        self, fold: Fold, target: str = "", at: str = "", least: int = 1
    ) -> list[str]:
        """Return the lines after which all lanes of a warp hold what they folded together.

        With `least`, all lanes that are a multiple of that apart.
        """
        name = target or self.fold_name(fold)
        place = at or f"{self.fold_name(fold)}_at"
        kind = computing_type(self.accumulator(fold))
        inside = [f"const {kind} other = mg_shuffle<{kind}>({name}, mask);"]
        if indexed(fold.node.op):
            inside.append(f"const int64_t other_at = mg_shuffle<int64_t>({place}, mask);")
        inside += self.join(fold, name, place, "other", "other_at")
        if self.fewer:
            inside = ["if (mask < (int)blockDim.x) {", *indent(inside), "}"]
        return [
            "#pragma unroll",
            f"for (int mask = {self.half}; mask >= {least}; mask >>= 1) {{",
            *indent(inside),
            "}",
        ]

    def across_parts(
        self,
        fold: Fold,
        slot: str,
        count: str,
        first: str,
        step: int | str,
        writes: str = "",
        name: str = "",
        reads: str = "",
    ) -> list[str]:
        """Return the lines after which threads hold what those of several parts folded.

        With `reads`, those for which that is true: shared memory has less to do.
        """
        name = name or self.fold_name(fold)
        kind = computing_type(self.accumulator(fold))
        at = indexed(fold.node.op)
        put = [f"(({kind} *)mg_buffer)[{slot}] = {name};"]
        # Counts are powers of two: from nothing on, no turn of a loop taken apart is left over.
        get = [f"{name} = {identity_expression(fold.node, self.accumulator(fold))};"]
        if at:
            get = [f"{name} = ((const {kind} *)mg_buffer)[{first}];"]
        inside = [f"const {kind} other = ((const {kind} *)mg_buffer)[{first} + part * {step}];"]
        if at:
            put.append(f"mg_places[{slot}] = {name}_at;")
            get.append(f"{name}_at = mg_places[{first}];")
            inside.append(f"const int64_t other_at = mg_places[{first} + part * {step}];")
        inside += self.join(fold, name, f"{name}_at", "other", "other_at")
        if writes:
            put = [f"if ({writes}) {{", *indent(put), "}"]
        folded = [
            *get,
            *([] if at else [UNROLLED]),
            f"for (int part = {int(at)}; part < {count}; part++) {{",
            *indent(inside),
            "}",
        ]
        if reads:
            folded = [f"if ({reads}) {{", *indent(folded), "}"]
        return ["__syncthreads();", *put, "__syncthreads();", *folded]

    def across_row(self, folds: Sequence[tuple[Fold, int]], first: bool) -> list[str]:
        """Return the lines after which the threads of a row hold what they folded together.

        Parameters
        ----------
        folds
            Those of one pass, each with a place of its own for what the warps have.
        first
            Whether all threads have to be done with reading what was there before.
        """
        lines: list[str] = []
        put: list[str] = []
        get: list[str] = []
        turns: list[str] = []
        for fold, place in folds:
            lines += self.across_warp(fold)
            name, kind = self.fold_name(fold), computing_type(self.accumulator(fold))
            slot = f"(({kind} *)(mg_buffer + {place * LANES}))"
            put.append(f"{slot}[threadIdx.x >> 5] = {name};")
            get.append(f"{name} = {slot}[threadIdx.x & ((blockDim.x >> 5) - 1)];")
            turns.append(f"const {kind} {name}_other = mg_shuffle<{kind}>({name}, mask);")
            if indexed(fold.node.op):
                slot = f"(mg_places + {place * LANES})"
                put.append(f"{slot}[threadIdx.x >> 5] = {name}_at;")
                get.append(f"{name}_at = {slot}[threadIdx.x & ((blockDim.x >> 5) - 1)];")
                turns.append(
                    f"const int64_t {name}_other_at = mg_shuffle<int64_t>({name}_at, mask);"
                )
            turns += self.join(fold, name, f"{name}_at", f"{name}_other", f"{name}_other_at")
        if self.half != FoldingCode.half:
            return lines  # a row has less than a warp
        across = [
            *(["__syncthreads();"] if first else []),
            "if ((threadIdx.x & 31) == 0) {",
            *indent(put),
            "}",
            "__syncthreads();",
            *get,
            "for (int mask = blockDim.x >> 6; mask; mask >>= 1) {",
            *indent(turns),
            "}",
        ]
        return [*lines, "if (blockDim.x > 32) {", *indent(across), "}"]

    def across_block(self, fold: Fold, thread: str, warps: str) -> list[str]:
        """Return the lines after which all threads of a block hold what they folded together."""
        lane, warp = f"({thread} & 31)", f"({thread} >> 5)"
        return [
            *self.across_warp(fold),
            *self.across_parts(fold, warp, warps, "0", 1, writes=f"{lane} == 0"),
        ]

    def across_worker(self, fold: Fold) -> list[str]:
        """Return the lines after which a worker's threads hold what they folded together."""
        warp = "((threadIdx.y * blockDim.x + threadIdx.x) >> 5)"
        lane = "((threadIdx.y * blockDim.x + threadIdx.x) & 31)"
        across = self.across_parts(
            fold, warp, "(blockDim.x * blockDim.y >> 5)", "0", 1, writes=f"{lane} == 0"
        )
        return [
            *self.across_warp(fold),
            "if (blockDim.x * blockDim.y > 32) {",
            *indent(across),
            "}",
        ]

    def line(self, fold: Fold, piece: int = 0) -> str:
        """Return the address of the lines of a fold's partial results, or of their positions."""
        position = self.position_of(fold)
        kind = "int64_t" if piece else computing_type(self.accumulator(fold))
        offset = self.number(f"{self.fold_name(fold)}_place{piece}", "fold_place", position, piece)
        return f"(({kind} *)(workspace + {offset}))"

    def line_length(self, fold: Fold) -> str:
        """Return how many results one line has."""
        position = self.position_of(fold)
        return self.number(f"{self.fold_name(fold)}_length", "line_length", position)

    def store_partial(
        self,
        fold: Fold,
        line: str,
        place: str,
        condition: str,
        name: str = "",
    ) -> list[str]:
        """Return the lines that write an accumulator into a line of partial results."""
        name = name or self.fold_name(fold)
        length = self.line_length(fold) if fold.kept else "1"
        at = f"[(idx)({line}) * {length} + {place}]"
        lines = [f"{self.line(fold)}{at} = {name};"]
        if indexed(fold.node.op):
            lines.append(f"{self.line(fold, 1)}{at} = {name}_at;")
        return [f"if ({condition}) {{", *indent(lines), "}"]
