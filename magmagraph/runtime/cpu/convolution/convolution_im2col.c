/* Convolutions as products with patches: the elements that windows meet, as a matrix.

   With channels first it has a row for each channel and tap and a column for each result; with
   channels last it is the other way around, so that copies are long and results need no transpose.
   Patches are made for a part of the results at a time, in each thread's share of the workspace. A
   window of one element at stride 1 needs none: the input is the matrix. */

static int is_pointwise(const shape* g)
{
    int result = g->taps == 1;
    for (int a = 0; a < 3; a++)
        result &= g->s[a] == 1 && g->low[a] == 0 && g->in[a] == g->o[a];
    return result;
}

static void tap_of(const shape* g, int64_t t, int64_t* shift)
{
    int64_t at[3] = { t / (g->k[1] * g->k[2]), t / g->k[2] % g->k[1], t % g->k[2] };
    for (int a = 0; a < 3; a++) shift[a] = at[a] * g->d[a] - g->low[a];
}

/* ---- Channels first ---- */

/* Copy (to_image 0) what tap and channel meet into a row of the results [begin, end), or add
   (to_image 1) the row where it was met. */
static void row_first(const shape* g, REAL* image, REAL* row, const int64_t* shift, int64_t begin,
                      int64_t end, int to_image)
{
    int64_t first, stop, s = g->s[2];
    inside_of(g->in[2], s, shift[2], g->o[2], &first, &stop);
    for (int64_t at = begin; at < end;) {
        int64_t o2 = at % g->o[2], line = at / g->o[2];
        int64_t i1 = line % g->o[1] * g->s[1] + shift[1], i0 = line / g->o[1] * g->s[0] + shift[0];
        int64_t count = lesser(g->o[2] - o2, end - at);
        int64_t from = greater(o2, first), to = lesser(o2 + count, stop);
        int inside = i0 >= 0 && i0 < g->in[0] && i1 >= 0 && i1 < g->in[1] && from < to;
        REAL* cells = row + (at - begin) - o2; /* at o2 stands the first of them */
        at += count;
        if (!inside) {
            if (!to_image) zero(cells + o2, count);
            continue;
        }
        REAL* met = image + (i0 * g->in[1] + i1) * g->in[2] + shift[2];
        if (to_image) {
            if (s == 1)
#pragma omp simd
                for (int64_t o = from; o < to; o++) met[o] += cells[o];
            else
                for (int64_t o = from; o < to; o++) met[o * s] += cells[o];
            continue;
        }
        zero(cells + o2, from - o2);
        if (s == 1) memcpy(cells + from, met + from, (size_t)(to - from) * sizeof(REAL));
        else
            for (int64_t o = from; o < to; o++) cells[o] = met[o * s];
        zero(cells + to, o2 + count - to);
    }
}

/* Rows [r0, r1) of the patches of some images, `width` columns apart in memory. */
static void patches_first(const shape* g, const REAL* x, int64_t images, int64_t sample, REAL* rows,
                          int64_t width, int64_t r0, int64_t r1, int64_t begin, int64_t end)
{
    for (int64_t r = r0; r < r1; r++) {
        int64_t shift[3];
        tap_of(g, r % g->taps, shift);
        for (int64_t i = 0; i < images; i++)
            row_first(g, (REAL*)x + i * sample + r / g->taps * g->inputs,
                      rows + (r - r0) * width + i * (end - begin), shift, begin, end, 0);
    }
}

/* Between the results of some images, (images, channels, positions), and a matrix of their
   channels: copy into the matrix, or (out_of 1) out of it. */
static void gather_first(REAL* images, int64_t sample, int64_t count, int64_t channels,
                         int64_t positions, REAL* matrix, int out_of)
{
    size_t bytes = (size_t)positions * sizeof(REAL);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < count; i++) {
            REAL* image = images + i * sample + c * positions;
            REAL* cells = matrix + (c * count + i) * positions;
            if (out_of) memcpy(image, cells, bytes);
            else memcpy(cells, image, bytes);
        }
}

/* ---- Channels last ---- */

/* The position of the window of result `at`, before any tap. */
static void window_of(const shape* g, int64_t at, int64_t* base)
{
    int64_t o[3] = { at / (g->o[1] * g->o[2]), at / g->o[2] % g->o[1], at % g->o[2] };
    for (int a = 0; a < 3; a++) base[a] = o[a] * g->s[a] - g->low[a];
}

