"""einsum: sums of products by index letters, lowered to matmul, multiply, sum and transposes.

Operands are contracted two at a time. A pair becomes one batched matrix product where it has axes
to sum over and axes to keep on both sides, and a product with a sum otherwise, which fuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import cast, promoted
from ..elementwise.arithmetic import multiply
from ..elementwise.comparison import equal, where
from ..indexing.iota import IOTA
from ..reduction.primitives import SUM
from ..shape.arrange import reshape, transpose
from .contraction import MATMUL

__all__ = ["einsum"]

# The assumed size of a named extent in choosing the order of products.
_TYPICAL = 64

Labels = tuple[str, ...]


class Term:
    """An operand, and the label of each of its axes."""

    __slots__ = ("labels", "node")

    def __init__(self, node: Node, labels: Labels) -> None:
        self.node = node
        self.labels = labels


# Reading the subscripts.


def _parse(call: Call, subscripts: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand and of the result; those of an ellipsis are '.0', ..."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    parts = inputs.split(",")
    if len(parts) != len(ranks):
        raise call.shape_error(
            f"'{subscripts}' names {len(parts)} operands, {len(ranks)} are given"
        )
    labels = [_read(call, part, rank) for part, rank in zip(parts, ranks, strict=True)]
    seen = [label for term in labels for label in term]
    dots = sorted({label for label in seen if label[0] == "."}, key=lambda dot: -int(dot[1:]))
    if not arrow:
        letters = sorted({label for label in seen if seen.count(label) == 1 and label[0] != "."})
        return labels, (*dots, *letters)
    result = tuple(
        label for piece in _pieces(call, output) for label in (dots if piece == "..." else [piece])
    )
    for label in result:
        if label not in seen:
            raise call.shape_error(f"the result's label '{label}' is in no operand")
        if result.count(label) > 1:
            raise call.shape_error(f"the result has the label '{label}' twice", need="it once")
    if set(dots) - set(result):
        raise call.shape_error("the axes of '...' are not in the result", hint="'->...' keeps them")
    return labels, result


def _pieces(call: Call, text: str) -> list[str]:
    """Split one operand's subscripts into letters and '...'."""
    head, dots, tail = text.partition("...")
    letters = [*head, *tail]
    for letter in letters:
        if not letter.isalpha():
            raise call.shape_error(
                f"'{letter}' in '{text}' is not a label", need="letters, ',', '->' and '...'"
            )
    return [*head, "...", *tail] if dots else letters


def _read(call: Call, text: str, rank: int) -> Labels:
    pieces = _pieces(call, text)
    label_count = len(pieces) - ("..." in pieces)
    if label_count > rank or ("..." not in pieces and label_count != rank):
        raise call.shape_error(
            f"'{text}' labels {label_count} axes, the operand has {rank}",
            need="a label for each axis, or '...'",
        )
    # Counted from the right, as broadcasting aligns them.
    dots = [f".{i}" for i in reversed(range(rank - label_count))]
    return tuple(label for p in pieces for label in (dots if p == "..." else [p]))


def _extents(call: Call, terms: Iterable[Term]) -> dict[str, Extent]:
    """Return each label's extent; axes of extent 1 broadcast, as in NumPy."""
    extents: dict[str, Extent] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.node.shape, strict=True):
            other = extents.get(label, 1)
            if _is_one(other):
                extents[label] = extent
            elif not _is_one(extent):
                extents[label] = call.unify(other, extent, f"extents of label '{label}'")
    return extents


def _is_one(extent: Extent) -> bool:
    return isinstance(extent, int) and extent == 1


# One operand.


def _sum(node: Node, axes: Iterable[int]) -> Node:
    """Return a sum that keeps the dtype (where the public function widens integers)."""
    in_order = tuple(sorted(axes))
    return SUM(node, axes=in_order) if in_order else node


