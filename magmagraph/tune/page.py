"""The report page: pictures, the table of trials, and what failed, in one HTML file."""

from __future__ import annotations

import warnings
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inspect.pictures.svg import FONT
from ..ir.html import table_html
from .trial import short

if TYPE_CHECKING:
    from .result import SearchResult

__all__ = ["page"]

_MOST_ROWS = 500
_PICTURES = {
    "optimization_history": "Progress",
    "parallel_coordinate": "All parameters",
    "slice": "Each parameter",
}


def page(found: SearchResult, title: str) -> str:
    """Return the page of a search; with pictures where optuna and matplotlib are installed."""
    ranked = found.ranked()
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(found.summary())}</p>"]
    if ranked:
        best = ranked[0]
        if best.goals is not None and len(best.goals) == 1:
            point = ", ".join(f"{name} = {short(value)}" for name, value in best.labels.items())
            parts.append(
                f"<p><b>Best: {escape(found.goals[0].name)} {best.goals[0]:.6g}</b> at "
                f"{escape(point)} (trial {best.number}, {best.seconds:.2f} s)</p>"
            )
        parts += _pictures(found)
    parts += ["<h2>Trials</h2>", _table(found)]
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


def _pictures(found: SearchResult) -> list[str]:
    """Return the pictures of `optuna.visualization.matplotlib` as SVG, each under a title."""
    try:
        import matplotlib.pyplot as plt  # optional, as is optuna
        from optuna.visualization import matplotlib as drawings

        from .optuna_parts import quiet
    except ImportError:
        return ['<p class="key">Pictures: pip install "magmagraph[tune]"</p>']
    study, parts = found.to_optuna(), []
    names = [goal.name for goal in found.goals]
    drawn_as: list[tuple[str, str, dict[str, Any]]] = [
        (name, title, {"target_name": names[0]}) for name, title in _PICTURES.items()
    ]
    if len(names) > 1:  # pictures of one goal are of the first, and the front where it can be seen
        for _, _, words in drawn_as:
            words["target"] = lambda trial: trial.values[0]
        if len(names) < 4:
            drawn_as.insert(0, ("pareto_front", "Pareto front", {"target_names": names}))
    for name, title, words in drawn_as:
        file = StringIO()
        settings: Any = {"backend": "agg", "svg.fonttype": "none", "svg.hashsalt": "magmagraph"}
        with quiet(), plt.rc_context(settings), plt.ioff():
            warnings.simplefilter("ignore")  # of sizes and axes of a search with few points
            drawn = getattr(drawings, f"plot_{name}")(study, **words)
            figure = drawn.flat[0].figure if isinstance(drawn, np.ndarray) else drawn.figure
            figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)
        picture = file.getvalue()
        parts.append(f'<h2>{title}</h2><div class="wide">{picture[picture.index("<svg") :]}</div>')
    return parts


def _table(found: SearchResult) -> str:
    """Return the trials, the best first, then those that did not come to their end."""
    ranked = found.ranked()
    done = {trial.number for trial in ranked}
    trials = [*ranked, *(trial for trial in found.trials if trial.number not in done)]
    more = len(trials) - _MOST_ROWS
    note = f'<p class="key">and {more} more: see to_csv</p>' if more > 0 else ""
    return table_html(found.rows(trials[:_MOST_ROWS]), left=()) + note


def _style() -> str:
    return (
        "body{margin:0;font:15px/1.5 system-ui,sans-serif;background:#fff;color:#1a1a1a}"
        "main{max-width:900px;margin:0 auto;padding:20px}"
        "h1{font-size:24px;margin:0 0 8px}h2{font-size:17px;margin:28px 0 6px}"
        "p{margin:4px 0;white-space:pre-line}svg{display:block}"
        ".key{font-size:13px}.wide{overflow-x:auto}"
        "table{font:13px system-ui;font-variant-numeric:tabular-nums;white-space:nowrap}"
        f"pre,summary{{font-family:{FONT};font-size:12px}}pre{{overflow-x:auto}}"
    )
