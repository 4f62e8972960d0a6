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
from table import PUBLIC, dtypes_of, is_float_array, results

import magmagraph as mg
from magmagraph.dtypes import DType, canonical, finfo, is_complex, is_float, tolerance
from magmagraph.ir.graph import freeze
from magmagraph.ir.op import Kind, Sample

mpmath = pytest.importorskip("mpmath", reason="pip install magmagraph[dev]")

from exact import Wide, exactly, fallbacks, special_functions  # noqa: E402  (needs mpmath)
from extreme_values import argument, kept, key_of, named  # noqa: E402

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


def cases() -> Iterator[Any]:
    """Yield each function of one float operand with each set of other arguments that it has."""
    for name, record in PUBLIC.items():
        if record.kind is not Kind.ELEMENTWISE or "float32" not in record.dtypes:
            continue
        assert record.tests.samples is not None
        seen = set()
        for i, sample in enumerate(record.tests.samples()):
            arrays = [value for value in sample.inputs if isinstance(value, (np.ndarray, list))]
            others = str((sample.attrs, [v for v in sample.inputs if not is_float_array(v)]))
            if len(arrays) == 1 and is_float_array(arrays[0]) and others not in seen:
                seen.add(others)
                if takes_axis(record.function):
                    continue
                if all(isinstance(v, (float, int)) for v in sample.inputs if v is not arrays[0]):
                    yield pytest.param(name, i, id=f"{name}-{i}")


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
        self._begin(name, [operand], [node for _, _, node in outputs])

    def _begin(self, name: str, operands: list[mg.Node], outputs: list[mg.Node]) -> None:
        self.graph = freeze(operands, outputs)
        self.name = named(self.graph, type(self).__name__, name)
        self.known: dict[str, list[float] | None] = {}

    def at(self, x: Any) -> list[float] | None:
        """Return all outputs; None where a part of them is known to float64's digits only."""
        key = key_of(x)
        if key not in self.known:
            before = kept().get(self.name, {})
            self.known[key] = before[key] if key in before else self.computed(x)
        return self.known[key]

    def _operands(self, x: Any) -> list[Any]:
        return [Wide(mpmath.mpf(x))]

    def limits(self, x: float) -> list[tuple[float, float] | None]:
        """Return, for each output, the least and the greatest limit at 0 or at an infinity.

        At a zero it is from both sides. None is where there is no limit from the zero's own side,
        and where a bounded output differs between three arguments.
        """
        sign = float(np.copysign(1.0, x))
        powers, sides = ((-400, -500, -600), (sign, -sign)) if x == 0 else ((60, 90, 120), (sign,))
        found: list[list[float]] = [[] for _ in self.graph.outputs]
        for side in sides:
            rows = [self.at(side * mpmath.mpf(10) ** power) for power in powers]
            some = [row for row in rows if row is not None and not np.isnan(row[0])]
            unknown = [(float("nan"),) * 3] * len(found)  # the function has no value there
            columns = list(zip(*some, strict=True)) if len(some) == 3 else unknown
            for limits, numbers in zip(found, columns, strict=True):
                limits.append(_limit(*numbers))
        return [
            None if np.isnan(limits[0]) else (float(np.nanmin(limits)), float(np.nanmax(limits)))
            for limits in found
        ]

    def computed(self, x: Any) -> list[float] | None:
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


def _limit(first: float, second: float, third: float) -> float:
    """Return what three numbers of a sequence go to: a number, an infinity, or NaN for neither."""
    size = max(1.0, abs(third)) if np.isfinite(third) else 1.0
    if third == first or max(abs(third - first), abs(third - second)) <= 1e-12 * size:
        return third
    if 10 < abs(first) < abs(second) < abs(third) and first * second > 0 and second * third > 0:
        return float(np.copysign(np.inf, third))
    return float("nan")


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


def flushed(dtype: DType, x: float) -> bool:
    """Tell whether functions of CUDA may take an argument for 0, or lose digits: docs/howto.md.

    Those of float64 are so at the smallest normal number and below, others where float32 is.
    """
    computed = dtype if dtype.itemsize == 8 else canonical("float32")
    return 0 < abs(x) <= float(finfo(computed).tiny)


