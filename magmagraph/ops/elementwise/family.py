"""How families of elementwise operations are made: a record and its function from one entry.

Some sixty functions of one operand and thirty of two differ only in their formula. `unary` and
`binary` make, from that formula and a few words, the `Op` and the public function with its full
docstring and signature, so that an operation is one entry in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any, Protocol
from typing import cast as typed_as

import numpy as np

from ...config import config
from ...dtypes import is_complex, is_inexact
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import dedented, documented
from ...ir.graph import Node
from ...ir.op import (
    INEXACT,
    BadSample,
    Call,
    Kind,
    Op,
    Precision,
    Sample,
    Scalar,
    ScalarRule,
    Tests,
    describe,
)
from ...ir.op import REAL as FLOATS
from ...ir.types import Type
from ..convert import as_node, cast, converted, promoted

BOOL = np.dtype(bool)
Gradient = Callable[[Node, Node], Sequence[Node | None]]


class Unary(Protocol):
    """A function of one operand, as users call it; tests of values have no options."""

    def __call__(self, x: Any, *, dtype: Any = None, casting: str = "same_kind") -> Node:
        """Compute it."""


class Binary(Protocol):
    """A function of two operands, as users call it; comparisons have no options."""

    def __call__(self, x: Any, y: Any, *, dtype: Any = None, casting: str = "same_kind") -> Node:
        """Compute it."""


# Shape and dtype rules.


def like_operand(call: Call, x: Type, **attrs: Any) -> Type:
    """Return the operand's own type."""
    return x


def like_float(call: Call, x: Type, **attrs: Any) -> Type:
    """Return the operand's own type, a float's (or complex, where the operation takes that)."""
    if not is_inexact(x.dtype):
        raise call.dtype_error(f"operand of dtype {x.dtype.name}", need="a float dtype")
    return x


def like_number(call: Call, x: Type, **attrs: Any) -> Type:
    """Return the operand's own type, which must not be bool."""
    if x.dtype == BOOL:
        raise call.dtype_error("operand of dtype bool", need="a number", hint="mg.logical_not(x)")
    return x


def one_dtype(call: Call, *operands: Type) -> np.dtype:
    """Return the dtype that all operands share; operations never convert by themselves."""
    dtype = operands[0].dtype
    for operand in operands[1:]:
        if operand.dtype != dtype:
            raise call.dtype_error(
                f"operands of dtypes {dtype.name} and {operand.dtype.name}",
                need="one dtype",
                hint="mg.cast, or the public function, which promotes",
            )
    return dtype


def broadcast(call: Call, *operands: Type) -> Type:
    """Return the operands' common dtype and broadcast shape."""
    return Type(one_dtype(call, *operands), call.broadcast(*[t.shape for t in operands]))


def broadcast_floats(call: Call, *operands: Type) -> Type:
    """Return the broadcast type of float operands."""
    like_float(call, operands[0])
    return broadcast(call, *operands)


def broadcast_numbers(call: Call, *operands: Type) -> Type:
    """Return the broadcast type of operands that are not bool."""
    like_number(call, operands[0])
    return broadcast(call, *operands)


def to_bool(call: Call, *operands: Type) -> Type:
    """Return bool, in the broadcast shape."""
    one_dtype(call, *operands)
    return Type(BOOL, call.broadcast(*[t.shape for t in operands]))


# Operands of public functions.


def inexact(x: Any) -> Node:
    """Return `x` as a float or complex node; ints and bools become `mg.config.float_dtype`."""
    node = as_node(x)
    return node if is_inexact(node.dtype) else cast(x, config.float_dtype)


def floating(x: Any) -> Node:
    """Return `x` as a float node; ints and bools become `mg.config.float_dtype`.

    Complex operands are refused: this is for functions that have no meaning for them.
    """
    return _real(inexact(x))


def _real(node: Node) -> Node:
    if is_complex(node.dtype):
        raise DTypeError(
            message(
                f"an operand is complex: {describe(node)}",
                need="a real one: the function is not defined for complex numbers",
                hint="mg.real(x), mg.imag(x) or mg.absolute(x)",
            )
        )
    return node


def truth(x: Any) -> Node:
    """Return `x` as a bool node: true where not zero."""
    node = as_node(x)
    return node if node.dtype == BOOL else cast(node, BOOL)


def pair(x: Any, y: Any) -> tuple[Node, ...]:
    """Return two operands as nodes of one dtype."""
    if isinstance(x, Node) and isinstance(y, Node) and x.dtype == y.dtype:
        return x, y
    return promoted(x, y)


def floating_operands(*operands: Any) -> tuple[Node, ...]:
    """Return operands as nodes of one float dtype; complex ones are refused."""
    return tuple(map(_real, inexact_operands(*operands)))


