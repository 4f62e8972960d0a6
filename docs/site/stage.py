"""Collect the sources of the site in one folder: guides, tutorials, examples, reference pages.

Guides, design notes and tutorials are copied, with links that fit the new places. A page of the
reference is generated for each public name and each namespace, a page for each example.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from public_names import (
    PublicName,
    docstring,
    documented,
    is_own,
    namespaces,
    public_names,
    source_position,
)

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# The contents in the order of the navigation; what the tests find missing here has no entry in it.
NAVIGATION = {
    "Learn": [
        "install", "tutorial", "guide", "howto", "coming-from", "walkthrough", "read-a-report",
        "gallery", "teaching",
    ],
    "Tutorials": [
        "tutorials/own-data", "tutorials/from-torch", "tutorials/tables", "tutorials/notebooks",
        "tutorials/many-processes", "tutorials/write-a-pass", "tutorials/write-a-kernel-family",
    ],
    "Reference": [
        "reference/index", "ops", "networks", "passes", "errors", "environment", "models", "onnx",
        "coverage", "memory", "export", "certificates", "viewer-schema", "glossary",
    ],
    "Large runs": [
        "distributed", "launching", "cost-model", "tune", "workflow", "reliability", "security",
    ],
    "Project": [
        "examples", "readme", "changelog", "contributing", "design/index",
    ],
}  # fmt: skip

# Rooms of operations, as headings of the page of `mg`.
HEADINGS = {
    "autodiff": "Gradients and control flow",
    "checks": "Checks",
    "data": "Data",
    "dtypes": "Element types",
    "errors": "Errors and warnings",
    "function": "Functions: compile and run",
    "functional": "Networks: normalization, dropout, and names of the array API",
    "inspect": "Look inside and export",
    "ir": "Nodes, graphs and dimensions",
    "losses": "Losses",
    "model": "Models",
    "ops.control": "Gradients and control flow",
    "ops.convolution": "Convolutions",
    "ops.elementwise": "Elementwise functions",
    "ops.indexing": "Indexing, search and sets",
    "ops.linalg": "Products",
    "ops.networks": "Networks: activations, attention, embedding",
    "ops.products": "Products",
    "ops.reduction": "Reductions and statistics",
    "ops.shape": "Shapes and creation",
    "ops.signal": "Signals",
    "ops.spatial": "Pooling, patches and images",
    "ops.special": "Special functions",
    "optimizer": "Optimization",
}
OTHERS = "Others"


def stage(target: Path) -> None:
    """Write all sources of the site to a folder, and remove what is no source any more."""
    pages = staged_pages()
    texts = {}
    for source, page in pages.items():
        text = source.read_text(encoding="utf-8")
        if source.suffix == ".py":
            text = example_page(source, text)
        texts[page] = runnable(relinked(source, text, page, pages))
    texts["index.md"] += navigation()
    texts["design/index.md"] = design_index(pages.values())
    for folder in (DOCS / "pictures", ROOT / "benchmarks" / "results"):
        for picture in sorted(folder.glob("*.svg")):
            texts[f"pictures/{picture.name}"] = picture.read_text(encoding="utf-8")
    texts |= {f"reference/{name}": text for name, text in reference_pages().items()}
    for page, text in texts.items():
        write(target / page, text)
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target).as_posix() not in texts:
            path.unlink()


def staged_pages() -> dict[Path, str]:
    """Return the page of each file that the site shows, by the file."""
    pages = {path: path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    pages |= {
        ROOT / "README.md": "readme.md",
        ROOT / "CHANGELOG.md": "changelog.md",
        ROOT / "CONTRIBUTING.md": "contributing.md",
    }
    for path in sorted((ROOT / "examples").glob("*.py")):
        pages[path] = f"examples/{path.stem}.md"
    return pages


def relinked(source: Path, text: str, page: str, pages: dict[Path, str]) -> str:
    """Return the text of a page with its links to files of the repository led to their pages."""

    def lead(match: re.Match[str]) -> str:
        target, hash_, anchor = match[1].partition("#")
        if not target or "://" in target:
            return match[0]
        path = Path(os.path.normpath(source.parent / target))
        place = pages.get(path)
        if place is None and path.suffix == ".svg":
            place = f"pictures/{path.name}"
        elif place is None and path == ROOT / "examples":
            place = pages[DOCS / "examples.md"]
        elif place is None:
            # A file that the site does not show is named as in the repository.
            return f"]({target})" if not path.exists() else f"](repository:{relative(path)})"
        start = posixpath.dirname(page) or "."
        return f"]({posixpath.relpath(place, start)}{hash_}{anchor})"

    # Code is left alone, in blocks as in lines.
    pieces = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`)", text, flags=re.M | re.S)
    pieces[::2] = [re.sub(r"\]\(([^)\s]+)\)", lead, piece) for piece in pieces[::2]]
    text = "".join(pieces)
    # A link in which code is the label is split by the code; its target follows in the next piece.
    return re.sub(r"\[([^\]]*)\]\(repository:([^)]+)\)", r"`\2`", text)


def relative(path: Path) -> str:
    """Return the path of a file in the repository."""
    return path.relative_to(ROOT).as_posix()


def requirements(text: str) -> list[str]:
    """Return the libraries that a tutorial needs, by the line `requires:` at its start."""
    match = re.search(r"^requires: (.+)$", text, flags=re.M) if text.startswith("---") else None
    return [name.strip() for name in match[1].split(",")] if match else []


def runnable(text: str) -> str:
    """Return a page whose cells run: if a library is missing, as code with a note that says so."""
    missing = [name for name in requirements(text) if importlib.util.find_spec(name) is None]
    if not missing:
        return text
    note = (
        "```{note}\nThis page was built where "
        f"{' and '.join(missing)} was not installed: its code was not run.\n```\n\n"
    )
    text = re.sub(r"^(# .+\n)", lambda match: f"{match[1]}\n{note}", text, count=1, flags=re.M)
    return text.replace("```{code-cell} python", "```python")


def example_page(source: Path, text: str) -> str:
    """Return the page of an example: its docstring's first line as the title, and its code."""
    title = source.stem.replace("_", " ").capitalize()
    return (
        f"---\norphan: true\n---\n\n# {title}\n\n`{relative(source)}`, "
        f"one of the [examples](../examples.md).\n\n```python\n{text.rstrip()}\n```\n"
    )


