"""What launches a step: its kernels, copies and products, with arguments that never change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....codegen.cuda.products.shapes import (
    ProductShape,
    cut_of,
    product_of,
    product_shape,
    read_first,
)
from ....codegen.cuda.products.small_gemm import SmallProduct, plain_epilogue
from ....codegen.steps import scaling_of, shape_of
from ....config import config
from ....ir.fallback import Refused
from ....ir.plan import Place, Role, Step, Value
from ....ir.ranges import Touched
from ..kernels.fused import Modules
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from ..products.merged_launches import MergedProducts
from ..products.products import begin_load, call_of, load
from .calls import LibraryCall
from .fused_launches import FusedLaunches
from .launch_units import Unit
from .segments import Launcher

if TYPE_CHECKING:
    from ..library.plans import ChosenGraph
    from .messages import Lines

__all__ = ["StepLaunches"]



class StepLaunches:
    """Makes the launches of a plan's steps.

    Parameters
    ----------
    memory
        Of the plan.
    modules
        The kernels of the device.
    stream
        On which products are timed.
    lines
        What messages between two ranks go by.
    """

    def __init__(
        self, memory: PlanMemory, modules: Modules, stream: Any, lines: Lines | None = None
    ) -> None:
        self.memory, self.modules, self.stream = memory, modules, stream
        self.lines = {} if lines is None else lines
        self.plan, self.device = memory.plan, memory.device
        self.fused = FusedLaunches(memory, modules)
        self.merged = MergedProducts(self.fused)

    def step(self, step: Step) -> list[Unit] | None:
        """Return what launches a step, or None where it has no kernel, or nothing to compute.

        Raises
        ------
        Refused
            Its kernel family does not take it: its array expression has to run.
        """
        build = step.family.cuda
        if build is None:
            return None
        units: list[Unit] | None = build(self, step)
        return units

    # ---- For the families' builders

    def alone(self, step: Step, launch: Launcher | None) -> list[Unit] | None:
        """Return a launch as the one of a step; None where there is none."""
        return None if launch is None else [Unit(launch, self.memory.touched(step))]

    def units(self, pairs: Sequence[tuple[Launcher, Touched]]) -> list[Unit]:
        """Return launches, each with the memory that it touches."""
        return [Unit(*pair) for pair in pairs]

    def scattered(self, step: Step) -> list[Unit]:
        """Return what launches a sum at positions."""
        from ..kernels.scattering import scattering

        return [Unit(*scattering(self.memory, step))]

    def begin(self, steps: Sequence[Step]) -> Callable[[], None]:
        """Begin to compile the generated products of some steps, side by side.

        Returns
        -------
        callable
            Waits for that, and loads them.
        """
        compiling = []
        for step in steps:
            if step.role is Role.EPILOGUE:
                compiling.append(self.merged.product(step))
            elif step.role is Role.PRODUCT:
                generated = self._small(step)
                compiling += [] if generated is None else [generated[0]]
        return begin_load(self.device, compiling)

    def with_epilogue(self, step: Step) -> Launcher:
        """Return what launches a library's product with an epilogue."""
        from ..products.library_choice import bias_of, planned

        memory, device = self.memory, self.device
        product = planned(device, step, self.stream)
        a, b = (memory.at(value) for value in step.parts[0].inputs[:2])
        addresses = (a, b, memory.at(step.outputs[0]), memory.at(bias_of(step)))

        def run(stream: Any, a: int, b: int, target: int, bias: int) -> None:
            product.launch(a, b, 0, target, 0, 0, device.scratch(stream), stream.ptr, bias)

        return LibraryCall(run, addresses)

    # ---- Copies and libraries

    def copy(self, step: Step) -> Launcher:
        """Return what copies a value to another slot."""
        source, target = step.inputs[0], step.outputs[0]
        count = int(source.type.bytes)
        runtime = self.device.cupy.cuda.runtime

        def copy(stream: Any, to: int, start: int) -> None:
            if count:
                runtime.memcpyAsync(to, start, count, DEVICE_TO_DEVICE, stream.ptr)

        return LibraryCall(copy, (self.memory.at(target), self.memory.at(source)))

    def library(self, step: Step, chosen: ChosenGraph) -> list[Unit]:
        """Return what launches a step of a library, which may work in memory that others share."""
        from ..library.plans import library

        launch, shared = library(self.memory, step, chosen)
        touched = self.memory.touched(step)
        return [Unit(launch, Touched(touched.read, (*touched.written, *shared)))]

    # ---- Products

    def _product(
        self, dtype: np.dtype, m: int, n: int, k: int, step: Step, first: int, **more: Any
    ) -> tuple[Any, int, int, int]:
        """Return a product of the library, and the addresses of alpha, C and beta.

        Raises
        ------
        Refused
            The library does not compute it.
        """
        from ..products import gemm

        alpha, c, beta = scaling_of(step, first)
        fixed = [self._fixed(value) for value in (alpha, beta)]
        for value, number in zip((alpha, beta), fixed, strict=True):
            if value is not None and number is None and value.type.dtype.itemsize < 4:
                raise Refused(f"cuBLASLt supports no scale factor of {value.type.dtype.name}")
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
            self.memory.keep.append(ones)
            one, zero = ones.data.ptr, ones.data.ptr + product.scalar.itemsize
            pair = (
                self.memory.at(alpha) if alpha is not None else one,
                self.memory.at(beta) if beta is not None else zero,
            )
        else:
            numbers = [
                np.array([default if number is None else number], product.scalar)
                for number, default in zip(fixed, (1, 0), strict=True)
            ]
            self.memory.keep += numbers
            pair = (numbers[0].ctypes.data, numbers[1].ctypes.data)
        return product, pair[0], self.memory.at(c), pair[1]

    def _fixed(self, value: Value | None) -> float | None:
        """Return a scalar that is a constant of the plan."""
        if value is None or self.plan.slots[value.slot].place is not Place.CONSTANT:
            return None
        constant = self.plan.slots[value.slot].owner.attrs.get("value")
        return None if constant is None else float(constant.reshape(-1)[0])

    def gemm(self, step: Step) -> Launcher | None:
        """Return what launches a product; None where its array expression has to run."""
        a, b = step.inputs[:2]
        out = step.outputs[0]
        attrs = step.node.attrs
        *batch, m, n = shape_of(out.type)
        k = shape_of(a.type)[-2 if attrs["transpose_a"] else -1]
        count = math.prod(batch)
        if not (m and n and k and count):
            return None
        generated = self._generated(step)
        if generated is not None:
            return generated
        from ..products import gemm

        gemm.check_available()
        strides = (
            m * k if len(a.type.shape) > 2 else 0,
            k * n if len(b.type.shape) > 2 else 0,
            m * n,
        )
        mixed = "" if out.type.dtype == a.type.dtype else out.type.dtype.name
        planned = self._product(
            a.type.dtype, m, n, k, step, 2,
            transpose_a=attrs["transpose_a"], transpose_b=attrs["transpose_b"],
            batch=count, strides=strides if count > 1 else (0, 0, 0),
            compute=attrs.get("compute") or "float32", result=mixed,
        )
        product, alpha, c, beta = planned
        at = self.memory.at
        return self._call(product, at(a), at(b), c, at(out), alpha, beta)

    def _small(self, step: Step) -> tuple[SmallProduct, ProductShape] | None:
        """Return the generated product of a step, where there is one."""
        attrs = step.node.attrs
        shape = product_shape(step)
        if shape is None:
            return None
        configuration = cut_of(int(self.device.architecture), shape, alone=self.merged.alone)
        if configuration is None:
            return None
        epilogue = plain_epilogue(attrs["scaled"], attrs["accumulate"], configuration.items)
        early = read_first(self.plan, step)
        return product_of(shape, configuration, epilogue, early), shape

    def _generated(self, step: Step) -> Launcher | None:
        """Return what launches a generated product, where there is one."""
        small = self._small(step)
        if small is None:
            return None
        product, shape = small
        (function,) = load(self.device, [product])
        alpha, c, beta = scaling_of(step, 2)
        operands = (*step.inputs[:2], step.outputs[0], c, alpha, beta)
        others = [value for value in (c, alpha, beta) if value is not None]
        return call_of(
            function, product, shape, [self.memory.at(value) for value in operands], (), (),
            (self.memory.ranges([step.inputs[product.early]]), self.memory.ranges(others)),
        )

    def gemv(self, step: Step) -> Launcher | None:
        """Return what launches a sum over rows or columns, as a product with ones."""
        from ..products import gemm

        x, out = step.inputs[0], step.outputs[0]
        m, n = shape_of(x.type)
        if not (m and n):
            return None
        gemm.check_available()
        columns = step.node.attrs["axis"] == 0
        dtype = out.type.dtype
        length = m if columns else n
        ones = self.device.cupy.ones(length, dtype)
        self.memory.keep.append(ones)
        planned = self._product(
            dtype, n if columns else m, 1, length, step, 1,
            transpose_a=columns, transpose_b=False,
        )
        product, alpha, c, beta = planned
        at = self.memory.at
        return self._call(product, at(x), ones.data.ptr, c, at(out), alpha, beta)

    def _call(
        self, product: Any, a: int, b: int, c: int, out: int, alpha: int, beta: int
    ) -> Launcher:
        device = self.device

        # Scalars of the host, whose addresses are no operands' on the device, stay where they are.
        def run(stream: Any, a: int, b: int, c: int, out: int, alpha: int, beta: int) -> None:
            scratch = device.scratch(stream)  # each stream has one of its own
            product.launch(a, b, c, out, alpha, beta, scratch, stream.ptr)

        return LibraryCall(run, (a, b, c, out, alpha, beta))
