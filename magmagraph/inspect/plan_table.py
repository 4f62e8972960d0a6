"""`print(f.plan)`: what each step computes, the bytes it moves, and where values lie.

`magmagraph.text.writing.dump` writes a plan whole, so that it can be read back; this is for people.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..graph import Node
from ..plan import Place, Plan, Role, Slot, Step, Value
from .profile import operations, table

_SHOWN = 5  # operations of a step that the table names
_WIDTH = 100  # characters of a line
_COMMIT = "-- commit: the steps below cannot fail, and only they write variables"


def plan_table(plan: Plan) -> str:
    """Return a plan as text: a line per step, then one per slot of the arena.

    Extents of sizes that are not bound yet stand as formulas.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(2, 3))
    >>> W = mg.variable("W", shape=(3, 4), init=mg.init.zeros())
    >>> print(mg.function([x], mg.tanh(x @ W)).plan)
    step  kernel  bytes  FLOPs  computes
       0  gemm      104     48  s3 = x @ W
       1  fused      64      8  result 0 = tanh of s3
    <BLANKLINE>
    slot  bytes  offset  alive
    s3       32       0  steps 0 to 1
    arena 64 bytes, largest live set 64 bytes
    """
    rows: list[tuple[str, ...]] = [("step", "kernel", "bytes", "FLOPs", "computes")]
    rows += [
        (str(i), step.kernel, str(step.bytes), str(step.flops), _computes(step, plan))
        for i, step in enumerate(plan.steps)
    ]
    head, *lines = table(rows, left=(1, 4)).splitlines()
    indent = head.index(rows[0][-1])
    lines = [head, *(_folded(line, indent) for line in lines)]
    if plan.commit < len(plan.steps):
        lines.insert(1 + plan.commit, _COMMIT)
    if plan.sizes:
        lines.insert(0, ", ".join(f"{name} = {size}" for name, size in plan.sizes.items()))
    slots = list(_slots(plan))
    if slots:
        lines += ["", *table([("slot", "bytes", "offset", "alive", ""), *slots], left=(0, 3, 4))
                  .splitlines()]
    if plan.arena is not None:
        lines.append(f"arena {plan.arena} bytes, largest live set {plan.largest_live or 0} bytes")
    return "\n".join(lines)


def _folded(line: str, indent: int) -> str:
    """Return a line of the table in several where it is long, the rest below its last column."""
    return textwrap.fill(
        line,
        max(_WIDTH, indent + 40),
        subsequent_indent=" " * (indent + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _computes(step: Step, plan: Plan) -> str:
    """Return what a step computes, as a formula where it is a product."""
    reads = [_name(value, plan) for value in step.inputs]
    writes = [_name(value, plan) for value in step.outputs]
    if "transpose_a" in step.node.attrs and step.role is not Role.COPY:
        formula = _product(step.node, reads)
    else:
        plain = step.role in (Role.COPY, Role.WAIT)
        inside = (step.kernel,) if plain else operations(step.node)
        more = f", ... {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
        formula = ", ".join(inside[:_SHOWN]) + more
        if reads:
            formula += " of " + ", ".join(dict.fromkeys(reads))
    taken = {value.slot for value in step.inputs}
    shared = [_name(value, plan) for value in step.outputs if value.slot in taken]
    text = f"{', '.join(writes)} = {formula}"
    if shared and step.role not in (Role.COPY, Role.WAIT):
        text += "; in place" if len(writes) == len(shared) else f"; {', '.join(shared)} in place"
    return text


def _product(node: Node, names: list[str]) -> str:
    """Return ``alpha * a.T @ b + beta * c``, without what is not there or one."""
    attrs = node.attrs
    left, right, *rest = names
    text = (
        f"{left}{'.T' if attrs['transpose_a'] else ''} @ "
        f"{right}{'.T' if attrs.get('transpose_b') else ''}"
    )
    if attrs.get("scaled"):
        text = f"{rest.pop(0)} * {text}"
    if attrs.get("accumulate"):
        addend, factor = rest
        text += f" + {addend}" if factor == "1.0" else f" + {factor} * {addend}"
    return text


def _name(value: Value, plan: Plan) -> str:
    """Return what people call a value: an input's or variable's name, a number, or its slot."""
    slot = plan.slots[value.slot]
    if slot.place is Place.RESULT:
        return f"result {slot.owner}"
    if slot.place in (Place.FEED, Place.STATE) and slot.owner.name:
        return str(slot.owner.name)
    if slot.place is Place.CONSTANT and value.type.shape == ():
        attrs = slot.owner.attrs
        if "value" in attrs:
            return str(attrs["value"])
        return str(attrs.get("dim", "rank"))  # an extent, or a rank's own number
    return f"s{slot.index}"


def _slots(plan: Plan) -> Iterator[tuple[str, str, str, str, str]]:
    """Give a row for each slot of the arena, in the order of their offsets."""
    scratch = {step.workspace: i for i, step in enumerate(plan.steps) if step.workspace is not None}

    def place(slot: Slot) -> tuple[int, int]:
        return (-1 if slot.offset is None else slot.offset, slot.first)

    for slot in sorted((s for s in plan.slots if s.place is Place.ARENA), key=place):
        alive = f"step {slot.first}" if slot.first == slot.last else (
            f"steps {slot.first} to {slot.last}"
        )
        use = f"workspace of step {scratch[slot.index]}" if slot.index in scratch else ""
        offset = "" if slot.offset is None else str(slot.offset)
        yield (f"s{slot.index}", str(slot.size), offset, alive, use)
