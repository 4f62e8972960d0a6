"""`mg.function`: the front door. The only file of the language that sees all rooms."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from . import dims
from .arguments import check_inputs, check_leaves, check_updates, random_step, resolved_device
from .collection import collection_paused
from .communicator import MAKERS, Communicator, current, using
from .config import config
from .cores import REPLACE_THREADS
from .defaults import default_updates as carried_updates
from .distributed import THREADS, strategies
from .distributed.matching import agree, is_communal, with_open_shapes
from .distributed.matching import check as check_matching
from .distributed.sources import are_equal
from .epochs import repeated, run_batches, stack
from .errors import ConfigError, MagmagraphError, NonFiniteError, message
from .feeds import Signature, bind_sizes, check_targets, conform
from .graph import Graph, Node, Trace, freeze
from .interpret import COMPILE, FUNCTION_OF, Settings, body_function, body_settings
from .loss_scale import LossScale, counters, found_in
from .ops.control.identities import ALWAYS, MARKER
from .ops.convert import as_node
from .ops.leaf import Variable, input
from .ops.random.basic import RANDOM_STEP
from .rebuild import rebuild
from .structure import Structure

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


class Function:
    """A compiled graph: define once, run many times. Made by `mg.function`."""

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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.device = _usable(device)
        if precision not in PRECISIONS:
            raise ConfigError(
                message(f"precision={precision!r}", need=f"one of {', '.join(PRECISIONS)}")
            )
        if nan not in ("allow", "raise"):
            raise ConfigError(message(f"nan={nan!r}", need="'allow' or 'raise'"))
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
        if strategy is not None:
            nodes, pairs = strategy.prepared(nodes, pairs)
        check_leaves(self._inputs, nodes, pairs)
        self._user_outputs = nodes
        self._user_updates = pairs
        self._settings: dict[str, Any] = {
            "precision": precision,
            "passes": None if passes is None else tuple(passes),
            "skip": tuple(skip),
            "nan": nan,
            "deterministic": deterministic,
            "compile_budget": config.compile_budget if compile_budget is None else compile_budget,
            "options": dict(options or {}),
            "distribute": strategy,
        }
        from .passes import pipeline

        pipeline.check(self._settings["passes"], self._settings["skip"])
        self.strict_feeds = strict_feeds
        self._random = step
        self._effects: tuple[Node, ...] = ()  # observers without a node that passes a value on
        self._freeze()

    def _freeze(self) -> None:
        self.trace = Trace()
        #: The graph as it was frozen, before any pass.
        with collection_paused():
            self.source_graph: Graph = freeze(
                self._inputs,
                self._user_outputs,
                self._user_updates,
                trace=self.trace,
                leaves={} if self._random is None else {RANDOM_STEP: self._random},
                effects=self._effects,
                observed=True,
            )
        self._start()

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
        shared = self._settings.get("distribute") is not None or is_communal(self.source_graph)
        self._communicator: Communicator | None = current() if shared else None
        self._open: tuple[Node, ...] = ()  # collectives whose extents a call tells
        self._exchange: Any = None  # of changes, where ranks do not wait for each other's steps
        self._signature = Signature(self._inputs)
        self._wanted = [
            (node.dtype, node.shape) for node in self._inputs
        ]
        self._lock = threading.RLock()
        self._compiled: Any = None
        self._report: Any = None
        self._bound: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._causes: dict[tuple[tuple[int, ...], ...], str] = {}
        self._last: Any = None
        self._last_shapes: tuple[tuple[int, ...], ...] = ()

    # ------------------------------------------------------------------ compiling

    def compile(self, hints: Mapping[str, int] | None = None) -> Function:
        """Run the passes now (the first call does it otherwise); returns the function.

        Parameters
        ----------
        hints
            Likely sizes of named dimensions, which cost rules use; the first call gives its own.
        """
        with self._lock, collection_paused():
            if self._compiled is None:
                from .passes import pipeline
                from .runtime.execute import arena_layout, begin, prepare, threads

                begin(self.device)
                began = time.perf_counter()
                settings = self._settings
                world = self._communicator
                sizes = dict(hints or {})
                overlap = world is not None and (self.device != "cpu" or world.overlaps)
                choose: pipeline.Choose = partial(_choose, device=self.device)
                equal = True
                if world is not None and world.size > 1:
                    # Plans are equal where nothing that they are made from differs.
                    about = f"making the plan of {self.name or 'a function'}"
                    sizes, overlap = world.from_first((sizes, overlap), about)
                    equal = are_equal(self.source_graph, self._group(), world, self.name)
                facts = self._facts()
                alike = strategies.alike(facts, world)
                if alike is not None and alike.size > 1 and equal:
                    choose = partial(_chosen_by_first, alike, choose)
                options = pipeline.Options.make(
                    hints=sizes,
                    threads=threads(self.device),
                    nan=settings["nan"],
                    precision=self._lowered(),
                    deterministic=settings["deterministic"],
                    device=self.device,
                    spread=arena_layout(self.device)[1],
                    compile_budget=settings["compile_budget"],
                    choose=choose,
                    overlap=overlap,
                    distribute=facts,
                    **settings["options"],
                )
                plan, self._report = pipeline.run(
                    self.source_graph,
                    self.trace,
                    passes=settings["passes"],
                    skip=settings["skip"],
                    options=options,
                )
                if world is not None:
                    check_matching(plan, world, self.name)
                    self._open = with_open_shapes(plan) if alike is world and world.size > 1 else ()
                now = time.perf_counter()
                left = settings["compile_budget"] - (now - began)
                began = now
                self._compiled = prepare(plan, device=self.device, budget=left)
                self._report.note_kernels(
                    (time.perf_counter() - began) * 1e3, self._compiled.describe()
                )
        return self

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
        strategies.settle(self.source_graph, facts, strategy.own_variables())
        if not strategy.asynchronous:
            return facts
        self._exchange = strategy.begin(self._user_outputs, self._user_updates)
        return None

    def _lowered(self) -> str:
        """Return the precision that the passes may use: float32 without the pass for others."""
        there = any(record.name == "precision" for record in self.passes)
        return str(self._settings["precision"]) if there else "float32"

    def _specialize(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Return the plan bound to these feed shapes, from the LRU or made now."""
        with self._as_rank(), body_settings(self._inner):
            return self._bound_for(shapes)

    @property
    def _inner(self) -> Settings:
        """What bodies of loops and branches are compiled with, where it is not the default."""
        usual = {"passes": None, "skip": (), "deterministic": False}
        given = self._settings
        return tuple((name, given[name]) for name in usual if given[name] != usual[name])

    def _bound_for(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        bound = self._bound.get(shapes)
        if bound is None:
            sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
            self.compile(sizes)
            from .passes import specialize
            from .runtime.execute import arena_layout

            with collection_paused():
                plan = specialize.specialize(
                    self._compiled.plan, sizes, *arena_layout(self.device)
                )
                bound = self._compiled.bind(plan)
            self._causes[shapes] = self._cause(sizes)
            self._bound[shapes] = bound
            while len(self._bound) > max(1, config.specializations):
                dropped, _ = self._bound.popitem(last=False)
                self._causes.pop(dropped, None)
        else:
            self._bound.move_to_end(shapes)
        self._last, self._last_shapes = bound, shapes
        return bound

    def specialize(self, *shapes: tuple[int, ...]) -> Function:
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
        with self._lock:
            self._specialize(tuple(tuple(map(int, shape)) for shape in shapes))
        return self

    def bound_to(self, sizes: Mapping[str, int]) -> Any:
        """Return the plan bound anew to sizes, apart from what calls use: for a plan around it."""
        plan = self.plan_for(sizes)
        with body_settings(self._inner):
            return self._compiled.bind(plan)

    def plan_for(self, sizes: Mapping[str, int]) -> Any:
        """Return the plan for sizes of the named dimensions, without memory of its own yet."""
        with self._lock:
            self.compile(sizes)
            from .passes import specialize
            from .runtime.execute import arena_layout

            with collection_paused():
                layout = arena_layout(self.device)
                return specialize.specialize(self._compiled.plan, sizes, *layout)

    def _cause(self, sizes: Mapping[str, int]) -> str:
        if not self._bound:
            return "first call"
        before = next(reversed(self._bound.values())).plan.sizes or {}
        changed = [f"{k}: {before.get(k)} -> {v}" for k, v in sizes.items() if before.get(k) != v]
        return ", ".join(changed)

    # ------------------------------------------------------------------ running

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
        if named or len(feeds) != len(self._inputs) or (feeds and type(feeds[0]) is dict):
            feeds = tuple(self._signature.arrange(feeds, named))
        with self._lock:
            bound = self._last
            if bound is not None:
                for value, (dtype, _), shape in zip(
                    feeds, self._wanted, self._last_shapes, strict=True
                ):
                    if not (
                        type(value) is np.ndarray
                        and value.dtype is dtype
                        and value.shape == shape
                        and value.flags.c_contiguous
                        and value.flags.aligned
                    ):
                        break
                else:
                    return self._results(bound, feeds, out)
            arrays = [
                conform(self._brought(value), node, self.strict_feeds)
                for value, node in zip(feeds, self._inputs, strict=True)
            ]
            with collection_paused():  # a first run makes much that stays, too
                bound = self._specialize(tuple(array.shape for array in arrays))
                return self._results(bound, arrays, out)

    def _results(self, bound: Any, feeds: Sequence[Any], out: Any) -> Any:
        """Run, and return what the caller gets."""
        if self._exchange is None:
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
        if type(value) is np.ndarray or not hasattr(value, "__dlpack_device__"):
            return value
        from .runtime.execute import received

        return received(value, self.device)

    def _run(self, bound: Any, feeds: Sequence[Any], out: Any = None) -> Any:
        try:
            if self._communicator is None:
                return bound.run(feeds, out)
            with using(self._communicator):
                if self._open:
                    agree(self._open, bound.plan.sizes or {}, self._communicator)
                return bound.run(feeds, out)
        except MagmagraphError as error:
            if error.node is not None:
                from .inspect.fate import locate

                locate(self, error)
            if isinstance(error, NonFiniteError):
                from .inspect.blame import append_blame

                append_blame(self, feeds, error)
            raise

    def run(self, batches: Any, feeds: Any = None, *, keep: str = "all") -> Any:
        """Repeat the call: over an iterable of feeds, or `n` times with the same feeds.

        On a CUDA device several steps are one captured graph, and a `mg.batches` object's rows
        stay on the device, where they fit: nothing returns to Python between steps. Results and
        variables are those of calls, bit for bit.

        Parameters
        ----------
        batches
            An iterable of feeds (tuples, dicts, or single arrays), or a number of calls.
        feeds
            With a number of calls: the feeds of each.
        keep
            ``"all"`` stacks each output over the steps, or lists them where their shapes differ
            (rows of a last, partial batch); ``"last"`` returns the last. Without any step a
            stack has no rows (and is an empty list where an extent is known only at a call), and
            the last is None.
        """
        if keep not in ("all", "last"):
            raise ConfigError(message(f"keep={keep!r}", need="'all' or 'last'"))
        if self.device != "cpu":
            found = self._run_there(batches, feeds, keep == "all")
            if found is not None:
                return self._structure.build(found)
        several: Iterable[Any]
        if isinstance(batches, (int, np.integer)):
            several = (() if feeds is None else feeds for _ in range(int(batches)))
        else:
            several = batches
        stacked: list[list[Any]] = []
        result: Any = None
        for batch in several:
            if isinstance(batch, Mapping):
                result = self(batch)
            elif isinstance(batch, tuple):
                result = self(*batch)
            else:
                result = self(batch)
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
        from .data.batching import Batches
        from .runtime.execute import resident

        strategy = self._settings.get("distribute")
        if strategy is not None and strategy.asynchronous:
            return None
        with self._lock, collection_paused():
            if isinstance(batches, (int, np.integer)):
                if batches < 1:
                    return None
                given = () if feeds is None else feeds if isinstance(feeds, tuple) else (feeds,)
                arrays = [
                    conform(self._brought(value), node, self.strict_feeds)
                    for value, node in zip(
                        self._signature.arrange(given, {}), self._inputs, strict=True
                    )
                ]
                return repeated(self._specialize, int(batches), arrays, stacked)
            if type(batches) is not Batches or not len(batches) or batches.shard[1] > 1:
                return None
            if len(batches.arrays) != len(self._inputs):
                return None  # a call says what is missing
            return run_batches(
                self._specialize, self._inputs, batches, stacked, self.strict_feeds,
                partial(resident, device=self.device),
            )

    def _stacks_of_none(self, feeds: Any) -> list[Any]:
        """Return what `run` stacks for each output where it takes no step."""
        sizes: dict[str, int] = {}
        if feeds is not None:
            given = feeds if isinstance(feeds, tuple) else (feeds,)
            values = self._signature.arrange(given, {})
            arrays = map(partial(conform, strict=self.strict_feeds), values, self._inputs)
            shapes = [array.shape for array in arrays]
            sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return [
            np.empty((0, *(dims.evaluate(e, sizes) for e in node.shape)), node.dtype)
            if all(dims.names(e) <= sizes.keys() for e in node.shape)
            else []
            for node in self._user_outputs
        ]

    # ------------------------------------------------------------------ seeing

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
            with self._lock:
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
        with body_settings(self._inner):
            return tuple(
                body_function(body).compile()
                for step in self.plan.steps
                if step.kernel in _NESTED
                for body in _bodies(step.node)
            )

    @property
    def memory(self) -> Any:
        """Bytes planned: arena, workspaces, feeds, results, variables, before anything runs.

        Steps of the kind ``array`` run NumPy's functions, whose own scratch is not in the plan:
        positions made valid in `take`, the order in `argsort`.
        """
        from .passes.memory import account

        plan = self.plan
        with body_settings(self._inner):
            return replace(account(plan), bodies=_bytes_of_bodies(plan))

    @property
    def specializations(self) -> list[tuple[dict[str, int], str]]:
        """The sets of sizes that are bound now, each with the dimension that caused it."""
        return [
            (dict(bound.plan.sizes or {}), self._causes[shapes])
            for shapes, bound in self._bound.items()
        ]

    @property
    def passes(self) -> tuple[Any, ...]:
        """The passes that it is compiled with, in order: a record each."""
        from .passes import pipeline

        chosen = self._settings["passes"]
        skip = self._settings["skip"]
        records = pipeline.DEFAULT if chosen is None else chosen
        return tuple(record for record in records if record.name not in skip)

    def explain(self, node: Node) -> Any:
        """Return what became of a node, through every pass, down to the kernel."""
        from .inspect.explain import explain

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
        from .inspect.values import values

        with self._as_rank():
            return values(self, [node], *feeds, **named)[0]

    def check(self, *feeds: Any, **named: Any) -> Any:
        """Compare every pass and the run with the source graph in float64; commits nothing."""
        from .inspect.check import check

        with self._as_rank():
            return check(self, *feeds, **named)

    def profile(self, *feeds: Any, **named: Any) -> Any:
        """Return time, bytes and arithmetic of each step under its roofs; commits nothing.

        The machine's peaks are measured at the first profile (some seconds) and kept; where
        tuning is off nothing is measured, and there are no roofs.
        """
        from .inspect.profile import profile

        with self._as_rank():
            return profile(self, *feeds, peaks=self._peaks, **named)

    def _peaks(self, seen: Mapping[str, float]) -> Any:
        """Return what this function's device does at best, None without tuning; see `peaks`."""
        if not config.tuning:
            return None
        from .inspect.peaks import peaks
        from .runtime.cache import default_choices
        from .runtime.machine import machine

        return peaks(self.device, machine(self.device), seen, default_choices())

    def ablate(self, *feeds: Any, **named: Any) -> Any:
        """Return the time and memory that each optional pass gains; commits nothing."""
        from .inspect.ablate import ablate

        with self._as_rank():
            return ablate(self, *feeds, **named)

    def save(self, path: Any) -> None:
        """Write the function to an archive, which `mg.load` reads."""
        from .archive import save

        save(self, path)

    def __repr__(self) -> str:
        label = f" '{self.name}'" if self.name else ""
        names = ", ".join(node.name or "?" for node in self._inputs)
        state = "not compiled yet" if self._compiled is None else f"{len(self.plan.steps)} steps"
        return f"<function{label} ({names}) -> {len(self._user_outputs)} outputs, {state}>"

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
        self._freeze()


def function(inputs: Sequence[Node], outputs: Any, updates: Any = None, **options: Any) -> Function:
    """Compile a graph into a callable.

    Parameters
    ----------
    inputs
        Input nodes, in the order of positional feeds.
    outputs
        A node, a list, tuple or (nested) dict of nodes, or None: the result has the same form.
    updates
        ``{variable: new value}`` (or pairs). All see the values from before the call and land
        together or not at all.
    **options
        ``device`` ("auto", "cpu", "cuda", "cuda:1"), ``precision`` ("float32", "tf32", "float16"
        or "bfloat16": in what float32 products, convolutions and attention may be computed; types
        stay, and gradients in float16 are scaled, see `Function.loss_scale`), ``distribute`` (how
        it is spread over ranks: `mg.distributed.DataParallel`, say), ``passes`` (a tuple
        in place of the pipeline), ``skip`` (names of optional passes), ``name``, ``nan`` ("allow"
        or "raise": a call whose results or updates are not finite raises and changes nothing),
        ``default_updates`` (False leaves out those that nodes carry, see `stateful`),
        ``strict_feeds``, ``deterministic``, ``compile_budget`` (seconds).

    Returns
    -------
    Function

    Raises
    ------
    GraphError, UpdateError, PassError, DeviceError
        An input that is not one, an input that is missing, a variable updated twice, an update
        of something else, an unknown pass or device.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=(3,))
    >>> f = mg.function([x], mg.sum(x * 2.0))
    >>> f([1.0, 2.0, 3.0])
    array(12., dtype=float32)
    """
    return Function(inputs, outputs, updates, **options)


def _compile_body(body: Graph, settings: Settings) -> Function | None:
    """Return a body graph as a function, or None where its parameters do not tell all sizes."""
    known = {str(e) for leaf in body.inputs for e in leaf.shape if isinstance(e, dims.Dim)}
    used = {
        name
        for node in body.nodes
        for type_ in (node.type if isinstance(node.type, tuple) else (node.type,))
        for extent in type_.shape
        for name in dims.names(extent)
    }
    attributes = [value for node in body.nodes for value in node.attrs.values()]
    held = [value for value in attributes if isinstance(value, dims.Dim)]
    if not used.union(*map(dims.names, held)) <= known:
        return None
    return _function_of(body, settings)


def _bytes_of_bodies(plan: Any) -> int:
    """Return the bytes that the bodies of a plan's loops and branches have for themselves."""
    if plan.sizes is None:
        return 0
    total = 0
    for step in plan.steps:
        if step.kernel in _NESTED:
            for value in step.outputs[: step.node.attrs.get("carries", 0)]:
                total += 2 * int(value.type.bytes)
            for body in _bodies(step.node):
                inner = body_function(body).plan_for(plan.sizes)
                total += inner.arena + _bytes_of_bodies(inner)
    return total


_NESTED = ("loop", "branch")  # families of steps whose bodies are functions of their own


def _bodies(node: Node) -> tuple[Graph, ...]:
    attrs = node.attrs
    return tuple(attrs["bodies"]) if "bodies" in attrs else (attrs["body"],)


def _function_of(body: Graph, settings: Settings) -> Function:
    """Return a body graph as a function of its parameters."""
    leaves = [input(f"operand {i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(body.inputs)]
    made = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)))
    return Function(leaves, made, device="cpu", default_updates=False, **dict(settings))


