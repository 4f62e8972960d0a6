"""Leave the scaling of Fourier transforms to the kernel before or behind them, on a GPU.

Libraries compute unscaled transforms, after which a kernel of its own would scale the result.
Before::

    %1 = fft_spectrum(%0, axes=(0,), inverse=True, norm="backward") : complex64[8]
    %2 = real(%1) : float32[8]

After::

    %1 = fft_spectrum(%0, axes=(0,), inverse=True, norm="forward") : complex64[8]
    %2 = constant() = 0.125+0j : complex64[]
    %3 = multiply(%1, %2) : complex64[8]
    %4 = real(%3) : float32[8]

What reads the transform is then one kernel with its scaling; where nothing elementwise does, what
makes its operand, also through other transforms. Numbers are scaled once, as before, though maybe
before they are transformed: `reassoc`.
"""

from __future__ import annotations

from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ops.elementwise.arithmetic import MULTIPLY
from ...ops.signal.fourier_primitives import FFT, IRFFT, RFFT, scale_of
from ..pipeline import Options
from ..rewriting.build import like
from ..simplify.linear import exchanged

__all__ = ["scaled_apart"]

RULE = "a transform is scaled by its neighbour"


def scaled_apart(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with products in place of the scaling of transforms."""
    unscaled: set[Node] = set()
    factors: dict[tuple[Node, bool], float] = {}  # of a transform's operand, or of its result
    for node in graph.nodes:
        scale = _scale(node) if _is_transform(node) else 1.0
        place = None if scale == 1 else _place(graph, node)
        if place is not None:
            unscaled.add(node)
            factors[place] = factors.get(place, 1.0) * scale
    mapping: dict[Node, Node] = {}
    for node in graph.nodes:
        before, behind = factors.get((node, False)), factors.get((node, True))
        if node not in unscaled and before is None and behind is None:
            continue
        (operand,) = node.inputs
        if before is not None:
            operand = MULTIPLY(operand, like(before, operand))
        norm = _without(_is_inverse(node)) if node in unscaled else node.attrs["norm"]
        made = node.op(operand, **{**node.attrs, "norm": norm})
        mapping[node] = made if behind is None else MULTIPLY(made, like(behind, made))
    return exchanged(graph, mapping, trace, options, "fuse", RULE)


def _place(graph: Graph, node: Node) -> tuple[Node, bool] | None:
    """Return the transform next to elementwise work, and whether that is behind it."""
    roots = set(graph.roots)
    last = node
    while True:
        users = graph.users[last]
        if any(map(_is_elementwise, users)):
            return last, True
        if len(users) != 1 or last in roots or not _is_transform(users[0]):
            break
        (last,) = users
    first = node
    while True:
        (operand,) = first.inputs
        if len(graph.users[operand]) != 1 or operand in roots:
            return None
        if _is_elementwise(operand):
            return first, False
        if not _is_transform(operand):
            return None
        first = operand


def _scale(node: Node) -> float:
    """Return what a transform multiplies by, 1 where that is not known before the call."""
    attrs, inverse = node.attrs, _is_inverse(node)
    whole = node if inverse else node.inputs[0]
    count = 1
    for axis in attrs.get("axes") or (attrs["axis"],):
        extent = whole.shape[axis]
        if not isinstance(extent, int):
            return 1.0
        count *= extent
    return scale_of(attrs["norm"], inverse, count)


def _is_inverse(node: Node) -> bool:
    return node.op is IRFFT or bool(node.attrs.get("inverse"))


def _without(inverse: bool) -> str:
    """Return the norm that leaves a transform unscaled."""
    return "forward" if inverse else "backward"


def _is_transform(node: Node) -> bool:
    return node.op in (FFT, RFFT, IRFFT)


def _is_elementwise(node: Node) -> bool:
    return node.op.kind is Kind.ELEMENTWISE and node.op.scalar.expression is not None
