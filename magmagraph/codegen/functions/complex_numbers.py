"""Complex numbers in generated CUDA C++: a structure with operators, and functions of it.

Products are computed by the formula, and quotients by Smith's algorithm (R. L. Smith, "Algorithm
116: Complex division", Communications of the ACM 5, 1962), as kernels of the CPU have them.
"""

from __future__ import annotations

__all__ = ["COMPLEX", "COMPLEX_TYPES"]

# Memory holds the real part, then the imaginary one; both are moved at once.
COMPLEX_TYPES = """
template <typename T> struct alignas(2 * sizeof(T)) mg_complex {
    T x, y;
    mg_complex() = default;
    __device__ mg_complex(T real, T imaginary = 0) : x(real), y(imaginary) {}
    template <typename U> __device__ explicit mg_complex(mg_complex<U> other)
        : x((T)other.x), y((T)other.y) {}
    __device__ mg_complex operator-() const { return {-x, -y}; }
    friend __device__ __forceinline__ mg_complex operator+(mg_complex p, mg_complex q)
    {
        return {p.x + q.x, p.y + q.y};
    }
    friend __device__ __forceinline__ mg_complex operator-(mg_complex p, mg_complex q)
    {
        return {p.x - q.x, p.y - q.y};
    }
    friend __device__ __forceinline__ mg_complex operator*(mg_complex p, mg_complex q)
    {
        return {p.x * q.x - p.y * q.y, p.x * q.y + p.y * q.x};
    }
    friend __device__ __forceinline__ mg_complex operator/(mg_complex p, mg_complex q)
    {
        const T u = q.x < 0 ? -q.x : q.x, v = q.y < 0 ? -q.y : q.y;
        const T none = 0;
        if (u == 0 && v == 0) return {p.x / none, p.y / none};
        const bool first = u >= v;
        const T large = first ? q.x : q.y, small = first ? q.y : q.x, ratio = small / large;
        const T scale = 1 / (large + small * ratio);
        return {((first ? p.x : p.y) + (first ? p.y : p.x) * ratio) * scale,
                first ? (p.y - p.x * ratio) * scale : (p.y * ratio - p.x) * scale};
    }
    friend __device__ __forceinline__ bool operator==(mg_complex p, mg_complex q)
    {
        return p.x == q.x && p.y == q.y;
    }
    friend __device__ __forceinline__ bool operator!=(mg_complex p, mg_complex q)
    {
        return !(p == q);
    }
};
typedef mg_complex<float> mg_c64;
typedef mg_complex<double> mg_c128;
"""
"""What a source begins with that computes with complex numbers."""

