/* Linear algebra by LAPACK, as steps of a program: what small.c does not take. lapack.py makes a
   library of this text for each dtype. sources.py defines REAL, NUMBER (the element) and MG_COMPLEX,
   and puts the header of all kernels before.

   Matrices are row-major, LAPACK's are column-major: it sees the transpose. Triangles, Cholesky's
   factor and right-hand sides are used as they lie, from the other side; other matrices are
   transposed into the workspace, so that pivots and signs are those that NumPy gives. A step that
   LAPACK cannot do stops the program by the function that its first argument is. */

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* With 32-bit integers LAPACK reads and writes the lower half of these. */
typedef int64_t whole;
typedef const whole* count_of;
typedef const char* word;

static struct {
    void (*getrf)(count_of m, count_of n, NUMBER* a, count_of lda, whole* pivots, whole* info);
    void (*getri)(count_of n, NUMBER* a, count_of lda, const whole* pivots, NUMBER* work,
                  count_of lwork, whole* info);
    void (*potrf)(word uplo, count_of n, NUMBER* a, count_of lda, whole* info, size_t);
    void (*geqrf)(count_of m, count_of n, NUMBER* a, count_of lda, NUMBER* tau, NUMBER* work,
                  count_of lwork, whole* info);
    void (*unmqr)(word side, word trans, count_of m, count_of n, count_of k, const NUMBER* a,
                  count_of lda, const NUMBER* tau, NUMBER* c, count_of ldc, NUMBER* work,
                  count_of lwork, whole* info, size_t, size_t);
    void (*trcon)(word norm, word uplo, word diag, count_of n, const NUMBER* a, count_of lda,
                  REAL* condition, NUMBER* work, void* more, whole* info, size_t, size_t, size_t);
    void (*ungqr)(count_of m, count_of n, count_of k, NUMBER* a, count_of lda, const NUMBER* tau,
                  NUMBER* work, count_of lwork, whole* info);
#if MG_COMPLEX
    void (*heevd)(word job, word uplo, count_of n, NUMBER* a, count_of lda, REAL* values,
                  NUMBER* work, count_of lwork, REAL* rwork, count_of lrwork, whole* iwork,
                  count_of liwork, whole* info, size_t, size_t);
    void (*gesdd)(word job, count_of m, count_of n, NUMBER* a, count_of lda, REAL* values,
                  NUMBER* u, count_of ldu, NUMBER* vh, count_of ldvh, NUMBER* work, count_of lwork,
                  REAL* rwork, whole* iwork, whole* info, size_t);
    void (*gelsd)(count_of m, count_of n, count_of k, NUMBER* a, count_of lda, NUMBER* b,
                  count_of ldb, REAL* values, const REAL* ratio, whole* rank, NUMBER* work,
                  count_of lwork, REAL* rwork, whole* iwork, whole* info);
#else
    void (*heevd)(word job, word uplo, count_of n, NUMBER* a, count_of lda, REAL* values,
                  NUMBER* work, count_of lwork, whole* iwork, count_of liwork, whole* info, size_t,
                  size_t);
    void (*gesdd)(word job, count_of m, count_of n, NUMBER* a, count_of lda, REAL* values,
                  NUMBER* u, count_of ldu, NUMBER* vh, count_of ldvh, NUMBER* work, count_of lwork,
                  whole* iwork, whole* info, size_t);
    void (*gelsd)(count_of m, count_of n, count_of k, NUMBER* a, count_of lda, NUMBER* b,
                  count_of ldb, REAL* values, const REAL* ratio, whole* rank, NUMBER* work,
                  count_of lwork, whole* iwork, whole* info);
#endif
    void (*gemm)(word trans_a, word trans_b, count_of m, count_of n, count_of k,
                 const NUMBER* alpha, const NUMBER* a, count_of lda, const NUMBER* b, count_of ldb,
                 const NUMBER* beta, NUMBER* c, count_of ldc, size_t, size_t);
    void (*trsm)(word side, word uplo, word trans, word diag, count_of m, count_of n,
                 const NUMBER* alpha, const NUMBER* a, count_of lda, NUMBER* b, count_of ldb, size_t,
                 size_t, size_t, size_t);
    void (*trsv)(word uplo, word trans, word diag, count_of n, const NUMBER* a, count_of lda,
                 NUMBER* x, count_of step, size_t, size_t, size_t);
} lapack;

