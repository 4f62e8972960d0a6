"""The pages, a browser, and pages that are open in it, made once for all tests of the viewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, firefox
from pictured import (
    attention_block,
    large_graph,
    residual_step,
    resnet50_step,
    seed_feeds,
    seed_step,
)
from viewed import Viewer

import magmagraph as mg
from magmagraph.inspect.evidence import evidence


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages, by name; the seed's has measurements, the others have none."""
    step = seed_step()
    measured = evidence(step, *seed_feeds(), ablate=False)
    return {
        "seed": mg.show(step, evidence=measured).html(),
        "attention": mg.show(attention_block()).html(),
        "residual": mg.show(residual_step()).html(),
        "resnet": mg.show(resnet50_step()).html(),
        "large": mg.show(large_graph(4400)).html(),
    }


@pytest.fixture(scope="session")
def files(html: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, text in html.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser: Chromium, or Firefox where MAGMAGRAPH_TEST_BROWSER=firefox."""
    wanted = os.environ.get("MAGMAGRAPH_TEST_BROWSER", "chromium")
    with {"chromium": chromium, "firefox": firefox}[wanted]() as started:
        yield started


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    """Open a page by its name; nothing may complain, nothing may be asked of a network."""
    contexts = []
    viewers = []

    def start(name: str, fragment: str = "", scheme: str = "light") -> Viewer:
        context = browser.new_context(
            viewport={"width": 1300, "height": 800}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        if is_dark != (scheme == "dark"):
            pytest.skip(f"the driver of this browser sets no scheme: {scheme}")
        viewers.append(Viewer(page, files[name], fragment))
        return viewers[-1]

    yield start
    for viewer in viewers:
        assert viewer.complaints == []
        assert [url for url in viewer.requests if not url.startswith(("file:", "data:"))] == []
    for context in contexts:
        context.close()
