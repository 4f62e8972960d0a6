"""Random programs of several domains: the same for the same seed, in any precision.

A domain is a list of makers. Each applies one operation, to nodes and, where NumPy has it too, to
plain arrays of double precision. `case(domain, seed)` is the same program in either precision, so
that what rounding does to it is seen by making it twice. `random_arrays` and `random_networks`
register domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

import magmagraph as mg
from magmagraph.ir.graph import Node

MOST = 600  # elements of a value

SIZES = {"batch": 3}

Maker = Callable[["Pairs"], None]


class Domain(NamedTuple):
    """What programs begin with, and what they are made of."""

    leaves: Maker
    makers: tuple[Maker, ...]


DOMAINS: dict[str, Domain] = {}


@dataclass
class Case:
    """A user's graph with feeds that fit it.

    Attributes
    ----------
    inputs, outputs, updates
        As `mg.function` takes them.
    feeds
        An array for each input.
    loss
        A scalar of all that was made; None where nothing is differentiable.
    wanted
        NumPy's own values of the outputs, None where it has none.
    """

    inputs: list[Node]
    outputs: list[Node]
    feeds: list[np.ndarray]
    loss: Node | None = None
    updates: dict[Node, Node] = field(default_factory=dict)
    wanted: list[np.ndarray | None] = field(default_factory=list)


class Plain:
    """NumPy under the names that makers use."""

    linalg, fft = np.linalg, np.fft

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def complex(self, re: Any, im: Any) -> Any:
        return re + 1j * im

    def expm(self, a: Any) -> Any:
        return scipy.linalg.expm(a)

    def lower_solve(self, a: Any, b: Any) -> Any:
        return np.linalg.solve(np.tril(a), b)

    def top(self, a: Any, k: int) -> Any:
        if a.shape[-1] < k:
            raise IndexError
        return -np.sort(-a, axis=-1)[..., :k]

    def different(self, a: Any, size: int) -> Any:
        members = np.unique(a)[:size]
        return np.concatenate([members, np.full(size - len(members), members[0])])

    def counts(self, a: Any, length: int) -> Any:
        return np.bincount(a, minlength=length)

    def changed(self, a: Any, key: Any, how: str) -> Any:
        new = a.copy()
        new[key] = 0.25 if how == "set" else new[key] * 0.25
        return new

    def median(self, a: Any, axis: int) -> Any:
        return self.quantile(a, 0.5, axis)

    def quantile(self, a: Any, q: Any, axis: int) -> Any:
        if not a.shape[axis]:  # a number of no elements is refused
            raise IndexError
        return np.quantile(a, q, axis=axis)

    def percentile(self, a: Any, q: Any, axis: int) -> Any:
        return self.quantile(a, np.divide(q, 100.0), axis)

    def take(self, a: Any, at: Any, axis: int, mode: str) -> Any:
        if not a.shape[axis]:  # NumPy's "wrap" never returns then
            raise IndexError
        return np.take(a, at, axis=axis, mode=mode)

    def places(self, a: Any, size: int) -> Any:
        positions = np.nonzero(np.ravel(a))[0][:size]
        return np.concatenate([positions, np.zeros(size - len(positions), positions.dtype)])


class Ours:
    """This library under the names that makers use."""

    linalg, fft = mg.linalg, mg.fft

    def __getattr__(self, name: str) -> Any:
        return getattr(mg, name)

    def expm(self, a: Any) -> Any:
        return mg.linalg.expm(a)

    def lower_solve(self, a: Any, b: Any) -> Any:
        return mg.linalg.solve_triangular(a, b, lower=True)

    def top(self, a: Any, k: int) -> Any:
        return mg.top_k(a, k)[0]

    def different(self, a: Any, size: int) -> Any:
        return mg.unique(a, size=size)

    def counts(self, a: Any, length: int) -> Any:
        return mg.bincount(a, length=length)

    def changed(self, a: Any, key: Any, how: str) -> Any:
        return getattr(a.at[key], how)(0.25)

    def places(self, a: Any, size: int) -> Any:
        return mg.nonzero(mg.ravel(a), size=size)[0]


OURS, PLAIN = Ours(), Plain()


class Pairs:
    """Grows a program by one random operation at a time, as nodes and as arrays."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)
        self.complex = np.dtype("complex64" if dtype == "float32" else "complex128")
        self.inputs: list[Node] = []
        self.feeds: list[np.ndarray] = []
        self.made: list[tuple[Node, np.ndarray | None]] = []
        self.sizes: Mapping[str, int] = SIZES
        # How NumPy makes what was made: a function and its operands.
        self.recipes: dict[Node, tuple[Callable[..., Any], list[Node]]] = {}

    def extents(self, names: Sequence[str], choices: Sequence[int]) -> list[Any]:
        """Return a random extent for each name; it stands for the name where all are ints."""
        return [int(e) for e in self.rng.choice(choices, len(names))]

    def leaf(self, shape: Sequence[int | str], kind: str = "f") -> Node:
        """Add an input (or, sometimes, a variable) with random values of single precision."""
        value = self.values(shape, kind)
        typed = value.astype(self.dtype if kind == "f" else self.complex)
        name = f"x{len(self.made)}"
        if self.rng.uniform() < 0.25 and not any(isinstance(e, str) for e in shape):
            node: Node = mg.variable(name, init=typed)
        else:
            node = mg.input(name, tuple(shape), dtype=typed.dtype)
            self.inputs.append(node)
            self.feeds.append(typed)
        self.made.append((node, value))
        return node

    def values(self, shape: Sequence[int | str], kind: str) -> np.ndarray:
        """Return random values of single precision, in double precision."""
        extents = [self.sizes.get(e, e) if isinstance(e, str) else e for e in shape]
        value = self.rng.uniform(-1.5, 1.5, extents).astype(np.float32).astype(np.float64)
        if kind == "c":
            other = self.rng.uniform(-1.5, 1.5, extents).astype(np.float32)
            value = value + 1j * other.astype(np.float64)
        return value

    def pick(self, kinds: str = "fc", ndim: int | None = None) -> tuple[Node, np.ndarray | None]:
        """Return what was made so far, late things more often; a leaf where nothing fits."""
        fitting = [
            pair
            for pair in self.made
            if np.dtype(pair[0].dtype).kind in kinds
            and (pair[0].ndim >= 1 if ndim is None else pair[0].ndim == ndim)
        ]
        if not fitting:
            raise LookupError
        place = int(len(fitting) * np.sqrt(self.rng.uniform()))
        return fitting[min(place, len(fitting) - 1)]

    def like(self, shape: tuple[Any, ...], kinds: str = "fc") -> tuple[Node, np.ndarray | None]:
        """Return something of a shape."""
        fitting = [
            p for p in self.made if p[0].shape == shape and np.dtype(p[0].dtype).kind in kinds
        ]
        if not fitting:
            raise LookupError
        return fitting[self.rng.integers(len(fitting))]

    def some(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return options[self.rng.integers(len(options))]

    def apply(self, function: Callable[..., Any], *operands: Any) -> None:
        """Make a value, small in size and in magnitude."""
        nodes = [pair[0] for pair in operands]
        node = function(OURS, *nodes)
        values = [pair[1] for pair in operands]
        value = None
        if all(v is not None for v in values):
            value = np.asarray(function(PLAIN, *values))
        self.add(node, value)
        self.recipes[self.made[-1][0]] = function, nodes

    def add(self, node: Node, value: np.ndarray | None = None) -> None:
        """Take a node in, cut to a moderate size and magnitude."""
        extents = node.type.concrete(dict(self.sizes))
        if node.ndim > 5 or not 0 < np.prod(extents) <= MOST:
            raise LookupError
        kind = np.dtype(node.dtype).kind
        if kind in "fc":
            node = small(OURS, node, kind)
            value = None if value is None else small(PLAIN, value, kind)
        self.made.append((node, value))

    def grow(self, makers: Sequence[Maker], count: int) -> None:
        """Apply random makers; one that finds nothing to work on is left out."""
        tries = 0
        while count and tries < 200:
            tries += 1
            try:
                self.some(makers)(self)
                count -= 1
            except LookupError:
                continue

    def case(self) -> Case:
        """Return the program: all that was made, and a loss of it."""
        nodes = [(node, value) for node, value in self.made if node.inputs]
        loss = mg.constant(0.0, self.dtype)
        for place, (node, _) in enumerate(nodes):
            kind = np.dtype(node.dtype).kind
            if kind == "c":
                part = mg.real(node) * 0.7 + mg.imag(node) * (0.3 + 0.1 * place)
            elif kind == "f":
                part = node * (0.5 + 0.1 * place)
            else:
                continue
            loss = loss + self.gathered(part)
        values = [value for _, value in nodes]
        return Case(self.inputs, [node for node, _ in nodes], self.feeds, loss, wanted=values)

    def gathered(self, part: Node) -> Node:
        """Return what the loss has of a value."""
        return mg.mean(part)


def small(xp: Any, x: Any, kind: str) -> Any:
    """Bring values of any size into the disc of radius 1, smoothly."""
    if kind == "c":
        return x / xp.sqrt(xp.real(x) ** 2 + xp.imag(x) ** 2 + 1.0)
    return x / xp.sqrt(x * x + 1.0)


def case(name: str, seed: int, dtype: str = "float64", operations: int = 9) -> Case:
    """Return a random program; a failure should print its name and seed.

    Parameters
    ----------
    name
        Of the domain.
    seed
        Of the program and of its feeds.
    dtype
        float32 or float64: of its floats; complex values have the same precision.
    operations
        How many random operations it is made of.
    """
    build = Pairs(seed, dtype)
    leaves, makers = DOMAINS[name]
    leaves(build)
    build.grow(makers, operations)
    return build.case()
