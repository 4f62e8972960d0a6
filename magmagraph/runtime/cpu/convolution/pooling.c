/* Pooling: windows that slide over up to three axes. pooling.py defines REAL, and WANTS_.. of what
   is wanted. Positions are tied by
   i = o * stride + k * dilation - low.

   Elements lie as (outer, spatial, inner): inner is the channels where they are last, else 1. A
   share of work is one of outer, and a part of inner where that is large. */

#include <math.h>
#include <string.h>

enum { MG_LANES = 64, MG_WORTH_A_THREAD = 1 << 16, MG_TAP = 10 /* units of work */ };

typedef struct {
    void *a, *b, *out; /* operands and result; what they are depends on the kernel */
    int64_t outer, inner;
    int64_t in[3], k[3], o[3], s[3], d[3], low[3];
    int64_t parts; /* of inner */
} shape;

static shape read_shape(void** arguments)
{
    shape p = { arguments[0], arguments[1], arguments[2] };
    p.outer = (int64_t)arguments[3];
    p.inner = (int64_t)arguments[4];
    for (int axis = 0; axis < 3; axis++) {
        p.in[axis] = (int64_t)arguments[5 + axis];
        p.k[axis] = (int64_t)arguments[8 + axis];
        p.o[axis] = (int64_t)arguments[11 + axis];
        p.s[axis] = (int64_t)arguments[14 + axis];
        p.d[axis] = (int64_t)arguments[17 + axis];
        p.low[axis] = (int64_t)arguments[20 + axis];
    }
    p.parts = 1;
    return p;
}

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t inputs(const shape* p) { return p->in[0] * p->in[1] * p->in[2] * p->inner; }
static int64_t outputs(const shape* p) { return p->o[0] * p->o[1] * p->o[2] * p->inner; }

/* The part [*first, *stop) of the results along an axis for which tap k lies inside; returns where
   the tap of result 0 would lie. */
static int64_t inside_of(const shape* p, int axis, int64_t k, int64_t* first, int64_t* stop)
{
    int64_t shift = k * p->d[axis] - p->low[axis], s = p->s[axis], n = p->in[axis];
    *first = shift >= 0 ? 0 : (-shift + s - 1) / s;
    *stop = shift >= n ? 0 : (n - 1 - shift) / s + 1;
    if (*stop > p->o[axis]) *stop = p->o[axis];
    if (*first > *stop) *first = *stop;
    return shift;
}

/* One tap along the last axis of a line of windows: what it meets, and the results it is in. */
typedef struct {
    int64_t number;      /* of the tap in its window */
    int64_t first, stop; /* results */
    int64_t met, step;   /* position met by result 0; from a result to the next */
} reach;

typedef void (*line)(const shape* p, int64_t outer, int64_t at, int64_t c0, int64_t c1,
                     const reach* taps, int64_t count);

/* A line of results of windows of 2 x 2 that tile an image: the commonest, without a list of taps. */
typedef void (*quads)(const shape* p, int64_t outer, int64_t o1);

typedef struct {
    shape p;
    line each;
    quads tiled; /* NULL: the list of taps in any case */
} lines;

static int tiles(const shape* p)
{
    for (int axis = 0; axis < 3; axis++) {
        int64_t size = axis ? 2 : 1;
        if (p->k[axis] != size || p->s[axis] != size || p->d[axis] != 1 || p->low[axis]) return 0;
        if (p->in[axis] < size * p->o[axis]) return 0;
    }
    return p->inner == 1 && p->o[0] == 1;
}

