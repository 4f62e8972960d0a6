"""What a tile of a region takes, as a list of NumPy's calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import is_float
from ...graph import Node
from ...interpret import bind_attributes
from ...region.analysis import Fold
from ...region.parts import indexed
from .placing import Program
from .scripts import Script, Unwritten

if TYPE_CHECKING:
    from .tiled import Tiles

__all__ = ["Part", "Source", "Writing", "evaluated", "widened"]

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]


@dataclass(eq=False)
class Source:
    """What lies along the loops: an operand, a result, positions, what is left of rows.

    Attributes
    ----------
    shape, strides, offset
        As a view of its memory, in bytes; the shape has an axis per loop.
    dtype
        Its dtype.
    operand, result
        Which operand or result of the body's it is seen in, or -1.
    whole
        The array, while it is known.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] = ()
    offset: int = 0
    operand: int = -1
    result: int = -1
    whole: Array | None = None

    @property
    def nested(self) -> bool:
        """Whether the last axis lies closest in memory."""
        if len(self.strides) != len(self.shape):
            return False  # not known
        steps = [s for n, s in zip(self.shape, self.strides, strict=True) if n > 1]
        return all(a >= b > 0 for a, b in itertools.pairwise(steps))

    def see(self, memory: Array) -> None:
        """Take the view of an array."""
        if 0 in self.shape:
            self.whole = np.empty(self.shape, self.dtype)
            return
        flat = memory.reshape(-1).view(np.uint8)
        self.whole = np.ndarray(self.shape, self.dtype, flat, self.offset, self.strides)


@dataclass(eq=False)
class Part:
    """The program of tiles of one shape, and which of its registers hold parts of which sources."""

    program: Program
    registers: list[tuple[int, Source]]

    def settle(self) -> None:
        """Put arrays that stay where they are into the registers: there is one tile."""
        for register, source in self.registers:
            self.program.registers[register] = source.whole
        self.registers = [pair for pair in self.registers if pair[1].whole is None]

    def fill(self, tile: Slices) -> None:
        """Put the parts of a tile into the registers."""
        registers = self.program.registers
        for register, source in self.registers:
            assert source.whole is not None
            registers[register] = source.whole[_within(source.shape, tile)]

    def let_go(self) -> None:
        """Hold on to no array that comes with a run."""
        registers = self.program.registers
        for register in self.program.free:
            registers[register] = None
        for register, source in self.registers:
            if source.whole is None:
                registers[register] = None