static int64_t narrow; /* its integers have 32 bits */
static int (*get_threads)(void);
static void (*set_threads)(int);

void mg_set_lapack(int64_t with_32_bits, void* get, void* set, const void* functions)
{
    narrow = with_32_bits;
    get_threads = (int (*)(void))get;
    set_threads = (void (*)(int))set;
    memcpy(&lapack, functions, sizeof lapack);
}

static inline int64_t value_of(whole number)
{
    int32_t lower;
    memcpy(&lower, &number, sizeof lower);
    return narrow ? lower : number;
}

static inline int64_t pivot_at(const whole* pivots, int64_t k)
{
    return (narrow ? ((const int32_t*)pivots)[k] : pivots[k]) - 1;
}

enum { MG_BY_MATRIX, MG_BY_FACTORS, MG_BY_TRIANGLE };
enum { MG_PLAIN, MG_TRANSPOSED, MG_ADJOINT };

/* What a step computes; lapack.py fills in a list of cells of the same order. `m` are rows, `n`
   columns of a matrix; `k` columns of the right-hand sides, or of the first result. */
typedef struct {
    const NUMBER *a, *b;
    const int32_t* pivots;
    void *out, *second, *third;
    char* work;
    int64_t work_bytes, each; /* of all threads; of one */
    int64_t count, m, n, k;
    int64_t kind, lower, trans, unit, vectors, full;
    int64_t flops; /* of one matrix */
    double ratio;  /* of a singular value to the largest, up to which it counts as zero */
    int64_t a_stride, b_stride, pivot_stride;
    const int64_t *a_offsets, *b_offsets, *pivot_offsets;
} job;

/* Returns 0 where LAPACK cannot do matrix number i. */
typedef int (*solver)(const job* job, int64_t i, char* work);

/* ---- Memory -------------------------------------------------------------------------------- */

static void* take(char** work, int64_t bytes)
{
    void* found = *work;
    *work += (bytes + 63) / 64 * 64;
    return found;
}

/* The rest of a thread's workspace, in elements of a size. */
static int64_t left_of(const job* job, const char* start, const char* work, size_t size)
{
    return (job->each - (work - start)) / (int64_t)size;
}

static const NUMBER* matrix(const job* job, int64_t i)
{
    return job->a + (job->a_offsets ? job->a_offsets[i] : i * job->a_stride);
}

typedef struct {
    NUMBER* to;
    const NUMBER* from;
    int64_t rows, columns, ld_to, ld_from;
} turn;

enum { MG_TILE = 16 };

static void turn_part(void* context, int64_t thread, int64_t threads)
{
    const turn t = *(const turn*)context;
    int64_t begin, end;
    mg_split(t.rows, MG_TILE, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i += MG_TILE)
        for (int64_t j = 0; j < t.columns; j += MG_TILE) {
            int64_t last = i + MG_TILE < end ? i + MG_TILE : end;
            int64_t edge = j + MG_TILE < t.columns ? j + MG_TILE : t.columns;
            for (int64_t c = j; c < edge; c++)
                for (int64_t r = i; r < last; r++)
                    t.to[c * t.ld_to + r] = t.from[r * t.ld_from + c];
        }
}

/* to[c][r] = from[r][c] of so many rows and columns. */
static void transpose(NUMBER* to, int64_t ld_to, const NUMBER* from, int64_t ld_from, int64_t rows,
                      int64_t columns)
{
    turn t = { to, from, rows, columns, ld_to, ld_from };
    mg_share(turn_part, &t, rows / MG_TILE, rows * columns * 8);
}

/* Whether the elements of rows [0, m), of which row i has those of [begin, end), are finite: times
   zero they are zero. */
static int all_finite(const NUMBER* a, int64_t m, int64_t n, int64_t lower, int64_t upper)
{
    const int64_t parts = sizeof(NUMBER) / sizeof(REAL);
    REAL total = 0;
    for (int64_t i = 0; i < m; i++) {
        const REAL* row = (const REAL*)(a + i * n);
        int64_t begin = parts * (lower ? 0 : upper ? i : 0), end = parts * (lower ? i + 1 : n);
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = begin; j < end; j++) sum += row[j] * 0;
        total += sum;
    }
    return total == 0;
}