ON_CARD = {"gammainc": 3}
"""How many times a CPU's error functions may have on a GPU, where it is more: docs/howto.md."""

SHARES = {
    "fdtr": lambda n, d, x: (n * x / (n * x + d),),
    "fdtrc": lambda n, d, x: (d / (n * x + d),),
}
"""The arguments that these functions compute for `betainc`, which has no kernel expression."""

NAN_AT_INFINITY = {"gelu", "silu", "mish", "entr", "nan_to_num"}
"""Functions whose texts say that their slopes at infinities are not the limits."""


def wrong(
    name: str, sample: Sample, dtype: DType, truth: Truth, columns: list[np.ndarray], outputs: Any,
    card: bool = False,
) -> list[str]:
    """Return what is wrong, a line for each value."""
    record = PUBLIC[name]
    row = tolerance(dtype, "stable")
    points = arguments(dtype).astype(np.float64)
    assert record.tests.reference is not None
    inputs = [points if is_float_array(value) else value for value in sample.inputs]
    reference = results(record.tests.reference(*inputs, **sample.attrs))
    ends = finfo(dtype)
    lines = []
    for place, (number, is_slope, _) in enumerate(outputs):
        for k, x in enumerate(points):
            value = float(columns[place][k])
            ordinary = np.isfinite(x) and x != 0
            exact = truth.at(float(x)) if ordinary else None
            if exact is not None and np.isnan(exact[0]):
                exact = None
            if is_slope and not ordinary:
                limits = None if np.isnan(x + reference[number][k]) else truth.limits(x)[place]
                if limits is None or (name in NAN_AT_INFINITY and np.isinf(x)):
                    continue
                if not lies(value, *limits, dtype, row.absolute, row.relative):
                    lines.append(f"slope {number} at {x!r} is {value!r}, not {limits!r}")
                continue
            if is_slope and (exact is None or np.isnan(exact[place])):
                continue  # where the function has no value
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
                elif record.tests.loses == "difference":
                    room += row.absolute * abs(x)
                good = value == wanted or lies(value, wanted, wanted, dtype, room, row.relative)
                if abs(wanted) > float(ends.max):
                    good = good or abs(value) == float(ends.max)  # cut on purpose
                if not good and exact is not None:
                    steps = np.linspace(-1.0, 1.0, 8) * row.absolute
                    near = [truth.at(mpmath.mpf(x) * (1 + mpmath.mpf(step))) for step in steps]
                    around = [v[place] for v in near if v is not None and not np.isnan(v[place])]
                    low, high = min([wanted, *around]), max([wanted, *around])
                    width = high - low if np.isfinite(high - low) else 0.0
                    share = row.relative * (ON_CARD.get(name, 1) if card else 1)
                    if record.tests.loses == "exponent" and wanted != 0 and np.isfinite(wanted):
                        share *= max(1.0, abs(np.log(abs(wanted))))
                    good = lies(value, low - width, high + width, dtype, room, share)
            if name == "yv" and card and abs(x) > 1e15:
                continue  # as docs/howto.md says
            if not (good or (card and flushed(dtype, x))):
                what = "slope" if is_slope else "value"
                lines.append(f"{what} {number} at {x!r} is {value!r}, not {wanted!r}")
    return lines


# Functions of several operands.


def sizes(dtype: DType) -> np.ndarray:
    """Return the arguments that tuples are made of: finite ones first, of both signs, then ends."""
    ends = finfo(dtype)
    positive = (float(ends.smallest_subnormal), float(ends.tiny), 0.5, 1.0, 2.5, float(ends.max))
    return np.array(
        [*positive, -positive[0], -1.0, -2.5, -positive[-1], 0.0, -0.0, np.inf, -np.inf]
    )


def _int_order(dtype: DType, *point: float) -> bool:
    return abs(point[0]) > 2**31


def _half(dtype: DType, *point: float) -> bool:
    return float(finfo(dtype).smallest_subnormal) in map(abs, point)


