"""CUDA C of factorizations, solutions and determinants of small matrices.

A group of up to 32 lanes computes one matrix, which lies in shared memory with rows of an odd
number of elements: then neither a row nor a column meets itself in a bank. Several groups share a
warp where matrices are small. Groups whose matrix lies past the end of the batch compute the last
one again and write nothing, so that all lanes of a warp meet at its barriers.

What fails leaves the least of ``matrix << 16 | row << 2 | problem`` in a word, which the host reads
when the steps before the commit point are done.
"""

from __future__ import annotations

from typing import NamedTuple

from ..literals import checked

__all__ = [
    "BAD_PIVOT", "LARGEST", "NOT_FINITE", "PERMUTATION", "PERMUTATION_SOURCE", "WORDS", "Matrices",
    "matrices_source",
]  # fmt: skip

LARGEST = 64  # order of matrices
WORDS = 19  # arguments of a kernel
_SINGULAR, NOT_FINITE, BAD_PIVOT = range(3)  # the problems; an indefinite matrix counts as singular
_LANES = 32
_THREADS = 128
_SHARED = 40_000  # bytes of a block; without asking, it may have 48 KiB


class Matrices(NamedTuple):
    """One kernel.

    Attributes
    ----------
    function
        What it computes: "lu", "systems", "cholesky", "determinants".
    real
        The C type of the elements.
    order
        The largest order that it takes: a power of two.
    """

    function: str
    real: str
    order: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"matrices_{self.function}_{self.real}_{self.order}"

    @property
    def lanes(self) -> int:
        """How many lanes compute one matrix."""
        return min(_LANES, self.order)

    @property
    def columns(self) -> int:
        """How many right-hand sides are in shared memory at a time."""
        return 0 if self.function != "systems" else 8 if self.order > _LANES else 16

    @property
    def groups(self) -> int:
        """How many matrices a block computes at a time."""
        size = 8 if self.real == "double" else 4
        each = self.order * (self.order + 1 + self.columns) * size + 4 * self.order
        whole = _LANES // self.lanes  # warps are whole
        return max(whole, min(_THREADS // self.lanes, _SHARED // each) // whole * whole)

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.groups * self.lanes


_ARGUMENTS = """
typedef @real@ real;
enum { ORDER = @order@, LANES = @lanes@, GROUPS = @groups@, COLUMNS = @columns@, ROW = ORDER + 1 };
enum { BY_MATRIX, BY_FACTORS, BY_TRIANGLE };
enum { SINGULAR, NOT_FINITE, BAD_PIVOT };

struct job {
    unsigned long long *failed;
    const real *a, *b;
    const int32_t *pivots;
    real *out;
    void *second;
    int64_t count, n, columns, kind, lower, transposed, unit;
    int64_t a_stride, b_stride, pivot_stride;
    const int64_t *a_offsets, *b_offsets, *pivot_offsets;
};

static __device__ __forceinline__ job read_job(const mg_arguments &arguments)
{
    const int64_t *v = arguments.v;
    return {(unsigned long long *)v[0], (const real *)v[1], (const real *)v[2],
            (const int32_t *)v[3], (real *)v[4], (void *)v[5], v[6], v[7], v[8], v[9], v[10],
            v[11], v[12], v[13], v[14], v[15], (const int64_t *)v[16], (const int64_t *)v[17],
            (const int64_t *)v[18]};
}

static __device__ __forceinline__ int64_t start_of(const int64_t *offsets, int64_t stride,
                                                   int64_t number)
{
    return offsets ? offsets[number] : number * stride;
}

static __device__ void report(const job &j, int64_t number, int row, int problem)
{
    atomicMin(j.failed, (unsigned long long)number << 16 | (unsigned)row << 2 | problem);
}

/* A pivot that is zero counts as one, so that later elements stay finite. */
static __device__ __forceinline__ real pivot_of(real value, int row, int &zero)
{
    if (value != 0) return value;
    if (zero < 0) zero = row;
    return 1;
}

/* Whether all elements of the matrix that are read are finite; every lane knows. */
static __device__ int finite(const real *a, int n, int lane)
{
    int good = 1;
    for (int e = lane; e < n * n; e += LANES) good &= fabs(a[e / n * ROW + e % n]) < INFINITY;
    for (int by = LANES / 2; by; by >>= 1) good &= __shfl_xor_sync(0xffffffffu, good, by);
    return good;
}
"""

_FACTOR = """
/* P A = L U in place, with partial pivoting as LAPACK has it. */
static __device__ void factor(real *a, int *exchanges, int n, int lane, int &zero)
{
    for (int k = 0; k < n; k++) {
        real largest = -1;
        int chosen = n;
        for (int i = k + lane; i < n; i += LANES) {
            real size = fabs(a[i * ROW + k]);
            size = size == size ? size : (real)INFINITY;
            if (size > largest) { largest = size; chosen = i; }
        }
        for (int by = LANES / 2; by; by >>= 1) {
            const real size = __shfl_xor_sync(0xffffffffu, largest, by);
            const int row = __shfl_xor_sync(0xffffffffu, chosen, by);
            const bool other = size > largest || (size == largest && row < chosen);
            largest = other ? size : largest;
            chosen = other ? row : chosen;
        }
        if (lane == 0) exchanges[k] = chosen;
        if (chosen != k)
            for (int j = lane; j < n; j += LANES) {
                const real held = a[k * ROW + j];
                a[k * ROW + j] = a[chosen * ROW + j];
                a[chosen * ROW + j] = held;
            }
        __syncwarp();
        const real pivot = pivot_of(a[k * ROW + k], k, zero);
        for (int i = k + 1 + lane; i < n; i += LANES) a[i * ROW + k] /= pivot;
        __syncwarp();
        for (int j = k + 1 + lane; j < n; j += LANES) {
            const real above = a[k * ROW + j];
            for (int i = k + 1; i < n; i++) a[i * ROW + j] -= a[i * ROW + k] * above;
        }
        __syncwarp();
    }
}

static __device__ void load_exchanges(const job &j, int64_t number, int *exchanges, int n,
                                      int lane, bool live)
{
    const int32_t *from = j.pivots + start_of(j.pivot_offsets, j.pivot_stride, number);
    for (int k = lane; k < n; k += LANES) {
        const bool inside = (uint32_t)from[k] < (uint32_t)n;
        exchanges[k] = inside ? from[k] : k;
        if (!inside && live) report(j, number, k, BAD_PIVOT);
    }
    __syncwarp();
}
"""

_SUBSTITUTE = """
/* Solve T x = b in place; T is a triangle of `a`, or its transpose. */
static __device__ void substitute(const real *a, real *b, int n, int columns, bool lower,
                                  bool transposed, bool unit, int lane, int &zero)
{
    const bool forward = lower != transposed;
    for (int step = 0; step < n; step++) {
        const int i = forward ? step : n - 1 - step;
        if (!unit) {
            const real pivot = pivot_of(a[i * ROW + i], i, zero);
            for (int j = lane; j < columns; j += LANES) b[i * COLUMNS + j] /= pivot;
            __syncwarp();
        }
        const int first = forward ? i + 1 : 0, rows = forward ? n - 1 - i : i;
        for (int e = lane; e < rows * columns; e += LANES) {
            const int r = first + e / columns, j = e % columns;
            const real by = transposed ? a[i * ROW + r] : a[r * ROW + i];
            b[r * COLUMNS + j] -= by * b[i * COLUMNS + j];
        }
        __syncwarp();
    }
}

static __device__ void exchange(real *b, const int *exchanges, int n, int columns, bool backwards,
                                int lane)
{
    for (int j = lane; j < columns; j += LANES)
        for (int step = 0; step < n; step++) {
            const int k = backwards ? n - 1 - step : step, other = exchanges[k];
            const real held = b[k * COLUMNS + j];
            b[k * COLUMNS + j] = b[other * COLUMNS + j];
            b[other * COLUMNS + j] = held;
        }
    __syncwarp();
}
"""

_BODIES = {
    "lu": """
        factor(a, exchanges, n, lane, zero);
        if (live) {
            for (int e = lane; e < n * n; e += LANES)
                j.out[number * n * n + e] = a[e / n * ROW + e % n];
            for (int k = lane; k < n; k += LANES)
                ((int32_t *)j.second)[number * n + k] = exchanges[k];
        }
""",
    "systems": """
        const int good = finite(a, n, lane);
        if (j.kind == BY_FACTORS) load_exchanges(j, number, exchanges, n, lane, live);
        else if (j.kind == BY_MATRIX) factor(a, exchanges, n, lane, zero);
        const int columns = (int)j.columns;
        for (int at = 0; at < columns; at += COLUMNS) {
            const int taken = columns - at < COLUMNS ? columns - at : COLUMNS;
            const real *from = j.b ? j.b + start_of(j.b_offsets, j.b_stride, number) + at : nullptr;
            for (int e = lane; e < n * taken; e += LANES) {
                const int r = e / taken, c = e % taken;
                b[r * COLUMNS + c] = from ? from[(int64_t)r * columns + c] : r == at + c;
            }
            __syncwarp();
            if (j.kind == BY_TRIANGLE)
                substitute(a, b, n, taken, j.lower, j.transposed, j.unit, lane, zero);
            else if (j.transposed) {
                substitute(a, b, n, taken, false, true, false, lane, zero);
                substitute(a, b, n, taken, true, true, true, lane, zero);
                exchange(b, exchanges, n, taken, true, lane);
            } else {
                exchange(b, exchanges, n, taken, false, lane);
                substitute(a, b, n, taken, true, false, true, lane, zero);
                substitute(a, b, n, taken, false, false, false, lane, zero);
            }
            if (live)
                for (int e = lane; e < n * taken; e += LANES) {
                    const int r = e / taken, c = e % taken;
                    j.out[(number * n + r) * columns + at + c] = b[r * COLUMNS + c];
                }
            __syncwarp();
        }
        if (live && zero >= 0 && lane == 0) report(j, number, zero, good ? SINGULAR : NOT_FINITE);
""",
    "cholesky": """
        const int good = finite(a, n, lane);
        for (int k = 0; k < n; k++) {
            real root = a[k * ROW + k];
            if (!(root > 0)) {
                if (zero < 0) zero = k;
                root = 1;
            }
            root = sqrt(root);
            __syncwarp();
            if (lane == 0) a[k * ROW + k] = root;
            for (int i = k + 1 + lane; i < n; i += LANES) a[i * ROW + k] /= root;
            __syncwarp();
            for (int c = k + 1 + lane; c < n; c += LANES) {
                const real by = a[c * ROW + k];
                for (int i = c; i < n; i++) a[i * ROW + c] -= a[i * ROW + k] * by;
            }
            __syncwarp();
        }
        if (live) {
            for (int e = lane; e < n * n; e += LANES)
                j.out[number * n * n + e] = e / n < e % n ? 0 : a[e / n * ROW + e % n];
            if (zero >= 0 && lane == 0) report(j, number, zero, good ? SINGULAR : NOT_FINITE);
        }
""",
    "determinants": """
        if (j.kind == BY_FACTORS) load_exchanges(j, number, exchanges, n, lane, live);
        else factor(a, exchanges, n, lane, zero);
        if (live && lane == 0) {
            real sign = 1, size = 0, product = 1;
            for (int k = 0; k < n; k++) {
                const real value = a[k * ROW + k];
                if (exchanges[k] != k) sign = -sign;
                if (j.second) {
                    sign *= value > 0 ? 1 : value < 0 ? -1 : value; /* zero, or NaN */
                    size += log(fabs(value));
                } else product *= value;
            }
            j.out[number] = j.second ? sign : sign * product;
            if (j.second) ((real *)j.second)[number] = size;
        }
""",
}

_KERNEL = """
extern "C" __global__ void __launch_bounds__(@threads@) @name@
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ real matrices[GROUPS][ORDER * ROW];
    @sides@
    __shared__ int rows[GROUPS][ORDER];
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    real *a = matrices[group];
    int *exchanges = rows[group];
    const job j = read_job(arguments);
    const int n = (int)j.n;
    mg_begin();
    for (int64_t first = (int64_t)blockIdx.x * GROUPS; first < j.count;
         first += (int64_t)gridDim.x * GROUPS) {
        const bool live = first + group < j.count;
        const int64_t number = live ? first + group : j.count - 1;
        const real *from = j.a + start_of(j.a_offsets, j.a_stride, number);
        int zero = -1;
        for (int e = lane; e < n * n; e += LANES) a[e / n * ROW + e % n] = from[e];
        __syncwarp();
@body@
        __syncwarp();
    }
}
"""


def matrices_source(kernel: Matrices) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(kernel)
    parts = [_ARGUMENTS]
    if kernel.function != "cholesky":
        parts.append(_FACTOR)
    if kernel.function == "systems":
        parts.append(_SUBSTITUTE)
    parts.append(_KERNEL)
    sides = """__shared__ real sides[GROUPS][ORDER * COLUMNS];
    real *b = sides[threadIdx.x / LANES];"""
    text = "\n".join(parts)
    for word, value in (
        ("sides", sides if kernel.columns else ""),
        ("body", _BODIES[kernel.function]),
        ("real", kernel.real),
        ("order", str(kernel.order)),
        ("lanes", str(kernel.lanes)),
        ("groups", str(kernel.groups)),
        ("columns", str(max(1, kernel.columns))),
        ("threads", str(kernel.threads)),
        ("name", kernel.name),
    ):
        text = text.replace(f"@{word}@", value)
    return text


PERMUTATION = "permutation_of_exchanges"
PERMUTATION_SOURCE = f"""
extern "C" __global__ void __launch_bounds__(128) {PERMUTATION}
(const __grid_constant__ mg_arguments arguments)
{{
    unsigned long long *failed = (unsigned long long *)arguments.v[0];
    const int64_t batch = arguments.v[3], count = arguments.v[4], rows = arguments.v[5];
    const int64_t inverse = arguments.v[6];
    mg_begin();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < batch;
         i += (int64_t)gridDim.x * blockDim.x) {{
        int32_t *order = (int32_t *)arguments.v[1] + i * rows;
        const int32_t *exchanges = (const int32_t *)arguments.v[2] + i * count;
        for (int64_t r = 0; r < rows; r++) order[r] = (int32_t)r;
        for (int64_t step = 0; step < count; step++) {{
            const int64_t k = inverse ? count - 1 - step : step;
            const int32_t other = exchanges[k];
            if ((uint32_t)other >= (uint64_t)rows) {{
                atomicMin(failed, (unsigned long long)i << 16 | {BAD_PIVOT});
                break;
            }}
            const int32_t held = order[k];
            order[k] = order[other];
            order[other] = held;
        }}
    }}
}}
"""
"""Row exchanges become an order of rows: a thread for each member of a batch."""