/* Elements [r0, r1) of the patch of one result (tap by tap, all channels of a group each). */
static void patch_last(const shape* g, REAL* image, int64_t at, REAL* cells, int64_t r0, int64_t r1,
                       int to_image)
{
    int64_t base[3], channels = g->ci * g->groups;
    window_of(g, at, base);
    for (int64_t r = r0; r < r1;) {
        int64_t t = r / g->ci, c = r % g->ci, run = lesser(g->ci - c, r1 - r);
        int64_t i0 = base[0] + t / (g->k[1] * g->k[2]) * g->d[0];
        int64_t i1 = base[1] + t / g->k[2] % g->k[1] * g->d[1];
        int64_t i2 = base[2] + t % g->k[2] * g->d[2];
        int inside = i0 >= 0 && i0 < g->in[0] && i1 >= 0 && i1 < g->in[1];
        if (inside && g->groups == 1 && g->d[2] == 1 && c == 0) {
            /* Taps along the last axis lie one behind the other: those inside are one run. */
            int64_t taps = lesser(g->k[2] - t % g->k[2], (r1 - r) / g->ci);
            if (taps > 1 && i2 >= 0 && i2 + taps <= g->in[2]) run = taps * g->ci;
        }
        inside = inside && i2 >= 0 && i2 < g->in[2];
        REAL* met = image + ((i0 * g->in[1] + i1) * g->in[2] + i2) * channels + c;
        REAL* row = cells + (r - r0);
        r += run;
        if (to_image) {
            if (inside)
#pragma omp simd
                for (int64_t j = 0; j < run; j++) met[j] += row[j];
        } else if (!inside) {
            zero(row, run);
        } else {
            memcpy(row, met, (size_t)run * sizeof(REAL));
        }
    }
}

/* ---- Shares ---- */

/* How results are cut: parts of one image, or several images whole. */
typedef struct {
    int64_t columns;  /* most results of a part */
    int64_t images;   /* of a part */
    int64_t parts;    /* of the batch, times those of an image */
    int64_t pieces;   /* of an image */
    int64_t piece;    /* results of a piece */
} cut;

static cut cut_results(const shape* g, int64_t rows, int64_t team, int merge)
{
    cut c;
    int64_t room = g->bytes / (int64_t)sizeof(REAL) / g->threads / greater(1, rows);
    if (is_pointwise(g)) room = g->n * g->outputs; /* nothing is copied */
    int64_t fair = over(g->n * g->outputs, greater(1, team));
    c.columns = greater(1, lesser(room, greater(fair, 16)));
    c.images = merge ? greater(1, lesser(c.columns / greater(1, g->outputs), g->n)) : 1;
    c.pieces = greater(1, over(g->outputs, c.columns));
    c.piece = over(g->outputs, c.pieces);
    if (c.piece > 16 && c.pieces > 1) c.piece = lesser(over(c.piece, 16) * 16, c.columns);
    c.pieces = greater(1, over(g->outputs, greater(1, c.piece)));
    if (c.images > 1) c.pieces = 1, c.piece = g->outputs;
    c.parts = over(g->n, c.images) * c.pieces;
    return c;
}

typedef struct {
    const shape* g;
    cut cut;
    int64_t rows;   /* of the workspace of a thread, a column wide */
    int64_t slices; /* of the rows, or of the channels */
} share;

static REAL* work_of(const share* s, int64_t thread)
{
    return s->g->work + s->g->bytes / (int64_t)sizeof(REAL) / s->g->threads * thread;
}

static void part_of(const share* s, int64_t part, int64_t* image, int64_t* images, int64_t* begin,
                    int64_t* end)
{
    *image = part / s->cut.pieces * s->cut.images;
    *images = lesser(s->cut.images, s->g->n - *image);
    *begin = part % s->cut.pieces * s->cut.piece;
    *end = lesser(*begin + s->cut.piece, s->g->outputs);
}

/* ---- Forward ---- */

