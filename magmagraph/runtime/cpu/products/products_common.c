/* What the products through BLAS and those by tiles share: they are libraries of their own, so that
   compilers make them side by side. products.py defines REAL, and puts the header of all kernels
   before. Matrices are row-major. A scalar is a pointer, for it may be a variable or the result of
   an earlier step; NULL stands for one. */

#include <stdatomic.h>
#include <string.h>

/* Of functions with arithmetic of their own, in files that are compiled at a level below. */
#if defined(__GNUC__) && !defined(__clang__)
#define MG_LOOPS __attribute__((optimize("O2")))
#else
#define MG_LOOPS
#endif

typedef struct {
    int64_t transpose_a, transpose_b, m, n, k, lda, ldb, ldc;
    REAL alpha, beta;
    const REAL *a, *b;
    REAL* c;
} product;

/* Read the arguments that all matrix products share:
   out, A, B, C, alpha, beta, transpose_a, transpose_b, m, n, k, lda, ldb, ld_out, ldc.
   C NULL, or a beta of zero: C is not read, as BLAS has it. */
static product read_product(void** arguments)
{
    product p;
    p.c = arguments[0];
    p.a = arguments[1];
    p.b = arguments[2];
    p.alpha = arguments[4] ? *(const REAL*)arguments[4] : (REAL)1;
    p.beta = !arguments[3] ? (REAL)0 : arguments[5] ? *(const REAL*)arguments[5] : (REAL)1;
    p.transpose_a = (int64_t)arguments[6];
    p.transpose_b = (int64_t)arguments[7];
    p.m = (int64_t)arguments[8];
    p.n = (int64_t)arguments[9];
    p.k = (int64_t)arguments[10];
    p.lda = (int64_t)arguments[11];
    p.ldb = (int64_t)arguments[12];
    p.ldc = (int64_t)arguments[13];
    return p;
}
