"""`f.certify(*feeds)`: write down a compile, so that another program can check it.

A certificate has every node of every graph of the compile, every application of a rule, the plan
with its memory, what was measured, and digests of what was generated. It claims nothing by itself:
`certificate.verifying` checks it, and its verdict is stored with it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..dtypes import is_complex
from ..errors import DataError, MagmagraphError, PlanError, message
from ..files.writing import write_file
from ..inspect.checking import check as checking
from ..inspect.checking.running import Feeds, bind, run_once
from ..inspect.node_history import INSIDE, OPERANDS
from ..ir.dims import Dim
from ..ir.graph import Graph, Node, topological
from ..ir.plan import GENERATED, Place, Plan, Role, Step, Value
from ..ir.types import FilePath, Type
from ..passes.rewriting.rewrite import Rule
from ..text.writing import Writer, digest
from .verifying import SCHEMA, VERSION, Verdict, seal, verify_data

WRITTEN = 64  # elements of a constant that are written out; longer ones are named by a digest
RUNS = 3  # of a call, which must give the same bits


class Certificate:
    """What was proved and what was measured of a compile; made by `Function.certify`.

    Attributes
    ----------
    data
        The certificate as plain values: the JSON file.
    verdict
        What the verifier says of it.
    """

    def __init__(self, data: dict[str, Any], verdict: Verdict) -> None:
        self.data, self.verdict = data, verdict

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(self.data, indent=None, separators=(",", ":")) + "\n"

    def save(self, path: FilePath) -> None:
        """Write the file."""
        write_file(path, self.to_json())

    def __str__(self) -> str:
        return str(self.verdict)


def certify(function: Any, *feeds: Any, path: FilePath | None = None, **named: Any) -> Certificate:
    """Return the certificate of a function's compile; see `Function.certify`."""
    if function.communicator is not None:
        raise DataError(
            message("certify: the function runs on several ranks",
                    need="a function of one process", hint="certify it without distribute=")
        )  # fmt: skip
    data = content(function, *feeds, **named)
    verdict = verify_data(data)
    data["verdict"] = verdict.as_dict()
    seal(data)
    made = Certificate(data, verdict)
    if path is not None:
        made.save(path)
    return made


def content(function: Any, *feeds: Any, plan: Plan | None = None, **named: Any) -> dict[str, Any]:
    """Return what a certificate holds, before it is checked.

    Parameters
    ----------
    function, feeds, named
        See `Function.certify`.
    plan
        What is written in the place of the function's plan.
    """
    absent = function._settings["target"] is not None
    if absent and (feeds or named):  # their shapes say the sizes
        function.specialize(*map(np.shape, function._signature.arrange(feeds, named)))
    bound = None if absent else bind(function, feeds, named)
    # On a device steps become launches when sizes are known.
    symbolic = function._compiled.plan if plan is None and function.device == "cpu" else None
    if plan is None:
        plan = function.plan if bound is None else bound.bound.plan
    if plan.sizes is None:
        raise PlanError(
            message("certify: the sizes of dimensions are not known", need="feeds of their sizes",
                    hint="f.specialize(shape, ...) says them without feeds")
        )  # fmt: skip
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "about": _about(function, plan, bound),
        **_Writer(function).compile(plan, symbolic),
        "bodies": _bodies(function, plan),
        "measured": {} if bound is None else _measured(function, bound),
        "hashes": _hashes(function, plan),
    }


def _bodies(function: Any, plan: Plan) -> list[dict[str, Any]]:
    """Return the compiles of bodies of loops and branches, which are functions of their own."""
    found = []
    for body in function.bodies if any(s.role is Role.NESTED for s in plan.steps) else ():
        inner = body.plan_for(plan.sizes or {})
        symbolic = body._compiled.plan if body.device == "cpu" else None
        found.append(
            {
                "about": {"passes": {line.name: line.numerics for line in body.passes}},
                **_Writer(body).compile(inner, symbolic),
                "bodies": _bodies(body, inner),
                "hashes": _hashes(body, inner),
            }
        )
    return found


