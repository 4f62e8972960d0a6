"""Pickles of arrays of bytes, numbers, texts and tables, read without running them.

A pickle is a program for a small machine with a stack. This one has the instructions that build
plain values, and four names, by which NumPy's pickles describe an array of uint8: none of them is
looked up, each stands for a rule below. Nothing of NumPy or of Python is called by what a pickle
says, so that it cannot do more than build values.
"""

from __future__ import annotations

import io
import pickletools
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files.arrays import checked_size
from ..files.reading import Damaged

__all__ = ["unpickled"]

MOST_INSTRUCTIONS = 2_000_000
_MARK = object()
_RECONSTRUCT, _ARRAY_TYPE, _DTYPE, _ENCODE = "reconstruct", "ndarray", "dtype", "encode"
_NAMES = {
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): _DTYPE,
    ("_codecs", "encode"): _ENCODE,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _Name:
    """A name that stands for a rule."""

    def __init__(self, rule: str) -> None:
        self.rule = rule


class _Dtype:
    """The dtype of bytes, the only one that there is."""


class _Array:
    """An array before and after its state is known."""

    def __init__(self) -> None:
        self.value: NDArray[np.uint8] | None = None


def unpickled(content: bytes) -> Any:
    """Return the value of a pickle: tables, lists, tuples, numbers, texts, bytes, uint8 arrays.

    Texts of Python 2 are bytes. An array may occur as a member of the outermost table or list.

    raises Damaged: If it asks for another name, has an instruction that builds anything else, has
        more than 2,000,000 instructions, or is cut short.
    """
    machine = _Machine()
    for count, (instruction, argument, place) in enumerate(
        pickletools.genops(io.BytesIO(content))
    ):
        if count >= MOST_INSTRUCTIONS:
            raise Damaged(f"it has more than {MOST_INSTRUCTIONS} instructions")
        rule = _RULES.get(instruction.name)
        if rule is None:
            raise Damaged(
                f"byte {place} is the instruction {instruction.name}, which builds more than "
                "numbers, texts, lists, tables and arrays"
            )
        try:
            rule(machine, argument)
        except (IndexError, KeyError, TypeError) as error:
            raise Damaged(f"instruction {instruction.name} at byte {place} fails: {error!r}") from (
                error
            )
    if len(machine.stack) != 1:
        raise Damaged(f"it ends with {len(machine.stack)} values, and not one")
    return _plain(machine.stack[0])