static void run_part(void* context, int64_t thread, int64_t threads)
{
    const lines* work = context;
    const shape* p = &work->p;
    int64_t begin, end, window = p->k[0] * p->k[1] * p->k[2];
    reach taps[window], across[p->k[2]]; /* of a line; of the last axis, the same for all lines */
    for (int64_t k2 = 0; k2 < p->k[2]; k2++) {
        int64_t shift = inside_of(p, 2, k2, &across[k2].first, &across[k2].stop);
        across[k2].met = shift * p->inner;
        across[k2].step = p->s[2] * p->inner;
    }
    mg_split(p->outer * p->parts, 1, thread, threads, &begin, &end);
    if (work->tiled && tiles(p)) {
        for (int64_t i = begin; i < end; i++)
            for (int64_t o1 = 0; o1 < p->o[1]; o1++) work->tiled(p, i, o1);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / p->parts, part = i % p->parts;
        int64_t c0 = p->inner * part / p->parts, c1 = p->inner * (part + 1) / p->parts;
        for (int64_t o0 = 0; o0 < p->o[0]; o0++)
        for (int64_t o1 = 0; o1 < p->o[1]; o1++) {
            int64_t count = 0;
            for (int64_t k0 = 0; k0 < p->k[0]; k0++) {
                int64_t i0 = o0 * p->s[0] + k0 * p->d[0] - p->low[0];
                if (i0 < 0 || i0 >= p->in[0]) continue;
                for (int64_t k1 = 0; k1 < p->k[1]; k1++) {
                    int64_t i1 = o1 * p->s[1] + k1 * p->d[1] - p->low[1];
                    if (i1 < 0 || i1 >= p->in[1]) continue;
                    for (int64_t k2 = 0; k2 < p->k[2]; k2++) {
                        if (across[k2].first == across[k2].stop) continue;
                        reach* tap = &taps[count];
                        *tap = across[k2];
                        tap->number = (k0 * p->k[1] + k1) * p->k[2] + k2;
                        tap->met += (i0 * p->in[1] + i1) * p->in[2] * p->inner;
                        count++;
                    }
                }
            }
            work->each(p, outer, (o0 * p->o[1] + o1) * p->o[2] * p->inner, c0, c1, taps, count);
        }
    }
}

static void run(void** arguments, line each, quads tiled, int64_t zeroed)
{
    lines work = { read_shape(arguments), each, tiled };
    shape* p = &work.p;
    int64_t size = p->outer * outputs(p) * p->k[0] * p->k[1] * p->k[2];
    int64_t team = lesser(size / MG_WORTH_A_THREAD, mg_thread_count());
    if (p->outer < team) p->parts = lesser(team, p->inner / 16 + 1);
    if (zeroed) memset(p->out, 0, (size_t)(p->outer * inputs(p)) * sizeof(REAL));
    mg_share(run_part, &work, lesser(team, p->outer * p->parts), size * MG_TAP);
}

/* For every result o that a tap is in, and every channel c: `at` is its place in the line, `met`
   that of what the tap meets. Steps that compilers know how to load vectors with stand apart. */
#define EACH(TAP, STATEMENT)                                                      \
    if (p->inner == 1 && (TAP)->step == 1) {                                      \
        _Pragma("omp simd")                                                       \
        for (int64_t o = (TAP)->first; o < (TAP)->stop; o++) {                    \
            int64_t at = o, met = (TAP)->met + o;                                 \
            STATEMENT;                                                            \
        }                                                                         \
    } else if (p->inner == 1 && (TAP)->step == 2) {                               \
        _Pragma("omp simd")                                                       \
        for (int64_t o = (TAP)->first; o < (TAP)->stop; o++) {                    \
            int64_t at = o, met = (TAP)->met + o * 2;                             \
            STATEMENT;                                                            \
        }                                                                         \
    } else if (p->inner == 1) {                                                   \
        for (int64_t o = (TAP)->first; o < (TAP)->stop; o++) {                    \
            int64_t at = o, met = (TAP)->met + o * (TAP)->step;                   \
            STATEMENT;                                                            \
        }                                                                         \
    } else {                                                                      \
        for (int64_t o = (TAP)->first; o < (TAP)->stop; o++) {                    \
            int64_t line_at = o * p->inner, line_met = (TAP)->met + o * (TAP)->step; \
            _Pragma("omp simd")                                                   \
            for (int64_t c = c0; c < c1; c++) {                                   \
                int64_t at = line_at + c, met = line_met + c;                     \
                STATEMENT;                                                        \
            }                                                                     \
        }                                                                         \
    }

static void fill_line(const shape* p, REAL* out, int64_t c0, int64_t c1, REAL value)
{
    for (int64_t o = 0; o < p->o[2]; o++)
        for (int64_t c = c0; c < c1; c++) out[o * p->inner + c] = value;
}

static void max_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                     const reach* taps, int64_t count)
{
    const REAL* restrict x = (const REAL*)p->a + outer * inputs(p);
    REAL* restrict out = (REAL*)p->out + outer * outputs(p) + line;
    fill_line(p, out, c0, c1, -(REAL)INFINITY);
    for (int64_t t = 0; t < count; t++) {
        EACH(taps + t, REAL v = x[met]; REAL w = out[at]; out[at] = ((v > w) | (v != v)) ? v : w)
    }
}

