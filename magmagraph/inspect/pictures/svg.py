"""Graphs as SVG: legible on paper, in light and dark, and without a browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...ir.docstrings import documented
from ...ir.graph import Node
from ...text.writing import Writer
from .geometry import Drawing, Placed
from .palette import COLOURS, DARK, LIGHT, NAMES, SIGNS, Theme, mixed
from .scene import label_of, line_of
from .scene_frame import BOX, CHARACTER, SIGN, SMALL, TITLE, TYPE

FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
MARGIN = 20.0
_KEY = 26.0  # height of a row of the legend
_KEY_GAP = 16.0
_HEAD = 34.0  # height of the title
_NARROWEST = 320.0


@documented
def picture(
    drawings: Sequence[tuple[str, Drawing]], *, source: bool = True, title: str = ""
) -> str:
    """Return drawings as an SVG file: side by side, each under its heading, with one legend.

    drawings: (heading, drawing); a heading may be empty.
    source: Whether boxes name the user's lines (when pointed at).
    title: What stands above it.

    >>> from magmagraph.inspect.pictures.geometry import draw
    >>> from magmagraph.inspect.pictures.scene import Scene
    >>> x = mg.input("x", shape=(3,))
    >>> y = mg.exp(x)
    >>> picture([("", draw(Scene([x, y], [y], []).root))])[:4]
    '<svg'
    """
    head = _HEAD if title else 0.0
    under = _HEAD if any(heading for heading, _ in drawings) else 0.0
    widths = [max(drawing.width, len(name) * CHARACTER * 1.1) for name, drawing in drawings]
    gap = 56.0
    width = max(_NARROWEST, sum(widths) + gap * (len(drawings) - 1))
    styles = dict.fromkeys(p.item.style for _, d in drawings for p in (*d.frames, *d.boxes))
    keys, depth = _legend([key for key in COLOURS if key in styles], width)
    tallest = max(drawing.height for _, drawing in drawings)
    height = head + under + tallest + 24.0 + depth
    body = []
    if title:
        body.append(f'<text class="title" x="0" y="18">{escape(title)}</text>')
    writer = Writer()
    x = max(0.0, (width - sum(widths) - gap * (len(drawings) - 1)) / 2)
    for (name, drawing), wide in zip(drawings, widths, strict=True):
        if name:
            middle = x + wide / 2
            body.append(f'<text class="heading" x="{middle:.1f}" y="{head + 14:.1f}">'
                        f"{escape(name)}</text>")
        at = f"translate({x + (wide - drawing.width) / 2:.1f} {head + under:.1f})"
        body.append(f'<g transform="{at}">{"".join(_drawn(drawing, source, writer))}</g>')
        x += wide + gap
    body.append(f'<g class="legend" transform="translate(0 {head + under + tallest + 24:.1f})">'
                f"{keys}</g>")
    full_width, full_height = width + 2 * MARGIN, height + 2 * MARGIN
    name = escape(title or "A computation graph")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width:.0f}" '
        f'height="{full_height:.0f}" viewBox="0 0 {full_width:.0f} {full_height:.0f}" role="img" '
        f'aria-label="{name}"><title>{name}</title><style>{_style(styles)}</style>'
        f'<rect class="paper" width="100%" height="100%"/>'
        f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">{"".join(body)}</g></svg>'
    )


def _drawn(drawing: Drawing, source: bool, writer: Writer) -> Iterable[str]:
    for frame in drawing.frames:
        yield _frame(frame)
    for edge in drawing.edges:
        yield f'<path class="edge" d="{edge.path}"/>'
    tips = "".join(
        f"M{x - 3.5:.1f} {y - 6:.1f}L{x:.1f} {y:.1f}L{x + 3.5:.1f} {y - 6:.1f}Z"
        for edge in drawing.edges
        for x, y in edge.ends
    )
    yield f'<path class="tip" d="{tips}"/>'
    for box in drawing.boxes:
        yield _box(box, source, writer)


def _frame(placed: Placed) -> str:
    item = placed.item
    return (
        f'<g class="frame {item.style}"><rect x="{placed.x:.1f}" y="{placed.y:.1f}" '
        f'width="{placed.width:.1f}" height="{placed.height:.1f}" rx="9"/>'
        f'<text x="{placed.x + 10:.1f}" y="{placed.y + TITLE - 5:.1f}">'
        f"{escape(item.label)}</text></g>"
    )


def _box(placed: Placed, source: bool, writer: Writer) -> str:
    item = placed.item
    ground = f"ground {placed.ground}"
    label = SIGN + len(item.label) * CHARACTER + 12.0
    x = placed.x + (placed.width - label) / 2
    y = placed.y
    sign = SIGNS.get(item.style, "")
    round_ = {"input": 14, "output": 14, "variable": 14, "update": 14}.get(item.style, 5)
    parts = [
        f'<g class="box {item.style}"><title>{escape(_told(item.node, source, writer))}</title>',
        f'<rect class="body" x="{x:.1f}" y="{y:.1f}" width="{label:.1f}" height="{BOX:.0f}" '
        f'rx="{round_}"/>',
        f'<text class="sign" x="{x + 14:.1f}" y="{y + 18.5:.1f}">{sign}</text>',
        f'<text class="label" x="{x + SIGN:.1f}" y="{y + 18:.1f}">{escape(item.label)}</text>',
    ]
    if item.note:
        middle = placed.x + placed.width / 2
        half = len(item.note) * SMALL / 2
        parts.append(
            f'<rect class="{ground}" x="{middle - half:.1f}" y="{y + BOX + 4:.1f}" '
            f'width="{2 * half:.1f}" height="14"/>'
            f'<text class="type" x="{middle:.1f}" y="{y + BOX + TYPE - 5.5:.1f}">'
            f"{escape(item.note)}</text>"
        )
    return "".join([*parts, "</g>"])


def _told(node: Node | None, source: bool, writer: Writer) -> str:
    """Return the tooltip of a box."""
    if node is None:
        return ""
    where = line_of(node) if source else ""
    label = label_of(node, node.inputs)
    return f"{label} : {writer.types(node.type)}" + (f"\nmade at {where}" if where else "")


def _legend(keys: Sequence[str], width: float) -> tuple[str, float]:
    """Return the legend, and its height."""
    x, y = 0.0, 0.0
    parts = []
    for key in keys:
        name = NAMES.get(key, key)
        wide = SIGN + len(name) * CHARACTER + 12.0
        if x and x + wide > width:
            x, y = 0.0, y + _KEY
        if key in ("fused", "scope"):
            parts.append(
                f'<g class="frame {key}"><rect x="{x + 1:.1f}" y="{y + 2:.1f}" width="20" '
                f'height="14" rx="4"/></g>'
            )
        else:
            parts.append(
                f'<g class="box {key}"><rect class="body" x="{x + 1:.1f}" y="{y:.1f}" width="20" '
                f'height="18" rx="{9 if key in ("input", "output", "variable", "update") else 4}"/>'
                f'<text class="sign" x="{x + 11:.1f}" y="{y + 13.5:.1f}">{SIGNS[key]}</text></g>'
            )
        parts.append(f'<text class="key" x="{x + SIGN + 1:.1f}" y="{y + 13.5:.1f}">{name}</text>')
        x += wide + _KEY_GAP
    return "".join(parts), y + 20.0


def _style(styles: Iterable[str]) -> str:
    """Return the style sheet: colours of light, then those of dark in place of them."""
    shown_styles = list(dict.fromkeys([*styles, "scope"]))
    return (
        f"text{{font-family:{FONT};font-size:12px}}"
        ".title{font-size:15px;font-weight:600}"
        ".heading{font-size:13px;font-weight:600;text-anchor:middle}"
        ".sign,.type{text-anchor:middle}.sign{font-size:13px;font-weight:700}"
        ".type{font-size:10.5px}"
        ".key,.frame text{font-size:11px}"
        ".edge{fill:none;stroke-width:1.3px}"
        ".box .body{stroke-width:1.3px}.variable .body,.update .body{stroke-width:2.2px}"
        ".update .body{stroke-dasharray:5 3}.frame rect{stroke-width:1.4px}"
        ".frame.scope rect{stroke-dasharray:2 3}"
        f"{_colours(shown_styles, LIGHT)}"
        f"@media screen and (prefers-color-scheme:dark){{{_colours(shown_styles, DARK)}}}"
    )


def _colours(styles: Sequence[str], theme: Theme) -> str:
    rules = [
        f".paper{{fill:{theme.paper}}}",
        f".title,.heading,.label,.sign,.key{{fill:{theme.ink}}}",
        f".type,.frame text{{fill:{theme.muted}}}",
        f".ground{{fill:{theme.paper}}}",
        f".edge{{stroke:{theme.edge}}}.tip{{fill:{theme.edge}}}",
    ]
    for style in styles:
        colour = COLOURS[style]
        if style in ("fused", "scope"):
            share = 0.10 if style == "fused" else 0.05
            fill = mixed(colour, theme.paper, share)
            rules.append(
                f".frame.{style} rect{{fill:{fill};stroke:{mixed(colour, theme.paper, 0.8)}}}"
                f".ground.{style}{{fill:{fill}}}"
            )
            continue
        rules.append(
            f".{style} .body{{fill:{mixed(colour, theme.paper, theme.tint)};stroke:{colour}}}"
        )
    return "".join(rules)
