"""Match a caller's arguments to inputs, check them, and convert them within their kind."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import can_hold, canonical, is_inexact
from ..errors import DTypeError, FeedError, message
from ..ir import dims
from ..ir.dims import Constraint
from ..ir.graph import Node, topological
from ..ir.op import Kind
from ..ir.types import Type
from ..ir.values.dlpack import as_array
from ..ir.values.given import hint_of_width, narrowed, plain_array, unlike_numbers


def _label(node: Node) -> str:
    return f"input '{node.name}' ({node.type})"


class Signature:
    """The inputs of a function, and how the arguments of a call are matched to them."""

    def __init__(self, inputs: Sequence[Node]) -> None:
        self.inputs = tuple(inputs)
        self.by_name: dict[str, int] = {}
        self.ambiguous: set[str] = set()
        for i, node in enumerate(self.inputs):
            name = node.name or ""
            if name in self.by_name:
                self.ambiguous.add(name)
            self.by_name[name] = i
        self.by_node = {node: i for i, node in enumerate(self.inputs)}

    def _names(self) -> str:
        return ", ".join(f"'{node.name}'" for node in self.inputs) or "none"

    def _position(self, key: Any) -> int:
        if isinstance(key, Node):
            if key in self.by_node:
                return self.by_node[key]
            raise FeedError(
                message(
                    f"{key!r} is fed but is not an input of this function",
                    need=f"feeds for its inputs: {self._names()}",
                )
            )
        if not isinstance(key, str):
            raise FeedError(
                message(f"a feed is named by {key!r}", need="an input node or an input's name")
            )
        if key in self.ambiguous:
            raise FeedError(
                message(
                    f"two inputs are named '{key}'",
                    hint="feed by position, or with a dict from input nodes to arrays",
                )
            )
        if key not in self.by_name:
            raise FeedError(
                message(
                    f"there is no input named '{key}'",
                    need=f"feeds for the inputs: {self._names()}",
                )
            )
        return self.by_name[key]

    def arrange(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Return the fed values in the order of the inputs.

        raises FeedError: An input is missing, unknown, or fed twice.
        """
        count = len(self.inputs)
        if not args and len(named) == count and not self.ambiguous:
            with contextlib.suppress(KeyError):  # which is told below
                return [named[name] for name in self.by_name]
        feeds: dict[int, Any] = {}

        def put(position: int, value: Any) -> None:
            if position in feeds:
                raise FeedError(message(f"{_label(self.inputs[position])} is fed twice"))
            feeds[position] = value

        if len(args) == 1 and isinstance(args[0], Mapping):
            for key, value in args[0].items():
                put(self._position(key), value)
        else:
            if len(args) > count:
                raise FeedError(
                    message(
                        f"{len(args)} feeds are given, but there are {count} inputs",
                        need=f"feeds for the inputs: {self._names()}",
                    )
                )
            for position, value in enumerate(args):
                put(position, value)
        for key, value in named.items():
            put(self._position(key), value)
        missing = [self.inputs[i] for i in range(count) if i not in feeds]
        if missing:
            raise FeedError(
                message(
                    f"no feed for {', '.join(map(_label, missing))}",
                    need=f"feeds for the inputs: {self._names()}",
                )
            )
        return [feeds[i] for i in range(count)]


def named_feeds(who: str, loss: Node, feeds: Any) -> dict[Node, Any]:
    """Return the value of each input of a loss, which may be named.

    Raises
    ------
    FeedError
        An input that the loss reads has no value, or a name is that of no input, or of several.
    """
    if feeds is not None and not isinstance(feeds, Mapping):
        raise FeedError(
            message(
                f"{who}: feeds is a {type(feeds).__name__}",
                need="a dict from inputs, or their names, to arrays",
                hint=f"{who}(..., feeds={{x: array}})",
            )
        )
    leaves = [node for node in topological([loss]) if node.op.kind is Kind.LEAF]
    inputs = [node for node in leaves if "key" in node.attrs]
    by_node: dict[Node, Any] = {}
    for key, value in (feeds or {}).items():
        named = [node for node in inputs if node.name == key] if isinstance(key, str) else [key]
        if len(named) != 1 or not isinstance(named[0], Node) or named[0] in by_node:
            names = ", ".join(f"'{node.name}'" for node in inputs) or "none"
            raise FeedError(
                message(
                    f"{who}: {key!r} names no one input of the loss, or is fed twice",
                    need=f"inputs of the loss, or their names: {names}",
                )
            )
        by_node[named[0]] = value
    for node in inputs:
        if node not in by_node:
            raise FeedError(
                message(
                    f"{who}: the loss reads the input '{node.name}' ({node.type}), not fed",
                    hint=f"{who}(..., feeds={{{node.name}: array}})",
                )
            )
    return by_node


