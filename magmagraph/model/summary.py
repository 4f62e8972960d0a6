"""The table of a model's layers, and what a step of training will take, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import dims
from ..ir.graph import Node, topological
from ..ir.html import Displayed, preformatted, table_html
from ..ir.identity import is_among
from ..ir.op import Kind
from ..nn.layer import Call
from ..ops.leaf import Variable

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True)
class Row:
    """One layer of a summary."""

    name: str
    kind: str
    shape: str
    parameters: int
    flops: int


@dataclass(frozen=True)
class Summary(Displayed):
    """A model as a table: print it.

    Attributes
    ----------
    rows
        A `Row` for each layer: name, kind, shape of its result, parameters, FLOPs of one example.
    parameters, trainable
        How many numbers the weights are, and how many of them are trained.
    flops
        Of one example, forward.
    batch_size, memory
        The bytes that a training step of so many examples is planned to take, where it was asked
        for: arena, feeds, results, variables, total.
    """

    rows: tuple[Row, ...]
    parameters: int
    trainable: int
    flops: int
    batch_size: int | None = None
    memory: Any = None

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the table, the head first."""
        return [
            ("layer", "kind", "result", "parameters", "FLOPs"),
            *(
                (row.name, row.kind, row.shape, f"{row.parameters:,}", f"{row.flops:,}")
                for row in self.rows
            ),
        ]

    def _sums(self) -> list[str]:
        """Return the lines below the table."""
        text = [
            f"parameters: {self.parameters:,}, of them trained: {self.trainable:,}",
            f"forward pass of one example: {self.flops:,} FLOPs",
        ]
        if self.memory is not None:
            text.append(
                f"training step of {self.batch_size} examples: {self.memory.total:,} bytes, "
                f"{self.memory.variables:,} of them weights and the optimizer's state"
            )
        return text

    def _html(self) -> str:
        return table_html(self._cells(), left=(0, 1, 2)) + preformatted("\n".join(self._sums()))

    def __str__(self) -> str:
        return "\n".join([*_table(self._cells()), *self._sums()])

    __repr__ = __str__


def _table(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = 3  # columns of text
    text_lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [text_lines[0], "-" * max(map(len, text_lines)), *text_lines[1:]]


def summarize(
    calls: Sequence[tuple[str, Call, Node]],
    *,
    parameters: int,
    trainable: Sequence[Variable],
    batch_size: int | None,
    memory: Any,
) -> Summary:
    """Return the summary of a model; see `Model.summary`.

    Parameters
    ----------
    calls
        The calls of its layers: the layer's name, the call, and its result.
    parameters, trainable
        How many numbers the weights are, and the weights that are trained.
    batch_size, memory
        As of `Summary`.
    """
    rows = []
    counted: set[Node] = set()
    sizes: dict[str, int] = {"batch": 1}
    for label, call, node in calls:
        size_of = {
            w.variable: w.variable.state.held.size
            for w in call.layer.weights().values()
            if w.variable not in counted
        }
        counted.update(size_of)
        inside = topological([node], stop=set(call.inputs).__contains__)
        rows.append(
            Row(
                label,
                type(call.layer).__name__,
                str(node.shape).replace("'", ""),
                sum(size_of.values()),
                sum(_flops(n, sizes) for n in inside if not is_among(n, call.inputs)),
            )
        )
    return Summary(
        tuple(rows),
        parameters,
        sum(variable.state.held.size for variable in trainable),
        sum(row.flops for row in rows),
        batch_size,
        memory,
    )


def _flops(node: Node, sizes: dict[str, int]) -> int:
    """Return the arithmetic of a node for one example; other named extents count as 1."""
    op = node.op
    if op.kind in (Kind.LEAF, Kind.LAYOUT, Kind.CONTROL):
        return 0
    count = (
        node.size
        if op.flops is None
        else op.flops(*[operand.type for operand in node.inputs], **node.attrs)
    )
    names = dict.fromkeys(dims.names(count), 1)
    return int(dims.evaluate(count, {**names, **sizes}))
