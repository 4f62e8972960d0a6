"""exp, tanh and erf of float32 by polynomials, in place of the C library's.

The C library's vector variants take two to three times as long: they keep more digits and are
called, which spills registers. These are computed in the loop. tanh and erf are
``x P(x^2) / Q(x^2)``, cut to [-1, 1]: the operand is cut where the quotient is above 1, so that the
result is exactly 1 from there on, and ``1 - tanh(x)^2`` is 0 and never negative. The
coefficients are least squares fits of the relative error on Chebyshev points, their weights moved
to where the error was largest until it was level (Lawson's iteration): 2.1e-8 for both before
rounding. In float32 they are within 5 (tanh) and 6 (erf) units in the last place, three quarters of
what the row "exact" of the tolerance table allows. NaN and the sign of zero stay.

exp is ``2^n (1 + r + r^2 Q(r))`` with ``x = n log(2) + r``; Q is fitted likewise (4e-9), and the
result is within 0.9 units in the last place. The range is cut below as a float, which keeps NaN,
and above by comparing bits as integers: two choices between floats would become branches of each
other, and blends of all that lies between. 2^n is two factors, so that subnormal results keep their
digits; one where the operand is known to be at most zero (`codegen.exponents`): the same bits. Of
groups of lanes (`groups`) it is written in operators of vectors, operation by operation the same.

What is added up and nothing else (`codegen.unkept`) has a form of its own in groups of sixteen
lanes: ``2^n`` is a power of two times one of its sixteen roots, which one instruction finds by the
last bits of n, and r so small that Q has two coefficients. These are 12 instructions, in place of
16 and more, in a chain of three quarters, for operands of all sizes: within 1.01 units in the last
place.
"""

from __future__ import annotations

import math
import struct

__all__ = ["GROUP_EXPONENTIALS", "RATIONALS"]

_QUOTIENT = """
/* Where a * b + c is one instruction; without, the C library's function is no slower. */
#if defined(__FP_FAST_FMAF)
static inline float mg_{name}(float x)
{{
    const float c = x > {top}f ? {top}f : x < -{top}f ? -{top}f : x;
    const float z = c * c;
    const float quotient = c * {above} / {below};
    return quotient > 1.0f ? 1.0f : quotient < -1.0f ? -1.0f : quotient;
}}
#define {name} mg_{name}
#endif
"""

_EXP = """
#if defined(__FP_FAST_FMAF)
/* Not static: a constant that the compiler knows is compared and chosen, two instructions with a
   mask between them, where one takes the larger. 0 from there on. */
float mg_expf_least = -104.0f;
static inline float mg_expf(float x)
{
    union { float f; uint32_t u; int32_t i; } t, low, high;
    const float c = x < mg_expf_least ? mg_expf_least : x;
    /* n is what adding 1.5 * 2^23 + 254 rounds to; n + 254 stands in the last bits of the sum, and
       half of it is an exponent with its bias. */
    t.f = fmaf(c, 1.442695f, 0x1.8001fcp23f);
    t.i = t.i < 0x4b4000fe + 129 ? t.i : 0x4b4000fe + 129;
    const float n = t.f - 0x1.8001fcp23f;
    const float r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, c));
    const uint32_t half = t.u >> 1;
    low.u = half << 23;
    high.u = (t.u - half) << 23;
    const float q = {q};
    return fmaf(fmaf(q, r, 1.0f), r, 1.0f) * low.f * high.f;
}
#define expf mg_expf
#endif
"""

