"""What charts have in common: scales with round ticks, and a frame with axes.

They are SVG whose colours stand in a style sheet: `axis`, `grid`, `tick` and `name` are classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Frame", "Scale", "Tick", "cut", "number_text"]

_RATIO = 50.0  # of largest and least from which a scale is logarithmic
_TICKS = 5
_LETTER = 6.8  # the width of one in a tick's text

Tick = tuple[float, str]


@dataclass(frozen=True)
class Scale:
    """Numbers along an axis, from 0 to 1.

    Examples
    --------
    >>> Scale(0.0, 10.0).at(2.5)
    0.25
    >>> [text for _, text in Scale(1.0, 1000.0, logarithmic=True).ticks()]
    ['1', '10', '100', '1000']
    """

    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def of(cls, numbers: Sequence[float], zero: bool = False) -> Scale:
        """Return a scale on which all numbers are seen; it begins at zero where that is asked."""
        low, high = min(numbers), max(numbers)
        if low > 0 and high / low > _RATIO and not zero:
            return cls(low / 1.2, high * 1.2, logarithmic=True)
        low = 0.0 if zero else low
        room = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
        return cls(low if zero else low - room, high + room)

    def at(self, number: float) -> float:
        """Return the place of a number."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, number = math.log(low), math.log(high), math.log(number)
        return (number - low) / (high - low)

    def ticks(self) -> list[Tick]:
        """Return round numbers and their places."""
        return [(self.at(number), number_text(number)) for number in self._round()]

    def _round(self) -> list[float]:
        if self.logarithmic:
            first, last = math.log10(self.low), math.log10(self.high)
            powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
            if len(powers) >= 2:
                every = -(-len(powers) // (_TICKS + 1))
                return [10.0**power for power in powers[::every]]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / _TICKS))
        step *= next(by for by in (1, 2, 5, 10) if (self.high - self.low) / (step * by) <= _TICKS)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


class Frame:
    """The plot area of a chart, and the positions on it.

    width, height: Of the picture.
    left, right, top, bottom: The room beside the axes.
    """

    def __init__(
        self,
        width: float,
        height: float,
        *,
        left: float = 70.0,
        right: float = 20.0,
        top: float = 14.0,
        bottom: float = 44.0,
    ) -> None:
        self.width, self.height = width, height
        self.left, self.right = left, width - right
        self.top, self.bottom = top, height - bottom

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point of the unit square."""
        across = self.left + x * (self.right - self.left)
        return across, self.bottom - y * (self.bottom - self.top)

    def axes(self, across: Sequence[Tick], up: Sequence[Tick], below: str, beside: str) -> str:
        """Return both axes with ticks and names."""
        parts = []
        for place, text in up:
            _, y = self.place(0.0, place)
            parts.append(
                f'<path class="grid" d="M{self.left:.1f} {y:.1f}H{self.right:.1f}"/>'
                f'<text class="tick" text-anchor="end" x="{self.left - 6:.1f}" '
                f'y="{y + 4:.1f}">{escape(text)}</text>'
            )
        for place, text in across:
            x, _ = self.place(place, 0.0)
            half = _LETTER * len(text) / 2
            at = max(half, min(x, self.width - half))  # beside the mark where it would be cut off
            parts.append(
                f'<path class="axis" d="M{x:.1f} {self.bottom:.1f}v4"/>'
                f'<text class="tick" text-anchor="middle" x="{at:.1f}" '
                f'y="{self.bottom + 17:.1f}">{escape(text)}</text>'
            )
        middle, high = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        parts.append(
            f'<path class="axis" d="M{self.left:.1f} {self.top:.1f}V{self.bottom:.1f}'
            f'H{self.right:.1f}"/>'
            f'<text class="name" text-anchor="middle" x="{middle:.1f}" '
            f'y="{self.bottom + 36:.1f}">{escape(cut(below, 40))}</text>'
            f'<text class="name" text-anchor="middle" transform="rotate(-90)" x="{-high:.1f}" '
            f'y="13">{escape(cut(beside, 30))}</text>'
        )
        return "".join(parts)

    def svg(self, parts: Sequence[str], name: str) -> str:
        """Return the picture."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} '
            f'{self.height:.0f}" width="{self.width:.0f}" role="img" '
            f'aria-label="{escape(name)}">{"".join(parts)}</svg>'
        )


def number_text(number: float) -> str:
    """Return a number as ticks have it."""
    return f"{number:.4g}" if number else "0"


def cut(text: str, most: int) -> str:
    """Return a text of so many characters at most."""
    return text if len(text) <= most else text[: most - 1] + "…"
