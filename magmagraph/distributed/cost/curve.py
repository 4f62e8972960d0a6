"""Speed against the number of ranks, drawn with the assumptions below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ...files.writing import write_file
from ...inspect.pictures.chart import Frame, Scale
from ...inspect.pictures.palette import COLOURS, DARK, LIGHT, Theme, mixed
from ...inspect.pictures.svg import FONT
from ...ir.types import FilePath

__all__ = ["draw"]

_COLOURS = [COLOURS[name] for name in ("variable", "input", "contraction", "linalg", "reduction")]
_WIDE, _TALL = 760.0, 470.0
_LINE = 17.0  # height of a line of text


def draw(
    path: FilePath,
    counts: Sequence[int],
    speeds: Mapping[str, Sequence[float]],
    assumptions: Sequence[str],
) -> None:
    """Write the picture.

    path: Of the SVG file, which is whole or not there.
    counts: Numbers of ranks.
    speeds: By name, the speed on each number of ranks over that of one.
    assumptions: Lines of text below.
    """
    below = 52.0 + _LINE * len(assumptions)
    frame = Frame(_WIDE, _TALL + below - 44.0, right=150.0, top=20.0, bottom=below)
    most = max(counts[-1], *(max(curve) for curve in speeds.values()))
    least = min(1.0, counts[0], *(min(curve) for curve in speeds.values()))
    wide = counts[-1] / counts[0] > 16
    across = Scale(counts[0] * (0.9 if wide else 1.0), counts[-1] * 1.1, logarithmic=wide)
    up = Scale(least * 0.9 if wide else 0.0, most * 1.1, logarithmic=wide)
    ticks = [(across.at(n), str(n)) for n in _thinned(counts)]
    parts = [_style(len(speeds)), '<rect class="paper" width="100%" height="100%"/>']
    parts.append(frame.axes(ticks, up.ticks(), "ranks", "speed against one rank"))
    ideal = [frame.place(across.at(n), up.at(n)) for n in counts]
    parts.append(f'<polyline class="ideal" points="{_points(ideal)}"/>')
    labels = [("ideal", ideal[-1][1], "bound")]
    for number, (name, curve) in enumerate(speeds.items()):
        places = [frame.place(across.at(n), up.at(s)) for n, s in zip(counts, curve, strict=True)]
        parts.append(f'<polyline class="series s{number}" points="{_points(places)}"/>')
        parts += [
            f'<circle class="mark s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{escape(name)}, {n} ranks: {speed:.4g}</title></circle>"
            for (x, y), n, speed in zip(places, counts, curve, strict=True)
        ]
        labels.append((name, places[-1][1], f"s{number}"))
    for name, y, kind in _apart(labels):
        parts.append(
            f'<text class="label {kind}" x="{frame.right + 8:.1f}" y="{y + 4:.1f}">'
            f"{escape(name)}</text>"
        )
    for number, line in enumerate(assumptions):
        y = frame.bottom + 58.0 + _LINE * number
        parts.append(f'<text class="tick" x="{frame.left:.1f}" y="{y:.1f}">{escape(line)}</text>')
    text = frame.svg(parts, "speed against the number of ranks")
    write_file(path, text)


def _thinned(counts: Sequence[int], most: int = 8) -> list[int]:
    every = -(-len(counts) // most)
    return list(counts[::-1][::every][::-1])


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _apart(labels: Sequence[tuple[str, float, str]]) -> list[tuple[str, float, str]]:
    """Return labels from top to bottom, moved down where they would lie on each other."""
    placed: list[tuple[str, float, str]] = []
    for name, y, kind in sorted(labels, key=lambda label: label[1]):
        above = placed[-1][1] + _LINE if placed else y
        placed.append((name, max(y, above), kind))
    return placed


def _style(count: int) -> str:
    rules = "".join(
        f".s{number}{{stroke:{_COLOURS[number % len(_COLOURS)]}}}"
        f".mark.s{number},.label.s{number}{{fill:{_COLOURS[number % len(_COLOURS)]};stroke:none}}"
        for number in range(count)
    )
    return (
        f"<style>text{{font-family:{FONT};font-size:11px}}.name,.label{{font-size:12px}}"
        ".axis,.grid,.series,.ideal{fill:none}.series{stroke-width:2px}"
        f".ideal{{stroke-dasharray:5 4}}{_colours(LIGHT)}"
        f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}}}{rules}</style>"
    )


def _colours(theme: Theme) -> str:
    return (
        f".paper{{fill:{theme.paper}}}.tick,.label.bound{{fill:{theme.muted}}}"
        f".name{{fill:{theme.ink}}}.axis,.ideal{{stroke:{theme.edge}}}"
        f".grid{{stroke:{mixed(theme.edge, theme.paper, 0.25)}}}"
    )
