"""How Python values, arrays and nodes of different dtypes become operands of one dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..config import config
from ..dtypes import (
    FLOATS,
    canonical,
    holds,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    promote,
    real_dtype,
    weak_dtype,
)
from ..errors import ConfigError, DTypeError, message
from ..ir.dims import Dim
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.op import INEXACT, BadSample, Call, Kind, Op, Sample, Scalar, Tests, describe
from ..ir.types import Type
from .leaf import constant, natural_dtype
from .rules import onnx_forms, onnx_pairs

_SCALARS = (bool, int, float, complex)
_WIDE_SCALARS = (np.float64, np.int64, np.uint64, np.complex128)  # what NumPy makes by default


def _cast_type(call: Call, x: Type, *, dtype: np.dtype) -> Type:
    if is_complex(x.dtype) and (is_float(dtype) or is_integer(dtype)):
        raise call.dtype_error(
            f"{x.dtype.name} to {dtype.name} would lose the imaginary part",
            need="a complex dtype or bool",
            hint="mg.real(x), mg.imag(x) or mg.absolute(x)",
        )
    return Type(dtype, x.shape)


def _cast_gradient(node: Node, cotangent: Node) -> tuple[Node | None]:
    source = node.inputs[0]
    if not (is_inexact(source.dtype) and is_inexact(node.dtype)):
        return (None,)
    if is_complex(node.dtype) and not is_complex(source.dtype):
        cotangent = cotangent.real
    return (cast(cotangent, source.dtype),)


@documented
def cast(x: Any, dtype: Any) -> Node:
    """Convert `x` to another dtype, element by element.

    Floats to ints truncate toward zero; what is out of range becomes the nearest end of the range,
    and NaN becomes 0, on every device (NumPy's result depends on the processor). Ints to narrower
    ints keep the low bits; to bool, nonzero is true. The gradient is converted back (that of a
    float made complex is the real part); none flows through an integer.

    x: Node or array of any shape. Python numbers, also in lists, are rounded once, to `dtype`.
    dtype: The wanted dtype.
    raises DTypeError: From complex to float or integer, which would lose the imaginary part.

    >>> mg.cast(mg.constant([1.7, -1.7]), "int32").eval()
    array([ 1, -1], dtype=int32)
    """
    target = canonical(dtype)
    node = x if isinstance(x, Node) else _before_cast(x, target)
    return node if node.dtype == target else CAST(node, dtype=target)


def _before_cast(value: Any, dtype: np.dtype) -> Node:
    """Return a value as the node that is cast to a dtype: Python numbers with all their digits."""
    if not isinstance(value, (*_SCALARS, list, tuple)) or isinstance(value, np.generic):
        return constant(value)
    if isinstance(value, (int, float)) and is_inexact(dtype):
        return constant(value, dtype)
    if isinstance(value, int) and is_integer(dtype) and holds(dtype, value):
        return constant(value, dtype)
    natural = natural_dtype(value)
    if is_inexact(dtype) and not (is_complex(natural) and is_float(dtype)):
        return constant(value, dtype)
    if is_inexact(natural):  # truncated to integers, or complex and refused by the cast
        return constant(value, promote(natural, FLOATS[0]))
    return constant(value)


def _converted(xp: Any, x: Any, *, dtype: np.dtype) -> Any:
    x = x if hasattr(x, "astype") else xp.asarray(x)
    if not (is_float(x.dtype) and is_integer(dtype)):
        return x.astype(dtype)
    if x.dtype.itemsize < 4:
        x = x.astype(np.float32)  # in which the ends of all ranges are finite
    ends = np.iinfo(dtype)
    low, high = float(ends.min), 2.0 * float(ends.max // 2 + 1)
    inside = xp.where((x > low) & (x < high), x, 0).astype(dtype)
    ended = xp.where(x >= high, dtype.type(ends.max), inside)
    return xp.where(x <= low, dtype.type(ends.min), ended)


CAST = Op(
    name="cast",
    kind=Kind.ELEMENTWISE,
    rule=_cast_type,
    evaluate=_converted,
    scalar=Scalar(
        "a",  # generated kernels convert where the dtypes of operand and result differ
    ),
    gradient=_cast_gradient,
    sharding="linear",
    function=cast,
    dtypes=INEXACT,
    tests=Tests(
        samples=lambda: [
            Sample((np.linspace(-2.0, 2.0, 6).reshape(2, 3),), {"dtype": "complex128"}),
            Sample((np.arange(3, dtype=np.int32),), {"dtype": "float32"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (np.array([1.0 + 2.0j]),),
                DTypeError,
                "cast: complex128 to float32 would lose the imaginary part",
                {"dtype": "float32"},
            )
        ],
        reference=lambda x, dtype: np.asarray(x).astype(dtype),
    ),
    onnx=onnx_pairs.Pairs(onnx_forms.cast, onnx_pairs.cast),
)


def as_node(value: Any, like: np.dtype | None = None) -> Node:
    """Return `value` as a node.

    With `like`, the dtype that the value meets, a Python scalar is weak and takes its dtype from
    it, and so does a NumPy scalar of 64 bits; lists of floats have the wider of theirs and `like`.
    Without `like` they are rounded to `config.float_dtype`: functions that know the dtype, or find
    it from other operands, pass it on, or leave the value as it is to `cast` or `promoted`.
    """
    if isinstance(value, Node):
        return value
    if like is not None:
        value = weak_scalar(value)
        if type(value) in _SCALARS:
            return constant(value, dtype=weak_dtype(value, like, config.float_dtype))
        if isinstance(value, (list, tuple)):
            natural = natural_dtype(value)
            if is_inexact(natural) and is_inexact(like):
                return constant(value, promote(natural, real_dtype(like)))
    return constant(value)


def weak_scalar(value: Any) -> Any:
    """Return a NumPy scalar of 64 bits as the Python number, which is weak; others as they are.

    NumPy's functions of Python numbers return such scalars. ``x / np.sqrt(400)`` would compute
    everything after it in float64, where x is float32.

    Examples
    --------
    >>> weak_scalar(np.sqrt(400)), weak_scalar(np.float32(2.0))
    (20.0, np.float32(2.0))
    """
    return value.item() if type(value) in _WIDE_SCALARS else value


def as_operand(value: Any, dtype: Any) -> Node:
    """Return `value` as a node for a function that later casts to `dtype`, unless that is None."""
    return as_node(value, None if dtype is None else canonical(dtype))


def as_dtype(value: Any, dtype: np.dtype) -> Node:
    """Return `value` cast to the target's dtype; a Python int has to fit."""
    as_node(value, dtype)  # which refuses an int that does not
    return cast(value, dtype)


def _own_dtype(value: Any) -> np.dtype:
    """Return the dtype of an operand that is no node and no Python scalar."""
    if not isinstance(value, (list, tuple, str, bytes)):
        with contextlib.suppress(DTypeError):  # of no numbers: `constant` says of what
            return canonical(np.asarray(value).dtype)
    return natural_dtype(value)


def promoted(*values: Any) -> tuple[Node, ...]:
    """Return the operands as nodes of one dtype: promotion by the rules of the public API."""
    strong: list[np.dtype] = []
    weak: list[Any] = []
    sized = False
    wide: list[Any] = []
    for v in values:
        if isinstance(v, Node):
            strong.append(v.dtype)
        elif type(v) in _SCALARS:
            weak.append(v)
        elif type(v) is Dim:
            sized = True
        elif type(v) in _WIDE_SCALARS:
            wide.append(v)
        else:
            strong.append(_own_dtype(v))
    if wide and (strong or sized):
        weak += map(weak_scalar, wide)
        values = tuple(map(weak_scalar, values))
    if not strong:
        common = promote(*map(natural_dtype, values))
    else:
        common = promote(*strong) if len(strong) > 1 else strong[0]
        for v in weak:
            common = promote(common, weak_dtype(v, common, config.float_dtype))
        if sized:
            common = promote(common, np.dtype(np.int64))
    return tuple([cast(v, common) for v in values])


def converted(
    name: str, operands: Sequence[Any], dtype: Any, casting: str
) -> tuple[Node, ...]:
    """Return operands in the dtype that the user wants, where NumPy's rule of casts allows it.

    raises DTypeError: If it does not.
    raises ConfigError: If there is no such rule.
    """
    if casting not in _CASTING:
        raise ConfigError(
            message(f"{name}: casting={casting!r}", need=f"one of {', '.join(_CASTING)}")
        )
    nodes = tuple(map(as_node, operands))
    if dtype is None:
        return nodes
    target = canonical(dtype)
    for node in nodes:
        if not _casts(node.dtype, target, casting):
            raise DTypeError(
                message(
                    f"{name}: {describe(node)} is not cast to {target.name} by "
                    f"casting={casting!r}",
                    need="a dtype that holds the operands",
                    hint=f"mg.cast(x, '{target.name}'), or casting='unsafe'",
                )
            )
    return tuple(cast(operand, target) for operand in operands)


_CASTING = ("no", "equiv", "safe", "same_kind", "unsafe")


def _casts(source: np.dtype, target: np.dtype, casting: Any) -> bool:
    if source == target or casting == "unsafe":
        return True
    # NumPy has no rule for bfloat16, which is as wide as float16 and holds other numbers.
    half = np.dtype(np.float16)
    plain = [half if dtype.name == "bfloat16" else dtype for dtype in (source, target)]
    if plain[0] == plain[1]:
        return bool(casting == "same_kind")
    return bool(np.can_cast(plain[0], plain[1], casting))


RECORDS = (CAST,)
