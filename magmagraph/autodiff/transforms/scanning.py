"""`mg.scan` and `mg.while_loop`: loops as operations with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import DTypeError, GraphError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Graph, Node, topological
from ...ir.nesting import leaves, like
from ...ir.op import Effect, describe
from ...ir.types import Extent
from ...ops.control.loop import LOOP_STEP, loop
from ...ops.convert import as_node
from ...ops.indexing.iota import IOTA
from ...ops.leaf import constant, input
from ...ops.random.bits import RANDOM_STEP
from ...ops.random.drawing import drawing
from ...ops.shape.arrange import reshape
from ...ops.shape.joining import concatenate, in_shape
from .rebuild import rebuild

__all__ = ["scan", "while_loop"]

_INT64 = np.dtype(np.int64)
_FEW = 512  # iterations: their numbers are a constant, 4 KiB at most; more are counted at the call


def scan(
    function: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
    *,
    checkpoint: bool | int | str = False,
) -> tuple[Any, Any]:
    """Run a function over the rows of arrays, handing a carry from each to the next.

    It is one operation: the function is called once, its graph is compiled once, and runs as often
    as there are rows::

        carry = init
        for t in range(length):
            carry, ys[t] = function(carry, xs[t])

    Parameters
    ----------
    function : callable
        Takes the carry and a row, and returns the new carry, of the same form, shapes and dtypes,
        and what is stacked: a nested list, tuple or dict of nodes, or None. Nodes that it takes
        from outside (variables, inputs) are operands too, and get gradients.
    init : Node or array, or a nested list, tuple or dict of these
        The first carry.
    xs : Node or array, or a nested form of these, optional
        What is run over, along its first axis; None where only `length` counts: the row is
        then None.
    length : int, str or Dim, optional
        The number of rows; told by `xs` where there are any.
    reverse : bool, optional
        Begin with the last row. Rows of `ys` stand where those of `xs` do.
    checkpoint : bool, int or "sqrt", optional
        What the gradient keeps of the iterations. False: the carries and the results of matrix
        products, convolutions and factorizations. True: the carries alone; the rest is computed
        again. An int k: every k-th carry, from which k iterations are computed again at a time;
        "sqrt": k is the root of the length.

    Returns
    -------
    carry
        The last carry, in the form of `init`.
    ys
        In the form of what the function stacks, each with an axis of `length` in front.

    Raises
    ------
    GraphError
        If the carry comes back in another form, there is neither a carry nor anything stacked, or
        the body holds updates of variables.
    ShapeError
        If lengths differ or are missing, or part of the carry comes back in another shape.
    DTypeError
        If part of the carry comes back as another dtype.

    See Also
    --------
    while_loop, cond

    Notes
    -----
    Random nodes that the function makes draw new numbers in each iteration; with a key they draw
    the same (`mg.random.fold_in` of an iteration's number makes keys that differ). The reverse of
    the loop is a loop again, so that any derivative exists. `vmap` maps the body.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", ("time",))
    >>> total, sums = mg.scan(lambda c, row: (c + row, c + row), 0.0, x)
    >>> mg.function([x], [total, sums])([1.0, 2.0, 3.0])
    [array(6., dtype=float32), array([1., 3., 6.], dtype=float32)]
    >>> mg.grad(sums[1], x).eval({x: [1.0, 2.0, 3.0]})
    array([1., 1., 0.], dtype=float32)
    """
    stacks = [_stack(label, member) for label, member in _members(xs, "xs")]
    extent = _length("scan", stacks, length)
    every = _every(checkpoint, extent)
    starts = [as_node(member) for _, member in _members(init, "carry")]
    points = [input(f"carry {i}", start.shape, start.dtype) for i, start in enumerate(starts)]
    rows = [input(f"row {i}", x.shape[1:], x.dtype) for i, x in enumerate(stacks)]
    with drawing() as drawn:
        returned = function(_like(init, points), _like(xs, rows))
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise GraphError(
            message(
                f"scan: the function returned {type(returned).__name__}",
                need="a pair: the new carry, and what is stacked",
                hint="return carry, None",
            )
        )
    after, shown = returned
    carried = _carried("scan", "init", init, points, after)
    ys = [as_node(member) for _, member in _members(shown, "ys")]
    if not carried and not ys:
        raise GraphError(message("scan: there is neither a carry nor anything stacked"))
    sequence = dict(zip(rows, stacks, strict=True))
    counter = input("iteration", (), _INT64)
    outputs = _numbered([*carried, *ys], drawn, counter)
    if not stacks or any(node is counter for node in topological(outputs)):
        if isinstance(extent, int) and extent <= _FEW:
            sequence[counter] = constant(np.arange(extent, dtype=_INT64))
        else:
            sequence[counter] = IOTA(shape=(extent,), axis=0, dtype=_INT64)
    first = dict(zip(points, starts, strict=True))
    carries, results = outputs[: len(carried)], outputs[len(carried) :]
    if every is not None:
        finals, tops = _in_pieces(carries, results, first, sequence, extent, every, reverse)
    else:
        kept = "carries" if checkpoint is True else "products"
        finals, tops = loop(carries, results, first, sequence, reverse=reverse, save=kept)
    return _like(init, finals), _like(shown, tops)


@documented
def while_loop(
    condition: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    max_steps: Any = None,
) -> Any:
    """Run a function on a carry as long as a condition holds.

    ::

        carry = init
        while condition(carry):
            carry = body(carry)

    condition (callable): Takes the carry and returns a bool scalar.
    body (callable): Takes the carry and returns the next, of the same form, shapes and dtypes. Both
        functions are called once, to build their graphs; nodes that they take from outside are
        operands.
    init (Node or array, or a nested list, tuple or dict of these): The first carry.
    max_steps (int, str or Dim, optional): The most steps: the loop ends there even where the
        condition still holds. With such a bound gradients flow in reverse mode too, and memory for
        as many carries is planned for them.
    returns (Node or the nested form of `init`): The last carry.
    raises GraphError, ShapeError, DTypeError: As `scan`; and if the condition is not a bool scalar.

    See Also
    --------
    scan, fixed_point

    Notes
    -----
    Without `max_steps` it is differentiated in forward mode only (`mg.jvp`, once). The derivative
    is that of the steps that ran; their number is piecewise constant.

    An interrupt (Ctrl-C) ends a loop between two steps, and the call changes no variable; where a
    condition may go on for ever, `max_steps` ends it, too.

    >>> n = mg.var("n", dtype="int32")
    >>> def collatz(carry):
    ...     k, steps = carry
    ...     return mg.where(mg.equal(k % 2, 0), k // 2, 3 * k + 1), steps + 1
    >>> _, steps = mg.while_loop(lambda c: c[0] > 1, collatz, (n, 0))
    >>> steps.eval({n: 27})
    array(111, dtype=int32)
    """
    starts = [as_node(member) for _, member in _members(init, "carry")]
    if not starts:
        raise GraphError(message("while_loop: init is empty", need="a node, or a form of nodes"))
    extent = None if max_steps is None else _extent("while_loop", "max_steps", max_steps)
    points = [input(f"carry {i}", start.shape, start.dtype) for i, start in enumerate(starts)]
    with drawing() as drawn:
        after = body(_like(init, points))
        test = _condition(condition(_like(init, points)))
    carried = _carried("while_loop", "init", init, points, after)
    counter, going = input("step", (), _INT64), input("going", (), np.bool_)
    next_carries = _numbered(carried, drawn, counter)
    # Each step ends with the test of the next one; that of the first stands outside.
    (first_test,) = rebuild([_numbered([test], drawn, counter)[0]], {
        **dict(zip(points, starts, strict=True)), counter: constant(-1, dtype=_INT64),
    })
    (next_test,) = rebuild(
        _numbered([test], drawn, counter), dict(zip(points, next_carries, strict=True))
    )
    carries = [next_test, *next_carries]
    begin: dict[Node, Node] = {going: first_test, **dict(zip(points, starts, strict=True))}
    if any(node is counter for node in topological(carries)):
        carries.append(counter + constant(1, dtype=_INT64))
        begin[counter] = constant(0, dtype=_INT64)
    finals, _ = loop(carries, [], begin, {}, length=extent, flag="carry")
    return _like(init, finals[1 : 1 + len(starts)])


# What both need.


def _members(tree: Any, label: str) -> list[tuple[str, Any]]:
    """Return the members of a nested form; None has none."""
    return [(where, member) for where, member in leaves(tree, label) if member is not None]


def _like(tree: Any, members: Sequence[Any]) -> Any:
    """Return members in a nested form; None stays where it is."""
    rest = iter(members)
    filled = [None if member is None else next(rest) for _, member in leaves(tree, "")]
    return like(tree, filled)


def _stack(label: str, member: Any) -> Node:
    node = as_node(member)
    if not node.ndim:
        raise ShapeError(
            message(
                f"scan: {label} is a scalar: {describe(node)}",
                need="an axis to run over, the first",
                hint="length=, and take the value from outside of the function",
            )
        )
    return node


def _extent(who: str, name: str, value: Any) -> Extent:
    """Return a length as an extent, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer, str, dims.Dim)):
        raise GraphError(
            message(f"{who}: {name}={value!r}", need="an int, a named dimension or a Dim")
        )
    if isinstance(value, (int, np.integer)):
        if value < 0:
            raise ShapeError(message(f"{who}: {name}={value}", need="0 or more"))
        return int(value)
    return dims.parse_shape((value,))[0]