def _without_repeats(term: Term) -> Term:
    """Take diagonals where a label stands for several axes."""
    node, labels = term.node, list(term.labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            places = []
            for axis in (first, second):
                line: list[Extent] = [1] * node.ndim
                line[axis] = node.shape[axis]
                places.append(IOTA(shape=tuple(line), axis=axis, dtype=np.dtype(np.int32)))
            zero = np.zeros((), dtype=node.dtype)
            node = _sum(where(equal(*places), node, zero), (second,))
            del labels[second]
    return Term(node, tuple(labels))


def _without_ones(term: Term, extents: dict[str, Extent]) -> Term:
    """Drop axes of extent 1 whose label has another extent elsewhere: multiplying broadcasts."""
    axes = [
        axis
        for axis, label in enumerate(term.labels)
        if not _is_one(term.node.shape[axis]) or _is_one(extents[label])
    ]
    shape = [term.node.shape[axis] for axis in axes]
    return Term(reshape(term.node, shape), tuple(term.labels[axis] for axis in axes))


def _summed(term: Term, needed: set[str]) -> Term:
    """Sum over the labels that nothing else needs."""
    summed_axes = [axis for axis, label in enumerate(term.labels) if label not in needed]
    labels = tuple(label for label in term.labels if label in needed)
    return Term(_sum(term.node, summed_axes), labels)


def _arranged(term: Term, labels: Sequence[str]) -> Node:
    return transpose(term.node, [term.labels.index(label) for label in labels])


# Two operands.


def _contract(left: Term, right: Term, needed: set[str], extents: dict[str, Extent]) -> Term:
    """Return the product of two operands, summed over what only they have."""
    others = needed
    left = _summed(left, others | set(right.labels))
    right = _summed(right, others | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in others]
    inner = [label for label in shared if label not in others]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    if inner and rows and columns:

        def size(labels: Sequence[str]) -> Extent:
            return dims.size([extents[label] for label in labels])

        lead = [extents[label] for label in batch]
        product = MATMUL(
            reshape(_arranged(left, [*batch, *rows, *inner]), [*lead, size(rows), size(inner)]),
            reshape(
                _arranged(right, [*batch, *inner, *columns]), [*lead, size(inner), size(columns)]
            ),
        )
        labels = (*batch, *rows, *columns)
        return Term(reshape(product, [extents[label] for label in labels]), labels)
    labels = (*batch, *rows, *columns, *inner)
    aligned = []
    for term in (left, right):
        own = [label for label in labels if label in term.labels]
        shape = [extents[label] if label in term.labels else 1 for label in labels]
        aligned.append(reshape(_arranged(term, own), shape))
    return _summed(Term(multiply(*aligned), labels), others)


def _cheapest(terms: Sequence[Term], output: Labels, extents: dict[str, Extent]) -> tuple[int, int]:
    """Return the pair whose product takes the least work; then whose result is the smallest."""

    def volume(labels: Iterable[str]) -> int:
        total = 1
        for label in labels:
            extent = extents[label]
            total *= _TYPICAL if isinstance(extent, Dim) else extent
        return total

    best: tuple[tuple[int, int], tuple[int, int]] | None = None
    for i, left in enumerate(terms):
        for j in range(i + 1, len(terms)):
            both = set(left.labels) | set(terms[j].labels)
            rest = set(output).union(*(t.labels for k, t in enumerate(terms) if k not in (i, j)))
            cost = volume(both), volume(both & rest)
            if best is None or cost < best[0]:
                best = cost, (i, j)
    assert best is not None
    return best[1]


def _lettered(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts and operands of operands that lists of ints follow."""
    pairs, output = len(arguments) // 2, arguments[-1] if len(arguments) % 2 else None
    terms = [_letters(arguments[2 * i + 1]) for i in range(pairs)]
    text = ",".join(terms)
    return text if output is None else f"{text}->{_letters(output)}", arguments[: 2 * pairs : 2]


def _letters(labels: Any) -> str:
    listed = isinstance(labels, (list, tuple))
    for label in labels if listed else ():
        is_label = label is Ellipsis or (
            isinstance(label, (int, np.integer)) and 0 <= int(label) < len(_ALPHABET)
        )
        listed = listed and is_label
    if not listed:
        raise ShapeError(
            message(
                f"einsum: {labels!r} stands where the axes of an operand are numbered"
                if not isinstance(labels, Node)
                else "einsum: an operand stands where the axes of one are numbered",
                need=f"a list of ints from 0 to {len(_ALPHABET) - 1}, and ... for broadcast axes",
                hint="einsum('ij,jk->ik', a, b)",
            )
        )
    return "".join("..." if label is Ellipsis else _ALPHABET[label] for label in labels)


# In the order in which they sort.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@documented
def einsum(subscripts: Any, *operands: Any, optimize: Any = None) -> Node:
    """Sum products of operands by index letters (Einstein's convention).

    subscripts: A letter for each axis of each operand, separated by commas; after ``->`` those of
        the result. Without ``->`` the result has the letters that occur once, in alphabetical
        order. A letter that is not in the result is summed over; one that an operand has twice
        takes the diagonal; ``...`` stands for broadcast axes. Or, as in NumPy, operands and lists
        of ints in turn: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    *operands: Nodes or arrays; their dtypes are promoted.
    optimize: Taken for NumPy's sake: the cheapest pair is always multiplied first.
    returns (Node):
    raises ShapeError: If letters and axes do not fit, or extents of one letter differ.

    Notes
    -----
    More than two operands are multiplied pair by pair, the cheapest pair first by the extents that
    are known (a named one counts as 64).

    >>> a = mg.constant([[1, 2], [3, 4]])
    >>> mg.einsum("ij,jk->ik", a, a).eval()
    array([[ 7, 10],
           [15, 22]], dtype=int32)
    >>> mg.einsum("ii", a).eval()
    array(5, dtype=int32)
    >>> query, key = (mg.input(name, ("batch", "time", 8, 64)) for name in ("query", "key"))
    >>> mg.einsum("bthd,bThd->bhtT", query, mg.input("key", ("batch", "past", 8, 64))).shape
    (batch, 8, time, past)
    """
    if not isinstance(subscripts, str) and operands and isinstance(operands[0], (list, tuple)):
        subscripts, operands = _lettered((subscripts, *operands))
    if not isinstance(subscripts, str):
        raise ShapeError(
            message(
                f"einsum: the subscripts are {type(subscripts).__name__}",
                need="a str such as 'ij,jk->ik' first, then the operands",
            )
        )
    if not operands:
        raise ShapeError(message("einsum: no operands", need="at least one"))
    nodes = promoted(*operands)
    call = Call(EINSUM, nodes)
    labels, output = _parse(call, subscripts, [node.ndim for node in nodes])
    terms = [Term(node, own) for node, own in zip(nodes, labels, strict=True)]
    extents = _extents(call, terms)
    terms = [_without_ones(_without_repeats(term), extents) for term in terms]
    while len(terms) > 1:
        i, j = _cheapest(terms, output, extents)
        rest = [term for k, term in enumerate(terms) if k not in (i, j)]
        needed = set(output).union(*(term.labels for term in rest))
        terms = [*rest, _contract(terms[i], terms[j], needed, extents)]
    last = _summed(terms[0], set(output))
    return cast(_arranged(last, output), nodes[0].dtype)


def _waves(*shape: int) -> np.ndarray:
    values: np.ndarray = np.cos(np.arange(1.0, 1.0 + np.prod(shape)))
    return values.reshape(shape)


EINSUM = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=einsum,
    tests=Tests(
        samples=lambda: [
            Sample(("ij,jk->ik", _waves(2, 3), _waves(3, 4))),
            Sample(("ii->i", _waves(3, 3))),
            Sample(("...ij,jk", _waves(5, 2, 3), _waves(3, 4))),
            Sample(("ij,jk,kl->li", _waves(2, 3), _waves(3, 4), _waves(4, 2))),
            Sample(("bij,bij->b", _waves(2, 3, 4), _waves(2, 3, 4))),
        ],
        bad_samples=lambda: [
            BadSample(
                ("ij,jk->ik", _waves(2, 3), _waves(4, 2)),
                ShapeError,
                "einsum: extents of label 'j' differ: 3 and 4",
            ),
            BadSample(
                ("ij->ik", _waves(2, 3)),
                ShapeError,
                "einsum: the result's label 'k' is in no operand",
            ),
            BadSample(
                ("ijk", _waves(2, 3)), ShapeError, "einsum: 'ijk' labels 3 axes, the operand has 2"
            ),
        ],
        reference=np.einsum,
    ),
    numerics="reassoc",
)

RECORDS = (EINSUM,)
