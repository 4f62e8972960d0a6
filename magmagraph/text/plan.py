"""Plans as text, and back: the slots, a line per step, the commit point, what is returned.

The operation of a step is written with the types of its operands, symbolic where they are, so that
a loaded plan holds whole steps: a backend can run it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dims.algebra import atom_dim
from ..errors import PlanError
from ..graph import Key, Node
from ..ops.leaf import parameter
from ..plan import Place, Plan, Slot, Step, Value
from ..types import Extent, Type
from .reading import Reader
from .rows import Row
from .writing import Writer, label

_SLOT = re.compile(
    r"s(\d+) = (\w+)(?: (.*))? : (.+) bytes, steps (-?\d+) to (-?\d+)(?:, at (\d+))?"
)
_STEP = re.compile(r"step (\d+): (\w+) = ([\w.]+)\(")
_COSTS = re.compile(
    r"(?P<bytes>.+) bytes, (?P<flops>.+) flops(?:, workspace s(?P<workspace>\d+))?"
    r"(?P<fails>, can fail)?(?P<shared>, in place s\d+(?: s\d+)*)?"
)
_VALUE = re.compile(r"s(\d+) (.+)", re.DOTALL)
_SIZE = re.compile(r"(\S+)=(\d+)")
_MEMORY = re.compile(r"memory: arena (\d+) bytes, largest live set (\d+) bytes")
_REQUIRE = re.compile(r"require (.+) by (\w+)")
_COPY = "copy"  # the one kernel that stands for no operation
_SYMBOLIC = "memory: sizes not bound"


def dump_plan(plan: Plan, *, data: bool = True) -> str:
    """Return a plan as text; see `magmagraph.text.writing.dump`."""
    writer = Writer()
    sizes = plan.sizes
    lines = ["plan"]
    if sizes is not None:
        shown = [f"{writer.extent(atom_dim(name))}={size}" for name, size in sizes.items()]
        lines.append(" ".join(["sizes", *shown]))
    if plan.guard:
        lines.append("guard")
    if plan.deterministic:
        lines.append("deterministic")
    lines += [f"choice {json.dumps(k)} = {json.dumps(v)}" for k, v in plan.choices.items()]
    lines += [_slot(slot, writer) for slot in plan.slots]
    for i, step in enumerate(plan.steps):
        if i == plan.commit:
            lines.append("commit")
        lines.append(f"step {i}: {_step(step, plan, writer)}")
    if plan.commit >= len(plan.steps):
        lines.append("commit")
    for constraint, node in plan.constraints:
        lines.append(f"require {writer.constraint(constraint)} by {node.op.name}{label(node.name)}")
    lines += [f"fetch s{value.slot} {writer.type(value.type)}" for value in plan.fetches]
    if plan.arena is None:
        lines.append(_SYMBOLIC)
    else:
        lines.append(
            f"memory: arena {plan.arena} bytes, largest live set {plan.largest_live or 0} bytes"
        )
    return "\n".join([*lines, *writer.data_lines()] if data else lines)


def _slot(slot: Slot, writer: Writer) -> str:
    owner = slot.owner
    if slot.place is Place.FEED:
        shown = f" {json.dumps(owner.name)}"
    elif slot.place is Place.STATE:
        type_ = Type(owner.data.dtype, owner.data.shape)
        shown = f" {json.dumps(owner.name)} {writer.type(type_)}"
    elif slot.place is Place.CONSTANT:
        shown = f" {writer.line(owner, {owner: 0})}"
    elif slot.place is Place.RESULT:
        shown = f" {owner}"
    else:
        shown = ""
    where = "" if slot.offset is None else f", at {slot.offset}"
    return (
        f"s{slot.index} = {slot.place.value}{shown} : {writer.extent(slot.size)} bytes, "
        f"steps {slot.first} to {slot.last}{where}"
    )


def _bound(type_: Type, sizes: Mapping[str, int] | None) -> Type:
    return type_ if sizes is None else Type(type_.dtype, type_.concrete(dict(sizes)))


def _step(step: Step, plan: Plan, writer: Writer) -> str:
    node = step.node
    if step.kernel == _COPY:
        symbolic: list[Type] = [node.type]
        results: list[Type] = [node.type]
    else:
        symbolic = [operand.type for operand in node.inputs]
        results = list(node.type) if isinstance(node.type, tuple) else [node.type]
    operands = [
        f"s{v.slot} {writer.type(t if _bound(t, plan.sizes) == v.type else v.type)}"
        for v, t in zip(step.inputs, symbolic, strict=True)
    ]
    call = f"{_COPY}({operands[0]})" if step.kernel == _COPY else writer.call(node, operands)
    made = ", ".join(
        f"s{v.slot} {writer.type(t if _bound(t, plan.sizes) == v.type else v.type)}"
        for v, t in zip(step.outputs, results, strict=True)
    )
    costs = f"{writer.extent(step.bytes)} bytes, {writer.extent(step.flops)} flops"
    if step.workspace is not None:
        costs += f", workspace s{step.workspace}"
    if step.can_fail:
        costs += ", can fail"
    read = {value.slot for value in step.inputs}
    shared = [f"s{value.slot}" for value in step.outputs if value.slot in read]
    if shared and step.kernel != _COPY:
        costs += f", in place {' '.join(shared)}"
    return f"{step.kernel} = {call} -> {made} | {costs}"


# ---------------------------------------------------------------------- loading


@dataclass
class _Parts:
    """What has been read of a plan."""

    sizes: dict[str, int] | None = None
    guard: bool = False
    deterministic: bool = False
    choices: dict[str, str] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    fetches: list[Value] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)
    commit: int | None = None
    arena: int | None = None
    live: int | None = None
    ended: bool = False


def load_plan(
    text: str,
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
) -> Plan:
    """Return the plan of a text; see `magmagraph.text.reading.load`."""
    reader = Reader(text, PlanError, data, values)
    rows = reader.rows()
    parts = _Parts()
    for row in rows:
        reader.line = row.number
        _read(row, reader, parts)
    if not parts.ended:
        reader.line = rows[-1].end if rows else 1
        raise reader.wrong("the plan ends before its memory line", "memory: ...")
    if parts.commit is None:
        raise reader.wrong("the plan has no commit point", "a line 'commit'")
    return Plan(
        steps=tuple(parts.steps),
        slots=tuple(parts.slots),
        fetches=tuple(parts.fetches),
        commit=parts.commit,
        constraints=tuple(parts.constraints),
        sizes=parts.sizes,
        arena=parts.arena,
        largest_live=parts.live,
        choices=parts.choices,
        guard=parts.guard,
        deterministic=parts.deterministic,
    )


def _read(row: Row, reader: Reader, parts: _Parts) -> None:
    text = row.text
    word = text.partition(" ")[0]
    if parts.ended:
        raise reader.wrong(f"{text[:60]!r} after the memory line", "the end of the plan")
    if word == "plan":
        return
    if word == "sizes":
        _read_sizes(text, reader, parts)
    elif text == "guard":
        parts.guard = True
    elif text == "deterministic":
        parts.deterministic = True
    elif word == "choice":
        key, value = _pair(text[len("choice ") :], reader)
        parts.choices[key] = value
    elif word[0] == "s" and word[1:].isdigit():
        parts.slots.append(_read_slot(row, reader, len(parts.slots)))
    elif word == "step":
        parts.steps.append(_read_step(row, reader, parts))
    elif text == "commit":
        parts.commit = len(parts.steps)
    elif word == "require":
        _read_constraint(text, reader, parts)
    elif word == "fetch":
        parts.fetches.append(_value(text[len("fetch ") :], reader, parts)[0])
    elif word == "memory:":
        _read_memory(text, reader, parts)
    else:
        raise reader.wrong(f"{text[:60]!r}", "a slot, a step, commit, require, fetch or memory")


def _read_sizes(text: str, reader: Reader, parts: _Parts) -> None:
    parts.sizes = {}
    for word in text.split()[1:]:
        match = _SIZE.fullmatch(word)
        if match is None:
            raise reader.wrong(f"{word!r}", "a size, as batch=100")
        parts.sizes[str(reader.extent(match[1]))] = int(match[2])


def _pair(text: str, reader: Reader) -> tuple[str, str]:
    try:
        decoder = json.JSONDecoder()
        key, end = decoder.raw_decode(text)
        if text[end : end + 3] != " = ":
            raise ValueError
        value = json.loads(text[end + 3 :])
    except ValueError:
        raise reader.wrong(f"{text!r}", '"key" = "value"') from None
    return str(key), str(value)


def _read_memory(text: str, reader: Reader, parts: _Parts) -> None:
    parts.ended = True
    if text == _SYMBOLIC:
        return
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise reader.wrong(f"{text!r}", "memory: arena 64 bytes, largest live set 64 bytes")
    parts.arena, parts.live = int(match[1]), int(match[2])


def _read_constraint(text: str, reader: Reader, parts: _Parts) -> None:
    body, mark, name = text.partition("  # ")
    match = _REQUIRE.fullmatch(body)
    if match is None:
        raise reader.wrong(f"{text!r}", "require batch >= 1 by operation")
    constraint = reader.constraint(match[1])
    # A plan keeps of this node only what a message says of it: its operation and its name.
    node = Node(
        reader.record(match[2]), (), {}, Type(np.dtype(np.bool_), ()), reader.name(mark + name)
    )
    parts.constraints.append((constraint, node))


def _name_and_rest(text: str, reader: Reader) -> tuple[str, str]:
    try:
        name, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        name, end = None, 0
    if not isinstance(name, str):
        raise reader.wrong(f"{text!r}", "a name in double quotes")
    return name, text[end:].strip()


def _read_slot(row: Row, reader: Reader, index: int) -> Slot:
    text = row.text
    match = _SLOT.fullmatch(text)
    if match is None or int(match[1]) != index or match[2] not in [p.value for p in Place]:
        places = ", ".join(place.value for place in Place)
        raise reader.wrong(
            f"{text[:60]!r}", f"s{index} = place : n bytes, steps a to b, with a place of {places}"
        )
    place, shown = Place(match[2]), match[3] or ""
    owner: Any = None
    if place is Place.FEED:
        owner = Key(_name_and_rest(shown, reader)[0])
    elif place is Place.STATE:
        name, rest = _name_and_rest(shown, reader)
        owner = reader.state(name, reader.type(rest))
    elif place is Place.CONSTANT:
        owner = reader.graph([Row(row.number, shown, (), row.end), _returned(row)], "it").outputs[0]
    elif place is Place.RESULT:
        if not shown.isdigit():
            raise reader.wrong(f"result {shown!r}", "the number of an output")
        owner = int(shown)
    size: Extent = reader.extent(match[4])
    offset = None if match[7] is None else int(match[7])
    return Slot(index, place, size, owner, int(match[5]), int(match[6]), offset)


def _returned(row: Row) -> Row:
    return Row(row.number, "return %0", (), row.end)


def _value(text: str, reader: Reader, parts: _Parts) -> tuple[Value, Type]:
    """Return a value in its slot, and its type before sizes were bound."""
    match = _VALUE.fullmatch(text)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "a value, as s0 float32[3]")
    if int(match[1]) >= len(parts.slots):
        raise reader.wrong(f"s{match[1]} is not a slot", f"one of the {len(parts.slots)} above")
    type_ = reader.type(match[2])
    try:
        return Value(int(match[1]), _bound(type_, parts.sizes)), type_
    except ValueError as error:
        raise reader.wrong(f"{match[2]}: {error}", "sizes of its dimensions") from None


def _read_step(row: Row, reader: Reader, parts: _Parts) -> Step:
    text = row.text
    match = _STEP.match(text)
    if match is None or int(match[1]) != len(parts.steps):
        raise reader.wrong(f"{text[:60]!r}", f"step {len(parts.steps)}: kernel = operation(...)")
    *words, end = reader.split(text, match.end(), ")")
    arrow, bar, tail = text[int(end) + 1 :].rpartition(" | ")
    costs = _COSTS.fullmatch(tail)
    if not bar or costs is None or not arrow.startswith(" -> "):
        raise reader.wrong(
            f"{text[int(end) + 1 :][:80]!r} after the operation", "-> values | n bytes, n flops"
        )
    values: list[tuple[Value, Type]] = []
    attrs: dict[str, Any] = {}
    for word in words:
        name, equals, shown = word.partition("=")
        if equals and name.isidentifier():
            attrs[name] = reader.value(shown, row)
        else:
            values.append(_value(word, reader, parts))
    made = [_value(word, reader, parts) for word in reader.split(arrow[4:])]
    leaves = tuple(parameter(i, type_) for i, (_, type_) in enumerate(values))
    if match[2] == _COPY:
        if len(leaves) != 1:
            raise reader.wrong(f"a copy of {len(leaves)} values", "one value")
        node = leaves[0]
    elif leaves:
        node = reader.make(reader.record(match[3]), leaves, attrs, None)
    else:
        node = reader.leaf(reader.record(match[3]), attrs, made[0][1], None)
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    if tuple(type_ for _, type_ in made) != types:
        raise reader.wrong(
            f"it makes {', '.join(str(t) for _, t in made)}", ", ".join(map(str, types))
        )
    scratch = costs["workspace"]
    return Step(
        kernel=match[2],
        node=node,
        inputs=tuple(value for value, _ in values),
        outputs=tuple(value for value, _ in made),
        bytes=reader.extent(costs["bytes"]),
        flops=reader.extent(costs["flops"]),
        workspace=None if scratch is None else int(scratch),
        can_fail=costs["fails"] is not None,
    )
