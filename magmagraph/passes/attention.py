"""Compute attention block by block where a program writes ``softmax(q @ k.T + mask) @ v``.

Before::

    %0 = input() : float32[64, 2048, 8]  # q
    %1 = input() : float32[64, 8, 2048]  # k
    %2 = input() : float32[64, 2048, 4]  # v
    %3 = matmul(%0, %1) : float32[64, 2048, 2048]
    %4 = exp(%3) : float32[64, 2048, 2048]
    %5 = sum(%4, axes=(2,)) : float32[64, 2048]
    %6 = reshape(%5, shape=(64, 2048, 1)) : float32[64, 2048, 1]
    %7 = divide(%4, %6) : float32[64, 2048, 2048]
    %8 = matmul(%7, %2) : float32[64, 2048, 4]
    return %8

After::

    %0 = input() : float32[64, 2048, 8]  # q
    %1 = input() : float32[64, 8, 2048]  # k
    %2 = input() : float32[64, 2048, 4]  # v
    %3 = reshape(%0, shape=(64, 1, 2048, 8)) : float32[64, 1, 2048, 8]
    %4 = transpose(%1, axes=(0, 2, 1)) : float32[64, 2048, 8]
    %5 = attention_rows(%3, %4, %2, causal=False, block=256)
        : (float32[64, 1, 2048, 4], float32[64, 1, 2048])
    %6 = item(%5, index=0) : float32[64, 1, 2048, 4]
    %7 = reshape(%6, shape=(64, 2048, 4)) : float32[64, 2048, 4]
    return %7

The scores are read from the second product back to the first, through scales, masks, sums with a
bias, casts and a split of the heads into groups, in any order. A mask that depends on positions
alone is evaluated: if it is the causal one, the kernel gets a flag instead.

Gradients need no patterns. The pass differentiates what it found once more, with the cotangent
that the program gives its result. Equal expressions are one node, so these gradients are those of
the program, and the blocked form's gradients take their places. If scores are still read after
that (a program returns its weights, or differentiates twice), nothing is replaced.

Numerics: `stable`. Rows that see no key are zeros instead of NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..autodiff.autodiff import sweep
from ..dtypes import is_inexact
from ..ir.graph import Graph, Node, Trace, freeze, topological
from ..ir.identity import same_nodes
from ..ir.interpret import evaluate
from ..ir.op import Effect, Kind
from ..ir.plan import Role
from ..ir.records import record
from ..ir.types import Extent
from ..ops.control.identities import ITEM, MARKER, STOP_GRADIENT
from ..ops.convert import CAST, cast
from ..ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, add, multiply
from ..ops.elementwise.bits import logical_and, logical_not
from ..ops.elementwise.comparison import EQUAL, WHERE
from ..ops.elementwise.math import EXP, LOG
from ..ops.leaf import CONSTANT, constant
from ..ops.networks.attention import FULL_BYTES, FULL_SCORES, ROWS
from ..ops.products.contraction import MATMUL
from ..ops.reduction.primitives import SUM
from ..ops.shape.arrange import RESHAPE, reshape, swapaxes
from ..ops.shape.joining import BROADCAST_TO, broadcast_to
from .lowering.buffers import hinted
from .lowering.timeline import readable
from .pipeline import Options
from .report import label
from .rewriting.pattern import uniform
from .simplify.linear import substituted
from .simplify.structure import swaps_last_two

RULE = "attention without scores"
BLOCK = 256  # queries, and keys, that the CPU takes at once
LOWEST = -1e9  # a finite score that hides a key as -inf does
LARGEST_MASK = 1 << 24  # elements of a mask that are evaluated, to see whether it is causal
# Scores of a head, and bytes of all scores, up to which two products and a softmax are faster on a
# device; a CPU has the limits of `algorithm="auto"`.
DEVICE_SCORES, DEVICE_BYTES = 1 << 14, 1 << 20


class _Mask:
    """What is done to scores between the two products."""

    def __init__(self) -> None:
        self.scales: list[tuple[Any, Node]] = []  # the operation and the scalar, outermost first
        self.hidden: list[tuple[Node, float]] = []  # true where a score is kept, and the other one
        self.added: list[Node] = []
        self.biases: list[Node] = []  # what is added, before it is scaled with the scores


@record(frozen=True)
class _Site:
    """A program's attention.

    Attributes
    ----------
    root
        The second product.
    queries, keys, values
        Factors of the products; the keys are transposed.
    shape
        Of the scores, where the softmax reads them.
    between
        Nodes of the size of the scores.
    mask
        What is done to the scores.
    guarded
        Whether the program's rows that see no key are zeros, too.
    """

    root: Node
    queries: Node
    keys: Node
    values: Node
    shape: tuple[Extent, ...]
    between: tuple[Node, ...]
    mask: _Mask
    guarded: bool


def attention(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph whose attention holds no scores, where the target gains."""
    causal: dict[Node, bool] = {}
    taken: list[tuple[_Site, dict[Node, Node]]] = []
    for node in graph.nodes:
        site = _site(node) if node.op is MATMUL else None
        if site is None:
            continue
        reason = site if isinstance(site, str) else _no_gain(site, options)
        if reason is None:
            assert isinstance(site, _Site)
            made = _blocked(site, causal, options)
            reason = made if isinstance(made, str) else None
            if isinstance(made, Node):
                taken.append((site, _exchange(graph, site, made)))
        if reason is not None:
            options.record.refuse(RULE, node, reason)
    while taken:
        mapping = {old: new for _, pairs in taken for old, new in pairs.items()}
        alive = _alive(graph, mapping)
        kept = [pair for pair in taken if not any(node in alive for node in pair[0].between)]
        if len(kept) == len(taken):
            return _applied(graph, taken, mapping, causal, trace, options)
        for site, _ in taken:
            if any(node in alive for node in site.between):
                options.record.refuse(
                    RULE, site.root, "the program reads the scores or the weights elsewhere, too"
                )
        taken = kept
    return graph


