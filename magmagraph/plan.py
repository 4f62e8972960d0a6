"""The plan: what passes hand over to the runtime. Frozen, printable, saveable.

A plan is symbolic in the named dimensions until `sizes` is given; `passes.specialize` binds them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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


@record(frozen=True)
class Step:
    """One kernel launch.

    Attributes
    ----------
    kernel
        Which kernel family runs it: "fused", "gemm", "gemv", "scatter", "copy", "join" (arrays side
        by side), "indexed" (elements read, or rows added up, at computed positions),
        "loop" and "branch" (whose bodies are programs of their own), "collective" (said to other
        ranks), "wait" (for a collective that was started, where other steps stand between), or
        "array" (the array expression of its op record, through NumPy or CuPy).
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
    refused
        Why the kernel family that the operation names does not run it; empty where it does, or
        where there is none. Not part of comparisons.
    """

    kernel: str
    node: Node
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    bytes: Extent
    flops: Extent = 0
    workspace: int | None = None
    can_fail: bool = False
    refused: str = field(default="", compare=False)


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
