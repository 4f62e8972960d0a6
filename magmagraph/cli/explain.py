"""Explain what the compiler did with a function, or what became of a node of it.

Without NODE: the report of the compile, with all rules and the reasons of near misses.
"""

from __future__ import annotations

import argparse
import json

from ..function import Function
from ..ir.graph import Node
from ..ir.op import Kind
from . import target
from .target import CommandError

_SHOWN = 10  # candidates that an error names


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    target.declare(parser, "the function")
    parser.add_argument(
        "node",
        nargs="?",
        metavar="NODE",
        help="a node's name, its operation, a line (12, or file.py:12), or its number in the "
        "source graph (%%3); all that fit are explained",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def run(chosen: argparse.Namespace) -> None:
    """Print the report, or the explanations."""
    found, _, name = target.load(chosen.target)
    function = target.function_of(found, name)
    function.compile()
    if chosen.node is None:
        if chosen.json:
            print(function.report.to_json())
            return
        print(function.report)
        return
    explained = [function.explain(node) for node in _matching(function, chosen.node)]
    if chosen.json:
        print(json.dumps([json.loads(one.to_json()) for one in explained], indent=2))
    else:
        print("\n\n".join(map(str, explained)))


def _matching(function: Function, text: str) -> list[Node]:
    """Return the nodes of the source graph that a text names, or raise."""
    sources = function.trace.sources
    users = {node: sources.get(node, [node]) for node in function.source_graph.nodes}
    if text.startswith("%"):
        members = list(users)
        if not text[1:].isdigit() or int(text[1:]) >= len(members):
            raise CommandError(f"there is no node {text}: they are %0 to %{len(members) - 1}")
        return [members[int(text[1:])]]
    # The likeliest meaning first: a name, then an operation, then a line.
    for fits in (
        lambda node: node.name == text,
        lambda node: node.op.name == text,
        lambda node: node.line is not None and _is_line(str(node.line), text),
    ):
        found = [next(u for u in own if fits(u)) for own in users.values() if any(map(fits, own))]
        if found:
            return found
    names = [own[0].name for own in users.values() if own[0].name]
    computed = [
        f"{own[0].op.name} (line {own[0].line.number})"
        for own in users.values()
        if own[0].op.kind is not Kind.LEAF and own[0].line is not None
    ]
    known = ", ".join([*dict.fromkeys(names), *dict.fromkeys(computed)][:_SHOWN])
    raise CommandError(f"no node is {text!r}; there are {known}")


def _is_line(line: str, text: str) -> bool:
    """Return whether a text, a number or the end of a path with one, names a line."""
    file, _, number = line.rpartition(":")
    wanted, _, at = text.rpartition(":")
    return at == number and (not wanted or file == wanted or file.endswith("/" + wanted))
