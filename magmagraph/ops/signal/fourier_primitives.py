"""The three Fourier transforms that all others are made of, closed under differentiation.

With ``w = exp(-2 pi i / n)`` the matrix of a transform, ``F[k, j] = w**(k j)``, is symmetric. So
the transform is its own transpose, and its gradient is the same transform of the cotangent. Those
between real values and half a spectrum (real values have a symmetric one, of which the first
``n // 2 + 1`` elements are kept) are each other's transposes, but for conjugates and for a factor 2
for the elements that stand for two: all but the first and, where n is even, the last.

On a processor kernels compute them (`runtime/families/transform.py`), and otherwise SciPy's or
CuPy's own library, which keeps float32. SciPy's takes several lines at a time, in vectors, and on
the threads that `scipy.fft.set_workers` allows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...dtypes import complex_dtype, is_complex, is_float, real_dtype
from ...ir import dims
from ...ir.dims import Constraint
from ...ir.graph import Node
from ...ir.op import COMPLEX, WIDE, Call, Kernel, Kind, Op
from ...ir.types import Extent, Type
from ..convert import cast
from ..elementwise.bits import logical_or
from ..elementwise.comparison import equal, where
from ..elementwise.complex_numbers import conj
from ..indexing.iota import IOTA
from ..leaf import extent
from ..rules import onnx_pairs

_INT64 = np.dtype(np.int64)
# What norm= scales the other direction with: of the transposes.
OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
_NORMS = {"norm": "Literal['backward', 'ortho', 'forward']"}


def at_least_one(call: Call, count: Extent, what: str) -> None:
    """Require an extent of at least 1; where it is symbolic, at the call."""
    if isinstance(count, int):
        if count < 1:
            raise call.shape_error(f"{what} is {count}", need="at least 1 element to transform")
    else:
        call.constraints.append(Constraint(count, ">=", 1))


def half(count: Extent) -> Extent:
    """Return how many elements of the spectrum of so many real values are kept."""
    return count // 2 + 1


def _require(call: Call, x: Type, is_complex: bool, need: str) -> None:
    if not is_complex:
        raise call.dtype_error(f"operand of dtype {x.dtype.name}", need=need)


def _spectrum_type(
    call: Call, x: Type, *, axes: tuple[int, ...], inverse: bool, norm: str
) -> Type:
    _require(call, x, is_complex(x.dtype), "a complex dtype")
    for axis in axes:
        at_least_one(call, x.shape[call.axis(axis, x.ndim)], f"the extent of axis {axis}")
    return x


def library(xp: Any) -> Any:
    """Return the transforms of numpy or cupy: SciPy's are several times as fast as NumPy's."""
    if xp is not np:
        return xp.fft
    import scipy.fft  # when something is transformed: it takes longer to import than we do

    return scipy.fft


def _spectrum(
    xp: Any, x: Any, *, axes: tuple[int, ...], inverse: bool, norm: str, **how: Any
) -> Any:
    fft = library(xp)
    if len(axes) == 1:
        transform = fft.ifft if inverse else fft.fft
        return transform(x, axis=axes[0], norm=norm, **how)
    transform = fft.ifftn if inverse else fft.fftn
    return transform(x, axes=axes, norm=norm, **how)


def _spectrum_into(xp: Any, target: Any, x: Any, **attrs: Any) -> None:
    if xp is not np:
        xp.copyto(target, _spectrum(xp, x, **attrs))
        return
    np.copyto(target, x)
    spectrum = _spectrum(np, target, **attrs, overwrite_x=True)
    if not np.may_share_memory(spectrum, target):  # it may be transformed in place, and need not be
        np.copyto(target, spectrum)


def _half_type(call: Call, x: Type, *, axis: int, norm: str) -> Type:
    _require(call, x, is_float(x.dtype), "a float dtype")
    count = x.shape[call.axis(axis, x.ndim)]
    at_least_one(call, count, f"the extent of axis {axis}")
    shape = list(x.shape)
    shape[axis] = half(count)
    return Type(complex_dtype(x.dtype), tuple(shape))


def _half(xp: Any, x: Any, *, axis: int, norm: str) -> Any:
    return library(xp).rfft(x, axis=axis, norm=norm)


def _whole_type(call: Call, x: Type, *, n: Extent, axis: int, norm: str) -> Type:
    _require(call, x, is_complex(x.dtype), "a complex dtype")
    axis = call.axis(axis, x.ndim)
    at_least_one(call, n, "the number of values")
    call.unify(x.shape[axis], half(n), f"the extent of axis {axis} and n // 2 + 1")
    shape = list(x.shape)
    shape[axis] = n
    return Type(real_dtype(x.dtype), tuple(shape))


def _whole(xp: Any, x: Any, *, n: int, axis: int, norm: str) -> Any:
    return library(xp).irfft(x, n=n, axis=axis, norm=norm)


def _weighted(spectrum: Node, n: Extent, axis: int, pairs: float) -> Node:
    """Return half a spectrum times `pairs` where an element stands for two of the whole one."""
    shape: list[Extent] = [1] * spectrum.ndim
    shape[axis] = spectrum.shape[axis]
    position = IOTA(shape=tuple(shape), axis=axis, dtype=_INT64)
    single = logical_or(equal(position, 0), equal(position * 2, extent(n)))
    weight = cast(where(single, 1.0, pairs), real_dtype(spectrum.dtype))
    return spectrum * cast(weight, spectrum.dtype)


def _spectrum_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (FFT(cotangent, **node.attrs),)


def _half_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    axis, norm = node.attrs["axis"], node.attrs["norm"]
    n = node.inputs[0].shape[axis]
    folded = _weighted(conj(cotangent), n, axis, 0.5)
    return (IRFFT(folded, n=n, axis=axis, norm=OPPOSITE[norm]),)


def _whole_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    axis, norm = node.attrs["axis"], node.attrs["norm"]
    spectrum = RFFT(cotangent, axis=axis, norm=OPPOSITE[norm])
    return (_weighted(conj(spectrum), node.attrs["n"], axis, 2.0),)


def _flops(x: Type, **attrs: Any) -> Extent:
    """Return 5 n log2(n) over all elements, as is usual for transforms; 64 for a named extent."""
    axes = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    doublings = 0
    for axis in axes:
        each = x.shape[axis]
        doublings += ((each if isinstance(each, int) else 64) - 1).bit_length()
    return 5 * dims.size(x.shape) * doublings


def _real_flops(x: Type, **attrs: Any) -> Extent:
    """Return half of what a transform takes whose values are complex on both sides."""
    shape = list(x.shape)
    shape[attrs["axis"]] = attrs.get("n", shape[attrs["axis"]])
    return dims.floor_div(_flops(Type(x.dtype, tuple(shape)), axis=attrs["axis"]), 2)


_record = partial(
    Op, kind=Kind.TRANSFORM, numerics="reassoc", batching="axes"
)

FFT = _record(
    name="fft_spectrum",
    doc="The discrete Fourier transform of complex values along axes, or its inverse.",
    rule=_spectrum_type,
    attributes=_NORMS,
    evaluate=_spectrum,
    onnx=onnx_pairs.Pairs("", onnx_pairs.spectrum),
    kernel=Kernel(into=_spectrum_into),
    gradient=_spectrum_gradient,
    flops=_flops,
    dtypes=COMPLEX,
)
RFFT = _record(
    name="fft_half_spectrum",
    doc="The half that is kept of the spectrum of real values along an axis.",
    rule=_half_type,
    attributes=_NORMS,
    evaluate=_half,
    onnx=onnx_pairs.Pairs("", onnx_pairs.spectrum_of_real),
    gradient=_half_gradient,
    flops=_real_flops,
    dtypes=WIDE,
)
IRFFT = _record(
    name="fft_real_values",
    doc="The real values of which half a spectrum along an axis is given.",
    rule=_whole_type,
    attributes=_NORMS,
    evaluate=_whole,
    onnx=onnx_pairs.Pairs("", onnx_pairs.values_of_half),
    gradient=_whole_gradient,
    flops=_real_flops,
    dtypes=COMPLEX,
)

RECORDS: tuple[Op, ...] = (FFT, RFFT, IRFFT)
