"""Values of graphs in numbers of many digits and any size, and limits: what results are held to.

`exactly` walks a graph of scalars node by node, as the reference interpreter does, with mpmath's
numbers in the place of arrays. Array expressions that know NumPy's functions get mpmath's of the
same names; where mpmath lacks one, that node alone is computed in float64 by SciPy.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mpmath
import numpy as np

from magmagraph.ir.graph import Graph
from magmagraph.ir.interpret import apply
from magmagraph.ops.elementwise import family


class _DType:
    """What array expressions ask of a dtype."""

    kind, itemsize, name = "f", 8, "float64"

    @staticmethod
    def type(x: Any) -> Wide:
        return wide(x)


class Wide:
    """A real number of many digits, with the operators of an array."""

    __slots__ = ("number",)
    dtype, shape, ndim, size = _DType, (), 0, 1

    def __init__(self, number: Any) -> None:
        self.number = number

    def __float__(self) -> float:
        return float(self.number)

    def __bool__(self) -> bool:
        return bool(self.number != 0)

    def __neg__(self) -> Wide:
        return Wide(-self.number)

    def __abs__(self) -> Wide:
        return Wide(abs(self.number))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        kind = np.dtype(dtype).kind
        return bool(self) if kind == "b" else int(self.number) if kind in "iu" else self

    def copy(self) -> Wide:
        return self

    def reshape(self, *shape: Any) -> Wide:
        return self

    @property
    def real(self) -> Wide:
        return self


def wide(x: Any) -> Wide:
    """Return a number with many digits."""
    return x if isinstance(x, Wide) else Wide(mpmath.mpf(x if type(x) is int else float(x)))


def _real(function: Callable[..., Any]) -> Callable[..., Wide]:
    """Return a function of mpmath for `Wide`: NaN where it is complex, infinite at a pole."""

    def call(*operands: Any) -> Wide:
        numbers = [wide(x).number for x in operands]
        if any(mpmath.isnan(x) for x in numbers):
            return Wide(mpmath.nan)
        try:
            result = function(*numbers)
        except ZeroDivisionError:
            return Wide(mpmath.nan if numbers[0] == 0 else mpmath.sign(numbers[0]) * mpmath.inf)
        if isinstance(result, mpmath.mpc):
            return Wide(mpmath.nan if result.imag != 0 else result.real)
        return Wide(mpmath.mpf(result))

    return call


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _plain = _real(getattr(operator, _name))
    setattr(Wide, f"__{_name}__", _plain)
    setattr(Wide, f"__r{_name}__", lambda a, b, _plain=_plain: _plain(b, a))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _plain = getattr(operator, _name)
    setattr(
        Wide,
        f"__{_name}__",
        lambda a, b, _plain=_plain: bool(_plain(a.number, wide(b).number)),
    )


def _where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


# NumPy's and SciPy's functions whose names in mpmath are others.
_SPELLED = {
    "abs": abs,
    "absolute": abs,
    "arctan2": mpmath.atan2,
    "log2": lambda x: mpmath.log(x, 2),
    "power": operator.pow,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "square": lambda x: x * x,
    "erfc": lambda x: mpmath.erfc(x),
    "erfcinv": lambda y: _erfcinv(y),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "gammaln": lambda x: mpmath.inf
    if x <= 0 and x == mpmath.floor(x)
    else mpmath.re(mpmath.loggamma(x)),
    "divide": operator.truediv,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negative": operator.neg,
    "maximum": lambda a, b: a if a > b else b,
    "minimum": lambda a, b: a if a < b else b,
    "rint": lambda x: mpmath.nint(x),
    "trunc": lambda x: mpmath.floor(x) if x > 0 else mpmath.ceil(x),
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "xlogy": lambda x, y: x * mpmath.log(y) if x else mpmath.mpf(0),
    "xlog1py": lambda x, y: x * mpmath.log1p(y) if x else mpmath.mpf(0),
    "ndtri_exp": lambda y: _ndtri_exp(y),
    "log_ndtr": lambda x: mpmath.log1p(-mpmath.erfc(x / mpmath.sqrt(2)) / 2)
    if x > 0
    else mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2),
    "i0": lambda x: mpmath.besseli(0, x),
    "i1": lambda x: mpmath.besseli(1, x),
    "k0": lambda x: _scaled_k(0, x) * mpmath.exp(-x),
    "k1": lambda x: _scaled_k(1, x) * mpmath.exp(-x),
    "i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
    "k0e": lambda x: _scaled_k(0, x),
    "k1e": lambda x: _scaled_k(1, x),
    "j0": lambda x: _waves(0, x)[0],
    "j1": lambda x: _waves(1, x)[0],
    "y0": lambda x: _waves(0, x)[1],
    "y1": lambda x: _waves(1, x)[1],
    "expi": lambda x: mpmath.ei(x),
    "exp1": lambda x: mpmath.e1(x),
    "ellipkm1": lambda p: _ellipkm1(p),
    "elliprd": mpmath.elliprd,
    "ellipe": lambda m: mpmath.ellipe(m),
    "spence": lambda z: mpmath.nan if z < 0 else mpmath.polylog(2, 1 - z),
    "betaln": lambda a, b: _betaln(a, b),
    "zeta": lambda x, q: _zeta(x, q),
    "lambertw": lambda x, branch: mpmath.lambertw(x, int(branch)),
    "dawsn": lambda x: mpmath.exp(-x * x) * mpmath.erfi(x) * mpmath.sqrt(mpmath.pi) / 2,
}
# Those whose names are the same, but for NumPy's "arc".
_SAME = re.compile(
    "exp|expm1|log|log1p|log10|sqrt|hypot|(arc)?(sin|cos|tan)h?|erf|erfinv|(di|r)?gamma|floor|ceil"
)
_OTHERS = {
    "where": _where,
    "sign": lambda x: Wide(mpmath.sign(x.number)),
    "isnan": lambda x: bool(mpmath.isnan(x.number)),
    "isinf": lambda x: bool(mpmath.isinf(x.number)),
    "isfinite": lambda x: bool(mpmath.isfinite(x.number)),
    "asarray": lambda x, dtype=None: wide(x),
    "array": wide,
    "zeros_like": lambda x: wide(0),
    "ones_like": lambda x: wide(1),
    "broadcast_to": lambda x, shape: x,
    "reshape": lambda x, *shape: x,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "logical_not": operator.not_,
    "invert": operator.not_,
}


def _zeta(x: Any, q: Any) -> Any:
    whole = x == mpmath.floor(x)
    if not 1 < x <= 1000 or not -60 < q <= 1e6 or (q <= 0 and (not whole or q == mpmath.floor(q))):
        raise NotImplementedError  # mpmath takes very long, or knows no such sum
    total = mpmath.mpf(0)
    while q <= 0:
        total += q ** -int(x)
        q += 1
    return total + mpmath.zeta(x, q)


def _betaln(a: Any, b: Any) -> Any:
    with mpmath.extradps(350):  # as many as the largest number has
        total = mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)
    return +mpmath.re(total)


def _ellipkm1(p: Any) -> Any:
    if p <= 0:
        return mpmath.nan if p < 0 else mpmath.inf
    return mpmath.pi / 2 / mpmath.agm(1, mpmath.sqrt(p))


def _coefficients(order: int, x: Any) -> Iterator[Any]:
    """Yield the terms of the asymptotic series of Bessel functions, from 1 until they vanish."""
    term, k = mpmath.mpf(1), 0
    while abs(term) > mpmath.eps:
        yield term
        k += 1
        term *= (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)


def _scaled_k(order: int, x: Any) -> Any:
    if x < 0:
        return mpmath.nan
    if x < 1000:
        return mpmath.besselk(order, x) * mpmath.exp(x)
    return mpmath.sqrt(mpmath.pi / (2 * x)) * mpmath.fsum(_coefficients(order, x))


def _waves(order: int, x: Any) -> tuple[Any, Any]:
    """Return the Bessel functions of the first and of the second kind."""
    if abs(x) < 1000:
        return mpmath.besselj(order, x), mpmath.bessely(order, x) if x > 0 else mpmath.nan
    terms = list(_coefficients(order, abs(x)))
    even = mpmath.fsum((-1) ** k * term for k, term in enumerate(terms[::2]))
    odd = mpmath.fsum((-1) ** k * term for k, term in enumerate(terms[1::2]))
    turn = (order * mpmath.mpf(2) + 1) * mpmath.pi / 4  # cos(x) is exact for any x
    sine, cosine = mpmath.sin(abs(x)), mpmath.cos(x)
    wave = cosine * mpmath.cos(turn) + sine * mpmath.sin(turn)
    other = sine * mpmath.cos(turn) - cosine * mpmath.sin(turn)
    height = mpmath.sqrt(2 / (mpmath.pi * abs(x)))
    first = height * (even * wave - odd * other) * (-1 if x < 0 and order % 2 else 1)
    return first, height * (even * other + odd * wave) if x > 0 else mpmath.nan


def _erfcinv(y: Any) -> Any:
    if y == 0:
        return mpmath.inf
    if y > 1:
        return -_erfcinv(2 - y)
    if y > 0.5:
        return mpmath.erfinv(1 - y)
    return _inverse(mpmath.log(y))


def _ndtri_exp(y: Any) -> Any:
    if y > -1:
        return mpmath.sqrt(2) * _erfcinv(-2 * mpmath.expm1(y))
    return -mpmath.sqrt(2) * _inverse(y + mpmath.log(2))


def _inverse(logarithm: Any) -> Any:
    """Return the x of which log(erfc(x)) is a number below -0.5."""
    guess = mpmath.sqrt(-logarithm)
    for _ in range(20):  # Newton's method
        tail = mpmath.erfc(guess)
        slope = 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-guess * guess) / tail
        step = (mpmath.log(tail) - logarithm) / slope
        guess += step
        if abs(step) < abs(guess) * mpmath.sqrt(mpmath.eps):
            break
    return guess


class _Functions:
    """mpmath's functions under the names that NumPy and SciPy have for them."""

    inf, pi, nan = np.inf, np.pi, np.nan

    def __getattr__(self, name: str) -> Any:
        if name in _OTHERS:
            return _OTHERS[name]
        function = _SPELLED.get(name)
        if function is None:
            mpmath_name = name.replace("arc", "a") if name.startswith("arc") else name
            function = getattr(mpmath, mpmath_name, None) if _SAME.fullmatch(name) else None
        if function is None:
            raise AttributeError(name)
        number_function = _real(function)
        setattr(self, name, number_function)
        return number_function