def _length(who: str, stacks: Sequence[Node], length: Any) -> Extent:
    if length is None and not stacks:
        raise ShapeError(message(f"{who}: nothing tells the length", need="xs, or length="))
    extents = [("length", _extent(who, "length", length))] if length is not None else []
    extents += [(describe(stack), stack.shape[0]) for stack in stacks]
    first, extent = extents[0]
    for label, other in extents[1:]:
        met = dims.unify(extent, other, [])
        if met is None:
            raise ShapeError(
                message(
                    f"{who}: {label} has {other} rows, and {first} has {extent}"
                    if first != "length"
                    else f"{who}: {label} has {other} rows, and length={extent}",
                    need="one length",
                )
            )
        extent = met
    return extent


def _every(checkpoint: Any, extent: Extent) -> int | None:
    """Return after how many iterations a carry is kept, None for after each."""
    if isinstance(checkpoint, bool):
        return None
    if checkpoint == "sqrt":
        if not isinstance(extent, int):
            raise GraphError(
                message(
                    f"scan: checkpoint='sqrt' of the length {extent}, which only a call knows",
                    need="a length that is an int",
                    hint="checkpoint=k, an int: about the root of the likely length",
                )
            )
        return max(1, math.isqrt(extent))
    if isinstance(checkpoint, (int, np.integer)) and checkpoint >= 1:
        return int(checkpoint)
    raise GraphError(
        message(f"scan: checkpoint={checkpoint!r}", need="a bool, an int of at least 1, or 'sqrt'")
    )


