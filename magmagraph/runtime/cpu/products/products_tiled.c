/* Products in tiles of sums that stay in registers, for sizes at which BLAS has much to prepare and
   little to multiply: few rows, a short inner extent, many small products. tiles.py writes
   what depends on the vectors of the processor before this text: `tiles`, which compute as many rows
   of two vectors (1 to MG_TILE_LOW, and MG_TILE_HEIGHT), the sizes of blocks, and transpose_square.

   A strip of B, two vectors wide, is packed into the nearest cache and meets all rows of a block of
   A, which is read where it lies. Blocks are taken by whichever thread is free: a core that others
   use too, and which is slower for it, takes fewer. Which thread computes a block does not change
   its sums. */

enum { MG_TILE_ITEMS = 16 };

#define MG_TILE_WIDTH (2 * VECTOR)
/* Products of elements that are worth an item, and a thread. */
#define MG_TILE_ITEM (1 << 17)
#define MG_TILE_THREAD (1 << 18)

/* Rows of B, as they lie. The strip behind is asked for: the next block of the same rows is it. */
static void pack_strip(REAL* restrict strip, const REAL* b, int64_t ldb, int64_t k, int64_t width)
{
    if (width == MG_TILE_WIDTH) {
        for (int64_t l = 0; l < k; l++, b += ldb, strip += MG_TILE_WIDTH) {
            __builtin_prefetch(b + MG_TILE_WIDTH);
            ((vec*)strip)[0] = ((const vec*)b)[0];
            ((vec*)strip)[1] = ((const vec*)b)[1];
        }
        return;
    }
    for (int64_t l = 0; l < k; l++, b += ldb, strip += MG_TILE_WIDTH)
        for (int64_t j = 0; j < MG_TILE_WIDTH; j++) strip[j] = j < width ? b[j] : 0;
}

/* Rows of the transpose of B. */
static void pack_transposed(REAL* restrict strip, const REAL* b, int64_t ldb, int64_t k,
                            int64_t width)
{
    int64_t l = 0;
    if (width == MG_TILE_WIDTH)
        for (; l + VECTOR <= k; l += VECTOR) {
            transpose_square(b + l, ldb, strip + l * MG_TILE_WIDTH);
            transpose_square(b + VECTOR * ldb + l, ldb, strip + l * MG_TILE_WIDTH + VECTOR);
        }
    for (; l < k; l++)
        for (int64_t j = 0; j < MG_TILE_WIDTH; j++)
            strip[l * MG_TILE_WIDTH + j] = j < width ? b[j * ldb + l] : 0;
}

/* Ask for the rows of A that the next tile reads: each is too short for the processor to foresee. */
static void ask_for(const REAL* a, int64_t rows, int64_t k, int64_t row_a, int64_t step_a)
{
    if (row_a == 1)
        for (int64_t l = 0; l < k; l++) __builtin_prefetch(a + l * step_a);
    else
        for (int64_t i = 0; i < rows; i++)
            for (int64_t l = 0; l < k; l += 64 / (int64_t)sizeof(REAL))
                __builtin_prefetch(a + i * row_a + l);
}

/* The sums of some rows and at most one strip of columns, over a part of the inner extent. The
   first strip of a block is the one that brings A into the cache. */
static void multiply_strip(const product* p, const REAL* strip, int64_t k, const REAL* a,
                           int64_t rows, int64_t width, REAL beta, const REAL* c, int64_t ldc,
                           REAL* out, int first)
{
    int64_t row_a = p->transpose_a ? 1 : p->lda, step_a = p->transpose_a ? p->lda : 1;
    REAL part[MG_TILE_HEIGHT * MG_TILE_WIDTH] __attribute__((aligned(64)));
    size_t bytes = (size_t)width * sizeof(REAL);
    for (int64_t i = 0, height; i < rows; i += height, a += height * row_a) {
        int64_t left = rows - i;
        height = left >= MG_TILE_HEIGHT ? MG_TILE_HEIGHT : left < MG_TILE_LOW ? left : MG_TILE_LOW;
        const REAL* from = c + i * ldc;
        REAL* to = out + i * p->ldc;
        if (first && left >= 2 * MG_TILE_HEIGHT)
            ask_for(a + MG_TILE_HEIGHT * row_a, MG_TILE_HEIGHT, k, row_a, step_a);
        if (beta != 0)
            for (int64_t r = 0; r < height; r++) __builtin_prefetch(from + r * ldc);
        if (width == MG_TILE_WIDTH) {
            tiles[height](k, a, row_a, step_a, strip, p->alpha, beta, from, ldc, to, p->ldc);
            continue;
        }
        if (beta != 0)
            for (int64_t r = 0; r < height; r++)
                memcpy(part + r * MG_TILE_WIDTH, from + r * ldc, bytes);
        tiles[height](k, a, row_a, step_a, strip, p->alpha, beta, part, MG_TILE_WIDTH, part,
                      MG_TILE_WIDTH);
        for (int64_t r = 0; r < height; r++)
            memcpy(to + r * p->ldc, part + r * MG_TILE_WIDTH, bytes);
    }
}

