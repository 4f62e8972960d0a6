"""Tables: drawn where a person looks on, plain text where another program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

_WHOLE = 12  # characters of a cell up to which its column is never broken into lines
_LEAST = 10  # characters that are left to a column of longer texts


def show(
    rows: Sequence[tuple[str, ...]], left: Sequence[int], title: str = "", total: bool = False
) -> None:
    """Print rows, the first of which is the head, with right-aligned columns but for `left`.

    Numbers and short words stay whole: where a terminal is too narrow for them all beside each
    other, the rows are plain text, too, and longer than its lines.

    Parameters
    ----------
    total
        Whether the last row sums the others up.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    least = sum(width if width <= _WHOLE else _LEAST for width in widths) + len(widths) - 1
    if not sys.stdout.isatty() or (console := _console()).width < least:
        from ..ir.tables import table

        print((f"{title}\n" if title else "") + table(list(rows), left=tuple(left)))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(
        title=title.strip() or None,
        title_style="bold",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        show_edge=False,
        padding=(0, min(2, (console.width - least) // len(widths)), 0, 0),
    )
    for i, (name, width) in enumerate(zip(rows[0], widths, strict=True)):
        whole = width <= _WHOLE
        rich_table.add_column(
            name,
            justify="left" if i in left else "right",
            overflow="fold",
            no_wrap=whole,
            min_width=width if whole else _LEAST,
        )
    body = rows[1:-1] if total else rows[1:]
    for row in body:
        rich_table.add_row(*map(Text, row))
    if total:
        rich_table.add_section()
        rich_table.add_row(*(Text(cell, "bold") for cell in rows[-1]))
    console.print(rich_table)


def _console() -> Any:
    from rich.console import Console  # takes a while to import: for terminals only

    return Console()