def _world() -> Communicator:
    """Return the communicator that this process was started with."""
    from .runtime.comm import world

    return world()


def _threads(*given: Any, **options: Any) -> list[Any]:
    """Run ranks as threads."""
    from .runtime.comm.threads import run_threads

    return run_threads(*given, **options)


def _replace_threads(count: int | None) -> int | None:
    """Set the threads of kernels and BLAS, and return what was set before."""
    from .runtime.numpy.threads import replace_threads

    return replace_threads(count)


MAKERS.append(_world)
THREADS.append(_threads)
REPLACE_THREADS.append(_replace_threads)
COMPILE.append(_compile_body)
FUNCTION_OF.append(_function_of)


def synchronize(device: str = "auto") -> None:
    """Wait until a device has done all that was asked of it; a CPU's calls return done.

    Parameters
    ----------
    device
        As for `function`.

    Raises
    ------
    DeviceError
        There is no such device.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.synchronize("cpu")
    """
    from .runtime.execute import synchronize as wait

    wait(_usable(device))


def device_arrays(number: int) -> Any:
    """Return what `mg.Tensor` makes arrays of a CUDA device with, or raise `DeviceError`."""
    from .runtime.execute import arrays

    return arrays(number)


def _usable(device: str) -> str:
    """Return the full name of a device that works here, or raise `DeviceError`."""
    from .runtime.execute import best, usable

    wanted = resolved_device(device)
    return best() if wanted == "auto" else usable(wanted)