# As expf, of what is at most 0 or NaN; `cut`: also of more, where the result is positive or NaN.
_EXP_BELOW = """
#if defined(__FP_FAST_FMAF)
float mg_expf_{name}_least = -104.0f; /* as for expf */
static inline float mg_expf_{name}(float x)
{
    union { float f; uint32_t u; int32_t i; } t, power;
    const float c = x < mg_expf_{name}_least ? mg_expf_{name}_least : x;
    /* n + 151 stands in the last bits: the exponent of 2^(n + 24). The polynomial lacks 2^24. */
    t.f = fmaf(c, 1.442695f, 0x1.80012ep23f);{cut}
    const float n = t.f - 0x1.80012ep23f;
    const float r = fmaf(n, 0x1.05c61p-29f, fmaf(n, -0x1.62e43p-1f, c));
    power.u = t.u << 23;
    const float q = {q};
    return fmaf(fmaf(q, r, 0x1p-24f), r, 0x1p-24f) * power.f;
}
#else
#define mg_expf_{name}(x) expf(x)
#endif
"""
_CUT = "\n    t.i = t.i < 0x4b400097 ? t.i : 0x4b400097;"
_EXPONENTIAL = (0.49999994, 0.1666652, 0.0416684, 0.008368852, 0.001381432)


def _scaled() -> list[str]:
    """Return the literals of the coefficients over 2**24, the constant first."""
    return [f"{(_single(c) * 2.0**-24).hex()}f" for c in _EXPONENTIAL]


def _single(number: float) -> float:
    """Return the nearest float32."""
    single: float = struct.unpack("f", struct.pack("f", number))[0]
    return single


def _exponential_below(name: str, cut: str) -> str:
    text = ""
    for literal in reversed(_scaled()):
        text = f"fmaf({text}, r, {literal})" if text else literal
    return _EXP_BELOW.replace("{name}", name).replace("{cut}", cut).replace("{q}", text)


# Of a group, as the functions of one number say; where there is no such group, by them.
_GROUP_EXP = """
mg_group_f32 mg_group_{name}_f32(mg_group_f32 x)
{
#if MG_GROUP
    const mg_group_f32 c = mg_group_larger_f32(mg_group_all_f32(-104.0f), x);
    const mg_group_f32 sum =
        mg_group_fma_f32(c, mg_group_all_f32(1.442695f), mg_group_all_f32({shift}));
    const mg_group_i32 t = {t};
    const mg_group_f32 n = (mg_group_f32)t - {shift};
    mg_group_f32 r = mg_group_fma_f32(n, mg_group_all_f32(-0x1.62e43p-1f), c);
    r = mg_group_fma_f32(n, mg_group_all_f32(0x1.05c61p-29f), r);
    mg_group_f32 q = mg_group_all_f32({first});
{steps}
{power}
#else
    float lane[mg_lanes_f32];
    mg_group_store_f32(lane, x);
    #pragma omp simd
    for (int l = 0; l < mg_lanes_f32; l++) lane[l] = {function}(lane[l]);
    return mg_group_load_f32(lane);
#endif
}"""
# Of what is added up alone. A sum near 1.5 * 2^19 has sixteenths of n in its last bits.
_GROUP_EXP_SUMMED = """
mg_group_f32 mg_group_{name}_summed_f32(mg_group_f32 x)
{
#if MG_GROUP == 512
    const mg_group_f32 roots = {{roots}};
    const mg_group_f32 c = mg_group_larger_f32(mg_group_all_f32(-104.0f), x);
    const mg_group_f32 sum =
        mg_group_fma_f32(c, mg_group_all_f32(1.442695f), mg_group_all_f32(0x1.8p19f));
    const mg_group_i32 t =
        mg_group_smaller_i32((mg_group_i32)sum, (mg_group_i32){0} + 0x49400810); /* n = 129 */
    const mg_group_f32 n = (mg_group_f32)t - 0x1.8p19f;
    mg_group_f32 r = mg_group_fma_f32(n, mg_group_all_f32(-0x1.62e43p-1f), c);
    r = mg_group_fma_f32(n, mg_group_all_f32(0x1.05c61p-29f), r);
    const mg_group_f32 root = __builtin_ia32_permvarsf512_mask(roots, t, roots, -1);
    mg_group_f32 q = mg_group_fma_f32(mg_group_all_f32({c3}), r, mg_group_all_f32({c2}));
    q = mg_group_fma_f32(q, r, mg_group_all_f32(1.0f));
    q = mg_group_fma_f32(root, q * r, root);
    return __builtin_ia32_scalefps512_mask(q, n, q, -1, 4); /* q 2^floor(n) */
#else
    return mg_group_{name}_f32(x);
#endif
}"""
_GROUP_POWERS = """\
    const mg_group_i32 half = t >> 1;
    return q * (mg_group_f32)(half << 23) * (mg_group_f32)((t - half) << 23);"""