class _Writer:
    """The nodes of a compile, each under a number."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.text = Writer()
        self.number: dict[Node, int] = {}
        self.nodes: list[Any] = []

    def compile(self, plan: Plan, symbolic: Plan | None) -> dict[str, Any]:
        """Return nodes, graphs, rewrites, and the plan with its formulas before it has sizes."""
        steps = [(n, a, b) for n, a, b in self.function.report.steps() if isinstance(a, Graph)]
        source: Graph = self.function.source_graph
        graphs = [{"pass": "source", **self._graph(source)}]
        last = source
        for name, _, after in steps:
            if isinstance(after, Graph) and after is not last:
                graphs.append({"pass": name, **self._graph(after)})
                last = after
        rewrites = list(self._rewrites(graph["pass"] for graph in graphs))
        return {
            "graphs": graphs,
            "rewrites": rewrites,
            "plan": self._plan(plan, symbolic or plan),
            "nodes": self.nodes,
        }

    def _at(self, roots: Iterable[Node]) -> list[int]:
        roots = list(roots)
        for node in topological(roots):
            if node not in self.number:
                self.number[node] = len(self.nodes)
                self.nodes.append(self._node(node, self.number))
        return [self.number[node] for node in roots]

    def _node(self, node: Node, number: Any) -> list[Any]:
        attrs = {
            name: self._attribute(value)
            for name, value in node.attrs.items()
            if name not in ("key", "state")
        }
        if node.name and not node.inputs:
            attrs["name"] = node.name
        types = [self._type(t) for t in node.type] if isinstance(node.type, tuple) else (
            self._type(node.type)
        )  # fmt: skip
        return [node.op.name, attrs, [number[i] for i in node.inputs], types]

    def _type(self, type_: Type) -> list[Any]:
        return [type_.dtype.name, [self._extent(e) for e in type_.shape]]

    def _extent(self, extent: Any) -> Any:
        return self.text.extent(extent) if isinstance(extent, Dim) else int(extent)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Dim):
            return {"extent": self.text.extent(value)}
        if isinstance(value, np.dtype):
            return {"dtype": value.name}
        if isinstance(value, (tuple, list)):
            return [self._attribute(v) for v in value]
        if isinstance(value, Graph):
            number = {n: i for i, n in enumerate(value.nodes)}
            return {
                "graph": {
                    "nodes": [self._node(n, number) for n in value.nodes],
                    "inputs": [number[n] for n in value.inputs],
                    "outputs": [number[n] for n in value.outputs],
                }
            }
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if isinstance(value, float) and not np.isfinite(value):
            return {"array": ["float64", [], [repr(value)]]}
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        return {"code": type(value).__name__}

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        if array.size > WRITTEN and (array == array.flat[0]).all() and not is_complex(array.dtype):
            return {**self._array(array.ravel()[:1]), "full": list(array.shape)}
        if array.size > WRITTEN or is_complex(array.dtype):
            return {"digest": digest(array), "dtype": array.dtype.name}
        elements = [
            repr(v) if isinstance(v, float) and not np.isfinite(v) else v
            for v in array.astype(np.float64 if array.dtype.kind not in "biu" else array.dtype)
            .ravel()
            .tolist()
        ]
        return {"array": [array.dtype.name, list(array.shape), elements]}

    def _graph(self, graph: Graph) -> dict[str, Any]:
        pairs = [node for pair in graph.updates for node in pair]
        return {
            "inputs": self._at(graph.inputs),
            "effects": self._at(graph.effects),
            "outputs": self._at(graph.outputs),
            "updates": [list(p) for p in zip(*[iter(self._at(pairs))] * 2, strict=True)],
        }

    def _rewrites(self, names: Iterable[str]) -> Iterable[dict[str, Any]]:
        """Give each application of a rule, with the line of the rule and of the program."""
        trace, places = self.function.trace, _places(self.function)
        for name in names:
            for old in [n for n, made in trace.became.items() if any(m[0] == name for m in made)]:
                for by, rule, new in trace.became[old]:
                    if by != name or rule in (OPERANDS, INSIDE):
                        continue
                    before, after = self._at([old, new])
                    yield {
                        "pass": name,
                        "rule": rule,
                        "defined": places.get((name, rule), places.get((name, ""), "")),
                        "line": str(old.line) if old.line else "",
                        "before": before,
                        "after": after,
                    }

    # ------------------------------------------------------------------ the plan

    def _plan(self, plan: Plan, whole: Plan) -> dict[str, Any]:
        slots = []
        for slot, formula in zip(plan.slots, (s.size for s in whole.slots), strict=True):
            slots.append(
                {
                    "place": slot.place.value,
                    "bytes": int(slot.size),
                    "formula": self._extent(formula),
                    "offset": slot.offset,
                    "first": slot.first,
                    "last": slot.last,
                    "of": self._owner(slot),
                }
            )
        return {
            "sizes": dict(plan.sizes or {}),
            "symbolic": whole is not plan,
            "given": [
                [str(self._extent(c.left)), c.relation, str(self._extent(c.right))]
                for c, _ in plan.constraints
            ],
            "arena": plan.arena,
            "commit": plan.commit,
            "guard": plan.guard,
            "slots": slots,
            "steps": [
                self._step(*pair) for pair in zip(plan.steps, whole.steps, strict=True)
            ],
            "fetches": [self._value(value) for value in plan.fetches],
        }

    def _owner(self, slot: Any) -> Any:
        if slot.place is Place.FEED:
            keys = [n.attrs.get("key", n) for n in self.function.source_graph.inputs]
            return keys.index(slot.owner)
        if slot.place is Place.STATE:
            for node, at in self.number.items():
                if node.attrs.get("state") is slot.owner:
                    return at
        if slot.place is Place.CONSTANT:
            return self._at([slot.owner])[0]
        return slot.owner if slot.place is Place.RESULT else None

    def _value(self, value: Value) -> list[Any]:
        return [value.slot, *self._type(value.type)]

    def _values(self, values: Sequence[Value], whole: Sequence[Value]) -> list[list[Any]]:
        return [[v.slot, *self._type(w.type)] for v, w in zip(values, whole, strict=True)]

    def _step(self, step: Step, whole: Step) -> dict[str, Any]:
        """Return a step; of `whole`, the same in the symbolic plan, come the types of values."""
        return {
            "kernel": step.kernel,
            "role": step.role.name.lower(),
            "node": self._at([step.node])[0],
            "made": self._at([step.node if step.origin is None else step.origin])[0],
            "results": list(step.results),
            "reads": self._values(step.inputs, whole.inputs),
            "writes": self._values(step.outputs, whole.outputs),
            "scratch": list(step.scratch),
            "can_fail": step.can_fail,
            "parts": [self._step(part, part) for part in step.parts],
            "stream": step.stream,
            "waits": list(step.waits),
        }


def _places(function: Any) -> dict[tuple[str, str], str]:
    """Return where each rule of the passes is defined, and each pass under the empty rule."""
    found: dict[tuple[str, str], str] = {}
    for line in function.passes:
        found[line.name, ""] = _place(line.function)
        module = sys.modules.get(getattr(line.function, "__module__", ""), None)
        room = getattr(module, "__package__", "") or ""
        for name, other in list(sys.modules.items()):
            if room and name.startswith(room + ".") and room.count(".") > 1:
                for rule in _rules(vars(other).values()):
                    found.setdefault((line.name, rule.name), _place(rule.replacement))
    return found


def _rules(values: Iterable[Any]) -> Iterable[Rule]:
    for value in list(values):
        if isinstance(value, Rule):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (each for each in value if isinstance(each, Rule))


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    file = code.co_filename.replace("\\", "/").rpartition("/magmagraph/")
    return f"{'magmagraph/' if file[1] else ''}{file[2]}:{code.co_firstlineno}"


# ------------------------------------------------------------------- measured, and hashed


def _measured(function: Any, bound: Feeds) -> dict[str, Any]:
    """Return whether runs give the same bits, and the errors of each pass on these feeds."""
    first, refused = run_once(function, bound)
    same = all(
        _bits(first) == _bits(run_once(function, bound)[0]) for _ in range(RUNS - 1)
    )
    try:
        check = checking.check(function, *bound.arrays)
        precision: dict[str, Any] = {
            "ok": check.ok,
            "reference": "the source graph in float64",
            "measures": [measure.as_dict() for measure in check.measures],
            "changes": {
                name: checking.plain(max(errors.values(), default=0.0))
                for name, errors in check.pass_errors.items()
            },
            "blame": None if check.blame is None else str(check.blame).splitlines()[0],
        }
    except MagmagraphError as error:  # what has no reference in float64
        precision = {"ok": None, "reason": str(error).splitlines()[0]}
    return {
        "runs": RUNS,
        "same_bits": same,
        "refused": refused,
        "results": hashlib.sha256(_bits(first)).hexdigest(),
        "precision": precision,
    }


def _bits(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def _about(function: Any, plan: Plan, bound: Feeds | None) -> dict[str, Any]:
    arrays = [None] * len(function.inputs) if bound is None else bound.arrays
    return {
        "function": function.name or "",
        "device": function.device,
        "precision": function._settings["precision"],
        "deterministic": plan.deterministic,
        "passes": {line.name: line.numerics for line in function.passes},
        "versions": {
            "magmagraph": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        "feeds": [
            {
                "name": node.name,
                "dtype": node.dtype.name,
                "shape": [] if array is None else list(array.shape),
                "sha256": "" if array is None else hashlib.sha256(_bits([array])).hexdigest(),
            }
            for node, array in zip(function.inputs, arrays, strict=True)
        ],
        "variables": [
            {"name": name, "dtype": node.dtype.name, "shape": [int(e) for e in node.shape]}
            for name, node in function.variables.items()
        ],
    }


def _hashes(function: Any, plan: Plan) -> dict[str, Any]:
    """Return digests of the plan, and of the source of each generated kernel."""
    steps = {}
    for number, step in enumerate(plan.steps):
        if step.role in GENERATED or step.role is Role.REGION:
            try:
                steps[str(number)] = _sha(function.source(number))
            except MagmagraphError:  # a launch whose source another one has
                continue
    return {
        "sources": steps,
        "binaries": _binaries(function),
    }


def _binaries(function: Any) -> list[str]:
    """Return digests of the compiled libraries, on the CPU."""
    kernels = getattr(getattr(function._compiled, "prepared", None), "kernels", None)
    paths = [] if kernels is None else [Path(library._name) for library in kernels.libraries]
    return sorted(hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file())


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
