"""Build the documentation site in build/site, and check its links, anchors and names.

``make site`` runs it; ``python docs/site/build.py`` needs the extra ``docs``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import check_site
import stage

BUILD = stage.ROOT / "build"


def main() -> int:
    """Build and check, and return the exit status."""
    begin = time.monotonic()
    try:
        from sphinx.cmd.build import main as sphinx
    except ModuleNotFoundError:
        print('No Sphinx: pip install -e ".[docs]"', file=sys.stderr)
        return 77
    os.environ.setdefault("MAGMAGRAPH_TUNING", "0")
    sources, site = BUILD / "site-source", BUILD / "site"
    stage.stage(sources)
    jobs = str(min(os.cpu_count() or 1, 8))
    arguments = ["-q", "-W", "--keep-going", "-j", jobs, "-c", str(HERE), "-d",
                 str(BUILD / "site-doctrees"), str(sources), str(site), *sys.argv[1:]]  # fmt: skip
    status = sphinx(arguments)
    if status:
        return status
    problems = check_site.problems(site)
    for problem in problems[:50]:
        print(problem, file=sys.stderr)
    pages = sum(1 for _ in site.rglob("*.html"))
    seconds = time.monotonic() - begin
    print(f"{pages} pages in {site}, {len(problems)} problems, {seconds:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
