"""What calls count, followed by the host: whether a call sends is known before it is launched.

A captured graph does the same at every launch. Where an optimizer adds up gradients over calls,
one sort of call sends and the others do not, so that each sort has a graph of its own, and the host
has to know which one is due without looking at the device. The flag that says so is made of integer
variables (a counter of calls) by steps that read nothing else, and so are their next values: the
host computes both from the values that it knows. A variable that something else has written, a user
or another plan, has another version then, and is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....codegen.steps import bodies_of
from ....ir.graph import Graph, Node
from ....ir.identity import index_of, is_among
from ....ir.interpret import apply
from ....ir.op import Kind
from ....ir.plan import Place, Plan, Role, Step
from ....ops.collective.timed import RECORDS

if TYPE_CHECKING:
    from ....ir.values.state import State

__all__ = ["Counted", "Counts", "Flags", "is_timed"]

Flags = tuple[bool, ...]

MOST = 4096  # values that are known with what follows: a counter that never ends has more


class Counted(NamedTuple):
    """A rank's values of the variables that it follows, before a call.

    Attributes
    ----------
    anew
        Whether one had to be read.
    values
        Each variable's name, and what it holds.
    """

    anew: bool
    values: tuple[tuple[str, int], ...]


_NOTHING = Counted(False, ())


def is_timed(step: Step) -> bool:
    """Return whether a step is something that ranks do together at some calls."""
    return step.node.op in RECORDS and step.role is Role.COLLECTIVE


class _UnknownError(Exception):
    """Something else than integer variables decides a value."""


class _Formulas:
    """Scalars of a plan that integer variables alone decide, and how they follow from these.

    Attributes
    ----------
    slots
        Of the variables, in the order of their values.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.slots: list[int] = []
        # What a value is: the variable's number, a constant, or a node and its operands' places.
        self._made: list[tuple[Any, tuple[int, ...]]] = []
        self._known: dict[Any, int] = {}

    def place(self, slot: int, before: int) -> int:
        """Return the index of the value that a slot holds before a step."""
        steps = self.plan.steps
        for number in range(before - 1, -1, -1):
            written = [value.slot for value in steps[number].outputs]
            if slot in written:
                make_result = partial(self._result, number, written.index(slot))
                return self._once((slot, number), make_result)
        return self._once((slot, -1), partial(self._held, slot))

    def values(self, values: Sequence[int]) -> list[Any]:
        """Return all values, from those of the variables."""
        results: list[Any] = []
        for what, operands in self._made:
            if isinstance(what, Node):
                results.append(apply(what, [results[i] for i in operands], self.plan.sizes or {}))
            elif operands:
                results.append(np.asarray(values[operands[0]], what))
            else:
                results.append(what)
        return results

    def _once(self, key: Any, make: Callable[[], int]) -> int:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _add(self, what: Any, *operands: int) -> int:
        self._made.append((what, operands))
        return len(self._made) - 1

    def _held(self, slot: int) -> int:
        """Return the index of the value that a slot holds when a call begins."""
        entry = self.plan.slots[slot]
        if entry.place is Place.STATE and _is_integer(entry.owner.held):
            self.slots.append(slot)
            return self._add(entry.owner.held.dtype, len(self.slots) - 1)
        if entry.place is Place.CONSTANT:
            return self._constant(entry.owner)
        raise _UnknownError

    def _constant(self, leaf: Node) -> int:
        value = leaf.attrs.get("value")  # an extent, or a rank's number, has none
        if value is None or not _is_integer(np.asarray(value)):
            raise _UnknownError
        return self._add(np.asarray(value))

    def _result(self, number: int, position: int) -> int:
        """Return the place of one of a step's results."""
        step = self.plan.steps[number]
        operands = [(value.slot, number) for value in step.inputs]
        if step.role is Role.COPY:
            return self.place(*operands[0])
        if step.role is not Role.REGION:
            return self._node(step.node, [self.place(*operand) for operand in operands])
        for body in bodies_of(step):
            taken = len(body.inputs)
            if position < len(body.outputs):
                return self._within(body, body.outputs[position], number, operands[:taken])
            position -= len(body.outputs)
            operands = operands[taken:]
        raise _UnknownError

    def _within(
        self, body: Graph, node: Node, number: int, operands: Sequence[tuple[int, int]]
    ) -> int:
        """Return the place of a node of a body whose parameters are a step's operands."""
        if is_among(node, body.inputs):
            return self.place(*operands[index_of(body.inputs, node)])
        if not node.inputs:
            return self._once((number, node), lambda: self._constant(node))
        return self._once(
            (number, node),
            lambda: self._node(
                node, [self._within(body, operand, number, operands) for operand in node.inputs]
            ),
        )

    def _node(self, node: Node, operands: Sequence[int]) -> int:
        if node.op.kind is not Kind.ELEMENTWISE or isinstance(node.type, tuple):
            raise _UnknownError
        if node.shape or node.dtype.kind not in "iub":
            raise _UnknownError
        return self._add(node, *operands)


