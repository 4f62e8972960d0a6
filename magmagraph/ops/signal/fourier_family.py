"""How Fourier transforms are made: operands, lengths, axes, records from a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import complex_dtype, is_complex, is_float, is_inexact
from ...errors import DTypeError, ShapeError
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.op import LAPACK, WIDE, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.complex_numbers import conj
from ..elementwise.family import publish
from ..shape.axes import axes_of
from ..shape.slicing import PLACE, cut
from .fourier_primitives import FFT, IRFFT, OPPOSITE, RFFT, at_least_one, half

Transform = Callable[..., Node]
Axes = int | Sequence[int] | None  # an int for a transform of one axis, given as n= and axis=
Lengths = Sequence[Extent | None] | None

# Operands and arguments.


TRANSFORMS: dict[str, Composite] = {}


def _operand(name: str, a: Any) -> tuple[Node, Call]:
    """Return the operand as a float or complex node of 32 or 64 bits a part, and its call."""
    node = as_node(a)
    if not is_inexact(node.dtype):
        node = cast(node, config.float_dtype)
    call = Call(TRANSFORMS[name], (node,))
    if is_float(node.dtype) and node.dtype.name not in WIDE:
        raise call.dtype_error(
            f"an operand of dtype {node.dtype.name}",
            need=f"one of {', '.join(LAPACK)}",
            hint="mg.cast(x, 'float32')",
        )
    return node, call


def _real(call: Call, node: Node) -> None:
    if is_complex(node.dtype):
        raise call.dtype_error(
            f"an operand of dtype {node.dtype.name}",
            need="real values, of whose spectrum half tells all",
            hint="mg.fft.fft(x), or mg.real(x)",
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
    """Return the first `count` elements along an axis, zero-padded."""
    extent = node.shape[axis]
    more = count - extent
    if not isinstance(more, int):
        raise call.shape_error(
            f"extent {extent} of axis {axis} for a length of {count}: which is larger is known "
            "only at the call",
            need="a length that differs from the extent by an int",
            hint="cut or pad x before, to a shape that says so",
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
        chosen_axes = [call.axis(axes, node.ndim)]
        if s is not None and len(s) != 1:
            raise call.shape_error(f"{len(s)} lengths for one axis", need="one for each")
        (n,) = s or (None,)
        return [None if n is None else _length(call, n, "n")], chosen_axes
    if axes is None:
        count = node.ndim if s is None else len(s)
        if count > node.ndim:
            raise call.shape_error(f"s={tuple(s or ())} for an operand of {node.ndim} axes")
        chosen_axes = list(range(node.ndim - count, node.ndim))
    else:
        chosen_axes = axes_of(call, axes, node.ndim, "axes")
    if s is None:
        return [None] * len(chosen_axes), chosen_axes
    if len(s) != len(chosen_axes):
        raise call.shape_error(f"{len(s)} lengths for {len(chosen_axes)} axes", need="one for each")
    keeps = [isinstance(n, (int, np.integer)) and n == -1 for n in s]
    return [
        None if n is None or keep else _length(call, n, f"s[{i}]")
        for i, (n, keep) in enumerate(zip(s, keeps, strict=True))
    ], chosen_axes


def inverse_whole(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    """Invert `whole`."""
    return whole(name, a, s, axes, norm, inverse=True)


def _complex(node: Node) -> Node:
    return node if is_complex(node.dtype) else cast(node, complex_dtype(node.dtype))


# The transforms.


def whole(
    name: str, a: Any, s: Lengths, axes: Axes, norm: str | None, *, inverse: bool = False
) -> Node:
    """Transform along axes, all of the spectrum."""
    node, call = _operand(name, a)
    scaled = _norm(call, norm)
    lengths, chosen_axes = _axes(call, node, s, axes)
    for count, axis in zip(lengths, chosen_axes, strict=True):
        if count is not None:
            node = _resized(call, node, axis, count)
    for axis in chosen_axes:
        at_least_one(call, node.shape[axis], f"the extent of axis {axis}")
    if not chosen_axes:
        return _complex(node)
    return FFT(_complex(node), axes=tuple(sorted(chosen_axes)), inverse=inverse, norm=scaled)


def to_half(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    """Transform real values along axes; the last one keeps half of the spectrum."""
    node, call = _operand(name, a)
    _real(call, node)
    scaled = _norm(call, norm)
    lengths, chosen_axes = _axes(call, node, s, axes)
    if not chosen_axes:
        raise call.shape_error("no axis is transformed", need="at least one")
    for count, axis in zip(lengths, chosen_axes, strict=True):
        if count is not None:
            node = _resized(call, node, axis, count)
    for axis in chosen_axes:
        at_least_one(call, node.shape[axis], f"the extent of axis {axis}")
    spectrum = RFFT(node, axis=chosen_axes[-1], norm=scaled)
    rest = tuple(sorted(chosen_axes[:-1]))
    return FFT(spectrum, axes=rest, inverse=False, norm=scaled) if rest else spectrum


def from_half(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    """Invert `to_half`."""
    node, call = _operand(name, a)
    scaled = _norm(call, norm)
    lengths, chosen_axes = _axes(call, node, s, axes)
    if not chosen_axes:
        raise call.shape_error("no axis is transformed", need="at least one")
    last = chosen_axes[-1]
    count = lengths[-1]
    if count is None:
        count = 2 * (node.shape[last] - 1)
        at_least_one(call, count, f"the number of values, 2 * ({node.shape[last]} - 1),")
    for length, axis in zip([*lengths[:-1], half(count)], chosen_axes, strict=True):
        if length is not None:
            node = _resized(call, node, axis, length)
    node = _complex(node)
    rest = tuple(sorted(chosen_axes[:-1]))
    if rest:
        node = FFT(node, axes=rest, inverse=True, norm=scaled)
    return IRFFT(node, n=count, axis=last, norm=scaled)


def hermitian(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    """Transform values of which half is given."""
    node, call = _operand(name, a)
    return from_half(name, conj(node), s, axes, OPPOSITE[_norm(call, norm)])


def inverse_hermitian(name: str, a: Any, s: Lengths, axes: Axes, norm: str | None) -> Node:
    """Invert `hermitian`."""
    _, call = _operand(name, a)
    return conj(to_half(name, a, s, axes, OPPOSITE[_norm(call, norm)]))


# Functions and records.

_VALUES = "Node or array; ints become floats."
_REAL_VALUES = "Node or array of real values; ints become floats."
_LINE = """
n: How many values to transform: the operand is cut or padded with zeros at the end. All there are
    unless said. An int or a `Dim` that differs from the extent by an int.
