"""What was measured of a function, as one dictionary of plain values: for viewers and files.

Nodes stand as their position in ``f.source_graph.nodes``, nodes of a pass as that in the graph
after it, steps as that in the plan; times are nanoseconds, errors relative to the largest magnitude
of a value ("inf" where infinite). Version 1 has these keys:

- ``profile``: ``runs``, ``nanoseconds``, ``bytes``, ``flops``; ``peaks`` (``machine``,
  ``gigabytes_per_second``, ``gigaflops`` by dtype, ``latency``, ``levels`` with ``name``,
  ``bytes``, ``read`` and ``copied``) or None; ``steps``, each with what `StepProfile.as_dict`
  gives, ``source_nodes``, ``begin`` and ``stream``; ``nodes`` (``node``, ``nanoseconds``,
  ``bytes``, ``flops``); ``lines`` (``line``, ``nanoseconds``, ``share``);
  ``groups`` (``group``, ``nanoseconds``, ``share``): scopes, layers and functions.
- ``check``: ``ok``; ``measures`` (``name``, ``error``, ``allowed``, ``where``); ``blame``
  (``name``, ``rule``, ``pass``, ``node``, ``source_nodes``, ``sources``, ``increase``, ``text``) or
  None; ``repairs``, ``not_finite``, ``notes``; ``nodes`` (``node``, ``error``): what rounding does
  to each; ``passes`` (``pass``, ``nodes``): the errors of the nodes that a pass made.
- ``ablate``: ``rounds``; ``rows`` (``name``, ``nanoseconds``, ``low``, ``high``, ``bytes``,
  ``steps``, ``error``, ``same``, ``verdict``).
- ``rewrites``: ``pass``, ``rule``, ``before``, ``after``, ``line``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import MagmagraphError
from ..ir.graph import Graph, Node
from ..ir.op import Kind
from . import ablate as ablation
from . import profile as profiling
from .ablate import Ablations
from .checking import check as checking
from .checking.check import Check, plain
from .profile import Profile

SCHEMA = "magmagraph.evidence"
VERSION = 1

Positions = Mapping[Node, int]


def evidence(
    function: Any,
    *feeds: Any,
    profile: bool = True,
    check: bool = True,
    ablate: bool = False,
    **named: Any,
) -> dict[str, Any]:
    """Return measurements of a function on some feeds as plain values.

    function (Function): Compiled, if it is not yet.
    feeds, named: As for a call. Variables keep what they hold.
    profile, check, ablate: Which parts are measured; the others are None.
    returns (dict): ``schema``, ``version``, ``device``, ``profile``, ``check``, ``ablate`` and
        ``rewrites`` (each application of a rule: pass, rule, what it replaced, and by what).
    raises FeedError: As a call would.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> found = evidence(mg.function([x], mg.exp(x)), [1.0, 2.0, 3.0])
    >>> found["schema"], found["version"], found["check"]["ok"], len(found["profile"]["steps"])
    ('magmagraph.evidence', 1, True, 1)
    """
    function.compile()
    positions = _users(function)
    parts: dict[str, Any] = {"profile": None, "check": None, "ablate": None}
    if profile:
        measured = profiling.profile(function, *feeds, peaks=function._peaks, **named)
        parts["profile"] = _profile(function, measured, positions)
    if check:
        try:
            checked = checking.check(function, *feeds, **named)
            parts["check"] = _check(function, checked, positions)
        except MagmagraphError as error:  # what has no reference in float64, say
            parts["check"] = {"ok": None, "notes": [str(error).splitlines()[0]]}
    if ablate:
        parts["ablate"] = _ablate(ablation.ablate(function, *feeds, **named))
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "device": function.device,
        **parts,
        "rewrites": list(rewrites(function)),
    }


def _users(function: Any) -> dict[Node, int]:
    """Return the position of each of the user's nodes, and of those of the source graph."""
    source: Graph = function.source_graph
    first_user: dict[Node, int] = {}
    for i, node in enumerate(source.nodes):
        first_user[node] = i
        for user in function.trace.sources.get(node, ()):
            first_user.setdefault(user, i)
    return first_user


def _at(nodes: Iterable[Node], positions: Positions) -> list[int]:
    return list(dict.fromkeys(positions[node] for node in nodes if node in positions))


