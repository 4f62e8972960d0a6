"""Taps and asserts: identities that look at a value while a call runs.

In the user's graph they pass their first operand on. Freezing a function takes them out of the
flow of data and lists an observer in `Graph.effects` in place of each (``passes=False``: it makes
nothing), so that no rule is in their way and none drops them. In bodies they stay where they are.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...dtypes import is_bool
from ...errors import CheckError, message
from ...ir.graph import Node
from ...ir.op import INEXACT, Call, Effect, Kind, Op
from ...ir.records import record
from ...ir.types import Type
from ..rules import onnx_forms
from ..rules.batching import all_batched

__all__ = ["ASSERT", "TAP", "Callback", "fresh", "muted", "range_of"]

_uids = itertools.count()
_mute: ContextVar[bool] = ContextVar("mute", default=False)

SHOWN = 1000  # elements of a value that is printed whole


def fresh() -> int:
    """Return the number of the next observer: they act in the order in which they were written."""
    return next(_uids)


@record(frozen=True, eq=False)
class Callback:
    """A function that a tap hands its value to, whatever else that object may be."""

    function: Callable[[np.ndarray], object]


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Let taps and asserts look away: what runs inside is a look at the function itself."""
    token = _mute.set(True)
    try:
        yield
    finally:
        _mute.reset(token)


def range_of(value: Any) -> str:
    """Describe the range of an array's values.

    Examples
    --------
    >>> range_of(np.array([1.0, np.nan, -2.0]))
    'in [-2, 1], 1 NaN'
    >>> range_of(np.array([True, False]))
    '1 of 2 true'
    """
    array = np.asarray(value)
    if not array.size:
        return "empty"
    if array.dtype.kind == "b":
        return f"{np.count_nonzero(array)} of {array.size} true"
    if array.dtype.kind in "iu":
        return f"in [{array.min()}, {array.max()}]"
    if array.dtype.kind == "c":
        with np.errstate(all="ignore"):
            return f"of magnitude {range_of(np.abs(array))}"
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    parts = [f"in [{finite.min():.6g}, {finite.max():.6g}]"] if finite.size else []
    nan_count = int(np.count_nonzero(np.isnan(wide)))
    endless = int(np.count_nonzero(np.isinf(wide)))
    parts += [f"{nan_count} NaN"] if nan_count else []
    parts += [f"{endless} infinite"] if endless else []
    return ", ".join(parts)


def _type(call: Call, value: Type, *, passes: bool, **attrs: Any) -> Type:
    return value if passes else Type(np.dtype(np.uint8), (0,))


def _assert_type(call: Call, value: Type, condition: Type, *, passes: bool, **attrs: Any) -> Type:
    if not is_bool(condition.dtype):
        raise call.dtype_error(
            f"the condition is {condition.dtype.name}",
            need="bool",
            hint="a comparison, such as x > 0.0",
        )
    return _type(call, value, passes=passes)


def _host(array: Any) -> np.ndarray:
    """Return an array of the host that nobody else writes."""
    return np.array(array.get() if hasattr(array, "get") else array)


def _passed(xp: Any, value: Any, passes: bool) -> Any:
    return value if passes else xp.empty(0, np.uint8)


def _tap(
    xp: Any, value: Any, *, label: str, callback: Any = None, passes: bool, uid: int
) -> Any:
    if not _mute.get():
        array = _host(value)
        # In a function that was loaded from a file the callback is not there but by its name.
        if isinstance(callback, Callback):
            callback.function(array)
        else:
            shape = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
            text = np.array2string(array, threshold=SHOWN)
            print(f"{label}: {shape} {range_of(array)}\n{text}", flush=True)
    return _passed(xp, value, passes)


def _assert(
    xp: Any, value: Any, condition: Any, *, label: str, passes: bool, uid: int
) -> Any:
    if not _mute.get():
        holds = _host(condition)
        if not holds.all():
            failed = np.argwhere(~holds)
            place = f", first at {tuple(map(int, failed[0]))}" if holds.ndim else ""
            count = f"{len(failed)} of {holds.size} elements" if holds.ndim else "the condition"
            raise CheckError(
                message(
                    f"{label}: {count} do{'' if holds.ndim else 'es'} not hold{place}; "
                    f"the value is {range_of(_host(value))}",
                    need="a condition that is true everywhere; no variable was changed",
                )
            )
    return _passed(xp, value, passes)


def _map_assert(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """All examples are asserted at once."""
    return node.op(*all_batched(operands, batched), **node.attrs)


TAP = Op(
    name="tap",
    kind=Kind.CONTROL,
    effect=Effect.ORDERED,
    doc="The operand, which is printed or handed to a callback when it is computed.",
    rule=_type,
    attributes={"label": "str", "callback": "NotRequired[Code | None]", "uid": "int"},
    evaluate=_tap,
    dtypes=INEXACT,
    gradient=lambda node, cotangent: (cotangent,),
    batching=lambda node, operands, batched: node.op(*operands, **node.attrs),
    onnx=onnx_forms.first,
)

ASSERT = Op(
    name="assert",
    kind=Kind.CONTROL,
    effect=Effect.ORDERED,
    doc="The first operand; the call fails unless the second is true everywhere.",
    rule=_assert_type,
    attributes={"label": "str", "uid": "int"},
    evaluate=_assert,
    dtypes=INEXACT,
    gradient=lambda node, cotangent: (cotangent, None),
    batching=_map_assert,
    onnx=onnx_forms.first,
)

RECORDS = (TAP, ASSERT)