def _applied(
    graph: Graph,
    taken: Sequence[tuple[_Site, dict[Node, Node]]],
    mapping: Mapping[Node, Node],
    causal: Mapping[Node, bool],
    trace: Trace,
    options: Options,
) -> Graph:
    name = "attention"
    members = graph.interner.intern_all(list(mapping.values()))
    settled = dict(zip(mapping, members, strict=True))
    for old, new in settled.items():
        trace.replace(old, new, name, RULE)
    saved = 0
    for site, _ in taken:
        options.record.hit(RULE)
        saved += _bytes(site, options)
        unsure = [fill for test, fill in site.mask.hidden if not causal.get(test)]
        if unsure and unsure[0] == -math.inf and not site.guarded:
            options.record.repair(
                RULE, site.root, "a query that sees no key gets zeros instead of NaN"
            )
        finite = [fill for test, fill in site.mask.hidden if causal.get(test) and fill > -math.inf]
        if finite and not unsure:
            options.record.note(
                f"{label(site.root)}: scores are taken to be far above {finite[0]:g}, which the "
                "program puts in for later keys"
            )
    options.record.note(
        f"{len(taken)} times scores are not held, {readable(saved)} in all; gradients compute "
        "them again"
    )
    return substituted(graph, settled, lambda old, new: trace.replace(old, new, name, "operands"))


def _alive(graph: Graph, mapping: Mapping[Node, Node]) -> set[Node]:
    """Return the nodes that are needed when nodes are exchanged."""
    found: set[Node] = set()
    pending = list(graph.roots)
    while pending:
        node = pending.pop()
        node = mapping.get(node, node)
        if node not in found:
            found.add(node)
            pending += node.inputs
    return found


# Reading a program.


def _site(root: Node) -> _Site | str | None:
    """Return the attention that a product ends; a reason why not; None if it is something else."""
    node, values = root.inputs
    if node.ndim < 2 or values.ndim < 2 or not is_inexact(root.dtype):
        return None
    between = [node]
    node = _opened(node, between)
    parts = _softmax(node, between)
    if parts is None:
        return None
    scores, guarded = parts
    mask = _Mask()
    shape = scores.shape
    product = _read(scores, mask, between)
    if product is None:
        return None
    if isinstance(product, str):
        return product
    queries, keys = product.inputs
    if queries.ndim < 2 or keys.ndim < 2:
        return None
    return _Site(
        root, queries, keys, values, shape, tuple(n for n in between if n.ndim >= 2), mask, guarded
    )


