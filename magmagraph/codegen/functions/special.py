"""Special functions in C that the C library does not have, for generated kernels.

Each is written once, in double, from series of positive terms, the trapezoidal rule where it
converges exponentially, and asymptotic series where their smallest term is below rounding; there
are no fitted tables. The float variants round what the double ones give.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ...ops.special.implicit import COUNT, PLACES, SERIES_BELOW, TERMS, WEIGHTS

__all__ = ["DOUBLE", "SINGLE"]


def _weights(step: float, first: float, last: float) -> tuple[str, int]:
    """Return ``exp(-t**2)`` at equally spaced points as C, and how many they are."""
    count = int((last - first) / step) + 1
    values = [math.exp(-((first + k * step) ** 2)) for k in range(count)]
    return ", ".join(map(repr, values)), count


# exp(-t**2) is below 2e-17 of its largest value behind 6.2.
_SCALED_STEP = 0.21  # in K: poles at distance sqrt(2 x) >= sqrt(2), and exp(-4 pi / step) is 1e-26
_SCALED_WEIGHTS, _SCALED_COUNT = _weights(_SCALED_STEP, 0.0, 6.2)
_MIDPOINT_WEIGHTS, _MIDPOINT_COUNT = _weights(0.5, 0.25, 6.3)

_ON_CUDA = """
#ifdef __CUDA_ARCH__
    if ({} >= 8.0) return mg_wave_f64({});
#endif
    return"""

DOUBLE: Mapping[str, str] = {
    # What POSIX's C library has in double, but not everywhere in float.
    "gamma": "double mg_gamma_f64(double x) { return tgamma(x); }",
    # CUDA's own are off by 1e-12 from 8 on.
    "j0": f"double mg_j0_f64(double x) {{{_ON_CUDA.format('fabs(x)', '0, 0, fabs(x)')} j0(x); }}",
    "j1": f"""
double mg_j1_f64(double x)
{{{_ON_CUDA.format("fabs(x)", "1, 0, fabs(x)) * copysign(1.0, x")} j1(x);
}}""",
    "y0": f"double mg_y0_f64(double x) {{{_ON_CUDA.format('x', '0, 1, x')} y0(x); }}",
    "y1": f"double mg_y1_f64(double x) {{{_ON_CUDA.format('x', '1, 1, x')} y1(x); }}",
    # Bessel functions of either kind from 8 on: from 25 by the asymptotic series, whose terms fall
    # until exp(-50) (NIST Handbook of Mathematical Functions, 10.17.3 and 10.17.4); below by the
    # recurrence from high orders down, and Neumann's series (10.8.3 and 10.12.4, Abramowitz and
    # Stegun 9.1.88).
    "wave": """
double mg_wave_f64(int order, int second, double x)
{
    if (x == INFINITY) return 0.0;
    if (x >= 25.0) {
        const double sine = sin(x), cosine = cos(x);
        const double along = order ? sine - cosine : cosine + sine;
        const double across = order ? -sine - cosine : sine - cosine;
        double term = 1.0, even = 0.0, odd = 0.0;
        for (int k = 0; k < 40 && fabs(term) > 1e-17; k++) {
            const double signed_term = k & 2 ? -term : term;
            if (k & 1) odd += signed_term;
            else even += signed_term;
            term *= (4.0 * order - (2.0 * k + 1.0) * (2.0 * k + 1.0)) / (8.0 * (k + 1) * x);
        }
        return sqrt(0.31830988618379067154 / x)
            * (second ? even * across + odd * along : even * along - odd * across);
    }
    double above = 0.0, now = 1e-300, total = 0.0, whole = 0.0, half = 0.0, first = 0.0;
    for (int k = 2 * (int)(0.5 * x) + 40; k > 0; k--) {
        const double below = 2.0 * k / x * now - above, m = k / 2;
        const double sign = (k / 2) & 1 ? -1.0 : 1.0;
        if (k == 1) first = now;
        else if (k & 1) half += sign * k * now / (m * (m + 1.0));
        else {
            total += 2.0 * now;
            whole += sign * now / m;
        }
        above = now;
        now = below;
    }
    total += now;
    if (!second) return (order ? first : now) / total;
    const double logarithm = log(0.5 * x) + 0.57721566490153286061;
    const double sum = order ? (logarithm - 1.0) * first - now / x - half
        : logarithm * now - 2.0 * whole;
    return 0.63661977236758134308 * sum / total;
}""",
    # Of exp(-|x|) I_order(x): the power series, all of whose terms are positive, up to 20, and
    # from there the asymptotic series, whose terms fall until exp(-40)
    # (NIST Handbook of Mathematical Functions, 10.25.2 and 10.40.1).
    "scaled_i": """
