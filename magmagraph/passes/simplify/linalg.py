"""Rules of linear algebra: replace inverses by solves, and use the structure of matrices.

Each is at least as accurate as what it replaces: a solution than a product with an inverse, a
triangular system than a general one, a logarithm of a determinant than a determinant that leaves
the range of floats. What `structure` cannot prove is not assumed. Where a factorization is no
longer needed, neither is its verdict: ``inv(inv(A))`` is A also where A is singular.
"""

from __future__ import annotations

import math

import numpy as np

from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.op import Kind
from ...ops.control.identities import ITEM
from ...ops.elementwise.arithmetic import MULTIPLY, multiply
from ...ops.elementwise.comparison import WHERE, less, where
from ...ops.elementwise.math import log
from ...ops.elementwise.signs import ABSOLUTE, absolute, sign
from ...ops.indexing.gathering import TAKE
from ...ops.indexing.iota import IOTA
from ...ops.linalg.determinant import DET, SLOGDET
from ...ops.linalg.factor import CHOLESKY
from ...ops.linalg.least import LSTSQ, LSTSQ_SOLUTION
from ...ops.linalg.parts import diagonal_of, identity
from ...ops.linalg.qr import QR
from ...ops.linalg.solve import INV, SOLVE
from ...ops.linalg.triangular import TRIANGULAR_SOLVE
from ...ops.products.contraction import MATMUL
from ...ops.reduction.primitives import SUM, prod, sum
from ...ops.rules.matrix_facts import Facts
from ...ops.shape.arrange import RESHAPE, expand_dims, reshape, swapaxes
from ...ops.shape.joining import BROADCAST_TO
from ...ops.shape.slicing import SLICE
from ..lowering.buffers import hinted
from ..rewriting.build import like, spread
from ..rewriting.pattern import P, wildcards
from ..rewriting.rewrite import Match, Rule
from .structure import facts, is_adjoint, is_square, masked, swaps_last_two, taken_diagonal

x, y = wildcards("x y")
IDENTITY = ~Facts.NONE
_INT32 = np.dtype(np.int32)


# Inverses.


def _inverted(node: Node) -> tuple[Node, Node] | None:
    """Return A and the node of its inverse where a node is inv(A), or its transpose (then Aᵀ)."""
    if node.op is INV:
        return node.inputs[0], node
    if swaps_last_two(node) and node.inputs[0].op is INV:
        inverse = node.inputs[0]
        return swapaxes(inverse.inputs[0], -1, -2), inverse
    return None


def _inverse_is_used(match: Match) -> str | None:
    for operand in match.root.inputs:
        inverted = _inverted(operand)
        if inverted is None:
            continue
        stack = [inverted[1]]
        while stack:
            readers = match.readers(stack.pop())
            if readers is None:
                return "the inverse itself is used"
            for reader in readers:
                if swaps_last_two(reader):
                    stack.append(reader)
                elif reader.op is not MATMUL:
                    return f"the inverse itself is used, by '{reader.op.name}'"
    return None


def _is_product_with_inverse(node: Node) -> bool:
    return any(_inverted(operand) is not None for operand in node.inputs)


def _product_with_inverse(match: Match) -> Node | None:
    left, right = match.root.inputs
    inverted = _inverted(left)
    if inverted is not None:
        return SOLVE(inverted[0], right)
    inverted = _inverted(right)
    if inverted is None:
        return None
    return swapaxes(SOLVE(swapaxes(inverted[0], -1, -2), swapaxes(left, -1, -2)), -1, -2)


def _inverse_of_product(match: Match) -> str | None:
    return "two inverses and a product are more work than one inverse"


def _inverse_of_solution(match: Match) -> Node | None:
    """(A⁻¹ B)⁻¹ = B⁻¹ A."""
    A, B = match.root.inputs[0].inputs
    return SOLVE(B, A) if is_square(B) and A.shape == B.shape else None


