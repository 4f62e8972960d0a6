"""Frozen dataclasses that cost little to define: importing and a first call read some fifty.

`dataclasses` writes and compiles six functions for each, 0.3 to 0.9 ms; here the one that differs
is written, and all share the others. Instances are made faster, too. Type checkers, `replace` and
`fields` see what they see of a dataclass.
"""

from __future__ import annotations

import dataclasses
import reprlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["record"]

_EMPTY = dataclasses.MISSING


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._shown)
    return f"{type(self).__qualname__}({fields})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    key = type(self)._key
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(type(self)._key(self))


def _setattr(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class _New:
    """The placeholder in a signature for a default that is created again for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, fields: dict[str, Any]) -> Any:
    """Return the function that fills an instance."""
    parameters: list[str] = []
    named: list[str] = []
    pairs: list[str] = []
    globals_: dict[str, Any] = {"_NEW": _New()}
    for name, field in fields.items():
        if not field.init:
            raise TypeError(f"{cls.__name__}.{name} is a field for a dataclass, not for a record")
        taken, value = f"{name}=_{name}", name
        if field.default is not _EMPTY:
            globals_[f"_{name}"] = field.default
        elif field.default_factory is not _EMPTY:
            globals_[f"_{name}"] = field.default_factory
            taken, value = f"{name}=_NEW", f"_{name}() if {name} is _NEW else {name}"
        else:
            taken = name
        (named if field.kw_only else parameters).append(taken)
        pairs.append(f"{name}={value}")
    if named:
        parameters += ["*", *named]
    text = f"def __init__(self, {', '.join(parameters)}): self.__dict__.update({', '.join(pairs)})"
    if hasattr(cls, "__post_init__"):
        text += "; self.__post_init__()"
    locals_: dict[str, Any] = {}
    exec(text, globals_, locals_)
    init = locals_["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {name: field.type for name, field in fields.items()}
    init.__annotations__["return"] = None
    return init


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, eq: bool = True, kw_only: bool = False) -> Any:
        """Return a decorator that does what ``dataclass(frozen=True)`` does.

        Parameters
        ----------
        frozen
            True: said at each use, as it is said to type checkers.
        eq
            Whether instances are equal by their fields, and hashed by them.
        kw_only
            Whether fields are given by their names alone.
        """
        assert frozen

        def made(cls: type) -> type:
            bare = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)
            cls = bare(cls)
            fields = cls.__dataclass_fields__
            cls._shown = tuple([name for name, field in fields.items() if field.repr])
            cls.__init__ = _init(cls, fields)
            if "__repr__" not in cls.__dict__:
                cls.__repr__ = reprlib.recursive_repr()(_repr)
            cls.__setattr__, cls.__delattr__ = _setattr, _delattr
            if eq:
                cls._key = attrgetter(*[name for name, f in fields.items() if f.compare])
                cls.__eq__, cls.__hash__ = _eq, _hash
            return cls

        return made
