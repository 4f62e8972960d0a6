/* Rows combined with values at computed positions. updates.py defines before it: VALUE, the type of
   an element; COMBINE(a, b), an element and a value as one; SCALED, where values are multiplied
   first; NOTHING, a value that leaves every element as it is, unless the order of values counts.

   Threads share the work in one of four ways, and results are the same for any number of them:
   each takes parts; or columns of all rows; or the rows of the result that it owns, for which it
   reads all positions; or, where many values meet in few rows, chunks of the values, of which each
   has a copy of the result. There are always CHUNKS copies, combined in their order. */

#include <string.h>

enum { CHUNKS = 8, BLOCK = 256 };
enum { WORK = 8 }; /* for a value, in the pool's units */

typedef struct {
    VALUE* out;
    const VALUE* values;
    const void* positions;
    VALUE scale;
    int64_t parts, rows, count, width, wrap, wide;
    VALUE* copies;
} update;

#ifdef SCALED
#define TAKEN(v) (u->scale * (v))
#else
#define TAKEN(v) (v)
#endif

/* Where `n` values go to, from value i on. */
static inline void decode(const update* u, int64_t i, int64_t n, int64_t* to)
{
    const int64_t rows = u->rows;
#define MG_DECODE(INDEX, WRAP)                                                                     \
    for (int64_t k = 0; k < n; k++)                                                                \
        to[k] = mg_position(((const INDEX*)u->positions)[i + k], rows, WRAP)
    if (u->wide && u->wrap) MG_DECODE(int64_t, 1);
    else if (u->wide) MG_DECODE(int64_t, 0);
    else if (u->wrap) MG_DECODE(int32_t, 1);
    else MG_DECODE(int32_t, 0);
}

/* Keep those values alone whose rows are in [low, high); return how many. */
static inline int64_t owned(int64_t n, int64_t* to, int64_t* from, int64_t low, int64_t high)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t row = to[k];
        to[kept] = row;
        from[kept] = k;
        kept += row >= low && row < high;
    }
    return kept;
}

#define MG_ROWS(WIDTH, FIRST, LAST)                                                                \
    for (int64_t k = 0; k < n; k++) {                                                              \
        VALUE* row = out + to[k] * (WIDTH);                                                        \
        const VALUE* value = values + (from ? from[k] : k) * (WIDTH);                              \
        _Pragma("omp simd")                                                                        \
        for (int64_t j = (FIRST); j < (LAST); j++) row[j] = COMBINE(row[j], TAKEN(value[j]));      \
    }

/* Combine columns [first, last) of n values with the rows that they go to. */
static inline __attribute__((always_inline)) void
combine(const update* u, VALUE* restrict out, const VALUE* restrict values, const int64_t* to,
        const int64_t* from, int64_t n, int64_t first, int64_t last)
{
    const int64_t width = u->width;
    if (first > 0 || last < width) MG_ROWS(width, first, last)
    else if (width == 1) MG_ROWS(1, 0, 1)
    else if (width == 2) MG_ROWS(2, 0, 2)
    else if (width == 3) MG_ROWS(3, 0, 3)
    else if (width == 4) MG_ROWS(4, 0, 4)
    else if (width == 8) MG_ROWS(8, 0, 8)
    else if (width == 16) MG_ROWS(16, 0, 16)
    else if (width == 32) MG_ROWS(32, 0, 32)
    else MG_ROWS(width, 0, width)
}

/* Values [begin, end), columns [first, last). */
static void combine_values(const update* u, VALUE* out, const VALUE* values, int64_t begin,
                           int64_t end, int64_t first, int64_t last)
{
    int64_t to[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = end - i < BLOCK ? end - i : BLOCK;
        decode(u, i, n, to);
        combine(u, out, values + i * u->width, to, NULL, n, first, last);
    }
}

static void by_parts(void* context, int64_t thread, int64_t threads)
{
    const update* u = context;
    const int64_t to = u->rows * u->width, from = u->count * u->width;
    int64_t begin, end;
    mg_split(u->parts, 1, thread, threads, &begin, &end);
    for (int64_t part = begin; part < end; part++)
        combine_values(u, u->out + part * to, u->values + part * from, 0, u->count, 0, u->width);
}

static void by_columns(void* context, int64_t thread, int64_t threads)
{
    const update* u = context;
    int64_t first, last;
    mg_split(u->width, 64 / sizeof(VALUE), thread, threads, &first, &last);
    if (first < last) combine_values(u, u->out, u->values, 0, u->count, first, last);
}

static void by_rows(void* context, int64_t thread, int64_t threads)
{
    const update* u = context;
    int64_t to[BLOCK], from[BLOCK], low, high;
    mg_split(u->rows, 1, thread, threads, &low, &high);
    for (int64_t i = 0; i < u->count; i += BLOCK) {
        int64_t n = u->count - i < BLOCK ? u->count - i : BLOCK;
        decode(u, i, n, to);
        n = owned(n, to, from, low, high);
        combine(u, u->out, u->values + i * u->width, to, from, n, 0, u->width);
    }
}

#ifdef NOTHING
static void by_chunks(void* context, int64_t thread, int64_t threads)
{
    const update* u = context;
    const int64_t size = u->rows * u->width;
    int64_t begin, end;
    mg_split(CHUNKS, 1, thread, threads, &begin, &end);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        VALUE* copy = u->copies + chunk * size;
        for (int64_t j = 0; j < size; j++) copy[j] = NOTHING;
        combine_values(u, copy, u->values, u->count * chunk / CHUNKS,
                       u->count * (chunk + 1) / CHUNKS, 0, u->width);
    }
}

static void join_chunks(const update* u)
{
    const int64_t size = u->rows * u->width;
    for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
        const VALUE* copy = u->copies + chunk * size;
        for (int64_t j = 0; j < size; j++) u->out[j] = COMBINE(u->out[j], copy[j]);
    }
}
#endif

/* out = base, or zeros, with values at positions. Arguments: out, base or NULL, values, positions,
   scale or NULL, parts, rows of a part, values of a part, width, whether positions wrap around,
   whether they have 64 bits, room for copies or NULL. */
void mg_update(void** arguments)
{
    const VALUE* base = arguments[1];
    const VALUE* scale = arguments[4];
    update u = { arguments[0], arguments[2], arguments[3], scale ? *scale : (VALUE)1,
                 (int64_t)arguments[5], (int64_t)arguments[6], (int64_t)arguments[7],
                 (int64_t)arguments[8], (int64_t)arguments[9], (int64_t)arguments[10],
                 arguments[11] };
    const size_t size = (size_t)(u.parts * u.rows * u.width) * sizeof(VALUE);
    if (!size) return;
    if (!base) memset(u.out, 0, size);
    else if (base != u.out) memcpy(u.out, base, size);
    const int64_t values = u.parts * u.count * u.width, threads = values / 32768;
    const int64_t each = u.rows * u.width, work = WORK * values;
    if (u.parts > 1) mg_share(by_parts, &u, threads, work);
    else if (threads < 2) by_columns(&u, 0, 1);
#ifdef NOTHING
    else if (u.copies && 2 * CHUNKS * each <= u.count * u.width) {
        mg_share(by_chunks, &u, threads, work);
        join_chunks(&u);
    }
#endif
    else if (u.width * sizeof(VALUE) >= 256 || each == u.width)
        mg_share(by_columns, &u, threads, work);
    else mg_share(by_rows, &u, threads, work);
}
