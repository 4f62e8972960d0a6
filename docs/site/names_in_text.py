"""Lead names in text to their pages: `mg.nn.Dense` in code, and names in docstrings."""

from __future__ import annotations

import re
from typing import Any

from public_names import namespaces, public_names
from stage import page_name

PAGES = {name.full_name: page_name(name.full_name) for name in public_names()}
PAGES |= {namespace: namespace for namespace in namespaces()}
CALL = re.compile(r"(mg(?:\.\w+)+)(?:\(.*\))?", re.DOTALL)


def page_for(text: str) -> str | None:
    """Return the page of the name that a piece of code is, or calls."""
    match = CALL.fullmatch(text.strip())
    return PAGES.get(match[1]) if match else None


def link_literals(app: Any, doctree: Any, docname: str) -> None:
    """Make links of the pieces of code that are names, where they are not links already."""
    from docutils import nodes

    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference | nodes.title):
            continue
        page = page_for(literal.astext())
        if page is None or f"reference/{page}" == docname:
            continue
        uri = app.builder.get_relative_uri(docname, f"reference/{page}")
        link = nodes.reference("", "", internal=True, refuri=uri)
        literal.replace_self(link)
        link += literal


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve a name of a docstring as users write it: `mg.relu`, `relu`, `Function.run`."""
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    target = node["reftarget"]
    own = node.get("py:module") or "magmagraph"
    tried = [
        target.replace("mg.", "magmagraph.", 1) if target.startswith("mg.") else "",
        f"{own}.{target}",
        f"magmagraph.{target}",
    ]
    docname = node.get("refdoc", "")
    for full_name in filter(None, tried):
        if full_name in domain.objects:
            entry = domain.objects[full_name]
            from sphinx.util.nodes import make_refnode

            return make_refnode(
                app.builder, docname, entry.docname, entry.node_id, content, full_name
            )
    return None


def setup(app: Any) -> None:
    """Register both."""
    app.connect("doctree-resolved", link_literals)
    app.connect("missing-reference", resolve)
