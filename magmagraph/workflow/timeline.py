"""Which rank ran what when, as a picture."""

from __future__ import annotations

from html import escape

from ..inspect.pictures.chart import Frame, Scale, cut
from ..inspect.pictures.palette import COLOURS, DARK, LIGHT, Theme, mixed
from ..inspect.pictures.svg import FONT
from .result import ModuleRun, Result

__all__ = ["draw"]

_COLOURS = [
    COLOURS[name] for name in ("input", "contraction", "linalg", "reduction", "elementwise")
]
_WIDE, _ROW = 880.0, 26.0
_LETTER = 7.0  # width of a letter in a bar


def draw(result: Result) -> str:
    """Return a row for each rank of the job, with a bar for each run, as SVG."""
    rows = max(1, result.ranks)
    frame = Frame(_WIDE, _ROW * rows + 58.0)
    across = Scale(0.0, result.seconds * 1.02 or 1.0)
    up = [(1.0 - (rank + 0.5) / rows, str(rank)) for rank in range(rows)]
    modules = list(dict.fromkeys(run.module for run in result.runs))
    parts = [_style(len(modules)), '<rect class="paper" width="100%" height="100%"/>']
    parts.append(frame.axes(across.ticks(), up, "seconds", "rank"))
    for run in result.runs:
        for rank in run.ranks:
            parts.append(_bar(frame, across, run, rank, rows, modules.index(run.module)))
    return frame.svg(parts, f"ranks of {result.name} over time")


def _bar(frame: Frame, across: Scale, run: ModuleRun, rank: int, rows: int, number: int) -> str:
    left, middle = frame.place(across.at(run.start), 1.0 - (rank + 0.5) / rows)
    right, _ = frame.place(across.at(run.end), 0.0)
    wide = max(1.0, right - left)
    told = (
        f"{run.module}, copy {run.copy}, turn {run.turn}, iteration {run.iteration}, "
        f"rank {rank}: {run.status}, "
        f"{run.start:.3f} to {run.end:.3f} s"
    )
    letters = int((wide - 6.0) / _LETTER)
    text = ""
    if letters >= 3:
        text = (
            f'<text class="in" x="{left + 4:.1f}" y="{middle + 4:.1f}">'
            f"{escape(cut(run.module, letters))}</text>"
        )
    return (
        f'<g><title>{escape(told)}</title><rect class="bar m{number} {run.status}" '
        f'x="{left:.1f}" y="{middle - _ROW * 0.4:.1f}" width="{wide:.1f}" '
        f'height="{_ROW * 0.8:.1f}" rx="2"/>{text}</g>'
    )


def _style(count: int) -> str:
    fills = "".join(f".m{i}{{fill:{_COLOURS[i % len(_COLOURS)]}}}" for i in range(count))
    return (
        f"<style>text{{font-family:{FONT};font-size:11px}}.name{{font-size:12px}}"
        f".axis,.grid{{fill:none}}.bar{{fill-opacity:.75}}.failed{{stroke:{COLOURS['variable']};"
        f"stroke-width:2.5px}}.stopped{{fill-opacity:.3}}{fills}{_colours(LIGHT)}"
        f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}}}</style>"
    )


def _colours(theme: Theme) -> str:
    return (
        f".paper{{fill:{theme.paper}}}.tick{{fill:{theme.muted}}}.name,.in{{fill:{theme.ink}}}"
        f".axis{{stroke:{theme.edge}}}.grid{{stroke:{mixed(theme.edge, theme.paper, 0.25)}}}"
    )
