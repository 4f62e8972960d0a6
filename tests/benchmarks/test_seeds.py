"""The page that sets the papers' tables and figures beside ours."""

from __future__ import annotations

import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


class Parts(HTMLParser):
    """The sections of a page: how many tables and pictures each has, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[str, Any]] = {}
        self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "section":
            self.open = str(named["id"])
            self.found[self.open] = {"table": 0, "svg": 0, "text": ""}
        if self.open and tag in ("table", "svg"):
            self.found[self.open][tag] += 1
        assert tag not in ("script", "link", "img"), "the page needs nothing else"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.found[self.open]["text"] += data


@pytest.fixture(scope="module")
def parts() -> dict[str, dict[str, Any]]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import seeds

        reader = Parts()
        reader.feed(seeds.page())
    finally:
        sys.path.remove(str(BENCHMARKS))
    return reader.found


def test_every_part_of_the_papers_has_ours_beside_it(parts: dict[str, dict[str, Any]]) -> None:
    papers = tomllib.loads((BENCHMARKS / "seeds.toml").read_text("utf-8"))
    assert list(parts) == list(papers)
    for name, part in papers.items():
        found = parts[name]
        assert found["table"] + found["svg"] >= 1, name
        for numbers in part.get("values", {}).values():
            assert all(str(number) in found["text"] for number in numbers), name
        assert ("No numbers of theirs" in found["text"]) == ("values" not in part)


def test_what_is_drawn_is_drawn_from_what_the_package_builds(
    parts: dict[str, dict[str, Any]],
) -> None:
    assert parts["graphs"]["svg"] == 4
    assert "float16" in parts["graphs"]["text"]
    assert parts["parallelism"]["svg"] == 4  # two ranks of each of two ways
    assert "allreduce" in parts["parallelism"]["text"].replace(" ", "").replace("_", "")
    assert parts["workflow"]["svg"] == 2
    assert "cuda_mnist.json" in parts["layers"]["text"]
