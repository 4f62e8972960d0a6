"""Sphinx: how the staged pages become the site (docs/site/build.py runs it)."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("MAGMAGRAPH_SITE_CONF", __file__)).resolve().parent
sys.path.insert(0, str(HERE))

import names_in_text
import source_pages
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from public_names import source_position

import magmagraph

logging.getLogger("traitlets").setLevel(logging.WARNING)  # a line for each notebook

project = "magmagraph"
author = "The magmagraph maintainers"
copyright = author
version = release = magmagraph.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "numpydoc",
]
root_doc = "index"
nitpicky = False
exclude_patterns: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

default_role = "py:obj"
add_module_names = False
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
python_display_short_literal_types = True

html_theme = "furo"
html_title = f"magmagraph {version}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # it would fetch pages, which browsers refuse for files
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
templates_path: list[str] = []


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the link from a page of the reference to the line that defines its name."""
    value: Any = sys.modules.get(info["module"]) or magmagraph
    parts = info["fullname"].split(".")
    for part in parts:
        value = inspect.getattr_static(value, part, None) or getattr(value, part, None)
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    position = source_position(value, parts[-1]) if value is not None else None
    return None if position is None else source_pages.address(*position)


def class_signature(
    app: Any, kind: str, name: str, value: Any, options: Any, arguments: Any, result: Any
) -> tuple[str, str] | None:
    """Show the parameters of a class as Python does, though its base creates the instance."""
    if kind != "class" or issubclass(value, BaseException):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare)), ""


def skip_foreign(app: Any, kind: str, name: str, value: Any, skip: bool, options: Any) -> Any:
    """Leave out methods that other libraries add to classes of the package."""
    home = getattr(inspect.unwrap(value) if callable(value) else value, "__module__", None)
    foreign = isinstance(home, str) and not home.startswith("magmagraph")
    return True if foreign and callable(value) else None


def write_formula(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    text = tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    translator.body.append(text)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Add the links of names in text, and the pages of sources."""
    app.connect("autodoc-process-signature", class_signature)
    app.connect("autodoc-skip-member", skip_foreign)
    app.add_html_math_renderer(
        "mathml", inline_renderers=(write_formula, None), block_renderers=(write_formula, None)
    )
    names_in_text.setup(app)
    source_pages.setup(app)
