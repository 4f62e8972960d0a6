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

from .. import dims
from ..attributes import LARGEST
from ..dims.algebra import atom_dim
from ..errors import PlanError
from ..graph import Key, Node
from ..op import Kind
from ..ops.leaf import parameter
from ..plan import KernelFamily, Place, Plan, Role, Slot, Step, Value
from ..types import Extent, Type
from .reading import Reader
from .rows import Row
from .writing import Writer, label

# Each has one part of any length, so that none takes more than linear time.
_SLOT = re.compile(r"s(\d{1,9}) = (\w+)(?: (.*))?", re.DOTALL)
_ROOM = re.compile(r"(.+) bytes, steps (-?\d{1,9}) to (-?\d{1,9})(?:, at (\d{1,18}))?")
_STEP = re.compile(r"step (\d{1,9}): (\w+) = ([\w.]+)\(")
_COSTS = re.compile(
    r"(?P<flops>.+) flops(?:, workspace s(?P<workspace>\d{1,9}))?"
    r"(?P<fails>, can fail)?(?P<shared>, in place s\d+(?: s\d+)*)?"
)
_VALUE = re.compile(r"s(\d{1,9}) (.+)", re.DOTALL)
_SIZE = re.compile(r"(\S+)=(\d{1,18})")
_MEMORY = re.compile(r"memory: arena (\d{1,18}) bytes, largest live set (\d{1,18}) bytes")
_REQUIRE = re.compile(r"require (.+) by ([\w.]+)")
_INDEX = re.compile(r"[0-9]{1,9}")
_ALIGNMENT = 64  # of places in the arena
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
    if step.role is Role.COPY:
        symbolic: list[Type] = [node.type]
        results: list[Type] = [node.type]
    else:
        symbolic = [operand.type for operand in node.inputs]
        results = list(node.type) if isinstance(node.type, tuple) else [node.type]
    operands = [
        f"s{v.slot} {writer.type(t if _bound(t, plan.sizes) == v.type else v.type)}"
        for v, t in zip(step.inputs, symbolic, strict=True)
    ]
    copied = step.role is Role.COPY
    call = f"{step.kernel}({operands[0]})" if copied else writer.call(node, operands)
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
    if shared and not copied:
        costs += f", in place {' '.join(shared)}"
    return f"{step.kernel} = {call} -> {made} | {costs}"


# ---------------------------------------------------------------------- loading


@dataclass
class _Parts:
    """What has been read of a plan, and the families that its steps may be of."""

    families: Mapping[str, KernelFamily]
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
    families: Sequence[KernelFamily],
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
) -> Plan:
    """Return the plan of a text whose steps are of some families.

    See `magmagraph.text.reading.load`.
    """
    reader = Reader(text, PlanError, data, values)
    parts = _Parts({family.name: family for family in families})
    with reader.guarded():
        rows = reader.rows()
        for row in rows:
            reader.line = row.number
            _read(row, reader, parts)
        _check_whole(parts, rows, reader)
    return Plan(
        steps=tuple(parts.steps),
        slots=tuple(parts.slots),
        fetches=tuple(parts.fetches),
        commit=len(parts.steps) if parts.commit is None else parts.commit,
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
            raise reader.wrong(f"{word[:60]!r}", "a size, as batch=100")
        parts.sizes[str(reader.extent(match[1]))] = int(match[2])


def _pair(text: str, reader: Reader) -> tuple[str, str]:
    try:
        decoder = json.JSONDecoder()
        key, end = decoder.raw_decode(text)
        if text[end : end + 3] != " = ":
            raise ValueError
        value = json.loads(text[end + 3 :])
    except (ValueError, RecursionError):
        raise reader.wrong(f"{text[:60]!r}", '"key" = "value"') from None
    return str(key), str(value)


def _read_memory(text: str, reader: Reader, parts: _Parts) -> None:
    parts.ended = True
    if text == _SYMBOLIC:
        return
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "memory: arena 64 bytes, largest live set 64 bytes")
    parts.arena, parts.live = int(match[1]), int(match[2])


