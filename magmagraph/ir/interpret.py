"""The reference interpreter: any graph, after any pass, node by node with the array expressions.

It is the meaning of a graph. Passes are tested against it, `f.check` measures with it, and the
simplify pass folds constants with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from ..dtypes import is_float
from ..errors import FeedError, GraphError, MagmagraphError, message
from . import dims
from .dims import Dim
from .graph import Graph, Node
from .locking import outside_of_forks
from .op import Effect, Kind
from .types import Type

_ARITHMETIC = frozenset(
    (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION, Kind.CONVOLUTION)
)
# What may call BLAS or LAPACK, and waits for nobody meanwhile.
PRODUCTS = frozenset((Kind.CONTRACTION, Kind.CONVOLUTION, Kind.LINALG, Kind.LOWERED))


class BodyFunction(Protocol):
    """A body graph as a function, for the runtime."""

    device: str

    def __call__(self, *arrays: Any) -> Any:
        """Return the outputs for arrays in the order of the parameters."""

    def compile(self) -> Self:
        """Compile it, unless it is compiled."""

    def plan_for(self, sizes: Mapping[str, int]) -> Any:
        """Return its plan for sizes of the named dimensions."""

    def bound_to(self, sizes: Mapping[str, int]) -> Any:
        """Return its plan bound to sizes, with memory of its own."""


class BodyCompiler(Protocol):
    """Make functions of the bodies of loops and branches.

    A function (`magmagraph.function`) passes one to the runtime that binds its plan. Compilers that
    are equal make equal functions.
    """

    def function(self, body: Graph) -> BodyFunction:
        """Return a body as a function of its parameters."""

    def compiled(self, body: Graph) -> BodyFunction | None:
        """Return a body as a function, or None where its parameters do not say all sizes."""


_compiler: ContextVar[BodyCompiler | None] = ContextVar("body compiler", default=None)


@contextmanager
def compiling_bodies(compiler: BodyCompiler) -> Iterator[None]:
    """Let bodies be compiled by a compiler for a while."""
    token = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(token)


def body_compiler() -> BodyCompiler | None:
    """Return what compiles bodies now; None outside of `compiling_bodies`."""
    return _compiler.get()


class Body(NamedTuple):
    """A body graph with the sizes of the dimensions in it, as array expressions get it."""

    graph: Graph
    sizes: Mapping[str, int]

    def run(self, arrays: Sequence[Any], xp: Any) -> list[Any]:
        """Return the outputs for arrays in the order of the parameters."""
        feeds = dict(zip(self.graph.inputs, arrays, strict=True))
        values = evaluate(self.graph, feeds, self.sizes, xp=xp)
        return [values[node] for node in self.graph.outputs]


BodyMaker = Callable[[Graph, Mapping[str, int]], Body]
_WORTH_COMPILING = 3  # operations: fewer take less time than a call of what is compiled


def body_function(body: Graph) -> BodyFunction | None:
    """Return a body as a function, the same one each time; None where nothing compiles bodies."""
    compiler = _compiler.get()
    return None if compiler is None else body.analysis(_function_of, compiler)


def _function_of(body: Graph, compiler: BodyCompiler) -> BodyFunction:
    return compiler.function(body)


def _compiled(body: Graph, compiler: BodyCompiler) -> BodyFunction | None:
    work = sum(1 for node in body.nodes if node.inputs)
    return compiler.compiled(body) if work >= _WORTH_COMPILING else None


def compiled_bodies(compiler: BodyCompiler) -> BodyMaker:
    """Return what makes bodies whose many runs go through a compiler."""

    class CompiledBody(Body):
        __slots__ = ()

        def run(self, arrays: Sequence[Any], xp: Any) -> list[Any]:
            compiled = self.graph.analysis(_compiled, compiler)
            if compiled is None or (compiled.device == "cpu") != (xp is np):
                return super().run(arrays, xp)
            return list(compiled(*arrays))

    return CompiledBody


def bind_attribute(value: Any, sizes: Mapping[str, int], body: BodyMaker = Body) -> Any:
    """Return an attribute with each `Dim` inside it replaced by its size."""
    if isinstance(value, Dim):
        return dims.evaluate(value, sizes)
    if isinstance(value, Graph):
        return body(value, sizes)
    if isinstance(value, tuple):
        return tuple(bind_attribute(v, sizes, body) for v in value)
    return value


def bind_attributes(
    attrs: Mapping[str, Any], sizes: Mapping[str, int], body: BodyMaker = Body
) -> dict[str, Any]:
    """Return a node's attributes with concrete extents."""
    return {k: bind_attribute(v, sizes, body) for k, v in attrs.items()}