def _opened(node: Node, between: list[Node]) -> Node:
    """Return what is below casts, markers and reshapes that keep the last axis."""
    while (
        (node.op in (CAST, MARKER) and is_inexact(node.inputs[0].dtype))
        or (node.op is RESHAPE and node.ndim and node.inputs[0].ndim
            and node.shape[-1] == node.inputs[0].shape[-1])
    ):  # fmt: skip
        node = node.inputs[0]
        between.append(node)
    return node


def _softmax(node: Node, between: list[Node]) -> tuple[Node, bool] | None:
    """Return the scores of a softmax along the last axis, and whether no row is divided by 0."""
    guarded = False
    if node.op is DIVIDE:
        power, total = node.inputs
        if total.op is WHERE:  # 1 in the place of 0
            test, one, total = total.inputs
            guarded = _is_test_of_zero(test, total) and uniform(_source(one)) == 1
            if not guarded:
                return None
        if power.op is not EXP or not _is_sum(total, power):
            return None
        between.append(power)
        shifted = power.inputs[0]
    elif node.op is EXP and node.inputs[0].op is SUBTRACT and node.inputs[0].inputs[1].op is LOG:
        shifted, logarithm = node.inputs[0].inputs
        power = _source(logarithm.inputs[0])
        power = power.inputs[0] if power.op is SUM else power
        if power.op is not EXP or power.inputs[0] is not shifted:
            return None
        if not _is_sum(logarithm.inputs[0], power):
            return None
        between.append(power)
    else:
        return None
    scores = shifted
    if shifted.op is SUBTRACT and _is_column(shifted.inputs[1], shifted):
        between.append(shifted)
        scores = shifted.inputs[0]
    between.append(scores)
    return scores, guarded


def _is_test_of_zero(test: Node, total: Node) -> bool:
    """Return whether a node tests whether a sum is zero, from either side."""
    pairs = (test.inputs, test.inputs[::-1])
    return test.op is EQUAL and any(a is total and uniform(_source(b)) == 0 for a, b in pairs)


def _source(node: Node) -> Node:
    """Return what is below reshapes, copies along axes and stops of gradients."""
    while node.op in (RESHAPE, BROADCAST_TO, STOP_GRADIENT, MARKER):
        node = node.inputs[0]
    return node


def _is_column(node: Node, like: Node) -> bool:
    """Return whether a value is one number for each row."""
    return node.ndim == like.ndim and node.shape[-1] == 1 and like.shape[-1] != 1


def _is_sum(total: Node, power: Node) -> bool:
    """Return whether a value is the sum of rows, one number for each."""
    found = _source(total)
    return (
        _is_column(total, power)
        and found.op is SUM
        and found.inputs[0] is power
        and found.attrs["axes"] == (power.ndim - 1,)
    )


