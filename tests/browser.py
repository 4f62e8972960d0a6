"""A headless Chromium for tests of pages, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """Give a browser: Playwright's own, or the system's; skip where there is neither."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason='no Playwright: pip install -e ".[dev]"'
    )
    with playwright.sync_playwright() as started:
        browser = _launched(started.chromium, playwright.Error)
        try:
            yield browser
        finally:
            browser.close()


def _launched(kind: Any, error: type[Exception]) -> Any:
    # The sandbox of Chromium does not work for root, as which containers run.
    arguments = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    paths = [None, *filter(None, map(shutil.which, SYSTEM))]
    reasons = []
    for path in paths:
        try:
            return kind.launch(executable_path=path, args=arguments)
        except error as refused:
            reasons.append(str(refused).strip().splitlines()[0])
    pytest.skip(f"no Chromium (python -m playwright install chromium): {reasons[0]}")