def _read_constraint(text: str, reader: Reader, parts: _Parts) -> None:
    body, mark, name = text.partition("  # ")
    match = _REQUIRE.fullmatch(body)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "require batch >= 1 by operation")
    constraint = reader.constraint(match[1])
    # A plan keeps of this node only what a message says of it: its operation and its name.
    node = Node(
        reader.record(match[2]), (), {}, Type(np.dtype(np.bool_), ()), reader.name(mark + name)
    )
    parts.constraints.append((constraint, node))


def _name_and_rest(text: str, reader: Reader) -> tuple[str, str]:
    try:
        name, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        name, end = None, 0
    if not isinstance(name, str):
        raise reader.wrong(f"{text[:60]!r}", "a name in double quotes")
    return name, text[end:].strip()


def _read_slot(row: Row, reader: Reader, index: int) -> Slot:
    text, _, end = row.text.rpartition(" : ")
    match, room = _SLOT.fullmatch(text), _ROOM.fullmatch(end)
    known = match is not None and match[2] in [p.value for p in Place]
    if match is None or room is None or int(match[1]) != index or not known:
        places = ", ".join(place.value for place in Place)
        raise reader.wrong(
            f"{row.text[:60]!r}",
            f"s{index} = place : n bytes, steps a to b, with a place of {places}",
        )
    place, shown = Place(match[2]), match[3] or ""
    owner: Any = None
    type_: Type | None = None
    size: Extent = reader.extent(room[1])
    if place is Place.FEED:
        owner = Key(_name_and_rest(shown, reader)[0])
    elif place is Place.STATE:
        name, rest = _name_and_rest(shown, reader)
        type_ = reader.type(rest)
        owner = reader.state(name, type_)
    elif place is Place.CONSTANT:
        owner = reader.graph([Row(row.number, shown, (), row.end), _returned(row)], "it").outputs[0]
        if owner.op.kind is not Kind.LEAF or "key" in owner.attrs or "state" in owner.attrs:
            raise reader.wrong(f"a constant by {owner.op.name}", "a leaf with a value")
        type_ = owner.type
    elif place is Place.RESULT:
        if _INDEX.fullmatch(shown) is None:
            raise reader.wrong(f"result {shown[:60]!r}", "the number of an output")
        owner = int(shown)
    offset = None if room[4] is None else int(room[4])
    slot = Slot(index, place, size, owner, int(room[2]), int(room[3]), offset)
    if type_ is not None:
        _check_room(slot, type_, reader)
    if isinstance(size, int) and not 0 <= size <= LARGEST:
        raise reader.wrong(f"s{index} has {size} bytes", f"0 to {LARGEST}")
    return slot


def _check_room(slot: Slot, type_: Type, reader: Reader) -> None:
    """Raise unless a slot is as large as what is kept there."""
    if dims.lower(slot.size - type_.bytes) < 0:
        raise reader.wrong(
            f"s{slot.index} has {reader.shown(slot.size)} bytes for {type_}",
            f"at least {reader.shown(type_.bytes)}",
        )


def _check_whole(parts: _Parts, rows: Sequence[Row], reader: Reader) -> None:
    """Raise unless the plan is whole, and every slot of the arena lies inside of it."""
    if not parts.ended:
        reader.line = rows[-1].end if rows else 1
        raise reader.wrong("the plan ends before its memory line", "memory: ...")
    if parts.commit is None:
        raise reader.wrong("the plan has no commit point", "a line 'commit'")
    if parts.arena is None:
        return
    for slot in parts.slots:
        if slot.place is not Place.ARENA:
            continue
        if slot.offset is None or slot.offset % _ALIGNMENT or not isinstance(slot.size, int):
            raise reader.wrong(f"s{slot.index} has no place", f"a multiple of {_ALIGNMENT}")
        if slot.offset + slot.size > parts.arena:
            raise reader.wrong(
                f"s{slot.index} ends at byte {slot.offset + slot.size}",
                f"a place in the arena of {parts.arena} bytes",
            )


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
        value = Value(int(match[1]), _bound(type_, parts.sizes))
    except ValueError as error:
        raise reader.wrong(f"{match[2][:60]}: {error}", "sizes of its dimensions") from None
    _check_room(parts.slots[value.slot], value.type, reader)
    return value, type_


