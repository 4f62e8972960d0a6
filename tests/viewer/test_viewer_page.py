"""The viewer's page in a real browser: drawn, walked through, searched, coloured."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pictured import (
    attention_block,
    seed_step,
)

from magmagraph.inspect.pictures.geometry import draw
from magmagraph.inspect.pictures.scene import Scene


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["seed", "attention", "residual", "resnet", "large"])
def test_a_page_loads_and_is_drawn(opened: Any, name: str, scheme: str) -> None:
    viewer = opened(name, scheme=scheme)
    assert viewer.run("return app.view.shown") > 0
    assert viewer.run("return app.theme.name") == scheme
    colours = viewer.run(
        "const { canvas, context } = app.view;"
        "const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;"
        "const seen = new Set();"
        "for (let i = 0; i < pixels.length; i += 4) seen.add(pixels[i] << 16 | pixels[i + 1] << 8"
        " | pixels[i + 2]);"
        "return seen.size"
    )
    assert colours > 20
    assert viewer.page.locator("#legend .entry").count() > 1
    assert viewer.page.locator("#failure").is_hidden()


def test_the_page_places_boxes_where_python_does(opened: Any) -> None:
    block = attention_block()
    viewer = opened("attention", "#graph=source")
    graph = block.source_graph
    drawn = draw(Scene(list(dict.fromkeys((*graph.inputs, *graph.nodes))), graph.outputs, ()).root)
    found = viewer.run(
        "return app.view.drawing.boxes.map((box) => [box.label, box.x, box.y, box.width])"
    )
    assert [label for label, *_ in found] == [box.item.label for box in drawn.boxes]
    for (_, x, y, width), box in zip(found, drawn.boxes, strict=True):
        assert math.hypot(x + width / 2 - box.x - box.width / 2, y - box.y) < 4  # whole pixels
    assert viewer.run("return app.view.drawing.height") == drawn.height


def test_no_boxes_of_the_page_overlap_open_or_closed(opened: Any) -> None:
    viewer = opened("seed")
    overlaps = """
      const boxes = [...app.view.drawing.boxes, ...app.view.drawing.frames.filter((f) => f.closed)];
      let count = 0;
      for (const a of boxes) for (const b of boxes) {
        if (a !== b && a.x < b.x + b.width && b.x < a.x + a.width
            && a.y < b.y + b.height && b.y < a.y + a.height) count += 1;
      }
      return [count, boxes.length, app.view.drawing.height];
    """
    count, boxes, height = viewer.run(overlaps)
    assert (count, boxes > 15) == (0, True)
    viewer.page.keyboard.press("x")
    count, fewer, lower = viewer.run(overlaps)
    assert count == 0
    assert fewer < boxes
    assert lower < height
    viewer.page.keyboard.press("x")
    assert viewer.run(overlaps) == [0, boxes, height]


def test_the_slider_goes_from_the_source_to_the_plan(opened: Any) -> None:
    viewer = opened("seed")
    slider = viewer.page.locator("#slider")
    assert viewer.graph() == "plan"
    seen = []
    for i in range(int(slider.get_attribute("max")) + 1):
        slider.evaluate("(e, i) => { e.value = i; e.dispatchEvent(new Event('input')); }", i)
        seen.append(viewer.graph())
    assert (seen[0], seen[-1]) == ("source", "plan")
    named = [name for name, _, after in seed_step().report.steps() if hasattr(after, "nodes")]
    assert seen[1:-1] == named
    viewer.page.locator("#stops button", has_text="simplify").click()
    assert viewer.graph() == "simplify"
    assert viewer.page.locator("#graph-name").inner_text().startswith("simplify · ")
    for _ in range(seen.index("simplify")):
        viewer.page.keyboard.press("ArrowLeft")
    assert viewer.graph() == "source"


def test_what_is_selected_is_selected_in_both_views(opened: Any) -> None:
    viewer = opened("seed", "#graph=contract&compare=source")
    node = viewer.run(
        "return [...app.model.graphs[0].nodes].find((id) => app.model.label(id) === 'matmul')"
    )
    viewer.click(node, "left")
    assert viewer.state("node") == node
    assert viewer.run("return [...app.left.selected]") == [node]
    (partner,) = viewer.run("return [...app.view.selected]")
    assert viewer.run(f"return app.model.node({partner}).op") == "gemm"
    viewer.click(partner)
    assert viewer.run("return [...app.left.selected]") == [node]
    panel = viewer.page.locator("#panel").inner_text()
    assert "History" in panel


def test_what_a_pass_changed_is_marked(opened: Any) -> None:
    viewer = opened("seed", "#graph=contract&compare=simplify")
    added, dropped = viewer.run(
        "const op = (id) => app.model.node(id).op;"
        "return [[...app.view.marks.added].map(op), [...app.left.marks.dropped].map(op)]"
    )
    assert set(added) == {"gemm"}
    assert "matmul" in dropped
    viewer.page.keyboard.press("d")
    assert viewer.run("return app.view.marks.added.size") == 0


def test_search_finds_nodes_and_shows_them(opened: Any) -> None:
    viewer = opened("seed", "#graph=source")
    viewer.page.keyboard.press("/")
    viewer.page.keyboard.type("sigmoid float32")
    rows = viewer.page.locator("#results .found")
    assert rows.first.inner_text().startswith("ƒ")
    viewer.page.keyboard.press("Enter")
    assert viewer.run("return app.model.label(app.state.node)") == "sigmoid"
    assert viewer.page.locator("#panel h2").inner_text().endswith("sigmoid")
    viewer.page.locator("#search").fill("pictured.py")
    assert rows.count() > 20
    viewer.page.locator("#search").fill("no such thing")
    assert viewer.page.locator("#results").inner_text() == "nothing found"


def test_overlays_colour_what_was_measured(opened: Any) -> None:
    viewer = opened("seed")
    for key in ("time", "bytes", "flops", "error", "dtype", "stream"):
        viewer.page.locator("#overlay").select_option(key)
        values = viewer.run("return [...app.view.overlay.values.values()]")
        assert len(values) >= 5, key
        assert viewer.page.locator("#legend b").inner_text().lower() == {"flops": "flops"}.get(
            key, key
        )
    step = seed_step()
    viewer.page.locator("#overlay").select_option("bytes")
    by_step = viewer.run(
        "return app.model.plan.steps.map((s) => app.view.overlay.values.get(s.node) ?? null)"
    )
    shown = [(b, s.bytes) for b, s in zip(by_step, step.plan.steps, strict=True) if b is not None]
    assert shown
    assert all(one == other for one, other in shown)


def test_overlays_that_are_missing_say_why(opened: Any) -> None:
    viewer = opened("attention")
    options = viewer.page.locator("#overlay option")
    disabled = {
        option.get_attribute("value"): option.get_attribute("title")
        for option in options.all()
        if option.evaluate("option => option.disabled")
    }
    assert set(disabled) == {"time", "bytes", "flops", "error", "stream"}
    assert "evidence=evidence(f, *feeds)" in str(disabled["time"])
    assert "call the function once" in str(disabled["bytes"])
    viewer.page.keyboard.press("o")
    assert viewer.state("overlay") == "dtype"
    viewer.page.keyboard.press("3")
    assert "Nothing was measured" in viewer.page.locator("#panel").inner_text()
    viewer.page.locator("#show-timeline").click()
    assert "Nothing was profiled" in viewer.page.locator("#missing").inner_text()
    viewer.page.locator("#show-memory").click()
    assert "Sizes are not bound" in viewer.page.locator("#missing").inner_text()


def test_a_node_is_reached_by_its_address(opened: Any) -> None:
    viewer = opened("seed")
    node = viewer.run(
        "return [...app.model.graphs[0].nodes].find((id) => app.model.label(id) === 'sigmoid')"
    )
    linked = opened("seed", f"#graph=source&node={node}&overlay=dtype&panel=rules&drawer=memory")
    assert linked.state("node") == node
    assert linked.graph() == "source"
    assert [linked.state(name) for name in ("overlay", "tab", "drawer")] == [
        "dtype", "rules", "memory",
    ]
    box, middle = linked.run(
        f"const view = app.view; const box = view.boxesOf.get({node})[0];"
        "return [view.x + (box.x + box.width / 2) * view.scale, view.canvas.clientWidth / 2]"
    )
    assert abs(box - middle) < 2
    assert f"node={node}" in linked.page.evaluate("location.hash")
    linked.page.evaluate("location.hash = '#graph=fuse'")
    linked.until("magmagraph.model.graphs[magmagraph.state.graph].name === 'fuse'")
    odd = opened("seed", "#graph=nothing&node=99999999&overlay=none&panel=x")
    assert odd.graph() == "plan"
    assert odd.state("node") == -1


def test_keys(opened: Any) -> None:
    viewer = opened("seed", "#graph=source")
    press = viewer.page.keyboard.press
    press("c")
    assert viewer.state("compare")
    press("c")
    press("t")
    assert viewer.run("return app.theme.name") == "dark"
    press("m")
    assert viewer.state("drawer") == "timeline"
    press("2")
    assert viewer.state("tab") == "rules"
    press("f")
    scale = viewer.run("return app.view.scale")
    press("+")
    assert viewer.run("return app.view.scale") > scale
    node = viewer.run(
        "return [...app.model.graphs[0].nodes].find((id) => app.model.label(id) === 'sigmoid')"
    )
    viewer.run(f"app.select({node})")
    press("ArrowUp")
    operand = viewer.state("node")
    assert viewer.run(f"return app.model.node({node}).inputs").count(operand) == 1
    press("ArrowDown")
    assert viewer.state("node") != operand
    press("Escape")
    assert viewer.state("node") == -1
    press("?")
    assert viewer.page.locator("#keys").is_visible()
    press("Escape")
    assert viewer.page.locator("#keys").is_hidden()
