"""A plan bound to sizes on a CUDA device: addresses fixed, launches prepared, segments captured."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import dims
from ...config import config
from ...errors import DeviceError, MagmagraphError, NonFiniteError, message
from ...interpret import apply
from ...plan import Place, Plan, Step, Value
from ..numpy.cells import bodies_of, shape_of
from . import gemm
from .epilogue import RegionEpilogue, product_read
from .fused import kernels_of
from .memory import (
    DEVICE_TO_DEVICE,
    HOST_TO_DEVICE,
    copy_of,
    upload,
)
from .products import launcher, load, trial
from .small_gemm import SmallProduct
from .streams import Touched, assign, dependencies

if TYPE_CHECKING:
    from .backend import CudaPrepared


Launcher = Callable[[Any], None]  # puts a step's kernels on a stream

SAVED = 2.0  # microseconds that a launch and a pass over a small result take, about


@dataclass(frozen=True, eq=False)
class _Merge:
    """A product that is launched together with the region that reads it.

    Attributes
    ----------
    product, reader
        The two steps.
    body
        Which body of the reader.
    kernels, node
        Its kernels, and what of it the product's tile stands for.
    configuration, sizes
        How the product is cut; rows, columns and contracted extent.
    """

    product: Step
    reader: Step
    body: int
    kernels: Any
    node: Any
    configuration: Any
    sizes: tuple[int, int, int]



class _Segment:
    """Steps that follow one another and are launched as one captured graph.

    The first run launches them one by one, in order, on one stream; the second captures them on
    several streams, where only those wait for each other that touch the same memory.
    """

    def __init__(self, bound: CudaBound) -> None:
        self.bound = bound
        self.launches: list[Launcher] = []
        self.touched: list[Touched] = []
        self.graph: Any = None
        self.runs = 0

    def run(self) -> None:
        """Launch the steps: one by one at first, then as a graph."""
        if self.graph is not None:
            self.graph.launch(self.bound.stream)
            return
        stream = self.bound.stream
        if self.runs and len(self.launches) > 1:
            self._branch()
            with stream:
                stream.begin_capture()
                try:
                    self._capture()
                finally:
                    self.graph = stream.end_capture()
            self.graph.launch(stream)
            return
        self.runs += 1
        for launch in self.launches:
            launch(stream)

    def _branch(self) -> None:
        """Choose a stream for each step; nothing may be allocated while they are captured."""
        device = self.bound.device
        self.waits = dependencies(self.touched)
        self.chosen = assign(self.waits)
        self.streams = [self.bound.stream, *device.beside(max(self.chosen, default=0))]
        for stream in self.streams:
            device.scratch(stream)

    def _capture(self) -> None:
        """Put every step on its stream, behind what it waits for."""
        waits, chosen, streams = self.waits, self.chosen, self.streams
        event = self.bound.device.cupy.cuda.Event
        begun = event(disable_timing=True)
        begun.record(streams[0])
        needed = {
            other for step, before in enumerate(waits) for other in before
            if chosen[other] != chosen[step]
        }
        done: dict[int, Any] = {}
        entered = {0}
        for number, launch in enumerate(self.launches):
            stream = streams[chosen[number]]
            if chosen[number] not in entered:
                entered.add(chosen[number])
                stream.wait_event(begun)
            for other in sorted(waits[number]):
                if chosen[other] != chosen[number]:
                    stream.wait_event(done[other])
            launch(stream)
            if number in needed:
                done[number] = event(disable_timing=True)
                done[number].record(stream)
        for number in sorted(entered - {0}):
            ended = event(disable_timing=True)
            ended.record(streams[number])
            streams[0].wait_event(ended)


class _Interpreted:
    """A step that runs as its array expression, through CuPy."""

    def __init__(self, run: Callable[[], None], step: Step) -> None:
        self._run = run
        self.node = step.node

    def run(self) -> None:
        try:
            self._run()
        except MagmagraphError as error:
            error.node = self.node
            raise


class CudaBound:
    """A plan bound to sizes."""

    def __init__(self, prepared: CudaPrepared, plan: Plan) -> None:
        self.plan = plan
        self.prepared = prepared
        self.device = prepared.device
        self.stream = self.device.stream
        self.sizes = plan.sizes or {}
        self._keep: list[Any] = []
        cupy = self.device.cupy
        with self.device:
            self._arena = self.device.empty(max(1, plan.arena or 0))
            self._address = [0] * len(plan.slots)
            self._blocks: dict[int, Any] = {}
            self._states: list[tuple[Any, Any]] = []
            types = self._types()
            for slot in plan.slots:
                self._place(slot, types)
            self._feeds = [slot.index for slot in plan.slots if slot.place is Place.FEED]
            self._staged: list[Any] = [None] * len(self._feeds)
            self._sent = cupy.cuda.Event(disable_timing=True)
            self._before_event = cupy.cuda.Event(disable_timing=True)
            self._after_event = cupy.cuda.Event(disable_timing=True)
            written = {value.slot for step in plan.steps for value in step.outputs}
            self._written = [
                (slot.owner, copy_of(self.device, slot.owner))
                for slot in plan.slots
                if slot.place is Place.STATE and slot.index in written
            ]
            steps = plan.steps
            self._before = self._segments(steps[: plan.commit])
            self._after = self._segments(steps[plan.commit :])
            if len(self._before) == len(self._after) == 1 and not plan.guard:
                first, second = self._before[0], self._after[0]
                if isinstance(first, _Segment) and isinstance(second, _Segment):
                    # Nothing can fail: all steps are one graph.
                    first.launches += second.launches
                    first.touched += second.touched
                    self._after = []
            cupy.cuda.get_current_stream().synchronize()  # constants have arrived
        self._risky = any(isinstance(part, _Interpreted) for part in self._after)

    # ------------------------------------------------------------------ binding

    def _types(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for step in self.plan.steps:
            for value in (*step.inputs, *step.outputs):
                found.setdefault(value.slot, value.type)
        for value in self.plan.fetches:
            found.setdefault(value.slot, value.type)
        return found

    def _place(self, slot: Any, types: dict[int, Any]) -> None:
        """Give a slot its address."""
        if slot.place is Place.ARENA:
            self._address[slot.index] = self._arena.data.ptr + slot.offset
        elif slot.place is Place.STATE:
            copy = copy_of(self.device, slot.owner)
            self._states.append((slot.owner, copy))
            self._address[slot.index] = copy.address
            self._blocks[slot.index] = copy.buffer
        elif slot.place is Place.CONSTANT:
            attrs = slot.owner.attrs
            value = attrs.get("value")
            if value is None:
                value = np.asarray(dims.evaluate(attrs["dim"], self.sizes), dtype=np.int64)
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            held = self.device.empty(max(1, raw.size))
            if raw.size:
                held.set(raw)
            self._blocks[slot.index] = held
            self._address[slot.index] = held.data.ptr
        else:
            type_ = types.get(slot.index)
            held = self.device.empty(max(1, 0 if type_ is None else int(type_.bytes)))
            self._blocks[slot.index] = held
            self._address[slot.index] = held.data.ptr

    def _segments(self, steps: Sequence[Step]) -> list[Any]:
        parts: list[Any] = []
        segment: _Segment | None = None
        merged = self._merges(steps)
        for step in steps:
            merge = merged.get(id(step))
            if merge is not None and merge.product is step:
                continue  # it is launched with the step that reads it
            launches = (
                self._launches(step) if merge is None else self._with_product(step, merge)
            )
            if launches is None:
                segment = None
                parts.append(_Interpreted(self._array_step(step), step))
                continue
            if segment is None:
                segment = _Segment(self)
                parts.append(segment)
            segment.launches += launches
            touched = self._touched(step)
            if merge is not None:
                product = self._touched(merge.product)
                touched = Touched((*product.read, *touched.read), touched.written)
            segment.touched.append(touched)
        return parts

    # ------------------------------------------------------------------ products with epilogues

    def _merges(self, steps: Sequence[Step]) -> dict[int, _Merge]:
        """Return the products that are launched with the one region that reads their result."""
        found: dict[int, _Merge] = {}
        if not gemm.available():
            return found
        for i, step in enumerate(steps):
            merge = self._merge(steps, i) if step.kernel == "gemm" else None
            if merge is not None and id(merge.reader) not in found:
                found[id(step)] = found[id(merge.reader)] = merge
        return found

    def _merge(self, steps: Sequence[Step], i: int) -> _Merge | None:
        step = steps[i]
        out = step.outputs[0]
        attrs = step.node.attrs
        if attrs["scaled"] or attrs["accumulate"] or len(out.type.shape) != 2:
            return None
        if out.type.dtype != np.float32 or self.plan.slots[out.slot].place is not Place.ARENA:
            return None
        inputs = {value.slot for value in step.inputs}
        reader: Step | None = None
        for other in steps[i + 1 :]:
            if any(value.slot == out.slot for value in other.inputs):
                if reader is not None:
                    return None
                reader = other
            if any(value.slot == out.slot for value in other.outputs):
                break
            if reader is None and any(value.slot in inputs for value in other.outputs):
                return None
        if reader is None or reader.kernel != "fused":
            return None
        touched = self._touched(step).read
        for start, end in self._touched(reader).written:
            if any(start < stop and begin < end for begin, stop in touched):
                return None
        places = [k for k, value in enumerate(reader.inputs) if value.slot == out.slot]
        if len(places) != 1:
            return None
        first = 0
        for body_number, body in enumerate(bodies_of(reader)):
            if first <= places[0] < first + len(body.inputs):
                break
            first += len(body.inputs)
        kernels = kernels_of(body)
        if kernels is None or (kernels.cross and not kernels.joined):
            return None
        node = product_read(kernels.region, places[0] - first)
        if node is None:
            return None
        m, n = shape_of(out.type)
        k = shape_of(step.inputs[0].type)[-2 if attrs["transpose_a"] else -1]
        measured = trial(
            self.device, m, n, k, attrs["transpose_a"], attrs["transpose_b"]
        )
        if measured.configuration is None or measured.generated > measured.library + SAVED:
            return None
        return _Merge(step, reader, body_number, kernels, node, measured.configuration, (m, n, k))

    def _with_product(self, step: Step, merge: _Merge) -> list[Launcher] | None:
        """Return what launches a fused step together with the product that it reads."""
        lines = self.plan.threads
        m, n, k = merge.sizes
        epilogue = RegionEpilogue(merge.kernels, merge.node, merge.configuration)
        if merge.kernels.cross and epilogue.lines(m) > lines:
            raise AssertionError("a product's blocks have more lines than were planned")
        attrs = merge.product.node.attrs
        transpose_a, transpose_b = attrs["transpose_a"], attrs["transpose_b"]
        product = SmallProduct(
            merge.configuration, transpose_a, transpose_b,
            (m if transpose_a else k) % 4 == 0, (k if transpose_b else n) % 4 == 0,
            epilogue.epilogue,
        )
        (function,) = load(self.device, [product])
        others = self._fused(step, merge)
        if others is None:
            return None
        pointers, workspace = self._merged_operands
        shares = epilogue.shares(self.sizes, lines, m)
        a, b = (self._at(value) for value in merge.product.inputs[:2])
        words = np.array(
            [a, b, 0, 0, 0, 0, m, n, k, *pointers, workspace, *shares.numbers()], np.int64
        )
        self._keep.append(words)
        launch = launcher(function, product, m, n, words)
        ends = [
            self._launch(address, made, [*pointers, workspace, *made.numbers])
            for address, made in self.prepared.modules.ends(merge.kernels, shares)
        ]

        def together(stream: Any) -> None:
            launch(stream)
            for end in ends:
                end(stream)
            for other in others:
                other(stream)

        return [together]

    def _touched(self, step: Step) -> Touched:
        """Return the memory that a step reads and writes."""

        def ranges(values: Sequence[Value]) -> list[tuple[int, int]]:
            found = []
            for value in values:
                start, count = self._address[value.slot], int(value.type.bytes)
                if count:
                    found.append((start, start + count))
            return found

        written = ranges(step.outputs)
        if step.workspace is not None:
            slot = self.plan.slots[step.workspace]
            start = self._address[step.workspace]
            written.append((start, start + int(slot.size)))
        return Touched(tuple(ranges(step.inputs)), tuple(written))

    def _launches(self, step: Step) -> list[Launcher] | None:
        """Return what launches a step, or None where its array expression has to run."""
        if step.kernel == "fused":
            return self._fused(step)
        if step.kernel == "copy":
            source, target = step.inputs[0], step.outputs[0]
            count = int(source.type.bytes)
            runtime = self.device.cupy.cuda.runtime
            arguments = (self._at(target), self._at(source), count, DEVICE_TO_DEVICE)

            def copy(stream: Any) -> None:
                if count:
                    runtime.memcpyAsync(*arguments, stream.ptr)

            return [copy]
        if step.kernel == "gemm" and gemm.available():
            return self._gemm(step)
        if step.kernel == "gemv" and gemm.available():
            return self._gemv(step)
        return None

    def _at(self, value: Value | None) -> int:
        return 0 if value is None else self._address[value.slot]

    def _fused(self, step: Step, merge: _Merge | None = None) -> list[Launcher] | None:
        """Return what launches a fused step, without the body that a product computes."""
        bodies = bodies_of(step)
        kernels = [kernels_of(body) for body in bodies]
        if any(k is None for k in kernels):
            return None
        launches: list[Launcher] = []
        at = to = 0
        lines = self.plan.threads
        workspace = 0 if step.workspace is None else self._address[step.workspace]
        for number, (body, k) in enumerate(zip(bodies, kernels, strict=True)):
            assert k is not None
            taken, made = len(body.inputs), len(body.outputs)
            pointers = [self._at(v) for v in step.inputs[at : at + taken]]
            pointers += [self._at(v) for v in step.outputs[to : to + made]]
            at, to = at + taken, to + made
            if merge is not None and number == merge.body:
                self._merged_operands = (pointers, workspace)
                size = k.region.workspace(lines)
                workspace += size if isinstance(size, int) else dims.evaluate(size, self.sizes)
                continue
            try:
                bound = self.prepared.modules.bind(k, self.sizes, lines, self._counter())
            except k.refusals:
                return None
            for function, launch in bound:
                launches.append(
                    self._launch(function, launch, [*pointers, workspace, *launch.numbers])
                )
            # Bodies of one step have workspaces of their own, one behind the other.
            region = k.region
            size = region.workspace(lines)
            workspace += size if isinstance(size, int) else dims.evaluate(size, self.sizes)

        def together(stream: Any) -> None:
            for launch in launches:
                launch(stream)

        return [together] if launches else []

    def _counter(self) -> int:
        """Return the address of a zero that one launch alone counts with."""
        held = self.device.cupy.zeros(1, np.uint32)
        self._keep.append(held)
        return int(held.data.ptr)

    def _launch(self, function: int, launch: Any, words: list[int]) -> Launcher:
        """Return what launches a kernel with arguments that never change."""
        from cupy_backends.cuda.api import driver

        held = np.array(words, dtype=np.int64)
        pointer = (ctypes.c_void_p * 1)(held.ctypes.data)
        self._keep += [held, pointer]
        address = ctypes.addressof(pointer)
        (gx, gy, gz), (bx, by, bz) = launch.grid, launch.block

        def run(stream: Any) -> None:
            driver.launchKernel(function, gx, gy, gz, bx, by, bz, 0, stream.ptr, address, 0)

        return run

    def _scalars(self, step: Step, first: int) -> tuple[Value | None, Value | None, Value | None]:
        """Return alpha, C and beta of a product whose matrices are the `first` operands."""
        rest = list(step.inputs[first:])
        alpha = rest.pop(0) if step.node.attrs["scaled"] else None
        c, beta = rest if step.node.attrs["accumulate"] else (None, None)
        return alpha, c, beta

    def _product(
        self, dtype: np.dtype, m: int, n: int, k: int, step: Step, first: int, **more: Any
    ) -> tuple[Any, int, int, int]:
        """Return a product and the addresses of alpha, C and beta."""
        alpha, c, beta = self._scalars(step, first)
        fixed = [self._fixed(value) for value in (alpha, beta)]
        dynamic = any(
            value is not None and number is None
            for value, number in zip((alpha, beta), fixed, strict=True)
        )
        shape = gemm.Shape(
            m, n, k, dtype.name, accumulate=c is not None, device_scalars=dynamic, **more
        )
        product = gemm.plan_product(
            self.device, shape, self.device.scratch(self.stream), config.tuning
        )
        if dynamic:
            ones = self.device.cupy.array([1, 0], product.scalar)
            self._keep.append(ones)
            one, zero = ones.data.ptr, ones.data.ptr + product.scalar.itemsize
            pair = (
                self._at(alpha) if alpha is not None else one,
                self._at(beta) if beta is not None else zero,
            )
        else:
            numbers = [
                np.array([default if number is None else number], product.scalar)
                for number, default in zip(fixed, (1, 0), strict=True)
            ]
            self._keep += numbers
            pair = (numbers[0].ctypes.data, numbers[1].ctypes.data)
        return product, pair[0], self._at(c), pair[1]

    def _fixed(self, value: Value | None) -> float | None:
        """Return a scalar that is a constant of the plan."""
        if value is None or self.plan.slots[value.slot].place is not Place.CONSTANT:
            return None
        held = self.plan.slots[value.slot].owner.attrs.get("value")
        return None if held is None else float(held.reshape(-1)[0])

    def _gemm(self, step: Step) -> list[Launcher] | None:
        a, b = step.inputs[:2]
        out = step.outputs[0]
        attrs = step.node.attrs
        *batch, m, n = shape_of(out.type)
        k = shape_of(a.type)[-2 if attrs["transpose_a"] else -1]
        count = math.prod(batch)
        if not (m and n and k and count):
            return None
        strides = (
            m * k if len(a.type.shape) > 2 else 0,
            k * n if len(b.type.shape) > 2 else 0,
            m * n,
        )
        product, alpha, c, beta = self._product(
            out.type.dtype, m, n, k, step, 2,
            transpose_a=attrs["transpose_a"], transpose_b=attrs["transpose_b"],
            batch=count, strides=strides if count > 1 else (0, 0, 0),
        )
        return [self._call(product, self._at(a), self._at(b), c, self._at(out), alpha, beta)]

    def _gemv(self, step: Step) -> list[Launcher] | None:
        x, out = step.inputs[0], step.outputs[0]
        m, n = shape_of(x.type)
        if not (m and n):
            return None
        columns = step.node.attrs["axis"] == 0
        dtype = out.type.dtype
        length = m if columns else n
        ones = self.device.cupy.ones(length, dtype)
        self._keep.append(ones)
        product, alpha, c, beta = self._product(
            dtype, n if columns else m, 1, length, step, 1,
            transpose_a=columns, transpose_b=False,
        )
        return [self._call(product, self._at(x), ones.data.ptr, c, self._at(out), alpha, beta)]

    def _call(
        self, product: Any, a: int, b: int, c: int, out: int, alpha: int, beta: int
    ) -> Launcher:
        device = self.device

        def run(stream: Any) -> None:
            scratch = device.scratch(stream)  # each stream has one of its own
            product.launch(a, b, c, out, alpha, beta, scratch, stream.ptr)

        return run

    # ------------------------------------------------------------------ array expressions

    def _view(self, value: Value) -> Any:
        """Return a value as a CuPy array."""
        cupy = self.device.cupy
        slot = self.plan.slots[value.slot]
        block = self._arena if slot.place is Place.ARENA else self._blocks[value.slot]
        start = slot.offset or 0 if slot.place is Place.ARENA else 0
        count = int(value.type.bytes)
        raw = block[start : start + count]
        if not count:
            return cupy.empty(shape_of(value.type), value.type.dtype)
        return raw.view(value.type.dtype).reshape(shape_of(value.type))

    def _array_step(self, step: Step) -> Callable[[], None]:
        cupy = self.device.cupy
        sizes = dict(self.sizes)

        def evaluate() -> None:
            with self.stream:
                operands = [self._view(v) for v in step.inputs]
                made = None
                if step.node.op not in self.prepared.on_host:
                    try:
                        made = apply(step.node, operands, sizes, cupy)
                    except MagmagraphError:
                        raise
                    except Exception:  # whatever CuPy raises for what it does not have
                        made = None
                if made is None:
                    given = [cupy.asnumpy(operand) for operand in operands]
                    made = apply(step.node, given, sizes)
                    self.prepared.on_host.add(step.node.op)  # it is the host that can
                several = made if isinstance(made, tuple) else (made,)
                for target, array in zip(step.outputs, several, strict=True):
                    if isinstance(array, np.ndarray):
                        array = cupy.asarray(array)
                    self._view(target)[...] = array

        return evaluate

    # ------------------------------------------------------------------ running

    def run(self, feeds: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """Run every step once; results are the caller's."""
        device, stream, cupy = self.device, self.stream, self.device.cupy
        with device.lock, device:
            current = cupy.cuda.get_current_stream()
            self._before_event.record(current)
            stream.wait_event(self._before_event)
            for state, copy in self._states:
                if copy.version != state.version:
                    upload(device, state, copy)
            for position, value in enumerate(feeds):
                self._feed(position, value)
            for part in self._before:
                part.run()
            if self.plan.guard:
                self._check_finite()
            kept = self._kept() if self._risky else []
            try:
                for part in self._after:
                    part.run()
            except BaseException:
                for address, saved in kept:
                    cupy.cuda.runtime.memcpyAsync(
                        address, saved.data.ptr, saved.nbytes, DEVICE_TO_DEVICE, stream.ptr
                    )
                raise
            for state, copy in self._written:
                state.version += 1
                copy.version = state.version
                state.newest = copy
            results = [self._result(fetch) for fetch in self.plan.fetches]
            self._after_event.record(stream)
            current.wait_event(self._after_event)
        if out is None:
            return results
        for target, array in zip(out, results, strict=True):
            if isinstance(target, np.ndarray):
                np.copyto(target, array.get(), casting="same_kind")
            else:
                target[...] = array
        return list(out)

    def _feed(self, position: int, value: Any) -> None:
        """Send a fed value to its slot; from the host through pinned memory."""
        count = value.nbytes
        if not count:
            return
        runtime = self.device.cupy.cuda.runtime
        address = self._address[self._feeds[position]]
        if not isinstance(value, np.ndarray):
            runtime.memcpyAsync(
                address, value.data.ptr, count, DEVICE_TO_DEVICE, self.stream.ptr
            )
            return
        staged = self._staged[position]
        if staged is None:
            memory = self.device.cupy.cuda.alloc_pinned_memory(count)
            array = np.frombuffer(memory, np.uint8, count)
            event = self.device.cupy.cuda.Event(disable_timing=True)
            staged = self._staged[position] = (memory, array, event)
        else:
            staged[2].synchronize()  # what was sent last has left
        _, array, event = staged
        array[...] = value.reshape(-1).view(np.uint8)
        runtime.memcpyAsync(address, array.ctypes.data, count, HOST_TO_DEVICE, self.stream.ptr)
        event.record(self.stream)

    def _result(self, fetch: Value) -> Any:
        """Return a result in memory of its own."""
        cupy = self.device.cupy
        array = cupy.empty(shape_of(fetch.type), fetch.type.dtype)
        if array.nbytes:
            cupy.cuda.runtime.memcpyAsync(
                array.data.ptr, self._at(fetch), array.nbytes, DEVICE_TO_DEVICE, self.stream.ptr
            )
        return array

    def _kept(self) -> list[tuple[int, Any]]:
        """Return copies of all that the steps after the commit point write."""
        cupy = self.device.cupy
        kept = []
        for _, copy in self._written:
            saved = cupy.empty_like(copy.buffer)
            cupy.cuda.runtime.memcpyAsync(
                saved.data.ptr, copy.address, saved.nbytes, DEVICE_TO_DEVICE, self.stream.ptr
            )
            kept.append((copy.address, saved))
        return kept

    def _check_finite(self) -> None:
        """Raise unless every result and every new value is finite; nothing is written yet."""
        cupy = self.device.cupy
        late = self.plan.steps[self.plan.commit :]
        checked = [(step.inputs[0], step.outputs[0].slot) for step in late]
        written = {step.outputs[0].slot for step in late}
        checked += [(f, f.slot) for f in self.plan.fetches if f.slot not in written]
        with self.stream:
            for value, target in checked:
                view = self._view(value)
                if view.dtype.kind in "iub":
                    continue
                bad = int((~cupy.isfinite(view.astype(cupy.float64))).sum())
                if bad:
                    slot = self.plan.slots[target]
                    what = (
                        f"the new value of variable '{slot.owner.name}'"
                        if slot.place is Place.STATE
                        else f"output {slot.owner}"
                    )
                    raise NonFiniteError(
                        message(
                            f"{what} holds {bad} values that are not finite, and nan='raise' "
                            "is set",
                            need="finite values; no variable was changed",
                            mend="f.check(...) finds the first node that made one",
                        )
                    )

    def run_timed(self, feeds: Sequence[Any]) -> list[int]:
        """Run once, put every variable back, and return the nanoseconds of each step."""
        raise DeviceError(message("steps are not timed one by one on this device yet"))
