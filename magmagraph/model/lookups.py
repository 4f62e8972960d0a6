"""Which integers a model's inputs may hold: those that tables have rows for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..dtypes import is_integer
from ..errors import DataError, message
from ..ir.graph import Node, topological
from ..ir.op import Kind
from ..nn.basic import Embedding
from ..nn.layer import Layer
from ..ops.convert import CAST
from ..ops.indexing.gathering import TAKE

__all__ = ["Limits", "check_ids", "limits_of"]

Limits = Mapping[Node, tuple[int, int]]
"""Input -> the least integer that it may hold, and the first that is too large."""


def limits_of(outputs: Sequence[Node], inputs: Sequence[Node], layers: Iterable[Layer]) -> Limits:
    """Return the limits of the integer inputs whose values are positions in a table.

    A kernel cannot raise: where a position is out of range it takes the nearest row, and a wrong
    vocabulary would be learned in silence.
    """
    whole = {node for node in inputs if is_integer(node.dtype)}
    if not whole:
        return {}
    tables = {
        part.table
        for layer in layers
        for part in layer.layers()
        if isinstance(part, Embedding) and part.built
    }
    limits: dict[Node, tuple[int, int]] = {}
    for node in topological(outputs):
        if node.op is not TAKE or node.attrs["mode"] != "clip":
            continue
        table, positions = node.inputs
        rows = table.shape[node.attrs["axis"]]
        source = _source(positions)
        if source in whole and isinstance(rows, int):
            # Elsewhere negative positions count from the end.
            low, high = limits.get(source, (-rows, rows))
            limits[source] = (max(low, 0 if table in tables else -rows), min(high, rows))
    return limits


def _source(node: Node) -> Node:
    """Return what a node is a copy of, in another order, shape or dtype."""
    while node.inputs and (node.op.kind is Kind.LAYOUT or node.op is CAST) and (
        is_integer(node.inputs[0].dtype)
    ):
        node = node.inputs[0]
    return node


def check_ids(array: np.ndarray, node: Node, limits: Limits) -> None:
    """Raise `DataError` where an input holds an integer that no table has a row for."""
    if node not in limits or not array.size:
        return
    low, high = limits[node]
    if low <= array.min() and array.max() < high:
        return
    place = tuple(int(i) for i in np.argwhere((array < low) | (array >= high))[0])
    row, *rest = place
    where = f", place {tuple(rest)}" if rest else ""
    raise DataError(
        message(
            f"the example in row {row} holds {array[place]}{where}",
            need=f"integers in [{low}, {high}): input '{node.name}' looks up rows of a table",
            hint=f"an Embedding of {int(array.max()) + 1} rows, or a vocabulary of {high}"
            if array.min() >= low
            else "numbers from 0",
        )
    )
