"""Fused regions without a compiler: NumPy's own loops, over tiles that stay in the cache.

A tile is a range of rows (of the outer loops) with everything that the region computes of them.
Arrays are seen along the region's loops, whatever their own axes are: an operand is a strided view
with one axis per loop, of extent 1 where it does not vary. Results of ufuncs go to buffers that
are used again as soon as nothing refers to them.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...graph import Graph, Node
from ...interpret import bind_attributes
from ...region.access import contiguous_strides
from ...region.analysis import Fold, Region
from ...region.axes import concrete
from ...region.parts import indexed
from .binding import Binding
from .codegen.step import region_of

__all__ = ["run"]

TILE_BYTES = 1 << 18

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]


class _Reusing:
    """NumPy, with buffers of its own for the results of ufuncs.

    A buffer is free when no view of it is left, which its reference count tells.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[np.dtype, int], list[Array]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not isinstance(function, np.ufunc) or function.nout != 1 or function.signature:
            return function
        return self._functions.setdefault(name, self._with_buffer(function))

    def _with_buffer(self, function: np.ufunc) -> Callable[..., Any]:
        def call(*operands: Any, **options: Any) -> Any:
            if options or not all(isinstance(x, np.ndarray) for x in operands):
                return function(*operands, **options)
            made = _result(
                function, tuple([x.dtype for x in operands]), tuple([x.shape for x in operands])
            )
            if made is None:
                return function(*operands)
            return function(*operands, out=self._take(*made))

        return call

    def _take(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        size = math.prod(shape)
        held = self._buffers.setdefault((dtype, size), [])
        for buffer in held:
            if sys.getrefcount(buffer) == 3:  # the list, the loop's name, the call
                return buffer.reshape(shape)
        held.append(np.empty(size, dtype))
        return held[-1].reshape(shape)


@functools.lru_cache(maxsize=4096)
def _result(
    function: np.ufunc, dtypes: tuple[np.dtype, ...], shapes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], np.dtype] | None:
    """Return shape and dtype of what a function makes; None for dtypes that are not NumPy's own."""
    try:
        dtype = function.resolve_dtypes((*dtypes, None))[-1]
    except (TypeError, NotImplementedError):
        return None
    return np.broadcast_shapes(*shapes), dtype


def run(
    body: Graph, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]
) -> None:
    """Compute a fused body.

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
    >>> from magmagraph.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> x = parameter(0, mg.constant([[0.0, 0.0], [0.0, 0.0]]).type)
    >>> body = freeze([x], [x - mg.mean(x, axis=1, keepdims=True)])
    >>> out = np.empty((2, 2), np.float32)
    >>> run(body, [np.float32([[1, 3], [2, 6]])], [out], {})
    >>> out
    array([[-1.,  1.],
           [-2.,  2.]], dtype=float32)
    """
    with np.errstate(all="ignore"):
        _Run(region_of(body), _binding(body, sizes), arrays, outs, sizes).run()


def _binding(body: Graph, sizes: Mapping[str, int]) -> Binding:
    """Return a body bound to sizes: those of the last run are kept, and are mostly the next."""
    known: list[tuple[dict[str, int], Binding]] = body.facts.setdefault("tiled", [])
    for had, binding in known:
        if had == sizes:
            return binding
    made = Binding(region_of(body), sizes, 1)
    known[:] = [(dict(sizes), made)]
    return made


