"""The page of a workflow in a browser: it edits the file, and shows what runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from viewed import Viewer
from workflows import program, table

import magmagraph as mg
from magmagraph.workflow.file import parse
from magmagraph.workflow.page import Page, Progress, served

STUDY = """\
# A study of three modules.
[modules.data]
function = "flows:nothing"  # puts the points

[modules.fit]
function = "flows:nothing"
after = ["data"]
copies = 3

[modules.choose]
function = "flows:nothing"
after = ["fit"]
"""
NAMELESS = """
  const named = (one) => one.getAttribute("aria-label") || one.textContent.trim()
    || one.labels?.length || one.getAttribute("aria-labelledby");
  return [...document.querySelectorAll("button, select, input, textarea, form, [role], section")]
    .filter((one) => !one.closest("[hidden]") && one.id !== "status" && !named(one))
    .map((one) => one.outerHTML.slice(0, 80));
"""


class Opened(Viewer):
    """A page of a workflow that is open."""

    def box(self, name: str) -> Any:
        return self.page.locator(f"#boxes button[data-name={name}]")

    def said(self) -> str:
        return str(self.page.evaluate("document.getElementById('said').textContent"))

    def text(self) -> str:
        return str(self.page.input_value("#toml"))

    def apply(self) -> None:
        """Press a form's button, and wait for the answer."""
        self.page.locator("#form button.main").click()
        self.settle()

    def settle(self) -> None:
        """Wait until all that was asked of the server is answered."""
        self.page.evaluate("window.magmagraph.turn")

    def drag(self, start: str, end: str) -> None:
        mouse = self.page.mouse
        handle = self.page.locator(f".handle[data-from={start}]").bounding_box()
        target = self.box(end).bounding_box()
        mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
        mouse.down()
        mouse.move(target["x"] + 30, target["y"] + 20, steps=3)
        mouse.up()
        self.settle()


