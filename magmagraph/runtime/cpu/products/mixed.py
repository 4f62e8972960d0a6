"""Products of 16-bit and tf32 operands as steps of a program: converted, and handed to BLAS.

Processors without instructions for such products compute what a chip that has them would: factors
of fewer digits, sums in float32, one rounding of what is stored.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from ....codegen.c.scalar import HALF_HELPERS
from ....dtypes import canonical
from ..compiler import Library
from ..support import function_address, load_kernels_together
from .products import PRODUCT_LEVEL, batched_gemm_step, join_blas, product_source

__all__ = ["mixed_gemm_step", "mixed_source"]

_FLOAT32 = np.dtype(np.float32)
_STORED = {_FLOAT32: 0, canonical("float16"): 1, canonical("bfloat16"): 2}
_TF32 = 3


def mixed_source() -> str:
    """Return the C source of mixed products."""
    text = (Path(__file__).parent / "mixed_products.c").read_text(encoding="utf-8")
    return "\n".join([product_source(_FLOAT32), *dict.fromkeys(HALF_HELPERS.values()), text])


@functools.lru_cache(maxsize=1)
def _library() -> Library:
    (library,) = load_kernels_together([mixed_source()], [PRODUCT_LEVEL])
    join_blas(library, "s")
    return library


def mixed_gemm_step(
    factors: np.dtype[Any], stored: np.dtype[Any], out: int, a: int, b: int, m: int, n: int,
    k: int, count: int, scratch: int, *, tf32: bool = False, shared_a: bool = False,
    shared_b: bool = False, shared_c: bool = False, c: int = 0, alpha: int = 0, beta: int = 0,
    transpose_a: bool = False, transpose_b: bool = False,
) -> tuple[int, list[int]]:  # fmt: skip
    """Return the step ``out = alpha * op(A) @ op(B) + beta * C`` of rounded factors.

    Parameters
    ----------
    factors, stored
        Dtypes of A and B, and of C and the result: float32, float16 or bfloat16.
    out, a, b, c, alpha, beta, m, n, k, count, transpose_a, transpose_b
        As for `products.batched_gemm_step`, everything packed. The scalars are float32.
    scratch : int
        Address of memory for float32 copies of what is converted: A and B unless they are float32
        and not rounded, and the result unless it is float32.
        `ops.products.rounded.conversion_bytes` counts them.
    tf32 : bool
        Round float32 factors to 11 digits.
    shared_a, shared_b, shared_c : bool
        All products share one matrix.

    Returns
    -------
    (int, list of int)
        Function and cells; 0 to 5 are the addresses of out, A, B, C, alpha and beta.
    """
    _, cells = batched_gemm_step(
        _FLOAT32, out, a, b, m, n, k, count, stride_out=m * n,
        stride_a=0 if shared_a else m * k, stride_b=0 if shared_b else k * n,
        stride_c=0 if shared_c or not c else m * n, c=c, alpha=alpha, beta=beta,
        transpose_a=transpose_a, transpose_b=transpose_b,
    )  # fmt: skip
    sizes = [
        math.prod(shape)
        for shape in ((1 if shared_a else count, m, k), (1 if shared_b else count, k, n),
                      (count, m, n))
    ]  # fmt: skip
    kind = _TF32 if tf32 else _STORED[factors]
    cells += [kind, _STORED[stored], *sizes, scratch]
    return function_address(_library(), "mg_gemm_mixed"), cells
