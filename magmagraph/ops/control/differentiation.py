"""Identities that say how a value is to be differentiated: recomputation and custom rules."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from operator import is_
from typing import Any

from ...autodiff.autodiff import sweep
from ...autodiff.transforms.rebuild import rebuild
from ...dtypes import is_inexact
from ...errors import GradientError, message
from ...ir.docstrings import documented
from ...ir.graph import Node, topological
from ...ir.nesting import leaves, like
from ...ir.op import INEXACT, Call, Effect, Kind, Layout, Op
from ...ir.types import Type
from ..convert import as_node
from ..elementwise.complex_numbers import conj
from ..leaf import input
from ..reduction.primitives import SUM
from ..rules import onnx_forms
from ..rules.batching import mapped_extent, repeated
from ..shape.layout import broadcast_to
from .mapped import batch, in_front

__all__ = ["checkpoint", "checkpoint_name", "custom_gradient"]

_uids = itertools.count()


def _first_type(call: Call, value: Type, *others: Type, **attrs: Any) -> Type:
    return value


def _first(xp: Any, value: Any, *others: Any, **attrs: Any) -> Any:
    return value


# Recomputation.


def _checkpoint_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    """Differentiate a copy of the body behind barriers, which is computed again."""
    argument_count = node.attrs["arguments"]
    uid = node.attrs["uid"]
    saved_count = node.attrs["saved"]
    value, *reads = node.inputs
    reads, saved = reads[: len(reads) - saved_count], reads[len(reads) - saved_count :]
    fresh = [
        RECOMPUTE(operand, uid=uid, position=position) if position < argument_count else operand
        for position, operand in enumerate(reads)
    ]
    replace = dict(zip(reads, fresh, strict=True))
    if value in replace:
        return (cotangent, *(None for _ in node.inputs[1:]))
    copy, *again = rebuild([value, *saved], replace, _without_updates)
    float_operands = [operand for operand in fresh if is_inexact(operand.dtype)]
    gradients = sweep([copy], [cotangent], [("", operand) for operand in float_operands], free=True)
    # What is saved is read where the copy of it would be, so that nobody computes that; from
    # behind a barrier, or what is made of it in turn would be kept as well.
    recomputed = [
        RECOMPUTE(node, uid=uid, position=argument_count + place)
        for place, node in enumerate(saved)
    ]
    gradient_nodes = [part for part in gradients if part is not None]
    parts = iter(rebuild(gradient_nodes, dict(zip(again, recomputed, strict=True))))
    by_operand = {
        operand: None if part is None else next(parts)
        for operand, part in zip(float_operands, gradients, strict=True)
    }
    return (None, *(by_operand.get(operand) for operand in fresh), *(None for _ in saved))


def _without_updates(node: Node, operands: tuple[Node, ...]) -> Node | None:
    """Return the value alone where it carries updates, or is observed: once is enough."""
    return operands[0] if node.op.layout.fades or node.op.effect is Effect.ORDERED else None


RECOMPUTE = Op(
    name="recompute",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="An identity that keeps what is computed from it apart from equal expressions.",
    rule=_first_type,
    attributes={"uid": "int", "position": "Count"},
    evaluate=_first,
    layout=Layout(alias=True),
    gradient=lambda node, cotangent: (cotangent,),
    batching="identity",
    onnx=onnx_forms.first,
)

CHECKPOINT = Op(
    name="checkpoint",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="The first operand; its gradient computes it again from the other operands.",
    rule=_first_type,
    attributes={"uid": "int", "arguments": "Count", "saved": "Count"},
    evaluate=_first,
    layout=Layout(alias=True),
    gradient=_checkpoint_gradient,
    batching="identity",
    onnx=onnx_forms.first,
)


CHECKPOINT_NAME = Op(
    name="checkpoint_name",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="An identity under a name, by which policies of checkpoints choose.",
    rule=_first_type,
    attributes={"label": "str"},
    evaluate=_first,
    layout=Layout(alias=True),
    gradient=lambda node, cotangent: (cotangent,),
    batching="identity",
    onnx=onnx_forms.first,
)


@documented
def checkpoint_name(x: Any, name: str) -> Node:
    """Return a value under a name that the policy of a `checkpoint` may choose to keep.

    x: Node or array.
    name: The name; several values may share it.
    returns: The value itself.

    >>> def block(h):
    ...     return mg.sin(mg.checkpoint_name(mg.exp(h), "power"))
    >>> x = mg.var("x", init=0.0)
    >>> mg.grad(mg.checkpoint(block, policy=["power"])(x), x).eval().round(4)
    np.float32(0.5403)
    """
    if not isinstance(name, str):
        raise GradientError(
            message(f"checkpoint_name: the name is {type(name).__name__}", need="a string")
        )
    return CHECKPOINT_NAME(as_node(x), label=name)


Policy = str | Collection[str] | Callable[[Node], bool]
_POLICIES = ("nothing", "everything", "contractions")


def _saves(policy: Any) -> Callable[[Node], bool] | None:
    """Return the predicate of values that are saved; None saves all."""
    word = policy if isinstance(policy, str) else ""
    if word == "nothing":
        return lambda node: False
    if word == "everything":
        return None
    if word == "contractions":
        return lambda node: node.op.kind in (Kind.CONTRACTION, Kind.CONVOLUTION)
    if callable(policy):
        return lambda node: bool(policy(node))
    if isinstance(policy, Collection) and not isinstance(policy, str):
        names = frozenset(policy)
        if all(isinstance(name, str) for name in names):
            return lambda node: node.op is CHECKPOINT_NAME and node.attrs["label"] in names
    raise GradientError(
        message(
            f"checkpoint: policy={policy!r}",
            need=f"one of {', '.join(map(repr, _POLICIES))}; names given by mg.checkpoint_name; "
            "or a function of nodes",
        )
    )


@documented
def checkpoint(
    target: Any, inputs: Node | Sequence[Node] | None = None, *, policy: Policy = "nothing"
) -> Any:
    """Recompute in the backward pass instead of keeping intermediate values.

    The value is the same, and so are the gradients. What lies between the inputs and the value
    is not kept for the gradient, but computed a second time from the inputs: memory for time.
    A policy may have some of it kept: what is dear to compute and small to hold.

    target (callable or Node): A function of nodes that returns a node or a nested list, tuple or
        dict of nodes: the result is a function of the same arguments. Or a node.
    inputs (Node or sequence of nodes, optional): With a node: from where it is recomputed. These,
        and what they are computed from, are kept. Default: the inputs and variables that the node
        depends on.
    policy (str, collection of str, or callable, optional): What is kept besides. ``"nothing"``;
        ``"contractions"``: results of matrix products and convolutions, so that only what is cheap
        is computed again; names given by `checkpoint_name`; a function that is given each node
        inside and returns whether its value is kept; ``"everything"``: as if there were no
        checkpoint.
    returns (callable or Node):
    raises GradientError: Where the target is neither a function nor a node, or depends on none of
        the inputs: there is nothing to recompute; a function is given inputs; or the policy is
        none.

    Notes
    -----
    The copy is built on ``recompute`` identities, which carry a number of their own, so that it
    is not merged with the equal expressions of the forward pass. Nodes that the function takes
    from outside of its arguments (weights, say) get their gradients as usual; they are kept.
    Random nodes in the copy draw the same numbers.

    >>> x = mg.var("x", init=[0.0, 1.0])
    >>> block = mg.checkpoint(lambda h: mg.tanh(mg.sin(h)) * 2.0)
    >>> mg.grad(mg.sum(block(x)), x).eval()[0]
    np.float32(2.0)
    """
    saves = _saves(policy)
    if saves is None:
        return target
    if isinstance(target, Node):
        if inputs is None:
            starts = [node for node in topological([target]) if not node.inputs]
            # Constants need no barrier: expressions of constants alone are folded.
            starts = [node for node in starts if "key" in node.attrs or "state" in node.attrs]
        else:
            starts = [inputs] if isinstance(inputs, Node) else list(inputs)
        return _checkpointed(target, starts, next(_uids), saves)

    if not callable(target):
        raise GradientError(
            message(
                f"checkpoint: the target is of type {type(target).__name__}",
                need="a function of nodes, or one node",
                hint="checkpoint(function)(*inputs), where the function returns several nodes",
            )
        )
    if inputs is not None:
        raise GradientError(
            message(
                "checkpoint: a function is given, and inputs, which go with a node",
                need="a function alone: the result is a function of the same arguments",
                hint="mg.checkpoint(function)(*inputs)",
            )
        )

    def checkpointed(*arguments: Any, **keywords: Any) -> Any:
        operands = [as_node(member) for _, member in leaves([*arguments], "arguments")]
        result = target(*like([*arguments], operands), **keywords)
        uid = next(_uids)
        members = [member for _, member in leaves(result, "result")]
        return like(result, [_checkpointed(member, operands, uid, saves) for member in members])

    return checkpointed


def _checkpointed(
    value: Node, starts: Sequence[Node], uid: int, saves: Callable[[Node], bool]
) -> Node:
    starts = list(dict.fromkeys(starts))
    boundary = {id(node) for node in starts}
    order = topological([value], stop=lambda node: id(node) in boundary)
    body = set(boundary)
    for node in order:
        if any(id(operand) in body for operand in node.inputs):
            body.add(id(node))
    if id(value) not in body:
        raise GradientError(
            message(
                "checkpoint: the value depends on none of the inputs",
                need="inputs from which it can be recomputed",
            )
        )
    captured: dict[Node, None] = {}
    for node in order:
        if id(node) in body and id(node) not in boundary:
            captured.update((o, None) for o in node.inputs if id(o) not in body)
    present = {id(node) for node in order}
    used = [node for node in starts if id(node) in present]
    inside = [n for n in order if id(n) in body and id(n) not in boundary and n is not value]
    saved_nodes = dict.fromkeys(n for n in inside if not isinstance(n.type, tuple) and saves(n))
    for node in list(saved_nodes):
        # Under a name stands the same value, which the gradient of what made it may read.
        while node.op is CHECKPOINT_NAME and id(node.inputs[0]) in body - boundary:
            node = node.inputs[0]
            saved_nodes[node] = None
    saved = list(saved_nodes)
    return CHECKPOINT(
        value, *used, *captured, *saved, arguments=len(used), saved=len(saved), uid=uid
    )


# Custom rules.


class _Rule:
    """The backward half of one call of a custom function, and how to get it for other operands."""

    __slots__ = ("arguments", "backward", "function")

    def __init__(
        self, function: Any, arguments: Sequence[Node] = (), backward: Any = None
    ) -> None:
        self.function = function
        self.arguments = tuple(arguments)
        self.backward = backward

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by name; called again, it gives the backward half."""
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        try:
            current = _by_name(str(module), name)
        except (ImportError, AttributeError):
            current = None
        if current is not self.function:
            raise pickle.PicklingError(
                message(
                    f"the gradient rule of {name}() cannot be pickled: it is called by its name "
                    f"where it is read, and {module} has no function of that name",
                    hint="define it with def at the level of a module",
                )
            )
        return _named_rule, (module, name)

    def apply(self, operands: Sequence[Node], cotangent: Node) -> tuple[Node | None, ...]:
        backward = self.backward
        same = len(self.arguments) == len(operands) and all(map(is_, self.arguments, operands))
        if not same:  # the node was copied onto other operands, or pickled
            _, backward = self.function(*operands)
        parts = backward(cotangent)
        parts = tuple(parts) if isinstance(parts, (tuple, list)) else (parts,)
        name = getattr(self.function, "__name__", "function")
        if len(parts) != len(operands):
            raise GradientError(
                message(
                    f"custom_gradient: the rule of {name} returned {len(parts)} gradients "
                    f"for {len(operands)} arguments",
                    need="one per argument, None where no gradient flows",
                )
            )
        result: list[Node | None] = []
        for index, (part, operand) in enumerate(zip(parts, operands, strict=True)):
            node = None if part is None else as_node(part, operand.dtype)
            if node is not None and node.shape not in (operand.shape, ()):
                raise GradientError(
                    message(
                        f"custom_gradient: the rule of {name} returned shape {node.shape} "
                        f"for argument {index}, which has {operand.shape}",
                        need="the argument's shape",
                    )
                )
            if node is not None and node.shape != operand.shape:
                node = broadcast_to(node, operand.shape)
            result.append(node)
        return tuple(result)


