"""Values and slopes of every elementwise function at extreme arguments, made from the table.

Each function of one float operand is computed at subnormal, tiny, large, infinite and signed zero
arguments, in each dtype, by the compiled kernels and by the NumPy runtime. What it is held to is
its own graph in numbers of many digits (`exact`), and the record's reference where an argument is
0, infinite or NaN. The error may be that of the row of the tolerance table, or what a change of the
argument by the row's absolute part makes. A new record joins by itself.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from table import PUBLIC, dtypes_of, is_float_array, results, together

import magmagraph as mg
from magmagraph.dtypes import DType, canonical, finfo, is_complex, is_float, tolerance
from magmagraph.graph import freeze
from magmagraph.op import Kind, Sample

mpmath = pytest.importorskip("mpmath", reason="pip install magmagraph[dev]")

from exact import Wide, exactly, fallbacks, special_functions  # noqa: E402  (needs mpmath)

_BETWEEN = (1e-4, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 9.0, 10.0, 20.0, 50.0, 88.0, 100.0, 104.0)
_FAR = (300.0, 700.0, 745.0, 1e3, 3e3, 1e4, 1e8, 1e19, 1e30, 1e300)


def arguments(dtype: DType) -> np.ndarray:
    """Return the arguments of a dtype: the ends of its range, and where functions turn."""
    ends = finfo(dtype)
    tiny, eps, most = float(ends.tiny), float(ends.eps), float(ends.max)
    least = float(ends.smallest_subnormal)
    sizes = (least, tiny / 4, tiny, tiny**0.5, eps, 1 - eps, 1 + eps, most**0.5, most / 2, most)
    sizes = tuple(size for size in (*sizes, *_BETWEEN, *_FAR) if least <= size <= most)
    signed = [sign * size for size in sizes for sign in (1.0, -1.0)]
    return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *signed]).astype(dtype)


def takes_axis(function: Any) -> bool:
    """Tell whether a function works along an axis, and not on each element alone."""
    return "axis" in inspect.signature(function).parameters


def cases() -> Iterator[tuple[str, int]]:
    """Yield each function of one float operand with each set of other arguments that it has."""
    for name, record in PUBLIC.items():
        if record.kind is not Kind.ELEMENTWISE or "float32" not in record.dtypes:
            continue
        assert record.samples is not None
        seen = set()
        for i, sample in enumerate(record.samples()):
            arrays = [value for value in sample.inputs if isinstance(value, (np.ndarray, list))]
            others = str((sample.attrs, [v for v in sample.inputs if not is_float_array(v)]))
            if len(arrays) == 1 and is_float_array(arrays[0]) and others not in seen:
                seen.add(others)
                if takes_axis(record.function):
                    continue
                if all(isinstance(v, (float, int)) for v in sample.inputs if v is not arrays[0]):
                    yield name, i


def graph_of(name: str, sample: Sample, shape: tuple[Any, ...], dtype: DType) -> Any:
    """Return the operand, and each float result with its slope, where it has one."""
    record = PUBLIC[name]
    assert record.function is not None
    (place,) = (k for k, value in enumerate(sample.inputs) if is_float_array(value))
    operand = mg.input("x", shape, dtype)
    inputs = [operand if k == place else value for k, value in enumerate(sample.inputs)]
    outputs: list[tuple[int, bool, mg.Node]] = []
    for number, part in enumerate(results(record.function(*inputs, **sample.attrs))):
        if not is_float(part.dtype):
            continue
        outputs.append((number, False, part))
        if not record.no_gradient and (sample.gradient is None or place in sample.gradient):
            (slope,) = mg.grad(mg.sum(part), [operand], unused="zeros")
            outputs.append((number, True, slope))
    return operand, outputs


class Truth:
    """The values and slopes of one function at any argument, with many digits."""

    def __init__(self, name: str, sample: Sample) -> None:
        operand, outputs = graph_of(name, sample, (), canonical("float64"))
        self.graph = freeze([operand], [node for _, _, node in outputs])
        self.known: dict[Any, Any] = {}

    def at(self, x: Any) -> list[float] | None:
        """Return all outputs; None where a part of them is known to float64's digits only."""
        if x not in self.known:
            self.known[x] = self._computed(x)
        return self.known[x]  # type: ignore[no-any-return]

    def _operands(self, x: Any) -> list[Any]:
        return [x]

    def _computed(self, x: Any) -> list[float] | None:
        last: list[Any] = []
        fallbacks.clear()
        for digits in (40, 80, 400):
            with mpmath.workdps(digits):
                numbers = exactly(self.graph, self._operands(x))
                if fallbacks:
                    return None
                if last and all(map(_same, numbers, last)):
                    break
            last = numbers
        return [float(number) for number in numbers]