def _chosen_by_first(
    world: Communicator,
    choose: Any,
    key: str,
    candidates: Mapping[str, Graph],
    hints: Mapping[str, int],
) -> str:
    """Return what rank 0 chooses, on every rank."""
    return str(world.from_first(choose(key, candidates, hints) if world.rank == 0 else None))


def _choose(
    key: str, candidates: Mapping[str, Graph], hints: Mapping[str, int], device: str = "cpu"
) -> str:
    """Return the fastest of some graphs: a pass asks, the runtime measures, once per machine."""
    from .passes import pipeline, specialize
    from .passes.buffers import UNKNOWN_EXTENT
    from .runtime.execute import threads
    from .runtime.trial import fastest

    def planned(graph: Graph) -> Any:
        options = pipeline.Options.make(
            hints=dict(hints), threads=threads(device), tuning=False, device=device
        )
        first = next(i for i, record in enumerate(pipeline.DEFAULT) if record.name == "fuse")
        plan, _ = pipeline.run(graph, Trace(), passes=pipeline.DEFAULT[first:], options=options)
        unknown = {name for slot in plan.slots for name in dims.names(slot.size)}
        return specialize.specialize(plan, {**dict.fromkeys(unknown, UNKNOWN_EXTENT), **hints})

    made = {name: partial(planned, graph) for name, graph in candidates.items()}
    return fastest(key, made, device)
