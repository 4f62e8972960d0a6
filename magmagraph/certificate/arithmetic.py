"""The meaning of operations, written down a second time: over rationals, 50 digits, or float64.

Nothing here reads the records of operations, the passes or the code generators. A value is a NumPy
array: of `Fraction` or of mpmath's numbers as objects, or of float64. A cast between floats
changes nothing, since rules are identities of exact arithmetic. What is not defined (a division by
zero, a logarithm of a negative number) is NaN. Operations that are not in `OPERATIONS` have no
meaning here: the verifier takes their results as unknowns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

DIGITS = 50
NAN = float("nan")


class Undecided(Exception):
    """A value cannot be computed in this arithmetic; the text says why."""


class Arithmetic:
    """The numbers that an expression is evaluated in, and functions of them."""

    name = ""
    exact = True  # whether elements are objects, and results not rounded to float64

    def number(self, value: Any) -> Any:
        """Return a Python number as one of these."""
        raise NotImplementedError

    def function(self, name: str, *arrays: Any) -> Any:
        """Return a transcendental function of arrays."""
        raise NotImplementedError

    def array(self, values: Any) -> Any:
        """Return an array of numbers; bools stay bools."""
        values = np.asarray(values)
        if values.dtype == np.bool_:
            return values
        return np.asarray(np.frompyfunc(self.number, 1, 1)(values.astype(object)), object)

    def each(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """Apply a function of numbers to elements; what is not defined becomes NaN."""

        def defined(*numbers: Any) -> Any:
            try:
                return function(*numbers)
            except (ValueError, ZeroDivisionError, OverflowError):
                return NAN

        made = np.asarray(np.frompyfunc(defined, len(arrays), 1)(*arrays), object)
        return made if self.exact else made.astype(np.float64)


class Rationals(Arithmetic):
    """Fractions; they have no transcendental functions."""

    name = "exact rationals"

    def number(self, value: Any) -> Any:
        """Return a fraction; infinities and NaN stay as they are."""
        if isinstance(value, Fraction):
            return value
        return Fraction(value) if math.isfinite(value) else float(value)

    def function(self, name: str, *arrays: Any) -> Any:
        """Raise `Undecided`, but for powers with integer exponents."""
        if name == "power":
            return self.each(_whole_power, *arrays)
        raise Undecided(f"{name} has no rational values")


def _whole_power(base: Any, exponent: Any) -> Any:
    if exponent != exponent or exponent.denominator != 1 or abs(exponent) > 64:
        raise Undecided("a power has no rational value")
    return base ** int(exponent)


class Digits(Arithmetic):
    """Numbers of 50 digits, by mpmath (an extra)."""

    name = f"{DIGITS} digits"

    def __init__(self) -> None:
        import mpmath  # an extra

        self._mp = mpmath.mp.clone()
        self._mp.dps = DIGITS

    def number(self, value: Any) -> Any:
        """Return a number of mpmath."""
        if isinstance(value, Fraction):
            return self._mp.mpf(value.numerator) / value.denominator
        return self._mp.mpf(value)

    def function(self, name: str, *arrays: Any) -> Any:
        """Apply a function of mpmath; complex results are NaN."""
        names = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh"}
        names |= {"arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2", "lgamma": "loggamma"}
        names |= {"log": "ln"}
        mp = self._mp
        function = getattr(mp, names.get(name, name), None)
        if function is None:
            raise Undecided(f"{name} is not among mpmath's functions")

        def real(*numbers: Any) -> Any:
            found = function(*numbers)
            return NAN if isinstance(found, mp.mpc) else found

        return self.each(real, *arrays)


class Doubles(Arithmetic):
    """float64: evidence, no proof."""

    name = "float64"
    exact = False

    def number(self, value: Any) -> Any:
        """Return a float."""
        return float(value)

    def array(self, values: Any) -> Any:
        """Return an array of float64; bools stay bools."""
        values = np.asarray(values)
        return values if values.dtype == np.bool_ else values.astype(np.float64)

    def function(self, name: str, *arrays: Any) -> Any:
        """Apply a function of NumPy or SciPy."""
        function = getattr(np, name, None)
        if function is None:
            from scipy import special  # a long import

            function = getattr(special, {"lgamma": "gammaln"}.get(name, name), None)
        if function is None:
            raise Undecided(f"{name} is not among NumPy's and SciPy's functions")
        with np.errstate(all="ignore"):
            return function(*arrays)


def real_numbers() -> Arithmetic:
    """Return the best arithmetic with transcendental functions that is installed."""
    try:
        return Digits()
    except ImportError:
        return Doubles()


# ------------------------------------------------------------------- operations

Attributes = Mapping[str, Any]
Operation = Callable[..., Any]


def _divide(d: Arithmetic, a: Any, b: Any) -> Any:
    if d.exact:
        return d.each(lambda x, y: x / y, a, b)
    with np.errstate(all="ignore"):
        return np.divide(a, b)


def _rounding(function: Callable[[Any], Any]) -> Operation:
    return lambda d, k, x: d.each(lambda v: d.number(int(function(v))), x)


def _remainder(d: Arithmetic, k: Attributes, a: Any, b: Any) -> Any:
    return d.each(lambda x, y: x - y * d.number(math.floor(x / y)), a, b)


def _cast(d: Arithmetic, k: Attributes, x: Any) -> Any:
    kind = k["dtype"]
    if kind == "bool":
        return x if x.dtype == np.bool_ else np.not_equal(x, 0).astype(bool)
    if kind.startswith("complex"):
        raise Undecided("complex numbers")
    if x.dtype == np.bool_:
        return d.array(x.astype(np.int64))
    return d.each(lambda v: d.number(int(v)), x) if "int" in kind else x


def _reduced(ufunc: Any) -> Operation:
    def reduce(d: Arithmetic, k: Attributes, x: Any) -> Any:
        axes = tuple(k["axes"])
        if x.dtype == np.bool_ and ufunc in (np.add, np.multiply):
            x = d.array(x.astype(np.int64))
        if not all(x.shape[a] for a in axes) and ufunc in (np.maximum, np.minimum):
            raise Undecided("an extremum of nothing")
        return ufunc.reduce(x, axis=axes) if axes else x

    return reduce


def _indexed(function: Any) -> Operation:
    def position(d: Arithmetic, k: Attributes, x: Any) -> Any:
        axes = list(k["axes"])
        rest = [a for a in range(x.ndim) if a not in axes]
        flat = np.transpose(x, rest + axes).reshape(*(x.shape[a] for a in rest), -1)
        return d.array(function(flat, axis=-1))

    return position


def _steps(start: int, step: int, count: int) -> Any:
    return start + step * np.arange(count)


def _slice(d: Arithmetic, k: Attributes, x: Any) -> Any:
    windows = zip(k["starts"], k["steps"], k["shape"], strict=True)
    for axis, (start, step, count) in enumerate(windows):
        at = _steps(start, step, count)
        if count and not (0 <= at.min() and at.max() < x.shape[axis]):
            raise Undecided("a slice out of bounds")
        x = np.take(x, at, axis)
    return x


def _place(d: Arithmetic, k: Attributes, x: Any) -> Any:
    whole = np.full(k["shape"], False if x.dtype == np.bool_ else None, x.dtype)
    whole[...] = d.array(k.get("value", 0)) if x.dtype != np.bool_ else bool(k.get("value", False))
    at = [_steps(s, t, n) for s, t, n in zip(k["starts"], k["steps"], x.shape, strict=True)]
    for axis, positions in enumerate(at):
        if len(positions) and not (0 <= positions.min() and positions.max() < k["shape"][axis]):
            raise Undecided("a place out of bounds")
    whole[np.ix_(*at)] = x
    return whole


def _joined(d: Arithmetic, k: Attributes, *operands: Any) -> Any:
    axis, pieces = k["axis"], zip(operands, k["starts"], k["lengths"], strict=True)
    return np.concatenate([np.take(x, _steps(s, 1, n), axis) for x, s, n in pieces], axis)


def _cumulative(ufunc: Any) -> Operation:
    def run(d: Arithmetic, k: Attributes, x: Any) -> Any:
        axis = k["axis"]
        x = np.flip(x, axis) if k["reverse"] else x
        made = ufunc.accumulate(x, axis)
        return np.flip(made, axis) if k["reverse"] else made

    return run


def _matmul(a: Any, b: Any) -> Any:
    if a.size * b.shape[-1] > 4e8:
        raise Undecided("a product is too large")
    return np.matmul(a, b)


def _combined(k: Attributes, value: Any, rest: Sequence[Any]) -> Any:
    others = list(rest)
    if k.get("scaled"):
        value = others.pop(0) * value
    if k.get("accumulate"):
        value = value + others[1] * others[0]
    return value


def _gemm(d: Arithmetic, k: Attributes, a: Any, b: Any, *rest: Any) -> Any:
    left = np.swapaxes(a, -1, -2) if k["transpose_a"] else a
    right = np.swapaxes(b, -1, -2) if k["transpose_b"] else b
    return _combined(k, _matmul(left, right), rest)


def _syrk(d: Arithmetic, k: Attributes, x: Any, *rest: Any) -> Any:
    y = rest[0] if rest else x
    if k["transposed"]:
        product = _matmul(x, np.swapaxes(y, -1, -2))
    else:
        product = _matmul(np.swapaxes(x, -1, -2), y)
    lower = np.tri(product.shape[-1], dtype=bool)
    return np.where(lower, product, np.swapaxes(product, -1, -2))


def _take(d: Arithmetic, k: Attributes, x: Any, at: Any) -> Any:
    return np.take(x, at.astype(np.int64), k["axis"], mode=k["mode"])


def _iota(d: Arithmetic, k: Attributes) -> Any:
    shape = k["shape"]
    along = [-1 if i == k["axis"] else 1 for i in range(len(shape))]
    line = np.arange(shape[k["axis"]]).reshape(along)
    return d.array(np.broadcast_to(line, shape).copy())


def _softplus(d: Arithmetic, k: Attributes, x: Any) -> Any:
    if not d.exact:
        return np.logaddexp(0, x)
    return d.function("log", 1 + d.function("exp", x))


def _gelu(d: Arithmetic, k: Attributes, x: Any) -> Any:
    inner = (x + x * x * x * d.number(0.044715)) * d.number(math.sqrt(2 / math.pi))
    return x * (1 + d.function("tanh", inner)) * d.number(0.5)


def _function(name: str) -> Operation:
    return lambda d, k, *x: d.function(name, *x)


def _plain(ufunc: Any) -> Operation:
    return lambda d, k, *x: ufunc(*x)


def _comparison(ufunc: Any) -> Operation:
    return lambda d, k, *x: np.asarray(ufunc(*x)).astype(bool)


def _logic(ufunc: Any) -> Operation:
    def combine(d: Arithmetic, k: Attributes, *x: Any) -> Any:
        if any(array.dtype != np.bool_ for array in x):
            raise Undecided("bits of integers")
        return ufunc(*x)

    return combine


def _power(d: Arithmetic, k: Attributes, x: Any, y: Any) -> Any:
    if d.exact and bool(np.all(np.frompyfunc(lambda v: v == v and v % 1 == 0, 1, 1)(y))):
        return d.each(lambda v, n: v ** int(n), x, y)
    return d.function("power", x, y)


FUNCTIONS = (
    "exp expm1 log log1p log10 sqrt cbrt sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh "
    "arcsinh arccosh arctanh erf erfc erfinv lgamma gamma hypot j0 j1 i0"
)

OPERATIONS: dict[str, Operation] = {
    **{name: _function(name) for name in FUNCTIONS.split()},
    "add": _plain(np.add),
    "subtract": _plain(np.subtract),
    "multiply": _plain(np.multiply),
    "divide": lambda d, k, a, b: _divide(d, a, b),
    "floor_divide": lambda d, k, a, b: d.each(lambda x, y: d.number(math.floor(x / y)), a, b),
    "remainder": _remainder,
    "negative": _plain(np.negative),
    "absolute": _plain(np.absolute),
    "positive": lambda d, k, x: x,
    "sign": lambda d, k, x: d.each(lambda v: v if v != v else d.number((v > 0) - (v < 0)), x),
    "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil),
    "trunc": _rounding(int),
    "rint": _rounding(round),
    "maximum": _plain(np.maximum),
    "minimum": _plain(np.minimum),
    "equal": _comparison(np.equal),
    "not_equal": _comparison(np.not_equal),
    "less": _comparison(np.less),
    "less_equal": _comparison(np.less_equal),
    "greater": _comparison(np.greater),
    "greater_equal": _comparison(np.greater_equal),
    "where": lambda d, k, c, a, b: np.where(c, a, b),
    "isnan": _comparison(np.frompyfunc(lambda v: v != v, 1, 1)),
    "isinf": _comparison(np.frompyfunc(lambda v: abs(v) == math.inf, 1, 1)),
    "isfinite": _comparison(np.frompyfunc(lambda v: abs(v) < math.inf, 1, 1)),
    "bitwise_and": _logic(np.logical_and),
    "bitwise_or": _logic(np.logical_or),
    "bitwise_xor": _logic(np.logical_xor),
    "bitwise_not": _logic(np.logical_not),
    "power": _power,
    "exp2": lambda d, k, x: d.function("exp", x * d.function("log", d.array(2))),
    "log2": lambda d, k, x: d.function("log", x) / d.function("log", d.array(2)),
    "logaddexp": lambda d, k, a, b: d.function("log", d.function("exp", a) + d.function("exp", b)),
    "sigmoid": lambda d, k, x: _divide(d, d.array(1), 1 + d.function("exp", -x)),
    "softplus": _softplus,
    "relu": lambda d, k, x: np.maximum(x, d.array(0)),
    "gelu_tanh": _gelu,
    "cast": _cast,
    "sum": _reduced(np.add),
    "prod": _reduced(np.multiply),
    "max": _reduced(np.maximum),
    "min": _reduced(np.minimum),
    "all": _reduced(np.logical_and),
    "any": _reduced(np.logical_or),
    "argmax": _indexed(np.argmax),
    "argmin": _indexed(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "reshape": lambda d, k, x: np.reshape(x, k["shape"]),
    "transpose": lambda d, k, x: np.transpose(x, k["axes"]),
    "broadcast_to": lambda d, k, x: np.broadcast_to(x, k["shape"]),
    "concatenate": lambda d, k, *x: np.concatenate(x, k["axis"]),
    "join_pieces": _joined,
    "slice": _slice,
    "place": _place,
    "take": _take,
    "matmul": lambda d, k, a, b: _matmul(a, b),
    "gemm": _gemm,
    "syrk": _syrk,
    "gemv_sum": lambda d, k, x, *rest: _combined(k, np.add.reduce(x, axis=k["axis"]), rest),
    "constant": lambda d, k: d.array(k["value"]),
    "extent": lambda d, k: d.array(k["dim"]),
    "iota": _iota,
    **{
        name: lambda d, k, x, *others: x
        for name in ("stop_gradient", "marker", "recompute", "checkpoint", "checkpoint_name")
    },
}  # fmt: skip
