/* Products of 16-bit and tf32 operands, where the processor has no instruction for them: operands
   are widened (or rounded) to float, multiplied by BLAS, and the result is rounded once. This text
   stands behind that of products.c, with REAL float, and the conversions of 16-bit floats. */

enum { MG_FLOAT = 0, MG_HALF = 1, MG_BRAIN = 2, MG_TF32 = 3 };

/* Rounded to 10 bits of the mantissa, ties to even; infinities and NaN as they are. */
static inline float mg_to_tf32(float value)
{
    union { float value; uint32_t bits; } x;
    x.value = value;
    const uint32_t rounded = (x.bits + 0xfff + ((x.bits >> 13) & 1)) & 0xffffe000u;
    x.bits = (x.bits & 0x7f800000u) == 0x7f800000u ? x.bits : rounded;
    return x.value;
}

typedef struct {
    void* to;
    const void* from;
    int64_t count, kind;
} conversion;

static void widen_part(void* context, int64_t thread, int64_t threads)
{
    const conversion* c = context;
    int64_t begin, end;
    mg_split(c->count, 64, thread, threads, &begin, &end);
    float* restrict to = c->to;
    if (c->kind == MG_HALF) {
        const uint16_t* restrict from = c->from;
        for (int64_t i = begin; i < end; i++) to[i] = mg_half_to_float(from[i]);
    } else if (c->kind == MG_BRAIN) {
        const uint16_t* restrict from = c->from;
        for (int64_t i = begin; i < end; i++) to[i] = mg_brain_to_float(from[i]);
    } else {
        const float* restrict from = c->from;
        for (int64_t i = begin; i < end; i++) to[i] = mg_to_tf32(from[i]);
    }
}

static void narrow_part(void* context, int64_t thread, int64_t threads)
{
    const conversion* c = context;
    int64_t begin, end;
    mg_split(c->count, 64, thread, threads, &begin, &end);
    const float* restrict from = c->from;
    uint16_t* restrict to = c->to;
    if (c->kind == MG_HALF)
        for (int64_t i = begin; i < end; i++) to[i] = mg_float_to_half(from[i]);
    else
        for (int64_t i = begin; i < end; i++) to[i] = mg_float_to_brain(from[i]);
}

static void convert(void (*part)(void*, int64_t, int64_t), void* to, const void* from,
                    int64_t count, int64_t kind)
{
    conversion c = { to, from, count, kind };
    mg_parallel(part, &c, count / 65536);
}

/* The arguments of mg_gemm_batch, and behind them: how the factors and the result are stored, the
   elements of A, B and the result, and memory for all that is converted. */
void mg_gemm_mixed(void** arguments)
{
    const int64_t factors = (int64_t)arguments[20], stored = (int64_t)arguments[21];
    const int64_t size_a = (int64_t)arguments[22], size_b = (int64_t)arguments[23];
    const int64_t size = (int64_t)arguments[24];
    float* scratch = arguments[25];
    void* inner[20];
    memcpy(inner, arguments, sizeof inner);
    if (factors != MG_FLOAT) {
        convert(widen_part, scratch, arguments[1], size_a, factors);
        convert(widen_part, scratch + size_a, arguments[2], size_b, factors);
        inner[1] = scratch;
        inner[2] = scratch + size_a;
        scratch += size_a + size_b;
    }
    if (stored != MG_FLOAT) {
        if (arguments[3]) {
            convert(widen_part, scratch, arguments[3], size, stored);
            inner[3] = scratch;
        }
        inner[0] = scratch;
    }
    mg_gemm_batch(inner);
    if (stored != MG_FLOAT) convert(narrow_part, arguments[0], scratch, size, stored);
}
