"""The array namespace that expressions of operations are given on a CUDA device.

It is CuPy's, whose ``linalg`` also has what CuPy keeps under SciPy's names: triangular solves, LU
factors, matrix exponentials. What cuSOLVER refuses (a singular matrix, one that is not positive
definite, an iteration that does not converge) raises here; left to itself CuPy returns what is in
memory then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

__all__ = ["array_namespace", "refusing"]


class _Namespace:
    """Attributes of several modules: of the first that has a name."""

    def __init__(self, *modules: Any, **own: Any) -> None:
        self._modules = modules
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            found = getattr(module, name, None)
            if found is not None:
                setattr(self, name, found)
                return found
        raise AttributeError(f"CuPy has no {name}")


@functools.cache
def array_namespace() -> Any:
    """Return the namespace."""
    import cupy
    import cupyx.scipy.linalg

    return _Namespace(cupy, linalg=_Namespace(cupy.linalg, cupyx.scipy.linalg))


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Let what cuSOLVER refuses raise `numpy.linalg.LinAlgError`."""
    import cupyx

    with cupyx.errstate(linalg="raise"):
        yield
