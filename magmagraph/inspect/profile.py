"""`f.profile(*feeds)`: time, bytes and arithmetic of every step, mapped to the user's lines.

The roofline puts each step under three roofs, measured once a machine: the bandwidth of what its
bytes lie in (a cache or memory), the arithmetic of a large product, and the time of a kernel that
does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..dtypes import is_float
from ..errors import GraphError, message
from ..files.writing import write_file
from ..ir import dims
from ..ir.graph import Node, operations
from ..ir.html import Displayed, details, table_html
from ..ir.plan import Role, Step
from ..ir.tables import table
from ..ir.types import FilePath
from .checking.running import bind, kept_variables
from .node_history import maker, users_of
from .peaks import Peaks
from .trace import trace
from .traffic import Part, floor, raised, traffic

VERSION = 1  # of the JSON text

_FAR = 3.0  # times a roof's time, from which on the roof explains nothing
# Kernels that move just the bytes that their steps tell.
_STREAMS = (Role.REGION, Role.OPENING, Role.COPY)
_SHOWN = 6  # operations and lines of a step that the table names


@dataclass(frozen=True)
class StepProfile:
    """One step of the plan, measured.

    step: Its number.
    kernel: The kernel family.
    operations: What it computes: the operation, or those inside of a fused one.
    nanoseconds: The shortest of the runs.
    bytes: What it must move.
    flops: Its arithmetic.
    nodes: The user's nodes that it computes.
    lines: Their lines, each once.
    arithmetic: The dtype that it computes in; "tf32" for products of rounded float32.
    bandwidth_share, flops_share: Of the machine's peaks, or None where these are not known, or the
        step takes no time of its own: a GPU computes some products together with what reads them.
        The first is the least time that its bytes take from where they lie, over the time taken.
    level: Where its bytes lie: "L1", "L2", ... or "memory"; where they lie in several, the one that
        takes the most time. Empty where nothing is known.
    bound: The lowest roof for its bytes and arithmetic: "bandwidth", "arithmetic" or "latency"; but
        "kernel" where it takes more than three times as long as that, so that it is something of
        its own that takes the time (transcendental functions, strides, threads that wait), and
        "host" where it runs as an array expression, whose time is mostly that of the host; "ranks"
        where it speaks to other ranks, or waits for them; "merged" where the launch of another step
        computes it.
    roof: Time under the lowest roof over the time taken: 1 where it cannot be faster.
    """

    step: int
    kernel: str
    operations: tuple[str, ...]
    nanoseconds: int
    bytes: int
    flops: int
    nodes: tuple[Node, ...]
    lines: tuple[str, ...]
    arithmetic: str = ""
    bandwidth_share: float | None = None
    flops_share: float | None = None
    level: str = ""
    bound: str = ""
    roof: float | None = None
    role: Role = Role.KERNEL

    @property
    def gigabytes_per_second(self) -> float:
        """How fast it moved its bytes; 0 where another step's launch computes it."""
        return self.bytes / self.nanoseconds if self.nanoseconds else 0.0

    @property
    def gigaflops(self) -> float:
        """How fast it computed, in 1e9 operations a second; 0 as above."""
        return self.flops / self.nanoseconds if self.nanoseconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        return {
            "step": self.step,
            "kernel": self.kernel,
            "operations": list(self.operations),
            "nanoseconds": self.nanoseconds,
            "bytes": self.bytes,
            "gigabytes_per_second": round(self.gigabytes_per_second, 3),
            "flops": self.flops,
            "gigaflops": round(self.gigaflops, 3),
            "arithmetic": self.arithmetic,
            "bandwidth_share": _rounded(self.bandwidth_share),
            "flops_share": _rounded(self.flops_share),
            "level": self.level,
            "bound": self.bound,
            "roof": _rounded(self.roof),
            "nodes": [node.name or node.op.name for node in self.nodes],
            "lines": list(self.lines),
        }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


@dataclass(frozen=True)
class LineProfile:
    """A line of the user's source, measured: `nanoseconds` of all steps, and their share."""

    line: str
    nanoseconds: int
    share: float


@dataclass(frozen=True)
class GroupProfile:
    """A scope, layer or function, measured: `nanoseconds` of what is in it, and their share."""

    group: str
    nanoseconds: int
    share: float


