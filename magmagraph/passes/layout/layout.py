"""Choose how convolutions run: the algorithm, where it was left open.

Before::

    %0 = input() : float32[batch, 1, 28, 28]  # x
    %1 = input() : float32[6, 1, 5, 5]  # w
    %2 = convolution(%0, %1, strides=(1, 1), dilation=(1, 1), low=(0, 0), extents=(24, 24),
        groups=1, channels_last=False, algorithm='auto') : float32[batch, 6, 24, 24]
    return %2

After (where nothing was measured)::

    %0 = input() : float32[batch, 1, 28, 28]  # x
    %1 = input() : float32[6, 1, 5, 5]  # w
    %2 = convolution(%0, %1, strides=(1, 1), dilation=(1, 1), low=(0, 0), extents=(24, 24),
        groups=1, channels_last=False, algorithm='direct') : float32[batch, 6, 24, 24]
    return %2

The operation's record says which algorithms a node can run by, its own choice first. A trial of all
of them, on operands of this class of sizes, decides; it is made once per machine and cached. Where
trials are switched off, or results are to be the same everywhere (`deterministic=True`), the
record's choice holds. On a CUDA device the library chooses when the plan is bound, and the pass
puts channels last where that is faster (`layout.channels`), and the heads of attention behind its
rows where they come from there (`layout.heads`).

It stands after precision, because the fastest depends on the dtype. On the CPU the order of axes is
the one that the user wrote: kernels take each as it comes.

Numerics: `reassoc`.
"""

from __future__ import annotations

from typing import Any

from ...config import config
from ...ir.graph import Graph, Node, Trace, freeze
from ...ir.plan import Role
from ...ops.leaf import parameter
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..simplify.linear import exchanged
from .channels import channels
from .heads import heads_behind

RULE = "algorithm of a convolution"
EXACT = 16  # extents below it are told apart in the key of a trial; others by their bits


def layout(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with an algorithm in every node that left it open."""
    if options.target.device != "cpu":
        graph = heads_behind(graph, trace, options)
        return channels(graph, trace, options)  # algorithms are the library's to choose
    mapping: dict[Node, Node] = {}
    for node in graph.nodes:
        candidates = (
            () if node.op.kernel.algorithms is None else tuple(node.op.kernel.algorithms(node))
        )
        if candidates:
            chosen = _chosen(node, candidates, options)
            attrs = {**node.attrs, "algorithm": chosen}
            mapping[node] = node.op(*node.inputs, name=node.name, **attrs)
    return exchanged(graph, mapping, trace, options, "layout", RULE)


def _chosen(node: Node, candidates: tuple[str, ...], options: Options) -> str:
    """Return the fastest algorithm where it can be measured, else the first."""
    able = options.tuning and options.choose is not None and not options.deterministic
    able = able and len(candidates) > 1 and config.compiler != "off"
    if not able or options.target.family(node).role is Role.EXPRESSION:
        return candidates[0]
    assert options.choose is not None
    leaves = [parameter(i, operand.type) for i, operand in enumerate(node.inputs)]
    trials = {
        name: freeze(leaves, [node.op(*leaves, **{**node.attrs, "algorithm": name})])
        for name in candidates
    }
    key = _key(node, options)
    winner = options.choose(key, trials, dict(options.hints))
    options.record.note(f"{key}: {winner}")
    return winner


def _key(node: Node, options: Options) -> str:
    """Return what tells trials apart: the geometry, and the class of every extent."""

    def size(extent: Any) -> str:
        count = hinted(extent, options.hints)
        return str(count) if count < EXACT else f"{count.bit_length()}b"

    shapes = [",".join(size(e) for e in operand.shape) for operand in node.inputs]
    attrs = [
        f"{name}={value if isinstance(value, (bool, str)) else _class(value, size)}"
        for name, value in node.attrs.items()
        if name != "algorithm"
    ]
    threads = f"threads{options.target.threads}"
    parts = (node.op.name, node.inputs[0].dtype.name, threads, *shapes, *attrs)
    return "/".join(("algorithm", *parts))


def _class(value: Any, size: Any) -> str:
    return ",".join(map(size, value)) if isinstance(value, tuple) else size(value)
