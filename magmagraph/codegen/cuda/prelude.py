"""What every generated CUDA source begins with: types, vectors of elements, shuffles, helpers."""

from __future__ import annotations

import re

from ..functions import philox
from ..functions.complex_numbers import COMPLEX_TYPES
from ..functions.scalar import prelude
from .arithmetic import DEFINITIONS, HALVES

__all__ = ["MAX_ARGUMENTS", "complete"]

MAX_ARGUMENTS = 4000  # 8 bytes each: kernels take up to 32764 bytes by value

_TYPES = r"""
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ull
#define INT8_C(x) x
#define INT16_C(x) x
#define INT32_C(x) x
#define INT64_C(x) x##LL
#define UINT8_C(x) x##u
#define UINT16_C(x) x##u
#define UINT32_C(x) x##u
#define UINT64_C(x) x##ull
#define NAN __int_as_float(0x7fc00000)
#define INFINITY __int_as_float(0x7f800000)

template <typename T, int N> struct alignas(sizeof(T) * N) mg_vector { T x[N]; };

template <typename T> static __device__ __forceinline__ T mg_shuffle(T value, int mask)
{
    return (T)__shfl_xor_sync(0xffffffffu, value, mask);
}
template <> __device__ __forceinline__ uint8_t mg_shuffle<uint8_t>(uint8_t value, int mask)
{
    return (uint8_t)__shfl_xor_sync(0xffffffffu, (int)value, mask);
}
template <> __device__ __forceinline__ int8_t mg_shuffle<int8_t>(int8_t value, int mask)
{
    return (int8_t)__shfl_xor_sync(0xffffffffu, (int)value, mask);
}
template <> __device__ __forceinline__ uint16_t mg_shuffle<uint16_t>(uint16_t value, int mask)
{
    return (uint16_t)__shfl_xor_sync(0xffffffffu, (int)value, mask);
}
template <> __device__ __forceinline__ int16_t mg_shuffle<int16_t>(int16_t value, int mask)
{
    return (int16_t)__shfl_xor_sync(0xffffffffu, (int)value, mask);
}
"""

_OVERLAP = r"""
/* Launches overlap where the one that follows waits here for all that was launched before. */
static __device__ __forceinline__ void mg_wait_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void mg_begin()
{
    mg_wait_before();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
"""

_AHEAD = r"""
/* Begin to bring a row into the second-level cache: whole pieces of 16 bytes, or nothing. */
template <typename T>
static __device__ __forceinline__ void mg_bring(const T *first, int64_t row, int bytes)
{
#if __CUDA_ARCH__ >= 900
    const char *start = (const char *)first + row * bytes;
    if (bytes && ((uint64_t)start & 15) == 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(start), "r"(bytes));
#endif
}
"""

_LOG_GAMMA = """
static __device__ inline double lgamma_r(double x, int *sign) { *sign = 1; return lgamma(x); }
static __device__ inline float lgammaf_r(float x, int *sign) { *sign = 1; return lgammaf(x); }
"""

# What is a comparison and a choice in C is one instruction here.
_INSTRUCTIONS = {
    f"mg_{name}_f32": f'{{ float r; asm("{word}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); '
    "return r; }"
    for name, word in (("maximum", "max"), ("minimum", "min"))
}

_DEVICE = "static __device__ inline"
LONG = 400  # characters of a function that is not copied to where it is called


def complete(text: str, count: int) -> str:
    """Return a whole source: the kernels of `text`, with arguments of up to `count` words."""
    parts = [_TYPES, _OVERLAP, f"struct mg_arguments {{ int64_t v[{count}]; }};"]
    helpers = prelude(text, _DEVICE)
    if "mg_c64" in helpers + text or "mg_c128" in helpers + text:
        parts.append(COMPLEX_TYPES)
    if "lgamma" in helpers or "lgamma" in text:
        parts.append(_LOG_GAMMA)
    parts += [part for word, part in HALVES.items() if f"mg_{word}" in text or f"_{word}(" in text]
    parts += [part for word, part in DEFINITIONS.items() if re.search(word, text)]
    if "mg_bring" in text:
        parts.append(_AHEAD)
    if "mg_random" in text:
        parts.append(_random())
    for name, instruction in _INSTRUCTIONS.items():
        if name not in helpers:
            continue
        helpers = re.sub(rf"(\b{name}\(float a, float b\)) \{{.*\}}", rf"\1 {instruction}", helpers)
    return "\n".join([*parts, _called(helpers), text])


def _called(helpers: str) -> str:
    """Return definitions of which long ones are called: each of their copies takes a second."""
    return "\n\n".join(
        part.replace(_DEVICE, "static __device__ __noinline__", 1) if len(part) > LONG else part
        for part in re.split(rf"\n\n(?={_DEVICE})", helpers)
    )


def _on_device(text: str) -> str:
    return re.sub(r"static inline", _DEVICE, text)


def _random() -> str:
    """Return the functions that give one element's bits: those of the CPU, word by word."""
    head = philox.SOURCE.split("static inline void")[0]
    return _on_device(head.replace("#include <stdint.h>", ""))
