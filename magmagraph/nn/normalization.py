"""Layers that bring values to mean 0 and variance 1, or to mean square 1."""

from __future__ import annotations

from typing import Any

from ..function.defaults import stateful
from ..functional.batch_normalization import batch_norm, running_statistics
from ..functional.channel_normalization import group_norm, instance_norm
from ..functional.normalization import layer_norm, rms_norm
from ..ir.docstrings import documented
from ..ir.graph import Node
from .layer import Layer, count, features

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


@documented
class BatchNorm(Layer):
    """Normalize each channel over the batch, see `mg.batch_norm`.

    While training the statistics are the batch's own, and running ones are renewed as default
    updates of the result (`mg.stateful`); otherwise the running ones are used.

    axis (int): The axis of the channels: 1, or -1 for channels last.
    momentum (float): Weight of a batch in the running statistics.
    eps (float): Added to variances.

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
        # A frozen layer keeps its statistics, too.
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


@documented
class LayerNorm(Layer):
    """Normalize each example along its last axis, see `mg.layer_norm`.

    eps (float): Added to variances.

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


@documented
class GroupNorm(Layer):
    """Normalize groups of channels of each example, see `mg.group_norm`.

    Y. Wu, K. He, "Group normalization", ECCV 2018.

    groups (int): The number of groups, which divides the number of channels.
    axis (int): The axis of the channels: 1, or -1 for channels last.
    eps (float): Added to variances.
    raises ConfigError: If `groups` is no positive int.
    raises ShapeError: By a call, if the groups do not divide the channels.

    >>> mg.nn.GroupNorm(4)(mg.var("x", shape=("batch", 8, 5, 5))).shape
    (batch, 8, 5, 5)
    """

    def __init__(
        self, groups: int = 32, *, axis: int = 1, eps: float = 1e-5, **options: Any
    ) -> None:
        super().__init__(**options)
        self.groups = count(groups, "GroupNorm: groups")
        self.axis, self.eps = axis, eps

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make scale and offset."""
        self.scale = self.weight("scale", (features(x, self.axis),), "ones")
        self.offset = self.weight("offset", (features(x, self.axis),), "zeros")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the normalized values."""
        return group_norm(
            x, self.groups, self.scale, self.offset, eps=self.eps, axis=self.axis
        )


@documented
class InstanceNorm(Layer):
    """Normalize each channel of each example, see `mg.instance_norm`.

    axis (int): The axis of the channels: 1, or -1 for channels last.
    eps (float): Added to variances.
    scaled (bool): Whether channels are scaled and shifted by weights afterwards.
    raises ShapeError: By a call, if there are no axes beside those of examples and channels.

    >>> mg.nn.InstanceNorm()(mg.var("x", shape=("batch", 8, 5, 5))).shape
    (batch, 8, 5, 5)
    """

    def __init__(
        self, *, axis: int = 1, eps: float = 1e-5, scaled: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.axis, self.eps, self.scaled = axis, eps, scaled

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make scale and offset."""
        shape = (features(x, self.axis),)
        self.scale = self.weight("scale", shape, "ones") if self.scaled else None
        self.offset = self.weight("offset", shape, "zeros") if self.scaled else None

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the normalized values."""
        return instance_norm(x, self.scale, self.offset, eps=self.eps, axis=self.axis)


@documented
class RMSNorm(Layer):
    """Divide each example by the root of its mean square along the last axis, see `mg.rms_norm`.

    B. Zhang, R. Sennrich, "Root mean square layer normalization", NeurIPS 2019.

    eps (float): Added to mean squares.

    >>> mg.nn.RMSNorm()(mg.constant([[1.0, 7.0]])).eval().round(2)
    array([[0.2, 1.4]], dtype=float32)
    """

    def __init__(self, *, eps: float = 1e-6, **options: Any) -> None:
        super().__init__(**options)
        self.eps = eps

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make the scale."""
        self.scale = self.weight("scale", (features(x),), "ones")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the normalized values."""
        return rms_norm(x, self.scale, eps=self.eps)