/* ---- Systems ------------------------------------------------------------------------------- */

/* x = x op(T)^-1, of row-major right-hand sides (n x k), which are columns of x^T; T is a triangle of
   a column-major matrix. */
static void divide(const NUMBER* a, NUMBER* x, int64_t n, int64_t k, char uplo, char trans, char diag)
{
    whole order = n, columns = k, one = 1;
    NUMBER alpha = 1;
    char side = 'R';
    if (k == 1 && trans != 'C') {
        char turned = trans == 'N' ? 'T' : 'N';
        lapack.trsv(&uplo, &turned, &diag, &order, a, &order, x, &one, 1, 1, 1);
    }
    else if (k > 0)
        lapack.trsm(&side, &uplo, &trans, &diag, &columns, &order, &alpha, a, &order, x, &columns, 1, 1,
                    1, 1);
}

static int has_zero(const NUMBER* a, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= a[i * (n + 1)] == 0;
    return found;
}

static void exchange(NUMBER* x, int64_t k, int64_t i, int64_t other)
{
    NUMBER *left = x + i * k, *right = x + other * k;
    if (i != other)
        for (int64_t j = 0; j < k; j++) {
            NUMBER held = left[j];
            left[j] = right[j];
            right[j] = held;
        }
}

/* Factor a column-major matrix; the exchanges are LAPACK's. Returns its verdict. */
static int64_t factor(NUMBER* a, whole* pivots, int64_t m, int64_t n)
{
    whole rows = m, columns = n, info = 0;
    lapack.getrf(&rows, &columns, a, &rows, pivots, &info);
    return value_of(info);
}

static int lu(const job* job, int64_t i, char* work)
{
    int64_t m = job->m, n = job->n, shorter = m < n ? m : n;
    NUMBER* a = take(&work, m * n * (int64_t)sizeof(NUMBER));
    whole* pivots = take(&work, shorter * (int64_t)sizeof(whole));
    int32_t* exchanges = (int32_t*)job->second + i * shorter;
    transpose(a, m, matrix(job, i), n, m, n);
    if (factor(a, pivots, m, n) < 0) return 0;
    transpose((NUMBER*)job->out + i * m * n, n, a, m, n, m);
    for (int64_t k = 0; k < shorter; k++) exchanges[k] = (int32_t)pivot_at(pivots, k);
    return 1;
}

static void right_hand_sides(const job* job, int64_t i, NUMBER* x)
{
    int64_t n = job->n, k = job->k;
    if (job->b)
        memcpy(x, job->b + (job->b_offsets ? job->b_offsets[i] : i * job->b_stride),
               (size_t)(n * k) * sizeof(NUMBER));
    else { /* the identity: its solution is the inverse */
        memset(x, 0, (size_t)(n * k) * sizeof(NUMBER));
        for (int64_t j = 0; j < n; j++) x[j * (k + 1)] = 1;
    }
}

static int by_triangle(const job* job, int64_t i)
{
    const NUMBER* a = matrix(job, i);
    NUMBER* x = (NUMBER*)job->out + i * job->n * job->k;
    if (!job->unit && has_zero(a, job->n)) return 0;
    right_hand_sides(job, i, x);
    divide(a, x, job->n, job->k, job->lower ? 'U' : 'L', "NTC"[job->trans], job->unit ? 'U' : 'N');
    return 1;
}

static int by_factors(const job* job, int64_t i)
{
    int64_t n = job->n, k = job->k;
    const NUMBER* a = matrix(job, i);
    const int32_t* pivots =
        job->pivots + (job->pivot_offsets ? job->pivot_offsets[i] : i * job->pivot_stride);
    NUMBER* x = (NUMBER*)job->out + i * n * k;
    for (int64_t j = 0; j < n; j++)
        if ((uint64_t)(int64_t)pivots[j] >= (uint64_t)n) return 0;
    if (has_zero(a, n)) return 0;
    right_hand_sides(job, i, x);
    if (job->trans) {
        divide(a, x, n, k, 'L', 'T', 'N');
        divide(a, x, n, k, 'U', 'T', 'U');
        for (int64_t j = n; j-- > 0;) exchange(x, k, j, pivots[j]);
    }
    else {
        for (int64_t j = 0; j < n; j++) exchange(x, k, j, pivots[j]);
        divide(a, x, n, k, 'U', 'N', 'U');
        divide(a, x, n, k, 'L', 'N', 'N');
    }
    return 1;
}

