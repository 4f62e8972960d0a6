"""Launches of products together with the regions that read their results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ....codegen.cuda.generated import kernels_of
from ....codegen.cuda.kernels import RegionKernels
from ....codegen.cuda.launch_config import Grid, Launch, LaunchConfig
from ....codegen.cuda.products.chained_gemm import ChainedGemm
from ....codegen.cuda.products.epilogue import RegionEpilogue, TileEpilogue
from ....codegen.cuda.products.merged import Merge, ends_of, grid_of, merge_of
from ....codegen.cuda.products.row_epilogue import RowEpilogue
from ....codegen.cuda.products.shapes import product_of, read_first, stands_alone
from ....codegen.cuda.products.small_gemm import SmallProduct
from ....codegen.steps import bodies_of
from ....ir.graph import Node
from ....ir.plan import Role, Step
from ..launching.calls import KernelCall
from ..launching.fused_launches import FusedLaunches, kernel_call
from .products import call_of, load

__all__ = ["MergedProducts"]


class MergedProducts:
    """Makes the launches of products that have a region, or more, on their tiles.

    Parameters
    ----------
    make
        Of the plan's fused steps.
    """

    def __init__(self, make: FusedLaunches) -> None:
        self.make = make
        self._merges: dict[Node, Merge] = {}
        self._products: dict[Node, SmallProduct] = {}
        self._chained: dict[Node, ChainedGemm] = {}

    @cached_property
    def alone(self) -> bool:
        """What `stands_alone` says of the plan."""
        return stands_alone(self.make.plan)

    def merge(self, step: Step) -> Merge:
        """Return how the parts of a step are one launch; a step that ends its sums has the same."""
        first = step.parts[0].node
        if first not in self._merges:
            architecture = int(self.make.device.architecture)
            self._merges[first] = merge_of(step.parts, architecture, self.alone)
        return self._merges[first]

    def product(self, step: Step) -> SmallProduct:
        """Return the generated product, with its epilogue and what follows in the same kernel."""
        first = step.parts[0].node
        if first not in self._products:
            merge = self.merge(step)
            cut, kernels, behind = merge.configuration, merge.kernels, merge.behind
            epilogue: TileEpilogue
            if merge.rows:
                epilogue = front = RowEpilogue(kernels, merge.node, cut, merge.kept)
                whole = front.epilogue
                if behind is not None:
                    both = ChainedGemm(front, behind.kernels, behind.node, behind.shape, cut)
                    self._chained[first], whole = both, both.epilogue
            else:
                epilogue = RegionEpilogue(kernels, merge.node, cut)
                whole = epilogue.epilogue
            early = read_first(self.make.plan, merge.product)
            self._products[first] = product_of(merge.shape, cut, whole, early)
        return self._products[first]

    def call(self, step: Step) -> KernelCall:
        """Return the launch of a product with the region that reads it, and a second product."""
        make, memory = self.make, self.make.memory
        merge, product = self.merge(step), self.product(step)
        body = make.bodies(merge.reader, on_tiles=True)[0]
        (function,) = load(make.device, [product])
        operands = [memory.at(value) for value in merge.product.inputs[:2]]
        factors = memory.ranges(merge.product.inputs[:2])
        early = [factors[product.early]]
        read = [*body.read]
        more = [*body.words, *self._numbers(merge, merge)]
        pointers, across, behind = [*range(len(body.words))], 0, merge.behind
        if behind is not None:
            room = self._chained[step.parts[0].node].room
            factor, other = behind.product.inputs[1], make.bodies(behind.reader, on_tiles=True)[0]
            early += memory.ranges([factor])
            read += other.read
            more = [*more[:room], memory.at(factor), behind.shape.n]
            pointers += [room, *range(room + 2, room + 2 + len(other.words))]
            more += [*other.words, *self._numbers(behind, merge)]
            across = grid_of(merge)[0][0]
        return call_of(
            function, product, merge.shape, [*operands, 0, 0, 0, 0], more, pointers,
            (early, read), across,
        )

    def end(self, step: Step) -> KernelCall:
        """Return one of the launches that end the sums of the regions on a product's tiles."""
        merge = self.merge(step)
        self.product(step)  # it numbers the arguments that the ends have, too
        piece = step.piece
        for one in filter(None, (merge, merge.behind)):
            shares, ends = self._ends(one, merge)
            if piece < len(ends):
                suffix, grid, block = ends[piece]
                body = self.make.bodies(one.reader, on_tiles=True)[0]
                name = f"{one.kernels.key}_{suffix}"
                launch = Launch(name, grid, block, tuple(shares.numbers()))
                address = self.make.modules.end(one.kernels, shares, suffix)
                words = [*body.words, *launch.numbers]
                return kernel_call(address, launch, words, len(body.words))
            piece -= len(ends)
        raise AssertionError("a launch that ends no sums")

    def kernels(self, steps: Sequence[Step]) -> list[RegionKernels]:
        """Return the kernels of regions that products compute, but for the ends of their sums."""
        candidates = [
            kernels_of(body)
            for step in steps
            if step.role is Role.EPILOGUE
            for part in step.parts[1::2]
            for body in bodies_of(part)
        ]
        return [kernels for kernels in candidates if kernels is not None]

    def _ends(
        self, merge: Merge, within: Merge
    ) -> tuple[LaunchConfig, list[tuple[str, Grid, Grid]]]:
        make = self.make
        return ends_of(
            merge, within, make.memory.sizes, make.plan.threads, make.device.multiprocessors
        )

    def _numbers(self, merge: Merge, within: Merge) -> list[int]:
        """Return the arguments of a region on a product's tiles, behind its operands."""
        return self._ends(merge, within)[0].numbers()
