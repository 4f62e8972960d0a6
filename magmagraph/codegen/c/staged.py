"""C of a loop over groups whose long chains of instructions are cut in two.

Sums of roots' quotients or exponentials wait for what these are taken of: a processor holds no
more groups at once than its schedulers do instructions, which is less than such a chain takes
where the units could begin them. So the loop computes what is before the first quotient or
exponential some groups ahead, and keeps it: when the rest of a group comes, it waits for nothing
but itself. Groups that do not make up a turn come first, each at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .text import indent

__all__ = ["staged"]

_LINE = re.compile(r"const mg_group_f32 (\w+) = (.+);")
_WORD = re.compile(r"[a-z]\w*")
_LONG = re.compile(r"\bmg_group_(?:over_root|part_root|exp)\w*\(")
REGISTERS = 20  # of 32, for what is kept and for sums: others hold constants, and a group's values
FEWEST = 2  # operations before the cut that are worth it
MOST = 64  # lines of a group that are: the loop has them four times
EXPONENTIAL = 16  # as many lines


def staged(
    body: Sequence[str], folds: Sequence[str], index: str, begin: str, end: str, count: str
) -> list[str]:
    """Return the loop from `alone` to `end`, behind the line that tells `alone`.

    Parameters
    ----------
    body, folds
        The lines that compute a group's values, and those that fold them.
    index
        The name of the position.
    begin, end
        The C of where groups begin and end: from `begin` to `alone` they are the caller's.
    count
        The C of the elements of a group.

    Returns
    -------
    list of str
        Empty where all groups are better taken at once.
    """
    lines = {match[1]: match[2] for match in map(_LINE.fullmatch, body) if match}
    first = _before(lines)
    operations = [name for name in first if not lines[name].startswith("mg_group_load_")]
    size = len(body) + EXPONENTIAL * sum("mg_group_exp" in line for line in body)
    if len(lines) < len(body) or len(operations) < FEWEST or size > MOST:
        return []
    later = set(_WORD.findall("\n".join([*(lines[n] for n in lines if n not in first), *folds])))
    again = {name for name in later if name in first and name not in operations}
    kept = [name for name in operations if name in later]
    second = [line for n, line in zip(lines, body, strict=True) if n not in first or n in again]
    ahead = next((n for n in (4, 2) if n * len(kept) + len(folds) <= REGISTERS), 0)
    if not ahead:
        return []
    start = [f"const mg_group_f32 {name} = {lines[name]};" for name in first]
    start += [f"{name}_ahead[k] = {name};" for name in kept]
    ends = [f"const mg_group_f32 {name} = {name}_ahead[k];" for name in kept]
    turn = f"{ahead} * {count}"
    each = [f"#pragma GCC unroll {ahead}", f"for (int k = 0; k < {ahead}; k++) {{"]
    return [
        f"const int64_t alone = mg_staged ? {begin} + ({end} - {begin}) % ({turn}) : {end};",
        f"if (alone < {end}) {{",
        *indent([
            *(f"mg_group_f32 {name}_ahead[{ahead}];" for name in kept),
            *each,
            *indent([f"const int64_t {index} = alone + k * {count};", *start]),
            "}",
            f"for (int64_t j = alone; j < {end}; j += {turn}) {{",
            *indent([
                f"const int64_t next = {end} - j > {turn} ? j + {turn} : j;",
                *each,
                *indent([
                    "{",
                    *indent([f"const int64_t {index} = j + k * {count};", *ends, *second, *folds]),
                    "}",
                    f"const int64_t {index} = next + k * {count};",
                    *start,
                ]),
                "}",
            ]),
            "}",
        ]),
        "}",
    ]


def _before(lines: dict[str, str]) -> list[str]:
    """Return the values that the first quotient by a root or exponential is computed from."""
    cut = next((text for text in lines.values() if _LONG.search(text)), None)
    if cut is None:
        return []
    needed: set[str] = set()
    todo = [_radicand(cut)]
    while todo:
        names = set(_WORD.findall(todo.pop())) & lines.keys() - needed
        needed |= names
        todo += [lines[name] for name in names]
    return [name for name in lines if name in needed]


def _radicand(text: str) -> str:
    """Return the argument of a square root, or all operands of an exponential."""
    return text.rpartition(",")[2] if "_root" in text else text
