"""The array that `Variable.value` returns: a copy that says how the variable is written."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...errors import message

__all__ = ["HeldArray"]


class HeldArray(np.ndarray[Any, Any]):
    """A read-only copy of a variable's value.

    It differs from NumPy's array in what cannot work on a copy: writing an element raises an error
    that names the way to write, and ``w.value += 1`` is ``w.value = w.value + 1``. Results of
    functions and operators are plain arrays.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.writeable:
            raise ValueError(
                message(
                    "this array is a copy of a variable's value: writing an element would not "
                    "change the variable",
                    hint="array = w.value.copy(); array[...] = ...; w.value = array",
                )
            )
        super().__setitem__(key, value)

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> Any:
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar else plain

    def copy(self, order: Any = "C") -> np.ndarray:  # type: ignore[override]
        """Return a plain array that may be written."""
        return np.array(self, order=order)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def _of_a_copy(name: str) -> Any:
    plain = getattr(operator, name)

    def method(self: HeldArray, other: Any) -> Any:
        return plain(np.asarray(self), other)

    return method


for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
    "lshift", "rshift",
):  # fmt: skip
    setattr(HeldArray, f"__i{_name.strip('_')}__", _of_a_copy(_name))
