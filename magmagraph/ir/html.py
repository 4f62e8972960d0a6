"""Write tables and texts as HTML, for notebooks: light and dark, and no wider than the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Displayed", "details", "preformatted", "sparkline", "table_html"]

_BOX = "overflow-x:auto;max-width:100%"
_LINES = "white-space:pre;font-family:monospace;line-height:1.3"
_WIDE, _HIGH = 120, 24  # of a small line
_CELL = "padding:0.15em 0.7em;text-align:"


def table_html(
    rows: Sequence[Sequence[str]], left: Iterable[int] = (0,), *, total: bool = False
) -> str:
    """Return rows as a table.

    rows: The head first.
    left: The columns of text; all others are aligned on the right.
    total: Whether the last row sums the others up.

    Examples
    --------
    >>> "<td style" in table_html([("name", "us"), ("exp", "1.5")])
    True
    """
    texts = set(left)

    def row(cells: Sequence[str], tag: str, extra: str = "") -> str:
        written = "".join(
            f'<{tag} style="{_CELL}{"left" if i in texts else "right"}{extra}">'
            f"{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{written}</tr>"

    head, *body = rows
    lines = [row(cells, "td") for cells in body]
    if total and body:
        lines[-1] = row(body[-1], "td", ";font-weight:bold;border-top:1px solid currentColor")
    return (
        f'<div style="{_BOX}"><table><thead>{row(head, "th")}</thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def preformatted(text: str) -> str:
    """Return a text with its lines and spaces.

    Examples
    --------
    >>> preformatted("a < b").endswith("a &lt; b</pre>")
    True
    """
    return f'<pre style="{_BOX};{_LINES}">{escape(text)}</pre>'


def sparkline(values: Sequence[float], label: str) -> str:
    """Return numbers as a small line, from the first on the left; what is not finite is a gap.

    Examples
    --------
    >>> sparkline([3.0, 1.0], "loss").startswith('<svg role="img" aria-label="loss: 3 to 1"')
    True
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    wide, step = high - low or 1.0, _WIDE / max(1, len(values) - 1)
    parts: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if math.isfinite(value):
            parts[-1].append(f"{i * step:.1f},{_HIGH - (value - low) / wide * _HIGH:.1f}")
        else:
            parts.append([])
    lines = "".join(f'<polyline points="{" ".join(part)}"/>' for part in parts if part)
    summary = escape(f"{label}: {finite[0]:.4g} to {finite[-1]:.4g}")
    return (
        f'<svg role="img" aria-label="{summary}" width="{_WIDE}" height="{_HIGH}" '
        f'viewBox="-2 -2 {_WIDE + 4} {_HIGH + 4}" fill="none" stroke="currentColor" '
        f'stroke-width="1.5">{lines}</svg>'
    )


def details(title: str, content: str, *, shown: bool = False) -> str:
    """Return HTML that a click on its title shows or hides."""
    begin = "<details open>" if shown else "<details>"
    return f"{begin}<summary>{escape(title)}</summary>{content}</details>"


class Displayed:
    """A result that notebooks show as they show `_html`; it prints as its own text elsewhere."""

    __slots__ = ()

    def _html(self) -> str:
        """Return what a notebook shows; the text unless a class says otherwise."""
        return preformatted(str(self))

    def _repr_html_(self) -> str:
        return self._html()