def _same(one: Any, other: Any) -> bool:
    if not mpmath.isfinite(one):
        return bool(one == other or (mpmath.isnan(one) and mpmath.isnan(other)))
    return bool(abs(one - other) <= abs(one) * mpmath.mpf(10) ** -20)


def lies(value: float, low: float, high: float, dtype: DType, room: float, share: float) -> bool:
    """Tell whether a value is between two, or as far beyond them as rounding takes it."""
    low, high = low - share * abs(low) - room, high + share * abs(high) + room
    most = float(finfo(dtype).max)
    if np.isinf(value):
        return high >= most if value > 0 else low <= -most
    return bool(low <= value <= high)


def wrong(
    name: str, sample: Sample, dtype: DType, truth: Truth, columns: list[np.ndarray], outputs: Any
) -> list[str]:
    """Return what is wrong, a line for each value."""
    record = PUBLIC[name]
    row = tolerance(dtype, "stable")
    points = arguments(dtype).astype(np.float64)
    assert record.reference is not None
    inputs = [points if is_float_array(value) else value for value in sample.inputs]
    reference = results(record.reference(*inputs, **sample.attrs))
    ends = finfo(dtype)
    lines = []
    for place, (number, is_slope, _) in enumerate(outputs):
        for k, x in enumerate(points):
            value = float(columns[place][k])
            ordinary = np.isfinite(x) and x != 0
            exact = truth.at(float(x)) if ordinary else None
            if exact is not None and np.isnan(exact[0]):
                exact = None
            if is_slope and (exact is None or np.isnan(exact[place])):
                continue  # where the function has no value; test_kinks has zeros and infinities
            wanted = exact[place] if exact is not None else float(reference[number][k])
            if np.isnan(wanted):
                good = np.isnan(value) or bool(np.isinf(x))
            elif np.isnan(value):
                good = bool(np.isnan(x))
            else:
                # Results below the smallest normal number may be lost, where no argument is.
                room = 4.0 * float(ends.smallest_subnormal)
                room += 512.0 * float(finfo(canonical("float32")).tiny) * (abs(x) > 1e-3)
                if is_slope:
                    room += row.absolute
                elif record.loses == "difference":
                    room += row.absolute * abs(x)
                good = value == wanted or lies(value, wanted, wanted, dtype, room, row.relative)
                if abs(wanted) > float(ends.max):
                    good = good or abs(value) == float(ends.max)  # cut on purpose
                if not good and exact is not None:
                    steps = np.linspace(-1.0, 1.0, 8) * row.absolute
                    near = [truth.at(mpmath.mpf(x) * (1 + mpmath.mpf(step))) for step in steps]
                    around = [v[place] for v in near if v is not None and not np.isnan(v[place])]
                    low, high = min(wanted, *around), max(wanted, *around)
                    width = high - low if np.isfinite(high - low) else 0.0
                    share = row.relative
                    if record.loses == "exponent" and wanted != 0 and np.isfinite(wanted):
                        share *= max(1.0, abs(np.log(abs(wanted))))
                    good = lies(value, low - width, high + width, dtype, room, share)
            if not good:
                what = "slope" if is_slope else "value"
                lines.append(f"{what} {number} at {x!r} is {value!r}, not {wanted!r}")
    return lines


