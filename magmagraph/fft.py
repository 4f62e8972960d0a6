"""Discrete Fourier transforms: `mg.fft`.

Names and arguments are those of `numpy.fft`. Values of 32 bits stay so; 16-bit floats are refused.
Every transform has gradients of every order, which are transforms again.
"""

from __future__ import annotations

from .ops.signal.fourier import (
    fft,
    fft2,
    fftn,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)
from .ops.signal.fourier_helpers import fftfreq, fftshift, ifftshift, rfftfreq

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return sorted(__all__)