@dataclass(frozen=True)
class Profile(Displayed):
    """The steps of a plan, measured. Iterates over them; prints as a table.

    steps: See `StepProfile`.
    runs: How many runs the times are the shortest of.
    peaks: Of the machine, or None.
    weights: The elements of each of the user's nodes, by which a step's time is shared out to them.
    live: The bytes of the arena that are alive in each step.
    spans: Of ranks that compute on devices: for each launch of the captured graph its step, its
        stream, and the nanoseconds at which it begins and ends.
    """

    steps: tuple[StepProfile, ...]
    runs: int
    peaks: Peaks | None = None
    weights: Mapping[Node, int] | None = None
    live: tuple[int, ...] = ()
    spans: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def nanoseconds(self) -> int:
        """Of all steps together."""
        return sum(step.nanoseconds for step in self.steps)

    @property
    def bytes(self) -> int:
        """The memory traffic of all steps, in bytes."""
        return sum(step.bytes for step in self.steps)

    @property
    def flops(self) -> int:
        """The arithmetic of all steps."""
        return sum(step.flops for step in self.steps)

    def by_node(self) -> dict[Node, float]:
        """Return the nanoseconds of each of the user's nodes.

        A step's time is shared out to the nodes that it computes by their elements: inside of one
        kernel nobody can measure more.
        """
        taken: dict[Node, float] = {}
        weights = self.weights or {}
        for step in self.steps:
            whole = sum(weights.get(node, 1) for node in step.nodes)
            for node in step.nodes:
                share = step.nanoseconds * weights.get(node, 1) / whole
                taken[node] = taken.get(node, 0.0) + share
        return taken

    def by_line(self) -> list[LineProfile]:
        """Return the time of each of the user's lines, the longest first."""
        taken: dict[str, float] = {}
        for node, nanoseconds in self.by_node().items():
            if node.line:
                line = str(node.line)
                taken[line] = taken.get(line, 0.0) + nanoseconds
        whole = max(1, self.nanoseconds)
        order = sorted(taken.items(), key=lambda pair: -pair[1])
        return [LineProfile(line, round(ns), ns / whole) for line, ns in order]

    def by_group(self) -> list[GroupProfile]:
        """Return the time of each scope, layer and function, those within included.

        Returns
        -------
        list of GroupProfile
            In the order of first use, each after the one around it. Calls of one name in the same
            group are one row; the backward pass is the group ``gradient``.
        """
        taken: dict[str, float] = {}
        for node, nanoseconds in self.by_node().items():
            group = node.line.group if node.line else None
            around = [] if group is None else [outer.path for outer in group.around()]
            for path in reversed(around):
                taken[path] = taken.get(path, 0.0) + nanoseconds
        whole = max(1, self.nanoseconds)
        first = {path: i for i, path in enumerate(taken)}
        order = sorted(
            taken, key=lambda path: [first[outer] for outer in _outer_paths(path)]
        )
        return [GroupProfile(path, round(taken[path]), taken[path] / whole) for path in order]

    def __iter__(self) -> Iterator[StepProfile]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the measurements as JSON text."""
        return json.dumps(
            {
                "version": VERSION,
                "runs": self.runs,
                "nanoseconds": self.nanoseconds,
                "peaks": None if self.peaks is None else self.peaks.as_dict(),
                "steps": [step.as_dict() for step in self.steps],
                "lines": [vars(line) for line in self.by_line()],
                "groups": [vars(group) for group in self.by_group()],
            },
            indent=indent,
        )

    def to_trace(self) -> dict[str, Any]:
        """Return the steps as a trace that Chrome's tracing page and Perfetto open."""
        return trace(
            self.steps,
            self.by_node(),
            live=self.live,
            spans=self.spans,
            runs=self.runs,
            peaks=None if self.peaks is None else self.peaks.as_dict(),
        )

    def save(self, path: FilePath) -> None:
        """Write a trace that Chrome's tracing page and https://ui.perfetto.dev open.

        path: With the suffix ``.json``.
        raises GraphError: The suffix is another one.

        Examples
        --------
        >>> import magmagraph as mg, os, tempfile
        >>> x = mg.input("x", shape=(1000,))
        >>> measured = mg.function([x], mg.exp(x)).profile([1.0] * 1000)
        >>> measured.save(os.path.join(tempfile.mkdtemp(), "trace.json"))
        """
        target = Path(path)
        if target.suffix.lower() != ".json":
            raise GraphError(
                message(
                    f"{target.name}: there are no traces of the form {target.suffix!r}",
                    need=".json",
                    hint=f"{target.stem}.json",
                )
            )
        write_file(target, json.dumps(self.to_trace()))

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table that it prints as, the head first and the sums last."""
        unit, size = ("MB", 1e6) if self.bytes >= 1e6 else ("kB", 1e3)
        roofs = ("roof", "bound", "level") if self.peaks is not None else ()
        head = (
            "step", "kernel", "us", "share", unit, "GB/s", "GFLOP/s", *roofs, "operations", "lines"
        )
        whole = max(1, self.nanoseconds)
        rows: list[tuple[str, ...]] = [head]
        for step in self.steps:
            roof = "" if step.roof is None else f"{step.roof:.0%}"
            under = (roof, step.bound, step.level) if roofs else ()
            rows.append(
                (
                    str(step.step),
                    step.kernel,
                    f"{step.nanoseconds / 1e3:.1f}",
                    f"{step.nanoseconds / whole:.0%}",
                    f"{step.bytes / size:.3f}",
                    f"{step.gigabytes_per_second:.1f}",
                    f"{step.gigaflops:.1f}",
                    *under,
                    _short(step.operations),
                    _short(_by_file(step.lines)),
                )
            )
        rows.append(
            ("all", "", f"{self.nanoseconds / 1e3:.1f}", "", f"{self.bytes / size:.3f}",
             f"{self.bytes / whole:.1f}", f"{self.flops / whole:.1f}", *("" for _ in roofs), "", "")
        )
        return rows

    def _html(self) -> str:
        lines = [("us", "share", "line")]
        lines += [(f"{x.nanoseconds / 1e3:.1f}", f"{x.share:.0%}", x.line) for x in self.by_line()]
        groups = [("us", "share", "group")]
        groups += [
            (f"{x.nanoseconds / 1e3:.1f}", f"{x.share:.0%}", x.group) for x in self.by_group()
        ]
        return (
            table_html(self.rows(), self._left(), total=True)
            + details("lines of the source", table_html(lines, left=(2,)))
            + (details("groups", table_html(groups, left=(2,))) if len(groups) > 1 else "")
        )

    def _left(self) -> tuple[int, ...]:
        """Return the columns of text."""
        return (1, 8, 9, 10, 11) if self.peaks is not None else (1, 7, 8)

    def __str__(self) -> str:
        return table(self.rows(), left=self._left())

    def __repr__(self) -> str:
        return f"<profile of {len(self.steps)} steps, {self.nanoseconds / 1e3:.1f} us>"


def _by_file(lines: Iterable[str]) -> list[str]:
    """Return lines as texts, each file named once: ``net.py:3``, ``5``, ``other.py:7``."""
    numbers: dict[str, list[int]] = {}
    for line in lines:
        file, _, number = line.rpartition("/")[2].rpartition(":")
        numbers.setdefault(file, []).append(int(number))
    return [
        f"{file}:{number}" if first else str(number)
        for file, in_file in numbers.items()
        for first, number in zip([True] + [False] * len(in_file), sorted(in_file), strict=False)
    ]


def _short(parts: Any) -> str:
    shown = list(parts)
    more = [f"... {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join([*shown[:_SHOWN], *more])


def profile(
    function: Any, *feeds: Any, runs: int = 5, peaks: Any = None, **named: Any
) -> Profile:
    """Measure every step of the plan that a call with these feeds runs.

    function (Function): Compiled, if it is not yet.
    feeds, named: As for a call. Variables keep what they hold; taps and asserts look away.
    runs: How often to run; the shortest time of each step counts.
    peaks: ``peaks(seen)`` gives the machine's peaks, or None; no roofs without. `seen` has for each
        dtype the most 1e9 operations a second of a step.
    returns (Profile):
    raises FeedError: As a call would.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(1000,))
    >>> measured = mg.function([x], mg.exp(x) * 2.0).profile([1.0] * 1000)
    >>> [(step.kernel, step.bytes) for step in measured]
    [('fused', 8000)]
    """
    bound_feeds = bind(function, feeds, named)
    bound = bound_feeds.bound
    best: list[int] = []
    with kept_variables(function):
        for _ in range(max(1, runs)):
            taken = bound.run_timed(bound_feeds.arrays)
            best = [min(pair) for pair in zip(best, taken, strict=True)] if best else list(taken)
    users = _users_by_step(function)
    plan = bound.plan
    kinds = [_arithmetic(step) for step in plan.steps]
    limits: Peaks | None = None if peaks is None else peaks(_seen(plan.steps, kinds, best))
    moved: list[tuple[Part, ...]] = [()] * len(plan.steps)
    if limits is not None:
        moved = traffic(plan)
        pairs = zip(moved, best, plan.steps, strict=True)
        seen = ((parts, taken) for parts, taken, step in pairs if step.role in _STREAMS)
        limits = replace(limits, levels=raised(limits.levels, seen))
    steps = []
    for i, (step, nanoseconds, kind) in enumerate(zip(plan.steps, best, kinds, strict=True)):
        # What a rule made of pieces stands for no user's node: then those it was made for.
        origins = [
            users.get(computed_node) or function.trace.origins(computed_node)
            for computed_node in step.computed
        ]
        nodes = tuple(dict.fromkeys(node for some in origins for node in some))
        measured = (int(nanoseconds), int(step.bytes), int(step.flops))
        steps.append(
            StepProfile(
                i,
                step.kernel,
                ("copy",) if step.role is Role.COPY else _operations(step),
                *measured,
                nodes=nodes,
                lines=_lines(nodes or step.computed),
                arithmetic=kind,
                **_roofs(measured[0], moved[i], measured[2], kind, step.role, limits),
                role=step.role,
            )
        )
    weights = {
        node: _elements(node, bound_feeds.sizes) for step in steps for node in step.nodes
    }
    spans: list[tuple[int, int, int, int]] = []
    if function.communicator is not None and hasattr(bound, "run_timeline"):
        with kept_variables(function):
            spans = bound.run_timeline(bound_feeds.arrays)
    return Profile(tuple(steps), max(1, runs), limits, weights, _live(plan), tuple(spans))


def _outer_paths(path: str) -> list[str]:
    """Return the paths of the groups around one, outermost first, and its own."""
    names = path.split("/")
    return ["/".join(names[: i + 1]) for i in range(len(names))]


def _lines(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the lines that made nodes, each once."""
    return tuple(dict.fromkeys(str(node.line) for node in nodes if node.line))


