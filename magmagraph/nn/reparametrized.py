"""Layers whose kernel is computed from other weights: of unit norm, and with added low rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..function.defaults import stateful
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.control.identities import stop_gradient
from ..ops.elementwise.arithmetic import add, divide, multiply
from ..ops.elementwise.comparison import maximum
from ..ops.elementwise.math import sqrt
from ..ops.leaf import Variable
from ..ops.products.contraction import matmul
from ..ops.random.bits import next_stream
from ..ops.reduction.primitives import sum
from ..ops.shape.arrange import moveaxis, reshape
from .basic import Dense
from .layer import Layer, count, float_node

__all__ = ["LoRA", "SpectralNorm", "WeightNorm"]


class _OfKernel(Layer):
    """A layer, and the value that replaces its kernel while it is called."""

    def __init__(self, layer: Layer, **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(layer, Layer) or not hasattr(type(layer), "kernel_axis"):
            raise ConfigError(
                message(
                    f"{type(self).__name__} is given {type(layer).__name__}",
                    need="a layer with a kernel: Dense, or a convolution",
                )
            )
        self.layer: Any = layer

    def build(self, *inputs: Node) -> None:
        """Make the weights of the layer, and those that its kernel is computed from."""
        if not self.layer.built:
            with self.layer._opened(False):
                self.layer.build(*inputs)
            self.layer.built = True
        self.axis = self.layer.kernel_axis % self.layer.kernel.ndim

    def effective(self, kernel: Variable, training: bool) -> tuple[Node, dict[Variable, Node]]:
        """Return the value that replaces the kernel, and default updates."""
        raise NotImplementedError

    def call(self, *inputs: Node, training: bool) -> Node:
        """Return the layer's result with the replaced kernel."""
        kernel = self.layer.kernel
        self.layer.kernel, updates = self.effective(kernel, training)
        try:
            value: Node = self.layer(*inputs)
        finally:
            self.layer.kernel = kernel
        return stateful(value, updates) if updates else value


@documented
class WeightNorm(_OfKernel):
    """Learn direction and length of each unit's weights apart: ``kernel = scale * v / |v|``.

    T. Salimans, D. Kingma, "Weight normalization", NIPS 2016, equation 2. The norm is taken over
    all that leads to one unit or channel of the result.

    layer (Layer): One with a kernel: `Dense`, or a convolution. Its kernel is v; it does not decay
        any more.
    raises ConfigError: If the layer has no kernel.

    >>> layer = mg.nn.WeightNorm(mg.nn.Dense(4))
    >>> layer(mg.var("x", shape=("batch", 3))).shape, list(layer.weights())
    ((batch, 4), ['scale', 'layer/kernel', 'layer/bias'])
    """

    def build(self, *inputs: Node) -> None:
        """Make the scale, with the initial norms."""
        super().build(*inputs)
        kernel = self.layer.kernel
        others = tuple(i for i in range(kernel.ndim) if i != self.axis)

        def norms(shape: Any, dtype: Any) -> np.ndarray:
            return np.asarray(np.sqrt((kernel.value.astype(float) ** 2).sum(others)), dtype)

        self.scale = self.weight("scale", (kernel.shape[self.axis],), norms)

    def effective(self, kernel: Variable, training: bool) -> tuple[Node, dict[Variable, Node]]:
        """Return the kernel of the norms that the scale says."""
        others = tuple(i for i in range(kernel.ndim) if i != self.axis)
        norms = sqrt(sum(multiply(kernel, kernel), others, keepdims=True))
        shape = tuple(-1 if i == self.axis else 1 for i in range(kernel.ndim))
        factor = divide(reshape(self.scale, shape), maximum(norms, _tiny(kernel)))
        return multiply(kernel, factor), {}


