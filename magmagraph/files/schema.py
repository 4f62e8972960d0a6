"""Schemas of JSON values: types, ranges and sizes, written once for each format.

A schema is a function of a value and of its place in the file; it raises `Damaged` where the value
does not fit.

Examples
--------
>>> point = table({"x": number(), "name": text()}, {"tags": items(text(), most=3)})
>>> point({"x": 1.5, "name": "a"}, "settings")
>>> point({"x": 1.5, "name": 3}, "settings")
Traceback (most recent call last):
    ...
magmagraph.files.reading.Damaged: settings.name is 3, and not a text
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from .reading import Damaged

__all__ = [
    "Schema",
    "anything",
    "either",
    "flag",
    "items",
    "mapping",
    "none",
    "number",
    "one_of",
    "row",
    "table",
    "text",
    "whole",
]

Schema = Callable[[Any, str], None]
LARGEST = (1 << 63) - 1


def wrong(value: Any, place: str, need: str) -> Damaged:
    """Return the error for a value that does not fit."""
    return Damaged(f"{place} is {reprlib.repr(value)}, and not {need}")


def anything(value: Any, place: str) -> None:
    """Take any value."""


def none(value: Any, place: str) -> None:
    """Take null."""
    if value is not None:
        raise wrong(value, place, "null")


def flag(value: Any, place: str) -> None:
    """Take true and false."""
    if not isinstance(value, bool):
        raise wrong(value, place, "true or false")


def text(most: int = 1 << 24) -> Schema:
    """Take a text of at most so many characters."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str):
            raise wrong(value, place, "a text")
        if len(value) > most:
            raise Damaged(f"{place} has {len(value)} characters, and the limit is {most}")

    return check


def whole(low: int = 0, high: int = LARGEST) -> Schema:
    """Take a whole number in a range, both ends included."""

    def check(value: Any, place: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise wrong(value, place, f"a whole number from {low} to {high}")

    return check


def number(low: float = -math.inf, high: float = math.inf, *, finite: bool = True) -> Schema:
    """Take a number in a range."""

    def check(value: Any, place: str) -> None:
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        if right and isinstance(value, int):
            right = abs(value) < 1 << 1023
        if not right or (finite and not math.isfinite(value)) or value < low or value > high:
            ends = "" if (low, high) == (-math.inf, math.inf) else f" from {low} to {high}"
            raise wrong(value, place, f"a {'finite ' if finite else ''}number{ends}")

    return check


def one_of(*values: Any) -> Schema:
    """Take one of some values."""

    def check(value: Any, place: str) -> None:
        if not any(value == one and type(value) is type(one) for one in values):
            raise wrong(value, place, f"one of {', '.join(map(repr, values))}")

    return check


def either(*schemas: Schema) -> Schema:
    """Take what one of some schemas takes."""

    def check(value: Any, place: str) -> None:
        errors = []
        for schema in schemas:
            try:
                return schema(value, place)
            except Damaged as error:
                errors.append(error)
        plain = f"{place} is {reprlib.repr(value)}, and not "
        inside = [error for error in errors if not str(error).startswith(plain)]
        if len(inside) == 1:  # it is of this form, but for a part
            raise inside[0]
        raise wrong(value, place, " or ".join(str(error).removeprefix(plain) for error in errors))

    return check


def items(schema: Schema, most: int = 1 << 24) -> Schema:
    """Take a list of at most so many values that fit a schema."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise wrong(value, place, "a list")
        if len(value) > most:
            raise Damaged(f"{place} has {len(value)} members, and the limit is {most}")
        for index, member in enumerate(value):
            schema(member, f"{place}[{index}]")

    return check


def row(*schemas: Schema) -> Schema:
    """Take a list with one value for each schema."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or len(value) != len(schemas):
            raise wrong(value, place, f"a list of {len(schemas)} values")
        for index, (schema, member) in enumerate(zip(schemas, value, strict=True)):
            schema(member, f"{place}[{index}]")

    return check


def mapping(schema: Schema, most: int = 1 << 24) -> Schema:
    """Take a table of any keys, whose values fit a schema."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, place, "a table")
        if len(value) > most:
            raise Damaged(f"{place} has {len(value)} members, and the limit is {most}")
        for key, member in value.items():
            schema(member, f"{place}.{key}")

    return check


def table(
    required: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    others: Schema | None = None,
) -> Schema:
    """Take a table with these keys.

    required, optional: A schema for each key.
    others: What values of further keys fit; None allows none.
    """
    known = {**required, **(optional or {})}

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise wrong(value, place, "a table")
        for key in required:
            if key not in value:
                raise Damaged(f"{place} lacks {key!r}")
        for key, member in value.items():
            schema = known.get(key, others)
            if schema is None:
                raise Damaged(f"{place} has the unknown key {reprlib.repr(key)}")
            schema(member, f"{place}.{key}")

    return check