def _read(node: Node, mask: _Mask, between: list[Node]) -> Node | str | None:
    """Return the first product, and note what is done to it; a reason, or None."""
    while node.op is not MATMUL:
        between.append(node)
        below = _opened(node, between)
        if below is not node:
            node = below
            continue
        operands = node.inputs
        if node.op in (MULTIPLY, DIVIDE) and _is_number(operands[1]):
            mask.scales.append((node.op, operands[1]))
            node = operands[0]
        elif node.op is MULTIPLY and _is_number(operands[0]):
            mask.scales.append((node.op, operands[0]))
            node = operands[1]
        elif node.op in (ADD, SUBTRACT):
            place = next((i for i in (0, 1) if _is_scores(operands[i], node)), None)
            if place is None or (place and node.op is SUBTRACT):
                return None
            mask.biases.append(operands[1 - place])
            bias = _scaled(operands[1 - place], mask.scales)
            if bias.type == node.type and bias.op.kind is not Kind.LEAF and not _is_known(bias):
                return "what is added is computed, and as large as the scores"
            mask.added.append(multiply(bias, -1.0) if node.op is SUBTRACT else bias)
            node = operands[place]
        elif node.op is WHERE:
            place = next((i for i in (1, 2) if _is_scores(operands[i], node)), None)
            if place is None:
                return None
            fill = uniform(_source(operands[3 - place]))
            if fill is None:
                return None
            factor = _factor(mask.scales)
            if mask.scales and (factor is None or factor <= 0):
                return "scores are scaled behind their mask, by a number that is not known"
            if math.isfinite(fill) and mask.added:
                return "something is added to scores that a mask has put in"
            test = operands[0] if place == 1 else logical_not(operands[0])
            mask.hidden.append((test, fill * (1.0 if factor is None else factor)))
            node = operands[place]
        else:
            return None
    between.append(node)
    if len({fill for _, fill in mask.hidden}) > 1:
        return "two masks put in different scores"
    return node


def _is_number(node: Node) -> bool:
    return all(extent == 1 for extent in node.shape)


def _is_scores(node: Node, like: Node) -> bool:
    """Return whether the first product is reached from an operand."""
    if node.shape != like.shape:
        return False
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is MATMUL:
            return True
        if node.op in (CAST, MARKER, RESHAPE, MULTIPLY, DIVIDE, ADD, SUBTRACT, WHERE):
            pending += [i for i in node.inputs if i.ndim >= 2 and i.shape[-1] == like.shape[-1]]
    return False


def _scaled(node: Node, scales: Sequence[tuple[Any, Node]]) -> Node:
    """Return a value with the scales of scores, the last one first."""
    for op, number in reversed(scales):
        number = reshape(number, ()) if number.ndim else number
        node = op(node, cast(number, node.dtype))
    return node


def _factor(scales: Sequence[tuple[Any, Node]]) -> float | None:
    """Return the product of scales that are constants, or None."""
    factor = 1.0
    for op, node in scales:
        number = uniform(_source(node))
        if number is None:
            return None
        factor = factor * number if op is MULTIPLY else factor / number
    return factor


# Masks that depend on positions alone.


def _is_known(node: Node) -> bool:
    """Return whether a value depends on no operand of the program."""
    if not all(isinstance(extent, int) for extent in node.shape):
        return False
    if math.prod(e for e in node.shape if isinstance(e, int)) > LARGEST_MASK:
        return False
    members = topological([node])
    return len(members) < 64 and all(
        n.op is CONSTANT or (n.op.effect is Effect.PURE and (n.inputs or n.op.name == "iota"))
        for n in members
    )


def _value(node: Node) -> np.ndarray:
    graph = freeze([], [node])
    return np.asarray(evaluate(graph, {})[graph.outputs[0]])


def _is_causal(node: Node, rows: Extent, columns: Extent, memory: dict[Node, bool]) -> bool:
    """Return whether a mask, of bools or added, lets query i see keys 0 to i and no others."""
    if node not in memory:
        memory[node] = False
        lead = all(extent == 1 for extent in node.shape[:-2])
        if node.shape[-2:] == (rows, columns) and lead and rows != 1 and _is_known(node):
            value = _value(node).reshape(node.shape[-2:])
            if value.dtype != bool and np.isin(value[value < 0], value.min(initial=0)).all():
                value = (value == 0) if value.min(initial=0) <= LOWEST else value == math.inf
            triangle = np.arange(value.shape[1]) <= np.arange(value.shape[0])[:, None]
            memory[node] = value.dtype == bool and bool((value == triangle).all())
        elif _compares_positions(node):
            memory[node] = True
    return memory[node]


def _compares_positions(node: Node) -> bool:
    """Return whether a mask is the comparison of positions that `mg.causal_mask` makes."""
    if node.op.name != "less_equal" or node.ndim < 2:
        return False
    ends = node.inputs
    axes = [n.attrs.get("axis", -1) - n.ndim for n in ends if n.op.name == "iota"]
    return axes == [-1, -2]


# Writing it block by block.