def _narrow(dtype: np.dtype) -> bool:
    return is_float(dtype) and dtype.itemsize < 4


def apply(
    node: Node,
    operands: list[Any],
    sizes: Mapping[str, int],
    xp: Any = np,
    body: BodyMaker = Body,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Evaluate one node on arrays: its array expression, cast to its dtype.

    `attrs` are its attributes with concrete extents, where they are known.
    """
    op = node.op
    if attrs is None:
        attrs = bind_attributes(node.attrs, sizes, body)
    if op.kind in _ARITHMETIC and any(_narrow(a.dtype) for a in operands):
        operands = [a.astype(np.float32) if _narrow(a.dtype) else a for a in operands]
    with np.errstate(all="ignore"):
        if op.kind in PRODUCTS:
            with outside_of_forks:
                result = op.evaluate(xp, *operands, **attrs)
        else:
            result = op.evaluate(xp, *operands, **attrs)
    if isinstance(node.type, tuple):
        return tuple(
            _settle(node, r, t, sizes, xp) for r, t in zip(result, node.type, strict=True)
        )
    return _settle(node, result, node.type, sizes, xp)


def _settle(node: Node, result: Any, type_: Type, sizes: Mapping[str, int], xp: Any) -> Any:
    array = xp.asarray(result)
    if array.dtype != type_.dtype:
        with np.errstate(all="ignore"):
            array = array.astype(type_.dtype)
    expected = type_.concrete(dict(sizes))
    if array.shape != expected:
        raise GraphError(
            message(
                f"{node.op.name} evaluated to shape {array.shape}, its shape rule says {expected}"
            )
        )
    return array


def solve_sizes(graph: Graph, feeds: Mapping[Node, Any]) -> dict[str, int]:
    """Return the sizes of the named dimensions that the feeds' shapes imply."""
    shapes = [(node, np.shape(value)) for node, value in feeds.items()]
    solved = dims.solve([node.shape for node, _ in shapes], [shape for _, shape in shapes])
    if isinstance(solved, dims.BindingFailure):
        raise FeedError(message(f"the shapes of the feeds do not fit: {solved}"))
    return dict(solved)


def evaluate(
    graph: Graph,
    feeds: Mapping[Node, Any],
    sizes: Mapping[str, int] | None = None,
    *,
    xp: Any = np,
    override: Mapping[Node, Any] | None = None,
) -> dict[Node, Any]:
    """Evaluate every node of a graph; nothing is written to any variable.

    graph: A frozen graph, before or after any pass that gives a graph.
    feeds: Arrays for its inputs (and, where given, for variables in place of what they hold).
    sizes: Sizes of the named dimensions; found from the feeds unless given.
    override: Values that stand for a node instead of its evaluation (replayed random values, ...).
    returns (dict): The array of every node (a tuple for operations with several results).
    """
    if sizes is None:
        sizes = solve_sizes(graph, {n: v for n, v in feeds.items() if n.inputs == ()})
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if override is not None and node in override:
            values[node] = override[node]
        elif node in feeds:
            array = xp.asarray(feeds[node])
            values[node] = array if array.dtype == node.dtype else array.astype(node.dtype)
        elif node.op.effect is Effect.STATE and "state" in node.attrs:
            values[node] = xp.asarray(node.attrs["state"].data)
        elif node.op.kind is Kind.LEAF and "key" in node.attrs:
            raise FeedError(message(f"input '{node.name}' has no value", need="a feed for it"))
        else:
            try:
                values[node] = apply(node, [values[i] for i in node.inputs], sizes, xp)
            except MagmagraphError as error:
                if error.node is None:
                    error.node = node
                raise
    return values
