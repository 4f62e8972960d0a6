"""Convolutions and their two transposes through cuDNN, in the layout that the record has them in.

The library names axes in one order, batch, channels and space, and is told by strides how they lie.
Its tensor cores want channels last, and of weights the results first, ``(results, *window,
channels)``: the layout pass turns them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....codegen.steps import shape_of
from ....ir import dims
from ....ir.fallback import NO_ELEMENTS, Refused
from ....ir.graph import Node
from ....ir.interpret import bind_attributes
from ....ir.plan import Place, Step
from ....ops.convolution.primitives import direction_of, puts_outs_first
from ..device import SCRATCH
from ..memory import DEVICE_TO_HOST, HOST_TO_DEVICE, PlanMemory
from . import cudnn

__all__ = ["chosen"]

FEWEST_AXES = 2  # the library has no convolution over one
WRONG = 1e-2  # of a result's norm: no rounding comes near it, a row that is left out is above it


class Geometry(NamedTuple):
    """One convolution, the key of the library's plans.

    Attributes
    ----------
    direction
        "forward", "input" or "weight".
    image, filters, result
        Extents in the library's order, and the strides that go with them.
    strides, dilation, low, high
        For each spatial axis.
    dtype
        Of all three.
    exact
        Whether float32 factors keep all digits.
    """

    direction: str
    image: tuple[tuple[int, ...], tuple[int, ...]]
    filters: tuple[tuple[int, ...], tuple[int, ...]]
    result: tuple[tuple[int, ...], tuple[int, ...]]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dtype: str
    exact: bool


def chosen(memory: PlanMemory, step: Step) -> cudnn.LibraryGraph:
    """Return the library's graph of a convolution with the plan that is chosen for it.

    Raises
    ------
    Refused
        The library does not compute it.
    """
    node = step.node
    algorithm = node.attrs["algorithm"]
    if algorithm != "auto":
        raise Refused(f"algorithm={algorithm!r} is asked for", expected=True)
    cudnn.check_available()
    values = (*step.inputs, *step.outputs)
    shapes = [shape_of(value.type) for value in values]
    if not all(math.prod(shape) for shape in shapes):
        raise Refused(NO_ELEMENTS, expected=True)
    geometry = _geometry(node, shapes, memory.sizes)
    addresses = [memory.at(value) for value in values]
    scratch = None
    if memory.plan.slots[step.outputs[0].slot].place is Place.STATE:
        scratch = memory.device.empty(int(step.outputs[0].type.bytes))  # a trial writes no variable
        addresses[-1] = int(scratch.data.ptr)
    return cudnn.graph_of(
        memory.device, geometry, lambda g: _built(g, geometry), geometry.dtype, addresses,
        exact=geometry.exact, limit=memory.workspace_limit,
        least_limit=max(SCRATCH, sum(int(value.type.bytes) for value in values)),
        least=_least(memory.device, step, geometry),
        check=FirstImage(memory, step) if _is_doubtful(geometry) else None,
    )


def _is_doubtful(geometry: Geometry) -> bool:
    """Return whether some engine is known to compute something else."""
    unequal = geometry.low != geometry.high and geometry.dtype in ("float32", "float64")
    return unequal and geometry.direction == "weight"


class FirstImage:
    """Tells which plans give the right gradient of weights, by one random image, others being 0.

    Asked in float32 and float64 where padding differs in front and behind: there is an engine that
    takes it for the same, and leaves rows out without a word. It computes first on the host, once.
    """

    def __init__(self, memory: PlanMemory, step: Step) -> None:
        self.device, self.step, self.sizes = memory.device, step, memory.sizes
        self.wanted: np.ndarray | None = None
        self.blocks: list[Any] = []

    def __call__(self, launch: cudnn.Launch) -> bool:
        """Return whether a plan, which `launch` runs, is right."""
        runtime, step = self.device.cupy.cuda.runtime, self.step
        if self.wanted is None:
            self.wanted = self._prepared()
        launch([int(block.data.ptr) for block in self.blocks])
        actual = np.empty(shape_of(step.outputs[0].type), step.outputs[0].type.dtype)
        runtime.memcpy(
            actual.ctypes.data, int(self.blocks[-1].data.ptr), actual.nbytes, DEVICE_TO_HOST
        )
        error = np.linalg.norm((actual - self.wanted).astype(np.float64))
        return bool(error <= WRONG * np.linalg.norm(self.wanted))

    def _prepared(self) -> np.ndarray:
        """Put operands on the device, and return what their gradient is."""
        runtime, node = self.device.cupy.cuda.runtime, self.step.node
        rng, images = np.random.default_rng(0), []
        for value in (*self.step.inputs, *self.step.outputs):
            block = self.device.empty(int(value.type.bytes))
            runtime.memset(int(block.data.ptr), 0, int(value.type.bytes))
            self.blocks.append(block)
        for value, block in zip(self.step.inputs, self.blocks, strict=False):
            image = rng.standard_normal((1, *shape_of(value.type)[1:])).astype(value.type.dtype)
            runtime.memcpy(int(block.data.ptr), image.ctypes.data, image.nbytes, HOST_TO_DEVICE)
            images.append(image)
        runtime.deviceSynchronize()
        result = node.op.evaluate(np, *images, **bind_attributes(node.attrs, self.sizes))
        return np.asarray(result)


# Operations of a multiprocessor a microsecond, at most: by dtype, or with all digits of float32.
_PEAKS = {"float64": 220_000, "float32": 900_000}
_EXACT = 450_000
_BANDWIDTH = 4e6  # bytes a microsecond


def _least(device: Any, step: Step, geometry: Geometry) -> float:
    """Return about how many microseconds the fastest device needs for a convolution.

    Not of 16 bits: there the heuristics' first plans are as fast as others, and a network has many
    convolutions, whose plans take long to build.
    """
    if geometry.dtype not in _PEAKS:
        return math.inf
    rate = _EXACT if geometry.exact else _PEAKS[geometry.dtype]
    results, channels = geometry.result[0], geometry.filters[0][1]
    operations = 2 * math.prod(results) * channels * math.prod(geometry.filters[0][2:])
    arithmetic = operations / (rate * int(device.multiprocessors))
    return max(arithmetic, int(step.bytes) / _BANDWIDTH)


def _geometry(node: Node, shapes: Sequence[tuple[int, ...]], sizes: Any) -> Geometry:
    """Return the library's arguments, or raise `Refused` for layouts or padding it lacks."""
    attrs = node.attrs
    last = attrs["channels_last"]
    if last and not puts_outs_first(attrs):
        # It takes strides of such weights, and reads them wrong.
        raise Refused("cuDNN does not support weights in this layout")
    roles = _ROLES[direction_of(node)]
    of = dict(zip(roles, shapes, strict=True))
    count = len(attrs["strides"])
    extra = max(0, FEWEST_AXES - count)
    image, filters, result = (_layout(of[r], last, extra) for r in ("image", "filters", "result"))
    low = [dims.evaluate(v, sizes) for v in attrs["low"]]
    high = []
    for axis in range(count):
        n, k, o = (part[0][2 + extra + axis] for part in (image, filters, result))
        reach = attrs["dilation"][axis] * (k - 1) + 1
        left = (o - 1) * attrs["strides"][axis] + reach - n - low[axis]
        if low[axis] < 0 or left <= -attrs["strides"][axis]:
            raise Refused("cuDNN does not support negative padding")
        high.append(max(0, left))
    dtype = node.inputs[0].dtype.name
    ones, zeros = (1,) * extra, (0,) * extra
    return Geometry(
        direction_of(node), image, filters, result,
        ones + tuple(attrs["strides"]), ones + tuple(attrs["dilation"]),
        zeros + tuple(low), zeros + tuple(high), dtype,
        dtype == "float32" and attrs.get("compute", dtype) != "tf32",
    )  # fmt: skip


