"""Fourier transforms: cuFFT's on a GPU; on the CPU kernels, or SciPy's library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...codegen.steps import shape_of
from ...dtypes import real_dtype
from ...ir import dims
from ...ir.fallback import Refused
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ir.types import Extent, Shape, Type
from ...ops.signal.fourier_primitives import FFT, IRFFT, RECORDS, RFFT

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op in RECORDS


def _axes(node: Node) -> tuple[int, ...]:
    return tuple(node.attrs["axes"]) if node.op is FFT else (node.attrs["axis"],)


def _shape(node: Node) -> Shape:
    """Return the shape of the values; of the real ones where there are real ones."""
    operand, result = node.inputs[0].type, node.type
    assert isinstance(operand, Type)
    assert isinstance(result, Type)
    return result.shape if node.op is IRFFT else operand.shape


def _kind(node: Node) -> str:
    if node.op is FFT:
        return "inverse" if node.attrs["inverse"] else "forward"
    return "of real" if node.op is RFFT else "to real"


def _refusal(node: Node, device: str) -> str | None:
    if device != "cpu":
        return None
    shape, kind = _shape(node), _kind(node)
    if len(set(_axes(node))) < len(_axes(node)):
        return "SciPy's library transforms along an axis twice"
    if any(isinstance(extent, int) and extent == 0 for extent in shape):
        return "an array without elements has no kernel"
    lengths = [shape[axis] for axis in _axes(node)]
    return next(filter(None, map(_unfit, _axes(node), lengths, [shape] * 9, [kind] * 9)), None)


def _unfit(axis: int, length: Extent, shape: Shape, kind: str) -> str | None:
    from ..cpu.fourier import refusal, too_few

    if not isinstance(length, int):
        return None
    others = [extent for at, extent in enumerate(shape) if at != axis]
    known = [extent for extent in others if isinstance(extent, int)]
    if len(known) == len(others) and too_few(length, math.prod(known)):
        return "SciPy's library transforms few long lines"
    return refusal(length, kind)


def _in_place(node: Node, device: str) -> frozenset[tuple[int, int]]:
    return frozenset(((0, 0),) if device == "cpu" and node.op is FFT else ())


def _scratch(node: Node, threads: int) -> Extent:
    """Return the bytes of two planes of a group of lines for each thread."""
    from ..cpu.fourier import LONGEST, POINT

    shape = _shape(node)
    most: Extent = 1
    for axis in _axes(node):
        most = dims.maximum(most, dims.minimum(shape[axis], LONGEST))
    return 2 * (most + 1) * POINT * threads


def _scale(node: Node, shape: tuple[int, ...]) -> float:
    count = math.prod(shape[axis] for axis in _axes(node))
    inverse = _kind(node) in ("inverse", "to real")
    whole = {"backward": inverse, "forward": not inverse}.get(node.attrs["norm"])
    return 1 / math.sqrt(count) if whole is None else 1 / count if whole else 1.0


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.fourier import fourier_step, least_bytes

    (x,), (out,) = step.inputs, step.outputs
    node = step.node
    shape = shape_of(out.type if node.op is IRFFT else x.type)
    kind = _kind(node)
    for axis in _axes(node):
        if not math.prod(shape):
            raise Refused("an array without elements has no kernel", expected=True)
        reason = _unfit(axis, shape[axis], shape, kind)
        if reason is not None:
            raise Refused(reason, expected=True)
    work = (0, 0)
    if step.workspace is not None:
        work = cells.address[step.workspace], int(cells.plan.slots[step.workspace].size)
    if work[1] < least_bytes(shape, _axes(node), kind):
        raise Refused("the plan has no memory for a line", expected=True)
    function, words = fourier_step(
        real_dtype(out.type.dtype), cells.at(out), cells.at(x), work, shape, _axes(node), kind,
        _scale(node, shape), cells.keep,
    )  # fmt: skip
    return function, words, cells.dynamic({0: out.slot, 1: x.slot})


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.library.fourier import transform

    return launches.alone(step, transform(launches.memory, step))


TRANSFORM = KernelFamily(
    "transform", takes=_takes, refusal=_refusal, in_place=_in_place, scratch=_scratch,
    cpu=_cpu, cuda=_cuda,
)  # fmt: skip
