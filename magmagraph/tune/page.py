"""The report page: pictures, the table of trials, and what failed, in one HTML file."""

from __future__ import annotations

from html import escape

from ..inspect.pictures.palette import COLOURS, DARK, LIGHT, Theme, mixed
from ..inspect.pictures.svg import FONT
from . import charts
from .trial import short

__all__ = ["page"]

_ORANGE, _RED = COLOURS["contraction"], COLOURS["variable"]
_MOST_ROWS = 500


def page(found: charts.Found, title: str) -> str:
    """Return the page of a search."""
    ranked = found.ranked()
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(found.summary())}</p>"]
    if ranked:
        best = ranked[0]
        point = ", ".join(f"{name} = {short(value)}" for name, value in best.labels.items())
        parts.append(
            f"<p><b>Best: {escape(found.goal.name)} {best.goal:.6g}</b> at {escape(point)} "
            f"(trial {best.number}, {best.seconds:.2f} s)</p>"
        )
        parts += [
            "<h2>Progress</h2>",
            _wide(charts.history(found)),
            '<p class="key">Line: the best so far. Filled: done. Ring: stopped early. Cross: '
            "failed.</p>",
            "<h2>All parameters</h2>",
            _wide(charts.parallel(found)),
            '<p class="key">A line for each trial that was done; the darker, the better, and the '
            "best one in orange.</p>",
            "<h2>Each parameter</h2>",
            f'<div class="row">{"".join(charts.scatter(found, name) for name in found.space)}'
            "</div>",
        ]
    parts += ["<h2>Time</h2>", _wide(charts.times(found)), "<h2>Trials</h2>", _table(found)]
    failed = [trial for trial in found.trials if trial.error]
    if failed:
        parts.append("<h2>Failures</h2>")
        parts += [
            f"<details><summary>trial {trial.number}: "
            f"{escape(trial.cause)}</summary>"
            f"<pre>{escape(trial.error)}</pre></details>"
            for trial in failed[:_MOST_ROWS]
        ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _wide(picture: str) -> str:
    """Return a picture that keeps a size at which it can be read; a narrow screen scrolls it."""
    return f'<div class="wide">{picture}</div>' if picture else ""


def _table(found: charts.Found) -> str:
    """Return the trials, the best first, then those that did not come to their end."""
    ranked = found.ranked()
    done = {trial.number for trial in ranked}
    trials = [*ranked, *(trial for trial in found.trials if trial.number not in done)]
    head, *rows = found.rows(trials[:_MOST_ROWS])
    more = len(trials) - len(rows)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    note = f'<p class="key">and {more} more: see to_csv</p>' if more else ""
    return (
        f'<div class="wide"><table><thead><tr>{"".join(f"<th>{escape(h)}</th>" for h in head)}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _style() -> str:
    return (
        f"body{{margin:0;font:15px/1.5 system-ui,sans-serif}}"
        "main{max-width:900px;margin:0 auto;padding:20px}"
        "h1{font-size:24px;margin:0 0 8px}h2{font-size:17px;margin:28px 0 6px}"
        "p{margin:4px 0;white-space:pre-line}svg{max-width:100%;height:auto;display:block}"
        ".key{font-size:13px}.row{display:flex;flex-wrap:wrap;gap:8px}.row svg{max-width:430px}"
        ".wide{overflow-x:auto}.wide svg{min-width:720px}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "th,td{text-align:right;padding:3px 12px 3px 0;white-space:nowrap;font-size:13px}"
        f"pre,summary{{font-family:{FONT};font-size:12px}}pre{{overflow-x:auto}}"
        f"svg text{{font-family:{FONT};font-size:11px}}.name{{font-size:12px}}"
        ".axis,.grid,.best,.line,.failed{fill:none}.best{stroke-width:2px}"
        ".line{stroke-width:1.2px}.first{stroke-width:2.6px}.failed{stroke-width:1.8px}"
        ".halo{paint-order:stroke;stroke-width:3px}"
        f"{_colours(LIGHT, COLOURS['input'])}"
        f"@media(prefers-color-scheme:dark){{{_colours(DARK, COLOURS['elementwise'])}}}"
    )


def _colours(theme: Theme, blue: str) -> str:
    paper = theme.paper
    return (
        f"body{{background:{paper};color:{theme.ink}}}"
        f".key,svg text{{color:{theme.muted};fill:{theme.muted}}}.name{{fill:{theme.ink}}}"
        f".halo{{stroke:{paper}}}"
        f".axis{{stroke:{theme.edge}}}.grid{{stroke:{mixed(theme.edge, paper, 0.25)}}}"
        f"th{{border-bottom:1px solid {theme.edge}}}"
        f"td{{border-bottom:1px solid {mixed(theme.edge, paper, 0.25)}}}"
        f".dot.done{{fill:{blue};stroke:{paper}}}"
        f".dot.stopped{{fill:none;stroke:{blue};stroke-width:1.5px}}"
        f".best{{stroke:{_ORANGE}}}.failed{{stroke:{_RED}}}"
        f".bar.done{{fill:{blue}}}.bar.stopped{{fill:{mixed(blue, paper, 0.45)}}}"
        f".bar.failed{{fill:{_RED}}}"
        f"{charts.shades(blue, paper)}.line.first{{stroke:{_ORANGE}}}"
    )
