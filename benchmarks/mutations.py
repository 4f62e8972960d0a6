"""Claim: certificates, `f.check` and the tests together catch seeded bugs of the compiler.

Each mutant is one bug: in what a rule returns or when it applies, in a plan, or in the C of a
kernel. Three judges look at it: the proofs of the certificate (rewrites, passes, plan), `f.check`
on random feeds (which is also what a certificate measures), and the tests (golden files for rules,
the plan interpreter for plans, results against NumPy for kernels). Mutants that mean the same are
told apart and counted: rewrites that hold in exact arithmetic or give the same graph, kernels whose
results differ by rounding at most, at all sizes tried. ``--small`` runs 20 mutants.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import common
import numpy as np
import opening

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "replay")]

import magmagraph as mg  # noqa: E402
from magmagraph.certificate.verifying import verify_data  # noqa: E402
from magmagraph.certificate.writing import content  # noqa: E402
from magmagraph.errors import MagmagraphError  # noqa: E402
from magmagraph.ir.graph import Trace  # noqa: E402
from magmagraph.ir.interpret import evaluate  # noqa: E402
from magmagraph.ir.plan import Place, Role  # noqa: E402
from magmagraph.passes import pipeline  # noqa: E402
from magmagraph.passes.lowering.specialize import lay_out  # noqa: E402
from magmagraph.passes.rewriting.rewrite import Rewriter  # noqa: E402
from magmagraph.text.reading import load  # noqa: E402
from magmagraph.text.writing import dump  # noqa: E402

SEED = 29
COUNTS = {"rule": 100, "plan": 60, "kernel": 40}
SMALL = {"rule": 10, "plan": 8, "kernel": 2}
JUDGES = ("proof", "check", "tests")


class Judged(NamedTuple):
    """A mutant, and who caught it.

    Attributes
    ----------
    area, kind, where
        Rule, plan or kernel; what was changed; and in which.
    caught
        The judges; empty where none did.
    same
        Why the mutant is no bug, or empty.
    """

    area: str
    kind: str
    where: str
    caught: tuple[str, ...]
    same: str = ""


# ------------------------------------------------------------------------------------ rules


def negated(node: Any) -> Any:
    return -node


def doubled(node: Any) -> Any:
    return node * 2.0


def shifted(node: Any) -> Any:
    return node + 0.5


def with_other_constant(node: Any) -> Any:
    """Return a node with its first constant changed by a hundredth."""
    for i, operand in enumerate(node.inputs):
        value = operand.attrs.get("value")
        if value is not None and operand.dtype.kind == "f" and np.all(np.isfinite(value)):
            other = mg.constant((np.asarray(value) * 1.01 + 0.01).astype(operand.dtype))
            return node.op(*node.inputs[:i], other, *node.inputs[i + 1 :], **node.attrs)
    return None


def with_exchanged_operands(node: Any) -> Any:
    apart = len(node.inputs) == 2 and node.inputs[0] is not node.inputs[1]
    if apart and not node.op.scalar.commutative:
        return node.op(*reversed(node.inputs), **node.attrs)
    return None


def of_first_operand(node: Any) -> Any:
    return next((i for i in node.inputs if i.type == node.type), None)


OTHER = {
    "add": mg.subtract, "subtract": mg.add, "multiply": mg.divide, "divide": mg.multiply,
    "exp": mg.expm1, "log": mg.log1p, "sqrt": mg.square, "maximum": mg.minimum,
    "sigmoid": mg.tanh, "softplus": mg.relu, "expm1": mg.exp, "negative": mg.absolute,
}  # fmt: skip


def with_other_operation(node: Any) -> Any:
    other = OTHER.get(node.op.name)
    return None if other is None else other(*node.inputs)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "wrong sign": negated,
    "wrong factor": doubled,
    "wrong addend": shifted,
    "wrong constant": with_other_constant,
    "exchanged operands": with_exchanged_operands,
    "lost operation": of_first_operand,
    "other operation": with_other_operation,
}
DROPPED = "dropped condition"


@contextlib.contextmanager
def mutated_rule(name: str, kind: str) -> Iterator[list[int]]:
    """Change what a rule returns the first time that it applies, or drop its condition."""
    usual, applied = Rewriter._at, [0]

    def at(self: Any, rule: Any, match: Any) -> Any:
        if rule.name != name or applied[0]:
            return usual(self, rule, match)
        if kind == DROPPED:
            if rule.check is None or rule.check(match) is None:
                return usual(self, rule, match)
            with contextlib.suppress(MagmagraphError, TypeError, ValueError, AttributeError):
                made = usual(self, dataclasses.replace(rule, check=None), match)
                applied[0] += made is not None
                return made
            return None
        right = rule.check is None or rule.check(match) is None
        made = rule.replacement(match) if right else None
        wrong = None
        if made is not None and made.type == match.root.type:
            with contextlib.suppress(MagmagraphError, TypeError, ValueError, AttributeError):
                wrong = CHANGES[kind](made)
        if wrong is None or wrong.type != match.root.type:
            return usual(self, rule, match)
        applied[0] += 1
        bad = dataclasses.replace(rule, replacement=lambda _: wrong, check=None)
        return usual(self, bad, match)

    with mock.patch.object(Rewriter, "_at", at):
        yield applied


def golden(name: str) -> Iterator[tuple[str, str]]:
    """Give the title and the graph of each golden file of a pass that needs no options."""
    for file in sorted((TESTS / "golden" / name).glob("*.txt")):
        _, *rest = re.split(r"^--- (\w+)\n", file.read_text(), flags=re.MULTILINE)
        parts = dict(zip(rest[::2], rest[1::2], strict=True))
        if "options" not in parts:
            yield file.stem, parts["before"].strip()


def as_function(text: str) -> Any:
    graph = load(text)
    return mg.function(list(graph.inputs), list(graph.outputs), list(graph.updates),
                       default_updates=False, device="cpu")  # fmt: skip


def feeds_of(function: Any) -> list[np.ndarray]:
    """Return random feeds of the types of a function's inputs."""
    from magmagraph.cli.target import random_feeds

    names = {n for node in function.inputs for e in node.shape for n in mg_names(e)}
    return list(random_feeds(function, dict.fromkeys(names, 6), SEED)[0])


