/* Fourier transforms of several lines at once: each lane of a vector is a line. fourier.py defines
   before it REAL, and makes the tables of roots.

   The lines of a group are read into planes of real and imaginary parts, an element of all lines
   after the other. There a pass for each factor r of the length n = r m takes

       b[k] = w^(p k) sum_j a[j] exp(-2 pi i j k / r),   w = exp(-2 pi i / n),   p < m,

   from a[j] = x[p + m j] to y[r p + k] (Stockham: the order comes out right), and goes on with
   lines of length m whose elements are r apart. The inverse is the same with parts exchanged.
   A line of n real values is one of n / 2 complex values, whose spectrum Z gives

       X[k] = (Z[k] + Z*[n/2 - k]) / 2 - i exp(-2 pi i k / n) (Z[k] - Z*[n/2 - k]) / 2. */

enum { BYTES = MG_LANE_BYTES, L = BYTES / sizeof(REAL) };
typedef REAL vec __attribute__((vector_size(BYTES)));
typedef REAL anywhere __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef struct { vec re, im; } point;

#define IN static inline __attribute__((always_inline))

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef LANE lanes __attribute__((vector_size(BYTES)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

#if BYTES_OF_REAL == 4 && MG_LANE_BYTES == 64
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOG_L 4
#elif BYTES_OF_REAL == 4 || MG_LANE_BYTES == 64
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define LOG_L 3
#else
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define LOG_L 2
#endif

IN point add(point a, point b) { return (point){a.re + b.re, a.im + b.im}; }
IN point subtract(point a, point b) { return (point){a.re - b.re, a.im - b.im}; }
IN point times_minus_i(point a) { return (point){a.im, -a.re}; }
IN point scaled(point a, REAL s) { return (point){a.re * s, a.im * s}; }
IN point turned(point a, const REAL* w)
{
    return (point){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]};
}

/* ---- Transforms of r points, in place. */

IN void points2(point* a)
{
    const point b = a[0];
    a[0] = add(b, a[1]);
    a[1] = subtract(b, a[1]);
}

IN void points3(point* a)
{
    const REAL s = (REAL)0.86602540378443864676;
    const point t = add(a[1], a[2]), d = scaled(times_minus_i(subtract(a[1], a[2])), s);
    const point c = subtract(a[0], scaled(t, (REAL)0.5));
    a[0] = add(a[0], t);
    a[1] = add(c, d);
    a[2] = subtract(c, d);
}

IN void points4(point* a)
{
    const point s = add(a[0], a[2]), d = subtract(a[0], a[2]);
    const point t = add(a[1], a[3]), e = times_minus_i(subtract(a[1], a[3]));
    a[0] = add(s, t);
    a[1] = add(d, e);
    a[2] = subtract(s, t);
    a[3] = subtract(d, e);
}

IN void points5(point* a)
{
    const REAL c1 = (REAL)0.30901699437494742410, c2 = (REAL)-0.80901699437494742410;
    const REAL s1 = (REAL)0.95105651629515357212, s2 = (REAL)0.58778525229247312917;
    const point t1 = add(a[1], a[4]), t2 = add(a[2], a[3]);
    const point d1 = times_minus_i(subtract(a[1], a[4])), d2 = times_minus_i(subtract(a[2], a[3]));
    const point m1 = add(a[0], add(scaled(t1, c1), scaled(t2, c2)));
    const point m2 = add(a[0], add(scaled(t1, c2), scaled(t2, c1)));
    const point n1 = add(scaled(d1, s1), scaled(d2, s2));
    const point n2 = subtract(scaled(d1, s2), scaled(d2, s1));
    a[0] = add(a[0], add(t1, t2));
    a[1] = add(m1, n1);
    a[2] = add(m2, n2);
    a[3] = subtract(m2, n2);
    a[4] = subtract(m1, n1);
}

IN void points8(point* a)
{
    const REAL h = (REAL)0.70710678118654752440;
    point even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]};
    points4(even);
    points4(odd);
    const point b = odd[1], c = odd[3];
    odd[1] = (point){(b.re + b.im) * h, (b.im - b.re) * h};
    odd[2] = times_minus_i(odd[2]);
    odd[3] = (point){(c.im - c.re) * h, (c.re + c.im) * -h};
    for (int k = 0; k < 4; k++) {
        a[k] = add(even[k], odd[k]);
        a[k + 4] = subtract(even[k], odd[k]);
    }
}

