/* Factorizations, solutions and determinants of batches of small matrices, as steps of a program.
   sources.py defines REAL and MG_SMALL, the largest order, and puts the header of all kernels before and small.c behind. Matrices
   are row-major. A step whose matrix is singular, or not positive definite, stops the program by
   the function that its first argument is; Python then runs the step's array expression, which says
   what is wrong. */

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { MG_BY_MATRIX, MG_BY_FACTORS, MG_BY_TRIANGLE };

enum { MG_AT_ONCE = 256 }; /* elements of each lane that are read, or written, together */
enum { MG_TILE = MG_LANE_BYTES >= 64 ? 4 : 2 }; /* rows and columns; such tiles fit the registers */
enum { MG_TURNS = 60 }; /* of the QL method for an eigenvalue; five are many */
#define MG_EPSILON (sizeof(REAL) == 4 ? (REAL)FLT_EPSILON : (REAL)DBL_EPSILON)
/* A fourth of the largest number: larger ones are left to LAPACK. */
#define MG_LARGEST (sizeof(REAL) == 4 ? (REAL)(FLT_MAX / 4) : (REAL)(DBL_MAX / 4))
#define MG_ABS(x) (sizeof(REAL) == 4 ? (REAL)fabsf((float)(x)) : (REAL)fabs((double)(x)))
#define MG_SQRT(x) (sizeof(REAL) == 4 ? (REAL)sqrtf((float)(x)) : (REAL)sqrt((double)(x)))
#define MG_COPYSIGN(x, y) (sizeof(REAL) == 4 ? (REAL)copysignf((float)(x), (float)(y)) \
                                             : (REAL)copysign((double)(x), (double)(y)))
/* Between these a sum of squares has all its digits. */
#define MG_LEAST_SUM (sizeof(REAL) == 4 ? (REAL)1e-24 : (REAL)1e-270)
#define MG_LARGEST_SUM (sizeof(REAL) == 4 ? (REAL)1e30 : (REAL)1e300)
#define MG_LOG(x) (sizeof(REAL) == 4 ? (REAL)logf((float)(x)) : (REAL)log((double)(x)))

typedef struct {
    _Atomic int failed;
} mg_state;

/* What a step computes; linalg.py fills in a list of cells of the same order. */
typedef struct {
    mg_state* state;
    const REAL *a, *b;
    const int32_t* pivots;
    REAL* out;
    void* second;
    int64_t count, rows, n, columns; /* of a, of the result */
    int64_t kind, lower, transposed, unit;
    /* Where the matrix of each member of the batch starts, in elements: a stride, or a table. */
    int64_t a_stride, b_stride, pivot_stride;
    const int64_t *a_offsets, *b_offsets, *pivot_offsets;
} mg_matrices;

enum { MG_WIDE = MG_LANE_BYTES / sizeof(REAL) };
typedef REAL mg_wide __attribute__((vector_size(MG_LANE_BYTES)));