double mg_scaled_i_f64(double order, double x)
{
    double term = 1.0, sum = 1.0;
    if (x <= 20.0) {
        const double square = 0.25 * x * x;
        for (int k = 1; k < 80 && term > 1e-17 * sum; k++) {
            term *= square / (k * (k + order));
            sum += term;
        }
        return sum * exp(-x) * (order == 0 ? 1.0 : 0.5 * x);
    }
    for (int k = 1; k < 30 && fabs(term) > 1e-17; k++) {
        term *= ((2 * k - 1.0) * (2 * k - 1.0) - 4.0 * order * order) / (8.0 * k * x);
        sum += term;
    }
    return x == INFINITY ? 0.0 : 0.39894228040143267794 * sum / sqrt(x);
}""",
    "i0e": "double mg_i0e_f64(double x) { return x != x ? x : mg_scaled_i_f64(0.0, fabs(x)); }",
    "i1e": """
double mg_i1e_f64(double x)
{
    return x != x ? x : copysign(mg_scaled_i_f64(1.0, fabs(x)), x);
}""",
    # exp is taken in two factors, of which none overflows before the result does.
    "i0": """
double mg_i0_f64(double x)
{
    const double half = exp(0.5 * fabs(x));
    return fabs(x) == INFINITY ? INFINITY : mg_i0e_f64(x) * half * half;
}""",
    "i1": """
double mg_i1_f64(double x)
{
    const double half = exp(0.5 * fabs(x));
    return fabs(x) == INFINITY ? x : mg_i1e_f64(x) * half * half;
}""",
    # exp(x) K_order(x) is the integral of exp(-x (cosh t - 1)) cosh(order t) over t > 0 (10.32.9);
    # with v = sqrt(2 x) sinh(t / 2) it is one of exp(-v**2) times a smooth function.
    "scaled_k": f"""
double mg_scaled_k_f64(double order, double x)
{{
    static const double weights[{_SCALED_COUNT}] = {{{_SCALED_WEIGHTS}}};
    double sum = 0.5;
    for (int k = 1; k < {_SCALED_COUNT}; k++) {{
        const double v = {_SCALED_STEP!r} * k, ratio = v * v / x;
        sum += weights[k] * (1.0 + order * ratio) / sqrt(1.0 + 0.5 * ratio);
    }}
    return sum * {_SCALED_STEP * math.sqrt(2.0)!r} / sqrt(x);
}}""",
    # Below 1 the series about the logarithm (10.31.1 and 10.31.2).
    "k0e": """
double mg_k0e_f64(double x)
{
    if (!(x > 0)) return x == 0 ? INFINITY : NAN;
    if (x > 1.0) return x == INFINITY ? 0.0 : mg_scaled_k_f64(0.0, x);
    const double square = 0.25 * x * x, lead = 0.11593151565841244881 - log(x);
    double term = 1.0, harmonic = 0.0, sum = lead;
    for (int k = 1; k < 16; k++) {
        term *= square / ((double)k * k);
        harmonic += 1.0 / k;
        sum += term * (lead + harmonic);
    }
    return sum * exp(x);
}""",
    "k1e": """
