/* The positions that sort lines, stably, or the first of them. order.py defines before it: BITS, an
   unsigned type as wide as an element; KEY, the type that elements are compared in; PACKED, one
   twice as wide, that holds a key and a position; SIGN, which of the bits is the sign, or 0;
   INFINITE, the bits of infinity, or 0 for whole numbers.

   An element and its position make one number, so that no two are equal and any way to sort is
   stable. NaN stands last, and zeros of both signs are equal. */

#include <string.h>

enum { SHORT = 96, BLOCK = 32, KEY_BITS = 8 * sizeof(KEY) };
enum { WORK = 30 }; /* for an element, in the pool's units */

typedef struct {
    const BITS* in;
    int64_t* out;
    PACKED* room;
    int64_t lines, extent, step, count, largest, each, radix;
} order;

static inline KEY key_of(BITS b)
{
    KEY key = b;
    if (INFINITE) {
        const BITS magnitude = (BITS)(b & (BITS)~SIGN);
        /* no branches: the compiler makes vectors of these */
        key = (b & SIGN) ? (KEY)(BITS)~b : (KEY)(b | SIGN);
        key = magnitude ? key : (KEY)SIGN;
        key = magnitude > INFINITE ? (KEY)(BITS)~(BITS)0 : key;
    }
    else if (SIGN) key = (KEY)(BITS)(b ^ SIGN);
    return key;
}

static inline PACKED packed(KEY key, int64_t position)
{
    return (PACKED)key << KEY_BITS | (PACKED)(KEY)position;
}

static void insertion(PACKED* a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const PACKED held = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] > held; j--) a[j] = a[j - 1];
        a[j] = held;
    }
}

/* Split a into those of at most a pivot and those of at least it; return where the second begin,
   neither 0 nor n. The pivot is of three places that a generator of random numbers chooses. */
static int64_t split(PACKED* a, int64_t n, uint64_t* state)
{
    PACKED three[3];
    for (int i = 0; i < 3; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        three[i] = a[*state % (uint64_t)n];
    }
    insertion(three, 3);
    const PACKED pivot = three[1];
    int64_t i = -1, j = n;
    for (;;) {
        do i++;
        while (a[i] < pivot);
        do j--;
        while (a[j] > pivot);
        if (i >= j) break;
        const PACKED held = a[i];
        a[i] = a[j];
        a[j] = held;
    }
    return j + 1 < n ? j + 1 : j; /* j is n - 1 only where the pivot, the largest, stands there */
}

static void sort_all(PACKED* a, int64_t n, uint64_t* state)
{
    while (n > 24) {
        const int64_t middle = split(a, n, state);
        if (middle < n - middle) {
            sort_all(a, middle, state);
            a += middle;
            n -= middle;
        }
        else {
            sort_all(a + middle, n - middle, state);
            n = middle;
        }
    }
    insertion(a, n);
}

/* Bring the `count` smallest of n to the front. */
static void select_first(PACKED* a, int64_t n, int64_t count, uint64_t* state)
{
    while (n > 24) {
        const int64_t middle = split(a, n, state);
        if (count < middle) n = middle;
        else {
            a += middle;
            n -= middle;
            count -= middle;
            if (!count) return;
        }
    }
    insertion(a, n);
}

static inline KEY key_at(const order* o, const BITS* in, int64_t i)
{
    const KEY key = key_of(in[i * o->step]);
    return o->largest ? (KEY)(BITS)~key : key;
}

/* The first `count` of a line, in order, to the front of `a`. */
static void first_of(const order* o, const BITS* in, PACKED* a)
{
    const int64_t n = o->extent, room = o->each;
    uint64_t state = 0x9E3779B97F4A7C15u;
    int64_t filled = 0, i = 0;
    for (; i < n && filled < room; i++, filled++) a[filled] = packed(key_at(o, in, i), i);
    while (i < n) {
        select_first(a, filled, o->count, &state);
        filled = o->count;
        PACKED last = a[0];
        for (int64_t k = 1; k < filled; k++) last = a[k] > last ? a[k] : last;
        const KEY limit = (KEY)(last >> KEY_BITS); /* equal ones behind it stand behind it */
        while (i < n && filled + BLOCK <= room) {
            const int64_t end = n - i < BLOCK ? n : i + BLOCK;
            int any = 0; /* most blocks of a long line are passed by */
            if (o->step > 1) any = 1;
            else
                for (int64_t k = i; k < end; k++) any |= key_at(o, in, k) < limit;
            for (int64_t k = i; any && k < end; k++) {
                const KEY key = key_at(o, in, k);
                a[filled] = packed(key, k);
                filled += key < limit;
            }
            i = end;
        }
    }
    if (filled > o->count) select_first(a, filled, o->count, &state);
    sort_all(a, o->count < filled ? o->count : filled, &state);
}

