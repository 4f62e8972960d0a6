"""Find the argument whose value is not of the type that its parameter declares.

Read only where a call has failed; see `telling`. The annotations of a public function are its
schema: ``offset: int`` takes whole numbers, ``axis: int | Sequence[int] | None`` these, several or
None, ``x: Operand`` whatever becomes a node. ``Any`` and names that only type checkers know accept
all values.
"""

from __future__ import annotations

import ast
import collections.abc
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ..dtypes import canonical
from ..errors import ArgumentError, MagmagraphError, message
from ..ir.dims import Dim
from ..ir.graph import Node
from ..ops.convert import as_node
from .public_names import PACKAGE, public_name

__all__ = ["misfit_of_types"]



class Expected(NamedTuple):
    """What a parameter takes: a test of values, and words for it."""

    accepts: Callable[[Any], bool]
    words: str


def _is_int(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iu"
    return not isinstance(value, (bool, np.bool_, Node, Dim)) and hasattr(type(value), "__index__")


def _is_float(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iufb"
    if isinstance(value, (Node, Dim, np.complexfloating)):
        return False
    return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1))


def _is_operand(value: Any) -> bool:
    try:
        as_node(value)
    except MagmagraphError:
        return False
    return True


def _is_shape_entry(value: Any) -> bool:
    return value is None or isinstance(value, str) or _is_extent(value)


def _is_shape(value: Any) -> bool:
    single = value is not None and _is_shape_entry(value)
    return single or _several(_SHAPE_ENTRY, True).accepts(value)


_SHAPE_ENTRY = Expected(_is_shape_entry, "an int, a name or a dimension")


def _is_operands(value: Any) -> bool:
    if isinstance(value, (Node, np.ndarray)):
        return value.ndim > 0
    return _several(Expected(_is_operand, "a node, a number or an array"), True).accepts(value)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and str(value) != "" and "\0" not in str(value)


def _is_dtype(value: Any) -> bool:
    try:
        canonical(value)
    except MagmagraphError:
        return False
    return True


def _is_extent(value: Any) -> bool:
    return isinstance(value, Dim) or _is_int(value)


_NAMED: dict[str, Expected] = {
    "int": Expected(_is_int, "an int"),
    "float": Expected(_is_float, "a real number"),
    "complex": Expected(lambda v: _is_float(v) or isinstance(v, (complex, np.complexfloating)),
                        "a number"),
    "bool": Expected(_is_bool, "True or False"),
    "str": Expected(lambda v: isinstance(v, str), "a string"),
    "bytes": Expected(lambda v: isinstance(v, bytes), "bytes"),
    "None": Expected(lambda v: v is None, "None"),
    "Operand": Expected(_is_operand, "a node, a number or an array"),
    "Node": Expected(lambda v: isinstance(v, Node), "a node"),
    "Extent": Expected(_is_extent, "an int or a dimension"),
    "Dim": Expected(lambda v: isinstance(v, Dim), "a dimension"),
    "DTypeLike": Expected(_is_dtype, "a dtype"),
    "FilePath": Expected(_is_path, "a path"),
}  # fmt: skip
_NAMED |= {
    "Operands": Expected(_is_operands, "a sequence of nodes, numbers or arrays"),
    "ShapeLike": Expected(
        _is_shape,
        "a shape: an int, a name or a dimension, or a sequence of these",
    ),
}
_TYPES: Mapping[Any, str] = {
    int: "int", float: "float", complex: "complex", bool: "bool", str: "str", bytes: "bytes",
    type(None): "None", None: "None", Node: "Node", Dim: "Dim", Path: "FilePath",
}  # fmt: skip
_UNIONS = (types.UnionType, typing.Union)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_ORDERED = (list, tuple, collections.abc.Sequence)
_ITERABLE = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Iterator)


def _one_of(choices: Sequence[Expected | None]) -> Expected | None:
    """Return what takes any of several; None, which takes all values, where one of them does."""
    kinds = [choice for choice in choices if choice is not None]
    if len(kinds) < len(choices):
        return None
    words = list(dict.fromkeys(kind.words for kind in kinds))
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    return Expected(lambda value: any(kind.accepts(value) for kind in kinds), text)


