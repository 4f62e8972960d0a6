"""Declarations of the C library's functions that a source calls, in place of ``math.h``.

The header takes a compiler longer than many a kernel. It is included all the same where a source
calls a function, or names a constant, that is not known here.
"""

from __future__ import annotations

import re

__all__ = ["declared_math"]

_OPERANDS = {
    **dict.fromkeys(("atan2", "copysign", "fmod", "hypot", "pow"), 2),
    **dict.fromkeys(
        (
            *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh"),
            *("erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "log", "log10", "log1p"),
            *("log2", "rint", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
        ),
        1,
    ),
    "fma": 3,
}
_KNOWN = {
    f"{name}{end}": f"extern {kind} {name}{end}({', '.join([kind] * count)});"
    for name, count in _OPERANDS.items()
    for kind, end in (("double", ""), ("float", "f"))
}
_KNOWN["lgamma_r"] = "extern double lgamma_r(double, int *);"
_CONSTANTS = """\
#undef INFINITY
#undef NAN
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))"""

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_NAMED = re.compile(r"\b(?:M_[A-Z]\w*|HUGE_VAL\w*|FP_\w+|MATH_\w+|math_errhandling)\b")
# What stands before a parenthesis and is no function of the C library.
_OTHERS = re.compile(
    r"(?:mg|rows|fused|__builtin)_\w*|_*(?:attribute|GLIBC_PREREQ|pragma|Static_assert|asm)_*|"
    r"vector_size|aligned|if|for|while|switch|return|sizeof|defined|else|do|case|simd|reduction|void|char|int|float|"
    r"double|u?int(?:8|16|32|64)_t|[A-Z]\w*|memcpy|memset|memmove"
)
_DEFINED = re.compile(r"\b(\w+)\s*\([^;{}]*\)\s*\{|#define\s+(\w+)")


def declared_math(source: str) -> str:
    """Return the declarations of ``math.h`` that a source needs, or the header itself.

    Examples
    --------
    >>> print(declared_math("float f(float x) { return expf(x); }").splitlines()[0])
    extern float expf(float);
    >>> print(declared_math("double g(double x) { return tgamma(x); }"))
    #include <math.h>
    """
    bare = _COMMENT.sub(" ", source)
    called = set(_CALLED.findall(bare))
    own = {name for pair in _DEFINED.findall(bare) for name in pair}
    names = sorted(called & _KNOWN.keys())
    foreign = {name for name in called - own if not _OTHERS.fullmatch(name)} - _KNOWN.keys()
    if foreign or _NAMED.search(bare):
        return "#include <math.h>"
    return "\n".join([*(_KNOWN[name] for name in names), _CONSTANTS])