def mg_names(extent: Any) -> Any:
    from magmagraph.ir import dims

    return dims.names(extent)


def rule_mutants() -> list[tuple[str, str, str, str, str]]:
    """Return (pass, case, graph, rule, kind) for all rules that golden files apply or refuse."""
    found = []
    for name in ("simplify", "contract"):
        for case, text in golden(name):
            with contextlib.suppress(MagmagraphError):
                passes = [line for line in pipeline.DEFAULT if line.name == name]
                record = pipeline.run(load(text), Trace(), passes=passes)[1][name]
                rules = dict.fromkeys((*record.hits, *(r.rule for r in record.refusals)))
                found += [(name, case, text, rule, kind) for rule in rules
                          for kind in (*CHANGES, DROPPED)]  # fmt: skip
    return found


def judge_rule(name: str, case: str, text: str, rule: str, kind: str) -> Judged | None:
    """Return who catches a mutant of a rule; None where it changes nothing."""
    where = f"{name}: {rule} ({case})"
    caught: list[str] = []
    same = ""
    with mutated_rule(rule, kind) as applied, mock.patch.object(mg.config, "compiler", "off"):
        try:
            function = as_function(text)
            function.compile()
        except MagmagraphError:
            return Judged("rule", kind, where, ("tests",)) if applied[0] else None
        if not applied[0]:
            return None
        try:
            feeds = feeds_of(function)
            verdict = verify_data(content(function, *feeds))
        except MagmagraphError:
            return None
        proofs = [row for row in verdict.rows if row.part in ("rewrite", "pass", "plan")]
        if any(row.state == "fails" for row in proofs):
            caught.append("proof")
        elif all(row.state == "holds" for row in proofs):
            same = "holds in exact arithmetic"
        if any(row.state == "fails" for row in verdict.rows if row.part == "measured"):
            caught.append("check")
    clean = transformed(name, text)
    with mutated_rule(rule, kind):
        if transformed(name, text) != clean:
            caught.append("tests")
        elif not caught:
            same = same or "gives the same graph"
    return Judged("rule", kind, where, tuple(caught), same if caught in ([], ["tests"]) else "")


