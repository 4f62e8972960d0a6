"""The viewer's panels in a real browser: code, rules, time, memory, numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pictured import (
    seed_feeds,
    seed_step,
)
from viewed import PATIENCE, Viewer, data_of

import magmagraph as mg
from magmagraph.inspect.evidence import evidence
from magmagraph.ir.op import Kind


def test_a_node_is_followed_to_the_kernels_that_explain_names(opened: Any) -> None:
    step = seed_step()
    viewer = opened("seed", "#graph=source")
    nodes = list(dict.fromkeys((*step.source_graph.inputs, *step.source_graph.nodes)))
    followed = 0
    for number, node in enumerate(nodes):  # the source's nodes are numbered first, in order
        assert viewer.run(f"return app.model.node({number}).op") == node.op.name
        if node.op.kind is Kind.LEAF:
            continue
        wanted = {use.step for use in step.explain(node).kernels}
        found = set(viewer.run(
            "const index = app.model.graphs.findIndex((g) => g.name === 'source');"
            f"return globalThis.magmagraph.stepsOf({number}, index)"
        ))
        assert found == wanted, node
        followed += bool(wanted)
    assert followed > 20


def test_the_panel_shows_code_fate_kernel_and_its_source(opened: Any) -> None:
    viewer = opened("seed", "#graph=source")
    viewer.run(
        "app.select([...app.model.graphs[0].nodes]"
        ".find((id) => app.model.label(id) === 'sigmoid'))"
    )
    panel = viewer.page.locator("#panel")
    assert "hidden = mg.sigmoid(x @ W + b)" in panel.locator(".row.here").inner_text()
    assert panel.locator(".row").count() >= 4
    text = panel.inner_text()
    assert "fuse" in text
    assert "computed by step" in text
    assert "a fused kernel" in text
    panel.locator("details.source summary").first.click()
    assert "expf" in panel.locator("details.source pre").first.inner_text()


def test_the_rules_panel_lists_hits_and_refusals(opened: Any) -> None:
    step = seed_step()
    viewer = opened("seed", "#panel=rules")
    panel = viewer.page.locator("#panel")
    for record in step.report:
        row = panel.locator("details.pass", has=viewer.page.locator(
            f"summary .pass:text-is('{record.name}')"))
        assert row.count() == 1
        if not (record.hits or record.refusals):
            continue
        if row.get_attribute("open") is None:
            row.locator("summary").first.click()
        row.locator(".rules > *").first.wait_for()
        text = row.inner_text()
        for rule in record.hits:
            assert rule in text
        for refusal in record.refusals[:1]:
            assert refusal.reason in text
    link = panel.locator(".rule.hit a.node").first
    link.click()
    assert viewer.state("node") >= 0


def test_the_timeline_and_the_memory_map_show_every_step_and_slot(opened: Any) -> None:
    step = seed_step()
    viewer = opened("seed", "#drawer=timeline")
    viewer.until("magmagraph.timeline.bars.length > 0")
    assert viewer.run("return app.timeline.bars.length") == len(step.plan.steps)
    x, y = viewer.run(
        "const bar = app.timeline.bars[0]; const at = app.timeline.canvas.getBoundingClientRect();"
        "return [at.left + bar.x + bar.width / 2, at.top + bar.y + 5]"
    )
    viewer.page.mouse.move(x, y)
    assert viewer.page.locator("#tip").inner_text().startswith("step 0, ")
    viewer.page.mouse.click(x, y)
    assert viewer.run("return app.model.plan.steps[0].node === app.state.node")
    viewer.page.keyboard.press("m")
    viewer.until("magmagraph.memory.bars.length > 0")
    arena = [slot for slot in step.plan.slots if slot.place.value == "arena"]
    assert viewer.run("return app.memory.bars.length") == len(arena)
    assert viewer.run("return Math.max(...app.liveBytes())") == step.plan.largest_live


def test_numbers_are_written_with_all_their_digits(opened: Any) -> None:
    viewer = opened("seed")
    numbers = [0, 7, 16, 160, 640, 1000, 1200, 999.7e3, 123456, 20e6]
    assert viewer.run(
        "const write = app.overlays.find((overlay) => overlay.key === 'bytes').write;"
        f"return {numbers}.map((number) => write(number))"
    ) == ["0 B", "7 B", "16 B", "160 B", "640 B", "1 kB", "1.2 kB", "1000 kB", "123 kB", "20 MB"]
    assert viewer.run(
        "const write = app.overlays.find((overlay) => overlay.key === 'time').write;"
        "return [160, 999999, 2500000].map((number) => write(number))"
    ) == ["160 ns", "1000 µs", "2.50 ms"]


def test_a_node_of_a_kernel_comes_from_that_of_its_operation(opened: Any) -> None:
    viewer = opened("seed", "#graph=fuse")
    inner = viewer.run(
        "const nodes = app.model.data.nodes;"
        "return nodes.inside.flatMap((kernel, id) => kernel >= 0"
        "  && app.model.graphs[app.state.graph].nodes.has(kernel)"
        "  && app.model.label(id) === 'sigmoid' && !app.model.graphs[0].nodes.has(id) ? [id] : [])"
    )
    assert inner
    for node in inner:
        viewer.run(f"app.select({node})")
        panel = viewer.page.locator("#panel")
        links = panel.locator("section", has_text="Origin").locator("a.node")
        assert [text.split("\n")[-1] for text in links.all_inner_texts()] == ["sigmoid"]


def test_every_node_shows_the_users_line_not_the_call(html: dict[str, str]) -> None:
    data = data_of(html["seed"])
    texts, lines = data["texts"], data["lines"]
    written = {number: row for file in data["files"] for number, row in file["rows"]}
    used = {lines[line][1] for line in data["nodes"]["line"] if line >= 0}
    assert any("mg.sigmoid(" in written[number] for number in used)
    assert not any("seed_feeds()" in written[number] for number in used)
    operations = data["nodes"]["op"]
    assert all(
        line >= 0
        for line, op in zip(data["nodes"]["line"], operations, strict=True)
        if texts[op] in ("fused", "gemm", "item")
    )


def test_a_narrow_page_puts_the_panel_below_the_graph(
    browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 420, "height": 800})
    viewer = Viewer(page, files["seed"])
    graph, panel, name = (
        page.locator(what).bounding_box() for what in ("#graph", "aside", "#graph-name")
    )
    page.close()
    assert graph["width"] == panel["width"] == 420
    assert graph["y"] + graph["height"] <= panel["y"]
    assert graph["height"] > 200
    assert name["x"] + name["width"] <= 420
    assert viewer.complaints == []


def test_a_narrow_page_begins_at_the_graphs_edge_with_keys_in_one_row(
    browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 420, "height": 800})
    viewer = Viewer(page, files["seed"])
    left = viewer.run("return Math.min(...app.view.drawing.frames.map((f) => f.x * app.view.scale)"
                      ") + app.view.x")
    height = page.locator("#legend").bounding_box()["height"]
    page.close()
    assert 0 <= left < 60
    assert height < 40


def test_paper_gets_all_of_the_graph_in_light_colours(opened: Any) -> None:
    viewer = opened("seed", "#graph=fuse&compare=source", scheme="dark")
    here = "return [app.view.x, app.view.y, app.view.scale, app.view.shown, app.theme.name]"
    *place, seen, _ = viewer.run(here)
    viewer.run("dispatchEvent(new Event('beforeprint'))")
    viewer.run("app.view.draw()")  # what the change of the page's size asks for
    *_, shown, theme = viewer.run(here)
    assert theme == "light"
    assert seen < shown == viewer.run("return app.view.drawing.boxes.length")
    for view in ("view", "left"):
        wide, high, *drawn = viewer.run(
            f"const {{ canvas, drawing }} = app.{view};"
            "return [canvas.width, canvas.height, drawing.width, drawing.height]"
        )
        assert wide / high == pytest.approx((drawn[0] + 40) / (drawn[1] + 40), rel=1e-2)
    viewer.run("dispatchEvent(new Event('afterprint'))")
    viewer.run("app.view.draw()")
    assert viewer.run(here) == [*place, seen, "dark"]


def test_the_timeline_has_round_times(opened: Any) -> None:
    viewer = opened("seed", "#drawer=timeline")
    viewer.until("magmagraph.timeline.bars.length > 0")
    for end, most, times in (
        (970, 8, [0, 200, 400, 600, 800]),
        (1000, 5, [0, 200, 400, 600, 800, 1000]),
        (2.5e6, 3, [0, 1e6, 2e6]),
        (7, 1, [0]),
    ):
        assert viewer.run(f"return app.ticks({end}, {most})") == times


def test_the_legend_names_scopes_where_there_are_some(opened: Any) -> None:
    words = "scope, layer or function"
    told = f"return document.getElementById('legend').textContent.includes('{words}')"
    assert opened("attention", "#graph=source").run(told)
    assert not opened("large", "#graph=source").run(told)


def test_ablations_fit_the_panel(browser: Any, tmp_path: Path) -> None:
    measured = evidence(seed_step(), *seed_feeds(), check=False, ablate=True)
    measured["ablate"]["rows"][1]["verdict"] = "gains 123.45x"
    path = tmp_path / "ablated.html"
    path.write_text(mg.show(seed_step(), evidence=measured).html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    viewer = Viewer(page, path, "#panel=evidence")
    over = viewer.run("return [...document.querySelectorAll('#panel .wide')]"
                      ".map((box) => box.scrollWidth - box.clientWidth)")
    text = page.locator("#panel").inner_text()
    page.close()
    assert "gains 123.45×" in text
    assert over == [0, 0]


def test_measurements_are_shown(opened: Any) -> None:
    viewer = opened("seed", "#panel=evidence")
    text = viewer.page.locator("#panel").inner_text()
    assert "rounding explains them" in text
    assert re.search(r"Time: [\d.]+ (ns|µs|ms)", text)


def test_a_large_page_is_ready_soon_and_moves(opened: Any) -> None:
    viewer = opened("large")
    assert viewer.run("return app.ready") < PATIENCE
    drawn = viewer.run(
        "const began = performance.now();"
        "for (let i = 0; i < 10; i++) { app.view.y -= 400; app.view.draw(); }"
        "return (performance.now() - began) / 10"
    )
    assert drawn < PATIENCE / 20
    assert viewer.run("return app.view.shown < app.view.drawing.boxes.length / 4")
    viewer.page.mouse.move(500, 400)
    before = viewer.run("return app.view.y")
    viewer.page.mouse.down()
    viewer.page.mouse.move(500, 300, steps=4)
    viewer.page.mouse.up()
    assert viewer.run("return app.view.y") == before - 100
    viewer.page.mouse.wheel(0, 120)
    viewer.until(f"magmagraph.view.y === {before} - 220")


def test_a_page_of_another_version_is_refused(browser: Any, files: dict[str, Path],
                                               tmp_path: Path) -> None:
    from magmagraph.inspect.viewer import packed

    html = files["attention"].read_text(encoding="utf-8")
    data = data_of(html)
    data["version"] = 99
    page = re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + packed(data) + m[2], html,
                  flags=re.DOTALL)
    path = tmp_path / "other.html"
    path.write_text(page, encoding="utf-8")
    opened = browser.new_page()
    opened.goto(path.as_uri())
    opened.locator("#failure").wait_for(timeout=PATIENCE)
    assert "this page reads magmagraph.viewer 2, not magmagraph.viewer 99" in opened.locator(
        "#failure"
    ).inner_text()
    opened.close()