def _columns(node: Node, match: Match) -> int:
    return hinted(node.shape[-1], match.options.hints)


def _solution_of_product(match: Match) -> Node | None:
    """Solve for the thinner factor: A⁻¹ (P Q) = (A⁻¹ P) Q."""
    A, product = match.root.inputs
    if product.op is not MATMUL or match.reads(product) > 1:
        return None
    P_, Q = product.inputs
    if _columns(P_, match) >= _columns(Q, match) or P_.shape[:-2] != product.shape[:-2]:
        return None
    return MATMUL(SOLVE(A, P_), Q)


def _product_of_solution(match: Match) -> Node | None:
    """Multiply first where that leaves fewer columns to solve for: (A⁻¹ B) C = A⁻¹ (B C)."""
    solution, C = match.root.inputs
    if solution.op is not SOLVE or match.reads(solution) > 1:
        return None
    A, B = solution.inputs
    if _columns(C, match) >= _columns(B, match):
        return None
    return SOLVE(A, MATMUL(B, C))


# Triangles.


def _unmasked(node: Node, lower: bool) -> Node:
    """Return a matrix with the same triangle, without a mask that the solve does not need."""
    mask = masked(node)
    if mask is None or mask[0].shape != node.shape:
        return node
    return mask[0] if mask[1] == ((-math.inf, 0.0) if lower else (0.0, math.inf)) else node


def _triangle(A: Node) -> tuple[Node, bool, str] | None:
    """Return a matrix with A's triangle, which one that is, and how it is read."""
    structure = facts(A)
    if not structure & Facts.DIAGONAL:
        return None
    lower = Facts.LOWER in structure
    if swaps_last_two(A):
        return _unmasked(A.inputs[0], not lower), not lower, "T"
    return _unmasked(A, lower), lower, "N"


def _triangular(A: Node, b: Node) -> Node | None:
    triangle = _triangle(A)
    if triangle is None:
        return None
    matrix, lower, trans = triangle
    return TRIANGULAR_SOLVE(matrix, b, lower=lower, trans=trans, unit_diagonal=False)


def _not_triangular(match: Match) -> str | None:
    A = match.root.inputs[0]
    if facts(A) & Facts.DIAGONAL or A.op is MATMUL:
        return None
    if Facts.HERMITIAN in facts(A) and Facts.POSITIVE not in facts(A):
        return "the matrix is symmetric, but not known to be positive definite"
    return "the structure of the matrix is unknown"


def _solution(match: Match) -> Node | None:
    A, b = match.root.inputs
    if A.op is MATMUL and not facts(A) & Facts.DIAGONAL:
        left, right = A.inputs
        if not (is_square(left) and is_square(right)):
            return None
        outer = _triangular(left, b)
        return None if outer is None else _triangular(right, outer)
    return _triangular(A, b)


def _inverse(match: Match) -> Node | None:
    A = match.root.inputs[0]
    unit = spread(identity(A.shape[-1], A.dtype), A.shape)
    return _triangular(A, unit)


def _is_multiplied(match: Match) -> str | None:
    readers = match.readers(match.root)
    if readers and all(reader.op is MATMUL for reader in readers):
        return "its products become solves"
    return None


def _has_triangle(node: Node) -> bool:
    return bool(facts(node.inputs[0]) & Facts.DIAGONAL)


def _transposed_triangle(match: Match) -> Node | None:
    node = match.root
    A, b = node.inputs
    attrs = dict(node.attrs)
    if swaps_last_two(A) and attrs["trans"] in "NT":
        attrs["trans"] = "N" if attrs["trans"] == "T" else "T"
        return TRIANGULAR_SOLVE(A.inputs[0], b, **{**attrs, "lower": not attrs["lower"]})
    matrix = _unmasked(A, attrs["lower"])
    return None if matrix is A else TRIANGULAR_SOLVE(matrix, b, **attrs)


# Diagonals and determinants.