def navigation() -> str:
    """Return the hidden tables of contents of the home page."""
    parts = []
    for caption, pages in NAVIGATION.items():
        lines = "\n".join(pages)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n")
    return "".join(parts)


def design_index(pages: Iterable[str]) -> str:
    """Return the page that lists the design notes."""
    notes = "\n".join(sorted(Path(page).stem for page in pages if page.startswith("design/")))
    return (
        "# Design notes\n\nOne page for each decision: context, choice, rejected alternatives, "
        f"consequence.\n\n```{{toctree}}\n:maxdepth: 1\n\n{notes}\n```\n"
    )


# ------------------------------------------------------------------------------ the reference


def reference_pages() -> dict[str, str]:
    """Return the pages of the reference by file name: an index, namespaces, and names."""
    names = public_names()
    pages = {"index.md": reference_index(), "names.md": names_index(names)}
    for namespace in namespaces():
        own = [name for name in names if name.namespace == namespace]
        pages[f"{namespace}.md"] = namespace_page(namespace, own)
    pages |= {page_file(name): name_page(name) for name in names}
    return pages


def page_file(name: PublicName) -> str:
    """Return the file name of a name's page; a suffix keeps names apart that differ in case."""
    return f"{page_name(name.full_name)}.rst"


@functools.cache
def lower_names() -> Counter[str]:
    """Return how many names differ in case only, by the name in lower case."""
    return Counter(name.full_name.lower() for name in public_names())


def page_name(full_name: str) -> str:
    """Return the name of a page, which no other page has where case does not count."""
    alone = lower_names()[full_name.lower()] < 2
    return full_name if alone or full_name.islower() else f"{full_name}-class"


def reference_index() -> str:
    """Return the page that lists the namespaces."""
    rows = [f"| [`{name}`]({name}.md) | {first_line(docstring(module))} |"
            for name, module in namespaces().items()]  # fmt: skip
    contents = "\n".join(namespaces())
    return "\n".join([
        "# Reference", "",
        "Every public name has a page. `import magmagraph as mg` gives all namespaces but "
        "`mg.estimators` and `mg.losses`, which are imported as `magmagraph.estimators` and "
        "`magmagraph.losses`. [All names](names.md) are on one page, too.", "",
        "| namespace | |", "|---|---|", *rows, "",
        "```{toctree}", ":hidden:", "", contents, "names", "```", "",
    ])  # fmt: skip


