/* Factorizations and solutions of small matrices, LANES of a batch at once: element e of all of
   them is one VEC. linalg.py puts this text twice behind linalg.c, for a vector of matrices and for
   a single one. NAME(f) is the function's name for these lanes.

   A pivot of zero counts as one, so that its lane stays finite; the lane's bit in the result says
   that it was zero. Rows are exchanged as LAPACK does it (partial pivoting). */

#define AT(x, l) (((REAL*)&(x))[l])
#define LAST(job, first) ((job)->count - (first) < LANES ? (int)((job)->count - (first)) : LANES)

/* Read one matrix of each lane; lanes past the end read the last one again. */
static void NAME(load)(VEC* to, const REAL* from, const int64_t* offsets, int64_t stride,
                       int64_t first, int lanes, int64_t elements)
{
    const REAL* sources[LANES];
    for (int l = 0; l < LANES; l++) {
        int64_t i = first + (l < lanes ? l : lanes - 1);
        sources[l] = from + (offsets ? offsets[i] : i * stride);
    }
    /* some elements of all lanes at a time, which stay in the first cache */
    for (int64_t begin = 0; begin < elements; begin += MG_AT_ONCE) {
        int64_t end = begin + MG_AT_ONCE < elements ? begin + MG_AT_ONCE : elements;
        for (int l = 0; l < LANES; l++)
            for (int64_t e = begin; e < end; e++) AT(to[e], l) = sources[l][e];
    }
}

/* Write `columns` of the `n` rows of each lane, from column `at` of `width` on. */
static void NAME(store)(REAL* to, const VEC* from, int64_t first, int lanes, int64_t n,
                        int64_t columns, int64_t width, int64_t at)
{
    int64_t rows = columns < MG_AT_ONCE ? MG_AT_ONCE / (columns + !columns) : 1;
    for (int64_t begin = 0; begin < n; begin += rows) {
        int64_t end = begin + rows < n ? begin + rows : n;
        for (int l = 0; l < lanes; l++) {
            REAL* target = to + (first + l) * n * width + at;
            for (int64_t i = begin; i < end; i++)
                for (int64_t j = 0; j < columns; j++)
                    target[i * width + j] = AT(from[i * columns + j], l);
        }
    }
}

/* to -= factor * from; two rows, which are not the same. */
static inline void NAME(subtract)(VEC* restrict to, const VEC* restrict from, VEC factor, int count)
{
    for (int j = 0; j < count; j++) to[j] -= factor * from[j];
}

/* Factor P A = L U in place. Returns a bit for each lane with a pivot of zero. */
static uint64_t NAME(factor)(VEC* a, int32_t (*pivots)[LANES], int n)
{
    uint64_t zeros = 0;
    for (int k = 0; k < n; k++) {
        REAL largest[LANES];
        for (int l = 0; l < LANES; l++) {
            largest[l] = MG_ABS(AT(a[k * n + k], l));
            pivots[k][l] = k;
        }
        for (int i = k + 1; i < n; i++)
            for (int l = 0; l < LANES; l++) {
                REAL size = MG_ABS(AT(a[i * n + k], l));
                int larger = size > largest[l];
                largest[l] = larger ? size : largest[l];
                pivots[k][l] = larger ? i : pivots[k][l];
            }
        for (int l = 0; l < LANES; l++)
            if (pivots[k][l] != k)
                for (int j = 0; j < n; j++) {
                    REAL held = AT(a[k * n + j], l);
                    AT(a[k * n + j], l) = AT(a[pivots[k][l] * n + j], l);
                    AT(a[pivots[k][l] * n + j], l) = held;
                }
        VEC pivot = a[k * n + k];
        for (int l = 0; l < LANES; l++)
            if (AT(pivot, l) == 0) {
                zeros |= (uint64_t)1 << l;
                AT(pivot, l) = 1;
            }
        for (int i = k + 1; i < n; i++) {
            VEC factor = a[i * n + k] / pivot;
            a[i * n + k] = factor;
            NAME(subtract)(a + i * n + k + 1, a + k * n + k + 1, factor, n - k - 1);
        }
    }
    return zeros;
}

