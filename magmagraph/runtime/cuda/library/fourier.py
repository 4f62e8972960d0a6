"""Fourier transforms by cuFFT: a plan for each step, made once, whose calls are captured.

cuFFT computes unscaled transforms of neighbouring axes, of many arrays in one call where these lie
at equal distances. Half a spectrum is overwritten when values are made of it, so these read a copy.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....codegen.steps import shape_of
from ....ir.fallback import NO_ELEMENTS, Refused
from ....ir.plan import Step
from ....ops.signal.fourier_primitives import IRFFT, RFFT
from ..launching.calls import LibraryCall
from ..memory import DEVICE_TO_DEVICE, PlanMemory

__all__ = ["Layout", "layout_of", "scale_of", "transform"]

_TYPES = {  # of cuFFT (cufft.h), by the kind of transform and the bytes of a real number
    ("spectrum", 4): 0x29, ("half", 4): 0x2A, ("values", 4): 0x2C,
    ("spectrum", 8): 0x69, ("half", 8): 0x6A, ("values", 8): 0x6C,
}  # fmt: skip
_MOST_AXES = 3
_MOST_CALLS = 64  # of arrays that do not lie at equal distances


class Layout(NamedTuple):
    """Where the elements of a transform lie.

    Attributes
    ----------
    extents
        Of the transformed axes, in real or whole complex elements.
    inside
        Elements after these axes: how far neighbours lie apart.
    batch
        Transforms of one call.
    calls
        How many calls there are.
    """

    extents: tuple[int, ...]
    inside: int
    batch: int
    calls: int


def layout_of(shape: tuple[int, ...], axes: tuple[int, ...], extents: tuple[int, ...]) -> Layout:
    """Return the layout of transforms of an array along axes that follow one another.

    Examples
    --------
    >>> layout_of((5, 8, 6), (2,), (6,))
    Layout(extents=(6,), inside=1, batch=40, calls=1)
    >>> layout_of((5, 8, 6), (1,), (8,))
    Layout(extents=(8,), inside=6, batch=6, calls=5)

    Raises
    ------
    Refused
        cuFFT has no such transform.
    """
    first, last = min(axes), max(axes)
    if sorted(axes) != list(range(first, last + 1)):
        raise Refused("cuFFT transforms axes that follow one another")
    if len(axes) > _MOST_AXES:
        raise Refused(f"cuFFT transforms up to {_MOST_AXES} axes")
    before, inside = math.prod(shape[:first]), math.prod(shape[last + 1 :])
    batch, calls = (before, 1) if inside == 1 else (inside, before)
    if calls > _MOST_CALLS:
        raise Refused("the transforms before and behind the axes are too many calls of cuFFT")
    return Layout(extents, inside, batch, calls)


def scale_of(norm: str, inverse: bool, count: int) -> float:
    """Return what an unscaled transform of so many elements is multiplied by.

    Examples
    --------
    >>> scale_of("backward", False, 8), scale_of("backward", True, 8), scale_of("ortho", True, 4)
    (1.0, 0.125, 0.5)
    """
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if inverse == (norm == "backward") else 1.0


def transform(memory: PlanMemory, step: Step) -> LibraryCall:
    """Return what launches a transform.

    Raises
    ------
    Refused
        cuFFT does not compute it: its array expression has to run.
    """
    from cupy.cuda import cufft

    attrs, op = step.node.attrs, step.node.op
    x, out = step.inputs[0], step.outputs[0]
    source, target = shape_of(x.type), shape_of(out.type)
    if 0 in source or 0 in target:
        raise Refused(NO_ELEMENTS, expected=True)
    kind = "half" if op is RFFT else "values" if op is IRFFT else "spectrum"
    inverse = kind == "values" or bool(attrs.get("inverse"))
    rank = len(source)
    axes = tuple(sorted(axis % rank for axis in attrs.get("axes") or (attrs["axis"],)))
    whole = target if kind == "values" else source
    layout = layout_of(whole, axes, tuple(whole[axis] for axis in axes))
    ends = [tuple(shape[axis] for axis in axes) for shape in (source, target)]
    distances = [math.prod(end) if layout.inside == 1 else 1 for end in ends]
    values = distances[kind == "values"]
    if kind != "spectrum" and len(axes) > 1 and layout.batch > 1 and values % 2:
        raise Refused("cuFFT's real transforms of several axes need an even number of values each")
    real = np.dtype((out if kind == "values" else x).type.dtype.type(0).real.dtype)
    plan = cufft.PlanNd(
        layout.extents, ends[0], layout.inside, distances[0], ends[1], layout.inside, distances[1],
        _TYPES[kind, real.itemsize], layout.batch, "C", axes[-1], layout.extents[-1],
    )  # fmt: skip
    scale = real.type(scale_of(attrs["norm"], inverse, math.prod(layout.extents)))
    # Each call reads and writes so many bytes.
    read, written = (int(value.type.bytes) // layout.calls for value in (x, out))
    scratch = memory.more(int(x.type.bytes)) if kind == "values" else 0
    # cuFFT wants real numbers, too, to begin where a complex one may; later calls may not.
    real_bytes = written if kind == "values" else read
    odd = kind != "spectrum" and layout.calls > 1 and real_bytes % (2 * real.itemsize) != 0
    aligned = memory.more(real_bytes) if odd else 0
    cupy = memory.device.cupy
    memory.keep.append(plan)

    def run(stream: Any, to: int, start: int) -> None:
        def copy(target: int, source: int, count: int) -> None:
            cupy.cuda.runtime.memcpyAsync(target, source, count, DEVICE_TO_DEVICE, stream.ptr)

        with stream:  # which the plan takes
            if scratch:
                copy(scratch, start, read * layout.calls)
                start = scratch
            for i in range(layout.calls):
                place, end = start + i * read, to + i * written
                if aligned and kind == "half":
                    copy(aligned, place, read)
                    place = aligned
                target = aligned if aligned and kind == "values" else end
                plan.fft(
                    _bytes_at(cupy, place, read), _bytes_at(cupy, target, written),
                    1 if inverse else -1,
                )  # fmt: skip
                if target != end:
                    copy(end, target, written)
            if scale != 1:
                raw = _bytes_at(cupy, to, written * layout.calls)
                result = raw.view(out.type.dtype)
                cupy.multiply(result, scale, out=result)

    return LibraryCall(run, (memory.at(out), memory.at(x)))


def _bytes_at(cupy: Any, address: int, count: int) -> Any:
    """Return memory of the plan as an array of bytes."""
    memory = cupy.cuda.UnownedMemory(address, count, None)
    return cupy.ndarray(count, np.uint8, cupy.cuda.MemoryPointer(memory, 0))
