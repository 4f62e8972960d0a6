"""Bodies of fused regions for tests, and the ways of running one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.codegen.region.analysis import Region, analyze
from magmagraph.dtypes import canonical, is_float, tolerance
from magmagraph.ir import dims
from magmagraph.ir.graph import Graph, Node, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ir.types import Type
from magmagraph.ops.leaf import parameter
from magmagraph.ops.random.basic import RANDOM_BITS
from magmagraph.runtime.cpu import tiled
from magmagraph.runtime.cpu.fused import Kernels
from magmagraph.runtime.cpu.support import Program, address_of, aligned_empty

B, N = mg.Dim("B"), mg.Dim("N")
SIZES = {"B": 13, "N": 37}

Build = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A body: operand types as (shape, dtype) or a shape, and what is made of them."""

    name: str
    operands: tuple[Any, ...]
    build: Build
    numerics: str = "reassoc"
    make: Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray] | None = None
    least: int = 1  # what both dimensions must have, for slices

    def body(self) -> Graph:
        return make_body(self.operands, self.build)


def make_body(operands: Sequence[Any], build: Build) -> Graph:
    """Return the body that `build` makes of parameters."""
    leaves = []
    for i, spec in enumerate(operands):
        shape, dtype = spec if isinstance(spec, tuple) and len(spec) == 2 and isinstance(
            spec[0], tuple
        ) else (spec, "float32")
        leaves.append(parameter(i, Type(canonical(dtype), shape)))
    built_nodes = build(*leaves)
    outputs = list(built_nodes) if isinstance(built_nodes, (tuple, list)) else [built_nodes]
    return freeze(leaves, outputs)


def region_of(body: Graph) -> Region:
    """Return the region of a body, which must be one."""
    region = analyze(body)
    assert isinstance(region, Region), region
    return region