def _freedom(dtype: DType, *point: float) -> bool:
    eps = float(finfo(dtype).eps)
    return not all(eps <= abs(v) <= 1 / eps for v in point[:2]) or _product(dtype, *point)


def _product(dtype: DType, a: float, b: float, x: float) -> bool:
    ends = finfo(dtype)
    return a != 0 and x != 0 and not float(ends.tiny) <= abs(a * x) <= float(ends.max)


def _parity(dtype: DType, x: float, y: float) -> bool:
    return x < 0 and abs(y) > 2 / float(finfo(dtype).eps)


def _reflected(dtype: DType, x: float, y: float) -> bool:
    return min(x, y) < 0 and max(abs(x), abs(y)) > 2 / float(finfo(dtype).eps)


LIMITS = {
    "betaln": _reflected,  # below 0, gamma turns faster than such sums have digits
    "expn": _int_order,  # SciPy's own is for orders of 32 bits
    "chdtr": _half,  # half of the least number is 0
    "chdtrc": _half,
    "fdtr": _freedom,  # the rest to 1 of a share of x is lost
    "fdtrc": _freedom,
    "gdtr": _product,  # of a scale and an argument, which are multiplied
    "gdtrc": _product,
    "power": _parity,  # y - 1 is y, so that the sign of the slope is lost
    "float_power": _parity,
}
"""For functions whose texts state a bound: tells the tuples that are beyond it."""


def points_of(dtype: DType, count: int, share: int) -> list[np.ndarray]:
    """Return a column of arguments for each operand: all tuples, or a share of them."""
    columns = np.meshgrid(*[sizes(dtype)] * count, indexing="ij")
    step = 1 if share == 1 else share * len(sizes(dtype)) ** (count - 2) - (count > 2)
    return [column.ravel()[::step].astype(dtype).astype(np.float64) for column in columns]


def float_places(sample: Sample) -> list[int]:
    """Return the places of the operands that are arrays of floats."""
    return [place for place, value in enumerate(sample.inputs) if is_float_array(value)]


def tuple_cases() -> Iterator[Any]:
    """Yield the first sample, of arrays alone, of each function of several float operands."""
    for name, record in PUBLIC.items():
        if record.kind is not Kind.ELEMENTWISE or "float32" not in record.dtypes:
            continue
        assert record.tests.samples is not None
        if takes_axis(record.function):
            continue
        for i, sample in enumerate(record.tests.samples()):
            places = float_places(sample)
            if len(places) == len(sample.inputs) > 1 and sample.gradient != ():
                yield pytest.param(name, i, id=f"{name}-{i}")
                break


def tuple_graph(name: str, sample: Sample, shape: tuple[Any, ...], dtype: DType) -> Any:
    """Return the operands, and each float result with its slopes (None is the value)."""
    record = PUBLIC[name]
    assert record.function is not None
    places = float_places(sample)
    operands = [mg.input(f"x{place}", shape, dtype) for place in places]
    inputs = list(sample.inputs)
    for place, operand in zip(places, operands, strict=True):
        inputs[place] = operand
    outputs: list[tuple[int, int | None, mg.Node]] = []
    for number, part in enumerate(results(record.function(*inputs, **sample.attrs))):
        if not is_float(part.dtype):
            continue
        outputs.append((number, None, part))
        for place, operand in zip(places, operands, strict=True):
            if not record.no_gradient and (sample.gradient is None or place in sample.gradient):
                (slope,) = mg.grad(mg.sum(part), [operand], unused="zeros")
                outputs.append((number, place, slope))
    return operands, outputs


class TupleTruth(Truth):
    """The values and slopes of a function of several operands, with many digits."""

    def __init__(self, name: str, sample: Sample) -> None:
        operands, outputs = tuple_graph(name, sample, (), canonical("float64"))
        self._begin(name, operands, [node for _, _, node in outputs])

    def _operands(self, x: Any) -> list[Any]:
        return [Wide(mpmath.mpf(number)) for number in x]

    def near_zero(self, point: tuple[float, ...]) -> list[float] | None:
        """Return the outputs where numbers far below any float take the place of zeros."""
        small = mpmath.ldexp(mpmath.mpf(1), -(10**400))
        return self.at(
            tuple(mpmath.sign(np.copysign(1.0, v)) * small if v == 0 else v for v in point)
        )


