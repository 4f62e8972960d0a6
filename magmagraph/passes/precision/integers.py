"""Products of int8: weights rounded once per output channel, activations at each call.

The work of the `precision` pass for ``"int8"``. A product ``x @ W`` of which one factor depends on
variables alone becomes::

    unit = max(abs(x), axis=-1) / 127                      # of each row, or a calibrated constant
    dequantize(int8_gemm(quantize(x, unit), W8), unit * scales)    # sums in int32

``W8`` and ``scales`` are variables that hold what the weight rounds to, see `ir.values.derived`:
a call reads a quarter of the bytes, and rounds the weight again only after it was written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

from ...errors import PassError, message
from ...ir.graph import Graph, Node, Trace, freeze
from ...ir.identity import is_among
from ...ir.interpret import evaluate
from ...ir.op import Effect, Kind
from ...ir.values.derived import Derived
from ...ops.elementwise.arithmetic import add, divide, multiply
from ...ops.elementwise.quantization import DEQUANTIZE, QUANTIZE
from ...ops.elementwise.signs import absolute
from ...ops.leaf import CONSTANT, VARIABLE, Variable, constant, variable_of
from ...ops.products.contraction import matmul
from ...ops.products.integer import INT8_GEMM, MOST_TERMS
from ...ops.products.lowered import GEMM
from ...ops.reduction.primitives import max
from ...ops.shape.arrange import transpose
from ..pipeline import Options
from ..report import label
from ..simplify.linear import exchanged

__all__ = ["int8_products", "weights_of", "with_float_products", "with_int8"]

LARGEST = 127  # of what weights and activations are rounded to
LEAST_TERMS = 16  # of a sum, below which rounding costs as much as multiplying
_FLOAT32 = np.dtype(np.float32)
_shared: weakref.WeakValueDictionary[tuple[int, bool, float], Derived] = (
    weakref.WeakValueDictionary()
)  # by the state of the weight, whether it is transposed, and the factor of units, 0 of integers


def weights_of(graph: Graph) -> set[Node]:
    """Return the nodes whose values are those of variables that no call changes."""
    updated = {variable for variable, _ in graph.updates}
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op.kind is Kind.LEAF:
            fixed = node.op is CONSTANT or (node.op is VARIABLE and node not in updated)
        else:
            fixed = node.op.effect is Effect.PURE and all(x in found for x in node.inputs)
        if fixed:
            found.add(node)
    return found


def int8_products(graph: Graph, options: Options) -> tuple[list[Node], dict[Node, str]]:
    """Return the products to change, and why others stay as they are."""
    weights = weights_of(graph)
    updated = {variable for variable, _ in graph.updates}
    products: list[Node] = []
    reasons: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op.policy == "allow":
            reason = _refusal(node, weights, updated, options)
            if reason is None:
                products.append(node)
            else:
                reasons[node] = reason
    return products, reasons


def _refusal(node: Node, weights: set[Node], updated: set[Node], options: Options) -> str | None:
    if options.target.device != "cpu":
        return (
            "kernels of int8 products run on the CPU; precision='float16' is the faster one on a "
            "GPU"
        )
    if node.op is not GEMM:
        return f"there is no '{node.op.name}' of int8, matrix products alone"
    a, b = node.inputs[:2]
    if node.dtype != _FLOAT32 or a.dtype != _FLOAT32:
        return f"its operands are {a.dtype.name}, and only float32 is rounded to int8"
    if any(x in updated for x in (a, b)):
        return "each call updates a factor, and would round it again"
    if b not in weights:
        if a in weights:
            return "the weight is the left factor: x @ W has a kernel, W @ x has none"
        return "both factors change at each call, and a weight is rounded once"
    if a in weights:
        return "both factors are weights"
    if b.ndim != 2:
        return "the weight is a batch of matrices"
    if node.attrs["transpose_a"]:
        return "sums run along columns of the left factor"
    terms = b.shape[-1 if node.attrs["transpose_b"] else -2]
    assert isinstance(terms, int)
    if terms < LEAST_TERMS:
        return f"of {terms} terms a sum, rounding takes as long as multiplying"
    if terms > MOST_TERMS:
        return f"int32 holds sums of {MOST_TERMS} terms, not of {terms}"
    return None


def with_int8(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its products of weights in int8."""
    products, reasons = int8_products(graph, options)
    for node, reason in reasons.items():
        options.record.refuse("product in int8", node, reason)
    ranges = options.activation_ranges
    if products and ranges and len(ranges) != len(products):
        raise PassError(
            message(
                f"the function was calibrated with {len(ranges)} products of weights, and has "
                f"{len(products)}",
                hint="f.calibrate(*feeds) again, with feeds of the sizes that it is called with",
            )
        )
    mapping: dict[Node, Node] = {}
    rules: dict[Node, str] = {}
    for i, node in enumerate(products):
        largest = ranges[i] if ranges else None
        mapping[node], rules[node] = _made(node, largest, options)
    return exchanged(graph, mapping, trace, options, "precision", rules.__getitem__)


