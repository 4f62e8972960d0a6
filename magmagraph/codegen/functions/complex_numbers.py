"""Complex numbers in generated CUDA C++: a structure with operators, and functions of it.

Products are computed by the formula, and quotients by Smith's algorithm (R. L. Smith, "Algorithm
116: Complex division", Communications of the ACM 5, 1962), as kernels of the CPU have them.
"""

from __future__ import annotations

__all__ = ["COMPLEX", "COMPLEX_TYPES", "OF_PARTS"]

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

# @T is the type, @s its suffix, @R the type of the parts, @f the C library's suffix of that.
COMPLEX = {
    "real": "@R mg_real_@s(@T a) { return a.x; }",
    "imag": "@R mg_imag_@s(@T a) { return a.y; }",
    "conj": "@T mg_conj_@s(@T a) { return @T(a.x, -a.y); }",
    "absolute": "@R mg_absolute_@s(@T a) { return hypot@f(a.x, a.y); }",
    "angle": "@R mg_angle_@s(@T a) { return atan2@f(a.y, a.x); }",
    "isinf": """
bool mg_isinf_@s(@T a) { return fabs@f(a.x) == INFINITY || fabs@f(a.y) == INFINITY; }""",
    # Where the parts overflow though their cosine or sine is small, one factor is taken twice. Of
    # an infinite angle: Annex G of C99.
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
    # A quotient of infinities would be no number: exp is taken where it is at most 1.
    "sigmoid": """
@T mg_sigmoid_@s(@T a)
{
    const bool right = a.x >= 0;
    const @T small = mg_exp_@s(right ? -a : a);
    return (right ? @T(1) : small) / (@T(1) + small);
}""",
}
"""Functions of complex numbers, by the names that expressions use.

One of an operation's name takes the place of the expression that its record has for real numbers.
"""

OF_PARTS = {"complex": "@C mg_complex_@s(@T a, @T b) { return @C(a, b); }"}
"""What makes complex numbers, of type @C, of their parts."""