@documented
class SpectralNorm(_OfKernel):
    """Divide a layer's kernel by its largest singular value.

    T. Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018,
    algorithm 1: singular vectors are kept, and each training step improves them by power
    iterations, as a default update of the result.

    layer (Layer): One with a kernel, which is taken as a matrix with a row for each unit or channel
        of the result.
    iterations (int): In a training step.
    raises ConfigError: If the layer has no kernel, or `iterations` is no positive int.

    >>> import numpy as np
    >>> layer = mg.nn.SpectralNorm(mg.nn.Dense(2, bias=False, kernel_init=[[3.0, 0.0], [0.0, 1.0]]))
    >>> layer(mg.constant(np.eye(2, dtype="float32"))).eval().round(3)
    array([[1.   , 0.   ],
           [0.   , 0.333]], dtype=float32)
    """

    def __init__(self, layer: Layer, *, iterations: int = 1, **options: Any) -> None:
        super().__init__(layer, **options)
        self.iterations = count(iterations, "SpectralNorm: iterations")

    def build(self, *inputs: Node) -> None:
        """Make the singular vectors: some iterations from random ones."""
        super().build(*inputs)
        kernel, rows = self.layer.kernel, self.layer.kernel.shape[self.axis]
        rest = int(kernel.size) // rows
        generator = np.random.default_rng(next_stream())

        def vectors() -> tuple[np.ndarray, np.ndarray]:
            matrix = np.moveaxis(kernel.value, self.axis, 0).reshape(rows, rest).astype(float)
            left, right = generator.standard_normal(rows), generator.standard_normal(rest)
            for _ in range(15):
                right = _unit(matrix.T @ left)
                left = _unit(matrix @ right)
            return left, right

        left, right = vectors()
        self.left = self.weight("left", (rows,), left, trainable=False)
        self.right = self.weight("right", (rest,), right, trainable=False)

    def effective(self, kernel: Variable, training: bool) -> tuple[Node, dict[Variable, Node]]:
        """Return the kernel over its largest singular value."""
        matrix = reshape(moveaxis(kernel, self.axis, 0), (self.left.shape[0], -1))
        fixed = stop_gradient(matrix)
        left: Node = self.left
        right: Node = self.right
        updates: dict[Variable, Node] = {}
        if training and self.trainable:
            for _ in range(self.iterations):
                right = _normalized(matmul(left, fixed))
                left = _normalized(matmul(fixed, right))
            updates = {self.left: left, self.right: right}
        largest = sum(multiply(left, matmul(matrix, right)))
        return divide(kernel, largest), updates


def _unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12))


def _normalized(vector: Node) -> Node:
    return divide(vector, maximum(sqrt(sum(multiply(vector, vector))), _tiny(vector)))


def _tiny(like: Node) -> float:
    return 1e-12 if like.dtype.itemsize >= 4 else 1e-4


@documented
class LoRA(_OfKernel):
    """Train a dense layer by a product of two thin matrices that is added to its kernel.

    ``x @ kernel + (alpha / rank) * (x @ down) @ up + bias``; E. Hu et al., "LoRA: low-rank
    adaptation of large language models", ICLR 2022. Kernel and bias are not trained. `up` is
    zero at first: the layer then gives what it gave before.

    layer (Dense): The layer, new or trained.
    rank (int): Columns of `down`, and rows of `up`.
    alpha (float, optional): `rank` unless said.
    raises ConfigError: If the layer is not `Dense`, or `rank` is no positive int.

    >>> layer = mg.nn.LoRA(mg.nn.Dense(8), rank=2)
    >>> layer(mg.var("x", shape=("batch", 6))).shape
    (batch, 8)
    >>> [held.value.shape for held in layer.trainable_variables]
    [(6, 2), (2, 8)]
    """

    def __init__(
        self, layer: Dense, rank: int = 8, alpha: float | None = None, **options: Any
    ) -> None:
        if not isinstance(layer, Dense):
            raise ConfigError(
                message(f"LoRA is given {type(layer).__name__}", need="a layer mg.nn.Dense")
            )
        super().__init__(layer, **options)
        self.rank = count(rank, "LoRA: rank")
        self.alpha = alpha
        layer.trainable = False

    def build(self, *inputs: Node) -> None:
        """Make the two matrices."""
        super().build(*inputs)
        features, units = self.layer.kernel.shape
        self.down = self.weight("down", (features, self.rank), "he_uniform", decays=True)
        self.up = self.weight("up", (self.rank, units), "zeros", decays=True)

    @property
    def factor(self) -> float:
        """The factor of the product."""
        return 1.0 if self.alpha is None else self.alpha / self.rank

    def call(self, *inputs: Node, training: bool) -> Node:
        """Return the layer's units, with the product of low rank."""
        # Not by a kernel that is added up: its gradient would be a full matrix.
        layer, x = self.layer, float_node(inputs[0])
        thin = multiply(matmul(matmul(x, self.down), self.up), self.factor)
        value = add(matmul(x, layer.kernel), thin)
        result: Node = layer._function(value if layer.offset is None else add(value, layer.offset))
        return result

    def merge(self) -> Dense:
        """Add the product to the kernel's value, set `up` to zero, and return the dense layer."""
        product = self.down.value.astype(float) @ self.up.value.astype(float) * self.factor
        kernel = self.layer.kernel
        kernel.value = (kernel.value + product).astype(kernel.dtype)
        self.up.value = np.zeros_like(self.up.value)
        dense: Dense = self.layer
        return dense
