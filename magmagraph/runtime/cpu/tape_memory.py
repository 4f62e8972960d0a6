"""Assign memory to the values of a tape: in place, reused, or in results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from .memory import aligned_empty

__all__ = ["Call", "Program", "Value", "copied", "place"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """An array of a script.

    `made` tells that a call writes it into memory given to it. `roots` are the arrays from outside
    that it lies in or may lie in: itself, or what a call that makes its own result has read.
    """

    shape: Shape
    dtype: np.dtype[Any]
    made: bool
    roots: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Call:
    """A call of a function; `over` tells that it may write over an operand of the result's type."""

    function: Callable[..., Any]
    operands: tuple[int, ...]
    result: int
    over: bool


@dataclass(frozen=True)
class Program:
    """A script with its memory.

    Attributes
    ----------
    calls
        Each a function, what picks its operands from the registers, and the register of its result;
        last whether that has its memory.
    registers
        Arrays by the numbers of the script's values; those from outside are to be put there.
    free
        Registers of arrays that calls make themselves: to be emptied where they may hold others.
    """

    calls: list[tuple[Callable[..., Any], Callable[[Any], Any], int, bool]]
    registers: list[Any]
    free: list[int]

    def run(self) -> None:
        """Make every call."""
        registers = self.registers
        for function, pick, to, new_array in self.calls:
            if new_array:
                function(*pick(registers), out=registers[to])
            else:
                registers[to] = function(*pick(registers))


def copied(x: Array, out: Array) -> None:
    """Copy, and convert."""
    np.copyto(out, x, casting="unsafe")


def place(
    values: Sequence[Value],
    arrays: Mapping[int, Array],
    calls: Sequence[Call],
    writes: Sequence[tuple[int, int]],
    shared: Mapping[int, frozenset[int]],
) -> Program:
    """Return the calls that the results need, with their memory; see `UfuncTape.program`."""
    return _Placing(values, arrays, calls, writes, shared).program()


class _Placing:
    """Finds the memory of a script's values."""

    def __init__(
        self,
        values: Sequence[Value],
        arrays: Mapping[int, Array],
        calls: Sequence[Call],
        writes: Sequence[tuple[int, int]],
        shared: Mapping[int, frozenset[int]],
    ) -> None:
        self.values = list(values)
        self.arrays = arrays
        self.shared = shared
        self.writes = list(writes)
        written = {value for value, _ in writes}
        needed: list[Call] = []
        for call in reversed(calls):
            if call.result in written:
                needed.append(call)
                written.update(call.operands)
        self.calls = needed[::-1]
        self._keep_apart()
        self.place: dict[int, int] = {}
        self._write_straight()
        self.last = self._last_reads()

    def _keep_apart(self) -> None:
        """Copy values that another result would overwrite, before the first write."""
        for i, (value, target) in enumerate(self.writes):
            roots = self.values[value].roots
            others = (t for _, t in self.writes if t != target)
            if any(self.shared.get(other, frozenset()) & roots for other in others):
                self.values.append(
                    Value(self.values[value].shape, self.values[value].dtype, True)
                )
                number = len(self.values) - 1
                self.calls.append(Call(copied, (value,), number, False))
                self.writes[i] = number, target

    def _write_straight(self) -> None:
        """Let calls write directly into results, unless later reads need that memory."""
        made_by = {call.result: i for i, call in enumerate(self.calls)}
        left = []
        for value, target in self.writes:
            source_array, target_array = self.values[value], self.values[target]
            fits = source_array.made and (source_array.shape, source_array.dtype) == (
                target_array.shape,
                target_array.dtype,
            )
            if not fits or value in self.place or self._read_after(made_by[value], target):
                left.append((value, target))
            else:
                self.place[value] = target
        self.writes = left

    def _read_after(self, position: int, target: int) -> bool:
        overlapping = self.shared.get(target, frozenset())
        # One function of NumPy's takes care of what it reads itself; several in a row do not.
        first = position + 1 if self.calls[position].over else position
        read = [n for call in self.calls[first:] for n in call.operands]
        read += [value for value, _ in self.writes]
        return any(self.values[n].roots & overlapping for n in read)

    def _last_reads(self) -> dict[int, int]:
        """Return for each value the last call that reads it, or a value that shares its memory."""
        last = {value: len(self.calls) for value, _ in self.writes}
        for i in range(len(self.calls) - 1, -1, -1):
            call = self.calls[i]
            until = i if self.values[call.result].made else max(i, last.get(call.result, i))
            for operand in call.operands:
                last[operand] = max(until, last.get(operand, until))
        return last

    def program(self) -> Program:
        """Return calls and registers."""
        registers: list[Any] = [self.arrays.get(n) for n in range(len(self.values))]
        waiting: dict[int, list[Array]] = {}  # memory that is free, by its size
        live: dict[int, Array] = {}
        for i, call in enumerate(self.calls):
            value = self.values[call.result]
            if value.made and call.result not in self.place:
                memory = self._over(i, call, live)
                if memory is None:
                    size = math.prod(value.shape) * value.dtype.itemsize
                    ready = waiting.get(size)
                    memory = ready.pop() if ready else aligned_empty(max(1, size))[:size]
                live[call.result] = memory
                registers[call.result] = memory.view(value.dtype).reshape(value.shape)
            for operand in {*call.operands, call.result}:
                if self.last.get(operand, i) <= i and operand in live:
                    memory = live.pop(operand)
                    waiting.setdefault(memory.nbytes, []).append(memory)
        calls = [self._bound(call) for call in self.calls]
        calls += [(copied, _picking([self._at(v)]), t, True) for v, t in self.writes]
        free = [call.result for call in self.calls if not self.values[call.result].made]
        return Program(calls, registers, free)

    def _over(self, position: int, call: Call, live: dict[int, Array]) -> Array | None:
        """Return the memory of an operand that is read here for the last time."""
        value = self.values[call.result]
        for operand in call.operands if call.over else ():
            other = self.values[operand]
            alike = (other.shape, other.dtype) == (value.shape, value.dtype)
            if alike and operand in live and self.last[operand] == position:
                return live.pop(operand)
        return None

    def _at(self, value: int) -> int:
        return self.place.get(value, value)

    def _bound(self, call: Call) -> tuple[Callable[..., Any], Callable[[Any], Any], int, bool]:
        operands = [self._at(n) for n in call.operands]
        new_array = self.values[call.result].made
        return call.function, _picking(operands), self._at(call.result), new_array


def _picking(registers: Sequence[int]) -> Callable[[Any], Any]:
    """Return what picks these of all registers."""
    first, *others = registers
    return itemgetter(*registers) if others else itemgetter(slice(first, first + 1))