def diagonal(node: Node) -> Node:
    """Return the diagonals of square matrices, read from as little as can be."""
    while True:
        mask = masked(node)
        if swaps_last_two(node):
            node = node.inputs[0]
        elif mask is not None and mask[0].ndim >= 2 and mask[1][0] <= 0 <= mask[1][1]:
            chosen = mask[0]
            if 1 in chosen.shape[-2:]:
                return spread(reshape(chosen, _without_one(chosen)), node.shape[:-1])
            if chosen.shape != node.shape:
                return diagonal_of(node)
            node = chosen
        else:
            break
    order = node.shape[-1]
    if isinstance(order, Dim):
        return diagonal_of(node)
    flat = reshape(node, (*node.shape[:-2], order * order))
    batch = flat.ndim - 1
    return SLICE(
        flat,
        starts=(0,) * flat.ndim,
        steps=(*(1,) * batch, order + 1),
        shape=node.shape[:-1],
    )


def _without_one(node: Node) -> tuple[int | Dim, ...]:
    """Return a shape without the one of the last two extents that is 1."""
    *batch, rows, columns = node.shape
    return (*batch, rows) if columns == 1 else (*batch, columns)


def _no_triangle(match: Match) -> str | None:
    A = match.root.inputs[0]
    A = A.inputs[0] if A.op is SLOGDET else A
    diagonal = facts(A) & Facts.DIAGONAL
    if diagonal or (A.op is MATMUL and all(facts(i) & Facts.DIAGONAL for i in A.inputs)):
        return None
    return "the matrix is not known to be triangular"


def _determinant(match: Match) -> Node | None:
    A = match.root.inputs[0]
    if facts(A) & Facts.DIAGONAL:
        return prod(diagonal(A), axis=-1)
    left, right = A.inputs
    if not (is_square(left) and is_square(right)):
        return None
    shape = match.root.shape
    return spread(multiply(prod(diagonal(left), axis=-1), prod(diagonal(right), axis=-1)), shape)


def _logarithm(match: Match) -> Node | None:
    node = match.root
    A = node.inputs[0].inputs[0]
    factors = [A] if facts(A) & Facts.DIAGONAL else list(A.inputs)
    if not all(map(is_square, factors)):
        return None
    product: Node | None = None
    for factor in factors:
        elements = diagonal(factor)
        if node.attrs["index"] == 0:
            part = prod(sign(elements), axis=-1)
            product = part if product is None else multiply(product, part)
        else:
            part = sum(log(absolute(elements)), axis=-1)
            product = part if product is None else product + part
    assert product is not None
    return spread(product, node.shape)


def _looks_at_slogdet(node: Node) -> bool:
    return node.inputs[0].op is SLOGDET


def _log_of_determinant(match: Match) -> Node:
    both = SLOGDET(match.x)
    match.repair("a determinant beyond the range of floats has a logarithm within it")
    logarithm = ITEM(both, index=1)
    if match.root.inputs[0].op is ABSOLUTE:
        return logarithm
    return where(less(ITEM(both, index=0), 0), like(math.nan, match.root), logarithm)


# Products.


def _product_of_factors(match: Match) -> Node | None:
    """Replace L Lᵀ of a Cholesky factor, or Q R, by the matrix that was factored."""
    left, right = match.root.inputs
    if left.op is CHOLESKY and is_adjoint(left, right):
        A = left.inputs[0]
        if Facts.HERMITIAN in facts(A):
            return A
        # Only the lower triangle was read.
        order = A.shape[-1]
        down = IOTA(shape=(order, 1), axis=0, dtype=_INT32)
        across = IOTA(shape=(1, order), axis=1, dtype=_INT32)
        return where(less(down, across), swapaxes(A, -1, -2), A)
    same = left.op is right.op is ITEM and left.inputs[0] is right.inputs[0]
    if same and left.inputs[0].op is QR and left.attrs["index"] == 0 < right.attrs["index"]:
        return left.inputs[0].inputs[0]
    return None


