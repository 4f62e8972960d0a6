"""Frequencies of discrete Fourier transforms, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import canonical, is_float
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.comparison import less, where
from ..indexing.iota import IOTA
from ..leaf import extent
from ..shape.axes import CUBE, axes_of
from ..shape.joining import concatenate
from ..shape.slicing import cut

_INT64 = np.dtype(np.int64)


def _positions(who: str, n: Any, d: Any, count: Any) -> tuple[Node, Any]:
    """Return 0, 1, ... as many as `count` says, and what frequencies are multiplied by."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer, Dim, str)):
        raise DTypeError(message(f"{who}: n={n!r}", need="an int or a Dim"))
    whole = dims.parse_shape((n,))[0] if isinstance(n, str) else n if isinstance(n, Dim) else int(n)
    if isinstance(whole, (int, np.integer)) and whole < 1:
        raise ShapeError(message(f"{who}: n is {whole}", need="at least 1"))
    if not isinstance(d, (int, float)) or not d:
        raise DTypeError(message(f"{who}: d={d!r}", need="a number other than 0"))
    positions = IOTA(shape=(count(whole),), axis=0, dtype=_INT64)
    return positions, whole


def _frequencies(whole: Extent, positions: Node, d: float, dtype: Any) -> Node:
    target = config.float_dtype if dtype is None else canonical(dtype)
    if not is_float(target):
        raise DTypeError(message(f"a frequency of dtype {target.name}", need="a float dtype"))
    # Formed in float64, whose integers reach as far as extents do, and rounded once.
    steps = cast(extent(whole), np.float64) * float(d)
    return cast(cast(positions, np.float64) / steps, target)


@documented
def fftfreq(n: Any, d: float = 1.0, dtype: Any = None) -> Node:
    """Return the frequencies that the elements of `fft` belong to, in cycles per unit.

    n: How many values are transformed: an int or a `Dim`.
    d: The distance of two values.
    dtype: A float dtype; `mg.config.float_dtype` unless said.
    returns: ``0, 1, ..., (n-1)//2, -(n//2), ..., -1``, divided by ``n * d``.
    raises ShapeError: If `n` is less than 1.
    raises DTypeError: If `n` or `d` is not such a number, or `dtype` no float dtype.

    >>> mg.fft.fftfreq(5, d=0.1).eval()
    array([ 0.,  2.,  4., -4., -2.], dtype=float32)
    """
    positions, whole = _positions("fftfreq", n, d, lambda count: count)
    first = (whole + 1) // 2
    ordered = where(less(positions, extent(first)), positions, positions - extent(whole))
    return _frequencies(whole, ordered, d, dtype)


@documented
def rfftfreq(n: Any, d: float = 1.0, dtype: Any = None) -> Node:
    """Return the frequencies that the elements of `rfft` belong to, in cycles per unit.

    n: How many real values are transformed: an int or a `Dim`.
    d: The distance of two values.
    dtype: A float dtype; `mg.config.float_dtype` unless said.
    returns: ``0, 1, ..., n//2``, divided by ``n * d``.
    raises ShapeError: If `n` is less than 1.
    raises DTypeError: If `n` or `d` is not such a number, or `dtype` no float dtype.

    >>> mg.fft.rfftfreq(5, d=0.1).eval()
    array([0., 2., 4.], dtype=float32)
    """
    positions, whole = _positions("rfftfreq", n, d, lambda count: count // 2 + 1)
    return _frequencies(whole, positions, d, dtype)


def _start_from(record: Composite, x: Any, axes: Any, first: Any) -> Node:
    """Return the elements from `first(extent)` on, and then those before, along axes."""
    node = as_node(x)
    call = Call(record, (node,))
    for axis in range(node.ndim) if axes is None else axes_of(call, axes, node.ndim, "axes"):
        count = node.shape[axis]
        start = first(count)
        parts = [cut(node, axis, start, count - start), cut(node, axis, 0, start)]
        node = concatenate(parts, axis=axis)
    return node


@documented
def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Node:
    """Move the frequency 0 to the middle.

    x: Node or array.
    axes: The axes; all unless said.
    returns: Of the shape and dtype of `x`.

    >>> mg.fft.fftshift(mg.constant([0, 1, 2, -2, -1])).eval()
    array([-2, -1,  0,  1,  2], dtype=int32)
    """
    return _start_from(FFTSHIFT, x, axes, lambda count: (count + 1) // 2)


@documented
def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Node:
    """Undo `fftshift`: move the middle to the front.

    x: Node or array.
    axes: The axes; all unless said.
    returns: Of the shape and dtype of `x`.

    >>> mg.fft.ifftshift(mg.constant([-2, -1, 0, 1, 2])).eval()
    array([ 0,  1,  2, -2, -1], dtype=int32)
    """
    return _start_from(IFFTSHIFT, x, axes, lambda count: count // 2)


def _shift(name: str, function: Any, doc: str, reference: Any) -> Composite:
    return Composite(
        name=name,
        namespace="fft",
        kind=Kind.LAYOUT,
        function=function,
        doc=doc,
        dtypes=INEXACT,
        tests=Tests(
            samples=lambda: [
                Sample((CUBE,)),
                Sample((CUBE[:, :, :3],), {"axes": (-1, 0)}),
                Sample((CUBE,), {"axes": 1}),
                Sample((np.zeros((0, 3)),)),
            ],
            bad_samples=lambda: [
                BadSample(
                    (CUBE,), ShapeError, f"{name}: axes=3 is out of range for 3 axes", {"axes": 3}
                )
            ],
            reference=reference,
        ),
        numerics="exact",
    )


def _frequency_record(name: str, function: Any, doc: str, reference: Any) -> Composite:
    return Composite(
        name=name,
        namespace="fft",
        kind=Kind.INDEX,
        function=function,
        doc=doc,
        tests=Tests(
            samples=lambda: [
                Sample((), {"n": 7, "d": 0.5, "dtype": "float64"}),
                Sample((), {"n": 8, "dtype": "float64"}),
                Sample((), {"n": 1, "dtype": "float64"}),
            ],
            bad_samples=lambda: [
                BadSample((), ShapeError, f"{name}: n is 0", {"n": 0}),
                BadSample((), DTypeError, f"{name}: n=2.5", {"n": 2.5}),
                BadSample((), DTypeError, f"{name}: d=0", {"n": 2, "d": 0}),
            ],
            reference=lambda n, d=1.0, dtype=None: reference(n, d),
        ),
        numerics="exact",
        no_gradient="a function of positions alone",
    )


FFTSHIFT = _shift("fftshift", fftshift, "Move the frequency 0 to the middle.", np.fft.fftshift)
IFFTSHIFT = _shift("ifftshift", ifftshift, "Undo `fftshift`.", np.fft.ifftshift)

RECORDS: tuple[Composite, ...] = (
    FFTSHIFT,
    IFFTSHIFT,
    _frequency_record("fftfreq", fftfreq, "The frequencies of `fft`.", np.fft.fftfreq),
    _frequency_record("rfftfreq", rfftfreq, "The frequencies of `rfft`.", np.fft.rfftfreq),
)
