"""Random programs over named dimensions, called with many sizes: a fuzzer of what sizes do.

The programs are those of every domain, over extents of which some are named, and of one domain
more, in which elements are moved about (`layout`). Each is called with sizes that are 0, 1, 2,
prime and large, and compared with NumPy's own values, with the interpreter, and along a direction
with central differences. ::

    python tests/helpers/random_sizes.py --count 20000 --seed 0 --limit 600
    python tests/helpers/random_sizes.py --compiler off
    python tests/helpers/random_sizes.py --device cuda

A failure is printed as the smallest program that shows it, with the call that makes it again; the
exit status is then 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import random_arrays
import random_networks
from random_arrays import axis_of
from random_checks import Judge, gradients, slope
from random_domains import DOMAINS, PLAIN, Case, Domain, Maker, Pairs, small

import magmagraph as mg
from magmagraph.config import config
from magmagraph.errors import MagmagraphError
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.identity import is_among
from magmagraph.passes.pipeline import DEFAULT
from magmagraph.runtime.cpu.threads import set_threads
from magmagraph.text.writing import dump

assert random_arrays and random_networks  # they register domains

OPTIONAL = [record.name for record in DEFAULT if record.optional]
NAMES = ("n", "m", "h", "w", "d", "batch")
TYPICAL = dict(zip(NAMES, (4, 3, 5, 6, 4, 3), strict=True))  # programs are grown with these
SMALL = (0, 1, 1, 2, 2, 3, 5, 7)
LARGE = (13, 31, 97, 128, 257, 1031)
MOST = 50_000  # elements of a value
SLOPED = 400  # elements of a value, for central differences
# The largest extent where matrices are factored, which larger ones make ill-conditioned, and where
# programs multiply along an axis, which leaves the range of float32.
BOUNDED = 31
BOUNDED_DOMAINS = ("linalg", "mixed", "complex", "fft")
REFUSALS = (ValueError, IndexError, ZeroDivisionError, np.linalg.LinAlgError)  # of NumPy


# Programs in which elements move.


def _moved(build: Pairs) -> None:
    x = build.pick("f")
    axis, other = axis_of(build, x), axis_of(build, x)
    shift = int(build.rng.integers(-4, 5))
    before, after = (int(e) for e in build.rng.integers(0, 3, 2))
    ends = [(0, 0)] * x[0].ndim
    ends[axis] = (before, after)
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a: xp.flip(a, axis=axis),
        lambda xp, a: xp.roll(a, shift, axis=axis),
        lambda xp, a: xp.roll(a, shift),
        lambda xp, a: xp.transpose(a),
        lambda xp, a: xp.moveaxis(a, axis, other),
        lambda xp, a: xp.reshape(a, (-1,)),
        lambda xp, a: xp.expand_dims(a, axis),
        lambda xp, a: xp.broadcast_to(a, (2, *a.shape)),
        lambda xp, a: xp.broadcast_to(xp.expand_dims(a, -1), (*a.shape, 3)),
        lambda xp, a: xp.broadcast_to(xp.sum(a, axis=axis, keepdims=True), a.shape),
        lambda xp, a: xp.tile(a, (2,) + (1,) * (a.ndim - 1)),
        lambda xp, a: xp.tile(a, 2),
        lambda xp, a: xp.repeat(a, 3, axis=axis),
        lambda xp, a: xp.pad(a, ends),
        lambda xp, a: xp.pad(a, ends, mode="edge"),
        lambda xp, a: xp.pad(a, [(min(e, 1), min(f, 1)) for e, f in ends], mode="wrap"),
        lambda xp, a: xp.concatenate([a, a * 0.5], axis=axis),
        lambda xp, a: xp.stack([a, a * 0.5], axis=axis),
        lambda xp, a: xp.concatenate([a[1:], a[:1]], axis=0),
        lambda xp, a: xp.take(a, np.array([1, -1, 0]), axis=axis, mode="wrap"),
    )
    build.apply(build.some(functions), x)


def _cut(build: Pairs) -> None:
    x = build.pick("f")
    axis = int(build.rng.integers(x[0].ndim))
    keys = (
        *(slice(1, None), slice(None, -1), slice(1, -1), slice(None, None, 2)),
        *(slice(None, None, -1), slice(None, None, -2), slice(-3, None), slice(2, 5)),
        *(slice(-1, 0, -1), slice(1, None, 3), slice(-3, -1), slice(None, 2), slice(-2, None, -1)),
        *(0, -1),
    )
    key = [slice(None)] * x[0].ndim
    key[axis] = build.some(keys)
    if build.rng.uniform() < 0.3:
        key[int(build.rng.integers(x[0].ndim))] = build.some(keys[:8])
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a: a[tuple(key)],
        lambda xp, a: a[tuple(key)],
        lambda xp, a: a[tuple(key)] * 2.0,
        lambda xp, a: a[..., : a.shape[-1] // 2],
        lambda xp, a: a[a.shape[0] // 2 :],
        lambda xp, a: xp.changed(a, tuple(key), "set"),
        lambda xp, a: xp.changed(a, tuple(key), "multiply"),
        lambda xp, a: xp.diff(a, axis=axis),
        lambda xp, a: xp.tril(a) if a.ndim > 1 else a,
        lambda xp, a: xp.diagonal(a) if a.ndim > 1 else a,
    )
    build.apply(build.some(functions), x)


def _met(build: Pairs) -> None:
    x = build.pick("f")
    y = build.like(x[0].shape, "f")
    axis = axis_of(build, x)
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a, b: a * b + a,
        lambda xp, a, b: xp.where(a > b, a, b * 0.5),
        lambda xp, a, b: xp.concatenate([a, b], axis=axis),
        lambda xp, a, b: xp.stack([a, b, a], axis=axis),
        lambda xp, a, b: a[1:] - b[:-1],
        lambda xp, a, b: xp.maximum(a[..., ::-1], b),
        lambda xp, a, b: a - xp.sum(b, axis=axis, keepdims=True),
        lambda xp, a, b: xp.sum(a * b, axis=axis),
        lambda xp, a, b: xp.expand_dims(a, -1) * xp.expand_dims(b, -2),
        lambda xp, a, b: a @ xp.swapaxes(b, -1, -2) if a.ndim > 1 else a * b,
    )
    build.apply(build.some(functions), x, y)


def _folded(build: Pairs) -> None:
    x = build.pick("f")
    axis, keep = axis_of(build, x), bool(build.rng.integers(2))
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a: xp.sum(a, axis=axis, keepdims=keep),
        lambda xp, a: xp.sum(a[..., 1:], axis=axis, keepdims=keep),
        lambda xp, a: xp.max(a, axis=axis, keepdims=keep),
        lambda xp, a: xp.mean(a, axis=axis, keepdims=keep),
        lambda xp, a: xp.argmax(a, axis=axis),
        lambda xp, a: xp.cumsum(a, axis=axis),
        lambda xp, a: xp.exp(a) / xp.sum(xp.exp(a), axis=axis, keepdims=True),
        lambda xp, a: (a - xp.mean(a, axis=-1, keepdims=True)) ** 2,
        lambda xp, a: xp.sort(a, axis=axis),
        lambda xp, a: xp.prod(a[:2], axis=0),
    )
    build.apply(build.some(functions), x)


def _leaves(build: Pairs) -> None:
    for _ in range(2):
        extents = build.extents(("n", "m", "n"), (1, 2, 3, 4))
        count = int(build.some((1, 2, 2, 3)))
        build.leaf(extents[:count])
        build.leaf(extents[:count])
    build.leaf((4, *build.extents(("m",), (3,)), 2))


LAYOUT = Domain(_leaves, (_moved, _moved, _moved, _cut, _cut, _cut, _met, _met, _folded))
ALL: dict[str, Domain] = {**DOMAINS, "layout": LAYOUT}
ORDER = ("layout", "complex", "layout", "mixed", "layout", "order", "network", "linalg", "fft")


class SizedPairs(Pairs):
    """Grows a program over named dimensions; NumPy's values are made for each call's sizes."""

    def __init__(self, seed: int, dtype: str) -> None:
        super().__init__(seed, dtype)
        self.sizes = TYPICAL
        self.drawn: dict[Node, tuple[tuple[int | str, ...], str]] = {}

    def extents(self, names: Sequence[str], choices: Sequence[int]) -> list[Any]:
        """Return names, and sometimes an int."""
        literal = super().extents(names, choices)
        return [
            name if self.rng.uniform() < 0.7 else extent
            for name, extent in zip(names, literal, strict=True)
        ]

    def leaf(self, shape: Sequence[int | str], kind: str = "f") -> Node:
        """Add an input, and keep how its values are drawn."""
        node = super().leaf(shape, kind)
        self.made[-1] = (node, None)
        self.drawn[node] = tuple(shape), kind
        return node

    def grow(self, makers: Sequence[Maker], count: int) -> None:
        """Apply random makers; one that needs sizes that are not known is left out."""

        def fitting(maker: Maker) -> Maker:
            def apply(build: Pairs) -> None:
                try:
                    maker(build)
                except (mg.ShapeError, NotImplementedError):
                    raise LookupError from None

            return apply

        super().grow([fitting(maker) for maker in makers], count)

    def gathered(self, part: Node) -> Node:
        """Return a value's part of the loss: a number, also where the value is empty."""
        return mg.sum(part) * 0.1

    def at(self, sizes: Mapping[str, int], rng: np.random.Generator) -> Values:
        """Return feeds of some sizes, and NumPy's values of what was made."""
        self.rng, self.sizes = rng, sizes
        values: dict[Node, np.ndarray | None] = {}
        for node, (shape, kind) in self.drawn.items():
            if is_among(node, self.inputs):
                values[node] = self.values(shape, kind)
            else:
                values[node] = np.asarray(node.value).astype(np.float64 if kind == "f" else complex)
        feeds = [np.asarray(values[node], node.dtype) for node in self.inputs]
        for node, _ in self.made:
            if node in self.recipes:
                values[node] = self._value(node, values)
        return Values(feeds, [values.get(node) for node, _ in self.made if node.inputs])

    def _value(self, node: Node, values: Mapping[Node, np.ndarray | None]) -> np.ndarray | None:
        function, operands = self.recipes[node]
        arrays = [values.get(operand) for operand in operands]
        if any(array is None for array in arrays):
            return None
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no elements
                value = np.asarray(function(PLAIN, *arrays))
                kind = np.dtype(node.dtype).kind
                return small(PLAIN, value, kind) if kind in "fc" else value
        except REFUSALS:
            return None


