"""The types of attributes: declarations of records, and checks of values against them.

A declaration is the text of an annotation, as ``"tuple[int, ...]"``: that of a keyword of the shape
rule, or a line of `Op.attributes`. Files hold attributes, and generated sources hold numbers that
come from them, so that a value is taken only where its type is exactly the declared one.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import SUPPORTED
from .dims import Dim
from .types import Type
from .values.state import State

__all__ = ["LARGEST", "Attribute", "Body", "LeafKey", "Schema", "schema_of"]

Fits = Callable[[Any], bool]

_BITS = 63
LARGEST = 2**_BITS - 1  # of extents and of ints in attributes
_DTYPES = frozenset(SUPPORTED)
_ARRAYS = (np.ndarray, np.generic, np.dtype)
_DATA = (str, bytes, int, float, complex, tuple, list, dict, *_ARRAYS, Type, Dim)


class Body:
    """Serve as the base of `Graph`, which is defined above operations: attributes hold bodies."""

    __slots__ = ()


class LeafKey:
    """Serve as the base of `Key`, which is defined with nodes."""

    __slots__ = ()


class Attribute(NamedTuple):
    """The type of one attribute.

    expected: The declaration, as a message shows it.
    fits: Whether a value is of the type.
    required: Whether every node has it.
    """

    expected: str
    fits: Fits
    required: bool


class Schema(NamedTuple):
    """The types of the attributes of an operation.

    attributes: By name; ``"*"`` stands for all names that are not listed.
    fits: The checks of values, by name.
    """

    attributes: Mapping[str, Attribute]
    fits: Mapping[str, Fits]

    def fault(self, attrs: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the fault of the attributes and the expected form, or None."""
        allowed = self.attributes
        for name, attribute in allowed.items():
            if attribute.required and name not in attrs:
                return f"the attribute {name} is missing", attribute.expected
        for name, value in attrs.items():
            attribute_of = allowed.get(name)
            if attribute_of is None:
                attribute_of = allowed.get("*")
                if attribute_of is None or not name.isidentifier():
                    names = ", ".join(allowed) or "an operation without attributes"
                    return f"there is no attribute {name[:40]}", names
            if not attribute_of.fits(value):
                return f"{name}={_shown(value)}", attribute_of.expected
        return None


def schema_of(rule: Callable[..., Any], declared: Mapping[str, str]) -> Schema:
    """Return the schema of a record: its lines, and the annotated keywords of its shape rule.

    Examples
    --------
    >>> def rule(call, x, *, axis: int, mode: Literal['clip', 'wrap'] = "clip"): ...
    >>> schema = schema_of(rule, {})
    >>> schema.fault({"axis": 0}), schema.fault({"axis": True})
    (None, ('axis=True', 'int'))
    >>> schema.fault({"axis": 0, "mode": "*/"})
    ("mode='*/'", "Literal['clip', 'wrap']")
    """
    texts = dict(declared)
    optional: frozenset[str] = frozenset()
    code: Any = getattr(rule, "__code__", None)
    if code is not None:
        first = code.co_argcount
        keywords = code.co_varnames[first : first + code.co_kwonlyargcount]
        optional = frozenset(rule.__kwdefaults__ or ())
        for name in keywords:
            if name not in texts:
                texts[name] = rule.__annotations__[name]
    attributes = {name: _attribute(text, name in optional) for name, text in texts.items()}
    return Schema(attributes, {name: attribute.fits for name, attribute in attributes.items()})


@functools.cache
def _attribute(text: str, optional: bool) -> Attribute:
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "NotRequired":
        tree, optional = tree.slice, True
    shown = ast.unparse(tree)
    return Attribute(shown, _fits(tree), not optional and shown != "Plain")


