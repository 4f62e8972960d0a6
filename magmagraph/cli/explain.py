"""Explain what the compiler did with a function, or what became of a node of it.

Without NODE: the report of the compile, with all rules and the reasons of near misses.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        help="a node's name, a name in the file (h of `h = x @ w`), an operation, a group "
        "(softmax, or dense/gelu), a line (12, or file.py:12), or a number in the source graph "
        "(%%3); all that fit are explained",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def run(options: argparse.Namespace) -> None:
    """Print the report, or the explanations."""
    function_or_nodes, space, name = target.load(options.target)
    function = target.function_of(function_or_nodes, name)
    function.compile()
    if options.node is None:
        if options.json:
            print(function.report.to_json())
            return
        print(function.report)
        return
    names = _Names(function, space, options.target.rpartition(":")[0])
    explained = [function.explain(node) for node in _matching(function, options.node, names)]
    if options.json:
        print(json.dumps([json.loads(one.to_json()) for one in explained], indent=2))
    else:
        print("\n\n".join(map(str, explained)))


class _Names:
    """The nodes that names of a program stand for."""

    def __init__(self, function: Function, space: Mapping[str, Any], file: str) -> None:
        self.function = function
        self.space = space
        self.file = file

    def nodes(self, name: str) -> list[Node]:
        """Return the nodes that a name of the file holds, else those of its assignments."""
        graph_nodes = {
            user for member, users in self.function.trace.sources.items() for user in users
        }
        graph_nodes.update(self.function.source_graph.nodes)
        value = self.space.get(name)
        members = value if isinstance(value, (list, tuple)) else [value]
        nodes = [member for member in members if isinstance(member, Node) and member in graph_nodes]
        return nodes or [
            node
            for first, last in self._assignments(name)
            for node in self._results_of_lines(first, last)
        ]

    def _assignments(self, name: str) -> list[tuple[int, int]]:
        """Return the first and the last line of each statement that assigns a name."""
        with contextlib.suppress(OSError, SyntaxError):
            tree = ast.parse(Path(self.file).read_text(encoding="utf-8"))
            return [
                (node.lineno, node.end_lineno or node.lineno)
                for node in ast.walk(tree)
                if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
                and any(
                    isinstance(part, ast.Name)
                    and isinstance(part.ctx, ast.Store)
                    and part.id == name
                    for part in ast.walk(node)
                )
            ]
        return []

    def _results_of_lines(self, first: int, last: int) -> list[Node]:
        """Return the final nodes that some lines of the file compute, without intermediate ones."""
        sources = self.function.trace.sources
        path = Path(self.file).resolve()
        here = [
            user
            for member in self.function.source_graph.nodes
            for user in sources.get(member, [member])
            if user.line is not None
            and first <= user.line.number <= last
            and Path(user.line.file).resolve() == path
            and not (user.line.group is not None and user.line.group.in_gradient)
        ]
        inner = {operand for node in here for operand in node.inputs}
        return [node for node in here if node not in inner]


def _matching(function: Function, text: str, file_names: _Names) -> list[Node]:
    """Return the nodes of the source graph that a text names, or raise."""
    sources = function.trace.sources
    users = {node: sources.get(node, [node]) for node in function.source_graph.nodes}
    if text.startswith("%"):
        members = list(users)
        if not text[1:].isdigit() or int(text[1:]) >= len(members):
            raise CommandError(f"there is no node {text}: they are %0 to %{len(members) - 1}")
        return [members[int(text[1:])]]
    # The likeliest meaning first.
    for fits in (
        lambda node: node.name == text,
        None,
        lambda node: node.op.name == text,
        lambda node: node.line is not None and f"/{text}/" in f"/{node.line.scope}/",
        lambda node: node.line is not None and _is_line(str(node.line), text),
    ):
        if fits is None:
            nodes = file_names.nodes(text)
        else:
            nodes = [next(filter(fits, own)) for own in users.values() if any(map(fits, own))]
        if nodes:
            return nodes
    names = [own[0].name for own in users.values() if own[0].name]
    computed = [
        f"{own[0].op.name} (line {own[0].line.number})"
        for own in users.values()
        if own[0].op.kind is not Kind.LEAF and own[0].line is not None
    ]
    candidates = ", ".join([*dict.fromkeys(names), *dict.fromkeys(computed)][:_SHOWN])
    raise CommandError(f"no node is {text!r}; there are {candidates}")


def _is_line(line: str, text: str) -> bool:
    """Return whether a text, a number or the end of a path with one, names a line."""
    file, _, number = line.rpartition(":")
    path, _, at = text.rpartition(":")
    return at == number and (not path or file == path or file.endswith("/" + path))