static void NAME(exchange)(VEC* b, int32_t (*pivots)[LANES], int n, int columns, int backwards)
{
    for (int step = 0; step < n; step++) {
        int k = backwards ? n - 1 - step : step;
        for (int l = 0; l < LANES; l++) {
            int other = pivots[k][l];
            if (other != k)
                for (int j = 0; j < columns; j++) {
                    REAL held = AT(b[k * columns + j], l);
                    AT(b[k * columns + j], l) = AT(b[other * columns + j], l);
                    AT(b[other * columns + j], l) = held;
                }
        }
    }
}

/* Solve T x = b in place, T a triangle of `a` or its transpose. Returns the zeros as `factor`. */
static uint64_t NAME(substitute)(const VEC* a, VEC* b, int n, int columns, int lower, int transposed,
                                 int unit)
{
    uint64_t zeros = 0;
    int forward = lower != transposed;
    for (int step = 0; step < n; step++) {
        int i = forward ? step : n - 1 - step;
        if (!unit) {
            VEC pivot = a[i * n + i];
            for (int l = 0; l < LANES; l++)
                if (AT(pivot, l) == 0) {
                    zeros |= (uint64_t)1 << l;
                    AT(pivot, l) = 1;
                }
            for (int j = 0; j < columns; j++) b[i * columns + j] /= pivot;
        }
        int begin = forward ? i + 1 : 0, end = forward ? n : i;
        for (int r = begin; r < end; r++) {
            VEC factor = transposed ? a[i * n + r] : a[r * n + i];
            NAME(subtract)(b + r * columns, b + i * columns, factor, columns);
        }
    }
    return zeros;
}

/* Factor A = L L^T from the lower triangle; the other one becomes zero. Returns a bit for each lane
   that is not positive definite. A few columns at a time: what the ones before take from a tile of
   them is summed up in registers. */
