"""Gradients compared with central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autodiff.autodiff import sweep, zeros_of
from ..autodiff.transforms.rebuild import rebuild
from ..dtypes import COMPLEXES, is_complex, is_inexact
from ..errors import GradientError, message
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, freeze, topological
from ..ir.html import Displayed, table_html
from ..ir.interpret import evaluate
from ..ir.nesting import leaves
from ..ir.op import Kind
from ..ir.records import record
from ..ops.convert import as_node
from ..ops.elementwise.complex_numbers import conj
from ..ops.leaf import constant, input

if TYPE_CHECKING:
    from ..function import Function

__all__ = ["GradientReport", "check_gradients"]

FLOAT64 = np.dtype(np.float64)
COMPLEX128 = COMPLEXES[0]


@record(frozen=True)
class TargetReport:
    """How far the gradient of one target is from the differences.

    name: The target's name, or its place among the arguments.
    compared, elements: How many of its elements were compared, out of how many.
    error: The largest absolute difference between gradient and central difference.
    relative: The largest ratio of a difference to what is allowed for it; above 1 is a mismatch.
    index: The element with the largest ratio.
    gradient, difference: The two values at that element; complex where the target is.
    """

    name: str
    compared: int
    elements: int
    error: float
    relative: float
    index: tuple[int, ...]
    gradient: complex
    difference: complex


@record(frozen=True)
class GradientReport(Displayed):
    """What `check_gradients` found: a record per target.

    Attributes
    ----------
    targets
        The records, in the targets' order.
    """

    targets: tuple[TargetReport, ...]

    @property
    def error(self) -> float:
        """The largest absolute difference of all."""
        return max((target.error for target in self.targets), default=0.0)

    def _html(self) -> str:
        rows = [("target", "compared", "largest error", "at", "gradient", "difference")]
        rows += [
            (t.name, f"{t.compared} of {t.elements}", f"{t.error:.2e}", str(list(t.index)),
             f"{t.gradient:.9g}", f"{t.difference:.9g}")
            for t in self.targets
        ]
        return table_html(rows)

    def __str__(self) -> str:
        rows = [
            f"{t.name}: {t.compared} of {t.elements} elements, largest error {t.error:.2e}, "
            f"at {list(t.index)}: gradient {t.gradient:.9g}, difference {t.difference:.9g}"
            for t in self.targets
        ]
        return "\n".join(rows)


@documented
def check_gradients(
    f: Node | Function | Callable[..., Node],
    point: Any,
    *,
    wrt: Any = None,
    step: float = 1e-5,
    tolerance: float = 1e-6,
    elements: int = 64,
    seed: int = 0,
) -> GradientReport:
    """Compare gradients with central differences, both in float64.

    f (Node, Function or callable): A float node of any shape, a compiled function with one output,
        or a function of nodes that returns one. A result that is not a scalar is weighted with
        fixed random numbers and summed; of a complex one the real part of such a sum is taken.
    point (dict or array or sequence of arrays): For a node or a compiled function: values of its
        inputs (and of variables, in place of what they hold), ``{x: array}`` or, by names, ``{"x":
        array}``. For a function, also a compiled one: its arguments. Of complex ones the real and
        the imaginary parts are varied.
    wrt (Node or sequence of nodes, optional): For a node: the inputs and variables to vary.
        Default: all of a float dtype that a gradient reaches.
    step (float, optional): The difference is taken over ``x - h`` and ``x + h`` with ``h = step *
        max(1, |x|)``.
    tolerance (float, optional): Allowed error, relative to the larger of 1, the gradient's largest
        element, and the result's magnitude.
    elements (int, optional): At most so many elements of each target are compared, chosen at
        random.
    seed (int, optional): Of the random weights and choices.
    returns (GradientReport): The largest errors; ``str`` of it is a table.
    raises GradientError: Where an element differs by more than allowed, naming target, element and
        values.

    Notes
    -----
    The graph of the gradient is copied in float64, leaves, constants and casts included, and
    interpreted node by node, so that what is compared are the rules, not their rounding or their
    compilation. At kinks and ties (``relu`` at 0) a central difference is the mean of the
    derivatives from both sides, and may rightly differ: check beside them. Values behind
    `stop_gradient` vary in the difference but not in the gradient.

    >>> mg.check_gradients(lambda x: mg.sin(x) * x, [0.5, 1.0]).error < 1e-8
    True
    """
    from ..function import Function

    values: dict[Node, Any]
    if isinstance(f, Function):
        f, point = _of_function(f, point)
    if isinstance(f, Node):
        if not isinstance(point, Mapping):
            raise GradientError(
                message(
                    f"check_gradients: the point of a node is a {type(point).__name__}",
                    need="a dict from inputs to arrays",
                )
            )
        output = f
        starts = [n for n in topological([output]) if n.op.kind is Kind.LEAF and _owned(n)]
        values = _by_node(point, starts)
        chosen = starts if wrt is None else [node for _, node in leaves(wrt, "wrt")]
    else:
        # A list of numbers is one array, a list that holds arrays is a sequence of them.
        listed = isinstance(point, list) and any(isinstance(a, np.ndarray) for a in point)
        several = isinstance(point, tuple) or listed
        arrays = [np.asarray(a) for a in (point if several else (point,))]
        chosen = [
            input(f"argument {i}", a.shape, _widest(a.dtype) if a.dtype.kind in "fc" else a.dtype)
            for i, a in enumerate(arrays)
        ]
        values = dict(zip(chosen, arrays, strict=True))
        output = as_node(f(*chosen))
    targets = [node for node in chosen if is_inexact(node.dtype)]
    if not is_inexact(output.dtype):
        raise GradientError(
            message(f"check_gradients: the result is {output.type}", need="a float dtype")
        )
    weights = input("weights", output.shape, output.dtype)
    labelled = [(node.name or f"wrt[{i}]", node) for i, node in enumerate(targets)]
    # The result is Re(sum(weights * output)), whose cotangent inside a sweep is the weights.
    reached = [
        None if found is None else conj(found) for found in sweep([output], [weights], labelled)
    ]
    if wrt is None:
        reached_pairs = [(t, g) for t, g in zip(labelled, reached, strict=True) if g is not None]
    else:
        reached_pairs = [
            (t, zeros_of(t[1]) if g is None else g) for t, g in zip(labelled, reached, strict=True)
        ]
    graph, moved = _in_float64([output, *(g for _, g in reached_pairs)])
    comparison = _Comparison(graph, moved, values, weights, seed, step, tolerance)
    report = GradientReport(
        tuple(
            comparison.target(name, node, position + 1, elements)
            for position, ((name, node), _) in enumerate(reached_pairs)
        )
    )
    _raise_mismatch(report)
    return report


def _of_function(f: Function, point: Any) -> tuple[Node, Mapping[Any, Any]]:
    """Return the one output of a compiled function, and the values of its inputs."""
    state = f.__getstate__()
    outputs = [] if state["outputs"] is None else [o for _, o in leaves(state["outputs"], "f")]
    if len(outputs) != 1:
        raise GradientError(
            message(
                f"check_gradients: the function has {len(outputs)} outputs",
                need="one",
                hint="check_gradients(node, {x: array}) of the node that is meant",
            )
        )
    if isinstance(point, Mapping):
        return outputs[0], point
    inputs = state["inputs"]
    several = isinstance(point, (tuple, list)) and len(inputs) != 1
    values = list(point) if several else [point[0] if _wrapped(point) else point]
    if len(values) != len(inputs):
        names = ", ".join(repr(node.name) for node in inputs)
        raise GradientError(
            message(
                f"check_gradients: {len(values)} values for {len(inputs)} inputs",
                need=f"values of {names}",
            )
        )
    return outputs[0], dict(zip(inputs, values, strict=True))


def _wrapped(point: Any) -> bool:
    """Whether an array stands alone in a sequence of arguments."""
    return isinstance(point, (tuple, list)) and len(point) == 1 and isinstance(point[0], np.ndarray)


def _by_node(point: Mapping[Any, Any], starts: Sequence[Node]) -> dict[Node, Any]:
    """Return the values by node, where names may stand for nodes that are found by them."""
    by_name: dict[Any, Node] = {node.name: node for node in starts if node.name}
    by_name.update((node, node) for node in starts)
    for key in point:
        if isinstance(key, str) and key not in by_name:
            raise GradientError(
                message(
                    f"check_gradients: there is no input named {key!r}",
                    need=f"names of inputs: {', '.join(repr(node.name) for node in starts)}",
                )
            )
    return {by_name.get(key, key): value for key, value in point.items()}


def _widest(dtype: np.dtype) -> np.dtype:
    """Return the widest dtype of a float's or complex number's kind; others are their own."""
    if is_complex(dtype):
        return COMPLEX128
    return FLOAT64 if is_inexact(dtype) else dtype


def _owned(node: Node) -> bool:
    return "key" in node.attrs or "state" in node.attrs


def _raise_mismatch(report: GradientReport) -> None:
    for target in report.targets:
        if not target.relative <= 1.0:
            raise GradientError(
                message(
                    f"check_gradients: the gradient of {target.name} at {list(target.index)} is "
                    f"{target.gradient:.9g}, the central difference {target.difference:.9g}",
                    need=f"an error below {target.error / target.relative:.2g}"
                    if np.isfinite(target.relative)
                    else "finite values",
                    hint="a point away from kinks and poles, or the gradient rule of an operation",
                )
            )


def _in_float64(roots: Sequence[Node]) -> tuple[Graph, dict[Node, Node]]:
    """Return the graph in float64 and, for each input and variable, the input in its place."""
    moved: dict[Node, Node] = {}

    def renew(node: Node, operands: tuple[Node, ...]) -> Node | None:
        attrs = node.attrs
        if node.op.kind is Kind.LEAF:
            if _owned(node):
                moved[node] = input(node.name or "value", node.shape, _widest(node.dtype))
                return moved[node]
            if is_inexact(node.dtype) and "value" in attrs:
                return constant(attrs["value"].astype(_widest(node.dtype)))
            return None
        widened = {
            key: _widest(value) if isinstance(value, np.dtype) else value
            for key, value in attrs.items()
        }
        return node.op(*operands, name=node.name, **widened)

    copies = rebuild(roots, {}, renew)
    return freeze(list(moved.values()), copies), moved


class _Comparison:
    """Evaluates the copied graph at the point and beside it."""

    def __init__(
        self,
        graph: Graph,
        moved: Mapping[Node, Node],
        values: Mapping[Node, Any],
        weights: Node,
        seed: int,
        step: float,
        tolerance: float,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.graph, self.step, self.tolerance = graph, step, tolerance
        self.leaf = dict(zip(moved, graph.inputs, strict=True))
        self.feeds: dict[Node, np.ndarray] = {}
        for node, leaf in self.leaf.items():
            if node is weights:
                continue
            if node in values:
                value = np.array(values[node], dtype=leaf.dtype)
            elif "state" in node.attrs:
                value = node.attrs["state"].read().astype(leaf.dtype)
            else:
                raise GradientError(
                    message(
                        f"check_gradients: input '{node.name}' has no value",
                        need="a value in point for every input",
                    )
                )
            self.feeds[leaf] = value
        self.value_graph = Graph(tuple(self.feeds), graph.outputs[:1], (), graph.interner)
        shape = np.shape(evaluate(self.value_graph, self.feeds)[graph.outputs[0]])
        self.weights = self.random.uniform(0.5, 1.5, shape) if shape else np.float64(1.0)
        if is_complex(weights.dtype):
            self.weights = self.weights + 1j * self.random.uniform(0.5, 1.5, shape)
        if weights in self.leaf:
            self.feeds[self.leaf[weights]] = np.asarray(self.weights)
        self.found = evaluate(graph, self.feeds)

    def value(self, feeds: Mapping[Node, np.ndarray]) -> float:
        result = evaluate(self.value_graph, feeds)[self.graph.outputs[0]]
        return float(np.sum(result * self.weights).real)

    def target(self, name: str, node: Node, position: int, elements: int) -> TargetReport:
        """Compare the gradient at `position` of the outputs with differences."""
        leaf = self.leaf[node]
        gradient = np.asarray(self.found[self.graph.outputs[position]], dtype=leaf.dtype)
        flat = self.feeds[leaf].ravel()
        chosen = np.arange(flat.size)
        if flat.size > elements:
            chosen = np.sort(self.random.choice(flat.size, elements, replace=False))
        size = float(np.abs(self.value(self.feeds)))
        scale = max(1.0, size, float(np.max(np.abs(gradient), initial=0.0)))
        worst: tuple[float, float, tuple[int, ...], complex, complex]
        worst = (0.0, 0.0, (0,) * gradient.ndim, 0.0, 0.0)
        directions = (1.0, 1.0j) if is_complex(leaf.dtype) else (1.0,)
        for number in chosen:
            width = self.step * max(1.0, abs(flat[number]))
            difference: complex = 0.0
            for direction in directions:
                sides = []
                for sign in (1.0, -1.0):
                    moved = flat.copy()
                    moved[number] += sign * width * direction
                    sides.append(self.value({**self.feeds, leaf: moved.reshape(gradient.shape)}))
                difference += direction * (sides[0] - sides[1]) / (2.0 * width)
            index = tuple(int(i) for i in np.unravel_index(number, gradient.shape))
            slope: complex = gradient[index].item()
            error = abs(slope - difference)
            ratio = error / (self.tolerance * scale)
            if not ratio <= worst[1]:
                ratio = ratio if np.isfinite(ratio) else float("inf")
                worst = (error, ratio, index, slope, difference)
        error, ratio, index, found, difference = worst
        return TargetReport(name, len(chosen), flat.size, error, ratio, index, found, difference)
