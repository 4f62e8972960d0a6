"""Derivatives made of the backward sweep: forward mode, Jacobians, Hessians and their products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..errors import GradientError, message
from ..ir.docstrings import documented
from ..ir.graph import Node, topological
from ..ir.nesting import leaves, like
from ..ir.op import describe
from ..ops.control.mapped import batch, in_front
from ..ops.convert import cast
from ..ops.elementwise.comparison import equal
from ..ops.indexing.iota import IOTA
from ..ops.leaf import input
from ..ops.shape.layout import moveaxis, reshape
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
from .transforms.rebuild import rebuild

__all__ = ["hessian", "hvp", "jacobian", "jvp"]

_POSITION = np.dtype(np.int64)

_forward: ContextVar[bool] = ContextVar("forward", default=False)


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let rules of loops without a bound make what only forward mode resolves."""
    token = _forward.set(True)
    try:
        yield
    finally:
        _forward.reset(token)


def in_forward_mode() -> bool:
    """Tell whether `forward_mode` is open."""
    return _forward.get()


@documented
def jvp(outputs: Any, wrt: Any, tangents: Any, *, unused: str = "raise") -> Any:
    """Build the product of the Jacobian with tangents: forward mode for any graph.

    For targets ``x`` with tangents ``t`` the result for an output ``y`` is
    ``sum_j d y / d x_j * t_j``, the derivative of ``y`` along the direction ``t``.

    outputs (Node, or a nested list, tuple or dict of nodes): Float nodes of any shapes.
    wrt (Node, or a nested list, tuple or dict of nodes): The targets.
    tangents (Node or array, in the form of `wrt`): The direction: each has its target's shape, or
        is a scalar, which then stands for every element.
    unused ({"raise", "zeros"}, optional): What to do for an output that depends on no target.
    returns (Node, or the nested form of `outputs`): Each of its output's shape and dtype.
    raises GradientError: As `vjp`.
    raises ShapeError: Where a tangent has another shape than its target.

    Notes
    -----
    The cotangents' product ``g(u) = u J`` is linear in ``u``, and its own transpose is
    ``t -> J t``: two backward sweeps make one forward derivative. After compilation nothing of
    the first sweep's arithmetic remains but what the result needs.

    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.jvp(mg.sum(x**2), x, mg.constant([1.0, 0.5])).eval()
    array(4., dtype=float32)
    """
    roots = check_outputs("jvp", outputs, takes_complex=True)
    targets = check_targets("jvp", wrt, takes_complex=True)
    check_unused("jvp", unused)
    directions = paired("jvp", "tangent", "target", targets, tangents, "tangents")
    forwarded = forward([node for _, node in roots], targets, directions)
    result = []
    for (label, root), tangent in zip(roots, forwarded, strict=True):
        if tangent is None:
            if unused == "raise":
                raise GradientError(
                    message(
                        f"jvp: {label} depends on no target: {describe(root)}",
                        need="outputs that are computed from a target",
                        hint="leave the output out, or unused='zeros' for zeros",
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
    with forward_mode():
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


def jacobian(outputs: Any, wrt: Any, *, mode: str = "auto", unused: str = "raise") -> Any:
    """Build the matrix of all first derivatives.

    Parameters
    ----------
    outputs : Node, or a nested list, tuple or dict of nodes
        Float nodes of any shapes.
    wrt : Node, or a nested list, tuple or dict of nodes
        The targets.
    mode : {"auto", "reverse", "forward"}, optional
        Whether rows or columns are made: ``"reverse"`` takes one backward sweep for all elements
        of the output together, ``"forward"`` one forward derivative for all elements of the
        target. ``"auto"`` takes the fewer, and rows where only a call can tell.
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

    Notes
    -----
    The product of a row of weights with the Jacobian (`vjp`), or of the Jacobian with a column
    (`jvp`), is mapped (`vmap`) over the rows of an identity matrix: the graph is as large for a
    thousand rows as for one, and extents may be symbolic.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.jacobian(x**2, x).eval()
    array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    return _jacobian("jacobian", outputs, wrt, mode, unused)


_MODES = ("auto", "reverse", "forward")


def _jacobian(who: str, outputs: Any, wrt: Any, mode: str, unused: str) -> Any:
    roots = check_outputs(who, outputs)
    targets = check_targets(who, wrt)
    check_unused(who, unused)
    if mode not in _MODES:
        raise GradientError(message(f"{who}: mode={mode!r}", need=f"one of {', '.join(_MODES)}"))
    blocks = [like(wrt, _blocks(who, root, targets, mode, unused)) for _, root in roots]
    return like(outputs, blocks)


def _count(node: Node) -> int | None:
    """Return the number of elements where it is known, else None."""
    return node.size if isinstance(node.size, int) else None


def _blocks(
    who: str, root: Node, targets: list[tuple[str, Node]], mode: str, unused: str
) -> list[Node]:
    if mode == "auto":
        rows = _count(root)
        columns = [_count(target) for _, target in targets]
        known_counts = [count for count in columns if count is not None]
        fewer = len(known_counts) == len(columns) and (rows is None or sum(known_counts) < rows)
        mode = "forward" if fewer else "reverse"
    make = _by_columns if mode == "forward" else _by_rows
    return make(who, root, targets, unused)


def _units(node: Node) -> Node:
    """Return all arrays of a node's type that are 1 at one element and 0 elsewhere, stacked."""
    count = node.size
    rows = IOTA(shape=(count, 1), axis=0, dtype=_POSITION)
    columns = IOTA(shape=(1, count), axis=1, dtype=_POSITION)
    return reshape(cast(equal(rows, columns), node.dtype), (count, *node.shape))


def _by_rows(
    who: str, root: Node, targets: list[tuple[str, Node]], unused: str
) -> list[Node]:
    weight = input("weight", shape=root.shape, dtype=root.dtype)
    swept = sweep([root], [weight], targets)
    full = settle(who, "the outputs", [root], targets, swept, unused)
    units = _units(root)
    rows = batch(full, {weight: units}, root.size)
    return [
        reshape(in_front(row, root.size), (*root.shape, *target.shape))
        for row, (_, target) in zip(rows, targets, strict=True)
    ]


def _by_columns(
    who: str, root: Node, targets: list[tuple[str, Node]], unused: str
) -> list[Node]:
    blocks = []
    for label, target in targets:
        one = [(label, target)]
        direction = input("direction", shape=target.shape, dtype=target.dtype)
        (column,) = forward([root], one, [direction])
        if column is None:
            settle(who, "the outputs", [root], one, [None], unused)
            column = zeros_of(root)
        (columns,) = batch([column], {direction: _units(target)}, target.size)
        last = moveaxis(in_front(columns, target.size), 0, -1)
        blocks.append(reshape(last, (*root.shape, *target.shape)))
    return blocks


def hessian(loss: Node, wrt: Any, *, mode: str = "auto", unused: str = "raise") -> Any:
    """Build the matrix of all second derivatives of a scalar.

    Parameters
    ----------
    loss : Node
        A scalar of a float dtype.
    wrt : Node, or a nested list, tuple or dict of nodes
        The targets.
    mode : {"auto", "reverse", "forward"}, optional
        How the gradient is differentiated: see `jacobian`.
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

    See Also
    --------
    hvp : products with it, where the whole matrix is too large.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.hessian(x[0] ** 2 * x[1], x).eval()
    array([[4., 2.],
           [2., 0.]], dtype=float32)
    """
    return _jacobian("hessian", grad(loss, wrt, unused=unused), wrt, mode, "zeros")


@documented
def hvp(loss: Node, wrt: Any, vectors: Any, *, unused: str = "raise") -> Any:
    """Build the product of the matrix of second derivatives with vectors, without the matrix.

    For targets ``x`` with vectors ``v`` the result for a target ``y`` is
    ``sum_j d2 loss / (d y d x_j) * v_j``. It costs a few times what the gradient does.

    loss (Node): A scalar of a float dtype.
    wrt (Node, or a nested list, tuple or dict of nodes): The targets.
    vectors (Node or array, in the form of `wrt`): Each has its target's shape, or is a scalar,
        which then stands for every element.
    unused ({"raise", "zeros"}, optional): What to do for a target that no gradient reaches. A
        second derivative that vanishes because the gradient is constant is zeros in any case.
    returns (Node, or the nested form of `wrt`): Each of its target's shape and dtype.
    raises GradientError: As `grad`.
    raises ShapeError: Where a vector has another shape than its target.

    Notes
    -----
    The derivative of the gradient along the vectors is taken as the cotangents' product with it,
    one more backward sweep: the matrix of second derivatives is symmetric. (A rule given by
    `custom_gradient` that is no true gradient may have one that is not: the result is then that of
    its transpose.)

    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.hvp(x[0] ** 2 * x[1], x, mg.constant([1.0, 0.0])).eval()
    array([4., 2.], dtype=float32)
    """
    targets = check_targets("hvp", wrt)
    check_unused("hvp", unused)
    along = paired("hvp", "vector", "target", targets, vectors, "vectors")
    slopes = [slope for _, slope in leaves(grad(loss, wrt, unused=unused), "gradient")]
    products = sweep(slopes, along, targets)
    return like(wrt, settle("hvp", "the gradient", slopes, targets, products, "zeros"))