def transformed(name: str, text: str) -> str:
    """Return what a golden file holds: the text of the graph after the pass."""
    passes = [line for line in pipeline.DEFAULT if line.name == name]
    options = pipeline.Options.make(tuning=False)
    try:
        after, _ = pipeline.run(load(text), Trace(), passes=passes, options=options)
    except MagmagraphError as error:
        return str(error)
    return dump(after)


# ------------------------------------------------------------------------------------ plans


def replaced(items: tuple[Any, ...], at: int, new: Any) -> tuple[Any, ...]:
    return (*items[:at], *([] if new is None else [new]), *items[at + 1 :])


def arena(plan: Any) -> list[Any]:
    return [s for s in plan.slots if s.place is Place.ARENA and s.size and s.offset is not None]


def overlapping(plan: Any) -> bool:
    """Return whether slots that are alive together share bytes."""
    return any(
        a.first <= b.last and b.first <= a.last
        and a.offset < b.offset + b.size and b.offset < a.offset + a.size
        for a, b in itertools.combinations(arena(plan), 2)
    )  # fmt: skip


def is_inside(plan: Any) -> bool:
    """Return whether all slots end within the arena: else a run would write to memory of others."""
    return all(slot.offset + slot.size <= plan.arena for slot in arena(plan))


def with_slot(plan: Any, slot: Any, **changed: Any) -> Any:
    new = dataclasses.replace(slot, **changed)
    return dataclasses.replace(plan, slots=replaced(plan.slots, slot.index, new))


def with_step(plan: Any, at: int, **changed: Any) -> Any:
    new = dataclasses.replace(plan.steps[at], **changed)
    return dataclasses.replace(plan, steps=replaced(plan.steps, at, new))


def plan_changes(plan: Any) -> Iterator[tuple[str, Any]]:
    """Give (kind, plan) for all changes that break it."""
    slots = arena(plan)
    for a, b in itertools.combinations(slots, 2):
        moved = with_slot(with_slot(plan, a, offset=b.offset), b, offset=a.offset)
        if overlapping(moved):
            yield "swapped offsets", moved
    for slot in slots:
        outside = (plan.arena or 0) - slot.size + 64
        yield "offset out of bounds", with_slot(plan, slot, offset=outside)
        held = [v.type.bytes for s in plan.steps for v in (*s.inputs, *s.outputs)
                if v.slot == slot.index]  # fmt: skip
        if held:  # else it is scratch memory, whose use a plan does not say
            yield "slot too short", with_slot(plan, slot, size=max(held) - 4)
        if slot.offset:
            low = with_slot(plan, slot, offset=slot.offset - 64)
            if overlapping(low):
                yield "offset too low", low
        if slot.last > slot.first:
            short = with_slot(plan, slot, last=slot.first)
            again = [s for s in short.slots if s.place is Place.ARENA]
            offsets, total = lay_out(again)
            new = list(short.slots)
            for s, offset in zip(again, offsets, strict=True):
                new[s.index] = dataclasses.replace(s, offset=offset)
            yield "shortened lifetime", dataclasses.replace(short, slots=tuple(new), arena=total)
    for at, step in enumerate(plan.steps):
        if step.waits:
            yield "dropped wait", with_step(plan, at, waits=())
        if step.role is Role.COPY:
            steps = replaced(plan.steps, at, None)
            yield "dropped copy", dataclasses.replace(plan, steps=steps)
        for i, j in itertools.combinations(range(len(step.inputs)), 2):
            a, b = step.inputs[i], step.inputs[j]
            if a.type == b.type and a.slot != b.slot and not step.parts:
                swapped = list(step.inputs)
                swapped[i], swapped[j] = b, a
                yield "swapped operands", with_step(plan, at, inputs=tuple(swapped))
        for i, out in enumerate(step.outputs):
            for value in step.inputs:
                later = any(v.slot == value.slot for s in plan.steps[at + 1 :] for v in s.inputs)
                if (later and value.slot != out.slot and value.type == out.type and not step.parts
                        and plan.slots[value.slot].place is Place.ARENA):  # fmt: skip
                    new = replaced(step.outputs, i, dataclasses.replace(out, slot=value.slot))
                    yield "wrong in-place pair", with_step(plan, at, outputs=new)
        if at and not step.waits and step.stream is None:
            made = {v.slot for v in plan.steps[at - 1].outputs}
            if made & {v.slot for v in step.inputs}:
                steps = list(plan.steps)
                steps[at - 1 : at + 1] = steps[at], steps[at - 1]
                yield "swapped steps", dataclasses.replace(plan, steps=tuple(steps))
    if plan.arena:
        yield "arena too small", dataclasses.replace(plan, arena=plan.arena - 64)
    writes = [i for i, s in enumerate(plan.steps)
              if any(plan.slots[v.slot].place is Place.STATE for v in s.outputs)]  # fmt: skip
    if writes:
        yield "commit point too late", dataclasses.replace(plan, commit=writes[-1] + 1)
    for i, j in itertools.combinations(range(len(plan.fetches)), 2):
        if plan.fetches[i].type == plan.fetches[j].type:
            fetches = list(plan.fetches)
            fetches[i], fetches[j] = fetches[j], fetches[i]
            yield "swapped results", dataclasses.replace(plan, fetches=tuple(fetches))


