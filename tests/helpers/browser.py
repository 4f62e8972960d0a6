"""A headless Chromium or Firefox for tests of pages, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

SYSTEM_FIREFOX = ("firefox", "firefox-esr")
SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


_users: list[object] = []
_running = ExitStack()
_browser: Any = None
_playwright: Any = None


@contextmanager
def chromium() -> Iterator[Any]:
    """Give a browser: Playwright's own, or the system's; skip where there is neither.

    A process has one, until its last user is through: Playwright's loop runs on in the thread that
    started it, where a second one cannot be started while a fixture of a session holds the first.
    """
    global _browser
    if not _users:
        _browser = _started()
    user = object()
    _users.append(user)
    try:
        yield _browser
    finally:
        _users.remove(user)
        if not _users:
            _running.close()


@contextmanager
def firefox() -> Iterator[Any]:
    """Give a Firefox: Playwright's own, or the system's; skip where there is neither.

    It shares Playwright with `chromium`. The system's is driven by WebDriver BiDi, of which
    Playwright and Firefox have to know the same commands (versions 1.58 and 153 do).
    """
    with chromium():
        browser = _launched_firefox()
        try:
            yield browser
        finally:
            browser.close()


def _launched_firefox() -> Any:
    playwright = pytest.importorskip("playwright.sync_api")
    reasons = []
    for path in [None, *filter(None, map(shutil.which, SYSTEM_FIREFOX))]:
        browser = None
        try:
            options = {} if path is None else {"channel": "moz-firefox", "executable_path": path}
            browser = _playwright.firefox.launch(**options)
            browser.new_context(viewport={"width": 400, "height": 300}, offline=True).close()
        except playwright.Error as refused:
            reasons.append(str(refused).strip().splitlines()[0])
            if browser is not None:
                browser.close()
        else:
            return browser
    pytest.skip(f"no Firefox (python -m playwright install firefox): {'; '.join(reasons)}")


def _started() -> Any:
    global _playwright
    playwright = pytest.importorskip(
        "playwright.sync_api", reason='no Playwright: pip install -e ".[dev]"'
    )
    with ExitStack() as stack:
        started = stack.enter_context(playwright.sync_playwright())
        _playwright = started
        browser = _launched(started.chromium, playwright.Error)
        stack.callback(browser.close)
        _running.push(stack.pop_all())
    return browser


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
