/* Winograd's convolutions with 3x3 windows: tiles of the input and the weights are transformed,
   multiplied element by element with sums over channels (one product of matrices for each of the
   WIDTH * WIDTH elements), and transformed back. convolution.py writes TILE and the transforms
   (input_tile, weight_tile, output_tile, cotangent_tile, gradient_tile), which do VECTOR tiles at a
   time: elements of one tile are VECTOR apart, or `step`. */

enum { WIDTH = TILE + 2, ELEMENTS = WIDTH * WIDTH };

typedef struct {
    const shape* g;
    const REAL *source, *right;
    REAL* out;
    steps from, to;
    int64_t in[2], o[2], low[2]; /* of the convolution that is computed: of the input or turned */
    int64_t ins, outs;
    int64_t turned;              /* weights from results to channels, the window turned around */
    int64_t down, across;        /* tiles of an image */
    int64_t chunk;               /* tiles that are transformed together */
    int64_t chunks;
    REAL *weights, *work;
    int64_t share;               /* elements of a thread's part of the work */
    int64_t group, first, count; /* of a stage (to the weights): the group, and its tiles */
} plan;

static int64_t tiles_of(const plan* p) { return p->g->n * p->down * p->across; }

/* Read the patch of one tile at lane of `cells`. */
static void read_tile(const plan* p, const REAL* channel, int64_t tile, REAL* cells)
{
    int64_t at = tile % (p->down * p->across);
    int64_t i = at / p->across * TILE - p->low[0], j = at % p->across * TILE - p->low[1];
    const REAL* image = channel + tile / (p->down * p->across) * p->from.n;
    int64_t down = p->from.at[1], across = p->from.at[2];
    if (i >= 0 && j >= 0 && i + WIDTH <= p->in[0] && j + WIDTH <= p->in[1]) {
        const REAL* from = image + i * down + j * across;
        for (int a = 0; a < WIDTH; a++)
            for (int b = 0; b < WIDTH; b++)
                cells[(a * WIDTH + b) * VECTOR] = from[a * down + b * across];
        return;
    }
    for (int a = 0; a < WIDTH; a++)
        for (int b = 0; b < WIDTH; b++) {
            int inside = i + a >= 0 && i + a < p->in[0] && j + b >= 0 && j + b < p->in[1];
            cells[(a * WIDTH + b) * VECTOR] =
                inside ? image[(i + a) * down + (j + b) * across] : (REAL)0;
        }
}

/* Transform `count` tiles of one channel: element e of the tile i goes to out[e * step + i]. */
static void transform_channel(const plan* p, int64_t c, int64_t first, int64_t count, REAL* out,
                              int64_t step)
{
    REAL cells[ELEMENTS * VECTOR] __attribute__((aligned(64)));
    const REAL* channel = p->source + c * p->from.c;
    for (int64_t i = 0; i < count; i += VECTOR) {
        int64_t lanes = lesser(VECTOR, count - i);
        for (int64_t l = 0; l < VECTOR; l++)
            if (l < lanes) read_tile(p, channel, first + i + l, cells + l);
            else
                for (int e = 0; e < ELEMENTS; e++) cells[e * VECTOR + l] = 0;
        input_tile(cells, out + i, step);
    }
}

/* Transformed weights of a group: (ELEMENTS, outs, ins). */
static void transform_weights(void* context, int64_t thread, int64_t threads)
{
    const plan* p = context;
    const shape* g = p->g;
    weight_steps w = steps_of_weights(g);
    REAL cells[9 * VECTOR], made[ELEMENTS * VECTOR];
    int64_t out_step = p->turned ? w.c : w.o, in_step = p->turned ? w.o : w.c, begin, end;
    mg_split(g->groups * p->outs, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const REAL* from = p->right + i / p->outs * g->co * w.o + i % p->outs * out_step;
        REAL* out = p->weights + (i / p->outs * ELEMENTS * p->outs + i % p->outs) * p->ins;
        for (int64_t c = 0; c < p->ins; c += VECTOR) {
            int64_t lanes = lesser(VECTOR, p->ins - c);
            for (int64_t l = 0; l < lanes; l++)
                for (int t = 0; t < 9; t++)
                    cells[t * VECTOR + l] = from[(c + l) * in_step + (p->turned ? 8 - t : t) * w.t];
            weight_tile(cells, made, VECTOR);
            for (int e = 0; e < ELEMENTS; e++)
                for (int64_t l = 0; l < lanes; l++)
                    out[e * p->outs * p->ins + c + l] = made[e * VECTOR + l];
        }
    }
}