def plan_programs(few: bool) -> list[tuple[str, Any, list[np.ndarray]]]:
    """Return functions with plans that are made for this machine, and for one that is not here."""
    import replay_programs

    found = []
    here = ("second_derivatives", "normalizations", "step_with_adam", "attention_step")
    for name in here[:2] if few else here:
        function, feeds = replay_programs.PROGRAMS[name]({})
        found.append((name, function, feeds))
    there = ("step_of_one_layer", "attention_step", "normalizations")
    for name in there[:1] if few else there:
        function, feeds = replay_programs.PROGRAMS[name]({"target": mg.Target.made_up("h200")})
        function.specialize(*[np.shape(x) for x in feeds])
        found.append((f"{name} on a made-up GPU", function, feeds))
    return found


def judge_plan(name: str, function: Any, feeds: list[np.ndarray], kind: str, plan: Any) -> Judged:
    """Return who catches a mutant of a plan."""
    from plan_interpreter import Interpreter, random_order

    caught = []
    data = content(function, *(feeds if function.device == "cpu" else ()), plan=plan)
    rows = verify_data(data).rows
    if any(row.state == "fails" for row in rows if row.part == "plan"):
        caught.append("proof")
    if function.device == "cpu" and is_inside(plan):
        wrong = function._compiled.bind(plan)
        wrong.ranks = wrong.meet = None
        with mock.patch.dict(function._bound, {function._last_shapes: wrong}):
            if not function.check(*feeds).ok:
                caught.append("check")
        function.specialize(*map(np.shape, feeds))
    source = function.source_graph
    fed = dict(zip(source.inputs, feeds, strict=True))
    values = evaluate(source, fed, plan.sizes)
    expected = [values[root] for root in source.outputs]
    updates = {v.attrs["state"].name: values[n] for v, n in source.updates}
    rng = np.random.default_rng(SEED)
    streams = any(step.stream is not None for step in plan.steps)
    for _ in range(4 if streams else 1):
        try:
            memory = Interpreter(plan, feeds)
            results = memory.run(random_order(plan, rng) if streams else None)
            states = memory.variables()
            right = all(map(near, results, expected)) and all(
                near(states[k], v) for k, v in updates.items() if k in states
            )
        except Exception:
            right = False
        if not right:
            caught.append("tests")
            break
    return Judged("plan", kind, name, tuple(caught))


