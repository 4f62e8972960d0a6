"""Plans on the CPU: compiled kernels and BLAS as one call, or NumPy where they cannot be."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import dims
from ...config import config
from ...dims import Dim
from ...errors import CompilerUnavailable, FallbackWarning, NonFiniteError, PlanError, message
from ...graph import Graph
from ...interpret import apply
from ...plan import Place, Plan, Step, Value
from ...types import Type
from . import fused
from .codegen import step_code
from .interrupts import deferred
from .products import batched_gemm_step, copy_step, gemm_step, gemv_step
from .results import ResultPool
from .support import Program, address_of, aligned_empty

SECONDS_A_NODE = 0.0015  # what writing and compiling its C takes, about; for the compile budget

_warned = threading.Event()


def bodies_of(step: Step) -> tuple[Graph, ...]:
    """Return the body graphs of a fused step."""
    attrs = step.node.attrs
    return tuple(attrs["bodies"]) if "bodies" in attrs else (attrs["body"],)


def _fall_back(reason: str) -> None:
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            message(
                f"kernels are not compiled: {reason}",
                need="a C compiler (cc, gcc or clang); the NumPy fallback runs, more slowly",
                mend="install one, or set MAGMAGRAPH_COMPILER=off to choose the fallback",
            ),
            FallbackWarning,
            stacklevel=4,
        )


class NumpyPrepared:
    """A symbolic plan with its kernels built for this machine."""

    def __init__(self, plan: Plan, budget: float) -> None:
        self.plan = plan
        self.kernels: fused.Kernels | None = None
        self.compiled: frozenset[int] = frozenset()
        steps = [i for i, step in enumerate(plan.steps) if step.kernel == "fused"]
        if config.compiler == "off":
            return
        try:
            chosen = _affordable(plan, steps, budget)
            kernels = fused.Kernels()
            products = {
                step.outputs[0].type.dtype
                for step in plan.steps
                if step.kernel in ("gemm", "gemv")
            }
            kernels.build([bodies_of(plan.steps[i]) for i in chosen], sorted(products, key=str))
            self.kernels = kernels
            self.compiled = frozenset(chosen)
        except CompilerUnavailable as error:
            if config.compiler == "force":
                raise
            _fall_back(str(error).splitlines()[0])

    def describe(self) -> str:
        """Return one line: how many kernels were built, and how."""
        total = sum(step.kernel == "fused" for step in self.plan.steps)
        if self.kernels is None:
            return f"{total} fused steps in NumPy tiles"
        return f"{len(self.compiled)} of {total} fused steps as compiled kernels"

    def source(self, step: int) -> str:
        """Return the C of a fused step, whether or not it was compiled."""
        chosen = self.plan.steps[step]
        if chosen.kernel != "fused":
            raise PlanError(
                message(
                    f"step {step} is of the family {chosen.kernel}, for which no C is generated",
                    need="a fused step",
                    mend="print(f.plan) lists the steps",
                )
            )
        return step_code(bodies_of(chosen)).text()

    def bind(self, plan: Plan) -> NumpyBound:
        """Bind a specialized plan: addresses, cells and views are made once."""
        return NumpyBound(self, plan)


def _affordable(plan: Plan, steps: Sequence[int], budget: float) -> list[int]:
    """Return the fused steps, from the first on, whose kernels can be built within the budget."""
    chosen: list[int] = []
    spent = 0.0
    for i in steps:
        spent += SECONDS_A_NODE * sum(len(body) for body in bodies_of(plan.steps[i]))
        if spent > budget:
            break
        chosen.append(i)
    return chosen


class _Block:
    """Steps that follow one another and are all compiled: one call."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, list[int]]] = []
        self.dynamic: list[tuple[int, int, int]] = []  # (step, cell, slot)
        self.numbers: list[int] = []  # positions of its steps in the plan


