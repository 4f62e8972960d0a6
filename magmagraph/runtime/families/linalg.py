"""Factorizations, and what comes by them: generated kernels of small matrices, and LAPACK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import is_complex
from ...ir import dims
from ...ir.graph import Node
from ...ir.op import Op
from ...ir.plan import KernelFamily, Step, Value
from ...ir.types import Extent, Shape, Type
from ...ops.linalg.determinant import ADJUGATE, DET, SLOGDET, largest_condition
from ...ops.linalg.factor import CHOLESKY, LU, PERMUTATION
from ...ops.linalg.least import LSTSQ, LSTSQ_SOLUTION, PINV, cut_of
from ...ops.linalg.lowered import FACTORED_DET, FACTORED_INV, FACTORED_SLOGDET, FACTORED_SOLVE
from ...ops.linalg.qr import QR, QR_R
from ...ops.linalg.solve import INV, SOLVE
from ...ops.linalg.spectral import EIGH, EIGVALSH
from ...ops.linalg.svd import SVD, SVDVALS
from ...ops.linalg.triangular import TRIANGULAR_SOLVE
from .dtypes import BLAS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches

_INT32 = np.dtype(np.int32)
_ALWAYS = 32  # order of a matrix alone; larger ones are small where a batch of them fills a vector
_BLOCK = 66  # columns that LAPACK's routines compute at once, and a few vectors
_LEVELS = 107  # of gelsd's numbers for each singular value: it halves matrices 32 times at most
_LINE = 64  # bytes that a part of the workspace is aligned to

# The C function of each operation, and what it takes for its matrices.
_FUNCTIONS: dict[Op, tuple[str, str]] = {
    LU: ("lu", "matrix"),
    SOLVE: ("systems", "matrix"),
    INV: ("systems", "matrix"),
    FACTORED_SOLVE: ("systems", "factors"),
    FACTORED_INV: ("systems", "factors"),
    TRIANGULAR_SOLVE: ("systems", "triangle"),
    CHOLESKY: ("cholesky", "matrix"),
    EIGVALSH: ("eigenvalues", "matrix"),
    EIGH: ("eigenvalues", "matrix"),
    DET: ("determinants", "matrix"),
    SLOGDET: ("determinants", "matrix"),
    FACTORED_DET: ("determinants", "factors"),
    FACTORED_SLOGDET: ("determinants", "factors"),
    QR: ("qr", "matrix"),
    QR_R: ("qr", "matrix"),
    SVD: ("singular_values", "matrix"),
    SVDVALS: ("singular_values", "matrix"),
    PINV: ("pseudoinverse", "matrix"),
    LSTSQ: ("least_squares", "matrix"),
    LSTSQ_SOLUTION: ("least_squares", "matrix"),
    ADJUGATE: ("adjugate", "matrix"),
}
# Their results are vectors. Of one matrix the signs are LAPACK's, as NumPy gives them.
_WITH_VECTORS = (EIGH, QR, SVD)
_ALONE: dict[Op, int] = {EIGH: 0, EIGVALSH: 16}  # instead of `_ALWAYS`
_LEAST = (LSTSQ, LSTSQ_SOLUTION)
_BY_LAPACK = (SVD, SVDVALS, PINV, *_LEAST, ADJUGATE)


def _takes(node: Node) -> bool:
    return node.op in _FUNCTIONS or node.op is PERMUTATION


def _refusal(node: Node, device: str) -> str | None:
    operand = node.inputs[0].type
    assert isinstance(operand, Type)
    if node.op is PERMUTATION:
        return None if operand.dtype == _INT32 else "row exchanges are int32"
    if _FUNCTIONS[node.op][1] == "factors" and node.inputs[1].dtype != _INT32:
        return "row exchanges are int32"
    if device != "cpu":
        return _refusal_of_gpus(node, operand)
    if node.op is EIGH and node.attrs["subset"] is not None:
        return "some of the eigenvectors are computed by SciPy"
    if node.op is PINV and node.attrs["hermitian"]:
        return "pseudoinverses of Hermitian matrices are computed by NumPy"
    return None


def _refusal_of_gpus(node: Node, operand: Type) -> str | None:
    from ...codegen.cuda.matrices_code import LARGEST

    if node.op in (EIGH, EIGVALSH, QR, QR_R, *_BY_LAPACK):
        return "the GPU has no kernel for it; cuSOLVER is called through CuPy"
    if operand.dtype not in BLAS:
        return f"kernels compute in float32 and float64, not {operand.dtype.name}"
    if node.op is LU and operand.shape[-1] != operand.shape[-2]:
        return "kernels factor square matrices"
    order = operand.shape[-1]
    if isinstance(order, int) and order > LARGEST:
        return f"matrices of order {order}; the kernels take {LARGEST} at most"
    return None


def _is_small(op: Op, operand: Type, batch: Shape) -> bool | None:
    """Return whether the generated kernels of small matrices run it; None where sizes decide."""
    from ..cpu.sources import SMALL_ORDER

    if op in _BY_LAPACK or operand.dtype not in BLAS:
        return False
    name, (rows, order), count = _FUNCTIONS[op][0], operand.shape[-2:], dims.size(batch)
    if not (isinstance(rows, int) and isinstance(order, int)):
        return None
    longer = max(rows, order)
    if longer > SMALL_ORDER or (rows != order and name != "qr"):
        return False
    if longer <= _ALONE.get(op, _ALWAYS):
        return True
    return count * operand.dtype.itemsize >= _LINE if isinstance(count, int) else None


def _batch(op: Op, operand: Type, result: Type) -> Shape:
    """Return the batch of a step's matrices: right-hand sides may have a larger one."""
    return (result if _FUNCTIONS[op][0] == "systems" else operand).shape[:-2]


