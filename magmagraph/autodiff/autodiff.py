"""Reverse-mode differentiation: one backward sweep that builds more graph.

A gradient is an ordinary graph. The sweep walks the nodes between the targets and the loss once,
from the loss downwards, asks each operation's gradient rule for one cotangent per operand, and
adds up what reaches a node from its readers. Nothing runs, and nothing recurses. Where a node has a
stable form (`ops.rules.stable_forms`), the sweep goes on through that: the gradient is then finite
where the written expression's own would not be, and so are the gradients of the gradient.

Notation: the cotangent of a node ``v`` is the derivative of the loss with respect to ``v``; it has
the shape and dtype of ``v``. Inside the sweep that of a complex ``v`` is the ``c`` for which a
change ``dv`` changes the loss by ``Re(sum(c * dv))``, so that rules of holomorphic functions need
no conjugates; what users give and get is its conjugate, ``dL/dRe(v) + i dL/dIm(v)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import is_complex, is_float, is_inexact
from ..errors import GradientError, ShapeError, message
from ..ir.collection import collection_paused
from ..ir.docstrings import documented
from ..ir.graph import Node, topological
from ..ir.identity import is_among
from ..ir.lines import attribute, attributed
from ..ir.nesting import leaves, like
from ..ir.op import Parts, Refusal, describe
from ..ops.control.identities import MARKER
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add
from ..ops.elementwise.complex_numbers import conj, real
from ..ops.leaf import constant
from ..ops.reduction.primitives import sum_to
from ..ops.shape.arrange import reshape
from ..ops.shape.joining import broadcast_to
from .attribution import Attribution
from .route import Route
from .transforms.rebuild import observes, rebuild, unobserved

__all__ = ["grad", "vjp"]

_UNUSED = ("raise", "zeros")


def grad(loss: Node, wrt: Any, *, unused: str = "raise") -> Any:
    """Build the gradient of a scalar with respect to nodes: `mg.grad` of a node, which says more.

    loss (Node): A scalar of a float dtype.
    wrt (Node, or a nested list, tuple or dict of nodes): The targets.
    unused ({"raise", "zeros"}, optional): What to do for a target that no gradient reaches.
    returns (Node, or the nested form of `wrt`):
    raises GradientError: Where the loss is not a float scalar, a target is not a float node, or no
        gradient reaches a target and `unused` is "raise".
    """
    check_loss("grad", loss)
    targets = check_targets("grad", wrt, takes_complex=True)
    check_unused("grad", unused)
    depth = _depth(loss)
    seed = MARKER(constant(1, dtype=loss.dtype), role="seed", **depth)
    gradients = settle("grad", "the loss", [loss], targets, sweep([loss], [seed], targets), unused)
    marked = [
        MARKER(
            conj(cotangent),
            name=f"gradient({target.name})" if target.name else None,
            role="gradient",
            **depth,
        )
        for (_, target), cotangent in zip(targets, gradients, strict=True)
    ]
    return like(wrt, marked)


@documented
def vjp(outputs: Any, wrt: Any, cotangents: Any, *, unused: str = "raise") -> Any:
    """Build the product of cotangents with the Jacobian: reverse mode for any outputs.

    For outputs ``y`` with cotangents ``u`` the result for a target ``x`` is
    ``sum_i u_i * d y_i / d x``. Of complex ones it is the gradient of
    ``Re(sum_i conj(u_i) * y_i)``: for a holomorphic function ``sum_i u_i * conj(d y_i / d x)``.

    outputs (Node, or a nested list, tuple or dict of nodes): Float nodes of any shapes.
    wrt (Node, or a nested list, tuple or dict of nodes): The targets.
    cotangents (Node or array, in the form of `outputs`): Weights of the outputs' elements: each has
        its output's shape, or is a scalar, which then stands for every element.
    unused ({"raise", "zeros"}, optional): What to do for a target that no gradient reaches.
    returns (Node, or the nested form of `wrt`):
    raises GradientError: As `grad`, and where `cotangents` has another form than `outputs`.
    raises ShapeError: Where a cotangent has another shape than its output.

    See Also
    --------
    grad, jvp

    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> mg.vjp(x**2, x, mg.constant([1.0, 10.0])).eval()
    array([ 2., 40.], dtype=float32)
    """
    roots = check_outputs("vjp", outputs, takes_complex=True)
    targets = check_targets("vjp", wrt, takes_complex=True)
    check_unused("vjp", unused)
    weights = paired("vjp", "cotangent", "output", roots, cotangents, "cotangents")
    nodes = [node for _, node in roots]
    swept = sweep(nodes, [conj(weight) for weight in weights], targets)
    settled = settle("vjp", "the outputs", nodes, targets, swept, unused)
    return like(wrt, [conj(cotangent) for cotangent in settled])


Labelled = Sequence[tuple[str, Node]]


def sweep(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Labelled,
    *,
    free: bool = False,
) -> list[Node | None]:
    """Walk backwards from the outputs once; return each target's cotangent, None where none.

    Cotangents have the shapes and dtypes of their outputs. Where a target is computed from
    another one, the other's cotangent includes that path, unless targets are `free` of each other.
    """
    attribution = Attribution()
    with collection_paused(), attributed(None):
        return _sweep(outputs, cotangents, targets, free, attribution)


def _sweep(
    outputs: Sequence[Node],
    cotangents: Sequence[Node],
    targets: Labelled,
    free: bool,
    attribution: Attribution,
) -> list[Node | None]:
    route = Route(outputs, [target for _, target in targets], free, attribution)
    if any(map(observes, route.order)):
        # Taps would hide expressions that have a stable form: the way leads through a copy without
        # them, which freezing makes one with the original again.
        copies = rebuild([*outputs, *(target for _, target in targets)], {}, unobserved)
        outputs, ends = copies[: len(outputs)], copies[len(outputs) :]
        targets = [(label, end) for (label, _), end in zip(targets, ends, strict=True)]
        route = Route(outputs, ends, free, attribution)
    needed, order, operands_of = route.wanted, route.order, route.operands
    carries = set(needed)  # nodes through which a gradient can reach a target
    for node in order:
        if node.op.gradient is not None and any(id(i) in carries for i in operands_of(node)):
            carries.add(id(node))
    arriving: dict[int, list[Node]] = {}
    arriving_at: dict[int, dict[int, list[Node]]] = {}  # of each of several results
    for output, cotangent in zip(outputs, cotangents, strict=True):
        arriving.setdefault(id(output), []).append(cotangent)
    cotangents_of: dict[int, Node] = {}
    for node in reversed(order):
        attribute(attribution.line(node))
        if isinstance(node.type, tuple):
            several = arriving_at.pop(id(node), None)
            if several is None or id(node) not in carries:
                continue
            results = range(len(node.type))
            each: Any = tuple(_total(several[i]) if i in several else None for i in results)
            parts = node.op.gradient(node, each)  # type: ignore[misc]
            _pass_on(node.inputs, parts, carries, arriving)
            continue
        terms = arriving.pop(id(node), None)
        if terms is None or id(node) not in carries:
            continue
        cotangent = _total(terms)
        if id(node) in needed:
            cotangents_of[id(node)] = cotangent
            if free:
                continue
        operands = operands_of(node)
        if not any(id(i) in carries for i in operands):
            continue
        parts = route.parts(node, cotangent)
        if len(operands) == 1 and isinstance(operands[0].type, tuple):
            place = arriving_at.setdefault(id(operands[0]), {})
            place.setdefault(node.attrs["index"], []).append(cotangent)
        else:
            _pass_on(operands, parts, carries, arriving)
    return [cotangents_of.get(id(target)) for _, target in targets]


def _pass_on(
    operands: Sequence[Node],
    parts: Parts,
    carries: set[int],
    arriving: dict[int, list[Node]],
) -> None:
    """Add each operand's part to what arrives there."""
    for operand, part in zip(operands, parts, strict=True):
        if part is not None and id(operand) in carries and is_inexact(operand.dtype):
            if isinstance(part, Refusal):
                raise part.error()
            arriving.setdefault(id(operand), []).append(_fitted(part, operand))


