"""Losses that compare embeddings with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.lines import grouped
from ..ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, divide, multiply, subtract
from ..ops.elementwise.comparison import greater, maximum, minimum, where
from ..ops.elementwise.family import floating_pair
from ..ops.indexing.iota import arange
from ..ops.networks.activation import relu
from ..ops.products.contraction import matmul
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import norm
from ..ops.shape.arrange import transpose
from .classification import cross_entropy
from .common import (
    check_reduction,
    loss_record,
    reduced,
    settled,
    wide_node,
)

__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "info_nce",
    "triplet_margin_loss",
]


@grouped
@documented
def cosine_similarity(x: Any, y: Any, axis: int = -1, epsilon: float = 1e-8) -> Node:
    """Compute the cosine of the angle between vectors.

    ``sum(x * y) / (max(norm(x), epsilon) * max(norm(y), epsilon))`` along an axis.

    x, y: Nodes or arrays, broadcast against each other.
    axis: The axis of the vectors' elements.
    epsilon: The smallest length that is divided by: the similarity to a vector of zeros is 0.
    returns: Of the broadcast shape without the axis, and the promoted float dtype.
    raises ShapeError: If the shapes do not broadcast, or the axis is out of range.

    >>> mg.cosine_similarity([[3.0, 4.0]], [[6.0, 8.0]]).eval()
    array([1.], dtype=float32)
    """
    left, right = floating_pair(x, y)
    a, b = wide_node(left), wide_node(right)
    inner = multiply(a, b)
    axis = Call(COSINE_SIMILARITY, (left, right)).axis(axis, inner.ndim)
    ends = axis - inner.ndim  # counts from the end: the axes that broadcasting adds are in front
    lengths = [
        maximum(norm(node, axis=ends) if node.ndim >= -ends else node, epsilon) for node in (a, b)
    ]
    return cast(divide(sum(inner, axis), multiply(*lengths)), left.dtype)


@grouped
@documented
def cosine_embedding_loss(
    x: Any,
    y: Any,
    labels: Any,
    *,
    margin: float = 0.0,
    axis: int = -1,
    reduction: str = "mean",
) -> Node:
    """Compute how far pairs of vectors are from pointing the same way, or from not doing so.

    ``1 - cosine`` where the label is 1, else ``max(0, cosine - margin)``.

    x, y: Nodes or arrays, broadcast against each other.
    labels: 1 for pairs that belong together, -1 for others; broadcast to the pairs.
    margin: The largest cosine that costs nothing for pairs that do not belong together.
    axis: The axis of the vectors' elements.
    reduction: "mean" over all pairs, "sum", or "none".
    returns: A scalar, or of the shape of the pairs with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> x, y = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]
    >>> mg.cosine_embedding_loss(x, y, mg.constant([1, -1]), reduction="none").eval()
    array([1., 1.], dtype=float32)
    """
    left, right = floating_pair(x, y)
    cosine = cosine_similarity(wide_node(left), wide_node(right), axis)
    together = greater(as_node(labels), 0)
    loss = where(together, subtract(1.0, cosine), relu(subtract(cosine, margin)))
    return reduced("cosine_embedding_loss", loss, reduction, left.dtype)


@grouped
@documented
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    axis: int = -1,
    swap: bool = False,
    reduction: str = "mean",
) -> Node:
    """Compute ``max(0, margin + d(anchor, positive) - d(anchor, negative))``.

    V. Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional
    neural networks", BMVC 2016.

    anchor, positive, negative: Nodes or arrays of vectors, broadcast against each other.
    margin: How much farther the negative should be.
    p: The distance d is the p-norm of the difference; its gradient is 0 where it is 0.
    axis: The axis of the vectors' elements.
    swap: Take ``min(d(anchor, negative), d(positive, negative))`` as the distance of the negative.
    reduction: "mean" over all triplets, "sum", or "none".
    returns: A scalar, or of the shape of the triplets with "none".
    raises ShapeError: If the shapes do not broadcast.

    >>> mg.triplet_margin_loss([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 1.0]]).eval()
    array(5., dtype=float32)
    """
    first, second = floating_pair(anchor, positive)
    first, third = floating_pair(first, negative)
    at, near, far = (wide_node(cast(node, first.dtype)) for node in (first, second, third))
    wanted = norm(subtract(at, near), p, axis)
    other = norm(subtract(at, far), p, axis)
    if swap:
        other = minimum(other, norm(subtract(near, far), p, axis))
    loss = relu(add(subtract(wanted, other), margin))
    return reduced("triplet_margin_loss", loss, reduction, first.dtype)


@grouped
@documented
def info_nce(
    anchors: Any,
    positives: Any,
    *,
    temperature: Any = 0.1,
    symmetric: bool = False,
    reduction: str = "mean",
) -> Node:
    """Compute the contrastive loss of pairs within a batch.

    The cross-entropy of finding, by cosine similarity over `temperature`, each anchor's own
    partner among all positives; A. van den Oord, Y. Li, O. Vinyals, "Representation learning with
    contrastive predictive coding", 2018, equation 4.

    anchors, positives: Nodes or arrays of shape ``(N, D)``: row i of both is a pair.
    temperature: Divides the similarities: a number or a scalar node.
    symmetric: Average with the loss of finding each positive's anchor.
    reduction: "mean" over the pairs, "sum", or "none".
    returns: A scalar, or of shape ``(N,)`` with "none".
    raises ShapeError: If the operands are not two matrices of one shape.

    >>> x = mg.constant([[1.0, 0.0], [0.0, 1.0]])
    >>> round(float(mg.info_nce(x, x, temperature=1.0).eval()), 4)
    0.3133
    """
    left, right = floating_pair(anchors, positives)
    call = Call(INFO_NCE, (left, right))
    if left.ndim != 2 or right.ndim != 2:
        raise call.shape_error(
            f"operands of {left.ndim} and {right.ndim} axes", need="two matrices (N, D)"
        )
    for one, other, what in zip(left.shape, right.shape, ("rows", "columns"), strict=True):
        call.unify(one, other, f"numbers of {what}")
    check_reduction("info_nce", reduction)
    a, b = (_unit(wide_node(node)) for node in (left, right))
    scores = divide(matmul(a, transpose(b)), temperature)
    own = arange(left.shape[0])
    loss = cross_entropy(scores, own, reduction="none")
    if symmetric:
        other_way = cross_entropy(scores, own, axis=0, reduction="none")
        loss = multiply(add(loss, other_way), 0.5)
    return reduced("info_nce", loss, reduction, left.dtype)


def _unit(x: Node) -> Node:
    return divide(x, maximum(norm(x, axis=-1, keepdims=True), 1e-12))


# Records.

_SCORES = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.5]])
_OTHER = np.array([[0.9, 0.4, -0.6], [1.1, -2.1, 0.2]])
_THIRD = np.array([[-0.2, 1.4, 0.5], [0.7, -0.3, 1.9]])


def _cosine_reference(x: Any, y: Any, axis: int = -1, epsilon: float = 1e-8) -> Any:
    x, y = np.broadcast_arrays(x, y)
    lengths = [np.maximum(np.sqrt(np.sum(v * v, axis)), epsilon) for v in (x, y)]
    return np.sum(x * y, axis) / (lengths[0] * lengths[1])


def _cosine_embedding_reference(
    x: Any, y: Any, t: Any, margin: float = 0.0, axis: int = -1, reduction: str = "mean"
) -> Any:
    cosine = _cosine_reference(x, y, axis)
    return settled(np.where(t == 1, 1 - cosine, np.maximum(0, cosine - margin)), reduction)


def _triplet_reference(
    a: Any,
    b: Any,
    c: Any,
    margin: float = 1.0,
    p: float = 2.0,
    axis: int = -1,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    def distance(u: Any, v: Any) -> Any:
        return np.sum(np.abs(u - v) ** p, axis) ** (1 / p)

    far = distance(a, c)
    far = np.minimum(far, distance(b, c)) if swap else far
    return settled(np.maximum(0, margin + distance(a, b) - far), reduction)


def _info_nce_reference(
    x: np.ndarray,
    y: np.ndarray,
    temperature: float = 0.1,
    symmetric: bool = False,
    reduction: str = "mean",
) -> Any:
    scores = _cosine_reference(x[:, None], y[None]) / temperature
    ways = [scores, scores.T] if symmetric else [scores]
    losses = [np.log(np.exp(s).sum(1)) - np.diag(s) for s in ways]
    return settled(np.mean(losses, axis=0), reduction)


COSINE_SIMILARITY = Composite(
    kind=Kind.REDUCTION,
    function=cosine_similarity,
    tests=Tests(
        samples=lambda: [
            Sample((_SCORES, _OTHER)),
            Sample((_SCORES, _OTHER[0])),
            Sample((_SCORES, _OTHER), {"axis": 0}),
            Sample(
                (np.zeros((2, 3)), _OTHER),
                gradient=(),
                reason="the angle to zero has no derivative",
            ),
        ],
        bad_samples=lambda: [
            BadSample(
                (_SCORES, _OTHER),
                ShapeError,
                "cosine_similarity: axis=2 is out of range for 2 axes",
                {"axis": 2},
            )
        ],
        reference=_cosine_reference,
    ),
    numerics="reassoc",
)
COSINE_EMBEDDING = loss_record(
    cosine_embedding_loss,
    "How far pairs of vectors are from pointing the same way, or from not doing so.",
    _cosine_embedding_reference,
    lambda: [
        Sample((_SCORES, _THIRD, np.array([1, -1]))),
        Sample((_SCORES, _SCORES + 0.1, np.array([-1, -1])), {"margin": 0.5, "reduction": "none"}),
    ],
)
TRIPLET_MARGIN = loss_record(
    triplet_margin_loss,
    "How much a negative is nearer to an anchor than a positive, with a margin.",
    _triplet_reference,
    lambda: [
        Sample((_SCORES, _OTHER, _THIRD)),
        Sample((_SCORES, _OTHER, _THIRD), {"margin": 3.0, "swap": True, "reduction": "none"}),
        Sample((_SCORES, _OTHER, _THIRD[0]), {"p": 1, "margin": 2.0, "reduction": "sum"}),
    ],
)
INFO_NCE = Composite(
    kind=Kind.REDUCTION,
    function=info_nce,
    tests=Tests(
        samples=lambda: [
            Sample((_SCORES, _THIRD), {"temperature": 0.5}),
            Sample((_SCORES, _THIRD), {"symmetric": True, "reduction": "none", "temperature": 1.0}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_SCORES, _THIRD[:1]), ShapeError, "info_nce: numbers of rows differ: 2 and 1"
            ),
            BadSample((_SCORES, _THIRD[0]), ShapeError, "info_nce: operands of 2 and 1 axes"),
        ],
        reference=_info_nce_reference,
    ),
    numerics="reassoc",
)

RECORDS = (COSINE_SIMILARITY, COSINE_EMBEDDING, TRIPLET_MARGIN, INFO_NCE)
