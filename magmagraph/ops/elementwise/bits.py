"""Logic on truths and on bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_float, is_integer
from ...errors import DTypeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Type
from ..convert import as_node
from ..rules import onnx_forms
from .family import (
    BOOL,
    FLAGS,
    OTHER,
    OTHER_FLAGS,
    OTHER_WHOLE,
    REAL,
    WHOLE,
    Binary,
    binary,
    broadcast,
    misfits,
    numpy_named,
    publish,
    truth,
    unary,
)

_BOOLEAN = "boolean valued"
_INTEGER = "integer valued"
_SHIFTS = np.array([[0, 1, 3], [31, 40, 2]], dtype=np.int32)


# Bits.


def _bits(call: Call, *operands: Type) -> Type:
    dtype = operands[0].dtype
    if is_float(dtype):
        raise call.dtype_error(f"operand of dtype {dtype.name}", need="an integer or bool dtype")
    return broadcast(call, *operands)


def _integers(call: Call, *operands: Type) -> Type:
    dtype = operands[0].dtype
    if not is_integer(dtype):
        raise call.dtype_error(f"operand of dtype {dtype.name}", need="an integer dtype")
    return broadcast(call, *operands)


def _no_floats(name: str) -> list[BadSample]:
    return [BadSample((REAL, OTHER), DTypeError, f"{name}: operand of dtype float64")]


def _bitwise(
    name: str, word: str, symbol: str, result: str, operators: tuple[str, str]
) -> tuple[Binary, Op]:
    return binary(
        name,
        f"Take the {word} of each pair of bits.",
        f"""
        >>> mg.{name}([12, 5], 6).eval()
        array({result}, dtype=int32)
        """,
        module=__name__,
        evaluate=numpy_named(name),
        scalar=f"a {symbol} b",
        no_gradient=_INTEGER,
        rule=_bits,
        samples=lambda: [Sample((WHOLE, OTHER_WHOLE)), Sample((FLAGS, OTHER_FLAGS))],
        bad_samples=lambda: [*_misfits(name), *_no_floats(name)],
        commutative=True,
        numerics="exact",
        onnx=onnx_forms.by_dtype(*operators),
    )


def _misfits(name: str) -> list[BadSample]:
    """Return the bad sample of shapes that do not broadcast, for functions of integers."""
    (bad,) = misfits(name)()
    return [BadSample(tuple(x.astype(np.int32) for x in bad.inputs), bad.error, bad.text)]


bitwise_and, BITWISE_AND = _bitwise(
    "bitwise_and", "and", "&", "[4, 4]", ("And", "BitwiseAnd")
)
bitwise_or, BITWISE_OR = _bitwise(
    "bitwise_or", "or", "|", "[14,  7]", ("Or", "BitwiseOr")
)
bitwise_xor, BITWISE_XOR = _bitwise(
    "bitwise_xor", "exclusive or", "^", "[10,  3]", ("Xor", "BitwiseXor")
)

bitwise_not, BITWISE_NOT = unary(
    "bitwise_not",
    "Flip every bit; of a bool, its negation.",
    """
    >>> mg.bitwise_not([0, 5]).eval()
    array([-1, -6], dtype=int32)
    """,
    module=__name__,
    evaluate=numpy_named("invert"),
    scalar=lambda dtype: "!a" if dtype == BOOL else "~a",
    no_gradient=_INTEGER,
    rule=_bits,
    operand=as_node,
    samples=lambda: [Sample((WHOLE,)), Sample((FLAGS,))],
    numerics="exact",
    onnx=onnx_forms.by_dtype("Not", "BitwiseNot"),
)

_SHIFT_NOTES = """Shifts by the dtype's number of bits or more, or by a negative number, move every
    bit out: what is left is 0, or -1 of a negative number that is shifted to the right."""

left_shift, LEFT_SHIFT = binary(
    "left_shift",
    "Shift bits to the left.",
    """
    >>> mg.left_shift([1, 3], 2).eval()
    array([ 4, 12], dtype=int32)
    """,
    module=__name__,
    notes=_SHIFT_NOTES,
    evaluate=numpy_named("left_shift"),
    onnx=onnx_forms.shifted("LEFT"),
    scalar="$left_shift(a, b)",
    no_gradient=_INTEGER,
    rule=_integers,
    samples=lambda: [Sample((WHOLE, _SHIFTS))],
    bad_samples=lambda: [*_misfits("left_shift"), *_no_floats("left_shift")],
    numerics="exact",
)

right_shift, RIGHT_SHIFT = binary(
    "right_shift",
    "Shift bits to the right, keeping the sign.",
    """
    >>> mg.right_shift([12, -12], 2).eval()
    array([ 3, -3], dtype=int32)
    """,
    module=__name__,
    notes=_SHIFT_NOTES,
    evaluate=numpy_named("right_shift"),
    onnx=onnx_forms.shifted("RIGHT"),
    scalar="$right_shift(a, b)",
    no_gradient=_INTEGER,
    rule=_integers,
    samples=lambda: [Sample((WHOLE, _SHIFTS))],
    bad_samples=lambda: [*_misfits("right_shift"), *_no_floats("right_shift")],
    numerics="exact",
)


# Logic, on the truth of any values: zero is false.


def _logical(
    name: str, word: str, result: str
) -> tuple[Callable[[Any, Any], Node], Composite]:
    def function(x: Any, y: Any) -> Node:
        return record(truth(x), truth(y))

    publish(
        function,
        name,
        __name__,
        f"Take the logical {word} of two truths; numbers are true where not zero.",
        """
        x, y: Nodes, arrays or numbers, broadcast against each other.
        returns: Of the broadcast shape, bool. No gradient: boolean valued.
        """,
        f">>> mg.{name}([True, True, False], [True, False, False]).eval()\narray({result})",
    )
    record = {"and": BITWISE_AND, "or": BITWISE_OR, "exclusive or": BITWISE_XOR}[word]
    return function, Composite(
        kind=Kind.ELEMENTWISE,
        function=function,
        dtypes=INEXACT,
        tests=Tests(
            samples=lambda: [
                Sample((FLAGS, OTHER_FLAGS)),
                Sample((REAL, np.array([0.0, 1.0, -0.0]))),
            ],
            reference=lambda x, y: getattr(np, name)(x, y),
        ),
        numerics="exact",
        no_gradient=_BOOLEAN,
    )


@documented
def logical_not(x: Any) -> Node:
    """Negate a truth; numbers are true where not zero.

    x: Node or array.
    returns: Of the shape of `x`, bool. No gradient: boolean valued.

    >>> mg.logical_not([True, False]).eval()
    array([False,  True])
    """
    return BITWISE_NOT(truth(x))


LOGICAL_NOT = Composite(
    kind=Kind.ELEMENTWISE,
    function=logical_not,
    dtypes=INEXACT,
    tests=Tests(
        samples=lambda: [Sample((FLAGS,)), Sample((np.array([0.0, 0.3, np.nan]),))],
        reference=np.logical_not,
    ),
    numerics="exact",
    no_gradient=_BOOLEAN,
)

logical_and, LOGICAL_AND = _logical("logical_and", "and", "[ True, False, False]")
logical_or, LOGICAL_OR = _logical("logical_or", "or", "[ True,  True, False]")
logical_xor, LOGICAL_XOR = _logical("logical_xor", "exclusive or", "[False,  True, False]")


RECORDS: tuple[Op | Composite, ...] = (
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_XOR,
    LOGICAL_NOT,
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    BITWISE_NOT,
    LEFT_SHIFT,
    RIGHT_SHIFT,
)