def _fitted(cotangent: Node, operand: Node) -> Node:
    """Return a cotangent summed over broadcast axes and cast, as the operand has them.

    A name that met an int is that int in the result's shape, and so in the cotangent's; the
    operand's own is the name, which rules with bodies go by.
    """
    if cotangent.shape != operand.shape:
        cotangent = reshape(sum_to(cotangent, operand.shape), operand.shape)
    if is_complex(cotangent.dtype) and not is_complex(operand.dtype):
        cotangent = real(cotangent)
    return cotangent if cotangent.dtype == operand.dtype else cast(cotangent, operand.dtype)


def _total(terms: list[Node]) -> Node:
    """Add up cotangents as a balanced tree, in the order in which they came."""
    while len(terms) > 1:
        pairs = [add(left, right) for left, right in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, terms[-1]] if len(terms) % 2 else pairs
    return terms[0]


def zeros_of(node: Node) -> Node:
    """Return zeros of a node's shape and dtype."""
    zero = constant(0, dtype=node.dtype)
    return broadcast_to(zero, node.shape) if node.shape else zero


def settle(
    who: str,
    what: str,
    outputs: Sequence[Node],
    targets: Labelled,
    cotangents: Sequence[Node | None],
    unused: str,
) -> list[Node]:
    """Return cotangents without gaps: zeros, or an error that says why one is missing."""
    result = []
    for (label, target), cotangent in zip(targets, cotangents, strict=True):
        if cotangent is None:
            if unused == "raise":
                raise _disconnected(who, what, outputs, label, target)
            cotangent = zeros_of(target)
        result.append(cotangent)
    return result


