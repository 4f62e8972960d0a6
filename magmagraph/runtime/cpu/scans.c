/* Running sums, products and extremes along lines. scans.py defines before it: VALUE, the type of an
   element, and COMBINE(a, b), what so far and the next element become. Lines are of arrays of three
   axes, along the middle one. */

enum { LINES = 8, COLUMNS = 1024 };
enum { WORK = 8 }; /* for an element, in the pool's units */

typedef struct {
    const VALUE* in;
    VALUE* out;
    int64_t before, extent, after, reverse, pieces;
} scan;

/* Lines that lie element by element: several at a time, as each waits for itself alone. */
static void along_rows(const scan* s, int64_t begin, int64_t end)
{
    const int64_t extent = s->extent, step = s->reverse ? -1 : 1;
    for (int64_t line = begin; line < end; line += LINES) {
        const int64_t lines = end - line < LINES ? end - line : LINES;
        const VALUE* in = s->in + line * extent + (s->reverse ? extent - 1 : 0);
        VALUE* out = s->out + line * extent + (s->reverse ? extent - 1 : 0);
        if (lines == LINES) {
            VALUE held[LINES];
            for (int64_t l = 0; l < LINES; l++) out[l * extent] = held[l] = in[l * extent];
            for (int64_t j = 1; j < extent; j++)
                for (int64_t l = 0; l < LINES; l++) {
                    held[l] = COMBINE(held[l], in[l * extent + j * step]);
                    out[l * extent + j * step] = held[l];
                }
            continue;
        }
        for (int64_t l = 0; l < lines; l++) {
            VALUE held = out[l * extent] = in[l * extent];
            for (int64_t j = 1; j < extent; j++)
                out[l * extent + j * step] = held = COMBINE(held, in[l * extent + j * step]);
        }
    }
}

/* Columns [first, last) of a block: whole rows of them are combined. */
static void along_columns(const scan* s, int64_t block, int64_t first, int64_t last)
{
    const int64_t after = s->after, step = s->reverse ? -after : after;
    const int64_t start = (block * s->extent + (s->reverse ? s->extent - 1 : 0)) * after;
    const VALUE* in = s->in + start;
    VALUE* out = s->out + start;
    for (int64_t i = first; i < last; i++) out[i] = in[i];
    for (int64_t j = 1; j < s->extent; j++) {
        const VALUE* so_far = out;
        in += step;
        out += step;
#pragma omp simd
        for (int64_t i = first; i < last; i++) out[i] = COMBINE(so_far[i], in[i]);
    }
}

static void some_of(void* context, int64_t thread, int64_t threads)
{
    const scan* s = context;
    int64_t begin, end;
    if (s->after == 1) {
        mg_split(s->before, LINES, thread, threads, &begin, &end);
        along_rows(s, begin, end);
        return;
    }
    mg_split(s->before * s->pieces, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % s->pieces * COLUMNS;
        const int64_t last = first + COLUMNS < s->after ? first + COLUMNS : s->after;
        along_columns(s, i / s->pieces, first, last);
    }
}

/* Arguments: out, in, extents of the three axes, whether from the end. */
void mg_scan(void** arguments)
{
    scan s = { arguments[1], arguments[0], (int64_t)arguments[2], (int64_t)arguments[3],
               (int64_t)arguments[4], (int64_t)arguments[5], 0 };
    s.pieces = (s.after + COLUMNS - 1) / COLUMNS;
    const int64_t size = s.before * s.extent * s.after;
    if (size > 0) mg_share(some_of, &s, size / 32768, WORK * size);
}
