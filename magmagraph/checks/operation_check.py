"""`mg.check_operation`: what an operation says of itself, compared with what it does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autodiff.autodiff import grad
from ..autodiff.transforms.vmap import vmap
from ..config import config
from ..dtypes import is_inexact, tolerance
from ..errors import GraphError, message
from ..function import Function
from ..ir.docstrings import documented
from ..ir.graph import Node, freeze, topological
from ..ir.interpret import evaluate
from ..ops.elementwise.arithmetic import add, multiply
from ..ops.leaf import input
from ..ops.reduction.primitives import sum
from .gradient_check import check_gradients

__all__ = ["check_operation"]


@documented
def check_operation(
    operation: Callable[..., Any],
    *arrays: Any,
    numerics: str = "stable",
    **attributes: Any,
) -> None:
    """Compare everything that an operation says with what it does, on given operands.

    operation (Operation or callable): An object of a class of `mg.Operation`, or any function of
        nodes that returns a node or a tuple of nodes.
    *arrays (array): Operands; choose points at which the operation is smooth, and sizes that
        matter.
    numerics ({"exact", "stable", "reassoc"}, optional): How far compiled results may be from
        interpreted ones: the row of the tolerance table.
    **attributes: Keyword arguments of the operation.
    raises GraphError: Naming the check that failed: the result's type; the compiled result (with
        generated kernels, and without a C compiler) against NumPy code; operands that do not lie
        contiguously; `vmap` against a loop; pickling.
    raises GradientError: Where a first or second derivative differs from central differences in
        float64, for an operation that has a gradient.

    >>> import numpy as np
    >>> class Wrong(mg.Operation):
    ...     kernel = "a * a"
    ...     def numpy(self, x):
    ...         return x * x * x
    >>> mg.check_operation(Wrong(), np.array([1.0, 2.0]))
    Traceback (most recent call last):
        ...
    magmagraph.errors.GraphError: check_operation: the compiled result differs from that of numpy
      expected: [1. 8.]
      try: the kernel says [1. 4.]
    """
    operands = [np.asarray(array) for array in arrays]
    leaves = [input(f"operand {i}", a.shape, a.dtype) for i, a in enumerate(operands)]
    results = _listed(operation(*leaves, **attributes))
    if not results or not all(isinstance(node, Node) for node in results):
        raise GraphError(
            message("check_operation: the operation returns other values than nodes",
                    need="a node, or a tuple of nodes")
        )  # fmt: skip
    expected = _interpreted(results, leaves, operands)
    _compare_compiled(results, leaves, operands, expected, numerics)
    _compare_mapped(results, leaves, operands, numerics)
    _compare_pickled(results, leaves, operands, expected)
    _compare_derivatives(operation, attributes, results, leaves, operands)


def _listed(results: Any) -> list[Node]:
    nodes = list(results) if isinstance(results, (tuple, list)) else [results]
    for node in nodes:
        if not isinstance(node, Node):
            raise GraphError(
                message(
                    f"check_operation: the operation returned {type(node).__name__}",
                    need="a node, or a tuple of nodes",
                )
            )
    return nodes


def _interpreted(
    results: Sequence[Node], leaves: Sequence[Node], operands: Sequence[np.ndarray]
) -> list[Any]:
    graph = freeze(leaves, results)
    values = evaluate(graph, dict(zip(graph.inputs, operands, strict=True)))
    return [np.asarray(values[node]) for node in graph.outputs]


def _compare(
    what: str, actual: Sequence[Any], expected: Sequence[Any], numerics: str, hint: str
) -> None:
    for value, target in zip(actual, expected, strict=True):
        finite = np.abs(np.asarray(target))[np.isfinite(target)]
        scale = max(1.0, float(np.max(finite, initial=0)))
        same = value.shape == target.shape and value.dtype == target.dtype
        if not same or not tolerance(value.dtype, numerics).close(value, target, scale):
            raise GraphError(
                message(
                    f"check_operation: {what}", need=str(target), hint=hint.format(found=value)
                )
            )


def _compare_compiled(
    results: Sequence[Node],
    leaves: Sequence[Node],
    operands: Sequence[np.ndarray],
    expected: Sequence[Any],
    numerics: str,
) -> None:
    hint = "the kernel says {found}"
    before = config.compiler
    try:
        for compiler in (before, "off"):
            config.compiler = compiler
            actual = Function(leaves, list(results), device="cpu")(*operands)
            _compare("the compiled result differs from that of numpy", actual, expected, numerics,
                     hint)
    finally:
        config.compiler = before
    apart = [np.repeat(a[..., None], 2, axis=-1)[..., 0] for a in operands]
    actual = _interpreted(results, leaves, apart)
    _compare("operands that do not lie contiguously give another result", actual, expected,
             numerics, "it is {found}; use shapes and strides of the operands as they come")


def _compare_mapped(
    results: Sequence[Node], leaves: Sequence[Node], operands: Sequence[np.ndarray], numerics: str
) -> None:
    if not leaves:
        return
    stacks = [np.stack([a, np.flip(a) if a.ndim else a]) for a in operands]
    stacked = [input("stacked", s.shape, s.dtype) for s in stacks]
    mapped = vmap(list(results), dict(zip(leaves, stacked, strict=True)))
    actual = _interpreted(mapped, stacked, stacks)
    for i in range(2):
        expected = _interpreted(results, leaves, [s[i] for s in stacks])
        _compare("vmap gives another result than a loop", [f[i] for f in actual], expected,
                 numerics, "it is {found}; see the attribute batching")


def _compare_pickled(
    results: Sequence[Node],
    leaves: Sequence[Node],
    arrays: Sequence[np.ndarray],
    expected: Sequence[Any],
) -> None:
    own = [node.op for node in topological(results) if "." in node.op.name]
    try:
        f = pickle.loads(pickle.dumps(Function(leaves, list(results), device="cpu")))
    except pickle.PicklingError:
        if own:
            return  # defined inside of a function: the error says so to whoever pickles it
        raise
    _compare("it gives another result when pickled", f(*arrays), expected, "reassoc",
             "it is {found}")


def _compare_derivatives(
    operation: Callable[..., Any],
    attributes: dict[str, Any],
    results: Sequence[Node],
    leaves: Sequence[Node],
    arrays: Sequence[np.ndarray],
) -> None:
    order = topological(results)
    if any(node.op.no_gradient for node in order if "." in node.op.name):
        return
    chosen = [i for i, leaf in enumerate(leaves) if is_inexact(leaf.dtype)]
    if not chosen or not any(is_inexact(node.dtype) for node in results):
        return

    def weighted(*nodes: Node) -> Node:
        operands: list[Any] = list(arrays)
        for i, node in zip(chosen, nodes, strict=True):
            operands[i] = node
        parts = [p for p in _listed(operation(*operands, **attributes)) if is_inexact(p.dtype)]
        return _weighted(parts)

    point = tuple(arrays[i] for i in chosen)
    check_gradients(weighted, point)
    check_gradients(
        lambda *nodes: _weighted(grad(weighted(*nodes), list(nodes), unused="zeros")), point
    )


def _weighted(parts: Sequence[Node]) -> Node:
    """Return the sum of all elements with fixed random weights."""
    generator = np.random.default_rng(0)
    total: Node | None = None
    for part in parts:
        weights = generator.uniform(0.5, 1.5, tuple(map(int, part.shape)))
        term = sum(multiply(part, weights.astype(part.dtype)))
        total = term if total is None else add(total, term)
    assert total is not None, "there is a float result"
    return total