/* ---- Passes. */

IN void pass(const point* x, point* y, int64_t m, int64_t s, const REAL* roots, const int r,
             void (*const points)(point*))
{
    for (int64_t p = 0; p < m; p++, roots += 2 * (r - 1))
        for (int64_t q = 0; q < s; q++) {
            point a[8];
            for (int j = 0; j < r; j++) a[j] = x[q + s * (p + m * j)];
            points(a);
            y[q + s * (r * p)] = a[0];
            for (int k = 1; k < r; k++)
                y[q + s * (r * p + k)] = p ? turned(a[k], roots + 2 * (k - 1)) : a[k];
        }
}

/* Factors of a length, its roots for each pass, and the roots of a line of real values. */
typedef struct {
    int64_t n, passes;
    const int64_t* factors;
    const REAL* roots;
    const REAL* halves;
} table;

/* The transform of n points at x; y is as large. Returns which of both has the result. */
static point* transformed(const table* t, point* x, point* y)
{
    const REAL* roots = t->roots;
    int64_t length = t->n, s = 1;
    for (int64_t i = 0; i < t->passes; i++) {
        const int64_t r = t->factors[i], m = length / r;
        switch (r) {
        case 2: pass(x, y, m, s, roots, 2, points2); break;
        case 3: pass(x, y, m, s, roots, 3, points3); break;
        case 4: pass(x, y, m, s, roots, 4, points4); break;
        case 5: pass(x, y, m, s, roots, 5, points5); break;
        default: pass(x, y, m, s, roots, 8, points8); break;
        }
        roots += 2 * (r - 1) * m;
        length = m;
        s *= r;
        point* other = x;
        x = y;
        y = other;
    }
    return x;
}

/* ---- Lines in memory: `lines` of them, an element `step` numbers from the next, a line `line`. */

IN void transpose(vec* rows)
{
    for (int stage = 0; stage < LOG_L; stage++) {
        vec next[L];
        for (int i = 0; i < L / 2; i++) {
            next[2 * i] = PICK(rows[i], rows[i + L / 2], LOW);
            next[2 * i + 1] = PICK(rows[i], rows[i + L / 2], HIGH);
        }
        for (int i = 0; i < L; i++) rows[i] = next[i];
    }
}

/* Read pairs of numbers that follow each other, of lines that follow each other. */
static void read_rows(point* to, const REAL* from, int64_t pairs, int64_t line, int64_t lines)
{
    REAL* flat = (REAL*)to;
    int64_t i = 0;
    for (; i + L / 2 <= pairs; i += L / 2) {
        vec rows[L];
        for (int l = 0; l < L; l++)
            rows[l] = *(const anywhere*)(from + (l < lines ? l : lines - 1) * line + 2 * i);
        transpose(rows);
        for (int k = 0; k < L / 2; k++) to[i + k] = (point){rows[2 * k], rows[2 * k + 1]};
    }
    for (i *= 2; i < 2 * pairs; i++)
        for (int l = 0; l < L; l++) flat[i * L + l] = from[(l < lines ? l : lines - 1) * line + i];
}

