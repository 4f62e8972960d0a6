"""Pages on narrow screens: what is drawn can be read, and nothing is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from viewed import Viewer

import magmagraph as mg
from magmagraph.inspect.pictures.chart import Frame

NARROW = {"width": 390, "height": 844}
READABLE = 8.0  # pixels


def searched(tmp_path: Path) -> Path:
    space = {
        "units": mg.tune.choice([8, 16, 32, 64]),
        "rate": mg.tune.log_uniform(1e-4, 1.0),
        "activation": mg.tune.choice(["relu", "tanh", "a_name_that_is_long"]),
    }
    found = mg.tune.search(
        lambda trial: trial["rate"] / trial["units"], space, method="random", trials=12, seed=0
    )
    path = tmp_path / "search.html"
    found.report(path)
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_search_can_be_read_on_a_narrow_screen(
    browser: Any, tmp_path: Path, scheme: str
) -> None:
    page = browser.new_page(viewport=NARROW, color_scheme=scheme)
    page.goto(searched(tmp_path).as_uri())
    wide = page.evaluate("document.documentElement.scrollWidth")
    seen = page.evaluate("document.documentElement.clientWidth")  # less a bar beside the page
    heights = page.evaluate(
        "[...document.querySelectorAll('svg')].map((svg) => 11 * svg.clientWidth / "
        "svg.viewBox.baseVal.width)"
    )
    outside = page.evaluate(
        """[...document.querySelectorAll('svg text')].filter((text) => {
            const own = text.getBoundingClientRect();
            const all = text.ownerSVGElement.getBoundingClientRect();
            return own.left < all.left - 1 || own.right > all.right + 1;
        }).map((text) => text.textContent)"""
    )
    page.close()
    assert wide == seen, "the page itself is not scrolled, only its wide parts"
    assert len(heights) == 3
    assert min(heights) >= READABLE
    assert outside == []


def test_texts_of_ticks_stay_in_their_picture() -> None:
    frame = Frame(430.0, 240.0)
    axes = frame.axes([(0.0, "a" * 40), (1.0, "b" * 12)], [], "x", "y")
    places = [float(part.split('"')[0]) for part in axes.split('"middle" x="')[1:3]]
    assert places[0] > frame.left
    assert places[1] < frame.right


def test_what_memory_comes_to_is_not_cut_off(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport=NARROW)
    page.add_init_script(
        """window.texts = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            const align = { left: 1, center: 0.5, right: 0 }[this.textAlign] ?? 1;
            window.texts.push([text, x + align * this.measureText(text).width, this.canvas.id,
                this.canvas.clientWidth]);
            return write.call(this, text, x, y);
        };"""
    )
    viewer = Viewer(page, files["seed"])
    page.evaluate("window.texts.length = 0")
    page.locator("#show-memory").click()
    page.wait_for_function("window.texts.some(([text]) => text.startsWith('step 0'))")
    texts = page.evaluate("window.texts")
    page.close()
    (drawer,) = {canvas for text, _, canvas, _ in texts if text.startswith("step 0")}
    drawn = {text: right <= wide for text, right, canvas, wide in texts if canvas == drawer}
    told = " ".join(drawn)
    assert all(name in told for name in ("feeds", "variables", "buffers without reuse"))
    assert [text for text, inside in drawn.items() if not inside] == []
    assert viewer.complaints == []


def test_graphs_are_dots_where_their_names_would_be_cut(
    browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport=NARROW)
    viewer = Viewer(page, files["seed"])
    cut = page.evaluate(
        "[...document.querySelectorAll('#stops button')].filter((stop) =>"
        " stop.scrollWidth > stop.clientWidth).map((stop) => stop.textContent)"
    )
    dots = page.evaluate(
        "[...document.querySelectorAll('#stops button')].map((stop) =>"
        " getComputedStyle(stop, '::before').width)"
    )
    page.locator("#stops button", has_text="fuse").click()
    shown = viewer.graph()
    below = page.locator(".pane:not(.first) .name").inner_text()
    page.close()
    assert cut == []
    assert len(dots) > 10
    assert sorted(set(dots)) == ["11px", "7px"]
    assert shown == "fuse"
    assert below.startswith("fuse")
    assert viewer.complaints == []
