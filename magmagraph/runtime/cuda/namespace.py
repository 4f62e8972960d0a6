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

import numpy as np

from ...errors import MagmagraphError
from ...ir.fallback import Refused

__all__ = ["array_namespace", "array_type", "refused_by_cupy", "refusing"]


class _Namespace:
    """Attributes of several modules: of the first that has a name."""

    def __init__(self, *modules: Any, **own: Any) -> None:
        self._modules = modules
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            attribute = getattr(module, name, None)
            if attribute is not None:
                setattr(self, name, attribute)
                return attribute
        raise AttributeError(f"CuPy has no {name}")


def array_type() -> type:
    """Return the type of CuPy's arrays."""
    import cupy

    return cupy.ndarray  # type: ignore[no-any-return]


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


@contextlib.contextmanager
def refused_by_cupy() -> Iterator[None]:
    """Raise `Refused` for what CuPy does not have; every other error is raised as it is.

    The host computes the operation then. Where its operands are wrong, that raises the error of
    NumPy, and where cuSOLVER alone gave them up, the host is asked for this call only.
    """
    try:
        yield
    except MagmagraphError:
        raise
    except np.linalg.LinAlgError as error:
        raise Refused("cuSOLVER finds no solution for the values") from error
    except _refusals() as error:
        raise Refused(f"CuPy: {type(error).__name__}: {error}") from error


def _refusals() -> tuple[type[Exception], ...]:
    """Return what CuPy raises for a function, an argument or a dtype that it does not have.

    For a dtype that is a KeyError of a table, or its kernel does not compile.
    """
    import cupy

    compiling = cupy.cuda.compiler.CompileException
    return AttributeError, NotImplementedError, TypeError, ValueError, KeyError, compiling
