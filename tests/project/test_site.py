"""The documentation site: public names are described and have pages, links lead somewhere."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
if not SITE.is_dir():
    pytest.skip("an installed copy has no docs", allow_module_level=True)
sys.path.insert(0, str(SITE))

import check_site  # noqa: E402
import stage  # noqa: E402
from public_names import (  # noqa: E402
    docstring,
    documented,
    namespaces,
    public_names,
    source_position,
)

# Functions that read files or a network: an example would need them.
NEED_FILES = {
    "mg.load", "mg.data.cifar10", "mg.data.mnist", "mg.data.read_hdf5", "mg.data.read_images",
}  # fmt: skip


def missing_sections(function: object) -> set[str]:
    """Return the sections that the docstring of a function should have and has not."""
    sections = set(re.findall(r"^(\w[\w ]+)\n-{3,}$", docstring(function), re.MULTILINE))
    assert callable(function)
    wanted = {"Examples"}
    if inspect.signature(function).parameters:
        wanted.add("Parameters")
    return wanted - sections


# ------------------------------------------------------------------------------ public names


def test_every_public_name_is_described() -> None:
    wrong = [name.full_name for name in public_names() if len(name.summary) < 10]
    assert wrong == []


def test_functions_describe_parameters_and_show_an_example() -> None:
    wrong = {}
    for name in public_names():
        function = documented(name.value) and not inspect.isclass(name.value)
        # The predicates of dtypes say all in their one sentence.
        if not function or name.same_as is not None or name.namespace == "mg.dtypes":
            continue
        missing = missing_sections(name.value)
        if name.full_name in NEED_FILES:
            missing.discard("Examples")
        if missing:
            wrong[name.full_name] = sorted(missing)
    assert wrong == {}


def test_a_function_without_sections_is_seen() -> None:
    def function(x: int) -> int:
        """Return a number."""
        return x

    assert missing_sections(function) == {"Parameters", "Examples"}


def test_every_namespace_and_name_has_a_page_that_lists_it() -> None:
    pages = stage.reference_pages()
    for namespace in namespaces():
        assert f"({namespace}.md)" in pages["index.md"]
    for name in public_names():
        link = f"[`{name.full_name}`]({stage.page_file(name)})"
        assert stage.page_file(name) in pages
        assert link in pages[f"{name.namespace}.md"]
        assert link in pages["names.md"]
    # On file systems without case, two pages must not be one.
    assert len({page.lower() for page in pages}) == len(pages)


def test_functions_lead_to_the_line_of_their_definition() -> None:
    positions = {name.full_name: source_position(name.value, name.name) for name in public_names()}
    # A function, one that a family makes from an entry, a class, a method's class.
    for full_name in ("mg.grad", "mg.relu", "mg.sum", "mg.nn.Dense", "mg.linalg.solve"):
        position = positions[full_name]
        assert position is not None
        path, line = position
        word = full_name.rpartition(".")[2]
        assert re.search(rf"\b{word}\b", path.read_text(encoding="utf-8").splitlines()[line - 1])
    values = {name.full_name: name.value for name in public_names()}
    without = [name for name, position in positions.items() if position is None]
    assert [name for name in without if documented(values[name])] == []


# ------------------------------------------------------------------------------ pages


def test_the_navigation_has_every_page() -> None:
    listed = [page for pages in stage.NAVIGATION.values() for page in pages]
    assert len(listed) == len(set(listed))
    own = {page.removesuffix(".md") for page in stage.staged_pages().values()}
    own = {page for page in own if not page.startswith(("design/", "examples/"))} - {"index"}
    assert set(listed) == own | {"design/index", "reference/index"}


def test_links_to_files_lead_to_their_pages() -> None:
    pages = stage.staged_pages()
    text = (
        "[a](guide.md#run) [b](../README.md) [c](../examples/softmax.py) [d](https://x.org) "
        "[e](../magmagraph/config.py) ![f](../benchmarks/results/mnist_layers.svg)\n"
        "```python\nx[0](guide.md)\n```\n`[g](../README.md)`\n"
    )
    right = (
        "[a](guide.md#run) [b](readme.md) [c](examples/softmax.md) [d](https://x.org) "
        "`magmagraph/config.py` ![f](pictures/mnist_layers.svg)\n"
        "```python\nx[0](guide.md)\n```\n`[g](../README.md)`\n"
    )
    assert stage.relinked(stage.DOCS / "errors.md", text, "errors.md", pages) == right
    note = stage.DOCS / "design" / "001-x.md"
    assert stage.relinked(note, "[a](../guide.md)", "design/001-x.md", pages) == "[a](../guide.md)"


def test_a_tutorial_without_its_library_says_so() -> None:
    page = "---\nrequires: {}\n---\n\n# Title\n\n```{{code-cell}} python\nprint(1)\n```\n"
    assert stage.runnable(page.format("numpy")) == page.format("numpy").replace("{{", "{")
    text = stage.runnable(page.format("numpy, no_such_library"))
    assert "where no_such_library was not installed" in text
    assert "code-cell" not in text


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for library in stage.requirements(text):
        pytest.importorskip(library)
    cells = re.findall(r"^```\{code-cell\} python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(cells) > 3
    code = "\n".join(cell for cell in cells if ":tags: [raises-exception]" not in cell)
    script = tmp_path / "tutorial.py"
    script.write_text(code, encoding="utf-8")
    # A process of its own: one of them adds a kernel family to the package.
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=300,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path])),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------ the built site


def test_the_check_sees_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_site, "public_names", lambda: public_names()[:1])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.html").write_text('<p id="here">text</p>')
    (tmp_path / "a.html").write_text(
        '<a href="folder/b.html#here">right</a><a href="folder/b.html#there">x</a>'
        '<a href="c.html">y</a><a href="https://x.org">far</a><img src="https://x.org/x.png">'
        '<script src="data:text/javascript,1"></script><a href="#top">z</a>'
    )
    assert sorted(check_site.problems(tmp_path)) == [
        "a.html: #top: no such anchor",
        "a.html: c.html: no such file",
        "a.html: folder/b.html#there: no such anchor",
        "a.html: https://x.org/x.png: loaded from a network",
        "mg.ArgumentError has no page",
    ]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_or_a_broken_link() -> None:
    for module in ("sphinx", "myst_nb", "numpydoc", "furo"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f'no {module}: pip install -e ".[docs]"')
    done = subprocess.run(
        [sys.executable, str(SITE / "build.py")], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert ", 0 problems, " in done.stdout
