"""Generated C against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import regions
from regions import CASES, SIZES, B, Case, N, assert_close, compiled, make_body

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.runtime.numpy.codegen import assemble, step_code
from magmagraph.runtime.numpy.fused import Kernels, kernel_key, step_key


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """All kernels of this file's cases, compiled in one go."""
    made = Kernels()
    made.build([(case.body(),) for case in CASES])
    return made


_SIZES = [
    SIZES,
    {"B": 1, "N": 1},
    {"B": 1, "N": 5000},
    {"B": 300, "N": 7},
    {"B": 40, "N": 300},
]


def _fits(case: Case, sizes: dict[str, int]) -> bool:
    """Slices that take more than there is are no body of these sizes."""
    try:
        body = case.body()
        regions.interpreted(body, regions.arrays_for(np.random.default_rng(0), body, sizes), sizes)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_agrees_with_the_interpreter(
    case: Case, kernels: Kernels, rng: np.random.Generator
) -> None:
    body = case.body()
    for sizes in _SIZES:
        arrays = regions.arrays_for(rng, body, sizes, case.make)
        wanted = regions.interpreted(body, arrays, sizes)
        for threads in (1, 2, 5):
            results = regions.empty_results(body, sizes)
            compiled([body], arrays, results, sizes, threads, kernels)
            assert_close(body, results, wanted, case.numerics, f"{sizes}, {threads} threads")