def _disconnected(
    who: str, what: str, outputs: Sequence[Node], label: str, target: Node
) -> GradientError:
    """Make the error for a target that no gradient reaches, naming what stands in the way."""
    order = topological(outputs)
    reached = {id(target)}
    smooth = {id(target)}
    barriers: dict[str, str] = {}
    for node in order:
        if not any(id(i) in reached for i in node.inputs):
            continue
        reached.add(id(node))
        if any(id(i) in smooth for i in node.inputs):
            if node.op.gradient is None:
                barriers.setdefault(node.op.name, node.op.no_gradient)
            else:
                smooth.add(id(node))
    hint = "leave the target out, or unused='zeros' for a gradient of zeros"
    if not is_among(target, order) or not any(id(output) in reached for output in outputs):
        return GradientError(
            message(
                f"{who}: {what} does not depend on {label}, {describe(target)}"
                if what == "the loss"
                else f"{who}: {what} do not depend on {label}, {describe(target)}",
                need=f"targets that {what} {'is' if what == 'the loss' else 'are'} computed from",
                hint=hint,
            )
        )
    through = ", ".join(
        f"{name} ({reason})" if reason else name for name, reason in barriers.items()
    )
    return GradientError(
        message(
            f"{who}: no gradient reaches {label}, {describe(target)}"
            + (f"; it is read only through {through}" if through else ""),
            need="a path of operations that have a gradient",
            hint=hint,
        )
    )


def _depth(loss: Node) -> dict[str, Any]:
    """Return how deep a gradient is nested, as an attribute: nothing, or 2 and more."""
    inner = [
        node.attrs.get("depth", 1)
        for node in topological([loss])
        if node.op is MARKER and node.attrs["role"] == "seed"
    ]
    return {"depth": 1 + max(inner)} if inner else {}