def _by_name(module: str, name: str) -> Any:
    """Return the function of a module by name, without its decorator."""
    attribute: Any = import_module(module)
    for part in name.split("."):
        attribute = getattr(attribute, part)
    return getattr(attribute, "__wrapped__", attribute)


def _named_rule(module: str, name: str) -> _Rule:
    return _Rule(_by_name(module, name))


def _custom_gradient(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    rule: _Rule = node.attrs["rule"]
    parts = rule.apply(node.inputs[1:], conj(cotangent))  # which users see conjugated
    return (None, *[None if part is None else conj(part) for part in parts])


class _MappedRule(_Rule):
    """The rule of one position, mapped over an axis of the operands that have it."""

    __slots__ = ("batched", "rule")

    def __init__(self, rule: _Rule, batched: Sequence[bool]) -> None:
        super().__init__(rule.function)
        self.rule = rule
        self.batched = tuple(batched)

    def __reduce__(self) -> tuple[Any, ...]:
        return _MappedRule, (self.rule, self.batched)

    def apply(self, operands: Sequence[Node], cotangent: Node) -> tuple[Node | None, ...]:
        extent = cotangent.shape[0]
        leaves = [
            input("operand", operand.shape[1:] if along else operand.shape, operand.dtype)
            for operand, along in zip(operands, self.batched, strict=True)
        ]
        seed = input("cotangent", cotangent.shape[1:], cotangent.dtype)
        mapped: dict[Node, Node] = {seed: cotangent}
        plain: dict[Node, Node] = {}
        for leaf, operand, along in zip(leaves, operands, self.batched, strict=True):
            (mapped if along else plain)[leaf] = operand
        parts = self.rule.apply(leaves, seed)
        gradient_nodes = [part for part in parts if part is not None]
        mapped_parts = iter(batch(gradient_nodes, mapped, extent, plain))
        result: list[Node | None] = []
        for part, along in zip(parts, self.batched, strict=True):
            full = None if part is None else in_front(next(mapped_parts), extent)
            result.append(full if along or full is None else SUM(full, axes=(0,)))
        return tuple(result)


def _map_custom(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    value, *arguments = operands
    if not batched[0]:
        value = repeated(value, mapped_extent(operands, batched))
    rule = _MappedRule(node.attrs["rule"], batched[1:])
    return CUSTOM_GRADIENT(value, *arguments, rule=rule)


CUSTOM_GRADIENT = Op(
    name="custom_gradient",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="The first operand; its gradient is a function of the user's.",
    rule=_first_type,
    attributes={"rule": "Code"},
    evaluate=_first,
    layout=Layout(alias=True),
    gradient=_custom_gradient,
    batching=_map_custom,
    onnx=onnx_forms.first,
)


@documented
def custom_gradient(function: Callable[..., Any]) -> Callable[..., Node]:
    """Give a function of nodes a gradient of its own.

    function (callable): Takes nodes and returns a pair: the value, a node; and its rule, a function
        from the value's cotangent to the arguments' gradients (one node, or a tuple with one per
        argument; None where no gradient flows). Both are ordinary graphs, so that the gradient can
        be differentiated again.
    returns (callable): The function of the same arguments that returns the value.
    raises GradientError: Where it is given no function, the function does not return such a pair
        (when called), or its rule gives another number or shape of gradients (when differentiated).

    Notes
    -----
    Only the arguments receive gradients: what the function takes from outside is a constant to
    it. A node made by a function at the level of a module pickles; by one made elsewhere (a
    lambda, a function within a function) it does not, and says so.

    Examples
    --------
    A sign whose gradient passes straight through:

    >>> import magmagraph as mg
    >>> @mg.custom_gradient
    ... def quantized(x):
    ...     return mg.sign(x), lambda cotangent: cotangent
    >>> x = mg.var("x", init=[-0.5, 2.0])
    >>> mg.grad(mg.sum(quantized(x) * 3.0), x).eval()
    array([3., 3.], dtype=float32)
    """
    if not callable(function):
        raise GradientError(
            message(
                f"custom_gradient is given {type(function).__name__}",
                need="a function that returns a pair: the value, a node, and its rule",
                hint="@mg.custom_gradient above def f(x): return value, lambda cotangent: ...",
            )
        )

    def differentiated(*arguments: Any) -> Node:
        operands = [as_node(argument) for argument in arguments]
        result = function(*operands)
        if (
            not isinstance(result, tuple)
            or len(result) != 2
            or not isinstance(result[0], Node)
            or not callable(result[1])
        ):
            name = getattr(function, "__name__", "function")
            raise GradientError(
                message(
                    f"custom_gradient: {name} returned {type(result).__name__}",
                    need="a pair: the value, a node, and its rule, a function of the cotangent",
                    hint="return value, lambda cotangent: (gradient, ...)",
                )
            )
        value, backward = result
        return CUSTOM_GRADIENT(value, *operands, rule=_Rule(function, operands, backward))

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(function, name):
            setattr(differentiated, name, getattr(function, name))
    vars(differentiated)["__wrapped__"] = function
    return differentiated


RECORDS = (RECOMPUTE, CHECKPOINT, CHECKPOINT_NAME, CUSTOM_GRADIENT)