class Address:
    """What `Viewer` opens: an address instead of a file."""

    def __init__(self, address: str) -> None:
        self.address = address

    def as_uri(self) -> str:
        return self.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open the page of a text or of a workflow that runs; nothing may complain."""
    pages: list[tuple[Opened, str]] = []
    with ExitStack() as stack:

        def start(shown: str | Page = STUDY, width: int = 1400, scheme: str = "light") -> Opened:
            if isinstance(shown, str):
                (tmp_path / "flow.toml").write_text(shown)
                shown = Page(tmp_path / "flow.toml")
            address = stack.enter_context(served(shown))
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            stack.callback(context.close)
            page = Opened(context.new_page(), Address(address))  # type: ignore[arg-type]
            pages.append((page, address))
            return page

        yield start
        for page, address in pages:
            assert page.complaints == []
            assert [url for url in page.requests if not url.startswith((address, "data:"))] == []


# ------------------------------------------------------------------- editing


def test_a_module_and_its_dependencies_are_added_and_saved(opened, tmp_path):
    page = opened()
    page.page.click("#add")
    for name, value in (("name", "plot"), ("command", '["{python}", "-V"]'), ("timeout", "9.5")):
        page.page.fill(f"#form input[name={name}]", value)
    page.page.check("#form input[value=fit]")
    page.apply()
    page.drag("choose", "plot")
    page.page.click("#tab-workflow")
    page.page.select_option("#workflow select", "continue")
    page.page.locator("#workflow button.main").first.click()
    page.settle()
    assert page.said() == ""
    assert page.page.title().startswith("• flow.toml")
    added = '\n[modules.plot]\ncommand = ["{python}", "-V"]\nafter = ["fit", "choose"]\n'
    added += 'timeout = 9.5\n\n[workflow]\non_failure = "continue"\n'
    assert page.text() == STUDY + added
    assert (tmp_path / "flow.toml").read_text() == STUDY
    page.page.keyboard.press("Control+s")
    page.settle()
    assert (tmp_path / "flow.toml").read_text() == STUDY + added
    assert mg.workflow.read(tmp_path / "flow.toml").modules["plot"].after == ("fit", "choose")
    assert page.page.title().startswith("flow.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["flow.toml"]


def test_a_cycle_is_refused_with_the_text_of_the_loader(opened, tmp_path):
    page = opened()
    page.drag("choose", "data")
    wrong = STUDY.replace("# puts the points\n", '# puts the points\nafter = ["choose"]\n')
    with pytest.raises(mg.errors.ConfigError) as raised:
        parse(wrong, tmp_path / "flow.toml")
    assert page.said() == str(raised.value)
    assert "after: a cycle, " in page.said()
    assert page.text() == STUDY
    assert page.page.locator(".edge").count() == 2
    page.box("data").click()  # the same by the form, whose fields keep what is typed
    page.page.check("#form input[value=choose]")
    page.page.fill("#form input[name=copies]", "two")
    page.apply()
    assert "copies = 'two'" in page.said()
    page.page.fill("#form input[name=copies]", "2")
    page.apply()
    assert "after: a cycle, " in page.said()
    page.page.uncheck("#form input[value=choose]")
    page.apply()
    assert page.said() == ""
    assert 'puts the points\ncopies = 2\n' in page.text()


def test_dependencies_and_modules_are_removed_by_the_keyboard_and_come_back(opened):
    page = opened()
    assert page.page.locator("#boxes button").count() == 3
    page.page.locator("[data-edge='data fit']").focus()
    page.page.keyboard.press("Enter")
    assert "fit starts when all copies of data are done." in page.page.inner_text("#form")
    page.page.click("text=Remove dependency")
    page.settle()
    assert page.text() == STUDY.replace('after = ["data"]\n', "")
    page.box("fit").focus()
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Delete")
    page.settle()
    assert "[modules.fit]" not in page.text()
    assert "after" not in page.text()
    for _ in range(2):
        page.page.click("#undo")
        page.settle()
    assert page.text() == STUDY
    assert page.page.is_disabled("#save")
    page.box("fit").click()
    page.page.fill("#form input[name=name]", "train")
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.text() == STUDY.replace("[modules.fit]", "[modules.train]").replace(
        '["fit"]', '["train"]'
    )
    assert page.box("train").get_attribute("aria-pressed") == "true"


def test_the_text_is_edited_and_what_is_wrong_is_not_saved(opened, tmp_path):
    page = opened()
    page.page.click("#tab-text")
    late = "[modules.late]\nfunction = 'flows:nothing'\nafter = "
    page.page.fill("#toml", f"{STUDY}{late}['absent']\n")
    page.until("!document.getElementById('said').hidden")
    assert "after names 'absent', which is no module" in page.said()
    assert page.page.is_disabled("#save")
    assert page.box("late").is_visible()  # the picture shows it all the same
    page.page.fill("#toml", f"{STUDY}{late}['fit']\n")
    page.until("document.getElementById('said').hidden")
    page.page.click("#save")
    page.settle()
    assert mg.workflow.read(tmp_path / "flow.toml").modules["late"].after == ("fit",)


def test_a_file_that_changed_meanwhile_is_not_overwritten(opened, tmp_path):
    page = opened()
    page.drag("data", "choose")
    (tmp_path / "flow.toml").write_text(STUDY + "# by another editor\n")
    page.page.click("#save")
    page.settle()
    assert page.said().startswith("flow.toml has changed since it was read, and was not overw")
    assert (tmp_path / "flow.toml").read_text() == STUDY + "# by another editor\n"
    page.page.click("#again")
    page.settle()
    assert page.text() == STUDY + "# by another editor\n"
    page.page.click("#undo")  # what was typed is not lost
    page.settle()
    assert '["fit", "data"]' in page.text()


@pytest.mark.slow
def test_functions_are_looked_for_in_a_process_of_their_own(opened, tmp_path):
    (tmp_path / "own_study.py").write_text("def first(context): ...\n")
    page = opened('[modules.one]\nfunction = "own_study:second"\n')
    page.page.click("#find")
    page.settle()
    assert page.said().startswith(
        'flow.toml: [modules.one] function = "own_study:second" cannot be imported'
    )
    assert "expected: a function of own_study: first" in page.said()
    (tmp_path / "own_study.py").write_text("def second(context): ...\n")
    page.page.click("#find")
    page.settle()
    assert page.said() == ""
    assert page.page.inner_text("#saved") == "in order; it needs 1 worker at least"
    assert "own_study" not in sys.modules


# ------------------------------------------------------------------- running


def watched(tmp_path: Path, text: str) -> tuple[Page, threading.Thread]:
    """Return the page of a workflow, and the thread that will run it."""
    path = tmp_path / "live.toml"
    path.write_text(text)
    progress = Progress(parse(text, path))

    def run() -> None:
        with ThreadPoolExecutor(3) as pool:
            result = mg.workflow.run(path, executor=pool, watch=progress)
        progress.end(result.ok, result.summary())

    return Page(path, progress), threading.Thread(target=run)


def test_a_run_is_shown_while_it_goes_on_and_what_failed(opened, tmp_path):
    go, on = tmp_path / "go", tmp_path / "on"
    text = '[workflow]\non_failure = "continue"\n'
    text += table("data", "until_file", arguments={"file": str(go)})
    text += table("fit", "until_file", after=["data"], copies=2, iterations=2,
                  arguments={"file": str(on)})  # fmt: skip
    text += program("broken", "print('loading'); raise SystemExit('no column')", after=["data"])
    text += table("plot", "nothing", after=["broken"])
    shown, run = watched(tmp_path, text)
    page = opened(shown)
    run.start()
    state = "window.magmagraph.now.modules?.{}?.state === '{}'"
    page.until(state.format("data", "running"))
    page.until(state.format("plot", "waiting"))
    assert "▶" in page.box("data").inner_text()
    go.touch()
    page.until(state.format("broken", "failed"))
    page.until(state.format("plot", "skipped"))
    page.until(state.format("fit", "running"))
    counts = page.box("fit").locator(".counts").inner_text()
    assert counts.startswith("running · 0/2 copies · 0/4 iterations")
    assert "1" in page.page.inner_text("#progress section[aria-label=Workers]")
    page.box("broken").click()
    page.until("document.getElementById('live').textContent.includes('loading')")
    shown_text = page.page.inner_text("#live")
    assert "✕ failed" in shown_text
    assert "module broken, on rank" in shown_text
    assert "no column" in shown_text
    assert "broken-0-0.txt" in shown_text
    on.touch()
    page.until("window.magmagraph.now.ok === false")
    run.join()
    label = page.box("fit").get_attribute("aria-label")
    ended = "done · 2/2 copies · 4/4 iterations · "
    assert label.startswith(f"fit, flows:until_file, after data, {ended}")
    assert "done 2" in page.page.inner_text("#legend")
    assert page.page.locator("#save").is_hidden()
    assert page.page.locator("#tab-workflow").is_hidden()


@pytest.mark.slow
def test_the_editor_runs_the_saved_file_and_stops_it(opened, tmp_path):
    text = program("quick", "print('here')")
    text += program("slow", "import time; print('begun', flush=True); time.sleep(60)",
                    after=["quick"])  # fmt: skip
    page = opened(text)
    page.page.click("#tab-run")
    page.page.select_option("#start select", "serial")
    page.page.click("#go")
    page.until("window.magmagraph.now.modules?.slow?.state === 'running'")
    assert page.page.is_disabled("#go")
    page.page.click("#stop")
    page.until("window.magmagraph.now.ok === false")
    assert page.run("return app.now.ended") == "stopped"
    assert page.run("return app.now.modules.quick.state") == "done"
    page.until("!document.getElementById('go').disabled")


# ------------------------------------------------------------------- access


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_the_page_fits_and_all_controls_have_names(opened, width, scheme):
    page = opened(width=width, scheme=scheme)
    page.box("fit").click()
    for tab in ("module", "workflow", "run", "text"):
        page.page.click(f"#tab-{tab}")
        assert page.run("return document.documentElement.scrollWidth") == width
        assert page.run(NAMELESS) == []
    outside = page.run(
        "return [...document.querySelectorAll('button, input')].filter((one) => {"
        " const at = one.getBoundingClientRect(); return !one.closest('#stage') && !one.hidden"
        " && (at.left < 0 || at.right > innerWidth); }).map((one) => one.id)"
    )
    assert outside == []
    assert page.run("return document.documentElement.dataset.theme") == scheme


def test_tabs_go_by_arrows_and_letters_add_and_leave(opened):
    page = opened()
    page.page.focus("#tab-module")
    page.page.keyboard.press("ArrowRight")
    assert page.run("return document.activeElement.id") == "tab-workflow"
    page.page.focus("#stage")
    page.page.keyboard.press("n")
    assert page.run("return document.activeElement.name") == "name"
    page.page.keyboard.type("next")  # letters in a field are text
    assert page.page.input_value("#form input[name=name]") == "next"
    label = page.box("fit").get_attribute("aria-label")
    assert label == "fit, flows:nothing, after data, 3 copies"
