"""The bytes that are alive in each step of a plan, and what holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.graph import Node
from ...ir.plan import Place, Plan
from ...ir.records import record
from .specialize import rounded

__all__ = ["Holding", "Moment", "Timeline", "listed", "readable", "timeline"]

_BAR = 32  # characters of the longest bar
_SHOWN = 12  # holders that a text lists


def readable(size: int) -> str:
    """Return bytes with a unit.

    Examples
    --------
    >>> readable(900), readable(3 * 1024**2), readable(10**10)
    ('900 B', '3.0 MiB', '9.3 GiB')
    """
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


@record(frozen=True)
class Holding:
    """What holds memory at the peak.

    Attributes
    ----------
    bytes
        Its size in the arena.
    category
        "activations" or "workspaces".
    first, last
        The steps from which and to which it is alive.
    what
        The nodes whose value it is, with their lines.
    """

    bytes: int
    category: str
    first: int
    last: int
    what: str

    def __str__(self) -> str:
        alive = f"step {self.first}" if self.first == self.last else (
            f"steps {self.first} to {self.last}"
        )
        kind = "workspace of " if self.category == "workspaces" else ""
        return f"{readable(self.bytes)}, {alive}: {kind}{self.what}"


@record(frozen=True)
class Moment:
    """A step: its number, kernel, and the bytes of the arena that are alive in it."""

    step: int
    kernel: str
    activations: int
    workspaces: int

    @property
    def live(self) -> int:
        """All bytes of the arena that are alive."""
        return self.activations + self.workspaces


@record(frozen=True)
class Timeline:
    """The memory of a call, step by step.

    Attributes
    ----------
    moments
        One for each step.
    peak
        The number of the step in which most is alive; None without steps.
    holders
        What is alive then, the largest first.
    held
        Bytes that are there all the time, by category: parameters, optimizer, feeds and others.
    arena
        Bytes of the arena, which is allocated whole: at least those alive at the peak.
    """

    moments: tuple[Moment, ...]
    peak: int | None
    holders: tuple[Holding, ...]
    held: Mapping[str, int]
    arena: int

    @property
    def workspaces(self) -> int:
        """Bytes of workspaces at the peak."""
        return 0 if self.peak is None else self.moments[self.peak].workspaces

    @property
    def total(self) -> int:
        """All bytes of a call."""
        return self.arena + sum(self.held.values())

    def __str__(self) -> str:
        longest = max((moment.live for moment in self.moments), default=0)
        width = max((len(moment.kernel) for moment in self.moments), default=0)
        lines = [f"{name}: {readable(size)}" for name, size in self.held.items() if size]
        lines.append(f"arena: {readable(self.arena)}")
        for moment in self.moments:
            bar = "#" * round(_BAR * moment.live / longest) if longest else ""
            mark = "  <- peak" if moment.step == self.peak and longest else ""
            lines.append(
                f"{moment.step:4}  {moment.kernel:<{width}}  {readable(moment.live):>10}  "
                f"{bar}{mark}".rstrip()
            )
        if self.holders:
            lines.append(f"alive in step {self.peak}:")
            lines += listed(self.holders)
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain values, for JSON."""
        return {
            "moments": [
                {"step": m.step, "kernel": m.kernel, "activations": m.activations,
                 "workspaces": m.workspaces}
                for m in self.moments
            ],
            "peak": self.peak,
            "holders": [
                {"bytes": h.bytes, "category": h.category, "first": h.first, "last": h.last,
                 "what": h.what}
                for h in self.holders
            ],
            "held": dict(self.held),
            "arena": self.arena,
        }  # fmt: skip


def listed(holders: Sequence[Holding]) -> list[str]:
    """Return lines that list the largest holders."""
    lines = [f"  {holder}" for holder in holders[:_SHOWN]]
    if len(holders) > _SHOWN:
        rest = sum(holder.bytes for holder in holders[_SHOWN:])
        lines.append(f"  {readable(rest)} in {len(holders) - _SHOWN} more")
    return lines


def _profile(plan: Plan) -> tuple[list[int], list[int]]:
    """Return the bytes of activations and of workspaces that are alive in each step."""
    scratch = {step.workspace for step in plan.steps if step.workspace is not None}
    count = len(plan.steps)
    changes = ([0] * (count + 1), [0] * (count + 1))
    for slot in plan.slots:
        if slot.place is Place.ARENA and count:
            change = changes[slot.index in scratch]
            size = rounded(int(slot.size))
            change[min(max(slot.first, 0), count - 1)] += size
            change[min(slot.last, count - 1) + 1] -= size
    profiles: tuple[list[int], list[int]] = ([], [])
    for profile, change in zip(profiles, changes, strict=True):
        alive = 0
        for step in range(count):
            alive += change[step]
            profile.append(alive)
    return profiles


def _peak(profile: tuple[list[int], list[int]]) -> int | None:
    activations, workspaces = profile
    return max(
        range(len(activations)), key=lambda i: activations[i] + workspaces[i], default=None
    )


def timeline(
    plan: Plan, categories: Mapping[str, int], describe: Callable[[Node], str]
) -> Timeline:
    """Return the timeline of a plan that is bound to sizes.

    Parameters
    ----------
    plan
        The plan.
    categories
        Bytes beside the arena, by category.
    describe
        Returns what a step's node computes, for people.
    """
    profile = _profile(plan)
    peak = _peak(profile)
    moments = tuple(
        Moment(i, step.kernel, activations, workspaces)
        for i, (step, activations, workspaces) in enumerate(
            zip(plan.steps, *profile, strict=True)
        )
    )
    holders = () if peak is None else _holders(plan, peak, describe)
    return Timeline(moments, peak, holders, categories, plan.arena or 0)


def _holders(plan: Plan, peak: int, describe: Callable[[Node], str]) -> tuple[Holding, ...]:
    """Return what is alive in a step, the largest first."""
    scratch = {step.workspace for step in plan.steps if step.workspace is not None}
    makers: dict[int, Node] = {}
    for step in plan.steps[: peak + 1]:  # a slot holds what was written into it last
        makers.update((value.slot, step.node) for value in step.outputs)
        if step.workspace is not None:
            makers[step.workspace] = step.node
    holdings = [
        Holding(
            rounded(int(slot.size)),
            "workspaces" if slot.index in scratch else "activations",
            slot.first,
            slot.last,
            describe(makers[slot.index]) if slot.index in makers else "a copy",
        )
        for slot in plan.slots
        if slot.place is Place.ARENA and slot.first <= peak <= slot.last and int(slot.size)
    ]
    return tuple(sorted(holdings, key=lambda holding: (-holding.bytes, holding.first)))