static uint64_t NAME(cholesky)(VEC* a, int n)
{
    uint64_t bad = 0;
    for (int first = 0; first < n; first += MG_TILE) {
        int after = first + MG_TILE < n ? first + MG_TILE : n, i = first;
        for (; after == first + MG_TILE && i + MG_TILE <= n; i += MG_TILE) {
            VEC tile[MG_TILE][MG_TILE];
            for (int r = 0; r < MG_TILE; r++)
                for (int c = 0; c < MG_TILE; c++) tile[r][c] = a[(i + r) * n + first + c];
            for (int k = 0; k < first; k++)
                for (int r = 0; r < MG_TILE; r++)
                    for (int c = 0; c < MG_TILE; c++)
                        tile[r][c] -= a[(i + r) * n + k] * a[(first + c) * n + k];
            for (int r = 0; r < MG_TILE; r++)
                for (int c = 0; c < MG_TILE; c++) a[(i + r) * n + first + c] = tile[r][c];
        }
        for (; i < n; i++)
            for (int c = first; c < after; c++) {
                VEC sum = a[i * n + c];
                for (int k = 0; k < first; k++) sum -= a[i * n + k] * a[c * n + k];
                a[i * n + c] = sum;
            }
        for (int k = first; k < after; k++) {
            VEC root = a[k * n + k];
            for (int l = 0; l < LANES; l++) {
                REAL value = AT(root, l);
                bad |= (uint64_t)!(value > 0) << l;
                AT(root, l) = MG_SQRT(value > 0 ? value : 1);
            }
            a[k * n + k] = root;
            for (i = k + 1; i < n; i++) {
                VEC factor = a[i * n + k] /= root;
                for (int j = k + 1; j < after && j <= i; j++) a[i * n + j] -= factor * a[j * n + k];
            }
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) a[i * n + j] = (VEC){0};
    return bad;
}

/* Replace column k from row k on by its reflection, as LAPACK's larfg has it: the diagonal is -sign
   times the length, v is below; where nothing is below the diagonal there is none. Returns tau. */
static VEC NAME(reflection)(VEC* a, int m, int n, int k)
{
    VEC alpha = a[k * n + k], squares = (VEC){0}, tau, scale;
    for (int i = k + 1; i < m; i++) squares += a[i * n + k] * a[i * n + k];
    for (int l = 0; l < LANES; l++) {
        REAL first = AT(alpha, l), below = AT(squares, l), size = 0;
        REAL sum = below + first * first;
        if (below >= MG_LEAST_SUM && sum <= MG_LARGEST_SUM) size = MG_SQRT(sum);
        else { /* by scaled numbers; NaN stays NaN */
            REAL largest = 0;
            for (int i = k + 1; i < m; i++) {
                REAL value = MG_ABS(AT(a[i * n + k], l));
                largest = value > largest || value != value ? value : largest;
            }
            if (largest != 0) {
                REAL unit = MG_ABS(first) > largest ? MG_ABS(first) : largest;
                sum = first / unit * (first / unit);
                for (int i = k + 1; i < m; i++) {
                    REAL part = AT(a[i * n + k], l) / unit;
                    sum += part * part;
                }
                size = unit * MG_SQRT(sum);
            }
        }
        REAL beta = size == 0 ? first : -MG_COPYSIGN(size, first);
        AT(tau, l) = size == 0 ? 0 : (beta - first) / beta;
        AT(scale, l) = size == 0 ? 1 : first - beta;
        AT(alpha, l) = beta;
    }
    a[k * n + k] = alpha;
    for (int i = k + 1; i < m; i++) a[i * n + k] /= scale;
    return tau;
}

/* Apply reflection k, whose v is below the diagonal of `a`, to columns from `first` on. */
static void NAME(reflect)(const VEC* a, int m, int n, int k, VEC tau, VEC* to, int width, int first)
{
    VEC sums[MG_SMALL];
    for (int j = first; j < width; j++) sums[j] = to[k * width + j];
    for (int i = k + 1; i < m; i++)
        for (int j = first; j < width; j++) sums[j] += a[i * n + k] * to[i * width + j];
    for (int j = first; j < width; j++) {
        sums[j] *= tau;
        to[k * width + j] -= sums[j];
    }
    for (int i = k + 1; i < m; i++)
        NAME(subtract)(to + i * width + first, sums + first, a[i * n + k], width - first);
}

/* Turn symmetric matrices, of which the lower triangle is read, into tridiagonal ones by reflections
   (Golub and Van Loan, Matrix Computations, section 8.3.1): the diagonal and what is below it. Where
   wanted, the rows of `basis` become the columns of the orthogonal factor. */
static void NAME(tridiagonal)(VEC* a, int n, VEC* diagonal, VEC* below, VEC* basis)
{
    VEC v[MG_SMALL], p[MG_SMALL], taus[MG_SMALL];
    for (int k = 0; k < n - 1; k++) {
        VEC tau = taus[k] = NAME(reflection)(a + n, n - 1, n, k), dot = (VEC){0};
        diagonal[k] = a[k * n + k];
        below[k] = a[(k + 1) * n + k];
        for (int i = k + 1; i < n; i++) {
            v[i] = i > k + 1 ? a[i * n + k] : (VEC){0} + 1;
            p[i] = (VEC){0};
        }
        /* A - v w^T - w v^T, where w = p - tau / 2 (p^T v) v and p = tau A v */
        for (int i = k + 1; i < n; i++) {
            VEC sum = a[i * n + i] * v[i], factor = v[i];
            for (int j = k + 1; j < i; j++) {
                sum += a[i * n + j] * v[j];
                p[j] += a[i * n + j] * factor;
            }
            p[i] += sum;
        }
        for (int i = k + 1; i < n; i++) {
            p[i] *= tau;
            dot += p[i] * v[i];
        }
        dot *= tau / 2;
        for (int i = k + 1; i < n; i++) p[i] -= dot * v[i];
        for (int i = k + 1; i < n; i++) {
            VEC left = v[i], right = p[i];
            for (int j = k + 1; j <= i; j++) a[i * n + j] -= left * p[j] + right * v[j];
        }
    }
    diagonal[n - 1] = a[n * n - 1];
    if (!basis) return;
    for (int e = 0; e < n * n; e++) basis[e] = (VEC){0} + (REAL)(e % (n + 1) == 0);
    for (int k = n - 2; k >= 0; k--) {
        for (int i = k + 2; i < n; i++) v[i] = a[i * n + k];
        for (int j = k + 1; j < n; j++) {
            VEC* row = basis + j * n;
            VEC sum = row[k + 1];
            for (int i = k + 2; i < n; i++) sum += v[i] * row[i];
            sum *= taus[k];
            row[k + 1] -= sum;
            NAME(subtract)(row + k + 2, v + k + 2, sum, n - k - 2);
        }
    }
}

/* Find the eigenvalues of symmetric tridiagonal matrices, whose largest element is about 1, by the
   implicit QL method with Wilkinson's shift (Golub and Van Loan, section 8.3.3): the diagonal becomes
   them. The lanes turn together, each between its own ends; where a lane has nothing to turn, its
   rotation is by nothing. Returns a bit for each lane that did not converge. */
static uint64_t NAME(iterate)(VEC* diagonal, VEC* below, int n, VEC* basis)
{
    for (int start = 0; start < n - 1; start++) {
        for (int step = 0;; step++) {
            REAL shifted[LANES], sine[LANES], cosine[LANES], moved[LANES];
            int32_t end[LANES], last = start;
            for (int l = 0; l < LANES; l++) end[l] = n - 1;
            for (int m = n - 2; m >= start; m--)
                for (int l = 0; l < LANES; l++) {
                    REAL sum = MG_ABS(AT(diagonal[m], l)) + MG_ABS(AT(diagonal[m + 1], l));
                    int small = MG_ABS(AT(below[m], l)) <= MG_EPSILON * (sum + MG_EPSILON);
                    end[l] = small ? m : end[l];
                }
            for (int l = 0; l < LANES; l++) last = end[l] > last ? end[l] : last;
            if (last == start) break;
            if (step == MG_TURNS) {
                uint64_t left = 0;
                for (int l = 0; l < LANES; l++) left |= (uint64_t)(end[l] > start) << l;
                return left;
            }
            for (int l = 0; l < LANES; l++) {
                int turns = end[l] > start;
                REAL under = turns ? AT(below[start], l) : 1, here = AT(diagonal[start], l);
                REAL slope = turns ? (AT(diagonal[start + 1], l) - here) / (2 * under) : 0;
                REAL root = MG_SQRT(slope * slope + 1);
                shifted[l] = AT(diagonal[end[l]], l) - here
                             + under / (slope + MG_COPYSIGN(root, slope));
                sine[l] = cosine[l] = 1;
                moved[l] = 0;
            }
            for (int i = last - 1; i >= start; i--) {
                VEC c, s;
                for (int l = 0; l < LANES; l++) {
                    int turns = i < end[l];
                    REAL under = AT(below[i], l), next = AT(diagonal[i + 1], l);
                    REAL out = sine[l] * under, along = cosine[l] * under, g = shifted[l];
                    REAL size = MG_SQRT(out * out + g * g);
                    /* Of nothing the rotation is a quarter turn: it exchanges the rows. */
                    REAL unit = size == 0 ? 1 : size;
                    REAL sin = size == 0 ? 1 : out / unit, cos = g / unit;
                    REAL base = next - moved[l];
                    REAL turned = (AT(diagonal[i], l) - base) * sin + 2 * cos * along;
                    REAL by = sin * turned;
                    AT(below[i + 1], l) = turns ? size : AT(below[i + 1], l);
                    AT(diagonal[i + 1], l) = turns ? base + by : next;
                    shifted[l] = turns ? cos * turned - along : g;
                    moved[l] = turns ? by : moved[l];
                    sine[l] = turns ? sin : sine[l];
                    cosine[l] = turns ? cos : cosine[l];
                    AT(s, l) = turns ? sin : 0;
                    AT(c, l) = turns ? cos : 1;
                }
                if (!basis) continue;
                VEC *upper = basis + i * n, *lower = upper + n;
                for (int j = 0; j < n; j++) {
                    VEC held = lower[j];
                    lower[j] = s * upper[j] + c * held;
                    upper[j] = c * upper[j] - s * held;
                }
            }
            for (int l = 0; l < LANES; l++) {
                if (end[l] == start) continue;
                AT(diagonal[start], l) -= moved[l];
                AT(below[start], l) = shifted[l];
                AT(below[end[l]], l) = 0;
            }
        }
    }
    return 0;
}

/* ---- What a thread does of a job: the groups of lanes [begin, end). ---- */

static void NAME(load_pivots)(int32_t (*to)[LANES], const mg_matrices* job, int64_t first, int lanes)
{
    for (int l = 0; l < LANES; l++) {
        int64_t i = first + (l < lanes ? l : lanes - 1);
        const int32_t* from =
            job->pivots + (job->pivot_offsets ? job->pivot_offsets[i] : i * job->pivot_stride);
        for (int64_t k = 0; k < job->n; k++) {
            to[k][l] = (uint32_t)from[k] < (uint32_t)job->n ? from[k] : 0;
            if ((uint32_t)from[k] >= (uint32_t)job->n) atomic_store(&job->state->failed, 1);
        }
    }
}

static int NAME(fails)(const mg_matrices* job, uint64_t zeros)
{
    if (zeros) atomic_store_explicit(&job->state->failed, 1, memory_order_relaxed);
    return zeros != 0;
}

static void NAME(lu)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL];
    int32_t pivots[MG_SMALL][LANES];
    int n = (int)job->n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first);
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, n * n);
        NAME(factor)(a, pivots, n);
        NAME(store)(job->out, a, first, lanes, n, n, n, 0);
        for (int l = 0; l < lanes; l++)
            for (int k = 0; k < n; k++)
                ((int32_t*)job->second)[(first + l) * n + k] = pivots[k][l];
    }
}