# Functions of two operands.


def sizes(dtype: DType) -> np.ndarray:
    """Return the arguments that pairs are made of: finite ones first, of both signs, then ends."""
    ends = finfo(dtype)
    positive = (float(ends.smallest_subnormal), float(ends.tiny), 0.5, 1.0, 2.5, float(ends.max))
    return np.array(
        [*positive, -positive[0], -1.0, -2.5, -positive[-1], 0.0, -0.0, np.inf, -np.inf]
    )


def _int_order(dtype: DType, x: float, y: float) -> bool:
    return abs(x) > 2**31


def _half(dtype: DType, x: float, y: float) -> bool:
    return float(finfo(dtype).smallest_subnormal) in (abs(x), abs(y))


def _parity(dtype: DType, x: float, y: float) -> bool:
    return x < 0 and abs(y) > 2 / float(finfo(dtype).eps)


def _reflected(dtype: DType, x: float, y: float) -> bool:
    return min(x, y) < 0 and max(abs(x), abs(y)) > 2 / float(finfo(dtype).eps)


LIMITS = {
    "betaln": _reflected,  # below 0, gamma turns faster than such sums have digits
    "expn": _int_order,  # SciPy's own is for orders of 32 bits
    "chdtr": _half,  # half of the least number is 0
    "chdtrc": _half,
    "power": _parity,  # y - 1 is y, so that the sign of the slope is lost
    "float_power": _parity,
}
"""For functions of limited domains: tells the pairs that are outside of them."""


def pairs(dtype: DType, share: int) -> list[np.ndarray]:
    """Return two columns of arguments: all pairs, or each `share`-th of them."""
    first, second = np.meshgrid(sizes(dtype), sizes(dtype), indexing="ij")
    return [column.ravel()[::share].astype(dtype).astype(np.float64) for column in (first, second)]


def pair_cases() -> Iterator[Any]:
    """Yield the first sample of each function of two float operands that has all its slopes."""
    for name, record in PUBLIC.items():
        if record.kind is not Kind.ELEMENTWISE or "float32" not in record.dtypes:
            continue
        assert record.samples is not None
        if takes_axis(record.function):
            continue
        for i, sample in enumerate(record.samples()):
            floats = [value for value in sample.inputs if is_float_array(value)]
            if len(floats) == len(sample.inputs) == 2 and sample.gradient != ():
                yield pytest.param(name, i, id=f"{name}-{i}")
                break


def pair_graph(name: str, sample: Sample, shape: tuple[Any, ...], dtype: DType) -> Any:
    """Return both operands, and each float result with its slopes (None is the value)."""
    record = PUBLIC[name]
    assert record.function is not None
    operands = [mg.input("x", shape, dtype), mg.input("y", shape, dtype)]
    outputs: list[tuple[int, int | None, mg.Node]] = []
    for number, part in enumerate(results(record.function(*operands, **sample.attrs))):
        if not is_float(part.dtype):
            continue
        outputs.append((number, None, part))
        for place, operand in enumerate(operands):
            if not record.no_gradient and (sample.gradient is None or place in sample.gradient):
                (slope,) = mg.grad(mg.sum(part), [operand], unused="zeros")
                outputs.append((number, place, slope))
    return operands, outputs


class PairTruth(Truth):
    """The values and slopes of a function of two operands, with many digits."""

    def __init__(self, name: str, sample: Sample) -> None:
        operands, outputs = pair_graph(name, sample, (), canonical("float64"))
        self.graph = freeze(operands, [node for _, _, node in outputs])
        self.known = {}

    def _operands(self, x: Any) -> list[Any]:
        return [Wide(mpmath.mpf(number)) for number in x]

    def near_zero(self, x: float, y: float) -> list[float] | None:
        """Return the outputs where numbers far below any float take the place of zeros."""
        small = mpmath.ldexp(mpmath.mpf(1), -(10**400))
        return self.at(
            tuple(mpmath.sign(np.copysign(1.0, v)) * small if v == 0 else v for v in (x, y))
        )


