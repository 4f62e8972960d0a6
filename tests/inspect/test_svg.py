"""SVG pictures: what they show, that it can be read, on paper and in both themes."""

from __future__ import annotations

import functools
import itertools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import chromium
from pictured import attention_block, residual_step, seed_step

import magmagraph as mg
from magmagraph.inspect.pictures.palette import COLOURS, DARK, LIGHT, SIGNS, contrast, mixed
from magmagraph.ir.op import Kind
from magmagraph.ops.control.fused import FUSED, FUSED_MANY

ROOT = Path(__file__).resolve().parents[2]
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with chromium() as browser:
        yield browser.new_page(viewport={"width": 1600, "height": 1000})


def texts(picture: str, kind: str) -> list[str]:
    root = ElementTree.fromstring(picture)
    return [e.text or "" for e in root.iter(f"{SPACE}text") if e.get("class") == kind]


def test_a_picture_shows_labels_types_and_updates() -> None:
    picture = mg.show(seed_step().source_graph).svg()
    labels = texts(picture, "label")
    assert {"x", "labels", "W", "b", "V", "sigmoid", "update W", "return"} <= set(labels)
    assert "float32[batch, 8]" in texts(picture, "type")
    keys = texts(picture, "key")
    assert keys.index("input") < keys.index("variable") < keys.index("elementwise")
    assert "new value of a variable" in keys
    assert "random" not in keys  # the legend has what is there


def test_a_picture_of_a_function_has_its_kernels_as_frames() -> None:
    step = seed_step()
    root = ElementTree.fromstring(mg.show(step).svg())
    frames = [g for g in root.iter(f"{SPACE}g") if (g.get("class") or "").startswith("frame")]
    fused = [node for node in step.graph.nodes if node.op in (FUSED, FUSED_MANY)]
    kernels = [g for g in frames if g.get("class") == "frame fused"]
    assert len(kernels) == len(fused) + 1  # and the legend's
    block = mg.show(attention_block()).svg()
    assert {"block", "norm", "attention"} <= set(re.findall(r">(\w+)</text></g>", block))
    groups = "group: scope, layer or function"
    assert groups in texts(block, "key")
    x = mg.var("x", shape=(3,))
    assert groups not in texts(mg.show(mg.exp(x) * 2.0).svg(), "key")


def test_a_pass_record_is_drawn_before_and_after() -> None:
    step = seed_step()
    picture = mg.show(step.report["fuse"]).svg()
    assert texts(picture, "heading") == ["before", "after"]
    lowered = mg.show(step.report["lower"]).svg()  # what it makes is a plan
    assert texts(lowered, "heading") == ["before"]
    assert texts(mg.show(step.plan).svg(), "label")


def test_the_users_lines_are_left_out_when_asked(tmp_path: Path) -> None:
    graph = seed_step().source_graph
    assert "pictured.py:" in mg.show(graph).svg()
    assert "pictured.py:" not in mg.show(graph, source=False).svg()
    mg.show(graph).save(tmp_path / "graph.svg", source=False)
    assert "pictured.py:" not in (tmp_path / "graph.svg").read_text("utf-8")


def test_dot_has_scopes_as_clusters_and_the_colours_of_pictures() -> None:
    dot = mg.show(attention_block().source_graph).dot()
    outer = dot.index('label="block";')
    assert outer < dot.index('  label="norm";')
    assert outer < dot.index('  label="attention";')
    assert outer < dot.index('  label="softmax";')
    assert dot.count("subgraph cluster_") == 4
    assert dot.count("{") == dot.count("}") == 5
    assert COLOURS["contraction"] in dot


def test_names_with_marks_of_markup_are_escaped() -> None:
    x = mg.var('<a & "b">', shape=(2,))
    picture = mg.show(mg.exp(x)).svg()
    assert '<a & "b">' in texts(picture, "label")


def test_long_names_are_shortened_in_the_middle() -> None:
    x = mg.var("encoder/" + "layer/" * 20 + "kernel", shape=(2,))
    label = next(t for t in texts(mg.show(x * 2.0).svg(), "label") if t.startswith("encoder"))
    assert len(label) <= 40
    assert label.endswith("yer/kernel")


def test_notebooks_draw_what_is_shown() -> None:
    shown = mg.show(seed_step())
    assert shown._repr_svg_() == shown.svg()
    assert shown.svg() in shown._repr_html_()
    assert mg.show(seed_step().report)._repr_html_().startswith("<pre>pass")
    x = mg.var("x", shape=(2,))
    for _ in range(700):
        x = mg.sin(x)
    assert "701 nodes: too many" in mg.show(x)._repr_html_()