def conform(value: Any, node: Node, strict: bool = False) -> np.ndarray:
    """Return the fed value as a C-contiguous array of the input's dtype.

    Floats convert to floats, real and complex numbers to complex ones, ints to ints where every
    value fits, and to floats and complex numbers where these are equal to every value. Only Python
    numbers, which have no dtype, are rounded to a float.

    raises FeedError: The value is not numeric, or its dtype or number of axes is not the input's.
    """
    if isinstance(value, Node):
        raise FeedError(
            message(f"{_label(node)} is fed a node", need="an array", hint="node.eval()")
        )
    try:
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, "flags"):
            array = value  # a CuPy array, whose methods are NumPy's
        elif hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic)):
            array = as_array(value)
        else:
            array = plain_array(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise FeedError(message(f"{_label(node)} cannot be made an array: {error}")) from None
    expected = node.dtype
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != expected:
        weak = not isinstance(value, (np.ndarray, np.generic)) and not hasattr(value, "dtype")
        try:
            fed_dtype = canonical(array.dtype)
        except DTypeError:
            what, hint = unlike_numbers(value, array)
            raise FeedError(
                message(
                    f"{_label(node)} is fed {what}",
                    need=f"numbers of dtype {expected.name}",
                    hint=hint,
                )
            ) from None
        if strict and not weak:
            raise FeedError(
                message(
                    f"{_label(node)} is fed {fed_dtype.name}, and strict_feeds is on",
                    need=expected.name,
                    hint=f"array.astype('{expected.name}')",
                )
            )
        if not can_hold(value, array, expected):
            why = (
                f", some of which {expected.name} does not hold exactly"
                if fed_dtype.kind in "iu" and is_inexact(expected)
                else f" values that {expected.name} does not hold"
            )
            raise FeedError(
                message(
                    f"{_label(node)} is fed {fed_dtype.name}{why}",
                    need=f"{expected.name}, or values that it holds",
                    hint=(
                        "array.real, array.imag, or an input of a complex dtype"
                        if fed_dtype.kind == "c" and expected.kind != "c"
                        else hint_of_width(array, expected) or f"array.astype('{expected.name}')"
                    ),
                )
            )
        array = narrowed(array, expected, lambda: _label(node))
    if array.ndim != len(node.shape):
        one = isinstance(value, (tuple, list)) and len(value) == 1
        one = one and hasattr(value[0], "shape") and len(value[0].shape) == len(node.shape)
        raise FeedError(
            message(
                f"{_label(node)} is fed an array of shape {array.shape}",
                need=f"{len(node.shape)} axes, shape {node.shape}",
                hint="f(*batch): what is fed holds one such array" if one else None,
            )
        )
    result: np.ndarray = array
    if not array.flags.c_contiguous:
        result = array.copy(order="C")
    elif isinstance(array, np.ndarray) and not array.flags.aligned:
        result = np.array(array, order="C")
    return result


def bind_sizes(
    inputs: Sequence[Node],
    shapes: Sequence[tuple[int, ...]],
    constraints: Sequence[tuple[Constraint, Node]] = (),
) -> dict[str, int]:
    """Return the size of each named dimension, found from the shapes that were fed.

    raises FeedError: A shape does not fit its input, two inputs disagree on a dimension, or a
        constraint of the graph does not hold; the text names the input, or the node and its line.
    """
    names = [_label(node) for node in inputs]
    solved = dims.solve([node.shape for node in inputs], list(shapes), names)
    if isinstance(solved, dims.BindingFailure):
        node = inputs[solved.index]
        raise FeedError(
            message(
                f"{_label(node)} is fed an array of shape {shapes[solved.index]}: {solved}",
                need=f"shape {node.shape}",
            )
        )
    sizes = dict(solved)
    for constraint, node in constraints:
        if not constraint.check(sizes):
            label = f"'{node.name}' " if node.name else ""
            raise FeedError(
                message(
                    f"{node.op.name} {label}needs {constraint}, but "
                    + ", ".join(f"{k} is {v}" for k, v in sorted(sizes.items())),
                    where=f"made at {node.line}" if node.line else None,
                )
            )
    return sizes


def check_targets(targets: Sequence[Any], types: Sequence[Type]) -> None:
    """Raise unless results of these types can be written into the arrays of ``out=``.

    raises FeedError: One is no array, cannot be written, or has another shape or another kind of
        dtype, or two of them share memory, where one result would overwrite the other.
    """
    for position, (target, type_) in enumerate(zip(targets, types, strict=True)):
        if not isinstance(target, np.ndarray):
            wrong = f"is a {type(target).__name__}"
        elif target.shape != type_.shape:
            wrong = f"has shape {target.shape}"
        elif target.dtype != type_.dtype and not np.can_cast(
            type_.dtype, target.dtype, "same_kind"
        ):
            wrong = f"has dtype {target.dtype.name}"
        elif not target.flags.writeable:
            wrong = "is read-only"
        else:
            continue
        need = f"a NumPy array of shape {type_.shape} and dtype {type_.dtype.name}"
        raise FeedError(message(f"out[{position}] {wrong}", need=need))
    if len(targets) > 1:
        _check_apart(targets)


def _check_apart(targets: Sequence[np.ndarray]) -> None:
    """Raise where two of the arrays that results are written into share memory."""
    order = sorted((i for i, target in enumerate(targets) if target.size),
                   key=lambda i: _begin(targets[i]))
    for at, first in enumerate(order):
        for second in order[at + 1 :]:
            if not np.may_share_memory(targets[first], targets[second]):
                break  # nor do those that begin later
            if _shares_memory(targets[first], targets[second]):
                one, other = sorted((first, second))
                same = targets[one] is targets[other]
                raise FeedError(
                    message(
                        f"out[{one}] and out[{other}] "
                        + ("are the same array" if same else "share memory")
                        + ": one result would overwrite the other",
                        need="memory of its own for each output",
                        hint=f"out[{other}] = np.empty_like(out[{other}])",
                    )
                )


def _begin(array: np.ndarray) -> int:
    """Return the lowest address of an array's elements."""
    if array.flags.c_contiguous:
        return int(array.__array_interface__["data"][0])
    return int(np.lib.array_utils.byte_bounds(array)[0])


def _shares_memory(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays have an element in common; False where that is too hard to say."""
    try:
        return np.shares_memory(one, other, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False
