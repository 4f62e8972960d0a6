"""C that is written for products: tiles of sums in registers, and the transpose of a square."""

from __future__ import annotations

import functools

from ..convolution.code import vector_source

__all__ = ["tile_source"]

# With two vectors a row: 12 sums hide the latency of additions, and leave 4 of 16 registers for
# the operands. Processors with vectors of 64 bytes have 32 registers: twice the rows read a strip
# of B half as often, and more of the inner extent at once, which gains 3 to 7 % of 1000 rows.
HEIGHT, TALL = 6, 12
_BASE = 3  # rows that one address and the distance of rows reach, by the processor's own addressing


def _tile(rows: int) -> str:
    """Return the function that adds ``alpha a @ b`` to ``beta c``, for some rows of two vectors.

    Rows of a lie `row_a` apart, and the elements that meet one row of b `step_a`; b is packed.
    """
    sums = [f"s{i}_{v}" for i in range(rows) for v in range(2)]
    bases = ["a", *(f"a_{row}" for row in range(_BASE, rows, _BASE))]
    lines = [
        f"static void tile_{rows}(int64_t k, const REAL* a, int64_t row_a, int64_t step_a,",
        "    const REAL* b, REAL alpha, REAL beta, const REAL* c, int64_t ldc, REAL* out,",
        "    int64_t ld_out)",
        "{",
        "    vec " + ", ".join(f"{name} = {{0}}" for name in sums) + ";",
    ]
    lines += [
        f"    const REAL* {base} = a + {i * _BASE} * row_a;" for i, base in enumerate(bases) if i
    ]
    lines += [
        "    for (int64_t l = 0; l < k; l++) {",
        "        vec b0 = ((const vec*)b)[0], b1 = ((const vec*)b)[1];",
        "        IN_REGISTER(b0);",
        "        IN_REGISTER(b1);",
        "        REAL x;",
    ]
    lines += [
        f"        x = {bases[i // _BASE]}[{i % _BASE} * row_a]; s{i}_0 += x * b0; s{i}_1 += x * b1;"
        for i in range(rows)
    ]
    lines.append("        b += 2 * VECTOR;")
    lines += [f"        {base} += step_a;" for base in bases]
    lines += ["    }", "    if (beta != 0) {"]
    for i in range(rows):
        lines.append(f"        const vec* c{i} = (const vec*)(c + {i} * ldc);")
        lines += [f"        s{i}_{v} = alpha * s{i}_{v} + beta * c{i}[{v}];" for v in range(2)]
    lines.append("    } else if (alpha != 1) {")
    lines += [f"        {name} *= alpha;" for name in sums]
    lines.append("    }")
    lines += [
        f"    ((vec*)(out + {i} * ld_out))[{v}] = s{i}_{v};" for i in range(rows) for v in range(2)
    ]
    return "\n".join([*lines, "}", ""])


def _transpose(lanes: int) -> str:
    """Return the function that transposes a square of as many rows as a vector has lanes.

    Squares of half, a quarter ... of the size change places with those across the diagonal.
    """
    lines = [f"    vec r{i} = *(const vec*)(in + {i} * ld_in);" for i in range(lanes)]
    half = lanes // 2
    while half:
        for i in (i for i in range(lanes) if not i & half):
            j = i + half
            upper = [lanes + c - half if c & half else c for c in range(lanes)]
            lower = [lanes + c if c & half else c + half for c in range(lanes)]
            lines.append(
                f"    {{ vec x = r{i}, y = r{j}; "
                f"r{i} = MG_SHUFFLE(x, y, {', '.join(map(str, upper))}); "
                f"r{j} = MG_SHUFFLE(x, y, {', '.join(map(str, lower))}); }}"
            )
        half //= 2
    lines += [f"    *(vec*)(out + {i} * 2 * VECTOR) = r{i};" for i in range(lanes)]
    return "\n".join(lines)


@functools.lru_cache(maxsize=4)
def tile_source(itemsize: int) -> str:
    """Return the tiles for elements of 4 or 8 bytes, which C calls REAL."""
    names = ", ".join(["0", *(f"tile_{rows}" for rows in range(1, HEIGHT + 1))])
    parts = [
        vector_source(),
        '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2")\n#endif',
        *(_tile(rows) for rows in range(1, HEIGHT + 1)),
        "typedef void (*tile)(int64_t, const REAL*, int64_t, int64_t, const REAL*, REAL, REAL,",
        "    const REAL*, int64_t, REAL*, int64_t);",
        f"enum {{ MG_TILE_LOW = {HEIGHT} }};",
        "#if VECTOR_BYTES == 64",
        _tile(TALL),
        f"enum {{ MG_TILE_HEIGHT = {TALL}, MG_TILE_ROWS = 336, MG_TILE_DEPTH = 544 }};",
        f"static const tile tiles[] = {{ {names}, [{TALL}] = tile_{TALL} }};",
        "#else",
        f"enum {{ MG_TILE_HEIGHT = {HEIGHT}, MG_TILE_ROWS = 192, MG_TILE_DEPTH = 320 }};",
        f"static const tile tiles[] = {{ {names} }};",
        "#endif",
        "#if defined(__has_builtin)",
        "#if __has_builtin(__builtin_shufflevector)",
        "#define MG_SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)",
        "#endif",
        "#endif",
        "/* out, of rows two vectors wide, gets the transpose of a square of a vector's size. */",
        "static void transpose_square(const REAL* in, int64_t ld_in, REAL* restrict out)",
        "{",
    ]
    for i, vector in enumerate((64, 32, 16)):
        condition = f"{'elif' if i else 'if'} defined(MG_SHUFFLE) && VECTOR_BYTES == {vector}"
        parts += ["#" + condition, _transpose(vector // itemsize)]
    parts += [
        "#else",
        "    for (int64_t i = 0; i < VECTOR; i++)",
        "        for (int64_t j = 0; j < VECTOR; j++)",
        "            out[j * 2 * VECTOR + i] = in[i * ld_in + j];",
        "#endif",
        "}",
        "",
    ]
    return "\n".join(parts)