/* Rows [m0, m1) and columns [n0, n1) of a product; c is what beta multiplies. */
static void multiply_block(const product* p, const REAL* c, int64_t ldc, int64_t m0, int64_t m1,
                           int64_t n0, int64_t n1)
{
    REAL strip[MG_TILE_DEPTH * MG_TILE_WIDTH] __attribute__((aligned(64)));
    int64_t rounds = (p->k + MG_TILE_DEPTH - 1) / MG_TILE_DEPTH;
    for (int64_t round = 0; round < rounds; round++) {
        int64_t begin = p->k * round / rounds, depth = p->k * (round + 1) / rounds - begin;
        const REAL* a = p->a + (p->transpose_a ? m0 + begin * p->lda : m0 * p->lda + begin);
        for (int64_t j = n0; j < n1; j += MG_TILE_WIDTH) {
            int64_t width = n1 - j < MG_TILE_WIDTH ? n1 - j : MG_TILE_WIDTH;
            REAL* out = p->c + m0 * p->ldc + j;
            if (p->transpose_b)
                pack_transposed(strip, p->b + j * p->ldb + begin, p->ldb, depth, width);
            else pack_strip(strip, p->b + begin * p->ldb + j, p->ldb, depth, width);
            if (round == 0)
                multiply_strip(p, strip, depth, a, m1 - m0, width, p->beta, c + m0 * ldc + j, ldc,
                               out, j == n0);
            else
                multiply_strip(p, strip, depth, a, m1 - m0, width, 1, out, p->ldc, out, j == n0);
        }
    }
}

typedef struct {
    product first;
    const REAL* c;
    int64_t ldc, count, stride_out, stride_a, stride_b, stride_c;
    /* Blocks of a product: `down` of rows, each `across` but the last, which is cut finer: threads
       that end early take it up. */
    int64_t down, across, last;
    _Atomic int64_t next;
} tiled;

static void tiled_part(void* context, int64_t thread, int64_t threads)
{
    tiled* t = context;
    (void)thread, (void)threads;
    for (;;) {
        int64_t item = atomic_fetch_add(&t->next, 1), m0, m1, n0, n1;
        int64_t blocks = (t->down - 1) * t->across + t->last;
        int64_t number = item / blocks, block = item % blocks, row = block / t->across;
        int64_t across = t->across, column = block % across;
        if (number >= t->count) return;
        if (row >= t->down - 1)
            row = t->down - 1, across = t->last, column = block - row * t->across;
        product p = t->first;
        p.a += number * t->stride_a;
        p.b += number * t->stride_b;
        p.c += number * t->stride_out;
        mg_split(p.m, MG_TILE_HEIGHT, row, t->down, &m0, &m1);
        mg_split(p.n, MG_TILE_WIDTH, column, across, &n0, &n1);
        multiply_block(&p, t->c + number * t->stride_c, t->ldc, m0, m1, n0, n1);
    }
}

static int64_t between(int64_t least, int64_t value, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Cut products into items that are worth a thread's time, and run them. */
static void multiply_tiled(tiled* t)
{
    const product* p = &t->first;
    if (p->m <= 0 || p->n <= 0 || t->count <= 0) return;
    int64_t team = mg_thread_count(), strips = (p->n + MG_TILE_WIDTH - 1) / MG_TILE_WIDTH;
    int64_t work = p->m * p->n * p->k * t->count;
    int64_t items = between(1, work / MG_TILE_ITEM, MG_TILE_ITEMS * team) / t->count;
    t->down = (p->m + MG_TILE_ROWS - 1) / MG_TILE_ROWS;
    t->across = between(1, items / t->down, strips);
    if (t->across == strips) /* few columns */
        t->down = between(t->down, items / strips, p->m / (4 * MG_TILE_HEIGHT) + 1);
    t->last = t->across;
    if (t->down > 1 && t->count == 1) t->last = between(t->across, 4 * t->across, strips);
    mg_share(tiled_part, t, between(1, work / MG_TILE_THREAD, team), work / 4);
}

/* As mg_gemm, for an inner extent of at least 1. */
void mg_gemm_tiles(void** arguments)
{
    tiled t = { read_product(arguments), arguments[3], (int64_t)arguments[14], 1, 0, 0, 0, 0,
                0, 0, 0, 0 };
    multiply_tiled(&t);
}

/* As mg_gemm_batch, so too. */
void mg_gemm_batch_tiles(void** arguments)
{
    tiled t = { read_product(arguments), arguments[3], (int64_t)arguments[14],
                (int64_t)arguments[15], (int64_t)arguments[16], (int64_t)arguments[17],
                (int64_t)arguments[18], (int64_t)arguments[19], 0, 0, 0, 0 };
    multiply_tiled(&t);
}
