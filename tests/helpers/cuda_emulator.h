/* CUDA C++ on a CPU, for tests: every thread of a block is a fiber, blocks run one after the other.

   Fibers switch at barriers and at operations of a warp alone, in ascending or descending order of
   threads, so that a missing barrier shows as a result that depends on the order. What a kernel
   may use: one-dimensional to three-dimensional grids, shared memory, barriers, votes and shuffles,
   atomics, arithmetic of C. What it may not: blocks that wait for later blocks, and instructions in
   inline assembly other than those at the end of this file. */
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <map>
#include <sys/mman.h>
#include <tuple>
#include <utility>
#include <vector>

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __global__
#define __constant__ const
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)
#define __grid_constant__
#undef NAN
#undef INFINITY
using std::isfinite; using std::isinf; using std::isnan; using std::max; using std::min;
using std::signbit;

struct dim3 { unsigned x, y, z; };
struct emu_index { unsigned x, y, z; };
static emu_index threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- Fibers */

extern "C" void emu_switch(void **from, void *to);
asm(".text\nemu_switch:\n"
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
    "movq %rsp, (%rdi); movq %rsi, %rsp\n"
    "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp\n"
    "ret\n");

struct emu_meeting { unsigned arrived = 0, turn = 0; uint64_t value[2][32]; };
struct emu_warp { unsigned live = 0; std::map<unsigned, emu_meeting> meetings; };
struct emu_fiber { void *at; char *stack; emu_index index; bool done; };
static std::vector<emu_fiber> emu_fibers;
static std::vector<emu_warp> emu_warps;
static void *emu_scheduler;
static unsigned emu_now, emu_alive, emu_waiting, emu_turn, emu_votes[2];
static uint64_t emu_progress;
static void (*emu_body)(void **);
static void **emu_values;
static const size_t EMU_SHARED = 256 * 1024;
static char emu_dynamic_memory[EMU_SHARED + 1024];
static char *emu_dynamic;
static const char *emu_error; /* what a kernel did wrong: it ends there */
static const size_t EMU_STACK = 256 * 1024;

static inline unsigned emu_lane() { return emu_now & 31; }
static inline emu_warp &emu_my_warp() { return emu_warps[emu_now >> 5]; }
static inline void emu_yield() { emu_switch(&emu_fibers[emu_now].at, emu_scheduler); }
static inline void emu_fail(const char *error) { emu_error = error; for (;;) emu_yield(); }