static void write_rows(const point* from, REAL* to, int64_t pairs, int64_t line, int64_t lines)
{
    const REAL* flat = (const REAL*)from;
    int64_t i = 0;
    for (; i + L / 2 <= pairs; i += L / 2) {
        vec rows[L];
        for (int k = 0; k < L / 2; k++) {
            rows[2 * k] = from[i + k].re;
            rows[2 * k + 1] = from[i + k].im;
        }
        transpose(rows);
        for (int l = 0; l < L; l++)
            if (l < lines) *(anywhere*)(to + l * line + 2 * i) = rows[l];
    }
    for (i *= 2; i < 2 * pairs; i++)
        for (int l = 0; l < lines; l++) to[l * line + i] = flat[i * L + l];
}

IN vec some(const REAL* from, int64_t count)
{
    vec x = {0};
    if (count >= L) return *(const anywhere*)from;
    for (int64_t l = 0; l < count; l++) x[l] = from[l];
    return x;
}

IN void put(REAL* to, vec x, int64_t count)
{
    if (count >= L) *(anywhere*)to = x;
    else
        for (int64_t l = 0; l < count; l++) to[l] = x[l];
}

/* Read lines that lie element beside element: complex numbers, or pairs of real ones. */
static void read_columns(point* to, const REAL* from, int64_t pairs, int64_t step, int64_t lines,
                         int is_complex)
{
    for (int64_t i = 0; i < pairs; i++) {
        if (is_complex) {
            const REAL* at = from + i * step;
            const vec a = some(at, 2 * lines), b = some(at + L, 2 * lines - L);
            to[i] = (point){PICK(a, b, EVEN), PICK(a, b, ODD)};
        } else {
            const REAL* at = from + 2 * i * step;
            to[i] = (point){some(at, lines), some(at + step, lines)};
        }
    }
}

static void write_columns(const point* from, REAL* to, int64_t pairs, int64_t step, int64_t lines,
                          int is_complex)
{
    for (int64_t i = 0; i < pairs; i++) {
        if (is_complex) {
            REAL* at = to + i * step;
            put(at, PICK(from[i].re, from[i].im, LOW), 2 * lines);
            put(at + L, PICK(from[i].re, from[i].im, HIGH), 2 * lines - L);
        } else {
            REAL* at = to + 2 * i * step;
            put(at, from[i].re, lines);
            put(at + step, from[i].im, lines);
        }
    }
}

/* ---- One axis. */

enum { FORWARD, INVERSE, OF_REAL, TO_REAL };

typedef struct {
    table t;
    const REAL* in;
    REAL* out;
    char* work;
    int64_t outer, inner, kind, each;
    REAL scale;
} axis;

/* The first m + 1 elements of the spectrum of 2 m real values, from that of m complex ones. */
static void take_apart(point* z, int64_t m, const REAL* roots)
{
    z[m] = z[0];
    for (int64_t k = 0; 2 * k <= m; k++) {
        const point a = z[k], b = {z[m - k].re, -z[m - k].im};
        const point s = scaled(add(a, b), (REAL)0.5), d = scaled(subtract(a, b), (REAL)0.5);
        const point e = times_minus_i(turned(d, roots + 2 * k));
        const point other = subtract(s, e);
        z[m - k] = (point){other.re, -other.im};
        z[k] = add(s, e);
    }
}

/* The other way round; parts come out exchanged. */
static void put_together(point* z, int64_t m, const REAL* roots)
{
    z[0].im = z[m].im = (vec){0}; /* of real values both are 0 */
    for (int64_t k = 0; 2 * k <= m; k++) {
        const point a = z[k], b = {z[m - k].re, -z[m - k].im};
        const point s = add(a, b), d = subtract(a, b);
        const REAL back[2] = {roots[2 * k], -roots[2 * k + 1]};
        const point e = turned(d, back); /* z = s + i e, and s* + i e* with signs at m - k */
        z[k] = (point){s.im + e.re, s.re - e.im};
        if (m != 2 * k) z[m - k] = (point){e.re - s.im, s.re + e.im};
    }
}