static int inverse(const job* job, int64_t i, char* work)
{
    const char* start = work;
    int64_t n = job->n;
    whole order = n, info = 0;
    NUMBER* a = take(&work, n * n * (int64_t)sizeof(NUMBER));
    whole* pivots = take(&work, n * (int64_t)sizeof(whole));
    transpose(a, n, matrix(job, i), n, n, n);
    if (factor(a, pivots, n, n)) return 0;
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.getri(&order, a, &order, pivots, (NUMBER*)work, &lwork, &info);
    if (value_of(info)) return 0;
    transpose((NUMBER*)job->out + i * n * n, n, a, n, n, n);
    return 1;
}

static int systems(const job* job, int64_t i, char* work)
{
    if (job->kind == MG_BY_TRIANGLE) return by_triangle(job, i);
    if (job->kind == MG_BY_FACTORS) return by_factors(job, i);
    if (!job->b) return inverse(job, i, work);
    int64_t n = job->n, k = job->k;
    NUMBER* a = take(&work, n * n * (int64_t)sizeof(NUMBER));
    whole* pivots = take(&work, n * (int64_t)sizeof(whole));
    NUMBER* x = (NUMBER*)job->out + i * n * k;
    transpose(a, n, matrix(job, i), n, n, n);
    if (factor(a, pivots, n, n)) return 0;
    right_hand_sides(job, i, x);
    for (int64_t j = 0; j < n; j++) exchange(x, k, j, pivot_at(pivots, j));
    divide(a, x, n, k, 'L', 'T', 'U');
    divide(a, x, n, k, 'U', 'T', 'N');
    return 1;
}

/* ---- Factorizations ------------------------------------------------------------------------ */

/* The lower triangle as rows is the upper one of the transpose, whose factor U^H U has U^T = L. */
static int cholesky(const job* job, int64_t i, char* work)
{
    (void)work;
    int64_t n = job->n;
    whole order = n, info = 0;
    const NUMBER* a = matrix(job, i);
    NUMBER* out = (NUMBER*)job->out + i * n * n;
    for (int64_t r = 0; r < n; r++) {
        memcpy(out + r * n, a + r * n, (size_t)(r + 1) * sizeof(NUMBER));
        memset(out + r * n + r + 1, 0, (size_t)(n - r - 1) * sizeof(NUMBER));
    }
    lapack.potrf("U", &order, out, &order, &info, 1);
    return !value_of(info);
}

static inline double size_of(NUMBER x)
{
    return MG_COMPLEX ? hypot((double)__real__ x, (double)__imag__ x) : fabs((double)__real__ x);
}

/* The sign of a determinant, and the logarithm of its size, by factors; the exchanges are LAPACK's or
   those of an operand. */
static void determinant(const NUMBER* factors, int64_t n, const whole* pivots, const int32_t* given,
                        NUMBER* sign, double* size)
{
    *sign = 1;
    *size = 0;
    for (int64_t k = 0; k < n; k++) {
        NUMBER value = factors[k * (n + 1)];
        double part = size_of(value);
        if ((given ? given[k] : pivot_at(pivots, k)) != k) *sign = -*sign;
        *sign *= part == 0 ? 0 : value / (REAL)part;
        *size += log(part);
    }
}

