"""The memory of a call as a picture: the bytes that are alive in each step, and the peak."""

from __future__ import annotations

from html import escape

from ...passes.lowering.timeline import Timeline, readable
from .chart import Frame, Scale, cut

__all__ = ["memory_svg"]

_WIDTH, _HEIGHT, _ROW = 760.0, 260.0, 18.0
_HOLDERS = 8
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}.axis{stroke:#333;fill:none}"
    ".constant{fill:#b8c4cc}.activations{fill:#4c86b8}.workspaces{fill:#e0a23c}"
    ".peak{stroke:#c0392b;stroke-dasharray:4 3}.peak-text{fill:#c0392b}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#ddd}.grid{stroke:#444}}</style>"
)


def memory_svg(timeline: Timeline) -> str:
    """Return a chart of a timeline with a bar for each step, and what holds the peak.

    What is there all the time is at the bottom, then activations, then workspaces.
    """
    held = sum(timeline.held.values())
    moments = timeline.moments
    most = held + max((moment.live for moment in moments), default=0)
    holders = timeline.holders[:_HOLDERS]
    below = _ROW * (len(holders) + 3)
    frame = Frame(_WIDTH, _HEIGHT + below, left=90.0, top=30.0, bottom=44.0 + below)
    scale = Scale.of([0.0, float(most or 1)], zero=True)
    up = [(place, readable(round(place * scale.high))) for place in (0, 0.25, 0.5, 0.75, 1)]
    count = max(1, len(moments))
    numbers = sorted({0, count // 2, count - 1})
    across = [((number + 0.5) / count, str(number)) for number in numbers]
    parts = [_STYLE, frame.axes(across, up, "step", "bytes")]
    for i, moment in enumerate(moments):
        title = f"step {moment.step}: {moment.kernel}, {readable(held + moment.live)}"
        bottom = 0
        bars = []
        layers = (
            ("constant", held),
            ("activations", moment.activations),
            ("workspaces", moment.workspaces),
        )
        for name, size in layers:
            if size:
                left, low = frame.place(i / count, scale.at(bottom))
                right, high = frame.place((i + 1) / count, scale.at(bottom + size))
                bars.append(
                    f'<rect class="{name}" x="{left:.1f}" y="{high:.1f}" '
                    f'width="{right - left:.2f}" height="{low - high:.1f}"/>'
                )
            bottom += size
        parts.append(f"<g><title>{escape(title)}</title>{''.join(bars)}</g>")
    if timeline.peak is not None:
        parts.append(_peak(frame, timeline, scale.at(most), most))
    y = _HEIGHT + _ROW
    categories = [f"{name} {readable(size)}" for name, size in timeline.held.items() if size]
    for line in [", ".join([*categories, f"arena {readable(timeline.arena)}"]), *map(str, holders)]:
        parts.append(f'<text x="12" y="{y:.1f}">{escape(cut(line, 110))}</text>')
        y += _ROW
    return frame.svg(parts, f"memory of a call: at most {readable(most)}")


def _peak(frame: Frame, timeline: Timeline, at: float, most: int) -> str:
    left, y = frame.place(0.0, at)
    right, _ = frame.place(1.0, at)
    return (
        f'<path class="peak" d="M{left:.1f} {y:.1f}H{right:.1f}"/>'
        f'<text class="peak-text" x="{left + 4:.1f}" y="{y - 6:.1f}">'
        f"peak: {escape(readable(most))} in step {timeline.peak}</text>"
    )
