"""Launch scans together with the elementwise regions before and behind them.

On a CUDA device a scan computes its operand where it would read it, and the region that reads its
result where it would write it. Neither goes to memory: a running sum of `x * y` reads `x` and `y`
and writes the sums.

Before::

    step  kernel  computes
       0  fused   s2 = multiply of x, y
       1  scan    s3 = cumsum of s2
       2  fused   result 0 = tanh of s3

After::

    step  kernel      computes
       0  scan_fused  result 0 = multiply of x, y, then cumsum, then tanh

An operand that others read is written beside the scan, unless that is only the region behind, which
computes it again. Where several blocks share a line they read it twice: an expression
of more operands than that saves is left alone.

Numerics: `exact`: the operand is rounded to its dtype, and sums are not contracted with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...codegen.c.scalar import storage_type
from ...codegen.cuda.generated import kernels_of
from ...codegen.cuda.scan_cuts import ScanCut, cut_of_scan
from ...codegen.cuda.scan_parts import read_in_scan, refusal_in_scan
from ...codegen.cuda.scanning_code import operand_type
from ...codegen.region.parts import Region
from ...codegen.steps import bodies_of
from ...ir.plan import Place, Plan, Role, Step, Value
from ...ir.records import record
from ...ir.target import Target
from ..report import Record
from .bodies import Slots, only, with_lifetimes

__all__ = ["fuse_scans"]

OPERAND = "compute a scan's operand in its kernel"
READER = "compute what reads a scan in its kernel"
TWICE = 2  # times that a line which blocks share is read
MOST = 5  # times an operand's bytes that a region moves whose results others read, too


def fuse_scans(plan: Plan, target: Target, notes: Record) -> Plan:
    """Return a plan with sizes in which scans are launched with the regions around them.

    Parameters
    ----------
    plan
        Its arena is not laid out yet.
    target
        What it is for; plans for the CPU stay as they are.
    notes
        Where hits and refusals are noted.
    """
    if target.device == "cpu" or not any(step.role is Role.SCAN for step in plan.steps):
        return plan
    return _Fusion(plan, target, notes).result()


@record(frozen=True, eq=False)
class _Body:
    """One body of a fused step, as a step of its own.

    Attributes
    ----------
    whole, number
        The step, and which of its bodies.
    step
        Of that body alone.
    written
        The slots of results that are written, since others read them.
    """

    whole: Step
    number: int
    step: Step
    written: frozenset[int] = frozenset()


class _Fusion:
    """The steps and slots of a plan while steps are put together."""

    def __init__(self, plan: Plan, target: Target, notes: Record) -> None:
        self.plan, self.target, self.notes = plan, target, notes
        self.slots = Slots(plan)
        self.steps = list(plan.steps)
        self.origins = list(range(len(plan.steps)))  # the place of each among the plan's steps
        self.changed = False

    def result(self) -> Plan:
        for step in self.plan.steps:
            if step.role is Role.SCAN and int(step.outputs[0].type.size):
                self._fuse(step)
        if not self.changed:
            return self.plan
        places = [
            max(0, sum(origin <= old for origin in self.origins) - 1)
            for old in range(len(self.plan.steps))
        ]
        commit = sum(origin < self.plan.commit for origin in self.origins)
        return with_lifetimes(self.plan, self.steps, self.slots.all, places, commit)

    def _fuse(self, scan: Step) -> None:
        producers = self._producers(scan)
        found, chosen = None, self._with_written(scan, producers, None)
        readers = self._readers(scan.outputs[0].slot, self._place(scan))
        behind = self.steps[readers[0]] if readers else None
        if behind is not None and behind.role is Role.REGION:
            reason = ""
            for bodies in (self._with_written(scan, producers, behind), chosen):
                result = self._reader(scan, bodies, readers)
                if isinstance(result, str):
                    reason = reason or result
                else:
                    found, chosen = result, bodies
                    break
            if found is None:
                self.notes.refuse(READER, scan.node, reason)
        if not chosen and found is None:
            return
        place, reader, kept = found or (self._place(scan), None, True)
        if chosen:
            self.notes.hit(OPERAND, len(chosen))
        if reader is not None:
            self.notes.hit(READER)
        launch = self._joined(scan, chosen, reader, kept)
        self._replaced(scan, [*chosen, *([] if reader is None else [reader])], launch, place)
        self.changed = True

    # ---- Places

    def _place(self, step: Step) -> int:
        return next(i for i, other in enumerate(self.steps) if other is step)

    def _readers(self, slot: int, after: int) -> list[int]:
        """Return the places of the steps that read what a step has written into a slot."""
        places = []
        for k in range(after + 1, len(self.steps)):
            if slot in _read(self.steps[k]):
                places.append(k)
            if slot in _written(self.steps[k]):
                break
        return places

    def _leaves(self, slot: int) -> bool:
        """Return whether a slot's content is seen outside of the steps."""
        fetched = any(value.slot == slot for value in self.plan.fetches)
        return fetched or self.slots.all[slot].place is not Place.ARENA

    def _commits(self, first: int, last: int) -> bool:
        """Return whether the commit point is between two places."""
        return self.origins[first] < self.plan.commit <= self.origins[last]

    # ---- What makes operands

    def _producers(self, scan: Step) -> list[_Body]:
        at = self._place(scan)
        wanted: dict[tuple[int, int], set[int]] = {}
        for slot in dict.fromkeys(_read(scan)):
            makers = [j for j in range(at) if slot in _written(self.steps[j])]
            if makers and self.steps[makers[-1]].role is Role.REGION:
                whole = self.steps[makers[-1]]
                number, _ = _body_of(whole, slot, results=True)
                wanted.setdefault((makers[-1], number), set()).add(slot)
        bodies: list[_Body] = []
        for (j, number), slots in wanted.items():
            whole = self.steps[j]
            step = only(whole, [number], self.slots, self.plan.threads)
            reason = self._operand_refusal(scan, at, j, step, slots)
            if _read(step) & _of_others(whole, number, results=True):
                reason = reason or "another body of its step overwrites what it is computed of"
            if reason:
                self.notes.refuse(OPERAND, scan.node, reason)
            else:
                bodies.append(_Body(whole, number, step))
        return bodies

    def _with_written(
        self, scan: Step, producers: Sequence[_Body], behind: Step | None
    ) -> list[_Body]:
        """Return producers with the slots that they have to write.

        What only a region behind reads, in the same launch, it computes again.
        """
        bodies = []
        for body in producers:
            made = [value.slot for value in body.step.outputs]
            written = self._seen(scan, body.whole, made, None)
            if behind is not None and self._is_quick(body.step):
                if not self._seen(scan, body.whole, made, behind):
                    written = frozenset()
            bodies.append(replace(body, written=written))
        return bodies

    def _seen(
        self, scan: Step, maker: Step, slots: Iterable[int], behind: Step | None
    ) -> frozenset[int]:
        """Return the slots that others read than a scan and the region behind it."""
        j = self._place(maker)
        return frozenset(
            slot for slot in slots
            if self._leaves(slot)
            or any(
                self.steps[k] is not scan and self.steps[k] is not behind
                for k in self._readers(slot, j)
            )
        )

    def _is_quick(self, step: Step) -> bool:
        """Return whether computing a region again reads little."""
        made = sum(int(value.type.bytes) for value in step.outputs)
        return self.slots.number(step.bytes) - made <= TWICE * made

    def _operand_refusal(
        self, scan: Step, at: int, j: int, step: Step, slots: set[int]
    ) -> str:
        """Return why a scan has to read its operand; empty where its kernel can compute it.

        Parameters
        ----------
        scan, at
            The scan, and its place.
        j, step
            The place of the region, and its step.
        slots
            What it makes for the scan.
        """
        if reason := refusal_in_scan(step):
            return reason
        cut = self._cut(scan)
        operands = [value for value in step.outputs if value.slot in slots]
        if reason := _in_parts(cut, operands):
            return reason
        results = {value.slot for value in step.outputs}
        between = self.steps[j + 1 : at]
        if any((_read(other) | _written(other)) & results for other in between):
            return "a step before the scan reads it, too"
        if self._commits(j, at) and self.plan.guard:
            return "nan='raise' checks new values between the two"
        if any(_read(step) & _written(other) for other in between):
            return "what it is computed of is overwritten before the scan"
        if not _in_step(step, scan.outputs):
            return "the scan would overwrite what it is computed of"
        made = sum(int(value.type.bytes) for value in operands)
        seen = self._seen(scan, self.steps[j], results, None)
        read = self.slots.number(step.bytes) - sum(int(v.type.bytes) for v in step.outputs)
        if cut.shares > 1 and read > (TWICE + (not seen)) * made:
            return "several blocks share a line, and would read what it is computed of twice"
        if seen and self.slots.number(step.bytes) > MOST * made:
            return "the region that makes it has much else to read and to write"
        return ""

    # ---- What reads results

    def _cut(self, scan: Step) -> ScanCut:
        attrs = scan.node.attrs
        return cut_of_scan(
            scan.node.op, scan.outputs[0].type, attrs["axis"], attrs["reverse"],
            self.target.multiprocessors,
        )  # fmt: skip

    def _reader(
        self, scan: Step, producers: Sequence[_Body], readers: Sequence[int]
    ) -> tuple[int, _Body, bool] | str:
        """Return where a scan is launched with what reads it, that, and whether it is kept.

        Parameters
        ----------
        scan, producers
            What is launched together.
        readers
            The places of what reads the scan; the first is a region.

        Returns
        -------
        tuple or str
            Or the reason why it is not launched so.
        """
        at, r, out = self._place(scan), readers[0], scan.outputs[0].slot
        whole = self.steps[r]
        number, several = _body_of(whole, out, results=False)
        if several:
            return "several bodies of a step read it"
        if reason := _in_parts(self._cut(scan), scan.outputs):
            return reason
        step = only(whole, [number], self.slots, self.plan.threads)
        if reason := refusal_in_scan(step):
            return reason
        again = {v.slot for body in producers if not body.written for v in body.step.outputs}
        if _of_others(whole, number, results=False) & again:
            return "another body of the step reads the operand"
        if _written(step) & _of_others(whole, number, results=False):
            return "it overwrites what another body of its step reads"
        if not all(_elementwise(step, slot) for slot in {out, *again} & _read(step)):
            return "the region that reads it does not go through it element by element"
        over = out in _written(step)
        kept = self._leaves(out) or len(readers) > 1
        if over and kept:
            return "the region that reads it overwrites what is read later"
        before = [body.step for body in producers]
        if not all(_in_step(part, step.outputs) for part in (*before, scan)):
            return "the region that reads it would overwrite what the scan is computed of"
        between = self.steps[at + 1 : r]
        mine = _read(step) - {out, *(v.slot for part in before for v in part.outputs)}
        up = not self._commits(at, r) and not any(
            mine & _written(other) or _written(step) & (_read(other) | _written(other))
            for other in between
        )
        if up:
            return at, _Body(whole, number, step), kept
        results = {out, *(slot for body in producers for slot in body.written)}
        sources = {slot for part in before for slot in _read(part)}
        sources |= _read(scan) - {value.slot for part in before for value in part.outputs}
        down = not (self._commits(at, r) and self.plan.guard) and not any(
            sources & _written(other) or results & (_read(other) | _written(other))
            for other in between
        )
        if down:
            return r, _Body(whole, number, step), kept
        return "steps between the two use the same memory"

    # ---- One launch

    def _joined(
        self, scan: Step, producers: Sequence[_Body], reader: _Body | None, kept: bool
    ) -> Step:
        """Return the launch of a scan and the regions around it."""
        behind = [] if reader is None else [reader.step]
        parts = (*(body.step for body in producers), scan, *behind)
        inputs: dict[int, Value] = {}
        made: dict[int, int] = {}
        moved = flops = 0
        for part in parts:
            moved += self.slots.number(part.bytes)
            flops += self.slots.number(part.flops)
            for slot, value in {value.slot: value for value in part.inputs}.items():
                if slot in made or slot in inputs:
                    moved -= int(value.type.bytes)  # it is there
                else:
                    inputs[slot] = value
            made |= {value.slot: int(value.type.bytes) for value in part.outputs}
        written = [v for body in producers for v in body.step.outputs if v.slot in body.written]
        written += [*(scan.outputs if kept else ()), *_outputs(reader)]
        outputs = {value.slot: value for value in written}
        moved -= sum(size for slot, size in made.items() if slot not in outputs)
        return replace(
            scan, family=self.target.with_role(Role.FUSED_SCAN), inputs=tuple(inputs.values()),
            outputs=tuple(outputs.values()), bytes=max(0, moved), flops=flops, workspace=None,
            parts=parts, origin=None,
        )

    def _replaced(
        self, scan: Step, bodies: Sequence[_Body], launch: Step, place: int
    ) -> None:
        """Put a launch at a place, and take away what it computes."""
        taken: dict[int, list[int]] = {}
        for body in bodies:
            taken.setdefault(id(body.whole), []).append(body.number)
        steps: list[Step] = []
        origins: list[int] = []
        for k, (step, origin) in enumerate(zip(self.steps, self.origins, strict=True)):
            kept: list[Step] = [] if step is scan else [step]
            if id(step) in taken:
                count = len(bodies_of(step))
                rest = [n for n in range(count) if n not in taken[id(step)]]
                kept = [only(step, rest, self.slots, self.plan.threads)] if rest else []
            if k == place:
                kept = [launch, *kept]
            steps += kept
            origins += [origin] * len(kept)
        self.steps, self.origins = steps, origins


