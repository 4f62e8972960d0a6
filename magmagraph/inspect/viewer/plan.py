"""A plan and its measurements as the viewer's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.graph import Graph, Node
from ...ir.plan import Place, Plan, Slot
from ..node_history import maker

Number = Callable[[Node], int]


def plan_values(plan: Plan, number: Number, sources: Mapping[int, str]) -> dict[str, Any]:
    """Return a plan; extents are ints, or texts where a size is not bound yet."""
    texts: dict[str, int] = {}
    steps = []
    for i, step in enumerate(plan.steps):
        source = sources.get(i)
        steps.append(
            {
                "kernel": step.kernel,
                "node": number(step.computed[-1]),
                "reads": list(dict.fromkeys(value.slot for value in step.inputs)),
                "writes": [value.slot for value in step.outputs],
                "bytes": _extent(step.bytes),
                "flops": _extent(step.flops),
                "workspace": step.workspace,
                "source": None if source is None else texts.setdefault(source, len(texts)),
            }
        )
    owners: dict[int, list[int]] = {}  # slot -> the nodes whose values lie in it
    for step in plan.steps:
        node = number(maker(step.computed[-1])[0])
        for slot in dict.fromkeys(value.slot for value in step.outputs):
            owners.setdefault(slot, []).append(node)
    return {
        "steps": steps,
        "slots": [_slot(slot, owners.get(slot.index, [])) for slot in plan.slots],
        "commit": plan.commit,
        "arena": plan.arena,
        "largest_live": plan.largest_live,
        "sizes": None if plan.sizes is None else dict(plan.sizes),
        "sources": list(texts),
    }


def _slot(slot: Slot, owners: list[int]) -> dict[str, Any]:
    """Return a slot with the nodes whose values it holds."""
    return {
        "place": slot.place.value,
        "size": _extent(slot.size),
        "first": slot.first,
        "last": slot.last,
        "offset": slot.offset,
        "name": _name(slot),
        "nodes": owners if slot.place is Place.ARENA else [],
    }


def _name(slot: Slot) -> str:
    if slot.place in (Place.FEED, Place.STATE):
        return str(getattr(slot.owner, "name", None) or slot.place.value)
    if slot.place is Place.RESULT:
        return f"result {slot.owner}"
    return slot.place.value


def _extent(extent: Any) -> int | str:
    return extent if isinstance(extent, int) else str(extent)


def evidence_values(
    evidence: Mapping[str, Any] | None, graphs: Mapping[str, Graph], number: Number
) -> dict[str, Any]:
    """Return measurements, their nodes numbered as the page's are.

    evidence: As of `magmagraph.inspect.evidence`: nodes are positions in the graph of a pass.
    graphs: Pass -> the graph after it; "source" is that before all.
    number: The page's number of a node.
    """
    parts = evidence or {}
    at: dict[str, list[int]] = {}

    def page(name: str, position: int) -> int:
        if name not in at:
            at[name] = [number(node) for node in graphs[name].nodes]
        return at[name][position]

    def row(values: Mapping[str, Any], name: str = "source") -> dict[str, Any]:
        row_values = dict(values)
        if row_values.get("node") is not None:
            row_values["node"] = page(name, row_values["node"])
        if row_values.get("source_nodes"):
            row_values["source_nodes"] = [page("source", n) for n in row_values["source_nodes"]]
        return row_values

    profile, check, ablate = (parts.get(key) for key in ("profile", "check", "ablate"))
    if profile is not None:
        profile = {
            **profile,
            "steps": [row(step) for step in profile["steps"]],
            "nodes": [row(entry) for entry in profile.get("nodes", ())],
        }
    if check is not None:
        blame = check.get("blame")
        check = {
            **check,
            "blame": None if blame is None else row(blame, blame.get("pass") or "source"),
            "not_finite": None if check.get("not_finite") is None
            else page("source", check["not_finite"]),
            "nodes": [row(entry) for entry in check.get("nodes", ())],
            "passes": [
                {**entry, "nodes": [row(n, entry["pass"]) for n in entry["nodes"]]}
                for entry in check.get("passes", ())
                if entry["pass"] in graphs
            ],
        }
    return {"profile": profile, "check": check, "ablate": ablate}
