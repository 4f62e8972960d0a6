"""Check a recorded plan: what each step reads, where memory lies, and what is left at the end.

The plan is run with names in the place of numbers: a slot holds the name of the value that was
last written to it, and nothing once bytes of it are written over. Each step must find the values
that its node reads, and the end must be the results of the graph. So one walk checks order,
lifetimes, use of memory again, copies, and what is written in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import DataError
from . import extents
from .proof import FUSED, Terms

ALIGNMENT = 64
ALIASES = (
    "reshape", "recompute", "checkpoint", "checkpoint_name", "custom_gradient", "stop_gradient",
    "marker", "sent_when", "class_labels", "stateful",
)  # operations whose result is their operand's memory
FACTORS = {"gemm": 2, "matmul": 2, "syrk": 2, "gemv_sum": 1}  # operands that are read throughout
REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all")
MOVING = (
    "slice", "place", "concatenate", "join_pieces", "broadcast_to", "take",
    "scatter_add", "sort", "argsort", "cumsum", "cumprod", "matmul", "gemm",
)  # fmt: skip

PLACES = ("feed", "state", "constant", "result", "arena", "inside")

Key = tuple[int, int]  # a node, and which of its results
Problems = Iterator[tuple[str, str]]  # what was checked, and what is wrong


def type_bytes(dtype: str, shape: Sequence[Any]) -> str:
    """Return the formula of the bytes of an array."""
    bits = re.search(r"\d+", dtype)
    size = max(1, int(bits[0]) // 8) if bits else 1
    return "*".join([str(size), *(f"({e})" for e in shape)])


class PlanCheck:
    """The check of one plan.

    Parameters
    ----------
    plan, graph
        As recorded: the plan, and the last graph.
    terms
        The nodes.
    """

    def __init__(self, plan: Mapping[str, Any], graph: Mapping[str, Any], terms: Terms) -> None:
        self.plan, self.graph, self.terms = plan, graph, terms
        self.slots: list[Mapping[str, Any]] = plan["slots"]
        self.steps: list[Mapping[str, Any]] = plan["steps"]
        self.holds: dict[int, Key | None] = {}
        self.opened: set[int] = set()  # what launches compute up to their sums, which others end
        self.how: set[str] = set()  # by what inequalities were decided
        self.rows: dict[str, int] = {}  # pairs written in place, by the reason why they may be
        for step in self.steps:
            for _, part in _parts(step):
                for number in (*_slots(part["reads"]), *_slots(part["writes"]), *part["scratch"]):
                    if not 0 <= number < len(self.slots):
                        raise DataError(f"the plan has no slot {number}")

    def key(self, node: int) -> Key:
        """Return whose memory holds a node's value, through items and aliases."""
        index, terms = 0, self.terms
        while terms.inputs[node] and (terms.op[node] == "item" or terms.op[node] in ALIASES):
            if terms.op[node] == "item":
                index = int(terms.attrs[node]["index"])
            node = terms.inputs[node][0]
        return node, index

    # ------------------------------------------------------------------ bounds

    def bounds(self) -> Problems:
        """Check that values fit into their slots for all sizes, and slots into the arena."""
        given = [tuple(c) for c in self.plan["given"]] if self.plan["symbolic"] else []
        sizes, arena = self.plan["sizes"], self.plan["arena"]
        seen: set[tuple[int, str]] = set()
        for at, part in ((i, p) for i, s in enumerate(self.steps) for _, p in _parts(s)):
            for slot, dtype, shape in (*part["reads"], *part["writes"]):
                needed = type_bytes(dtype, shape)
                if (slot, needed) in seen or self.slots[slot]["place"] == "inside":
                    continue
                seen.add((slot, needed))
                formula = str(self.slots[slot]["formula"])
                true, how = extents.holds(needed, "<=", formula, sizes, given)
                self.how.add(how)
                if not true:
                    yield f"step {at}", f"{needed} bytes in slot {slot} of {formula}, for {how}"
        for number, slot in enumerate(self.slots):
            if extents.evaluate(slot["formula"], sizes) != slot["bytes"] or slot["bytes"] < 0:
                yield f"slot {number}", f"{slot['bytes']} bytes are not {slot['formula']}"
            if slot["place"] not in PLACES:
                yield f"slot {number}", f"there is no place {slot['place']!r}"
            if slot["place"] != "arena":
                continue
            low, high = slot["offset"], slot["offset"] + slot["bytes"]
            if low < 0 or high > arena or low % ALIGNMENT:
                yield f"slot {number}", f"bytes {low} to {high} of an arena of {arena}"

    # ------------------------------------------------------------------ order and memory

    def order(self) -> Problems:
        """Walk through the steps with names for values."""
        for number, slot in enumerate(self.slots):
            place = slot["place"]
            if place in ("feed", "state", "constant"):
                node = self.graph["inputs"][slot["of"]] if place == "feed" else slot["of"]
                self.holds[number] = (node, 0)
        for at, step in enumerate(self.steps):
            yield from self._step(at, step)
        for i, (slot, *type_) in enumerate(self.plan["fetches"]):
            expected = self.key(self.graph["outputs"][i])
            if not self._is_of_type(type_, self.terms.type[self.graph["outputs"][i]]):
                yield f"result {i}", f"it is returned as {type_}"
            if self.slots[slot]["place"] != "result" or self.slots[slot]["of"] != i:
                yield f"result {i}", f"it is slot {slot}, which is not the caller's"
            elif self.holds.get(slot) != expected:
                yield f"result {i}", f"slot {slot} holds {self._name(self.holds.get(slot))}"
        if len(self.plan["fetches"]) != len(self.graph["outputs"]):
            yield "results", "their number is not the graph's"
        updates = {variable: self.key(value) for variable, value in self.graph["updates"]}
        written: set[int] = set()
        for number, slot in enumerate(self.slots):
            if slot["place"] == "state":
                written.add(slot["of"])
                expected = updates.get(slot["of"], (slot["of"], 0))
                if self.holds[number] != expected:
                    yield f"variable in slot {number}", (
                        f"it ends as {self._name(self.holds[number])}, "
                        f"not as {self._name(expected)}"
                    )
        for variable, key in updates.items():
            if variable not in written and key != (variable, 0):
                yield f"variable {self._name((variable, 0))}", "its update is not written"

    def _step(self, at: int, step: Mapping[str, Any]) -> Problems:
        label = f"step {at} ({step['kernel']})"
        inside: dict[int, Key] = {}
        if step["role"] == "wait":  # what it waits for was written before, as far as names go
            for result, slot in enumerate(_slots(step["writes"])):
                if self.holds.get(slot) != (step["node"], result):
                    yield label, f"slot {slot} holds {self._name(self.holds.get(slot))}"
            return
        ending = step["role"] == "ending"  # of a launch that has read everything
        if ending and step["parts"][0]["node"] not in self.opened:
            yield label, "it ends what no step before it has begun"
        self.opened.update(part["node"] for part in step["parts"][:1])
        for part in step["parts"] or [step]:
            node = part["node"]
            copy = part["role"] == "copy"
            expected = [node] if copy else list(self.terms.inputs[node])
            if len(expected) != len(part["reads"]) and not ending:
                yield label, f"{len(part['reads'])} operands for {len(expected)}"
                continue
            for (slot, *type_), operand in zip(part["reads"], expected, strict=False):
                if ending:
                    break
                if not self._is_of_type(type_, self.terms.type[operand]):
                    yield label, f"it reads slot {slot} as {type_}"
                held = inside.get(slot, self.holds.get(slot))
                if held != self.key(operand):
                    yield label, (
                        f"slot {slot} holds {self._name(held)}, "
                        f"not {self._name(self.key(operand))}"
                    )
            results = part["results"] or range(len(part["writes"]))
            made = self.terms.type[node if copy else part["made"]]
            for (slot, *type_), result in zip(part["writes"], results, strict=False):
                whole = made[result] if isinstance(made[0], list) and not copy else made
                if not self._is_of_type(type_, whole):
                    yield label, f"it writes slot {slot} as {type_}, not {whole}"
                inside[slot] = self.key(node) if copy else (part["made"], result)
            yield from self._in_place(label, part)
        # The name of partial sums, which a later launch ends.
        begun = (step["parts"][0]["node"], -1) if step["parts"] else None
        for slot in step["scratch"]:
            if ending and self.holds.get(slot) != begun:
                yield label, f"the sums in slot {slot} are written over"
            touched = [s for s in (*_slots(step["reads"]), *_slots(step["writes"]))
                       if self._overlap(slot, s)]  # fmt: skip
            if touched:
                yield label, f"its scratch memory overlaps slot {touched[0]}"
            self._clobber(slot)
            self.holds[slot] = begun
        writes = _slots(step["writes"])
        for i, slot in enumerate(writes):
            place = self.slots[slot]["place"]
            if place not in ("arena", "result", "state"):
                yield label, f"it writes slot {slot}, which is a {place}"
            if place == "state" and at < self.plan["commit"]:
                yield label, f"it writes the variable of slot {slot} before the commit point"
            if any(self._overlap(slot, other) for other in writes[:i]):
                yield label, f"two results are written to bytes of slot {slot}"
            self._clobber(slot)
        for slot in writes:
            self.holds[slot] = inside.get(slot)
        if step["can_fail"] and at >= self.plan["commit"]:
            yield label, "it can fail, and comes after the commit point"
        for slot in (*_slots(step["reads"]), *writes, *step["scratch"]):
            kept = self.slots[slot]
            if kept["place"] == "arena" and not kept["first"] <= at <= kept["last"]:
                yield label, f"slot {slot} is alive in steps {kept['first']} to {kept['last']}"

    def _is_of_type(self, type_: Sequence[Any], expected: Sequence[Any]) -> bool:
        """Return whether types are equal for the sizes of the plan."""
        sizes = self.plan["sizes"]
        shapes = [[extents.evaluate(e, sizes) for e in t[1]] for t in (type_, expected)]
        return bool(type_[0] == expected[0] and shapes[0] == shapes[1])

    def _clobber(self, slot: int) -> None:
        for other in self.holds:
            if self._overlap(slot, other):
                self.holds[other] = None

    def _overlap(self, left: int, right: int) -> bool:
        """Return whether two slots share bytes."""
        if left == right:
            return True
        a, b = self.slots[left], self.slots[right]
        if a["place"] != "arena" or b["place"] != "arena" or not a["bytes"] or not b["bytes"]:
            return False
        return bool(
            a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]
        )

    def _name(self, key: Key | None) -> str:
        if key is None:
            return "nothing that is whole"
        node, index = key
        shown = self.terms.attrs[node].get("name") or self.terms.op[node]
        return f"{shown} (node {node}{f', result {index}' if index else ''})"

    # ------------------------------------------------------------------ in place

    def _in_place(self, label: str, part: Mapping[str, Any]) -> Problems:
        """Check that what is written over an operand reads it at its own position alone."""
        if part["role"] in ("copy", "ending"):
            return
        node = part["node"]
        for result, out in enumerate(_slots(part["writes"])):
            for operand, slot in enumerate(_slots(part["reads"])):
                if not self._overlap(slot, out) or self.slots[out]["place"] == "inside":
                    continue
                why = self._reads_at_place(node, operand, result)
                if slot != out:
                    why = "" if why else why
                if not why:
                    yield label, f"result {result} is written over operand {operand}, which is " \
                                 "read at other positions"  # fmt: skip
                else:
                    self.rows[why] = self.rows.get(why, 0) + 1

    def _reads_at_place(self, node: int, operand: int, result: int) -> str:
        """Return why an operand may be written over by a result; empty where it may not."""
        op, attrs = self.terms.op[node], self.terms.attrs[node]
        if op in FACTORS:
            return "" if operand < FACTORS[op] else "an addend"
        if op not in FUSED:
            return "as its kernel family says"
        for body in attrs.get("bodies") or [attrs["body"]]:
            inner = body["graph"]
            if operand < len(inner["inputs"]):
                own = 0 <= result < len(inner["outputs"])
                return _written_last(inner, operand, result) if own else ""
            operand -= len(inner["inputs"])
            result -= len(inner["outputs"])
        return ""

    # ------------------------------------------------------------------ streams

    def streams(self) -> Problems:
        """Check that steps which touch the same memory are ordered by streams and waits."""
        if all(step["stream"] is None for step in self.steps):
            return
        before: list[set[int]] = []
        last: dict[int, int] = {}
        barrier = -1
        for at, step in enumerate(self.steps):
            if step["stream"] is None:
                before.append(set(range(at)))
                barrier, last = at, {}
                continue
            direct = {w for w in step["waits"] if w < at} | ({barrier} - {-1})
            if step["stream"] in last:
                direct.add(last[step["stream"]])
            before.append(direct.union(*(before[d] for d in direct)))
            last[step["stream"]] = at
            if any(w >= at for w in step["waits"]):
                yield f"step {at}", "it waits for itself or a later step"
        for at, step in enumerate(self.steps):
            for early in range(at):
                if early in before[at]:
                    continue
                if (slot := self._conflict(self.steps[early], step)) >= 0:
                    yield f"step {at}", f"it touches slot {slot} and does not wait for step {early}"

    def _conflict(self, one: Mapping[str, Any], two: Mapping[str, Any]) -> int:
        """Return a slot that one of two steps writes and the other touches; -1 if there is none."""
        for first, second in ((one, two), (two, one)):
            touched = (*_slots(second["reads"]), *_slots(second["writes"]), *second["scratch"])
            for slot in (*_slots(first["writes"]), *first["scratch"]):
                for other in touched:
                    if self.slots[slot]["place"] != "inside" and self._overlap(slot, other):
                        return int(slot)
        return -1