def _no_gain(site: _Site, options: Options) -> str | None:
    """Return why the target computes it as it is, or None."""
    rows, columns = (hinted(extent, options.hints) for extent in site.shape[-2:])
    cpu = options.target.device == "cpu"
    least, bytes_ = (FULL_SCORES, FULL_BYTES) if cpu else (DEVICE_SCORES, DEVICE_BYTES)
    if rows * columns <= least:
        return f"{rows * columns} scores a head, up to {least} are faster at once"
    if _bytes(site, options) <= bytes_:
        return f"{readable(_bytes(site, options))} of scores are faster at once"
    return None


def _bytes(site: _Site, options: Options) -> int:
    elements = math.prod(hinted(extent, options.hints) for extent in site.shape)
    return int(elements * site.between[-1].dtype.itemsize)


def _blocked(site: _Site, causal: dict[Node, bool], options: Options) -> Node | str:
    """Return the attention block by block, of the type of the program's; or why there is none."""
    product = site.between[-1]
    rows = site.shape[-2]
    lead = product.shape[:-2]
    q = _scaled(site.queries, site.mask.scales)
    k, v = swapaxes(site.keys, -1, -2), site.values
    dtype = _half(q, k, v)
    if site.shape != product.shape:  # groups of heads, which share keys, were rows of one product
        if site.shape[:-2] != (*lead, site.shape[-3]) or site.shape[-1] != product.shape[-1]:
            return "the scores are reshaped between the products"
        groups = site.shape[-3]
        k, v = _spread(k, lead), _spread(v, lead)
    elif len(lead) > 1 and k.ndim > 2 and v.ndim > 2 and k.shape[-3] == v.shape[-3] == 1:
        groups, lead = lead[-1], (*lead[:-1], 1)
        k, v = _spread(k, lead), _spread(v, lead)
    else:
        groups = 1
        lead = lead or (1,)
        k, v = _spread(k, lead), _spread(v, lead)
    full = (*lead, groups, rows)
    if site.queries.shape[:-2] != product.shape[:-2]:
        q = broadcast_to(q, (*product.shape[:-2], *q.shape[-2:]))
    q = reshape(q, (*full, q.shape[-1]))
    hidden, added, flag = _masks(site, causal)
    fill = site.mask.hidden[0][1] if site.mask.hidden else -math.inf
    attrs: dict[str, Any] = {"causal": flag, "block": BLOCK}
    masks = []
    if hidden is not None and added is not None:
        if math.isfinite(fill):
            return "one mask is added, and another one puts in a finite score"
        added, hidden = WHERE(hidden, added, constant(-math.inf, dtype=added.dtype)), None
    if hidden is not None:
        masks = [_aligned(hidden, site, full)]
        if math.isfinite(fill):
            attrs["fill"] = float(fill)
    elif added is not None:
        masks = [_aligned(cast(added, q.dtype), site, full)]
    if dtype is not None and not (masks and added is not None):
        q, k, v = (cast(x, dtype) for x in (q, k, v))
    made = ROWS(q, k, v, *masks, **attrs)
    reason = _no_kernel(made, options)
    if reason is not None:
        return reason
    return cast(reshape(ITEM(made, index=0), site.root.shape), site.root.dtype)


def _half(*factors: Node) -> np.dtype | None:
    """Return the 16-bit dtype of which float32 factors are casts, if all keys and values are."""
    dtypes = {_narrow(x) for x in factors[1:]}
    dtype = dtypes.pop()
    if dtypes or dtype is None or _narrow(factors[0]) not in (None, dtype):
        return None
    return dtype


def _narrow(node: Node) -> np.dtype | None:
    while node.op in (RESHAPE, MARKER) or swaps_last_two(node):
        node = node.inputs[0]
    if node.op is CAST and node.inputs[0].dtype.itemsize == 2 and is_inexact(node.inputs[0].dtype):
        return node.inputs[0].dtype
    return None


def _spread(x: Node, lead: tuple[Extent, ...]) -> Node:
    return x if x.shape[:-2] == lead else broadcast_to(x, (*lead, *x.shape[-2:]))