def _seen(steps: Iterable[Step], kinds: list[str], taken: list[int]) -> dict[str, float]:
    """Return for each dtype the most 1e9 operations a second of a step."""
    most: dict[str, float] = {}
    for step, kind, nanoseconds in zip(steps, kinds, taken, strict=True):
        if kind:
            most[kind] = max(most.get(kind, 0.0), int(step.flops) / max(1, nanoseconds))
    return most


def _operations(step: Step) -> tuple[str, ...]:
    """Return the operations of a step, of all that its launch computes."""
    parts = step.parts or (step,)
    return tuple(dict.fromkeys(name for part in parts for name in operations(part.node)))


def _arithmetic(step: Step) -> str:
    """Return the dtype that a step computes in, empty where it computes nothing of floats."""
    if step.role is Role.COPY:
        return ""
    node = step.parts[0].node if step.parts else step.node
    rounded = node.attrs.get("compute")
    if isinstance(rounded, str) and rounded:
        return rounded
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    floats = [type_.dtype for type_ in types if is_float(type_.dtype)]
    return str(max(floats, key=lambda dtype: dtype.itemsize).name) if floats else ""


def _roofs(
    nanoseconds: int,
    moved: Iterable[Part],
    flops: int,
    kind: str,
    role: Role,
    peaks: Peaks | None,
) -> dict[str, Any]:
    """Return how near a step is to each roof."""
    if role in (Role.COLLECTIVE, Role.WAIT):
        return {"bound": "ranks"}
    if not nanoseconds:  # a product's launch computes it, or that of its reader
        return {"bound": "merged"} if peaks is not None else {}
    if peaks is None:
        return {}
    taken = nanoseconds
    most = peaks.gigaflops.get(kind, 0.0)
    least, level = floor(moved, peaks.levels)
    floors = {
        "bandwidth": least,
        "arithmetic": flops / most if most else 0.0,
        "latency": peaks.latency,
    }
    lowest = max(floors, key=lambda name: floors[name])
    bound = "host" if role is Role.EXPRESSION else lowest
    if bound == lowest and taken > _FAR * floors[lowest]:
        bound = "kernel"
    return {
        "bandwidth_share": floors["bandwidth"] / taken,
        "flops_share": floors["arithmetic"] / taken if most else None,
        "level": level,
        "bound": bound,
        "roof": floors[lowest] / taken,
    }