def wrong_tuples(
    name: str, sample: Sample, dtype: DType, truth: Any, points: Any, columns: Any, outputs: Any,
    card: bool = False,
) -> list[str]:
    """Return what is wrong at tuples of arguments, a line for each number."""
    record = PUBLIC[name]
    row = tolerance(dtype, "stable")
    ends = finfo(dtype)
    least, tiny = float(ends.smallest_subnormal), float(ends.tiny)
    assert record.tests.reference is not None
    moves = [-1.0, -0.3, 0.0, 0.3, 1.0]
    changes = list(product(moves, repeat=len(points)))

    def reference(change: tuple[float, ...]) -> list[Any]:
        inputs = list(sample.inputs)
        for place, column, move in zip(float_places(sample), points, change, strict=True):
            inputs[place] = column * (1 + move * row.absolute)
        return results(record.tests.reference(*inputs, **sample.attrs))  # type: ignore[misc]

    # At arguments that are changed by the row's absolute part.
    moved = [reference(change) for change in changes]
    middle = len(changes) // 2
    lines = []
    for k, point in enumerate(zip(*(column.tolist() for column in points), strict=True)):
        if name in LIMITS and LIMITS[name](dtype, *point):
            continue
        ordinary = bool(np.all(np.isfinite(point))) and 0.0 not in point
        exact = truth.at(point) if ordinary else None
        around = None
        for place, (number, slope, _) in enumerate(outputs):
            value = float(columns[place][k])
            known = exact is not None and not np.isnan(exact[place])
            if slope is not None and not known:
                continue
            if slope is not None and abs(exact[0]) > 0.999 * float(ends.max):
                continue  # the slope of what overflows may be infinite or NaN
            wanted = float(exact[place] if known else moved[middle][number][k])
            if np.isnan(wanted):
                continue  # where the function has no value
            # Intermediate results below the smallest normal number may be lost.
            room = 512.0 * (tiny if max(map(abs, point)) > 1e-3 else least)
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
                            tuple(
                                mpmath.mpf(x) * (1 + mpmath.mpf(move * row.absolute))
                                for x, move in zip(point, change, strict=True)
                            )
                        )
                        for change in product((-1.0, 1.0), *[(-1.0, 0.0, 1.0)] * (len(point) - 1))
                    ]
                if known:
                    near = [each[place] for each in around or () if each is not None]
                else:
                    near = [float(each[number][k]) for each in moved]
                near = [each for each in near if not np.isnan(each)]
                low, high = min([wanted, *near]), max([wanted, *near])
                width = high - low if np.isfinite(high - low) else 0.0
                part = row.relative * (ON_CARD.get(name, 1) if card else 1)
                if record.tests.loses == "exponent" and wanted != 0 and np.isfinite(wanted):
                    part *= max(1.0, abs(np.log(abs(wanted))))
                good = lies(value, low - width, high + width, dtype, room, part)
            if not good and not known and np.all(np.isfinite(point)):
                limit = truth.near_zero(point)
                limit = limit and limit[place]
                good = limit is not None and (
                    np.isnan(limit) or lies(value, limit, limit, dtype, room, row.relative)
                )
            inside = (*point, *SHARES[name](*point)) if name in SHARES else point
            if not (good or (card and any(flushed(dtype, x) for x in inside))):
                what = f"value {number}" if slope is None else f"slope {number} in {slope}"
                lines.append(f"{what} at {point!r} is {value!r}, not {wanted!r}")
    return lines


@lru_cache(maxsize=1)
def truth_of(kind: type[Truth], name: str, i: int) -> Truth:
    """Return the truth of one sample of a function, kept until the next one is asked for."""
    record = PUBLIC[name]
    assert record.tests.samples is not None
    return kind(name, record.tests.samples()[i])


def host(value: Any) -> np.ndarray:
    """Return a result in the memory of the host."""
    return np.asarray(value.get() if hasattr(value, "get") else value)