class Writing:
    """Writes down what a tile of some shape takes."""

    def __init__(self, tiles: Tiles, lengths: tuple[int, ...]) -> None:
        self.tiles = tiles
        self.lengths = lengths
        self.script = Script()
        self.numbers: dict[Node, int] = {}
        self._registers: list[tuple[int, Source]] = []
        self._writes: list[tuple[int, int]] = []
        for node, source in tiles._sources.items():
            self.numbers[node] = self.given(source)
        for node, array in tiles._single.items():
            self.numbers[node] = self.script.fixed(array)

    def given(self, source: Source) -> int:
        """Return the number of the tile's part of a source."""
        shape = _within_shape(source.shape, self.lengths)
        number = self.script.given(shape, source.dtype, nested=source.nested)
        self._registers.append((number, source))
        return number

    def part(self, positions: Sequence[int]) -> Part:
        """Return the program that writes some of the results."""
        tiles = self.tiles
        shared: dict[int, frozenset[int]] = {}
        for position in positions:
            target = self.given(tiles._targets[position])
            node = tiles.region.values[tiles.region.outputs[position].node].source
            self._writes.append((self.numbers[node], target))
            shared[target] = frozenset(
                number
                for number, source in self._registers
                if (position, source.operand) in tiles._shared
            )
        return Part(self.script.program(self._writes, shared), self._registers)

    def compute(self, node: Node) -> None:
        """Write down a node's value."""
        script, tiles = self.script, self.tiles
        operands = [self.numbers[n] for n in tiles._operands(node)]
        fold = tiles._folds.get(node)
        if fold is not None:
            number, _ = self._fold(fold, operands[0])
            self.numbers[node] = script.cast(number, node.dtype)
            return
        operands = [self._widened(n) for n in operands]
        shapes = [script.values[n].shape for n in operands]
        shape = np.broadcast_shapes(*shapes)
        evaluate = evaluated(node, tiles.sizes)
        try:
            if node.op.reduction is not None or 0 in shape:
                raise Unwritten
            attrs = bind_attributes(node.attrs, tiles.sizes)
            number = script.expression(node.op.evaluate, operands, attrs)
        except Unwritten:
            number = script.free(evaluate, tuple(operands), shape, node.dtype)
        self.numbers[node] = script.cast(number, node.dtype)

    def join(self, fold: Fold, left: Source | None) -> None:
        """Write down a fold across rows, and what it adds to that of the rows before."""
        script = self.script
        operand = self.numbers[self.tiles.region.values[fold.operand].source]
        number, function = self._fold(fold, operand)
        if left is None:
            self.numbers[fold.node] = script.cast(number, fold.node.dtype)
            return
        before = self.given(left)
        number = script.cast(number, left.dtype)
        shape = script.values[before].shape
        if function is not None:
            number = script.call(function, (before, number), shape, left.dtype)
        else:
            evaluate = fold.node.op.evaluate

            def both(before: Array, part: Array) -> Array:
                result = evaluate(np, np.stack([before, part]), axes=(0,))
                return np.asarray(result).astype(before.dtype, copy=False)

            number = script.free(both, (before, number), shape, left.dtype)
        self._writes.append((number, before))

    def _widened(self, number: int) -> int:
        narrow = _narrow(self.script.values[number].dtype)
        return self.script.cast(number, np.dtype(np.float32)) if narrow else number

    def _fold(self, fold: Fold, operand: int) -> tuple[int, np.ufunc | None]:
        """Write down the reduction of a tile; reduced loops stay, with extent 1."""
        script, lengths = self.script, self.lengths
        along = (*fold.kept, *fold.reduced)
        whole = tuple(n if i in along else 1 for i, n in enumerate(lengths))
        operand = self._widened(operand)
        op = fold.node.op
        if script.values[operand].shape == whole and 0 not in whole and not indexed(op):
            try:
                number = script.fold(op.evaluate, operand, fold.reduced)
                return number, script.folds[number]
            except Unwritten:
                pass
        others = [i for i in range(len(lengths)) if i not in fold.reduced]
        count = math.prod(lengths[i] for i in fold.reduced)
        kept = tuple(1 if i in fold.reduced else n for i, n in enumerate(whole))

        def reduce(x: Array) -> Array:
            rows = np.broadcast_to(x, whole).transpose(*others, *fold.reduced)
            rows = rows.reshape(*[whole[i] for i in others], count)
            result = np.asarray(op.evaluate(np, rows, axes=(rows.ndim - 1,)))
            return result.reshape(kept)

        sample = np.ones((1,), script.values[operand].dtype)
        dtype = np.asarray(op.evaluate(np, sample, axes=(0,))).dtype
        return script.free(reduce, (operand,), kept, dtype), None


def evaluated(node: Node, sizes: Mapping[str, int]) -> Callable[..., Array]:
    """Return what evaluates a node on arrays along loops, in its own dtype."""
    attrs = bind_attributes(node.attrs, sizes)
    op, dtype = node.op, node.dtype

    def evaluate(*operands: Array) -> Array:
        if op.reduction is not None:  # of one element
            (x,) = operands
            made = op.evaluate(np, x.reshape(*x.shape, 1), axes=(x.ndim,))
        else:
            made = op.evaluate(np, *operands, **attrs)
        result = np.asarray(made).astype(dtype, copy=False)
        if not operands:
            return result
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        return result if result.shape == shape else np.broadcast_to(result, shape)

    return evaluate


def _within_shape(shape: tuple[int, ...], lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if n == 1 else length for n, length in zip(shape, lengths, strict=True))


def _within(shape: tuple[int, ...], tile: Slices) -> tuple[Any, ...]:
    """Return the index of the part of a tile that an array has: all of an axis of extent 1."""
    parts = (slice(None) if n == 1 else s for n, s in zip(shape, tile, strict=True))
    return (..., *parts)  # the dots keep an array without axes an array


def _narrow(dtype: np.dtype[Any]) -> bool:
    return is_float(dtype) and dtype.itemsize < 4


def widened(array: Array) -> Array:
    """Return floats of 16 bits as float32, which they are computed in."""
    return array.astype(np.float32) if _narrow(array.dtype) else array
