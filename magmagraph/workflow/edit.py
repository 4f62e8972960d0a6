"""Change the text of a workflow file: only the lines of what changes, so that comments stay.

TOML has no parser here but `tomllib`, which says nothing of places. A statement ends at the first
line up to which it can be parsed, and a key at the first sign of equality before which it can.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, time
from pathlib import Path
from typing import Any

from ..errors import ConfigError, message
from .file import KEYS, tables_of, workflow_of

__all__ = ["change", "toml"]

Path_ = tuple[str, ...]
_MISSING: Any = object()
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def change(text: str, path: Path, wish: Mapping[str, Any]) -> str:
    r"""Return the text of a file with one change, which the checks of `parse` accept.

    Parameters
    ----------
    text
        What the file says now.
    path
        Of the file.
    wish
        ``{"table": ["modules", "fit"], "set": {"copies": "3", "threads": ""}}`` sets keys, each to
        a value as it is typed, an empty text removes one; a table that is not there is added.
        ``"rename"`` gives a module another name, also where others come after it.
        ``{"table": [...], "remove": True}`` removes a module, also from the others' ``after``.

    Raises
    ------
    ConfigError
        The file would be wrong; with the text that reading it would raise.

    Examples
    --------
    >>> text = '[modules.fit]  # of a line\nfunction = "study:fit"\n'
    >>> wish = {"table": ["modules", "fit"], "set": {"copies": "3"}}
    >>> print(change(text, Path("study.toml"), wish), end="")
    [modules.fit]  # of a line
    function = "study:fit"
    copies = 3
    """
    if not text.endswith("\n") and text:
        text += "\n"
    place = tuple(wish["table"])
    old = tables_of(text, path)
    name, to = place[-1], wish.get("rename") or place[-1]
    if place[0] == "modules" and to != name:
        if to in old.get("modules", {}):
            raise ConfigError(
                message(f"{path.name}: [modules.{to}] is there already", need="another name")
            )
        text = "".join(_renamed(statement, place, to) for statement in _statements(text))
        place, old = (place[0], to), tables_of(text, path)
    new = copy.deepcopy(old)
    table: Any = new
    for part in place:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            workflow_of(old, path)  # which says so
    for key, typed in wish.get("set", {}).items():
        value = _value(KEYS[place[0]].get(key, "text"), typed)
        if value is _MISSING:
            table.pop(key, None)
        else:
            table[key] = value
    if wish.get("remove"):
        new["modules"].pop(name, None)
        _replace_in_after(new, name, None)
    elif to != name:
        _replace_in_after(new, name, to)
    if new.get("modules"):
        workflow_of(new, path)
    changed = _rewritten(text, old, new, path)
    tables_of(changed, path)  # what was typed may be nested too deeply
    return changed


def toml(value: Any, order: Callable[[Any], Any] = list) -> str:
    """Return a value as TOML, in one line.

    Examples
    --------
    >>> toml({"rate": [0.1, True], "a key": "x"})
    '{rate = [0.1, true], "a key" = "x"}'
    """
    if isinstance(value, dict):
        pairs = (f"{_key((key,))} = {toml(item, order)}" for key, item in order(value.items()))
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item, order) for item in value) + "]"
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        return repr(value)
    # The escapes of JSON are those of TOML, which has one more.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(kind: str, typed: Any) -> Any:
    """Parse a field as TOML; other text stays a string, for the checks."""
    if typed == "" or typed == []:
        return _MISSING
    if not isinstance(typed, str) or kind in ("text", "failure"):
        return typed
    try:
        return tomllib.loads(f"x = {typed}")["x"]
    except (ValueError, RecursionError):
        return typed


def _replace_in_after(tables: Any, name: str, to: str | None) -> None:
    for module in tables["modules"].values():
        after = module.get("after") if isinstance(module, dict) else None
        if isinstance(after, list) and name in after:
            module["after"] = [to if n == name else n for n in after if to or n != name]
            if not module["after"]:
                del module["after"]


# ------------------------------------------------------------------- statements


@dataclass(frozen=True)
class _Statement:
    """Some lines of a file: a head of a table, a key and its value, or none of both."""

    text: str
    table: Path_ = ()  # whose head is above
    path: Path_ = ()  # of the table or key; empty for comments and empty lines
    key: str = ""  # its text before the equals sign

    @property
    def head(self) -> bool:
        return bool(self.path) and not self.key

    @property
    def comment(self) -> str:
        """The comment at its end."""
        for match in re.finditer(r"\s*#", self.text):
            before = _parsed(self.text[: match.start()])
            if before and _same(_parsed(self.text), before):
                return self.text[match.start() :].rstrip("\n")
        return ""


def _parsed(text: str) -> dict[str, Any]:
    """Parse a part of a text; return nothing where it is no TOML by itself."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _statements(text: str) -> Iterator[_Statement]:
    table: Path_ = ()
    statement = ""
    for line in _LINE.findall(text):
        statement += line
        try:
            tables = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a value of several lines
        if statement.lstrip().startswith("["):
            table = _way(tables)
            yield _Statement(statement, table, table)
        elif tables:
            key = _key_part(statement)
            yield _Statement(statement, table, (*table, *_way(tomllib.loads(f"{key}= 0"))), key)
        else:
            yield _Statement(statement, table)
        statement = ""


