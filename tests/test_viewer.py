"""The viewer: its data, and its page in a real browser."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from pictured import (
    attention_block,
    large_graph,
    residual_step,
    resnet50_step,
    seed_feeds,
    seed_step,
)

import magmagraph as mg
from magmagraph.inspect.evidence import evidence
from magmagraph.inspect.geometry import draw
from magmagraph.inspect.scene import Scene
from magmagraph.inspect.viewer import SCRIPTS, unpacked
from magmagraph.op import Kind

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "magmagraph/inspect/viewer"
LIMIT = 2_000_000  # bytes of a page of 5,000 nodes
PATIENCE = 20_000  # milliseconds that a busy machine may take; docs/gallery.md has the number


def data_of(html: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="data">(.*?)</script>', html, re.DOTALL)
    return unpacked(packed)


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def files(html: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, text in html.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


class Viewer:
    """A page that is open, with all that it asked the network for and complained of."""

    def __init__(self, page: Any, path: Path, fragment: str = "") -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda said: self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda asked: self.requests.append(asked.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_function("window.magmagraph?.ready", timeout=PATIENCE)

    def run(self, script: str) -> Any:
        return self.page.evaluate(f"(() => {{ const app = window.magmagraph; {script} }})()")

    def state(self, name: str) -> Any:
        return self.run(f"return app.state.{name}")

    def graph(self) -> str:
        return str(self.run("return app.model.graphs[app.state.graph].name"))

    def click(self, node: int, view: str = "view") -> None:
        """Click the box of a node on a canvas."""
        x, y = self.run(
            f"const view = app.{view}; view.centre({node}); view.draw();"
            f"const box = view.boxesOf.get({node})[0];"
            "const at = view.canvas.getBoundingClientRect();"
            "return [at.left + view.x + (box.x + box.width / 2) * view.scale,"
            "        at.top + view.y + (box.y + box.height / 2) * view.scale];"
        )
        self.page.mouse.click(x, y)


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
        viewers.append(Viewer(context.new_page(), files[name], fragment))
        return viewers[-1]

    yield start
    for viewer in viewers:
        assert viewer.complaints == []
        assert [url for url in viewer.requests if not url.startswith(("file:", "data:"))] == []
    for context in contexts:
        context.close()


# ---------------------------------------------------------------------- the data


def documented() -> dict[str, set[str]]:
    """Return the keys that docs/viewer-schema.md lists, by section."""
    found: dict[str, set[str]] = {}
    section = ""
    for line in (ROOT / "docs/viewer-schema.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            section = line.removeprefix("### ")
        elif match := re.match(r"\| `(\w+)` \|", line):
            found.setdefault(section, set()).add(match[1])
    return found


def test_the_data_has_the_keys_that_are_documented(html: dict[str, str]) -> None:
    data = data_of(html["seed"])
    refusing = next(entry for entry in data["passes"] if entry["refusals"])
    there = {
        "page": data,
        "graph": data["graphs"][0],
        "frame": json.loads(data["layouts"][0])["frames"][0],
        "nodes": data["nodes"],
        "file": data["files"][0],
        "pass": refusing,
        "refusal": refusing["refusals"][0],
        "moves": data["moves"],
        "plan": data["plan"],
        "step": data["plan"]["steps"][0],
        "slot": data["plan"]["slots"][0],
        "styles": data["styles"],
        "metrics": data["metrics"],
        "evidence": data["evidence"],
    }
    assert {name: set(value) for name, value in there.items()} == documented()
    assert (data["schema"], data["version"]) == ("magmagraph.viewer", 1)


@pytest.mark.parametrize("name", ["seed", "attention", "residual", "resnet", "large"])
def test_the_numbers_of_the_data_point_at_something(html: dict[str, str], name: str) -> None:
    data = data_of(html[name])
    columns = data["nodes"]
    (count,) = {len(column) for column in columns.values()}
    texts = len(data["texts"])
    for key in ("op", "name", "type", "attributes", "label"):
        assert all(0 <= number < texts for number in columns[key])
    assert all(-1 <= number < len(data["lines"]) for number in columns["line"])
    assert all(0 <= i < count for inputs in columns["inputs"] for i in inputs)
    for layout in map(json.loads, data["layouts"]):
        for frame in layout["frames"]:
            items = len(frame["role"])
            assert {len(frame[k]) for k in ("node", "frame", "label", "x", "row")} == {items}
            for value, source, targets, _, _, far in frame["nets"]:
                assert 0 <= value < count
                assert all(0 <= item < items for item in (source, *targets))
                assert set(far) <= set(targets)


def test_graphs_are_what_passes_add_and_drop(html: dict[str, str]) -> None:
    step = seed_step()
    data = data_of(html["seed"])
    nodes: set[int] = set()
    graphs = [step.source_graph]
    graphs += [after for _, _, after in step.report.steps() if hasattr(after, "nodes")]
    assert len(graphs) == len(data["graphs"])
    for graph, given in zip(graphs, data["graphs"], strict=True):
        for key, change in (("drops", nodes.difference_update), ("adds", nodes.update)):
            at = 0
            numbers = [at := at + step_ for step_ in given[key]]
            change(numbers)
        there = set(graph.inputs) | set(graph.nodes)
        assert len(nodes) == len(there)
        labels = sorted(data["texts"][data["nodes"]["op"][n]] for n in nodes)
        assert labels == sorted(node.op.name for node in there)
    unchanged = [g for g in data["graphs"][1:] if not g["adds"] and not g["drops"]]
    assert unchanged
    assert len(data["layouts"]) <= len(data["graphs"]) - len(unchanged)


def test_pages_are_small_and_hold_everything(html: dict[str, str]) -> None:
    assert len(data_of(html["large"])["nodes"]["op"]) >= 5000
    for name, page in html.items():
        assert len(page.encode()) < LIMIT, name
        assert "http:" not in page.replace("http://www.w3.org", "")
        assert "https:" not in page
        assert not re.search(r"^\s*import\b|\bimport\(|\bfetch\(", page, re.MULTILINE)


def test_the_users_lines_can_be_left_out() -> None:
    step = seed_step()
    told = data_of(mg.show(step).html())
    assert told["texts"][told["files"][0]["name"]] == "pictured.py"
    assert any("mg.sigmoid(x @ W + b)" in row for _, row in told["files"][0]["rows"])
    data = data_of(mg.show(step, source=False).html())
    assert data["files"] == []
    assert data["lines"] == []
    assert not any("pictured.py" in text for text in data["texts"])
    assert "pictured" not in json.dumps(data["passes"])


def test_names_cannot_end_the_script_that_they_stand_in() -> None:
    x = mg.var("</script><b>{{data}}", shape=(2,))
    page = mg.show(mg.exp(x)).html()
    assert "</script><b>" not in page
    assert "</script><b>{{data}}" in data_of(page)["texts"]


def test_records_reports_nodes_and_graphs_have_pages_too() -> None:
    step = seed_step()
    record = data_of(mg.show(step.report["fuse"]).html())
    assert [graph["name"] for graph in record["graphs"]] == ["source", "fuse"]
    assert len(data_of(mg.show(step.report).html())["graphs"]) > 5
    assert data_of(mg.show(step.report["lower"]).html())["plan"] is None
    x = mg.var("x", shape=(3,))
    assert len(data_of(mg.show([mg.exp(x), x * x]).html())["nodes"]["op"]) == 3
    assert data_of(mg.show(step.plan).html())["graphs"][0]["outputs"]


def test_the_code_of_the_page_is_short_files_of_the_package() -> None:
    assert {path.name for path in ASSETS.glob("*.js")} == set(SCRIPTS)
    for path in (*ASSETS.glob("*.js"), *ASSETS.glob("*.css"), *ASSETS.glob("*.html")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 450, path.name
        assert max(map(len, lines)) <= 140, path.name


def test_the_gallery_has_the_numbers_that_were_measured() -> None:
    measured = json.loads((ROOT / "benchmarks/results/viewer.json").read_text("utf-8"))
    gallery = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    rows = measured["results"]["rows"]
    assert len(rows) == 5
    for row in rows:
        shown = (
            f"| {row['page']} | {row['nodes']} | {row['snapshots']} | {row['bytes'] // 1000} "
            f"| {row['save_processor_seconds']:.1f} | {row['ready_milliseconds']:.0f} |"
        )
        assert shown in gallery


# ---------------------------------------------------------------------- the page


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
    viewer.page.keyboard.press("ArrowLeft")
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
    assert "What became of it" in panel


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
        if option.is_disabled()
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
    linked.page.wait_for_function("magmagraph.model.graphs[magmagraph.state.graph].name === 'fuse'")
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
    viewer.page.wait_for_function("magmagraph.timeline.bars.length > 0")
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
    viewer.page.wait_for_function("magmagraph.memory.bars.length > 0")
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
        links = panel.locator("section", has_text="Comes from").locator("a.node")
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
    viewer.page.wait_for_function(f"magmagraph.view.y === {before} - 220")


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
    assert "this page reads magmagraph.viewer 1, not magmagraph.viewer 99" in opened.locator(
        "#failure"
    ).inner_text()
    opened.close()