_GROUP_POWER = "    return q * (mg_group_f32)(t << 23);"


def _group_exponential(name: str, top: str) -> str:
    """Return exp of groups, of any number or of numbers that are at most zero; `top` bounds t."""
    below = name != "exp"
    one = "0x1p-24f" if below else "1.0f"
    literals = _scaled() if below else [f"{c!r}f" for c in _EXPONENTIAL]
    steps = [*literals[-2::-1], one, one]
    t = "(mg_group_i32)sum"
    line = "    q = mg_group_fma_f32(q, r, mg_group_all_f32({}));"
    values = {
        "name": name,
        "shift": "0x1.80012ep23f" if below else "0x1.8001fcp23f",
        "t": f"mg_group_smaller_i32({t}, (mg_group_i32){{0}} + ({top}))" if top else t,
        "first": literals[-1],
        "steps": "\n".join(map(line.format, steps)),
        "power": _GROUP_POWER if below else _GROUP_POWERS,
        "function": name.replace("exp", "mg_expf") if below else "expf",
    }
    text = _GROUP_EXP
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _group_exponential_summed(name: str) -> str:
    literals = [f"{_single(2.0 ** (i / 16)).hex()}f" for i in range(16)]
    rows = (", ".join(literals[i : i + 4]) for i in range(0, 16, 4))
    roots = ",\n        ".join(rows)
    # exp(r) - 1 - r over r^2, level over |r| up to log(2) / 32.
    c2, c3 = 0.5 + (math.log(2) / 32) ** 2 / 48, 1 / 6
    text = _GROUP_EXP_SUMMED.replace("{name}", name)
    text = text.replace("{roots}", f"\n        {roots},\n    ")
    return text.replace("{c2}", f"{c2:.9f}f").replace("{c3}", f"{c3:.9f}f")


_TOPS = {"exp": "0x4b4000fe + 129", "exp_below": "", "exp_within": "0x4b400097"}
GROUP_EXPONENTIALS = {
    **{f"mg_group_{name}_f32": _group_exponential(name, top) for name, top in _TOPS.items()},
    **{f"mg_group_{name}_summed_f32": _group_exponential_summed(name) for name in _TOPS},
}
"""exp of groups of lanes, by name: `groups` says what they are made of."""


def _horner(coefficients: tuple[float, ...], z: str = "z") -> str:
    """Return the polynomial in z with these coefficients, the constant first."""
    text = f"{coefficients[-1]!r}f"
    for coefficient in reversed(coefficients[:-1]):
        text = f"fmaf({text}, {z}, {coefficient!r}f)"
    return text


def _quotient(name: str, top: float, above: tuple[float, ...], below: tuple[float, ...]) -> str:
    return _QUOTIENT.format(name=name, top=top, above=_horner(above), below=_horner(below))


RATIONALS = {
    "expf(": _EXP.replace("{q}", _horner(_EXPONENTIAL, "r")),
    "mg_expf_below(": _exponential_below("below", ""),
    "mg_expf_within(": _exponential_below("within", _CUT),
    "tanhf(": _quotient(
        "tanhf",
        9.5,
        (1.0, 0.13379705, 0.0034940192, 2.058323e-05, 1.3318735e-08),
        (1.0, 0.4671302, 0.025871014, 0.00032830677, 7.761879e-07),
    ),
    "erff(": _quotient(
        "erff",
        4.15,
        (1.1283791, 0.19154957, 0.0528753, 0.003808114, 0.00028468418, 2.0258833e-06),
        (1.0, 0.50308905, 0.114559278, 0.015054999, 0.0011707095, 3.7831355e-05),
    ),
}
"""Definitions, by a text that occurs in sources that call the function."""