def _is_integer(array: np.ndarray) -> bool:
    return array.shape == () and array.dtype.kind in "iub"


class Counts:
    """The variables that say which calls send; nothing where no step asks, or more says so.

    Parameters
    ----------
    plan
        Bound to sizes.
    copy_of
        Gives a variable's copy on the device, which remembers the value that the host knows.

    Attributes
    ----------
    now
        The flags of the call that is launched.
    """

    def __init__(self, plan: Plan, copy_of: Callable[[State], Any]) -> None:
        self.now: Flags = ()
        self._asked: dict[int, int] = {}  # which flag a step goes by
        self._held: list[tuple[State, Any]] = []
        self._values: tuple[int, ...] = ()
        self._table: dict[tuple[int, ...], tuple[Flags, tuple[int, ...]]] = {}
        steps = [(number, step) for number, step in enumerate(plan.steps) if is_timed(step)]
        if not steps:
            return
        formulas = _Formulas(plan)
        try:
            asked = [formulas.place(step.inputs[-1].slot, number) for number, step in steps]
            following: list[int] = []
            for slot in formulas.slots:  # which following values may add to
                following.append(formulas.place(slot, len(plan.steps)))
        except _UnknownError:
            return  # each step looks at its flag
        flags = list(dict.fromkeys(asked))
        self._asked = {
            id(step): flags.index(place) for (_, step), place in zip(steps, asked, strict=True)
        }
        states = [plan.slots[slot].owner for slot in formulas.slots]
        self._held = [(state, copy_of(state)) for state in states]
        self._places = flags, following
        self._formulas = formulas

    def __bool__(self) -> bool:
        return bool(self._asked)

    def flag(self, step: Step) -> int | None:
        """Return which of the flags a step goes by, or None where the host does not know it."""
        return self._asked.get(id(step))

    def read(self) -> Counted:
        """Find the variables as they are before a call, and the flags of that."""
        if not self._asked:
            return _NOTHING
        anew = False
        values = []
        for state, copy in self._held:
            last = copy.known
            if last is None or last[0] != state.version:
                copy.known = last = state.version, int(state.data)
                anew = True
            values.append(last[1])
        self._values = tuple(values)
        self.now = self._after(self._values)[0]
        names = (state.name for state, _ in self._held)
        return Counted(anew, tuple(zip(names, values, strict=True)))

    def coming(self, count: int) -> list[Flags]:
        """Return the flags of so many calls from the next one on."""
        all_flags, values = [], self._values
        for _ in range(count):
            flags, values = self._after(values)
            all_flags.append(flags)
        return all_flags

    def advance(self, steps: int) -> None:
        """Advance by launched calls; `settle` stores the result."""
        for _ in range(steps if self._asked else 0):
            self._values = self._after(self._values)[1]

    def settle(self) -> None:
        """Remember the current values of the variables, with their versions."""
        if self._asked:
            for (state, copy), value in zip(self._held, self._values, strict=True):
                copy.known = state.version, value

    def _after(self, values: tuple[int, ...]) -> tuple[Flags, tuple[int, ...]]:
        """Return the flags of a call, and the variables' values after it."""
        if not self._asked:
            return (), values
        entry = self._table.get(values)
        if entry is None:
            if len(self._table) >= MOST:
                self._table.clear()
            results = self._formulas.values(values)
            flags, following = self._places
            entry = (
                tuple(bool(results[i]) for i in flags),
                tuple(int(results[i]) for i in following),
            )
            self._table[values] = entry
        return entry