static void write_tile(const plan* p, REAL* channel, int64_t tile, const REAL* cells)
{
    int64_t at = tile % (p->down * p->across);
    int64_t i = at / p->across * TILE, j = at % p->across * TILE;
    REAL* to = channel + tile / (p->down * p->across) * p->to.n + i * p->to.at[1]
               + j * p->to.at[2];
    int64_t rows = lesser(TILE, p->o[0] - i), columns = lesser(TILE, p->o[1] - j);
    for (int64_t a = 0; a < rows; a++)
        for (int64_t b = 0; b < columns; b++)
            to[a * p->to.at[1] + b * p->to.at[2]] = cells[(a * TILE + b) * VECTOR];
}

static void chunk_part(void* context, int64_t thread, int64_t threads)
{
    const plan* p = context;
    const shape* g = p->g;
    int64_t begin, end, tiles = tiles_of(p);
    REAL *inputs = p->work + thread * p->share, cells[TILE * TILE * VECTOR];
    REAL* products = inputs + ELEMENTS * p->ins * p->chunk;
    mg_split(g->groups * p->chunks, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / p->chunks, first = i % p->chunks * p->chunk;
        int64_t count = lesser(p->chunk, tiles - first), width = over(count, VECTOR) * VECTOR;
        for (int64_t c = 0; c < p->ins; c++)
            transform_channel(p, group * p->ins + c, first, count, inputs + c * width,
                              p->ins * width);
        for (int64_t e = 0; e < ELEMENTS; e++)
            multiply(0, 0, p->outs, width, p->ins,
                     p->weights + (group * ELEMENTS + e) * p->outs * p->ins, p->ins,
                     inputs + e * p->ins * width, width, 0, products + e * p->outs * width, width);
        for (int64_t o = 0; o < p->outs; o++)
            for (int64_t t = 0; t < count; t += VECTOR) {
                output_tile(products + o * width + t, p->outs * width, cells);
                for (int64_t l = 0; l < lesser(VECTOR, count - t); l++)
                    write_tile(p, p->out + (group * p->outs + o) * p->to.c, first + t + l,
                               cells + l);
            }
    }
}

static void plan_tiles(plan* p)
{
    p->down = over(p->o[0], TILE);
    p->across = over(p->o[1], TILE);
}

static void convolve(const shape* g, int to_input)
{
    plan p = { .g = g, .source = g->left, .right = g->right, .out = g->out, .turned = to_input };
    steps x = input_steps(g), y = output_steps(g);
    p.from = to_input ? y : x;
    p.to = to_input ? x : y;
    p.ins = to_input ? g->co : g->ci;
    p.outs = to_input ? g->ci : g->co;
    for (int a = 0; a < 2; a++) {
        p.in[a] = to_input ? g->o[a + 1] : g->in[a + 1];
        p.o[a] = to_input ? g->in[a + 1] : g->o[a + 1];
        p.low[a] = to_input ? 2 - g->low[a + 1] : g->low[a + 1];
    }
    plan_tiles(&p);
    int64_t weights = over(g->groups * ELEMENTS * p.ins * p.outs, 16) * 16;
    p.weights = g->work;
    p.work = g->work + weights;
    p.share = (g->bytes / (int64_t)sizeof(REAL) - weights) / g->threads / 16 * 16;
    int64_t team = team_for(g, INT64_MAX), room = p.share / (ELEMENTS * (p.ins + p.outs));
    int64_t fair = over(tiles_of(&p) * g->groups, greater(1, team));
    p.chunk = greater(VECTOR, lesser(room, over(fair, VECTOR) * VECTOR) / VECTOR * VECTOR);
    p.chunks = over(tiles_of(&p), p.chunk);
    mg_share(transform_weights, &p, team, effort_of(g) / 8);
    products_begin();
    mg_share(chunk_part, &p, lesser(team, g->groups * p.chunks), effort_of(g));
    products_end();
}

void mg_winograd_forward(void** arguments)
{
    shape g = read_shape(arguments);
    convolve(&g, 0);
}

void mg_winograd_input(void** arguments)
{
    shape g = read_shape(arguments);
    convolve(&g, 1);
}

/* ---- To the weights: the transposed transforms of the same tiles ---- */

