/* An operation on the elements of complex arrays. complex_elementwise.py defines before it REAL, the
   parts of each array (A, B: of the operands; OUT: of the result; 1 where it is real), and
   RESULT, the statements that make the parts x and y of the result of a + b i and c + d i. */

enum { GRAIN = 1024, WORK = 16, MOST = 16 };

typedef struct {
    const REAL *first, *second;
    REAL* out;
    int64_t axes, rows;
    int64_t count, extents[MOST], steps[2][MOST]; /* of the innermost axis; of the others */
    int64_t inner[2];
} work;

static inline __attribute__((always_inline)) void line(
    const REAL* restrict p, const REAL* restrict q, REAL* out, int64_t begin, int64_t end,
    const int64_t step, const int64_t other)
{
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        const REAL a = p[A * step * i], b = A == 2 ? p[A * step * i + 1] : 0;
        const REAL c = B ? q[B * other * i] : 0, d = B == 2 ? q[B * other * i + 1] : 0;
        REAL x, y = 0;
        RESULT
        out[OUT * i] = x;
        if (OUT == 2) out[OUT * i + 1] = y;
    }
}

static void part(const work* w, int64_t row, int64_t begin, int64_t end)
{
    int64_t at[2] = {0, 0}, rest = row;
    for (int64_t i = w->axes - 1; i >= 0; i--) {
        const int64_t index = rest % w->extents[i];
        rest /= w->extents[i];
        for (int k = 0; k < 2; k++) at[k] += index * w->steps[k][i];
    }
    const REAL *p = w->first + A * at[0], *q = w->second + B * at[1];
    REAL* out = w->out + OUT * row * w->count;
    if (w->inner[0] && w->inner[1]) line(p, q, out, begin, end, 1, 1);
    else if (w->inner[0]) line(p, q, out, begin, end, 1, 0);
    else line(p, q, out, begin, end, 0, w->inner[1]);
}

static void some_of(void* context, int64_t thread, int64_t threads)
{
    const work* w = context;
    int64_t begin, end;
    mg_split(w->rows * w->count, w->rows > 1 ? 1 : GRAIN, thread, threads, &begin, &end);
    while (begin < end) {
        const int64_t row = begin / w->count, first = begin - row * w->count;
        const int64_t left = end - begin, whole = w->count - first;
        const int64_t length = left < whole ? left : whole;
        part(w, row, first, first + length);
        begin += length;
    }
}

/* Arguments: out, operands, how many axes without the innermost, elements of that, steps of the
   operands along it; then for each axis its extent and their steps. */
void mg_complex(void** arguments)
{
    work w = {arguments[1], arguments[2], arguments[0], (int64_t)arguments[3], 1,
              (int64_t)arguments[4], {0}, {{0}}, {(int64_t)arguments[5], (int64_t)arguments[6]}};
    for (int64_t i = 0; i < w.axes; i++) {
        w.extents[i] = (int64_t)arguments[7 + 3 * i];
        w.rows *= w.extents[i];
        for (int k = 0; k < 2; k++) w.steps[k][i] = (int64_t)arguments[8 + 3 * i + k];
    }
    const int64_t size = w.rows * w.count;
    if (size > 0) mg_share(some_of, &w, size / GRAIN, WORK * size);
}
