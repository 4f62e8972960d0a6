"""Copies and pickles of models: they compile functions of their own."""

from __future__ import annotations

from typing import Any

from ..function import Function
from ..ir.graph import Node
from ..ir.op import flatten, unflatten
from ..nn.layer import Call, note_call

__all__ = ["Copying"]

_OF_GRAPH = (
    "inputs", "outputs", "calls", "layers", "limits", "_labels", "_functions", "_known", "_last",
)  # fmt: skip


class Copying:
    """How a model is copied and pickled; mixed into `Model`."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    calls: list[tuple[Call, Node]]
    _drawn: int
    _single: bool
    _functions: dict[Any, Function]
    _known: dict[Any, Any]
    _last: Any

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in vars(self).items() if k not in _OF_GRAPH}
        counters = [f.random_step for f in self._functions.values() if f.random_step is not None]
        state["_drawn"] = max([self._drawn, *(int(variable.value) for variable in counters)])
        state["calls"] = [(c.layer, len(c.inputs), c.options, c.position) for c, _ in self.calls]
        operands = [node for call, _ in self.calls for node in call.inputs]
        results = [node for _, node in self.calls]
        state["counts"] = (len(self.inputs), len(self.outputs), len(results))
        # Pickle nodes together: one by one they would no longer share operands.
        state["nodes"] = flatten([*self.inputs, *self.outputs, *results, *operands])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes = iter(unflatten(*state.pop("nodes")))
        counts = state.pop("counts")
        calls = state.pop("calls")
        inputs, outputs, results = ([next(nodes) for _ in range(count)] for count in counts)
        seen: dict[tuple[Node, ...], tuple[Node, ...]] = {}
        for (layer, count, options, position), node in zip(calls, results, strict=True):
            operands = tuple(next(nodes) for _ in range(count))
            # The results of one call share the tuple of its operands.
            note_call(node, Call(layer, seen.setdefault(operands, operands), options, position))
        vars(self).update(state)
        self._functions, self._known, self._last = {}, {}, None
        self._set_graph(inputs, outputs[0] if self._single else outputs)
