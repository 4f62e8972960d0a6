"""The generated CUDA kernels of fused regions, run on the CPU, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_emulator import Emulated, available, run_region
from regions import CASES, Case, arrays_for, assert_close, interpreted

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")

SIZES = {"B": 9, "N": 37}
MORE = ({"B": 13, "N": 64}, {"B": 3, "N": 2052}, {"B": 70, "N": 12})

# Every thread leaves its number, and reads its neighbour's; the barrier between can be left out.
NEIGHBOURS = """
extern "C" __global__ void neighbours(int *result)
{
    __shared__ int numbers[64];
    numbers[threadIdx.x] = threadIdx.x + 100 * blockIdx.x;
    BARRIER
    result[blockIdx.x * 64 + threadIdx.x] = numbers[(threadIdx.x + 1) % 64];
}
"""
WARP_SUM = """
extern "C" __global__ void sums(const float *x, float *result)
{
    float sum = x[threadIdx.x];
    for (int by = 16; by; by >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if ((threadIdx.x & 31) == 0) result[threadIdx.x >> 5] = sum;
}
"""
HALF_A_BLOCK = """
extern "C" __global__ void half_a_block(int *result)
{
    if (threadIdx.x < 32) __shfl_sync(0xffffffffu, 1, 0);
    if (threadIdx.x < 16) __shfl_sync(0xffffffffu, 1, 0);
    else __syncthreads();
    *result = 1;
}
"""


def _neighbours(barrier: str, descending: bool) -> np.ndarray:
    result = np.zeros(128, np.int32)
    kernel = Emulated(NEIGHBOURS.replace("BARRIER", barrier))
    kernel.launch("neighbours", 2, 64, [result], descending=descending)
    return result


@pytest.mark.parametrize("descending", [False, True])
def test_threads_of_a_block_meet_at_barriers(descending: bool) -> None:
    wanted = [(t + 1) % 64 + 100 * block for block in range(2) for t in range(64)]
    assert _neighbours("__syncthreads();", descending).tolist() == wanted


def test_a_missing_barrier_shows_in_the_other_order() -> None:
    assert (_neighbours("", False) != _neighbours("", True)).any()


def test_lanes_of_a_warp_exchange_values() -> None:
    x = np.arange(96, dtype=np.float32)
    result = np.zeros(3, np.float32)
    Emulated(WARP_SUM).launch("sums", 1, 96, [x, result])
    assert result.tolist() == x.reshape(3, 32).sum(axis=1).tolist()


def test_threads_that_wait_forever_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="others never reach"):
        Emulated(HALF_A_BLOCK).launch("half_a_block", 1, 64, [np.zeros(1, np.int32)])


def _check(case: Case, sizes: dict[str, int], descending: bool) -> None:
    if min(sizes.values()) < case.least:
        pytest.skip(f"the body needs sizes of {case.least}")
    body = case.body()
    arrays = arrays_for(np.random.default_rng(5), body, sizes, case.make)
    results = run_region(body, arrays, sizes, descending=descending)
    assert results is not None
    with np.errstate(all="ignore"):
        wanted = interpreted(body, arrays, sizes)
    assert_close(body, results, wanted, case.numerics, f"{case.name} emulated")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_are_the_interpreter(case: Case) -> None:
    _check(case, SIZES, descending=True)


@pytest.mark.slow
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sizes", MORE, ids=lambda s: f"{s['B']}x{s['N']}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_of_more_sizes_are_the_interpreter(
    case: Case, sizes: dict[str, int], descending: bool
) -> None:
    _check(case, sizes, descending)
