"""Signals: Fourier transforms, convolution, windows."""
