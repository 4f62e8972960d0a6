"""The visible pipeline: which passes run, in which order, and why each stands where it does."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from ..config import config
from ..errors import ConfigError, MagmagraphError, PassError, ShardingError, message
from ..ir import records
from ..ir.graph import Graph, Trace
from ..ir.identity import same_nodes
from ..ir.target import Target
from ..text.writing import dump
from .report import Record, Report

Choose = Callable[[str, Mapping[str, Graph], Mapping[str, int]], str]


@records.record(frozen=True)
class Options:
    """The options of passes.

    Attributes
    ----------
    target
        What the plan is made for.
    hints
        Likely sizes of named dimensions (those of the first feeds): used by cost rules only.
    tuning
        Whether passes may ask for measurements.
    choose
        ``choose(key, candidates, sizes) -> name``: measures small graphs, named, once per machine
        and key. None where nothing can be measured: the passes' own defaults hold then.
    reduce_to_gemv
        "always", "never" or "measured".
    nan
        "allow" or "raise".
    precision, deterministic
        As given to `mg.function`; the precision is "float32" where the pass is left out.
    activation_ranges
        For int8: the largest magnitudes of what the weights' products read, in the order of the
        graph, as `Function.calibrate` measured them; empty where each call measures.
    loss_scale_growth
        After as many steps with finite gradients the scale of float16's losses is doubled.
    distribute
        What is spread over ranks, and how: the plain facts of a strategy; None in one process.
    compile_budget
        Seconds for the whole compile. Passes count their work against it instead of looking at
        the clock, so that equal graphs still compile to equal plans.
    overlap
        Whether collectives run beside the steps that do not read them.
    memory_limit
        Bytes that a call may take; None where there is no limit.
    micro_batches
        Into how many parts the batch is cut; 1 leaves it whole.
    record
        The record of the running pass: where it notes hits, refusals, repairs.
    """

    target: Target = Target()
    hints: Mapping[str, int] = field(default_factory=dict)
    tuning: bool = True
    choose: Choose | None = None
    reduce_to_gemv: str = "measured"
    nan: str = "allow"
    precision: str = "float32"
    activation_ranges: tuple[float, ...] = ()
    loss_scale_growth: int = 2000
    deterministic: bool = False
    distribute: Any = None
    compile_budget: float = 60.0
    overlap: bool = False
    memory_limit: int | None = None
    micro_batches: int = 1
    record: Record = field(default_factory=lambda: Record("none"), compare=False, repr=False)

    @classmethod
    def make(cls, **given: Any) -> Options:
        """Return options from keywords, or raise for an unknown name or value.

        Examples
        --------
        >>> Options.make(hints={"batch": 100}).hints["batch"]
        100
        """
        names = [f.name for f in fields(cls) if f.name != "record"]
        for name in given:
            if name not in names:
                raise PassError(
                    message(f"there is no option {name!r}", need=f"one of {', '.join(names)}")
                )
        given["activation_ranges"] = _ranges(given.get("activation_ranges", ()))
        options = cls(**{"tuning": config.tuning, **given})
        if options.reduce_to_gemv not in ("always", "never", "measured"):
            raise PassError(
                message(
                    f"reduce_to_gemv={options.reduce_to_gemv!r}",
                    need="'always', 'never' or 'measured'",
                )
            )
        if options.loss_scale_growth < 1:
            raise PassError(
                message(f"loss_scale_growth={options.loss_scale_growth}", need="at least 1 step")
            )
        return options


def _ranges(given: Any) -> tuple[float, ...]:
    """Return the ranges of a calibration, which files hold as a list."""
    listed = isinstance(given, (list, tuple))
    if not listed or not all(
        isinstance(largest, (int, float)) and 0 <= largest < float("inf") for largest in given
    ):
        raise PassError(
            message(
                f"activation_ranges={given!r:.60}",
                need="a list of finite magnitudes",
                hint="f.calibrate(*feeds), which measures them",
            )
        )
    return tuple(map(float, given))


PassFunction = Callable[[Graph, Trace, Options], Any]


@records.record(frozen=True)
class Pass:
    """One line of the pipeline.

    Attributes
    ----------
    name
        As `skip=` and reports use it.
    function
        ``function(graph, trace, options) -> Graph`` (`lower`: -> Plan). It returns the same
        graph where it changes nothing.
    optional
        Whether `skip=` may leave it out.
    numerics
        What it does to values: exact, stable, reassoc or half (rows of the tolerance table).
    reason
        Why it stands at this place.
    """

    name: str
    function: PassFunction
    optional: bool
    numerics: str
    reason: str


_NUMERICS = ("exact", "stable", "reassoc", "half")

# Passes whose files lie in a folder of the concept.
_PLACES = {
    "distribute": "distribute.distribute",
    "micro_batches": "distribute.micro_batches",
    "simplify": "simplify.simplify",
    "precision": "precision.precision",
    "layout": "layout.layout",
    "fuse": "fuse.fuse",
    "schedule": "lowering.schedule",
    "memory": "lowering.memory",
    "specialize": "lowering.specialize",
    "lower": "lowering.lower",
    "fuse_products": "lowering.fuse_products",
    "fuse_scans": "lowering.fuse_scans",
    "launches": "lowering.launches",
    "stream": "lowering.stream",
}


def _imported(module: str, function: str, setting: str) -> PassFunction:
    """Return a function that imports its pass when it first runs, and its setting is given."""

    def run_pass(graph: Graph, trace: Trace, options: Options) -> Any:
        if setting and getattr(options, setting) is None:
            return graph
        implementation = getattr(importlib.import_module(f".{module}", __package__), function)
        return implementation(graph, trace, options)

    run_pass.__name__ = function
    run_pass.__module__ = f"{__package__}.{module}"
    return run_pass


def _line(
    name: str, numerics: str, reason: str, *, optional: bool = True, setting: str = ""
) -> Pass:
    return Pass(name, _imported(_PLACES.get(name, name), name, setting), optional, numerics, reason)


DEFAULT: tuple[Pass, ...] = (
    _line(
        "distribute", "reassoc",
        "first: collectives are ordinary nodes that every later pass must see",
        setting="distribute",
    ),
    _line(
        "attention", "stable",
        "on the program's own nodes, whose gradients it finds by differentiating once more",
    ),
    _line(
        "micro_batches", "reassoc",
        "on the program's own nodes, of which it is known what sums over the batch",
        setting="memory_limit",
    ),
    _line(
        "simplify", "stable",
        "before anything looks for patterns: markers, constants and algebra out of the way",
    ),
    _line(
        "contract", "reassoc",
        "after simplify has joined transposes, which become flags of products here",
    ),
    _line(
        "precision", "half",
        "once all products are gemm nodes, and before regions hide what casts would touch",
    ),
    _line(
        "shared_factors", "reassoc",
        "after precision, whose casts copy weights anyway; before accumulate, which adds in place",
    ),
    _line(
        "layout", "reassoc",
        "after precision: the fastest algorithm of a convolution depends on the dtype",
    ),
    _line(
        "accumulate", "reassoc",
        "needs gemm nodes; before fuse, which would take the subtraction into a region",
    ),
    _line(
        "reduce_to_gemv", "reassoc",
        "after accumulate, which scales sums; before fuse, which would take the sums",
    ),
    _line(
        "row_blocks", "reassoc",
        "on products in the precision that they will have, which says how large they are",
    ),
    _line(
        "align_products", "reassoc",
        "after row_blocks, whose blocks are products, too; before fuse, which reads longer rows",
    ),
    _line(
        "join_pieces", "exact",
        "before fuse, which makes kernels of the pieces' copies",
    ),
    _line(
        "fuse", "reassoc",
        "when no pass needs to see single operations any more",
    ),
    _line(
        "recompute", "exact",
        "on the kernels that will run, whose results are what is kept; before their order",
        setting="memory_limit",
    ),
    _line(
        "schedule", "exact",
        "on the kernels that will run: their order decides what is alive together",
        optional=False,
    ),
    _line("memory", "exact", "needs the order: lifetimes are intervals of it", optional=False),
    _line(
        "lower", "exact",
        "last of the graph: every node gets its kernel and its slots; a symbolic plan",
        optional=False,
    ),
    _line(
        "specialize", "exact",
        "at each new set of sizes: offsets and extents bound in the plan, no kernel remade",
        optional=False,
    ),
    _line(
        "fuse_products", "exact",
        "on a CUDA device, when sizes say which products are generated; before memory is laid out",
    ),
    _line(
        "fuse_scans", "exact",
        "after it: a region that works on a product's tiles makes no operand of a scan",
    ),
    _line(
        "launches", "exact",
        "after both: the ends of sums on a product's tiles are launches, too",
        optional=False,
    ),
    _line(
        "stream", "exact",
        "last: what waits for what is known once memory is laid out",
        optional=False,
    ),
)

# Run when feeds give sizes, by `lowering.bind` and the runtime, and not by `run`.
AT_BINDING = ("specialize", "fuse_products", "fuse_scans", "launches", "stream")


def default(*, skip: Sequence[str] = ()) -> tuple[Pass, ...]:
    """Return the pipeline as a tuple of `Pass` records.

    Parameters
    ----------
    skip
        Names of optional passes to leave out.

    Examples
    --------
    >>> [record.name for record in default(skip=("fuse",))][-4:]
    ['fuse_products', 'fuse_scans', 'launches', 'stream']
    """
    check(None, skip)
    return tuple(record for record in DEFAULT if record.name not in skip)


# Options that are for users to set, and the arguments of `mg.function` that set others.
USERS_OPTIONS = ("reduce_to_gemv", "loss_scale_growth", "tuning", "activation_ranges")
SETTINGS = (
    "nan", "precision", "deterministic", "device", "distribute", "compile_budget", "memory_limit"
)  # fmt: skip


def check_options(options: Any) -> dict[str, Any]:
    """Return settings of passes by name; PassError for one that is none, or not for users to set.

    Examples
    --------
    >>> check_options({"reduce_to_gemv": "never"}), check_options(None)
    ({'reduce_to_gemv': 'never'}, {})
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise PassError(
            message(
                f"options={options!r}",
                need="a dict of settings of passes, by name",
                hint=f"options={{{USERS_OPTIONS[0]!r}: ...}}",
            )
        )
    for name in options:
        if name not in USERS_OPTIONS:
            own = name in SETTINGS
            raise PassError(
                message(
                    f"there is no option {name!r}",
                    need=f"one of {', '.join(USERS_OPTIONS)}",
                    hint=f"mg.function(..., {name}=...)" if own else None,
                )
            )
    Options.make(**options)
    return dict(options)


