"""What tests of the viewer share: pages that are open in a browser, and the data in them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from magmagraph.inspect.viewer import unpacked

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "magmagraph/inspect/viewer"
LIMIT = 2_000_000  # bytes of a page of 5,000 nodes
PATIENCE = 20_000  # milliseconds that a busy machine may take; docs/gallery.md has the number


def data_of(html: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="data">(.*?)</script>', html, re.DOTALL)
    return unpacked(packed)


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
        self.until("window.magmagraph?.ready")

    def until(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true.

        It is asked for from here: what the browser would ask by itself is evaluated in the page,
        whose policy allows no code but its own.
        """
        end = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"not true after {PATIENCE} ms: {condition}"
            self.page.wait_for_timeout(20)

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
