"""The C of the libraries that no program changes, and the compiler's level for each.

They are built when the package is installed, where that can be done, and else by whoever needs one
first. So this module and those that it imports need Python's own library alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...ops.convolution.filters import TILES
from .convolution.code import block_source, vector_source, winograd_source
from .products.tiles import tile_source

__all__ = [
    "BLAS_LEVEL",
    "COMPLEX_LEVEL",
    "CONVOLUTION_LEVEL",
    "FOURIER_LEVEL",
    "LAPACK_LEVEL",
    "LINALG_LEVEL",
    "ORDER_LEVEL",
    "PRODUCT_LEVEL",
    "SCAN_LEVEL",
    "SMALL_ORDER",
    "SUPPORT_HEADER",
    "SUPPORT_LEVEL",
    "UPDATE_LEVEL",
    "Fixed",
    "blas_source",
    "complex_source",
    "convolution_source",
    "fixed_sources",
    "fourier_source",
    "lapack_source",
    "linalg_source",
    "order_source",
    "pooling_source",
    "scan_source",
    "support_parts",
    "support_source",
    "tiled_source",
    "update_source",
]

SUPPORT_LEVEL = "g"  # hardly any of it is arithmetic; a first call may wait for it
BLAS_LEVEL = "g"  # BLAS does the arithmetic, and a first call may wait for the library
PRODUCT_LEVEL = "1"
CONVOLUTION_LEVEL = "2"
LAPACK_LEVEL = "2"
LINALG_LEVEL = "3"
UPDATE_LEVEL = "3"
ORDER_LEVEL = "3"
SCAN_LEVEL = "3"
FOURIER_LEVEL = "3"
COMPLEX_LEVEL = "3"
SMALL_ORDER = 64  # of matrices that linalg/small.c takes

_DECLARATIONS = """\
#include <stdint.h>

typedef void (*mg_body)(void* context, int64_t thread, int64_t threads);

typedef struct {
    void (*function)(void** arguments);
    void** arguments;
} mg_step;

typedef struct {
    void (*parallel)(mg_body body, void* context, int64_t max_threads);
    void (*share)(mg_body body, void* context, int64_t max_threads, int64_t work);
    int64_t (*thread_count)(void);
    void (*enter_blas)(void);
    void (*leave_blas)(void);
} mg_support;

/* Bytes of the vectors that the sums of a row are kept in, elements of one, and elements that are
   added up in them before they go to a double. */
#if !defined(MG_LANE_BYTES) && defined(__AVX512F__)
#define MG_LANE_BYTES 64
#elif !defined(MG_LANE_BYTES)
#define MG_LANE_BYTES 32
#endif
enum { mg_lanes_f32 = MG_LANE_BYTES / 4, mg_lanes_f64 = MG_LANE_BYTES / 8,
       mg_lanes_summed = 8 * MG_LANE_BYTES };

/* The part [begin, end) of count things that a thread takes, in whole grains. */
static inline void mg_split(int64_t count, int64_t grain, int64_t thread, int64_t threads,
                            int64_t* begin, int64_t* end)
{
    int64_t grains = (count + grain - 1) / grain;
    *begin = grains * thread / threads * grain;
    *end = grains * (thread + 1) / threads * grain;
    if (*end > count) *end = count;
    if (*begin > *end) *begin = *end;
}
"""

SUPPORT_HEADER = (
    _DECLARATIONS
    + """
static const mg_support* mg_bound;
void mg_bind(const mg_support* table) { mg_bound = table; }
#define mg_parallel(body, context, max_threads) mg_bound->parallel(body, context, max_threads)
#define mg_share(body, context, max_threads, work) \\
    mg_bound->share(body, context, max_threads, work)
#define mg_thread_count() mg_bound->thread_count()
#define mg_enter_blas() mg_bound->enter_blas()
#define mg_leave_blas() mg_bound->leave_blas()
"""
)
"""What stands before every generated source.