double mg_k1e_f64(double x)
{
    if (!(x > 0)) return x == 0 ? INFINITY : NAN;
    if (x > 1.0) return x == INFINITY ? 0.0 : mg_scaled_k_f64(1.0, x);
    const double square = 0.25 * x * x, lead = log(x) - 0.11593151565841244881;
    double term = 0.5 * x, harmonic = 0.5, sum = term * (lead - harmonic);
    for (int k = 1; k < 16; k++) {
        term *= square / (k * (k + 1.0));
        harmonic += 0.5 / k + 0.5 / (k + 1.0);
        sum += term * (lead - harmonic);
    }
    return (1.0 / x + sum) * exp(x);
}""",
    "k0": """
double mg_k0_f64(double x) { return x == INFINITY ? 0.0 : mg_k0e_f64(x) * exp(-x); }""",
    "k1": """
double mg_k1_f64(double x) { return x == INFINITY ? 0.0 : mg_k1e_f64(x) * exp(-x); }""",
    # exp(x**2) erfc(x) is 2 x / pi times the integral of exp(-t**2) / (x**2 + t**2) over t > 0:
    # the midpoint rule, and the residue at t = i x (M. Goodwin, 1949; F. Matta, A. Reichel, 1971).
    "erfcx": f"""
double mg_erfcx_f64(double x)
{{
    static const double weights[{_MIDPOINT_COUNT}] = {{{_MIDPOINT_WEIGHTS}}};
    const double size = fabs(x), square = x * x;
    double sum = 0.0, result;
    if (x != x) return x;
    if (size > 1e8) {{
        result = 0.56418958354775628695 / size;
    }} else {{
        for (int k = {_MIDPOINT_COUNT - 1}; k >= 0; k--) {{
            const double t = 0.5 * k + 0.25;
            sum += weights[k] / (square + t * t);
        }}
        result = 0.31830988618379067154 * size * sum;
        if (size < 6.3) {{
            const double turn = 12.56637061435917295385 * size;
            result += 2.0 * exp(square - turn) / (1.0 + exp(-turn));
        }}
    }}
    if (x >= 0) return result;
    /* The square's own rounding, which exp would multiply. */
    return 2.0 * exp(square) * (1.0 + (square < 1e4 ? fma(x, x, -square) : 0.0)) - result;
}}""",
    "log_ndtr": """
double mg_log_ndtr_f64(double x)
{
    const double t = -0.70710678118654752440 * x;
    if (x > -1.0) return log1p(-0.5 * erfc(-t));
    return x == -INFINITY ? x : log(0.5 * mg_erfcx_f64(t)) - 0.5 * x * x;
}""",
    # Newton's method on log(erfc(x)) = -target, for targets above 2, from the leading term.
    "log_erfc_inverse": """
double mg_log_erfc_inverse_f64(double target)
{
    double x = sqrt(target - 0.5 * (log(target) + 1.14472988584940017414));
    if (target > 1e20) return x; /* exact, and x * x may overflow */
    for (int i = 0; i < 4; i++) {
        const double scaled = mg_erfcx_f64(x);
        x += (log(scaled) - x * x + target) * 0.88622692545275801365 * scaled;
    }
    return x;
}""",
    "erfcinv": """
double mg_erfcinv_f64(double y)
{
    const double small = y > 1 ? 2.0 - y : y;
    double x;
    if (!(small > 0)) return small == 0 ? copysign(INFINITY, 1.0 - y) : NAN;
    if (small > 0.1) return mg_erfinv_f64(1.0 - y);
    x = mg_log_erfc_inverse_f64(-log(small));
    return y > 1 ? -x : x;
}""",
    "ndtri_exp": """
