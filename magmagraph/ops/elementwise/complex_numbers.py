"""Complex numbers: their parts, conjugates and angles, and numbers made of two parts.

Of real operands the functions cost nothing: a real number is its own real part and conjugate.

Gradient rules see cotangents ``c`` for which a change ``dz`` of a complex value changes the loss
by ``Re(sum(c * dz))``. Rules of holomorphic functions are then those of real ones, with no
conjugate in them. What users get and give (`mg.grad`, `mg.vjp`) is the conjugate of that, the
direction of steepest ascent ``dL/dRe(z) + i dL/dIm(z)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import complex_dtype, is_complex, real_dtype
from ...errors import DTypeError
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, WIDE, BadSample, Call, Composite, Kind, Op, Sample, Tests
from ...ir.types import Type
from ..convert import as_node, cast
from ..leaf import constant
from ..rules import onnx_pairs
from ..shape.joining import broadcast_to
from .comparison import equal, not_equal, where
from .family import BOOL, OTHER, REAL, ROW, WHOLE, inexact_pair, misfits, one_dtype

__all__ = ["complex", "conj", "imag", "iscomplex", "isreal", "real"]


def _part_type(call: Call, x: Type) -> Type:
    if not is_complex(x.dtype):
        raise call.dtype_error(f"operand of dtype {x.dtype.name}", need="a complex dtype")
    return Type(real_dtype(x.dtype), x.shape)


def _same_complex(call: Call, x: Type) -> Type:
    _part_type(call, x)
    return x


def zero_part(node: Node, dtype: np.dtype) -> Node:
    zero = constant(0, dtype=dtype)
    return broadcast_to(zero, node.shape) if node.shape else zero


def direction(x: Node, size: Node) -> Node:
    """Return ``conj(x) / abs(x)`` of a complex node, 0 where it is 0; `size` is its absolute."""
    none = equal(size, 0)
    return where(none, 0, conj(x) / cast(where(none, 1, size), x.dtype))


@documented
def real(x: Any) -> Node:
    """Take the real part.

    x: Node or array.
    returns: Of the shape of `x` and the dtype of its parts; `x` itself where it is real.

    >>> mg.real([1.0 + 2.0j, 3.0j]).eval()
    array([1., 0.], dtype=float32)
    """
    node = as_node(x)
    return REAL_PART(node) if is_complex(node.dtype) else node


@documented
def imag(x: Any) -> Node:
    """Take the imaginary part.

    x: Node or array.
    returns: Of the shape of `x` and the dtype of its parts; zeros where it is real.

    >>> mg.imag([1.0 + 2.0j, -3.0j]).eval()
    array([ 2., -3.], dtype=float32)
    """
    node = as_node(x)
    return IMAGINARY_PART(node) if is_complex(node.dtype) else zero_part(node, node.dtype)


@documented
def conj(x: Any) -> Node:
    """Take the complex conjugate: the imaginary part changes its sign.

    x: Node or array.
    returns: Of the shape and dtype of `x`; `x` itself where it is real.

    >>> mg.conj([1.0 + 2.0j, 3.0j]).eval()
    array([1.-2.j, 0.-3.j], dtype=complex64)
    """
    node = as_node(x)
    if not is_complex(node.dtype):
        return node
    return node.inputs[0] if node.op is CONJ else CONJ(node)


@documented
def complex(real: Any, imag: Any) -> Node:
    """Make complex numbers of their real and imaginary parts.

    real, imag: Nodes, arrays or numbers, broadcast against each other; ints become floats.
    returns: Of the broadcast shape; complex64 of float32, complex128 of float64.
    raises DTypeError: For 16-bit floats, of which there are no complex numbers, and for complex
        parts.

    >>> mg.complex([1.0, 2.0], -1.0).eval()
    array([1.-1.j, 2.-1.j], dtype=complex64)
    """
    return MAKE_COMPLEX(*inexact_pair(real, imag))


@documented
def iscomplex(x: Any) -> Node:
    """Tell where the imaginary part is not zero.

    x: Node or array.
    returns: Of the shape of `x`, bool. No gradient: boolean valued.

    >>> mg.iscomplex([1.0 + 2.0j, 3.0 + 0.0j]).eval()
    array([ True, False])
    """
    node = as_node(x)
    return not_equal(imag(node), 0) if is_complex(node.dtype) else zero_part(node, BOOL)


@documented
def isreal(x: Any) -> Node:
    """Tell where the imaginary part is zero.

    x: Node or array.
    returns: Of the shape of `x`, bool. No gradient: boolean valued.

    >>> mg.isreal([1.0 + 2.0j, 3.0 + 0.0j]).eval()
    array([False,  True])
    """
    node = as_node(x)
    if is_complex(node.dtype):
        return equal(imag(node), 0)
    return equal(zero_part(node, np.dtype(np.int8)), 0)


# Records of the parts. In the gradients c is the cotangent: dL = Re(c dz).


def part(
    name: str,
    doc: str,
    function: Callable[..., Node],
    evaluate: Callable[[Any, Any], Any],
    gradient: Callable[[Node, Node], tuple[Node]],
    reference: Callable[..., Any],
    rule: Callable[..., Type] = _part_type,
    numerics: str = "exact",
    onnx: Any = "",
) -> Op:
    """Make the record of one part of complex numbers."""
    return Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        doc=doc,
        onnx=onnx,
        rule=rule,
        evaluate=evaluate,
        gradient=gradient,
        function=function,
        dtypes=INEXACT,
        tests=Tests(
            samples=lambda: [Sample((REAL,)), Sample((ROW[0],)), Sample((np.zeros((0, 2)),))],
            reference=reference,
        ),
        numerics=numerics,
    )


REAL_PART = part(
    "real",
    "Take the real part.",
    real,
    lambda xp, x: x.real,
    lambda node, c: (cast(c, node.inputs[0].dtype),),
    np.real,
    onnx=onnx_pairs.Pairs("", onnx_pairs.part(0)),
)
IMAGINARY_PART = part(
    "imag",
    "Take the imaginary part.",
    imag,
    lambda xp, x: x.imag,
    lambda node, c: (cast(c, node.inputs[0].dtype) * -1.0j,),
    np.imag,
    onnx=onnx_pairs.Pairs("", onnx_pairs.part(1)),
)
CONJ = part(
    "conj",
    "Take the complex conjugate.",
    conj,
    lambda xp, x: xp.conj(x),
    lambda node, c: (conj(c),),
    np.conj,
    _same_complex,
    onnx=onnx_pairs.Pairs("", onnx_pairs.conjugate),
)


def _made_type(call: Call, re: Type, im: Type) -> Type:
    dtype = one_dtype(call, re, im)
    return Type(complex_dtype(dtype), call.broadcast(re.shape, im.shape))


def _from_parts(xp: Any, re: Any, im: Any) -> Any:
    dtype = np.complex128 if re.dtype == np.float64 else np.complex64
    result = xp.empty(np.broadcast_shapes(re.shape, im.shape), dtype=dtype)
    result.real, result.imag = re, im
    return result


MAKE_COMPLEX = Op(
    name="complex",
    kind=Kind.ELEMENTWISE,
    onnx=onnx_pairs.Pairs("", onnx_pairs.of_real),
    rule=_made_type,
    evaluate=_from_parts,
    # Re(c (da + i db)) is Re(c) da - Im(c) db.
    gradient=lambda node, c: (real(c), -imag(c)),
    function=complex,
    dtypes=WIDE,
    tests=Tests(
        samples=lambda: [Sample((REAL, OTHER)), Sample((REAL, ROW))],
        bad_samples=lambda: [
            *misfits("complex")(),
            BadSample(
                (REAL * (1.0 + 1.0j), OTHER),
                DTypeError,
                "complex: an operand of dtype complex128",
            ),
        ],
        reference=lambda re, im: re + 1.0j * im,
    ),
    numerics="exact",
)


def _test(name: str, doc: str, function: Callable[..., Node], reference: Any) -> Composite:
    return Composite(
        name=name,
        kind=Kind.ELEMENTWISE,
        function=function,
        doc=doc,
        dtypes=INEXACT,
        tests=Tests(
            samples=lambda: [
                Sample((REAL,)),
                Sample((np.array([1.0 + 0.0j, 2.0j, np.nan, np.nan * 1.0j]),)),
                Sample((WHOLE,)),
            ],
            reference=reference,
        ),
        numerics="exact",
        no_gradient="boolean valued",
    )


RECORDS: tuple[Op | Composite, ...] = (
    REAL_PART,
    IMAGINARY_PART,
    CONJ,
    MAKE_COMPLEX,
    _test("iscomplex", "Tell where the imaginary part is not zero.", iscomplex, np.iscomplex),
    _test("isreal", "Tell where the imaginary part is zero.", isreal, np.isreal),
)
