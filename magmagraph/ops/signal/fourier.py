"""Discrete Fourier transforms with the names and arguments of `numpy.fft`, as `mg.fft`.

A transform of ``n`` values is ``y[k] = sum_j x[j] exp(-2 pi i j k / n)``; the inverse has the other
sign and divides by ``n``. ``norm="ortho"`` divides both by ``sqrt(n)``, ``"forward"`` the first by
``n`` and the second by nothing.
"""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.op import WIDE, BadSample, Composite, Sample
from .fourier_family import (
    EMPTY,
    FLAT,
    HALF_LINE,
    ROWS,
    TRANSFORMS,
    from_half,
    hermitian,
    inverse_hermitian,
    inverse_whole,
    line_bad,
    to_half,
    transform,
    whole,
)

_SAME = "Of the operand's shape (but for `{}`), complex."

fft, _ = transform(
    "fft",
    "Transform along an axis.",
    _SAME.format("n"),
    """
    >>> mg.fft.fft([1.0, 0.0, -1.0, 0.0]).eval().real
    array([0., 2., 0., 2.], dtype=float32)
    """,
    np.fft.fft,
    whole,
)
ifft, _ = transform(
    "ifft",
    "Invert `fft`.",
    _SAME.format("n"),
    """
    >>> mg.fft.ifft([0.0, 4.0, 0.0, 0.0]).eval()
    array([ 1.+0.j,  0.+1.j, -1.+0.j,  0.-1.j], dtype=complex64)
    """,
    np.fft.ifft,
    inverse_whole,
)
rfft, _ = transform(
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
    to_half,
    real=True,
    dtypes=WIDE,
)
irfft, _ = transform(
    "irfft",
    "Invert `rfft`: real values of half a spectrum along an axis.",
    "Real, with `n` elements along the axis.",
    """
    >>> mg.fft.irfft([0.0, 2.0, 0.0]).eval()
    array([ 1.,  0., -1.,  0.], dtype=float32)
    """,
    np.fft.irfft,
    from_half,
    line=HALF_LINE,
    samples=lambda: [
        Sample((FLAT,)),
        Sample((ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((ROWS,), {"n": 3, "norm": "forward"}),
        Sample((ROWS,), {"n": 7}),
        Sample((ROWS,), {"n": 9, "axis": 1}),
        Sample((FLAT[:1],), {"n": 1}),
        Sample((EMPTY,)),
    ],
    bad_samples=lambda: [
        *line_bad("irfft")(),
        BadSample((FLAT[:1],), ShapeError, "irfft: the number of values, 2 * (1 - 1), is 0"),
    ],
)
hfft, _ = transform(
    "hfft",
    "Transform values of which half is given, since the other half are their conjugates.",
    "Real, with `n` elements along the axis.",
    """
    >>> mg.fft.hfft([1.0, 2.0, 3.0]).eval()
    array([ 8., -2.,  0., -2.], dtype=float32)
    """,
    np.fft.hfft,
    hermitian,
    line=HALF_LINE,
    samples=lambda: [
        Sample((FLAT,)),
        Sample((ROWS,), {"axis": 0, "norm": "ortho"}),
        Sample((ROWS,), {"n": 7, "norm": "forward"}),
    ],
)
ihfft, _ = transform(
    "ihfft",
    "Invert `hfft`: half of the values that have a real spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the axis.",
    """
    >>> mg.fft.ihfft([8.0, -2.0, 0.0, -2.0]).eval().real
    array([1., 2., 3.], dtype=float32)
    """,
    np.fft.ihfft,
    inverse_hermitian,
    real=True,
    dtypes=WIDE,
)
fft2, _ = transform(
    "fft2",
    "Transform along two axes.",
    _SAME.format("s"),
    """
    >>> mg.fft.fft2([[1.0, 2.0], [3.0, 4.0]]).eval().real
    array([[10., -2.],
           [-4.,  0.]], dtype=float32)
    """,
    np.fft.fft2,
    whole,
    several=(-2, -1),
)
ifft2, _ = transform(
    "ifft2",
    "Invert `fft2`.",
    _SAME.format("s"),
    """
    >>> mg.fft.ifft2([[10.0, -2.0], [-4.0, 0.0]]).eval().real
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.ifft2,
    inverse_whole,
    several=(-2, -1),
)
rfft2, _ = transform(
    "rfft2",
    "Transform real values along two axes, the last of which keeps half of the spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the last of the axes.",
    """
    >>> mg.fft.rfft2([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).eval().real
    array([[21., -3.],
           [-9.,  0.]], dtype=float32)
    """,
    np.fft.rfft2,
    to_half,
    several=(-2, -1),
    real=True,
    dtypes=WIDE,
)
irfft2, _ = transform(
    "irfft2",
    "Invert `rfft2`; an odd number of values along the last of the axes has to be said.",
    "Real, with ``s[-1]`` elements along the last of the axes, ``2 * (extent - 1)`` unless said.",
    """
    >>> mg.fft.irfft2([[10.0, -2.0], [-4.0, 0.0]]).eval()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.irfft2,
    from_half,
    several=(-2, -1),
)
fftn, _ = transform(
    "fftn",
    "Transform along any axes.",
    _SAME.format("s"),
    """
    >>> mg.fft.fftn([[1.0, 2.0], [3.0, 4.0]], axes=[0]).eval().real
    array([[ 4.,  6.],
           [-2., -2.]], dtype=float32)
    """,
    np.fft.fftn,
    whole,
    several=None,
)
ifftn, _ = transform(
    "ifftn",
    "Invert `fftn`.",
    _SAME.format("s"),
    """
    >>> mg.fft.ifftn([[4.0, 6.0], [-2.0, -2.0]], axes=[0]).eval().real
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.ifftn,
    inverse_whole,
    several=None,
)
rfftn, _ = transform(
    "rfftn",
    "Transform real values along any axes, the last of which keeps half of the spectrum.",
    "Complex, with ``n // 2 + 1`` elements along the last of the axes.",
    """
    >>> mg.fft.rfftn([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], axes=[1, 0]).eval().real
    array([[21., -3., -3.],
           [-9.,  0.,  0.]], dtype=float32)
    """,
    np.fft.rfftn,
    to_half,
    several=None,
    real=True,
    dtypes=WIDE,
)
irfftn, _ = transform(
    "irfftn",
    "Invert `rfftn`; an odd number of values along the last of the axes has to be said.",
    "Real, with ``s[-1]`` elements along the last of the axes, ``2 * (extent - 1)`` unless said.",
    """
    >>> mg.fft.irfftn([[10.0, -2.0], [-4.0, 0.0]]).eval()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """,
    np.fft.irfftn,
    from_half,
    several=None,
)

RECORDS: tuple[Composite, ...] = tuple(TRANSFORMS.values())
