"""Recurrent layers: a cell that is applied to one position after the other.

All gates of a cell come from one product with the position's features and one with the state. The
first depends on no other position, so that it is one product for all of them (the compiler takes
it out of the loop); see `mg.scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autodiff.transforms.scanning import scan
from ..dtypes import is_integer
from ..errors import ConfigError, DTypeError, ShapeError, message
from ..functional.dropping import dropout
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.op import describe
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, multiply, subtract
from ..ops.elementwise.comparison import less, where
from ..ops.elementwise.math import tanh
from ..ops.indexing.iota import IOTA
from ..ops.leaf import Variable, constant
from ..ops.networks.activation import sigmoid
from ..ops.products.contraction import matmul
from ..ops.shape.arrange import moveaxis, reshape
from ..ops.shape.creation import ones, zeros
from ..ops.shape.joining import concatenate
from ..ops.shape.pieces import split
from .activations import activation as function_of
from .initializers import initializer
from .layer import Layer, count, features, float_node

__all__ = ["GRU", "LSTM", "RNN", "Bidirectional"]

State = tuple[Node, ...]


class _Cell(Layer):
    """One direction: the weights, and the update of the state at a position."""

    gates: int  # blocks of units that the products give
    states: int

    def __init__(self, units: int, options: dict[str, Any], **layer: Any) -> None:
        super().__init__(**layer)
        self.units = units
        self.options = options

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make the weights for positions of these features."""
        width = self.gates * self.units
        options = self.options
        self.kernel = self.weight(
            "kernel", (features(x), width), options["kernel_init"], decays=True
        )
        self.recurrent = self.weight(
            "recurrent", (self.units, width), options["recurrent_init"], decays=True
        )
        self.offset = self.weight("bias", (width,), self.first_bias) if options["bias"] else None

    def first_bias(self, shape: Any, dtype: Any) -> Any:
        """Return the first value of the bias."""
        init = initializer(self.options["bias_init"])
        value = init(shape, dtype) if callable(init) else init
        return np.broadcast_to(np.asarray(value, dtype), shape).copy()

    def products(self, row: Node, h: Node) -> Node:
        """Return the sum of both products and the bias."""
        total = add(matmul(row, self.kernel), matmul(h, self.recurrent))
        return total if self.offset is None else add(total, self.offset)

    def step(self, state: State, row: Node) -> State:
        """Return the next state, whose first member is the output."""
        raise NotImplementedError


class _RNNCell(_Cell):
    gates = 1
    states = 1

    def step(self, state: State, row: Node) -> State:
        return (self.options["function"](self.products(row, state[0])),)


class _LSTMCell(_Cell):
    gates = 4
    states = 2

    def first_bias(self, shape: Any, dtype: Any) -> Any:
        value = super().first_bias(shape, dtype)
        value[self.units : 2 * self.units] += self.options["forget_bias"]
        return value

    def step(self, state: State, row: Node) -> State:
        h, c = state
        enter, forget, candidate, leave = split(self.products(row, h), 4, axis=-1)
        c = add(multiply(sigmoid(forget), c), multiply(sigmoid(enter), tanh(candidate)))
        return multiply(sigmoid(leave), tanh(c)), c


class _GRUCell(_Cell):
    gates = 3
    states = 1

    candidate_bias: Variable | None

    def build(self, x: Node) -> None:  # type: ignore[override]
        super().build(x)
        self.candidate_bias = None
        if self.options["bias"]:
            self.candidate_bias = self.weight(
                "candidate_bias", (self.units,), self.options["bias_init"]
            )

    def step(self, state: State, row: Node) -> State:
        (h,) = state
        seen = matmul(row, self.kernel)
        if self.offset is not None:
            seen = add(seen, self.offset)
        reset, update, candidate = split(seen, 3, axis=-1)
        hidden_reset, hidden_update, hidden_candidate = split(matmul(h, self.recurrent), 3, axis=-1)
        if self.candidate_bias is not None:
            hidden_candidate = add(hidden_candidate, self.candidate_bias)
        new = tanh(add(candidate, multiply(sigmoid(add(reset, hidden_reset)), hidden_candidate)))
        share = sigmoid(add(update, hidden_update))
        return (add(multiply(subtract(1.0, share), new), multiply(share, h)),)