def _carried(
    who: str, source: str, init: Any, points: Sequence[Node], after: Any
) -> list[Node]:
    """Return the new carry, which has the form and the types of the first one."""
    names = [label for label, _ in _members(init, "carry")]
    returned = _members(after, "carry")
    if [label for label, _ in returned] != names:
        raise GraphError(
            message(
                f"{who}: the function returned {', '.join(n for n, _ in returned) or 'no carry'}",
                need=f"the form of {source}: " + (", ".join(names) or "None"),
            )
        )
    carried = []
    for (label, member), point in zip(returned, points, strict=True):
        node = as_node(member, point.dtype)
        if node.dtype != point.dtype:
            raise DTypeError(
                message(
                    f"{who}: {label} is {point.type} in {source}, and comes back as {node.type}",
                    need="one dtype",
                    hint=f"mg.cast(x, {point.dtype.name!r}) in the function, or {source} "
                    f"in {node.dtype.name}",
                )
            )
        node = in_shape(node, point.shape)
        if node.shape != point.shape:
            raise ShapeError(
                message(
                    f"{who}: {label} is {point.type} in {source}, and comes back as {node.type}",
                    need="one shape",
                    hint=f"mg.broadcast_to({source}, {node.shape}), or a sum over what the "
                    "function adds",
                )
            )
        carried.append(node)
    return carried