def check_tuples(name: str, i: int, share: int, **options: Any) -> None:
    """Compare one function of several operands in float32 and float64."""
    record = PUBLIC[name]
    assert record.tests.samples is not None
    sample = record.tests.samples()[i]
    lines = []
    with special_functions(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's own, which no error state covers
        truth = truth_of(TupleTruth, name, i)
        for dtype in map(canonical, ("float32", "float64")):
            operands, outputs = tuple_graph(name, sample, ("n",), dtype)
            if not outputs:
                return
            function = mg.function(operands, [node for _, _, node in outputs], **options)
            points = points_of(dtype, len(operands), share)
            given = [column.astype(dtype) for column in points]
            columns = [host(v).astype(np.float64) for v in function(*given)]
            bad = wrong_tuples(name, sample, dtype, truth, points, columns, outputs, bool(options))
            lines += [f"{dtype.name}: {line}" for line in bad]
    assert not lines, f"{name}:\n" + "\n".join(lines[:20])


SCIPYS_OWN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@SCIPYS_OWN
@pytest.mark.parametrize(("name", "i"), list(tuple_cases()))
def test_extreme_tuples(name: str, i: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("auto", "off"):  # one after the other, so that the truth is computed once
        monkeypatch.setattr(mg.config, "compiler", compiler)
        check_tuples(name, i, 5)


@pytest.mark.slow
@SCIPYS_OWN
@pytest.mark.parametrize(("name", "i"), list(tuple_cases()))
def test_all_extreme_tuples(name: str, i: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("auto", "off"):
        monkeypatch.setattr(mg.config, "compiler", compiler)
        check_tuples(name, i, 1)


@pytest.mark.gpu
@SCIPYS_OWN
@pytest.mark.filterwarnings("ignore::magmagraph.errors.FallbackWarning")  # CuPy lacks some
@pytest.mark.parametrize(("name", "i"), list(tuple_cases()))
def test_extreme_tuples_on_the_gpu(name: str, i: int) -> None:
    check_tuples(name, i, 5, device="cuda")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_kept_values_are_those_that_are_computed(part: int) -> None:
    """Compute a value in 40 of the file again, other ones for each number of entries."""
    checked = 0
    samples = [(Truth, *case.values) for case in cases()]
    samples += [(TupleTruth, *case.values) for case in tuple_cases()]
    with special_functions(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, name, i in samples[part::8]:
            truth = truth_of(kind, name, i)
            entries = kept().get(truth.name, {})
            for key in list(entries)[part::40]:
                np.testing.assert_equal(truth.computed(argument(key)), entries[key], key)
                checked += 1
    assert checked > 50


# Functions of one operand.


@pytest.mark.optimized  # vectors take other ways at the ends of the range
@pytest.mark.parametrize(("name", "i"), list(cases()))
def test_extreme_arguments(name: str, i: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("auto", "off"):  # one after the other, so that the truth is computed once
        monkeypatch.setattr(mg.config, "compiler", compiler)
        check(name, i)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::magmagraph.errors.FallbackWarning")  # CuPy lacks some
@pytest.mark.parametrize(("name", "i"), list(cases()))
def test_extreme_arguments_on_the_gpu(name: str, i: int) -> None:
    check(name, i, device="cuda")


def check(name: str, i: int, **options: Any) -> None:
    """Compare one function in each dtype that it takes."""
    record = PUBLIC[name]
    assert record.tests.samples is not None
    sample = record.tests.samples()[i]
    lines = []
    with special_functions(), np.errstate(all="ignore"):
        truth = truth_of(Truth, name, i)
        for dtype in dtypes_of(record):
            if is_complex(dtype):
                continue
            operand, outputs = graph_of(name, sample, ("n",), dtype)
            if not outputs:
                return
            function = mg.function([operand], [node for _, _, node in outputs], **options)
            columns = [host(v).astype(np.float64) for v in function(arguments(dtype))]
            found = wrong(name, sample, dtype, truth, columns, outputs, bool(options))
            lines += [f"{dtype.name}: {line}" for line in found]
    assert not lines, f"{name}:\n" + "\n".join(lines[:20])
