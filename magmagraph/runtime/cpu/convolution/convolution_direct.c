/* Direct convolutions: sums over channels and taps in registers, for a block of results times some
   vectors of positions. convolution.py writes the blocks themselves (tile_1 .. tile_6, dot_1_1 ..
   dot_3_4) before this text, with VECTOR, the elements of a vector.

   The input is copied once into planes with its padding. Where windows step, elements that lie a
   stride apart are put side by side, in a plane for each remainder, so that every tap of
   neighboring results reads neighboring elements. Lines are joined: a vector may run over the end
   of one into the next, and what is computed for the elements between is dropped. The transpose
   with respect to the input has the same form, with the remainders on the side of the result. */

enum { MG_BLOCK = 6, MG_SLACK = 16 * 16 };

#define MG_SPAN (24 * VECTOR) /* positions of an item of work: whole blocks of every width */

/* A set of results with the same taps. */
typedef struct {
    int64_t first, count; /* of the taps in their tables */
    int64_t shift[3];     /* position of the first result */
} phase;

typedef struct {
    const shape* g;
    const REAL* source;     /* what is packed */
    steps from;             /* of it */
    int64_t extents[3];     /* of it */
    int64_t ins, outs;      /* channels of a group on both sides of this sum */
    int64_t scale;          /* forward: the input is packed by remainders */
    int64_t counts[3];      /* planes along each axis */
    int64_t q[3];           /* extents of a plane */
    int64_t plane, channel; /* elements of a plane, of a packed channel */
    int64_t span[3];        /* results of a phase */
    int64_t step[3], limit[3]; /* from a result to the next; of the results */
    steps to;               /* of the results */
    int64_t phases;
    phase* phase;
    int64_t *offset, *tap;  /* of each tap: where it reads, and its number in the weights */
    int64_t* remainder[3];  /* of each plane along an axis, with the padding taken off */
    REAL *weights, *images;
    int64_t first, count;   /* images of this round */
    int64_t parts;          /* of the results' channels */
} engine;

/* Number the remainders that taps along an axis have, in the order they are met in. */
static int64_t number_remainders(const shape* g, int a, int64_t* remainder, int64_t k)
{
    int64_t found = 0, wanted = -1;
    for (int64_t j = 0; j < g->k[a]; j++) {
        int64_t value = j * g->d[a] % g->s[a], i = 0;
        while (i < found && remainder[i] != value) i++;
        if (i == found) remainder[found++] = value;
        if (j == k) wanted = i;
    }
    return k < 0 ? found : wanted;
}

static void split_tap(const shape* g, int64_t t, int64_t* k)
{
    k[0] = t / (g->k[1] * g->k[2]), k[1] = t / g->k[2] % g->k[1], k[2] = t % g->k[2];
}

/* Forward (and to the weights): planes of the padded input, one set of results. */
static void plan_forward(engine* e)
{
    const shape* g = e->g;
    for (int a = 0; a < 3; a++) {
        e->counts[a] = number_remainders(g, a, e->remainder[a], -1);
        e->q[a] = g->o[a] + (g->k[a] - 1) * g->d[a] / g->s[a];
        e->span[a] = e->limit[a] = g->o[a];
        e->step[a] = 1;
    }
    e->plane = e->q[0] * e->q[1] * e->q[2];
    e->phases = 1;
    e->phase[0] = (phase){ 0, g->taps, { 0, 0, 0 } };
    for (int64_t t = 0; t < g->taps; t++) {
        int64_t k[3], at = 0, plane = 0;
        split_tap(g, t, k);
        for (int a = 0; a < 3; a++) {
            plane = plane * e->counts[a] + number_remainders(g, a, e->remainder[a], k[a]);
            at = at * e->q[a] + k[a] * g->d[a] / g->s[a];
        }
        e->offset[t] = plane * e->plane + at;
        e->tap[t] = t;
    }
    for (int a = 0; a < 3; a++)
        for (int64_t i = 0; i < e->counts[a]; i++) e->remainder[a][i] -= g->low[a];
    e->scale = 1;
}