def _outputs(body: _Body | None) -> tuple[Value, ...]:
    return () if body is None else body.step.outputs


def _in_parts(cut: ScanCut, values: Sequence[Value]) -> str:
    """Return why a scan's elements are no values of a region, or nothing: it takes them apart."""
    for value in values:
        if storage_type(value.type.dtype) != operand_type(cut.scan):
            return f"kernels scan the parts of {value.type.dtype.name} one by one"
    return ""


def _read(step: Step) -> set[int]:
    return {value.slot for value in step.inputs}


def _written(step: Step) -> set[int]:
    return {*(value.slot for value in step.outputs), *step.scratch}


def _slots_of_bodies(step: Step, results: bool) -> list[set[int]]:
    """Return the slots that each body of a fused step writes, or reads."""
    values, at, slots = step.outputs if results else step.inputs, 0, []
    for body in bodies_of(step):
        count = len(body.outputs if results else body.inputs)
        slots.append({value.slot for value in values[at : at + count]})
        at += count
    return slots


def _of_others(step: Step, number: int, results: bool) -> set[int]:
    """Return the slots that other bodies of a fused step than one write, or read."""
    slots = _slots_of_bodies(step, results)
    return set().union(*(mine for n, mine in enumerate(slots) if n != number))


def _body_of(step: Step, slot: int, results: bool) -> tuple[int, bool]:
    """Return the first body of a fused step that writes, or reads, a slot; and if others do."""
    numbers = [n for n, slots in enumerate(_slots_of_bodies(step, results)) if slot in slots]
    return numbers[0], len(numbers) > 1


def _region(step: Step) -> Region:
    (body,) = bodies_of(step)
    kernels = kernels_of(body)
    assert kernels is not None
    return kernels.region


def _elementwise(step: Step, slot: int) -> bool:
    """Return whether a region reads a slot element by element, in the order of its loops."""
    region = _region(step)
    places = [k for k, value in enumerate(step.inputs) if value.slot == slot]
    return all(
        read_in_scan(region, place) is not None
        for place in places
        if any(place in access.parameters for access in region.accesses.values())
    )


def _in_step(step: Step, outputs: Iterable[Value]) -> bool:
    """Return whether results may be written over what a part reads: element by element, or not."""
    over = {value.slot: value for value in outputs}
    for value in step.inputs:
        written = over.get(value.slot)
        if written is None:
            continue
        if written.type.dtype.itemsize != value.type.dtype.itemsize:
            return False
        if step.role is Role.REGION and not _elementwise(step, value.slot):
            return False
    return True
