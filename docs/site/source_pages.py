"""Show the source files in which public names are defined, with an anchor for each line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from public_names import PACKAGE, public_names, source_position

FOLDER = "source"


def page_of(path: Path) -> str:
    """Return the name of the page that shows a file."""
    return f"{FOLDER}/{path.relative_to(PACKAGE).with_suffix('').as_posix()}"


def address(path: Path, line: int) -> str:
    """Return the link from a page of the reference to a line of a file."""
    return f"../{page_of(path)}.html#L-{line}"


def shown_files() -> set[Path]:
    """Return the files that define public names, or methods of public classes."""
    files = set()
    for name in public_names():
        values = [(name.name, name.value)]
        if inspect.isclass(name.value):
            values += list(vars(name.value).items())
        for own_name, value in values:
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            position = source_position(value, own_name)
            if position is not None:
                files.add(position[0])
    return files


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the page of each file."""
    from html import escape

    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    formatter = HtmlFormatter(anchorlinenos=False, lineanchors="L", wrapcode=True)
    for path in sorted(shown_files()):
        title = f"magmagraph/{path.relative_to(PACKAGE).as_posix()}"
        code = highlight(path.read_text(encoding="utf-8"), PythonLexer(), formatter)
        body = f"<h1><code>{escape(title)}</code></h1>\n{code}"
        yield page_of(path), {"title": title, "body": body}, "page.html"


def setup(app: Any) -> None:
    """Register the pages."""
    app.connect("html-collect-pages", pages)