static void sum_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                     const reach* taps, int64_t count)
{
    const REAL* restrict x = (const REAL*)p->a + outer * inputs(p);
    REAL* restrict out = (REAL*)p->out + outer * outputs(p) + line;
    fill_line(p, out, c0, c1, 0);
    for (int64_t t = 0; t < count; t++) { EACH(taps + t, out[at] += x[met]) }
}

static void sum_input_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                           const reach* taps, int64_t count)
{
    const REAL* restrict g = (const REAL*)p->a + outer * outputs(p) + line;
    REAL* restrict out = (REAL*)p->out + outer * inputs(p);
    for (int64_t t = 0; t < count; t++) { EACH(taps + t, out[met] += g[at]) }
}

static void pick_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                      const reach* taps, int64_t count)
{
    const REAL* restrict x = (const REAL*)p->a + outer * inputs(p);
    const int32_t* restrict position = (const int32_t*)p->b + outer * outputs(p) + line;
    REAL* restrict out = (REAL*)p->out + outer * outputs(p) + line;
    fill_line(p, out, c0, c1, 0);
    for (int64_t t = 0; t < count; t++) {
        int32_t number = (int32_t)taps[t].number;
        EACH(taps + t, out[at] = position[at] == number ? x[met] : out[at])
    }
}

static void spread_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                        const reach* taps, int64_t count)
{
    const REAL* restrict g = (const REAL*)p->a + outer * outputs(p) + line;
    const int32_t* restrict position = (const int32_t*)p->b + outer * outputs(p) + line;
    REAL* restrict out = (REAL*)p->out + outer * inputs(p);
    for (int64_t t = 0; t < count; t++) {
        int32_t number = (int32_t)taps[t].number;
        EACH(taps + t, out[met] += position[at] == number ? g[at] : (REAL)0)
    }
}

/* Take elements of a tap where they are larger than those found before: minus infinity is taken
   where nothing was found, and a NaN once, before all numbers. */
static inline __attribute__((always_inline)) void better_lanes(
    const REAL* restrict met, int64_t step, int64_t begin, int64_t end, int32_t number,
    REAL* restrict best, int32_t* restrict found)
{
#pragma omp simd
    for (int64_t l = begin; l < end; l++) {
        REAL v = met[l * step], w = best[l];
        int better = (v > w) | (found[l] < 0) | ((v != v) & (w == w));
        best[l] = better ? v : w;
        found[l] = better ? number : found[l];
    }
}

/* The first of the largest elements: those of MG_LANES windows at a time are kept beside it. */
static void taps_line(const shape* p, int64_t outer, int64_t line, int64_t c0, int64_t c1,
                      const reach* taps, int64_t count)
{
    const REAL* restrict x = (const REAL*)p->a + outer * inputs(p);
    int32_t* restrict out = (int32_t*)p->out + outer * outputs(p) + line;
    REAL best[MG_LANES];
    int32_t found[MG_LANES];
    int along = p->inner == 1; /* lanes are windows of a line, else channels of a window */
    int64_t windows = along ? MG_LANES : 1, channels = along ? 1 : MG_LANES;
    for (int64_t o = 0; o < p->o[2]; o += windows)
    for (int64_t c = c0; c < c1; c += channels) {
        int64_t wide = lesser(windows, p->o[2] - o), deep = lesser(channels, c1 - c);
        int64_t lanes = wide * deep;
        for (int64_t l = 0; l < lanes; l++) best[l] = -(REAL)INFINITY, found[l] = -1;
        for (int64_t t = 0; t < count; t++) {
            int64_t from = taps[t].first > o ? taps[t].first - o : 0, step = taps[t].step;
            int64_t to = lesser(wide, taps[t].stop - o);
            const REAL* met = x + taps[t].met + o * step + c;
            int32_t number = (int32_t)taps[t].number;
            if (from >= to) continue;
            if (!along) better_lanes(met, 1, 0, deep, number, best, found);
            else if (step == 1) better_lanes(met, 1, from, to, number, best, found);
            else if (step == 2) better_lanes(met, 2, from, to, number, best, found);
            else better_lanes(met, step, from, to, number, best, found);
        }
        for (int64_t l = 0; l < lanes; l++) out[o * p->inner + c + l] = found[l];
    }
}