/* A determinant is that of the transpose: the matrix is factored as it lies. */
static int determinants(const job* job, int64_t i, char* work)
{
    int64_t n = job->n;
    const NUMBER* a = matrix(job, i);
    const int32_t* given = NULL;
    whole* pivots = NULL;
    NUMBER sign;
    double size;
    if (job->kind == MG_BY_FACTORS)
        given = job->pivots + (job->pivot_offsets ? job->pivot_offsets[i] : i * job->pivot_stride);
    else {
        NUMBER* factors = take(&work, n * n * (int64_t)sizeof(NUMBER));
        pivots = take(&work, n * (int64_t)sizeof(whole));
        memcpy(factors, a, (size_t)(n * n) * sizeof(NUMBER));
        if (factor(factors, pivots, n, n) < 0) return 0;
        a = factors;
    }
    determinant(a, n, pivots, given, &sign, &size);
    ((NUMBER*)job->out)[i] = job->second ? sign : sign * (REAL)exp(size);
    if (job->second) ((REAL*)job->second)[i] = (REAL)size;
    return 1;
}

/* Results: Q (m x k), R (k x n); or R alone. */
static int qr(const job* job, int64_t i, char* work)
{
    const char* start = work;
    int64_t m = job->m, n = job->n, k = job->k, shorter = m < n ? m : n;
    whole rows = m, columns = n, reflections = shorter, wanted = k, info = 0;
    NUMBER* a = take(&work, m * (n > k ? n : k) * (int64_t)sizeof(NUMBER));
    NUMBER* tau = take(&work, shorter * (int64_t)sizeof(NUMBER));
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    NUMBER* r = job->vectors ? job->second : job->out;
    r += i * k * n;
    transpose(a, m, matrix(job, i), n, m, n);
    lapack.geqrf(&rows, &columns, a, &rows, tau, (NUMBER*)work, &lwork, &info);
    if (value_of(info)) return 0;
    transpose(r, n, a, m, n, shorter);
    for (int64_t row = 1; row < k; row++)
        memset(r + row * n, 0, (size_t)(row < n ? row : n) * sizeof(NUMBER));
    if (!job->vectors) return 1;
    lapack.ungqr(&rows, &wanted, &reflections, a, &rows, tau, (NUMBER*)work, &lwork, &info);
    if (value_of(info)) return 0;
    transpose((NUMBER*)job->out + i * m * k, k, a, m, k, m);
    return 1;
}

static int eigenvalues(const job* job, int64_t i, char* work)
{
    const char* start = work;
    int64_t n = job->n;
    const NUMBER* from = matrix(job, i);
    whole order = n, info = 0, numbers = 3 + 5 * n;
    NUMBER* a = take(&work, n * n * (int64_t)sizeof(NUMBER));
    whole* iwork = take(&work, numbers * (int64_t)sizeof(whole));
    REAL* values = (REAL*)job->out + i * n;
    word jobz = job->vectors ? "V" : "N", uplo = job->lower ? "L" : "U";
    if (!all_finite(from, n, n, job->lower, !job->lower)) return 0;
    transpose(a, n, from, n, n, n);
#if MG_COMPLEX
    whole reals = 1 + 5 * n + 2 * n * n;
    REAL* rwork = take(&work, reals * (int64_t)sizeof(REAL));
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.heevd(jobz, uplo, &order, a, &order, values, (NUMBER*)work, &lwork, rwork, &reals, iwork,
                 &numbers, &info, 1, 1);
#else
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.heevd(jobz, uplo, &order, a, &order, values, (NUMBER*)work, &lwork, iwork, &numbers, &info,
                 1, 1);
#endif
    if (value_of(info)) return 0;
    if (job->vectors) transpose((NUMBER*)job->second + i * n * n, n, a, n, n, n);
    return 1;
}

/* Of gelsd's work for each singular value: it halves matrices 32 times at most. */
#define MG_LEVELS(shorter) (107 * (shorter))

typedef struct {
    NUMBER *u, *vh; /* column-major: m x left, right x n */
    int64_t left, right;
} vectors;

