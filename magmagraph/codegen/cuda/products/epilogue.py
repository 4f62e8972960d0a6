"""A region that follows a product, computed on the product's tile: it never goes to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.graph import Node
from ...c.scalar import load, storage_type, store
from ...c.text import indent
from ...functions.scalar import computing_type
from ...region.analysis import Fold, Output, Region
from ...region.parts import indexed
from ..cuda_code import CudaCode
from ..kernels import RegionKernels
from ..launch_config import LaunchConfig
from .cuts import Configuration, Tile
from .small_gemm import FIRST_OF_EPILOGUE, Epilogue

__all__ = ["RegionEpilogue", "TileEpilogue", "product_read", "shares_on_tiles"]


def product_read(region: Region, parameter: int) -> Node | None:
    """Return a region's read of a parameter that a tile of a product can replace.

    It must read the whole parameter once, element by element, and run over its rows and columns.
    """
    reads = [n for n, access in region.accesses.items() if parameter in access.parameters]
    if len(reads) != 1 or region.row or any(fold.row for fold in region.folds) or region.joins:
        return None
    (node,) = reads
    access = region.accesses[node]
    source = region.body.inputs[parameter]
    if source.ndim != 2 or not all(view.op.layout.alias for view in access.views):
        return None
    if node.shape != source.shape or source.dtype.name != "float32":
        return None
    expected = {1: (1,), 2: (0, 1)}.get(region.depth)
    if tuple(access.axes[: region.depth]) != expected:
        return None
    if any(not output.element for output in region.outputs if not output.epilogue):
        return None
    if any(not fold.element or fold.kept != (1,) for fold in region.folds):
        return None
    return node


class TileEpilogue:
    """What epilogues that compute a region have in common.

    Parameters
    ----------
    kernels
        Of the region; those that end its sums are launched behind the product.
    configuration
        How the product is cut.
    first
        The place of its first argument.
    """

    epilogue: Epilogue

    def __init__(
        self,
        kernels: RegionKernels,
        configuration: Configuration | Tile,
        first: int = FIRST_OF_EPILOGUE,
    ) -> None:
        self.kernels, self.first = kernels, first
        self.configuration = configuration
        self.code = CudaCode(kernels.region)
        # The numbers of the kernels that end the sums come first: they share one list.
        self.code.numbers = kernels.code.numbers
        self.code.places = kernels.code.places

    def _head(self, lines: Sequence[str], folds: Sequence[Fold]) -> list[str]:
        """Return the first lines: operands, numbers, storage for reductions."""
        head = self.code.header("\n".join(lines), self.first)
        if folds:
            head.append(f"__shared__ double mg_buffer[{self.configuration.threads}];")
            if any(indexed(fold.node.op) for fold in folds):
                head.append(f"__shared__ int64_t mg_places[{self.configuration.threads}];")
        return head

    @property
    def words(self) -> int:
        """How many arguments the product has up to the last of this epilogue."""
        body = self.kernels.region.body
        return self.first + len(body.inputs) + len(body.outputs) + 1 + len(self.code.numbers)

    def lines(self, m: int) -> int:
        """Return how many lines of partial results the blocks write."""
        return -(-m // self.configuration.rows)


def shares_on_tiles(
    kernels: RegionKernels,
    rows: int,
    sizes: Mapping[str, int],
    lines: int,
    m: int,
    multiprocessors: int,
) -> LaunchConfig:
    """Return the numbers of a region on tiles, and the launches that end its sums.

    Parameters
    ----------
    kernels
        Of the region.
    rows
        Of a tile.
    sizes, lines, multiprocessors
        See `launches_of`.
    m
        Rows of the product's result.
    """
    shares = LaunchConfig(kernels, sizes, lines, multiprocessors)
    for position in range(len(kernels.region.folds)):
        shares.used_lines[position] = -(-m // rows)
    return shares


class RegionEpilogue(TileEpilogue):
    """The lines of a product's epilogue that compute a region.

    Parameters
    ----------
    kernels
        Of the region; those that end its sums are launched behind the product.
    node
        What `product_read` gave.
    configuration
        How the product is cut.
    first
        The place of its first argument.
    """

    def __init__(
        self,
        kernels: RegionKernels,
        node: Node,
        configuration: Configuration | Tile,
        first: int = FIRST_OF_EPILOGUE,
    ) -> None:
        super().__init__(kernels, configuration, first)
        code, region = self.code, kernels.region
        inside = [n for n in code.walk.passes[0] if n.op.reduction is None]
        top = code.define([n for n in inside if n is not node], frozenset())
        begin = [line for fold in region.folds for line in code.begin(fold)]
        outer_scope = dict(code.scope)
        arrays, early = self._early([n for n in inside if n is not node])
        code.scope[node] = "sum"
        lines = [*self._index(), *code.define(code.walk.passes[0])]
        for fold in region.folds:
            lines += code.take(fold, code.fold_name(fold), f"{code.fold_name(fold)}_at")
        written = [output for output in region.outputs if not output.epilogue]
        stores = self._index() if written else []
        for output in written:
            array = f"made{output.position}"
            kind = storage_type(output.node.dtype)
            arrays.append(f"{kind} {array}[{configuration.items}];")
            value = store(code.operand(output.node), output.node.dtype)
            lines.append(f"{array}[item] = {value};")
            stores.append(self._write(output, f"{array}[item]"))
        code.scope = outer_scope
        end = [line for fold in region.folds for line in self._partial(fold)]
        head = self._head([*top, *begin, *early, *lines, *stores, *end], region.folds)
        self.epilogue = Epilogue(
            (*head, *arrays), tuple(top), tuple(early), tuple(begin), tuple(lines),
            tuple(stores), tuple(end), words=self.words,
        )

    def _index(self) -> list[str]:
        """Return the line that computes an element's position in the region's loops."""
        if self.kernels.region.depth == 1:
            return ["const idx i0 = row * n + column;"]
        return ["const idx i0 = row, i1 = column;"]

    def _early(self, nodes: list[Node]) -> tuple[list[str], list[str]]:
        """Return arrays by items for what elements read, and the lines that read it.

        Memory answers while the product is computed.
        """
        code, items = self.code, self.configuration.items
        arrays: list[str] = []
        lines: list[str] = []
        for node in nodes:
            if node not in code.region.accesses or node in code.scope:
                continue
            array = f"{code.names[node]}_early"
            arrays.append(f"{computing_type(node.dtype)} {array}[{items}];")
            lines.append(f"{array}[item] = {load(code.read(node), node.dtype)};")
            code.scope[node] = f"{array}[item]"
        return arrays, [*self._index(), *lines] if lines else []

    def _write(self, output: Output, value: str) -> str:
        """Return the line that writes an element of a result as it is stored."""
        line = self.code.write(output)
        return f"{line.partition(' = ')[0]} = {value};"

    def _partial(self, fold: Fold) -> list[str]:
        """Return the lines that add up a column of a block's part of the tile, and write it."""
        code, c = self.code, self.configuration
        name, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        parts = c.threads // c.columns
        put = [f"(({kind} *)mg_buffer)[thread] = {name};"]
        get = [f"{name} = ((const {kind} *)mg_buffer)[column];"]
        other = f"column + part * {c.columns}"
        inside = [f"const {kind} other = ((const {kind} *)mg_buffer)[{other}];"]
        if indexed(fold.node.op):
            put.append(f"mg_places[thread] = {name}_at;")
            get.append(f"{name}_at = mg_places[column];")
            inside.append(f"const int64_t other_at = mg_places[{other}];")
        inside += code.join(fold, name, f"{name}_at", "other", "other_at")
        store_lines = code.store_partial(fold, "blockIdx.y", "i1", "i1 < n")
        return [
            "__syncthreads();",
            *put,
            "__syncthreads();",
            f"if (thread < {c.columns}) {{",
            *indent([
                "const int column = thread;",
                *get,
                f"for (int part = 1; part < {parts}; part++) {{",
                *indent(inside),
                "}",
                "const idx i1 = b_first + column;",
                *store_lines,
            ]),
            "}",
        ]
