"""Compute a product after a row region, such as a loss, in the kernel of that region.

A loss of a few classes, behind the product that makes them, is computed by as many blocks as the
result has tiles of rows: few. The product that follows, by which its gradient goes on, has many
blocks and next to nothing to multiply: as many terms as there are classes. Here each of its blocks
computes the rows that it needs again, and keeps them. That is one launch less, and what it would
wait for; the blocks are on multiprocessors that had nothing to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....ir.graph import Node
from ...c.text import indent
from ..kernels import RegionKernels
from ..limits import LANES, MULTIPROCESSORS
from .cuts import Configuration, Tile
from .epilogue import RegionEpilogue
from .row_epilogue import RowEpilogue
from .shapes import ProductShape
from .small_gemm import FIRST_OF_EPILOGUE, Epilogue

__all__ = ["ChainedGemm", "blocks_across", "gains_from_chaining", "tile_behind"]


def tile_behind(configuration: Configuration) -> Tile:
    """Return the part of the second product that a block computes: a column is a lane's."""
    return Tile(configuration.rows, LANES, configuration.threads)


def blocks_across(shape: ProductShape) -> int:
    """Return the blocks side by side for a second product, the last of which writes the rows."""
    return -(-shape.n // LANES) + 1


def gains_from_chaining(configuration: Configuration, shape: ProductShape) -> bool:
    """Return whether blocks that compute rows again fit a device, each on its multiprocessor."""
    down = -(-shape.m // configuration.rows)
    return down * blocks_across(shape) <= MULTIPROCESSORS


class ChainedGemm:
    """The epilogue of a first product: a region with rows, the product behind, and its epilogue.

    Parameters
    ----------
    front
        Of the region with rows; it keeps the output that is multiplied.
    kernels, node
        Of the region that reads the second product.
    shape
        The second product: its first factor are the rows.
    configuration
        How the first product is cut.

    Attributes
    ----------
    region
        The epilogue of the second product.
    room
        How many words the arguments of the region with rows have, from `FIRST_OF_EPILOGUE` on.
        Behind them come the address of the second factor, its columns, and `region`'s.
    epilogue
        All of it.
    """

    def __init__(
        self,
        front: RowEpilogue,
        kernels: RegionKernels,
        node: Node,
        shape: ProductShape,
        configuration: Configuration,
    ) -> None:
        self.front, self.shape = front, shape
        self.configuration = configuration
        self.tile = tile_behind(configuration)
        self.second = front.words
        self.room = self.second - FIRST_OF_EPILOGUE
        self.region = RegionEpilogue(kernels, node, self.tile, self.second + 2)
        self.epilogue = self._joined()

    def _joined(self) -> Epilogue:
        one, other = self.front.epilogue, self.region.epilogue
        depth = self.shape.k
        place = "column * {k} + j" if self.shape.transpose_b else "j * across + column"
        head = [line for line in other.head if line not in one.head]  # buffers, shared
        here = [
            f"const int across = (int)v[{self.second + 1}];",
            f"const int b_first = blockIdx.x * {self.tile.columns}, n = across;",
        ]
        ahead = self._each(self._renamed(other.early))
        products = [
            f"const float *mg_row = shared + at_tile / {LANES} * {self.configuration.columns + 4};",
            "float sum = 0;",
            "#pragma unroll",
            f"for (int j = 0; j < {depth}; j++) sum = fmaf(mg_row[j], mg_factor[j], sum);",
            *self._renamed(other.lines),
        ]
        return Epilogue(
            head=(*one.head, *self._renamed(head), f"float mg_factor[{depth}];"),
            scalars=(*one.scalars, *self._renamed(other.scalars)),
            early=(), middle=(), lines=(), stores=(),
            end=(
                *one.end,
                "__syncthreads();  /* rows are there */",
                "{",
                *indent([
                    *here,
                    *self._renamed(other.middle),
                    *self._each(products),
                    *self._each(self._renamed(other.stores)),
                    *self._renamed(other.end),
                ]),
                "}",
            ),
            ahead=(*one.ahead, "{", *indent([*here, *ahead]), "}"),
            tile=True,
            first=(
                "{",
                *indent([
                    *here,
                    f"const float *factor = (const float *)v[{self.second}];",
                    "const int column = min(b_first + lane, across - 1);",
                    "#pragma unroll",
                    f"for (int j = 0; j < {depth}; j++)",
                    f"    mg_factor[j] = factor[{place.format(k=depth)}];",
                ]),
                "}",
            ),
            behind=self.tile.columns,
            words=other.words,
        )

    def _each(self, lines: Sequence[str]) -> list[str]:
        """Return the lines that do something for each element of the second product's tile."""
        tile = self.tile
        if not lines:
            return []
        whole = tile.items * tile.threads == tile.rows * tile.columns
        inside = "" if whole else f" && at_tile < {tile.rows * tile.columns}"
        return [
            "#pragma unroll",
            f"for (int item = 0; item < {tile.items}; item++) {{",
            *indent([
                f"const int at_tile = thread + item * {tile.threads};",
                f"const int row = a_first + at_tile / {tile.columns};",
                f"const int column = b_first + at_tile % {tile.columns};",
                f"if (row < m && column < n{inside}) {{",
                *indent(lines),
                "}",
            ]),
            "}",
        ]

    def _renamed(self, lines: Sequence[str]) -> list[str]:
        """Return lines of the second epilogue with names that the first has not."""
        code, body = self.region.code, self.region.kernels.region.body
        own = {*code.names.values(), *code.places, "workspace"}
        own |= {f"in{i}" for i in range(len(body.inputs))}
        for i in range(len(body.outputs)):
            own |= {f"out{i}", f"made{i}"}
        words = "|".join(map(re.escape, sorted(own, key=len, reverse=True)))
        if not lines:
            return []
        text = re.sub(rf"\b(?:{words})(?=\b|_)", r"\g<0>_behind", "\0".join(lines))
        return text.split("\0")