double mg_ndtri_exp_f64(double y)
{
    if (!(y < 0)) return y == 0 ? INFINITY : NAN;
    if (y == -INFINITY) return y;
    if (y > -0.5) return 1.41421356237309504880 * mg_erfcinv_f64(-2.0 * expm1(y));
    if (y > -3.0) return -1.41421356237309504880 * mg_erfcinv_f64(2.0 * exp(y));
    return -1.41421356237309504880 * mg_log_erfc_inverse_f64(-0.69314718055994530942 - y);
}""",
    "log_add_exp": """
double mg_log_add_exp_f64(double a, double b)
{
    const double top = a > b ? a : b, other = a > b ? b : a;
    return other == -INFINITY ? top : top + log1p(exp(other - top));
}""",
    # As the array expression in `magmagraph.ops.random.quantile` says.
    "truncated_normal": """
double mg_truncated_normal_f64(double low, double high, double log_rank, double log_rest)
{
    const double below = mg_log_add_exp_f64(log_rest + mg_log_ndtr_f64(low),
                                            log_rank + mg_log_ndtr_f64(high));
    const double above = mg_log_add_exp_f64(log_rest + mg_log_ndtr_f64(-low),
                                            log_rank + mg_log_ndtr_f64(-high));
    const double x = above < below ? -mg_ndtri_exp_f64(above) : mg_ndtri_exp_f64(below);
    return x < low ? low : x > high ? high : x;
}""",
    "gammasgn": """
double mg_gammasgn_f64(double x)
{
    if (x != x) return x;
    if (x > 0) return 1.0;
    if (x == 0) return copysign(1.0, x);
    return x == floor(x) ? NAN : fmod(floor(x), 2.0) == 0 ? 1.0 : -1.0;
}""",
    "rgamma": """
double mg_rgamma_f64(double x)
{
    int sign;
    if (x <= 0 && x == floor(x)) return x == 0 ? x : 0.0;
    if (fabs(x) < 1e-300) return x;
    if (x > 171.0) return exp(-lgamma_r(x, &sign));
    return 1.0 / tgamma(x);
}""",
    # What Stirling's formula leaves of log(gamma(x)), from 10 on.
    "stirling_rest": """
double mg_stirling_rest_f64(double x)
{
    const double square = 1.0 / (x * x);
    return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680
        - square * (1.0 / 1188 - square * (691.0 / 360360 - square / 156)))))) / x;
}""",
    # Large parts of the three logarithms of gamma cancel by formula, not by subtraction.
    "betaln": """
double mg_betaln_f64(double x, double y)
{
    const double a = x < y ? x : y, b = x < y ? y : x, sum = a + b;
    double rest;
    int sign;
    if (a != a || b != b) return NAN;
    if (a <= 0 && a == floor(a)) /* a pole, unless that of the sum divides it out */
        return b == floor(b) && sum < 1.0 ? mg_betaln_f64(1.0 - sum, b) : INFINITY;
    if (!(a > 0) || b < 10 || b == INFINITY) {
        if (a > 0 && b == INFINITY) return -INFINITY;
        return lgamma_r(a, &sign) + lgamma_r(b, &sign) - lgamma_r(sum, &sign);
    }
    rest = mg_stirling_rest_f64(b) - mg_stirling_rest_f64(sum) - (b - 0.5) * log1p(a / b);
    if (a < 10) return lgamma_r(a, &sign) - a * log(sum) + a + rest;
    return rest + mg_stirling_rest_f64(a) + 0.91893853320467274178 - (a - 0.5) * log1p(b / a)
        - 0.5 * log(sum);
}""",
    "logit": """
double mg_logit_f64(double x)
{
    const double turned = 2.0 * (x - 0.5);
    return fabs(turned) < 0.4 ? log1p(turned) - log1p(-turned) : log(x / (1.0 - x));
}""",
    "xlogy": """
double mg_xlogy_f64(double x, double y) { return x == 0 && y == y ? 0 : x * log(y); }""",
    "xlog1py": """
