"""The scalar functions that expressions of op records call, as C for generated kernels.

A record's expression names functions with a dollar sign: ``$exp(a)``, ``$floor_divide(a, b)``.
`resolve` turns these into the C library's function for the computing type (``expf``) or into one
of the helpers below (``mg_floor_divide_i32``); `prelude` gives the definitions of the helpers that
a source calls, and no others. Helpers have no branches where a choice does, so that loops around
them vectorize, and no state. They are plain C99 that is CUDA C++ as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

import numpy as np

from ..c.lanes import LANES
from .complex_numbers import COMPLEX
from .groups import GROUPS
from .special import DOUBLE, SINGLE

__all__ = ["HELPERS", "LIBM", "computing_type", "prelude", "resolve", "suffix", "vector_math"]

# Functions of the C library, by the name that expressions use; "f" follows for float.
LIBM: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "cbrt"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("erf", "erfc", "hypot", "fabs", "floor", "ceil", "trunc", "rint", "fmod"),
            *("copysign", "fma"),
        )
    },
    "power": "pow",
}

# Helpers. @T is the type, @s its suffix, @f the C library's suffix, @U the unsigned type of the
# same width, @I the signed one, @bits the width, @lowest and @highest the ends of the range. Floats
# have @digits explicit binary digits and exponents biased by @bias. A definition may call those of
# other names.

_BOTH = {
    "lowest": "@T mg_lowest_@s(void) { return @lowest; }",
    "highest": "@T mg_highest_@s(void) { return @highest; }",
}



def _to_whole(kind: str, bits: int) -> str:
    """Return the conversion of a float to an integer type, by `mg.cast`'s rule for all values."""
    top = bits - 1 if kind == "i" else bits
    low, least = (f"-0x1p{top}", f"INT{bits}_MIN") if kind == "i" else ("0", "0")
    most = f"{'U' if kind == 'u' else ''}INT{bits}_MAX"
    whole = f"{'u' if kind == 'u' else ''}int{bits}_t"
    return f"""
{whole} mg_to_{kind}{bits}_@s(@T x)
{{
    const @T inside = (x > (@T){low}) & (x < (@T)0x1p{top}) ? x : (@T)0;
    return x >= (@T)0x1p{top} ? {most} : x <= (@T){low} ? {least} : ({whole})inside;
}}"""