def _scratch(node: Node, threads: int) -> Extent:
    """Return the bytes that LAPACK needs, of which each thread has a part."""
    if node.op is PERMUTATION:
        return 0
    operand = node.inputs[0].type
    result = node.type[0] if isinstance(node.type, tuple) else node.type
    assert isinstance(operand, Type)
    batch, each = _batch(node.op, operand, result), bytes_of_one(node, operand)
    if _is_small(node.op, operand, batch) or (isinstance(each, int) and not each):
        return 0
    return each * dims.minimum(threads, dims.size(batch))


def bytes_of_one(node: Node, operand: Type) -> Extent:
    """Return the bytes of workspace of one matrix: copies, and what LAPACK's routines ask for.

    Blocked routines ask for `_BLOCK` columns of work; with less they run without blocks.
    """
    name, kind = _FUNCTIONS[node.op]
    m, n = operand.shape[-2:]
    short, long = dims.minimum(m, n), dims.maximum(m, n)
    vectors = node.op in _WITH_VECTORS
    numbers: Extent = m * n  # of the dtype
    reals: Extent = 0
    integers: Extent = short
    if kind != "matrix" or name == "cholesky":
        return 0
    if node.op in (INV, ADJUGATE):
        numbers = numbers + _BLOCK * n
    elif name == "qr":
        wide = dims.maximum(n, m if node.attrs.get("mode") == "complete" else short)
        numbers, integers = m * wide + short + _BLOCK * wide, 0
    elif name == "eigenvalues":
        integers = 3 + 5 * n
        numbers = numbers + _BLOCK * n + (1 + 6 * n + 2 * n * n if vectors else 2 * n + 1)
        reals = 1 + 5 * n + 2 * n * n
    elif node.op in (SVD, SVDVALS, PINV):
        integers = 8 * short
        numbers = numbers + 4 * short * short + 7 * short + _BLOCK * (m + n)
        reals = 7 * short + 2 * short * long + 6 * short * short
        if node.op is not SVDVALS:
            full = node.op is SVD and node.attrs["full_matrices"]
            numbers = numbers + m * (m if full else short) + n * (n if full else short) + short
    elif node.op in _LEAST:
        sides = node.inputs[1].shape[-1]
        integers, levels = _LEVELS * short, 3 * _LEVELS * short
        numbers = numbers + (long + short + _BLOCK) * sides + short * short + _BLOCK * (m + n)
        numbers = numbers + levels + 5000  # of it 65 * 64 for unmqr
        reals = levels + (77 + short) * sides + short + 2000
    size = operand.dtype.itemsize
    total = numbers * size + integers * 8 + 9 * _LINE
    if is_complex(operand.dtype):
        total = total + reals * (size // 2)
    return total


def _operands(step: Step) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the values of a step in the order of the kernels, and what the kernels do."""
    attrs = step.node.attrs
    kind = _FUNCTIONS[step.node.op][1]
    matrices, *others = step.inputs
    exchanges = others.pop(0) if kind == "factors" else None
    sides = others[0] if others else None
    second = step.outputs[1] if len(step.outputs) > 1 else None
    return [matrices, sides, exchanges, step.outputs[0], second], {
        "kind": kind,
        "lower": bool(attrs.get("lower")),
        "transposed": attrs.get("trans", "N") != "N" or bool(attrs.get("transposed")),
        "unit": bool(attrs.get("unit_diagonal")),
    }


def _ratio(step: Step) -> float:
    """Return the bound of a step's decisions: which singular values count, which inverses do."""
    matrices, attrs = step.inputs[0].type, step.node.attrs
    if step.node.op is ADJUGATE:
        return float(largest_condition(matrices.dtype))
    cut = attrs.get("rtol", attrs.get("rcond"))
    return cut_of(matrices.shape, matrices.dtype, cut) if step.node.op in (PINV, *_LEAST) else 0.0


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.linalg.lapack import lapack_step
    from ..cpu.linalg.linalg import matrices_step, permutation_step

    op = step.node.op
    out = step.outputs[0]
    if op is PERMUTATION:
        (pivots,) = step.inputs
        inverse = step.node.attrs.get("inverse", False)
        function, kept = permutation_step(out, pivots, cells.at(out), cells.at(pivots), inverse)
        return function, kept, cells.dynamic({1: out.slot, 2: pivots.slot})
    values, how = _operands(step)
    name = _FUNCTIONS[op][0]
    operand = step.inputs[0].type
    if _is_small(op, operand, _batch(op, operand, out.type)):
        addresses = [cells.at(value) for value in values]
        function, kept = matrices_step(name, addresses, values, cells.keep, **how)
    else:
        values.append(step.outputs[2] if len(step.outputs) > 2 else None)
        work = (0, 0, 0)
        if step.workspace is not None:
            each = int(dims.evaluate(bytes_of_one(step.node, operand), cells.sizes))
            size = int(cells.plan.slots[step.workspace].size)
            work = (cells.address[step.workspace], size, each // _LINE * _LINE)
        trans = step.node.attrs.get("trans", "N")
        how["trans"] = "T" if step.node.attrs.get("transposed") else trans
        how["vectors"] = op in _WITH_VECTORS
        how["full"] = bool(step.node.attrs.get("full_matrices"))
        how["ratio"] = _ratio(step)
        addresses = [cells.at(value) for value in values]
        flops = int(dims.evaluate(step.flops, cells.sizes))
        function, kept = lapack_step(name, addresses, values, work, flops, cells.keep, how)
    slots = {i: value.slot for i, value in enumerate(values, 1) if value is not None}
    return function, kept, cells.dynamic(slots)


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.kernels.matrices import matrices, permutation

    if step.node.op is PERMUTATION:
        return launches.alone(step, permutation(launches.memory, step))
    values, how = _operands(step)
    name = _FUNCTIONS[step.node.op][0]
    return launches.alone(step, matrices(launches.memory, step, name, values, **how))


def _cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    from ..cuda.kernels.matrices import cost

    function = "" if step.node.op is PERMUTATION else _FUNCTIONS[step.node.op][0]
    return cost(step, function, multiprocessors)


LINALG = KernelFamily(
    "linalg",
    takes=_takes,
    refusal=_refusal,
    can_fail=True,
    scratch=_scratch,
    cpu=_cpu,
    cuda=_cuda,
    cost=_cost,
)
