"""`f.ablate(*feeds)`: the time and memory that each optional pass gains."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import MagmagraphError
from ..ir.html import Displayed, table_html
from ..ir.tables import table
from ..text.writing import dump
from .checking.running import Feeds, bind, kept_variables

VERSION = 1  # of the JSON text
WHOLE = "all passes"
_WARM = 2  # runs: the second captures what the others replay
_SHORTEST = 1_000_000  # nanoseconds that one measurement takes at least, in as many runs


@dataclass(frozen=True)
class Ablation:
    """The function without one pass.

    name: The pass that is left out; "all passes" for the function as it is.
    nanoseconds: Of one call: the median of the rounds.
    low, high: Quartiles of the rounds: where those of two variants do not overlap, one is faster.
    bytes: Of the arena that it plans.
    steps: Kernel launches.
    error: Why it could not be measured, empty where it was.
    same: Whether it plans what the whole function plans: then the pass changed nothing, and a
        difference of times is noise.
    """

    name: str
    nanoseconds: float = 0.0
    low: float = 0.0
    high: float = 0.0
    bytes: int = 0
    steps: int = 0
    error: str = ""
    same: bool = False


@dataclass(frozen=True)
class Ablations(Displayed):
    """One measurement for each optional pass, the whole first. Prints as a table."""

    rows: tuple[Ablation, ...]
    rounds: int = 0

    @property
    def losses(self) -> list[str]:
        """The passes without which the function is faster, beyond the spread."""
        return [row.name for row in self.rows if self.verdict(row).startswith("costs")]

    def verdict(self, row: Ablation) -> str:
        """Return the effect of a pass on the time, in words; empty within the spread.

        A pass without which the same is planned changes nothing, whatever the clock says.

        Examples
        --------
        >>> rows = (Ablation("all passes", 100, 90, 110), Ablation("fuse", 300, 290, 310),
        ...         Ablation("layout", 50, 45, 55), Ablation("precision", 105, 95, 115))
        >>> [Ablations(rows).verdict(row) for row in rows]
        ['', 'gains 3.00x', 'costs 2.00x', '']
        """
        if row is self.whole or row.error:
            return ""
        if row.same:
            return "changes nothing"
        base = self.whole
        if row.low > base.high:
            return f"gains {row.nanoseconds / max(1.0, base.nanoseconds):.2f}x"
        if row.high < base.low:
            return f"costs {base.nanoseconds / max(1.0, row.nanoseconds):.2f}x"
        return ""

    @property
    def whole(self) -> Ablation:
        """The function as it is."""
        return self.rows[0]

    def __getitem__(self, name: str) -> Ablation:
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise KeyError(f"no pass {name!r} was left out; there are {names}")

    def __iter__(self) -> Iterator[Ablation]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the measurements as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
        rows = [{**vars(row), "verdict": self.verdict(row)} for row in self.rows]
        return {"version": VERSION, "rounds": self.rounds, "rows": rows}

    def table(self) -> list[tuple[str, ...]]:
        """Return the table that it prints as, the head first."""
        rows: list[tuple[str, ...]] = [
            ("without", "us", "quartiles", "times", "kB", "times", "steps", "the pass")
        ]
        base = self.whole
        for row in self.rows:
            if row.error:
                rows.append((row.name, "", "", "", "", "", "", row.error))
                continue
            rows.append(
                (
                    "nothing" if row is base else row.name,
                    f"{row.nanoseconds / 1e3:.1f}",
                    f"{row.low / 1e3:.1f}-{row.high / 1e3:.1f}",
                    f"{row.nanoseconds / max(1.0, base.nanoseconds):.2f}",
                    f"{row.bytes / 1e3:.1f}",
                    f"{row.bytes / base.bytes:.2f}" if base.bytes else "",
                    str(row.steps),
                    self.verdict(row),
                )
            )
        return rows

    def _html(self) -> str:
        return table_html(self.table(), left=(0, 7))

    def __str__(self) -> str:
        return table(self.table(), left=(0, 7))

    def __repr__(self) -> str:
        return f"<ablation of {len(self.rows) - 1} passes>"


def ablate(function: Any, *feeds: Any, rounds: int = 9, **named: Any) -> Ablations:
    """Measure the function with each optional pass left out, in turn.

    The variants run one after the other in every round, each round beginning with another one, so
    that what else the machine does falls on all of them.

    function (Function): Compiled, if it is not yet.
    feeds, named: As for a call. Variables keep what they hold.
    rounds: How often each is measured; the median counts.
    returns (Ablations):
    raises FeedError: As a call would.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(1000,))
    >>> measured = mg.function([x], mg.exp(x) * 2.0).ablate([1.0] * 1000, rounds=1)
    >>> measured.whole.steps, measured["fuse"].steps
    (1, 2)
    """
    variants: list[tuple[str, Any, Feeds]] = []
    failed: list[Ablation] = []
    skipped = function._settings["skip"]
    optional = [record.name for record in function.passes if record.optional]
    for name in (None, *optional):
        variant = function if name is None else _without(function, (*skipped, name))
        try:
            bound = bind(variant, feeds, named)
        except MagmagraphError as error:
            if name is None:
                raise
            failed.append(Ablation(name, error=str(error).splitlines()[0]))
            continue
        variants.append((WHOLE if name is None else name, variant, bound))
    times: list[list[float]] = [[] for _ in variants]
    with kept_variables(function):
        counts = [_count(bound) for _, _, bound in variants]
    order = list(zip(times, variants, counts, strict=True))
    for _ in range(max(1, rounds)):
        order.append(order.pop(0))
        for taken, (_, _, bound), count in order:
            with kept_variables(function):
                began = time.perf_counter_ns()
                for _ in range(count):
                    bound.bound.run(bound.arrays)
                bound.bound.wait()
                taken.append((time.perf_counter_ns() - began) / count)
    plans = [[dump(bound.bound.plan, data=False), *_bodies(v)] for _, v, bound in variants]
    rows = [
        Ablation(
            name,
            *_spread(taken),
            _planned(bound),
            len(bound.bound.plan.steps),
            same=name != WHOLE and plan == plans[0],
        )
        for (name, _, bound), taken, plan in zip(variants, times, plans, strict=True)
    ]
    return Ablations((*rows, *failed), max(1, rounds))


def _spread(taken: list[float]) -> tuple[float, float, float]:
    """Return the median and the quartiles of some times."""
    if len(taken) == 1:
        return taken[0], taken[0], taken[0]
    low, middle, high = statistics.quantiles(taken, n=4, method="inclusive")
    return middle, low, high


def _without(function: Any, skip: tuple[str, ...]) -> Any:
    """Return the function compiled without some passes; it shares the variables."""
    kind: Any = type(function)
    variant = kind.__new__(kind)
    state = function.__getstate__()
    variant.__setstate__({**state, "settings": {**state["settings"], "skip": skip}})
    return variant


def _bodies(function: Any) -> list[str]:
    """Return the plans of loops' and branches' bodies: passes work on them, too."""
    texts: list[str] = []
    for body in function.bodies:
        texts += [dump(body.plan, data=False), *_bodies(body)]
    return texts


def _count(feeds: Feeds) -> int:
    """Return how many runs make one measurement; the first ones warm up."""
    for _ in range(_WARM):
        feeds.bound.run(feeds.arrays)
    feeds.bound.wait()
    began = time.perf_counter_ns()
    feeds.bound.run(feeds.arrays)
    feeds.bound.wait()
    return max(1, _SHORTEST // max(1, time.perf_counter_ns() - began))


def _planned(feeds: Feeds) -> int:
    plan = feeds.bound.plan
    return int(plan.arena or 0)