static void group(const axis* g, int64_t number, point* x, point* y)
{
    const int64_t n = g->t.n, kind = g->kind;
    const int64_t real_in = kind == OF_REAL, real_out = kind == TO_REAL;
    const int64_t pairs_in = real_out ? n + 1 : n, pairs_out = real_in ? n + 1 : n;
    if (g->inner == 1) {
        const int64_t first = number * L, left = g->outer - first, lines = left < L ? left : L;
        read_rows(x, g->in + first * 2 * pairs_in, pairs_in, 2 * pairs_in, lines);
    } else {
        const int64_t groups = (g->inner + L - 1) / L;
        const int64_t block = number / groups, first = number % groups * L;
        const int64_t lines = g->inner - first < L ? g->inner - first : L;
        const int64_t width = real_in ? 1 : 2, step = g->inner * width;
        const REAL* from = g->in + block * 2 * pairs_in * g->inner + first * width;
        read_columns(x, from, pairs_in, step, lines, !real_in);
    }
    if (kind == INVERSE)
        for (int64_t i = 0; i < n; i++) x[i] = (point){x[i].im, x[i].re};
    if (kind == TO_REAL) put_together(x, n, g->t.halves);
    point* z = transformed(&g->t, x, y);
    if (kind == OF_REAL) take_apart(z, n, g->t.halves);
    const REAL scale = g->scale;
    if (kind == INVERSE || kind == TO_REAL)
        for (int64_t i = 0; i < n; i++) z[i] = (point){z[i].im * scale, z[i].re * scale};
    else if (scale != 1)
        for (int64_t i = 0; i < pairs_out; i++) z[i] = scaled(z[i], scale);
    if (g->inner == 1) {
        const int64_t first = number * L, left = g->outer - first, lines = left < L ? left : L;
        write_rows(z, g->out + first * 2 * pairs_out, pairs_out, 2 * pairs_out, lines);
    } else {
        const int64_t groups = (g->inner + L - 1) / L;
        const int64_t block = number / groups, first = number % groups * L;
        const int64_t lines = g->inner - first < L ? g->inner - first : L;
        const int64_t width = real_out ? 1 : 2, step = g->inner * width;
        REAL* to = g->out + block * 2 * pairs_out * g->inner + first * width;
        write_columns(z, to, pairs_out, step, lines, !real_out);
    }
}

static int64_t groups_of(const axis* g)
{
    return g->inner == 1 ? (g->outer + L - 1) / L : g->outer * ((g->inner + L - 1) / L);
}

static void some_groups(void* context, int64_t thread, int64_t threads)
{
    const axis* g = context;
    int64_t begin, end;
    mg_split(groups_of(g), 1, thread, threads, &begin, &end);
    point* x = (point*)(g->work + thread * g->each);
    for (int64_t i = begin; i < end; i++) group(g, i, x, x + g->t.n + 1);
}

/* Arguments: out, in, work, its bytes for a thread and how many threads have one, how many axes,
   the bits of the scale of the last; and for each axis: elements before and behind it, kind,
   length (half of it for real values), number of factors, factors, roots, roots of halves. */
void mg_fourier(void** arguments)
{
    REAL* out = arguments[0];
    const REAL* in = arguments[1];
    const int64_t most = (int64_t)arguments[4], axes = (int64_t)arguments[5];
    union { int64_t bits; double value; } scale = {(int64_t)arguments[6]};
    for (int64_t i = 0; i < axes; i++) {
        void** a = arguments + 7 + 8 * i;
        axis g = {{(int64_t)a[3], (int64_t)a[4], a[5], a[6], a[7]}, i ? out : in, out,
                  arguments[2], (int64_t)a[0], (int64_t)a[1], (int64_t)a[2],
                  (int64_t)arguments[3], i == axes - 1 ? (REAL)scale.value : 1};
        const int64_t count = groups_of(&g);
        const int64_t work = count * L * g.t.n * (4 + 4 * g.t.passes);
        mg_share(some_groups, &g, most < count ? most : count, work);
    }
}
