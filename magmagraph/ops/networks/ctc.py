"""The loss of alignments (connectionist temporal classification), exact to second derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kernel, Kind, Op, Refusal, Sample, Tests
from ...ir.types import Extent, Type
from ..convert import as_node, cast
from ..elementwise.arithmetic import multiply, subtract
from ..elementwise.comparison import where
from ..elementwise.family import floating
from ..elementwise.rounding import isfinite
from ..leaf import constant, extent
from ..reduction.primitives import sum
from ..reduction.statistics import logsumexp, mean
from ..shape.arrange import expand_dims, reshape
from ..shape.joining import broadcast_to
from .ctc_paths import Paths, held_bytes, lines_of

__all__ = ["ctc_loss"]


def _check(
    call: Call, logs: Type, labels: Type, lengths: Type, counts: Type, blank: int
) -> None:
    for each, what in ((labels, "labels"), (lengths, "lengths"), (counts, "lengths of labels")):
        if not is_integer(each.dtype):
            raise call.dtype_error(f"{what} of dtype {each.dtype.name}", need="integers")
    axes = (logs.ndim, labels.ndim, lengths.ndim, counts.ndim)
    if axes != (3, 2, 1, 1):
        raise call.shape_error(
            "operands of {}, {}, {} and {} axes".format(*axes),
            need="logits (N, T, C), labels (N, S), lengths (N,) of both",
        )
    for each, what in ((labels, "labels"), (lengths, "lengths"), (counts, "lengths of labels")):
        call.unify(logs.shape[0], each.shape[0], f"numbers of logits and {what}")
    classes = logs.shape[2]
    if blank < 0 or (isinstance(classes, int) and blank >= classes):
        raise call.shape_error(f"blank={blank} for {classes} classes", need="one of the classes")


def _loss_type(
    call: Call, logs: Type, labels: Type, lengths: Type, counts: Type, *, blank: int
) -> Type:
    _check(call, logs, labels, lengths, counts, blank)
    return Type(logs.dtype, logs.shape[:1])


def _loss(xp: Any, logs: Any, labels: Any, lengths: Any, counts: Any, *, blank: int) -> Any:
    with np.errstate(all="ignore"):
        return -Paths(xp, logs, labels, lengths, counts, blank).ahead()[0]


def _loss_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    slope = GRADIENT(*node.inputs, **node.attrs)
    return multiply(expand_dims(cotangent, (1, 2)), slope), None, None, None


LOSS = Op(
    name="ctc_of_logs",
    kind=Kind.INDEX,
    doc="The negative logarithm of the probability of all alignments of labels.",
    rule=_loss_type,
    evaluate=_loss,
    gradient=_loss_gradient,
    numerics="reassoc",
)


def _gradient_type(
    call: Call, logs: Type, labels: Type, lengths: Type, counts: Type, *, blank: int
) -> Type:
    _check(call, logs, labels, lengths, counts, blank)
    return logs


def _gradient_into(
    xp: Any, target: Any, logs: Any, labels: Any, lengths: Any, counts: Any, *, blank: int,
    workspace: Any,
) -> None:  # fmt: skip
    with np.errstate(all="ignore"):
        paths = Paths(xp, logs, labels, lengths, counts, blank)
        lines = lines_of(workspace, 1, paths)
        whole, slope = paths.ahead(lines)
        paths.occupied(lines, whole, slope, target)
        xp.negative(target, out=target)


def _gradient(xp: Any, logs: Any, *others: Any, blank: int) -> Any:
    result = xp.empty(logs.shape, logs.dtype)
    size = held_bytes(Type(logs.dtype, logs.shape), Type(others[0].dtype, others[0].shape), 1)
    workspace = xp.empty(size, np.uint8)
    _gradient_into(xp, result, logs, *others, blank=blank, workspace=workspace)
    return result


def _gradient_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    logs, *others = node.inputs
    return CURVATURE(logs, cotangent, *others, **node.attrs), None, None, None


GRADIENT = Op(
    name="ctc_gradient",
    kind=Kind.INDEX,
    doc="Less the probability, over all alignments of labels, of each class at each step.",
    rule=_gradient_type,
    evaluate=_gradient,
    kernel=Kernel(
        into=_gradient_into,
        workspace=lambda logs, labels, *others, blank: held_bytes(logs, labels, 1),
    ),
    gradient=_gradient_gradient,
    numerics="reassoc",
)


def _curvature_type(call: Call, logs: Type, direction: Type, *others: Type, blank: int) -> Type:
    labels, lengths, counts = others
    _check(call, logs, labels, lengths, counts, blank)
    if direction != logs:
        raise call.shape_error(f"a direction {direction}", need=str(logs))
    return logs


def _curvature_into(
    xp: Any, target: Any, logs: Any, direction: Any, labels: Any, lengths: Any, counts: Any, *,
    blank: int, workspace: Any,
) -> None:  # fmt: skip
    with np.errstate(all="ignore"):
        paths = Paths(xp, logs, labels, lengths, counts, blank, direction)
        lines = lines_of(workspace, 2, paths)
        whole, slope = paths.ahead(lines)
        paths.occupied(lines, whole, slope, target)
        xp.negative(target, out=target)


def _curvature(xp: Any, logs: Any, direction: Any, *others: Any, blank: int) -> Any:
    result = xp.empty(logs.shape, logs.dtype)
    size = held_bytes(Type(logs.dtype, logs.shape), Type(others[0].dtype, others[0].shape), 2)
    workspace = xp.empty(size, np.uint8)
    _curvature_into(xp, result, logs, direction, *others, blank=blank, workspace=workspace)
    return result


def _curvature_gradient(node: Node, cotangent: Node) -> tuple[Node | Refusal | None, ...]:
    """Return the parts: the matrix of second derivatives is symmetric."""
    logs, _, *others = node.inputs
    third = Refusal(
        "ctc_loss: third derivatives are not known", need="at most two derivatives of the loss"
    )
    return third, CURVATURE(logs, cotangent, *others, **node.attrs), None, None, None


CURVATURE = Op(
    name="ctc_curvature",
    kind=Kind.INDEX,
    doc="The matrix of second derivatives of the loss of alignments, times a direction.",
    rule=_curvature_type,
    evaluate=_curvature,
    kernel=Kernel(
        into=_curvature_into,
        workspace=lambda logs, direction, labels, *others, blank: held_bytes(logs, labels, 2),
    ),
    gradient=_curvature_gradient,
    numerics="reassoc",
)


_REDUCTIONS = ("mean", "sum", "none")


@grouped
@documented
def ctc_loss(
    logits: Any,
    labels: Any,
    logit_lengths: Any = None,
    label_lengths: Any = None,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Node:
    """Compute how improbable label sequences are, over all their alignments with steps of time.

    The negative logarithm of the probability that `log_softmax` of the logits, taken independently
    at each step, gives to any sequence of classes that becomes the labels once equal neighbours are
    joined and blanks are left out; A. Graves et al., "Connectionist temporal classification", ICML
    2006, equations 5 to 8, in logarithms throughout.

    logits: Node or array of shape ``(N, T, C)``: scores of the classes at each step.
        Log-probabilities do as well, being their own log-softmax. Or ``(T, C)``: a batch of one,
        without its axis.
    labels: Integers of shape ``(N, S)``: the classes, without blanks; what lies behind a sequence's
        length may be anything.
    logit_lengths: Integers of shape ``(N,)``: how many steps count. All of them unless said.
    label_lengths: Integers of shape ``(N,)``: how many labels count. All of them unless said.
    blank: The class that is no label.
    reduction: "mean" over the sequences (not divided by their lengths), "sum", or "none".
    zero_infinity: Take an infinite loss as 0.
    returns: A scalar, or of shape ``(N,)`` with "none"; of the float dtype of `logits`, computed in
        float64. Where labels have no alignment (too few steps) the loss is infinite and its
        gradient 0. First and second derivatives are exact; third ones are refused.
    raises DTypeError: If labels or lengths are not integers.
    raises ShapeError: If the shapes do not fit, or `blank` is not a class.

    Examples
    --------
    Two steps, of which each class is equally likely; "1" has the alignments 11, 10 and 01:

    >>> import magmagraph as mg
    >>> loss = mg.ctc_loss([[[0.0, 0.0], [0.0, 0.0]]], mg.constant([[1]]))
    >>> round(float(loss.eval()), 4)
    0.2877
    """
    values, target = floating(logits), as_node(labels)
    call = Call(CTC_LOSS, (values, target))
    flat = values.ndim == 2 and target.ndim == 1
    if flat:
        values, target = expand_dims(values, 0), expand_dims(target, 0)
    if values.ndim != 3 or target.ndim != 2:
        raise call.shape_error(
            f"logits of {values.ndim} axes and labels of {target.ndim}",
            need="logits (N, T, C) and labels (N, S), or both without N",
        )
    batch, steps, classes = values.shape
    if not isinstance(blank, (int, np.integer)) or isinstance(blank, bool) or blank < 0 or (
        isinstance(classes, int) and blank >= classes
    ):
        raise call.shape_error(f"blank={blank!r} for {classes} classes", need="one of the classes")
    if reduction not in _REDUCTIONS:
        raise ShapeError(
            message(f"ctc_loss: reduction={reduction!r}", need=f"one of {', '.join(_REDUCTIONS)}")
        )
    scores = cast(values, np.float32) if values.dtype.itemsize < 4 else values
    logs = subtract(scores, logsumexp(scores, -1, keepdims=True))
    lengths = _lengths(logit_lengths, steps, batch, flat)
    counts = _lengths(label_lengths, target.shape[1], batch, flat)
    _check(Call(CTC_LOSS, (logs, target, lengths, counts)), logs.type, target.type, lengths.type,
           counts.type, int(blank))  # fmt: skip
    loss = LOSS(logs, target, lengths, counts, blank=int(blank))
    if zero_infinity:
        loss = where(isfinite(loss), loss, 0.0)
    if reduction == "mean":
        loss = mean(loss)
    elif reduction == "sum":
        loss = sum(loss)
    elif flat:
        loss = reshape(loss, ())
    return cast(loss, values.dtype)


def _lengths(value: Any, whole: Extent, batch: Extent, flat: bool) -> Node:
    if value is None:
        full = constant(whole, dtype=np.int64) if isinstance(whole, int) else extent(whole)
        return broadcast_to(full, (batch,))
    node = as_node(value)
    return reshape(node, (1,)) if flat and not node.ndim else node


# Records.


def _alignments(
    labels: Sequence[int] | np.ndarray, steps: int, classes: int, blank: int
) -> list[Any]:
    """Return, of all sequences of classes, those that become the labels."""
    paths = []
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == list(labels):
            paths.append(path)
    return paths


def _reference(
    logits: np.ndarray,
    labels: np.ndarray,
    logit_lengths: Any = None,
    label_lengths: Any = None,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Add up the probabilities of all alignments, one by one."""
    batch, steps, classes = logits.shape
    power = np.exp(logits - logits.max(-1, keepdims=True))
    chances = power / power.sum(-1, keepdims=True)
    lengths = [steps] * batch if logit_lengths is None else logit_lengths
    counts = [labels.shape[1]] * batch if label_lengths is None else label_lengths
    loss = np.empty(batch)
    for i in range(batch):
        paths = _alignments(labels[i, : counts[i]], int(lengths[i]), classes, blank)
        total = np.sum([np.prod(chances[i, np.arange(len(p)), list(p)]) for p in paths])
        loss[i] = -np.log(total) if total else (0.0 if zero_infinity else np.inf)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