def check(passes: Sequence[Any] | None, skip: Sequence[str] = ()) -> None:
    """Raise `PassError` where a pipeline, or the passes to skip, cannot be had."""
    if isinstance(skip, str):
        raise PassError(message(f"skip={skip!r} is a string", need="a tuple", hint=f"({skip!r},)"))
    if passes is not None and not isinstance(passes, (tuple, list)):
        raise PassError(
            message(
                f"passes={passes!r}",
                need="a tuple of Pass records",
                hint="start from mg.passes.default()",
            )
        )
    pipeline = DEFAULT if passes is None else tuple(passes)
    for record in pipeline:
        if not isinstance(record, Pass):
            name = getattr(record, "__name__", "mine")
            raise PassError(
                message(
                    f"{record!r} in passes= is not a pass",
                    need="Pass records",
                    hint=f"mg.passes.Pass({name!r}, function, True, 'exact', 'why here') of a "
                    "function (graph, trace, options) -> graph; the others are "
                    "mg.passes.default()"
                    if callable(record)
                    else "start from mg.passes.default()",
                )
            )
        if record.numerics not in _NUMERICS:
            raise PassError(
                message(
                    f"the pass {record.name!r} has numerics={record.numerics!r}",
                    need=f"one of {', '.join(_NUMERICS)}: what it does to values",
                )
            )
    names = [record.name for record in pipeline]
    fixed = [record.name for record in DEFAULT if not record.optional]
    for name in skip:
        if name not in names:
            raise PassError(
                message(f"skip names {name!r}, which is not a pass here",
                        need=f"one of {', '.join(n for n in names if n not in fixed)}")
            )
        if name in fixed:
            raise PassError(
                message(
                    f"the pass {name!r} cannot be skipped: nothing would run without it",
                    need=f"one of {', '.join(n for n in names if n not in fixed)}",
                )
            )
    missing = [name for name in fixed if name not in names and name not in AT_BINDING]
    if missing:
        raise PassError(
            message(
                f"passes= lacks {', '.join(missing)}: nothing would run without",
                hint="start from mg.passes.default()",
            )
        )