/* Decompose matrix number i; without vectors where `job` is "N". Returns whether LAPACK could. */
static int decompose(const job* job, int64_t i, char* work, word jobz, REAL* values, vectors* found)
{
    const char* start = work;
    int64_t m = job->m, n = job->n, shorter = m < n ? m : n;
    int64_t left = *jobz == 'A' ? m : shorter, right = *jobz == 'A' ? n : shorter;
    whole rows = m, columns = n, ldvh = right, info = 0;
    const NUMBER* from = matrix(job, i);
    NUMBER *u = NULL, *vh = NULL;
    if (*jobz != 'N') {
        u = take(&work, m * left * (int64_t)sizeof(NUMBER));
        vh = take(&work, right * n * (int64_t)sizeof(NUMBER));
    }
    *found = (vectors){ u, vh, left, right };
    NUMBER* a = take(&work, m * n * (int64_t)sizeof(NUMBER));
    whole* iwork = take(&work, 8 * shorter * (int64_t)sizeof(whole));
    if (!all_finite(from, m, n, 0, 0)) return 0;
    transpose(a, m, from, n, m, n);
#if MG_COMPLEX
    int64_t longer = m < n ? n : m;
    REAL* rwork = take(&work, (7 * shorter + 2 * shorter * longer + 6 * shorter * shorter) *
                                  (int64_t)sizeof(REAL));
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.gesdd(jobz, &rows, &columns, a, &rows, values, u, &rows, vh, &ldvh, (NUMBER*)work, &lwork,
                 rwork, iwork, &info, 1);
#else
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.gesdd(jobz, &rows, &columns, a, &rows, values, u, &rows, vh, &ldvh, (NUMBER*)work, &lwork,
                 iwork, &info, 1);
#endif
    return !value_of(info);
}

/* Results: U, values, V^H; or values alone. */
static int singular_values(const job* job, int64_t i, char* work)
{
    int64_t m = job->m, n = job->n, shorter = m < n ? m : n;
    REAL* values = (REAL*)(job->vectors ? job->second : job->out) + i * shorter;
    vectors found;
    if (!decompose(job, i, work, !job->vectors ? "N" : job->full ? "A" : "S", values, &found)) return 0;
    if (job->vectors) {
        transpose((NUMBER*)job->out + i * m * found.left, found.left, found.u, m, found.left, m);
        transpose((NUMBER*)job->third + i * found.right * n, n, found.vh, found.right, n, found.right);
    }
    return 1;
}

/* Replace vectors by their conjugates, and singular values by the inverses of those that count. */
static void invert(const job* job, const vectors* found, REAL* values, double ratio)
{
    int64_t m = job->m, n = job->n, shorter = m < n ? m : n;
    REAL least = (REAL)ratio * values[0];
    for (int64_t k = 0; k < shorter; k++) {
        values[k] = values[k] > least ? 1 / values[k] : 0;
    }
#if MG_COMPLEX
    for (int64_t e = 0; e < m * shorter; e++) found->u[e] = ~found->u[e];
    for (int64_t e = 0; e < shorter * n; e++) found->vh[e] = ~found->vh[e];
#endif
}

static void multiply(int64_t m, int64_t n, int64_t k, const NUMBER* a, const NUMBER* b, NUMBER* c)
{
    whole rows = m, columns = n, inner = k;
    NUMBER one = 1, zero = 0;
    lapack.gemm("N", "N", &rows, &columns, &inner, &one, a, &rows, b, &inner, &zero, c, &rows, 1, 1);
}

/* A^+ = V S^-1 U^H, the rows of whose transpose are those of conj(U). */
static int pseudoinverse(const job* job, int64_t i, char* work)
{
    int64_t m = job->m, n = job->n, shorter = m < n ? m : n;
    REAL* values = take(&work, shorter * (int64_t)sizeof(REAL));
    double ratio = job->ratio;
    vectors found;
    if (!decompose(job, i, work, "S", values, &found)) return 0;
    if (job->b) ratio = (double)((const REAL*)job->b)[i];
    invert(job, &found, values, ratio);
    for (int64_t k = 0; k < shorter; k++)
        for (int64_t r = 0; r < m; r++) found.u[k * m + r] *= values[k];
    multiply(m, n, shorter, found.u, found.vh, (NUMBER*)job->out + i * n * m);
    return 1;
}

/* The solution alone of at least as many equations as unknowns, by QR. Returns whether all columns are
   independent beyond doubt: the condition in the norm of singular values is at most n times the
   one in the norm of columns, and LAPACK's estimate of that is rarely a third of it. */