static void NAME(systems)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL], b[MG_SMALL * MG_SMALL];
    int32_t pivots[MG_SMALL][LANES];
    int n = (int)job->n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first);
        uint64_t zeros = 0;
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, n * n);
        if (job->kind == MG_BY_FACTORS) NAME(load_pivots)(pivots, job, first, lanes);
        else if (job->kind == MG_BY_MATRIX) zeros = NAME(factor)(a, pivots, n);
        for (int64_t at = 0; at < job->columns; at += MG_SMALL) {
            int columns = (int)(job->columns - at < MG_SMALL ? job->columns - at : MG_SMALL);
            if (!job->b) { /* the identity: its solution is the inverse */
                for (int e = 0; e < n * columns; e++) b[e] = (VEC){0};
                for (int j = 0; j < columns; j++)
                    for (int l = 0; l < LANES; l++) AT(b[(at + j) * columns + j], l) = 1;
            }
            else
                for (int l = 0; l < LANES; l++) {
                    int64_t i = first + (l < lanes ? l : lanes - 1);
                    const REAL* from =
                        job->b + (job->b_offsets ? job->b_offsets[i] : i * job->b_stride) + at;
                    for (int r = 0; r < n; r++)
                        for (int j = 0; j < columns; j++)
                            AT(b[r * columns + j], l) = from[r * job->columns + j];
                }
            if (job->kind == MG_BY_TRIANGLE)
                zeros |= NAME(substitute)(a, b, n, columns, job->lower, job->transposed, job->unit);
            else if (job->transposed) {
                zeros |= NAME(substitute)(a, b, n, columns, 0, 1, 0);
                NAME(substitute)(a, b, n, columns, 1, 1, 1);
                NAME(exchange)(b, pivots, n, columns, 1);
            }
            else {
                NAME(exchange)(b, pivots, n, columns, 0);
                NAME(substitute)(a, b, n, columns, 1, 0, 1);
                zeros |= NAME(substitute)(a, b, n, columns, 0, 0, 0);
            }
            NAME(store)(job->out, b, first, lanes, n, columns, job->columns, at);
        }
        if (NAME(fails)(job, zeros)) return;
    }
}

