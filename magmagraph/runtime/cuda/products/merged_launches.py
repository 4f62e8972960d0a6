"""Launches of products together with the regions that read their results."""

from __future__ import annotations

from dataclasses import replace

from ....codegen.cuda.launch_config import LaunchConfig
from ....ir.plan import Step
from ..kernels.bodies import Body
from ..launching.calls import KernelCall
from ..launching.fused_launches import FusedLaunches, kernel_call
from ..launching.launch_units import Unit, together
from ..launching.streams import Touched
from .chained_gemm import ChainedGemm, blocks_across
from .epilogue import RegionEpilogue, TileEpilogue
from .merge import Merge, read_first
from .products import call_of, load, product_of
from .row_epilogue import RowEpilogue
from .small_gemm import SmallProduct

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
        self._products: dict[int, SmallProduct] = {}
        self._epilogues: dict[int, TileEpilogue] = {}
        self._behind: dict[int, ChainedGemm] = {}
        self._bodies: dict[int, Body] = {}

    def product(self, merge: Merge) -> SmallProduct:
        """Return the generated product, with its epilogue and what follows in the same kernel."""
        if id(merge) not in self._products:
            cut, kernels = merge.configuration, merge.kernels
            epilogue: TileEpilogue
            if kernels.region.row:
                epilogue = front = RowEpilogue(kernels, merge.node, cut, merge.kept)
                whole = front.epilogue
                if merge.behind is not None:
                    other = merge.behind
                    both = ChainedGemm(front, other.kernels, other.node, other.shape, cut)
                    self._behind[id(merge)], whole = both, both.epilogue
                    self._epilogues[id(other)] = both.region
            else:
                epilogue = RegionEpilogue(kernels, merge.node, cut)
                whole = epilogue.epilogue
            early = read_first(self.make.plan, merge.product)
            self._products[id(merge)] = product_of(merge.shape, cut, whole, early)
            self._epilogues[id(merge)] = epilogue
        return self._products[id(merge)]

    def units(self, step: Step, merge: Merge) -> list[Unit]:
        """Return what launches a fused step together with the product that it reads.

        The product comes first, unless an earlier one has it in its kernel.

        Raises
        ------
        Refused
            The other bodies of the step have no kernels.
        """
        make = self.make
        others = make.units(step, without=merge.body)
        body = self.body(merge)
        made = []
        if not merge.inside:
            call, touched = self._call(merge, body)
            made.append(Unit(call, touched))
        ends = [
            kernel_call(address, launch, [*body.words, *launch.numbers], len(body.words))
            for address, launch in make.modules.ends(merge.kernels, self._shares(merge))
        ]
        if ends:
            # What runs behind the product needs not wait for the end of its sums.
            read = (*body.read, *body.early, *body.workspace)
            made.append(Unit(together(ends), Touched(read, (*body.late, *body.workspace))))
        return [*made, *others]

    def body(self, merge: Merge) -> Body:
        """Return the operands of the body that is computed on a product's tiles.

        Its partial results have memory of their own where two merges share a kernel.
        """
        if id(merge) not in self._bodies:
            make = self.make
            body = make.bodies(merge.reader)[merge.body]
            if merge.paired and body.workspace:
                ((start, end),) = body.workspace
                place = make.memory.more(end - start)
                words = [*body.words[:-1], place]
                body = replace(body, words=words, workspace=((place, place + end - start),))
            self._bodies[id(merge)] = body
        return self._bodies[id(merge)]

    def _shares(self, merge: Merge) -> LaunchConfig:
        """Return the arguments of a region on a product's tiles."""
        make = self.make
        return self._epilogues[id(merge)].shares(
            make.memory.sizes, make.plan.threads, merge.shape.m, make.device.multiprocessors
        )

    def _call(self, merge: Merge, body: Body) -> tuple[KernelCall, Touched]:
        """Return the launch of a product with the body that reads it, and a second product."""
        make, memory = self.make, self.make.memory
        product = self.product(merge)
        (function,) = load(make.device, [product])
        operands = [memory.at(value) for value in merge.product.inputs[:2]]
        factors = memory.ranges(merge.product.inputs[:2])
        early = [factors[product.early]]
        read, written = [*body.read], [*body.early, *body.workspace]
        more = [*body.words, *self._shares(merge).numbers()]
        pointers, across = [*range(len(body.words))], 0
        if merge.behind is not None:
            room, behind = self._behind[id(merge)].room, merge.behind
            factor, other = behind.product.inputs[1], self.body(behind)
            early += memory.ranges([factor])
            read += other.read
            written += [*other.early, *other.workspace]
            more = [*more[:room], memory.at(factor), behind.shape.n]
            pointers += [room, *range(room + 2, room + 2 + len(other.words))]
            more += [*other.words, *self._shares(behind).numbers()]
            across = blocks_across(behind.shape)
        call = call_of(
            function, product, merge.shape, [*operands, 0, 0, 0, 0], more, pointers,
            (early, read), across,
        )
        return call, Touched((*factors, *early, *read), tuple(written))