_ROLES = {
    "forward": ("image", "filters", "result"),
    "input": ("result", "filters", "image"),
    "weight": ("image", "result", "filters"),
}

Layout = tuple[tuple[int, ...], tuple[int, ...]]


def _layout(shape: tuple[int, ...], last: bool, extra: int) -> Layout:
    """Return extents and strides, batch (of weights: results) and channels first."""
    spatial = (1,) * extra + (shape[1:-1] if last else shape[2:])
    channels = shape[-1] if last else shape[1]
    order = (0, *range(2, 2 + len(spatial)), 1) if last else range(2 + len(spatial))
    return _strided((shape[0], channels, *spatial), order)


def _strided(extents: tuple[int, ...], order: Sequence[int]) -> Layout:
    """Return extents with the strides of an array whose axes lie in an order, outermost first."""
    strides = [0] * len(extents)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= extents[axis]
    return extents, tuple(strides)


def _built(graph: Any, geometry: Geometry) -> tuple[list[Any], list[Any]]:
    """Add the operation to a graph."""
    kind = cudnn.data_type(geometry.dtype)

    def tensor(layout: Layout) -> Any:
        return graph.tensor(list(layout[0]), list(layout[1]), data_type=kind)

    window = {
        "pre_padding": list(geometry.low), "post_padding": list(geometry.high),
        "stride": list(geometry.strides), "dilation": list(geometry.dilation),
    }  # fmt: skip
    if geometry.direction == "forward":
        read = [tensor(geometry.image), tensor(geometry.filters)]
        output, layout = graph.conv_fprop(image=read[0], weight=read[1], **window), geometry.result
    elif geometry.direction == "input":
        read = [tensor(geometry.result), tensor(geometry.filters)]
        output, layout = graph.conv_dgrad(loss=read[0], filter=read[1], **window), geometry.image
    else:
        read = [tensor(geometry.image), tensor(geometry.result)]
        output, layout = graph.conv_wgrad(image=read[0], loss=read[1], **window), geometry.filters
    output.set_output(True).set_dim(list(layout[0])).set_stride(list(layout[1]))
    output.set_data_type(kind)
    return read, [output]