static int by_reflections(const job* job, const NUMBER* from, const NUMBER* b, NUMBER* out, char* work)
{
    const char* start = work;
    int64_t m = job->m, n = job->n, k = job->k;
    whole rows = m, columns = n, sides = k, info = 0;
    NUMBER* a = take(&work, m * n * (int64_t)sizeof(NUMBER));
    NUMBER* x = take(&work, m * k * (int64_t)sizeof(NUMBER));
    NUMBER* tau = take(&work, n * (int64_t)sizeof(NUMBER));
    whole* more = take(&work, n * (int64_t)sizeof(whole));
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    NUMBER one = 1;
    REAL condition = 0;
    transpose(a, m, from, n, m, n);
    lapack.geqrf(&rows, &columns, a, &rows, tau, (NUMBER*)work, &lwork, &info);
    lapack.trcon("1", "U", "N", &columns, a, &rows, &condition, (NUMBER*)work, more, &info, 1, 1, 1);
    if (value_of(info) || !((double)condition > 3 * (double)n * job->ratio)) return 0;
    transpose(x, m, b, k, m, k);
    lapack.unmqr("L", MG_COMPLEX ? "C" : "T", &rows, &sides, &columns, a, &rows, tau, x, &rows,
                 (NUMBER*)work, &lwork, &info, 1, 1);
    if (value_of(info)) return 0;
    lapack.trsm("L", "U", "N", "N", &columns, &sides, &one, a, &rows, x, &rows, 1, 1, 1, 1);
    transpose(out, k, x, m, k, n);
    return 1;
}

/* Results: the shortest x for which |b - A x| is least, the rank, the singular values; or x alone. */
static int least_squares(const job* job, int64_t i, char* work)
{
    const char* start = work;
    int64_t m = job->m, n = job->n, k = job->k, longer = m < n ? n : m, shorter = m < n ? m : n;
    whole rows = m, columns = n, sides = k, ldb = longer, rank = 0, info = 0;
    REAL* values = job->third ? (REAL*)job->third + i * shorter
                              : take(&work, shorter * (int64_t)sizeof(REAL));
    REAL ratio = (REAL)job->ratio;
    const NUMBER* from = matrix(job, i);
    const NUMBER* b = job->b + (job->b_offsets ? job->b_offsets[i] : i * job->b_stride);
    NUMBER* out = (NUMBER*)job->out + i * n * k;
    if (!all_finite(from, m, n, 0, 0)) return 0;
    if (!job->third && m >= n && by_reflections(job, from, b, out, (char*)start)) return 1;
    NUMBER* a = take(&work, m * n * (int64_t)sizeof(NUMBER));
    NUMBER* x = take(&work, longer * k * (int64_t)sizeof(NUMBER));
    whole* iwork = take(&work, MG_LEVELS(shorter) * (int64_t)sizeof(whole));
    transpose(a, m, from, n, m, n);
    transpose(x, longer, b, k, m, k);
#if MG_COMPLEX
    int64_t reals = 3 * MG_LEVELS(shorter) + 75 * k + 676 + shorter * (1 + k) + 2 * k;
    REAL* rwork = take(&work, reals * (int64_t)sizeof(REAL));
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.gelsd(&rows, &columns, &sides, a, &rows, x, &ldb, values, &ratio, &rank, (NUMBER*)work,
                 &lwork, rwork, iwork, &info);
#else
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.gelsd(&rows, &columns, &sides, a, &rows, x, &ldb, values, &ratio, &rank, (NUMBER*)work,
                 &lwork, iwork, &info);
#endif
    if (value_of(info)) return 0;
    transpose(out, k, x, longer, k, n);
    if (job->second) ((int64_t*)job->second)[i] = value_of(rank);
    return 1;
}

