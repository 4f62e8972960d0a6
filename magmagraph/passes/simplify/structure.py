"""Derive the structure of matrices (triangles, symmetry, definiteness) from their operations.

Operations on matrices say it in their records (`Linalg.facts`); sums, products, masks and moves are
looked through here. Nothing is assumed of values: ``B.T @ B`` is Hermitian, but positive definite
only if B has full rank, which no operation can promise; a product of Cholesky's factor with its
transpose is.
"""

from __future__ import annotations

import math

import numpy as np

from ...dtypes import is_complex
from ...ir.graph import Node
from ...ir.identity import WeakMap
from ...ir.types import Extent
from ...ops.control.identities import ITEM
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import ADD, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.elementwise.bits import BITWISE_AND, BITWISE_NOT, LOGICAL_AND, LOGICAL_NOT
from ...ops.elementwise.comparison import EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, WHERE
from ...ops.elementwise.complex_numbers import CONJ
from ...ops.indexing.gathering import TAKE
from ...ops.indexing.iota import IOTA
from ...ops.leaf import CONSTANT, EXTENT
from ...ops.products.contraction import MATMUL
from ...ops.rules.matrix_facts import Facts
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ...ops.shape.joining import BROADCAST_TO
from ...ops.shape.slicing import SLICE
from ..rewriting.pattern import uniform

DEEPEST = 12  # operations looked through
LARGEST = 1 << 16  # elements of a constant that are looked at

_known: WeakMap[Node, Facts] = WeakMap()


def facts(node: Node) -> Facts:
    """Return what holds of the matrices in the last two axes of a node."""
    structure = _known.get(node)
    if structure is None:
        structure = _known[node] = _Look().of(node, 0)
    return structure


def swaps_last_two(node: Node) -> bool:
    """Return whether a node is a transpose of just the last two axes."""
    if node.op is not TRANSPOSE or node.ndim < 2:
        return False
    axes: tuple[int, ...] = node.attrs["axes"]
    rest = len(axes) - 2
    return axes == (*range(rest), rest + 1, rest)


def is_adjoint(one: Node, other: Node) -> bool:
    """Return whether one of two nodes is the conjugate transpose of the other."""
    return _adjoint_of(one) is other or _adjoint_of(other) is one


def _adjoint_of(node: Node) -> Node | None:
    if node.op is CONJ:
        node = node.inputs[0]
        return node.inputs[0] if swaps_last_two(node) else None
    if not swaps_last_two(node):
        return None
    source = node.inputs[0]
    if source.op is CONJ:
        return source.inputs[0]
    return None if is_complex(source.dtype) else source


def is_square(node: Node) -> bool:
    """Return whether the last two extents are known to be equal."""
    return node.ndim >= 2 and node.shape[-1] == node.shape[-2]


