"""Put channels last where a device's convolutions are faster so.

Tensor cores multiply rows of channels. Convolutions of 16-bit floats, and of float32 whose products
are in tf32, therefore run with channels last, whatever order the user wrote, and what is between
them goes along: pooling, elementwise operations, reductions. Each such value gets a *twin*, the
same elements with the channels last, that is computed from twins; only where something else reads
the value is it turned back, and transpositions that meet cancel. Weights are turned, too, to
``(results, *window, channels)``, which is the only order that libraries know with channels last;
variables keep their type.

Before::

    %0 = input() : float16[8, 16, 32, 32]  # x
    %1 = input() : float16[32, 16, 3, 3]  # w
    %2 = convolution(%0, %1, channels_last=False, ...) : float16[8, 32, 30, 30]
    %3 = relu(%2) : float16[8, 32, 30, 30]
    return %3

After::

    %2 = transpose(%0, axes=(0, 2, 3, 1)) : float16[8, 32, 32, 16]
    %3 = transpose(%1, axes=(0, 2, 3, 1)) : float16[32, 3, 3, 16]
    %4 = convolution(%2, %3, channels_last=True, outs_first=True, ...) : float16[8, 30, 30, 32]
    %5 = relu(%4) : float16[8, 30, 30, 32]
    %6 = transpose(%5, axes=(0, 3, 1, 2)) : float16[8, 32, 30, 30]
    return %6

Moves are exact; sums take their terms in another order. Convolutions of images with three channels
that step over two pixels read them in blocks, see `layout.blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ir.types import Shape
from ...ops.convolution.primitives import direction_of
from ...ops.shape.arrange import RESHAPE, TRANSPOSE
from ...ops.shape.joining import BROADCAST_TO
from ..pipeline import Options
from ..report import label
from ..simplify.linear import exchanged
from .blocks import blocks_of, in_blocks

RULE = "channels last"
PIXELS = "space to depth"
FEWEST_AXES = 3  # batch, channels, space


def channels(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with channels last where that is faster."""
    turned = _Turned(options)
    for node in graph.nodes:
        turned.visit(node)
    return exchanged(
        graph, turned.mapping, trace, options, "layout",
        lambda node: PIXELS if node in turned.blocked else RULE,
    )


def chooses(node: Node) -> bool:
    """Return whether a node is a convolution whose algorithm is left to the device's library."""
    return node.op.kind is Kind.CONVOLUTION and node.attrs.get("algorithm") == "auto"


def why_not(node: Node) -> str | None:
    """Return why a convolution is not faster with channels last, or None where it is."""
    dtype = node.inputs[0].dtype
    if dtype.itemsize != 2 and node.attrs.get("compute") != "tf32":
        return f"{dtype.name} is not multiplied by tensor cores"
    return None