_FLOAT = {
    **_BOTH,
    **LANES,
    **{f"to_{kind}{bits}": _to_whole(kind, bits) for kind in "iu" for bits in (8, 16, 32, 64)},
    # NaN wins on either side: comparisons with it are false, so it is asked for by x != x.
    # Two choices, since gcc makes no vector loop of a chain of choices by `(a > b) | (a != a)`.
    "maximum": """
@T mg_maximum_@s(@T a, @T b)
{
    const @T x = a > b ? a : b;
    return a != a ? a : x;
}""",
    "minimum": """
@T mg_minimum_@s(@T a, @T b)
{
    const @T x = a < b ? a : b;
    return a != a ? a : x;
}""",
    "greater_or_nan": """
int mg_greater_or_nan_@s(@T a, @T b) { return (a > b) | ((a != a) & (b == b)); }""",
    "less_or_nan": """
int mg_less_or_nan_@s(@T a, @T b) { return (a < b) | ((a != a) & (b == b)); }""",
    "remainder": """
@T mg_remainder_@s(@T a, @T b)
{
    const @T rest = fmod@f(a, b);
    const @T turned = (rest < 0) != (b < 0) ? rest + b : rest;
    return rest == 0 ? copysign@f((@T)0, b) : turned;
}""",
    # a - fmod(a, b) is a multiple of b up to rounding, so that the quotient is to be rounded.
    "floor_divide": """
@T mg_floor_divide_@s(@T a, @T b)
{
    const @T rest = fmod@f(a, b);
    const @T whole = rint@f((a - rest) / b);
    const @T lowered = (rest != 0) & ((rest < 0) != (b < 0)) ? whole - 1 : whole;
    const @T zero = copysign@f((@T)0, a) * copysign@f((@T)1, b);
    return b == 0 ? a / b : lowered == 0 ? zero : lowered;
}""",
    # These four work on the bits: they are exact for subnormal numbers even where arithmetic
    # takes those for 0. The bits of a subnormal number count the least float.
    "mantissa": """
@T mg_mantissa_@s(@T a)
{
    const @U one = 1, half = (@U)(@bias - 1) << @digits;
    union { @T value; @U bits; } x, whole;
    x.value = a;
    const @U size = x.bits & ~(one << (@bits - 1)), sign = x.bits ^ size;
    whole.value = (@T)(@I)(size & ((one << @digits) - 1));
    const @U digits = size < one << @digits ? whole.bits : size;
    x.bits = sign | half | (digits & ((one << @digits) - 1));
    return (size == 0) | (size >= (@U)(2 * @bias + 1) << @digits) ? a : x.value;
}""",
    "exponent": """
int32_t mg_exponent_@s(@T a)
{
    const @U one = 1;
    union { @T value; @U bits; } x, whole;
    x.value = a;
    const @U size = x.bits & ~(one << (@bits - 1));
    whole.value = (@T)(@I)(size & ((one << @digits) - 1));
    const int32_t small = (int32_t)(whole.bits >> @digits) - (2 * @bias + @digits - 2);
    const int32_t exponent = (int32_t)(size >> @digits) - (@bias - 1);
    const int finite = (size != 0) & (size < (@U)(2 * @bias + 1) << @digits);
    return finite ? (size < one << @digits ? small : exponent) : 0;
}""",
    "ldexp": """
@T mg_ldexp_@s(@T a, int64_t b)
{
    const @U one = 1, most = (@U)(2 * @bias + 1) << @digits;
    union { @T value; @U bits; } x;
    x.value = mg_mantissa_@s(a);
    const @U sign = x.bits & one << (@bits - 1);
    const @U digits = (x.bits & ((one << @digits) - 1)) | one << @digits;
    b = (b < -16384 ? -16384 : b) + mg_exponent_@s(a) + (@bias - 1); /* the exponent's bits */
    if (x.value == 0 || (x.bits & ~sign) >= most) return a;
    if (b > 2 * @bias) x.bits = sign | most;
    else if (b > 0) x.bits = sign | (@U)b << @digits | (digits ^ one << @digits);
    else { /* subnormal: the lost digits round to the nearest even number */
        const int lost = b < -@digits - 1 ? @digits + 2 : 1 - (int)b;
        const @U kept = digits >> lost, rest = digits & ((one << lost) - 1);
        x.bits = sign | (kept + (rest + (kept & 1) > one << (lost - 1)));
    }
    return x.value;
}""",
    "nextafter": """
@T mg_nextafter_@s(@T a, @T b)
{
    const @U one = 1, most = (@U)(2 * @bias + 1) << @digits;
    union { @T value; @U bits; } x, y;
    x.value = a;
    y.value = b;
    const @U size = x.bits & ~(one << (@bits - 1)), other = y.bits & ~(one << (@bits - 1));
    if (size > most || other > most) return a + b;
    if (x.bits == y.bits || (size | other) == 0) return b;
    if (size == 0) x.bits = (y.bits ^ other) | 1;
    else if (other < size || (x.bits ^ size) != (y.bits ^ other)) x.bits -= 1;
    else x.bits += 1;
    return x.value;
}""",
}

