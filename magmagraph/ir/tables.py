"""Write rows of text as a table with aligned columns."""

from __future__ import annotations


def table(rows: list[tuple[str, ...]], left: tuple[int, ...]) -> str:
    """Return rows as lines with columns, right-aligned but for those in `left`."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            f"{cell:<{width}}" if i in left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
