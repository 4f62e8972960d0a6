"""C that is written for convolutions: blocks of sums in registers, and Winograd's transforms."""

from __future__ import annotations

from collections.abc import Sequence

from ....ops.convolution.filters import MATRICES, Matrix

__all__ = ["block_source", "vector_source", "winograd_source"]

# Vectors of positions beside a number of results: together as many sums as hide the latency of
# additions, and as fit into 16 registers with the operands.
VECTORS = {1: 8, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}
DOT_RESULTS = 3
DOT_ROWS = 4


def vector_source() -> str:
    """Return the vector type of the processor, and the pragma that lets sums be fused.

    One rounding for ``a * b + c``, which doubles the speed: sums in another order than NumPy's
    are rounded otherwise in any case.
    """
    return """\
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
/* Loads stay one each: as an operand of every product, they cross lines of the cache as often. */
#if defined(__x86_64__)
#define IN_REGISTER(vector) __asm__("" : "+x"(vector))
#else
#define IN_REGISTER(vector) (void)0
#endif
#define VECTOR (VECTOR_BYTES / (int64_t)sizeof(REAL))
typedef REAL vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
"""


def _tile(results: int) -> str:
    count = VECTORS[results]
    sums = [f"a{m}_{v}" for m in range(results) for v in range(count)]
    lines = [
        f"static void tile_{results}(const REAL* restrict w, const REAL* restrict x,",
        "    const int64_t* restrict offset, int64_t taps, int64_t channels, int64_t channel,",
        "    REAL* restrict out)",
        "{",
        "    vec " + ", ".join(f"{name} = {{0}}" for name in sums) + ";",
        "    for (int64_t c = 0; c < channels; c++, x += channel)",
        f"        for (int64_t t = 0; t < taps; t++, w += {results}) {{",
        "            const vec* at = (const vec*)(x + offset[t]);",
        "            vec " + ", ".join(f"x{v} = at[{v}]" for v in range(count)) + ";",
    ]
    lines += [
        "            " + " ".join(f"a{m}_{v} += w[{m}] * x{v};" for v in range(count))
        for m in range(results)
    ]
    lines.append("        }")
    lines += [f"    ((vec*)out)[{i}] = {name};" for i, name in enumerate(sums)]
    return "\n".join([*lines, "}", ""])


def _dot(results: int, rows: int) -> str:
    sums = [f"a{m}_{j}" for m in range(results) for j in range(rows)]
    lines = [
        f"static void dot_{results}_{rows}(const REAL* y, int64_t channel, const REAL* x,",
        "    const int64_t* offset, int64_t images, int64_t y_image, int64_t x_image,",
        "    int64_t lines, int64_t y_line, int64_t x_line, int64_t vectors, REAL* sums)",
        "{",
        "    vec " + ", ".join(f"{name} = {{0}}" for name in sums) + ";",
        "    for (int64_t i = 0; i < images; i++, y += y_image, x += x_image)",
        "        for (int64_t l = 0; l < lines; l++) {",
    ]
    lines += [
        f"            const vec* y{m} = (const vec*)(y + {m} * channel + l * y_line);"
        for m in range(results)
    ]
    lines += [
        f"            const vec* x{j} = (const vec*)(x + offset[{j}] + l * x_line);"
        for j in range(rows)
    ]
    lines.append("            for (int64_t p = 0; p < vectors; p++) {")
    # One vector of x at a time: 12 sums, 3 of y and it are the 16 registers.
    loaded = ", ".join(f"c{m} = y{m}[p]" for m in range(results))
    lines.append(f"                vec {loaded};")
    lines += [f"                IN_REGISTER(c{m});" for m in range(results)]
    for j in range(rows):
        lines.append(f"                vec b{j} = x{j}[p];")
        lines.append(f"                IN_REGISTER(b{j});")
        lines.append(
            "                " + " ".join(f"a{m}_{j} += c{m} * b{j};" for m in range(results))
        )
    lines += ["            }", "        }"]
    for i, name in enumerate(sums):
        lines.append(f"    sums[{i}] = 0;")
        lines.append(f"    for (int v = 0; v < VECTOR; v++) sums[{i}] += {name}[v];")
    return "\n".join([*lines, "}", ""])


