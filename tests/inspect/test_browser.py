"""The browser that tests of pages share."""

from __future__ import annotations

from browser import chromium


def test_a_browser_is_there_also_while_another_fixture_holds_one() -> None:
    with chromium() as first, chromium() as second:
        page = second.new_page()
        page.set_content("<p>seen</p>")
        assert page.inner_text("p") == "seen"
        assert first is second
        page.close()


def test_whoever_ends_first_leaves_it_to_the_others() -> None:
    outer, inner = chromium(), chromium()
    browser = outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    page = browser.new_page()
    page.set_content("<p>still</p>")
    assert page.inner_text("p") == "still"
    inner.__exit__(None, None, None)