/* Results: Q and R; or, without a second one, R alone. */
static void NAME(qr)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL], b[MG_SMALL * MG_SMALL], tau[MG_SMALL];
    int m = (int)job->rows, n = (int)job->n, k = (int)job->columns, shorter = m < n ? m : n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first);
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, m * n);
        for (int t = 0; t < shorter; t++) {
            tau[t] = NAME(reflection)(a, m, n, t);
            NAME(reflect)(a, m, n, t, tau[t], a, n, t + 1);
        }
        for (int i = 0; i < k; i++)
            for (int j = 0; j < n; j++) b[i * n + j] = j < i ? (VEC){0} : a[i * n + j];
        NAME(store)(job->second ? job->second : job->out, b, first, lanes, k, n, n, 0);
        if (!job->second) continue;
        for (int e = 0; e < m * k; e++) b[e] = (VEC){0};
        for (int j = 0; j < k; j++)
            for (int l = 0; l < LANES; l++) AT(b[j * k + j], l) = 1;
        for (int t = shorter; t-- > 0;) NAME(reflect)(a, m, n, t, tau[t], b, k, t);
        NAME(store)(job->out, b, first, lanes, m, k, k, 0);
    }
}

static void NAME(choleskys)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL];
    int n = (int)job->n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first);
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, n * n);
        if (NAME(fails)(job, NAME(cholesky)(a, n))) return;
        NAME(store)(job->out, a, first, lanes, n, n, n, 0);
    }
}