@dataclasses.dataclass
class Values:
    """The arrays of a call: its feeds, and NumPy's values of the outputs (None: it has none)."""

    feeds: list[np.ndarray]
    wanted: list[np.ndarray | None]


class Program:
    """A random program over named dimensions, in one precision.

    Attributes
    ----------
    case
        The program, with all that was made and its gradients among its outputs.
    """

    def __init__(self, domain: str, seed: int, dtype: str, operations: int) -> None:
        self.build = SizedPairs(seed, dtype)
        leaves, makers = ALL[domain]
        leaves(self.build)
        self.build.grow(makers, operations)
        self.case = self.build.case()
        self.wrt = gradients(self.case)
        self.outputs = list(self.case.outputs)
        if self.wrt:
            assert self.case.loss is not None
            slopes = mg.grad(self.case.loss, self.wrt, unused="zeros")
            self.outputs += [self.case.loss, *slopes]

    def at(self, sizes: Mapping[str, int], seed: int, numbers: Sequence[int]) -> Case:
        """Return the program with feeds of some sizes, and NumPy's values of them."""
        rng = np.random.default_rng([seed, *sizes.values()])
        values = self.build.at(sizes, rng)
        expected = [*values.wanted, *([None] * len(self.outputs))]
        return dataclasses.replace(
            self.case,
            outputs=[self.outputs[i] for i in numbers],
            feeds=values.feeds,
            wanted=[expected[i] for i in numbers],
        )

    def largest(self, sizes: Mapping[str, int]) -> int:
        """Return the elements of the largest value for some sizes."""
        shapes = [node.type.concrete(dict(sizes)) for node, _ in self.build.made]
        return max(int(np.prod([max(extent, 0) for extent in shape])) for shape in shapes)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A program with the sizes that it is called with, and how it is compiled.

    Attributes
    ----------
    domain, seed, dtype, operations
        Of the program.
    sizes
        Of each call.
    skip
        Passes that are left out.
    outputs
        Which of the outputs are computed; None for all.
    """

    domain: str
    seed: int
    dtype: str
    operations: int
    sizes: tuple[tuple[int, ...], ...]
    skip: tuple[str, ...] = ()
    outputs: tuple[int, ...] | None = None

    def run(self, device: str, counts: Counter[str]) -> str | None:
        """Return what is wrong with the results of the calls."""
        programs = {
            dtype: Program(self.domain, self.seed, dtype, self.operations)
            for dtype in ("float32", "float64")
        }
        own = programs[self.dtype]
        numbers = range(len(own.outputs)) if self.outputs is None else self.outputs
        if not numbers:
            return None
        outputs = [own.outputs[i] for i in numbers]
        f = mg.function(own.case.inputs, outputs, device=device, skip=self.skip)
        for number, extents in enumerate((*self.sizes, self.sizes[0])):
            sizes = dict(zip(NAMES, extents, strict=True))
            try:
                if max(own.largest(sizes), programs["float64"].largest(sizes)) > MOST:
                    continue
            except MagmagraphError:  # an extent divides by one that is zero
                counts["without a size"] += 1
                continue
            wrong = self._call(f, programs, sizes, list(numbers), counts)
            if wrong is not None:
                return f"call {number} with {sizes}: {wrong}"
        return None

    def _call(
        self,
        f: Any,
        programs: Mapping[str, Program],
        sizes: Mapping[str, int],
        numbers: Sequence[int],
        counts: Counter[str],
    ) -> str | None:
        case = programs[self.dtype].at(sizes, self.seed, numbers)
        refused = None
        try:
            results = [_host(part) for part in f(*case.feeds)]
        except MagmagraphError as error:
            refused = str(error).splitlines()[0]
        if refused is not None:
            complete = all(
                expected is not None
                for expected, i in zip(case.wanted, numbers, strict=True)
                if programs[self.dtype].outputs[i] in programs[self.dtype].build.recipes
            )
            if " == " in refused:
                counts["refused: a named extent never stretches"] += 1
                return None
            counts["refused" if complete else "refused, by NumPy too"] += 1
            if complete and self.domain != "network":
                return f"NumPy has a value, the function refuses: {refused}"
            return None
        largest = programs[self.dtype].largest(sizes)
        judge = Judge(
            lambda dtype: programs[dtype].at(sizes, self.seed, numbers), lambda _: [], largest
        )
        wrong = judge.against_numpy() or judge.judge(results, self.dtype)
        counts["compared"] += 1
        exact = programs["float64"]
        if wrong is None and self.outputs is None and exact.wrt:
            finite = np.isfinite(judge.exact[-len(exact.wrt) - 1])
            if finite and exact.largest(sizes) <= SLOPED and self.seed % 4 == 0:
                counts["sloped"] += 1
                whole = exact.at(sizes, self.seed, numbers)
                wrong = slope(whole, judge.exact[-len(exact.wrt) :], exact.wrt, self.seed)
        return wrong


def _host(value: Any) -> np.ndarray:
    return np.asarray(value.get() if hasattr(value, "get") else value)


def trial(seed: int, domain: str | None = None) -> Trial:
    """Return the trial of a seed; the domains take turns unless one is named."""
    rng = np.random.default_rng([seed, 22])
    name = domain or ORDER[seed % len(ORDER)]
    sizes = []
    for _ in range(4):
        extents = [int(rng.choice(SMALL)) for _ in NAMES]
        if rng.uniform() < 0.4:
            large = int(rng.choice(LARGE))
            most = BOUNDED if name in BOUNDED_DOMAINS else large
            extents[int(rng.integers(len(NAMES)))] = min(large, most)
        sizes.append(tuple(extents))
    skip: tuple[str, ...] = ()
    if rng.uniform() < 0.3:
        skip = tuple(name for name in OPTIONAL if rng.uniform() < 0.5)
    return Trial(
        name,
        seed,
        str(rng.choice(("float32", "float64"))),
        int(rng.integers(1, 6)),
        tuple(sizes),
        skip,
    )


def attempt(one: Trial, device: str, counts: Counter[str]) -> str | None:
    """Return what is wrong with a trial; an exception that no call should raise is wrong."""
    try:
        return one.run(device, counts)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"


def _smaller(one: Trial) -> Iterator[Trial]:
    """Return trials that have less of something."""
    for operations in range(1, one.operations):
        yield dataclasses.replace(one, operations=operations, outputs=None)
    if len(one.sizes) > 1:
        for extents in one.sizes:
            yield dataclasses.replace(one, sizes=(extents,))
    if one.skip:
        yield dataclasses.replace(one, skip=())
    count = len(Program(one.domain, one.seed, one.dtype, one.operations).outputs)
    if one.outputs is None:
        for output in range(count):
            yield dataclasses.replace(one, outputs=(output,))
    for call, extents in enumerate(one.sizes):
        for place, extent in enumerate(extents):
            for less in (value for value in (0, 1, 2, 3) if value < extent):
                new = (*extents[:place], less, *extents[place + 1 :])
                sizes = (*one.sizes[:call], new, *one.sizes[call + 1 :])
                yield dataclasses.replace(one, sizes=sizes)


def minimized(one: Trial, device: str, seconds: float = 20.0) -> Trial:
    """Return a trial that has as little as possible of what makes one fail."""
    end = time.monotonic() + seconds
    smaller: Trial | None = one
    while smaller is not None and time.monotonic() < end:
        one = smaller
        smaller = next((t for t in _smaller(one) if attempt(t, device, Counter())), None)
    return one


def described(one: Trial, wrong: str) -> str:
    """Return a failure as text: the call that makes it again, the graph, what is wrong."""
    program = Program(one.domain, one.seed, one.dtype, one.operations)
    numbers = range(len(program.outputs)) if one.outputs is None else one.outputs
    graph = freeze(program.case.inputs, [program.outputs[i] for i in numbers])
    return f"{one}\n{dump(graph)}\n{wrong}\n"


def fuzz(
    count: int, seed: int, limit: float, device: str = "cpu", domain: str | None = None
) -> tuple[Counter[str], list[str]]:
    """Run trials, and return counts of what happened with a text for each failure."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    end = time.monotonic() + limit
    for number in range(seed, seed + count):
        if time.monotonic() > end:
            break
        one = trial(number, domain)
        set_threads(1 + number % 2)
        counts["programs"] += 1
        if attempt(one, device, counts) is None:
            continue
        least = minimized(one, device)
        wrong = attempt(least, device, Counter())
        failures.append(described(least, wrong or "not seen again"))
    set_threads(None)
    return counts, failures


def main() -> int:
    """Run the fuzzer as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compiler", choices=("auto", "off"), default="auto")
    parser.add_argument("--domain", choices=sorted(ALL), default=None)
    options = parser.parse_args()
    config.compiler = options.compiler
    np.set_printoptions(threshold=12, edgeitems=2)
    np.seterr(all="ignore")
    counts, failures = fuzz(
        options.count, options.seed, options.limit, options.device, options.domain
    )
    for failure in failures:
        print(failure)
    print(f"{dict(counts)}, {len(failures)} wrong")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
