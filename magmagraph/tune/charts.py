"""Pictures of a search as SVG, coloured by the style sheet of the page that they stand in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import Protocol

from ..inspect.pictures.chart import Frame, Scale, Tick, cut, number_text
from ..inspect.pictures.palette import mixed
from .domains import Choice, Domain, Steps, Uniform
from .goal import Goal
from .space import Space
from .trial import TrialResult

__all__ = ["Found", "history", "parallel", "scatter", "times"]

_WIDE = 880.0
_TALL = 280.0
_SMALL = (430.0, 240.0)
_LONGEST = 12  # characters of a tick's text
_MOST_LINES = 400  # trials that are drawn as lines, the best ones


class Found(Protocol):
    """What pictures and the page show of a search: a `SearchResult`."""

    trials: list[TrialResult]
    space: Space
    goal: Goal

    def ranked(self) -> list[TrialResult]:
        """Return the trials with a result, the best first."""

    def rows(self, trials: Sequence[TrialResult]) -> list[tuple[str, ...]]:
        """Return a head, and a row for each trial."""

    def summary(self) -> str:
        """Return what was found, in a few lines."""


def history(found: Found) -> str:
    """Return the goals of trials in their order, and the best so far."""
    seen = _with_goal(found)
    if not seen:
        return ""
    x = Scale(-0.5, max(trial.number for trial in found.trials) + 0.5)
    y = Scale.of([trial.goal or 0.0 for trial in seen])
    frame = Frame(_WIDE, _TALL)
    parts = [frame.axes(_whole_ticks(x), y.ticks(), "trial", found.goal.name)]
    done = [trial for trial in seen if trial.state == "done"]
    best = max if found.goal.maximize else min
    corners = [
        frame.place(x.at(trial.number), y.at(value))
        for trial, value in zip(done, accumulate((t.goal or 0.0 for t in done), best), strict=True)
    ]
    if corners:
        steps = "".join(f"H{across:.1f}V{down:.1f}" for across, down in corners)
        start = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"
        parts.append(f'<path class="best" d="{start}{steps}H{frame.right:.1f}"/>')
    parts += [_dot(frame, t, x.at(t.number), y.at(t.goal or 0.0)) for t in seen]
    for trial in found.trials:
        if trial.state == "failed":
            across, _ = frame.place(x.at(trial.number), 0.0)
            parts.append(
                f'<path class="failed" d="M{across - 4:.1f} {frame.bottom - 10:.1f}l8 8m0 -8l-8 8">'
                f"<title>{escape(_told(trial))}</title></path>"
            )
    return frame.svg(parts, f"{found.goal.name} by trial")


def times(found: Found) -> str:
    """Return the seconds of each trial as bars."""
    if not found.trials:
        return ""
    x = Scale(-0.5, max(trial.number for trial in found.trials) + 0.5)
    y = Scale.of([trial.seconds for trial in found.trials] or [1.0], zero=True)
    frame = Frame(_WIDE, 200.0)
    wide = max(1.0, 0.8 * (frame.right - frame.left) / (x.high - x.low))
    parts = [frame.axes(_whole_ticks(x), y.ticks(), "trial", "seconds")]
    for trial in found.trials:
        across, down = frame.place(x.at(trial.number), y.at(trial.seconds))
        parts.append(
            f'<rect class="bar {trial.state}" x="{across - wide / 2:.1f}" y="{down:.1f}" '
            f'width="{wide:.1f}" height="{frame.bottom - down:.1f}">'
            f"<title>{escape(_told(trial))}</title></rect>"
        )
    return frame.svg(parts, "seconds by trial")


def scatter(found: Found, name: str) -> str:
    """Return the goals against one parameter."""
    seen = _with_goal(found)
    if not seen:
        return ""
    column = list(found.space).index(name)
    domain = found.space[name]
    y = Scale.of([trial.goal or 0.0 for trial in seen])
    frame = Frame(*_SMALL)
    # A little room beside the first and the last value.
    parts = [
        frame.axes(
            [(_inner(place), text) for place, text in _domain_ticks(domain)],
            y.ticks(),
            name,
            found.goal.name,
        )
    ]
    for trial in seen:
        place = _inner(domain.position(trial.codes[column]))
        parts.append(_dot(frame, trial, place, y.at(trial.goal or 0.0)))
    return frame.svg(parts, f"{found.goal.name} against {name}")


def parallel(found: Found) -> str:
    """Return a line for each trial through all its parameters and its goal, the best on top."""
    ranked = found.ranked()
    if not ranked:
        return ""
    ranked = ranked[:_MOST_LINES]
    y = Scale.of([trial.goal or 0.0 for trial in ranked])
    frame = Frame(_WIDE, 340.0, bottom=30.0, top=34.0)
    names = [*found.space, found.goal.name]
    step = (frame.right - frame.left) / (len(names) - 1)
    parts = []
    for index in range(len(ranked) - 1, -1, -1):
        trial = ranked[index]
        places = [
            _inner(domain.position(code))
            for domain, code in zip(found.space.values(), trial.codes, strict=True)
        ]
        points = [
            f"{frame.left + step * i:.1f},{frame.place(0.0, place)[1]:.1f}"
            for i, place in enumerate([*places, y.at(trial.goal or 0.0)])
        ]
        rank = 1.0 - index / max(1, len(ranked) - 1)
        kind = "line first" if index == 0 else f"line r{round(rank * 9)}"
        parts.append(
            f'<polyline class="{kind}" points="{" ".join(points)}">'
            f"<title>{escape(_told(trial))}</title></polyline>"
        )
    ticks = [
        [(_inner(place), text) for place, text in _domain_ticks(domain)]
        for domain in found.space.values()
    ]
    for i, (name, marks) in enumerate(zip(names, [*ticks, y.ticks()], strict=True)):
        across = frame.left + step * i
        anchor = "end" if i == len(names) - 1 else "start" if i == 0 else "middle"
        parts.append(
            f'<path class="axis" d="M{across:.1f} {frame.top:.1f}V{frame.bottom:.1f}"/>'
            f'<text class="name" text-anchor="{anchor}" x="{across:.1f}" '
            f'y="{frame.top - 14:.1f}">{escape(cut(name, 24))}</text>'
        )
        for place, text in marks:
            down = frame.place(0.0, place)[1]
            side = "end" if i == len(names) - 1 else "start"
            beside = across + (-6 if side == "end" else 6)
            parts.append(
                f'<path class="axis" d="M{across - 3:.1f} {down:.1f}h6"/>'
                f'<text class="tick halo" text-anchor="{side}" x="{beside:.1f}" '
                f'y="{down + 4:.1f}">{escape(text)}</text>'
            )
    return frame.svg(parts, "all parameters and the goal of each trial")


def shades(colour: str, paper: str) -> str:
    """Return the rules for lines, from the worst (r0) to the best (r9)."""
    return "".join(
        f".r{rank}{{stroke:{mixed(colour, paper, 0.12 + 0.07 * rank)}}}" for rank in range(10)
    )


def _dot(frame: Frame, trial: TrialResult, x: float, y: float) -> str:
    across, down = frame.place(x, y)
    return (
        f'<circle class="dot {trial.state}" cx="{across:.1f}" cy="{down:.1f}" r="3.5">'
        f"<title>{escape(_told(trial))}</title></circle>"
    )


def _with_goal(found: Found) -> list[TrialResult]:
    return [trial for trial in found.trials if trial.goal is not None]


def _told(trial: TrialResult) -> str:
    """Return what a trial says when it is pointed at."""
    point = "\n".join(f"{name} = {_value(value)}" for name, value in trial.labels.items())
    goal = "" if trial.goal is None else f": {trial.goal:.6g}"
    return f"trial {trial.number}, {trial.state}{goal}, {trial.seconds:.2f} s\n{point}"


def _inner(place: float) -> float:
    return 0.04 + 0.92 * place


def _domain_ticks(domain: Domain) -> list[Tick]:
    """Return values of a domain and their places."""
    if isinstance(domain, (Steps, Choice)):
        size = domain.size
        every = 1 if isinstance(domain, Choice) and size <= 8 else -(-size // 6)
        codes = range(0, size, every)
        return [(domain.position(code), _value(domain.label(code))) for code in codes]
    assert isinstance(domain, Uniform)
    scale = Scale(domain.low, domain.high, domain.logarithmic)
    return [(place, text) for place, text in scale.ticks() if 0.0 <= place <= 1.0]


def _whole_ticks(scale: Scale) -> list[Tick]:
    least = max(1.0, (scale.high - scale.low) / 12)
    power = 10 ** math.floor(math.log10(least))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= least)
    return [(scale.at(n), str(n)) for n in range(0, math.floor(scale.high) + 1, step)]


def _value(value: object) -> str:
    return cut(number_text(value) if isinstance(value, float) else str(value), _LONGEST)