def wrong_pairs(
    name: str, sample: Sample, dtype: DType, truth: Truth, share: int, columns: Any, outputs: Any
) -> list[str]:
    """Return what is wrong at pairs of arguments, a line for each number."""
    record = PUBLIC[name]
    row = tolerance(dtype, "stable")
    points = pairs(dtype, share)
    ends = finfo(dtype)
    least, tiny = float(ends.smallest_subnormal), float(ends.tiny)
    assert record.reference is not None
    moves = [-1.0, -0.3, 0.0, 0.3, 1.0]
    moved = [  # the reference at arguments that are changed by the row's absolute part
        results(
            record.reference(
                points[0] * (1 + a * row.absolute),
                points[1] * (1 + b * row.absolute),
                **sample.attrs,
            )
        )
        for a, b in product(moves, moves)
    ]
    lines = []
    for k, (x, y) in enumerate(zip(*points, strict=True)):
        if name in LIMITS and LIMITS[name](dtype, float(x), float(y)):
            continue
        ordinary = np.isfinite(x) and np.isfinite(y) and x != 0 and y != 0
        exact = truth.at((float(x), float(y))) if ordinary else None
        around = None
        for place, (number, slope, _) in enumerate(outputs):
            value = float(columns[place][k])
            known = exact is not None and not np.isnan(exact[place])
            if slope is not None and not known:
                continue
            if slope is not None and abs(exact[0]) > 0.999 * float(ends.max):
                continue  # the slope of what overflows may be infinite or NaN
            wanted = float(exact[place] if known else moved[12][number][k])
            if np.isnan(wanted):
                continue  # where the function has no value
            # Intermediate results below the smallest normal number may be lost.
            room = 512.0 * (tiny if max(abs(x), abs(y)) > 1e-3 else least)
            if slope is not None:
                room += row.absolute
            good = value == wanted or (
                not np.isnan(value) and lies(value, wanted, wanted, dtype, room, row.relative)
            )
            if abs(wanted) > float(ends.max):
                good = good or abs(value) == float(ends.max)  # cut on purpose
            if not good and not np.isnan(value):
                if known and around is None:
                    around = [
                        truth.at(
                            (
                                mpmath.mpf(x) * (1 + mpmath.mpf(a * row.absolute)),
                                mpmath.mpf(y) * (1 + mpmath.mpf(b * row.absolute)),
                            )
                        )
                        for a, b in product((-1.0, 1.0), (-1.0, 0.0, 1.0))
                    ]
                if known:
                    near = [each[place] for each in around or () if each is not None]
                else:
                    near = [float(each[number][k]) for each in moved]
                near = [each for each in near if not np.isnan(each)]
                low, high = min([wanted, *near]), max([wanted, *near])
                width = high - low if np.isfinite(high - low) else 0.0
                part = row.relative
                if record.loses == "exponent" and wanted != 0 and np.isfinite(wanted):
                    part *= max(1.0, abs(np.log(abs(wanted))))
                good = lies(value, low - width, high + width, dtype, room, part)
            if not good and not known and np.isfinite(x) and np.isfinite(y):
                limit = truth.near_zero(float(x), float(y))
                limit = limit and limit[place]
                good = limit is not None and (
                    np.isnan(limit) or lies(value, limit, limit, dtype, room, row.relative)
                )
            if not good:
                what = f"value {number}" if slope is None else f"slope {number} in {'xy'[slope]}"
                lines.append(f"{what} at {float(x)!r}, {float(y)!r} is {value!r}, not {wanted!r}")
    return lines


def host(value: Any) -> np.ndarray:
    """Return a result in the memory of the host."""
    return np.asarray(value.get() if hasattr(value, "get") else value)


