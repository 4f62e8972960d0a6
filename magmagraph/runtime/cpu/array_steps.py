"""Steps that run in Python: regions as lists of NumPy's calls, products by BLAS, array expressions.

What such a step needs is found out when a plan is bound. Arrays that stay where they are (in the
arena, variables, constants) are seen once; those that come with a call, in each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...codegen.steps import bodies_of, shape_of
from ...ir import dims
from ...ir.interpret import PRODUCTS, Body, apply, bind_attributes, body_compiler, compiled_bodies
from ...ir.locking import outside_of_forks
from ...ir.op import Kind
from ...ir.plan import Plan, Role, Step, Value
from .products.second_blas import SMALL, on_one_thread
from .threads import get_threads

__all__ = ["ArraySteps"]

Array = np.ndarray[Any, Any]
Run = Callable[[], None]
SHARED = 1 << 20  # operations of a transform that threads share


class ArraySteps:
    """Makes functions of a plan's steps.

    They hold this and not what holds them: without a cycle the memory of a function is free as soon
    as the function is.

    Parameters
    ----------
    plan
        A plan bound to sizes.
    base
        The memory of each slot, None for those that come with the call.
    dynamic
        These, while a call runs.
    """

    def __init__(
        self, plan: Plan, base: Sequence[Array | None], dynamic: Mapping[int, Array]
    ) -> None:
        self._sizes: Mapping[str, int] = plan.sizes or {}
        self._base = base
        self._dynamic = dynamic
        self._seen: dict[Value, Array] = {}

    def view(self, value: Value) -> Array:
        """Return the array of a value now (feeds and results change from call to call)."""
        fixed = self.fixed(value)
        if fixed is None:
            return self._dynamic[value.slot].reshape(shape_of(value.type))
        return fixed

    def fixed(self, value: Value) -> Array | None:
        """Return the array of a value that is the same in all calls, or None."""
        seen = self._seen.get(value)
        if seen is None:
            array = self._base[value.slot]
            if array is None:
                return None
            seen = array.view(value.type.dtype).reshape(shape_of(value.type))
            self._seen[value] = seen
        return seen

    def _arrays(self, values: Sequence[Value]) -> Callable[[], list[Array]]:
        """Return what gives the arrays of some values now; those that stay are looked up once."""
        fixed_arrays = [*map(self.fixed, values)]
        moving = [(i, value) for i, value in enumerate(values) if fixed_arrays[i] is None]

        def arrays() -> list[Any]:
            current = fixed_arrays.copy()
            for i, value in moving:
                current[i] = self.view(value)
            return current

        return arrays

    def of(self, step: Step) -> Run:
        """Return what runs a step."""
        if step.role is Role.COPY:
            source, target = step.inputs[0], step.outputs[0]
            return lambda: np.copyto(self.view(target), self.view(source))
        if step.role is Role.REGION:
            return self._tiled(step)
        if step.role is Role.PRODUCT:
            from .products.direct_blas import straight_product

            product = straight_product(step, self.fixed, self.view)
            if product is not None:
                return _apart_from_forks(product)
        run = self._expression(step)
        if step.node.op.kind is Kind.TRANSFORM and self._work(step) >= SHARED:
            run = _on_threads(run)
        return _apart_from_forks(run) if step.node.op.kind in PRODUCTS else run

    def _work(self, step: Step) -> int:
        """Return the operations of a step with numbers."""
        flops = step.flops
        return dims.evaluate(flops, self._sizes) if isinstance(flops, dims.Dim) else flops

    def _tiled(self, step: Step) -> Run:
        from .tiled import Tiles

        parts = []
        at = to = 0
        for body in bodies_of(step):
            operands = step.inputs[at : at + len(body.inputs)]
            results = step.outputs[to : to + len(body.outputs)]
            at, to = at + len(operands), to + len(results)
            arrays, outs = [*map(self.fixed, operands)], [*map(self.fixed, results)]
            moving = [
                (arrays_of, i, value)
                for arrays_of, values in ((arrays, operands), (outs, results))
                for i, value in enumerate(values)
                if arrays_of[i] is None
            ]
            parts.append((Tiles(body, self._sizes, arrays, outs), arrays, outs, moving))

        def run() -> None:
            for tiles, arrays, outs, moving in parts:
                for arrays_of, i, value in moving:
                    arrays_of[i] = self.view(value)
                tiles.run(arrays, outs)
                for arrays_of, i, _ in moving:
                    arrays_of[i] = None

        return run

    def _expression(self, step: Step) -> Run:
        sizes = self._sizes
        operands, results = self._arrays(step.inputs), self._arrays(step.outputs)
        into = step.node.op.kernel.into
        if into is not None:
            attrs = bind_attributes(step.node.attrs, sizes)
            if step.node.op.kernel.workspace is not None and step.workspace is not None:
                attrs["workspace"] = self._base[step.workspace]
            several = isinstance(step.node.type, tuple)

            def write() -> None:
                targets = results()
                with np.errstate(all="ignore"):
                    into(np, tuple(targets) if several else targets[0], *operands(), **attrs)

            return write

        # Bodies are bound in each run, and compiled by the function that binds this plan.
        bodies = step.node.op.kind is Kind.CONTROL
        compiler = body_compiler()
        made_body = Body if compiler is None else compiled_bodies(compiler)
        bound = None if bodies else bind_attributes(step.node.attrs, sizes)

        def evaluate() -> None:
            result = apply(step.node, operands(), sizes, body=made_body, attrs=bound)
            several = result if isinstance(result, tuple) else (result,)
            for target, array in zip(results(), several, strict=True):
                np.copyto(target, array)

        small = step.node.op.kind is Kind.LINALG and self._work(step) < SMALL
        return on_one_thread(evaluate) if small else evaluate


def _on_threads(transform: Run) -> Run:
    """Return a step in which SciPy's transforms use as many threads as kernels."""
    from scipy.fft import set_workers  # it takes longer to import than we do

    def run() -> None:
        with set_workers(get_threads()):
            transform()

    return run


def _apart_from_forks(product: Run) -> Run:
    """Return a step whose end a fork of another thread waits for."""

    def run() -> None:
        with outside_of_forks:
            product()

    return run
