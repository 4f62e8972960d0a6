"""Which products run by the generated tiles and which by BLAS: measured, or by a rule."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....config import config
from ....ir.ranks import current
from ....ir.records import record
from ...cache import content_key, default_choices
from ..support import Program, address_of, aligned_empty
from .blas import describe, find_blas
from .products import Step, batched_gemm_step, gemm_step, product_source, tiled_source

__all__ = ["BLAS", "TILES", "Sizes", "Way", "way_of"]

TILES, BLAS = "tiles", "BLAS"
# Of one product, in products of elements: below, its call is what costs; above, packing is nothing
# to BLAS, which then is the faster one.
LEAST, MOST = 1 << 12, 1 << 26
NARROW = 16  # columns: a strip of tiles, which narrower results fill in part
SECONDS = 0.006  # of a trial, about
ROUNDS = 3, 25
LARGEST = 1 << 26  # bytes of a trial's operands
ALIKE = 4  # times the work of a product, up to which another size of it runs as it does
MEASURED = "measured"


@record(frozen=True)
class Sizes:
    """The key of a choice: a batch of products, and the layouts of their operands."""

    dtype: np.dtype[Any]
    m: int
    n: int
    k: int
    count: int
    transpose_a: bool
    transpose_b: bool
    accumulate: bool
    shared_b: bool
    threads: int

    @property
    def work(self) -> int:
        """Products of elements in one product."""
        return self.m * self.n * self.k


@record(frozen=True)
class Way:
    """How a product runs, and why so."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"by {self.name} ({self.reason})"


def way_of(
    sizes: Sizes, before: Sequence[tuple[Sizes, Way]] = (), *, deterministic: bool = False
) -> Way:
    """Return how products of these sizes run.

    Parameters
    ----------
    sizes
        Their extents and flags.
    before
        How the same products of a function ran at other sizes. New sizes are to cost no trial: they
        run as the nearest that were measured, if these are not of a wholly different size.
    deterministic : bool
        Do not measure: the rule holds, which gives the same everywhere.

    Returns
    -------
    Way
        What ``mg.config.products`` asks for. Else what a trial found, which is made once for each
        class of sizes and kept on disk with the other choices. Where trials are switched off, in
        one of several processes (which are to add up alike), and where a trial would say nothing
        or take too much memory, a rule by sizes.
    """
    if config.products != "auto":
        return Way(TILES if config.products == TILES else BLAS, "asked for")
    if find_blas() is None:
        return Way(TILES, "there is no BLAS")
    if sizes.m == 1 or sizes.n == 1 or sizes.k < 1:
        return Way(BLAS, "one row or column")
    rule = _rule(sizes)
    if deterministic or not config.tuning or sizes.work < LEAST:
        return rule
    if current().size > 1 or _bytes(sizes) > LARGEST:
        return rule
    if before and _known(sizes) is None:
        return _as_before(sizes, before) or rule
    return Way(_kept_trial(sizes), MEASURED)


def _as_before(sizes: Sizes, before: Sequence[tuple[Sizes, Way]]) -> Way | None:
    def apart(other: Sizes) -> float:
        return abs(math.log(max(1, other.work * other.count) / max(1, sizes.work * sizes.count)))

    measured = [(other, way.name) for other, way in before if way.reason == MEASURED]
    if not measured:
        return None
    other, name = min(measured, key=lambda pair: apart(pair[0]))
    if apart(other) > math.log(ALIKE):
        return None
    return Way(name, f"as measured for {other.m} x {other.k} x {other.n}")


def _rule(sizes: Sizes) -> Way:
    if sizes.n < NARROW or sizes.work < LEAST:
        return Way(BLAS, "small")
    if sizes.work > MOST:
        return Way(BLAS, "large")
    return Way(TILES, "of middle size")


def _bytes(sizes: Sizes) -> int:
    elements = sizes.m * sizes.k + sizes.n * sizes.k + sizes.m * sizes.n
    return elements * sizes.count * sizes.dtype.itemsize


def _class(extent: int) -> str:
    """Return the class of an extent: its bits, and whether it is in the upper half of them."""
    bits = extent.bit_length()
    return f"{bits}{'+' if bits > 1 and extent >> (bits - 2) & 1 else ''}"


def _key(sizes: Sizes) -> str:
    flags = "".join(
        letter
        for letter, said in zip(
            "abcs",
            (sizes.transpose_a, sizes.transpose_b, sizes.accumulate, sizes.shared_b),
            strict=True,
        )
        if said
    )
    extents = "x".join(map(_class, (sizes.count, sizes.m, sizes.n, sizes.k)))
    return f"product/{_library()}/{sizes.dtype.name}/threads{sizes.threads}/{extents}/{flags}"


@functools.lru_cache(maxsize=1)
def _library() -> str:
    """Return what tells one text of the tiles, and one BLAS, from another."""
    description = describe()
    said = (str(description[what]) for what in ("path", "config", "core"))
    return content_key(product_source(np.float32), tiled_source(np.float32), *said)[:12]


def _known(sizes: Sizes) -> str | None:
    """Return the result of a trial of this class of sizes."""
    choice = default_choices().get(_key(sizes))
    return str(choice) if choice in (TILES, BLAS) else None


@functools.lru_cache(maxsize=4096)
def _kept_trial(sizes: Sizes) -> str:
    choice = _known(sizes)
    if choice is None:
        choice = _trial(sizes)
        default_choices().set(_key(sizes), choice)
    return choice


def _trial(sizes: Sizes) -> str:
    """Return the faster way, by the median ratio of times measured in turns.

    In turn, since a core that other programs use too is slower for moments.
    """
    tiles, blas = _program(sizes, tiles=True), _program(sizes, tiles=False)
    tiles.run(), blas.run()
    ratios: list[float] = []
    began = time.perf_counter()
    while len(ratios) < ROUNDS[0] or (
        len(ratios) < ROUNDS[1] and time.perf_counter() - began < SECONDS
    ):
        start = time.perf_counter()
        tiles.run()
        middle = time.perf_counter()
        blas.run()
        ratios.append((middle - start) / max(time.perf_counter() - middle, 1e-9))
    return TILES if sorted(ratios)[len(ratios) // 2] <= 1 else BLAS


def _program(sizes: Sizes, *, tiles: bool) -> Program:
    """Return a program that runs the products once, on operands of its own."""
    m, n, k, count = sizes.m, sizes.n, sizes.k, sizes.count
    shapes = ((count, m, n), (count, m, k), (1 if sizes.shared_b else count, n, k))
    arrays = [aligned_empty(math.prod(s) * sizes.dtype.itemsize).view(sizes.dtype) for s in shapes]
    for array in arrays:
        array.fill(0.5)
    half = np.full(1, 0.5, sizes.dtype)
    out, a, b = map(address_of, arrays)
    options: dict[str, Any] = {
        "transpose_a": sizes.transpose_a, "transpose_b": sizes.transpose_b, "tiles": tiles
    }  # fmt: skip
    if sizes.accumulate:
        options |= {"c": out, "beta": address_of(half), "alpha": address_of(half)}
    step: Step
    if count == 1:
        step = gemm_step(sizes.dtype, out, a, b, m, n, k, **options)
    else:
        step = batched_gemm_step(
            sizes.dtype, out, a, b, m, n, k, count, stride_out=m * n, stride_a=m * k,
            stride_b=0 if sizes.shared_b else n * k,
            stride_c=m * n if sizes.accumulate else 0, **options,
        )  # fmt: skip
    return Program([step], keep=(arrays, half))
