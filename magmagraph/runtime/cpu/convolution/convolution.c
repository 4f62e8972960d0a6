/* What the kernels of convolutions share: the geometry as the plan hands it over, strides of both
   layouts, and products from the library of products. convolution.py puts this text before that of
   each algorithm, and defines REAL. Spatial axes are always three: leading ones of extent 1 are
   added.

   Positions are tied by i = o * stride + k * dilation - low. */

#include <stdlib.h>
#include <string.h>

enum { MG_FORWARD = 0, MG_TO_INPUT = 1, MG_TO_WEIGHT = 2 };

typedef struct {
    const REAL *left, *right; /* x and w; g and w; x and g */
    REAL* out;
    REAL* work;
    int64_t bytes;   /* of work */
    int64_t threads; /* that work was made for */
    int64_t n, groups, ci, co; /* batch, groups, channels and results of a group */
    int64_t in[3], k[3], o[3], s[3], d[3], low[3];
    int64_t last; /* channels last */
    int64_t taps, inputs, outputs; /* products of k, in, o */
} shape;

static shape read_shape(void** arguments)
{
    shape g;
    g.left = arguments[0];
    g.right = arguments[1];
    g.out = arguments[2];
    g.work = arguments[3];
    g.bytes = (int64_t)arguments[4];
    g.threads = (int64_t)arguments[5];
    g.n = (int64_t)arguments[6];
    g.groups = (int64_t)arguments[7];
    g.ci = (int64_t)arguments[8];
    g.co = (int64_t)arguments[9];
    for (int a = 0; a < 3; a++) {
        g.in[a] = (int64_t)arguments[10 + a];
        g.k[a] = (int64_t)arguments[13 + a];
        g.o[a] = (int64_t)arguments[16 + a];
        g.s[a] = (int64_t)arguments[19 + a];
        g.d[a] = (int64_t)arguments[22 + a];
        g.low[a] = (int64_t)arguments[25 + a];
    }
    g.last = (int64_t)arguments[28];
    g.taps = g.k[0] * g.k[1] * g.k[2];
    g.inputs = g.in[0] * g.in[1] * g.in[2];
    g.outputs = g.o[0] * g.o[1] * g.o[2];
    return g;
}

/* Elements from one sample, channel, and position of each axis to the next. */
typedef struct {
    int64_t n, c, at[3];
} steps;

static steps image_steps(const shape* g, int64_t channels, const int64_t* extents)
{
    int64_t size = extents[0] * extents[1] * extents[2], unit = g->last ? channels : 1;
    steps result = { size * channels, g->last ? 1 : size, { 0, 0, unit } };
    result.at[1] = unit * extents[2];
    result.at[0] = result.at[1] * extents[1];
    return result;
}

static steps input_steps(const shape* g) { return image_steps(g, g->ci * g->groups, g->in); }
static steps output_steps(const shape* g) { return image_steps(g, g->co * g->groups, g->o); }

/* Elements from one result, channel and tap of the weights to the next. */
typedef struct {
    int64_t o, c, t;
} weight_steps;

static weight_steps steps_of_weights(const shape* g)
{
    weight_steps first = { g->ci * g->taps, g->taps, 1 };
    weight_steps last = { 1, g->co * g->groups, g->ci * g->co * g->groups };
    return g->last ? last : first;
}

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The part [*first, *stop) of count results for which a tap at shift lies inside of n inputs:
   0 <= o * stride + shift < n. */
static void inside_of(int64_t n, int64_t stride, int64_t shift, int64_t count, int64_t* first,
                      int64_t* stop)
{
    *first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *stop = shift >= n ? 0 : (n - 1 - shift) / stride + 1;
    if (*stop > count) *stop = count;
    if (*first > *stop) *first = *stop;
}

static void zero(REAL* out, int64_t count) { memset(out, 0, (size_t)count * sizeof(REAL)); }

/* The products of BLAS, each on one thread between begin and end. */
static void (*multiply)(int64_t transpose_a, int64_t transpose_b, int64_t m, int64_t n, int64_t k,
                        const REAL* a, int64_t lda, const REAL* b, int64_t ldb, double beta,
                        REAL* c, int64_t ldc);
static void (*products_begin)(void);
static void (*products_end)(void);

void mg_set_products(void* product, void* begin, void* end)
{
    multiply = product;
    products_begin = begin;
    products_end = end;
}

enum { MG_WORTH_A_THREAD = 1 << 19 }; /* multiplications */

static double multiplications(const shape* g)
{
    return (double)g->n * g->groups * g->ci * g->co * g->taps * g->outputs;
}

/* In units of some 0.05 ns, as mg_share takes it. */
static int64_t effort_of(const shape* g)
{
    double work = multiplications(g) / 4;
    return work < 1e18 ? (int64_t)work : (int64_t)1e18;
}

static int64_t team_for(const shape* g, int64_t items)
{
    double team = multiplications(g) / MG_WORTH_A_THREAD;
    int64_t most = lesser(g->threads, items);
    return team < (double)most ? (int64_t)team : most;
}