class _Run:
    """One run of a region."""

    def __init__(
        self,
        region: Region,
        binding: Binding,
        arrays: Sequence[Array],
        outs: Sequence[Array],
        sizes: Mapping[str, int],
    ) -> None:
        self.region = region
        self.binding = binding
        self.extents = self.binding.extents
        self.sizes = sizes
        self.numpy = _Reusing()
        self.fixed: dict[Node, Array] = {}
        for position, (node, access) in enumerate(region.accesses.items()):
            offset, steps = self.binding.read(position)
            flat = arrays[access.parameter].reshape(-1)
            self.fixed[node] = self._along_loops(flat, access.axes, steps, offset)
        for node in region.values:
            if not node.inputs and node not in self.fixed and node not in region.counters:
                self.fixed[node] = self._single(node)
        self.outs = [
            self._along_loops(
                outs[o.position].reshape(-1), o.axes, o.bind(sizes), 0
            )
            for o in region.outputs
        ]
        self.folds = {fold.node: fold for fold in region.folds}
        self.cross = {f.node: self._empty(f) for f in region.folds if not f.row}
        self.order = [
            node
            for node, value in region.values.items()
            if value.source is node and node not in self.fixed
        ]

    def run(self) -> None:
        """Compute every tile, then what is left of all."""
        region = self.region
        for node in region.counters:
            self.fixed[node] = self._counted(node)
        early = [n for n in self.order if not region.values[n].epilogue]
        for tile in self._tiles():
            values = {node: array[_within(array, tile)] for node, array in self.fixed.items()}
            for node in early:
                if node not in values:
                    values[node] = self._compute(node, values, tile)
            for fold in region.folds:
                if not fold.row:
                    self._add(fold, values, tile)
            self._write([o.position for o in region.outputs if not o.epilogue], values, tile)
        late = [o.position for o in region.outputs if o.epilogue]
        if late:
            self._finish(late)

    # ---- Arrays along loops

    def _along_loops(
        self, flat: Array, axes: Sequence[int | None], steps: Sequence[int], offset: int
    ) -> Array:
        shape = tuple(
            1 if axis is None else n for n, axis in zip(self.extents, axes, strict=True)
        )
        if math.prod(shape) == 0:
            return np.empty(shape, flat.dtype)
        item = flat.dtype.itemsize
        strides = tuple(
            0 if axis is None else step * item for step, axis in zip(steps, axes, strict=True)
        )
        return np.lib.stride_tricks.as_strided(flat[offset:], shape, strides)

    def _single(self, node: Node) -> Array:
        value = node.op.evaluate(np, **bind_attributes(node.attrs, self.sizes))
        return np.asarray(value, node.dtype).reshape((1,) * len(self.extents))

    def _counted(self, node: Node) -> Array:
        axes = self.region.counters[node]
        shape = concrete(node.shape, self.sizes)
        operands = [self._one(source) for source in self._sources(node)]
        whole = node.op.evaluate(np, *operands, **bind_attributes(node.attrs, self.sizes))
        loops = self.region.values[node].loops
        if len(loops) < sum(axis is not None for axis in axes):  # positions along one axis
            axis = node.attrs["axis"]
            whole = np.moveaxis(whole, axis, 0).reshape(shape[axis], -1)[:, 0]
            axes = tuple(0 if i in loops else None for i in range(len(axes)))
            shape = whole.shape
        flat = np.ascontiguousarray(whole, node.dtype).reshape(-1)
        strides = contiguous_strides(shape)
        steps = [0 if axis is None else strides[axis] for axis in axes]
        return self._along_loops(flat, axes, steps, 0)

    def _one(self, node: Node) -> Array:
        """Return a value of one element that counters read, which may be computed here."""
        if node not in self.fixed:
            operands = [self._one(source) for source in self._sources(node)]
            value = node.op.evaluate(np, *operands, **bind_attributes(node.attrs, self.sizes))
            self.fixed[node] = np.asarray(value, node.dtype).reshape((1,) * len(self.extents))
        return self.fixed[node].reshape(())

    def _tiles(self) -> Iterator[Slices]:
        """Cut the outer loops so that an array of the whole tile has at most `TILE_BYTES`."""
        region = self.region
        whole = [slice(0, n) for n in self.extents]
        if any(indexed(f.node.op) and not f.row for f in region.folds):
            yield tuple(whole)  # positions are found in one piece
            return
        item = max((n.dtype.itemsize for n in region.values), default=1)
        wanted = TILE_BYTES // item
        size = math.prod(self.extents[: region.depth])
        cuts: list[list[slice]] = []
        for loop in region.outer:
            if size <= wanted:
                break
            n = self.extents[loop]
            size //= max(1, n)
            step = max(1, wanted // max(1, size))
            size *= min(step, n)
            cuts.append([slice(i, min(i + step, n)) for i in range(0, n, step)])
        for chosen in itertools.product(*cuts):
            tile = list(whole)
            for loop, part in zip(region.outer, chosen, strict=False):
                tile[loop] = part
            yield tuple(tile)

    # ---- Values

    def _sources(self, node: Node) -> list[Node]:
        return [self.region.values[operand].source for operand in node.inputs]

    def _compute(self, node: Node, values: Mapping[Node, Array], tile: Slices) -> Array:
        fold = self.folds.get(node)
        operands = [values[source] for source in self._sources(node)]
        if fold is not None:
            return self._fold(fold, operands[0], tile)
        operands = [x.astype(np.float32) if _narrow(x.dtype) else x for x in operands]
        if node.op.reduction is not None:  # of one element
            value = operands[0]
            shape = value.shape
            value = node.op.evaluate(np, value.reshape(*shape, 1), axes=(len(shape),))
            return np.asarray(value).astype(node.dtype, copy=False)
        attrs = bind_attributes(node.attrs, self.sizes)
        result = np.asarray(node.op.evaluate(self.numpy, *operands, **attrs))
        return result.astype(node.dtype, copy=False)

    def _fold(self, fold: Fold, operand: Array, tile: Slices) -> Array:
        """Reduce a tile; reduced loops stay, with extent 1."""
        lengths = [part.stop - part.start for part in tile]
        along = (*fold.kept, *fold.reduced)
        shape = [lengths[i] if i in along else 1 for i in range(len(lengths))]
        others = [i for i in range(len(lengths)) if i not in fold.reduced]
        rows = np.broadcast_to(operand, shape).transpose(*others, *fold.reduced)
        if _narrow(rows.dtype):
            rows = rows.astype(np.float32)
        count = math.prod(lengths[i] for i in fold.reduced)
        rows = rows.reshape(*[shape[i] for i in others], count)
        result = np.asarray(fold.node.op.evaluate(np, rows, axes=(rows.ndim - 1,)))
        kept = [1 if i in fold.reduced else shape[i] for i in range(len(lengths))]
        dtype = fold.node.dtype if fold.row else result.dtype
        return result.reshape(kept).astype(dtype, copy=False)

    # ---- Folds across rows

    def _empty(self, fold: Fold) -> Array:
        """Return what folding nothing gives."""
        shape = [self.extents[i] if i in fold.kept else 1 for i in range(len(self.extents))]
        dtype = fold.operand.dtype
        if is_float(dtype):
            reduction = fold.node.op.reduction
            wide = reduction is not None and reduction.blocked
            dtype = np.dtype(np.float64 if wide or dtype.itemsize == 8 else np.float32)
        nothing = np.empty((*shape, 0), dtype)
        return np.array(fold.node.op.evaluate(np, nothing, axes=(len(shape),)))

    def _add(self, fold: Fold, values: Mapping[Node, Array], tile: Slices) -> None:
        whole = self.cross[fold.node]
        part = self._fold(fold, values[self.region.values[fold.operand].source], tile)
        if indexed(fold.node.op):
            self.cross[fold.node] = part
            return
        kept = whole[_within(whole, tile)]
        both = np.stack([kept, part.astype(kept.dtype)])
        kept[...] = fold.node.op.evaluate(np, both, axes=(0,))

    def _finish(self, positions: Sequence[int]) -> None:
        values = dict(self.fixed)
        for node, array in self.cross.items():
            values[node] = array.astype(node.dtype, copy=False)
        whole = tuple(slice(0, n) for n in self.extents)
        wanted = set(self._below(positions))
        for node in self.order:
            if node in wanted and node not in values:
                values[node] = self._compute(node, values, whole)
        for position, part in zip(positions, self._apart(positions, values), strict=True):
            np.copyto(self.outs[position], part, casting="unsafe")

    def _below(self, positions: Sequence[int]) -> list[Node]:
        found: list[Node] = []
        stack = [self.region.values[self.region.outputs[p].node].source for p in positions]
        seen = set(stack)
        while stack:
            node = stack.pop()
            found.append(node)
            if node in self.cross or node in self.fixed:
                continue
            for source in self._sources(node):
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return found

    def _write(
        self, positions: Sequence[int], values: Mapping[Node, Array], tile: Slices
    ) -> None:
        for position, part in zip(positions, self._apart(positions, values), strict=True):
            out = self.outs[position]
            np.copyto(out[_within(out, tile)], part, casting="unsafe")

    def _apart(self, positions: Sequence[int], values: Mapping[Node, Array]) -> list[Array]:
        """Return the results, apart from operands: in the memory of these a result may lie.

        What an operation gives can be its operand, or a part of it.
        """
        sources = [self.region.values[self.region.outputs[p].node].source for p in positions]
        parts = [values[source] for source in sources]
        if len(parts) < 2:
            return parts
        held = [self.fixed[node] for node in self.region.accesses]
        return [
            np.array(part) if any(np.may_share_memory(part, other) for other in held) else part
            for part in parts
        ]


def _within(array: Array, tile: Slices) -> tuple[Any, ...]:
    """Return the index of the part of a tile that an array has: all of an axis of extent 1."""
    parts = (slice(None) if n == 1 else s for n, s in zip(array.shape, tile, strict=True))
    return (..., *parts)  # the dots keep an array without axes an array


def _narrow(dtype: np.dtype) -> bool:
    return is_float(dtype) and dtype.itemsize < 4