static void transform_tiles(void* context, int64_t thread, int64_t threads)
{
    const plan* p = context;
    const shape* g = p->g;
    REAL cells[TILE * TILE * VECTOR];
    int64_t begin, end, width = over(p->count, VECTOR) * VECTOR;
    REAL* cotangents = p->work + ELEMENTS * p->ins * width;
    mg_split(p->ins + p->outs, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        if (i < p->ins) {
            transform_channel(p, p->group * p->ins + i, p->first, p->count,
                              p->work + i * width, p->ins * width);
            continue;
        }
        int64_t o = i - p->ins;
        const REAL* channel = p->right + (p->group * p->outs + o) * p->to.c;
        for (int64_t t = 0; t < width; t += VECTOR) {
            memset(cells, 0, sizeof cells);
            for (int64_t l = 0; l < lesser(VECTOR, p->count - t); l++) {
                int64_t tile = p->first + t + l, at = tile % (p->down * p->across);
                int64_t y = at / p->across * TILE, z = at % p->across * TILE;
                const REAL* from = channel + tile / (p->down * p->across) * p->to.n
                                   + y * p->to.at[1] + z * p->to.at[2];
                int64_t rows = lesser(TILE, p->o[0] - y), columns = lesser(TILE, p->o[1] - z);
                for (int64_t a = 0; a < rows; a++)
                    for (int64_t b = 0; b < columns; b++)
                        cells[(a * TILE + b) * VECTOR + l] =
                            from[a * p->to.at[1] + b * p->to.at[2]];
            }
            cotangent_tile(cells, cotangents + o * width + t, p->outs * width);
        }
    }
}

static void multiply_tiles(void* context, int64_t thread, int64_t threads)
{
    const plan* p = context;
    int64_t begin, end, width = over(p->count, VECTOR) * VECTOR;
    REAL* cotangents = p->work + ELEMENTS * p->ins * width;
    mg_split(ELEMENTS, 1, thread, threads, &begin, &end);
    for (int64_t e = begin; e < end; e++)
        multiply(0, 1, p->outs, p->ins, width, cotangents + e * p->outs * width, width,
                 p->work + e * p->ins * width, width, p->first > 0,
                 p->weights + e * p->outs * p->ins, p->ins);
}

static void finish_weights(const plan* p, int64_t group)
{
    const shape* g = p->g;
    weight_steps w = steps_of_weights(g);
    REAL cells[ELEMENTS * VECTOR], made[9 * VECTOR];
    for (int64_t o = 0; o < p->outs; o++)
        for (int64_t c = 0; c < p->ins; c += VECTOR) {
            int64_t lanes = lesser(VECTOR, p->ins - c);
            for (int e = 0; e < ELEMENTS; e++)
                for (int64_t l = 0; l < lanes; l++)
                    cells[e * VECTOR + l] = p->weights[(e * p->outs + o) * p->ins + c + l];
            gradient_tile(cells, made);
            for (int t = 0; t < 9; t++)
                for (int64_t l = 0; l < lanes; l++)
                    p->out[(group * p->outs + o) * w.o + (c + l) * w.c + t * w.t] =
                        made[t * VECTOR + l];
        }
}

void mg_winograd_weight(void** arguments)
{
    shape g = read_shape(arguments);
    plan p = { .g = &g, .source = g.left, .right = g.right, .out = g.out };
    p.from = input_steps(&g);
    p.to = output_steps(&g);
    p.ins = g.ci;
    p.outs = g.co;
    for (int a = 0; a < 2; a++) {
        p.in[a] = g.in[a + 1];
        p.o[a] = g.o[a + 1];
        p.low[a] = g.low[a + 1];
    }
    plan_tiles(&p);
    int64_t sums = over(ELEMENTS * p.ins * p.outs, 16) * 16, tiles = tiles_of(&p);
    p.weights = g.work;
    p.work = g.work + sums;
    int64_t room = (g.bytes / (int64_t)sizeof(REAL) - sums) / (ELEMENTS * (p.ins + p.outs));
    int64_t team = team_for(&g, INT64_MAX);
    p.chunk = greater(VECTOR, lesser(room, over(tiles, VECTOR) * VECTOR) / VECTOR * VECTOR);
    if (!tiles) zero(g.out, g.groups * g.co * g.ci * 9);
    for (int64_t group = 0; group < g.groups && tiles; group++) {
        p.group = group;
        for (p.first = 0; p.first < tiles; p.first += p.chunk) {
            p.count = lesser(p.chunk, tiles - p.first);
            mg_share(transform_tiles, &p, team, effort_of(&g) / 8);
            products_begin();
            mg_share(multiply_tiles, &p, team, effort_of(&g));
            products_end();
        }
        finish_weights(&p, group);
    }
}
