"""`magmagraph verify FILE`: check a certificate without the compiler that wrote it.

This file and those it imports read no pass, no code generator and no record of an operation: they
have a second account of what operations mean (`arithmetic`), of what equality of graphs is
(`proof`), and of what a plan may do with memory (`plans`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError, message
from . import extents
from .arithmetic import real_numbers
from .plans import PlanCheck
from .proof import FUSED, Terms, proved_roots

SCHEMA = "magmagraph.certificate"
VERSION = 1
SHOWN = 8  # problems of one kind
PARTS = ("about", "graphs", "rewrites", "plan", "nodes", "bodies", "measured", "hashes")


class Row(NamedTuple):
    """A line of a verdict.

    Attributes
    ----------
    part
        "file", "graph", "rewrite", "pass", "plan", "measured", "stated" or "program".
    item
        What it is about.
    state
        "holds", "rounds", "open" (not decided here), "measured", "stated" or "fails".
    text
        How that was found, or what is wrong.
    """

    part: str
    item: str
    state: str
    text: str


class Verdict:
    """What a certificate's check found.

    Attributes
    ----------
    rows
        See `Row`.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def ok(self) -> bool:
        """Whether nothing fails."""
        return all(row.state != "fails" for row in self.rows)

    def as_dict(self) -> list[list[str]]:
        """Return part, item and state of each line."""
        return [[row.part, row.item, row.state] for row in self.rows]

    def __str__(self) -> str:
        from ..ir.tables import table

        count = {
            state: sum(row.state == state for row in self.rows)
            for state in ("holds", "rounds", "open", "measured", "stated", "fails")
        }
        last = ", ".join(f"{n} {state}" for state, n in count.items() if n)
        shown = [("part", "what", "state", "how, or why not"), *map(tuple, self.rows)]
        return f"{table(shown, left=(0, 1, 2, 3))}\n{last}: {'ok' if self.ok else 'NOT OK'}"


# ------------------------------------------------------------------- the file


