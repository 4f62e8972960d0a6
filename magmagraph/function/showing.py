"""What a function shows of itself: graphs, plans, sources, times, and what became of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ..config import config
from ..graph import Graph, Node
from ..interpret import body_function, compiling_bodies
from ..ops.leaf import Variable
from ..plan import Role
from ..types import FilePath
from .compiling import Compiled
from .feeds import bind_sizes
from .loss_scale import LossScale, found_in

if TYPE_CHECKING:
    from . import Function



class Shown(Compiled):
    """What of a function can be looked at. Nothing here changes a variable."""

    _random: Variable | None

    @property
    def loss_scale(self) -> LossScale | None:
        """The state of loss scaling, of a function with gradients in float16; else None.

        Its variables (`scale`, `steps`, `skipped`) can be read and set between calls, and are
        saved and pickled with the function.
        """
        return found_in(self._user_updates)

    @property
    def updated(self) -> tuple[Variable, ...]:
        """The variables that a call renews, in order: also the function's own counters."""
        return tuple(cast(Variable, target) for target, _ in self._user_updates)

    @property
    def random_step(self) -> Variable | None:
        """The counter of committed calls that random numbers are drawn from, where any are.

        Set its value to draw again what an earlier call drew.
        """
        return self._random

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs, in the order of positional feeds."""
        return self._inputs

    @property
    def graph(self) -> Graph:
        """The graph after the last pass that gives one."""
        self.compile()
        graph = self._report.graph
        assert isinstance(graph, Graph)
        return graph

    @property
    def report(self) -> Any:
        """What each pass did: a record per pass, printable as a table or JSON."""
        self.compile()
        return self._report

    @property
    def plan(self) -> Any:
        """The plan, bound to the sizes of the last call where there was one."""
        if self._last is not None:
            return self._last.plan
        if all(type(e) is int for node in self._inputs for e in node.shape):
            shapes: tuple[Any, ...] = tuple(node.shape for node in self._inputs)
            with self._exclusive():
                return self._specialize(shapes).plan
        self.compile()
        return self._compiled.plan

    def source(self, step: int) -> str:
        """Return the generated C of a fused step of the plan.

        The functions stand alone: what shares the work out to threads is left off. Extents and
        strides are arguments, so that one source serves all sizes.

        Parameters
        ----------
        step
            Its number in `plan`.

        Raises
        ------
        PlanError
            The step is a library's, or a copy.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.var("x", shape=("n",))
        >>> "expf" in mg.function([x], mg.exp(x) + 1.0).source(0)
        True
        """
        self.compile()
        return str(self._compiled.source(step))

    @property
    def bodies(self) -> tuple[Function, ...]:
        """The functions of its loops' and branches' bodies, in the order of the plan.

        Each is compiled once, and has a report, a plan and bodies of its own.
        """
        with compiling_bodies(self._bodies):
            return tuple(
                _as_function(body).compile()
                for step in self.plan.steps
                if step.role is Role.NESTED
                for body in bodies_of(step.node)
            )

    @property
    def memory(self) -> Any:
        """Bytes planned: arena, workspaces, feeds, results, variables, before anything runs.

        Steps of the kind ``array`` run NumPy's functions, whose own scratch is not in the plan:
        positions made valid in `take`, the order in `argsort`.
        """
        return self._memory_of(self.plan)

    def _memory_for(self, *shapes: tuple[int, ...]) -> Any:
        """Return the bytes planned for feeds of these shapes; nothing of them is allocated."""
        sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return self._memory_of(self.plan_for(sizes))

    def _memory_of(self, plan: Any) -> Any:
        from ..passes.lowering.memory import account

        with compiling_bodies(self._bodies):
            return replace(account(plan), bodies=bytes_of_bodies(plan))

    @property
    def specializations(self) -> list[tuple[dict[str, int], str]]:
        """The sets of sizes that are bound now, each with the dimension that caused it."""
        return [
            (dict(bound.plan.sizes or {}), self._causes[shapes])
            for shapes, bound in self._bound.items()
        ]

    @property
    def bounds(self) -> tuple[Any, ...]:
        """The plans that are ready for a set of sizes now, as the runtime holds them."""
        return tuple(self._bound.values())

    def explain(self, node: Node) -> Any:
        """Return what became of a node, through every pass, down to the kernel."""
        from ..inspect.explain import explain

        return explain(self, node)

    def value(self, node: Node, *feeds: Any, **named: Any) -> Any:
        """Return what a node of the program is worth for given feeds; see `debug.values`.

        Parameters
        ----------
        node
            Any node that the outputs or updates were built from.
        *feeds, **named
            As for a call; nothing is committed.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.input("x")
        >>> inside = x + 1.0
        >>> mg.function([x], inside * inside).value(inside, 2.0)
        array(3., dtype=float32)
        """
        from ..inspect.values import values

        with self._as_rank():
            return values(self, [node], *feeds, **named)[0]

    def check(self, *feeds: Any, **named: Any) -> Any:
        """Compare every pass and the run with the source graph in float64; commits nothing."""
        from ..inspect.checking.check import check

        with self._as_rank():
            return check(self, *feeds, **named)

    def profile(self, *feeds: Any, **named: Any) -> Any:
        """Return time, bytes and arithmetic of each step under its roofs; commits nothing.

        The machine's peaks are measured at the first profile (some seconds) and kept; where
        tuning is off nothing is measured, and there are no roofs.
        """
        from ..inspect.profile import profile

        with self._as_rank():
            return profile(self, *feeds, peaks=self._peaks, **named)

    def _chip(self) -> str:
        """Return the name of the chip that its kernels are made for."""
        from ..runtime.machine import chip

        return chip(self.device)

    def _peaks(self, seen: Mapping[str, float]) -> Any:
        """Return what this function's device does at best, None without tuning; see `peaks`."""
        if not config.tuning:
            return None
        from ..inspect.peaks import peaks
        from ..runtime.cache import default_choices
        from ..runtime.machine import caches, machine

        device = self.device
        return peaks(device, machine(device), seen, default_choices(), caches(device))

    def ablate(self, *feeds: Any, **named: Any) -> Any:
        """Return the time and memory that each optional pass gains; commits nothing."""
        from ..inspect.ablate import ablate

        with self._as_rank():
            return ablate(self, *feeds, **named)

    def save(self, path: FilePath) -> None:
        """Write the function to an archive, which `mg.load` reads."""
        from ..text.archive import save

        save(self, path)


def _as_function(body: Graph) -> Any:
    function = body_function(body)
    assert function is not None  # within `compiling_bodies`
    return function


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """Return the body graphs of a loop or branch."""
    attrs = node.attrs
    return tuple(attrs["bodies"]) if "bodies" in attrs else (attrs["body"],)


def bytes_of_bodies(plan: Any) -> int:
    """Return the bytes that the bodies of a plan's loops and branches have for themselves."""
    if plan.sizes is None:
        return 0
    total = 0
    for step in plan.steps:
        if step.role is Role.NESTED:
            for value in step.outputs[: step.node.attrs.get("carries", 0)]:
                total += 2 * int(value.type.bytes)
            for body in bodies_of(step.node):
                inner = _as_function(body).plan_for(plan.sizes)
                total += inner.arena + bytes_of_bodies(inner)
    return total
