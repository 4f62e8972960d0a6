"""Linear algebra: factorizations, solutions, determinants, spectra, norms.

Matrices stand in the last two axes; all axes before them are a batch. Names and arguments are those
of `numpy.linalg`, beside them a few of `scipy.linalg`. Everything runs in LAPACK, in float32 or
float64 and their complex numbers; ints become floats, 16-bit floats are refused.

Gradients, of any order, are those of the function as it is computed. Where only one triangle of a
Hermitian matrix is read (`cholesky`, `eigh`, `eigvalsh`, `pinv` with ``hermitian=True``), the
gradient lies in that triangle. At singular matrices those of `det` and, where the rank stays, of
`pinv` and `lstsq` are right; those of `inv`, `solve` and `slogdet` raise. At equal eigenvalues or
singular values see `eigh` and `svd`.

A matrix that is singular, or not positive definite, or whose iteration does not converge, raises
`LinAlgError` at the call. The message says which matrix of the batch, and the node's line.
"""

from __future__ import annotations

from typing import NoReturn

from .errors import LinAlgError
from .ops.linalg.determinant import (
    SlogdetResult,
    det,
    slogdet,
)
from .ops.linalg.eig import (
    EigResult,
    eig,
    eigvals,
)
from .ops.linalg.factor import (
    LUFactors,
    LUResult,
    cholesky,
    lu,
    lu_factor,
)
from .ops.linalg.functions import (
    expm,
    matrix_power,
    solve_sylvester,
    sqrtm,
)
from .ops.linalg.least import (
    LstsqResult,
    lstsq,
    pinv,
)
from .ops.linalg.norms import (
    cond,
    matrix_norm,
    matrix_rank,
    norm,
    vector_norm,
)
from .ops.linalg.products import (
    cross,
    multi_dot,
    outer,
    vecdot,
)
from .ops.linalg.qr import (
    QRResult,
    qr,
)
from .ops.linalg.refined import (
    RefinedSolution,
    refined_solve,
)
from .ops.linalg.refined_eigh import (
    RefinedEigh,
    refined_eigh,
)
from .ops.linalg.refined_lstsq import (
    refined_lstsq,
)
from .ops.linalg.solve import (
    cho_solve,
    inv,
    lu_solve,
    solve,
)
from .ops.linalg.spectral import (
    EighResult,
    eigh,
    eigvalsh,
)
from .ops.linalg.svd import (
    SVDResult,
    svd,
    svdvals,
)
from .ops.linalg.tensor_solve import (
    tensorinv,
    tensorsolve,
)
from .ops.linalg.traces import (
    diagonal,
    matrix_transpose,
    trace,
)
from .ops.linalg.triangular import (
    triangular_solve,
)
from .ops.products.contraction import (
    matmul,
    tensordot,
)

__all__ = [
    "EigResult",
    "EighResult",
    "LUFactors",
    "LUResult",
    "LinAlgError",
    "LstsqResult",
    "QRResult",
    "RefinedEigh",
    "RefinedSolution",
    "SVDResult",
    "SlogdetResult",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "refined_eigh",
    "refined_lstsq",
    "refined_solve",
    "slogdet",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "triangular_solve",
    "vecdot",
    "vector_norm",
]

solve_triangular = triangular_solve


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from .help.spellings import missing

    raise missing(__name__, name)
