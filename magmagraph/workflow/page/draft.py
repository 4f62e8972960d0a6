"""What the page draws of a workflow file: modules, their keys, where boxes and edges are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...inspect.pictures.layered import Net, layered
from ..edit import toml
from ..file import KEYS, NEEDS, tables_of, workflow_of
from ..modules import Module

__all__ = ["FIELDS", "described"]

_DEFAULTS = {field.name: field.default for field in fields(Module)}
FIELDS = {
    table: [
        {
            "key": key, "kind": kind, "need": NEEDS[kind],
            "default": f"{_DEFAULTS[key]:g}" if kind in ("count", "seconds") and _DEFAULTS.get(key)
            else "",
        }
        for key, kind in keys.items()
    ]
    for table, keys in KEYS.items()
}  # fmt: skip
"""The keys of each table: the forms of the page."""
_LETTER = 7.3  # width of a letter
_LEAST, _COUNTED, _MOST = 132.0, 272.0, 272.0  # widths of boxes: least, with counts, most
_HIGH, _ROW, _EDGE = 58.0, 118.0, 20.0  # height of a box, of a row, the margin
_PLAIN = ("text", "failure")  # kinds that are shown as they are, not as TOML


def described(text: str, path: Path) -> dict[str, Any]:
    r"""Describe a text, even a wrong one, and list its errors.

    Examples
    --------
    >>> text = '[modules.a]\nfunction = "b:c"\n[modules.d]\nfunction = "e:f"\nafter = ["a"]\n'
    >>> found = described(text, Path("study.toml"))
    >>> found["error"], [(m["name"], m["y"]) for m in found["modules"]]
    ('', [('a', 20.0), ('d', 138.0)])
    """
    error, workers = "", 0
    copies: dict[str, int] = {}
    tables: dict[str, Any] = {}
    try:
        tables = tables_of(text, path)
        workflow = workflow_of(tables, path)
        workers = workflow.least_workers
        copies = {name: module.copies for name, module in workflow.modules.items()}
    except ConfigError as wrong:
        error = str(wrong)
    modules = tables.get("modules", {})
    modules = modules if isinstance(modules, dict) else {}
    modules = {name: table for name, table in modules.items() if isinstance(table, dict)}
    return {
        "text": text,
        "error": error,
        "workers": workers,
        **_diagram(modules, copies),
        "tables": {
            name: _typed(tables.get(name), KEYS[name]) for name in ("workflow", "store")
        },
    }  # fmt: skip


def _typed(table: Any, keys: dict[str, str]) -> dict[str, Any]:
    """Return the values of a table as they are typed into fields."""
    entries = table if isinstance(table, dict) else {}
    return {
        key: value
        if isinstance(value, str) and keys.get(key, "text") in _PLAIN
        else toml(value)
        for key, value in entries.items()
    }  # fmt: skip


def _diagram(modules: dict[str, Any], copies: dict[str, int]) -> dict[str, Any]:
    """Return boxes and edges: layers, from the top down."""
    names = list(modules)
    after = {
        name: [other for other in table.get("after", []) if other in modules]
        if isinstance(table.get("after"), list)
        else []
        for name, table in modules.items()
    }
    nets = [
        Net(i, [j for j, other in enumerate(names) if name in after[other]])
        for i, name in enumerate(names)
    ]
    boxes: list[dict[str, Any]] = []
    for name, table in modules.items():
        command = table.get("command")
        words = " ".join(map(str, command)) if isinstance(command, list) else ""
        about = str(table.get("function") or words)
        least = _LEAST if copies.get(name, 1) == 1 and "iterations" not in table else _COUNTED
        wide = min(_MOST, max(least, _LETTER * max(len(name) + 4, len(about)) + 28))
        boxes.append(
            {
                "name": name,
                "about": about,
                "after": after[name],
                "copies": copies.get(name, 1),
                "values": _typed(table, KEYS["modules"]),
                "width": wide,
                "height": _HIGH,
            }
        )
    layout = layered([box["width"] for box in boxes], [net for net in nets if net.targets])
    for box, row, middle in zip(boxes, layout.rows, layout.columns, strict=True):
        box["x"], box["y"] = _EDGE + middle - box["width"] / 2, _EDGE + row * _ROW
    edges = []
    for net in layout.nets:
        start = boxes[net.source]
        for target in net.targets:
            end = boxes[target]
            passed = layout.rows[target] - layout.rows[net.source] - 1
            way = [(_EDGE + x, _EDGE + (layout.rows[net.source] + 1 + i) * _ROW + _HIGH / 2)
                   for i, x in enumerate(net.trunk[:max(0, passed)])]  # fmt: skip
            if target in net.far and net.lane is not None:
                way = [(_EDGE + net.lane, y) for y in (start["y"] + _HIGH + 20, end["y"] - 20)]
            edges.append(
                {
                    "from": start["name"],
                    "to": end["name"],
                    "points": [
                        (start["x"] + start["width"] / 2, start["y"] + _HIGH),
                        *way,
                        (end["x"] + end["width"] / 2, end["y"]),
                    ],
                }
            )
    high = max((box["y"] for box in boxes), default=0.0) + _HIGH + 2 * _EDGE
    return {
        "modules": boxes,
        "edges": edges,
        "width": layout.width + 2 * _EDGE,
        "height": high,
    }