def arrays_for(
    rng: np.random.Generator,
    body: Graph,
    sizes: Mapping[str, int],
    make: Callable[..., np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Return operands: normal floats, small ints, bools."""
    result = []
    for leaf in body.inputs:
        shape = leaf.type.concrete(dict(sizes))
        if make is not None:
            array = make(rng, shape, leaf.dtype)
        elif is_float(leaf.dtype):
            array = rng.standard_normal(shape)
        elif leaf.dtype.kind == "b":
            array = rng.integers(0, 2, shape)
        else:
            array = rng.integers(0, 5, shape)
        result.append(np.ascontiguousarray(array.astype(leaf.dtype)).reshape(shape))
    return result


def interpreted(body: Graph, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[Any]:
    """Return what the reference interpreter makes of a body."""
    values = evaluate(body, dict(zip(body.inputs, arrays, strict=True)), dict(sizes))
    return [np.array(values[node]) for node in body.outputs]  # it may be an operand


def empty_results(body: Graph, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Return arrays for the results, filled with what no kernel should leave there."""
    arrays = []
    for node in body.outputs:
        shape = node.type.concrete(dict(sizes))
        count = math.prod(shape) * node.dtype.itemsize
        filler = 1 if node.dtype.kind == "b" else 0xA5
        arrays.append(np.full(count, filler, np.uint8).view(node.dtype).reshape(shape))
    return arrays


def compiled(
    bodies: Sequence[Graph],
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    threads: int,
    kernels: Kernels | None = None,
) -> None:
    """Run several bodies as one compiled kernel."""
    library = Kernels() if kernels is None else kernels
    library.build([tuple(bodies)])
    function, numbers = library.bind(tuple(bodies), sizes, threads)
    scratch = sum(
        dims.evaluate(region_of(body).workspace(threads), dict(sizes)) for body in bodies
    )
    guard = 64
    workspace = aligned_empty(scratch + guard)
    workspace[...] = 0xFF
    cells = [*map(address_of, operands), *map(address_of, results), address_of(workspace)]
    Program([(function, [*cells, *numbers])], keep=library).run()
    assert (workspace[scratch:] == 0xFF).all(), "a kernel wrote behind its workspace"


def in_tiles(
    body: Graph,
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    sizes: Mapping[str, int],
) -> None:
    """Run a body as NumPy tiles."""
    tiled.run(body, operands, results, sizes)


def assert_close(
    body: Graph,
    results: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    numerics: str,
    what: str,
) -> None:
    """Compare results by the tolerance table; whole numbers exactly."""
    for i, (node, actual, expected) in enumerate(zip(body.outputs, results, wanted, strict=True)):
        assert actual.shape == expected.shape
        if not is_float(node.dtype):
            np.testing.assert_array_equal(actual, expected, err_msg=f"{what}, output {i}")
            continue
        kind = "half" if node.dtype.itemsize == 2 else numerics
        finite = np.abs(expected.astype(np.float64))
        finite = finite[np.isfinite(finite)]
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        table = tolerance(node.dtype, kind)  # type: ignore[arg-type]
        if not table.close(actual, expected, scale):
            error = np.nanmax(np.abs(actual.astype(np.float64) - expected.astype(np.float64)))
            raise AssertionError(
                f"{what}, output {i} ({node!r}): largest difference {error}\n"
                f"{actual.ravel()[:8]}\n{expected.ravel()[:8]}"
            )


# ---- The bodies that both ways of running must get right


def softmax(x: Node, axis: int = -1) -> Node:
    e = mg.exp(x - mg.max(x, axis=axis, keepdims=True))
    return e / mg.sum(e, axis=axis, keepdims=True)


def softmax_parts(x: Node, axis: int = -1) -> tuple[Node, Node, Node]:
    """Return what a gradient needs of a softmax: a later pass needs what an earlier one writes."""
    powers = mg.exp(0.125 * x - mg.max(0.125 * x, axis=axis, keepdims=True))
    total = mg.sum(powers, axis=axis, keepdims=True)
    return powers, total, powers / total


def log_softmax(x: Node) -> Node:
    shifted = x - mg.max(x, axis=-1, keepdims=True)
    return shifted - mg.log(mg.sum(mg.exp(shifted), axis=-1, keepdims=True))


def normalized(x: Node, axes: Any) -> tuple[Node, Node, Node]:
    mean = mg.mean(x, axis=axes, keepdims=True)
    variance = mg.mean(mg.square(x - mean), axis=axes, keepdims=True)
    return (x - mean) * mg.rsqrt(variance + 1e-5), mean, variance


def layer_norm(x: Node, scale: Node, offset: Node) -> Node:
    return normalized(x, -1)[0] * scale + offset


def layer_norm_gradient(x: Node, scale: Node, d: Node) -> tuple[Node, ...]:
    hat, _, variance = normalized(x, -1)
    g = d * scale
    dx = (
        g
        - mg.mean(g, axis=-1, keepdims=True)
        - hat * mg.mean(g * hat, axis=-1, keepdims=True)
    ) * mg.rsqrt(variance + 1e-5)
    return dx, mg.sum(d * hat, axis=0), mg.sum(d, axis=0)


def batch_norm(x: Node, scale: Node, offset: Node, running: Node) -> tuple[Node, ...]:
    mean = mg.mean(x, axis=0)
    variance = mg.mean(mg.square(x - mean), axis=0)
    y = (x - mean) / mg.sqrt(variance + 1e-5) * scale + offset
    return y, 0.9 * running + 0.1 * mean, variance


def batch_norm_gradient(x: Node, scale: Node, d: Node) -> tuple[Node, ...]:
    mean = mg.mean(x, axis=0)
    hat = (x - mean) * mg.rsqrt(mg.mean(mg.square(x - mean), axis=0) + 1e-5)
    ds, do = mg.sum(d * hat, axis=0), mg.sum(d, axis=0)
    return scale * (d - mg.mean(d, axis=0) - hat * mg.mean(d * hat, axis=0)), ds, do


def image_norm(x: Node, scale: Node) -> tuple[Node, ...]:
    y, mean, variance = normalized(x, (0, 2, 3))
    return y * mg.reshape(scale, (1, 3, 1, 1)), mg.reshape(mean, (3,)), variance


def cross_entropy_with_gradient(x: Node, labels: Node) -> tuple[Node, Node]:
    hot = mg.one_hot(labels, 10)
    logp = log_softmax(x)
    loss = -mg.mean(mg.sum(hot * logp, axis=-1))
    return loss, (mg.exp(logp) - hot) / mg.cast(mg.extent("B"), "float32")


def _labels(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return rng.integers(0, 10, shape) if dtype.kind == "i" else rng.standard_normal(shape)


def random_words(step: Node, shape: tuple[Any, ...], dtype: str = "uint32") -> Node:
    return RANDOM_BITS(step, seed=3, stream=1, part=0, shape=shape, dtype=np.dtype(dtype))


def dropped(x: Node, step: Node) -> Node:
    words = random_words(step, x.shape)
    return mg.where(mg.less(words, mg.constant(1 << 31, dtype="uint32")), x, 0.0)


def adam(w: Node, g: Node, m: Node, v: Node, rate: Node) -> tuple[Node, Node, Node]:
    m2 = 0.9 * m + 0.1 * g
    v2 = 0.999 * v + 0.001 * mg.square(g)
    return w - rate * m2 / (mg.sqrt(mg.absolute(v2)) + 1e-8), m2, v2


_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 88.0, -104.0])


def _special(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return rng.choice(_SPECIAL, shape)


CASES = [
    Case("chain", ((B, N),), lambda x: mg.sigmoid(2 * x + 1) * mg.tanh(x) - 0.1 * x, "stable"),
    Case("bias", ((B, N), (N,)), lambda x, b: mg.sigmoid(x + b), "stable"),
    Case("outer", ((B, 1), (1, N)), lambda x, y: x * y + mg.exp(-x), "stable"),
    Case("operand itself", ((B, N),), lambda x: (mg.tanh(x) + x, mg.positive(x)), "stable"),
    Case("rows of one", (((B, 1), "bfloat16"),), lambda x: mg.max(x, axis=1), "exact"),
    Case("scalars", ((), ()), lambda x, y: (x + y, mg.exp(x)), "stable"),
    Case("scalar operand", ((B, N), ()), lambda x, r: x * mg.exp(-r), "stable"),
    Case("three axes", ((B, 3, N), (3, 1), (B, 1, 1)), lambda x, y, z: (x + y) * z, "stable"),
    Case("two outputs", ((B, N), (B, N)), lambda x, y: (x + y, mg.transpose(x * y)), "stable"),
    Case("repeated and cut", ((1, 6),), lambda x: x * mg.broadcast_to(x, (4, 6))[1:2, :1], "exact"),
    Case("extremes of one", ((1,),), lambda x: (mg.max(s := mg.broadcast_to(x, (N,))), mg.min(s))),
    Case("sum of one", ((1,),), lambda x: mg.sum(mg.broadcast_to(x, (B, N)), axis=1)),
    Case("repeated", ((N,),), lambda x: mg.broadcast_to(mg.exp(x), (B, N)), "stable"),
    Case("copy", ((B, N),), lambda x: mg.transpose(x), "exact"),
    Case("transposed sum", ((B, N), (N, B)), lambda x, y: mg.transpose(x) + y, "exact"),
    Case("permuted", ((4, B, 5),), lambda x: mg.transpose(x, (2, 0, 1)) * 2.0, "exact"),
    Case("slices", ((B, N),), lambda x: x[1:, ::2] - x[:-1, ::2], "exact"),
    Case("negative steps", ((B, N),), lambda x: x[::-1, ::-3] * 2.0, "exact"),
    Case("flipped", ((B, N),), lambda x: mg.flip(x, 1) + x, "exact"),
    Case("row of a matrix", ((B, N), (4, N)), lambda x, w: x * w[2], "exact"),
    Case(
        "slice of a transpose",
        ((N, B),),
        lambda x: mg.exp(mg.transpose(x)[2:, 3:-1]),
        "stable",
        least=7,
    ),
    Case("reshaped", ((B, 12),), lambda x: mg.transpose(mg.reshape(x, (B, 3, 4)), (0, 2, 1)) + 1.0),
    Case("total", ((B, N),), lambda x: mg.sum(mg.square(x))),
    Case("row sums", ((B, N),), lambda x: mg.sum(x, axis=1)),
    Case("column sums", ((B, N),), lambda x: mg.sum(x, axis=0)),
    Case("wide column sums", ((B, 2100),), lambda x: mg.sum(mg.exp(x), axis=0)),
    Case("image sums", ((B, 3, 5, 4),), lambda x: mg.sum(x, axis=(0, 2, 3))),
    Case("middle sums", ((B, N, 4),), lambda x: mg.sum(x, axis=1)),
    Case("inner of one", ((B, 1),), lambda x: (mg.sum(x, axis=1), mg.argmax(x, axis=1))),
    Case("product", ((B, 6),), lambda x: (mg.prod(x, axis=1), mg.max(x, axis=1))),
    Case("extremes", ((B, N),), lambda x: (mg.max(x, axis=0), mg.min(x, axis=0)), "exact"),
    Case("views of rows", ((B, N),), lambda x: (mg.max(x[:, ::2], axis=0), mg.sum(x[:, ::2]))),
    Case("flipped rows", ((B, N),), lambda x: mg.max(mg.flip(x, 0), axis=0), "exact"),
    Case("whole extremes", ((B, N),), lambda x: (mg.max(x), mg.min(x)), "exact"),
    Case(
        "bias update", ((B, N), (N,), ()), lambda d, b, rate: b - rate * mg.sum(d, axis=0)
    ),
    Case("softmax", ((B, N),), softmax),
    Case("softmax of columns", ((B, N),), lambda x: softmax(x, 0)),
    Case("softmax of channels", ((B, 5, N),), lambda x: softmax(x, 1)),
    Case(
        # tanh(x) could be computed in the first pass, is needed in the second, and kept from there.
        "softmax of a dear value and a mean",
        ((B, N),),
        lambda x: softmax(mg.tanh(x) + mg.mean(x, axis=1, keepdims=True)),
    ),
    Case(
        "softmax of columns, of a dear value and a mean",
        ((B, N),),
        lambda x: softmax(mg.tanh(x) + mg.mean(x, axis=0, keepdims=True), 0),
    ),
    Case("softmax with its exponentials", ((B, N),), softmax_parts),
    Case("softmax of columns with its exponentials", ((B, N),), lambda x: softmax_parts(x, 0)),
    Case("softmax of short rows with its exponentials", ((B, N, 3),), softmax_parts),
    Case("log softmax", ((B, N),), log_softmax),
    Case("layer norm", ((B, N), (N,), (N,)), layer_norm),
    Case("layer norm gradient", ((B, N), (N,), (B, N)), layer_norm_gradient),
    Case("batch norm", ((B, N), (N,), (N,), (N,)), batch_norm),
    Case("batch norm gradient", ((B, N), (N,), (B, N)), batch_norm_gradient),
    Case("image norm", ((B, 3, 4, 5), (3,)), image_norm),
    Case(
        "cross entropy",
        ((B, 10), ((B,), "int32")),
        cross_entropy_with_gradient,
        make=_labels,
    ),
    Case("sum of row values", ((B, N),), lambda x: mg.mean(mg.logsumexp(x, axis=-1))),
    Case(
        "norm of columns", ((B, N),), lambda x: mg.sum(mg.sqrt(mg.sum(mg.square(x), axis=0)))
    ),
    Case("argmax of rows", ((B, N),), lambda x: mg.argmax(mg.floor(x), axis=1)),
    Case("argmin of columns", ((B, N),), lambda x: mg.argmin(mg.floor(x), axis=0)),
    Case("argmax of all", ((B, N),), lambda x: mg.argmax(mg.floor(x))),
    Case("argmax across", ((N, B),), lambda x: mg.argmax(mg.transpose(mg.floor(x)))),
    Case(
        "argmax and softmax",
        ((B, N),),
        lambda x: (softmax(x), mg.argmax(x, axis=-1), mg.max(x, axis=-1)),
    ),
    Case("positions", ((B, N),), lambda x: x + mg.cast(mg.arange(N), "float32"), "exact"),
    Case("truths", ((B, N),), lambda x: (mg.any(x > 1.5, axis=1), mg.all(x > -1.5, axis=1))),
    Case("counts", ((B, N),), lambda x: mg.count_nonzero(x > 0.0, axis=0)),
    Case("choice", ((B, N), (N,)), lambda x, y: mg.where(x > y, x, -y), "exact"),
    Case(
        "whole numbers",
        (((B, N), "int32"), ((N,), "int32")),
        lambda x, y: (x * y - 7, x // 3, mg.sum(x, axis=1), mg.maximum(x, y)),
    ),
    Case(
        "bytes",
        (((B, N), "uint8"), ((B, N), "int8")),
        lambda x, y: (x + x, mg.cast(y, "float32") / 3.0, mg.cast(x, "int16") * y - 3),
    ),
    Case(
        "halves",
        (((B, N), "float16"), ((N,), "float16")),
        lambda x, y: (mg.tanh(x * y), mg.cast(x, "float32") * 3.0),
        "half",
    ),
    Case("half softmax", (((B, N), "float16"),), softmax, "half"),
    Case("half sums", (((B, N), "float16"),), lambda x: mg.sum(x, axis=0), "half"),
    Case(
        "brain floats",
        (((B, N), "bfloat16"),),
        lambda x: (x * 2.0 + 1.0, mg.sum(x, axis=1)),
        "half",
    ),
    Case("doubles", (((B, N), "float64"),), lambda x: (softmax(x), mg.sum(x)), "reassoc"),
    Case(
        "special values",
        ((B, N),),
        lambda x: (mg.exp(x), mg.maximum(x, 0.5), mg.sigmoid(x), mg.isnan(x), x * 0.0),
        "stable",
        make=_special,
    ),
    Case(
        "special extremes",
        ((B, 6),),
        lambda x: (mg.max(x, axis=1), mg.argmax(x, axis=1), mg.argmin(x, axis=1)),
        "exact",
        make=_special,
    ),
    Case(
        "special columns",
        ((6, N),),
        lambda x: (mg.min(x, axis=0), mg.argmax(x, axis=0), mg.sum(x, axis=0)),
        "stable",
        make=_special,
    ),
    Case("adam", ((N,), (N,), (N,), (N,), ()), adam, "stable"),
    Case("random words", (((), "int64"),), lambda step: random_words(step, (B, N)), "exact"),
    Case(
        "random words of 64 bits",
        (((), "int64"),),
        lambda step: mg.transpose(random_words(step, (B, 3, N), "uint64"), (2, 0, 1)),
        "exact",
    ),
    Case("dropout", ((B, N), ((), "int64")), dropped, "exact"),
    Case("dropout of probabilities", ((B, N), ((), "int64")), lambda x, s: dropped(softmax(x), s)),
    Case("dropout of columns", ((B, N), ((), "int64")), lambda x, s: softmax(dropped(x, s), 0)),
]


def size_of(body: Graph, sizes: Mapping[str, int]) -> int:
    """Return how many elements the largest operand has."""
    return max(math.prod(leaf.type.concrete(dict(sizes))) for leaf in body.inputs)
