"""Products that are launched together with the regions that read their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.graph import Node
from ....ir.plan import Step
from ....ir.records import record
from ...region.parts import Region
from ...steps import bodies_of
from ..generated import kernels_of
from ..kernels import RegionKernels
from ..launch_config import Grid, LaunchConfig
from .chained_gemm import blocks_across
from .cuts import Configuration
from .epilogue import product_read, shares_on_tiles
from .row_epilogue import row_read
from .shapes import ProductShape, cut_of, product_shape

__all__ = ["Merge", "ends_of", "grid_of", "merge_of", "tile_read"]


@record(frozen=True, eq=False)
class Merge:
    """A product that is launched together with the region that reads it.

    Attributes
    ----------
    product, reader
        The two steps; the reader has one body.
    kernels, node
        The reader's kernels, and what of its body the product's tile stands for.
    configuration, shape
        How the product is cut, and what it is.
    behind
        A product of the reader's rows that the same kernel computes, with what reads it.
    kept
        Which of the reader's outputs that is a product of.
    """

    product: Step
    reader: Step
    kernels: RegionKernels
    node: Node
    configuration: Configuration
    shape: ProductShape
    behind: Merge | None = None
    kept: int = -1

    @property
    def rows(self) -> bool:
        """Whether the reader computes rows."""
        return bool(self.kernels.region.row)


def tile_read(region: Region, parameter: int) -> Node | None:
    """Return a region's read of a parameter that a product's tile can replace, or None."""
    return row_read(region, parameter) if region.row else product_read(region, parameter)


def merge_of(parts: Sequence[Step], architecture: int, alone: bool) -> Merge:
    """Return how a product, the region that reads it, and what follows are one launch.

    Parameters
    ----------
    parts
        A product and its reader, and perhaps a second product, of the reader's rows, with its own.
    architecture
        The device's compute capability.
    alone
        What `stands_alone` says of the plan.
    """
    product, reader, *more = parts
    (body,) = bodies_of(reader)
    out = product.outputs[0].slot
    parameter = next(i for i, value in enumerate(reader.inputs) if value.slot == out)
    kernels, shape = kernels_of(body), product_shape(product)
    assert kernels is not None
    assert shape is not None
    node = tile_read(kernels.region, parameter)
    rows = bool(kernels.region.row)
    configuration = cut_of(architecture, shape, rows, alone)
    assert node is not None
    assert configuration is not None
    if not more:
        return Merge(product, reader, kernels, node, configuration, shape)
    behind = merge_of(more, architecture, alone)
    written = [value.slot for value in reader.outputs]
    kept = written.index(behind.product.inputs[0].slot)
    return Merge(product, reader, kernels, node, configuration, shape, behind, kept)


def ends_of(
    merge: Merge, within: Merge, sizes: Mapping[str, int], lines: int, multiprocessors: int
) -> tuple[LaunchConfig, list[tuple[str, Grid, Grid]]]:
    """Return the numbers of a region on a product's tiles, and the launches that end its sums.

    Parameters
    ----------
    merge
        The product and the region.
    within
        The merge whose product's rows of tiles it is computed on: itself, or that before it.
    sizes, lines, multiprocessors
        See `launches_of`.
    """
    shares = shares_on_tiles(
        merge.kernels, within.configuration.rows, sizes, lines, merge.shape.m, multiprocessors
    )
    return shares, shares.finish() if merge.kernels.cross else []


def grid_of(merge: Merge) -> tuple[Grid, Grid]:
    """Return the blocks of a merge's launch, and the threads of each."""
    cut, shape = merge.configuration, merge.shape
    columns = -(-shape.n // cut.columns)
    if merge.behind is not None:
        columns = blocks_across(merge.behind.shape)
    return (columns, -(-shape.m // cut.rows), 1), (cut.threads, 1, 1)