def _made(node: Node, largest: float | None, options: Options) -> tuple[Node, str]:
    """Return what takes the place of a product, and the rule with the error that it costs."""
    a, b, *rest = node.inputs
    fixed = None if largest is None else np.float32((largest or 1.0) / LARGEST)
    values, scales, error = _rounded(b, not node.attrs["transpose_b"], fixed)
    if fixed is None:
        unit = divide(max(absolute(a), axis=-1, keepdims=True), float(LARGEST))
        made: Node = DEQUANTIZE(INT8_GEMM(QUANTIZE(a, unit), values), multiply(unit, scales))
        how = "each row of the activations by its largest magnitude"
    else:
        made = DEQUANTIZE(INT8_GEMM(QUANTIZE(a, constant(fixed)), values), scales)
        how = f"activations beyond {largest:.3g}, the largest of the calibration, are cut"
    if node.attrs["scaled"]:
        made = multiply(rest.pop(0), made)
    if node.attrs["accumulate"]:
        addend, beta = rest
        made = add(made, multiply(beta, addend))
    size = int(b.type.bytes)
    options.record.note(
        f"{label(node)}: int8 factors, sums in int32; '{values.name}' has {size // 4} bytes in "
        f"place of {size}, and its rounding error is {error:.2%} of the weight's norm; {how}"
    )
    return made, f"product in int8 (rounds the weight by {error:.2%} of its norm)"


# The weights.


def _rounded(
    weight: Node, transposed: bool, fixed: np.float32 | None
) -> tuple[Variable, Variable, float]:
    """Return variables of a weight in int8 and of its units, and the relative rounding error.

    A fixed unit of the other factor multiplies the units.
    """
    below = freeze([], [weight])
    states = {node.attrs["state"]: node.name for node in below.nodes if "state" in node.attrs}

    def value() -> np.ndarray:
        if weight.op is VARIABLE:
            array = np.asarray(weight.attrs["state"].data)
        else:
            array = np.asarray(evaluate(below, {}, {})[below.outputs[0]])
        return array.T if transposed else array

    factor = 1.0 if fixed is None else float(fixed)
    names = dict.fromkeys(name or "variable" for name in states.values())
    name = " and ".join(names) or "constant"
    made = []
    parts = ((0.0, partial(_integers, value)), (factor, partial(_units, value, factor)))
    for key, compute in parts:
        held = None
        if weight.op is VARIABLE:
            held = _shared.get((weight.attrs["state"].serial, transposed, key))
        if held is None:
            held = Derived(list(states), compute, f"{'scales of ' if key else ''}{name} in int8")
            if weight.op is VARIABLE:
                _shared[weight.attrs["state"].serial, transposed, key] = held
        _ = held.data  # up to date
        node = None if held.node is None else held.node()
        made.append(variable_of(held, held.name) if node is None else node)
    exact = value().astype(np.float64)
    with np.errstate(invalid="ignore"):
        lost = exact - made[0].state.data * (made[1].state.data[:, None] / factor)
        norm = float(np.linalg.norm(exact))
        error = float(np.linalg.norm(lost)) / norm if norm else 0.0
    return made[0], made[1], error


def _units(value: Callable[[], np.ndarray], factor: float = 1.0) -> np.ndarray:
    largest = np.abs(value()).max(axis=1, initial=0.0)
    return (np.where(largest == 0, 1, largest / LARGEST) * factor).astype(np.float32)


def _integers(value: Callable[[], np.ndarray]) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        ratio = np.rint(value() / _units(value)[:, None])
    return np.where(np.isnan(ratio), 0, ratio).astype(np.int8)


# Back, for formats that spell a product of int8 as one of rounded floats.


def with_float_products(graph: Graph) -> Graph:
    """Return the graph with each product of int8 as one of the values that its factors stand for.

    ``dequantize(int8_gemm(a, b), unit * scales)`` becomes ``dequantize(a, unit) @ dequantize(b,
    scales).T``, which is the same up to rounding in float32.
    """
    mapping: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is DEQUANTIZE and node.inputs[0].op is INT8_GEMM:
            (a, b), scales = node.inputs[0].inputs, node.inputs[1]
            unit = a.inputs[1]
            scales = scales.inputs[1] if is_among(unit, scales.inputs) else divide(scales, unit)
            mapping[node] = matmul(DEQUANTIZE(a, unit), transpose(DEQUANTIZE(b, scales[:, None])))
    if not mapping:
        return graph
    return exchanged(graph, mapping, Trace(), Options(), "precision", "quantized floats")