static inline void emu_complete(emu_warp &warp)
{
    for (auto &pair : warp.meetings) {
        emu_meeting &m = pair.second;
        if (m.arrived && m.arrived == (pair.first & warp.live)) { m.arrived = 0; m.turn++; emu_progress++; }
    }
}
static inline void emu_block_complete()
{
    if (emu_waiting && emu_waiting == emu_alive) {
        emu_waiting = 0; emu_turn++; emu_votes[emu_turn & 1] = 0; emu_progress++;
    }
}
static void emu_entry()
{
    emu_body(emu_values);
    emu_fibers[emu_now].done = true;
    emu_alive--; emu_progress++;
    emu_my_warp().live &= ~(1u << emu_lane());
    emu_complete(emu_my_warp());
    emu_block_complete();
    emu_yield();
}
static inline unsigned emu_vote(int predicate)
{
    unsigned turn = emu_turn;
    if (predicate) emu_votes[turn & 1]++;
    emu_waiting++;
    emu_block_complete();
    while (emu_turn == turn) emu_yield();
    return emu_votes[turn & 1];
}
/* All lanes of a mask meet; each leaves 8 bytes and reads those of the others. */
static inline const uint64_t *emu_meet(unsigned mask, uint64_t value)
{
    emu_warp &warp = emu_my_warp();
    emu_meeting &m = warp.meetings[mask];
    if (!(mask >> emu_lane() & 1)) emu_fail("a lane calls an operation of a warp whose mask leaves it out");
    const unsigned turn = m.turn;
    m.value[turn & 1][emu_lane()] = value;
    m.arrived |= 1u << emu_lane();
    emu_complete(warp);
    while (m.turn == turn) emu_yield();
    return m.value[turn & 1];
}
static inline void emu_block(bool descending)
{
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    while (emu_fibers.size() < count) {
        emu_fiber fiber{};
        fiber.stack = (char *)mmap(nullptr, EMU_STACK, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        emu_fibers.push_back(fiber);
    }
    emu_warps.assign((count + 31) / 32, emu_warp());
    emu_alive = count; emu_waiting = 0; emu_votes[0] = emu_votes[1] = 0;
    for (unsigned t = 0; t < count; t++) {
        emu_fiber &f = emu_fibers[t];
        f.done = false;
        f.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
        void **top = (void **)(f.stack + EMU_STACK) - 2;
        *top = (void *)emu_entry; /* the return address; the stack is aligned as after a call */
        f.at = top - 6;
        emu_warps[t >> 5].live |= 1u << (t & 31);
    }
    while (emu_alive) {
        const uint64_t before = emu_progress;
        for (unsigned i = 0; i < count; i++) {
            emu_now = descending ? count - 1 - i : i;
            if (emu_fibers[emu_now].done) continue;
            threadIdx = emu_fibers[emu_now].index;
            emu_switch(&emu_scheduler, emu_fibers[emu_now].at);
            if (emu_error) return;
        }
        if (emu_progress == before) {
            emu_error = "threads wait at a barrier that others never reach";
            return;
        }
    }
}
template <typename... A, size_t... I>
static void emu_call(void (*kernel)(A...), void **values, std::index_sequence<I...>)
{
    kernel(*(std::remove_const_t<A> *)values[I]...);
}
template <typename... A> static void emu_apply(void (*kernel)(A...), void **values)
{
    emu_call(kernel, values, std::index_sequence_for<A...>());
}
static const char *emu_launch(void (*body)(void **), void **values, const unsigned *grid,
                              const unsigned *block, unsigned bytes, int descending)
{
    emu_error = nullptr;
    emu_body = body; emu_values = values;
    gridDim = {grid[0], grid[1], grid[2]}; blockDim = {block[0], block[1], block[2]};
    for (unsigned b = 0; b < grid[0] * grid[1] * grid[2]; b++) {
        if (bytes > EMU_SHARED) return "more shared memory than a block can have";
        emu_dynamic = (char *)(((uintptr_t)emu_dynamic_memory + 1023) & ~(uintptr_t)1023);
        memset(emu_dynamic, 0xA5, bytes);
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / (grid[0] * grid[1])};
        emu_block(descending);
        if (emu_error) break;
    }
    return emu_error;
}
#define EMU_KERNEL(name) \
    static void emu_body_##name(void **values) { emu_apply(name, values); } \
    extern "C" const char *emu_launch_##name(void **values, const unsigned *grid, \
                                             const unsigned *block, unsigned bytes, int descending) \
    { return emu_launch(emu_body_##name, values, grid, block, bytes, descending); }

/* ---- Barriers, votes, shuffles */

static inline void __syncthreads() { emu_vote(0); }
static inline int __syncthreads_or(int p) { return emu_vote(p) != 0; }
static inline int __syncthreads_count(int p) { return emu_vote(p); }
static inline int __syncthreads_and(int p) { return emu_vote(!p) == 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emu_meet(mask, 0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}
static inline unsigned __activemask() { return emu_my_warp().live; }
static inline unsigned __ballot_sync(unsigned mask, int p)
{
    const uint64_t *all = emu_meet(mask, p != 0);
    unsigned found = 0;
    for (int i = 0; i < 32; i++) if (mask >> i & 1 & emu_my_warp().live >> i && all[i]) found |= 1u << i;
    return found;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
template <typename T> static inline uint64_t emu_bits(T v)
{
    static_assert(sizeof(T) <= 8); uint64_t b = 0; memcpy(&b, &v, sizeof(T)); return b;
}
template <typename T> static inline T emu_value(uint64_t b) { T v; memcpy(&v, &b, sizeof(T)); return v; }
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
    const uint64_t mine = emu_bits(v), *all = emu_meet(mask, mine);
    unsigned found = 0;
    for (int i = 0; i < 32; i++) if ((mask >> i & 1) && all[i] == mine) found |= 1u << i;
    return found;
}
/* A lane that is not in the mask has no value: reading it gives a pattern that shows. */
template <typename T> static inline T emu_from(unsigned mask, T v, int lane)
{
    const uint64_t *all = emu_meet(mask, emu_bits(v));
    return mask >> lane & 1 ? emu_value<T>(all[lane]) : emu_value<T>(0xA5A5A5A5A5A5A5A5ull);
}
template <typename T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    return emu_from(mask, v, (int)(emu_lane() & ~(width - 1)) + (lane & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32)
{
    const int me = emu_lane(), lane = me ^ by;
    return emu_from(mask, v, (lane & ~(width - 1)) > (me & ~(width - 1)) ? me : lane);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const int me = emu_lane(), lane = me - (int)by;
    return emu_from(mask, v, lane < (me & ~(width - 1)) ? me : lane);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const int me = emu_lane(), lane = me + (int)by;
    return emu_from(mask, v, lane > (me | (width - 1)) ? me : lane);
}
template <typename T> static inline T emu_reduce(unsigned mask, T v, T (*f)(T, T))
{
    const uint64_t *all = emu_meet(mask, emu_bits(v));
    bool begun = false; T found = v;
    for (int i = 0; i < 32; i++) if (mask >> i & 1) {
        found = begun ? f(found, emu_value<T>(all[i])) : emu_value<T>(all[i]); begun = true;
    }
    return found;
}
template <typename T> static inline T __reduce_add_sync(unsigned m, T v) { return emu_reduce<T>(m, v, [](T a, T b) { return (T)(a + b); }); }
template <typename T> static inline T __reduce_max_sync(unsigned m, T v) { return emu_reduce<T>(m, v, [](T a, T b) { return a > b ? a : b; }); }
template <typename T> static inline T __reduce_min_sync(unsigned m, T v) { return emu_reduce<T>(m, v, [](T a, T b) { return a < b ? a : b; }); }

/* ---- Memory */

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline T __ldca(const T *p) { return *p; }
template <typename T> static inline T __ldcv(const T *p) { return *p; }
template <typename T> static inline T __ldlu(const T *p) { return *p; }
template <typename T> static inline void __stcg(T *p, T v) { *p = v; }
template <typename T> static inline void __stcs(T *p, T v) { *p = v; }
template <typename T> static inline void __stwt(T *p, T v) { *p = v; }
template <typename T> static inline T emu_same(T v) { return v; }
#define EMU_ATOMIC(name, result) \
    template <typename T> static inline T name(T *p, decltype(emu_same(T())) v) { T old = *p; *p = (result); return old; }
EMU_ATOMIC(atomicAdd, (T)(old + v)) EMU_ATOMIC(atomicSub, (T)(old - v)) EMU_ATOMIC(atomicExch, v)
EMU_ATOMIC(atomicMax, old > v ? old : v) EMU_ATOMIC(atomicMin, old < v ? old : v)
EMU_ATOMIC(atomicOr, (T)(old | v)) EMU_ATOMIC(atomicAnd, (T)(old & v)) EMU_ATOMIC(atomicXor, (T)(old ^ v))
EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1) EMU_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
EMU_ATOMIC(atomicAdd_block, (T)(old + v))
template <typename T> static inline T atomicCAS(T *p, decltype(emu_same(T())) compare, decltype(emu_same(T())) v) { T old = *p; if (old == compare) *p = v; return old; }

#define EMU_VECTOR(T, N) \
    struct alignas(2 * sizeof(T)) N##2 { T x, y; }; struct N##3 { T x, y, z; }; \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; }; \
    static inline N##2 make_##N##2(T x, T y) { return {x, y}; } \
    static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTOR(float, float) EMU_VECTOR(double, double) EMU_VECTOR(int, int) EMU_VECTOR(unsigned, uint)

/* ---- Arithmetic */

static inline float __int_as_float(int v) { return emu_value<float>(emu_bits(v)); }
static inline float __uint_as_float(unsigned v) { return emu_value<float>(emu_bits(v)); }
static inline int __float_as_int(float v) { return emu_value<int>(emu_bits(v)); }
static inline unsigned __float_as_uint(float v) { return emu_value<unsigned>(emu_bits(v)); }
static inline double __longlong_as_double(long long v) { return emu_value<double>(emu_bits(v)); }
static inline long long __double_as_longlong(double v) { return emu_value<long long>(emu_bits(v)); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __brev(unsigned v) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i); return r; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)((((uint64_t)hi << 32 | lo) << (s & 31)) >> 32); }
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31)); }
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline double rsqrt(double v) { return 1.0 / sqrt(v); }
static inline float __expf(float v) { return expf(v); }
static inline float __logf(float v) { return logf(v); }
static inline float __sinf(float v) { return sinf(v); }
static inline float __cosf(float v) { return cosf(v); }
static inline float __powf(float a, float b) { return powf(a, b); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float v) { return v < 0 ? 0.0f : v > 1 ? 1.0f : v; }
#define EMU_ROUNDED(T, letter) \
    static inline T __##letter##add_rn(T a, T b) { return a + b; } \
    static inline T __##letter##sub_rn(T a, T b) { return a - b; } \
    static inline T __##letter##mul_rn(T a, T b) { return a * b; } \
    static inline T __##letter##div_rn(T a, T b) { return a / b; } \
    static inline T __##letter##sqrt_rn(T a) { return std::sqrt(a); } \
    static inline T __##letter##rcp_rn(T a) { return 1 / a; }