def _condition(value: Any) -> Node:
    if isinstance(value, (bool, np.bool_)):
        raise GraphError(
            message(
                f"while_loop: the condition returned {bool(value)}, which is so at every step",
                need="a bool scalar that is computed of the carry",
                hint="mg.scan(..., length=) for a known number of steps",
            )
        )
    node = as_node(value)
    if isinstance(node.type, tuple) or node.dtype != np.bool_ or node.shape != ():
        raise GraphError(
            message(
                f"while_loop: the condition returned {describe(node)}",
                need="a bool scalar",
                hint="a comparison: mg.max(mg.absolute(x)) > 1e-3",
            )
        )
    return node


def _numbered(outputs: Sequence[Node], drawn: Any, counter: Node) -> list[Node]:
    """Return outputs whose own random nodes read the iteration beside the step of the call."""

    def renew(node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not _draws_inside(node, drawn):
            return None
        moved = [
            LOOP_STEP(new, counter) if _of_the_call(old) else new
            for old, new in zip(node.inputs, operands, strict=True)
        ]
        return node.op(*moved, name=node.name, **node.attrs)

    return rebuild(outputs, {}, renew)


def _draws_inside(node: Node, drawn: Any) -> bool:
    """Return whether a node draws, or a body of it does, and was made inside of the function."""
    if node.op.effect is Effect.RANDOM:
        return bool(node.inputs) and node in drawn
    values = [v for a in node.attrs.values() for v in (a if isinstance(a, tuple) else (a,))]
    bodies = [value for value in values if isinstance(value, Graph)]
    return any(_draws_inside(inner, drawn) for body in bodies for inner in body.nodes)


def _of_the_call(step: Node) -> bool:
    """Return whether a node is the step of the call, maybe with iterations of loops."""
    return step.op is RANDOM_STEP or step.op is LOOP_STEP


def _in_pieces(
    carried: Sequence[Node],
    rows: Sequence[Node],
    starts: dict[Node, Node],
    stacked: dict[Node, Node],
    extent: Extent,
    every: int,
    reverse: bool,
) -> tuple[list[Node], list[Node]]:
    """Return a loop over pieces of `every` iterations, of which the first carries alone are kept.

    The iterations that are left over run as a loop of their own.
    """
    pieces = extent // every
    whole = pieces * every
    rest = extent - whole
    lone = isinstance(rest, int) and rest == 0

    def over(first: dict[Node, Node], part: dict[Node, Node], kept: str) -> Any:
        return loop(carried, rows, first, part, reverse=reverse, save=kept)

    def outer(first: dict[Node, Node], part: dict[Node, Node]) -> tuple[list[Node], list[Node]]:
        cut = {
            leaf: reshape(stack, (pieces, every, *stack.shape[1:])) for leaf, stack in part.items()
        }
        points = {input("carry", p.shape, p.dtype): start for p, start in first.items()}
        piece = {input("piece", s.shape[1:], s.dtype): s for s in cut.values()}
        finals, tops = over(
            dict(zip(first, points, strict=True)), dict(zip(cut, piece, strict=True)), "products"
        )
        last, rows = loop(finals, tops, points, piece, reverse=reverse, save="carries")
        return last, [reshape(top, (whole, *top.shape[2:])) for top in rows]

    if lone:
        return outer(starts, stacked)
    head = {leaf: stack[:rest] if reverse else stack[:whole] for leaf, stack in stacked.items()}
    tail = {leaf: stack[rest:] if reverse else stack[whole:] for leaf, stack in stacked.items()}
    if reverse:
        middle, above = outer(starts, tail)
        finals, below = over(dict(zip(starts, middle, strict=True)), head, "carries")
    else:
        middle, below = outer(starts, head)
        finals, above = over(dict(zip(starts, middle, strict=True)), tail, "carries")
    return finals, [concatenate([a, b]) for a, b in zip(below, above, strict=True)]