_FLOAT_ONLY_DOUBLE = {
    # lgamma itself writes the global signgam, which threads would race for.
    "log_gamma": """
double mg_log_gamma_f64(double x)
{
    int sign;
    return x == -INFINITY ? x : lgamma_r(x, &sign); /* as SciPy has it */
}""",
    # Reflection below 0, the recurrence up to 10, there the asymptotic series
    # (NIST Handbook of Mathematical Functions, 5.5.2, 5.5.4, 5.11.2).
    "digamma": """
double mg_digamma_f64(double x)
{
    double sum = 0.0, square, series;
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0) {
        const double whole = rint(x);
        if (x == whole) return NAN;
        sum = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - whole));
        x = 1.0 - x;
    }
    while (x < 10.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    square = 1.0 / (x * x);
    series = square * (1.0 / 12 - square * (1.0 / 120 - square * (1.0 / 252 - square
        * (1.0 / 240 - square * (1.0 / 132 - square * (691.0 / 32760 - square / 12))))));
    return sum + log(x) - 0.5 / x - series;
}""",
    # Terms up to q + k >= 10, the rest by the Euler-Maclaurin formula (NIST Handbook, 25.11.5);
    # its coefficients are B_2j / (2j)!.
    "zeta": """
double mg_zeta_f64(double s, double q)
{
    static const double bernoulli[] = {
        1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
        -691.0 / 1307674368000.0, 1.0 / 74724249600.0, -3617.0 / 10670622842880000.0,
        43867.0 / 5109094217170944000.0, -174611.0 / 802857662698291200000.0};
    const double start = 10.0 + 0.5 * (s < 60.0 ? s : 60.0);
    double sum = 0.0, power, factor;
    if (s == 1) return INFINITY;
    if (!(s > 1) || q != q) return NAN;
    if (q <= 0) {
        if (q == floor(q)) return INFINITY;
        if (s != floor(s)) return NAN;
    }
    if (q > 1e18) return pow(q, 1.0 - s) / (s - 1.0);
    while (q < start) {
        sum += pow(q, -s);
        q += 1.0;
    }
    power = pow(q, -s);
    if (power == 0) return sum;
    sum += power * q / (s - 1.0) + 0.5 * power;
    factor = s * power / q;
    for (int j = 0; j < 10; j++) {
        sum += bernoulli[j] * factor;
        factor *= (s + (2 * j + 1)) * (s + (2 * j + 2)) / (q * q);
    }
    return sum;
}""",
    # The float fit, made exact by one step of Halley's method; erfc keeps the digits near 1.
    "erfinv": """
double mg_erfinv_f64(double y)
{
    const double size = fabs(y);
    double x, error;
    if (!(size < 1)) return size == 1 ? copysign(INFINITY, y) : NAN;
    x = mg_erfinv_fit_f64(size);
    error = size < 0.5 ? erf(x) - size : (1.0 - size) - erfc(x);
    error *= 0.88622692545275801365 * exp(x * x);
    return copysign(x - error / (1.0 + x * error), y);
}""",
}

# Own minimax fits of erfinv(y)/y for y >= 0 as a function of w = -log(1 - y*y): in w up to 5 and
# in sqrt(w) from there to y = 1 - 2**-53; relative errors 1e-7 and 7e-7.
_ERFINV_FIT = """
@T mg_erfinv_fit_@s(@T y)
{
    const @T w = -log@f((1 - y) * (1 + y));
    const @T u = w - (@T)2.5;
    const @T v = sqrt@f(w) - 3;
    @T near = (@T)2.853223754e-08, far = (@T)-1.308780387e-06;
    near = near * u + (@T)3.437236685e-07;
    near = near * u - (@T)3.528828906e-06;
    near = near * u - (@T)4.396744344e-06;
    near = near * u + (@T)2.186020812e-04;
    near = near * u - (@T)1.253707630e-03;
    near = near * u - (@T)4.177707617e-03;
    near = near * u + (@T)2.466407262e-01;
    near = near * u + (@T)1.501409422e+00;
    far = far * v + (@T)3.142717738e-05;
    far = far * v - (@T)2.736624787e-04;
    far = far * v + (@T)1.225335621e-03;
    far = far * v - (@T)3.251834866e-03;
    far = far * v + (@T)5.697963138e-03;
    far = far * v - (@T)7.770857017e-03;
    far = far * v + (@T)9.459581453e-03;
    far = far * v + (@T)1.001689333e+00;
    far = far * v + (@T)2.832976294e+00;
    return y * (w < 5 ? near : far);
}"""