def check_loss(who: str, loss: Any) -> None:
    """Raise unless a loss is a node, and a real float scalar."""
    if not isinstance(loss, Node):
        raise GradientError(
            message(
                f"{who}: the loss is of type {type(loss).__name__}, not a node",
                need="a scalar node",
                hint=f"{who} takes what the function returns: loss = f(x), "
                f"{'' if who == 'minimize' else 'mg.'}{who}(loss, x)"
                if callable(loss)
                else None,
            )
        )
    if not is_float(loss.dtype):
        raise GradientError(
            message(
                f"{who}: the loss is {describe(loss)}",
                need="a float dtype",
                hint="mg.real(loss), or mg.sum(mg.absolute(x)) of what the loss is made of"
                if not isinstance(loss.type, tuple) and is_complex(loss.dtype)
                else "mg.cast(loss, 'float32')",
            )
        )
    if loss.shape != ():
        raise GradientError(
            message(
                f"{who}: the loss is not a scalar: {describe(loss)}",
                need="shape ()",
                hint="mg.sum(loss) or mg.mean(loss); or mg.vjp, mg.jacobian for every element",
            )
        )


def check_outputs(
    who: str, outputs: Any, *, takes_complex: bool = False
) -> list[tuple[str, Node]]:
    """Return the labelled float nodes of nested `outputs`, or raise."""
    return _float_nodes(who, "output", leaves(outputs, "outputs"), takes_complex)


def check_targets(who: str, wrt: Any, *, takes_complex: bool = False) -> list[tuple[str, Node]]:
    """Return the labelled float nodes of nested `wrt`, or raise."""
    return _float_nodes(who, "target", leaves(wrt, "wrt"), takes_complex)


def _float_nodes(
    who: str, role: str, members: list[tuple[str, Any]], takes_complex: bool
) -> list[tuple[str, Node]]:
    for label, member in members:
        if not isinstance(member, Node):
            raise GradientError(
                message(
                    f"{who}: {label} is of type {type(member).__name__}, not a node",
                    hint="nodes that a function returned: y = f(x)" if callable(member) else None,
                )
            )
        if isinstance(member.type, tuple) or not is_inexact(member.dtype):
            raise GradientError(
                message(
                    f"{who}: the {role} {label} is {describe(member)}",
                    need="a float dtype: integers and booleans do not vary continuously",
                )
            )
        if is_complex(member.dtype) and not takes_complex:
            raise GradientError(
                message(
                    f"{who}: the {role} {label} is {describe(member)}",
                    need="a real one: a matrix of complex derivatives exists for functions that "
                    "are holomorphic only",
                    hint="its parts mg.real and mg.imag, or mg.vjp and mg.jvp, which take any",
                )
            )
    return members


def check_unused(who: str, unused: str) -> None:
    """Raise unless `unused` is one of its two values."""
    if unused not in _UNUSED:
        raise GradientError(message(f"{who}: unused={unused!r}", need="'raise' or 'zeros'"))


def paired(who: str, what: str, role: str, roots: Labelled, values: Any, name: str) -> list[Node]:
    """Return values in the form, shapes and dtypes of the nodes that they belong to."""
    members = leaves(values, name)
    if len(members) != len(roots):
        raise GradientError(
            message(
                f"{who}: {len(members)} {what}s for {len(roots)} {role}s",
                need=f"one {what} per {role}, in the same form",
            )
        )
    result = []
    for (_, root), (label, value) in zip(roots, members, strict=True):
        node = value if isinstance(value, Node) else as_node(value, root.dtype)
        varies = is_float(node.dtype) or (is_complex(node.dtype) and is_complex(root.dtype))
        if not varies and (isinstance(value, (Node, np.ndarray)) or is_complex(node.dtype)):
            raise GradientError(
                message(
                    f"{who}: {label} is {describe(node)}",
                    need=f"a float dtype, as its {role} has" if is_complex(node.dtype)
                    else "a float dtype",
                )
            )
        node = cast(node, root.dtype)
        if node.shape == () and root.shape != ():
            node = broadcast_to(node, root.shape)
        if node.shape != root.shape:
            raise ShapeError(
                message(
                    f"{who}: {label} has shape {node.shape}, its {role} {root.shape}",
                    need="equal shapes, or a scalar",
                )
            )
        result.append(node)
    return result