def _factors_are_of_use(match: Match) -> str | None:
    for reader in match.readers(match.root) or ():
        if reader.op.kind is Kind.LINALG and match.root.inputs[0].op is CHOLESKY:
            return f"'{reader.op.name}' uses the factors"
    return None


def _looks_factored(node: Node) -> bool:
    return any(operand.op is CHOLESKY or operand.op is ITEM for operand in node.inputs)


def _diagonal_factor(match: Match) -> Node | None:
    """diag(v) A scales rows, A diag(v) columns; the identity does nothing."""
    left, right = match.root.inputs
    for scaling, other, axis in ((left, right, -1), (right, left, -2)):
        if not is_square(scaling):
            continue
        structure = facts(scaling)
        if Facts.DIAGONAL not in structure:
            continue
        match.repair("zeros off the diagonal times values that are not finite")
        if structure == IDENTITY:
            return spread(other, match.root.shape)
        scaled = multiply(other, expand_dims(diagonal(scaling), axis))
        return spread(scaled, match.root.shape)
    return None


def _looks_diagonal(node: Node) -> bool:
    return node.inputs[0].op is not MATMUL or node.inputs[1].op is not MATMUL


def _sum_over_diagonal(match: Match) -> Node | None:
    """diag(A B) takes the elements of A Bᵀ one by one: n² of n³ products; so does the trace."""
    node = match.root
    factors = _diagonal_product(node.inputs[0])
    axes: tuple[int, ...] = node.attrs["axes"]
    last = node.inputs[0].ndim - 1
    if factors is None or not (last in axes or last - 1 in axes):
        return None
    left, right = factors
    product = multiply(left, swapaxes(right, -1, -2))
    if product.shape[:-2] != node.inputs[0].shape[:-2] or node.attrs.get("keepdims"):
        return None
    # The sum over a row or a column of the diagonal matrix is its one element.
    inner = sum(product, axis=-1)
    rest = [axis for axis in axes if axis < last - 1]
    rest += [last - 1] if {last, last - 1} <= set(axes) else []
    result = sum(inner, axis=tuple(rest)) if rest else inner
    return result if result.type == node.type else None


def _diagonal_taken(match: Match) -> Node | None:
    product = taken_diagonal(match.root)
    if product is None or product.op is not MATMUL:
        return None
    left, right = product.inputs
    result = sum(multiply(left, swapaxes(right, -1, -2)), axis=-1)
    return result if result.type == match.root.type else None


def _looks_flat(node: Node) -> bool:
    return node.inputs[0].op is RESHAPE


def _diagonal_product(node: Node) -> tuple[Node, Node] | None:
    """Return A and B where a node is A B with all but its diagonal set to 0."""
    mask = masked(node)
    if mask is None or mask[1] != (0.0, 0.0) or mask[0].op is not MATMUL:
        return None
    product = mask[0]
    if product.shape != node.shape or not is_square(product):
        return None
    return product.inputs[0], product.inputs[1]


def _looks_masked(node: Node) -> bool:
    return node.inputs[0].op is WHERE


# Least squares.


def _solution_alone(match: Match) -> Node | None:
    """Find x by QR where nothing reads the rank and the singular values, which cost more."""
    A, b = match.root.inputs[0].inputs
    return LSTSQ_SOLUTION(A, b, rcond=match.root.inputs[0].attrs["rcond"])


def _rank_is_used(match: Match) -> str | None:
    readers = match.readers(match.root.inputs[0])
    if readers is None or any(reader.attrs.get("index") for reader in readers):
        return "the rank or the singular values are used"
    return None


def _looks_at_least_squares(node: Node) -> bool:
    return node.inputs[0].op is LSTSQ and node.attrs["index"] == 0


# Kronecker's product.


