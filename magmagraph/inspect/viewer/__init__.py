"""The viewer: one file that holds the page, its code and its data, and needs nothing else."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from html import escape
from importlib.resources import files
from typing import Any

from .data import Pages, data

# In this order they make one script: what a file uses at once stands before it.
SCRIPTS = (
    "elements.js",
    "model.js",
    "fate.js",
    "geometry.js",
    "theme.js",
    "overlays.js",
    "graph_view.js",
    "node_panel.js",
    "rules_panel.js",
    "charts.js",
    "search.js",
    "address.js",
    "printing.js",
    "app.js",
)


def html(pages: Pages) -> str:
    """Return the page as text.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> x = mg.input("x", shape=(3,))
    >>> html(Pages("exp", [("source", freeze([x], [mg.exp(x)]))]))[:15]
    '<!doctype html>'
    """
    title = escape(pages.title)
    return (
        asset("page.html")
        .replace("{{title}}", title)
        .replace("{{style}}", asset("viewer.css") + asset("printing.css"))
        .replace("{{script}}", script())
        .replace("{{data}}", packed(data(pages)))
    )


def script() -> str:
    """Return the code of the page: its files, one after the other, in one scope."""
    parts = [f"// {name}\n{asset(name)}" for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();"


def packed(values: dict[str, Any]) -> str:
    """Return values as JSON, deflated (RFC 1951), in base64.

    Examples
    --------
    >>> unpacked(packed({"a": [1, 2]}))
    {'a': [1, 2]}
    """
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Return what `packed` packed."""
    raw = zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)
    content = json.loads(raw)
    assert isinstance(content, dict)
    return content


@functools.cache
def asset(name: str) -> str:
    """Return a file of the page."""
    return (files(__name__) / name).read_text(encoding="utf-8")
