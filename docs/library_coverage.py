"""What of NumPy, SciPy and JAX is here: the page docs/coverage.md, made from docs/coverage.toml.

The lists of names are those of the versions that the file states. A name that is in the same place
here is found by itself; the file says what has another name, and why something is not here. Every
name has to be one of the three: `classify` raises otherwise, and a test calls it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SAME, OTHER, ABSENT = "has", "under another name", "has not"


class Entry(NamedTuple):
    """One function of a library: its name, what it is here, and the reason where it is not."""

    name: str
    state: str
    here: str


def libraries() -> dict[str, dict[str, Any]]:
    """Return the file's tables, by the library's name."""
    return tomllib.loads((HERE / "coverage.toml").read_text(encoding="utf-8"))


def classify(library: dict[str, Any]) -> list[Entry]:
    """Return an entry for each function of a library.

    Raises
    ------
    ValueError
        A name is not explained, is explained twice, or is explained by what is not here.
    """
    names = library["names"].split()
    others: dict[str, str] = library.get("other", {})
    reasons: dict[str, str] = {}
    for group in library.get("absent", ()):
        for name in group["names"].split():
            if name in reasons:
                raise ValueError(f"{name} has two reasons")
            reasons[name] = group["reason"]
    unknown = sorted({*others, *reasons} - set(names))
    if unknown:
        raise ValueError(f"these are not among the names: {', '.join(unknown)}")
    entries, missing = [], []
    for name in names:
        home = next((h for h in library["homes"] if resolves(f"{h}.{name}")), None)
        explained = [name in others, name in reasons]
        if home is not None and any(explained):
            raise ValueError(f"{name} is here as {home}.{name}, and explained as if it were not")
        if home is not None:
            entries.append(Entry(name, SAME, f"{home}.{name}"))
        elif all(explained):
            raise ValueError(f"{name} is explained twice")
        elif name in others:
            for part in expressions(others[name]):
                if not resolves(part):
                    raise ValueError(f"{name} is said to be {part}, which is not here")
            entries.append(Entry(name, OTHER, others[name]))
        elif name in reasons:
            entries.append(Entry(name, ABSENT, reasons[name]))
        else:
            missing.append(name)
    if missing:
        raise ValueError(f"these have no entry: {' '.join(missing)}")
    return entries


def expressions(text: str) -> Iterator[str]:
    """Yield the dotted names of this package that a text mentions in backquotes."""
    for part in text.split("`")[1::2]:
        for word in part.replace("(", " ").replace("[", " ").replace(",", " ").split():
            if word.startswith("mg."):
                yield word.rstrip(")].")


def resolves(dotted: str) -> bool:
    """Return whether a dotted name such as ``mg.linalg.solve`` is a public name here."""
    import magmagraph

    _, *parts = dotted.split(".")
    found: Any = magmagraph
    for part in parts:
        if part not in getattr(found, "__all__", dir(found)) or not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def page() -> str:
    """Return the page."""
    texts = [
        "# What of NumPy, SciPy and JAX is here",
        "<!-- Made by docs/library_coverage.py from docs/coverage.toml: change it there, then run "
        "`make docs`. -->",
        "Functions of other libraries, and what they are called here. Arguments have the names of "
        "the original unless the docstring says otherwise. What has no entry in the second table "
        "of a library is here under the same name.",
    ]
    for title, library in libraries().items():
        entries = classify(library)
        same = [e for e in entries if e.state == SAME]
        texts += [
            f"## {title} {library['version']}",
            f"{len(entries)} functions: {len(same)} under the same name, "
            f"{sum(e.state == OTHER for e in entries)} under another, "
            f"{sum(e.state == ABSENT for e in entries)} not here.",
            "Under the same name: " + ", ".join(f"`{e.here}`" for e in same) + ".",
        ]
        renamed = [e for e in entries if e.state == OTHER]
        if renamed:
            rows = [f"| `{e.name}` | {e.here} |" for e in renamed]
            texts.append("\n".join([f"| {title} | here |", "| --- | --- |", *rows]))
        groups: dict[str, list[str]] = {}
        for entry in entries:
            if entry.state == ABSENT:
                groups.setdefault(entry.here, []).append(f"`{entry.name}`")
        if groups:
            rows = [f"| {', '.join(names)} | {reason} |" for reason, names in groups.items()]
            texts.append("\n".join(["| not here | reason |", "| --- | --- |", *rows]))
    return "\n\n".join(texts) + "\n"
