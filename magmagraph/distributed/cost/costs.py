"""What computing and sending costs: links, machines, and the timeline of a plan."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError, message
from ...ir.communicator import Communicator
from ...ir.docstrings import documented
from ...ir.op import Kind
from ...ir.plan import Plan, Role, Step
from ...ir.ranks import current

__all__ = [
    "Compute",
    "Form",
    "Links",
    "Machine",
    "Message",
    "Start",
    "Timeline",
    "Wait",
    "timeline",
]

ALGORITHMS = ("auto", "ring", "torus", "parameter_server")
_SIZES = tuple(4**power for power in range(2, 13))  # bytes, from 16 to 16 MiB
_LONG = 0.05  # seconds that a size is measured for
_OTHER = 1 << 20  # floats that fill a core's own caches, as a step's work does between messages


class Form(enum.Enum):
    """What a collective moves, whatever it is called."""

    REDUCTION = "reduction"  # all ranks get the sum of all
    GATHER = "gather"  # all ranks get the parts of all
    SCATTER = "scatter"  # each rank gets its part of the sum
    ROOT = "root"  # from one rank to all, or from all to one
    EXCHANGE = "exchange"  # each rank has a part for each other
    MESSAGE = "message"  # from each rank to one other at most


@dataclass(frozen=True)
class Message:
    """A collective of a plan.

    form: What it moves.
    bytes: Of the larger of what goes in and what comes out of one rank.
    """

    form: Form
    bytes: int


@dataclass(frozen=True)
class Links:
    """What messages between ranks cost.

    Attributes
    ----------
    latency
        Seconds of a message without content.
    seconds_per_byte
        From one rank to another; 1e-9 is 1 GB/s.
    adding
        Seconds to add a byte of one array to another.
    samples
        (ranks, bytes, seconds) of reductions that were measured, to go by at these ranks.

    Examples
    --------
    >>> import magmagraph as mg
    >>> links = mg.distributed.Links(latency=2e-6, seconds_per_byte=1 / 25e9)
    >>> round(links.reduction(100_000_000, 8) * 1e3, 2)  # milliseconds
    7.01
    """

    latency: float
    seconds_per_byte: float
    adding: float = 0.0
    samples: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("latency", "seconds_per_byte", "adding"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                raise ConfigError(
                    message(f"Links: {name}={value!r}", need="seconds, at least 0 and finite")
                )

    @documented
    def seconds(self, sent: Message, ranks: int, algorithm: str = "auto") -> float:
        """Return the time of a collective from its last rank's arrival to its end.

        sent (Message): The collective.
        ranks (int): How many take part.
        algorithm (str): Of reductions: "auto", the fastest of the library's; "ring"; "torus", rings
            along the sides of the squarest grid; "parameter_server", to a rank of its own and back.
        """
        if ranks == 1:
            return 0.0
        a, b = self.latency, sent.bytes * self.seconds_per_byte
        part = (ranks - 1) / ranks * b
        rounds = math.ceil(math.log2(ranks))
        if sent.form is Form.REDUCTION:
            return self.reduction(sent.bytes, ranks, algorithm)
        if sent.form is Form.ROOT:
            return min(rounds * (a + b), (rounds + ranks - 1) * a + 2 * part)
        if sent.form is Form.MESSAGE:
            return a + b
        if sent.form is Form.EXCHANGE:
            return (ranks - 1) * a + part
        added = (ranks - 1) / ranks * sent.bytes * self.adding
        extra = added if sent.form is Form.SCATTER else 0.0
        return rounds * a + part + extra

    def reduction(self, size: int, ranks: int, algorithm: str = "auto") -> float:
        """Return the seconds in which so many bytes of each rank are summed on all ranks.

        R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Performance Computing Applications 19,
        2005, sections 4.5 and 4.6.
        """
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                message(f"algorithm={algorithm!r}", need=f"one of {', '.join(ALGORITHMS)}")
            )
        if ranks == 1:
            return 0.0
        a, b, c = self.latency, size * self.seconds_per_byte, size * self.adding
        share, rounds = (ranks - 1) / ranks, math.ceil(math.log2(ranks))
        ring = 2 * (ranks - 1) * a + 2 * share * b + share * c
        if algorithm == "ring":
            return ring
        if algorithm == "torus":
            side = max(d for d in range(1, math.isqrt(ranks) + 1) if ranks % d == 0)
            return 2 * (side - 1 + ranks // side - 1) * a + 2 * share * b + share * c
        if algorithm == "parameter_server":
            return 2 * a + 2 * ranks * b + ranks * c
        measured = self._measured(size, ranks)
        if measured is not None:
            return measured
        doubling = rounds * (a + b + c)
        halving = 2 * rounds * a + 2 * share * b + share * c
        return min(ring, doubling, halving)

    def _measured(self, size: int, ranks: int) -> float | None:
        """Return what was measured, linear between the sizes and beyond them."""
        points = sorted((n, s) for r, n, s in self.samples if r == ranks)
        if len(points) < 2:
            return None
        sizes, taken = (np.array(column, float) for column in zip(*points, strict=True))
        if size > sizes[-1]:
            slope = (taken[-1] - taken[-2]) / (sizes[-1] - sizes[-2])
            return float(taken[-1] + max(0.0, slope) * (size - sizes[-1]))
        return float(np.interp(size, sizes, taken))

    @classmethod
    def fit(cls, samples: Sequence[tuple[int, int, float]]) -> Links:
        """Return the links that explain measured reductions best.

        Parameters
        ----------
        samples : sequence of (int, int, float)
            Ranks, bytes and seconds; latency and time of a byte are those of halving and doubling
            with the least squares of relative errors.

        Examples
        --------
        >>> true = Links(3e-6, 1e-10)
        >>> sizes = [(4, n, true.reduction(n, 4)) for n in (8, 1000, 100_000, 10_000_000)]
        >>> found = Links.fit(sizes)
        >>> round(found.latency * 1e6, 1), round(found.seconds_per_byte * 1e10, 2)
        (3.0, 1.0)
        """
        from scipy.optimize import nnls

        if len({size for _, size, _ in samples}) < 2:
            raise ConfigError(
                message(f"links of {len(samples)} samples", need="two sizes at least")
            )
        latency, rate = 0.0, 0.0
        halving = [False] * len(samples)
        for _ in range(8):  # which formula holds for a sample depends on what is fitted
            rows = []
            for (ranks, size, taken), halved in zip(samples, halving, strict=True):
                rounds, share = math.ceil(math.log2(ranks)), (ranks - 1) / ranks
                terms = (2 * rounds, 2 * share * size) if halved else (rounds, rounds * size)
                rows.append([term / taken for term in terms])
            (latency, rate), _ = nnls(np.array(rows), np.ones(len(rows)))
            before = halving
            halving = [
                2 * math.ceil(math.log2(r)) * latency + 2 * (r - 1) / r * size * rate
                < math.ceil(math.log2(r)) * (latency + size * rate)
                for r, size, _ in samples
            ]
            if halving == before:
                break
        return cls(float(latency), float(rate), samples=tuple(samples))

    @classmethod
    @documented
    def measure(cls, communicator: Communicator | None = None) -> Links:
        """Time reductions over the ranks of a job, and fit links to them; all ranks call it.

        Each stands behind a pass over memory, as in a step: what is sent, and what sends it, are in
        no cache of the core's own any more.

        communicator (optional): The current one unless given; of two ranks at least.
        returns (Links): The same on all ranks.
        """
        world = communicator or current()
        if world.size == 1:
            raise ConfigError(
                message(
                    "one rank has no links", hint="mpiexec -n 4 python ..., or mg.distributed.Links"
                )
            )
        samples = []
        work = np.ones(_OTHER, np.float32)
        for size in _SIZES:
            array = np.ones(size // 4, np.float32)
            out = np.empty_like(array)
            taken: list[float] = []
            world.allreduce(array, "sum", out)
            while world.from_first(len(taken) < 5 or (sum(taken) < _LONG and len(taken) < 50)):
                np.negative(work, out=work)
                world.barrier()
                began = time.perf_counter()
                world.allreduce(array, "sum", out)
                taken.append(time.perf_counter() - began)
            slowest = np.max(world.exchange(taken), axis=0)
            samples.append((world.size, size, float(np.median(slowest))))
        fitted: Links = world.from_first(cls.fit(samples))
        return fitted


@dataclass(frozen=True)
class Machine:
    """A machine that is not here, by its roofs.

    Attributes
    ----------
    flops
        Operations a second in products.
    bandwidth
        Bytes a second to and from memory.
    overhead
        Seconds of a step that does nothing.
    """

    flops: float
    bandwidth: float
    overhead: float = 0.0

    def seconds(self, step: Step) -> float:
        """Return the time of a step of a plan whose sizes are bound."""
        return self.overhead + max(int(step.flops) / self.flops, int(step.bytes) / self.bandwidth)


@dataclass(frozen=True)
class Compute:
    """So many seconds of computing, of which so many are bound by memory."""

    seconds: float
    memory: float = 0.0


@dataclass(frozen=True)
class Start:
    """A collective is begun."""

    number: int
    message: Message


@dataclass(frozen=True)
class Wait:
    """A collective that was begun is waited for."""

    number: int


@dataclass(frozen=True)
class Timeline:
    """What one rank does in a step: computing, starts of collectives, and waits for them.

    events: In their order.
    """

    events: tuple[Compute | Start | Wait, ...]

    @property
    def compute(self) -> float:
        """Seconds of computing."""
        return sum(event.seconds for event in self.events if isinstance(event, Compute))

    @property
    def messages(self) -> list[Message]:
        """All collectives, in their order."""
        return [event.message for event in self.events if isinstance(event, Start)]

    @property
    def bytes(self) -> int:
        """Bytes of all reductions."""
        return sum(m.bytes for m in self.messages if m.form is Form.REDUCTION)

    def seconds(self, links: Links, ranks: int, algorithm: str = "auto") -> float:
        """Return the time of a step where all ranks are alike.

        Computing goes on while a collective is under way; the link does one after the other.
        """
        clock, free = 0.0, 0.0
        ends: dict[int, float] = {}
        for event in self.events:
            if isinstance(event, Compute):
                clock += event.seconds
            elif isinstance(event, Start):
                free = max(clock, free) + links.seconds(event.message, ranks, algorithm)
                ends[event.number] = free
            else:
                clock = max(clock, ends[event.number])
        return max(clock, free)


def timeline(plan: Plan, compute: Callable[[int, Step], Compute]) -> Timeline:
    """Return what a rank does when it runs a plan.

    plan: With bound sizes.
    compute: What a step takes that computes, of its number and itself.
    """
    later = {step.node for step in plan.steps if step.role is Role.WAIT}
    numbers = {
        step.node: number
        for number, step in enumerate(plan.steps)
        if _collective(step) and step.role is not Role.WAIT
    }
    events: list[Compute | Start | Wait] = []
    for number, step in enumerate(plan.steps):
        if step.role is Role.WAIT:
            events.append(Wait(numbers[step.node]))
        elif _collective(step):
            events.append(Start(number, _message(step)))
            if step.node not in later:
                events.append(Wait(number))
        else:
            events.append(compute(number, step))
    return Timeline(tuple(events))


def _collective(step: Step) -> bool:
    return step.node.op.kind is Kind.COLLECTIVE and step.role is not Role.COPY and bool(step.inputs)


def _message(step: Step) -> Message:
    """Return what a step's collective moves, by what its record says and by its bytes."""
    # A flag, where a collective is for some calls only, is no part of it.
    sent = [v for v in step.inputs if v.type.shape or v.type.dtype != np.dtype(bool)]
    taken = sum(_bytes(value.type) for value in sent or step.inputs)
    written = sum(_bytes(value.type) for value in step.outputs)
    attrs = step.node.attrs
    if not {"shift", "to", "source"}.isdisjoint(attrs):
        form = Form.MESSAGE
    elif "root" in attrs:
        form = Form.ROOT
    elif written > taken:
        form = Form.GATHER
    elif written < taken:
        form = Form.SCATTER
    else:
        form = Form.REDUCTION if "op" in attrs else Form.EXCHANGE
    return Message(form, max(taken, written))


def _bytes(kind: Any) -> int:
    return math.prod(int(extent) for extent in kind.shape) * int(kind.dtype.itemsize)