def run(
    graph: Graph,
    trace: Trace,
    passes: Sequence[Pass] | None = None,
    skip: Sequence[str] = (),
    options: Options | None = None,
) -> tuple[Any, Report]:
    """Send a graph down the pipeline.

    Parameters
    ----------
    graph, trace
        A frozen graph, and what it was frozen from; the trace is added to.
    passes
        In place of the default pipeline; may end before `lower`, and then gives a graph.
    skip
        Names of passes to leave out.
    options
        What passes may know beside the graph.

    Returns
    -------
    result : Plan or Graph
        What the last pass gave.
    report : Report

    Raises
    ------
    PassError
        A pass raised or broke the graph; the text names it, the passes before it, and shows the
        graph that it received.
    ConfigError, ShardingError
        A setting cannot be used, or the program cannot be distributed.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import Trace, freeze
    >>> x = mg.var("x", shape=("n",))
    >>> graph, report = mg.passes.run(
    ...     freeze([x], [mg.log(mg.exp(x))]), Trace(), passes=mg.passes.default()[:4])
    >>> [(record.name, record.before, record.after) for record in report]
    [('distribute', 3, 3), ('attention', 3, 3), ('micro_batches', 3, 3), ('simplify', 3, 1)]
    """
    options = Options.make() if options is None else options
    report = Report()
    report.graph = graph
    result: Any = graph
    done: list[str] = []
    for record in DEFAULT if passes is None else passes:
        if record.name in AT_BINDING:
            continue
        entry = report.start(record.name)
        if record.name in skip:
            entry.skipped = True
            entry.before = entry.after = len(result)
            continue
        before = result
        began = time.perf_counter()
        try:
            result = record.function(before, trace, replace(options, record=entry))
            if not isinstance(result, Graph) and not hasattr(result, "steps"):
                raise PassError(f"it returned {type(result).__name__}, not a graph")
            # Ours are verified in the tests; one of the user's may do what breaks a later pass.
            own = not any(record is line for line in DEFAULT)
            if (own or config.verify) and isinstance(result, Graph):
                _verify(before, result, getattr(options.distribute, "pipeline", None) is not None)
            if isinstance(result, Graph):
                _keep_lines(before, result, trace)
        except (ConfigError, ShardingError):
            raise  # of a setting, or of the program, not of the pass: it names what is wrong
        except Exception as error:
            raise _wrapped(record.name, done, before, error) from error
        entry.milliseconds = (time.perf_counter() - began) * 1e3
        entry.before = len(before)
        entry.after = len(result) if isinstance(result, Graph) else len(result.steps)
        entry.graphs = (before, result)
        done.append(record.name)
        if isinstance(result, Graph):
            report.graph = result
    return result, report