class _Recurrent(Layer):
    """A cell over the positions of a sequence, in one direction or both."""

    _cell: type[_Cell]

    def __init__(
        self,
        units: int,
        *,
        return_sequences: bool = False,
        return_state: bool = False,
        bidirectional: bool = False,
        reverse: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        checkpoint: bool | int | str = False,
        kernel_init: Any = "glorot_uniform",
        recurrent_init: Any = "orthogonal",
        bias_init: Any = "zeros",
        cell: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        kind = type(self).__name__
        units = count(units, f"{kind}: units")
        for name, rate in (("dropout", dropout), ("recurrent_dropout", recurrent_dropout)):
            if not 0.0 <= rate < 1.0:
                raise ConfigError(message(f"{kind}: {name}={rate!r}", need="a rate in [0, 1)"))
        if bidirectional and reverse:
            raise ConfigError(
                message(
                    f"{kind}: bidirectional=True and reverse=True",
                    need="one of them",
                    hint="bidirectional=True: it runs both ways",
                )
            )
        self.units = units
        self.return_sequences, self.return_state = return_sequences, return_state
        self.reverse, self.bidirectional = reverse, bidirectional
        self.dropout, self.recurrent_dropout = dropout, recurrent_dropout
        self.checkpoint = checkpoint
        cell_options = {
            "bias": bias,
            "kernel_init": kernel_init,
            "recurrent_init": recurrent_init,
            "bias_init": bias_init,
            **(cell or {}),
        }
        if bidirectional:
            self.cells = [
                self._cell(units, cell_options, name="forward"),
                self._cell(units, cell_options, name="backward"),
            ]
        else:
            self.cells = [self._cell(units, cell_options, name="cell")]

    def call(self, x: Node, *lengths: Node, training: bool) -> Any:  # type: ignore[override]
        """Return the outputs: of the last position, or of all."""
        kind = type(self).__name__
        if x.ndim != 3:
            raise ShapeError(
                message(
                    f"{kind}: the input is {describe(x)}",
                    need="three axes: (batch, time, features)",
                    hint="mg.nn.Embedding for positions in a table, or mg.expand_dims",
                )
            )
        steps = moveaxis(float_node(x), 1, 0)
        active = _active(kind, steps, *lengths) if lengths else None
        passes = [
            self._one_way(cell, steps, active, training, self.reverse or place == 1)
            for place, cell in enumerate(self.cells)
        ]
        last = [
            _joined([states[i] for states, _ in passes]) for i in range(self._cell.states)
        ]
        if self.return_sequences:
            value = moveaxis(_joined([rows for _, rows in passes]), 0, 1)
        else:
            value = last[0]
        return (value, *last) if self.return_state else value

    def _one_way(
        self, cell: _Cell, steps: Node, active: Node | None, training: bool, reverse: bool
    ) -> tuple[State, Node]:
        """Return the last states and all outputs, in order of the positions."""
        batch = steps.shape[1]
        if not cell.built:
            with cell._opened(training):
                cell.build(steps)
            cell.built = True
        if training and self.dropout:
            # One mask for all positions (Gal and Ghahramani, 2016).
            mask = dropout(ones((batch, steps.shape[2]), steps.dtype), self.dropout)
            steps = multiply(steps, mask)
        state_mask: Node | None = None
        if training and self.recurrent_dropout:
            state_mask = dropout(ones((batch, self.units), steps.dtype), self.recurrent_dropout)

        def step(state: State, row: Any) -> tuple[State, Node]:
            seen, runs = row if active is not None else (row, None)
            dropped_state = (
                state if state_mask is None else (multiply(state[0], state_mask), *state[1:])
            )
            new = cell.step(dropped_state, seen)
            output = new[0]
            if runs is not None:
                new = tuple(where(runs, a, b) for a, b in zip(new, state, strict=True))
                output = where(runs, output, constant(0, dtype=output.dtype))
            return new, output

        start = tuple(zeros((batch, self.units), steps.dtype) for _ in range(cell.states))
        rows = steps if active is None else (steps, active)
        state, outputs = scan(
            step, start, rows, reverse=reverse, checkpoint=self.checkpoint
        )
        return state, outputs


def _active(kind: str, steps: Node, lengths: Node, *others: Node) -> Node:
    """Return which examples have each position: (time, batch, 1)."""
    if others:
        raise ShapeError(message(f"{kind}: {2 + len(others)} inputs", need="x, and lengths"))
    if lengths.ndim != 1 or not is_integer(lengths.dtype):
        raise (ShapeError if lengths.ndim != 1 else DTypeError)(
            message(f"{kind}: the lengths are {describe(lengths)}", need="an int for each example")
        )
    time, batch = steps.shape[:2]
    places = IOTA(shape=(time, 1, 1), axis=0, dtype=np.dtype(np.int64))
    return less(places, reshape(cast(lengths, "int64"), (1, batch, 1)))


def _joined(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else concatenate(parts, axis=-1)


_DOC = """{summary}

    {formula}

    Parameters
    ----------
    units : int
        Of the state and the output.
    {extra}return_sequences : bool
        Give the output of every position, (batch, time, units), in place of the last one's.
    return_state : bool
        Give also the last state{plural}: a tuple ``(output, {names})``.
    bidirectional : bool
        Run a second cell from the last position to the first; outputs and states are joined along
        the last axis.
    reverse : bool
        Run from the last position to the first; outputs stand where their positions do.
    bias : bool
        Whether there is one.
    dropout, recurrent_dropout : float
        Rates of features, and of the state's, that are zero in training: the same ones at all
        positions of a call (Gal and Ghahramani, 2016).
    checkpoint
        What the gradient keeps of each position, as for `mg.scan`.
    kernel_init, recurrent_init, bias_init
        See `Layer.weight`.
    **options
        Of every `Layer`.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    ShapeError, DTypeError
        By a call: the input has not the axes (batch, time, features); lengths are not ints.

    Notes
    -----
    A second input gives the length of each sequence, an int for each example: positions from there
    on leave the state as it is, and their outputs are 0.

    {notes}

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=("batch", "time", 3))
    >>> mg.nn.{name}(5)(x).shape
    (batch, 5)
    >>> mg.nn.{name}(5, return_sequences=True, bidirectional=True)(x).shape
    (batch, time, 10)
    """


class RNN(_Recurrent):  # noqa: D101 - below
    _cell = _RNNCell

    def __init__(self, units: int, activation: Any = "tanh", **options: Any) -> None:
        super().__init__(units, cell={"function": function_of(activation)}, **options)
        self.activation = activation


class LSTM(_Recurrent):  # noqa: D101 - below
    _cell = _LSTMCell

    def __init__(self, units: int, *, forget_bias: float = 1.0, **options: Any) -> None:
        super().__init__(units, cell={"forget_bias": forget_bias}, **options)


class GRU(_Recurrent):  # noqa: D101 - below
    _cell = _GRUCell


RNN.__doc__ = _DOC.format(
    name="RNN",
    summary="Hand a state from position to position: ``h = activation(x W + h U + b)``.",
    formula="J. Elman, Finding structure in time (1990).",
    extra="activation : str or callable\n        Of the state; tanh unless said.\n    ",
    plural="",
    names="h",
    notes="The kernel has shape (features, units), the recurrent one (units, units).",
)
LSTM.__doc__ = _DOC.format(
    name="LSTM",
    summary="Hand a state and a memory from position to position, through gates.",
    formula="``i, f, g, o = split(x W + h U + b)``; ``c = sigmoid(f) c + sigmoid(i) tanh(g)``;\n"
    "    ``h = sigmoid(o) tanh(c)`` (S. Hochreiter, J. Schmidhuber, 1997; forget gate: F. Gers,\n"
    "    2000).",
    extra="forget_bias : float\n        What the bias of the forget gate begins with, beside "
    "`bias_init`.\n    ",
    plural="s",
    names="h, c",
    notes="The kernel has shape (features, 4 units), the recurrent one (units, 4 units): blocks "
    "for the\n    gates i, f, g, o.",
)
GRU.__doc__ = _DOC.format(
    name="GRU",
    summary="Hand a state from position to position, through two gates.",
    formula="``r, z, n = split(x W + b)``; ``s, t, m = split(h U)``; "
    "``n = tanh(n + sigmoid(r + s) (m + b'))``;\n    ``h = (1 - z) n + z h`` with "
    "``z = sigmoid(z + t)`` (K. Cho, 2014; the reset gate stands behind the\n    product, as in "
    "cuDNN).",
    extra="",
    plural="",
    names="h",
    notes="The kernel has shape (features, 3 units), the recurrent one (units, 3 units): blocks "
    "for r, z, n.\n    ``candidate_bias`` is b'.",
)


@documented
class Bidirectional(Layer):
    """Run a recurrent layer over a sequence, and a second one from its end to its beginning.

    M. Schuster, K. Paliwal, "Bidirectional recurrent neural networks", 1997.

    layer (RNN, LSTM or GRU): The one that runs forward, without `return_state`.
    backward (RNN, LSTM or GRU, optional): The other one, with ``reverse=True``; like `layer`, with
        weights of its own, unless said.
    merge ({"concat", "sum", "mul", "ave"}): What becomes of both outputs: joined along the last
        axis, or put together element by element.
    raises ConfigError: If a layer is not recurrent, runs the wrong way or returns states, or there
        is no such merge.

    See Also
    --------
    RNN, LSTM, GRU : ``bidirectional=True`` is ``merge="concat"``, and returns states.

    >>> x = mg.var("x", shape=("batch", "time", 3))
    >>> mg.nn.Bidirectional(mg.nn.GRU(5, return_sequences=True), merge="sum")(x).shape
    (batch, time, 5)
    """

    def __init__(
        self,
        layer: Layer,
        backward: Layer | None = None,
        *,
        merge: str = "concat",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if merge not in _MERGES:
            merges = ", ".join(map(repr, _MERGES))
            raise ConfigError(message(f"Bidirectional: merge={merge!r}", need=f"one of {merges}"))
        _check_way(layer, False)
        if backward is None:
            backward = type(layer)(**{**layer.arguments, "reverse": True, "name": None})
        _check_way(backward, True)
        self.merge = merge
        self.forward_layer, self.backward_layer = layer, backward
        layer.name, backward.name = layer.name or "forward", backward.name or "backward"

    def call(self, x: Node, *lengths: Node, training: bool) -> Node:  # type: ignore[override]
        """Return both outputs, put together."""
        parts = [self.forward_layer(x, *lengths), self.backward_layer(x, *lengths)]
        return _MERGES[self.merge](parts)


def _check_way(layer: Any, reverse: bool) -> None:
    if not isinstance(layer, _Recurrent):
        raise ConfigError(
            message(f"Bidirectional is given {type(layer).__name__}", need="an RNN, LSTM or GRU")
        )
    if layer.return_state or layer.bidirectional or layer.reverse is not reverse:
        raise ConfigError(
            message(
                f"Bidirectional is given {layer!r}",
                need=f"reverse={reverse}, without return_state and bidirectional",
                hint=f"mg.nn.{type(layer).__name__}(units, bidirectional=True) returns states, too",
            )
        )


_MERGES: dict[str, Callable[[list[Node]], Node]] = {
    "concat": _joined,
    "sum": lambda parts: add(*parts),
    "mul": lambda parts: multiply(*parts),
    "ave": lambda parts: multiply(add(*parts), 0.5),
}