def _kronecker(match: Match) -> Node | None:
    """(A ⊗ B) X is B X' Aᵀ for the columns of X as matrices X'."""
    left, right = match.root.inputs
    factors = _kronecker_factors(left)
    if factors is None or right.ndim != 2 or match.reads(left) > 1:
        return None
    A, B = factors
    n, (p, q), count = A.shape[1], B.shape, right.shape[1]
    inner = MATMUL(B, reshape(right, (n, q, count)))
    return reshape(MATMUL(A, reshape(inner, (n, p * count))), match.root.shape)


def _kronecker_factors(node: Node) -> tuple[Node, Node] | None:
    """Return the two matrices whose every product of elements a matrix has, in blocks."""
    if node.op is not RESHAPE or node.inputs[0].op is not MULTIPLY or node.inputs[0].ndim != 4:
        return None
    m, p, n, q = node.inputs[0].shape
    if node.shape != (m * p, n * q):
        return None
    sides: dict[str, Node] = {}
    for operand in node.inputs[0].inputs:
        if operand.op is BROADCAST_TO:
            operand = operand.inputs[0]
        source = operand.inputs[0] if operand.op is RESHAPE else operand
        if operand.shape == (m, 1, n, 1):
            sides["A"] = reshape(source, (m, n))
        elif operand.shape in ((1, p, 1, q), (p, 1, q)):
            sides["B"] = reshape(source, (p, q))
    return (sides["A"], sides["B"]) if len(sides) == 2 else None


def _looks_kronecker(node: Node) -> bool:
    return node.inputs[0].op is RESHAPE


RULES = [
    Rule("inverse of an inverse", P.inv(P.inv(x)), lambda m: m.x, complex=True),
    Rule(
        "product with an inverse", (MATMUL,), _product_with_inverse, _inverse_is_used,
        looks=_is_product_with_inverse, complex=True,
    ),
    Rule("solve with an inverse", P.solve(P.inv(x), y), lambda m: MATMUL(m.x, m.y),
         complex=True),
    Rule("inverse of a solve", P.inv(P.solve(x, y)), _inverse_of_solution, complex=True),
    Rule("inverse of a product", P.inv(P.matmul(x, y)), lambda m: None, _inverse_of_product,
         complex=True),
    Rule("inverse product to solve", (SOLVE,), _solution_of_product, complex=True),
    Rule("product before a solve", (MATMUL,), _product_of_solution, complex=True),
    Rule(
        "product of the factors of a matrix", (MATMUL,), _product_of_factors, _factors_are_of_use,
        looks=_looks_factored,
    ),
    Rule("product with a diagonal matrix", (MATMUL,), _diagonal_factor, looks=_looks_diagonal),
    Rule("least squares without the rank", (ITEM,), _solution_alone, _rank_is_used,
         looks=_looks_at_least_squares, complex=True),
    Rule("solve with a triangular matrix", (SOLVE,), _solution, _not_triangular),
    Rule("inverse of a triangular matrix", (INV,), _inverse, _is_multiplied, looks=_has_triangle),
    Rule("solve with a transposed triangular matrix", (TRIANGULAR_SOLVE,), _transposed_triangle),
    Rule("determinant of a triangular matrix", (DET,), _determinant, _no_triangle),
    Rule("log-determinant of a triangular matrix", (ITEM,), _logarithm, _no_triangle,
         looks=_looks_at_slogdet),
    Rule("log of a determinant to log-determinant", P.log(P.absolute(P.det(x))),
         _log_of_determinant),
    Rule("log of a determinant to log-determinant", P.log(P.det(x)), _log_of_determinant),
    Rule("diagonal of a product", (SUM,), _sum_over_diagonal, looks=_looks_masked),
    Rule("diagonal of a product", (SLICE, TAKE), _diagonal_taken, looks=_looks_flat),
    Rule("product with a Kronecker product", (MATMUL,), _kronecker, looks=_looks_kronecker),
]
