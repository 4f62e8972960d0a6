"""Convolution and correlation of whole signals: `convolve`, `correlate`.

Layers of networks, with strides and channels, are in `convolution`. Here two arrays of as many axes
are folded over each other, along all axes at once, directly or by way of their spectra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.dims import Constraint
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Shape, Type
from ..elementwise.complex_numbers import conj
from ..elementwise.family import BOOL, one_dtype, pair
from ..rules import onnx_pairs, onnx_windows
from ..shape.pieces import flip
from ..shape.slicing import cut
from .fourier_primitives import library

__all__ = ["convolve", "correlate"]

_MODES = ("full", "same", "valid")
_METHODS = ("direct", "fft", "auto")
# A transform's operation counts as so many of a direct sum, which runs through memory in order.
_WORTH = 8


def _result_type(call: Call, a: Type, v: Type, *, mode: str, method: str) -> Type:
    dtype = one_dtype(call, a, v)
    if dtype == BOOL:
        raise call.dtype_error("operands of dtype bool", need="numbers", hint="mg.cast(x, 'int32')")
    if a.ndim != v.ndim or not a.ndim:
        raise call.shape_error(
            f"operands of {a.ndim} and {v.ndim} axes",
            need="as many axes in both, at least one",
            hint="mg.reshape one of them",
        )
    extents: list[Extent] = []
    for axis, (n, m) in enumerate(zip(a.shape, v.shape, strict=True)):
        for count in (n, m):
            if isinstance(count, int) and count < 1:
                raise call.shape_error(f"axis {axis} is empty", need="at least 1 element")
        if mode == "full":
            extents.append(n + m - 1)
            continue
        rest = n - m
        if isinstance(rest, int) and rest < 0:
            raise call.shape_error(
                f"extents {n} and {m} of axis {axis} for mode='valid'",
                need="one operand at least as long as the other along every axis",
            )
        if not isinstance(rest, int):
            call.constraints.append(Constraint(n, ">=", m))
        extents.append(rest + 1)
    return Type(dtype, tuple(extents))


def _directly(xp: Any, a: Any, v: Any, mode: str) -> Any:
    if a.ndim == 1:
        return xp.convolve(a, v, mode)
    if mode == "full" and v.size > a.size:
        a, v = v, a
    shape = [
        n + m - 1 if mode == "full" else n - m + 1 for n, m in zip(a.shape, v.shape, strict=True)
    ]
    total = xp.zeros(shape, dtype=a.dtype)
    reverse = v[(slice(None, None, -1),) * v.ndim]
    for place in np.ndindex(*v.shape):
        if mode == "full":
            window = tuple(slice(p, p + n) for p, n in zip(place, a.shape, strict=True))
            total[window] += v[place] * a
        else:
            window = tuple(slice(p, p + n) for p, n in zip(place, shape, strict=True))
            total += reverse[place] * a[window]
    return total


def _by_spectra(xp: Any, a: Any, v: Any, mode: str) -> Any:
    from scipy.fft import next_fast_len

    whole = [n + m - 1 for n, m in zip(a.shape, v.shape, strict=True)]
    axes = tuple(range(a.ndim))
    real = a.dtype.kind != "c"
    lengths = [int(next_fast_len(n, real)) for n in whole]
    fft = library(xp)
    forward, inverse = (fft.rfftn, fft.irfftn) if real else (fft.fftn, fft.ifftn)
    product = forward(a, s=lengths, axes=axes) * forward(v, s=lengths, axes=axes)
    result = inverse(product, s=lengths, axes=axes)
    if mode == "full":
        return result[tuple(slice(0, n) for n in whole)]
    return result[tuple(slice(m - 1, n) for n, m in zip(a.shape, v.shape, strict=True))]


def _spectra_are_less(a: Any, v: Any) -> bool:
    """Return whether three transforms of the whole take less work than the sums of products."""
    whole = math.prod(n + m - 1 for n, m in zip(a.shape, v.shape, strict=True))
    return bool(a.size * v.size > _WORTH * 3 * whole * math.log2(whole + 1))


def _convolve(xp: Any, a: Any, v: Any, *, mode: str, method: str) -> Any:
    by_spectra = method == "fft" or (method == "auto" and _spectra_are_less(a, v))
    if by_spectra and a.dtype.kind not in "iu":
        return _by_spectra(xp, a, v, mode)
    return _directly(xp, a, v, mode)


def _gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    a, v = node.inputs
    method = node.attrs["method"]
    if node.attrs["mode"] == "full":
        return (
            CONVOLVE(cotangent, flip(v), mode="valid", method=method),
            CONVOLVE(cotangent, flip(a), mode="valid", method=method),
        )
    return (
        CONVOLVE(cotangent, flip(v), mode="full", method=method),
        flip(CONVOLVE(a, flip(cotangent), mode="valid", method=method)),
    )


def _choice(call: Call, name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise call.shape_error(
            f"{name}={value!r}", need=", ".join(repr(word) for word in allowed)
        )


def _folded(record: Op | Composite, left: Node, right: Node, mode: Any, method: Any) -> Node:
    call = Call(record, (left, right))
    _choice(call, "mode", mode, _MODES)
    _choice(call, "method", method, _METHODS)
    if mode == "valid" and _is_shorter(left.shape, right.shape):
        left, right = right, left
    if mode != "same":
        return CONVOLVE(left, right, mode=mode, method=method)
    result = CONVOLVE(left, right, mode="full", method=method)
    for axis, (n, m) in enumerate(zip(left.shape, right.shape, strict=True)):
        # Of two middles NumPy takes the first, and in a correlation with a longer signal the other.
        first: Extent = 1
        if record is CORRELATE:
            first = dims.minimum(dims.maximum(n - m + 1, 0), 1)
        result = cut(result, axis, (dims.minimum(n, m) - first) // 2, dims.maximum(n, m))
    return result


def _is_shorter(first: Shape, second: Shape) -> bool:
    """Return whether the first is known to be no longer along any axis, and shorter along one."""
    if len(first) != len(second):
        return False
    rests = [n - m for n, m in zip(first, second, strict=True)]
    differences = [rest for rest in rests if isinstance(rest, int)]
    return (
        len(differences) == len(rests)
        and max(differences, default=0) <= 0
        and min(differences, default=0) < 0
    )


@documented
def convolve(a: Any, v: Any, mode: str = "full", method: str = "direct") -> Node:
    """Convolve two signals: ``y[k] = sum_i a[i] v[k - i]``, along all axes.

    a, v: Nodes or arrays of as many axes; their dtypes are promoted.
    mode: "full": wherever the signals overlap, ``n + m - 1`` elements along an axis. "same": the
        middle of it, as many as the longer one has. "valid": where they overlap completely; one
        signal must be at least as long as the other along every axis (of symbolic extents the first
        one, which the call checks).
    method: "direct": sums of products. "fft": by way of the spectra, whose rounding is relative to
        the largest elements, and which a single NaN or infinity fills entirely. "auto": that of the
        two which takes fewer operations. Integers are always taken directly.
    returns: Of the promoted dtype.
    raises ShapeError: If the operands do not have as many axes, one is empty, or neither is the
        longer one where that is needed; if `mode` or `method` is none of the above.
    raises DTypeError: For bools.

    See Also
    --------
    correlate, conv1d

    >>> mg.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).eval()
    array([0. , 1. , 2.5, 4. , 1.5], dtype=float32)
    >>> mg.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], mode="same").eval()
    array([1. , 2.5, 4. ], dtype=float32)
    """
    left, right = pair(a, v)
    return _folded(CONVOLVE, left, right, mode, method)


@documented
def correlate(a: Any, v: Any, mode: str = "valid", method: str = "direct") -> Node:
    """Correlate two signals: ``y[k] = sum_i a[i + k] conj(v[i])``, along all axes.

    a, v: Nodes or arrays of as many axes; their dtypes are promoted.
    mode, method: As for `convolve`.
    returns: Of the promoted dtype.
    raises ShapeError, DTypeError: As `convolve`.

    See Also
    --------
    convolve

    >>> mg.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).eval()
    array([3.5], dtype=float32)
    >>> mg.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], mode="full").eval()
    array([0.5, 2. , 3.5, 3. , 0. ], dtype=float32)
    """
    left, right = pair(a, v)
    return _folded(CORRELATE, left, flip(conj(right)), mode, method)


_LONG = np.array([0.7, -1.2, 1.9, 0.4, 1.1, 2.3, -0.6])
_SHORT = np.array([0.5, 1.4, -0.8, 0.3])
_PLANE = np.cos(np.arange(1.0, 31.0)).reshape(5, 6)
_WINDOW = np.sin(np.arange(1.0, 7.0)).reshape(2, 3)
_WHOLE = np.array([3, -1, 4, 1], dtype=np.int32)


def _samples() -> list[Sample]:
    return [
        *(Sample((_LONG, _SHORT), {"mode": mode}) for mode in _MODES),
        *(Sample((_SHORT, _LONG), {"mode": mode}) for mode in _MODES[:2]),
        *(Sample((_PLANE, _WINDOW), {"mode": mode}) for mode in _MODES),
        Sample((_LONG, _SHORT), {"mode": "full", "method": "auto"}),
        Sample((_WHOLE, _WHOLE[:2]), {"mode": "full", "method": "fft"}),
        Sample((_LONG[:1], _SHORT[:1])),
    ]


def _bad_samples(name: str) -> list[BadSample]:
    return [
        BadSample((_LONG, _PLANE), ShapeError, f"{name}: operands of 1 and 2 axes"),
        BadSample((_LONG, _SHORT), ShapeError, f"{name}: mode='half'", {"mode": "half"}),
        BadSample((_LONG, _SHORT), ShapeError, f"{name}: method='fast'", {"method": "fast"}),
        BadSample((_LONG, _SHORT[:0]), ShapeError, f"{name}: axis 0 is empty", {"mode": "full"}),
        BadSample(
            (_PLANE, _PLANE[:2].T),
            ShapeError,
            f"{name}: extents 5 and 6 of axis 0 for mode='valid'",
            {"mode": "valid"},
        ),
    ]


def _reference(
    a: Any, v: Any, mode: str = "full", method: str = "direct", first: int = 1
) -> Any:
    """Convolve by the definition, for any number of axes."""
    whole = np.zeros([n + m - 1 for n, m in zip(a.shape, v.shape, strict=True)],
                     dtype=np.result_type(a, v))
    for i in np.ndindex(*a.shape):
        for j in np.ndindex(*v.shape):
            whole[tuple(p + q for p, q in zip(i, j, strict=True))] += a[i] * v[j]
    sides = [(max(n, m), min(n, m)) for n, m in zip(a.shape, v.shape, strict=True)]
    if mode == "full":
        return whole
    if mode == "same":
        return whole[tuple(slice((m - first) // 2, (m - first) // 2 + n) for n, m in sides)]
    return whole[tuple(slice(m - 1, n) for n, m in sides)]


def _correlated(a: Any, v: Any, mode: str = "valid", method: str = "direct") -> Any:
    reverse = np.conj(v[(slice(None, None, -1),) * v.ndim])
    return _reference(a, reverse, mode, first=int(a.size >= v.size))


CONVOLVE = Op(
    name="convolve",
    kind=Kind.CONVOLUTION,
    rule=_result_type,
    attributes={
        "mode": "Literal['full', 'same', 'valid']",
        "method": "Literal['direct', 'fft', 'auto']",
    },
    evaluate=_convolve,
    gradient=_gradient,
    function=convolve,
    dtypes=INEXACT,
    tests=Tests(
        samples=_samples, bad_samples=lambda: _bad_samples("convolve"), reference=_reference
    ),
    numerics="reassoc",
    flops=lambda a, v, **attrs: 2 * a.size * v.size,
    precision=Precision("keep"),  # no library has it on tensor cores
    onnx=onnx_pairs.Pairs(onnx_windows.folded, onnx_windows.folded_pairs),
)
CORRELATE = Composite(
    kind=Kind.CONVOLUTION,
    function=correlate,
    dtypes=INEXACT,
    tests=Tests(
        samples=_samples, bad_samples=lambda: _bad_samples("correlate")[1:3], reference=_correlated
    ),
    numerics="reassoc",
)

RECORDS: tuple[Op | Composite, ...] = (CONVOLVE, CORRELATE)
