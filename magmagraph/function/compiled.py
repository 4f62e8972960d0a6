"""A function: a graph that is compiled once, bound to the sizes of each call, and run.

It is compiled at its first call, or when asked. Feeds are read, the plan for their sizes runs, and
results are handed over. What became of the graph can be looked at: graphs, plans, sources, times.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import numpy as np

from ..autodiff.transforms.rebuild import rebuild
from ..config import config
from ..distributed import strategies
from ..distributed.matching import agree, is_communal, with_open_shapes
from ..distributed.matching import check as check_matching
from ..distributed.sources import are_equal
from ..errors import (
    ConfigError,
    FeedError,
    MagmagraphError,
    NonFiniteError,
    ReentrantError,
    message,
)
from ..ir import dims
from ..ir.collection import collection_paused
from ..ir.communicator import Communicator
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, Trace, freeze, topological
from ..ir.interpret import BodyCompiler, body_function, compiling_bodies
from ..ir.locking import shared_lock
from ..ir.op import Effect
from ..ir.plan import Role
from ..ir.ranks import current, using
from ..ir.records import record
from ..ir.target import Target
from ..ir.types import FilePath
from ..ops.control.identities import ALWAYS, MARKER
from ..ops.control.loop import LOOP, extent_of
from ..ops.convert import as_node
from ..ops.leaf import Variable, input
from ..ops.random.basic import RANDOM_STEP
from .arguments import (
    check_budget,
    check_inputs,
    check_leaves,
    check_target,
    check_updates,
    random_step,
)
from .defaults import default_updates as carried_updates
from .devices import array_type, choose_fastest, chosen_by_first, usable
from .epochs import repeated, run_batches, stack
from .feeds import Signature, bind_sizes, check_targets, conform
from .labels import fed_labels, with_marked_labels
from .limits import bytes_of, dimensions, largest, refuse, with_micro_batches
from .loss_scale import LossScale, counters, found_in
from .rank_agreement import Together
from .structure import Structure

__all__ = ["PRECISIONS", "Function", "check_settings"]

PRECISIONS = ("float32", "tf32", "float16", "bfloat16", "int8")


class Function:
    """A compiled graph: define once, run many times. Made by `mg.function`."""

    name: str | None
    device: str
    strict_feeds: bool
    #: The graph as it was frozen, before any pass.
    source_graph: Graph
    trace: Trace
    _inputs: tuple[Node, ...]
    _structure: Structure
    _user_outputs: list[Node]
    _user_updates: list[tuple[Node, Node]]
    _settings: dict[str, Any]
    _random: Variable | None

    def __init__(
        self,
        inputs: Sequence[Node],
        outputs: Any,
        updates: Any = None,
        *,
        device: str = "auto",
        precision: str = "float32",
        passes: Sequence[Any] | None = None,
        skip: Sequence[str] = (),
        distribute: Any = None,
        name: str | None = None,
        nan: str = "allow",
        default_updates: bool = True,
        strict_feeds: bool = False,
        deterministic: bool = False,
        compile_budget: float | None = None,
        memory_limit: int | str | None = None,
        options: Mapping[str, Any] | None = None,
        target: Target | None = None,
    ) -> None:
        self.name = name
        self.device = usable(device) if target is None else check_target(target, device).device
        for option, setting in (
            ("default_updates", default_updates),
            ("strict_feeds", strict_feeds),
            ("deterministic", deterministic),
        ):
            if setting not in (True, False):
                raise ConfigError(message(f"{option}={setting!r}", need="True or False"))
        if not isinstance(name, str | None):
            raise ConfigError(message(f"name={name!r}", need="a string, or None"))
        if compile_budget is not None:
            compile_budget = check_budget(compile_budget)
        strategy = strategies.checked(distribute)
        self._inputs = check_inputs(inputs)
        self._structure = Structure(outputs)
        nodes = [as_node(leaf) for leaf in self._structure.leaves]
        pairs = check_updates(updates)
        if default_updates:
            targets = [target for target, _ in pairs]
            pairs += carried_updates([*nodes, *(new for _, new in pairs)], targets).items()
        step = random_step(nodes, pairs)
        if step is not None:
            following = step + np.int64(1)  # also where loss scaling skips all other updates
            always = precision == "float16"
            pairs.append((step, MARKER(following, role=ALWAYS) if always else following))
        if precision == "float16":
            pairs += counters(nodes, pairs)
        self._program = (nodes, pairs)  # as one process would run it
        if strategy is not None:
            nodes, pairs = strategy.prepared(nodes, pairs)
        check_leaves(self._inputs, nodes, pairs)
        self._user_outputs = nodes
        self._user_updates = pairs
        self._settings: dict[str, Any] = {
            "precision": precision,
            "passes": tuple(passes) if isinstance(passes, list) else passes,
            "skip": skip if isinstance(skip, str) else tuple(skip),  # a string is refused below
            "nan": nan,
            "deterministic": deterministic,
            "compile_budget": config.compile_budget if compile_budget is None else compile_budget,
            "distribute": strategy,
            "memory_limit": None if memory_limit is None else bytes_of(memory_limit),
        }
        self._settings["options"] = options
        self._settings["target"] = target
        check_settings(self._settings)
        self.strict_feeds = strict_feeds
        self._random = step
        self._effects: tuple[Node, ...] = ()  # observers without a node that passes a value on
        self._freeze()

    def _freeze(self) -> None:
        self.trace = Trace()
        with collection_paused():
            self.source_graph = self._frozen(self._user_outputs, self._user_updates, self.trace)
        self._labels = fed_labels(self.source_graph, self.trace)
        self._start()

    def _frozen(self, outputs: Any, updates: Any, trace: Trace) -> Graph:
        return freeze(
            self._inputs,
            outputs,
            updates,
            trace=trace,
            leaves={} if self._random is None else {RANDOM_STEP: self._random},
            effects=self._effects,
            observed=True,
        )

    def _whole_graph(self) -> Graph:
        """Return the program that one process would run, as a file holds it."""
        if self._settings["distribute"] is None:
            return with_marked_labels(self.source_graph, self.trace)
        trace = Trace()
        return with_marked_labels(self._frozen(*self._program, trace), trace)

    def __repr__(self) -> str:
        label = f" '{self.name}'" if self.name else ""
        names = ", ".join(node.name or "?" for node in self._inputs)
        state = "not compiled yet" if self._compiled is None else f"{len(self.plan.steps)} steps"
        return f"<function{label} ({names}) -> {len(self._user_outputs)} outputs, {state}>"

    def _repr_html_(self) -> str:
        from .notebooks import function_html  # for notebooks alone

        return function_html(self, self._compiled is not None)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "inputs": self._inputs,
            "outputs": self._structure.build(self._user_outputs),
            "updates": self._user_updates,
            "settings": self._settings,
            "device": self.device,
            "name": self.name,
            "strict_feeds": self.strict_feeds,
            "random": self._random,
            "effects": self._effects,
            "program": self._program,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name = state["name"]
        self.device = state["device"]
        self.strict_feeds = state["strict_feeds"]
        self._inputs = state["inputs"]
        self._structure = Structure(state["outputs"])
        self._user_outputs = list(self._structure.leaves)
        self._user_updates = state["updates"]
        self._settings = state["settings"]
        self._random = state["random"]
        self._effects = tuple(state.get("effects", ()))
        self._program = state.get("program", (self._user_outputs, self._user_updates))
        self._freeze()

    # ---- Compiling

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
        self._together = Together(self._communicator, self.name)
        self._open: tuple[Node, ...] = ()  # collectives whose extents a call tells
        self._told: Any = None  # what the pass `distribute` goes by
        self._exchange: Any = None  # of changes, where ranks do not wait for each other's steps
        self._lock = shared_lock(self._end_use)
        self._in_use = False  # by the thread that has the lock; a handler of it may come back here
        self._compiled: Any = None
        self._report: Any = None
        self._hints: dict[str, int] = {}  # the sizes that it was compiled for
        self._bound: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._causes: dict[tuple[tuple[int, ...], ...], str] = {}
        self._last: Any = None
        self._last_shapes: tuple[tuple[int, ...], ...] = ()
        self._signature = Signature(self._inputs)
        self._dtypes = [node.dtype for node in self._inputs]
        absent = self._settings.get("target") is not None
        self._array_type = array_type("cpu" if absent else self.device)
        self._spare: dict[tuple[tuple[int, ...], ...], Any] = {}  # of calls that interrupt calls

    def _end_use(self) -> None:
        """Forget a use that has no end: in a forked child, which has not the thread of it."""
        self._in_use = self._together.met = self._together.asked = False

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
                f"{self._together.label} is used by a signal handler, finalizer or callback that "
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
                from ..runtime.execute import begin, prepare

                self._together.asked = False
                begin(self.source_graph, self.device)
                began = time.perf_counter()
                settings = self._settings
                self._hints = dict(hints or {})
                plan, self._report, self.trace = self._planned(
                    self._hints, self._options(dict(self._hints)), self.trace
                )
                world = self._communicator
                if world is not None:
                    self._together.speaks_to(*check_matching(plan, world, self.name))
                    alike = strategies.alike(self._told, world)
                    self._open = with_open_shapes(plan) if alike is world and world.size > 1 else ()
                now = time.perf_counter()
                left = settings["compile_budget"] - (now - began)
                began = now
                if self._settings.get("target") is not None:
                    from ..runtime.absent import AbsentPrepared

                    self._compiled = AbsentPrepared(plan, self._target())
                else:
                    with self._as_rank():
                        self._compiled = prepare(plan, device=self.device, budget=left)
                self._report.note_kernels(
                    (time.perf_counter() - began) * 1e3,
                    self._compiled.describe(),
                    self._compiled.fallbacks,
                )
                self._compiled.fallbacks.warn()

    def _planned(
        self, hints: Mapping[str, int], options: Any, trace: Trace
    ) -> tuple[Any, Any, Trace]:
        """Return a plan, the report of its passes, and their trace.

        Where a plan takes more than the limit of memory, also with values computed again, the batch
        is cut into as few micro-batches as make it fit: 2, 4, 8 and so on.
        """
        first = trace.copy()
        plan, report = self._passed(options, trace)
        limit = options.memory_limit
        known = dimensions(self._inputs) <= hints.keys()
        if limit is None or not known or not self._may_cut():
            return plan, report, trace

        def with_parts(count: int, limit: int) -> Any:
            made = first.copy()
            cut = replace(options, micro_batches=count, memory_limit=limit)
            return (*self._passed(cut, made), made)

        def measured(plan: Any) -> tuple[int, float]:
            plan = self._bound_apart(plan, hints)
            return int(self._memory_of(plan).total), work_of(plan)

        most = max(hints.values(), default=1)
        return with_micro_batches((plan, report, trace), limit, most, with_parts, measured)

    def _options(self, sizes: dict[str, int]) -> Any:
        """Return the options of the passes; ranks that compile a plan together agree on them."""
        from ..passes import pipeline

        world = self._communicator
        overlap = world is not None and (self.device != "cpu" or world.overlaps)
        choose: pipeline.Choose | None = None
        if self._settings.get("target") is None:  # else there is nothing to measure on
            choose = partial(choose_fastest, device=self.device)
        equal = True
        if world is not None and world.size > 1:
            # Plans are equal where nothing that they are made from differs.
            sizes, overlap = self._together.ask((sizes, overlap))
            equal = are_equal(self.source_graph, self._group(), world, self.name)
        self._told = self._facts()
        alike = strategies.alike(self._told, world)
        if alike is not None and alike.size > 1 and equal and choose is not None:
            choose = partial(chosen_by_first, alike, choose)
        settings = self._settings
        return pipeline.Options.make(
            hints=sizes,
            target=self._target(),
            nan=settings["nan"],
            precision=self._lowered(),
            deterministic=settings["deterministic"],
            compile_budget=settings["compile_budget"],
            choose=choose,
            overlap=overlap,
            distribute=self._told,
            memory_limit=settings.get("memory_limit"),
            **settings["options"],
        )

    def _target(self) -> Target:
        """Return what the plan is for: the device, or the target that was given."""
        from ..runtime.target import target_of, with_families

        target = self._settings.get("target")
        return target_of(self.device) if target is None else with_families(target)

    def _with_sizes(
        self, sizes: Mapping[str, int], record: bool = False, plan: Any = None
    ) -> Any:
        """Return the plan for sizes of the named dimensions; `record` notes what passes did.

        It is made of the function's plan, unless another is given.
        """
        from ..passes import pipeline
        from ..passes.lowering.bind import bind

        settings = self._settings
        records: list[Any] = []
        skip = set(settings["skip"])
        if settings["passes"] is not None:
            skip |= set(pipeline.AT_BINDING) - {line.name for line in settings["passes"]}
        plan = self._compiled.plan if plan is None else plan
        plan = bind(plan, sizes, self._target(), skip, records)
        if record and self._report is not None:
            self._report.note_binding(records)
        return plan

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
        """Return the facts for the pass `distribute`, once all ranks have rank 0's variables."""
        strategy = self._settings.get("distribute")
        if strategy is None:
            return None
        facts = strategy.facts()
        if facts is None:
            return None
        self._settle(facts)
        if not strategy.asynchronous:
            world = current()
            ranks = world.group(strategy.axes_of(world.mesh))
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
        """What compiles the bodies of its loops and branches."""
        return _Bodies(self._inner)

    @property
    def _inner(self) -> tuple[tuple[str, Any], ...]:
        """What bodies of loops and branches are compiled with, where it is not the default."""
        usual = {"passes": None, "skip": (), "deterministic": False}
        settings = self._settings
        other = [(name, settings[name]) for name in usual if settings[name] != usual[name]]
        if settings.get("target") is not None:
            return (*other, ("target", settings["target"]))
        return (*other, *([("device", self.device)] if self.device != "cpu" else []))

    def _bound_for(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        bound = self._bound.get(shapes)
        if bound is None:
            sizes = self._compiled_for(shapes)
            with collection_paused():
                plan = self._with_sizes(sizes, record=True)
                if self._settings.get("memory_limit") is not None:
                    plan = self._within_limit(plan, sizes)
                bound = self._compiled.bind(plan)
                if self._report is not None and self.device != "cpu":
                    self._report.note_binding([bound.placing])
                self._compiled.fallbacks.warn()
                bound.ranks = None if self._together.alike else self._together.ranks
                bound.meet = None if self._together.ranks is None else self._together.meet
            self._causes[shapes] = self._cause(sizes)
            self._bound[shapes] = bound
            while len(self._bound) > max(1, config.specializations):
                dropped, _ = self._bound.popitem(last=False)
                self._causes.pop(dropped, None)
        else:
            self._bound.move_to_end(shapes)
        self._last, self._last_shapes = bound, shapes
        return bound

    def _within_limit(self, plan: Any, sizes: dict[str, int]) -> Any:
        """Return a plan for sizes that fits into the limit of memory: this one, or one made anew.

        raises MemoryLimitError: None fits.
        """
        limit = self._settings["memory_limit"]
        memory = self._memory_of(plan)
        if memory.total > limit and self._communicator is None and self._hints != sizes:
            self._compiled = None  # what is computed again was chosen for other sizes
            self._compile(sizes)
            plan = self._with_sizes(sizes)
            memory = self._memory_of(plan)
        if memory.total > limit:
            raise refuse(memory, limit, sizes, self._report or ())
        return plan

    @documented
    def largest(
        self, dim: str, memory_limit: int | str, sizes: Mapping[str, int] | None = None
    ) -> int:
        """Return the largest size of a dimension with which a call fits into a limit of memory.

        Plans are made, and nothing is allocated or run. Where the function was made with a limit,
        plans that compute values again, or that cut the batch into micro-batches, count.

        dim: Its name.
        memory_limit: Bytes, or a text such as "8GiB".
        sizes: The sizes of other dimensions; those of the last call unless given.
        returns (int): The size; 0 where nothing fits.
        raises FeedError: There is no such dimension, or the size of another one is not known.

        >>> x = mg.var("x", shape=("batch", 256))
        >>> f = mg.function([x], mg.sum(mg.sort(x), axis=1))
        >>> size = f.largest("batch", memory_limit="1MiB")
        >>> f.specialize((size, 256)).memory.total <= 1 << 20
        True
        >>> f.specialize((size + 1, 256)).memory.total <= 1 << 20
        False
        """
        limit = bytes_of(memory_limit)
        last = {} if self._last is None else dict(self._last.plan.sizes or {})
        bound_sizes = {**last, **(sizes or {})}
        limited = self._settings.get("memory_limit") is not None
        cuts: dict[int, Any] = {}  # plans with micro-batches, by their number
        with self._exclusive():
            whole = self._plan_apart(bound_sizes, None)

            def with_parts(count: int) -> Any:
                if count not in cuts:
                    cuts[count] = self._plan_apart(bound_sizes, 1 << 62, count)
                return cuts[count]

            def fits(sizes: Mapping[str, int]) -> bool:
                if self._bytes_for(whole, sizes) <= limit:
                    return True
                if not limited:
                    return False
                if self._fits_in_parts(with_parts, sizes, limit):
                    return True
                return self._bytes_for(self._plan_apart(sizes, limit), sizes) <= limit

            return largest(dim, bound_sizes, dimensions(self._inputs), fits)

    def _plan_apart(
        self, hints: Mapping[str, int], limit: int | None, count: int = 1
    ) -> Any:
        """Return a plan that nothing is built for; the function stays as it is.

        count: Of micro-batches.
        """
        options = replace(self._options(dict(hints)), memory_limit=limit, micro_batches=count)
        with compiling_bodies(self._bodies), collection_paused():
            return self._passed(options, Trace())[0]

    def _passed(self, options: Any, trace: Trace) -> Any:
        """Return the plan that the passes make, and their report."""
        from ..passes import pipeline

        settings = self._settings
        return pipeline.run(
            self.source_graph, trace, passes=settings["passes"], skip=settings["skip"],
            options=options,
        )  # fmt: skip

    def _may_cut(self) -> bool:
        """Return whether the pass `micro_batches` is there, and the batch is of one process."""
        names = {record.name for record in self.passes} - set(self._settings["skip"])
        return "micro_batches" in names and self._communicator is None

    def _fits_in_parts(
        self, with_parts: Callable[[int], Any], sizes: Mapping[str, int], limit: int
    ) -> bool:
        """Return whether some number of micro-batches fits for sizes."""
        count, before = 2, float("inf")
        while self._may_cut() and count <= max(sizes.values()):
            now = self._bytes_for(with_parts(count), sizes)
            if now <= limit or now >= before:
                return now <= limit
            count, before = 2 * count, now
        return False

    def _bytes_for(self, plan: Any, sizes: Mapping[str, int]) -> int:
        """Return the bytes of a call with a symbolic plan."""
        return int(self._memory_of(self._bound_apart(plan, sizes)).total)

    def _bound_apart(self, plan: Any, sizes: Mapping[str, int]) -> Any:
        """Return a symbolic plan for sizes; the function stays as it is."""
        shapes = [node.type.concrete(sizes) for node in self._inputs]
        bound = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return self._with_sizes(bound, plan=plan)

    def _compiled_for(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """Return the sizes of the feeds; in the first call all ranks learn of an error on one."""
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
        mismatches = world.exchange(wrong, f"the first feeds of {self.name or 'a function'}")
        for rank, text in enumerate(mismatches):
            if text:
                raise FeedError(
                    message(
                        f"rank {rank} of {world.size}: {text}",
                        hint="feed every rank as many rows as its operations need",
                    )
                )
        return sizes

    @documented
    def specialize(self, *shapes: tuple[int, ...]) -> Self:
        """Plan for feeds of these shapes now, without running; returns the function.

        *shapes: One for each input.
        raises FeedError: The shapes do not fit the inputs, or each other.

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
        """Bind the plan to sizes once more, apart from the bindings of calls, for an outer plan."""
        plan = self.plan_for(sizes)
        with compiling_bodies(self._bodies):
            bound = self._compiled.bind(plan)
        self._compiled.fallbacks.warn()
        return bound

    def plan_for(self, sizes: Mapping[str, int]) -> Any:
        """Return the plan for sizes of the named dimensions, without memory of its own yet."""
        self.compile(sizes)
        with self._lock, collection_paused():
            return self._with_sizes(sizes)

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

    # ---- Calling

    def __call__(self, *feeds: Any, out: Any = None, **named: Any) -> Any:
        """Run once: by position, `f({x: batch})`, or by name `f(x=batch)`.

        Parameters
        ----------
        feeds, named
            A value for every input, NumPy-like, DLPack, or a number.
        out
            Arrays of the outputs' structure to write the results into. Kernels write straight
            into those that are contiguous, of the output's dtype, and apart from the feeds; after
            a call that raises, what such an array holds is not defined.

        Returns
        -------
        The structure of `outputs`, of NumPy arrays that the caller owns.

        Raises
        ------
        FeedError
            A feed is missing, unknown, given twice or does not fit.
        """
        with self._lock:
            if self._in_use:
                return self._interrupting(feeds, named, out)
            self._in_use = True
            try:
                if named or len(feeds) != len(self._inputs) or (feeds and type(feeds[0]) is dict):
                    feeds = tuple(self._signature.arrange(feeds, named))
                bound = self._last
                if bound is not None:
                    for value, dtype, shape in zip(
                        feeds, self._dtypes, self._last_shapes, strict=True
                    ):
                        kind = type(value)
                        if (
                            kind is not np.ndarray and kind is not self._array_type
                        ) or value.dtype is not dtype:
                            break
                        flags = value.flags
                        if value.shape != shape or not flags.c_contiguous:
                            break
                        if kind is np.ndarray and not flags.aligned:
                            break
                    else:
                        return self._results(bound, feeds, out)
                arrays = [
                    conform(self._brought(value), node, self.strict_feeds)
                    for value, node in zip(feeds, self._inputs, strict=True)
                ]
                shapes = tuple([array.shape for array in arrays])
                if bound is not None and shapes == self._last_shapes:
                    return self._results(bound, arrays, out)
                with collection_paused():  # a first run makes much that stays, too
                    return self._results(self._specialize(shapes), arrays, out)
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._in_use = False

    def _interrupting(self, feeds: Sequence[Any], named: Mapping[str, Any], out: Any) -> Any:
        """Answer a call that interrupts a use by the same thread: on memory of its own, or raise.

        What the interrupted call has read of variables must not change, and what it has written
        in part must not be read. So a function that changes none answers, and others refuse.
        """
        if self._user_updates:
            raise self._refused("it updates variables, which one call at a time may do")
        if self._compiled is None:
            raise self._refused("it is not compiled yet")
        if self.device != "cpu" or self._communicator is not None:
            raise self._refused("it runs on a device or with other ranks, in the order of calls")
        arrays = [
            conform(self._brought(value), node, self.strict_feeds)
            for value, node in zip(
                self._signature.arrange(feeds, named), self._inputs, strict=True
            )
        ]
        shapes = tuple([array.shape for array in arrays])
        spare = self._spare.pop(shapes, None)  # a call that interrupts this one finds none
        if spare is None:
            spare = self.bound_to(
                bind_sizes(self._inputs, shapes, self.source_graph.constraints)
            )
        results = self._called(spare, arrays, out)
        self._spare = {shapes: spare}
        return results

    def _results(self, bound: Any, feeds: Sequence[Any], out: Any) -> Any:
        """Run, and return the results in the caller's structure."""
        if self._exchange is None:
            if out is None and self._communicator is None:
                return self._structure.build(self._run(bound, feeds))
            return self._called(bound, feeds, out)
        return self._exchange.step(partial(self._called, bound, feeds, out))

    def _called(self, bound: Any, feeds: Sequence[Any], out: Any) -> Any:
        if out is None:
            return self._structure.build(self._run(bound, feeds))
        targets = self._structure.match(out)
        # Before anything runs: a refused call changes no variable.
        check_targets(targets, [fetch.type for fetch in bound.plan.fetches])
        return self._structure.build(self._run(bound, feeds, targets))

    def _brought(self, value: Any) -> Any:
        """Return a fed value of another library's device as an array of this function's."""
        kind = type(value)
        if kind is np.ndarray or kind is self._array_type:
            return value
        if not hasattr(value, "__dlpack_device__"):
            return value
        from ..runtime.execute import received

        return received(value, self.device)

    def _run(self, bound: Any, feeds: Sequence[Any], out: Any = None) -> Any:
        if self._labels:
            self._check_labels(feeds, bound.plan.sizes)
        try:
            if self._communicator is None:
                return bound.run(feeds, out)
            with using(self._communicator):
                if self._open:
                    self._together.meet_for(bound)
                    agree(self._open, bound.plan.sizes or {}, self._communicator)
                results = bound.run(feeds, out)
                self._together.met = False
                return results
        except MagmagraphError as error:
            if error.node is not None:
                from ..inspect.node_history import locate

                locate(self, error)
            if isinstance(error, NonFiniteError) and not error.alone:
                from ..inspect.checking.blame import append_blame

                self._in_use = False  # it has run: what explains the error uses it again
                append_blame(self, feeds, error)
            raise

    @documented
    def run(self, batches: Any, feeds: Any = None, *, keep: str = "all") -> Any:
        """Repeat the call: over an iterable of feeds, or `n` times with the same feeds.

        On a CUDA device several steps are one captured graph, and a `mg.batches` object's rows
        stay on the device, where they fit: nothing returns to Python between steps. Results and
        variables are those of calls, bit for bit.

        batches: An iterable of feeds (tuples or lists of arrays, dicts, or single arrays), or a
            number of calls.
        feeds: With a number of calls: the feeds of each.
        keep: ``"all"`` stacks each output over the steps, or lists them where their shapes differ
            (rows of a last, partial batch); ``"last"`` returns the last. Without any step a stack
            has no rows (and is an empty list where an extent is known only at a call), and the last
            is None.
        raises ConfigError: `keep` is another word, or the number of calls is below 0.
        """
        if keep not in ("all", "last"):
            raise ConfigError(message(f"keep={keep!r}", need="'all' or 'last'"))
        if isinstance(batches, (int, np.integer)) and batches < 0:
            raise ConfigError(message(f"run({batches}, ...)", need="0 calls or more"))
        if not isinstance(batches, (int, np.integer, Iterable)):
            raise ConfigError(
                message(f"run({batches!r}, ...)", need="a number of calls, or an iterable of feeds")
            )
        if self.device != "cpu":
            try:
                results = self._run_there(batches, feeds, keep == "all")
            except BaseException as error:
                self._fail(error)
                raise
            self._together.met = False
            if results is not None:
                return self._structure.build(results)
        several: Iterable[Any]
        if isinstance(batches, (int, np.integer)):
            several = (self._given(feeds) for _ in range(int(batches)))
        else:
            several = batches
        stacked: list[list[Any]] = []
        result: Any = None
        for batch in self._drawn(several):
            result = self(*self._given(batch))
            if keep == "all":
                stacked.append(Structure(result).leaves)
        if keep == "last":
            return result
        if not stacked:
            return self._structure.build(self._stacks_of_none(feeds))
        # With a last, partial batch the steps of an output of rows do not stack: a list then.
        return self._structure.build([stack(column) for column in zip(*stacked, strict=True)])

    def _run_there(self, batches: Any, feeds: Any, stacked: bool) -> list[Any] | None:
        """Return the outputs of `run` where the device needs no host between steps, or None."""
        from ..data.batching import Batches
        from ..runtime.execute import resident

        strategy = self._settings.get("distribute")
        if strategy is not None and strategy.asynchronous:
            return None
        with self._exclusive(), collection_paused():
            if isinstance(batches, (int, np.integer)):
                if batches < 1:
                    return None
                values = self._signature.arrange(self._given(feeds), {})
                arrays = [
                    conform(self._brought(value), node, self.strict_feeds)
                    for value, node in zip(values, self._inputs, strict=True)
                ]
                self._check_labels(arrays)
                return repeated(self._begun, int(batches), arrays, stacked)
            if type(batches) is not Batches or not len(batches) or batches.shard[1] > 1:
                return None
            if len(batches.arrays) != len(self._inputs):
                return None  # a call says what is missing
            self._check_labels(batches.arrays)
            return run_batches(
                self._begun, self._inputs, batches, stacked, self.strict_feeds,
                partial(resident, device=self.device),
            )

    def _check_labels(
        self, feeds: Sequence[Any], sizes: Mapping[str, int] | None = None
    ) -> None:
        """Raise unless the labels of classes that are fed are labels; see `class_labels`."""
        if sizes is None and self._labels:
            shapes = [array.shape for array in feeds]
            sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        for labels in self._labels:
            labels.check(feeds, sizes or {})

    def _given(self, feeds: Any) -> tuple[Any, ...]:
        """Return the arguments of one call from the feeds of `run`."""
        if isinstance(feeds, tuple):
            return feeds
        if isinstance(feeds, list) and len(self._inputs) > 1:  # of one input it is the array
            return tuple(feeds)
        return () if feeds is None else (feeds,)

    def _begun(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Return the plan bound to shapes of feeds, of several steps that ranks begin together."""
        bound = self._specialize(shapes)
        self._together.meet_for(bound)
        return bound

    def _stacks_of_none(self, feeds: Any) -> list[Any]:
        """Return what `run` stacks for each output where it takes no step."""
        sizes: dict[str, int] = {}
        if feeds is not None:
            values = self._signature.arrange(self._given(feeds), {})
            arrays = map(partial(conform, strict=self.strict_feeds), values, self._inputs)
            shapes = [array.shape for array in arrays]
            sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return [
            np.empty((0, *(dims.evaluate(e, sizes) for e in node.shape)), node.dtype)
            if all(dims.names(e) <= sizes.keys() for e in node.shape)
            else []
            for node in self._user_outputs
        ]

    def _fail(self, error: BaseException) -> None:
        """Tell the other ranks of an error, where they wait for this one."""
        self._together.fail(error, self._compiled is not None)

    def _drawn(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches; the other ranks hear of one that cannot be had."""
        try:
            yield from batches
        except Exception as error:
            self._fail(error)
            raise

    # ---- What can be looked at: nothing of it changes a variable

    @property
    def loss_scale(self) -> LossScale | None:
        """The state of loss scaling, of a function with gradients in float16; else None.

        Its variables (`scale`, `steps`, `skipped`) can be read and set between calls, and are
        saved and pickled with the function.
        """
        return found_in(self._user_updates)

    @property
    def precision(self) -> str:
        """The precision of products that passes go by: "float32" where their pass is left out."""
        return self._lowered()

    @property
    def updated(self) -> tuple[Variable, ...]:
        """The variables that a call updates, in order, with the function's own counters."""
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
    def variables(self) -> dict[str, Variable]:
        """The variables that it reads or updates, by name; of equal names all but one get a number.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x, w = mg.input("x", (2,)), mg.var("w", init=[1.0, 2.0])
        >>> mg.function([x], mg.sum(x * w)).variables
        {'w': <variable 'w' float32[2]>}
        """
        by_name: dict[str, Variable] = {}
        nodes = [*self._user_outputs, *(node for pair in self._user_updates for node in pair)]
        for node in topological(nodes):
            if isinstance(node, Variable) and node is not self._random:
                name, number = node.name or "variable", 1
                while name in by_name:
                    number += 1
                    name = f"{node.name}_{number}"
                by_name[name] = node
        return by_name

    @property
    def outputs(self) -> Any:
        """The nodes of its outputs, in the structure in which they were given."""
        return self._structure.build(self._user_outputs)

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

    @documented
    def source(self, step: int) -> str:
        """Return the generated C of a fused step of the plan.

        The functions stand alone: what shares the work out to threads is left off. Extents and
        strides are arguments, so that one source serves all sizes.

        step: Its number in `plan`.
        raises PlanError: The step is a library's, or a copy.

        >>> x = mg.var("x", shape=("n",))
        >>> "expf" in mg.function([x], mg.exp(x) + 1.0).source(0)
        True
        """
        self.compile()
        return str(self._compiled.source(step, None if self.device == "cpu" else self.plan))

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

        `categories()` has them by parameters, optimizer, activations, workspaces, feeds and
        results, `timeline()` by step, with the lines of the program that hold the peak.

        Steps of the kind ``array`` run NumPy's functions, whose own scratch is not in the plan:
        positions made valid in `take`, the order in `argsort`.
        """
        return self._memory_of(self.plan)

    def _memory_for(self, *shapes: tuple[int, ...]) -> Any:
        """Return the bytes planned for feeds of these shapes; nothing of them is allocated."""
        sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return self._memory_of(self.plan_for(sizes))

    def _memory_of(self, plan: Any) -> Any:
        from ..inspect.node_history import step_describer
        from ..passes.lowering.memory import account
        from ..passes.lowering.timeline import timeline

        with compiling_bodies(self._bodies):
            memory = replace(
                account(plan, self._parameters()), bodies=bytes_of_bodies(plan)
            )
        if plan.sizes is None:
            return memory
        categories = {name: int(size) for name, size in memory.held().items()}
        return replace(memory, _timeline=partial(timeline, plan, categories, step_describer(self)))

    def _parameters(self) -> list[Any]:
        """Return the states of the variables that results depend on, but the random step."""
        own = None if self._random is None else self._random.attrs["state"]
        leaves = [n for n in topological(self.source_graph.outputs) if n.op.effect is Effect.STATE]
        states = [node.attrs["state"] for node in leaves]
        return [state for state in states if state is not own]

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

    @documented
    def value(self, node: Node, *feeds: Any, **named: Any) -> Any:
        """Return the value of a node of the program for given feeds; see `debug.values`.

        node: Any node that the outputs or updates were built from.
        *feeds, **named: As for a call; nothing is committed.

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

    def certify(self, *feeds: Any, path: FilePath | None = None, **named: Any) -> Any:
        """Write down what can be proved of this compile, and what was measured on some feeds.

        The certificate has every rewrite, the plan with its memory, errors against float64, and
        digests of the generated sources. ``magmagraph verify FILE`` checks it without the compiler.

        Parameters
        ----------
        feeds, named
            As for a call; nothing is committed. For a target that is not here, their shapes count.
        path
            Where the JSON file is written, if anywhere.

        Returns
        -------
        Certificate
            ``data``, and ``verdict``: what the verifier says, which prints as a table.

        Raises
        ------
        FeedError
            As a call would.
        DataError
            The function runs on several ranks.
        PlanError
            There are no feeds, and sizes of dimensions are not known.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.var("x", shape=("n",))
        >>> found = mg.function([x], mg.log(1 + mg.exp(x))).certify([1.0, 2.0])
        >>> found.verdict.ok, found.data["rewrites"][0]["rule"]
        (True, 'softplus')
        """
        from ..certificate import certify

        with self._as_rank():
            return certify(self, *feeds, path=path, **named)

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
        store = default_choices()
        return peaks(device, machine(device), seen, store, caches(device), compiled=type(self))

    def calibrate(self, *feeds: Any, **named: Any) -> Self:
        """Measure the ranges of what int8 products read, and keep them; returns the function.

        A function of ``precision="int8"`` finds the largest magnitude of each row at each call.
        Once calibrated it rounds by constants instead: less work, and one scale for all rows,
        which loses more digits. Call it for several typical batches: ranges grow.

        Parameters
        ----------
        feeds, named
            As for a call. Variables keep what they hold.

        Raises
        ------
        ConfigError
            The function has another precision, or no product of int8.

        Notes
        -----
        What a later call feeds beyond the ranges is cut to them, and NaN becomes 0.

        Examples
        --------
        >>> import magmagraph as mg
        >>> import numpy as np
        >>> x = mg.input("x", shape=("n", 64))
        >>> W = mg.var("W", init=np.eye(64, dtype="float32"))
        >>> f = mg.function([x], x @ W, precision="int8", device="cpu")
        >>> f.calibrate(np.full((1, 64), 2.54)).calibrate(np.ones((1, 64)))(np.ones((1, 64)))[0, 0]
        np.float32(1.0)
        """
        from ..inspect.calibration import ranges

        with self._as_rank():
            found = ranges(self, feeds, named)
        with self._exclusive():
            before = self._settings["options"].get("activation_ranges") or [0.0] * len(found)
            if len(before) != len(found):
                raise ConfigError(
                    message(
                        f"calibrate finds {len(found)} products of int8, and found {len(before)} "
                        "before",
                        hint="a new function, calibrated with feeds of one kind",
                    )
                )
            largest = [max(pair) for pair in zip(before, found, strict=True)]
            self._settings["options"] = {
                **self._settings["options"], "activation_ranges": largest
            }
            self._forget()
        return self

    def _forget(self) -> None:
        """Forget what was compiled, to be compiled with other settings."""
        self._compiled = self._report = self._last = None
        self._last_shapes = ()
        self._bound.clear()
        self._causes.clear()
        self._spare = {}
        self.trace = Trace()
        with collection_paused():
            self.source_graph = self._frozen(self._user_outputs, self._user_updates, self.trace)

    def ablate(self, *feeds: Any, **named: Any) -> Any:
        """Return the time and memory that each optional pass gains; commits nothing."""
        from ..inspect.ablate import ablate

        with self._as_rank():
            return ablate(self, *feeds, **named)

    def save(self, path: FilePath) -> None:
        """Write the function to an archive, which `mg.load` reads."""
        from .archive import save

        save(self, path)

    @documented
    def export(
        self,
        folder: FilePath,
        language: str = "c",
        *,
        name: str | None = None,
        sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
        blas: bool = False,
        others: Mapping[str, Function] | None = None,
    ) -> None:
        """Write the function, a training step included, as C that needs no Python.

        The folder gets sources, a header with the interface, the variables' values, an example
        and a README with the command that compiles them. The sources of the kernels are those
        that run here. The page "Export to C" of the documentation describes the program.

        folder: Where to write; made where it is not there.
        language: "c". Programs of a GPU are not exported.
        name: What names in C begin with; that of the folder unless given.
        sizes: The sizes of named dimensions, or several sets of sizes; those that the function was
            called with unless given.
        blas: Whether matrix products run by a CBLAS where they do here; else by our own C.
        others: More functions by the end of their name in C, which share variables with this one.
        raises ExportError: Steps have no form in C, or the function runs on a GPU or on several
            ranks; the text names each step with its node, its line and the reason. Nothing is
            written.
        raises FeedError: The sizes are not known, or do not fit.
        raises ConfigError: A name is none in C, or there is no such language.

        >>> import tempfile
        >>> from pathlib import Path
        >>> x = mg.var("x", shape=("n",))
        >>> W = mg.var("W", init=2.0)
        >>> step = mg.function([x], mg.sum(x * W), updates={W: W * 0.5})
        >>> folder = Path(tempfile.mkdtemp()) / "step"
        >>> step.export(folder, sizes={"n": 10})
        >>> "int step_run(int64_t n, const float* x, float* result)" in (
        ...     folder / "step.h").read_text()
        True
        """
        from .export import export

        with self._as_rank():
            export(self, folder, language, name=name, sizes=sizes, blas=blas, others=others)


def check_settings(settings: dict[str, Any]) -> None:
    """Check settings of a function, and replace its options by a copy.

    raises ConfigError: A precision or ``nan=`` is none.
    raises PassError: A pass is unknown or cannot be skipped, or an option is unknown.
    """
    from ..passes import pipeline

    precision, nan = settings["precision"], settings["nan"]
    if precision not in PRECISIONS:
        raise ConfigError(
            message(f"precision={precision!r}", need=f"one of {', '.join(PRECISIONS)}")
        )
    if nan not in ("allow", "raise"):
        raise ConfigError(message(f"nan={nan!r}", need="'allow' or 'raise'"))
    pipeline.check(settings["passes"], settings["skip"])
    settings["options"] = pipeline.check_options(settings["options"])


@record(frozen=True)
class _Bodies:
    """Compile the bodies of loops and branches, with settings of the function around them."""

    settings: tuple[tuple[str, Any], ...]

    def compiled(self, body: Graph) -> Function | None:
        """Return a body graph as a function, or None where its parameters do not say all sizes."""
        fed_extents = {
            str(e) for leaf in body.inputs for e in leaf.shape if isinstance(e, dims.Dim)
        }
        used = {
            name
            for node in body.nodes
            for type_ in (node.type if isinstance(node.type, tuple) else (node.type,))
            for extent in type_.shape
            for name in dims.names(extent)
        }
        attributes = [value for node in body.nodes for value in node.attrs.values()]
        extents = [value for value in attributes if isinstance(value, dims.Dim)]
        if not used.union(*map(dims.names, extents)) <= fed_extents:
            return None
        return self.function(body)

    def function(self, body: Graph) -> Function:
        """Return a body graph as a function of its parameters."""
        leaves = [
            input(f"operand {i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(body.inputs)
        ]
        outputs = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)))
        settings = {"device": "cpu", "default_updates": False, **dict(self.settings)}
        return Function(leaves, outputs, **settings)


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


def work_of(plan: Any) -> float:
    """Return the work of a bound plan, in bytes that take as long; each turn of a loop counts."""
    from ..passes.recompute import step_cost

    total = 0.0
    for step in plan.steps:
        bodies = bodies_of(step.node) if step.role is Role.NESTED else ()
        if not bodies:
            total += step_cost(step)
        turns = extent_of(step.node) if step.node.op is LOOP else 1
        for body in bodies:
            inner = work_of(_as_function(body).plan_for(plan.sizes))
            total += inner * (1 if turns is None else dims.evaluate(turns, plan.sizes))
    return total
