"""Mixtures of experts: dense layers of which each position uses a few."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..functional.probabilities import softmax
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.control.identities import stop_gradient
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import divide, multiply
from ..ops.elementwise.comparison import less, where
from ..ops.indexing.gathering import take
from ..ops.indexing.iota import one_hot
from ..ops.indexing.sorting import top_k
from ..ops.indexing.updates import index_update
from ..ops.products.contraction import matmul
from ..ops.products.einsum import einsum
from ..ops.reduction.cumulative import cumsum
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import mean
from ..ops.shape.arrange import expand_dims, reshape, swapaxes
from ..ops.shape.creation import zeros
from .activations import activation as function_of
from .initializers import initializer
from .layer import Layer, count, features, float_node

__all__ = ["MixtureOfExperts"]


@documented
class MixtureOfExperts(Layer):
    """Send each position through a few of many feed-forward layers, and add what they give.

    A router gives each position probabilities of the experts; the `active` likeliest compute it. N.
    Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts
    layer", ICLR 2017; W. Fedus, B. Zoph, N. Shazeer, "Switch transformers", 2022 (``active=1``); A.
    Jiang et al., "Mixtral of experts", 2024 (``active=2, gated=True, activation="silu"``).

    experts (int): How many there are.
    hidden (int): Wide units of each expert.
    activation (str or callable): Of the wide units, or of their gates.
    active (int): Experts of each position.
    gated (bool): Whether wide units are gated, as in `FeedForward`.
    capacity (float, optional): An expert takes at most ``capacity * active * positions / experts``
        positions of a call, first choices first; what is beyond gets nothing of it. Only those are
        computed. Without a capacity every expert computes every position, which is exact, and costs
        ``experts / active`` times as much.
    normalized (bool, optional): Whether the shares of the active experts add up to 1; True unless
        ``active=1``, whose share is the router's probability.
    return_balance (bool): Give ``(y, balance)``, where `balance` is a scalar to add to the loss,
        times some 0.01: 1 where all experts have as many positions, and more else (Switch
        transformers, equation 4).
    kernel_init: Of each matrix of an expert, and of the router; see `Layer.weight`.
    raises ConfigError: If `active` is more than `experts`, or an argument is out of range.

    Notes
    -----
    The last axis of the input is that of the features; all axes before it are positions. The
    result has the shape of the input.

    >>> layer = mg.nn.MixtureOfExperts(8, 32, "silu", active=2, gated=True)
    >>> layer(mg.var("x", shape=("batch", "length", 16))).shape
    (batch, length, 16)
    """

    def __init__(
        self,
        experts: int,
        hidden: int,
        activation: Any = "relu",
        *,
        active: int = 2,
        gated: bool = False,
        capacity: float | None = None,
        normalized: bool | None = None,
        return_balance: bool = False,
        kernel_init: Any = "glorot_uniform",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.experts = count(experts, "MixtureOfExperts: experts")
        self.hidden = count(hidden, "MixtureOfExperts: hidden")
        self.active = count(active, "MixtureOfExperts: active")
        if active > experts:
            raise ConfigError(
                message(
                    f"MixtureOfExperts: active={active} of experts={experts}",
                    need="at most as many as there are",
                )
            )
        number = isinstance(capacity, (int, float)) and not isinstance(capacity, bool)
        if capacity is not None and not (number and capacity > 0):
            raise ConfigError(
                message(f"MixtureOfExperts: capacity={capacity!r}", need="a positive number")
            )
        self.activation, self.gated, self.capacity = activation, gated, capacity
        self.normalized = active > 1 if normalized is None else normalized
        self.return_balance = return_balance
        self.kernel_init = kernel_init
        self._function = function_of(activation)

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make the router's matrix, and those of the experts along a first axis."""
        width = features(x)
        self.router = self.weight("router", (width, self.experts), self.kernel_init, decays=True)
        self.expand = self._matrices("expand", width, self.hidden)
        self.gate = self._matrices("gate", width, self.hidden) if self.gated else None
        self.output = self._matrices("output", self.hidden, width)

    def _matrices(self, name: str, rows: Any, columns: Any) -> Any:
        init = self.kernel_init
        rule = init[0] if isinstance(init, (list, tuple)) else init
        if isinstance(rule, str) or callable(init):  # each by itself: fans are those of one expert
            parts = [initializer(init) for _ in range(self.experts)]

            def initialize(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
                return np.stack([np.asarray(part(shape[1:], dtype)) for part in parts])

            init = initialize
        return self.weight(name, (self.experts, rows, columns), init, decays=True)

    def call(self, x: Node, training: bool) -> Any:  # type: ignore[override]
        """Return the weighted sum of the active experts' results."""
        floats = float_node(x)
        width = floats.shape[-1]
        rows = reshape(floats, (-1, width))
        probabilities = softmax(matmul(rows, self.router))
        shares, experts = top_k(probabilities, self.active)
        if self.normalized:
            shares = divide(shares, sum(shares, -1, keepdims=True))
        combined = (
            self._all(rows, shares, experts)
            if self.capacity is None
            else self._some(rows, shares, experts)
        )
        value = reshape(combined, floats.shape)
        if not self.return_balance:
            return value
        fraction = mean(one_hot(experts, self.experts, dtype=floats.dtype), (0, 1))
        balance = sum(multiply(stop_gradient(fraction), mean(probabilities, 0)))
        return value, multiply(balance, float(self.experts))

    def _units(self, rows: Node) -> Node:
        """Apply each expert to its own rows, ``(experts, rows, width)``."""
        wide = matmul(rows, self.expand)
        if self.gate is None:
            wide = self._function(wide)
        else:
            wide = multiply(wide, self._function(matmul(rows, self.gate)))
        return matmul(wide, self.output)

    def _all(self, rows: Node, shares: Node, experts: Node) -> Node:
        there = one_hot(experts, self.experts, dtype=rows.dtype)
        share = sum(multiply(there, expand_dims(shares, -1)), 1)
        return einsum("end,ne->nd", self._units(expand_dims(rows, 0)), share)

    def _some(self, rows: Node, shares: Node, chosen_experts: Node) -> Node:
        number, width = rows.shape
        # In thousandths: extents are whole.
        part, whole = round(1000 * self.capacity * self.active), 1000 * self.experts  # type: ignore[operator]
        size = (number * part + (whole - 1)) // whole
        # All first choices, then all second ones.
        experts = reshape(swapaxes(chosen_experts, 0, 1), (-1,))
        there = one_hot(experts, self.experts, dtype=np.int64)
        place = sum(multiply(cumsum(there, 0), there), -1) - 1
        fits = less(place, cast(size, np.int64))
        beyond = cast(size * self.experts, np.int64)
        slot = where(fits, experts * cast(size, np.int64) + place, beyond)
        sent = reshape(expand_dims(rows, 0) + zeros((self.active, 1, 1), rows.dtype), (-1, width))
        buffer = index_update(zeros((size * self.experts + 1, width), rows.dtype), slot, sent)
        results = self._units(reshape(buffer[:-1], (self.experts, size, width)))
        back = take(reshape(results, (size * self.experts, width)), where(fits, slot, 0), axis=0)
        share = where(fits, reshape(swapaxes(shares, 0, 1), (-1,)), 0.0)
        weighted = multiply(back, expand_dims(share, -1))
        return sum(reshape(weighted, (self.active, number, width)), 0)