/* Floats in the order of integers, NaN above all: choices between integers are no branches, which
   would be taken or not by chance. */
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) whole;
#define TOP ((whole)(sizeof(REAL) == 4 ? INT32_MAX : INT64_MAX))

typedef union {
    REAL value;
    whole key;
} ordered;

static inline whole key_of(REAL value)
{
    ordered x = { value };
    whole nan = -(whole)(value != value), below = x.key >> (8 * sizeof(whole) - 1);
    return ((x.key ^ (below & TOP)) & ~nan) | (nan & TOP);
}

static inline whole greater(whole a, whole b) { return a > b ? a : b; }

static void max_quads(const shape* p, int64_t outer, int64_t o1)
{
    const REAL* restrict upper = (const REAL*)p->a + outer * inputs(p) + 2 * o1 * p->in[2];
    const REAL* restrict lower = upper + p->in[2];
    REAL* restrict out = (REAL*)p->out + outer * outputs(p) + o1 * p->o[2];
#pragma omp simd
    for (int64_t o = 0; o < p->o[2]; o++) {
        whole first = greater(key_of(upper[2 * o]), key_of(upper[2 * o + 1]));
        whole second = greater(key_of(lower[2 * o]), key_of(lower[2 * o + 1]));
        ordered most = { .key = greater(first, second) };
        most.key ^= (most.key >> (8 * sizeof(whole) - 1)) & TOP;
        out[o] = most.value;
    }
}

/* Adding 0 makes one zero of the two, which are equal. */
static void taps_quads(const shape* p, int64_t outer, int64_t o1)
{
    const REAL* restrict upper = (const REAL*)p->a + outer * inputs(p) + 2 * o1 * p->in[2];
    const REAL* restrict lower = upper + p->in[2];
    int32_t* restrict out = (int32_t*)p->out + outer * outputs(p) + o1 * p->o[2];
#pragma omp simd
    for (int64_t o = 0; o < p->o[2]; o++) {
        whole a = key_of(upper[2 * o] + 0), b = key_of(upper[2 * o + 1] + 0);
        whole c = key_of(lower[2 * o] + 0), d = key_of(lower[2 * o + 1] + 0);
        int32_t right = b > a, under = 2 + (d > c), below = greater(c, d) > greater(a, b);
        out[o] = right + below * (under - right);
    }
}

static inline REAL kept_if(int condition, REAL value)
{
    ordered x = { value };
    x.key &= -(whole)condition;
    return x.value;
}

static void spread_quads(const shape* p, int64_t outer, int64_t o1)
{
    const REAL* restrict g = (const REAL*)p->a + outer * outputs(p) + o1 * p->o[2];
    const int32_t* restrict position = (const int32_t*)p->b + outer * outputs(p) + o1 * p->o[2];
    REAL* restrict upper = (REAL*)p->out + outer * inputs(p) + 2 * o1 * p->in[2];
    REAL* restrict lower = upper + p->in[2];
#pragma omp simd
    for (int64_t o = 0; o < p->o[2]; o++) {
        int32_t at = position[o];
        upper[2 * o] = kept_if(at == 0, g[o]);
        upper[2 * o + 1] = kept_if(at == 1, g[o]);
        lower[2 * o] = kept_if(at == 2, g[o]);
        lower[2 * o + 1] = kept_if(at == 3, g[o]);
    }
}

/* A library has those that are wanted; the compiler drops what only others need. */
#ifdef WANTS_max_pool
void mg_max_pool(void** arguments) { run(arguments, max_line, max_quads, 0); }
#endif
#ifdef WANTS_max_pool_taps
void mg_max_pool_taps(void** arguments) { run(arguments, taps_line, taps_quads, 0); }
#endif
#ifdef WANTS_pool_pick
void mg_pool_pick(void** arguments) { run(arguments, pick_line, NULL, 0); }
#endif
#ifdef WANTS_pool_spread
void mg_pool_spread(void** arguments) { run(arguments, spread_line, spread_quads, 1); }
#endif
#ifdef WANTS_sum_pool
void mg_sum_pool(void** arguments) { run(arguments, sum_line, NULL, 0); }
#endif
#ifdef WANTS_sum_pool_input
void mg_sum_pool_input(void** arguments) { run(arguments, sum_input_line, NULL, 1); }
#endif