def names_index(names: tuple[PublicName, ...]) -> str:
    """Return the page of all names in the order of the alphabet."""
    ordered = sorted(names, key=lambda name: (name.name.lower(), name.full_name))
    lines = [f"- [`{n.full_name}`]({page_file(n)})" for n in ordered]
    return "\n".join(["# All names", "", f"{len(names)} names.", "", *lines, ""])


def namespace_page(namespace: str, names: list[PublicName]) -> str:
    """Return the page of a namespace: what it is for, and its names with their first lines."""
    text = docstring(namespaces()[namespace])
    parts = [f"# {namespace}", "", "```{eval-rst}", as_rst(text), "```", ""]
    groups: dict[str, list[PublicName]] = {}
    for name in names:
        groups.setdefault(heading(name) if namespace == "mg" else "", []).append(name)
    for title, group in sorted(groups.items(), key=lambda item: (item[0] == OTHERS, item[0])):
        parts += [f"## {title}", ""] if title else []
        parts += ["| name | |", "|---|---|"]
        parts += [f"| [`{n.full_name}`]({page_file(n)}) | {cell(n.summary)} |" for n in group]
        parts.append("")
    return "\n".join(parts)


def heading(name: PublicName) -> str:
    """Return the heading under which the page of `mg` lists a name: its room."""
    if not documented(name.value):
        return HEADINGS["dtypes"] if hasattr(name.value, "itemsize") else OTHERS
    module = inspect.unwrap(name.value).__module__.removeprefix("magmagraph.")
    two, one = ".".join(module.split(".")[:2]), module.split(".")[0]
    return HEADINGS.get(two) or HEADINGS.get(one, OTHERS)


def name_page(name: PublicName) -> str:
    """Return the page of a public name."""
    title = name.full_name
    # Not in the contents: with a thousand names, they would be longer than the page.
    head = [":orphan:", "", title, "=" * len(title), "", f"In :doc:`{name.namespace}`.", ""]
    if not documented(name.value):
        return "\n".join([*head, *data_directive(name), ""])
    if name.same_as is not None:
        path = "magmagraph" + name.same_as.removeprefix("mg")
        return "\n".join([
            *head, f".. py:data:: {name.path}", "", f"   Another name of :py:obj:`{path}`.", "",
        ])  # fmt: skip
    also = [other.full_name for other in public_names() if other.same_as == name.full_name]
    if also:
        head += ["Also: " + ", ".join(f"``{other}``" for other in also) + ".", ""]
    # The page changes with the file of the definition, so that Sphinx reads it again.
    position = source_position(name.value, name.name)
    if position is not None:
        head += [f".. {hashlib.sha256(position[0].read_bytes()).hexdigest()}", ""]
    if inspect.isclass(name.value):
        return "\n".join([*head, *class_directive(name), ""])
    return "\n".join([*head, f".. autofunction:: {name.path}", ""])


def data_directive(name: PublicName) -> list[str]:
    """Return the lines that describe a constant."""
    lines = [f".. py:data:: {name.path}"]
    text = docstring(name.value) if is_own(name.value) else name.summary.replace("`", "``")
    return [*lines, "", *(f"   {line}".rstrip() for line in text.splitlines())]


def class_directive(name: PublicName) -> list[str]:
    """Return the lines that describe a class, with what it inherits from classes without a page."""
    lines = [f".. autoclass:: {name.path}"]
    if issubclass(name.value, BaseException):
        return [*lines, "   :show-inheritance:"]
    return [*lines, "   :members:", "   :show-inheritance:"]


def as_rst(text: str) -> str:
    """Return a docstring of a module without its examples, which its names show again."""
    return re.split(r"^Examples\n-+$", text, flags=re.M)[0].rstrip()


def first_line(text: str) -> str:
    """Return the first paragraph as the cell of a table."""
    return cell(" ".join(text.partition("\n\n")[0].split()))


def cell(text: str) -> str:
    """Return a docstring's text as the cell of a table in Markdown."""
    text = re.sub(r":(?:class|func|mod|meth):`~?([^`]+)`", r"`\1`", text.replace("``", "`"))
    # Outside code, signs that Markdown would read are escaped.
    pieces = re.split(r"(`[^`]*`)", text)
    pieces[::2] = [re.sub(r"([*_<>\[\]\\])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces).replace("|", "\\|")


def write(path: Path, text: str) -> None:
    """Write a page if it has changed, so that Sphinx reads only what is new."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