_LOGITS = 1.3 * np.sin(1.9 * np.arange(1.0, 31.0)).reshape(2, 5, 3)
_LABELS = np.array([[1, 2], [2, 2]])

CTC_LOSS = Composite(
    kind=Kind.INDEX,
    function=ctc_loss,
    tests=Tests(
        samples=lambda: [
            Sample((_LOGITS, _LABELS)),
            Sample((_LOGITS, _LABELS, np.array([5, 4]), np.array([1, 2])), {"reduction": "none"}),
            Sample(
                (_LOGITS, np.array([[0, 1], [1, 7]]), np.array([4, 2]), np.array([2, 1])),
                {"blank": 2, "reduction": "sum"},
            ),
            Sample(
                (_LOGITS, _LABELS, np.array([1, 2])),
                {"reduction": "none"},
                gradient=(),
                reason="infinite losses",
            ),
            Sample((_LOGITS, _LABELS, np.array([5, 2])), {"zero_infinity": True}),
            Sample((_LOGITS, np.zeros((2, 0), np.int32), np.array([3, 5])), {"reduction": "none"}),
        ],
        bad_samples=lambda: [
            BadSample((_LOGITS, _LOGITS[0]), DTypeError, "ctc_loss: labels of dtype float64"),
            BadSample(
                (_LOGITS, _LABELS[:1]),
                ShapeError,
                "ctc_loss: numbers of logits and labels differ: 2 and 1",
            ),
            BadSample(
                (_LOGITS, _LABELS[0]), ShapeError, "ctc_loss: logits of 3 axes and labels of 1"
            ),
            BadSample(
                (_LOGITS, _LABELS), ShapeError, "ctc_loss: blank=3 for 3 classes", {"blank": 3}
            ),
            BadSample(
                (_LOGITS, _LABELS),
                ShapeError,
                "ctc_loss: reduction='average'",
                {"reduction": "average"},
            ),
        ],
        reference=_reference,
    ),
    numerics="reassoc",
)

RECORDS = (LOSS, GRADIENT, CURVATURE, CTC_LOSS)