def _profile(function: Any, measured: Profile, positions: Positions) -> dict[str, Any]:
    steps = []
    begin = 0
    # Measured one after the other, whatever stream of the captured graph they are on.
    placed = getattr(function._last, "streams", None)
    streams = [None] * len(measured.steps) if placed is None else placed()
    for step, stream in zip(measured.steps, streams, strict=True):
        fields = step.as_dict()
        fields.pop("nodes")
        steps.append(
            {**fields, "source_nodes": _at(step.nodes, positions), "stream": stream, "begin": begin}
        )
        begin += step.nanoseconds
    return {
        "runs": measured.runs,
        "nanoseconds": measured.nanoseconds,
        "bytes": measured.bytes,
        "flops": measured.flops,
        "peaks": None if measured.peaks is None else measured.peaks.as_dict(),
        "steps": steps,
        "nodes": _shared(measured, positions),
        "lines": [vars(line) for line in measured.by_line()],
        "groups": [vars(group) for group in measured.by_group()],
    }


def _shared(measured: Profile, positions: Positions) -> list[dict[str, Any]]:
    """Return time, bytes and arithmetic of the steps shared out to the nodes of the source."""
    weights = measured.weights or {}
    by_node: dict[int, list[float]] = {}
    for step in measured.steps:
        whole = sum(weights.get(node, 1) for node in step.nodes)
        for node in step.nodes:
            if node not in positions:
                continue
            share = weights.get(node, 1) / whole
            sums = by_node.setdefault(positions[node], [0.0, 0.0, 0.0])
            for i, amount in enumerate((step.nanoseconds, step.bytes, step.flops)):
                sums[i] += amount * share
    return [
        {"node": node, "nanoseconds": round(ns), "bytes": round(moved), "flops": round(flops)}
        for node, (ns, moved, flops) in sorted(by_node.items())
    ]


def _check(function: Any, checked: Check, positions: Positions) -> dict[str, Any]:
    graphs = {name: after for name, _, after in function.report.steps()}
    blame: dict[str, Any] | None = None
    if checked.blame is not None:
        graph = graphs.get(checked.blame.name)
        blame = {
            **checked.blame.as_dict(),
            "pass": checked.blame.name,
            "node": _numbered(graph).get(checked.blame.node),
            "source_nodes": _at(checked.blame.sources, positions),
        }
    return {
        "ok": checked.ok,
        "measures": [measure.as_dict() for measure in checked.measures],
        "blame": blame,
        "repairs": checked.repairs,
        "not_finite": None if checked.not_finite is None else positions.get(checked.not_finite),
        "notes": checked.notes,
        "nodes": [
            {"node": positions[node], "error": plain(error)}
            for node, error in checked.node_errors.items()
            if node.op.kind is not Kind.LEAF
        ],
        "passes": [
            {
                "pass": name,
                "nodes": [
                    {"node": number, "error": plain(errors[node])}
                    for node, number in _numbered(graphs.get(name)).items()
                    if node in errors
                ],
            }
            for name, errors in checked.pass_errors.items()
        ],
    }


def _numbered(graph: Any) -> dict[Node, int]:
    return {n: i for i, n in enumerate(graph.nodes)} if isinstance(graph, Graph) else {}


def _ablate(ablations: Ablations) -> dict[str, Any]:
    fields = ablations.as_dict()
    fields.pop("version")
    return fields


def rewrites(function: Any) -> Iterable[dict[str, Any]]:
    """Give each application of a rule: the pass, the rule, the node before and that after.

    Nodes are positions in the graph before the pass and in the one after it; None where what was
    replaced, or took its place, was itself replaced within the pass.
    """
    trace = function.trace
    for name, before, after in function.report.steps():
        if not isinstance(before, Graph) or not isinstance(after, Graph) or after is before:
            continue
        old, new = _numbered(before), _numbered(after)
        pending = list(before.nodes)
        seen = set(pending)
        for node in pending:  # grows by what was made and replaced within the pass
            for by, rule, new_node in trace.became.get(node, ()):
                if by != name:
                    continue
                yield {
                    "pass": name,
                    "rule": rule,
                    "before": old.get(node),
                    "after": new.get(new_node),
                    "line": str(node.line) if node.line else "",
                }
                if new_node not in seen:
                    seen.add(new_node)
                    pending.append(new_node)
