"""Mark integers as labels of classes, so that a call checks those that it is fed."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from ...ir.op import Call, Kind, Layout, Op
from ...ir.types import Extent
from ..leaf import CONSTANT
from ..rules import onnx_forms

__all__ = ["CLASS_LABELS", "class_labels"]


_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def class_labels(call: Call, labels: Node, classes: Extent, ignored: int | None = None) -> Node:
    """Return labels, marked: they must be in ``[0, classes)``, or equal to `ignored`.

    A kernel cannot raise: a label outside would have the gradient of no class in silence. Functions
    check the labels that are fed; here those of a constant are checked.

    raises ShapeError: If a constant holds another label.
    """
    if labels.op is CONSTANT and isinstance(classes, int):
        values = labels.attrs["value"]
        wrong = wrong_label(values, classes, ignored)
        if wrong is not None:
            raise call.shape_error(
                f"the label {values[wrong]} at {wrong} for {classes} classes",
                need=expected_labels(classes, ignored),
                hint=f"ignore_index={values[wrong]} where it marks padding",
            )
    return CLASS_LABELS(labels, classes=classes, ignored=ignored, function=call.op.name)


def wrong_label(values: np.ndarray, classes: int, ignored: int | None) -> tuple[int, ...] | None:
    """Return the place of the first integer that is no label, or None.

    Examples
    --------
    >>> labels = np.array([[0, 2], [-1, 3]])
    >>> wrong_label(labels, 3, None), wrong_label(labels, 3, -1), wrong_label(labels, 4, -1)
    ((1, 0), (1, 1), None)
    """
    if not values.size:
        return None
    # As unsigned integers negative ones are the largest: one pass over the labels.
    if values.view(_UNSIGNED[values.itemsize]).max() < classes:
        return None
    wrong = (values < 0) | (values >= classes)
    if ignored is not None:
        wrong &= values != ignored
    return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None


def expected_labels(classes: int, ignored: int | None) -> str:
    """Return in words which labels there are."""
    return f"labels in [0, {classes})" + ("" if ignored is None else f", or {ignored}")


CLASS_LABELS = Op(
    name="class_labels",
    kind=Kind.CONTROL,
    doc="The operand, marked as labels of classes, which a call checks where they are fed.",
    rule=lambda call, labels, *, classes, ignored, function: labels,
    attributes={"classes": "Extent", "ignored": "int | None", "function": "str"},
    evaluate=lambda xp, labels, **attrs: labels,
    layout=Layout(alias=True, fades=True),
    no_gradient="integers",
    batching="identity",
    onnx=onnx_forms.first,
)

RECORDS = (CLASS_LABELS,)