class _Turned:
    """The values that have a twin, while a graph is walked.

    Attributes
    ----------
    mapping
        What stands for each turned node, in the order of axes that the user wrote.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.mapping: dict[Node, Node] = {}
        self.twins: dict[Node, Node] = {}
        self.made: dict[Node, Node] = {}  # twins of what is not turned: inputs, mostly
        self.blocked: set[Node] = set()  # convolutions that read blocks of pixels

    def visit(self, node: Node) -> None:
        """Change the layout of a node, where that is useful and possible."""
        if isinstance(node.type, tuple):
            return
        kind = node.op.kind
        if kind is Kind.CONVOLUTION:
            self._windows(node)
        elif not any(operand in self.twins for operand in node.inputs):
            return
        elif kind is Kind.ELEMENTWISE and node.op.scalar.expression is not None:
            if node.ndim >= FEWEST_AXES and any(
                operand in self.twins and operand.shape == node.shape for operand in node.inputs
            ):
                operands = [self._aligned(operand, node.ndim) for operand in node.inputs]
                self._turn(node, node.op(*operands, name=node.name, **node.attrs))
        elif kind is Kind.REDUCTION:
            self._reduction(node)
        elif node.op is TRANSPOSE:
            self._transposition(node)

    def _turn(self, node: Node, twin: Node) -> None:
        self.twins[node] = twin
        self.mapping[node] = TRANSPOSE(twin, axes=_first(node.ndim))

    # ---- Convolutions and pooling

    def _windows(self, node: Node) -> None:
        record = self.options.record
        if not chooses(node):
            pooled = "window" in node.attrs and not node.attrs["channels_last"]
            if pooled and node.ndim == len(node.attrs["window"]) + 2 and any(
                operand in self.twins for operand in node.inputs
            ):
                operands = [self._twin(operand) for operand in node.inputs]
                self._turn(
                    node,
                    node.op(*operands, name=node.name, **{**node.attrs, "channels_last": True}),
                )
            return
        if why_not(node) is None and self._blocks(node):
            return
        if node.attrs["channels_last"]:
            self._weights(node)
            return
        reason = why_not(node)
        if reason is not None:
            record.refuse(RULE, node, reason)
            return
        attrs = {**node.attrs, "channels_last": True, "outs_first": True}
        operands = [self._twin(operand) for operand in node.inputs]
        self._turn(node, node.op(*operands, name=node.name, **attrs))

    def _blocks(self, node: Node) -> bool:
        """Let a convolution of few channels that steps over pixels read blocks of them."""
        blocks = blocks_of(node)
        if blocks is None:
            return False
        convolved = in_blocks(node, blocks)
        if blocks.last or direction_of(node) == "weight":
            self.mapping[node] = convolved
        else:
            self._turn(node, convolved)
        window, taps = (" x ".join(map(str, part)) for part in (blocks.window, blocks.taps))
        self.blocked.add(node)
        self.options.record.note(
            f"{label(node)}: a window of {window} pixels is one of {taps} blocks of 2 x 2, whose "
            "pixels are channels"
        )
        return True

    def _weights(self, node: Node) -> None:
        """Turn the weights alone, which users write ``(*window, channels, results)``."""
        if node.attrs.get("outs_first"):
            return
        attrs = {**node.attrs, "outs_first": True}
        ndim = node.ndim
        outs_first = (ndim - 1, *range(ndim - 2), ndim - 2)
        outs_last = (*range(1, ndim), 0)
        if direction_of(node) == "weight":
            turned = node.op(*node.inputs, name=node.name, **attrs)
            self.mapping[node] = TRANSPOSE(turned, axes=outs_last)
            return
        left, weights = node.inputs
        self.mapping[node] = node.op(
            left, _moved(weights, outs_first), name=node.name, **attrs
        )

    # ---- What is between them

    def _reduction(self, node: Node) -> None:
        (operand,) = node.inputs
        axes = node.attrs.get("axes")
        if axes is None or operand.ndim < FEWEST_AXES or node.op.reduction is None:
            return
        order = _last(operand.ndim)
        moved = tuple(sorted(order.index(axis) for axis in axes))
        reduced = node.op(self.twins[operand], name=node.name, **{**node.attrs, "axes": moved})
        kept = [axis for axis in order if axis not in axes]
        back = tuple(kept.index(axis) for axis in sorted(kept))
        self.mapping[node] = _moved(reduced, back)

    def _transposition(self, node: Node) -> None:
        (operand,) = node.inputs
        order = _last(operand.ndim)
        axes = tuple(order.index(axis) for axis in node.attrs["axes"])
        self.mapping[node] = _moved(self.twins[operand], axes)

    # ---- Operands

    def _aligned(self, operand: Node, ndim: int) -> Node:
        """Return an operand of an elementwise operation with as many axes, channels last."""
        if not operand.ndim:
            return operand
        if operand.ndim < ndim:
            shape = (*(1,) * (ndim - operand.ndim), *operand.shape)
            return _moved(RESHAPE(operand, shape=shape), _last(ndim))
        return self._twin(operand)

    def _twin(self, node: Node) -> Node:
        """Return the twin of a value; of one that is not turned, made for the purpose."""
        twin = self.twins.get(node)
        if twin is None:
            twin = self.made.get(node)
        if twin is None:
            order = _last(node.ndim)
            if node.op is BROADCAST_TO:
                (inner,) = node.inputs
                shape = tuple(node.shape[axis] for axis in order)
                twin = BROADCAST_TO(self._aligned(inner, node.ndim), shape=shape)
            else:
                twin = _moved(node, order)
            self.made[node] = twin
        return twin


def _last(ndim: int) -> tuple[int, ...]:
    """Return the axes in the order that has channels last."""
    return (0, *range(2, ndim), 1)


def _first(ndim: int) -> tuple[int, ...]:
    """Return the axes in the order that has channels first again."""
    return (0, ndim - 1, *range(1, ndim - 1))


def _moved(node: Node, axes: Sequence[int]) -> Node:
    """Return a node with its axes in another order; without a move where none has to move."""
    if node.op is TRANSPOSE:  # moves that follow each other are one
        inner: tuple[int, ...] = node.attrs["axes"]
        node, axes = node.inputs[0], [inner[axis] for axis in axes]
    shape: Shape = tuple(node.shape[axis] for axis in axes)
    long = [axis for axis in axes if node.shape[axis] != 1]
    if long == sorted(long):
        return node if shape == node.shape else RESHAPE(node, shape=shape)
    return TRANSPOSE(node, axes=tuple(axes))
