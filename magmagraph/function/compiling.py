"""How a function is compiled: once for all sizes, and bound to the sizes of each call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

from ..collection import collection_paused
from ..communicator import Communicator, current, using
from ..config import config
from ..distributed import strategies
from ..distributed.matching import check as check_matching
from ..distributed.matching import is_communal, with_open_shapes
from ..distributed.sources import are_equal
from ..errors import FeedError, ReentrantError, message
from ..graph import Graph, Node, Trace
from ..interpret import BodyCompiler, compiling_bodies
from ..locking import shared_lock
from .devices import choose_fastest, chosen_by_first
from .feeds import bind_sizes
from .together import Together


class Compiled(Together):
    """What a function is before its first call, and what compiling makes of it."""

    name: str | None
    device: str
    #: The graph as it was frozen, before any pass.
    source_graph: Graph
    trace: Trace
    _inputs: tuple[Node, ...]
    _user_outputs: list[Node]
    _user_updates: list[tuple[Node, Node]]
    _settings: dict[str, Any]

    @property
    def communicator(self) -> Communicator | None:
        """The ranks that it runs on together, None where it runs on each for itself.

        They are those that were current when it was made.
        """
        return self._communicator

    @contextmanager
    def _as_rank(self) -> Iterator[None]:
        """Let what runs inside speak to the ranks that the function was made for."""
        if self._communicator is None:
            yield
        else:
            with using(self._communicator):
                yield

    def _start(self) -> None:
        """Forget what was compiled: the source graph is a new one."""
        shared = self._settings.get("distribute") is not None or is_communal(self.source_graph)
        self._communicator: Communicator | None = current() if shared else None
        self._alone()
        self._open: tuple[Node, ...] = ()  # collectives whose extents a call tells
        self._told: Any = None  # what the pass `distribute` goes by
        self._exchange: Any = None  # of changes, where ranks do not wait for each other's steps
        self._lock = shared_lock(self._end_use)
        self._in_use = False  # by the thread that has the lock; a handler of it may come back here
        self._compiled: Any = None
        self._report: Any = None
        self._bound: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._causes: dict[tuple[tuple[int, ...], ...], str] = {}
        self._last: Any = None
        self._last_shapes: tuple[tuple[int, ...], ...] = ()

    def _end_use(self) -> None:
        """Forget a use that has no end: in a forked child, which has not the thread of it."""
        self._in_use = self._met = self._asked = False

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Use the function: other threads wait for the end, and handlers of this one are refused.

        A handler runs to its end between two instructions of what it interrupts. So the flag
        needs no more protection than the lock gives it against other threads.
        """
        with self._lock:
            if self._in_use:
                raise self._refused("it is being compiled or measured by this thread")
            self._in_use = True
            try:
                yield
            finally:
                self._in_use = False

    def _refused(self, why: str) -> ReentrantError:
        """Return the error for a use that interrupts another one of the same thread."""
        return ReentrantError(
            message(
                f"{self._label()} is used by a signal handler, finalizer or callback that "
                f"interrupts a use of it in the same thread, and {why}",
                need="one use after the other; no variable was changed by the inner one",
                hint="set a flag there and call the function later, or make a second function",
            )
        )

    def compile(self, hints: Mapping[str, int] | None = None) -> Self:
        """Run the passes now (the first call does it otherwise); returns the function.

        Parameters
        ----------
        hints
            Likely sizes of named dimensions, which cost rules use; the first call gives its own.
        """
        if self._compiled is None:
            with self._exclusive():
                self._compile(hints)
        return self

    def _compile(self, hints: Mapping[str, int] | None) -> None:
        """Run the passes unless they have run; the function is in use."""
        with compiling_bodies(self._bodies), collection_paused():
            if self._compiled is None:
                from ..passes import pipeline
                from ..runtime.execute import begin, prepare

                self._asked = False
                begin(self.source_graph, self.device)
                began = time.perf_counter()
                settings = self._settings
                plan, self._report = pipeline.run(
                    self.source_graph,
                    self.trace,
                    passes=settings["passes"],
                    skip=settings["skip"],
                    options=self._options(dict(hints or {})),
                )
                world = self._communicator
                if world is not None:
                    self._speaks_to(*check_matching(plan, world, self.name))
                    alike = strategies.alike(self._told, world)
                    self._open = with_open_shapes(plan) if alike is world and world.size > 1 else ()
                now = time.perf_counter()
                left = settings["compile_budget"] - (now - began)
                began = now
                with self._as_rank():
                    self._compiled = prepare(plan, device=self.device, budget=left)
                self._report.note_kernels(
                    (time.perf_counter() - began) * 1e3, self._compiled.describe()
                )

    def _options(self, sizes: dict[str, int]) -> Any:
        """Return what the passes go by; ranks that make a plan together are all asked."""
        from ..passes import pipeline
        from ..runtime.target import target_of

        world = self._communicator
        overlap = world is not None and (self.device != "cpu" or world.overlaps)
        choose: pipeline.Choose = partial(choose_fastest, device=self.device)
        equal = True
        if world is not None and world.size > 1:
            # Plans are equal where nothing that they are made from differs.
            sizes, overlap = self._ask((sizes, overlap))
            equal = are_equal(self.source_graph, self._group(), world, self.name)
        self._told = self._facts()
        alike = strategies.alike(self._told, world)
        if alike is not None and alike.size > 1 and equal:
            choose = partial(chosen_by_first, alike, choose)
        settings = self._settings
        return pipeline.Options.make(
            hints=sizes,
            target=target_of(self.device),
            nan=settings["nan"],
            precision=self._lowered(),
            deterministic=settings["deterministic"],
            compile_budget=settings["compile_budget"],
            choose=choose,
            overlap=overlap,
            distribute=self._told,
            **settings["options"],
        )

    def _begin_alike(self) -> None:
        """Set variables to rank 0's values once more, if ranks have them whole; all ranks call it.

        The first call of a function does so.
        """
        if self._compiled is not None and self._told is not None and self._exchange is None:
            with self._as_rank():
                self._settle(self._told)

    def _settle(self, facts: Any) -> None:
        strategy = self._settings["distribute"]
        named = ("precision", "nan", "deterministic")
        settings = {name: self._settings[name] for name in named}
        strategies.settle(self.source_graph, facts, strategy.own_variables(), settings)

    def _group(self) -> Any:
        """Return the axes of the mesh over which a strategy cuts the graph; None without one."""
        strategy = self._settings.get("distribute")
        facts = None if strategy is None else strategy.facts()
        return None if facts is None else facts.group

    def _facts(self) -> Any:
        """Return what the pass `distribute` is told, once all ranks have rank 0's variables."""
        strategy = self._settings.get("distribute")
        if strategy is None:
            return None
        facts = strategy.facts()
        if facts is None:
            return None
        self._settle(facts)
        if not strategy.asynchronous:
            held = current()
            ranks = held.group(strategy.axes_of(held.mesh))
            return replace(
                facts, streams=strategies.drawn_as_first(self.source_graph.nodes, ranks)
            )
        self._exchange = strategy.begin(self._user_outputs, self._user_updates)
        return None if facts.pipeline is None else replace(facts, size=1)  # of a rank alone

    def _lowered(self) -> str:
        """Return the precision that the passes may use: float32 without the pass for others."""
        there = any(record.name == "precision" for record in self.passes)
        return str(self._settings["precision"]) if there else "float32"

    def _specialize(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Return the plan bound to these feed shapes, from the LRU or made now."""
        with self._as_rank(), compiling_bodies(self._bodies):
            return self._bound_for(shapes)

    @property
    def _bodies(self) -> BodyCompiler:
        """Return what compiles the bodies of its loops and branches."""
        raise NotImplementedError

    @property
    def _inner(self) -> tuple[tuple[str, Any], ...]:
        """What bodies of loops and branches are compiled with, where it is not the default."""
        usual = {"passes": None, "skip": (), "deterministic": False}
        given = self._settings
        other = [(name, given[name]) for name in usual if given[name] != usual[name]]
        return (*other, *([("device", self.device)] if self.device != "cpu" else []))

    def _bound_for(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        bound = self._bound.get(shapes)
        if bound is None:
            sizes = self._compiled_for(shapes)
            from ..passes.lowering import specialize
            from ..runtime.execute import arena_layout

            with collection_paused():
                plan = specialize.specialize(
                    self._compiled.plan, sizes, *arena_layout(self.device)
                )
                bound = self._compiled.bind(plan)
                bound.ranks = None if self._alike else self._ranks
                bound.meet = None if self._ranks is None else self._meet
            self._causes[shapes] = self._cause(sizes)
            self._bound[shapes] = bound
            while len(self._bound) > max(1, config.specializations):
                dropped, _ = self._bound.popitem(last=False)
                self._causes.pop(dropped, None)
        else:
            self._bound.move_to_end(shapes)
        self._last, self._last_shapes = bound, shapes
        return bound

    def _compiled_for(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """Return the sizes that were fed; at the first call ranks hear what is wrong on one."""
        constraints = self.source_graph.constraints
        world = self._communicator
        if world is None or world.size == 1 or self._compiled is not None:
            sizes = bind_sizes(self._inputs, shapes, constraints)
            self._compile(sizes)
            return sizes
        sizes = bind_sizes(self._inputs, shapes)
        self._compile(sizes)  # first: what cannot be spread is so on all ranks, whatever is fed
        wrong = ""
        try:
            bind_sizes(self._inputs, shapes, constraints)
        except FeedError as error:
            wrong = str(error)
        told = world.exchange(wrong, f"the first feeds of {self.name or 'a function'}")
        for rank, text in enumerate(told):
            if text:
                raise FeedError(
                    message(
                        f"rank {rank} of {world.size}: {text}",
                        hint="feed every rank as many rows as its operations need",
                    )
                )
        return sizes

    def specialize(self, *shapes: tuple[int, ...]) -> Self:
        """Plan for feeds of these shapes now, without running; returns the function.

        Parameters
        ----------
        *shapes
            One for each input.

        Raises
        ------
        FeedError
            The shapes do not fit the inputs, or each other.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.var("x", shape=("n",))
        >>> f = mg.function([x], mg.exp(x)).specialize((1000,))
        >>> f.memory.feeds, f.memory.results
        (4000, 4000)
        """
        if len(shapes) != len(self._inputs):
            raise FeedError(
                message(f"specialize: {len(shapes)} shapes for {len(self._inputs)} inputs",
                        need="one for each")
            )  # fmt: skip
        with self._exclusive():
            self._specialize(tuple(tuple(map(int, shape)) for shape in shapes))
        return self

    def bound_to(self, sizes: Mapping[str, int]) -> Any:
        """Return the plan bound anew to sizes, apart from what calls use: for a plan around it."""
        plan = self.plan_for(sizes)
        with compiling_bodies(self._bodies):
            return self._compiled.bind(plan)

    def plan_for(self, sizes: Mapping[str, int]) -> Any:
        """Return the plan for sizes of the named dimensions, without memory of its own yet."""
        self.compile(sizes)
        from ..passes.lowering import specialize
        from ..runtime.execute import arena_layout

        with self._lock, collection_paused():
            layout = arena_layout(self.device)
            return specialize.specialize(self._compiled.plan, sizes, *layout)

    def _cause(self, sizes: Mapping[str, int]) -> str:
        if not self._bound:
            return "first call"
        before = next(reversed(self._bound.values())).plan.sizes or {}
        changed = [f"{k}: {before.get(k)} -> {v}" for k, v in sizes.items() if before.get(k) != v]
        return ", ".join(changed)

    @property
    def passes(self) -> tuple[Any, ...]:
        """The passes that it is compiled with, in order: a record each."""
        from ..passes import pipeline

        chosen = self._settings["passes"]
        skip = self._settings["skip"]
        records = pipeline.DEFAULT if chosen is None else chosen
        return tuple(record for record in records if record.name not in skip)
