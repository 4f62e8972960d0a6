/* Matrix products of one element type, as steps of a plan. products.py makes a library of this
   text for float and one for double, with products_common.c before it. */

#include <math.h>

enum { MG_PLAIN = 0, MG_CBLAS_64 = 1, MG_CBLAS_32 = 2, MG_FORTRAN_32 = 3 };

/* What Python found. Without BLAS the loops below serve. */
static struct {
    int64_t interface;
    int64_t serial_when_small; /* it uses one thread for small products, from any thread */
    void* gemm;
    void* gemv;
    int (*get_threads)(void); /* both or neither: how many threads BLAS itself uses */
    void (*set_threads)(int);
} blas;

void mg_set_blas(int64_t interface, int64_t serial_when_small, void* gemm, void* gemv,
                 void* get_threads, void* set_threads)
{
    blas.get_threads = (int (*)(void))get_threads;
    blas.set_threads = (void (*)(int))set_threads;
    blas.interface = interface;
    blas.serial_when_small = serial_when_small;
    blas.gemm = gemm;
    blas.gemv = gemv;
}

static int fits_int(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f)
{
    return ((a | b | c | d | e | f) >> 31) == 0;
}

/* C = alpha op(A) op(B) + beta C without BLAS, for machines where none is found. */
MG_LOOPS static void plain_rows(void* context, int64_t thread, int64_t threads)
{
    const product* p = context;
    int64_t begin, end;
    mg_split(p->m, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        REAL* restrict c = p->c + i * p->ldc;
        const REAL* a = p->transpose_a ? p->a + i : p->a + i * p->lda;
        int64_t step = p->transpose_a ? p->lda : 1;
        if (p->beta == 0) memset(c, 0, (size_t)p->n * sizeof(REAL));
        else for (int64_t j = 0; j < p->n; j++) c[j] *= p->beta;
        if (p->transpose_b) {
            for (int64_t j = 0; j < p->n; j++) {
                const REAL* b = p->b + j * p->ldb;
                REAL sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t l = 0; l < p->k; l++) sum += a[l * step] * b[l];
                c[j] += p->alpha * sum;
            }
        } else {
            for (int64_t l = 0; l < p->k; l++) {
                const REAL* b = p->b + l * p->ldb;
                REAL scale = p->alpha * a[l * step];
#pragma omp simd
                for (int64_t j = 0; j < p->n; j++) c[j] += scale * b[j];
            }
        }
    }
}

/* y = alpha op(A) x + beta y by BLAS; A has m rows and n columns before op. */
static void blas_gemv(int64_t interface, int64_t transpose, int64_t m, int64_t n, REAL alpha,
                      const REAL* a, int64_t lda, const REAL* x, int64_t stride_x, REAL beta,
                      REAL* y, int64_t stride_y)
{
    if (interface == MG_CBLAS_64) {
        ((void (*)(int, int, int64_t, int64_t, REAL, const REAL*, int64_t, const REAL*, int64_t,
                   REAL, REAL*, int64_t))blas.gemv)(
            101, transpose ? 112 : 111, m, n, alpha, a, lda, x, stride_x, beta, y, stride_y);
    } else if (interface == MG_CBLAS_32) {
        ((void (*)(int, int, int, int, REAL, const REAL*, int, const REAL*, int, REAL, REAL*,
                   int))blas.gemv)(
            101, transpose ? 112 : 111, (int)m, (int)n, alpha, a, (int)lda, x, (int)stride_x,
            beta, y, (int)stride_y);
    } else { /* column-major: the transposed matrix */
        char flag = transpose ? 'N' : 'T';
        int im = (int)m, in = (int)n, ia = (int)lda, ix = (int)stride_x, iy = (int)stride_y;
        ((void (*)(char*, int*, int*, const REAL*, const REAL*, int*, const REAL*, int*,
                   const REAL*, REAL*, int*))blas.gemv)(
            &flag, &in, &im, &alpha, a, &ia, x, &ix, &beta, y, &iy);
    }
}