def inexact_operands(*operands: Any) -> tuple[Node, ...]:
    """Return operands as nodes of one float or complex dtype.

    They are promoted first, and only then made floats: an int64 beside a float64 keeps its digits.
    """
    nodes = pair(*operands) if len(operands) == 2 else promoted(*operands)
    if is_inexact(nodes[0].dtype):
        return nodes
    return tuple(cast(value, config.float_dtype) for value in operands)


def floating_pair(x: Any, y: Any) -> tuple[Node, ...]:
    """Return two operands as nodes of one float dtype; complex ones are refused."""
    return floating_operands(x, y)


def inexact_pair(x: Any, y: Any) -> tuple[Node, ...]:
    """Return two operands as nodes of one float or complex dtype."""
    return inexact_operands(x, y)


def number_pair(x: Any, y: Any) -> tuple[Node, ...]:
    """Return two operands as nodes of one dtype, bools as int8 (as NumPy does)."""
    nodes = pair(x, y)
    if nodes[0].dtype != BOOL:
        return nodes
    return tuple(cast(node, np.int8) for node in nodes)


def _computed_in(name: str, target: Node, *nodes: Node) -> tuple[Node, ...]:
    """Return operands, or raise if the function does not take the target's dtype."""
    if nodes[0].dtype != target.dtype:
        raise DTypeError(
            message(
                f"{name}: dtype={target.dtype.name}, in which it is not computed",
                need=f"a dtype such as {nodes[0].dtype.name}",
                hint=f"mg.cast of the result to {target.dtype.name}",
            )
        )
    return nodes


_SPECIAL = {"cupy": "cupyx.scipy.special"}


def special(name: str) -> Callable[..., Any]:
    """Return an array expression that calls a function of SciPy (or CuPy's copy of it)."""

    def evaluate(xp: Any, *operands: Any) -> Any:
        # By the operands and not by xp, which may be a stand-in for NumPy.
        library = type(operands[0]).__module__.partition(".")[0]
        functions = import_module(_SPECIAL.get(library, "scipy.special"))
        return getattr(functions, name)(*operands)

    return evaluate


def numpy_named(name: str) -> Callable[..., Any]:
    """Return an array expression that calls the function of that name in NumPy or CuPy."""

    def evaluate(xp: Any, *operands: Any) -> Any:
        return getattr(xp, name)(*operands)

    return evaluate


def scipy_named(name: str) -> Callable[..., Any]:
    """Return a reference function of SciPy, imported at its first use."""

    def reference(*operands: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*operands)

    return reference


# Samples. Values lie away from kinks, poles and ties, so that differences may be compared.

REAL = np.array([[-1.7, -0.6, 0.3], [0.8, 1.2, 2.1]])
POSITIVE = np.array([[0.2, 0.7, 1.4], [2.5, 3.1, 6.0]])
UNIT = np.array([[-0.9, -0.55, -0.1], [0.25, 0.5, 0.85]])
OTHER = np.array([[0.9, -1.3, 1.6], [-0.4, 2.2, -0.7]])
ROW = np.array([0.6, 1.5, -0.8])
WHOLE = np.array([[-7, -2, 3], [5, 1, 8]], dtype=np.int32)
OTHER_WHOLE = np.array([[2, 3, -2], [-3, 4, 5]], dtype=np.int32)
FLAGS = np.array([[True, False, True], [False, False, True]])
OTHER_FLAGS = np.array([[True, True, False], [False, True, True]])

MISFIT = (np.ones((2, 3)), np.ones((2, 4)))


def misfits(name: str) -> Callable[[], list[BadSample]]:
    """Return the bad sample of every function of two operands: shapes that do not broadcast."""
    text = f"{name}: extents 3 and 4 do not broadcast (axis -1)"
    return lambda: [BadSample(MISFIT, ShapeError, text)]


# Functions.


def publish(
    function: Callable[..., Node], name: str, module: str, *parts: str
) -> Callable[..., Any]:
    """Give a generated function the name, the module and the docstring of a written one.

    The docstring is a short one (`documented`), in parts: the summary, notes, fields, the example.
    """
    assert isinstance(function, FunctionType)
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__doc__ = "\n\n".join([dedented(part) for part in parts if part])
    return documented(function)