def _keep_lines(before: Graph, after: Graph, trace: Trace) -> None:
    """Give new nodes the user's line of the node that they replace, else of a reader.

    A node notes the line that runs when it is made; within a pass, that is the call which compiles.
    """
    if after is before:
        return
    old_nodes = set(before.nodes)
    for node in reversed(after.nodes):
        if node in old_nodes or node in trace.sources:
            continue
        seen = {node}
        replaced = trace.made_by.get(node)
        while replaced and replaced[2] not in old_nodes and replaced[2] not in seen:
            seen.add(replaced[2])
            replaced = trace.made_by.get(replaced[2])
        if replaced and replaced[2] in old_nodes:
            node.line = replaced[2].line
        elif after.users[node]:
            node.line = after.users[node][0].line


def _verify(before: Graph, after: Graph, staged: bool) -> None:
    """Check a pass's work; where ranks have stages of their own, all that stays are the outputs."""
    if after is before:
        return
    after.verify()
    sides = [("output", before.outputs, after.outputs)]
    if not staged:
        sides.append(("effect", before.effects, after.effects))
        values = [tuple(v for _, v in graph.updates) for graph in (before, after)]
        sides.append(("update", values[0], values[1]))
    for what, old, new in sides:
        if len(old) != len(new):
            raise PassError(f"it left {len(new)} {what}s of {len(old)}")
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            if a.type != b.type:
                raise PassError(f"it changed the type of {what} {i} from {a.type} to {b.type}")
    if not staged and not same_nodes([v for v, _ in before.updates], [v for v, _ in after.updates]):
        raise PassError("it changed which variables are updated")


def _wrapped(name: str, done: Sequence[str], graph: Graph, error: Exception) -> PassError:
    lines = dump(graph, data=False).splitlines()
    if len(lines) > 200:
        lines = [*lines[:100], f"... {len(lines) - 200} more ...", *lines[-100:]]
    own = isinstance(error, MagmagraphError)
    reason = str(error) if own else f"{type(error).__name__}: {error}"
    return PassError(
        message(
            f"the pass {name!r} failed: {reason}",
            hint=f"skip=({name!r},) leaves it out, if it is optional",
        )
        + f"\n  passes before it: {', '.join(done) or 'none'}\n  it received:\n"
        + "\n".join("    " + line for line in lines)
    )
