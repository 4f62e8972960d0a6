"""Check a built site: every link and anchor leads somewhere, every name has a page, no network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from public_names import public_names
from stage import page_name


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        values = {name: value for name, value in attrs if value}
        self.anchors.update(values[key] for key in ("id", "name") if key in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", None):
            self.loaded.append(values.get("href", ""))
        elif tag in ("img", "script", "iframe", "source") and "src" in values:
            self.loaded.append(values["src"])


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site, a line each."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    found = [
        f"{name.full_name} has no page"
        for name in public_names()
        if not (site / "reference" / f"{page_name(name.full_name)}.html").is_file()
    ]
    for path, page in sorted(pages.items()):
        where = path.relative_to(site.resolve()).as_posix()
        for link in {*page.links, *page.loaded}:
            reason = broken(path, link, pages, loaded=link in page.loaded)
            if reason:
                found.append(f"{where}: {link}: {reason}")
    return found


def broken(path: Path, link: str, pages: dict[Path, Page], *, loaded: bool) -> str | None:
    """Return the reason why a link of a page leads nowhere, or None."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "loaded from a network" if loaded else None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if parts.fragment and target in pages:
        anchor = unquote(parts.fragment)
        if anchor not in pages[target].anchors:
            return "no such anchor"
    return None