EMU_ROUNDED(float, f) EMU_ROUNDED(double, d)
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline int __float2int_rn(float v) { return (int)nearbyintf(v); }
static inline int __float2int_rz(float v) { return (int)v; }
static inline float __int2float_rn(int v) { return (float)v; }
static inline float exp10f_(float v) { return powf(10.0f, v); }

/* ---- Instructions of inline assembly; a name has _ where the instruction has a dot */

static inline void emu_rcp_approx_ftz_f32(float &r, float a) { r = 1.0f / a; }
static inline void emu_div_full_f32(float &r, float a, float b) { r = a / b; }
static inline void emu_ex2_approx_ftz_f32(float &r, float a) { r = exp2f(a); }
static inline void emu_max_NaN_f32(float &r, float a, float b) { r = a != a ? a : b != b ? b : a > b ? a : b; }
static inline void emu_min_NaN_f32(float &r, float a, float b) { r = a != a ? a : b != b ? b : a < b ? a : b; }
static inline void emu_cvt_f32_f16(float &r, uint16_t h) { r = (float)emu_value<_Float16>(h); }
static inline void emu_cvt_rn_f16_f32(uint16_t &r, float v) { r = emu_value<uint16_t>(emu_bits((_Float16)v)); }
static inline void emu_cvt_rn_bf16_f32(uint16_t &r, float v)
{
    const uint32_t bits = __float_as_uint(v);
    r = (uint16_t)(v != v ? 0x7fff : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
/* Addresses of shared memory have 32 bits: distances from one place of it. */
static inline size_t __cvta_generic_to_shared(const void *p) { return (uint32_t)((char *)p - emu_dynamic_memory); }
static inline char *emu_shared(unsigned at) { return emu_dynamic_memory + (int32_t)at; }
static inline void emu_copied(unsigned to, const void *from, unsigned size, unsigned count)
{
    if (((uintptr_t)emu_shared(to) | (count ? (uintptr_t)from : 0)) & (size - 1)) emu_fail("a copy at an address that is no multiple of its size");
    memset(emu_shared(to), 0, size); memcpy(emu_shared(to), from, count);
}
static inline void emu_cp_async_cg_shared_global(unsigned to, const void *from, unsigned count) { emu_copied(to, from, 16, count); }
static inline void emu_cp_async_ca_shared_global(unsigned to, const void *from, unsigned count) { emu_copied(to, from, 4, count); }
static inline void emu_cp_async_wait_all() {}
/* Tensor cores read 11 digits; PTX ISA 9.7.14, fragments of m16n8k8. */
static inline float emu_tf32(unsigned bits) { return __uint_as_float(bits & 0xffffe000u); }
static inline void emu_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(
    float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    uint64_t a[2][32], b[32];
    memcpy(a[0], emu_meet(~0u, (uint64_t)a2 << 32 | a0), sizeof b);
    memcpy(a[1], emu_meet(~0u, (uint64_t)a3 << 32 | a1), sizeof b);
    memcpy(b, emu_meet(~0u, (uint64_t)b1 << 32 | b0), sizeof b);
    const int g = emu_lane() >> 2, t = emu_lane() & 3;
    float *c[4] = {&c0, &c1, &c2, &c3};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++) {
            const uint64_t x = a[i >> 1][4 * g + (k & 3)], y = b[4 * (2 * t + (i & 1)) + (k & 3)];
            *c[i] += emu_tf32((unsigned)(x >> (k & 4) * 8)) * emu_tf32((unsigned)(y >> (k & 4) * 8));
        }
}
static inline void emu_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(
    float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, float zero)
{
    c0 = c1 = c2 = c3 = zero;
    emu_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}
template <typename... A> static inline void emu_cp_async_bulk_prefetch_L2_global(A...) {}
static inline void emu_griddepcontrol_wait() {}
static inline void emu_griddepcontrol_launch_dependents() {}