class _Look:
    """One look at a node and what made it, some operations deep; each of these is seen once."""

    def __init__(self) -> None:
        self._seen: dict[Node, Facts] = {}

    def of(self, node: Node, depth: int) -> Facts:
        """Return the facts of a node at a depth of so many operations."""
        if isinstance(node.type, tuple) or node.ndim < 2 or depth == DEEPEST:
            return Facts.NONE
        structure = self._seen.get(node)
        if structure is None:
            structure = self._seen[node] = self._found(node, depth)
        return structure

    def _found(self, node: Node, depth: int) -> Facts:
        op = node.op
        if op is CONSTANT:
            return _of_constant(node)
        several = node.inputs[0] if op is ITEM else node
        if several.op.linalg.facts is not None:
            of_several: Facts | tuple[Facts, ...] = several.op.linalg.facts(
                several, lambda operand: self.of(operand, depth + 1)
            )
            return of_several[node.attrs["index"]] if isinstance(of_several, tuple) else of_several
        if op is MATMUL:
            return self._of_product(node, depth)
        if op is WHERE:
            return self._of_mask(node, depth)
        if op in (TRANSPOSE, CONJ, CAST, BROADCAST_TO, NEGATIVE, ADD, SUBTRACT, MULTIPLY, EQUAL):
            return self._of_elements(node, depth)
        return Facts.NONE

    def _of_product(self, node: Node, depth: int) -> Facts:
        left, right = node.inputs
        one, other = self.of(left, depth + 1), self.of(right, depth + 1)
        structure = one & other & (Facts.DIAGONAL | Facts.ORTHOGONAL | Facts.REGULAR)
        if is_adjoint(left, right):
            structure |= Facts.HERMITIAN
            if Facts.REGULAR in one | other:
                structure |= Facts.POSITIVE
        return structure

    def _of_mask(self, node: Node, depth: int) -> Facts:
        structure = Facts.NONE
        mask = masked(node)
        if mask is None:
            return structure
        chosen, (low, high) = mask
        structure |= Facts.LOWER if high <= 0 else Facts.NONE
        structure |= Facts.UPPER if low >= 0 else Facts.NONE
        if chosen.shape == node.shape:
            structure |= self.of(chosen, depth + 1) & Facts.DIAGONAL
        if structure & Facts.DIAGONAL == Facts.DIAGONAL and is_square(node):
            if not is_complex(node.dtype):
                structure |= Facts.HERMITIAN
            if uniform(chosen) == 1 and low <= 0 <= high:
                structure = ~Facts.NONE  # the identity
        return structure

    def _of_elements(self, node: Node, depth: int) -> Facts:
        op = node.op
        if op is EQUAL:
            return Facts.DIAGONAL if band_of(node) == (0, 0) else Facts.NONE
        if op is TRANSPOSE:
            if not swaps_last_two(node):
                return Facts.NONE
            return _mirrored(self.of(node.inputs[0], depth + 1))
        if op is MULTIPLY:
            # A factor for all of a matrix; elements of the other may not be finite, and are kept.
            for matrix, factor in (node.inputs, node.inputs[::-1]):
                if factor.shape == () and matrix.shape == node.shape:
                    kept = Facts.DIAGONAL
                    kept |= Facts.NONE if is_complex(factor.dtype) else Facts.HERMITIAN
                    return self.of(matrix, depth + 1) & kept
            return Facts.NONE
        operands = [operand for operand in node.inputs if operand.shape[-2:] == node.shape[-2:]]
        if len(operands) < len(node.inputs):
            return Facts.NONE
        structures = [self.of(operand, depth + 1) for operand in operands]
        if op is CAST:
            if node.inputs[0].op is EQUAL and is_square(node) and structures[0] == Facts.DIAGONAL:
                return ~Facts.NONE  # the identity
            return structures[0] & (Facts.DIAGONAL | Facts.HERMITIAN)
        if op is NEGATIVE:
            return structures[0] & ~Facts.POSITIVE
        if op in (ADD, SUBTRACT):
            both = Facts.DIAGONAL | Facts.HERMITIAN | (Facts.POSITIVE if op is ADD else Facts.NONE)
            even = op is ADD and is_adjoint(*operands)
            return structures[0] & structures[1] & both | (Facts.HERMITIAN if even else Facts.NONE)
        return structures[0]


def _of_constant(node: Node) -> Facts:
    value: np.ndarray = node.attrs["value"]
    if not 0 < value.size <= LARGEST:
        return Facts.NONE
    structure = Facts.NONE
    if not np.triu(value, 1).any():
        structure |= Facts.LOWER
    if not np.tril(value, -1).any():
        structure |= Facts.UPPER
    if is_square(node) and bool((value == np.swapaxes(value.conj(), -1, -2)).all()):
        structure |= Facts.HERMITIAN
        if structure & Facts.DIAGONAL == Facts.DIAGONAL:
            diagonal = np.diagonal(value, axis1=-2, axis2=-1)
            if value.dtype.kind != "b" and bool((diagonal.real > 0).all()):
                structure |= Facts.POSITIVE | Facts.REGULAR
            if bool((np.abs(diagonal) == 1).all()):
                structure |= Facts.ORTHOGONAL
    return structure


def _mirrored(structure: Facts) -> Facts:
    rest = structure & ~Facts.DIAGONAL
    rest |= Facts.UPPER if Facts.LOWER in structure else Facts.NONE
    return rest | (Facts.LOWER if Facts.UPPER in structure else Facts.NONE)


# Masks.

Band = tuple[float, float]


def masked(node: Node) -> tuple[Node, Band] | None:
    """Return the values of a node inside a band around the diagonal if it is 0 outside, or None.

    What it is may have fewer axes or extents of 1, as it broadcasts.
    """
    if node.op is not WHERE:
        return None
    condition, first, second = node.inputs
    for chosen, other, inside in ((first, second, True), (second, first, False)):
        if uniform(other) == 0:
            band = band_of(condition)
            if band is not None and not inside:
                band = _outside(band)
            return None if band is None else (chosen, band)
    return None