def _elements(node: Node, sizes: Mapping[str, int]) -> int:
    """Return how many elements a node makes, or reads where it reduces."""
    counted = node.inputs[0] if node.op.reduction is not None else node
    types = counted.type if isinstance(counted.type, tuple) else (counted.type,)
    total = 0
    for type_ in types:
        size = type_.size
        if isinstance(size, int) or dims.names(size) <= sizes.keys():
            total += size if isinstance(size, int) else dims.evaluate(size, sizes)
    return max(1, total)


def _live(plan: Any) -> tuple[int, ...]:
    """Return the bytes of the arena that are alive in each step."""
    change = [0] * (len(plan.steps) + 1)
    for slot in plan.slots:
        if slot.offset is not None:
            change[max(0, slot.first)] += int(slot.size)
            change[min(len(plan.steps), slot.last + 1)] -= int(slot.size)
    live, now = [], 0
    for step in change[:-1]:
        now += step
        live.append(now)
    return tuple(live)


def _users_by_step(function: Any) -> dict[Node, list[Node]]:
    by_maker: dict[Node, dict[Node, None]] = {}
    for node, users in users_of(function).items():
        by_maker.setdefault(maker(node)[0], {}).update(dict.fromkeys(users))
    return {node: list(users) for node, users in by_maker.items()}