/* To the input: one plane of the cotangent, a set of results for each remainder. */
static void plan_input(engine* e)
{
    const shape* g = e->g;
    int64_t start[3], reach[3];
    e->scale = 0;
    e->phases = 1;
    for (int a = 0; a < 3; a++) {
        int64_t low = g->low[a];
        start[a] = low >= 0 ? low / g->s[a] : -over(-low, g->s[a]);
        reach[a] = (g->k[a] - 1) * g->d[a] / g->s[a];
        int64_t last = low + g->in[a] - 1;
        e->span[a] = g->in[a] < 1 ? 0 : (last >= 0 ? last / g->s[a] : -over(-last, g->s[a]))
                                            - start[a] + 1;
        e->q[a] = e->span[a] + reach[a];
        e->counts[a] = 1;
        e->remainder[a][0] = start[a] - reach[a];
        e->step[a] = g->s[a];
        e->limit[a] = g->in[a];
        e->phases *= g->s[a];
    }
    e->plane = e->q[0] * e->q[1] * e->q[2];
    int64_t next = 0;
    for (int64_t p = 0; p < e->phases; p++) {
        int64_t f[3] = { p / (g->s[1] * g->s[2]), p / g->s[2] % g->s[1], p % g->s[2] };
        phase* made = &e->phase[p];
        made->first = next;
        for (int a = 0; a < 3; a++) made->shift[a] = start[a] * g->s[a] + f[a] - g->low[a];
        for (int64_t t = 0; t < g->taps; t++) {
            int64_t k[3], at = 0;
            int belongs = 1;
            split_tap(g, t, k);
            for (int a = 0; a < 3; a++) {
                belongs &= k[a] * g->d[a] % g->s[a] == f[a];
                at = at * e->q[a] + reach[a] - k[a] * g->d[a] / g->s[a];
            }
            if (!belongs) continue;
            e->offset[next] = at;
            e->tap[next++] = t;
        }
        made->count = next - made->first;
    }
}

/* ---- Packing ---- */

static void pack_channel(const engine* e, const REAL* source, REAL* out)
{
    const shape* g = e->g;
    int64_t scale[3];
    for (int a = 0; a < 3; a++) scale[a] = e->scale ? g->s[a] : 1;
    for (int64_t f0 = 0; f0 < e->counts[0]; f0++)
    for (int64_t f1 = 0; f1 < e->counts[1]; f1++)
    for (int64_t f2 = 0; f2 < e->counts[2]; f2++) {
        int64_t first, stop, shift = e->remainder[2][f2], step = scale[2] * e->from.at[2];
        inside_of(e->extents[2], scale[2], shift, e->q[2], &first, &stop);
        for (int64_t q0 = 0; q0 < e->q[0]; q0++)
        for (int64_t q1 = 0; q1 < e->q[1]; q1++, out += e->q[2]) {
            int64_t i0 = q0 * scale[0] + e->remainder[0][f0];
            int64_t i1 = q1 * scale[1] + e->remainder[1][f1];
            if (i0 < 0 || i0 >= e->extents[0] || i1 < 0 || i1 >= e->extents[1]) {
                zero(out, e->q[2]);
                continue;
            }
            const REAL* line = source + i0 * e->from.at[0] + i1 * e->from.at[1]
                               + shift * e->from.at[2];
            zero(out, first);
            if (step == 1) memcpy(out + first, line + first, (size_t)(stop - first) * sizeof(REAL));
            else
                for (int64_t q = first; q < stop; q++) out[q] = line[q * step];
            zero(out + stop, e->q[2] - stop);
        }
    }
}

/* Weights of a block of results, for a phase: channel by channel, tap by tap, the block together. */
static void pack_weights(const engine* e, int64_t group, int64_t begin, int64_t width)
{
    const shape* g = e->g;
    weight_steps w = steps_of_weights(g);
    int64_t out_step = e->scale ? w.o : w.c, in_step = e->scale ? w.c : w.o;
    const REAL* from = g->right + group * g->co * w.o;
    for (int64_t p = 0; p < e->phases; p++) {
        const phase* phase = &e->phase[p];
        REAL* out = e->weights + (group * g->taps + phase->first) * e->ins * e->outs
                    + begin * e->ins * phase->count;
        for (int64_t c = 0; c < e->ins; c++)
            for (int64_t t = 0; t < phase->count; t++)
                for (int64_t o = 0; o < width; o++)
                    *out++ = from[(begin + o) * out_step + c * in_step
                                  + e->tap[phase->first + t] * w.t];
    }
}