/* All of a line, in order; returns where: in `a`, or behind it. */
static PACKED* all_of(const order* o, const BITS* in, PACKED* a)
{
    const int64_t n = o->extent;
    PACKED* b = a + n;
    if (n <= SHORT) {
        uint64_t state = 0x9E3779B97F4A7C15u;
        for (int64_t i = 0; i < n; i++) a[i] = packed(key_at(o, in, i), i);
        sort_all(a, n, &state);
        return a;
    }
    int64_t counts[sizeof(BITS)][256];
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < n; i++) {
        const KEY key = key_at(o, in, i);
        a[i] = packed(key, i);
        for (int d = 0; d < (int)sizeof(BITS); d++) counts[d][(key >> (8 * d)) & 255]++;
    }
    for (int d = 0; d < (int)sizeof(BITS); d++) {
        const int shift = KEY_BITS + 8 * d;
        int64_t* at = counts[d];
        if (at[(int)((a[0] >> shift) & 255)] == n) continue; /* all have the same digit */
        for (int64_t sum = 0, v = 0; v < 256; v++) {
            const int64_t held = at[v];
            at[v] = sum;
            sum += held;
        }
        for (int64_t i = 0; i < n; i++) b[at[(int)((a[i] >> shift) & 255)]++] = a[i];
        PACKED* held = a;
        a = b;
        b = held;
    }
    return a;
}

static void some_lines(void* context, int64_t thread, int64_t threads)
{
    const order* o = context;
    PACKED* room = o->room + thread * o->each;
    int64_t begin, end;
    mg_split(o->lines, 1, thread, threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        const int64_t outer = line / o->step, inner = line % o->step;
        const BITS* in = o->in + outer * o->extent * o->step + inner;
        int64_t* out = o->out + outer * o->count * o->step + inner;
        const PACKED* found = room;
        if (o->radix) found = all_of(o, in, room);
        else first_of(o, in, room);
        for (int64_t i = 0; i < o->count; i++) out[i * o->step] = (int64_t)(KEY)found[i];
    }
}

/* Arguments: out, in, lines, extent of a line, elements from one of a line to the next, how many
   positions are wanted of a line, whether those of the largest, room, how many numbers of it are a
   thread's, threads that there is room for. */
void mg_order(void** arguments)
{
    order o = { arguments[1], arguments[0], arguments[7], (int64_t)arguments[2],
                (int64_t)arguments[3], (int64_t)arguments[4], (int64_t)arguments[5],
                (int64_t)arguments[6], (int64_t)arguments[8], 0 };
    int64_t threads = (int64_t)arguments[9];
    o.radix = o.each >= 2 * o.extent;
    if (!o.lines || !o.count) return;
    const int64_t size = o.lines * o.extent;
    if (threads > size / 4096) threads = size / 4096;
    mg_share(some_lines, &o, threads < o.lines ? threads : o.lines, WORK * size);
}

/* ---- Places in a sorted line ---------------------------------------------------------------- */

enum { VALUES = 64 };

typedef struct {
    const BITS* values;
    int64_t* out;
    const KEY* line;
    int64_t extent, count, right;
} places;

/* Each of VALUES numbers halves the part of the line that it may stand in, all in step. */
#define MG_HALVE(BEFORE)                                                                           \
    for (int64_t left = extent; left > 1; left -= left / 2) {                                      \
        const KEY half = (KEY)(left / 2);                                                          \
        _Pragma("omp simd")                                                                        \
        for (int k = 0; k < VALUES; k++)                                                           \
            at[k] += half & (KEY)-(KEY)(line[at[k] + half - 1] BEFORE keys[k]);                    \
    }                                                                                              \
    for (int k = 0; k < VALUES; k++) at[k] += line[at[k]] BEFORE keys[k]

static void some_places(void* context, int64_t thread, int64_t threads)
{
    const places* p = context;
    const KEY* restrict line = p->line;
    const int64_t extent = p->extent;
    int64_t begin, end;
    mg_split(p->count, VALUES, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i += VALUES) {
        KEY keys[VALUES], at[VALUES];
        const int64_t n = end - i < VALUES ? end - i : VALUES;
        for (int64_t k = 0; k < n; k++) keys[k] = key_of(p->values[i + k]);
        for (int64_t k = n; k < VALUES; k++) keys[k] = 0;
        memset(at, 0, sizeof at);
        if (p->right) { MG_HALVE(<=); }
        else { MG_HALVE(<); }
        for (int64_t k = 0; k < n; k++) p->out[i + k] = (int64_t)at[k];
    }
}

/* Arguments: out, a sorted line, values, extent of the line, how many values, whether behind equal
   elements, room for the keys of the line. */
void mg_places(void** arguments)
{
    const BITS* in = arguments[1];
    KEY* line = arguments[6];
    places p = { arguments[2], arguments[0], line, (int64_t)arguments[3], (int64_t)arguments[4],
                 (int64_t)arguments[5] };
    if (!p.count) return;
    if (!p.extent) {
        memset(p.out, 0, (size_t)p.count * sizeof(int64_t));
        return;
    }
    for (int64_t i = 0; i < p.extent; i++) line[i] = key_of(in[i]);
    mg_share(some_places, &p, p.count / 4096, WORK * p.count);
}
