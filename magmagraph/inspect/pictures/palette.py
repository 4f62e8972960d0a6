"""Colours and signs of pictures: by kind, of the palette of Okabe and Ito, for light and dark.

Eight colours cannot tell sixteen things apart: each has a sign, too.
"""

from __future__ import annotations

from dataclasses import dataclass

_BLUE, _SKY, _GREEN, _YELLOW = "#0072b2", "#56b4e9", "#009e73", "#f0e442"
_ORANGE, _RED, _PURPLE, _GREY = "#e69f00", "#d55e00", "#cc79a7", "#646e7a"

SIGNS = {
    "input": "▸",
    "variable": "●",
    "constant": "c",
    "elementwise": "ƒ",
    "reduction": "Σ",
    "contraction": "×",
    "convolution": "∗",
    "linalg": "L",
    "transform": "F",
    "layout": "↔",
    "index": "#",
    "random": "?",
    "collective": "⇄",
    "control": "◇",
    "lowered": "k",
    "update": "←",
    "output": "■",
}
"""What stands at the left of each box."""

COLOURS = {
    "input": _BLUE,
    "variable": _RED,
    "constant": _GREY,
    "elementwise": _SKY,
    "reduction": _PURPLE,
    "contraction": _ORANGE,
    "convolution": _ORANGE,
    "linalg": _GREEN,
    "transform": _GREEN,
    "layout": _GREY,
    "index": _GREEN,
    "random": _YELLOW,
    "collective": _RED,
    "control": _YELLOW,
    "lowered": _SKY,
    "update": _RED,
    "output": _BLUE,
    "fused": _ORANGE,
    "scope": _GREY,
}
"""The colour of each box and frame."""

NAMES = {
    "contraction": "product",
    "lowered": "other kernel",
    "linalg": "linear algebra",
    "index": "indexing",
    "fused": "one fused kernel",
    "scope": "group: scope, layer or function",
    "output": "result",
    "layout": "layout (moves only)",
    "update": "new value of a variable",
}
"""What the legend calls them, where that is not their key."""


@dataclass(frozen=True)
class Theme:
    """Colours of one theme.

    paper, ink, muted, edge, faint: Of the ground, labels, types, edges, and the ground of frames.
    tint: How much of a box's colour is in its ground, from 0 to 1.
    """

    paper: str
    ink: str
    muted: str
    edge: str
    faint: str
    tint: float


LIGHT = Theme("#ffffff", "#1b1f24", "#57606a", "#8c959f", "#f6f8fa", 0.16)
DARK = Theme("#0f1318", "#e8edf2", "#9aa5b1", "#66707b", "#171c23", 0.26)


def mixed(colour: str, ground: str, share: float) -> str:
    """Return a colour over a ground.

    Examples
    --------
    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(f"{round(c * share + g * (1 - share)):02x}" for c, g in pairs)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2, relative luminance).

    Examples
    --------
    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def _luminance(colour: str) -> float:
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
