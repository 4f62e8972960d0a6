"""C for rows that go together: a pass over some of them, then the next pass over the same.

What ends a pass over a row (joining lanes) and begins the next (the maximum in every lane) is a
chain of instructions that wait for one another, as long as the arithmetic of a hundred elements.
Several short rows in a loop have nothing to do with one another, and the processor works at the
next while it waits. A row that is long goes alone.

What a row has one of and a function of the library computes, such as a logarithm, is computed of
all of them between two passes: behind each call the constants of a pass are read again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..functions.scalar import computing_type
from ..region.parts import TOGETHER
from .c_code import CCode
from .text import for_loop, indent

__all__ = ["in_batches"]

_DECLARED = re.compile(r"(?:const )?(\w+) (\w+) = ")


def in_batches(
    code: CCode, phases: Sequence[Sequence[str]], counters: Sequence[str], step: Sequence[str]
) -> list[str]:
    """Return the loop over items `begin` to `end`, some at a time.

    Parameters
    ----------
    code
        The functions that the loop stands in.
    phases
        What goes together, as the lines that a row takes: a stage, a pass, or both.
    counters
        The names of the counters that say which row it is.
    step
        The lines that step them.
    """
    together = code.number("together", "rows_together")
    kept: dict[str, str] = {}  # what a row has one of, and a later pass uses: the name and C type
    loops: list[str] = []
    for index, lines in enumerate(phases):
        text, later = "\n".join(lines), "\n".join(line for p in phases[index + 1 :] for line in p)
        head, tail = _saved(code, text), []
        head += [f"const {kept[n]} {n} = {n}_of[row];" for n in kept if _uses(text, n)]
        for kind, name in filter(None, map(_declared, lines)):
            if _uses(later, name):
                kept[name] = kind
                tail.append(f"{name}_of[row] = {name};")
        loops += [f"{name} = {name}_first;" for name in counters if index]
        loops += for_loop("row", "rows", [*head, *lines, *tail, *step])
    return [
        *(f"{kind} {name}_of[{TOGETHER}];" for name, kind in kept.items()),
        f"for (int64_t item = begin; item < end; item += {together}) {{",
        *indent([
            f"const int64_t rows = end - item < {together} ? end - item : {together};",
            *(f"const int64_t {name}_first = {name};" for name in counters),
            *loops,
        ]),
        "}",
    ]


def _saved(code: CCode, text: str) -> list[str]:
    """Return the lines that find the address of a row's saved values."""
    return [
        f"{computing_type(node.dtype)} *saved{i} = saved{i}_rows"
        f" + row * {code.number('saved_row', 'saved_row')};"
        for i, node in enumerate(code.walk.saved)
        if _uses(text, f"saved{i}")
    ]


def _declared(line: str) -> tuple[str, str] | None:
    """Return the C type and the name of what a line declares for the whole row."""
    declaration = _DECLARED.match(line)
    return None if declaration is None else (declaration[1], declaration[2])


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
