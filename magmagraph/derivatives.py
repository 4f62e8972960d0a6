"""Derivatives made of the backward sweep: forward mode, Jacobians, Hessians."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .autodiff import (
    check_outputs,
    check_targets,
    check_unused,
    grad,
    paired,
    settle,
    sweep,
    zeros_of,
)
from .errors import GradientError, ShapeError, message
from .graph import Node, topological
from .nesting import like
from .op import describe
from .ops.layout import reshape, stack
from .ops.leaf import constant, input
from .rebuild import rebuild

__all__ = ["hessian", "jacobian", "jvp"]


def jvp(outputs: Any, wrt: Any, tangents: Any, *, unused: str = "raise") -> Any:
    """Build the product of the Jacobian with tangents: forward mode for any graph.

    For targets ``x`` with tangents ``t`` the result for an output ``y`` is
    ``sum_j d y / d x_j * t_j``, the derivative of ``y`` along the direction ``t``.

    Parameters
    ----------
    outputs : Node, or a nested list, tuple or dict of nodes
        Float nodes of any shapes.
    wrt : Node, or a nested list, tuple or dict of nodes
        The targets.
    tangents : Node or array, in the form of `wrt`
        The direction: each has its target's shape, or is a scalar, which then stands for
        every element.
    unused : {"raise", "zeros"}, optional
        What to do for an output that depends on no target.

    Returns
    -------
    Node, or the nested form of `outputs`
        Each of its output's shape and dtype.

    Raises
    ------
    GradientError
        As `vjp`.
    ShapeError
        Where a tangent has another shape than its target.

    Notes
    -----
    The cotangents' product ``g(u) = u J`` is linear in ``u``, and its own transpose is
    ``t -> J t``: two backward sweeps make one forward derivative. After compilation nothing of
    the first sweep's arithmetic remains but what the result needs.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.jvp(mg.sum(x**2), x, mg.constant([1.0, 0.5])).eval()
    array(4., dtype=float32)
    """
    roots = check_outputs("jvp", outputs)
    targets = check_targets("jvp", wrt)
    check_unused("jvp", unused)
    directions = paired("jvp", "tangent", "target", targets, tangents, "tangents")
    found = forward([node for _, node in roots], targets, directions)
    result = []
    for (label, root), tangent in zip(roots, found, strict=True):
        if tangent is None:
            if unused == "raise":
                raise GradientError(
                    message(
                        f"jvp: {label} depends on no target: {describe(root)}",
                        need="outputs that are computed from a target",
                        mend="leave the output out, or unused='zeros' for zeros",
                    )
                )
            tangent = zeros_of(root)
        result.append(tangent)
    return like(outputs, result)


def forward(
    outputs: list[Node], targets: list[tuple[str, Node]], directions: list[Node]
) -> list[Node | None]:
    """Return each output's derivative along the directions, None where there is none."""
    weights = [input("cotangent", shape=node.shape, dtype=node.dtype) for node in outputs]
    first = sweep(outputs, weights, targets)
    reached = [(g, t) for g, t in zip(first, directions, strict=True) if g is not None]
    if not reached:
        return [None for _ in outputs]
    second = sweep(
        [g for g, _ in reached],
        [t for _, t in reached],
        [("cotangent", weight) for weight in weights],
    )
    # The product is linear in the weights, so its derivative does not depend on them. A rule may
    # still mention one (in a branch not taken, say): any value will do for it.
    present = [node for node in second if node is not None]
    order = {id(node) for node in topological(present)}
    left = {weight: zeros_of(weight) for weight in weights if id(weight) in order}
    return _filled(second, rebuild(present, left) if left else present)


def _filled(pattern: list[Node | None], present: list[Node]) -> list[Node | None]:
    members = iter(present)
    return [None if node is None else next(members) for node in pattern]


