"""The viewer's data: keys, numbers, sizes, what may not be in them."""

from __future__ import annotations

import json
import re

import pytest
from pictured import (
    seed_step,
)
from viewed import ASSETS, LIMIT, ROOT, data_of

import magmagraph as mg
from magmagraph.inspect.viewer import SCRIPTS


def documented() -> dict[str, set[str]]:
    """Return the keys that docs/viewer-schema.md lists, by section."""
    found: dict[str, set[str]] = {}
    section = ""
    for line in (ROOT / "docs/viewer-schema.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif match := re.match(r"\| `(\w+)` \|", line):
            found.setdefault(section, set()).add(match[1])
    return found


def fallback_in_a_page() -> dict[str, object]:
    """Return the fallback of a page whose function sorts, which NumPy does on the CPU."""
    x = mg.input("x", (4,))
    data = data_of(mg.show(mg.function([x], mg.sort(mg.exp(x)))).html())
    (fallback,) = data["passes"][-1]["fallbacks"]
    assert data["texts"][fallback["reason"]] == "NumPy sorts on the CPU"
    assert data["texts"][data["nodes"]["op"][fallback["node_id"]]] == "sort"
    return fallback


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
        "fallback": fallback_in_a_page(),
        "moves": data["moves"],
        "plan": data["plan"],
        "step": data["plan"]["steps"][0],
        "slot": data["plan"]["slots"][0],
        "styles": data["styles"],
        "metrics": data["metrics"],
        "evidence": data["evidence"],
    }
    assert {name: set(value) for name, value in there.items()} == documented()
    assert (data["schema"], data["version"]) == ("magmagraph.viewer", 2)


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
