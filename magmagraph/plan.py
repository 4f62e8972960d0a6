"""The plan: what passes hand over to the runtime. Frozen, printable, saveable.

A plan is symbolic in the named dimensions until `sizes` is given; `passes.specialize` binds them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from .dims import Constraint
from .graph import Node
from .records import record
from .types import Extent, Type


class Place(enum.StrEnum):
    """Where a slot's memory comes from."""

    FEED = "feed"  # the caller's array, read in place, never written
    STATE = "state"  # a variable's own buffer
    CONSTANT = "constant"  # a value known at compile time
    RESULT = "result"  # handed to the caller, written by its last kernel
    ARENA = "arena"  # the plan's own block, laid out ahead


@record(frozen=True)
class Slot:
    """One piece of memory.

    Attributes
    ----------
    index
        Position in `Plan.slots`.
    place
        Where it comes from.
    size
        Bytes: an int, or a formula in the named dimensions.
    owner
        FEED: the input's `Key`. STATE: the `State`. CONSTANT: the array. RESULT: the position of
        the output. ARENA: None.
    first, last
        The first and the last step in which its content is alive.
    offset
        ARENA, once bound: bytes from the start of the block, a multiple of 64.
    """

    index: int
    place: Place
    size: Extent
    owner: Any = None
    first: int = 0
    last: int = 0
    offset: int | None = None


@record(frozen=True)
class Value:
    """A contiguous array of `type` that starts at the beginning of a slot."""

    slot: int
    type: Type


class Role(enum.Enum):
    """What kind of work the steps of a kernel family do, for code that treats steps by kind."""

    KERNEL = enum.auto()  # a kernel, or a call of a library
    REGION = enum.auto()  # a generated kernel of the step's body graphs
    PRODUCT = enum.auto()  # a matrix product, which may be launched with what reads it
    COPY = enum.auto()  # from slot to slot
    NESTED = enum.auto()  # bodies that are plans of their own
    COLLECTIVE = enum.auto()  # ranks do it together
    WAIT = enum.auto()  # for a collective that was started before
    EXPRESSION = enum.auto()  # the array expression of the operation's record


def _no_pairs(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset()


def _no_refusal(node: Node, device: str) -> str | None:
    return None


@record(frozen=True, eq=False)
class KernelFamily:
    """One way to run steps: what it takes, and how backends build it.

    Attributes
    ----------
    name
        As printed plans show it.
    takes
        ``takes(node)``: whether it is for the node's operation at all.
    role
        See `Role`.
    refusal
        ``refusal(node, device)``: why it does not run this node there, for people to read; None
        where it does.
    can_fail
        Whether running it may raise; such steps come before the commit point.
    in_place
        ``in_place(node, device)``: pairs (operand, result) where the result may overwrite the
        operand.
    cpu
        ``cpu(cells, step, number)``: the compiled function of a step and its arguments; None where
        the step runs in Python. It raises `fallback.Refused` where the array expression has to run.
        Without it all of them do.
    cuda
        ``cuda(launches, step)``: the launches of a step; None where there is nothing to compute. It
        raises `fallback.Refused` where the array expression has to run.
    library
        ``library(memory, step)``: the CUDA library's graph that runs a step, where it has such
        kernels; it raises `fallback.Refused` where it has no graph of the step.
    """

    name: str
    takes: Callable[[Node], bool]
    role: Role = Role.KERNEL
    refusal: Callable[[Node, str], str | None] = _no_refusal
    can_fail: bool = False
    in_place: Callable[[Node, str], frozenset[tuple[int, int]]] = _no_pairs
    cpu: Callable[..., Any] | None = None
    cuda: Callable[..., Any] | None = None
    library: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<kernel family {self.name}>"

    def __deepcopy__(self, memo: Any) -> KernelFamily:
        return self


@record(frozen=True)
class Step:
    """One kernel launch.

    Attributes
    ----------
    family
        The kernel family that runs it; `kernel` is its name.
    node
        The graph node it computes.
    inputs, outputs
        Values read and written. An output may lie in the slot of an input (in place).
    bytes
        Bytes that it must move: what it reads and what it writes, each once.
    flops
        Arithmetic, by the op record.
    workspace
        Slot of scratch memory, or None.
    can_fail
        True where running it may raise; such steps stand before the commit point.
    refused, refused_by
        Why a kernel family that is for the operation does not run it, and the name of that family;
        empty where there is none. Not part of comparisons.
    """

    family: KernelFamily
    node: Node
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    bytes: Extent
    flops: Extent = 0
    workspace: int | None = None
    can_fail: bool = False
    refused: str = field(default="", compare=False)
    refused_by: str = field(default="", compare=False)

    @property
    def kernel(self) -> str:
        """The name of the kernel family."""
        return self.family.name

    @property
    def role(self) -> Role:
        """What kind of work it is."""
        return self.family.role

    @property
    def wanted(self) -> str:
        """The name of the kernel family that is for the operation; empty where there is none."""
        return self.refused_by if self.role is Role.EXPRESSION else self.kernel


@record(frozen=True, eq=False)
class Plan:
    """Steps over slots, ready for a backend.

    Attributes
    ----------
    steps, slots
        See `Step`, `Slot`.
    fetches
        For each output of the graph, the value that is returned (in a RESULT slot).
    commit
        Number of steps before the commit point. Steps from there on cannot fail, and only they
        write STATE slots.
    constraints
        Equalities between extents, checked when sizes are bound, each with the node that made it.
    sizes
        The bound sizes, or None while symbolic.
    arena
        Bytes of the arena once bound.
    largest_live
        Bytes of the largest set of arena slots alive in one step, once bound.
    choices
        What was measured and chosen when the plan was made.
    guard
        True where results and new values must be finite before the commit point is passed.
    threads
        The most threads that workspaces were planned for.
    deterministic
        True where two runs must give the same bits, also where a library is faster otherwise.
    """

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    fetches: tuple[Value, ...]
    commit: int
    constraints: tuple[tuple[Constraint, Node], ...] = ()
    sizes: Mapping[str, int] | None = None
    arena: int | None = None
    largest_live: int | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    guard: bool = False
    threads: int = 1
    deterministic: bool = False

    def __str__(self) -> str:
        from .inspect.plan_table import plan_table

        return plan_table(self)

    def __repr__(self) -> str:
        sizes = "" if self.sizes is None else "".join(f", {k}={v}" for k, v in self.sizes.items())
        return f"<plan of {len(self.steps)} steps{sizes}>"