def _read_step(row: Row, reader: Reader, parts: _Parts) -> Step:
    text = row.text
    match = _STEP.match(text)
    if match is None or int(match[1]) != len(parts.steps):
        raise reader.wrong(f"{text[:60]!r}", f"step {len(parts.steps)}: kernel = operation(...)")
    *words, end = reader.split(text, match.end(), ")")
    arrow, bar, tail = text[int(end) + 1 :].rpartition(" | ")
    moved, _, tail = tail.partition(" bytes, ")
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
            if name in attrs:
                raise reader.wrong(f"{name[:40]} is given twice", "one value")
            attrs[name] = reader.value(shown, row)
        else:
            values.append(_value(word, reader, parts))
    made = [_value(word, reader, parts) for word in reader.split(arrow[4:])]
    leaves = tuple(parameter(i, type_) for i, (_, type_) in enumerate(values))
    family = parts.families.get(match[2])
    if family is not None and family.role is Role.COPY:
        if len(leaves) != 1:
            raise reader.wrong(f"a copy of {len(leaves)} values", "one value")
        node = leaves[0]
    elif leaves:
        node = reader.make(reader.record(match[3]), leaves, attrs, None)
    else:
        op = reader.record(match[3])
        if op.kind is Kind.LEAF or len(made) != 1:
            raise reader.wrong(f"a step that runs {op.name}", "an operation, and what it makes")
        node = reader.leaf(op, attrs, made[0][1], None)
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    if tuple(type_ for _, type_ in made) != types:
        raise reader.wrong(
            f"it makes {', '.join(str(t) for _, t in made)}", ", ".join(map(str, types))
        )
    scratch = None if costs["workspace"] is None else int(costs["workspace"])
    if family is None or not _may_run(family, node):
        able = [each.name for each in parts.families.values() if _may_run(each, node)]
        need = f"one of {', '.join(sorted(able))}"
        raise reader.wrong(f"{node.op.name} by {match[2][:40]}", need)
    _check_scratch(family, node, scratch, reader, parts)
    return Step(
        family=family,
        node=node,
        inputs=tuple(value for value, _ in values),
        outputs=tuple(value for value, _ in made),
        bytes=reader.extent(moved),
        flops=reader.extent(costs["flops"]),
        workspace=scratch,
        can_fail=costs["fails"] is not None,
    )


def _may_run(family: KernelFamily, node: Node) -> bool:
    """Return whether a family runs a node on some device."""
    if family.role is Role.COPY:
        return not node.inputs
    if family.role is Role.WAIT:
        return node.op.kind is Kind.COLLECTIVE
    devices = ("cpu", "cuda")
    return family.takes(node) and any(family.refusal(node, d) is None for d in devices)


def _check_scratch(
    family: KernelFamily, node: Node, workspace: int | None, reader: Reader, parts: _Parts
) -> None:
    """Raise unless a step has the scratch memory that it needs."""
    op = node.op
    moves = family.role in (Role.COPY, Role.WAIT)
    if workspace is not None and (
        workspace >= len(parts.slots) or parts.slots[workspace].place is not Place.ARENA
    ):
        raise reader.wrong(f"the workspace s{workspace}", "a slot of the arena")
    size: Extent = 0
    if family.role is Role.REGION:
        size = _fused_scratch(node, reader)
    elif not moves and op.workspace is not None:
        size = op.workspace(*[operand.type for operand in node.inputs], **node.attrs)
    elif not moves and family.role is not Role.EXPRESSION and op.scratch is not None:
        size = op.scratch(node, 1)
    if parts.sizes is not None:
        size = dims.evaluate(size, parts.sizes)
    if isinstance(size, int) and size == 0:
        return
    room = 0 if workspace is None else parts.slots[workspace].size
    if dims.lower(room - size) < 0:
        raise reader.wrong(
            f"{op.name} has {reader.shown(room)} bytes of scratch",
            f"at least {reader.shown(size)}",
        )


def _fused_scratch(node: Node, reader: Reader) -> Extent:
    """Return the scratch of generated loops in one thread."""
    from ..region.analysis import Region, analyze

    size: Extent = 0
    for body in node.attrs.get("bodies", (node.attrs.get("body"),)):
        region = analyze(body)
        if not isinstance(region, Region):
            raise reader.wrong(f"a body that is not one loop: {region}", "one that a plan holds")
        size = size + region.workspace(1)
    return size
