"""The viewer by keyboard and for screen readers; comparing; scales of overlays; other browsers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import firefox
from viewed import Viewer

LABELLED = """
  const named = (one) => one.getAttribute("aria-label") || one.textContent.trim()
    || one.labels?.length || one.getAttribute("aria-labelledby");
  return [...document.querySelectorAll("button, select, input, canvas, [role], aside section")]
    .filter((one) => !one.closest("[hidden]") && one.id !== "status" && !named(one))
    .map((one) => one.outerHTML.slice(0, 80));
"""


def test_all_controls_have_names(opened: Any) -> None:
    viewer = opened("seed", "#drawer=memory")
    viewer.until("magmagraph.memory.bars.length > 0")
    assert viewer.run(LABELLED) == []
    assert "alive" in viewer.run("return document.getElementById('memory').ariaLabel")


def test_what_is_selected_is_told(opened: Any) -> None:
    viewer = opened("attention", "#graph=source")
    told = "return document.getElementById('status').textContent"
    assert viewer.run(told).startswith("graph source")
    node = viewer.run(
        "return [...app.model.graphs[0].nodes].find((id) => app.model.label(id) === 'exp')"
    )
    viewer.run(f"app.select({node})")
    text = viewer.run(told)
    assert text.startswith("exp, float32[")
    assert "in block/attention/softmax" in text
    assert text.endswith("1 inputs, 2 readers")


def test_tabs_and_search_go_by_the_keyboard(opened: Any) -> None:
    viewer = opened("attention", "#graph=source")
    page = viewer.page
    page.focus("#tab-node")
    page.keyboard.press("ArrowRight")
    assert viewer.state("tab") == "rules"
    assert viewer.run("return document.activeElement.id") == "tab-rules"
    assert viewer.graph() == "source"  # the arrows were the tabs'
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    field = "const field = document.getElementById('search');"
    assert viewer.run(f"{field} return field.ariaExpanded") == "true"
    page.keyboard.press("ArrowDown")
    at = viewer.run(f"{field} return field.getAttribute('aria-activedescendant')")
    assert at == "found-1"
    rows = viewer.run("return [...document.querySelectorAll('.found')].map((x) => x.textContent)")
    assert len(rows) > 3
    assert all("block/attention/softmax" in row for row in rows)
    page.keyboard.press("Enter")
    assert viewer.state("node") >= 0


def test_compare_opens_the_source_against_the_plan(opened: Any) -> None:
    viewer = opened("seed", "#graph=source")
    viewer.page.click("#compare")
    names = "return [app.state.other, app.state.graph].map((i) => app.model.graphs[i].name)"
    assert viewer.run(names) == ["source", "plan"]
    viewer.page.click("#compare")
    viewer.run("app.go(2)")
    viewer.page.click("#compare")
    assert viewer.run("return [app.state.other, app.state.graph]") == [0, 2]


@pytest.mark.parametrize("overlay", ["time", "bytes", "error", "dtype"])
def test_overlays_keep_their_scale_from_graph_to_graph(opened: Any, overlay: str) -> None:
    viewer = opened("seed", f"#overlay={overlay}")
    seen = viewer.run(
        "const all = []; for (let i = 0; i < app.model.graphs.length; i++) {"
        " app.go(i); all.push(app.view.overlay.legend); } return all"
    )
    colours = [dict(map(tuple, legend)) for legend in seen]
    for one in colours:
        assert set(one.items()) <= set(colours[0].items()) | set(colours[-1].items())
    if overlay != "dtype":
        assert seen.count(seen[0]) == len(seen)


def test_kernels_are_told_apart_by_what_they_compute(opened: Any) -> None:
    viewer = opened("seed", "#graph=fuse")
    titles = viewer.run(
        "return app.view.drawing.frames.filter((f) => f.node >= 0).map((f) => f.label)"
    )
    assert len(titles) > 1
    assert all(title.startswith("kernel: ") for title in titles)
    assert len(set(titles)) > 1


@pytest.mark.parametrize("width", [400, 1400])
def test_wide_tables_scroll_and_the_page_does_not(
    browser: Any, files: dict[str, Path], width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    viewer = Viewer(context.new_page(), files["seed"], "#panel=evidence")
    page = "return document.documentElement.scrollWidth"
    assert viewer.run(page) == width
    tables = viewer.run(
        "return [...document.querySelectorAll('#panel .wide')].map((one) => ["
        " one.tabIndex, getComputedStyle(one).overflowX,"
        " one.getBoundingClientRect().right <= innerWidth + 1])"
    )
    assert tables
    assert all(row == [0, "auto", True] for row in tables)
    context.close()


def test_pages_open_in_firefox(files: dict[str, Path]) -> None:
    with firefox() as started:
        context = started.new_context(viewport={"width": 1300, "height": 800}, offline=True)
        for name in ("seed", "attention"):
            viewer = Viewer(context.new_page(), files[name], "#overlay=dtype")
            viewer.run("app.set('drawer', 'memory'); app.compare(); app.toggleAll();")
            assert viewer.state("compare")
            assert viewer.run(LABELLED) == []
            assert viewer.complaints == []
        context.close()
