"""Inline subgraphs, which are one operation to their user.

It comes with `simplify`, so that every other rule sees what is inside.
"""

from __future__ import annotations

from ..ir.graph import Node
from ..ops.control.identities import ITEM
from ..ops.control.subgraph import SUBGRAPH, inlined
from .rewriting.rewrite import Match, Rule


def _single(match: Match) -> Node | None:
    nodes = inlined(match.root)
    return nodes[0] if len(nodes) == 1 else None


def _one_of_several(match: Match) -> Node | None:
    index: int = match.root.attrs["index"]
    return inlined(match.root.inputs[0])[index]


RULES: tuple[Rule, ...] = (
    Rule("inline subgraph", (SUBGRAPH,), _single, complex=True),
    Rule("inline result of subgraph", (ITEM,), _one_of_several,
         looks=lambda node: node.inputs[0].op is SUBGRAPH, complex=True),
)