_FLOAT_ONLY_SINGLE = {
    "log_gamma": """
float mg_log_gamma_f32(float x)
{
    int sign;
    return x == -INFINITY ? x : lgammaf_r(x, &sign);
}""",
    "digamma": "float mg_digamma_f32(float x) { return (float)mg_digamma_f64(x); }",
    "zeta": "float mg_zeta_f32(float s, float q) { return (float)mg_zeta_f64(s, q); }",
    "erfinv": """
float mg_erfinv_f32(float y)
{
    const float inside = mg_erfinv_fit_f32(y);
    return fabsf(y) < 1 ? inside : y / (1 - fabsf(y)) * (fabsf(y) > 1 ? NAN : 1);
}""",
}

_SIGNED = {
    **_BOTH,
    "maximum": "@T mg_maximum_@s(@T a, @T b) { return a > b ? a : b; }",
    "minimum": "@T mg_minimum_@s(@T a, @T b) { return a < b ? a : b; }",
    "greater_or_nan": "int mg_greater_or_nan_@s(@T a, @T b) { return a > b; }",
    "less_or_nan": "int mg_less_or_nan_@s(@T a, @T b) { return a < b; }",
    # Division by 0 and of the lowest value by -1 trap; both get a divisor of 1 instead.
    "floor_divide": """
@T mg_floor_divide_@s(@T a, @T b)
{
    const int unsafe = (b == 0) | (b == -1);
    const @T divisor = unsafe ? 1 : b;
    const @T quotient = (@T)(a / divisor - ((a % divisor != 0) & ((a < 0) != (divisor < 0))));
    return b == 0 ? 0 : b == -1 ? (@T)(0 - (@U)a) : quotient;
}""",
    "remainder": """
@T mg_remainder_@s(@T a, @T b)
{
    const @T divisor = (b == 0) | (b == -1) ? 1 : b;
    const @T rest = (@T)(a % divisor);
    return (rest != 0) & ((rest < 0) != (divisor < 0)) ? (@T)(rest + divisor) : rest;
}""",
    "power": """
@T mg_power_@s(@T base, @T exponent)
{
    @U result = 1, factor = (@U)base;
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    for (@U left = (@U)exponent; left; left >>= 1) {
        if (left & 1) result = (@U)((uint64_t)result * factor);
        factor = (@U)((uint64_t)factor * factor);
    }
    return (@T)result;
}""",
    "left_shift": """
@T mg_left_shift_@s(@T a, @T b) { return (@U)b < @bits ? (@T)((uint64_t)a << b) : 0; }""",
    "right_shift": """
@T mg_right_shift_@s(@T a, @T b) { return (@U)b < @bits ? (@T)(a >> b) : (@T)(a < 0 ? -1 : 0); }""",
}

_UNSIGNED = {
    **{name: _SIGNED[name] for name in ("maximum", "minimum", "greater_or_nan", "less_or_nan")},
    **_BOTH,
    "left_shift": _SIGNED["left_shift"],
    "right_shift": """
@T mg_right_shift_@s(@T a, @T b) { return b < @bits ? (@T)(a >> b) : 0; }""",
    "floor_divide": "@T mg_floor_divide_@s(@T a, @T b) { return b == 0 ? 0 : a / (b ? b : 1); }",
    "remainder": "@T mg_remainder_@s(@T a, @T b) { return b == 0 ? 0 : a % (b ? b : 1); }",
    "power": """
@T mg_power_@s(@T base, @T exponent)
{
    @T result = 1;
    for (@T left = exponent; left; left >>= 1) {
        if (left & 1) result = (@T)((uint64_t)result * base);
        base = (@T)((uint64_t)base * base);
    }
    return result;
}""",
}


