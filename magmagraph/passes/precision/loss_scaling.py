"""Loss scaling for float16: gradients are computed a power of two larger, and updates wait.

Small gradients are zero in float16, whose numbers end at 6e-8. So the seed of a gradient, a marker
that `mg.grad` leaves, is the scale in place of 1; each gradient is divided by it at a marker of its
own, in float32. Where an element of a gradient is not finite, all updates keep their old values and
the scale is halved; after as many finite steps as `Options.loss_scale_growth` it is doubled
(P. Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2, and what frameworks
made of it). Ranks that have layers or parts of weights of their own ask each other.

Before, under ``precision="float16"``: markers, and the three counters of the function as they are.
After: no marker; every update is a choice between the old and the new value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_inexact
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ops.collective.rows import REDUCE_SCATTER
from ...ops.collective.timed import ALLREDUCE_MANY_WHEN, REDUCE_SCATTER_WHEN
from ...ops.collective.whole import ALLREDUCE, ALLREDUCE_MANY
from ...ops.control.identities import (
    ALWAYS,
    HELD,
    ITEM,
    MARKER,
    SCALE,
    SKIPPED,
    STEPS,
    is_scaling_state,
)
from ...ops.convert import cast
from ...ops.elementwise.arithmetic import add, multiply
from ...ops.elementwise.bits import logical_and
from ...ops.elementwise.comparison import maximum, minimum, where
from ...ops.elementwise.rounding import isfinite
from ...ops.leaf import constant
from ...ops.reduction.primitives import all as all_of
from ..pipeline import Options
from ..report import Record, label
from ..rewriting.pattern import uniform

RULE = "loss scaling"
LARGEST, SMALLEST = 2.0**24, 2.0**-16
_FLOAT32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)
_JOINED = (ALLREDUCE_MANY, ALLREDUCE_MANY_WHEN)


def scale_gradients(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with scaled gradients and guarded updates, without markers."""
    markers = [node for node in graph.nodes if node.op is MARKER]
    if not markers:
        return graph
    return _Scaling(graph, markers, trace, options).run()


def settled(graph: Graph, record: Record) -> Graph:
    """Return a graph that says which gradients are scaled, before it is cut into stages.

    A stage that sees its layers alone could not tell, and all of them have to do the same.
    """
    states = [value for _, value in graph.updates if is_scaling_state(value)]
    if not states:
        return graph
    depth = _deepest(graph.nodes)
    leak = _leak(graph, depth)
    if leak is not None:
        _refuse(leak, record)
        depth = 0
    updates = [
        (variable, MARKER(value.inputs[0], **{**value.attrs, "depth": depth}))
        if is_scaling_state(value)
        else (variable, value)
        for variable, value in graph.updates
    ]
    values = graph.interner.intern_all([value for _, value in updates])
    return graph.replace(
        updates=[(variable, value) for (variable, _), value in zip(updates, values, strict=True)]
    )


def _refuse(leak: Node, record: Record) -> None:
    record.refuse(
        RULE, leak, "it is a derivative of a gradient, which would stay multiplied by the "
        "scale: mg.hessian, mg.jacobian, mg.vjp and mg.jvp have no place to divide by it"
    )


def _deepest(nodes: Sequence[Node]) -> int:
    """Return the depth of the outermost gradients: those inside would be scaled by both."""
    seeds = [n for n in nodes if n.op is MARKER and n.attrs["role"] == "seed"]
    return max(map(_depth, seeds), default=1)


def _leak(graph: Graph, depth: int) -> Node | None:
    """Return a result that depends on a seed otherwise than through a gradient, or None.

    Such a result is linear in the seed, and no marker stands where it could be divided.
    """
    reached: set[Node] = set()
    for node in graph.nodes:
        if node.op is ITEM and node.inputs[0].op in _JOINED:  # losses travel with gradients
            if node.inputs[0].inputs[node.attrs["index"]] in reached:
                reached.add(node)
            continue
        role = node.attrs["role"] if node.op is MARKER else ""
        if role in ("seed", "gradient") and _depth(node) == depth:
            if role == "seed":
                reached.add(node)
        elif _is_left_over(node):
            if node.inputs[0].op.kind is Kind.LEAF:
                reached.add(node)
        elif any(operand in reached for operand in node.inputs):
            reached.add(node)
    return next((root for root in graph.roots if root in reached), None)


def _is_left_over(node: Node) -> bool:
    """Return whether a marker stands at what compression leaves over: the variable, or its new."""
    return node.op is MARKER and node.attrs["role"] == HELD and "scaled" in node.attrs