def _masks(site: _Site, causal: dict[Node, bool]) -> tuple[Node | None, Node | None, bool]:
    """Return the mask of bools, what is added, and whether keys after a query are hidden."""
    rows, columns = site.shape[-2:]
    hidden = [test for test, _ in site.mask.hidden]
    fill = site.mask.hidden[0][1] if site.mask.hidden else -math.inf
    orders = [test for test in hidden if _is_causal(test, rows, columns, causal)]
    # A finite score would let rows without a key see those that the flag hides.
    flag = bool(orders) and (fill == -math.inf or (fill <= LOWEST and len(hidden) == 1))
    if flag:
        hidden = [test for test in hidden if test not in orders]
    added = []
    for bias in site.mask.added:
        if _is_causal(bias, rows, columns, causal):
            flag = True
        else:
            added.append(bias)
    test = None
    for each in hidden:
        test = each if test is None else logical_and(test, each)
    total = None
    for each in added:
        total = each if total is None else add(total, each)
    return test, total, flag


def _aligned(mask: Node, site: _Site, full: tuple[Extent, ...]) -> Node:
    """Return a mask with all axes of the scores and one for groups, as the blocked form has it."""
    shape = (*[1] * (len(site.shape) - mask.ndim), *mask.shape)
    after = 3 if full[-2] != 1 else 2
    if len(site.shape) == len(full):  # the program's has one for groups
        shape = (*[1] * after, *shape) if len(shape) < after else shape
        shape = (*shape[:-after], 1, *shape[-after:])
    shape = (*[1] * (len(full) + 1 - len(shape)), *shape)
    return reshape(mask, shape)


def _no_kernel(node: Node, options: Options) -> str | None:
    """Return why a CUDA device has no kernel for it, or None."""
    if options.target.device == "cpu":
        return None
    probe = node
    if options.precision in ("float16", "bfloat16") and node.inputs[0].dtype == np.float32:
        q, k, v, *masks = node.inputs
        narrow = [cast(x, options.precision) for x in (q, k, v)]
        if masks and masks[0].dtype != bool:
            masks = [cast(masks[0], options.precision)]
        probe = ROWS(*narrow, *masks, **node.attrs)
    family = options.target.family(probe)
    if family.role is not Role.EXPRESSION:
        here = options.target.choose is not None  # a device that is not here has all libraries
        return family.missing() if here and family.missing is not None else None
    reasons = options.target.refusals(probe)
    return "; ".join(reason for _, reason in reasons) or "the device has no kernel for it"


# Gradients.


def _exchange(graph: Graph, site: _Site, made: Node) -> dict[Node, Node]:
    """Return what takes the place of the product and of the program's gradients through it."""
    pairs = {site.root: made}
    targets: dict[Node, None] = dict.fromkeys((site.queries, site.keys, site.values))
    targets.update(dict.fromkeys(site.mask.biases))
    targets.update((node, None) for _, node in site.mask.scales)
    wanted = [("", n) for n in targets if n.op is not CONSTANT and is_inexact(n.dtype)]
    present = set(graph.nodes)
    for cotangent in dict.fromkeys(_cotangents(graph, site)):
        olds = sweep([site.root], [cotangent], wanted, free=True)
        news = sweep([made], [cotangent], wanted, free=True)
        found = [(o, n) for o, n in zip(olds, news, strict=True) if o is not None and n is not None]
        members = graph.interner.intern_all([old for old, _ in found])
        for old, (_, new) in zip(members, found, strict=True):
            if old in present:
                pairs[old] = new
    return pairs


def _cotangents(graph: Graph, site: _Site) -> Iterator[Node]:
    """Yield the nodes that may be cotangents of the second product."""
    weights = site.root.inputs[0]
    for factor, place in ((weights, 1), (site.values, 0)):
        for turned in graph.users[factor]:
            if not swaps_last_two(turned):
                continue
            for product in graph.users[turned]:
                if product.op is MATMUL and product.inputs[1 - place] is turned:
                    other = product.inputs[place]
                    if same_nodes((other,), (turned,)) or other.type != site.root.type:
                        continue
                    yield other
