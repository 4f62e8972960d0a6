"""Check the labels of classes that a call is fed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FeedError, message
from ..ir.dims import evaluate
from ..ir.graph import Graph, Node, Trace
from ..ir.identity import index_of, is_among
from ..ir.interpret import apply
from ..ir.op import Kind
from ..ir.records import record
from ..ops.control.labels import CLASS_LABELS, expected_labels, wrong_label
from ..ops.convert import CAST

__all__ = ["FedLabels", "fed_labels", "with_marked_labels"]


@record(frozen=True, eq=False)
class FedLabels:
    """Labels that are an input, or a part of one.

    position: The input's position.
    input: The input.
    steps: What makes the labels of the input; none where they are all of its values.
    marker: The user's node that says of how many classes they are.
    """

    position: int
    input: Node
    steps: tuple[Node, ...]
    marker: Node

    def check(self, feeds: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Raise unless the fed labels are those of a class, or ignored.

        Arrays on a device are not checked: the call would wait for the device.

        raises FeedError: One is not.
        """
        labels = feeds[self.position]
        if type(labels) is not np.ndarray:
            return
        for node in self.steps:
            labels = np.ascontiguousarray(apply(node, [labels], sizes))
        if labels.dtype.kind not in "iu":
            return  # such a feed is refused
        attrs = self.marker.attrs
        classes, ignored = attrs["classes"], attrs["ignored"]
        classes = classes if type(classes) is int else evaluate(classes, sizes)
        wrong = wrong_label(labels, classes, ignored)
        if wrong is None:
            return
        label = labels[wrong]
        hints = [f"an output of {int(labels.max()) + 1} classes"] if label > 0 else []
        hints += [f"ignore_index={label} where it marks padding"] if ignored is None else []
        raise FeedError(
            message(
                f"input '{self.input.name}' ({self.input.type}) is fed the label {label} at "
                f"{wrong}, and {attrs['function']} has {classes} classes",
                need=expected_labels(classes, ignored),
                hint="; or ".join(hints) or None,
                where=str(self.marker.line) if self.marker.line else None,
            )
        )


def fed_labels(graph: Graph, trace: Trace) -> tuple[FedLabels, ...]:
    """Return the labels of a frozen program that are inputs, in another form or in part.

    Labels that are computed otherwise are not among them.
    """
    labels = []
    for member, marker in _marked(trace):
        source, steps = _source(member)
        if is_among(source, graph.inputs):
            labels.append(FedLabels(index_of(graph.inputs, source), source, steps, marker))
    return tuple(labels)


def with_marked_labels(graph: Graph, trace: Trace) -> Graph:
    """Return a frozen program in which labels are marked again, as a file has to hold it."""
    marked: dict[Node, Node] = {}
    for member, marker in _marked(trace):
        marked[member] = graph.interner.make(marker, (marked.get(member, member),))
    return graph.substitute(marked)


def _marked(trace: Trace) -> Iterator[tuple[Node, Node]]:
    """Yield nodes of a frozen graph that are labels, each with the user's node that says so."""
    for member, users in trace.sources.items():
        for user in users:
            if user.op is CLASS_LABELS:
                yield member, user


def _source(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """Return what a node is made of by moves and casts, and these where they change the values."""
    steps: list[Node] = []
    while len(node.inputs) == 1 and (node.op.kind is Kind.LAYOUT or node.op is CAST):
        (operand,) = node.inputs
        if node.op is CAST or node.size != operand.size:
            steps.append(node)
        elif steps:
            steps.append(node)  # what is cut out depends on the order
        node = operand
    return node, tuple(reversed(steps))