def sealed(data: Mapping[str, Any]) -> str:
    """Return the digest of a certificate's content."""
    content = {name: value for name, value in data.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal(data: dict[str, Any]) -> None:
    """Write the digest into a certificate."""
    data["digest"] = sealed(data)


def read(path: str | Path) -> dict[str, Any]:
    """Return a certificate from its file.

    Raises
    ------
    DataError
        The file is not one.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DataError(
            message(f"{path} is not JSON", need="a file that f.certify wrote")
        ) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise DataError(
            message(f"{path} is not a certificate", need="a file that f.certify wrote")
        )
    if data.get("version") != VERSION:
        raise DataError(
            message(f"{path} is a certificate of version {data.get('version')!r}",
                    need=f"version {VERSION}", hint="verify it with the release that wrote it")
        )  # fmt: skip
    if missing := [name for name in PARTS if name not in data]:
        raise DataError(message(f"{path} is cut off: it has no {missing[0]}"))
    return data


def verify(data: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> Verdict:
    """Check a certificate that was read from a file.

    Parameters
    ----------
    data
        The certificate.
    other
        One of the same program, compiled here, to compare it with.

    Returns
    -------
    Verdict
        ``verdict.ok`` is whether nothing fails.

    Raises
    ------
    DataError
        It is not built as certificates are.
    """
    rows = [Row("file", "digest", "holds", "the content is as it was written")]
    if data.get("digest") != sealed(data):
        rows = [Row("file", "digest", "fails", "the content was changed after it was written")]
    found = verify_data(data)
    if data.get("verdict") != found.as_dict():
        rows.append(Row("file", "recorded verdict", "fails", "this check finds another one"))
    else:
        rows.append(Row("file", "recorded verdict", "holds", "this check finds the same"))
    rows += found.rows
    if other is not None:
        rows = [row for row in rows if row.part != "stated"]
        for name in PARTS:
            same = _comparable(data[name]) == _comparable(other[name])
            text = "equal to that of the program" if same else "not what the program gives here"
            rows.append(Row("program", name, "holds" if same else "fails", text))
    return Verdict(rows)


def _comparable(part: Any) -> str:
    """Return a part without what differs between machines and runs: versions."""
    if isinstance(part, dict):
        part = {k: v for k, v in part.items() if k not in ("versions", "binaries")}
    return json.dumps(part, sort_keys=True)


# ------------------------------------------------------------------- the checks


def verify_data(data: Mapping[str, Any]) -> Verdict:
    """Check the content of a certificate."""
    try:
        rows = [*_compile(data), *_measured(data["measured"]), *_stated(data)]
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            message(f"the certificate is damaged: {type(error).__name__}: {error}",
                    need="a file that f.certify wrote, unchanged")
        ) from None  # fmt: skip
    return Verdict(rows)


def _compile(data: Mapping[str, Any]) -> list[Row]:
    """Check a compile, and those of the bodies of its loops and branches."""
    plan = data["plan"]
    terms = Terms(data["nodes"], plan["sizes"])
    rows = [
        *_types(terms),
        *_rewrites(data, terms),
        *_plan(PlanCheck(plan, data["graphs"][-1], terms)),
    ]
    nested = sum(
        terms.op[step["node"]] not in FUSED and not {"body", "bodies"}.isdisjoint(attrs)
        for step in plan["steps"]
        for attrs in [terms.attrs[step["node"]]]
    )
    if nested and not data["bodies"]:
        text = "how they are compiled is not in the certificate"
        rows.append(Row("graph", f"bodies of {nested} loops or branches", "open", text))
    for number, body in enumerate(data["bodies"]):
        rows += [row._replace(item=f"body {number}: {row.item}") for row in _compile(body)]
    return rows


def _types(terms: Terms) -> list[Row]:
    """Check that nodes have the shapes that their operations give."""
    count, wrong = terms.shapes()
    rows = [Row("graph", "shape", "fails", text) for text in wrong[:SHOWN]]
    return rows or [Row("graph", "shapes", "holds", f"of {count} of {len(terms.op)} nodes")]


def _rewrites(data: Mapping[str, Any], terms: Terms) -> list[Row]:
    """Check each rewrite, and that rewrites explain what each pass returns."""
    given = [tuple(c) for c in data["plan"]["given"]]
    rows: list[Row] = []
    graphs = data["graphs"]
    for before, after in itertools.pairwise(graphs):
        name = after["pass"]
        groups: dict[tuple[str, str, str], int] = {}
        for rewrite in data["rewrites"]:
            if rewrite["pass"] != name:
                continue
            old, new, rule = rewrite["before"], rewrite["after"], rewrite["rule"]
            narrows = data["about"]["passes"].get(name) == "half"
            outcome = terms.same_types(old, new, given, narrows)
            if outcome.state != "fails":
                equal = terms.equal(old, new)
                outcome = outcome if (outcome.state, equal.state) == ("rounds", "holds") else equal
            if outcome.state in ("holds", "rounds"):
                terms.unite(old, new)
            text = outcome.how
            if outcome.state == "fails":
                text += f" (nodes {old} and {new}, {rewrite['line'] or 'no line'})"
            groups[rule, outcome.state, text] = groups.get((rule, outcome.state, text), 0) + 1
        for (rule, state, text), count in groups.items():
            times = f" x{count}" if count > 1 else ""
            rows.append(Row("rewrite", f"{name}: {rule}{times}", state, text))
        terms.close()
        rows.append(_pass(name, before, after, terms))
    used = {graph["pass"] for graph in graphs}
    if lost := [r for r in data["rewrites"] if r["pass"] not in used]:
        text = "a rewrite of a pass that has no graph"
        rows.append(Row("rewrite", lost[0]["pass"], "fails", text))
    return rows


def _pass(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], terms: Terms
) -> Row:
    old, new = _roots(before), _roots(after)
    variables = [[v for v, _ in graph["updates"]] for graph in (before, after)]
    if len(old) != len(new) or variables[0] != variables[1] or before["inputs"] != after["inputs"]:
        return Row("pass", name, "fails", "it has other inputs, results or updates than before")
    same, others = proved_roots(terms, old, new)
    text = f"{same} of {len(old)} results by checked rewrites and equal structure"
    if not others:
        return Row("pass", name, "holds", text)
    worst = min(others, key=lambda pair: ("fails", "open", "rounds", "holds").index(pair[1].state))
    return Row("pass", name, worst[1].state, f"{text}; result {worst[0]}: {worst[1].how}")


def _roots(graph: Mapping[str, Any]) -> list[int]:
    return [*graph["effects"], *graph["outputs"], *(value for _, value in graph["updates"])]


def _plan(check: PlanCheck) -> list[Row]:
    """Check order, memory and bounds."""
    rows = []
    bounds = list(check.bounds())
    sizes = "for all sizes" if check.plan["symbolic"] else "for these sizes only"
    tried = "sizes tried" in check.how
    how = "sizes tried" if tried else ", ".join(sorted(check.how)) or "no steps"
    given = ", ".join(f"{n} = {v}" for n, v in check.plan["sizes"].items()) or "fixed sizes"
    count = f"{len(check.steps)} steps"
    checks = (
        ("values fit their slots", bounds, f"{sizes}, by {how}; offsets for {given}"),
        ("reads, writes, lifetimes, results", list(check.order()), f"{count}, run with names"),
        ("streams", list(check.streams()), "conflicting steps wait"),
    )
    for item, problems, text in checks:
        if not problems:
            rows.append(Row("plan", item, "holds", text))
        for where, why in problems[:SHOWN]:
            rows.append(Row("plan", item, "fails", f"{where}: {why}"))
    for why, count_of in check.rows.items():
        state = "stated" if why.startswith("as its") else "holds"
        rows.append(Row("plan", f"in place x{count_of}", state, why))
    return rows


def _measured(measured: Mapping[str, Any]) -> list[Row]:
    """Return what was measured; of a target that is not here nothing is."""
    if not measured:
        return [Row("measured", "runs", "open", "the plan is for a device that is not here")]
    rows = [
        Row("measured", "runs give the same bits", "measured" if measured["same_bits"] else "fails",
            f"{measured['runs']} runs on the feeds")
    ]  # fmt: skip
    if measured["refused"]:
        rows = [Row("measured", "runs", "open", f"refused: {measured['refused']}")]
    precision = measured["precision"]
    if precision["ok"] is None:
        return [*rows, Row("measured", "precision", "open", precision["reason"])]
    for each in precision["measures"]:
        error, allowed = float(each["error"]), float(each["allowed"])
        state = "measured" if error <= allowed or each["name"] == "source" else "fails"
        text = f"{error:.2e} of the largest value; rounding explains {allowed:.2e}"
        rows.append(Row("measured", f"error after {each['name']}", state, text))
    if not precision["ok"] and all(row.state != "fails" for row in rows):
        rows.append(Row("measured", "precision", "fails", str(precision["blame"])))
    return rows


def _stated(data: Mapping[str, Any]) -> list[Row]:
    """Return what a file alone cannot prove."""
    program = "not checked: give the program to compare"
    tools = f"{extents.solver()} for sizes, {real_numbers().name} for functions"
    return [
        Row("stated", "the program: its source graph, lines and names", "stated", program),
        Row("stated", f"sources of {len(data['hashes']['sources'])} kernels", "stated", program),
        Row("stated", "versions, feeds, variables", "stated", program),
        Row("stated", "tools of this check", "stated", tools),
    ]