static void multiply(const product* p)
{
    int64_t m = p->m, n = p->n, k = p->k, lda = p->lda, ldb = p->ldb, ldc = p->ldc;
    int64_t interface = k > 0 ? blas.interface : MG_PLAIN;
    if (m <= 0 || n <= 0) return;
    if (interface != MG_CBLAS_64 && !fits_int(m, n, k, lda, ldb, ldc)) interface = MG_PLAIN;
    /* BLAS packs the operands of a product, which takes longer than reading them for one vector. */
    if (interface != MG_PLAIN && n == 1) {
        int64_t t = p->transpose_a;
        blas_gemv(interface, t, t ? k : m, t ? m : k, p->alpha, p->a, lda, p->b,
                  p->transpose_b ? 1 : ldb, p->beta, p->c, ldc);
        return;
    }
    if (interface != MG_PLAIN && m == 1) {
        int64_t t = !p->transpose_b;
        blas_gemv(interface, t, t ? k : n, t ? n : k, p->alpha, p->b, ldb, p->a,
                  p->transpose_a ? lda : 1, p->beta, p->c, 1);
        return;
    }
    switch (interface) {
    case MG_CBLAS_64:
        ((void (*)(int, int, int, int64_t, int64_t, int64_t, REAL, const REAL*, int64_t,
                   const REAL*, int64_t, REAL, REAL*, int64_t))blas.gemm)(
            101, p->transpose_a ? 112 : 111, p->transpose_b ? 112 : 111, m, n, k, p->alpha, p->a,
            lda, p->b, ldb, p->beta, p->c, ldc);
        break;
    case MG_CBLAS_32:
        ((void (*)(int, int, int, int, int, int, REAL, const REAL*, int, const REAL*, int, REAL,
                   REAL*, int))blas.gemm)(
            101, p->transpose_a ? 112 : 111, p->transpose_b ? 112 : 111, (int)m, (int)n, (int)k,
            p->alpha, p->a, (int)lda, p->b, (int)ldb, p->beta, p->c, (int)ldc);
        break;
    case MG_FORTRAN_32: { /* column-major: the transposed product */
        char ta = p->transpose_a ? 'T' : 'N', tb = p->transpose_b ? 'T' : 'N';
        int im = (int)m, in = (int)n, ik = (int)k, ia = (int)lda, ib = (int)ldb, ic = (int)ldc;
        ((void (*)(char*, char*, int*, int*, int*, const REAL*, const REAL*, int*, const REAL*,
                   int*, const REAL*, REAL*, int*))blas.gemm)(
            &tb, &ta, &in, &im, &ik, &p->alpha, p->b, &ib, p->a, &ia, &p->beta, p->c, &ic);
        break;
    }
    default:
        mg_parallel(plain_rows, (void*)p, m * n * (k + 1) / 65536);
    }
}

typedef struct {
    REAL* out;
    const REAL* in;
    int64_t ld_out, ld_in, m, n;
} rows;