def _outside(band: Band) -> Band | None:
    """Return the band of all other elements, where these are one."""
    low, high = band
    if low == -math.inf and high != math.inf:
        return high + 1, math.inf
    return (-math.inf, low - 1) if high == math.inf and low != -math.inf else None


def band_of(condition: Node) -> Band | None:
    """Return the least and largest ``column - row`` at which a mask of positions holds, or None."""
    op = condition.op
    if op in (LOGICAL_AND, BITWISE_AND):
        parts = [band_of(operand) for operand in condition.inputs]
        if parts[0] is None or parts[1] is None:
            return None
        return max(parts[0][0], parts[1][0]), min(parts[0][1], parts[1][1])
    if op in (LOGICAL_NOT, BITWISE_NOT):
        inner = band_of(condition.inputs[0])
        return None if inner is None else _outside(inner)
    if len(condition.inputs) != 2:
        return None
    left, right = (_position(operand) for operand in condition.inputs)
    if left is None or right is None or left[0] == right[0]:
        return None
    gap = left[1] - right[1]  # of row + gap against column, or column + gap against row
    by_rows = left[0] == "row"
    if op is EQUAL:
        at = gap if by_rows else -gap
        return at, at
    strict = 1 if op in (GREATER, LESS) else 0
    if op in (GREATER, GREATER_EQUAL):
        return (-math.inf, gap - strict) if by_rows else (strict - gap, math.inf)
    if op in (LESS, LESS_EQUAL):
        return (gap + strict, math.inf) if by_rows else (-math.inf, -gap - strict)
    return None


def _position(node: Node) -> tuple[str, int] | None:
    """Return whether a node holds row or column positions, and the offset added to them."""
    if node.op is CAST and node.dtype.kind == "i":
        return _position(node.inputs[0])
    if node.op is IOTA and node.ndim >= 2:
        rows, columns = node.shape[-2:]
        from_end = node.ndim - node.attrs["axis"]
        if from_end == 2 and columns == 1:
            return "row", 0
        return ("column", 0) if from_end == 1 and rows == 1 else None
    if node.op is RESHAPE and node.ndim == 2 and node.inputs[0].op is IOTA:
        (*_, extent) = node.inputs[0].shape
        if node.inputs[0].ndim == 1 and node.shape in ((extent, 1), (1, extent)):
            return ("row" if node.shape[1] == 1 else "column"), 0
        return None
    if node.op in (ADD, SUBTRACT):
        first, second = node.inputs
        for part, added in ((first, second), (second, first)):
            number = uniform(added)
            if isinstance(number, int) and (node.op is ADD or added is second):
                position = _position(part)
                if position is not None:
                    return position[0], position[1] + (number if node.op is ADD else -number)
    return None


# Diagonals that are taken out.


def taken_diagonal(node: Node) -> Node | None:
    """Return the square matrices whose main diagonals a node is, or None."""
    if node.op is not SLICE and node.op is not TAKE:
        return None
    flat = node.inputs[0]
    if flat.op is not RESHAPE:
        return None
    matrix = flat.inputs[0]
    if not is_square(matrix) or node.shape != matrix.shape[:-1] or flat.ndim != node.ndim:
        return None
    order = matrix.shape[-1]
    if node.op is SLICE:
        steps: tuple[int, ...] = node.attrs["steps"]
        fits = steps == (*(1,) * (len(steps) - 1), order + 1) and not any(node.attrs["starts"])
        return matrix if fits else None
    positions = node.inputs[1]
    if node.attrs["axis"] != flat.ndim - 1 or not _steps_along(positions, order):
        return None
    return matrix


def _steps_along(positions: Node, order: Extent) -> bool:
    """Return whether positions are 0, n + 1, 2 (n + 1), ..."""
    if positions.op is MULTIPLY:
        return any(
            _is_count(count) and step.op is EXTENT and step.attrs["dim"] == order + 1
            for count, step in (positions.inputs, positions.inputs[::-1])
        )
    if positions.op is not ADD:
        return False
    return any(
        _is_count(count)
        and rows.op is MULTIPLY
        and any(
            part is count and step.op is EXTENT and step.attrs["dim"] == order
            for part, step in (rows.inputs, rows.inputs[::-1])
        )
        for rows, count in (positions.inputs, positions.inputs[::-1])
    )


def _is_count(node: Node) -> bool:
    return node.op is IOTA and node.ndim == 1
