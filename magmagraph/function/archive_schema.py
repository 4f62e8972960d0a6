"""Schema of the members of an archive: see `archive`."""

from __future__ import annotations

import re
from typing import Any

from ..files.reading import Damaged
from ..files.schema import (
    Schema,
    anything,
    either,
    flag,
    items,
    mapping,
    none,
    number,
    row,
    table,
    text,
    whole,
    wrong,
)

__all__ = ["MANIFEST", "SETTINGS"]

_HEX = re.compile(r"[0-9a-f]{64}")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,4})?")
_DIGEST = re.compile(r"@[0-9a-f]{1,64}")


def matching(pattern: re.Pattern[str], need: str) -> Schema:
    """Take a text that matches a pattern."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise wrong(value, place, need)

    return check


def form(value: Any, place: str) -> None:
    """Take the form of a function's outputs: positions in lists, tuples and tables, or null."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return
    if not isinstance(value, dict) or len(value) != 1:
        raise wrong(value, place, "a position, a list, a tuple or a table of them, or null")
    ((kind, members),) = value.items()
    if kind not in ("list", "tuple", "dict") or not isinstance(members, list):
        raise wrong(value, place, "a position, a list, a tuple or a table of them, or null")
    for index, member in enumerate(members):
        where = f"{place}.{kind}[{index}]"
        if kind == "dict":
            row(_KEY, form)(member, where)
        elif member is None:
            raise Damaged(f"{where} is null")
        else:
            form(member, where)


def strategy(value: Any, place: str) -> None:
    """Check the strategy that distributes a function."""
    if isinstance(value, dict) and value.get("kind") == "Hybrid":
        table({"kind": text(), "of": items(strategy, 8)})(value, place)
    else:
        table({"kind": text(), "options": mapping(anything)})(value, place)


_KEY = either(text(), flag, whole(-(1 << 63)))
_NAME = either(none, text())
_SHAPE = items(whole(), 64)

MANIFEST = table(
    {"format": whole(), "members": mapping(matching(_HEX, "a checksum of 64 digits"))},
    {"version": text(200), "machine": text(200), "chip": text(1000), "sealed": flag},
    others=anything,
)

SETTINGS = table(
    {
        "name": _NAME,
        "device": matching(_DEVICE, "auto, cpu, cuda, or cuda with a number"),
        "strict_feeds": flag,
        "outputs": form,
        "random": either(none, whole()),
        "settings": table(
            {
                "precision": text(),
                "skip": items(text()),
                "nan": text(),
                "deterministic": flag,
                "compile_budget": number(0.0, finite=False),
                "options": mapping(anything),
            },
            {"memory_limit": either(none, whole())},
        ),
        "variables": items(row(_NAME, text(), _SHAPE)),
        "constants": items(row(matching(_DIGEST, "a digest"), text(), _SHAPE)),
    },
    {"distribute": either(none, strategy), "choices": mapping(anything)},
)