def check_pairs(name: str, i: int, share: int, **options: Any) -> None:
    """Compare one function of two operands in float32 and float64."""
    record = PUBLIC[name]
    assert record.samples is not None
    sample = record.samples()[i]
    lines = []
    with special_functions(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's own, which no error state covers
        truth = PairTruth(name, sample)
        for dtype in map(canonical, ("float32", "float64")):
            operands, outputs = pair_graph(name, sample, ("n",), dtype)
            if not outputs:
                return
            function = mg.function(operands, [node for _, _, node in outputs], **options)
            given = [column.astype(dtype) for column in pairs(dtype, share)]
            columns = [host(v).astype(np.float64) for v in function(*given)]
            bad = wrong_pairs(name, sample, dtype, truth, share, columns, outputs)
            lines += [f"{dtype.name}: {line}" for line in bad]
    assert not lines, f"{name}:\n" + "\n".join(lines[:20])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # SciPy's own
@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize(("name", "i"), list(pair_cases()))
def test_extreme_pairs(name: str, i: int, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    check_pairs(name, i, 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # SciPy's own
@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize(("name", "i"), list(pair_cases()))
def test_all_extreme_pairs(
    name: str, i: int, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    check_pairs(name, i, 1)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "i"), list(pair_cases()))
def test_extreme_pairs_on_the_gpu(name: str, i: int) -> None:
    check_pairs(name, i, 5, device="cuda")


# Functions of one operand.

TOGETHER = 8  # functions are compiled at once, since starting a compiler takes long
GROUPS = together(cases(), TOGETHER)


def name_of(group: list[tuple[str, int]]) -> str:
    """Return the name of the test of a group of cases."""
    return ",".join(f"{name}-{i}" for name, i in group)


@pytest.mark.parametrize("group", GROUPS, ids=name_of)
def test_extreme_arguments(
    group: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for compiler in ("auto", "off"):  # one after the other, so that the truth is computed once
        monkeypatch.setattr(mg.config, "compiler", compiler)
        check(group)


@pytest.mark.gpu
@pytest.mark.parametrize("group", GROUPS, ids=name_of)
def test_extreme_arguments_on_the_gpu(group: list[tuple[str, int]]) -> None:
    check(group, device="cuda")


@lru_cache(maxsize=TOGETHER)
def truth_of(name: str, i: int) -> Truth:
    """Return the truth of one sample of a function, kept until the next group is asked for."""
    record = PUBLIC[name]
    assert record.samples is not None
    return Truth(name, record.samples()[i])


def check(group: list[tuple[str, int]], **options: Any) -> None:
    """Compare functions in each dtype that they take."""
    compared: list[tuple[str, Sample, DType, Truth, Any]] = []
    operands: list[mg.Node] = []
    nodes: list[mg.Node] = []
    for name, i in group:
        record = PUBLIC[name]
        assert record.samples is not None
        sample = record.samples()[i]
        for dtype in dtypes_of(record):
            if is_complex(dtype):
                continue
            # Each has an extent of its own, so that no loop computes two of them.
            operand, outputs = graph_of(name, sample, (f"n{len(operands)}",), dtype)
            if not outputs:
                break
            operands.append(operand)
            nodes += [node for _, _, node in outputs]
            compared.append((name, sample, dtype, truth_of(name, i), outputs))
    lines = []
    with special_functions(), np.errstate(all="ignore"):
        function = mg.function(operands, nodes, **options)
        found = function(*(arguments(dtype) for _, _, dtype, _, _ in compared))
        values = iter(found if isinstance(found, (list, tuple)) else [found])
        for name, sample, dtype, truth, outputs in compared:
            columns = [host(next(values)).astype(np.float64) for _ in outputs]
            bad = wrong(name, sample, dtype, truth, columns, outputs)
            lines += [f"{name} in {dtype.name}: {line}" for line in bad]
    assert not lines, "\n".join(lines[:20])
