"""Pages of the viewer: bytes of the file, seconds to save it, milliseconds until it is ready.

Kernels are not compiled: a page has their source at most. The time until a page is ready is that of
its own clock, from the start of its navigation to its first drawing, the best of several loads.
Needs Playwright and a Chromium.

The ResNet-50 step takes images of 32x32: its graph has as many nodes as that of larger ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MAGMAGRAPH_COMPILER", "off")
os.environ.setdefault("MAGMAGRAPH_TUNING", "0")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

import opening
from common import write
from networks import training_step

import magmagraph as mg

LOADS = 10


def _drawn(name: str, *arguments: int) -> Any:
    """Return a graph of the tests, which need pytest."""
    import pictured

    return getattr(pictured, name)(*arguments)


PAGES: dict[str, Callable[[], Any]] = {
    "seed step": lambda: training_step(2)[0],
    "attention block": lambda: _drawn("attention_block"),
    "ResNet-50 step": lambda: _drawn("resnet50_step"),
    "5,000 nodes": lambda: _drawn("large_graph", 4400),
    "50,000 nodes": lambda: _drawn("large_graph", 44_000),
}


def measure(name: str, browser: Any, folder: Path) -> dict[str, Any]:
    """Return the row of one page."""
    shown = PAGES[name]()
    graph = getattr(shown, "source_graph", shown)
    if hasattr(shown, "compile"):
        shown.compile()
    path = folder / "page.html"
    began, used = time.perf_counter(), time.process_time()
    mg.show(shown).save(path)
    saving, used = time.perf_counter() - began, time.process_time() - used
    ready = []
    for _ in range(LOADS):
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.goto(path.as_uri())
        page.wait_for_function("window.magmagraph?.ready", timeout=60_000)
        ready.append(page.evaluate("magmagraph.ready"))
        snapshots = page.evaluate("magmagraph.model.data.graphs.length")
        page.close()
    return {
        "page": name,
        "nodes": len(graph.nodes),
        "snapshots": snapshots,
        "bytes": path.stat().st_size,
        "save_seconds": round(saving, 3),
        "save_processor_seconds": round(used, 3),
        "ready_milliseconds": round(min(ready), 1),
        "ready_worst_milliseconds": round(max(ready), 1),
    }


def main() -> None:
    opening.words(__doc__, *PAGES, needs=("playwright",))
    from browser import chromium

    warnings.simplefilter("ignore", mg.FallbackWarning)
    chosen = sys.argv[1:] or list(PAGES)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        load = os.getloadavg()[0]
        rows = []
        for name in chosen:
            rows.append(measure(name, browser, Path(folder)))
            print(rows[-1], flush=True)
        version = browser.version
    if chosen == list(PAGES):
        write("viewer", {"chromium": version, "load_at_start": round(load, 1), "rows": rows})


if __name__ == "__main__":
    main()