``mg_parallel(body, context, max_threads)`` calls ``body(context, thread, threads)`` on at most
`max_threads` threads at once (1 or less: on the caller's alone) and returns when all have. A body
must be right for any `threads`: it is 1 where the pool is taken or the call is nested.
``mg_share`` is told the work in all, in units of some 0.05 ns: little of it wakes no thread, and
where it comes again and again and a team takes as long as its owner alone, the owner does it.
``mg_split`` gives a thread its part, and ``mg_thread_count()`` the most that a team can have.
A step that calls BLAS does so between ``mg_enter_blas()`` and ``mg_leave_blas()``.
"""


@functools.lru_cache(maxsize=16)
def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.c").read_text(encoding="utf-8")


def support_source() -> str:
    """Return the C source of the support library, whole."""
    return "".join(support_parts())


def support_parts() -> tuple[str, str]:
    """Return the types of the support library, and the rest of its source."""
    types = _DECLARATIONS + _text("tables")
    return types, "".join(map(_text, ("stopping", "worth", "positions", "support")))


def blas_source(real: str) -> str:
    """Return the C source of the products through BLAS of float or double."""
    parts = ("products/products_common", "positions", "products/products")
    return "\n".join([f"#define REAL {real}", *map(_text, parts)])


def tiled_source(real: str) -> str:
    """Return the C source of the products by tiles of float or double."""
    return "\n".join(
        [
            f"#define REAL {real}",
            _text("products/products_common"),
            tile_source(_BYTES[real]),
            _text("products/products_tiled"),
        ]
    )


def convolution_source(real: str, algorithm: str) -> str:
    """Return the C source of an algorithm of convolutions of float or double."""
    parts = [f"#define REAL {real}\n", _text("convolution/convolution"), vector_source()]
    if algorithm in TILES:
        parts += [winograd_source(TILES[algorithm]), _text("convolution/convolution_winograd")]
    elif algorithm == "im2col":
        parts.append(_text("convolution/convolution_im2col"))
    else:
        parts += [block_source(), _text("convolution/convolution_direct")]
    return "\n".join(parts)


def pooling_source(real: str, name: str) -> str:
    """Return the C source of the kernel of a record of pooling of float or double."""
    return f"#define REAL {real}\n#define WANTS_{name}\n{_text('convolution/pooling')}"


def linalg_source(real: str) -> str:
    """Return the C source of the linear algebra of small matrices of float or double."""
    parts = [f"#define REAL {real}", f"enum {{ MG_SMALL = {SMALL_ORDER} }};"]
    parts.append(_text("linalg/linalg"))
    for name, vector, lanes in (("many", "mg_wide", "MG_WIDE"), ("one", "REAL", "1")):
        macros = {"NAME(f)": f"f##_{name}", "VEC": vector, "LANES": lanes}
        parts += [f"#define {macro} {text}" for macro, text in macros.items()]
        parts.append(_text("linalg/small"))
        parts += [f"#undef {macro.partition('(')[0]}" for macro in macros]
    parts.append(_text("linalg/steps"))
    return "\n".join(parts)


def _combined(value: str, how: str) -> str:
    """Return the C expression of two elements, `a` and `b`, combined.

    `how` is "set", "add", "multiply", "min" or "max". Whole numbers wrap around, and NaN is both
    the least and the largest number, as NumPy has it.
    """
    real = value in _BYTES
    # Whole numbers are computed without signs: there C defines what overflows.
    number = "" if real else "(uint64_t)"
    nan = " | ((a) != (a))" if real else ""
    return {
        "set": "(b)",
        "add": f"({value})({number}(a) + {number}(b))",
        "multiply": f"({value})({number}(a) * {number}(b))",
        "min": f"((((a) <= (b)){nan}) ? (a) : (b))",
        "max": f"((((a) >= (b)){nan}) ? (a) : (b))",
    }[how]


def scan_source(value: str, how: str) -> str:
    """Return the C source of scans of elements of a C type, combined as updates combine them."""
    macros = f"#define VALUE {value}\n#define COMBINE(a, b) {_combined(value, how)}\n"
    return macros + _text("scans")


def complex_source(real: str, statements: str, parts: tuple[int, int, int]) -> str:
    """Return the C source of an elementwise operation on complex numbers.

    `statements` give x and y, the parts of the result, of operands a + b i and c + d i.
    `parts` tells of two operands and the result whether they are complex, 2, or real, 1; of a
    second operand that there is not, it is 0.
    """
    suffix = "f" if real == "float" else ""
    macros = {
        "REAL": real,
        "FABS(x)": f"__builtin_fabs{suffix}(x)",
        "SQRT(x)": f"__builtin_sqrt{suffix}(x)",
        "INFINITE": f"__builtin_inf{suffix}()",
        "A": parts[0],
        "B": parts[1],
        "OUT": parts[2],
        "RESULT": " ".join(statements.split()),
    }
    lines = [f"#define {macro} {text}" for macro, text in macros.items()]
    return "\n".join([*lines, _text("complex_elementwise")])


def fourier_source(real: str) -> str:
    """Return the C source of Fourier transforms of float or double."""
    size = _BYTES[real]
    lane = f"int{8 * size}_t"
    macros = f"#define REAL {real}\n#define BYTES_OF_REAL {size}\n#define LANE {lane}\n"
    return macros + _text("fourier")


def update_source(value: str, how: str) -> str:
    """Return the C source of updates at positions of elements of a C type.

    `how` is "set", "add", "multiply", "min" or "max".
    """
    real = value in _BYTES
    # Minus zero: plus zero would change the sign of it.
    nothing = {"add": "-0.0" if real else "0", "multiply": "1"}
    if real:
        nothing |= {"min": "__builtin_inf()", "max": "-__builtin_inf()"}
    else:
        low, high = _limits(value)
        nothing |= {"min": high, "max": low}
    parts = [f"#define VALUE {value}", f"#define COMBINE(a, b) {_combined(value, how)}"]
    if how in nothing:
        parts.append(f"#define NOTHING (({value}){nothing[how]})")
    if real and how == "add":
        parts.append("#define SCALED")
    return "\n".join([*parts, _text("positions"), _text("updates")])


# Exponent bits of the infinity of each kind of floats.
_INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}


def order_source(name: str) -> str:
    """Return the C source of the order of elements of a kind, such as "signed32" or "bfloat16"."""
    kind = name.rstrip("0123456789")
    bits = int(name.removeprefix(kind))
    macros = {
        "BITS": f"uint{bits}_t",
        "KEY": f"uint{max(bits, 32)}_t",
        "PACKED": "unsigned __int128" if bits == 64 else "uint64_t",
        "SIGN": "0" if kind == "unsigned" else f"((uint{bits}_t)1 << {bits - 1})",
        "INFINITE": f"((uint{bits}_t){_INFINITE.get(name, 0)}u)",
    }
    return "\n".join([*(f"#define {n} {text}" for n, text in macros.items()), _text("order")])


def _limits(value: str) -> tuple[str, str]:
    """Return the names of the least and the largest number of an integer type of C."""
    name = value.removesuffix("_t").upper()
    return ("0" if name[0] == "U" else f"{name}_MIN"), f"{name}_MAX"


def lapack_source(real: str, is_complex: bool) -> str:
    """Return the C source of the linear algebra by LAPACK of numbers with parts of a real type."""
    number = f"_Complex {real}" if is_complex else real
    head = [f"#define REAL {real}", f"#define NUMBER {number}"]
    return "\n".join([*head, f"#define MG_COMPLEX {int(is_complex)}", _text("linalg/lapack")])


_BYTES = {"float": 4, "double": 8}


class Fixed(NamedTuple):
    """A library that no program changes: its name, the whole of its C, and its level."""

    name: str
    source: str
    level: str


def fixed_sources() -> Iterator[Fixed]:
    """Yield the sources to build in advance: for float32 programs, and float64 products."""
    yield Fixed("support", support_source(), SUPPORT_LEVEL)
    for real, digits in (("float", "float32"), ("double", "float64")):
        products = (("blas", blas_source, BLAS_LEVEL), ("tiles", tiled_source, PRODUCT_LEVEL))
        for name, source, level in products:
            yield Fixed(f"{name}-{digits}", SUPPORT_HEADER + source(real), level)
        yield Fixed(f"order-{digits}", SUPPORT_HEADER + order_source(digits), ORDER_LEVEL)
        yield Fixed(f"scan-{digits}", SUPPORT_HEADER + scan_source(real, "add"), SCAN_LEVEL)
        yield Fixed(f"fourier-{digits}", SUPPORT_HEADER + fourier_source(real), FOURIER_LEVEL)
        text = SUPPORT_HEADER + update_source(real, "add")
        yield Fixed(f"update-{digits}", text, UPDATE_LEVEL)
        text = SUPPORT_HEADER + linalg_source(real)
        yield Fixed(f"linalg-{digits}", text, LINALG_LEVEL)
        text = SUPPORT_HEADER + lapack_source(real, is_complex=False)
        yield Fixed(f"lapack-{digits}", text, LAPACK_LEVEL)
    for algorithm in (*TILES, "direct", "im2col"):
        text = SUPPORT_HEADER + convolution_source("float", algorithm)
        yield Fixed(f"{algorithm}-float32", text, CONVOLUTION_LEVEL)
    for name in dict.fromkeys(re.findall(r"WANTS_(\w+)", _text("convolution/pooling"))):
        yield Fixed(f"{name}-float32", SUPPORT_HEADER + pooling_source("float", name), "2")
