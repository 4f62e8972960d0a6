"""Turn a placed graph into a plan: a step per kernel launch, values in slots.

Before: a graph with order and placement. After: a `Plan`, symbolic in the named dimensions.
"""

from __future__ import annotations

from typing import Any

from ...codegen.region.analysis import Region, analyze
from ...ir.graph import Graph, Node, Trace
from ...ir.plan import Place, Plan, Role, Slot, Step, Value
from ...ir.target import Target
from ...ir.types import Extent, Type
from ..pipeline import Options
from .buffers import Buffer, buffer_of, is_leaf, types_of
from .memory import Copy, Placement


def lower(graph: Graph, trace: Trace, options: Options) -> Plan:
    """Return the plan of a placed graph."""
    placement: Placement = graph.placement
    target = options.target
    slots = list(placement.slots)
    steps: list[Step] = [_copy(copy, target) for copy in placement.early]
    waits = _waits(placement, target) if target.device == "cpu" else {}
    number: list[int] = []  # of each of the placement's steps, and of their end, among all
    for at, node in enumerate(placement.steps):
        steps.extend(waits.get(at, ()))
        number.append(len(steps))
        steps.append(_step(node, placement, slots, at, target))
    steps.extend(waits.get(len(placement.steps), ()))
    number.append(len(steps))
    commit = number[placement.commit]
    steps.extend(_copy(copy, target) for copy in placement.late)
    fetches = [
        Value(slot, Type(node.dtype, node.shape))
        for slot, node in zip(placement.fetches, graph.outputs, strict=True)
    ]
    shifted = [
        Slot(
            s.index,
            s.place,
            s.size,
            s.owner,
            0 if s.first < 0 else number[s.first],
            number[min(s.last + 1, len(placement.steps))] - (s.last < len(placement.steps)),
        )
        for s in slots
    ]
    return Plan(
        steps=tuple(steps),
        slots=tuple(shifted),
        fetches=tuple(fetches),
        commit=commit,
        constraints=graph.constraints,
        threads=max(1, target.threads),
        guard=options.nan == "raise",
        deterministic=options.deterministic,
    )


def _waits(placement: Placement, target: Target) -> dict[int, list[Step]]:
    """Return the waits for overlapped collectives, by the step that follows."""
    family = target.with_role(Role.WAIT) if placement.landings else None
    waits: dict[int, list[Step]] = {}
    for at, landing in placement.landings.items():
        assert family is not None
        node = placement.steps[at]
        results = tuple(
            Value(placement.slot_of[node, index], type_)
            for index, type_ in enumerate(types_of(node))
        )
        fails = family.may_raise(node)
        wait = Step(family, node, inputs=results, outputs=results, bytes=0, can_fail=fails)
        waits.setdefault(landing, []).append(wait)
    return waits


def _copy(copy: Copy, target: Target) -> Step:
    value = copy.node.type
    return Step(
        family=target.with_role(Role.COPY),
        node=copy.node,
        inputs=(Value(copy.source, value),),
        outputs=(Value(copy.target, value),),
        bytes=value.bytes * 2,
    )


def _value(node: Node, placement: Placement) -> Value:
    buffer: Buffer = buffer_of(node)
    return Value(placement.slot_of[(buffer[0], 0) if is_leaf(buffer[0]) else buffer], node.type)


def _step(
    node: Node, placement: Placement, slots: list[Slot], at: int, target: Target
) -> Step:
    inputs = tuple(_value(operand, placement) for operand in node.inputs)
    outputs = tuple(
        Value(placement.slot_of[node, index], type_)
        for index, type_ in enumerate(types_of(node))
    )
    family = target.family(node)
    name, reason = _refused(node, target)
    cpu, expression = target.device == "cpu", family.role is Role.EXPRESSION
    moved: Extent = 0
    workspace: int | None = None
    scratch: Extent = 0
    if family.role is Role.REGION:
        moved, scratch = _region_costs(node, max(1, target.threads), vectors=cpu)
    else:
        if node.op.kernel.workspace is not None and (cpu or expression):
            scratch = node.op.kernel.workspace(*[i.type for i in node.inputs], **node.attrs)
        elif cpu and not expression:
            # On other devices libraries bring their own.
            scratch = family.scratch(node, max(1, target.threads))
        for value in {v.slot: v for v in inputs}.values():
            moved = moved + value.type.bytes
        for value in outputs:
            moved = moved + value.type.bytes
    if not (isinstance(scratch, int) and scratch == 0):
        workspace = len(slots)
        slots.append(Slot(workspace, Place.ARENA, scratch, None, at, at))
    return Step(
        family=family,
        node=node,
        inputs=inputs,
        outputs=outputs,
        bytes=moved,
        flops=_flops(node),
        workspace=workspace,
        can_fail=family.may_raise(node),
        refused=reason,
        refused_by=name,
    )


def _refused(node: Node, target: Target) -> tuple[str, str]:
    """Return the name of the family that is for a node's operation but refuses it, and why."""
    for family, reason in target.refusals(node):
        return family.name, reason
    return "", ""


def _region_costs(node: Node, threads: int, *, vectors: bool) -> tuple[Extent, Extent]:
    bodies: tuple[Graph, ...] = (
        node.attrs["bodies"] if "bodies" in node.attrs else (node.attrs["body"],)
    )
    moved: Extent = 0
    scratch: Extent = 0
    for body in bodies:
        region = analyze(body, vectors=vectors)
        if not isinstance(region, Region):
            raise TypeError(f"{node!r} holds a body that is not one region: {region}")
        moved = moved + region.bytes
        scratch = scratch + region.workspace(threads)
    return moved, scratch


def _flops(node: Node) -> Extent:
    """Return the arithmetic of a step: its record's rule, else one for each element made."""
    if node.op.flops is not None:
        types = [operand.type for operand in node.inputs]
        return node.op.flops(*types, **node.attrs)
    bodies: Any = node.attrs.get("bodies") or (node.attrs.get("body"),)
    if isinstance(bodies[0], Graph):
        total: Extent = 0
        for body in bodies:
            for inner in body.nodes:
                if inner.inputs and not inner.op.layout.alias:
                    total = total + max_size(inner)
        return total
    return sum_sizes(node)


def max_size(node: Node) -> Extent:
    """Return the elements that a node touches: of its operand for a reduction."""
    if node.op.reduction is not None:
        size: Extent = node.inputs[0].type.size
        return size
    return sum_sizes(node)


def sum_sizes(node: Node) -> Extent:
    """Return the number of elements that a node makes."""
    total: Extent = 0
    for type_ in types_of(node):
        total = total + type_.size
    return total
