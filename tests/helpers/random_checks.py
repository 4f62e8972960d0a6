"""How random programs are judged: by the interpreter, by NumPy, by what rounding does to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from random_domains import Case

import magmagraph as mg
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.identity import is_among
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.random.basic import RANDOM_STEP

SINGLE = float(np.finfo(np.float32).eps)


def interpreted(inputs: Sequence[Node], outputs: Sequence[Node], feeds: Any) -> list[np.ndarray]:
    """Return what a graph means."""
    graph = freeze(list(inputs), list(outputs))
    values = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(values[node]) for node in graph.outputs]


def interpreted_at(
    step: int, inputs: Sequence[Node], outputs: Sequence[Node], feeds: Any
) -> list[np.ndarray]:
    """Return what a graph that draws means in a call, counted from 0."""
    counter = mg.input("step", (), "int64")
    graph = freeze([*inputs, counter], list(outputs), leaves={RANDOM_STEP: counter})
    feeds_and_step = [*feeds, np.int64(step)]
    values = evaluate(graph, dict(zip(graph.inputs, feeds_and_step, strict=True)))
    return [np.asarray(values[node]) for node in graph.outputs]


def gradients(case: Case) -> list[Node]:
    """Return the leaves that the loss depends on, each with a gradient."""
    leaves: list[Node] = []
    seen: set[Node] = set()
    stack = [case.loss] if case.loss is not None else []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack += node.inputs
        if not node.inputs and (is_among(node, case.inputs) or isinstance(node, mg.Variable)):
            leaves.append(node)
    return [n for n in sorted(leaves, key=lambda n: str(n.name)) if np.dtype(n.dtype).kind in "fc"]


class Judge:
    """The values that results are compared with, and how far they may be from them.

    Parameters
    ----------
    make
        Builds the program for a dtype: it is built in single and in double precision, and the
        distance of the two says how much rounding matters.
    extend
        Gives further outputs of a program.
    terms
        The elements of its largest value.
    """

    def __init__(
        self, make: Callable[[str], Case], extend: Callable[[Case], list[Node]], terms: int = 64
    ) -> None:
        # The rounding errors of a sum grow with the square root of its terms.
        self.units = 8.0 * max(64, terms) ** 0.5
        self.cases = {dtype: make(dtype) for dtype in ("float32", "float64")}
        self.outputs = {dtype: [*case.outputs, *extend(case)] for dtype, case in self.cases.items()}
        values = {
            dtype: interpreted(case.inputs, self.outputs[dtype], case.feeds)
            for dtype, case in self.cases.items()
        }
        self.plain, self.exact = values["float32"], values["float64"]
        self.off = [
            _distance(a, b) if np.asarray(a).dtype.kind in "fc" else float(not np.array_equal(a, b))
            for a, b in zip(self.plain, self.exact, strict=True)
        ]
        # Rounding early in a program reaches all that is made later.
        self.worst = max([o for o in self.off if np.isfinite(o)], default=0.0)

    def limit(self, place: int, dtype: str, eps: float | None = None) -> float:
        """Return how far a result may be from the exact one."""
        unit = float(np.finfo(dtype).eps)
        scale = 1.0 + float(np.abs(_finite(self.exact[place])).max(initial=0.0))
        off = max(self.off[place], 0.1 * self.worst)
        error = 16.0 * off + self.units * SINGLE * scale
        return error * (eps or unit) / SINGLE

    def against_numpy(self) -> str | None:
        """Return what the interpreter has otherwise than NumPy."""
        case = self.cases["float64"]
        for place, expected in enumerate(case.wanted):
            if expected is None:
                continue
            result = self.exact[place]
            if result.shape != expected.shape:
                return f"output {place}: shape {result.shape}, NumPy {expected.shape}"
            if result.dtype.kind != expected.dtype.kind and {
                result.dtype.kind,
                expected.dtype.kind,
            } != {
                "i",
                "u",
            }:
                return f"output {place}: {result.dtype}, NumPy {expected.dtype}"
            if _distance(result, expected) > self.limit(place, "float64"):
                return f"output {place}: {result}, NumPy {expected}"
        return None

    def judge(self, results: Sequence[Any], dtype: str, eps: float | None = None) -> str | None:
        """Return what is wrong with a call's results."""
        own = self.plain if dtype == "float32" else self.exact
        for place, (result, expected) in enumerate(zip(results, own, strict=True)):
            result = np.asarray(result)
            if result.shape != expected.shape or result.dtype != expected.dtype:
                types = [f"{array.dtype}{array.shape}" for array in (result, expected)]
                return f"output {place}: {types[0]}, not {types[1]}"
            if result.dtype.kind not in "fc":
                if not self.off[place] and eps is None and not np.array_equal(result, expected):
                    return f"output {place}: {result}, not {expected}"
                continue
            distance = _distance(result, self.exact[place])
            if not distance <= self.limit(place, dtype, eps):
                return (
                    f"output {place} is {distance:.2g} off, {self.limit(place, dtype, eps):.2g} "
                    f"allowed: {result}, not {expected}"
                )
        return None


def _finite(a: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "fc":
        return a.astype(np.float64)
    return np.where(np.isfinite(a), a, 0.0)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    return float(np.abs(_finite(a) - _finite(b)).max(initial=0.0))


def slope(
    case: Case, gradients: Sequence[np.ndarray], wrt: Sequence[Node], seed: int
) -> str | None:
    """Compare gradients with central differences of the loss along a random direction.

    Kinks make differences wrong for some step, so that all steps must disagree; and where a kink
    lies within the smallest step, the gradient is between the differences to either side.
    """
    rng = np.random.default_rng(seed)
    assert case.loss is not None
    points: dict[Node, Any] = dict(zip(case.inputs, case.feeds, strict=True))
    points.update({node: node.value for node in wrt if isinstance(node, mg.Variable)})
    ways, along = {}, 0.0
    for node, gradient in zip(wrt, gradients, strict=True):
        ways[node] = rng.standard_normal(gradient.shape)
        if gradient.dtype.kind == "c":
            ways[node] = ways[node] + 1j * rng.standard_normal(gradient.shape)
        along += float(np.sum(np.real(np.conj(gradient) * ways[node])))
    inputs = [*case.inputs, *(node for node in points if not is_among(node, case.inputs))]
    stands = {n: mg.input(str(n.name), n.shape, n.dtype) for n in inputs[len(case.inputs) :]}
    target = mg.substitute(case.loss, stands) if stands else case.loss
    graph = freeze([stands.get(node, node) for node in inputs], [target])

    def loss(h: float) -> float:
        moved_points = [points[n] + h * ways[n] if n in ways else points[n] for n in inputs]
        values = evaluate(graph, dict(zip(graph.inputs, moved_points, strict=True)))
        return float(values[graph.outputs[0]])

    errors = []
    here, allowed = loss(0.0), 1e-5 * (1.0 + abs(along))
    for h in (1e-4, 1e-5, 1e-6):
        above, below = loss(h), loss(-h)
        differences = (above - below) / (2.0 * h)
        if abs(differences - along) < allowed:
            return None
        errors.append((h, differences))
    sides = sorted(((above - here) / h, (here - below) / h))
    if sides[0] - allowed < along < sides[1] + allowed:
        return None
    return f"the gradient along a direction is {along}, differences {errors}"
