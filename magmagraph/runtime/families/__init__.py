"""Kernel families: what each takes and why it refuses, and how backends run its steps.

A family is one file and one line of `_FILES`. Its builders import their backend when a plan has
such a step: a program on the CPU reads nothing of CUDA, and the other way round.
"""

from importlib import import_module

from ...ir.plan import KernelFamily

__all__ = ["FAMILIES"]

# The pass `lower` asks the families of these files in this order; the last takes every operation.
_FILES = (
    "fused",
    "gemm",
    "gemm_fused",
    "gemm_int8",
    "gemv",
    "syrk",
    "convolution",
    "pooling",
    "attention",
    "indexed",
    "scatter",
    "scan",
    "order",
    "linalg",
    "transform",
    "complex_elementwise",
    "join",
    "nested",
    "collective",
    "copy",
    "expression",
)


def _families(file: str) -> list[KernelFamily]:
    """Return the families that a file defines, in its order."""
    values = vars(import_module(f".{file}", __name__)).values()
    return [value for value in values if isinstance(value, KernelFamily)]


FAMILIES = tuple(family for file in _FILES for family in _families(file))