def block_source() -> str:
    """Return the blocks of sums of direct convolutions."""
    parts = [_tile(results) for results in VECTORS]
    parts.append(
        "static const int64_t tile_vectors[] = { 0, "
        + ", ".join(str(count) for count in VECTORS.values())
        + " };\n"
    )
    parts += [
        _dot(results, rows)
        for results in range(1, DOT_RESULTS + 1)
        for rows in range(1, DOT_ROWS + 1)
    ]
    table = ", ".join(
        "{ " + ", ".join(f"dot_{m}_{j}" for j in range(1, DOT_ROWS + 1)) + " }"
        for m in range(1, DOT_RESULTS + 1)
    )
    parts.append(
        "typedef void (*dot)(const REAL*, int64_t, const REAL*, const int64_t*, int64_t, int64_t,\n"
        "    int64_t, int64_t, int64_t, int64_t, int64_t, REAL*);\n"
        f"static const dot dot_rows[{DOT_RESULTS}][{DOT_ROWS}] = {{ {table} }};\n"
    )
    return "\n".join(parts)


def _combination(coefficients: Sequence[float], names: Sequence[str]) -> str:
    """Return the C of a sum of products, without zeros and ones."""
    text = ""
    for value, name in zip(coefficients, names, strict=True):
        if value == 0:
            continue
        sign = "-" if value < 0 else "+"
        factor = "" if abs(value) == 1 else f"(REAL){abs(float(value))!r} * "
        text += f" {sign} {factor}{name}" if text else ("-" if value < 0 else "") + factor + name
    return text or "(vec){0}"


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _both_sides(name: str, matrix: Matrix, load: str, store: str, arguments: str) -> str:
    """Return a function that computes ``M x M^T`` for vectors of tiles, M being a constant.

    `load` and `store` are C for the element number ``{i}`` of the tiles.
    """
    rows, columns = len(matrix), len(matrix[0])
    lines = [f"static void {name}({arguments})", "{"]
    for i in range(columns * columns):
        lines.append(f"    vec x{i} = {load.format(i=i)};")
    for r in range(rows):
        for c in range(columns):
            terms = _combination(matrix[r], [f"x{k * columns + c}" for k in range(columns)])
            lines.append(f"    vec h{r * columns + c} = {terms};")
    for r in range(rows):
        for s in range(rows):
            terms = _combination(matrix[s], [f"h{r * columns + k}" for k in range(columns)])
            lines.append(f"    {store.format(i=r * rows + s)} = {terms};")
    return "\n".join([*lines, "}", ""])


def winograd_source(tile: int) -> str:
    """Return the transforms of F(tile x tile, 3 x 3), each for a vector of tiles."""
    of_input, of_weight, of_result = MATRICES[tile]
    packed, stepped = "((vec*)in)[{i}]", "*(vec*)(in + {i} * step)"
    out_packed, out_stepped = "((vec*)out)[{i}]", "*(vec*)(out + {i} * step)"
    to_steps = "const REAL* in, REAL* restrict out, int64_t step"
    from_steps = "const REAL* in, int64_t step, REAL* restrict out"
    return "\n".join(
        [
            f"#define TILE {tile}",
            _both_sides("input_tile", of_input, packed, out_stepped, to_steps),
            _both_sides("weight_tile", of_weight, packed, out_stepped, to_steps),
            _both_sides("output_tile", of_result, stepped, out_packed, from_steps),
            _both_sides("cotangent_tile", _transposed(of_result), packed, out_stepped, to_steps),
            _both_sides(
                "gradient_tile", _transposed(of_weight), packed, out_packed,
                "const REAL* in, REAL* restrict out",
            ),
        ]
    )  # fmt: skip
