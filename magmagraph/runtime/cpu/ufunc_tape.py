"""Tapes of NumPy calls: record an array expression once, and replay it.

An expression is evaluated on placeholders for its arrays (`Placeholder`), which record the NumPy
functions that it calls. Each call then gets memory for its result: an operand that is not read
again, free memory, or the final result. So a run allocates no array, and makes one call for each
function of the expression. An expression that does anything else than call functions on arrays is
kept whole, as one call that allocates its own result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .tape_memory import Call, Program, Value, copied, place

__all__ = ["NotRecordable", "UfuncTape"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

WRITTEN = 64  # calls that one expression may become
BLENDED = 2048  # elements from which a choice takes fewer nanoseconds by bits than by branches
STRAIGHT = 128  # rows that are added up one by one in their own dtype
_FOLDS = {
    np.sum: np.add,
    np.prod: np.multiply,
    np.max: np.maximum,
    np.min: np.minimum,
    np.all: np.logical_and,
    np.any: np.logical_or,
}


class NotRecordable(Exception):
    """An expression cannot be recorded as a list of calls."""


# Exceptions of expressions that need more of a `Placeholder` than its shape and dtype. NumPy's
# functions and Python's operators raise those other than `NotRecordable`. An error in the operands
# themselves is raised when the expression runs.
_UNWRITABLE = (NotRecordable, TypeError, AttributeError, ValueError)


@dataclass
class UfuncTape:
    """Calls that are written down one after the other, and the values that they make."""

    values: list[Value] = field(default_factory=list)
    arrays: dict[int, Array] = field(default_factory=dict)  # that are always the same
    calls: list[Call] = field(default_factory=list)
    folds: dict[int, np.ufunc] = field(default_factory=dict)  # what made a value by reducing
    _known: dict[Any, int] = field(default_factory=dict)
    _strewn: set[int] = field(default_factory=set)

    # ---- Values

    def given(self, shape: Shape, dtype: np.dtype[Any], *, nested: bool = True) -> int:
        """Return the number of an array that comes from outside.

        `nested` tells that the elements along its last axis lie closest to one another.
        """
        number = len(self.values)
        self.values.append(Value(shape, dtype, False, frozenset((number,))))
        if not nested:
            self._strewn.add(number)
        return number

    def fixed(self, array: Array) -> int:
        """Return the number of an array that is always the same."""
        self.values.append(Value(array.shape, array.dtype, False))
        self.arrays[len(self.values) - 1] = array
        return len(self.values) - 1

    def call(
        self,
        function: Callable[..., Any],
        operands: tuple[int, ...],
        shape: Shape,
        dtype: np.dtype[Any],
        *,
        over: bool = False,
        key: Any = None,
    ) -> int:
        """Return the result of a function that takes its target as `out`.

        Parameters
        ----------
        function
            As NumPy's own.
        operands
            Numbers of values.
        shape, dtype
            Of the result.
        over
            Whether it may be written over an operand of the same shape and dtype.
        key
            What tells functions apart that do the same; the function itself unless given.
        """
        call_key = (function if key is None else key, operands, dtype)
        number = self._known.get(call_key)
        if number is None:
            number = self._known[call_key] = len(self.values)
            self.values.append(Value(shape, dtype, True))
            self.calls.append(Call(function, operands, number, over))
        return number

    def free(
        self,
        function: Callable[..., Any],
        operands: tuple[int, ...],
        shape: Shape,
        dtype: np.dtype[Any],
    ) -> int:
        """Return the result of a function that makes it, or finds it in its operands."""
        roots = frozenset().union(*(self.values[o].roots for o in operands))
        self.values.append(Value(shape, dtype, False, roots))
        self.calls.append(Call(function, operands, len(self.values) - 1, False))
        return len(self.values) - 1

    def cast(self, number: int, dtype: np.dtype[Any]) -> int:
        """Return a value in another dtype."""
        value = self.values[number]
        if value.dtype == dtype:
            return number
        return self.call(copied, (number,), value.shape, dtype)

    # ---- Expressions

    def expression(
        self, evaluate: Callable[..., Any], operands: Sequence[int], attrs: Mapping[str, Any]
    ) -> int:
        """Write down what an array expression calls, and return its result.

        Raises
        ------
        Unwritten
            Where it cannot be told, or is too long; nothing is written down then.
        """
        before = len(self.values), len(self.calls), dict(self._known), set(self.arrays)
        try:
            result = evaluate(np, *(Placeholder(self, number) for number in operands), **attrs)
            if not isinstance(result, Placeholder) or len(self.calls) - before[1] > WRITTEN:
                raise NotRecordable
            return result.number
        except _UNWRITABLE as error:
            del self.values[before[0] :], self.calls[before[1] :]
            self._known = before[2]
            self.arrays = {n: a for n, a in self.arrays.items() if n in before[3]}
            self.folds = {n: f for n, f in self.folds.items() if n < before[0]}
            raise NotRecordable from error

    def fold(self, evaluate: Callable[..., Any], operand: int, axes: tuple[int, ...]) -> int:
        """Write down a reduction that keeps the axes with extent 1, and return its result.

        Raises
        ------
        Unwritten
            Where it is not one function of NumPy's.
        """
        number = self.expression(evaluate, (operand,), {"axes": axes})
        shape = self.values[operand].shape
        kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
        if number not in self.folds or self.values[number].shape != kept:
            raise NotRecordable
        return number

    def _operand(self, value: Any, dtype: np.dtype[Any]) -> int:
        if isinstance(value, Placeholder):
            return value.number
        try:
            array = np.asarray(value, None if isinstance(value, np.ndarray) else dtype)
        except OverflowError as error:
            raise NotRecordable from error
        constant_key = "constant", array.dtype, array.shape, array.tobytes()
        if constant_key not in self._known:
            self._known[constant_key] = self.fixed(array)
        return self._known[constant_key]

    def _ufunc(self, function: np.ufunc, inputs: Sequence[Any]) -> int:
        if function.nout != 1 or function.signature:
            raise NotRecordable
        dtypes = function.resolve_dtypes((*map(_kind, inputs), None))
        operands = tuple(self._operand(x, t) for x, t in zip(inputs, dtypes[:-1], strict=True))
        shape = np.broadcast_shapes(*(self.values[n].shape for n in operands))
        return self.call(function, operands, shape, dtypes[-1], over=True)

    def _reduced(self, function: np.ufunc, operand: int, axes: tuple[int, ...]) -> int:
        """Write down a fold; many rows that are added one by one are added in double."""
        shape, dtype = self.values[operand].shape, self.values[operand].dtype
        kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
        probe = function.reduce(np.ones((1,) * len(shape), dtype), axis=axes, keepdims=True)
        wide = None
        if function is np.add and dtype == np.float32 and self._added(operand, axes) > STRAIGHT:
            wide = np.dtype(np.float64)

        def reduce(x: Array, out: Array) -> None:
            function.reduce(x, axis=axes, dtype=wide, out=out, keepdims=True)

        result = wide or probe.dtype
        number = self.call(reduce, (operand,), kept, result, key=("fold", function, axes))
        self.folds[number] = function
        return number

    def _added(self, operand: int, axes: tuple[int, ...]) -> int:
        """Return how many numbers a sum adds one after the other.

        Along the last axes, where these lie closest in memory, NumPy adds pairs of pairs.
        """
        shape = self.values[operand].shape
        along = [i for i, n in enumerate(shape) if n > 1]
        while along and along[-1] in axes and operand not in self._strewn:
            along.pop()
        return math.prod(shape[i] for i in along if i in axes)

    def _chosen(self, condition: int, x: Any, y: Any) -> int:
        """Record ``where``, by the bits of many elements: its cost does not depend on alignment.

        A choice by branches takes ten times as long where nobody can foretell it.
        """
        dtype = np.result_type(*map(_kind_of_scalar, (x, y)))
        left, right = self._operand(x, dtype), self._operand(y, dtype)
        if self.values[condition].dtype != np.bool_ or any(
            self.values[n].dtype != dtype for n in (left, right)
        ):
            raise NotRecordable
        shape = np.broadcast_shapes(*(self.values[n].shape for n in (condition, left, right)))
        bits = {2: np.int16, 4: np.int32, 8: np.int64}.get(dtype.itemsize)
        if bits is None or dtype.kind not in "iuf" or math.prod(shape) < BLENDED:
            return self.call(_picked, (condition, left, right), shape, dtype)
        mask = self.cast(condition, np.dtype(bits))
        return self.call(_blended, (mask, left, right), shape, dtype)

    # ---- Programs

    def program(
        self, writes: Sequence[tuple[int, int]], shared: Mapping[int, frozenset[int]]
    ) -> Program:
        """Return the calls with their memory.

        Parameters
        ----------
        writes
            Pairs (value, array from outside): what goes where. The latter have no common memory.
        shared
            By each of these arrays, the other arrays from outside with which it may share memory.
        """
        return place(self.values, self.arrays, self.calls, writes, shared)


class Placeholder(np.lib.mixins.NDArrayOperatorsMixin):
    """A placeholder array with shape and dtype that records the functions applied to it."""

    __slots__ = ("number", "script")

    def __init__(self, script: UfuncTape, number: int) -> None:
        self.script = script
        self.number = number

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        return self.script.values[self.number].dtype

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.script.values[self.number].shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def astype(self, dtype: Any, copy: bool = True) -> Placeholder:
        """Return it in another dtype."""
        return Placeholder(self.script, self.script.cast(self.number, np.dtype(dtype)))

    def __pow__(self, exponent: Any) -> Any:
        # As the operator of arrays has it.
        square = isinstance(exponent, (int, float)) and exponent == 2
        return np.square(self) if square else np.power(self, exponent)

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Placeholder:
        if method != "__call__" or options:
            raise NotRecordable
        return Placeholder(self.script, self.script._ufunc(function, inputs))

    def __array_function__(
        self, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Placeholder:
        script = self.script
        fold = _FOLDS.get(function)
        if fold is not None and args == (self,) and set(options) == {"axis"}:
            return Placeholder(script, script._reduced(fold, self.number, options["axis"]))
        if function is np.where and len(args) == 3 and isinstance(args[0], Placeholder):
            return Placeholder(script, script._chosen(args[0].number, *args[1:]))
        raise NotRecordable

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise NotRecordable

    def __bool__(self) -> bool:
        raise NotRecordable

    __hash__ = None  # type: ignore[assignment]


def _kind(x: Any) -> Any:
    """Return the dtype of an operand; of Python's numbers their type, which adapts to others."""
    if isinstance(x, (Placeholder, np.ndarray, np.generic)):
        return x.dtype
    if isinstance(x, bool):
        return np.dtype(np.bool_)
    if type(x) in (int, float, complex):
        return type(x)
    raise NotRecordable


def _kind_of_scalar(x: Any) -> Any:
    """Return what `numpy.result_type` takes for an operand."""
    kind = _kind(x)
    return kind if isinstance(kind, np.dtype) else kind(0)


def _picked(condition: Array, x: Array, y: Array, out: Array) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def _blended(mask: Array, x: Array, y: Array, out: Array) -> None:
    """Choose by a mask of zeros and ones: y, with those bits changed in which x differs."""
    bits, other = out.view(mask.dtype), y.view(mask.dtype)
    np.bitwise_xor(x.view(mask.dtype), other, bits)
    np.multiply(bits, mask, bits)
    np.bitwise_xor(bits, other, bits)