def _key_part(text: str) -> str:
    ends = (match.start() for match in re.finditer("=", text))
    return next(text[:end] for end in ends if _parsed(f"{text[:end]}= 0"))


def _way(tables: Any) -> Path_:
    """Return the keys that lead to the value of a statement."""
    path = []
    while isinstance(tables, dict) and tables:
        ((key, tables),) = tables.items()
        path.append(key)
    return tuple(path)


def _key(path: Path_) -> str:
    return ".".join(p if _BARE.fullmatch(p) else json.dumps(p, ensure_ascii=False) for p in path)


def _at(tables: Any, path: Path_) -> Any:
    for part in path:
        if not isinstance(tables, dict) or part not in tables:
            return _MISSING
        tables = tables[part]
    return tables


def _same(one: Any, other: Any) -> bool:
    """Return whether values are the same in TOML, where 1, 1.0 and true differ."""
    if one is _MISSING or other is _MISSING:
        return one is other
    return toml(one, sorted) == toml(other, sorted)


def _unit(path: Path_) -> Path_:
    """Return the key of a module, or of another table, that a path leads to or through."""
    return path[: 3 if path[0] == "modules" else 2]


def _full(path: Path_) -> bool:
    return len(path) == (3 if path[0] == "modules" else 2)


def _renamed(statement: _Statement, place: Path_, to: str) -> str:
    """Return a statement with another name of a module."""
    path, table = statement.path, statement.table
    if path[:2] != place:
        return statement.text
    path = (place[0], to, *path[2:])
    if statement.head:
        opening, closing = ("[[", "]]") if statement.text.lstrip()[:2] == "[[" else ("[", "]")
        return f"{opening}{_key(path)}{closing}{statement.comment}\n"
    if table[:2] == place:
        return statement.text
    return f"{_key(path[len(table) :])} {statement.text[len(statement.key) :]}"


# ------------------------------------------------------------------- the new text


def _rewritten(text: str, old: Any, new: Any, path: Path) -> str:
    """Return the text with new values."""
    remaining = list(_without_gone(list(_statements(text)), old, new))
    covered = {_unit(s.path) for s in remaining if s.path and (s.key or _full(_unit(s.path)))}
    for place, value in _leaves(new):
        if not any(place[: len(unit)] == unit for unit in covered):
            _insert(remaining, place, value)
    changed = "".join(statement.text for statement in remaining).rstrip("\n") + "\n"
    if not _same(_parsed(changed), {key: item for key, item in new.items() if item}):
        raise ConfigError(
            message(
                f"{path.name}: this cannot be changed where it is written",
                need="tables such as [modules.fit], with a line for each key",
                hint="change the text itself",
            )
        )
    return changed


def _without_gone(statements: list[_Statement], old: Any, new: Any) -> Iterator[_Statement]:
    """Yield what stays, and new values where the old ones are."""
    is_removed = apart = False  # under a head that goes; one that is no key of a table which stays
    for number, statement in enumerate(statements):
        unit = _unit(statement.path) if statement.path else ()
        before, after = _at(old, unit), _at(new, unit)
        if not unit:
            above_head = _before_head(statements, number)
            # Between tables an empty line stays: the one above the head, where its table goes.
            gap = not apart and not statement.text.strip() and _before_head(statements, number + 1)
            if (not is_removed or above_head or gap) and not _before_head(statements, number, new):
                yield statement
        elif statement.head:
            is_removed = after is _MISSING or (_full(unit) and not _same(before, after))
            apart = not _full(unit)
            if not is_removed:
                yield statement
        elif _same(before, after):
            yield statement
        elif after is not _MISSING and unit == statement.path:
            line = f"{statement.key}= {toml(after)}{statement.comment}\n"
            yield replace(statement, text=line)


def _before_head(statements: list[_Statement], number: int, new: Any = None) -> bool:
    """Return whether a head comes next, below comments alone; of a table that goes, with `new`."""
    for statement in statements[number:]:
        if statement.path or not statement.text.strip():
            unit = _unit(statement.path) if statement.head else ()
            return statement.head and (new is None or _at(new, unit) is _MISSING)
    return False


def _leaves(tables: Any) -> Iterator[tuple[Path_, Any]]:
    for name, table in tables.items():
        if name == "modules":
            for module, keys in table.items():
                yield from (((name, module, key), value) for key, value in keys.items())
        else:
            yield from (((name, key), value) for key, value in table.items())


def _insert(statements: list[_Statement], place: Path_, value: Any) -> None:
    """Add a key below the others of its table, or with the head of a new table at the end."""
    table = place[:-1]
    anchors = [
        i
        for i, s in enumerate(statements)
        if (s.head and s.path == table) or (s.key and s.path[:-1] == table)
    ]
    if anchors:
        above = statements[anchors[-1]].table
    else:
        above = table
        gap = "\n" if statements and statements[-1].text.strip() else ""
        statements.append(_Statement(f"{gap}[{_key(table)}]\n", table, table))
        anchors = [len(statements) - 1]
    key = _key(place[len(above) :])
    line = _Statement(f"{key} = {toml(value)}\n", above, place, key)
    statements.insert(anchors[-1] + 1, line)