def _filled(family: Mapping[str, str], **values: str) -> dict[str, str]:
    """Return the definitions of one type, by their C names."""
    filled = {}
    for name, text in family.items():
        for key, value in values.items():
            text = text.replace(f"@{key}", value)
        filled[f"mg_{name}_{values['s']}"] = text.strip()
    return filled


def _definitions() -> dict[str, str]:
    table = {name: text.strip() for name, text in GROUPS.items()}
    for name, s, f in (("double", "f64", ""), ("float", "f32", "f")):
        family = {
            **_FLOAT,
            "erfinv_fit": _ERFINV_FIT,
            **(_FLOAT_ONLY_SINGLE if f else _FLOAT_ONLY_DOUBLE),
            **(SINGLE if f else DOUBLE),
        }
        ends = {"lowest": "-INFINITY", "highest": "INFINITY"}
        layout = {"digits": "23", "bias": "127"} if f else {"digits": "52", "bias": "1023"}
        whole = {"U": f"uint{s[1:]}_t", "I": f"int{s[1:]}_t"}
        table |= _filled(family, T=name, s=s, f=f, bits=s[1:], **layout, **whole, **ends)
    for kind, s, f in (("float", "64", "f"), ("double", "128", "")):
        # Sums of squares and hyperbolic sines neither over- nor underflow between these numbers.
        ends = {"large": "0x1p60f", "little": "0x1p-60f", "wide": "20"}
        if not f:
            ends = {"large": "0x1p500", "little": "0x1p-500", "wide": "40"}
        table |= _filled(COMPLEX, T=f"mg_c{s}", s=f"c{s}", R=kind, f=f, **ends)
    for bits in ("8", "16", "32", "64"):
        unsigned = f"uint{bits}_t"
        ends = {"lowest": f"INT{bits}_MIN", "highest": f"INT{bits}_MAX"}
        table |= _filled(_SIGNED, T=f"int{bits}_t", U=unsigned, s=f"i{bits}", bits=bits, **ends)
        ends = {"lowest": "0", "highest": f"UINT{bits}_MAX"}
        table |= _filled(_UNSIGNED, T=unsigned, U=unsigned, s=f"u{bits}", bits=bits, **ends)
    return table


HELPERS: Mapping[str, str] = _definitions()

_CALL = re.compile(r"\$(\w+)")
_NAME = re.compile(r"mg_(?<!\wmg_)\w+_[cfiu]\d+\b")  # what is searched for stands first: faster


def suffix(dtype: np.dtype) -> str:
    """Return what ends the names of helpers of a dtype; 16-bit floats compute as float.

    Examples
    --------
    >>> [suffix(np.dtype(name)) for name in ("float16", "complex64", "int8", "bool")]
    ['f32', 'c64', 'i8', 'u8']
    """
    if dtype.kind in "ciu":
        return f"{dtype.kind}{8 * dtype.itemsize}"
    if dtype.kind == "b":
        return "u8"
    return "f64" if dtype.itemsize == 8 else "f32"


def computing_type(dtype: np.dtype) -> str:
    """Return the C type that elements of a dtype are computed in.

    Examples
    --------
    >>> [computing_type(np.dtype(name)) for name in ("float16", "complex64", "int8", "bool")]
    ['float', 'mg_c64', 'int8_t', 'uint8_t']
    """
    short = suffix(dtype)
    if short[0] == "c":
        return f"mg_{short}"
    if short[0] == "f":
        return "double" if short == "f64" else "float"
    return f"{'u' if short[0] == 'u' else ''}int{short[1:]}_t"