class _Scaling:
    """A graph on its way to scaled gradients."""

    def __init__(
        self, graph: Graph, markers: Sequence[Node], trace: Trace, options: Options
    ) -> None:
        self.graph, self.trace, self.options = graph, trace, options
        self.intern = graph.interner.intern
        by_role = {
            value.attrs["role"]: variable
            for variable, value in graph.updates
            if is_scaling_state(value)
        }
        self.scale, self.steps, self.skipped = (
            by_role.get(role) for role in (SCALE, STEPS, SKIPPED)
        )
        states = [value for _, value in graph.updates if is_scaling_state(value)]
        attributes: Mapping[str, Any] = states[0].attrs if states else {}
        self.ranks: tuple[tuple[tuple[str, ...], int], ...] = attributes.get("ranks", ())
        self.messages: list[Node] = []  # in the order of those between stages
        self.staged = "depth" in attributes
        self.depth: int = attributes["depth"] if self.staged else _deepest(graph.nodes)
        self.made: dict[Node, Node] = {}
        self.gradients: list[Node] = []
        if self.staged:  # what leaves a stage scaled is divided on another
            self.scale = self.scale if self.depth else None
        elif self.scale is not None and (leak := _leak(graph, self.depth)) is not None:
            self.scale = None
            _refuse(leak, options.record)

    def run(self) -> Graph:
        """Return the new graph."""
        graph = self.graph
        for node in graph.nodes:
            self.made[node] = self._made(node)
        updates = [(variable, self.made[value]) for variable, value in graph.updates]
        if self.scale is not None and (self.gradients or self.staged):
            updates = self._guarded(updates)
        return graph.replace(
            outputs=[self.made[n] for n in graph.outputs],
            updates=updates,
            effects=[*(self.made[n] for n in graph.effects), *self.messages],
        )

    def _made(self, node: Node) -> Node:
        inputs = tuple(self.made[operand] for operand in node.inputs)
        if node.op is not MARKER:
            copy = self.graph.interner.make(node, inputs)
            self.trace.replace(node, copy, "precision", "operands")
            return copy
        (value,) = inputs
        copy = self._unmarked(node, value)
        self.trace.replace(node, copy, "precision", RULE)
        return copy

    def _unmarked(self, marker: Node, value: Node) -> Node:
        """Return the replacement of a marker: its operand, multiplied or divided by the scale."""
        role = marker.attrs["role"]
        if self.scale is not None and _is_left_over(marker):
            before = marker.inputs[0].op.kind is Kind.LEAF
            factor = self.scale if before else 1.0 / self.scale
            return self.intern(multiply(value, cast(factor, value.dtype)))
        if self.scale is None or role not in ("seed", "gradient") or not is_inexact(value.dtype):
            return value
        if _depth(marker) < self.depth:
            self.options.record.refuse(
                RULE, marker, "a gradient inside of another gradient's loss is not scaled"
            )
            return value
        if role == "seed":
            one = uniform(value) == 1
            scaled = self.scale if one else multiply(cast(value, _FLOAT32), self.scale)
            self.options.record.hit("multiply the gradient seed by the scale")
            return self.intern(cast(scaled, value.dtype))
        self.gradients.append(value)
        self.options.record.hit("divide gradients by the scale")
        wide = value if value.dtype.itemsize > 2 else cast(value, _FLOAT32)
        divided = multiply(wide, cast(1.0 / self.scale, wide.dtype))
        return self.intern(cast(divided, value.dtype))

    def _finite(self) -> Node:
        """Return whether all of all gradients is finite, the same on all ranks."""
        parts: dict[tuple[str, ...], tuple[int, list[Node]]] = {}
        all_flags: list[Node] = []
        for gradient in self.gradients:
            flag = all_of(isfinite(gradient))
            cut = _scattered(gradient)
            if cut is None:
                all_flags.append(flag)
            else:  # a rank has a part of it
                parts.setdefault(cut["group"], (cut["size"], []))[1].append(flag)
        for group, (size, flags) in parts.items():
            own_flag = cast(functools.reduce(logical_and, flags), _INT32)
            all_flags.append(ALLREDUCE(own_flag, op="min", group=group, size=size) > 0)
        finite = functools.reduce(logical_and, all_flags or [constant(True, dtype=bool)])
        for names, size in self.ranks:
            own_flag = cast(finite, _INT32)
            least = self.intern(ALLREDUCE(own_flag, op="min", group=names, size=size))
            self.messages += [least] if self.staged else []
            self.options.record.hit("all-reduce of the finite-gradient flag")
            finite = least > 0
        return finite

    def _guarded(self, updates: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
        """Return updates that keep the old values where a gradient is not finite."""
        assert self.scale is not None
        assert self.steps is not None
        assert self.skipped is not None
        finite = self.intern(self._finite())
        one = constant(1, dtype=np.int32)
        counted = add(self.steps, one)
        grown = counted >= self.options.loss_scale_growth
        larger = minimum(multiply(self.scale, 2.0), LARGEST)
        smaller = maximum(multiply(self.scale, 0.5), SMALLEST)
        zero = constant(0, dtype=np.int32)
        new = {
            SCALE: where(finite, where(grown, larger, self.scale), smaller),
            STEPS: where(logical_and(finite, ~grown), counted, zero),
            SKIPPED: where(finite, self.skipped, add(self.skipped, one)),
        }
        guarded = []
        for (variable, value), (_, before) in zip(updates, self.graph.updates, strict=True):
            role = before.attrs["role"] if before.op is MARKER else ""
            if role in new:
                new_value = self.intern(new[role])
            elif role == ALWAYS or value is variable:
                new_value = value
            else:
                new_value = self.intern(where(finite, value, variable))
                self.options.record.hit("update only if gradients are finite")
            self.trace.replace(value, new_value, "precision", RULE)
            guarded.append((variable, new_value))
        self.options.record.note(
            f"{len(self.gradients)} gradients are computed {label(self.scale)} times as large; if "
            "one is not finite, no update lands"
        )
        return guarded


def _scattered(gradient: Node) -> Mapping[str, Any] | None:
    """Return the attributes of the sum that a gradient is a rank's part of; None of a whole one."""
    node = gradient
    while node.inputs and node.op.kind is not Kind.COLLECTIVE:
        (node, *others) = node.inputs
        if others:
            return None
    return node.attrs if node.op in (REDUCE_SCATTER, REDUCE_SCATTER_WHEN) else None


def _depth(marker: Node) -> int:
    depth: int = marker.attrs.get("depth", 1)
    return depth