# @T is the type, @s its suffix, @R the type of the parts, @f the C library's suffix of that. What
# they give for infinities is that of Annex G of C99.
COMPLEX = {
    "real": "@R mg_real_@s(@T a) { return a.x; }",
    "imag": "@R mg_imag_@s(@T a) { return a.y; }",
    "conj": "@T mg_conj_@s(@T a) { return @T(a.x, -a.y); }",
    "absolute": "@R mg_absolute_@s(@T a) { return hypot@f(a.x, a.y); }",
    "angle": "@R mg_angle_@s(@T a) { return atan2@f(a.y, a.x); }",
    "isinf": """
bool mg_isinf_@s(@T a) { return fabs@f(a.x) == INFINITY || fabs@f(a.y) == INFINITY; }""",
    # -i b, which makes circular functions of i a of hyperbolic ones of a.
    "back": "@T mg_back_@s(@T b) { return @T(b.y, -b.x); }",
    "ahead": "@T mg_ahead_@s(@T a) { return @T(-a.y, a.x); }",
    # Where the parts overflow though their cosine or sine is small, one factor is taken twice.
    "exp": """
@T mg_exp_@s(@T a)
{
    if (a.y == 0) return @T(exp@f(a.x), a.y);
    if (a.y - a.y != 0 && a.x - a.x != 0 && a.x == a.x)
        return a.x < 0 ? @T(0, 0) : @T(a.x, a.y - a.y);
    const @R size = exp@f(a.x), half = exp@f(a.x / 2), c = cos@f(a.y), s = sin@f(a.y);
    const bool over = size == INFINITY && a.x < INFINITY;
    return over ? @T(half * c * half, half * s * half) : @T(size * c, size * s);
}""",
    # Near a size of 1 its logarithm is that of what the sum of squares is above 1, each of which
    # is taken with what its rounding leaves over.
    "log_size": """
@R mg_log_size_@s(@T a)
{
    const @R u = fabs@f(a.x), v = fabs@f(a.y), p = u > v ? u : v, q = u > v ? v : u;
    if (p > @large) return log@f(hypot@f(p / 4, q / 4)) + (@R)1.3862943611198906;
    if (p < @little) return log@f(hypot@f(p * @large, q * @large)) - log@f(@large);
    const @R first = p * p, second = q * q, sum = first + second;
    if (!(sum > (@R)0.5 && sum < 2)) return log@f(hypot@f(p, q));
    const @R more = first - 1, left = first - (more + 1);
    const @R lost = fma@f(p, p, -first) + fma@f(q, q, -second) + left;
    return log1p@f(more + second + lost) / 2;
}""",
    "log": "@T mg_log_@s(@T a) { return @T(mg_log_size_@s(a), atan2@f(a.y, a.x)); }",
    "log2": """
@T mg_log2_@s(@T a)
{
    const @T b = mg_log_@s(a);
    return @T(b.x * (@R)1.4426950408889634, b.y * (@R)1.4426950408889634);
}""",
    "log10": """
@T mg_log10_@s(@T a)
{
    const @T b = mg_log_@s(a);
    return @T(b.x * (@R)0.4342944819032518, b.y * (@R)0.4342944819032518);
}""",
    # The root of half of what the size and the real part are together, without their overflow.
    "sqrt": """
@T mg_sqrt_@s(@T a)
{
    const @R u = fabs@f(a.x), v = fabs@f(a.y), large = u > v ? u : v;
    if (u == 0 && v == 0) return @T(0, a.y);
    if (v == INFINITY) return @T(v, a.y);
    if (u == INFINITY) {
        const @R none = a.y - a.y;
        return a.x > 0 ? @T(a.x, copysign@f(none, a.y)) : @T(fabs@f(none), copysign@f(u, a.y));
    }
    const bool far = large > @large, near = large < @little;
    const @R scale = far ? (@R)0.0625 : near ? @large : 1;
    const @R back = far ? (@R)4 : near ? 1 / sqrt@f(@large) : 1;
    const @R x = u * scale, y = v * scale, root = sqrt@f((x + hypot@f(x, y)) / 2);
    const @R one = root * back, other = y / (2 * root) * back;
    return a.x >= 0 ? @T(one, copysign@f(other, a.y)) : @T(other, copysign@f(one, a.y));
}""",
    "sinh": """
@T mg_sinh_@s(@T a)
{
    if (a.y == 0) return @T(sinh@f(a.x), a.y);
    if (a.x == 0) return @T(a.x, sin@f(a.y));
    if (fabs@f(a.x) == INFINITY && a.y - a.y != 0) return @T(INFINITY, a.y - a.y);
    const @R c = cos@f(a.y), s = sin@f(a.y), size = fabs@f(a.x), half = exp@f(size / 2);
    if (size > @wide) return @T(copysign@f(half * c / 2 * half, a.x * c), half * s / 2 * half);
    return @T(sinh@f(a.x) * c, cosh@f(a.x) * s);
}""",
    "cosh": """
@T mg_cosh_@s(@T a)
{
    if (a.y == 0) return @T(cosh@f(a.x), a.y * copysign@f((@R)1, a.x));
    if (a.x == 0) return @T(cos@f(a.y), a.y - a.y == 0 ? a.x * sin@f(a.y) : a.x);
    if (fabs@f(a.x) == INFINITY && a.y - a.y != 0) return @T(INFINITY, a.y - a.y);
    const @R c = cos@f(a.y), s = sin@f(a.y), size = fabs@f(a.x), half = exp@f(size / 2);
    if (size > @wide) return @T(half * c / 2 * half, copysign@f(half * s / 2 * half, a.x * s));
    return @T(cosh@f(a.x) * c, sinh@f(a.x) * s);
}""",
    # W. Kahan, "Branch cuts for complex elementary functions", 1987.
    "tanh": """
@T mg_tanh_@s(@T a)
{
    const @R size = fabs@f(a.x);
    if (a.y == 0) return @T(tanh@f(a.x), a.y);
    if (a.x == 0) return @T(a.x, tan@f(a.y));
    if (size == INFINITY)
        return @T(copysign@f((@R)1, a.x), a.y - a.y == 0 ? copysign@f((@R)0, sin@f(2 * a.y)) : 0);
    if (size > @wide && a.y - a.y == 0) {
        const @R less = exp@f(-size);
        return @T(copysign@f((@R)1, a.x), 4 * sin@f(a.y) * cos@f(a.y) * less * less);
    }
    const @R t = tan@f(a.y), s = sinh@f(a.x), beta = 1 + t * t, rho = sqrt@f(1 + s * s);
    const @R below = 1 + beta * s * s;
    return @T(beta * rho * s / below, t / below);
}""",
    "sin": "@T mg_sin_@s(@T a) { return mg_back_@s(mg_sinh_@s(mg_ahead_@s(a))); }",
    "cos": "@T mg_cos_@s(@T a) { return mg_cosh_@s(mg_ahead_@s(a)); }",
    "tan": "@T mg_tan_@s(@T a) { return mg_back_@s(mg_tanh_@s(mg_ahead_@s(a))); }",
    # As NumPy has it: of small whole exponents products, of 0 only what has a limit.
    "power": """
@T mg_power_@s(@T a, @T b)
{
    if (b.x == 0 && b.y == 0) return @T(1);
    if (a.x == 0 && a.y == 0) return b.x > 0 ? @T(0) : @T(NAN, NAN);
    const bool whole = b.y == 0 && fabs@f(b.x) < 100 && b.x == (int)b.x;
    if (!whole) return mg_exp_@s(b * mg_log_@s(a));
    int left = (int)fabs@f(b.x);
    @T factor = a;
    for (; !(left & 1); left >>= 1) factor = factor * factor;
    @T result = factor;
    while (left >>= 1) {
        factor = factor * factor;
        if (left & 1) result = result * factor;
    }
    return b.x < 0 ? @T(1) / result : result;
}""",
    # A quotient of infinities would be no number: exp is taken where it is at most 1.
    "sigmoid": """
@T mg_sigmoid_@s(@T a)
{
    const bool right = a.x >= 0;
    const @T small = mg_exp_@s(right ? -a : a);
    return (right ? @T(1) : small) / (@T(1) + small);
}""",
}
"""Functions of complex numbers, by the names that expressions use."""