static void copy_part(void* context, int64_t thread, int64_t threads)
{
    const rows* r = context;
    int64_t begin, end;
    mg_split(r->m, 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        memcpy(r->out + i * r->ld_out, r->in + i * r->ld_in, (size_t)r->n * sizeof(REAL));
}

static void copy_rows(REAL* out, int64_t ld_out, const REAL* in, int64_t ld_in, int64_t m,
                      int64_t n)
{
    rows r = { out, in, ld_out, ld_in, m, n };
    if (out != in) mg_share(copy_part, &r, m * n / (1 << 17), m * n);
}

/* A large product, shared out as panels that BLAS multiplies on one thread each. Its own threads
   would wait for one another inside of the product, without end in sight where other programs use
   the cores too: panels meet only when all is done, and one that is late holds up nothing else. */

enum { MG_SHARED = 1 << 19, MG_PANEL = 16 };

static struct {
    _Atomic int64_t products; /* that are being shared out */
    _Atomic int before;       /* the threads that BLAS had */
} shared;

/* Between these, BLAS multiplies on the thread that calls it. */
static void begin_alone(void)
{
    if (blas.set_threads && atomic_fetch_add(&shared.products, 1) == 0) {
        atomic_store(&shared.before, blas.get_threads());
        blas.set_threads(1);
    }
}

static void end_alone(void)
{
    if (blas.set_threads && atomic_fetch_sub(&shared.products, 1) == 1)
        blas.set_threads(atomic_load(&shared.before));
}

typedef struct {
    const product* whole;
    int64_t count;
    _Atomic int64_t next;
} panels;

static void panel_part(void* context, int64_t thread, int64_t threads)
{
    panels* shares = context;
    (void)thread, (void)threads;
    for (;;) {
        int64_t i = atomic_fetch_add(&shares->next, 1), begin, end;
        if (i >= shares->count) return;
        product p = *shares->whole;
        if (p.n >= p.m) {
            mg_split(p.n, MG_PANEL, i, shares->count, &begin, &end);
            p.b += p.transpose_b ? begin * p.ldb : begin;
            p.c += begin;
            p.n = end - begin;
        } else {
            mg_split(p.m, MG_PANEL, i, shares->count, &begin, &end);
            p.a += p.transpose_a ? begin : begin * p.lda;
            p.c += begin * p.ldc;
            p.m = end - begin;
        }
        multiply(&p);
    }
}

static void multiply_shared(const product* p)
{
    int64_t team = mg_thread_count();
    if (team < 2 || !blas.set_threads || p->m * p->n * p->k < MG_SHARED) {
        multiply(p);
        return;
    }
    panels shares = { p, team, 0 };
    begin_alone();
    mg_share(panel_part, &shares, team, p->m * p->n * p->k / 3);
    end_alone();
}

/* out = alpha op(A) op(B) + beta C; out may be C. */
void mg_gemm(void** arguments)
{
    product p = read_product(arguments);
    mg_enter_blas();
    if (p.beta != 0) copy_rows(p.c, p.ldc, arguments[3], (int64_t)arguments[14], p.m, p.n);
    multiply_shared(&p);
    mg_leave_blas();
}

/* A product that is symmetric: a share of columns for each thread, of about the same area below the
   diagonal; of a share, panels from the diagonal down; the part above the diagonal from the one
   below. All panels take the same terms before the next: those come from memory once a share. */

enum { MG_COLUMNS = 32, MG_PANELS = 8, MG_TERMS = 256 }; /* of a panel, at least; of a product, at
                                                            most; that panels take at once */

/* Return the column where a share begins. */
static int64_t share_begin(int64_t n, int64_t i, int64_t count)
{
    int64_t column = (int64_t)((double)n * (1 - sqrt(1 - (double)i / (double)count)));
    return i < count ? column / MG_PANEL * MG_PANEL : n;
}

static void below_part(void* context, int64_t thread, int64_t threads)
{
    panels* shares = context;
    const product* whole = shares->whole;
    int64_t width = (whole->n / MG_PANELS + MG_PANEL - 1) / MG_PANEL * MG_PANEL;
    if (width < MG_COLUMNS) width = MG_COLUMNS;
    (void)thread, (void)threads;
    for (;;) {
        int64_t i = atomic_fetch_add(&shares->next, 1), term = 0;
        if (i >= shares->count) return;
        int64_t begin = share_begin(whole->n, i, shares->count);
        int64_t end = share_begin(whole->n, i + 1, shares->count);
        do {
            product p = *whole;
            p.k = whole->k - term < MG_TERMS ? whole->k - term : MG_TERMS;
            p.beta = term > 0;
            for (int64_t left = begin; left < end; left += width) {
                p.a = whole->a + (p.transpose_a ? term * p.lda + left : left * p.lda + term);
                p.b = whole->b + (p.transpose_b ? left * p.ldb + term : term * p.ldb + left);
                p.c = whole->c + left * p.ldc + left;
                p.m = whole->n - left;
                p.n = end - left < width ? end - left : width;
                multiply(&p);
            }
            term += MG_TERMS;
        } while (term < whole->k);
    }
}

MG_LOOPS static void mirror_part(void* context, int64_t thread, int64_t threads)
{
    const product* p = context;
    int64_t begin, end, edge = 32;
    mg_split(p->n, edge, thread, threads, &begin, &end);
    for (int64_t above = begin; above < end; above += edge)
        for (int64_t right = above; right < p->n; right += edge)
            for (int64_t i = above; i < above + edge && i < end; i++)
                for (int64_t j = right > i ? right : i + 1; j < right + edge && j < p->n; j++)
                    p->c[i * p->ldc + j] = p->c[j * p->ldc + i];
}

/* out = op(A) op(B), which is symmetric; the arguments of a product without C. */
void mg_symmetric(void** arguments)
{
    product p = read_product(arguments);
    int64_t count = (p.n + MG_COLUMNS - 1) / MG_COLUMNS, team = mg_thread_count();
    panels shares = { &p, count < team ? count : team, 0 };
    if (!blas.set_threads) shares.count = 1;
    mg_enter_blas();
    begin_alone();
    mg_share(below_part, &shares, shares.count, p.m * p.n * p.k / 6);
    end_alone();
    mg_leave_blas();
    mg_share(mirror_part, &p, p.n * p.n / (1 << 15), p.n * p.n);
}

typedef struct {
    product first;
    const REAL* c;
    int64_t ldc, count, stride_out, stride_a, stride_b, stride_c;
    int apart;     /* a product is one thread's */
    int64_t grain; /* products that are taken at once */
    _Atomic int64_t next;
} batch;

static void multiply_one(const batch* batch, int64_t i)
{
    product p = batch->first;
    p.a += i * batch->stride_a;
    p.b += i * batch->stride_b;
    p.c += i * batch->stride_out;
    if (p.beta != 0)
        copy_rows(p.c, p.ldc, batch->c + i * batch->stride_c, batch->ldc, p.m, p.n);
    if (batch->apart) multiply(&p);
    else multiply_shared(&p);
}

static void batch_part(void* context, int64_t thread, int64_t threads)
{
    batch* batch = context;
    (void)thread, (void)threads;
    for (;;) {
        int64_t first = atomic_fetch_add(&batch->next, batch->grain);
        if (first >= batch->count) return;
        for (int64_t i = first; i < first + batch->grain && i < batch->count; i++)
            multiply_one(batch, i);
    }
}

/* The same for a batch; further arguments: count, and elements from one matrix of out, A, B and C
   to the next (0: the same one for all). Threads take whole products where there are several for
   each, or where BLAS would not share one out; else each product is shared out. */
void mg_gemm_batch(void** arguments)
{
    batch batch;
    batch.first = read_product(arguments);
    batch.c = arguments[3];
    batch.ldc = (int64_t)arguments[14];
    batch.count = (int64_t)arguments[15];
    batch.stride_out = (int64_t)arguments[16];
    batch.stride_a = (int64_t)arguments[17];
    batch.stride_b = (int64_t)arguments[18];
    batch.stride_c = (int64_t)arguments[19];
    int64_t size = batch.first.m * batch.first.n * batch.first.k, team = mg_thread_count();
    int alone = size <= (1 << 18) && (blas.interface == MG_PLAIN || blas.serial_when_small);
    int64_t work = batch.count * size / 65536;
    batch.apart = alone || (blas.set_threads && batch.count >= 2 * team);
    batch.grain = size >= 65536 ? 1 : 65536 / (size + 1) + 1;
    atomic_init(&batch.next, 0);
    mg_enter_blas();
    if (batch.apart && !alone) begin_alone();
    mg_share(batch_part, &batch, batch.apart ? work : 1, batch.count * size / 4);
    if (batch.apart && !alone) end_alone();
    mg_leave_blas();
}

/* out = alpha op(A) x + beta y; A has m rows and n columns before op. Arguments:
   out, A, x, y, alpha, beta, transpose, m, n, lda, stride_out, stride_x, stride_y. */
void mg_gemv(void** arguments)
{
    REAL* out = arguments[0];
    const REAL *a = arguments[1], *x = arguments[2], *y = arguments[3];
    REAL alpha = arguments[4] ? *(const REAL*)arguments[4] : (REAL)1;
    REAL beta = !y ? (REAL)0 : arguments[5] ? *(const REAL*)arguments[5] : (REAL)1;
    int64_t transpose = (int64_t)arguments[6], m = (int64_t)arguments[7];
    int64_t n = (int64_t)arguments[8], lda = (int64_t)arguments[9];
    int64_t stride_out = (int64_t)arguments[10], stride_x = (int64_t)arguments[11];
    int64_t stride_y = (int64_t)arguments[12];
    int64_t rows = transpose ? n : m, columns = transpose ? m : n;
    if (rows <= 0) return;
    if (beta != 0 && out != y) copy_rows(out, stride_out, y, stride_y, rows, 1);
    mg_enter_blas();
    int64_t interface = columns > 0 ? blas.interface : MG_PLAIN;
    if (interface != MG_CBLAS_64 && !fits_int(m, n, lda, stride_out, stride_x, 0))
        interface = MG_PLAIN;
    if (interface != MG_PLAIN) {
        blas_gemv(interface, transpose, m, n, alpha, a, lda, x, stride_x, beta, out, stride_out);
    } else { /* op(A) (rows x columns) times a matrix of one column */
        product p = { transpose != 0, 0, rows, 1, columns, lda, stride_x, stride_out,
                            alpha, beta, a, x, out };
        mg_parallel(plain_rows, &p, rows * (columns + 1) / 65536);
    }
    mg_leave_blas();
}

/* For kernels of other libraries, which share out products among threads by themselves: each is
   multiplied on the thread that asks, between begin and end. */
void mg_products_begin(void)
{
    mg_enter_blas();
    begin_alone();
}

void mg_products_end(void)
{
    end_alone();
    mg_leave_blas();
}

/* C = op(A) op(B) + beta C */
void mg_product(int64_t transpose_a, int64_t transpose_b, int64_t m, int64_t n, int64_t k,
                const REAL* a, int64_t lda, const REAL* b, int64_t ldb, double beta, REAL* c,
                int64_t ldc)
{
    product p = { transpose_a, transpose_b, m, n, k, lda, ldb, ldc, 1, (REAL)beta, a, b, c };
    multiply(&p);
}
