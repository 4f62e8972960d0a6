"""Tables: drawn where a person looks on, plain text where another program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def show(
    rows: Sequence[tuple[str, ...]], left: Sequence[int], title: str = "", total: bool = False
) -> None:
    """Print rows, the first of which is the head, with right-aligned columns but for `left`.

    Parameters
    ----------
    total
        Whether the last row sums the others up.
    """
    if not sys.stdout.isatty():
        from ..inspect.profile import table

        print((f"{title}\n" if title else "") + table(list(rows), left=tuple(left)))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        title=title.strip() or None, title_style="bold", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for i, name in enumerate(rows[0]):
        drawn.add_column(name, justify="left" if i in left else "right", overflow="fold")
    body = rows[1:-1] if total else rows[1:]
    for row in body:
        drawn.add_row(*map(Text, row))
    if total:
        drawn.add_section()
        drawn.add_row(*(Text(cell, "bold") for cell in rows[-1]))
    Console().print(drawn)
