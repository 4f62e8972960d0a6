"""The plan: what passes hand over to the runtime. Frozen, printable, saveable.

A plan is symbolic in the named dimensions until `sizes` is given; `passes.specialize` binds them.
`str(plan)` is a table for people; `magmagraph.text.writing.dump` writes a plan whole, so that it
can be read back.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from .dims import Constraint
from .graph import Node, operations
from .records import record
from .tables import table
from .types import Extent, Type


class Place(enum.StrEnum):
    """Where a slot's memory comes from."""

    FEED = "feed"  # the caller's array, read in place, never written
    STATE = "state"  # a variable's own buffer
    CONSTANT = "constant"  # a value known at compile time
    RESULT = "result"  # handed to the caller, written by its last kernel
    ARENA = "arena"  # the plan's own block, laid out ahead
    INSIDE = "inside"  # made and read within one launch: it has no memory


@record(frozen=True)
class Slot:
    """One piece of memory.

    index: Position in `Plan.slots`.
    place: Where it comes from.
    size: Bytes: an int, or a formula in the named dimensions.
    owner: FEED: the input's `Key`. STATE: the `State`. CONSTANT: the array. RESULT: the position of
        the output. ARENA: None.
    first, last: The first and the last step in which its content is alive.
    offset: ARENA, once bound: bytes from the start of the block, a multiple of 64.
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
    EPILOGUE = enum.auto()  # a generated product, and the regions that are computed on its tiles
    LIBRARY_EPILOGUE = enum.auto()  # a library's product with an epilogue
    OPENING = enum.auto()  # a region up to its sums, which another launch ends
    ENDING = enum.auto()  # the end of a region's sums
    SCAN = enum.auto()  # a scan, which may be launched with the regions around it
    FUSED_SCAN = enum.auto()  # a scan, and the regions that are computed in its kernel


def _no_pairs(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset()


def _scratch_of_record(node: Node, threads: int) -> Extent:
    rule = node.op.kernel.scratch
    return 0 if rule is None else rule(node, threads)


def _no_refusal(node: Node, device: str) -> str | None:
    return None


@record(frozen=True, eq=False)
class KernelFamily:
    """One way to run steps: the operations that it takes, and its builders.

    name: As printed plans show it.
    takes: ``takes(node)``: whether it is for the node's operation at all.
    role: See `Role`.
    refusal: ``refusal(node, device)``: why it does not run this node there, for people to read;
        None where it does.
    can_fail: Whether running it may raise, of all nodes or ``can_fail(node)``; such steps come
        before the commit point.
    in_place: ``in_place(node, device)``: pairs (operand, result) where the result may overwrite the
        operand.
    scratch: ``scratch(node, threads)``: bytes that its compiled function needs beside operands and
        results, for at most so many threads; what the operation's record says, unless given.
    cpu: ``cpu(cells, step, number)``: the compiled function of a step and its arguments; None where
        the step runs in Python. It raises `fallback.Refused` where the array expression has to run.
        Without it all of them do.
    cuda: ``cuda(launches, step)``: the launches of a step; None where there is nothing to compute.
        It raises `fallback.Refused` where the array expression has to run.
    library: ``library(memory, step)``: the CUDA library's graph that runs a step, where it has such
        kernels; it raises `fallback.Refused` where it has no graph of the step.
    missing: ``missing()``: why the CUDA library that runs its steps cannot be used here, or None.
    cost: ``cost(step, sizes, multiprocessors)``: about how long the step's launch takes on a CUDA
        device, see `Step.cost`. Without it, a launch fills the device.
    """

    name: str
    takes: Callable[[Node], bool]
    role: Role = Role.KERNEL
    refusal: Callable[[Node, str], str | None] = _no_refusal
    can_fail: bool | Callable[[Node], bool] = False
    in_place: Callable[[Node, str], frozenset[tuple[int, int]]] = _no_pairs
    scratch: Callable[[Node, int], Extent] = _scratch_of_record
    cpu: Callable[..., Any] | None = None
    cuda: Callable[..., Any] | None = None
    library: Callable[..., Any] | None = None
    missing: Callable[[], str | None] | None = None
    cost: Callable[[Any, Mapping[str, int], int], float] | None = None

    def may_raise(self, node: Node) -> bool:
        """Return whether running a node may raise."""
        return self.can_fail if isinstance(self.can_fail, bool) else self.can_fail(node)

    def __repr__(self) -> str:
        return f"<kernel family {self.name}>"

    def __deepcopy__(self, memo: Any) -> KernelFamily:
        return self


# Roles of steps whose kernels are generated from bodies.
GENERATED = (Role.REGION, Role.OPENING, Role.ENDING, Role.EPILOGUE, Role.FUSED_SCAN)
WHOLE = 16.0  # the cost of a launch that leaves no room for another beside it


@record(frozen=True)
class Step:
    """One kernel launch.

    family: The kernel family that runs it; `kernel` is its name.
    node: The graph node it computes.
    inputs, outputs: Values read and written. An output may lie in the slot of an input (in place).
    bytes: Bytes that it must move: what it reads and what it writes, each once.
    flops: Arithmetic, by the op record.
    workspace: Slot of scratch memory, or None.
    can_fail: True where running it may raise; such steps stand before the commit point.
    refused, refused_by: Why a kernel family that is for the operation does not run it, and the name
        of that family; empty where there is none. Not part of comparisons.
    parts: The steps that the launch computes together, in their order; empty for one alone. What a
        part makes that no other step reads is in a slot without memory. Of a launch that computes a
        step up to its sums, or ends these, the one part is the whole step.
    piece: Of launches that end sums one after the other, which one this is.
    origin, results: The node of the graph that the step computes a part of, where `node` is not
        that, and which of its results.
    cost: About how long the launch takes beside others: 1 for one that leaves most of the device
        free, up to `WHOLE`.
    follows: Whether it is launched directly after the step before it, and placed with it: both are
        parts of one step of the symbolic plan.
    stream: Where it is launched, 0 for the stream of the longest chain; None where steps run one
        after the other, or are placed when they are captured.
    waits: The steps of other streams that must have ended before.
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
    parts: tuple[Step, ...] = ()
    piece: int = 0
    origin: Node | None = field(default=None, compare=False)
    results: tuple[int, ...] = field(default=(), compare=False)
    cost: float = WHOLE
    follows: bool = False
    stream: int | None = None
    waits: tuple[int, ...] = ()

    @property
    def scratch(self) -> tuple[int, ...]:
        """The slots of its scratch memory: one of its own, or those of its parts."""
        slots = [self.workspace] if self.workspace is not None or not self.parts else [
            part.workspace for part in self.parts
        ]
        return tuple(dict.fromkeys(slot for slot in slots if slot is not None))

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes of the graph that it computes, or parts of them."""
        if self.parts:
            return tuple(dict.fromkeys(node for part in self.parts for node in part.computed))
        return (self.node if self.origin is None else self.origin,)

    def makes(self, node: Node, result: int) -> Value | None:
        """Return the value that is a result of a node of the graph, or None where it is none."""
        for part in self.parts:
            if (value := part.makes(node, result)) is not None:
                return value
        if self.parts or self.computed[0] is not node:
            return None
        results = self.results or range(len(self.outputs))
        return self.outputs[results.index(result)] if result in results else None

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

    steps, slots: See `Step`, `Slot`.
    fetches: For each output of the graph, the value that is returned (in a RESULT slot).
    commit: Number of steps before the commit point. Steps from there on cannot fail, and only they
        write STATE slots.
    constraints: Equalities between extents, checked when sizes are bound, each with the node that
        made it.
    sizes: The bound sizes, or None while symbolic.
    arena: Bytes of the arena once bound.
    largest_live: Bytes of the largest set of arena slots alive in one step, once bound.
    choices: What was measured and chosen when the plan was made.
    guard: True where results and new values must be finite before the commit point is passed.
    threads: The most threads that workspaces were planned for.
    deterministic: True where two runs must give the same bits, also where a library is faster
        otherwise.
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
        return plan_table(self)

    def __repr__(self) -> str:
        sizes = "" if self.sizes is None else "".join(f", {k}={v}" for k, v in self.sizes.items())
        return f"<plan of {len(self.steps)} steps{sizes}>"


_SHOWN = 5  # operations of a step that the table names
_WIDTH = 100  # characters of a line
_COMMIT = "-- commit: the steps below cannot fail, and only they write variables"


def plan_table(plan: Plan) -> str:
    """Return a plan as text: a line per step, then one per slot of the arena.

    Extents of sizes that are not bound yet stand as formulas.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(2, 3))
    >>> W = mg.variable("W", shape=(3, 4), init=mg.init.zeros())
    >>> print(mg.function([x], mg.tanh(x @ W)).plan)
    step  kernel  bytes  FLOPs  computes
       0  gemm      104     48  s3 = x @ W
       1  fused      64      8  result 0 = tanh of s3
    <BLANKLINE>
    slot  bytes  offset  alive
    s3       32       0  steps 0 to 1
    arena 64 bytes, largest live set 64 bytes
    """
    placed = any(step.stream is not None for step in plan.steps)
    rows: list[tuple[str, ...]] = [
        ("step", "kernel", "bytes", "FLOPs", *["stream"] * placed, "computes")
    ]
    for i, step in enumerate(plan.steps):
        where = ["-" if step.stream is None else str(step.stream)] * placed
        costs = str(step.bytes), str(step.flops), *where
        rows.append((str(i), step.kernel, *costs, _computes(step, plan)))
    head, *lines = table(rows, left=(1, len(rows[0]) - 1)).splitlines()
    indent = head.index(rows[0][-1])
    lines = [head, *(_folded(line, indent) for line in lines)]
    if plan.commit < len(plan.steps):
        lines.insert(1 + plan.commit, _COMMIT)
    if plan.sizes:
        lines.insert(0, ", ".join(f"{name} = {size}" for name, size in plan.sizes.items()))
    slots = list(_slots(plan))
    if slots:
        lines += ["", *table([("slot", "bytes", "offset", "alive", ""), *slots], left=(0, 3, 4))
                  .splitlines()]
    if plan.arena is not None:
        lines.append(f"arena {plan.arena} bytes, largest live set {plan.largest_live or 0} bytes")
    return "\n".join(lines)


def _folded(line: str, indent: int) -> str:
    """Return a line of the table in several where it is long, the rest below its last column."""
    return textwrap.fill(
        line,
        max(_WIDTH, indent + 40),
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _computes(step: Step, plan: Plan) -> str:
    """Return a description of a step, as a formula where it is a product."""
    reads = [_name(value, plan) for value in step.inputs]
    writes = [_name(value, plan) for value in step.outputs]
    if step.role in (Role.EPILOGUE, Role.LIBRARY_EPILOGUE, Role.FUSED_SCAN):
        formula = _parts(step, plan)
    elif step.role is Role.ENDING:
        formula = "the end of the sums" + (f", part {step.piece}" if step.piece else "")
    elif "transpose_a" in step.node.attrs and step.role is not Role.COPY:
        formula = _product(step.node, reads)
    else:
        plain = step.role in (Role.COPY, Role.WAIT)
        inside = (step.kernel,) if plain else operations(step.node)
        more = f", ... {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
        formula = ", ".join(inside[:_SHOWN]) + more
        if reads:
            formula += " of " + ", ".join(dict.fromkeys(reads))
    taken = {value.slot for value in step.inputs}
    shared = [_name(value, plan) for value in step.outputs if value.slot in taken]
    text = f"{', '.join(writes)} = {formula}"
    if shared and step.role not in (Role.COPY, Role.WAIT):
        text += "; in place" if len(writes) == len(shared) else f"; {', '.join(shared)} in place"
    if step.waits:
        several = "s" * (len(step.waits) > 1)
        text += f"; after step{several} {', '.join(map(str, step.waits))}"
    return text


def _parts(step: Step, plan: Plan) -> str:
    """Return what a launch of several steps computes, one after the other."""
    written: set[int] = set()
    texts: list[str] = []
    for part in step.parts:
        reads = [_name(v, plan) for v in part.inputs if part.role is Role.PRODUCT or
                 v.slot not in written]  # fmt: skip
        if part.role is Role.PRODUCT:
            texts.append(_product(part.node, reads))
        else:
            inside = operations(part.node)
            more = f", ... {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
            names = ", ".join(dict.fromkeys(reads))
            word = "with" if texts else "of"
            texts.append(", ".join(inside[:_SHOWN]) + more + (f" {word} {names}" if names else ""))
        written |= {value.slot for value in part.outputs}
    return ", then ".join(texts)


def _product(node: Node, names: list[str]) -> str:
    """Return ``alpha * a.T @ b + beta * c``, without absent terms and factors of one."""
    attrs = node.attrs
    left, right, *rest = names
    text = (
        f"{left}{'.T' if attrs['transpose_a'] else ''} @ "
        f"{right}{'.T' if attrs.get('transpose_b') else ''}"
    )
    if attrs.get("scaled"):
        text = f"{rest.pop(0)} * {text}"
    if attrs.get("accumulate"):
        addend, factor = rest
        text += f" + {addend}" if factor == "1.0" else f" + {factor} * {addend}"
    return text


def _name(value: Value, plan: Plan) -> str:
    """Return what people call a value: an input's or variable's name, a number, or its slot."""
    slot = plan.slots[value.slot]
    if slot.place is Place.RESULT:
        return f"result {slot.owner}"
    if slot.place in (Place.FEED, Place.STATE) and slot.owner.name:
        return str(slot.owner.name)
    if slot.place is Place.CONSTANT and value.type.shape == ():
        attrs = slot.owner.attrs
        if "value" in attrs:
            return str(attrs["value"])
        return str(attrs.get("dim", "rank"))  # an extent, or a rank's own number
    return f"s{slot.index}"


def _slots(plan: Plan) -> Iterator[tuple[str, str, str, str, str]]:
    """Give a row for each slot of the arena, in the order of their offsets."""
    scratch: dict[int, int] = {}
    for i, step in enumerate(plan.steps):
        for scratch_slot in step.scratch:
            scratch.setdefault(scratch_slot, i)

    def place(slot: Slot) -> tuple[int, int]:
        return (-1 if slot.offset is None else slot.offset, slot.first)

    for slot in sorted((s for s in plan.slots if s.place is Place.ARENA), key=place):
        alive = f"step {slot.first}" if slot.first == slot.last else (
            f"steps {slot.first} to {slot.last}"
        )
        use = f"workspace of step {scratch[slot.index]}" if slot.index in scratch else ""
        offset = "" if slot.offset is None else str(slot.offset)
        yield (f"s{slot.index}", str(slot.size), offset, alive, use)