def test_every_kind_has_a_colour_and_a_sign() -> None:
    assert {kind.value for kind in Kind} - {"leaf"} <= set(COLOURS) & set(SIGNS)
    boxes = [style for style in COLOURS if style not in ("fused", "scope")]
    # Where colours are the same, signs are not: colour never stands alone.
    looks = {(COLOURS[style], SIGNS[style]) for style in boxes}
    assert len(looks) == len(boxes)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_stand_out(theme: Any) -> None:
    assert contrast(theme.ink, theme.paper) > 7
    assert contrast(theme.muted, theme.paper) > 4.5
    for colour in COLOURS.values():
        assert contrast(theme.ink, mixed(colour, theme.paper, theme.tint)) > 7
        assert contrast(theme.muted, mixed(colour, theme.paper, 0.10)) > 4.5


def _dichromat(colour: str) -> tuple[float, float, float]:
    """Return a colour as one sees it who lacks the middle cones.

    Viénot, Brettel and Mollon, "Digital video colourmaps for checking the legibility of displays
    by dichromats", Color Research and Application 24 (1999): in linear RGB, red and green become
    one value.
    """
    red, green, blue = (
        (int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)
    )
    mixed_ = 0.29275 * red + 0.70725 * green
    return (mixed_ ** (1 / 2.2), mixed_ ** (1 / 2.2), max(0.0, -0.02234 * red + 0.02234 * green
            + blue) ** (1 / 2.2))


def test_colours_are_told_apart_by_the_colour_blind() -> None:
    seen = {colour: _dichromat(colour) for colour in COLOURS.values()}
    for one, other in itertools.combinations(seen, 2):
        apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert apart > 0.1, (one, other)


def test_the_gallery_shows_what_the_compiler_does_today() -> None:
    """``make docs`` draws it anew."""
    gallery = ROOT / "docs/pictures"
    drawn = runpy.run_path(str(ROOT / "docs/pictures.py"))["pictures"]()
    assert {path.name for path in gallery.glob("*.svg")} == set(drawn)
    stale = [n for n, text in drawn.items() if (gallery / n).read_text("utf-8") != text + "\n"]
    assert stale == []


# ---------------------------------------------------------------------- in a browser


@functools.cache
def pictures() -> dict[str, str]:
    step, block, residual = seed_step(), attention_block(), residual_step()
    return {
        "step, source": mg.show(step.source_graph).svg(),
        "step": mg.show(step).svg(),
        "block, source": mg.show(block.source_graph).svg(),
        "block": mg.show(block).svg(),
        "residual": mg.show(residual).svg(),
    }


_GEOMETRY = """() => {
  const svg = document.querySelector("svg");
  const box = (e) => {
    const r = e.getBoundingClientRect();
    return [r.left, r.top, r.right, r.bottom];
  };
  const all = (query) => [...svg.querySelectorAll(query)].map(box);
  const fits = [...svg.querySelectorAll(".box:has(.label)")].map((g) => {
    const [l, t, r, b] = box(g.querySelector(".label"));
    const [x, y, z, w] = box(g.querySelector(".body"));
    return l >= x && r <= z && t >= y && b <= w;
  });
  return { svg: box(svg), bodies: all(".box:has(.label) .body"), types: all(".type"),
           texts: all("text"), fits, paper: getComputedStyle(svg.querySelector(".paper")).fill };
}"""


@pytest.mark.parametrize("name", ["step, source", "step", "block, source", "block", "residual"])
def test_no_two_labels_intersect_and_nothing_is_cut(page: Any, name: str) -> None:
    page.emulate_media(color_scheme="light")
    page.set_content(f'<body style="margin:0">{pictures()[name]}')
    found = page.evaluate(_GEOMETRY)
    assert all(found["fits"])
    assert len(found["fits"]) > 15
    boxes = [*found["bodies"], *found["types"]]
    boxes.sort(key=lambda box: box[1])
    for i, a in enumerate(boxes):
        for b in itertools.islice(boxes, i + 1, None):
            if b[1] >= a[3]:
                break
            apart = a[2] <= b[0] + 0.5 or b[2] <= a[0] + 0.5 or a[3] <= b[1] + 0.5
            assert apart, (name, a, b)
    left, top, right, bottom = found["svg"]
    for box in found["texts"]:
        assert left <= box[0]
        assert box[2] <= right
        assert top <= box[1]
        assert box[3] <= bottom


def test_a_picture_follows_the_theme_and_is_light_on_paper(page: Any) -> None:
    page.set_content(mg.show(attention_block()).svg())
    seen = {}
    for name, media, scheme in (
        ("light", "screen", "light"),
        ("dark", "screen", "dark"),
        ("printed", "print", "dark"),
    ):
        page.emulate_media(media=media, color_scheme=scheme)
        seen[name] = page.evaluate(_GEOMETRY)["paper"]
    page.emulate_media(media="screen", color_scheme="light")
    assert seen == {
        "light": "rgb(255, 255, 255)",
        "dark": "rgb(15, 19, 24)",
        "printed": "rgb(255, 255, 255)",
    }