def _is_iterable(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return getattr(type(value), "__iter__", None) is not None


def _several(member: Expected | None, ordered: bool) -> Expected:
    """Return what takes a sequence, or an iterable where `ordered` is false."""

    def accepts(value: Any) -> bool:
        if isinstance(value, (str, bytes, Node, Mapping)) or not _is_iterable(value):
            return False
        known = hasattr(type(value), "__len__")  # an iterator would be used up
        if not known:
            return not ordered
        return member is None or all(member.accepts(each) for each in value)

    words = "a sequence" if ordered else "an iterable"
    if member is not None:
        words += f", each {member.words}"
    return Expected(accepts, words)


def _of_type(kind: Any, place: Mapping[str, Any]) -> Expected | None:
    """Return what an evaluated annotation takes; None where it takes all values."""
    if isinstance(kind, str):
        return expected(kind, place)
    if isinstance(kind, typing.ForwardRef):
        return expected(kind.__forward_arg__, place)
    try:
        if kind in _TYPES:
            return _NAMED[_TYPES[kind]]
    except TypeError:  # not hashable
        return None
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in _UNIONS:
        return _one_of([_of_type(part, place) for part in parts])
    if origin is Literal:
        return Expected(
            lambda value: any(type(value) is type(part) and value == part for part in parts),
            "one of " + ", ".join(map(repr, parts)),
        )
    base = origin or kind
    if base is Any or base is object:
        return None
    if base is collections.abc.Callable or base is typing.Callable:
        return Expected(callable, "a function")
    if base in _MAPPINGS:
        return Expected(lambda value: isinstance(value, Mapping), "a dict")
    if base in _ORDERED or base in _ITERABLE:
        inner = [part for part in parts if part is not Ellipsis]
        member = _of_type(inner[0], place) if len(set(inner)) == 1 else None
        several = _several(member, base in _ORDERED)
        if base is not tuple or len(inner) < len(parts) or not parts:
            return several
        return Expected(
            lambda value: several.accepts(value) and len(value) == len(parts),
            f"{len(parts)} values" + (f", each {member.words}" if member is not None else ""),
        )
    if base is os.PathLike:
        return Expected(lambda value: isinstance(value, os.PathLike), "a path")
    if base is np.ndarray:
        return Expected(lambda value: isinstance(value, np.ndarray), "an array")
    if isinstance(base, type) and not getattr(base, "_is_protocol", False):
        return Expected(lambda value: isinstance(value, base), _named_class(base))
    return None


def _named_class(kind: type) -> str:
    return f"an object of {public_name(kind)}"


def expected(annotation: Any, place: Mapping[str, Any]) -> Expected | None:
    """Return what an annotation takes, or None where it takes all values.

    annotation: As it is written: a string in modules with postponed annotations, else a type.
    place: The names that the annotation may use: the ``globals()`` of its module.

    Examples
    --------
    >>> kind = expected("int | Sequence[int] | None", {"Sequence": Sequence})
    >>> kind.words
    'an int or a sequence, each an int or None'
    >>> [kind.accepts(value) for value in (3, (1, 2), None, 0.5, ("a",))]
    [True, True, True, False, False]
    """
    if not isinstance(annotation, str):
        return None if annotation is inspect.Parameter.empty else _of_type(annotation, place)
    if annotation in _NAMED:
        return _NAMED[annotation]
    try:
        parsed = ast.parse(annotation.strip() or "None", mode="eval").body
    except SyntaxError:  # ``*Arguments``, of any number of types
        return None
    if isinstance(parsed, ast.BinOp) and isinstance(parsed.op, ast.BitOr):
        return _one_of([expected(ast.unparse(side), place) for side in (parsed.left, parsed.right)])
    if isinstance(parsed, ast.Constant) and isinstance(parsed.value, str):
        return expected(parsed.value, place)
    for names in (place, {**vars(collections.abc), **vars(sys.modules[PACKAGE])}):
        try:  # the annotation is text of this package, or of a class of the caller
            return _of_type(eval(annotation, dict(names)), place)
        except (NameError, AttributeError, TypeError):  # a name that only type checkers import
            continue
    return None


def misfit_of_types(
    who: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    error: BaseException | None = None,
    *,
    skip_first: bool = False,
) -> ArgumentError | None:
    """Return (not raise) the error for the first argument that is not of its parameter's type.

    An argument which is a function that cannot be called as it is called counts as one, too.

    who: What callers call the function.
    function: The function, with annotations.
    args, named: The arguments of the call that has failed.
    error: The error with which it has failed.
    skip_first: True of a method, whose first parameter is the instance.
    returns (ArgumentError or None): None where all arguments are of the types that the function
        declares.

    Examples
    --------
    >>> def shifted(x: "Operand", offset: "int") -> None: ...
    >>> print(misfit_of_types("shifted", shifted, ([1.0],), {"offset": 0.5}))
    shifted: offset is 0.5
      expected: an int
    """
    signature = inspect.signature(function)
    if skip_first:
        parameters = list(signature.parameters.values())[1:]
        signature = signature.replace(parameters=parameters)
    try:
        bound = signature.bind(*args, **named)
    except TypeError:
        return None
    owner = sys.modules.get(function.__module__)
    place = {**(vars(owner) if owner is not None else {}), **getattr(function, "__globals__", {})}
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        kind = expected(parameter.annotation, place)
        if kind is None:
            continue
        values: Mapping[str, Any] = {name: value}
        if parameter.kind is parameter.VAR_POSITIONAL:
            values = {f"{name}[{i}]": each for i, each in enumerate(value)}
        elif parameter.kind is parameter.VAR_KEYWORD:
            values = value
        for label, each in values.items():
            if each is not parameter.default and not kind.accepts(each):
                return ArgumentError(message(f"{who}: {label} is {shown(each)}", need=kind.words))
    return _misfit_of_function(who, bound.arguments, error)


def _misfit_of_function(
    who: str, arguments: Mapping[str, Any], error: BaseException | None
) -> ArgumentError | None:
    """Return the error for a function among the arguments that does not take what it is given."""
    text = str(error)
    if type(error) is not TypeError or "() " not in text:
        return None
    for label, value in arguments.items():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if callable(each) and text.startswith(f"{getattr(each, '__qualname__', None)}() "):
                return ArgumentError(
                    message(f"{who}: {label} is a function that does not fit: {text}",
                            need="a function that takes the arguments it is called with")
                )  # fmt: skip
    return None


_LONGEST = 80  # characters of a value in an error


def shown(value: Any) -> str:
    """Return a value for an error: its text where that is short, else its type."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    if len(text) > _LONGEST or "\n" in text:
        return f"an object of type {type(value).__name__}"
    return text