static void pack_part(void* context, int64_t thread, int64_t threads)
{
    const engine* e = context;
    int64_t begin, end, channels = e->ins * e->g->groups;
    int64_t blocks = over(e->outs, MG_BLOCK), weights = e->weights && !e->first ? blocks * e->g->groups : 0;
    mg_split(weights + e->count * channels, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        if (i < weights) {
            int64_t at = i % blocks * MG_BLOCK;
            pack_weights(e, i / blocks, at, lesser(MG_BLOCK, e->outs - at));
            continue;
        }
        int64_t image = (i - weights) / channels, c = (i - weights) % channels;
        pack_channel(e, e->source + (e->first + image) * e->from.n + c * e->from.c,
                     e->images + (image * channels + c) * e->channel);
    }
}

/* ---- Sums ---- */

typedef void (*tile)(const REAL* weights, const REAL* x, const int64_t* offset, int64_t taps,
                     int64_t channels, int64_t channel, REAL* out);

static const tile tiles[] = { 0, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* Put positions [begin, end) of joined lines where they belong. */
static void store(const engine* e, const phase* phase, REAL* out, const REAL* block, int64_t width,
                  int64_t row, int64_t j0, int64_t begin, int64_t end)
{
    int64_t first, stop, i0 = j0 * e->step[0] + phase->shift[0];
    if (i0 < 0 || i0 >= e->limit[0]) return;
    inside_of(e->limit[2], e->step[2], phase->shift[2], e->span[2], &first, &stop);
    int64_t step = e->step[2] * e->to.at[2];
    for (int64_t at = begin; at < end;) {
        int64_t j1 = at / e->q[2], j2 = at % e->q[2], count = lesser(e->q[2] - j2, end - at);
        int64_t i1 = j1 * e->step[1] + phase->shift[1];
        int64_t from = greater(j2, first), to = lesser(j2 + count, stop);
        const REAL* cells = block + (at - begin) - j2;
        at += count;
        if (i1 < 0 || i1 >= e->limit[1] || from >= to) continue;
        REAL* line = out + i0 * e->to.at[0] + i1 * e->to.at[1] + phase->shift[2] * e->to.at[2];
        for (int64_t m = 0; m < width; m++, cells += row, line += e->to.c) {
            if (step == 1)
                for (int64_t j = from; j < to; j++) line[j] = cells[j];
            else
                for (int64_t j = from; j < to; j++) line[j * step] = cells[j];
        }
    }
}

static void sum_part(void* context, int64_t thread, int64_t threads)
{
    const engine* e = context;
    const shape* g = e->g;
    REAL block[MG_BLOCK * 16 * 16] __attribute__((aligned(64)));
    int64_t length = e->span[1] < 1 || e->span[2] < 1 ? 0
                                                      : (e->span[1] - 1) * e->q[2] + e->span[2];
    int64_t spans = over(length, MG_SPAN), blocks = over(e->outs, MG_BLOCK);
    int64_t begin, end;
    mg_split(e->count * g->groups * e->phases * e->parts * e->span[0] * spans, 1, thread, threads,
             &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t left = i, span = left % spans, j0 = (left /= spans) % e->span[0];
        int64_t part = (left /= e->span[0]) % e->parts;
        const phase* phase = &e->phase[(left /= e->parts) % e->phases];
        int64_t group = (left /= e->phases) % g->groups, image = left / g->groups;
        const REAL* x = e->images + (image * g->groups + group) * e->ins * e->channel
                        + j0 * e->q[1] * e->q[2];
        REAL* out = g->out + (e->first + image) * e->to.n + group * e->outs * e->to.c;
        const REAL* weights = e->weights + (group * g->taps + phase->first) * e->ins * e->outs;
        int64_t stop = lesser((span + 1) * MG_SPAN, length);
        for (int64_t b = blocks * part / e->parts; b < blocks * (part + 1) / e->parts; b++) {
            int64_t o = b * MG_BLOCK, width = lesser(MG_BLOCK, e->outs - o);
            int64_t row = tile_vectors[width] * VECTOR;
            for (int64_t at = span * MG_SPAN; at < stop; at += row) {
                tiles[width](weights + o * e->ins * phase->count, x + at, e->offset + phase->first,
                             phase->count, e->ins, e->channel, block);
                store(e, phase, out + o * e->to.c, block, width, row, j0, at,
                      lesser(at + row, stop));
            }
        }
    }
}

/* ---- Rounds ---- */

/* Take a part of the workspace off its front. */
static void* take(char** at, int64_t bytes)
{
    void* result = *at;
    *at += over(bytes, 64) * 64;
    return result;
}

static char* take_tables(engine* e)
{
    const shape* g = e->g;
    char* at = (char*)g->work;
    e->offset = take(&at, g->taps * 8);
    e->tap = take(&at, g->taps * 8);
    e->phase = take(&at, g->s[0] * g->s[1] * g->s[2] * (int64_t)sizeof(phase));
    for (int a = 0; a < 3; a++) e->remainder[a] = take(&at, g->k[a] * 8);
    return at;
}

/* The images whose planes fit into what is left of the workspace. */
static int64_t images_of(const shape* g, const char* at, int64_t image)
{
    int64_t left = g->bytes - (at - (const char*)g->work) - MG_SLACK * (int64_t)sizeof(REAL);
    return greater(1, lesser(g->n, left / (greater(1, image) * (int64_t)sizeof(REAL))));
}

static void sum(const shape* g, int to_input)
{
    engine e = { .g = g, .source = g->left };
    char* at = take_tables(&e);
    steps x = input_steps(g), y = output_steps(g);
    e.ins = to_input ? g->co : g->ci;
    e.outs = to_input ? g->ci : g->co;
    e.from = to_input ? y : x;
    e.to = to_input ? x : y;
    for (int a = 0; a < 3; a++) e.extents[a] = to_input ? g->o[a] : g->in[a];
    if (to_input) plan_input(&e);
    else plan_forward(&e);
    e.channel = e.plane * e.counts[0] * e.counts[1] * e.counts[2];
    e.weights = take(&at, g->groups * g->co * g->ci * g->taps * (int64_t)sizeof(REAL));
    e.images = (REAL*)at;
    int64_t image = e.ins * g->groups * e.channel, round = images_of(g, at, image);
    int64_t team = team_for(g, INT64_MAX);
    int64_t items = round * g->groups * e.phases * over(e.span[1] * e.q[2], MG_SPAN) * e.span[0];
    e.parts = items < 2 * team ? lesser(over(e.outs, MG_BLOCK), team) : 1;
    for (e.first = 0; e.first < g->n; e.first += round) {
        e.count = lesser(round, g->n - e.first);
        mg_share(pack_part, &e, team, effort_of(g) / 8);
        mg_share(sum_part, &e, team, effort_of(g));
    }
}

void mg_direct_forward(void** arguments)
{
    shape g = read_shape(arguments);
    sum(&g, 0);
}

void mg_direct_input(void** arguments)
{
    shape g = read_shape(arguments);
    sum(&g, 1);
}

/* ---- To the weights ---- */

enum { MG_NEAR = 48 << 10 }; /* bytes of packed lines that are read again and again */

typedef struct {
    engine e;
    REAL* cotangents;      /* lines joined as those of the planes, zeros between */
    int64_t line, channel; /* elements of joined lines, of a channel */
    int64_t slices;        /* of channels and taps */
} dots;

static void pack_cotangents(void* context, int64_t thread, int64_t threads)
{
    const dots* d = context;
    const engine* e = &d->e;
    const shape* g = e->g;
    steps from = output_steps(g);
    int64_t begin, end, channels = g->co * g->groups;
    mg_split(e->count * channels, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const REAL* source = g->right + (e->first + i / channels) * from.n + i % channels * from.c;
        REAL* out = d->cotangents + i * d->channel;
        for (int64_t o0 = 0; o0 < g->o[0]; o0++, out += d->line)
            for (int64_t o1 = 0; o1 < g->o[1]; o1++) {
                const REAL* line = source + o0 * from.at[0] + o1 * from.at[1];
                REAL* cells = out + o1 * e->q[2];
                int64_t room = o1 + 1 < g->o[1] ? e->q[2] : d->line - o1 * e->q[2];
                for (int64_t o = 0; o < g->o[2]; o++) cells[o] = line[o * from.at[2]];
                zero(cells + g->o[2], room - g->o[2]);
            }
    }
}

/* A row of four sums of three results, over some images. */
static void dot_row(const dots* d, int64_t group, int64_t o, int64_t r, int64_t width, int64_t n,
                    int64_t images)
{
    const engine* e = &d->e;
    const shape* g = e->g;
    weight_steps w = steps_of_weights(g);
    int64_t height = lesser(3, g->co - o), offsets[4];
    int64_t y_image = g->co * g->groups * d->channel, x_image = g->ci * g->groups * e->channel;
    REAL sums[3 * 4];
    for (int64_t j = 0; j < width; j++)
        offsets[j] = (r + j) / g->taps * e->channel + e->offset[(r + j) % g->taps];
    dot_rows[height - 1][width - 1](
        d->cotangents + n * y_image + (group * g->co + o) * d->channel, d->channel,
        e->images + n * x_image + group * g->ci * e->channel, offsets, images, y_image, x_image,
        g->o[0], d->line, e->q[1] * e->q[2], d->line / VECTOR, sums);
    for (int64_t j = 0; j < width; j++) {
        REAL* out = g->out + group * g->co * w.o + (r + j) / g->taps * w.c + (r + j) % g->taps * w.t;
        for (int64_t m = 0; m < height; m++) out[(o + m) * w.o] += sums[m * width + j];
    }
}

static void dot_part(void* context, int64_t thread, int64_t threads)
{
    const dots* d = context;
    const engine* e = &d->e;
    const shape* g = e->g;
    int64_t blocks = over(g->co, 3), rows = g->ci * g->taps, begin, end;
    /* All rows meet three channels of cotangents: of as many images as stay in the nearest cache. */
    int64_t image = (3 * d->channel + e->channel) * (int64_t)sizeof(REAL);
    int64_t few = greater(1, MG_NEAR / greater(1, image));
    mg_split(g->groups * blocks * d->slices, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t slice = i % d->slices, o = i / d->slices % blocks * 3, group = i / d->slices / blocks;
        int64_t stop = rows * (slice + 1) / d->slices;
        for (int64_t n = 0; n < e->count; n += few)
            for (int64_t r = rows * slice / d->slices; r < stop; r += 4)
                dot_row(d, group, o, r, lesser(4, stop - r), n, lesser(few, e->count - n));
    }
}

void mg_direct_weight(void** arguments)
{
    shape g = read_shape(arguments);
    dots d = { .e = { .g = &g, .source = g.left } };
    engine* e = &d.e;
    char* at = take_tables(e);
    zero(g.out, g.groups * g.co * g.ci * g.taps);
    if (!g.n || !g.outputs) return;
    e->ins = g.ci;
    e->outs = g.co;
    e->from = input_steps(&g);
    for (int a = 0; a < 3; a++) e->extents[a] = g.in[a];
    plan_forward(e);
    e->channel = e->plane * e->counts[0] * e->counts[1] * e->counts[2];
    d.line = over((g.o[1] - 1) * e->q[2] + g.o[2], VECTOR) * VECTOR;
    d.channel = d.line * g.o[0];
    int64_t image = g.groups * (g.ci * e->channel + g.co * d.channel);
    int64_t round = images_of(&g, at, image), team = team_for(&g, INT64_MAX);
    d.cotangents = (REAL*)at;
    e->images = d.cotangents + round * g.groups * g.co * d.channel;
    /* The last vector of a line reads beyond the last plane: zeros there meet zeros. */
    zero(e->images + round * g.groups * g.ci * e->channel, MG_SLACK);
    int64_t items = g.groups * over(g.co, 3);
    d.slices = items < 2 * team ? greater(1, lesser(g.ci * g.taps, over(2 * team, items))) : 1;
    for (e->first = 0; e->first < g.n; e->first += round) {
        e->count = lesser(round, g.n - e->first);
        mg_share(pack_part, e, team, effort_of(&g) / 8);
        mg_share(pack_cotangents, &d, team, effort_of(&g) / 8);
        mg_share(dot_part, &d, team, effort_of(&g));
    }
}
