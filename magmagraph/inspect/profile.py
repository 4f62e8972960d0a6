"""`f.profile(*feeds)`: time, bytes and arithmetic of every step, mapped to the user's lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..graph import Graph, Node
from ..op import Kind
from .fate import maker, users_of
from .running import bind, kept_variables

_SHOWN = 6  # operations and lines of a step that the table names


@dataclass(frozen=True)
class StepProfile:
    """One step of the plan, measured.

    Attributes
    ----------
    step
        Its number.
    kernel
        The kernel family.
    operations
        What it computes: the operation, or those inside of a fused one.
    nanoseconds
        The shortest of the runs.
    bytes
        What it must move.
    flops
        Its arithmetic.
    nodes
        The user's nodes that it computes.
    lines
        Their lines, each once.
    """

    step: int
    kernel: str
    operations: tuple[str, ...]
    nanoseconds: int
    bytes: int
    flops: int
    nodes: tuple[Node, ...]
    lines: tuple[str, ...]

    @property
    def gigabytes_per_second(self) -> float:
        """How fast it moved its bytes."""
        return self.bytes / max(1, self.nanoseconds)

    @property
    def gigaflops(self) -> float:
        """How fast it computed, in 1e9 operations a second."""
        return self.flops / max(1, self.nanoseconds)

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
            "nodes": [node.name or node.op.name for node in self.nodes],
            "lines": list(self.lines),
        }


@dataclass(frozen=True)
class Profile:
    """The steps of a plan, measured. Iterates over them; prints as a table.

    Attributes
    ----------
    steps
        See `StepProfile`.
    runs
        How many runs the times are the shortest of.
    """

    steps: tuple[StepProfile, ...]
    runs: int

    @property
    def nanoseconds(self) -> int:
        """Of all steps together."""
        return sum(step.nanoseconds for step in self.steps)

    @property
    def bytes(self) -> int:
        """What all steps move."""
        return sum(step.bytes for step in self.steps)

    @property
    def flops(self) -> int:
        """The arithmetic of all steps."""
        return sum(step.flops for step in self.steps)

    def __iter__(self) -> Iterator[StepProfile]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the measurements as JSON text."""
        return json.dumps(
            {"runs": self.runs, "steps": [step.as_dict() for step in self.steps]}, indent=indent
        )

    def __str__(self) -> str:
        unit, size = ("MB", 1e6) if self.bytes >= 1e6 else ("kB", 1e3)
        head = ("step", "kernel", "us", "share", unit, "GB/s", "GFLOP/s", "operations", "lines")
        whole = max(1, self.nanoseconds)
        rows: list[tuple[str, ...]] = [head]
        for step in self.steps:
            rows.append(
                (
                    str(step.step),
                    step.kernel,
                    f"{step.nanoseconds / 1e3:.1f}",
                    f"{step.nanoseconds / whole:.0%}",
                    f"{step.bytes / size:.3f}",
                    f"{step.gigabytes_per_second:.1f}",
                    f"{step.gigaflops:.1f}",
                    _short(step.operations),
                    _short(_by_file(step.lines)),
                )
            )
        rows.append(
            ("all", "", f"{self.nanoseconds / 1e3:.1f}", "", f"{self.bytes / size:.3f}",
             f"{self.bytes / whole:.1f}", f"{self.flops / whole:.1f}", "", "")
        )
        return table(rows, left=(1, 7, 8))

    def __repr__(self) -> str:
        return f"<profile of {len(self.steps)} steps, {self.nanoseconds / 1e3:.1f} us>"


def table(rows: list[tuple[str, ...]], left: tuple[int, ...]) -> str:
    """Return rows as lines with columns, right-aligned but for those in `left`."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            f"{cell:<{width}}" if i in left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _by_file(lines: Iterable[str]) -> list[str]:
    """Return lines as texts, each file named once: ``net.py:3``, ``5``, ``other.py:7``."""
    numbers: dict[str, list[int]] = {}
    for line in lines:
        file, _, number = line.rpartition("/")[2].rpartition(":")
        numbers.setdefault(file, []).append(int(number))
    return [
        f"{file}:{number}" if first else str(number)
        for file, found in numbers.items()
        for first, number in zip([True] + [False] * len(found), sorted(found), strict=False)
    ]


def _short(parts: Any) -> str:
    shown = list(parts)
    more = [f"... {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join([*shown[:_SHOWN], *more])


def profile(function: Any, *feeds: Any, runs: int = 5, **named: Any) -> Profile:
    """Measure every step of the plan that a call with these feeds runs.

    Parameters
    ----------
    function : Function
        Compiled, if it is not yet.
    feeds, named
        As for a call. Variables keep what they hold.
    runs
        How often to run; the shortest time of each step counts.

    Returns
    -------
    Profile

    Raises
    ------
    FeedError
        As a call would.

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
    steps = []
    for i, (step, nanoseconds) in enumerate(zip(bound.plan.steps, best, strict=True)):
        # What a rule made of pieces stands for no user's node: then those it was made for.
        nodes = tuple(users.get(step.node) or function.trace.origins(step.node))
        steps.append(
            StepProfile(
                step=i,
                kernel=step.kernel,
                operations=("copy",) if step.kernel == "copy" else operations(step.node),
                nanoseconds=int(nanoseconds),
                bytes=int(step.bytes),
                flops=int(step.flops),
                nodes=nodes,
                lines=tuple(dict.fromkeys(str(node.line) for node in nodes if node.line)),
            )
        )
    return Profile(tuple(steps), max(1, runs))


def operations(node: Node) -> tuple[str, ...]:
    """Return the operation of a node, or those inside of its bodies, each once."""
    value = node.attrs.get("bodies", (node.attrs.get("body"),))
    bodies = [body for body in value if isinstance(body, Graph)] if value else []
    if not bodies:
        return (node.op.name,)
    inner = [n.op.name for body in bodies for n in body.nodes if n.op.kind is not Kind.LEAF]
    return tuple(dict.fromkeys(inner))


def _users_by_step(function: Any) -> dict[Node, list[Node]]:
    found: dict[Node, dict[Node, None]] = {}
    for node, users in users_of(function).items():
        found.setdefault(maker(node)[0], {}).update(dict.fromkeys(users))
    return {node: list(users) for node, users in found.items()}
