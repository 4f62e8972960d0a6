"""The base of all optimizers: rates, groups, clipping, accumulation, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..autodiff.autodiff import grad
from ..config import config
from ..distributed.training import warn_of_copies
from ..dtypes import promote
from ..errors import ConfigError, UpdateError, message
from ..function import Function, function
from ..help.argument_errors import tell_methods
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import group_of, open_group
from ..ops.convert import as_dtype, as_node
from ..ops.elementwise.arithmetic import add, multiply
from ..ops.elementwise.comparison import equal, where
from ..ops.leaf import Variable
from ..schedule import at
from .clip import clip_by_norm, clip_by_value
from .groups import Group, entries, targets
from .memory import Memory
from .minimize import MinimizeResult, minimize, no_variable
from .rate import Rate, RateLike
from .settings import check_settings
from .state import VariableState

__all__ = ["Optimizer"]

INT64 = np.dtype(np.int64)


@documented
class Optimizer:
    """The base of all optimizers. Subclass it with one method, `update`.

    learning_rate (float, schedule, callable, or Node): A number; a function of the step
        (`mg.schedule`, or your own, from the int64 step, which counts from 0); or a scalar node.
        There is always a variable underneath, `learning_rate`, which can be set between calls.
    clip_value (float, optional): Every gradient's elements are limited to ``[-clip_value,
        clip_value]``.
    clip_norm (float, optional): All gradients are scaled by one factor so that their global norm is
        at most this. Clipping by value comes first.
    accumulate (int, optional): Calls per step: the mean of so many calls' gradients makes one step.
        With ``distribute=DataParallel()`` ranks add up their own, and exchange the sum at that call
        (with ``precision="float16"`` at each, which asks whether all gradients are finite).
    **settings: Settings of the rule, which a parameter group may override. `update` finds them in
        ``state.options``.

    >>> class SignDescent(mg.optimizer.Optimizer):
    ...     def update(self, variable, gradient, state):
    ...         return variable - state.learning_rate * mg.sign(gradient)
    >>> x = mg.var("x", init=1.0)
    >>> round(float(SignDescent(0.25).minimize(x**2, [x], steps=3).history[-1]), 4)
    0.0625

    Groups of variables with settings of their own are a list of dicts:

    >>> w, b = mg.var("w", init=1.0), mg.var("b", init=1.0)
    >>> optimizer = mg.optimizer.SGD(0.25, weight_decay=0.5)
    >>> step = optimizer.step(
    ...     w + b, [{"wrt": [w]}, {"wrt": [b], "learning_rate": 0.5, "weight_decay": 0.0}])
    >>> step(), w.value, b.value
    (None, array(0.625, dtype=float32), array(0.5, dtype=float32))
    """

    #: From (included) and to (not included) of settings by name, in groups, too.
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Have it explain why arguments do not fit."""
        super().__init_subclass__(**options)
        tell_methods(cls, ("__init__",))

    def __init__(
        self,
        learning_rate: RateLike,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        **settings: Any,
    ) -> None:
        for name, limit in (("clip_value", clip_value), ("clip_norm", clip_norm)):
            if limit is not None and not isinstance(limit, Node) and not limit > 0:
                raise ConfigError(message(f"{name}={limit}", need=f"{name} > 0"))
        if not isinstance(accumulate, int) or accumulate < 1:
            raise ConfigError(message(f"accumulate={accumulate!r}", need="an int of at least 1"))
        self.clip_value = clip_value
        self.clip_norm = clip_norm
        self.accumulate = accumulate
        check_settings(type(self).__name__, settings, self.ranges)
        self.settings: dict[str, Any] = settings
        self._rate = Rate(learning_rate, "learning_rate")
        self._group_rates: dict[tuple[Variable, ...], Rate] = {}
        self._memory = Memory()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ..help.spellings import OF_OPTIMIZER

            if name not in OF_OPTIMIZER:
                return object.__getattribute__(self, name)  # it raises as it did
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message(text, hint=OF_OPTIMIZER[name]), name=name, obj=self)

    # What a subclass gives.

    @documented
    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return a variable's new value.

        variable (Variable): Its value from before the step.
        gradient (Node): Of the variable's shape and dtype; clipped, and a mean where calls are
            accumulated.
        state (VariableState): What is remembered of it: ``state.zeros("m")``, ``state["m"] = ...``,
            ``state.learning_rate``, ``state.step`` (from 1), ``state.options``.
        returns: Of the variable's shape and dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update method")

    # What it remembers.

    @property
    def learning_rate(self) -> Variable:
        """The rate's variable; ``optimizer.learning_rate = 0.01`` sets its value between calls.

        So does ``optimizer.learning_rate.value = 0.01``. For a schedule it holds the coming step's
        rate (so that what `value` is set to lasts for one step), for a node the rate used last.
        Before the first step is built, another schedule may be set, too.
        """
        return self._memory.register("learning_rate", self._rate.held())

    @learning_rate.setter
    def learning_rate(self, value: RateLike) -> None:
        rate = Rate(value, "learning_rate")
        if "learning_rate" not in self._memory.variables:  # nothing is built with the old one
            self._rate = rate
            return
        if self._rate.fixed is None or rate.fixed is None:
            raise ConfigError(
                message(
                    f"the learning rate {self._rate.given!r} is set to {value!r}",
                    need="numbers, once a step is built: a schedule is a part of the step",
                    hint="a new optimizer, or .learning_rate.value = number, for the coming step",
                )
            )
        self.learning_rate.assign(rate.fixed)

    def _follow_schedule(self) -> None:
        """Set the rate's variable to what a schedule gives for the coming step."""
        if self._rate.scheduled:
            steps = self._memory.variables.get("step")
            coming = 0 if steps is None else int(steps.value)
            self.learning_rate.assign(at(self._rate.given, coming))

    @property
    def state(self) -> dict[str, Variable]:
        """Every variable made so far, by name: the rates, the step, and each variable's own."""
        return dict(self._memory.variables)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the values of all variables of `state`, for `load_state_dict`."""
        return self._memory.save()

    @documented
    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Variables that are not made yet take their values when `updates` makes them.

        saved (mapping from names to arrays):
        raises ShapeError, DTypeError: Where an array does not fit its variable.
        """
        self._memory.load(saved)

    # Updates.

    @documented
    def updates(self, loss: Node, wrt: Any) -> dict[Variable, Node]:
        """Build one step as a graph.

        loss (Node): A float scalar.
        wrt (Variable, nested list, tuple or dict of variables, or list of groups): A group is a
            dict with the key "wrt" and settings of its own: "learning_rate", and any setting of the
            rule.
        returns (dict): ``{variable: new value}``, with the optimizer's own variables: those of its
            state; the step, where the rule, a schedule or accumulation reads it; the rate, where it
            changes.
        raises UpdateError: Where a target is not a variable, or is given twice.
        raises ConfigError: Where a group has a setting that the rule has not.
        raises GradientError: As `mg.grad`.
        """
        groups = self._groups(wrt)
        variables = [target for group in groups for target in group.variables]
        gradients = self.gradients(loss, variables)
        with open_group(group_of(type(self).__name__, "function")):
            return self._build(groups, gradients)

    def gradients(self, loss: Node, variables: list[Variable]) -> list[Node]:
        """Return the gradients that a step takes: those of `mg.grad`, unless a rule has others."""
        found: list[Node] = grad(loss, variables)
        return found

    @documented
    def apply_gradients(self, gradients: Mapping[Variable, Any]) -> dict[Variable, Node]:
        """Build one step from gradients of your own making.

        gradients (dict): ``{variable: gradient}``; a gradient has the variable's shape.
        returns (dict): As `updates`.
        """
        groups = self._groups(list(gradients))
        with open_group(group_of(type(self).__name__, "function")):
            nodes = [as_dtype(g, target.dtype) for target, g in gradients.items()]
            return self._build(groups, nodes)

    def _groups(self, wrt: Any) -> list[Group]:
        groups: list[Group] = []
        seen: set[Variable] = set()
        for members, own in entries(wrt, self.settings):
            check_settings(type(self).__name__, own, self.ranges)
            found = targets(members, seen)
            rate = self._rate
            if "learning_rate" in own and found:
                name = f"learning_rate/{self._memory.label(found[0])}"
                given = Rate(own.pop("learning_rate"), name)
                rate = self._group_rates.setdefault(found, given)
            groups.append(Group(found, rate, {**self.settings, **own}))
        return groups

    def _build(self, groups: list[Group], gradients: list[Node]) -> dict[Variable, Node]:
        updates: dict[Variable, Node] = {}
        ready: Node | None = None
        if self.accumulate > 1:
            gradients, ready = self._accumulated(groups, gradients, updates)
        if self.clip_value is not None:
            gradients = clip_by_value(gradients, self.clip_value)
        if self.clip_norm is not None:
            gradients = clip_by_norm(gradients, self.clip_norm)
        given = iter(gradients)
        new: dict[Variable, Node] = {}
        self._make_rates(groups)
        for group in groups:
            for target in group.variables:
                self._one(target, next(given), group, new, ready)
        for rate in dict.fromkeys(group.rate for group in groups):
            following = rate.following(lambda: add(self._memory.counter(), 1))
            if following is not None:
                new[rate.held()] = following
        if "step" in self._memory.variables:
            new[self._memory.variables["step"]] = add(self._memory.variables["step"], 1)
        for held, value in new.items():
            updates[held] = value if ready is None else where(ready, value, held)
        return updates

    def _make_rates(self, groups: list[Group]) -> None:
        """Make the rates' variables, in the widest dtype that they are used with."""
        for rate in dict.fromkeys(group.rate for group in groups):
            dtypes = [t.dtype for g in groups if g.rate is rate for t in g.variables]
            widest = promote(config.float_dtype, *dtypes) if dtypes else config.float_dtype
            self._memory.register(rate.name, rate.held(widest))

    def _one(
        self,
        target: Variable,
        gradient: Node,
        group: Group,
        new: dict[Variable, Node],
        ready: Node | None,
    ) -> None:
        label = self._memory.label(target)
        state = VariableState(
            target,
            group.rate.node(),
            group.options,
            self._memory.counter,
            lambda name, value: self._memory.remember(f"{label}/{name}", value),
        )
        value, whole = self._renewed(target, gradient, state, label, ready)
        who = f"{type(self).__name__}.update"
        if not isinstance(value, Node):
            raise UpdateError(
                message(f"{who} returned {type(value).__name__} for '{label}'", need="a node")
            )
        if value.shape != target.shape or value.dtype != target.dtype:
            raise UpdateError(
                message(
                    f"{who} returned {value.type} for '{label}', which is {target.type}",
                    need="the variable's shape and dtype",
                )
            )
        new[target] = value
        new.update((held, whole(renewed)) for held, renewed in state.renewed.items())

    def _renewed(
        self,
        target: Variable,
        gradient: Node,
        state: VariableState,
        label: str,
        ready: Node | None,
    ) -> tuple[Node, Callable[[Node], Node]]:
        """Return the new value, and what is done to the state's: ranks may share the work."""
        parts = self._memory.parts
        if parts is None:
            return self.update(target, gradient, state), lambda node: node

        def update(stand_in: Variable) -> Node:
            state.variable = stand_in
            result = self.update(stand_in, parts.gradient(gradient), state)
            parts.parted(state.named, target.shape, label)
            self._memory.settle()
            return result

        result: tuple[Node, Callable[[Node], Node]] = parts.updated(target, update, ready)
        return result

    def _accumulated(
        self, groups: list[Group], gradients: list[Node], updates: dict[Variable, Node]
    ) -> tuple[list[Node], Node]:
        """Return mean gradients over the last calls, and whether this call completes a step."""
        calls = self._memory.remember("calls", np.int64(0))
        ready = equal(calls, self.accumulate - 1)
        updates[calls] = where(ready, as_node(0, INT64), add(calls, 1))
        variables = [target for group in groups for target in group.variables]
        means = []
        for target, gradient in zip(variables, gradients, strict=True):
            name = f"{self._memory.label(target)}/accumulated"
            held = self._memory.added_up(name, np.zeros_like(target.state.data))
            if self._memory.sums is None:
                total = add(held, gradient)
                updates[held] = where(ready, as_node(0.0, held.dtype), total)
            else:  # each rank adds up its own, and the sum is taken when it is applied
                total, updates[held] = self._memory.sums.added(held, gradient, ready)
            means.append(multiply(total, 1.0 / self.accumulate))
        return means, ready

    # Running.

    @documented
    def step(
        self,
        loss: Node,
        wrt: Any,
        inputs: Sequence[Node] = (),
        outputs: Any = None,
        updates: Mapping[Variable, Any] | None = None,
        **options: Any,
    ) -> Function:
        """Compile one step: a function that updates the variables at every call.

        loss, wrt: As for `updates`.
        inputs (sequence of Node, optional): What is fed at every call.
        outputs (Node or nested structure, optional): What a call returns, from before the update:
            ``[loss]``, say.
        updates (dict, optional): Further updates that land together with the optimizer's.
        **options: As for `mg.function`.
        returns (Function):
        raises UpdateError, ConfigError, GradientError: As `updates`; also where `wrt` names no
            variable, or one is updated twice.

        >>> x = mg.var("x", init=5.0)
        >>> step = mg.optimizer.GradientDescent(0.25).step(x**2, [x], outputs=[x**2])
        >>> step(), x.value
        ([array(25., dtype=float32)], array(2.5, dtype=float32))
        """
        # Loss scaling asks at each call whether all ranks' gradients are finite.
        self._memory.share(options.get("distribute"), options.get("precision") != "float16")
        together: dict[Variable, Any] = self.updates(loss, wrt)
        if not together:
            raise no_variable("step")
        for target, value in ({} if updates is None else updates).items():
            if target in together:
                raise UpdateError(message(f"variable '{target.name}' is updated twice"))
            together[target] = value
        step = function(list(inputs), outputs, updates=together, **options)
        warn_of_copies(step)
        return step

    @documented
    def minimize(
        self,
        loss: Node,
        wrt: Any,
        feeds: Mapping[Node | str, Any] | None = None,
        steps: int = 100,
        tol: float | None = None,
        callback: Callable[[int, float], Any] | None = None,
    ) -> MinimizeResult:
        """Run steps until the loss changes by less than `tol`, or `steps` are done.

        loss, wrt: As for `updates`.
        feeds (dict, optional): Values of the loss's inputs, by node or by name, the same for all
            steps.
        steps (int, optional): At most so many.
        tol (float, optional): Stop where two successive losses differ by less.
        callback (callable, optional): Called as ``callback(step, loss)``; it stops the run by
            returning True.
        returns (MinimizeResult): With ``value, steps, converged, history``; the variables hold the
            point.
        raises UpdateError, ConfigError, GradientError: As `updates`; also where `wrt` names no
            variable.
        raises FeedError: An input that the loss reads has no value, or a name is that of no input.
        raises DivergedError: Where the loss turns NaN or infinite. The variables, the optimizer's
            own among them, then hold the point of the last finite loss.

        >>> x = mg.var("x", init=5.0)
        >>> result = mg.optimizer.GradientDescent(0.05).minimize(
        ...     x**2 + mg.constant(-2.0), [x], steps=200)
        >>> round(result.value, 6), result.steps, bool(abs(x.value) < 1e-6)
        (-2.0, 200, True)
        """
        name = type(self).__name__
        return minimize(name, self.updates, loss, wrt, feeds, steps, tol, callback)

    def __repr__(self) -> str:
        limits = {"clip_value": self.clip_value, "clip_norm": self.clip_norm}
        told = {name: limit for name, limit in limits.items() if limit is not None}
        if self.accumulate > 1:
            told["accumulate"] = self.accumulate
        shown = "".join(f", {name}={value!r}" for name, value in {**self.settings, **told}.items())
        return f"{type(self).__name__}({self._rate.given!r}{shown})"