def _slots(values: Iterable[Sequence[Any]]) -> list[int]:
    return [int(value[0]) for value in values]


def _parts(step: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield -1, step
    yield from enumerate(step["parts"])


def _written_last(body: Mapping[str, Any], operand: int, result: int) -> str:
    """Return why a result of a body may be written over a parameter; empty where it may not.

    It may where the parameter is read at the result's own positions alone. What sums read was read
    in a pass over memory before; so a result that reads other positions through sums alone, and
    depends on a sum, is written when all that is done.
    """
    nodes = body["nodes"]
    parameter = body["inputs"][operand]
    shape = _long(nodes[parameter][3][1])
    # Of values that are read where the parameter is: their axes, as those of the parameter.
    at = {parameter: (shape, tuple(range(len(shape))))}
    moved, sums = set[int](), set[int]()
    for number, (op, attrs, inputs, type_) in enumerate(nodes):
        if op in REDUCTIONS:
            sums.add(number)
            continue
        if sums.intersection(inputs):
            sums.add(number)
        ways = {at[i] for i in inputs if i in at}
        if moved.intersection(inputs) or len(ways) > 1:
            moved.add(number)
        elif ways:
            way = _way(op, attrs, nodes[inputs[0]][3][1], _long(type_[1]), *ways)
            if way is None:
                moved.add(number)
            else:
                at[number] = way
    out = body["outputs"][result]
    turned = out in at and at[out][1] != tuple(range(len(at[out][1])))
    if not moved and not turned:
        return "read at the same positions, or by sums"
    return "after sums that read all of it" if out in sums and out not in moved | {*at} else ""


Way = tuple[tuple[Any, ...], tuple[int, ...]]


def _long(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the extents that are not 1: the others do not move elements."""
    return tuple(extent for extent in shape if extent != 1)


def _way(
    op: str, attrs: Mapping[str, Any], before: Sequence[Any], shape: tuple[Any, ...], way: Way
) -> Way | None:
    """Return how an operation's result is read if its operand is; None where that moves."""
    if op == "transpose":
        long = [axis for axis, extent in enumerate(before) if extent != 1]
        turned = [long.index(axis) for axis in attrs["axes"] if axis in long]
        return shape, tuple(way[1][axis] for axis in turned)
    if op in MOVING:
        return None
    if way[0] == shape:
        return way
    straight = way[1] == tuple(range(len(way[1])))
    return (shape, tuple(range(len(shape)))) if op == "reshape" and straight else None
