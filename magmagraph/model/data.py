"""What a model is given: checked before anything is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import is_float
from ..errors import ConfigError, DataError, message
from ..function.tensor import host_values
from ..ir.graph import Node
from ..ir.values.given import made_of_numbers
from .lookups import Limits, check_ids

__all__ = ["as_array", "check_rows", "checked_size", "conform_inputs", "given_inputs", "on_host"]

_ROWS = 4096  # looked at together, so that no array of the data's size is made


def checked_size(size: Any) -> int:
    """Return how many examples a batch has, as an int."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ConfigError(message(f"batch_size={size!r}", need="an int of at least 1"))
    return int(size)


def on_host(value: Any) -> Any:
    """Return a result as the host's: a device's arrays are copied, lists of them one by one."""
    if isinstance(value, list):
        return [on_host(member) for member in value]
    # By the interface: tables of pandas have a method `get`, too.
    return host_values(value) if hasattr(value, "__cuda_array_interface__") else value


def as_array(values: Any, what: str = "the data") -> np.ndarray:
    """Convert a user's data to an array of the host; arrays of devices are copied.

    Raises
    ------
    DataError
        It is no array; the text says why.
    """
    try:
        if isinstance(values, (list, tuple)):
            return np.asarray(values)
        array = host_values(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        need = "rows of one length" if isinstance(values, (list, tuple)) else "an array of numbers"
        raise DataError(message(f"{what} are no array: {error}", need=need)) from None
    if array is not values and array.dtype.kind == "O" and array.size and made_of_numbers(array):
        # A table of pandas with columns of several dtypes.
        array = np.asarray(array.tolist())
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def given_inputs(x: Any, count: int) -> list[Any]:
    """Return the arrays of several inputs as a list."""
    if count == 1 and not (isinstance(x, (list, tuple)) and len(x) == 1 and np.ndim(x[0]) > 1):
        return [x]
    if isinstance(x, (list, tuple)) and len(x) == count:
        return list(x)
    raise DataError(
        message(
            f"the model has {count} inputs, and is given {type(x).__name__}",
            need=f"a list of {count} arrays",
        )
    )


def conform_inputs(
    x: Any, nodes: Sequence[Node], limits: Limits, finite: bool = True
) -> list[np.ndarray]:
    """Return the examples as arrays of the inputs' shapes and dtypes.

    Raises
    ------
    DataError
        If one is no array of numbers, has another shape, holds a number that a table has no row
        for, or, where `finite`, NaN or infinity.
    """
    arrays = [
        _conform(value, node, finite)
        for value, node in zip(given_inputs(x, len(nodes)), nodes, strict=True)
    ]
    for array, node in zip(arrays, nodes, strict=True):
        check_ids(array, node, limits)
    return arrays


def _conform(value: Any, node: Node, finite: bool) -> np.ndarray:
    if value is None:
        raise DataError(message("there are no examples", need=f"an array of shape {node.shape}"))
    array = as_array(value, "the examples")
    if array.dtype.kind not in "iufb":
        raise DataError(
            message(
                f"the examples are of dtype {array.dtype}",
                need="real numbers",
                hint="x.astype('float32'), or numbers in the place of texts: mg.data.read_csv and "
                "pandas.get_dummies number categories",
            )
        )
    expected_shape = node.shape[1:]
    fits = array.ndim == node.ndim and all(
        not isinstance(extent, int) or extent == size
        for extent, size in zip(expected_shape, array.shape[1:], strict=True)
    )
    if not fits:
        raise DataError(
            message(
                f"the examples have shape {array.shape}",
                need=f"shape {node.shape}, input '{node.name}'",
                hint=_shape_mend(array.shape, expected_shape),
            )
        )
    if finite and array.dtype.kind == "f":
        _check_finite(array)
    if array.dtype != node.dtype:
        if not is_float(node.dtype) and array.dtype.kind == "f":
            raise DataError(
                message(
                    f"the examples are {array.dtype.name}",
                    need=f"integers: input '{node.name}' is {node.dtype.name}",
                )
            )
        with np.errstate(over="ignore"):
            narrowed = array.astype(node.dtype)
        if finite and array.dtype.kind == "f" and array.itemsize > narrowed.itemsize:
            _check_finite(narrowed, array)
        return narrowed
    return array


def _shape_mend(shape: tuple[int, ...], expected_shape: tuple[Any, ...]) -> str | None:
    if len(shape) == len(expected_shape) and all(
        not isinstance(extent, int) or extent == size
        for extent, size in zip(expected_shape, shape, strict=True)
    ):
        return "x[None]: a batch of one example"
    if len(expected_shape) == 3 and shape[1:] == (*expected_shape[1:], expected_shape[0]):
        return "np.moveaxis(x, -1, 1): channels are the first axis of an image"
    if sorted(map(str, shape[1:])) == sorted(map(str, expected_shape)):
        return "np.transpose, to the order of axes that the input has"
    sizes = [extent for extent in expected_shape if isinstance(extent, int)]
    if len(sizes) == len(expected_shape) and int(np.prod(sizes)) == int(np.prod(shape[1:])):
        return f"x.reshape(-1, {', '.join(map(str, expected_shape))})"
    return None


def _check_finite(array: np.ndarray, original: np.ndarray | None = None) -> None:
    """Refuse NaN and infinity; the error shows the original of a narrowed value."""
    for start in range(0, len(array), _ROWS):
        part = array[start : start + _ROWS]
        # The sum is finite where all are, and makes no array of flags.
        if np.isfinite(np.sum(part, dtype=np.float64)):
            continue
        wrong = np.argwhere(~np.isfinite(part))
        if len(wrong):
            row, *rest = (int(i) for i in wrong[0])
            place = f", place {tuple(rest)}" if rest else ""
            if original is not None:
                value = original[(start + row, *rest)]
                raise DataError(
                    message(
                        f"the example in row {start + row} holds {value}{place}",
                        need=f"numbers that {array.dtype.name} holds",
                        hint="features of mean 0 and variance 1: (x - x.mean(0)) / x.std(0)",
                    )
                )
            raise DataError(
                message(
                    f"the example in row {start + row} holds {part[tuple(wrong[0])]}{place}",
                    need="finite numbers",
                    hint="rows without missing values, or values in their places "
                    "(np.nan_to_num, the column's median)",
                )
            )


def check_rows(xs: Sequence[np.ndarray], y: np.ndarray | None = None, *, least: int = 1) -> int:
    """Return the number of examples.

    Raises
    ------
    DataError
        If there are fewer than `least`, or inputs and labels have different numbers.
    """
    counts = {f"input {i}" if len(xs) > 1 else "examples": len(x) for i, x in enumerate(xs)}
    if y is not None:
        counts["labels"] = len(y)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise DataError(message(f"there are {listed}", need="one label for each example"))
    rows = next(iter(counts.values()))
    if rows < least:
        raise DataError(message("there are no examples", need="at least one row"))
    return rows