def unary(
    name: str,
    summary: str,
    example: str,
    *,
    module: str,
    evaluate: Callable[..., Any],
    scalar: ScalarRule,
    gradient: Gradient | None = None,
    no_gradient: str = "",
    notes: str = "",
    samples: Callable[[], Sequence[Sample]] | None = None,
    reference: Callable[..., Any] | None = None,
    rule: Callable[..., Type] = like_float,
    operand: Callable[[Any], Node] = floating,
    numerics: str = "stable",
    dtypes: tuple[str, ...] = FLOATS,
    precision: str = "",
    epilogue: str = "",
    sharding: str = "",
    onnx: str | Callable[..., Any] = "",
    of_complex: Callable[[Node], Node] | None = None,
) -> tuple[Unary, Op]:
    """Make a function of one operand and its record.

    Parameters
    ----------
    name, summary, example, notes
        What the docstring is made of; `example` is doctest text without the import.
    module
        ``__name__`` of the calling module.
    operand
        Turns the argument into a node (`floating`, or `as_node` where ints stay ints).
    evaluate, scalar, gradient, no_gradient, samples, reference, rule, numerics, dtypes, precision,
    epilogue, onnx
        Fields of the record; see `Op`. Default samples: `REAL`; default reference: the array
        expression in float64.
    of_complex
        Computes the function of complex numbers, where the operation itself takes real ones only.
    """
    if operand is floating and dtypes == INEXACT:
        operand = inexact

    def applied(node: Node) -> Node:
        return of_complex(node) if of_complex and is_complex(node.dtype) else op(node)

    def function(x: Any, *, dtype: Any = None, casting: str = "same_kind") -> Node:
        if dtype is None:
            return applied(operand(x))
        (node,) = converted(name, (x,), dtype, casting)
        return applied(*_computed_in(name, node, operand(node)))

    def test(x: Any) -> Node:
        return op(operand(x))

    public = test if rule is to_bool else function
    kind = "Node or array."
    if operand in (floating, inexact):
        kind = "Node or array; ints become floats."
    inexact_words = "float or complex" if dtypes == INEXACT else "float"
    returns = {
        like_float: f"Of the shape and {inexact_words} dtype of `x`.",
        to_bool: "Of the shape of `x`, bool.",
    }.get(rule, "Of the shape and dtype of `x`.")
    if no_gradient:
        notes = f"{notes}\n\nNo gradient: {no_gradient}.".strip()
    publish(public, name, module, summary, notes, f"x: {kind}\nreturns: {returns}", example)
    op = Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        doc=summary,
        rule=rule,
        evaluate=evaluate,
        scalar=Scalar(scalar, epilogue=epilogue),
        gradient=gradient,
        no_gradient=no_gradient,
        function=public,
        tests=Tests(
            samples=samples or (lambda: [Sample((REAL,))]),
            reference=reference or (lambda x: evaluate(np, x)),
        ),
        numerics=numerics,
        dtypes=dtypes,
        precision=Precision(precision),
        sharding=sharding,
        onnx=onnx,
    )
    return typed_as(Unary, public), op


def binary(
    name: str,
    summary: str,
    example: str,
    *,
    module: str,
    evaluate: Callable[..., Any],
    scalar: ScalarRule,
    gradient: Gradient | None = None,
    no_gradient: str = "",
    notes: str = "",
    samples: Callable[[], Sequence[Sample]] | None = None,
    bad_samples: Callable[[], Sequence[BadSample]] | None = None,
    reference: Callable[..., Any] | None = None,
    rule: Callable[..., Type] = broadcast,
    operands: Callable[[Any, Any], tuple[Node, ...]] = pair,
    commutative: bool = False,
    numerics: str = "stable",
    dtypes: tuple[str, ...] = FLOATS,
    precision: str = "",
    epilogue: str = "",
    sharding: str = "",
    onnx: str | Callable[..., Any] = "",
) -> tuple[Binary, Op]:
    """Make a function of two broadcast operands and its record; see `unary`."""
    if operands is floating_pair and dtypes == INEXACT:
        operands = inexact_pair

    def function(x: Any, y: Any, *, dtype: Any = None, casting: str = "same_kind") -> Node:
        if dtype is None:
            return op(*operands(x, y))
        nodes = converted(name, (x, y), dtype, casting)
        return op(*_computed_in(name, nodes[0], *operands(*nodes)))

    def test(x: Any, y: Any) -> Node:
        return op(*operands(x, y))

    public = test if rule is to_bool else function
    kind = "Nodes, arrays or numbers, broadcast against each other."
    returns = "Of the broadcast shape, "
    if rule is to_bool:
        returns += "bool."
    elif rule is broadcast_floats:
        inexact_words = "float or complex" if dtypes == INEXACT else "float"
        returns += f"and the promoted {inexact_words} dtype (ints become floats)."
    else:
        returns += "and the promoted dtype."
    if no_gradient:
        notes = f"{notes}\n\nNo gradient: {no_gradient}.".strip()
    publish(public, name, module, summary, notes, f"x, y: {kind}\nreturns: {returns}", example)
    op = Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        doc=summary,
        rule=rule,
        evaluate=evaluate,
        scalar=Scalar(scalar, epilogue=epilogue, commutative=commutative),
        gradient=gradient,
        no_gradient=no_gradient,
        function=public,
        tests=Tests(
            samples=samples or (lambda: [Sample((REAL, OTHER)), Sample((REAL, ROW))]),
            bad_samples=bad_samples or misfits(name),
            reference=reference or (lambda x, y: evaluate(np, x, y)),
        ),
        numerics=numerics,
        dtypes=dtypes,
        precision=Precision(precision),
        sharding=sharding,
        onnx=onnx,
    )
    return typed_as(Binary, public), op