def _plain(value: Any) -> Any:
    """Return a value with arrays in the place of what stands for them."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {key: v.value if isinstance(v, _Array) else v for key, v in value.items()}
    if isinstance(value, list):
        return [v.value if isinstance(v, _Array) else v for v in value]
    return value


class _Machine:
    """The stack and the memory of a pickle that is being read."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def to_mark(self) -> list[Any]:
        """Take the values above the last mark from the stack, and the mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise IndexError("there is no mark")

    def top(self, kind: type) -> Any:
        """Return the last value, which has to be of a type."""
        value = self.stack[-1]
        if type(value) is not kind:
            raise TypeError(f"the last value is no {kind.__name__}")
        return value

    def name(self, module: Any, name: Any) -> None:
        """Put the rule that a name stands for."""
        if type(module) is not str or type(name) is not str:
            raise TypeError("a name is no text")
        rule = _NAMES.get((module, name))
        if rule is None:
            raise Damaged(
                f"it asks, being unpickled, for {module}.{name}; a batch needs arrays and numbers "
                "alone, and anything else could run code"
            )
        self.stack.append(_Name(rule))

    def stacked_name(self) -> None:
        """Put the rule of the name in the last two values."""
        name, module = self.stack.pop(), self.stack.pop()
        self.name(module, name)

    def call(self) -> None:
        """Apply a rule to a tuple of arguments."""
        arguments, rule = self.stack.pop(), self.stack.pop()
        if type(rule) is not _Name or type(arguments) is not tuple:
            raise TypeError("no name is called with a tuple")
        self.stack.append(_CALLED[rule.rule](*arguments))

    def build(self) -> None:
        """Give an array or a dtype its state."""
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) is _Array:
            target.value = _filled(state)
        elif type(target) is not _Dtype or type(state) is not tuple:
            raise TypeError("a state is given to what is no array")

    def set_items(self, values: list[Any]) -> None:
        """Put keys and values into the table before them."""
        if len(values) % 2:
            raise TypeError("a key has no value")
        table = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, bytes, int):
                raise TypeError("a key is no text and no number")
            table[key] = value


def _reconstructed(kind: Any, shape: Any, code: Any) -> _Array:
    if type(kind) is not _Name or kind.rule != _ARRAY_TYPE:
        raise TypeError("an array of another class")
    return _Array()


def _dtype(code: Any, *flags: Any) -> _Dtype:
    if code not in ("u1", b"u1"):
        raise Damaged(f"it has an array of dtype {reprlib.repr(code)}, and not of bytes (u1)")
    return _Dtype()


def _encoded(value: Any, encoding: Any = "latin1") -> bytes:
    """Return bytes that Python 3 wrote as a text in a pickle of protocol 2."""
    if type(value) is not str or encoding not in ("latin1", b"latin1"):
        raise Damaged(f"it has bytes as a text in {reprlib.repr(encoding)}")
    return value.encode("latin1")


def _filled(state: Any) -> NDArray[np.uint8]:
    """Return the array of a state: version, shape, dtype, whether Fortran's order, and bytes."""
    if type(state) is not tuple or len(state) != 5 or type(state[2]) is not _Dtype:
        raise TypeError("the state of an array is none")
    _, shape, _, fortran, content = state
    if type(shape) is not tuple or type(content) is not bytes:
        raise TypeError("an array without shape or bytes")
    if checked_size(shape, 1) != len(content):
        raise Damaged(f"it has {len(content)} bytes for an array of shape {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


_CALLED: dict[str, Callable[..., Any]] = {
    _RECONSTRUCT: _reconstructed,
    _DTYPE: _dtype,
    _ENCODE: _encoded,
}

Rule = Callable[[_Machine, Any], Any]


def _nothing(machine: _Machine, argument: Any) -> None:
    """Do nothing: what frames and announces a pickle."""


def _put(machine: _Machine, argument: Any) -> None:
    machine.memory[argument] = machine.stack[-1]


def _memoize(machine: _Machine, argument: Any) -> None:
    machine.memory[len(machine.memory)] = machine.stack[-1]


def _value(value: Any) -> Rule:
    return lambda machine, argument: machine.stack.append(value)


def _tuple(count: int) -> Rule:
    def take(machine: _Machine, argument: Any) -> None:
        if len(machine.stack) < count:
            raise IndexError("too few values")
        values = tuple(machine.stack[len(machine.stack) - count :])
        del machine.stack[len(machine.stack) - count :]
        machine.stack.append(values)

    return take


def _pushed(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _pushed_bytes(machine: _Machine, argument: Any) -> None:
    """Put a text of Python 2, of which each character is a byte."""
    machine.stack.append(argument.encode("latin1"))


def _append(machine: _Machine, argument: Any) -> None:
    value = machine.stack.pop()
    machine.top(list).append(value)


def _appends(machine: _Machine, argument: Any) -> None:
    values = machine.to_mark()
    machine.top(list).extend(values)


def _set_item(machine: _Machine, argument: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


def _set_items(machine: _Machine, argument: Any) -> None:
    machine.set_items(machine.to_mark())


def _table(machine: _Machine, argument: Any) -> None:
    values = machine.to_mark()
    machine.stack.append({})
    machine.set_items(values)


def _global(machine: _Machine, argument: Any) -> None:
    module, _, name = argument.partition(" ")
    machine.name(module, name)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"), _pushed),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"), _pushed),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "FLOAT", "BINFLOAT"), _pushed),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _pushed_bytes),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"),
        lambda machine, argument: machine.stack.append(machine.memory[argument]),
    ),
    "MEMOIZE": _memoize,
    "NONE": _value(None),
    "NEWTRUE": _value(True),
    "NEWFALSE": _value(False),
    "MARK": _value(_MARK),
    "EMPTY_TUPLE": _value(()),
    "EMPTY_LIST": lambda machine, argument: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, argument: machine.stack.append({}),
    "TUPLE": lambda machine, argument: machine.stack.append(tuple(machine.to_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda machine, argument: machine.stack.append(machine.to_mark()),
    "DICT": _table,
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "POP": lambda machine, argument: machine.stack.pop(),
    "POP_MARK": lambda machine, argument: machine.to_mark(),
    "GLOBAL": _global,
    "STACK_GLOBAL": lambda machine, argument: machine.stacked_name(),
    "REDUCE": lambda machine, argument: machine.call(),
    "BUILD": lambda machine, argument: machine.build(),
}