def resolve(expression: str, dtype: np.dtype) -> str:
    """Replace ``$name`` in a scalar expression by the C function for operands of a dtype.

    Parameters
    ----------
    expression
        C with ``$name(...)`` calls and the type ``T``, as op records hold it.
    dtype
        Of the operands.

    Returns
    -------
    str
        C, except for the operands' letters.

    Raises
    ------
    KeyError
        Where there is no such function for the dtype.

    Examples
    --------
    >>> resolve("(T)1 / $exp(a)", np.dtype("float32"))
    '(float)1 / expf(a)'
    >>> resolve("$remainder(a, b)", np.dtype("int64"))
    'mg_remainder_i64(a, b)'
    """
    short = suffix(dtype)

    def function(call: re.Match[str]) -> str:
        name = call.group(1)
        if short[0] == "f" and name in LIBM:
            return LIBM[name] + ("f" if short == "f32" else "")
        helper = f"mg_{name}_{short}"
        if helper not in HELPERS:
            raise KeyError(f"${name} has no C function for {dtype.name}")
        return helper

    return re.sub(r"\bT\b", computing_type(dtype), _CALL.sub(function, expression))


@cache
def _needed(name: str) -> tuple[str, ...]:
    """Return a helper and those that it calls, callees first."""
    names: dict[str, None] = {}
    for other in _NAME.findall(HELPERS[name]):
        if other != name and other in HELPERS:
            names.update(dict.fromkeys(_needed(other)))
    return (*names, name)


def prelude(source: str, qualifier: str = "static inline") -> str:
    """Return the definitions of the helpers that a C source calls.

    Parameters
    ----------
    source
        Kernels with resolved expressions.
    qualifier
        What stands before each definition; ``"static __device__ inline"`` for CUDA.

    Returns
    -------
    str
        To be put before the source; empty where it calls none.

    Examples
    --------
    >>> print(prelude("y[i] = mg_maximum_i32(x[i], 0);"))
    static inline int32_t mg_maximum_i32(int32_t a, int32_t b) { return a > b ? a : b; }
    """
    names: dict[str, None] = {}
    for name in dict.fromkeys(_NAME.findall(source)):
        if name in HELPERS:
            names.update(dict.fromkeys(_needed(name)))
    apart = qualifier.removesuffix(" inline")  # of what is not to be copied into loops
    return "\n\n".join(
        f"{apart if 'noinline' in HELPERS[name] else qualifier} {HELPERS[name]}" for name in names
    )


# The C library's vector variants (libmvec). Declaring them lets loops around these functions
# vectorize without -ffast-math, which would change what infinities and NaN do.
_VECTOR_2_22 = {1: ("exp", "log", "sin", "cos"), 2: ("pow",)}
_VECTOR_2_35 = {
    1: (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh", "erf", "erfc"),
        *("exp2", "expm1", "log10", "log1p", "log2", "sinh", "tan", "tanh"),
    ),
    2: ("atan2", "hypot"),
}


_WORD = re.compile(r"\w+")


def _declared(table: Mapping[int, tuple[str, ...]], called: Collection[str] | None) -> str:
    lines = []
    for count, names in table.items():
        for name in names:
            for kind, f in (("double", ""), ("float", "f")):
                operands = ", ".join([kind] * count)
                if called is None or name + f in called:
                    lines.append(f"MG_VECTOR extern {kind} {name}{f}({operands});")
    return "\n".join(lines)


def vector_math(source: str | None = None) -> str:
    """Return declarations that let gcc use the C library's vector functions; guarded.

    Put them behind ``math.h``, or what `declared_math` puts in its place. Other compilers and
    libraries see nothing. Where the source is given, only what it names is declared: each
    declaration makes variants to compile.
    """
    called = None if source is None else frozenset(_WORD.findall(source))
    return f"""
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define MG_VECTOR __attribute__((simd("notinbranch"), const))
#if __GLIBC_PREREQ(2, 22)
{_declared(_VECTOR_2_22, called)}
#endif
#if __GLIBC_PREREQ(2, 35)
{_declared(_VECTOR_2_35, called)}
#endif
#endif
""".strip()
