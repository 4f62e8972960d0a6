"""Fused regions without a compiler: NumPy's own loops, over tiles that stay in the cache.

A tile is a range of rows (of the outer loops) with everything that the region computes of them.
Arrays are seen along the region's loops, whatever their own axes are: an operand is a strided view
with one axis per loop, of extent 1 where it does not vary. What a tile takes is a list of NumPy's
calls with their memory (`UfuncTape`), made when the region is bound; a run goes through it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.c.step import region_of
from ...codegen.region.analysis import Fold, Region, analyze
from ...codegen.region.axes import concrete
from ...codegen.region.parts import indexed
from ...codegen.region.views import contiguous_strides
from ...dtypes import is_float
from ...ir import dims
from ...ir.graph import Graph, Node
from ...ir.interpret import bind_attributes
from .tape_memory import Program
from .ufunc_tape import NotRecordable, UfuncTape

__all__ = ["Tiles", "run"]

TILE_BYTES = 1 << 18

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array | None]
Slices = tuple[slice, ...]


def run(
    body: Graph, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]
) -> None:
    """Compute a fused body once.

    Parameters
    ----------
    body
        A body that is one region.
    arrays
        C-contiguous operands.
    outs
        C-contiguous arrays for the results; each may be an operand where the region allows it.
    sizes
        The size of every dimension.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> x = parameter(0, mg.constant([[0.0, 0.0], [0.0, 0.0]]).type)
    >>> body = freeze([x], [x - mg.mean(x, axis=1, keepdims=True)])
    >>> out = np.empty((2, 2), np.float32)
    >>> run(body, [np.float32([[1, 3], [2, 6]])], [out], {})
    >>> out
    array([[-1.,  1.],
           [-2.,  2.]], dtype=float32)
    """
    Tiles(body, sizes, arrays, outs).run(arrays, outs)


@dataclass(eq=False)
class Source:
    """An array along the loops: an operand, a result, positions, or a row reduction.

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
        """Whether the last axis is contiguous in memory."""
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