static void forward_part(void* context, int64_t thread, int64_t threads)
{
    const share* s = context;
    const shape* g = s->g;
    int64_t from, to, rows = g->ci * g->taps, ins = g->ci * g->groups, outs = g->co * g->groups;
    REAL* work = work_of(s, thread);
    int pointwise = is_pointwise(g);
    mg_split(s->cut.parts * g->groups, 1, thread, threads, &from, &to);
    for (int64_t item = from; item < to; item++) {
        int64_t group = item / s->cut.parts, image, images, begin, end;
        part_of(s, item % s->cut.parts, &image, &images, &begin, &end);
        int64_t width = end - begin, columns = images * width;
        if (g->last) {
            const REAL* x = g->left + image * g->inputs * ins + group * g->ci;
            REAL* out = g->out + (image * g->outputs + begin) * outs + group * g->co;
            const REAL* w = g->right + group * g->co;
            if (!pointwise)
                for (int64_t q = 0; q < columns; q++)
                    patch_last(g, (REAL*)x + q / width * g->inputs * ins, begin + q % width,
                               work + q * rows, 0, rows, 0);
            multiply(0, 0, columns, g->co, rows, pointwise ? x + begin * ins : work,
                     pointwise ? ins : rows, w, outs, 0, out, outs);
            continue;
        }
        const REAL* x = g->left + (image * ins + group * g->ci) * g->inputs;
        const REAL* w = g->right + group * g->co * rows;
        REAL* out = g->out + (image * outs + group * g->co) * g->outputs + begin;
        const REAL* patches = pointwise ? x + begin : work;
        if (!pointwise)
            patches_first(g, x, images, ins * g->inputs, work, columns, 0, rows, begin, end);
        REAL* made = images > 1 ? work + rows * columns : out;
        multiply(0, 0, g->co, columns, rows, w, rows, patches, pointwise ? g->inputs : columns, 0,
                 made, images > 1 ? columns : g->outputs);
        if (images > 1) gather_first(out, outs * g->outputs, images, g->co, g->outputs, made, 1);
    }
}

/* ---- To the input ---- */

static void input_part(void* context, int64_t thread, int64_t threads)
{
    const share* s = context;
    const shape* g = s->g;
    int64_t from, to, rows = g->ci * g->taps, ins = g->ci * g->groups, outs = g->co * g->groups;
    REAL* work = work_of(s, thread);
    int pointwise = is_pointwise(g);
    mg_split(g->n * g->groups * s->slices, 1, thread, threads, &from, &to);
    for (int64_t item = from; item < to; item++) {
        int64_t slice = item % s->slices, group = item / s->slices % g->groups;
        int64_t image = item / s->slices / g->groups;
        int64_t c0 = g->ci * slice / s->slices, c1 = g->ci * (slice + 1) / s->slices;
        int64_t r0 = c0 * g->taps, count = (c1 - c0) * g->taps;
        REAL* x = g->last ? g->out + image * g->inputs * ins + group * g->ci
                          : g->out + (image * ins + group * g->ci) * g->inputs;
        if (g->last)
            for (int64_t i = 0; i < g->inputs && !pointwise; i++) zero(x + i * ins, g->ci);
        else if (!pointwise) zero(x + c0 * g->inputs, (c1 - c0) * g->inputs);
        for (int64_t begin = 0; begin < g->outputs; begin += s->cut.piece) {
            int64_t end = lesser(begin + s->cut.piece, g->outputs), width = end - begin;
            if (g->last) {
                const REAL* y = g->left + (image * g->outputs + begin) * outs + group * g->co;
                multiply(0, 1, width, rows, g->co, y, outs, g->right + group * g->co, outs, 0,
                         pointwise ? x + begin * ins : work, pointwise ? ins : rows);
                for (int64_t q = 0; q < width && !pointwise; q++)
                    patch_last(g, x, begin + q, work + q * rows, 0, rows, 1);
                continue;
            }
            const REAL* y = g->left + (image * outs + group * g->co) * g->outputs + begin;
            const REAL* w = g->right + group * g->co * rows + r0;
            multiply(1, 0, count, width, g->co, w, rows, y, g->outputs, 0,
                     pointwise ? x + c0 * g->inputs + begin : work, pointwise ? g->inputs : width);
            for (int64_t r = 0; r < count && !pointwise; r++) {
                int64_t shift[3];
                tap_of(g, r % g->taps, shift);
                row_first(g, x + (c0 + r / g->taps) * g->inputs, work + r * width, shift, begin,
                          end, 1);
            }
        }
    }
}

