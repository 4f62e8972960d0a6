"""The cells of a step: which compiled function runs it, on which addresses and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...fallback import Refused
from ...locking import shared_lock
from ...ops.indexing.gathering import TAKE
from ...plan import Place, Plan, Step, Value
from ..steps import bodies_of, bytes_of, join_layout, scaling_of, shape_of
from .convolution.convolution import convolution_step
from .convolution.pooling import pooling_step
from .nested import branch_step, loop_step
from .products.choice import TILES, Sizes, Way, way_of
from .products.mixed import mixed_gemm_step
from .products.products import (
    batched_gemm_step,
    copy_step,
    gemm_step,
    gemv_step,
    scatter_add_step,
    scatter_step,
    take_step,
)
from .support import address_of, support

__all__ = ["IN_PYTHON", "StepCells", "bodies_of", "shape_of"]

REMEMBERED = 16  # sizes of a step, whose ways others may take
IN_PYTHON = ("array", "collective", "wait")  # families of steps that are not compiled

if TYPE_CHECKING:
    from .backend import NumpyPrepared


class StepCells:
    """Makes the cells of a plan's steps.

    Parameters
    ----------
    plan
        A specialized plan.
    prepared
        Its kernels.
    address
        The address of each slot, 0 for those that come with the call.
    keep
        Takes what must live as long as the cells.
    """

    def __init__(
        self, plan: Plan, prepared: NumpyPrepared, address: Sequence[int], keep: list[Any]
    ) -> None:
        self.plan = plan
        self.sizes: Mapping[str, int] = plan.sizes or {}
        self._kernels = prepared.kernels
        self._compiled = prepared.compiled
        self._address = address
        self._keep = keep
        self._before = prepared.ways
        self.ways: dict[int, Way] = {}  # how products run, by the number of the step

    def of(
        self, step: Step, number: int
    ) -> tuple[int, list[int], list[tuple[int, int]]] | None:
        """Return function, cells and dynamic cells of a step, or None: it runs in Python.

        Raises
        ------
        Refused
            Its kernel does not take it at these sizes; its array expression has to run.
        """
        if step.kernel in IN_PYTHON or self._kernels is None:
            return None
        if step.kernel == "fused":
            if number not in self._compiled:
                return None
            bodies = bodies_of(step)
            function, tail = self._kernels.bind(
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
                self._address[target.slot], self._address[source.slot], bytes_of(source.type)
            )
            return function, cells, self._dynamic_cells({0: target.slot, 1: source.slot})
        if step.kernel == "gemm":
            return self._gemm(step, number)
        if step.kernel == "gemv":
            return self._gemv(step)
        if step.kernel == "convolution":
            return self._convolution(step)
        if step.kernel == "pooling":
            return self._pooling(step)
        if step.kernel == "scatter":
            return self._scatter(step)
        if step.kernel == "indexed":
            return self._indexed(step)
        if step.kernel == "join":
            return self._join(step)
        if step.kernel == "loop":
            return self._nested(step, loop_step(step, self.sizes, self._keep))
        if step.kernel == "branch":
            return self._nested(step, branch_step(step, self.sizes, self._keep))
        raise ValueError(f"there is no kernel family {step.kernel!r}")

    def _dynamic_cells(self, slots: Mapping[int, int]) -> list[tuple[int, int]]:
        moving = (Place.FEED, Place.RESULT)
        return [
            (cell, slot) for cell, slot in slots.items() if self.plan.slots[slot].place in moving
        ]

    def _at(self, value: Value | None) -> int:
        return 0 if value is None else self._address[value.slot]

    def _gemm(self, step: Step, number: int) -> tuple[int, list[int], list[tuple[int, int]]]:
        a, b = step.inputs[:2]
        alpha, c, beta = scaling_of(step, 2)
        out = step.outputs[0]
        attrs = step.node.attrs
        *batch, m, n = shape_of(out.type)
        k = shape_of(a.type)[-2 if attrs["transpose_a"] else -1]
        options: dict[str, Any] = {
            "c": self._at(c),
            "alpha": self._at(alpha),
            "beta": self._at(beta),
            "transpose_a": attrs["transpose_a"],
            "transpose_b": attrs["transpose_b"],
        }
        addresses = (self._at(out), self._at(a), self._at(b))
        count = int(np.prod(batch, dtype=np.int64))
        tf32 = attrs.get("compute") == "tf32"
        if tf32 or a.type.dtype.itemsize < 4:
            made = mixed_gemm_step(
                a.type.dtype,
                out.type.dtype,
                *addresses,
                m,
                n,
                k,
                count,
                0 if step.workspace is None else self._address[step.workspace],
                tf32=tf32,
                shared_a=len(a.type.shape) == 2,
                shared_b=len(b.type.shape) == 2,
                **options,
            )
            return (*made, self._dynamic_cells(self._slots_of(out, a, b, c, alpha, beta)))
        sizes = Sizes(
            out.type.dtype,
            m,
            n,
            k,
            count,
            attrs["transpose_a"],
            attrs["transpose_b"],
            c is not None,
            bool(batch) and len(b.type.shape) == 2,
            self.plan.threads,
        )
        before = self._before.setdefault(number, {})
        way = way_of(sizes, [*before.items()], deterministic=self.plan.deterministic)
        self.ways[number] = way
        if len(before) < REMEMBERED:
            before[sizes] = way
        options["tiles"] = way.name == TILES
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
        # A scalar of one is a null cell only where there is no operand for it.
        return (*made, self._dynamic_cells(self._slots_of(out, a, b, c, alpha, beta)))

    @staticmethod
    def _slots_of(*values: Value | None) -> dict[int, int]:
        return {i: v.slot for i, v in enumerate(values) if v is not None}

    def _convolution(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        left, right = step.inputs
        out = step.outputs[0]
        scratch = step.workspace
        made = convolution_step(
            step.node,
            self.sizes,
            self._at(left),
            self._at(right),
            self._at(out),
            0 if scratch is None else self._address[scratch],
            0 if scratch is None else int(self.plan.slots[scratch].size),
            self.plan.threads,
        )
        return (*made, self._dynamic_cells({0: left.slot, 1: right.slot, 2: out.slot}))

    def _pooling(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        out = step.outputs[0]
        made = pooling_step(
            step.node,
            self.sizes,
            [self._at(value) for value in step.inputs],
            self._at(out),
            [shape_of(step.inputs[0].type), shape_of(out.type)],
        )
        slots = {i: value.slot for i, value in enumerate(step.inputs)}
        return (*made, self._dynamic_cells({**slots, 2: out.slot}))

    def _join(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        """Return the cells of arrays that stand side by side along one axis, or among zeros."""
        out = step.outputs[0]
        rows, width, parts = join_layout(step, self.sizes)
        cells = [self._at(out), len(parts), rows, width]
        slots = {0: out.slot}
        for value, (at, count) in zip(step.inputs, parts, strict=True):
            slots[len(cells)] = value.slot
            cells += [self._at(value), at, count]
        return support().address("mg_join"), cells, self._dynamic_cells(slots)

    def _nested(
        self, step: Step, made: tuple[int, int] | None
    ) -> tuple[int, list[int], list[tuple[int, int]]]:
        if made is None:
            raise Refused("a step of its body runs as an array expression", expected=True)
        function, table = made
        values = [*step.outputs, *step.inputs]
        slots = {place: value.slot for place, value in enumerate(values, 1)}
        cells = [table, *(self._address[value.slot] for value in values)]
        return function, cells, self._dynamic_cells(slots)

    def _gemv(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        x = step.inputs[0]
        alpha, y, beta = scaling_of(step, 1)
        out = step.outputs[0]
        m, n = shape_of(x.type)
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

    def _scatter(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        values, positions, *scale, base = step.inputs
        alpha = scale[0] if scale else None
        out = step.outputs[0]
        rows, *others = shape_of(out.type)
        made = scatter_step(
            out.type.dtype,
            self._at(out),
            self._at(base),
            self._at(values),
            self._at(positions),
            rows,
            int(np.prod(shape_of(positions.type), dtype=np.int64)),
            int(np.prod(others, dtype=np.int64)),
            alpha=self._at(alpha),
            wrap=step.node.attrs["mode"] == "wrap",
            wide=positions.type.dtype.itemsize == 8,
        )
        all_values = (out, base, values, positions, alpha)
        slots = {i: v.slot for i, v in enumerate(all_values) if v is not None}
        return (*made, self._dynamic_cells(slots))

    def _indexed(self, step: Step) -> tuple[int, list[int], list[tuple[int, int]]]:
        values, positions = step.inputs
        (out,) = step.outputs
        axis = step.node.attrs["axis"]
        taken = step.node.op is TAKE
        shape = shape_of((values if taken else out).type)
        parts, rows, width = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        count = math.prod(shape_of(positions.type))
        if count and not rows:
            # Its array expression says what is wrong.
            raise Refused("there are positions, and no elements to read", expected=True)
        sizes = (parts, rows, count)
        how = {
            "wrap": step.node.attrs["mode"] == "wrap",
            "wide": positions.type.dtype.itemsize == 8,
        }
        at = (self._at(out), self._at(values), self._at(positions))
        dtype = out.type.dtype
        if taken:
            made = take_step(*at, *sizes, width * dtype.itemsize, **how)
        else:
            made = scatter_add_step(dtype, *at, *sizes, width, **how)
        slots = {i: v.slot for i, v in enumerate((out, values, positions))}
        return (*made, self._dynamic_cells(slots))


_ones_lock = shared_lock()
_ones_held: dict[np.dtype, np.ndarray] = {}


def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    """Return at least `count` ones, shared by all plans."""
    with _ones_lock:
        held = _ones_held.get(dtype)
        if held is None or held.size < count:
            held = _ones_held[dtype] = np.ones(max(count, 1024), dtype)
        return held
