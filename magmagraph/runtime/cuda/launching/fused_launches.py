"""What launches fused steps: the kernels of their bodies, with arguments that never change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....codegen.cuda.generated import kernels_of, refusal_of
from ....codegen.cuda.kernels import ALONE_NAME
from ....codegen.cuda.launch_config import Launch, lines_for
from ....codegen.steps import bodies_of
from ....errors import PlanError, message
from ....ir import dims
from ....ir.fallback import Refused
from ....ir.plan import Step
from ..kernels.bodies import Body
from ..kernels.fused import Modules
from ..kernels.many import call_of_many
from ..memory import PlanMemory
from .calls import KernelCall
from .launch_units import together
from .segments import Launcher

__all__ = ["FusedLaunches", "kernel_call"]


class FusedLaunches:
    """Makes the launches of a plan's fused steps.

    Parameters
    ----------
    memory
        Of the plan.
    modules
        The kernels of the device.
    """

    def __init__(self, memory: PlanMemory, modules: Modules) -> None:
        self.memory, self.modules = memory, modules
        self.plan, self.device = memory.plan, memory.device
        self._known: dict[int, list[Body]] = {}

    def bodies(self, step: Step, on_tiles: bool = False) -> list[Body]:
        """Return the operands of each body of a fused step, the same at each call.

        Parameters
        ----------
        step
            Of a region.
        on_tiles
            Whether it is computed on a product's tiles: their rows are as many as the lines of
            partial results.
        """
        if id(step) not in self._known:
            self._known[id(step)] = self._operands(step, on_tiles)
        return self._known[id(step)]

    def _operands(self, step: Step, on_tiles: bool) -> list[Body]:
        memory, bodies = self.memory, []
        at = to = 0
        start = workspace = 0 if step.workspace is None else memory.address[step.workspace]
        for body in bodies_of(step):
            kernels = kernels_of(body)
            taken, written = len(body.inputs), len(body.outputs)
            inputs, outputs = step.inputs[at : at + taken], step.outputs[to : to + written]
            at, to = at + taken, to + written
            lines, here = self.plan.threads, workspace
            if kernels is not None:
                if not on_tiles:
                    count = self.device.multiprocessors
                    lines = lines_for(kernels, memory.sizes, lines, count)
                workspace += dims.evaluate(kernels.region.workspace(lines), memory.sizes)
            pointers = [memory.at(value) for value in (*inputs, *outputs)]
            bodies.append(Body(kernels, [*pointers, here], memory.ranges(inputs), lines))
        if step.workspace is not None:
            self._check_room(step, workspace - start)
        return bodies

    def _check_room(self, step: Step, needed: int) -> None:
        """Raise where the plan has less scratch memory for a step than its kernels write."""
        size = dims.evaluate(self.plan.slots[step.workspace or 0].size, self.memory.sizes)
        if needed > size:
            raise PlanError(
                message(
                    f"the kernels of {step.node.op.name} write {needed} bytes of partial results",
                    need=f"at most the {size} bytes that the plan has for them",
                    hint="bind the plan by magmagraph.passes.lowering.bind",
                )
            )

    def call(self, step: Step) -> Launcher:
        """Return the launch of a fused step: of its body, or of several of one structure.

        Of a plan whose steps are not single launches it gives all of them, one after the other.

        Raises
        ------
        Refused
            A body has no kernel.
        """
        bodies = self.bodies(step)
        launches = [self._bound(step, number) for number in range(len(bodies))]
        return together(self._in_groups(bodies, launches))

    def main(self, step: Step) -> KernelCall:
        """Return the launch of a region up to its sums."""
        return self._piece(step, 0)

    def end(self, step: Step) -> KernelCall:
        """Return one of the launches that end a region's sums."""
        return self._piece(step, 1 + step.piece)

    def _piece(self, step: Step, number: int) -> KernelCall:
        (whole,) = step.parts
        body = self.bodies(whole)[0]
        function, launch = self._bound(whole, 0, tail=False)[number]
        return kernel_call(function, launch, [*body.words, *launch.numbers], len(body.words))

    def _bound(self, step: Step, number: int, tail: bool = True) -> list[tuple[int, Launch]]:
        """Return the launches of one body of a step, each with its function."""
        body = self.bodies(step)[number]
        if body.kernels is None:
            raise Refused(refusal_of(bodies_of(step)[number]))
        return self.modules.bind(
            body.kernels, self.memory.sizes, body.lines, self.memory.counter(), tail
        )

    def _in_groups(
        self,
        bodies: Sequence[Body],
        launches: Sequence[Sequence[tuple[int, Launch]]],
    ) -> list[Launcher]:
        """Return what launches the bodies of a step; several of one structure are one launch."""
        names = {
            launch.kernel.removesuffix(ALONE_NAME) for bound in launches for _, launch in bound
        }
        if len(bodies) == 1 or len(names) > 1 or any(len(bound) != 1 for bound in launches):
            return [
                kernel_call(function, launch, [*body.words, *launch.numbers], len(body.words))
                for body, bound in zip(bodies, launches, strict=True)
                for function, launch in bound
            ]
        first = bodies[0]
        assert first.kernels is not None
        alone = [launch for ((_, launch),) in launches]
        arguments = [
            [*body.words, *launch.numbers] for body, launch in zip(bodies, alone, strict=True)
        ]
        function = self.modules.many(first.kernels, alone, len(arguments[0]))
        return [
            call_of_many(
                function, alone, arguments, len(first.words), self.device.multiprocessors
            )
        ]


def kernel_call(
    function: int, launch: Launch, words: Sequence[int], pointers: int = 0
) -> KernelCall:
    """Return what launches a kernel with arguments that never change.

    Parameters
    ----------
    function, launch
        The kernel, its grid and its block.
    words
        Its arguments.
    pointers
        How many of these, the first, are addresses.
    """
    argument_words = np.array(words, dtype=np.int64)
    return KernelCall(
        function,
        launch.grid,
        launch.block,
        argument_words,
        range(pointers),
        overlaps=not launch.alone,
    )