double mg_xlog1py_f64(double x, double y) { return x == 0 && y == y ? 0 : x * log1p(y); }""",
    # The integral of t**n exp(x t) over 0 < t < 1: a series of positive terms on either side of 0
    # (13.2.2 and 13.2.39), and integration by parts where that would be long.
    "exprel": """
double mg_exprel_f64(double n, double x)
{
    const double size = fabs(x);
    double term = 1.0 / (n + 1.0), sum = term;
    if (x != x) return x;
    if (size > n + 20.0) {
        sum = x > 0 ? exp(0.5 * x) / x * exp(0.5 * x) - 1.0 / x : expm1(x) / x;
        for (double k = 1.0; k <= n && sum != INFINITY; k++) /* no infinity minus infinity */
            sum = x > 0 ? exp(0.5 * x) / x * exp(0.5 * x) - k * sum / x : (exp(x) - k * sum) / x;
        return x == INFINITY ? x : sum;
    }
    for (int k = 1; k < 200 && term > 1e-17 * sum; k++) {
        term *= x > 0 ? x / k * ((n + k) / (n + k + 1.0)) : size / (n + 1.0 + k);
        sum += term;
    }
    return x > 0 ? sum : sum * exp(x);
}""",
    # As `magmagraph.ops.special.implicit` says.
    "log_gamma_slope": f"""
double mg_log_gamma_slope_f64(double a, double y)
{{
    static const double places[{COUNT}] = {{{", ".join(map(repr, PLACES))}}};
    static const double weights[{COUNT}] = {{{", ".join(map(repr, WEIGHTS))}}};
    const double x = exp(y);
    const int above = x > a;
    double width, lead, total = 0.0, moment = 0.0;
    if (!(a > 0 && a < INFINITY && fabs(y) < INFINITY)) return NAN;
    if (x <= a + 1.0 && a < {SERIES_BELOW!r}) {{
        double term = 1.0 / a, harmonic = 0.0;
        total = term;
        for (int n = 1; n < {TERMS}; n++) {{
            term *= x / (a + n);
            harmonic += 1.0 / (a + n);
            total += term;
            moment += term * harmonic;
            if (term * harmonic < 1e-17 * moment && term < 1e-17 * total) break;
        }}
        return moment - (y - mg_digamma_f64(a + 1.0)) * total;
    }}
    width = above ? x - a + 1.0 : a - x;
    width = width > sqrt(a) ? width : sqrt(a);
    for (int k = 0; k < {COUNT}; k++) {{
        const double s = places[k] / width, factor = above ? log1p(s) : s;
        const double term = weights[k]
            * exp(above ? (a - 1.0) * factor - x * s : -a * s - x * expm1(-s));
        total += term;
        moment += term * factor;
    }}
    lead = y - mg_digamma_f64(a);
    return (above ? lead * total + moment : moment - lead * total) / width;
}}""",
    # Arithmetic and geometric means (19.8.1 and 19.8.5); m1 is 1 - m.
    "ellipkm1": """
double mg_ellipkm1_f64(double m1)
{
    double a = 1.0, g = sqrt(m1);
    if (!(m1 > 0)) return m1 == 0 ? INFINITY : NAN;
    if (m1 == INFINITY) return 0.0;
    for (int k = 0; k < 40 && fabs(a - g) > 1e-8 * a; k++) {
        const double mean = 0.5 * (a + g);
        g = sqrt(a * g);
        a = mean;
    }
    return 3.14159265358979323846 / (a + g);
}""",
}

_PARAMETERS = re.compile(r"(?:double|int) (\w+)(?=[,)])")


def _single(name: str, definition: str) -> str:
    """Return the float variant of a definition, which rounds its result."""
    head = definition[: definition.index(")") + 1]
    operands = ", ".join(_PARAMETERS.findall(head))
    head = head.replace("double", "float").replace("_f64", "_f32")
    return f"{head.strip()} {{ return (float)mg_{name}_f64({operands}); }}"


SINGLE: Mapping[str, str] = {name: _single(name, text) for name, text in DOUBLE.items()}
