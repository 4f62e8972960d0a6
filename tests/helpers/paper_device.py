"""A CUDA device on paper: plans are bound to it, launches have names and grids, nothing runs.

Kernels are not compiled: a source becomes a module whose functions have a number each. Libraries
have a plan for everything. So a plan's launches can be compared with its steps on any machine.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from magmagraph.codegen.cuda.generated import kernels_of
from magmagraph.codegen.steps import bodies_of
from magmagraph.ir.fallback import Fallbacks
from magmagraph.ir.plan import Plan, Role
from magmagraph.ir.target import Target
from magmagraph.runtime.cuda import backend, bound
from magmagraph.runtime.cuda.kernels import few_channels, fused, gathering, pooling
from magmagraph.runtime.cuda.launching import calls
from magmagraph.runtime.cuda.launching.calls import KernelCall, LibraryCall, calls_of, cost_of
from magmagraph.runtime.cuda.launching.segments import Segment, placed
from magmagraph.runtime.cuda.library import attention, convolution
from magmagraph.runtime.cuda.products import gemm, products

NAMES: dict[int, str] = {}  # of functions, by their numbers
_NUMBERS: dict[str, int] = {}


class Block(np.ndarray):
    """Bytes at an address of the device, which nobody reads."""

    addresses = itertools.count(1 << 40, 1 << 32)

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.place)

    def __array_finalize__(self, origin: Any) -> None:
        self.place = getattr(origin, "place", 0)

    def set(self, values: Any) -> None:
        """Take values; nobody reads them."""


def block(shape: Any, dtype: Any = np.uint8) -> Block:
    """Return a block whose elements have no memory."""
    array = np.broadcast_to(np.zeros((), dtype), shape).view(Block)
    array.place = next(Block.addresses)
    return array


class Module:
    """A module whose functions have numbers by their names."""

    def load(self, cubin: Any) -> None:
        """Load nothing."""

    def get_function(self, name: str) -> Any:
        number = _NUMBERS.setdefault(name, len(_NUMBERS) + 1)
        NAMES[number] = name
        return types.SimpleNamespace(ptr=number)


class PaperDevice:
    """As much of an H200 as binding a plan needs."""

    number, name = 0, "paper"
    architecture, multiprocessors = "90", 132

    def __init__(self) -> None:
        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                pass

        self.stream = types.SimpleNamespace(ptr=7, synchronize=lambda: None)
        self.cupy = types.SimpleNamespace(
            zeros=block, empty=block, ones=block,
            full=lambda shape, value, dtype: block(shape, dtype),
            array=lambda values, dtype: block(len(values), dtype),
            asarray=lambda values: block(np.shape(values), np.asarray(values).dtype),
            cuda=types.SimpleNamespace(
                function=types.SimpleNamespace(Module=Module), Event=Event,
                get_current_stream=lambda: self.stream, runtime=types.SimpleNamespace(),
            ),
        )
        self.lock = contextlib.nullcontext()
        self.errors: tuple[type[Exception], ...] = ()

    def empty(self, count: int, what: str = "") -> Block:
        return block((count,))

    def free(self) -> int:
        return 1 << 36

    def scratch(self, stream: Any) -> int:
        return 1 << 39

    def __enter__(self) -> PaperDevice:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


DEVICE = PaperDevice()


def _begun(sources: Any, architecture: str) -> Any:
    return lambda: list(sources)


def _graph(memory: Any, step: Any) -> Any:
    return types.SimpleNamespace(workspace=0, microseconds=1.0, launch=None, place=None)


def _product(device: Any, shape: Any, *rest: Any) -> Any:
    return types.SimpleNamespace(beside=0.0, microseconds=0.0, scalar=np.dtype("f4"), launch=None)


@contextlib.contextmanager
def on_paper() -> Iterator[None]:
    """Let binding find a device on paper, its driver and its libraries."""
    driver = types.SimpleNamespace(
        launchKernel=None, funcSetAttribute=lambda *_: None, check_status=lambda *_: None
    )
    one = _begun
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (calls, "driver", lambda: driver), (calls, "_extended", lambda: True),
            (products, "driver", lambda: driver),
            (products, "begin_sources", one), (fused, "begin_sources", one),
            (fused, "compile_sources", lambda sources, _: list(sources)),
            (pooling, "compile_source", lambda *_: b""),
            (gathering, "compile_source", lambda *_: b""),
            (few_channels, "compile_source", lambda *_: b""),
            (few_channels, "is_faster", lambda *_: False),
            (convolution, "chosen", _graph), (attention, "chosen", _graph),
            (gemm, "plan_product", _product), (gemm, "available", lambda: True),
            (gemm, "check_available", lambda: None),
            (backend, "device_of", lambda name: DEVICE),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


MODULES = fused.Modules(DEVICE)


def bound_on_paper(symbolic: Plan, plan: Plan, target: Target) -> bound.CudaBound:
    """Return a plan with sizes bound to the device; `symbolic` says which kernels there are."""
    kernels = [
        body_kernels
        for step in symbolic.steps
        if step.role is Role.REGION
        for body in bodies_of(step)
        if (body_kernels := kernels_of(body)) is not None
    ]
    with on_paper():
        prepared = bound.Prepared(
            DEVICE, MODULES, target, kernels, carriers=None, lines={}, on_host=set(),
            fallbacks=Fallbacks(),
        )
        return bound.CudaBound(prepared, plan)


def launched(bound_plan: bound.CudaBound) -> list[tuple[int, str, Any, Any, int]]:
    """Return the launches of a bound plan in order: step, kernel, grid, block, stream.

    What is no launch of a captured graph has no grid and the stream -1.
    """
    launched_steps: list[tuple[int, str, Any, Any, int]] = []
    for part in (*bound_plan._before, *bound_plan._after):
        if not isinstance(part, Segment):
            launched_steps.append((part.number, part.node.op.name, None, None, -1))
            continue
        placement = part.placement()
        launches, touched, numbers = part.units() if placement is None else part.chosen()
        streams = (placement or placed(DEVICE, launches, touched)).chosen
        for number, launch, stream in zip(numbers, launches, streams, strict=True):
            for call in calls_of(launch):
                if isinstance(call, KernelCall):
                    launched_steps.append(
                        (number, NAMES[call.function], call.grid, call.block, stream)
                    )
                elif isinstance(call, LibraryCall):
                    launched_steps.append((number, "library", None, None, stream))
    return launched_steps


def costs(bound_plan: bound.CudaBound) -> dict[int, float]:
    """Return what each step's launches cost by their grids."""
    return {
        number: cost_of(launch, DEVICE.multiprocessors)
        for part in (*bound_plan._before, *bound_plan._after)
        if isinstance(part, Segment)
        for number, launch in zip(part.numbers, part.launches, strict=True)
    }