def _fits(tree: ast.expr) -> Fits:
    """Return the check of an annotation."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        left, right = _fits(tree.left), _fits(tree.right)
        return lambda value: left(value) or right(value)
    if isinstance(tree, ast.Constant) and tree.value is None:
        return lambda value: value is None
    if isinstance(tree, ast.Subscript):
        inside = tree.slice
        parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        if ast.unparse(tree.value) == "Literal":
            words = frozenset(ast.literal_eval(part) for part in parts)
            return lambda value: type(value) is str and value in words
        if isinstance(parts[-1], ast.Constant) and parts[-1].value is ...:
            return _many(_fits(parts[0]))
        each = [_fits(part) for part in parts]
        return lambda value: (
            type(value) is tuple
            and len(value) == len(each)
            and all(fits(v) for fits, v in zip(each, value, strict=True))
        )
    return _NAMED[ast.unparse(tree).rpartition(".")[2]]


def _many(fits: Fits) -> Fits:
    """Return the check of a tuple of any length."""
    if fits is _is_int:
        return _are_ints
    if fits is _is_extent:
        return _are_extents
    return lambda value: type(value) is tuple and all(map(fits, value))


# Most nodes have one of these two: plain loops take half the time of all(...).


def _are_ints(value: Any) -> bool:
    if type(value) is not tuple:
        return False
    for v in value:  # noqa: SIM110
        if type(v) is not int or v.bit_length() > _BITS:
            return False
    return True


def _are_extents(value: Any) -> bool:
    if type(value) is not tuple:
        return False
    for v in value:
        if type(v) is int:
            if v.bit_length() > _BITS:
                return False
        elif type(v) is not Dim:
            return False
    return True


def _is_int(value: Any) -> bool:
    return type(value) is int and value.bit_length() <= _BITS


def _is_extent(value: Any) -> bool:
    return _is_int(value) or type(value) is Dim


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _is_seed(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**64


def _is_positive(value: Any) -> bool:
    return type(value) is int and 0 < value <= LARGEST


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31


def _is_offset(value: Any) -> bool:
    return type(value) is Dim or (type(value) is int and -(2**31) < value < 2**31)


def _is_float(value: Any) -> bool:
    return type(value) is float or _is_int(value)


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype in _DTYPES


def _is_number(value: Any) -> bool:
    return type(value) in (bool, float, complex) or _is_int(value) or (
        _is_array(value) and value.ndim == 0
    )


def _is_plain(value: Any) -> bool:
    """Return whether a value is one that an operation of a user's own may be given."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return (
        value is None
        or type(value) in (str, Type, Dim)
        or _is_number(value)
        or _is_dtype(value)
    )


def _is_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) and value in _DTYPES


def _is_code(value: Any) -> bool:
    """Return whether a value is code of the program, and no data: no text can hold it."""
    return not (isinstance(value, (*_DATA, Body)) or value is None)


def _is_instance_of(kind: type) -> Fits:
    """Return the check of instances of a class."""
    return lambda value: isinstance(value, kind)


_NAMED: dict[str, Fits] = {
    "int": _is_int,
    "Count": _is_count,
    "Seed": _is_seed,
    "Positive": _is_positive,
    "Step": _is_step,  # of windows: kernels multiply these
    "Offset": _is_offset,
    "Extent": _is_extent,
    "Shape": _are_extents,
    "bool": lambda value: type(value) is bool,
    "float": _is_float,
    "Number": _is_number,
    "str": lambda value: type(value) is str,
    "dtype": _is_dtype,
    "ndarray": lambda value: isinstance(value, np.ndarray) and _is_array(value),
    "Type": lambda value: type(value) is Type,
    "Graph": _is_instance_of(Body),
    "State": _is_instance_of(State),
    "Key": _is_instance_of(LeafKey),
    "Code": _is_code,  # a function; from a text, what stands for one
    "Plain": _is_plain,
}


def _shown(value: Any) -> str:
    """Return the beginning of a value's text, of values of any size."""
    if type(value) is int and not -LARGEST <= value <= LARGEST:
        return f"an int of {value.bit_length()} bits"
    if type(value) is str:
        value = value[:60]
    if isinstance(value, (bool, int, float, str, np.dtype)) or value is None:
        return repr(value)
    if type(value) is tuple:
        inside = ", ".join(
            type(v).__name__ if type(v) is tuple else _shown(v) for v in value[:4]
        )
        return f"({inside}{', ...' if len(value) > 4 else ''})"
    return f"a {type(value).__name__}"