FUNCTIONS = _Functions()


@contextmanager
def special_functions() -> Iterator[None]:
    """Let array expressions that call SciPy by the operands' library find `FUNCTIONS`."""
    module = ModuleType("exact_special")
    module.__getattr__ = lambda name: getattr(FUNCTIONS, name)  # type: ignore[method-assign]
    sys.modules[module.__name__] = module
    family._SPECIAL["exact"] = module.__name__
    try:
        yield
    finally:
        del family._SPECIAL["exact"], sys.modules[module.__name__]



def _exponential_moment(xp: Any, order: Wide, argument: Wide) -> Wide:
    """Return the integral of t**n exp(x t) over 0 < t < 1."""
    n, x = int(order.number), argument.number
    if mpmath.isnan(x) or mpmath.isinf(x):
        return Wide(mpmath.inf if x > 0 else x * 0 if mpmath.isnan(x) else mpmath.mpf(0))
    if abs(x) < 1:
        total, term, k = mpmath.mpf(0), mpmath.mpf(1), 0
        while abs(term) > mpmath.eps / 1000:
            total += term / (n + k + 1)
            k += 1
            term *= x / k
        return Wide(total)
    total = mpmath.expm1(x) / x
    for k in range(1, n + 1):
        total = (mpmath.exp(x) - k * total) / x
    return Wide(total)


