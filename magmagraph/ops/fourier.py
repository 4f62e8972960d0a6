"""Discrete Fourier transforms with the names and arguments of `numpy.fft`, as `mg.fft`.

A transform of ``n`` values is ``y[k] = sum_j x[j] exp(-2 pi i j k / n)``; the inverse has the other
sign and divides by ``n``. ``norm="ortho"`` divides both by ``sqrt(n)``, ``"forward"`` the first by
``n`` and the second by nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..config import config
from ..dims import Dim
from ..dtypes import complex_dtype, is_complex, is_float, is_inexact
from ..errors import DTypeError, ShapeError
from ..graph import Node
from ..op import LAPACK, WIDE, BadSample, Call, Composite, Kind, Sample
from ..types import Extent
from .axes import axes_of
from .complex_numbers import conj
from .convert import as_node, cast
from .family import publish
from .fourier_primitives import FFT, IRFFT, OPPOSITE, RFFT, at_least_one, half
from .slicing import PLACE, cut

Transform = Callable[..., Node]
Axes = int | Sequence[int] | None  # an int for a transform of one axis, given as n= and axis=
Lengths = Sequence[Extent | None] | None

# Operands and arguments.


_RECORDS: dict[str, Composite] = {}


def _operand(name: str, a: Any) -> tuple[Node, Call]:
    """Return the operand as a float or complex node of 32 or 64 bits a part, and its call."""
    node = as_node(a)
    if not is_inexact(node.dtype):
        node = cast(node, config.float_dtype)
    call = Call(_RECORDS[name], (node,))
    if is_float(node.dtype) and node.dtype.name not in WIDE:
        raise call.dtype_error(
            f"an operand of dtype {node.dtype.name}",
            need=f"one of {', '.join(LAPACK)}",
            mend="mg.cast(x, 'float32')",
        )
    return node, call


def _real(call: Call, node: Node) -> None:
    if is_complex(node.dtype):
        raise call.dtype_error(
            f"an operand of dtype {node.dtype.name}",
            need="real values, of whose spectrum half tells all",
            mend="mg.fft.fft(x), or mg.real(x)",
        )


def _norm(call: Call, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in OPPOSITE:
        raise call.shape_error(f"norm={norm!r}", need="'backward', 'ortho' or 'forward'")
    return norm


def _length(call: Call, n: Any, name: str) -> Extent:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer, Dim)):
        raise call.dtype_error(f"{name}={n!r}", need="an int or a Dim")
    count = n if isinstance(n, Dim) else int(n)
    at_least_one(call, count, name)
    return count


def _resized(call: Call, node: Node, axis: int, count: Extent) -> Node:
    """Return the first `count` elements along an axis, with zeros behind where there are fewer."""
    given = node.shape[axis]
    more = count - given
    if not isinstance(more, int):
        raise call.shape_error(
            f"extent {given} of axis {axis} for a length of {count}: which is larger is known "
            "only at the call",
            need="a length that differs from the extent by an int",
            mend="cut or pad x before, to a shape that says so",
        )
    if more <= 0:
        return cut(node, axis, 0, count)
    shape = list(node.shape)
    shape[axis] = count
    return PLACE(
        node, starts=(0,) * node.ndim, steps=(1,) * node.ndim, shape=tuple(shape), value=0
    )


def _axes(call: Call, node: Node, s: Lengths, axes: Axes) -> tuple[list[Extent | None], list[int]]:
    """Return the lengths that are asked for (None: all there are), and the axes."""
    if isinstance(axes, (int, np.integer)):
        chosen = [call.axis(axes, node.ndim)]
        (n,) = s or (None,)
        return [None if n is None else _length(call, n, "n")], chosen
    if axes is None:
        count = node.ndim if s is None else len(s)
        if count > node.ndim:
            raise call.shape_error(f"s={tuple(s or ())} for an operand of {node.ndim} axes")
        chosen = list(range(node.ndim - count, node.ndim))
    else:
        chosen = axes_of(call, axes, node.ndim, "axes")
    if s is None:
        return [None] * len(chosen), chosen
    if len(s) != len(chosen):
        raise call.shape_error(f"{len(s)} lengths for {len(chosen)} axes", need="one for each")
    kept = [isinstance(n, (int, np.integer)) and n == -1 for n in s]
    return [
        None if n is None or keep else _length(call, n, f"s[{i}]")
        for i, (n, keep) in enumerate(zip(s, kept, strict=True))
    ], chosen


def _inverse(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    return _whole(name, a, s, axes, norm, inverse=True)


def _complex(node: Node) -> Node:
    return node if is_complex(node.dtype) else cast(node, complex_dtype(node.dtype))


# The transforms.


def _whole(
    name: str, a: Any, s: Lengths, axes: Axes, norm: str | None, *, inverse: bool = False
) -> Node:
    node, call = _operand(name, a)
    scaled = _norm(call, norm)
    lengths, chosen = _axes(call, node, s, axes)
    for count, axis in zip(lengths, chosen, strict=True):
        if count is not None:
            node = _resized(call, node, axis, count)
    for axis in chosen:
        at_least_one(call, node.shape[axis], f"the extent of axis {axis}")
    if not chosen:
        return _complex(node)
    return FFT(_complex(node), axes=tuple(sorted(chosen)), inverse=inverse, norm=scaled)


def _to_half(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    node, call = _operand(name, a)
    _real(call, node)
    scaled = _norm(call, norm)
    lengths, chosen = _axes(call, node, s, axes)
    if not chosen:
        raise call.shape_error("no axis is transformed", need="at least one")
    for count, axis in zip(lengths, chosen, strict=True):
        if count is not None:
            node = _resized(call, node, axis, count)
    for axis in chosen:
        at_least_one(call, node.shape[axis], f"the extent of axis {axis}")
    spectrum = RFFT(node, axis=chosen[-1], norm=scaled)
    rest = tuple(sorted(chosen[:-1]))
    return FFT(spectrum, axes=rest, inverse=False, norm=scaled) if rest else spectrum


def _from_half(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    node, call = _operand(name, a)
    scaled = _norm(call, norm)
    lengths, chosen = _axes(call, node, s, axes)
    if not chosen:
        raise call.shape_error("no axis is transformed", need="at least one")
    last = chosen[-1]
    count = lengths[-1]
    if count is None:
        count = 2 * (node.shape[last] - 1)
        at_least_one(call, count, f"the number of values, 2 * ({node.shape[last]} - 1),")
    for length, axis in zip([*lengths[:-1], half(count)], chosen, strict=True):
        if length is not None:
            node = _resized(call, node, axis, length)
    node = _complex(node)
    rest = tuple(sorted(chosen[:-1]))
    if rest:
        node = FFT(node, axes=rest, inverse=True, norm=scaled)
    return IRFFT(node, n=count, axis=last, norm=scaled)


def _hermitian(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    node, call = _operand(name, a)
    return _from_half(name, conj(node), s, axes, OPPOSITE[_norm(call, norm)])


def _inverse_hermitian(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    _, call = _operand(name, a)
    return conj(_to_half(name, a, s, axes, OPPOSITE[_norm(call, norm)]))


# Functions and records.

_VALUES = "Node or array; ints become floats."
_REAL_VALUES = "Node or array of real values; ints become floats."
_LINE = """
n
    How many values to transform: the operand is cut or padded with zeros at the end. All there are
    unless said. An int or a `Dim` that differs from the extent by an int.
