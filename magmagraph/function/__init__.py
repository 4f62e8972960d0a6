"""`mg.function`: the front door. This folder and the command line are all that sees all rooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import dims
from ..arguments import check_budget, check_inputs, check_leaves, check_updates, random_step
from ..collection import collection_paused
from ..config import config
from ..defaults import default_updates as carried_updates
from ..distributed import strategies
from ..errors import ConfigError, message
from ..graph import Graph, Node, Trace, freeze
from ..interpret import BodyCompiler
from ..ops.control.identities import ALWAYS, MARKER
from ..ops.convert import as_node
from ..ops.leaf import input
from ..ops.random.basic import RANDOM_STEP
from ..records import record
from ..transforms.rebuild import rebuild
from .calling import Called
from .devices import device_arrays, synchronize, usable
from .loss_scale import counters
from .showing import Shown
from .structure import Structure

__all__ = ["PRECISIONS", "Function", "device_arrays", "function", "synchronize"]

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


class Function(Called, Shown):
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
        self.device = usable(device)
        for option, given in (
            ("default_updates", default_updates),
            ("strict_feeds", strict_feeds),
            ("deterministic", deterministic),
        ):
            if given not in (True, False):
                raise ConfigError(message(f"{option}={given!r}", need="True or False"))
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
        }
        self._settings["options"] = options
        check_settings(self._settings)
        self.strict_feeds = strict_feeds
        self._random = step
        self._effects: tuple[Node, ...] = ()  # observers without a node that passes a value on
        self._freeze()

    @property
    def _bodies(self) -> BodyCompiler:
        return _Bodies(self._inner)

    def _freeze(self) -> None:
        self.trace = Trace()
        with collection_paused():
            self.source_graph = self._frozen(self._user_outputs, self._user_updates, self.trace)
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
        """Return the source graph that one process would run: before a strategy spread it."""
        if self._settings["distribute"] is None:
            return self.source_graph
        return self._frozen(*self._program, Trace())

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


def check_settings(settings: dict[str, Any]) -> None:
    """Check settings of a function, and replace its options by a copy.

    Raises
    ------
    ConfigError
        A precision or ``nan=`` is none.
    PassError
        A pass is unknown or cannot be skipped, or an option is unknown.
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


def function(
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
) -> Function:
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
    device
        "auto" (a GPU where one can be used), "cpu", "cuda", or "cuda:1".
    precision
        "float32", "tf32", "float16" or "bfloat16": in what float32 products, convolutions and
        attention may be computed; types stay, and gradients in float16 are scaled, see
        `Function.loss_scale`.
    passes
        Passes in place of the pipeline, see `mg.passes.default`.
    skip
        Names of optional passes to leave out.
    distribute
        How it is spread over ranks: `mg.distributed.DataParallel`, say.
    name
        What reports and messages call it.
    nan
        "allow", or "raise": a call whose results or updates are not finite raises and changes
        nothing.
    default_updates
        False leaves out the updates that nodes carry, see `stateful`.
    strict_feeds
        Whether feeds must have the inputs' own dtypes.
    deterministic
        True: the same bits in every run on a machine, also where trials would choose another
        algorithm, or a GPU's gradient of attention is faster when its sums take any order.
    compile_budget
        Seconds after which kernels that are not built yet run in NumPy;
        `mg.config.compile_budget` unless given.
    options
        Settings of passes by name: ``reduce_to_gemv`` ("always", "never" or "measured"),
        ``loss_scale_growth`` (steps with finite gradients after which float16's scale doubles),
        ``tuning`` (whether passes may measure).

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
    return Function(
        inputs,
        outputs,
        updates,
        device=device,
        precision=precision,
        passes=passes,
        skip=skip,
        distribute=distribute,
        name=name,
        nan=nan,
        default_updates=default_updates,
        strict_feeds=strict_feeds,
        deterministic=deterministic,
        compile_budget=compile_budget,
        options=options,
    )


@record(frozen=True)
class _Bodies:
    """Compile the bodies of loops and branches, with settings of the function around them."""

    settings: tuple[tuple[str, Any], ...]

    def compiled(self, body: Graph) -> Function | None:
        """Return a body graph as a function, or None where its parameters do not say all sizes."""
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
        return self.function(body)

    def function(self, body: Graph) -> Function:
        """Return a body graph as a function of its parameters."""
        leaves = [
            input(f"operand {i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(body.inputs)
        ]
        outputs = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)))
        settings = {"device": "cpu", "default_updates": False, **dict(self.settings)}
        return Function(leaves, outputs, **settings)