# Operations whose array expressions are of float64 alone.
_OPERATIONS: dict[str, Callable[..., Any]] = {"exprel_moment": _exponential_moment}

# What array expressions raise where there is no such function, and mpmath where none converges.
_UNKNOWN = (
    AttributeError,
    NotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
    mpmath.libmp.NoConvergence,
)
fallbacks: set[str] = set()
"""Operations that were computed in float64, for want of a function with more digits."""


def exactly(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """Return the outputs of a graph of scalars at values of its inputs, with mpmath's digits."""
    values_of: dict[Any, Any] = {n: wide(v) for n, v in zip(graph.inputs, values, strict=True)}
    for node in graph.nodes:
        if node in values_of:
            continue
        operands = [values_of[each] for each in node.inputs]
        values_of[node] = _one(node, operands)
    return [values_of[output].number for output in graph.outputs]


def _one(node: Any, operands: list[Any]) -> Any:
    if not operands:
        value = np.asarray(apply(node, [], {}))[()]
        return wide(value) if value.dtype.kind == "f" else value.item()
    try:
        evaluate = _OPERATIONS.get(node.op.name, node.op.evaluate)
        result = evaluate(FUNCTIONS, *operands, **node.attrs)
        if isinstance(result, (Wide, bool, int)):
            return result
        if isinstance(result, (float, np.floating)):
            return wide(result)
    except _UNKNOWN:
        pass
    fallbacks.add(node.op.name)
    arrays = [
        np.asarray(float(x) if isinstance(x, Wide) else x, dtype=each.dtype)
        for x, each in zip(operands, node.inputs, strict=True)
    ]
    value = np.asarray(apply(node, arrays, {}))[()]
    return wide(value) if value.dtype.kind == "f" else value.item()