/* ---- To the weights ---- */

static void weight_part(void* context, int64_t thread, int64_t threads)
{
    const share* s = context;
    const shape* g = s->g;
    int64_t from, to, rows = g->ci * g->taps, ins = g->ci * g->groups, outs = g->co * g->groups;
    REAL* work = work_of(s, thread);
    int pointwise = is_pointwise(g);
    mg_split(g->groups * s->slices, 1, thread, threads, &from, &to);
    for (int64_t item = from; item < to; item++) {
        int64_t group = item / s->slices, slice = item % s->slices;
        int64_t r0 = rows * slice / s->slices, r1 = rows * (slice + 1) / s->slices;
        int64_t count = r1 - r0;
        REAL* out = g->last ? g->out + r0 * outs + group * g->co
                            : g->out + group * g->co * rows + r0;
        for (int64_t part = 0; part < s->cut.parts; part++) {
            int64_t image, images, begin, end;
            part_of(s, part, &image, &images, &begin, &end);
            int64_t width = end - begin, columns = images * width;
            double beta = part > 0;
            if (g->last) {
                const REAL* x = g->left + image * g->inputs * ins + group * g->ci;
                const REAL* y = g->right + (image * g->outputs + begin) * outs + group * g->co;
                if (!pointwise)
                    for (int64_t q = 0; q < columns; q++)
                        patch_last(g, (REAL*)x + q / width * g->inputs * ins, begin + q % width,
                                   work + q * count, r0, r1, 0);
                multiply(1, 0, count, g->co, columns, pointwise ? x + begin * ins + r0 : work,
                         pointwise ? ins : count, y, outs, beta, out, outs);
                continue;
            }
            const REAL* x = g->left + (image * ins + group * g->ci) * g->inputs;
            const REAL* y = g->right + (image * outs + group * g->co) * g->outputs + begin;
            const REAL* patches = pointwise ? x + r0 * g->inputs + begin : work;
            if (!pointwise)
                patches_first(g, x, images, ins * g->inputs, work, columns, r0, r1, begin, end);
            if (images > 1) {
                REAL* gathered = work + count * columns;
                gather_first((REAL*)y, outs * g->outputs, images, g->co, g->outputs, gathered, 0);
                y = gathered;
            }
            multiply(0, 1, g->co, count, columns, y, images > 1 ? columns : g->outputs, patches,
                     pointwise ? g->inputs : columns, beta, out, rows);
        }
    }
}

static void run(void** arguments, int direction)
{
    shape g = read_shape(arguments);
    int64_t rows = g.ci * g.taps;
    int pointwise = is_pointwise(&g);
    share s = { &g, { 0 }, rows + g.co, 1 };
    int64_t team = team_for(&g, INT64_MAX);
    products_begin();
    if (direction == MG_FORWARD) {
        /* Without patches there is nothing to merge: images are not together in memory then. */
        s.cut = cut_results(&g, s.rows, greater(1, team / g.groups), !pointwise || g.last);
        mg_share(forward_part, &s, lesser(team, s.cut.parts * g.groups), effort_of(&g));
    } else if (direction == MG_TO_INPUT) {
        s.cut = cut_results(&g, s.rows, 1, 0);
        if (g.n * g.groups < team && !g.last) s.slices = lesser(g.ci, team);
        mg_share(input_part, &s, lesser(team, g.n * g.groups * s.slices), effort_of(&g));
    } else {
        s.cut = cut_results(&g, s.rows, 1, !pointwise || g.last);
        if (!s.cut.parts) zero(g.out, g.groups * g.co * rows);
        if (g.groups < team) s.slices = lesser(rows, over(team, g.groups));
        mg_share(weight_part, &s, lesser(team, g.groups * s.slices), effort_of(&g));
    }
    products_end();
}

void mg_im2col_forward(void** arguments) { run(arguments, MG_FORWARD); }
void mg_im2col_input(void** arguments) { run(arguments, MG_TO_INPUT); }
void mg_im2col_weight(void** arguments) { run(arguments, MG_TO_WEIGHT); }
