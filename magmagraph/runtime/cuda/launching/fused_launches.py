"""What launches fused steps: the kernels of their bodies, with arguments that never change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....codegen.cuda.launch_config import Launch, lines_for
from ....codegen.steps import bodies_of
from ....ir import dims
from ....ir.fallback import Refused
from ....ir.plan import Step
from ..kernels.bodies import Body
from ..kernels.fused import Modules, kernels_of, refusal_of
from ..kernels.many import call_of_many, groups_of
from ..memory import PlanMemory
from .calls import KernelCall
from .launch_units import Unit, together
from .segments import Launcher
from .streams import Touched

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

    def bodies(self, step: Step) -> list[Body]:
        """Return the operands of each body of a fused step, the same at each call."""
        if id(step) not in self._known:
            self._known[id(step)] = self._operands(step)
        return self._known[id(step)]

    def _operands(self, step: Step) -> list[Body]:
        memory, found = self.memory, []
        at = to = 0
        workspace = 0 if step.workspace is None else memory.address[step.workspace]
        for body in bodies_of(step):
            kernels = kernels_of(body)
            taken, made = len(body.inputs), len(body.outputs)
            inputs, outputs = step.inputs[at : at + taken], step.outputs[to : to + made]
            at, to = at + taken, to + made
            # Bodies of one step have workspaces of their own, one behind the other.
            size, lines, here = 0, self.plan.threads, workspace
            if kernels is not None:
                size = dims.evaluate(kernels.region.workspace(lines), memory.sizes)
                workspace += size
                lines = lines_for(
                    kernels, memory.sizes, lines, self.device.multiprocessors
                )
                if lines > self.plan.threads:  # more than was planned: a place of its own
                    size = dims.evaluate(kernels.region.workspace(lines), memory.sizes)
                    here = memory.more(size)
            pointers = [memory.at(value) for value in (*inputs, *outputs)]
            late = {o.position for o in kernels.region.outputs if o.epilogue} if kernels else set()
            found.append(
                Body(
                    kernels,
                    [*pointers, here],
                    memory.ranges(inputs),
                    memory.ranges([v for i, v in enumerate(outputs) if i not in late]),
                    memory.ranges([v for i, v in enumerate(outputs) if i in late]),
                    ((here, here + size),) if size else (),
                    lines,
                )
            )
        return found

    def units(self, step: Step, without: int = -1) -> list[Unit]:
        """Return what launches the bodies of a fused step, but for one that a product computes.

        Raises
        ------
        Refused
            A body has no kernel.
        """
        touched: list[Body] = []
        launches: list[list[tuple[int, Launch]]] = []
        bodies = self.bodies(step)
        if len(bodies) == 1 and without < 0 and bodies[0].early and bodies[0].late:
            return self._ended_apart(step, bodies[0])
        for number, body in enumerate(bodies):
            if number == without:
                continue
            if body.kernels is None:
                raise Refused(refusal_of(bodies_of(step)[number]))
            bound = self.modules.bind(
                body.kernels, self.memory.sizes, body.lines, self.memory.counter()
            )
            if bound:
                touched.append(body)
                launches.append(bound)
        if not launches:
            return []
        read = tuple(place for body in touched for place in body.read)
        written = tuple(place for body in touched for place in body.written)
        return [Unit(together(self._in_groups(touched, launches)), Touched(read, written))]

    def _in_groups(
        self, bodies: Sequence[Body], launches: Sequence[Sequence[tuple[int, Launch]]]
    ) -> list[Launcher]:
        """Return what launches the bodies of a step; those of one structure are one launch."""
        touched = [Touched(body.read, body.written) for body in bodies]
        sizes = self.memory.sizes
        keys = [body.key(bound, sizes) for body, bound in zip(bodies, launches, strict=True)]
        words = [
            len(body.words) + max(len(launch.numbers) for _, launch in bound)
            for body, bound in zip(bodies, launches, strict=True)
        ]
        made: list[Launcher] = []
        for group in groups_of(touched, keys, words):
            first = bodies[group[0]]
            if len(group) == 1:
                made += [
                    kernel_call(
                        function, launch, [*first.words, *launch.numbers], len(first.words)
                    )
                    for function, launch in launches[group[0]]
                ]
                continue
            assert first.kernels is not None
            alone = [launches[number][0][1] for number in group]
            arguments = [
                [*bodies[number].words, *launch.numbers]
                for number, launch in zip(group, alone, strict=True)
            ]
            function = self.modules.many(first.kernels, alone, len(arguments[0]))
            made.append(call_of_many(
                function, alone, arguments, len(first.words), self.device.multiprocessors
            ))
        return made

    def _ended_apart(self, step: Step, body: Body) -> list[Unit]:
        """Return what launches a body, and what ends its sums, for which not all have to wait."""
        if body.kernels is None:
            raise Refused(refusal_of(bodies_of(step)[0]))
        bound = self.modules.bind(
            body.kernels, self.memory.sizes, body.lines, self.memory.counter(), tail=False
        )
        main, *ends = (
            kernel_call(function, launch, [*body.words, *launch.numbers], len(body.words))
            for function, launch in bound
        )
        written = (*body.early, *body.workspace)
        if not ends:
            return [Unit(main, Touched(body.read, (*written, *body.late)))]
        after = Touched((*body.read, *written), (*body.late, *body.workspace))
        return [Unit(main, Touched(body.read, written)), Unit(together(ends), after)]


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
    held = np.array(words, dtype=np.int64)
    return KernelCall(
        function, launch.grid, launch.block, held, range(pointers), overlaps=not launch.alone
    )