def jacobian(outputs: Any, wrt: Any, *, unused: str = "raise") -> Any:
    """Build the matrix of all first derivatives.

    Parameters
    ----------
    outputs : Node, or a nested list, tuple or dict of nodes
        Float nodes of any shapes.
    wrt : Node, or a nested list, tuple or dict of nodes
        The targets.
    unused : {"raise", "zeros"}, optional
        What to do for a target that no gradient reaches.

    Returns
    -------
    Node, or the nested form of `outputs` whose members have the nested form of `wrt`
        For an output of shape ``S`` and a target of shape ``T`` a node of shape ``S + T``; the
        element ``[s, t]`` is ``d output[s] / d target[t]``.

    Raises
    ------
    GradientError
        As `grad`.
    ShapeError
        Where both an output and a target have a symbolic extent: one of the two is taken apart
        into its elements, whose number has to be known when the graph is built.

    Notes
    -----
    Made of one row per element of the output (reverse mode), or of one column per element of
    the target (forward mode), whichever are fewer.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.jacobian(x**2, x).eval()
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    return _jacobian("jacobian", outputs, wrt, unused)


def _jacobian(who: str, outputs: Any, wrt: Any, unused: str) -> Any:
    roots = check_outputs(who, outputs)
    targets = check_targets(who, wrt)
    check_unused(who, unused)
    blocks = [like(wrt, _blocks(who, label, root, targets, unused)) for label, root in roots]
    return like(outputs, blocks)


def _count(node: Node) -> int | None:
    """Return the number of elements where it is known, else None."""
    extents = [extent for extent in node.shape if isinstance(extent, int)]
    return math.prod(extents) if len(extents) == len(node.shape) else None


def _blocks(
    who: str, label: str, root: Node, targets: list[tuple[str, Node]], unused: str
) -> list[Node]:
    rows = _count(root)
    columns = [_count(target) for _, target in targets]
    known = [count for count in columns if count is not None]
    if rows is not None and (len(known) < len(columns) or rows <= sum(known)):
        return _by_rows(who, root, rows, targets, unused)
    for (name, target), count in zip(targets, columns, strict=True):
        if count is None:
            raise ShapeError(
                message(
                    f"{who}: both {label}, {describe(root)}, "
                    f"and {name}, {describe(target)}, have symbolic extents",
                    need="one of the two with extents that are ints",
                    mend="mg.vjp or mg.jvp, which take any extents",
                )
            )
    return _by_columns(who, root, targets, known, unused)


def _unit(index: int, count: int, shape: Any, dtype: np.dtype) -> Node:
    values = np.zeros(count, dtype=dtype)
    values[index] = 1
    return constant(values.reshape(shape))


def _by_rows(
    who: str, root: Node, count: int, targets: list[tuple[str, Node]], unused: str
) -> list[Node]:
    rows: list[list[Node]] = [[] for _ in targets]
    for index in range(count):
        weight = _unit(index, count, root.shape, root.dtype)
        found = sweep([root], [weight], targets)
        full = settle(who, "the outputs", [root], targets, found, unused)
        for row, cotangent in zip(rows, full, strict=True):
            row.append(cotangent)
    return [
        reshape(stack(row), (*root.shape, *target.shape)) if row else _empty(root, target)
        for row, (_, target) in zip(rows, targets, strict=True)
    ]


def _by_columns(
    who: str, root: Node, targets: list[tuple[str, Node]], counts: list[int], unused: str
) -> list[Node]:
    blocks = []
    for (label, target), count in zip(targets, counts, strict=True):
        one = [(label, target)]
        columns = []
        for index in range(count):
            direction = _unit(index, count, target.shape, target.dtype)
            (column,) = forward([root], one, [direction])
            if column is None:
                settle(who, "the outputs", [root], one, [None], unused)
                column = zeros_of(root)
            columns.append(column)
        shape = (*root.shape, *target.shape)
        blocks.append(reshape(stack(columns, axis=-1), shape) if columns else _empty(root, target))
    return blocks


def _empty(root: Node, target: Node) -> Node:
    """Return the block between nodes of which one has no elements."""
    shape = (*root.shape, *target.shape)
    return zeros_of(input("empty", shape=shape, dtype=target.dtype))


def hessian(loss: Node, wrt: Any, *, unused: str = "raise") -> Any:
    """Build the matrix of all second derivatives of a scalar.

    Parameters
    ----------
    loss : Node
        A scalar of a float dtype.
    wrt : Node, or a nested list, tuple or dict of nodes
        The targets.
    unused : {"raise", "zeros"}, optional
        What to do for a target that no gradient reaches. A second derivative that vanishes
        because the gradient is constant is zeros in any case.

    Returns
    -------
    Node, or the nested form of `wrt` whose members have the nested form of `wrt`
        For targets of shapes ``S`` and ``T`` a block of shape ``S + T``.

    Raises
    ------
    GradientError
        As `grad`.
    ShapeError
        Where a target has a symbolic extent.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.hessian(x[0] ** 2 * x[1], x).eval()
    array([[4., 2.],
           [2., 0.]], dtype=float32)
    """
    return _jacobian("hessian", grad(loss, wrt, unused=unused), wrt, "zeros")