static void NAME(determinants)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL];
    int32_t pivots[MG_SMALL][LANES];
    int n = (int)job->n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first);
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, n * n);
        if (job->kind == MG_BY_FACTORS) NAME(load_pivots)(pivots, job, first, lanes);
        else NAME(factor)(a, pivots, n);
        for (int l = 0; l < lanes; l++) {
            REAL sign = 1, size = 0, product = 1;
            for (int k = 0; k < n; k++) {
                REAL value = AT(a[k * n + k], l);
                if (pivots[k][l] != k) sign = -sign;
                if (job->second) {
                    sign *= value > 0 ? 1 : value < 0 ? -1 : value; /* zero, or NaN */
                    size += MG_LOG(MG_ABS(value));
                }
                else product *= value;
            }
            job->out[first + l] = job->second ? sign : sign * product;
            if (job->second) ((REAL*)job->second)[first + l] = size;
        }
    }
}

/* Ascending eigenvalues, and where there is a place for them vectors as columns. */
static void NAME(eigenvalues)(const mg_matrices* job, int64_t begin, int64_t end)
{
    VEC a[MG_SMALL * MG_SMALL], diagonal[MG_SMALL], below[MG_SMALL];
    VEC basis[MG_SMALL * MG_SMALL];
    int n = (int)job->n;
    for (int64_t first = begin * LANES; first < end * LANES && first < job->count; first += LANES) {
        int lanes = LAST(job, first), exponents[LANES];
        uint64_t bad = 0;
        REAL largest[LANES];
        VEC scale;
        NAME(load)(a, job->a, job->a_offsets, job->a_stride, first, lanes, n * n);
        for (int l = 0; l < LANES; l++) largest[l] = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++) {
                VEC read = a[i * n + j] = job->lower ? a[i * n + j] : a[j * n + i];
                for (int l = 0; l < LANES; l++) {
                    REAL size = MG_ABS(AT(read, l));
                    bad |= (uint64_t)!(size <= MG_LARGEST) << l;
                    largest[l] = size > largest[l] ? size : largest[l];
                }
            }
        if (NAME(fails)(job, bad)) return;
        for (int l = 0; l < LANES; l++) {
            frexp((double)largest[l], &exponents[l]);
            int most = sizeof(REAL) == 4 ? 120 : 1000; /* of 1 / 2^most, too, which is in range */
            exponents[l] = exponents[l] > most ? most : exponents[l];
            exponents[l] = exponents[l] < -most ? -most : exponents[l];
            AT(scale, l) = (REAL)ldexp(1, -exponents[l]);
        }
        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++) a[i * n + j] *= scale;
        NAME(tridiagonal)(a, n, diagonal, below, job->second ? basis : 0);
        if (NAME(fails)(job, NAME(iterate)(diagonal, below, n, job->second ? basis : 0))) return;
        for (int l = 0; l < lanes; l++) {
            REAL* values = job->out + (first + l) * n;
            int order[MG_SMALL];
            for (int i = 0; i < n; i++) {
                REAL value = AT(diagonal[i], l);
                int at = i;
                for (; at > 0 && values[at - 1] > value; at--) {
                    values[at] = values[at - 1];
                    order[at] = order[at - 1];
                }
                values[at] = value;
                order[at] = i;
            }
            for (int i = 0; i < n; i++) values[i] *= (REAL)ldexp(1, exponents[l]);
            if (!job->second) continue;
            REAL* vectors = (REAL*)job->second + (first + l) * n * n;
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) vectors[i * n + j] = AT(basis[order[j] * n + i], l);
        }
    }
}

#undef AT
#undef LAST
