"""Pages: their blocks run, what they show is what is printed, tables are those of the code."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import magmagraph as mg

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", DOCS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _loaded()
WRITTEN = build.written()


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------- the pages


@pytest.mark.parametrize("page", WRITTEN, ids=relative)
def test_blocks_run_and_print_what_the_page_shows(page: Path) -> None:
    made = build.with_output(page)
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("the blocks ran; reports shown name compiled kernels, and there is no compiler")
    assert made == page.read_text(encoding="utf-8"), "run `make docs`"


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("ops.md", build.operations),
        ("passes.md", build.pipeline),
        ("onnx.md", build.onnx_forms),
        ("coverage.md", build.library_coverage.page),
        ("../magmagraph/__init__.pyi", build.public_types),
    ],
)
def test_tables_are_those_of_the_code(name: str, make: object) -> None:
    assert callable(make)
    assert make() == (DOCS / name).read_text(encoding="utf-8"), "run `make docs`"


def test_the_pages_that_teach_have_blocks() -> None:
    assert {"README.md", "docs/guide.md", "docs/walkthrough.md"} <= set(map(relative, WRITTEN))


def test_the_walk_shows_all_that_it_prints() -> None:
    text = (DOCS / "walkthrough.md").read_text(encoding="utf-8")
    blocks = [(match[1], match[2]) for match in FENCE.finditer(text)]
    prints = [i for i, (kind, code) in enumerate(blocks) if kind == "python" and "print(" in code]
    assert len(prints) > 15
    assert [blocks[i][1] for i in prints if blocks[i + 1][0] != "text"] == []
    shown = [i for i, (kind, _) in enumerate(blocks) if kind == "text"]
    assert [blocks[i][1] for i in shown if i - 1 not in prints] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_names_that_pages_give_are_there(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    names = set(re.findall(r"\bmg\.((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?![\w*])", text))
    assert sorted(name for name in names if not _is_there(name)) == []


def _is_there(name: str) -> bool:
    found: object = mg
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


# Where a path in a page may begin, besides the page's own folder.
ROOTS = [ROOT, ROOT / "magmagraph", DOCS, ROOT / "tests", ROOT / "examples"]
# A file of the package: a path with a folder, or the name of a source file.
PATH = re.compile(r"(?:[\w*.-]+/)+[\w*.-]*|[\w*]+\.(?:py|cu?|h)")
# Of readers and data sets, and the folder of libraries that an installation builds.
READERS_FILES = {
    "my.py", "train.py", "net.py", "node.py", "program.py", "mnist/*.gz", "magmagraph.libs",
}  # fmt: skip


def paths_that_are_not_there(page: Path) -> list[str]:
    """Return the paths and modules in backticks that lead to no file of the repository."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    wrong = []
    for code in re.findall(r"`([^`\n]+)`", text):
        if code in READERS_FILES or code.startswith("build/"):
            continue
        if re.fullmatch(r"magmagraph(?:\.\w+)+", code):
            parts = code.split(".")
            places = [ROOT.joinpath(*parts[:i]) for i in (len(parts), len(parts) - 1) if i > 1]
            there = any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
            there = there or hasattr(mg, parts[1])
        elif PATH.fullmatch(code):
            roots = [page.parent, *ROOTS]
            there = any(any(root.glob(code.rstrip("/"))) for root in roots)
            there = there or ("/" not in code and any((ROOT / "magmagraph").rglob(code)))
            there = there or ("/" in code and any((ROOT / "magmagraph").rglob(code.rstrip("/"))))
        else:
            continue
        if not there:
            wrong.append(code)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_files_and_modules_that_pages_name_are_there(page: Path) -> None:
    assert paths_that_are_not_there(page) == []


def test_files_that_have_moved_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`config.py` `telling.py` `runtime/numpy` `runtime/cpu/` `magmagraph.nn.Dense` "
        "`magmagraph.no_such.thing` `benchmarks/cpu_*.py` `x/y.z` `a / b` `np.exp`\n",
        encoding="utf-8",
    )
    assert paths_that_are_not_there(page) == [
        "telling.py", "runtime/numpy", "magmagraph.no_such.thing", "x/y.z",
    ]  # fmt: skip


def test_the_index_leads_to_every_page_and_example() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    targets = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", text)}
    wanted = {*DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.py")} - {DOCS / "index.md"}
    assert sorted(relative(path) for path in wanted - targets) == []


def test_design_notes_are_numbered_and_have_their_four_parts() -> None:
    notes = sorted((DOCS / "design").glob("*.md"))
    assert [note.name[:4] for note in notes] == [f"{i:03}-" for i in range(1, len(notes) + 1)]
    for note in notes:
        text = note.read_text(encoding="utf-8")
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert parts == ["Context", "Choice", "Rejected", "Consequence"], note.name
        assert text.startswith(f"# {note.name[:3]} "), note.name


# ------------------------------------------------------------------- how they are held


def page_of(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_shown_output_is_put_right(tmp_path: Path) -> None:
    text = "```python\nx = 2\nprint(x)\n```\n\n```text\n3\n```\n\n```python\nprint(x + 1)\n```\n"
    right = text.replace("\n3\n", "\n2\n")
    assert build.with_output(page_of(tmp_path, text)) == right
    assert build.with_output(page_of(tmp_path, right)) == right


def test_text_that_no_block_printed_is_left_alone(tmp_path: Path) -> None:
    text = "```text\na\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\nb\n```\n"
    assert build.with_output(page_of(tmp_path, text)) == text


def test_measured_numbers_may_differ_and_nothing_else(tmp_path: Path) -> None:
    shown = "```python\nprint('fuse   1.5  8 -> 3')\n```\n\n```text measured\n{}\n```\n"
    kept = shown.format("fuse  12.25  8 -> 3")
    assert build.with_output(page_of(tmp_path, kept)) == kept
    stale = shown.format("fuse  12.25  8 -> 4")
    assert build.with_output(page_of(tmp_path, stale)) == shown.format("fuse   1.5  8 -> 3")


def test_messages_name_lines_of_the_page_even_below_output_that_grows(tmp_path: Path) -> None:
    text = (
        "```python\nprint('a\\nb')\n```\n\n```text\n```\n\n"
        "```python\nimport magmagraph as mg\nprint(mg.var('x', shape=(2,)).line)\n```\n\n"
        "```text\n```\n"
    )
    made = build.with_output(page_of(tmp_path, text))
    number = made.splitlines().index("print(mg.var('x', shape=(2,)).line)") + 1
    assert f"\npage.md:{number}\n" in made


def test_a_block_that_fails_fails_at_its_line(tmp_path: Path) -> None:
    page = page_of(tmp_path, "# Title\n\n```python\nx = 1\nx / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as raised:
        build.with_output(page)
    assert raised.traceback[-1].lineno + 1 == 5
