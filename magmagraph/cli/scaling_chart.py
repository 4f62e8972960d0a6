"""The picture of a scaling measurement: throughput over ranks, beside the ideal line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["chart"]

WIDTH, HEIGHT = 560, 400
LEFT, TOP, RIGHT, BOTTOM = 90, 50, 30, 60


def chart(runs: Sequence[dict[str, Any]], title: str) -> str:
    """Return an SVG of samples per second over ranks, both on logarithmic axes.

    Parameters
    ----------
    runs
        As `Measured.plain` gives them, by ascending ranks.
    title
        Of the picture.

    Examples
    --------
    >>> runs = [{"ranks": n, "samples_per_second": 100.0 * n} for n in (1, 2)]
    >>> chart(runs, "train.py").startswith("<svg")
    True
    """
    ranks = [one["ranks"] for one in runs]
    rates = [one["samples_per_second"] for one in runs]
    ideal = [rates[0] * count / ranks[0] for count in ranks]
    low, high = min(rates + ideal), max(rates + ideal)
    low, high = low / 1.2, high * 1.2
    last = max(ranks[-1], 2 * ranks[0])

    def across(count: float) -> float:
        share = math.log(count / ranks[0]) / math.log(last / ranks[0])
        return LEFT + 15 + share * (WIDTH - LEFT - RIGHT - 30)

    def up(value: float) -> float:
        share = math.log(value / low) / math.log(high / low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def line(values: Sequence[float]) -> str:
        places = zip(ranks, values, strict=True)
        return " ".join(f"{across(n):.1f},{up(value):.1f}" for n, value in places)

    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>Throughput of {escape(title)} over ranks</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="#555"/>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 16}" '
        'text-anchor="middle">ranks</text>',
        f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="middle">samples/s</text>',
        f'<polyline points="{line(ideal)}" fill="none" stroke="#767676" stroke-dasharray="5 4"/>',
        f'<polyline points="{line(rates)}" fill="none" stroke="#0b62a8" stroke-width="2"/>',
    ]
    for count, value in zip(ranks, rates, strict=True):
        x = across(count)
        parts.append(f'<text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{count}</text>')
        parts.append(f'<circle cx="{x:.1f}" cy="{up(value):.1f}" r="4" fill="#0b62a8"/>')
    for value in _ticks(low, high):
        y = up(value)
        parts.append(f'<path d="M{LEFT - 4} {y:.1f}H{LEFT}" stroke="#555"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,g}</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="24" text-anchor="end" fill="#555">dashed: ideal</text></svg>'
    )
    return "\n".join(parts) + "\n"


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, at least two of them.

    Examples
    --------
    >>> _ticks(80.0, 300.0)
    [100.0, 200.0]
    """
    decade = 10.0 ** math.floor(math.log10(low))
    ticks: list[float] = []
    for steps in ((1, 2, 5), tuple(range(1, 10)), tuple(n / 10 for n in range(10, 100))):
        many = [decade * 10**k * n for k in range(math.ceil(math.log10(high / low)) + 2)
                for n in steps]  # fmt: skip
        ticks = [round(value, 12) for value in many if low <= value <= high]
        if len(ticks) >= 2:
            break
    return ticks