axis: The axis.
"""
HALF_LINE = """
n: How many values the result has, of which the operand holds the first ``n // 2 + 1`` elements of
    the spectrum (it is cut or padded with zeros at the end); ``2 * (extent - 1)`` unless said. An
    odd number has to be said.
axis: The axis.
"""
_PLANE = """
s: How many values to transform along each axis; None or -1 for all there are.
axes: The axes{order}, none of them twice.
"""
_FIELDS = """
a: {values}
{where}
norm: "backward" (the inverse divides by the number of values), "ortho" or "forward".
returns: {returns}
raises ShapeError: If an axis is out of range or named twice, or there are no values to transform.
raises DTypeError: For 16-bit floats{real}.
"""


def transform(
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
    fields = _FIELDS.format(
        values=_REAL_VALUES if real else _VALUES,
        where=where.strip(),
        returns=returns,
        real=", and for complex values" if real else "",
    )
    home = f"{__name__.rpartition('.')[0]}.fourier"
    publish(function, name, home, summary, fields, example)
    record = Composite(
        name=name,
        namespace="fft",
        kind=Kind.TRANSFORM,
        function=function,
        doc=summary,
        dtypes=dtypes,
        tests=Tests(
            samples=samples or (_line_samples if several == () else _plane_samples),
            bad_samples=bad_samples or (line_bad(name) if several == () else _plane_bad(name)),
            reference=reference,
        ),
        numerics="reassoc",
    )
    TRANSFORMS[name] = record
    return function, record


FLAT = np.array([0.7, -1.2, 1.9, 0.4, 1.1, 2.3, -0.6])
ROWS = np.array([[0.7, -1.2, 1.9, 0.4], [1.1, 2.3, -0.6, -1.4], [0.2, -2.1, 1.5, 0.9]])
_BLOCK = np.cos(np.arange(1.0, 31.0)).reshape(2, 3, 5)
EMPTY = np.zeros((0, 4))


def _line_samples() -> list[Sample]:
    return [
        Sample((FLAT,)),
        Sample((ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((ROWS,), {"n": 3, "norm": "forward"}),
        Sample((ROWS,), {"n": 6, "axis": 1}),
        Sample((FLAT[:1],)),
        Sample((EMPTY,)),
    ]


def _plane_samples() -> list[Sample]:
    return [
        Sample((_BLOCK,)),
        Sample((_BLOCK,), {"axes": (2, 0), "norm": "ortho"}),
        Sample((_BLOCK,), {"s": (4, 3), "axes": (0, 1), "norm": "forward"}),
    ]


def line_bad(name: str) -> Callable[[], list[BadSample]]:
    """Return the bad samples of transforms along one axis."""
    return lambda: [
        BadSample((FLAT,), ShapeError, f"{name}: n is 0", {"n": 0}),
        BadSample((FLAT,), DTypeError, f"{name}: n=2.0", {"n": 2.0}),
        BadSample((FLAT,), ShapeError, f"{name}: axis=1 is out of range for 1 axes", {"axis": 1}),
        BadSample((FLAT,), ShapeError, f"{name}: norm='unit'", {"norm": "unit"}),
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
