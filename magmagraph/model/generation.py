"""Generate tokens: by a function for the prompt, one for a step, and caches updated in place.

All that a step changes is a variable: the last token of each row, its position, how many tokens
there were, and the keys and values of all positions. So a step takes no feeds, and a run of steps
does not return to Python between them where a device can do that.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import is_integer
from ..errors import ConfigError, DataError, GraphError, message
from ..function import Function, function
from ..functional.probabilities import log_softmax, softmax
from ..ir.graph import Node
from ..ir.records import record
from ..nn.attention import PositionEmbedding
from ..nn.basic import Embedding
from ..nn.decoding import Decoding, decoding
from ..nn.layer import Layer
from ..ops.convert import as_node, cast
from ..ops.elementwise.arithmetic import add, divide, floor_divide, multiply, remainder, subtract
from ..ops.elementwise.bits import logical_or
from ..ops.elementwise.comparison import equal, greater_equal, less, where
from ..ops.elementwise.math import log
from ..ops.indexing.gathering import take
from ..ops.indexing.iota import arange
from ..ops.indexing.keys import index
from ..ops.indexing.sorting import sort
from ..ops.indexing.sorting import top_k as largest
from ..ops.indexing.updates import index_update
from ..ops.leaf import Variable, input, variable
from ..ops.random.bits import fold_in, key
from ..ops.random.choice import categorical
from ..ops.reduction.cumulative import cumsum
from ..ops.reduction.primitives import argmax, min
from ..ops.shape.arrange import expand_dims, reshape
from .data import as_array, on_host
from .model import Model
from .replay import applied

__all__ = ["generate"]

_CHUNK = 16  # steps after which it is looked whether all rows have ended
_ROUND = 64  # to a multiple of so many positions, so that prompts of like lengths share functions


class _Functions(dict[Any, Any]):
    """Compiled functions of a model; copies of the model compile their own."""

    def __deepcopy__(self, memo: Any) -> _Functions:
        return _Functions()

    def __reduce__(self) -> Any:
        return _Functions, ()


def generate(
    model: Any,
    prompt: Any,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    beams: int = 1,
    seed: int = 0,
    end: int | None = None,
    cache: bool = True,
    device: str | None = None,
) -> Any:
    """Continue sequences of tokens by a model that predicts the next one.

    Parameters
    ----------
    model : Model or Layer
        From int tokens ``(batch, length)`` to logits (or probabilities, if its last activation is
        softmax) ``(batch, length, vocabulary)``; each position depends on those up to it alone.
    prompt : sequence of int, or sequence of such sequences
        One sequence, or several of any lengths, each of at least one token.
    max_new_tokens : int
        How many tokens to add.
    temperature : float
        0 takes the likeliest token. Else one is drawn by ``softmax(logits / temperature)``.
    top_k : int, optional
        Draw among so many tokens, the likeliest (and those that tie with them).
    top_p : float, optional
        Draw among the fewest tokens, the likeliest, whose probabilities add up to at least this (A.
        Holtzman et al., "The curious case of neural text degeneration", 2020).
    beams : int
        With more than one: beam search, the best of so many sequences by the sum of their
        log-probabilities. It draws nothing: temperature is 0.
    seed : int
        Of what is drawn. The same seed gives the same tokens.
    end : int, optional
        The token with which a sequence ends; nothing follows it.
    cache : bool
        Whether keys and values of earlier positions are kept, so that a step computes one position.
        False computes all positions at each step, for any model whose positions depend on earlier
        ones alone, recurrent ones for example.
    device : str, optional
        As of `mg.function`; the model's unless said.

    Returns
    -------
    ndarray, or list of ndarray
        int32, prompt and new tokens: an array for one sequence, a list for several; of an array
        ``(batch, length)`` an array, whose rows are filled with `end` where they have ended.

    Raises
    ------
    ConfigError
        If a setting is out of range, or the prompt and the new tokens are more positions than the
        model has.
    DataError
        If a prompt has no token, or one that is not of the vocabulary.
    GraphError
        If a layer does not fit the way positions are computed: one that sees later positions; or,
        with a cache, one that mixes positions and is not `MultiHeadAttention`. The first call of a
        model compares both ways on its prompt.

    Notes
    -----
    A model is compiled once for a number of rows and of positions, in multiples of 64, and for
    whether there is `top_k`, `top_p` and drawing at all. Its weights may change between calls.

    Examples
    --------
    >>> import magmagraph as mg
    >>> net = mg.NeuralNetwork(mg.nn.prebuilt.transformer(65, 64, width=16, blocks=1))
    >>> mg.generate(net, [1, 2, 3], 5).shape
    (8,)
    >>> [len(row) for row in mg.generate(net, [[1, 2, 3], [7]], 4, temperature=1.0, top_k=10)]
    [7, 5]
    """
    rows, single, dense = _prompts(prompt)
    new = _whole("max_new_tokens", max_new_tokens, 0)
    beam_count = _whole("beams", beams, 1)
    _check_drawing(temperature, top_k, top_p, beam_count)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(message(f"generate: seed={seed!r}", need="an int of at least 0"))
    target = _Target(model, device)
    target.check(rows)
    most = max(map(len, rows)) + new
    if target.positions is not None and most > target.positions:
        raise ConfigError(
            message(
                f"generate: a prompt of {most - new} tokens and {new} new ones",
                need=f"{target.positions} positions together, as the model has",
            )
        )
    if not new:
        written = [np.asarray(row, np.int32) for row in rows]
    else:
        plan = _Plan(
            rows=len(rows),
            beams=beam_count,
            capacity=_rounded(most, target.positions),
            draws=temperature > 0,
            top_k=top_k,
            top_p=top_p is not None,
            end=end,
            cache=bool(cache),
        )
        written = target.writer(plan).write(
            rows, new, float(temperature), 1.0 if top_p is None else float(top_p), int(seed)
        )
    if single:
        return written[0]
    if dense:
        width = max(map(len, written))
        filled = np.full((len(written), width), 0 if end is None else end, np.int32)
        for row, tokens in zip(filled, written, strict=True):
            row[: len(tokens)] = tokens
        return filled
    return written


# What is given.


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(
            message(f"generate: {name}={value!r}", need=f"an int of at least {least}")
        )
    return int(value)


def _check_drawing(temperature: Any, top_k: Any, top_p: Any, beams: int) -> None:
    number = isinstance(temperature, (int, float, np.number)) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < np.inf:
        raise ConfigError(
            message(
                f"generate: temperature={temperature!r}", need="a finite number of at least 0"
            )
        )
    if top_k is not None:
        _whole("top_k", top_k, 1)
    if top_p is not None and not (isinstance(top_p, (int, float, np.number)) and 0 < top_p <= 1):
        raise ConfigError(message(f"generate: top_p={top_p!r}", need="0 < top_p <= 1"))
    for name, value in (("top_k", top_k), ("top_p", top_p)):
        if value is not None and temperature == 0:
            raise ConfigError(
                message(
                    f"generate: {name}={value!r} with temperature=0, which draws nothing",
                    need="a temperature above 0",
                    hint="temperature=1.0",
                )
            )
    if beams > 1 and temperature > 0:
        raise ConfigError(
            message(
                f"generate: beams={beams} with temperature={temperature}",
                need="one of them: beam search draws nothing",
            )
        )


def _prompts(prompt: Any) -> tuple[list[np.ndarray], bool, bool]:
    """Return the prompts, whether there is one alone, and whether they are an array."""
    dense = isinstance(prompt, np.ndarray) or hasattr(prompt, "__dlpack__")
    if dense or (isinstance(prompt, (list, tuple)) and prompt and np.ndim(prompt[0]) == 0):
        array = as_array(prompt, "the prompt")
        single = array.ndim == 1
        if array.ndim not in (1, 2):
            raise DataError(
                message(f"the prompt has shape {array.shape}", need="(length,) or (batch, length)")
            )
        rows = [array] if single else list(array)
    elif isinstance(prompt, (list, tuple)):
        rows, single = [as_array(row, "the prompt") for row in prompt], False
    else:
        raise DataError(
            message(
                f"the prompt is {type(prompt).__name__}", need="a list of ints, or a list of those"
            )
        )
    if not rows:
        raise DataError(message("there is no prompt", need="a list of tokens"))
    for row in rows:
        if row.ndim != 1 or not len(row) or row.dtype.kind not in "iu":
            raise DataError(
                message(
                    f"a prompt has shape {row.shape} and dtype {row.dtype}",
                    need="one token at least, of ints",
                )
            )
    return rows, single, dense and not single


def _rounded(positions: int, most: int | None) -> int:
    rounded = -(-positions // _ROUND) * _ROUND
    return rounded if most is None or rounded < most else most


@record(frozen=True)
class _Plan:
    """What functions are compiled for."""

    rows: int
    beams: int
    capacity: int
    draws: bool
    top_k: int | None
    top_p: bool
    end: int | None
    cache: bool


# The model.


class _Target:
    """A model or a layer, as what gives logits of tokens."""

    def __init__(self, model: Any, device: str | None) -> None:
        if not isinstance(model, (Model, Layer)):
            raise ConfigError(
                message(
                    f"generate is given {type(model).__name__}",
                    need="a model, or a layer, from tokens to logits",
                )
            )
        self.model = model
        self.options: dict[str, Any] = {}
        self.probabilities = False
        layers = [model] if isinstance(model, Layer) else model.layers
        if isinstance(model, Model):
            model._ready_for(())
            layers = model.layers
            if len(model.inputs) != 1 or len(model.outputs) != 1:
                raise ConfigError(
                    message(
                        f"generate: the model has {len(model.inputs)} inputs and "
                        f"{len(model.outputs)} outputs",
                        need="one of each: tokens, and logits",
                    )
                )
            if not is_integer(model.inputs[0].dtype):
                raise ConfigError(
                    message(
                        f"generate: the model takes {model.inputs[0].dtype.name}",
                        need="integers, the tokens",
                        hint="mg.nn.Input((length,), 'int32')",
                    )
                )
            self.options = dict(model.options)
            self.probabilities = model._activation() == "softmax"
        if device is not None:
            self.options["device"] = device
        inside = [part for layer in layers for part in layer.layers()]
        tables = [part.length for part in inside if isinstance(part, PositionEmbedding)]
        self.positions = builtins.min(tables, default=None)
        words = [part.rows for part in inside if isinstance(part, Embedding)]
        self.words = builtins.min(words, default=None)

    def check(self, rows: Sequence[np.ndarray]) -> None:
        """Raise `DataError` where a token is not of the vocabulary."""
        for number, row in enumerate(rows):
            high = np.inf if self.words is None else self.words
            wrong = (row < 0) | (row >= high)
            if wrong.any():
                raise DataError(
                    message(
                        f"prompt {number} holds the token {row[wrong][0]}",
                        need="ints of at least 0"
                        if self.words is None
                        else f"ints from 0 to {self.words - 1}",
                    )
                )

    def __call__(self, tokens: Node) -> Node:
        if isinstance(self.model, Layer):
            logits = self.model(tokens)
        else:
            inputs, outputs = self.model.inputs, self.model.outputs
            logits = applied(outputs, inputs, [cast(tokens, inputs[0].dtype)], training=False)[0]
        if (
            not isinstance(logits, Node)
            or logits.ndim != 3
            or not isinstance(logits.shape[-1], int)
        ):
            shape = logits.shape if isinstance(logits, Node) else type(logits).__name__
            raise GraphError(
                message(
                    f"generate: the model gives {shape} of tokens {tokens.shape}",
                    need="logits (batch, length, vocabulary)",
                    hint="return_sequences=True, in a recurrent layer",
                )
            )
        return logits

    def writer(self, plan: _Plan) -> _Writer:
        """Return the functions of a plan, compiled once for a model."""
        writers = vars(self.model).setdefault("_generators", _Functions())
        outputs = self.model.outputs if isinstance(self.model, Model) else ()
        place = (plan, outputs, *sorted(self.options.items()))
        if place not in writers:
            writers[place] = _Writer(self, plan)
        writer: _Writer = writers[place]
        return writer


# The functions.


class _Writer:
    """The two functions that write, and the variables that they share."""

    def __init__(self, target: _Target, plan: _Plan) -> None:
        self.target, self.plan = target, plan
        self.count = rows = plan.rows * plan.beams
        self.checked = False
        self.token = variable("token", (rows, 1), 0, np.int32)
        self.place = variable("place", (rows, 1), 0, np.int32)
        self.written = variable("written", (), 0, np.int64)
        self.ended = variable("ended", (rows,), False, np.bool_)
        self.temperature = variable("temperature", (), 1.0, np.float32)
        self.top_p = variable("top_p", (), 1.0, np.float32)
        self.seed = variable("seed", (), 0, np.int64)
        self.score = variable("score", (rows,), 0.0, np.float32)
        self.parent = variable("parent", (rows,), 0, np.int64)
        self.tokens = variable("tokens", (rows, plan.capacity), 0, np.int32)
        if plan.cache:
            self._cached()
        else:
            self._whole()

    def _cached(self) -> None:
        """Compile the prompt's function, which fills caches, and a step of one position."""
        rows, capacity = self.count, self.plan.capacity
        tokens = input("tokens", (rows, "length"), np.int32)
        lengths = input("lengths", (rows,), np.int32)
        caches: dict[tuple[int, int], tuple[Variable, Variable]] = {}
        with decoding(Decoding(rows, capacity, caches, lengths=lengths)) as state:
            logits = self.target(tokens)
        last = index(logits, (arange(rows), subtract(lengths, 1)))
        self.logits = variable("logits", last.shape, 0.0, last.dtype)
        updates, next_tokens = self._next_tokens(last)
        updates |= {**state.updates, self.place: expand_dims(lengths, 1)}
        self.prompt = self._function([tokens, lengths], next_tokens, updates, "prompt")
        parents = self.parent if self.plan.beams > 1 else None
        later = Decoding(rows, capacity, caches, positions=self.place, parents=parents)
        with decoding(later) as state:
            logits = self.target(self.token)
        updates, next_tokens = self._next_tokens(index(logits, (slice(None), 0)))
        updates |= {**state.updates, self.place: add(self.place, 1)}
        self.step = self._function([], next_tokens, updates, "step")

    def _whole(self) -> None:
        """Compile a step that computes all positions."""
        rows = self.count
        logits = self.target(self.tokens)
        last = index(logits, (arange(rows), reshape(self.place, (rows,))))
        self.logits = variable("logits", last.shape, 0.0, last.dtype)
        updates, next_tokens = self._next_tokens(last)
        before: Node = self.tokens
        if self.plan.beams > 1:
            before = take(before, updates[self.parent], axis=0)
        at = (arange(rows), add(reshape(self.place, (rows,)), 1))
        updates[self.tokens] = index_update(before, at, reshape(updates[self.token], (rows,)))
        updates[self.place] = add(self.place, 1)
        self.step = self._function([], next_tokens, updates, "step")

    def _function(
        self, inputs: list[Node], outputs: list[Node], updates: dict[Variable, Node], name: str
    ) -> Function:
        return function(
            inputs,
            outputs,
            updates=updates,
            name=f"generate: {name}",
            default_updates=False,
            **self.target.options,
        )

    def _next_tokens(self, logits: Node) -> tuple[dict[Variable, Node], list[Node]]:
        """Return updates of the state, and the next tokens."""
        plan, updates = self.plan, {self.logits: logits}
        scores = cast(logits, np.float32)
        if self.target.probabilities:
            scores = log(scores)
        if plan.beams > 1:
            return self._beamed(scores, updates)
        token = cast(self._draw_tokens(scores) if plan.draws else argmax(scores, axis=-1), np.int32)
        if plan.end is not None:
            token = where(self.ended, as_node(plan.end, np.dtype(np.int32)), token)
            updates[self.ended] = logical_or(self.ended, equal(token, plan.end))
        updates |= {self.token: expand_dims(token, 1), self.written: add(self.written, 1)}
        return updates, [token]

    def _draw_tokens(self, scores: Node) -> Node:
        scores = divide(scores, self.temperature)
        never = as_node(-np.inf, scores.dtype)
        if self.plan.top_k is not None:
            count = builtins.min(self.plan.top_k, int(scores.shape[-1]))
            least = index(largest(scores, count).values, (slice(None), slice(-1, None)))
            scores = where(greater_equal(scores, least), scores, never)
        if self.plan.top_p:
            ordered = sort(scores, axis=-1, descending=True)
            chances = softmax(ordered)
            in_nucleus = less(subtract(cumsum(chances, -1), chances), self.top_p)
            least = min(
                where(in_nucleus, ordered, as_node(np.inf, ordered.dtype)), -1, keepdims=True
            )
            scores = where(greater_equal(scores, least), scores, never)
        return categorical(scores, key=fold_in(fold_in(key(0), self.seed), self.written))

    def _beamed(
        self, scores: Node, updates: dict[Variable, Node]
    ) -> tuple[dict[Variable, Node], list[Node]]:
        """Return the best continuations of all beams of a sequence together."""
        plan, words = self.plan, int(scores.shape[-1])
        each = log_softmax(scores)
        if plan.end is not None:
            ends = equal(arange(words), plan.end)
            stays = where(ends, as_node(0.0, each.dtype), as_node(-np.inf, each.dtype))
            each = where(expand_dims(self.ended, 1), stays, each)
        total = reshape(add(expand_dims(self.score, 1), each), (plan.rows, plan.beams * words))
        best, at = largest(total, plan.beams)
        first = multiply(expand_dims(arange(plan.rows), 1), plan.beams)
        parent = reshape(add(floor_divide(at, words), cast(first, at.dtype)), (self.count,))
        token = cast(reshape(remainder(at, words), (self.count,)), np.int32)
        if plan.end is not None:
            before = take(self.ended, parent, axis=0)
            updates[self.ended] = logical_or(before, equal(token, plan.end))
        updates |= {
            self.token: expand_dims(token, 1),
            self.parent: cast(parent, np.int64),
            self.score: reshape(best, (self.count,)),
            self.written: add(self.written, 1),
        }
        return updates, [token, parent]

    # Writing.

    def write(
        self, rows: Sequence[np.ndarray], new: int, temperature: float, top_p: float, seed: int
    ) -> list[np.ndarray]:
        """Return each prompt with its continuation."""
        several = [row for row in rows for _ in range(self.plan.beams)]
        lengths = np.array([len(row) for row in several], np.int32)
        padded = np.zeros((self.count, lengths.max()), np.int32)
        for line, row in zip(padded, several, strict=True):
            line[: len(row)] = row
        self.temperature.value, self.top_p.value = temperature or 1.0, top_p
        self.seed.value = seed
        if not self.checked:
            self._check(padded, lengths)
        steps = [self._begun(padded, lengths)]
        done = 1
        while done < new:
            if self.plan.end is not None and self.ended.value.all():
                break
            some = new - done if self.plan.end is None else builtins.min(_CHUNK, new - done)
            stacks = on_host(self.step.run(some))
            steps += [[stack[i] for stack in stacks] for i in range(some)]
            done += some
        if self.plan.beams > 1:
            return [self._best(row, number, steps) for number, row in enumerate(rows)]
        tokens = np.stack([step[0] for step in steps], 1)
        return [self._joined(*pair) for pair in zip(rows, tokens, strict=True)]

    def _begun(self, padded: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Compute the prompt, and return what was chosen."""
        self.written.value, self.ended.value = 0, np.zeros(self.count, np.bool_)
        scores = np.full((self.plan.rows, self.plan.beams), -np.inf, np.float32)
        scores[:, 0] = 0.0  # all beams are the same at first: one goes on
        self.score.value = scores.reshape(-1)
        if self.plan.cache:
            return list(on_host(self.prompt(padded, lengths)))
        tokens = np.zeros(self.tokens.shape, np.int32)
        tokens[:, : padded.shape[1]] = padded
        self.tokens.value, self.place.value = tokens, lengths[:, None] - 1
        return list(on_host(self.step()))

    def _joined(self, row: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        if self.plan.end is not None:
            ends = np.flatnonzero(tokens == self.plan.end)
            tokens = tokens[: ends[0] + 1] if len(ends) else tokens
        return np.concatenate([row, tokens]).astype(np.int32)

    def _best(
        self, row: np.ndarray, number: int, steps: Sequence[Sequence[np.ndarray]]
    ) -> np.ndarray:
        """Follow the best beam of a sequence back to its prompt."""
        beams = self.plan.beams
        at = number * beams + int(self.score.value[number * beams : (number + 1) * beams].argmax())
        tokens = []
        for token, parent in reversed(steps):
            tokens.append(token[at])
            at = int(parent[at])
        return self._joined(row, np.array(tokens[::-1], np.int32))

    # Whether positions depend on earlier ones alone, and all that they depend on is kept.

    def _check(self, padded: np.ndarray, lengths: np.ndarray) -> None:
        """Compute the last position of each prompt in two ways, and compare."""
        other = (padded + 1) % (2 if self.target.words is None else self.target.words)
        if self.plan.cache:
            rows = lengths > 1
            if not rows.any():
                return  # a later call does it
            self._begun(padded, lengths)
            expected = self.logits.value
            shorter = np.maximum(lengths - 1, 1)
            is_prompt = np.arange(padded.shape[1]) < shorter[:, None]
            self._begun(np.where(is_prompt, padded, other), shorter)
            self.token.value = padded[np.arange(self.count), lengths - 1][:, None]
            self.place.value, self.parent.value = lengths[:, None] - 1, np.arange(self.count)
            self.ended.value = np.zeros(self.count, np.bool_)
            self.step()
        else:
            rows = np.ones(self.count, np.bool_)
            self._begun(padded, lengths)
            expected, tokens = self.logits.value, self.tokens.value
            behind = np.arange(self.plan.capacity) >= lengths[:, None]
            self.tokens.value = np.where(behind, 1 % (self.target.words or 2), tokens)
            self.place.value = lengths[:, None] - 1
            self.step()
        computed, expected = (a[rows].astype(float) for a in (self.logits.value, expected))
        half = self.target.options.get("precision", "float32") not in ("float32", "tf32")
        limit = (0.1 if half else 1e-3) * builtins.max(1.0, float(np.abs(expected).max()))
        error = float(np.abs(computed - expected).max())
        if not error <= limit:
            what = (
                "keys and values of earlier positions do not say all: the last position of a "
                "prompt differs"
                if self.plan.cache
                else "what stands behind a position changes it"
            )
            raise GraphError(
                message(
                    f"generate: {what}, by {error:.3g}",
                    need="MultiHeadAttention(causal=True), and layers of single positions"
                    if self.plan.cache
                    else "positions that depend on earlier ones alone",
                    hint="cache=False, which computes all positions at each step"
                    if self.plan.cache
                    else None,
                )
            )
        self.checked = True