axis
    The axis.
"""
_HALF_LINE = """
n
    How many values the result has, of which the operand holds the first ``n // 2 + 1`` elements of
    the spectrum (it is cut or padded with zeros at the end); ``2 * (extent - 1)`` unless said. An
    odd number has to be said.
axis
    The axis.
"""
_PLANE = """
s
    How many values to transform along each axis; None or -1 for all there are.
axes
    The axes{order}, none of them twice.
"""
_NORM = """
norm
    "backward" (the inverse divides by the number of values), "ortho" or "forward".
"""
_RAISES = """
ShapeError
    If an axis is out of range or named twice, or there are no values to transform.
DTypeError
    For 16-bit floats{real}.
"""


def _function(
    name: str,
    summary: str,
    returns: str,
    example: str,
    reference: Callable[..., Any],
    compute: Callable[..., Node],
    *,
    samples: Callable[[], list[Sample]] | None = None,
    several: tuple[int, ...] | None = (),
    real: bool = False,
    line: str = _LINE,
    bad_samples: Callable[[], list[BadSample]] | None = None,
    dtypes: tuple[str, ...] = LAPACK,
) -> tuple[Transform, Composite]:
    """Make a transform and its record; `several` are the default axes of one of several axes."""
    if several == ():

        def function(a: Any, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
            return compute(name, a, [n], axis, norm)

        where = line
    else:

        def function(  # type: ignore[misc]
            a: Any, s: Lengths = None, axes: Axes = several, norm: str | None = None
        ) -> Node:
            return compute(name, a, s, axes, norm)

        order = "; the last so many as `s` has (or all) unless said" if several is None else ""
        where = _PLANE.format(order=order)
    raises = _RAISES.format(real=", and for complex values" if real else "").strip()
    values = _REAL_VALUES if real else _VALUES
    publish(
        function,
        name,
        __name__,
        f"{summary}\n\nParameters\n----------\na\n    {values}\n{where.strip()}\n{_NORM.strip()}"
        "\n\n"
        f"Returns\n-------\nNode\n    {returns}\n\nRaises\n------\n{raises}\n\n"
        f"Examples\n--------\n>>> import magmagraph as mg\n{inspect.cleandoc(example)}",
    )
    record = Composite(
        name=name,
        namespace="fft",
        kind=Kind.TRANSFORM,
        function=function,
        doc=summary,
        dtypes=dtypes,
        samples=samples or (_line_samples if several == () else _plane_samples),
        bad_samples=bad_samples or (_line_bad(name) if several == () else _plane_bad(name)),
        reference=reference,
        numerics="reassoc",
    )
    _RECORDS[name] = record
    return function, record


_FLAT = np.array([0.7, -1.2, 1.9, 0.4, 1.1, 2.3, -0.6])
_ROWS = np.array([[0.7, -1.2, 1.9, 0.4], [1.1, 2.3, -0.6, -1.4], [0.2, -2.1, 1.5, 0.9]])
_BLOCK = np.cos(np.arange(1.0, 31.0)).reshape(2, 3, 5)
_EMPTY = np.zeros((0, 4))


def _line_samples() -> list[Sample]:
    return [
        Sample((_FLAT,)),
        Sample((_ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((_ROWS,), {"n": 3, "norm": "forward"}),
        Sample((_ROWS,), {"n": 6, "axis": 1}),
        Sample((_FLAT[:1],)),
        Sample((_EMPTY,)),
    ]


def _plane_samples() -> list[Sample]:
    return [
        Sample((_BLOCK,)),
        Sample((_BLOCK,), {"axes": (2, 0), "norm": "ortho"}),
        Sample((_BLOCK,), {"s": (4, 3), "axes": (0, 1), "norm": "forward"}),
    ]


def _line_bad(name: str) -> Callable[[], list[BadSample]]:
    return lambda: [
        BadSample((_FLAT,), ShapeError, f"{name}: n is 0", {"n": 0}),
        BadSample((_FLAT,), DTypeError, f"{name}: n=2.0", {"n": 2.0}),
        BadSample((_FLAT,), ShapeError, f"{name}: axis=1 is out of range for 1 axes", {"axis": 1}),
        BadSample((_FLAT,), ShapeError, f"{name}: norm='unit'", {"norm": "unit"}),
    ]


def _plane_bad(name: str) -> Callable[[], list[BadSample]]:
    inverse = name.startswith("irfft")
    empty = "the number of values, 2 * (0 - 1), is -2" if inverse else "the extent of axis 1 is 0"
    return lambda: [
        BadSample(
            (_BLOCK,), ShapeError, f"{name}: axes=(1, -2) names axis 1 twice", {"axes": (1, -2)}
        ),
        BadSample(
            (_BLOCK,), ShapeError, f"{name}: 1 lengths for 2 axes", {"s": (4,), "axes": (0, 1)}
        ),
        BadSample((np.zeros((3, 0)),), ShapeError, f"{name}: {empty}"),
    ]


_SAME = "Of the operand's shape (but for `{}`), complex."

fft, _ = _function(
    "fft",
    "Transform along an axis.",
    _SAME.format("n"),
    """
    >>> mg.fft.fft([1.0, 0.0, -1.0, 0.0]).eval().real
    array([0., 2., 0., 2.], dtype=float32)
    """,
    np.fft.fft,
    _whole,
)
ifft, _ = _function(
    "ifft",
    "Invert `fft`.",
    _SAME.format("n"),
    """
    >>> mg.fft.ifft([0.0, 4.0, 0.0, 0.0]).eval()
    array([ 1.+0.j,  0.+1.j, -1.+0.j,  0.-1.j], dtype=complex64)
    """,
    np.fft.ifft,
    _inverse,
)
rfft, _ = _function(
    "rfft",
    "Transform real values along an axis, to the half of the spectrum that tells all.",
    "Complex, with ``n // 2 + 1`` elements along the axis.",
    """
    >>> mg.fft.rfft([1.0, 0.0, -1.0, 0.0]).eval().real
    array([0., 2., 0.], dtype=float32)
    >>> mg.fft.rfft(mg.input("x", ("batch", "time"))).shape
    (batch, time//2 + 1)
    """,
    np.fft.rfft,
    _to_half,
    real=True,
    dtypes=WIDE,
)
irfft, _ = _function(
    "irfft",
    "Invert `rfft`: real values of half a spectrum along an axis.",
    "Real, with `n` elements along the axis.",
    """
    >>> mg.fft.irfft([0.0, 2.0, 0.0]).eval()
    array([ 1.,  0., -1.,  0.], dtype=float32)
    """,
    np.fft.irfft,
    _from_half,
    line=_HALF_LINE,
    samples=lambda: [
        Sample((_FLAT,)),
        Sample((_ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((_ROWS,), {"n": 3, "norm": "forward"}),
        Sample((_ROWS,), {"n": 7}),
        Sample((_ROWS,), {"n": 9, "axis": 1}),
        Sample((_FLAT[:1],), {"n": 1}),
        Sample((_EMPTY,)),
    ],
    bad_samples=lambda: [
        *_line_bad("irfft")(),
        BadSample((_FLAT[:1],), ShapeError, "irfft: the number of values, 2 * (1 - 1), is 0"),
    ],
)
hfft, _ = _function(
    "hfft",
    "Transform values of which half is given, since the other half are their conjugates.",
    "Real, with `n` elements along the axis.",
    """
    >>> mg.fft.hfft([1.0, 2.0, 3.0]).eval()
    array([ 8., -2.,  0., -2.], dtype=float32)
    """,
    np.fft.hfft,
    _hermitian,
    line=_HALF_LINE,
    samples=lambda: [
        Sample((_FLAT,)),
        Sample((_ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((_ROWS,), {"n": 7, "norm": "forward"}),
    ],
)
ihfft, _ = _function(
    "ihfft",
    "Invert `hfft`: half of the values that have a real spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the axis.",
    """
    >>> mg.fft.ihfft([8.0, -2.0, 0.0, -2.0]).eval().real
    array([1., 2., 3.], dtype=float32)
    """,
    np.fft.ihfft,
    _inverse_hermitian,
    real=True,
    dtypes=WIDE,
)
fft2, _ = _function(
    "fft2",
    "Transform along two axes.",
    _SAME.format("s"),
    """
    >>> mg.fft.fft2([[1.0, 2.0], [3.0, 4.0]]).eval().real
    array([[10., -2.],
           [-4.,  0.]], dtype=float32)
    """,
    np.fft.fft2,
    _whole,
    several=(-2, -1),
)
ifft2, _ = _function(
    "ifft2",
    "Invert `fft2`.",
    _SAME.format("s"),
    """
    >>> mg.fft.ifft2([[10.0, -2.0], [-4.0, 0.0]]).eval().real
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.ifft2,
    _inverse,
    several=(-2, -1),
)
rfft2, _ = _function(
    "rfft2",
    "Transform real values along two axes, the last of which keeps half of the spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the last of the axes.",
    """
    >>> mg.fft.rfft2([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).eval().real
    array([[21., -3.],
           [-9.,  0.]], dtype=float32)
    """,
    np.fft.rfft2,
    _to_half,
    several=(-2, -1),
    real=True,
    dtypes=WIDE,
)
irfft2, _ = _function(
    "irfft2",
    "Invert `rfft2`; an odd number of values along the last of the axes has to be said.",
    "Real, with ``s[-1]`` elements along the last of the axes, ``2 * (extent - 1)`` unless said.",
    """
    >>> mg.fft.irfft2([[10.0, -2.0], [-4.0, 0.0]]).eval()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.irfft2,
    _from_half,
    several=(-2, -1),
)
fftn, _ = _function(
    "fftn",
    "Transform along any axes.",
    _SAME.format("s"),
    """
    >>> mg.fft.fftn([[1.0, 2.0], [3.0, 4.0]], axes=[0]).eval().real
    array([[ 4.,  6.],
           [-2., -2.]], dtype=float32)
    """,
    np.fft.fftn,
    _whole,
    several=None,
)
ifftn, _ = _function(
    "ifftn",
    "Invert `fftn`.",
    _SAME.format("s"),
    """
    >>> mg.fft.ifftn([[4.0, 6.0], [-2.0, -2.0]], axes=[0]).eval().real
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.ifftn,
    _inverse,
    several=None,
)
rfftn, _ = _function(
    "rfftn",
    "Transform real values along any axes, the last of which keeps half of the spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the last of the axes.",
    """
    >>> mg.fft.rfftn([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], axes=[1, 0]).eval().real
    array([[21., -3., -3.],
           [-9.,  0.,  0.]], dtype=float32)
    """,
    np.fft.rfftn,
    _to_half,
    several=None,
    real=True,
    dtypes=WIDE,
)
irfftn, _ = _function(
    "irfftn",
    "Invert `rfftn`; an odd number of values along the last of the axes has to be said.",
    "Real, with ``s[-1]`` elements along the last of the axes, ``2 * (extent - 1)`` unless said.",
    """
    >>> mg.fft.irfftn([[10.0, -2.0], [-4.0, 0.0]]).eval()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.irfftn,
    _from_half,
    several=None,
)

RECORDS: tuple[Composite, ...] = tuple(_RECORDS.values())