class NumpyBound:
    """A plan bound to sizes."""

    def __init__(self, prepared: NumpyPrepared, plan: Plan) -> None:
        self.plan = plan
        self.prepared = prepared
        self.sizes: Mapping[str, int] = plan.sizes or {}
        self._keep: list[Any] = [prepared.kernels]
        self._arena = aligned_empty(max(1, plan.arena or 0))
        self._base: list[np.ndarray | None] = []
        self._address: list[int] = []
        self._feeds: list[int] = []
        for slot in plan.slots:
            held = self._memory_of(slot)
            self._base.append(held)
            self._address.append(0 if held is None else address_of(held))
            if slot.place is Place.FEED:
                self._feeds.append(slot.index)
        self._results = [fetch.slot for fetch in plan.fetches]
        self._pools = [
            ResultPool(tuple(map(int, fetch.type.shape)), fetch.type.dtype)
            for fetch in plan.fetches
        ]
        self._states = [slot.owner for slot in plan.slots if slot.place is Place.STATE]
        self._written = self._written_states()
        self._dynamic: dict[int, np.ndarray] = {}
        self._feed_cells: list[list[tuple[Any, int]]] = [[] for _ in self._feeds]
        self._result_cells: list[list[tuple[Any, int]]] = [[] for _ in self._results]
        before, after = self._segments()
        self._before = before
        self._after = after
        self._python = any(not isinstance(s, _Compiled) for s in (*before, *after))
        self._risky = any(not isinstance(s, _Compiled) for s in after)
        single = [*before, *after]
        self._whole: Callable[[], int] | None = None
        if len(single) == 1 and not self._python and not plan.guard:
            self._whole = single[0].run

    # ------------------------------------------------------------------ binding

    def _memory_of(self, slot: Any) -> np.ndarray | None:
        """Return the bytes of a slot, or None where they come with the call."""
        if slot.place is Place.ARENA:
            start = slot.offset
            return self._arena[start : start + slot.size]
        if slot.place is Place.STATE:
            data: np.ndarray = slot.owner.data
            return data
        if slot.place is Place.CONSTANT:
            attrs = slot.owner.attrs
            value = attrs.get("value")
            if value is None:
                value = np.asarray(dims.evaluate(attrs["dim"], self.sizes), dtype=np.int64)
            held = np.ascontiguousarray(value).reshape(np.shape(value))
            self._keep.append(held)
            return held
        return None

    def _written_states(self) -> list[Any]:
        found: dict[int, Any] = {}
        for step in self.plan.steps:
            for value in step.outputs:
                slot = self.plan.slots[value.slot]
                if slot.place is Place.STATE:
                    found[value.slot] = slot.owner
        return list(found.values())

    def _segments(self) -> tuple[list[Any], list[Any]]:
        """Return the segments before and after the commit point."""
        parts: tuple[list[Any], list[Any]] = ([], [])
        for part, numbers in (
            (parts[0], range(self.plan.commit)),
            (parts[1], range(self.plan.commit, len(self.plan.steps))),
        ):
            block: _Block | None = None
            for number in numbers:
                step = self.plan.steps[number]
                cells = self._cells(step, number)
                if cells is None:
                    block = None
                    part.append(_Interpreted(self._python_step(step), number))
                    continue
                if block is None:
                    block = _Block()
                    part.append(block)
                function, values, dynamic = cells
                for cell, slot in dynamic:
                    block.dynamic.append((len(block.steps), cell, slot))
                block.steps.append((function, values))
                block.numbers.append(number)
        # Where nothing can fail, all steps are one call.
        if len(parts[0]) == 1 and len(parts[1]) == 1 and not self.plan.guard:
            first, second = parts[0][0], parts[1][0]
            if isinstance(first, _Block) and isinstance(second, _Block):
                shift = len(first.steps)
                second.dynamic = [
                    *first.dynamic, *((s + shift, c, slot) for s, c, slot in second.dynamic)
                ]
                second.steps = [*first.steps, *second.steps]
                second.numbers = [*first.numbers, *second.numbers]
                parts[0].clear()
        made = tuple(
            [self._compile(s) if isinstance(s, _Block) else s for s in part] for part in parts
        )
        return made[0], made[1]

    def _compile(self, block: _Block) -> _Compiled:
        program = Program(block.steps, keep=self._keep)
        feeds = {slot: i for i, slot in enumerate(self._feeds)}
        results = {slot: i for i, slot in enumerate(self._results)}
        for step, cell, slot in block.dynamic:
            place = (program.cells, program.slot(step, cell))
            if slot in feeds:
                self._feed_cells[feeds[slot]].append(place)
            else:
                self._result_cells[results[slot]].append(place)
        return _Compiled(program, block.numbers)

    def _cells(
        self, step: Step, number: int
    ) -> tuple[int, list[int], list[tuple[int, int]]] | None:
        """Return function, cells and dynamic cells of a step, or None: it runs in Python."""
        if step.kernel == "array" or self.prepared.kernels is None:
            return None
        if step.kernel == "fused":
            if number not in self.prepared.compiled:
                return None
            bodies = bodies_of(step)
            function, tail = self.prepared.kernels.bind(
                bodies, self.sizes, self.plan.threads
            )
            values = [*step.inputs, *step.outputs]
            cells = [self._address[v.slot] for v in values]
            cells.append(0 if step.workspace is None else self._address[step.workspace])
            positions = {i: v.slot for i, v in enumerate(values)}
            cells.extend(tail)
            return function, cells, self._dynamic_cells(positions)
        if step.kernel == "copy":
            source, target = step.inputs[0], step.outputs[0]
            function, cells = copy_step(
                self._address[target.slot], self._address[source.slot], _bytes(source.type)
            )
            return function, cells, self._dynamic_cells({0: target.slot, 1: source.slot})
        if step.kernel == "gemm":
            return self._gemm(step)
        if step.kernel == "gemv":
            return self._gemv(step)
        raise ValueError(f"there is no kernel family {step.kernel!r}")

    def _dynamic_cells(self, slots: Mapping[int, int]) -> list[tuple[int, int]]:
        moving = (Place.FEED, Place.RESULT)
        return [
            (cell, slot) for cell, slot in slots.items() if self.plan.slots[slot].place in moving
        ]

    def _operands(self, step: Step, first: int) -> tuple[Value | None, Value | None, Value | None]:
        """Return alpha, C and beta of a product whose matrices are the `first` operands."""
        rest = list(step.inputs[first:])
        alpha = rest.pop(0) if step.node.attrs["scaled"] else None
        c, beta = rest if step.node.attrs["accumulate"] else (None, None)
        return alpha, c, beta

    def _at(self, value: Value | None) -> int:
        return 0 if value is None else self._address[value.slot]

    def _gemm(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        a, b = step.inputs[:2]
        alpha, c, beta = self._operands(step, 2)
        out = step.outputs[0]
        attrs = step.node.attrs
        *batch, m, n = _shape(out.type)
        k = _shape(a.type)[-2 if attrs["transpose_a"] else -1]
        options: dict[str, Any] = {
            "c": self._at(c),
            "alpha": self._at(alpha),
            "beta": self._at(beta),
            "transpose_a": attrs["transpose_a"],
            "transpose_b": attrs["transpose_b"],
        }
        addresses = (self._at(out), self._at(a), self._at(b))
        count = int(np.prod(batch, dtype=np.int64))
        if not batch:
            made = gemm_step(out.type.dtype, *addresses, m, n, k, **options)
        else:
            made = batched_gemm_step(
                out.type.dtype,
                *addresses,
                m,
                n,
                k,
                count,
                stride_out=m * n,
                stride_a=m * k if len(a.type.shape) > 2 else 0,
                stride_b=k * n if len(b.type.shape) > 2 else 0,
                stride_c=m * n if c is not None and len(c.type.shape) > 2 else 0,
                **options,
            )
        values = (out, a, b, c, alpha, beta)
        slots = {i: v.slot for i, v in enumerate(values) if v is not None}
        # A scalar of one is a null cell only where there is no operand for it.
        return (*made, self._dynamic_cells(slots))

    def _gemv(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        x = step.inputs[0]
        alpha, y, beta = self._operands(step, 1)
        out = step.outputs[0]
        m, n = _shape(x.type)
        columns = step.node.attrs["axis"] == 0
        ones = _ones(m if columns else n, out.type.dtype)
        self._keep.append(ones)
        made = gemv_step(
            out.type.dtype,
            self._at(out),
            self._at(x),
            address_of(ones),
            m,
            n,
            y=self._at(y),
            alpha=self._at(alpha),
            beta=self._at(beta),
            transpose=columns,
        )
        slots = {0: out.slot, 1: x.slot}
        for cell, value in ((3, y), (4, alpha), (5, beta)):
            if value is not None:
                slots[cell] = value.slot
        return (*made, self._dynamic_cells(slots))

    # ------------------------------------------------------------------ steps in Python

    def _view(self, value: Value) -> np.ndarray:
        """Return the array of a value now (feeds and results change from call to call)."""
        held = self._base[value.slot]
        shape = _shape(value.type)
        if held is None:
            return self._dynamic[value.slot].reshape(shape)
        return held.view(value.type.dtype).reshape(shape)

    def _python_step(self, step: Step) -> Callable[[], None]:
        sizes = self.sizes
        if step.kernel == "copy":

            def copy() -> None:
                np.copyto(self._view(step.outputs[0]), self._view(step.inputs[0]))

            return copy
        if step.kernel == "fused":
            from . import tiled

            bodies = bodies_of(step)

            def run_bodies() -> None:
                operands = [self._view(v) for v in step.inputs]
                results = [self._view(v) for v in step.outputs]
                at = to = 0
                for body in bodies:
                    taken, made = len(body.inputs), len(body.outputs)
                    tiled.run(body, operands[at : at + taken], results[to : to + made], sizes)
                    at, to = at + taken, to + made

            return run_bodies

        def evaluate() -> None:
            made = apply(step.node, [self._view(v) for v in step.inputs], dict(sizes))
            several = made if isinstance(made, tuple) else (made,)
            for target, array in zip(step.outputs, several, strict=True):
                np.copyto(self._view(target), array)

        return evaluate

    # ------------------------------------------------------------------ running

    def run(self, feeds: Sequence[np.ndarray], out: Sequence[Any] | None = None) -> list[Any]:
        """Run every step once; results are the caller's."""
        for places, array in zip(self._feed_cells, feeds, strict=True):
            if places:
                address = address_of(array)
                for cells, position in places:
                    cells[position] = address
        results: list[np.ndarray] = []
        for places, pool in zip(self._result_cells, self._pools, strict=True):
            array, address = pool.take()
            results.append(array)
            for cells, position in places:
                cells[position] = address
        if self._whole is not None:
            self._whole()
        else:
            self._run_segments(feeds, results)
        for state in self._written:
            state.version += 1
        if out is not None:
            for target, array in zip(out, results, strict=True):
                np.copyto(target, array, casting="same_kind")
            return list(out)
        return results

    def _run_segments(self, feeds: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        if self._python or self.plan.guard:
            self._dynamic.update(zip(self._feeds, feeds, strict=True))
            self._dynamic.update(zip(self._results, results, strict=True))
        try:
            for segment in self._before:
                segment.run()
            if self.plan.guard:
                self._check_finite()
            if not self._risky:
                for segment in self._after:
                    segment.run()
                return
            with deferred():
                kept = [(state, state.data.copy()) for state in self._written]
                try:
                    for segment in self._after:
                        segment.run()
                except BaseException:
                    for state, value in kept:
                        state.data[...] = value
                    raise
        finally:
            self._dynamic.clear()

    def _check_finite(self) -> None:
        """Raise unless every result and every new value is finite; nothing is written yet."""
        late = self.plan.steps[self.plan.commit :]
        for step in late:
            target = self.plan.slots[step.outputs[0].slot]
            what = (
                f"the new value of variable '{target.owner.name}'"
                if target.place is Place.STATE
                else f"output {target.owner}"
            )
            _raise_unless_finite(self._view(step.inputs[0]), what)
        written = {step.outputs[0].slot for step in late}
        for i, fetch in enumerate(self.plan.fetches):
            if fetch.slot not in written:
                _raise_unless_finite(self._view(fetch), f"output {i}")

    def run_timed(self, feeds: Sequence[np.ndarray]) -> list[int]:
        """Run once, put every variable back, and return the nanoseconds of each step."""
        kept = [(state, state.data.copy()) for state in self._written]
        taken = [0] * len(self.plan.steps)
        try:
            self.run(feeds)
            for state, value in kept:
                state.data[...] = value
            self._dynamic.update(zip(self._feeds, feeds, strict=True))
            results = [pool.take()[0] for pool in self._pools]
            self._dynamic.update(zip(self._results, results, strict=True))
            for places, array in zip(self._result_cells, results, strict=True):
                for cells, position in places:
                    cells[position] = address_of(array)
            for segment in (*self._before, *self._after):
                segment.time(taken)
        finally:
            self._dynamic.clear()
            for state, value in kept:
                state.data[...] = value
        return taken


class _Compiled:
    """A segment that is one call into C."""

    def __init__(self, program: Program, numbers: list[int]) -> None:
        self.program = program
        self.run = program.run
        self.numbers = numbers

    def time(self, taken: list[int]) -> None:
        for number, nanoseconds in zip(self.numbers, self.program.run_timed(), strict=True):
            taken[number] = nanoseconds


class _Interpreted:
    """A step that runs in Python."""

    def __init__(self, run: Callable[[], None], number: int) -> None:
        self.run = run
        self.number = number

    def time(self, taken: list[int]) -> None:
        import time

        began = time.perf_counter_ns()
        self.run()
        taken[self.number] = time.perf_counter_ns() - began


def _raise_unless_finite(array: np.ndarray, what: str) -> None:
    if array.dtype.kind not in "iub" and not np.isfinite(array.astype(np.float64)).all():
        bad = int(np.count_nonzero(~np.isfinite(array.astype(np.float64))))
        raise NonFiniteError(
            message(
                f"{what} holds {bad} values that are not finite, and nan='raise' is set",
                need="finite values; no variable was changed",
                mend="f.check(...) finds the first node that made one",
            )
        )


def _shape(type_: Type) -> tuple[int, ...]:
    assert not any(isinstance(extent, Dim) for extent in type_.shape)
    return type_.shape  # type: ignore[return-value]


def _bytes(type_: Type) -> int:
    return int(type_.bytes)


_ones_lock = threading.Lock()
_ones_held: dict[np.dtype, np.ndarray] = {}


def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    """Return at least `count` ones, shared by all plans."""
    with _ones_lock:
        held = _ones_held.get(dtype)
        if held is None or held.size < count:
            held = _ones_held[dtype] = np.ones(max(count, 1024), dtype)
        return held