class Tiles:
    """A region bound to sizes and memory.

    Parameters
    ----------
    body
        A body that is one region.
    sizes
        The size of every dimension.
    arrays, outs
        C-contiguous operands and results; None for those that come with each run, which have no
        memory in common with others.
    """

    def __init__(
        self, body: Graph, sizes: Mapping[str, int], arrays: Arrays, outs: Arrays
    ) -> None:
        along = analyze(body, strips=False)  # rows as they lie
        self.region: Region = along if isinstance(along, Region) else region_of(body)
        self.sizes = sizes
        self.extents = tuple(dims.evaluate(loop.extent, sizes) for loop in self.region.loops)
        self._folds = {fold.node: fold for fold in self.region.folds}
        self._single: dict[Node, Array] = {}  # one element, the same in all runs
        self._sources: dict[Node, Source] = {}
        self._counted: dict[Node, Source] = {}  # what is to be found out in each run
        self._read_operands(body, arrays)
        self._targets = [self._target(i) for i in range(len(outs))]
        for target, out in zip(self._targets, outs, strict=True):
            if out is not None:
                target.see(out)
        self._shared = {
            (o, a)
            for (o, out), (a, array) in itertools.product(enumerate(outs), enumerate(arrays))
            if out is not None and array is not None and np.may_share_memory(out, array)
        }
        self._find_constants()
        self._order = [
            node
            for node, value in self.region.values.items()
            if value.source is node and node not in self._sources and node not in self._single
        ]
        self._moving = [
            source
            for source in (*self._sources.values(), *self._targets)
            if source.whole is None and source not in self._counted.values()
        ]
        tiles = self._cut()
        self._left: dict[Node, Source] = {}
        if len(tiles) > 1:
            self._left = {f.node: self._nothing(f) for f in self.region.folds if not f.row}
        self._nothing_left = [(s, np.array(s.whole)) for s in self._left.values()]
        parts: dict[tuple[int, ...], Part] = {}
        for tile in tiles:
            lengths = _lengths(tile)
            if lengths not in parts:
                parts[lengths] = self._part(lengths)
        self._tiles = [(parts[_lengths(tile)], tile) for tile in tiles]
        self._end = self._finish() if self._left else None
        self._parts = [*parts.values(), *([] if self._end is None else [self._end])]
        if len(tiles) == 1:
            self._tiles[0][0].settle()

    def run(self, arrays: Arrays, outs: Arrays) -> None:
        """Compute everything; of the arrays, those are looked at that were not there before."""
        with np.errstate(all="ignore"):
            for source in self._moving:
                memory = arrays[source.operand] if source.result < 0 else outs[source.result]
                assert memory is not None
                source.see(memory)
            for node, source in self._counted.items():
                source.whole = self._count(node)
            for source, nothing in self._nothing_left:
                assert source.whole is not None
                source.whole[...] = nothing
            for part, tile in self._tiles:
                part.fill(tile)
                part.program.run()
            if self._end is not None:
                self._end.fill(self._all())
                self._end.program.run()
        for source in (*self._moving, *self._counted.values()):
            source.whole = None
        for part in self._parts:
            part.let_go()

    # ---- Arrays along loops

    def _read_operands(self, body: Graph, arrays: Arrays) -> None:
        for node, access in self.region.accesses.items():
            offset, steps = access.bind(self.sizes)
            dtype = body.inputs[access.parameter].dtype
            source = self._seen(access.axes, steps, dtype, offset)
            source.operand = access.parameter
            memory = arrays[access.parameter]
            if memory is not None:
                source.see(memory)
            self._sources[node] = source

    def _target(self, position: int) -> Source:
        output = self.region.outputs[position]
        source = self._seen(output.axes, output.bind(self.sizes), output.node.dtype, 0)
        source.result = output.position
        return source

    def _seen(
        self, axes: Sequence[int | None], steps: Sequence[int], dtype: np.dtype[Any], offset: int
    ) -> Source:
        pairs = list(zip(axes, self.extents, steps, strict=True))
        shape = tuple(1 if axis is None else n for axis, n, _ in pairs)
        size = dtype.itemsize
        strides = tuple(0 if axis is None else step * size for axis, _, step in pairs)
        return Source(shape, dtype, strides, offset * size)

    def _find_constants(self) -> None:
        """Compute the values that are the same in all runs: single elements, and positions."""
        region, single = self.region, self._single
        for node, value in region.values.items():
            if node in self._sources or value.source is not node:
                continue
            if node in region.counters:
                source = self._sources[node] = Source(self._count_shape(node), node.dtype)
                if node.inputs:
                    self._counted[node] = source
                else:
                    source.whole = self._count(node)
                continue
            operands = self._operands(node)
            if node.op.reduction is not None or not all(n in single for n in operands):
                continue
            with np.errstate(all="ignore"):
                folded = evaluated(node, self.sizes)(*(widened(single[n]) for n in operands))
            if folded.size == 1:
                single[node] = folded.astype(node.dtype).reshape((1,) * len(self.extents))

    def _count_shape(self, node: Node) -> tuple[int, ...]:
        loops = self.region.values[node].loops
        return tuple(n if i in loops else 1 for i, n in enumerate(self.extents))

    def _count(self, node: Node) -> Array:
        """Return what differs by position alone."""
        axes = self.region.counters[node]
        shape = concrete(node.shape, self.sizes)
        counted: dict[Node, Array] = {}
        operands = [self._one(source, counted) for source in self._operands(node)]
        whole = node.op.evaluate(np, *operands, **bind_attributes(node.attrs, self.sizes))
        loops = self.region.values[node].loops
        if len(loops) < sum(axis is not None for axis in axes):  # positions along one axis
            axis = node.attrs["axis"]
            whole = np.moveaxis(whole, axis, 0).reshape(shape[axis], -1)[:, 0]
            axes = tuple(0 if i in loops else None for i in range(len(axes)))
            shape = whole.shape
        strides = contiguous_strides(shape)
        steps = [0 if axis is None else strides[axis] for axis in axes]
        seen = self._seen(axes, steps, node.dtype, 0)
        seen.see(np.ascontiguousarray(whole, node.dtype))
        assert seen.whole is not None
        return seen.whole

    def _one(self, node: Node, counted: dict[Node, Array]) -> Array:
        """Return a value of one element that positions depend on."""
        if node in self._single:
            return self._single[node].reshape(())
        if node in self._sources:
            whole = self._sources[node].whole
            assert whole is not None
            return whole.reshape(())
        if node not in counted:
            operands = [self._one(source, counted) for source in self._operands(node)]
            value = node.op.evaluate(np, *operands, **bind_attributes(node.attrs, self.sizes))
            counted[node] = np.asarray(value, node.dtype).reshape(())
        return counted[node]

    def _all(self) -> Slices:
        return tuple(slice(0, n) for n in self.extents)

    def _cut(self) -> list[Slices]:
        """Cut the outer loops so that an array of the whole tile has at most `TILE_BYTES`."""
        region = self.region
        whole = self._all()
        if any(indexed(f.node.op) and not f.row for f in region.folds):
            return [whole]  # positions are found in one piece
        item = max((n.dtype.itemsize for n in region.values), default=1)
        elements = TILE_BYTES // item
        size = math.prod(self.extents[: region.depth])
        cuts: list[list[slice]] = []
        for loop in region.outer:
            if size <= elements:
                break
            n = self.extents[loop]
            size //= max(1, n)
            step = max(1, elements // max(1, size))
            size *= min(step, n)
            cuts.append([slice(i, min(i + step, n)) for i in range(0, n, step)])
        tiles = []
        for chosen in itertools.product(*cuts):
            tile = list(whole)
            for loop, part in zip(region.outer, chosen, strict=False):
                tile[loop] = part
            tiles.append(tuple(tile))
        return tiles

    # ---- Programs

    def _operands(self, node: Node) -> list[Node]:
        return [self.region.values[operand].source for operand in node.inputs]

    def _part(self, lengths: tuple[int, ...]) -> Part:
        """Return what computes a tile; all of it, where there is but one."""
        writing = _Writing(self, lengths)
        region = self.region
        for node in self._order:
            if not region.values[node].epilogue:
                writing.compute(node)
        for fold in region.folds:
            if not fold.row:
                writing.join(fold, self._left.get(fold.node))
        late = not self._left
        if late:  # nothing follows
            for node in self._order:
                if node not in writing.numbers:
                    writing.compute(node)
        return writing.part([o.position for o in region.outputs if late or not o.epilogue])

    def _finish(self) -> Part:
        """Return what computes the results that are left of all rows."""
        writing = _Writing(self, self.extents)
        for node, source in self._left.items():
            number = writing.given(source)
            writing.numbers[node] = writing.script.cast(number, node.dtype)
        late = [o for o in self.region.outputs if o.epilogue]
        pending = [self.region.values[o.node].source for o in late]
        below: set[Node] = set()
        while pending:
            node = pending.pop()
            # What is left of the rows is there, and so are operands, however they are seen.
            if node not in below and node not in self._left and node not in self._sources:
                below.add(node)
                pending += self._operands(node)
        for node in self._order:
            if node in below and node not in writing.numbers:
                writing.compute(node)
        return writing.part([o.position for o in late])

    def _nothing(self, fold: Fold) -> Source:
        """Return what folding nothing gives."""
        shape = tuple(n if i in fold.kept else 1 for i, n in enumerate(self.extents))
        dtype = fold.operand.dtype
        if is_float(dtype):
            reduction = fold.node.op.reduction
            wide = reduction is not None and reduction.blocked
            dtype = np.dtype(np.float64 if wide or dtype.itemsize == 8 else np.float32)
        nothing = np.empty((*shape, 0), dtype)
        with np.errstate(all="ignore"):
            whole = np.array(fold.node.op.evaluate(np, nothing, axes=(len(shape),)))
        return Source(shape, whole.dtype, whole=whole)


def _lengths(tile: Slices) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in tile)


class _Writing:
    """Record the calls for a tile of one shape."""

    def __init__(self, tiles: Tiles, lengths: tuple[int, ...]) -> None:
        self.tiles = tiles
        self.lengths = lengths
        self.script = UfuncTape()
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
                raise NotRecordable
            attrs = bind_attributes(node.attrs, tiles.sizes)
            number = script.expression(node.op.evaluate, operands, attrs)
        except NotRecordable:
            number = script.free(evaluate, tuple(operands), shape, node.dtype)
        self.numbers[node] = script.cast(number, node.dtype)

    def join(self, fold: Fold, left: Source | None) -> None:
        """Record a reduction across rows, combined with that of the rows before."""
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
            except NotRecordable:
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
            reduced = op.evaluate(np, x.reshape(*x.shape, 1), axes=(x.ndim,))
        else:
            reduced = op.evaluate(np, *operands, **attrs)
        result = np.asarray(reduced).astype(dtype, copy=False)
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