/* The largest sum of sizes of a column. */
static double norm_of(const NUMBER* a, int64_t n)
{
    double largest = 0;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += size_of(a[j * n + i]);
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* det(A) A^-1, where that keeps most digits; elsewhere the array expression has another formula. */
static int adjugate(const job* job, int64_t i, char* work)
{
    const char* start = work;
    int64_t n = job->n;
    whole order = n, info = 0;
    NUMBER *a = take(&work, n * n * (int64_t)sizeof(NUMBER)), sign;
    whole* pivots = take(&work, n * (int64_t)sizeof(whole));
    NUMBER* out = (NUMBER*)job->out + i * n * n;
    double size;
    transpose(a, n, matrix(job, i), n, n, n);
    double norm = norm_of(a, n);
    if (factor(a, pivots, n, n)) return 0;
    determinant(a, n, pivots, NULL, &sign, &size);
    whole lwork = left_of(job, start, work, sizeof(NUMBER));
    lapack.getri(&order, a, &order, pivots, (NUMBER*)work, &lwork, &info);
    if (value_of(info) || !(norm * norm_of(a, n) < job->ratio)) return 0;
    transpose(out, n, a, n, n, n);
    sign *= (REAL)exp(size);
    for (int64_t e = 0; e < n * n; e++) out[e] *= sign;
    return 1;
}

/* ---- Batches ------------------------------------------------------------------------------- */

static struct {
    _Atomic int64_t jobs; /* that keep LAPACK to the thread that calls it */
    _Atomic int before;   /* the threads that it had */
} shared;

static void begin_alone(void)
{
    if (set_threads && atomic_fetch_add(&shared.jobs, 1) == 0) {
        atomic_store(&shared.before, get_threads());
        set_threads(1);
    }
}

static void end_alone(void)
{
    if (set_threads && atomic_fetch_sub(&shared.jobs, 1) == 1)
        set_threads(atomic_load(&shared.before));
}

typedef struct {
    const job* job;
    solver solver;
    int64_t grain;
    _Atomic int64_t next;
    _Atomic int failed;
} batch;

static void batch_part(void* context, int64_t thread, int64_t threads)
{
    batch* batch = context;
    const job* job = batch->job;
    char* work = job->work + thread * job->each;
    (void)threads;
    for (;;) {
        int64_t first = atomic_fetch_add(&batch->next, batch->grain);
        if (first >= job->count || atomic_load(&batch->failed)) return;
        for (int64_t i = first; i < first + batch->grain && i < job->count; i++)
            if (!batch->solver(job, i, work)) {
                atomic_store(&batch->failed, 1);
                return;
            }
    }
}

enum { MG_ALONE = 1 << 22 }; /* flops of a matrix that threads of LAPACK do not make faster */

/* Threads take whole matrices where there are several for each; else LAPACK has its own threads for
   those that are large. arguments: the function that stops the program; those of a job. */
static void run_job(void** arguments, solver solver)
{
    job job;
    memcpy(&job, arguments + 1, sizeof job);
    batch batch = { &job, solver, 1, 0, 0 };
    int64_t team = mg_thread_count(), rooms = job.each ? job.work_bytes / job.each : team;
    int small = job.flops < MG_ALONE;
    int apart = team > 1 && job.count > 1 && (small || (set_threads && job.count >= 2 * team));
    batch.grain = job.flops < 32768 ? 32768 / (job.flops + 1) + 1 : 1;
    if (job.count < 1) return;
    mg_enter_blas();
    if (apart || small) begin_alone();
    if (apart) {
        int64_t units = job.flops / 2 + 20000;
        mg_share(batch_part, &batch, rooms < job.count ? rooms : job.count, job.count * units);
    }
    else batch_part(&batch, 0, 1);
    if (apart || small) end_alone();
    mg_leave_blas();
    if (atomic_load(&batch.failed)) ((void (*)(void))arguments[0])();
}

void mg_lapack_lu(void** arguments) { run_job(arguments, lu); }
void mg_lapack_systems(void** arguments) { run_job(arguments, systems); }
void mg_lapack_cholesky(void** arguments) { run_job(arguments, cholesky); }
void mg_lapack_determinants(void** arguments) { run_job(arguments, determinants); }
void mg_lapack_qr(void** arguments) { run_job(arguments, qr); }
void mg_lapack_eigenvalues(void** arguments) { run_job(arguments, eigenvalues); }
void mg_lapack_singular_values(void** arguments) { run_job(arguments, singular_values); }
void mg_lapack_pseudoinverse(void** arguments) { run_job(arguments, pseudoinverse); }
void mg_lapack_least_squares(void** arguments) { run_job(arguments, least_squares); }
void mg_lapack_adjugate(void** arguments) { run_job(arguments, adjugate); }