def near(found: Any, expected: Any) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.allclose(found, expected, rtol=2e-3, atol=2e-4, equal_nan=True))


# ------------------------------------------------------------------------------------ kernels

TEXT_CHANGES: tuple[tuple[str, str, str], ...] = (
    ("bound too low", r"(for \(.*? < )(\w+)(;)", r"\1\2 - 1\3"),
    ("start too high", r"(for \(\w+ \w+ = )0(;)", r"\g<1>1\2"),
    ("sum for difference", r"(= .*\w\)?) - (\(?\w)", r"\1 + \2"),
    ("difference for sum", r"(= .*\w\)?) \+ (\(?\w)", r"\1 - \2"),
    ("quotient for product", r"(= .*\w\)?) \* (\(?\w)", r"\1 / \2"),
    ("other function", r"expf?\(", "fabsf("),
    ("other constant", r"\b0\.([0-9]+)", r"0.1\1"),
    ("narrower cast", r"(?<=[ (*+=-])\(float\)", "(short)"),
)


def kernel_programs() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Return functions of a named size: each gives a function, and feeds for a size."""

    def rows(build: Callable[[Any], Any]) -> Callable[[], tuple[Any, Any]]:
        def make() -> tuple[Any, Any]:
            x = mg.var("x", shape=("n", 24))
            rng = np.random.default_rng(SEED)
            return mg.function([x], build(x)), lambda n: [rng.normal(size=(n, 24)).astype("f4")]

        return make

    return {
        "softmax": rows(lambda x: mg.softmax(x, axis=-1)),
        "layer norm": rows(mg.layer_norm),
        "polynomial": rows(lambda x: 0.25 * x * x - 0.5 * x + x / (1.0 + x * x)),
        "column sums": rows(lambda x: [mg.sum(x * x, axis=0), mg.sum(mg.exp(-x), axis=0)]),
        "softplus": rows(lambda x: mg.mean(mg.softplus(x) - 0.5 * x, axis=1)),
    }


def kernel_mutants() -> list[tuple[str, str, int]]:
    """Return (program, kind, which occurrence) of all changes of texts."""
    from magmagraph.codegen.c.step import step_code
    from magmagraph.runtime.cpu.backend import bodies_of

    found = []
    for name, make in kernel_programs().items():
        function = make()[0].compile()
        fused = [s for s in function.plan.steps if s.role is Role.REGION]
        text = "".join(step_code(bodies_of(step)).text() for step in fused)
        for kind, pattern, _ in TEXT_CHANGES:
            found += [(name, kind, i) for i, _ in enumerate(re.finditer(pattern, text))]
    return found


def changed_text(text: str, kind: str, which: int) -> str:
    pattern, new = next((p, n) for k, p, n in TEXT_CHANGES if k == kind)
    places = list(re.finditer(pattern, text))
    if which >= len(places):
        return text
    place = places[which]
    return text[: place.start()] + place.expand(new) + text[place.end() :]


def run_kernel(name: str, kind: str, which: int) -> dict[str, Any]:
    """Judge one mutant of a kernel, in this process: it may end it."""
    from magmagraph.runtime.cpu import fused

    usual = fused.assemble
    clean, feed = kernel_programs()[name]()
    # Large numbers first: what a kernel leaves in memory must not matter to the next call.
    batches = [[80 * x for x in feed(50)], *(feed(n) for n in (1, 7, 50, 3001))]
    right = [reference(clean, batch) for batch in batches]
    changed = []

    def assemble(codes: Any) -> str:
        text = usual(codes)
        changed.append(changed_text(text, kind, which) != text)
        return changed_text(text, kind, which)

    with mock.patch.object(fused, "assemble", assemble):
        function = kernel_programs()[name]()[0]
        try:
            results = [listed(function(*batch)) for batch in batches]
        except MagmagraphError:
            return {"changed": any(changed), "caught": ["tests"]}
    caught = []
    if not all(function.check(*batch).ok for batch in batches):
        caught.append("check")
    pairs = [pair for r, e in zip(results, right, strict=True) for pair in zip(r, e, strict=True)]
    if not all(itertools.starmap(near, pairs)):
        caught.append("tests")
    usual_results = [r for batch in batches for r in listed(clean(*batch))]
    pairs = zip([r for result in results for r in result], usual_results, strict=True)
    same = all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in pairs)
    return {"changed": any(changed), "caught": caught, "same": same and not caught}


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def reference(function: Any, feeds: list[np.ndarray]) -> list[Any]:
    graph = function.source_graph
    values = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)), {"n": len(feeds[0])})
    return [values[root] for root in graph.outputs]


def judge_kernel(name: str, kind: str, which: int) -> Judged | None:
    where = f"{name}, place {which}"
    command = [sys.executable, __file__, "--kernel", name, kind, str(which)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return Judged("kernel", kind, where, ("tests",))
    if done.returncode:
        return Judged("kernel", kind, where, ("tests",))  # it crashed
    found = json.loads(done.stdout.splitlines()[-1])
    if not found["changed"]:
        return None
    return Judged("kernel", kind, where, tuple(found["caught"]),
                  "no effect but rounding" if found.get("same") else "")  # fmt: skip


# ------------------------------------------------------------------------------------ all


def mutants(counts: dict[str, int], seed: int = SEED) -> Iterator[Judged]:
    """Judge so many mutants of each area, drawn by a seed; those without effect come on top."""
    rng = random.Random(seed)
    rules = rule_mutants() if counts["rule"] else []
    yield from drawn(rules, judge_rule, counts["rule"], rng)
    plans = []
    few = counts["plan"] < COUNTS["plan"]
    for name, function, feeds in plan_programs(few) if counts["plan"] else ():
        if function.device == "cpu":
            function(*feeds)
        by_kind = collections.defaultdict(list)
        for kind, plan in plan_changes(function.plan):
            by_kind[kind].append((name, function, feeds, kind, plan))
        for changes in by_kind.values():  # a few of each kind
            plans += rng.sample(changes, min(4, len(changes)))
    yield from drawn(plans, judge_plan, counts["plan"], rng)
    kernels = kernel_mutants() if counts["kernel"] else []
    yield from drawn(kernels, judge_kernel, counts["kernel"], rng)


def drawn(
    found: list[Any], judge: Callable[..., Judged | None], count: int, rng: Any
) -> Iterator[Judged]:
    rng.shuffle(found)
    for arguments in found:
        if not count:
            return
        judged = judge(*arguments)
        if judged is not None:
            yield judged
            count -= not judged.same


def main() -> None:
    if sys.argv[1:2] == ["--kernel"]:
        name, kind, which = sys.argv[2:5]
        print(json.dumps(run_kernel(name, kind, int(which))))
        return
    opening.words(__doc__, "--small")
    warnings.simplefilter("ignore")
    small = "--small" in sys.argv
    judged = []
    for each in mutants(SMALL if small else COUNTS):
        judged.append(each)
        if not each.caught and not each.same:
            print("MISSED", each, flush=True)
    bugs = [j for j in judged if not j.same]
    kinds = list(dict.fromkeys((j.area, j.kind) for j in judged))
    rows = [("area", "kind of bug", "bugs", *JUDGES, "missed", "no bug")]
    for area, kind in kinds:
        of = [j for j in bugs if (j.area, j.kind) == (area, kind)]
        by = [sum(judge in j.caught for j in of) for judge in JUDGES]
        none = sum(j.same != "" for j in judged if (j.area, j.kind) == (area, kind))
        rows.append((area, kind, *map(str, (len(of), *by, sum(not j.caught for j in of), none))))
    totals = [sum(judge in j.caught for j in bugs) for judge in JUDGES]
    missed = sum(not j.caught for j in bugs)
    rows.append(("all", "", *map(str, (len(bugs), *totals, missed, len(judged) - len(bugs)))))
    from magmagraph.ir.tables import table

    print(table(rows, left=(0, 1)))
    if not small:
        common.write("mutations", [j._asdict() for j in judged], seed=SEED, table=rows)


if __name__ == "__main__":
    main()
