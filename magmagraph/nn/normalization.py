"""Layers that bring values to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from ..function.defaults import stateful
from ..functional.batch_normalization import batch_norm, running_statistics
from ..functional.normalization import layer_norm
from ..ir.graph import Node
from .layer import Layer, features

__all__ = ["BatchNorm", "LayerNorm"]


class BatchNorm(Layer):
    """Normalize each channel over the batch, see `mg.batch_norm`.

    While training the statistics are the batch's own, and running ones are renewed as default
    updates of the result (`mg.stateful`); otherwise the running ones are used.

    Parameters
    ----------
    axis : int
        The axis of the channels: 1, or -1 for channels last.
    momentum : float
        Weight of a batch in the running statistics.
    eps : float
        Added to variances.
    **options
        Of every `Layer`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> layer = mg.nn.BatchNorm(name="norm")
    >>> y = layer(mg.var("x", shape=("batch", 3)), training=True)
    >>> sorted(held.name for held in mg.default_updates(y))
    ['norm/mean', 'norm/variance']
    """

    def __init__(
        self, *, axis: int = 1, momentum: float = 0.1, eps: float = 1e-5, **options: Any
    ) -> None:
        super().__init__(**options)
        self.axis, self.momentum, self.eps = axis, momentum, eps

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make scale, offset and the running statistics."""
        shape = (features(x, self.axis),)
        self.scale = self.weight("scale", shape, "ones")
        self.offset = self.weight("offset", shape, "zeros")
        self.mean = self.weight("mean", shape, "zeros", trainable=False)
        self.variance = self.weight("variance", shape, "ones", trainable=False)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the normalized values."""
        # A layer that is kept as it is keeps its statistics, too.
        training = training and self.trainable
        value = batch_norm(
            x,
            self.scale,
            self.offset,
            self.mean,
            self.variance,
            training=training,
            eps=self.eps,
            axis=self.axis,
        )
        if not training:
            return value
        new = running_statistics(
            x, self.mean, self.variance, momentum=self.momentum, axis=self.axis
        )
        return stateful(value, {self.mean: new[0], self.variance: new[1]})


class LayerNorm(Layer):
    """Normalize each example along its last axis, see `mg.layer_norm`.

    Parameters
    ----------
    eps : float
        Added to variances.
    **options
        Of every `Layer`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.LayerNorm()(mg.constant([[1.0, 3.0]])).eval().round(2)
    array([[-1.,  1.]], dtype=float32)
    """

    def __init__(self, *, eps: float = 1e-5, **options: Any) -> None:
        super().__init__(**options)
        self.eps = eps

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make scale and offset."""
        self.scale = self.weight("scale", (features(x),), "ones")
        self.offset = self.weight("offset", (features(x),), "zeros")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the normalized values."""
        return layer_norm(x, self.scale, self.offset, eps=self.eps)
